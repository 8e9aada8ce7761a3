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
    /// The flows of the frames that wait in `xdp`.
    waiting: Flows,
    _attachment: Arc<Attachment>,
}

/// A set of flows with false positives: a flow may seem to be in the set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Flows(u64);

impl Flows {
    /// The flow of a frame; all flows if the flow is unknown.
    fn of(frame: &Frame<'_>) -> Self {
        // The ports are the first bytes of TCP's and UDP's headers.
        let ports =
            frame.checksum.and_then(|sum| frame.head.get(usize::from(sum.start)..)?.get(..4));
        let Some(&[a, b, c, d]) = ports else { return Self(u64::MAX) };
        // Ports of a client are often next to each other.
        Self(1 << ((a ^ b ^ c ^ d) % 64))
    }

    const fn has_any(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    const fn insert(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

impl Sockets {
    pub(crate) const fn new(
        xdp: xdp::Socket,
        packet: packet::Socket,
        ways: Ways,
        attachment: Arc<Attachment>,
    ) -> Self {
        Self { xdp, packet, ways, waiting: Flows(0), _attachment: attachment }
    }

    /// The offloads and limits of the sockets on an interface with this MTU.
    pub(crate) fn limits(&self, mtu: u16) -> Limits {
        let fills_checksums = self.ways == Ways::all(By::Packet) || self.xdp.fills_checksums();
        let cut_bytes_max = match self.ways.large {
            By::Packet => CUT_BYTES_MAX,
            By::Xdp => 0,
        };
        // All frames come by AF_XDP, even if frames leave by the packet socket.
        Limits { mtu: mtu.min(self.xdp.mtu()), cut_bytes_max, fills_checksums }
    }

    /// Chooses other paths. The caller has flushed all frames.
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

    /// The number of frames that were dropped before they could be received.
    pub(crate) fn missed(&self) -> u64 {
        self.xdp.missed()
    }

    /// Takes the next frame that has arrived.
    pub(crate) fn receive(&mut self) -> Option<Received> {
        self.xdp.receive()
    }

    /// Sends a frame after the earlier frames of the same flow.
    ///
    /// Order between flows does not matter. So a large frame does not wait for a system call that sends small
    /// frames of other flows.
    pub(crate) fn send(&mut self, frame: &Frame<'_>, counters: &mut Counters) -> Result<(), Full> {
        let is_large = frame.segment_bytes.is_some() || frame.len() > self.xdp.frame_bytes_max();
        let flow = Flows::of(frame);
        match if is_large { self.ways.large } else { self.ways.small } {
            By::Xdp => {
                if !self.packet.flush(counters) {
                    return Err(Full);
                }
                self.xdp.send(frame, counters)?;
                self.waiting.insert(flow);
                Ok(())
            }
            By::Packet => {
                if self.waiting.has_any(flow) && !self.flush_xdp(counters) {
                    return Err(Full);
                }
                self.packet.send(frame, counters)
            }
        }
    }

    /// Sends the waiting frames. Returns true if no frame remains.
    pub(crate) fn flush(&mut self, counters: &mut Counters) -> bool {
        self.xdp.replenish();
        // Each flow has waiting frames in at most one of the two sockets.
        let is_xdp_empty = self.flush_xdp(counters);
        self.packet.flush(counters) && is_xdp_empty
    }

    fn flush_xdp(&mut self, counters: &mut Counters) -> bool {
        let is_empty = self.xdp.flush(counters);
        if is_empty {
            self.waiting = Flows(0);
        }
        is_empty
    }
}

#[cfg(test)]
mod tests {
    use netstack::Checksum;

    use super::*;

    fn flow(ports: [u8; 4], checksum: Option<Checksum>) -> Flows {
        let head: Vec<u8> = [&[0; 34][..], &ports, &[0; 16]].concat();
        Flows::of(&Frame { head: &head, parts: &[], segment_bytes: None, checksum })
    }

    #[test]
    fn a_flow_is_known_by_its_ports() {
        let sum = Some(Checksum { start: 34, offset: 16 });
        let mut flows = Flows(0);
        flows.insert(flow([0, 80, 200, 1], sum));
        assert!(flows.has_any(flow([0, 80, 200, 1], sum)));
        assert!(!flows.has_any(flow([0, 80, 200, 2], sum)));
    }

    #[test]
    fn a_frame_of_an_unknown_flow_may_be_of_any() {
        let past_the_head = Some(Checksum { start: 52, offset: 16 });
        for checksum in [None, past_the_head] {
            let mut flows = Flows(0);
            flows.insert(flow([0, 80, 200, 1], Some(Checksum { start: 34, offset: 16 })));
            assert!(flows.has_any(flow([0, 80, 200, 2], checksum)));
        }
    }
}
