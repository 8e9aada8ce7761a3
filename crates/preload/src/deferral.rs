//! The program's side of a wait for the disk: makes a socket wait, and updates the tables when the program changes
//! descriptors meanwhile.

use core::cell::Cell;
use core::ffi::c_int;
use core::ops::Range;
use core::sync::atomic::{AtomicBool, Ordering};

use libc::epoll_event;

use crate::descriptors::{self, DEFERRED, IN_USE, INSTANCE, LOCKER, SHARED};
use crate::epoll::{apply, apply_one, number};
use crate::interest::{Changes, CtlDecision, Op};
use crate::process::{is_ours, lock, settle};
use crate::state::{LockedState, Verdict, Want};
use crate::stats::{self, Reason};
use crate::sys::{self, Errno, FileId};
use crate::{fuse, reader, real, recent, trails};

/// Set once the program has waited for events in a way that is seen here. This is not asked of each socket,
/// because lighttpd watches a socket only after it was full.
static LOOP_SEEN: AtomicBool = AtomicBool::new(false);

/// Notes that the program has called a function that waits for events, if `has` says so.
#[inline]
pub(crate) fn loop_seen(has: impl FnOnce() -> bool) {
    if !LOOP_SEEN.load(Ordering::Relaxed) && has() {
        LOOP_SEEN.store(true, Ordering::Relaxed);
    }
}

/// The outcome of a call whose next byte is not in memory.
pub(crate) enum Outcome {
    /// The socket waits for a reader.
    Deferred,
    /// The read, or the socket, has failed.
    Failed(Errno),
    /// The kernel has to do it.
    Left(Reason),
}

/// Makes a socket wait for a byte of a file. `is_first`: the call has sent nothing, so it can return an
/// error.
pub(crate) fn defer(socket: c_int, file: c_int, want: Want, is_first: bool) -> Outcome {
    if !descriptors::has_place(socket) {
        return Outcome::Left(Reason::NoRoom);
    }
    if !LOOP_SEEN.load(Ordering::Relaxed) {
        return Outcome::Left(Reason::UnseenLoop);
    }
    if !waits_for_events(socket) {
        return Outcome::Left(Reason::Blocking);
    }
    let was_deferred = descriptors::flags(socket) & DEFERRED != 0;
    if was_deferred && let Some(error) = sys::socket_error(socket) {
        cancel(socket);
        return Outcome::Failed(error);
    }
    let Some(mut state) = lock() else {
        return Outcome::Left(Reason::UnseenLoop);
    };
    if !fuse::is_on() {
        // Another thread has switched the library off since: the socket would never be resumed.
        return Outcome::Left(Reason::UnseenLoop);
    }
    fuse::point("state");
    // Asked under the lock, because a reader may have ended the wait since.
    let begins = state.table.flags(socket) & DEFERRED == 0;
    let verdict = state.defer(socket, want, sys::now_us(), || sys::duplicate_if_room(file));
    let outcome = match verdict {
        Verdict::Deferred(changes) => {
            apply(socket, changes);
            if begins {
                stats::DEFERRED.add(1);
            }
            Outcome::Deferred
        }
        Verdict::Failed(errno) => {
            if is_first {
                state.error_was_told(socket);
            }
            Outcome::Failed(errno)
        }
        Verdict::Left(reason, changes) => {
            apply(socket, changes);
            Outcome::Left(reason)
        }
    };
    reader::call(state);
    outcome
}

/// Says whether the last thing that a socket waited for was this, and the wait is over.
pub(crate) fn has_waited(socket: c_int, want: Want) -> bool {
    descriptors::flags(socket) & IN_USE != 0
        && lock().is_some_and(|mut state| state.has_waited(socket, want))
}

/// Says whether this is a stream socket on which `sendfile` would not block.
pub(crate) fn waits_for_events(socket: c_int) -> bool {
    let expected = libc::O_NONBLOCK;
    sys::flags(socket).is_ok_and(|flags| flags & (libc::O_NONBLOCK | libc::O_ASYNC) == expected)
        && sys::is_stream(socket)
}

/// Changes the state of a socket, tells the epoll instances that watch it, and keeps `errno`.
fn change(socket: c_int, change: impl FnOnce(&mut LockedState) -> Changes) {
    let errno = sys::errno();
    if let Some(mut state) = lock() {
        let changes = change(&mut state);
        apply(socket, changes);
    }
    sys::set_errno(errno);
}

