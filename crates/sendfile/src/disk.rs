//! Disks as one worker uses them: buffers, queue depth, and the queues of waiting streams.
//!
//! Streams wait in two queues. The first queue has the streams that want to read, each at most once. The second queue
//! has the streams that hold buffers while their peers receive nothing. When memory is short, the streams that have
//! been longest in the second queue give back buffers first. Only the peer can release sent bytes. So a connection
//! whose peer acknowledges nothing for 10 s is closed while other streams wait for memory.
//!
//! A device has a share of the reads, and a pace. The pace bounds the further reads of a stream, not the first read of
//! a file, so an index page does not wait for downloads. A stream in the queue overtakes streams whose device does not
//! answer. When a stream has read for 30 ms, other streams in the queue come first. If a read takes longer than
//! [`DiskConfig::patience`], the stream gets an error. The read stays counted until it ends.
//!
//! A read of more than 128 KiB uses a whole buffer of 256 KiB until three quarters of the buffers are taken. A shorter
//! read uses a part of a buffer. From then on each read uses a part: two windows of the transport, rounded up to a
//! power of two from 16 to 256 KiB. A transport of our own keeps the memory until the peer has acknowledged the bytes,
//! so small windows must not hold large buffers. `tests/sharing.rs` has the cost of whole buffers and of parts.
//!
//! If the pace says that a device is fast, the kernel reads ahead. The first read of a long range from such a device
//! has 4 KiB. So the kernel's first readahead window is short: the kernel reads this window in single pages, and later
//! windows in larger folios. Only one splice of a range is under way at a time, because the kernel would regard two
//! splices as random reads. On other devices the kernel's readahead is off, because one stream that reads 16 MiB ahead
//! makes all others wait. On these devices each stream keeps reads of its own in flight, and begins a read when less
//! than half of its prefetch window ([`Window`](crate::Window)) is used.
//!
//! For a transport that sends only from memory, the worker's thread copies resident bytes, at most 64 KiB at a time
//! (`copy.rs`). Such a copy needs no slot of a device, and is counted as a hit. The copy uses a buffer, as a read does.
//! When three quarters of the buffers are taken, a stream copies only in its turn, and only bytes that it needs next.
//!
//! If a response would begin with bytes of a device that does not answer, the response is refused before its head is
//! promised.
//!
//! A quarter of the memory is kept for bytes that a stream needs next, so prefetching for one stream never keeps
//! another stream from sending. A read ends in front of a block that is known to be resident. A stream that reads from
//! the disk anyway makes no exact residency checks (*looks*): the next splice shows as exactly which bytes are
//! resident, and costs less.

mod copy;
mod counts;
mod file_systems;
mod holders;
mod read;
mod silence;
mod turns;
mod upkeep;

use core::time::Duration;
use std::collections::HashMap;
use std::io;
use std::rc::Rc;
use std::sync::Arc;

use pace::Pace;
use ring::{
    Buffer, BufferPool, Completion, Device, Event, Fd, Key, Op, PROBE_BYTES_MAX, PipePool, Ring,
    Shares, Slab, Time, Token,
};

use crate::devices::{Devices, Silence, since_start};
use crate::direct::DescriptorSlots;
use crate::file::{BLOCK, File, Inodes, Readahead};
use crate::page_cache::PageCache;
use crate::policy::Caching;
pub use crate::stream_queue::Owner;
use crate::stream_queue::StreamQueue;
use crate::trail::Trail;
use crate::transport::Takes;
use crate::way::{EXT4, Unusual};
pub(crate) use copy::CopyRequest;
use counts::{Counts, Reads};
pub use counts::{DeviceStats, DiskStats};
use file_systems::{FileSystems, Name};
use holders::Holders;
pub(crate) use holders::Holding;
pub use read::ReadDone;
pub(crate) use read::{Begun, Data, ReadRequest};
use read::{How, Read};
use silence::Late;
pub use silence::Tries;
use upkeep::{Sweeps, Upkeep};

