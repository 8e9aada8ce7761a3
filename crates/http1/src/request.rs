//! The head of a request: request line and fields, parsed in one pass without allocation.
//!
//! Reading list: RFC 9112 §2–§6 and §9.3 and §11, RFC 9110 §4, §5, §7.2, §9, §10.1.1.
//!
//! # Strictness
//!
//! RFC 9112 lets a recipient be lenient in places. This parser is strict, because requests are smuggled through the
//! difference between two readers of the same bytes (RFC 9112 §11.2). In particular
//!
//! - a line ends in CR LF; a lone LF is refused although §2.2 permits to accept it,
//! - the parts of the request line are separated by exactly one space,
//! - `Content-Length` is sent at most once, even if both values agree,
//! - `Content-Length` and `Transfer-Encoding` exclude each other, and HTTP/1.0 has no
//!   `Transfer-Encoding`.
//!
//! Up to [`EMPTY_LINES_MAX`] empty lines before the request line are passed over, as §2.2 asks.
//!
//! The cuts between packets never change the verdict. A fault of one line is reported as soon as the line shows it;
//! fields that contradict each other are reported at the end of the head.

use http::bytes::{self, PATH, QUERY, TOKEN, is_authority};
use http::{Field, FieldIndex, Framing, Head, Method, Reject, Status, Target, Version};

use crate::framing;
use crate::limits::{Limits, within};
use crate::line;

/// The maximum of empty lines that may stand before a request line (RFC 9112 §2.2: at least one).
pub const EMPTY_LINES_MAX: usize = 2;

/// The longest method that is accepted. The longest registered one, `UPDATEREDIRECTREF`, has 17
/// letters.
pub const METHOD_BYTES_MAX: usize = 32;

/// A request up to its body: the head, and what its fields say about the wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// The head. Content of [unknown](Framing::Unknown) length is chunked. The framing is a
    /// [tunnel](Framing::Tunnel) if the client asks to switch the connection to another protocol (RFC 9110 §7.8),
    /// which HTTP/1.0 cannot do.
    pub head: Head<'a>,
    /// True if the target has bytes outside ASCII. They mean their percent-encodings: see [`http::path::escape`].
    pub has_raw_target: bool,
    /// True if the connection stays open after the response (RFC 9112 §9.3).
    ///
    /// [`server::Connection`](crate::server::Connection) also clears it for a body that is too long, or that waits
    /// for an invitation, until the caller asks for the body.
    pub keep_alive: bool,
    /// True if the client waits for `100 Continue` before it sends its body (RFC 9110 §10.1.1).
    ///
    /// Never set without a body, nor in HTTP/1.0. [`server::Connection`](crate::server::Connection) also clears it
    /// until the caller asks for the body: a body that is not read is not invited.
    pub expect_continue: bool,
}

impl Request<'_> {
    /// Sets `keep_alive` and `expect_continue` by the fields of the head.
    pub(crate) fn set_persistence(&mut self) {
        let head = &self.head;
        // The bytes after a CONNECT are meant for the other end of a tunnel, never for this parser (RFC 9110
        // §9.3.6).
        self.keep_alive = head.method != Method::Connect
            && framing::keeps_alive(head.version, head.lines(Field::Connection));
        // An expectation in HTTP/1.0 is ignored, RFC 9110 §10.1.1.
        self.expect_continue = head.framing.has_content()
            && head.version == Version::Http11
            && head.lines(Field::Expect).flat_map(bytes::list).next().is_some();
    }
}

/// Parses the head at the start of `input`. Returns the request and the length of its head, from the
/// start of the input to the end of the empty line; `None` if more bytes are needed.
///
/// `input` is everything received and not consumed yet, and may hold anything after the head. Each call begins
/// anew; a call for every packet costs at most `head_bytes_max` bytes of scanning each.
///
/// # Errors
///
/// A [`Reject`] as soon as the request line or a field line is not acceptable, complete or not. Contradictions
/// between fields are found at the end of the head:
///
/// - 400 malformed, or framed ambiguously
/// - 414 the target is too long
/// - 417 an expectation other than `100-continue`
/// - 431 the head is too long or has too many fields
/// - 501 a method of more than [`METHOD_BYTES_MAX`] bytes, or an unknown transfer coding before
///   `chunked`
/// - 505 not HTTP/1.x
#[inline]
pub fn parse<'a>(input: &'a [u8], limits: &Limits) -> Result<Option<(Request<'a>, usize)>, Reject> {
    let bytes_max = limits.head_bytes_max.min(Limits::HEAD_BYTES_CEILING);
    let too_long = Reject::new(Status::HeaderFieldsTooLarge, "a head that is too long");
    within(input, bytes_max, too_long, |view| parse_view(view, limits))
}