/// Ends a socket's wait: it has sent something, or the program shuts it down.
#[inline]
pub(crate) fn cancel(socket: c_int) {
    if descriptors::flags(socket) & DEFERRED != 0 {
        change(socket, |state| state.cancel(socket));
    }
}

/// Never defers a socket again: the program waits for it in a way that cannot be changed.
pub(crate) fn leave(socket: c_int) {
    change(socket, |state| state.leave(socket));
}

/// Clears the entry of a descriptor that is about to be closed.
#[inline]
pub(crate) fn forget(fd: c_int) {
    descriptors::end_epoch(fd);
    let flags = descriptors::flags(fd);
    if flags & INSTANCE != 0 {
        forget_instance(fd, true);
    }
    if flags & LOCKER != 0 {
        unlock(fd);
    }
    if flags != 0 {
        // Another process may have a descriptor of the same socket: its epoll instance has to know.
        change(fd, |state| state.forget(fd));
        if trails::are_any() {
            leave_trails(fd);
        }
    }
}

/// Notes that a socket has sent a part of a file, whose pages leave the page cache now, or keep all others of the file
/// there (`stays`).
pub(crate) fn passed(socket: c_int, file: FileId, range: &Range<u64>, stays: bool) {
    let errno = sys::errno();
    if let Some(mut state) = lock() {
        let has_work = if stays {
            state.trails.keep(file)
        } else {
            state.trails.passed(socket, file, range, sys::now_us())
        };
        if has_work {
            reader::call(state);
        }
    }
    sys::set_errno(errno);
}

/// Notes that a socket that is about to be closed sends no more.
fn leave_trails(socket: c_int) {
    let errno = sys::errno();
    if let Some(mut state) = lock()
        && state.trails.left_by(socket, sys::now_us())
    {
        reader::call(state);
    }
    sys::set_errno(errno);
}

/// Notes that the program is about to lock the file of a descriptor: from now on no reader may close a
/// descriptor of that file.
pub(crate) fn lock_file(fd: c_int) {
    let errno = sys::errno();
    if descriptors::has_place(fd)
        && let Ok(status) = sys::status(fd)
        && status.is_regular
        && let Some(mut state) = lock()
    {
        let has_room = state.lock_file(fd, status.id);
        // A reader may be about to close a descriptor of the file.
        drop(settle(state));
        // Without the lock, because a close may need the disk. This ends, because no trail begins at a locked file.
        while let Some(fd) = lock().and_then(|mut state| state.end_trail(|file| file == status.id))
        {
            sys::close(fd);
        }
        if !has_room {
            stats::log(format_args!("too many files are locked: all files are left to the kernel"));
        }
    }
    sys::set_errno(errno);
}

/// Closes the parked descriptors of a file whose locking descriptor is about to be closed: the close gives
/// up the locks.
#[cold]
fn unlock(fd: c_int) {
    let errno = sys::errno();
    if let Some(mut state) = lock() {
        state.locked.unlock(fd);
    }
    // Without the lock, because a close may need the disk. This ends, because no more are parked.
    while let Some(parked) = lock().and_then(|mut state| state.unpark()) {
        sys::close(parked);
    }
    sys::set_errno(errno);
}

/// Clears an epoll instance that is about to be closed (`tells`), or was closed without being seen.
#[cold]
fn forget_instance(epfd: c_int, tells: bool) {
    let errno = sys::errno();
    if let Some(mut state) = lock() {
        state.forget_instance(epfd, |socket, told| {
            if tells {
                apply_one(socket, told);
            }
        });
    }
    sys::set_errno(errno);
}

/// Clears the entry of a number that is another socket's now: the old one was closed without being seen.
#[cold]
pub(crate) fn renew(fd: c_int) {
    let flags = descriptors::flags(fd);
    if flags & INSTANCE != 0 {
        forget_instance(fd, false);
    }
    if flags & LOCKER != 0 {
        unlock(fd);
    }
    change(fd, |state| {
        // No call is made: the changes are about the other socket.
        state.forget(fd);
        Changes::default()
    });
}

