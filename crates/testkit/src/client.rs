//! A small HTTP/1.1 client for tests, over raw sockets (RFC 9112, from the client's side).
//!
//! It is an oracle: it shares no code with the server under test, sends exactly the bytes that it is given, and
//! accepts only well-formed responses. Everything that RFC 9112 forbids a server to send is an error here,
//! even if clients usually tolerate it.

use core::fmt;
use core::net::SocketAddr;
use core::time::Duration;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Instant;

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
/// Every method fails with [`ErrorKind::TimedOut`] after [`Client::set_limit`]'s time. Malformed responses
/// are [`ErrorKind::InvalidData`], responses that end early [`ErrorKind::UnexpectedEof`]; both errors have the
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
    /// Bytes that were received but not returned.
    buffer: Vec<u8>,
    limit: Duration,
}

/// One response of a server.
#[derive(Clone, Eq, PartialEq)]
pub struct Response {
    /// The y of HTTP/1.y.
    pub minor_version: u8,
    /// The three digits.
    pub status: u16,
    /// The text behind them, which may be empty.
    pub reason: String,
    /// In order, as spelled, with the values' bytes read as ISO 8859-1.
    pub headers: Vec<(String, String)>,
    /// The way in which the end of the body was found.
    pub framing: Framing,
    /// The body, without chunked coding. Empty from [`Client::head`], which leaves it unread.
    pub body: Vec<u8>,
    /// The fields behind the last chunk, as `headers`.
    pub trailers: Vec<(String, String)>,
}

/// The way in which the end of a body is found (RFC 9112, section 6.3).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Framing {
    /// The last chunk says that it is the last.
    Chunked,
    /// The connection is closed.
    Close,
    /// Content-Length says how many bytes there are.
    Length(u64),
    /// The status does not allow a body.
    None,
}

/// Asks for `path` on a connection of its own, and checks that the server closes it afterwards.
///
/// # Errors
/// Those of [`Client::connect`] and [`Client::response`]; [`ErrorKind::InvalidData`] if bytes follow the
/// response.
pub fn get(address: &Address, path: &str) -> io::Result<Response> {
    let mut client = Client::connect(address)?;
    client.send(format!("GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n"))?;
    let response = client.response()?;
    let rest = client.read_to_end()?;
    if rest.is_empty() { Ok(response) } else { Err(malformed("bytes after the response", &rest)) }
}

impl Client {
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
        Ok(Self { stream, buffer: Vec::new(), limit: LIMIT_DEFAULT })
    }

    /// Sets the longest time that each method may take. Default: 10 s.
    pub fn set_limit(&mut self, limit: Duration) {
        self.limit = limit;
    }

    /// Sends these bytes and nothing else.
    ///
    /// # Errors
    /// Those of send(2); [`ErrorKind::TimedOut`] if the server does not take the bytes.
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

    /// Receives one response to any request but HEAD. An interim response (1xx) is one, too. Bytes behind the
    /// response are kept for the next call.
    ///
    /// # Errors
    /// See [`Client`].
    pub fn response(&mut self) -> io::Result<Response> {
        let deadline = self.deadline();
        let mut response = self.parse_head(deadline)?;
        match response.framing {
            Framing::Chunked => self.read_chunks(deadline, &mut response)?,
            Framing::Close => response.body = self.take_to_end(deadline)?,
            Framing::Length(length) => {
                let length = usize::try_from(length).map_err(io::Error::other)?;
                response.body = self.take(deadline, length)?;
            }
            Framing::None => {}
        }
        Ok(response)
    }

    /// Receives a response up to its body. That is the whole response to a HEAD request, whose framing is
    /// that of a GET.
    ///
    /// # Errors
    /// See [`Client`].
    pub fn head(&mut self) -> io::Result<Response> {
        self.parse_head(self.deadline())
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

    fn parse_head(&mut self, deadline: Instant) -> io::Result<Response> {
        let status_line = self.take_line(deadline)?;
        let (minor_version, status, reason) = parse_status_line(&status_line)
            .ok_or_else(|| malformed("malformed status line", &status_line))?;
        let headers = self.take_fields(deadline)?;
        let framing = framing(status, &headers)?;
        let (body, trailers) = (Vec::new(), Vec::new());
        Ok(Response { minor_version, status, reason, headers, framing, body, trailers })
    }

    fn read_chunks(&mut self, deadline: Instant, response: &mut Response) -> io::Result<()> {
        loop {
            let line = self.take_line(deadline)?;
            let length = parse_chunk_size(&line).ok_or_else(|| malformed("chunk size", &line))?;
            if length == 0 {
                response.trailers = self.take_fields(deadline)?;
                return Ok(());
            }
            response.body.append(&mut self.take(deadline, length)?);
            let end = self.take(deadline, 2)?;
            if end != b"\r\n" {
                return Err(malformed("no line end after a chunk", &end));
            }
        }
    }

    /// Header or trailer fields, with the empty line that ends them.
    fn take_fields(&mut self, deadline: Instant) -> io::Result<Vec<(String, String)>> {
        let mut fields = Vec::new();
        loop {
            let line = self.take_line(deadline)?;
            if line.is_empty() {
                return Ok(fields);
            }
            let field = parse_field(&line).ok_or_else(|| malformed("malformed field", &line))?;
            fields.push(field);
        }
    }

    /// A line without its end.
    fn take_line(&mut self, deadline: Instant) -> io::Result<Vec<u8>> {
        let length = loop {
            if let Some(length) = self.buffer.windows(2).position(|pair| pair == b"\r\n") {
                break length;
            }
            if self.buffer.len() > LINE_BYTES_MAX {
                return Err(malformed("a line without end", &self.buffer));
            }
            self.receive_more(deadline)?;
        };
        let mut line = self.take(deadline, length + 2)?;
        line.truncate(length);
        let stray = line.iter().any(|byte| b"\r\n\0".contains(byte));
        if stray { Err(malformed("CR, LF or NUL within a line", &line)) } else { Ok(line) }
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

    /// Appends what comes next to the buffer; 0 when the server has closed its side.
    fn receive(&mut self, deadline: Instant) -> io::Result<usize> {
        let before = self.buffer.len();
        self.buffer.resize(before + RECEIVE_BYTES_MAX, 0);
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

impl Response {
    /// The value of the only field with this name, in any spelling.
    ///
    /// # Panics
    /// If there are several: no field of a static server may be repeated.
    #[must_use]
    #[track_caller]
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut values = fields_named(&self.headers, name);
        let value = values.next();
        assert_eq!(values.next(), None, "a second {name} beside {value:?}");
        value
    }
}

/// The response as text for failed assertions, with the body cut short.
impl fmt::Debug for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "HTTP/1.{} {} {}", self.minor_version, self.status, self.reason)?;
        for (name, value) in &self.headers {
            writeln!(f, "{name}: {value}")?;
        }
        writeln!(f, "[body: {:?}, {} bytes] {}", self.framing, self.body.len(), excerpt(&self.body))
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

fn malformed(what: &str, bytes: &[u8]) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, format!("{what}: {}", excerpt(bytes)))
}

