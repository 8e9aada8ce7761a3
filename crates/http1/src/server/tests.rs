//! Sequences of requests and bodies, whole and in pieces.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use proptest::prelude::*;

use super::*;
use crate::request::tests::nearly_a_request;
use crate::testing::{Arriving, SMALL, check_in_pieces};

const GET: &str = "GET / HTTP/1.1\r\nHost: h\r\n\r\n";

fn post(fields: &str) -> String {
    format!("POST / HTTP/1.1\r\nHost: h\r\n{fields}\r\n")
}

/// Runs a connection on an input that arrives in pieces of these sizes, and returns the events in short
/// form. With `decode`, bodies are decoded, up to this many bytes; content is one entry, in any number of
/// pieces. Otherwise they are skipped.
fn run(input: &[u8], limits: &Limits, decode: Option<u64>, sizes: &[usize]) -> Vec<String> {
    let mut connection = Connection::new();
    let mut happened = Vec::<String>::new();
    let mut content = String::new();
    let mut input = Arriving::new(input, sizes);
    loop {
        let state_before = connection.clone();
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
            Event::Request(mut request) => {
                let refused = decode
                    .and_then(|bytes_max| connection.decode_body(&mut request, bytes_max).err());
                happened.push(format!(
                    "{:?} {:?}{}{}{}",
                    request.head.method,
                    request.head.framing,
                    if request.keep_alive { "" } else { " last" },
                    if request.expect_continue { " expects" } else { "" },
                    refused
                        .map(|refused| format!(" {}", refused.status.code()))
                        .unwrap_or_default(),
                ));
            }
            Event::Body(bytes) => {
                assert!(decode.is_some() && !bytes.is_empty());
                content += &String::from_utf8_lossy(bytes);
            }
            Event::Rejected(reject) => {
                happened.push(format!("{}: {}", reject.status.code(), reject.reason))
            }
            Event::Trailer(name, value) => {
                happened.push(format!("{}: {}", name.escape_ascii(), value.escape_ascii()));
            }
            Event::BodyEnd if decode.is_none() => happened.push("skipped".to_owned()),
            Event::BodyEnd => happened.push(format!("end {:?}", core::mem::take(&mut content))),
            Event::Closed => {
                happened.push("closed".to_owned());
                break;
            }
        }
        assert!(len > 0 || connection != state_before, "no progress, no change");
    }
    if !content.is_empty() {
        happened.push(format!("{content:?}"));
    }
    happened.push(format!("{:?}", connection.handle_eof(input.rest().len())));
    happened
}

/// Checks what happens if bodies are skipped.
#[track_caller]
fn check(input: &str, limits: &Limits, expected: &[&str]) {
    check_in_pieces(input, expected, |input, sizes| run(input, limits, None, sizes));
}

/// Checks what happens if bodies are decoded.
#[track_caller]
fn check_decoded(input: &str, bytes_max: u64, expected: &[&str]) {
    let decode = Some(bytes_max);
    check_in_pieces(input, expected, |input, sizes| run(input, &Limits::DEFAULT, decode, sizes));
}

#[test]
fn nothing_is_a_clean_end() {
    check("", &Limits::DEFAULT, &["Clean"]);
}

#[test]
fn rfc9112_9_3_2_requests_may_be_pipelined() {
    check(&GET.repeat(3), &Limits::DEFAULT, &["GET None", "GET None", "GET None", "Clean"]);
}

#[test]
fn rfc9112_8_an_end_within_a_message_is_told_from_one_between() {
    check("GET / HTT", &Limits::DEFAULT, &["Truncated"]);
    let input = post("Content-Length: 5\r\n") + "hell";
    check(&input, &Limits::DEFAULT, &["POST Length(5)", "Truncated"]);
    let input = post("Transfer-Encoding: chunked\r\n") + "5\r\nhello\r\n";
    check(&input, &Limits::DEFAULT, &["POST Unknown", "Truncated"]);
    check("GET / HTTP/1.0\r\n\r\n", &Limits::DEFAULT, &["GET None last", "closed", "Clean"]);
}

#[test]
fn rfc9112_9_3_unwanted_bodies_are_skipped() {
    let input = post("Content-Length: 5\r\n") + "hello" + GET;
    check(&input, &Limits::DEFAULT, &["POST Length(5)", "skipped", "GET None", "Clean"]);
    let input = post("Content-Length: 0\r\n") + GET;
    check(&input, &Limits::DEFAULT, &["POST None", "GET None", "Clean"]);
}

#[test]
fn rfc9112_7_1_chunked_bodies_are_skipped() {
    for body in [
        "0\r\n\r\n",
        "5\r\nhello\r\n0\r\n\r\n",
        "1\r\n\r\r\n2\r\n\r\n\r\n00\r\n\r\n",
        "5;a=b\r\nhello\r\n0;last\r\nA: b\r\nContent-Length: 7\r\n\r\n",
    ] {
        let input = post("Transfer-Encoding: chunked\r\n") + body + GET;
        check(&input, &Limits::DEFAULT, &["POST Unknown", "skipped", "GET None", "Clean"]);
    }
}

