//! A packet of either version of IP.

use core::net::{IpAddr, Ipv4Addr};

use crate::wire::checksum::Sum;
use crate::wire::{Ecn, EtherType, Malformed, Protocol, ipv4, ipv6};

/// The facts about the checksum of TCP or UDP in a received frame that its interface knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReceivedChecksum {
    /// Nothing is known: the stack computes the checksum.
    #[default]
    Unverified,
    /// The frame may come from this machine, and its checksum field may hold only the sum of the pseudo
    /// header, not inverted (Linux: `CHECKSUM_PARTIAL`). The stack accepts that value, too.
    MayBePartial,
    /// The checksum is right, or the frame never was on a wire. The field may hold anything.
    Verified,
}

/// A packet, without the differences between the versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Packet<'a> {
    pub(crate) source: IpAddr,
    pub(crate) destination: IpAddr,
    pub(crate) protocol: Protocol,
    pub(crate) ecn: Ecn,
    pub(crate) hop_limit: u8,
    pub(crate) payload: &'a [u8],
}

impl<'a> Packet<'a> {
    /// Reads the packet that a frame carries; `None` if it carries something else.
    #[inline]
    pub(crate) fn parse(ethertype: EtherType, bytes: &'a [u8]) -> Result<Option<Self>, Malformed> {
        Ok(match ethertype {
            EtherType::IPV4 => Some(Self::from_v4(ipv4::Header::parse(bytes)?)),
            EtherType::IPV6 => Some(Self::from_v6(ipv6::Header::parse(bytes)?)),
            _ => None,
        })
    }

    /// Reads the quoted packet of this version in an ICMP message. The quoted packet may be cut off.
    pub(crate) fn parse_quoted(is_v4: bool, bytes: &'a [u8]) -> Result<Self, Malformed> {
        Ok(if is_v4 {
            Self::from_v4(ipv4::Header::parse_quoted(bytes)?)
        } else {
            Self::from_v6(ipv6::Header::parse_quoted(bytes)?)
        })
    }

    fn from_v4((header, payload): (ipv4::Header, &'a [u8])) -> Self {
        Self {
            source: header.source.into(),
            destination: header.destination.into(),
            protocol: header.protocol,
            ecn: header.ecn,
            hop_limit: header.hop_limit,
            payload,
        }
    }

    fn from_v6((header, payload): (ipv6::Header, &'a [u8])) -> Self {
        Self {
            source: header.source.into(),
            destination: header.destination.into(),
            protocol: header.protocol,
            ecn: header.ecn,
            hop_limit: header.hop_limit,
            payload,
        }
    }

    /// True if the source can be the address of a single host (RFC 1122, 3.2.1.3; RFC 4291, 2.7), and is not the
    /// receiver's.
    pub(crate) fn has_valid_source(&self) -> bool {
        can_be_sender(self.source, self.destination)
    }

    /// The sum of the pseudo header for `bytes` bytes of payload.
    #[inline]
    pub(crate) fn pseudo_header(&self, bytes: usize) -> Sum {
        #[expect(clippy::cast_possible_truncation, reason = "a payload has at most 65,535 bytes")]
        Sum::pseudo_header(self.source, self.destination, self.protocol, bytes as u32)
    }

    /// True if the checksum over these bytes of the payload is right. `field` is the content of the checksum field.
    #[inline]
    pub(crate) fn is_right(&self, bytes: &[u8], field: u16, known: ReceivedChecksum) -> bool {
        if known == ReceivedChecksum::Verified {
            return true;
        }
        let mut sum = self.pseudo_header(bytes.len());
        // This check is first because it adds up no bytes, and all frames on a virtual cable pass it.
        if known == ReceivedChecksum::MayBePartial && field == sum.partial() {
            return true;
        }
        sum.add(bytes);
        sum.is_right()
    }
}

/// [`Packet::has_valid_source`], of the packet's addresses.
#[inline]
pub(crate) fn can_be_sender(source: IpAddr, destination: IpAddr) -> bool {
    let is_host = match source {
        IpAddr::V4(source) => {
            // Class E and the limited broadcast begin with 240 and more.
            let [first, ..] = source.octets();
            first != 0 && first != Ipv4Addr::LOCALHOST.octets()[0] && first < 224
        }
        IpAddr::V6(source) => {
            !source.is_multicast() && !source.is_unspecified() && !source.is_loopback()
        }
    };
    is_host && source != destination
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(source: &str, destination: &str) -> Packet<'static> {
        Packet {
            source: source.parse().unwrap(),
            destination: destination.parse().unwrap(),
            protocol: Protocol::TCP,
            ecn: Ecn::NotEct,
            hop_limit: 64,
            payload: &[],
        }
    }

    #[test]
    fn packets_that_no_host_can_have_sent_are_known() {
        for (source, is_valid) in [
            ("192.0.2.1", true),
            ("198.51.100.1", false), // the receiver
            ("0.0.0.0", false),
            ("127.0.0.1", false),
            ("224.0.0.1", false),
            ("255.255.255.255", false),
        ] {
            assert_eq!(packet(source, "198.51.100.1").has_valid_source(), is_valid, "{source}");
        }
        for (source, is_valid) in [
            ("fe80::1", true),
            ("2001:db8::1", true),
            ("2001:db8::2", false), // the receiver
            ("::", false),
            ("::1", false),
            ("ff02::1", false),
        ] {
            assert_eq!(packet(source, "2001:db8::2").has_valid_source(), is_valid, "{source}");
        }
    }

    #[test]
    fn a_partial_checksum_is_right_only_where_it_may_be() {
        let packet = packet("192.0.2.1", "192.0.2.2");
        let mut bytes = *b"segment.";
        bytes[6..].fill(0);
        let pseudo = packet.pseudo_header(bytes.len());
        let mut sum = pseudo;
        sum.add(&bytes);
        for (field, right) in [
            (sum.checksum(), [true, true, true]),
            (pseudo.partial(), [false, true, true]),
            (pseudo.checksum(), [false, false, true]),
        ] {
            bytes[6..].copy_from_slice(&field.to_be_bytes());
            let known = [
                ReceivedChecksum::Unverified,
                ReceivedChecksum::MayBePartial,
                ReceivedChecksum::Verified,
            ];
            assert_eq!(known.map(|known| packet.is_right(&bytes, field, known)), right);
        }
    }
}
