//! The fields that were added on one connection (RFC 7541 §2.3.2, §4).
//!
//! ```text
//!   bytes    [ evicted | oldest name, value | … | newest name, value ]
//!                      ▲ start
//!   entries            [ oldest              …   newest              ]     index 1 is the newest
//! ```

use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// The size of a field in addition to the bytes of its name and its value (RFC 7541 §4.1).
pub const FIELD_OVERHEAD: usize = 32;

/// The size of a dynamic table at most, in bytes: the size that every peer begins with (RFC 9113 §6.5.2).
pub const TABLE_BYTES_MAX: usize = 4096;

#[derive(Clone, Debug)]
pub(crate) struct DynamicTable {
    /// The names and values. Those in front of `start` are evicted.
    bytes: Vec<u8>,
    entries: VecDeque<Entry>,
    start: u32,
    /// The sum of the sizes of the fields.
    size: u16,
    size_max: u16,
    /// The number of changes so far. Indices mean the same as long as it is the same.
    changes: u64,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    name_len: u16,
    value_len: u16,
    /// The place of the name in `bytes`.
    at: u32,
    /// For searches.
    hash: u32,
}

// Lengths and sizes have 16 bits.
const _: () = assert!(TABLE_BYTES_MAX <= u16::MAX as usize);
// Most connections are idle, and each has two tables, so a table is small.
const _: () = assert!(size_of::<DynamicTable>() <= 72);

impl DynamicTable {
    pub(crate) const fn new() -> Self {
        Self {
            bytes: Vec::new(),
            entries: VecDeque::new(),
            start: 0,
            size: 0,
            size_max: small(TABLE_BYTES_MAX),
            changes: 0,
        }
    }

    pub(crate) const fn changes(&self) -> u64 {
        self.changes
    }

    pub(crate) const fn size_max(&self) -> usize {
        self.size_max as usize
    }

    /// Changes the size that the table may have, and evicts fields that no longer fit.
    ///
    /// # Panics
    ///
    /// If it is more than [`TABLE_BYTES_MAX`].
    pub(crate) fn set_size_max(&mut self, size_max: usize) {
        assert!(size_max <= TABLE_BYTES_MAX, "a table that is too large");
        self.size_max = small(size_max);
        self.changes += 1;
        self.evict(size_max);
    }

    /// The field with this index, counted from 1 for the newest.
    #[inline]
    pub(crate) fn get(&self, index: usize) -> Option<(&[u8], &[u8])> {
        let place = self.entries.len().checked_sub(index)?;
        self.entries.get(place).map(|entry| self.field(entry))
    }

    fn field(&self, entry: &Entry) -> (&[u8], &[u8]) {
        let at = entry.at as usize;
        let value_at = at + usize::from(entry.name_len);
        (&self.bytes[at..value_at], &self.bytes[value_at..value_at + usize::from(entry.value_len)])
    }

    /// The index of a field with this hash.
    pub(crate) fn find(&self, name: &[u8], value: &[u8], hash: u32) -> Option<usize> {
        let is_it = |entry: &&Entry| entry.hash == hash && self.field(entry) == (name, value);
        let place = self.entries.iter().rev().enumerate().find(|(_, entry)| is_it(entry))?.0;
        Some(place + 1)
    }

    /// Adds a field, and evicts old ones to make room. If the field is larger than the table, the table is empty then
    /// (RFC 7541 §4.4).
    pub(crate) fn insert(&mut self, name: &[u8], value: &[u8], hash: u32) {
        let size = name.len() + value.len() + FIELD_OVERHEAD;
        self.changes += 1;
        self.evict(self.size_max().saturating_sub(size));
        let lengths = (u16::try_from(name.len()), u16::try_from(value.len()));
        let (Ok(name_len), Ok(value_len)) = lengths else { return };
        if size > self.size_max() {
            return;
        }
        if self.start > u32::from(self.size_max) {
            self.compact();
        }
        let Ok(at) = u32::try_from(self.bytes.len()) else { return };
        self.bytes.extend_from_slice(name);
        self.bytes.extend_from_slice(value);
        self.entries.push_back(Entry { name_len, value_len, at, hash });
        self.size += small(size);
    }

