//! The writing of heads and of the lines around chunks.
//!
//! Reading list: RFC 9112 §4, §5, §6.1, §7.1, §9.6; RFC 9110 §6.6.1 (`Date`), §8.6
//! (`Content-Length`).

use alloc::vec::Vec;

use http::bytes::{self, QUERY, TOKEN};
use http::date::{self, DATE_LEN};
use http::{FieldSection, Framing, Method, ResponseHead, Status, Target};

/// The parts of a response's head that belong to HTTP/1 and to this connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wire {
    /// `Connection`
    pub connection: ConnectionOption,
    /// `Transfer-Encoding: chunked`. It is only for HTTP/1.1 clients, and replaces `Content-Length`. Neither
    /// is written for messages that never have content (RFC 9112 §6.1).
    pub chunked: bool,
}

/// The value of `Connection` in a message (RFC 9112 §9.3, §9.6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ConnectionOption {
    /// No such field: the connection persists between HTTP/1.1 peers.
    #[default]
    Unsaid,
    /// `close`: this is the last message of its kind.
    Close,
    /// `keep-alive`: the connection persists with an HTTP/1.0 client that has asked for it.
    KeepAlive,
    /// `TE`: in a request with a `TE` that says that trailers are understood (RFC 9110 §10.1.4).
    Te,
    /// `upgrade`: with an `Upgrade` that names the protocol, in a request or with a 101 (RFC 9110 §7.8).
    Upgrade,
    /// `upgrade, close`: the same in a request, and if the protocol does not change, this is the last request.
    UpgradeOrClose,
}

/// Appends the head of a response with the empty line that ends it.
///
/// `date` is the time of sending, for a response that has no date of its own. Returns where the value of
/// `Date` begins, counted from where this head begins: it is [`DATE_LEN`] bytes long and may be
/// overwritten with another date when a finished response is sent again.
///
/// ```
/// use http::{ResponseHead, Status, date};
/// use http1::write::{self, Wire};
///
/// let mut out = Vec::new();
/// let head = ResponseHead {
///     content_type: Some(b"text/plain".into()),
///     content_length: Some(5),
///     ..ResponseHead::new(Status::Ok)
/// };
/// let date_at =
///     write::response_head(&head, &date::format(784_111_777), Wire::default(), &mut out);
/// assert_eq!(
///     out.escape_ascii().to_string(),
///     "HTTP/1.1 200 OK\\r\\nDate: Sun, 06 Nov 1994 08:49:37 GMT\\r\\n\
///      Content-Type: text/plain\\r\\nContent-Length: 5\\r\\n\\r\\n",
/// );
/// assert_eq!(&out[date_at..date_at + 3], b"Sun");
/// ```
///
/// No value can end its line: control characters are left out.
///
/// # Panics
///
/// In debug builds, if a value holds a control character other than HTAB.
pub fn response_head(
    head: &ResponseHead<'_>,
    date: &[u8; DATE_LEN],
    wire: Wire,
    out: &mut Vec<u8>,
) -> usize {
    const DATE_NAME: &[u8] = b"Date: ";
    // The head of an ordinary file has some 250 bytes.
    out.reserve(320 + head.extra.as_bytes().len());
    let start = out.len();
    push_status_line(head.status, out);
    out.extend_from_slice(DATE_NAME);
    let date_at = out.len() - start;
    match head.date {
        None => out.extend_from_slice(date),
        Some(own) => out.extend_from_slice(&date::format(own)),
    }
    out.extend_from_slice(b"\r\n");
    push_optional(out, b"Server: ", head.server.as_deref().map(str::as_bytes));
    push_optional(out, b"Content-Type: ", head.content_type.as_deref());
    if wire.chunked {
        if !head.status.is_bodiless() {
            out.extend_from_slice(CHUNKED);
        }
    } else if let Some(length) = head.content_length
        && (!head.status.is_bodiless() || head.status == Status::NotModified)
    {
        push_content_length(out, length);
    }
    if let Some(content_range) = &head.content_range {
        out.extend_from_slice(b"Content-Range: ");
        content_range.write_to(out);
        out.extend_from_slice(b"\r\n");
    }
    push_optional(out, b"Content-Encoding: ", head.content_encoding.as_deref());
    if let Some(time) = head.last_modified {
        out.extend_from_slice(b"Last-Modified: ");
        out.extend_from_slice(&date::format(time));
        out.extend_from_slice(b"\r\n");
    }
    push_optional(out, b"ETag: ", head.etag.as_deref());
    push_optional(out, b"Cache-Control: ", head.cache_control.as_deref());
    push_optional(out, b"Vary: ", head.vary.as_deref());
    if head.accept_ranges {
        out.extend_from_slice(b"Accept-Ranges: bytes\r\n");
    }
    push_optional(out, b"Location: ", head.location.as_deref());
    push_optional(out, b"Allow: ", head.allow.as_deref());
    if head.nosniff {
        out.extend_from_slice(b"X-Content-Type-Options: nosniff\r\n");
    }
    push_connection(out, wire.connection);
    out.extend_from_slice(head.extra.as_bytes());
    out.extend_from_slice(b"\r\n");
    date_at
}

