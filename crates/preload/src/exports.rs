//! The functions that programs call in place of the C library's. Each does what the library has to do for
//! the call, and then calls the real function. If the library's part fails, only the real function is
//! called (`fuse`).
//!
//! Arguments, results and `errno` are those of the real functions. The ABI is `C-unwind`, because a thread
//! may be cancelled in some of them, which the C library does by unwinding.

use core::cell::Cell;
use core::ffi::{c_char, c_int, c_long, c_uint, c_ulong};
use core::time::Duration;

use libc::{
    FILE, epoll_event, fd_set, nfds_t, off_t, pollfd, sigset_t, sockaddr, socklen_t, timespec,
    timeval,
};

use crate::wait::{Limit, Sets, limit_of};
use crate::{
    deferral, descriptors, fuse, process, reader, real, sendfile as sending, stats, sys, wait,
};

/// Runs the library's part of a call. `None`: the library is off, or has just failed; then the real function
/// makes the whole call.
#[inline]
fn ours<T>(name: &str, call: impl FnOnce() -> T) -> Option<T> {
    if fuse::is_on() { fuse::run(name, call) } else { None }
}

/// `sendfile(2)`.
///
/// # Safety
/// As `sendfile(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn sendfile(
    out: c_int,
    file: c_int,
    offset: *mut off_t,
    count: usize,
) -> isize {
    let progress = Cell::new(0);
    // Of nothing, and of a count that is negative as an `ssize_t`, the kernel says what it thinks.
    if count.cast_signed() > 0 {
        // SAFETY: the caller's arguments.
        let call = || unsafe { sending::sendfile(out, file, offset, count, &progress) };
        if let Some(sent) = ours("sendfile", call) {
            return sent;
        }
    }
    match progress.get() {
        // SAFETY: the caller's arguments.
        0 => unsafe { real::sendfile.function()(out, file, offset, count) },
        sent => sent,
    }
}

/// `sendfile64(2)`: the same where `off_t` has 64 bits.
///
/// # Safety
/// As `sendfile(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn sendfile64(
    out: c_int,
    file: c_int,
    offset: *mut off_t,
    count: usize,
) -> isize {
    // SAFETY: the caller's arguments.
    unsafe { sendfile(out, file, offset, count) }
}

/// `epoll_create(2)`.
///
/// # Safety
/// None.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn epoll_create(size: c_int) -> c_int {
    // SAFETY: no pointers.
    made(unsafe { real::epoll_create.function()(size) })
}

/// `epoll_create1(2)`.
///
/// # Safety
/// None.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn epoll_create1(flags: c_int) -> c_int {
    // SAFETY: no pointers.
    made(unsafe { real::epoll_create1.function()(flags) })
}

/// `epoll_ctl(2)`.
///
/// # Safety
/// As `epoll_ctl(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn epoll_ctl(
    epfd: c_int,
    op: c_int,
    fd: c_int,
    event: *mut epoll_event,
) -> c_int {
    let answer = Cell::new(None);
    // SAFETY: the caller's arguments.
    let call = || unsafe { deferral::control(epfd, op, fd, event, &answer) };
    ours("epoll_ctl", call).or_else(|| answer.get()).unwrap_or_else(|| {
        // SAFETY: the caller's arguments.
        unsafe { real::epoll_ctl.function()(epfd, op, fd, event) }
    })
}

/// # Safety
/// As `poll(2)`.
unsafe fn poll_in_slices(
    first: *mut pollfd,
    count: nfds_t,
    limit: Limit,
    signals: *const sigset_t,
) -> Option<c_int> {
    if first.is_null() {
        return None;
    }
    // SAFETY: not null, so there are `count` valid elements (the caller's promise).
    let polled = unsafe { core::slice::from_raw_parts_mut(first, usize::try_from(count).ok()?) };
    let is_for_us = ours("poll", || {
        // A `poll` without events only asks whether descriptors are open.
        deferral::loop_seen(|| polled.iter().any(|polled| polled.events != 0));
        descriptors::any_deferred() && process::is_ours() && wait::can_poll(polled)
    });
    is_for_us.filter(|&is_for_us| is_for_us)?;
    wait::poll(polled, limit, signals)
}

/// `poll(2)`.
///
/// # Safety
/// As `poll(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn poll(
    first: *mut pollfd,
    count: nfds_t,
    timeout_ms: c_int,
) -> c_int {
    let limit = u64::try_from(timeout_ms).ok().map(Duration::from_millis);
    // SAFETY: the caller's arguments.
    if let Some(ready) = unsafe { poll_in_slices(first, count, limit, core::ptr::null()) } {
        return ready;
    }
    // SAFETY: the caller's arguments.
    unsafe { real::poll.function()(first, count, timeout_ms) }
}

