//! The record of a load, for figures of each second and of each exchange. Pure.

use core::time::Duration;

use super::failure::Failure;
use super::schedule::{Nanos, nanos};

/// One request and what became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exchange {
    /// The index of its target.
    pub target: usize,
    /// The time at which it was meant to leave, since the load began.
    pub intended: Nanos,
    /// The time at which it ended.
    pub ended: Nanos,
    /// The bytes of its body that came.
    pub bytes: u64,
    /// The reason why it failed; `None` if its response came.
    pub failure: Option<Failure>,
}

/// All exchanges of a load, and the bytes of bodies that came in each [`SLICE`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// In the order in which they ended.
    pub exchanges: Vec<Exchange>,
    /// The exchanges beyond [`EXCHANGES_MAX`], which are not kept.
    pub lost: u64,
    /// The bytes of each slice since the load began, by the group of the target.
    pub slices: Vec<[u64; GROUPS]>,
    /// The exchanges under way with each target.
    under_way: Vec<u32>,
}

impl Trace {
    /// An empty trace of a load with this many targets.
    #[must_use]
    pub fn new(targets: usize) -> Self {
        Self { under_way: vec![0; targets], ..Self::default() }
    }

    /// Counts bytes that came at a time.
    pub fn received(&mut self, at: Nanos, group: usize, bytes: u64) {
        let slice = usize::try_from(at / nanos(SLICE)).unwrap_or(SLICES_MAX).min(SLICES_MAX - 1);
        if self.slices.len() <= slice {
            self.slices.resize(slice + 1, [0; GROUPS]);
        }
        self.slices[slice][group] += bytes;
    }

    /// Counts a request that leaves.
    pub fn began(&mut self, target: usize) {
        self.under_way[target] += 1;
    }

    /// Keeps an exchange that [began](Self::began). Returns true if no other is under way with its target.
    pub fn ended(&mut self, exchange: Exchange) -> bool {
        let under_way = &mut self.under_way[exchange.target];
        *under_way -= 1;
        let is_left = *under_way == 0;
        self.keep(exchange);
        is_left
    }

    /// Keeps an exchange that has ended, or never began because no connection was free.
    pub fn keep(&mut self, exchange: Exchange) {
        if self.exchanges.len() < EXCHANGES_MAX {
            self.exchanges.push(exchange);
        } else {
            self.lost += 1;
        }
    }
}

/// The groups of targets.
pub const GROUPS: usize = 3;

/// The distance of [`Trace::slices`].
pub const SLICE: Duration = Duration::from_millis(100);

/// The slices of an hour; the last one counts all later bytes.
const SLICES_MAX: usize = 36_000;

/// The exchanges that are kept: 160 MB.
pub const EXCHANGES_MAX: usize = 4_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_added_up_by_slice_and_group() {
        let mut trace = Trace::new(1);
        for (at, group, bytes) in
            [(0, 0, 1), (99_999_999, 0, 2), (100_000_000, 2, 4), (250_000_000, 1, 8)]
        {
            trace.received(at, group, bytes);
        }
        assert_eq!(trace.slices, [[3, 0, 0], [0, 0, 4], [0, 8, 0]]);
        trace.received(u64::MAX, 1, 16);
        assert_eq!(trace.slices.len(), SLICES_MAX, "bounded");
    }

    #[test]
    fn a_target_is_left_when_its_last_exchange_ends() {
        let mut trace = Trace::new(2);
        let of = |target| Exchange { target, intended: 1, ended: 2, bytes: 3, failure: None };
        trace.began(0);
        trace.began(1);
        trace.began(0);
        let left = [0, 1, 0].map(|target| trace.ended(of(target)));
        assert_eq!(left, [false, true, true]);
        trace.keep(Exchange { failure: Some(Failure::Unfinished), ..of(1) });
        assert_eq!((trace.exchanges.len(), trace.lost), (4, 0));
    }
}
