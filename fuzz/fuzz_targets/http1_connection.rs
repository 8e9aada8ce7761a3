//! A connection as a sequence of operations: bytes arrive in pieces of any size, the application
//! closes at any moment, and it skips bodies or has them decoded. Checked: every call makes progress
//! or waits, the same bytes give the same events however they are cut, and a closed connection stays
//! closed.

#![no_main]

use http1::server::{Connection, Eof, Event};
use http1::Limits;
use libfuzzer_sys::fuzz_target;

const LIMITS: Limits = Limits {
    head_bytes_max: 256,
    target_bytes_max: 64,
    fields_max: 8,
    body_bytes_max: 64,
    chunk_line_bytes_max: 24,
    trailer_bytes_max: 48,
};

fuzz_target!(|input: (Vec<u8>, u8, Option<u8>, &[u8])| {
    let (pieces, close_after, decode, stream) = input;
    let whole = run(stream, &[], usize::MAX, decode);
    assert_eq!(run(stream, &pieces, usize::MAX, decode), whole);

    // Closed early, it says what it would have said, and then nothing more.
    let close_after = usize::from(close_after % 8);
    let mut shortened = run(stream, &pieces, close_after, decode);
    if shortened.len() > close_after {
        assert_eq!(shortened.split_off(close_after), ["Closed"]);
    }
    assert_eq!(shortened, whole[..shortened.len()]);
});

/// The events of a stream that arrives in the given pieces, all together after the last; the application closes after
/// `close_after` events. With `decode`, bodies of this many bytes are decoded; their content is shown with the event
/// after it.
fn run(stream: &[u8], pieces: &[u8], close_after: usize, decode: Option<u8>) -> Vec<String> {
    let mut connection = Connection::new();
    let mut events = Vec::new();
    let mut content = Vec::new();
    let mut pieces = pieces.iter().map(|&piece| usize::from(piece) + 1);
    let (mut consumed, mut arrived) = (0, 0);
    loop {
        if events.len() == close_after {
            connection.close();
        }
        let before = connection.clone();
        let (len, mut event) = connection.handle_input(&stream[consumed..arrived], &LIMITS);
        consumed += len;
        assert!(consumed <= arrived);
        match event {
            Event::Partial => {
                assert!(!connection.is_closed());
                assert!(arrived - consumed < LIMITS.head_bytes_max, "hoards input");
                if arrived == stream.len() {
                    let clean = connection.is_idle() && consumed == arrived;
                    let eof = connection.handle_eof(arrived - consumed);
                    assert_eq!(eof, if clean { Eof::Clean } else { Eof::Truncated });
                    return events;
                }
                arrived = stream.len().min(arrived + pieces.next().unwrap_or(stream.len()));
                continue;
            }
            Event::Closed => {
                assert!(connection.is_closed() && consumed == arrived);
                assert_eq!(connection.handle_eof(0), Eof::Clean);
                assert_eq!(connection.handle_input(stream, &LIMITS), (stream.len(), Event::Closed));
                events.push("Closed".to_owned());
                return events;
            }
            Event::Request(ref mut request) => {
                assert!(before.is_idle());
                assert_eq!(connection.is_closed(), !request.keep_alive);
                assert!(!request.expect_continue || request.keep_alive);
                if let Some(bytes_max) = decode {
                    let decoded = connection.decode_body(request, bytes_max.into());
                    if decoded.is_ok() && request.head.framing.has_content() {
                        assert!(!connection.is_idle() && !connection.is_closed());
                    }
                }
            }
            Event::Body(bytes) => {
                assert!(decode.is_some() && !bytes.is_empty() && bytes.len() <= len);
                content.extend_from_slice(bytes);
                continue;
            }
            Event::Trailer(name, _) => assert!(decode.is_some() && !name.is_empty()),
            Event::BodyEnd => assert!(!before.is_idle() && !before.is_closed()),
            Event::Rejected(_) => assert!(connection.is_closed()),
        }
        assert!(len > 0 || connection != before, "no progress");
        events.push(format!("{:?} {event:?}", core::mem::take(&mut content)));
    }
}
