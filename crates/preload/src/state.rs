//! The deferred sockets and the reads that they wait for: everything under the one lock.
//!
//! Pure: the caller reads the files, opens and closes descriptors, and makes the returned changes of interest.
//!
//! A *job* reads one file from some offset on, a block at a time. Sockets wait on the job's list, each for one byte
//! of the file. When the job has passed the byte, its socket is resumed. The job prefetches a *window* after the
//! last byte that a socket waits for. The window grows while the file is read in order, so that the disk does not
//! idle while the program sends.
//!
//! The pages that a job brings for responses that do not stay in the page cache become [`Trails`].

use core::ffi::c_int;
use core::ops::Range;
use core::time::Duration;

use pace::{Pace, Spacing};

use crate::descriptors::{DEFERRED, Entry, IN_USE, LOCKER, Link, OURS, SHARED, Table, UNSEEN};
use crate::hash::hash;
use crate::interest::{Change, Changes};
use crate::locked::Locked;
use crate::residency::BLOCK;
use crate::stats::{OfDisk, Reason};
use crate::sys::{Errno, FileId, Readahead};
use crate::trails::{Discard, Trails};

/// The most readers of all disks together.
pub(crate) const READERS_MAX: usize = 32;
/// The most files that are being read, or about to be. With more, a socket waits until any job has made a step.
const JOBS_MAX: usize = 512;
/// After no thread at all could be started, nothing is deferred for this time.
const THREADLESS_US: u64 = 5_000_000;
/// The most sockets that are resumed in one step under the lock; then other threads may have it.
pub(crate) const RESUMED_MAX: usize = 64;
/// The largest window.
const WINDOW_MAX: u64 = 4 * BLOCK;
/// The largest window on a fast disk, where a socket waits for half of it: to resume sockets more often costs
/// more than the disk. The kernel reads ahead there, often as far; but the program would have to look at
/// bytes that no reader has passed, and a look is a copy.
///
/// If a job ends before the program asks for more, the disk idles, and its readahead begins anew. So the first window
/// of a stream is large, too ([`first_window`]).
const WINDOW_FAST_MAX: u64 = 32 * BLOCK;
/// On a fast disk the least first window of a stream.
const WINDOW_FAST_MIN: u64 = 8 * BLOCK;
/// The part of memory that all windows together may fill: more would evict bytes that others wait to send.
const PREFETCH_PART: u64 = 8;
/// The table of places where jobs ended, in which a job that begins there finds its window. Entries overwrite
/// each other.
const ENDS_MAX: usize = 1024;
/// The most disks whose speed is kept; a further one replaces another.
const DISKS_MAX: usize = 16;
/// The most deferrals of one socket at one offset. Then the kernel may wait for the disk: the bytes are evicted
/// before they can be sent.
const STRIKES_MAX: u32 = 8;
/// The most calls for a deferred socket within [`CALLS_US`]. With more the socket is not deferred for
/// [`UNSEEN_US`]: the program waits in a way that is not seen here, and spins. A call takes 2 to 4 us. No
/// client can make a server call as often: the server would have to come to the socket every 10 us.
const CALLS_MAX: u32 = 10_000;
const CALLS_US: u64 = 100_000;
const UNSEEN_US: u64 = 10_000_000;
pub(crate) const PAGE: u64 = 4096;

/// The bytes that a call of `sendfile` wants to send next, the first of which is not in memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Want {
    pub(crate) file: FileId,
    pub(crate) offset: u64,
    pub(crate) count: u64,
    /// The first of them was looked for in memory and not found.
    pub(crate) is_absent: bool,
    /// They are to stay in the page cache, as the kernel decides.
    pub(crate) stays: bool,
}

/// The outcome of that call.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Verdict {
    /// The socket looks full until the file has been read.
    Deferred(Changes),
    /// The read has failed.
    Failed(Errno),
    /// The kernel has to send, and may wait.
    Left(Reason, Changes),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Free,
    /// Waits for a reader.
    Pending,
    /// A reader works for it.
    Reading,
    /// Reads nothing more, so no socket may join.
    Ended,
}

