//! The directories and names of files that the server writes.
//!
//! A user who may write to a directory on the way to such a file can put a symbolic link there, and have root write
//! elsewhere. So the server walks the path itself. It follows links of root and of its own user as the kernel does
//! (`/var/log/nginx/access.log` → `/dev/stdout` is usual in containers). A link of another user may only lead into a
//! directory of that user's own, in which the user gains nothing by it. A server that is not root follows all links as
//! the kernel does.

use core::fmt;
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Component, Path};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, PROC_SUPER_MAGIC, Stat};
use rustix::fs::{accessat, fstat, fstatfs, openat, readlinkat, statat, unlinkat};
use rustix::io::Errno;
use rustix::process::geteuid;

/// The most links on the way to a file, as in the kernel.
const LINKS_MAX: usize = 40;
/// The permission bits that let others than the owner write to a directory.
const OTHERS_WRITE: u32 = 0o022;

/// A name in a directory that is held open.
#[derive(Debug)]
pub struct Location {
    directory: OwnedFd,
    name: OsString,
    /// True if it is a link of `/proc` to an open file (`/proc/self/fd/1`), which only the kernel can follow.
    is_descriptor: bool,
}

/// the reason why a location is not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    /// A link of this user leads to another user's directory.
    Foreign(u32),
    /// The name is a link, and none is followed here.
    Link,
    /// The file has other names, which other users may have made.
    Linked,
}

impl Location {
    /// Finds the location of a file that may be a link.
    ///
    /// # Errors
    ///
    /// Those of `openat(2)` on the way, and a link that leads to another user's directory.
    pub fn find(path: &Path) -> io::Result<Self> {
        walk(path, true)
    }

    /// Finds the location of a name that may be no link.
    ///
    /// # Errors
    ///
    /// Those of [`find`](Self::find), and a name that is a link.
    pub fn find_name(path: &Path) -> io::Result<Self> {
        walk(path, false)
    }

    /// Opens the file to append to it, and makes it if it does not exist.
    ///
    /// # Errors
    ///
    /// Those of `openat(2)`, and for root a file with other names in a directory where others may write.
    pub fn append(&self, mode: Mode) -> io::Result<OwnedFd> {
        self.open_to_append(OFlags::CREATE, mode)
    }

    /// Checks if [`append`](Self::append) would succeed, and makes nothing.
    ///
    /// # Errors
    ///
    /// The error that [`append`](Self::append) would have.
    pub fn try_append(&self) -> io::Result<()> {
        match self.open_to_append(OFlags::empty(), Mode::empty()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let access = rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK;
                Ok(accessat(&self.directory, c".", access, AtFlags::empty())?)
            }
            opened => opened.map(drop),
        }
    }

    fn open_to_append(&self, flags: OFlags, mode: Mode) -> io::Result<OwnedFd> {
        let follow = if self.is_descriptor { OFlags::empty() } else { OFlags::NOFOLLOW };
        let at = if self.is_descriptor { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW };
        // Opening a FIFO for writing waits for a reader; opening it for both does not.
        let stat = statat(&self.directory, &self.name, at);
        let is_fifo = stat.is_ok_and(|stat| kind(&stat) == FileType::Fifo);
        let access = if is_fifo { OFlags::RDWR } else { OFlags::WRONLY };
        let flags = flags | access | follow | OFlags::APPEND | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = openat(&self.directory, &self.name, flags, mode)?;
        let stat = fstat(&file)?;
        if kind(&stat) == FileType::RegularFile
            && stat.st_nlink > 1
            && !self.is_descriptor
            && geteuid().is_root()
            && may_be_written_by_others(&fstat(&self.directory)?)
        {
            return Err(Refusal::Linked.into());
        }
        Ok(file)
    }

    /// Makes a new file with this name. A regular file with the name loses it; a FIFO or a device is written to.
    ///
    /// # Errors
    ///
    /// Those of `unlinkat(2)` and `openat(2)`, and a name that is a link.
    pub fn replace(&self, mode: Mode) -> io::Result<OwnedFd> {
        let Self { directory, name, .. } = self;
        let mut flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::NOCTTY | OFlags::CLOEXEC;
        match statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).map(|stat| kind(&stat)) {
            Ok(FileType::Fifo | FileType::CharacterDevice) => {}
            Ok(FileType::Symlink) => return Err(Refusal::Link.into()),
            Ok(FileType::RegularFile) => {
                unlinkat(directory, name, AtFlags::empty())?;
                flags |= OFlags::CREATE | OFlags::EXCL;
            }
            // Any other file keeps the name.
            Ok(_) | Err(Errno::NOENT) => flags |= OFlags::CREATE | OFlags::EXCL,
            Err(error) => return Err(error.into()),
        }
        Ok(openat(directory, name, flags, mode)?)
    }
}

