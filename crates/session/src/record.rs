//! The entries of requests for logs and metrics, kept until their responses have been sent.

use core::cell::Cell;
use core::net::IpAddr;
use core::ops::Range;
use core::time::Duration;
use std::rc::Rc;

use http::bytes::skip_unescaped;
use http::{Field, Framing, Head, Status, Target};
use ring::{Key, Time};
use sendfile::Failure;

use crate::forwarded::Scheme;
use crate::reason::Reason;
use crate::request_id;
use crate::ticket::Ticket;
use crate::user::User;
use metrics::{MethodLabel, Observation, SchemeLabel, SiteLabel, StatusLabel};

/// The number of a log, which stays open as long as there is a clone of it.
#[derive(Clone, Debug)]
pub struct LogId(pub Rc<Key>);

/// The site for which requests are recorded, with its log and its label.
#[derive(Debug)]
pub struct Recording {
    /// The name of the site.
    pub site: Box<str>,
    /// The log of the site, if it has one.
    pub log: Option<LogId>,
    /// The label of the site, if requests are counted.
    pub label: Option<SiteLabel>,
    /// True if lines of the log have facts that the usual formats leave out: the host, the id of the request, the trace.
    pub shows_more: bool,
    /// True if lines of the log have the host.
    pub shows_host: bool,
    /// True if lines of the log have the trace of the request.
    pub shows_trace: bool,
}

/// The upstream that has answered a request, and the times that it took.
#[derive(Debug)]
pub struct UpstreamTimes {
    /// Its name.
    pub name: Box<str>,
    /// The time until the connection was made; none for a connection that was kept.
    pub connect: Option<Duration>,
    /// The time from then on until the head of the response had come.
    pub head: Duration,
    /// The time from then on until the rest of the response had come, once it has.
    pub body: Cell<Option<Duration>>,
}

/// The entry of a request.
#[derive(Debug)]
pub struct Record {
    /// The place where it is recorded.
    pub recording: Rc<Recording>,
    /// The client, if that is not the one of the connection.
    pub client: Option<IpAddr>,
    /// The user, if an authorizer names one.
    pub user: Option<User>,
    /// The time at which its head was complete; for bytes that were no request, the time of the refusal.
    pub began: Time,
    /// The same, in milliseconds since 1970.
    pub unix_ms: i64,
    /// The label of its scheme.
    pub scheme: SchemeLabel,
    /// The label of its method.
    pub method: MethodLabel,
    /// The status of the response.
    pub status: Status,
    /// The reason, if the response is an error of the server.
    pub reason: Option<Reason>,
    /// The time for which it has waited for a disk.
    pub disk_wait: Duration,
    /// Position of the body in the connection's stream.
    pub body_at: u64,
    /// Length of the whole body.
    pub body_bytes: u64,
    /// Empty if there is no log.
    pub text: Text,
    /// The name of the request, of which its id is made.
    pub ticket: Ticket,
    /// The upstream that has answered, if one has.
    pub upstream: Option<Rc<UpstreamTimes>>,
    /// Bytes of its head and of its body: see [`request_body_bytes`](Self::request_body_bytes).
    pub request_bytes: u64,
    /// Bytes of its body: those that its head announces, or else those that a consumer has got.
    pub request_body_bytes: u64,
}

/// The text of a request that a log shows, in one allocation.
#[derive(Debug, Default)]
pub struct Text {
    /// The request line, the referrer and the user agent.
    bytes: Vec<u8>,
    request: usize,
    referer: usize,
    method: usize,
    path: Range<usize>,
    user_agent: usize,
    host: usize,
    id: usize,
}

/// The request line of a request that was refused before it was read, as far as it is known.
#[derive(Clone, Debug, Default)]
pub struct Sketch {
    /// The parts with blanks between them; empty if nothing is known.
    line: Vec<u8>,
    method: usize,
    path: usize,
}

impl Sketch {
    /// Makes a record of the parts that are known; others are empty. Without a method nothing is known.
    #[must_use]
    pub fn new(method: &[u8], target: &[u8], version: &[u8]) -> Self {
        if method.is_empty() {
            return Self::default();
        }
        let all = [method, target, version];
        let known: Vec<_> = all.into_iter().filter(|part| !part.is_empty()).collect();
        let path = target.iter().position(|byte| *byte == b'?').unwrap_or(target.len());
        Self { line: known.join(&b' '), method: method.len(), path }
    }

