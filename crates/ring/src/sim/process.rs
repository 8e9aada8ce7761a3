//! The simulated process of the rings: signals to it, and its children.

use std::collections::BTreeMap;
use std::io;
use std::process::ExitStatus;

use super::world::{State, World};
use super::{Waiter, errno};
use crate::op::Signal;

/// Signals from this one on queue: `SIGRTMIN` of the kernel, signal(7).
const FIRST_QUEUED: i32 = 32;
/// The last signal, `_NSIG`.
const LAST: i32 = 64;

/// The number of the first child.
const FIRST_CHILD: u32 = 1000;

/// What is pending for the process, and what waits for it.
#[derive(Debug, Default)]
pub(super) struct Process {
    /// Signals in the order in which they came.
    pending: Vec<Signal>,
    /// Children that have not been waited for, and the status of each that has ended.
    children: BTreeMap<u32, Option<ExitStatus>>,
    /// The number of children that were ever started.
    started: u32,
    /// By operation: what it waits for.
    waiters: BTreeMap<Waiter, Awaited>,
}

/// What an operation waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Awaited {
    Signal(i32),
    Child(u32),
}

impl World {
    /// Sends a signal to the process of the rings, in which all signals are blocked that can be. A signal
    /// below 32 that is pending already does not come a second time. `sender` is another process, or
    /// `None` for the kernel.
    ///
    /// # Panics
    ///
    /// If the process cannot block the signal: 0, `SIGKILL`, `SIGSTOP`, and numbers that are no signal.
    pub fn signal(&self, number: i32, sender: Option<u32>) {
        assert!(can_block(number), "signal {number}");
        let mut state = self.state();
        let pending = &mut state.process.pending;
        if number < FIRST_QUEUED && pending.iter().any(|one| one.number == number) {
            return;
        }
        pending.push(Signal { number, sender });
        state.look_at_waiters(Awaited::Signal(number));
    }

    /// Starts a child of the process; its number.
    #[must_use]
    pub fn start_child(&self) -> u32 {
        let process = &mut self.state().process;
        let pid = FIRST_CHILD + process.started;
        process.started += 1;
        process.children.insert(pid, None);
        pid
    }

    /// A child ends. It sends no `SIGCHLD`.
    ///
    /// # Panics
    ///
    /// If there is no such child, or it has ended.
    pub fn end_child(&self, pid: u32, status: ExitStatus) {
        let mut state = self.state();
        let child = state.process.children.get_mut(&pid).expect("a child");
        assert!(child.replace(status).is_none(), "child {pid} has ended");
        state.look_at_waiters(Awaited::Child(pid));
    }

    /// Some other code of the process waits for a child that has ended; its status.
    ///
    /// # Panics
    ///
    /// If there is no such child, or it has not ended.
    pub fn wait_for_child(&self, pid: u32) -> ExitStatus {
        let child = self.state().process.children.remove(&pid).expect("a child");
        child.expect("it has ended")
    }
}

const fn can_block(number: i32) -> bool {
    0 < number && number <= LAST && number != libc::SIGKILL && number != libc::SIGSTOP
}

impl State {
    /// An operation waits for a signal from now on.
    pub(super) fn await_signal(&mut self, number: i32, who: Waiter) -> Result<(), i32> {
        if !can_block(number) {
            return Err(libc::EINVAL);
        }
        self.process.waiters.insert(who, Awaited::Signal(number));
        Ok(())
    }

    /// An operation waits for the end of a child from now on.
    pub(super) fn await_child(&mut self, pid: u32, who: Waiter) -> Result<(), i32> {
        if pid == 0 || i32::try_from(pid).is_err() {
            return Err(libc::EINVAL);
        }
        if !self.process.children.contains_key(&pid) {
            return Err(libc::ESRCH);
        }
        self.process.waiters.insert(who, Awaited::Child(pid));
        Ok(())
    }

    fn look_at_waiters(&mut self, awaited: Awaited) {
        let waiters = self.process.waiters.iter().filter(|(_, other)| **other == awaited);
        for who in waiters.map(|(who, _)| *who).collect::<Vec<_>>() {
            self.look_soon(Some(who));
        }
    }

    /// An operation waits no more.
    pub(super) fn stop_awaiting(&mut self, who: Waiter) {
        self.process.waiters.remove(&who);
    }

    /// Takes the first pending signal with this number.
    pub(super) fn take_signal(&mut self, number: i32) -> Option<Signal> {
        let pending = &mut self.process.pending;
        let first = pending.iter().position(|one| one.number == number)?;
        Some(pending.remove(first))
    }

    /// Waits for a child that has ended; `None` if it has not.
    pub(super) fn take_child(&mut self, pid: u32) -> io::Result<Option<ExitStatus>> {
        let child = self.process.children.get(&pid).ok_or_else(|| errno(libc::ECHILD))?;
        let ended = *child;
        if ended.is_some() {
            self.process.children.remove(&pid);
        }
        Ok(ended)
    }
}