fn kind(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

/// Returns true if other users than root and the server's may make names in a directory.
fn may_be_written_by_others(directory: &Stat) -> bool {
    let owner = directory.st_uid;
    directory.st_mode & OTHERS_WRITE != 0 || (owner != 0 && owner != geteuid().as_raw())
}

/// Walks to the directory of a file.
fn walk(path: &Path, follows_last: bool) -> io::Result<Location> {
    const WAY: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
    let is_root = geteuid().is_root();
    // The users whose links lead here; these links may only lead to directories of the same user.
    let mut others = BTreeSet::new();
    let mut links = 0;
    let mut directory = begin(path)?;
    let mut rest = Vec::new();
    push_names(&mut rest, path);
    let (name, is_descriptor) = loop {
        let name = rest.pop().ok_or(Errno::ISDIR)?;
        let is_last = rest.is_empty();
        if is_last && !follows_last {
            break (name, false);
        }
        // The name is tried as a directory first, which mounts a directory that is mounted on use.
        match openat(&directory, &name, WAY | OFlags::DIRECTORY, Mode::empty()) {
            Ok(_) if is_last => return Err(Errno::ISDIR.into()),
            Ok(next) => {
                directory = next;
                continue;
            }
            Err(Errno::NOENT) if is_last => break (name, false),
            Err(Errno::NOTDIR | Errno::LOOP) => {}
            Err(error) => return Err(error.into()),
        }
        let node = openat(&directory, &name, WAY, Mode::empty())?;
        let stat = fstat(&node)?;
        if kind(&stat) != FileType::Symlink {
            if is_last {
                break (name, false);
            }
            return Err(Errno::NOTDIR.into());
        }
        links += 1;
        if links > LINKS_MAX {
            return Err(Errno::LOOP.into());
        }
        if is_root && stat.st_uid != 0 {
            others.insert(stat.st_uid);
        }
        if is_last && fstatfs(&node)?.f_type == PROC_SUPER_MAGIC {
            break (name, true);
        }
        let target = OsString::from_vec(readlinkat(&node, c"", Vec::new())?.into_bytes());
        let target = Path::new(&target);
        if target.is_absolute() {
            directory = begin(target)?;
        }
        push_names(&mut rest, target);
    };
    let location = Location { directory, name, is_descriptor };
    if let Some(&other) = others.first() {
        let owner = fstat(&location.directory)?.st_uid;
        if let Some(other) = others.into_iter().find(|other| *other != owner) {
            return Err(Refusal::Foreign(other).into());
        }
        // In their own directory they may do what they want, but they may not get an open file of the server.
        if location.is_descriptor {
            return Err(Refusal::Foreign(other).into());
        }
    }
    Ok(location)
}

/// The directory at which a path begins.
fn begin(path: &Path) -> io::Result<OwnedFd> {
    let begin = if path.is_absolute() { c"/" } else { c"." };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(begin, flags, Mode::empty())?)
}

/// Pushes the names of a path, so that the first one is popped first.
fn push_names(rest: &mut Vec<OsString>, path: &Path) {
    let names = path.components().rev().filter_map(|component| match component {
        Component::Normal(name) => Some(name),
        Component::ParentDir => Some(OsStr::from_bytes(b"..")),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    });
    rest.extend(names.map(OsStr::to_owned));
}

impl From<Refusal> for io::Error {
    fn from(refusal: Refusal) -> Self {
        Self::other(refusal)
    }
}

