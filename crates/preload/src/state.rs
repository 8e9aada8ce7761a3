//! Which sockets are deferred, and which reads they wait for: everything under the one lock.
//!
//! Pure: who calls reads the files, opens and closes descriptors, and makes the changes of interest
//! that are returned.
//!
//! A *job* reads one file from some offset on, a block at a time. Sockets stand on its list, each
//! for one byte of the file, and are resumed when the job has passed it. A job goes on behind the
//! last one's wish by a window, which grows while its file is read in order, so that the disk does
//! not idle while the program sends what has come.

use core::ffi::c_int;

use crate::depth::Depth;
use crate::descriptors::{DEFERRED, Entry, IN_USE, LOCKER, Link, OURS, SHARED, Table, UNSEEN};
use crate::hash::hash;
use crate::interest::{Change, Changes};
use crate::locked::Locked;
use crate::residency::BLOCK;
use crate::stats::Reason;
use crate::sys::{Errno, FileId, Readahead};

/// Files being read, or about to be. Beyond, a socket waits until any of them has come a step on.
const JOBS_MAX: usize = 512;
/// How long nothing is deferred after not a single thread could be started.
const THREADLESS_US: u64 = 5_000_000;
/// Sockets that are resumed at once; then others may have the lock.
pub(crate) const RESUMED_MAX: usize = 64;
/// How far a job reads ahead of the sockets that wait for it.
const WINDOW_MAX: u64 = 4 * BLOCK;
/// The same on a fast disk, where half of it is waited for: to be told more often costs more than the
/// disk. The kernel reads ahead there, often as far; what a reader has not passed the program would
/// have to look at itself, which is a copy.
const WINDOW_FAST_MAX: u64 = 32 * BLOCK;
/// There a stream that begins gets twice what is asked for, and at least this, if that is half a block
/// or more (nginx asks for 2 MiB at a time, lighttpd for 256 KiB less the header): a job that has ended
/// when the program asks for more has left the disk idle, and its readahead begins anew.
const WINDOW_FAST_MIN: u64 = 8 * BLOCK;
/// The part of memory that all streams together may have read ahead: more would push out what others
/// wait to send.
const PREFETCH_PART: u64 = 8;
/// Ends of jobs that are remembered, to see that the next begins there. Others overwrite them.
const ENDS_MAX: usize = 1024;
/// Disks whose speed is remembered; a further one takes the place of another.
const DISKS_MAX: usize = 16;
/// Deferrals of one socket at one offset, after which the kernel may wait for the disk itself:
/// what is read is evicted before it can be sent.
const STRIKES_MAX: u32 = 8;
/// Calls for a deferred socket within [`CALLS_US`], after which it is not deferred for [`UNSEEN_US`]: the
/// program waits in a way that cannot be seen, and spins. A call takes 2 to 4 us. No client can have a
/// server make as many: it would have to come to the socket each 10 us, for every call of its loop.
const CALLS_MAX: u32 = 10_000;
const CALLS_US: u64 = 100_000;
const UNSEEN_US: u64 = 10_000_000;
/// A read of a block that has taken longer, divided by the disk's readers, shows a slow disk: less
/// than 83 MiB/s.
const SLOW_US: u64 = 3_000;
/// The same where the kernel reads ahead: a read may have to wait for all of that, usually 128 KiB to
/// 8 MiB; and for what is read ahead of all other streams, so it takes [`SLOW_AHEAD_READS`], one after
/// the other, to tell a slow disk from a long queue.
const SLOW_AHEAD_US: u64 = 50_000;
const SLOW_AHEAD_READS: u32 = 4;
/// Reads of a block in a row that take less than [`FAST_US`], divided by the disk's readers, show a
/// fast disk, of 167 MiB/s: what is read ahead of some is soon out of the way of others. They are
/// 18 MiB, more than a limit of that bandwidth lets through at once, which is a tenth of a second's
/// (`throtl_slice` in block/blk-throttle.c): with fewer, a disk of 64 MiB/s looked fast, and what was
/// read ahead of eight streams took it two seconds.
const FAST_READS: u32 = 72;
const FAST_US: u64 = 1_500;
const PAGE: u64 = 4096;

