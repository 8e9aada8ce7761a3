//! Responses, whole and in pieces, and a client and a server that talk to each other.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use http::{FieldSection, ResponseHead, Status, Target, date};
use proptest::prelude::*;

use super::*;
use crate::response::tests::nearly_a_response;
use crate::server;
use crate::testing::{Arriving, SMALL, check_in_pieces};
use crate::write::{self, ConnectionOption, RequestStart, Wire};

/// Runs a connection on an input that arrives in pieces of these sizes and then ends. Returns the events
/// in short form. A request of the next method is sent whenever the connection is idle. Content is one
/// entry, in any number of pieces.
fn run(input: &[u8], methods: &[Method<'static>], limits: &Limits, sizes: &[usize]) -> Vec<String> {
    let mut connection = Connection::new();
    let mut happened = Vec::<String>::new();
    let mut content = String::new();
    let mut methods = methods.iter();
    let mut input = Arriving::new(input, sizes);
    loop {
        if connection.is_idle()
            && let Some(&method) = methods.next()
        {
            connection.begin(method);
        }
        let before = connection.clone();
        let (len, event) = connection.handle_input(input.rest(), limits);
        input.consume(len);
        match event {
            Event::Partial => {
                assert!(!connection.is_closed());
                if input.arrive() {
                    continue;
                }
                break;
            }
            Event::Interim(response) => {
                happened.push(format!("interim {}", response.status.code()))
            }
            Event::Response(response) => happened.push(format!(
                "{} {:?}{}",
                response.status.code(),
                response.framing,
                if response.keep_alive { "" } else { " last" },
            )),
            Event::Body(bytes) => {
                assert!(!bytes.is_empty());
                content += &String::from_utf8_lossy(bytes);
            }
            Event::Trailer(name, value) => {
                happened.push(format!("{}: {}", name.escape_ascii(), value.escape_ascii()));
            }
            Event::NoTrailers => happened.push("no trailers".to_string()),
            Event::BodyEnd => happened.push(format!("end {:?}", core::mem::take(&mut content))),
            Event::Faulty(fault) => {
                assert!(connection.is_closed());
                happened.push(fault.to_string());
            }
            Event::Closed => {
                assert!(connection.is_closed() && len == 0);
                break;
            }
        }
        assert!(len > 0 || connection != before, "no progress, no change");
    }
    let leftover = if connection.is_closed() { 0 } else { input.rest().len() };
    happened.push(format!("{:?} {content:?}", connection.handle_eof(leftover)));
    assert!(connection.is_closed());
    happened
}

#[track_caller]
fn check(input: &str, methods: &[Method<'static>], expected: &[&str]) {
    check_within(input, methods, &Limits::DEFAULT, expected);
}

#[track_caller]
fn check_within(input: &str, methods: &[Method<'static>], limits: &Limits, expected: &[&str]) {
    check_in_pieces(input, expected, |input, sizes| run(input, methods, limits, sizes));
}

const GET: &[Method<'static>] = &[Method::Get];
const OK: &str = "HTTP/1.1 200 OK\r\n";

#[test]
fn bodies_are_delivered_without_their_framing() {
    let length = format!("{OK}Content-Length: 5\r\n\r\nhello");
    check(&length, GET, &["200 Length(5)", "end \"hello\"", "Clean \"\""]);
    let chunks = format!(
        "{OK}Transfer-Encoding: chunked\r\n\r\n2;a=b\r\nhe\r\n3\r\nllo\r\n0\r\nA: b\r\n\r\n"
    );
    check(&chunks, GET, &["200 Chunked", "A: b", "end \"hello\"", "Clean \"\""]);
    let close = format!("{OK}\r\nhello");
    check(&close, GET, &["200 UntilClose last", "BodyEnd \"hello\""]);
    check(&format!("{OK}\r\n"), GET, &["200 UntilClose last", "BodyEnd \"\""]);
}

#[test]
fn rfc9112_9_3_a_connection_takes_one_request_after_another() {
    let none = format!("{OK}Content-Length: 5\r\n\r\n");
    let input = none.clone() + &none + "hello" + "HTTP/1.1 204 \r\n\r\n";
    check(
        &input,
        &[Method::Head, Method::Post, Method::Get],
        &["200 None", "200 Length(5)", "end \"hello\"", "204 None", "Clean \"\""],
    );
}

#[test]
fn rfc9112_9_6_nothing_is_read_behind_the_last_response() {
    let input = format!("{OK}Connection: close\r\nContent-Length: 2\r\n\r\nhi{OK}");
    check(&input, GET, &["200 Length(2) last", "end \"hi\"", "Clean \"\""]);
    let input = "HTTP/1.1 101 \r\nUpgrade: x\r\n\r\nother protocol";
    check(input, GET, &["101 None last", "Clean \"\""]);
    check(&format!("{OK}\r\ntunnel"), &[Method::Connect], &["200 None last", "Clean \"\""]);
}

#[test]
fn rfc9110_15_2_interim_responses_come_before_the_final_one() {
    let interim = str::from_utf8(write::CONTINUE).expect("ASCII").to_string()
        + "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n";
    let last = format!("{OK}Content-Length: 0\r\n\r\n");
    let input = interim + &last;
    check(&input, GET, &["interim 100", "interim 103", "200 None", "Clean \"\""]);
    // A server that works for long says so again and again.
    let many = "HTTP/1.1 102 \r\n\r\n".repeat(1000);
    let mut expected = ["interim 102"; 1000].to_vec();
    expected.extend(["200 None", "Clean \"\""]);
    check(&(many + &last), GET, &expected);
    // Sixteen of the most bytes are permitted.
    const LEN: usize = INTERIM_BYTES_MAX as usize / 16;
    let fixed = "HTTP/1.1 103 \r\nLink: \r\n\r\n".len();
    let hints = format!("HTTP/1.1 103 \r\nLink: {}\r\n\r\n", "x".repeat(LEN - fixed));
    let limits = Limits { head_bytes_max: LEN, ..Limits::DEFAULT };
    let most = hints.repeat(16);
    let mut expected = ["interim 103"; 16].to_vec();
    expected.extend(["200 None", "Clean \"\""]);
    check_within(&(most.clone() + &last), GET, &limits, &expected);
    expected.truncate(16);
    expected.extend(["too many interim responses", "Clean \"\""]);
    check_within(&(most + "HTTP/1.1 100 \r\n\r\n"), GET, &limits, &expected);
}

#[test]
fn bytes_that_answer_nothing_are_a_fault() {
    check("x", &[], &["bytes that answer no request", "Clean \"\""]);
    let input = format!("{OK}Content-Length: 2\r\n\r\nhi{OK}");
    check(
        &input,
        GET,
        &["200 Length(2)", "end \"hi\"", "bytes that answer no request", "Clean \"\""],
    );
}

#[test]
fn rfc9112_8_an_end_within_a_message_is_told_from_one_between() {
    check("", &[], &["Clean \"\""]);
    check("", GET, &["Unanswered \"\""]);
    check("HTTP/1.1 2", GET, &["Truncated \"\""]);
    check("HTTP/1.1 100 \r\n\r\n", GET, &["interim 100", "Truncated \"\""]);
    let input = format!("{OK}Content-Length: 5\r\n\r\nhell");
    check(&input, GET, &["200 Length(5)", "Truncated \"hell\""]);
    let input = format!("{OK}Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n");
    check(&input, GET, &["200 Chunked", "Truncated \"hello\""]);
}

/// An odd line is understood if it has one meaning, and its connection gets no further request.
#[test]
fn rfc9112_2_2_odd_lines_are_understood_and_end_the_connection() {
    let chunked = |body: &str| format!("{OK}Transfer-Encoding: chunked\r\n\r\n{body}");
    for (body, trailers) in [
        ("5\nhello\r\n0\r\n\r\n", &[][..]),
        ("5\r\nhello\n0\r\n\r\n", &[]),
        ("5\t\nhello\r\n0 \r\n\r\n", &[]),
        ("5\r\nhello\r\n0\n\n", &[]),
        ("5\r\nhello\r\n0\r\n\n", &[]),
        // A trailer that is not well-formed is left out.
        ("5\r\nhello\r\n0\r\nA: b\r\n c\r\nD: e\r\n\r\n", &["D: e"]),
        ("5\r\nhello\r\n0\r\nA : b\r\nD: e\r\n\r\n", &["D: e"]),
        ("5\r\nhello\r\n0\r\nA: b\nD: \x01\r\n: f\r\n\r\n", &[]),
        (&format!("{0}5\nhello\r\n{0}\r\n\r\n", "0".repeat(200)), &[]),
        // The content is whole, whatever follows.
        (
            &format!("5\r\nhello\r\n0\r\nA: b\r\nC: {}\r\n\r\n", "d".repeat(5000)),
            &["A: b", "no trailers"],
        ),
    ] {
        let expected = [&["200 Chunked"], trailers, &["end \"hello\"", "Clean \"\""]].concat();
        check(&chunked(body), &[Method::Get; 2], &expected);
    }
    // A size that is filled up is no odd line.
    for body in [
        "5  \r\nhello\r\n0 \r\n\r\n",
        &format!("{0}5\r\nhello\r\n{0}\r\n\r\n", "0".repeat(200)),
        &format!("{0}5;a=b\r\nhello\r\n0\r\n\r\n", "0".repeat(20)),
    ] {
        let expected = ["200 Chunked", "end \"hello\"", "Unanswered \"\""];
        check(&chunked(body), &[Method::Get; 2], &expected);
    }
    for (body, fault) in [
        ("5\rhello\r\n0\r\n\r\n", "a CR without LF"),
        ("5;a=b\nhello\r\n0\r\n\r\n", "a malformed chunk-size"),
        ("5 5\r\nhello\r\n0\r\n\r\n", "a malformed chunk-size"),
        ("-5\r\nhello\r\n0\r\n\r\n", "a malformed chunk-size"),
        ("\nhello", "a malformed chunk-size"),
        ("10000000000000000\r\nhello", "a malformed chunk-size"),
        ("00000000000000005;a=b\nhello", "a malformed chunk-size"),
        ("00000000000000005 5\r\nhello", "a malformed chunk-size"),
        (&format!("{}5\r\nhello", "0".repeat(300)), "a chunk-size line that is too long"),
    ] {
        check(&chunked(body), GET, &["200 Chunked", fault, "Clean \"\""]);
    }
    for (body, fault) in [
        ("4\r\nhello\r\n0\r\n\r\n", "a chunk longer than its size"),
        ("5\r\nhello!\r\n", "a chunk longer than its size"),
        ("5\r\nhello\r\n0\r\nA: b\rc\r\n\r\n", "a CR without LF"),
        ("5\r\nhello\r\n0\r\nContent-Length : 5\r\n\r\n", "a malformed field of the framing"),
    ] {
        let happened = run(chunked(body).as_bytes(), GET, &Limits::DEFAULT, &[usize::MAX]);
        assert!(happened.contains(&String::from(fault)), "{body:?}: {happened:?}");
    }
    // The head says it, and what follows is not looked at.
    for head in [
        "HTTP/1.1 204 \r\nTransfer-Encoding: chunked\r\n",
        "HTTP/1.1 204 \r\nContent-Length: 5\r\n",
    ] {
        check(
            &format!("{head}\r\n0\r\n\r\n{OK}"),
            &[Method::Get; 2],
            &["204 None last", "Clean \"\""],
        );
    }
    let interim =
        format!("HTTP/1.1 103 \r\nContent-Length: 5\r\n\r\n{OK}Content-Length: 0\r\n\r\n");
    check(&interim, &[Method::Get; 2], &["interim 103", "200 None last", "Clean \"\""]);
}

#[test]
fn content_of_known_length_may_go_another_way() {
    let head = "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n";
    let mut connection = Connection::new();
    connection.begin(Method::Get);
    assert_eq!(connection.content_left(), None);
    let (len, _) = connection.handle_input(head.as_bytes(), &Limits::DEFAULT);
    assert_eq!((len, connection.content_left()), (head.len(), Some(10)));
    let (_, event) = connection.handle_input(b"abc", &Limits::DEFAULT);
    assert_eq!((event, connection.content_left()), (Event::Body(b"abc"), Some(7)));
    connection.pass(6);
    assert_eq!(connection.clone().handle_eof(0), Eof::Truncated);
    connection.pass(1);
    assert_eq!(connection.handle_input(b"", &Limits::DEFAULT), (0, Event::BodyEnd));
    assert!(connection.is_idle());
    connection.begin(Method::Get);
    let chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    let (_, event) = connection.handle_input(chunked, &Limits::DEFAULT);
    assert!(matches!(event, Event::Response(_)) && connection.content_left().is_none());
}

#[test]
#[should_panic(expected = "no more content than is to come")]
fn no_more_content_goes_another_way_than_there_is() {
    let mut connection = Connection::new();
    connection.begin(Method::Get);
    let head = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n";
    let _ = connection.handle_input(head, &Limits::DEFAULT);
    connection.pass(11);
}

#[test]
fn content_is_limited_however_it_is_framed() {
    let limits = Limits { body_bytes_max: 4, ..Limits::DEFAULT };
    let (fault, clean) = ("a body that is too long", "Clean \"\"");
    let input = format!("{OK}Content-Length: 5\r\n\r\nhello");
    check_within(&input, GET, &limits, &[fault, clean]);
    let input = format!("{OK}Transfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n");
    check_within(&input, GET, &limits, &["200 Chunked", fault, "Clean \"he\""]);
    let input = format!("{OK}\r\nhello");
    check_within(&input, GET, &limits, &["200 UntilClose last", fault, "Clean \"hell\""]);
    let input = format!("{OK}\r\nhell");
    check_within(&input, GET, &limits, &["200 UntilClose last", "BodyEnd \"hell\""]);
}

#[test]
#[should_panic(expected = "a request before the end of the response to another")]
fn requests_are_not_pipelined() {
    let mut connection = Connection::new();
    connection.begin(Method::Get);
    connection.begin(Method::Get);
}

proptest! {
    #[test]
    fn events_do_not_depend_on_where_the_input_is_cut(
        responses in proptest::collection::vec(nearly_a_response(), 0..4),
        sizes in proptest::collection::vec(1usize..40, 1..20),
        heads in proptest::collection::vec(any::<bool>(), 0..5),
        small: bool,
    ) {
        let input = responses.concat();
        let methods: Vec<_> =
            heads.iter().map(|&head| if head { Method::Head } else { Method::Get }).collect();
        let limits =
            if small { Limits { body_bytes_max: 7, ..SMALL } } else { Limits::DEFAULT };
        let whole = run(&input, &methods, &limits, &[usize::MAX]);
        prop_assert_eq!(&run(&input, &methods, &limits, &sizes), &whole);
        prop_assert_eq!(&run(&input, &methods, &limits, &[1]), &whole);
    }

    #[test]
    fn a_client_reads_the_responses_that_a_server_writes(
        code in 200u16..1000,
        is_head: bool,
        body in "[ -~]{0,40}",
        pieces in chunk_sizes(),
        chunked: bool,
        last: bool,
        fields in proptest::collection::vec(("X-[A-Za-z-]{1,8}", "[!-~]?([ -~]{0,9}[!-~])?"), 0..5),
    ) {
        let mut extra = FieldSection::EMPTY;
        for (name, value) in &fields {
            extra.push(name.as_bytes(), value.as_bytes());
        }
        let status = Status::from_code(code).expect("valid");
        let has_body = !is_head && !status.is_bodiless();
        let head = ResponseHead {
            content_length: Some(body.len() as u64),
            extra,
            ..ResponseHead::new(status)
        };
        let connection = if last { ConnectionOption::Close } else { ConnectionOption::Unsaid };
        let mut out = Vec::new();
        write::response_head(&head, &date::format(0), Wire { connection, chunked }, &mut out);
        if has_body {
            write_body(body.as_bytes(), chunked, &pieces, &mut out);
        }

        let method = if is_head { Method::Head } else { Method::Get };
        let mut client = Connection::new();
        client.begin(method);
        let (len, event) = client.handle_input(&out, &Limits::DEFAULT);
        let Event::Response(response) = event else { panic!("{event:?}") };
        prop_assert_eq!(response.status, status);
        prop_assert_eq!(response.keep_alive, !last);
        let received: Vec<_> =
            response.fields.iter().filter(|(name, _)| name.starts_with(b"X-")).collect();
        let received: Vec<_> = received.into_iter().map(|(name, value)| (*name, &**value)).collect();
        let sent: Vec<_> = head.extra.fields().collect();
        prop_assert_eq!(received, sent);
        let mut received = Vec::new();
        let mut at = len;
        while !client.is_idle() && !client.is_closed() {
            let (len, event) = client.handle_input(&out[at..], &Limits::DEFAULT);
            at += len;
            match event {
                Event::Body(bytes) => received.extend_from_slice(bytes),
                Event::Trailer(..) | Event::NoTrailers | Event::BodyEnd => {}
                other => panic!("{other:?}"),
            }
        }
        prop_assert_eq!(at, out.len());
        prop_assert_eq!(received, if has_body { body.as_bytes() } else { b"" });
    }

    #[test]
    fn a_server_reads_the_requests_that_a_client_writes(
        method in "GET|HEAD|POST|PUT|[A-Z-]{1,9}",
        path in "/[!-~&&[^?#]]{0,9}",
        query in proptest::option::of("[!-~&&[^#]]{0,9}"),
        body in "[ -~]{0,40}",
        pieces in chunk_sizes(),
        chunked: bool,
        last: bool,
        // Whitespace around a value is not part of it.
        value in "([!-~]([ -~]{0,9}[!-~])?)?",
    ) {
        let framing = match body.len() as u64 {
            _ if chunked => http::Framing::Unknown,
            length => http::Framing::of_length(length),
        };
        let head = RequestStart {
            method: Method::of_token(method.as_bytes()),
            target: Target::Origin {
                path: path.as_bytes(),
                query: query.as_deref().map(str::as_bytes),
            },
            host: b"h:1",
            framing,
        };
        let mut out = Vec::new();
        write::request_start(&head, &mut out);
        http::push_line(&mut out, b"X-A", value.as_bytes());
        let connection = if last { ConnectionOption::Close } else { ConnectionOption::Unsaid };
        write::request_end(connection, &mut out);
        if framing != http::Framing::None {
            write_body(body.as_bytes(), chunked, &pieces, &mut out);
        }

        let mut server = server::Connection::new();
        let (mut at, event) = server.handle_input(&out, &Limits::DEFAULT);
        let server::Event::Request(mut received) = event else { panic!("{event:?}") };
        prop_assert_eq!(received.head.method, head.method);
        prop_assert_eq!(received.head.target, head.target);
        prop_assert_eq!(received.head.host(), Some(head.host));
        prop_assert_eq!(received.head.framing, framing);
        prop_assert_eq!(received.keep_alive, !last);
        let sent = (&b"X-A"[..], value.as_bytes());
        prop_assert!(received.head.fields().any(|field| field == sent));
        prop_assert_eq!(server.decode_body(&mut received, u64::MAX), Ok(()));
        let mut content = Vec::new();
        while !server.is_idle() && !server.is_closed() {
            let (len, event) = server.handle_input(&out[at..], &Limits::DEFAULT);
            at += len;
            match event {
                server::Event::Body(bytes) => content.extend_from_slice(bytes),
                server::Event::Trailer(..) | server::Event::BodyEnd => {}
                other => panic!("{other:?}"),
            }
        }
        prop_assert_eq!(at, out.len());
        prop_assert_eq!(content, body.as_bytes());
    }
}

/// Sizes of the first chunks of a body.
fn chunk_sizes() -> impl Strategy<Value = Vec<usize>> {
    proptest::collection::vec(1usize..9, 0..9)
}

/// Appends a body, in chunks of these sizes if it is chunked, and the rest in one.
fn write_body(mut body: &[u8], chunked: bool, pieces: &[usize], out: &mut Vec<u8>) {
    if !chunked {
        return out.extend_from_slice(body);
    }
    for &piece in pieces.iter().chain(&[usize::MAX]) {
        let (chunk, rest) = body.split_at(piece.min(body.len()));
        if !chunk.is_empty() {
            write::chunk_head(chunk.len() as u64, out);
            out.extend_from_slice(chunk);
            out.extend_from_slice(write::CHUNK_END);
        }
        body = rest;
    }
    out.extend_from_slice(write::LAST_CHUNK);
}
