//! The connection to an application: it finds the bytes of the response, and says when the connection is free for
//! another request.
//!
//! Reading list: FastCGI 1.0 §3.3, §3.5, §4, §5.3, §5.5, §6.2.

use core::fmt;

use crate::record::{HEADER_BYTES, Header, Received, RequestId};

/// The maximum of management records that may come with one response. Applications send them only when asked, and
/// samum never asks.
pub const MANAGEMENT_RECORDS_MAX: u8 = 16;

/// The maximum of empty records that may come with one response after those that end its streams. Applications have
/// no reason to end a stream twice, but it does no harm.
pub const EMPTY_RECORDS_MAX: u8 = 16;

/// The maximum of bytes of `FCGI_STDERR` that come in one event. They may be hundreds of lines, and each costs the
/// caller time.
pub const ERRORS_BYTES_MAX: usize = 1024;

/// One connection as the receiver of responses. It keeps only the beginning of a header, and its position in the
/// records.
///
/// Send a request ([`mod@crate::write`]) and call [`begin`](Self::begin). Then give all unconsumed bytes to
/// [`handle_input`](Self::handle_input), drop the consumed ones, and act on the event. Call it again with the rest
/// until it returns [`Event::Partial`] (wait for more bytes) or [`Event::Closed`]. When the connection [is
/// idle](Self::is_idle) again, it is free for another request, if the whole of the last one was sent.
///
/// ```text
///   new ──► Idle ── begin ──► Response ──┐
///            ▲                           │ FCGI_END_REQUEST
///            └───────────────────────────┘
///   Closed: from everywhere by a fault
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Connection {
    state: ConnectionState,
}

/// The outcome of a call of [`Connection::handle_input`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// All of the input is consumed: call again when there is more.
    Partial,
    /// The next bytes of `FCGI_STDOUT`, at least one.
    Output(&'a [u8]),
    /// The next bytes of `FCGI_STDERR`, at least one and at most [`ERRORS_BYTES_MAX`].
    Errors(&'a [u8]),
    /// The end of the response.
    End(End),
    /// The application broke the protocol or a limit: close the connection.
    Faulty(Fault),
    /// No response will follow on this connection. No byte is consumed.
    Closed,
}

/// The end of a response (`FCGI_END_REQUEST`, §5.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// The status with which a CGI program would have ended; 0 is success.
    pub app_status: u32,
    /// The end as the protocol sees it.
    pub protocol_status: ProtocolStatus,
}

/// The end of a request as the protocol sees it (§5.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProtocolStatus {
    /// The request was completed.
    RequestComplete,
    /// The application accepts one request at a time on a connection, and has one.
    CantMultiplex,
    /// The application has too much to do, and has done nothing for this request.
    Overloaded,
    /// The application is no responder.
    UnknownRole,
}

/// The meaning of the end of the application's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Eof {
    /// The end came between responses: nothing is lost.
    Clean,
    /// The end came before the first byte of a response. If the connection had served a request before,
    /// the application may have closed it before it saw this one.
    Unanswered,
    /// The end came after the end of `FCGI_STDOUT`, so the output is whole. Only `FCGI_END_REQUEST` is missing.
    OutputEnd,
    /// The end came within a response.
    Truncated,
}

/// The application broke the protocol, or a limit of ours.
///
/// The connection is of no more use, because the following records cannot be trusted. A web server responds with 502.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// A fragment of an English sentence for the log, such as "a record of another version of FastCGI".
    pub reason: &'static str,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ConnectionState {
    #[default]
    Idle,
    Response(Response),
    Closed,
}

/// The response that is being received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Response {
    /// The request of the response.
    request: RequestId,
    /// True once a byte of the response has come.
    has_begun: bool,
    place: RecordPosition,
    /// True if the stream of output has ended.
    output_has_ended: bool,
    /// True if the stream of errors has ended.
    errors_have_ended: bool,
    management_records: u8,
    /// Records that ended a stream once more.
    empty_records: u8,
}

