//! A send queue whose data may not be ready yet.
//!
//! A server sends in order, but a disk reads in any order. [`OutQ`] stands between server and disk:
//! bytes are *promised* in the order in which they must leave, and *filled* in the order in which
//! they arrive. A byte can be *sent* only if all bytes in front of it have been filled. No thread
//! waits: the fill that closes the first gap makes all bytes up to the next gap ready. The idea is
//! FreeBSD's non-blocking `sendfile(2)` (Gleb Smirnoff, 2014): a socket buffer may hold
//! `M_NOTREADY` mbufs. The comment on `struct sf_io` in `sys/kern/kern_sendfile.c` explains this
//! call.
//!
//! The queue does no I/O and copies no byte. The caller decides what a payload is ([`Payload`]):
//! bytes, a range of a shared buffer, a range of a resident file. A *source* fills the queue. A
//! *transport*, such as a kernel socket or a TCP of our own, drains the queue: the transport takes
//! chunks from the ready prefix and reports the bytes that were sent. The transport *releases*
//! bytes once it no longer refers to them.
//!
//! All positions are absolute `u64` offsets into the stream: bytes since the connection opened. No
//! other number is needed: a read carries the position of its bytes through the kernel and back.
//!
//! # Example
//!
//! The head of a response is in memory; the body of the response is still on the disk. The second
//! response is ready before the body, and still leaves after the body.
//!
//! ```
//! use outq::{OutQ, State};
//!
//! let mut queue = OutQ::new();
//! queue.push(b"head ".as_slice());
//! let body = queue.promise(5);
//! queue.push(b"next".as_slice());
//!
//! // Only the head may leave, ...
//! let ready: Vec<_> = queue.next_ready().map(|chunk| *chunk.payload).collect();
//! assert_eq!(ready, [b"head "]);
//! queue.mark_sent(5);
//! assert_eq!(queue.state(), State::Waiting);
//!
//! // ... until the disk answers. That one fill makes the rest ready too.
//! queue.fill(body, b"body ".as_slice());
//! assert_eq!(queue.unsent_ready(), 9);
//! queue.mark_sent(9);
//! assert_eq!(queue.state(), State::Drained);
//!
//! // The transport has copied or delivered everything: the payloads may go.
//! queue.mark_released(14);
//! assert_eq!(queue.released(), queue.promised());
//! ```

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::fmt;
use core::ops::{AddAssign, Range, SubAssign};

#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod model;
#[cfg(test)]
mod tests;

/// Data that can be sent: bytes, a range of a shared buffer, a range of a resident file.
///
/// Dropping a payload frees its memory or its file. The queue drops a payload in three cases: the
/// last byte of the payload has been released; the payload has been taken back ([`OutQ::retract`]);
/// the payload can never be sent ([`OutQ::fail`], [`OutQ::abort`]). [`OutQ::take_ready`] moves a
/// payload out instead.
#[expect(
    clippy::len_without_is_empty,
    reason = "the queue drops empty payloads and never holds one"
)]
pub trait Payload {
    /// The number of bytes. The number must not change while the payload is queued, except by
    /// [`split_to`](Self::split_to).
    fn len(&self) -> u64;

    /// The memory that the payload keeps alive: by default the length of the payload. The weight
    /// must not change while the payload is queued, except by [`split_to`](Self::split_to).
    fn weight(&self) -> Weight {
        Weight { own: self.len(), shared: 0 }
    }

    /// Cuts off and returns the first `n` bytes; `self` keeps the rest. `n` is at least 1 and less
    /// than the length, so no half is empty.
    ///
    /// If the memory of a payload cannot be cut, each half keeps all of this memory alive, and has
    /// the full weight of this memory.
    #[must_use]
    fn split_to(&mut self, n: u64) -> Self
    where
        Self: Sized;
}

/// A payload in memory, for transports that read bytes from the queue more than once.
pub trait Memory: Payload {
    /// All bytes of the payload.
    fn bytes(&self) -> &[u8];
}

/// Bytes of memory that a payload, or all payloads of a queue, keep alive. A slice of a large
/// buffer has the weight of the whole buffer, and a range of a file has no weight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Weight {
    /// The bytes that are freed when the payload is dropped.
    pub own: u64,
    /// The bytes that are freed when the last of several owners is dropped. A buffer with several
    /// payloads counts for each payload.
    pub shared: u64,
}