#[derive(Clone, Copy, Debug)]
struct Job {
    phase: Phase,
    file: FileId,
    /// A duplicate of the program's descriptor, which is closed when the job ends; none if the program has closed the
    /// duplicate.
    fd: Option<c_int>,
    /// The next byte to read.
    at: u64,
    /// On a fast disk, other jobs may have the reader once this position is reached.
    yield_at: u64,
    /// The end of the bytes to read.
    end: u64,
    /// On a fast disk, the end of the block with which a stream begins; 0 for a job that continues another. The
    /// first step and the first wait of a client end there, because its first byte shall come soon.
    first_end: u64,
    window: u64,
    ticket: u64,
    waiters: Link,
    /// The first byte was not in memory when the job was made.
    begins_absent: bool,
    /// One of the sockets wants the bytes to stay in the page cache.
    stays: bool,
}

impl Job {
    const FREE: Self = Self {
        phase: Phase::Free,
        file: FileId { dev: 0, ino: 0 },
        fd: None,
        at: 0,
        yield_at: 0,
        end: 0,
        first_end: 0,
        window: 0,
        ticket: 0,
        waiters: Link::NONE,
        begins_absent: false,
        stays: true,
    };

    /// Says whether the file is read in order, for a socket that has had some of it.
    fn goes_on(&self) -> bool {
        self.window > 0
    }

    /// Extends the job for a socket that waits for a byte.
    fn reach(&mut self, want: Want) {
        let block_end = end_of_block(want.offset);
        let wanted = want.offset.saturating_add(want.count);
        // Beyond one block, whole blocks are read, because only those are noted as read.
        let reach = if self.window > 0 {
            block_end.saturating_add(self.window)
        } else if wanted > block_end {
            block_end.saturating_add(BLOCK)
        } else {
            wanted
        };
        self.end = self.end.max(reach);
    }

    /// The byte that a socket waits for: the first that it wants, or on a fast disk the last of half a window, if the
    /// program will probably want as much.
    fn until(&self, want: Want, is_fast: bool) -> u64 {
        let half = self.window / 2;
        let count = if wants_more(want) { half } else { want.count.min(half) };
        let reach = if want.offset < self.first_end { self.first_end } else { self.end };
        let wanted = want.offset.saturating_add(count).min(reach);
        if is_fast { wanted.saturating_sub(1).max(want.offset) } else { want.offset }
    }
}

/// One step of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Chunk {
    /// Its file; none if the program has closed the descriptor.
    pub(crate) fd: Option<c_int>,
    /// The descriptor of `/dev/null`, if there is one.
    pub(crate) sink: Option<c_int>,
    pub(crate) file: FileId,
    pub(crate) offset: u64,
    pub(crate) len: u64,
    /// When its read began.
    pub(crate) began_us: u64,
    /// Its first byte was not in memory a moment ago.
    pub(crate) begins_absent: bool,
    /// Its bytes stay in the page cache.
    pub(crate) stays: bool,
}

#[derive(Clone, Copy, Debug)]
struct Disk {
    dev: u64,
    counts: OfDisk,
    /// The readers at work.
    readers: usize,
    pace: Pace,
    spacing: Spacing,
}

impl Disk {
    const fn unknown(dev: u64) -> Self {
        let counts = OfDisk { dev, deferred: 0, reads: 0, read_bytes: 0 };
        Self { dev, counts, readers: 0, pace: Pace::new(), spacing: Spacing::new() }
    }

    /// The readers that jobs which go on may have. All other reads of the program (`open`, a small `pread`, its
    /// own pages) wait behind those of the readers.
    fn depth(&self) -> usize {
        usize::try_from(self.pace.depth()).unwrap_or(READERS_MAX)
    }

    /// Returns whether jobs that go on pause, so that a limit which comes in slices leaves something for other reads.
    fn pauses(&self, now_us: u64) -> bool {
        self.spacing.opens_at(Duration::from_micros(now_us)).is_some()
    }
}

/// The place where a job has ended, and its window.
#[derive(Clone, Copy, Debug)]
struct End {
    place: u64,
    window: u64,
}

