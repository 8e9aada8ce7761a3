//! Ethernet with at most one tag of a virtual LAN (IEEE 802.3, 802.1Q).

use core::fmt;

use super::{Malformed, be16};

/// A MAC address.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Mac(pub [u8; 6]);

impl Mac {
    /// All stations of the link.
    pub const BROADCAST: Self = Self([0xff; 6]);

    /// True for the address of a group of stations, also for the broadcast address.
    #[must_use]
    pub const fn is_multicast(self) -> bool {
        self.0[0] & 1 == 1
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The protocol that a frame carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EtherType(pub u16);

impl EtherType {
    /// IPv4.
    pub const IPV4: Self = Self(0x0800);
    /// The address resolution protocol.
    pub const ARP: Self = Self(0x0806);
    /// IPv6.
    pub const IPV6: Self = Self(0x86dd);
    /// A tag of a virtual LAN. A frame whose header carries this has a second tag.
    pub const VLAN: Self = Self(0x8100);
}

/// The header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The station that receives the frame.
    pub destination: Mac,
    /// The station that sent the frame.
    pub source: Mac,
    /// The virtual LAN, 1 to 4,095. A tag with the number 0 carries only a priority, so it counts
    /// as none.
    pub vlan: Option<u16>,
    /// The protocol of the payload.
    pub ethertype: EtherType,
}

impl Header {
    /// Bytes without a tag.
    pub const LEN: usize = 14;
    /// Bytes with a tag.
    pub const LEN_MAX: usize = 18;

    /// Reads a header. Padding may follow the payload. Only the length in the payload's own header
    /// shows where the padding begins.
    ///
    /// # Errors
    ///
    /// If the header is cut off.
    #[inline]
    pub fn parse(frame: &[u8]) -> Result<(Self, &[u8]), Malformed> {
        let (&[d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5, t0, t1], mut payload) =
            frame.split_first_chunk().ok_or(Malformed::Header)?;
        let mut header = Self {
            destination: Mac([d0, d1, d2, d3, d4, d5]),
            source: Mac([s0, s1, s2, s3, s4, s5]),
            vlan: None,
            ethertype: EtherType(be16(t0, t1)),
        };
        if header.ethertype == EtherType::VLAN {
            let (&[v0, v1, t0, t1], rest) = payload.split_first_chunk().ok_or(Malformed::Header)?;
            let number = be16(v0, v1) & 0x0fff;
            header.vlan = (number != 0).then_some(number);
            header.ethertype = EtherType(be16(t0, t1));
            payload = rest;
        }
        Ok((header, payload))
    }

    /// The length of the header when it is emitted.
    #[must_use]
    pub const fn emitted_len(&self) -> usize {
        if self.vlan.is_some() { Self::LEN_MAX } else { Self::LEN }
    }

    /// Writes the header and returns its length. Nothing after it is written.
    #[inline]
    pub fn emit(&self, into: &mut [u8; Self::LEN_MAX]) -> usize {
        into[0..6].copy_from_slice(&self.destination.0);
        into[6..12].copy_from_slice(&self.source.0);
        let ethertype = self.ethertype.0.to_be_bytes();
        if let Some(number) = self.vlan {
            into[12..14].copy_from_slice(&EtherType::VLAN.0.to_be_bytes());
            into[14..16].copy_from_slice(&number.to_be_bytes());
            into[16..18].copy_from_slice(&ethertype);
            Self::LEN_MAX
        } else {
            into[12..14].copy_from_slice(&ethertype);
            Self::LEN
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FRAME: [u8; 18] =
        [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x81, 0x00, 0xe0, 0x05, 0x08, 0x00];

    #[test]
    fn a_tag_is_kept_without_its_priority() {
        let (header, payload) = Header::parse(&FRAME).unwrap();
        assert_eq!((header.vlan, header.ethertype), (Some(5), EtherType::IPV4));
        assert!(payload.is_empty());
    }

    #[test]
    fn a_priority_tag_is_no_virtual_lan() {
        let mut frame = FRAME;
        frame[15] = 0;
        let (header, _) = Header::parse(&frame).unwrap();
        assert_eq!((header.vlan, header.ethertype), (None, EtherType::IPV4));
    }

    #[test]
    fn a_second_tag_is_left_as_what_the_frame_carries() {
        let mut frame = FRAME;
        frame[16..].copy_from_slice(&[0x81, 0x00]);
        assert_eq!(Header::parse(&frame).unwrap().0.ethertype, EtherType::VLAN);
    }

    #[test]
    fn a_header_that_is_cut_off_is_refused() {
        for len in 0..FRAME.len() {
            assert_eq!(Header::parse(&FRAME[..len]), Err(Malformed::Header), "{len}");
        }
    }

    proptest! {
        #[test]
        fn what_is_emitted_is_parsed(
            destination: [u8; 6], source: [u8; 6], vlan in prop::option::of(1..4_096_u16),
            ethertype in any::<u16>().prop_filter("a tag", |n| *n != EtherType::VLAN.0),
        ) {
            let header = Header {
                destination: Mac(destination), source: Mac(source), vlan,
                ethertype: EtherType(ethertype),
            };
            let mut bytes = [0xaa; Header::LEN_MAX];
            let len = header.emit(&mut bytes);
            let (parsed, payload) = Header::parse(&bytes[..len]).unwrap();
            prop_assert_eq!(parsed, header);
            prop_assert!(payload.is_empty());
        }

        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            let _ = Header::parse(&bytes);
        }
    }
}
