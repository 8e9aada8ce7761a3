//! What goes out through one socket.

use core::cell::RefCell;
use core::ops::Range;
use core::time::Duration;
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::rc::Rc;

use outq::{OutQ, Payload, State, Weight};
use ring::{Buffer, Fault, Fd, Pipe, Ring, Time};

use crate::disk::{Data, Disk, Holding, ReadDone};
use crate::file::{BLOCK, File, Readahead};
use crate::shared::Shared;

/// Bytes that one pump moves at most, so that a fast download does not starve the others: a file of
/// 1 MiB and its head, some 100 us of a core. A file that leaves in several turns costs more: when
/// all others have had theirs, what belongs to it has left the processor's caches.
const TURN_BYTES: u64 = 1024 * 1024 + 64 * 1024;
/// What is longer than this goes out in whole packets only.
const CORK_BYTES_MIN: u64 = 512 * 1024;
/// Pieces of memory in one `sendmsg(2)`.
const PIECES_MAX: usize = 16;
/// Files behind the first for which reads begin before it has left: what a browser pipelines.
const SOURCES_AHEAD_MAX: usize = 8;
/// Bytes asked of a disk at once, at first and on a slow disk.
const CHUNK_BYTES_MIN: u64 = BLOCK;
/// The same on a fast one: each costs a hand-over to another thread, some 10 us.
const CHUNK_BYTES_MAX: u64 = 4 * BLOCK;
/// A read that took less was of a fast disk, one that took more of a slow one.
const CHUNK_FAST: Duration = Duration::from_millis(10);
const CHUNK_SLOW: Duration = Duration::from_millis(50);
/// Among many reads none is quick. The disk is fast all the same if its share of time for a block was
/// less: 512 MiB/s, so that what is read ahead of some is soon out of the way of others.
const BLOCK_FAST: Duration = Duration::from_micros(500);

/// How far a stream reads ahead of what its socket has taken, bytes: read, unsent data and reads in
/// flight together never exceed it. A read begins while less than half of it is used, and brings at
/// most half, so that one is sent while the next is read.
///
/// What nothing can be sent without is read in any case, 256 KiB of it at once if the window has no
/// more room; so a stream holds at most its window and 256 KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window(pub u64);

impl Default for Window {
    /// Two of the largest chunks, 2 MiB: one that is sent while the other is read.
    fn default() -> Self {
        Self(2 * CHUNK_BYTES_MAX)
    }
}

impl Window {
    /// Bytes of a read that fits twice: the largest of 256 KiB, 512 KiB, ... up to `chunk`, and the
    /// least of them in any case.
    const fn chunk(self, chunk: u64) -> u64 {
        let mut chunk = chunk;
        while chunk > CHUNK_BYTES_MIN && chunk > self.0 / 2 {
            chunk /= 2;
        }
        chunk
    }
}

/// A piece of memory or file in a stream.
#[derive(Debug)]
pub enum Piece {
    /// Bytes of the program.
    Static(&'static [u8]),
    /// Bytes made for this stream.
    Bytes(Vec<u8>),
    /// Part of a buffer shared with other streams.
    Shared(Shared, Range<usize>),
    /// Bytes read from a file.
    Disk(Buffer),
    /// Pages of a file in a pipe.
    Pipe(Pages),
    /// So many bytes of a file that `sendfile(2)` has taken.
    File(u64),
}

/// Pages of a file, not all of which may still be in the pipe.
#[derive(Debug)]
pub struct Pages {
    pipe: RefCell<Pipe>,
    len: u64,
}

/// Bytes that a read brought and that have not all been sent: they occupy a buffer or a pipe, and
/// can be read again.
#[derive(Debug)]
struct Fill {
    file: Rc<File>,
    /// Where in the stream the first byte is.
    at: u64,
    /// Where in the file it is.
    offset: u64,
    len: u64,
}

impl Piece {
    /// The bytes of a piece of memory.
    ///
    /// # Panics
    ///
    /// For pieces of a file, which are in no memory of this program.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Static(bytes) => bytes,
            Self::Bytes(bytes) => bytes,
            Self::Shared(all, range) => &all[range.clone()],
            Self::Disk(buf) => buf,
            Self::Pipe(_) | Self::File(_) => unreachable!("not in this program's memory"),
        }
    }
}

