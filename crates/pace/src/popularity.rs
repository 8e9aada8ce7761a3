//! The popularity of files: it decides which files are kept in the page cache.
//!
//! Read first: Einziger, Friedman and Manes, "TinyLFU: A Highly Efficient Cache Admission Policy" (2017);
//! Cormode and Muthukrishnan, "An Improved Data Stream Summary: The Count-Min Sketch" (2005).
//!
//! A count-min sketch counts requests by key. All counts are halved from time to time, so that former popularity fades.
//! In addition to the sketch, there is a sum for each count: the bytes of the files that have this count. The *cutoff*
//! is computed from these sums. The files that were requested more often than the cutoff fit into the page cache
//! together. If the files with this count are added, they do not fit. While all files fit, the cutoff is 0, and every
//! file is popular.
//!
//! The workers of a server share one sketch. Each byte that one worker keeps in the page cache displaces a byte of
//! another worker. A request goes to any worker, so a worker alone would see each file too rarely. All accesses are
//! relaxed: two requests at the same time may be counted as one request. The counts are estimates, and may have such an
//! error.
//!
//! Requests are counted by the file and by the position where they begin. So a player that requests one piece after the
//! other makes no piece popular. Files whose count is not greater than the cutoff are read as with `--cache never`.
//! Popular files may occupy three quarters of all memory. A request for more than an eighth of the memory for popular
//! files is never popular. No cutoff could be right both for such a request and for the files with the same count.
//!
//! Counts are halved when the number of counted requests is twice the number of counters. There is a counter for each
//! 16 KiB of memory, but at least 16 Ki counters and at most 1 Mi counters. With a quarter of these counters, a
//! crawler's keys filled the sketch of a small container, and files that were asked for once looked popular.

use core::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering::Relaxed};

/// A sketch of the requests for files, in memory of the caller. Threads may count at the same time, and so may
/// processes that share the memory.
#[derive(Clone, Copy, Debug)]
pub struct Popularity<'a> {
    lines: &'a [CounterLine],
    sums: &'a Sums,
    /// The bytes of files that fit into the page cache.
    capacity: u64,
}

/// The sums of a sketch. The sums of an empty sketch are zeros, as in new memory of the kernel.
#[derive(Debug)]
#[repr(C)]
pub struct Sums {
    /// The bytes of the files by their counts; files that were not requested are not in the sums.
    bytes_by_count: [AtomicU64; COUNT_MAX + 1],
    /// The number of counted requests; when the counts are halved, this number is halved, too.
    requests: AtomicUsize,
    /// The greatest count of files that are not popular.
    cutoff: AtomicUsize,
}

/// The counters that a key may have: a cache line, a quarter of which belongs to each row. The counters of an empty
/// sketch are zeros.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct CounterLine([AtomicU8; ROWS * COUNTERS_PER_ROW]);

impl Default for Sums {
    fn default() -> Self {
        Self {
            bytes_by_count: [const { AtomicU64::new(0) }; COUNT_MAX + 1],
            requests: AtomicUsize::new(0),
            cutoff: AtomicUsize::new(0),
        }
    }
}

impl Default for CounterLine {
    fn default() -> Self {
        Self([const { AtomicU8::new(0) }; ROWS * COUNTERS_PER_ROW])
    }
}

impl<'a> Popularity<'a> {
    /// The number of [`CounterLine`]s of a sketch for a page cache that has room for `capacity` bytes of files.
    #[must_use]
    pub const fn lines(capacity: u64) -> usize {
        let wanted = capacity / BYTES_PER_COUNTER;
        let counters = if wanted < COUNTERS_MIN {
            COUNTERS_MIN
        } else if wanted > COUNTERS_MAX {
            COUNTERS_MAX
        } else {
            wanted.next_power_of_two()
        };
        low(counters) / size_of::<CounterLine>()
    }

    /// The sketch in this memory, for a page cache that has room for `capacity` bytes of files.
    ///
    /// # Panics
    ///
    /// Panics if the number of lines is not a power of two. The number that [`lines`](Self::lines) returns is a power
    /// of two.
    #[must_use]
    pub fn new(lines: &'a [CounterLine], sums: &'a Sums, capacity: u64) -> Self {
        assert!(lines.len().is_power_of_two());
        Self { lines, sums, capacity }
    }

    /// Counts a request for `bytes` of a file from `offset` on, and returns whether these bytes are popular. `file` is
    /// a number by which the caller tells files apart.
    #[must_use]
    pub fn request(&self, file: u64, offset: u64, bytes: u64) -> bool {
        self.request_key(file.wrapping_add(offset / PIECE_BYTES), bytes)
    }

    /// Counts a request for these bytes, and returns whether they are popular. A request for more than an eighth of the
    /// capacity is not counted, because no cutoff would be right for the other files with the same count.
    fn request_key(&self, key: u64, bytes: u64) -> bool {
        if bytes > self.capacity / SHARE {
            return false;
        }
        let count = self.count(hash(key), bytes);
        let requests = self.sums.requests.fetch_add(1, Relaxed) + 1;
        if requests.is_multiple_of(REQUESTS_PER_CUTOFF) {
            self.set_cutoff();
        }
        // The worker that counts the last request of a period halves the counts.
        if requests == size_of_val(self.lines) * REQUESTS_PER_COUNTER {
            self.sums.requests.fetch_sub(requests / 2, Relaxed);
            self.halve();
        }
        count > self.sums.cutoff.load(Relaxed)
    }

