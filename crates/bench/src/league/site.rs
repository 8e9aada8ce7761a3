//! The files that all servers serve: made once, of random bytes, and evicted on request.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;

use rustix::fs::{Advice, fadvise, statfs, statvfs};

use crate::stats::float;
use crate::sys::memory::Mapping;
use crate::{Fault, Unit, interrupt};

/// A directory of files, which were made for this; its drop removes both.
#[derive(Debug)]
pub struct Site {
    root: tempfile::TempDir,
}

impl Site {
    /// Makes a directory in `parent`, or in `/var/tmp`.
    ///
    /// # Errors
    /// When it cannot be made; says where.
    pub fn new(parent: Option<&Path>) -> Result<Self, Fault> {
        let parent = parent.unwrap_or_else(|| Path::new(TEMPORARY));
        let failed = |error: io::Error| {
            let place = parent.display();
            Fault::Failed(format!(
                "cannot make a directory in {place}: {error}; --root DIR names another"
            ))
        };
        // Servers get its name, and run in another directory.
        let parent = parent.canonicalize().map_err(failed)?;
        let root = tempfile::Builder::new().prefix("samum-bench-").tempdir_in(&parent);
        let root = root.map_err(failed)?;
        // Servers that give up root's rights must get in.
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(root.path(), mode).map_err(failed)?;
        Ok(Self { root })
    }

    /// Its directory.
    #[must_use]
    pub fn root(&self) -> &Path {
        self.root.path()
    }

    /// Makes a file of `len` random bytes, which are others under each name. Returns the name.
    ///
    /// # Errors
    /// As write(2); `Interrupted` after ctrl-C.
    pub fn file(&self, name: &str, len: u64) -> io::Result<String> {
        let path = self.root().join(name);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        let mut random = fastrand::Rng::with_seed(hash(name) ^ len);
        let mut file = File::create(&path)?;
        let mut block = vec![0; BLOCK];
        let mut left = len;
        while left > 0 {
            interrupt::check()?;
            let n = usize::try_from(left).unwrap_or(BLOCK).min(BLOCK);
            random.fill(&mut block[..n]);
            file.write_all(&block[..n])?;
            left -= n as u64;
        }
        Ok(name.to_owned())
    }

    /// Makes a file to compare that comes from the disk: it is evicted before a server starts, and not requested
    /// while the server is measured.
    ///
    /// # Errors
    /// As [`Site::file`].
    pub fn file_to_compare(&self) -> io::Result<String> {
        self.file("compared", COMPARED_BYTES)
    }

