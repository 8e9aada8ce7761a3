//! Suppresses SIGPIPE. `sendfile(2)` and `splice(2)` raise the signal if the peer has closed, and have no flag
//! against it as `send(2)` has. Without this module, the signal would kill a program that does not ignore it.

use core::mem::MaybeUninit;
use core::ptr;

use libc::{SIG_BLOCK, SIG_SETMASK, SIGPIPE, sigset_t, timespec};

/// Runs `act` with SIGPIPE blocked in this thread, and takes back the one that it raises.
///
/// It costs three system calls, about half a microsecond. A thread that has blocked SIGPIPE itself keeps what
/// is raised as pending, as it does after its own calls.
pub(crate) fn without<T>(act: impl FnOnce() -> T) -> T {
    let only = only_sigpipe();
    let mut before = MaybeUninit::<sigset_t>::uninit();
    // SAFETY: `only` is a set, and there is room for another (pthread_sigmask(3)). It fails only for an
    // unknown first argument.
    unsafe { libc::pthread_sigmask(SIG_BLOCK, &raw const only, before.as_mut_ptr()) };
    // SAFETY: written by the call above.
    let before = unsafe { before.assume_init() };
    let result = act();
    // SAFETY: `before` is a set.
    if unsafe { libc::sigismember(&raw const before, SIGPIPE) } == 0 {
        let at_once = timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: a set, and a time; null means that no details are wanted (sigtimedwait(2)). EAGAIN: none
        // was raised. It does not sleep, so no other signal ends it.
        unsafe { libc::sigtimedwait(&raw const only, ptr::null_mut(), &raw const at_once) };
        // SAFETY: `before` is what was set before; null means that it is not wanted back.
        unsafe { libc::pthread_sigmask(SIG_SETMASK, &raw const before, ptr::null_mut()) };
    }
    result
}

fn only_sigpipe() -> sigset_t {
    let mut set = MaybeUninit::<sigset_t>::uninit();
    // SAFETY: there is room for a set.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    // SAFETY: a set since the call above, and a signal that exists.
    unsafe { libc::sigaddset(set.as_mut_ptr(), SIGPIPE) };
    // SAFETY: written above.
    unsafe { set.assume_init() }
}
