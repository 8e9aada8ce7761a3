//! The memory for reads from the disk: pages of one mapping, which are lent and taken back.

use core::cell::RefCell;
use core::fmt;
use core::ops::Deref;
use core::ptr::NonNull;
use std::io;
use std::rc::Rc;

use rustix::mm::{MapFlags, ProtFlags};

/// A fixed number of page-aligned buffers of one size, which can be lent in parts.
///
/// Untouched buffers cost address space only; the one given back last is lent first, so a quiet
/// worker keeps few pages warm.
#[derive(Clone)]
pub struct BufferPool(Rc<Pool>);

struct Pool {
    base: NonNull<u8>,
    size: usize,
    count: usize,
    free: RefCell<Free>,
}

/// The buffers and parts that are not lent.
struct Free {
    whole: Vec<u32>,
    /// Buffers of which some parts are lent, and others are not.
    divided: Vec<Divided>,
}

/// The parts of a buffer that are not lent: a bit for each.
struct Divided {
    index: u32,
    free: u16,
}

/// A buffer of a pool, or some of its parts, given back when dropped.
pub struct Buffer {
    pool: Rc<Pool>,
    index: u32,
    /// The first of its parts, and how many they are.
    part: u8,
    parts: u8,
    want: u32,
    len: u32,
}

/// The parts of a buffer.
const PARTS: u8 = 16;
const ALL: u16 = u16::MAX;
const _: () = assert!(ALL.count_ones() == PARTS as u32);

impl BufferPool {
    /// Map `count` buffers of `size` bytes each.
    ///
    /// # Errors
    ///
    /// The errors of `mmap(2)`.
    ///
    /// # Panics
    ///
    /// If `size` is not a multiple of 4096, or `size` or `count` is 0 or not below 2³¹.
    pub fn new(size: usize, count: usize) -> io::Result<Self> {
        assert!(size > 0 && size.is_multiple_of(4096), "whole pages");
        assert!(size < 1 << 31 && count > 0 && count < 1 << 31);
        let bytes = size.checked_mul(count).ok_or(io::ErrorKind::OutOfMemory)?;
        // SAFETY: an anonymous private mapping at an address of the kernel's choice (mmap(2))
        // touches no memory that exists.
        let base = unsafe {
            rustix::mm::mmap_anonymous(
                core::ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        }?;
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        let last = u32::try_from(count).expect("asserted above");
        let free = Free { whole: (0..last).rev().collect(), divided: Vec::new() };
        Ok(Self(Rc::new(Pool { base, size, count, free: RefCell::new(free) })))
    }

    /// Borrows a buffer to read `want` bytes into; `None` when all are lent, wholly or in parts.
    ///
    /// # Panics
    ///
    /// If `want` is 0 or more than [`size`](Self::size).
    #[must_use]
    pub fn take(&self, want: usize) -> Option<Buffer> {
        assert!(want > 0 && want <= self.0.size);
        let index = self.0.free.borrow_mut().whole.pop()?;
        Some(self.buffer(index, 0, PARTS, want))
    }

    /// Borrow 1, 2, 4, 8 or 16 sixteenths of a buffer to read `want` bytes into: the fewest that have room for them,
    /// or fewer if no more are free together. Then the result is for fewer bytes ([`Buffer::want`]). `None` when all
    /// parts are lent.
    ///
    /// # Panics
    ///
    /// If `want` is 0 or more than [`size`](Self::size), or if a sixteenth is not of whole pages.
    #[must_use]
    pub fn take_part(&self, want: usize) -> Option<Buffer> {
        let part_bytes = self.part_bytes();
        assert!(part_bytes.is_multiple_of(4096), "parts of whole pages");
        assert!(want > 0 && want <= self.0.size);
        let parts = want.div_ceil(part_bytes).next_power_of_two();
        let (index, part, parts) =
            self.0.free.borrow_mut().take(u8::try_from(parts).expect("at most all parts"))?;
        Some(self.buffer(index, part, parts, want.min(usize::from(parts) * part_bytes)))
    }

    fn buffer(&self, index: u32, part: u8, parts: u8, want: usize) -> Buffer {
        let want = u32::try_from(want).expect("at most size, which fits");
        Buffer { pool: Rc::clone(&self.0), index, part, parts, want, len: 0 }
    }

    /// The bytes of each whole buffer.
    #[must_use]
    pub fn size(&self) -> usize {
        self.0.size
    }

    /// The bytes of the smallest part of a buffer, a sixteenth.
    #[must_use]
    pub fn part_bytes(&self) -> usize {
        self.0.size / usize::from(PARTS)
    }

    /// Buffers that can be taken whole now.
    #[must_use]
    pub fn available(&self) -> usize {
        self.0.free.borrow().whole.len()
    }

    /// Returns whether [`take_part`](Self::take_part) finds a free part now.
    #[must_use]
    pub fn has_part(&self) -> bool {
        let free = self.0.free.borrow();
        !free.whole.is_empty() || !free.divided.is_empty()
    }

    /// The number of all buffers, lent or not.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.count
    }

