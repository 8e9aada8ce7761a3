//! The head of a response, in every version of HTTP.
//!
//! Reading list: RFC 9110 §6.6.1 (`Date`), §8.6 (`Content-Length`), §15.

use alloc::borrow::Cow;

use crate::plan::ContentRange;
use crate::section::FieldSection;
use crate::status::Status;

/// The head of a response: a status and its fields.
///
/// It is a value: a handler makes it. A session writes it when its turn has come, and adds the parts of
/// the connection: date, framing, and the option of the connection. Only a response from another server
/// has a date of its own. Borrowed values cost no allocation; [`into_owned`](Self::into_owned) makes a
/// head that can be kept.
///
/// ```
/// use http::{ResponseHead, Status};
///
/// let head = ResponseHead {
///     content_type: Some(b"text/plain".into()),
///     content_length: Some(5),
///     ..ResponseHead::new(Status::Ok)
/// };
/// let kept: ResponseHead<'static> = head.into_owned();
/// assert_eq!(kept.content_length, Some(5));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResponseHead<'a> {
    /// The status.
    pub status: Status,
    /// `Date` in Unix seconds, for a response from another server. By default the time of sending.
    pub date: Option<i64>,
    /// `Server`
    pub server: Option<Cow<'a, str>>,
    /// `Content-Type`
    pub content_type: Option<Cow<'a, [u8]>>,
    /// `Content-Length`: of the content that is sent, or would be if the request were not HEAD.
    ///
    /// Always left out of 1xx and 204, as RFC 9110 §8.6 demands. For a 304 it may be set to the length of
    /// the 200; it is better not set.
    pub content_length: Option<u64>,
    /// `Content-Range`, with a 206 of one part or a 416.
    pub content_range: Option<ContentRange>,
    /// `Content-Encoding`
    pub content_encoding: Option<Cow<'a, [u8]>>,
    /// `Last-Modified` in Unix seconds. It must not be later than the date of the response (RFC
    /// 9110 §8.8.2.1).
    pub last_modified: Option<i64>,
    /// `ETag`, with its quotes.
    pub etag: Option<Cow<'a, [u8]>>,
    /// `Cache-Control`
    pub cache_control: Option<Cow<'a, [u8]>>,
    /// `Vary`
    pub vary: Option<Cow<'a, [u8]>>,
    /// `Accept-Ranges: bytes`
    pub accept_ranges: bool,
    /// `Location`
    pub location: Option<Cow<'a, [u8]>>,
    /// `Allow`, of which a 405 must have one, even if empty.
    pub allow: Option<Cow<'a, [u8]>>,
    /// `X-Content-Type-Options: nosniff`
    pub nosniff: bool,
    /// Further fields, such as configured ones. None of them may have a member of its own above, or be
    /// written by the HTTP version: `Connection`, `Date`, `Transfer-Encoding`.
    pub extra: FieldSection<'a>,
}

impl ResponseHead<'_> {
    /// A head without fields.
    pub const fn new(status: Status) -> Self {
        Self {
            status,
            date: None,
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
            extra: FieldSection::EMPTY,
        }
    }

    /// The head, with copies of the values that it borrows.
    pub fn into_owned(self) -> ResponseHead<'static> {
        ResponseHead {
            status: self.status,
            date: self.date,
            server: self.server.map(|value| Cow::Owned(value.into_owned())),
            content_type: owned(self.content_type),
            content_length: self.content_length,
            content_range: self.content_range,
            content_encoding: owned(self.content_encoding),
            last_modified: self.last_modified,
            etag: owned(self.etag),
            cache_control: owned(self.cache_control),
            vary: owned(self.vary),
            accept_ranges: self.accept_ranges,
            location: owned(self.location),
            allow: owned(self.allow),
            nosniff: self.nosniff,
            extra: self.extra.into_owned(),
        }
    }
}

fn owned(value: Option<Cow<'_, [u8]>>) -> Option<Cow<'static, [u8]>> {
    value.map(|value| Cow::Owned(value.into_owned()))
}
