//! Disks as one worker uses them: buffers, queue depth, and the line of streams that wait.

use core::cell::{Cell, RefCell};
use core::ops::Range;
use core::time::Duration;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::rc::Rc;
use std::sync::Arc;

use pace::Pace;
use ring::{
    Buffer, BufferPool, Completion, Device, Event, Fd, Key, Op, PROBE_BYTES_MAX, Pipe, PipePool,
    Ring, Shares, Slab, Time, Token,
};

use crate::devices::{Devices, Silence, since_start};
use crate::direct::{Place, Places};
use crate::file::{BLOCK, File, Inodes, Readahead};
pub use crate::line::Owner;
use crate::line::{Line, Wait};
use crate::page_cache::{Dropping, PageCache, Watch};
use crate::policy::{Caching, Policy};
use crate::trail::{self, Held, Left, Trail, Trails};
use crate::transport::Takes;
use crate::way::Unusual;

/// The size of a [`Disk`].
#[derive(Clone, Copy, Debug)]
pub struct DiskConfig {
    /// Bytes of all buffers together; rounded down to whole ones of 256 KiB, at least 4.
    pub memory_bytes: usize,
    /// Pipes, which hold pages of the page cache on their way out, at most 1 MiB each; 0 means that
    /// everything is read into buffers.
    pub pipes: usize,
    /// Files that stay open after their streams have ended, until the pages that were brought for these have
    /// left the page cache: a minute at most. Of further ones what is still on its way to a peer stays there. For
    /// transports that take memory only: files with a second descriptor, for reads past the page cache.
    pub lingering_files: usize,
    /// Reads in flight at once, of which one device has a half at most, and a quarter if it has not
    /// answered for a second ([`Shares`]).
    pub depth: usize,
    /// A read that takes longer fails, if this is set. Reads of a device that has not ended any for so
    /// long fail at once, but for one in each such time, of all disks with the same [`Devices`].
    pub patience: Option<Duration>,
    /// The tokens of the disk's own operations are `token_base` plus a number below 2⁵⁶.
    pub token_base: Token,
}

impl Default for DiskConfig {
    /// 16 MiB, 64 pipes and 64 reads: enough for 64 streams that each keep one read in flight. 1,024 lingering
    /// files: enough for as many streams that end within a second.
    fn default() -> Self {
        Self {
            memory_bytes: 16 << 20,
            pipes: 64,
            lingering_files: 1024,
            depth: 64,
            patience: None,
            token_base: 0,
        }
    }
}

/// The disks as one worker uses them: a pool of buffers, reads in flight, and a line of streams.
#[derive(Debug)]
pub struct Disk {
    pool: BufferPool,
    pipes: PipePool,
    config: DiskConfig,
    operations: Slab<Operation>,
    /// The reads among the operations, by device.
    reads: Shares,
    /// When a read last began or ended.
    now: Time,
    /// Streams that wait for a read.
    line: Line,
    /// The stream that was first in line and has not begun a read since.
    turn: Option<Owner>,
    /// Reads that have failed because they took too long, for their owners.
    late: VecDeque<ReadDone>,
    /// The number of operations that are [`Operation::Late`].
    lates: usize,
    /// News for the operator.
    silences: VecDeque<Silence>,
    /// When reads are looked at for such ones: the time of the earliest timer.
    look_at: Option<Time>,
    holders: Rc<Holders>,
    inodes: Inodes,
    page_cache: Arc<PageCache>,
    /// The ranges that streams leave in the page cache and that are not to stay there.
    trails: Rc<Trails>,
    /// Places for second descriptors of files.
    direct: Places,
    /// True if a timer is set for the trails.
    sweeps: bool,
    /// By file system.
    abilities: HashMap<u64, Abilities>,
    paces: HashMap<Device, Pace>,
    devices: Arc<Devices>,
    /// When a stream in line may read again that waits for its device's pause: the time of the earliest timer.
    opens_at: Option<Time>,
    /// The number of file systems whose names were asked for.
    asked: usize,
    /// File systems that the operator is to be told of.
    unusual: Vec<Unusual>,
    stats: DiskStats,
    by_device: HashMap<Device, DeviceStats>,
}

/// The number of ranges that streams have sent from the page cache, and that had to be read, since the
/// [`Disk`] was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskStats {
    /// Ranges that were resident when they were sent: each is at most the rest of a turn.
    pub hits: u64,
    /// Their bytes.
    pub hit_bytes: u64,
    /// Reads that have begun.
    pub misses: u64,
    /// Bytes that reads have brought.
    pub miss_bytes: u64,
    /// Reads that have ended.
    pub ended: u64,
}

/// The reads of a device since the [`Disk`] was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceStats {
    /// Reads that have begun.
    pub begun: u64,
    /// Reads that have ended.
    pub ended: u64,
    /// The time from the beginning to the end of each of these, added up.
    pub time: Duration,
}

/// The abilities of a file system, as far as they have been tried.
#[derive(Clone, Copy, Debug)]
struct Abilities {
    /// `RWF_DONTCACHE`.
    drop: bool,
    /// `splice(2)` from a file.
    splice: bool,
    /// Its name, as far as it is known.
    name: Name,
}

/// Knowledge of a file system's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Name {
    NotAsked,
    Asked,
    /// Its magic number; `None` if it could not be had.
    Known(Option<u64>),
}

impl Default for Abilities {
    fn default() -> Self {
        Self { drop: true, splice: true, name: Name::NotAsked }
    }
}

/// Streams that hold buffers or pipes and wait for their peers, each at most once.
#[derive(Debug, Default)]
struct Holders {
    /// Their order is that of the times from which on they may be named, then that in which they began.
    all: RefCell<BTreeMap<(Time, u64), Owner>>,
    next: Cell<u64>,
}

impl Holders {
    fn insert(&self, from: Time, owner: Owner) -> (Time, u64) {
        let next = self.next.get();
        self.next.set(next + 1);
        self.all.borrow_mut().insert((from, next), owner);
        (from, next)
    }
}

