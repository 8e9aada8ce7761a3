//! System calls that may sleep.
//!
//! The epoll driver does all operations on files here. io_uring does here only the operations that it lacks
//! (`getdents64`, `fstatfs`, `inotify_add_watch`, `posix_fadvise`, `ioctl`).

use core::ffi::CStr;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd, RawFd};
use std::path::Path;

use rustix::fs::{AtFlags, FallocateFlags, FileType, Mode, OFlags, RawDir, fstat};
use rustix::ioctl;

use super::{open, watch};
use crate::fd::Unused;
use crate::gate::Device;
use crate::mounts;
use crate::op::{
    Caching, Entry, EntryOrder, FileKind, LISTED_LINKS_MAX, Listing, OpenHow, Stat, path_of_entry,
};
use crate::statx::statx;
use crate::symlinks::SymlinkScope;

/// A system call to make. Descriptors and memory are lent by the operation in the ring's table,
/// which stays there until the job's [`Outcome`] has come back.
#[derive(Debug)]
pub(crate) enum Job {
    Open {
        dir: Option<RawFd>,
        path: CString,
        how: OpenHow,
    },
    Follow {
        root: RawFd,
        path: CString,
        how: OpenHow,
        symlinks: SymlinkScope,
    },
    Stat {
        fd: RawFd,
    },
    Read {
        fd: RawFd,
        offset: u64,
        memory: Lent,
        caching: Caching,
    },
    Splice {
        fd: RawFd,
        offset: u64,
        pipe: RawFd,
        len: usize,
    },
    Write {
        fd: RawFd,
        at: Option<u64>,
        bytes: Vec<u8>,
    },
    List {
        fd: RawFd,
        entries_max: usize,
        order: EntryOrder,
        targets: Option<LentTargets>,
    },
    HasName {
        root: RawFd,
        path: CString,
        entries_max: usize,
        is_wanted: fn(&[u8]) -> bool,
    },
    Watch {
        root: RawFd,
        path: CString,
        inotify: RawFd,
    },
    WatchFile {
        root: RawFd,
        parent: CString,
        name: CString,
        inotify: RawFd,
    },
    Discard {
        fd: RawFd,
        offset: u64,
        len: u64,
    },
    Punch {
        fd: RawFd,
        offset: u64,
        len: u64,
    },
    FileSystem {
        fd: RawFd,
    },
    Extents {
        fd: RawFd,
    },
    Close(Unused),
    /// The files of one device, at the drop of the ring.
    CloseAll {
        device: Device,
        files: Vec<OwnedFd>,
    },
}

/// [`Targets`](crate::Targets) of an operation.
#[derive(Debug)]
pub(crate) struct LentTargets {
    pub(crate) root: RawFd,
    pub(crate) path: CString,
    pub(crate) symlinks: SymlinkScope,
    pub(crate) names: bool,
}

/// The memory of a [`Buffer`](crate::Buffer) that waits in the ring's table.
#[derive(Debug)]
pub(crate) struct Lent {
    pub(crate) start: *mut u8,
    pub(crate) len: usize,
}

// SAFETY: the pointer is into a shared mapping, not thread-local; while it is lent the buffer sits
// in the ring's table, where no code reads or writes it.
unsafe impl Send for Lent {}

/// The result of a job.
#[derive(Debug)]
pub(crate) enum Outcome {
    Opened(OwnedFd),
    Stat(Box<Stat>),
    Read(usize),
    Spliced(usize),
    Written(Vec<u8>, usize),
    Listed(Box<Listing>),
    HasName(bool),
    Watching(watch::DirectoryWatched),
    WatchingFile(watch::FileWatched),
    Discarded,
    Punched,
    FileSystem(u64),
    Extents(u32),
    Closed(Device),
}

/// # Safety
///
/// The operation that lent `fd` must still be in the ring's table.
unsafe fn borrow<'a>(fd: RawFd) -> BorrowedFd<'a> {
    // SAFETY: the operation holds a clone of the `Fd`, so it is open.
    unsafe { BorrowedFd::borrow_raw(fd) }
}

