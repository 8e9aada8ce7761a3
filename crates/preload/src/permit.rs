//! The system calls that this library may make.
//!
//! A seccomp filter may kill a process for a call that the filter does not know: the filter of a unit with
//! `SystemCallFilter=@system-service` kills for `cachestat(2)` if systemd is older than 255. Filters are made for
//! the program, which does not make the library's calls. So if there is a filter, a child process tries all calls
//! of this library before the program begins.
//!
//! Read first: `seccomp(2)`, kernel/seccomp.c `__seccomp_filter`.
//!
//! A call for which the child is killed is not made, or the library stays off.

use core::ffi::c_int;

use crate::sys::{self, Errno, Readahead};

/// A system call that the library makes, and a way to try it that changes nothing.
struct Call {
    name: &'static str,
    try_it: fn() -> Errno,
    /// The library is of no use without it.
    is_needed: bool,
}

const fn needed(name: &'static str, try_it: fn() -> Errno) -> Call {
    Call { name, try_it, is_needed: true }
}

const fn useful(name: &'static str, try_it: fn() -> Errno) -> Call {
    Call { name, try_it, is_needed: false }
}

/// No descriptor.
const NONE: c_int = -1;

/// All calls of the library, except those with which the dynamic loader has just loaded it: `openat`,
/// `read`, `fstat`, `mmap`, `close`.
const CALLS: [Call; 14] = [
    useful("prctl", sys::leave_no_core),
    useful("cachestat", sys::try_cachestat),
    needed("preadv2", || sys::read_to_scratch(NONE, 0, 1, true).err().unwrap_or(0)),
    needed("sendfile", sys::try_sendfile),
    needed("fcntl", || sys::duplicate(NONE).err().unwrap_or(0)),
    needed("lseek", || sys::position(NONE).err().unwrap_or(0)),
    needed("ppoll and sendto", || sys::socket_error(NONE).unwrap_or(0)),
    needed("rt_sigprocmask", || {
        sys::restore_signals(sys::block_signals());
        0
    }),
    needed("futex", || {
        sys::futex_wake(&core::sync::atomic::AtomicU32::new(0));
        0
    }),
    needed("fadvise64", || {
        sys::advise(NONE, Readahead::Off);
        0
    }),
    needed("getrusage", || {
        sys::sleeps();
        0
    }),
    needed("sysinfo", || {
        sys::memory();
        0
    }),
    needed("nanosleep", || {
        sys::pause(core::time::Duration::from_nanos(1));
        0
    }),
    // Last, because a thread makes all of the calls above.
    needed("clone", || if sys::can_have_thread() { 0 } else { libc::EAGAIN }),
];
const CACHESTAT: usize = 1;
const THREAD: usize = CALLS.len() - 1;
const _: () = assert!(CALLS.len() < sys::SHARED_WORDS);

/// Finds out which calls may be made. Called before the program begins, when there is one thread.
///
/// Fails with the name of a needed call that may not be made.
pub(crate) fn find() -> Result<(), &'static str> {
    if sys::seccomp_mode() == Some(0) {
        // There is no filter, so the call can only fail.
        sys::allow_cachestat(sys::try_cachestat() == libc::EBADF);
        return Ok(());
    }
    let shared = sys::share().ok_or("mmap")?;
    // The last word is the call that a child has reached.
    let (results, reached) = (&shared.words()[..CALLS.len()], &shared.words()[CALLS.len()]);
    let mut first = 0;
    // Each pass ends the loop, or goes on after the call that killed the child.
    while first < CALLS.len() {
        let try_all = || {
            for (index, call) in CALLS.iter().enumerate().skip(first) {
                reached.store(word_of(index), sys::SHARED_ORDER);
                results[index].store((call.try_it)().unsigned_abs(), sys::SHARED_ORDER);
            }
            reached.store(word_of(CALLS.len()), sys::SHARED_ORDER);
        };
        if !sys::in_child(try_all) {
            return Err("clone");
        }
        let killed_at = usize::try_from(reached.load(sys::SHARED_ORDER)).unwrap_or(0);
        let Some(call) = CALLS.get(killed_at) else { break };
        if call.is_needed {
            return Err(call.name);
        }
        first = killed_at + 1;
    }
    let result = |index: usize| results[index].load(sys::SHARED_ORDER).cast_signed();
    sys::allow_cachestat(result(CACHESTAT) == libc::EBADF);
    if result(THREAD) == 0 { Ok(()) } else { Err(CALLS[THREAD].name) }
}

fn word_of(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}
