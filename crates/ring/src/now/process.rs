//! Direct calls on signals, child processes, copies of the process, and the sockets of the process.

use core::mem::{MaybeUninit, offset_of};
use core::ptr;
use core::sync::atomic::{AtomicBool, Ordering};
use std::collections::HashSet;
use std::fs;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::ExitStatus;

use libc::{signalfd_siginfo, sigset_t};
use rustix::io::FdFlags;
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

/// True once [`take_passed_descriptors`] was called.
static ARE_PASSED_TAKEN: AtomicBool = AtomicBool::new(false);

/// Receives the descriptors that a service manager has passed to the program it has started: `count` of them, from the
/// fourth on (sd_listen_fds(3)). Programs that this process executes do not get them. A second call returns none. To be
/// called before other code opens descriptors.
///
/// # Errors
///
/// Those of `fcntl(2)`, if there are not as many.
pub fn take_passed_descriptors(count: u16) -> io::Result<Vec<OwnedFd>> {
    if ARE_PASSED_TAKEN.swap(true, Ordering::Relaxed) {
        return Ok(Vec::new());
    }
    let numbers = PASSED_FIRST..PASSED_FIRST + i32::from(count);
    for number in numbers.clone() {
        // SAFETY: the descriptor is used for one call. If it is not open, the call fails.
        let fd = unsafe { BorrowedFd::borrow_raw(number) };
        rustix::io::fcntl_setfd(fd, FdFlags::CLOEXEC)?;
    }
    // SAFETY: they are open, as the calls above have shown. The manager has passed them to the program, and no code of it
    // owns them: this function is called once, before others open descriptors.
    Ok(numbers.map(|number| unsafe { OwnedFd::from_raw_fd(number) }).collect())
}

/// The first of the descriptors that a service manager passes (`SD_LISTEN_FDS_START`).
const PASSED_FIRST: i32 = 3;

/// Unblocks signals in the calling thread, which [`block_signals`] has blocked.
///
/// # Errors
///
/// `EINVAL` for a number that is no signal; nothing has been unblocked then.
pub fn unblock_signals(signals: &[i32]) -> io::Result<()> {
    set_mask(libc::SIG_UNBLOCK, &set_of(signals)?)?;
    Ok(())
}

/// Runs `run` in a copy of the process that is no child of it (`fork(2)`, twice): the nearest subreaper above, mostly
/// the init process, becomes the parent of the copy. The copy has the first three descriptors and `kept`, and no others,
/// so `with` must own none. The copy ends with the exit code that `run` returns, and runs no other code.
///
/// # Errors
///
/// `Unsupported` if the process has several threads, or no `/proc` that shows how many: a copy would have one thread, and
/// the locks that the others hold. Otherwise errors of `fork(2)` and `waitpid(2)`.
pub fn start_orphan<T>(kept: OwnedFd, with: T, run: fn(OwnedFd, T) -> i32) -> io::Result<()> {
    if fs::read_dir("/proc/self/task")?.count() != 1 {
        return Err(io::ErrorKind::Unsupported.into());
    }
    // SAFETY: the process has one thread, so its copy is complete: no lock is held, and no thread is missing.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            // SAFETY: the copy has one thread, too.
            let code = match unsafe { libc::fork() } {
                -1 => FORK_FAILED,
                0 => {
                    close_others(&kept);
                    run(kept, with)
                }
                _ => 0,
            };
            // SAFETY: the call takes no memory. Neither buffers nor handlers of the original process are run.
            unsafe { libc::_exit(code) }
        }
        middle => {
            let mut status = 0;
            // SAFETY: `status` has room for the result. The process is a child, and only this waits for it.
            if unsafe { libc::waitpid(middle, &raw mut status, 0) } != middle {
                return Err(io::Error::last_os_error());
            }
            if status == 0 {
                Ok(())
            } else {
                Err(io::Error::other("the second fork(2) has failed"))
            }
        }
    }
}

/// The exit code of the process between a process and its copy, if the copy could not be made.
const FORK_FAILED: i32 = 1;

/// Closes all descriptors of a copy of the process but the first three and this one.
fn close_others(kept: &OwnedFd) {
    let kept = kept.as_raw_fd().cast_unsigned();
    let close = |first: u32, last: u32| {
        if first <= last {
            // SAFETY: the call takes no memory. The copy runs one function, which has no other descriptor. If the call
            // fails, the descriptors stay open.
            unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
        }
    };
    close(3, kept.saturating_sub(1));
    close(kept.max(2) + 1, u32::MAX);
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
    /// Other processes that share such a socket lose it, too. So sockets that listen are left out if they are shared.
    pub fn shut_down_others(&self, shares_listeners: bool) {
        for (number, name) in sockets() {
            let is_kept = self.0.contains(&name) || (shares_listeners && is_listening(number));
            if !is_kept {
                // SAFETY: the call takes no memory. If another thread has closed the descriptor meanwhile, it fails.
                unsafe { libc::shutdown(number, libc::SHUT_RDWR) };
            }
        }
    }
}

/// Returns true if a descriptor is a socket that listens.
fn is_listening(number: i32) -> bool {
    // SAFETY: the descriptor is used for one call. If another thread has closed it meanwhile, the call fails, or tells of
    // another socket.
    let fd = unsafe { BorrowedFd::borrow_raw(number) };
    rustix::net::sockopt::socket_acceptconn(fd).unwrap_or(false)
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
