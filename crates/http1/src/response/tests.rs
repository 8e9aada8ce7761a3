//! Response heads, accepted and refused.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use proptest::prelude::*;

use super::*;
use crate::testing::{PERSISTENCE, SMALL, check_prefixes, nearly};

fn parse_for<'a>(
    input: &'a str,
    method: Method<'_>,
) -> Result<Option<(Response<'a>, usize)>, Fault> {
    parse(input.as_bytes(), method, &Limits::DEFAULT)
}

#[track_caller]
fn accept_for<'a>(input: &'a str, method: Method<'_>) -> Response<'a> {
    match parse_for(input, method) {
        Ok(Some((response, len))) => {
            assert_eq!(len, input.len(), "length of {input:?}");
            response
        }
        other => panic!("{input:?}: {other:?}"),
    }
}

#[track_caller]
fn accept(input: &str) -> Response<'_> {
    accept_for(input, Method::Get)
}

#[track_caller]
fn refuse(input: &str) -> &'static str {
    match parse_for(input, Method::Get) {
        Err(fault) => fault.reason,
        other => panic!("{input:?}: {other:?}"),
    }
}

/// A head with this status line and these field lines, each with its line end.
fn with(line: &str, fields: &str) -> String {
    format!("HTTP/1.1 {line}\r\n{fields}\r\n")
}

#[test]
fn the_usual_response_is_understood() {
    let input =
        with("200 OK", "Server: x\r\nSet-Cookie: a\r\nContent-Length: 5\r\nset-cookie:b\r\n");
    let response = accept(&input);
    assert_eq!(response.status, Status::Ok);
    assert_eq!(response.version, Version::Http11);
    assert_eq!(response.framing, Framing::Length(5));
    assert_eq!(response.content_length, Some(5));
    assert!(response.keep_alive);
    let names: Vec<_> = response.fields.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, [&b"Server"[..], b"Set-Cookie", b"Content-Length", b"set-cookie"]);
    assert_eq!(response.lines(b"SET-COOKIE").collect::<Vec<_>>(), [b"a", b"b"]);
    assert_eq!(response.lines(b"Date").count(), 0);
}

#[test]
fn every_prefix_of_a_head_is_partial() {
    let input = with("404 Not here", "Content-Length: 0\r\nA: \t b \r\n");
    for end in 0..input.len() {
        let parsed = parse_for(&input[..end], Method::Get);
        assert_eq!(parsed, Ok(None), "{:?}", &input[..end]);
    }
    accept(&input);
}

#[test]
fn rfc9112_4_status_lines() {
    for (line, code, version) in [
        ("HTTP/1.1 200 OK", 200, Version::Http11),
        ("HTTP/1.0 200 OK", 200, Version::Http10),
        ("HTTP/1.7 200 OK", 200, Version::Http11),
        ("HTTP/1.1 200 ", 200, Version::Http11),
        ("HTTP/1.1 200", 200, Version::Http11),
        ("HTTP/1.1 299 \tn\u{f6}n ", 299, Version::Http11),
        ("HTTP/1.1 599 x", 599, Version::Http11),
        ("HTTP/1.1   200 OK", 200, Version::Http11),
        ("HTTP/1.1 200 O\x01\x7f K", 200, Version::Http11),
        ("HTTP/2.0 200 OK", 200, Version::Http11),
        ("HTTP/2 200 OK", 200, Version::Http11),
        ("HTTP/3 200", 200, Version::Http11),
        // RFC 9110 §15: not valid, and taken for a 5xx.
        ("HTTP/1.1 600 x", 600, Version::Http11),
        ("HTTP/1.1 999 x", 999, Version::Http11),
    ] {
        for start in ["", "\r\n", "\n\r\n"] {
            let input = format!("{start}{line}\r\n\r\n");
            let response = accept(&input);
            assert_eq!((response.status.code(), response.version), (code, version), "{input:?}");
            assert!(start.is_empty() || !response.keep_alive, "{input:?}");
            check_prefixes(input.as_bytes(), |prefix| parse(prefix, Method::Get, &Limits::DEFAULT))
                .expect("the same verdict");
        }
    }
    for input in [
        " ",
        "x",
        "http/",
        "HTTP/2 x",
        "HTTP/2\r",
        "HTTP/a",
        "HTTP/1,",
        "HTTP/1.x",
        "HTTP/1.1\r",
        "HTTP/0.9 200",
        "HTTP/10.1",
        "HTTP/1.10",
        "HTTP/1 200",
        "ICY 200 OK",
        "\rHTTP/1.1 200 OK\r\n",
        "\r\n\rx",
        "\r\n HTTP/1.1 200 OK\r\n",
        "HTTP/1.1  x",
        "HTTP/1.1 2a",
        "HTTP/1.1 2000",
        "HTTP/1.1 200OK",
        "HTTP/1.1 200\t",
        "HTTP/1.1 200\rx",
        "HTTP/1.1 200 OK\rx",
        "HTTP/1.1 200 O\x01K\rx",
        "HTTP/1.1 200 \0",
        "HTTP/1.1 099 ",
        "HTTP/1.1 000 ",
    ] {
        refuse(input);
    }
}

