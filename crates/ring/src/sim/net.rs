//! Connections between simulated sockets and simulated peers.

use core::time::Duration;
use std::collections::VecDeque;
use std::io;

use crate::op::Address;
use crate::timers::Time;

use super::Waiter;

/// A [`Ring::sendfile`](crate::Ring::sendfile) or [`Ring::read_mapped`](crate::Ring::read_mapped) that would have slept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stall {
    /// The name that the file was opened by.
    pub file: String,
    /// The offset in bytes from the start of the file.
    pub offset: u64,
    /// The bytes that were requested.
    pub len: usize,
    /// The time of the event.
    pub at: Time,
    /// The pages that it would have waited for, in order.
    pub missing: Vec<MissingPage>,
}

/// A page that was not resident when it was needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MissingPage {
    /// Its number in the file, in pages of 4 KiB.
    pub number: usize,
    /// The time when the kernel reclaimed it ([`Faults::eviction`](super::Faults)); `None` if it was
    /// evicted otherwise, or was never resident.
    pub reclaimed: Option<Time>,
}

/// A listening socket.
#[derive(Debug, Default)]
pub(super) struct Listener {
    pub(super) backlog: VecDeque<usize>,
    /// The operations that accept from it. Of each ring one is not spare.
    /// [`SPARE_ACCEPTS_MAX`](crate::SPARE_ACCEPTS_MAX) limits the spare ones.
    pub(super) accepts: Vec<Waiter>,
    pub(super) closed: bool,
}

/// A listening socket of a peer, for [`Op::Connect`](crate::Op::Connect).
#[derive(Debug)]
pub(super) struct FarListener {
    pub(super) address: Address,
    /// Connections that were made and not accepted.
    pub(super) backlog: VecDeque<usize>,
    /// True if it makes connections; else they hang.
    pub(super) answers: bool,
}

/// One connection, seen from both ends.
#[derive(Debug)]
pub(super) struct Connection {
    /// The bytes that have come and were not received yet.
    pub(super) inbox: VecDeque<u8>,
    /// The state of the stream after `inbox`.
    pub(super) input: Input,
    /// The time at which the last segment of the peer arrives; later segments arrive later.
    pub(super) last_arrival: Time,
    /// The bytes that were sent and that the peer has not taken yet.
    pub(super) outbox: VecDeque<u8>,
    pub(super) capacity: usize,
    /// True if packets that are not full wait for more bytes.
    corked: bool,
    /// The number of bytes at the end of `outbox` that fill no packet, and wait for more.
    held_back: usize,
    /// The time at which these bytes leave anyway.
    flush_at: Time,
    pub(super) output: Output,
    /// The maximum of bytes per second that leave.
    pub(super) rate: Option<u64>,
    /// The operation that waits for input: a receive or a readable.
    pub(super) reader: Option<Waiter>,
    /// The operation that waits for room in `outbox`.
    pub(super) writer: Option<Waiter>,
    /// The operation that reports the bytes that the peer has taken.
    pub(super) acknowledgements: Option<Waiter>,
    /// The number of bytes that the peer has taken.
    taken: u64,
    /// The value of `taken` when the kernel was asked to report acknowledgements.
    pub(super) told_from: Option<u64>,
    pub(super) peer: PeerSide,
}

/// The state of the stream from the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Input {
    Open,
    Ended,
    Reset,
}

/// The state of the stream to the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Output {
    Open,
    /// Shut down or closed: an end follows the bytes in `outbox`.
    Ended,
    /// Closed with unread input: the peer is reset.
    Reset,
}

/// The peer's end of a connection.
#[derive(Debug)]
pub(super) struct PeerSide {
    pub(super) received: Vec<u8>,
    pub(super) reading: Reading,
    /// True if a step of its reading is on the agenda.
    pub(super) busy: bool,
    pub(super) closed: bool,
    pub(super) end: Option<End>,
}

/// The speed at which a peer receives bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reading {
    Unlimited,
    /// At a number of bytes per second.
    Rate(u64),
    Stopped,
}

/// The way in which a stream ended for the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// In order, after all that was sent.
    Eof,
    /// By a reset; bytes may be missing.
    Reset,
}

/// A message that travels from the peer to the socket.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Segment {
    Bytes(Vec<u8>),
    End,
    Reset,
}

