//! The checksum of the Internet (RFC 1071).
//!
//! Words are added in the machine's byte order, many bytes at a time, and the carries are folded at the end:
//! byte order changes only the byte order of a one's complement sum, not its value (RFC 1071, 2).

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::Protocol;

/// A sum of bytes, added in pieces of any length.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sum {
    /// The sum in the machine's byte order, not folded.
    words: u64,
    /// True if the number of bytes so far is odd, so the next byte is the second byte of its word.
    is_odd: bool,
}

impl Sum {
    /// The sum of these bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self { words: sum_words(bytes), is_odd: bytes.len() % 2 == 1 }
    }

    /// The sum of the pseudo header of a packet with `bytes` bytes of `protocol` (RFC 9293, 3.1; RFC 8200, 8.1).
    /// The sum has no meaning for addresses of two versions.
    #[must_use]
    pub fn pseudo_header(
        source: IpAddr,
        destination: IpAddr,
        protocol: Protocol,
        bytes: u32,
    ) -> Self {
        match (source, destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                Self::pseudo_header_v4(source, destination, protocol, bytes)
            }
            (source, destination) => {
                let v6 = |addr| match addr {
                    IpAddr::V4(addr) => Ipv4Addr::to_ipv6_mapped(&addr),
                    IpAddr::V6(addr) => addr,
                };
                Self::pseudo_header_v6(v6(source), v6(destination), protocol, bytes)
            }
        }
    }

    /// [`Sum::pseudo_header`] of IPv4.
    #[must_use]
    pub fn pseudo_header_v4(
        source: Ipv4Addr,
        destination: Ipv4Addr,
        protocol: Protocol,
        bytes: u32,
    ) -> Self {
        let addresses = u64::from(u32::from_ne_bytes(source.octets()))
            + u64::from(u32::from_ne_bytes(destination.octets()));
        Self { words: addresses + protocol_and_length(protocol, bytes), is_odd: false }
    }

    /// [`Sum::pseudo_header`] of IPv6.
    #[must_use]
    pub fn pseudo_header_v6(
        source: Ipv6Addr,
        destination: Ipv6Addr,
        protocol: Protocol,
        bytes: u32,
    ) -> Self {
        let words = sum_words(&source.octets())
            + sum_words(&destination.octets())
            + protocol_and_length(protocol, bytes);
        Self { words, is_odd: false }
    }

    /// Adds the bytes that follow.
    pub fn add(&mut self, bytes: &[u8]) {
        let mut words = sum_words(bytes);
        if self.is_odd {
            // After an odd number of bytes, each byte has the other position in its word.
            words = u64::from(fold(words).swap_bytes());
        }
        self.words = add_with_carry(self.words, words);
        self.is_odd ^= bytes.len() % 2 == 1;
    }

    /// The sum, folded to 16 bits and not inverted: the content of a checksum field that the interface has to
    /// complete.
    #[must_use]
    pub fn partial(self) -> u16 {
        u16::from_be(fold(self.words))
    }

    /// The checksum: the inverted sum.
    #[must_use]
    pub fn checksum(self) -> u16 {
        !self.partial()
    }

    /// True if the summed bytes contain their right checksum.
    #[must_use]
    pub fn is_right(self) -> bool {
        self.partial() == 0xffff
    }
}

/// The words of a pseudo header that follow the addresses.
fn protocol_and_length(protocol: Protocol, bytes: u32) -> u64 {
    u64::from(bytes.to_be()) + u64::from(u32::from(protocol.0).to_be())
}

fn add_with_carry(a: u64, b: u64) -> u64 {
    let (sum, carry) = a.overflowing_add(b);
    // A sum that overflowed is at most 2⁶⁴ - 2, so that the carry fits.
    sum + u64::from(carry)
}

/// A sum of 16 bits, in the machine's byte order. If a number is added to itself with exchanged halves, its upper
/// half is the sum of both halves, with the carry of the lower half.
fn fold(words: u64) -> u16 {
    let [_, folded] = split(words.wrapping_add(words.rotate_left(32)));
    (folded.wrapping_add(folded.rotate_left(16)) >> 16) as u16
}

/// The lower and the upper half.
fn split(words: u64) -> [u32; 2] {
    #[expect(clippy::cast_possible_truncation, reason = "the halves are wanted")]
    let halves = [words as u32, (words >> 32) as u32];
    halves
}

/// The sum of the bytes as 32-bit words. Folded, it has the same value as the sum of 16-bit words. A zero follows
/// an odd byte at the end. The sum is less than 2⁶² for bytes that fit into memory.
#[inline]
fn sum_words(bytes: &[u8]) -> u64 {
    let (blocks, rest) = bytes.as_chunks::<BLOCK>();
    let (words, rest) = rest.as_chunks::<4>();
    let mut last = [0; 4];
    for (to, from) in last.iter_mut().zip(rest) {
        *to = *from;
    }
    let short = words.iter().map(word).sum::<u64>() + word(&last);
    if blocks.is_empty() { short } else { sum_blocks(blocks) + short }
}

/// The number of bytes that are added at a time.
const BLOCK: usize = 32;

fn sum_blocks(blocks: &[[u8; BLOCK]]) -> u64 {
    // One sum for each word of a block: the compiler adds them with vector instructions.
    let mut sums = [0_u64; BLOCK / 4];
    for block in blocks {
        let (words, _) = block.as_chunks::<4>();
        for (sum, bytes) in sums.iter_mut().zip(words) {
            // The sum cannot wrap; a check would prevent vector instructions.
            *sum = sum.wrapping_add(word(bytes));
        }
    }
    sums.iter().sum()
}

#[inline]
fn word(bytes: &[u8; 4]) -> u64 {
    u32::from_ne_bytes(*bytes).into()
}

#[cfg(test)]
mod tests;