/// The parts of a request line that can be made out in bytes that are no whole and acceptable request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sketch<'a> {
    /// The method: a token of at most [`METHOD_BYTES_MAX`] bytes.
    pub method: &'a [u8],
    /// The target up to its first blank, as far as it has come: at most [`Limits::target_bytes_max`] bytes. It may have
    /// any bytes but blanks and ends of lines.
    pub target: &'a [u8],
    /// The version, such as `HTTP/3.0`; empty if it is missing or malformed.
    pub version: &'a [u8],
}

/// Finds the parts of the request line at the start of `input`, which [`parse`] has refused, or of which it needs more. This
/// is for logs only: no part was checked. Returns `None` if the bytes do not begin with a method.
#[must_use]
pub fn sketch<'a>(input: &'a [u8], limits: &Limits) -> Option<Sketch<'a>> {
    let is_end = |byte: &u8| matches!(byte, b'\r' | b'\n');
    let start = input.iter().position(|byte| !is_end(byte))?;
    let line = &input[start..];
    let line = &line[..line.iter().position(is_end).unwrap_or(line.len())];
    let method_len = bytes::skip(line, 0, TOKEN);
    if method_len > METHOD_BYTES_MAX {
        return Some(Sketch { method: &line[..METHOD_BYTES_MAX], ..Sketch::default() });
    }
    // Without the blank the rest of the method may be missing.
    let rest = line[method_len..].strip_prefix(b" ").filter(|_| method_len > 0)?;
    let version = rest.rsplit(|byte| *byte == b' ').next().unwrap_or_default();
    let has_version = matches!(
        version,
        [b'H', b'T', b'T', b'P', b'/', major, b'.', minor]
            if major.is_ascii_digit() && minor.is_ascii_digit()
    );
    let target = match has_version {
        true => &rest[..rest.len() - version.len()],
        false => rest,
    };
    let target = &target[..bytes::find(target, b' ')];
    Some(Sketch {
        method: &line[..method_len],
        target: &target[..target.len().min(limits.target_bytes_max)],
        version: if has_version { version } else { b"" },
    })
}

/// The request line, and the position of its end.
struct RequestLine<'a> {
    method: Method<'a>,
    target: Target<'a>,
    /// True if the target has bytes outside ASCII.
    is_raw: bool,
    /// The authority in the target, if it has one.
    authority: Option<&'a [u8]>,
    version: Version,
    next: usize,
}

/// Parses `view`, which is cut to the limit of a head's length.
#[inline]
fn parse_view<'a>(view: &'a [u8], limits: &Limits) -> Result<Option<(Request<'a>, usize)>, Reject> {
    let Some(start) = skip_empty_lines(view)? else {
        return Ok(None);
    };
    let Some(line) = request_line(view, start, limits)? else {
        return Ok(None);
    };
    let section = &view[line.next..];
    let mut index = FieldIndex::EMPTY;
    let mut content_length = None;
    let lines = line::section(section, limits.fields_max, |name, value| {
        if let Some(field) = Field::of_name(name) {
            let is_first = index.add(field, value.clone());
            // A fault that no later line can repair is refused here, not at the end of the head.
            match field {
                Field::Host => check_host_field(is_first, &section[value])?,
                Field::ContentLength => {
                    content_length = Some(framing::content_length(is_first, &section[value])?);
                }
                _ => {}
            }
        }
        Ok(())
    })?;
    let Some(lines) = lines else {
        return Ok(None);
    };

    let RequestLine { method, target, is_raw, authority, version, next } = line;
    let mut head = Head::new(method, target, version, authority, lines, index);
    if let Some(length) = content_length {
        head.framing = Framing::of_length(length);
    }
    let mut request = Request {
        keep_alive: version == Version::Http11,
        has_raw_target: is_raw,
        expect_continue: false,
        head,
    };
    if version == Version::Http11 && !request.head.has(Field::Host) {
        return Err(Reject::bad("HTTP/1.1 without a Host field"));
    }
    let hop_fields = [Field::Connection, Field::TransferEncoding, Field::Expect];
    if request.head.has_any(&hop_fields) || method == Method::Connect {
        interpret_hop_fields(&mut request)?;
    }
    let len = next + lines.len() + b"\r\n".len();
    Ok(Some((request, len)))
}

