//! The connections of a stack, by identifier and by their two ends.

use alloc::vec::Vec;
use core::mem;

use crate::application::ConnectionId;
use crate::config::Config;
use crate::siphash::Key as HashKey;
use crate::slots::{Key, Slots};
use crate::table::{Chained, Table};
use crate::tcp::EndpointBytes;
use crate::tcp::{Connection, Endpoints};
use crate::timers::Tick;

/// All connections.
pub(super) struct Connections {
    slots: Slots<Entry>,
    table: Table,
    hash: HashKey,
}

/// The connection of an identifier.
enum Entry {
    /// A connection of [`connect`](crate::Stack::connect) that is not open yet: the key of its handshake.
    Asked(Key),
    Open(TableEntry),
}

/// A connection, and its membership in the stack's lists.
pub(super) struct TableEntry {
    pub(super) connection: Connection,
    /// The tick of the connection's entry in the wheel, if `has_tick`.
    pub(super) tick: Tick,
    pub(super) has_tick: bool,
    /// True if the connection is in the stack's list `touched`.
    pub(super) is_touched: bool,
    /// True if the connection waits for room at the interface.
    pub(super) is_blocked: bool,
}

// With 8 bytes of the slot and 4 of the table, a connection takes 148 bytes.
const _: () = assert!(size_of::<Entry>() == 136);

impl TableEntry {
    /// Makes the next flush handle the connection.
    #[inline]
    pub(super) fn touch(&mut self, key: Key, touched: &mut Vec<Key>) {
        if !mem::replace(&mut self.is_touched, true) {
            touched.push(key);
        }
    }

    /// Records that the connection waits for room at the interface.
    pub(super) fn block(&mut self, key: Key, blocked: &mut Vec<Key>) {
        if !mem::replace(&mut self.is_blocked, true) {
            blocked.push(key);
        }
    }
}

/// The identifier of the connection with this key.
pub(super) const fn id_of(key: Key) -> ConnectionId {
    ConnectionId(key.to_bits())
}

/// The key of the connection with this identifier.
pub(super) const fn key_of(id: ConnectionId) -> Key {
    Key::from_bits(id.0)
}

impl Connections {
    /// An empty collection for at most `max` connections.
    pub(super) fn new(secret: HashKey, max: u32) -> Self {
        Self { slots: Slots::new(max), table: Table::new(), hash: secret.derive(b'n') }
    }

    /// The open connection with these ends.
    #[inline]
    pub(super) fn find(&self, config: &Config, endpoints: &Endpoints) -> Option<Key> {
        let slots = &self.slots;
        let is = |index| match slots.at(index) {
            Some(Entry::Open(place)) => place.connection.is_between(config, endpoints),
            _ => false,
        };
        let hash = hash_of(self.hash, endpoints);
        slots.key(self.table.find(hash, |index| slots.link(index), is)?)
    }

    /// The open connection with this key.
    pub(super) fn get(&self, key: Key) -> Option<&TableEntry> {
        match self.slots.get(key)? {
            Entry::Open(place) => Some(place),
            Entry::Asked(_) => None,
        }
    }

    /// The open connection with this key.
    #[inline]
    pub(super) fn get_mut(&mut self, key: Key) -> Option<&mut TableEntry> {
        match self.slots.get_mut(key)? {
            Entry::Open(place) => Some(place),
            Entry::Asked(_) => None,
        }
    }

    /// The handshake of a connection that is not open yet.
    pub(super) fn handshake_of(&self, key: Key) -> Option<Key> {
        match self.slots.get(key)? {
            Entry::Open(_) => None,
            Entry::Asked(handshake) => Some(*handshake),
        }
    }

    /// Reserves a key for an active open; `None` at the maximum of connections.
    pub(super) fn ask(&mut self, handshake: Key) -> Option<Key> {
        self.slots.insert(Entry::Asked(handshake))
    }

    /// Adds an open connection, under the reserved key of its active open or under a new key. `None` at the maximum
    /// of connections.
    pub(super) fn open(
        &mut self,
        config: &Config,
        asked: Option<Key>,
        connection: Connection,
    ) -> Option<Key> {
        let hash = hash_of(self.hash, &connection.endpoints(config));
        let entry = Entry::Open(TableEntry {
            connection,
            tick: 0,
            has_tick: false,
            is_touched: false,
            is_blocked: false,
        });
        let key = match asked {
            Some(key) => {
                *self.slots.get_mut(key)? = entry;
                key
            }
            None => self.slots.insert(entry)?,
        };
        let mut linked = Linked { slots: &mut self.slots, hash: self.hash, config };
        self.table.insert(&mut linked, hash, key.index);
        Some(key)
    }

    /// Removes a connection; `None` if it was not open.
    pub(super) fn remove(&mut self, config: &Config, key: Key) -> Option<Connection> {
        if let Some(place) = self.get(key) {
            let hash = hash_of(self.hash, &place.connection.endpoints(config));
            let mut linked = Linked { slots: &mut self.slots, hash: self.hash, config };
            self.table.remove(&mut linked, hash, key.index);
        }
        match self.slots.remove(key)? {
            Entry::Open(place) => Some(place.connection),
            Entry::Asked(_) => None,
        }
    }

    pub(super) const fn is_full(&self) -> bool {
        self.slots.is_full()
    }

    /// The open connections.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Key, &Connection)> {
        self.slots.iter().filter_map(|(key, entry)| match entry {
            Entry::Open(place) => Some((key, &place.connection)),
            Entry::Asked(_) => None,
        })
    }

    /// The number of open connections.
    pub(super) const fn len(&self) -> usize {
        self.table.len()
    }

    /// Bytes of memory, without the memory of data in motion.
    pub(super) fn memory(&self) -> usize {
        self.slots.memory() + self.table.memory()
    }
}

/// The table's view of the slots.
struct Linked<'a> {
    slots: &'a mut Slots<Entry>,
    hash: HashKey,
    config: &'a Config,
}

#[expect(clippy::cast_possible_truncation, reason = "a hash of 32 bits")]
#[inline]
fn hash_of(key: HashKey, endpoints: &Endpoints) -> u32 {
    key.spread(&EndpointBytes::new(endpoints)) as u32
}

impl Chained for Linked<'_> {
    fn link(&self, index: u32) -> u32 {
        self.slots.link(index)
    }

    fn set_link(&mut self, index: u32, link: u32) {
        self.slots.set_link(index, link);
    }

    fn hash(&self, index: u32) -> u32 {
        match self.slots.at(index) {
            Some(Entry::Open(place)) => {
                hash_of(self.hash, &place.connection.endpoints(self.config))
            }
            _ => 0,
        }
    }
}
