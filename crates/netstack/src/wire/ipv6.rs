//! IPv6 (RFC 8200). Extension headers are skipped if their options allow it. Routing headers are skipped in packets
//! that have reached their last address. Fragments that are not whole packets are refused, and so are packets to
//! forward. A [`Problem`] reports a refused packet to its sender.

use core::net::Ipv6Addr;

use super::{Ecn, Malformed, Protocol, be16, icmpv6};

/// The header of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The sender.
    pub source: Ipv6Addr,
    /// The receiver.
    pub destination: Ipv6Addr,
    /// The protocol that the packet carries after its extension headers.
    pub protocol: Protocol,
    /// The mark of congestion.
    pub ecn: Ecn,
    /// The number of further routers that may forward the packet.
    pub hop_limit: u8,
    /// The label of the flow, 20 bits, by which routers keep its packets on one path (RFC 6437).
    pub flow_label: u32,
}

/// A packet that cannot be processed, and the report to its sender (RFC 4443, 3.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Problem<'a> {
    /// The sender.
    pub source: Ipv6Addr,
    /// The receiver.
    pub destination: Ipv6Addr,
    /// The packet, without padding after it.
    pub packet: &'a [u8],
    /// The message, which quotes the packet.
    pub message: icmpv6::Header,
    /// True if a packet to a group of stations gets this report, too (RFC 4443, 2.4 (e.3)).
    pub is_for_groups: bool,
}

/// A mistake in an extension header.
struct Fault {
    code: u8,
    /// The offset of the mistake in the packet, in bytes.
    pointer: usize,
    is_for_groups: bool,
}

/// The packet after its extension headers.
struct Upper<'a> {
    protocol: Protocol,
    payload: &'a [u8],
    /// The offset in the packet of the byte that names the protocol.
    named_at: usize,
}

/// The reason why extension headers were not skipped.
enum Unskipped {
    Malformed(Malformed),
    Fault(Fault),
}

/// The maximum number of extension headers that are skipped. RFC 8504, 5.3 lets a host set such a limit. More than
/// four, with destination options on both sides of a routing header, do not occur (RFC 8200, 4.1).
const EXTENSIONS_MAX: usize = 4;

const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const DESTINATION_OPTIONS: u8 = 60;

/// The bits of a fragment header with the fragment's offset and the flag of further fragments (RFC 8200, 4.5).
const FRAGMENT_PLACE: u16 = 0xfff9;

/// The offsets of the fields in the header of a packet, and in a routing header.
const NEXT_HEADER: usize = 6;
const ROUTING_TYPE: usize = 2;

/// The option of one byte; all others have a length.
const PAD_1: u8 = 0;

const WRONG_FIELD: u8 = 0;
const UNKNOWN_HEADER: u8 = 1;
const UNKNOWN_OPTION: u8 = 2;

/// ICMP messages with a smaller type are errors (RFC 4443, 2.1). No error may answer a redirect, either (2.4 (e.2)).
const FIRST_INFORMATION: u8 = 128;
const REDIRECT: u8 = 137;

impl Header {
    /// Bytes of the header without extensions. All emitted headers have this length.
    pub const LEN: usize = 40;

    /// Reads a header and the extensions after it.
    ///
    /// # Errors
    ///
    /// If the packet is cut off, its header contradicts itself, it is a fragment and not whole, or it has an extension
    /// that is not skipped.
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
    /// The errors of [`Header::parse`], except for the length of the payload.
    pub fn parse_quoted(packet: &[u8]) -> Result<(Self, &[u8]), Malformed> {
        let (fields, payload) = packet.split_first_chunk().ok_or(Malformed::Header)?;
        Self::read(fields, payload)
    }

