//! Limits the number of connections of all workers together.
//!
//! Each connection takes a slot. When no slot is left, a new connection gets the slot of the connection that has been
//! idle for longest in its own worker. If its own worker has no idle connection, another worker gives a slot. So
//! neither silent clients nor a full worker can shut out new clients as long as any connection is idle.

use core::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use ring::Waker;

/// Counts the connections of all workers, and the new connections that wait for a slot.
///
/// Relaxed order is enough: the counters guard no other memory, and the ring of a worker wakes it when it must look at
/// the counters.
#[derive(Debug)]
pub struct Crowd {
    places: usize,
    taken: AtomicUsize,
    waiting: AtomicUsize,
    wakers: Mutex<Vec<Waker>>,
}

impl Crowd {
    /// Makes `places` slots, but at least one.
    #[must_use]
    pub fn new(places: usize) -> Arc<Self> {
        Arc::new(Self {
            places: places.max(1),
            taken: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            wakers: Mutex::default(),
        })
    }

    /// Adds a worker's waker. It is called when a connection waits for a slot, and when a slot becomes free for a
    /// waiting connection.
    pub fn join(&self, waker: Waker) {
        self.wakers.lock().unwrap_or_else(PoisonError::into_inner).push(waker);
    }

    /// The number of slots.
    pub(crate) const fn places(&self) -> usize {
        self.places
    }

    /// Takes a slot if one is left; returns whether it did.
    pub(crate) fn enter(&self) -> bool {
        let one_more = |taken: usize| (taken < self.places).then_some(taken + 1);
        self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).is_ok()
    }

    /// Gives a slot back.
    pub(crate) fn leave(&self) {
        self.taken.fetch_sub(1, Ordering::Relaxed);
        if self.waiting.load(Ordering::Relaxed) > 0 {
            self.wake();
        }
    }

    /// Updates the number of waiting connections of one worker from `before`, the value of its last call, to `now`.
    pub(crate) fn set_waiting(&self, before: usize, now: usize) {
        if now != before {
            self.waiting.fetch_add(now.wrapping_sub(before), Ordering::Relaxed);
        }
        if now > before {
            self.wake();
        }
    }

    /// Returns true if new connections wait in any worker and no slot is left.
    pub(crate) fn is_full(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
            && self.taken.load(Ordering::Relaxed) >= self.places
    }

    fn wake(&self) {
        for waker in self.wakers.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            waker.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_places_is_the_limit() {
        let crowd = Crowd::new(2);
        assert!(crowd.enter() && crowd.enter() && !crowd.enter());
        assert!(!crowd.is_full(), "no connection waits");
        crowd.set_waiting(0, 3);
        assert!(crowd.is_full());
        crowd.leave();
        assert!(!crowd.is_full(), "one of them can be let in");
        assert!(crowd.enter());
        crowd.set_waiting(3, 0);
        assert!(!crowd.is_full());
    }
}
