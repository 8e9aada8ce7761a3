//! Watches of `inotify(7)`, as helper threads begin them.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};

use rustix::fs::inotify::{self, WatchFlags};
use rustix::fs::{Mode, OFlags, ResolveFlags, fstatfs, openat2};

/// File systems all of whose changes pass through this kernel's VFS (or that never change), so
/// that inotify sees them; `f_type` of statfs(2). On others another host, or a daemon, may change
/// a file without an event.
pub(crate) const LOCAL: [u64; 17] = [
    0xef53,      // ext2, ext3, ext4
    0x5846_5342, // xfs
    0x9123_683e, // btrfs
    0x0102_1994, // tmpfs
    0x8584_58f6, // ramfs
    0xf2f5_2010, // f2fs
    0x794c_7630, // overlayfs
    0x2fc1_2fc1, // zfs
    0xca45_1a4e, // bcachefs
    0x7371_7368, // squashfs
    0xe0f5_e1e2, // erofs
    0x9660,      // iso9660
    0x4d44,      // vfat
    0x2011_bab0, // exfat
    0x7366_746e, // ntfs3
    0x3153_464a, // jfs
    0x3434,      // nilfs2
];

/// The magic number of a file system.
pub(super) fn magic(fs: &rustix::fs::StatFs) -> u64 {
    #[allow(
        clippy::cast_sign_loss,
        clippy::unnecessary_cast,
        reason = "f_type is 32 bits of magic in a signed word"
    )]
    let magic = fs.f_type as u64 & 0xffff_ffff;
    magic
}

/// Watches a directory; the watch descriptor.
pub(super) fn directory(
    root: BorrowedFd<'_>,
    path: &CString,
    instance: BorrowedFd<'_>,
) -> io::Result<i32> {
    let path = if path.is_empty() { c"." } else { path };
    let dir = openat2(
        root,
        path,
        OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
        ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS,
    )?;
    if !LOCAL.contains(&magic(&fstatfs(&dir)?)) {
        return Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP));
    }
    // inotify takes a path only; this one names the very directory that was opened above.
    let name = format!("/proc/self/fd/{}", dir.as_raw_fd());
    let what = WatchFlags::ATTRIB
        | WatchFlags::CLOSE_WRITE
        | WatchFlags::CREATE
        | WatchFlags::DELETE
        | WatchFlags::DELETE_SELF
        | WatchFlags::MODIFY
        | WatchFlags::MOVED_FROM
        | WatchFlags::MOVED_TO
        | WatchFlags::MOVE_SELF
        | WatchFlags::EXCL_UNLINK
        | WatchFlags::ONLYDIR;
    Ok(inotify::add_watch(instance, name, what)?)
}
