//! Files of which nothing is in memory.
//!
//! One call of `posix_fadvise(2)` leaves pages that are in use at that moment: pages that are being read or written to
//! disk, pages in a pipe, and pages that a socket still sends. A test waits until they are free. Pages in packets that
//! were received are not in use, but the kernel may keep them for ever, so each processor is made to free them.

use core::num::NonZeroU64;
use core::ops::Range;
use core::time::Duration;
use std::fs::File;
use std::io;
use std::net::UdpSocket;
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::thread;
use std::time::Instant;

use rustix::fs::{Advice, fadvise, fstatfs};
use rustix::thread::{CpuSet, sched_setaffinity};

/// The time within which pages leave. Pages that a socket still sends, or that are being read, need some of it.
const LIMIT: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(5);
/// All bytes of a file.
const ALL: Range<u64> = 0..u64::MAX;

/// Makes a file cold: writes it to disk, and drops its pages from the page cache until none is left.
///
/// All pages of a file on a tmpfs stay. A kernel without `cachestat(2)` (before 6.5) drops pages once.
///
/// # Panics
/// If the file system refuses, or if pages are left after 10 s.
pub fn evict(path: impl AsRef<Path>) {
    evict_part(path.as_ref(), ALL);
}

/// Does the same with a part of a file, in whole pages; the other pages stay.
///
/// # Panics
/// If the file system refuses, or if pages are left after 10 s.
pub(crate) fn evict_part(path: &Path, range: Range<u64>) {
    let left = File::open(path).and_then(|file| evict_all(&file, &range));
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
    let evicted = File::open(path).and_then(|file| evict_once(&file, &ALL));
    evicted.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}

fn evict_once(file: &File, range: &Range<u64>) -> io::Result<()> {
    file.sync_all()?;
    Ok(fadvise(file, range.start, length_of(range), Advice::DontNeed)?)
}

/// The length of a range; `None` if it goes to the end of the file.
fn length_of(range: &Range<u64>) -> Option<NonZeroU64> {
    if range.end == ALL.end { None } else { NonZeroU64::new(range.end - range.start) }
}

/// Returns the number of pages that stay.
fn evict_all(file: &File, range: &Range<u64>) -> io::Result<u64> {
    let has_only_memory = fstatfs(file)?.f_type == TMPFS_MAGIC;
    let deadline = Instant::now() + LIMIT;
    loop {
        evict_once(file, range)?;
        match cached_pages(file, range) {
            _ if has_only_memory => return Ok(0),
            Ok(pages) if pages > 0 && Instant::now() < deadline => {
                free_packets();
                thread::sleep(PAUSE);
            }
            Ok(pages) => return Ok(pages),
            Err(_) => return Ok(0),
        }
    }
}

/// Makes each processor free the packets that it has made and that were received on another processor. Since Linux 5.19
/// such packets keep their pages until their processor next handles a packet (`skb_attempt_defer_free` in
/// net/core/skbuff.c). If nothing else uses the network, that never happens. So a thread sends itself an empty
/// datagram on each processor.
fn free_packets() {
    // The thread ends with its affinity.
    let sender = thread::spawn(|| {
        let socket = UdpSocket::bind("127.0.0.1:0")?;
        let own = socket.local_addr()?;
        // A thread begins with the affinity of its maker, which may leave out the processor that has the packets. A number
        // that has no processor is refused.
        for cpu in 0..CpuSet::MAX_CPU {
            let mut only = CpuSet::new();
            only.set(cpu);
            if sched_setaffinity(None, &only).is_ok() {
                socket.send_to(&[], own)?;
            }
        }
        io::Result::Ok(())
    });
    // Without a network there are no packets. If packets stay for another reason, so do pages, and the caller says so.
    let _ = sender.join();
}

/// `statfs(2)`.
const TMPFS_MAGIC: i64 = 0x0102_1994;
const SYS_CACHESTAT: libc::c_long = 451;

