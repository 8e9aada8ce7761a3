//! HTTP semantics: the meaning of messages in every version of HTTP.
//!
//! The parser of a version makes a [`Head`] of a request. This crate then turns the path of a URL into
//! the name of a file ([`path`]). It chooses among stored encodings ([`encoding`]) and kinds of listings
//! ([`negotiate`]), and evaluates preconditions and ranges ([`mod@plan`]). It describes the head of the
//! response ([`ResponseHead`]), which the writer of that version sends. A request that waits is kept as a
//! [`HeadBuf`]. The crate `http1` has the parser and the writer of HTTP/1.
//!
//! The crate does no I/O, opens no files and reads no clock; time is an argument, in Unix seconds.
//!
//! Wishes are read leniently: a range, a date or a preference that makes no sense is ignored, as RFC 9110
//! asks. No written value can end its line, even if it contains line breaks.
//!
//! # Reading list
//!
//! - RFC 9110, HTTP semantics: §5 fields, §7.6.1 `Connection`, §8.8 validators, §12.5 negotiation, §13
//!   preconditions, §14 ranges, §15 statuses
//! - RFC 3986, URIs: §3.3 paths, §5.2.4 dot segments
//! - RFC 2046 §5.1, multipart
//!
//! # From a request to the head of its response
//!
//! ```
//! use http::{ContentRange, Field, FieldIndex, Head, Method, Plan, Representation, ResponseHead};
//! use http::{Status, Target, Validators, Version, path, plan};
//!
//! // A parser has found a request line, field lines, and the values of the fields it knows.
//! let lines = b"Host: example.org\r\nRange: bytes=0-99\r\n";
//! let mut index = FieldIndex::EMPTY;
//! index.add(Field::Host, 6..17);
//! index.add(Field::Range, 26..36);
//! let target = Target::Origin { path: b"/film%20one.mp4", query: None };
//! let head = Head::new(Method::Get, target, Version::Http11, None, lines, index);
//! assert_eq!(head.field(Field::Range), Some(&b"bytes=0-99"[..]));
//!
//! // Which file?
//! let Target::Origin { path, query: _ } = head.target else { panic!("not about a file") };
//! let mut name = Vec::new();
//! path::normalize(path, &mut name)?;
//! assert_eq!(name, b"film one.mp4");
//!
//! // It is there, 1,000 bytes long. How much of it?
//! let now = 1_700_000_000;
//! let etag = b"\"3e8-65534b00\"";
//! let film = Representation {
//!     size: 1000,
//!     validators: Validators { etag, last_modified: Some(now - 60), strong_date: true },
//! };
//! let Plan::Partial(range) = plan(&head, &film, now) else { panic!("no range") };
//! let response = ResponseHead {
//!     content_type: Some(b"video/mp4".into()),
//!     content_length: Some(range.len()),
//!     content_range: Some(ContentRange::Part { range, size: film.size }),
//!     last_modified: film.validators.last_modified,
//!     etag: Some(etag.into()),
//!     ..ResponseHead::new(Status::PartialContent)
//! };
//! assert_eq!(response.content_length, Some(100));
//! # Ok::<(), path::PathError>(())
//! ```

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod bytes;
pub mod date;
pub mod encoding;
pub mod etag;
pub mod negotiate;
pub mod path;
pub mod plan;
pub mod precondition;
pub mod range;

mod field;
mod framing;
mod head;
mod head_buf;
mod method;
mod response;
mod section;
mod status;

pub use encoding::{Coding, Codings};
pub use etag::EntityTag;
pub use field::{Field, FieldIndex};
pub use framing::{DISCARDED_BYTES_MAX, Framing};
pub use head::{CONNECTION_OPTIONS_MAX, ConnectionOptions, Fields, Head, Lines, Target, Version};
pub use head_buf::HeadBuf;
pub use method::Method;
pub use plan::{ContentRange, Multipart, Part, Plan, Representation, Wrapping, plan, plan_up_to};
pub use precondition::{Outcome, Validators};
pub use range::{Range, RangeSet, Ranges};
pub use response::ResponseHead;
pub use section::{FieldSection, push_line};
pub use status::{OtherCode, Reject, Status};