/// `ppoll(2)`.
///
/// # Safety
/// As `ppoll(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn ppoll(
    first: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    signals: *const sigset_t,
) -> c_int {
    // SAFETY: null or valid (the caller's promise).
    let limit = unsafe { timeout.as_ref() }.map(|it| limit_of(it.tv_sec, it.tv_nsec));
    // The kernel refuses a limit that is not valid.
    if limit != Some(None)
        // SAFETY: the caller's arguments.
        && let Some(ready) = unsafe { poll_in_slices(first, count, limit.flatten(), signals) }
    {
        return ready;
    }
    // SAFETY: the caller's arguments.
    unsafe { real::ppoll.function()(first, count, timeout, signals) }
}

/// `poll(2)` of programs built with `_FORTIFY_SOURCE`.
///
/// # Safety
/// As `poll(2)`, with `bytes` at `first`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn __poll_chk(
    first: *mut pollfd,
    count: nfds_t,
    timeout_ms: c_int,
    bytes: usize,
) -> c_int {
    if has_room(count, bytes) {
        // SAFETY: the caller's arguments.
        return unsafe { poll(first, count, timeout_ms) };
    }
    // SAFETY: the caller's arguments; it aborts, and so does `function` if there is none.
    unsafe { real::__poll_chk.function()(first, count, timeout_ms, bytes) }
}

/// `ppoll(2)` of programs built with `_FORTIFY_SOURCE`.
///
/// # Safety
/// As `ppoll(2)`, with `bytes` at `first`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn __ppoll_chk(
    first: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    signals: *const sigset_t,
    bytes: usize,
) -> c_int {
    if has_room(count, bytes) {
        // SAFETY: the caller's arguments.
        return unsafe { ppoll(first, count, timeout, signals) };
    }
    // SAFETY: the caller's arguments; it aborts.
    unsafe { real::__ppoll_chk.function()(first, count, timeout, signals, bytes) }
}

fn has_room(count: nfds_t, bytes: usize) -> bool {
    usize::try_from(count).is_ok_and(|count| count <= bytes / size_of::<pollfd>())
}

/// Says whether a `select` has to be made in slices.
#[inline]
fn select_in_slices() -> bool {
    let is_for_us = ours("select", || {
        deferral::loop_seen(|| true);
        descriptors::any_deferred() && process::is_ours()
    });
    is_for_us == Some(true)
}

/// `select(2)`. As on Linux, the time that is left replaces the limit.
///
/// # Safety
/// As `select(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn select(
    count: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *mut timeval,
) -> c_int {
    if select_in_slices() {
        let sets = Sets { read, write, except };
        // SAFETY: null or valid (the caller's promise).
        let limit = unsafe { timeout.as_ref() }.map(|it| {
            // More microseconds than a second has are taken, too.
            let seconds = it.tv_sec.checked_add(it.tv_usec / 1_000_000)?;
            limit_of(seconds, it.tv_usec % 1_000_000 * 1000)
        });
        let began = sys::now();
        if limit != Some(None)
            // SAFETY: the caller's arguments.
            && let Some(ready) = unsafe { wait::select(count, sets, limit.flatten(), core::ptr::null()) }
        {
            if let Some(limit) = limit.flatten() {
                let left = limit.saturating_sub(sys::now().saturating_sub(began));
                let tv_sec = i64::try_from(left.as_secs()).unwrap_or(i64::MAX);
                // SAFETY: there is a limit, so the pointer is valid (the caller's promise).
                unsafe { *timeout = timeval { tv_sec, tv_usec: left.subsec_micros().into() } };
            }
            return ready;
        }
    }
    // SAFETY: the caller's arguments.
    unsafe { real::select.function()(count, read, write, except, timeout) }
}

/// `pselect(2)`.
///
/// # Safety
/// As `pselect(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn pselect(
    count: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *const timespec,
    signals: *const sigset_t,
) -> c_int {
    if select_in_slices() {
        let sets = Sets { read, write, except };
        // SAFETY: null or valid (the caller's promise).
        let limit = unsafe { timeout.as_ref() }.map(|it| limit_of(it.tv_sec, it.tv_nsec));
        if limit != Some(None)
            // SAFETY: the caller's arguments.
            && let Some(ready) = unsafe { wait::select(count, sets, limit.flatten(), signals) }
        {
            return ready;
        }
    }
    // SAFETY: the caller's arguments.
    unsafe { real::pselect.function()(count, read, write, except, timeout, signals) }
}

/// `close(2)`.
///
/// # Safety
/// As `close(2)`: the descriptor is the caller's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn close(fd: c_int) -> c_int {
    ours("close", || deferral::forget(fd));
    // SAFETY: the caller's descriptor.
    unsafe { real::close.function()(fd) }
}

