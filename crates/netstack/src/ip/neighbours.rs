//! A bounded table of the stations on the link to which frames are sent.
//!
//! A connection sends to the station that its segments come from, so the stack needs no address resolution and no
//! routes. Frames that passed all checks fill the table. ARP and neighbour discovery fill only the entries of
//! configured routers. A station that forges its address can divert no other traffic; a station that injects segments
//! has to hit the receive window. An entry that a connection uses is never replaced, so a flood of frames from invented
//! stations only replaces unused entries. Handshakes use at most three quarters of the entries, because invented
//! stations can begin any number of handshakes.

use alloc::vec::Vec;
use core::fmt;

use crate::wire::{EtherType, Mac, ethernet};

/// A station of the link and its virtual LAN. The value is packed, so that a comparison is one instruction.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct NextHop(u64);

impl NextHop {
    pub(crate) fn new(mac: Mac, vlan: Option<u16>) -> Self {
        let [a, b, c, d, e, f] = mac.0;
        Self(u64::from(vlan.unwrap_or(0)) << 48 | u64::from_be_bytes([0, 0, a, b, c, d, e, f]))
    }

    /// The station with this number; no station has 0.
    pub(crate) fn from_bits(bits: u64) -> Option<Self> {
        (bits != 0).then_some(Self(bits))
    }

    /// The number of the station.
    pub(crate) const fn to_bits(self) -> u64 {
        self.0
    }

    /// The station that sent a frame.
    pub(crate) fn of(header: &ethernet::Header) -> Self {
        Self::new(header.source, header.vlan)
    }

    /// Another station of the same virtual LAN.
    pub(crate) fn to(self, mac: Mac) -> Self {
        Self(self.0 & 0xffff << 48 | Self::new(mac, None).0)
    }

    /// The link header of a frame to the station.
    pub(crate) fn header(self, source: Mac, ethertype: EtherType) -> ethernet::Header {
        let [v0, v1, mac @ ..] = self.0.to_be_bytes();
        let vlan = u16::from_be_bytes([v0, v1]);
        ethernet::Header {
            destination: Mac(mac),
            source,
            vlan: (vlan != 0).then_some(vlan),
            ethertype,
        }
    }
}

impl fmt::Debug for NextHop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let header = self.header(Mac::BROADCAST, EtherType::IPV4);
        write!(f, "{} vlan {}", header.destination, header.vlan.unwrap_or(0))
    }
}

/// The next hops of connections.
#[derive(Debug)]
pub(crate) struct Neighbours {
    /// The hops of the entries, in an array of their own, because [`Self::learn`] searches all hops.
    hops: Vec<NextHop>,
    entries: Vec<Entry>,
    /// Entries that are in use.
    used: usize,
    /// The entry that was found last. It is tried first, because most segments come from one router.
    last: usize,
    /// The position at which the search for an entry to replace continues.
    hand: usize,
}

#[derive(Debug)]
struct Entry {
    /// The number of connections that use the entry.
    uses: u32,
    /// True if the entry was found since the search for an entry to replace passed it. Then it has a second chance.
    was_found: bool,
}

impl Neighbours {
    /// The maximum number of entries. Few stations of a link talk to a server: its routers, and the hosts of its
    /// own prefix. If a segment comes from another station than the last one, all entries are searched, which
    /// should take less time than the segment itself.
    pub(crate) const MAX: usize = 1024;

    /// While this many entries are in use, handshakes get no further entries. The rest is for stations that
    /// complete their handshakes.
    pub(crate) const HANDSHAKES_MAX: usize = Self::MAX / 4 * 3;

    /// An empty table.
    pub(crate) const fn new() -> Self {
        Self { hops: Vec::new(), entries: Vec::new(), used: 0, last: 0, hand: 0 }
    }

    /// The index of a next hop. A new next hop replaces the unused entry that was found least recently
    /// (approximately, by second chance). `None` if all entries are in use. The entry may be replaced again unless
    /// it is [held](Self::hold).
    #[inline]
    pub(crate) fn learn(&mut self, hop: NextHop) -> Option<u16> {
        if self.hops.get(self.last) != Some(&hop) {
            self.last = match self.hops.iter().position(|known| *known == hop) {
                Some(at) => at,
                None => self.add(hop)?,
            };
        }
        self.entries[self.last].was_found = true;
        u16::try_from(self.last).ok()
    }

    /// Puts a new next hop into the table.
    fn add(&mut self, hop: NextHop) -> Option<usize> {
        let entry = Entry { uses: 0, was_found: true };
        if self.hops.len() < Self::MAX {
            self.hops.push(hop);
            self.entries.push(entry);
            return Some(self.hops.len() - 1);
        }
        // After one round, no entry has a second chance.
        for _ in 0..2 * Self::MAX {
            let at = self.hand;
            self.hand = (at + 1) % Self::MAX;
            let found = &mut self.entries[at];
            if found.uses == 0 && !core::mem::take(&mut found.was_found) {
                self.hops[at] = hop;
                *found = entry;
                return Some(at);
            }
        }
        None
    }

    /// True if a handshake may [hold](Self::hold) the entry.
    pub(crate) fn is_for_handshakes(&self, index: u16) -> bool {
        self.used < Self::HANDSHAKES_MAX || self.entries[usize::from(index)].uses > 0
    }

    /// Records that a connection uses the entry from now on.
    pub(crate) fn hold(&mut self, index: u16) {
        let uses = &mut self.entries[usize::from(index)].uses;
        self.used += usize::from(*uses == 0);
        *uses += 1;
    }

    /// Records that a connection no longer uses the entry.
    pub(crate) fn release(&mut self, index: u16) {
        let uses = &mut self.entries[usize::from(index)].uses;
        *uses -= 1;
        self.used -= usize::from(*uses == 0);
    }

    /// Moves a connection from the entry `index` to the entry of `hop`, after a valid segment from `hop`. Returns
    /// the index that the connection holds now. If all entries are in use, the connection keeps the old one.
    #[inline]
    pub(crate) fn relearn(&mut self, index: u16, hop: NextHop) -> u16 {
        if self.get(index) == hop {
            return index;
        }
        let Some(new) = self.learn(hop) else { return index };
        self.hold(new);
        self.release(index);
        new
    }

    /// The same for a handshake, which also keeps the old entry if the new one [is not for
    /// handshakes](Self::is_for_handshakes).
    pub(crate) fn relearn_in_handshake(&mut self, index: u16, hop: NextHop) -> u16 {
        match self.learn(hop) {
            Some(new) if self.is_for_handshakes(new) => self.relearn(index, hop),
            _ => index,
        }
    }

    /// Moves all connections from the station `old` to `new`. A connection that does not belong there moves back
    /// with its peer's next segment.
    pub(crate) fn replace(&mut self, old: NextHop, new: NextHop) {
        for hop in self.hops.iter_mut().filter(|hop| **hop == old) {
            *hop = new;
        }
    }

    /// The number of connections and handshakes that use entries.
    pub(crate) fn uses(&self) -> usize {
        self.entries.iter().map(|entry| entry.uses as usize).sum()
    }

    /// The next hop with this index.
    #[inline]
    pub(crate) fn get(&self, index: u16) -> NextHop {
        self.hops[usize::from(index)]
    }
}

#[cfg(test)]
mod tests;
