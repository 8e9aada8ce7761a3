//! Arguments and results of operations on files.

use core::cmp::Ordering;
use core::ffi::CStr;
use std::ffi::CString;
use std::path::Path;

use crate::fd::Fd;
use crate::gate::Device;
use crate::symlinks::SymlinkScope;

/// `struct open_how` of `openat2(2)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenHow {
    /// `O_*`; `O_CLOEXEC` is always added. Once a file has been opened for reading, `O_NONBLOCK` is
    /// cleared again, and `O_NOATIME` is set if the file is ours: reads do not write its access time, for which they
    /// could have to wait.
    pub flags: i32,
    /// Permission bits of a file that is created.
    pub mode: u32,
    /// `RESOLVE_*`.
    pub resolve: u64,
}

impl OpenHow {
    /// Open for reading what lies beneath the directory, and neither wait for a FIFO's writer nor
    /// become some terminal's owner.
    pub const BENEATH: Self = Self {
        flags: libc::O_RDONLY | libc::O_NONBLOCK | libc::O_NOCTTY,
        mode: 0,
        resolve: libc::RESOLVE_BENEATH | libc::RESOLVE_NO_MAGICLINKS,
    };

    /// As `BENEATH`, for a directory that will be listed; `ENOTDIR` for all else.
    pub const DIRECTORY: Self = Self::BENEATH.with_flags(libc::O_DIRECTORY);

    /// Open the target of a link of `/proc/self/fd` for reads that bypass the page cache.
    pub const DIRECT: Self =
        Self { flags: libc::O_RDONLY | libc::O_NOCTTY | libc::O_DIRECT, mode: 0, resolve: 0 };

    /// These flags, but no component may be a symbolic link (`ELOOP`).
    #[must_use]
    pub const fn without_symlinks(self) -> Self {
        Self { resolve: self.resolve | libc::RESOLVE_NO_SYMLINKS, ..self }
    }

    /// These flags, with more `O_*` flags.
    #[must_use]
    pub const fn with_flags(self, flags: i32) -> Self {
        Self { flags: self.flags | flags, ..self }
    }
}

/// The effect of a read on the page cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Caching {
    /// The pages that were read stay.
    #[default]
    Keep,
    /// `RWF_DONTCACHE` (Linux 6.14): what this read brought in is dropped after it. Fails with
    /// `EOPNOTSUPP` where the file system cannot.
    Drop,
}

/// The attributes of a file, by `statx(2)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// The kind of file.
    pub kind: FileKind,
    /// The size in bytes.
    pub size: u64,
    /// Last modification, seconds since 1970.
    pub mtime: i64,
    /// The nanoseconds that belong to `mtime`.
    pub mtime_nanos: u32,
    /// Last change of the contents, the names or the attributes, seconds since 1970: no program can
    /// set it, unless it makes the image of a file system.
    pub ctime: i64,
    /// The nanoseconds that belong to `ctime`.
    pub ctime_nanos: u32,
    /// The file system: the major number of its device in the upper half, the minor one in the lower.
    pub dev: u64,
    /// The device that calls on the file may have to wait for: the one of `dev`, or the one behind a subvolume of a
    /// btrfs or an overlay.
    pub device: Device,
    /// True if times and inode number may come from an image that was written as a whole (squashfs and the like, also
    /// below an overlay). A file of another image with other bytes may have the same.
    pub from_image: bool,
    /// The inode number.
    pub ino: u64,
    /// The id of the mount through which the file was opened; 0 if the kernel does not report it (before Linux 5.8).
    pub mount: u64,
    /// Names of this inode.
    pub links: u32,
    /// The bits of the mode: the kind of the file, and the rights of its owner, its group and others.
    pub mode: u16,
    /// The number of the owner.
    pub owner: u32,
    /// The alignment of offsets and memory for `O_DIRECT`; 0 if the file system does not support it, or if it is
    /// unknown (before Linux 6.1).
    pub direct_align: u32,
}

