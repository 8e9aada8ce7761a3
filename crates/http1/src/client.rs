//! The client's side of a connection: it finds the bytes of the response, and says when the connection
//! may send another request.
//!
//! Reading list: RFC 9112 §6.3, §9; RFC 9110 §15.2 (interim responses).

use http::Method;

use crate::body::{Decoded, Decoder};
use crate::limits::Limits;
use crate::response::{self, Fault, Framing, Response};

/// The maximum of bytes of all interim responses that may come before the final one. Most servers send one or two
/// such responses. But a server that works for long may send a 102 every few seconds.
pub const INTERIM_BYTES_MAX: u32 = 512 * 1024;

/// One connection as the receiver of responses. It keeps no bytes, only its position in them.
///
/// Send a request ([`write::request_start`](crate::write::request_start)) and call
/// [`begin`](Self::begin). Then give all unconsumed bytes to [`handle_input`](Self::handle_input), drop
/// the consumed ones, and act on the event. Call it again with the rest until it returns
/// [`Event::Partial`] (wait for more bytes) or [`Event::Closed`]. When the connection [is
/// idle](Self::is_idle) again, it may send another request. There is one request at a time: requests are not pipelined.
///
/// ```text
///   new ──► Idle ── begin ──► ExpectHead ──► Body ──┐
///            ▲                    │ no body         │ end
///            └────────────────────┴─────────────────┘
///   Closed: from everywhere by a fault, and after a response that ends the connection
/// ```
///
/// ```
/// use http::{Method, Status};
/// use http1::Limits;
/// use http1::client::{Connection, Event};
///
/// let received = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
/// let mut connection = Connection::new();
/// connection.begin(Method::Get);
/// let mut rest = &received[..];
/// let mut body = Vec::new();
/// loop {
///     let (consumed, event) = connection.handle_input(rest, &Limits::DEFAULT);
///     rest = &rest[consumed..];
///     match event {
///         Event::Interim(_) => {}
///         Event::Response(response) => assert_eq!(response.status, Status::Ok),
///         Event::Body(bytes) => body.extend_from_slice(bytes),
///         Event::Trailer(..) | Event::NoTrailers => {}
///         Event::BodyEnd => break,
///         Event::Partial | Event::Closed | Event::Faulty(_) => panic!("{event:?}"),
///     }
/// }
/// assert_eq!(body, b"abc");
/// assert!(connection.is_idle());
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Connection {
    state: State,
}

/// The outcome of a call of [`Connection::handle_input`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// More bytes are needed: call again when they have come.
    Partial,
    /// An interim response, with a status of 1xx other than 101; the final response is still to come. It
    /// may be ignored. After a 100 a client that waited for it sends its body.
    Interim(Response<'a>),
    /// The final response.
    ///
    /// A body follows unless its framing is [`Framing::None`]. After a 101, and after a 2xx to CONNECT,
    /// the bytes belong to another protocol, and the connection is closed for this one. A client that has
    /// not asked for another protocol treats the 101 as a fault.
    Response(Response<'a>),
    /// A part of the content of the body, at least one byte.
    Body(&'a [u8]),
    /// A field of the trailer section after a chunked body, name and value: before the end of the body.
    Trailer(&'a [u8], &'a [u8]),
    /// The trailer section is longer than `trailer_bytes_max`. All its fields are to be left out, also those that came
    /// before. The content is whole: the end of the body follows, and then the connection is closed.
    NoTrailers,
    /// The end of the body. A response without a body has none.
    BodyEnd,
    /// The server broke the protocol or a limit: close the connection.
    Faulty(Fault),
    /// No response will follow on this connection. No byte is consumed.
    Closed,
}

/// The meaning of the end of the server's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Eof {
    /// The end came between responses or after the last: nothing is lost.
    Clean,
    /// The end of the trailer section is also the end of the body, without an [`Event::BodyEnd`].
    BodyEnd,
    /// The end came before a response. If the connection had served a request before, the server may have
    /// closed it before it saw this one (RFC 9110 §9.2.2, RFC 9112 §9.3.1).
    Unanswered,
    /// The end came within a head or a body (RFC 9112 §8).
    Truncated,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Idle,
    ExpectHead {
        asked: Asked,
        /// Bytes of the interim responses that have come.
        interim_bytes: u32,
        /// True if the connection closes after the response, even if the response says otherwise.
        last: bool,
    },
    Body {
        decoder: Decoder,
        /// True if the connection closes after the body.
        last: bool,
    },
    Closed,
}

/// The methods on which the end of a response depends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Head,
    Connect,
    Other,
}

impl Connection {
    /// A connection on which no request has been sent.
    pub const fn new() -> Self {
        Self { state: State::Idle }
    }

    /// Expects the response to a request with this method, from the bytes that come now.
    ///
    /// # Panics
    ///
    /// If the connection is not idle.
    pub fn begin(&mut self, method: Method<'_>) {
        assert!(self.is_idle(), "a request before the end of the response to another");
        let asked = match method {
            Method::Head => Asked::Head,
            Method::Connect => Asked::Connect,
            _ => Asked::Other,
        };
        self.state = State::ExpectHead { asked, interim_bytes: 0, last: false };
    }

