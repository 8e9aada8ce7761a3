//! The connections of a worker by id, and the idle connections among them.

use core::ops::Range;
use core::time::Duration;
use std::collections::{BinaryHeap, VecDeque};

use netstack::slots::{Key, Slots, VALUES_MAX};
use ring::Time;

/// The most idle connections that one look at all connections remembers, to be closed when slots are wanted.
const IDLERS_MAX: usize = 256;
/// Slots that are looked at in one worker turn: a look takes a few nanoseconds for each.
pub(super) const LOOKS_MAX: u32 = 2048;
/// The pause after a look that has found fewer.
pub(super) const IDLERS_PAUSE: Duration = Duration::from_millis(50);
/// A connection that has been idle for less keeps its slot. A request that was in the socket when the connection was
/// accepted is read in the next worker turn, or in a later one if buffers are short.
pub(super) const IDLE_MIN: Duration = Duration::from_millis(50);

/// Connections that share an allocation of about 8 KiB.
const CHUNK: u32 = 64;

/// Connections by id: the bits of a [`Key`], which fit into a token. The connections lie in chunks, without a pointer
/// and an allocation for each.
pub(super) struct Connections<C>(Slots<C, CHUNK>);

impl<C> Connections<C> {
    pub(super) const fn len(&self) -> usize {
        self.0.len() as usize
    }

    /// Keeps the connection that is made for a new id; returns the id.
    ///
    /// # Panics
    ///
    /// If there are 2²⁴ − 1 connections already; there are far fewer slots.
    pub(super) fn insert_with(&mut self, make: impl FnOnce(u64) -> C) -> u64 {
        self.0.insert_with(|key| make(key.to_bits())).expect("there is a place").to_bits()
    }

    /// The index of a connection. No other connection has the index at the same time.
    pub(super) const fn index(id: u64) -> u32 {
        Key::from_bits(id).index()
    }

    /// The indices of connections, from this one on, that are looked at in one worker turn.
    pub(super) fn indices(&self, from: u32) -> Range<u32> {
        let end = self.0.index_end();
        from.min(end)..end.min(from.saturating_add(LOOKS_MAX))
    }

    /// Returns true if no connection has this index or a larger one.
    pub(super) fn is_end(&self, index: u32) -> bool {
        index >= self.0.index_end()
    }

    /// The id of the connection that has an index now.
    pub(super) fn id_at(&self, index: u32) -> Option<u64> {
        Some(self.0.key(index)?.to_bits())
    }

    fn get(&self, id: u64) -> Option<&C> {
        self.0.get(Key::from_bits(id))
    }

    #[inline]
    pub(super) fn get_mut(&mut self, id: u64) -> Option<&mut C> {
        self.0.get_mut(Key::from_bits(id))
    }

    pub(super) fn remove(&mut self, id: u64) -> Option<C> {
        self.0.remove(Key::from_bits(id))
    }

    pub(super) fn ids(&self) -> Vec<u64> {
        self.0.iter().map(|(key, _)| key.to_bits()).collect()
    }
}

impl<C> Default for Connections<C> {
    fn default() -> Self {
        Self(Slots::new(VALUES_MAX))
    }
}

/// Idle connections to close when slots are wanted; the one that has been idle for longest is first.
#[derive(Default)]
pub(super) struct Idlers {
    found: VecDeque<(Time, u64)>,
    /// `Some` while a look at all connections goes on.
    look: Option<Look>,
    /// The time before which another look would find nothing new.
    look_at: Time,
}

/// A look at all connections, which can take several worker turns.
struct Look {
    began: Time,
    /// The index of the next connection.
    next: u32,
    /// The connections before `next` that had been idle for longest when the look began.
    oldest: BinaryHeap<(Time, u64)>,
}

impl Idlers {
    /// The next connection to close, if it is known. One look finds many, so a flood of newcomers costs each of them
    /// little.
    pub(super) fn next<C>(
        &mut self,
        connections: &Connections<C>,
        now: Time,
        idle_since: impl Fn(&C) -> Option<Time>,
    ) -> Option<u64> {
        loop {
            while let Some((since, id)) = self.found.pop_front() {
                if connections.get(id).and_then(&idle_since) == Some(since) {
                    return Some(id);
                }
            }
            if self.look.is_none() && now < self.look_at {
                return None;
            }
            let mut look = self.look.take().unwrap_or_else(|| Look::new(now));
            look.go_on(connections, &idle_since);
            if !connections.is_end(look.next) {
                self.look = Some(look);
                return None;
            }
            if look.oldest.len() < IDLERS_MAX {
                self.look_at = now + IDLERS_PAUSE;
            }
            self.found = look.oldest.into_sorted_vec().into();
        }
    }

