//! The page cache, as the workers of a process see it together.

use core::sync::atomic::{AtomicU64, Ordering};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use pace::popularity::{CounterLine, Popularity, Sums, hash};

/// Knowledge of the page cache that the [`Disk`](crate::Disk)s of a process share: the popular files, the files used by
/// streams that keep them, and the blocks that are being read and do not stay.
#[derive(Debug)]
pub struct PageCache {
    counters: Box<[CounterLine]>,
    sums: Sums,
    /// The bytes of files that it has room for.
    capacity: u64,
    /// By the hash of a block: the number of dropping reads in flight in the low half, and of those
    /// that have ended in the high half.
    drops: [AtomicU64; SLOTS],
    /// The bytes of all [`Leaving`].
    leaving: AtomicU64,
    leaving_max: u64,
    /// The open inodes. The lock is taken when a disk meets an inode, and when the last disk leaves it.
    uses: Mutex<HashMap<Inode, Weak<Uses>>>,
}

/// The uses of an inode by streams for which it is to stay in the page cache, in all workers.
#[derive(Debug)]
pub(crate) struct Uses {
    cache: Arc<PageCache>,
    inode: Inode,
    /// Odd if there was a use since the last [watch](Self::watch) began. So streams that only use the inode seldom
    /// write to the cache line that they share.
    state: AtomicU64,
}

/// Tells whether an inode was used since a certain time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Watch(u64);

/// The name of an inode in the tables, which is a hash of its device and number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Inode(u64);

/// A read that drops the pages it brings from the page cache, until this is dropped.
#[derive(Debug)]
pub(crate) struct Dropping {
    cache: Arc<PageCache>,
    slot: usize,
}

/// Bytes in the page cache that a stream no longer refers to, until their first discard or the drop of this value.
#[derive(Debug)]
pub(crate) struct Leaving {
    cache: Arc<PageCache>,
    bytes: u64,
}

impl PageCache {
    /// A page cache with room for `bytes` of files. A request for more than an eighth of them is never popular.
    #[must_use]
    pub fn new(bytes: u64) -> Self {
        Self {
            counters: (0..Popularity::lines(bytes)).map(|_| CounterLine::default()).collect(),
            sums: Sums::default(),
            capacity: bytes,
            drops: [const { AtomicU64::new(0) }; SLOTS],
            leaving: AtomicU64::new(0),
            leaving_max: bytes / LEAVING_SHARE,
            uses: Mutex::default(),
        }
    }

    /// Counts a request for bytes of a file, and returns whether they are popular: popular bytes fit into the page
    /// cache together.
    pub(crate) fn request(&self, inode: Inode, offset: u64, bytes: u64) -> bool {
        Popularity::new(&self.counters, &self.sums, self.capacity).request(inode.0, offset, bytes)
    }

    /// A dropping read of a block begins.
    pub(crate) fn begin_drop(self: &Arc<Self>, inode: Inode, block: u64) -> Dropping {
        let slot = slot(inode, block);
        self.drops[slot].fetch_add(1, Ordering::AcqRel);
        Dropping { cache: Arc::clone(self), slot }
    }

    /// Returns a number that stays the same for as long as no dropping read of a block begins; `None`
    /// if one is in flight. Other blocks may have the same number.
    pub(crate) fn drops(&self, inode: Inode, block: u64) -> Option<u64> {
        let drops = self.drops[slot(inode, block)].load(Ordering::Acquire);
        (drops & IN_FLIGHT == 0).then_some(drops)
    }

    /// No bytes that leave, to which a stream adds.
    pub(crate) fn leaving(self: &Arc<Self>) -> Leaving {
        Leaving { cache: Arc::clone(self), bytes: 0 }
    }

    /// Returns whether the bytes that all workers have yet to discard take too much of the room.
    pub(crate) fn is_crowded(&self) -> bool {
        self.leaving.load(Ordering::Relaxed) > self.leaving_max
    }

    /// The uses of an inode.
    pub(crate) fn uses(self: &Arc<Self>, inode: Inode) -> Arc<Uses> {
        let mut all = self.all_uses();
        if let Some(uses) = all.get(&inode).and_then(Weak::upgrade) {
            return uses;
        }
        let uses = Arc::new(Uses { cache: Arc::clone(self), inode, state: AtomicU64::new(0) });
        all.insert(inode, Arc::downgrade(&uses));
        uses
    }

