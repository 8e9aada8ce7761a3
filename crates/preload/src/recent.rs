//! Ranges and blocks that were found resident a moment ago. They are found again by descriptor, without any system
//! call, or by file, with one `fstat(2)`, for servers that open a file for each request.
//!
//! A page that has just been used is not reclaimed within [`RECENT_MS`]. But a descriptor may be closed and
//! its number used again within that time, so each number has an epoch that ends with `close`. A close that the
//! library does not see (`fclose`) costs at worst one `sendfile` that waits for the disk.

use core::ffi::c_int;
use core::sync::atomic::{AtomicU64, Ordering};

use crate::descriptors;
use crate::hash::hash;
use crate::sys::FileId;

/// A finding is believed for this time.
pub(crate) const RECENT_MS: u64 = 5;
/// The number of findings. A finding overwrites another that has the same slot.
const FINDINGS_MAX: usize = 1 << 14;

/// A finding is one word: a fingerprint, and the low bits of its time in milliseconds. So no thread sees half
/// a finding.
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

/// The place in the table for a part of a file.
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
            // No range has this length.
            Part::Block(block) => hash([open, block, u64::MAX]),
        })
    }

    /// The place for a block of a file, whatever descriptor leads to it.
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

    /// Says whether the part was found resident a moment ago.
    #[inline]
    pub(crate) fn is_recent(&self, now_ms: u64) -> bool {
        let word = FINDINGS[self.slot].load(Ordering::Relaxed);
        word & !TIME == self.fingerprint && now_ms.wrapping_sub(word) & TIME < RECENT_MS
    }

    /// Notes that the part has been found resident.
    #[inline]
    pub(crate) fn set(&self, now_ms: u64) {
        FINDINGS[self.slot].store(self.fingerprint | now_ms & TIME, Ordering::Relaxed);
    }

    /// Removes the finding.
    pub(crate) fn clear(&self) {
        FINDINGS[self.slot].store(0, Ordering::Relaxed);
    }
}

/// Removes all findings.
pub(crate) fn clear_all() {
    FINDINGS.iter().for_each(|finding| finding.store(0, Ordering::Relaxed));
}
