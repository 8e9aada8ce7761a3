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
use sendfile::{Failure, Piece};

use crate::seams::below::{Below, Layer, bounds};
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
#[derive(Debug, Default)]
pub(crate) struct Lossy {
    /// Bytes of the connection's stream that have been sent. The queue begins anew whenever all of
    /// its bytes have been released.
    sent: u64,
    /// Ranges of the stream that the peer has asked for again.
    again: VecDeque<Range<u64>>,
    /// Whether the window was full when it was last tried.
    is_full: bool,
}

/// Sends a chunk of the queue in one segment, or its beginning; returns the number of bytes. `base`
/// is the position in the connection's stream at which the queue begins.
fn send(below: &mut Below, base: u64, chunk: &Chunk<'_, Piece>, most: u64) -> u64 {
    let bytes = &chunk.payload.bytes()[bounds(&chunk.range)];
    let most = usize::try_from(most).unwrap_or(SEGMENT_BYTES_MAX);
    let bytes = &bytes[..bytes.len().min(most).min(SEGMENT_BYTES_MAX)];
    let (at, len) = (base + chunk.at, bytes.len() as u64);
    below.push(frame(DATA, at..at + len, bytes));
    len
}

impl Layer for Lossy {
    const RECEIVES_ALWAYS: bool = true;

    fn is_full(&self) -> bool {
        self.is_full && self.again.is_empty()
    }

    fn acknowledged(&self, queue: &OutQ<Piece>) -> Option<i64> {
        Some(queue.released().cast_signed())
    }

    /// Sends what of a range has been sent and not acknowledged.
    fn repeat(&mut self, below: &mut Below, queue: &OutQ<Piece>) -> bool {
        let Some(range) = self.again.pop_front() else { return false };
        let base = self.sent - queue.sent();
        let end = range.end.min(self.sent);
        let mut at = range.start.max(base + queue.released());
        while at < end {
            let chunk = queue.in_flight(at - base).next().expect("bytes in flight");
            at += send(below, base, &chunk, end - at);
        }
        true
    }

    fn make(&mut self, below: &mut Below, queue: &mut OutQ<Piece>, most: u64) -> u64 {
        self.is_full = queue.sent() - queue.released() >= WINDOW_BYTES;
        if self.is_full {
            return 0;
        }
        let first = queue.next_ready().next().expect("ready bytes");
        let count = send(below, self.sent - queue.sent(), &first, most);
        queue.mark_sent(count);
        self.sent += count;
        count
    }

    fn undo(
        &mut self,
        _below: &mut Below,
        queue: &mut OutQ<Piece>,
        input: &mut Vec<u8>,
        plain: &mut Vec<u8>,
    ) -> Result<bool, Failure> {
        let mut has_ended = false;
        while let Some((kind, range, bytes)) = unframe(input) {
            match kind {
                DATA => plain.extend(bytes),
                END => has_ended = true,
                AGAIN => self.again.push_back(range),
                ACKNOWLEDGED if range.end <= self.sent => {
                    let released = self.sent - queue.sent() + queue.released();
                    queue.mark_released(range.end.saturating_sub(released));
                    self.is_full = false;
                }
                _ => return Err(Failure::Gone),
            }
        }
        Ok(has_ended)
    }

    fn end(&mut self) -> Vec<u8> {
        frame(END, self.sent..self.sent, b"")
    }
}