    /// Returns true if the next call of [`next`](Self::next) continues a look.
    pub(super) const fn is_looking(&self) -> bool {
        self.look.is_some()
    }

    /// Ends a look because no slot is wanted any more.
    pub(super) fn stop_looking(&mut self) {
        self.look = None;
    }
}

impl Look {
    const fn new(now: Time) -> Self {
        Self { began: now, next: 0, oldest: BinaryHeap::new() }
    }

    /// Looks at as many connections as one worker turn has time for.
    fn go_on<C>(&mut self, connections: &Connections<C>, idle_since: impl Fn(&C) -> Option<Time>) {
        let indices = connections.indices(self.next);
        self.next = indices.end;
        for id in indices.filter_map(|index| connections.id_at(index)) {
            // A connection that became idle during the look is younger than those that the look has passed.
            let Some(since) = connections
                .get(id)
                .and_then(&idle_since)
                .filter(|since| *since + IDLE_MIN <= self.began)
            else {
                continue;
            };
            if self.oldest.len() < IDLERS_MAX {
                self.oldest.push((since, id));
            } else if let Some(mut youngest) = self.oldest.peek_mut()
                && (since, id) < *youngest
            {
                *youngest = (since, id);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use core::cell::Cell;

    use proptest::prelude::*;

    use super::*;

    fn at(millis: u64) -> Time {
        Time::default() + Duration::from_millis(millis)
    }

    /// Finds the next connection to close, in as many worker turns as needed, and returns the number of these turns.
    fn find(
        idlers: &mut Idlers,
        connections: &Connections<Option<Time>>,
        now: Time,
    ) -> (Option<u64>, usize) {
        for turn in 1.. {
            let looks = Cell::new(0);
            let next = idlers.next(connections, now, |since| {
                looks.set(looks.get() + 1);
                *since
            });
            // Connections that were found are looked at once more.
            assert!(looks.get() <= LOOKS_MAX as usize + IDLERS_MAX, "{} in a turn", looks.get());
            if next.is_some() || !idlers.is_looking() {
                return (next, turn);
            }
        }
        unreachable!("a look ends")
    }

    #[test]
    fn the_one_that_has_been_idle_for_longest_is_found_in_short_turns() {
        let mut connections = Connections::default();
        let ids: Vec<u64> =
            (0..10_000_u64).map(|n| connections.insert_with(|_| Some(at(20_000 - n)))).collect();
        let mut idlers = Idlers::default();
        let (next, turns) = find(&mut idlers, &connections, at(30_000));
        assert_eq!((next, turns), (ids.last().copied(), 10_000_usize.div_ceil(LOOKS_MAX as usize)));
        // The next ones are known. A connection that has done something since has not been idle for so long.
        *connections.get_mut(ids[9_998]).expect("it is there") = Some(at(29_000));
        for id in ids.iter().rev().skip(2).take(IDLERS_MAX - 2) {
            assert_eq!(find(&mut idlers, &connections, at(30_000)), (Some(*id), 1));
        }
        assert!(find(&mut idlers, &connections, at(30_000)).1 > 1, "another look");
    }

    #[test]
    fn a_look_without_use_is_not_repeated_at_once() {
        let mut connections = Connections::default();
        let id = connections.insert_with(|_| Some(at(1000)));
        let mut idlers = Idlers::default();
        assert_eq!(find(&mut idlers, &connections, at(1049)).0, None, "it was idle for 49 ms");
        assert_eq!(find(&mut idlers, &connections, at(1060)).0, None);
        assert_eq!(find(&mut idlers, &connections, at(1100)).0, Some(id));
    }

    proptest! {
        #[test]
        fn they_come_in_the_order_of_their_times(times in prop::collection::vec(prop::option::of(0_u64..5000), 0..3000)) {
            let mut connections = Connections::default();
            let mut all: Vec<_> = Vec::new();
            for time in times {
                let id = connections.insert_with(|_| time.map(at));
                all.extend(time.filter(|time| *time <= 4000 - 50).map(|time| (time, id)));
            }
            all.sort_unstable();
            let mut idlers = Idlers::default();
            for (_, id) in all {
                prop_assert_eq!(find(&mut idlers, &connections, at(4000)).0, Some(id));
                prop_assert!(connections.remove(id).is_some());
            }
            prop_assert_eq!(find(&mut idlers, &connections, at(4000)).0, None);
        }
    }
}
