//! Responses on their way to one peer: a queue, and the source that fills it.
//!
//! A pump stops when the stream is drained or has failed, when the peer receives no more, or when bytes must come from
//! the disk. It also stops when the quantum of the worker turn is used up: 1 MiB and 64 KiB, or 320 KiB for a transport
//! that sends only from memory. A failure says its cause: the peer, the file, the memory, or a bug of ours.
//!
//! The name of a stream is its owner: a connection and a lane. A connection with HTTP/2 has several lanes. The streams
//! of these lanes send only from memory, and the session merges them into frames. The session skips a lane that waits.
//! If the stream of a lane fails, the other lanes go on.

use core::ops::Range;
use std::rc::Rc;

use outq::{OutQ, State, Weight};
use ring::{Device, Ring, Time};

use crate::allowance::Allowance;
use crate::disk::{Disk, Owner, ReadDone};
use crate::failure::Failure;
use crate::file::File;
use crate::payload::Piece;
use crate::policy::Policy;
use crate::source::{FileSource, FillCx};
use crate::transport::{Drained, Takes, Transport};

/// The maximum of bytes that one pump sends, so that a fast download does not starve other streams. These bytes are a
/// file of 1 MiB and its head, and take about 100 µs of a core. A file that is sent in several worker turns costs more,
/// because the processor's caches lose the data between these turns.
const TURN_BYTES: u64 = 1024 * 1024 + 64 * 1024;
/// The maximum of bytes that one pump sends over a transport that sends only from memory. Our own code copies each
/// byte, and encrypts or sends it, so these bytes also take about 100 µs of a core. The largest response in memory is
/// sent in one worker turn.
pub const TURN_BYTES_OF_MEMORY: u64 = 256 * 1024 + 64 * 1024;

/// The end of a pump.
#[derive(Debug, PartialEq, Eq)]
pub enum Progress {
    /// The transport has sent and released all promised bytes, and holds nothing back.
    Drained,
    /// The peer has to receive or to acknowledge bytes. Either the transport can accept nothing now, or it has sent
    /// bytes that it has not released, and no read is in flight that could bring more. Pump again after
    /// [`Transport::handle_writable`] or [`Transport::receive`]. If the transport is blocked, reads may be in flight;
    /// pump again after each read.
    Blocked,
    /// Reads are in flight, or the stream waits in the queue for a buffer: pump again after [`Stream::handle_read`] or
    /// [`Disk::next_waiting`]. If the transport has not released all sent bytes, pump again after
    /// [`Transport::receive`], too.
    Waiting,
    /// The quantum is used up, and the stream has more to send: pump again after the other streams.
    More,
    /// Promised bytes cannot be sent: close the connection. No other bytes were sent in their place.
    Failed(Failure),
}

/// Everything promised to one peer, in order.
///
/// Call [`push`](Self::push) and [`push_file`](Self::push_file), then [`pump`](Self::pump) until the stream is
/// [drained](Progress::Drained). Pass each read that has ended to [`handle_read`](Self::handle_read).
///
/// A session that merges several streams into one calls [`fill`](Self::fill) instead of `pump`. Afterwards the session
/// moves ready bytes out of [`queue`](Self::queue) by [`OutQ::take_ready`], and calls [`settle`](Self::settle).
#[derive(Debug, Default)]
pub struct Stream {
    queue: OutQ<Piece>,
    files: FileSource,
    takes: Takes,
}

impl Stream {
    /// A stream without promises.
    #[must_use]
    pub const fn new() -> Self {
        Self { queue: OutQ::new(), files: FileSource::new(), takes: Takes::Memory }
    }

    /// Promises bytes that are in memory. After a failure nothing more can be promised, so this call does nothing.
    pub fn push(&mut self, piece: Piece) {
        if self.files.failure().is_none() {
            self.queue.push(piece);
        }
    }

