//! The head of a request, and trailers: field lines that were decoded, checked and made a [`Head`].
//!
//! Reading list: RFC 9113 §8.2, §8.3, §8.5; RFC 8441 §4; RFC 9110 §7.2 (`Host`), §10.1.1 (`Expect`).
//!
//! # Strictness
//!
//! Requests are passed on in HTTP/1.1. So no field may mean there something else than here: no name or value can end a
//! line, and no field frames a message or belongs to a connection. Malformed heads end their streams with
//! PROTOCOL_ERROR. Heads that are too long, or that ask for something that is not provided, are answered with a status.
//!
//! The text has the pseudo-fields in front of the lines of the head:
//!
//! ```text
//!   :method: GET | :path: /a?b | … | user-agent: … | cookie: a=1; b=2 | …
//!                                  ▲ lines of the head
//! ```

use alloc::vec::Vec;
use core::ops::Range;

use hpack::Line;
use http::bytes::{self, QUERY, TOKEN, is_authority};
use http::{Field, FieldIndex, Framing, Head, Method, Reject, Status, Target, Version};

use crate::limits::Limits;
use crate::priority::Wish;

/// The longest method that is accepted, as in HTTP/1.
pub const METHOD_BYTES_MAX: usize = 32;

/// A request up to its body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// The stream on which the response is sent.
    pub stream: u32,
    /// The head. Its framing has the announced length, or [`Framing::Unknown`]. It is a [tunnel](Framing::Tunnel) if the
    /// request has a `protocol`.
    pub head: Head<'a>,
    /// The scheme in the request, empty for a plain `CONNECT`.
    pub scheme: &'a [u8],
    /// The protocol of a tunnel that the client asks for (RFC 8441), such as `websocket`; the method is `CONNECT` then.
    pub protocol: Option<&'a [u8]>,
    /// The priority that the client wishes, by the field `priority`.
    pub wish: Wish,
    /// True if the target has bytes outside ASCII. They mean their percent-encodings: see [`http::path::escape`].
    pub has_raw_target: bool,
    /// True if the client waits for `100 Continue` before it sends its body.
    pub expect_continue: bool,
    /// True if the client sends nothing more on the stream. If not, an end of the body follows, even if the head
    /// announces no content.
    pub has_ended: bool,
}

/// The positions of a request in its text.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pseudo: Pseudo,
    lines_at: usize,
    index: FieldIndex,
    pub(crate) framing: Framing,
    has_raw_target: bool,
    expect_continue: bool,
    pub(crate) wish: Wish,
    pub(crate) has_ended: bool,
}

/// The result of a whole header block.
#[derive(Clone, Debug)]
pub(crate) enum Verdict {
    Request(Found),
    /// The request is answered with a status. The positions of its method and its path, as far as they have come.
    Rejected(Reject, Outline),
    /// The stream is reset with PROTOCOL_ERROR.
    Malformed(&'static str),
}

/// The positions of the parts of a rejected request that logs show.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outline {
    pub(crate) method: Range<usize>,
    pub(crate) path: Range<usize>,
}

/// The pseudo-fields (RFC 9113 §8.3.1, RFC 8441 §4), as positions of their values.
#[derive(Clone, Debug, Default)]
struct Pseudo {
    method: Option<Range<usize>>,
    scheme: Option<Range<usize>>,
    authority: Option<Range<usize>>,
    path: Option<Range<usize>>,
    protocol: Option<Range<usize>>,
}

/// Parses the lines of one block, one after the other.
#[derive(Debug)]
pub(crate) struct Collector<'l> {
    limits: &'l Limits,
    is_trailer: bool,
    pseudo: Pseudo,
    /// The place of the first line that is no pseudo-field.
    lines_at: Option<usize>,
    /// The number of lines after it.
    lines: usize,
    index: FieldIndex,
    host: Option<Range<usize>>,
    content_length: Option<u64>,
    /// The end of the line of the cookie, if there is one.
    cookie_end: Option<usize>,
    /// True if there are lines between crumbs of the cookie.
    is_scattered: bool,
    has_priority: bool,
    fault: Option<&'static str>,
    reject: Option<Reject>,
}

impl<'l> Collector<'l> {
    pub(crate) const fn new(limits: &'l Limits, is_trailer: bool) -> Self {
        Self {
            limits,
            is_trailer,
            pseudo: Pseudo {
                method: None,
                scheme: None,
                authority: None,
                path: None,
                protocol: None,
            },
            lines_at: None,
            lines: 0,
            index: FieldIndex::EMPTY,
            host: None,
            content_length: None,
            cookie_end: None,
            is_scattered: false,
            has_priority: false,
            fault: None,
            reject: None,
        }
    }

