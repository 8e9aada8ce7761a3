//! Finds out how many bytes of a range of a file can be sent without the disk.
//!
//! `crates/sendfile/src/file.rs` explains the scheme. Here there is no ring, no object for each file, and there are
//! many threads: the belief about a block is one atomic word in a table of fixed size. `cachestat(2)` can only say
//! no, `RWF_NOWAIT` says yes:
//!
//! | range | how it is found out |
//! |---|---|
//! | up to [`EXACT_BYTES`] | `RWF_NOWAIT` of the range: a small copy costs less than other checks |
//! | larger | per block of 256 KiB: an exact check or a read, confirmed by `cachestat`, as recent as [`pace::belief`] asks for; and each use touches one byte in each block, unless a reader has read it at most [`JUST_READ`] ago |
//! | either | found resident, or read, a moment ago ([`crate::recent`]): by the same descriptor no system call, by another one of the same file `fstat(2)` |
//!
//! Three cases remain, in which `sendfile(2)` sleeps for one read: pages evicted within 5 ms after they were
//! found or read; pages evicted within 100 ms after they were read, if another program reads the block back
//! meanwhile; pages read back out of order. Where `cachestat` is refused, the last case includes pages that were
//! evicted within 2 s after they were read, while the first page of their block was not.

use core::ffi::c_int;
use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;

use pace::{CHUNK_MIN, JUST_READ, Witness};

use crate::hash::hash;
use crate::recent::{Finding, Part};
use crate::sys::{self, FileId, Readahead, SCRATCH_REACH, Status};

/// The unit of residency, and of reading.
pub(crate) const BLOCK: u64 = CHUNK_MIN;
const _: () = assert!(BLOCK <= SCRATCH_REACH);
/// Ranges up to this are looked at exactly: that costs 0.39 us for 1 KiB and 0.53 us for 16 KiB, while
/// `fstat(2)` and two touches cost 1.05 us (6.18, warm, one core of a virtual machine).
const EXACT_BYTES: u64 = 16 * 1024;
/// A stream follows the reader of the block before for this time.
const FOLLOWING_MS: u64 = 1000;
/// Where `cachestat` is refused, a block that a reader has read is believed for this time, and its first byte is
/// touched. Reclaim evicts the pages that were read first, so the page with that byte leaves memory first. A look
/// would copy the block: with 200 downloads at the same time all bytes were copied, because they waited longer than
/// [`pace::belief`] allows without a witness.
const READ_ALONE: Duration = Duration::from_secs(2);
/// The number of beliefs. A block overwrites another that has the same slot.
const BLOCKS_MAX: usize = 1 << 16;
const PAGE: u64 = 4096;

/// The answer for a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Residency {
    /// The number of its bytes that can be sent, at least one.
    Resident(u64),
    /// Its first byte is not in memory.
    Cold(FileId),
    /// It was not looked at, because a reader has just read the block before and may come here.
    Following(FileId),
    /// It cannot be told: the file is not regular, is at its end, or lies on a file system that does not say.
    Unknown,
}

/// Finds out about `len` bytes from `offset` on. `look`: looks even if the stream follows a reader. `stays`: the look may
/// bring more than the bytes, by the kernel's readahead, because they stay in memory.
pub(crate) fn residency(fd: c_int, offset: u64, len: u64, look: bool, stays: bool) -> Residency {
    let now = now_ms();
    if len > EXACT_BYTES {
        let last = offset.saturating_add(len - 1) / BLOCK;
        let is_recent = |block| Finding::of(fd, Part::Block(block)).is_recent(now);
        if (offset / BLOCK..=last).all(is_recent) {
            return Residency::Resident(len);
        }
        return match sys::status(fd) {
            Ok(file) if file.is_regular && offset < file.size => {
                let len = len.min(file.size - offset);
                let is_recent = |block| Finding::of_file(file.id, block).is_recent(now);
                if (offset / BLOCK..=(offset + len - 1) / BLOCK).all(is_recent) {
                    return Residency::Resident(len);
                }
                let end = offset + len;
                let complete_until = None;
                File { fd, file, now, look, stays, end, complete_until }.residency(offset, len)
            }
            _ => Residency::Unknown,
        };
    }
    let finding = Finding::of(fd, Part::Range(offset, len));
    if finding.is_recent(now) {
        return Residency::Resident(len);
    }
    if !stays {
        if let Some(file) = is_absent(fd, offset, len) {
            return Residency::Cold(file);
        }
        sys::advise(fd, Readahead::Off);
    }
    match sys::read_to_scratch(fd, offset, len, true) {
        Ok(found) if found > 0 => {
            if found == len {
                finding.set(now);
            }
            Residency::Resident(found)
        }
        // Linux 5.9 and 5.10 return 0 for a page that is not resident.
        Ok(_) | Err(libc::EAGAIN) => match sys::status(fd) {
            Ok(file) if file.is_regular && offset < file.size => Residency::Cold(file.id),
            _ => Residency::Unknown,
        },
        Err(_) => Residency::Unknown,
    }
}

