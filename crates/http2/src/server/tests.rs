//! Sequences of frames, whole and in pieces; the clauses of RFC 9113; attacks.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;

use http::{FieldSection, ResponseHead, Status};
use proptest::prelude::*;

use super::*;
use crate::fault::Attack;
use crate::frame::{FrameHead, HEAD_LEN, PREFACE, flag};
use crate::limits::{
    CONTINUATIONS_MAX, CONTROL_BYTES_MAX, DISCARD_TIME, DISCARDED_BYTES_MAX,
    IDLE_FRAMES_PER_REQUEST, STREAM_WINDOW, STREAMS_MAX,
};

const LIMITS: Limits = Limits::DEFAULT;
const START: Duration = Duration::from_secs(100);
const DATE: &[u8; 29] = b"Sun, 06 Nov 1994 08:49:37 GMT";

/// Writes the frames of a client.
#[derive(Debug)]
struct Client {
    bytes: Vec<u8>,
    encoder: Encoder,
}

impl Client {
    /// A client that has sent its preface and its settings.
    fn new() -> Self {
        let mut client = Self { bytes: PREFACE.to_vec(), encoder: Encoder::new() };
        client.frame(Kind::Settings, 0, 0, b"");
        client
    }

    fn frame(&mut self, kind: Kind, flags: u8, stream: u32, payload: &[u8]) -> &mut Self {
        frame::push(kind, flags, stream, payload, &mut self.bytes);
        self
    }

    fn block(&mut self, fields: &[(&str, &str)]) -> Vec<u8> {
        let mut block = Vec::new();
        self.encoder.begin(&mut block);
        for (name, value) in fields {
            self.encoder.field(name.as_bytes(), value.as_bytes(), &mut block);
        }
        block
    }

    fn headers(&mut self, stream: u32, fields: &[(&str, &str)], has_ended: bool) -> &mut Self {
        let block = self.block(fields);
        let end = if has_ended { flag::END_STREAM } else { 0 };
        self.frame(Kind::Headers, flag::END_HEADERS | end, stream, &block)
    }

    fn get(&mut self, stream: u32) -> &mut Self {
        self.headers(stream, &GET, true)
    }

    fn post(&mut self, stream: u32) -> &mut Self {
        self.headers(stream, &POST, false)
    }

    fn data(&mut self, stream: u32, data: &[u8], has_ended: bool) -> &mut Self {
        self.frame(Kind::Data, u8::from(has_ended), stream, data)
    }

    fn number(&mut self, kind: Kind, stream: u32, number: u32) -> &mut Self {
        self.frame(kind, 0, stream, &number.to_be_bytes())
    }

    fn reset(&mut self, stream: u32) -> &mut Self {
        self.number(Kind::ResetStream, stream, 8)
    }

    fn window(&mut self, stream: u32, increment: u32) -> &mut Self {
        self.number(Kind::WindowUpdate, stream, increment)
    }
}

const GET: [(&str, &str); 4] =
    [(":method", "GET"), (":scheme", "https"), (":authority", "h"), (":path", "/")];
const POST: [(&str, &str); 4] =
    [(":method", "POST"), (":scheme", "https"), (":authority", "h"), (":path", "/form")];

/// An event in short form.
fn show(event: &Event<'_>) -> String {
    match event {
        Event::Request(request) => {
            let mut line = Vec::new();
            request.head.request_line(&mut line);
            let end = if request.has_ended { "" } else { "…" };
            format!("{}: {}{end}", request.stream, line.escape_ascii())
        }
        Event::Rejected { stream, reject, .. } => format!("{stream}: {reject}"),
        Event::Body { stream, bytes } => format!("{stream}: body {}", bytes.escape_ascii()),
        Event::End { stream, trailers } => {
            let trailers: Vec<_> = trailers.clone().collect();
            format!("{stream}: end{}", if trailers.is_empty() { "" } else { " with trailers" })
        }
        Event::Reset { stream, code, fault } => {
            format!("{stream}: {} {}", code.name(), fault.unwrap_or("by the client"))
        }
        Event::Malformed { stream, reason } => format!("{stream}: malformed, {reason}"),
        Event::Refused { stream } => format!("{stream}: refused"),
        Event::Room { stream } => format!("{stream}: room"),
        Event::Priority { stream, wish } => format!("{stream}: {:?}", wish.urgency),
        Event::GoAway { code } => format!("goaway {}", code.name()),
        Event::Failed(fault) => fault.to_string(),
        Event::Partial | Event::Closed => format!("{event:?}"),
    }
}

/// The frames in what a server has written, in short form.
fn frames(mut bytes: &[u8]) -> Vec<String> {
    let mut shown = vec![];
    while let Some(head) = FrameHead::parse(bytes) {
        let (payload, rest) = bytes[HEAD_LEN..].split_at(head.length as usize);
        let number = |at: usize| u32::from_be_bytes(payload[at..at + 4].try_into().unwrap());
        let FrameHead { stream, length, .. } = head;
        let ack = if head.has(flag::ACK) { " ack" } else { "" };
        let end = if head.has(flag::END_STREAM) { " end" } else { "" };
        shown.push(match head.kind {
            Kind::ResetStream => format!("{stream}: {}", ErrorCode::of_number(number(0)).name()),
            Kind::GoAway => {
                format!("goaway {} {}", number(0), ErrorCode::of_number(number(4)).name())
            }
            Kind::WindowUpdate => format!("{stream}: window {}", number(0)),
            Kind::Settings => format!("settings{ack}"),
            Kind::Ping => format!("ping{ack}"),
            Kind::Headers | Kind::Data => format!("{stream}: {:?} {length}{end}", head.kind),
            kind => format!("{stream}: {kind:?} {length}"),
        });
        bytes = rest;
    }
    assert_eq!(bytes, b"", "whole frames");
    shown
}

/// The connection of a server, with what it has to say.
struct Server {
    connection: Connection,
    events: Vec<String>,
    now: Duration,
}

impl Server {
    fn new() -> Self {
        Self { connection: Connection::new(START, &LIMITS), events: vec![], now: START }
    }

