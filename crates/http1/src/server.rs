//! The server's side of a connection: which bytes are a head, which belong to a body, and when it
//! is over.
//!
//! Reading list: RFC 9112 §6, §7.1, §9; RFC 9110 §10.1.1.

use http::{Reject, Status};

use crate::chunk::{self, Trailer};
use crate::limits::Limits;
use crate::request::{self, Framing, Parsed, Request};

/// One connection as the receiver of requests. It holds no bytes, only where it is among them.
///
/// Give all bytes that are not consumed yet to [`handle_input`](Self::handle_input), drop those it
/// consumed, act on the event, and call again with the rest, until it says [`Event::Partial`] (wait
/// for more bytes) or [`Event::Closed`]. Requests may be pipelined; answer them in their order.
///
/// ```text
///                  request without body
///                    ┌────────┐
///                    ▼        │
///   new ──────► ExpectHead ───┤ Length   ───► SkipBody ─────────────────────┐
///                    ▲        │                                             │
///                    │        └ Chunked  ───► ExpectChunkSize ◄───────┐     │
///                    │                          │ 0       │ n         │     │
///                    │                          ▼         ▼           │     │
///                    ├────── empty line ── ExpectTrailer  SkipChunk ──┘     │
///                    └──────────────────────────────────────────────────────┘
///   Closed: from everywhere by a rejection or close(),
///           from ExpectHead by a request that ends the connection
/// ```
///
/// Bodies are skipped: a static server has no use for them, but must get past them to the next
/// request (RFC 9112 §9.3). The request is delivered before its body has arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connection {
    state: State,
}

/// What has happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// Nothing that can be acted upon: call again with more bytes.
    Partial,
    /// A request is to be answered.
    ///
    /// If `request.expect_continue`, send `HTTP/1.1 100 Continue` and an empty line before the
    /// response. If not `request.keep_alive`, this is the last request, and the response says
    /// `Connection: close`.
    Request(Request<'a>),
    /// The peer broke the protocol or a limit. Answer with the status, say `Connection: close`, and
    /// close.
    ///
    /// If [`is_idle`](Connection::is_idle) was false before the call, the fault is in the body of a
    /// request that has been delivered already; if that has been answered, then close without
    /// another response.
    Rejected(Reject),
    /// The end of the last request's body has been reached.
    BodySkipped,
    /// There will be no more requests; what the peer sends is dropped.
    Closed,
}

/// What the end of the peer's bytes means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Eof {
    /// It came between requests or after the last: nothing is lost.
    Clean,
    /// It came within a head or a body (RFC 9112 §8).
    Truncated,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    ExpectHead,
    SkipBody {
        /// Bytes of the body that have not been consumed; at least one.
        remaining: u64,
    },
    ExpectChunkSize {
        /// Bytes of the body on the wire so far, up to this line.
        received: u64,
    },
    SkipChunk {
        /// Bytes of data that have not been consumed; at zero, the CRLF behind them is next.
        remaining: u64,
        /// Bytes of the body on the wire up to the end of this chunk.
        received: u64,
    },
    ExpectTrailer {
        /// Bytes that the trailer section may still have.
        bytes_left: usize,
    },
    Closed,
}

/// What one step of the machine comes to.
enum Step<'a> {
    /// Goes on at once in the state now reached.
    Consumed(usize),
    /// Stops here and reports.
    Report(usize, Event<'a>),
}

impl Connection {
    /// A connection on which nothing has been received.
    pub const fn new() -> Self {
        Self { state: State::ExpectHead }
    }

