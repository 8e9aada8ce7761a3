//! Stores values by index or by a key that never names a later value; grows to a million values without a pause.
//!
//! Values live in chunks that never move, so growing copies nothing. Empty chunks are freed, except one. Each slot
//! has a link. While the slot has a value, the link belongs to the owner's table (`table.rs`); otherwise it belongs
//! to the chunk's list of free slots.

use alloc::boxed::Box;
use alloc::vec::Vec;

/// Names one value for ever: the slot may be used again, but the key never names another value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// Below [`VALUES_MAX`].
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

/// Bits of an index in [`Key::to_bits`], as in `ring::Slab`.
const INDEX_BITS: u32 = 24;
/// The maximum number of values at the same time.
pub const VALUES_MAX: u32 = (1 << INDEX_BITS) - 1;
/// The link of the last slot in a list.
pub(crate) const NONE: u32 = u32::MAX;

impl Key {
    /// The index of the value's slot, below [`VALUES_MAX`].
    #[must_use]
    pub const fn index(self) -> u32 {
        self.index
    }

    /// The key as a number below 2⁵⁶: 32 bits of generation, 24 of index.
    #[must_use]
    pub const fn to_bits(self) -> u64 {
        (self.generation as u64) << INDEX_BITS | self.index as u64
    }

    /// The key of a number from [`to_bits`](Self::to_bits).
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "takes the two parts out")]
    pub const fn from_bits(bits: u64) -> Self {
        Self { index: bits as u32 & VALUES_MAX, generation: (bits >> INDEX_BITS) as u32 }
    }
}

/// Values in chunks of `CHUNK` slots: a value costs its size and 8 bytes. A chunk should be smaller than the pieces
/// that the allocator maps directly, 128 KiB for glibc: each such piece wastes up to a page.
///
/// ```
/// let mut slots: netstack::slots::Slots<_> = netstack::slots::Slots::new(10);
/// let first = slots.insert("first").expect("there is room");
/// assert_eq!(slots.remove(first), Some("first"));
/// let other = slots.insert("second").expect("there is room");
/// assert_eq!((slots.get(first), slots.get(other)), (None, Some(&"second")));
/// ```
#[derive(Debug)]
pub struct Slots<T, const CHUNK: u32 = 256> {
    chunks: Vec<Chunk<T>>,
    len: u32,
    /// The maximum number of values.
    max: u32,
    /// No chunk before this one has a free slot.
    lowest: usize,
    /// The chunk that has memory and no value; there is at most one.
    spare: Option<usize>,
}

#[derive(Debug)]
struct Chunk<T> {
    /// The slots; empty if the chunk's memory was freed.
    slots: Box<[Slot<T>]>,
    used: u32,
    /// The first free slot of the chunk; the links lead to the others.
    free: u32,
    /// The generation of new slots, above the generations of the freed slots.
    generation: u32,
}

#[derive(Debug)]
struct Slot<T> {
    /// The generation of the value, or of the next one.
    generation: u32,
    link: u32,
    value: Option<T>,
}

impl<T, const CHUNK: u32> Slots<T, CHUNK> {
    /// Makes an empty collection for at most `max` values, and at most [`VALUES_MAX`]. Allocates no memory.
    #[must_use]
    pub const fn new(max: u32) -> Self {
        let max = if max < VALUES_MAX { max } else { VALUES_MAX };
        Self { chunks: Vec::new(), len: 0, max, lowest: 0, spare: None }
    }

    /// The number of values.
    #[must_use]
    pub const fn len(&self) -> u32 {
        self.len
    }

    /// True if there is no value.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// True if the number of values is at its maximum.
    #[must_use]
    pub const fn is_full(&self) -> bool {
        self.len >= self.max
    }

    /// Inserts a value; `None` at the maximum.
    pub fn insert(&mut self, value: T) -> Option<Key> {
        self.insert_with(|_| value)
    }

    /// Inserts a value that `make` builds from its key; `None` at the maximum.
    pub fn insert_with(&mut self, make: impl FnOnce(Key) -> T) -> Option<Key> {
        if self.is_full() {
            return None;
        }
        let at = self.chunk_with_room();
        if self.spare == Some(at) {
            self.spare = None;
        }
        let chunk = &mut self.chunks[at];
        let offset = chunk.free;
        let slot = &mut chunk.slots[offset as usize];
        debug_assert!(slot.value.is_none(), "a free slot has no value");
        chunk.free = slot.link;
        chunk.used += 1;
        slot.link = NONE;
        let index = u32::try_from(at).ok()? * CHUNK + offset;
        let key = Key { index, generation: slot.generation };
        slot.value = Some(make(key));
        self.len += 1;
        Some(key)
    }

