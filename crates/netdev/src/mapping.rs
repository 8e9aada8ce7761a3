//! Memory that the kernel may share.

use core::ptr::NonNull;
use std::io;
use std::os::fd::BorrowedFd;

use rustix::mm::{MapFlags, ProtFlags};

/// A mapping: page-aligned memory at an address that does not change.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread, and this type gives out addresses only.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Maps zeroed memory. Pages that are never touched cost only address space.
    pub(crate) fn anonymous(bytes: usize) -> io::Result<Self> {
        // SAFETY: an anonymous mapping at an address of the kernel's choice (mmap(2)) touches no memory
        // that exists.
        let base = unsafe {
            rustix::mm::mmap_anonymous(
                core::ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        }?;
        Ok(Self { base: NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?, bytes })
    }

    /// Maps memory of the object behind a descriptor.
    pub(crate) fn shared(fd: BorrowedFd<'_>, offset: u64, bytes: usize) -> io::Result<Self> {
        // SAFETY: a mapping at an address of the kernel's choice (mmap(2)) touches no memory that exists.
        let base = unsafe {
            rustix::mm::mmap(
                core::ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED | MapFlags::POPULATE,
                fd,
                offset,
            )
        }?;
        Ok(Self { base: NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?, bytes })
    }

    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// The address of `len` bytes at `offset`. The address is valid as long as the mapping lives.
    ///
    /// # Panics
    ///
    /// If the bytes are not inside of the mapping.
    pub(crate) fn at(&self, offset: usize, len: usize) -> NonNull<u8> {
        let fits = offset.checked_add(len).is_some_and(|end| end <= self.bytes);
        assert!(fits, "{len} bytes at {offset} of {}", self.bytes);
        // SAFETY: `offset` is within the mapping, by the check above.
        unsafe { self.base.add(offset) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `base` and `bytes` come from mmap(2), and nothing refers to the memory: the types that read it
        // hold the mapping.
        let unmapped = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.bytes) };
        debug_assert!(unmapped.is_ok(), "{unmapped:?}");
    }
}
