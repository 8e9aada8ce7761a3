//! The header of UDP (RFC 768).

use super::{Malformed, be16};

/// The header of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The sender's port.
    pub source: u16,
    /// The receiver's port.
    pub destination: u16,
    /// The checksum; 0 means none, which only IPv4 allows.
    pub checksum: u16,
}

impl Header {
    /// Bytes of a header.
    pub const LEN: usize = 8;

    /// Reads a header. The length field gives the end of the payload; bytes of the packet after it are ignored.
    /// The checksum covers the header, the payload and the pseudo header.
    ///
    /// # Errors
    ///
    /// If the header is cut off, or the length field is less than the header's length or more than the packet's.
    #[inline]
    pub fn parse(packet: &[u8]) -> Result<(Self, &[u8]), Malformed> {
        let &[s0, s1, d0, d1, l0, l1, c0, c1] = packet.first_chunk().ok_or(Malformed::Header)?;
        let payload = packet.get(Self::LEN..usize::from(be16(l0, l1))).ok_or(Malformed::Header)?;
        let header =
            Self { source: be16(s0, s1), destination: be16(d0, d1), checksum: be16(c0, c1) };
        Ok((header, payload))
    }

    /// Writes the header of a datagram with a payload of `payload_bytes`, at most 65,527.
    #[inline]
    pub fn emit(&self, payload_bytes: u16, into: &mut [u8; Self::LEN]) {
        #[expect(clippy::cast_possible_truncation, reason = "8")]
        let len = payload_bytes + Self::LEN as u16;
        into[0..2].copy_from_slice(&self.source.to_be_bytes());
        into[2..4].copy_from_slice(&self.destination.to_be_bytes());
        into[4..6].copy_from_slice(&len.to_be_bytes());
        into[6..8].copy_from_slice(&self.checksum.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lengths_that_contradict_are_refused() {
        let datagram = |len: u8| [0, 53, 1, 0, 0, len, 0, 0, 1, 2, 3];
        let payload = |len: u8| Header::parse(&datagram(len)).map(|(_, payload)| payload.len());
        assert_eq!([payload(8), payload(10), payload(11)], [Ok(0), Ok(2), Ok(3)]);
        assert_eq!([payload(0), payload(7), payload(12)], [Err(Malformed::Header); 3]);
        for len in 0..8 {
            assert_eq!(Header::parse(&datagram(8)[..len]), Err(Malformed::Header), "{len}");
        }
    }

    proptest! {
        #[test]
        fn what_is_emitted_is_parsed(
            source: u16, destination: u16, checksum: u16,
            payload in prop::collection::vec(any::<u8>(), 0..50), padding in 0..4_usize,
        ) {
            let header = Header { source, destination, checksum };
            let mut head = [0xaa; Header::LEN];
            header.emit(u16::try_from(payload.len()).unwrap(), &mut head);
            let mut bytes = [&head[..], &payload].concat();
            bytes.resize(bytes.len() + padding, 0xaa);
            prop_assert_eq!(Header::parse(&bytes), Ok((header, &payload[..])));
        }

        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            let _ = Header::parse(&bytes);
        }
    }
}
