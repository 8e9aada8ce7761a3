//! The parser on responses that are well-formed, malformed or cut.

use super::*;

/// The first `count` responses in these bytes, none of them to HEAD, and the bytes after the last. First each
/// response is parsed from every beginning of its bytes, which must be too short for it.
fn parse(mut bytes: &[u8], count: usize) -> (Vec<Response>, &[u8]) {
    let mut responses = Vec::new();
    for _ in 0..count {
        let (response, len) = Response::parse(bytes, false, true).unwrap().unwrap();
        for short in 0..len {
            let parsed = Response::parse(&bytes[..short], false, false);
            assert!(parsed.unwrap().is_none(), "{short} of {len} bytes");
        }
        responses.push(response);
        bytes = &bytes[len..];
    }
    (responses, bytes)
}

fn error_of(bytes: &[u8]) -> (ErrorKind, String) {
    let error = Response::parse(bytes, false, true).unwrap_err();
    (error.kind(), error.to_string())
}

#[test]
fn a_response_ends_where_content_length_says() {
    let (responses, rest) = parse(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-A:  b \r\n\r\nhelloHTTP/1.1 404 \r\ncontent-length: 0\r\n\r\n", 2);
    let [first, second] = &responses[..] else { unreachable!("two were parsed") };
    assert_eq!((first.minor_version, first.status, first.reason.as_str()), (1, 200, "OK"));
    assert_eq!(first.header("content-length"), Some("5"));
    assert_eq!(first.header("x-a"), Some("b"));
    assert_eq!(first.header("etag"), None);
    assert_eq!(first.body, b"hello");
    assert_eq!((second.status, second.reason.as_str()), (404, ""));
    assert_eq!(second.framing, Framing::Length(0));
    assert_eq!(rest, b"");
}

#[test]
fn a_response_without_framing_ends_with_the_connection() {
    let (responses, _) = parse(b"HTTP/1.0 200 OK\r\n\r\nto the end", 1);
    let response = &responses[0];
    assert_eq!(response.framing, Framing::Close);
    assert_eq!(response.body, b"to the end");
}

#[test]
fn chunks_are_joined() {
    let (responses, rest) = parse(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nA;x=y\r\n, chunks! \r\n0\r\nX-Sum: 7\r\n\r\nrest", 1);
    let response = &responses[0];
    assert_eq!(response.body, b"hello, chunks! ");
    assert_eq!(response.trailers, [("X-Sum".to_owned(), "7".to_owned())]);
    assert_eq!(rest, b"rest");
}

#[test]
fn responses_that_cannot_have_a_body_end_with_the_head() {
    let (responses, rest) = parse(
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\nHTTP/1.1 204 No Content\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n", 3,
    );
    for (response, status) in responses.iter().zip([100, 304, 204]) {
        assert_eq!((response.status, response.framing), (status, Framing::None));
    }
    let (to_head, len) = Response::parse(rest, true, false).unwrap().unwrap();
    assert_eq!((to_head.status, to_head.framing), (200, Framing::Length(9)));
    assert_eq!(len, rest.len());
}

#[test]
fn what_a_server_must_not_send_is_an_error() {
    let cases: [(&[u8], &str); 14] = [
        (b"HTTP/1.1 200\r\n\r\n", "malformed status line"),
        (b"HTTP/2.0 200 OK\r\n\r\n", "malformed status line"),
        (b"HTTP/1.1 2x0 OK\r\n\r\n", "malformed status line"),
        (b"HTTP/1.1 200 OK\nA: b\r\n\r\n", "CR, LF or NUL within a line"),
        (b"HTTP/1.1 200 OK\r\nA : b\r\n\r\n", "malformed field"),
        (b"HTTP/1.1 200 OK\r\nA: b\r\n c\r\n\r\n", "malformed field"),
        (b"HTTP/1.1 200 OK\r\nA: \x01\r\n\r\n", "malformed field"),
        (b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n", "malformed field"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: +1\r\n\r\nx", "malformed Content-Length"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nx", "contradicting"),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
            "contradicting",
        ),
        (b"HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n", "framing without a body"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n", "chunk size"),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nxy\r\n",
            "no line end after a chunk",
        ),
    ];
    for (answer, expected) in cases {
        let (kind, message) = error_of(answer);
        assert_eq!(kind, ErrorKind::InvalidData, "{message}");
        assert!(message.starts_with(expected), "{message:?} for {expected:?}");
    }
}

#[test]
fn an_early_end_is_an_error() {
    for answer in [
        b"".as_slice(),
        b"HTTP/1.1 200 O",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
    ] {
        assert_eq!(error_of(answer).0, ErrorKind::UnexpectedEof, "{}", answer.escape_ascii());
    }
}
