//! The threads that read files, so that the program does not wait for the disk.
//!
//! Reads of the program itself wait behind the library's readers. So the disk's pace limits the readers of jobs
//! that continue a file, and these jobs take turns. First reads of files do not wait for them. On a disk with a
//! rate limit in time slices, jobs that continue a file pause, in each process for itself.
//!
//! A reader and the program use the same open file, so the kernel's readahead is that of one reader that goes on, and
//! its folios grow. A reader brings pages into memory by `sendfile(2)` to `/dev/null`, which copies nothing:
//! a copy would also be the first access of the processor to the pages, which costs more than the copy. Without the
//! kernel's readahead a reader first asks for the whole chunk (`POSIX_FADV_WILLNEED`), because `sendfile` reads 64 KiB at
//! a time. The pace is learned from reads that slept (`ru_nvcsw`).
//!
//! Bytes that are to leave the page cache are read without the kernel's readahead, so that a reader knows all pages that
//! it brings. Before each step it looks which blocks are wholly absent: only these are discarded later, by the readers,
//! or at the end of the program.
//!
//! With these pauses, small files of nginx during eight downloads at 64 MiB/s took 1.2 ms (99th percentile) instead of
//! 72 (three rounds, not kept). lighttpd reads small files itself, so nothing changes there.
//!
//! The number of a device is its plain `st_dev`. To find the real disk, the library would have to read `mountinfo`
//! in the program's process. The gain would be only where several subvolumes or overlays of one slow disk are read
//! at the same time.

use core::ffi::c_void;
use core::ops::Range;
use core::ptr;
use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;

use crate::epoll;
use crate::lock::Guard;
use crate::process::{self, STATE};
use crate::residency::{BLOCK, forget_read, note_read};
use crate::state::{Chunk, LockedState, PAGE, READERS_MAX, RESUMED_MAX};
use crate::sys::{self, Errno, Readahead};
use crate::trails::Discard;
use crate::{fuse, stats, trails};

/// A reader ends after this time without work.
const IDLE: Duration = Duration::from_secs(10);

/// The number of calls for readers. A reader that goes to sleep names the last call it has seen.
static CALLS: AtomicU32 = AtomicU32::new(0);

type Locked = Guard<'static, LockedState>;

/// Wakes or starts readers for jobs that wait for one.
pub(crate) fn call(mut state: Locked) {
    state.note_time(sys::now_us());
    let (pending, lacks_watcher) = (state.pending(), state.lacks_watcher());
    let is_alone = lacks_watcher && state.threads == 0;
    let new = (pending > state.idle || is_alone) && state.threads < READERS_MAX;
    let sleeping = (pending > 0 || lacks_watcher) && state.idle > 0;
    let first = new && state.threads == 0;
    state.threads += usize::from(new);
    state.in_transit += usize::from(first);
    if sleeping {
        // Under the lock, because the sleeper may be about to end.
        CALLS.fetch_add(1, Ordering::Relaxed);
    }
    drop(state);
    if sleeping {
        sys::futex_wake(&CALLS);
    }
    if first {
        begin();
    }
    if new && !sys::start_thread(reader) {
        no_thread();
    }
}

/// Opens `/dev/null` before the program changes its root directory, because there may be none in the new one. Readers
/// copy the bytes if there is none.
pub(crate) fn open_sink() {
    if !process::is_ours() {
        return;
    }
    let errno = sys::errno();
    let sink = sys::open_null_if_room();
    let mut state = STATE.lock();
    state.keeps_sink = true;
    let surplus = state.keep_sink(sink);
    drop(state);
    surplus.into_iter().for_each(sys::close);
    sys::set_errno(errno);
}

/// Prepares the process for its first reader.
#[cold]
fn begin() {
    sys::grow_descriptor_table();
    let (memory, sink) = (sys::memory(), sys::open_null_if_room());
    let mut state = STATE.lock();
    let surplus = state.begin_reading(memory, sink);
    drop(state);
    surplus.into_iter().for_each(sys::close);
    let mut state = STATE.lock();
    // The count is 0 in a child that a signal handler has forked meanwhile.
    state.in_transit = state.in_transit.saturating_sub(1);
}

/// Handles a thread that could not be started. Without any reader no socket may wait.
#[cold]
fn no_thread() {
    // This does a reader's work in the program's thread, whose handlers may not run under the lock.
    let signals = sys::block_signals();
    let mut state = STATE.lock();
    state.threads = state.threads.saturating_sub(1);
    let left = state.threads;
    if left == 0 {
        while let Some(job) = state.give_up(sys::now_us()) {
            state = end(state, job);
        }
    }
    drop(state);
    sys::restore_signals(signals);
    stats::log(format_args!("a thread could not be started, {left} are running"));
}

/// The body of a reader's thread.
extern "C" fn reader(_: *mut c_void) -> *mut c_void {
    fuse::run("reader", live);
    ptr::null_mut()
}