    /// Evicts files: the next request for them comes from the disk.
    ///
    /// # Errors
    /// As open(2), fsync(2) and posix_fadvise(2).
    pub fn evict<'a>(&self, names: impl IntoIterator<Item = &'a String>) -> io::Result<()> {
        for name in names {
            let file = File::open(self.root().join(name))?;
            // Pages that wait to be written would stay.
            file.sync_data()?;
            fadvise(&file, 0, None, Advice::DontNeed)?;
        }
        Ok(())
    }

    /// Evicts a file that nobody writes.
    ///
    /// # Errors
    /// As open(2) and posix_fadvise(2).
    pub fn evict_clean(&self, name: &str) -> io::Result<()> {
        let file = File::open(self.root().join(name))?;
        Ok(fadvise(&file, 0, None, Advice::DontNeed)?)
    }

    /// Brings files into memory.
    ///
    /// # Errors
    /// As read(2).
    pub fn warm<'a>(&self, names: impl IntoIterator<Item = &'a String>) -> io::Result<()> {
        for name in names {
            io::copy(&mut File::open(self.root().join(name))?, &mut io::sink())?;
        }
        Ok(())
    }

    /// Makes `bytes` of memory free that the host of a virtual machine has already given to it.
    ///
    /// The host may take free memory back after two seconds, and then it is slow for its next user, even for a disk
    /// that reads into it (`docs/linux.md`). Memory that was freed last is given out first, if it was freed in blocks
    /// as large as those that the host takes back. So all servers begin with memory of one kind.
    ///
    /// # Errors
    /// As mmap(2).
    pub fn renew_memory(bytes: u64) -> io::Result<()> {
        let bytes = usize::try_from(bytes).map_err(io::Error::other)?;
        let mut memory = Mapping::anonymous(bytes, true)?;
        // A kernel without huge pages frees small blocks, of which only some are given out first.
        let _ = memory.advise(rustix::mm::Advice::LinuxHugepage);
        (0..bytes).step_by(PAGE_MIN).for_each(|offset| memory.write(offset));
        Ok(())
    }

    /// Checks that `bytes` of files can be made here and some space is left.
    ///
    /// # Errors
    /// [`Fault::Skip`] that says how many bytes are missing.
    pub fn has_room_for(&self, bytes: u64) -> Result<(), Fault> {
        let disk = statvfs(self.root())?;
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        if bytes > free.saturating_sub(LEAVE) {
            let [bytes, free] = [bytes, free].map(|bytes| Unit::Bytes.show(float(bytes)));
            let root = self.root().display();
            return Err(Fault::Skip(format!("needs {bytes}, and {free} are free in {root}")));
        }
        Ok(())
    }

    /// Checks that files can be evicted here.
    ///
    /// # Errors
    /// [`Fault::Skip`] if the file system is in memory itself.
    pub fn needs_a_disk(&self) -> Result<(), Fault> {
        let kind = statfs(self.root())?.f_type;
        if [TMPFS_MAGIC, RAMFS_MAGIC].contains(&kind) {
            let root = self.root().display();
            return Err(Fault::Skip(format!(
                "{root} is in memory: --root names a place on a disk"
            )));
        }
        Ok(())
    }
}

/// FNV-1a: the same for a name today and tomorrow, and another for another.
fn hash(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// The directory for files: on a disk even if /tmp is in memory.
const TEMPORARY: &str = "/var/tmp";

/// The bytes of a disk that are left to others.
const LEAVE: u64 = 256 << 20;

/// The smallest page of any processor, in bytes.
const PAGE_MIN: usize = 4096;

/// The bytes of [`Site::file_to_compare`]: several pieces, the last of them no whole page.
const COMPARED_BYTES: u64 = (256 << 10) + 1;

/// The bytes made in one step.
const BLOCK: usize = 1 << 20;

/// statfs(2).
const TMPFS_MAGIC: rustix::fs::FsWord = 0x0102_1994;
const RAMFS_MAGIC: rustix::fs::FsWord = 0x8584_58f6;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_differ_by_name_alone() {
        let site = Site::new(None).unwrap();
        let bytes = |name: &str| {
            site.file(name, 4096).unwrap();
            fs::read(site.root().join(name)).unwrap()
        };
        let all = ["cold/0", "cold/1", "cold/2", "hots/0"].map(bytes);
        for (i, one) in all.iter().enumerate() {
            assert!(all[..i].iter().all(|other| other != one), "file {i} is another's copy");
        }
        assert_eq!(bytes("cold/0"), all[0], "the same each time");
    }

    #[test]
    fn what_does_not_fit_is_not_begun() {
        let site = Site::new(None).unwrap();
        site.has_room_for(1).unwrap();
        assert!(
            matches!(site.has_room_for(u64::MAX), Err(Fault::Skip(why)) if why.contains("free"))
        );
    }

    #[test]
    fn files_have_their_length_and_go_with_their_directory() {
        let parent = tempfile::tempdir().unwrap();
        let site = Site::new(Some(parent.path())).unwrap();
        for (name, len) in [("a", 0), ("b/c", 3_000_000)] {
            assert_eq!(site.file(name, len).unwrap(), name);
            assert_eq!(fs::metadata(site.root().join(name)).unwrap().len(), len);
        }
        let before = fs::read(site.root().join("b/c")).unwrap();
        assert!(before.windows(8).all(|bytes| bytes != [0; 8]), "random");
        site.evict(&["b/c".to_owned()]).unwrap();
        assert_eq!(fs::read(site.root().join("b/c")).unwrap(), before);
        drop(site);
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 0);
    }
}
