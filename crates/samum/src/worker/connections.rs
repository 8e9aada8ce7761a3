//! The connections of a worker by id, and which of them are idle.

use core::time::Duration;
use std::collections::VecDeque;

use netstack::slots::{Key, Slots, VALUES_MAX};
use ring::Time;

/// Idle connections that are remembered to be closed when places are wanted, from one look at all.
const IDLERS_MAX: usize = 256;
/// When a look has found fewer, the next is not before this.
pub(super) const IDLERS_PAUSE: Duration = Duration::from_millis(50);
/// A connection that has been idle for less keeps its place. A request that was in the socket when the connection
/// was accepted is read in the next turn, or in one of the next if buffers are short.
const IDLE_MIN: Duration = Duration::from_millis(50);

/// Connections that get memory together, about 8 KiB of it.
const CHUNK: u32 = 64;

/// Connections by id: the bits of a [`Key`], which fit into a token. They lie in chunks, without a pointer and an
/// allocation for each.
pub(super) struct Connections<C>(Slots<C, CHUNK>);

impl<C> Connections<C> {
    pub(super) const fn len(&self) -> usize {
        self.0.len() as usize
    }

    /// Keeps the connection that is made for a new id; returns the id.
    ///
    /// # Panics
    ///
    /// If there are 2²⁴ − 1 connections already: there are far fewer places for them.
    pub(super) fn insert_with(&mut self, make: impl FnOnce(u64) -> C) -> u64 {
        self.0.insert_with(|key| make(key.to_bits())).expect("there is a place").to_bits()
    }

    /// The index of a connection: no other one has it at the same time.
    pub(super) const fn index(id: u64) -> u32 {
        Key::from_bits(id).index()
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
        self.present().map(|(id, _)| id).collect()
    }

    fn present(&self) -> impl Iterator<Item = (u64, &C)> {
        self.0.iter().map(|(key, connection)| (key.to_bits(), connection))
    }
}

impl<C> Default for Connections<C> {
    fn default() -> Self {
        Self(Slots::new(VALUES_MAX))
    }
}

/// Idle connections to close when places are wanted, the oldest first.
#[derive(Default)]
pub(super) struct Idlers {
    found: VecDeque<(u64, Time)>,
    /// There is no use in looking before this.
    look_at: Time,
}

impl Idlers {
    /// The next one to close. A look at all connections finds many, so that a flood of newcomers
    /// costs each of them little.
    pub(super) fn next<C>(
        &mut self,
        connections: &Connections<C>,
        now: Time,
        idle_since: impl Fn(&C) -> Option<Time>,
    ) -> Option<u64> {
        loop {
            while let Some((id, since)) = self.found.pop_front() {
                if connections.get(id).and_then(&idle_since) == Some(since) {
                    return Some(id);
                }
            }
            if now < self.look_at {
                return None;
            }
            let mut all: Vec<(Time, u64)> = connections
                .present()
                .filter_map(|(id, connection)| Some((idle_since(connection)?, id)))
                .filter(|(since, _)| *since + IDLE_MIN <= now)
                .collect();
            if all.len() > IDLERS_MAX {
                all.select_nth_unstable(IDLERS_MAX);
                all.truncate(IDLERS_MAX);
            } else {
                self.look_at = now + IDLERS_PAUSE;
            }
            all.sort_unstable();
            self.found = all.into_iter().map(|(since, id)| (id, since)).collect();
            if self.found.is_empty() {
                return None;
            }
        }
    }
}
