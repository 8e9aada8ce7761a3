//! The directory in which accounts, certificates, orders and challenges are kept, and which processes share.
//!
//! ```text
//!   lock                 the process that has locked it asks the authority
//!   HASH.account         the account of a directory
//!   HASH.state           the record of a directory that could not be asked
//!   NAME.pem             the key and the chain of a certificate; NAME is its first name
//!   NAME.json            its record: an order that is under way, failures
//!   TOKEN.challenge      a challenge that the authority may ask for
//! ```
//!
//! Each file is for the owner alone (0600), and is replaced as a whole: written under another name, synced, renamed. So a
//! process that dies leaves the file before, and a reader never sees a part.

use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, Dir, FileType, FlockOperation, Mode, OFlags, RawMode};
use rustix::io::Errno;
use zeroize::Zeroizing;

use crate::record::Challenge;

/// The permissions of the directory and of its files.
const DIRECTORY_MODE: u32 = 0o700;
const FILE_MODE: RawMode = 0o600;
/// Of a mode: the group or others may write.
const OTHERS_WRITE: u32 = 0o022;
/// The most bytes of a file. A chain has some kilobytes.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// The most challenges that wait at the same time: those of a certificate with the most names, and some that were left
/// after.
pub(crate) const CHALLENGES_MAX: usize = 1000;
/// The seconds after which marks of a change are safe: file systems have times of a second, or of a tick.
const FRESH: i64 = 2;
/// The end of the names of challenges.
const CHALLENGE: &str = ".challenge";

/// The directory, which was found to be ours.
#[derive(Debug)]
pub struct Storage {
    path: PathBuf,
    directory: OwnedFd,
}

/// The reason why a directory cannot be the storage. Its text is a sentence for the operator.
#[derive(Debug)]
pub enum Unfit {
    /// There is no such directory.
    Missing(PathBuf),
    /// It must not be used, or cannot be.
    Other(String),
}

/// The lock of a storage, which ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Lock(
    #[expect(dead_code, reason = "the lock lasts as long as the descriptor")] OwnedFd,
);

/// The marks of the directory: they change with each name in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Marks {
    inode: u64,
    changed: (i64, u64),
}

impl Marks {
    /// Returns true if the last change is so recent that another one may follow with the same marks. `now` is in seconds
    /// since 1970.
    pub(crate) const fn are_fresh(self, now: i64) -> bool {
        now.saturating_sub(self.changed.0).saturating_abs() <= FRESH
    }
}

impl Storage {
    /// Makes the directory for a user, if it is missing. The directories above must be there.
    ///
    /// # Errors
    ///
    /// A sentence for the operator.
    pub fn make(path: &Path, owner: Option<(u32, u32)>) -> Result<(), String> {
        let mut builder = std::fs::DirBuilder::new();
        let made = match builder.mode(DIRECTORY_MODE).create(path) {
            Ok(()) => owner.map_or(Ok(()), |(user, group)| {
                std::os::unix::fs::lchown(path, Some(user), Some(group))
            }),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            Err(error) => Err(error),
        };
        made.map_err(|error| cannot_make(path, &error))
    }

    /// Returns the error that [`make`](Self::make) would have, and makes nothing.
    ///
    /// # Errors
    ///
    /// A sentence for the operator.
    pub fn try_make(path: &Path) -> Result<(), String> {
        // Other faults than a missing directory are those of `open`.
        let is_missing = |error: io::Error| error.kind() == io::ErrorKind::NotFound;
        if !std::fs::symlink_metadata(path).is_err_and(is_missing) {
            return Ok(());
        }
        let around = path.parent().filter(|around| !around.as_os_str().is_empty());
        let around = around.unwrap_or_else(|| Path::new("."));
        let tried = rustix::fs::access(around, Access::WRITE_OK | Access::EXEC_OK);
        tried.map_err(|error| cannot_make(path, &error.into()))
    }

