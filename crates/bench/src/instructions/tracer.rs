//! Counts the instructions and the system calls of another process, by single-stepping its threads.
//!
//! Read first: ptrace(2), `PTRACE_SEIZE` and `PTRACE_SINGLESTEP`. After each step the kernel reports the position of
//! the thread, which is the instruction that it executes next. Each instruction counts once: a string instruction with
//! a `rep` prefix stops at every iteration, at the same address. At a `syscall` instruction the number of the call is
//! in `RAX`. A call that sleeps does not end its step. So threads are *idle* when all of them sleep within a call for a
//! while. The kernel's own threads for io_uring (`iou-wrk-*`) execute no instructions of user space, and cannot be
//! traced.

use core::mem::offset_of;
use core::time::Duration;
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::thread::sleep;
use std::time::Instant;

use nix::errno::Errno;
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use crate::machine::read;

/// The instructions and system calls that threads have executed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Count {
    /// Instructions in user space.
    pub(super) instructions: u64,
    /// System calls begun, by number.
    pub(super) calls: BTreeMap<u64, u64>,
}

impl core::ops::AddAssign for Count {
    fn add_assign(&mut self, other: Self) {
        self.instructions += other.instructions;
        for (call, n) in other.calls {
            *self.calls.entry(call).or_default() += n;
        }
    }
}

/// Threads of a process that are stepped. When dropped, they run on by themselves.
#[derive(Debug)]
pub(super) struct Tracer {
    process: Pid,
    threads: HashMap<Pid, Thread>,
    /// For each address reached so far: true if the instruction is `syscall`.
    code: HashMap<u64, bool>,
    count: Count,
}

/// The state of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Thread {
    /// Executing the instruction at this address.
    At(u64),
    /// In a system call, which may sleep.
    Calling,
}

impl Tracer {
    /// Stops the threads of a process whose names are `chosen`. From now on it steps these threads and the threads that
    /// they start.
    ///
    /// # Errors
    /// `PermissionDenied` where ptrace(2) is not allowed.
    pub(super) fn attach(process: u32, chosen: impl Fn(&str) -> bool) -> io::Result<Self> {
        let process = Pid::from_raw(i32::try_from(process).map_err(io::Error::other)?);
        let mut tracer = Self {
            process,
            threads: HashMap::new(),
            code: HashMap::new(),
            count: Count::default(),
        };
        for entry in std::fs::read_dir(format!("/proc/{process}/task"))? {
            let Ok(thread) = entry?.file_name().to_string_lossy().parse() else { continue };
            let name = read(&format!("/proc/{process}/task/{thread}/comm"));
            if !chosen(name.trim_end()) {
                continue;
            }
            let thread = Pid::from_raw(thread);
            match ptrace::seize(thread, Options::PTRACE_O_TRACECLONE) {
                // The thread has ended meanwhile.
                Err(Errno::ESRCH) => {}
                seized => {
                    seized?;
                    tracer.threads.insert(thread, Thread::Calling);
                    ptrace::interrupt(thread)?;
                }
            }
        }
        Ok(tracer)
    }

    /// Steps the threads until all have slept for a while, and returns their instructions and calls since the last
    /// time.
    ///
    /// # Errors
    /// When the process ends, or is still busy at `deadline`.
    pub(super) fn run_until_idle(
        &mut self,
        quiet: Duration,
        deadline: Instant,
    ) -> io::Result<Count> {
        let mut quiet_since = None;
        loop {
            if Instant::now() > deadline {
                return Err(io::ErrorKind::TimedOut.into());
            }
            let steps = self.threads.values().any(|thread| *thread != Thread::Calling);
            if self.wait(!steps)? {
                quiet_since = None;
            } else if !self.sleeps() {
                quiet_since = None;
                // The thread may run on our CPU.
                rustix::thread::sched_yield();
            } else if quiet_since.get_or_insert_with(Instant::now).elapsed() > quiet {
                return Ok(core::mem::take(&mut self.count));
            } else {
                sleep(POLL);
            }
        }
    }

    /// Handles the report of one stopped thread and steps the thread; with `poll` returns false if no thread has stopped.
    fn wait(&mut self, poll: bool) -> io::Result<bool> {
        // Not the children that other threads of this process started.
        let mut flags = WaitPidFlag::__WALL | WaitPidFlag::__WNOTHREAD;
        flags.set(WaitPidFlag::WNOHANG, poll);
        let (thread, signal) = match waitpid(None, Some(flags))? {
            WaitStatus::StillAlive => return Ok(false),
            WaitStatus::Exited(thread, _) | WaitStatus::Signaled(thread, ..) => {
                self.threads.remove(&thread);
                if thread == self.process {
                    return Err(io::Error::other("the process has ended"));
                }
                return Ok(true);
            }
            WaitStatus::Stopped(thread, Signal::SIGTRAP) => (thread, None),
            WaitStatus::Stopped(thread, signal) => (thread, Some(signal)),
            // The thread was stopped within a system call, which goes on or begins anew, or it is new.
            WaitStatus::PtraceEvent(thread, ..) => {
                self.threads.insert(thread, Thread::Calling);
                return gone(ptrace::step(thread, None));
            }
            other => return Err(io::Error::other(format!("an unexpected stop: {other:?}"))),
        };
        let stepped = self.arrive(thread).and_then(|()| ptrace::step(thread, signal));
        gone(stepped)
    }