/// Adds lines at the end of a head that was written, in front of its empty line.
///
/// # Panics
///
/// In debug builds, if `head` does not end with an empty line.
pub fn add_lines(lines: &FieldSection<'_>, head: &mut Vec<u8>) {
    debug_assert!(head.ends_with(b"\r\n\r\n"), "{}", head.escape_ascii());
    head.truncate(head.len().saturating_sub(2));
    head.extend_from_slice(lines.as_bytes());
    head.extend_from_slice(b"\r\n");
}

/// `HTTP/1.1 200 OK` and its line end. The version is the server's own, not the request's (RFC 9110
/// §2.5).
fn push_status_line(status: Status, out: &mut Vec<u8>) {
    out.extend_from_slice(b"HTTP/1.1 ");
    // A status has three digits.
    let code = status.code();
    let digit = |place: u16| b'0' + u8::try_from(code / place % 10).unwrap_or_default();
    out.extend_from_slice(&[digit(100), digit(10), digit(1), b' ']);
    out.extend_from_slice(status.phrase().as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// Appends a line, if there is a value. `name` comes with its colon and space.
#[inline(always)]
fn push_optional(out: &mut Vec<u8>, name: &[u8], value: Option<&[u8]>) {
    // Most heads lack most of them.
    if let Some(value) = value {
        push_named(out, name, value);
    }
}

fn push_named(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    out.extend_from_slice(name);
    bytes::push_value(out, value);
    out.extend_from_slice(b"\r\n");
}

/// The beginning of the head of a request that is sent to a server: its request line, `Host` and framing.
///
/// ```
/// use http::{Framing, Method, Target};
/// use http1::write::{self, ConnectionOption, RequestStart};
///
/// let start = RequestStart {
///     method: Method::Post,
///     target: Target::Origin { path: b"/form", query: Some(b"a=b") },
///     host: b"example.org",
///     framing: Framing::Length(5),
/// };
/// let mut out = Vec::new();
/// write::request_start(&start, &mut out);
/// http::push_line(&mut out, b"Accept", b"text/html");
/// write::request_end(ConnectionOption::Close, &mut out);
/// assert_eq!(
///     out.escape_ascii().to_string(),
///     "POST /form?a=b HTTP/1.1\\r\\nHost: example.org\\r\\n\
///      Content-Length: 5\\r\\nAccept: text/html\\r\\nConnection: close\\r\\n\\r\\n",
/// );
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestStart<'a> {
    /// The method.
    pub method: Method<'a>,
    /// The resource. A path and a query are percent-encoded already.
    pub target: Target<'a>,
    /// The value of `Host`, and the target of CONNECT.
    pub host: &'a [u8],
    /// The framing of the body that is going to follow: one of unknown length is chunked.
    pub framing: Framing,
}

/// Appends the beginning of a head. The lines of other fields follow, none of which is `Host`, `Connection`,
/// `Content-Length` or `Transfer-Encoding`, and then [`request_end`].
///
/// No part can end its line or become two: bytes that are not allowed there are left out.
///
/// # Panics
///
/// In debug builds, if there are such bytes.
pub fn request_start(head: &RequestStart<'_>, out: &mut Vec<u8>) {
    push_part(out, head.method.as_bytes(), TOKEN);
    out.push(b' ');
    match head.target {
        Target::Origin { path, query } => {
            push_part(out, path, QUERY);
            if let Some(query) = query {
                out.push(b'?');
                push_part(out, query, QUERY);
            }
        }
        Target::Asterisk => out.push(b'*'),
        Target::Authority => push_part(out, head.host, QUERY),
    }
    out.extend_from_slice(b" HTTP/1.1\r\nHost: ");
    push_part(out, head.host, QUERY);
    out.extend_from_slice(b"\r\n");
    match head.framing {
        // For these methods content has a meaning, so its absence is stated (RFC 9110 §8.6).
        Framing::None if matches!(head.method, Method::Post | Method::Put | Method::Patch) => {
            push_content_length(out, 0);
        }
        Framing::None | Framing::Tunnel => {}
        Framing::Length(length) => push_content_length(out, length),
        Framing::Unknown => out.extend_from_slice(CHUNKED),
    }
}

/// Appends the end of the head of a request: `Connection`, and the empty line.
pub fn request_end(connection: ConnectionOption, out: &mut Vec<u8>) {
    push_connection(out, connection);
    out.extend_from_slice(b"\r\n");
}

/// Appends a part of a request line or a host.
fn push_part(out: &mut Vec<u8>, part: &[u8], class: u8) {
    let is_clean = bytes::skip(part, 0, class) == part.len();
    debug_assert!(is_clean, "part of a request {}", part.escape_ascii());
    if is_clean {
        return out.extend_from_slice(part);
    }
    out.extend(part.iter().copied().filter(|&byte| bytes::is(byte, class)));
}

fn push_content_length(out: &mut Vec<u8>, length: u64) {
    out.extend_from_slice(b"Content-Length: ");
    bytes::push_decimal(out, length);
    out.extend_from_slice(b"\r\n");
}

fn push_connection(out: &mut Vec<u8>, option: ConnectionOption) {
    match option {
        ConnectionOption::Unsaid => {}
        ConnectionOption::Close => out.extend_from_slice(b"Connection: close\r\n"),
        ConnectionOption::KeepAlive => out.extend_from_slice(b"Connection: keep-alive\r\n"),
        ConnectionOption::Te => out.extend_from_slice(b"Connection: TE\r\n"),
        ConnectionOption::Upgrade => out.extend_from_slice(b"Connection: upgrade\r\n"),
        ConnectionOption::UpgradeOrClose => {
            out.extend_from_slice(b"Connection: upgrade, close\r\n");
        }
    }
}

const CHUNKED: &[u8] = b"Transfer-Encoding: chunked\r\n";

/// The interim response that invites the body of a request (RFC 9110 §10.1.1).
pub const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// Appends the line before the data of a chunk of `len` bytes. [`CHUNK_END`] follows the data, and
/// [`LAST_CHUNK`] the last chunk.
///
/// # Panics
///
/// If `len` is zero: an empty chunk would end the body.
pub fn chunk_head(len: u64, out: &mut Vec<u8>) {
    assert!(len > 0, "an empty chunk ends the body");
    let digits = u64::BITS / 4 - len.leading_zeros() / 4;
    for place in (0..digits).rev() {
        let nibble = (len >> (4 * place) & 0xf) as usize;
        out.push(b"0123456789abcdef"[nibble]);
    }
    out.extend_from_slice(b"\r\n");
}

/// The bytes after the data of each chunk.
pub const CHUNK_END: &[u8] = b"\r\n";

/// Appends the end of a chunked body with these trailers.
pub fn last_chunk(trailers: &FieldSection<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(b"0\r\n");
    out.extend_from_slice(trailers.as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// Appends the head of an interim response (RFC 9110 §15.2) with these fields.
pub fn interim_head(status: Status, fields: &FieldSection<'_>, out: &mut Vec<u8>) {
    push_status_line(status, out);
    out.extend_from_slice(fields.as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// The end of a chunked body, without trailers.
pub const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

#[cfg(test)]
mod tests;
