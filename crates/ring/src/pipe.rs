//! Pipes that hold pages of files, or received bytes, on their way to a socket.
//!
//! `splice(2)` from a file to a pipe is the half of `sendfile(2)` that may sleep, and runs in a
//! helper or in the kernel's worker. `splice(2)` from the pipe to the socket is the half that does
//! not sleep. No byte is copied, and the kernel's readahead with its large folios works as for
//! `sendfile`. A splice from a nonblocking socket to a pipe does not sleep either, and copies
//! nothing.

use core::cell::{Cell, RefCell};
use core::fmt;
use std::io;
use std::os::fd::RawFd;
use std::rc::Rc;

use crate::fd::Fd;

const PAGE: u64 = 4096;

/// A bounded number of pipes, made when they are needed.
#[derive(Clone)]
pub struct PipePool(Rc<Pool>);

struct Pool {
    free: RefCell<Vec<Ends>>,
    lent: Cell<usize>,
    max: usize,
}

/// Both ends of a pipe.
pub(crate) struct Ends {
    pub(crate) read: Fd,
    pub(crate) write: Fd,
    /// The capacity of the pipe in bytes.
    pub(crate) capacity: usize,
}

/// A pipe of a pool. Its drop gives it back if it is empty, or else closes it.
pub struct Pipe {
    pool: Rc<Pool>,
    ends: Option<Ends>,
    want: usize,
    len: usize,
}

impl PipePool {
    /// At most `max` pipes exist at the same time.
    #[must_use]
    pub fn new(max: usize) -> Self {
        Self(Rc::new(Pool { free: RefCell::default(), lent: Cell::new(0), max }))
    }

    /// Borrow an empty pipe, or `None` when all are lent or none can be made.
    pub(crate) fn take(
        &self,
        offset: u64,
        want: usize,
        make: impl FnOnce() -> io::Result<Ends>,
    ) -> Option<Pipe> {
        if self.0.lent.get() >= self.0.max {
            return None;
        }
        let kept = self.0.free.borrow_mut().pop();
        let ends = kept.or_else(|| make().ok())?;
        self.0.lent.set(self.0.lent.get() + 1);
        // A pipe holds this many pages, and the first page may be used from its middle on.
        let lost = usize::try_from(offset % PAGE).expect("less than a page");
        let want = want.min(ends.capacity - lost);
        Some(Pipe { pool: Rc::clone(&self.0), ends: Some(ends), want, len: 0 })
    }

    /// Close the pipes that are not lent; for a worker that has no use for any.
    pub fn shrink(&self) {
        self.0.free.borrow_mut().clear();
    }

    /// Pipes that can be taken now, if they can be made.
    #[must_use]
    pub fn available(&self) -> usize {
        self.0.max - self.0.lent.get()
    }
}

impl Pipe {
    /// The number of bytes that a splice shall bring.
    #[must_use]
    pub const fn want(&self) -> usize {
        self.want
    }

    /// The number of bytes in it.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the pipe is empty.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    fn ends(&self) -> &Ends {
        self.ends.as_ref().expect("taken only by drop")
    }

    pub(crate) fn write_fd(&self) -> &Fd {
        &self.ends().write
    }

    pub(crate) fn write_end(&self) -> RawFd {
        self.ends().write.raw()
    }

    /// Say how many bytes were spliced in.
    pub(crate) fn set_len(&mut self, len: usize) {
        assert!(len <= self.want, "the kernel spliced more than it was asked for");
        self.len = len;
    }

    pub(crate) fn read_end(&self) -> &Fd {
        &self.ends().read
    }

    /// Say how many more bytes have come into it.
    pub(crate) fn put_in(&mut self, count: usize) {
        self.set_len(self.len + count);
    }

    /// Say how many bytes have left it.
    pub(crate) fn take_out(&mut self, count: usize) {
        self.len = self.len.checked_sub(count).expect("no more than there was");
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        self.pool.lent.set(self.pool.lent.get() - 1);
        if let (0, Some(ends)) = (self.len, self.ends.take()) {
            self.pool.free.borrow_mut().push(ends);
        }
    }
}

impl fmt::Debug for Pipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pipe({} of {} bytes)", self.len, self.want)
    }
}

impl fmt::Debug for PipePool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PipePool({} of {} lent)", self.0.lent.get(), self.0.max)
    }
}
