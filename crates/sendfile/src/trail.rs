//! The pages behind a stream that does not fill the page cache: they are discarded once they were sent.
//!
//! A splice with the kernel's readahead is the cheapest way from the disk to a socket, but it leaves its pages in
//! the page cache. So they are discarded when the stream no longer refers to them. The kernel keeps pages that packets
//! still refer to (`mapping_try_invalidate` in mm/truncate.c), and folios of which a part is outside the range
//! (`find_lock_entries` in mm/filemap.c). So each discard begins in front of the one before it. After the end of a
//! stream, discards are repeated, each after a longer pause, because its peer may acknowledge late. The kernel reclaims
//! the pages that remain then. In a small memory, pages that wait for their discard would displace pages that are kept.
//! There the first discard comes without a pause, with the next read of any such stream of the worker.
//!
//! A range is spliced and discarded only if nothing of its next 256 MiB was in memory. Nothing of the 64 MiB after them
//! may be in memory, either: the kernel may read ahead so far. Then all pages are ours. A stream that keeps its pages
//! in the page cache marks the inode when it sends, and around each of its reads, so its pages are not discarded. Other
//! processes cannot be seen. Pages that they bring of such a file while it is sent, and for a minute after its end, may
//! be discarded. Pages that they brought before are seen and stay.
//!
//! `cachestat(2)` takes 30 ns for each folio that is resident or was evicted, which is 40 ms for 5 GiB in folios of 4
//! KiB. So a call ends with the first page found, and the next range is looked at when the stream comes near. If
//! `cachestat(2)` is not available, nothing is discarded.
//!
//! The bytes that wait for their discard are counted for all workers. At 1 GiB/s they are 100 MiB, which displaces
//! popular files in a small container. So beyond 1/32 of the memory the oldest bytes are discarded before their time,
//! and once more at their time. A stream that reads all of such a range ends its discards, because they would drop
//! pages that were read ahead for it.

use core::cell::{Cell, RefCell};
use core::cmp::Reverse;
use core::ops::Range;
use core::time::Duration;
use std::collections::VecDeque;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use pace::CHUNK_MAX;
use ring::{Ring, Time};

use crate::file::{File, PAGE};
use crate::page_cache::{Leaving, PageCache, Watch};

/// The pause before the first discard after a stream that has ended, and the interval for [`Trails::due`]. On most
/// paths packets are acknowledged within it, and at 1 GiB/s it leaves 100 MiB behind.
pub(crate) const PAUSE: Duration = Duration::from_millis(100);
/// The factor by which each further pause is longer: 0.1, 0.8, 6.4 and 51 s. In this time even a slow peer has taken
/// the 4 MiB that a socket may hold (`tcp_wmem`).
const PAUSE_FACTOR: u32 = 8;
/// The discards of a range after the last progress of its stream. After the last discard, the kernel reclaims the pages that
/// remain.
const TRIES_MAX: u32 = 4;
/// If at least this many bytes behind a running stream can be discarded, they are discarded. Fewer bytes wait for the
/// end of the stream.
const STEP: u64 = 1 << 20;
/// The maximum of discards that one read may bring forward. A read adds at most one range, so these discards catch up.
/// Each discard notes the blocks of its range, on the event loop.
const EARLY_MAX: usize = 4;
/// A discard begins so far in front of the end of the one before it: packets refer to 4 MiB at most, and a folio
/// has 2 MiB at most.
const AGAIN: u64 = 8 << 20;
/// The bytes after the end of a stream's reads that its last discard covers: the largest usual readahead of the
/// kernel.
const AHEAD: u64 = 64 << 20;
/// The bytes that are searched in one step for pages to keep, because the search is made on the event loop. In the
/// worst case, pages that were evicted one by one, it takes some 3 ms.
const LOOK: u64 = 256 << 20;

/// The trails of all streams of a worker.
#[derive(Debug)]
pub(crate) struct Trails {
    page_cache: Arc<PageCache>,
    followed: RefCell<Vec<Weak<Trail>>>,
    /// Ranges of streams that have ended, and where memory is short of those that go on.
    left: RefCell<VecDeque<Left>>,
    /// The maximum of ranges that wait; each keeps its file open. Ranges beyond it are discarded without a pause, once.
    left_max: usize,
}