impl Job {
    pub(super) fn run(self) -> io::Result<Outcome> {
        match self {
            Self::Open { dir, path, how } => {
                // SAFETY: `Op::Open` in the table holds the descriptor.
                let dir = dir.map_or(rustix::fs::CWD, |dir| unsafe { borrow(dir) });
                open::at(dir, &path, how).map(Outcome::Opened)
            }
            Self::Follow { root, path, how, symlinks } => {
                // SAFETY: `Op::Follow` in the table holds the descriptor.
                let root = unsafe { borrow(root) };
                open::through_links(root, &path, how, &symlinks).map(Outcome::Opened)
            }
            Self::Stat { fd } => {
                // SAFETY: `Op::Stat` in the table holds the descriptor.
                stat(unsafe { borrow(fd) }).map(|stat| Outcome::Stat(Box::new(stat)))
            }
            Self::Read { fd, offset, memory, caching } => {
                read(fd, offset, &memory, caching).map(Outcome::Read)
            }
            Self::Splice { fd, offset, pipe, len } => {
                // SAFETY: `Op::Splice` in the table holds the descriptor.
                let file = unsafe { borrow(fd) };
                // SAFETY: `Op::Splice` in the table holds the pipe.
                let pipe = unsafe { borrow(pipe) };
                splice(file, offset, pipe, len).map(Outcome::Spliced)
            }
            Self::Write { fd, at, bytes } => {
                // SAFETY: `Op::Write` in the table holds the descriptor.
                let file = unsafe { borrow(fd) };
                let written = match at {
                    Some(at) => rustix::io::pwrite(file, &bytes, at),
                    None => rustix::io::write(file, &bytes),
                }?;
                Ok(Outcome::Written(bytes, written))
            }
            Self::List { fd, entries_max, order, targets } => {
                // SAFETY: `Op::List` in the table holds the descriptor.
                let dir = unsafe { borrow(fd) };
                // SAFETY: `Op::List` in the table holds the descriptor of its targets, too.
                let targets = targets.map(|all| (unsafe { borrow(all.root) }, all));
                list(dir, entries_max, order, targets).map(|all| Outcome::Listed(Box::new(all)))
            }
            Self::HasName { root, path, entries_max, is_wanted } => {
                // SAFETY: `Op::HasName` in the table holds the descriptor.
                let root = unsafe { borrow(root) };
                has_name(root, &path, entries_max, is_wanted).map(Outcome::HasName)
            }
            Self::Watch { root, path, inotify } => {
                // SAFETY: `Op::Watch` in the table holds the descriptor.
                let root = unsafe { borrow(root) };
                // SAFETY: the inotify descriptor is the ring's, which joins its helpers first.
                let inotify = unsafe { borrow(inotify) };
                watch::directory(root, &path, inotify).map(Outcome::Watching)
            }
            Self::WatchFile { root, parent, name, inotify } => {
                // SAFETY: `Op::WatchFile` in the table holds the descriptor.
                let root = unsafe { borrow(root) };
                // SAFETY: the inotify descriptor is the ring's, which joins its helpers first.
                let inotify = unsafe { borrow(inotify) };
                watch::file(root, &parent, &name, inotify).map(Outcome::WatchingFile)
            }
            Self::Discard { fd, offset, len } => {
                // SAFETY: `Op::Discard` in the table holds the descriptor.
                let file = unsafe { borrow(fd) };
                rustix::fs::fadvise(
                    file,
                    offset,
                    len.try_into().ok(),
                    rustix::fs::Advice::DontNeed,
                )?;
                Ok(Outcome::Discarded)
            }
            Self::Punch { fd, offset, len } => {
                // SAFETY: `Op::Punch` in the table holds the descriptor.
                let file = unsafe { borrow(fd) };
                let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                rustix::fs::fallocate(file, flags, offset, len)?;
                Ok(Outcome::Punched)
            }
            Self::FileSystem { fd } => {
                // SAFETY: `Op::FileSystem` in the table holds the descriptor.
                let fs = rustix::fs::fstatfs(unsafe { borrow(fd) })?;
                Ok(Outcome::FileSystem(watch::magic(&fs)))
            }
            Self::Extents { fd } => {
                // SAFETY: `Op::Extents` in the table holds the descriptor.
                extents(unsafe { borrow(fd) }).map(Outcome::Extents)
            }
            Self::Close(Unused { fd, device }) => {
                drop(fd);
                Ok(Outcome::Closed(device))
            }
            Self::CloseAll { device, files } => {
                drop(files);
                Ok(Outcome::Closed(device))
            }
        }
    }
}

/// `struct fiemap` of `linux/fiemap.h`, without room for extents: they are counted only.
#[repr(C)]
#[derive(Debug, Default)]
struct Fiemap {
    start: u64,
    length: u64,
    flags: u32,
    mapped_extents: u32,
    extent_count: u32,
    reserved: u32,
}

/// Makes the file system read where a file's blocks are, and keep that in memory; the number of pieces.
fn extents(file: BorrowedFd<'_>) -> io::Result<u32> {
    const FIEMAP_FLAG_CACHE: u32 = 4;
    const FS_IOC_FIEMAP: ioctl::Opcode = ioctl::opcode::read_write::<Fiemap>(b'f', 11);
    let mut map = Fiemap { length: u64::MAX, flags: FIEMAP_FLAG_CACHE, ..Fiemap::default() };
    // SAFETY: that is the call's argument (`Documentation/filesystems/fiemap.rst`).
    let call = unsafe { ioctl::Updater::<FS_IOC_FIEMAP, Fiemap>::new(&mut map) };
    // SAFETY: the kernel reads and writes it, and no extents after it, because there is room for none.
    unsafe { ioctl::ioctl(file, call) }?;
    Ok(map.mapped_extents)
}

/// The attributes of an open file; learns of its mount if that is not known.
pub(crate) fn stat(file: BorrowedFd<'_>) -> io::Result<Stat> {
    let raw = statx(file, libc::AT_EMPTY_PATH)?;
    let place = mounts::FileLocation::from(&raw);
    let site = place.site().unwrap_or_else(|| mounts::learn(file, place));
    Ok(Stat::new(&raw, site))
}