    /// Takes bytes in pieces of these sizes, then the rest. Bodies are taken at once; their pieces are one event.
    fn take(&mut self, bytes: &[u8], sizes: &[usize]) -> &mut Self {
        let mut sizes = sizes.iter().copied();
        let (mut at, mut arrived) = (0, 0);
        let mut text = Vec::new();
        loop {
            let before = (self.connection.input, at);
            let (len, event) =
                self.connection.handle_input(&bytes[at..arrived], &mut text, self.now, &LIMITS);
            at += len;
            assert!(at <= arrived);
            match &event {
                Event::Partial => {
                    assert!(arrived - at < crate::INPUT_BYTES_MAX, "it hoards input");
                    if arrived == bytes.len() {
                        return self;
                    }
                    arrived =
                        bytes.len().min(arrived + sizes.next().unwrap_or(usize::MAX - arrived));
                    continue;
                }
                Event::Closed => {
                    if arrived == bytes.len() {
                        return self;
                    }
                    arrived = bytes.len();
                    continue;
                }
                Event::Body { stream, bytes } => {
                    let stream = *stream;
                    let size = u32::try_from(bytes.len()).unwrap();
                    let shown = show(&event);
                    let body = format!("{stream}: body ");
                    match self.events.last_mut().filter(|last| last.starts_with(&body)) {
                        Some(last) => last.push_str(&shown[body.len()..]),
                        None => self.events.push(shown),
                    }
                    self.connection.handle_taken(stream, size, 1 << 20, self.now);
                    continue;
                }
                event => assert!(
                    (self.connection.input, at) != before || matches!(event, Event::Failed(_)),
                    "no progress: {event:?}"
                ),
            }
            self.events.push(show(&event));
        }
    }

    fn client(&mut self, client: &mut Client) -> &mut Self {
        let bytes = core::mem::take(&mut client.bytes);
        self.take(&bytes, &[])
    }

    fn events(&mut self) -> Vec<String> {
        core::mem::take(&mut self.events)
    }

    fn control(&mut self) -> Vec<String> {
        frames(&core::mem::take(self.connection.control()))
    }

    /// Responds without content.
    fn respond(&mut self, stream: u32) -> Vec<String> {
        let mut out = vec![];
        let head = ResponseHead::new(Status::NoContent);
        assert!(self.connection.respond(stream, &head, DATE, true, &mut out));
        frames(&out)
    }
}

/// A server that has got the preface and the settings of a client.
fn pair() -> (Server, Client) {
    let (mut server, mut client) = (Server::new(), Client::new());
    server.client(&mut client);
    assert_eq!(server.control(), ["settings", "settings ack"]);
    (server, client)
}

/// The last event, and the answers, of frames on a new connection.
fn outcome(send: impl FnOnce(&mut Client)) -> (String, String) {
    let (mut server, mut client) = pair();
    send(&mut client);
    server.client(&mut client);
    (server.events().last().cloned().unwrap_or_default(), server.control().join(", "))
}

#[test]
fn rfc9113_3_4_a_connection_begins_with_the_preface_and_settings() {
    for (bytes, expected) in [
        (
            &b"GET / HTTP/1.1\r\n"[..],
            "PROTOCOL_ERROR: a connection that does not begin with HTTP/2's preface",
        ),
        (
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\rX",
            "PROTOCOL_ERROR: a connection that does not begin with HTTP/2's preface",
        ),
        (
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\x08\x06\0\0\0\0\x0012345678",
            "PROTOCOL_ERROR: a connection that does not begin with settings",
        ),
        (
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\x01\0\0\0\0",
            "PROTOCOL_ERROR: a connection that does not begin with settings",
        ),
    ] {
        let mut server = Server::new();
        assert_eq!(server.take(bytes, &[1; 64]).events(), [expected]);
        assert_eq!(server.control()[1..], ["goaway 0 PROTOCOL_ERROR"]);
        assert!(server.connection.is_done());
    }
    let mut server = Server::new();
    assert_eq!(server.take(&PREFACE[..23], &[]).events(), [""; 0]);
    assert_eq!(server.control(), ["settings"]);
}

#[test]
fn a_request_with_content_is_answered() {
    let (mut server, mut client) = pair();
    client.post(1).data(1, b"hello ", false).get(3).data(1, b"world", false);
    client.headers(1, &[("x", "y")], true);
    let expected = [
        "1: POST /form HTTP/2.0…",
        "1: body hello ",
        "3: GET / HTTP/2.0",
        "1: body world",
        "1: end with trailers",
    ];
    assert_eq!(server.client(&mut client).events(), expected);
    let connection = &mut server.connection;
    assert_eq!((connection.streams(), connection.data_room(1)), (2, 16_384));
    let mut out = vec![];
    let head = ResponseHead::new(Status::Ok);
    assert!(connection.respond_interim(3, Status::Continue, &FieldSection::EMPTY, &mut out));
    assert!(connection.respond(3, &head, DATE, false, &mut out));
    out.extend_from_slice(&connection.data_head(3, 5, true).unwrap());
    out.extend_from_slice(b"hello");
    connection.finish(3);
    assert!(connection.respond(1, &head, DATE, false, &mut out));
    assert!(connection.end_with_trailers(1, &FieldSection::EMPTY, &mut out));
    assert!(!connection.respond(1, &head, DATE, false, &mut out));
    assert_eq!(connection.data_head(1, 0, true), None);
    assert!(connection.is_idle() && !connection.is_done());
    let shown = frames(&out).join(", ");
    assert!(shown.starts_with("3: Headers 4, 3: Headers "), "{shown}");
    assert!(shown.contains(", 3: Data 5 end, 1: Headers "), "{shown}");
    assert!(shown.ends_with(", 1: Headers 0 end"), "{shown}");
}

/// A response ends before its request: the client need not send the rest, but may (RFC 9113 §8.1). It is told so late,
/// because some clients drop a response whose reset they read together with it.
#[test]
fn the_rest_of_an_answered_request_is_dropped_for_some_time() {
    let (mut server, mut client) = pair();
    server.client(client.post(1).post(3).post(5));
    for stream in [1, 3, 5] {
        assert_eq!(server.respond(stream).len(), 1, "the head of the response");
        server.connection.discard(stream, server.now);
        assert!(!server.connection.is_open(stream));
    }
    server.events();
    server.control();
    let data = vec![b'x'; 10_000];
    client.data(1, &data, false).data(1, &data, false).data(3, &data, true).get(7);
    client.data(5, &data, false).headers(5, &[("a", "b")], true);
    assert_eq!(server.client(&mut client).events(), ["7: GET / HTTP/2.0"]);
    // Two requests have ended, the window of the connection is given back, and nothing was reset.
    assert_eq!(server.connection.streams(), 2);
    assert!(server.control().iter().all(|frame| frame.starts_with("0: window ")));
    assert_eq!(server.connection.deadline(), Some(server.now + DISCARD_TIME));
    server.connection.handle_deadline(server.now + DISCARD_TIME - Duration::from_millis(1));
    assert_eq!(server.control(), [""; 0]);
    server.connection.handle_deadline(server.now + DISCARD_TIME);
    assert_eq!(server.control(), ["1: NO_ERROR"]);
    assert_eq!((server.connection.deadline(), server.connection.streams()), (None, 1));
    client.data(1, &data, false).headers(1, &[("a", "b")], true).get(9);
    assert_eq!(server.client(&mut client).events(), ["9: GET / HTTP/2.0"]);
    assert!(server.control().iter().all(|frame| frame.starts_with("0: window ")));
}

