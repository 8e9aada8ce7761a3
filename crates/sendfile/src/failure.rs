//! The reasons why a stream cannot go on.

use std::io;

use ring::Fault;

/// Why a stream cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// A file has become shorter than its promised range.
    Truncated,
    /// A file was not read in time.
    Late,
    /// A file cannot be read: the errno.
    Unreadable(i32),
    /// There was no memory to send with: the errno.
    NoMemory(i32),
    /// A system call failed in a way that it should not: the errno.
    Unexpected(i32),
    /// The peer has gone.
    Gone,
    /// Bytes that are produced while they are sent could not be produced to their end.
    Unfinished,
}

impl Failure {
    /// The reason why a call that sends has failed for good.
    pub(crate) fn of_send(fault: Fault) -> Self {
        match fault {
            Fault::Peer => Self::Gone,
            Fault::File(errno) => Self::Unreadable(errno),
            Fault::Memory(errno) => Self::NoMemory(errno),
            Fault::Unsupported(errno) | Fault::Ours(errno) => Self::Unexpected(errno),
            Fault::Blocked | Fault::Interrupted => unreachable!("the call is repeated"),
        }
    }

    /// The reason why a read has failed. A read has no peer, so any other errno is of the file.
    pub(crate) fn of_read(error: &io::Error) -> Self {
        match Fault::of(error) {
            _ if error.kind() == io::ErrorKind::TimedOut => Self::Late,
            Fault::Memory(errno) => Self::NoMemory(errno),
            _ => Self::Unreadable(error.raw_os_error().unwrap_or(0)),
        }
    }
}
