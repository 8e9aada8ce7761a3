//! The source that fills promises of files. It never sends.
//!
//! A resident range is *lent*: its promise is filled for one drain, and after the drain the part that the transport has
//! not sent is retracted. So residency is never believed beyond the turn that uses it. Other ranges are read, as
//! far as the [`Window`] goes.
//!
//! For a transport that sends only from memory, a resident range is *copied* into a buffer by the worker's thread. The copy
//! itself finds out whether the bytes are resident (`RWF_NOWAIT`), so it is as exact as a read and needs no look. Few
//! bytes are copied in one step: they stay in the processor's caches until they are sent or sealed, and a peer that
//! receives nothing holds only a small part of a buffer. The copy is held like the result of a read. If it is
//! reclaimed, the range is copied again.
//!
//! A film is prefetched for 2 s of playing, and for 512 KiB at least, until its peer receives a whole window in a quarter
//! of the expected time. Then the whole window is used. Until then the socket keeps at most 128 KiB that are not on
//! their way (`TCP_NOTSENT_LOWAT`). By default the kernel takes 2 MB in one step. These are read in vain when a player
//! leaves, and make each player look fast. A range is read from its first byte on, because a client that does not
//! request the start of a cluster does not need it.
//!
//! Bytes from the disk leave corked (`TCP_CORK`), which makes fewer packets and wakes the peer less often.
//!
//! A test player took 0.63 MB at each of two places of a film of 0.25 MB/s, from a disk slowed down to 16 MiB/s. With
//! the bound on the socket 3.7 MB were read, without it 9.2 MB (one measurement of each, not kept).
//! `docs/runs/2026-11-28-films` has two such players.

use core::ops::Range;
use core::time::Duration;
use std::collections::VecDeque;
use std::rc::Rc;

use outq::{OutQ, State};
use pace::CHUNK_MIN;
use ring::{Device, Ring, Time};

use crate::allowance::Allowance;
use crate::disk::{CopyRequest, Data, Disk, Holding, Owner, ReadDone, ReadRequest};
use crate::failure::Failure;
use crate::file::{BLOCK, File, PAGE, Readahead};
use crate::payload::{FileRange, PLACE_BYTES, Piece};
use crate::policy::{Caching, Policy, Window};
use crate::stream_queue::Wait;
use crate::trail::{Held, Trail};
use crate::transport::Takes;

/// The maximum of files whose reads begin before the first has left: as many as a browser pipelines.
const SOURCES_AHEAD_MAX: usize = 8;
/// The bytes of the first read of a range with the kernel's readahead. The kernel reads the first window of its
/// readahead, at least as long as the first read, in single pages, and each further window in larger folios. The
/// length of the later reads has no effect. So a range that begins with a long read would be read in small folios, and
/// each folio costs CPU time.
const SHORT_BYTES: u64 = 4096;
/// Shorter ranges are read without the kernel's readahead, which would read beyond their ends.
const READAHEAD_BYTES_MIN: u64 = 2 * BLOCK;
/// The minimum for which a transport's window counts. A shorter read uses a buffer, too, and costs the processor and
/// the device hardly less; and a window does not grow unless it is filled. A new window is 14 KiB.
const CARRIED_BYTES_MIN: u64 = BLOCK;

/// The bytes that a stream has ready after a copy, as many as TLS seals in one step. They stay in the second-level
/// cache of a processor until they are sent.
const COPY_BYTES: u64 = 64 * 1024;

/// The time after which a peer that acknowledges nothing no longer keeps other streams waiting for its memory. Three
/// retransmissions of RFC 6298, each twice as late as the one before, fit into it.
pub const HOLD_MAX: Duration = Duration::from_secs(10);

/// The bytes of one read, of which two fit into the window: the largest of 256 KiB, 512 KiB, ... up to `chunk`, and at
/// least 256 KiB.
const fn chunk_within(window: u64, mut chunk: u64) -> u64 {
    while chunk > CHUNK_MIN && chunk > window / 2 {
        chunk /= 2;
    }
    chunk
}

