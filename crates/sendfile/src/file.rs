//! One open file, and what is known of its residency in the page cache.
//!
//! Read first: `preadv2(2)` on `RWF_NOWAIT`, mm/filemap.c `filemap_cachestat`. What Linux does
//! (6.18, ext4): `cachestat(2)` counts folios that are still being read, so it can say no but not
//! yes; `RWF_NOWAIT` is exact but costs a copy of the range. So a block is looked at exactly once
//! in a while, and between two looks `cachestat` shows whether it has been evicted. What remains
//! is a block that another process has evicted and is reading again in that while: its first and
//! last byte are tried before each use, which catches the reads that come in order.

use core::cell::{Cell, RefCell};
use core::time::Duration;
use std::collections::HashMap;
use std::io;

use ring::{Fd, PROBE_BYTES_MAX, Ring, Stat, Time};

/// The unit of residency: what one exact look covers, and what one read brings.
pub(crate) const BLOCK: u64 = PROBE_BYTES_MAX as u64;
/// How long an exact look is believed, if `cachestat` finds nothing missing.
const BELIEF: Duration = Duration::from_secs(10);
/// Blocks remembered per file; beyond it (1 GiB) each use looks exactly.
const BLOCKS_MAX: usize = 4096;
const PAGE: u64 = 4096;

/// Files up to this size stay in the page cache with [`Caching::Auto`] from the first read on.
pub const SMALL_BYTES_MAX: u64 = 1024 * 1024;
/// Uses after which a large file is worth caching.
const POPULAR_USES: u32 = 2;

/// What becomes of the page cache when a file is read from the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Caching {
    /// Small and popular files stay; a large file read for the first time does not.
    #[default]
    Auto,
    /// Everything stays.
    Always,
    /// Nothing stays.
    Never,
}

/// A regular file that is open for reading.
#[derive(Debug)]
pub struct File {
    fd: Fd,
    size: u64,
    dev: u64,
    uses: Cell<u32>,
    telling: Cell<Telling>,
    /// When each block was last found wholly resident, by block number.
    looked: RefCell<HashMap<u64, Time>>,
}

/// How residency can be told on the file's file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Telling {
    /// `cachestat` says no, `RWF_NOWAIT` says yes.
    Both,
    /// Only `RWF_NOWAIT`: `cachestat` is missing, or not permitted on files of others.
    Exact,
    /// Everything is always resident: memory file systems.
    Memory,
    /// Nothing can be known, so nothing is resident: FUSE, some network file systems.
    Nothing,
}

impl File {
    /// Take a regular file, with what `statx(2)` says of it. Switches the kernel's readahead off
    /// for this descriptor.
    #[must_use]
    pub fn new(ring: &Ring, fd: Fd, stat: &Stat) -> Self {
        ring.no_readahead(&fd);
        Self {
            fd,
            size: stat.size,
            dev: stat.dev,
            uses: Cell::new(0),
            telling: Cell::new(Telling::Both),
            looked: RefCell::default(),
        }
    }

    /// The same for a file on a memory file system (`tmpfs`, a `memfd`), which never needs a disk.
    #[must_use]
    pub fn in_memory(ring: &Ring, fd: Fd, stat: &Stat) -> Self {
        let file = Self::new(ring, fd, stat);
        file.telling.set(Telling::Memory);
        file
    }

    /// The descriptor.
    #[must_use]
    pub const fn fd(&self) -> &Fd {
        &self.fd
    }

    /// Bytes, as of when it was opened.
    #[must_use]
    pub const fn size(&self) -> u64 {
        self.size
    }

    /// The file system it is on.
    #[must_use]
    pub const fn dev(&self) -> u64 {
        self.dev
    }

    /// Count a use, for [`Caching::Auto`].
    pub(crate) fn count_use(&self) {
        self.uses.set(self.uses.get().saturating_add(1));
    }

    /// Whether what is read shall stay in the page cache.
    pub(crate) fn keeps(&self, caching: Caching) -> bool {
        match caching {
            Caching::Always => true,
            Caching::Never => false,
            Caching::Auto => self.size <= SMALL_BYTES_MAX || self.uses.get() >= POPULAR_USES,
        }
    }

    /// How many bytes from `offset` on, at most `len` and the rest of the block, can be sent
    /// without the disk. 0 means that a read is needed (which also finds the end of a file that
    /// has been truncated).
    pub fn resident(&self, ring: &Ring, offset: u64, len: u64, now: Time) -> u64 {
        let len = len.min(BLOCK - offset % BLOCK);
        match self.telling.get() {
            Telling::Memory => len,
            Telling::Nothing => 0,
            Telling::Both if self.believed(offset / BLOCK, now) => self.confirm(ring, offset, len, now),
            Telling::Both | Telling::Exact => self.look(ring, offset, len, now),
        }
    }

    fn believed(&self, block: u64, now: Time) -> bool {
        self.looked.borrow().get(&block).is_some_and(|when| now.since(*when) < BELIEF)
    }

    /// The block was wholly resident not long ago: is it still?
    fn confirm(&self, ring: &Ring, offset: u64, len: u64, now: Time) -> u64 {
        let first = offset / PAGE * PAGE;
        let pages = (offset + len).div_ceil(PAGE) - first / PAGE;
        match ring.cached_pages(&self.fd, first, pages * PAGE) {
            Ok(cached) if cached >= pages => {
                let ends = [offset, offset + len - 1];
                if ends.iter().all(|at| matches!(ring.probe(&self.fd, *at, 1), Ok(1))) {
                    return len;
                }
            }
            Ok(_) => {}
            Err(_) => self.telling.set(Telling::Exact),
        }
        self.looked.borrow_mut().remove(&(offset / BLOCK));
        self.look(ring, offset, len, now)
    }

    /// Look exactly, at the whole block if that can be remembered.
    fn look(&self, ring: &Ring, offset: u64, len: u64, now: Time) -> u64 {
        if self.telling.get() == Telling::Both {
            let block = offset / BLOCK;
            let start = block * BLOCK;
            let whole = BLOCK.min(self.size.saturating_sub(start));
            match self.probe(ring, start, whole) {
                Some(found) if found == whole => {
                    self.remember(block, now);
                    return len.min(whole - (offset - start));
                }
                Some(found) if found > offset - start => return len.min(found - (offset - start)),
                // Nothing at the start of the block says nothing about its end.
                Some(_) | None if offset == start => return 0,
                _ => {}
            }
        }
        self.probe(ring, offset, len).unwrap_or(0)
    }

    fn probe(&self, ring: &Ring, offset: u64, len: u64) -> Option<u64> {
        let len = usize::try_from(len).expect("at most a block");
        match ring.probe(&self.fd, offset, len) {
            Ok(found) => Some(found as u64),
            Err(error) => {
                if error.kind() == io::ErrorKind::Unsupported {
                    self.telling.set(Telling::Nothing);
                }
                None
            }
        }
    }

    /// The whole block is resident now: a read that stays in the page cache has just brought it.
    pub(crate) fn remember(&self, block: u64, now: Time) {
        let mut looked = self.looked.borrow_mut();
        if looked.len() >= BLOCKS_MAX {
            looked.clear();
        }
        looked.insert(block, now);
    }
}
