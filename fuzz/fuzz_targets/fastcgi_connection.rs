//! Arbitrary bytes as the responses of a FastCGI application. Checked: every call makes progress or waits,
//! the same bytes give the same events however they are cut, the streams are those of a plain reader, each
//! response is of records with the id of its request, and a closed connection stays closed.

#![no_main]

use fastcgi::{Connection, Eof, Event, RequestId};
use libfuzzer_sys::fuzz_target;

// The first byte says how many requests are sent, the second the size of the pieces.
fuzz_target!(|input: &[u8]| {
    let [requests, piece, stream @ ..] = input else { return };
    let requests = requests % 4;
    let whole = run(stream, requests, usize::MAX);
    assert_eq!(run(stream, requests, usize::from(*piece) + 1), whole);
    assert_eq!(run(stream, requests, 1), whole);
    check_streams(stream, &whole);
});

/// What happened with a stream.
#[derive(Debug, Default, PartialEq, Eq)]
struct Happened {
    /// Ends and faults.
    events: Vec<String>,
    output: Vec<u8>,
    errors: Vec<u8>,
    /// Responses that have ended.
    ended: usize,
}

/// The events of a stream that arrives in pieces of `piece` bytes and ends.
fn run(stream: &[u8], requests: u8, piece: usize) -> Happened {
    let mut ids = (0..requests).map(|before| RequestId::after(before.into()));
    let mut connection = Connection::new();
    let mut happened = Happened::default();
    let (mut consumed, mut arrived) = (0, 0);
    loop {
        if connection.is_idle()
            && let Some(id) = ids.next()
        {
            connection.begin(id);
        }
        let before = connection.clone();
        let (len, event) = connection.handle_input(&stream[consumed..arrived]);
        consumed += len;
        assert!(consumed <= arrived);
        match event {
            Event::Partial => {
                assert_eq!(consumed, arrived, "input is left");
                if arrived == stream.len() {
                    break;
                }
                arrived = stream.len().min(arrived.saturating_add(piece));
                continue;
            }
            Event::Output(bytes) => {
                assert!(!bytes.is_empty() && bytes.len() <= len);
                happened.output.extend_from_slice(bytes);
            }
            Event::Errors(bytes) => {
                assert!(!bytes.is_empty() && bytes.len() <= len);
                happened.errors.extend_from_slice(bytes);
            }
            Event::End(end) => {
                assert!(connection.is_idle());
                happened.ended += 1;
                happened.events.push(format!("{end:?} {}", happened.output.len()));
            }
            Event::Faulty(fault) => {
                assert!(connection.is_closed() && !fault.reason.is_empty());
                happened.events.push(fault.to_string());
            }
            Event::Closed => {
                assert!(connection.is_closed() && len == 0);
                assert_eq!(connection.handle_input(stream), (0, Event::Closed));
                break;
            }
        }
        assert!(len > 0 || connection != before, "no progress");
    }
    let was_closed = connection.is_closed();
    let eof = connection.handle_eof();
    assert!(!was_closed || eof == Eof::Clean);
    happened.events.push(format!("{eof:?}"));
    happened
}

/// Checks that output and errors are those of the records up to the first fault or the last response, and
/// no more.
fn check_streams(mut stream: &[u8], happened: &Happened) {
    let (mut output, mut errors, mut ends) = (Vec::new(), Vec::new(), 0);
    while let Some((header, rest)) = stream.split_at_checked(8)
        && output.len() + errors.len() < happened.output.len() + happened.errors.len()
    {
        let content_bytes = usize::from(header[4]) << 8 | usize::from(header[5]);
        let (content, rest) = rest.split_at(content_bytes.min(rest.len()));
        let id = u16::from_be_bytes([header[2], header[3]]);
        if let 3 | 6 | 7 = header[1] {
            assert_eq!(usize::from(id), ends + 1, "a record of another request");
        }
        match header[1] {
            3 => ends += 1,
            6 => output.extend_from_slice(content),
            7 => errors.extend_from_slice(content),
            _ => {}
        }
        stream = &rest[usize::from(header[6]).min(rest.len())..];
    }
    assert_eq!(output, happened.output);
    assert_eq!(errors, happened.errors);
    assert!(ends <= happened.ended);
}
