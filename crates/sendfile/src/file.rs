//! One open file, and knowledge of its residency in the page cache.
//!
//! Read first: `preadv2(2)` on `RWF_NOWAIT`, mm/filemap.c `filemap_cachestat`, mm/mincore.c. On Linux (6.18, ext4)
//! `cachestat(2)` counts folios that are still being read, so it can prove only that pages are missing. A read with
//! `RWF_NOWAIT` is exact, but copies the range, and starts a read of missing pages. So such a read is made only if
//! `cachestat` counts all pages. Residency is checked in three ways, by block of 256 KiB:
//!
//! | check | when | finds |
//! |---|---|---|
//! | look: `RWF_NOWAIT` of the whole block, or a read of it that has ended | the last look is older than 10 s ([`belief`]), or something is missing | everything |
//! | confirm: `cachestat` of the block | the last look or confirm is older than 5 ms | any page evicted since the look |
//! | touch: `RWF_NOWAIT` of the last requested byte in each block | each use | a file dropped as a whole, or being read again in order |
//!
//! All open files of one inode share this knowledge. If a part of a block was evicted and read again, a touch proves
//! nothing. So while a read of ours in a block is in flight, earlier looks at the block are not used. The end of the
//! read discards the looks at the block. If the kernel reads ahead, the looks at all later blocks are discarded, too.
//! Another worker's read may drop the pages that it brings, and also pages that a look has found. So the workers share
//! a table ([`PageCache`]). While such a read is in flight, no byte of its block is regarded as resident. After the end
//! of the read, earlier looks are not used.
//!
//! Some file systems do not know `RWF_NOWAIT`. So an operation of the ring asks each file system for its name once
//! (`f_type` of `fstatfs(2)`). tmpfs and ramfs have everything in memory, unless there is swap. With swap, and on
//! overlayfs, looks are made by `mincore(2)`, which needs a mapping and is exact. Such a look is used for 5 ms. But
//! `mincore` reports every page as resident to a process that neither owns the file nor may write to it. For such a
//! file, and on all other file systems, nothing is regarded as resident: FUSE and network file systems ask a server
//! even about pages in the page cache. An overlay of a network file system would have to ask the server, too. While a
//! copy replaces a lower file, the look is at the lower file.
//!
//! `sendfile(2)` sleeps for one read in two remaining cases. First: a page is evicted less than 5 ms before its use (50
//! ms where `cachestat` is refused), while the touched byte stays. The kernel hardly ever evicts such a page, because a
//! page that was just used is not on the inactive list. Second: a page was evicted, and another process or worker reads
//! the block of this page again out of order, by a read that is not noted here. The random worlds of
//! `crates/samum/tests/simulation.rs` count the first case, and assert that nothing else sleeps. In a third case
//! `sendfile(2)` may sleep for the journal: the first use of another user's changed file writes the access time, unless
//! the file system is mounted with `noatime`. Besides `sendfile(2)`, a read of the ring in front of a splice may sleep
//! on a device that has no free tag (`docs/linux.md`).

use core::cell::{Cell, OnceCell, RefCell};
use core::ops::Range;
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use pace::{Belief, CHUNK_MIN, Witness, belief};
use ring::{Buffer, Device, Fd, Mapping, PROBE_BYTES_MAX, Ring, Stat, Time};

use crate::direct::Direct;
use crate::page_cache::{Dropping, Inode, PageCache, Uses, Watch};
use crate::way::{OVERLAYFS, RAMFS, TMPFS};

/// The unit of residency: what one exact look covers, and what one read brings.
pub(crate) const BLOCK: u64 = PROBE_BYTES_MAX as u64;
/// The maximum of blocks that are remembered for each inode, which is 1 GiB. At this limit all blocks of the inode are
/// forgotten.
const BLOCKS_MAX: usize = 4096;
/// The maximum distance in bytes of the kernel's readahead ahead of a stream. One file of 1 GiB was read from a disk
/// with windows of 16 MiB. The rate was 1,718 MB/s without this readahead, 2,034 MB/s with 8 MiB, and 2,078 MB/s with
/// 15 MiB (medians of 9 rounds, ±20 %).
const AHEAD_MAX: u64 = 8 << 20;
/// The maximum of pages that a discard leaves in the page cache, at the two ends of its range together.
const EDGE_PAGES: u64 = 2;
/// The table of inodes is swept when it has twice as many inodes as the last sweep left, plus this number. A sweep
/// removes the inodes without open files.
const INODES_UNSWEPT: usize = 64;
pub(crate) const PAGE: u64 = 4096;