    #[inline]
    fn read<'a>(
        fields: &[u8; Self::LEN],
        payload: &'a [u8],
    ) -> Result<(Self, &'a [u8]), Malformed> {
        let &[f0, f1, f2, f3, _, _, next, hop_limit, ..] = fields;
        if f0 >> 4 != 6 {
            return Err(Malformed::Header);
        }
        let [source, destination] = ends(fields);
        let Upper { protocol, payload, .. } = skip_extensions(next, payload, true)?;
        let header = Self {
            source,
            destination,
            protocol,
            ecn: Ecn::from_bits(f1 >> 4),
            hop_limit,
            flow_label: u32::from_be_bytes([0, f1 & 0x0f, f2, f3]),
        };
        Ok((header, payload))
    }

    /// The report to the sender of a packet that was not processed. `knows` is true for known protocols. `None` if the
    /// packet has no upper layer, is cut off, or may itself be an error, which no error may answer (RFC 4443, 2.4 (e)).
    #[must_use]
    pub fn problem(packet: &[u8], knows: impl Fn(Protocol) -> bool) -> Option<Problem<'_>> {
        let fields = packet.first_chunk::<{ Self::LEN }>()?;
        let packet = packet.get(..Self::LEN + usize::from(be16(fields[4], fields[5])))?;
        let (next, payload) = (fields[NEXT_HEADER], &packet[Self::LEN..]);
        let fault = match skip_extensions(next, payload, true) {
            Ok(upper) if knows(upper.protocol) || upper.protocol == Protocol::NONE => return None,
            Ok(upper) => Fault::new(UNKNOWN_HEADER, upper.named_at),
            Err(Unskipped::Fault(fault)) => fault,
            Err(Unskipped::Malformed(_)) => return None,
        };
        // The packet may be an error after the header that is not processed.
        let is_error = match skip_extensions(next, payload, false) {
            Ok(Upper { protocol: Protocol::ICMPV6, payload, .. }) => {
                payload.first().is_none_or(|kind| *kind < FIRST_INFORMATION || *kind == REDIRECT)
            }
            Ok(_) => false,
            Err(_) => true,
        };
        let [source, destination] = ends(fields);
        let message = icmpv6::Header::ParameterProblem {
            code: fault.code,
            pointer: u32::try_from(fault.pointer).ok()?,
        };
        let is_for_groups = fault.is_for_groups;
        (!is_error).then_some(Problem { source, destination, packet, message, is_for_groups })
    }

    /// Writes the header of a packet with a payload of `payload_bytes`.
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

/// Skips the extension headers. With `checked`, their content is checked, too; otherwise only their lengths matter.
#[inline]
fn skip_extensions(
    mut next: u8,
    mut payload: &[u8],
    checked: bool,
) -> Result<Upper<'_>, Unskipped> {
    let (mut named_at, mut at) = (NEXT_HEADER, Header::LEN);
    for _ in 0..=EXTENSIONS_MAX {
        match next {
            // This header may only be the first one (RFC 8200, 4).
            HOP_BY_HOP if checked && at != Header::LEN => {
                return Err(Fault::new(UNKNOWN_HEADER, named_at).into());
            }
            HOP_BY_HOP | DESTINATION_OPTIONS | ROUTING => {
                let &[following, len, _, left, ..] = payload else {
                    return Err(Malformed::Header.into());
                };
                // The length counts units of 8 bytes without the first one (RFC 8200, 4.3).
                let len = (usize::from(len) + 1) * 8;
                let (extension, rest) = payload.split_at_checked(len).ok_or(Malformed::Header)?;
                match next {
                    _ if !checked => {}
                    // The stack knows no type of routing. A routing header without segments left is ignored (RFC
                    // 8200, 4.4).
                    ROUTING if left > 0 => {
                        return Err(Fault::new(WRONG_FIELD, at + ROUTING_TYPE).into());
                    }
                    ROUTING => {}
                    _ => check_options(extension, at)?,
                }
                (named_at, at) = (at, at + len);
                (next, payload) = (following, rest);
            }
            FRAGMENT => {
                let (&[following, _, a, b, ..], rest) =
                    payload.split_first_chunk::<8>().ok_or(Malformed::Header)?;
                // A fragment that is both the first and the last is a whole packet (RFC 6946).
                if be16(a, b) & FRAGMENT_PLACE != 0 {
                    return Err(Malformed::Fragment.into());
                }
                (named_at, at) = (at, at + 8);
                (next, payload) = (following, rest);
            }
            protocol => return Ok(Upper { protocol: Protocol(protocol), payload, named_at }),
        }
    }
    Err(Malformed::Extension.into())
}

/// Checks that the options in an extension header may be skipped (RFC 8200, 4.2). `place` is the offset of the header
/// in the packet. The only known option is padding.
fn check_options(extension: &[u8], place: usize) -> Result<(), Unskipped> {
    let mut at = 2;
    while let Some(&option) = extension.get(at) {
        if option == PAD_1 {
            at += 1;
            continue;
        }
        let len = usize::from(*extension.get(at + 1).ok_or(Malformed::Header)?);
        match option >> 6 {
            0b00 => {}
            0b01 => return Err(Malformed::Extension.into()),
            action => {
                let fault = Fault::new(UNKNOWN_OPTION, place + at);
                return Err(Fault { is_for_groups: action == 0b10, ..fault }.into());
            }
        }
        at += 2 + len;
    }
    if at > extension.len() { Err(Malformed::Header.into()) } else { Ok(()) }
}