/// `RWF_DONTCACHE` of `<linux/fs.h>`, Linux 6.14.
const RWF_DONTCACHE: i32 = 0x80;

/// The flags of `preadv2(2)`.
pub(crate) const fn read_flags(caching: Caching) -> i32 {
    match caching {
        Caching::Keep => 0,
        Caching::Drop => RWF_DONTCACHE,
    }
}

fn read(fd: RawFd, offset: u64, memory: &Lent, caching: Caching) -> io::Result<usize> {
    let flags = read_flags(caching);
    let mut done = 0;
    while done < memory.len {
        // SAFETY: `done < len` and the memory has `len` bytes.
        let start = unsafe { memory.start.add(done) };
        let piece = libc::iovec { iov_base: start.cast(), iov_len: memory.len - done };
        let at = i64::try_from(offset + done as u64).expect("below OFFSET_MAX, see Ring::submit");
        // SAFETY: one iovec of memory that is lent to this job (preadv2(2)).
        let count = unsafe { libc::preadv2(fd, &raw const piece, 1, at, flags) };
        match usize::try_from(count) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(_) if done > 0 => break,
            Err(_) => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    }
    Ok(done)
}

fn splice(
    file: BorrowedFd<'_>,
    offset: u64,
    pipe: BorrowedFd<'_>,
    len: usize,
) -> io::Result<usize> {
    let mut at = offset;
    let mut done = 0;
    while done < len {
        let flags = rustix::pipe::SpliceFlags::MOVE;
        match rustix::pipe::splice(file, Some(&mut at), pipe, None, len - done, flags) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(rustix::io::Errno::INTR) => {}
            // The bytes in the pipe count; the error comes again with the next splice.
            Err(_) if done > 0 => break,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(done)
}

fn has_name(
    root: BorrowedFd<'_>,
    path: &CStr,
    entries_max: usize,
    is_wanted: fn(&[u8]) -> bool,
) -> io::Result<bool> {
    let dir = watch::open(root, path, OFlags::RDONLY | OFlags::DIRECTORY)?;
    let mut space = Vec::with_capacity(32 * 1024);
    let mut entries = RawDir::new(&dir, space.spare_capacity_mut());
    let mut count = 0;
    while let Some(entry) = entries.next() {
        count += 1;
        // The names `.` and `..` are read, too.
        if is_wanted(entry?.file_name().to_bytes()) || count > entries_max + 2 {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The path of an open file.
fn path_of(file: BorrowedFd<'_>) -> io::Result<Box<Path>> {
    let path = std::fs::read_link(open::name_of(file))?;
    Ok(path.into_boxed_path())
}

/// Reads a directory. `targets` are the directory that links are followed from, and how they are followed.
fn list(
    dir: BorrowedFd<'_>,
    entries_max: usize,
    order: EntryOrder,
    targets: Option<(BorrowedFd<'_>, LentTargets)>,
) -> io::Result<Listing> {
    // A description of its own: getdents64(2) moves the offset, and another listing may be under
    // way through the same descriptor.
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = rustix::fs::openat(dir, c".", flags, Mode::empty())?;
    let mut listing = Listing::default();
    if targets.as_ref().is_some_and(|(_, targets)| targets.names) {
        listing.path = path_of(dir.as_fd()).ok();
    }
    let mut space = Vec::with_capacity(32 * 1024);
    let mut entries = RawDir::new(&dir, space.spare_capacity_mut());
    let mut links_left = LISTED_LINKS_MAX;
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        if listing.entries.len() == entries_max {
            listing.truncated = true;
            break;
        }
        // An entry that was removed since it was read is left out, as if it had gone before.
        let Ok(mut stat) = rustix::fs::statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW) else {
            continue;
        };
        let mut target = None;
        if FileType::from_raw_mode(stat.st_mode) == FileType::Symlink {
            listing.has_links = true;
            if let Some((root, LentTargets { path, symlinks, names, .. })) = &targets {
                let Some(left) = links_left.checked_sub(1) else {
                    listing.truncated = true;
                    continue;
                };
                links_left = left;
                let path = path_of_entry(path, name.to_bytes());
                let Ok(file) = open::through_links(*root, &path, open::FIND, symlinks) else {
                    continue;
                };
                if *names {
                    let Ok(path) = path_of(file.as_fd()) else { continue };
                    target = Some(path);
                }
                let Ok(of_target) = fstat(file) else { continue };
                stat = of_target;
            }
        }
        listing.entries.push(Entry {
            name: name.to_bytes().to_vec(),
            kind: match FileType::from_raw_mode(stat.st_mode) {
                FileType::RegularFile => FileKind::Regular,
                FileType::Directory => FileKind::Directory,
                FileType::Symlink => FileKind::Symlink,
                _ => FileKind::Other,
            },
            size: stat.st_size.try_into().unwrap_or(0),
            mtime: stat.st_mtime,
            target,
        });
    }
    listing.entries.sort_unstable_by(order);
    Ok(listing)
}