    /// Promises a range of a file, with its policy. After a failure this call does nothing.
    ///
    /// # Panics
    ///
    /// If the range ends beyond the file's size or before it starts.
    pub fn push_file(&mut self, file: &Rc<File>, range: Range<u64>, policy: Policy) {
        if self.files.failure().is_none() {
            self.files.push(&mut self.queue, file, range, policy);
        }
    }

    /// Notes that nothing follows the promised bytes, although the response is not complete. If none of the promised
    /// bytes is missing, they are still sent before the stream fails. Otherwise the stream fails at the first gap.
    pub fn abort(&mut self, failure: Failure) {
        self.files.abort(&mut self.queue, failure);
    }

    /// The pieces that may be promised: pieces in memory, unless [`set_takes`](Self::set_takes) has said that the
    /// transport can send other pieces.
    #[must_use]
    pub const fn takes(&self) -> Takes {
        self.takes
    }

    /// Says which pieces the transport can send.
    pub const fn set_takes(&mut self, takes: Takes) {
        self.takes = takes;
    }

    /// The bytes promised since the stream began.
    #[must_use]
    pub const fn promised(&self) -> u64 {
        self.queue.promised()
    }

    /// The bytes that the transport has taken since the stream began.
    #[must_use]
    pub const fn sent(&self) -> u64 {
        self.queue.sent()
    }

    /// Returns whether the transport has sent and released all promised bytes.
    #[must_use]
    pub const fn is_drained(&self) -> bool {
        self.queue.is_drained() && self.queue.released() == self.queue.promised()
    }

    /// Returns whether reads are in flight: see [`FileSource::is_reading`].
    #[must_use]
    pub const fn is_reading(&self) -> bool {
        self.files.is_reading()
    }

    /// The bytes that were read or copied, and were not released: see [`FileSource::held`].
    #[must_use]
    pub const fn held(&self) -> u64 {
        self.files.held()
    }

    /// The bytes of reads in flight: see [`FileSource::reading`].
    #[must_use]
    pub const fn reading(&self) -> u64 {
        self.files.reading()
    }

    /// The bytes of [`held`](Self::held) that were copied: see [`FileSource::copied`].
    #[must_use]
    pub fn copied(&self) -> u64 {
        self.files.copied()
    }

    /// The device of the next bytes for which no read has begun; `None` if there are no such bytes.
    #[must_use]
    pub fn device(&self) -> Option<Device> {
        self.files.device()
    }

    /// Returns whether the next range is read ahead: see [`FileSource::reads_ahead`].
    #[must_use]
    pub fn reads_ahead(&self) -> bool {
        self.files.reads_ahead()
    }

    /// Returns whether ranges of files were promised that have not been sent.
    #[must_use]
    pub fn has_files(&self) -> bool {
        !self.files.is_unused()
    }

    /// The reason for the failure of a stream whose [`queue`](Self::queue) has
    /// [failed](State::Failed).
    #[must_use]
    pub const fn failure(&self) -> Option<Failure> {
        self.files.failure()
    }

    /// The memory that the stream keeps alive, without the buffers of its [`Disk`].
    #[must_use]
    pub fn weight(&self) -> Weight {
        let mut weight = self.queue.weight();
        weight.own += self.files.weight();
        weight
    }

    /// The queue, for a transport that releases bytes, or for a session that moves them.
    pub const fn queue(&mut self) -> &mut OutQ<Piece> {
        &mut self.queue
    }

    /// Begins a new stream, for another transport, and keeps the allocated memory.
    ///
    /// # Panics
    ///
    /// If promised bytes are not released, or reads are in flight.
    pub fn restart(&mut self) {
        self.files.restart();
        self.queue.restart();
        self.takes = Takes::Memory;
    }

    /// Handles a read that has ended. Pump afterwards.
    pub fn handle_read(&mut self, done: ReadDone) {
        self.files.handle_read(&mut self.queue, done);
    }

    /// Gives back memory: see [`FileSource::reclaim`].
    pub fn reclaim(&mut self, now: Time) -> bool {
        self.files.reclaim(&mut self.queue, now)
    }