fn live() {
    let mut state = STATE.lock_in_reader();
    loop {
        let now = sys::now_us();
        state.note_time(now);
        if let Some(job) = state.take_pending() {
            // The disk may have room for another reader by now.
            call(state);
            state = run_job(STATE.lock_in_reader(), job);
            continue;
        }
        let has_discarded;
        (state, has_discarded) = discard_due(state);
        if has_discarded {
            // There may be a job by now.
            continue;
        }
        let calls = CALLS.load(Ordering::Relaxed);
        let wakes_at = state.watch();
        state.idle += 1;
        drop(state);
        let pause = wakes_at.map(|at| Duration::from_micros(at.saturating_sub(now)));
        let limit = pause.map_or(IDLE, |pause| pause.min(IDLE));
        let nobody_called = sys::futex_wait(&CALLS, calls, Some(limit));
        state = STATE.lock_in_reader();
        state.idle -= 1;
        if wakes_at.is_some() {
            state.end_watch();
            continue;
        }
        if nobody_called && CALLS.load(Ordering::Relaxed) == calls {
            state.threads -= 1;
            return;
        }
    }
}

/// Reads for a job until it ends.
fn run_job(mut state: Locked, job: usize) -> Locked {
    let mut advised = None;
    while !state.has_ended(job) {
        if advised.is_some() && state.gives_way(job) {
            return state;
        }
        let chunk = state.begin_chunk(job, sys::now_us());
        let file = chunk.file;
        let usual = state.readahead(file.dev);
        let readahead = if chunk.stays { usual } else { Readahead::Off };
        drop(state);
        if advised.replace(readahead) != Some(readahead) {
            chunk.fd.into_iter().for_each(|fd| sys::advise(fd, readahead));
        }
        if !chunk.stays {
            note_absent(job, &chunk);
        }
        let sleeps = sys::sleeps();
        let (count, error) = read_chunk(&chunk, readahead);
        let (now, slept) = (sys::now_us(), sys::sleeps() > sleeps);
        stats::READ_BYTES.add(count);
        let (first, end) = (chunk.offset, chunk.offset + count);
        if let Some(error) = error {
            stats::FAILED.add(1);
            let place = first + count;
            stats::log(format_args!("read at {place} of inode {}: error {error}", file.ino));
        }
        let is_last = error.is_none() && count < chunk.len;
        let blocks = first.div_ceil(BLOCK)..if is_last { end.div_ceil(BLOCK) } else { end / BLOCK };
        blocks.for_each(|block| note_read(file, block));
        state = STATE.lock_in_reader();
        fuse::point("read");
        state.note_pace(chunk, count, slept, now);
        state.advance(job, chunk, count, error);
        state = resume(state, job);
        state.in_transit += 1;
        if slept {
            // The disk may get more readers now.
            call(state);
        } else {
            drop(state);
        }
        if stats::is_due() {
            write_counts();
        }
        state = STATE.lock_in_reader();
        state.in_transit -= 1;
        if !chunk.stays {
            state.note_time(sys::now_us());
            (state, _) = discard_due(state);
        }
    }
    end(state, job)
}

/// Writes the counts, of which the lock guards some.
pub(crate) fn write_counts() {
    if let Some(state) = process::lock() {
        let (counts, used) = state.disk_counts();
        drop(state);
        stats::write(&counts[..used]);
    }
}

/// Reads a chunk into memory. Returns fewer bytes than asked for at the end of the file, or with an error.
fn read_chunk(chunk: &Chunk, readahead: Readahead) -> (u64, Option<Errno>) {
    let Some(fd) = chunk.fd else { return (0, None) };
    let mut count = 0;
    if let Some(sink) = chunk.sink {
        if readahead == Readahead::Off {
            sys::will_need(fd, chunk.offset, chunk.len);
        }
        while count < chunk.len {
            match sys::discard(sink, fd, chunk.offset + count, chunk.len - count) {
                Ok(more) if more > 0 => count += more,
                // A further read could wait as long for a disk that fails.
                Err(libc::EIO) => return (count, Some(libc::EIO)),
                // The read below says why.
                _ => break,
            }
        }
    }
    while count < chunk.len {
        match sys::read_to_scratch(fd, chunk.offset + count, chunk.len - count, false) {
            Ok(0) => break,
            Ok(more) => count += more,
            Err(libc::EINTR) => {}
            Err(error) => return (count, Some(error)),
        }
    }
    (count, None)
}

/// The parts of a chunk, each within one block.
fn parts(chunk: &Chunk) -> impl Iterator<Item = Range<u64>> + use<> {
    let (mut at, end) = (chunk.offset, chunk.offset.saturating_add(chunk.len));
    core::iter::from_fn(move || {
        let from = at;
        at = (from / BLOCK + 1).saturating_mul(BLOCK).min(end);
        (from < at).then_some(from..at)
    })
}

