//! Direct calls on files.

use core::cell::UnsafeCell;
use core::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;

use rustix::fs::{Advice, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, fcntl_getpipe_size, fcntl_setpipe_size, pipe_with};

use super::{PAGE, PAGES_MAX, PROBE_BYTES_MAX};
use crate::buffer::Buffer;
use crate::fd::Fd;
use crate::mounts::FileLocation;
use crate::op::{Op, OpenHow, Stat};
use crate::statx::statx;

pub(crate) use super::mapping::Mapping;

/// One page that [`probe`] reads into again and again; its contents are never used.
struct Scratch(UnsafeCell<[u8; PAGE]>);
// SAFETY: only the kernel writes to it and nothing reads it, so there is no data to race for.
unsafe impl Sync for Scratch {}

static SCRATCH: Scratch = Scratch(UnsafeCell::new([0; PAGE]));

/// The number of bytes of the file from `offset` on, at most `len`, can be read without the disk:
/// `preadv2(2)` with `RWF_NOWAIT` into one page again and again, so that nothing but that page is
/// evicted from the processor's caches.
pub(crate) fn probe(file: BorrowedFd<'_>, offset: u64, len: usize) -> io::Result<usize> {
    let len = len.min(PROBE_BYTES_MAX);
    let piece = |len| libc::iovec { iov_base: SCRATCH.0.get().cast(), iov_len: len };
    // Most probes read one byte of a block that was resident a moment ago.
    if len <= PAGE {
        // SAFETY: it is part of the scratch page, which is static and writable.
        return unsafe { read_now(file, offset, &[piece(len)], libc::RWF_NOWAIT) };
    }
    let mut pieces = [piece(PAGE); PAGES_MAX];
    let count = len.div_ceil(PAGE);
    pieces[count - 1].iov_len = len - (count - 1) * PAGE;
    // SAFETY: each is (part of) the scratch page, which is static and writable.
    unsafe { read_now(file, offset, &pieces[..count], libc::RWF_NOWAIT) }
}