#[test]
fn wanted_bodies_are_delivered_without_their_framing() {
    let length = post("Content-Length: 5\r\n") + "hello";
    let chunked =
        post("Transfer-Encoding: chunked\r\n") + "3;x=y\r\nhel\r\n02\r\nlo\r\n0\r\nA: b\r\n\r\n";
    for (input, framing, trailer) in
        [(length, "Length(5)", None), (chunked, "Unknown", Some("A: b"))]
    {
        let request = format!("POST {framing}");
        let body = trailer.into_iter().chain(["end \"hello\"", "GET None", "Clean"]);
        let expected: Vec<_> = core::iter::once(&request[..]).chain(body).collect();
        check_decoded(&(input.clone() + GET), 5, &expected);
        check_decoded(&(input + GET), u64::MAX, &expected);
    }
    check_decoded(&(post("Content-Length: 0\r\n") + GET), 0, &["POST None", "GET None", "Clean"]);
    let empty = post("Transfer-Encoding: chunked\r\n") + "0\r\n\r\n" + GET;
    check_decoded(&empty, 0, &["POST Unknown", "end \"\"", "GET None", "Clean"]);
}

#[test]
fn a_wanted_body_is_delivered_even_if_its_request_is_the_last() {
    let input =
        post("Connection: close\r\nContent-Length: 2\r\nExpect: 100-continue\r\n") + "hi" + GET;
    check_decoded(&input, 5, &["POST Length(2) last expects", "end \"hi\"", "closed", "Clean"]);
    let input = "POST / HTTP/1.0\r\nContent-Length: 2\r\n\r\nhi".to_owned() + GET;
    check_decoded(&input, 5, &["POST Length(2) last", "end \"hi\"", "closed", "Clean"]);
}

#[test]
fn a_wanted_body_may_be_longer_than_one_that_is_skipped() {
    let limits = Limits { body_bytes_max: 4, ..Limits::DEFAULT };
    let input = post("Content-Length: 5\r\nExpect: 100-continue\r\n") + "hello" + GET;
    let expected = ["POST Length(5) expects", "end \"hello\"", "GET None", "Clean"];
    assert_eq!(run(input.as_bytes(), &limits, Some(5), &[3]), expected);
}

#[test]
fn a_wanted_body_that_is_too_long_is_refused() {
    let input = post("Content-Length: 5\r\n") + "hello" + GET;
    check_decoded(&input, 4, &["POST Length(5) 413", "end \"\"", "GET None", "Clean"]);
    let input = post("Transfer-Encoding: chunked\r\n") + "3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n";
    let expected = ["POST Unknown", "413: a body that is too long", "closed", "\"hel\"", "Clean"];
    check_decoded(&input, 4, &expected);
}

#[test]
fn the_end_of_the_connection_is_not_the_end_of_a_body() {
    let input = post("Content-Length: 5\r\n") + "hell";
    check_decoded(&input, 5, &["POST Length(5)", "\"hell\"", "Truncated"]);
    let input = post("Transfer-Encoding: chunked\r\n") + "5\r\nhello\r\n";
    check_decoded(&input, 5, &["POST Unknown", "\"hello\"", "Truncated"]);
}

#[test]
#[should_panic(expected = "not this request's body")]
fn a_body_can_be_asked_for_only_before_it_is_read() {
    let input = post("Content-Length: 2\r\n") + "hi";
    let mut connection = Connection::new();
    let (len, event) = connection.handle_input(input.as_bytes(), &Limits::DEFAULT);
    let Event::Request(mut request) = event else { panic!("{event:?}") };
    connection.handle_input(&input.as_bytes()[len..], &Limits::DEFAULT);
    let _ = connection.decode_body(&mut request, 2);
}

#[test]
fn malformed_chunks_close_the_connection() {
    for (body, reason) in [
        ("5\r\nhelloX0", "400: a chunk longer than its size"),
        ("5\r\nhello\rX", "400: a chunk longer than its size"),
        ("5\r\nhello\n", "400: a chunk longer than its size"),
        ("x\r\n", "400: a chunk without a size"),
        ("5\n", "400: a malformed chunk-size"),
        ("0\r\n\n", "400: a line that ends in LF without CR"),
        ("0\r\nA : b", "400: whitespace before the colon of a field line"),
        ("0\r\n b", "400: a folded field line"),
    ] {
        let input = post("Transfer-Encoding: chunked\r\n") + body + GET;
        check(&input, &Limits::DEFAULT, &["POST Unknown", reason, "closed", "Clean"]);
    }
}

#[test]
fn a_rejected_request_closes_the_connection() {
    let input = GET.to_owned() + "GET\r\n" + GET;
    let reason = "400: a request line that does not begin with a method";
    check(&input, &Limits::DEFAULT, &["GET None", reason, "closed", "Clean"]);
}