#[test]
fn rfc9112_6_3_the_framing_of_a_body() {
    const LENGTH: &str = "Content-Length: 5\r\n";
    const CHUNKS: &str = "Transfer-Encoding: chunked\r\n";
    for (method, line, fields, framing, keep_alive) in [
        // Item 1: never a body.
        (Method::Head, "200 OK", LENGTH, Framing::None, true),
        (Method::Head, "200 OK", CHUNKS, Framing::None, true),
        (Method::Head, "200 OK", "", Framing::None, true),
        (Method::Get, "304 Not Modified", LENGTH, Framing::None, true),
        (
            Method::Head,
            "200 OK",
            "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
            Framing::None,
            false,
        ),
        (
            Method::Head,
            "200 OK",
            "Content-Length: 5\r\nContent-Length: 6\r\n",
            Framing::None,
            false,
        ),
        (Method::Head, "200 OK", "Transfer-Encoding: gzip\r\n", Framing::None, false),
        (Method::Get, "304 Not Modified", CHUNKS, Framing::None, true),
        (Method::Get, "304 Not Modified", "Content-Length: x\r\n", Framing::None, false),
        (
            Method::Get,
            "304 Not Modified",
            "Content-Length: 18446744073709551616\r\n",
            Framing::None,
            false,
        ),
        (
            Method::Get,
            "204 No Content",
            "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
            Framing::None,
            false,
        ),
        (
            Method::Get,
            "204 No Content",
            "Content-Length: 5\r\nContent-Length: 6\r\n",
            Framing::None,
            false,
        ),
        (Method::Get, "100 Continue", LENGTH, Framing::None, false),
        (Method::Get, "103 Early Hints", CHUNKS, Framing::None, false),
        (Method::Get, "101 Switching Protocols", LENGTH, Framing::None, false),
        (Method::Get, "204 No Content", "", Framing::None, true),
        (Method::Get, "204 No Content", "Content-Length: 0\r\n", Framing::None, true),
        (Method::Get, "204 No Content", LENGTH, Framing::None, false),
        (Method::Get, "204 No Content", CHUNKS, Framing::None, false),
        (Method::Get, "100 Continue", "", Framing::None, true),
        (Method::Get, "101 Switching Protocols", "", Framing::None, false),
        // Item 2: a tunnel.
        (Method::Connect, "200 OK", LENGTH, Framing::None, false),
        (Method::Connect, "403 Forbidden", LENGTH, Framing::Length(5), true),
        // Item 4.
        (Method::Get, "200 OK", CHUNKS, Framing::Chunked, true),
        (Method::Get, "200 OK", "Transfer-Encoding: , Chunked\r\n", Framing::Chunked, true),
        // Item 6.
        (Method::Post, "200 OK", LENGTH, Framing::Length(5), true),
        // Item 5: the same length several times.
        (Method::Get, "200 OK", "Content-Length: 5, 5\r\n", Framing::Length(5), false),
        (
            Method::Get,
            "200 OK",
            "Content-Length: 5\r\nX: y\r\ncontent-length: 5\r\n",
            Framing::Length(5),
            false,
        ),
        (
            Method::Get,
            "200 OK",
            "Content-Length: 5\r\nContent-Length: 05, 5\r\n",
            Framing::Length(5),
            false,
        ),
        // Fields that say nothing, and a coding that is none.
        (Method::Get, "200 OK", "Content-Length:\r\n", Framing::UntilClose, false),
        (
            Method::Get,
            "200 OK",
            "Content-Length:\r\nContent-Length: 5\r\n",
            Framing::Length(5),
            false,
        ),
        (Method::Get, "200 OK", "Transfer-Encoding:\r\n", Framing::UntilClose, false),
        (
            Method::Get,
            "200 OK",
            "Transfer-Encoding: ,\r\nContent-Length: 5\r\n",
            Framing::Length(5),
            false,
        ),
        (Method::Get, "200 OK", "Transfer-Encoding: Identity\r\n", Framing::UntilClose, false),
        (
            Method::Get,
            "200 OK",
            "Transfer-Encoding: identity\r\nContent-Length: 5\r\n",
            Framing::Length(5),
            false,
        ),
        (
            Method::Get,
            "200 OK",
            "Transfer-Encoding: identity, chunked\r\n",
            Framing::Chunked,
            false,
        ),
        (
            Method::Get,
            "200 OK",
            "Transfer-Encoding: chunked\r\nX: y\r\ntransfer-encoding: Chunked\r\n",
            Framing::Chunked,
            false,
        ),
        (Method::Get, "205 Reset Content", LENGTH, Framing::Length(5), true),
        (Method::Get, "206 Partial Content", LENGTH, Framing::Length(5), true),
        (Method::Get, "200 OK", "Content-Length: 0\r\n", Framing::None, true),
        // Item 8.
        (Method::Get, "200 OK", "", Framing::UntilClose, false),
        (Method::Get, "200 OK", "Connection: keep-alive\r\n", Framing::UntilClose, false),
    ] {
        let input = with(line, fields);
        let response = accept_for(&input, method);
        assert_eq!((response.framing, response.keep_alive), (framing, keep_alive), "{input:?}");
    }
}

