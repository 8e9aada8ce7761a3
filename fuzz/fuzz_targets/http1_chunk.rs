//! Arbitrary bytes as a chunked body that is skipped, against a plain decoder.

#![no_main]

#[path = "plain/chunks.rs"]
mod chunks;

use chunks::{Counted, Verdict, decode};
use http1::Limits;
use http1::server::{Connection, Event};
use libfuzzer_sys::fuzz_target;

const HEAD: &[u8] = b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n";
const LIMITS: Limits = Limits {
    body_bytes_max: 256,
    chunk_line_bytes_max: 24,
    trailer_bytes_max: 48,
    ..Limits::DEFAULT
};

fuzz_target!(|input: (usize, &[u8])| {
    let (piece, body) = input;
    let expected = decode(body, Counted::Wire, &LIMITS, &mut Vec::new());
    assert_eq!(skip_in_pieces(body, body.len().max(1)), expected);
    assert_eq!(skip_in_pieces(body, piece % 16 + 1), expected);
});

/// What the connection makes of the body when it arrives in pieces of `piece` bytes.
fn skip_in_pieces(body: &[u8], piece: usize) -> Verdict {
    let mut connection = Connection::new();
    let (len, event) = connection.handle_input(HEAD, &LIMITS);
    assert!(len == HEAD.len() && matches!(event, Event::Request(_)));

    let (mut consumed, mut arrived) = (0, 0);
    loop {
        let (len, event) = connection.handle_input(&body[consumed..arrived], &LIMITS);
        consumed += len;
        assert!(consumed <= arrived);
        match event {
            Event::Partial if arrived == body.len() => return Verdict::Partial,
            Event::Partial => arrived = body.len().min(arrived + piece),
            Event::BodyEnd => return Verdict::Complete(consumed),
            Event::Rejected(_) => {
                assert!(connection.is_closed());
                return Verdict::Rejected;
            }
            other => panic!("{other:?} within a body"),
        }
    }
}