impl Weight {
    /// `own` plus `shared`: an upper limit of the memory that is freed when the payloads are
    /// dropped. Less memory is freed if two payloads share a buffer, or if a buffer has another
    /// owner.
    pub const fn total(self) -> u64 {
        self.own + self.shared
    }
}

impl AddAssign for Weight {
    fn add_assign(&mut self, other: Self) {
        self.own += other.own;
        self.shared += other.shared;
    }
}

impl SubAssign for Weight {
    fn sub_assign(&mut self, other: Self) {
        self.own -= other.own;
        self.shared -= other.shared;
    }
}

impl Payload for &[u8] {
    fn len(&self) -> u64 {
        <[u8]>::len(self) as u64
    }

    fn split_to(&mut self, n: u64) -> Self {
        let (front, rest) = self.split_at(index(n));
        *self = rest;
        front
    }
}

impl Payload for Vec<u8> {
    fn len(&self) -> u64 {
        self.as_slice().len() as u64
    }

    /// Copies the rest, because a vector has one owner.
    fn split_to(&mut self, n: u64) -> Self {
        let rest = self.split_off(index(n));
        core::mem::replace(self, rest)
    }
}

impl Memory for &[u8] {
    fn bytes(&self) -> &[u8] {
        self
    }
}

impl Memory for Vec<u8> {
    fn bytes(&self) -> &[u8] {
        self
    }
}

fn index(n: u64) -> usize {
    usize::try_from(n).expect("a position within a payload in memory")
}

/// A run of bytes within one payload: ready and unsent ([`OutQ::next_ready`]), or sent and not
/// released ([`OutQ::in_flight`]).
#[derive(Debug)]
pub struct Chunk<'a, P> {
    /// The position of the first byte of `range` in the stream: bytes since the connection opened.
    pub at: u64,
    /// The payload that holds the bytes.
    pub payload: &'a P,
    /// The range within the payload; never empty. The range starts after 0 if the front of the
    /// payload was sent before. The range ends before the end of the payload if the rest was
    /// retracted, can never be sent, or has not been sent.
    pub range: Range<u64>,
}

impl<P> Chunk<'_, P> {
    /// The number of bytes in the chunk; at least 1.
    #[expect(clippy::len_without_is_empty, reason = "a chunk is never empty, as `range` says")]
    pub const fn len(&self) -> u64 {
        self.range.end - self.range.start
    }
}

/// The next step in sending, for the owner of a connection. See [`OutQ::state`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// All promised bytes have been sent. Read the next request, or close.
    Drained,
    /// The next byte will never come, or the stream was [aborted](OutQ::abort) at this position.
    /// Close the connection: promised bytes cannot be skipped, and must not be replaced.
    Failed,
    /// At least one byte may be sent now.
    Ready,
    /// The next byte is in a gap, so nothing can be sent until this byte is filled.
    Waiting,
}

