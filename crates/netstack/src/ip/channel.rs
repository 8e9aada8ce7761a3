//! Raw channels: frames that match a filter, handed over in batches (Polyakov's network channels).
//!
//! A channel sees frames beside the stack and takes none away from it. The owner of the interface shows the channel
//! each received frame, and lets the stack send through [`Tapped`].

use alloc::vec::Vec;
use core::fmt;
use core::net::IpAddr;

use super::packet::Packet;
use crate::time::Time;
use crate::transmit::{Frame, Full, Limits, Transmit};
use crate::wire::{Protocol, ethernet};

/// Which frames a channel takes: those to which all of its parts apply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// What IP carries.
    pub protocol: Option<Protocol>,
    /// Where the source or the destination is.
    pub network: Option<Network>,
    /// The source or destination port of TCP or UDP.
    pub port: Option<u16>,
}

/// Addresses that begin with the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    /// One of them.
    pub addr: IpAddr,
    /// The number of bits that count: if there are more than an address has, all.
    pub prefix: u8,
}

/// The way of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the interface to the stack.
    Received,
    /// From the stack to the interface.
    Sent,
}

/// A frame in a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Captured<'a> {
    /// When the channel saw it.
    pub time: Time,
    /// Its way.
    pub direction: Direction,
    /// How long it was.
    pub len: usize,
    /// Its first bytes: all, unless it was longer than the channel copies. A frame that the interface cuts is
    /// one frame here, and a checksum that the interface fills in is not yet complete.
    pub bytes: &'a [u8],
}

/// Frames of a channel, in the order in which they were seen; at least one.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    bytes: &'a [u8],
    places: &'a [FrameSpan],
}

/// A frame of a batch without its bytes.
#[derive(Clone, Copy, Debug)]
struct FrameSpan {
    time: Time,
    direction: Direction,
    len: usize,
    /// Where its bytes end; they begin where those of the one before end.
    end: usize,
}

/// Collects frames, and hands batches of them to a closure.
pub struct Channel<F> {
    filter: Filter,
    frame_bytes_max: usize,
    bytes: Vec<u8>,
    places: Vec<FrameSpan>,
    deliver: F,
}

/// The most frames of a batch, and the most bytes before its last frame: a full batch is delivered before its
/// time. So many frames fit into a cache of the second level.
const BATCH_FRAMES_MAX: usize = 256;
const BATCH_BYTES_MAX: usize = 256 * 1024;

impl Filter {
    /// Returns whether the filter applies to a frame, of which it looks only at the headers: they may be wrong
    /// in any way that does not hide what is asked for.
    #[must_use]
    pub fn applies_to(&self, frame: &[u8]) -> bool {
        if *self == Self::default() {
            return true;
        }
        let Ok((link, bytes)) = ethernet::Header::parse(frame) else { return false };
        let packet = match link.ethertype {
            ethernet::EtherType::IPV4 => Packet::parse_quoted(true, bytes),
            ethernet::EtherType::IPV6 => Packet::parse_quoted(false, bytes),
            _ => return false,
        };
        packet.is_ok_and(|packet| self.applies_to_packet(&packet))
    }

    fn applies_to_packet(&self, packet: &Packet<'_>) -> bool {
        let has_ports = [Protocol::TCP, Protocol::UDP].contains(&packet.protocol);
        self.protocol.is_none_or(|protocol| protocol == packet.protocol)
            && self.network.is_none_or(|network| {
                network.contains(packet.source) || network.contains(packet.destination)
            })
            && self.port.is_none_or(|port| {
                let port = port.to_be_bytes();
                let ports = packet.payload.first_chunk::<4>();
                has_ports && ports.is_some_and(|ports| ports[..2] == port || ports[2..] == port)
            })
    }
}

impl Network {
    /// Returns whether the address is one of them.
    #[must_use]
    pub fn contains(&self, addr: IpAddr) -> bool {
        match (self.addr, addr) {
            (IpAddr::V4(ours), IpAddr::V4(addr)) => {
                let rest = 32_u32.saturating_sub(self.prefix.into());
                (ours.to_bits() ^ addr.to_bits()).checked_shr(rest).unwrap_or(0) == 0
            }
            (IpAddr::V6(ours), IpAddr::V6(addr)) => {
                let rest = 128_u32.saturating_sub(self.prefix.into());
                (ours.to_bits() ^ addr.to_bits()).checked_shr(rest).unwrap_or(0) == 0
            }
            _ => false,
        }
    }
}

impl<'a> Batch<'a> {
    /// The frames.
    pub fn frames(&self) -> impl Iterator<Item = Captured<'a>> + use<'a> {
        let Self { bytes, places } = *self;
        let mut start = 0;
        places.iter().map(move |&FrameSpan { time, direction, len, end }| {
            let bytes = &bytes[start..end];
            start = end;
            Captured { time, direction, len, bytes }
        })
    }
}

impl<F: FnMut(Batch<'_>)> Channel<F> {
    /// A channel of the frames to which `filter` applies. It copies at most `frame_bytes_max` bytes of each.
    /// `deliver` is called by [`flush`](Self::flush), and whenever a batch is full.
    pub const fn new(filter: Filter, frame_bytes_max: usize, deliver: F) -> Self {
        Self { filter, frame_bytes_max, bytes: Vec::new(), places: Vec::new(), deliver }
    }

    /// Shows the channel a frame that has come.
    pub fn received(&mut self, now: Time, frame: &[u8]) {
        if self.filter.applies_to(frame) {
            self.add(now, Direction::Received, frame, &[]);
        }
    }

    /// Shows the channel a frame that the interface has taken.
    pub fn sent(&mut self, now: Time, frame: &Frame<'_>) {
        if self.filter.applies_to(frame.head) {
            self.add(now, Direction::Sent, frame.head, frame.parts);
        }
    }

    fn add(&mut self, time: Time, direction: Direction, head: &[u8], parts: &[&[u8]]) {
        let mut room = self.frame_bytes_max;
        let mut len = 0;
        for part in core::iter::once(&head).chain(parts) {
            len += part.len();
            let copied = room.min(part.len());
            self.bytes.extend_from_slice(&part[..copied]);
            room -= copied;
        }
        self.places.push(FrameSpan { time, direction, len, end: self.bytes.len() });
        if self.places.len() == BATCH_FRAMES_MAX || self.bytes.len() >= BATCH_BYTES_MAX {
            self.flush();
        }
    }

    /// Hands over the frames that were collected: call it at the end of each batch of the stack's.
    pub fn flush(&mut self) {
        if !self.places.is_empty() {
            (self.deliver)(Batch { bytes: &self.bytes, places: &self.places });
            self.bytes.clear();
            self.places.clear();
        }
    }
}

impl<F> fmt::Debug for Channel<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Channel").field("filter", &self.filter).finish_non_exhaustive()
    }
}

/// An interface that shows a channel the frames that it takes.
#[derive(Debug)]
pub struct Tapped<'a, T, F> {
    /// The interface.
    pub out: &'a mut T,
    /// The channel.
    pub channel: &'a mut Channel<F>,
    /// The time of the frames.
    pub now: Time,
}

impl<T: Transmit, F: FnMut(Batch<'_>)> Transmit for Tapped<'_, T, F> {
    fn limits(&self) -> Limits {
        self.out.limits()
    }

    fn send(&mut self, frame: &Frame<'_>) -> Result<(), Full> {
        self.out.send(frame)?;
        self.channel.sent(self.now, frame);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