#[test]
fn rfc9112_9_6_nothing_is_read_after_the_last_request() {
    let input = "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n".to_owned() + GET;
    check(&input, &Limits::DEFAULT, &["GET None last", "closed", "Clean"]);
    let input = "GET / HTTP/1.0\r\nContent-Length: 5\r\n\r\nhello".to_owned() + GET;
    check(&input, &Limits::DEFAULT, &["GET Length(5) last", "closed", "Clean"]);
}

#[test]
fn a_body_announced_too_long_ends_the_connection() {
    let limits = Limits { body_bytes_max: 4, ..Limits::DEFAULT };
    let input = post("Content-Length: 4\r\n") + "hell";
    check(&input, &limits, &["POST Length(4)", "skipped", "Clean"]);
    let input = post("Content-Length: 5\r\n") + "hello";
    check(&input, &limits, &["POST Length(5) last", "closed", "Clean"]);
}

/// Its client may send it all the same, and what follows could be either.
#[test]
fn rfc9110_10_1_1_a_body_that_is_not_invited_ends_the_connection() {
    let expects = "Expect: 100-continue\r\n";
    for (framing, body, name) in [
        ("Content-Length: 5\r\n", "hello", "Length(5)"),
        ("Transfer-Encoding: chunked\r\n", "5\r\nhello\r\n0\r\n\r\n", "Unknown"),
    ] {
        let input = post(&format!("{framing}{expects}")) + body + GET;
        check(&input, &Limits::DEFAULT, &[&format!("POST {name} last"), "closed", "Clean"]);
        let expected = [&format!("POST {name} expects"), "end \"hello\"", "GET None", "Clean"];
        check_decoded(&input, 5, &expected);
    }
}

#[test]
fn a_chunked_body_that_becomes_too_long_is_rejected() {
    // Each chunk has 3 bytes of line, 1 of data and 2 of line end.
    let limits = Limits { body_bytes_max: 12, ..Limits::DEFAULT };
    let chunks = |count| post("Transfer-Encoding: chunked\r\n") + &"1\r\nx\r\n".repeat(count);
    let fits = chunks(2) + "0\r\n\r\n";
    check(&fits, &limits, &["POST Unknown", "skipped", "Clean"]);
    let reason = "413: a body that is too long";
    check(&chunks(3), &limits, &["POST Unknown", reason, "closed", "Clean"]);
    let huge = post("Transfer-Encoding: chunked\r\n") + "ffffffffffffffff\r\n";
    check(&huge, &limits, &["POST Unknown", reason, "closed", "Clean"]);
    check(
        &huge,
        &Limits { body_bytes_max: u64::MAX, ..limits },
        &["POST Unknown", reason, "closed", "Clean"],
    );
}

#[test]
fn trailers_are_bounded_together() {
    let limits = Limits { trailer_bytes_max: 12, ..Limits::DEFAULT };
    let start = post("Transfer-Encoding: chunked\r\n") + "0\r\n";
    check(
        &(start.clone() + "A: bcde\r\n\r\n"),
        &Limits { trailer_bytes_max: 11, ..limits },
        &["POST Unknown", "skipped", "Clean"],
    );
    let reason = "431: a trailer section that is too long";
    check(
        &(start.clone() + "A: b\r\nA: b\r\n\r\n"),
        &limits,
        &["POST Unknown", reason, "closed", "Clean"],
    );
    check(&(start + "A: bcdefghijk"), &limits, &["POST Unknown", reason, "closed", "Clean"]);
}

#[test]
fn closing_drops_what_comes() {
    for start in
        [String::new(), post("Content-Length: 5\r\n"), post("Transfer-Encoding: chunked\r\n")]
    {
        let mut connection = Connection::new();
        connection.handle_input(start.as_bytes(), &Limits::DEFAULT);
        assert_eq!(connection.is_idle(), start.is_empty());
        connection.close();
        assert!(!connection.is_idle());
        assert!(connection.is_closed());
        assert_eq!(
            connection.handle_input(GET.as_bytes(), &Limits::DEFAULT),
            (GET.len(), Event::Closed)
        );
        assert_eq!(connection.handle_input(b"", &Limits::DEFAULT), (0, Event::Closed));
        assert_eq!(connection.handle_eof(0), Eof::Clean);
    }
}

proptest! {
    #[test]
    fn events_do_not_depend_on_where_the_input_is_cut(
        requests in proptest::collection::vec(nearly_a_request(), 0..4),
        sizes in proptest::collection::vec(1usize..40, 1..20),
        small: bool,
        decode in proptest::option::of(0u64..40),
    ) {
        let input = requests.concat();
        let limits = if small { SMALL } else { Limits::DEFAULT };
        let whole = run(&input, &limits, decode, &[usize::MAX]);
        prop_assert_eq!(&run(&input, &limits, decode, &sizes), &whole);
        prop_assert_eq!(&run(&input, &limits, decode, &[1]), &whole);
    }

    #[test]
    fn arbitrary_bytes_never_panic(
        bytes: Vec<u8>,
        sizes in proptest::collection::vec(1usize..9, 1..9),
    ) {
        run(&bytes, &Limits::DEFAULT, None, &sizes);
    }
}
