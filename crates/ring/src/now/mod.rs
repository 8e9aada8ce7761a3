//! Calls on descriptors that answer at once and never sleep on a disk.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use core::cell::UnsafeCell;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicUsize, Ordering};
use std::sync::OnceLock;

use rustix::io::IoSlice;
use rustix::net::{SendAncillaryBuffer, SendFlags};

/// `IOV_MAX` of `<limits.h>`: the kernel takes no more pieces in one call.
const SEND_PIECES_MAX: usize = 1024;

/// `send(2)` or `sendmsg(2)`, nonblocking, without SIGPIPE.
pub(crate) fn send(
    socket: BorrowedFd<'_>,
    pieces: &[IoSlice<'_>],
    more: bool,
) -> io::Result<usize> {
    let mut flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    if more {
        flags |= SendFlags::MORE;
    }
    Ok(match &pieces[..pieces.len().min(SEND_PIECES_MAX)] {
        [one] => rustix::net::send(socket, one, flags)?,
        all => rustix::net::sendmsg(socket, all, &mut SendAncillaryBuffer::default(), flags)?,
    })
}

/// `sendfile(2)` with an offset of its own.
pub(crate) fn sendfile(
    socket: BorrowedFd<'_>,
    file: BorrowedFd<'_>,
    offset: u64,
    len: usize,
) -> io::Result<usize> {
    let mut at = offset;
    Ok(rustix::fs::sendfile(socket, file, Some(&mut at), len)?)
}

/// Bytes that the peer has not acknowledged: `SIOCOUTQ`, which is the same as `TIOCOUTQ`.
pub(crate) fn queued(socket: BorrowedFd<'_>) -> u64 {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the kernel writes an int, for which `bytes` is there.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    if result == 0 { u64::try_from(bytes).unwrap_or(0) } else { 0 }
}

/// One page that [`probe`] reads into, again and again; nobody looks at it.
struct Scratch(UnsafeCell<[u8; PAGE]>);
// SAFETY: only the kernel writes to it and nothing reads it, so there is no data to race for.
unsafe impl Sync for Scratch {}

const PAGE: usize = 4096;
static SCRATCH: Scratch = Scratch(UnsafeCell::new([0; PAGE]));
/// Pieces of one `preadv2(2)`.
const PIECES: usize = 64;
/// The most that one [`probe`] looks at.
pub(crate) const PROBE_BYTES_MAX: usize = PIECES * PAGE;

/// How many bytes of the file from `offset` on, at most `len`, can be read without the disk:
/// `preadv2(2)` with `RWF_NOWAIT` into one page again and again, so that nothing but that page is
/// evicted from the processor's caches.
pub(crate) fn probe(file: BorrowedFd<'_>, offset: u64, len: usize) -> io::Result<usize> {
    let len = len.min(PROBE_BYTES_MAX);
    let mut pieces = [libc::iovec { iov_base: SCRATCH.0.get().cast(), iov_len: PAGE }; PIECES];
    let count = len.div_ceil(PAGE).max(1);
    pieces[count - 1].iov_len = len - (count - 1) * PAGE;
    let offset = i64::try_from(offset).map_err(|_| io::ErrorKind::InvalidInput)?;
    let count = libc::c_int::try_from(count).expect("at most PIECES");
    // SAFETY: every piece is (part of) the scratch page, which is static and writable.
    let result = unsafe {
        libc::preadv2(file.as_raw_fd(), pieces.as_ptr(), count, offset, libc::RWF_NOWAIT)
    };
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// `cachestat(2)`, Linux 6.5: pages of the range that are in the page cache, those included that
/// are still being read. `len` must not be 0, which would mean "to the end of the file".
pub(crate) fn cached_pages(file: BorrowedFd<'_>, offset: u64, len: u64) -> io::Result<u64> {
    #[repr(C)]
    struct Range {
        offset: u64,
        len: u64,
    }
    /// `struct cachestat`: cache, dirty, writeback, evicted, recently evicted.
    type Cachestat = [u64; 5];

    debug_assert!(len > 0);
    if !may_cachestat() {
        return Err(io::Error::from_raw_os_error(libc::ENOSYS));
    }
    let range = Range { offset, len };
    let mut pages: Cachestat = [0; 5];
    // SAFETY: both pointers are to structures of the layout in <linux/mman.h>, alive for the call.
    let result = unsafe {
        libc::syscall(SYS_CACHESTAT, file.as_raw_fd(), &raw const range, pages.as_mut_ptr(), 0)
    };
    if result == 0 { Ok(pages[0]) } else { Err(io::Error::last_os_error()) }
}

const SYS_CACHESTAT: libc::c_long = 451;

/// Whether `cachestat(2)` may be called. A seccomp filter may kill a process for a call that it does
/// not know: that of a unit with `SystemCallFilter=@system-service` does where systemd is older than
/// 255. So beneath a filter a child tries it first.
pub(crate) fn may_cachestat() -> bool {
    static MAY: OnceLock<bool> = OnceLock::new();
    *MAY.get_or_init(|| {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let is_filtered = !status.lines().any(|line| line == "Seccomp:\t0");
        !is_filtered || survives_cachestat()
    })
}

fn survives_cachestat() -> bool {
    // SAFETY: the child makes only system calls, which fork(2) allows beside other threads.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: plain arguments; a child that is killed leaves no core file (prctl(2)).
        unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0) };
        // SAFETY: there is no descriptor -1, so the kernel looks at no pointer (EBADF).
        unsafe { libc::syscall(SYS_CACHESTAT, -1, 0, 0, 0) };
        // SAFETY: ends the child without running anything of the parent's (_exit(2)).
        unsafe { libc::_exit(0) };
    }
    let mut status = 0;
    // SAFETY: the kernel writes an int, for which `status` is there.
    while child > 0 && unsafe { libc::waitpid(child, &raw mut status, 0) } < 0 {
        if io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
            return false;
        }
    }
    child > 0 && libc::WIFEXITED(status)
}

