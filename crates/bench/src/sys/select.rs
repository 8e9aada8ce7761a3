//! select(2) beyond the C library's 1024 descriptors.

use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};

use rustix::event::{FdSetElement, FdSetIter, fd_set_insert, fd_set_num_elements, select};

/// Descriptors to be asked for by select(2).
#[derive(Default)]
pub(crate) struct ReadSet {
    /// Those that are in it; nobody else may close them.
    owned: Vec<OwnedFd>,
    bits: Vec<FdSetElement>,
    /// What the kernel reads and writes.
    scratch: Vec<FdSetElement>,
    bound: i32,
}

impl core::fmt::Debug for ReadSet {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("ReadSet").field("owned", &self.owned).finish_non_exhaustive()
    }
}

impl ReadSet {
    /// Adds one.
    pub(crate) fn add(&mut self, fd: OwnedFd) {
        self.bound = self.bound.max(fd.as_raw_fd() + 1);
        self.bits.resize(fd_set_num_elements(1024, self.bound), FdSetElement::default());
        fd_set_insert(&mut self.bits, fd.as_raw_fd());
        self.owned.push(fd);
    }

    /// Waits until one is readable; the numbers of those that are.
    pub(crate) fn wait(&mut self) -> io::Result<FdSetIter<'_>> {
        self.scratch.clone_from(&self.bits);
        // SAFETY: every descriptor in the set is owned by self and so open.
        unsafe { select(self.bound, Some(&mut self.scratch), None, None, None) }?;
        Ok(FdSetIter::new(&self.scratch))
    }
}