/// A stream's entry among the holders; dropping it takes it out.
#[derive(Debug)]
pub(crate) struct Holding {
    holders: Rc<Holders>,
    owner: Owner,
    place: (Time, u64),
}

impl Holding {
    /// Has the stream, which was named and could not give all back, named again from then on.
    pub(crate) fn look_again(&mut self, from: Time) {
        self.holders.all.borrow_mut().remove(&self.place);
        self.place = self.holders.insert(from, self.owner);
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        self.holders.all.borrow_mut().remove(&self.place);
    }
}

/// An operation in flight. Its token carries its key.
#[derive(Debug)]
enum Operation {
    Read(Read),
    /// A read whose owner has been told that it failed. It cannot be cancelled, and keeps its place.
    Late(Read),
    /// Reads that take too long are looked for at this time.
    Look(Time),
    /// The pause of a device ends at this time.
    Pause(Time),
    /// Pages that a read left in the page cache are dropped from it.
    Discard {
        _dropping: Option<Dropping>,
    },
    /// Ranges that streams have left in the page cache are discarded.
    Sweep,
    /// Pages of such a range are dropped.
    Leave {
        left: Left,
        _dropping: Vec<Dropping>,
    },
    /// A file is opened for reads past the page cache.
    Direct {
        file: Rc<File>,
        place: Place,
    },
    /// A file system is asked for its name.
    Name {
        dev: u64,
        file: Fd,
    },
}

#[derive(Debug)]
struct Read {
    owner: Owner,
    at: u64,
    file: Rc<File>,
    offset: u64,
    len: u64,
    policy: Policy,
    wait: Wait,
    how: How,
    readahead: Readahead,
    /// The dropping reads that had ended before, of a read that is to stay.
    drops: Option<u64>,
    /// Some for a read that is not to stay.
    dropping: Option<Dropping>,
    /// Since the read began, of one whose pages are dropped after it.
    watch: Option<Watch>,
    /// Some for a splice that is not to stay.
    trail: Option<Held>,
    /// When the stream's turn has begun.
    turn: Time,
    began: Time,
}

impl Read {
    const fn range(&self) -> Range<u64> {
        self.offset..self.offset + self.len
    }

    /// The result for its owner if it takes too long.
    fn late(&self) -> ReadDone {
        ReadDone {
            owner: self.owner,
            at: self.at,
            file: Rc::clone(&self.file),
            offset: self.offset,
            len: self.len,
            policy: self.policy,
            result: Err(io::ErrorKind::TimedOut.into()),
            trail: None,
        }
    }
}

/// A read that a stream asks for.
#[derive(Debug)]
pub(crate) struct ReadRequest<'a> {
    pub(crate) owner: Owner,
    /// The position in the stream.
    pub(crate) at: u64,
    pub(crate) file: &'a Rc<File>,
    /// The position in the file.
    pub(crate) offset: u64,
    /// Bytes; the read may ask for fewer.
    pub(crate) len: u64,
    pub(crate) policy: Policy,
    pub(crate) wait: Wait,
    pub(crate) readahead: Readahead,
    pub(crate) takes: Takes,
    /// The window of the transport.
    pub(crate) window: u64,
    /// When the stream's last turn has begun.
    pub(crate) turn: Time,
    /// Some if the read may leave its pages in the page cache although they are not to stay there.
    pub(crate) trail: Option<Rc<Trail>>,
    /// The stream can send nothing before it. Prefetching leaves a part of the memory to such reads, or
    /// streams could block each other with bytes that are not yet due.
    pub(crate) is_urgent: bool,
}

/// A read that has begun.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Begun {
    /// Bytes asked for.
    pub(crate) len: u64,
    /// True if the next read of the same range should wait for the end of this one: to the kernel's
    /// readahead, where it is used, two reads at once look like a file read at random.
    pub(crate) alone: bool,
    /// When the stream's turn has begun.
    pub(crate) turn: Time,
}

/// A way of reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    /// Into the page cache, and from there into a pipe.
    Splice,
    /// Into the page cache, and a copy into a buffer.
    Keep,
    /// The same, and the read itself drops the pages from the page cache.
    Drop,
    /// Past the page cache into a buffer.
    Direct,
    /// As `Keep`, and the pages are dropped after the read. Those that others have brought would be
    /// dropped, too, so it is not used where there are any.
    Discard,
}

/// A read that has ended, for [`Stream::handle_read`](crate::Stream::handle_read) of its owner.
#[derive(Debug)]
pub struct ReadDone {
    /// The stream that asked.
    pub owner: Owner,
    pub(crate) at: u64,
    pub(crate) file: Rc<File>,
    pub(crate) offset: u64,
    /// Bytes asked for.
    pub(crate) len: u64,
    pub(crate) policy: Policy,
    pub(crate) result: io::Result<Data>,
    /// Some if the read has left pages in the page cache that are not to stay there.
    pub(crate) trail: Option<Held>,
}

/// The result of a read.
#[derive(Debug)]
pub(crate) enum Data {
    /// Copies.
    Buffer(Buffer),
    /// Pages of the page cache.
    Pipe(Pipe),
    /// Nothing yet: the file system cannot read in this way, but knows another. Read again.
    Nothing,
}

impl ReadDone {
    /// The device of a read that has failed because it took too long.
    #[must_use]
    pub fn late_on(&self) -> Option<Device> {
        let is_late = |error: &io::Error| error.kind() == io::ErrorKind::TimedOut;
        self.result.as_ref().err().is_some_and(is_late).then(|| self.file.device())
    }
}

impl Data {
    pub(crate) fn len(&self) -> u64 {
        match self {
            Self::Buffer(buf) => buf.len() as u64,
            Self::Pipe(pipe) => pipe.len() as u64,
            Self::Nothing => 0,
        }
    }
}

impl Disk {
    /// Maps the buffers.
    ///
    /// # Errors
    ///
    /// Those of `mmap(2)`.
    pub fn new(config: DiskConfig) -> io::Result<Self> {
        Self::sharing(config, Arc::default(), Arc::default())
    }

