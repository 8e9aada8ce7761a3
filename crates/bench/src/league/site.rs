//! The files that all servers serve: made once, of random bytes, and put out of memory when asked.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use rustix::fs::{Advice, fadvise, statfs};

use crate::Fault;

/// A directory of files. One that was made for this goes away with it.
#[derive(Debug)]
pub struct Site {
    root: PathBuf,
    _temporary: Option<tempfile::TempDir>,
}

impl Site {
    /// Uses `root`, whose files are then kept, or a directory in `/var/tmp`.
    ///
    /// # Errors
    /// When it cannot be made; says where.
    pub fn new(root: Option<&Path>) -> Result<Self, Fault> {
        let failed = |place: &Path, error: io::Error| {
            let place = place.display();
            Fault::Failed(format!(
                "cannot make files in {place}: {error}; --root DIR names another"
            ))
        };
        let (root, temporary) = match root {
            Some(root) => {
                fs::create_dir_all(root).map_err(|error| failed(root, error))?;
                (root.canonicalize().map_err(|error| failed(root, error))?, None)
            }
            None => {
                let made = tempfile::Builder::new().prefix("samum-bench-").tempdir_in(TEMPORARY);
                let made = made.map_err(|error| failed(Path::new(TEMPORARY), error))?;
                (made.path().to_owned(), Some(made))
            }
        };
        // Servers that give up root's rights must get in.
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(&root, mode).map_err(|error| failed(&root, error))?;
        Ok(Self { root, _temporary: temporary })
    }

    /// Its directory.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Makes a file of `len` random bytes, unless one of that length is there. Returns its name.
    ///
    /// # Errors
    /// As write(2).
    pub fn file(&self, name: &str, len: u64) -> io::Result<String> {
        let path = self.root.join(name);
        if fs::metadata(&path).is_ok_and(|found| found.len() == len) {
            return Ok(name.to_owned());
        }
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        let mut random = fastrand::Rng::with_seed(len ^ name.len() as u64);
        let mut file = File::create(&path)?;
        let mut block = vec![0; BLOCK];
        let mut left = len;
        while left > 0 {
            let n = usize::try_from(left).unwrap_or(BLOCK).min(BLOCK);
            random.fill(&mut block[..n]);
            file.write_all(&block[..n])?;
            left -= n as u64;
        }
        Ok(name.to_owned())
    }

    /// Puts files out of memory: what is asked for next comes from the disk.
    ///
    /// # Errors
    /// As open(2), fsync(2) and posix_fadvise(2).
    pub fn evict<'a>(&self, names: impl IntoIterator<Item = &'a String>) -> io::Result<()> {
        for name in names {
            let file = File::open(self.root.join(name))?;
            // Pages that wait to be written stay.
            file.sync_data()?;
            fadvise(&file, 0, None, Advice::DontNeed)?;
        }
        Ok(())
    }

    /// Brings files into memory.
    ///
    /// # Errors
    /// As read(2).
    pub fn warm<'a>(&self, names: impl IntoIterator<Item = &'a String>) -> io::Result<()> {
        for name in names {
            fs::read(self.root.join(name))?;
        }
        Ok(())
    }

    /// Nothing, if files can be put out of memory here.
    ///
    /// # Errors
    /// [`Fault::Skip`] where the file system is memory itself.
    pub fn needs_a_disk(&self) -> Result<(), Fault> {
        let kind = statfs(&self.root)?.f_type;
        if [TMPFS_MAGIC, RAMFS_MAGIC].contains(&kind) {
            let root = self.root.display();
            return Err(Fault::Skip(format!(
                "{root} is in memory: --root names a place on a disk"
            )));
        }
        Ok(())
    }
}

/// Where files are made: a disk even where /tmp is memory.
const TEMPORARY: &str = "/var/tmp";

/// Bytes made at once.
const BLOCK: usize = 1 << 20;

/// statfs(2).
const TMPFS_MAGIC: rustix::fs::FsWord = 0x0102_1994;
const RAMFS_MAGIC: rustix::fs::FsWord = 0x8584_58f6;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_have_their_length_and_stay() {
        let parent = tempfile::tempdir().unwrap();
        let site = Site::new(Some(&parent.path().join("site"))).unwrap();
        for (name, len) in [("a", 0), ("b/c", 3_000_000)] {
            assert_eq!(site.file(name, len).unwrap(), name);
            assert_eq!(fs::metadata(site.root().join(name)).unwrap().len(), len);
        }
        let before = fs::read(site.root().join("b/c")).unwrap();
        assert!(before.windows(8).all(|bytes| bytes != [0; 8]), "random");
        site.file("b/c", 3_000_000).unwrap();
        site.evict(&["b/c".to_owned()]).unwrap();
        assert_eq!(fs::read(site.root().join("b/c")).unwrap(), before);
    }
}