/// The send queue of one connection.
///
/// ```text
///  0          released            sent               ready                               promised
///  |             |                 |                   |                                     |
///  +-------------+-----------------+-------------------+-----------+----------+------+-------+
///  |    gone     |  filled, sent   |  filled, unsent   |    gap    |  filled  | gap  | filled|
///  +-------------+-----------------+-------------------+-----------+----------+------+-------+
///                 \               / \                 / \         /
///                  in_flight():      next_ready()       first_gap()
///                  transport may
///                  refer to them
/// ```
///
/// `released <= sent <= ready <= promised` after every call. FreeBSD counts from the front of the
/// socket buffer instead of using positions. FreeBSD's `sb_ccc` (claimed) is `promised - released`,
/// and `sb_acc` (available) is `ready - released`. A gap is an `M_NOTREADY` mbuf, and
/// [`first_gap`](Self::first_gap) is `sb_fnrdy`.
///
/// The caller uses [`push`](Self::push) for bytes in memory and [`promise`](Self::promise) for
/// bytes that come later. A source answers each promise, in any order and in any parts, by
/// [`fill`](Self::fill) or [`fail`](Self::fail). The transport loops over
/// [`next_ready`](Self::next_ready) and calls [`mark_sent`](Self::mark_sent). When the kernel has
/// copied the bytes, or the peer has acknowledged the bytes, the transport no longer refers to them
/// and calls [`mark_released`](Self::mark_released). A transport that retransmits reads sent bytes
/// again by [`in_flight`](Self::in_flight): the queue is its send buffer. A queue that feeds
/// another queue has no transport; [`take_ready`](Self::take_ready) moves payloads to the other
/// queue.
///
/// A failure is final: the failed byte and all bytes after it will never be ready, even if they are
/// filled later. The bytes in front of the failed byte can still be sent; then
/// [`state`](Self::state) is [`State::Failed`]. A producer that does not know its length promises
/// only bytes that it has. When such a producer fails, there may be no gap, so it calls
/// [`abort`](Self::abort) to end the stream.
///
/// The queue does not limit promised bytes; the caller must limit them. For n payloads the queue
/// holds at most `2 * n + 1` segments, and allocates nothing before the first promise. A call that
/// breaks the protocol panics. Such a call is a mistake of the caller, and the order of the stream
/// could not be trusted afterwards.
pub struct OutQ<P> {
    /// The segments, in order and without holes from `released` to `reachable()`. The first segment
    /// may begin in front of `released`.
    segments: VecDeque<Segment<P>>,
    /// The transport refers to no byte in front of this position.
    released: u64,
    /// The first byte that the transport has not taken.
    sent: u64,
    /// The position of the first gap; `reachable()` if there is no gap.
    ready: u64,
    /// The position of the byte that will never come. After [`fail`](Self::fail) this byte is one of the promised
    /// bytes. After [`abort`](Self::abort) the position may be the end of the promised bytes. The value is [`NEVER`]
    /// before a failure.
    failed_at: u64,
    /// The end of the queued bytes, filled or not. The value is below [`NEVER`].
    promised: u64,
    /// The sum of the weights of all payloads in the queue.
    weight: Weight,
}

/// A run of bytes. The run ends where the next segment begins; the last segment ends at
/// `reachable()`. No gap follows a gap.
struct Segment<P> {
    /// The position of the first byte.
    at: u64,
    /// `Some` when the segment is filled. The payload begins with the byte at `at`. The
    /// payload may be longer than the segment; the excess is never sent.
    payload: Option<P>,
}

impl<P: Payload> OutQ<P> {
    /// An empty queue at position 0. Allocates nothing.
    pub const fn new() -> Self {
        Self {
            segments: VecDeque::new(),
            released: 0,
            sent: 0,
            ready: 0,
            failed_at: NEVER,
            promised: 0,
            weight: Weight { own: 0, shared: 0 },
        }
    }

    /// Queues `n` bytes that will come later, and returns the position of the first byte. `n == 0`
    /// changes nothing.
    ///
    /// # Panics
    ///
    /// Panics after [`fail`](Self::fail) and [`abort`](Self::abort), because nothing can follow
    /// bytes that never come. Also panics if the stream would reach `u64::MAX`.
    #[track_caller]
    pub fn promise(&mut self, n: u64) -> u64 {
        let at = self.extend(n);
        if n > 0 && !self.segments.back().is_some_and(Segment::is_gap) {
            self.segments.push_back(Segment::gap(at));
        }
        at
    }

    /// Queues a payload, and returns the position of its first byte. An empty payload
    /// is dropped.
    ///
    /// # Panics
    ///
    /// Panics in the same cases as [`promise`](Self::promise).
    #[track_caller]
    pub fn push(&mut self, payload: P) -> u64 {
        let len = payload.len();
        let at = self.extend(len);
        if len == 0 {
            return at;
        }
        self.weight += payload.weight();
        self.segments.push_back(Segment { at, payload: Some(payload) });
        if self.ready == at {
            self.ready = self.promised;
        }
        at
    }

