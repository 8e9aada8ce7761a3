//! IPv6 (RFC 8200). Extension headers with options are skipped, and routing headers of packets that have arrived; fragments
//! are refused, and packets that would have to be sent on.

use core::net::Ipv6Addr;

use super::{Ecn, Malformed, Protocol, be16};

/// The header of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The sender.
    pub source: Ipv6Addr,
    /// The receiver.
    pub destination: Ipv6Addr,
    /// What the packet carries behind its extension headers.
    pub protocol: Protocol,
    /// The mark of congestion.
    pub ecn: Ecn,
    /// How many more routers may forward it.
    pub hop_limit: u8,
    /// The label of the flow, 20 bits, by which routers keep its packets on one path (RFC 6437).
    pub flow_label: u32,
}

/// How many extension headers are skipped. RFC 8504, 5.3 lets a host set such a limit; more than these,
/// destination options before a routing header and behind it, do not occur (RFC 8200, 4.1).
const EXTENSIONS_MAX: usize = 4;

const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const DESTINATION_OPTIONS: u8 = 60;

impl Header {
    /// Bytes of the header without extensions, as all are that are emitted.
    pub const LEN: usize = 40;

    /// Reads a header and the extensions behind it.
    ///
    /// # Errors
    ///
    /// If the packet is cut off, its header contradicts itself, it is a fragment, or it has an extension that
    /// is not skipped.
    #[inline]
    pub fn parse(packet: &[u8]) -> Result<(Self, &[u8]), Malformed> {
        let (fields, payload) = packet.split_first_chunk().ok_or(Malformed::Header)?;
        let payload_len = usize::from(be16(fields[4], fields[5]));
        let payload = payload.get(..payload_len).ok_or(Malformed::Header)?;
        Self::read(fields, payload)
    }

    /// Reads the header of a packet that an ICMP message quotes: the payload may be cut off.
    ///
    /// # Errors
    ///
    /// Those of [`Header::parse`] but for the length of the payload.
    pub fn parse_quoted(packet: &[u8]) -> Result<(Self, &[u8]), Malformed> {
        let (fields, payload) = packet.split_first_chunk().ok_or(Malformed::Header)?;
        Self::read(fields, payload)
    }

    #[inline]
    fn read<'a>(
        fields: &[u8; Self::LEN],
        payload: &'a [u8],
    ) -> Result<(Self, &'a [u8]), Malformed> {
        let &[f0, f1, f2, f3, _, _, next, hop_limit, ref addresses @ ..] = fields;
        if f0 >> 4 != 6 {
            return Err(Malformed::Header);
        }
        let (source, destination) = addresses.split_at(16);
        let address =
            |bytes: &[u8]| Ipv6Addr::from(<[u8; 16]>::try_from(bytes).unwrap_or_default());
        let (protocol, payload) = skip_extensions(next, payload)?;
        let header = Self {
            source: address(source),
            destination: address(destination),
            protocol,
            ecn: Ecn::from_bits(f1 >> 4),
            hop_limit,
            flow_label: u32::from_be_bytes([0, f1 & 0x0f, f2, f3]),
        };
        Ok((header, payload))
    }

    /// Writes the header of a packet with a payload of so many bytes.
    #[inline]
    pub fn emit(&self, payload_bytes: u16, into: &mut [u8; Self::LEN]) {
        let first = 6 << 28 | u32::from(self.ecn as u8) << 20 | self.flow_label & 0xf_ffff;
        into[0..4].copy_from_slice(&first.to_be_bytes());
        into[4..6].copy_from_slice(&payload_bytes.to_be_bytes());
        into[6] = self.protocol.0;
        into[7] = self.hop_limit;
        into[8..24].copy_from_slice(&self.source.octets());
        into[24..40].copy_from_slice(&self.destination.octets());
    }
}

