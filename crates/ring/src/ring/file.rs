//! The direct calls on files: of the kernel, or of the simulated world.

use core::ffi::CStr;
use std::io;

use rustix::fs::Advice;

use super::Ring;
use crate::buffer::Buffer;
use crate::fd::Fd;
use crate::fd::Handle;
use crate::now::{PROBE_BYTES_MAX, file as kernel};
use crate::op::{OpenHow, Stat};
use crate::pipe::{Ends, Pipe, PipePool};
use crate::sim;

/// A mapping that shows which pages of a file are resident; made by [`Ring::map`].
#[derive(Debug)]
pub struct Mapping(Which);

#[derive(Debug)]
enum Which {
    Kernel(kernel::Mapping),
    Sim(sim::Mapping),
}

impl Mapping {
    /// The number of bytes from `offset` on, at most `len` and [`PROBE_BYTES_MAX`], that are in the page
    /// cache. 0 after the end of the file as it was mapped.
    ///
    /// # Errors
    ///
    /// `PermissionDenied` if the kernel hides residency from this process, else the errors of `mincore(2)`.
    pub fn resident(&self, offset: u64, len: usize) -> io::Result<usize> {
        match &self.0 {
            Which::Kernel(mapping) => mapping.resident(offset, len),
            Which::Sim(mapping) => mapping.resident(offset, len.min(PROBE_BYTES_MAX)),
        }
    }

    /// Returns whether any page of a range is in the page cache.
    ///
    /// # Errors
    ///
    /// The errors of [`resident`](Self::resident).
    pub fn has_any(&self, offset: u64, len: u64) -> io::Result<bool> {
        match &self.0 {
            Which::Kernel(mapping) => mapping.has_any(offset, len),
            Which::Sim(mapping) => mapping.has_any(offset, len),
        }
    }
}

impl Ring {
    /// Borrow an empty pipe of a pool for at most `want` bytes from `offset` of a file, or `None`
    /// when all are lent or none can be made. It may hold fewer; see [`Pipe::want`].
    #[must_use]
    pub fn take_pipe(&self, pool: &PipePool, offset: u64, want: usize) -> Option<Pipe> {
        pool.take(offset, want, || {
            let (read, write, capacity) = match self.world() {
                Some(world) => {
                    let (read, write, capacity) = world.make_pipe()?;
                    (Handle::Sim(read), Handle::Sim(write), capacity)
                }
                None => {
                    let (read, write, capacity) = kernel::make_pipe()?;
                    (Handle::Socket(read), Handle::Socket(write), capacity)
                }
            };
            Ok(Ends { read: self.common.fd(read), write: self.common.fd(write), capacity })
        })
    }

    /// Open a path if the kernel has all of its names in memory (`RESOLVE_CACHED` of `openat2(2)`, Linux 5.12) and it does
    /// not leave the mount of `dir`. `None`: submit [`Op::Open`](crate::Op::Open) instead.
    ///
    /// An open with `O_PATH` never sleeps. An open for reading may sleep: a network file system asks its server, a
    /// program may have to permit it (`FAN_OPEN_PERM` of fanotify(7)), and the file system may read an access control list or a
    /// key from the disk.
    ///
    /// # Errors
    ///
    /// The errors of `openat2(2)`.
    pub fn open_cached(&self, dir: &Fd, path: &CStr, how: OpenHow) -> Option<io::Result<Fd>> {
        let opened = match self.world() {
            Some(world) => world.open_cached(dir.raw(), path, how).map(|fd| fd.map(Handle::Sim)),
            None => kernel::open_cached(dir.os(), path, how).map(|fd| fd.map(Handle::File)),
        };
        Some(opened?.map(|handle| {
            let fd = self.common.fd(handle);
            fd.set_device(dir.device());
            fd
        }))
    }

    /// The attributes of a file, if its file system keeps the attributes of open files in memory, as file systems of
    /// disks do. `None`: submit [`Op::Stat`](crate::Op::Stat) instead.
    #[must_use]
    pub fn stat_cached(&self, file: &Fd) -> Option<Stat> {
        let stat = match self.world() {
            Some(world) => world.stat_cached(file.raw()),
            None => kernel::stat_cached(file.os()),
        }?;
        file.set_device(stat.device);
        Some(stat)
    }

    /// Fill a buffer from the beginning of a file, if all bytes that it [wants](Buffer::want) are in the page cache.
    /// Returns false if they are not, or if the kernel does not report it (before Linux 6.5; for files that this
    /// process neither owns nor may write). Then submit [`Op::Read`](crate::Op::Read) instead.
    ///
    /// The descriptor gets `O_NOATIME`: writing the access time could wait for the disk.
    #[must_use]
    pub fn read_cached(&self, file: &Fd, buf: &mut Buffer) -> bool {
        match self.world() {
            Some(world) => {
                let bytes = world.read_cached(file.raw(), buf.want());
                bytes.inspect(|bytes| buf.fill_from(bytes)).is_some()
            }
            None => kernel::read_cached(file.os(), buf),
        }
    }