    /// Evicts the oldest fields, until the table has at most this size.
    fn evict(&mut self, size_max: usize) {
        while usize::from(self.size) > size_max
            && let Some(oldest) = self.entries.pop_front()
        {
            let len = oldest.name_len + oldest.value_len;
            self.start += u32::from(len);
            self.size -= len + small(FIELD_OVERHEAD);
        }
        if self.entries.is_empty() {
            self.bytes.clear();
            self.start = 0;
        }
    }

    /// Removes the bytes of evicted fields.
    fn compact(&mut self) {
        self.bytes.drain(..self.start as usize);
        for entry in &mut self.entries {
            // `start` is where the oldest field begins, so no field begins in front of it.
            entry.at -= self.start;
        }
        self.start = 0;
    }

    /// Gives back memory that the fields do not need.
    pub(crate) fn shrink(&mut self) {
        self.compact();
        self.bytes.shrink_to_fit();
        self.entries.shrink_to_fit();
    }

    /// The bytes of memory that the table has allocated.
    pub(crate) fn memory(&self) -> usize {
        self.bytes.capacity() + self.entries.capacity() * size_of::<Entry>()
    }

    #[cfg(test)]
    pub(crate) fn fields(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        let newest_first = self.entries.iter().rev().map(|entry| self.field(entry));
        newest_first.map(|(name, value)| (name.to_vec(), value.to_vec())).collect()
    }

    #[cfg(test)]
    pub(crate) fn size(&self) -> usize {
        usize::from(self.size)
    }
}

/// A size of a table or of a part of it. At most [`TABLE_BYTES_MAX`].
#[allow(clippy::cast_possible_truncation, reason = "TABLE_BYTES_MAX has 16 bits")]
const fn small(size: usize) -> u16 {
    debug_assert!(size <= TABLE_BYTES_MAX);
    size as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_table_is_like_its_model(
            operations in proptest::collection::vec(
                prop_oneof![
                    8 => ("[a-z]{0,40}", "[a-z]{0,400}", Just(None)),
                    1 => ("", "", (0usize..=TABLE_BYTES_MAX).prop_map(Some)),
                    1 => ("", "", Just(Some(TABLE_BYTES_MAX))),
                    1 => ("a", "[b]{3000,5000}", Just(None)),
                ],
                0..60),
        ) {
            let mut table = DynamicTable::new();
            let mut model = VecDeque::new();
            let size_of = |model: &VecDeque<(Vec<u8>, Vec<u8>)>| -> usize {
                model.iter().map(|(name, value)| name.len() + value.len() + 32).sum()
            };
            for (name, value, size_max) in operations {
                match size_max {
                    Some(size_max) => table.set_size_max(size_max),
                    None => {
                        table.insert(name.as_bytes(), value.as_bytes(), 7);
                        model.push_front((name.into_bytes(), value.into_bytes()));
                    }
                }
                while size_of(&model) > table.size_max() {
                    model.pop_back();
                }
                prop_assert_eq!(table.fields(), Vec::from(model.clone()));
                prop_assert_eq!(table.size(), size_of(&model));
                prop_assert!(table.bytes.len() <= 2 * TABLE_BYTES_MAX);
                prop_assert!(table.get(0).is_none() && table.get(model.len() + 1).is_none());
                if let Some((name, value)) = model.back() {
                    let first = model.iter().position(|field| (&field.0, &field.1) == (name, value));
                    prop_assert_eq!(table.find(name, value, 7), first.map(|place| place + 1));
                    prop_assert_eq!(table.find(name, value, 8), None);
                }
            }
            let before = table.fields();
            table.shrink();
            prop_assert_eq!(table.fields(), before);
        }
    }
}