impl Payload for Piece {
    fn len(&self) -> u64 {
        match self {
            Self::File(len) => *len,
            Self::Pipe(pages) => pages.len,
            memory => memory.bytes().len() as u64,
        }
    }

    /// The memory of what the disk brings is bounded by its [`Disk`], and weighs nothing here.
    fn weight(&self) -> Weight {
        let (own, shared) = match self {
            Self::Bytes(bytes) => (bytes.capacity(), 0),
            Self::Shared(all, _) => (0, all.len()),
            Self::Static(_) | Self::Disk(_) | Self::Pipe(_) | Self::File(_) => (0, 0),
        };
        Weight { own: own as u64 + PLACE_BYTES, shared: shared as u64 }
    }

    /// What comes from a disk has no second owner: it leaves from the queue that it was read for.
    fn split_to(&mut self, n: u64) -> Self {
        match self {
            Self::Static(bytes) => Self::Static(bytes.split_to(n)),
            Self::Bytes(bytes) => Self::Bytes(bytes.split_to(n)),
            Self::Shared(all, range) => {
                let middle = range.start + index(n);
                let front = core::mem::replace(range, middle..range.end).start..middle;
                Self::Shared(all.clone(), front)
            }
            Self::Disk(_) | Self::Pipe(_) | Self::File(_) => unreachable!("not cut"),
        }
    }
}

/// What a piece, or a range of a file, takes beside its bytes: its place in a queue that may have
/// doubled just now, and the position.
const PLACE_BYTES: u64 = 2 * (size_of::<Piece>() + size_of::<u64>()) as u64;
const _: () = assert!(size_of::<Source>() <= size_of::<Piece>() + size_of::<u64>());

/// A range of a file that has been promised, and of which nothing beyond `at` has been asked for.
#[derive(Debug)]
struct Source {
    file: Rc<File>,
    /// Where in the stream the next byte to ask for goes.
    at: u64,
    /// Where in the file it is.
    offset: u64,
    /// Where in the file the range ends.
    end: u64,
    /// Whether some of it had to be read.
    from_disk: bool,
    /// Whether a read is in flight that wants to be the only one of this range.
    occupied: bool,
}

/// How a pump ended.
#[derive(Debug, PartialEq, Eq)]
pub enum Progress {
    /// Everything is with the kernel.
    Drained,
    /// The socket has just become full: ask for [`Op::Writable`](ring::Op::Writable), once.
    Blocked,
    /// Reads are in flight, the stream stands in line for a buffer, or the socket is still full:
    /// pump again after [`Stream::handle_read`], [`Disk::next_waiting`] or
    /// [`Stream::handle_writable`].
    Waiting,
    /// The turn is over, and there is more to do: pump again after the others.
    More,
    /// What was promised cannot be sent: close the connection. Nothing was sent in its place.
    Failed(Failure),
}

/// Why a stream cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// A file has become shorter than what was promised of it.
    Truncated,
    /// A file cannot be read: the errno.
    Unreadable(i32),
    /// There was no memory to send with: the errno.
    NoMemory(i32),
    /// A system call failed in a way that it should not: the errno.
    Unexpected(i32),
    /// The peer has gone.
    Gone,
}

/// Everything promised to one peer, in order.
///
/// Call [`push`](Self::push) and [`push_file`](Self::push_file), then [`pump`](Self::pump) until
/// it has nothing to do; give it the reads that end.
#[derive(Debug)]
pub struct Stream {
    queue: OutQ<Piece>,
    sources: VecDeque<Source>,
    /// Bytes of reads in flight.
    reading: u64,
    /// What reads have brought and the socket has not taken, in the order of the stream.
    fills: VecDeque<Fill>,
    /// Bytes of `fills` that have not been sent.
    held: u64,
    /// Some exactly when the socket is full and `held` is not 0, since the last pump.
    holding: Option<Holding>,
    /// Bytes to ask a disk for at once.
    chunk: u64,
    /// Whether the socket is full, and has not said yet that it no longer is.
    blocked: bool,
    /// Whether the socket has been told to send whole packets only.
    corked: bool,
    failure: Option<Failure>,
}

impl Default for Stream {
    fn default() -> Self {
        Self::new()
    }
}