    /// The first chunk with a free slot. Allocates the chunk's memory if needed.
    fn chunk_with_room(&mut self) -> usize {
        let full = |chunk: &&Chunk<T>| chunk.free == NONE && !chunk.slots.is_empty();
        self.lowest += self.chunks[self.lowest..].iter().take_while(full).count();
        if self.lowest == self.chunks.len() {
            self.chunks.push(Chunk { slots: Box::default(), used: 0, free: NONE, generation: 0 });
        }
        let chunk = &mut self.chunks[self.lowest];
        if chunk.slots.is_empty() {
            let generation = chunk.generation;
            let link = |offset| if offset + 1 < CHUNK { offset + 1 } else { NONE };
            let slot = |offset| Slot { generation, link: link(offset), value: None };
            chunk.slots = (0..CHUNK).map(slot).collect();
            chunk.free = 0;
        }
        self.lowest
    }

    /// An index above those of all values.
    #[must_use]
    pub fn index_end(&self) -> u32 {
        u32::try_from(self.chunks.len()).map_or(u32::MAX, |chunks| chunks.saturating_mul(CHUNK))
    }

    /// The key of the value at an index.
    #[must_use]
    pub fn key(&self, index: u32) -> Option<Key> {
        let slot = self.slot(index)?;
        slot.value.is_some().then_some(Key { index, generation: slot.generation })
    }

    /// The value, unless it was removed.
    #[must_use]
    pub fn get(&self, key: Key) -> Option<&T> {
        let slot = self.slot(key.index)?;
        slot.value.as_ref().filter(|_| slot.generation == key.generation)
    }

