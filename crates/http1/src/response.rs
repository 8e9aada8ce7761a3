//! The head of a response: status line and fields, parsed in one pass.
//!
//! Reading list: RFC 9112 §4–§6 and §9.3 and §11, RFC 9110 §5, §15.
//!
//! A response is refused if two readers could find different ends of it: a proxy would send the response to one request
//! to another client. In particular
//!
//! - all values of `Content-Length` are the same, and none is sent together with `Transfer-Encoding`,
//! - the only transfer coding is `chunked`, and HTTP/1.0 has none,
//! - no CR is without LF, and no field of the framing is malformed.
//!
//! A head that is only odd is understood, because a proxy that refuses it hides a response. A 204 still ends with its
//! head, whatever its fields of the framing are (RFC 9112 §6.3 item 1). Empty lines before a status line are skipped: some
//! servers end a body with one too many (§2.2). The module `tolerant` lists the lines that need not be well-formed. The
//! connection is used for no other request after an odd head.

use alloc::borrow::Cow;
use alloc::vec::Vec;
use core::fmt;

use http::bytes;
use http::{Field, Method, Status, Version};

use crate::framing::{self, Announced};
use crate::limits::{Limits, within};
use crate::line::{self, Line};
use crate::tolerant;

/// Lines that most heads do not exceed.
const FIELDS_USUAL: usize = 16;

/// The head of a response, and the meaning of its fields for the wire.
#[derive(Clone, PartialEq, Eq)]
pub struct Response<'a> {
    /// The status.
    pub status: Status,
    /// The version of the response.
    pub version: Version,
    /// The framing of the body that follows.
    pub framing: Framing,
    /// The value of `Content-Length`, if it was sent and has a meaning: it frames the body, or says how long the body
    /// would be that the method or the status 304 does not permit.
    pub content_length: Option<u64>,
    /// True if the server lets the connection persist after this response (RFC 9112 §9.3).
    ///
    /// False if the end of the connection is the end of the body, and after an odd head. A request with `Connection:
    /// close` also ends the connection, but the parser does not know the request.
    pub keep_alive: bool,
    /// All field lines, name and value, in their order. They are a list, because a proxy reads them several times. A
    /// value is borrowed unless line breaks or control characters were taken out of it.
    pub fields: Vec<(&'a [u8], Cow<'a, [u8]>)>,
}

/// The framing of a response's body (RFC 9112 §6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// No body; also with `Content-Length: 0`.
    None,
    /// A body of this many bytes, at least one.
    Length(u64),
    /// A body of chunks, up to one of length zero and the trailer section.
    Chunked,
    /// All bytes up to the end of the connection. A body that was cut off looks like a whole one.
    UntilClose,
}

/// The server at the other end broke the protocol, or a limit of ours.
///
/// The connection is of no more use, because the framing of the following bytes cannot be trusted. A proxy responds
/// with 502.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// A fragment of an English sentence for the log, such as "two Content-Length fields".
    pub reason: &'static str,
}

/// Parses the head at the start of `input`, of a response to a request with this `method`. Returns the
/// response and the length of its head, the empty line included; `None` if more bytes are needed.
///
/// `input` is everything received and not consumed yet, and may hold anything after the head. Of `limits` only the
/// limits of the head and its fields apply.
///
/// # Errors
///
/// A [`Fault`] as soon as the status line or a field line is not acceptable. Contradictions between fields are found at
/// the end of the head.
pub fn parse<'a>(
    input: &'a [u8],
    method: Method<'_>,
    limits: &Limits,
) -> Result<Option<(Response<'a>, usize)>, Fault> {
    let too_long = Fault::new("a head that is too long");
    within(input, limits.head_bytes_max, too_long, |view| parse_view(view, method, limits))
}

impl Response<'_> {
    /// The values of all lines of a field, in their order. Names compare without case.
    pub fn lines<'s>(&'s self, name: &'s [u8]) -> impl Iterator<Item = &'s [u8]> {
        let lines = self.fields.iter().filter(move |(found, _)| found.eq_ignore_ascii_case(name));
        lines.map(|(_, value)| &**value)
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
struct List<'a>(&'a [(&'a [u8], Cow<'a, [u8]>)]);