/// Everything around a stream that [`FileSource::fill`] needs.
#[derive(Debug)]
pub struct FillCx<'a> {
    /// The ring that reads.
    pub ring: &'a mut Ring,
    /// The buffers to read into.
    pub disk: &'a mut Disk,
    /// The name of the stream, for reads and for the disk's queue.
    pub owner: Owner,
    /// The pieces that the transport can send. With [`Takes::Memory`] everything is copied or read into buffers.
    pub takes: Takes,
    /// The window of the transport ([`Transport::window`](crate::Transport::window)).
    pub window: u64,
    /// The bytes that this fill may bring into memory, in addition to those that are there or on their way.
    pub allowance: Allowance,
    /// Set if the stream can send nothing and `allowance` leaves it no read.
    pub lacks_allowance: bool,
}

/// Fills the promises of files in one queue.
///
/// In each turn [`fill`](Self::fill), then let the transport drain the queue, then
/// [`settle`](Self::settle). Give it the reads that end ([`handle_read`](Self::handle_read)).
///
/// A lent range has to leave from the queue that it was lent to. So a session that moves payloads into another queue
/// ([`OutQ::take_ready`]) fills with [`Takes::Memory`].
///
/// A payload that was moved keeps its buffer, and [`reclaim`](Self::reclaim) does not reach it. Such a session moves
/// few bytes ahead of its transport, and copies the rest when the transport is blocked. Otherwise peers that receive
/// nothing keep the buffers of the [`Disk`].
#[derive(Debug)]
pub struct FileSource {
    promises: VecDeque<Promise>,
    /// The bytes of the first promise that have been filled for one drain.
    lent: u64,
    /// The bytes of reads in flight.
    reading: u64,
    /// When its last turn at the disk began.
    turn: Time,
    /// Results of reads and copies that the transport has not released, in the order of the stream.
    fills: VecDeque<Fill>,
    /// The bytes of `fills` that have not been released.
    held: u64,
    /// Released bytes before this position have been subtracted from `held`.
    released: u64,
    /// `Some` if at the last settling `held` was not 0, and the transport was blocked or had sent all that is ready.
    holding: Option<Holding>,
    /// True if the transport was blocked at the last settling.
    is_blocked: bool,
    /// When the peer has last acknowledged something, or had nothing to acknowledge, while something is held or read.
    silent_since: Time,
    /// The trail of the last reads if they leave pages that are not to stay, until nothing is promised.
    trail: Option<Rc<Trail>>,
    /// A position in the stream, and when it was sent; from there on the peer's pace is judged.
    mark: Option<(u64, Time)>,
    /// True if the peer receives bytes faster than its [window](Window::paced) expects.
    is_fast: bool,
    /// `Some` once a promise has failed.
    failure: Option<Failure>,
}

/// The part of a promised range of a file for which no read has begun.
#[derive(Clone, Debug)]
struct Promise {
    file: Rc<File>,
    /// Position in the stream of the next byte to fill.
    at: u64,
    /// Position of that byte in the file.
    offset: u64,
    /// End of the range in the file.
    end: u64,
    window: Window,
    keeping: Keeping,
    /// True if the last read was with the kernel's readahead, so the next one is not short.
    reads_ahead: bool,
    reads: Reads,
}

/// The reads of a promised range so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reads {
    /// Nothing of the range had to be read.
    None,
    /// A part of the range had to be read.
    Some,
    /// A part had to be read, and a read is in flight that must be the only one of this range.
    Alone,
}

/// The extent to which reads of a promise have begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Begun {
    /// All of it is being read.
    All,
    /// A read that must be the only one is in flight.
    One,
    /// Reads have begun up to bytes that are resident; this is their number.
    UpToResident(u64),
    /// The window is full, or the disk accepts no more reads now.
    Enough,
}

/// The use of the page cache, as far as it has been decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Keeping {
    Asked(Caching),
    /// Each read drops the pages that it brings.
    Dropped,
    /// Nothing of the range was in the page cache, so reads leave their pages there, to be dropped later.
    Left,
}

const _: () = assert!(size_of::<Promise>() <= size_of::<Piece>() + size_of::<u64>());

/// Bytes that a read or a copy brought and that have not all been released. They occupy a buffer or a pipe, and can be
/// read or copied again.
#[derive(Debug)]
struct Fill {
    file: Rc<File>,
    /// Position of the first byte in the stream.
    at: u64,
    /// Position of the first byte in the file.
    offset: u64,
    len: u64,
    policy: Policy,
    /// True if they were resident, and copied without a read.
    is_copy: bool,
    /// `Some` if the read has left pages in the page cache that must not stay there.
    _trail: Option<Held>,
}

impl Fill {
    /// Returns whether the transport may still send some of its bytes again.
    fn is_in_flight(&self, queue: &OutQ<Piece>) -> bool {
        self.at.max(queue.released()) < queue.sent()
    }
}