    /// Parses `input`, all bytes received and not consumed. Returns the number of consumed bytes, and
    /// an event.
    ///
    /// Every call consumes bytes, or reports something other than [`Event::Partial`], or needs more bytes
    /// than `input` has. The same bytes yield the same events for any cuts into calls, except for the
    /// pieces of content. `limits` must be the same in every call; `body_bytes_max` is the maximum
    /// content of a body.
    ///
    /// For back-pressure within a body, pass no more bytes than there is room for content. Pass nothing
    /// if there is less room than the longest line of the framing may need: the greater of
    /// `chunk_line_bytes_max` and `trailer_bytes_max`.
    pub fn handle_input<'a>(&mut self, input: &'a [u8], limits: &Limits) -> (usize, Event<'a>) {
        self.step(input, limits).unwrap_or_else(|fault| {
            self.state = State::Closed;
            (input.len(), Event::Faulty(fault))
        })
    }

    /// The number of bytes of the body still to come, if its length is known and its head has come.
    #[must_use]
    pub const fn content_left(&self) -> Option<u64> {
        match &self.state {
            State::Body { decoder, .. } => decoder.content_left(),
            State::Idle | State::ExpectHead { .. } | State::Closed => None,
        }
    }

    /// Counts `n` bytes of content as consumed that were received without
    /// [`handle_input`](Self::handle_input), such as bytes spliced to another socket. The next call of
    /// `handle_input` reports the end of the body.
    ///
    /// # Panics
    ///
    /// If that is more than [`content_left`](Self::content_left).
    pub fn pass(&mut self, n: u64) {
        match &mut self.state {
            State::Body { decoder, .. } => decoder.pass(n),
            State::Idle | State::ExpectHead { .. } | State::Closed => {
                panic!("content outside of a body was passed over")
            }
        }
    }

    /// Returns the meaning of the end of the server's bytes, `leftover` of which have not been consumed.
    /// The connection is closed then.
    pub fn handle_eof(&mut self, leftover: usize) -> Eof {
        match core::mem::replace(&mut self.state, State::Closed) {
            State::Idle if leftover == 0 => Eof::Clean,
            State::Closed => Eof::Clean,
            State::ExpectHead { interim_bytes: 0, .. } if leftover == 0 => Eof::Unanswered,
            State::Body { decoder, .. } if decoder.ends_with_connection() && leftover == 0 => {
                Eof::BodyEnd
            }
            State::Idle | State::ExpectHead { .. } | State::Body { .. } => Eof::Truncated,
        }
    }

    /// Returns whether another request may be sent.
    ///
    /// No other may be sent after a request with `Connection: close`, but the connection does not know
    /// the request's fields.
    pub fn is_idle(&self) -> bool {
        self.state == State::Idle
    }

    /// Returns whether no further response will be delivered.
    pub fn is_closed(&self) -> bool {
        self.state == State::Closed
    }

    fn step<'a>(&mut self, input: &'a [u8], limits: &Limits) -> Result<(usize, Event<'a>), Fault> {
        match &mut self.state {
            State::Idle if input.is_empty() => Ok((0, Event::Partial)),
            State::Idle => Err(Fault::new("bytes that answer no request")),
            State::ExpectHead { asked, interim_bytes, last } => {
                let method = match asked {
                    Asked::Head => Method::Head,
                    Asked::Connect => Method::Connect,
                    Asked::Other => Method::Get,
                };
                match response::parse(input, method, limits)? {
                    None => Ok((0, Event::Partial)),
                    Some((response, len)) if response.status.is_interim() => {
                        let bytes = u32::try_from(len).unwrap_or(u32::MAX);
                        *interim_bytes = interim_bytes.saturating_add(bytes);
                        if *interim_bytes > INTERIM_BYTES_MAX {
                            return Err(Fault::new("too many interim responses"));
                        }
                        *last |= !response.keep_alive;
                        Ok((len, Event::Interim(response)))
                    }
                    Some((mut response, len)) => {
                        response.keep_alive &= !*last;
                        self.accept(&response, limits)?;
                        Ok((len, Event::Response(response)))
                    }
                }
            }
            State::Body { decoder, last } => {
                let (len, found) = decoder.decode_response(input, limits, last)?;
                let event = match found {
                    Decoded::Partial => Event::Partial,
                    Decoded::Data(data) => Event::Body(data),
                    Decoded::Trailer(name, value) => Event::Trailer(name, value),
                    Decoded::NoTrailers => Event::NoTrailers,
                    Decoded::End => {
                        self.state = if *last { State::Closed } else { State::Idle };
                        Event::BodyEnd
                    }
                };
                Ok((len, event))
            }
            State::Closed => Ok((0, Event::Closed)),
        }
    }

    /// Prepares for what follows the head of a final response.
    fn accept(&mut self, response: &Response<'_>, limits: &Limits) -> Result<(), Fault> {
        let last = !response.keep_alive;
        let decoder = match response.framing {
            Framing::None => {
                self.state = if last { State::Closed } else { State::Idle };
                return Ok(());
            }
            Framing::Length(length) => Decoder::length(length, limits.body_bytes_max)?,
            Framing::Chunked => Decoder::chunked(limits.body_bytes_max),
            Framing::UntilClose => Decoder::until_close(limits.body_bytes_max),
        };
        self.state = State::Body { decoder, last };
        Ok(())
    }
}

#[cfg(test)]
mod tests;