/// What a call of `sendfile` wants to send next, and is not in memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Want {
    pub(crate) file: FileId,
    pub(crate) offset: u64,
    pub(crate) count: u64,
}

/// What becomes of that call.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Verdict {
    /// The socket is full until the file has been read.
    Deferred(Changes),
    /// The read has failed.
    Failed(Errno),
    /// The kernel may do what it would do without us.
    Left(Reason, Changes),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Free,
    /// In line for a thread.
    Pending,
    Reading,
    /// Nothing more will come: nobody may join.
    Ended,
}

/// The descriptors of a job, which are closed at its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Files {
    /// The open file of the program, by a number of ours; none if the program has closed that.
    pub(crate) shared: Option<c_int>,
    /// The same file, opened for the job alone, if that could be done.
    pub(crate) own: Option<c_int>,
}

impl Files {
    const NONE: Self = Self { shared: None, own: None };

    pub(crate) fn all(self) -> impl Iterator<Item = c_int> {
        [self.shared, self.own].into_iter().flatten()
    }
}

#[derive(Clone, Copy, Debug)]
struct Job {
    phase: Phase,
    file: FileId,
    files: Files,
    /// The next byte to read.
    at: u64,
    /// Where others may have the reader, on a fast disk.
    yield_at: u64,
    /// How far to read; beyond [`Job::at`] only while somebody waits or may soon.
    end: u64,
    window: u64,
    ticket: u64,
    waiters: Link,
}

impl Job {
    const FREE: Self = Self {
        phase: Phase::Free,
        file: FileId { dev: 0, ino: 0 },
        files: Files::NONE,
        at: 0,
        yield_at: 0,
        end: 0,
        window: 0,
        ticket: 0,
        waiters: Link::NONE,
    };

    /// Reads that are wanted behind a byte that is waited for.
    fn reach(&mut self, want: Want) {
        let block_end = end_of_block(want.offset);
        let wanted = want.offset.saturating_add(want.count);
        // Beyond one block, whole blocks: only those are remembered, and at the end of the file it is
        // the same.
        let reach = if self.window > 0 {
            block_end.saturating_add(self.window)
        } else if wanted > block_end {
            block_end.saturating_add(BLOCK)
        } else {
            wanted
        };
        self.end = self.end.max(reach);
    }

    /// The byte that is waited for: the first that is wanted, or on a fast disk the last of half a
    /// window.
    fn until(&self, want: Want, is_fast: bool) -> u64 {
        let wanted = want.offset.saturating_add(want.count.min(self.window / 2)).min(self.end);
        if is_fast { wanted.saturating_sub(1).max(want.offset) } else { want.offset }
    }
}

/// One step of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Chunk {
    pub(crate) files: Files,
    /// What swallows bytes that nobody wants to see, if there is such.
    pub(crate) sink: Option<c_int>,
    pub(crate) file: FileId,
    pub(crate) offset: u64,
    pub(crate) len: u64,
    /// Who is reading from the disk now, this one included.
    pub(crate) readers: usize,
}

#[derive(Clone, Copy, Debug)]
struct Disk {
    dev: u64,
    fast_reads: u32,
    slow_reads: u32,
    /// When the last of the slow ones ended.
    slow_us: u64,
    /// Readers at work there, and how many may be.
    readers: usize,
    depth: Depth,
}

impl Disk {
    const fn unknown(dev: u64) -> Self {
        Self { dev, fast_reads: 0, slow_reads: 0, slow_us: 0, readers: 0, depth: Depth::new() }
    }

    fn has_room(&self) -> bool {
        self.readers < self.depth.readers()
    }
}