impl FileSource {
    /// A source without promises.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            promises: VecDeque::new(),
            lent: 0,
            reading: 0,
            turn: Time::from_nanos(0),
            fills: VecDeque::new(),
            held: 0,
            released: 0,
            holding: None,
            is_blocked: false,
            silent_since: Time::from_nanos(0),
            trail: None,
            mark: None,
            is_fast: false,
            failure: None,
        }
    }

    /// Promises a range of a file, with its policy.
    ///
    /// # Panics
    ///
    /// If the range ends beyond the file's size or before it starts. After a failure, as
    /// [`OutQ::promise`].
    pub fn push(
        &mut self,
        queue: &mut OutQ<Piece>,
        file: &Rc<File>,
        range: Range<u64>,
        policy: Policy,
    ) {
        assert!(range.start <= range.end && range.end <= file.size());
        if range.is_empty() {
            return;
        }
        let at = queue.promise(range.end - range.start);
        self.promises.push_back(Promise::new(file, at, range, policy));
    }

    /// Returns whether reads are in flight: the owner's name must stay valid until the reads have ended.
    #[must_use]
    pub const fn is_reading(&self) -> bool {
        self.reading > 0
    }

    /// The bytes of reads in flight, at most the bytes that the [`Window`] leaves in addition to the
    /// [`held`](Self::held) ones.
    #[must_use]
    pub const fn reading(&self) -> u64 {
        self.reading
    }

    /// The bytes read or copied and not yet released, as of the last settling. [`reclaim`](Self::reclaim) gives back the
    /// memory of those that have not been sent.
    #[must_use]
    pub const fn held(&self) -> u64 {
        self.held
    }

    /// The bytes among the held ones that were resident, and copied without a read.
    #[must_use]
    pub fn copied(&self) -> u64 {
        let held = |fill: &Fill| fill.at + fill.len - fill.at.max(self.released);
        self.fills.iter().filter(|fill| fill.is_copy).map(held).sum()
    }

    /// The device of the next bytes for which no read has begun.
    #[must_use]
    pub fn device(&self) -> Option<Device> {
        self.promises.front().map(|promise| promise.file.device())
    }

    /// Returns whether a part of the next range had to be read, so that the rest is read ahead.
    #[must_use]
    pub fn reads_ahead(&self) -> bool {
        self.promises.front().is_some_and(|promise| promise.reads != Reads::None)
    }

    /// The reason for the failure at [`OutQ::failed_at`].
    #[must_use]
    pub const fn failure(&self) -> Option<Failure> {
        self.failure
    }

    /// Memory that the promises take in this source.
    #[must_use]
    pub fn weight(&self) -> u64 {
        self.promises.len() as u64 * PLACE_BYTES
    }

    /// Begins with a new stream, whose queue is [restarted](OutQ::restart), and keeps the memory.
    ///
    /// # Panics
    ///
    /// If reads are in flight.
    pub fn restart(&mut self) {
        assert!(!self.is_reading(), "reads of the old stream would fill the new one");
        if !self.is_unused() {
            self.promises.clear();
            self.fills.clear();
            (self.holding, self.trail) = (None, None);
        }
        (self.lent, self.held, self.released) = (0, 0, 0);
        self.failure = None;
        self.is_blocked = false;
        (self.mark, self.is_fast) = (None, false);
    }

    /// Fills promises. If the first gap is resident, at most as much of it is lent that `budget` bytes are ready; for
    /// transports that send only from memory, while fewer than `budget` bytes are ready, as much of it is copied that 64 KiB
    /// are. Otherwise reads begin, as far as the window and the [`Allowance`] go. A `budget` of 0 means that nothing can be
    /// sent now: nothing is lent or copied. Look for ready bytes afterwards: nothing reports those that were resident.
    ///
    /// # Panics
    ///
    /// If a lent range has not been [settled](Self::settle).
    #[inline]
    pub fn fill(&mut self, queue: &mut OutQ<Piece>, cx: &mut FillCx<'_>, budget: u64) {
        if !self.is_unused() {
            self.fill_promises(queue, cx, budget);
        }
    }

    /// Returns whether the stream has no range of a file, as most streams.
    #[inline]
    #[must_use]
    pub fn is_unused(&self) -> bool {
        self.promises.is_empty()
            && self.fills.is_empty()
            && self.reading == 0
            && self.holding.is_none()
            && self.trail.is_none()
    }

    fn fill_promises(&mut self, queue: &mut OutQ<Piece>, cx: &mut FillCx<'_>, budget: u64) {
        assert!(self.lent == 0, "settle comes between two fills");
        if self.held + self.reading > 0 {
            self.note_released(queue, cx.ring.now());
        }
        if self.promises.is_empty() {
            return;
        }
        self.judge_pace(queue.sent(), cx.ring);
        let room = budget.saturating_sub(queue.unsent_ready());
        let is_filled = room > 0
            && match cx.takes {
                Takes::Files => self.lend(queue, cx, room),
                Takes::Memory => self.copy(queue, cx),
            };
        if is_filled {
            return;
        }
        if budget > 0 && queue.state() == State::Waiting && self.may_read(queue, cx.window) {
            self.prefetch(queue, cx, true);
        } else if let Some(promise) = self.promises.front()
            && promise.reads != Reads::None
            && self.reading + self.held < promise.limit(self.is_fast, cx.window) / 2
        {
            // A file of which nothing had to be read is not prefetched: most likely it can be lent or copied.
            self.prefetch(queue, cx, false);
        }
    }

    /// Returns whether a stream that has nothing to send may read. If sent bytes fill the window, the transport will
    /// release them, and then the window has room again.
    fn may_read(&self, queue: &OutQ<Piece>, window: u64) -> bool {
        let window = self.promises.front().map_or(0, |promise| promise.limit(self.is_fast, window));
        queue.released() == queue.sent() || self.reading + self.held < window
    }

    /// Judges whether the peer receives bytes faster than the window of the first promise expects.
    fn judge_pace(&mut self, sent: u64, ring: &Ring) {
        let Some(window) = self.promises.front().map(|promise| promise.window) else { return };
        let Some(fast) = window.fast() else { return };
        // Few streams have such a window, and the clock costs more than the rest.
        let now = ring.now();
        let (from, since) = *self.mark.get_or_insert((sent, now));
        if now.since(since) >= fast {
            (self.mark, self.is_fast) = (Some((sent, now)), false);
        } else if sent - from >= window.bytes() {
            (self.mark, self.is_fast) = (Some((sent, now)), true);
        }
    }

    /// Returns whether less than the window is used for the file that is being sent; `None` if no read of a file is
    /// left.
    pub(crate) fn is_paced(&self) -> Option<bool> {
        self.promises.front().map(|promise| promise.window.is_paced() && !self.is_fast)
    }

    /// Lends at most `room` resident bytes at the beginning of the first gap; returns whether there are any.
    fn lend(&mut self, queue: &mut OutQ<Piece>, cx: &mut FillCx<'_>, room: u64) -> bool {
        let Some(promise) = self.promises.front_mut() else { return false };
        if promise.at != queue.ready() {
            return false;
        }
        promise.introduce(cx);
        let left = (promise.end - promise.offset).min(room);
        let (look, now) = (promise.reads == Reads::None, cx.ring.now());
        let len = promise.file.resident(cx.ring, promise.offset, left, now, look);
        if len == 0 {
            return false;
        }
        let file = Rc::clone(&promise.file);
        if promise.policy().caching != Caching::Never {
            file.note_kept();
        }
        queue.fill(promise.at, Piece::File(FileRange { file, offset: promise.offset, len }));
        self.lent = len;
        true
    }

    /// Copies resident bytes at the beginning of the first gap, unless enough bytes are ready or held. Returns whether
    /// nothing is to be read now. The room of the window counts as for reads, and a stream that has nothing to send may
    /// copy without it.
    fn copy(&mut self, queue: &mut OutQ<Piece>, cx: &mut FillCx<'_>) -> bool {
        let unsent = queue.unsent_ready();
        let Some(promise) = self.promises.front_mut() else { return false };
        // Nothing is copied ahead, so it is one window at most. A copy for each acknowledged packet would be a system
        // call and a part of a buffer for few bytes.
        let most = cx.window.clamp(PAGE, COPY_BYTES);
        if promise.at != queue.ready() || unsent > most / 2 || cx.allowance.copies == 0 {
            return false;
        }
        let (used, in_flight) = (self.reading + self.held, queue.sent() - queue.released());
        if in_flight >= cx.window.max(1) && promise.reads == Reads::None {
            // The peer has to acknowledge bytes first. By then the next ones can be copied, too.
            return true;
        }
        let is_all_released = unsent == 0 && in_flight == 0;
        if !is_all_released && used >= promise.limit(self.is_fast, cx.window) {
            return false;
        }
        promise.introduce(cx);
        let (at, offset, policy) = (promise.at, promise.offset, promise.policy());
        let range = offset..promise.end.min(offset + (most - unsent).min(cx.allowance.copies));
        let (file, look) = (Rc::clone(&promise.file), promise.reads == Reads::None);
        let request = CopyRequest {
            owner: cx.owner,
            file: &file,
            range,
            look,
            turn: &mut self.turn,
            is_urgent: unsent == 0,
        };
        let Some(buffer) = cx.disk.copy(cx.ring, request) else { return false };
        let len = buffer.len() as u64;
        promise.advance(len);
        if promise.is_done() {
            self.promises.pop_front();
        }
        if policy.caching != Caching::Never {
            file.note_kept();
        }
        if used == 0 {
            self.silent_since = cx.ring.now();
        }
        let fill = Fill { file, at, offset, len, policy, is_copy: true, _trail: None };
        self.hold(queue, Piece::disk(buffer), fill);
        true
    }

    /// Fills a gap with bytes of a read or a copy, and holds these until they are released.
    fn hold(&mut self, queue: &mut OutQ<Piece>, piece: Piece, fill: Fill) {
        self.held += fill.len;
        queue.fill(fill.at, piece);
        let place = self.fills.partition_point(|other| other.at < fill.at);
        self.fills.insert(place, fill);
    }

    /// Takes account of the bytes that the transport has taken and released since [`fill`](Self::fill). The part of a
    /// lent range that was not taken is retracted. `blocked`: the transport accepts nothing now. Then, or when it has
    /// taken all ready bytes, the memory that the stream holds may have to be [reclaimed](Self::reclaim).
    #[inline]
    pub fn settle(
        &mut self,
        queue: &mut OutQ<Piece>,
        disk: &mut Disk,
        owner: Owner,
        blocked: bool,
    ) {
        if self.is_unused() {
            (self.released, self.is_blocked) = (queue.released(), blocked);
        } else {
            self.settle_promises(queue, disk, owner, blocked);
        }
    }

    fn settle_promises(
        &mut self,
        queue: &mut OutQ<Piece>,
        disk: &mut Disk,
        owner: Owner,
        blocked: bool,
    ) {
        if self.lent > 0 {
            self.take_back(queue, disk);
        }
        self.let_go(queue.released());
        let is_blocked_anew = blocked && !self.is_blocked;
        self.is_blocked = blocked;
        let waits_for_peer = || blocked || queue.unsent_ready() == 0;
        if self.held == 0 || !waits_for_peer() {
            self.holding = None;
        } else if self.holding.is_none() || is_blocked_anew {
            self.holding = Some(disk.hold(owner));
        }
    }

    fn take_back(&mut self, queue: &mut OutQ<Piece>, disk: &mut Disk) {
        let lent = core::mem::take(&mut self.lent);
        let promise = self.promises.front_mut().expect("what is lent is of the first promise");
        let sent = (queue.sent().max(promise.at) - promise.at).min(lent);
        promise.advance(sent);
        if sent > 0 {
            disk.note_hit(sent);
        }
        if sent < lent {
            queue.retract(promise.at);
        }
        if promise.is_done() {
            self.promises.pop_front();
        }
    }

    /// Takes account of a release: results of reads in front of `released` are no longer held.
    fn let_go(&mut self, released: u64) {
        let before = core::mem::replace(&mut self.released, released);
        while let Some(fill) = self.fills.front() {
            let end = fill.at + fill.len;
            self.held -= end.min(released).saturating_sub(fill.at.max(before));
            if end > released {
                return;
            }
            self.fills.pop_front();
        }
        if self.promises.is_empty() && !self.is_reading() {
            self.trail = None;
        }
    }

    /// Begins reads of ranges that are not resident, as far as the window goes (see [`Window`]). `head_missing`:
    /// nothing can be sent, and the first gap begins with a byte that is not resident.
    fn prefetch(&mut self, queue: &OutQ<Piece>, cx: &mut FillCx<'_>, head_missing: bool) {
        let (mut index, mut looked_at) = (0, 0);
        while index < self.promises.len() && looked_at < SOURCES_AHEAD_MAX {
            match self.begin_reads(index, queue, cx, head_missing) {
                // This part will be lent or copied when its turn comes, and the bytes after it may be missing.
                Begun::UpToResident(found) => index = self.pass_over(index, found),
                Begun::All => {
                    self.promises.remove(index);
                    looked_at += 1;
                }
                Begun::One => {
                    index += 1;
                    looked_at += 1;
                }
                Begun::Enough => return,
            }
        }
    }

    /// Begins reads of one promise, as far as the window goes and up to the first resident byte.
    fn begin_reads(
        &mut self,
        index: usize,
        queue: &OutQ<Piece>,
        cx: &mut FillCx<'_>,
        head_missing: bool,
    ) -> Begun {
        let FillCx { owner, takes, window: of_transport, .. } = *cx;
        let now = cx.ring.now();
        let promise = &mut self.promises[index];
        promise.introduce(cx);
        let window = promise.limit(self.is_fast, of_transport);
        while !promise.is_done() {
            if promise.reads == Reads::Alone {
                return Begun::One;
            }
            let left = promise.end - promise.offset;
            // All other bytes wait for the first missing one, so it is read even if the window is full.
            let at_head = head_missing && index == 0 && promise.at == queue.ready();
            let used = self.reading + self.held;
            if !at_head && (used >= window / 2 || promise.at - queue.ready() >= window) {
                return Begun::Enough;
            }
            if !at_head {
                let within = left.min(BLOCK - promise.offset % BLOCK);
                let look = promise.reads == Reads::None;
                let found = promise.file.resident(cx.ring, promise.offset, within, now, look);
                if found > 0 {
                    return Begun::UpToResident(found);
                }
            }
            if cx.allowance.reads < Allowance::READ_MIN {
                cx.lacks_allowance |= at_head;
                return Begun::Enough;
            }
            // The first read is short, for the client waits for its first byte.
            let (wait, chunk) = if promise.reads == Reads::Some {
                (Wait::Next, chunk_within(window, cx.disk.chunk(&promise.file)))
            } else {
                (Wait::First, BLOCK)
            };
            // Reads end at multiples of the chunk, so that they cover whole blocks.
            let most = if window.saturating_sub(used) < chunk { BLOCK } else { chunk };
            let mut want = left.min(most - promise.offset % most);
            let trail = promise.trail(&mut self.trail, cx);
            let readahead = promise.readahead(cx.disk, trail.is_some());
            if readahead == Readahead::Usual && !promise.reads_ahead {
                want = want.min(SHORT_BYTES);
            }
            want = cx.allowance.fit(promise.offset, promise.missing(cx.ring, want, now));
            let request = ReadRequest {
                owner,
                at: promise.at,
                file: &promise.file,
                offset: promise.offset,
                len: want,
                policy: promise.policy(),
                wait,
                readahead,
                takes,
                window: of_transport,
                turn: self.turn,
                trail,
                is_urgent: at_head,
            };
            let Some(begun) = cx.disk.read(cx.ring, request) else {
                if at_head {
                    cx.disk.wait_in_line(cx.ring, owner, &promise.file, wait);
                }
                return Begun::Enough;
            };
            if self.held + self.reading == 0 {
                self.silent_since = now;
            }
            self.reading += begun.len;
            cx.allowance.reads -= begun.len;
            self.turn = begun.turn;
            promise.reads_ahead = readahead == Readahead::Usual;
            promise.reads = if begun.alone { Reads::Alone } else { Reads::Some };
            promise.advance(begun.len);
        }
        Begun::All
    }

    /// Leaves the first `len` bytes of a promise as they are, resident, in a promise of their own or in the one passed
    /// over just before. Returns the index of the rest.
    fn pass_over(&mut self, index: usize, len: u64) -> usize {
        let mut front = self.promises[index].clone();
        front.end = front.offset + len;
        self.promises[index].advance(len);
        let is_last = self.promises[index].is_done();
        let before = index.checked_sub(1).and_then(|before| self.promises.get_mut(before));
        match before {
            Some(before) if before.is_continued_by(&front) => {
                before.end = front.end;
                if is_last {
                    self.promises.remove(index);
                }
                index
            }
            _ if is_last => {
                self.promises[index] = front;
                index + 1
            }
            _ => {
                self.promises.insert(index, front);
                index + 1
            }
        }
    }

    /// Handles a read that has ended. Fill and drain afterwards.
    pub fn handle_read(&mut self, queue: &mut OutQ<Piece>, done: ReadDone) {
        self.reading -= done.len;
        let end = done.at + done.len;
        let is_it = |promise: &&mut Promise| promise.at == end && promise.reads == Reads::Alone;
        if let Some(promise) = self.promises.iter_mut().find(is_it) {
            promise.reads = Reads::Some;
        }
        if queue.failed_at().is_some_and(|failed| failed <= done.at) {
            return;
        }
        let piece = match done.result {
            Ok(Data::Nothing) => {
                let end = done.offset + done.len;
                let range = done.offset..end;
                return self.insert(Promise::again(&done.file, done.at, range, done.policy));
            }
            Ok(data) if data.len() == 0 => return self.fail(queue, done.at, Failure::Truncated),
            Ok(Data::Buffer(buffer)) => Piece::disk(buffer),
            Ok(Data::Pipe(pipe)) => Piece::pipe(pipe),
            Err(error) => return self.fail(queue, done.at, Failure::of_read(&error)),
        };
        let len = outq::Payload::len(&piece);
        if len < done.len {
            // A short read is not the end of the file: at the end a read brings nothing.
            let end = done.offset + done.len;
            let range = done.offset + len..end;
            self.insert(Promise::again(&done.file, done.at + len, range, done.policy));
        }
        let ReadDone { file, at, offset, policy, trail: _trail, .. } = done;
        let fill = Fill { file, at, offset, len, policy, is_copy: false, _trail };
        self.hold(queue, piece, fill);
    }

    /// Gives back the buffers and pipes of unsent bytes, which will be read or copied again. It does so only if the
    /// transport was blocked at the last settling; otherwise the bytes are on their way. A buffer with bytes that were
    /// sent and not released stays as a whole, because only the peer can release them.
    ///
    /// Returns true if such a buffer stays and the peer has not acknowledged anything for [`HOLD_MAX`]. Close the
    /// connection, for others wait for the memory.
    pub fn reclaim(&mut self, queue: &mut OutQ<Piece>, now: Time) -> bool {
        let Some(mut holding) = self.holding.take() else { return false };
        self.note_released(queue, now);
        let sent = queue.sent();
        let kept = if self.is_blocked {
            let stays = |fill: &Fill| fill.at + fill.len <= sent || fill.is_in_flight(queue);
            self.fills.partition_point(stays)
        } else {
            self.fills.len()
        };
        for Fill { file, at, offset, len, policy, is_copy, .. } in self.fills.split_off(kept) {
            let (start, end) = (at.max(sent), at + len);
            queue.retract(start);
            self.held -= end - start;
            let range = offset + (start - at)..offset + len;
            let promise = if is_copy { Promise::new } else { Promise::again };
            self.insert(promise(&file, start, range, policy));
        }
        if self.fills.is_empty() {
            return false;
        }
        let is_named_at = self.silent_since + HOLD_MAX;
        holding.look_again(is_named_at);
        self.holding = Some(holding);
        is_named_at <= now
    }

    /// Takes account of the bytes that the peer has acknowledged.
    fn note_released(&mut self, queue: &OutQ<Piece>, now: Time) {
        if queue.released() > self.released || queue.released() == queue.sent() {
            self.silent_since = now;
        }
        self.let_go(queue.released());
    }

    fn insert(&mut self, promise: Promise) {
        let place = self.promises.partition_point(|other| other.at < promise.at);
        self.promises.insert(place, promise);
    }

    fn fail(&mut self, queue: &mut OutQ<Piece>, at: u64, failure: Failure) {
        if queue.failed_at().is_none_or(|failed| at < failed) {
            queue.fail(at);
        }
        self.drop_behind_failure(queue, failure);
    }

    /// Aborts the queue: see [`OutQ::abort`].
    pub fn abort(&mut self, queue: &mut OutQ<Piece>, failure: Failure) {
        queue.abort();
        self.drop_behind_failure(queue, failure);
    }

    /// Drops everything after the failure. The bytes in front of it are still sent.
    fn drop_behind_failure(&mut self, queue: &OutQ<Piece>, failure: Failure) {
        self.failure.get_or_insert(failure);
        let Some(at) = queue.failed_at() else { return };
        for fill in self.fills.drain(self.fills.partition_point(|fill| fill.at < at)..) {
            self.held -= fill.len;
        }
        self.promises.retain(|promise| promise.at < at);
    }
}

