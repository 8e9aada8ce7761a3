//! A small HTTP/1.1 client for tests, over raw sockets (RFC 9112, from the client's side).
//!
//! It is an oracle: it shares no code with the server under test, sends exactly the bytes that it is given, and
//! accepts only well-formed responses. Everything that RFC 9112 forbids a server to send is an error here,
//! even if clients usually tolerate it.

use core::net::SocketAddr;
use core::time::Duration;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Instant;

use crate::Response;
use crate::response::{excerpt, malformed};

/// The address of a server.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum Address {
    /// An IP address and a port.
    Tcp(SocketAddr),
    /// The path of a Unix socket.
    Unix(PathBuf),
}

/// One connection to a server.
///
/// Every method fails with [`ErrorKind::TimedOut`] after [`Client::set_limit`]'s time. Malformed responses are
/// [`ErrorKind::InvalidData`], responses that end early are [`ErrorKind::UnexpectedEof`]; both errors have the
/// reason.
///
/// ```no_run
/// # fn main() -> std::io::Result<()> {
/// use testkit::{Address, Client};
///
/// let mut client = Client::connect(&Address::Tcp(([127, 0, 0, 1], 8080).into()))?;
/// client.send("GET / HTTP/1.1\r\nHost: test\r\n\r\n")?;
/// client.send("HEAD / HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n")?;
/// assert_eq!(client.response()?.status, 200);
/// assert_eq!(client.head()?.status, 200);
/// assert_eq!(client.read_to_end()?, b"");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Client {
    stream: Stream,
    /// The bytes that were received but not returned.
    buffer: Vec<u8>,
    limit: Duration,
}

/// The bytes of a request. `head` is the request line without its version, and further fields, one per line. If
/// no field is `Host`, the host is `test`.
pub fn request(head: &str) -> String {
    let (line, fields) = head.split_once('\n').unwrap_or((head, ""));
    let has_host = fields.lines().any(|field| field.starts_with("Host:"));
    let host = if has_host { "" } else { "Host: test\r\n" };
    let mut text = format!("{line} HTTP/1.1\r\n{host}");
    for field in fields.lines() {
        text.push_str(field);
        text.push_str("\r\n");
    }
    text + "\r\n"
}

/// Asks for `path` on a connection of its own, and checks that the server closes it afterwards.
///
/// # Errors
/// Those of [`Client::connect`] and [`Client::response`]; [`ErrorKind::InvalidData`] if bytes follow the
/// response.
pub fn get(address: &Address, path: &str) -> io::Result<Response> {
    let mut client = Client::connect(address)?;
    client.send(request(&format!("GET {path}\nConnection: close")))?;
    let response = client.response()?;
    let rest = client.read_to_end()?;
    if rest.is_empty() { Ok(response) } else { Err(malformed("bytes after the response", &rest)) }
}

impl From<TcpStream> for Client {
    /// A connection that is open already, such as one from another address.
    fn from(stream: TcpStream) -> Self {
        Self::new(Stream::Tcp(stream))
    }
}

impl Client {
    const fn new(stream: Stream) -> Self {
        Self { stream, buffer: Vec::new(), limit: LIMIT_DEFAULT }
    }

    /// Opens a connection.
    ///
    /// # Errors
    /// Those of connect(2).
    pub fn connect(address: &Address) -> io::Result<Self> {
        let stream = match address {
            Address::Tcp(address) => {
                let stream = TcpStream::connect_timeout(address, LIMIT_DEFAULT)?;
                // Bytes that a test sends in two pieces must arrive in two pieces.
                stream.set_nodelay(true)?;
                Stream::Tcp(stream)
            }
            Address::Unix(path) => Stream::Unix(UnixStream::connect(path)?),
        };
        Ok(Self::new(stream))
    }

    /// Sets the longest time that each method may take. Default: 10 s.
    pub fn set_limit(&mut self, limit: Duration) {
        self.limit = limit;
    }