/// The size of a [`Disk`].
#[derive(Clone, Copy, Debug)]
pub struct DiskConfig {
    /// The bytes of all buffers together; rounded down to whole buffers of 256 KiB. There are at least 4 buffers.
    pub memory_bytes: usize,
    /// The maximum of pipes. A pipe has at most 1 MiB of the page cache on the way to a socket. 0 means that all bytes
    /// are read into buffers.
    pub pipes: usize,
    /// The maximum of files that stay open after their streams have ended, until their pages have left the page cache:
    /// for at most a minute. At this limit, pages that are on their way to a peer stay in the page cache. The same
    /// number is the maximum of files with a second descriptor, for reads that bypass the page cache.
    pub lingering_files: usize,
    /// The maximum of reads in flight. One device has at most a half of these reads, and at most a quarter if the
    /// device has not answered for a second ([`Shares`]).
    pub depth: usize,
    /// If set, a read that takes longer than this time fails. If no read of a device has ended for this time, further
    /// reads of the device fail at once. All disks with the same [`Devices`] together try one read of the device in
    /// each period of this length.
    pub patience: Option<Duration>,
    /// The tokens of the disk's own operations are `token_base` plus a number below 2⁵⁶.
    pub token_base: Token,
}

impl Default for DiskConfig {
    /// 16 MiB, 64 pipes and 64 reads are enough for 64 streams that each keep one read in flight. 1,024 lingering files
    /// are enough if 1,024 streams end within a second.
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

/// The disks as one worker uses them: a pool of buffers, reads in flight, and the queues of streams.
#[derive(Debug)]
pub struct Disk {
    pool: BufferPool,
    pipes: PipePool,
    config: DiskConfig,
    operations: Slab<Operation>,
    /// The reads among the operations, by device.
    reads: Shares,
    /// The last time that was read from the ring's clock.
    now: Time,
    /// Streams that wait for a read.
    queue: StreamQueue,
    /// The stream that was first in the queue and has not begun a read since.
    turn: Option<Owner>,
    late: Late,
    holders: Rc<Holders>,
    inodes: Inodes,
    page_cache: Arc<PageCache>,
    sweeps: Sweeps,
    /// Places for second descriptors of files.
    direct: DescriptorSlots,
    file_systems: FileSystems,
    paces: HashMap<Device, Pace>,
    devices: Arc<Devices>,
    /// The time of the earliest timer. At this time a stream that waits for the end of a device's pause may read again.
    opens_at: Option<Time>,
    counts: Counts,
}

/// An operation in flight. The token of the operation contains the key.
#[derive(Debug)]
enum Operation {
    Read(Read),
    /// A read whose failure was reported to its owner. It cannot be cancelled, and keeps its slot.
    Late(Read),
    /// An operation for which no stream waits.
    Upkeep(Upkeep),
}

impl Disk {
    /// Maps the buffers.
    ///
    /// # Errors
    ///
    /// The errors of `mmap(2)`.
    pub fn new(config: DiskConfig) -> io::Result<Self> {
        Self::sharing(config, Arc::default(), Arc::default())
    }

    /// Maps the buffers. The disk shares the knowledge of other workers' disks about the page cache and the devices. If
    /// disks send the same files with different policies, they know residency exactly only if they share this
    /// knowledge.
    ///
    /// # Errors
    ///
    /// The errors of `mmap(2)`.
    pub fn sharing(
        config: DiskConfig,
        page_cache: Arc<PageCache>,
        devices: Arc<Devices>,
    ) -> io::Result<Self> {
        let block = PROBE_BYTES_MAX;
        let buffers = (config.memory_bytes / block).max(4);
        // The shares of devices are computed from the smallest of these numbers. So a device that does not answer
        // cannot take all buffers or all pipes.
        let pipes = if config.pipes == 0 { usize::MAX } else { config.pipes };
        let reads = config.depth.min(buffers).min(pipes);
        Ok(Self {
            pool: BufferPool::new(block, buffers)?,
            pipes: PipePool::new(config.pipes),
            config,
            operations: Slab::new(),
            reads: Shares::new(reads),
            now: Time::default(),
            queue: StreamQueue::default(),
            turn: None,
            late: Late::default(),
            holders: Rc::default(),
            inodes: Inodes::default(),
            sweeps: Sweeps::new(config.lingering_files, &page_cache),
            page_cache,
            direct: DescriptorSlots::new(config.lingering_files),
            file_systems: FileSystems::default(),
            paces: HashMap::new(),
            devices,
            opens_at: None,
            counts: Counts::default(),
        })
    }

    /// Changes [`DiskConfig::patience`] from now on.
    pub const fn set_patience(&mut self, patience: Option<Duration>) {
        self.config.patience = patience;
    }

    /// The number of reads in flight.
    #[must_use]
    pub const fn in_flight(&self) -> usize {
        self.reads.taken()
    }

    /// The counts of resident ranges and of ranges that had to be read.
    #[must_use]
    pub const fn stats(&self) -> DiskStats {
        self.counts.all
    }