    /// The same, with what the disks of other workers know of the page cache and of the devices. Disks that send the
    /// same files with different policies need that to be exact about residency.
    ///
    /// # Errors
    ///
    /// Those of `mmap(2)`.
    pub fn sharing(
        config: DiskConfig,
        page_cache: Arc<PageCache>,
        devices: Arc<Devices>,
    ) -> io::Result<Self> {
        let block = PROBE_BYTES_MAX;
        let buffers = (config.memory_bytes / block).max(4);
        // A device that does not answer must not have all buffers or pipes either.
        let pipes = if config.pipes == 0 { usize::MAX } else { config.pipes };
        let reads = config.depth.min(buffers).min(pipes);
        Ok(Self {
            pool: BufferPool::new(block, buffers)?,
            pipes: PipePool::new(config.pipes),
            config,
            operations: Slab::new(),
            reads: Shares::new(reads),
            now: Time::default(),
            line: Line::default(),
            turn: None,
            late: VecDeque::new(),
            lates: 0,
            silences: VecDeque::new(),
            look_at: None,
            holders: Rc::default(),
            inodes: Inodes::default(),
            page_cache,
            trails: Rc::new(Trails::new(config.lingering_files)),
            direct: Places::new(config.lingering_files),
            sweeps: false,
            abilities: HashMap::new(),
            paces: HashMap::new(),
            devices,
            opens_at: None,
            asked: 0,
            unusual: Vec::new(),
            stats: DiskStats::default(),
            by_device: HashMap::new(),
        })
    }

    /// Gives reads another time from now on. See [`DiskConfig::patience`].
    pub const fn set_patience(&mut self, patience: Option<Duration>) {
        self.config.patience = patience;
    }

    /// Reads in flight.
    #[must_use]
    pub const fn in_flight(&self) -> usize {
        self.reads.taken()
    }

    /// Counts of what was resident and what had to be read.
    #[must_use]
    pub const fn stats(&self) -> DiskStats {
        self.stats
    }

    /// Counts of the reads of each device that was read from.
    pub fn devices(&self) -> impl Iterator<Item = (Device, DeviceStats)> {
        self.by_device.iter().map(|(device, stats)| (*device, *stats))
    }

    /// Notes that a resident range of so many bytes was sent.
    pub(crate) const fn note_hit(&mut self, bytes: u64) {
        self.stats.hits += 1;
        self.stats.hit_bytes += bytes;
    }

    /// Buffers that reads in flight and streams hold.
    #[must_use]
    pub fn buffers_lent(&self) -> usize {
        self.pool.count() - self.pool.available()
    }