/// [`forget`] for all descriptors of a range, both ends included.
pub(crate) fn forget_all(first: u32, last: u32) {
    if !is_ours() {
        return;
    }
    if last - first >= MANY {
        recent::clear_all();
    }
    for fd in (first..=last).map(u32::cast_signed).take_while(|&fd| descriptors::has_place(fd)) {
        if last - first < MANY || descriptors::flags(fd) != 0 {
            forget(fd);
        }
    }
}

/// From this many descriptors on, it costs less to clear all recent findings than to end the epoch of each
/// descriptor.
const MANY: u32 = 1024;

/// Notes that `old` has been duplicated as `new`. Only sockets can be deferred, so only they matter, and epoll
/// instances that watch them.
pub(crate) fn share(old: c_int, new: c_int) {
    let errno = sys::errno();
    if sys::status(old).is_ok_and(|status| status.is_socket || status.is_anonymous)
        && let Some(mut state) = lock()
    {
        let changes = state.share(old);
        apply(old, changes);
        state.share(new);
        if descriptors::flags(old) & INSTANCE != 0 {
            state.leave_watched(old, apply);
        }
    }
    sys::set_errno(errno);
}

/// Makes an `epoll_ctl(2)` of the program. Returns what the kernel would; `answer` has that even if this
/// library fails afterwards.
///
/// # Safety
/// `event` is null or valid, as for `epoll_ctl(2)`.
pub(crate) unsafe fn control(
    epfd: c_int,
    op: c_int,
    fd: c_int,
    event: *mut epoll_event,
    answer: &Cell<Option<c_int>>,
) -> c_int {
    loop_seen(|| true);
    let operation = match op {
        libc::EPOLL_CTL_ADD => Op::Add,
        libc::EPOLL_CTL_DEL => Op::Del,
        libc::EPOLL_CTL_MOD => Op::Mod,
        // SAFETY: the caller's arguments.
        _ => return unsafe { real::epoll_ctl.function()(epfd, op, fd, event) },
    };
    if !descriptors::has_place(fd) || (event.is_null() && operation != Op::Del) {
        // SAFETY: the caller's arguments.
        return unsafe { real::epoll_ctl.function()(epfd, op, fd, event) };
    }
    let wanted = if operation == Op::Del {
        epoll_event { events: 0, u64: 0 }
    } else {
        // SAFETY: not null, so valid (the caller's promise).
        unsafe { event.read_unaligned() }
    };
    let mut state = lock();
    let Some(state) = state.as_deref_mut() else {
        // SAFETY: the caller's arguments.
        return unsafe { real::epoll_ctl.function()(epfd, op, fd, event) };
    };
    if operation != Op::Del && state.table.flags(epfd) & SHARED != 0 {
        // The program may change the registration by another descriptor of the instance.
        apply(fd, state.leave(fd));
    }
    let flags = state.table.flags(fd);
    let Some(entry) = state.table.entry(fd) else {
        // SAFETY: the caller's arguments.
        return unsafe { real::epoll_ctl.function()(epfd, op, fd, event) };
    };
    let returned = match entry.interest.asked(operation, epfd, wanted.events) {
        CtlDecision::Keep => 0,
        CtlDecision::Pass(operation, events) => {
            let mut passed = epoll_event { events, u64: wanted.u64 };
            // SAFETY: a valid event; the kernel does not look at it for EPOLL_CTL_DEL.
            unsafe { real::epoll_ctl.function()(epfd, number(operation), fd, &raw mut passed) }
        }
        CtlDecision::Refuse => {
            sys::set_errno(libc::EEXIST);
            -1
        }
        CtlDecision::Withhold(events) => {
            let errno = sys::errno();
            let mut passed = epoll_event { events, u64: wanted.u64 };
            let modify = libc::EPOLL_CTL_MOD;
            // SAFETY: a valid event.
            let found =
                unsafe { real::epoll_ctl.function()(epfd, modify, fd, &raw mut passed) } == 0;
            if found {
                sys::set_errno(libc::EEXIST);
                -1
            } else if sys::errno() == libc::ENOENT {
                sys::set_errno(errno);
                0
            } else {
                -1
            }
        }
    };
    answer.set(Some(returned));
    if returned == 0 {
        fuse::point("granted");
        entry.interest.granted(operation, epfd, wanted.events, wanted.u64);
        // The flag stays set until the socket is closed, even if no epoll instance watches it any more.
        state.table.set_flags(fd, flags | IN_USE);
        state.table.set_flags(epfd, state.table.flags(epfd) | INSTANCE);
    }
    returned
}