    /// Fills promises with bytes in memory, within `allowance`: see [`FileSource::fill`]. Returns true if the stream
    /// can send nothing, and `allowance` is too small for the next read.
    pub fn fill(
        &mut self,
        ring: &mut Ring,
        disk: &mut Disk,
        owner: Owner,
        allowance: Allowance,
        budget: u64,
    ) -> bool {
        let (takes, window) = (Takes::Memory, u64::MAX);
        let mut cx = FillCx { ring, disk, owner, takes, window, allowance, lacks_allowance: false };
        self.files.fill(&mut self.queue, &mut cx, budget);
        cx.lacks_allowance
    }

    /// Takes account of a drain: see [`FileSource::settle`].
    pub fn settle(&mut self, disk: &mut Disk, owner: Owner, blocked: bool) {
        self.files.settle(&mut self.queue, disk, owner, blocked);
    }

    /// Sends at most 1 MiB and 64 KiB, or 320 KiB if the transport sends only from memory. Repeats fill, drain and
    /// settle until nothing more can be done now.
    pub fn pump(
        &mut self,
        ring: &mut Ring,
        disk: &mut Disk,
        transport: &mut impl Transport,
        owner: Owner,
    ) -> Progress {
        self.pump_rest(ring, disk, transport, owner, 0)
    }

    /// [Pumps](Self::pump) within a quantum of which earlier pumps have sent `spent` bytes. If no byte of the quantum
    /// is left, only reads begin.
    #[inline]
    pub fn pump_rest(
        &mut self,
        ring: &mut Ring,
        disk: &mut Disk,
        transport: &mut impl Transport,
        owner: Owner,
        spent: u64,
    ) -> Progress {
        let Self { queue, files, .. } = self;
        let (takes, window) = (transport.takes(), transport.window());
        let allowance = Allowance::ALL;
        let mut cx = FillCx { ring, disk, owner, takes, window, allowance, lacks_allowance: false };
        let quantum = match takes {
            Takes::Files => TURN_BYTES,
            Takes::Memory => TURN_BYTES_OF_MEMORY,
        };
        // A transport that sends whole segments may exceed its budget.
        let mut budget = quantum.saturating_sub(spent);
        let progress = loop {
            if transport.is_blocked() {
                files.settle(queue, cx.disk, owner, true);
                break Progress::Blocked;
            }
            let before = (budget, queue.released());
            files.fill(queue, &mut cx, budget);
            if let Some(is_paced) = files.is_paced() {
                transport.bound_unsent(cx.ring, is_paced);
            }
            let drained = transport.drain(cx.ring, queue, &mut budget);
            files.settle(queue, cx.disk, owner, drained == Drained::Blocked);
            match drained {
                Drained::Empty => match queue.state() {
                    State::Drained if queue.released() == queue.sent() => return Progress::Drained,
                    State::Drained => return Progress::Blocked,
                    State::Failed => {
                        return Progress::Failed(files.failure().unwrap_or(Failure::Gone));
                    }
                    State::Ready | State::Waiting if budget == 0 => break Progress::More,
                    // Nothing was ready, so this fill has begun the reads, or sent bytes fill the window. If the drain
                    // has released some of these bytes, the next fill goes on.
                    State::Ready | State::Waiting if (budget, queue.released()) == before => {
                        let released = queue.released() == queue.sent();
                        let waits_for_disk = released || files.is_reading();
                        return if waits_for_disk { Progress::Waiting } else { Progress::Blocked };
                    }
                    State::Ready | State::Waiting => {}
                },
                Drained::Blocked => break Progress::Blocked,
                Drained::TurnOver => break Progress::More,
                Drained::Refused => {}
                Drained::Failed(failure) => return Progress::Failed(failure),
            }
        };
        // Nothing more leaves now. Meanwhile the next ranges are read.
        files.fill(queue, &mut cx, 0);
        progress
    }
}
