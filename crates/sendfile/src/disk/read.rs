//! The reads of a disk: the request of a stream, the read in flight, and its result.

use core::ops::Range;
use std::io;
use std::rc::Rc;

use ring::{Buffer, Device, Pipe, Time};

use crate::file::{File, Readahead};
use crate::page_cache::{Dropping, Watch};
use crate::policy::Policy;
use crate::stream_queue::{Owner, Wait};
use crate::trail::{Held, Trail};
use crate::transport::Takes;

#[derive(Debug)]
pub(super) struct Read {
    pub(super) owner: Owner,
    pub(super) at: u64,
    pub(super) file: Rc<File>,
    pub(super) offset: u64,
    pub(super) len: u64,
    pub(super) policy: Policy,
    pub(super) wait: Wait,
    pub(super) how: How,
    pub(super) readahead: Readahead,
    /// The number of dropping reads of the range that had ended when this read began (`File::all_drops`); `Some` if the
    /// pages are to stay in the page cache.
    pub(super) drops: Option<u64>,
    /// `Some` for [`How::Drop`] and [`How::Discard`]: until it is dropped, no worker regards the block as resident.
    pub(super) dropping: Option<Dropping>,
    /// A watch that began with this read, if its pages are dropped after the read. It shows that another stream keeps
    /// the file in the page cache.
    pub(super) watch: Option<Watch>,
    /// `Some` for a splice that does not stay in the page cache.
    pub(super) trail: Option<Held>,
    /// When the stream's turn has begun.
    pub(super) turn: Time,
    pub(super) began: Time,
}

impl Read {
    pub(super) const fn range(&self) -> Range<u64> {
        self.offset..self.offset + self.len
    }

    /// The result for its owner if it takes too long.
    pub(super) fn late(&self) -> ReadDone {
        ReadDone {
            owner: self.owner,
            at: self.at,
            file: Rc::clone(&self.file),
            offset: self.offset,
            len: self.len,
            policy: self.policy,
            result: Err(io::ErrorKind::TimedOut.into()),
            trail: None,
        }
    }
}

/// A read that a stream asks for.
#[derive(Debug)]
pub(crate) struct ReadRequest<'a> {
    pub(crate) owner: Owner,
    /// The position in the stream.
    pub(crate) at: u64,
    pub(crate) file: &'a Rc<File>,
    /// The position in the file.
    pub(crate) offset: u64,
    /// The length in bytes; the read may ask for fewer.
    pub(crate) len: u64,
    pub(crate) policy: Policy,
    pub(crate) wait: Wait,
    pub(crate) readahead: Readahead,
    pub(crate) takes: Takes,
    /// The window of the transport.
    pub(crate) window: u64,
    /// When the stream's last turn has begun.
    pub(crate) turn: Time,
    /// `Some` if the read may leave its pages in the page cache although they are not to stay there.
    pub(crate) trail: Option<Rc<Trail>>,
    /// True if the stream can send nothing until this read has ended. Prefetching leaves a part of the memory to such
    /// reads. Otherwise streams could block each other with bytes that are not yet due.
    pub(crate) is_urgent: bool,
}

/// A read that has begun.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Begun {
    /// The bytes asked for.
    pub(crate) len: u64,
    /// True if the next read of this promise should wait until this read has ended. The kernel's readahead takes two
    /// reads at the same time for random reads.
    pub(crate) alone: bool,
    /// When the stream's turn has begun.
    pub(crate) turn: Time,
}

/// A way of reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
    /// Into the page cache, and from there into a pipe.
    Splice,
    /// Into the page cache, and a copy into a buffer.
    Keep,
    /// As `Keep`, and the read itself drops the pages from the page cache.
    Drop,
    /// Past the page cache into a buffer.
    Direct,
    /// As `Keep`, and the pages are dropped after the read. The drop would include pages that others
    /// have brought, so it is not used if there are any.
    Discard,
}

/// A read that has ended, for [`Stream::handle_read`](crate::Stream::handle_read) of its owner.
#[derive(Debug)]
pub struct ReadDone {
    /// The stream that asked.
    pub owner: Owner,
    pub(crate) at: u64,
    pub(crate) file: Rc<File>,
    pub(crate) offset: u64,
    /// The bytes asked for.
    pub(crate) len: u64,
    pub(crate) policy: Policy,
    pub(crate) result: io::Result<Data>,
    /// `Some` if the read has left pages in the page cache that are not to stay there.
    pub(crate) trail: Option<Held>,
}

/// The result of a read.
#[derive(Debug)]
pub(crate) enum Data {
    /// Copies.
    Buffer(Buffer),
    /// Pages of the page cache.
    Pipe(Pipe),
    /// Nothing yet: the file system cannot read in this way, but in another. Read again.
    Nothing,
}

impl ReadDone {
    /// The bytes that the stream has asked for.
    #[must_use]
    pub const fn asked(&self) -> u64 {
        self.len
    }

    /// The device of a read that has failed because it took too long.
    #[must_use]
    pub fn late_on(&self) -> Option<Device> {
        let is_late = |error: &io::Error| error.kind() == io::ErrorKind::TimedOut;
        self.result.as_ref().err().is_some_and(is_late).then(|| self.file.device())
    }
}

impl Data {
    pub(crate) fn len(&self) -> u64 {
        match self {
            Self::Buffer(buf) => buf.len() as u64,
            Self::Pipe(pipe) => pipe.len() as u64,
            Self::Nothing => 0,
        }
    }
}
