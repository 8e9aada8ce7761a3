//! Neighbour discovery of IPv6 (RFC 4861): solicitations and advertisements of neighbours.

use core::net::Ipv6Addr;

use super::{Mac, Malformed};

/// A message, with the header of ICMP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Header {
    /// Asks for the station with the address (4.3).
    Solicitation {
        /// The requested address.
        target: Ipv6Addr,
        /// The sender's MAC address. A sender that still checks its own IP address leaves it out.
        source_mac: Option<Mac>,
    },
    /// A station has the address (4.4).
    Advertisement {
        /// The address.
        target: Ipv6Addr,
        /// The station's MAC address.
        target_mac: Option<Mac>,
        /// True if the message answers a solicitation of its receiver.
        is_solicited: bool,
        /// True if the receiver has to overwrite a known MAC address.
        overrides: bool,
        /// True if the station is a router.
        is_router: bool,
    },
}

const SOLICITATION: u8 = 135;
const ADVERTISEMENT: u8 = 136;

const SOURCE_MAC: u8 = 1;
const TARGET_MAC: u8 = 2;

const ROUTER: u8 = 0x80;
const SOLICITED: u8 = 0x40;
const OVERRIDE: u8 = 0x20;

impl Header {
    /// Bytes of a message without options.
    pub const LEN: usize = 24;
    /// Bytes of a message with a MAC address.
    pub const LEN_MAX: usize = 32;
    /// The hop limit of all messages. A message that a router forwarded has a lower hop limit, and has to be
    /// dropped (7.1).
    pub const HOP_LIMIT: u8 = 255;

    /// True if an ICMP message is one of neighbour discovery.
    #[must_use]
    pub const fn is_one(message: &[u8]) -> bool {
        matches!(message, [SOLICITATION | ADVERTISEMENT, ..])
    }

    /// Reads a message with its options, which fill the rest. Its checksum covers the whole message and the pseudo
    /// header.
    ///
    /// # Errors
    ///
    /// If the message is cut off, has another type, or has to be dropped silently (7.1.1, 7.1.2).
    pub fn parse(message: &[u8]) -> Result<(Self, &[u8]), Malformed> {
        let (&[kind, code, _, _, flags, _, _, _, ref target @ ..], options) =
            message.split_first_chunk::<{ Self::LEN }>().ok_or(Malformed::Header)?;
        let target = Ipv6Addr::from(*target);
        if code != 0 || target.is_multicast() {
            return Err(Malformed::Header);
        }
        let header = match kind {
            SOLICITATION => Self::Solicitation { target, source_mac: mac_of(options, SOURCE_MAC)? },
            ADVERTISEMENT => Self::Advertisement {
                target,
                target_mac: mac_of(options, TARGET_MAC)?,
                is_solicited: flags & SOLICITED != 0,
                overrides: flags & OVERRIDE != 0,
                is_router: flags & ROUTER != 0,
            },
            _ => return Err(Malformed::Header),
        };
        Ok((header, &[]))
    }

    /// Writes the message and returns its length. The checksum is left zero.
    pub fn emit(&self, into: &mut [u8; Self::LEN_MAX]) -> usize {
        let (kind, flags, target, option, mac) = match *self {
            Self::Solicitation { target, source_mac } => {
                (SOLICITATION, 0, target, SOURCE_MAC, source_mac)
            }
            Self::Advertisement { target, target_mac, is_solicited, overrides, is_router } => {
                let flag = |is_set: bool, bit| if is_set { bit } else { 0 };
                let flags = flag(is_solicited, SOLICITED)
                    | flag(overrides, OVERRIDE)
                    | flag(is_router, ROUTER);
                (ADVERTISEMENT, flags, target, TARGET_MAC, target_mac)
            }
        };
        into[0..8].copy_from_slice(&[kind, 0, 0, 0, flags, 0, 0, 0]);
        into[8..24].copy_from_slice(&target.octets());
        let Some(mac) = mac else { return Self::LEN };
        into[24..26].copy_from_slice(&[option, 1]);
        into[26..32].copy_from_slice(&mac.0);
        Self::LEN_MAX
    }
}

/// The MAC address in the option of type `wanted`. All options are read, because an option of length 0 makes the
/// message invalid.
fn mac_of(mut options: &[u8], wanted: u8) -> Result<Option<Mac>, Malformed> {
    let mut found = None;
    while let &[kind, len, ..] = options {
        // In units of 8 bytes (4.6).
        let len = usize::from(len) * 8;
        let (option, rest) = options.split_at_checked(len).ok_or(Malformed::Header)?;
        match *option {
            [] => return Err(Malformed::Header),
            [_, _, a, b, c, d, e, f] if kind == wanted => found = Some(Mac([a, b, c, d, e, f])),
            _ => {}
        }
        options = rest;
    }
    if options.is_empty() { Ok(found) } else { Err(Malformed::Header) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MAC: Mac = Mac([2, 0, 0, 0, 0, 1]);

    fn solicitation() -> [u8; 32] {
        let mut bytes = [0; Header::LEN_MAX];
        let target = "fe80::1".parse().unwrap();
        Header::Solicitation { target, source_mac: Some(MAC) }.emit(&mut bytes);
        bytes
    }

    fn source_mac(message: &[u8]) -> Result<Option<Mac>, Malformed> {
        match Header::parse(message)?.0 {
            Header::Solicitation { source_mac, .. } => Ok(source_mac),
            Header::Advertisement { .. } => panic!("an advertisement"),
        }
    }

    #[test]
    fn other_options_are_skipped() {
        let bytes = solicitation();
        let nonce = [14, 1, 1, 2, 3, 4, 5, 6];
        let message = [&bytes[..24], &nonce, &bytes[24..], &nonce].concat();
        assert_eq!(source_mac(&message), Ok(Some(MAC)));
        assert_eq!(source_mac(&bytes[..24]), Ok(None));
    }

    #[test]
    fn rfc4861_7_1_1_invalid_solicitations_are_refused() {
        let bytes = solicitation();
        for len in (0..24).chain(25..32) {
            assert_eq!(Header::parse(&bytes[..len]), Err(Malformed::Header), "{len}");
        }
        // Another type, a code, a multicast target, an option of length 0.
        for (at, value) in [(0, 133), (1, 1), (8, 0xff), (25, 0)] {
            let mut other = bytes;
            other[at] = value;
            assert_eq!(Header::parse(&other), Err(Malformed::Header), "{at}");
        }
    }

    proptest! {
        #[test]
        fn what_is_emitted_is_parsed(
            target in any::<[u8; 16]>().prop_filter("multicast", |target| target[0] != 0xff),
            mac in prop::option::of(any::<[u8; 6]>()),
            flags in prop::option::of(any::<(bool, bool, bool)>()),
        ) {
            let (target, mac) = (target.into(), mac.map(Mac));
            let header = match flags {
                None => Header::Solicitation { target, source_mac: mac },
                Some((is_solicited, overrides, is_router)) => Header::Advertisement {
                    target, target_mac: mac, is_solicited, overrides, is_router,
                },
            };
            let mut bytes = [0xaa; Header::LEN_MAX];
            let len = header.emit(&mut bytes);
            prop_assert!(Header::is_one(&bytes));
            prop_assert_eq!(Header::parse(&bytes[..len]), Ok((header, &[][..])));
        }

        #[test]
        fn no_bytes_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..80), is_one: bool) {
            if is_one && bytes.len() > 2 {
                bytes[..2].copy_from_slice(&[SOLICITATION, 0]);
            }
            let _ = Header::parse(&bytes);
        }
    }
}
