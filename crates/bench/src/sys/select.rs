//! select(2) beyond the C library's 1024 descriptors.

use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};

use rustix::event::{FdSetElement, FdSetIter, fd_set_insert, fd_set_num_elements, select};
use rustix::io::Errno;

/// The descriptors that select(2) asks for.
#[derive(Default)]
pub(crate) struct ReadSet {
    /// The descriptors in the set, by number; no other code may close them.
    owned: Vec<Option<OwnedFd>>,
    bits: Vec<FdSetElement>,
    /// The bits that the kernel reads and writes.
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
        let number = usize::try_from(fd.as_raw_fd()).unwrap_or(0);
        self.owned.resize_with(self.owned.len().max(number + 1), || None);
        self.owned[number] = Some(fd);
    }

    /// Waits until one is readable; gives those that are, none after an interruption.
    pub(crate) fn wait(&mut self) -> io::Result<impl Iterator<Item = BorrowedFd<'_>>> {
        self.scratch.clone_from(&self.bits);
        // SAFETY: every descriptor in the set is owned by self and so open.
        match unsafe { select(self.bound, Some(&mut self.scratch), None, None, None) } {
            Ok(_) => {}
            // The kernel leaves the set as it was.
            Err(Errno::INTR) => self.scratch.fill(FdSetElement::default()),
            Err(error) => return Err(error.into()),
        }
        Ok(FdSetIter::new(&self.scratch).filter_map(|number| {
            let fd = self.owned.get(usize::try_from(number).ok()?)?;
            Some(fd.as_ref()?.as_fd())
        }))
    }
}
