//! The source that fills promises of files. The source never sends.
//!
//! A resident range is *lent*: its promise is filled for one drain. After the drain, the part that the transport has
//! not sent is retracted. So a lent range never outlives the worker turn in which it was lent. Other ranges are read
//! ahead, within the limit of the [`Window`].
//!
//! For a transport that sends only from memory, the worker's thread *copies* a resident range into a buffer. The copy
//! (`preadv2(2)` with `RWF_NOWAIT`) ends at the first byte that is not resident, so no exact check comes before it. On
//! some file systems only `mincore(2)` knows which pages are resident. On these file systems the exact check comes
//! first (`File::copyable`). At most 64 KiB are ready after a copy: these bytes stay in the processor's caches until
//! they are sent or encrypted. So a peer that receives nothing occupies only a small part of a buffer. A copy is held
//! until it is released, like the result of a read. If a copy is [reclaimed](FileSource::reclaim), the range is copied
//! again.
//!
//! For a film, prefetching is limited to the bytes for 2 s of playing, or to 512 KiB if that is more. The limit is
//! rounded up to the policy's [`Window`] divided by a power of two. The limit is lifted while the peer receives whole
//! windows in at most a quarter of the time that they play ([`Window::paced`]). While the limit holds, the socket keeps
//! at most 128 KiB that are not on their way to the peer (`TCP_NOTSENT_LOWAT`). Without this bound on the socket, the
//! kernel by default accepts 2 MB at once. If the player left, these 2 MB would have been read in vain. The 2 MB would
//! also make each player look fast.
//!
//! A read begins at the first requested byte of a film, and not at the start of the cluster (a block of frames, in
//! Matroska) that contains this byte. A client that needs the start of a cluster requests it.
//!
//! While a long response comes from the disk, the socket is corked (`TCP_CORK`). A corked socket sends fewer packets,
//! and wakes the peer less often.
//!
//! The bound on the socket was measured with a film that has 0.25 MB for each second of playing, on a disk slowed down
//! to 16 MiB/s. A test player received 0.63 MB from one position of the film, and 0.63 MB from another position. With
//! the bound, 3.7 MB were read from the disk in all; without the bound, 9.2 MB (one measurement of each, not kept). The
//! run `docs/runs/2026-11-28-films` has two such players.

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

/// The maximum of promised ranges for which one [`FileSource::fill`] begins reads. Usually each range is the file of
/// one response, and browsers pipeline about as many requests.
const SOURCES_AHEAD_MAX: usize = 8;
/// The bytes of the first read of a range if the kernel reads ahead. The kernel reads the first window of the readahead
/// in single pages, and each further window in larger folios. The first window is at least as long as the first read.
/// So a long first read would bring many small folios, and each folio costs CPU time. The lengths of later reads do not
/// change the folios.
const SHORT_BYTES: u64 = 4096;
/// A range of fewer bytes is read without the kernel's readahead, because the kernel would read beyond the end of the
/// range.
const READAHEAD_BYTES_MIN: u64 = 2 * BLOCK;
/// When the limit of prefetching is computed, a transport's window of fewer bytes is raised to this value. The window
/// of a new connection is 14 KiB. Such a window would allow only short reads, and a short read costs the processor and
/// the device hardly less than a read of this length. A short read occupies a buffer, too. Besides, the transport's
/// window grows only if the stream has enough bytes to fill it.
const CARRIED_BYTES_MIN: u64 = BLOCK;

/// The maximum of bytes that a stream has ready after a copy. TLS encrypts at most as many bytes in one step. Such a
/// number of bytes stays in the second-level cache of a processor until it is sent.
const COPY_BYTES: u64 = 64 * 1024;

/// If a peer acknowledges nothing for this time while other streams wait for memory, its connection is closed. If the
/// first retransmission of RFC 6298 comes after 1 s, three retransmissions fit into this time: each pause is twice as
/// long as the pause before it.
pub const HOLD_MAX: Duration = Duration::from_secs(10);

/// The bytes of one read: `chunk`, halved until two such reads fit into `window` bytes, but not below 256 KiB.
const fn chunk_within(window: u64, mut chunk: u64) -> u64 {
    while chunk > CHUNK_MIN && chunk > window / 2 {
        chunk /= 2;
    }
    chunk
}

