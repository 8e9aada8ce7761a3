//! The head of a response: status line and fields, parsed in one pass.
//!
//! Reading list: RFC 9112 §4–§6 and §9.3 and §11, RFC 9110 §5, §15.
//!
//! It is as strict as the parser of requests: where two readers could find different ends of a
//! response, a proxy would give the answer to one request to another client. In particular
//!
//! - a line ends in CR LF,
//! - `Content-Length` is sent at most once, even if both values agree, and never together with
//!   `Transfer-Encoding`,
//! - the only transfer coding is `chunked`, and HTTP/1.0 has none,
//! - an interim response announces no body.
//!
//! The space behind the status code may be missing, as it often is. That changes no end.

use alloc::vec::Vec;
use core::fmt;

use http::bytes;
use http::{Field, Method, Status, Version};

use crate::framing;
use crate::limits::{Limits, within};
use crate::line;

/// Lines that most heads do not exceed.
const FIELDS_USUAL: usize = 16;

/// The head of a response, and what its fields say about the wire.
#[derive(Clone, PartialEq, Eq)]
pub struct Response<'a> {
    /// The status.
    pub status: Status,
    /// The version of the response.
    pub version: Version,
    /// The framing of the body that follows.
    pub framing: Framing,
    /// The value of `Content-Length`, if it was sent. It frames no body where the method or the status permits none.
    pub content_length: Option<u64>,
    /// True if the server lets the connection persist behind this response (RFC 9112 §9.3).
    ///
    /// False if the end of the connection is the end of the body. A request with `Connection: close`
    /// ends the connection too, but the parser does not know the request.
    pub keep_alive: bool,
    /// All field lines, name and value, in their order: a list, because a proxy looks at them several times.
    pub fields: Vec<(&'a [u8], &'a [u8])>,
}

/// The framing of a response's body (RFC 9112 §6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// No body; also with `Content-Length: 0`.
    None,
    /// A body of so many bytes, at least one.
    Length(u64),
    /// A body of chunks, up to one of length zero and the trailer section.
    Chunked,
    /// All bytes up to the end of the connection. A body that was cut off looks like a whole one.
    UntilClose,
}

/// The server at the other end broke the protocol, or a limit of ours.
///
/// The connection is of no more use, because the framing of the bytes that follow cannot be trusted. A
/// proxy answers 502.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// A fragment of an English sentence for the log, such as "two Content-Length fields".
    pub reason: &'static str,
}

/// Parses the head at the start of `input`, of a response to a request with this `method`. Returns the
/// response and the length of its head, the empty line included; `None` if more bytes are needed.
///
/// `input` is everything received and not consumed yet, and may hold anything behind the head. Of
/// `limits` those of the head and its fields hold.
///
/// # Errors
///
/// A [`Fault`] as soon as the status line or a field line is not acceptable, complete or not; what
/// fields say together is judged at the end of the head.
pub fn parse<'a>(
    input: &'a [u8],
    method: Method<'_>,
    limits: &Limits,
) -> Result<Option<(Response<'a>, usize)>, Fault> {
    let too_long = Fault::new("a head that is too long");
    within(input, limits.head_bytes_max, too_long, |view| parse_view(view, method, limits))
}

impl<'a> Response<'a> {
    /// The values of all lines of a field, in their order. Names compare without case.
    pub fn lines<'n>(&self, name: &'n [u8]) -> impl Iterator<Item = &'a [u8]> + use<'a, 'n, '_> {
        let lines = self.fields.iter().filter(move |(found, _)| found.eq_ignore_ascii_case(name));
        lines.map(|(_, value)| *value)
    }
}

impl fmt::Debug for Response<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Response")
            .field("status", &self.status)
            .field("version", &self.version)
            .field("framing", &self.framing)
            .field("content_length", &self.content_length)
            .field("keep_alive", &self.keep_alive)
            .field("fields", &List(&self.fields))
            .finish()
    }
}

impl Fault {
    pub(crate) const fn new(reason: &'static str) -> Self {
        Self { reason }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.reason)
    }
}

impl core::error::Error for Fault {}

/// Requests and responses share the parser of lines. A client sends no status, so it needs only the
/// reason.
impl From<http::Reject> for Fault {
    fn from(reject: http::Reject) -> Self {
        Self { reason: reject.reason }
    }
}

/// Shows field lines as text in debug output.
struct List<'a>(&'a [(&'a [u8], &'a [u8])]);

impl fmt::Debug for List<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |(name, value): &(&[u8], &[u8])| {
            alloc::format!("{}: {}", name.escape_ascii(), value.escape_ascii())
        };
        f.debug_list().entries(self.0.iter().map(text)).finish()
    }
}