/// The part of a file that a stream reads, from the first read on, and that is to leave the page cache.
#[derive(Debug)]
pub(crate) struct Trail {
    trails: Rc<Trails>,
    file: Rc<File>,
    /// Since the stream began.
    watch: Option<Watch>,
    start: u64,
    /// The range from the start to here was not in the page cache when it was looked at.
    absent_to: Cell<u64>,
    /// The stream no longer refers to the bytes in front of this position.
    let_go: Cell<u64>,
    /// The end of the last range that was taken out to be discarded.
    discarded: Cell<u64>,
    /// The bytes between these two, from [`STEP`] on.
    leaving: RefCell<Leaving>,
}

/// A read of a stream, and its result. Its drop means that the stream no longer refers to the pages.
#[derive(Debug)]
pub(crate) struct Held {
    trail: Rc<Trail>,
    end: u64,
}

/// A range that is to leave the page cache.
#[derive(Debug)]
pub(crate) struct Left {
    pub(crate) file: Rc<File>,
    pub(crate) range: Range<u64>,
    watch: Option<Watch>,
    /// Its bytes, until its first discard begins.
    leaving: Option<Leaving>,
    /// Discards so far, each at its time.
    tries: u32,
    /// The time of the next try; `None` if none is set yet, because the stream has just ended, or for an early discard.
    due: Option<Time>,
}

impl Trail {
    /// Returns the end of the part of a file that is looked at before reads of a range begin, or go on at its start.
    /// The kernel's readahead and the last discard go beyond the reads. Only the beginning of a long range is looked
    /// at.
    pub(crate) fn reach(file: &File, range: &Range<u64>) -> u64 {
        let end = range.end.min(range.start.saturating_add(LOOK));
        file.size().min(end.saturating_add(AHEAD))
    }

    /// Returns whether a read of the same stream belongs to this trail, if nothing is in the page cache there: see
    /// [`reaches`](Self::reaches).
    pub(crate) fn covers(&self, file: &Rc<File>, offset: u64) -> bool {
        Rc::ptr_eq(&self.file, file) && (self.start..=self.absent_to.get()).contains(&offset)
    }

    /// Returns whether the page cache has no pages of others where the next read of a range has an effect. It looks
    /// only after the part that was absent before, because the stream has not read there.
    pub(crate) fn reaches(&self, ring: &Ring, range: &Range<u64>) -> bool {
        let next = range.start..range.end.min(range.start.saturating_add(CHUNK_MAX));
        let absent_to = self.absent_to.get();
        if Self::reach(&self.file, &next) > absent_to {
            let reach = Self::reach(&self.file, range);
            if !self.file.is_absent(ring, absent_to..reach) {
                return false;
            }
            self.absent_to.set(reach);
            self.trails.forget(&self.file, &(absent_to..reach));
        }
        true
    }

    /// Returns whether a stream of any worker that keeps the file has used it meanwhile.
    pub(crate) fn is_wanted(&self) -> bool {
        self.file.is_kept_since(self.watch)
    }

    /// Notes that the stream reads up to `end`, until the result is dropped.
    pub(crate) fn hold(self: &Rc<Self>, end: u64) -> Held {
        Held { trail: Rc::clone(self), end }
    }

    /// If memory is short, the pages behind the stream are queued for a discard before its time.
    fn leave_early(&self) {
        if self.trails.page_cache.is_crowded()
            && let Some(passed) = self.passed()
        {
            self.trails.left.borrow_mut().push_back(passed);
        }
    }

    /// Takes out the bytes that the stream has passed since the last discard, if they are enough for one. The bytes of
    /// a file that is wanted only stop counting.
    fn passed(&self) -> Option<Left> {
        let end = self.let_go.get();
        if end < self.discarded.get() + STEP {
            return None;
        }
        // The next discard begins in front of this one's end, so there is no second try.
        let passed = self.left(end, TRIES_MAX);
        self.discarded.set(end);
        (!self.is_wanted()).then_some(passed)
    }

