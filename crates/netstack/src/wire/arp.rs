//! Address resolution for IPv4 over Ethernet (RFC 826).

use core::net::Ipv4Addr;

use super::{EtherType, Mac, Malformed, be16};

/// A message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The kind of the message: request or reply.
    pub operation: Operation,
    /// The sender's MAC address.
    pub sender_mac: Mac,
    /// The sender's IP address.
    pub sender: Ipv4Addr,
    /// The target's MAC address; it has no meaning in a request.
    pub target_mac: Mac,
    /// The target's IP address.
    pub target: Ipv4Addr,
}

/// The kind of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Operation {
    /// Asks for the station with the target's address.
    Request = 1,
    /// The sender has its address.
    Reply = 2,
}

/// The types and lengths of both kinds of addresses: Ethernet and IPv4.
const ADDRESSES: [u8; 6] = [0, 1, EtherType::IPV4.0.to_be_bytes()[0], 0, 6, 4];

impl Header {
    /// Bytes of a message.
    pub const LEN: usize = 28;

    /// Reads a message. Only padding follows it.
    ///
    /// # Errors
    ///
    /// If the message is cut off, is for other kinds of addresses, or is neither a request nor a
    /// reply.
    pub fn parse(packet: &[u8]) -> Result<(Self, &[u8]), Malformed> {
        let (fields, rest) =
            packet.split_first_chunk::<{ Self::LEN }>().ok_or(Malformed::Header)?;
        let (kinds, fields) = fields.split_at(6);
        let &[
            o0,
            o1,
            a0,
            a1,
            a2,
            a3,
            a4,
            a5,
            s0,
            s1,
            s2,
            s3,
            b0,
            b1,
            b2,
            b3,
            b4,
            b5,
            t0,
            t1,
            t2,
            t3,
        ] = fields
        else {
            return Err(Malformed::Header);
        };
        let operation = match be16(o0, o1) {
            1 => Operation::Request,
            2 => Operation::Reply,
            _ => return Err(Malformed::Header),
        };
        if kinds != ADDRESSES {
            return Err(Malformed::Header);
        }
        let header = Self {
            operation,
            sender_mac: Mac([a0, a1, a2, a3, a4, a5]),
            sender: Ipv4Addr::new(s0, s1, s2, s3),
            target_mac: Mac([b0, b1, b2, b3, b4, b5]),
            target: Ipv4Addr::new(t0, t1, t2, t3),
        };
        Ok((header, rest))
    }

    /// Writes the message.
    pub fn emit(&self, into: &mut [u8; Self::LEN]) {
        into[0..6].copy_from_slice(&ADDRESSES);
        into[6..8].copy_from_slice(&[0, self.operation as u8]);
        into[8..14].copy_from_slice(&self.sender_mac.0);
        into[14..18].copy_from_slice(&self.sender.octets());
        into[18..24].copy_from_slice(&self.target_mac.0);
        into[24..28].copy_from_slice(&self.target.octets());
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_request_is_laid_out_as_the_rfc_says() {
        let mut bytes = [0; Header::LEN];
        let header = Header {
            operation: Operation::Request,
            sender_mac: Mac([2, 0, 0, 0, 0, 1]),
            sender: Ipv4Addr::new(10, 0, 0, 1),
            target_mac: Mac([0; 6]),
            target: Ipv4Addr::new(10, 0, 0, 2),
        };
        header.emit(&mut bytes);
        assert_eq!(bytes[..8], [0, 1, 8, 0, 6, 4, 0, 1]);
        for (at, value) in [(1, 6), (2, 0x86), (4, 8), (5, 16), (7, 3), (6, 1)] {
            let mut other = bytes;
            other[at] = value;
            assert_eq!(Header::parse(&other), Err(Malformed::Header), "{at}");
        }
        for len in 0..bytes.len() {
            assert_eq!(Header::parse(&bytes[..len]), Err(Malformed::Header), "{len}");
        }
    }

    proptest! {
        #[test]
        fn what_is_emitted_is_parsed(
            is_request: bool, sender_mac: [u8; 6], sender: [u8; 4], target_mac: [u8; 6],
            target: [u8; 4],
        ) {
            let header = Header {
                operation: if is_request { Operation::Request } else { Operation::Reply },
                sender_mac: Mac(sender_mac), sender: sender.into(),
                target_mac: Mac(target_mac), target: target.into(),
            };
            let mut bytes = [0xaa; Header::LEN + 18];
            header.emit(bytes.first_chunk_mut().unwrap());
            prop_assert_eq!(Header::parse(&bytes), Ok((header, &[0xaa; 18][..])));
        }
    }
}