/// A regular file that is open for reading.
#[derive(Debug)]
pub struct File {
    fd: Fd,
    size: u64,
    dev: u64,
    device: Device,
    ino: u64,
    telling: Cell<Telling>,
    introduced: Cell<bool>,
    /// The readahead that was set in the kernel.
    readahead: Cell<Option<Readahead>>,
    /// Shared with other open files of the inode, if there are any.
    residency: OnceCell<Rc<Residency>>,
    /// `Some` once `mincore` was asked.
    mapping: RefCell<Option<Mapping>>,
    direct: Direct,
}

/// Knowledge of the residency of an inode.
#[derive(Debug, Default)]
struct Residency {
    /// Blocks that were wholly resident, by block number.
    blocks: RefCell<BTreeMap<u64, Block>>,
    /// The number of reads of ours in flight in each block, by block number; never 0.
    reads: RefCell<BTreeMap<u64, u32>>,
    /// `Some` if a disk has met the inode.
    shared: Option<Shared>,
}

/// The knowledge of all workers about an inode.
#[derive(Debug)]
struct Shared {
    cache: Arc<PageCache>,
    /// The name of the inode in the tables of the cache.
    inode: Inode,
    uses: Arc<Uses>,
}

/// When a block was last found wholly resident.
#[derive(Clone, Copy, Debug)]
struct Block {
    /// The bytes that the block had: the last block of a file may have grown since.
    len: u64,
    looked: Time,
    confirmed: Time,
    /// Names the dropping reads that had ended before the look ([`PageCache::drops`]).
    drops: u64,
}

/// The inodes of open files. If a file is opened again, the responses under way still use the earlier descriptor. Their
/// reads change the residency for both descriptors.
#[derive(Debug, Default)]
pub(crate) struct Inodes {
    /// By device and inode number.
    all: HashMap<(u64, u64), Weak<Residency>>,
    /// The number of entries at which the entries without open files are removed.
    sweep_at: usize,
}

impl Inodes {
    /// Connects a file, from its first use on, to the shared knowledge of its inode.
    pub(crate) fn share(&mut self, file: &File, cache: &Arc<PageCache>) {
        if file.residency.get().is_some() {
            return;
        }
        if self.all.len() >= self.sweep_at {
            self.all.retain(|_, residency| residency.strong_count() > 0);
            self.sweep_at = 2 * self.all.len() + INODES_UNSWEPT;
        }
        let known = self.all.entry((file.dev, file.ino)).or_default();
        let residency = known.upgrade().unwrap_or_else(|| {
            let inode = Inode::new(file.dev, file.ino);
            let shared = Shared { cache: Arc::clone(cache), inode, uses: cache.uses(inode) };
            Rc::new(Residency { shared: Some(shared), ..Residency::default() })
        });
        *known = Rc::downgrade(&residency);
        file.residency.get_or_init(|| residency);
    }
}

/// The kernel's readahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Readahead {
    /// No readahead: for slow disks, and for files that do not stay in the page cache.
    Off,
    /// The readahead that is set for the device: for fast disks. Small reads wait for all bytes that the kernel reads
    /// ahead. So twice this readahead (`POSIX_FADV_SEQUENTIAL`) would double the time of small reads.
    Usual,
}

/// The way in which residency is found on the file's file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Telling {
    /// `cachestat` proves that pages are missing, and `RWF_NOWAIT` proves that pages are resident.
    Both,
    /// Only `RWF_NOWAIT`: `cachestat` is missing, or not permitted on files of others.
    Exact,
    /// A memory file system: everything is resident, unless there is swap. With swap, residency is found as for
    /// `Mapped`.
    Memory,
    /// `mincore` of a mapping: exact where it is permitted.
    Mapped,
    /// Residency cannot be known, or `sendfile` does not accept the file, so nothing counts as resident: FUSE, some
    /// network file systems. `cachestat` still counts pages.
    Nothing,
    /// `mincore` hides residency, so nothing counts as resident.
    Hidden,
}

impl File {
    /// Makes a file of the descriptor of a regular file and its `statx(2)`.
    #[must_use]
    pub fn new(fd: Fd, stat: &Stat) -> Self {
        Self {
            fd,
            size: stat.size,
            dev: stat.dev,
            device: stat.device,
            ino: stat.ino,
            telling: Cell::new(Telling::Both),
            introduced: Cell::new(false),
            readahead: Cell::new(None),
            residency: OnceCell::new(),
            mapping: RefCell::default(),
            direct: Direct::new(stat.direct_align),
        }
    }