    /// Opens the directory, which must belong to this user alone.
    ///
    /// # Errors
    ///
    /// [`Unfit`] if it is missing or cannot be opened, is a symbolic link or no directory, belongs to another user, or if
    /// others may write to it.
    pub fn open(path: &Path, user: u32) -> Result<Self, Unfit> {
        let shown = path.display();
        let unfit =
            |why: String| Unfit::Other(format!("the storage of certificates {shown} {why}"));
        let data = std::fs::symlink_metadata(path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => Unfit::Missing(path.to_owned()),
            _ => unfit(format!("cannot be looked at: {}", words(&error))),
        })?;
        if data.is_symlink() {
            return Err(unfit(
                "is a symbolic link, which may lead anywhere: name the directory itself".to_owned(),
            ));
        }
        if !data.is_dir() {
            return Err(unfit("is no directory: name another path, or remove it".to_owned()));
        }
        if data.uid() != user {
            return Err(unfit(format!(
                "belongs to the user {}, and not to the user of the server ({user}): run `chown -R {user} {shown}`, or name another one",
                data.uid()
            )));
        }
        if data.mode() & OTHERS_WRITE != 0 {
            return Err(unfit(format!(
                "may be written to by others (mode {:04o}): run `chmod 700 {shown}`, and remove what is not yours",
                data.mode() & 0o7777
            )));
        }
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::RDONLY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(path, flags, Mode::empty())
            .map_err(|error| unfit(format!("cannot be opened: {}", words(&error.into()))))?;
        // Another one may have taken the path since.
        let opened = rustix::fs::fstat(&directory).map_err(|error| unfit(words(&error.into())))?;
        if (opened.st_dev, opened.st_ino) != (data.dev(), data.ino()) {
            return Err(unfit("was replaced while it was opened".to_owned()));
        }
        Ok(Self { path: path.to_owned(), directory })
    }

    /// Checks that this process may make files in the directory.
    ///
    /// # Errors
    ///
    /// A sentence for the operator.
    pub fn check_writable(&self) -> Result<(), String> {
        let all = Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK;
        let tried = rustix::fs::accessat(&self.directory, ".", all, AtFlags::EACCESS);
        tried.map_err(|error| self.cannot("write to", "", error))
    }

    /// Takes the lock; `None` if another process has it.
    pub(crate) fn lock(&self) -> Result<Option<Lock>, String> {
        let flags = OFlags::CREATE | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file =
            rustix::fs::openat(&self.directory, "lock", flags, Mode::from_raw_mode(FILE_MODE))
                .map_err(|error| self.cannot("make", "lock", error))?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Lock(file))),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(self.cannot("lock", "lock", error)),
        }
    }

    /// Reads a file; `None` if there is none.
    pub(crate) fn read(&self, name: &str) -> Result<Option<Zeroizing<Vec<u8>>>, String> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match rustix::fs::openat(&self.directory, name, flags, Mode::empty()) {
            Ok(file) => file,
            Err(Errno::NOENT) => return Ok(None),
            Err(error) => return Err(self.cannot("read", name, error)),
        };
        let stat = rustix::fs::fstat(&file).map_err(|error| self.cannot("read", name, error))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(format!("cannot read {}: it is not a regular file", self.at(name)));
        }
        let mut bytes = Zeroizing::new(Vec::new());
        let read = std::fs::File::from(file).take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes);
        read.map_err(|error| format!("cannot read {}: {}", self.at(name), words(&error)))?;
        if bytes.len() as u64 > FILE_BYTES_MAX {
            return Err(format!("cannot read {}: it has more than 1 MiB", self.at(name)));
        }
        Ok(Some(bytes))
    }

    /// Reads a file of text; `None` if there is none, or it is not UTF-8.
    pub(crate) fn read_text(&self, name: &str) -> Result<Option<Zeroizing<String>>, String> {
        let bytes = self.read(name)?;
        Ok(bytes.and_then(|bytes| String::from_utf8(bytes.to_vec()).ok()).map(Zeroizing::new))
    }

    /// Replaces a file as a whole.
    pub(crate) fn write(&self, name: &str, bytes: &[u8]) -> Result<(), String> {
        let next = format!(".{name}.new");
        let written = self.write_next(&next, bytes).and_then(|()| {
            rustix::fs::renameat(&self.directory, &next, &self.directory, name)?;
            Ok(rustix::fs::fsync(&self.directory)?)
        });
        written.map_err(|error| {
            // A part of a key must not stay behind. The error that counts is the first.
            let _ = rustix::fs::unlinkat(&self.directory, &next, AtFlags::empty());
            format!("cannot write {}: {}", self.at(name), words(&error))
        })
    }

    fn write_next(&self, next: &str, bytes: &[u8]) -> io::Result<()> {
        // A process that died may have left it.
        match rustix::fs::unlinkat(&self.directory, next, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
        let flags =
            OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file =
            rustix::fs::openat(&self.directory, next, flags, Mode::from_raw_mode(FILE_MODE))?;
        // The mask of the process may be narrower, and never matters then.
        let mut file = std::fs::File::from(file);
        file.write_all(bytes)?;
        file.sync_all()
    }

    /// Removes a file, if there is one.
    pub(crate) fn remove(&self, name: &str) -> Result<(), String> {
        match rustix::fs::unlinkat(&self.directory, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(self.cannot("remove", name, error)),
        }
    }

    /// The marks of the directory now.
    pub(crate) fn marks(&self) -> Result<Marks, String> {
        let stat = rustix::fs::fstat(&self.directory)
            .map_err(|error| self.cannot("look at", "", error))?;
        let changed = (stat.st_ctime, stat.st_ctime_nsec);
        Ok(Marks { inode: stat.st_ino, changed })
    }

    /// Adds a challenge.
    pub(crate) fn add(&self, challenge: &Challenge) -> Result<(), String> {
        self.write(&file_of(&challenge.token), challenge.to_text().as_bytes())
    }

    /// Removes the challenge of a token.
    pub(crate) fn remove_challenge(&self, token: &str) -> Result<(), String> {
        self.remove(&file_of(token))
    }

    /// The challenges that wait, at most [`CHALLENGES_MAX`]. A file that is damaged is left out.
    pub(crate) fn challenges(&self) -> Result<Vec<Challenge>, String> {
        let cannot = |error| self.cannot("read", "", error);
        let mut all = Vec::new();
        for entry in Dir::read_from(self.directory.as_fd()).map_err(cannot)? {
            let entry = entry.map_err(cannot)?;
            let Ok(name) = entry.file_name().to_str() else { continue };
            if !name.ends_with(CHALLENGE) || name.starts_with('.') || all.len() == CHALLENGES_MAX {
                continue;
            }
            // Another process may have removed it since.
            let Some(text) = self.read_text(name)? else { continue };
            all.extend(Challenge::from_text(&text).filter(|it| file_of(&it.token) == name));
        }
        Ok(all)
    }

    /// The path of a file, for messages.
    pub(crate) fn at(&self, name: &str) -> String {
        self.path.join(name).display().to_string()
    }

    fn cannot(&self, what: &str, name: &str, error: Errno) -> String {
        format!("cannot {what} {}: {}", self.at(name), words(&error.into()))
    }
}

impl core::fmt::Display for Unfit {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Missing(path) => {
                write!(out, "there is no storage of certificates {}", path.display())
            }
            Self::Other(why) => out.write_str(why),
        }
    }
}

fn cannot_make(path: &Path, error: &io::Error) -> String {
    let advice = match error.kind() {
        io::ErrorKind::NotFound => "make the directory around it",
        _ => "make it for the user of the server (`install -d -m 700 -o USER DIRECTORY`)",
    };
    format!(
        "cannot make the storage of certificates {}: {}: {advice}",
        path.display(),
        words(error)
    )
}

fn file_of(token: &str) -> String {
    format!("{token}{CHALLENGE}")
}

/// An error inside a sentence.
pub(crate) fn words(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_lowercase().chain(letters).collect())
}

#[cfg(test)]
mod tests;