    /// Fills promised bytes from `at` on: all of a gap, or any part of a gap. An empty payload is
    /// dropped.
    ///
    /// Bytes after a failed position are dropped silently, because their reads may have been in
    /// flight when the failure was declared. If a payload reaches across the failed position, the
    /// front of the payload is kept.
    ///
    /// # Panics
    ///
    /// Panics if a byte was not promised, or is already filled.
    #[track_caller]
    pub fn fill(&mut self, at: u64, payload: P) {
        let len = payload.len();
        if len == 0 {
            return;
        }
        let promised = self.promised;
        let end = at
            .checked_add(len)
            .filter(|&end| end <= promised)
            .unwrap_or_else(|| panic!("outq: fill of {len} bytes at {at}, promised is {promised}"))
            .min(self.reachable());
        if at >= end {
            return;
        }

        let index = self.gap_at(at);
        let gap_end = self.end_of(index);
        assert!(
            end <= gap_end,
            "outq: fill of {at}..{end} runs into bytes filled already, at {gap_end}"
        );
        if end < gap_end {
            self.segments.insert(index + 1, Segment::gap(end));
        }
        self.weight += payload.weight();
        let filled = Segment { at, payload: Some(payload) };
        if self.segments[index].at < at {
            self.segments.insert(index + 1, filled);
        } else {
            self.segments[index] = filled;
        }
        if at == self.ready && end == self.promised {
            self.ready = end;
        } else if at == self.ready {
            let next_gap = self.segments.range(index + 1..).find(|s| s.is_gap());
            self.ready = next_gap.map_or_else(|| self.reachable(), |gap| gap.at);
        }
    }

    /// Turns filled, unsent bytes into a gap again, from `at` to the end of their payload. Callers
    /// retract a range of a file that may no longer be resident, and memory that is needed
    /// elsewhere.
    ///
    /// The payload is dropped unless it also holds bytes in front of `at` that have not been
    /// released. To retract bytes after a failed position does nothing, because the failure has
    /// dropped these bytes.
    ///
    /// # Panics
    ///
    /// Panics if the byte at `at` was not promised, is not filled, or has been sent.
    #[track_caller]
    pub fn retract(&mut self, at: u64) {
        self.assert_promised(at);
        assert!(at >= self.sent, "outq: retract of {at}, which has been sent");
        if at >= self.reachable() {
            return;
        }
        let index = self.segment_at(at);
        assert!(!self.segments[index].is_gap(), "outq: retract of {at}, which is not filled");

        let gap_follows = self.segments.get(index + 1).is_some_and(Segment::is_gap);
        let begins_here = self.segments[index].at == at;
        if !begins_here && self.released < at {
            // The front of the payload stays.
            if gap_follows {
                self.segments[index + 1].at = at;
            } else {
                self.segments.insert(index + 1, Segment::gap(at));
            }
        } else {
            let taken = core::mem::replace(&mut self.segments[index], Segment::gap(at));
            self.weight -= taken.weight();
            // A segment ends where the next segment begins. So two neighbouring gaps become one gap
            // if one of the two is taken out.
            if gap_follows {
                self.segments.remove(index + 1);
            }
            if index > 0 && self.segments[index - 1].is_gap() {
                self.segments.remove(index);
            }
        }
        self.ready = self.ready.min(at);
    }

    /// Declares that the byte at `at`, in a gap, will never come. No byte from `at` on will ever be
    /// ready, and filled bytes from `at` on are dropped. Bytes in front of `at` may still be filled
    /// and sent.
    ///
    /// If several reads fail, the failure nearest to the front counts.
    ///
    /// # Panics
    ///
    /// Panics if the byte at `at` was not promised, or is already filled.
    #[track_caller]
    pub fn fail(&mut self, at: u64) {
        self.assert_promised(at);
        if at >= self.reachable() {
            return;
        }
        let index = self.gap_at(at);
        let begins_here = self.segments[index].at == at;
        for lost in self.segments.drain(if begins_here { index } else { index + 1 }..) {
            self.weight -= lost.weight();
        }
        self.failed_at = at;
    }

    /// Declares that no byte follows, because the producer of the stream has failed. If there is a
    /// gap, its first byte [fails](Self::fail). Without a gap, the promised bytes can still be
    /// sent, and then [`state`](Self::state) is [`State::Failed`]. After a failure, `abort` has an
    /// effect only if there is still a gap in front of the failed byte.
    pub fn abort(&mut self) {
        if self.ready < self.reachable() {
            self.fail(self.ready);
        } else if self.failed_at == NEVER {
            self.failed_at = self.promised;
        }
    }

