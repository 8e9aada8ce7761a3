use proptest::prelude::*;

use super::*;

/// Parses a response that comes in pieces of `piece` bytes and is followed, perhaps, by the
/// connection's end.
fn parse(bytes: &[u8], piece: usize, end: bool) -> Result<(u16, Vec<u8>, bool), Malformed> {
    let mut parser = Parser::default();
    let mut body = Vec::new();
    let mut done = false;
    for part in bytes.chunks(piece) {
        done = parser.feed(part, |bytes| body.extend_from_slice(bytes))?;
    }
    if !done {
        assert!(end, "not complete after {:?}", String::from_utf8_lossy(bytes));
        parser.end()?;
    }
    assert_eq!(parser.body_len(), body.len() as u64);
    Ok((parser.status(), body, parser.keep_alive()))
}

#[test]
fn framings() {
    for (response, end, status, body, keep_alive) in [
        ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", false, 200, "hello", true),
        ("HTTP/1.1 200 OK\r\ncontent-length:  0 \r\n\r\n", false, 200, "", true),
        (
            "HTTP/1.1 404 No\r\nContent-Length: 1\r\nConnection: Close\r\n\r\nx",
            false,
            404,
            "x",
            false,
        ),
        ("HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\nx", false, 200, "x", false),
        (
            "HTTP/1.0 200 OK\r\nContent-Length: 1\r\nConnection: keep-alive\r\n\r\nx",
            false,
            200,
            "x",
            true,
        ),
        ("HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n", false, 304, "", true),
        ("HTTP/1.1 200 OK\r\n\r\nto the end", true, 200, "to the end", false),
        (
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
            false,
            200,
            "ok",
            true,
        ),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;x=y\r\nhello\r\n1\r\n!\r\n0\r\nA: b\r\n\r\n",
            false,
            200,
            "hello!",
            true,
        ),
    ] {
        for piece in [1, 2, 7, 1000] {
            let got = parse(response.as_bytes(), piece, end);
            assert_eq!(got, Ok((status, body.into(), keep_alive)), "{response:?} by {piece}");
        }
    }
}

#[test]
fn what_is_malformed() {
    for (response, why) in [
        ("SSH-2.0-OpenSSH\r\n", Malformed::Head),
        ("HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", Malformed::Framing),
        ("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", Malformed::Framing),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n", Malformed::Framing),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nz\r\n", Malformed::Chunk),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab", Malformed::Chunk),
        ("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nab", Malformed::Surplus),
        ("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab", Malformed::Short),
        ("HTTP/1.1 200 O", Malformed::Short),
    ] {
        assert_eq!(parse(response.as_bytes(), 1000, true), Err(why), "{response:?}");
        assert_eq!(parse(response.as_bytes(), 1, true), Err(why), "{response:?} by bytes");
    }
    let endless = [&b"HTTP/1.1 200 OK\r\nA: "[..], &vec![b'x'; HEAD_MAX]].concat();
    assert_eq!(parse(&endless, 1000, true), Err(Malformed::Head));
}

#[test]
fn bodies_may_be_passed_unseen() {
    let mut parser = Parser::default();
    assert_eq!(parser.feed(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n123", |_| ()), Ok(false));
    assert_eq!(parser.passable(), 7);
    assert!(!parser.pass(3));
    assert!(parser.pass(4));
    assert_eq!((parser.body_len(), parser.passable()), (10, 0));
    parser.reset();
    assert_eq!(parser.feed(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx", |_| ()), Ok(true));
}

proptest! {
    #[test]
    fn anything_is_a_response_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let mut parser = Parser::default();
        let _ = parser.feed(&[b"HTTP/1.1 200 OK\r\n", &bytes[..]].concat(), |_| ());
        let _ = parser.end();
    }

    /// The cuts in a response make no difference.
    #[test]
    fn pieces_make_no_difference(
        body in proptest::collection::vec(any::<u8>(), 1..200),
        sizes in proptest::collection::vec(1usize..50, 1..20),
        piece in 1usize..40,
    ) {
        let mut response = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
        let mut left = &body[..];
        for size in sizes.iter().cycle() {
            let (part, rest) = left.split_at((*size).min(left.len()));
            response.extend(format!("{:x}\r\n", part.len()).bytes());
            response.extend(part);
            response.extend(b"\r\n");
            left = rest;
            if part.is_empty() {
                break;
            }
        }
        prop_assert_eq!(parse(&response, piece, false), Ok((200, body, true)));
    }
}