/// A job has ended there, and had this window.
#[derive(Clone, Copy, Debug)]
struct End {
    place: u64,
    window: u64,
}

/// Everything under the lock.
pub(crate) struct State {
    pub(crate) table: Table,
    jobs: [Job; JOBS_MAX],
    /// No job from this index on is in use.
    jobs_used: usize,
    tickets: u64,
    ends: [End; ENDS_MAX],
    disks: [Disk; DISKS_MAX],
    disks_used: usize,
    /// This process's share of memory, in bytes, once a reader has been there.
    memory: u64,
    /// Sockets that have waited at least once, until they are closed.
    streams: u64,
    /// How many are about to open or to close descriptors that the table does not know: a child that is
    /// forked meanwhile would have them for ever.
    pub(crate) in_transit: usize,
    /// `/dev/null`, once a reader has been there.
    pub(crate) sink: Option<c_int>,
    /// The files that the program has locked. There is room to park all descriptors of all jobs, of which
    /// each has two and parks them once: no job begins at a locked file.
    pub(crate) locked: Locked<{ 2 * JOBS_MAX }>,
    /// Readers that exist, and those of them that sleep.
    pub(crate) threads: usize,
    pub(crate) idle: usize,
    /// No thread could be started: nothing is deferred until then, in microseconds.
    threadless_until: u64,
}

impl State {
    pub(crate) const fn new() -> Self {
        Self {
            table: Table::empty(),
            jobs: [Job::FREE; JOBS_MAX],
            jobs_used: 0,
            tickets: 0,
            ends: [End { place: 0, window: 0 }; ENDS_MAX],
            disks: [Disk::unknown(0); DISKS_MAX],
            disks_used: 0,
            memory: u64::MAX,
            streams: 0,
            in_transit: 0,
            sink: None,
            locked: Locked::none(),
            threads: 0,
            idle: 0,
            threadless_until: 0,
        }
    }

    /// A socket wants what is not in memory. `open` makes a descriptor for a new job.
    pub(crate) fn defer(
        &mut self,
        socket: c_int,
        want: Want,
        now_us: u64,
        open: impl FnOnce() -> Option<c_int>,
    ) -> Verdict {
        let left = |reason| Verdict::Left(reason, Changes::default());
        let flags = self.table.flags(socket);
        let Some(entry) = self.table.entry(socket) else {
            return left(Reason::NoRoom);
        };
        if flags & SHARED != 0 || !entry.interest.is_deferrable() {
            return left(Reason::Watchers);
        }
        if flags & UNSEEN != 0 {
            return left(Reason::UnseenLoop);
        }
        if now_us < self.threadless_until {
            return left(Reason::NoRoom);
        }
        if self.locked.is_locked(want.file) {
            return Verdict::Left(Reason::Locked, self.cancel(socket));
        }
        if entry.failed != 0 && entry.failed_place == page(want) {
            return Verdict::Failed(entry.failed);
        }
        if let Some(verdict) = self.patience(socket, want, now_us) {
            return verdict;
        }
        let Some((index, offset)) = self.place(want, open) else {
            return Verdict::Left(Reason::NoRoom, self.cancel(socket));
        };
        if offset.is_none()
            && let Some(entry) = self.table.entry(socket)
        {
            // Nothing is read for it yet.
            entry.strikes = entry.strikes.saturating_sub(1);
        }
        self.link(socket, index, offset.unwrap_or(0), now_us)
    }

    /// The program has been told of the read that failed.
    pub(crate) fn error_was_told(&mut self, socket: c_int) {
        if let Some(entry) = self.table.entry(socket) {
            entry.failed = 0;
        }
    }

    /// Whether the last that the socket waited for was this, and it does not any more.
    pub(crate) fn has_waited(&mut self, socket: c_int, want: Want) -> bool {
        self.table.entry(socket).is_some_and(|it| it.job == 0 && it.place == place(want))
    }