    /// Fill a buffer with resident bytes from `offset` of a file on, at most as many as it [wants](Buffer::want), and
    /// return their number. The first byte that is not in the page cache is the end. 0 is the end of the file. The kernel
    /// may begin to read missing pages, so ask [`cached_pages`](Self::cached_pages) first.
    ///
    /// # Errors
    ///
    /// As [`probe`](Self::probe).
    pub fn read_resident(&self, file: &Fd, offset: u64, buf: &mut Buffer) -> io::Result<usize> {
        match self.world() {
            Some(world) => world.read_resident(file.raw(), offset, buf),
            None => kernel::read_resident(file.os(), offset, buf),
        }
    }

    /// Does the same on file systems on which [`probe`](Self::probe) fails: for bytes that a [`Mapping`] has just shown,
    /// or that are always in memory. It sleeps for a byte that is not resident.
    ///
    /// # Errors
    ///
    /// The errors of `preadv2(2)`.
    pub fn read_mapped(&self, file: &Fd, offset: u64, buf: &mut Buffer) -> io::Result<usize> {
        match self.world() {
            Some(world) => world.read_mapped(file.raw(), offset, buf),
            None => kernel::read_mapped(file.os(), offset, buf),
        }
    }

    /// The exact number of bytes from `offset` on, at most `len` and [`PROBE_BYTES_MAX`], that can be read without the
    /// disk. 0 is the end of the file. Costs as much as reading them. The kernel may begin to read missing pages, so
    /// ask [`cached_pages`](Self::cached_pages) first.
    ///
    /// # Errors
    ///
    /// `WouldBlock` when not even the first byte is resident, `EOPNOTSUPP` where the file system does not support the
    /// flag, else the errors of `preadv2(2)`.
    pub fn probe(&self, file: &Fd, offset: u64, len: usize) -> io::Result<usize> {
        match self.world() {
            Some(world) => world.probe(file.raw(), offset, len.min(PROBE_BYTES_MAX)),
            None => kernel::probe(file.os(), offset, len),
        }
    }

    /// Pages of the range that are in the page cache *or on their way*. Fewer pages than the range has mean that it is
    /// not resident; all of them mean nothing. `len` must not be 0.
    ///
    /// # Errors
    ///
    /// `ENOSYS` before Linux 6.5, `EPERM` for a file that is neither ours nor writable,
    /// `EOPNOTSUPP` for hugetlbfs.
    pub fn cached_pages(&self, file: &Fd, offset: u64, len: u64) -> io::Result<u64> {
        match self.world() {
            Some(world) => world.cached_pages(file.raw(), offset, len),
            None => kernel::cached_pages(file.os(), offset, len),
        }
    }

    /// Map a file of `size` bytes to learn which pages are resident, for file systems on which [`probe`](Self::probe)
    /// fails. A ring keeps 1,024 mappings.
    ///
    /// # Errors
    ///
    /// The errors of `mmap(2)`, `OutOfMemory` beyond the limit of mappings.
    pub fn map(&self, file: &Fd, size: u64) -> io::Result<Mapping> {
        match self.world() {
            Some(world) => Ok(Mapping(Which::Sim(world.map(file.raw())?))),
            None => Ok(Mapping(Which::Kernel(kernel::Mapping::new(file.os(), size)?))),
        }
    }

    /// Returns whether pages of memory file systems can be swapped out on this machine.
    #[must_use]
    pub fn has_swap(&self) -> bool {
        match self.world() {
            Some(world) => world.has_swap(),
            None => kernel::has_swap(),
        }
    }

    /// Makes the kernel read ahead as if a read had come to `offset`, and returns whether its page is in the page cache
    /// or on its way there. Otherwise this does nothing, because the kernel would mistake the file for one that is read
    /// at random. It also does nothing before a read of the file has ended, because the kernel might sleep for
    /// metadata.
    ///
    /// The kernel begins to read the next window of its readahead when a read comes to the page that it has marked, the
    /// first of the last window. If the disk has brought the last window by then, it is idle until that page is needed.
    /// An earlier request keeps the next window on its way.
    #[must_use]
    pub fn read_ahead_from(&self, file: &Fd, offset: u64) -> bool {
        if !file.was_read() || !self.cached_pages(file, offset, 1).is_ok_and(|pages| pages > 0) {
            return false;
        }
        match self.world() {
            Some(world) => world.read_ahead_from(file.raw(), offset),
            None => drop(kernel::probe(file.os(), offset, 1)),
        }
        true
    }

    /// Switch off the kernel's readahead on a file (`POSIX_FADV_RANDOM`), because a later `sendfile(2)` would sleep for
    /// pages that it has begun to read. Returns at once: the flag is on the descriptor.
    pub fn no_readahead(&self, file: &Fd) {
        file.set_random(true);
        match self.world() {
            Some(world) => world.no_readahead(file.raw()),
            None => kernel::advise(file.os(), Advice::Random),
        }
    }

    /// Make the kernel read ahead on a file as far as its device is set up to (`POSIX_FADV_NORMAL`). Returns at once:
    /// the flag is on the descriptor.
    pub fn usual_readahead(&self, file: &Fd) {
        file.set_random(false);
        match self.world() {
            Some(_) => {}
            None => kernel::advise(file.os(), Advice::Normal),
        }
    }
}