    /// Records that the transport has taken the next `n` ready bytes. The transport may refer to
    /// these bytes until they are [released](Self::mark_released).
    ///
    /// # Panics
    ///
    /// Panics if fewer than `n` bytes are ready and unsent.
    #[track_caller]
    pub fn mark_sent(&mut self, n: u64) {
        let unsent = self.unsent_ready();
        assert!(n <= unsent, "outq: {n} bytes sent of {unsent} ready");
        self.sent += n;
    }

    /// Records that the transport no longer refers to the next `n` sent bytes. A payload is dropped
    /// if all bytes of the payload have been released.
    ///
    /// # Panics
    ///
    /// Panics if fewer than `n` bytes are sent and unreleased.
    #[track_caller]
    pub fn mark_released(&mut self, n: u64) {
        let unreleased = self.sent - self.released;
        assert!(n <= unreleased, "outq: {n} bytes released of {unreleased} sent");
        self.released += n;
        if self.released == self.reachable() {
            // In most calls there is one segment, and then this path takes half the time of the
            // loop below.
            drop(self.segments.pop_front());
            if !self.segments.is_empty() {
                self.segments.clear();
            }
            self.weight = Weight::default();
            return self.shrink_if_empty();
        }
        while self.end_of(0) <= self.released
            && let Some(gone) = self.segments.pop_front()
        {
            self.weight -= gone.weight();
        }
    }

    /// Takes the next ready and unsent payload out of the queue, cut down to at most `max` bytes;
    /// `None` if nothing is ready or `max` is 0. The bytes of this payload count as sent and
    /// released. The caller moves the payload into another queue, whose transport sends it.
    ///
    /// # Panics
    ///
    /// Panics if bytes that were sent have not been released. A queue has one consumer: a transport
    /// or another queue.
    #[track_caller]
    pub fn take_ready(&mut self, max: u64) -> Option<P> {
        let Self { released, sent, .. } = *self;
        assert!(released == sent, "outq: {} sent bytes are not released", sent - released);
        let n = max.min(self.unsent_ready());
        if n == 0 {
            return None;
        }
        let end = self.end_of(0);
        let mut first = self.segments.pop_front()?;
        self.weight -= first.weight();
        let mut payload = first.payload.take()?;
        if first.at < sent {
            // The transport sent and released the front of the payload.
            drop(payload.split_to(sent - first.at));
        }
        let next = end.min(sent + n);
        if next - sent < payload.len() {
            let front = payload.split_to(next - sent);
            let rest = core::mem::replace(&mut payload, front);
            if next < end {
                self.weight += rest.weight();
                self.segments.push_front(Segment { at: next, payload: Some(rest) });
            }
        }
        self.sent = next;
        self.released = next;
        self.shrink_if_empty();
        Some(payload)
    }

    fn shrink_if_empty(&mut self) {
        if self.segments.is_empty() && self.segments.capacity() > SEGMENTS_KEPT {
            self.segments.shrink_to(SEGMENTS_KEPT);
        }
    }

    /// Frees all memory that holds no segment. Callers use this method when a connection becomes
    /// idle.
    ///
    /// Without `shrink`, a queue whose bytes were all released keeps room for a few segments, so
    /// that a busy connection does not allocate for each response.
    pub fn shrink(&mut self) {
        self.segments.shrink_to_fit();
    }

    /// Begins a new stream at position 0, and keeps the memory of the queue, so that the queue can
    /// serve another connection.
    ///
    /// # Panics
    ///
    /// Panics if promised bytes have not been released: their payloads and positions would be
    /// mistaken for those of the new stream. Also panics after an [abort](Self::abort): the peer
    /// still waits for more bytes.
    #[track_caller]
    pub fn restart(&mut self) {
        assert!(self.released == self.promised, "outq: restart with unreleased bytes");
        assert!(self.failed_at == NEVER, "outq: restart of an aborted stream");
        // The queue has no segments and no weight, because all bytes were released.
        (self.released, self.sent, self.ready, self.promised) = (0, 0, 0, 0);
    }