    fn all_uses(&self) -> MutexGuard<'_, HashMap<Inode, Weak<Uses>>> {
        self.uses.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Uses {
    /// Notes a use.
    pub(crate) fn note(&self) {
        // Relaxed: nothing is handed over. A watcher that has not seen it yet is as if the use came later.
        if self.state.load(Ordering::Relaxed).is_multiple_of(2) {
            self.state.fetch_or(1, Ordering::Relaxed);
        }
    }

    /// Watches for uses from now on.
    pub(crate) fn watch(&self) -> Watch {
        // For those that watched before, any other number says that there was a use.
        let even = |state: u64| Some(state.next_multiple_of(2));
        let before = self.state.fetch_update(Ordering::Relaxed, Ordering::Relaxed, even);
        let (Ok(state) | Err(state)) = before;
        Watch(state.next_multiple_of(2))
    }

    /// Returns whether there was a use since a watch began.
    pub(crate) fn is_used_since(&self, watch: Watch) -> bool {
        self.state.load(Ordering::Relaxed) != watch.0
    }
}

impl Drop for Uses {
    fn drop(&mut self) {
        let mut all = self.cache.all_uses();
        // Another worker may have met the inode since.
        if all.get(&self.inode).is_some_and(|uses| uses.strong_count() == 0) {
            all.remove(&self.inode);
        }
    }
}

impl Leaving {
    /// Sets the number of bytes that the stream no longer refers to.
    pub(crate) fn set(&mut self, bytes: u64) {
        // Relaxed: it is a sum, and publishes no other memory. It wraps in both directions.
        self.cache.leaving.fetch_add(bytes.wrapping_sub(self.bytes), Ordering::Relaxed);
        self.bytes = bytes;
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Takes the bytes out, because they are discarded now or with the returned value.
    pub(crate) fn take(&mut self) -> Self {
        Self { cache: Arc::clone(&self.cache), bytes: core::mem::take(&mut self.bytes) }
    }
}

impl Drop for Leaving {
    fn drop(&mut self) {
        self.cache.leaving.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Default for PageCache {
    /// 8 GiB, so that a file of 1 GiB may be popular.
    fn default() -> Self {
        Self::new(8 << 30)
    }
}

impl Inode {
    pub(crate) const fn new(dev: u64, ino: u64) -> Self {
        Self(hash(hash(dev) ^ ino))
    }
}

impl Drop for Dropping {
    fn drop(&mut self) {
        // Counts one more ended drop, and one less in flight.
        self.cache.drops[self.slot].fetch_add(IN_FLIGHT, Ordering::AcqRel);
    }
}

fn slot(inode: Inode, block: u64) -> usize {
    usize::try_from(hash(inode.0.wrapping_add(block)) % SLOTS as u64).expect("less than SLOTS")
}

/// Blocks that have the same slot are looked at more often than need be, and sometimes read.
const SLOTS: usize = 1024;
/// When the bytes that wait for a discard need more than this fraction of the room for files, the oldest are discarded
/// immediately. At 1 GiB/s streams leave 100 MiB behind in 0.1 s. It does not matter to a large machine, but is a
/// quarter of a container of 384 MiB.
const LEAVING_SHARE: u64 = 24;
/// The bits of a slot that count reads in flight: to add it takes one off, and carries to the others.
const IN_FLIGHT: u64 = u32::MAX as u64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_a_block_changes_with_each_dropping_read() {
        let cache = Arc::new(PageCache::default());
        let inode = Inode::new(1, 2);
        let before = cache.drops(inode, 7).unwrap();
        let (first, second) = (cache.begin_drop(inode, 7), cache.begin_drop(inode, 7));
        assert_eq!(cache.drops(inode, 7), None);
        drop(first);
        assert_eq!(cache.drops(inode, 7), None, "the second is in flight");
        drop(second);
        let after = cache.drops(inode, 7).unwrap();
        assert_ne!(before, after);
        assert_eq!(cache.drops(inode, 7), Some(after), "nothing has begun");
        assert_eq!(cache.drops(inode, 8), Some(0), "another block");
        for _ in 0..1000 {
            drop(cache.begin_drop(inode, 7));
        }
        assert_eq!(cache.drops(inode, 7), Some(after + (1000 << 32)));
    }

    #[test]
    fn each_watch_sees_the_uses_since_it_began() {
        let cache = Arc::new(PageCache::default());
        let inode = Inode::new(1, 2);
        let (mine, theirs) = (cache.uses(inode), cache.uses(inode));
        theirs.note();
        let first = mine.watch();
        assert!(!mine.is_used_since(first));
        let second = mine.watch();
        cache.uses(Inode::new(1, 3)).note();
        assert!(!mine.is_used_since(first) && !mine.is_used_since(second));
        theirs.note();
        assert!(mine.is_used_since(first) && mine.is_used_since(second));
        let third = theirs.watch();
        assert!(mine.is_used_since(first) && !mine.is_used_since(third));
    }

    #[test]
    fn inodes_that_no_worker_has_open_leave_the_table() {
        let cache = Arc::new(PageCache::default());
        let mut uses: Vec<_> = (0..10).map(|ino| cache.uses(Inode::new(1, ino))).collect();
        let again = cache.uses(Inode::new(1, 0));
        uses.clear();
        assert_eq!(cache.all_uses().len(), 1);
        drop(again);
        assert_eq!(cache.all_uses().len(), 0);
    }

    #[test]
    fn a_player_that_asks_for_pieces_of_a_file_makes_nothing_popular() {
        const MIB: u64 = 1 << 20;
        let cache = PageCache::new(64 * MIB);
        let (film, page) = (Inode::new(1, 1), Inode::new(1, 2));
        let mut popular = 0;
        for piece in 0..1024 {
            popular += u32::from(cache.request(film, piece * MIB, MIB));
            cache.request(page, 0, MIB);
        }
        assert!(popular < 80, "{popular} of 1024");
        assert!(cache.request(page, 0, MIB));
    }
}
