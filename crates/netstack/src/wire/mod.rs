//! The headers of frames: bytes to values and back.
//!
//! All headers have the same interface: `Header::parse(bytes)` returns the header and what it carries,
//! `Header::emit` writes the header. Length fields are obeyed, so padding after a packet is never part of its
//! payload. Nothing here allocates or panics on what a peer sends. Parsing and emitting are inverse; fields that a
//! header does not keep (urgent pointers, IP options, the DSCP) are skipped by `parse` and zero after `emit`.

pub mod arp;
pub mod checksum;
pub mod ethernet;
pub mod icmpv4;
pub mod icmpv6;
pub mod ipv4;
pub mod ipv6;
pub mod ndp;
pub mod tcp;
pub mod udp;

pub use ethernet::{EtherType, Mac};

/// The reason why a header was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// The header is cut off, or contradicts itself.
    Header,
    /// A checksum is wrong.
    Checksum,
    /// The header belongs to a fragment. The stack does not reassemble fragments.
    Fragment,
    /// The packet has an IPv6 extension header or option that is not skipped, or too many of them.
    Extension,
}

/// The protocol that IP carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Protocol(pub u8);

impl Protocol {
    /// ICMP of IPv4.
    pub const ICMP: Self = Self(1);
    /// TCP.
    pub const TCP: Self = Self(6);
    /// UDP.
    pub const UDP: Self = Self(17);
    /// ICMP of IPv6.
    pub const ICMPV6: Self = Self(58);
    /// No next header (RFC 8200, 4.7).
    pub const NONE: Self = Self(59);
}

/// The mark of explicit congestion notification in an IP header (RFC 3168, 5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Ecn {
    /// The transport does not understand marks.
    #[default]
    NotEct = 0b00,
    /// The transport understands marks: ECT(1).
    Ect1 = 0b01,
    /// The transport understands marks: ECT(0).
    Ect0 = 0b10,
    /// A router on the path was congested.
    Ce = 0b11,
}

impl Ecn {
    /// The mark in the lowest two bits of a byte; the others are ignored.
    #[must_use]
    pub const fn from_bits(bits: u8) -> Self {
        match bits & 0b11 {
            0b00 => Self::NotEct,
            0b01 => Self::Ect1,
            0b10 => Self::Ect0,
            _ => Self::Ce,
        }
    }
}

/// Two bytes in network order.
const fn be16(a: u8, b: u8) -> u16 {
    u16::from_be_bytes([a, b])
}