#[test]
fn no_more_is_dropped_of_a_request_than_the_limit() {
    let (mut server, mut client) = pair();
    server.client(client.post(1));
    server.respond(1);
    server.connection.discard(1, server.now);
    server.events();
    let (mut sent, mut room, mut is_reset) = (0, STREAM_WINDOW, false);
    while server.connection.streams() > 0 {
        for frame in server.control() {
            room += frame.strip_prefix("1: window ").map_or(0, |more| more.parse().unwrap());
        }
        let count = room.min(16_000);
        assert!(count > 0, "the client waits for room");
        client.data(1, &vec![b'x'; count as usize], false);
        assert_eq!(server.client(&mut client).events(), [""; 0]);
        (sent, room) = (sent + count, room - count);
        is_reset = frames(server.connection.control()).contains(&"1: NO_ERROR".to_owned());
    }
    assert!(is_reset && (DISCARDED_BYTES_MAX..DISCARDED_BYTES_MAX + 16_000).contains(&sent));
}

/// An application may answer first and read on.
#[test]
fn the_rest_of_an_answered_request_may_be_wanted() {
    let (mut server, mut client) = pair();
    server.client(client.post(1).data(1, b"hello ", false));
    server.events();
    server.respond(1);
    assert_eq!(server.connection.deadline(), None);
    client.data(1, b"world", true).get(3);
    let expected = ["1: body world", "1: end", "3: GET / HTTP/2.0"];
    assert_eq!(server.client(&mut client).events(), expected);
    assert_eq!(server.connection.streams(), 1);
    assert!(server.control().iter().all(|frame| frame.contains(": window ")));
}