/// The file, if nothing of a range is in memory. Unlike a probe, this never begins to read.
fn is_absent(fd: c_int, offset: u64, len: u64) -> Option<FileId> {
    let first = offset / PAGE * PAGE;
    if sys::cached_pages(fd, first, offset + len - first) != Some(0) {
        return None;
    }
    let file = sys::status(fd).ok().filter(|file| file.is_regular && offset < file.size)?;
    (sys::read_to_scratch(fd, file.size, 1, true) != Err(libc::EOPNOTSUPP)).then_some(file.id)
}

/// Notes that a reader has just read a whole block.
pub(crate) fn note_read(file: FileId, block: u64) {
    let now = now_ms();
    Belief::of(file, block).set(now, now, true);
    Finding::of_file(file, block).set(now);
}

/// Notes that a block has been discarded: that it was read says nothing any more.
pub(crate) fn forget_read(file: FileId, block: u64) {
    Belief::of(file, block).clear();
    Finding::of_file(file, block).clear();
}

struct File {
    fd: c_int,
    file: Status,
    now: u64,
    look: bool,
    /// The bytes stay in memory, so a look may begin to read others.
    stays: bool,
    /// The end of the range.
    end: u64,
    /// The end of the part in which `cachestat` has found all pages; 0 if some were missing; none before it
    /// was asked.
    complete_until: Option<u64>,
}

impl File {
    fn residency(&mut self, offset: u64, len: u64) -> Residency {
        let end = self.end;
        let mut at = offset;
        while at < end {
            let within = (end - at).min(BLOCK - at % BLOCK);
            match self.in_block(at, within) {
                Some(found) if found == within => at += found,
                Some(0) if at == offset && self.follows_reader(at) => {
                    return Residency::Following(self.file.id);
                }
                Some(0) if at == offset => return Residency::Cold(self.file.id),
                Some(found) => return Residency::Resident(at + found - offset),
                None if at == offset => return Residency::Unknown,
                None => return Residency::Resident(at - offset),
            }
        }
        let belief = self.belief(end - 1);
        if !self.is_just_read(&belief) && !self.touch(end - 1) {
            belief.clear();
            Finding::of(self.fd, Part::Block((end - 1) / BLOCK)).clear();
            Finding::of_file(self.file.id, (end - 1) / BLOCK).clear();
            let last = ((end - 1) / BLOCK * BLOCK).saturating_sub(offset);
            return if last == 0 {
                Residency::Cold(self.file.id)
            } else {
                Residency::Resident(last)
            };
        }
        Residency::Resident(len)
    }

    /// Notes that a whole block is resident.
    fn note_resident(&self, block: u64) {
        Finding::of(self.fd, Part::Block(block)).set(self.now);
        Finding::of_file(self.file.id, block).set(self.now);
    }

    /// The number of resident bytes of a range within one block; `None` if that cannot be told.
    fn in_block(&mut self, offset: u64, len: u64) -> Option<u64> {
        let belief = self.belief(offset);
        if let Some((looked, confirmed, was_read)) = belief.get() {
            if self.believes(offset, &belief, (looked, confirmed, was_read))
                && (self.is_just_read(&belief) || self.touch(offset))
            {
                self.note_resident(offset / BLOCK);
                return Some(len);
            }
            belief.clear();
        } else if self.follows_reader(offset) {
            return Some(0);
        }
        self.look(offset, len, &belief)
    }

