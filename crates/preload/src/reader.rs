//! The threads that wait for the disk, so that the program does not.

use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;

use crate::deferral::{self, STATE, make, now_us};
use crate::lock::Guard;
use crate::residency::{BLOCK, remember};
use crate::state::{Chunk, RESUMED_MAX, State};
use crate::stats;
use crate::sys::{self, Errno};

/// How long a reader without work stays.
const IDLE: Duration = Duration::from_secs(10);

/// Counts calls for readers: who falls asleep says which was the last it knew of.
static CALLS: AtomicU32 = AtomicU32::new(0);

type Locked = Guard<'static, State>;

/// There may be jobs that no reader knows of.
pub(crate) fn call(mut state: Locked) {
    let (new, sleeping) = (state.wants_reader(), state.idle > 0);
    state.threads += usize::from(new);
    drop(state);
    if sleeping {
        CALLS.fetch_add(1, Ordering::Relaxed);
        sys::futex_wake(&CALLS);
    }
    if new && !sys::start_thread(run) {
        no_thread();
    }
}

/// A thread could not be started. If there is none at all, nobody may wait.
#[cold]
fn no_thread() {
    let mut state = STATE.lock();
    state.threads -= 1;
    stats::log(format_args!("no thread could be started, {} are there", state.threads));
    if state.threads == 0 {
        while let Some(job) = state.give_up() {
            state = end(state, job);
        }
    }
}

/// The life of a reader.
extern "C" fn run(_: *mut c_void) -> *mut c_void {
    let mut state = STATE.lock();
    loop {
        if let Some(job) = state.take_pending() {
            state = read(state, job);
            continue;
        }
        let calls = CALLS.load(Ordering::Relaxed);
        state.idle += 1;
        drop(state);
        let nobody_called = sys::futex_wait(&CALLS, calls, Some(IDLE));
        state = STATE.lock();
        state.idle -= 1;
        if nobody_called && CALLS.load(Ordering::Relaxed) == calls {
            state.threads -= 1;
            return ptr::null_mut();
        }
    }
}

/// Do a job.
fn read(mut state: Locked, job: usize) -> Locked {
    let mut advised = None;
    while !state.has_ended(job) {
        let chunk = state.chunk(job);
        let Chunk { fd, file, .. } = chunk;
        let readahead = state.readahead(file.dev);
        drop(state);
        if advised.replace(readahead) != Some(readahead) {
            // On the open file, so that it also holds for the program's own sendfile: readahead
            // that it would start might have to wait for the disk's queue.
            sys::advise(fd, readahead);
        }
        let began = now_us();
        let (count, error) = fill(&chunk);
        let took = now_us().saturating_sub(began);
        stats::READ_BYTES.add(count);
        let (first, end) = (chunk.offset, chunk.offset + count);
        let whole = error.is_none() && (count < chunk.len || end.is_multiple_of(BLOCK));
        if first.is_multiple_of(BLOCK) && whole {
            remember(file, first / BLOCK);
        }
        state = STATE.lock();
        state.note_speed(file.dev, count, took);
        if let Some(error) = error {
            stats::FAILED.add(1);
            let place = first + count;
            stats::log(format_args!("read at {place} of inode {}: error {error}", file.ino));
        }
        state.advance(job, chunk, count, error);
        state = resume(state, job);
        stats::write_now_and_then();
    }
    end(state, job)
}

/// Read a chunk into memory. Fewer bytes than asked for: the end of the file, or an error.
fn fill(chunk: &Chunk) -> (u64, Option<Errno>) {
    let mut count = 0;
    while count < chunk.len {
        let left = chunk.len - count;
        match sys::read_for_nothing(chunk.fd, chunk.offset + count, left, false) {
            Ok(0) => break,
            Ok(more) => count += more,
            Err(libc::EINTR) => {}
            Err(error) => return (count, Some(error)),
        }
    }
    (count, None)
}

/// Resume whom the job has brought what they waited for.
fn resume(mut state: Locked, job: usize) -> Locked {
    loop {
        let now = now_us();
        let resumed = state.resume(job, |socket, changes, since| {
            stats::REARMED.add(1);
            stats::LONGEST_US.at_least(now.saturating_sub(since));
            make(socket, changes);
        });
        if resumed < RESUMED_MAX {
            return state;
        }
        drop(state);
        state = STATE.lock();
    }
}

/// A job has ended: resume all that are left, and let go of its file.
fn end(state: Locked, job: usize) -> Locked {
    let mut state = resume(state, job);
    let fd = state.free(job);
    sys::close(fd);
    state
}

const _: () = assert!(size_of::<deferral::Outcome>() <= 8);