#[test]
fn faults_end_streams_or_the_connection() {
    type Send = fn(&mut Client);
    let cases: &[(Send, &str, &str)] = &[
        // RFC 9113 §4.2, §4.3
        (
            |c| {
                c.frame(Kind::Data, 0, 1, &[0; 16_385]);
            },
            "FRAME_SIZE_ERROR: a frame that is too large",
            "goaway 0 FRAME_SIZE_ERROR",
        ),
        (
            |c| {
                c.frame(Kind::Headers, 5, 1, &[0x80]);
            },
            "COMPRESSION_ERROR: an index of no field",
            "goaway 0 COMPRESSION_ERROR",
        ),
        (
            |c| {
                c.frame(Kind::Headers, 1, 1, b"").frame(Kind::Ping, 0, 0, &[0; 8]);
            },
            "PROTOCOL_ERROR: another frame within a header block",
            "goaway 0 PROTOCOL_ERROR",
        ),
        (
            |c| {
                c.frame(Kind::Headers, 1, 1, b"").frame(Kind::Continuation, 4, 3, b"");
            },
            "PROTOCOL_ERROR: another frame within a header block",
            "goaway 0 PROTOCOL_ERROR",
        ),
        (
            |c| {
                c.frame(Kind::Headers, 1, 1, b"").frame(Kind::Unknown(77), 4, 1, b"");
            },
            "PROTOCOL_ERROR: another frame within a header block",
            "goaway 0 PROTOCOL_ERROR",
        ),
        // §5.1
        (
            |c| {
                c.data(1, b"x", false);
            },
            "PROTOCOL_ERROR: DATA on a stream without a request",
            "goaway 0 PROTOCOL_ERROR",
        ),
        (
            |c| {
                c.reset(1);
            },
            "PROTOCOL_ERROR: a reset of a stream without a request",
            "goaway 0 PROTOCOL_ERROR",
        ),
        (
            |c| {
                c.window(1, 1);
            },
            "PROTOCOL_ERROR: a window of a stream without a request",
            "goaway 0 PROTOCOL_ERROR",
        ),
        (
            |c| {
                c.frame(Kind::Continuation, 4, 1, b"");
            },
            "PROTOCOL_ERROR: a CONTINUATION behind no header block",
            "goaway 0 PROTOCOL_ERROR",
        ),
        (
            |c| {
                c.get(1).data(1, b"x", false);
            },
            "1: STREAM_CLOSED DATA behind the end of a stream",
            "1: STREAM_CLOSED",
        ),
        (
            |c| {
                c.get(1).headers(1, &GET, true);
            },
            "1: STREAM_CLOSED HEADERS behind the end of a stream",
            "1: STREAM_CLOSED",
        ),
        (
            |c| {
                c.get(1).reset(1).data(1, b"x", false);
            },
            "STREAM_CLOSED: DATA behind the end of a stream",
            "goaway 1 STREAM_CLOSED",
        ),
        (
            |c| {
                c.get(1).reset(1).headers(1, &GET, true);
            },
            "STREAM_CLOSED: HEADERS behind the end of a stream",
            "goaway 1 STREAM_CLOSED",
        ),
        (
            |c| {
                c.get(1).reset(1).reset(1).window(1, 1);
            },
            "1: CANCEL by the client",
            "",
        ),
        // §5.1.1
        (
            |c| {
                c.get(2);
            },
            "PROTOCOL_ERROR: a request on a stream that is not a client's",
            "goaway 0 PROTOCOL_ERROR",
        ),
        (
            |c| {
                c.get(0);
            },
            "PROTOCOL_ERROR: a request on a stream that is not a client's",
            "goaway 0 PROTOCOL_ERROR",
        ),
        (
            |c| {
                c.get(5).get(3);
            },
            "PROTOCOL_ERROR: a stream with too small a number",
            "goaway 5 PROTOCOL_ERROR",
        ),
        // §6.1, §6.2: padding
        (
            |c| {
                c.post(1).frame(Kind::Data, 8, 1, &[3, 0, 0]);
            },
            "PROTOCOL_ERROR: padding that is longer than its frame",
            "goaway 1 PROTOCOL_ERROR",
        ),
        (
            |c| {
                c.post(1).frame(Kind::Data, 8, 1, &[]);
            },
            "FRAME_SIZE_ERROR: a frame that is too short",
            "goaway 1 FRAME_SIZE_ERROR",
        ),
        (
            |c| {
                c.post(1).frame(Kind::Data, 9, 1, &[2, 0, 0]);
            },
            "1: end",
            "1: window 3",
        ),
        (
            |c| {
                c.frame(Kind::Data, 0, 0, b"x");
            },
            "PROTOCOL_ERROR: DATA on no stream",
            "goaway 0 PROTOCOL_ERROR",
        ),
        (
            |c| {
                c.frame(Kind::Headers, 0xc, 1, &[1]);
            },
            "PROTOCOL_ERROR: padding that is longer than its frame",
            "goaway 0 PROTOCOL_ERROR",
        ),
        (
            |c| {
                c.frame(Kind::Headers, 0x24, 1, &[1]);
            },
            "FRAME_SIZE_ERROR: a frame that is too short",
            "goaway 0 FRAME_SIZE_ERROR",
        ),
        (
            |c| {
                c.frame(Kind::Headers, 0x24, 1, &[0, 0, 0, 1, 0]);
            },
            "PROTOCOL_ERROR: a stream that depends on itself",
            "goaway 0 PROTOCOL_ERROR",
        ),
        // §6.3 to §6.9
        (
            |c| {
                c.frame(Kind::Priority, 0, 1, &[0; 4]);
            },
            "FRAME_SIZE_ERROR: a frame with a wrong length",
            "goaway 0 FRAME_SIZE_ERROR",
        ),
        (
            |c| {
                c.frame(Kind::Priority, 0, 0, &[0; 5]);
            },
            "PROTOCOL_ERROR: a frame of a stream on no stream",
            "goaway 0 PROTOCOL_ERROR",
        ),
        (
            |c| {
                c.frame(Kind::Priority, 0, 7, &[0; 5]);
            },
            "",
            "",
        ),
        (
            |c| {
                c.get(1).frame(Kind::ResetStream, 0, 1, &[0; 5]);
            },
            "FRAME_SIZE_ERROR: a frame with a wrong length",
            "goaway 1 FRAME_SIZE_ERROR",
        ),
        (
            |c| {
                c.frame(Kind::ResetStream, 0, 0, &[0; 4]);
            },
            "PROTOCOL_ERROR: a frame of a stream on no stream",
            "goaway 0 PROTOCOL_ERROR",
        ),
        (
            |c| {
                c.frame(Kind::Settings, 1, 0, &[0; 6]);
            },
            "FRAME_SIZE_ERROR: a frame with a wrong length",
            "goaway 0 FRAME_SIZE_ERROR",
        ),
        (
            |c| {
                c.frame(Kind::Settings, 0, 1, b"");
            },
            "PROTOCOL_ERROR: a frame of the connection on a stream",
            "goaway 0 PROTOCOL_ERROR",
        ),
        (
            |c| {
                c.frame(Kind::Settings, 0, 0, &[0; 5]);
            },
            "FRAME_SIZE_ERROR: settings that are no multiple of six bytes",
            "goaway 0 FRAME_SIZE_ERROR",
        ),
        (
            |c| {
                c.frame(Kind::Settings, 1, 0, b"");
            },
            "",
            "",
        ),
        (
            |c| {
                c.frame(Kind::PushPromise, 4, 1, &[0; 4]);
            },
            "PROTOCOL_ERROR: a push of a client",
            "goaway 0 PROTOCOL_ERROR",
        ),
        (
            |c| {
                c.frame(Kind::Ping, 0, 0, &[0; 6]);
            },
            "FRAME_SIZE_ERROR: a frame with a wrong length",
            "goaway 0 FRAME_SIZE_ERROR",
        ),
        (
            |c| {
                c.frame(Kind::Ping, 0, 1, &[0; 8]);
            },
            "PROTOCOL_ERROR: a frame of the connection on a stream",
            "goaway 0 PROTOCOL_ERROR",
        ),
        (
            |c| {
                c.frame(Kind::Ping, 0, 0, &[0; 8]);
            },
            "",
            "ping ack",
        ),
        (
            |c| {
                c.frame(Kind::Ping, 1, 0, &[0; 8]);
            },
            "",
            "",
        ),
        (
            |c| {
                c.frame(Kind::GoAway, 0, 1, &[0; 8]);
            },
            "PROTOCOL_ERROR: a frame of the connection on a stream",
            "goaway 0 PROTOCOL_ERROR",
        ),
        (
            |c| {
                c.frame(Kind::GoAway, 0, 0, &[0; 7]);
            },
            "FRAME_SIZE_ERROR: a frame that is too short",
            "goaway 0 FRAME_SIZE_ERROR",
        ),
        (
            |c| {
                c.frame(Kind::WindowUpdate, 0, 0, &[0; 3]);
            },
            "FRAME_SIZE_ERROR: a frame with a wrong length",
            "goaway 0 FRAME_SIZE_ERROR",
        ),
        (
            |c| {
                c.window(0, 0);
            },
            "PROTOCOL_ERROR: a WINDOW_UPDATE of nothing",
            "goaway 0 PROTOCOL_ERROR",
        ),
        (
            |c| {
                c.get(1).window(1, 0);
            },
            "1: PROTOCOL_ERROR a WINDOW_UPDATE of nothing",
            "1: PROTOCOL_ERROR",
        ),
        (
            |c| {
                c.window(0, 0x7fff_ffff);
            },
            "FLOW_CONTROL_ERROR: a window that is too large",
            "goaway 0 FLOW_CONTROL_ERROR",
        ),
        (
            |c| {
                c.get(1).window(1, 0x7fff_ffff);
            },
            "1: FLOW_CONTROL_ERROR a window that is too large",
            "1: FLOW_CONTROL_ERROR",
        ),
        (
            |c| {
                c.frame(Kind::Unknown(0x77), 0xff, 7, b"x");
            },
            "",
            "",
        ),
        // §8.1: messages
        (
            |c| {
                c.headers(1, &GET[..2], true);
            },
            "1: malformed, a request without :authority",
            "1: PROTOCOL_ERROR",
        ),
        (
            |c| {
                c.post(1).headers(1, &GET, false);
            },
            "1: PROTOCOL_ERROR a second head of a request",
            "1: PROTOCOL_ERROR",
        ),
        (
            |c| {
                c.post(1).headers(1, &GET, true);
            },
            "1: PROTOCOL_ERROR a pseudo-field among trailers",
            "1: PROTOCOL_ERROR",
        ),
        (
            |c| {
                c.headers(1, &[&POST[..], &[("content-length", "3")]].concat(), false)
                    .data(1, b"1234", false);
            },
            "1: PROTOCOL_ERROR more content than announced",
            "1: PROTOCOL_ERROR",
        ),
        (
            |c| {
                c.headers(1, &[&POST[..], &[("content-length", "3")]].concat(), false)
                    .data(1, b"12", true);
            },
            "1: PROTOCOL_ERROR less content than announced",
            "1: PROTOCOL_ERROR",
        ),
        (
            |c| {
                c.headers(1, &[&POST[..], &[("content-length", "3")]].concat(), false)
                    .data(1, b"12", false)
                    .headers(1, &[("a", "b")], true);
            },
            "1: PROTOCOL_ERROR less content than announced",
            "1: PROTOCOL_ERROR",
        ),
        (
            |c| {
                c.headers(1, &[&POST[..], &[("content-length", "0")]].concat(), false)
                    .data(1, b"1", true);
            },
            "1: PROTOCOL_ERROR more content than announced",
            "1: PROTOCOL_ERROR",
        ),
        (
            |c| {
                c.headers(1, &[&POST[..], &[("content-length", "3")]].concat(), false)
                    .data(1, b"123", true);
            },
            "1: end",
            "",
        ),
        // RFC 9218 §7.1
        (
            |c| {
                c.frame(Kind::PriorityUpdate, 0, 1, &[0; 8]);
            },
            "PROTOCOL_ERROR: a frame of the connection on a stream",
            "goaway 0 PROTOCOL_ERROR",
        ),
        (
            |c| {
                c.frame(Kind::PriorityUpdate, 0, 0, &[0; 3]);
            },
            "FRAME_SIZE_ERROR: a frame that is too short",
            "goaway 0 FRAME_SIZE_ERROR",
        ),
        (
            |c| {
                c.number(Kind::PriorityUpdate, 0, 0);
            },
            "PROTOCOL_ERROR: a priority of a stream that is not a client's",
            "goaway 0 PROTOCOL_ERROR",
        ),
        (
            |c| {
                c.get(1).frame(Kind::PriorityUpdate, 0, 0, b"\0\0\0\x01u=5");
            },
            "1: Some(5)",
            "",
        ),
    ];
    for (number, (send, event, answers)) in cases.iter().enumerate() {
        assert_eq!(outcome(send), (event.to_string(), answers.to_string()), "case {number}");
    }
}

