//! Direct calls on signals, child processes, and the sockets of the process.

use core::mem::{MaybeUninit, offset_of};
use core::ptr;
use std::collections::HashSet;
use std::fs;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::ExitStatus;

use libc::{signalfd_siginfo, sigset_t};
use rustix::process::{Pid, PidfdFlags, WaitId, WaitIdOptions, pidfd_open, waitid};

use crate::op::Signal;

/// Signals that a thread raises by its own faults. If one of these is blocked, the kernel ends the process without
/// running its handler.
const OWN_FAULTS: [i32; 6] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGTRAP, libc::SIGSYS];

/// Blocks signals in the calling thread and in all threads that it starts later, as [`Op::Signal`](crate::Op::Signal)
/// requires. The signals stay blocked, also in programs that the process executes (`sigprocmask(2)`).
///
/// # Errors
///
/// `EINVAL` for a number that is no signal; nothing has been blocked then.
pub fn block_signals(signals: &[i32]) -> io::Result<()> {
    set_mask(libc::SIG_BLOCK, &set_of(signals)?)?;
    Ok(())
}

/// Closes all open descriptors but the first three in programs that the process executes later (`close_range(2)`, Linux
/// 5.11). Descriptors of Rust and of the ring are close-on-exec anyway; others may have been inherited.
///
/// # Errors
///
/// `ENOSYS` and `EINVAL` of older kernels, `EPERM` of filters.
pub fn keep_descriptors_from_programs() -> io::Result<()> {
    let (first, last, flags) = (3_u32, u32::MAX, libc::CLOSE_RANGE_CLOEXEC);
    // SAFETY: the call takes no memory, and closes nothing.
    let done = unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Sockets that a process has, by the names that `/proc` has for them; empty where there is no `/proc`.
#[derive(Debug, Default)]
pub struct Sockets(HashSet<PathBuf>);

impl Sockets {
    /// The sockets that the process has now.
    #[must_use]
    pub fn open_now() -> Self {
        Self(sockets().map(|(_, name)| name).collect())
    }

    /// Shuts down all other sockets of the process, which ends next (`shutdown(2)`): listeners accept nothing more, and
    /// peers learn of the end. A thread that sleeps in a call on a disk keeps all descriptors open until the disk
    /// answers, and the kernel would accept connections without a server for them.
    ///
    /// Other processes that share such a socket lose it, too.
    pub fn shut_down_others(&self) {
        for (number, name) in sockets() {
            if !self.0.contains(&name) {
                // SAFETY: the call takes no memory. If another thread has closed the descriptor meanwhile, it fails.
                unsafe { libc::shutdown(number, libc::SHUT_RDWR) };
            }
        }
    }
}

/// The sockets among the descriptors of the process, and their names.
fn sockets() -> impl Iterator<Item = (i32, PathBuf)> {
    let all = fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    all.filter_map(|entry| {
        let number = entry.file_name().to_str()?.parse().ok()?;
        // The kernel knows the text of these links, so this waits for no disk.
        let name = fs::read_link(entry.path()).ok()?;
        name.as_os_str().as_bytes().starts_with(b"socket:").then_some((number, name))
    })
}

/// Runs `start`, which starts a thread of a ring: such a thread runs no handler of the program, and leaves
/// signals to [`Op::Signal`](crate::Op::Signal).
pub(crate) fn without_signals<T>(start: impl FnOnce() -> T) -> T {
    let mut all = MaybeUninit::<sigset_t>::uninit();
    // SAFETY: there is room for a set.
    unsafe { libc::sigfillset(all.as_mut_ptr()) };
    // SAFETY: written by the call above.
    let mut all = unsafe { all.assume_init() };
    for signal in OWN_FAULTS {
        // SAFETY: a set, and a signal that exists.
        unsafe { libc::sigdelset(&raw mut all, signal) };
    }
    let before = set_mask(libc::SIG_BLOCK, &all);
    let result = start();
    if let Ok(before) = before {
        // The same call has just worked, with other signals.
        let _ = set_mask(libc::SIG_SETMASK, &before);
    }
    result
}

/// `pthread_sigmask(3)`: returns the mask before.
fn set_mask(how: i32, set: &sigset_t) -> io::Result<sigset_t> {
    let mut before = MaybeUninit::<sigset_t>::uninit();
    // SAFETY: `set` is a set, and there is room for another.
    match unsafe { libc::pthread_sigmask(how, ptr::from_ref(set), before.as_mut_ptr()) } {
        // SAFETY: written by the call above.
        0 => Ok(unsafe { before.assume_init() }),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

fn set_of(signals: &[i32]) -> io::Result<sigset_t> {
    let mut set = MaybeUninit::<sigset_t>::uninit();
    // SAFETY: there is room for a set.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    // SAFETY: written by the call above.
    let mut set = unsafe { set.assume_init() };
    for signal in signals {
        // SAFETY: `set` is a set; a number that is no signal is an error.
        if unsafe { libc::sigaddset(&raw mut set, *signal) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(set)
}

/// Makes a `signalfd(2)` for one signal, which this thread must block.
pub(crate) fn signalfd(signal: i32) -> io::Result<OwnedFd> {
    let set = set_of(&[signal])?;
    let blocked = set_mask(libc::SIG_BLOCK, &set_of(&[])?)?;
    // SAFETY: `blocked` is a set. `signal` was put into one above, so it exists.
    if unsafe { libc::sigismember(&raw const blocked, signal) } != 1 {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    // SAFETY: a set; -1 means a new descriptor.
    match unsafe { libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) } {
        -1 => Err(io::Error::last_os_error()),
        // SAFETY: signalfd(2) has just made it, for us alone.
        fd => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
    }
}

/// Takes a signal that is pending; `None` if there is none.
pub(crate) fn read_signal(fd: BorrowedFd<'_>) -> io::Result<Option<Signal>> {
    let mut info = [0; size_of::<signalfd_siginfo>()];
    match rustix::io::read(fd, &mut info) {
        Ok(_) => {}
        Err(rustix::io::Errno::AGAIN) => return Ok(None),
        Err(error) => return Err(error.into()),
    }
    let field = |at: usize| {
        let bytes = info[at..at + 4].try_into().expect("four bytes");
        u32::from_ne_bytes(bytes)
    };
    Ok(Some(Signal {
        number: field(offset_of!(signalfd_siginfo, ssi_signo)).cast_signed(),
        sender: Some(field(offset_of!(signalfd_siginfo, ssi_pid))).filter(|pid| *pid != 0),
    }))
}

/// Makes a `pidfd_open(2)` of a child, which becomes readable when the child has ended.
pub(crate) fn pidfd(pid: u32) -> io::Result<OwnedFd> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let fd = pidfd_open(pid.ok_or(rustix::io::Errno::INVAL)?, PidfdFlags::empty())?;
    // ECHILD now and not when some other process has ended.
    let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    waitid(WaitId::PidFd(fd.as_fd()), look)?;
    Ok(fd)
}

/// Waits for a child that has ended; `None` if it has not.
pub(crate) fn wait_for(pidfd: BorrowedFd<'_>) -> io::Result<Option<ExitStatus>> {
    let how = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
    let Some(status) = waitid(WaitId::PidFd(pidfd), how)? else { return Ok(None) };
    // As wait(2) has it.
    let raw = match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => (code & 0xff) << 8,
        (_, Some(signal)) if status.dumped() => signal | 0x80,
        (_, signal) => signal.unwrap_or(0),
    };
    Ok(Some(ExitStatus::from_raw(raw)))
}
