//! The parameters and the results of calls.

use core::ops::Range;
use std::io;
use std::process::ExitStatus;
use std::rc::Rc;

use ring::{Event, Key, Listing, Signal, Stat, Token};

use crate::failure::Failure;
use crate::file::File;
use crate::payload::Piece;
use crate::policy::Policy;
use crate::shared::Shared;
use crate::stream::Stream;

/// The name of a call of one [`Calls`](crate::Calls), forever: a late name never means another call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Call(pub(super) Key);

/// The name of a socket of one [`Calls`](crate::Calls), forever.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Socket(pub(super) Key);

impl Call {
    /// The name as a number below 2⁵⁶.
    #[must_use]
    pub const fn to_bits(self) -> u64 {
        self.0.to_bits()
    }

    /// The call whose name this number is.
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        Self(Key::from_bits(bits))
    }
}

impl Socket {
    /// The name as a number below 2⁵⁶.
    #[must_use]
    pub const fn to_bits(self) -> u64 {
        self.0.to_bits()
    }

    /// The socket whose name this number is.
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        Self(Key::from_bits(bits))
    }
}

/// A part of what one call sends.
#[derive(Debug)]
pub enum Part {
    /// Bytes that were made for this call.
    Bytes(Vec<u8>),
    /// Bytes that never move.
    Static(&'static [u8]),
    /// A range of a buffer that several calls send.
    Shared(Shared, Range<usize>),
    /// A range of a file, which need not be in the page cache, with its policy.
    File(Rc<File>, Range<u64>, Policy),
}

impl Part {
    pub(super) fn promise(self, stream: &mut Stream) {
        match self {
            Self::Bytes(bytes) => stream.push(Piece::Bytes(bytes)),
            Self::Static(bytes) => stream.push(Piece::Static(bytes)),
            Self::Shared(all, range) => stream.push(Piece::Shared(all, range)),
            Self::File(file, range, policy) => stream.push_file(&file, range, policy),
        }
    }
}

/// Memory to receive into; each of its bytes may be overwritten.
#[derive(Debug)]
pub enum Room {
    /// Memory that belongs to the call, and comes back with its completion.
    Owned(Vec<u8>),
    /// Memory that stays where it is, and that no other code uses until the call completes.
    Static(&'static mut [u8]),
}

impl Room {
    /// All of the memory. The bytes after the received ones are unchanged.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Owned(bytes) => bytes,
            Self::Static(bytes) => bytes,
        }
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Owned(bytes) => bytes,
            Self::Static(bytes) => bytes,
        }
    }
}

/// No call is accepted now, and the parameters come back. Call [`Calls::wait`](crate::Calls::wait), and try
/// again.
#[derive(Debug)]
pub struct Full<T>(pub T);

/// A call has completed; or one that completes several times has done so once more.
#[derive(Debug)]
pub struct Done {
    /// The call, as [`Calls`](crate::Calls) named it.
    pub call: Call,
    /// The call, as the caller named it.
    pub token: Token,
    /// Its result.
    pub outcome: Outcome,
    /// True if more completions of this call will come. After the last one its name has no more use.
    pub more: bool,
}

/// The result of a call.
#[derive(Debug)]
pub enum Outcome {
    /// The end of [`Calls::send`](crate::Calls::send).
    Sent {
        /// The bytes that the kernel has taken: all unless `end` is an error, and then the first ones.
        bytes: u64,
        /// The reason for the end.
        end: Result<(), Stop>,
    },
    /// The end of [`Calls::receive_into`](crate::Calls::receive_into).
    Received {
        /// The memory.
        room: Room,
        /// The bytes received into the front of it; 0 means that the peer will send no more.
        end: Result<usize, Stop>,
    },
    /// The end of [`Calls::read_into`](crate::Calls::read_into).
    Read {
        /// The memory.
        room: Room,
        /// The bytes in front of it that were read: all unless `end` is an error, and then the first ones.
        bytes: usize,
        /// The reason for the end.
        end: Result<(), Stop>,
    },
    /// The end of [`Calls::receive_to_file`](crate::Calls::receive_to_file).
    Stored {
        /// The bytes that are in the file. Fewer than were wanted without an error mean that the peer has ended its
        /// side.
        bytes: u64,
        /// The reason for the end.
        end: Result<(), Stop>,
    },
    /// The end of [`Calls::acknowledgement`](crate::Calls::acknowledgement): the bytes that the peer has
    /// acknowledged, or the reason why it will acknowledge no more.
    Acknowledged(Result<u64, Stop>),
    /// A result of [`Calls::accept`](crate::Calls::accept): a connection, or the reason why no more will come.
    Accepted(io::Result<Socket>),
    /// The end of [`Calls::open`](crate::Calls::open): a regular file, and its attributes when it was opened.
    /// `IsADirectory` and `InvalidInput` (a FIFO, a socket, a device) are the errors of files that cannot be
    /// sent.
    Opened(io::Result<(Rc<File>, Box<Stat>)>),
    /// The end of [`Calls::list`](crate::Calls::list): the entries of a directory.
    Listed(io::Result<Box<Listing>>),
    /// The first result of [`Calls::watch_file`](crate::Calls::watch_file), once: changes are reported from now
    /// on. So a program that reads the file after this event misses no change.
    Watching,
    /// A result of [`Calls::watch_file`](crate::Calls::watch_file): the file may have changed, or the reason
    /// why no more changes will be reported. Several changes together may be one result.
    Changed(io::Result<()>),
    /// The end of [`Calls::connect`](crate::Calls::connect): a connection, or the reason why there is none.
    Connected(io::Result<Socket>),
    /// The end of [`Calls::timer`](crate::Calls::timer): the time has come, or the call was cancelled.
    Timer(io::Result<()>),
    /// A result of [`Calls::signal`](crate::Calls::signal): a signal, or the reason why no more will come.
    Signal(io::Result<Signal>),
    /// The end of [`Calls::child`](crate::Calls::child): the child has ended with this status, or the reason
    /// why its status cannot be known.
    Exited(io::Result<ExitStatus>),
    /// A result of [`Calls::submit`](crate::Calls::submit).
    Event(io::Result<Event>),
}

/// Why a send or a receive has brought less than it was to bring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// [`Calls::cancel`](crate::Calls::cancel) came first.
    Cancelled,
    /// An earlier send on this socket has left in part, or an earlier receive into a file has lost bytes. What follows
    /// would be misunderstood: nothing of this call has left or come. Close the socket.
    Broken,
    /// The socket was closed, or its name is not of this queue.
    Closed,
    /// The send could not go on. After [`Failure::Gone`] close the socket.
    Failed(Failure),
}