    /// Whether it has waited enough, or waits for that already.
    fn patience(&mut self, socket: c_int, want: Want, now_us: u64) -> Option<Verdict> {
        let place = place(want);
        let entry = self.table.entry(socket)?;
        if now_us < entry.unseen_until_us {
            return Some(Verdict::Left(Reason::UnseenLoop, Changes::default()));
        }
        if now_us.saturating_sub(entry.calls_from_us) >= CALLS_US {
            (entry.calls, entry.calls_from_us) = (0, now_us);
        }
        if entry.job == 0 {
            entry.strikes = if entry.place == place { entry.strikes + 1 } else { 1 };
            entry.place = place;
            if entry.strikes <= STRIKES_MAX {
                return None;
            }
            entry.strikes = 0;
            return Some(Verdict::Left(Reason::NoProgress, Changes::default()));
        }
        entry.calls += 1;
        let same = entry.place == place;
        entry.place = place;
        if entry.calls > CALLS_MAX {
            entry.unseen_until_us = now_us.saturating_add(UNSEEN_US);
            return Some(Verdict::Left(Reason::UnseenLoop, self.cancel(socket)));
        }
        same.then(|| Verdict::Deferred(Changes::default()))
    }

    /// The job that is to bring this, and the byte to wait for; or one that is in the way, whatever it
    /// reads next.
    fn place(
        &mut self,
        want: Want,
        open: impl FnOnce() -> Option<c_int>,
    ) -> Option<(usize, Option<u64>)> {
        let is_fast = self.readahead(want.file.dev) == Readahead::Usual;
        let share = self.memory / PREFETCH_PART / self.streams.max(1) / BLOCK * BLOCK;
        let window_max = share.clamp(BLOCK, if is_fast { WINDOW_FAST_MAX } else { WINDOW_MAX });
        let used = &mut self.jobs[..self.jobs_used];
        let joins = |job: &Job| {
            matches!(job.phase, Phase::Pending | Phase::Reading)
                && job.file == want.file
                && (job.at..=job.end).contains(&want.offset)
        };
        if let Some(index) = used.iter().position(joins) {
            let job = &mut used[index];
            job.window = (job.window * 2).clamp(BLOCK, window_max);
            job.reach(want);
            return Some((index, Some(job.until(want, is_fast))));
        }
        let free = used.iter().position(|job| job.phase == Phase::Free).unwrap_or(used.len());
        if free < JOBS_MAX
            && let Some(fd) = open()
        {
            self.tickets += 1;
            let window = self.window(want, window_max);
            let window = if is_fast && want.count >= BLOCK / 2 {
                window.max(want.count.saturating_mul(2).max(WINDOW_FAST_MIN)).min(window_max)
            } else {
                window
            };
            let end = want.offset;
            let (file, at, ticket) = (want.file, want.offset / PAGE * PAGE, self.tickets);
            let (phase, files) = (Phase::Pending, Files { shared: Some(fd), ..Files::NONE });
            let waiters = Link::NONE;
            self.table.set_flags(fd, OURS);
            let yield_at = at.saturating_add(WINDOW_FAST_MAX);
            self.jobs[free] =
                Job { phase, file, files, at, yield_at, end, window, ticket, waiters };
            self.jobs[free].reach(want);
            self.jobs_used = self.jobs_used.max(free + 1);
            return Some((free, Some(self.jobs[free].until(want, is_fast))));
        }
        // No room for another: try again when something has happened.
        let used = &self.jobs[..self.jobs_used];
        let alive = |job: &Job| matches!(job.phase, Phase::Pending | Phase::Reading);
        used.iter().position(alive).map(|index| (index, None))
    }

    /// The window of a new job: none, or twice that of the job that ended where this one begins.
    fn window(&self, want: Want, window_max: u64) -> u64 {
        let place = page(want);
        let end = self.ends[slot(place, ENDS_MAX)];
        if end.place == place { (end.window * 2).clamp(BLOCK, window_max) } else { 0 }
    }