/// The addresses in the header of a packet: of the sender, and of the receiver.
#[inline]
fn ends(fields: &[u8; Header::LEN]) -> [Ipv6Addr; 2] {
    [8, 24].map(|at| {
        fields[at..].first_chunk::<16>().map_or(Ipv6Addr::UNSPECIFIED, |bytes| (*bytes).into())
    })
}

impl Fault {
    const fn new(code: u8, pointer: usize) -> Self {
        Self { code, pointer, is_for_groups: false }
    }
}

impl From<Fault> for Unskipped {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl From<Malformed> for Unskipped {
    fn from(why: Malformed) -> Self {
        Self::Malformed(why)
    }
}

impl From<Unskipped> for Malformed {
    fn from(why: Unskipped) -> Self {
        match why {
            Unskipped::Malformed(why) => why,
            Unskipped::Fault(_) => Self::Extension,
        }
    }
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
    fn rfc6946_a_fragment_that_is_a_whole_packet_is_no_fragment() {
        let fragment = Header { protocol: Protocol(FRAGMENT), ..header() };
        let parsed = |place: [u8; 2]| {
            let payload = [&[6, 0, place[0], place[1], 1, 2, 3, 4], &b"data"[..]].concat();
            Header::parse(&packet(&fragment, &payload))
                .map(|(header, data)| (header, data.to_vec()))
        };
        // Two bits are reserved.
        for place in [[0, 0], [0, 6]] {
            assert_eq!(parsed(place), Ok((header(), b"data".to_vec())));
        }
        for place in [[0, 1], [0, 8], [0x80, 0]] {
            assert_eq!(parsed(place), Err(Malformed::Fragment));
        }
        assert_eq!(Header::parse(&packet(&fragment, &[6; 7])), Err(Malformed::Header));
    }

    #[test]
    fn fragments_and_packets_to_be_sent_on_are_refused() {
        for (next, refused) in [(FRAGMENT, Malformed::Fragment), (ROUTING, Malformed::Extension)] {
            let header = Header { protocol: Protocol(next), ..header() };
            assert_eq!(Header::parse(&packet(&header, &[6; 56])), Err(refused));
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

    #[test]
    fn rfc8200_4_2_options_say_what_becomes_of_a_packet_where_they_are_not_known() {
        let header = Header { protocol: Protocol(DESTINATION_OPTIONS), ..header() };
        let told = |options: [u8; 6]| {
            let payload = [&[6, 0][..], &options, b"data"].concat();
            let bytes = packet(&header, &payload);
            let problem = Header::problem(&bytes, |protocol| protocol == Protocol::TCP);
            let told = problem.map(|problem| (problem.message, problem.is_for_groups));
            (Header::parse(&bytes).err(), told)
        };
        let of = |pointer, is_for_groups| {
            let message = icmpv6::Header::ParameterProblem { code: 2, pointer };
            (Some(Malformed::Extension), Some((message, is_for_groups)))
        };
        for (options, expected) in [
            ([0, 0, 0, 0, 0, 0], (None, None)),
            ([0x05, 2, 0, 0, 1, 0], (None, None)),
            ([0x3f, 0, 0x1e, 0, 1, 0], (None, None)),
            ([1, 1, 0xff, 0x40, 1, 0], (Some(Malformed::Extension), None)),
            ([0, 0x80, 0, 0, 0, 0], of(43, true)),
            ([1, 0, 0, 0, 0xc2, 0], of(46, false)),
            // Longer than the header, and one without a length.
            ([1, 5, 0, 0, 0, 0], (Some(Malformed::Header), None)),
            ([1, 3, 0, 0, 0, 1], (Some(Malformed::Header), None)),
        ] {
            assert_eq!(told(options), expected, "{options:?}");
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
            if let Some(problem) = Header::problem(&bytes, |protocol| protocol == Protocol::TCP) {
                let icmpv6::Header::ParameterProblem { pointer, .. } = problem.message else {
                    panic!("{problem:?}")
                };
                prop_assert!((pointer as usize) < problem.packet.len());
            }
        }
    }
}