    /// Makes a file that is known to be on a memory file system (`tmpfs`, a `memfd`).
    #[must_use]
    pub fn in_memory(fd: Fd, stat: &Stat) -> Self {
        let file = Self::new(fd, stat);
        file.introduce(Some(TMPFS));
        file
    }

    /// Returns whether [`introduce`](Self::introduce) was called.
    pub(crate) fn is_introduced(&self) -> bool {
        self.introduced.get()
    }

    /// Tells the file the magic number of its file system; `None` if the number cannot be known.
    pub(crate) fn introduce(&self, magic: Option<u64>) {
        self.introduced.set(true);
        match magic {
            Some(TMPFS | RAMFS) => self.telling.set(Telling::Memory),
            Some(OVERLAYFS) => self.telling.set(Telling::Mapped),
            _ => {}
        }
    }

    /// Notes that `sendfile(2)` refuses the file: from now on no byte of the file counts as resident, so all bytes are
    /// read.
    pub(crate) fn cannot_be_sent(&self) {
        self.telling.set(Telling::Nothing);
    }

    /// The descriptor.
    #[must_use]
    pub const fn fd(&self) -> &Fd {
        &self.fd
    }

    /// The second descriptor of the file, for reads that bypass the page cache.
    pub(crate) const fn direct(&self) -> &Direct {
        &self.direct
    }

    /// The size in bytes when the file was opened.
    #[must_use]
    pub const fn size(&self) -> u64 {
        self.size
    }

    /// The file system of the file, by the number of its device (`st_dev`).
    #[must_use]
    pub const fn dev(&self) -> u64 {
        self.dev
    }

    /// The device for which reads of the file may have to wait.
    pub(crate) const fn device(&self) -> Device {
        self.device
    }

    /// The knowledge of the file's residency. If no disk has met the file, no other file shares this knowledge.
    fn residency(&self) -> &Residency {
        self.residency.get_or_init(Rc::default)
    }

    fn shared(&self) -> Option<&Shared> {
        self.residency().shared.as_ref()
    }

    /// The bytes of the file in a block.
    fn block_len(&self, number: u64) -> u64 {
        BLOCK.min(self.size.saturating_sub(number * BLOCK))
    }

    /// Counts a request for bytes of the file, and returns whether these bytes are popular.
    pub(crate) fn request(&self, range: &Range<u64>) -> bool {
        let Some(Shared { cache, inode, .. }) = self.shared() else { return true };
        cache.request(*inode, range.start, range.end - range.start)
    }

    /// Notes the begin of a dropping read: a read that drops the pages that it brings into a block. The caller keeps
    /// the result of this function until the pages have been dropped. Until this time, no worker regards the block as
    /// resident. Looks from before this time are not used afterwards.
    pub(crate) fn begin_drop(&self, offset: u64) -> Option<Dropping> {
        let Shared { cache, inode, .. } = self.shared()?;
        Some(cache.begin_drop(*inode, offset / BLOCK))
    }

    /// Does the same as [`begin_drop`](Self::begin_drop) for each block of a range.
    pub(crate) fn begin_drops(&self, range: &Range<u64>) -> Vec<Dropping> {
        let Some(Shared { cache, inode, .. }) = self.shared() else { return Vec::new() };
        blocks_of(range).map(|number| cache.begin_drop(*inode, number)).collect()
    }

    /// Notes that the file is used by a stream whose policy keeps the file in the page cache.
    pub(crate) fn note_kept(&self) {
        if let Some(shared) = self.shared() {
            shared.uses.note();
        }
    }

    /// From now on, watches for uses by streams that keep the file in the page cache, in all workers; `None` if no disk
    /// has met the file.
    pub(crate) fn watch_kept(&self) -> Option<Watch> {
        self.shared().map(|shared| shared.uses.watch())
    }

    /// Returns whether a stream that keeps the file in the page cache has used the file since a watch began.
    pub(crate) fn is_kept_since(&self, watch: Option<Watch>) -> bool {
        self.shared().zip(watch).is_some_and(|(shared, watch)| shared.uses.is_used_since(watch))
    }

