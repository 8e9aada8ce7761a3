//! Streams that hold buffers or pipes and wait for their peers.

use core::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use ring::Time;

use super::Disk;
use crate::stream_queue::Owner;

/// Streams that hold buffers or pipes and wait for their peers, each at most once.
#[derive(Debug, Default)]
pub(super) struct Holders {
    /// Ordered by the earliest time at which they may be named, then by their beginning.
    all: RefCell<BTreeMap<(Time, u64), Owner>>,
    next: Cell<u64>,
}

impl Holders {
    pub(super) fn insert(&self, from: Time, owner: Owner) -> (Time, u64) {
        let next = self.next.get();
        self.next.set(next + 1);
        self.all.borrow_mut().insert((from, next), owner);
        (from, next)
    }
}

/// A stream's entry among the holders; dropping it takes it out.
#[derive(Debug)]
pub(crate) struct Holding {
    holders: Rc<Holders>,
    owner: Owner,
    place: (Time, u64),
}

impl Holding {
    /// Lets the stream be named again from then on. It was named, and could not give all back.
    pub(crate) fn look_again(&mut self, from: Time) {
        self.holders.all.borrow_mut().remove(&self.place);
        self.place = self.holders.insert(from, self.owner);
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        self.holders.all.borrow_mut().remove(&self.place);
    }
}

impl Disk {
    /// The stream that has held buffers or pipes for the longest time while it waits for its peer. Call
    /// [`reclaim`](crate::Stream::reclaim) for it. It is named again only when it holds others or its transport is
    /// blocked anew. If its peer has yet to acknowledge them, it is not named again before
    /// [`HOLD_MAX`](crate::HOLD_MAX).
    pub fn next_holder(&mut self, now: Time) -> Option<Owner> {
        let mut all = self.holders.all.borrow_mut();
        let first = all.first_entry().filter(|first| first.key().0 <= now)?;
        Some(first.remove())
    }

    /// Notes that a stream holds buffers or pipes and waits for its peer, until the result is dropped.
    pub(crate) fn hold(&self, owner: Owner) -> Holding {
        let holders = Rc::clone(&self.holders);
        let place = holders.insert(Time::default(), owner);
        Holding { holders, owner, place }
    }
}