    /// Sends these bytes and nothing else.
    ///
    /// # Errors
    /// Those of send(2); [`ErrorKind::TimedOut`] if the server does not receive the bytes.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        let deadline = self.deadline();
        let mut bytes = bytes.as_ref();
        while !bytes.is_empty() {
            self.stream.set_write_timeout(rest(deadline)?)?;
            let sent = self.stream.as_io().write(bytes).map_err(as_timeout)?;
            bytes = &bytes[sent..];
        }
        Ok(())
    }

    /// Shuts down the sending side: no more bytes will come.
    ///
    /// # Errors
    /// Those of shutdown(2).
    pub fn shutdown_write(&mut self) -> io::Result<()> {
        match &self.stream {
            Stream::Tcp(stream) => stream.shutdown(Shutdown::Write),
            Stream::Unix(stream) => stream.shutdown(Shutdown::Write),
        }
    }

    /// Receives one response to any request but HEAD. An interim response (1xx) counts as a response. Bytes
    /// after the response are kept for the next call.
    ///
    /// # Errors
    /// See [`Client`].
    pub fn response(&mut self) -> io::Result<Response> {
        self.receive_response(false)
    }

    /// Receives a response up to its body. For a HEAD request it is the whole response, with the framing fields
    /// of a GET.
    ///
    /// # Errors
    /// See [`Client`].
    pub fn head(&mut self) -> io::Result<Response> {
        self.receive_response(true)
    }

    /// Receives exactly `count` bytes.
    ///
    /// # Errors
    /// See [`Client`].
    pub fn read_exactly(&mut self, count: usize) -> io::Result<Vec<u8>> {
        self.take(self.deadline(), count)
    }

    /// Receives until the server closes the connection.
    ///
    /// # Errors
    /// See [`Client`]; [`ErrorKind::ConnectionReset`] if the server resets the connection.
    pub fn read_to_end(&mut self) -> io::Result<Vec<u8>> {
        self.take_to_end(self.deadline())
    }

    fn deadline(&self) -> Instant {
        Instant::now() + self.limit
    }

    /// Receives until a response is complete. `is_to_head`: it has no body, even if its fields announce one.
    fn receive_response(&mut self, is_to_head: bool) -> io::Result<Response> {
        let deadline = self.deadline();
        let mut has_ended = false;
        loop {
            if let Some((response, len)) = Response::parse(&self.buffer, is_to_head, has_ended)? {
                self.buffer.drain(..len);
                return Ok(response);
            }
            has_ended = self.receive(deadline)? == 0;
        }
    }

    fn take(&mut self, deadline: Instant, count: usize) -> io::Result<Vec<u8>> {
        while self.buffer.len() < count {
            self.receive_more(deadline)?;
        }
        let rest = self.buffer.split_off(count);
        Ok(core::mem::replace(&mut self.buffer, rest))
    }

    fn take_to_end(&mut self, deadline: Instant) -> io::Result<Vec<u8>> {
        while self.receive(deadline)? > 0 {}
        Ok(core::mem::take(&mut self.buffer))
    }

    fn receive_more(&mut self, deadline: Instant) -> io::Result<()> {
        if self.receive(deadline)? > 0 {
            return Ok(());
        }
        let got = format!("closed after {} bytes: {}", self.buffer.len(), excerpt(&self.buffer));
        Err(io::Error::new(ErrorKind::UnexpectedEof, got))
    }

    /// Appends the next bytes to the buffer; 0 when the server has closed its side.
    fn receive(&mut self, deadline: Instant) -> io::Result<usize> {
        let before = self.buffer.len();
        // Without optimisation a copy is fast, and `resize` writes byte by byte.
        self.buffer.extend_from_slice(&[0; RECEIVE_BYTES_MAX]);
        let received = self.receive_into_buffer(before, deadline);
        self.buffer.truncate(before + *received.as_ref().unwrap_or(&0));
        received.map_err(|error| match error.kind() {
            ErrorKind::TimedOut => {
                let got = format!("nothing after {before} bytes: {}", excerpt(&self.buffer));
                io::Error::new(ErrorKind::TimedOut, got)
            }
            _ => error,
        })
    }

    fn receive_into_buffer(&mut self, start: usize, deadline: Instant) -> io::Result<usize> {
        loop {
            self.stream.set_read_timeout(rest(deadline)?)?;
            match self.stream.as_io().read(&mut self.buffer[start..]).map_err(as_timeout) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                received => return received,
            }
        }
    }
}

#[derive(Debug)]
enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

trait ReadWrite: Read + Write {}

impl<T: Read + Write> ReadWrite for T {}

impl Stream {
    fn as_io(&mut self) -> &mut dyn ReadWrite {
        match self {
            Self::Tcp(stream) => stream,
            Self::Unix(stream) => stream,
        }
    }

    fn set_read_timeout(&self, timeout: Duration) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.set_read_timeout(Some(timeout)),
            Self::Unix(stream) => stream.set_read_timeout(Some(timeout)),
        }
    }

    fn set_write_timeout(&self, timeout: Duration) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.set_write_timeout(Some(timeout)),
            Self::Unix(stream) => stream.set_write_timeout(Some(timeout)),
        }
    }
}

/// The time until the deadline; never zero, which would mean no limit to the socket.
fn rest(deadline: Instant) -> io::Result<Duration> {
    match deadline.checked_duration_since(Instant::now()) {
        Some(rest) if !rest.is_zero() => Ok(rest),
        _ => Err(ErrorKind::TimedOut.into()),
    }
}

/// Turns a socket's timeout, which looks like the `WouldBlock` of a nonblocking socket, into `TimedOut`.
fn as_timeout(error: io::Error) -> io::Error {
    if error.kind() == ErrorKind::WouldBlock { ErrorKind::TimedOut.into() } else { error }
}

const LIMIT_DEFAULT: Duration = Duration::from_secs(10);

const RECEIVE_BYTES_MAX: usize = 64 * 1024;

#[cfg(test)]
mod tests;
