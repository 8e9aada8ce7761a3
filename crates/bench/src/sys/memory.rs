//! Mappings that are owned, and touched page by page.

use core::ffi::c_void;
use core::ptr;
use std::io;
use std::os::fd::BorrowedFd;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};

/// A row of pages; unmapped when dropped.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: *mut c_void,
    length: usize,
}

impl Mapping {
    /// Private memory of zeros; `writable`, or else read-only.
    pub(crate) fn anonymous(length: usize, writable: bool) -> io::Result<Self> {
        let protection =
            if writable { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        // SAFETY: the kernel chooses where, so nothing that exists is replaced.
        let start =
            unsafe { mmap_anonymous(ptr::null_mut(), length, protection, MapFlags::PRIVATE) }?;
        Ok(Self { start, length })
    }

    /// Maps the first `length` bytes of a file, shared, for reading.
    pub(crate) fn file(file: BorrowedFd<'_>, length: usize) -> io::Result<Self> {
        // SAFETY: the kernel chooses where, so nothing that exists is replaced.
        let start =
            unsafe { mmap(ptr::null_mut(), length, ProtFlags::READ, MapFlags::SHARED, file, 0) }?;
        Ok(Self { start, length })
    }

    /// madvise(2) for the whole mapping; not with an advice that changes its contents.
    pub(crate) fn advise(&self, advice: Advice) -> io::Result<()> {
        assert!(
            matches!(advice, Advice::Normal | Advice::LinuxHugepage | Advice::LinuxNoHugepage),
            "advice changes contents"
        );
        // SAFETY: the range is this mapping's; these hints change when it is read, not what.
        unsafe { madvise(self.start, self.length, advice) }?;
        Ok(())
    }

    /// Reads the byte at `offset`, and so faults its page in.
    pub(crate) fn read(&self, offset: usize) -> u8 {
        assert!(offset < self.length, "beyond the mapping");
        // SAFETY: offset is below length (asserted).
        let byte = unsafe { self.start.cast::<u8>().add(offset) };
        // SAFETY: within a mapping that lives as long as self and is readable always.
        unsafe { byte.read_volatile() }
    }

    /// Writes the byte at `offset` of a mapping that was made writable; faults its page in.
    pub(crate) fn write(&mut self, offset: usize) {
        assert!(offset < self.length, "beyond the mapping");
        // SAFETY: offset is below length (asserted).
        let byte = unsafe { self.start.cast::<u8>().add(offset) };
        // SAFETY: within a mapping that self owns; one that is not writable would raise SIGSEGV,
        // which ends the program without harm.
        unsafe { byte.write_volatile(1) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: self owns the range, and no reference into it exists: read and write copy.
        let _ = unsafe { munmap(self.start, self.length) };
    }
}

/// Part of a file, mapped, and locked in memory; both undone when dropped.
#[derive(Debug)]
pub(crate) struct Locked {
    start: *mut c_void,
    /// The bytes of the mapping, which begins at a page.
    mapped: usize,
    /// The offset of the part in the mapping.
    skip: usize,
}

// SAFETY: a mapping belongs to the process, and self gives out no reference into it.
unsafe impl Send for Locked {}

impl Locked {
    /// Maps a part that is not empty, and sleeps until all of it is in memory (mlock(2)).
    pub(crate) fn new(file: &std::fs::File, bytes: core::ops::Range<u64>) -> io::Result<Self> {
        const PAGE: u64 = 4096;
        let skip = bytes.start % PAGE;
        let from = bytes.start - skip;
        let mapped = usize::try_from(bytes.end - from).map_err(io::Error::other)?;
        let skip = usize::try_from(skip).map_err(io::Error::other)?;
        // SAFETY: the kernel chooses where, so nothing that exists is replaced.
        let start = unsafe {
            mmap(ptr::null_mut(), mapped, ProtFlags::READ, MapFlags::SHARED, file, from)
        }?;
        let this = Self { start, mapped, skip };
        // SAFETY: the range is that of the mapping just made.
        unsafe { rustix::mm::mlock(start, mapped) }?;
        Ok(this)
    }

    /// The bytes of the part.
    pub(crate) fn len(&self) -> usize {
        self.mapped - self.skip
    }

    /// send(2) of the part from this byte on, to a socket that does not sleep. The kernel copies;
    /// no reference to the bytes is made, because others may write to the file.
    pub(crate) fn send(&self, socket: std::os::fd::RawFd, from: usize) -> io::Result<usize> {
        assert!(from < self.len(), "beyond the part");
        // SAFETY: skip + from is below the mapping's length (asserted).
        let bytes = unsafe { self.start.cast::<u8>().add(self.skip + from) };
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        // SAFETY: the range ends with the mapping, which lives as long as self; the kernel answers
        // EFAULT where the file has been cut.
        let sent = unsafe { libc::send(socket, bytes.cast(), self.len() - from, flags) };
        usize::try_from(sent).map_err(|_| io::Error::last_os_error())
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        // SAFETY: self owns the range, and there is no reference into it. Unlocks as well.
        let _ = unsafe { munmap(self.start, self.mapped) };
    }
}
