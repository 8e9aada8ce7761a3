//! The writing of heads and of the lines around chunks.
//!
//! Reading list: RFC 9112 §4, §5, §6.1, §7.1, §9.6; RFC 9110 §6.6.1 (`Date`), §8.6
//! (`Content-Length`).

use alloc::vec::Vec;

use http::bytes;
use http::date::{self, DATE_LEN};
use http::{ResponseHead, Status};

/// The parts of a response's head that belong to HTTP/1 and to this connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wire {
    /// `Connection`
    pub connection: ConnectionOption,
    /// `Transfer-Encoding: chunked`. It is only for HTTP/1.1 clients, and takes the place of
    /// `Content-Length`. Left out, as that, where there is never content (RFC 9112 §6.1).
    pub chunked: bool,
}

/// What a response says about the connection (RFC 9112 §9.3, §9.6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ConnectionOption {
    /// Nothing: it persists with an HTTP/1.1 client.
    #[default]
    Unsaid,
    /// `close`: this is the last response.
    Close,
    /// `keep-alive`: it persists with an HTTP/1.0 client that has asked for it.
    KeepAlive,
}

/// Appends the head of a response with the empty line that ends it.
///
/// Returns where the value of `Date` begins, counted from where this head begins: it is [`DATE_LEN`]
/// bytes long and may be overwritten with another date when a finished response is sent again.
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
    out.extend_from_slice(date);
    out.extend_from_slice(b"\r\n");
    push_optional(out, b"Server: ", head.server.as_deref().map(str::as_bytes));
    push_optional(out, b"Content-Type: ", head.content_type.as_deref());
    if wire.chunked {
        if !head.status.is_bodiless() {
            out.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
        }
    } else if let Some(length) = head.content_length
        && (!head.status.is_bodiless() || head.status == Status::NotModified)
    {
        out.extend_from_slice(b"Content-Length: ");
        bytes::push_decimal(out, length);
        out.extend_from_slice(b"\r\n");
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
    match wire.connection {
        ConnectionOption::Unsaid => {}
        ConnectionOption::Close => out.extend_from_slice(b"Connection: close\r\n"),
        ConnectionOption::KeepAlive => out.extend_from_slice(b"Connection: keep-alive\r\n"),
    }
    out.extend_from_slice(head.extra.as_bytes());
    out.extend_from_slice(b"\r\n");
    date_at
}

/// `HTTP/1.1 200 OK` and its line end. The version is the server's own, not the request's (RFC 9110
/// §2.5).
fn push_status_line(status: Status, out: &mut Vec<u8>) {
    out.extend_from_slice(b"HTTP/1.1 ");
    bytes::push_decimal(out, status.code().into());
    out.push(b' ');
    out.extend_from_slice(status.phrase().as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// Appends a line, if there is a value. `name` comes with its colon and space.
#[inline]
fn push_optional(out: &mut Vec<u8>, name: &[u8], value: Option<&[u8]>) {
    let Some(value) = value else {
        return;
    };
    out.extend_from_slice(name);
    bytes::push_value(out, value);
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests;