/// The number of pages of a part of a file that are in the page cache (`cachestat(2)`).
///
/// # Errors
/// `ENOSYS` before Linux 6.5; `EPERM` for files of others.
fn cached_pages(file: &File, range: &Range<u64>) -> io::Result<u64> {
    // `struct cachestat_range`: offset and length, of which 0 means "to the end of the file".
    let part = [range.start, length_of(range).map_or(0, NonZeroU64::get)];
    // `struct cachestat`: cache, dirty, writeback, evicted, recently evicted.
    let mut pages = [0_u64; 5];
    let (part, into) = (part.as_ptr(), pages.as_mut_ptr());
    // SAFETY: both pointers are to arrays of the layout in <linux/mman.h>, alive for the call.
    let result = unsafe { libc::syscall(SYS_CACHESTAT, file.as_raw_fd(), part, into, 0) };
    if result == 0 { Ok(pages[0]) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Read as _;
    use std::net::{TcpListener, TcpStream};
    use std::path::PathBuf;

    use rustix::fs::sendfile;
    use rustix::pipe::{SpliceFlags, splice};
    use rustix::thread::sched_getaffinity;

    use super::*;
    use crate::{Content, Skip, Tree, or_skip};

    const BYTES: u64 = 8 << 20;
    const PAGES: u64 = BYTES / 4096;

    /// A file on a disk whose pages can be counted, its path, and its directory.
    fn file() -> Result<(File, PathBuf, Tree), Skip> {
        let tree = Tree::beneath("/var/tmp").file("file", Content::pseudo_random(1, BYTES));
        let path = tree.path().join("file");
        let file = File::open(&path).unwrap();
        match cached_pages(&file, &ALL) {
            Ok(_) => Ok((file, path, tree)),
            Err(error) => Err(Skip::new(format!("cachestat: {error}"))),
        }
    }

    #[test]
    fn nothing_of_a_file_is_in_memory() {
        let (file, path, _tree) = or_skip!(file());
        for _ in 0..20 {
            assert_eq!(fs::read(&path).unwrap().len() as u64, BYTES);
            assert_eq!(cached_pages(&file, &ALL).unwrap(), PAGES);
            evict(&path);
            assert_eq!(cached_pages(&file, &ALL).unwrap(), 0);
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
        assert!(cached_pages(&file, &ALL).unwrap() > 0, "the pipe holds them");
        evict(&path);
        assert_eq!(cached_pages(&file, &ALL).unwrap(), 0);
        holder.join().unwrap();
    }

    #[test]
    fn the_other_pages_of_a_file_stay() {
        let (file, path, _tree) = or_skip!(file());
        assert_eq!(fs::read(&path).unwrap().len() as u64, BYTES);
        evict_part(&path, 0..BYTES / 2);
        assert_eq!(cached_pages(&file, &(0..BYTES / 2)).unwrap(), 0);
        assert_eq!(cached_pages(&file, &ALL).unwrap(), PAGES / 2);
    }

    /// If two processors exchange a packet and then nothing, the sender's processor keeps the pages of the packet. A test
    /// that evicted a file after a server had sent it failed once by that.
    #[test]
    fn pages_that_another_processor_has_received_are_evicted() {
        const SENT: usize = 12 * 4096;
        let allowed = sched_getaffinity(None).unwrap();
        let mut cpus = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu));
        let (Some(one), Some(other)) = (cpus.next(), cpus.next()) else {
            crate::skip!("one processor");
        };
        let on = |cpu| {
            let mut only = CpuSet::new();
            only.set(cpu);
            sched_setaffinity(None, &only).unwrap();
        };
        let (file, path, _tree) = or_skip!(file());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, _) = listener.accept().unwrap();
        evict(&path);
        on(one);
        assert_eq!(sendfile(&server, &file, Some(&mut 0), SENT).unwrap(), SENT);
        on(other);
        client.read_exact(&mut [0; SENT]).unwrap();
        evict(&path);
        assert_eq!(cached_pages(&file, &ALL).unwrap(), 0);
    }
}