    /// Bytes of memory in addition to its own.
    pub(crate) fn memory(&self) -> usize {
        self.line.capacity()
    }
}

/// The facts that a log shows in addition to the usual ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum More {
    /// None.
    Nothing,
    /// All. An id that the request gives does not count.
    Untrusted,
    /// All. An id that the request gives counts, because a proxy has given it that is believed.
    Trusted,
}

impl More {
    /// The facts that this log shows. Whether a proxy is believed is asked only if the log shows an id.
    pub fn of(recording: &Recording, is_trusted: impl FnOnce() -> bool) -> Self {
        match recording.shows_more {
            false => Self::Nothing,
            true if is_trusted() => Self::Trusted,
            true => Self::Untrusted,
        }
    }
}

/// The beginning of a request.
#[derive(Clone, Copy, Debug)]
pub struct Began {
    /// When its head was complete.
    pub at: Time,
    /// The same, in milliseconds since 1970.
    pub unix_ms: i64,
    /// The time for which its answer has waited for a disk.
    pub disk_wait: Duration,
}

/// The reason why a response was cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// The client closed the connection.
    Client,
    /// For too long, the client took too few bytes, or no bytes of a request's body came.
    Timeout,
    /// The disk failed, or did not answer in time.
    Disk,
    /// The file became shorter.
    Truncated,
    /// The producer of the response failed.
    Handler,
    /// The server ended the connection, because it needed memory or a slot, or shut down.
    Server,
}

/// The label in metrics.
impl From<Scheme> for SchemeLabel {
    fn from(scheme: Scheme) -> Self {
        match scheme {
            Scheme::Http => Self::Http,
            Scheme::Https => Self::Https,
        }
    }
}

impl Record {
    /// Makes the entry of a request, or, without a head, of bytes that were no request. It has `more` than the usual facts.
    /// Its scheme, unless that is `http`, and the position of its body are set later.
    pub fn new(
        recording: Rc<Recording>,
        head: Option<&Head<'_>>,
        status: Status,
        began: Began,
        more: More,
    ) -> Box<Self> {
        let text = if recording.log.is_some() {
            Text::new(head, more, [recording.shows_host, recording.shows_trace])
        } else {
            Text::default()
        };
        let request_bytes = head.filter(|_| recording.log.is_some()).map_or(0, request_bytes);
        let Began { at, unix_ms, disk_wait } = began;
        let method = head.map_or(MethodLabel::NONE, |head| MethodLabel::of(head.method));
        let (body_at, body_bytes) = (0, 0);
        let record = Self {
            recording,
            client: None,
            user: None,
            began: at,
            unix_ms,
            scheme: SchemeLabel::Http,
            method,
            status,
            reason: None,
            disk_wait,
            body_at,
            body_bytes,
            text,
            ticket: Ticket::default(),
            upstream: None,
            request_bytes,
            request_body_bytes: head.map_or(0, announced),
        };
        Box::new(record)
    }

    /// Records the request line of a request that has no head.
    pub(crate) fn set_line(&mut self, sketch: &Sketch) {
        if self.recording.log.is_some() && !sketch.line.is_empty() {
            self.text = Text::of_sketch(sketch);
        }
    }

    /// Adds bytes of a body whose length its head does not announce.
    pub fn add_body(&mut self, bytes: u64) {
        // Without a log the bytes of a request are not counted.
        if self.recording.log.is_some() {
            self.request_bytes = self.request_bytes.saturating_add(bytes);
        }
        self.request_body_bytes += bytes;
    }

    /// The values of the request for metrics, if it is counted. By now `body_bytes` bytes of its body have been sent.
    pub fn observation(&self, body_bytes: u64, now: Time) -> Option<Observation> {
        Some(Observation {
            site: self.recording.label?,
            scheme: self.scheme,
            method: self.method,
            status: StatusLabel::of(self.status),
            duration: now.since(self.began),
            body_bytes,
            request_body_bytes: self.request_body_bytes,
            disk_wait: self.disk_wait,
        })
    }

    /// Bytes of memory.
    pub fn memory(&self) -> usize {
        let user = self.user.as_ref().map_or(0, |user| user.name().len());
        size_of::<Self>() + self.text.bytes.capacity() + user
    }
}

