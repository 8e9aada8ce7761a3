//! The places for connections, which all workers share.
//!
//! Each connection has a place. When none is left, a newcomer gets that of the connection that has
//! been idle for longest in its own worker, or, if none is idle there, in another. So neither silent
//! clients nor a full worker shut others out for as long as a connection is idle anywhere.

use core::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use ring::Waker;

/// Counts the connections of all workers and the newcomers that wait for a place.
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
    /// At least one place.
    #[must_use]
    pub fn new(places: usize) -> Arc<Self> {
        Arc::new(Self {
            places: places.max(1),
            taken: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            wakers: Mutex::default(),
        })
    }

    /// Has a worker woken when a place is wanted or free.
    pub fn join(&self, waker: Waker) {
        self.wakers.lock().unwrap_or_else(PoisonError::into_inner).push(waker);
    }

    /// Places in all.
    pub(crate) const fn places(&self) -> usize {
        self.places
    }

    /// Takes a place, if one is left.
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

    /// So many newcomers wait in a worker where `before` waited when it last said so.
    pub(crate) fn set_waiting(&self, before: usize, now: usize) {
        if now != before {
            self.waiting.fetch_add(now.wrapping_sub(before), Ordering::Relaxed);
        }
        if now > before {
            self.wake();
        }
    }

    /// Whether newcomers wait anywhere, and no place is left.
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
    fn there_are_no_more_places_than_there_are() {
        let crowd = Crowd::new(2);
        assert!(crowd.enter() && crowd.enter() && !crowd.enter());
        assert!(!crowd.is_full(), "nobody waits");
        crowd.set_waiting(0, 3);
        assert!(crowd.is_full());
        crowd.leave();
        assert!(!crowd.is_full(), "one of them can be let in");
        assert!(crowd.enter());
        crowd.set_waiting(3, 0);
        assert!(!crowd.is_full());
    }
}