/// The position in the records of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RecordPosition {
    Header(Held),
    /// The number of bytes of content that are left, perhaps 0.
    Content {
        record: Received,
        left: u16,
        padding: u8,
    },
    /// The content of `FCGI_END_REQUEST`.
    End(Held, u8),
    /// The number of bytes of padding that are left, perhaps 0, and the end that the last record brings, if it does.
    Padding(u8, Option<End>),
}

/// The beginning of eight bytes that are read together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Held {
    bytes: [u8; HELD_BYTES],
    len: usize,
}

/// The bytes of a header, and also of the content of `FCGI_END_REQUEST`.
const HELD_BYTES: usize = 8;
const _: () = assert!(HELD_BYTES == HEADER_BYTES);

impl Connection {
    /// A connection on which no request has been sent.
    pub const fn new() -> Self {
        Self { state: ConnectionState::Idle }
    }

    /// Expects the response to a request, from the bytes that come now. Records of another request are a fault.
    ///
    /// # Panics
    ///
    /// If the connection is not idle.
    pub fn begin(&mut self, request: RequestId) {
        assert!(self.is_idle(), "a request before the end of the response to another");
        self.state = ConnectionState::Response(Response::new(request));
    }

    /// Parses `input`, all bytes received and not consumed; returns how many are consumed, and an event.
    ///
    /// Every call consumes bytes, or reports something other than [`Event::Partial`], or has an empty input. The same
    /// bytes yield the same events for any cuts into calls, except for the pieces of output and errors. For
    /// back-pressure pass no more bytes than there is room for output.
    pub fn handle_input<'a>(&mut self, input: &'a [u8]) -> (usize, Event<'a>) {
        match self.step(input) {
            Ok((len, event)) => {
                if let Event::End(_) = event {
                    self.state = ConnectionState::Idle;
                }
                (len, event)
            }
            Err(reason) => {
                self.state = ConnectionState::Closed;
                (input.len(), Event::Faulty(Fault { reason }))
            }
        }
    }

    /// Returns the meaning of the end of the application's bytes. The connection is closed then.
    pub fn handle_eof(&mut self) -> Eof {
        match core::mem::replace(&mut self.state, ConnectionState::Closed) {
            ConnectionState::Idle | ConnectionState::Closed => Eof::Clean,
            ConnectionState::Response(response) if !response.has_begun => Eof::Unanswered,
            ConnectionState::Response(response) if response.output_has_ended => Eof::OutputEnd,
            ConnectionState::Response(_) => Eof::Truncated,
        }
    }

    /// Returns true if the connection is free for another request.
    pub fn is_idle(&self) -> bool {
        self.state == ConnectionState::Idle
    }

    /// Returns whether no further response will be delivered.
    pub fn is_closed(&self) -> bool {
        self.state == ConnectionState::Closed
    }

    fn step<'a>(&mut self, input: &'a [u8]) -> Result<(usize, Event<'a>), &'static str> {
        let response = match &mut self.state {
            ConnectionState::Idle if input.is_empty() => return Ok((0, Event::Partial)),
            ConnectionState::Idle => return Err("bytes that answer no request"),
            ConnectionState::Closed => return Ok((0, Event::Closed)),
            ConnectionState::Response(response) => response,
        };
        response.has_begun |= !input.is_empty();
        let mut at = 0;
        loop {
            let (len, event) = response.step(&input[at..])?;
            at += len;
            if let Some(event) = event {
                return Ok((at, event));
            }
        }
    }
}

impl Response {
    const fn new(request: RequestId) -> Self {
        Self {
            request,
            has_begun: false,
            place: RecordPosition::Header(Held::NOTHING),
            output_has_ended: false,
            errors_have_ended: false,
            management_records: 0,
            empty_records: 0,
        }
    }