impl Text {
    fn new(head: Option<&Head<'_>>, more: More, [shows_host, shows_trace]: [bool; 2]) -> Self {
        let Some(head) = head else {
            let bytes = b"-".to_vec();
            let (user_agent, host, id) = (1, 1, 1);
            return Self { bytes, request: 1, referer: 1, user_agent, host, id, ..Self::default() };
        };
        let referer = head.field(Field::Referer).unwrap_or_default();
        let user_agent = head.field(Field::UserAgent).unwrap_or_default();
        let method = head.method.as_bytes().len();
        let (path, query) = match head.target {
            Target::Origin { path, query } => (path.len(), query.map_or(0, <[u8]>::len)),
            Target::Asterisk => (1, 0),
            Target::Authority => (head.host().unwrap_or_default().len(), 0),
        };
        let (host, id, trace) = match more {
            More::Nothing => (&b""[..], &b""[..], &b""[..]),
            _ => (
                if shows_host { head.host() } else { None }.unwrap_or_default(),
                if more == More::Trusted { request_id::given(head) } else { None }
                    .unwrap_or_default(),
                if shows_trace { request_id::trace(head) } else { None }.unwrap_or_default(),
            ),
        };
        let further = host.len() + id.len() + trace.len();
        // Blanks, the question mark and the version have a dozen bytes.
        let mut bytes = Vec::with_capacity(
            method + path + query + referer.len() + user_agent.len() + further + 16,
        );
        head.request_line(&mut bytes);
        let request = bytes.len();
        bytes.extend_from_slice(referer);
        let referer = bytes.len();
        bytes.extend_from_slice(user_agent);
        let user_agent = bytes.len();
        bytes.extend_from_slice(host);
        let host = bytes.len();
        bytes.extend_from_slice(id);
        let id = bytes.len();
        bytes.extend_from_slice(trace);
        let path = method + 1..method + 1 + path;
        Self { bytes, request, referer, method, path, user_agent, host, id }
    }

    fn of_sketch(Sketch { line, method, path }: &Sketch) -> Self {
        let (bytes, end) = (line.clone(), line.len());
        let start = (method + 1).min(end);
        let path = start..start + path;
        let (referer, user_agent, host, id) = (end, end, end, end);
        Self { bytes, request: end, referer, method: *method, path, user_agent, host, id }
    }

    /// Returns true if no part of it has to be escaped in a line.
    pub fn is_plain(&self) -> bool {
        skip_unescaped(&self.bytes, 0) == self.bytes.len()
    }

    /// The request line; `-` for bytes that were no request.
    pub fn request(&self) -> &[u8] {
        &self.bytes[..self.request]
    }

    /// The method; empty for bytes that were no request.
    pub fn method(&self) -> &[u8] {
        &self.bytes[..self.method]
    }

    /// The path without the query.
    pub fn path(&self) -> &[u8] {
        &self.bytes[self.path.clone()]
    }

    /// The value of `Referer`.
    pub fn referer(&self) -> &[u8] {
        &self.bytes[self.request..self.referer]
    }

    /// The value of `User-Agent`.
    pub fn user_agent(&self) -> &[u8] {
        &self.bytes[self.referer..self.user_agent]
    }

    /// The requested host; empty if the log does not show it.
    pub fn host(&self) -> &[u8] {
        &self.bytes[self.user_agent..self.host]
    }

    /// The id that a trusted proxy has given; empty if none has.
    pub fn given_id(&self) -> &[u8] {
        &self.bytes[self.host..self.id]
    }

    /// The value of `traceparent`, if it is one.
    pub fn trace(&self) -> &[u8] {
        &self.bytes[self.id..]
    }

    /// The query without its question mark; empty if there is none.
    pub fn query(&self) -> &[u8] {
        let behind = self.request().get(self.path.end..).unwrap_or_default();
        let end = behind.iter().rposition(|byte| *byte == b' ').unwrap_or(behind.len());
        behind[..end].strip_prefix(b"?").unwrap_or_default()
    }

    /// The version of HTTP; empty for bytes that were no request.
    pub fn version(&self) -> &[u8] {
        let last = self.request().rsplit(|byte| *byte == b' ').next().unwrap_or_default();
        // A request that was refused may have none.
        if last.starts_with(b"HTTP/") { last } else { b"" }
    }
}

