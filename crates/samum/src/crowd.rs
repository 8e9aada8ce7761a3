//! Limits the number of connections of all workers together.
//!
//! Each connection takes a place. When no place is left, a new connection gets the place of the
//! connection that has been idle for longest in its own worker or, if that has no idle connection, in
//! another. So as long as any connection is idle, neither silent clients nor a full worker can shut out
//! new clients.

use core::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use ring::Waker;

/// Counts the connections of all workers, and the new connections that wait for a place.
///
/// The counters guard no other memory, and a worker that must look at them is woken through its
/// ring, so relaxed order is enough.
#[derive(Debug)]
pub struct Crowd {
    places: usize,
    taken: AtomicUsize,
    waiting: AtomicUsize,
    wakers: Mutex<Vec<Waker>>,
}

impl Crowd {
    /// Makes `places` places, but at least one.
    #[must_use]
    pub fn new(places: usize) -> Arc<Self> {
        Arc::new(Self {
            places: places.max(1),
            taken: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            wakers: Mutex::default(),
        })
    }

    /// Adds a worker's waker. It is called when a connection waits for a place, and when a place becomes
    /// free for a waiting connection.
    pub fn join(&self, waker: Waker) {
        self.wakers.lock().unwrap_or_else(PoisonError::into_inner).push(waker);
    }

    /// The number of places.
    pub(crate) const fn places(&self) -> usize {
        self.places
    }

    /// Takes a place if one is left; returns whether it did.
    pub(crate) fn enter(&self) -> bool {
        let one_more = |taken: usize| (taken < self.places).then_some(taken + 1);
        self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).is_ok()
    }

    /// Gives a place back.
    pub(crate) fn leave(&self) {
        self.taken.fetch_sub(1, Ordering::Relaxed);
        if self.waiting.load(Ordering::Relaxed) > 0 {
            self.wake();
        }
    }

    /// Notes that `now` new connections wait in a worker, in which `before` waited at its last call.
    pub(crate) fn set_waiting(&self, before: usize, now: usize) {
        if now != before {
            self.waiting.fetch_add(now.wrapping_sub(before), Ordering::Relaxed);
        }
        if now > before {
            self.wake();
        }
    }

    /// Returns whether new connections wait in any worker, and no place is left.
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