    /// The value, unless it was removed.
    #[inline]
    pub fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        let slot = self.slot_mut(key.index)?;
        slot.value.as_mut().filter(|_| slot.generation == key.generation)
    }

    /// The value at an index, if there is one.
    pub(crate) fn at(&self, index: u32) -> Option<&T> {
        self.slot(index)?.value.as_ref()
    }

    /// Removes a value. Its key names no value from then on.
    pub fn remove(&mut self, key: Key) -> Option<T> {
        let at = (key.index / CHUNK) as usize;
        let slot = self.slot_mut(key.index).filter(|slot| slot.generation == key.generation)?;
        let value = slot.value.take()?;
        // A slot that has used up its generations stays empty.
        let next = slot.generation.checked_add(1);
        slot.generation = next.unwrap_or(u32::MAX);
        let chunk = &mut self.chunks[at];
        if let Some(next) = next {
            let offset = key.index % CHUNK;
            chunk.slots[offset as usize].link = chunk.free;
            chunk.free = offset;
            chunk.used -= 1;
            chunk.generation = chunk.generation.max(next);
            self.lowest = self.lowest.min(at);
        }
        self.len -= 1;
        if self.chunks[at].used == 0 {
            self.give_back(at);
        }
        Some(value)
    }

    /// Handles a chunk that has become empty. The first empty chunk keeps its memory for the next value; the others
    /// are freed.
    fn give_back(&mut self, at: usize) {
        let Some(other) = self.spare else {
            self.spare = Some(at);
            return;
        };
        // The chunk that will be used first is kept.
        let (kept, freed) = (at.min(other), at.max(other));
        self.spare = Some(kept);
        self.chunks[freed].slots = Box::default();
        self.chunks[freed].free = NONE;
    }

    /// All values and their keys.
    pub fn iter(&self) -> impl Iterator<Item = (Key, &T)> {
        let chunks = (0..).step_by(CHUNK as usize).zip(&self.chunks);
        chunks.flat_map(|(first, chunk)| {
            (first..).zip(&chunk.slots).filter_map(|(index, slot)| {
                Some((Key { index, generation: slot.generation }, slot.value.as_ref()?))
            })
        })
    }

    /// The link of a slot.
    pub(crate) fn link(&self, index: u32) -> u32 {
        self.slot(index).map_or(NONE, |slot| slot.link)
    }

    /// Sets the link of a slot that has a value.
    pub(crate) fn set_link(&mut self, index: u32, link: u32) {
        if let Some(slot) = self.slot_mut(index) {
            debug_assert!(slot.value.is_some(), "the links of free slots are their list");
            slot.link = link;
        }
    }

    /// The bytes of memory in use.
    pub(crate) fn memory(&self) -> usize {
        let slots: usize = self.chunks.iter().map(|chunk| chunk.slots.len()).sum();
        slots * size_of::<Slot<T>>() + self.chunks.capacity() * size_of::<Chunk<T>>()
    }

    fn slot(&self, index: u32) -> Option<&Slot<T>> {
        self.chunks.get((index / CHUNK) as usize)?.slots.get((index % CHUNK) as usize)
    }

    fn slot_mut(&mut self, index: u32) -> Option<&mut Slot<T>> {
        self.chunks.get_mut((index / CHUNK) as usize)?.slots.get_mut((index % CHUNK) as usize)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_key_never_names_a_later_value() {
        let mut slots: Slots<_> = Slots::new(10);
        let first = slots.insert("first").expect("room");
        assert_eq!(slots.remove(first), Some("first"));
        let second = slots.insert("second").expect("room");
        assert_eq!((first.index, slots.get(first)), (second.index, None));
        assert_eq!(slots.get(Key::from_bits(second.to_bits())), Some(&"second"));
        assert!(second.to_bits() < 1 << 56);
    }

    #[test]
    fn the_limit_is_kept() {
        let mut slots: Slots<_> = Slots::new(2);
        let first = slots.insert(1).expect("room");
        assert!(slots.insert(2).is_some() && slots.insert(3).is_none());
        slots.remove(first);
        assert!(slots.insert(3).is_some() && slots.is_full());
    }

    #[test]
    fn a_slot_whose_generations_are_used_up_stays_empty() {
        let mut slots: Slots<_> = Slots::new(10);
        let key = slots.insert(0).expect("room");
        slots.chunks[0].slots[0].generation = u32::MAX;
        let last = Key { generation: u32::MAX, ..key };
        assert_eq!(slots.remove(last), Some(0));
        assert_ne!(slots.insert(1).expect("room").index, key.index);
    }

    #[test]
    fn memory_comes_and_goes_in_chunks() {
        let mut slots: Slots<_> = Slots::new(VALUES_MAX);
        let keys: Vec<_> = (0..100_000_u64).filter_map(|n| slots.insert(n)).collect();
        let bytes = slots.memory();
        assert!(bytes < 100_000 * 24 + 100_000, "{bytes}");
        assert_eq!(slots.get(keys[77_777]), Some(&77_777));
        for key in &keys {
            assert!(slots.remove(*key).is_some());
        }
        assert!(slots.memory() < 50_000, "one chunk is kept");
        let key = slots.insert(1).expect("room");
        assert!(keys.iter().all(|old| *old != key), "a chunk that comes back has new keys");
        assert_eq!(slots.iter().collect::<Vec<_>>(), [(key, &1)]);
    }

    #[test]
    fn all_values_are_below_the_end_of_the_indices() {
        let mut slots: Slots<_, 4> = Slots::new(10);
        assert_eq!(slots.index_end(), 0);
        let keys: Vec<_> = (0..10).filter_map(|n| slots.insert(n)).collect();
        assert_eq!(slots.index_end(), 12);
        keys.iter().skip(1).take(8).for_each(|key| assert!(slots.remove(*key).is_some()));
        let found: Vec<_> =
            (0..slots.index_end()).filter_map(|index| slots.at(index)).copied().collect();
        assert_eq!(found, [0, 9]);
    }

    proptest! {
        /// Against a map: true inserts, false removes the value at a place.
        #[test]
        fn slots_are_a_map(steps in prop::collection::vec((any::<bool>(), any::<prop::sample::Index>()), 0..5000)) {
            let mut slots: Slots<_> = Slots::new(3000);
            let mut map = BTreeMap::new();
            for (n, (inserts, place)) in steps.into_iter().enumerate() {
                if inserts || map.is_empty() {
                    if let Some(key) = slots.insert(n) {
                        prop_assert_eq!(map.insert(key.to_bits(), n), None);
                    }
                } else {
                    let keys: Vec<_> = map.keys().copied().collect();
                    let bits = keys[place.index(keys.len())];
                    prop_assert_eq!(slots.remove(Key::from_bits(bits)), map.remove(&bits));
                    prop_assert_eq!(slots.get(Key::from_bits(bits)), None);
                }
                prop_assert_eq!(slots.len() as usize, map.len());
            }
            let all: BTreeMap<_, _> = slots.iter().map(|(key, n)| (key.to_bits(), *n)).collect();
            prop_assert_eq!(all, map);
        }
    }
}