    /// Returns whether a read could begin now.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.has_room_beside(0, 0)
    }

    /// Returns whether a read could begin now with so many buffers and pipes set aside.
    fn has_room_beside(&self, buffers: usize, pipes: usize) -> bool {
        self.reads.taken() < self.config.depth
            && (self.pool.available() > buffers || buffers == 0 && self.pool.has_part())
            && (self.config.pipes == 0 || self.pipes.available() > pipes)
    }

    /// Returns whether streams wait for a buffer or a pipe, and not only for a read in flight to end: time
    /// for [`next_holder`](Self::next_holder) to [`reclaim`](crate::Stream::reclaim).
    #[must_use]
    pub fn is_starved(&self) -> bool {
        !self.line.is_empty() && self.reads.taken() < self.config.depth && !self.has_room()
    }

    /// The stream that has held buffers or pipes for the longest time while it waits for its peer. Have it
    /// [`reclaim`](crate::Stream::reclaim). It is not named again before it holds others or its transport is blocked
    /// anew, or before [`HOLD_MAX`](crate::HOLD_MAX) if its peer has yet to acknowledge what they hold.
    pub fn next_holder(&mut self, now: Time) -> Option<Owner> {
        let mut all = self.holders.all.borrow_mut();
        let first = all.first_entry().filter(|first| first.key().0 <= now)?;
        Some(first.remove())
    }

    /// Notes that a stream holds buffers or pipes and waits for its peer, until the result is dropped.
    pub(crate) fn hold(&self, owner: Owner) -> Holding {
        let holders = Rc::clone(&self.holders);
        let place = holders.insert(Time::default(), owner);
        Holding { holders, owner, place }
    }

    /// The next stream in line, if there is room for a read of it. Pump it; if it wants more it
    /// goes to the end of the line.
    #[inline]
    pub fn next_waiting(&mut self) -> Option<Owner> {
        if self.line.is_empty() || !self.has_room() {
            return None;
        }
        let owner = self.first_waiting()?;
        self.line.leave(owner);
        self.turn = Some(owner);
        Some(owner)
    }

    /// The first stream in line whose device may be read from. One whose reads do not end has used up its
    /// share; the streams of others pass its own.
    fn first_waiting(&self) -> Option<Owner> {
        self.line.first(|device, wait| self.may_begin(device, wait) || self.refuses(device))
    }

    /// Returns whether a stream comes before all others that wait for a read and could begin one now, so that one
    /// which goes on does not keep its place until its end.
    fn has_turn_now(&mut self, owner: Owner, wait: Wait) -> bool {
        self.line.is_empty()
            || self.turn.take_if(|turn| *turn == owner).is_some()
            || self.line.lets(owner, wait, |device, wait| {
                self.may_begin(device, wait) || self.refuses(device)
            })
    }

    /// Returns whether a read may begin on a device. Its pace is for streams that go on.
    fn may_begin(&self, device: Device, wait: Wait) -> bool {
        self.reads.may_begin(device, self.now) && (wait == Wait::First || self.may_go_on(device))
    }

    fn may_go_on(&self, device: Device) -> bool {
        let has_room = |pace: &Pace| pace.has_room(since_start(self.now));
        self.paces.get(&device).is_none_or(has_room)
            && self.devices.opens_at(device, self.now).is_none()
    }

    /// Bytes of the next read of a stream that goes on.
    pub(crate) fn chunk(&self, file: &File) -> u64 {
        let pace = self.paces.get(&file.device());
        pace.map_or(pace::CHUNK_MIN, Pace::chunk)
    }

    /// Returns whether a stream stands in line and there is room for a read of it.
    #[must_use]
    pub fn has_turn(&self) -> bool {
        !self.line.is_empty() && self.has_room() && self.first_waiting().is_some()
    }

    /// Returns whether a read of a device fails at once.
    fn refuses(&self, device: Device) -> bool {
        self.config.patience.is_some_and(|patience| {
            self.reads.refuses(device, self.now, patience)
                || self.devices.refuses(device, self.now, patience)
        })
    }

    /// Returns whether there may be a device whose reads do not end, so that it is worth to ask
    /// [`would_fail`](Self::would_fail).
    #[must_use]
    #[inline]
    pub fn may_refuse(&self) -> bool {
        self.lates > 0 || self.devices.any_is_silent()
    }

    /// Returns whether a stream that began with this range of a file would fail before its first byte: the reads of the
    /// device do not end, and what the range begins with is not resident, or a transport that takes memory only would
    /// have it read. Ask before the head of a response is promised.
    ///
    /// # Panics
    ///
    /// If the range starts beyond its end.
    #[must_use]
    pub fn would_fail(
        &mut self,
        ring: &mut Ring,
        file: &File,
        range: &Range<u64>,
        takes: Takes,
    ) -> bool {
        assert!(range.start <= range.end);
        self.now = ring.now();
        if range.is_empty() || !self.refuses(file.device()) {
            return false;
        }
        self.introduce(ring, file);
        let len = (range.end - range.start).min(BLOCK - range.start % BLOCK);
        takes == Takes::Memory || file.resident(ring, range.start, len, self.now, true) == 0
    }

    /// The next device whose reads have stopped to end, or end again, to be told to the operator. Call it after
    /// [`handle`](Self::handle).
    pub fn next_silence(&mut self) -> Option<Silence> {
        self.silences.pop_front()
    }

    /// The next read that has failed because it took too long, for its owner like those that
    /// [`handle`](Self::handle) returns. Call it after each of these.
    pub fn next_late(&mut self) -> Option<ReadDone> {
        self.late.pop_front()
    }

    /// A file system that was met and whose files leave in another way than usual, to be told to the operator. Disks
    /// with the same [`Devices`] name it once. Call it after [`handle`](Self::handle).
    pub fn next_unusual(&mut self) -> Option<Unusual> {
        self.unusual.pop()
    }

    /// Has reads looked at for late ones at a time.
    fn look_at(&mut self, ring: &mut Ring, at: Time) {
        if self.look_at.is_none_or(|earlier| at < earlier) {
            self.look_at = Some(at);
            self.submit(ring, Op::Timer(at), Operation::Look(at));
        }
    }

    /// Fails reads that take too long.
    fn look(&mut self, ring: &mut Ring) {
        let Some(patience) = self.config.patience else { return };
        self.look_at = None;
        let mut next = None;
        for key in self.operations.keys().collect::<Vec<_>>() {
            let operation = self.operations.get_mut(key).expect("one of its keys");
            let Operation::Read(read) = operation else { continue };
            if self.now.since(read.began) < patience {
                let due = read.began + patience;
                next = Some(next.map_or(due, |next: Time| next.min(due)));
                continue;
            }
            let Operation::Read(read) =
                core::mem::replace(operation, Operation::Discard { _dropping: None })
            else {
                unreachable!("it has just been looked at")
            };
            self.late.push_back(read.late());
            self.lates += 1;
            let device = read.file.device();
            *operation = Operation::Late(read);
            let silence = self.reads.silence(device, self.now);
            if silence >= patience && self.devices.begin_silence(device, silence, self.now) {
                self.silences.push_back(Silence::Begun(device));
            }
        }
        if !self.line.is_empty() {
            let soon = self.now + LOOK;
            next = Some(next.map_or(soon, |next| next.min(soon)));
        }
        if let Some(next) = next {
            self.look_at(ring, next);
        }
    }

    /// Takes the streams of a connection out of the line: it is closed.
    pub fn leave_line(&mut self, connection: u64) {
        self.line.leave_all(connection);
    }

    pub(crate) fn wait_in_line(&mut self, ring: &mut Ring, owner: Owner, file: &File, wait: Wait) {
        self.line.enter(owner, file.device(), wait);
        self.await_pauses(ring);
    }

    /// Sees to it that streams in line are asked again when the pauses of their devices end.
    fn await_pauses(&mut self, ring: &mut Ring) {
        let opens_at = |device| self.devices.opens_at(device, self.now);
        let Some(at) = self.line.going_on().filter_map(opens_at).min() else { return };
        if self.opens_at.is_none_or(|earlier| at < earlier) {
            self.opens_at = Some(at);
            self.submit(ring, Op::Timer(at), Operation::Pause(at));
        }
    }

    /// Tells a file what decides how its residency can be known: what other open files and other workers
    /// know, and which file system it is on. This comes before each use. If the name of the file system
    /// is not known yet, it is asked for; until the answer comes the file system is taken for one of the
    /// usual ones.
    pub(crate) fn introduce(&mut self, ring: &mut Ring, file: &File) {
        self.inodes.share(file, &self.page_cache);
        if file.is_introduced() {
            return;
        }
        let abilities = self.abilities.entry(file.dev()).or_default();
        match abilities.name {
            Name::Known(magic) => file.introduce(magic),
            Name::Asked => {}
            Name::NotAsked if self.asked == FILE_SYSTEMS_MAX => file.introduce(None),
            Name::NotAsked => {
                abilities.name = Name::Asked;
                self.asked += 1;
                let operation = Operation::Name { dev: file.dev(), file: file.fd().clone() };
                self.submit(ring, Op::FileSystem(file.fd().clone()), operation);
            }
        }
    }

    /// Returns whether the kernel's readahead may be used on a file: its disk is known to be fast. On a slow disk every
    /// stream would wait for the readahead of the others, which does not end before their files do.
    pub(crate) fn may_read_ahead(&self, file: &File) -> bool {
        self.paces.get(&file.device()).is_some_and(Pace::readahead)
    }

    /// Returns whether a read can leave its pages to be dropped later: it is a splice.
    pub(crate) fn may_leave(&self, file: &File, takes: Takes) -> bool {
        takes == Takes::Files && self.abilities.get(&file.dev()).is_some_and(|one| one.splice)
    }

    /// A stream begins to read the file from `offset` on. Up to `absent_to` nothing of it is in the page cache, and
    /// nothing is to stay there.
    pub(crate) fn begin_trail(
        &mut self,
        ring: &mut Ring,
        file: &Rc<File>,
        offset: u64,
        absent_to: u64,
    ) -> Rc<Trail> {
        self.now = ring.now();
        self.begin_sweeps(ring);
        self.trails.begin(file, offset, absent_to)
    }

    /// Begins a read, or returns `None` if there is no room. Bytes that stay in the page cache go through a
    /// pipe, unless the transport takes memory only; others go through a buffer.
    pub(crate) fn read(&mut self, ring: &mut Ring, request: ReadRequest<'_>) -> Option<Begun> {
        let ReadRequest { owner, at, file, offset, len, policy, readahead, .. } = request;
        let share = |all: usize| if request.is_urgent { 0 } else { all.div_ceil(URGENT_SHARE) };
        if !self.has_room_beside(share(self.pool.count()), share(self.config.pipes)) {
            return None;
        }
        self.now = ring.now();
        let device = file.device();
        let (file, began) = (Rc::clone(file), self.now);
        let mut read = Read {
            owner,
            at,
            file,
            offset,
            len,
            policy,
            wait: request.wait,
            how: How::Keep,
            readahead,
            drops: None,
            dropping: None,
            watch: None,
            trail: None,
            turn: request.turn,
            began,
        };
        if self.refuses(device) {
            self.late.push_back(read.late());
            self.look_at(ring, began);
            return Some(Begun { len, alone: false, turn: request.turn });
        }
        if !self.may_begin(device, request.wait) {
            return None;
        }
        if self.now.since(request.turn) >= TURN_MAX {
            if !self.has_turn_now(owner, request.wait) {
                return None;
            }
            read.turn = self.now;
        }
        let keep = policy.caching != Caching::Never;
        let abilities = *self.abilities.entry(read.file.dev()).or_default();
        read.file.advise(ring, readahead);
        let file = read.file.fd().clone();
        let may_splice = request.takes == Takes::Files && (keep || request.trail.is_some());
        // Where there is no descriptor for a pipe, a buffer needs none.
        if may_splice
            && abilities.splice
            && let wanted = usize::try_from(len).unwrap_or(usize::MAX)
            && let Some(pipe) = ring.take_pipe(&self.pipes, offset, wanted)
        {
            (read.how, read.len) = (How::Splice, pipe.want() as u64);
            read.trail = request.trail.map(|trail| trail.hold(offset + read.len));
            return Some(self.submit_read(ring, Op::Splice { file, offset, pipe }, read));
        }
        let most = self.buffer_bytes(request.window);
        read.len = len.min(most - offset % most);
        let may_pass_by = !keep && request.takes == Takes::Memory;
        let direct = if may_pass_by { self.direct(ring, &read) } else { None };
        let (file, how) = if let Some((direct, len)) = direct {
            read.len = len;
            (direct, How::Direct)
        } else if keep {
            (file, How::Keep)
        } else if abilities.drop {
            (file, How::Drop)
        } else if read.file.may_be_cached(ring, offset, read.len) {
            (file, How::Keep)
        } else {
            (file, How::Discard)
        };
        read.how = how;
        let buf = self.take_buffer(read.len)?;
        read.len = buf.want() as u64;
        let caching = if read.how == How::Drop { ring::Caching::Drop } else { ring::Caching::Keep };
        Some(self.submit_read(ring, Op::Read { file, offset, buf, caching }, read))
    }

    /// The bytes of a read into a buffer, at most: a block; when three quarters of the memory are lent, two windows of
    /// the transport, because the stream keeps them until its peer has acknowledged them. A power of two.
    fn buffer_bytes(&self, window: u64) -> u64 {
        if self.pool.available() > self.pool.count().div_ceil(URGENT_SHARE) {
            return BLOCK;
        }
        let least = self.pool.part_bytes() as u64;
        window.saturating_mul(2).clamp(least, BLOCK).next_power_of_two()
    }

    /// A buffer for at most so many bytes.
    fn take_buffer(&self, bytes: u64) -> Option<Buffer> {
        let bytes = usize::try_from(bytes).expect("at most a block");
        let is_small = bytes <= self.pool.size() / 2;
        let whole = if is_small { None } else { self.pool.take(bytes) };
        whole.or_else(|| self.pool.take_part(bytes))
    }

    /// The descriptor and the bytes of a read past the page cache, if there can be one: not of pages that others
    /// have brought, which need only be copied. A file that has more to be read gets such a descriptor for the reads
    /// that follow.
    fn direct(&mut self, ring: &mut Ring, read: &Read) -> Option<(Fd, u64)> {
        let direct = read.file.direct();
        let follows = read.file.size().saturating_sub(read.offset + read.len) >= BLOCK;
        if follows && let Some((op, place)) = direct.open(read.file.fd(), &self.direct) {
            let file = Rc::clone(&read.file);
            self.submit(ring, op, Operation::Direct { file, place });
            return None;
        }
        let found = direct.read(read.offset, read.len)?;
        (!read.file.is_cached(ring, read.offset, read.len)).then_some(found)
    }

    fn submit_read(&mut self, ring: &mut Ring, op: Op, mut read: Read) -> Begun {
        let fills_cache = matches!(read.how, How::Splice | How::Keep);
        let alone = fills_cache && read.readahead == Readahead::Far;
        let begun = Begun { len: read.len, alone, turn: read.turn };
        read.file.begin_read(&read.range(), read.readahead);
        match read.how {
            How::Splice if read.trail.is_some() => {
                let surplus = self.trails.surplus();
                self.discard(ring, surplus);
            }
            How::Splice | How::Keep => {
                if read.policy.caching != Caching::Never {
                    read.file.note_kept();
                }
                read.drops = read.file.all_drops(&read.range());
            }
            How::Direct => {}
            How::Drop => read.dropping = read.file.begin_drop(read.offset),
            How::Discard => {
                read.dropping = read.file.begin_drop(read.offset);
                read.watch = read.file.watch_kept();
            }
        }
        let device = read.file.device();
        self.reads.begin(device, self.now);
        self.stats.misses += 1;
        self.by_device.entry(device).or_default().begun += 1;
        self.devices.begin(device, read.len, read.wait, self.now);
        let pace = self.paces.entry(device).or_default();
        pace.begin(read.len, since_start(self.now));
        if alone {
            // Streams share the room of their device, so this is for few on a quick one.
            read.file.read_ahead(ring, read.offset + read.len, pace.room());
        }
        self.submit(ring, op, Operation::Read(read));
        self.await_pauses(ring);
        if let Some(patience) = self.config.patience {
            self.devices.note_try(device, self.now, patience);
            self.look_at(ring, self.now + patience);
        }
        begun
    }

    /// Sees to it that what streams leave in the page cache is dropped from it.
    fn begin_sweeps(&mut self, ring: &mut Ring) {
        if !core::mem::replace(&mut self.sweeps, true) {
            self.submit(ring, Op::Timer(self.now + trail::PAUSE), Operation::Sweep);
        }
    }

    fn sweep(&mut self, ring: &mut Ring) {
        let due = self.trails.due(self.now);
        self.discard(ring, due);
        self.sweeps = false;
        if self.trails.are_any() {
            self.begin_sweeps(ring);
        }
    }

    fn discard(&mut self, ring: &mut Ring, ranges: Vec<Left>) {
        for left in ranges {
            // When the stream began, the name of the file system may not have been known.
            self.introduce(ring, &left.file);
            if !left.file.counts_pages() {
                continue;
            }
            let (offset, len) = (left.range.start, left.range.end - left.range.start);
            let op = Op::Discard { file: left.file.fd().clone(), offset, len };
            let _dropping = left.file.begin_drops(&left.range);
            self.submit(ring, op, Operation::Leave { left, _dropping });
        }
    }

    fn submit(&mut self, ring: &mut Ring, op: Op, operation: Operation) {
        let key = self.operations.insert(operation);
        ring.submit(op, self.config.token_base + key.to_bits());
    }

    /// Takes the completion of an operation of this disk. `None` means that no stream waits for it.
    ///
    /// # Panics
    ///
    /// If the completion is of no operation of this disk.
    pub fn handle(&mut self, ring: &mut Ring, completion: Completion) -> Option<ReadDone> {
        assert!(self.owns(completion.token), "an operation of this disk");
        let key = Key::from_bits(completion.token - self.config.token_base);
        let operation = self.operations.remove(key).expect("each operation ends once");
        let mut read = match operation {
            Operation::Read(read) => read,
            Operation::Discard { .. } => return None,
            Operation::Sweep => {
                self.now = ring.now();
                self.sweep(ring);
                return None;
            }
            Operation::Leave { left, .. } => {
                if left.file.known_pages(ring, &left.range) > 0 {
                    self.now = ring.now();
                    self.trails.try_again(left, self.now);
                    self.begin_sweeps(ring);
                }
                return None;
            }
            Operation::Late(read) => {
                self.lates -= 1;
                self.end(ring, &read, 0);
                return None;
            }
            Operation::Look(at) => {
                // Another time is that of a timer in whose place an earlier one was set.
                if self.look_at == Some(at) {
                    self.now = ring.now();
                    self.look(ring);
                }
                return None;
            }
            Operation::Pause(at) => {
                self.now = ring.now();
                if self.opens_at == Some(at) {
                    self.opens_at = None;
                    self.await_pauses(ring);
                }
                return None;
            }
            Operation::Direct { file, place } => {
                let fd = match completion.result {
                    Ok(Event::Opened(fd)) => Some(fd),
                    _ => None,
                };
                file.direct().opened(fd, place);
                return None;
            }
            Operation::Name { dev, file } => {
                let magic = match completion.result {
                    Ok(Event::FileSystem(magic)) => Some(magic),
                    _ => None,
                };
                let unusual = magic.and_then(|magic| Unusual::find(ring, &file, magic));
                self.unusual.extend(unusual.filter(|one| self.devices.tells(one)));
                self.abilities.entry(dev).or_default().name = Name::Known(magic);
                return None;
            }
        };
        let brought = match &completion.result {
            Ok(Event::Read(buf)) => buf.len() as u64,
            Ok(Event::Spliced(pipe)) => pipe.len() as u64,
            _ => 0,
        };
        self.end(ring, &read, brought);
        let result = match completion.result {
            Ok(Event::Read(buf)) => Ok(Data::Buffer(buf)),
            Ok(Event::Spliced(pipe)) => Ok(Data::Pipe(pipe)),
            Ok(event) => unreachable!("a read ended with {event:?}"),
            Err(error) if self.learns(&read, &error) => Ok(Data::Nothing),
            Err(error) => Err(error),
        };
        if let Ok(data) = &result {
            self.after(ring, &mut read, data.len());
        }
        Some(ReadDone {
            owner: read.owner,
            at: read.at,
            file: read.file,
            offset: read.offset,
            len: read.len,
            policy: read.policy,
            result,
            trail: read.trail,
        })
    }

    /// Takes account of a read that has ended and brought so much.
    fn end(&mut self, ring: &Ring, read: &Read, brought: u64) {
        self.now = ring.now();
        let device = read.file.device();
        self.reads.end(device, self.now);
        if self.devices.end_silence(device, self.now) {
            self.silences.push_back(Silence::Ended(device));
        }
        let took = self.now.since(read.began);
        let pace = self.paces.entry(device).or_default();
        if brought > 0 && !pace.readahead() {
            let is_idle = self.line.going_on().all(|it| it != device);
            pace.set_spaced(self.devices.end(device, brought, took, is_idle, self.now));
        }
        pace.end(read.len, brought, since_start(self.now));
        self.stats.miss_bytes += brought;
        self.stats.ended += 1;
        let device = self.by_device.entry(device).or_default();
        device.ended += 1;
        device.time += took;
        read.file.end_read(&read.range(), read.readahead);
    }

    /// Returns whether a failure says that the file system cannot read in this way, and there is another
    /// way.
    fn learns(&mut self, read: &Read, error: &io::Error) -> bool {
        let cannot =
            matches!(error.kind(), io::ErrorKind::Unsupported | io::ErrorKind::InvalidInput);
        if !cannot {
            return false;
        }
        let abilities = self.abilities.entry(read.file.dev()).or_default();
        match read.how {
            How::Drop => abilities.drop = false,
            How::Splice => abilities.splice = false,
            How::Direct => read.file.direct().refuse(),
            How::Keep | How::Discard => return false,
        }
        true
    }

    fn after(&mut self, ring: &mut Ring, read: &mut Read, len: u64) {
        match read.how {
            How::Splice if read.trail.is_some() => {}
            How::Splice | How::Keep => {
                if read.policy.caching != Caching::Never {
                    // Who began to watch before the pages came would take them for its own.
                    read.file.note_kept();
                }
                read.file.remember_read(&read.range(), len, ring.now(), read.drops);
            }
            How::Discard if read.file.is_kept_since(read.watch) => {}
            How::Discard => {
                let (file, offset, len) = (read.file.fd().clone(), read.offset, read.len);
                let operation = Operation::Discard { _dropping: read.dropping.take() };
                self.submit(ring, Op::Discard { file, offset, len }, operation);
            }
            How::Direct | How::Drop => {}
        }
    }

    /// Returns whether this completion is of an operation of this disk, to be given to
    /// [`handle`](Self::handle).
    #[must_use]
    pub const fn owns(&self, token: Token) -> bool {
        token >= self.config.token_base && token - self.config.token_base < KEYS
    }
}