    /// Returns whether a buffer is of this pool.
    pub(crate) fn has(&self, buffer: &Buffer) -> bool {
        Rc::ptr_eq(&self.0, &buffer.pool)
    }

    /// The memory of a buffer, whole.
    ///
    /// # Panics
    ///
    /// If there is no such buffer.
    pub(crate) fn place(&self, index: u32) -> libc::iovec {
        assert!((index as usize) < self.0.count, "buffer {index} of {}", self.0.count);
        // SAFETY: inside the mapping, which has count * size bytes, because index < count (asserted).
        let start = unsafe { self.0.base.as_ptr().add(index as usize * self.0.size) };
        libc::iovec { iov_base: start.cast(), iov_len: self.0.size }
    }
}

impl Buffer {
    /// The number of bytes that a read shall bring.
    #[must_use]
    pub const fn want(&self) -> usize {
        self.want as usize
    }

    /// The address that the kernel writes to; `want` bytes from here belong to this buffer.
    pub(crate) fn as_mut_ptr(&mut self) -> *mut u8 {
        // SAFETY: see `offset`.
        unsafe { self.pool.base.as_ptr().add(self.offset()) }
    }

    /// Its pool.
    pub(crate) fn pool(&self) -> BufferPool {
        BufferPool(Rc::clone(&self.pool))
    }

    /// The number of the buffer that this is, or is a part of, in its pool.
    pub(crate) const fn index(&self) -> u32 {
        self.index
    }

    /// The offset of the buffer in the mapping. The buffer and all its parts are inside the mapping, because index <
    /// count, part + parts <= PARTS, and the mapping has count * size bytes.
    fn offset(&self) -> usize {
        let part_bytes = self.pool.size / usize::from(PARTS);
        self.index as usize * self.pool.size + usize::from(self.part) * part_bytes
    }

    /// Say how many bytes were read.
    pub(crate) fn set_len(&mut self, len: usize) {
        assert!(len <= self.want(), "the kernel wrote more than it was asked for");
        self.len = u32::try_from(len).expect("at most want, which fits");
    }

    /// Fill it by hand, as the simulation and `memfd` sources do.
    ///
    /// # Panics
    ///
    /// If there are more bytes than [`want`](Self::want).
    pub fn fill_from(&mut self, bytes: &[u8]) {
        assert!(bytes.len() <= self.want());
        let to = self.as_mut_ptr();
        // SAFETY: `to` has `want` bytes, asserted not to be fewer than `bytes`; nothing else has
        // this buffer (`&mut self`), so the two do not overlap.
        unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
        self.set_len(bytes.len());
    }
}

impl Deref for Buffer {
    type Target = [u8];

    /// The bytes that were read.
    fn deref(&self) -> &[u8] {
        // SAFETY: see `offset`.
        let start = unsafe { self.pool.base.as_ptr().add(self.offset()) };
        // SAFETY: `set_len` was given what the kernel wrote (or zero), the mapping began as zeroes,
        // and while `&self` lives no operation owns the buffer.
        unsafe { core::slice::from_raw_parts(start, self.len as usize) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.pool.free.borrow_mut().give_back(self.index, self.part, self.parts);
    }
}

impl Free {
    /// Takes adjacent parts: as many as asked, or else half as many, and so on. Returns the index of their buffer, the
    /// first part, and their number.
    fn take(&mut self, mut parts: u8) -> Option<(u32, u8, u8)> {
        while parts > 0 {
            let found = self.divided.iter_mut().enumerate().find_map(|(at, divided)| {
                first_run(divided.free, parts).map(|part| (at, divided, part))
            });
            if let Some((at, divided, part)) = found {
                divided.free &= !run(part, parts);
                let index = divided.index;
                if divided.free == 0 {
                    self.divided.swap_remove(at);
                }
                return Some((index, part, parts));
            }
            if let Some(index) = self.whole.pop() {
                if parts < PARTS {
                    self.divided.push(Divided { index, free: ALL & !run(0, parts) });
                }
                return Some((index, 0, parts));
            }
            parts /= 2;
        }
        None
    }

