//! Residency by `mincore(2)`, for file systems that do not know `RWF_NOWAIT`.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicUsize, Ordering};
use std::io;
use std::os::fd::BorrowedFd;

use super::{PAGE, PAGES_MAX, PROBE_BYTES_MAX};

/// Mappings that all rings of the process keep: a quarter of what it may have (`vm.max_map_count`,
/// 65,530), for threads and memory need theirs.
const MAPPINGS_MAX: usize = 16 * 1024;
/// The number of mappings. Relaxed: it guards nothing.
static MAPPINGS: AtomicUsize = AtomicUsize::new(0);

/// A file's pages, mapped for `mincore(2)` and never touched.
///
/// `mincore` reports on the page cache of the file that the file system maps, which on overlayfs is the
/// lower one, and counts only pages that are up to date. To a process that neither owns the file nor may
/// write to it, `mincore` reports every page as resident (`can_do_mincore` in mm/mincore.c). Such a false
/// result shows at the page after the end of the file, which is mapped for this check.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<core::ffi::c_void>,
    /// The bytes of the file in whole pages; one page more is mapped.
    bytes: usize,
    _place: MappingSlot,
}

/// The right to one of [`MAPPINGS_MAX`] mappings.
#[derive(Debug)]
struct MappingSlot;

impl MappingSlot {
    fn take() -> Option<Self> {
        let one_more = |count: usize| (count < MAPPINGS_MAX).then_some(count + 1);
        MAPPINGS.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).ok().map(|_| Self)
    }
}

impl Drop for MappingSlot {
    fn drop(&mut self) {
        MAPPINGS.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Mapping {
    pub(crate) fn new(file: BorrowedFd<'_>, size: u64) -> io::Result<Self> {
        let place = MappingSlot::take().ok_or(io::ErrorKind::OutOfMemory)?;
        let bytes = usize::try_from(size).ok().and_then(|size| size.checked_next_multiple_of(PAGE));
        let bytes = bytes.filter(|bytes| bytes.checked_add(PAGE).is_some());
        let bytes = bytes.ok_or(io::ErrorKind::OutOfMemory)?;
        // SAFETY: a mapping at an address of the kernel's choice touches no memory that exists, and
        // its pages can be neither read nor written (`PROT_NONE`, mmap(2)).
        let start = unsafe {
            rustix::mm::mmap(
                core::ptr::null_mut(),
                bytes + PAGE,
                rustix::mm::ProtFlags::empty(),
                rustix::mm::MapFlags::SHARED,
                file,
                0,
            )
        }?;
        let start = NonNull::new(start).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, bytes, _place: place })
    }

    /// The number of bytes from `offset` on, at most `len` and [`PROBE_BYTES_MAX`], that are in the page
    /// cache. 0 after the end of the file as it was mapped. Fails with `PermissionDenied` if the kernel
    /// hides residency from this process.
    pub(crate) fn resident(&self, offset: u64, len: usize) -> io::Result<usize> {
        let end = self.bytes as u64;
        let len = (len.min(PROBE_BYTES_MAX) as u64).min(end.saturating_sub(offset));
        if len == 0 {
            return Ok(0);
        }
        let first = offset - offset % PAGE as u64;
        let count = (offset + len - first).div_ceil(PAGE as u64);
        // One page more for a range that begins within a page.
        let mut pages = [0; PAGES_MAX + 1];
        let count = usize::try_from(count).expect("at most PAGES_MAX + 1");
        self.look(first, &mut pages[..count])?;
        self.check_truth()?;
        let there = pages[..count].iter().take_while(|page| **page & 1 != 0).count();
        let found = (first + (there * PAGE) as u64).saturating_sub(offset).min(len);
        Ok(usize::try_from(found).expect("at most len"))
    }

    /// Returns whether any page of a range is in the page cache. Fails like [`resident`](Self::resident).
    pub(crate) fn has_any(&self, offset: u64, len: u64) -> io::Result<bool> {
        self.check_truth()?;
        let end = offset.saturating_add(len).min(self.bytes as u64);
        let mut at = offset - offset % PAGE as u64;
        let mut pages = [0; PAGES_MAX];
        while at < end {
            let left = usize::try_from((end - at).div_ceil(PAGE as u64)).unwrap_or(PAGES_MAX);
            let count = left.min(PAGES_MAX);
            self.look(at, &mut pages[..count])?;
            if pages[..count].iter().any(|page| page & 1 != 0) {
                return Ok(true);
            }
            at += (count * PAGE) as u64;
        }
        Ok(false)
    }

    /// Looks at the page after the end of the file.
    fn check_truth(&self) -> io::Result<()> {
        let mut behind = [0];
        self.look(self.bytes as u64, &mut behind)?;
        if behind[0] & 1 == 0 { Ok(()) } else { Err(io::ErrorKind::PermissionDenied.into()) }
    }

    fn look(&self, offset: u64, pages: &mut [u8]) -> io::Result<()> {
        let at = usize::try_from(offset).expect("within the mapping");
        assert!(at + pages.len() * PAGE <= self.bytes + PAGE);
        // SAFETY: asserted to lie within the mapping, which `new` made and `drop` ends.
        let start = unsafe { self.start.as_ptr().byte_add(at) };
        // SAFETY: mincore(2) reads no memory there, and writes one byte for each page to `pages`.
        let result = unsafe { libc::mincore(start, pages.len() * PAGE, pages.as_mut_ptr()) };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: made by `new` with this length; nothing refers to it but `self`.
        let result = unsafe { rustix::mm::munmap(self.start.as_ptr(), self.bytes + PAGE) };
        debug_assert!(result.is_ok(), "munmap of an own mapping fails only for bad arguments");
    }
}
