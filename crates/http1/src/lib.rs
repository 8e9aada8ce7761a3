//! HTTP/1.0 and 1.1 for servers of static content: bytes in, decisions out.
//!
//! What the crate is for: everything between the bytes of a request and the decision which bytes of
//! which file to send back. It parses requests ([`head`]), follows a connection through pipelined
//! requests and unwanted bodies ([`connection`]), turns the path of a URL into the name of a file
//! ([`path`]), chooses among stored encodings ([`encoding`]), evaluates preconditions and ranges
//! ([`mod@plan`]), and writes the head of the response ([`response`]).
//!
//! What it is not: it does no I/O, opens no files and reads no clock; time is an argument, in Unix
//! seconds. It is not a client, it does not decode request bodies (a static server has no use for
//! them), and it knows no HTTP/2.
//!
//! Two rules hold throughout. *Strict where it is about framing*: a message that two readers could
//! understand differently is refused, because that difference is how requests are smuggled; the
//! reason is in the [`Reject`]. *Lenient where it is about wishes*: a range, a date or a preference
//! that makes no sense is ignored, as RFC 9110 asks. And nothing a peer sends makes the parser
//! allocate.
//!
//! # Reading list
//!
//! - RFC 9110, HTTP semantics: §5 fields, §8.8 validators, §12.5 negotiation, §13 preconditions,
//!   §14 ranges
//! - RFC 9112, HTTP/1.1: §2–§3 request line, §5 fields, §6–§7 bodies, §9 connections, §11 security
//! - RFC 3986, URIs: §3.3 paths, §5.2.4 dot segments
//! - RFC 6585 §5, status 431; RFC 2046 §5.1 multipart
//!
//! # A request, answered
//!
//! ```
//! use http::{Status, date, path};
//! use http1::{Connection, Event, Limits, Plan, Representation, Target, Validators};
//! use http1::{ContentRange, ResponseHead};
//!
//! let received = b"GET /film%20one.mp4 HTTP/1.1\r\n\
//!     Host: example.org\r\n\
//!     Range: bytes=0-99\r\n\r\n";
//! let now = 1_700_000_000;
//!
//! // Bytes in, events out.
//! let mut connection = Connection::new();
//! let (consumed, event) = connection.handle_input(received, &Limits::DEFAULT);
//! assert_eq!(consumed, received.len());
//! let Event::Request(head) = event else { panic!("{event:?}") };
//!
//! // Which file?
//! let Target::Origin { path, query: _ } = head.target else { panic!("not about a file") };
//! let mut name = Vec::new();
//! path::normalize(path, &mut name)?;
//! assert_eq!(name, b"film one.mp4");
//!
//! // Say it is there, 1,000 bytes long. How much of it?
//! let etag = b"\"3e8-65534b00\"";
//! let film = Representation {
//!     size: 1000,
//!     validators: Validators { etag, last_modified: Some(now - 60) },
//! };
//! let Plan::Partial(range) = http1::plan(&head, &film, now) else { panic!("no range") };
//!
//! // The head of the response; behind it come 100 bytes of the file.
//! let mut response = Vec::new();
//! ResponseHead {
//!     content_type: Some(b"video/mp4"),
//!     content_length: Some(range.len()),
//!     content_range: Some(ContentRange::Part { range, size: film.size }),
//!     last_modified: film.validators.last_modified,
//!     etag: Some(etag),
//!     ..ResponseHead::new(Status::PartialContent, date::format(now))
//! }
//! .write_to(&mut response);
//! assert!(response.starts_with(b"HTTP/1.1 206 Partial Content\r\nDate: Tue, 14 Nov 2023"));
//! assert!(response.windows(34).any(|line| line == b"\r\nContent-Range: bytes 0-99/1000\r\n"));
//! # Ok::<(), path::PathError>(())
//! ```

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod connection;
pub mod head;
pub mod plan;
pub mod precondition;
pub mod response;

mod chunk;
mod limits;
mod line;

pub use connection::{Connection, Eof, Event};
pub use head::{Body, Fields, Head, Lines, Method, Parsed, Target, Version, parse};
pub use limits::Limits;
pub use plan::{ContentRange, Multipart, Part, Plan, Representation, Wrapping, plan};
pub use precondition::{Outcome, Validators};
pub use response::{ConnectionOption, ResponseHead};
