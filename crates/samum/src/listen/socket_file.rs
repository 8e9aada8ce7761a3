//! The file of a Unix socket. Other users may write to its directory, and replace the file at its path at any time. So
//! each operation on the file uses a descriptor of the file that was examined, and never the path.

use core::time::Duration;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Instant;

use rustix::fs::{AtFlags, FileType, FlockOperation, Gid, Mode, OFlags, Stat, Uid};
use rustix::io::Errno;
use rustix::net::SocketAddrUnix;

/// The time to wait for other servers that lock the same directory of Unix sockets. Each holds the lock for a few
/// system calls; a process that holds the lock longer is no samum.
const LOCK_MAX: Duration = Duration::from_secs(1);

/// Device and inode. While a socket is bound to the file, no other file can have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity(u64, u64);

impl Identity {
    const fn of(stat: &Stat) -> Self {
        Self(stat.st_dev, stat.st_ino)
    }

    /// Device and inode as numbers, for another process.
    pub(crate) const fn numbers(self) -> (u64, u64) {
        (self.0, self.1)
    }

    /// The identity with these numbers.
    pub(super) const fn of_numbers((device, inode): (u64, u64)) -> Self {
        Self(device, inode)
    }
}

/// The file of a Unix socket, which is held by a descriptor.
pub(super) struct Node {
    fd: OwnedFd,
    stat: Stat,
}

impl Node {
    /// Opens the file at a path.
    ///
    /// # Errors
    ///
    /// `NOTSOCK` if it is no socket. A symbolic link is no socket, wherever it leads.
    pub(super) fn open(path: &Path) -> Result<Self, Errno> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rustix::fs::open(path, flags, Mode::empty())?;
        let stat = rustix::fs::fstat(&fd)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Socket => Ok(Self { fd, stat }),
            _ => Err(Errno::NOTSOCK),
        }
    }

    pub(super) const fn identity(&self) -> Identity {
        Identity::of(&self.stat)
    }

    pub(super) fn mode(&self) -> Mode {
        Mode::from_raw_mode(self.stat.st_mode & 0o7777)
    }

    pub(super) fn owner(&self) -> (Option<Uid>, Option<Gid>) {
        (Some(Uid::from_raw(self.stat.st_uid)), Some(Gid::from_raw(self.stat.st_gid)))
    }

    /// Returns true if a process of this user may just have made the file: the user owns it, and it has no other name.
    pub(super) fn is_made_by(&self, user: Uid) -> bool {
        self.stat.st_uid == user.as_raw() && self.stat.st_nlink == 1
    }

    /// The address at which the socket of this very file answers.
    pub(super) fn address(&self) -> Result<SocketAddrUnix, Errno> {
        SocketAddrUnix::new(self.path())
    }

    /// Changes its permissions and its owner, if they are given.
    pub(super) fn give(
        &self,
        mode: Option<Mode>,
        (user, group): (Option<Uid>, Option<Gid>),
    ) -> Result<(), Errno> {
        // fchmod(2) refuses a descriptor that was opened with O_PATH.
        mode.map_or(Ok(()), |mode| rustix::fs::chmod(self.path(), mode))?;
        if user.is_none() && group.is_none() {
            return Ok(());
        }
        rustix::fs::chownat(&self.fd, c"", user, group, AtFlags::EMPTY_PATH)
    }

    /// A path that leads to the file of the descriptor.
    fn path(&self) -> String {
        format!("/proc/self/fd/{}", self.fd.as_raw_fd())
    }
}

/// Takes the lock that samum servers hold while they replace or remove a Unix socket. It is on the
/// directory of the socket, so no lock file is left behind. `None` if the directory cannot be locked;
/// then the server works without the lock.
pub(super) fn lock_directory(path: &Path) -> Option<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = rustix::fs::open(directory_of(path), flags, Mode::empty()).ok()?;
    let deadline = Instant::now() + LOCK_MAX;
    loop {
        match rustix::fs::flock(&directory, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Some(directory),
            Err(Errno::WOULDBLOCK | Errno::INTR) if Instant::now() < deadline => {
                thread::sleep(Duration::from_millis(5));
            }
            Err(_) => return None,
        }
    }
}