/// Mappings that all rings of the process keep: a quarter of what it may have (`vm.max_map_count`,
/// 65,530), for threads and memory need theirs.
const MAPPINGS_MAX: usize = 16 * 1024;
/// How many there are. Relaxed: it guards nothing.
static MAPPINGS: AtomicUsize = AtomicUsize::new(0);

/// A file's pages as `mincore(2)` wants them: mapped, and never touched.
///
/// `mincore` answers for the page cache of the file that the file system maps, which on overlayfs is
/// the one below, and counts what is up to date only. To a process that neither owns the file nor may
/// write to it, it says that everything is there (`can_do_mincore` in mm/mincore.c); such a lie shows
/// at the page behind the end of the file, which is mapped for that.
#[derive(Debug)]
pub struct Mapping {
    start: NonNull<core::ffi::c_void>,
    /// Bytes of the file in whole pages; one page more is mapped.
    bytes: usize,
    _place: Place,
}

/// The right to one of [`MAPPINGS_MAX`] mappings.
#[derive(Debug)]
struct Place;

impl Place {
    fn take() -> Option<Self> {
        let one_more = |count: usize| (count < MAPPINGS_MAX).then_some(count + 1);
        MAPPINGS.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).ok().map(|_| Self)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        MAPPINGS.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Mapping {
    pub(crate) fn new(file: BorrowedFd<'_>, size: u64) -> io::Result<Self> {
        let place = Place::take().ok_or(io::ErrorKind::OutOfMemory)?;
        let bytes = usize::try_from(size).ok().and_then(|size| size.checked_next_multiple_of(PAGE));
        let bytes = bytes.filter(|bytes| bytes.checked_add(PAGE).is_some());
        let bytes = bytes.ok_or(io::ErrorKind::OutOfMemory)?;
        // SAFETY: a mapping at an address of the kernel's choice touches no memory that exists, and
        // nobody can read or write what it maps (mmap(2)).
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

    /// How many bytes from `offset` on, at most `len` and [`PROBE_BYTES_MAX`](crate::PROBE_BYTES_MAX),
    /// are in the page cache. 0 behind the end of the file as it was mapped.
    ///
    /// # Errors
    ///
    /// `PermissionDenied` where the kernel does not tell this process, else those of `mincore(2)`.
    #[expect(clippy::missing_panics_doc, reason = "what lies within a mapping fits")]
    pub fn resident(&self, offset: u64, len: usize) -> io::Result<usize> {
        let end = self.bytes as u64;
        let len = (len.min(PROBE_BYTES_MAX) as u64).min(end.saturating_sub(offset));
        if len == 0 {
            return Ok(0);
        }
        let first = offset - offset % PAGE as u64;
        let count = (offset + len - first).div_ceil(PAGE as u64);
        // One more for a range that begins within a page.
        let mut pages = [0; PIECES + 1];
        let count = usize::try_from(count).expect("at most PIECES + 1");
        self.look(first, &mut pages[..count])?;
        let mut behind = [0];
        self.look(end, &mut behind)?;
        if behind[0] & 1 != 0 {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let there = pages[..count].iter().take_while(|page| **page & 1 != 0).count();
        let found = (first + (there * PAGE) as u64).saturating_sub(offset).min(len);
        Ok(usize::try_from(found).expect("at most len"))
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

/// Whether this machine has swap, so that the pages of a memory file system can leave memory.
pub(crate) fn has_swap() -> bool {
    rustix::system::sysinfo().totalswap > 0
}
