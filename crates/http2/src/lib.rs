//! The wire of HTTP/2 for servers: bytes go in, and events and frames come out.
//!
//! [`server::Connection`] follows one connection: frames, streams, flow control, and the heads of requests, which it makes
//! with the crate `hpack`. [`priority::Scheduler`] orders the responses. [`prepare`] makes the head of a response that is
//! sent often. The meaning of a message, in any version, is in the crate `http`.
//!
//! This crate does no I/O and reads no clock: time is an argument.
//!
//! # Limits
//!
//! Everything that a client can make the server do has a limit ([`limits`]). An [`Attack`] names the limit that a client
//! has reached. All memory of a connection is bounded: see [`server::Connection::memory`].
//!
//! # Use by a session
//!
//! A session has a queue for the connection, and a queue with its source for each stream.
//!
//! | event of the session | calls |
//! |---|---|
//! | bytes were received | [`handle_input`](server::Connection::handle_input), until it needs more. The text is a buffer of the worker. Also a connection that waits for its turn handles its bytes, so that resets are seen in time |
//! | a request | the handler gets the head. A consumer receives the content, if any |
//! | content | the consumer receives it; then [`handle_taken`](server::Connection::handle_taken) with the room of the consumer. A consumer that has room again: the same with zero bytes |
//! | a response begins | [`respond`](server::Connection::respond), or [`respond_prepared`](server::Connection::respond_prepared) for a cached file; the stream is added to the scheduler |
//! | bytes of a stream are ready, or `Room` | [`set_ready`](priority::Scheduler::set_ready), if the stream has bytes and [`data_room`](server::Connection::data_room) |
//! | a pump | first [`control`](server::Connection::control). Then, while the queue has less than a batch: [`next_stream`](priority::Scheduler::next_stream), the ready bytes of that stream after a [`data_head`](server::Connection::data_head), [`served`](priority::Scheduler::served), and [`finish`](server::Connection::finish) after the last. If nothing uses the rest of the request, [`discard`](server::Connection::discard) |
//! | a source fails | [`reset`](server::Connection::reset) with INTERNAL_ERROR; other streams go on |
//! | a reset | request, response and consumer are dropped, and the bytes that the consumer had are reported as taken |
//! | a shutdown | [`shut_down`](server::Connection::shut_down); if the client does not answer in time, [`end`](server::Connection::end); close when [`is_done`](server::Connection::is_done) |
//! | a fault | send the control frames, count the [`Attack`], close |
//! | the [`deadline`](server::Connection::deadline) has passed | [`handle_deadline`](server::Connection::handle_deadline) |
//! | nothing is to do | [`shrink`](server::Connection::shrink) |
//!
//! # Reading list
//!
//! - RFC 9113, HTTP/2: §4 frames, §5 streams, §6 frame types, §8 messages, §10.5 denial of service
//! - RFC 7541, HPACK: the crate `hpack`
//! - RFC 9218, priorities; RFC 9651 §3.2, dictionaries
//! - RFC 8441, tunnels by extended CONNECT
//!
//! ```
//! use core::time::Duration;
//!
//! use http::{ResponseHead, Status, date};
//! use http2::server::{Connection, Event};
//! use http2::{Limits, frame};
//!
//! let now = Duration::ZERO;
//! let mut connection = Connection::new(now, &Limits::DEFAULT);
//! // The preface, no settings, and `GET / ` of `example.org`.
//! let mut received = frame::PREFACE.to_vec();
//! received.extend_from_slice(b"\0\0\0\x04\0\0\0\0\0");
//! received.extend_from_slice(b"\0\0\x10\x01\x05\0\0\0\x01\x82\x84\x87\x41\x0bexample.org");
//!
//! let mut text = Vec::new();
//! let (consumed, event) =
//!     connection.handle_input(&received, &mut text, now, &Limits::DEFAULT);
//! assert_eq!(consumed, received.len());
//! let Event::Request(request) = event else { panic!("{event:?}") };
//! assert_eq!(request.head.host(), Some(&b"example.org"[..]));
//!
//! // The settings and their acknowledgement, then the response in two frames.
//! let stream = request.stream;
//! let mut out = core::mem::take(connection.control());
//! let head = ResponseHead { content_length: Some(5), ..ResponseHead::new(Status::Ok) };
//! connection.respond(stream, &head, &date::format(784_111_777), false, &mut out);
//! let data = connection.data_head(stream, 5, true).expect("the stream is open");
//! out.extend_from_slice(&data);
//! out.extend_from_slice(b"hello");
//! connection.finish(stream);
//! assert!(connection.is_idle());
//! ```

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod frame;
pub mod limits;
pub mod priority;
pub mod server;

mod fault;
mod flow;
mod head;
mod response;
mod settings;
mod streams;

pub use fault::{Attack, ErrorCode, Fault};
pub use head::{METHOD_BYTES_MAX, Request};
pub use hpack::Block;
pub use limits::Limits;
pub use response::prepare;

/// The most bytes that [`handle_input`](server::Connection::handle_input) may need together: a frame.
pub const INPUT_BYTES_MAX: usize = frame::HEAD_LEN + limits::FRAME_BYTES_MAX as usize;