#[test]
fn rfc9110_8_6_the_length_is_known_where_it_has_a_meaning() {
    for (method, line, fields, length) in [
        (Method::Head, "200 OK", "Content-Length: 5\r\n", Some(5)),
        (Method::Head, "200 OK", "Content-Length: 5, 5\r\n", Some(5)),
        (Method::Head, "200 OK", "Content-Length: 5, 6\r\n", None),
        (Method::Head, "200 OK", "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", None),
        (Method::Get, "304 Not Modified", "Content-Length: 5\r\n", Some(5)),
        (Method::Get, "204 No Content", "Content-Length: 5\r\n", None),
        (Method::Get, "204 No Content", "Content-Length: 0\r\n", None),
        (Method::Head, "204 No Content", "Content-Length: 5\r\n", None),
        (Method::Get, "101 Switching Protocols", "Content-Length: 5\r\n", None),
        (Method::Get, "103 Early Hints", "Content-Length: 5\r\n", None),
    ] {
        let input = with(line, fields);
        assert_eq!(accept_for(&input, method).content_length, length, "{input:?}");
    }
}

/// Field lines from which two readers may take different lengths of a body.
const DISPUTED_LENGTHS: &[&str] = &[
    "Content-Length: x\r\n",
    "Content-Length: -1\r\n",
    "Content-Length: +1\r\n",
    "Content-Length: 1 \t2\r\n",
    "Content-Length: 0x1\r\n",
    "Content-Length: 1.0\r\n",
    "Content-Length: 1;\r\n",
    "Content-Length: 5, 6\r\n",
    "Content-Length: 5, x\r\n",
    "Content-Length: 18446744073709551616\r\n",
    "Content-Length: 1\r\nX: y\r\ncontent-length: 2\r\n",
    "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n",
    "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
    "Transfer-Encoding: chunked\r\nContent-Length: 0\r\n",
    "Transfer-Encoding: gzip, chunked\r\n",
    "Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n",
    "Transfer-Encoding: chunked, chunked\r\n",
    "Transfer-Encoding: chunked\r\ntransfer-encoding: gzip\r\n",
    "Transfer-Encoding: chunked\r\ntransfer-encoding: Chunked\r\nContent-Length: 5\r\n",
    "Transfer-Encoding: gzip\r\ntransfer-encoding: gzip\r\n",
    "Transfer-Encoding: chunked, gzip\r\n",
    "Transfer-Encoding: chunked;x=y\r\n",
    "Transfer-Encoding: gzip\r\n",
    "Transfer-Encoding: xchunked\r\n",
    "Transfer-Encoding: \"chunked\"\r\n",
    // Malformed fields of the framing, and names that look like them.
    "Content-Length : 5\r\n",
    "Transfer-Encoding\t: chunked\r\n",
    "Content-Length:\r\n 5\r\n",
    "Transfer-Encoding:\r\n chunked\r\n",
    "Transfer-Encoding: \x0bchunked\r\n",
    "Content-Length: 5\x01\r\n",
    "Content Length: 5\r\n",
    "Content-Length 5\r\nContent-Length\r\n",
    "Transfer-Encoding\u{e4}: chunked\r\n",
    "X: a\r\n Content-Length: 5\r\n",
];