/// Removes a name, if it still names this file.
pub(super) fn remove(path: &Path, identity: Identity) -> Result<(), Errno> {
    let name = path.file_name().ok_or(Errno::NOENT)?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    // Both calls use one directory, wherever its path leads by then.
    let directory = rustix::fs::open(directory_of(path), flags, Mode::empty())?;
    let stat = rustix::fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
    if Identity::of(&stat) != identity {
        return Err(Errno::STALE);
    }
    rustix::fs::unlinkat(&directory, name, AtFlags::empty())
}

/// The directory in which a path names a file.
pub(super) fn directory_of(path: &Path) -> &Path {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    parent.unwrap_or_else(|| Path::new("."))
}

/// The name of a Unix socket in the file system. It is removed when the server ends.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    /// The identity of the file, because another server's socket may be at the path later.
    identity: Identity,
    /// False while another process has the socket, too, and removes the name at its end.
    is_ours: bool,
    /// True if the service manager has the socket, too. Then the name stays when the server ends, because the next server
    /// gets the socket.
    is_stored: bool,
}

impl SocketFile {
    /// Takes a socket that was just made. The caller holds the lock.
    pub(super) fn new(path: &Path, identity: Identity) -> Self {
        // The path is absolute, so that it stays right if the working directory changes.
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        Self { path, identity, is_ours: true, is_stored: false }
    }

    /// Takes a socket that another process has handed over, and still has itself.
    pub(super) fn handed_over(path: &Path, identity: Identity) -> Self {
        let mut file = Self::new(path, identity);
        file.is_ours = false;
        file
    }

    /// Removes the name at the end from now on, because no other process does.
    pub(super) const fn take_over(&mut self) {
        self.is_ours = true;
    }

    /// Returns true if this process removes the name at the end.
    pub(super) const fn is_ours(&self) -> bool {
        self.is_ours
    }

    /// Leaves the name to another process.
    pub(crate) fn give_away(mut self) {
        self.is_ours = false;
    }

    /// Leaves the name to the next server from now on, when this one ends.
    pub(super) const fn store(&mut self) {
        self.is_stored = true;
    }

    /// Removes the name because the server ends, unless the next server gets the socket.
    pub(super) fn end(mut self) {
        self.is_ours &= !self.is_stored;
    }

    pub(crate) const fn identity(&self) -> Identity {
        self.identity
    }
}

impl Drop for SocketFile {
    /// Removes the name, unless another server's socket is there now.
    ///
    /// The caller drops it while the socket still listens, so that a successor never mistakes the name for a stale one.
    fn drop(&mut self) {
        if !self.is_ours {
            return;
        }
        let _lock = lock_directory(&self.path);
        // The call fails if another process has removed the name, which is as good.
        let _ = remove(&self.path, self.identity);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn rights_are_given_to_the_file_that_was_looked_at() {
        let directory = tempfile::tempdir().unwrap();
        let [path, moved, secret] =
            ["s", "moved", "secret"].map(|name| directory.path().join(name));
        fs::write(&secret, "").unwrap();
        fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
        let _socket = UnixListener::bind(&path).unwrap();
        let node = Node::open(&path).unwrap();
        fs::rename(&path, &moved).unwrap();
        symlink(&secret, &path).unwrap();
        node.give(Some(Mode::from_raw_mode(0o604)), (None, None)).unwrap();
        let mode = |path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
        assert_eq!((mode(&secret), mode(&moved)), (0o600, 0o604));
        // Nor is the link removed for the socket.
        assert_eq!(remove(&path, node.identity()), Err(Errno::STALE));
        assert_eq!(remove(&moved, node.identity()), Ok(()));
        for other in [&path, &secret] {
            assert_eq!(Node::open(other).err(), Some(Errno::NOTSOCK));
        }
    }
}
