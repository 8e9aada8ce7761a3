//! The server's side of a connection: it finds the heads and the bodies of requests, and the end of the connection.
//!
//! Reading list: RFC 9112 §6, §9; RFC 9110 §10.1.1.

use http::{Framing, Reject};

use crate::body::{Decoded, Decoder};
use crate::limits::Limits;
use crate::request::{self, Request};

/// One connection as the receiver of requests. It keeps no bytes, only its position in them.
///
/// Give all unconsumed bytes to [`handle_input`](Self::handle_input), drop the consumed ones, and act on the event.
/// Call it again with the rest until it returns [`Event::Partial`] (wait for more bytes) or [`Event::Closed`]. Requests
/// may be pipelined; respond to them in their order.
///
/// ```text
///                request without body
///                    ┌────────┐
///                    ▼        │
///   new ──────► ExpectHead ───┤ body ────────► SkipBody ──────┐
///                    ▲        │                   │           │
///                    │        │              decode_body      │ end
///                    │        │                   ▼           │
///                    │        │               DecodeBody ─────┤
///                    │        │                   │           │
///                    └────────│───────────────────│───────────┘
///                             │ last request      │ end of the last request's body
///                             ▼                   ▼
///                           Closed ◄──────────────┘     and from everywhere: a rejection, close()
/// ```
///
/// A request is delivered before its body has arrived. The body is skipped to get to the next request (RFC 9112 §9.3),
/// unless the caller wants it: see [`decode_body`](Self::decode_body). A body that waits for an invitation is not
/// skipped. Its request is the last, because nothing shows whether the body follows a final response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Connection {
    state: State,
}

/// The outcome of a call of [`Connection::handle_input`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// More bytes are needed: call again when they have come.
    Partial,
    /// A request, which needs a response.
    ///
    /// Call [`decode_body`](Connection::decode_body) now, if its body is wanted. Then, if `request.expect_continue`,
    /// send [`CONTINUE`](crate::write::CONTINUE) to invite the rest of the body, or the response without it, as the
    /// last. If not `request.keep_alive`, this is the last request, and the response says `Connection: close`.
    Request(Request<'a>),
    /// A part of the content of the body that is being decoded, at least one byte.
    Body(&'a [u8]),
    /// A field of the trailer section of a body that is being decoded, name and value: before the end of the
    /// body.
    Trailer(&'a [u8], &'a [u8]),
    /// The end of the last request's body, skipped or decoded. A request without a body has none.
    BodyEnd,
    /// The peer broke the protocol or a limit. Answer with the status, say `Connection: close`, and
    /// close.
    ///
    /// If [`is_idle`](Connection::is_idle) was false before the call, the fault is in the body of a request that has
    /// been delivered already. If that request has its response, close without another one.
    Rejected(Reject),
    /// There will be no more requests; further bytes of the peer are dropped.
    Closed,
}

/// The meaning of the end of the peer's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Eof {
    /// The end came between requests or after the last: nothing is lost.
    Clean,
    /// The end came within a head or a body (RFC 9112 §8).
    Truncated,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    ExpectHead,
    SkipBody(Decoder),
    DecodeBody {
        decoder: Decoder,
        /// True if the connection closes after the body.
        last: bool,
    },
    Closed,
}

impl Connection {
    /// A connection on which nothing has been received.
    pub const fn new() -> Self {
        Self { state: State::ExpectHead }
    }