impl fmt::Debug for List<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |(name, value): &(&[u8], Cow<'_, [u8]>)| {
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
    let start = match view.first() {
        Some(b'\r' | b'\n') => empty_lines(view)?,
        _ => Some(0),
    };
    let Some(start) = start else { return Ok(None) };
    let Some(StatusLine { version, status, mut is_odd, len }) = status_line(&view[start..])? else {
        return Ok(None);
    };
    is_odd |= start > 0;
    let lines_start = start + len;
    let section = &view[lines_start..];
    let is_bodiless = method == Method::Head || status.is_bodiless();
    let mut length = None;
    let mut has_framing = false;
    let mut has_connection = false;
    let mut fields = Vec::with_capacity(FIELDS_USUAL);
    let mut is_open = false;
    let (mut count, mut at) = (0, 0);
    let len = loop {
        at = match line::line(section, at) {
            Ok(Some(Line::Field { name_end, value, next })) => {
                let name = &section[at..name_end];
                match of_framing(name) {
                    // Nearly all servers send one length that is a number.
                    Some(Field::ContentLength) if length.is_none() && !has_framing => {
                        length = bytes::decimal(&section[value.clone()]);
                        has_framing = length.is_none();
                    }
                    Some(Field::ContentLength | Field::TransferEncoding) => has_framing = true,
                    Some(Field::Connection) => has_connection = true,
                    _ => {}
                }
                fields.push((name, Cow::Borrowed(&section[value])));
                is_open = true;
                next
            }
            Ok(Some(Line::End { next })) => break lines_start + next,
            Ok(None) => return Ok(None),
            Err(_) => {
                let Some((line, next)) = tolerant::line(section, at)? else { return Ok(None) };
                is_odd = true;
                // The line may be a field of the framing or `Connection`.
                (has_framing, has_connection) = (true, true);
                match line {
                    tolerant::Line::Continuation(_) if at == 0 => {
                        return Err(Fault::new("a folded field line without one before it"));
                    }
                    tolerant::Line::Framing if !is_bodiless => {
                        return Err(Fault::new(tolerant::MALFORMED_FRAMING));
                    }
                    tolerant::Line::End => break lines_start + next,
                    tolerant::Line::Field(..) => is_open = true,
                    tolerant::Line::Nothing | tolerant::Line::Framing => is_open = false,
                    tolerant::Line::Continuation(_) => {}
                }
                match tolerant::add(line, &mut fields, is_open) {
                    Err(_) if is_bodiless => {}
                    added => added?,
                }
                next
            }
        };
        count += 1;
        if count > limits.fields_max {
            return Err(Fault::new("too many fields"));
        }
    };
    let values = |field| {
        let named = fields.iter().filter(move |(name, _)| Field::of_name(name) == Some(field));
        named.map(|(_, value)| &**value)
    };
    let mut announced = Announced { length, ..Announced::default() };
    if has_framing {
        let (lengths, codings) = (values(Field::ContentLength), values(Field::TransferEncoding));
        announced = match Announced::of(version, lengths, codings) {
            // The response ends with its head, whatever these fields announce.
            Err(_) if is_bodiless => Announced { is_odd: true, ..Announced::default() },
            announced => announced?,
        };
    }
    is_odd |= announced.is_odd;
    if status.is_bodiless() && status != Status::NotModified {
        // A forbidden body may still come, and must not be taken for a response.
        is_odd |= announced.has_body();
        announced = Announced::default();
    }
    let is_tunnel = status == Status::SwitchingProtocols || opens_tunnel(status, method);
    let framing = if is_bodiless || is_tunnel {
        Framing::None
    } else {
        match announced.length {
            _ if announced.is_chunked => Framing::Chunked,
            Some(0) => Framing::None,
            Some(length) => Framing::Length(length),
            None => Framing::UntilClose,
        }
    };
    let persists = match has_connection {
        true => framing::keeps_alive(version, values(Field::Connection)),
        false => version == Version::Http11,
    };
    let keep_alive = persists && framing != Framing::UntilClose && !is_odd && !is_tunnel;
    let content_length = announced.length;
    Ok(Some((Response { status, version, framing, content_length, keep_alive, fields }, len)))
}

/// The field of the framing or the connection that has this name. Already the first letter tells of most names that they
/// are others.
#[inline]
fn of_framing(name: &[u8]) -> Option<Field> {
    let may_be = matches!(name.first(), Some(b'C' | b'c' | b'T' | b't'));
    if may_be { Field::of_name(name) } else { None }
}

/// Returns whether the bytes after the head belong to a tunnel (RFC 9110 §9.3.6).
fn opens_tunnel(status: Status, method: Method<'_>) -> bool {
    method == Method::Connect && (200..300).contains(&status.code())
}

/// The length of the empty lines at the start of the view. `None` if more bytes are needed.
#[cold]
fn empty_lines(view: &[u8]) -> Result<Option<usize>, Fault> {
    let mut at = 0;
    loop {
        match view[at..] {
            [b'\n', ..] => at += 1,
            [b'\r', b'\n', ..] => at += 2,
            [] | [b'\r'] => return Ok(None),
            [b'\r', ..] => return Err(Fault::new("a CR without LF before a response")),
            _ => return Ok(Some(at)),
        }
    }
}