    /// Counts one more request of a key, and returns the count.
    fn count(&self, hash: u64, bytes: u64) -> usize {
        let line = &self.lines[low(hash) & (self.lines.len() - 1)];
        let counters: [&AtomicU8; ROWS] = core::array::from_fn(|row| {
            &line.0[row * COUNTERS_PER_ROW + low(hash >> (32 + 4 * row)) % COUNTERS_PER_ROW]
        });
        let counts = counters.map(|counter| usize::from(counter.load(Relaxed)));
        let before = counts.into_iter().fold(COUNT_MAX, usize::min);
        if before == COUNT_MAX {
            return COUNT_MAX;
        }
        for (counter, count) in counters.into_iter().zip(counts) {
            // A counter that is greater is shared with other keys, and says nothing about this key.
            if count == before {
                counter.fetch_add(1, Relaxed);
            }
        }
        if before > 0 {
            let less = |sum: u64| Some(sum.saturating_sub(bytes));
            let _ = self.sums.bytes_by_count[before].fetch_update(Relaxed, Relaxed, less);
        }
        self.sums.bytes_by_count[before + 1].fetch_add(bytes, Relaxed);
        before + 1
    }

    /// Finds the cutoff: the greatest count for which the files of this count and of all greater counts do not fit
    /// together.
    fn set_cutoff(&self) {
        let mut room = Some(self.capacity);
        let mut cutoff = COUNT_MAX;
        while cutoff > 0 {
            let bytes = self.sums.bytes_by_count[cutoff].load(Relaxed);
            room = room.and_then(|room| room.checked_sub(bytes));
            if room.is_none() {
                break;
            }
            cutoff -= 1;
        }
        self.sums.cutoff.store(cutoff, Relaxed);
        if cutoff > CUTOFF_MAX {
            self.halve();
        }
    }

    /// Halves all counts.
    fn halve(&self) {
        for counter in self.lines.iter().flat_map(|line| &line.0) {
            // If another worker counts a request between this read and this write, this request is lost.
            counter.store(counter.load(Relaxed) / 2, Relaxed);
        }
        for count in 1..=COUNT_MAX {
            let bytes = self.sums.bytes_by_count[count].swap(0, Relaxed);
            if count > 1 {
                self.sums.bytes_by_count[count / 2].fetch_add(bytes, Relaxed);
            }
        }
        self.sums.cutoff.store(self.sums.cutoff.load(Relaxed) / 2, Relaxed);
    }
}

/// Mixes the bits of a number: SplitMix64 (Steele, Lea, Flood 2014).
#[must_use]
pub const fn hash(key: u64) -> u64 {
    let mut bits = key.wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

/// The low bits of a number.
#[expect(clippy::cast_possible_truncation, reason = "the high bits are not wanted")]
const fn low(bits: u64) -> usize {
    bits as usize
}

const ROWS: usize = 4;
const COUNTERS_PER_ROW: usize = 16;
/// The greatest count. Workers that count at the same time may exceed this count a little; a byte has room for much
/// more.
const COUNT_MAX: usize = 63;
/// If the files with greater counts than this count do not fit together, the counts are halved early, so that some
/// counts stay below [`COUNT_MAX`].
const CUTOFF_MAX: usize = 48;
/// The bytes of the page cache per counter. Each file has four counters, and shares few of these counters with other
/// files. Few counters are shared even if most files are smaller than 1 MiB and, besides these files, several times as
/// many others are requested once each. The workload of `samum-bench league crawler` is a site of 645 MiB and a
/// crawler, in 384 MiB of memory. With half as many counters as now, this workload read 8 % more from the disk. With
/// four times as many counters as now, the workload read 3 % less.
const BYTES_PER_COUNTER: u64 = 16 * 1024;
/// 16 KiB of memory.
const COUNTERS_MIN: u64 = 1 << 14;
/// 1 MiB of memory. Halving all counters takes about 200 us.
const COUNTERS_MAX: u64 = 1 << 20;
/// The counts are halved when the number of counted requests is the number of counters multiplied by this factor. With
/// rarer halving, the counts follow a changing site too slowly. With more frequent halving, the counts do not
/// distinguish files (simulated: see the tests).
const REQUESTS_PER_COUNTER: usize = 2;
/// The number of requests after which the cutoff is set again.
const REQUESTS_PER_CUTOFF: usize = 64;
/// The capacity is divided by this number; a request for more bytes is not counted.
const SHARE: u64 = 8;
/// Requests for a file are counted by the position where they begin, in units of this many bytes. A player asks for one
/// piece after the other, and such requests are no sign of popularity. Few pieces are smaller than this unit.
const PIECE_BYTES: u64 = 256 * 1024;

#[cfg(test)]
mod tests;
