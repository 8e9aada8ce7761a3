//! Replaces the running process by a new process that serves at the same sockets (`samum upgrade`, SIGUSR2).
//!
//! ```text
//!   first process ──fork──► starter ◄── "start" ── process that serves
//!                              │                          ▲
//!                              └──fork, exec──► new process ── channel: listeners, "ready", "released"
//! ```
//!
//! The new process gets the listening sockets themselves, so no connection in their accept queues is lost. The new
//! process reads its configuration, starts its workers, and says that it is ready. A second later the old process
//! accepts no more, and each of its connections ends after the next response. If the new process fails before, the old
//! process serves as before. The module `machine` decides, and the other modules act:
//!
//! - `starter`: the process that starts new processes, with the rights of the first process;
//! - `handover`, `packet`: the description of the sockets that are handed over, and its transport;
//! - `upgrader`: the side of the process that is replaced;
//! - `successor`: the side of the new process.

mod handover;
mod machine;
mod packet;
mod starter;
mod successor;
mod upgrader;

use core::time::Duration;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

pub use successor::Origin;
pub(crate) use successor::{Inheritance, Reporter};
pub(crate) use upgrader::{Parts, Upgrader};

/// The packet by which a process asks an earlier process to end soon, because the server stops.
const STOP: &[u8] = b"stop";

/// The connections to the earlier processes that finish their connections.
#[derive(Debug, Default)]
pub(crate) struct Elders(Mutex<Vec<Arc<OwnedFd>>>);

impl Elders {
    fn add(&self, elders: impl IntoIterator<Item = Arc<OwnedFd>>) {
        self.lock(|all| all.extend(elders));
    }

    /// The connections to processes that have not ended.
    fn alive(&self) -> Vec<Arc<OwnedFd>> {
        self.lock(|all| {
            all.retain(|elder| !matches!(packet::take(elder), Ok(None)));
            all.clone()
        })
    }

    fn forget(&self) {
        self.lock(Vec::clear);
    }

    /// Asks all earlier processes to end soon.
    pub(crate) fn stop(&self) {
        for elder in self.alive() {
            // The call fails if the process has just ended.
            let _ = packet::send(&elder, STOP, &[]);
        }
    }

    /// Waits until all earlier processes have ended, at most `limit`.
    pub(crate) fn wait(&self, limit: Duration) {
        let deadline = Instant::now() + limit;
        while let Some(elder) = self.alive().into_iter().next() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || packet::receive(&elder, left).is_err() {
                return;
            }
        }
    }

    fn lock<T>(&self, act: impl FnOnce(&mut Vec<Arc<OwnedFd>>) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
