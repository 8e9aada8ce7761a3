//! ICMP of IPv6 (RFC 4443), as far as a server needs it.

use super::Malformed;

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
        /// The reason.
        code: u8,
    },
    /// A packet was longer than the next link allows. The payload quotes its beginning.
    PacketTooBig {
        /// The MTU of the next link.
        mtu: u32,
    },
    /// A packet could not be processed. The payload quotes its beginning.
    ParameterProblem {
        /// The kind of the problem.
        code: u8,
        /// The offset in the packet of the field that was not understood, in bytes.
        pointer: u32,
    },
    /// Any other message. [`super::ndp`] reads the messages of neighbour discovery.
    Other {
        /// The type of the message.
        kind: u8,
        /// The code of the message.
        code: u8,
    },
}

/// The code of [`Header::Unreachable`] for a port that is not served.
pub const PORT: u8 = 4;

const UNREACHABLE: u8 = 1;
const PACKET_TOO_BIG: u8 = 2;
const PARAMETER_PROBLEM: u8 = 4;
const ECHO_REQUEST: u8 = 128;
const ECHO_REPLY: u8 = 129;

impl Header {
    /// Bytes of a header.
    pub const LEN: usize = 8;

    /// Reads a header. Its checksum covers the whole message and the pseudo header.
    ///
    /// # Errors
    ///
    /// If the header is cut off.
    pub fn parse(message: &[u8]) -> Result<(Self, &[u8]), Malformed> {
        let (&[kind, code, _, _, ref rest @ ..], payload) =
            message.split_first_chunk::<{ Self::LEN }>().ok_or(Malformed::Header)?;
        let header = match (kind, code) {
            (ECHO_REQUEST, 0) => Self::EchoRequest(*rest),
            (ECHO_REPLY, 0) => Self::EchoReply(*rest),
            (UNREACHABLE, code) => Self::Unreachable { code },
            // The receiver has to ignore the code (RFC 4443, 3.2).
            (PACKET_TOO_BIG, _) => Self::PacketTooBig { mtu: u32::from_be_bytes(*rest) },
            (PARAMETER_PROBLEM, code) => {
                Self::ParameterProblem { code, pointer: u32::from_be_bytes(*rest) }
            }
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
            Self::PacketTooBig { mtu } => (PACKET_TOO_BIG, 0, mtu.to_be_bytes()),
            Self::ParameterProblem { code, pointer } => {
                (PARAMETER_PROBLEM, code, pointer.to_be_bytes())
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
        assert_eq!(Header::parse(&[128, 0, 0, 0, 0, 0, 0]), Err(Malformed::Header));
    }

    proptest! {
        #[test]
        fn what_is_emitted_is_parsed(which in 0..6_u8, rest: [u8; 4], mtu: u32, code: u8) {
            let header = match which {
                0 => Header::EchoRequest(rest),
                1 => Header::EchoReply(rest),
                2 => Header::Unreachable { code },
                3 => Header::PacketTooBig { mtu },
                4 => Header::ParameterProblem { code, pointer: mtu },
                // An echo reply with a code is not valid.
                _ => Header::Other { kind: 129 + code % 9, code: code.max(1) },
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