    /// The devices from which this disk has read, with their counts.
    pub fn devices(&self) -> impl Iterator<Item = (Device, DeviceStats)> {
        self.counts.by_device.iter().map(|(device, reads)| {
            let Reads { begun, ended, time, bytes } = *reads;
            let rate = self.paces.get(device).and_then(Pace::rate);
            let waiting = self.queue.waiting(*device) as u64;
            (*device, DeviceStats { begun, ended, time, bytes, waiting, rate })
        })
    }

    /// The number of streams that wait until they may read.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// Notes that a resident range of `bytes` was sent.
    pub(crate) const fn note_hit(&mut self, bytes: u64) {
        self.counts.all.hits += 1;
        self.counts.all.hit_bytes += bytes;
    }

    /// The number of buffers that are held by reads in flight or by streams.
    #[must_use]
    pub fn buffers_lent(&self) -> usize {
        self.pool.count() - self.pool.available()
    }

    /// Returns whether a slot, a buffer and a pipe are free, so that a read could begin now.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.has_room_beside(0, 0)
    }

    /// Returns true if a read could begin now, and these numbers of buffers and pipes would be left for other reads.
    fn has_room_beside(&self, buffers: usize, pipes: usize) -> bool {
        self.reads.taken() < self.config.depth
            && (self.pool.available() > buffers || buffers == 0 && self.pool.has_part())
            && (self.config.pipes == 0 || self.pipes.available() > pipes)
    }

    /// Returns whether streams wait for a buffer or a pipe, and not only for the end of a read in flight. If so, call
    /// [`reclaim`](crate::Stream::reclaim) for the streams of [`next_holder`](Self::next_holder).
    #[must_use]
    pub fn is_starved(&self) -> bool {
        !self.queue.is_empty() && self.reads.taken() < self.config.depth && !self.has_room()
    }

    /// The next file system whose files are sent in an unusual way, for a report to the operator. Disks with the same
    /// [`Devices`] together name each file system once. Call this after [`handle`](Self::handle).
    pub fn next_unusual(&mut self) -> Option<Unusual> {
        self.file_systems.next_unusual()
    }

    /// Gives a file what residency checks need: what other open files of the inode and other workers know, and the type
    /// of the file system. Call this before each use of the file. If the type of the file system is not known yet, an
    /// operation asks for the type. Until this operation ends, the file system is regarded as a usual file system.
    pub(crate) fn introduce(&mut self, ring: &mut Ring, file: &File) {
        self.inodes.share(file, &self.page_cache);
        if file.is_introduced() {
            return;
        }
        match self.file_systems.name(file.dev()) {
            Name::Known(magic) => {
                file.introduce(magic);
                if magic == Some(EXT4) && file.size() >= SCATTERED_BYTES_MIN {
                    self.keep_up(ring, Op::Extents(file.fd().clone()), Upkeep::Extents);
                }
            }
            Name::Asked => {}
            Name::NotAsked => {
                let upkeep = Upkeep::Name { dev: file.dev(), file: file.fd().clone() };
                self.keep_up(ring, Op::FileSystem(file.fd().clone()), upkeep);
            }
        }
    }

    /// Returns whether the kernel's readahead may be used on a file. It may be used if the device of the file is known
    /// to be fast. On a slow device each stream would wait for the readahead of other streams. Once begun, the
    /// readahead of a file ends only with the file.
    pub(crate) fn may_read_ahead(&self, file: &File) -> bool {
        self.paces.get(&file.device()).is_some_and(Pace::lets_kernel_read_ahead)
    }

    /// Returns whether a read can leave its pages in the page cache, so that these pages are dropped later. Only a
    /// splice can.
    pub(crate) fn may_leave(&self, file: &File, takes: Takes) -> bool {
        takes == Takes::Files && self.file_systems.splices(file.dev())
    }

    /// Begins the trail of a stream that reads the file from `offset` on and keeps nothing in the page cache. From
    /// `offset` to
    /// `absent_to`, no page of the file is in the page cache.
    pub(crate) fn begin_trail(
        &mut self,
        ring: &mut Ring,
        file: &Rc<File>,
        offset: u64,
        absent_to: u64,
    ) -> Rc<Trail> {
        self.now = ring.now();
        self.begin_sweeps(ring);
        self.sweeps.trails.begin(file, offset, absent_to)
    }