    fn link(&mut self, socket: c_int, index: usize, offset: u64, now_us: u64) -> Verdict {
        self.unlink(socket);
        let head = self.jobs[index].waiters;
        let flags = self.table.flags(socket);
        let Some(entry) = self.table.entry(socket) else {
            return Verdict::Left(Reason::NoRoom, Changes::default());
        };
        if flags & DEFERRED == 0 {
            entry.since_us = now_us;
        }
        if !entry.is_stream {
            entry.is_stream = true;
            self.streams += 1;
        }
        entry.job = u16::try_from(index + 1).unwrap_or(0);
        entry.offset = offset;
        entry.next = head;
        let changes = entry.interest.defer();
        if let Some(next) = head.fd().and_then(|fd| self.table.entry(fd)) {
            next.previous = Link::to(socket);
        }
        self.jobs[index].waiters = Link::to(socket);
        self.table.set_flags(socket, flags | IN_USE | DEFERRED);
        Verdict::Deferred(changes)
    }

    fn unlink(&mut self, socket: c_int) {
        let Some(entry) = self.table.entry(socket).filter(|entry| entry.job != 0) else {
            return;
        };
        let (job, next, previous) = (entry.job, entry.next, entry.previous);
        (entry.job, entry.next, entry.previous) = (0, Link::NONE, Link::NONE);
        if let Some(next) = next.fd().and_then(|fd| self.table.entry(fd)) {
            next.previous = previous;
        }
        match previous.fd().and_then(|fd| self.table.entry(fd)) {
            Some(previous) => previous.next = next,
            None => self.jobs[usize::from(job) - 1].waiters = next,
        }
    }

    /// The socket does not wait any more. Nothing to change if it did not.
    pub(crate) fn cancel(&mut self, socket: c_int) -> Changes {
        self.unlink(socket);
        self.table.set_flags(socket, self.table.flags(socket) & !DEFERRED);
        self.table.entry(socket).map_or_else(Changes::default, |entry| entry.interest.resume())
    }

    /// The socket is never to wait again.
    pub(crate) fn leave(&mut self, socket: c_int) -> Changes {
        let changes = self.cancel(socket);
        self.table.set_flags(socket, self.table.flags(socket) | IN_USE | UNSEEN);
        changes
    }

    /// The descriptor is about to be closed, or is another socket's now.
    pub(crate) fn forget(&mut self, socket: c_int) -> Changes {
        if self.table.flags(socket) & OURS != 0 {
            self.surrender(socket);
        }
        let changes = self.cancel(socket);
        self.table.set_flags(socket, 0);
        if let Some(entry) = self.table.entry(socket) {
            self.streams -= u64::from(entry.is_stream);
            *entry = Entry::default();
        }
        changes
    }

    /// An epoll instance is about to be closed: nobody is watched by it any more. `tell` gets what it has
    /// to be told first.
    pub(crate) fn forget_instance(&mut self, epfd: c_int, mut tell: impl FnMut(c_int, Change)) {
        for (socket, entry) in self.table.in_use() {
            if let Some(change) = entry.interest.withdraw(epfd) {
                tell(socket, change);
            }
        }
    }

    /// The program is about to lock a file. Its jobs go on, and their descriptors are parked. False: too
    /// many are locked.
    pub(crate) fn lock_file(&mut self, fd: c_int, file: FileId) -> bool {
        self.table.set_flags(fd, self.table.flags(fd) | LOCKER);
        self.locked.lock(fd, file)
    }

    /// A descriptor of a file that is not locked any more, to be closed.
    pub(crate) fn unpark(&mut self) -> Option<c_int> {
        let fd = self.locked.unpark()?;
        self.table.set_flags(fd, 0);
        Some(fd)
    }

    /// The open socket has another descriptor.
    pub(crate) fn share(&mut self, socket: c_int) -> Changes {
        let changes = self.cancel(socket);
        self.table.set_flags(socket, self.table.flags(socket) | IN_USE | SHARED);
        changes
    }

