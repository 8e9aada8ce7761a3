//! Values found by a key that never names a later value.
//!
//! The crate `slotmap` does the same, but its keys have 64 bits; ours have 56, so that a key fits
//! into one word together with a kind of 8 bits, and into the `user_data` of io_uring together with a mark.

use core::fmt;

/// The name of one value of one [`Slab`], forever: the slot is reused, the key is not.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Key {
    /// Below [`ENTRIES_MAX`].
    index: u32,
    generation: u32,
}

/// Bits of an index in [`Key::to_bits`].
const INDEX_BITS: u32 = 24;

/// The maximum of values that a slab holds at the same time. There is no index for the last slot, so the key
/// with all bits set names nothing.
const ENTRIES_MAX: u32 = (1 << INDEX_BITS) - 1;

impl Key {
    /// A key that no slab gives out.
    pub const NONE: Self = Self { index: ENTRIES_MAX, generation: u32::MAX };

    /// The key as a number below 2⁵⁶: 32 bits of generation, 24 of index.
    #[must_use]
    pub const fn to_bits(self) -> u64 {
        (self.generation as u64) << INDEX_BITS | self.index as u64
    }

    /// The key that [`to_bits`](Self::to_bits) made this number of. Bits from 2⁵⁶ on are not
    /// looked at.
    #[must_use]
    #[allow(clippy::cast_possible_truncation, reason = "takes the two parts out")]
    pub const fn from_bits(bits: u64) -> Self {
        Self { index: bits as u32 & ENTRIES_MAX, generation: (bits >> INDEX_BITS) as u32 }
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{}", self.index, self.generation)
    }
}

/// Values found by their keys in constant time; at most 2²⁴ − 1 at the same time.
///
/// ```
/// let mut slab = ring::Slab::new();
/// let key = slab.insert("first");
/// assert_eq!(slab.remove(key), Some("first"));
/// let other = slab.insert("second");
/// assert_eq!(slab.get(key), None);
/// assert_eq!(slab.get(other), Some(&"second"));
/// ```
#[derive(Debug)]
pub struct Slab<T> {
    slots: Vec<Slot<T>>,
    /// Slots without a value that have generations left.
    free: Vec<u32>,
    len: usize,
}

#[derive(Debug)]
struct Slot<T> {
    /// The generation of the value, or of the next one.
    generation: u32,
    value: Option<T>,
}

impl<T> Slab<T> {
    /// A slab with nothing in it, and no memory.
    #[must_use]
    pub const fn new() -> Self {
        Self { slots: Vec::new(), free: Vec::new(), len: 0 }
    }

    /// Keep a value.
    ///
    /// # Panics
    ///
    /// If there are 2²⁴ − 1 values already. The descriptors and buffers behind the values run out long before.
    pub fn insert(&mut self, value: T) -> Key {
        self.insert_with(|_| value)
    }

    /// Keep a value that knows its key.
    ///
    /// # Panics
    ///
    /// As [`insert`](Self::insert).
    pub fn insert_with(&mut self, value: impl FnOnce(Key) -> T) -> Key {
        let index = self.free.pop().unwrap_or_else(|| self.add_slot());
        let slot = &mut self.slots[index as usize];
        debug_assert!(slot.value.is_none(), "a free slot has no value");
        let key = Key { index, generation: slot.generation };
        slot.value = Some(value(key));
        self.len += 1;
        key
    }

    fn add_slot(&mut self) -> u32 {
        let index = u32::try_from(self.slots.len()).ok().filter(|index| *index < ENTRIES_MAX);
        let index = index.expect("a slab holds fewer than 2^24 values");
        self.slots.push(Slot { generation: 0, value: None });
        index
    }

    fn slot(&mut self, key: Key) -> Option<&mut Slot<T>> {
        let slot = self.slots.get_mut(key.index as usize)?;
        (slot.generation == key.generation).then_some(slot)
    }

    /// The value, unless it was removed.
    #[must_use]
    pub fn get(&self, key: Key) -> Option<&T> {
        let slot = self.slots.get(key.index as usize)?;
        slot.value.as_ref().filter(|_| slot.generation == key.generation)
    }

    /// The value, unless it was removed.
    pub fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        self.slot(key)?.value.as_mut()
    }

    /// Take the value out. Its key names nothing from then on.
    pub fn remove(&mut self, key: Key) -> Option<T> {
        let slot = self.slot(key)?;
        let value = slot.value.take()?;
        // A slot that has used up its generations stays empty.
        if let Some(next) = slot.generation.checked_add(1) {
            slot.generation = next;
            self.free.push(key.index);
        }
        self.len -= 1;
        Some(value)
    }

    /// The number of values.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the slab has no values.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// All values with their keys, in no meaningful order.
    pub fn iter(&self) -> impl Iterator<Item = (Key, &T)> {
        (0_u32..).zip(&self.slots).filter_map(|(index, slot)| {
            let value = slot.value.as_ref()?;
            Some((Key { index, generation: slot.generation }, value))
        })
    }

    /// The keys of all values, in no order that means anything.
    pub fn keys(&self) -> impl Iterator<Item = Key> {
        self.iter().map(|(key, _)| key)
    }
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_removed_key_never_names_the_next_value() {
        let mut slab = Slab::new();
        let first = slab.insert('a');
        assert_eq!(slab.remove(first), Some('a'));
        assert!(slab.is_empty());
        let second = slab.insert('b');
        assert_ne!(first, second);
        assert_eq!(slab.get(first), None);
        assert_eq!(slab.get_mut(first), None);
        assert_eq!(slab.remove(first), None);
        assert_eq!(slab.get(second), Some(&'b'));
        assert_eq!(slab.len(), 1);
        assert_eq!(slab.iter().collect::<Vec<_>>(), [(second, &'b')]);
        assert_eq!(slab.keys().collect::<Vec<_>>(), [second]);
    }

    #[test]
    fn a_value_may_know_its_key() {
        let mut slab = Slab::new();
        slab.insert(Key::NONE);
        let key = slab.insert_with(|key| key);
        assert_eq!(slab.get(key), Some(&key));
    }

    #[test]
    fn keys_survive_the_kernel_and_a_kind_beside_them() {
        let mut slab = Slab::new();
        for _ in 0..3 {
            let key = slab.insert(());
            slab.remove(key);
        }
        let last = Key { index: ENTRIES_MAX - 1, generation: u32::MAX };
        for key in [slab.insert(()), slab.insert(()), last, Key::NONE] {
            assert!(key.to_bits() < 1 << 56);
            assert_eq!(Key::from_bits(key.to_bits()), key);
            assert_eq!(Key::from_bits(0xff << 56 | key.to_bits()), key);
        }
    }

    #[test]
    fn a_slot_without_generations_is_not_used_again() {
        let mut slab = Slab::new();
        let first = slab.insert('a');
        slab.slots[first.index as usize].generation = u32::MAX;
        let last = Key { index: first.index, generation: u32::MAX };
        assert_eq!(slab.remove(last), Some('a'));
        assert_eq!((slab.len(), slab.get(last)), (0, None));
        let other = slab.insert('b');
        assert_ne!(other.index, first.index);
        assert_eq!(slab.get(last), None);
    }

    #[test]
    fn a_slab_is_full_with_one_fewer_than_2_to_the_24() {
        let mut slab = Slab::new();
        for _ in 0..ENTRIES_MAX {
            slab.insert(());
        }
        assert!(slab.keys().all(|key| key != Key::NONE));
        let one_more = core::panic::AssertUnwindSafe(|| slab.insert(()));
        assert!(std::panic::catch_unwind(one_more).is_err());
    }
}
