//! The actions of a test on the process of the rings: it sends signals, and starts and ends children.

use std::process::ExitStatus;

use super::process::{Awaited, can_block};
use super::world::{World, WorldState};
use crate::op::Signal;

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
        state.process.send(Signal { number, sender });
        state.look_at_waiters(Awaited::Signal(number));
    }

    /// Starts a child of the process; its number.
    #[must_use]
    pub fn start_child(&self) -> u32 {
        self.state().process.start_child()
    }

    /// Ends a child. It sends no `SIGCHLD`.
    ///
    /// # Panics
    ///
    /// If there is no such child, or it has ended.
    pub fn end_child(&self, pid: u32, status: ExitStatus) {
        let mut state = self.state();
        state.process.end_child(pid, status);
        state.look_at_waiters(Awaited::Child(pid));
    }

    /// Lets other code of the process wait for a child that has ended; returns its status.
    ///
    /// # Panics
    ///
    /// If there is no such child, or it has not ended.
    #[must_use]
    pub fn wait_for_child(&self, pid: u32) -> ExitStatus {
        let ended = self.state().process.take_child(pid);
        ended.expect("a child").expect("it has ended")
    }
}

impl WorldState {
    fn look_at_waiters(&mut self, awaited: Awaited) {
        for who in self.process.waiters(awaited) {
            self.look_soon(Some(who));
        }
    }
}
