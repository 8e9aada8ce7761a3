//! The connections of a stack in the worker's view.

use std::collections::HashMap;

use netstack::ConnectionId;

use super::news::Came;

/// The connections that the worker has not closed, by their slots in the stack.
#[derive(Debug, Default)]
pub(super) struct Connections {
    entries: Vec<Entry>,
    /// News of connections that wait for a slot in the worker.
    waiting: HashMap<ConnectionId, Vec<Came>, foldhash::quality::RandomState>,
}

/// A connection in the worker's view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// The connection waits for a slot in the worker, and its news wait, too.
    Waiting,
    /// The connection has this id in the worker.
    Open(u64),
    /// The same, and its queue will stay empty: the stack may have to send our end again.
    Ending(u64),
}

/// An entry for the connection that has or had a slot of the stack.
#[derive(Clone, Copy, Debug)]
// The entry has no padding, because each connection has one.
#[repr(Rust, packed(4))]
struct Entry {
    /// The generation in the connection's name, which tells it from others of the same slot.
    generation: u32,
    /// A mark, and the worker's id if there is one.
    state: u64,
}

/// The bits of the mark; the worker's ids are below 2⁵⁶.
const MARK: u64 = 0xff << 56;
const NONE: u64 = 0;
const WAITING: u64 = 1 << 56;
const OPEN: u64 = 2 << 56;
const ENDING: u64 = 3 << 56;

// The size counts because each idle connection has one.
const _: () = assert!(size_of::<Entry>() == 12);

impl Connections {
    /// The state of a connection; `None` if the worker has closed it.
    #[inline]
    pub(super) fn get(&self, id: ConnectionId) -> Option<Standing> {
        let entry = self.entries.get(id.place()).filter(|entry| entry.is_of(id))?;
        let name = entry.state & !MARK;
        match entry.state & MARK {
            WAITING => Some(Standing::Waiting),
            OPEN => Some(Standing::Open(name)),
            ENDING => Some(Standing::Ending(name)),
            _ => None,
        }
    }

    /// The worker's id of a connection.
    pub(super) fn name(&self, id: ConnectionId) -> Option<u64> {
        match self.get(id)? {
            Standing::Waiting => None,
            Standing::Open(name) | Standing::Ending(name) => Some(name),
        }
    }

    /// Sets the state of a connection.
    pub(super) fn set(&mut self, id: ConnectionId, standing: Standing) {
        let state = match standing {
            Standing::Waiting => WAITING,
            Standing::Open(name) => OPEN | name,
            Standing::Ending(name) => ENDING | name,
        };
        if id.place() >= self.entries.len() {
            self.entries.resize(id.place() + 1, Entry { generation: 0, state: NONE });
        }
        self.entries[id.place()] = Entry { generation: id.generation(), state };
    }

    /// Keeps news of a connection that waits for a slot.
    pub(super) fn keep(&mut self, id: ConnectionId, came: Came) {
        self.waiting.entry(id).or_default().push(came);
    }

    /// Handles the news of a connection that has waited for a slot, in their order.
    pub(super) fn take_kept(&mut self, id: ConnectionId) -> Vec<Came> {
        if self.waiting.is_empty() {
            Vec::new()
        } else {
            self.waiting.remove(&id).unwrap_or_default()
        }
    }

    /// Removes a connection that the worker has closed.
    pub(super) fn remove(&mut self, id: ConnectionId) {
        self.take_kept(id);
        if let Some(entry) = self.entries.get_mut(id.place()).filter(|entry| entry.is_of(id)) {
            entry.state = NONE;
        }
    }
}

impl Entry {
    const fn is_of(&self, id: ConnectionId) -> bool {
        self.generation == id.generation()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_of_one_connection_only() {
        let mut connections = Connections::default();
        let (first, second) = (ConnectionId(7), ConnectionId(1 << 24 | 7));
        assert_eq!((first.place(), second.place()), (7, 7));
        assert_eq!(connections.get(first), None);
        for standing in [Standing::Waiting, Standing::Open((1 << 56) - 1), Standing::Ending(0)] {
            connections.set(first, standing);
            assert_eq!((connections.get(first), connections.get(second)), (Some(standing), None));
        }
        connections.set(second, Standing::Open(3));
        connections.remove(first);
        assert_eq!(
            (connections.get(first), connections.get(second)),
            (None, Some(Standing::Open(3)))
        );
        connections.remove(second);
        assert_eq!(connections.get(second), None);
    }

    #[test]
    fn news_wait_with_their_connection() {
        let mut connections = Connections::default();
        let (one, other) = (ConnectionId(1), ConnectionId(2));
        connections.set(one, Standing::Waiting);
        connections.keep(one, Came::Room);
        connections.keep(one, Came::End);
        assert!(connections.take_kept(other).is_empty());
        assert!(matches!(connections.take_kept(one)[..], [Came::Room, Came::End]));
        connections.keep(one, Came::Lost);
        connections.remove(one);
        assert!(connections.take_kept(one).is_empty());
    }
}
