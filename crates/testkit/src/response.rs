//! A response of a server, and its parser (RFC 9112, from the client's side). Pure: a client that receives from
//! a socket uses it, and so can a test that has the bytes.

use core::fmt;
use std::io::{self, ErrorKind};

/// One response of a server.
#[derive(Clone, Eq, PartialEq)]
pub struct Response {
    /// The y of HTTP/1.y.
    pub minor_version: u8,
    /// The three digits.
    pub status: u16,
    /// The text after the status, which may be empty.
    pub reason: String,
    /// In order, as spelled, with the values' bytes read as ISO 8859-1.
    pub headers: Vec<(String, String)>,
    /// The way in which the end of the body was found.
    pub framing: Framing,
    /// The body, without chunked coding. Empty from `Client::head`, which leaves it unread.
    pub body: Vec<u8>,
    /// The fields after the last chunk, as `headers`.
    pub trailers: Vec<(String, String)>,
}

/// The way in which the end of a body is found (RFC 9112, section 6.3).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Framing {
    /// The last chunk says that it is the last.
    Chunked,
    /// The connection is closed.
    Close,
    /// The body has the number of bytes that Content-Length gives.
    Length(u64),
    /// The status does not allow a body.
    None,
}

impl Response {
    /// Parses the response at the beginning of these bytes, and returns it with its length; `None` if more bytes
    /// are needed.
    ///
    /// `is_to_head`: the response is to a HEAD request, so no body follows. `has_ended`: no more bytes will
    /// come.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidData`] if it is malformed; [`ErrorKind::UnexpectedEof`] if the bytes have ended
    /// before the response.
    pub fn parse(
        bytes: &[u8],
        is_to_head: bool,
        has_ended: bool,
    ) -> io::Result<Option<(Self, usize)>> {
        let mut rest = Rest(bytes);
        match rest.response(is_to_head, has_ended)? {
            Some(response) => Ok(Some((response, bytes.len() - rest.0.len()))),
            None if has_ended => {
                let got = format!("closed after {} bytes: {}", bytes.len(), excerpt(bytes));
                Err(io::Error::new(ErrorKind::UnexpectedEof, got))
            }
            None => Ok(None),
        }
    }

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

/// The bytes that are not parsed yet. Each method returns `None` if there are not enough.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn response(&mut self, is_to_head: bool, has_ended: bool) -> io::Result<Option<Response>> {
        let Some(status_line) = self.line()? else { return Ok(None) };
        let (minor_version, status, reason) = parse_status_line(status_line)
            .ok_or_else(|| malformed("malformed status line", status_line))?;
        let Some(headers) = self.fields()? else { return Ok(None) };
        let framing = framing(status, &headers)?;
        let body = match framing {
            _ if is_to_head => Some((Vec::new(), Vec::new())),
            Framing::Chunked => self.chunks()?,
            Framing::Close if has_ended => {
                Some((core::mem::take(&mut self.0).to_vec(), Vec::new()))
            }
            Framing::Close => None,
            Framing::Length(length) => {
                let length = usize::try_from(length).map_err(io::Error::other)?;
                self.take(length).map(|body| (body.to_vec(), Vec::new()))
            }
            Framing::None => Some((Vec::new(), Vec::new())),
        };
        Ok(body.map(|(body, trailers)| Response {
            minor_version,
            status,
            reason,
            headers,
            framing,
            body,
            trailers,
        }))
    }

    /// A body of chunks, and the trailers after it.
    fn chunks(&mut self) -> io::Result<Option<(Vec<u8>, Lines)>> {
        let mut body = Vec::new();
        loop {
            let Some(line) = self.line()? else { return Ok(None) };
            let length = parse_chunk_size(line).ok_or_else(|| malformed("chunk size", line))?;
            if length == 0 {
                return Ok(self.fields()?.map(|trailers| (body, trailers)));
            }
            let Some(chunk) = self.take(length) else { return Ok(None) };
            body.extend_from_slice(chunk);
            match self.take(2) {
                None => return Ok(None),
                Some(b"\r\n") => {}
                Some(end) => return Err(malformed("no line end after a chunk", end)),
            }
        }
    }

    /// Header or trailer fields, with the empty line that ends them.
    fn fields(&mut self) -> io::Result<Option<Lines>> {
        let mut fields = Vec::new();
        loop {
            match self.line()? {
                None => return Ok(None),
                Some(b"") => return Ok(Some(fields)),
                Some(line) => fields
                    .push(parse_field(line).ok_or_else(|| malformed("malformed field", line))?),
            }
        }
    }

    /// A line without its end.
    fn line(&mut self) -> io::Result<Option<&'a [u8]>> {
        let Some(length) = self.0.windows(2).position(|pair| pair == b"\r\n") else {
            return match self.0.len() {
                0..=LINE_BYTES_MAX => Ok(None),
                _ => Err(malformed("a line without end", self.0)),
            };
        };
        let (line, rest) = self.0.split_at(length);
        self.0 = &rest[2..];
        let stray = line.iter().any(|byte| b"\r\n\0".contains(byte));
        if stray { Err(malformed("CR, LF or NUL within a line", line)) } else { Ok(Some(line)) }
    }

    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }
}

/// Fields in order: name and value.
type Lines = Vec<(String, String)>;

pub(crate) fn malformed(what: &str, bytes: &[u8]) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, format!("{what}: {}", excerpt(bytes)))
}

pub(crate) fn excerpt(bytes: &[u8]) -> impl fmt::Display {
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

/// The longest line: longer than any sensible field. A server that never ends a line fails here.
const LINE_BYTES_MAX: usize = 64 * 1024;

#[cfg(test)]
mod tests;
