//! Arbitrary bytes as a body that is decoded, against a plain decoder. Checked: its content and its
//! end, in whatever pieces it arrives, and that content which is written in chunks is read again.

#![no_main]

#[path = "plain/chunks.rs"]
mod chunks;

use chunks::{Counted, Verdict, decode};
use http1::server::{Connection, Event};
use http1::{Limits, write};
use libfuzzer_sys::fuzz_target;

const CHUNKED: &str = "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n";
const LIMITS: Limits = Limits {
    body_bytes_max: 0,
    chunk_line_bytes_max: 24,
    trailer_bytes_max: 48,
    ..Limits::DEFAULT
};

// The first byte is the size of the pieces, the second the limit of the content.
fuzz_target!(|input: &[u8]| {
    let [piece, bytes_max, body @ ..] = input else { return };
    let (piece, bytes_max) = (usize::from(piece % 16 + 1), u64::from(*bytes_max));

    let mut content = Vec::new();
    let plain_limits = Limits { body_bytes_max: bytes_max, ..LIMITS };
    let verdict = decode(body, Counted::Content, &plain_limits, &mut content);
    assert_eq!(decode_in_pieces(CHUNKED, body, bytes_max, piece), (verdict, content));
    check_length(body, bytes_max, piece);

    let mut again = Vec::new();
    for chunk in body.chunks(piece) {
        write::chunk_head(chunk.len() as u64, &mut again);
        again.extend_from_slice(chunk);
        again.extend_from_slice(write::CHUNK_END);
    }
    again.extend_from_slice(write::LAST_CHUNK);
    let expected = (Verdict::Complete(again.len()), body.to_vec());
    assert_eq!(decode_in_pieces(CHUNKED, &again, body.len() as u64, 7), expected);
});

/// Checks that a body of `length` bytes has the first `length` bytes.
fn check_length(body: &[u8], length: u64, piece: usize) {
    let head = format!("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: {length}\r\n\r\n");
    let end = body.len().min(usize::try_from(length).expect("a byte"));
    let verdict = if end as u64 == length { Verdict::Complete(end) } else { Verdict::Partial };
    if length > 0 {
        let expected = (verdict, body[..end].to_vec());
        assert_eq!(decode_in_pieces(&head, body, length, piece), expected);
    }
}

/// What the connection makes of the body when it arrives in pieces of `piece` bytes, and the content.
fn decode_in_pieces(head: &str, body: &[u8], bytes_max: u64, piece: usize) -> (Verdict, Vec<u8>) {
    let mut connection = Connection::new();
    let (len, event) = connection.handle_input(head.as_bytes(), &LIMITS);
    let Event::Request(mut request) = event else { panic!("{event:?}") };
    assert_eq!(len, head.len());
    connection.decode_body(&mut request, bytes_max).expect("not announced to be too long");

    let mut content = Vec::new();
    let (mut consumed, mut arrived) = (0, 0);
    let verdict = loop {
        let (len, event) = connection.handle_input(&body[consumed..arrived], &LIMITS);
        consumed += len;
        assert!(consumed <= arrived);
        match event {
            Event::Partial if arrived == body.len() => break Verdict::Partial,
            Event::Partial => arrived = body.len().min(arrived + piece),
            Event::Body(bytes) => {
                assert!(!bytes.is_empty() && bytes.len() <= len);
                content.extend_from_slice(bytes);
            }
            Event::Trailer(name, _) => assert!(!name.is_empty()),
            Event::BodyEnd => break Verdict::Complete(consumed),
            Event::Rejected(_) => {
                assert!(connection.is_closed());
                break Verdict::Rejected;
            }
            other => panic!("{other:?} within a body"),
        }
    };
    (verdict, content)
}