    /// Takes the next bytes up to the end of a part of a record. Returns their number, and perhaps an event; without
    /// an event there is more to do.
    fn step<'a>(&mut self, input: &'a [u8]) -> Result<(usize, Option<Event<'a>>), &'static str> {
        let (next, len, event) = match &mut self.place {
            RecordPosition::Padding(0, Some(end)) => return Ok((0, Some(Event::End(*end)))),
            RecordPosition::Padding(0, None) => (RecordPosition::Header(Held::NOTHING), 0, None),
            RecordPosition::Content { left: 0, padding, .. } => {
                (RecordPosition::Padding(*padding, None), 0, None)
            }
            _ if input.is_empty() => return Ok((0, Some(Event::Partial))),
            RecordPosition::Header(held) => {
                let (len, bytes) = held.extend(input);
                let Some(bytes) = bytes else { return Ok((len, None)) };
                let header = Header::parse(bytes, self.request)?;
                (self.begin_record(header)?, len, None)
            }
            RecordPosition::Content { record, left, .. } => {
                let most = match record {
                    Received::Stderr => ERRORS_BYTES_MAX,
                    Received::Stdout | Received::EndRequest | Received::Management => usize::MAX,
                };
                let len = input.len().min((*left).into()).min(most);
                *left -= u16::try_from(len).expect("at most what was left");
                let bytes = &input[..len];
                let event = match record {
                    Received::Stdout => Some(Event::Output(bytes)),
                    Received::Stderr => Some(Event::Errors(bytes)),
                    Received::EndRequest | Received::Management => None,
                };
                return Ok((len, event));
            }
            RecordPosition::End(held, padding) => {
                let (len, bytes) = held.extend(input);
                let Some(bytes) = bytes else { return Ok((len, None)) };
                (RecordPosition::Padding(*padding, Some(End::parse(bytes)?)), len, None)
            }
            RecordPosition::Padding(left, _) => {
                let len = input.len().min((*left).into());
                *left -= u8::try_from(len).expect("at most what was left");
                return Ok((len, None));
            }
        };
        self.place = next;
        Ok((len, event))
    }

    /// The position after a header.
    fn begin_record(&mut self, header: Header) -> Result<RecordPosition, &'static str> {
        let Header { record, content_bytes, padding_bytes: padding } = header;
        let has_ended = match record {
            Received::Stdout => &mut self.output_has_ended,
            Received::Stderr => &mut self.errors_have_ended,
            Received::EndRequest if usize::from(content_bytes) == HELD_BYTES => {
                return Ok(RecordPosition::End(Held::NOTHING, padding));
            }
            Received::EndRequest => return Err("an FCGI_END_REQUEST of a wrong length"),
            Received::Management if self.management_records == MANAGEMENT_RECORDS_MAX => {
                return Err("too many management records");
            }
            Received::Management => {
                self.management_records += 1;
                return Ok(RecordPosition::Content { record, left: content_bytes, padding });
            }
        };
        match (content_bytes, *has_ended) {
            (0, false) => *has_ended = true,
            (0, true) if self.empty_records == EMPTY_RECORDS_MAX => {
                return Err("too many empty records");
            }
            (0, true) => self.empty_records += 1,
            // Text for the operator may come late: it changes no output.
            (_, true) if record == Received::Stderr => {}
            (_, true) => return Err("content behind the end of its stream"),
            (_, false) => {}
        }
        Ok(RecordPosition::Content { record, left: content_bytes, padding })
    }
}

impl Held {
    const NOTHING: Self = Self { bytes: [0; HELD_BYTES], len: 0 };

    /// Adds missing bytes; returns their number, and all eight once they are there.
    fn extend(&mut self, input: &[u8]) -> (usize, Option<[u8; HELD_BYTES]>) {
        let len = input.len().min(HELD_BYTES - self.len);
        self.bytes[self.len..self.len + len].copy_from_slice(&input[..len]);
        self.len += len;
        (len, (self.len == HELD_BYTES).then_some(self.bytes))
    }
}

impl End {
    /// Reads the content of `FCGI_END_REQUEST`.
    fn parse(bytes: [u8; HELD_BYTES]) -> Result<Self, &'static str> {
        let [a, b, c, d, protocol_status, ..] = bytes;
        let protocol_status = match protocol_status {
            0 => ProtocolStatus::RequestComplete,
            1 => ProtocolStatus::CantMultiplex,
            2 => ProtocolStatus::Overloaded,
            3 => ProtocolStatus::UnknownRole,
            _ => return Err("an FCGI_END_REQUEST with an unknown protocol status"),
        };
        Ok(Self { app_status: u32::from_be_bytes([a, b, c, d]), protocol_status })
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.reason)
    }
}

impl core::error::Error for Fault {}

#[cfg(test)]
mod tests;