    /// The range up to `end` that is to be discarded now.
    fn left(&self, end: u64, tries: u32) -> Left {
        let start = self.start.max(self.discarded.get().saturating_sub(AGAIN));
        let (file, watch) = (Rc::clone(&self.file), self.watch);
        let mut leaving = self.leaving.borrow_mut();
        leaving.set(self.let_go.get() - self.discarded.get());
        let leaving = (!leaving.is_empty()).then(|| leaving.take());
        Left { file, range: start..end, watch, leaving, tries, due: None }
    }
}

impl Drop for Trail {
    fn drop(&mut self) {
        if self.let_go.get() > self.start && !self.is_wanted() {
            let end = self.file.size().min(self.let_go.get().saturating_add(AHEAD));
            self.trails.left.borrow_mut().push_back(self.left(end, 0));
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let Trail { let_go, discarded, leaving, .. } = &*self.trail;
        let_go.set(let_go.get().max(self.end));
        let bytes = let_go.get() - discarded.get();
        if bytes >= STEP {
            leaving.borrow_mut().set(bytes);
            self.trail.leave_early();
        }
    }
}

impl Trails {
    pub(crate) fn new(left_max: usize, page_cache: Arc<PageCache>) -> Self {
        Self { page_cache, followed: RefCell::default(), left: RefCell::default(), left_max }
    }

    /// Begins a stream that reads the file from `offset` on, when the page cache has nothing of the file from there to
    /// `absent_to`.
    pub(crate) fn begin(
        self: &Rc<Self>,
        file: &Rc<File>,
        offset: u64,
        absent_to: u64,
    ) -> Rc<Trail> {
        let start = offset / PAGE * PAGE;
        self.forget(file, &(start..absent_to));
        let trail = Rc::new(Trail {
            trails: Rc::clone(self),
            file: Rc::clone(file),
            watch: file.watch_kept(),
            start,
            absent_to: Cell::new(absent_to),
            let_go: Cell::new(start),
            discarded: Cell::new(start),
            leaving: RefCell::new(self.page_cache.leaving()),
        });
        self.followed.borrow_mut().push(Rc::downgrade(&trail));
        trail
    }

    /// Ends the remaining discards in a range of which nothing is in the page cache. They have nothing to do there, and
    /// would drop pages that are read ahead for a stream that comes to it.
    fn forget(&self, file: &Rc<File>, absent: &Range<u64>) {
        let is_in = |range: &Range<u64>| absent.start <= range.start && range.end <= absent.end;
        self.left.borrow_mut().retain(|one| !(Rc::ptr_eq(&one.file, file) && is_in(&one.range)));
    }

    /// Returns whether any range waits for a discard, now or after a stream has passed it.
    pub(crate) fn are_any(self: &Rc<Self>) -> bool {
        Rc::strong_count(self) > 1 || !self.left.borrow().is_empty()
    }

    /// Takes out the ranges that are to be discarded now.
    pub(crate) fn due(&self, now: Time) -> Vec<Left> {
        let mut due = self.surplus();
        self.left.borrow_mut().retain_mut(|one| {
            let is_due = *one.due.get_or_insert(now + PAUSE) <= now;
            let is_wanted = one.is_wanted();
            if is_due && !is_wanted {
                due.push(one.take());
            }
            !is_due && !is_wanted
        });
        self.followed.borrow_mut().retain(|trail| {
            let Some(trail) = trail.upgrade() else { return false };
            due.extend(trail.passed().map(|mut passed| passed.take()));
            true
        });
        due
    }

