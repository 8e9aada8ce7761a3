//! Arbitrary values of `Range`, and the multipart bodies that come of them. Checked: nothing beyond
//! the representation is sent, nothing twice, every byte that was asked for, and exactly as much as
//! was announced.

#![no_main]

use http::range::{GAP_BYTES_MAX, RANGES_MAX, parse};
use http::{Field, FieldIndex, Head, Method, Plan, RangeSet, Representation, Target, Validators};
use http::{Version, plan};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u64, u64, &[u8])| {
    let (size, token, value) = input;
    let RangeSet::Satisfiable(ranges) = parse(value, size) else {
        return;
    };
    let mut sorted = ranges.as_slice().to_vec();
    assert!(!sorted.is_empty() && sorted.len() <= RANGES_MAX);
    sorted.sort_by_key(|range| range.start);
    assert!(sorted.iter().all(|range| range.start < range.end && range.end <= size));
    assert!(sorted.windows(2).all(|pair| pair[1].start - pair[0].end > GAP_BYTES_MAX));
    assert!(ranges.total() <= size);

    // The ends of what is sent are ends of what was asked for, so that joining invents nothing.
    let specs = &value[b"bytes=".len()..];
    for spec in specs.split(|&byte| byte == b',') {
        let spec = str::from_utf8(spec).expect("digits").trim_matches([' ', '\t']);
        let Some((first, last)) = spec.split_once('-') else {
            continue;
        };
        let Ok(first) = first.parse::<u64>() else {
            continue;
        };
        let last = last.parse::<u64>().unwrap_or(u64::MAX);
        let sent = |at| sorted.iter().any(|range| range.start <= at && at < range.end);
        assert!(first >= size || (sent(first) && sent(last.min(size - 1))));
    }

    let mut index = FieldIndex::EMPTY;
    index.add(Field::Range, 0..value.len());
    let target = Target::Origin { path: b"/", query: None };
    let head = Head::new(Method::Get, target, Version::Http11, None, value, index);
    check_plan(&head, size, token, ranges.as_slice().len());
});

fn check_plan(head: &Head<'_>, size: u64, token: u64, ranges: usize) {
    let validators = Validators { etag: b"\"x\"", last_modified: Some(0), strong_date: true };
    match plan(head, &Representation { size, validators }, 10) {
        Plan::Partial(range) => assert!(range.start < range.end && range.end <= size),
        Plan::Multipart(multipart) => {
            assert!(multipart.ranges().len() > 1);
            let wrapping = multipart.wrapping(b"text/plain", token);
            let end = wrapping.end().len() as u64;
            let sent: u64 =
                wrapping.parts().map(|part| part.head.len() as u64 + part.range.len()).sum();
            assert_eq!(wrapping.content_length(), sent + end);
        }
        Plan::Full => assert!(ranges > 1 && size > i64::MAX as u64),
        other => panic!("a satisfiable range came to {other:?}"),
    }
}
