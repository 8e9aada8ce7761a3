//! Files of which nothing is in memory.

use core::time::Duration;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::thread;
use std::time::Instant;

use rustix::fs::{Advice, fadvise, fstatfs};

/// The time within which pages leave. Pages that a socket still sends, or that are being read, need some of it.
const LIMIT: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(5);

/// Makes a file cold: writes it to disk, and drops its pages from the page cache until none is left. One call of
/// `posix_fadvise(2)` leaves pages that are in use at that moment, and sometimes pages that another CPU has just
/// filled.
///
/// All pages of a file on a tmpfs stay. A kernel without `cachestat(2)` (before 6.5) drops pages once.
///
/// # Panics
/// If the file system refuses, or if pages are left after 10 s.
pub fn evict(path: impl AsRef<Path>) {
    let path = path.as_ref();
    let left = File::open(path).and_then(|file| evict_all(&file));
    match left {
        Ok(0) => {}
        Ok(pages) => panic!("{}: {pages} pages stay in memory", path.display()),
        Err(error) => panic!("{}: {error}", path.display()),
    }
}

/// Writes a file to disk, and drops its pages that are not in use at that moment. Pages that a socket or a pipe holds
/// stay.
///
/// # Panics
/// If the file system refuses.
pub fn evict_unused(path: impl AsRef<Path>) {
    let path = path.as_ref();
    let evicted = File::open(path).and_then(|file| evict_once(&file));
    evicted.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}

fn evict_once(file: &File) -> io::Result<()> {
    file.sync_all()?;
    Ok(fadvise(file, 0, None, Advice::DontNeed)?)
}

/// Returns the number of pages that stay.
fn evict_all(file: &File) -> io::Result<u64> {
    let has_only_memory = fstatfs(file)?.f_type == TMPFS_MAGIC;
    let deadline = Instant::now() + LIMIT;
    loop {
        evict_once(file)?;
        match cached_pages(file) {
            _ if has_only_memory => return Ok(0),
            Ok(pages) if pages > 0 && Instant::now() < deadline => thread::sleep(PAUSE),
            Ok(pages) => return Ok(pages),
            Err(_) => return Ok(0),
        }
    }
}

/// `statfs(2)`.
const TMPFS_MAGIC: i64 = 0x0102_1994;
const SYS_CACHESTAT: libc::c_long = 451;

/// The number of pages of a file that are in the page cache (`cachestat(2)`).
///
/// # Errors
/// `ENOSYS` before Linux 6.5; `EPERM` for files of others.
fn cached_pages(file: &File) -> io::Result<u64> {
    /// `struct cachestat_range`: offset and length, of which 0 means "to the end of the file".
    const ALL: [u64; 2] = [0, 0];
    // `struct cachestat`: cache, dirty, writeback, evicted, recently evicted.
    let mut pages = [0_u64; 5];
    let (all, into) = (ALL.as_ptr(), pages.as_mut_ptr());
    // SAFETY: both pointers are to arrays of the layout in <linux/mman.h>, alive for the call.
    let result = unsafe { libc::syscall(SYS_CACHESTAT, file.as_raw_fd(), all, into, 0) };
    if result == 0 { Ok(pages[0]) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use rustix::pipe::{SpliceFlags, splice};

    use super::*;
    use crate::{Content, Skip, Tree, or_skip};

    const BYTES: u64 = 8 << 20;
    const PAGES: u64 = BYTES / 4096;

    /// A file on a disk whose pages can be counted, its path, and its directory.
    fn file() -> Result<(File, PathBuf, Tree), Skip> {
        let tree = Tree::beneath("/var/tmp").file("file", Content::pseudo_random(1, BYTES));
        let path = tree.path().join("file");
        let file = File::open(&path).unwrap();
        match cached_pages(&file) {
            Ok(_) => Ok((file, path, tree)),
            Err(error) => Err(Skip::new(format!("cachestat: {error}"))),
        }
    }

    #[test]
    fn nothing_of_a_file_is_in_memory() {
        let (file, path, _tree) = or_skip!(file());
        for _ in 0..20 {
            assert_eq!(fs::read(&path).unwrap().len() as u64, BYTES);
            assert_eq!(cached_pages(&file).unwrap(), PAGES);
            evict(&path);
            assert_eq!(cached_pages(&file).unwrap(), 0);
        }
    }

    /// A pipe holds pages that were spliced into it.
    #[test]
    fn pages_in_use_are_evicted_when_they_are_free() {
        let (file, path, _tree) = or_skip!(file());
        let (read, write) = io::pipe().unwrap();
        let spliced = splice(&file, Some(&mut 0), &write, None, 16 * 4096, SpliceFlags::empty());
        assert!(spliced.unwrap() > 0);
        let holder = thread::spawn(move || {
            thread::sleep(20 * PAUSE);
            drop((read, write));
        });
        evict_unused(&path);
        assert!(cached_pages(&file).unwrap() > 0, "the pipe holds them");
        evict(&path);
        assert_eq!(cached_pages(&file).unwrap(), 0);
        holder.join().unwrap();
    }
}