impl Stat {
    /// Returns whether no other mount has had, or will have, the same id: from Linux 6.8 on.
    #[must_use]
    pub const fn has_unique_mount(&self) -> bool {
        // Unique ids begin above the ids that are reused (`MNT_UNIQUE_ID_OFFSET` in fs/namespace.c).
        self.mount >= 1 << 31
    }
}

/// The kind of a directory entry or an open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FileKind {
    /// A directory.
    Directory,
    /// A regular file.
    Regular,
    /// A symbolic link (in listings that say nothing of targets).
    Symlink,
    /// A FIFO, socket or device.
    Other,
}

/// The entries of a directory, without `.` and `..`.
#[derive(Clone, Debug, Default)]
pub struct Listing {
    /// The entries, in the order that the operation has asked for.
    pub entries: Vec<Entry>,
    /// True if there were more entries than the limit, or more links than are followed.
    pub truncated: bool,
    /// True if any of the entries that were read is a symbolic link.
    pub has_links: bool,
    /// The path of the directory in the file system, if [`Targets::names`] were asked for; `None` in the simulation.
    pub path: Option<Box<Path>>,
}

/// The targets of the symbolic links of a listing.
#[derive(Clone, Debug)]
pub struct Targets {
    /// The directory that `path` is relative to.
    pub root: Fd,
    /// The path of the directory that is listed.
    pub path: CString,
    /// The links that are followed.
    pub symlinks: SymlinkScope,
    /// True if the paths of the directory and of the targets in the file system are wanted.
    pub names: bool,
}

/// The path of an entry of a directory.
pub(crate) fn path_of_entry(directory: &CStr, name: &[u8]) -> CString {
    let path = [directory.to_bytes(), b"/", name].concat();
    CString::new(path).expect("neither a path nor a name has a NUL")
}

/// The order of two entries. The thread that reads a directory sorts: 100,000 entries take some 40 ms, which is too long for
/// an event loop.
pub type EntryOrder = fn(&Entry, &Entry) -> Ordering;

/// One entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The name: any bytes but `/` and NUL.
    pub name: Vec<u8>,
    /// The kind of file; if it is a link and [`Targets`] were asked for, the kind of its target.
    pub kind: FileKind,
    /// The size in bytes.
    pub size: u64,
    /// Last modification, seconds since 1970.
    pub mtime: i64,
    /// The path of the target in the file system, if the entry is a link and [`Targets::names`] were asked for; `None`
    /// in the simulation.
    pub target: Option<Box<Path>>,
}

/// A change in a watched directory, or of a watched file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The entry that was changed, created, replaced, moved or removed. `None` when the entry is unknown: too many
    /// events, or the directory itself went away or has other attributes. Then assume that everything has changed.
    pub name: Option<Vec<u8>>,
    /// True if the entry is a directory.
    pub directory: bool,
}

/// The directory part of the path of a file, which may be empty, and the name; `None` if the path does not
/// end with a name.
pub(crate) fn parent_and_name(path: &CStr) -> Option<(CString, CString)> {
    let bytes = path.to_bytes();
    let start = bytes.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
    let (parent, name) = bytes.split_at(start);
    if matches!(name, b"" | b"." | b"..") {
        return None;
    }
    Some((CString::new(parent).ok()?, CString::new(name).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_of_a_file_ends_with_a_name() {
        let parts = |path: &CStr| {
            parent_and_name(path)
                .map(|(parent, name)| (parent.into_string().unwrap(), name.into_string().unwrap()))
        };
        let some = |parent: &str, name: &str| Some((parent.to_owned(), name.to_owned()));
        assert_eq!(parts(c"file"), some("", "file"));
        assert_eq!(parts(c"a/b/file"), some("a/b/", "file"));
        assert_eq!(parts(c"/file"), some("/", "file"));
        assert_eq!(parts(c"a//.file"), some("a//", ".file"));
        for path in [c"", c"/", c".", c"..", c"a/", c"a/.", c"a/.."] {
            assert_eq!(parts(path), None, "{path:?}");
        }
    }
}
