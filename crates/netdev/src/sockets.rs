//! Receives by AF_XDP, and sends by AF_XDP or a packet socket, in order.

use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::Arc;

use netstack::{Frame, Full, Limits};

use crate::choose::{By, Ways};
use crate::counters::Counters;
use crate::packet;
use crate::pool::Received;
use crate::xdp::{self, Attachment};

/// Payload of the largest frame that the kernel cuts: the length field of IP has 16 bits, and headers of
/// IP and TCP have at most 60 bytes.
pub(crate) const CUT_BYTES_MAX: u32 = 65_535 - 60 - 60;

/// The sockets of one queue of an interface.
#[derive(Debug)]
pub(crate) struct Sockets {
    xdp: xdp::Socket,
    packet: packet::Socket,
    ways: Ways,
    _attachment: Arc<Attachment>,
}

impl Sockets {
    pub(crate) const fn new(
        xdp: xdp::Socket,
        packet: packet::Socket,
        ways: Ways,
        attachment: Arc<Attachment>,
    ) -> Self {
        Self { xdp, packet, ways, _attachment: attachment }
    }

    /// What they do for the stack on an interface with this MTU.
    pub(crate) fn limits(&self, mtu: u16) -> Limits {
        let fills_checksums = self.ways == Ways::all(By::Packet) || self.xdp.fills_checksums();
        match self.ways.large {
            By::Packet => Limits { mtu, cut_bytes_max: CUT_BYTES_MAX, fills_checksums },
            By::Xdp => Limits { mtu: mtu.min(self.xdp.mtu()), cut_bytes_max: 0, fills_checksums },
        }
    }

    /// Chooses other ways. Nothing waits to be sent.
    pub(crate) const fn set_ways(&mut self, ways: Ways) {
        self.ways = ways;
    }

    /// The descriptor that is readable when frames have arrived.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.xdp.as_fd()
    }

    /// The descriptor that is writable when there is room again.
    pub(crate) fn room_fd(&self) -> BorrowedFd<'_> {
        match self.ways.large {
            By::Packet => self.packet.as_fd(),
            By::Xdp => self.xdp.as_fd(),
        }
    }

    /// Takes the next frame that has arrived.
    pub(crate) fn receive(&mut self) -> Option<Received> {
        self.xdp.receive()
    }

    /// Sends a frame behind those that were sent before.
    pub(crate) fn send(&mut self, frame: &Frame<'_>, counters: &mut Counters) -> Result<(), Full> {
        let is_large = frame.segment_bytes.is_some() || frame.len() > self.xdp.frame_bytes_max();
        let by = if is_large { self.ways.large } else { self.ways.small };
        let is_turn = match by {
            By::Xdp => self.packet.flush(counters),
            By::Packet => self.xdp.flush(counters),
        };
        if !is_turn {
            return Err(Full);
        }
        match by {
            By::Xdp => self.xdp.send(frame, counters),
            By::Packet => self.packet.send(frame, counters),
        }
    }

    /// Sends the frames that wait. Returns whether none remains.
    pub(crate) fn flush(&mut self, counters: &mut Counters) -> bool {
        self.xdp.replenish();
        // At most one of them has frames.
        self.xdp.flush(counters) && self.packet.flush(counters)
    }
}