/// Parses `view`, which is cut to the limit of a head's length.
fn parse_view<'a>(
    view: &'a [u8],
    method: Method<'_>,
    limits: &Limits,
) -> Result<Option<(Response<'a>, usize)>, Fault> {
    let Some((version, status, lines_start)) = status_line(view)? else {
        return Ok(None);
    };
    let section = &view[lines_start..];
    let mut length = None;
    let mut is_chunked = false;
    let mut has_connection = false;
    let mut fields = Vec::with_capacity(FIELDS_USUAL);
    let lines = line::section(section, limits.fields_max, |name, value| {
        let value = &section[value];
        match Field::of_name(name) {
            Some(Field::ContentLength) => {
                length = Some(framing::content_length(length.is_none(), value)?);
            }
            Some(Field::TransferEncoding) => is_chunked = true,
            Some(Field::Connection) => has_connection = true,
            _ => {}
        }
        fields.push((name, value));
        Ok(())
    })?;
    let Some(lines) = lines else {
        return Ok(None);
    };
    let values = |field| {
        let named = fields.iter().filter(move |(name, _)| Field::of_name(name) == Some(field));
        named.map(|(_, value)| *value)
    };
    if is_chunked {
        let codings = values(Field::TransferEncoding);
        framing::check_transfer_encoding(version, length.is_some(), codings)?;
    }
    let announced = Announced { length, is_chunked };
    let framing = announced.framing(status, method)?;
    // A body that must not be there may come all the same, and must not be taken for a response.
    let is_doubtful = status == Status::NoContent && announced.has_body();
    let is_tunnel = status == Status::SwitchingProtocols || opens_tunnel(status, method);
    let persists = match has_connection {
        true => framing::keeps_alive(version, values(Field::Connection)),
        false => version == Version::Http11,
    };
    let keep_alive = persists && framing != Framing::UntilClose && !is_doubtful && !is_tunnel;
    let len = lines_start + lines.len() + b"\r\n".len();
    let response =
        Response { status, version, framing, content_length: length, keep_alive, fields };
    Ok(Some((response, len)))
}

/// The body that the fields announce.
struct Announced {
    length: Option<u64>,
    is_chunked: bool,
}

impl Announced {
    /// Returns whether there should be content.
    fn has_body(&self) -> bool {
        self.is_chunked || self.length.is_some_and(|length| length > 0)
    }

    /// RFC 9112 §6.3, in its order.
    fn framing(&self, status: Status, method: Method<'_>) -> Result<Framing, Fault> {
        if status.is_interim() && self.has_body() {
            return Err(Fault::new("an interim response with a body"));
        }
        if method == Method::Head || status.is_bodiless() || opens_tunnel(status, method) {
            return Ok(Framing::None);
        }
        Ok(match self.length {
            _ if self.is_chunked => Framing::Chunked,
            Some(0) => Framing::None,
            Some(length) => Framing::Length(length),
            None => Framing::UntilClose,
        })
    }
}

/// Returns whether the bytes behind the head belong to a tunnel (RFC 9110 §9.3.6).
fn opens_tunnel(status: Status, method: Method<'_>) -> bool {
    method == Method::Connect && (200..300).contains(&status.code())
}

/// `HTTP-version SP status-code SP [ reason-phrase ] CRLF` (RFC 9112 §4): version, status, and where
/// the line ends. `None` if more bytes are needed.
fn status_line(view: &[u8]) -> Result<Option<(Version, Status, usize)>, Fault> {
    let Some((minor, [a, b, c], rest)) = version_and_code(view) else {
        return no_status_line(view);
    };
    let version = if minor == 0 { Version::Http10 } else { Version::Http11 };
    let code = u16::from(a) * 100 + u16::from(b) * 10 + u16::from(c);
    let status = Status::from_code(code).ok_or(Fault::new("a status code that is not valid"))?;

    let reason_end = match rest.first() {
        Some(b' ') => bytes::skip_value(rest, 1),
        Some(b'\r') => 0,
        Some(_) => return Err(Fault::new("a malformed status code")),
        None => return Ok(None),
    };
    match (rest.get(reason_end), rest.get(reason_end + 1)) {
        (Some(b'\r'), Some(b'\n')) => {
            Ok(Some((version, status, view.len() - rest.len() + reason_end + 2)))
        }
        (None, _) | (Some(b'\r'), None) => Ok(None),
        _ => Err(Fault::new("a status line that does not end in CR LF")),
    }
}

/// The digits of the minor version and of the status code at the start of a status line, and what is behind them.
fn version_and_code(view: &[u8]) -> Option<(u8, [u8; 3], &[u8])> {
    let [minor, b' ', a, b, c, rest @ ..] = view.strip_prefix(b"HTTP/1.")? else { return None };
    let digit = |byte: &u8| bytes::digit(*byte);
    Some((digit(minor)?, [digit(a)?, digit(b)?, digit(c)?], rest))
}

/// Says what is wrong with a view that does not begin like a status line; `None` if more bytes are needed.
#[cold]
fn no_status_line<T>(view: &[u8]) -> Result<Option<T>, Fault> {
    const PATTERN: &[u8] = b"HTTP/1.n nnn";
    for (position, (&byte, &expected)) in view.iter().zip(PATTERN).enumerate() {
        let is_expected = if expected == b'n' { byte.is_ascii_digit() } else { byte == expected };
        if !is_expected {
            return Err(Fault::new(match position {
                0..5 => "a response that does not begin with HTTP/",
                5 if byte.is_ascii_digit() => "not HTTP/1.x",
                5..8 => "a malformed HTTP version",
                _ => "a malformed status code",
            }));
        }
    }
    Ok(None)
}

#[cfg(test)]
pub(crate) mod tests;
