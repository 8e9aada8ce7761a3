//! Signals that are fetched instead of caught: SIGIO and its queue; and timers that send signals.

use core::mem::MaybeUninit;
use core::ptr;
use core::time::Duration;
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, RawFd};

/// A signal with `si_fd` was queued, or the queue overflowed, or nothing came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// This descriptor may be ready.
    Ready(RawFd),
    /// Plain SIGIO: signals were lost, so every descriptor has to be asked (fcntl(2), F_SETSIG).
    Overflow,
    /// No signal came within the time.
    Timeout,
}

/// The signals of one thread: a realtime signal that carries the descriptor, and SIGIO for overflow.
/// Both are blocked in the thread as long as this lives, and then the pending ones are taken away.
#[derive(Debug)]
pub(crate) struct Signals {
    set: libc::sigset_t,
    realtime: i32,
    /// The value belongs to the thread that made it.
    not_send: core::marker::PhantomData<*const ()>,
}

impl Signals {
    /// Blocks the signals in this thread.
    pub(crate) fn block() -> io::Result<Self> {
        let realtime = libc::SIGRTMIN() + 1;
        let mut set = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: sigemptyset writes the whole set.
        unsafe { libc::sigemptyset(set.as_mut_ptr()) };
        // SAFETY: written just now.
        let mut set = unsafe { set.assume_init() };
        for signal in [realtime, libc::SIGIO] {
            // SAFETY: the set is initialised, the signal a valid number.
            unsafe { libc::sigaddset(&raw mut set, signal) };
        }
        // SAFETY: the set is initialised; the old mask is not asked for.
        match unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, ptr::null_mut()) } {
            0 => Ok(Self { set, realtime, not_send: core::marker::PhantomData }),
            errno => Err(io::Error::from_raw_os_error(errno)),
        }
    }

    /// From now on readiness of `fd` sends this thread a signal.
    pub(crate) fn watch(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        #[repr(C)]
        struct Owner {
            kind: i32,
            id: i32,
        }
        /// The owner is a thread (fcntl(2)).
        const F_OWNER_TID: i32 = 0;
        // asm-generic/fcntl.h; libc has neither.
        const F_SETSIG: i32 = 10;
        const F_SETOWN_EX: i32 = 15;
        let fd = fd.as_raw_fd();
        let owner =
            Owner { kind: F_OWNER_TID, id: rustix::thread::gettid().as_raw_nonzero().get() };
        let checked =
            |result| if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) };
        // SAFETY: F_SETOWN_EX takes a pointer to a struct f_owner_ex, laid out as Owner.
        checked(unsafe { libc::fcntl(fd, F_SETOWN_EX, &raw const owner) })?;
        // SAFETY: F_SETSIG takes a number.
        checked(unsafe { libc::fcntl(fd, F_SETSIG, self.realtime) })?;
        // SAFETY: F_GETFL takes nothing.
        let flags = checked(unsafe { libc::fcntl(fd, libc::F_GETFL) })?;
        // SAFETY: F_SETFL takes a number.
        checked(unsafe { libc::fcntl(fd, libc::F_SETFL, flags | libc::O_ASYNC) })?;
        Ok(())
    }

    /// Fetches one.
    pub(crate) fn wait(&self, timeout: Duration) -> io::Result<Event> {
        let timeout = libc::timespec {
            tv_sec: timeout.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        };
        let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
        // SAFETY: the set is initialised, info is room for one siginfo, the timeout is a timespec.
        let signal = unsafe {
            libc::sigtimedwait(&raw const self.set, info.as_mut_ptr(), &raw const timeout)
        };
        if signal < 0 {
            let error = io::Error::last_os_error();
            return match error.raw_os_error() {
                Some(libc::EAGAIN | libc::EINTR) => Ok(Event::Timeout),
                _ => Err(error),
            };
        }
        if signal == libc::SIGIO {
            return Ok(Event::Overflow);
        }
        /// Offset of `si_fd`: three ints and padding, then `long si_band` (sigaction(2), 64 bit).
        const SI_FD: usize = 16 + size_of::<libc::c_long>();
        // SAFETY: siginfo_t is 128 bytes.
        let fd = unsafe { info.as_ptr().cast::<u8>().add(SI_FD) };
        // SAFETY: within a siginfo_t that was zeroed and then written by the kernel; an int is aligned
        // at 24.
        Ok(Event::Ready(unsafe { fd.cast::<RawFd>().read_unaligned() }))
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        while !matches!(self.wait(Duration::ZERO), Ok(Event::Timeout) | Err(_)) {}
        // SAFETY: the set is initialised; the old mask is not asked for.
        unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const self.set, ptr::null_mut()) };
    }
}

/// alarm(2): seconds until SIGALRM, or 0 to call it off.
pub(crate) fn alarm(seconds: u32) {
    // SAFETY: takes a number; the caller cancels it in time.
    unsafe { libc::alarm(seconds) };
}

/// A POSIX timer that is to send a signal, which is ignored should it ever come; deleted when dropped.
/// A timer that sends nothing (`SIGEV_NONE`) would not do, because the kernel never queues it.
#[derive(Debug)]
pub(crate) struct Timer {
    id: libc::timer_t,
}

impl Timer {
    /// timer_create(2) on the monotonic clock. Each counts against `RLIMIT_SIGPENDING`.
    pub(crate) fn new() -> io::Result<Self> {
        static IGNORED: std::sync::Once = std::sync::Once::new();
        let signal = libc::SIGRTMIN() + 2;
        // SAFETY: the signal is a valid number, and no other code here has a handler for it.
        IGNORED.call_once(|| _ = unsafe { libc::signal(signal, libc::SIG_IGN) });
        // SAFETY: a sigevent is plain numbers, for which zero is valid.
        let mut event: libc::sigevent = unsafe { core::mem::zeroed() };
        event.sigev_notify = libc::SIGEV_SIGNAL;
        event.sigev_signo = signal;
        let mut id = ptr::null_mut();
        // SAFETY: event is a sigevent, id room for a timer's id.
        match unsafe { libc::timer_create(libc::CLOCK_MONOTONIC, &raw mut event, &raw mut id) } {
            0 => Ok(Self { id }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// timer_settime(2): once, after `seconds`.
    pub(crate) fn set(&self, seconds: i64) -> io::Result<()> {
        let zero = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let value = libc::itimerspec {
            it_interval: zero,
            it_value: libc::timespec { tv_sec: seconds, ..zero },
        };
        // SAFETY: the id is that of a timer of ours, value an itimerspec; the old is not asked for.
        match unsafe { libc::timer_settime(self.id, 0, &raw const value, ptr::null_mut()) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        // SAFETY: the id is that of a timer of ours, which is no longer used.
        unsafe { libc::timer_delete(self.id) };
    }
}