/// The position of the request line after empty lines; `None` if more bytes are needed.
#[inline(always)]
fn skip_empty_lines(view: &[u8]) -> Result<Option<usize>, Reject> {
    let mut at = 0;
    loop {
        match (view.get(at), view.get(at + 1)) {
            (Some(b'\r'), _) if at == 2 * EMPTY_LINES_MAX => {
                return Err(Reject::bad("empty lines instead of a request"));
            }
            (Some(b'\r'), Some(b'\n')) => at += 2,
            (Some(b'\r'), Some(_)) => return Err(Reject::bad("a CR without LF before a request")),
            (Some(b'\r'), None) | (None, _) => return Ok(None),
            (Some(_), _) => return Ok(Some(at)),
        }
    }
}

/// `method SP request-target SP HTTP-version CRLF` (RFC 9112 §3) from `at` on; `None` if more bytes
/// are needed.
#[inline(always)]
fn request_line<'a>(
    view: &'a [u8],
    at: usize,
    limits: &Limits,
) -> Result<Option<RequestLine<'a>>, Reject> {
    let Some((method, target_start)) = method(view, at)? else {
        return Ok(None);
    };

    let path_end = bytes::skip(view, target_start, PATH);
    let target_end = match view.get(path_end) {
        Some(b'?') => bytes::skip(view, path_end + 1, QUERY),
        _ => path_end,
    };
    let is_raw = matches!(view.get(target_end), Some(0x80..));
    let (path_end, end) =
        if is_raw { raw_ends(view, target_start) } else { (path_end, target_end) };
    if end - target_start > limits.target_bytes_max {
        return Err(Reject::new(Status::UriTooLong, "a target that is too long"));
    }
    match view.get(end) {
        Some(b' ') if end > target_start => {}
        Some(&byte) => return Err(bad_target_byte(byte, end == target_start)),
        None => return Ok(None),
    }

    let Some((version, next)) = version(view, end + 1)? else {
        return Ok(None);
    };
    let path = &view[target_start..path_end];
    let query = (path_end < end).then(|| &view[path_end + 1..end]);
    let (target, authority) = if path.first() == Some(&b'/') && method != Method::Connect {
        (Target::Origin { path, query }, None)
    } else {
        uncommon_target(method, path, query)?
    };
    Ok(Some(RequestLine { method, target, is_raw, authority, version, next }))
}

/// The ends of the path and of the whole target that begins at `start`, with bytes outside ASCII, which count as visible
/// ones.
#[cold]
fn raw_ends(view: &[u8], start: usize) -> (usize, usize) {
    let target = &view[start..];
    let is_end = |byte: &u8| byte.is_ascii() && !bytes::is(*byte, QUERY);
    let len = target.iter().position(is_end).unwrap_or(target.len());
    let path_len = target[..len].iter().position(|&byte| byte == b'?').unwrap_or(len);
    (start + path_len, start + len)
}

/// The method and the position after its space; `None` if more bytes are needed.
#[inline(always)]
fn method(view: &[u8], at: usize) -> Result<Option<(Method<'_>, usize)>, Reject> {
    if let Some(b"GET ") = view.get(at..at + 4) {
        return Ok(Some((Method::Get, at + 4)));
    }
    let end = bytes::skip(view, at, TOKEN);
    if end - at > METHOD_BYTES_MAX {
        return Err(Reject::new(Status::NotImplemented, "a method that is too long"));
    }
    match view.get(end) {
        Some(b' ') if end > at => Ok(Some((Method::of_token(&view[at..end]), end + 1))),
        Some(_) => Err(Reject::bad("a request line that does not begin with a method")),
        None => Ok(None),
    }
}

#[cold]
fn bad_target_byte(byte: u8, at_start: bool) -> Reject {
    Reject::bad(match byte {
        b' ' if at_start => "two spaces before the target",
        b'\r' | b'\n' => "a request line without an HTTP version",
        b'#' => "a target with a fragment",
        _ => "a target with a control character",
    })
}

/// `HTTP-version CRLF` from `at` on, and the position after; `None` if more bytes are needed.
#[inline(always)]
fn version(view: &[u8], at: usize) -> Result<Option<(Version, usize)>, Reject> {
    const LEN: usize = b"HTTP/1.1\r\n".len();
    match view.get(at..at + LEN) {
        Some(b"HTTP/1.1\r\n") => Ok(Some((Version::Http11, at + LEN))),
        Some(b"HTTP/1.0\r\n") => Ok(Some((Version::Http10, at + LEN))),
        _ => uncommon_version(&view[at..]).map(|found| found.map(|version| (version, at + LEN))),
    }
}