    fn give_back(&mut self, index: u32, part: u8, parts: u8) {
        if parts == PARTS {
            return self.whole.push(index);
        }
        let at = self.divided.iter().position(|divided| divided.index == index);
        let at = at.unwrap_or_else(|| {
            self.divided.push(Divided { index, free: 0 });
            self.divided.len() - 1
        });
        self.divided[at].free |= run(part, parts);
        if self.divided[at].free == ALL {
            self.divided.swap_remove(at);
            self.whole.push(index);
        }
    }
}

/// The bits of `parts` parts from `part` on.
fn run(part: u8, parts: u8) -> u16 {
    (ALL >> (PARTS - parts)) << part
}

/// The first of `parts` free parts whose index is a multiple of `parts`.
fn first_run(free: u16, parts: u8) -> Option<u8> {
    (0..PARTS).step_by(parts.into()).find(|part| {
        let run = run(*part, parts);
        free & run == run
    })
}

impl Drop for Pool {
    fn drop(&mut self) {
        // SAFETY: `base` and the length are those of the mapping made in `new`; every `Buffer`
        // holds the pool, so none is left.
        let result =
            unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.size * self.count) };
        debug_assert!(result.is_ok(), "munmap of an own mapping fails only for bad arguments");
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({}: {} of {})", self.index, self.len, self.want)
    }
}

impl fmt::Debug for BufferPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BufferPool({} of {} x {} free)", self.available(), self.0.count, self.0.size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: usize = 256 * 1024;
    const PART: usize = SIZE / PARTS as usize;

    /// The bytes of the mapping that a buffer has.
    fn place(buffer: &Buffer) -> core::ops::Range<usize> {
        let start = buffer.offset();
        start..start + usize::from(buffer.parts) * PART
    }

    #[test]
    fn a_part_has_room_for_what_is_wanted_unless_no_more_are_together() {
        let pool = BufferPool::new(SIZE, 1).unwrap();
        let buffers = [1, PART, PART + 1, 5 * PART, SIZE, SIZE, 1].map(|want| pool.take_part(want));
        let found =
            buffers.each_ref().map(|buffer| buffer.as_ref().map(|it| (place(it), it.want())));
        let range = |from: usize, to: usize| from * PART..to * PART;
        assert_eq!(
            found,
            [
                Some((range(0, 1), 1)),
                Some((range(1, 2), PART)),
                Some((range(2, 4), PART + 1)),
                Some((range(8, 16), 5 * PART)),
                Some((range(4, 8), 4 * PART)),
                None,
                None,
            ]
        );
        assert!(!pool.has_part());
        drop(buffers);
        assert_eq!(pool.available(), 1);
        assert_eq!(pool.take_part(SIZE).map(|buffer| place(&buffer)), Some(0..SIZE));
    }

    #[test]
    fn no_byte_is_lent_twice_and_none_is_lost() {
        let pool = BufferPool::new(SIZE, 3).unwrap();
        let mut chance = testkit::Random::new(1);
        let mut random = |end: usize| chance.below(end);
        let mut lent: Vec<Buffer> = Vec::new();
        for _ in 0..20_000 {
            if random(2) == 0 && !lent.is_empty() {
                lent.swap_remove(random(lent.len()));
            } else {
                let has_part = pool.has_part();
                let want = 1 + random(SIZE) / (1 + random(16));
                let taken = if random(4) == 0 { pool.take(want) } else { pool.take_part(want) };
                assert!(taken.is_some() || !has_part || pool.available() == 0);
                let Some(taken) = taken else { continue };
                let new = place(&taken);
                assert!(taken.want() <= new.len());
                for old in lent.iter().map(place) {
                    assert!(new.end <= old.start || old.end <= new.start, "{new:?}, {old:?}");
                }
                lent.push(taken);
            }
        }
        drop(lent);
        assert_eq!((pool.available(), pool.has_part()), (3, true));
    }
}
