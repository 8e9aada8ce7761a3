//! IPv4 (RFC 791) without fragments: a fragment is refused.

use core::net::Ipv4Addr;

use super::checksum::Sum;
use super::{Ecn, Malformed, Protocol, be16};

/// The header of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The sender.
    pub source: Ipv4Addr,
    /// The receiver.
    pub destination: Ipv4Addr,
    /// The protocol that the packet carries.
    pub protocol: Protocol,
    /// The mark of congestion.
    pub ecn: Ecn,
    /// The number of further routers that may forward the packet: the time to live.
    pub hop_limit: u8,
}

impl Header {
    /// Bytes of a header without options. All emitted headers have this length.
    pub const LEN: usize = 20;

    /// Reads a header and checks its checksum. Options are skipped, except source routes, which are refused: an
    /// attacker could use them to pose as another host (RFC 7126, 4.3 and 4.4; Linux refuses them by default).
    ///
    /// # Errors
    ///
    /// If the packet is cut off, its header contradicts itself or has a wrong checksum or a source route, or it is a fragment.
    #[inline]
    pub fn parse(packet: &[u8]) -> Result<(Self, &[u8]), Malformed> {
        let fields = packet.first_chunk::<{ Self::LEN }>().ok_or(Malformed::Header)?;
        let total_len = usize::from(be16(fields[2], fields[3]));
        let (header, header_len) = Self::read(fields).ok_or(Malformed::Header)?;
        let packet = packet.get(..total_len).ok_or(Malformed::Header)?;
        let (head, payload) = packet.split_at_checked(header_len).ok_or(Malformed::Header)?;
        if !Sum::of(head).is_right() {
            return Err(Malformed::Checksum);
        }
        if header_len > Self::LEN && has_source_route(&head[Self::LEN..]) {
            return Err(Malformed::Header);
        }
        // The offset, and the flag of more fragments.
        if be16(fields[6], fields[7]) & 0x3fff != 0 {
            return Err(Malformed::Fragment);
        }
        Ok((header, payload))
    }

    /// Reads the header of a packet that an ICMP message quotes: the payload may be cut off, and routers have
    /// changed the header without checking it (RFC 792).
    ///
    /// # Errors
    ///
    /// If the header is cut off, contradicts itself, or belongs to a fragment after the first one.
    pub fn parse_quoted(packet: &[u8]) -> Result<(Self, &[u8]), Malformed> {
        let fields = packet.first_chunk::<{ Self::LEN }>().ok_or(Malformed::Header)?;
        let (header, header_len) = Self::read(fields).ok_or(Malformed::Header)?;
        if be16(fields[6], fields[7]) & 0x1fff != 0 {
            return Err(Malformed::Fragment);
        }
        let payload = packet.get(header_len..).ok_or(Malformed::Header)?;
        Ok((header, payload))
    }

    /// The header of these bytes and its length with options.
    #[inline]
    fn read(fields: &[u8; Self::LEN]) -> Option<(Self, usize)> {
        let header_len = usize::from(fields[0] & 0x0f) * 4;
        if fields[0] >> 4 != 4 || header_len < Self::LEN {
            return None;
        }
        let &[.., s0, s1, s2, s3, d0, d1, d2, d3] = fields;
        let header = Self {
            source: Ipv4Addr::new(s0, s1, s2, s3),
            destination: Ipv4Addr::new(d0, d1, d2, d3),
            protocol: Protocol(fields[9]),
            ecn: Ecn::from_bits(fields[1]),
            hop_limit: fields[8],
        };
        Some((header, header_len))
    }

    /// Writes the header of a packet with a payload of `payload_bytes`, at most 65,515. Routers must not fragment
    /// the packet, so its identification is 0 (RFC 6864, 4.1).
    #[inline]
    pub fn emit(&self, payload_bytes: u16, into: &mut [u8; Self::LEN]) {
        #[expect(clippy::cast_possible_truncation, reason = "20")]
        let total_len = payload_bytes + Self::LEN as u16;
        let [source, destination] = [self.source.to_bits(), self.destination.to_bits()];
        let first = 0x4500_0000 | u32::from(self.ecn as u8) << 16 | u32::from(total_len);
        let limit = u32::from(self.hop_limit) << 24 | u32::from(self.protocol.0) << 16;
        // The sum is computed from the values. To read back bytes that were just written in pieces would be slower.
        let halves = |word: u32| (word >> 16) + (word & 0xffff);
        let sum = [first, DONT_FRAGMENT, limit, source, destination].map(halves).iter().sum();
        // Ten halves need one more carry at most.
        let checksum = !halves(halves(sum)) & 0xffff;
        for (to, word) in into.as_chunks_mut::<4>().0.iter_mut().zip([
            first,
            DONT_FRAGMENT,
            limit | checksum,
            source,
            destination,
        ]) {
            *to = word.to_be_bytes();
        }
    }
}

/// The second word of a header: identification 0, the flag, and offset 0.
const DONT_FRAGMENT: u32 = 0x4000;