    /// The job that has waited longest for a reader, among those that their disk has room for.
    pub(crate) fn take_pending(&mut self) -> Option<usize> {
        let used = self.jobs[..self.jobs_used].iter().enumerate();
        let pending = used.filter(|(_, job)| self.could_be_read(job));
        let (index, _) = pending.min_by_key(|(_, job)| job.ticket)?;
        self.jobs[index].phase = Phase::Reading;
        self.disk(self.jobs[index].file.dev).readers += 1;
        Some(index)
    }

    /// How many jobs wait only for a reader.
    pub(crate) fn pending(&self) -> usize {
        self.jobs[..self.jobs_used].iter().filter(|job| self.could_be_read(job)).count()
    }

    fn could_be_read(&self, job: &Job) -> bool {
        job.phase == Phase::Pending && self.has_room(job.file.dev)
    }

    fn has_room(&self, dev: u64) -> bool {
        let known = self.disks[..self.disks_used].iter().find(|disk| disk.dev == dev);
        known.is_none_or(Disk::has_room)
    }

    /// What to read next for a job.
    pub(crate) fn chunk(&mut self, index: usize) -> Chunk {
        let Job { file, files, at, end, .. } = self.jobs[index];
        let len = end.min(end_of_block(at)).saturating_sub(at).max(1);
        let readers = self.disk(file.dev).readers;
        Chunk { files, sink: self.sink, file, offset: at, len, readers }
    }

    /// A reader has opened the file for its job.
    pub(crate) fn opened(&mut self, index: usize, own: Option<c_int>) {
        self.jobs[index].files.own = own;
        own.into_iter().for_each(|fd| self.table.set_flags(fd, OURS));
    }

    /// The first reader is about to begin, with so much memory. Returns a descriptor that is not needed.
    #[must_use]
    pub(crate) fn begin_reading(&mut self, memory: u64, sink: Option<c_int>) -> Option<c_int> {
        self.memory = memory;
        if self.sink.is_some() {
            return sink;
        }
        self.sink = sink;
        sink.into_iter().for_each(|fd| self.table.set_flags(fd, OURS));
        None
    }

    /// The program has closed a descriptor that is not its own: what will be there is not ours. The
    /// job ends early.
    fn surrender(&mut self, fd: c_int) {
        self.locked.surrender(fd);
        self.sink = self.sink.filter(|&sink| sink != fd);
        for job in &mut self.jobs[..self.jobs_used] {
            let Files { shared, own } = &mut job.files;
            for place in [shared, own] {
                if *place == Some(fd) {
                    *place = None;
                    if job.phase == Phase::Reading {
                        job.phase = Phase::Ended;
                    }
                }
            }
        }
    }

    /// A chunk has been read: `read` bytes, fewer than asked for at the end of the file, or before
    /// an error.
    pub(crate) fn advance(&mut self, index: usize, chunk: Chunk, read: u64, error: Option<Errno>) {
        let job = &mut self.jobs[index];
        if job.phase == Phase::Ended {
            // By surrender: what was read was perhaps another file.
            return;
        }
        job.at += read;
        let file = job.file;
        if read == chunk.len && error.is_none() {
            return;
        }
        job.phase = Phase::Ended;
        let (at, mut link) = (job.at, job.waiters);
        let Some(error) = error else { return };
        let place = page(Want { file, offset: at, count: 0 });
        while let Some(entry) = link.fd().and_then(|fd| self.table.entry(fd)) {
            (entry.failed, entry.failed_place) = (error, place);
            link = entry.next;
        }
    }

