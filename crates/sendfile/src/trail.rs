//! Pages that leave the page cache behind a stream that is not to fill it.
//!
//! A splice with the kernel's readahead is the cheapest way from the disk to a socket, but it leaves its pages in
//! the page cache. So they are discarded later, when the stream has let go of them. The kernel keeps those that
//! packets still refer to (`mapping_try_invalidate` in mm/truncate.c), so what is left is tried again, each time
//! after a longer pause, for a peer may acknowledge late. What remains then is the kernel's to reclaim.

use core::cell::RefCell;
use core::ops::Range;
use core::time::Duration;
use std::collections::VecDeque;
use std::rc::Rc;

use ring::Time;

use crate::file::File;

/// The pause before the first try, and how often [`Trails::due`] is to be asked. Packets are acknowledged within it
/// on most paths, and at 1 GiB/s it leaves 100 MiB behind.
pub(crate) const PAUSE: Duration = Duration::from_millis(100);
/// Each further pause is so many times as long: 0.1, 0.8, 6.4 and 51 s, in which even a slow peer has taken the 4 MiB
/// that a socket may hold (`tcp_wmem`).
const PAUSE_FACTOR: u32 = 8;
const TRIES_MAX: u32 = 4;
/// Ranges that wait, each with its open file; beyond it the oldest is left to the kernel.
const LEFT_MAX: usize = 1024;

/// The ranges that streams have let go of.
#[derive(Debug, Default)]
pub(crate) struct Trails {
    left: RefCell<VecDeque<Left>>,
}

/// A range that is to leave the page cache.
#[derive(Debug)]
pub(crate) struct Left {
    pub(crate) file: Rc<File>,
    pub(crate) range: Range<u64>,
    /// [`File::kept`] when the range was read.
    kept: u64,
    /// Discards so far.
    tries: u32,
    /// The time of the next try; `None` for one that has just been let go of.
    due: Option<Time>,
}

/// A range that a stream has brought and still refers to. When this is dropped, it has let go.
#[derive(Debug)]
pub(crate) struct Trail {
    trails: Rc<Trails>,
    /// Some until it is dropped.
    left: Option<Left>,
}

impl Trail {
    /// A read of the range begins.
    pub(crate) fn new(trails: &Rc<Trails>, file: &Rc<File>, range: Range<u64>) -> Self {
        let (file, kept) = (Rc::clone(file), file.kept());
        let left = Some(Left { file, range, kept, tries: 0, due: None });
        Self { trails: Rc::clone(trails), left }
    }
}

impl Drop for Trail {
    fn drop(&mut self) {
        if let Some(left) = self.left.take() {
            self.trails.push(left);
        }
    }
}

impl Trails {
    /// Returns whether there is anything to come back for, now or when a stream lets go.
    pub(crate) fn are_any(self: &Rc<Self>) -> bool {
        Rc::strong_count(self) > 1 || !self.left.borrow().is_empty()
    }

    /// Adds a range, to the one in front of it if that waits for the same time: the pieces of many streams come
    /// in turns.
    fn push(&self, next: Left) {
        let mut left = self.left.borrow_mut();
        if let Some(before) = left.iter_mut().rev().find(|one| one.is_continued_by(&next)) {
            before.range.end = next.range.end;
            return;
        }
        if left.len() == LEFT_MAX {
            left.pop_front();
        }
        left.push_back(next);
    }

    /// Takes the ranges out that are to be discarded now.
    pub(crate) fn due(&self, now: Time) -> Vec<Left> {
        let mut due = Vec::new();
        self.left.borrow_mut().retain_mut(|one| {
            let is_due = *one.due.get_or_insert(now + PAUSE) <= now;
            let is_wanted = one.file.kept() != one.kept;
            if is_due && !is_wanted {
                due.push(one.take());
            }
            !is_due && !is_wanted
        });
        due
    }

    /// Takes a range back of which pages are still there after a discard.
    pub(crate) fn try_again(&self, mut left: Left, now: Time) {
        left.tries += 1;
        if left.tries < TRIES_MAX {
            left.due = Some(now + PAUSE * PAUSE_FACTOR.pow(left.tries));
            self.push(left);
        }
    }
}

impl Left {
    fn is_continued_by(&self, next: &Self) -> bool {
        let is_next = self.range.end == next.range.start && self.due == next.due;
        is_next && self.kept == next.kept && Rc::ptr_eq(&self.file, &next.file)
    }

    fn take(&self) -> Self {
        let (file, range) = (Rc::clone(&self.file), self.range.clone());
        Self { file, range, ..*self }
    }
}
