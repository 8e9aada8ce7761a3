//! The simulated process of the rings: its pending signals and its children. Errors are errno values.

use std::collections::BTreeMap;
use std::process::ExitStatus;

use super::Waiter;
use crate::op::Signal;

/// Signals from this one on queue: `SIGRTMIN` of the kernel, signal(7).
const FIRST_QUEUED: i32 = 32;
/// The last signal, `_NSIG`.
const LAST: i32 = 64;

/// The number of the first child.
const FIRST_CHILD: u32 = 1000;

/// The pending signals of the process, its children, and the operations that wait for them.
#[derive(Debug, Default)]
pub(super) struct Process {
    /// Signals in the order in which they came.
    pending: Vec<Signal>,
    /// Children that have not been waited for, and the status of each that has ended.
    children: BTreeMap<u32, Option<ExitStatus>>,
    /// The number of children that were ever started.
    started: u32,
    /// The awaited event of each operation.
    waiters: BTreeMap<Waiter, Awaited>,
}

/// The event that an operation waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Awaited {
    Signal(i32),
    Child(u32),
}

/// Returns whether a process can block the signal.
pub(super) const fn can_block(number: i32) -> bool {
    0 < number && number <= LAST && number != libc::SIGKILL && number != libc::SIGSTOP
}

impl Process {
    /// Sends a signal, unless it does not queue and is already pending.
    pub(super) fn send(&mut self, signal: Signal) {
        let is_same = |other: &Signal| other.number == signal.number;
        if signal.number >= FIRST_QUEUED || !self.pending.iter().any(is_same) {
            self.pending.push(signal);
        }
    }

    /// Takes the first pending signal with this number.
    pub(super) fn take_signal(&mut self, number: i32) -> Option<Signal> {
        let first = self.pending.iter().position(|one| one.number == number)?;
        Some(self.pending.remove(first))
    }

    pub(super) fn start_child(&mut self) -> u32 {
        let pid = FIRST_CHILD + self.started;
        self.started += 1;
        self.children.insert(pid, None);
        pid
    }

    /// A child has ended, which had not before.
    pub(super) fn end_child(&mut self, pid: u32, status: ExitStatus) {
        let child = self.children.get_mut(&pid).expect("a child");
        assert!(child.replace(status).is_none(), "child {pid} has ended");
    }

    /// Waits for a child that has ended; `None` if it has not.
    pub(super) fn take_child(&mut self, pid: u32) -> Result<Option<ExitStatus>, i32> {
        let ended = *self.children.get(&pid).ok_or(libc::ECHILD)?;
        if ended.is_some() {
            self.children.remove(&pid);
        }
        Ok(ended)
    }

    /// An operation waits from now on.
    pub(super) fn wait_for(&mut self, awaited: Awaited, who: Waiter) -> Result<(), i32> {
        match awaited {
            Awaited::Signal(number) if !can_block(number) => return Err(libc::EINVAL),
            Awaited::Child(pid) if pid == 0 || i32::try_from(pid).is_err() => {
                return Err(libc::EINVAL);
            }
            Awaited::Child(pid) if !self.children.contains_key(&pid) => return Err(libc::ESRCH),
            _ => {}
        }
        self.waiters.insert(who, awaited);
        Ok(())
    }

    /// An operation waits no more.
    pub(super) fn forget(&mut self, who: Waiter) {
        self.waiters.remove(&who);
    }

    /// The operations that wait for this.
    pub(super) fn waiters(&self, awaited: Awaited) -> Vec<Waiter> {
        let waiters = self.waiters.iter().filter(|(_, other)| **other == awaited);
        waiters.map(|(who, _)| *who).collect()
    }
}