    /// Parses `input`, all bytes received and not consumed; returns how many are consumed, and
    /// an event.
    ///
    /// Every call consumes bytes, or reports something other than [`Event::Partial`], or needs more bytes than `input`
    /// has. The same bytes yield the same events for any cuts into calls, except for the pieces of content. `limits`
    /// must be the same in every call.
    #[inline]
    pub fn handle_input<'a>(&mut self, input: &'a [u8], limits: &Limits) -> (usize, Event<'a>) {
        // The common case is a head. It has a path of its own, outside of the state machine of bodies.
        if let State::ExpectHead = self.state {
            return match request::parse(input, limits) {
                Ok(None) => (0, Event::Partial),
                Ok(Some((mut request, len))) => {
                    self.accept(&mut request, limits);
                    (len, Event::Request(request))
                }
                Err(reject) => (input.len(), self.reject(reject)),
            };
        }
        self.handle_body(input, limits)
    }

    /// As [`handle_input`](Self::handle_input), while a body is outstanding ([`is_idle`](Self::is_idle) is false). It
    /// is a function of its own so that callers that only wait for the end of a body do not contain the parser of
    /// heads.
    ///
    /// # Panics
    ///
    /// If the next byte would begin a request.
    #[inline(never)]
    pub fn handle_body<'a>(&mut self, input: &'a [u8], limits: &Limits) -> (usize, Event<'a>) {
        self.step(input, limits).unwrap_or_else(|reject| (input.len(), self.reject(reject)))
    }

    /// Delivers the body of `request` as [`Event::Body`], without its framing and with at most
    /// `bytes_max` bytes of content, and its trailers as [`Event::Trailer`]. `u64::MAX` is no limit.
    ///
    /// Call it between [`Event::Request`] and the next call of [`handle_input`](Self::handle_input), if at all. It
    /// changes nothing for a request without a body. It sets `keep_alive` and `expect_continue` anew. A decoded body is
    /// read to its end even if it is too long to be skipped, or has to be invited, or if its request is the last.
    ///
    /// For back-pressure, pass no more bytes to `handle_input` than there is room for content. Pass none if there is
    /// less room than the longest line of the framing may need: the greater of `chunk_line_bytes_max` and
    /// `trailer_bytes_max`.
    ///
    /// # Errors
    ///
    /// 413, if the body is announced to be longer. Nothing has changed then: as `request` says, the body will be
    /// skipped, or the connection closed. A chunked body that turns out to be longer is an [`Event::Rejected`] later.
    ///
    /// # Panics
    ///
    /// If `request` is not the one delivered last.
    pub fn decode_body(&mut self, request: &mut Request<'_>, bytes_max: u64) -> Result<(), Reject> {
        let Some(decoder) = decoder(request.head.framing, bytes_max)? else {
            return Ok(());
        };
        let is_skipped = matches!(self.state, State::SkipBody(_));
        let is_dropped = matches!(self.state, State::Closed);
        assert!(
            if request.keep_alive { is_skipped } else { is_dropped },
            "not this request's body"
        );
        request.set_persistence();
        self.state = State::DecodeBody { decoder, last: !request.keep_alive };
        Ok(())
    }

    /// Returns the meaning of the end of the peer's bytes, `leftover` of which have not been consumed.
    pub fn handle_eof(&self, leftover: usize) -> Eof {
        match self.state {
            State::ExpectHead if leftover == 0 => Eof::Clean,
            State::Closed => Eof::Clean,
            _ => Eof::Truncated,
        }
    }

    /// Stops taking requests: the current response is the last. Further input is consumed and
    /// dropped.
    pub fn close(&mut self) {
        self.state = State::Closed;
    }

    /// Returns whether the next byte would begin a request: no part of a body is outstanding, and the connection is
    /// open.
    ///
    /// Part of a head may have been seen; its bytes are among the unconsumed ones.
    pub fn is_idle(&self) -> bool {
        self.state == State::ExpectHead
    }

    /// Returns whether no request and no content will be delivered any more.
    pub fn is_closed(&self) -> bool {
        self.state == State::Closed
    }

    /// Goes on within a body or after the last request.
    fn step<'a>(&mut self, input: &'a [u8], limits: &Limits) -> Result<(usize, Event<'a>), Reject> {
        match &mut self.state {
            State::ExpectHead => panic!("no body is outstanding"),
            State::SkipBody(decoder) => {
                let (len, has_ended) = decoder.skip(input, limits)?;
                if !has_ended {
                    return Ok((len, Event::Partial));
                }
                self.state = State::ExpectHead;
                Ok((len, Event::BodyEnd))
            }
            State::DecodeBody { decoder, last } => {
                let (len, found) = decoder.decode(input, limits)?;
                let event = match found {
                    Decoded::Partial => Event::Partial,
                    Decoded::Data(data) => Event::Body(data),
                    Decoded::Trailer(name, value) => Event::Trailer(name, value),
                    Decoded::NoTrailers => unreachable!("a request is refused for its trailers"),
                    Decoded::End => {
                        self.state = if *last { State::Closed } else { State::ExpectHead };
                        Event::BodyEnd
                    }
                };
                Ok((len, event))
            }
            State::Closed => Ok((input.len(), Event::Closed)),
        }
    }

    /// Prepares for the body of a request to be skipped.
    #[inline]
    fn accept(&mut self, request: &mut Request<'_>, limits: &Limits) {
        self.state = match decoder(request.head.framing, limits.body_bytes_max) {
            Ok(body) if request.keep_alive && !request.expect_continue => {
                body.map_or(State::ExpectHead, State::SkipBody)
            }
            // The last request, or a request whose body is too long to be skipped, or waits for an invitation.
            _ => State::Closed,
        };
        if self.state == State::Closed {
            request.keep_alive = false;
            // The body stays unread, so it is not invited (RFC 9110 §10.1.1).
            request.expect_continue = false;
        }
    }

    #[cold]
    fn reject(&mut self, reject: Reject) -> Event<'static> {
        self.state = State::Closed;
        Event::Rejected(reject)
    }
}

/// The decoder of a body with this framing; `None` if there is no body. A body that is announced to have
/// more than `bytes_max` bytes is a 413.
fn decoder(framing: Framing, bytes_max: u64) -> Result<Option<Decoder>, Reject> {
    Ok(Some(match framing {
        Framing::None | Framing::Tunnel => return Ok(None),
        Framing::Length(length) => Decoder::length(length, bytes_max)?,
        Framing::Unknown => Decoder::chunked(bytes_max),
    }))
}

// Held for every one of millions of connections.
const _: () = assert!(size_of::<Connection>() <= 32);

#[cfg(test)]
mod tests;