/// Everything under the lock.
pub(crate) struct LockedState {
    pub(crate) table: Table,
    jobs: [Job; JOBS_MAX],
    /// No job from this index on is in use.
    jobs_used: usize,
    tickets: u64,
    ends: [End; ENDS_MAX],
    disks: [Disk; DISKS_MAX],
    disks_used: usize,
    /// This process's share of memory, in bytes, once there has been a reader.
    memory: u64,
    /// Sockets that have waited at least once, until they are closed.
    streams: u64,
    /// The readers that are about to open or to close descriptors that are not in the table: a child that is
    /// forked meanwhile would keep them for ever.
    pub(crate) in_transit: usize,
    /// The descriptor of `/dev/null`, once there has been a reader, or the program has called `chroot(2)`.
    pub(crate) sink: Option<c_int>,
    /// The program has called `chroot(2)`: a forked child could not open `/dev/null`, so it keeps the descriptor.
    pub(crate) keeps_sink: bool,
    /// The files that the program has locked. There is room to park the descriptors of all jobs, of which
    /// each has one: no job begins at a locked file.
    pub(crate) locked: Locked<JOBS_MAX>,
    /// The pages that leave the page cache once they were sent.
    pub(crate) trails: Trails,
    /// The largest window, if the user has set one.
    pub(crate) window_set: Option<u64>,
    /// Readers that exist, and those of them that sleep.
    pub(crate) threads: usize,
    pub(crate) idle: usize,
    /// The time at which one of these wakes, for the end of a disk's pause or for a discard.
    watched_until: Option<u64>,
    /// Nothing is deferred until this time, in microseconds, because no thread could be started.
    threadless_until: u64,
    /// The latest time that was told.
    now_us: u64,
}