/// Bytes of a request: its head, and its body if the length of that was announced.
fn request_bytes(head: &Head<'_>) -> u64 {
    let line = match head.target {
        Target::Origin { path, query } => path.len() + query.map_or(0, |query| query.len() + 1),
        Target::Asterisk => 1,
        Target::Authority => head.host().unwrap_or_default().len(),
    };
    let method = head.method.as_bytes().len();
    // Two blanks, the version, and the ends of the request line and of the head.
    let head_len = method + line + head.lines_len() + "  HTTP/1.1\r\n\r\n".len();
    // A length may be as large as a number can be.
    announced(head).saturating_add(head_len as u64)
}

/// Bytes of the body of a request, if their number was announced; else 0.
const fn announced(head: &Head<'_>) -> u64 {
    match head.framing {
        Framing::Length(length) => length,
        Framing::None | Framing::Unknown | Framing::Tunnel => 0,
    }
}

impl Cut {
    /// The reason for a failure.
    pub const fn of(failure: Failure) -> Self {
        match failure {
            Failure::Gone => Self::Client,
            Failure::Late | Failure::Unreadable(_) => Self::Disk,
            Failure::Truncated => Self::Truncated,
            Failure::Unfinished => Self::Handler,
            Failure::NoMemory(_) | Failure::Unexpected(_) => Self::Server,
        }
    }

    /// The word for it in logs.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Timeout => "timeout",
            Self::Disk => "disk",
            Self::Truncated => "truncated",
            Self::Handler => "handler",
            Self::Server => "server",
        }
    }
}

#[cfg(test)]
mod tests {
    use http::{FieldIndex, Method, Version};

    use super::*;

    fn text(target: Target<'_>, host: Option<&[u8]>) -> Text {
        let (version, index) = (Version::Http11, FieldIndex::EMPTY);
        Text::new(
            Some(&Head::new(Method::Get, target, version, host, b"", index)),
            More::Untrusted,
            [true; 2],
        )
    }

    #[test]
    fn the_parts_of_a_request_are_found_again() {
        let origin = text(Target::Origin { path: b"/a/b", query: Some(b"c=d") }, None);
        assert_eq!(origin.request(), b"GET /a/b?c=d HTTP/1.1");
        assert_eq!((origin.method(), origin.path()), (&b"GET"[..], &b"/a/b"[..]));
        assert_eq!((origin.referer(), origin.user_agent()), (&b""[..], &b""[..]));
        assert_eq!(text(Target::Asterisk, None).path(), b"*");
        assert_eq!(text(Target::Authority, Some(b"a:80")).path(), b"a:80");
        assert_eq!((origin.query(), origin.version()), (&b"c=d"[..], &b"HTTP/1.1"[..]));
        let hosted = text(Target::Origin { path: b"/", query: None }, Some(b"a:80"));
        assert_eq!((hosted.query(), hosted.host()), (&b""[..], &b"a:80"[..]));
        assert_eq!((hosted.given_id(), hosted.trace()), (&b""[..], &b""[..]));
        for (parts, line, query) in [
            (["GET", "/a?b=c", "HTTP/3.0"], "GET /a?b=c HTTP/3.0", "b=c"),
            (["GET", "/a?b", ""], "GET /a?b", "b"),
            (["GET", "", "HTTP/1.1"], "GET HTTP/1.1", ""),
            (["GET", "", ""], "GET", ""),
        ] {
            let [method, target, version] = parts.map(str::as_bytes);
            let text = Text::of_sketch(&Sketch::new(method, target, version));
            assert_eq!((text.request(), text.method()), (line.as_bytes(), method));
            let path = target.split(|byte| *byte == b'?').next().unwrap();
            assert_eq!((text.path(), text.version()), (path, version), "{line}");
            assert_eq!((text.query(), text.user_agent()), (query.as_bytes(), &b""[..]), "{line}");
        }
        let none = Text::new(None, More::Untrusted, [true; 2]);
        assert_eq!((none.request(), none.method(), none.path()), (&b"-"[..], &b""[..], &b""[..]));
        assert_eq!((none.referer(), none.user_agent()), (&b""[..], &b""[..]));
    }
}