/// Looks which parts of a chunk, each within one block, have nothing in memory, and notes that these are to leave the page
/// cache. A part of which something is in memory stays there: it was there before, or other programs want it.
///
/// This comes before the read, because the program may send pages as soon as they arrive.
fn note_absent(job: usize, chunk: &Chunk) {
    let Some(fd) = chunk.fd else { return };
    let is_absent =
        |part: &Range<u64>| sys::cached_pages(fd, part.start, part.end - part.start) == Some(0);
    match sys::cached_pages(fd, chunk.offset, chunk.len) {
        Some(0) => note_parts(job, chunk, parts(chunk)),
        Some(_) => note_parts(job, chunk, parts(chunk).filter(is_absent)),
        // The look of the program's thread has begun to read the first page.
        None if chunk.begins_absent => note_parts(job, chunk, parts(chunk)),
        // Only the pages from the first missing one on can be told apart. The call begins to read them.
        None => {
            let found = sys::read_to_scratch(fd, chunk.offset, chunk.len, true).unwrap_or(0);
            let from = (chunk.offset + found).next_multiple_of(PAGE);
            let rest = parts(chunk).map(|part| part.start.max(from)..part.end);
            note_parts(job, chunk, rest.filter(|part| !part.is_empty()));
        }
    }
}

fn note_parts(job: usize, chunk: &Chunk, parts: impl Iterator<Item = Range<u64>>) {
    let Some(fd) = chunk.fd else { return };
    let mut state = STATE.lock_in_reader();
    for part in parts {
        // If the program has closed the descriptor, its number may be another file's.
        if state.is_reading(job) {
            state.note_brought(chunk.file, part, || sys::duplicate_if_room(fd));
        }
    }
}

/// Discards all that is due. Returns whether that was anything.
fn discard_due(mut state: Locked) -> (Locked, bool) {
    let mut has_discarded = false;
    while let Some(discard) = state.discard() {
        has_discarded = true;
        state.in_transit += usize::from(discard.closes);
        drop(state);
        discard_now(&discard);
        state = STATE.lock_in_reader();
        state.in_transit -= usize::from(discard.closes);
        state.trails.has_discarded();
    }
    (state, has_discarded)
}

fn discard_now(discard: &Discard) {
    let Discard { file, fd, range, closes } = discard;
    if !range.is_empty() {
        stats::DISCARDS.add(1);
        sys::dont_need(*fd, range.start, range.end - range.start);
        // Not before, because the program may look meanwhile.
        (range.start / BLOCK..range.end.div_ceil(BLOCK))
            .for_each(|block| forget_read(*file, block));
    }
    if *closes {
        sys::close(*fd);
    }
}

/// Discards all pages that are to leave the page cache, because the program ends. Waits for the reads that have begun,
/// and once for peers that have yet to acknowledge. The end of the process closes the descriptors.
pub(crate) fn finish() {
    let Some(mut state) = process::lock() else { return };
    if !state.is_bringing() && !trails::are_any() {
        return;
    }
    state.end_jobs();
    for _ in 0..END_PAUSES_MAX {
        if !state.is_bringing() {
            break;
        }
        drop(state);
        sys::pause(END_PAUSE);
        state = STATE.lock();
    }
    for pause in [Some(LAST_PAUSE), None] {
        let mut is_clean = true;
        for (fd, Range { start, end }) in state.trails.all() {
            sys::dont_need(fd, start, end - start);
            is_clean &= sys::cached_pages(fd, start, end - start) == Some(0);
        }
        let Some(pause) = pause.filter(|_| !is_clean) else { return };
        drop(state);
        sys::pause(pause);
        state = STATE.lock();
    }
}

/// The pauses in which the end of the program waits for reads: a second.
const END_PAUSES_MAX: usize = 1000;
const END_PAUSE: Duration = Duration::from_millis(1);
/// The pause in which peers may acknowledge what the program has sent last.
const LAST_PAUSE: Duration = Duration::from_millis(100);

/// Resumes the sockets whose bytes the job has read.
fn resume(mut state: Locked, job: usize) -> Locked {
    loop {
        let now = sys::now_us();
        let resumed = state.resume(job, |socket, changes, since| {
            stats::REARMED.add(1);
            stats::LONGEST_US.at_least(now.saturating_sub(since));
            epoll::apply(socket, changes);
        });
        if resumed < RESUMED_MAX {
            return state;
        }
        drop(state);
        state = STATE.lock_in_reader();
    }
}

/// Ends a job: resumes the sockets that are left, and closes its file.
fn end(state: Locked, job: usize) -> Locked {
    let mut state = resume(state, job);
    let fd = state.free(job);
    state.in_transit += 1;
    drop(state);
    // To close the last reference to a removed file makes the kernel free it on the disk.
    fd.into_iter().for_each(sys::close);
    let mut state = STATE.lock_in_reader();
    state.in_transit -= 1;
    state
}
