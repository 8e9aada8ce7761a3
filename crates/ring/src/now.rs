//! Calls on descriptors that answer at once and never sleep on a disk.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use core::cell::UnsafeCell;

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
    const SYS_CACHESTAT: libc::c_long = 451;

    debug_assert!(len > 0);
    let range = Range { offset, len };
    let mut pages: Cachestat = [0; 5];
    // SAFETY: both pointers are to structures of the layout in <linux/mman.h>, alive for the call.
    let result = unsafe {
        libc::syscall(SYS_CACHESTAT, file.as_raw_fd(), &raw const range, pages.as_mut_ptr(), 0)
    };
    if result == 0 { Ok(pages[0]) } else { Err(io::Error::last_os_error()) }
}
