//! Suppresses SIGPIPE. `sendfile(2)` and `splice(2)` raise the signal if the peer has closed, and have no flag
//! against it as `send(2)` has. Without this module, the signal would kill a program that does not ignore it.

use core::mem::MaybeUninit;
use core::ptr;

use libc::{SIG_BLOCK, SIG_SETMASK, SIGPIPE, sigset_t, timespec};

/// Runs `act` with SIGPIPE blocked in this thread, and discards the signal that `act` raises.
///
/// The cost is three system calls, about half a microsecond. If the thread has blocked SIGPIPE itself, the signal
/// stays pending, as after the thread's own calls.
pub(crate) fn without<T>(act: impl FnOnce() -> T) -> T {
    let only = only_sigpipe();
    let mut before = MaybeUninit::<sigset_t>::uninit();
    // SAFETY: `only` is a set, and there is room for another (pthread_sigmask(3)). The call fails only for an
    // unknown first argument.
    unsafe { libc::pthread_sigmask(SIG_BLOCK, &raw const only, before.as_mut_ptr()) };
    // SAFETY: written by the call above.
    let before = unsafe { before.assume_init() };
    let result = act();
    // SAFETY: `before` is a set.
    if unsafe { libc::sigismember(&raw const before, SIGPIPE) } == 0 {
        let at_once = timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: a set, and a time; null means that no details are wanted (sigtimedwait(2)). EAGAIN means that no
        // signal was raised. The call does not sleep, so no other signal interrupts it.
        unsafe { libc::sigtimedwait(&raw const only, ptr::null_mut(), &raw const at_once) };
        // SAFETY: `before` is the mask from before; null means that the present mask is not wanted back.
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