    /// Begins a read, or returns `None` if the read has to wait. Bytes go through a pipe if their pages stay in the
    /// page cache until the bytes are sent, unless the transport sends only from memory. Other bytes go through a
    /// buffer.
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
            self.late.push(read.late());
            self.look_at(ring, began);
            return Some(Begun { len, alone: false, turn: request.turn });
        }
        if !self.may_begin(device, request.wait) {
            return None;
        }
        if self.now.since(request.turn) >= STREAM_TURN_MAX {
            if !self.has_turn_now(owner, request.wait) {
                return None;
            }
            read.turn = self.now;
        }
        let keep = policy.caching != Caching::Never;
        let abilities = self.file_systems.abilities(read.file.dev());
        read.file.advise(ring, readahead);
        let file = read.file.fd().clone();
        let may_splice = request.takes == Takes::Files && (keep || request.trail.is_some());
        // If no descriptor is left for a pipe, the read uses a buffer, which needs no descriptor.
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

    /// The maximum of bytes of a read into a buffer: a block. When three quarters of the memory are taken, the maximum
    /// is two windows of the transport, rounded up to a power of two. The reason is that the stream keeps these bytes
    /// until its peer has acknowledged them.
    fn buffer_bytes(&self, window: u64) -> u64 {
        if self.pool.available() > self.pool.count().div_ceil(URGENT_SHARE) {
            return BLOCK;
        }
        let least = self.pool.part_bytes() as u64;
        window.saturating_mul(2).clamp(least, BLOCK).next_power_of_two()
    }

    /// A buffer for at most `bytes`.
    fn take_buffer(&self, bytes: u64) -> Option<Buffer> {
        let bytes = usize::try_from(bytes).expect("at most a block");
        let is_small = bytes <= self.pool.size() / 2;
        let whole = if is_small { None } else { self.pool.take(bytes) };
        whole.or_else(|| self.pool.take_part(bytes))
    }

    /// The descriptor and the bytes of a read that bypasses the page cache, if possible. If other readers have brought
    /// pages of the range, the result is `None`, because these pages need only be copied. If at least a block of the
    /// file follows this read, such a descriptor is opened for later reads.
    fn direct(&mut self, ring: &mut Ring, read: &Read) -> Option<(Fd, u64)> {
        let direct = read.file.direct();
        let follows = read.file.size().saturating_sub(read.offset + read.len) >= BLOCK;
        if follows && let Some((op, place)) = direct.open(read.file.fd(), &self.direct) {
            let file = Rc::clone(&read.file);
            self.keep_up(ring, op, Upkeep::Direct { file, place });
            return None;
        }
        let found = direct.read(read.offset, read.len)?;
        (!read.file.is_cached(ring, read.offset, read.len)).then_some(found)
    }

    fn submit_read(&mut self, ring: &mut Ring, op: Op, mut read: Read) -> Begun {
        let fills_cache = matches!(read.how, How::Splice | How::Keep);
        let alone = fills_cache && read.readahead == Readahead::Usual;
        let begun = Begun { len: read.len, alone, turn: read.turn };
        read.file.begin_read(&read.range(), read.readahead);
        match read.how {
            How::Splice if read.trail.is_some() => {
                let surplus = self.sweeps.trails.surplus();
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
        self.counts.begin(device);
        let pace = self.paces.entry(device).or_default();
        let is_ahead = pace.lets_kernel_read_ahead();
        self.devices.begin(device, read.len, read.wait, is_ahead, self.now);
        pace.begin(read.len, since_start(self.now));
        if alone {
            // The room is what the reads of all streams leave of the device's window. If there are many streams, they
            // leave nothing.
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

    fn submit(&mut self, ring: &mut Ring, op: Op, operation: Operation) {
        let key = self.operations.insert(operation);
        ring.submit(op, self.config.token_base + key.to_bits());
    }

    /// Handles the completion of an operation of this disk. `None` means that no stream waits for it.
    ///
    /// # Panics
    ///
    /// If the completion is of no operation of this disk.
    pub fn handle(&mut self, ring: &mut Ring, completion: Completion) -> Option<ReadDone> {
        assert!(self.owns(completion.token), "an operation of this disk");
        let key = Key::from_bits(completion.token - self.config.token_base);
        let operation = self.operations.remove(key).expect("each operation ends once");
        match operation {
            Operation::Read(read) => Some(self.end_read(ring, read, completion.result)),
            Operation::Late(read) => {
                self.late.ended();
                self.end(ring, &read, 0);
                None
            }
            Operation::Upkeep(upkeep) => {
                self.handle_upkeep(ring, upkeep, completion.result);
                None
            }
        }
    }

    /// The result of a read for its owner.
    fn end_read(&mut self, ring: &mut Ring, mut read: Read, result: io::Result<Event>) -> ReadDone {
        let brought = match &result {
            Ok(Event::Read(buf)) => buf.len() as u64,
            Ok(Event::Spliced(pipe)) => pipe.len() as u64,
            _ => 0,
        };
        self.end(ring, &read, brought);
        let result = match result {
            Ok(Event::Read(buf)) => Ok(Data::Buffer(buf)),
            Ok(Event::Spliced(pipe)) => Ok(Data::Pipe(pipe)),
            Ok(event) => unreachable!("a read ended with {event:?}"),
            Err(error) if self.learns(&read, &error) => Ok(Data::Nothing),
            Err(error) => Err(error),
        };
        if let Ok(data) = &result {
            self.after(ring, &mut read, data.len());
        }
        ReadDone {
            owner: read.owner,
            at: read.at,
            file: read.file,
            offset: read.offset,
            len: read.len,
            policy: read.policy,
            result,
            trail: read.trail,
        }
    }

    /// Takes account of a read that has ended, and that brought `brought` bytes from the device.
    fn end(&mut self, ring: &Ring, read: &Read, brought: u64) {
        self.now = ring.now();
        let device = read.file.device();
        self.reads.end(device, self.now);
        if self.devices.end_silence(device, self.now) {
            self.late.silences.push_back(Silence::Ended(device));
        }
        let took = self.now.since(read.began);
        let pace = self.paces.entry(device).or_default();
        if brought > 0 && !pace.lets_kernel_read_ahead() {
            let is_idle = self.queue.going_on().all(|it| it != device);
            pace.set_spaced(self.devices.end(device, brought, took, is_idle, self.now));
        }
        pace.end(read.len, brought, since_start(self.now));
        self.counts.end(device, brought, took);
        read.file.end_read(&read.range(), read.readahead);
    }

    /// Returns whether a failure means that the file system cannot read in this way, and that the file has to be read
    /// in another way.
    fn learns(&mut self, read: &Read, error: &io::Error) -> bool {
        let cannot =
            matches!(error.kind(), io::ErrorKind::Unsupported | io::ErrorKind::InvalidInput);
        if !cannot {
            return false;
        }
        if read.how == How::Direct {
            read.file.direct().refuse();
            return true;
        }
        self.file_systems.refuse(read.file.dev(), read.how)
    }

    fn after(&mut self, ring: &mut Ring, read: &mut Read, len: u64) {
        match read.how {
            How::Splice if read.trail.is_some() => {}
            How::Splice | How::Keep => {
                if read.policy.caching != Caching::Never {
                    // A watch of another read may have begun while this read was in flight. Without this note, the
                    // other read would discard these pages.
                    read.file.note_kept();
                }
                read.file.remember_read(&read.range(), len, ring.now(), read.drops);
            }
            How::Discard if read.file.is_kept_since(read.watch) => {}
            How::Discard => {
                let (file, offset, len) = (read.file.fd().clone(), read.offset, read.len);
                let upkeep = Upkeep::Discard { _dropping: read.dropping.take() };
                self.keep_up(ring, Op::Discard { file, offset, len }, upkeep);
            }
            How::Direct | How::Drop => {}
        }
    }

    /// Returns whether this token is of an operation of this disk. If so, give the completion to
    /// [`handle`](Self::handle).
    #[must_use]
    pub const fn owns(&self, token: Token) -> bool {
        token >= self.config.token_base && token - self.config.token_base < KEYS
    }
}

/// The time for which a stream may read; after this time, waiting streams come first. A fast disk reads several chunks
/// in this time, and is faster if they belong to one file. A slow disk reads one chunk.
const STREAM_TURN_MAX: Duration = Duration::from_millis(30);
/// The number of tokens of a disk's operations: the number of keys of a slab.
const KEYS: Token = 1 << 56;
/// The memory divided by this number, and at least one buffer and one pipe, is kept for reads that streams need next.
/// This share helps if reads bring fewer bytes than they ask for. If every second read brings fewer bytes, 200 streams
/// take 5.2 s with this share, and 6.5 s without it. With a share of one buffer and one pipe, they take 13 s
/// (`tests/sharing.rs`). Without the share, 1,000 streams with small windows take 8 % longer.
const URGENT_SHARE: usize = 4;
/// For a smaller file, all extents are assumed to be in one block of ext4's tree. Such a block has room for 340
/// extents: with more extents, the pieces of the file would have less than 48 KiB on average. The first read of a file
/// also brings this block.
const SCATTERED_BYTES_MIN: u64 = 16 << 20;

#[cfg(test)]
mod tests;