/// The interval at which late reads are looked for while streams stand in line.
const LOOK: Duration = Duration::from_secs(1);
/// A stream reads on for so long before those that stand in line come before it: several chunks of a quick disk,
/// which is read faster in one piece, or one chunk of a slow one.
const TURN_MAX: Duration = Duration::from_millis(30);
/// The tokens of a disk's operations are as many as there are keys of a slab.
const KEYS: Token = 1 << 56;
/// This fraction of the memory, and at least one buffer and one pipe, is for reads that streams wait for
/// at the head of their line. It pays where reads bring less than they were asked for: 200 streams of which every
/// second read does take 5.2 s with it, 6.5 without, and 13 with one buffer and one pipe (`tests/sharing.rs`). With small
/// windows a thousand streams take 8 % longer without it.
const URGENT_SHARE: usize = 4;
/// File systems whose names are asked for; files on others are read. A worker that serves a tree
/// meets the file systems mounted in it, and overlayfs has one for each of its layers.
const FILE_SYSTEMS_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use core::ffi::CStr;

    use ring::OpenHow;
    use ring::sim::{Config, World};

    use super::*;

    /// Waits for the next completion.
    fn next(ring: &mut Ring) -> Completion {
        let mut completions = Vec::new();
        while completions.is_empty() {
            ring.wait(None, &mut completions).unwrap();
        }
        assert_eq!(completions.len(), 1);
        completions.remove(0)
    }

    fn open(world: &World, ring: &mut Ring) -> Rc<File> {
        open_at(world, ring, c"f")
    }

    fn open_at(world: &World, ring: &mut Ring, path: &CStr) -> Rc<File> {
        let dir = Some(ring.sim_root(world));
        ring.submit(Op::Open { dir, path: path.into(), how: OpenHow::BENEATH }, KEYS);
        let Ok(Event::Opened(fd)) = next(ring).result else { unreachable!("it exists") };
        ring.submit(Op::Stat(fd.clone()), KEYS);
        let Ok(Event::Stat(stat)) = next(ring).result else { unreachable!("it exists") };
        Rc::new(File::new(fd, &stat))
    }

    #[test]
    fn streams_that_go_on_wait_for_the_pace_and_first_reads_do_not() {
        let world = World::new(Config::new(1));
        world.write_file("f", &vec![7; 16 << 20]);
        let mut ring = Ring::simulated(&world);
        let file = open(&world, &mut ring);
        let mut disk = Disk::new(DiskConfig::default()).unwrap();
        let read = |disk: &mut Disk, ring: &mut Ring, name, wait| {
            let (owner, offset) = (Owner::of(name), name * BLOCK);
            let request = ReadRequest {
                owner,
                at: offset,
                file: &file,
                offset,
                len: BLOCK,
                policy: Policy::default(),
                wait,
                readahead: Readahead::Off,
                takes: Takes::Memory,
                window: u64::MAX,
                turn: Time::default(),
                trail: None,
                is_urgent: true,
            };
            let begun = disk.read(ring, request);
            if begun.is_none() {
                disk.wait_in_line(ring, owner, &file, wait);
            }
            begun.is_some()
        };
        let begun: Vec<_> =
            (0..5).map(|name| read(&mut disk, &mut ring, name, Wait::Next)).collect();
        assert_eq!(begun, [true, true, true, false, false]);
        assert!(!disk.has_turn(), "its pace has no room for a chunk");
        assert!(read(&mut disk, &mut ring, 10, Wait::First));
        let mut ended = 0;
        while disk.next_waiting().is_none() {
            let completion = next(&mut ring);
            assert!(disk.handle(&mut ring, completion).is_some());
            ended += 1;
        }
        assert!((1..=3).contains(&ended), "{ended}");
    }

    /// A disk, and what became of its reads that have ended.
    struct Worker {
        ring: Ring,
        disk: Disk,
        file: Rc<File>,
    }

    impl Worker {
        /// Asks for a block; returns whether that fails at once.
        fn fails(&mut self, block: u64) -> bool {
            let request = ReadRequest {
                owner: Owner::of(1),
                at: block * BLOCK,
                file: &self.file,
                offset: block * BLOCK,
                len: BLOCK,
                policy: Policy::default(),
                wait: Wait::First,
                readahead: Readahead::Off,
                takes: Takes::Memory,
                window: u64::MAX,
                turn: Time::default(),
                trail: None,
                is_urgent: true,
            };
            self.disk.read(&mut self.ring, request).expect("there is room");
            self.disk.next_late().is_some()
        }

        fn would_fail(&mut self, block: u64, takes: Takes) -> bool {
            let range = block * BLOCK..self.file.size();
            self.disk.may_refuse()
                && self.disk.would_fail(&mut self.ring, &self.file, &range, takes)
        }

        /// Waits until then, and takes what ends; returns the news.
        fn pass(&mut self, until: Time) -> Vec<Silence> {
            self.ring.submit(Op::Timer(until), KEYS);
            let mut completions = Vec::new();
            while self.ring.now() < until {
                self.ring.wait(None, &mut completions).unwrap();
                for completion in completions.drain(..) {
                    if self.disk.owns(completion.token) {
                        self.disk.handle(&mut self.ring, completion);
                        while self.disk.next_late().is_some() {}
                    }
                }
            }
            core::iter::from_fn(|| self.disk.next_silence()).collect()
        }
    }

    #[test]
    fn disks_try_a_device_together_whose_reads_do_not_end() {
        const PATIENCE: Duration = Duration::from_secs(30);
        let world = World::new(Config::new(1));
        let device = world.make_device("slow");
        world.write_file("f", &vec![7; 16 << 20]);
        world.write_file("slow/f", &vec![7; 16 << 20]);
        let devices = Arc::new(Devices::default());
        let mut workers: Vec<_> = (0..2)
            .map(|_| {
                let mut ring = Ring::simulated(&world);
                let file = open_at(&world, &mut ring, c"slow/f");
                let config = DiskConfig { patience: Some(PATIENCE), ..DiskConfig::default() };
                let disk = Disk::sharing(config, Arc::default(), Arc::clone(&devices)).unwrap();
                Worker { ring, disk, file }
            })
            .collect();
        let [one, other] = &mut workers[..] else { unreachable!("there are two") };
        world.evict("slow/f");
        let start = one.ring.now();
        let at = |seconds| start + Duration::from_secs(seconds);
        assert!(!one.fails(0));
        assert_eq!(one.pass(at(1)), []);
        let silent = one.file.device();
        world.hang(device);
        assert!(!one.fails(1));
        assert_eq!(one.pass(at(30)), []);
        assert!(!one.would_fail(2, Takes::Files) && !other.would_fail(2, Takes::Files));
        assert_eq!(one.pass(at(32)), [Silence::Begun(silent)]);
        // One of all tries it in each such time.
        assert!(!other.would_fail(2, Takes::Files) && !other.fails(2));
        for _ in 0..3 {
            for worker in [&mut *one, &mut *other] {
                assert!(worker.would_fail(3, Takes::Files) && worker.fails(3));
            }
        }
        // What the response begins with is resident.
        assert!(!other.would_fail(0, Takes::Files) && other.would_fail(0, Takes::Memory));
        assert_eq!(other.pass(at(61)), []);
        assert!(one.would_fail(3, Takes::Files));
        assert_eq!(other.pass(at(63)), [], "one has told it");
        assert!(!one.would_fail(3, Takes::Files) && !one.fails(3));
        assert!(other.would_fail(3, Takes::Files));
        // The first read that ends tells all.
        world.release(device);
        assert_eq!(one.pass(at(64)), [Silence::Ended(silent)]);
        assert!(!one.would_fail(4, Takes::Files) && !one.fails(4));
        assert_eq!(other.pass(at(65)), []);
        assert!(!other.disk.may_refuse() && !other.fails(5));
    }

    #[test]
    fn a_stream_in_line_reads_when_the_pause_of_its_device_ends() {
        let world = World::new(Config::new(1));
        world.write_file("f", &vec![7; 1 << 20]);
        let mut ring = Ring::simulated(&world);
        let file = open(&world, &mut ring);
        let mut disk = Disk::new(DiskConfig::default()).unwrap();
        // A limit of 32 blocks in each second, which comes in slices.
        let device = file.device();
        let start = ring.now();
        let at = |ms| start + Duration::from_millis(ms);
        for slice in 0..20 {
            for read in 0..8 {
                let ms = slice * 250 + read;
                disk.devices.begin(device, BLOCK, Wait::Next, at(ms));
                disk.devices.begin(device, BLOCK, Wait::First, at(ms));
                let took = if read == 0 { 240 } else { 1 };
                disk.devices.end(device, BLOCK, Duration::from_millis(took), false, at(ms));
            }
        }
        let now = at(5_000);
        (0..32).for_each(|_| disk.devices.begin(device, BLOCK, Wait::Next, now));
        ring.submit(Op::Timer(now), KEYS);
        next(&mut ring);
        disk.now = ring.now();
        let opens_at = disk.devices.opens_at(device, disk.now).expect("it is spaced");
        disk.wait_in_line(&mut ring, Owner::of(1), &file, Wait::Next);
        assert_eq!(disk.next_waiting(), None);
        let completion = next(&mut ring);
        assert!(disk.handle(&mut ring, completion).is_none() && ring.now() >= opens_at);
        assert_eq!(disk.next_waiting(), Some(Owner::of(1)));
    }
}