/// The things outside a stream that [`FileSource::fill`] needs.
#[derive(Debug)]
pub struct FillCx<'a> {
    /// The ring that reads.
    pub ring: &'a mut Ring,
    /// The disk of the worker: buffers, pipes, and the queue of waiting streams.
    pub disk: &'a mut Disk,
    /// The name of the stream, for its reads and for the disk's queue.
    pub owner: Owner,
    /// The pieces that the transport can send. With [`Takes::Memory`] all bytes are copied or read into buffers.
    pub takes: Takes,
    /// The window of the transport in bytes ([`Transport::window`](crate::Transport::window)).
    pub window: u64,
    /// The bytes that this fill may bring into memory. Bytes in memory and bytes of reads in flight are not included.
    pub allowance: Allowance,
    /// Becomes true if the stream can send nothing, and `allowance` is too small for the next read.
    pub lacks_allowance: bool,
}

/// Fills the promises of files in one queue.
///
/// Call [`fill`](Self::fill), let the transport drain the queue, and call [`settle`](Self::settle). Pass each read that
/// has ended to [`handle_read`](Self::handle_read).
///
/// A lent range can be sent only from the queue to which it was lent. So a session that moves payloads into another
/// queue ([`OutQ::take_ready`]) fills with [`Takes::Memory`].
///
/// A payload in another queue keeps its buffer, and [`reclaim`](Self::reclaim) cannot give this buffer back. So such a
/// session moves bytes only a little ahead of the transport. If the transport is blocked, the session copies the moved
/// bytes that are unsent into memory of its own. Otherwise peers that receive nothing would keep the buffers of the
/// [`Disk`].
#[derive(Debug)]
pub struct FileSource {
    promises: VecDeque<Promise>,
    /// The bytes of the first promise that have been filled for one drain.
    lent: u64,
    /// The bytes of reads in flight.
    reading: u64,
    /// The time at which the stream's last turn to read began. After 30 ms of this turn other streams read first.
    turn: Time,
    /// The results of reads and copies that the transport has not wholly released, in the order of the stream.
    fills: VecDeque<Fill>,
    /// The bytes of `fills` that were not released.
    held: u64,
    /// The value of `queue.released()` when released bytes were last subtracted from `held`.
    released: u64,
    /// `Some` if at the last settling `held` was not 0, and the transport was blocked or had sent all ready bytes. Then
    /// the disk may ask for the memory.
    holding: Option<Holding>,
    /// True if the transport was blocked at the last settling.
    is_blocked: bool,
    /// The last time at which the peer acknowledged a byte, or had no byte to acknowledge. The time is updated only if
    /// bytes are held or being read.
    silent_since: Time,
    /// The [`Trail`] of the last reads that left pages to be discarded later. The trail is kept until no byte of a file
    /// is promised, being read or held.
    trail: Option<Rc<Trail>>,
    /// A position in the stream, and the time at which the position was sent. The speed of the peer is measured from
    /// this position and this time on.
    mark: Option<(u64, Time)>,
    /// True if the peer receives bytes faster than expected by a [paced window](Window::paced).
    is_fast: bool,
    /// `Some` once a promise has failed.
    failure: Option<Failure>,
}

/// The part of a promised range of a file for which no read has begun.
#[derive(Clone, Debug)]
struct Promise {
    file: Rc<File>,
    /// The position in the stream of the next byte to fill.
    at: u64,
    /// The position in the file of the next byte to fill.
    offset: u64,
    /// The end of the range in the file.
    end: u64,
    window: Window,
    keeping: Keeping,
    /// True if the last read was with the kernel's readahead. Then the next read is not limited to [`SHORT_BYTES`].
    reads_ahead: bool,
    reads: Reads,
}

/// The reads of a promised range so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reads {
    /// No part of the range had to be read from the disk.
    None,
    /// A part of the range had to be read from the disk.
    Some,
    /// A part had to be read from the disk. A read is in flight, and no other read of this range may begin before it
    /// ends.
    Alone,
}

