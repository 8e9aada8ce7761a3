//! The records of FastCGI 1.0, from the side of the web server, for applications in the role of a
//! responder: bytes in, events out, and requests written.
//!
//! A connection to an application is a [`Connection`]: it reads the records of one response after
//! another. [`mod@write`] writes the records of requests. This crate does not know the meaning of their content,
//! which CGI defines (RFC 3875).
//!
//! It does no I/O and reads no clock. Nothing that an application sends makes it allocate: content is borrowed
//! from the input, and of an incomplete record only the header is kept.
//!
//! Records are read strictly. A record is a [`Fault`] if it has another version or another request id, if
//! applications do not send its kind, or if it follows the end of its stream. After a fault the connection is of
//! no more use.
//!
//! A connection has one request at a time. Few applications accept more (php-fpm refuses them), and a response
//! that is taken slowly would block the others. Each request has its own [id](RequestId), which applications
//! repeat (php-fpm, libfcgi and Go's `net/http/fcgi` do). So bytes that an application sends after its response
//! are a fault, and never the response to the next request.
//!
//! # Reading list
//!
//! FastCGI Specification 1.0 (Open Market, 1996):
//!
//! - §3.3 records, §3.4 name-value pairs, §3.5 closing connections
//! - §4 management records
//! - §5.1 `FCGI_BEGIN_REQUEST`, §5.2 `FCGI_PARAMS`, §5.3 the streams, §5.4 `FCGI_ABORT_REQUEST`,
//!   §5.5 `FCGI_END_REQUEST`
//! - §6.2 the role of a responder
//! - §8 types and constants
//!
//! # A request, answered
//!
//! ```
//! use fastcgi::{Connection, Event, ProtocolStatus, RequestId, write};
//!
//! let mut request = Vec::new();
//! let id = RequestId::FIRST;
//! write::begin_request(id, true, &mut request);
//! write::params(id, [(&b"REQUEST_METHOD"[..], &b"GET"[..])], &mut request);
//! write::stdin_end(id, &mut request);
//! assert_eq!(request.len(), 16 + (8 + 2 + 14 + 3) + 8 + 8);
//!
//! let received = b"\x01\x06\x00\x01\x00\x05\x03\x00hello\0\0\0\
//!                  \x01\x03\x00\x01\x00\x08\x00\x00\0\0\0\0\0\0\0\0";
//! let mut connection = Connection::new();
//! connection.begin(id);
//! let mut rest = &received[..];
//! let mut output = Vec::new();
//! loop {
//!     let (consumed, event) = connection.handle_input(rest);
//!     rest = &rest[consumed..];
//!     match event {
//!         Event::Output(bytes) => output.extend_from_slice(bytes),
//!         Event::Errors(text) => panic!("{text:?}"),
//!         Event::End(end) => {
//!             assert_eq!(end.protocol_status, ProtocolStatus::RequestComplete);
//!             break;
//!         }
//!         Event::Partial | Event::Closed | Event::Faulty(_) => panic!("{event:?}"),
//!     }
//! }
//! assert_eq!(output, b"hello");
//! assert!(connection.is_idle());
//! ```

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod write;

mod connection;
mod record;
#[cfg(test)]
mod testing;

pub use connection::{
    Connection, EMPTY_RECORDS_MAX, ERRORS_BYTES_MAX, End, Eof, Event, Fault,
    MANAGEMENT_RECORDS_MAX, ProtocolStatus,
};
pub use record::RequestId;