    /// The chunks that may be sent now, in order, from the byte at [`sent`](Self::sent) on. There
    /// is no gap between these chunks, and no chunk is empty.
    pub fn next_ready(&self) -> impl Iterator<Item = Chunk<'_, P>> {
        self.chunks(self.sent..self.ready)
    }

    /// The chunks that were sent and not released, in order, from the byte at `from` on. A
    /// transport reads these chunks to retransmit.
    ///
    /// # Panics
    ///
    /// Panics if the byte at `from` has been released, or `from` is after [`sent`](Self::sent).
    #[track_caller]
    pub fn in_flight(&self, from: u64) -> impl Iterator<Item = Chunk<'_, P>> {
        assert!(from >= self.released, "outq: the byte at {from} has been released");
        assert!(from <= self.sent, "outq: the byte at {from} has not been sent");
        self.chunks(from..self.sent)
    }

    /// The chunks of a range that has no gap.
    fn chunks(&self, range: Range<u64>) -> impl Iterator<Item = Chunk<'_, P>> {
        let first =
            if range.is_empty() { self.segments.len() } else { self.segment_at(range.start) };
        (first..self.segments.len()).map_while(move |index| {
            let segment = &self.segments[index];
            let payload = segment.payload.as_ref().filter(|_| segment.at < range.end)?;
            let at = segment.at.max(range.start);
            let end = self.end_of(index).min(range.end);
            Some(Chunk { at, payload, range: at - segment.at..end - segment.at })
        })
    }

    /// The next step in sending.
    pub const fn state(&self) -> State {
        if self.sent < self.ready {
            State::Ready
        } else if self.sent < self.reachable() {
            State::Waiting
        } else if self.failed_at == NEVER {
            State::Drained
        } else {
            State::Failed
        }
    }

    /// True if all promised bytes have been sent, and the stream was not [aborted](Self::abort).
    pub const fn is_drained(&self) -> bool {
        self.sent == self.promised && self.failed_at == NEVER
    }

    /// The run of missing bytes nearest to the front (FreeBSD's `sb_fnrdy`); `None` if every byte
    /// that can still come is filled. The gap begins at [`ready`](Self::ready) and may span several
    /// promises.
    pub fn first_gap(&self) -> Option<Range<u64>> {
        let is_missing = self.ready < self.reachable();
        is_missing.then(|| self.ready..self.end_of(self.segment_at(self.ready)))
    }

    /// The position from which no byte will ever be sent; `None` before a failure. After an
    /// [abort](Self::abort) this position may be [`promised`](Self::promised).
    pub fn failed_at(&self) -> Option<u64> {
        (self.failed_at != NEVER).then_some(self.failed_at)
    }

    /// The number of bytes that may be sent now: `ready - sent`.
    pub const fn unsent_ready(&self) -> u64 {
        self.ready - self.sent
    }

    /// The memory that all payloads in the queue keep alive: the sum of the
    /// [weights](Payload::weight) of these payloads. A payload counts until it is dropped, so sent
    /// bytes that are not released count, too.
    pub const fn weight(&self) -> Weight {
        self.weight
    }

    /// The position before which the transport no longer refers to the stream.
    pub const fn released(&self) -> u64 {
        self.released
    }

    /// The position of the next byte to send; the transport has accepted all bytes before this
    /// position.
    pub const fn sent(&self) -> u64 {
        self.sent
    }

    /// The position before which every byte is filled.
    pub const fn ready(&self) -> u64 {
        self.ready
    }

    /// The position before which bytes are queued, filled or not. The next promise begins at this
    /// position.
    pub const fn promised(&self) -> u64 {
        self.promised
    }

    /// Panics unless the invariants in the comments of the fields hold. The method is for tests,
    /// because it walks through the whole queue.
    #[doc(hidden)]
    pub fn check(&self) {
        assert!(self.released <= self.sent);
        assert!(self.sent <= self.ready);
        let reachable = self.reachable();
        assert!(self.ready <= reachable);
        assert!(reachable <= self.promised);
        assert!(self.promised < NEVER);
        assert!(self.failed_at <= self.promised || self.failed_at == NEVER);

        let begin = self.segments.front().map_or(reachable, |s| s.at);
        assert!(begin <= self.released);
        assert_eq!(self.segments.is_empty(), self.released == reachable);
        let mut first_gap = None;
        for (index, segment) in self.segments.iter().enumerate() {
            let end = self.end_of(index);
            assert!(segment.at < end, "empty segment {index} at {end}");
            assert!(end > self.released, "segment {index} outlived its release");
            if let Some(payload) = &segment.payload {
                assert!(payload.len() >= end - segment.at);
            } else {
                assert!(index == 0 || !self.segments[index - 1].is_gap());
                first_gap = first_gap.or(Some(segment.at));
            }
        }
        assert_eq!(self.ready, first_gap.unwrap_or(reachable));
        let mut weight = Weight::default();
        self.segments.iter().for_each(|segment| weight += segment.weight());
        assert_eq!(self.weight, weight);
    }

    /// Moves the end of the stream by `n`, and returns the old end.
    #[track_caller]
    fn extend(&mut self, n: u64) -> u64 {
        let at = self.promised;
        let failed_at = self.failed_at;
        assert!(failed_at == NEVER, "outq: promise behind failed bytes at {failed_at}");
        let Some(end) = at.checked_add(n).filter(|&end| end < NEVER) else {
            panic!("outq: promise of {n} bytes at {at} reaches u64::MAX");
        };
        self.promised = end;
        at
    }

    /// The end of the bytes that may still become ready.
    const fn reachable(&self) -> u64 {
        if self.failed_at < self.promised { self.failed_at } else { self.promised }
    }

    #[track_caller]
    fn assert_promised(&self, at: u64) {
        let promised = self.promised;
        assert!(at < promised, "outq: {at} was not promised, promised is {promised}");
    }

    /// The index of the gap that holds the reachable byte at `at`. Panics if this byte is filled.
    #[track_caller]
    fn gap_at(&self, at: u64) -> usize {
        assert!(at >= self.ready, "outq: the byte at {at} is filled already");
        let index = self.segment_at(at);
        assert!(self.segments[index].is_gap(), "outq: the byte at {at} is filled already");
        index
    }

    /// The index of the segment that holds the byte at `at`. The byte must be unreleased and
    /// reachable.
    fn segment_at(&self, at: u64) -> usize {
        // A transport that releases sent bytes always uses the first segment. A source often uses
        // the last segment.
        if self.end_of(0) > at {
            return 0;
        }
        if let Some(last) = self.segments.back()
            && last.at <= at
        {
            return self.segments.len() - 1;
        }
        self.segments.partition_point(|segment| segment.at <= at) - 1
    }

    /// The position after the last byte of a segment.
    fn end_of(&self, index: usize) -> u64 {
        self.segments.get(index + 1).map_or_else(|| self.reachable(), |next| next.at)
    }
}