/// The extent to which reads of a promise have begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Begun {
    /// All bytes of the promise are being read.
    All,
    /// A read is in flight, and no other read of this range may begin before it ends.
    One,
    /// All bytes before a resident part are being read. The value is the length of the resident part in bytes.
    UpToResident(u64),
    /// No more reads may begin now: the window is full, the allowance is used up, or the disk accepts no read.
    Enough,
}

/// The use of the page cache, as far as it has been decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Keeping {
    /// The caching that the caller asked for in the policy. `Popular` is replaced at the first use of the range.
    Asked(Caching),
    /// Each read drops the pages that it brings.
    Dropped,
    /// No page of the range was in the page cache. So reads leave their pages there, and the pages are discarded after
    /// they were sent.
    Left,
}

const _: () = assert!(size_of::<Promise>() <= size_of::<Piece>() + size_of::<u64>());

/// The result of a read or a copy, until all of its bytes are released. The bytes occupy a buffer or a pipe, and can be
/// read or copied again.
#[derive(Debug)]
struct Fill {
    file: Rc<File>,
    /// The position of the first byte in the stream.
    at: u64,
    /// The position of the first byte in the file.
    offset: u64,
    len: u64,
    policy: Policy,
    /// True if the bytes were resident, and were copied without a read.
    is_copy: bool,
    /// `Some` if the read has left pages in the page cache that must not stay there.
    _trail: Option<Held>,
}

impl Fill {
    /// Returns whether some of these bytes were sent but not released. The transport may have to send such bytes again.
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
    /// If the range ends beyond the file's size or before it starts. Also after a failure or an [`abort`](Self::abort),
    /// because [`OutQ::promise`] panics then.
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

    /// Returns whether reads are in flight. The results of these reads are for the [`Owner`] of this stream, so the
    /// owner must stay the same until the reads have ended.
    #[must_use]
    pub const fn is_reading(&self) -> bool {
        self.reading > 0
    }

    /// The bytes of reads in flight. Together with the [`held`](Self::held) bytes they fill at most the [`Window`],
    /// plus one block of 256 KiB. The reason is that a stream that can send nothing reads one block even if the window
    /// is full.
    #[must_use]
    pub const fn reading(&self) -> u64 {
        self.reading
    }

    /// The bytes that were read or copied, and were not released at the last settling. [`reclaim`](Self::reclaim) gives
    /// back the memory of the unsent bytes among them.
    #[must_use]
    pub const fn held(&self) -> u64 {
        self.held
    }

    /// The number of [held](Self::held) bytes that were resident, and were copied without a read.
    #[must_use]
    pub fn copied(&self) -> u64 {
        let held = |fill: &Fill| fill.at + fill.len - fill.at.max(self.released);
        self.fills.iter().filter(|fill| fill.is_copy).map(held).sum()
    }

    /// The device of the next bytes for which no read has begun; `None` if there are no such bytes.
    #[must_use]
    pub fn device(&self) -> Option<Device> {
        self.promises.front().map(|promise| promise.file.device())
    }

    /// Returns whether a part of the next range had to be read from the disk. The remaining part of such a range is
    /// read ahead.
    #[must_use]
    pub fn reads_ahead(&self) -> bool {
        self.promises.front().is_some_and(|promise| promise.reads != Reads::None)
    }

    /// The reason for the failure; `None` if no promise has failed. [`OutQ::failed_at`] is its position.
    #[must_use]
    pub const fn failure(&self) -> Option<Failure> {
        self.failure
    }

    /// The memory that the promises take in this source, in bytes.
    #[must_use]
    pub fn weight(&self) -> u64 {
        self.promises.len() as u64 * PLACE_BYTES
    }

    /// Removes the state of the old stream, so that a new stream can begin, and keeps the allocated memory. The caller
    /// also [restarts](OutQ::restart) the queue.
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

