//! The connection of a server as a sequence of operations: bytes arrive in pieces of any size. Checked: every call makes
//! progress or waits, the same bytes give the same events however they are cut, memory is bounded, and a closed connection
//! stays closed.

#![no_main]

use std::time::Duration;

use http2::server::{Connection, Event};
use http2::{INPUT_BYTES_MAX, Limits, frame};
use libfuzzer_sys::fuzz_target;

const LIMITS: Limits =
    Limits { head_bytes_max: 256, target_bytes_max: 64, fields_max: 8, extended_connect: true };

fuzz_target!(|input: (Vec<u8>, bool, &[u8])| {
    let (pieces, has_preface, stream) = input;
    let mut bytes = Vec::new();
    if !has_preface {
        bytes.extend_from_slice(frame::PREFACE);
        bytes.extend_from_slice(b"\0\0\0\x04\0\0\0\0\0");
    }
    bytes.extend_from_slice(stream);
    assert_eq!(run(&bytes, &pieces), run(&bytes, &[]));
});

/// The events of bytes that arrive in the given pieces, all together after the last. Content is one event.
fn run(bytes: &[u8], pieces: &[u8]) -> Vec<String> {
    let mut connection = Connection::new(Duration::ZERO, &LIMITS);
    let mut events = Vec::<String>::new();
    let mut text = Vec::new();
    let mut pieces = pieces.iter().map(|&piece| usize::from(piece) + 1);
    let (mut at, mut arrived) = (0, 0);
    loop {
        let (len, event) =
            connection.handle_input(&bytes[at..arrived], &mut text, Duration::ZERO, &LIMITS);
        at += len;
        match event {
            Event::Partial => {
                assert!(arrived - at < INPUT_BYTES_MAX, "hoards input");
                if arrived == bytes.len() {
                    break;
                }
                arrived = bytes.len().min(arrived + pieces.next().unwrap_or(bytes.len()));
            }
            Event::Closed => {
                assert!(at == arrived && connection.is_done());
                break;
            }
            Event::Body { stream, bytes } => {
                let body = format!("{stream} ");
                let size = u32::try_from(bytes.len()).expect("a piece of a frame");
                match events.last_mut().filter(|last| last.starts_with(&body)) {
                    Some(last) => last.push_str(&bytes.escape_ascii().to_string()),
                    None => events.push(format!("{body}{}", bytes.escape_ascii())),
                }
                connection.handle_taken(stream, size, 1 << 20, Duration::ZERO);
            }
            event => {
                if let Event::Request(request) = &event {
                    assert_eq!(request.head.to_owned().as_head(), request.head);
                    assert!(connection.is_open(request.stream));
                }
                events.push(format!("{event:?}"));
            }
        }
        assert!(connection.memory() <= 128 * 1024);
    }
    events
}
