//! The connections of a worker by id, and which of them are idle.

use core::time::Duration;
use std::collections::VecDeque;

use ring::{Key, Slab, Time};

/// Idle connections that are remembered to be closed when places are wanted, from one look at all.
const IDLERS_MAX: usize = 256;
/// When a look has found fewer, the next is not before this.
pub(super) const IDLERS_PAUSE: Duration = Duration::from_millis(50);

/// Connections by id: the bits of a [`Key`], which fit into a token.
pub(super) struct Connections<C>(Slab<Option<Box<C>>>);

impl<C> Connections<C> {
    pub(super) const fn len(&self) -> usize {
        self.0.len()
    }

    /// A new id, whose connection is to be [put](Self::put).
    pub(super) fn reserve(&mut self) -> u64 {
        self.0.insert(None).to_bits()
    }

    fn get(&self, id: u64) -> Option<&C> {
        self.0.get(Key::from_bits(id))?.as_deref()
    }

    #[inline]
    pub(super) fn take(&mut self, id: u64) -> Option<Box<C>> {
        self.0.get_mut(Key::from_bits(id))?.take()
    }

    #[inline]
    pub(super) fn put(&mut self, id: u64, connection: Box<C>) {
        let place = self.0.get_mut(Key::from_bits(id)).expect("reserved and not freed");
        *place = Some(connection);
    }

    pub(super) fn free(&mut self, id: u64) {
        self.0.remove(Key::from_bits(id)).expect("reserved and not freed");
    }

    pub(super) fn ids(&self) -> Vec<u64> {
        self.present().map(|(id, _)| id).collect()
    }

    fn present(&self) -> impl Iterator<Item = (u64, &C)> {
        self.0.iter().filter_map(|(key, place)| Some((key.to_bits(), place.as_deref()?)))
    }
}

impl<C> Default for Connections<C> {
    fn default() -> Self {
        Self(Slab::new())
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
