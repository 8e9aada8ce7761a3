//! Opens paths, also through symbolic links that may lead out of a directory.

use core::ffi::CStr;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::rc::Rc;

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, fstat, fstatfs, openat, readlinkat};
use rustix::io::Errno;

use super::watch;
use crate::now::file::settle_flags;
use crate::op::OpenHow;
use crate::symlinks::{Names, SymlinkScope, follow};

/// Finds something without opening it for reading.
pub(super) const FIND: OpenHow = OpenHow { flags: libc::O_PATH, mode: 0, resolve: 0 };
/// `PROC_SUPER_MAGIC`. Links in `/proc` reveal the activity of processes, and some of them lead to files
/// without a name.
const PROC: u64 = 0x9fa0;

/// The number of times that a path is opened before `EAGAIN` of `openat2(2)` goes to the caller: a rename or
/// mount anywhere on the machine ran beside a `..` of the path (`handle_dots` in fs/namei.c). Beside one thread
/// that renamed without a pause 2.4 % of single tries failed. Even if every second try failed, 64 tries in a
/// row would not.
pub(crate) const OPEN_TRIES_MAX: u32 = 64;

/// `openat2(2)`.
pub(super) fn at(dir: BorrowedFd<'_>, path: &CStr, how: OpenHow) -> io::Result<OwnedFd> {
    let flags = OFlags::from_bits_retain(how.flags.cast_unsigned()) | OFlags::CLOEXEC;
    let resolve = ResolveFlags::from_bits_retain(how.resolve);
    let mode = Mode::from_raw_mode(how.mode);
    let mut tries = 1;
    loop {
        match rustix::fs::openat2(dir, path, flags, mode, resolve) {
            Err(Errno::AGAIN) if tries < OPEN_TRIES_MAX => tries += 1,
            Err(error) => return Err(error.into()),
            Ok(fd) => {
                settle_flags(&fd, how);
                return Ok(fd);
            }
        }
    }
}

/// Opens the target of a path through links of a kind.
pub(super) fn through_links(
    root: BorrowedFd<'_>,
    path: &CStr,
    how: OpenHow,
    symlinks: &SymlinkScope,
) -> io::Result<OwnedFd> {
    let beneath = OpenHow { resolve: OpenHow::BENEATH.resolve, ..how };
    match symlinks {
        SymlinkScope::Never => at(root, path, beneath.without_symlinks()),
        SymlinkScope::Beneath => at(root, path, beneath),
        SymlinkScope::Into(into) => match at(root, path, beneath) {
            Err(error) if Errno::from_io_error(&error) == Some(Errno::XDEV) => {
                let root = Rc::new(root.try_clone_to_owned()?);
                let found = follow(&Kernel, &root, path.to_bytes(), into)?;
                open_found(&found, how)
            }
            opened => opened,
        },
        SymlinkScope::Anywhere => {
            let resolve = libc::RESOLVE_NO_MAGICLINKS;
            let found = at(root, path, OpenHow { resolve, ..FIND })?;
            open_found(&found, how)
        }
    }
}

/// Opens a file by the descriptor that was found for it.
fn open_found(found: &OwnedFd, how: OpenHow) -> io::Result<OwnedFd> {
    if watch::magic(&fstatfs(found)?) == PROC {
        return Err(Errno::XDEV.into());
    }
    if how.flags & libc::O_PATH != 0 {
        return found.try_clone();
    }
    let path = CString::new(name_of(found.as_fd())).expect("a number");
    at(rustix::fs::CWD, &path, OpenHow { resolve: 0, ..how })
}

/// The link that leads to an open file.
pub(super) fn name_of(file: BorrowedFd<'_>) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

/// The files of this system.
struct Kernel;

impl Names for Kernel {
    type Node = Rc<OwnedFd>;

    fn look_up(&self, directory: &Self::Node, name: &[u8]) -> io::Result<Self::Node> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(Rc::new(openat(directory, name, flags, Mode::empty())?))
    }

    fn top(&self) -> io::Result<Self::Node> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Rc::new(rustix::fs::open(c"/", flags, Mode::empty())?))
    }

    fn target(&self, node: &Self::Node) -> io::Result<Option<Vec<u8>>> {
        if FileType::from_raw_mode(fstat(node)?.st_mode) != FileType::Symlink {
            return Ok(None);
        }
        if watch::magic(&fstatfs(node)?) == PROC {
            return Err(Errno::XDEV.into());
        }
        Ok(Some(readlinkat(node, c"", Vec::new())?.into_bytes()))
    }

    fn path(&self, node: &Self::Node) -> io::Result<Vec<u8>> {
        Ok(rustix::fs::readlink(name_of(node.as_fd()), Vec::new())?.into_bytes())
    }

    fn real(&self, path: &Path) -> Option<Vec<u8>> {
        Some(std::fs::canonicalize(path).ok()?.as_os_str().as_bytes().to_vec())
    }
}
