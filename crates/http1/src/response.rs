//! The head of a response.
//!
//! Reading list: RFC 9112 §4, §5, §11.1 (response splitting); RFC 9110 §6.6.1 (`Date`), §8.6
//! (`Content-Length`).

use alloc::vec::Vec;

use crate::plan::ContentRange;
use http::Status;
use http::bytes::{self, VALUE};
use http::date::{self, DATE_LEN};

/// The head of a response: set what applies, then [`write_to`](Self::write_to).
///
/// ```
/// use http::{Status, date};
/// use http1::ResponseHead;
///
/// let mut out = Vec::new();
/// let date_at = ResponseHead {
///     content_type: Some(b"text/plain"),
///     content_length: Some(5),
///     ..ResponseHead::new(Status::Ok, date::format(784_111_777))
/// }
/// .write_to(&mut out);
/// assert_eq!(
///     out.escape_ascii().to_string(),
///     "HTTP/1.1 200 OK\\r\\nDate: Sun, 06 Nov 1994 08:49:37 GMT\\r\\n\
///      Content-Type: text/plain\\r\\nContent-Length: 5\\r\\n\\r\\n",
/// );
/// assert_eq!(&out[date_at..date_at + 3], b"Sun");
/// ```
///
/// No value can end its line: control characters are left out, and a debug build panics at them.
#[derive(Clone, Debug)]
pub struct ResponseHead<'a> {
    /// The status.
    pub status: Status,
    /// The time of the response, from [`date::format`].
    pub date: [u8; DATE_LEN],
    /// `Server`
    pub server: Option<&'a str>,
    /// `Content-Type`
    pub content_type: Option<&'a [u8]>,
    /// `Content-Length`: of the content that is sent, or would be if the request were not HEAD.
    ///
    /// Left out of 1xx and 204 whatever is set here, as RFC 9110 §8.6 demands. For a 304 it may be
    /// set to what the 200 would say; it is better not set.
    pub content_length: Option<u64>,
    /// `Content-Range`, with a 206 of one part or a 416.
    pub content_range: Option<ContentRange>,
    /// `Content-Encoding`
    pub content_encoding: Option<&'a [u8]>,
    /// `Last-Modified` in Unix seconds. It must not be later than [`date`](Self::date) (RFC 9110
    /// §8.8.2.1).
    pub last_modified: Option<i64>,
    /// `ETag`, with its quotes.
    pub etag: Option<&'a [u8]>,
    /// `Cache-Control`
    pub cache_control: Option<&'a [u8]>,
    /// `Vary`
    pub vary: Option<&'a [u8]>,
    /// `Accept-Ranges: bytes`
    pub accept_ranges: bool,
    /// `Location`
    pub location: Option<&'a [u8]>,
    /// `Allow`, of which a 405 must have one, even if empty.
    pub allow: Option<&'a [u8]>,
    /// `X-Content-Type-Options: nosniff`
    pub nosniff: bool,
    /// `Connection`
    pub connection: ConnectionOption,
    /// Further fields, such as configured ones, as name and value. The names must be tokens.
    pub extra: &'a [(&'a [u8], &'a [u8])],
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

impl<'a> ResponseHead<'a> {
    /// A head that has only a status and a date.
    pub const fn new(status: Status, date: [u8; DATE_LEN]) -> Self {
        Self {
            status,
            date,
            server: None,
            content_type: None,
            content_length: None,
            content_range: None,
            content_encoding: None,
            last_modified: None,
            etag: None,
            cache_control: None,
            vary: None,
            accept_ranges: false,
            location: None,
            allow: None,
            nosniff: false,
            connection: ConnectionOption::Unsaid,
            extra: &[],
        }
    }

