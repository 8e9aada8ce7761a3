//! Sequences of requests and bodies, whole and in pieces.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use proptest::prelude::*;

use super::*;
use crate::request::tests::nearly_a_request;

const GET: &str = "GET / HTTP/1.1\r\nHost: h\r\n\r\n";

fn post(fields: &str) -> String {
    format!("POST / HTTP/1.1\r\nHost: h\r\n{fields}\r\n")
}

/// Everything that happens when `input` arrives in pieces of `sizes` bytes (the last again and
/// again), in short form.
fn run_in_pieces(input: &[u8], limits: &Limits, sizes: &[usize]) -> Vec<String> {
    let mut connection = Connection::new();
    let mut happened = Vec::new();
    let mut sizes =
        sizes.iter().copied().chain(core::iter::repeat(sizes.last().copied().unwrap_or(1)));
    let mut consumed = 0;
    let mut arrived = 0;
    loop {
        let state_before = connection.clone();
        let (len, event) = connection.handle_input(&input[consumed..arrived], limits);
        assert!(len <= arrived - consumed);
        consumed += len;
        match event {
            Event::Partial => {
                assert!(!connection.is_closed());
                if arrived == input.len() {
                    break;
                }
                arrived = (arrived + sizes.next().unwrap_or(1).max(1)).min(input.len());
                continue;
            }
            Event::Request(request) => happened.push(format!(
                "{:?} {:?}{}{}",
                request.head.method,
                request.framing,
                if request.keep_alive { "" } else { " last" },
                if request.expect_continue { " expects" } else { "" },
            )),
            Event::Rejected(reject) => {
                happened.push(format!("{}: {}", reject.status.code(), reject.reason))
            }
            Event::BodySkipped => happened.push("skipped".to_owned()),
            Event::Closed => {
                happened.push("closed".to_owned());
                break;
            }
        }
        assert!(len > 0 || connection != state_before, "no progress, no change");
    }
    happened.push(format!("{:?}", connection.handle_eof(arrived - consumed)));
    happened
}

#[track_caller]
fn check(input: &str, limits: &Limits, expected: &[&str]) {
    for size in [usize::MAX, 1, 2, 3, 7] {
        let happened = run_in_pieces(input.as_bytes(), limits, &[size]);
        assert_eq!(happened, expected, "{input:?} in pieces of {size}");
    }
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
    check(&input, &Limits::DEFAULT, &["POST Chunked", "Truncated"]);
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
        check(&input, &Limits::DEFAULT, &["POST Chunked", "skipped", "GET None", "Clean"]);
    }
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
        check(&input, &Limits::DEFAULT, &["POST Chunked", reason, "closed", "Clean"]);
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
    let input = post("Content-Length: 4\r\nExpect: 100-continue\r\n") + "hell";
    check(&input, &limits, &["POST Length(4) expects", "skipped", "Clean"]);
    let input = post("Content-Length: 5\r\nExpect: 100-continue\r\n") + "hello";
    check(&input, &limits, &["POST Length(5) last", "closed", "Clean"]);
}

#[test]
fn a_chunked_body_that_becomes_too_long_is_rejected() {
    // Each chunk has 3 bytes of line, 1 of data and 2 of line end.
    let limits = Limits { body_bytes_max: 12, ..Limits::DEFAULT };
    let chunks = |count| post("Transfer-Encoding: chunked\r\n") + &"1\r\nx\r\n".repeat(count);
    let fits = chunks(2) + "0\r\n\r\n";
    check(&fits, &limits, &["POST Chunked", "skipped", "Clean"]);
    let reason = "413: a chunked body that is too long";
    check(&chunks(3), &limits, &["POST Chunked", reason, "closed", "Clean"]);
    let huge = post("Transfer-Encoding: chunked\r\n") + "ffffffffffffffff\r\n";
    check(&huge, &limits, &["POST Chunked", reason, "closed", "Clean"]);
    check(
        &huge,
        &Limits { body_bytes_max: u64::MAX, ..limits },
        &["POST Chunked", reason, "closed", "Clean"],
    );
}

#[test]
fn trailers_are_bounded_together() {
    let limits = Limits { trailer_bytes_max: 12, ..Limits::DEFAULT };
    let start = post("Transfer-Encoding: chunked\r\n") + "0\r\n";
    check(
        &(start.clone() + "A: bcde\r\n\r\n"),
        &Limits { trailer_bytes_max: 11, ..limits },
        &["POST Chunked", "skipped", "Clean"],
    );
    let reason = "431: a trailer section that is too long";
    check(
        &(start.clone() + "A: b\r\nA: b\r\n\r\n"),
        &limits,
        &["POST Chunked", reason, "closed", "Clean"],
    );
    check(&(start + "A: bcdefghijk"), &limits, &["POST Chunked", reason, "closed", "Clean"]);
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
    ) {
        let input = requests.concat();
        let limits = if small {
            Limits {
                head_bytes_max: 120,
                target_bytes_max: 12,
                fields_max: 4,
                body_bytes_max: 16,
                chunk_line_bytes_max: 7,
                trailer_bytes_max: 20,
            }
        } else {
            Limits::DEFAULT
        };
        let whole = run_in_pieces(&input, &limits, &[usize::MAX]);
        prop_assert_eq!(&run_in_pieces(&input, &limits, &sizes), &whole);
        prop_assert_eq!(&run_in_pieces(&input, &limits, &[1]), &whole);
    }

    #[test]
    fn arbitrary_bytes_never_panic(
        bytes: Vec<u8>,
        sizes in proptest::collection::vec(1usize..9, 1..9),
    ) {
        run_in_pieces(&bytes, &Limits::DEFAULT, &sizes);
    }
}
