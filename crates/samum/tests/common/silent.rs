//! Clients that take nothing, and a server whose contents are longer than any buffer.

use core::net::SocketAddr;
use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;
use std::io::{BufRead as _, BufReader, ErrorKind, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;

use testkit::{Address, Server};

/// Bytes of a content of the server.
pub(crate) const LONG: usize = 500_000;

/// A client that receives almost nothing: its kernel buffers only a few kilobytes.
pub(crate) fn silent(server: &Server) -> TcpStream {
    let Address::Tcp(address) = server.address() else { unreachable!("it listens on TCP") };
    let socket = TcpStream::connect(address).unwrap();
    rustix::net::sockopt::set_socket_recv_buffer_size(&socket, 4096).unwrap();
    socket
}

/// Sends as much as the server takes within a moment.
pub(crate) fn offer(mut socket: &TcpStream, bytes: &[u8]) {
    socket.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
    match socket.write_all(bytes) {
        Ok(()) => {}
        Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}"),
    }
}

/// A server whose contents are longer than any buffer: `/long` with its length, `/endless` in chunks for ever. Returns its
/// address, and the number of requests that it has got.
pub(crate) fn long_origin() -> (SocketAddr, Arc<AtomicU64>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, count) = (listener.local_addr().unwrap(), Arc::new(AtomicU64::new(0)));
    let counted = Arc::clone(&count);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let counted = Arc::clone(&counted);
            // It ends with the connection.
            thread::spawn(move || answer_long(&stream, &counted));
        }
    });
    (address, count)
}

fn answer_long(mut stream: &TcpStream, count: &AtomicU64) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream).lines();
    while let Some(line) = lines.next().transpose()? {
        while !lines.next().transpose()?.is_none_or(|line| line.is_empty()) {}
        count.fetch_add(1, Ordering::Relaxed);
        if line.starts_with("GET /endless") {
            stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")?;
            let chunk = [&b"10000\r\n"[..], &[b'x'; 0x1_0000], b"\r\n"].concat();
            loop {
                stream.write_all(&chunk)?;
            }
        }
        write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {LONG}\r\n\r\n")?;
        stream.write_all(&[b'x'; LONG])?;
    }
    Ok(())
}