/// The version at the start of `rest`, if it is neither 1.0 nor 1.1, is malformed, or is not all
/// there.
#[cold]
fn uncommon_version(rest: &[u8]) -> Result<Option<Version>, Reject> {
    let mut version = Version::Http11;
    for (position, expected) in b"HTTP/1.x\r\n".iter().enumerate() {
        let Some(byte) = rest.get(position) else {
            return Ok(None);
        };
        match (position, byte) {
            (5, b'2'..=b'9') => {
                return Err(Reject::new(Status::VersionNotSupported, "not HTTP/1.x"));
            }
            (7, b'0') => version = Version::Http10,
            (7, b'1'..=b'9') => {}
            _ if byte == expected && position != 7 => {}
            (8 | 9, _) => return Err(Reject::bad("a request line that does not end in CR LF")),
            _ => return Err(Reject::bad("a malformed HTTP version")),
        }
    }
    Ok(Some(version))
}

/// A target that is not in origin-form (RFC 9112 §3.2.2–§3.2.4), and its authority.
///
/// `path` is everything before the first `?`; it is not empty unless a `?` came first.
#[cold]
fn uncommon_target<'a>(
    method: Method<'_>,
    path: &'a [u8],
    query: Option<&'a [u8]>,
) -> Result<(Target<'a>, Option<&'a [u8]>), Reject> {
    if method == Method::Connect {
        let has_host = !path.starts_with(b":");
        let has_port = path.contains(&b':') && path.last().is_some_and(u8::is_ascii_digit);
        if query.is_some() || !has_host || !has_port || !is_authority(path) {
            return Err(Reject::bad("CONNECT with a target that is not host and port"));
        }
        return Ok((Target::Authority, Some(path)));
    }
    if path == b"*" && query.is_none() && method == Method::Options {
        return Ok((Target::Asterisk, None));
    }
    let Some(rest) = strip_scheme(path) else {
        return Err(Reject::bad("a target that is neither a path nor a URI"));
    };
    let authority_end = rest.iter().position(|&byte| byte == b'/').unwrap_or(rest.len());
    let (authority, path) = rest.split_at(authority_end);
    // An http URI with an empty host is invalid, RFC 9110 §4.2.1; user information is an error,
    // §4.2.4.
    if authority.is_empty() || authority[0] == b':' || !is_authority(authority) {
        return Err(Reject::bad("a target with an invalid host"));
    }
    let target = match (path, query) {
        ([], None) if method == Method::Options => Target::Asterisk,
        ([], query) => Target::Origin { path: b"/", query },
        (path, query) => Target::Origin { path, query },
    };
    Ok((target, Some(authority)))
}

fn strip_scheme(target: &[u8]) -> Option<&[u8]> {
    [&b"http://"[..], b"https://"].into_iter().find_map(|scheme| {
        let (start, rest) = target.split_at_checked(scheme.len())?;
        start.eq_ignore_ascii_case(scheme).then_some(rest)
    })
}

/// RFC 9112 §3.2: more than one `Host` or an invalid one is a 400.
#[inline(always)]
fn check_host_field(is_first: bool, value: &[u8]) -> Result<(), Reject> {
    if !is_first {
        return Err(Reject::bad("two Host fields"));
    }
    if !is_authority(value) {
        return Err(Reject::bad("an invalid Host field"));
    }
    Ok(())
}

/// Sets what `Connection`, `Transfer-Encoding` and `Expect` say about the message and the connection.
fn interpret_hop_fields(request: &mut Request<'_>) -> Result<(), Reject> {
    let head = &mut request.head;
    if head.has(Field::TransferEncoding) {
        let has_length = head.has(Field::ContentLength);
        let lines = head.lines(Field::TransferEncoding);
        framing::check_transfer_encoding(head.version, has_length, lines)?;
        head.framing = Framing::Unknown;
    }
    if head.version == Version::Http11 {
        for expectation in head.lines(Field::Expect).flat_map(bytes::list) {
            if !expectation.eq_ignore_ascii_case(b"100-continue") {
                return Err(Reject::new(Status::ExpectationFailed, "an unknown expectation"));
            }
        }
        let mut options = head.lines(Field::Connection).flat_map(bytes::list);
        if head.framing == Framing::None
            && options.any(|option| option.eq_ignore_ascii_case(b"upgrade"))
        {
            head.framing = Framing::Tunnel;
        }
    }
    request.set_persistence();
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests;