    /// Appends the head with the empty line that ends it.
    ///
    /// Returns where the value of `Date` begins, counted from where this head begins: it is
    /// [`DATE_LEN`] bytes long and may be overwritten with another date when a finished response is
    /// sent again.
    ///
    /// # Panics
    ///
    /// In debug builds, if a value holds a control character other than HTAB, or a name is not a
    /// token.
    pub fn write_to(&self, out: &mut Vec<u8>) -> usize {
        const DATE_NAME: &[u8] = b"Date: ";
        // The head of an ordinary file has some 250 bytes.
        out.reserve(320);
        let line = self.status.line().as_bytes();
        out.extend_from_slice(line);
        out.extend_from_slice(DATE_NAME);
        out.extend_from_slice(&self.date);
        out.extend_from_slice(b"\r\n");

        push_optional(out, b"Server: ", self.server.map(str::as_bytes));
        push_optional(out, b"Content-Type: ", self.content_type);
        if let Some(length) = self.content_length
            && (!self.status.is_bodiless() || self.status == Status::NotModified)
        {
            out.extend_from_slice(b"Content-Length: ");
            bytes::push_decimal(out, length);
            out.extend_from_slice(b"\r\n");
        }
        if let Some(content_range) = &self.content_range {
            out.extend_from_slice(b"Content-Range: ");
            content_range.write_to(out);
            out.extend_from_slice(b"\r\n");
        }
        push_optional(out, b"Content-Encoding: ", self.content_encoding);
        if let Some(time) = self.last_modified {
            out.extend_from_slice(b"Last-Modified: ");
            out.extend_from_slice(&date::format(time));
            out.extend_from_slice(b"\r\n");
        }
        push_optional(out, b"ETag: ", self.etag);
        push_optional(out, b"Cache-Control: ", self.cache_control);
        push_optional(out, b"Vary: ", self.vary);
        if self.accept_ranges {
            out.extend_from_slice(b"Accept-Ranges: bytes\r\n");
        }
        push_optional(out, b"Location: ", self.location);
        push_optional(out, b"Allow: ", self.allow);
        if self.nosniff {
            out.extend_from_slice(b"X-Content-Type-Options: nosniff\r\n");
        }
        match self.connection {
            ConnectionOption::Unsaid => {}
            ConnectionOption::Close => out.extend_from_slice(b"Connection: close\r\n"),
            ConnectionOption::KeepAlive => out.extend_from_slice(b"Connection: keep-alive\r\n"),
        }
        for (name, value) in self.extra {
            push_extra(out, name, value);
        }
        out.extend_from_slice(b"\r\n");
        line.len() + DATE_NAME.len()
    }
}

/// Appends a line, if there is a value. `name` comes with its colon and space.
#[inline]
fn push_optional(out: &mut Vec<u8>, name: &[u8], value: Option<&[u8]>) {
    let Some(value) = value else {
        return;
    };
    out.extend_from_slice(name);
    push_value(out, value);
    out.extend_from_slice(b"\r\n");
}

/// Appends a line whose name is not known to be good; a line without a valid name is left out.
fn push_extra(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    let is_token = !name.is_empty() && bytes::skip(name, 0, bytes::TOKEN) == name.len();
    debug_assert!(is_token, "field name {}", name.escape_ascii());
    if !is_token {
        return;
    }
    out.extend_from_slice(name);
    out.extend_from_slice(b": ");
    push_value(out, value);
    out.extend_from_slice(b"\r\n");
}

/// Appends a value. Whoever can put a line end into it could send a response of his own (RFC 9112
/// §11.1).
#[inline]
fn push_value(out: &mut Vec<u8>, value: &[u8]) {
    let is_clean = bytes::skip_value(value, 0) == value.len();
    debug_assert!(is_clean, "field value {}", value.escape_ascii());
    if is_clean {
        out.extend_from_slice(value);
    } else {
        push_without_controls(out, value);
    }
}

#[cold]
fn push_without_controls(out: &mut Vec<u8>, value: &[u8]) {
    out.extend(value.iter().copied().filter(|&byte| bytes::is(byte, VALUE)));
}

#[cfg(test)]
mod tests;