impl Default for FileSource {
    fn default() -> Self {
        Self::new()
    }
}

impl Promise {
    fn new(file: &Rc<File>, at: u64, range: Range<u64>, policy: Policy) -> Self {
        let Policy { caching, window } = policy;
        let (file, offset, end) = (Rc::clone(file), range.start, range.end);
        let keeping = Keeping::Asked(caching);
        Self { file, at, offset, end, window, keeping, reads_ahead: false, reads: Reads::None }
    }

    /// A range that was read before and has to be read again.
    fn again(file: &Rc<File>, at: u64, range: Range<u64>, policy: Policy) -> Self {
        Self { reads: Reads::Some, reads_ahead: true, ..Self::new(file, at, range, policy) }
    }

    /// Runs before each use of the file, and decides on its caching if that is still open.
    fn introduce(&mut self, cx: &mut FillCx<'_>) {
        cx.disk.introduce(cx.ring, &self.file);
        if self.keeping == Keeping::Asked(Caching::Popular) {
            let is_popular = self.file.request(&(self.offset..self.end));
            self.keeping =
                Keeping::Asked(if is_popular { Caching::Always } else { Caching::Never });
        }
    }

    const fn policy(&self) -> Policy {
        let caching = match self.keeping {
            Keeping::Asked(caching) => caching,
            Keeping::Dropped | Keeping::Left => Caching::Never,
        };
        Policy { caching, window: self.window }
    }

