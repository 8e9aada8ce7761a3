//! Time, and the operations that wait for it.

use core::cmp::Reverse;
use core::num::NonZeroU64;
use core::ops::{Add, Sub};
use core::time::Duration;
use std::collections::BinaryHeap;

use crate::slab::Key;

/// A point on the ring's clock: nanoseconds since some fixed moment, never going back.
// One more than the nanoseconds: so an `Option` of a time has the size of a time, which idle connections have several of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(NonZeroU64);

impl Default for Time {
    fn default() -> Self {
        Self::from_nanos(0)
    }
}

impl Time {
    /// The point this many nanoseconds after the clock's start.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(NonZeroU64::MIN.saturating_add(nanos))
    }

    /// Nanoseconds since the clock's start.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0.get() - 1
    }

    /// The time from `earlier` to this; zero if it is not later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.get().saturating_sub(earlier.0.get()))
    }

    /// The earliest of these times; `None` if all are `None`.
    #[must_use]
    pub fn earliest(times: impl IntoIterator<Item = Option<Self>>) -> Option<Self> {
        times.into_iter().fold(None, |earliest, time| match (earliest, time) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        })
    }
}

impl Add<Duration> for Time {
    type Output = Self;

    /// 584 years after the clock's start time ends; a timeout beyond that means "never".
    fn add(self, rhs: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(rhs.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl Sub for Time {
    type Output = Duration;

    fn sub(self, rhs: Self) -> Duration {
        self.since(rhs)
    }
}

/// Timer operations in flight, soonest first. A cancelled one stays, and is skipped because its key
/// is gone, until its time has come or the cancelled ones are the majority.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    heap: BinaryHeap<Reverse<(Time, u64)>>,
    /// The number of timers cancelled since the last look; timers that fell due meanwhile are
    /// included.
    cancelled: usize,
}

/// With fewer cancelled timers a search for them is not worth it.
const CANCELLED_MIN: usize = 1024;

impl Timers {
    pub(crate) fn insert(&mut self, at: Time, key: Key) {
        self.heap.push(Reverse((at, key.to_bits())));
    }

    /// Notes that a timer's key has gone before its time; `is_live` says which keys have not.
    pub(crate) fn forget_one(&mut self, mut is_live: impl FnMut(Key) -> bool) {
        self.cancelled += 1;
        if self.cancelled >= CANCELLED_MIN && self.cancelled > self.heap.len() / 2 {
            self.heap.retain(|Reverse((_, bits))| is_live(Key::from_bits(*bits)));
            self.cancelled = 0;
        }
    }

    /// Returns the time of the earliest timer.
    pub(crate) fn next(&self) -> Option<Time> {
        self.heap.peek().map(|Reverse((at, _))| *at)
    }

    /// Removes a timer that is due, and returns its key.
    #[inline]
    pub(crate) fn pop(&mut self, now: Time) -> Option<Key> {
        if self.next()? > now {
            return None;
        }
        self.heap.pop().map(|Reverse((_, bits))| Key::from_bits(bits))
    }
}
