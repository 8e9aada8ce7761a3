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

/// A station of the link and its virtual LAN. It is packed, so that comparing is one instruction.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct NextHop(u64);

impl NextHop {
    pub(crate) fn new(mac: Mac, vlan: Option<u16>) -> Self {
        let [a, b, c, d, e, f] = mac.0;
        Self(u64::from(vlan.unwrap_or(0)) << 48 | u64::from_be_bytes([0, 0, a, b, c, d, e, f]))
    }

    /// The station with this number; none has 0.
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

    /// Another station of its virtual LAN.
    pub(crate) fn to(self, mac: Mac) -> Self {
        Self(self.0 & 0xffff << 48 | Self::new(mac, None).0)
    }

    /// The header of a frame to it.
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
    /// Apart from the entries, because [`Self::learn`] looks through all.
    hops: Vec<NextHop>,
    entries: Vec<Entry>,
    /// Entries that are in use.
    used: usize,
    /// The entry that was found last: most segments come from one router.
    last: usize,
    /// Where the search for an entry to replace goes on.
    hand: usize,
}

#[derive(Debug)]
struct Entry {
    /// How many connections use it.
    uses: u32,
    /// Whether it was found since the search for an entry passed it: then it has a second chance.
    was_found: bool,
}

impl Neighbours {
    /// The most entries. The stations of a link that talk to a server are few: its routers, and the hosts of
    /// its own prefix. All are looked through if a segment comes from a station that is not the last one,
    /// and that should take less than the segment itself.
    pub(crate) const MAX: usize = 1024;

    /// While so many entries are in use, handshakes use no others. The rest is for stations that complete theirs.
    pub(crate) const HANDSHAKES_MAX: usize = Self::MAX / 4 * 3;

    /// Knows none.
    pub(crate) const fn new() -> Self {
        Self { hops: Vec::new(), entries: Vec::new(), used: 0, last: 0, hand: 0 }
    }

    /// The index of a next hop, which takes the place of the oldest unused entry if it is new: the one that
    /// was found least recently, as nearly as a second chance for each tells. `None` if all places are in
    /// use. It may be replaced unless it is [held](Self::hold).
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

    /// Returns whether a handshake may [hold](Self::hold) the entry.
    pub(crate) fn is_for_handshakes(&self, index: u16) -> bool {
        self.used < Self::HANDSHAKES_MAX || self.entries[usize::from(index)].uses > 0
    }

    /// A connection uses the entry from now on.
    pub(crate) fn hold(&mut self, index: u16) {
        let uses = &mut self.entries[usize::from(index)].uses;
        self.used += usize::from(*uses == 0);
        *uses += 1;
    }

    /// A connection that held the entry uses it no longer.
    pub(crate) fn release(&mut self, index: u16) {
        let uses = &mut self.entries[usize::from(index)].uses;
        *uses -= 1;
        self.used -= usize::from(*uses == 0);
    }

    /// A connection that holds `index` has got a valid segment from `hop`: it holds that one from now on,
    /// and its index is returned. It keeps the old one if all places are in use.
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

    /// The same for a handshake: it keeps the old one also if the new one [is not for it](Self::is_for_handshakes).
    pub(crate) fn relearn_in_handshake(&mut self, index: u16, hop: NextHop) -> u16 {
        match self.learn(hop) {
            Some(new) if self.is_for_handshakes(new) => self.relearn(index, hop),
            _ => index,
        }
    }

    /// All connections that use the station `old` use `new` from now on. Those that do not belong there come
    /// back with their peer's next segment.
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
