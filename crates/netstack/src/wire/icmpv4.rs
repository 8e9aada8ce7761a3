//! ICMP of IPv4 (RFC 792), as far as a server needs it.

use super::{Malformed, be16};

/// The header of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Header {
    /// The receiver has to send the payload back. The identifier and the sequence number are four bytes that only
    /// the sender understands.
    EchoRequest([u8; 4]),
    /// The reply to an echo request.
    EchoReply([u8; 4]),
    /// A packet could not be delivered. The payload quotes its beginning.
    Unreachable {
        /// The reason, except 4.
        code: u8,
    },
    /// A packet was longer than the next link allows. The payload quotes its beginning.
    FragmentationNeeded {
        /// The MTU of the next link; 0 if the router is older than RFC 1191.
        mtu: u16,
    },
    /// Any other message.
    Other {
        /// The type of the message.
        kind: u8,
        /// The code of the message.
        code: u8,
    },
}

/// The code of [`Header::Unreachable`] for a port that is not served.
pub const PORT: u8 = 3;

const ECHO_REPLY: u8 = 0;
const UNREACHABLE: u8 = 3;
const ECHO_REQUEST: u8 = 8;
const FRAGMENTATION_NEEDED: u8 = 4;

impl Header {
    /// Bytes of a header.
    pub const LEN: usize = 8;

    /// Reads a header. Its checksum covers the whole message.
    ///
    /// # Errors
    ///
    /// If the header is cut off.
    pub fn parse(message: &[u8]) -> Result<(Self, &[u8]), Malformed> {
        let (&[kind, code, _, _, r0, r1, r2, r3], payload) =
            message.split_first_chunk().ok_or(Malformed::Header)?;
        let header = match (kind, code) {
            (ECHO_REQUEST, 0) => Self::EchoRequest([r0, r1, r2, r3]),
            (ECHO_REPLY, 0) => Self::EchoReply([r0, r1, r2, r3]),
            (UNREACHABLE, FRAGMENTATION_NEEDED) => Self::FragmentationNeeded { mtu: be16(r2, r3) },
            (UNREACHABLE, code) => Self::Unreachable { code },
            (kind, code) => Self::Other { kind, code },
        };
        Ok((header, payload))
    }

    /// Writes the header. The checksum is left zero.
    pub fn emit(&self, into: &mut [u8; Self::LEN]) {
        let (kind, code, rest) = match *self {
            Self::EchoRequest(rest) => (ECHO_REQUEST, 0, rest),
            Self::EchoReply(rest) => (ECHO_REPLY, 0, rest),
            Self::Unreachable { code } => (UNREACHABLE, code, [0; 4]),
            Self::FragmentationNeeded { mtu } => {
                let [a, b] = mtu.to_be_bytes();
                (UNREACHABLE, FRAGMENTATION_NEEDED, [0, 0, a, b])
            }
            Self::Other { kind, code } => (kind, code, [0; 4]),
        };
        into[0..4].copy_from_slice(&[kind, code, 0, 0]);
        into[4..8].copy_from_slice(&rest);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_header_that_is_cut_off_is_refused() {
        assert_eq!(Header::parse(&[8, 0, 0, 0, 0, 0, 0]), Err(Malformed::Header));
    }

    proptest! {
        #[test]
        fn what_is_emitted_is_parsed(which in 0..5_u8, rest: [u8; 4], mtu: u16, code in 5..16_u8) {
            let header = match which {
                0 => Header::EchoRequest(rest),
                1 => Header::EchoReply(rest),
                2 => Header::Unreachable { code },
                3 => Header::FragmentationNeeded { mtu },
                // An echo reply with a code is not valid.
                _ => Header::Other { kind: mtu.to_be_bytes()[0] & 1, code },
            };
            let mut bytes = [0xaa; Header::LEN];
            header.emit(&mut bytes);
            let message = [&bytes[..], b"data"].concat();
            prop_assert_eq!(Header::parse(&message), Ok((header, &b"data"[..])));
        }

        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..16)) {
            let _ = Header::parse(&bytes);
        }
    }
}