    /// A range that was short from its first read on does without the kernel's readahead.
    fn readahead(&self, disk: &Disk, leaves: bool) -> Readahead {
        let is_long = self.reads_ahead || self.end - self.offset >= READAHEAD_BYTES_MIN;
        let may_stay = self.policy().caching != Caching::Never || leaves;
        if is_long && may_stay && disk.may_read_ahead(&self.file) {
            Readahead::Usual
        } else {
            Readahead::Off
        }
    }

    /// Returns the trail of the next read if the read may leave its pages in the page cache for a while although they
    /// must not stay there. `None` if others have brought pages, because these could not be told apart. `last`: the
    /// trail of the reads before it.
    fn trail(&mut self, last: &mut Option<Rc<Trail>>, cx: &mut FillCx<'_>) -> Option<Rc<Trail>> {
        let can_leave = cx.disk.may_leave(&self.file, cx.takes);
        if !can_leave || self.policy().caching != Caching::Never || self.keeping == Keeping::Dropped
        {
            return None;
        }
        let rest = self.offset..self.end;
        let reach = Trail::reach(&self.file, &rest);
        if let Some(trail) = last.as_ref().filter(|last| last.covers(&self.file, self.offset)) {
            let is_left = !trail.is_wanted() && trail.reaches(cx.ring, &rest);
            self.keeping = if is_left { Keeping::Left } else { Keeping::Dropped };
        } else if self.keeping == Keeping::Left || self.file.is_absent(cx.ring, self.offset..reach)
        {
            self.keeping = Keeping::Left;
            *last = Some(cx.disk.begin_trail(cx.ring, &self.file, self.offset, reach));
        } else {
            self.keeping = Keeping::Dropped;
        }
        last.clone().filter(|_| self.keeping == Keeping::Left)
    }

    fn is_continued_by(&self, next: &Self) -> bool {
        let is_next = self.end == next.offset && self.at + (self.end - self.offset) == next.at;
        is_next && Rc::ptr_eq(&self.file, &next.file) && self.reads != Reads::Alone
    }

    /// The limit of prefetching for a peer: `window` bytes that may be on their way, and as many that are read
    /// meanwhile.
    fn limit(&self, is_fast: bool, window: u64) -> u64 {
        let limit = if is_fast { self.window.bytes() } else { self.window.paced_bytes() };
        limit.min(window.max(CARRIED_BYTES_MIN).saturating_mul(2))
    }

    /// The bytes of the next read, at most `want`, up to the first block that is known to be resident; the first block
    /// is missing.
    fn missing(&self, ring: &Ring, want: u64, now: Time) -> u64 {
        let end = self.offset + want;
        let mut at = (self.offset / BLOCK + 1) * BLOCK;
        while at < end && self.file.resident(ring, at, BLOCK.min(end - at), now, false) == 0 {
            at += BLOCK;
        }
        at.min(end) - self.offset
    }

    const fn advance(&mut self, count: u64) {
        self.at += count;
        self.offset += count;
    }

    const fn is_done(&self) -> bool {
        self.offset == self.end
    }
}
