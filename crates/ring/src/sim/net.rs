//! Connections between simulated sockets and simulated peers.

use std::collections::VecDeque;
use std::io;

use crate::timers::Time;

use super::Waiter;

/// A [`Ring::sendfile`](crate::Ring::sendfile) that would have slept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stall {
    /// The name that the file was opened by.
    pub file: String,
    /// Bytes from the start of the file.
    pub offset: u64,
    /// Bytes that were asked for.
    pub len: usize,
    /// When.
    pub at: Time,
}

/// A listening socket.
#[derive(Debug, Default)]
pub(super) struct Listener {
    pub(super) backlog: VecDeque<usize>,
    pub(super) accept: Option<Waiter>,
    pub(super) closed: bool,
}

/// One connection, seen from both ends.
#[derive(Debug)]
pub(super) struct Connection {
    /// Bytes that have come and were not received yet.
    pub(super) inbox: VecDeque<u8>,
    /// What comes behind `inbox`.
    pub(super) input: Input,
    /// When the last segment of the peer comes, so that the next comes later.
    pub(super) last_arrival: Time,
    /// Bytes that were sent and that the peer has not taken yet.
    pub(super) outbox: VecDeque<u8>,
    pub(super) capacity: usize,
    pub(super) output: Output,
    /// Who waits for input: a receive or a readable.
    pub(super) reader: Option<Waiter>,
    /// Who waits for room in `outbox`.
    pub(super) writer: Option<Waiter>,
    pub(super) peer: PeerSide,
}

/// How the stream from the peer goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Input {
    Open,
    Ended,
    Reset,
}

/// How the stream to the peer goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Output {
    Open,
    /// Shut down or closed: an end follows what is in `outbox`.
    Ended,
    /// Closed with unread input: the peer is reset.
    Reset,
}

/// What the peer is and has.
#[derive(Debug)]
pub(super) struct PeerSide {
    pub(super) received: Vec<u8>,
    pub(super) reading: Reading,
    /// Whether a step of its reading is on the agenda.
    pub(super) busy: bool,
    pub(super) closed: bool,
    pub(super) end: Option<End>,
}

/// How fast a peer takes bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reading {
    Unlimited,
    /// Bytes per second.
    Rate(u64),
    Stopped,
}

/// How a stream ended for the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// In order, after all that was sent.
    Eof,
    /// By a reset; bytes may be missing.
    Reset,
}

/// What travels from the peer to the socket.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Segment {
    Bytes(Vec<u8>),
    End,
    Reset,
}

impl Connection {
    pub(super) const fn new(capacity: usize) -> Self {
        Self {
            inbox: VecDeque::new(),
            input: Input::Open,
            last_arrival: Time::from_nanos(0),
            outbox: VecDeque::new(),
            capacity,
            output: Output::Open,
            reader: None,
            writer: None,
            peer: PeerSide {
                received: Vec::new(),
                reading: Reading::Unlimited,
                busy: false,
                closed: false,
                end: None,
            },
        }
    }

    pub(super) fn is_readable(&self) -> bool {
        !self.inbox.is_empty() || self.input != Input::Open
    }

    /// As in Linux a third of the buffer must be free (`sk_stream_is_writeable`).
    pub(super) fn is_writable(&self) -> bool {
        self.is_dead() || self.outbox.len() <= self.capacity / 3 * 2
    }

    pub(super) fn is_dead(&self) -> bool {
        self.input == Input::Reset || self.output != Output::Open
    }

    /// Room for bytes, or why there is none.
    pub(super) fn room(&self) -> io::Result<usize> {
        if self.is_dead() {
            return Err(io::Error::from_raw_os_error(libc::EPIPE));
        }
        match self.capacity - self.outbox.len() {
            0 => Err(io::ErrorKind::WouldBlock.into()),
            room => Ok(room),
        }
    }
}