impl<P: Payload> Default for OutQ<P> {
    fn default() -> Self {
        Self::new()
    }
}

impl<P> fmt::Debug for OutQ<P> {
    /// Shows the position of each segment. Payloads are not shown, because they are long and need
    /// not be `Debug`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OutQ")
            .field("released", &self.released)
            .field("sent", &self.sent)
            .field("ready", &self.ready)
            .field("failed_at", &Some(self.failed_at).filter(|&at| at != NEVER))
            .field("promised", &self.promised)
            .field("weight", &self.weight)
            .field("segments", &self.segments)
            .finish()
    }
}

impl<P> Segment<P> {
    const fn gap(at: u64) -> Self {
        Self { at, payload: None }
    }

    const fn is_gap(&self) -> bool {
        self.payload.is_none()
    }
}

impl<P: Payload> Segment<P> {
    fn weight(&self) -> Weight {
        self.payload.as_ref().map_or_else(Weight::default, Payload::weight)
    }
}

impl<P> fmt::Debug for Segment<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.is_gap() { "gap" } else { "filled" };
        write!(f, "{kind} at {}", self.at)
    }
}

/// A position that no byte has, because no stream is so long.
const NEVER: u64 = u64::MAX;

/// The number of segments for which an empty queue keeps room, so that a response of a head and a
/// body does not allocate. The standard library's first allocation has room for the same number.
const SEGMENTS_KEPT: usize = 4;

// Each connection has a queue, even an idle one, so an empty queue must stay small.
const _: () = assert!(size_of::<OutQ<&[u8]>>() <= 88);