/// True if the options contain a source route.
fn has_source_route(mut options: &[u8]) -> bool {
    const END: u8 = 0;
    const NOTHING: u8 = 1;
    const LOOSE: u8 = 131;
    const STRICT: u8 = 137;
    loop {
        match *options {
            [LOOSE | STRICT, ..] => return true,
            [NOTHING, ref rest @ ..] => options = rest,
            [] | [END, ..] | [_] => return false,
            [_, len, ..] => match options.get(usize::from(len)..) {
                Some(rest) if len > 1 => options = rest,
                _ => return false,
            },
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
            source: Ipv4Addr::new(192, 0, 2, 1),
            destination: Ipv4Addr::new(198, 51, 100, 2),
            protocol: Protocol::TCP,
            ecn: Ecn::Ect0,
            hop_limit: 64,
        }
    }

    fn packet(header: &Header, payload: &[u8]) -> Vec<u8> {
        let mut head = [0; Header::LEN];
        header.emit(u16::try_from(payload.len()).unwrap(), &mut head);
        [&head, payload].concat()
    }

    /// Changes bytes of a header and makes its checksum right again.
    fn patched(mut packet: Vec<u8>, at: usize, bytes: &[u8]) -> Vec<u8> {
        packet[at..at + bytes.len()].copy_from_slice(bytes);
        packet[10..12].fill(0);
        let len = usize::from(packet[0] & 0xf) * 4;
        let checksum = Sum::of(&packet[..len.min(packet.len())]).checksum();
        packet[10..12].copy_from_slice(&checksum.to_be_bytes());
        packet
    }

    #[test]
    fn padding_behind_the_packet_is_no_payload() {
        let mut bytes = packet(&header(), b"four");
        bytes.extend_from_slice(&[0; 22]);
        assert_eq!(Header::parse(&bytes), Ok((header(), &b"four"[..])));
    }

    #[test]
    fn options_are_skipped() {
        let bytes = patched(packet(&header(), b"\x01\x01\x01\x00four"), 0, &[0x46]);
        assert_eq!(Header::parse(&bytes), Ok((header(), &b"four"[..])));
    }

    #[test]
    fn source_routes_are_refused() {
        for (options, is_refused) in [
            (b"\x83\x07\x04\x0a\x00\x00\x01\x00", true),
            (b"\x89\x07\x04\x0a\x00\x00\x01\x00", true),
            (b"\x01\x83\x07\x04\x0a\x00\x00\x01", true),
            // After the end; the data of another option, a record of the route; and options that contradict themselves.
            (b"\x00\x83\x07\x04\x0a\x00\x00\x01", false),
            (b"\x07\x07\x04\x83\x07\x04\x00\x00", false),
            (b"\x07\x00\x83\x07\x04\x0a\x00\x00", false),
            (b"\x07\xff\x83\x07\x04\x0a\x00\x00", false),
        ] {
            let content = [&options[..], b"four"].concat();
            let bytes = patched(packet(&header(), &content), 0, &[0x47]);
            assert_eq!(Header::parse(&bytes).is_err(), is_refused, "{options:?}");
        }
    }

    #[test]
    fn lengths_that_contradict_are_refused() {
        let good = packet(&header(), b"payload");
        for (at, bytes) in [
            (0, &[0x44][..]), // a header of 16 bytes
            (0, &[0x55]),     // version 5
            (0, &[0x4f]),     // a header longer than the packet
            (2, &[0, 19]),    // a packet shorter than its header
            (2, &[0, 28]),    // a packet longer than the frame
        ] {
            let bad = patched(good.clone(), at, bytes);
            assert_eq!(Header::parse(&bad), Err(Malformed::Header), "{at} {bytes:?}");
        }
    }

    #[test]
    fn fragments_are_refused() {
        let good = packet(&header(), b"payload");
        for flags in [[0x20, 0], [0, 1], [0x1f, 0xff]] {
            let fragment = patched(good.clone(), 6, &flags);
            assert_eq!(Header::parse(&fragment), Err(Malformed::Fragment));
        }
        for flags in [[0x40, 0], [0, 0]] {
            assert!(Header::parse(&patched(good.clone(), 6, &flags)).is_ok());
        }
    }

    #[test]
    fn a_quoted_packet_may_be_cut_off_and_its_checksum_wrong() {
        let mut bytes = packet(&header(), &[7; 100]);
        bytes[8] -= 1;
        let (quoted, payload) = Header::parse_quoted(&bytes[..28]).unwrap();
        assert_eq!(quoted, Header { hop_limit: 63, ..header() });
        assert_eq!(payload, [7; 8]);
        bytes[7] = 1;
        assert_eq!(Header::parse_quoted(&bytes[..28]), Err(Malformed::Fragment));
    }

    proptest! {
        #[test]
        fn what_is_emitted_is_parsed(
            source: [u8; 4], destination: [u8; 4], protocol: u8, ecn in 0..4_u8, hop_limit: u8,
            payload in prop::collection::vec(any::<u8>(), 0..100),
        ) {
            let header = Header {
                source: source.into(), destination: destination.into(),
                protocol: Protocol(protocol), ecn: Ecn::from_bits(ecn), hop_limit,
            };
            let bytes = packet(&header, &payload);
            prop_assert_eq!(Header::parse(&bytes), Ok((header, &payload[..])));
        }

        #[test]
        fn a_flipped_bit_of_the_header_is_noticed(at in 0..20_usize, flip in 0..8_u32) {
            let mut bytes = packet(&header(), b"payload");
            bytes[at] ^= 1 << flip;
            prop_assert!(Header::parse(&bytes).is_err());
        }

        #[test]
        fn no_bytes_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..80), looks_right: bool) {
            if looks_right && bytes.len() >= 20 {
                let (version, flags) = (0x40 | bytes[0] & 0xf, bytes[6] & 1);
                bytes = patched(bytes, 0, &[version]);
                bytes = patched(bytes, 6, &[flags]);
            }
            let _ = Header::parse(&bytes);
            let _ = Header::parse_quoted(&bytes);
        }
    }
}
