//! Puts the heads of frames together, and hands the frames to the interface.
//!
//! ```text
//!           ┌─ Ethernet ─┬──── IP ─────┬─ transport ─┐
//! ├─ unused ┤            │ 20 or 40    │ up to 60    ├ unused ┤
//! 0         14 or 18 in front of IP    TRANSPORT
//! ```
//!
//! The header of the transport has a fixed place in the buffer. The headers of the lower layers are written in
//! front of it, so no byte is moved.

use core::net::{IpAddr, SocketAddr};

use super::neighbours::{Neighbours, NextHop};
use crate::counters::Counters;
use crate::hash::spread;
use crate::tcp::{Emit, Endpoints};
use crate::transmit::{Checksum, Frame, Full, Limits, Transmit};
use crate::wire::checksum::Sum;
use crate::wire::{Ecn, EtherType, Mac, Protocol, arp, ethernet, ipv4, ipv6, tcp, udp};

/// The offset of the transport's header in the buffer.
const TRANSPORT: usize = ethernet::Header::LEN_MAX + ipv6::Header::LEN;
/// Bytes of the longest head.
const HEAD_BYTES_MAX: usize = TRANSPORT + tcp::Header::LEN_MAX;

/// The hop limit of packets: recommended for IPv4 (RFC 1700), and used by Linux for both versions.
const HOP_LIMIT: u8 = 64;

/// The parts of a stack that send frames.
#[derive(Debug)]
pub(crate) struct Emitter<'a, T> {
    /// The stack's MAC address.
    pub(crate) mac: Mac,
    pub(crate) neighbours: &'a Neighbours,
    /// The key of the labels of IPv6 flows.
    pub(crate) flow_key: u64,
    pub(crate) counters: &'a mut Counters,
    pub(crate) out: &'a mut T,
}

/// A packet. Its transport header is already in the buffer, with a checksum of zero.
struct Outgoing<'a> {
    hop: NextHop,
    source: IpAddr,
    destination: IpAddr,
    hop_limit: u8,
    ecn: Ecn,
    protocol: Protocol,
    /// The length of the transport's header.
    head_bytes: usize,
    /// The offset of the checksum in the transport's header.
    checksum_offset: u16,
    parts: &'a [&'a [u8]],
    segment_bytes: Option<u16>,
}

impl<T: Transmit> Emit for Emitter<'_, T> {
    fn limits(&self) -> Limits {
        self.out.limits()
    }

    #[inline]
    fn tcp(
        &mut self,
        endpoints: &Endpoints,
        neighbour: u16,
        header: &tcp::Header,
        parts: &[&[u8]],
        segment_bytes: Option<u16>,
        ecn: Ecn,
    ) -> Result<(), Full> {
        Emitter::tcp(self, endpoints, neighbour, header, parts, segment_bytes, ecn)
    }
}