    /// Says whether a reader has read the block before a moment ago. The kernel's readahead may have brought
    /// this block; but a look costs a copy, and a reader needs none.
    fn follows_reader(&self, offset: u64) -> bool {
        let block = offset / BLOCK;
        !self.look
            && block > 0
            && Belief::of(self.file.id, block - 1).get().is_some_and(|(looked, _, was_read)| {
                was_read && self.now.wrapping_sub(looked) < FOLLOWING_MS
            })
    }

    /// Says whether a reader has read the block so recently that another program has hardly had the time to
    /// have it evicted and read again.
    fn is_just_read(&self, belief: &Belief) -> bool {
        belief
            .get()
            .is_some_and(|(looked, _, was_read)| was_read && age(self.now, looked) < JUST_READ)
    }

    /// Says whether a block that was wholly resident still counts as that.
    fn believes(&mut self, offset: u64, belief: &Belief, known: (u64, u64, bool)) -> bool {
        let (looked, confirmed, was_read) = known;
        let ages = (age(self.now, looked), age(self.now, confirmed));
        match pace::belief(ages.0, ages.1, Witness::Cachestat) {
            pace::Belief::Holds => return true,
            pace::Belief::Over => return false,
            pace::Belief::IfConfirmed => {}
        }
        let complete = match self.is_complete(offset / BLOCK * BLOCK) {
            Some(complete) => complete,
            // A block that was not just read is touched by the caller.
            None => {
                let holds = pace::belief(ages.0, ages.1, Witness::None) == pace::Belief::Holds;
                (holds || was_read && ages.0 < READ_ALONE)
                    && (!self.is_just_read(belief) || self.touch(offset))
            }
        };
        if complete {
            belief.set(looked, self.now, was_read);
        }
        complete
    }

    /// Says whether `cachestat` finds nothing missing in a block; `None` if it is refused.
    fn is_complete(&mut self, block_start: u64) -> Option<bool> {
        let block_end = (block_start + BLOCK).min(self.file.size);
        match self.complete_until {
            Some(until) if block_start < until => Some(true),
            Some(_) => self.has_all(block_start, block_end),
            None => {
                // All of the range in one call, because as a rule nothing is missing.
                let end = self.end.next_multiple_of(BLOCK).min(self.file.size);
                let complete = self.has_all(block_start, end)?;
                self.complete_until = Some(if complete { end } else { 0 });
                if complete || end == block_end {
                    return Some(complete);
                }
                self.has_all(block_start, block_end)
            }
        }
    }

    fn has_all(&self, start: u64, end: u64) -> Option<bool> {
        let pages = (end - start).div_ceil(PAGE);
        sys::cached_pages(self.fd, start, pages * PAGE).map(|cached| cached >= pages)
    }

    /// Looks exactly, at the whole block, so that the result can be noted.
    fn look(&self, offset: u64, len: u64, belief: &Belief) -> Option<u64> {
        let first = offset / PAGE * PAGE;
        match sys::cached_pages(self.fd, first, offset + len - first) {
            Some(0) => self.tells().then_some(0),
            Some(_) => {
                if !self.stays {
                    sys::advise(self.fd, Readahead::Off);
                }
                self.look_exactly(offset, len, belief)
            }
            None => self.look_alone(offset, len, belief),
        }
    }

    /// Looks where `cachestat` is refused. A probe of pages that are not resident begins to read them, with the
    /// kernel's readahead, often of megabytes, for which all other streams would wait. So the first probe is
    /// of one page, with readahead off.
    fn look_alone(&self, offset: u64, len: u64, belief: &Belief) -> Option<u64> {
        sys::advise(self.fd, Readahead::Off);
        let found = match self.probe(offset, 1) {
            Some(1) => self.look_exactly(offset, len, belief),
            other => other,
        };
        // A reader may have set this otherwise. That matters only if the kernel reads for the program, and
        // then reads page by page would be worse.
        if self.stays {
            sys::advise(self.fd, Readahead::Usual);
        }
        found
    }