/// The meaning of a status line.
struct StatusLine {
    version: Version,
    status: Status,
    /// True if it is not well-formed.
    is_odd: bool,
    /// The length of the line with its end.
    len: usize,
}

/// `HTTP-version SP status-code SP [ reason-phrase ] CRLF` (RFC 9112 §4). `None` if more bytes are needed.
///
/// The space after the code may be missing, as it often is. No program reads the reason, so it may have any
/// characters.
fn status_line(view: &[u8]) -> Result<Option<StatusLine>, Fault> {
    let (version, code, rest, mut is_odd) = match version_and_code(view) {
        Some((0, code, rest)) => (Version::Http10, code, rest, false),
        Some((_, code, rest)) => (Version::Http11, code, rest, false),
        None => match odd_version_and_code(view)? {
            Some((version, code, rest)) => (version, code, rest, true),
            None => return Ok(None),
        },
    };
    let [a, b, c] = code.map(u16::from);
    let code = a * 100 + b * 10 + c;
    let status = Status::from_code(code).ok_or(Fault::new("a status code that is not valid"))?;

    let reason_end = match rest.first() {
        Some(b' ') => bytes::skip_value(rest, 1),
        Some(b'\r' | b'\n') => 0,
        Some(_) => return Err(Fault::new("a malformed status code")),
        None => return Ok(None),
    };
    let line_end = match rest[reason_end..] {
        [b'\r', b'\n', ..] => reason_end + 2,
        [] | [b'\r'] => return Ok(None),
        _ => {
            is_odd = true;
            let odd = rest[reason_end..].iter().position(|byte| matches!(byte, b'\r' | b'\n' | 0));
            let Some(stop) = odd.map(|stop| reason_end + stop) else { return Ok(None) };
            match rest[stop..] {
                [b'\n', ..] => stop + 1,
                [b'\r', b'\n', ..] => stop + 2,
                [b'\r'] => return Ok(None),
                _ => return Err(Fault::new("a CR without LF, or a NUL, in the status line")),
            }
        }
    };
    Ok(Some(StatusLine { version, status, is_odd, len: view.len() - rest.len() + line_end }))
}

/// The digits of the minor version and of the status code at the start of a status line, and the bytes after them.
fn version_and_code(view: &[u8]) -> Option<(u8, [u8; 3], &[u8])> {
    let [minor, b' ', a, b, c, rest @ ..] = view.strip_prefix(b"HTTP/1.")? else { return None };
    let digit = |byte: &u8| bytes::digit(*byte);
    Some((digit(minor)?, [digit(a)?, digit(b)?, digit(c)?], rest))
}

/// The start of a status line: version, digits of the code, and the bytes after them.
type OddStart<'a> = (Version, [u8; 3], &'a [u8]);

/// The version, the digits of the status code, and the bytes after them, of a line with several spaces or a future
/// version. Some programs copy the version of their client, such as `HTTP/2`. `None` if more bytes are needed.
#[cold]
fn odd_version_and_code(view: &[u8]) -> Result<Option<OddStart<'_>>, Fault> {
    const PATTERN: &[u8] = b"HTTP/n.n ";
    const WITHOUT_MINOR: &[u8] = b"HTTP/n ";
    let pattern = match view.get(5..7) {
        Some([b'2'..=b'9', b' ']) => WITHOUT_MINOR,
        _ => PATTERN,
    };
    for (position, (&byte, &expected)) in view.iter().zip(pattern).enumerate() {
        let is_expected = if expected == b'n' { byte.is_ascii_digit() } else { byte == expected };
        if !is_expected {
            return Err(Fault::new(match position {
                0..5 => "a response that does not begin with HTTP/",
                _ => "a malformed HTTP version",
            }));
        }
    }
    let Some((start, rest)) = view.split_at_checked(pattern.len()) else { return Ok(None) };
    let version = match (start[5], start[pattern.len() - 2]) {
        (b'0', _) => return Err(Fault::new("HTTP/0.x, which has no status line")),
        (b'1', b'0') => Version::Http10,
        _ => Version::Http11,
    };
    let spaces = rest.iter().take_while(|byte| **byte == b' ').count();
    let mut code = [0; 3];
    for (digit, place) in code.iter_mut().zip(spaces..) {
        let Some(&byte) = rest.get(place) else { return Ok(None) };
        *digit = bytes::digit(byte).ok_or(Fault::new("a malformed status code"))?;
    }
    Ok(Some((version, code, &rest[spaces + 3..])))
}

#[cfg(test)]
pub(crate) mod tests;