#[test]
fn rfc9112_6_3_ambiguous_framing_is_refused() {
    for fields in DISPUTED_LENGTHS {
        refuse(&with("200 OK", fields));
        // Responses that end with their heads.
        for (method, line) in [
            (Method::Head, "200 OK"),
            (Method::Get, "204 "),
            (Method::Get, "304 "),
            (Method::Get, "100 "),
        ] {
            let input = with(line, fields);
            let response = accept_for(&input, method);
            assert_eq!(response.framing, Framing::None, "{input:?}");
            assert!(!response.keep_alive, "{input:?}");
        }
    }
    refuse("HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
}

#[test]
fn rfc9112_2_2_a_line_that_is_not_well_formed_is_refused_if_two_readers_may_differ() {
    for line in [
        "A: b\rc",
        "A: b\r\r\n",
        "\rX",
        "A\rB: c",
        "A: \0",
        "A\0: b",
        " A: b\r\n",
        "\tb\n",
        "A: b\r\n \r\n",
        "A: b\n\t\n",
    ] {
        let start = if line.starts_with([' ', '\t']) { "" } else { "X: y\r\n" };
        refuse(&format!("HTTP/1.1 200 OK\r\n{start}{line}"));
    }
}

#[test]
fn rfc9112_2_2_a_line_that_is_not_well_formed_is_understood_if_it_has_one_meaning() {
    const NONE: &[(&str, &str)] = &[];
    for (lines, expected) in [
        ("A: b\nC: d\r\n", &[("A", "b"), ("C", "d")][..]),
        ("A: b\n", &[("A", "b")]),
        ("A:\n", &[("A", "")]),
        // RFC 9112 §5.1
        ("A : b\r\n", &[("A", "b")]),
        ("A \t: b \n", &[("A", "b")]),
        // §5.2
        ("A: b\r\n c\r\n", &[("A", "b c")]),
        ("A: b \r\n\t \tc\r\n d: e\r\nF: g\r\n", &[("A", "b c d: e"), ("F", "g")]),
        ("A:\r\n b\n", &[("A", "b")]),
        ("A : b\n c\n", &[("A", "b c")]),
        // RFC 9110 §5.5
        ("A: b\x01c\x7f\r\n", &[("A", "b c")]),
        ("A: b\r\n c\x1bd\r\n", &[("A", "b c d")]),
        ("A: \u{e4}\r\n", &[("A", "\u{e4}")]),
        // No fields.
        (": b\r\n", NONE),
        ("A B: c\r\n", NONE),
        ("A(: b\r\n", NONE),
        ("\u{e4}: b\r\n", NONE),
        ("nonsense\r\n", NONE),
        ("A B: c\r\n d\r\nE: f\r\n", &[("E", "f")]),
        ("A: b\r\nnonsense\r\n c\r\n", &[("A", "b")]),
    ] {
        for (start, end) in [("HTTP/1.1 200 OK\r\n", "\r\n"), ("HTTP/1.1 200 OK\n", "\n")] {
            let input = format!("{start}Content-Length: 5\r\n{lines}{end}");
            let response = accept(&input);
            assert_eq!(response.framing, Framing::Length(5), "{input:?}");
            let fields: Vec<_> = response.fields[1..]
                .iter()
                .map(|(name, value)| {
                    [*name, value].map(|text| str::from_utf8(text).expect("UTF-8"))
                })
                .collect();
            let expected: Vec<_> = expected.iter().map(|&(name, value)| [name, value]).collect();
            assert_eq!(fields, expected, "{input:?}");
            let is_odd = start.ends_with("K\n") || lines != "A: \u{e4}\r\n";
            assert_eq!(response.keep_alive, !is_odd, "{input:?}");
            check_prefixes(input.as_bytes(), |prefix| parse(prefix, Method::Get, &Limits::DEFAULT))
                .expect("the same verdict");
        }
    }
    let input = "HTTP/1.1 200 OK\nConnection : close\nContent-Length: 5\n\n";
    assert_eq!((accept(input).framing, accept(input).keep_alive), (Framing::Length(5), false));
}

#[test]
fn rfc9112_9_3_persistence() {
    for &(version, fields, keep_alive) in PERSISTENCE {
        let input = format!("HTTP/{version} 200 OK\r\nContent-Length: 1\r\n{fields}\r\n");
        assert_eq!(accept(&input).keep_alive, keep_alive, "{input:?}");
    }
}

#[test]
fn limits_hold_before_the_end() {
    let limits = Limits { head_bytes_max: 30, fields_max: 2, ..Limits::DEFAULT };
    let result = |input: &str| parse(input.as_bytes(), Method::Get, &limits).map(|_| ());
    assert_eq!(result("HTTP/1.1 200 OK\r\nA: 345678\r\n"), Ok(()));
    assert_eq!(
        result("HTTP/1.1 200 OK\r\nA: 3456789\r\n\r\n"),
        Err(Fault::new("a head that is too long"))
    );
    assert_eq!(
        result("HTTP/1.1 200 OK\r\nA: 34567890123"),
        Err(Fault::new("a head that is too long"))
    );
    assert_eq!(result("HTTP/1.1 200 OK\r\nA:\r\nA:\r\nA:\r\n"), Err(Fault::new("too many fields")));
}

/// Bytes that are nearly responses.
pub(crate) fn nearly_a_response() -> impl Strategy<Value = Vec<u8>> {
    nearly(&[
        b"HTTP/1.1 200 OK\r\n",
        b"HTTP/1.0 200 OK\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n",
        b"HTTP/1.1 204 \r\n",
        b"\r\nHTTP/2 204\r\n",
        b"HTTP/1.1 304\r\n",
        b"HTTP/1.1 200 OK\n",
        b"X : y\n",
        b" z\r\n",
        b"Content-Length: 0\r\n",
    ])
}

proptest! {
    #[test]
    fn the_verdict_on_a_prefix_is_the_verdict_on_the_whole(bytes in nearly_a_response()) {
        check_prefixes(&bytes, |prefix| parse(prefix, Method::Get, &SMALL))?;
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes: Vec<u8>) {
        let _ = parse(&bytes, Method::Get, &Limits::DEFAULT);
    }
}
