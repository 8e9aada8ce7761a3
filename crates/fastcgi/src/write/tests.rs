//! Requests, as a plain reader understands them.

use alloc::vec;

use proptest::prelude::*;

use super::*;
use crate::testing::{Record, records};

const ID: RequestId = RequestId::FIRST;

/// The name-value pairs of a stream (§3.4).
fn pairs(mut stream: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
    fn length(stream: &mut &[u8]) -> usize {
        let (len, rest) = match **stream {
            [first @ 0..0x80, ref rest @ ..] => (first.into(), rest),
            [a, b, c, d, ref rest @ ..] => (u32::from_be_bytes([a & 0x7f, b, c, d]), rest),
            _ => panic!("a length that is cut"),
        };
        *stream = rest;
        len.try_into().expect("32 bits")
    }
    let mut found = Vec::new();
    while !stream.is_empty() {
        let (name, value) = (length(&mut stream), length(&mut stream));
        found.push((stream[..name].to_vec(), stream[name..name + value].to_vec()));
        stream = &stream[name + value..];
    }
    found
}

/// Reads records of one type, the last of which is empty, and returns their content.
fn stream(bytes: &[u8], kind: u8) -> Vec<u8> {
    let records: Vec<Record<'_>> = records(bytes).collect();
    let (last, others) = records.split_last().expect("there is one");
    assert!(last.content.is_empty(), "a stream without an end");
    for record in &records {
        assert_eq!((record.kind, record.id), (kind, 1));
    }
    for (at, record) in others.iter().enumerate() {
        assert!(!record.content.is_empty(), "an end within a stream");
        let is_full = record.content.len() == CONTENT_BYTES_MAX;
        assert!(is_full || at + 1 == others.len(), "a record that could have been longer");
    }
    others.iter().flat_map(|record| record.content.iter().copied()).collect()
}

#[test]
fn fcgi_5_1_a_request_begins_with_role_and_flags() {
    let mut out = Vec::new();
    begin_request(ID, true, &mut out);
    assert_eq!(out, b"\x01\x01\x00\x01\x00\x08\x00\x00\x00\x01\x01\x00\x00\x00\x00\x00");
    out.clear();
    begin_request(ID, false, &mut out);
    assert_eq!(out, b"\x01\x01\x00\x01\x00\x08\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00");
}

#[test]
fn fcgi_3_4_lengths_have_one_byte_or_four() {
    for (len, expected) in [
        (0, &[0][..]),
        (1, &[1]),
        (127, &[127]),
        (128, &[0x80, 0, 0, 128]),
        (65_536, &[0x80, 1, 0, 0]),
    ] {
        let (name, value) = (vec![b'n'; len], vec![b'v'; len]);
        let mut out = Vec::new();
        params(ID, [(&name[..], &value[..])], &mut out);
        let stream = stream(&out, 4);
        assert_eq!(stream[..expected.len()], *expected, "{len}");
        assert_eq!(pairs(&stream), [(name, value)], "{len}");
    }
}

#[test]
fn fcgi_6_2_a_request_without_variables_and_content_has_their_ends() {
    let mut out = Vec::new();
    params(ID, [], &mut out);
    stdin(ID, b"", &mut out);
    stdin_end(ID, &mut out);
    assert_eq!(out, b"\x01\x04\x00\x01\x00\x00\x00\x00\x01\x05\x00\x01\x00\x00\x00\x00");
}

#[test]
fn fcgi_5_4_an_abort_has_no_content() {
    let mut out = Vec::new();
    abort_request(ID, &mut out);
    assert_eq!(out, b"\x01\x02\x00\x01\x00\x00\x00\x00");
}

#[test]
fn all_records_of_a_request_have_its_id() {
    for before in [0, 1, 255, 65_534, 65_535, u64::MAX] {
        let id = RequestId::after(before);
        let mut out = Vec::new();
        begin_request(id, true, &mut out);
        params(id, [(&b"A"[..], &b"b"[..])], &mut out);
        stdin(id, &vec![0; 70_000], &mut out);
        stdin_end(id, &mut out);
        abort_request(id, &mut out);
        let kinds: Vec<_> = records(&out).map(|record| (record.kind, record.id)).collect();
        assert_eq!(kinds, [1, 4, 4, 5, 5, 5, 2].map(|kind| (kind, id.get())));
        assert_ne!(id.get(), 0);
    }
}

#[test]
fn content_is_cut_into_records() {
    for len in [1, CONTENT_BYTES_MAX - 1, CONTENT_BYTES_MAX, CONTENT_BYTES_MAX + 1, 200_000] {
        let content: Vec<u8> = (0u8..251).cycle().take(len).collect();
        let mut out = Vec::new();
        stdin(ID, &content, &mut out);
        stdin_end(ID, &mut out);
        assert_eq!(stream(&out, 5), content, "{len}");
    }
}

proptest! {
    #[test]
    fn variables_are_read_as_they_were_written(
        expected in proptest::collection::vec((long_or_short(), long_or_short()), 0..8),
    ) {
        let mut out = b"before".to_vec();
        params(ID, expected.iter().map(|(name, value)| (&name[..], &value[..])), &mut out);
        prop_assert_eq!(&out[..6], b"before");
        prop_assert_eq!(pairs(&stream(&out[6..], 4)), expected);
    }
}

/// Bytes of lengths of both forms; some are longer than a record.
fn long_or_short() -> impl Strategy<Value = Vec<u8>> {
    let lengths = prop_oneof![0usize..5, 120usize..140, 65_520usize..65_560];
    (any::<u8>(), lengths).prop_map(|(byte, len)| vec![byte; len])
}