impl core::error::Error for Refusal {}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Foreign(user) => write!(
                f,
                "a symbolic link of user {user} leads there, to what is not theirs (name the file \
                 itself, or make the link as root)"
            ),
            Self::Link => f.write_str("it is a symbolic link (name the file itself)"),
            Self::Linked => f.write_str(
                "the file has other names, and others than the server may write to its directory \
                 (remove the other names, or give the directory to root)",
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::io::Write as _;
    use std::os::unix::fs::{chown, lchown, symlink};
    use std::path::PathBuf;

    use tempfile::TempDir;

    use super::*;

    const OTHER: u32 = 65534;

    fn append(path: &Path) -> io::Result<()> {
        let file = Location::find(path)?.append(Mode::from_raw_mode(0o640))?;
        File::from(file).write_all(b"line\n")
    }

    fn stage() -> (TempDir, impl Fn(&str) -> PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().to_owned();
        fs::create_dir_all(path.join("logs")).unwrap();
        (directory, move |name| path.join(name))
    }

    #[test]
    fn links_of_the_servers_user_are_followed() {
        let (_directory, at) = stage();
        symlink("logs", at("way")).unwrap();
        symlink("../logs/./b", at("logs/a")).unwrap();
        symlink(at("logs/a"), at("abs")).unwrap();
        append(&at("way/a")).unwrap();
        append(&at("abs")).unwrap();
        assert_eq!(fs::read(at("logs/b")).unwrap(), b"line\nline\n");
        symlink("round", at("round")).unwrap();
        assert!(append(&at("round")).is_err());
        assert!(append(&at("logs")).is_err());
        assert!(append(&at("logs/b/c")).is_err());
        assert_eq!(append(&at("no/a")).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert!(Location::find(&at("logs/new")).unwrap().try_append().is_ok());
        assert!(!at("logs/new").exists());
    }

    #[test]
    fn a_descriptor_of_the_process_is_a_place() {
        let (_directory, at) = stage();
        let (mut reader, writer) = io::pipe().unwrap();
        let fd = std::os::fd::AsRawFd::as_raw_fd(&writer);
        symlink(format!("/proc/self/fd/{fd}"), at("logs/a")).unwrap();
        append(&at("logs/a")).unwrap();
        drop(writer);
        let mut text = String::new();
        io::Read::read_to_string(&mut reader, &mut text).unwrap();
        assert_eq!(text, "line\n");
    }

    #[test]
    fn root_is_not_led_by_others_to_what_is_not_theirs() {
        if !geteuid().is_root() {
            return eprintln!("skipped: links of others: needs root");
        }
        let (_directory, at) = stage();
        fs::write(at("precious"), "data").unwrap();
        fs::create_dir(at("theirs")).unwrap();
        chown(at("theirs"), Some(OTHER), None).unwrap();
        let link = |to: &str, name: &str| {
            symlink(to, at(name)).unwrap();
            lchown(at(name), Some(OTHER), None).unwrap();
        };
        // The link itself, one on the way, one behind a link of root's, and one that makes a file.
        link("../precious", "theirs/a.log");
        link("..", "theirs/way");
        symlink("theirs/a.log", at("own")).unwrap();
        link("../new", "theirs/b.log");
        link("/proc/self/fd/0", "theirs/fd");
        for name in ["theirs/a.log", "theirs/way/precious", "own", "theirs/b.log", "theirs/fd"] {
            let error = append(&at(name)).unwrap_err().to_string();
            assert!(error.contains("link of user 65534"), "{name}: {error}");
        }
        assert!(Location::find_name(&at("theirs/way/precious")).is_err());
        // A second name of a file needs no link.
        fs::hard_link(at("precious"), at("theirs/c.log")).unwrap();
        let error = append(&at("theirs/c.log")).unwrap_err().to_string();
        assert!(error.contains("other names"), "{error}");
        assert_eq!(fs::read(at("precious")).unwrap(), b"data");
        assert!(!at("new").exists());
        // What leads to what is theirs gains them nothing.
        link("d.log", "theirs/current");
        append(&at("theirs/current")).unwrap();
        append(&at("theirs/d.log")).unwrap();
        assert_eq!(fs::read(at("theirs/d.log")).unwrap(), b"line\nline\n");
    }
}
