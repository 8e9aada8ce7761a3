//! What was found resident a moment ago, by descriptor: no system call at all for a file that is
//! asked for many times in [`RECENT_MS`]; and by file: only `fstat(2)` where each time it is opened.
//!
//! A page just used is not reclaimed so soon. Descriptors are closed and used again sooner, which is
//! why each number has an epoch that ends with `close`. A close that is not seen (`fclose`) costs at
//! worst one `sendfile` that waits for the disk.

use core::ffi::c_int;
use core::sync::atomic::{AtomicU64, Ordering};

use crate::descriptors;
use crate::hash::hash;
use crate::sys::FileId;

/// How long something found resident is believed without asking again.
pub(crate) const RECENT_MS: u64 = 5;
/// Findings remembered; others take their places by chance.
const FINDINGS_MAX: usize = 1 << 14;

/// A finding is one word: a fingerprint, and the low bits of when, in milliseconds. Half a finding
/// is never seen.
static FINDINGS: [AtomicU64; FINDINGS_MAX] = [const { AtomicU64::new(0) }; FINDINGS_MAX];
const TIME: u64 = (1 << 20) - 1;

/// The part of a file that a finding is about.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Part {
    /// A range, by offset and length.
    Range(u64, u64),
    /// A whole block, by its number.
    Block(u64),
}

/// A part of what is open at a descriptor now.
pub(crate) struct Finding {
    slot: usize,
    fingerprint: u64,
}

impl Finding {
    #[inline]
    pub(crate) fn of(fd: c_int, part: Part) -> Self {
        let open = u64::from(fd.unsigned_abs()) << 32 | u64::from(descriptors::epoch(fd));
        Self::at(match part {
            Part::Range(offset, len) => hash([open, offset, len]),
            // No range is as long.
            Part::Block(block) => hash([open, block, u64::MAX]),
        })
    }

    /// The same of a block of a file, whatever descriptor it is reached by: of servers that open a file
    /// for each request.
    #[inline]
    pub(crate) fn of_file(file: FileId, block: u64) -> Self {
        Self::at(hash([file.dev, file.ino, block, u64::MAX]))
    }

    #[inline]
    fn at(hash: u64) -> Self {
        let slot = usize::try_from(hash % FINDINGS_MAX as u64).unwrap_or(0);
        // The lowest of its bits is set, so that no finding is 0.
        Self { slot, fingerprint: (hash | (TIME + 1)) & !TIME }
    }

    /// Whether it was found resident a moment ago.
    #[inline]
    pub(crate) fn is_recent(&self, now_ms: u64) -> bool {
        let word = FINDINGS[self.slot].load(Ordering::Relaxed);
        word & !TIME == self.fingerprint && now_ms.wrapping_sub(word) & TIME < RECENT_MS
    }

    /// It has been found resident.
    #[inline]
    pub(crate) fn set(&self, now_ms: u64) {
        FINDINGS[self.slot].store(self.fingerprint | now_ms & TIME, Ordering::Relaxed);
    }

    /// It is not to be believed any more.
    pub(crate) fn clear(&self) {
        FINDINGS[self.slot].store(0, Ordering::Relaxed);
    }
}

/// Nothing is believed any more.
pub(crate) fn clear_all() {
    FINDINGS.iter().for_each(|finding| finding.store(0, Ordering::Relaxed));
}