impl LockedState {
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
            keeps_sink: false,
            locked: Locked::none(),
            trails: Trails::none(),
            window_set: None,
            threads: 0,
            idle: 0,
            watched_until: None,
            threadless_until: 0,
            now_us: 0,
        }
    }

    /// Decides about a socket that wants bytes which are not in memory. `open` makes a descriptor for a new job.
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
        if entry.failed != 0 && entry.failed_place == page(want.file, want.offset) {
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
            // Nothing has been read for the socket yet.
            entry.strikes = entry.strikes.saturating_sub(1);
        }
        if flags & DEFERRED == 0 {
            self.disk(want.file.dev).counts.deferred += 1;
        }
        self.link(socket, index, offset.unwrap_or(0), now_us)
    }

    /// The counts of all disks, and their number.
    pub(crate) fn disk_counts(&self) -> ([OfDisk; DISKS_MAX], usize) {
        (core::array::from_fn(|index| self.disks[index].counts), self.disks_used)
    }

    /// Notes that the program has got the error of a read that failed.
    pub(crate) fn error_was_told(&mut self, socket: c_int) {
        if let Some(entry) = self.table.entry(socket) {
            entry.failed = 0;
        }
    }

    /// Says whether the last thing that a socket waited for was this, and the wait is over.
    pub(crate) fn has_waited(&mut self, socket: c_int, want: Want) -> bool {
        self.table.entry(socket).is_some_and(|it| it.job == 0 && it.place == place(want))
    }

    /// The verdict for a socket that has waited too often, or waits for this already.
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

    /// The job that reads these bytes, and the byte to wait for; or without room for a job, another one, with
    /// no byte.
    fn place(
        &mut self,
        want: Want,
        open: impl FnOnce() -> Option<c_int>,
    ) -> Option<(usize, Option<u64>)> {
        let is_fast = self.readahead(want.file.dev) == Readahead::Usual;
        let share = self.memory / PREFETCH_PART / self.streams.max(1) / BLOCK * BLOCK;
        let usual = if is_fast { WINDOW_FAST_MAX } else { WINDOW_MAX };
        let window_max = share.clamp(BLOCK, self.window_set.unwrap_or(usual).max(BLOCK));
        let used = &mut self.jobs[..self.jobs_used];
        let joins = |job: &Job| {
            matches!(job.phase, Phase::Pending | Phase::Reading)
                && job.file == want.file
                && (job.at..=job.end).contains(&want.offset)
        };
        if let Some(index) = used.iter().position(joins) {
            let job = &mut used[index];
            job.window = (job.window * 2).clamp(BLOCK, window_max);
            job.stays |= want.stays;
            job.reach(want);
            return Some((index, Some(job.until(want, is_fast))));
        }
        let free = used.iter().position(|job| job.phase == Phase::Free).unwrap_or(used.len());
        if free < JOBS_MAX
            && let Some(fd) = open()
        {
            self.tickets += 1;
            let known = self.window(want, window_max);
            let begins = known == 0 && is_fast && wants_more(want);
            let window = if begins { first_window(want).min(window_max) } else { known };
            let first_end = if begins { end_of_block(want.offset) } else { 0 };
            let end = want.offset;
            let (file, at, ticket) = (want.file, want.offset / PAGE * PAGE, self.tickets);
            let (phase, waiters) = (Phase::Pending, Link::NONE);
            self.table.set_flags(fd, OURS);
            let yield_at = at.saturating_add(WINDOW_FAST_MAX);
            let (begins_absent, stays) = (want.is_absent, want.stays);
            self.jobs[free] = Job {
                phase,
                file,
                fd: Some(fd),
                at,
                yield_at,
                end,
                first_end,
                window,
                ticket,
                waiters,
                begins_absent,
                stays,
            };
            self.jobs[free].reach(want);
            self.jobs_used = self.jobs_used.max(free + 1);
            return Some((free, Some(self.jobs[free].until(want, is_fast))));
        }
        // There is no room for another job: the socket tries again when this one has made a step.
        let used = &self.jobs[..self.jobs_used];
        let alive = |job: &Job| matches!(job.phase, Phase::Pending | Phase::Reading);
        used.iter().position(alive).map(|index| (index, None))
    }

    /// The window of a new job: 0, or twice that of the job that ended where this one begins.
    fn window(&self, want: Want, window_max: u64) -> u64 {
        let place = page(want.file, want.offset);
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

    /// Ends a socket's wait. Without one there are no changes.
    pub(crate) fn cancel(&mut self, socket: c_int) -> Changes {
        self.unlink(socket);
        self.table.set_flags(socket, self.table.flags(socket) & !DEFERRED);
        self.table.entry(socket).map_or_else(Changes::default, |entry| entry.interest.resume())
    }

    /// Ends a socket's wait, and never defers it again.
    pub(crate) fn leave(&mut self, socket: c_int) -> Changes {
        let changes = self.cancel(socket);
        self.table.set_flags(socket, self.table.flags(socket) | IN_USE | UNSEEN);
        changes
    }

    /// Clears the entry of a descriptor that is about to be closed, or is another socket's now.
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

    /// Removes an epoll instance that is about to be closed from all sockets. `tell` gets the changes to make
    /// before.
    pub(crate) fn forget_instance(&mut self, epfd: c_int, mut tell: impl FnMut(c_int, Change)) {
        for (socket, entry) in self.table.in_use() {
            if let Some(change) = entry.interest.withdraw(epfd) {
                tell(socket, change);
            }
        }
    }

    /// Notes that the program is about to lock a file. The file's jobs go on, and their descriptors will be
    /// parked. False: too many files are locked.
    pub(crate) fn lock_file(&mut self, fd: c_int, file: FileId) -> bool {
        self.table.set_flags(fd, self.table.flags(fd) | LOCKER);
        self.locked.lock(fd, file)
    }

    /// Takes out a parked descriptor that has to be closed, because its file is not locked any more.
    pub(crate) fn unpark(&mut self) -> Option<c_int> {
        let fd = self.locked.unpark()?;
        self.table.set_flags(fd, 0);
        Some(fd)
    }

    /// Never again defers the sockets that an epoll instance watches: it has another descriptor. `tell` gets the
    /// changes.
    pub(crate) fn leave_watched(&mut self, epfd: c_int, tell: impl Fn(c_int, Changes)) {
        for socket in self.table.numbers() {
            let is_in_use = self.table.flags(socket) & IN_USE != 0;
            if is_in_use && self.table.entry(socket).is_some_and(|it| it.interest.knows(epfd)) {
                tell(socket, self.leave(socket));
            }
        }
    }

    /// Notes that a socket, or an epoll instance, has another descriptor.
    pub(crate) fn share(&mut self, socket: c_int) -> Changes {
        let changes = self.cancel(socket);
        self.table.set_flags(socket, self.table.flags(socket) | IN_USE | SHARED);
        changes
    }

    /// Takes the job that has waited longest for a reader, among those whose disks have room.
    pub(crate) fn take_pending(&mut self) -> Option<usize> {
        let used = self.jobs[..self.jobs_used].iter().enumerate();
        let pending = used.filter(|(_, job)| self.could_be_read(job));
        let (index, _) = pending.min_by_key(|(_, job)| job.ticket)?;
        self.jobs[index].phase = Phase::Reading;
        self.disk(self.jobs[index].file.dev).readers += 1;
        Some(index)
    }

    /// The number of jobs that wait for nothing but a reader.
    pub(crate) fn pending(&self) -> usize {
        self.jobs[..self.jobs_used].iter().filter(|job| self.could_be_read(job)).count()
    }

    fn could_be_read(&self, job: &Job) -> bool {
        job.phase == Phase::Pending && self.has_room(job)
    }

    /// Says whether the disk of a job has room for one more reader. The depth is for jobs that go on; the first
    /// reads of files do not wait for them.
    fn has_room(&self, job: &Job) -> bool {
        let mut known = self.disks[..self.disks_used].iter();
        let disk = known.find(|disk| disk.dev == job.file.dev);
        let may_go_on = |disk: &Disk| disk.readers < disk.depth() && !disk.pauses(self.now_us);
        !job.goes_on() || disk.is_none_or(may_go_on)
    }

    /// Tells the time, by which pauses end.
    pub(crate) fn note_time(&mut self, now_us: u64) {
        self.now_us = self.now_us.max(now_us);
    }

    /// Returns whether a job that goes on waits for a reader of a disk.
    fn is_waited_for(&self, dev: u64) -> bool {
        let waits = |job: &Job| job.phase == Phase::Pending && job.goes_on() && job.file.dev == dev;
        self.jobs[..self.jobs_used].iter().any(waits)
    }

    /// When the next discard is due, or the first pause ends of a disk for which jobs wait.
    fn wakes_at_us(&self) -> Option<u64> {
        [self.trails.due_us(), self.pause_ends_us()].into_iter().flatten().min()
    }

    fn pause_ends_us(&self) -> Option<u64> {
        let now = Duration::from_micros(self.now_us);
        let disks = self.disks[..self.disks_used].iter();
        let ends = disks.filter_map(|disk| Some((disk.dev, disk.spacing.opens_at(now)?)));
        let end = ends.filter(|(dev, _)| self.is_waited_for(*dev)).map(|(_, at)| at).min()?;
        u64::try_from(end.as_micros()).ok()?.checked_add(1)
    }

    /// Returns whether jobs wait for the end of a pause, or pages for a discard, and no reader will wake then.
    pub(crate) fn lacks_watcher(&self) -> bool {
        let is_late = |at| self.watched_until.is_none_or(|until| at < until);
        self.wakes_at_us().is_some_and(is_late)
    }

    /// The time at which a reader that goes to sleep has to wake, and then to [`end_watch`](Self::end_watch): there is
    /// something to do for which no other one wakes.
    pub(crate) fn watch(&mut self) -> Option<u64> {
        let end = if self.lacks_watcher() { self.wakes_at_us() } else { None };
        self.watched_until = end.or(self.watched_until);
        end
    }

    /// The reader that was to wake has woken.
    pub(crate) const fn end_watch(&mut self) {
        self.watched_until = None;
    }

    /// Begins the next step of a job: one block, or if the job has begun and goes on as much as the disk's pace
    /// says. A call of [`note_pace`](Self::note_pace) follows.
    pub(crate) fn begin_chunk(&mut self, index: usize, now_us: u64) -> Chunk {
        let job = self.jobs[index];
        let Job { file, fd, at, end, first_end, begins_absent, stays, .. } = job;
        self.jobs[index].begins_absent = false;
        self.note_time(now_us);
        let now = Duration::from_micros(now_us);
        let Disk { pace, spacing, .. } = self.disk(file.dev);
        let most = if job.goes_on() && at >= first_end { pace.chunk() } else { BLOCK };
        let len = end.min(end_of(at, most)).saturating_sub(at).max(1);
        pace.begin(len, now);
        if !job.goes_on() {
            spacing.begin_other(now);
        } else if pace.lets_kernel_read_ahead() {
            spacing.begin_ahead(now);
        } else {
            spacing.begin(len, now);
        }
        let sink = self.sink;
        Chunk { fd, sink, file, offset: at, len, began_us: now_us, begins_absent, stays }
    }

    /// Notes that the read of a chunk has ended. `slept`: it had to wait for the disk.
    pub(crate) fn note_pace(&mut self, chunk: Chunk, read: u64, slept: bool, now_us: u64) {
        self.note_time(now_us);
        let (brought, now) = (if slept { read } else { 0 }, Duration::from_micros(now_us));
        let is_idle = !self.is_waited_for(chunk.file.dev);
        let Disk { pace, spacing, counts, .. } = self.disk(chunk.file.dev);
        counts.reads += 1;
        counts.read_bytes += read;
        if brought > 0 && !pace.lets_kernel_read_ahead() {
            if is_idle {
                spacing.note_idle();
            }
            let took = Duration::from_micros(now_us.saturating_sub(chunk.began_us));
            spacing.end(brought, took, now);
            pace.set_spaced(spacing.is_on(now));
        }
        pace.end(chunk.len, brought, now);
    }

    /// Queues a job that goes on if others wait for its disk, or if jobs pause. Returns true if the job was queued.
    pub(crate) fn gives_way(&mut self, index: usize) -> bool {
        let Job { file, at, yield_at, phase, .. } = self.jobs[index];
        let may_go_on = self.readahead(file.dev) == Readahead::Usual && at < yield_at;
        let waits = |job: &Job| {
            job.phase == Phase::Pending && job.file.dev == file.dev && !self.has_room(job)
        };
        let disk = self.disks[..self.disks_used].iter().find(|disk| disk.dev == file.dev);
        let are_many = disk.is_some_and(|disk| disk.readers > disk.depth());
        let pauses = disk.is_some_and(|disk| disk.pauses(self.now_us));
        let gives_way =
            pauses || !may_go_on && (are_many || self.jobs[..self.jobs_used].iter().any(waits));
        if phase != Phase::Reading || !self.jobs[index].goes_on() || !gives_way {
            return false;
        }
        self.tickets += 1;
        let job = &mut self.jobs[index];
        (job.phase, job.ticket) = (Phase::Pending, self.tickets);
        let disk = self.disk(file.dev);
        disk.readers = disk.readers.saturating_sub(1);
        true
    }

    /// Notes that a reader brings a part of a chunk of which nothing was in memory, and that is to leave the page cache.
    /// `open` makes a descriptor for the discards.
    pub(crate) fn note_brought(
        &mut self,
        file: FileId,
        range: Range<u64>,
        open: impl FnOnce() -> Option<c_int>,
    ) {
        // The end of the file may lie within its last page.
        let range = range.start..range.end.div_ceil(PAGE).saturating_mul(PAGE);
        // To close a descriptor of a locked file would give up the lock.
        if !self.locked.is_locked(file)
            && let Some(fd) = self.trails.brought(file, range, self.now_us, open)
        {
            self.table.set_flags(fd, OURS);
        }
    }

    /// Takes out a range to discard, and says whether its descriptor has to be closed. A call of
    /// [`Trails::has_discarded`] follows.
    pub(crate) fn discard(&mut self) -> Option<Discard> {
        let discard = self.trails.due(self.now_us)?;
        if discard.closes {
            self.table.set_flags(discard.fd, 0);
        }
        Some(discard)
    }

    /// Ends a trail, whose pages stay; `is_for` chooses by file. Returns the descriptor to close.
    pub(crate) fn end_trail(&mut self, is_for: impl Fn(FileId) -> bool) -> Option<c_int> {
        let fd = self.trails.take(is_for)?;
        self.table.set_flags(fd, 0);
        Some(fd)
    }

    /// Ends all jobs, because the program ends: each reader stops after the step that it is at.
    pub(crate) fn end_jobs(&mut self) {
        self.jobs[..self.jobs_used].iter_mut().for_each(|job| job.end = job.at);
    }

    /// Says whether a job still has the descriptors by which it reads.
    pub(crate) fn is_reading(&self, index: usize) -> bool {
        self.jobs[index].phase == Phase::Reading
    }

    /// Says whether a reader is at a step of a job whose bytes are to leave the page cache.
    pub(crate) fn is_bringing(&self) -> bool {
        self.jobs[..self.jobs_used].iter().any(|job| job.phase == Phase::Reading && !job.stays)
    }

    /// Notes the share of memory and the descriptor of `/dev/null` before the first reader. Returns the
    /// descriptor if there is one already.
    #[must_use]
    pub(crate) fn begin_reading(&mut self, memory: u64, sink: Option<c_int>) -> Option<c_int> {
        self.memory = memory;
        self.keep_sink(sink)
    }

    /// Notes the descriptor of `/dev/null`. Returns the descriptor if there is one already.
    #[must_use]
    pub(crate) fn keep_sink(&mut self, sink: Option<c_int>) -> Option<c_int> {
        if self.sink.is_some() {
            return sink;
        }
        self.sink = sink;
        sink.into_iter().for_each(|fd| self.table.set_flags(fd, OURS));
        None
    }

    /// Notes that the program has closed a descriptor of ours, whose number may be another file's soon. A job
    /// that reads by it ends early.
    fn surrender(&mut self, fd: c_int) {
        self.locked.surrender(fd);
        self.trails.surrender(fd);
        self.sink = self.sink.filter(|&sink| sink != fd);
        for job in &mut self.jobs[..self.jobs_used] {
            if job.fd == Some(fd) {
                job.fd = None;
                if job.phase == Phase::Reading {
                    job.phase = Phase::Ended;
                }
            }
        }
    }

    /// Notes that `read` bytes of a chunk have been read. There are fewer than asked for at the end of the file,
    /// or before an error.
    pub(crate) fn advance(&mut self, index: usize, chunk: Chunk, read: u64, error: Option<Errno>) {
        let job = &mut self.jobs[index];
        if job.phase == Phase::Ended {
            // The program has closed the descriptor, so these bytes may be of another file.
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
        let place = page(file, at);
        while let Some(entry) = link.fd().and_then(|fd| self.table.entry(fd)) {
            (entry.failed, entry.failed_place) = (error, place);
            link = entry.next;
        }
    }

    /// Resumes the sockets whose bytes the job has passed, or all if it has ended; at most [`RESUMED_MAX`].
    /// Returns the number; `tell` gets the changes, and the time at which the deferral began.
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

    /// Ends a job that has nothing more to read, or must yield to others, and says whether it has ended.
    pub(crate) fn has_ended(&mut self, index: usize) -> bool {
        let Job { file, at, yield_at, .. } = self.jobs[index];
        // On a fast disk others do not wait for long, and to go on costs less than to begin anew.
        let may_go_on = self.readahead(file.dev) == Readahead::Usual && at < yield_at;
        // Another job would get this reader, or its place at the disk.
        let is_in_the_way = |job: &Job| {
            let has_room = self.has_room(job);
            job.phase == Phase::Pending
                && if has_room { self.idle == 0 } else { job.file.dev == file.dev }
        };
        let others_wait = !may_go_on && self.jobs[..self.jobs_used].iter().any(is_in_the_way);
        let job = &mut self.jobs[index];
        let needed = job.waiters != Link::NONE;
        if job.phase != Phase::Ended && (job.at >= job.end || (others_wait && !needed)) {
            job.phase = Phase::Ended;
            let place = page(job.file, job.at);
            self.ends[slot(place, ENDS_MAX)] = End { place, window: job.window };
        }
        self.jobs[index].phase == Phase::Ended
    }

    /// Removes a job that has ended and for which no socket waits; returns the descriptor to close.
    pub(crate) fn free(&mut self, index: usize) -> Option<c_int> {
        let Job { file, fd, .. } = core::mem::replace(&mut self.jobs[index], Job::FREE);
        // If another disk took the entry meanwhile, this reader is not in its count.
        let disk = self.disk(file.dev);
        disk.readers = disk.readers.saturating_sub(1);
        let is_locked = self.locked.is_locked(file);
        let fd = fd.filter(|&fd| !(is_locked && self.locked.park(fd, file)));
        fd.into_iter().for_each(|fd| self.table.set_flags(fd, 0));
        while self.jobs_used > 0 && self.jobs[self.jobs_used - 1].phase == Phase::Free {
            self.jobs_used -= 1;
        }
        fd
    }

    /// Ends all waits and all jobs, because the library is off. The state may be wrong, so no list is followed.
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

    /// Ends all jobs because there is no reader, and defers nothing for a while. Returns one job to resume and
    /// free at a time.
    pub(crate) fn give_up(&mut self, now_us: u64) -> Option<usize> {
        self.threadless_until = now_us.saturating_add(THREADLESS_US);
        let index = self.jobs[..self.jobs_used].iter().position(|job| job.phase != Phase::Free)?;
        self.jobs[index].phase = Phase::Ended;
        Some(index)
    }

    /// Resets the state in a forked child, which has no readers, no jobs and no deferred sockets, but inherits
    /// all registrations. `close` gets the jobs' descriptors; the sink is returned unless the child keeps it.
    pub(crate) fn begin_anew(&mut self, close: impl Fn(c_int)) -> Option<c_int> {
        (self.threads, self.idle, self.threadless_until, self.in_transit) = (0, 0, 0, 0);
        self.watched_until = None;
        while let Some(fd) = self.end_trail(|_| true) {
            close(fd);
        }
        self.trails.has_discarded();
        self.table.in_use().for_each(|(_, entry)| entry.interest.inherit());
        for index in 0..self.jobs_used {
            while let Some(socket) = self.jobs[index].waiters.fd() {
                self.unlink(socket);
                self.table.set_flags(socket, self.table.flags(socket) & !DEFERRED);
            }
            let job = core::mem::replace(&mut self.jobs[index], Job::FREE);
            if let Some(fd) = job.fd {
                self.table.set_flags(fd, 0);
                close(fd);
            }
        }
        self.jobs_used = 0;
        while let Some(fd) = self.locked.begin_anew() {
            self.table.set_flags(fd, 0);
            close(fd);
        }
        self.disks.iter_mut().for_each(|disk| *disk = Disk::unknown(disk.dev));
        let sink = if self.keeps_sink { None } else { self.sink.take() };
        sink.into_iter().for_each(|fd| self.table.set_flags(fd, 0));
        sink
    }

    /// The kernel's readahead on a disk. On a slow disk it is off, because every stream would wait for the
    /// readahead of the others. Unknown disks count as slow.
    pub(crate) fn readahead(&mut self, dev: u64) -> Readahead {
        if self.disk(dev).pace.lets_kernel_read_ahead() { Readahead::Usual } else { Readahead::Off }
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
    end_of(offset, BLOCK)
}

/// The end of the part of a file around an offset, if all parts have `len` bytes.
fn end_of(offset: u64, len: u64) -> u64 {
    (offset / len).saturating_add(1).saturating_mul(len)
}

/// Says whether a program asks for so much at a time that it probably sends a long part of the file.
pub(crate) const fn wants_more(want: Want) -> bool {
    want.count >= BLOCK / 2
}

/// The first window of a stream on a fast disk, if it [`wants_more`]: nginx asks for 2 MiB at a time, lighttpd for
/// 256 KiB less the header. It is no larger, because a client may have asked for no more than this range.
fn first_window(want: Want) -> u64 {
    want.count.saturating_mul(2).max(WINDOW_FAST_MIN)
}

fn place(want: Want) -> u64 {
    hash([want.file.dev, want.file.ino, want.offset])
}

fn page(file: FileId, offset: u64) -> u64 {
    hash([file.dev, file.ino, offset / PAGE])
}

fn slot(hash: u64, slots: usize) -> usize {
    usize::try_from(hash % slots as u64).unwrap_or(0)
}

#[cfg(test)]
mod tests;