    /// Takes in `input`, all bytes received and not consumed; returns how many are consumed and
    /// what happened.
    ///
    /// Every call consumes bytes, or reports something other than [`Event::Partial`], or needs more
    /// bytes than `input` has. The same bytes yield the same events however they are cut into
    /// calls. `limits` must be the same in every call.
    #[inline]
    pub fn handle_input<'a>(&mut self, input: &'a [u8], limits: &Limits) -> (usize, Event<'a>) {
        // The common case first, apart from the machine: a head, and nothing before it.
        if self.state == State::ExpectHead {
            return match request::parse(input, limits) {
                Ok(Parsed::Partial) => (0, Event::Partial),
                Ok(Parsed::Complete { request, len }) => (len, self.accept(request, limits)),
                Err(reject) => (input.len(), self.reject(reject)),
            };
        }
        let mut at = 0;
        loop {
            match self.step(&input[at..], limits) {
                Ok(Step::Consumed(len)) => at += len,
                Ok(Step::Report(len, event)) => return (at + len, event),
                Err(reject) => return (input.len(), self.reject(reject)),
            }
        }
    }

    /// Says what the end of the peer's bytes means, `leftover` of which have not been consumed.
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

    /// Whether the next byte would begin a request: nothing of a body is outstanding, and the
    /// connection is open.
    ///
    /// Part of a head may have been seen; it is among the bytes that were not consumed.
    pub fn is_idle(&self) -> bool {
        self.state == State::ExpectHead
    }

    /// Whether no further request will be delivered.
    pub fn is_closed(&self) -> bool {
        self.state == State::Closed
    }

    /// Advances by one state, within a body or behind the last request.
    fn step<'a>(&mut self, input: &'a [u8], limits: &Limits) -> Result<Step<'a>, Reject> {
        match self.state {
            State::ExpectHead => Ok(Step::Report(0, Event::BodySkipped)),
            State::SkipBody { remaining } => {
                let len = clamp(remaining, input.len());
                let remaining = remaining - len as u64;
                if remaining > 0 {
                    self.state = State::SkipBody { remaining };
                    return Ok(Step::Report(len, Event::Partial));
                }
                self.state = State::ExpectHead;
                Ok(Step::Consumed(len))
            }
            State::ExpectChunkSize { received } => {
                let Some((size, len)) = chunk::size_line(input, limits)? else {
                    return Ok(Step::Report(0, Event::Partial));
                };
                self.state = if size == 0 {
                    State::ExpectTrailer { bytes_left: limits.trailer_bytes_max }
                } else {
                    let received = chunk_end(received, len, size, limits)?;
                    State::SkipChunk { remaining: size, received }
                };
                Ok(Step::Consumed(len))
            }
            State::SkipChunk { remaining: 0, received } => {
                let Some(len) = chunk::data_end(input)? else {
                    return Ok(Step::Report(0, Event::Partial));
                };
                self.state = State::ExpectChunkSize { received };
                Ok(Step::Consumed(len))
            }
            State::SkipChunk { remaining, received } => {
                let len = clamp(remaining, input.len());
                let remaining = remaining - len as u64;
                self.state = State::SkipChunk { remaining, received };
                if remaining > 0 {
                    return Ok(Step::Report(len, Event::Partial));
                }
                Ok(Step::Consumed(len))
            }
            State::ExpectTrailer { bytes_left } => match chunk::trailer(input, bytes_left)? {
                Trailer::Partial => Ok(Step::Report(0, Event::Partial)),
                Trailer::Field(len) => {
                    self.state = State::ExpectTrailer { bytes_left: bytes_left - len };
                    Ok(Step::Consumed(len))
                }
                Trailer::End => {
                    self.state = State::ExpectHead;
                    Ok(Step::Consumed(2))
                }
            },
            State::Closed => Ok(Step::Report(input.len(), Event::Closed)),
        }
    }

    /// Delivers a request and prepares for what follows its head.
    #[inline]
    fn accept<'a>(&mut self, mut request: Request<'a>, limits: &Limits) -> Event<'a> {
        if let Framing::Length(length) = request.framing
            && length > limits.body_bytes_max
        {
            request.keep_alive = false;
        }
        if !request.keep_alive {
            // The body stays unread, so nothing is gained by inviting it (RFC 9110 §10.1.1).
            request.expect_continue = false;
        }
        self.state = match request.framing {
            _ if !request.keep_alive => State::Closed,
            Framing::None => State::ExpectHead,
            Framing::Length(remaining) => State::SkipBody { remaining },
            Framing::Chunked => State::ExpectChunkSize { received: 0 },
        };
        Event::Request(request)
    }

    #[cold]
    fn reject(&mut self, reject: Reject) -> Event<'static> {
        self.state = State::Closed;
        Event::Rejected(reject)
    }
}

impl Default for Connection {
    fn default() -> Self {
        Self::new()
    }
}

// Held for every one of millions of connections.
const _: () = assert!(size_of::<Connection>() <= 32);

/// `remaining`, or as much of it as `available` has.
fn clamp(remaining: u64, available: usize) -> usize {
    usize::try_from(remaining).map_or(available, |remaining| remaining.min(available))
}

/// Bytes of a body up to the end of a chunk of `size` bytes behind `received` bytes and a line of
/// `line_len` bytes.
///
/// Lines count, else a body of one-byte chunks with long extensions would be a hundred times what
/// it seems to be.
fn chunk_end(received: u64, line_len: usize, size: u64, limits: &Limits) -> Result<u64, Reject> {
    let line_ends = 2;
    received
        .checked_add(line_len as u64 + line_ends)
        .and_then(|sum| sum.checked_add(size))
        .filter(|&sum| sum <= limits.body_bytes_max)
        .ok_or(Reject::new(Status::ContentTooLarge, "a chunked body that is too long"))
}

#[cfg(test)]
mod tests;
