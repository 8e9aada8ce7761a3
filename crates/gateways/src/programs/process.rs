//! The processes of one program: a group with a leader, which the server has started, and processes that have left the
//! group.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::process::Child;
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, ioctl_fionbio};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, getpgid, kill_process, kill_process_group,
    pidfd_open, waitid,
};

use super::Slot;
use super::descendants::{Scope, Traces};
use super::supervisor::{self, Start};

/// A program that was started. When it is dropped, its processes are killed.
///
/// Only [`reap`](Self::reap) waits for the leader. Until then no other process gets the number of the leader, which is
/// also the number of the group.
#[derive(Debug)]
pub(crate) struct Process {
    pid: Pid,
    traces: Arc<Traces>,
    pipes: Pipes,
    is_reaped: bool,
    /// The permission to run, which ends when the process is dropped.
    #[expect(dead_code, reason = "kept for its drop")]
    slot: Slot,
}

/// The server's ends of the pipes of a program, which are nonblocking.
#[derive(Debug, Default)]
pub(crate) struct Pipes {
    /// No pipe: a descriptor that is readable when the leader has ended (`pidfd_open(2)`).
    pub(crate) exit: Option<OwnedFd>,
    pub(crate) stdin: Option<OwnedFd>,
    pub(crate) stdout: Option<OwnedFd>,
    pub(crate) stderr: Option<OwnedFd>,
}

impl Process {
    /// Takes a child that leads a group of its own, has this mark, and whose output is a pipe.
    ///
    /// # Errors
    ///
    /// Those of `pidfd_open(2)`; the processes are killed.
    pub(super) fn new(mut child: Child, mark: u64, start: &Start, slot: Slot) -> io::Result<Self> {
        let pid = Pid::from_child(&child);
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).inspect_err(|_| {
            // The calls fail if the child has ended, and then nothing needs to be done.
            let _ = kill_process_group(pid, Signal::KILL);
            let _ = child.wait();
        })?;
        let pipes = Pipes {
            exit: Some(pidfd),
            stdin: child.stdin.take().map(Into::into),
            stdout: child.stdout.take().map(Into::into),
            stderr: child.stderr.take().map(Into::into),
        };
        let all = || [&pipes.stdin, &pipes.stdout, &pipes.stderr].into_iter().flatten();
        for pipe in all() {
            // The call cannot fail for an open descriptor.
            let _ = ioctl_fionbio(pipe, true);
        }
        let traces = Arc::new(Traces::new(pid, mark, all()));
        start.add(Arc::clone(&traces));
        Ok(Self { pid, traces, pipes, is_reaped: false, slot })
    }

    /// Takes the pipes.
    pub(crate) fn take_pipes(&mut self) -> Pipes {
        core::mem::take(&mut self.pipes)
    }

    /// `None` while the leader runs; then the signal that has ended it, if a signal did.
    pub(crate) fn exit(&self) -> Option<Option<i32>> {
        let how = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        match waitid(WaitId::Pid(self.pid), how) {
            Ok(None) => None,
            Ok(Some(status)) => Some(status.terminating_signal()),
            // ECHILD means that the process ignores SIGCHLD and that the leader has ended.
            Err(_) => Some(None),
        }
    }

    /// Sends a signal to the leader and its group at once, and soon to processes that have left the group. Returns
    /// false if the leader has taken on another user's rights and cannot be stopped.
    pub(crate) fn signal(&self, signal: Signal, scope: Scope) -> bool {
        if self.is_reaped {
            return true;
        }
        // The call fails if only the zombie of the leader is left.
        let mut sent = kill_process_group(self.pid, signal);
        // The leader may have joined another group. No other process gets the number of the leader until somebody waits
        // for the leader.
        if getpgid(Some(self.pid)) != Ok(self.pid) {
            sent = kill_process(self.pid, signal);
        }
        supervisor::signal(&self.traces, signal, scope);
        sent != Err(Errno::PERM)
    }

    /// Waits for the leader, which has ended. If the leader still runs, the server waits for it when it ends.
    pub(crate) fn reap(&mut self) {
        supervisor::reap(self.pid);
        self.is_reaped = true;
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if !self.is_reaped {
            self.signal(Signal::KILL, Scope::All);
            self.reap();
        }
    }
}

/// Returns true if no process can write to a pipe any more.
pub(crate) fn is_hung_up(pipe: BorrowedFd<'_>) -> bool {
    let mut one = [PollFd::from_borrowed_fd(pipe, PollFlags::IN)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut one, Some(&now)).is_ok() && one[0].revents().contains(PollFlags::HUP)
}
