//! Results of operations on signals and child processes.

/// A signal that was sent to this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signal {
    /// The signal's number: `SIGTERM` and the like, signal(7).
    pub number: i32,
    /// The process that sent it, or the child that a `SIGCHLD` is about. `None` if the kernel sent it (a
    /// terminal, a timer) or a process that has no number in the PID namespace of this one.
    pub sender: Option<u32>,
}
