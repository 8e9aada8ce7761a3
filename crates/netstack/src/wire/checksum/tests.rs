use std::vec::Vec;

use proptest::prelude::*;

use super::*;

/// The definition, two bytes at a time.
fn by_definition(bytes: &[u8]) -> u16 {
    let mut sum = 0_u32;
    for word in bytes.chunks(2) {
        sum += u32::from(word[0]) << 8 | u32::from(*word.get(1).unwrap_or(&0));
        sum = (sum >> 16) + (sum & 0xffff);
    }
    !u16::try_from(sum).unwrap()
}

#[test]
fn the_example_of_rfc1071_3() {
    let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
    assert_eq!(Sum::of(&bytes).partial(), 0xddf2);
    assert_eq!(Sum::of(&bytes).checksum(), 0x220d);
}

#[test]
fn carries_of_long_sums_are_kept() {
    let bytes = [0xff; 65_535];
    assert_eq!(Sum::of(&bytes).checksum(), by_definition(&bytes));
    let mut sum = Sum { words: u64::MAX, is_odd: true };
    sum.add(&bytes[1..]);
    assert_eq!(sum.partial(), 0xffff);
}

#[test]
fn a_pseudo_header_is_that_of_the_rfcs() {
    let (a, b) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(192, 168, 255, 254));
    let sum = Sum::pseudo_header(a.into(), b.into(), Protocol::TCP, 0x1234);
    let bytes = [10, 0, 0, 1, 192, 168, 255, 254, 0, 6, 0x12, 0x34];
    assert_eq!(sum.checksum(), by_definition(&bytes));

    let (a, b) = (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1), Ipv6Addr::LOCALHOST);
    let sum = Sum::pseudo_header(a.into(), b.into(), Protocol::UDP, 0x0102_0304);
    let mut bytes = Vec::from(a.octets());
    bytes.extend_from_slice(&b.octets());
    bytes.extend_from_slice(&[1, 2, 3, 4, 0, 0, 0, 17]);
    assert_eq!(sum.checksum(), by_definition(&bytes));
}

proptest! {
    #[test]
    fn a_sum_of_pieces_is_that_of_the_whole(
        pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..100), 0..8),
    ) {
        let mut sum = Sum::default();
        for piece in &pieces {
            sum.add(piece);
        }
        let whole = pieces.concat();
        prop_assert_eq!(sum.checksum(), by_definition(&whole));
        prop_assert_eq!(Sum::of(&whole).checksum(), by_definition(&whole));
    }

    #[test]
    fn bytes_with_their_checksum_are_right_and_others_are_not(
        mut bytes in prop::collection::vec(any::<u8>(), 2..300),
        at in any::<prop::sample::Index>(),
        flip in 0..8_u32,
    ) {
        bytes[..2].fill(0);
        let checksum = Sum::of(&bytes).checksum();
        bytes[..2].copy_from_slice(&checksum.to_be_bytes());
        prop_assert!(Sum::of(&bytes).is_right());
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << flip;
        prop_assert!(!Sum::of(&bytes).is_right());
    }
}