    /// Fills promises from the page cache, or begins reads. `budget` is the number of bytes that can be sent now.
    ///
    /// - If the first gap begins with resident bytes, and the transport sends files, these bytes are lent. Afterwards
    ///   at most `budget` bytes are ready.
    /// - If the first gap begins with resident bytes, and the transport sends only from memory, these bytes are copied
    ///   within the [`Allowance`]. Afterwards at most one window of the transport is ready. Here a window of less than
    ///   4 KiB counts as 4 KiB, and a window of more than 64 KiB counts as 64 KiB. No copy begins if more than half of
    ///   this window is ready, or if at least `budget` bytes are ready.
    /// - In all other cases reads begin, within the window of the file and the [`Allowance`].
    ///
    /// A `budget` of 0 means that nothing can be sent now, so nothing is lent or copied. Drain the queue after each
    /// fill: no event reports bytes that were lent or copied.
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

    /// Returns whether no range of a file is promised, being read or held. Most streams have no ranges of files: their
    /// responses are bytes in memory.
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
            // If nothing of a range had to be read, it is not prefetched: most likely all of it is resident.
            self.prefetch(queue, cx, false);
        }
    }

    /// Returns whether a stream that has nothing to send may begin a read. If sent bytes fill the window, the stream
    /// waits: the transport will release these bytes.
    fn may_read(&self, queue: &OutQ<Piece>, window: u64) -> bool {
        let window = self.promises.front().map_or(0, |promise| promise.limit(self.is_fast, window));
        queue.released() == queue.sent() || self.reading + self.held < window
    }

    /// Judges whether the peer receives bytes faster than the window of the first promise expects.
    fn judge_pace(&mut self, sent: u64, ring: &Ring) {
        let Some(window) = self.promises.front().map(|promise| promise.window) else { return };
        let Some(fast) = window.fast() else { return };
        // Only streams with a paced window read the clock, because that costs more than this whole function.
        let now = ring.now();
        let (from, since) = *self.mark.get_or_insert((sent, now));
        if now.since(since) >= fast {
            (self.mark, self.is_fast) = (Some((sent, now)), false);
        } else if sent - from >= window.bytes() {
            (self.mark, self.is_fast) = (Some((sent, now)), true);
        }
    }

    /// Returns whether the smaller limit of a [paced window](Window::paced) applies to the file that is being sent: the
    /// window is paced, and the peer is not fast. `None` if no bytes of a file have to be lent, copied or read any
    /// more.
    pub(crate) fn is_paced(&self) -> Option<bool> {
        self.promises.front().map(|promise| promise.window.is_paced() && !self.is_fast)
    }

    /// Lends at most `room` resident bytes at the beginning of the first gap. Returns whether any bytes were lent.
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

    /// Copies resident bytes at the beginning of the first gap, unless enough bytes are ready or held. Returns true if
    /// no read should begin now: bytes were copied, or the peer has to acknowledge bytes first. Like a read, a copy
    /// begins only if the bytes that are held or being read are below the limit of prefetching. Exception: the limit
    /// does not matter if no byte is ready, and all sent bytes are released.
    fn copy(&mut self, queue: &mut OutQ<Piece>, cx: &mut FillCx<'_>) -> bool {
        let unsent = queue.unsent_ready();
        let Some(promise) = self.promises.front_mut() else { return false };
        // Resident bytes need no prefetching, so at most one window is ready after a copy. A copy waits until half of
        // the window is free: a copy for each acknowledged packet would need a system call and a part of a buffer for
        // few bytes.
        let most = cx.window.clamp(PAGE, COPY_BYTES);
        if promise.at != queue.ready() || unsent > most / 2 || cx.allowance.copies == 0 {
            return false;
        }
        let (used, in_flight) = (self.reading + self.held, queue.sent() - queue.released());
        if in_flight >= cx.window.max(1) && promise.reads == Reads::None {
            // The peer has to acknowledge bytes first. No read begins, because most likely the next bytes are resident.
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

    /// Fills a gap with the result of a read or a copy, and records the result until it is released.
    fn hold(&mut self, queue: &mut OutQ<Piece>, piece: Piece, fill: Fill) {
        self.held += fill.len;
        queue.fill(fill.at, piece);
        let place = self.fills.partition_point(|other| other.at < fill.at);
        self.fills.insert(place, fill);
    }

    /// Takes account of the bytes that the transport has sent and released since [`fill`](Self::fill). The unsent part
    /// of a lent range is retracted. `blocked` is true if the transport accepts no bytes now. If the transport is
    /// blocked, or has sent all ready bytes, the disk may ask for the memory that the stream holds: see
    /// [`reclaim`](Self::reclaim).
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

    /// Takes account of a release: results of reads and copies in front of `released` are no longer held.
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

    /// Begins reads of ranges that are not resident, within the limit of the [`Window`]. `head_missing` is true if
    /// nothing can be sent, and the first gap begins with a byte that is not resident.
    fn prefetch(&mut self, queue: &OutQ<Piece>, cx: &mut FillCx<'_>, head_missing: bool) {
        let (mut index, mut looked_at) = (0, 0);
        while index < self.promises.len() && looked_at < SOURCES_AHEAD_MAX {
            match self.begin_reads(index, queue, cx, head_missing) {
                // The resident part will be lent or copied when it is next. The bytes after it may be missing.
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

    /// Begins reads of one promise, within the limit of the window, and up to the first resident byte.
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
            // All other bytes wait for the first missing byte, so this byte is read even if the window is full.
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
            // The first read has one block at most, because the client waits for its first byte.
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

    /// Splits the first `len` bytes, which are resident, from a promise, so that these bytes are not read. If they
    /// continue the range of the previous promise, they are added to that promise. Otherwise they become a new promise.
    /// Returns the index of the next promise after these bytes.
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

    /// Handles a read that has ended. Call [`fill`](Self::fill) and drain the queue afterwards.
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

    /// Gives back the buffers and pipes of unsent bytes, and the bytes will be read or copied again. If the transport
    /// was not blocked at the last settling, nothing is given back, because the transport is about to send the bytes. A
    /// buffer is kept if some of its bytes were sent and not released, because only the peer can release them.
    ///
    /// Returns true if a buffer or a pipe is kept, and the peer has acknowledged nothing for [`HOLD_MAX`]. In this case
    /// close the connection, because other streams wait for the memory.
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

    /// Takes account of the bytes that the transport has released, and of the time of this acknowledgement.
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

    /// Aborts the queue, for the reason `failure`: see [`OutQ::abort`].
    pub fn abort(&mut self, queue: &mut OutQ<Piece>, failure: Failure) {
        queue.abort();
        self.drop_behind_failure(queue, failure);
    }

    /// Drops promises and results after the position of the failure. Ready bytes in front of this position are still
    /// sent.
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

    /// A range that has to be read again: its read brought nothing, or its bytes were given back.
    fn again(file: &Rc<File>, at: u64, range: Range<u64>, policy: Policy) -> Self {
        Self { reads: Reads::Some, reads_ahead: true, ..Self::new(file, at, range, policy) }
    }

    /// Gives the file the knowledge that residency checks need: see `Disk::introduce`. At the first use, decides
    /// whether the range is popular. Call this before each use of the file.
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

    /// The readahead for the next read. A short range is read without readahead. A range that was long at the first
    /// read keeps the readahead to its end. `leaves` is true if the pages are discarded after they were sent.
    fn readahead(&self, disk: &Disk, leaves: bool) -> Readahead {
        let is_long = self.reads_ahead || self.end - self.offset >= READAHEAD_BYTES_MIN;
        let may_stay = self.policy().caching != Caching::Never || leaves;
        if is_long && may_stay && disk.may_read_ahead(&self.file) {
            Readahead::Usual
        } else {
            Readahead::Off
        }
    }

    /// Returns the [`Trail`] of the next read if its pages are to be discarded after they were sent. Returns `None` if
    /// the pages are to stay, or if other readers have brought pages of the range: a discard would drop these pages,
    /// too. `last` is the trail of the reads before this one.
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

    /// The limit of prefetching in bytes. It is at most twice the transport's `window`: one window is on its way to the
    /// peer while the next one is read. A `window` below `CARRIED_BYTES_MIN` counts as that.
    fn limit(&self, is_fast: bool, window: u64) -> u64 {
        let limit = if is_fast { self.window.bytes() } else { self.window.paced_bytes() };
        limit.min(window.max(CARRIED_BYTES_MIN).saturating_mul(2))
    }

    /// The bytes of the next read: at most `want`, and not beyond the next block that is known to be resident. The
    /// block in which the read begins is not checked, because the caller knows that it is missing.
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
