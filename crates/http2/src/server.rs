//! The server's side of a connection: it finds requests and their content, and keeps the state of streams and windows.
//!
//! Reading list: RFC 9113 §3.4, §5, §6, §8.1, §9.1; RFC 9218 §7; RFC 8441.
//!
//! | file | what it does |
//! |---|---|
//! | `server.rs` | the connection as its caller sees it; the end of a connection |
//! | `server/input.rs` | parses received bytes: prefaces, frames, header blocks, data |
//! | `server/last.rs` | remembers the last head, which may come again |
//! | `server/output.rs` | writes the frames of responses, and windows |

use alloc::vec::Vec;
use core::time::Duration;

use hpack::{Decoder, Encoder};
use http::{Fields, Reject};

use crate::fault::{ErrorCode, Fault};
use crate::flow::{ConnectionWindow, SendWindow};
use crate::frame::{self, Kind};
use crate::head::Request;
use crate::limits::{
    Budget, CONNECTION_WINDOW, IDLE_FRAMES_MAX, IDLE_FRAMES_PER_SECOND, Limits, RESETS_MAX,
    RESETS_PER_SECOND, WINDOW_CEILING,
};
use crate::priority::Wish;
use crate::settings::{self, Settings};
use crate::streams::Streams;

mod input;
mod last;
mod output;

use self::input::Input;
use self::last::Last;

/// One connection as a server. It keeps no content, only its position in streams and windows.
///
/// Give all unconsumed bytes to [`handle_input`](Self::handle_input), drop the consumed ones, and act on the event. Call
/// it again with the rest until it returns [`Event::Partial`] (wait for more bytes) or [`Event::Closed`].
///
/// ```text
///   new ──► Preface ──► FirstSettings ──► Frames ◄──────► Block   (until the end of a header block)
///                                           ▲  │
///                                           │  └────────► Data    (until the end of a frame)
///                                           └────────────── │
///   Closed ◄── from everywhere: a fault
/// ```
///
/// The answers to control frames are in [`control`](Self::control): send them before other frames. Frames of responses
/// are appended to a buffer of the caller, or are only a head, after which the caller sends the data itself.
///
/// `now` is the time since a moment that the caller chooses. It never goes back.
#[derive(Clone, Debug)]
pub struct Connection {
    input: Input,
    /// A header block that needs several frames: its bytes so far.
    block: Vec<u8>,
    streams: Streams,
    decoder: Decoder,
    last: Last,
    encoder: Encoder,
    /// The settings of the client.
    peer: Settings,
    send_window: SendWindow,
    receive_window: ConnectionWindow,
    resets: Budget<RESETS_MAX, RESETS_PER_SECOND>,
    idle_frames: Budget<IDLE_FRAMES_MAX, IDLE_FRAMES_PER_SECOND>,
    /// Bytes of data that were sent, and for which no frames are forgiven yet.
    sent_bytes: u32,
    control: Vec<u8>,
    /// The wishes for streams that are not open yet, the oldest first.
    early: Vec<(u32, Wish)>,
    /// A time that is not later than the first at which the rest of a request is dropped no longer.
    discards_until: Option<Duration>,
    draining: Draining,
    /// True if the client has said that it opens no more streams.
    peer_has_left: bool,
}

/// The end of a connection (RFC 9113 §6.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Draining {
    No,
    /// The client was told that the connection will end, and asked to confirm that.
    Announced,
    /// Streams above this one are not processed.
    Last(u32),
}

/// The payload of the PING that shows that a client knows about the coming end.
const DRAIN_PING: &[u8; 8] = b"draining";

/// The outcome of a call of [`Connection::handle_input`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// More bytes are needed: call again when they have come.
    Partial,
    /// A request, which needs a response.
    Request(Request<'a>),
    /// A request that is refused with a status: respond with it. The content of the request, if any, can be dropped.
    Rejected {
        /// The stream of the response.
        stream: u32,
        /// The status and the reason.
        reject: Reject,
        /// The method, for the log; empty if it is unknown. The response has no content if it is `HEAD`.
        method: &'a [u8],
        /// The path with its query, for the log; empty if it is unknown. It may be cut.
        path: &'a [u8],
    },
    /// A part of the content of a request, at least one byte, also after the end of its response. Call [`handle_taken`](Connection::handle_taken) when it
    /// needs no more memory.
    Body {
        /// The stream of the request.
        stream: u32,
        /// The bytes.
        bytes: &'a [u8],
    },
    /// The end of the content of a request, with its trailers. Requests that have [ended](Request::has_ended) have no
    /// such event.
    End {
        /// The stream of the request.
        stream: u32,
        /// The fields of the trailer section.
        trailers: Fields<'a>,
    },
    /// A stream has ended before its time: drop its request and its response.
    Reset {
        /// The stream.
        stream: u32,
        /// The code, from the client or for the client.
        code: ErrorCode,
        /// The fault of the client; `None` if the client has reset the stream.
        fault: Option<&'static str>,
    },
    /// A request was malformed. Its stream was reset, and nothing is to be done.
    Malformed {
        /// The stream.
        stream: u32,
        /// A fragment of an English sentence for the log.
        reason: &'static str,
    },
    /// A stream beyond the limit was refused, and nothing is to be done. The client may try again.
    Refused {
        /// The stream.
        stream: u32,
    },
    /// The client has room for more data on a stream, or on all of them if the number is zero.
    Room {
        /// The stream.
        stream: u32,
    },
    /// The client wishes another priority for an open stream.
    Priority {
        /// The stream.
        stream: u32,
        /// The wish, in place of the one in the request.
        wish: Wish,
    },
    /// The client opens no more streams. Those that are open go on.
    GoAway {
        /// The reason.
        code: ErrorCode,
    },
    /// The client broke the protocol or a limit. Send what is in [`control`](Connection::control), and close.
    Failed(Fault),
    /// The connection has failed before; further bytes of the client are dropped.
    Closed,
}