/// The bytes of a full packet, as on Ethernet.
const PACKET_BYTES: usize = 1448;
/// The longest time that a packet which is not full is held back (`tcp(7)`, `TCP_CORK`).
const HELD_BACK_MAX: Duration = Duration::from_millis(200);

impl Connection {
    pub(super) const fn new(capacity: usize) -> Self {
        Self {
            inbox: VecDeque::new(),
            input: Input::Open,
            last_arrival: Time::from_nanos(0),
            outbox: VecDeque::new(),
            capacity,
            corked: false,
            held_back: 0,
            flush_at: Time::from_nanos(0),
            output: Output::Open,
            rate: None,
            reader: None,
            writer: None,
            acknowledgements: None,
            taken: 0,
            told_from: None,
            peer: PeerSide {
                received: Vec::new(),
                reading: Reading::Unlimited,
                busy: false,
                closed: false,
                end: None,
            },
        }
    }

    /// The maximum of bytes per second that the peer receives.
    pub(super) fn flow(&self) -> Option<u64> {
        match (self.peer.reading, self.rate) {
            (Reading::Rate(reading), Some(sending)) => Some(reading.min(sending)),
            (Reading::Rate(reading), None) => Some(reading),
            (Reading::Unlimited | Reading::Stopped, sending) => sending,
        }
    }

    pub(super) fn is_readable(&self) -> bool {
        !self.inbox.is_empty() || self.input != Input::Open
    }

    /// Moves bytes that have come into `space`, at most `most`.
    pub(super) fn take(&mut self, space: &mut [u8], most: usize) -> usize {
        let count = self.inbox.len().min(space.len()).min(most);
        let mut at = 0;
        take_front(&mut self.inbox, count, |part| {
            space[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        });
        count
    }

    /// Notes that `count` bytes were put into `outbox`. Returns the time until which some are held
    /// back, if any are.
    pub(super) fn sent(&mut self, count: usize, more: bool, now: Time) -> Option<Time> {
        let packets = if now < self.flush_at { self.held_back + count } else { count };
        self.held_back = if self.corked || more { packets % PACKET_BYTES } else { 0 };
        self.flush_at = now + HELD_BACK_MAX;
        (self.held_back > 0).then_some(self.flush_at)
    }

    pub(super) const fn cork(&mut self, corked: bool) {
        self.corked = corked;
        if !corked {
            self.held_back = 0;
        }
    }

    /// Position in the stream to the peer after the last byte that was sent.
    pub(super) fn sent_to(&self) -> u64 {
        self.taken + self.outbox.len() as u64
    }

    /// The peer receives bytes from `outbox`.
    pub(super) fn peer_takes(&mut self, count: usize) {
        take_front(&mut self.outbox, count, |part| self.peer.received.extend_from_slice(part));
        self.taken += count as u64;
    }

    /// The number of bytes that the peer has acknowledged since the kernel was asked to report it.
    pub(super) fn acknowledged(&self) -> u64 {
        self.told_from.map_or(0, |from| self.taken.saturating_sub(from))
    }

    /// From now on, acknowledgements of the peer are reported for the bytes that follow.
    pub(super) fn tell_acknowledgements(&mut self) {
        self.told_from = Some(self.told_from.unwrap_or_else(|| self.sent_to()));
    }

    /// The number of bytes that the peer can receive.
    pub(super) fn available(&self, now: Time) -> usize {
        let waits = now < self.flush_at && self.output == Output::Open;
        self.outbox.len().saturating_sub(if waits { self.held_back } else { 0 })
    }

    /// As in Linux a third of the buffer must be free (`sk_stream_is_writeable`).
    pub(super) fn is_writable(&self) -> bool {
        self.is_dead() || self.outbox.len() <= self.capacity / 3 * 2
    }

    pub(super) fn is_dead(&self) -> bool {
        self.input == Input::Reset || self.output != Output::Open
    }

    /// The room for bytes, or the error of a send.
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

/// Removes `count` bytes from the front of a queue, and gives them as slices: one byte after the other took a third of
/// the time of simulated worlds.
pub(super) fn take_front(queue: &mut VecDeque<u8>, count: usize, mut give: impl FnMut(&[u8])) {
    let (front, back) = queue.as_slices();
    let of_front = count.min(front.len());
    give(&front[..of_front]);
    give(&back[..count - of_front]);
    queue.drain(..count);
}
