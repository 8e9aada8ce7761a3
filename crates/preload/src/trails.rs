//! The pages that readers have brought for responses that do not stay in the page cache: they leave it once they were
//! sent. The caller brings, sends and discards; this module keeps only the number of trails of the process.
//!
//! A *trail* is a range of one file of which nothing was in memory before readers brought it, so its pages are ours.
//! While the program sends from a trail, the pages that it has sent are discarded. The kernel keeps pages to which
//! packets refer, because their peer has not acknowledged them. So each discard begins in front of the end of the one
//! before it, and after the last progress discards are repeated, each after a longer pause. The kernel reclaims the
//! pages that remain then. `crates/sendfile/src/trail.rs` has the same for the server, where each stream has its trail.
//! Here a stream is not known, only calls.
//!
//! Pages that another process brings of such a range meanwhile, or within a minute after the last progress, may be
//! discarded, too.

use core::ffi::c_int;
use core::ops::Range;
use core::sync::atomic::{AtomicUsize, Ordering};

use crate::sys::FileId;

/// The most trails; each keeps a descriptor. Pages that would need a further one stay in the page cache.
pub(crate) const TRAILS_MAX: usize = 512;
/// The pause before a discard, in microseconds: most packets are acknowledged within it.
const PAUSE_US: u64 = 100_000;
/// The factor by which each further pause is longer: 0.1, 0.8, 6.4 and 51 s.
const PAUSE_FACTOR: u64 = 8;
/// The discards after the last progress. The last one is also of bytes that were not sent.
const TRIES_MAX: u32 = 4;
/// The bytes behind a response that goes on which are discarded at once.
const STEP: u64 = 1 << 20;
/// A discard begins so far in front of the end of the one before it: packets refer to 4 MiB at most (`tcp_wmem`).
const AGAIN: u64 = 8 << 20;

/// The number of trails, for a look without the lock.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Says whether there is any trail.
#[inline]
pub(crate) fn are_any() -> bool {
    COUNT.load(Ordering::Relaxed) != 0
}

#[derive(Clone, Copy, Debug)]
struct Trail {
    file: FileId,
    /// A descriptor of the file, which is the library's.
    fd: c_int,
    start: u64,
    end: u64,
    /// The program has sent the bytes in front of this one.
    sent: u64,
    /// The end of the last discard.
    discarded: u64,
    /// The socket that has sent from it last; -1: none.
    socket: c_int,
    /// No socket goes on to send from it.
    is_left: bool,
    /// The discards since the last progress.
    tries: u32,
    due_us: u64,
}

const NONE: Trail = Trail {
    file: FileId { dev: 0, ino: 0 },
    fd: -1,
    start: 0,
    end: 0,
    sent: 0,
    discarded: 0,
    socket: -1,
    is_left: false,
    tries: 0,
    due_us: 0,
};

/// A range to discard by a descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Discard {
    pub(crate) file: FileId,
    pub(crate) fd: c_int,
    pub(crate) range: Range<u64>,
    /// The trail is gone, so the descriptor has to be closed.
    pub(crate) closes: bool,
}

/// All trails of the process.
pub(crate) struct Trails {
    all: [Trail; TRAILS_MAX],
    used: usize,
    /// A thread discards, so no other thread may close a descriptor.
    is_discarding: bool,
}

impl Trails {
    pub(crate) const fn none() -> Self {
        Self { all: [NONE; TRAILS_MAX], used: 0, is_discarding: false }
    }

    /// Notes that a reader brings a range of which nothing was in memory. `open` makes a descriptor for a new trail,
    /// which is returned.
    pub(crate) fn brought(
        &mut self,
        file: FileId,
        range: Range<u64>,
        now_us: u64,
        open: impl FnOnce() -> Option<c_int>,
    ) -> Option<c_int> {
        if range.is_empty() {
            return None;
        }
        self.of(file).for_each(|trail| trail.cut(&range));
        if let Some(trail) = self.of(file).find(|trail| trail.end == range.start) {
            trail.end = range.end;
            trail.progress(now_us);
            return None;
        }
        if self.used == TRAILS_MAX {
            return None;
        }
        let fd = open()?;
        let (start, end, due_us) = (range.start, range.end, now_us.saturating_add(PAUSE_US));
        self.all[self.used] =
            Trail { file, fd, start, end, sent: start, discarded: start, due_us, ..NONE };
        self.used += 1;
        COUNT.store(self.used, Ordering::Relaxed);
        Some(fd)
    }

    /// Notes that a socket has sent a range. Returns whether a discard is due earlier than before.
    pub(crate) fn passed(
        &mut self,
        socket: c_int,
        file: FileId,
        range: &Range<u64>,
        now_us: u64,
    ) -> bool {
        let mut is_earlier = false;
        for trail in &mut self.all[..self.used] {
            let is_here = trail.file == file && range.start < trail.end && range.end > trail.start;
            if is_here {
                trail.sent = trail.sent.max(range.end.min(trail.end));
                (trail.socket, trail.is_left) = (socket, false);
                is_earlier |= trail.progress(now_us);
            } else if trail.socket == socket {
                is_earlier |= trail.leave(now_us);
            }
        }
        is_earlier
    }