impl<T: Transmit> Emitter<'_, T> {
    /// Sends a segment; with `segment_bytes`, a frame that the interface cuts into segments.
    ///
    /// # Errors
    ///
    /// If the interface has no room.
    #[inline]
    pub(crate) fn tcp(
        &mut self,
        endpoints: &Endpoints,
        neighbour: u16,
        header: &tcp::Header,
        parts: &[&[u8]],
        segment_bytes: Option<u16>,
        ecn: Ecn,
    ) -> Result<(), Full> {
        let mut head = [0; HEAD_BYTES_MAX];
        let head_bytes = header.emit(chunk_mut(&mut head, TRANSPORT));
        let packet = Outgoing {
            hop: self.neighbours.get(neighbour),
            source: endpoints.local.ip(),
            destination: endpoints.peer.ip(),
            hop_limit: HOP_LIMIT,
            ecn,
            protocol: Protocol::TCP,
            head_bytes,
            checksum_offset: 16,
            parts,
            segment_bytes,
        };
        self.send(&mut head, &packet)
    }

    /// Sends a datagram. The caller keeps its payload within the MTU.
    ///
    /// # Errors
    ///
    /// If the interface has no room.
    pub(crate) fn udp(
        &mut self,
        local: SocketAddr,
        peer: SocketAddr,
        hop: NextHop,
        parts: &[&[u8]],
    ) -> Result<(), Full> {
        let mut head = [0; HEAD_BYTES_MAX];
        let header = udp::Header { source: local.port(), destination: peer.port(), checksum: 0 };
        header.emit(length(total(parts)), chunk_mut(&mut head, TRANSPORT));
        let packet = Outgoing {
            hop,
            source: local.ip(),
            destination: peer.ip(),
            hop_limit: HOP_LIMIT,
            ecn: Ecn::NotEct,
            protocol: Protocol::UDP,
            head_bytes: udp::Header::LEN,
            checksum_offset: 6,
            parts,
            segment_bytes: None,
        };
        self.send(&mut head, &packet)
    }

    /// Sends an ICMP message of the addresses' IP version. Its header, at most 60 bytes, has a checksum of zero.
    ///
    /// # Errors
    ///
    /// If the interface has no room.
    pub(crate) fn icmp(
        &mut self,
        source: IpAddr,
        destination: IpAddr,
        hop: NextHop,
        hop_limit: Option<u8>,
        header: &[u8],
        parts: &[&[u8]],
    ) -> Result<(), Full> {
        let mut head = [0; HEAD_BYTES_MAX];
        head[TRANSPORT..][..header.len()].copy_from_slice(header);
        let packet = Outgoing {
            hop,
            source,
            destination,
            hop_limit: hop_limit.unwrap_or(HOP_LIMIT),
            ecn: Ecn::NotEct,
            protocol: if source.is_ipv4() { Protocol::ICMP } else { Protocol::ICMPV6 },
            head_bytes: header.len(),
            checksum_offset: 2,
            parts,
            segment_bytes: None,
        };
        self.send(&mut head, &packet)
    }

    /// Sends a message of ARP.
    ///
    /// # Errors
    ///
    /// If the interface has no room.
    pub(crate) fn arp(&mut self, hop: NextHop, message: &arp::Header) -> Result<(), Full> {
        let mut head = [0; HEAD_BYTES_MAX];
        message.emit(chunk_mut(&mut head, TRANSPORT));
        let start = self.put_link(&mut head, TRANSPORT, hop, EtherType::ARP);
        let head = &head[start..TRANSPORT + arp::Header::LEN];
        self.hand_over(&Frame { head, parts: &[], segment_bytes: None, checksum: None })
    }

    /// Writes the headers of IP and of the link, completes the checksum, and hands the frame over.
    #[inline]
    fn send(&mut self, head: &mut [u8; HEAD_BYTES_MAX], packet: &Outgoing<'_>) -> Result<(), Full> {
        let end = TRANSPORT + packet.head_bytes;
        let transport_bytes = packet.head_bytes + total(packet.parts);
        let ip = self.put_ip(head, packet, length(transport_bytes));
        let ethertype = if packet.source.is_ipv4() { EtherType::IPV4 } else { EtherType::IPV6 };
        let start = self.put_link(head, ip, packet.hop, ethertype);

        let is_icmpv4 = packet.protocol == Protocol::ICMP;
        let mut sum =
            if is_icmpv4 { Sum::default() } else { packet.pseudo_header(transport_bytes) };
        let field = TRANSPORT + usize::from(packet.checksum_offset);
        let (content, checksum) = if self.out.limits().fills_checksums && !is_icmpv4 {
            let start = length(TRANSPORT - start);
            (sum.partial(), Some(Checksum { start, offset: packet.checksum_offset }))
        } else {
            debug_assert!(packet.segment_bytes.is_none(), "each segment has a checksum of its own");
            sum.add(&head[TRANSPORT..end]);
            for part in packet.parts {
                sum.add(part);
            }
            // A checksum of zero would mean none (RFC 768). The other zero, 0xffff, is the same number.
            let is_none = packet.protocol == Protocol::UDP && sum.checksum() == 0;
            (if is_none { 0xffff } else { sum.checksum() }, None)
        };
        head[field..field + 2].copy_from_slice(&content.to_be_bytes());
        self.hand_over(&Frame {
            head: &head[start..end],
            parts: packet.parts,
            segment_bytes: packet.segment_bytes,
            checksum,
        })
    }

    /// Writes the IP header in front of the transport's header, and returns its offset.
    #[inline]
    fn put_ip(
        &self,
        head: &mut [u8; HEAD_BYTES_MAX],
        packet: &Outgoing<'_>,
        payload_bytes: u16,
    ) -> usize {
        let &Outgoing { protocol, ecn, hop_limit, .. } = packet;
        match (packet.source, packet.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let at = TRANSPORT - ipv4::Header::LEN;
                let header = ipv4::Header { source, destination, protocol, ecn, hop_limit };
                header.emit(payload_bytes, chunk_mut(head, at));
                at
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                let at = TRANSPORT - ipv6::Header::LEN;
                // The ports of TCP and UDP.
                let ports = u32::from_be_bytes(*chunk_mut(head, TRANSPORT));
                // Routers that share load by the flow label keep a flow on one path (RFC 6437).
                #[expect(clippy::cast_possible_truncation, reason = "20 bits are wanted")]
                let flow_label =
                    spread(self.flow_key, destination.to_bits(), ports) as u32 & 0xf_ffff;
                let header =
                    ipv6::Header { source, destination, protocol, ecn, hop_limit, flow_label };
                header.emit(payload_bytes, chunk_mut(head, at));
                at
            }
            _ => unreachable!("both ends have addresses of one version"),
        }
    }

    /// Writes the link header in front of `at`, and returns its offset.
    #[inline]
    fn put_link(
        &self,
        head: &mut [u8; HEAD_BYTES_MAX],
        at: usize,
        hop: NextHop,
        ethertype: EtherType,
    ) -> usize {
        let header = hop.header(self.mac, ethertype);
        let start = at - header.emitted_len();
        header.emit(chunk_mut(head, start));
        start
    }

    #[inline]
    fn hand_over(&mut self, frame: &Frame<'_>) -> Result<(), Full> {
        self.out.send(frame)?;
        self.counters.frames_sent += 1;
        Ok(())
    }
}

impl Outgoing<'_> {
    #[inline]
    fn pseudo_header(&self, transport_bytes: usize) -> Sum {
        let bytes = length(transport_bytes);
        Sum::pseudo_header(self.source, self.destination, self.protocol, bytes.into())
    }
}

/// The bytes of all parts.
#[inline]
fn total(parts: &[&[u8]]) -> usize {
    parts.iter().map(|part| part.len()).sum()
}

/// The length of a packet, which the limits of the interface bound.
#[inline]
fn length(bytes: usize) -> u16 {
    u16::try_from(bytes).expect("a frame is no longer than its interface's limits allow")
}

/// A part of the buffer for a header.
#[inline]
fn chunk_mut<const N: usize>(head: &mut [u8; HEAD_BYTES_MAX], at: usize) -> &mut [u8; N] {
    head[at..].first_chunk_mut().expect("the buffer has room for all headers")
}

#[cfg(test)]
mod tests;
