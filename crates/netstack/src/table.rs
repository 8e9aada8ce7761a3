//! Finds values by a hash, with 8 bytes for each value and without a pause when the table grows.
//!
//! Linear hashing (Litwin 1980): the mean chain has one value; each insertion that would make more values than
//! chains splits one chain in two. The chains are linked through the values' own slots ([`Chained`]). The hash is
//! keyed, so a peer cannot make one chain long.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::slots::NONE;

/// The values of a table: each has a link and a hash.
pub(crate) trait Chained {
    fn link(&self, index: u32) -> u32;
    fn set_link(&mut self, index: u32, link: u32);
    fn hash(&self, index: u32) -> u32;
}

/// Chains of values by hash.
pub(crate) struct Table {
    /// The first value of each chain.
    heads: Vec<Box<[u32; PAGE]>>,
    /// Chains in use: at least a page.
    chains: u32,
    len: u32,
}

/// The number of chains whose memory is allocated together.
const PAGE: usize = 1024;
const CHAINS_MIN: u32 = 1024;

impl Table {
    pub(crate) fn new() -> Self {
        Self { heads: [Box::new([NONE; PAGE])].into(), chains: CHAINS_MIN, len: 0 }
    }

    /// The value with this hash that `is` accepts. `link` returns the link of a value.
    #[inline]
    pub(crate) fn find(
        &self,
        hash: u32,
        link: impl Fn(u32) -> u32,
        is: impl Fn(u32) -> bool,
    ) -> Option<u32> {
        let mut index = self.head(self.chain_of(hash));
        while index != NONE && !is(index) {
            index = link(index);
        }
        (index != NONE).then_some(index)
    }

    /// Adds a value that is not in the table.
    pub(crate) fn insert(&mut self, values: &mut impl Chained, hash: u32, index: u32) {
        self.len += 1;
        if self.len > self.chains {
            self.split(values);
        }
        self.prepend(values, self.chain_of(hash), index);
    }

    /// Removes a value that is in the table.
    pub(crate) fn remove(&mut self, values: &mut impl Chained, hash: u32, index: u32) {
        let chain = self.chain_of(hash);
        let next = values.link(index);
        let mut before = self.head(chain);
        if before == index {
            *self.head_mut(chain) = next;
        } else {
            while values.link(before) != index {
                before = values.link(before);
                assert_ne!(before, NONE, "only values of the table are removed");
            }
            values.set_link(before, next);
        }
        self.len -= 1;
        // Two merges for each removal, so that the chains keep up with the values.
        for _ in 0..2 {
            if self.len < self.chains / 2 && self.chains > CHAINS_MIN {
                self.merge(values);
            }
        }
    }

    /// Values in the table.
    pub(crate) const fn len(&self) -> usize {
        self.len as usize
    }

    /// Bytes of memory.
    pub(crate) const fn memory(&self) -> usize {
        self.heads.len() * PAGE * size_of::<u32>() + self.heads.capacity() * size_of::<usize>()
    }

    /// Adds a chain: splits one chain in two by one more bit of the hashes.
    fn split(&mut self, values: &mut impl Chained) {
        let (new, old) = (self.chains, self.chains ^ top_bit(self.chains));
        if self.heads.len() * PAGE == new as usize {
            self.heads.push(Box::new([NONE; PAGE]));
        }
        self.chains += 1;
        let mut index = core::mem::replace(self.head_mut(old), NONE);
        while index != NONE {
            let next = values.link(index);
            let chain = self.chain_of(values.hash(index));
            debug_assert!(chain == new || chain == old, "a value belongs to one of the halves");
            self.prepend(values, chain, index);
            index = next;
        }
    }

    /// Takes the last chain back: the opposite of [`split`](Self::split).
    fn merge(&mut self, values: &mut impl Chained) {
        self.chains -= 1;
        let (gone, into) = (self.chains, self.chains ^ top_bit(self.chains));
        let mut index = core::mem::replace(self.head_mut(gone), NONE);
        while index != NONE {
            let next = values.link(index);
            self.prepend(values, into, index);
            index = next;
        }
        if (gone as usize).is_multiple_of(PAGE) {
            self.heads.pop();
        }
    }

    fn prepend(&mut self, values: &mut impl Chained, chain: u32, index: u32) {
        let head = self.head_mut(chain);
        values.set_link(index, *head);
        *head = index;
    }

    /// The chain of a hash: the low bits that the number of chains needs.
    const fn chain_of(&self, hash: u32) -> u32 {
        let half = top_bit(self.chains);
        let chain = hash & (2 * half - 1);
        if chain < self.chains { chain } else { chain ^ half }
    }

    fn head(&self, chain: u32) -> u32 {
        self.heads[chain as usize / PAGE][chain as usize % PAGE]
    }

    fn head_mut(&mut self, chain: u32) -> &mut u32 {
        &mut self.heads[chain as usize / PAGE][chain as usize % PAGE]
    }
}

const fn top_bit(n: u32) -> u32 {
    1 << (u32::BITS - 1 - n.leading_zeros())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Values are their index; hashes are spread by a multiplication.
    struct Links(Vec<u32>);

    impl Chained for Links {
        fn link(&self, index: u32) -> u32 {
            self.0[index as usize]
        }

        fn set_link(&mut self, index: u32, link: u32) {
            self.0[index as usize] = link;
        }

        fn hash(&self, index: u32) -> u32 {
            index.wrapping_mul(0x9e37_79b1).rotate_left(13)
        }
    }

    #[test]
    fn values_are_found_while_chains_split_and_merge() {
        const ALL: u32 = 50_000;
        let mut links = Links(std::vec![NONE; ALL as usize]);
        let mut table = Table::new();
        let mut inside = BTreeSet::new();
        let find = |table: &Table, links: &Links, index| {
            table.find(links.hash(index), |other| links.link(other), |other| other == index)
        };
        for index in 0..ALL {
            let hash = links.hash(index);
            table.insert(&mut links, hash, index);
            inside.insert(index);
            // Every third value is removed again while others are inserted.
            if index % 3 == 0 {
                let hash = links.hash(index / 2);
                if inside.remove(&(index / 2)) {
                    table.remove(&mut links, hash, index / 2);
                }
            }
        }
        assert!(inside.len() > 20_000);
        for index in 0..ALL {
            assert_eq!(find(&table, &links, index).is_some(), inside.contains(&index), "{index}");
        }
        assert!(table.memory() <= 5 * inside.len() + 8192, "{}", table.memory());
        for index in inside {
            assert_eq!(find(&table, &links, index), Some(index));
            let hash = links.hash(index);
            table.remove(&mut links, hash, index);
        }
        assert_eq!((table.len, table.chains, table.heads.len()), (0, CHAINS_MIN, 1));
    }

    #[test]
    fn values_with_equal_hashes_share_a_chain() {
        let mut links = Links(std::vec![NONE; 10]);
        let mut table = Table::new();
        (0..10).for_each(|index| table.insert(&mut links, 7, index));
        (3..6).for_each(|index| table.remove(&mut links, 7, index));
        let found: Vec<_> = (0..10)
            .filter(|index| {
                table.find(7, |other| links.link(other), |other| other == *index).is_some()
            })
            .collect();
        assert_eq!(found, [0, 1, 2, 6, 7, 8, 9]);
    }
}