    /// Returns true if it is known that no page of a range is in the page cache; up to [`EDGE_PAGES`] pages are
    /// ignored. If so, a read that brings the pages of the range may drop them.
    ///
    /// `cachestat` takes 30 ns for each resident folio and for each evicted folio (Linux 6.18; 40 ms for 5 GiB in
    /// folios of 4 KiB). So the range is checked in steps, and the check ends after the first step that finds pages.
    pub(crate) fn is_absent(&self, ring: &Ring, range: Range<u64>) -> bool {
        let (mut at, mut step, mut found) = (range.start / PAGE * PAGE, BLOCK, 0);
        while at < range.end {
            let end = range.end.min(at.saturating_add(step));
            found += self.known_pages(ring, &(at..end));
            if found > EDGE_PAGES {
                return false;
            }
            (at, step) = (end, step.saturating_mul(2));
        }
        !range.is_empty() && self.telling.get() == Telling::Both
    }

    /// A number that changes with each dropping read of a block that begins: see [`PageCache::drops`].
    fn drops(&self, number: u64) -> Option<u64> {
        match self.shared() {
            Some(Shared { cache, inode, .. }) => cache.drops(*inode, number),
            None => Some(0),
        }
    }

    /// The sum of `drops` of all blocks of a range; `None` if a dropping read is in flight in one of these blocks.
    pub(crate) fn all_drops(&self, range: &Range<u64>) -> Option<u64> {
        blocks_of(range).try_fold(0, |sum: u64, number| Some(sum.wrapping_add(self.drops(number)?)))
    }

    /// Sets the readahead in the kernel, unless it is set already.
    pub(crate) fn advise(&self, ring: &Ring, readahead: Readahead) {
        if self.readahead.replace(Some(readahead)) == Some(readahead) {
            return;
        }
        match readahead {
            Readahead::Off => ring.no_readahead(&self.fd),
            Readahead::Usual => ring.usual_readahead(&self.fd),
        }
    }

    /// Makes the kernel read ahead as if a stream had come to a position at most `room` bytes after `from`. The
    /// pages up to that position are known to be in the page cache or on their way there.
    pub(crate) fn read_ahead(&self, ring: &Ring, from: u64, room: u64) {
        if self.telling.get() != Telling::Both {
            return;
        }
        let mut ahead = room.min(AHEAD_MAX);
        while ahead >= CHUNK_MIN {
            let at = from + ahead;
            if at < self.size && ring.read_ahead_from(&self.fd, at) {
                return;
            }
            ahead /= 2;
        }
    }

    /// Counts the bytes from `offset` on, at most `len`, that can be sent without the disk. 0 means that a read is
    /// needed; the read also finds the end of a truncated file.
    ///
    /// If `look` is true, unknown blocks are looked at. A stream that reads from the disk anyway needs no look: its
    /// next read is as exact, and costs less.
    pub fn resident(&self, ring: &Ring, offset: u64, len: u64, now: Time, look: bool) -> u64 {
        match self.telling.get() {
            Telling::Memory if !ring.has_swap() => return len,
            Telling::Nothing | Telling::Hidden => return 0,
            Telling::Both | Telling::Exact | Telling::Memory | Telling::Mapped => {}
        }
        let end = offset + len;
        let mut at = offset;
        while at < end {
            let within = (end - at).min(BLOCK - at % BLOCK);
            let found = self.resident_in_block(ring, at, within, now, look);
            at += found;
            if found < within {
                return at - offset;
            }
        }
        len
    }

    /// Counts the bytes from `offset` on, at most `len`, for which a [`copy`](Self::copy) is worth a try. A copy is as
    /// exact as a look, so an unknown block is not looked at first.
    pub(crate) fn copyable(
        &self,
        ring: &Ring,
        offset: u64,
        len: u64,
        now: Time,
        look: bool,
    ) -> u64 {
        match self.telling.get() {
            Telling::Both | Telling::Exact if look => {
                if self.may_be_resident(ring, offset, len) {
                    len
                } else {
                    0
                }
            }
            _ => self.resident(ring, offset, len, now, look),
        }
    }

    /// Copies [copyable](Self::copyable) bytes from `offset` on into a buffer. The buffer has no room for more bytes
    /// than these. Returns the number of copied bytes; 0 means that a read is needed.
    pub(crate) fn copy(&self, ring: &Ring, offset: u64, buf: &mut Buffer) -> u64 {
        let copied = match self.telling.get() {
            Telling::Memory | Telling::Mapped => ring.read_mapped(&self.fd, offset, buf),
            _ => ring.read_resident(&self.fd, offset, buf),
        };
        self.note_refusal(&copied);
        copied.unwrap_or(0) as u64
    }

