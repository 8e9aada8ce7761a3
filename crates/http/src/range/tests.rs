//! Ranges against their grammar and against a bitmap.

use alloc::format;
use alloc::string::String;
use alloc::vec;

use proptest::prelude::*;

use super::*;

/// The ranges as `start..end` pairs.
#[track_caller]
fn satisfied(value: &str, size: u64) -> Vec<(u64, u64)> {
    match parse(value.as_bytes(), size) {
        RangeSet::Satisfiable(ranges) => {
            ranges.as_slice().iter().map(|r| (r.start, r.end)).collect()
        }
        other => panic!("{value:?}: {other:?}"),
    }
}

#[test]
fn rfc9110_14_1_2_examples_of_a_representation_of_10000_bytes() {
    for (value, expected) in [
        ("bytes=0-499", &[(0, 500)][..]),
        ("bytes=500-999", &[(500, 1000)]),
        ("bytes=-500", &[(9500, 10_000)]),
        ("bytes=9500-", &[(9500, 10_000)]),
        ("bytes=0-0,-1", &[(0, 1), (9999, 10_000)]),
        ("bytes= 0-999, 4500-5499, -1000", &[(0, 1000), (4500, 5500), (9000, 10_000)]),
        ("bytes=500-600,601-999", &[(500, 1000)]),
        ("bytes=500-700,601-999", &[(500, 1000)]),
    ] {
        assert_eq!(satisfied(value, 10_000), expected, "{value}");
    }
}

#[test]
fn rfc9110_14_1_1_ranges_are_cut_to_the_representation() {
    for (value, expected) in [
        ("bytes=0-", (0, 10)),
        ("bytes=0-10", (0, 10)),
        ("bytes=0-99999999999999999999999", (0, 10)),
        ("bytes=9-18446744073709551615", (9, 10)),
        ("bytes=-10", (0, 10)),
        ("bytes=-11", (0, 10)),
        ("bytes=-99999999999999999999999", (0, 10)),
        ("BYTES=3-4", (3, 5)),
        ("bytes=,, 3-4\t,", (3, 5)),
        ("bytes=00003-04", (3, 5)),
        ("bytes=3-4,10-", (3, 5)),
        ("bytes=10-20,3-4,-0", (3, 5)),
    ] {
        assert_eq!(satisfied(value, 10), [expected], "{value}");
    }
    assert_eq!(satisfied("bytes=0-", u64::MAX), [(0, u64::MAX)]);
}

#[test]
fn rfc9110_15_5_17_ranges_beyond_the_end_are_unsatisfiable() {
    for value in [
        "bytes=10-",
        "bytes=10-10",
        "bytes=10-20,30-",
        "bytes=-0",
        "bytes=99999999999999999999999-",
        "bytes=10-,-0",
    ] {
        assert_eq!(parse(value.as_bytes(), 10), RangeSet::Unsatisfiable, "{value}");
    }
    assert_eq!(parse(b"bytes=18446744073709551615-", u64::MAX), RangeSet::Unsatisfiable);
}

#[test]
fn rfc9110_14_2_what_is_not_understood_is_ignored() {
    for value in [
        "",
        "bytes",
        "bytes=",
        "bytes=,",
        "bytes=-",
        "bytes=a",
        "bytes=1",
        "bytes=a-",
        "bytes=-a",
        "bytes=1-a",
        "bytes=2-1",
        "bytes=1-2-3",
        "bytes=--1",
        "bytes=+1-2",
        "bytes=1 - 2",
        "bytes=1-2;",
        "bytes=1-2 3-4",
        "bytes =1-2",
        "bytes: 1-2",
        "items=1-2",
        "bytes=0-1,x",
        "bytes=0-1,5-4",
        "bytes=0x1-0x2",
        "byte=0-1",
        " bytes=0-1",
    ] {
        assert_eq!(parse(value.as_bytes(), 10), RangeSet::Ignore, "{value:?}");
    }
}

#[test]
fn an_empty_representation_has_no_ranges() {
    for value in ["bytes=0-", "bytes=-1", "bytes=0-0", "bytes=-0", "bytes=5-"] {
        assert_eq!(parse(value.as_bytes(), 0), RangeSet::Ignore, "{value}");
    }
}

#[test]
fn rfc9110_17_15_long_lists_are_ignored() {
    let list = |count: u64| {
        let specs: Vec<String> = (0..count).map(|i| format!("{0}-{0}", i * 1000)).collect();
        format!("bytes={}", specs.join(","))
    };
    let most = RANGES_MAX as u64;
    assert_eq!(satisfied(&list(most), 1_000_000).len(), RANGES_MAX);
    assert_eq!(parse(list(most + 1).as_bytes(), 1_000_000), RangeSet::Ignore);
    // Too many ranges are ignored even if they would join to one range, or to none.
    let same = format!("bytes={}", vec!["0-"; RANGES_MAX + 1].join(","));
    assert_eq!(parse(same.as_bytes(), 1_000_000), RangeSet::Ignore);
    assert_eq!(parse_up_to(b"bytes=0-1,500-501", 1000, 1), RangeSet::Ignore);
    assert!(matches!(parse_up_to(b"bytes=0-1,500-", 1000, 2), RangeSet::Satisfiable(_)));
    assert_eq!(parse_up_to(b"bytes=0-1", 1000, 0), RangeSet::Ignore);
}

