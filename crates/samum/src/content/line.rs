//! Which loads may run now.
//!
//! A load has descriptors open while it runs, so only some run at once and the others stand in line;
//! then no open fails because of others. A load that finds a large file, whose descriptor stays open
//! as long as the response, is *parked* until there is room for it: small files, which need their
//! descriptors for a moment only, pass it by.

use core::time::Duration;
use std::collections::VecDeque;

use ring::{Key, Time};

/// Loads that wait for their turn; a request beyond that is answered with 503. As many as 1,024
/// connections can ask for at once.
const WAITING_MAX: usize = 64 * 1024;
/// Memory of all loads; a request beyond that is answered with 503. Loads outlive the connections
/// that asked for them.
const BYTES_MAX: usize = 16 * 1024 * 1024;
/// How often parked loads are looked at: nothing tells us when a response has ended.
const PARKED_LOOK: Duration = Duration::from_millis(10);
/// A load that was parked for so long goes on although its files find no room, one in this time: the
/// descriptors may be held by answers of its own connection, which wait for it.
const PARKED_MAX: Duration = Duration::from_millis(100);

/// The loads that run, and those that wait.
#[derive(Debug)]
pub(super) struct Line {
    places: usize,
    taken: usize,
    /// Loads that wait for a place.
    waiting: VecDeque<Key>,
    /// Loads that wait for room for their large files, the oldest first.
    parked: VecDeque<Parked>,
    /// When the last load went on without room.
    last_overdue: Time,
    /// Memory of all loads.
    bytes: usize,
}

/// A load that waits for room.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parked {
    pub(super) load: Key,
    /// Large files that the load will keep open.
    pub(super) files: usize,
    pub(super) since: Time,
}

impl Line {
    pub(super) const fn new(places: usize) -> Self {
        Self {
            places,
            taken: 0,
            waiting: VecDeque::new(),
            parked: VecDeque::new(),
            last_overdue: Time::from_nanos(0),
            bytes: 0,
        }
    }

    pub(super) fn is_full(&self) -> bool {
        self.waiting.len() + self.parked.len() >= WAITING_MAX || self.bytes >= BYTES_MAX
    }

    /// Counts the memory of a load that begins.
    pub(super) const fn charge(&mut self, bytes: usize) {
        self.bytes += bytes;
    }

    /// A load with so much memory has ended.
    pub(super) const fn refund(&mut self, bytes: usize) {
        self.bytes -= bytes;
    }

    /// Takes a place for a load, or puts the load into the line and returns false.
    pub(super) fn enter(&mut self, load: Key) -> bool {
        if self.taken < self.places {
            self.taken += 1;
            return true;
        }
        self.waiting.push_back(load);
        false
    }

    /// A load gives its place back; returns the load that takes it.
    pub(super) fn leave(&mut self) -> Option<Key> {
        let next = self.waiting.pop_front();
        self.taken -= usize::from(next.is_none());
        next
    }

    pub(super) fn park(&mut self, parked: Parked) {
        self.parked.push_back(parked);
    }

    pub(super) fn first_parked(&self) -> Option<Parked> {
        self.parked.front().copied()
    }

    /// Whether a load may go on without room.
    pub(super) fn is_overdue(&self, parked: Parked, now: Time) -> bool {
        now.since(parked.since.max(self.last_overdue)) >= PARKED_MAX
    }

    /// The first parked load goes on without room.
    pub(super) const fn let_overdue_go(&mut self, now: Time) {
        self.last_overdue = now;
    }

    /// The first parked load goes on.
    pub(super) fn unpark(&mut self) {
        self.parked.pop_front();
    }

    /// When parked loads are to be looked at.
    pub(super) fn next_look(&self, now: Time) -> Option<Time> {
        (!self.parked.is_empty()).then(|| now + PARKED_LOOK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ring::Slab;

    #[test]
    fn places_pass_from_load_to_load_in_order() {
        let mut keys = Slab::new();
        let [a, b, c, d] = [(); 4].map(|()| keys.insert(()));
        let mut line = Line::new(2);
        assert_eq!([a, b, c, d].map(|key| line.enter(key)), [true, true, false, false]);
        assert_eq!(line.leave(), Some(c));
        assert_eq!(line.leave(), Some(d));
        assert_eq!(line.leave(), None);
        assert!(line.enter(a), "a place is free again");
        assert_eq!((line.leave(), line.leave()), (None, None));
        assert_eq!(line.taken, 0);
    }
}