    /// Counts the instruction that a stopped thread executes next.
    fn arrive(&mut self, thread: Pid) -> Result<(), Errno> {
        let at = register(thread, offset_of!(libc::user_regs_struct, rip))?;
        if self.threads.get(&thread) != Some(&Thread::At(at)) {
            self.count.instructions += 1;
        }
        let is_call = match self.code.get(&at) {
            Some(is_call) => *is_call,
            None => {
                let word = ptrace::read(thread, address(at))?;
                let is_call = word.to_ne_bytes().starts_with(&SYSCALL);
                *self.code.entry(at).or_insert(is_call)
            }
        };
        let doing = if is_call {
            let number = register(thread, offset_of!(libc::user_regs_struct, rax))?;
            *self.count.calls.entry(number).or_default() += 1;
            Thread::Calling
        } else {
            Thread::At(at)
        };
        self.threads.insert(thread, doing);
        Ok(())
    }

    /// Tells whether all threads sleep.
    fn sleeps(&self) -> bool {
        self.threads.keys().all(|thread| {
            let stat = read(&format!("/proc/{}/task/{thread}/stat", self.process));
            // The name in parentheses may hold anything (proc(5)).
            stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('S'))
        })
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        // A thread that has ended needs no detaching.
        for thread in self.threads.keys() {
            if ptrace::interrupt(*thread).is_ok()
                && waitpid(*thread, Some(WaitPidFlag::__WALL)).is_ok()
            {
                let _ = ptrace::detach(*thread, None);
            }
        }
    }
}

/// A thread that was killed meanwhile will be reported as such.
fn gone(stepped: Result<(), Errno>) -> io::Result<bool> {
    match stepped {
        Ok(()) | Err(Errno::ESRCH) => Ok(true),
        Err(error) => Err(error.into()),
    }
}

/// A register of a stopped thread, by its offset in `struct user`, which begins with the registers.
fn register(thread: Pid, offset: usize) -> Result<u64, Errno> {
    ptrace::read_user(thread, address(offset as u64)).map(i64::cast_unsigned)
}

fn address(number: u64) -> ptrace::AddressType {
    core::ptr::without_provenance_mut(usize::try_from(number).expect("64 bits"))
}

/// The instruction `syscall`.
const SYSCALL: [u8; 2] = [0x0f, 0x05];

/// The interval at which their states are read while they sleep.
const POLL: Duration = Duration::from_micros(200);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::process::Child;
    use rustix::pipe::pipe;

    const QUIET: Duration = Duration::from_millis(5);

    /// Counts, for each byte, the instructions and calls of a child until it sleeps again.
    fn cost_of(bytes: &[u8]) -> Vec<Count> {
        let [there, back] = [pipe().unwrap(), pipe().unwrap()];
        let child = Child::looping(std::os::fd::AsFd::as_fd(&there.0), &back.1).unwrap();
        let pid = u32::try_from(child.pid().as_raw_nonzero().get()).unwrap();
        let mut tracer = Tracer::attach(pid, |_| true).unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        tracer.run_until_idle(QUIET, deadline).unwrap();
        let mut cost = |byte: &u8| {
            assert_eq!(rustix::io::write(&there.1, &[*byte]), Ok(1));
            let count = tracer.run_until_idle(QUIET, deadline).unwrap();
            let mut answer = [0];
            assert_eq!(rustix::io::read(&back.0, &mut answer), Ok(1));
            assert_eq!(answer, [*byte]);
            count
        };
        // The first byte meets pages that are not there yet; that executes nothing, but let it go first.
        cost(&0);
        bytes.iter().map(cost).collect()
    }

    #[test]
    fn a_loop_costs_the_same_for_each_round_and_each_time() {
        let counts = cost_of(&[10, 20, 30, 10, 20]);
        let [a, b, c, again, once_more] = &counts[..] else { unreachable!("five") };
        let calls: Vec<_> = [libc::SYS_read, libc::SYS_write].map(i64::cast_unsigned).into();
        for count in &counts {
            assert_eq!(count.calls, calls.iter().map(|call| (*call, 1)).collect());
        }
        assert_eq!((a, b), (again, once_more));
        let rounds = b.instructions - a.instructions;
        assert_eq!(c.instructions - b.instructions, rounds, "{counts:?}");
        assert!(rounds >= 2000 && rounds % 1000 == 0, "{rounds} for 1,000 rounds");
        // Libraries that are not optimised need some hundreds for the two calls.
        assert!(a.instructions < rounds + 1000, "{counts:?}");
    }

    #[test]
    fn a_thread_that_is_let_go_runs_on_by_itself() {
        let [there, back] = [pipe().unwrap(), pipe().unwrap()];
        let child = Child::passing_on(std::os::fd::AsFd::as_fd(&there.0), &back.1).unwrap();
        let pid = u32::try_from(child.pid().as_raw_nonzero().get()).unwrap();
        drop(Tracer::attach(pid, |_| true).unwrap());
        assert_eq!(rustix::io::write(&there.1, b"x"), Ok(1));
        let mut answer = [0];
        assert_eq!(rustix::io::read(&back.0, &mut answer), Ok(1));
        let status = read(&format!("/proc/{pid}/status"));
        assert!(status.contains("TracerPid:\t0"), "{status}");
    }

    #[test]
    fn what_has_ended_is_an_error() {
        let child = Child::sleeping().unwrap();
        let pid = u32::try_from(child.pid().as_raw_nonzero().get()).unwrap();
        let mut tracer = Tracer::attach(pid, |_| true).unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        tracer.run_until_idle(QUIET, deadline).unwrap();
        rustix::process::kill_process(child.pid(), rustix::process::Signal::KILL).unwrap();
        let error = tracer.run_until_idle(QUIET, deadline).unwrap_err();
        assert!(error.to_string().contains("ended"), "{error}");
    }
}