    fn look_exactly(&self, offset: u64, len: u64, belief: &Belief) -> Option<u64> {
        let start = offset / BLOCK * BLOCK;
        let whole = BLOCK.min(self.file.size - start);
        let found = self.probe(start, whole)?;
        if found == whole {
            belief.set(self.now, self.now, false);
            self.note_resident(offset / BLOCK);
        }
        if found > offset - start {
            return Some(len.min(found - (offset - start)));
        }
        if offset == start {
            return Some(0);
        }
        // A block without its first page may still have the last ones.
        self.probe(offset, len)
    }

    /// Says whether the file system tells what is in memory. The question is about a byte after the end, so
    /// that no read begins.
    fn tells(&self) -> bool {
        sys::read_to_scratch(self.fd, self.file.size, 1, true) != Err(libc::EOPNOTSUPP)
    }

    fn probe(&self, offset: u64, len: u64) -> Option<u64> {
        match sys::read_to_scratch(self.fd, offset, len, true) {
            Ok(found) => Some(found),
            Err(libc::EAGAIN) => Some(0),
            Err(_) => None,
        }
    }

    fn touch(&self, at: u64) -> bool {
        sys::read_to_scratch(self.fd, at, 1, true) == Ok(1)
    }

    fn belief(&self, offset: u64) -> Belief {
        Belief::of(self.file.id, offset / BLOCK)
    }
}

/// The time since a time in milliseconds.
const fn age(now: u64, then: u64) -> Duration {
    Duration::from_millis(now.wrapping_sub(then))
}

/// Milliseconds.
fn now_ms() -> u64 {
    u64::try_from(sys::now().as_millis()).unwrap_or(u64::MAX)
}

/// The belief about one block. It is one word, so that no thread sees half of it.
///
/// ```text
///  63          41     40      39           20 19            0
/// | fingerprint  | was read | looked, 16 ms | confirmed, ms |     0: nothing
/// ```
/// The slot (16 bits) and the fingerprint (22 bits, and one that is set) tell a block from all others, except
/// for one pair in 2^38. The times wrap after 17 minutes and 4.6 hours; a word of that age looks fresh for
/// 5 ms.
struct Belief {
    slot: usize,
    fingerprint: u64,
}

static SLOTS: [AtomicU64; BLOCKS_MAX] = [const { AtomicU64::new(0) }; BLOCKS_MAX];
const TIME_BITS: u32 = 20;
const TIME: u64 = (1 << TIME_BITS) - 1;
const WAS_READ: u64 = 1 << (2 * TIME_BITS);
const FINGERPRINT_SHIFT: u32 = 2 * TIME_BITS + 1;
/// `looked` is kept in units of 16 ms.
const LOOKED_SHIFT: u32 = 4;

impl Belief {
    fn of(file: FileId, block: u64) -> Self {
        let hash = hash([file.dev, file.ino, block]);
        let slot = usize::try_from(hash & (BLOCKS_MAX as u64 - 1)).unwrap_or(0);
        // The lowest bit is set, so that a word in use is not 0.
        Self { slot, fingerprint: (hash >> FINGERPRINT_SHIFT) | 1 }
    }

    /// The times of the look and of the confirmation in milliseconds, with their high bits taken from now, and
    /// whether a reader has read the block.
    fn get(&self) -> Option<(u64, u64, bool)> {
        let word = SLOTS[self.slot].load(Ordering::Relaxed);
        if word >> FINGERPRINT_SHIFT != self.fingerprint {
            return None;
        }
        let now = now_ms();
        let looked = unwrap_time(now >> LOOKED_SHIFT, word >> TIME_BITS) << LOOKED_SHIFT;
        Some((looked, unwrap_time(now, word), word & WAS_READ != 0))
    }

    fn set(&self, looked: u64, confirmed: u64, was_read: bool) {
        let looked = (looked >> LOOKED_SHIFT & TIME) << TIME_BITS;
        let was_read = if was_read { WAS_READ } else { 0 };
        let word = self.fingerprint << FINGERPRINT_SHIFT | was_read | looked | confirmed & TIME;
        SLOTS[self.slot].store(word, Ordering::Relaxed);
    }

    fn clear(&self) {
        SLOTS[self.slot].store(0, Ordering::Relaxed);
    }
}

/// The latest time not after `now` whose low bits are those of `low`.
const fn unwrap_time(now: u64, low: u64) -> u64 {
    now.wrapping_sub(now.wrapping_sub(low) & TIME)
}
