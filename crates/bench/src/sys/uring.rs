//! io_uring with operations that own no memory: the memory that they point to lives as long as the
//! ring.

use std::io;
use std::os::fd::RawFd;

use io_uring::types::Fd;
use io_uring::{IoUring, cqueue, opcode, squeue, types};

/// A ring, and a byte that its reads write to.
pub(crate) struct Ring {
    // Declared before the byte, so that the ring is dropped first.
    ring: IoUring,
    byte: Box<u8>,
}

impl core::fmt::Debug for Ring {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Ring").finish_non_exhaustive()
    }
}

/// A request to a ring.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ask {
    /// Reads one byte of this descriptor.
    Read(RawFd),
    /// Reads one byte of the registered file at this index.
    ReadRegistered(u32),
    /// The next connection.
    Accept(RawFd),
    /// Every connection from now on.
    AcceptAll(RawFd),
    /// When this is readable next.
    Poll(RawFd),
    /// Whenever it becomes readable.
    PollAll(RawFd),
}

/// A completion: the token, the result, and whether more will follow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Completion {
    pub(crate) token: u64,
    pub(crate) result: i32,
    pub(crate) more: bool,
}

impl Ring {
    /// A ring for `entries` submissions and `completions` completions at the same time. One thread uses it, and
    /// the kernel works when that thread waits (6.1), or at any time on older kernels.
    pub(crate) fn new(entries: u32, completions: u32) -> io::Result<Self> {
        let modern = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_cqsize(completions)
            .build(entries);
        let ring = match modern {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                IoUring::builder().setup_cqsize(completions).build(entries)?
            }
            other => other?,
        };
        Ok(Self { ring, byte: Box::new(0) })
    }

    /// Makes an empty table for this number of files.
    pub(crate) fn register_table(&self, files: u32) -> io::Result<()> {
        self.ring.submitter().register_files_sparse(files)
    }

    /// Puts a file into it.
    pub(crate) fn register(&self, index: u32, fd: RawFd) -> io::Result<()> {
        self.ring.submitter().register_files_update(index, &[fd]).map(|_| ())
    }

    /// Queues an operation; submits first if the queue is full.
    pub(crate) fn push(&mut self, ask: Ask, token: u64) -> io::Result<()> {
        /// POLLIN.
        const READABLE: u32 = 1;
        let byte = &raw mut *self.byte;
        let entry: squeue::Entry = match ask {
            Ask::Read(fd) => opcode::Read::new(Fd(fd), byte, 1).build(),
            Ask::ReadRegistered(index) => opcode::Read::new(types::Fixed(index), byte, 1).build(),
            Ask::Accept(fd) => {
                opcode::Accept::new(Fd(fd), core::ptr::null_mut(), core::ptr::null_mut()).build()
            }
            Ask::AcceptAll(fd) => opcode::AcceptMulti::new(Fd(fd)).build(),
            Ask::Poll(fd) => opcode::PollAdd::new(Fd(fd), READABLE).build(),
            Ask::PollAll(fd) => opcode::PollAdd::new(Fd(fd), READABLE).multi(true).build(),
        }
        .user_data(token);
        if self.ring.submission().is_full() {
            self.ring.submit()?;
        }
        let mut queue = self.ring.submission();
        // SAFETY: the only memory an entry points to is the byte, which lives as long as the ring, and
        // to which there is no reference; what is written there is never read.
        unsafe { queue.push(&entry) }.map_err(io::Error::other)
    }

    /// Submits the queued entries.
    pub(crate) fn submit(&mut self) -> io::Result<()> {
        self.ring.submit().map(|_| ())
    }

    /// Submits the queued entries, and waits for a completion. An interruption is no error.
    pub(crate) fn wait(&mut self) -> io::Result<()> {
        match self.ring.submit_and_wait(1) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => Err(error),
            _ => Ok(()),
        }
    }

    /// The next completion, if there is one.
    pub(crate) fn next(&mut self) -> Option<Completion> {
        self.ring.completion().next().map(|entry| Completion {
            token: entry.user_data(),
            result: entry.result(),
            more: cqueue::more(entry.flags()),
        })
    }
}