#[test]
fn early_priorities_are_remembered_and_bounded() {
    let (mut server, mut client) = pair();
    for stream in (1..100).step_by(2) {
        let payload = [&u32::to_be_bytes(stream)[..], b"u=6, i"].concat();
        client.frame(Kind::PriorityUpdate, 0, 0, &payload);
    }
    server.client(&mut client);
    let mut text = vec![];
    for (stream, urgency) in [(1, Some(2)), (99, Some(6))] {
        client.headers(stream, &[&GET[..], &[("priority", "u=2")]].concat(), true);
        let bytes = core::mem::take(&mut client.bytes);
        let (_, event) = server.connection.handle_input(&bytes, &mut text, START, &LIMITS);
        let Event::Request(request) = event else { panic!("{event:?}") };
        assert_eq!(request.wish.urgency, urgency);
    }
}

#[test]
fn windows_of_the_client_are_kept() {
    let (mut server, mut client) = pair();
    server.client(client.get(1).get(3));
    let connection = &mut server.connection;
    let mut sent = 0;
    while connection.data_room(1) > 0 {
        let room = connection.data_room(1);
        assert!(connection.data_head(1, room, false).is_some());
        sent += room;
    }
    assert_eq!((sent, connection.data_room(3), connection.is_blocked()), (65_535, 0, true));
    server.events();
    // INITIAL_WINDOW_SIZE changes the windows of streams, and not that of the connection.
    client.frame(Kind::Settings, 0, 0, &[0, 4, 0, 0, 0, 10]).window(0, 100).window(1, 65_530);
    client.frame(Kind::Settings, 0, 0, &[0, 4, 0, 1, 0, 0]);
    assert_eq!(server.client(&mut client).events(), ["0: room", "1: room", "0: room"]);
    assert_eq!((server.connection.data_room(1), server.connection.data_room(3)), (100, 100));
    client.frame(Kind::Settings, 0, 0, &[0, 4, 0, 0, 0, 0, 0, 5, 0, 1, 0, 0]);
    server.client(&mut client);
    assert_eq!((server.connection.data_room(1), server.connection.data_room(3)), (0, 0));
}

#[test]
fn windows_of_streams_are_what_their_consumers_take() {
    let mut connection = Connection::new(START, &LIMITS);
    let mut client = Client::new();
    client.post(1);
    for _ in 0..3 {
        client.data(1, &[b'x'; 16_384], false);
    }
    let mut text = vec![];
    let mut rest = &client.bytes[..];
    let mut received = 0;
    loop {
        let (len, event) = connection.handle_input(rest, &mut text, START, &LIMITS);
        rest = &rest[len..];
        match event {
            Event::Body { bytes, .. } => received += bytes.len(),
            Event::Partial => break,
            _ => {}
        }
    }
    assert_eq!(received, 49_152);
    connection.control().clear();
    // The consumer is full: nothing is allowed.
    connection.handle_taken(1, 0, 0, START);
    assert_eq!(frames(connection.control()), [""; 0]);
    // It has taken a part and has room for less than the window was.
    connection.handle_taken(1, 40_000, 40_000, START + Duration::from_secs(1));
    let window = 40_000 - (65_535 - 49_152);
    assert_eq!(
        frames(connection.control()),
        ["0: window 40000".to_owned(), format!("1: window {window}")]
    );
    // Beyond the window of the stream.
    let mut client = Client::new();
    client.bytes.clear();
    for _ in 0..3 {
        client.data(1, &[b'x'; 16_384], false);
    }
    let mut server = Server { connection, events: vec![], now: START };
    let events = server.client(&mut client).events();
    assert_eq!(events.len(), 1, "one body, whose room grows as it is taken");
}

