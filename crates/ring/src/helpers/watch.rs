//! Watches of `inotify(7)`, as helper threads begin them.

use core::ffi::CStr;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};

use rustix::fs::inotify::{self, WatchFlags};
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, StatxFlags, fstat, fstatfs, openat2};

use crate::mounts::{FileLocation, UNIQUE};

/// File systems whose changes all pass through this kernel's VFS (or that never change), so that
/// inotify sees them; `f_type` of statfs(2). On other file systems another host, or a daemon, may
/// change a file without an event.
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

/// A directory that is watched from now on.
#[derive(Debug)]
pub(crate) struct DirectoryWatched {
    /// The watch descriptor.
    pub(crate) watch: i32,
    /// The id of its mount.
    pub(crate) mount: u64,
}

/// A file that is watched from now on: watch descriptors.
#[derive(Debug)]
pub(crate) struct FileWatched {
    /// The watch of the directory.
    pub(crate) dir: DirectoryWatched,
    /// The watch of the inode that has the name, if the name exists.
    pub(crate) inode_watch: io::Result<Option<i32>>,
}

/// Watches a directory.
pub(super) fn directory(
    root: BorrowedFd<'_>,
    path: &CStr,
    instance: BorrowedFd<'_>,
) -> io::Result<DirectoryWatched> {
    open_and_watch_directory(root, path, instance).map(|(_, watched)| watched)
}

/// Watches the name of a file in its directory, and the inode that has it.
pub(super) fn file(
    root: BorrowedFd<'_>,
    parent: &CStr,
    name: &CStr,
    instance: BorrowedFd<'_>,
) -> io::Result<FileWatched> {
    // In this order, so that a file that takes the name meanwhile is an event.
    let (dir, watched) = open_and_watch_directory(root, parent, instance)?;
    let inode_watch = inode(dir.as_fd(), name, instance);
    Ok(FileWatched { dir: watched, inode_watch })
}

/// Watches the inode that has a name now.
fn inode(dir: BorrowedFd<'_>, name: &CStr, instance: BorrowedFd<'_>) -> io::Result<Option<i32>> {
    let file = match open(dir, name, OFlags::PATH) {
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => return Ok(None),
        opened => opened?,
    };
    if FileType::from_raw_mode(fstat(&file)?.st_mode) == FileType::Directory {
        return Err(io::Error::from_raw_os_error(libc::EISDIR));
    }
    let what = WatchFlags::ATTRIB
        | WatchFlags::CLOSE_WRITE
        | WatchFlags::DELETE_SELF
        | WatchFlags::MODIFY
        | WatchFlags::MOVE_SELF;
    watch(&file, what, instance).map(Some)
}

/// Opens a path beneath a directory, without following links; an empty one is the directory itself.
pub(super) fn open(root: BorrowedFd<'_>, path: &CStr, flags: OFlags) -> io::Result<OwnedFd> {
    let path = if path.is_empty() { c"." } else { path };
    Ok(openat2(
        root,
        path,
        OFlags::CLOEXEC | flags,
        Mode::empty(),
        ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS,
    )?)
}

fn open_and_watch_directory(
    root: BorrowedFd<'_>,
    path: &CStr,
    instance: BorrowedFd<'_>,
) -> io::Result<(OwnedFd, DirectoryWatched)> {
    let dir = open(root, path, OFlags::PATH | OFlags::DIRECTORY)?;
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
    let watch = watch(&dir, what, instance)?;
    let mount =
        FileLocation::of(&dir, StatxFlags::from_bits_retain(UNIQUE)).map_or(0, FileLocation::mount);
    Ok((dir, DirectoryWatched { watch, mount }))
}

/// Watches an open file or directory. `what` is always the same for directories, and the same for
/// files: the kernel has one watch for each inode, and keeps the last mask.
fn watch(target: &OwnedFd, what: WatchFlags, instance: BorrowedFd<'_>) -> io::Result<i32> {
    if !LOCAL.contains(&magic(&fstatfs(target)?)) {
        return Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP));
    }
    // inotify takes a path only; this one names the very inode that was opened.
    let name = format!("/proc/self/fd/{}", target.as_raw_fd());
    Ok(inotify::add_watch(instance, name, what)?)
}
