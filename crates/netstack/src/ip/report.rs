//! Reads ICMP messages that quote a segment of this stack, and chooses the bytes that the stack's own messages
//! quote.

use super::packet::Packet;
use crate::seq::SeqNumber;
use crate::tcp::Endpoints;
use crate::tcp::path_mtu::believed;
use crate::wire::{Malformed, Protocol, icmpv4, icmpv6, ipv4, ipv6};

use core::net::SocketAddr;

/// A report from the network about a segment that the stack may have sent.
///
/// Any host can send such a message. So a connection believes a report only if the segment is in flight (RFC 5927,
/// 4.1), and even then the connection is not closed (5.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// The connection.
    pub(crate) endpoints: Endpoints,
    /// The first sequence number of the segment.
    pub(crate) seq: SeqNumber,
    pub(crate) what: What,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// The packet was longer than a link of the path allows.
    TooBig {
        /// The MTU of the link, never below the minimum MTU that is believed.
        mtu: u16,
    },
    /// The packet could not be delivered.
    Unreachable,
}

/// The report in an ICMPv4 message; `None` if the message is not about a segment.
pub(crate) fn of_v4(
    header: icmpv4::Header,
    quoted: &[u8],
    packet: &Packet<'_>,
) -> Result<Option<Report>, Malformed> {
    let what = match header {
        icmpv4::Header::FragmentationNeeded { mtu } => {
            // The length field of the packet, which is complete even if the packet is cut off.
            let &[_, _, a, b, ..] = quoted else { return Err(Malformed::Header) };
            let mtu = believed(true, mtu.into(), u16::from_be_bytes([a, b]));
            What::TooBig { mtu: mtu.ok_or(Malformed::Header)? }
        }
        icmpv4::Header::Unreachable { .. } => What::Unreachable,
        _ => return Ok(None),
    };
    about(what, quoted, packet)
}

/// The report in an ICMPv6 message; `None` if the message is not about a segment.
pub(crate) fn of_v6(
    header: icmpv6::Header,
    quoted: &[u8],
    packet: &Packet<'_>,
) -> Result<Option<Report>, Malformed> {
    let what = match header {
        icmpv6::Header::PacketTooBig { mtu } => {
            What::TooBig { mtu: believed(false, mtu, 0).ok_or(Malformed::Header)? }
        }
        icmpv6::Header::Unreachable { .. } => What::Unreachable,
        _ => return Ok(None),
    };
    about(what, quoted, packet)
}

/// Finds the connection of a quoted segment. The quote has at least the ports and the sequence number (RFC 792: 8
/// bytes).
fn about(what: What, quoted: &[u8], packet: &Packet<'_>) -> Result<Option<Report>, Malformed> {
    let quoted = Packet::parse_quoted(packet.source.is_ipv4(), quoted)?;
    if quoted.protocol != Protocol::TCP || quoted.source != packet.destination {
        return Ok(None);
    }
    let &[l0, l1, p0, p1, s0, s1, s2, s3] =
        quoted.payload.first_chunk().ok_or(Malformed::Header)?;
    let endpoints = Endpoints {
        local: SocketAddr::new(quoted.source, u16::from_be_bytes([l0, l1])),
        peer: SocketAddr::new(quoted.destination, u16::from_be_bytes([p0, p1])),
    };
    let seq = SeqNumber(u32::from_be_bytes([s0, s1, s2, s3]));
    Ok(Some(Report { endpoints, seq, what }))
}

/// The longest error of IPv4 (RFC 1812, 4.3.2.3) and of IPv6 (RFC 4443, 2.4 (c)), with the IP header: every link
/// takes such a packet.
const ERROR_BYTES_MAX: [usize; 2] = [576, 1280];

/// The first bytes of a packet, which an error about the packet quotes, without the link's padding.
pub(crate) fn quoted(packet: &[u8]) -> &[u8] {
    let (packet_bytes, quoted_bytes_max) = match *packet {
        [0x40..0x50, _, a, b, ..] => {
            let heads = ipv4::Header::LEN + icmpv4::Header::LEN;
            (u16::from_be_bytes([a, b]).into(), ERROR_BYTES_MAX[0] - heads)
        }
        [_, _, _, _, a, b, ..] => {
            let heads = ipv6::Header::LEN + icmpv6::Header::LEN;
            let payload_bytes = usize::from(u16::from_be_bytes([a, b]));
            (ipv6::Header::LEN + payload_bytes, ERROR_BYTES_MAX[1] - heads)
        }
        _ => (0, 0),
    };
    &packet[..packet.len().min(packet_bytes).min(quoted_bytes_max)]
}
