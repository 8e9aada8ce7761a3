//! Processes made by fork(2), which end with their owner.

use core::time::Duration;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::thread;

use rustix::process::{
    Pid, Signal, WaitOptions, kill_process, set_parent_process_death_signal, waitpid,
};
use rustix::thread::{UnshareFlags, unshare_unsafe};

/// A child process. Killed and waited for when dropped; killed by the kernel should we die first.
#[derive(Debug)]
pub(crate) struct Child {
    pid: Pid,
}

impl Child {
    /// Forks a child that sleeps until it is killed.
    pub(crate) fn sleeping() -> io::Result<Self> {
        let sleep = || {
            loop {
                rustix::event::pause();
            }
        };
        // SAFETY: pause(2) is all that it calls.
        unsafe { Self::fork(sleep) }
    }

    /// Forks a child that passes single bytes on until one cannot be had, or not be passed.
    pub(crate) fn passing_on(from: BorrowedFd<'_>, to: impl AsFd) -> io::Result<Self> {
        let pass = || {
            let mut byte = [0];
            while rustix::io::read(from, &mut byte) == Ok(1)
                && rustix::io::write(&to, &byte) == Ok(1)
            {}
        };
        // SAFETY: read(2) and write(2) with memory of its own are all that it calls.
        unsafe { Self::fork(pass) }
    }

    /// Forks a child that passes single bytes on, as above, and before each byte loops 100 times its
    /// value.
    #[cfg(test)]
    pub(crate) fn looping(from: BorrowedFd<'_>, to: impl AsFd) -> io::Result<Self> {
        let pass = || {
            let mut byte = [0];
            while rustix::io::read(from, &mut byte) == Ok(1) {
                for round in 0..u32::from(byte[0]) * 100 {
                    core::hint::black_box(round);
                }
                let _ = rustix::io::write(&to, &byte);
            }
        };
        // SAFETY: read(2) and write(2) with memory of its own are all that it calls.
        unsafe { Self::fork(pass) }
    }

    /// Forks; the child does `work` and exits.
    ///
    /// # Safety
    ///
    /// `work` makes system calls only: no allocation, no lock, for another thread may have held one
    /// when the memory was copied (fork(2), signal-safety(7)).
    unsafe fn fork(work: impl FnOnce()) -> io::Result<Self> {
        // SAFETY: the child calls what `work`'s contract above allows, and leaves by _exit.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                // Without it the child only lives until it is killed by its owner.
                let _ = set_parent_process_death_signal(Some(Signal::KILL));
                work();
                // SAFETY: ends this process without running what its parent is to run at exit.
                unsafe { libc::_exit(0) }
            }
            pid => Ok(Self { pid: Pid::from_raw(pid).unwrap_or(Pid::INIT) }),
        }
    }

    /// Its number.
    pub(crate) fn pid(&self) -> Pid {
        self.pid
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // Fork gives no 1; the fallback above must not be killed.
        if self.pid != Pid::INIT {
            // Gone already is as good.
            let _ = kill_process(self.pid, Signal::KILL);
            let wait = || waitpid(Some(self.pid), WaitOptions::empty());
            while matches!(wait(), Err(rustix::io::Errno::INTR)) {}
        }
    }
}

/// Does `work` on a thread with its own table of descriptors: a copy, no larger than the open descriptors
/// need (`CLONE_FILES`, unshare(2)). Threads that it starts share this table.
///
/// # Errors
/// If there can be no thread, or no table.
pub(crate) fn with_own_descriptors<R: Send + 'static>(
    work: impl FnOnce() -> R + Send + 'static,
) -> io::Result<R> {
    let apart = || {
        // SAFETY: this thread has no descriptors yet but those that `work` brings, whose copies are as
        // good; what `work` opens ends with it or with this thread, and cannot leave but as a number.
        unsafe { unshare_unsafe(UnshareFlags::FILES) }?;
        Ok(work())
    };
    let thread = thread::Builder::new().spawn(apart)?;
    thread.join().map_err(|_| io::Error::other("the thread panicked"))?
}

/// The CPU time that a process has used so far: of all its threads, with those that have ended, but not
/// of its children (clock_getcpuclockid(3)).
///
/// # Errors
/// `ESRCH` when there is no such process.
pub(crate) fn cpu_time(pid: Pid) -> io::Result<Duration> {
    let mut clock = 0;
    // SAFETY: it writes one clockid_t to where it is told.
    match unsafe { libc::clock_getcpuclockid(pid.as_raw_nonzero().get(), &raw mut clock) } {
        0 => {}
        error => return Err(io::Error::from_raw_os_error(error)),
    }
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: it writes one timespec to where it is told; a process that has ended meanwhile is an error.
    if unsafe { libc::clock_gettime(clock, &raw mut time) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let [seconds, nanoseconds] = [time.tv_sec, time.tv_nsec].map(u64::try_from);
    let whole = Duration::from_secs(seconds.unwrap_or(0));
    Ok(whole + Duration::from_nanos(nanoseconds.unwrap_or(0)))
}

/// Makes the standard library start `command` by fork(2) and execve(2). Otherwise it would use
/// posix_spawn(3), which is vfork(2) in the C library.
pub(crate) fn force_fork(command: &mut Command) {
    // SAFETY: what runs between fork and exec does nothing.
    unsafe { command.pre_exec(|| Ok(())) };
}

/// Makes the kernel send `command`'s process a signal when the thread that spawns it ends, and so when
/// we die, however (prctl(2), `PR_SET_PDEATHSIG`).
pub(crate) fn die_with_us(command: &mut Command, signal: Signal) {
    // SAFETY: what runs between fork and exec is one system call.
    unsafe {
        command.pre_exec(move || {
            set_parent_process_death_signal(Some(signal)).map_err(io::Error::from)
        })
    };
}
