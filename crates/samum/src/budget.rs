//! The memory that peers can make a worker hold: what waits to be sent, answered or logged.
//!
//! A connection has a budget, and so have all connections of a worker together. When a connection's
//! is spent, nothing more is read from it and no further response begins until the peer has taken
//! some. When the worker's is spent, each connection has one response at a time, and a listing is
//! refused with 503. What has bounds elsewhere is not counted: buffers and pipes of the disk
//! (`sendfile::Disk`), receive buffers (`ring`), lines of logs (`log`).

use sendfile::{Account, Weight};

/// Bytes that one connection may hold. The last response that begins below it may pass it by its
/// own memory: a finished response or 64 KiB of a listing. Four finished responses of the
/// largest size wait while the fifth begins.
pub(crate) const CONNECTION_BYTES_MAX: u64 = 128 * 1024;

/// Bytes of finished responses and listings that one worker keeps for later requests.
pub(crate) const CACHED_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Bytes that the connections of one worker may hold together, beside what is cached: as much as
/// 512 connections that have spent theirs.
pub(crate) const WORKER_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// What the connections of one worker hold.
#[derive(Debug, Default)]
pub(crate) struct Budget {
    /// Memory that several connections and the cache share, each piece charged once.
    pub(crate) shared: Account,
    /// Memory of the connections' own, as of the last time that each did something.
    own: u64,
}

impl Budget {
    /// A connection that was counted with `before` bytes of its own now holds `now`.
    pub(crate) const fn recount(&mut self, before: u64, now: u64) {
        self.own = self.own - before + now;
    }

    /// Bytes that connections hold beside what they share.
    pub(crate) const fn own(&self) -> u64 {
        self.own
    }

    /// Bytes held now, those that are cached included.
    pub(crate) fn held(&self) -> u64 {
        self.own + self.shared.charged()
    }

    /// Whether all connections together hold as much as they may.
    pub(crate) fn is_spent(&self) -> bool {
        self.held() >= WORKER_BYTES_MAX + CACHED_BYTES_MAX
    }

    /// Whether a connection that holds `weight` may begin another response.
    pub(crate) fn allows(&self, weight: Weight) -> bool {
        let held = weight.total();
        held == 0 || (held < CONNECTION_BYTES_MAX && !self.is_spent())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: Weight = Weight { own: 0, shared: 0 };
    const LITTLE: Weight = Weight { own: 1, shared: 0 };

    #[test]
    fn a_connection_that_holds_nothing_may_always_begin_a_response() {
        let mut budget = Budget::default();
        budget.recount(0, WORKER_BYTES_MAX + CACHED_BYTES_MAX);
        assert!(budget.is_spent());
        assert!(budget.allows(NOTHING));
        assert!(!budget.allows(LITTLE));
    }

    #[test]
    fn memory_of_its_own_and_shared_memory_spend_a_connections_budget_together() {
        let budget = Budget::default();
        let half = CONNECTION_BYTES_MAX / 2;
        assert!(budget.allows(Weight { own: half, shared: half - 1 }));
        assert!(!budget.allows(Weight { own: half, shared: half }));
    }

    #[test]
    fn what_a_connection_gives_back_others_may_hold() {
        let mut budget = Budget::default();
        budget.recount(0, WORKER_BYTES_MAX);
        let cached = budget.shared.charge(CACHED_BYTES_MAX);
        assert!(!budget.allows(LITTLE));
        budget.recount(WORKER_BYTES_MAX, WORKER_BYTES_MAX - 1);
        assert!(budget.allows(LITTLE));
        drop(cached);
        assert_eq!(budget.held(), WORKER_BYTES_MAX - 1);
    }
}
