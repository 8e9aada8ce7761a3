//! Signals to the simulated process.

use std::collections::BTreeMap;

use super::Waiter;
use super::world::{State, World};
use crate::op::Signal;

/// Signals from this one on queue: `SIGRTMIN` of the kernel, signal(7).
const FIRST_QUEUED: i32 = 32;
/// The last signal, `_NSIG`.
const LAST: i32 = 64;

/// What is pending for the process, and what waits for it.
#[derive(Debug, Default)]
pub(super) struct Process {
    /// In the order in which they came.
    pending: Vec<Signal>,
    /// By operation: the signal that it waits for.
    waiters: BTreeMap<Waiter, i32>,
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
        let waiters = state.process.waiters.iter().filter(|(_, wanted)| **wanted == number);
        for who in waiters.map(|(who, _)| *who).collect::<Vec<_>>() {
            state.look_soon(Some(who));
        }
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
        self.process.waiters.insert(who, number);
        Ok(())
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
}