#[test]
fn data_beyond_a_window_is_a_fault() {
    let mut connection = Connection::new(START, &LIMITS);
    let mut client = Client::new();
    client.post(1).post(3);
    for _ in 0..4 {
        client.data(1, &[b'x'; 16_384], false);
    }
    let mut text = vec![];
    let mut rest = &client.bytes[..];
    let fault = loop {
        let (len, event) = connection.handle_input(rest, &mut text, START, &LIMITS);
        rest = &rest[len..];
        match event {
            Event::Failed(fault) => break fault,
            Event::Partial => panic!("it was accepted"),
            _ => {}
        }
    };
    assert_eq!((fault.code, fault.attack), (ErrorCode::FlowControl, Some(Attack::Window)));
}

#[test]
fn rfc9113_6_8_an_end_in_two_steps_loses_no_request() {
    let (mut server, mut client) = pair();
    server.client(client.get(1));
    server.connection.shut_down();
    server.connection.shut_down();
    assert_eq!(server.control(), ["goaway 2147483647 NO_ERROR", "ping"]);
    // A request that was under way is processed, one after the confirmation is not.
    client.get(3).frame(Kind::Ping, flag::ACK, 0, DRAIN_PING).post(5).data(5, b"x", true);
    let events = server.client(&mut client).events();
    assert_eq!(events, ["1: GET / HTTP/2.0", "3: GET / HTTP/2.0"]);
    assert_eq!(server.control(), ["goaway 3 NO_ERROR"]);
    assert!(!server.connection.is_done());
    server.respond(1);
    server.respond(3);
    assert!(server.connection.is_done());
}

#[test]
fn streams_behind_the_end_are_dropped_and_counted() {
    let (mut server, mut client) = pair();
    server.client(client.get(1));
    server.connection.end(ErrorCode::NoError, "");
    server.events();
    let dropped = (0..2 * IDLE_FRAMES_MAX)
        .take_while(|round| server.client(client.get(2 * round + 3)).events().is_empty());
    assert_eq!(dropped.count(), IDLE_FRAMES_MAX as usize);
}

#[test]
fn a_client_that_leaves_gets_its_responses() {
    let (mut server, mut client) = pair();
    client.get(1).frame(Kind::GoAway, 0, 0, &[0; 8]);
    assert_eq!(server.client(&mut client).events(), ["1: GET / HTTP/2.0", "goaway NO_ERROR"]);
    assert!(!server.connection.is_done());
    server.respond(1);
    assert!(server.connection.is_done());
}

#[test]
fn streams_beyond_the_limit_are_refused_and_may_come_again() {
    let (mut server, mut client) = pair();
    for number in 0..=STREAMS_MAX {
        client.get(2 * number + 1);
    }
    let events = server.client(&mut client).events();
    assert_eq!(events.last().map(String::as_str), Some("201: refused"));
    assert_eq!(server.control(), ["201: REFUSED_STREAM"]);
    server.respond(1);
    assert_eq!(server.client(client.get(203)).events(), ["203: GET / HTTP/2.0"]);
}

/// The attack of a connection that gets the same frames again and again, and the number of times until then.
fn attack(mut send: impl FnMut(&mut Client, u32), responds: bool) -> (Attack, u32) {
    let (mut server, mut client) = pair();
    for round in 0..100_000 {
        send(&mut client, 2 * round + 1);
        let bytes = core::mem::take(&mut client.bytes);
        let mut rest = &bytes[..];
        let mut text = vec![];
        loop {
            let (len, event) = server.connection.handle_input(rest, &mut text, START, &LIMITS);
            rest = &rest[len..];
            match event {
                Event::Failed(fault) => return (fault.attack.expect("an attack"), round),
                Event::Partial => break,
                Event::Body { stream, bytes } => {
                    let size = u32::try_from(bytes.len()).unwrap();
                    server.connection.handle_taken(stream, size, 1 << 20, START);
                }
                _ => {}
            }
        }
        if responds {
            server.connection.control().clear();
        }
        assert!(server.connection.memory() < 128 * 1024);
    }
    panic!("no limit")
}

