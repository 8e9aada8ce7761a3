//! A cache of values by address, of a fixed size: a new value may replace any other.

use alloc::vec;
use alloc::vec::Vec;
use core::net::IpAddr;

use crate::hash::spread;

/// A table with one slot for each hash. The hash is keyed, so a peer cannot choose whose value it replaces.
#[derive(Debug)]
pub(crate) struct Cache<V> {
    key: u64,
    places: Vec<Option<(IpAddr, V)>>,
}

impl<V: Copy> Cache<V> {
    /// Makes a cache with `places` slots, at least one.
    pub(crate) fn new(places: usize, key: u64) -> Self {
        Self { key, places: vec![None; places] }
    }

    /// The value of the address; `None` if it was never set, or another value has replaced it.
    pub(crate) fn get(&self, addr: IpAddr) -> Option<V> {
        match self.places[self.place(addr)] {
            Some((found, value)) if found == addr => Some(value),
            _ => None,
        }
    }

    pub(crate) fn set(&mut self, addr: IpAddr, value: V) {
        let place = self.place(addr);
        self.places[place] = Some((addr, value));
    }

    fn place(&self, addr: IpAddr) -> usize {
        let bits = match addr {
            IpAddr::V4(addr) => addr.to_bits().into(),
            IpAddr::V6(addr) => addr.to_bits(),
        };
        #[expect(clippy::cast_possible_truncation, reason = "any bits will do")]
        let hash = spread(self.key, bits, 0) as usize;
        hash % self.places.len()
    }
}

#[cfg(test)]
mod tests {
    use core::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    #[test]
    fn a_value_is_found_until_another_takes_its_place() {
        let mut cache = Cache::new(64, 5);
        let addr = |n: u32| IpAddr::from(Ipv4Addr::from_bits(n));
        for n in 0..1000 {
            cache.set(addr(n), n);
            assert_eq!(cache.get(addr(n)), Some(n));
        }
        let found: Vec<_> = (0..1000).filter_map(|n| cache.get(addr(n))).collect();
        assert_eq!(found.len(), 64);
        let six = IpAddr::from(Ipv6Addr::from_bits(999));
        assert_eq!(cache.get(six), None);
        cache.set(six, 1);
        cache.set(six, 2);
        assert_eq!(cache.get(six), Some(2));
    }
}
