//! Operations in flight, found by a key that cannot be mistaken for a later one.

use core::fmt;

/// Names one operation of one ring, for ever: the slot is reused, the key is not (but after 2³¹
/// uses of one slot).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Key {
    index: u32,
    generation: u32,
}

impl Key {
    /// The key as the kernel carries it in `user_data`.
    pub(crate) const fn to_bits(self) -> u64 {
        (self.generation as u64) << 32 | self.index as u64
    }

    #[allow(clippy::cast_possible_truncation, reason = "takes the two halves apart")]
    pub(crate) const fn from_bits(bits: u64) -> Self {
        Self { index: bits as u32, generation: (bits >> 32) as u32 }
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{}", self.index, self.generation)
    }
}

/// Generations have 31 bits: the last bit of a key tells a cancel from what it cancels
/// (`uring::CANCEL`).
const GENERATION_MAX: u32 = u32::MAX >> 1;

/// A slab with generations.
#[derive(Debug)]
pub(crate) struct Table<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    value: Option<T>,
}

impl<T> Table<T> {
    pub(crate) const fn new() -> Self {
        Self { slots: Vec::new(), free: Vec::new() }
    }

    pub(crate) fn insert(&mut self, value: T) -> Key {
        if let Some(index) = self.free.pop() {
            let slot = &mut self.slots[index as usize];
            debug_assert!(slot.value.is_none());
            slot.value = Some(value);
            return Key { index, generation: slot.generation };
        }
        let index = u32::try_from(self.slots.len()).expect("fewer than 2^32 operations in flight");
        self.slots.push(Slot { generation: 0, value: Some(value) });
        Key { index, generation: 0 }
    }

    pub(crate) fn value(&mut self, key: Key) -> Option<&mut T> {
        let slot = self.slots.get_mut(key.index as usize)?;
        if slot.generation != key.generation {
            return None;
        }
        slot.value.as_mut()
    }

    pub(crate) fn remove(&mut self, key: Key) -> Option<T> {
        let slot = self.slots.get_mut(key.index as usize)?;
        if slot.generation != key.generation {
            return None;
        }
        let value = slot.value.take()?;
        slot.generation = slot.generation.wrapping_add(1) & GENERATION_MAX;
        self.free.push(key.index);
        Some(value)
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = Key> {
        let live = self.slots.iter().enumerate().filter(|(_, slot)| slot.value.is_some());
        live.map(|(index, slot)| Key {
            index: u32::try_from(index).expect("indices fit, see insert"),
            generation: slot.generation,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_removed_key_never_names_the_next_operation() {
        let mut table = Table::new();
        let first = table.insert('a');
        assert_eq!(table.remove(first), Some('a'));
        let second = table.insert('b');
        assert_eq!(table.value(first), None);
        assert_eq!(table.remove(first), None);
        assert_eq!(table.value(second), Some(&mut 'b'));
        assert_eq!(table.len(), 1);
        assert_eq!(table.keys().collect::<Vec<_>>(), [second]);
    }

    #[test]
    fn keys_survive_the_kernel() {
        let mut table = Table::new();
        for _ in 0..3 {
            let key = table.insert(());
            table.remove(key);
        }
        let key = table.insert(());
        assert_eq!(Key::from_bits(key.to_bits()), key);
    }
}