    /// Notes that a socket is about to be closed. Returns whether a discard is due earlier than before.
    pub(crate) fn left_by(&mut self, socket: c_int, now_us: u64) -> bool {
        let mut is_earlier = false;
        for trail in self.all[..self.used].iter_mut().filter(|trail| trail.socket == socket) {
            is_earlier |= trail.leave(now_us);
        }
        is_earlier
    }

    /// Ends the trails of a file that is to stay in the page cache. The next calls of [`due`](Self::due) have their
    /// descriptors. Returns whether there was one.
    pub(crate) fn keep(&mut self, file: FileId) -> bool {
        self.of(file).fold(false, |_, trail| {
            (trail.start, trail.due_us) = (trail.end, 0);
            true
        })
    }

    /// Takes out a range to discard. A call of [`has_discarded`](Self::has_discarded) follows.
    pub(crate) fn due(&mut self, now_us: u64) -> Option<Discard> {
        if self.is_discarding {
            return None;
        }
        for index in 0..self.used {
            let trail = &mut self.all[index];
            if trail.due_us > now_us {
                continue;
            }
            let Some(range) = trail.next(now_us) else { continue };
            let (file, fd, closes) = (trail.file, trail.fd, trail.tries == TRIES_MAX);
            if closes {
                self.remove(index);
            }
            self.is_discarding = true;
            return Some(Discard { file, fd, range, closes });
        }
        None
    }

    /// Notes that the thread that took a range out has discarded it.
    pub(crate) const fn has_discarded(&mut self) {
        self.is_discarding = false;
    }

    /// Takes out a trail, whose pages stay; `is_for` chooses by file. Returns its descriptor.
    pub(crate) fn take(&mut self, is_for: impl Fn(FileId) -> bool) -> Option<c_int> {
        let index = self.all[..self.used].iter().position(|trail| is_for(trail.file))?;
        let fd = self.all[index].fd;
        self.remove(index);
        Some(fd)
    }

    /// The descriptors of all trails, with their ranges.
    pub(crate) fn all(&self) -> impl Iterator<Item = (c_int, Range<u64>)> {
        self.all[..self.used].iter().map(|trail| (trail.fd, trail.start..trail.end))
    }

    /// The time at which the next discard is due.
    pub(crate) fn due_us(&self) -> Option<u64> {
        self.all[..self.used].iter().map(|trail| trail.due_us).min()
    }

    /// Notes that the program has closed a descriptor of ours: its pages stay.
    pub(crate) fn surrender(&mut self, fd: c_int) {
        if let Some(index) = self.all[..self.used].iter().position(|trail| trail.fd == fd) {
            self.remove(index);
        }
    }

    fn of(&mut self, file: FileId) -> impl Iterator<Item = &mut Trail> {
        self.all[..self.used].iter_mut().filter(move |trail| trail.file == file)
    }

    fn remove(&mut self, index: usize) {
        self.used -= 1;
        self.all[index] = self.all[self.used];
        COUNT.store(self.used, Ordering::Relaxed);
    }
}

impl Trail {
    /// Notes that the trail has become longer, or that bytes of it were sent. Returns whether its discard is due earlier.
    fn progress(&mut self, now_us: u64) -> bool {
        let was_quiet = self.tries > 0;
        if was_quiet {
            (self.tries, self.due_us) = (0, now_us.saturating_add(PAUSE_US));
        }
        was_quiet
    }

    /// Notes that its socket sends no more of it.
    fn leave(&mut self, now_us: u64) -> bool {
        (self.socket, self.is_left, self.tries) = (-1, true, 0);
        let due_us = now_us.saturating_add(PAUSE_US);
        let is_earlier = due_us < self.due_us;
        self.due_us = self.due_us.min(due_us);
        is_earlier
    }

    /// Gives up a range that is read anew, because it is another trail's now. If that cuts the trail in two, the part
    /// behind stays if the part in front was discarded at least once.
    fn cut(&mut self, range: &Range<u64>) {
        if range.end <= self.start || range.start >= self.end {
            return;
        }
        if range.start <= self.start || range.end <= self.discarded {
            self.start = range.end.min(self.end);
        } else {
            self.end = range.start;
        }
        self.sent = self.sent.clamp(self.start, self.end);
        self.discarded = self.discarded.clamp(self.start, self.end);
    }

    /// The range to discard now, which may be empty if the trail is gone; `None` if there is nothing to do yet.
    fn next(&mut self, now_us: u64) -> Option<Range<u64>> {
        if self.start == self.end {
            self.tries = TRIES_MAX;
            return Some(self.start..self.end);
        }
        let is_last = self.tries + 1 == TRIES_MAX;
        let end = if self.is_left || is_last { self.end } else { self.sent };
        let has_moved = end > self.discarded;
        if self.tries == 0 && has_moved && end - self.discarded < STEP && end < self.end {
            // The response goes on: more will be discarded at once, or this at the next pause.
            (self.tries, self.due_us) = (1, now_us.saturating_add(PAUSE_US * PAUSE_FACTOR));
            return None;
        }
        let start = self.start.max(self.discarded.saturating_sub(AGAIN));
        self.discarded = self.discarded.max(end);
        self.tries += 1;
        let pause_us = PAUSE_US * PAUSE_FACTOR.pow(self.tries);
        self.due_us = now_us.saturating_add(pause_us);
        Some(start..end).filter(|range| !range.is_empty() || self.tries == TRIES_MAX)
    }
}

#[cfg(test)]
mod tests;