    /// If a result says that the file system does not know `RWF_NOWAIT`, notes this.
    fn note_refusal(&self, result: &io::Result<usize>) {
        if result.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::Unsupported) {
            self.telling.set(Telling::Nothing);
        }
    }

    fn resident_in_block(&self, ring: &Ring, offset: u64, len: u64, now: Time, look: bool) -> u64 {
        let number = offset / BLOCK;
        // While a dropping read of the block is in flight, pages that are found now may be gone in a moment.
        let Some(drops) = self.drops(number) else { return 0 };
        let mut blocks = self.residency().blocks.borrow_mut();
        if let Some(block) = blocks.get_mut(&number) {
            if block.drops == drops
                && self.believes(ring, number, block, now)
                && self.touch(ring, offset + len - 1)
            {
                return len;
            }
            blocks.remove(&number);
        }
        drop(blocks);
        if look { self.look(ring, offset, len, now, drops) } else { 0 }
    }

    fn touch(&self, ring: &Ring, at: u64) -> bool {
        self.probe(ring, at, 1) == Some(1)
    }

    /// Returns whether a block that was wholly resident at its last look still counts as resident.
    fn believes(&self, ring: &Ring, number: u64, block: &mut Block, now: Time) -> bool {
        let is_read = self.residency().reads.borrow().contains_key(&number);
        if is_read || block.len < self.block_len(number) {
            return false;
        }
        let (looked, confirmed) = (now.since(block.looked), now.since(block.confirmed));
        let witness = match self.telling.get() {
            Telling::Exact => Witness::None,
            Telling::Memory | Telling::Mapped => Witness::Mapping,
            _ => Witness::Cachestat,
        };
        match belief(looked, confirmed, witness) {
            Belief::Holds => return true,
            Belief::Over => return false,
            Belief::IfConfirmed => {}
        }
        let start = number * BLOCK;
        let pages = self.block_len(number).div_ceil(PAGE);
        match self.cached_pages(ring, start, pages) {
            Some(cached) => {
                block.confirmed = now;
                cached >= pages
            }
            None => belief(looked, confirmed, Witness::None) == Belief::Holds,
        }
    }

    /// Returns whether all of a range within a block may be resident. `RWF_NOWAIT` begins to read missing pages, with
    /// the kernel's readahead, so `RWF_NOWAIT` is used only if `cachestat` counts all pages. If `cachestat` is refused,
    /// only one byte is touched at first.
    fn may_be_resident(&self, ring: &Ring, offset: u64, len: u64) -> bool {
        let first = offset / PAGE;
        let pages = (offset + len).div_ceil(PAGE) - first;
        if self.telling.get() == Telling::Both
            && let Some(cached) = self.cached_pages(ring, first * PAGE, pages)
        {
            return cached >= pages;
        }
        if self.telling.get() == Telling::Exact {
            self.advise(ring, Readahead::Off);
            return self.touch(ring, offset);
        }
        true
    }

    /// Returns whether more than [`EDGE_PAGES`] pages of a range are known to be in the page cache.
    pub(crate) fn is_cached(&self, ring: &Ring, offset: u64, len: u64) -> bool {
        self.known_pages(ring, &(offset..offset + len)) > EDGE_PAGES
    }

    /// Returns whether `cachestat` counts the pages of the file. `cachestat` counts no page of a file on overlayfs.
    pub(crate) fn counts_pages(&self) -> bool {
        self.is_introduced() && self.telling.get() == Telling::Both
    }

    /// Returns whether pages of a range may be in the page cache, so that a discard could drop these pages. Also
    /// returns true if this cannot be known.
    pub(crate) fn may_be_cached(&self, ring: &Ring, offset: u64, len: u64) -> bool {
        match self.telling.get() {
            _ if !self.is_introduced() => true,
            Telling::Both => self.is_cached(ring, offset, len),
            Telling::Nothing => {
                ring.cached_pages(&self.fd, offset, len).map_or(true, |pages| pages > EDGE_PAGES)
            }
            Telling::Memory | Telling::Mapped => {
                self.ask_mapped(ring, |mapping| mapping.has_any(offset, len)).unwrap_or(true)
            }
            Telling::Exact | Telling::Hidden => true,
        }
    }

    /// Counts the pages of a range that are known to be in the page cache or on their way there.
    pub(crate) fn known_pages(&self, ring: &Ring, range: &Range<u64>) -> u64 {
        let first = range.start / PAGE;
        let pages = range.end.div_ceil(PAGE) - first;
        if self.telling.get() != Telling::Both {
            return 0;
        }
        self.cached_pages(ring, first * PAGE, pages).unwrap_or(0)
    }

    /// The number of pages of the range that are in the page cache or on their way there; `None` if the kernel does not
    /// permit `cachestat`.
    fn cached_pages(&self, ring: &Ring, start: u64, pages: u64) -> Option<u64> {
        let cached = ring.cached_pages(&self.fd, start, pages * PAGE);
        if cached.is_err() {
            self.telling.set(Telling::Exact);
        }
        cached.ok()
    }

    /// Looks at a block, and remembers a block that is wholly resident. Returns the number of resident bytes from
    /// `offset` on, at most `len`.
    fn look(&self, ring: &Ring, offset: u64, len: u64, now: Time, drops: u64) -> u64 {
        let number = offset / BLOCK;
        let start = number * BLOCK;
        let whole = self.block_len(number);
        if whole == 0 {
            return 0;
        }
        let find = |offset, len| match self.may_be_resident(ring, offset, len) {
            true => self.probe(ring, offset, len).unwrap_or(0),
            false => 0,
        };
        let found = find(start, whole);
        if found == whole {
            self.remember(number, now, drops);
        }
        if found > offset - start {
            return len.min(found - (offset - start));
        }
        // If a part of the block is missing, the requested bytes may still be resident.
        if len == whole { 0 } else { find(offset, len) }
    }

    fn probe(&self, ring: &Ring, offset: u64, len: u64) -> Option<u64> {
        let len = usize::try_from(len).expect("at most a block");
        if matches!(self.telling.get(), Telling::Memory | Telling::Mapped) {
            return self.probe_mapped(ring, offset, len);
        }
        let found = ring.probe(&self.fd, offset, len);
        self.note_refusal(&found);
        found.ok().map(|found| found as u64)
    }

    fn probe_mapped(&self, ring: &Ring, offset: u64, len: usize) -> Option<u64> {
        let found = self.ask_mapped(ring, |mapping| mapping.resident(offset, len))?;
        Some((found as u64).min(self.size - offset))
    }

    fn ask_mapped<T>(&self, ring: &Ring, ask: impl Fn(&Mapping) -> io::Result<T>) -> Option<T> {
        let mut mapping = self.mapping.borrow_mut();
        if mapping.is_none() {
            // If the ring has no more mappings, the file is read.
            *mapping = ring.map(&self.fd, self.size).ok();
        }
        let answer = ask(mapping.as_ref()?);
        if answer.is_err() {
            // The kernel hides the residency from this process.
            self.telling.set(Telling::Hidden);
            *mapping = None;
        }
        answer.ok()
    }

    /// Notes that a read of ours begins: [`end_read`](Self::end_read) follows. If `readahead` is on, the kernel may
    /// also read any later block.
    pub(crate) fn begin_read(&self, range: &Range<u64>, readahead: Readahead) {
        if readahead == Readahead::Usual {
            self.forget_from(range.start);
        }
        let mut reads = self.residency().reads.borrow_mut();
        for number in blocks_of(range) {
            *reads.entry(number).or_default() += 1;
        }
    }

    /// Notes that a read of ours has ended, and forgets earlier looks at its blocks.
    pub(crate) fn end_read(&self, range: &Range<u64>, readahead: Readahead) {
        if readahead == Readahead::Usual {
            self.forget_from(range.start);
        }
        let Residency { reads, blocks, .. } = self.residency();
        let (mut reads, mut blocks) = (reads.borrow_mut(), blocks.borrow_mut());
        for number in blocks_of(range) {
            blocks.remove(&number);
            let count = reads.get_mut(&number).expect("each read begins before it ends");
            *count -= 1;
            if *count == 0 {
                reads.remove(&number);
            }
        }
    }

    /// Forgets the looks at blocks that the kernel may be reading ahead now.
    fn forget_from(&self, start: u64) {
        self.residency().blocks.borrow_mut().split_off(&(start / BLOCK));
    }

    /// Notes that the blocks that a read has wholly brought are resident. `drops` is the result of
    /// [`all_drops`](Self::all_drops) for the requested range before the read. If pages may have been dropped since,
    /// nothing is noted.
    pub(crate) fn remember_read(
        &self,
        asked: &Range<u64>,
        len: u64,
        now: Time,
        drops: Option<u64>,
    ) {
        if drops.is_none() || self.all_drops(asked) != drops {
            return;
        }
        let end = asked.start + len;
        for number in asked.start.div_ceil(BLOCK)..end.div_ceil(BLOCK) {
            let is_whole = (number + 1) * BLOCK <= end || end == self.size;
            if let Some(drops) = self.drops(number).filter(|_| is_whole) {
                self.remember(number, now, drops);
            }
        }
    }

    /// Remembers that the whole block is resident now.
    fn remember(&self, number: u64, now: Time, drops: u64) {
        let mut blocks = self.residency().blocks.borrow_mut();
        if blocks.len() >= BLOCKS_MAX {
            blocks.clear();
        }
        let len = self.block_len(number);
        blocks.insert(number, Block { len, looked: now, confirmed: now, drops });
    }
}