/// `fclose(3)`: the C library's function does not call the `close` above.
///
/// # Safety
/// As `fclose(3)`: the stream is the caller's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn fclose(stream: *mut FILE) -> c_int {
    ours("fclose", || {
        let errno = sys::errno();
        // SAFETY: an open stream (the caller's promise). One without a descriptor has -1.
        let fd = unsafe { libc::fileno(stream) };
        sys::set_errno(errno);
        deferral::forget(fd);
    });
    // SAFETY: the caller's stream.
    unsafe { real::fclose.function()(stream) }
}

/// `close_range(2)`.
///
/// # Safety
/// As `close(2)`, for all in the range.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    // With CLOSE_RANGE_UNSHARE the other threads keep their descriptors. If a number is closed all the same,
    // its entry is cleared when the number is a socket's again.
    let closes = flags == 0 && first <= last;
    ours("close_range", || {
        if closes && sys::close_range(u32::MAX, u32::MAX, 0) == 0 {
            deferral::forget_all(first, last);
        }
    });
    match real::close_range.if_any() {
        // SAFETY: the caller's descriptors.
        Some(function) => unsafe { function(first, last, flags) },
        None => sys::close_range(first, last, flags),
    }
}

/// `closefrom(3)`.
///
/// # Safety
/// As `close(2)`, for all from the first on.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn closefrom(first: c_int) {
    ours("closefrom", || deferral::forget_all(u32::try_from(first).unwrap_or(0), u32::MAX));
    match real::closefrom.if_any() {
        // SAFETY: the caller's descriptors.
        Some(function) => unsafe { function(first) },
        None => sys::close_from(u32::try_from(first).unwrap_or(0)),
    }
}

/// Notes that a descriptor has been duplicated, if the call did not fail.
fn duplicated(old: c_int, new: c_int) -> c_int {
    if new >= 0 && new != old {
        made(new);
        ours("dup", || deferral::share(old, new));
    }
    new
}

/// `dup(2)`.
///
/// # Safety
/// As `dup(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn dup(old: c_int) -> c_int {
    // SAFETY: the caller's descriptor.
    duplicated(old, unsafe { real::dup.function()(old) })
}

/// Clears the entry of `new`, which a `dup2` is about to close. This has to come before the call, because
/// afterwards the number may be another file's; and a call that will fail closes nothing.
fn forget_unless_refused(old: c_int, new: c_int, flags: c_int) {
    ours("dup2", || {
        let errno = sys::errno();
        if old != new && flags & !libc::O_CLOEXEC == 0 && sys::can_duplicate(old, new) {
            deferral::forget(new);
        }
        sys::set_errno(errno);
    });
}

/// `dup2(2)`.
///
/// # Safety
/// As `dup2(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn dup2(old: c_int, new: c_int) -> c_int {
    forget_unless_refused(old, new, 0);
    // SAFETY: the caller's descriptors.
    duplicated(old, unsafe { real::dup2.function()(old, new) })
}

/// `dup3(2)`.
///
/// # Safety
/// As `dup3(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn dup3(old: c_int, new: c_int, flags: c_int) -> c_int {
    forget_unless_refused(old, new, flags);
    // SAFETY: the caller's descriptors.
    duplicated(old, unsafe { real::dup3.function()(old, new, flags) })
}

/// `fcntl(2)`. Its third argument is variable; on the machines that this library is built for, a word is
/// passed in the same place.
///
/// # Safety
/// As `fcntl(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn fcntl(fd: c_int, command: c_int, argument: c_ulong) -> c_int {
    if let libc::F_SETLK | libc::F_SETLKW | libc::F_OFD_SETLK | libc::F_OFD_SETLKW = command {
        let lock = core::ptr::with_exposed_provenance::<libc::flock>(
            usize::try_from(argument).unwrap_or(0),
        );
        ours("fcntl", || {
            // SAFETY: these commands take null or a valid `struct flock` (the caller's promise).
            let lock = unsafe { lock.as_ref() };
            if lock.is_some_and(|lock| c_int::from(lock.l_type) != libc::F_UNLCK) {
                deferral::lock_file(fd);
            }
        });
    }
    // SAFETY: the caller's arguments.
    let result = unsafe { real::fcntl.function()(fd, command, argument) };
    match command {
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => duplicated(fd, result),
        _ => result,
    }
}

/// `fcntl64`: the same where `off_t` has 64 bits.
///
/// # Safety
/// As `fcntl(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn fcntl64(fd: c_int, command: c_int, argument: c_ulong) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { fcntl(fd, command, argument) }
}