#[test]
fn rfc9110_15_3_7_2_near_ranges_are_joined_and_the_others_keep_their_order() {
    let gap = GAP_BYTES_MAX;
    assert_eq!(satisfied(&format!("bytes=0-9,{}-", 10 + gap), 1000), [(0, 1000)]);
    assert_eq!(satisfied(&format!("bytes=0-9,{}-", 11 + gap), 1000), [(0, 10), (11 + gap, 1000)]);
    assert_eq!(satisfied("bytes=800-899,0-9,300-399", 1000), [(800, 900), (0, 10), (300, 400)]);
    // The third joins the first and replaces it.
    assert_eq!(satisfied("bytes=800-899,0-9,900-999", 1000), [(800, 1000), (0, 10)]);
    // The last bridges all.
    assert_eq!(satisfied("bytes=800-899,0-9,300-399,10-799", 1000), [(0, 900)]);
    // Growing by one neighbour brings it near another.
    assert_eq!(
        satisfied("bytes=0-9,500-599,200-410,85-110", 1000),
        [(0, 111), (500, 600), (200, 411)]
    );
    assert_eq!(satisfied("bytes=0-9,500-599,200-420,85-120", 1000), [(0, 600)]);
}

#[test]
fn ranges_are_shown_as_in_fields() {
    assert_eq!(format!("{}", Range { start: 5, end: 10 }), "5-9");
}

/// Specs, whose meaning a bitmap judges.
fn spec() -> impl Strategy<Value = (Option<u64>, Option<u64>)> {
    prop_oneof![
        (0..2000u64, 0..500u64).prop_map(|(first, more)| (Some(first), Some(first + more))),
        (0..2000u64).prop_map(|first| (Some(first), None)),
        (0..2000u64).prop_map(|suffix| (None, Some(suffix))),
    ]
}

proptest! {
    #[test]
    fn coalescing_agrees_with_a_bitmap(
        size in 1..1500usize,
        specs in proptest::collection::vec(spec(), 1..12),
    ) {
        let text: Vec<String> = specs
            .iter()
            .map(|(first, last)| {
                let show = |n: &Option<u64>| n.map_or(String::new(), |n| format!("{n}"));
                format!("{}-{}", show(first), show(last))
            })
            .collect();
        let value = format!("bytes={}", text.join(","));

        let mut wanted = vec![false; size];
        for (first, last) in &specs {
            for (at, is_wanted) in wanted.iter_mut().enumerate() {
                let at = at as u64;
                *is_wanted |= match (first, last) {
                    (Some(first), last) => at >= *first && last.is_none_or(|last| at <= last),
                    (None, suffix) => at + suffix.unwrap_or(0) >= size as u64,
                };
            }
        }
        // Unwanted bytes between wanted ones are sent where they are few.
        let gap_max = usize::try_from(GAP_BYTES_MAX).expect("small");
        let mut sent = wanted.clone();
        let places: Vec<usize> = (0..size).filter(|&at| wanted[at]).collect();
        for pair in places.windows(2) {
            if pair[1] - pair[0] - 1 <= gap_max {
                sent[pair[0]..pair[1]].fill(true);
            }
        }

        match parse(value.as_bytes(), size as u64) {
            RangeSet::Ignore => prop_assert!(false, "{} is well-formed", value),
            RangeSet::Unsatisfiable => prop_assert!(!wanted.contains(&true)),
            RangeSet::Satisfiable(ranges) => {
                let mut covered = vec![false; size];
                for range in ranges.as_slice() {
                    prop_assert!(range.start < range.end);
                    for at in range.start..range.end {
                        let at = usize::try_from(at).expect("small");
                        prop_assert!(!covered[at], "sent twice");
                        covered[at] = true;
                    }
                }
                prop_assert_eq!(&covered, &sent);
                prop_assert!(ranges.total() <= size as u64);
                prop_assert_eq!(ranges.single().is_some(), ranges.as_slice().len() == 1);
            }
        }
    }

    #[test]
    fn any_value_keeps_the_invariants(value in "bytes=[0-9,\\- ]{0,60}", size: u64) {
        if let RangeSet::Satisfiable(ranges) = parse(value.as_bytes(), size) {
            let list = ranges.as_slice();
            prop_assert!(!list.is_empty() && list.len() <= RANGES_MAX);
            prop_assert!(list.iter().all(|range| range.start < range.end && range.end <= size));
            prop_assert!(ranges.total() <= size);
            for (place, range) in list.iter().enumerate() {
                prop_assert!(list[..place].iter().all(|other| !other.is_near(range)));
            }
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic(value: Vec<u8>, size: u64) {
        let _ = parse(&value, size);
    }
}