    /// Parses a line that was appended to `text`.
    #[inline]
    pub(crate) fn handle_line(&mut self, text: &mut Vec<u8>, line: &Line) {
        if self.fault.is_some() {
            return text.truncate(line.name.start);
        }
        let result = match text[line.name.clone()].first() {
            Some(b':') => self.pseudo_field(text, line),
            _ => self.field(text, line),
        };
        self.fault = result.err();
    }

    fn pseudo_field(&mut self, text: &[u8], line: &Line) -> Result<(), &'static str> {
        if self.is_trailer {
            return Err("a pseudo-field among trailers");
        }
        if self.lines_at.is_some() {
            return Err("a pseudo-field behind a field");
        }
        let pseudo = &mut self.pseudo;
        let place = match &text[line.name.clone()] {
            b":method" => &mut pseudo.method,
            b":scheme" => &mut pseudo.scheme,
            b":authority" => &mut pseudo.authority,
            b":path" => &mut pseudo.path,
            b":protocol" if self.limits.extended_connect => &mut pseudo.protocol,
            _ => return Err("an unknown pseudo-field"),
        };
        if place.replace(line.value.clone()).is_some() {
            return Err("a pseudo-field that comes twice");
        }
        Ok(())
    }

    fn field(&mut self, text: &mut Vec<u8>, line: &Line) -> Result<(), &'static str> {
        let lines_at = *self.lines_at.get_or_insert(line.name.start);
        let (name, value) = (&text[line.name.clone()], &text[line.value.clone()]);
        if name.is_empty() || bytes::skip(name, 0, TOKEN) != name.len() {
            return Err("a field name with a character that no name may have");
        }
        if name.iter().any(u8::is_ascii_uppercase) {
            return Err("a field name in upper case");
        }
        if bytes::skip_value(value, 0) != value.len() {
            return Err("a control character in a field value");
        }
        if let [b' ' | b'\t', ..] | [.., b' ' | b'\t'] = value {
            return Err("whitespace around a field value");
        }
        match name {
            b"connection" | b"keep-alive" | b"proxy-connection" | b"transfer-encoding"
            | b"upgrade" => {
                return Err("a field of a connection");
            }
            b"te" if value != b"trailers" => return Err("a TE that is not trailers"),
            b"cookie" if !self.is_trailer => return self.crumb(text, line),
            b"priority" => self.has_priority = true,
            _ => {}
        }
        self.lines += 1;
        if let Some(field) = Field::of_name(name) {
            let place = line.value.start - lines_at..line.value.end - lines_at;
            let is_first = self.index.add(field, place);
            match field {
                Field::Host if !is_first => return Err("two Host fields"),
                Field::Host => self.host = Some(line.value.clone()),
                Field::ContentLength if !is_first => return Err("two Content-Length fields"),
                Field::ContentLength => {
                    let length = bytes::decimal(value).ok_or("an invalid Content-Length")?;
                    self.content_length = Some(length);
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Joins the crumbs of the cookie into one line (RFC 9113 §8.2.3).
    fn crumb(&mut self, text: &mut Vec<u8>, line: &Line) -> Result<(), &'static str> {
        if line.value.is_empty() {
            text.truncate(line.name.start);
            return Ok(());
        }
        if self.cookie_end == Some(line.name.start) {
            // The separator takes the place of the line end in front of it.
            let end = line.name.start - 2;
            text[end..end + 2].copy_from_slice(b"; ");
            let value_len = line.value.len();
            text.copy_within(line.value.clone(), end + 2);
            text.truncate(end + 2 + value_len);
            text.extend_from_slice(b"\r\n");
        } else {
            self.lines += 1;
            self.is_scattered |= self.cookie_end.is_some();
        }
        self.cookie_end = Some(text.len());
        Ok(())
    }

    /// The request of all lines. `is_cut` says that lines are missing, `has_ended` that no content follows.
    pub(crate) fn finish(mut self, text: &mut Vec<u8>, is_cut: bool, has_ended: bool) -> Verdict {
        if let Some(fault) = self.fault {
            return Verdict::Malformed(fault);
        }
        let lines_at = self.lines_at.unwrap_or(text.len());
        let is_long = text.len() - lines_at > self.limits.head_bytes_max;
        if is_cut || is_long || self.lines > self.limits.fields_max {
            let reason = if self.lines > self.limits.fields_max {
                "too many fields"
            } else {
                "a head that is too long"
            };
            let reject = Reject::new(Status::HeaderFieldsTooLarge, reason);
            return Verdict::Rejected(reject, self.outline(text));
        }
        if self.is_scattered {
            self.gather_cookie(text, lines_at);
        }
        match self.request(text, lines_at, has_ended) {
            Err(fault) => Verdict::Malformed(fault),
            Ok(found) => match self.reject {
                Some(reject) => Verdict::Rejected(reject, self.outline(text)),
                None => Verdict::Request(found),
            },
        }
    }

    /// The parts of a rejected request that are known, without a method or a path that no request may have.
    fn outline(&self, text: &[u8]) -> Outline {
        let limits = self.limits;
        let Pseudo { method, path, .. } = self.pseudo.clone();
        let is_token =
            |place: &Range<usize>| bytes::skip(&text[place.clone()], 0, TOKEN) == place.len();
        let method = method.filter(is_token).unwrap_or_default();
        let path = path.filter(|place| text[place.clone()].iter().all(is_path_byte));
        let path = path.unwrap_or_default();
        let end = |place: &Range<usize>, most: usize| place.end.min(place.start + most);
        let method = method.start..end(&method, METHOD_BYTES_MAX);
        Outline { path: path.start..end(&path, limits.target_bytes_max), method }
    }

    /// Joins crumbs between which there are other lines.
    #[cold]
    fn gather_cookie(&mut self, text: &mut Vec<u8>, lines_at: usize) {
        let lines = text.split_off(lines_at);
        let (mut cookie, mut index) = (Vec::new(), FieldIndex::EMPTY);
        for (name, value) in http::Fields::new(&lines) {
            if name == b"cookie" {
                cookie.extend_from_slice(if cookie.is_empty() { b"" } else { b"; " });
                cookie.extend_from_slice(value);
                continue;
            }
            let value_at = text.len() - lines_at + name.len() + b": ".len();
            http::push_line(text, name, value);
            if let Some(field) = Field::of_name(name) {
                index.add(field, value_at..value_at + value.len());
                if field == Field::Host {
                    self.host = Some(lines_at + value_at..lines_at + value_at + value.len());
                }
            }
        }
        http::push_line(text, b"cookie", &cookie);
        self.index = index;
    }

    fn request(
        &mut self,
        text: &[u8],
        lines_at: usize,
        has_ended: bool,
    ) -> Result<Found, &'static str> {
        let method = self.pseudo.method.clone().ok_or("a request without :method")?;
        let method = &text[method];
        if method.is_empty() || bytes::skip(method, 0, TOKEN) != method.len() {
            return Err("a method that is no token");
        }
        if method.len() > METHOD_BYTES_MAX {
            self.reject = Some(Reject::new(Status::NotImplemented, "a method that is too long"));
        }
        self.check_authority(text)?;
        let has_raw_target = self.check_target(text, method)?;
        let framing = match (self.content_length, has_ended) {
            (Some(1..), true) => return Err("a Content-Length without content"),
            _ if self.pseudo.protocol.is_some() => Framing::Tunnel,
            (_, true) => Framing::None,
            (Some(length), false) => Framing::of_length(length),
            (None, false) => Framing::Unknown,
        };
        let mut found = Found {
            pseudo: self.pseudo.clone(),
            lines_at,
            index: self.index.clone(),
            framing,
            has_raw_target,
            expect_continue: false,
            wish: Wish::NONE,
            has_ended,
        };
        let lines = || http::Fields::new(&text[lines_at..]);
        if self.has_priority {
            let values = lines().filter(|(name, _)| *name == b"priority").map(|(_, value)| value);
            found.wish = Wish::parse(&values.collect::<Vec<_>>().join(&b", "[..]));
        }
        let expectations = || {
            let is_it = |(name, _): &(&[u8], _)| *name == b"expect";
            lines().filter(is_it).flat_map(|(_, value)| bytes::list(value))
        };
        if self.index.has(Field::Expect) {
            found.expect_continue = framing.has_content() && expectations().next().is_some();
            if expectations().any(|one| !one.eq_ignore_ascii_case(b"100-continue")) {
                self.reject =
                    Some(Reject::new(Status::ExpectationFailed, "an unknown expectation"));
            }
        }
        Ok(found)
    }

    /// Checks the authority of a request against its `Host` (RFC 9113 §8.3.1).
    fn check_authority(&self, text: &[u8]) -> Result<(), &'static str> {
        let authority = self.pseudo.authority.clone().map(|place| &text[place]);
        let host = self.host.clone().map(|place| &text[place]);
        match (authority, host) {
            (None, None) => return Err("a request without :authority"),
            (Some(authority), Some(host)) if !authority.eq_ignore_ascii_case(host) => {
                return Err("a Host that differs from :authority");
            }
            _ => {}
        }
        let authority = authority.or(host).unwrap_or_default();
        if authority.is_empty() || authority[0] == b':' || !is_authority(authority) {
            return Err("an invalid :authority");
        }
        Ok(())
    }

    /// Checks `:scheme`, `:path` and `:protocol`. Returns whether the path has bytes outside ASCII.
    fn check_target(&mut self, text: &[u8], method: &[u8]) -> Result<bool, &'static str> {
        let get = |place: &Option<Range<usize>>| place.clone().map(|place| &text[place]);
        let (scheme, path) = (get(&self.pseudo.scheme), get(&self.pseudo.path));
        let protocol = get(&self.pseudo.protocol);
        if protocol.is_some() && method != b"CONNECT" {
            return Err("a :protocol without CONNECT");
        }
        if protocol.is_some_and(|name| name.is_empty() || bytes::skip(name, 0, TOKEN) != name.len())
        {
            return Err("a :protocol that is no token");
        }
        if method == b"CONNECT" && protocol.is_none() {
            let authority = get(&self.pseudo.authority).ok_or("CONNECT without :authority")?;
            let has_port =
                authority.contains(&b':') && authority.last().is_some_and(u8::is_ascii_digit);
            return match (scheme, path) {
                (None, None) if has_port => Ok(false),
                (None, None) => Err("CONNECT without a port"),
                _ => Err("CONNECT with :scheme or :path"),
            };
        }
        let scheme = scheme.ok_or("a request without :scheme")?;
        let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || b"+-.".contains(byte);
        if !scheme.first().is_some_and(u8::is_ascii_alphabetic) || !scheme.iter().all(is_part) {
            return Err("an invalid :scheme");
        }
        let path = path.ok_or("a request without :path")?;
        if path == b"*" && method == b"OPTIONS" {
            return Ok(false);
        }
        if path.first() != Some(&b'/') {
            return Err("a :path that does not begin with a slash");
        }
        if !path.iter().all(is_path_byte) {
            return Err("a :path with a character that no path may have");
        }
        if path.len() > self.limits.target_bytes_max {
            self.reject = Some(Reject::new(Status::UriTooLong, "a target that is too long"));
        }
        Ok(!path.is_ascii())
    }

    /// The fault of trailers, if there is one.
    pub(crate) fn finish_trailers(self, text: &[u8], is_cut: bool) -> Result<(), &'static str> {
        match self.fault {
            Some(fault) => Err(fault),
            None if is_cut || text.len() > self.limits.head_bytes_max => {
                Err("trailers that are too long")
            }
            None if self.lines > self.limits.fields_max => Err("too many trailers"),
            None => Ok(()),
        }
    }
}