/// `preadv2(2)` that does not sleep: with `RWF_NOWAIT`, or of resident bytes. So it need not be the C library's function,
/// which is a cancellation point of threads.
///
/// # Safety
///
/// Every piece must be memory that the kernel may write to.
#[inline]
unsafe fn read_now(
    file: BorrowedFd<'_>,
    offset: u64,
    pieces: &[libc::iovec],
    flags: libc::c_int,
) -> io::Result<usize> {
    let offset = i64::try_from(offset).map_err(|_| io::ErrorKind::InvalidInput)?;
    // The offset is passed in two halves, of which 64-bit kernels look at the first.
    // SAFETY: the caller has seen to the memory of each piece.
    let result = unsafe {
        libc::syscall(
            libc::SYS_preadv2,
            file.as_raw_fd(),
            pieces.as_ptr(),
            pieces.len(),
            offset,
            0_i64,
            flags,
        )
    };
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// `openat2(2)` with `RESOLVE_CACHED` (Linux 5.12) and `RESOLVE_NO_XDEV`. `None` if a name is not in memory, the path
/// leaves the mount, or the kernel does not know the flags.
pub(crate) fn open_cached(
    dir: BorrowedFd<'_>,
    path: &CStr,
    how: OpenHow,
) -> Option<io::Result<OwnedFd>> {
    let flags = OFlags::from_bits_retain(how.flags.cast_unsigned()) | OFlags::CLOEXEC;
    let resolve = ResolveFlags::from_bits_retain(how.resolve);
    let resolve = resolve | ResolveFlags::CACHED | ResolveFlags::NO_XDEV;
    let mode = Mode::from_raw_mode(how.mode);
    match rustix::fs::openat2(dir, path, flags, mode, resolve) {
        Ok(fd) => {
            settle_flags(&fd, how);
            Some(Ok(fd))
        }
        Err(Errno::AGAIN | Errno::XDEV | Errno::INVAL | Errno::NOSYS) => None,
        Err(error) => Some(Err(error.into())),
    }
}

/// Returns whether an operation will need a disk or a server, as far as that can be known without them: a name on the
/// path is not in memory (`RESOLVE_CACHED`, Linux 5.12), or not all pages of a read (`cachestat(2)`, Linux 6.5).
pub(crate) fn asks_disk(op: &Op) -> bool {
    match op {
        Op::Open { dir, path, how } if how.flags & libc::O_PATH != 0 => {
            let dir = dir.as_ref().map_or(rustix::fs::CWD, Fd::os);
            let flags = OFlags::from_bits_retain(how.flags.cast_unsigned()) | OFlags::CLOEXEC;
            let resolve = ResolveFlags::from_bits_retain(how.resolve) | ResolveFlags::CACHED;
            let opened = rustix::fs::openat2(dir, path.as_c_str(), flags, Mode::empty(), resolve);
            matches!(opened, Err(Errno::AGAIN))
        }
        Op::Read { file, offset, buf, .. } => lacks_pages(file, *offset, buf.want()),
        Op::Splice { file, offset, pipe } => lacks_pages(file, *offset, pipe.want()),
        _ => false,
    }
}

/// Returns whether a page of a range is neither in memory nor on its way.
fn lacks_pages(file: &Fd, offset: u64, len: usize) -> bool {
    let Ok(raw) = statx(file.os(), libc::AT_EMPTY_PATH | libc::AT_STATX_DONT_SYNC) else {
        return false;
    };
    let end = offset.saturating_add(len as u64).min(raw.stx_size);
    if offset >= end {
        return false;
    }
    let pages = end.div_ceil(PAGE as u64) - offset / PAGE as u64;
    cached_pages(file.os(), offset, end - offset).is_ok_and(|cached| cached < pages)
}

/// `O_NONBLOCK` is for the opening alone (of a FIFO without a writer). On a file io_uring would understand it as
/// permission to read inline, even on file systems that sleep then (FUSE, NFS; `FMODE_NOWAIT` in `io_file_get_flags`,
/// Linux `io_uring/io_uring.c`).
///
/// A read or a `sendfile(2)` writes the access time, which may wait for the journal, even with `RWF_NOWAIT`
/// (`file_accessed` in mm/filemap.c). `O_NOATIME` prevents that; the kernel grants it for our own files.
pub(crate) fn settle_flags(fd: &OwnedFd, how: OpenHow) {
    if how.flags & libc::O_ACCMODE == libc::O_RDONLY && how.flags & libc::O_PATH == 0 {
        let kept = OFlags::from_bits_retain((how.flags & !libc::O_NONBLOCK).cast_unsigned());
        // The file may be another user's.
        if rustix::fs::fcntl_setfl(fd, kept | OFlags::NOATIME).is_err() {
            // On an open descriptor this call fails for none of the flags that can be set.
            let _ = rustix::fs::fcntl_setfl(fd, kept);
        }
    }
}

/// `statx(2)` of an open file whose file system keeps attributes in memory; else `None`. No server is asked.
pub(crate) fn stat_cached(file: BorrowedFd<'_>) -> Option<Stat> {
    let flags = libc::AT_EMPTY_PATH | libc::AT_STATX_DONT_SYNC;
    let raw = statx(file, flags).ok()?;
    let place = FileLocation::from(&raw);
    let site = place.site().filter(|_| place.keeps_attributes())?;
    Some(Stat::new(&raw, site))
}

/// Fills a buffer from the beginning of a file, if that needs no disk; returns true if the buffer is full. Sets
/// `O_NOATIME` on the descriptor.
pub(crate) fn read_cached(file: BorrowedFd<'_>, buf: &mut Buffer) -> bool {
    let want = buf.want();
    // A read without waiting would begin to read the missing pages, and may then sleep for metadata.
    let pages = want.div_ceil(PAGE) as u64;
    if cached_pages(file, 0, want as u64).ok() != Some(pages) {
        return false;
    }
    // `settle_flags` sets the flag for files that a ring has opened. Other files may come here, too.
    if rustix::fs::fcntl_setfl(file, OFlags::NOATIME).is_err() {
        return false;
    }
    read_resident(file, 0, buf).is_ok_and(|read| read == want)
}

/// Fills a buffer with resident bytes from `offset` of a file (`RWF_NOWAIT`).
pub(crate) fn read_resident(
    file: BorrowedFd<'_>,
    offset: u64,
    buf: &mut Buffer,
) -> io::Result<usize> {
    read_into(file, offset, buf, libc::RWF_NOWAIT)
}

/// Does the same for bytes that a mapping has shown to be resident.
pub(crate) fn read_mapped(
    file: BorrowedFd<'_>,
    offset: u64,
    buf: &mut Buffer,
) -> io::Result<usize> {
    read_into(file, offset, buf, 0)
}

fn read_into(
    file: BorrowedFd<'_>,
    offset: u64,
    buf: &mut Buffer,
    flags: libc::c_int,
) -> io::Result<usize> {
    let piece = libc::iovec { iov_base: buf.as_mut_ptr().cast(), iov_len: buf.want() };
    // SAFETY: `want` bytes from there belong to the buffer, which nothing else has.
    let read = unsafe { read_now(file, offset, &[piece], flags) }?;
    buf.set_len(read);
    Ok(read)
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

/// Returns whether `cachestat(2)` may be called. A seccomp filter may kill a process for an unknown call. The filter of
/// a unit with `SystemCallFilter=@system-service` does so if systemd is older than 255. So beneath a filter a child
/// tries the call first.
pub(crate) fn may_cachestat() -> bool {
    static MAY: OnceLock<bool> = OnceLock::new();
    *MAY.get_or_init(|| {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let is_filtered = !status.lines().any(|line| line == "Seccomp:\t0");
        !is_filtered || survives_cachestat()
    })
}

fn survives_cachestat() -> bool {
    // SAFETY: the child makes only system calls, which fork(2) allows while there are other threads.
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

/// `posix_fadvise(2)` of a whole file: it concerns the descriptor, so it returns at once.
pub(crate) fn advise(file: BorrowedFd<'_>, advice: Advice) {
    // Fails only for pipes and the like.
    let _ = rustix::fs::fadvise(file, 0, None, advice);
}

/// The bytes of a pipe: the maximum that a user may request (`fs.pipe-max-size`).
const PIPE_BYTES: usize = 1024 * 1024;

/// `pipe2(2)`: the end to read from, the one to write to, and how many bytes fit.
pub(crate) fn make_pipe() -> io::Result<(OwnedFd, OwnedFd, usize)> {
    let (read, write) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
    // EPERM: this user has many pipes already (`fs.pipe-user-pages-soft`); a small one will do.
    let _ = fcntl_setpipe_size(&write, PIPE_BYTES);
    let capacity = fcntl_getpipe_size(&write)?;
    Ok((read, write, capacity))
}

/// Returns whether this machine has swap, so that the pages of a memory file system can leave memory.
pub(crate) fn has_swap() -> bool {
    rustix::system::sysinfo().totalswap > 0
}