impl Connection {
    /// A connection on which nothing has been received. Its settings are in [`control`](Self::control).
    #[must_use]
    pub fn new(now: Duration, limits: &Limits) -> Self {
        let mut control = Vec::new();
        settings::push_own(limits, &mut control);
        Self {
            input: Input::Preface,
            block: Vec::new(),
            streams: Streams::default(),
            decoder: Decoder::new(),
            last: Last::default(),
            encoder: Encoder::new(),
            peer: Settings::INITIAL,
            send_window: SendWindow::new(CONNECTION_WINDOW),
            receive_window: ConnectionWindow::new(now),
            resets: Budget::new(now),
            idle_frames: Budget::new(now),
            sent_bytes: 0,
            control,
            early: Vec::new(),
            discards_until: None,
            draining: Draining::No,
            peer_has_left: false,
        }
    }

    /// Frames that are to be sent before others: settings, acknowledgements, resets, windows, the end. Take them out when
    /// the transport accepts bytes. If they grow beyond [`CONTROL_BYTES_MAX`](crate::limits::CONTROL_BYTES_MAX) because
    /// nothing sends them, the connection fails.
    pub const fn control(&mut self) -> &mut Vec<u8> {
        &mut self.control
    }

    /// Begins the end of the connection: the client is told to open no more streams. Requests that are under way are
    /// processed. When the client has answered, later streams are ignored (RFC 9113 §6.8).
    pub fn shut_down(&mut self) {
        if self.draining == Draining::No {
            self.draining = Draining::Announced;
            frame::push_goaway(WINDOW_CEILING, ErrorCode::NoError, "", &mut self.control);
            frame::push(Kind::Ping, 0, 0, DRAIN_PING, &mut self.control);
        }
    }

    /// Ends the connection after the streams that are open: later streams are ignored.
    pub fn end(&mut self, code: ErrorCode, reason: &'static str) {
        if !matches!(self.draining, Draining::Last(_)) {
            let last = self.streams.newest();
            self.draining = Draining::Last(last);
            frame::push_goaway(last, code, reason, &mut self.control);
        }
    }

    /// Returns whether the connection has ended, or ends and has no streams: close it when everything was sent.
    #[must_use]
    pub fn is_done(&self) -> bool {
        let ends = self.peer_has_left || matches!(self.draining, Draining::Last(_));
        self.input == Input::Closed || (ends && self.streams.len() == 0)
    }

    /// Returns whether the next byte begins a frame, and no stream is open.
    ///
    /// Part of the frame's head may have been seen; its bytes are among the unconsumed ones.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.input == Input::Frames && self.streams.len() == 0
    }

    /// Returns whether the rest of a header block is missing. The client should have sent it at once.
    #[must_use]
    pub const fn is_within_block(&self) -> bool {
        matches!(self.input, Input::Block(_))
    }

    /// The number of streams that are open.
    #[must_use]
    pub fn streams(&self) -> usize {
        self.streams.len()
    }

    /// Returns whether a stream is open, so that a response can be sent.
    #[must_use]
    pub fn is_open(&self, stream: u32) -> bool {
        self.streams.get(stream).is_some_and(|stream| stream.state.takes_response())
    }

    /// Gives back memory that an idle connection does not need.
    pub fn shrink(&mut self) {
        self.decoder.shrink();
        self.last.forget();
        self.encoder.shrink();
        self.streams.shrink();
        self.block.shrink_to_fit();
        self.control.shrink_to_fit();
        self.early.shrink_to_fit();
    }

    /// The bytes of memory that the connection has allocated. They are bounded, whatever the client sends.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.decoder.memory()
            + self.last.memory()
            + self.encoder.memory()
            + self.streams.memory()
            + self.block.capacity()
            + self.control.capacity()
            + self.early.capacity() * size_of::<(u32, Wish)>()
    }

    /// Ends the connection because of a fault of the client.
    #[cold]
    fn fail(&mut self, fault: Fault) {
        frame::push_goaway(self.streams.newest(), fault.code, fault.reason, &mut self.control);
        self.input = Input::Closed;
        self.streams = Streams::default();
        self.discards_until = None;
        self.block = Vec::new();
    }
}

// Held for every connection, also an idle one.
const _: () = assert!(size_of::<Connection>() <= 528);

#[cfg(test)]
mod tests;
