//! The attributes of open files, by `statx(2)`.

use core::mem::MaybeUninit;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd};

use crate::mounts::{FileLocation, Site, UNIQUE};
use crate::op::{FileKind, Stat};

/// The `mask` of every `statx(2)` here.
pub(crate) const STATX_MASK: u32 =
    libc::STATX_BASIC_STATS | libc::STATX_BTIME | libc::STATX_DIOALIGN | UNIQUE;

/// `statx(2)` of an open file. Without `AT_STATX_DONT_SYNC` in the flags a network file system may ask its server.
pub(crate) fn statx(file: BorrowedFd<'_>, flags: i32) -> io::Result<libc::statx> {
    let (fd, mut out) = (file.as_raw_fd(), MaybeUninit::<libc::statx>::zeroed());
    // SAFETY: the empty path is a NUL-terminated string and `out` is a `statx` to write to.
    let result = unsafe { libc::statx(fd, c"".as_ptr(), flags, STATX_MASK, out.as_mut_ptr()) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: all zeroes is a valid `statx`, and the kernel has overwritten it with one.
    Ok(unsafe { out.assume_init() })
}

impl Stat {
    /// The attributes of an open file as this machine has them. No server of a network file system is asked, so the call
    /// does not sleep. The attributes are those of the last answer of the server: of the open, or of a later call.
    ///
    /// # Errors
    ///
    /// The errors of `statx(2)`.
    pub fn local(file: impl AsFd) -> io::Result<Self> {
        let raw = statx(file.as_fd(), libc::AT_EMPTY_PATH | libc::AT_STATX_DONT_SYNC)?;
        Ok(Self::new(&raw, FileLocation::from(&raw).site_or_unknown()))
    }

    pub(crate) fn new(raw: &libc::statx, site: Site) -> Self {
        Self {
            kind: match u32::from(raw.stx_mode) & libc::S_IFMT {
                libc::S_IFREG => FileKind::Regular,
                libc::S_IFDIR => FileKind::Directory,
                libc::S_IFLNK => FileKind::Symlink,
                _ => FileKind::Other,
            },
            size: raw.stx_size,
            mtime: raw.stx_mtime.tv_sec,
            mtime_nanos: raw.stx_mtime.tv_nsec,
            ctime: raw.stx_ctime.tv_sec,
            ctime_nanos: raw.stx_ctime.tv_nsec,
            dev: FileLocation::from(raw).dev(),
            device: site.device,
            from_image: site.from_image,
            ino: raw.stx_ino,
            mount: FileLocation::from(raw).mount(),
            links: raw.stx_nlink,
            mode: raw.stx_mode,
            owner: raw.stx_uid,
            direct_align: if raw.stx_mask & libc::STATX_DIOALIGN == 0 {
                0
            } else {
                raw.stx_dio_offset_align.max(raw.stx_dio_mem_align)
            },
        }
    }
}
