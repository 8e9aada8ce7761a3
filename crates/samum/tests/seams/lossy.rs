//! A transport of segments over a network that loses and reorders them. The queue is its send buffer:
//! it releases bytes when the peer has acknowledged them, and until then sends them again from the
//! queue whenever the peer asks.
//!
//! Segments are framed over the simulated socket, which is reliable; the client's end drops and
//! shuffles them.

mod tests;

use core::ops::Range;
use std::collections::VecDeque;

use outq::{Chunk, OutQ};
use ring::Ring;
use sendfile::{Drained, Failure, KernelTcp, Piece, Takes, Transport, Weight};

use crate::below::Below;
use crate::record::bounds;
pub(crate) use tests::LossyClient;

const SEGMENT_BYTES_MAX: usize = 1460;
/// Bytes that are sent and not acknowledged at most.
const WINDOW_BYTES: u64 = 64 * 1024;
/// Each frame is a kind, two positions (or a length), and for data the bytes.
const HEAD_BYTES: usize = 17;

const DATA: u8 = 1;
const END: u8 = 2;
const ACKNOWLEDGED: u8 = 3;
const AGAIN: u8 = 4;

fn frame(kind: u8, range: Range<u64>, bytes: &[u8]) -> Vec<u8> {
    [&[kind][..], &range.start.to_be_bytes(), &range.end.to_be_bytes(), bytes].concat()
}

/// Takes the first frame off `input`, if all of it is there.
fn unframe(input: &mut Vec<u8>) -> Option<(u8, Range<u64>, Vec<u8>)> {
    let (&kind, rest) = input.split_first()?;
    let (start, rest) = rest.split_first_chunk()?;
    let (end, rest) = rest.split_first_chunk()?;
    let range = u64::from_be_bytes(*start)..u64::from_be_bytes(*end);
    let len = if kind == DATA { bounds(&range).len() } else { 0 };
    let bytes = rest.get(..len)?.to_vec();
    input.drain(..HEAD_BYTES + len);
    Some((kind, range, bytes))
}

/// The server's end.
#[derive(Debug)]
pub(crate) struct Lossy {
    below: Below,
    /// Bytes of the connection's stream that have been sent. The queue begins anew whenever all of
    /// its bytes have been released.
    sent: u64,
    /// Ranges of the stream that the peer has asked for again.
    again: VecDeque<Range<u64>>,
    /// Whether the window was full when it was last tried.
    is_full: bool,
    input: Vec<u8>,
    plain: Vec<u8>,
    has_ended: bool,
}

impl Lossy {
    pub(crate) const fn new(tcp: KernelTcp) -> Self {
        Self {
            below: Below::new(tcp),
            sent: 0,
            again: VecDeque::new(),
            is_full: false,
            input: Vec::new(),
            plain: Vec::new(),
            has_ended: false,
        }
    }

    /// The position in the connection's stream at which the queue begins.
    const fn base(&self, queue: &OutQ<Piece>) -> u64 {
        self.sent - queue.sent()
    }

    /// Sends a chunk of the queue in one segment, or its beginning; returns the number of bytes.
    fn send(&mut self, base: u64, chunk: &Chunk<'_, Piece>, most: u64) -> u64 {
        let bytes = &chunk.payload.bytes()[bounds(&chunk.range)];
        let most = usize::try_from(most).unwrap_or(SEGMENT_BYTES_MAX);
        let bytes = &bytes[..bytes.len().min(most).min(SEGMENT_BYTES_MAX)];
        let (at, len) = (base + chunk.at, bytes.len() as u64);
        self.below.push(frame(DATA, at..at + len, bytes));
        len
    }

    /// Sends again what of a range has been sent and not acknowledged.
    fn send_again(&mut self, queue: &OutQ<Piece>, range: &Range<u64>) {
        let base = self.base(queue);
        let end = range.end.min(self.sent);
        let mut at = range.start.max(base + queue.released());
        while at < end {
            let chunk = queue.in_flight(at - base).next().expect("bytes in flight");
            at += self.send(base, &chunk, end - at);
        }
    }
}

impl Transport for Lossy {
    fn takes(&self) -> Takes {
        Takes::Memory
    }

    fn weight(&self) -> Weight {
        self.below.weight([&self.input, &self.plain])
    }

    fn drain(&mut self, ring: &mut Ring, queue: &mut OutQ<Piece>, budget: &mut u64) -> Drained {
        loop {
            let drained = self.below.flush(ring);
            if drained != Drained::Empty {
                return drained;
            }
            if let Some(range) = self.again.pop_front() {
                self.send_again(queue, &range);
                continue;
            }
            let base = self.base(queue);
            let Some(first) = queue.next_ready().next() else { return Drained::Empty };
            if queue.sent() - queue.released() >= WINDOW_BYTES {
                self.is_full = true;
                return Drained::Blocked;
            }
            if *budget == 0 {
                return Drained::TurnOver;
            }
            let sent = self.send(base, &first, *budget);
            *budget -= sent;
            self.sent += sent;
            queue.mark_sent(sent);
        }
    }

    fn receive<'a>(
        &'a mut self,
        bytes: &'a [u8],
        queue: &mut OutQ<Piece>,
    ) -> Result<&'a [u8], Failure> {
        self.input.extend_from_slice(bytes);
        self.plain.clear();
        while let Some((kind, range, bytes)) = unframe(&mut self.input) {
            match kind {
                DATA => self.plain.extend(bytes),
                END => self.has_ended = true,
                AGAIN => self.again.push_back(range),
                ACKNOWLEDGED if range.end <= self.sent => {
                    let released = self.base(queue) + queue.released();
                    queue.mark_released(range.end.saturating_sub(released));
                    self.is_full = false;
                }
                _ => return Err(Failure::Gone),
            }
        }
        Ok(&self.plain)
    }

    fn handle_writable(&mut self) {
        self.below.tcp.handle_writable();
    }

    fn is_blocked(&self) -> bool {
        self.below.tcp.is_blocked() || (self.is_full && self.again.is_empty())
    }

    fn acknowledged(&self, _ring: &Ring, queue: &OutQ<Piece>) -> i64 {
        queue.released().cast_signed()
    }

    /// Acknowledgements have to come in any case.
    fn set_receiving(&mut self, ring: &mut Ring, _on: bool) {
        self.below.tcp.set_receiving(ring, true);
    }

    fn handle_receive_stopped(&mut self) {
        self.below.tcp.handle_receive_stopped();
    }

    fn handle_end(&mut self) {
        self.below.tcp.handle_end();
        self.has_ended = true;
    }

    fn has_ended(&self) -> bool {
        self.has_ended
    }

    fn shutdown(&mut self, ring: &mut Ring) {
        self.below.push(frame(END, self.sent..self.sent, b""));
        self.below.shut_down(ring);
    }

    fn close(&mut self, ring: &mut Ring) {
        // The end is said if there is room for it. Nothing waits for more.
        self.below.push(frame(END, self.sent..self.sent, b""));
        self.below.flush(ring);
        self.below.tcp.close(ring);
    }
}
