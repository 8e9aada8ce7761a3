//! A response of a server, and the parser of its parts (RFC 9112, from the client's side).

use core::fmt;
use std::io::{self, ErrorKind};

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
pub(crate) fn parse_status_line(line: &[u8]) -> Option<(u8, u16, String)> {
    let line = line.strip_prefix(b"HTTP/1.")?;
    let [minor @ (b'0' | b'1'), b' ', status @ .., b' '] = line.get(..6)? else {
        return None;
    };
    let status = status.iter().all(u8::is_ascii_digit).then_some(status)?;
    let status = str::from_utf8(status).ok()?.parse().ok()?;
    (100..600).contains(&status).then(|| (minor - b'0', status, latin1(&line[6..])))
}

/// Parses `name: value` as a server must send it: without a space before the colon, and without folded lines.
pub(crate) fn parse_field(line: &[u8]) -> Option<(String, String)> {
    let colon = line.iter().position(|byte| *byte == b':')?;
    let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
    let is_token = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    let is_text = |byte: &u8| *byte == b'\t' || (*byte >= b' ' && *byte != 0x7f);
    let good = !name.is_empty() && name.iter().all(is_token) && value.iter().all(is_text);
    good.then(|| (latin1(name), latin1(value)))
}

/// Parses the size of a chunk, and skips chunk extensions.
pub(crate) fn parse_chunk_size(line: &[u8]) -> Option<usize> {
    let size = line.split(|byte| *byte == b';').next()?.trim_ascii_end();
    let digits = size.iter().all(u8::is_ascii_hexdigit).then_some(size)?;
    usize::from_str_radix(str::from_utf8(digits).ok()?, 16).ok()
}

/// Finds the framing of a response to any request but HEAD and CONNECT (RFC 9112, section 6.3).
pub(crate) fn framing(status: u16, headers: &[(String, String)]) -> io::Result<Framing> {
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
pub(crate) const LINE_BYTES_MAX: usize = 64 * 1024;
