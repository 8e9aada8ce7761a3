//! The wire of HTTP/1.0 and 1.1: bytes in, events out, and heads written.
//!
//! A server's connection is [`server::Connection`]: it follows pipelined requests, parses their
//! heads with [`request`], and skips or decodes their bodies. A client's connection is
//! [`client::Connection`], with the parser of [`response`] heads. [`mod@write`] writes the heads of
//! both, and the lines around chunks. The meaning of a message, in any version, is in the crate
//! `http`, on which this crate builds.
//!
//! This crate does no I/O and reads no clock.
//!
//! Framing is read strictly: a message that two readers could understand differently is refused,
//! because such differences are how requests are smuggled. The [`Reject`](http::Reject) of a request
//! or the [`Fault`](response::Fault) of a response has the reason. Nothing that a peer sends makes
//! the parser allocate.
//!
//! # Reading list
//!
//! - RFC 9112, HTTP/1.1: §2–§3 request line, §5 fields, §6–§7 bodies, §9 connections, §11 security
//! - RFC 9110, HTTP semantics: §5 fields, §6 messages, §10.1.1 `Expect`
//! - RFC 6585 §5, status 431
//!
//! # A request, answered
//!
//! ```
//! use http::{ContentRange, Plan, Representation, ResponseHead, Status, Target, Validators};
//! use http::{date, path};
//! use http1::Limits;
//! use http1::server::{Connection, Event};
//! use http1::write::{self, Wire};
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
//! let Event::Request(request) = event else { panic!("{event:?}") };
//!
//! // Which file?
//! let Target::Origin { path, query: _ } = request.head.target else { panic!("not about a file") };
//! let mut name = Vec::new();
//! path::normalize(path, &mut name)?;
//! assert_eq!(name, b"film one.mp4");
//!
//! // Say it is there, 1,000 bytes long. How much of it?
//! let etag = b"\"3e8-65534b00\"";
//! let film = Representation {
//!     size: 1000,
//!     validators: Validators { etag, last_modified: Some(now - 60), strong_date: true },
//! };
//! let Plan::Partial(range) = http::plan(&request.head, &film, now) else { panic!("no range") };
//!
//! // The head of the response; after it come 100 bytes of the file.
//! let head = ResponseHead {
//!     content_type: Some(b"video/mp4".into()),
//!     content_length: Some(range.len()),
//!     content_range: Some(ContentRange::Part { range, size: film.size }),
//!     last_modified: film.validators.last_modified,
//!     etag: Some(etag.into()),
//!     ..ResponseHead::new(Status::PartialContent)
//! };
//! let mut response = Vec::new();
//! write::response_head(&head, &date::format(now), Wire::default(), &mut response);
//! assert!(response.starts_with(b"HTTP/1.1 206 Partial Content\r\nDate: Tue, 14 Nov 2023"));
//! assert!(response.windows(34).any(|line| line == b"\r\nContent-Range: bytes 0-99/1000\r\n"));
//! # Ok::<(), path::PathError>(())
//! ```

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod client;
pub mod request;
pub mod response;
pub mod server;
pub mod write;

mod body;
mod chunk;
mod framing;
mod limits;
mod line;
#[cfg(test)]
mod testing;
mod tolerant;

pub use limits::Limits;
pub use request::{Request, Sketch, parse, sketch};