impl Stream {
    /// Nothing is promised yet.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            queue: OutQ::new(),
            sources: VecDeque::new(),
            reading: 0,
            fills: VecDeque::new(),
            held: 0,
            holding: None,
            chunk: CHUNK_BYTES_MIN,
            blocked: false,
            corked: false,
            failure: None,
        }
    }

    /// Promise bytes that are here. After a failure nothing more can be promised, and this does
    /// nothing.
    pub fn push(&mut self, piece: Piece) {
        if self.failure.is_none() {
            self.queue.push(piece);
        }
    }

    /// Promise a range of a file; like [`push`](Self::push).
    ///
    /// # Panics
    ///
    /// If the range ends beyond the file's size or before it starts.
    pub fn push_file(&mut self, file: &Rc<File>, range: Range<u64>) {
        assert!(range.start <= range.end && range.end <= file.size());
        if range.is_empty() || self.failure.is_some() {
            return;
        }
        let at = self.queue.promise(range.end - range.start);
        let (offset, end) = (range.start, range.end);
        self.sources.push_back(Source {
            file: Rc::clone(file),
            at,
            offset,
            end,
            from_disk: false,
            occupied: false,
        });
    }

    /// Bytes promised since the stream began.
    #[must_use]
    pub const fn promised(&self) -> u64 {
        self.queue.promised()
    }

    /// Bytes that the kernel has taken since the stream began.
    #[must_use]
    pub const fn sent(&self) -> u64 {
        self.queue.sent()
    }

    /// Whether everything promised is with the kernel.
    #[must_use]
    pub const fn is_drained(&self) -> bool {
        self.queue.is_drained()
    }

    /// Whether the socket was full when it was last tried.
    #[must_use]
    pub const fn is_blocked(&self) -> bool {
        self.blocked
    }

    /// The socket can take bytes again. Pump afterwards.
    pub fn handle_writable(&mut self) {
        self.blocked = false;
        self.holding = None;
    }

    /// Whether reads are in flight: the owner's name must stay valid until they have ended.
    #[must_use]
    pub const fn is_reading(&self) -> bool {
        self.reading > 0
    }

    /// Bytes read and not yet sent: memory that [`reclaim`](Self::reclaim) gives back if the socket
    /// is full.
    #[must_use]
    pub const fn held(&self) -> u64 {
        self.held
    }

    /// Bytes of reads in flight, at most what the [`Window`] leaves beside those
    /// [`held`](Self::held).
    #[must_use]
    pub const fn reading(&self) -> u64 {
        self.reading
    }

    /// Memory that the stream keeps alive, apart from what its [`Disk`] bounds.
    #[must_use]
    pub fn weight(&self) -> Weight {
        let mut weight = self.queue.weight();
        weight.own += self.sources.len() as u64 * PLACE_BYTES;
        weight
    }

    /// Begins a new stream, for another socket, and keeps the memory.
    ///
    /// # Panics
    ///
    /// Unless the stream is drained and reads nothing.
    pub fn restart(&mut self) {
        assert!(!self.is_reading(), "reads of the old stream would fill the new one");
        let Self { mut queue, mut sources, .. } = core::mem::take(self);
        queue.restart();
        sources.clear();
        *self = Self { queue, sources, ..Self::new() };
    }

    /// Move what can be moved now, at most 1 MiB and 64 KiB.
    pub fn pump(
        &mut self,
        ring: &mut Ring,
        disk: &mut Disk,
        socket: &Fd,
        owner: u64,
        window: Window,
    ) -> Progress {
        let progress = self.move_on(ring, disk, socket, owner, window);
        if !self.blocked || self.held == 0 {
            self.holding = None;
        } else if self.holding.is_none() {
            self.holding = Some(disk.hold(owner));
        }
        progress
    }

    fn move_on(
        &mut self,
        ring: &mut Ring,
        disk: &mut Disk,
        socket: &Fd,
        owner: u64,
        window: Window,
    ) -> Progress {
        let mut budget = TURN_BYTES;
        if self.blocked {
            self.keep_reading(ring, disk, owner, window);
            return Progress::Waiting;
        }
        loop {
            let sent = match self.queue.state() {
                State::Drained => {
                    self.uncork(ring, socket);
                    return Progress::Drained;
                }
                State::Failed => return Progress::Failed(self.failure.unwrap_or(Failure::Gone)),
                State::Ready => self.send_ready(ring, socket, budget),
                State::Waiting => {
                    let now = ring.now();
                    match self.send_resident(ring, disk, socket, now, budget) {
                        Some(sent) => sent,
                        None => {
                            self.read_ahead(ring, disk, owner, window, now, true);
                            return Progress::Waiting;
                        }
                    }
                }
            };
            match sent.map_err(|error| Fault::of(&error)) {
                Ok(sent) => budget -= sent,
                Err(Fault::Blocked) => {
                    self.blocked = true;
                    self.keep_reading(ring, disk, owner, window);
                    return Progress::Blocked;
                }
                Err(Fault::Interrupted) => {}
                Err(fault) => return Progress::Failed(Failure::of(fault)),
            }
            self.keep_reading(ring, disk, owner, window);
            if budget == 0 && !self.queue.is_drained() {
                return Progress::More;
            }
        }
    }

    /// `MSG_MORE` holds a packet that is not full until the next acknowledgement comes; a cork
    /// holds it until it is full. For what comes from the disk piece by piece that is fewer packets,
    /// and fewer times that the peer wakes up. (What is in memory comes in large pieces anyway.)
    fn cork(&mut self, ring: &Ring, socket: &Fd) {
        let left = self.queue.promised() - self.queue.sent();
        if self.held > 0 && left >= CORK_BYTES_MIN && !self.corked {
            self.corked = true;
            ring.cork(socket, true);
        }
    }

    fn uncork(&mut self, ring: &Ring, socket: &Fd) {
        if core::mem::take(&mut self.corked) {
            ring.cork(socket, false);
        }
    }

    /// Send at most `budget` bytes of what is ready at the head of the line: one pipe, or several
    /// pieces of memory.
    fn send_ready(&mut self, ring: &Ring, socket: &Fd, budget: u64) -> io::Result<u64> {
        self.cork(ring, socket);
        let more = self.queue.ready() < self.queue.promised();
        let first = self.queue.next_ready().next().expect("the queue is ready");
        let sent = if let Piece::Pipe(pages) = first.payload {
            let count = index((first.range.end - first.range.start).min(budget));
            ring.drain(socket, &mut pages.pipe.borrow_mut(), count, more)? as u64
        } else {
            self.send_memory(ring, socket, budget, more)?
        };
        self.queue.mark_sent(sent);
        self.queue.mark_released(sent);
        self.let_go(sent);
        Ok(sent)
    }

    /// `more`: what follows at once shall share the packet. What waits for a disk must not hold it
    /// back for long, which the kernel sees to after 200 ms.
    fn send_memory(&self, ring: &Ring, socket: &Fd, budget: u64, more: bool) -> io::Result<u64> {
        let mut pieces = [IoSlice::new(&[]); PIECES_MAX];
        let mut count = 0;
        let mut left = budget;
        let ready = self.queue.next_ready().take(PIECES_MAX);
        for chunk in ready.take_while(|chunk| !matches!(chunk.payload, Piece::Pipe(_))) {
            let bytes = chunk.payload.bytes();
            let (start, end) =
                (index(chunk.range.start), index(chunk.range.end.min(chunk.range.start + left)));
            pieces[count] = IoSlice::new(&bytes[start..end]);
            count += 1;
            left -= (end - start) as u64;
            if left == 0 {
                break;
            }
        }
        Ok(ring.send(socket, &pieces[..count], more)? as u64)
    }

    /// The last `count` bytes before [`sent`](Self::sent) have just left: those of them that reads
    /// brought are no longer held.
    fn let_go(&mut self, count: u64) {
        let (from, sent) = (self.queue.sent() - count, self.queue.sent());
        while let Some(fill) = self.fills.front() {
            let end = fill.at + fill.len;
            self.held -= end.min(sent).saturating_sub(fill.at.max(from));
            if end > sent {
                break;
            }
            self.fills.pop_front();
        }
    }

    /// Send at most `budget` bytes of what is resident of the file at the head of the line; `None`
    /// if nothing is, if it cannot be sent like this, or if its read is under way.
    fn send_resident(
        &mut self,
        ring: &mut Ring,
        disk: &mut Disk,
        socket: &Fd,
        now: Time,
        budget: u64,
    ) -> Option<io::Result<u64>> {
        let source = self.sources.front_mut()?;
        if source.at != self.queue.ready() {
            return None;
        }
        let left = (source.end - source.offset).min(budget);
        let look = !source.from_disk;
        disk.introduce(ring, &source.file);
        let len = source.file.resident(ring, source.offset, left, now, look);
        if len == 0 {
            return None;
        }
        Some(match ring.sendfile(socket, source.file.fd(), source.offset, index(len)) {
            Ok(0) => {
                self.fail(self.queue.ready(), Failure::Truncated);
                Ok(0)
            }
            Ok(sent) => {
                let sent = sent as u64;
                self.queue.fill(source.at, Piece::File(sent));
                self.queue.mark_sent(sent);
                self.queue.mark_released(sent);
                source.advance(sent);
                if source.is_done() {
                    self.sources.pop_front();
                }
                Ok(sent)
            }
            Err(error) => match Fault::of(&error) {
                // From here on the file is read, and sent from a pipe or from memory.
                Fault::Unsupported(_) => {
                    source.file.cannot_be_sent();
                    return None;
                }
                fault @ Fault::File(_) => {
                    self.fail(self.queue.ready(), Failure::of(fault));
                    Ok(0)
                }
                _ => Err(error),
            },
        })
    }

    /// Read on while the peer takes what has been read, if that is how this stream gets its bytes.
    fn keep_reading(&mut self, ring: &mut Ring, disk: &mut Disk, owner: u64, window: Window) {
        let from_disk = self.sources.front().is_some_and(|source| source.from_disk);
        if from_disk && self.reading + self.held < window.0 / 2 {
            let now = ring.now();
            self.read_ahead(ring, disk, owner, window, now, false);
        }
    }

    /// Begin reads of what is not resident, as far as the window goes (see [`Window`]).
    /// `head_missing`: the pump has just found that what is next is not resident.
    fn read_ahead(
        &mut self,
        ring: &mut Ring,
        disk: &mut Disk,
        owner: u64,
        window: Window,
        now: Time,
        head_missing: bool,
    ) {
        let readahead = self.readahead();
        let chunk = window.chunk(self.chunk);
        let mut looked_at = 0;
        let mut index = 0;
        while let Some(source) = self.sources.get_mut(index) {
            if looked_at == SOURCES_AHEAD_MAX {
                return;
            }
            looked_at += 1;
            while !source.is_done() && !source.occupied {
                let left = source.end - source.offset;
                // Everything else waits for what is at the head of the line: it is read whatever
                // has been read ahead.
                let at_head = head_missing && index == 0 && source.at == self.queue.ready();
                let used = self.reading + self.held;
                if !at_head && used >= window.0 / 2 {
                    return;
                }
                // What is resident further back will go by sendfile when it gets there.
                if !at_head
                    && source.file.resident(
                        ring,
                        source.offset,
                        left.min(BLOCK),
                        now,
                        !source.from_disk,
                    ) > 0
                {
                    break;
                }
                // Ends of reads lie on multiples of the chunk, and so of residency's blocks.
                let most = if window.0.saturating_sub(used) < chunk { BLOCK } else { chunk };
                let want = left.min(most - source.offset % most);
                let (file, at, offset) = (&source.file, source.at, source.offset);
                let begun = disk.read(ring, owner, at, file, offset, want, readahead, at_head);
                let Some(begun) = begun else {
                    if at_head {
                        disk.wait_in_line(owner);
                    }
                    return;
                };
                self.reading += begun.len;
                source.from_disk = true;
                source.occupied = begun.alone;
                source.advance(begun.len);
            }
            if source.is_done() {
                self.sources.remove(index);
            } else {
                index += 1;
            }
        }
    }

    /// Take a read that has ended. Pump afterwards.
    pub fn handle_read(&mut self, ring: &Ring, done: ReadDone) {
        self.reading -= done.len;
        let end = done.at + done.len;
        if let Some(source) = self.sources.iter_mut().find(|source| source.at == end) {
            source.occupied = false;
        }
        if self.queue.failed_at().is_some_and(|failed| failed <= done.at) {
            return;
        }
        let data = match done.result {
            Ok(Data::Nothing) => {
                let end = done.offset + done.len;
                return self.insert_source(Source::reread(&done.file, done.at, done.offset, end));
            }
            Ok(data) if data.len() == 0 => return self.fail(done.at, Failure::Truncated),
            Ok(data) => data,
            Err(error) => return self.fail(done.at, Failure::of_read(&error)),
        };
        let len = data.len();
        self.held += len;
        let rest = done.len - len;
        self.adapt(done.len, ring.now().since(done.began), done.beside);
        let (file, offset) = (Rc::clone(&done.file), done.offset);
        let piece = match data {
            Data::Buffer(buf) => Piece::Disk(buf),
            Data::Pipe(pipe) => Piece::Pipe(Pages { pipe: pipe.into(), len }),
            Data::Nothing => unreachable!("taken care of above"),
        };
        self.queue.fill(done.at, piece);
        let place = self.fills.partition_point(|other| other.at < done.at);
        self.fills.insert(place, Fill { file, at: done.at, offset, len });
        if rest > 0 {
            // A short read is not the end of the file; that would have been empty.
            let end = done.offset + done.len;
            self.insert_source(Source::reread(&done.file, done.at + len, done.offset + len, end));
        }
    }

    /// A read took so long: large ones cost less, small ones come sooner and hold less. One that
    /// was begun before the chunk grew says nothing of the larger.
    fn adapt(&mut self, len: u64, took: Duration, beside: u32) {
        let blocks = u32::try_from(len / BLOCK).unwrap_or(1).max(1);
        let is_fast = took < CHUNK_FAST || took / beside.saturating_add(1) < BLOCK_FAST * blocks;
        if is_fast && len >= self.chunk {
            self.chunk = (self.chunk * 2).min(CHUNK_BYTES_MAX);
        } else if took > CHUNK_SLOW && !is_fast {
            self.chunk = CHUNK_BYTES_MIN;
        }
    }

    /// The kernel reads ahead only where several reads in a row were fast. On a slow disk every
    /// stream would wait for what is read ahead of the others.
    const fn readahead(&self) -> Readahead {
        if self.chunk == CHUNK_BYTES_MAX { Readahead::Far } else { Readahead::Off }
    }

    /// Give back the buffers and pipes of what the peer does not take; it will be read again.
    /// While the socket takes bytes this does nothing: what is held is on its way.
    pub fn reclaim(&mut self) {
        if !self.blocked {
            return;
        }
        for Fill { file, at, offset, len } in core::mem::take(&mut self.fills) {
            let start = at.max(self.queue.sent());
            self.queue.retract(start);
            self.insert_source(Source::reread(&file, start, offset + (start - at), offset + len));
        }
        self.held = 0;
        self.holding = None;
    }

    fn insert_source(&mut self, source: Source) {
        let place = self.sources.partition_point(|other| other.at < source.at);
        self.sources.insert(place, source);
    }

    fn fail(&mut self, at: u64, failure: Failure) {
        if self.queue.failed_at().is_none_or(|failed| at < failed) {
            self.queue.fail(at);
            for fill in self.fills.drain(self.fills.partition_point(|fill| fill.at < at)..) {
                self.held -= fill.len;
            }
        }
        self.failure.get_or_insert(failure);
        // What stands in front of the failure still goes out.
        self.sources.retain(|source| source.at < at);
    }
}