    /// Resume sockets whose byte the job has passed, or all when it has ended; at most
    /// [`RESUMED_MAX`]. Returns how many; `tell` gets the changes, and when the deferral began.
    pub(crate) fn resume(
        &mut self,
        index: usize,
        mut tell: impl FnMut(c_int, Changes, u64),
    ) -> usize {
        let Job { phase, at, waiters: mut link, .. } = self.jobs[index];
        let mut resumed = 0;
        while let Some(socket) = link.fd().filter(|_| resumed < RESUMED_MAX) {
            let Some(entry) = self.table.entry(socket) else { break };
            let (next, offset, since_us) = (entry.next, entry.offset, entry.since_us);
            link = next;
            if phase == Phase::Ended || offset < at {
                let changes = self.cancel(socket);
                resumed += 1;
                tell(socket, changes, since_us);
            }
        }
        resumed
    }

    /// Whether a job has nothing more to read. Nobody joins it then.
    pub(crate) fn has_ended(&mut self, index: usize) -> bool {
        let Job { file, at, yield_at, .. } = self.jobs[index];
        // On a fast disk what others wait for is soon there, and to go on costs less than to begin anew.
        let may_go_on = self.readahead(file.dev) == Readahead::Usual && at < yield_at;
        // Others who would get this reader, or its place at the disk.
        let is_in_the_way = |job: &Job| {
            let has_room = self.has_room(job.file.dev);
            job.phase == Phase::Pending
                && if has_room { self.idle == 0 } else { job.file.dev == file.dev }
        };
        let others_wait = !may_go_on && self.jobs[..self.jobs_used].iter().any(is_in_the_way);
        let job = &mut self.jobs[index];
        let needed = job.waiters != Link::NONE;
        if job.phase != Phase::Ended && (job.at >= job.end || (others_wait && !needed)) {
            job.phase = Phase::Ended;
            let place = page(Want { file: job.file, offset: job.at, count: 0 });
            self.ends[slot(place, ENDS_MAX)] = End { place, window: job.window };
        }
        self.jobs[index].phase == Phase::Ended
    }

    /// Take a job away that has ended and whom nobody waits for; returns the descriptors to close.
    pub(crate) fn free(&mut self, index: usize) -> Files {
        let Job { file, files, .. } = core::mem::replace(&mut self.jobs[index], Job::FREE);
        // Not all that were counted may have been by this one, if the disk had been forgotten.
        let disk = self.disk(file.dev);
        disk.readers = disk.readers.saturating_sub(1);
        let locked = self.locked.is_locked(file);
        let [shared, own] = [files.shared, files.own].map(|fd| {
            let fd = fd.filter(|&fd| !(locked && self.locked.park(fd, file)))?;
            self.table.set_flags(fd, 0);
            Some(fd)
        });
        let files = Files { shared, own };
        while self.jobs_used > 0 && self.jobs[self.jobs_used - 1].phase == Phase::Free {
            self.jobs_used -= 1;
        }
        files
    }

    /// Nothing is deferred any more. What is known may be wrong, so no list is followed. Readers find that
    /// their jobs have ended.
    pub(crate) fn resume_all(&mut self, tell: impl Fn(c_int, Changes)) {
        for job in &mut self.jobs {
            job.waiters = Link::NONE;
            job.end = job.at;
        }
        for socket in self.table.numbers() {
            let flags = self.table.flags(socket);
            if flags & DEFERRED != 0
                && let Some(entry) = self.table.entry(socket)
            {
                (entry.job, entry.next, entry.previous) = (0, Link::NONE, Link::NONE);
                let changes = entry.interest.resume();
                self.table.set_flags(socket, flags & !DEFERRED);
                tell(socket, changes);
            }
        }
    }

    /// No reader can be had: everything ends, and nothing begins for a while. Returns a job to resume
    /// and free, while there is one.
    pub(crate) fn give_up(&mut self, now_us: u64) -> Option<usize> {
        self.threadless_until = now_us.saturating_add(THREADLESS_US);
        let index = self.jobs[..self.jobs_used].iter().position(|job| job.phase != Phase::Free)?;
        self.jobs[index].phase = Phase::Ended;
        Some(index)
    }

