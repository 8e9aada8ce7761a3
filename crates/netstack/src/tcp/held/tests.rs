//! Ranges against a model: one cell for each byte.

use proptest::prelude::*;
use std::vec::Vec;

use super::*;

const BEGIN: SeqNumber = SeqNumber(u32::MAX - 100);

impl Held {
    /// Panics unless what the comments of the fields say is true.
    pub(in super::super) fn check(&self, rcv_nxt: SeqNumber) {
        assert!(self.ranges.len() <= RANGES_MAX);
        let mut end = rcv_nxt;
        for range in &self.ranges {
            assert!(range.from.is_after(end), "a range touches what is in front of it");
            assert!(!range.bytes.is_empty());
            end = range.end();
        }
    }
}

fn byte(at: usize) -> u8 {
    u8::try_from(at % 251).unwrap()
}

proptest! {
    #[test]
    fn held_bytes_are_those_that_came(
        arrivals in prop::collection::vec((0_usize..300, 1_usize..40), 1..60)
    ) {
        let mut held = Held::default();
        let mut came = [false; 400];
        let mut next = 0_usize;
        let mut read = Vec::new();
        for (from, len) in arrivals {
            let bytes: Vec<u8> = (from..from + len).map(byte).collect();
            let end = from + len;
            if end <= next {
                continue;
            }
            let seq = |at: usize| BEGIN + u32::try_from(at).unwrap();
            if from <= next {
                held.push_unread(&bytes[next - from..]);
                came[from..end].fill(true);
                next = came.iter().position(|came| !came).unwrap();
                prop_assert_eq!(held.join(seq(end)), seq(next));
            } else {
                let full = !held.has_room();
                if held.insert(seq(from), &bytes) {
                    came[from..end].fill(true);
                } else {
                    prop_assert!(full);
                }
            }
            held.check(seq(next));
            read.extend(held.take_unread());
            prop_assert_eq!(read.len(), next);
            // The first block is the range that the last segment is in (RFC 2018, 4).
            held.forget_duplicate();
            if from > next && came[from] {
                let (left, right) = held.blocks()[0];
                prop_assert!(!left.is_after(seq(from)) && !right.is_before(seq(end)));
            }
            let behind = came[next..].iter().filter(|came| **came).count();
            prop_assert_eq!(held.bytes(), behind + held.ranges.len() * RANGE_COST);
        }
        prop_assert!(read.iter().enumerate().all(|(at, is)| *is == byte(at)));
    }
}

#[test]
fn rfc2018_4_blocks_are_the_latest_ones_first() {
    let mut held = Held::default();
    let seq = |at: u32| BEGIN + at;
    for at in [10, 30, 50, 70, 90, 110] {
        assert!(held.insert(seq(at), b"x"));
    }
    assert!(held.insert(seq(31), b"y"));
    let blocks: Vec<u32> = held.blocks().iter().map(|(left, _)| *left - BEGIN).collect();
    assert_eq!(blocks, [30, 110, 90, 70]);
}

#[test]
fn rfc2883_4_a_duplicate_is_the_first_block() {
    let mut held = Held::default();
    let seq = |at: u32| BEGIN + at;
    held.insert(seq(10), b"0123456789");
    held.insert(seq(12), b"234");
    assert_eq!(held.blocks()[..], [(seq(12), seq(15)), (seq(10), seq(20))]);
    held.forget_duplicate();
    assert_eq!(held.blocks()[..], [(seq(10), seq(20))]);
}

#[test]
fn there_are_at_most_so_many_ranges() {
    let mut held = Held::default();
    for n in 0..u32::try_from(SMALL_RANGES_MAX).unwrap() {
        assert!(held.insert(BEGIN + 10 + n * 2, b"x"));
    }
    assert!(!held.insert(BEGIN + 1000, b"x"));
    assert!(held.insert(BEGIN + 11, b"x"), "it closes a gap");
    assert!(held.insert(BEGIN + 1000, b"x"));
}

#[test]
fn there_are_more_ranges_if_they_are_large() {
    let mut held = Held::default();
    let (segment, max) = ([0; RANGE_BYTES_MIN], u32::try_from(RANGES_MAX).unwrap());
    for n in 0..max {
        assert!(held.insert(BEGIN + 10 + n * 2 * len(&segment), &segment), "{n}");
    }
    assert!(!held.insert(BEGIN + 10 + max * 2 * len(&segment), &segment));
    assert_eq!(held.bytes(), RANGES_MAX * (RANGE_COST + RANGE_BYTES_MIN));
}
