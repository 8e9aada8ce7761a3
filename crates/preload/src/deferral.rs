//! The program's side: sockets that begin to wait, and everything that a program can do to a socket
//! which must keep the tables true.

use core::cell::Cell;
use core::ffi::c_int;
use core::sync::atomic::{AtomicBool, Ordering};

use libc::epoll_event;

use crate::descriptors::{self, DEFERRED, IN_USE, INSTANCE, LOCKER};
use crate::epoll::{apply, apply_one, number};
use crate::interest::{Answer, Changes, Op};
use crate::process::{is_ours, lock, settle};
use crate::state::{State, Verdict, Want};
use crate::stats::{self, Reason};
use crate::sys::{self, Errno};
use crate::{fuse, reader, real, recent};

/// The program waits for events in ways that are seen here. Not asked of each socket: lighttpd has one
/// watched only when it was full.
static LOOP_SEEN: AtomicBool = AtomicBool::new(false);

/// The program may have called a function that waits for events.
#[inline]
pub(crate) fn loop_seen(has: impl FnOnce() -> bool) {
    if !LOOP_SEEN.load(Ordering::Relaxed) && has() {
        LOOP_SEEN.store(true, Ordering::Relaxed);
    }
}

/// What becomes of a call whose next byte is not in memory.
pub(crate) enum Outcome {
    Deferred,
    Failed(Errno),
    Left(Reason),
}

/// Make a socket wait for a byte of a file. `is_first`: an error would be told to the program now.
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
        // Another thread has switched it off since, and nobody would be told any more.
        return Outcome::Left(Reason::UnseenLoop);
    }
    fuse::point("state");
    let verdict = state.defer(socket, want, sys::now_us(), || sys::duplicate_if_room(file));
    let outcome = match verdict {
        Verdict::Deferred(changes) => {
            apply(socket, changes);
            if !was_deferred {
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

/// Whether a socket has waited for just this, and does not any more.
pub(crate) fn has_waited(socket: c_int, want: Want) -> bool {
    descriptors::flags(socket) & IN_USE != 0
        && lock().is_some_and(|mut state| state.has_waited(socket, want))
}

/// Whether it is a socket that a program would not wait for in `sendfile` itself.
fn waits_for_events(socket: c_int) -> bool {
    let expected = libc::O_NONBLOCK;
    sys::flags(socket).is_ok_and(|flags| flags & (libc::O_NONBLOCK | libc::O_ASYNC) == expected)
        && sys::status(socket).is_ok_and(|status| status.is_socket)
}

/// Change what is known of a socket and tell who watches it, with `errno` as it was.
fn change(socket: c_int, change: impl FnOnce(&mut State) -> Changes) {
    let errno = sys::errno();
    if let Some(mut state) = lock() {
        let changes = change(&mut state);
        apply(socket, changes);
    }
    sys::set_errno(errno);
}

/// The socket does not wait any more: it has sent something, or is shut down.
#[inline]
pub(crate) fn cancel(socket: c_int) {
    if descriptors::flags(socket) & DEFERRED != 0 {
        change(socket, |state| state.cancel(socket));
    }
}

/// The program waits for the socket in a way in which it cannot be made to wait.
pub(crate) fn leave(socket: c_int) {
    change(socket, |state| state.leave(socket));
}

/// The descriptor is about to be closed.
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
        // There may be another descriptor of it that lives on, in another process: it is told.
        change(fd, |state| state.forget(fd));
    }
}

/// The program is about to lock the file of a descriptor: no reader may close one of its descriptors from
/// now on.
pub(crate) fn lock_file(fd: c_int) {
    let errno = sys::errno();
    if descriptors::has_place(fd)
        && let Ok(status) = sys::status(fd)
        && status.is_regular
        && let Some(mut state) = lock()
    {
        let has_room = state.lock_file(fd, status.id);
        // Some may be about to close descriptors of it.
        drop(settle(state));
        if !has_room {
            stats::log(format_args!("too many files are locked: none is read any more"));
        }
    }
    sys::set_errno(errno);
}

/// The descriptor by which a file was locked is about to be closed, and with it the locks are given up.
#[cold]
fn unlock(fd: c_int) {
    let errno = sys::errno();
    if let Some(mut state) = lock() {
        state.locked.unlock(fd);
    }
    // Not under the lock: the disk may be needed. Ends, for no more are parked.
    while let Some(parked) = lock().and_then(|mut state| state.unpark()) {
        sys::close(parked);
    }
    sys::set_errno(errno);
}

/// An epoll instance is about to be closed, or has been unseen (`tells`: not yet).
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

/// The number is another socket's now; the one that is known was closed unseen.
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
        // Not told to anyone: it was about the other socket.
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

/// From so many descriptors on, it is less to forget everything that was found resident than to end
/// the epoch of each.
const MANY: u32 = 1024;

/// `old` has been duplicated as `new`. Only sockets can be deferred, so only they matter.
pub(crate) fn share(old: c_int, new: c_int) {
    let errno = sys::errno();
    if sys::status(old).is_ok_and(|status| status.is_socket)
        && let Some(mut state) = lock()
    {
        let changes = state.share(old);
        apply(old, changes);
        state.share(new);
    }
    sys::set_errno(errno);
}

/// `epoll_ctl(2)` by the program. Returns what the kernel does; `answer` has it even if we fail then.
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
    let Some((state, flags)) = state.as_mut().map(|state| (&mut **state, descriptors::flags(fd)))
    else {
        // SAFETY: the caller's arguments.
        return unsafe { real::epoll_ctl.function()(epfd, op, fd, event) };
    };
    let Some(entry) = state.table.entry(fd) else {
        // SAFETY: the caller's arguments.
        return unsafe { real::epoll_ctl.function()(epfd, op, fd, event) };
    };
    let returned = match entry.interest.asked(operation, epfd, wanted.events) {
        Answer::Keep => 0,
        Answer::Pass(operation, events) => {
            let mut passed = epoll_event { events, u64: wanted.u64 };
            // SAFETY: a valid event; the kernel does not look at it for EPOLL_CTL_DEL.
            unsafe { real::epoll_ctl.function()(epfd, number(operation), fd, &raw mut passed) }
        }
        Answer::Refuse => {
            sys::set_errno(libc::EEXIST);
            -1
        }
        Answer::Withhold(events) => {
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
        // Until it is closed, even if nobody watches it any more.
        state.table.set_flags(fd, flags | IN_USE);
        state.table.set_flags(epfd, state.table.flags(epfd) | INSTANCE);
    }
    returned
}
