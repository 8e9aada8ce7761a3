//! The entries of requests for logs and metrics, kept until their responses have been sent.

use core::net::IpAddr;
use core::ops::Range;
use core::time::Duration;
use std::rc::Rc;

use http::{Field, Head, Status, Target};
use ring::{Key, Time};
use sendfile::Failure;

use crate::forwarded::Scheme;
use crate::reason::Reason;
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
}

/// The entry of a request.
#[derive(Debug)]
pub struct Record {
    /// Where it is recorded.
    pub recording: Rc<Recording>,
    /// The client, if that is not the one of the connection.
    pub client: Option<IpAddr>,
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
    /// Makes the entry of a request, or, without a head, of bytes that were no request. Its scheme, unless that is `http`,
    /// and the position of its body are set later.
    pub fn new(
        recording: Rc<Recording>,
        head: Option<&Head<'_>>,
        status: Status,
        began: Began,
    ) -> Box<Self> {
        let text = if recording.log.is_some() { Text::new(head) } else { Text::default() };
        let Began { at, unix_ms, disk_wait } = began;
        let method = head.map_or(MethodLabel::NONE, |head| MethodLabel::of(head.method));
        let (body_at, body_bytes) = (0, 0);
        let record = Self {
            recording,
            client: None,
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
        };
        Box::new(record)
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
            disk_wait: self.disk_wait,
        })
    }

    /// Bytes of memory.
    pub fn memory(&self) -> usize {
        size_of::<Self>() + self.text.bytes.capacity()
    }
}

impl Text {
    fn new(head: Option<&Head<'_>>) -> Self {
        let Some(head) = head else {
            return Self { bytes: b"-".to_vec(), request: 1, referer: 1, ..Self::default() };
        };
        let referer = head.field(Field::Referer).unwrap_or_default();
        let user_agent = head.field(Field::UserAgent).unwrap_or_default();
        let method = head.method.as_bytes().len();
        let (path, query) = match head.target {
            Target::Origin { path, query } => (path.len(), query.map_or(0, <[u8]>::len)),
            Target::Asterisk => (1, 0),
            Target::Authority => (head.host().unwrap_or_default().len(), 0),
        };
        // Blanks, the question mark and the version have a dozen bytes.
        let mut bytes =
            Vec::with_capacity(method + path + query + referer.len() + user_agent.len() + 16);
        head.request_line(&mut bytes);
        let request = bytes.len();
        bytes.extend_from_slice(referer);
        let referer = bytes.len();
        bytes.extend_from_slice(user_agent);
        Self { bytes, request, referer, method, path: method + 1..method + 1 + path }
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
        &self.bytes[self.referer..]
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
        Text::new(Some(&Head::new(Method::Get, target, version, host, b"", index)))
    }

    #[test]
    fn the_parts_of_a_request_are_found_again() {
        let origin = text(Target::Origin { path: b"/a/b", query: Some(b"c=d") }, None);
        assert_eq!(origin.request(), b"GET /a/b?c=d HTTP/1.1");
        assert_eq!((origin.method(), origin.path()), (&b"GET"[..], &b"/a/b"[..]));
        assert_eq!((origin.referer(), origin.user_agent()), (&b""[..], &b""[..]));
        assert_eq!(text(Target::Asterisk, None).path(), b"*");
        assert_eq!(text(Target::Authority, Some(b"a:80")).path(), b"a:80");
        let none = Text::new(None);
        assert_eq!((none.request(), none.method(), none.path()), (&b"-"[..], &b""[..], &b""[..]));
        assert_eq!((none.referer(), none.user_agent()), (&b""[..], &b""[..]));
    }
}