    /// Takes out the ranges that are to be discarded now because they are too many, or take too much memory,
    /// [`EARLY_MAX`] at a time. If they are too many, those tried most often come first. If they take too much memory,
    /// the oldest come first.
    pub(crate) fn surplus(&self) -> Vec<Left> {
        let mut left = self.left.borrow_mut();
        if left.len() > self.left_max {
            left.retain(|one| !one.is_wanted());
        }
        let count = left.len().saturating_sub(self.left_max);
        if count > 0 {
            left.make_contiguous().sort_by_key(|one| Reverse(one.tries));
        }
        let last = |mut one: Left| Left { tries: TRIES_MAX, ..one.take() };
        let mut surplus: Vec<_> = left.drain(..count).map(last).collect();
        if self.page_cache.is_crowded() {
            left.retain_mut(|one| {
                let stays = one.leaving.is_none()
                    || surplus.len() >= count + EARLY_MAX
                    || !self.page_cache.is_crowded();
                if !stays && !one.is_wanted() {
                    surplus.push(Left { due: None, ..one.take() });
                }
                stays
            });
        }
        surplus
    }

    /// Takes out all ranges that wait for a discard, whether or not their time has come. Streams that go on keep theirs.
    pub(crate) fn take_all(&self) -> Vec<Left> {
        self.left.borrow_mut().drain(..).filter(|one| !one.is_wanted()).collect()
    }

    /// Takes a range back of which pages are still there after a discard.
    pub(crate) fn try_again(&self, mut left: Left, now: Time) {
        // A discard before its time does not count, because packets may have referred to all pages.
        left.tries += u32::from(left.due.is_some());
        if left.tries < TRIES_MAX {
            left.due = Some(now + PAUSE * PAUSE_FACTOR.pow(left.tries));
            self.left.borrow_mut().push_back(left);
        }
    }
}

impl Left {
    fn is_wanted(&self) -> bool {
        self.file.is_kept_since(self.watch)
    }

