//! Arbitrary bytes as the responses to some requests. Checked: every call makes progress or waits, the
//! same bytes give the same events however they are cut, content is where its framing says, and a
//! closed connection stays closed.

#![no_main]

use http::Method;
use http1::Limits;
use http1::client::{Connection, Eof, Event};
use http1::response::Framing;
use libfuzzer_sys::fuzz_target;

const LIMITS: Limits = Limits {
    head_bytes_max: 256,
    fields_max: 8,
    body_bytes_max: 64,
    chunk_line_bytes_max: 24,
    trailer_bytes_max: 48,
    ..Limits::DEFAULT
};

// The first byte says which requests are for HEAD, the second the size of the pieces.
fuzz_target!(|input: &[u8]| {
    let [heads, piece, stream @ ..] = input else { return };
    let whole = run(stream, *heads, usize::MAX);
    assert_eq!(run(stream, *heads, usize::from(*piece) + 1), whole);
    assert_eq!(run(stream, *heads, 1), whole);
});

/// The events of a stream that arrives in pieces of `piece` bytes and ends; content is shown with the
/// event after it.
fn run(stream: &[u8], heads: u8, piece: usize) -> Vec<String> {
    let mut connection = Connection::new();
    let mut events = Vec::new();
    let mut content = Vec::new();
    let mut framing = Framing::None;
    let mut body_start = 0;
    let mut requests = 0;
    let (mut consumed, mut arrived) = (0, 0);
    loop {
        if connection.is_idle() && requests < 8 {
            let is_head = heads >> requests & 1 == 1;
            connection.begin(if is_head { Method::Head } else { Method::Get });
            requests += 1;
        }
        let before = connection.clone();
        let (len, event) = connection.handle_input(&stream[consumed..arrived], &LIMITS);
        consumed += len;
        assert!(consumed <= arrived);
        match &event {
            Event::Partial => {
                assert!(arrived - consumed < LIMITS.head_bytes_max, "hoards input");
                if arrived == stream.len() {
                    break;
                }
                arrived = stream.len().min(arrived.saturating_add(piece));
                continue;
            }
            Event::Interim(response) => {
                assert!(response.status.is_interim());
                assert!(!connection.is_idle() && !connection.is_closed());
            }
            Event::Response(response) => {
                assert!(!response.status.is_interim());
                assert!(response.fields.len() <= LIMITS.fields_max);
                framing = response.framing;
                if framing == Framing::None {
                    assert_eq!(connection.is_closed(), !response.keep_alive);
                }
                assert!(framing != Framing::UntilClose || !response.keep_alive);
                body_start = consumed;
            }
            Event::Body(bytes) => {
                assert!(!bytes.is_empty() && bytes.len() <= len);
                content.extend_from_slice(bytes);
                assert!(content.len() as u64 <= LIMITS.body_bytes_max);
                if framing != Framing::Chunked {
                    assert_eq!(content, stream[body_start..consumed]);
                }
                continue;
            }
            Event::Trailer(name, _) => {
                assert!(!name.is_empty() && framing == Framing::Chunked);
            }
            Event::NoTrailers => assert_eq!(framing, Framing::Chunked),
            Event::BodyEnd => {
                if let Framing::Length(length) = framing {
                    assert_eq!(content.len() as u64, length);
                }
            }
            Event::Faulty(fault) => assert!(connection.is_closed() && !fault.reason.is_empty()),
            Event::Closed => {
                assert!(connection.is_closed() && len == 0);
                assert_eq!(connection.handle_input(stream, &LIMITS), (0, Event::Closed));
                break;
            }
        }
        assert!(len > 0 || connection != before, "no progress");
        events.push(format!("{:?} {event:?}", core::mem::take(&mut content)));
    }
    let leftover = arrived - consumed;
    let was_closed = connection.is_closed();
    let eof = connection.handle_eof(leftover);
    assert!(eof != Eof::BodyEnd || framing == Framing::UntilClose);
    assert!(!was_closed || eof == Eof::Clean);
    events.push(format!("{content:?} {eof:?}"));
    events
}