#[test]
fn attacks_are_stopped() {
    let post = |c: &mut Client, stream: u32| {
        if stream == 1 {
            c.post(1);
        }
    };
    // CVE-2023-44487
    let (found, rounds) = attack(
        |c, stream| {
            c.get(stream).reset(stream);
        },
        true,
    );
    assert_eq!((found, rounds), (Attack::Resets, RESETS_MAX));
    // CVE-2025-8671: the client makes the server reset its streams.
    for make_reset in [
        (|c, stream| {
            c.get(stream).window(stream, 0);
        }) as fn(&mut Client, u32),
        |c, stream| {
            c.get(stream).window(stream, 0x7fff_ffff);
        },
        |c, stream| {
            c.get(stream).data(stream, b"x", true);
        },
        |c, stream| {
            c.headers(stream, &GET[..1], true);
        },
        |c, stream| {
            c.post(stream).headers(stream, &GET, true);
        },
    ] {
        assert_eq!(attack(make_reset, true), (Attack::Resets, RESETS_MAX));
    }
    // Streams that stay open: refused ones count.
    let (found, rounds) = attack(
        |c, stream| {
            c.get(stream);
        },
        true,
    );
    assert_eq!((found, rounds), (Attack::Resets, RESETS_MAX + STREAMS_MAX));
    // Frames that carry nothing.
    for idle in [
        (|c, _| {
            c.frame(Kind::Ping, 0, 0, &[0; 8]);
        }) as fn(&mut Client, u32),
        |c, _| {
            c.frame(Kind::Settings, 0, 0, b"");
        },
        |c, stream| {
            c.frame(Kind::Priority, 0, stream, &[0; 5]);
        },
        |c, _| {
            c.frame(Kind::PriorityUpdate, 0, 0, &[0, 0, 0, 1]);
        },
        |c, _| {
            c.window(0, 1);
        },
        |c, _| {
            c.frame(Kind::Unknown(0xaa), 0, 0, b"");
        },
        |c, _| {
            c.frame(Kind::GoAway, 0, 0, &[0; 8]);
        },
    ] {
        let (found, rounds) = attack(idle, true);
        assert_eq!(found, Attack::IdleFrames);
        assert!((IDLE_FRAMES_MAX - 2..=IDLE_FRAMES_MAX).contains(&rounds), "{rounds}");
    }
    for data in [&b""[..], b"x", &[255; 63]] {
        let (found, rounds) = attack(
            |c, stream| {
                post(c, stream);
                c.data(1, data, false);
            },
            true,
        );
        assert_eq!(found, Attack::IdleFrames);
        assert!(rounds <= IDLE_FRAMES_MAX + IDLE_FRAMES_PER_REQUEST, "{rounds}");
    }
    let padded = [&[255][..], b"x", &[0; 255]].concat();
    let padding = |c: &mut Client, stream| {
        post(c, stream);
        c.frame(Kind::Data, flag::PADDED, 1, &padded);
    };
    assert_eq!(attack(padding, true).0, Attack::IdleFrames);
    // Heads of a stream that was reset.
    let (found, rounds) = attack(
        |c, stream| {
            if stream == 1 {
                c.get(1).window(1, 0);
            }
            c.headers(1, &GET, true);
        },
        true,
    );
    assert_eq!(found, Attack::IdleFrames);
    assert!(rounds <= IDLE_FRAMES_MAX + IDLE_FRAMES_PER_REQUEST + 1, "{rounds}");
    // Answers that nobody takes.
    let (found, rounds) = attack(
        |c, _| {
            c.frame(Kind::Ping, 0, 0, &[0; 8]);
        },
        false,
    );
    assert_eq!(found, Attack::Control);
    assert!(rounds as usize <= CONTROL_BYTES_MAX / 17 + 1, "{rounds}");
    // One header block.
    let (found, rounds) = attack(
        |c, stream| {
            let kind = if stream == 1 { Kind::Headers } else { Kind::Continuation };
            c.frame(kind, 0, 1, b"");
        },
        true,
    );
    assert_eq!((found, rounds), (Attack::Continuations, CONTINUATIONS_MAX + 1));
    let (found, rounds) = attack(
        |c, stream| {
            let kind = if stream == 1 { Kind::Headers } else { Kind::Continuation };
            c.frame(kind, 0, 1, &[0; 16_000]);
        },
        true,
    );
    assert_eq!((found, rounds), (Attack::Block, 2));
    let (found, _) = attack(
        |c, stream| {
            c.frame(Kind::Headers, 5, stream, &[0x82; 1001]);
        },
        true,
    );
    assert_eq!(found, Attack::Fields);
    let (found, _) = attack(
        |c, _| {
            c.frame(Kind::Settings, 0, 0, &[0; 6 * 33]);
        },
        true,
    );
    assert_eq!(found, Attack::Settings);
    let (found, _) = attack(
        |c, _| {
            c.window(0, 0x7000_0000);
        },
        true,
    );
    assert_eq!(found, Attack::Window);
}

#[test]
fn honest_clients_near_the_limits_go_on() {
    // A browser cancels the pictures of a page, again and again.
    let (mut server, mut client) = pair();
    for page in 0..50 {
        for picture in 0..100 {
            client.get(200 * page + 2 * picture + 1);
        }
        for picture in 0..100 {
            client.reset(200 * page + 2 * picture + 1);
        }
        server.client(&mut client);
        server.now += Duration::from_secs(4);
        let events = server.events();
        assert!(events.iter().all(|event| !event.contains("refused")), "{page}: {events:?}");
        assert!(server.connection.is_idle());
    }
    // A client receives data in small steps, and says so for each.
    let (mut server, mut client) = pair();
    server.client(client.get(1).window(0, 1 << 30).window(1, 1 << 30));
    server.events();
    for _ in 0..20_000 {
        assert!(server.connection.data_head(1, 16_384, false).is_some());
        for _ in 0..4 {
            client.window(0, 4096).window(1, 4096);
        }
        server.client(&mut client);
        assert!(server.events().iter().all(|event| event.ends_with("room")));
    }
    // Cookies of 8 KiB, in crumbs.
    let (mut server, mut client) = pair();
    let crumb = ("cookie", "a-name-of-a-cookie=and-a-value-of-some-length-0001");
    client.headers(1, &[&GET[..], &[crumb; 160]].concat(), true);
    assert_eq!(server.client(&mut client).events(), ["1: GET / HTTP/2.0"]);
}

#[test]
fn long_heads_are_answered_and_the_connection_goes_on() {
    let (mut server, mut client) = pair();
    let long = "e".repeat(20_000);
    let long = long.as_str();
    let block = client.block(&[&GET[..], &[("a", long), ("a", long)]].concat());
    assert!((16_000..32_000).contains(&block.len()));
    client.frame(Kind::Headers, 1, 1, &block[..16_000]);
    client.frame(Kind::Continuation, flag::END_HEADERS, 1, &block[16_000..]).get(3);
    let expected =
        ["1: 431 Request Header Fields Too Large: a head that is too long", "3: GET / HTTP/2.0"];
    assert_eq!(server.client(&mut client).events(), expected);
    let (mut server, mut client) = pair();
    client.headers(1, &[&GET[..], &[("a", "b"); 101]].concat(), true).get(3);
    let expected = ["1: 431 Request Header Fields Too Large: too many fields", "3: GET / HTTP/2.0"];
    assert_eq!(server.client(&mut client).events(), expected);
    assert_eq!(server.respond(1).len(), 1);
}

/// The same bytes of a block may mean something else after another block.
#[test]
fn a_repeated_block_means_what_the_table_says() {
    let (mut server, mut client) = pair();
    let mut stream = 1;
    let mut ask = |block: &[u8], flags: u8| {
        client.frame(Kind::Headers, flag::END_HEADERS | flags, stream, block);
        let (bytes, mut text) = (core::mem::take(&mut client.bytes), Vec::new());
        let (_, event) = server.connection.handle_input(&bytes, &mut text, START, &LIMITS);
        let shown = match &event {
            Event::Request(request) => {
                assert_eq!(request.stream, stream);
                let host = request.head.host().unwrap_or_default().escape_ascii().to_string();
                format!("{host}{}", if request.has_ended { "" } else { "…" })
            }
            event => show(event),
        };
        if server.connection.is_open(stream) {
            server.connection.reset(stream, ErrorCode::NoError);
        }
        stream += 2;
        shown
    };
    // :method GET, :scheme https, :path /, and an :authority: added to the table, or its newest field.
    let adds = |host| [0x82, 0x87, 0x84, 0x41, 1, host];
    let repeated = [0x82, 0x87, 0x84, 0x80 | 62];
    assert_eq!(ask(&adds(b'a'), flag::END_STREAM), "a");
    assert_eq!([(); 3].map(|()| ask(&repeated, flag::END_STREAM)), ["a", "a", "a"]);
    assert_eq!([(); 2].map(|()| ask(&repeated, 0)), ["a…", "a…"]);
    assert_eq!(ask(&adds(b'b'), flag::END_STREAM), "b");
    assert_eq!([(); 2].map(|()| ask(&repeated, flag::END_STREAM)), ["b", "b"]);
    // The table is emptied.
    assert_eq!(ask(&[0x20, 0x82, 0x87, 0x84, 0x01, 1, b'c'], flag::END_STREAM), "c");
    let fault = ask(&repeated, flag::END_STREAM);
    assert!(fault.contains("COMPRESSION_ERROR"), "{fault}");
}