    /// This is a forked child now: no reader, no job, nobody deferred; who watches what is
    /// inherited. `close` takes the jobs' descriptors; the sink is returned.
    pub(crate) fn begin_anew(&mut self, close: impl Fn(c_int)) -> Option<c_int> {
        (self.threads, self.idle, self.threadless_until, self.in_transit) = (0, 0, 0, 0);
        for index in 0..self.jobs_used {
            while let Some(socket) = self.jobs[index].waiters.fd() {
                self.unlink(socket);
                self.table.set_flags(socket, self.table.flags(socket) & !DEFERRED);
                if let Some(entry) = self.table.entry(socket) {
                    entry.interest.disown();
                }
            }
            let job = core::mem::replace(&mut self.jobs[index], Job::FREE);
            if job.phase != Phase::Free {
                for fd in job.files.all() {
                    self.table.set_flags(fd, 0);
                    close(fd);
                }
            }
        }
        self.jobs_used = 0;
        while let Some(fd) = self.locked.begin_anew() {
            self.table.set_flags(fd, 0);
            close(fd);
        }
        self.disks.iter_mut().for_each(|disk| disk.readers = 0);
        let sink = self.sink.take();
        sink.into_iter().for_each(|fd| self.table.set_flags(fd, 0));
        sink
    }

    /// How long a read has taken that had to wait for the disk, and brought so much. All readers that are
    /// there have shared it meanwhile. Short reads say nothing of its speed.
    pub(crate) fn note_speed(&mut self, chunk: Chunk, read: u64, began_us: u64, now_us: u64) {
        let disk = self.disk(chunk.file.dev);
        disk.depth.note(read, began_us, now_us, [chunk.readers, disk.readers]);
        if read < BLOCK / 2 {
            return;
        }
        let share_us = now_us.saturating_sub(began_us) / disk.readers.max(1) as u64;
        let is_fast = disk.fast_reads == FAST_READS;
        if share_us < FAST_US {
            disk.fast_reads = (disk.fast_reads + 1).min(FAST_READS);
            disk.slow_reads = 0;
        } else if is_fast && share_us > SLOW_AHEAD_US && began_us >= disk.slow_us {
            (disk.slow_reads, disk.slow_us) = (disk.slow_reads + 1, now_us);
            if disk.slow_reads == SLOW_AHEAD_READS {
                (disk.fast_reads, disk.slow_reads) = (0, 0);
            }
        } else if !is_fast && share_us > SLOW_US {
            disk.fast_reads = 0;
        }
    }

    /// How the kernel is to read ahead on a disk. On a slow one it must not: every stream would
    /// wait for what is read ahead of the others. Unknown disks are slow.
    pub(crate) fn readahead(&mut self, dev: u64) -> Readahead {
        if self.disk(dev).fast_reads == FAST_READS { Readahead::Usual } else { Readahead::Off }
    }

    fn disk(&mut self, dev: u64) -> &mut Disk {
        let known = self.disks[..self.disks_used].iter().position(|disk| disk.dev == dev);
        let index = known.unwrap_or_else(|| {
            let index = if self.disks_used < DISKS_MAX {
                self.disks_used += 1;
                self.disks_used - 1
            } else {
                slot(hash([dev]), DISKS_MAX)
            };
            self.disks[index] = Disk::unknown(dev);
            index
        });
        &mut self.disks[index]
    }
}

fn end_of_block(offset: u64) -> u64 {
    (offset / BLOCK).saturating_add(1).saturating_mul(BLOCK)
}

fn place(want: Want) -> u64 {
    hash([want.file.dev, want.file.ino, want.offset])
}

fn page(want: Want) -> u64 {
    hash([want.file.dev, want.file.ino, want.offset / PAGE])
}

fn slot(hash: u64, slots: usize) -> usize {
    usize::try_from(hash % slots as u64).unwrap_or(0)
}

#[cfg(test)]
mod tests;