impl Failure {
    /// What a call that sends has failed for.
    fn of(fault: Fault) -> Self {
        match fault {
            Fault::Peer => Self::Gone,
            Fault::File(errno) => Self::Unreadable(errno),
            Fault::Memory(errno) => Self::NoMemory(errno),
            Fault::Unsupported(errno) | Fault::Ours(errno) => Self::Unexpected(errno),
            Fault::Blocked | Fault::Interrupted => unreachable!("tried again"),
        }
    }

    /// What a read has failed for: whatever it says is of the file, for it knows of no peer.
    fn of_read(error: &io::Error) -> Self {
        match Fault::of(error) {
            Fault::Memory(errno) => Self::NoMemory(errno),
            _ => Self::Unreadable(error.raw_os_error().unwrap_or(0)),
        }
    }
}

impl Source {
    /// What has been asked of the disk before.
    fn reread(file: &Rc<File>, at: u64, offset: u64, end: u64) -> Self {
        Self { file: Rc::clone(file), at, offset, end, from_disk: true, occupied: false }
    }

    const fn advance(&mut self, count: u64) {
        self.at += count;
        self.offset += count;
    }

    const fn is_done(&self) -> bool {
        self.offset == self.end
    }
}

fn index(value: u64) -> usize {
    usize::try_from(value).expect("a length of memory, or at most a turn")
}
