//! Raw channels: frames that match a filter, handed over in batches (Polyakov's network channels).
//!
//! A channel sees frames in addition to the stack, and the stack still gets each of them. The owner of the interface
//! shows the channel each received frame, and lets the stack send through [`Tapped`].

use alloc::vec::Vec;
use core::fmt;
use core::net::IpAddr;

use super::packet::Packet;
use crate::time::Time;
use crate::transmit::{Frame, Full, Limits, Transmit};
use crate::wire::{Protocol, ethernet};

/// The frames that a channel receives: a frame has to match all parts of the filter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// The protocol that IP carries.
    pub protocol: Option<Protocol>,
    /// The network of the source or the destination.
    pub network: Option<Network>,
    /// The source or destination port of TCP or UDP.
    pub port: Option<u16>,
}

/// A set of addresses that begin with the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    /// Any address of the network.
    pub addr: IpAddr,
    /// The number of bits that count. All bits count if the number exceeds the length of an address.
    pub prefix: u8,
}

/// The direction of a frame.
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
    /// The time at which the channel saw the frame.
    pub time: Time,
    /// The direction of the frame.
    pub direction: Direction,
    /// The length of the frame, bytes.
    pub len: usize,
    /// The first bytes of the frame, up to the channel's limit. A frame that the interface cuts later is one frame
    /// here. A checksum that the interface fills in is not yet complete.
    pub bytes: &'a [u8],
}

/// Frames of a channel, in the order in which the channel saw them; at least one.
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
    /// The end of the frame's bytes. They begin at the end of the frame before.
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

/// The maximum frames of a batch, and the maximum bytes in front of its last frame. A full batch is delivered
/// early. These frames fit into a second-level cache.
const BATCH_FRAMES_MAX: usize = 256;
const BATCH_BYTES_MAX: usize = 256 * 1024;

impl Filter {
    /// True if the filter matches a frame. The filter looks only at the headers. It ignores errors in headers
    /// unless they hide a field that it needs.
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
    /// True if the address is in the network.
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
    /// A channel of the frames to which `filter` applies. The channel copies at most `frame_bytes_max` bytes of
    /// each frame. [`flush`](Self::flush) calls `deliver`, and so does a full batch.
    pub const fn new(filter: Filter, frame_bytes_max: usize, deliver: F) -> Self {
        Self { filter, frame_bytes_max, bytes: Vec::new(), places: Vec::new(), deliver }
    }

    /// Shows the channel a received frame.
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

    /// Delivers the collected frames: call it at the end of each of the stack's batches.
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

/// An interface that shows a channel the frames that it sends.
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
