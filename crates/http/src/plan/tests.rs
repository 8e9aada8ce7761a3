//! Plans, and the bytes of multipart bodies.

use alloc::format;
use alloc::string::String;
use alloc::vec;

use proptest::prelude::*;

use super::*;
use crate::head::tests::head_of;

const NOW: i64 = 1_700_000_000;

fn representation(size: u64) -> Representation<'static> {
    Representation {
        size,
        validators: Validators { etag: b"\"x\"", last_modified: Some(NOW - 60), strong_date: true },
    }
}

fn plan_of(method: &str, fields: &str, size: u64) -> Plan {
    plan(&head_of(method, fields), &representation(size), NOW)
}

#[track_caller]
fn multipart(value: &str, size: u64) -> Multipart {
    match plan_of("GET", &format!("Range: {value}\r\n"), size) {
        Plan::Multipart(multipart) => multipart,
        other => panic!("{value}: {other:?}"),
    }
}

/// The whole body, with the content taken from `file`.
fn body(wrapping: &Wrapping<'_>, file: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    for Part { head, range } in wrapping.parts() {
        body.extend_from_slice(&head);
        let index = |offset: u64| usize::try_from(offset).expect("small");
        body.extend_from_slice(&file[index(range.start)..index(range.end)]);
    }
    body.extend_from_slice(&wrapping.end());
    body
}

#[test]
fn every_plan_is_made() {
    assert_eq!(plan_of("GET", "", 10), Plan::Full);
    assert_eq!(plan_of("GET", "If-None-Match: \"x\"\r\n", 10), Plan::NotModified);
    assert_eq!(plan_of("GET", "If-Match: \"y\"\r\n", 10), Plan::PreconditionFailed);
    assert_eq!(
        plan_of("GET", "Range: bytes=2-3\r\n", 10),
        Plan::Partial(Range { start: 2, end: 4 })
    );
    assert_eq!(plan_of("GET", "Range: bytes=10-\r\n", 10), Plan::Unsatisfiable);
    assert_eq!(plan_of("GET", "Range: bytes=5-4\r\n", 10), Plan::Full);
    assert!(matches!(plan_of("GET", "Range: bytes=0-1,-1\r\n", 1000), Plan::Multipart(_)));
}

#[test]
fn head_is_planned_as_get_without_range() {
    assert_eq!(plan_of("HEAD", "", 10), Plan::Full);
    assert_eq!(plan_of("HEAD", "Range: bytes=2-3\r\n", 10), Plan::Full);
    assert_eq!(plan_of("HEAD", "Range: bytes=10-\r\n", 10), Plan::Full);
    assert_eq!(plan_of("HEAD", "If-None-Match: \"x\"\r\n", 10), Plan::NotModified);
}

#[test]
fn rfc9110_15_3_7_2_ranges_that_become_one_are_no_multipart() {
    assert_eq!(
        plan_of("GET", "Range: bytes=0-1,2-3\r\n", 10),
        Plan::Partial(Range { start: 0, end: 4 })
    );
    assert_eq!(
        plan_of("GET", "Range: bytes=0-1,50-\r\n", 10),
        Plan::Partial(Range { start: 0, end: 2 })
    );
}

#[test]
fn no_length_overflows() {
    let most = multipart("bytes=0-99,200-", MULTIPART_SIZE_MAX);
    assert!(most.wrapping(b"text/plain", 0).content_length() > MULTIPART_SIZE_MAX);
    assert_eq!(plan_of("GET", "Range: bytes=0-0,-1\r\n", MULTIPART_SIZE_MAX + 1), Plan::Full);
}

#[test]
fn a_multipart_body_to_the_byte() {
    let multipart = multipart("bytes=0-2,-3", 200);
    let wrapping = multipart.wrapping(b"text/plain", 0x0123_4567_89ab_cdef);
    let mut file = vec![b'.'; 200];
    file[..3].copy_from_slice(b"abc");
    file[197..].copy_from_slice(b"xyz");
    let expected = "--0123456789abcdef\r\n\
        Content-Type: text/plain\r\n\
        Content-Range: bytes 0-2/200\r\n\
        \r\n\
        abc\r\n\
        --0123456789abcdef\r\n\
        Content-Type: text/plain\r\n\
        Content-Range: bytes 197-199/200\r\n\
        \r\n\
        xyz\r\n\
        --0123456789abcdef--\r\n";
    assert_eq!(String::from_utf8(body(&wrapping, &file)).as_deref(), Ok(expected));
    assert_eq!(wrapping.content_length(), expected.len() as u64);
    assert_eq!(wrapping.content_type(), b"multipart/byteranges; boundary=0123456789abcdef");
}

#[test]
fn without_a_type_the_parts_have_none() {
    let multipart = multipart("bytes=0-2,-3", 200);
    let wrapping = multipart.wrapping(b"", 7);
    let body = body(&wrapping, &[b'.'; 200]);
    assert!(body.starts_with(b"--0000000000000007\r\nContent-Range: bytes 0-2/200\r\n\r\n..."));
    assert_eq!(wrapping.content_length(), body.len() as u64);
}

#[test]
fn rfc9110_14_4_content_ranges() {
    let text = |range: ContentRange| {
        let mut out = Vec::new();
        range.write_to(&mut out);
        String::from_utf8(out)
    };
    let part = ContentRange::Part { range: Range { start: 42, end: 1234 }, size: 1234 };
    assert_eq!(text(part).as_deref(), Ok("bytes 42-1233/1234"));
    assert_eq!(text(ContentRange::Unsatisfied { size: 0 }).as_deref(), Ok("bytes */0"));
}

proptest! {
    #[test]
    fn the_length_announced_is_the_length_sent(
        specs in proptest::collection::vec((0..20_000u64, 0..200u64), 2..20),
        size in 1..20_000u64,
        part_type in "[a-z/]{0,12}",
        token: u64,
    ) {
        let specs: Vec<String> =
            specs.iter().map(|(first, more)| format!("{first}-{}", first + more)).collect();
        let fields = format!("Range: bytes={}\r\n", specs.join(","));
        if let Plan::Multipart(multipart) = plan_of("GET", &fields, size) {
            let wrapping = multipart.wrapping(part_type.as_bytes(), token);
            let file = vec![b'.'; usize::try_from(size).expect("small")];
            let body = body(&wrapping, &file);
            prop_assert_eq!(wrapping.content_length(), body.len() as u64);
            prop_assert_eq!(wrapping.parts().count(), multipart.ranges().len());
        }
    }
}