    /// A copy of this range; its bytes no longer count as waiting for their first discard.
    fn take(&mut self) -> Self {
        let (file, range) = (Rc::clone(&self.file), self.range.clone());
        let Self { watch, tries, due, .. } = *self;
        self.leaving = None;
        Self { file, range, watch, leaving: None, tries, due }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ring::sim::{Config, World};
    use ring::{Completion, Event, Op, OpenHow, Ring};

    use super::*;
    use crate::file::Inodes;

    const MIB: u64 = 1 << 20;
    const END: u64 = 100 * MIB;

    fn one(ring: &mut Ring, op: Op) -> Event {
        ring.submit(op, 1);
        let mut completions: Vec<Completion> = Vec::new();
        while completions.is_empty() {
            ring.wait(None, &mut completions).unwrap();
        }
        completions.remove(0).result.unwrap()
    }

    /// A file of 100 MiB, which is a hole.
    fn file() -> Rc<File> {
        let world = World::new(Config::new(1));
        hole(&world, &mut Ring::simulated(&world), END)
    }

    /// A file that is a hole, in the world of a ring.
    fn hole(world: &World, ring: &mut Ring, size: u64) -> Rc<File> {
        world.write_file("f", b"");
        let dir = Some(ring.sim_root(world));
        let open = Op::Open { dir, path: c"f".into(), how: OpenHow::BENEATH };
        let Event::Opened(fd) = one(ring, open) else { panic!("it exists") };
        let Event::Stat(stat) = one(ring, Op::Stat(fd.clone())) else { panic!("it exists") };
        let file = File::new(fd, &ring::Stat { size, ..*stat });
        Inodes::default().share(&file, &Arc::default());
        Rc::new(file)
    }

    /// Trails in a page cache of 8 GiB.
    fn trails(left_max: usize) -> Trails {
        Trails::new(left_max, Arc::default())
    }

    fn after(pauses: u32) -> Time {
        Time::default() + PAUSE * pauses
    }

    /// Starts and ends in MiB.
    fn ranges(due: &[Left]) -> Vec<(u64, u64)> {
        due.iter().map(|one| (one.range.start / MIB, one.range.end / MIB)).collect()
    }

    /// A folio that one discard met in part is wholly in the next discard, and so are pages that packets referred to.
    #[test]
    fn each_discard_begins_in_front_of_the_one_before_it_and_the_last_reaches_beyond_what_was_read()
    {
        let (trails, file) = (Rc::new(trails(8)), file());
        let trail = trails.begin(&file, 3 * MIB + 1, END);
        let step = |end: u64, now| {
            drop(trail.hold(end));
            ranges(&trails.due(after(now)))
        };
        assert_eq!(step(3 * MIB + 5000, 1), [], "too little");
        assert_eq!(step(5 * MIB, 2), [(3, 5)]);
        assert_eq!(step(5 * MIB, 3), [], "the same");
        assert_eq!(step(20 * MIB, 4), [(3, 20)]);
        let held = trail.hold(22 * MIB);
        assert_eq!(step(21 * MIB, 5), [(12, 21)]);
        drop((trail, held));
        assert_eq!(ranges(&trails.due(after(6))), [], "after a pause");
        let due = trails.due(after(7));
        assert_eq!(ranges(&due), [(13, 22 + 64)]);
        assert!(!trails.are_any(), "nothing is left unless it is tried again");
        // Three more tries, after 0.8, 6.4 and 51.2 s.
        let mut again = due;
        let mut now = 7;
        for pauses in [8, 64, 512] {
            trails.try_again(again.pop().unwrap(), after(now));
            assert_eq!(trails.due(after(now + pauses - 1)).len(), 0);
            now += pauses;
            again = trails.due(after(now));
        }
        trails.try_again(again.pop().unwrap(), after(now));
        assert!(!trails.are_any(), "the rest is the kernel's");
    }

    #[test]
    fn the_last_discard_ends_with_the_file_and_there_is_none_if_the_file_is_wanted_meanwhile() {
        let (trails, file) = (Rc::new(trails(8)), file());
        let [kept, dropped] = [99, 90].map(|at| trails.begin(&file, at * MIB, END));
        drop(kept.hold(100 * MIB));
        drop(kept);
        drop(dropped.hold(95 * MIB));
        let _ = trails.due(after(0));
        assert_eq!(ranges(&trails.due(after(1))), [(99, 100)]);
        file.note_kept();
        assert!(dropped.is_wanted());
        drop(dropped);
        assert!(!trails.are_any());
    }

    /// The rest of a large file takes long to look at, and may have pages of others.
    #[test]
    fn only_what_a_stream_reads_and_the_readahead_behind_it_have_to_be_absent() {
        let world = World::new(Config::new(1));
        world.write_file("f", &vec![7; 100 << 20]);
        let mut ring = Ring::simulated(&world);
        let dir = Some(ring.sim_root(&world));
        let open = Op::Open { dir, path: c"f".into(), how: OpenHow::BENEATH };
        let Event::Opened(fd) = one(&mut ring, open) else { panic!("it exists") };
        let Event::Stat(stat) = one(&mut ring, Op::Stat(fd.clone())) else { panic!("it exists") };
        let file = Rc::new(File::new(fd, &stat));
        Inodes::default().share(&file, &Arc::default());
        world.evict_range("f", 0..80 * MIB);
        world.evict_range("f", 81 * MIB..END);
        assert_eq!(Trail::reach(&file, &(0..MIB)), 65 * MIB);
        assert!(file.is_absent(&ring, 1..65 * MIB) && !file.is_absent(&ring, 1..END));
        assert!(file.is_absent(&ring, 81 * MIB..END) && !file.is_absent(&ring, END..END));
        let trail = Rc::new(trails(8)).begin(&file, PAGE, 65 * MIB);
        assert!(trail.covers(&file, PAGE) && !trail.covers(&file, 0), "it begins later");
        assert!(trail.reaches(&ring, &(0..MIB)) && trail.reaches(&ring, &(10 * MIB..11 * MIB)));
        assert_eq!(trail.absent_to.get(), 75 * MIB);
        assert!(!trail.reaches(&ring, &(16 * MIB..17 * MIB)), "others have pages there");
        assert_eq!(trail.absent_to.get(), 75 * MIB);
        assert!(!trail.covers(&file, 80 * MIB), "it begins behind what was looked at");
    }

    /// To look at a terabyte of which pages were evicted one by one would take seconds.
    #[test]
    fn of_a_long_range_a_part_is_looked_at_and_more_when_the_stream_comes_near_its_end() {
        const SIZE: u64 = 1 << 40;
        let world = World::new(Config::new(1));
        let mut ring = Ring::simulated(&world);
        let file = hole(&world, &mut ring, SIZE);
        let trails = Rc::new(trails(8));
        drop(trails.begin(&file, 400 * MIB, SIZE).hold(401 * MIB));
        let absent_to = Trail::reach(&file, &(0..SIZE));
        assert_eq!(absent_to, 320 * MIB);
        let trail = trails.begin(&file, 0, absent_to);
        assert!(trail.reaches(&ring, &(255 * MIB..SIZE)));
        assert_eq!((trail.absent_to.get(), trails.left.borrow().len()), (320 * MIB, 1));
        assert!(trail.reaches(&ring, &(256 * MIB..SIZE)));
        assert_eq!((trail.absent_to.get(), trails.left.borrow().len()), (576 * MIB, 0));
        let rest = SIZE - MIB..SIZE;
        assert!(trail.reaches(&ring, &rest) && trail.absent_to.get() == SIZE);
    }

    #[test]
    fn a_stream_that_begins_ends_the_discards_behind_its_beginning() {
        let (trails, file) = (Rc::new(trails(8)), file());
        let end = |from: u64| drop(trails.begin(&file, from * MIB, END).hold((from + 1) * MIB));
        (0..3).for_each(end);
        let _ = trails.due(after(0));
        let _short = trails.begin(&file, MIB, 66 * MIB);
        // The other trail ends after the part that is known to be absent.
        assert_eq!(trails.left.borrow().len(), 2);
        let _next = trails.begin(&file, MIB, END);
        assert_eq!(ranges(&trails.due(after(1))), [(0, 65)]);
    }

    #[test]
    fn of_too_many_ranges_those_that_were_tried_most_often_get_their_last_try_at_once() {
        let (trails, file) = (Rc::new(trails(3)), file());
        let end = |from: u64| drop(trails.begin(&file, from * MIB, END).hold((from + 1) * MIB));
        end(0);
        end(1);
        let _ = trails.due(after(0));
        for left in trails.due(after(1)) {
            trails.try_again(left, after(1));
        }
        (2..5).for_each(end);
        let surplus = trails.surplus();
        assert_eq!(ranges(&surplus), [(0, 65), (1, 66)]);
        for left in surplus {
            trails.try_again(left, after(1));
        }
        assert_eq!(trails.left.borrow().len(), 3);
        assert_eq!(trails.surplus().len(), 0);
        end(5);
        file.note_kept();
        assert_eq!(trails.surplus().len(), 0, "the file is wanted");
    }

    #[test]
    fn where_memory_is_short_discards_come_before_their_time_and_again_at_it() {
        let page_cache = Arc::new(PageCache::new(24 * MIB));
        let [trails, others] = [8, 8].map(|max| Rc::new(Trails::new(max, Arc::clone(&page_cache))));
        let file = file();
        let begin = |trails: &Rc<Trails>, from: u64| trails.begin(&file, from * MIB, END);
        let end = |from: u64| drop(begin(&trails, from).hold(from * MIB + MIB / 2));
        end(0);
        end(1);
        assert_eq!(trails.surplus().len(), 0, "1 MiB may wait");
        end(2);
        let early = trails.surplus();
        assert_eq!(ranges(&early), [(0, 64)], "the oldest");
        assert_eq!(trails.surplus().len(), 0);
        for left in early {
            trails.try_again(left, after(1));
        }
        let _ = trails.due(after(1));
        assert_eq!(ranges(&trails.due(after(2))), [(1, 65), (2, 66), (0, 64)]);
        let other = begin(&others, 3);
        drop(other.hold(5 * MIB));
        let trail = begin(&trails, 10);
        drop(trail.hold(10 * MIB + 1));
        assert_eq!(trails.surplus().len(), 0, "too little behind a stream that goes on");
        drop(trail.hold(11 * MIB));
        assert_eq!(ranges(&trails.surplus()), [(10, 11)], "all workers share the memory");
        assert_eq!(ranges(&others.surplus()), [(3, 5)]);
        file.note_kept();
        drop(trail.hold(14 * MIB));
        assert!(trails.surplus().is_empty() && !page_cache.is_crowded(), "the file is wanted");
    }
}