fn excerpt(bytes: &[u8]) -> impl fmt::Display {
    const SHOWN_MAX: usize = 200;
    let (shown, dots) = match bytes.get(..SHOWN_MAX) {
        Some(shown) if bytes.len() > SHOWN_MAX => (shown, " ..."),
        _ => (bytes, ""),
    };
    format!("\"{}\"{dots}", shown.escape_ascii())
}

/// Parses `HTTP/1.1 200 OK`. The reason may be empty, but the space before it must be there.
fn parse_status_line(line: &[u8]) -> Option<(u8, u16, String)> {
    let line = line.strip_prefix(b"HTTP/1.")?;
    let [minor @ (b'0' | b'1'), b' ', status @ .., b' '] = line.get(..6)? else {
        return None;
    };
    let status = status.iter().all(u8::is_ascii_digit).then_some(status)?;
    let status = str::from_utf8(status).ok()?.parse().ok()?;
    (100..600).contains(&status).then(|| (minor - b'0', status, latin1(&line[6..])))
}

/// Parses `name: value` as a server must send it: without a space before the colon, and without folded lines.
fn parse_field(line: &[u8]) -> Option<(String, String)> {
    let colon = line.iter().position(|byte| *byte == b':')?;
    let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
    let is_token = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    let is_text = |byte: &u8| *byte == b'\t' || (*byte >= b' ' && *byte != 0x7f);
    let good = !name.is_empty() && name.iter().all(is_token) && value.iter().all(is_text);
    good.then(|| (latin1(name), latin1(value)))
}

/// Parses the size of a chunk, and skips chunk extensions.
fn parse_chunk_size(line: &[u8]) -> Option<usize> {
    let size = line.split(|byte| *byte == b';').next()?.trim_ascii_end();
    let digits = size.iter().all(u8::is_ascii_hexdigit).then_some(size)?;
    usize::from_str_radix(str::from_utf8(digits).ok()?, 16).ok()
}

/// Finds the framing of a response to any request but HEAD and CONNECT (RFC 9112, section 6.3).
fn framing(status: u16, headers: &[(String, String)]) -> io::Result<Framing> {
    let mut lengths = fields_named(headers, "content-length");
    let mut codings = fields_named(headers, "transfer-encoding");
    let (length, coding) = (lengths.next(), codings.next());
    if lengths.next().is_some() || codings.next().is_some() || length.and(coding).is_some() {
        return Err(malformed("contradicting framing", format!("{headers:?}").as_bytes()));
    }
    let no_body = matches!(status, 100..200 | 204 | 304);
    match (coding, length) {
        (None, None) if no_body => Ok(Framing::None),
        // A 304 may have the length of the 200 (RFC 9110, section 8.6).
        (None, Some(_)) if status == 304 => Ok(Framing::None),
        _ if no_body => Err(malformed("framing without a body", format!("{headers:?}").as_bytes())),
        (Some(coding), _) if coding.eq_ignore_ascii_case("chunked") => Ok(Framing::Chunked),
        (Some(coding), _) => Err(malformed("unknown transfer coding", coding.as_bytes())),
        (None, Some(length)) => {
            let digits = length.bytes().all(|byte| byte.is_ascii_digit());
            let length = digits.then_some(length).and_then(|length| length.parse().ok());
            length.map(Framing::Length).ok_or_else(|| {
                malformed("malformed Content-Length", format!("{headers:?}").as_bytes())
            })
        }
        (None, None) => Ok(Framing::Close),
    }
}

fn fields_named<'a>(fields: &'a [(String, String)], name: &str) -> impl Iterator<Item = &'a str> {
    let named = move |(field, _): &&(String, String)| field.eq_ignore_ascii_case(name);
    fields.iter().filter(named).map(|(_, value)| value.as_str())
}

fn latin1(bytes: &[u8]) -> String {
    bytes.iter().copied().map(char::from).collect()
}

const LIMIT_DEFAULT: Duration = Duration::from_secs(10);

/// The longest line: longer than any sensible field. A server that never ends a line fails here.
const LINE_BYTES_MAX: usize = 64 * 1024;

const RECEIVE_BYTES_MAX: usize = 64 * 1024;

#[cfg(test)]
mod tests;
