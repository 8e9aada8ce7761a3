//! The client against servers that send given bytes.

use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::thread;

use super::*;
use crate::Tree;

/// A connection to a server that sends `answer` and closes its side.
fn client_of(answer: &'static [u8]) -> Client {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = Address::Tcp(listener.local_addr().unwrap());
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        // In small pieces, so that no part ends with a segment. The client may be gone.
        for piece in answer.chunks(7) {
            if stream.write_all(piece).is_err() {
                return;
            }
        }
        let _ = stream.shutdown(Shutdown::Write);
        // To close a socket with unread bytes would reset the connection before the client has the response.
        let _ = io::copy(&mut stream, &mut io::sink());
    });
    Client::connect(&address).unwrap()
}

fn error_of(answer: &'static [u8]) -> (ErrorKind, String) {
    let error = client_of(answer).response().unwrap_err();
    (error.kind(), error.to_string())
}

#[test]
fn a_response_ends_where_content_length_says() {
    let mut client = client_of(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-A:  b \r\n\r\nhelloHTTP/1.1 404 \r\ncontent-length: 0\r\n\r\n");
    let first = client.response().unwrap();
    assert_eq!((first.minor_version, first.status, first.reason.as_str()), (1, 200, "OK"));
    assert_eq!(first.header("content-length"), Some("5"));
    assert_eq!(first.header("x-a"), Some("b"));
    assert_eq!(first.header("etag"), None);
    assert_eq!(first.body, b"hello");
    let second = client.response().unwrap();
    assert_eq!((second.status, second.reason.as_str()), (404, ""));
    assert_eq!(second.framing, Framing::Length(0));
    assert_eq!(client.read_to_end().unwrap(), b"");
}

#[test]
fn a_response_without_framing_ends_with_the_connection() {
    let response = client_of(b"HTTP/1.0 200 OK\r\n\r\nto the end").response().unwrap();
    assert_eq!(response.framing, Framing::Close);
    assert_eq!(response.body, b"to the end");
}

#[test]
fn chunks_are_joined() {
    let mut client = client_of(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nA;x=y\r\n, chunks! \r\n0\r\nX-Sum: 7\r\n\r\nrest");
    let response = client.response().unwrap();
    assert_eq!(response.body, b"hello, chunks! ");
    assert_eq!(response.trailers, [("X-Sum".to_owned(), "7".to_owned())]);
    assert_eq!(client.read_exactly(4).unwrap(), b"rest");
}

#[test]
fn responses_that_cannot_have_a_body_end_with_the_head() {
    let mut client = client_of(
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\nHTTP/1.1 204 No Content\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n",
    );
    for status in [100, 304, 204] {
        let response = client.response().unwrap();
        assert_eq!((response.status, response.framing), (status, Framing::None));
    }
    let to_head = client.head().unwrap();
    assert_eq!((to_head.status, to_head.framing), (200, Framing::Length(9)));
    assert_eq!(client.read_to_end().unwrap(), b"");
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

#[test]
fn silence_is_a_timeout() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut client = Client::connect(&Address::Tcp(listener.local_addr().unwrap())).unwrap();
    client.set_limit(Duration::from_millis(50));
    let (mut stream, _) = listener.accept().unwrap();
    stream.write_all(b"HTTP/1.1 20").unwrap();
    let error = client.response().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert!(error.to_string().contains("HTTP/1.1 20"), "{error}");
}

#[test]
fn get_speaks_to_unix_sockets_too() {
    const REQUEST: &[u8] = b"GET /x?y HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n";
    let tree = Tree::new();
    let path = tree.path().join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = [0; REQUEST.len()];
        stream.read_exact(&mut request).unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi").unwrap();
        request
    });
    let response = get(&Address::Unix(path), "/x?y").unwrap();
    assert_eq!(response.body, b"hi");
    assert_eq!(server.join().unwrap(), *REQUEST);
}

#[test]
fn get_notices_a_second_response() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = Address::Tcp(listener.local_addr().unwrap());
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi again").unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let _ = io::copy(&mut stream, &mut io::sink());
    });
    assert_eq!(get(&address, "/").unwrap_err().kind(), ErrorKind::InvalidData);
}