#[test]
fn an_idle_connection_needs_little_memory() {
    let (mut server, mut client) = pair();
    server.client(client.get(1));
    server.respond(1);
    server.connection.shrink();
    assert!(server.connection.memory() <= 512, "{}", server.connection.memory());
}

/// A frame of a client, more or less valid.
fn any_frame() -> impl Strategy<Value = (Kind, u8, u32, Vec<u8>)> {
    let kind = prop_oneof![
        6 => Just(0u8), 6 => Just(1), 1 => Just(2), 2 => Just(3), 2 => Just(4), 1 => Just(6), 1 => Just(7),
        3 => Just(8), 2 => Just(9), 1 => Just(0x10), 1 => any::<u8>(),
    ];
    let flags =
        prop_oneof![3 => Just(4u8), 3 => Just(5), 2 => Just(0), 1 => Just(1), 1 => any::<u8>()];
    let stream = prop_oneof![4 => 0u32..12, 1 => any::<u32>().prop_map(|stream| stream >> 1)];
    let payload = prop_oneof![
        2 => Just(b"\x82\x84\x87\x41\x01h".to_vec()),
        1 => Just(b"\x83\x84\x87\x41\x01h\x0f\x0d\x015".to_vec()),
        1 => Just(vec![0, 0, 0, 9]),
        1 => Just(vec![0; 8]),
        1 => Just(vec![0, 4, 0, 0, 0, 9]),
        2 => proptest::collection::vec(any::<u8>(), 0..40),
        1 => (0usize..16_384).prop_map(|len| vec![7; len]),
    ];
    (kind, flags, stream, payload)
        .prop_map(|(kind, flags, stream, payload)| (Kind::of_number(kind), flags, stream, payload))
}

proptest! {
    #[test]
    fn the_cuts_between_packets_change_nothing(
        frames in proptest::collection::vec(any_frame(), 0..20),
        sizes in proptest::collection::vec(prop_oneof![Just(1usize), 1usize..30, 1usize..9000], 0..60),
    ) {
        let mut client = Client::new();
        for (kind, flags, stream, payload) in frames {
            client.frame(kind, flags, stream, &payload);
        }
        let bytes = client.bytes;
        let mut whole = Server::new();
        let whole_events = whole.take(&bytes, &[]).events();
        let mut pieces = Server::new();
        prop_assert_eq!(pieces.take(&bytes, &sizes).events(), whole_events);
        let control = |server: &mut Server| {
            let frames = server.control();
            frames.into_iter().filter(|frame| !frame.contains("window")).collect::<Vec<_>>()
        };
        prop_assert_eq!(control(&mut pieces), control(&mut whole));
    }

    /// Any operations of both sides. Checked: nothing panics, no window is exceeded, memory is bounded.
    #[test]
    fn any_operations_keep_the_bounds(
        operations in proptest::collection::vec(
            (0u8..14, 0u32..12, any_frame(), any::<u16>(), any::<bool>()), 0..80),
    ) {
        let (mut server, _) = pair();
        let mut text = vec![];
        let mut untaken = 0u32;
        for (operation, stream, (kind, flags, id, payload), number, flag) in operations {
            let connection = &mut server.connection;
            let mut out = vec![];
            let head = ResponseHead::new(Status::Ok);
            match operation {
                0 => drop(connection.respond(stream, &head, DATE, flag, &mut out)),
                1 => {
                    let room = connection.data_room(stream);
                    if connection.is_open(stream) {
                        let length = room.min(number.into());
                        prop_assert!(connection.data_head(stream, length, flag).is_some());
                        prop_assert_eq!(
                            connection.data_room(stream), connection.data_room(stream).min(room));
                        if flag {
                            connection.finish(stream);
                        }
                    } else {
                        prop_assert_eq!(room, 0);
                    }
                }
                2 => connection.reset(stream, ErrorCode::Cancel),
                3 if number < 100 => connection.shut_down(),
                4 => {
                    let taken = untaken.min(number.into());
                    untaken -= taken;
                    connection.handle_taken(stream, taken, number.into(), server.now);
                }
                5 => server.now += Duration::from_millis(number.into()),
                6 => connection.shrink(),
                7 if flag => connection.control().clear(),
                8 => connection.discard(stream, server.now),
                9 => connection.handle_deadline(server.now),
                _ => {
                    let mut bytes = vec![];
                    frame::push(kind, flags, id, &payload, &mut bytes);
                    let mut rest = &bytes[..];
                    while !matches!(connection.input, Input::Closed) {
                        let (len, event) =
                            connection.handle_input(rest, &mut text, server.now, &LIMITS);
                        rest = &rest[len..];
                        match event {
                            Event::Body { bytes, .. } => untaken += u32::try_from(bytes.len()).unwrap(),
                            Event::Partial => break,
                            _ => {}
                        }
                    }
                    prop_assert!(connection.input == Input::Closed || rest.is_empty());
                }
            }
            prop_assert!(frames(&out).len() <= 3);
            let connection = &server.connection;
            prop_assert!(connection.streams() <= STREAMS_MAX as usize);
            prop_assert!(untaken <= connection.waiting_bytes_max());
            prop_assert!(connection.memory() <= 128 * 1024, "{}", connection.memory());
        }
    }
}

#[test]
fn constants_agree() {
    assert_eq!(STREAM_WINDOW, Settings::INITIAL.initial_window);
    assert_eq!(crate::INPUT_BYTES_MAX, 16_393);
}