impl Found {
    fn head<'a>(&self, text: &'a [u8]) -> Head<'a> {
        let get = |place: &Option<Range<usize>>| place.clone().map(|place| &text[place]);
        let method = Method::of_token(get(&self.pseudo.method).unwrap_or_default());
        let target = match get(&self.pseudo.path) {
            None => Target::Authority,
            Some(b"*") => Target::Asterisk,
            Some(path) => {
                let end = bytes::find(path, b'?');
                Target::Origin { path: &path[..end], query: path.get(end + 1..) }
            }
        };
        let authority = get(&self.pseudo.authority);
        let lines = &text[self.lines_at..];
        Head::new(method, target, Version::Http2, authority, lines, self.index.clone())
            .with_framing(self.framing)
    }

    /// The request in its text. `wish` is what the client said otherwise.
    pub(crate) fn request<'a>(&self, stream: u32, text: &'a [u8], wish: Wish) -> Request<'a> {
        let get = |place: &Option<Range<usize>>| place.clone().map(|place| &text[place]);
        Request {
            stream,
            head: self.head(text),
            scheme: get(&self.pseudo.scheme).unwrap_or_default(),
            protocol: get(&self.pseudo.protocol),
            wish,
            has_raw_target: self.has_raw_target,
            expect_continue: self.expect_continue,
            has_ended: self.has_ended,
        }
    }
}

/// Returns true for bytes that a path with its query may have. Bytes outside ASCII count as escaped.
fn is_path_byte(byte: &u8) -> bool {
    !byte.is_ascii() || bytes::is(*byte, QUERY)
}

#[cfg(test)]
mod tests;