/// `lockf(3)`: the C library's function does not call the `fcntl` above.
///
/// # Safety
/// None.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn lockf(fd: c_int, command: c_int, len: off_t) -> c_int {
    if let libc::F_LOCK | libc::F_TLOCK = command {
        ours("lockf", || deferral::lock_file(fd));
    }
    // SAFETY: no pointers.
    unsafe { real::lockf.function()(fd, command, len) }
}

/// `lockf64`: the same where `off_t` has 64 bits.
///
/// # Safety
/// None.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn lockf64(fd: c_int, command: c_int, len: off_t) -> c_int {
    // SAFETY: no pointers.
    unsafe { lockf(fd, command, len) }
}

/// `flock(2)`. The lock belongs to the open file, which a reader would keep open.
///
/// # Safety
/// None.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn flock(fd: c_int, operation: c_int) -> c_int {
    if operation & libc::LOCK_UN == 0 {
        ours("flock", || deferral::lock_file(fd));
    }
    // SAFETY: no pointers.
    unsafe { real::flock.function()(fd, operation) }
}

/// Switches the library off before the program installs a seccomp filter. The filter does not know the
/// library's calls, and it is too late to try for which of them it kills.
fn install(filter: impl FnOnce() -> c_long) -> c_long {
    // A child of vfork(2) must not do this, because its memory is its parent's.
    if fuse::is_on() && process::is_ours() && fuse::switch_off() {
        // Logged before the call, because the filter may kill for the calls that a log line needs.
        let errno = sys::errno();
        stats::log(format_args!(
            "the program installs a seccomp filter: everything is left to the kernel"
        ));
        sys::set_errno(errno);
    }
    // The library stays off even if the filter is refused: it has not seen what the program did with its
    // sockets meanwhile.
    filter()
}

/// `prctl(2)`, with words for its variable arguments, as `fcntl`.
///
/// # Safety
/// As `prctl(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn prctl(
    option: c_int,
    a: c_ulong,
    b: c_ulong,
    c: c_ulong,
    d: c_ulong,
) -> c_int {
    // SAFETY: the caller's arguments.
    let call = || unsafe { real::prctl.function()(option, a, b, c, d) };
    match option {
        libc::PR_SET_SECCOMP => c_int::try_from(install(|| call().into())).unwrap_or(-1),
        _ => call(),
    }
}

/// `syscall(2)`, by which libraries call `seccomp(2)`, with words for its variable arguments, as `fcntl`.
///
/// # Safety
/// As `syscall(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn syscall(
    number: c_long,
    a: c_ulong,
    b: c_ulong,
    c: c_ulong,
    d: c_ulong,
    e: c_ulong,
    f: c_ulong,
) -> c_long {
    const STRICT: c_ulong = 0;
    const FILTER: c_ulong = 1;
    // SAFETY: the caller's arguments.
    let call = || unsafe { real::syscall.function()(number, a, b, c, d, e, f) };
    match (number, a) {
        // Without a filter the program only asks which flags exist.
        (libc::SYS_seccomp, FILTER) if c != 0 => install(call),
        (libc::SYS_seccomp, STRICT) => install(call),
        _ => call(),
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("fcntl passes its third argument as a word only on x86-64 and aarch64");

/// `shutdown(2)`.
///
/// # Safety
/// As `shutdown(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn shutdown(socket: c_int, how: c_int) -> c_int {
    ours("shutdown", || deferral::cancel(socket));
    // SAFETY: the caller's descriptor.
    unsafe { real::shutdown.function()(socket, how) }
}

/// `chroot(2)`.
///
/// # Safety
/// As `chroot(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn chroot(path: *const c_char) -> c_int {
    ours("chroot", reader::open_sink);
    // SAFETY: the caller's path.
    unsafe { real::chroot.function()(path) }
}

/// Clears what is known of the number of a new descriptor: it is about another one, whose close was not seen.
fn made(fd: c_int) -> c_int {
    if descriptors::flags(fd) != 0 {
        ours("socket", || deferral::renew(fd));
    }
    fd
}

/// `accept(2)`.
///
/// # Safety
/// As `accept(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn accept(
    socket: c_int,
    address: *mut sockaddr,
    len: *mut socklen_t,
) -> c_int {
    // SAFETY: the caller's arguments.
    made(unsafe { real::accept.function()(socket, address, len) })
}

/// `accept4(2)`.
///
/// # Safety
/// As `accept4(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn accept4(
    socket: c_int,
    address: *mut sockaddr,
    len: *mut socklen_t,
    flags: c_int,
) -> c_int {
    // SAFETY: the caller's arguments.
    made(unsafe { real::accept4.function()(socket, address, len, flags) })
}

/// `socket(2)`.
///
/// # Safety
/// None.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    // SAFETY: no pointers.
    made(unsafe { real::socket.function()(domain, kind, protocol) })
}