/// The protocol behind the extension headers, and its bytes.
#[inline]
fn skip_extensions(mut next: u8, mut payload: &[u8]) -> Result<(Protocol, &[u8]), Malformed> {
    for _ in 0..=EXTENSIONS_MAX {
        match next {
            HOP_BY_HOP | DESTINATION_OPTIONS | ROUTING => {
                let &[following, len, _, left, ..] = payload else { return Err(Malformed::Header) };
                // No type of routing is known here: a header that has nowhere to lead is ignored (RFC 8200, 4.4).
                if next == ROUTING && left > 0 {
                    return Err(Malformed::Extension);
                }
                // In units of 8 bytes, the first one not counted (RFC 8200, 4.3).
                let len = (usize::from(len) + 1) * 8;
                payload = payload.get(len..).ok_or(Malformed::Header)?;
                next = following;
            }
            FRAGMENT => return Err(Malformed::Fragment),
            protocol => return Ok((Protocol(protocol), payload)),
        }
    }
    Err(Malformed::Extension)
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    fn header() -> Header {
        Header {
            source: "2001:db8::1".parse().unwrap(),
            destination: "2001:db8::2".parse().unwrap(),
            protocol: Protocol::TCP,
            ecn: Ecn::Ce,
            hop_limit: 64,
            flow_label: 0xa_bcde,
        }
    }

    fn packet(header: &Header, payload: &[u8]) -> Vec<u8> {
        let mut head = [0xaa; Header::LEN];
        header.emit(u16::try_from(payload.len()).unwrap(), &mut head);
        [&head, payload].concat()
    }

    #[test]
    fn padding_behind_the_packet_is_no_payload() {
        let mut bytes = packet(&header(), b"four");
        bytes.push(0);
        assert_eq!(Header::parse(&bytes), Ok((header(), &b"four"[..])));
        assert_eq!(Header::parse(&bytes[..43]), Err(Malformed::Header));
        assert_eq!(Header::parse_quoted(&bytes[..43]), Ok((header(), &b"fou"[..])));
    }

    #[test]
    fn options_are_skipped_up_to_a_limit() {
        let option = |next: u8| [next, 0, 1, 4, 0, 0, 0, 0];
        let hop_by_hop = Header { protocol: Protocol(HOP_BY_HOP), ..header() };
        let mut payload = [&option(DESTINATION_OPTIONS)[..], &option(6), b"data"].concat();
        assert_eq!(Header::parse(&packet(&hop_by_hop, &payload)), Ok((header(), &b"data"[..])));
        for _ in 0..EXTENSIONS_MAX - 1 {
            payload.splice(0..0, option(DESTINATION_OPTIONS));
        }
        assert_eq!(Header::parse(&packet(&hop_by_hop, &payload)), Err(Malformed::Extension));
        let cut = [&option(6)[..7]].concat();
        assert_eq!(Header::parse(&packet(&hop_by_hop, &cut)), Err(Malformed::Header));
    }

    #[test]
    fn fragments_and_packets_to_be_sent_on_are_refused() {
        for (next, refused) in [(FRAGMENT, Malformed::Fragment), (ROUTING, Malformed::Extension)] {
            let header = Header { protocol: Protocol(next), ..header() };
            assert_eq!(Header::parse(&packet(&header, &[6; 40])), Err(refused));
        }
    }

    #[test]
    fn rfc8200_4_4_a_routing_header_without_segments_left_is_skipped() {
        let header = Header { protocol: Protocol(ROUTING), ..header() };
        for (kind, len) in [(0, 0), (2, 2), (4, 1), (253, 3)] {
            let mut routing = std::vec![0x66; (usize::from(len) + 1) * 8];
            routing[..4].copy_from_slice(&[6, len, kind, 0]);
            let bytes = packet(&header, &[&routing[..], b"data"].concat());
            let expected = Header { protocol: Protocol::TCP, ..header };
            assert_eq!(Header::parse(&bytes), Ok((expected, &b"data"[..])), "type {kind}");
        }
    }

    proptest! {
        #[test]
        fn what_is_emitted_is_parsed(
            source: [u8; 16], destination: [u8; 16],
            protocol in prop::sample::select(&[6, 17, 58, 59, 255][..]), ecn in 0..4_u8,
            hop_limit: u8, flow_label in 0..1_u32 << 20,
            payload in prop::collection::vec(any::<u8>(), 0..100),
        ) {
            let header = Header {
                source: source.into(), destination: destination.into(),
                protocol: Protocol(protocol), ecn: Ecn::from_bits(ecn), hop_limit, flow_label,
            };
            let bytes = packet(&header, &payload);
            prop_assert_eq!(Header::parse(&bytes), Ok((header, &payload[..])));
        }

        #[test]
        fn no_bytes_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..120), next: bool) {
            if next && bytes.len() > 40 {
                bytes[0] = 0x60;
                bytes[4] = 0;
                bytes[6] =
                    [HOP_BY_HOP, DESTINATION_OPTIONS, FRAGMENT, ROUTING][usize::from(bytes[6] % 4)];
            }
            let _ = Header::parse(&bytes);
            let _ = Header::parse_quoted(&bytes);
        }
    }
}