/// The numbers of the blocks that a range touches.
const fn blocks_of(range: &Range<u64>) -> Range<u64> {
    range.start / BLOCK..range.end.div_ceil(BLOCK)
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use ring::sim::{Config, World};
    use ring::{Completion, Event, Op, OpenHow};

    use super::*;
    use crate::disk::{Disk, DiskConfig, Owner, ReadRequest};
    use crate::policy::{Caching, Policy};
    use crate::stream_queue::Wait;
    use crate::transport::Takes;

    fn one(ring: &mut Ring, op: Op) -> Event {
        ring.submit(op, 1);
        let mut completions: Vec<Completion> = Vec::new();
        while completions.is_empty() {
            ring.wait(None, &mut completions).unwrap();
        }
        completions.remove(0).result.unwrap()
    }

    fn open(world: &World, ring: &mut Ring) -> File {
        let dir = Some(ring.sim_root(world));
        let how = OpenHow::BENEATH;
        let Event::Opened(fd) = one(ring, Op::Open { dir, path: c"f".into(), how }) else {
            unreachable!("an open ends so")
        };
        let Event::Stat(stat) = one(ring, Op::Stat(fd.clone())) else {
            unreachable!("a stat ends so")
        };
        File::new(fd, &stat)
    }

    /// Where `cachestat` is refused, only the touch would find the eviction. But the page with the touched byte has
    /// been read again, perhaps for a response that uses an earlier descriptor of the inode.
    #[test]
    fn a_look_from_before_the_end_of_a_read_is_not_believed() {
        for (is_ended, is_found_anew) in
            [(false, false), (true, false), (false, true), (true, true)]
        {
            let world = World::new(Config { cachestat_errno: Some(1), ..Config::new(1) });
            world.write_file("f", &[7; 200_000]);
            let mut ring = Ring::simulated(&world);
            let mut inodes = Inodes::default();
            let read = Rc::new(open(&world, &mut ring));
            inodes.share(&read, &Arc::default());
            let used = if is_found_anew { Rc::new(open(&world, &mut ring)) } else { read.clone() };
            inodes.share(&used, &Arc::default());
            let (part, now) = (100_000..150_000, ring.now());
            read.begin_read(&part, Readahead::Off);
            assert_eq!(used.resident(&ring, 0, 200_000, now, true), 200_000);
            world.evict_all();
            let pool = ring::BufferPool::new(PROBE_BYTES_MAX, 1).unwrap();
            let buf = pool.take(50_000).unwrap();
            let (file, caching) = (read.fd().clone(), ring::Caching::Keep);
            let op = Op::Read { file, offset: part.start, buf, caching };
            let Event::Read(_) = one(&mut ring, op) else { unreachable!("a read ends so") };
            let now = ring.now();
            if is_ended {
                read.end_read(&part, Readahead::Off);
            }
            let found = used.resident(&ring, 50_000, 100_000, now, false);
            assert_eq!(found, 0, "ended: {is_ended}, found anew: {is_found_anew}");
        }
    }

    #[test]
    fn a_last_block_that_has_grown_is_not_believed() {
        let world = World::new(Config::new(1));
        world.write_file("f", &[7; 10_000]);
        let mut ring = Ring::simulated(&world);
        let mut inodes = Inodes::default();
        let before = open(&world, &mut ring);
        inodes.share(&before, &Arc::default());
        let now = ring.now();
        assert_eq!(before.resident(&ring, 0, 10_000, now, true), 10_000);
        world.truncate("f", 50_000);
        let after = open(&world, &mut ring);
        inodes.share(&after, &Arc::default());
        let now = ring.now();
        assert_eq!(after.resident(&ring, 0, 50_000, now, false), 0);
    }

    #[test]
    fn inodes_without_open_files_leave_the_table() {
        let world = World::new(Config::new(1));
        world.write_file("f", &[7; 10]);
        let mut ring = Ring::simulated(&world);
        let root = ring.sim_root(&world);
        let Event::Stat(stat) = one(&mut ring, Op::Stat(root)) else {
            unreachable!("a stat ends so")
        };
        let kept = open(&world, &mut ring);
        let mut inodes = Inodes::default();
        let cache = Arc::default();
        inodes.share(&kept, &cache);
        for ino in 1000..2000 {
            inodes.share(&File::new(kept.fd().clone(), &Stat { ino, ..*stat }), &cache);
        }
        assert!(inodes.all.len() <= 2 * INODES_UNSWEPT + 2, "{}", inodes.all.len());
        assert!(inodes.all[&(kept.dev, kept.ino)].strong_count() > 0);
    }

    /// Reads a part of the file in this way, even if it is resident.
    fn read(ring: &mut Ring, disk: &mut Disk, file: &Rc<File>, caching: Caching) {
        disk.introduce(ring, file);
        let request = ReadRequest {
            owner: Owner::of(1),
            at: 0,
            file,
            offset: 50_000,
            len: 50_000,
            policy: Policy { caching, ..Policy::default() },
            wait: Wait::First,
            readahead: Readahead::Off,
            takes: Takes::Files,
            window: u64::MAX,
            turn: Time::default(),
            trail: None,
            is_urgent: true,
        };
        disk.read(ring, request).unwrap();
        let mut completions = Vec::new();
        while ring.in_flight() > 0 {
            ring.wait(None, &mut completions).unwrap();
            completions.retain(|one| disk.owns(one.token));
            completions.drain(..).for_each(|one| drop(disk.handle(ring, one)));
        }
    }

    /// Another worker reads a part of a block and drops this part. The last byte of the block stays, and a touch would
    /// look only at this byte.
    #[test]
    fn a_look_is_not_believed_if_another_worker_drops_what_it_reads() {
        let world = World::new(Config::new(1));
        world.write_file("f", &[7; 200_000]);
        let mut ring = Ring::simulated(&world);
        let (mine, theirs) = (open(&world, &mut ring), Rc::new(open(&world, &mut ring)));
        let cache = Arc::new(PageCache::default());
        let [mut my_disk, mut their_disk] = [0, 1 << 60].map(|token_base| {
            let config = DiskConfig { token_base, ..DiskConfig::default() };
            Disk::sharing(config, Arc::clone(&cache), Arc::default()).unwrap()
        });
        my_disk.introduce(&mut ring, &mine);
        assert_eq!(mine.resident(&ring, 0, 200_000, ring.now(), true), 200_000);
        let looked = ring.now();
        read(&mut ring, &mut their_disk, &theirs, Caching::Always);
        assert_eq!(mine.resident(&ring, 0, 200_000, ring.now(), false), 200_000);
        read(&mut ring, &mut their_disk, &theirs, Caching::Never);
        assert!(ring.now().since(looked) < Duration::from_millis(5));
        assert_eq!(mine.resident(&ring, 0, 200_000, ring.now(), false), 0);
        assert_eq!(mine.resident(&ring, 0, 200_000, ring.now(), true), 200_000, "a look finds out");
        let dropping = theirs.begin_drop(0);
        assert_eq!(mine.resident(&ring, 0, 200_000, ring.now(), true), 0, "it may go at any time");
        drop(dropping);
        assert_eq!(mine.resident(&ring, 0, 200_000, ring.now(), true), 200_000);
    }

    #[test]
    fn what_others_have_brought_is_not_dropped() {
        for can_drop in [true, false] {
            let world = World::new(Config { can_drop, ..Config::new(1) });
            world.write_file("f", &[7; 200_000]);
            let mut ring = Ring::simulated(&world);
            let file = Rc::new(open(&world, &mut ring));
            let mut disk = Disk::new(DiskConfig::default()).unwrap();
            // The first read may show that this file system does not know `RWF_DONTCACHE`.
            for _ in 0..2 {
                read(&mut ring, &mut disk, &file, Caching::Never);
                assert_eq!(file.resident(&ring, 0, 200_000, ring.now(), true), 200_000);
            }
            world.evict_all();
            read(&mut ring, &mut disk, &file, Caching::Never);
            let cached = ring.cached_pages(file.fd(), 0, 200_000).unwrap();
            assert!(cached <= 2, "can drop: {can_drop}: {cached} pages stay");
        }
    }
}
