//! Paths through symbolic links that may lead out of a directory, as the kernel has them.

use core::ffi::CStr;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::rc::Rc;

use rustix::fs::{FileType, Mode, OFlags, fstat, fstatfs, openat, readlinkat};
use rustix::io::Errno;

use super::{job, watch};
use crate::links::{Links, Names, follow};
use crate::op::OpenHow;

/// Finds something without opening it for reading.
pub(super) const FIND: OpenHow = OpenHow { flags: libc::O_PATH, mode: 0, resolve: 0 };
/// `PROC_SUPER_MAGIC`. The links in it tell what processes do, and some of them lead to what has no name.
const PROC: u64 = 0x9fa0;

/// Opens what a path leads to through links of a kind.
pub(super) fn open(
    root: BorrowedFd<'_>,
    path: &CStr,
    how: OpenHow,
    links: &Links,
) -> io::Result<OwnedFd> {
    let beneath = OpenHow { resolve: OpenHow::BENEATH.resolve, ..how };
    match links {
        Links::Never => job::open(root, path, beneath.without_symlinks()),
        Links::Beneath => job::open(root, path, beneath),
        Links::Into(into) => match job::open(root, path, beneath) {
            Err(error) if Errno::from_io_error(&error) == Some(Errno::XDEV) => {
                let root = Rc::new(root.try_clone_to_owned()?);
                let found = follow(&Kernel, &root, path.to_bytes(), into)?;
                open_found(&found, how)
            }
            opened => opened,
        },
        Links::Anywhere => {
            let resolve = libc::RESOLVE_NO_MAGICLINKS;
            let found = job::open(root, path, OpenHow { resolve, ..FIND })?;
            open_found(&found, how)
        }
    }
}

/// Opens what was found.
fn open_found(found: &OwnedFd, how: OpenHow) -> io::Result<OwnedFd> {
    if watch::magic(&fstatfs(found)?) == PROC {
        return Err(Errno::XDEV.into());
    }
    if how.flags & libc::O_PATH != 0 {
        return found.try_clone();
    }
    let path = CString::new(name_of(found.as_fd())).expect("a number");
    job::open(rustix::fs::CWD, &path, OpenHow { resolve: 0, ..how })
}

/// The link that leads to an open file.
fn name_of(file: BorrowedFd<'_>) -> String {
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
