//! The client against sockets that send given bytes, or none.

use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::thread;

use super::*;
use crate::Tree;

/// A response may come in any pieces, and more than one response may come in one piece.
#[test]
fn responses_are_received_in_pieces() {
    const BYTES: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhelloHTTP/1.1 404 \r\nContent-Length: 9\r\n\r\nHTTP/1.0 200 OK\r\n\r\nto the end";
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut client = Client::connect(&Address::Tcp(listener.local_addr().unwrap())).unwrap();
    let (mut stream, _) = listener.accept().unwrap();
    let server = thread::spawn(move || {
        BYTES.chunks(7).for_each(|piece| stream.write_all(piece).unwrap());
    });
    assert_eq!(client.response().unwrap().body, b"hello");
    assert_eq!(client.head().unwrap().status, 404);
    assert_eq!(client.read_exactly(4).unwrap(), b"HTTP");
    server.join().unwrap();
    assert_eq!(client.read_to_end().unwrap(), b"/1.0 200 OK\r\n\r\nto the end");
    assert_eq!(client.response().unwrap_err().kind(), ErrorKind::UnexpectedEof);
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
