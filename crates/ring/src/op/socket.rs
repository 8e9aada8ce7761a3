//! Operations on sockets: each waits for one thing to happen to one descriptor.

use super::Op;
use crate::fd::Fd;

/// What an operation on a socket waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// Connections, again and again.
    Accept,
    /// Bytes, again and again.
    Recv,
    /// Something to read, once.
    Readable,
    /// Room to write, once.
    Writable,
}

impl Op {
    /// What it waits for, and where; `None` unless it is an operation on a socket.
    pub(crate) const fn socket(&self) -> Option<(Wait, &Fd)> {
        match self {
            Self::Accept(fd) => Some((Wait::Accept, fd)),
            Self::Recv(fd) => Some((Wait::Recv, fd)),
            Self::Readable(fd) => Some((Wait::Readable, fd)),
            Self::Writable(fd) => Some((Wait::Writable, fd)),
            _ => None,
        }
    }
}
