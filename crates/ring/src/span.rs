//! Memory whose parts have different owners: one mapping, split and joined again.

use core::fmt;
use core::ops::{Deref, DerefMut};
use core::ptr::NonNull;
use std::io;
use std::rc::Rc;

use rustix::mm::{MapFlags, ProtFlags};

/// A part of a mapping, and its only owner: no other span has any of its bytes.
///
/// A part can be read or written while other owners read or write the other parts. The mapping goes
/// with its last span. Memory that was never touched costs address space only.
pub struct Span {
    mapping: Rc<Mapping>,
    start: usize,
    len: usize,
}

struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
}

impl Span {
    /// Maps `bytes` of zeroes, and returns all of them.
    ///
    /// # Errors
    ///
    /// The errors of `mmap(2)`; `EINVAL` if there are no bytes.
    pub fn map(bytes: usize) -> io::Result<Self> {
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
        Ok(Self { mapping: Rc::new(Mapping { base, bytes }), start: 0, len: bytes })
    }

    /// Position of the first byte in the mapping.
    #[must_use]
    pub const fn start(&self) -> usize {
        self.start
    }

    /// Cuts off the first `n` bytes and returns them; `self` keeps the rest. Either may be empty.
    ///
    /// # Panics
    ///
    /// If there are fewer bytes.
    #[must_use]
    pub fn split_to(&mut self, n: usize) -> Self {
        assert!(n <= self.len, "{n} bytes of {}", self.len);
        let front = Self { mapping: Rc::clone(&self.mapping), start: self.start, len: n };
        self.start += n;
        self.len -= n;
        front
    }

    /// Puts `next` after the last byte.
    ///
    /// # Errors
    ///
    /// `next`, if it is of another mapping or begins elsewhere.
    pub fn join(&mut self, next: Self) -> Result<(), Self> {
        let follows = next.start == self.start + self.len;
        if !follows || !Rc::ptr_eq(&self.mapping, &next.mapping) {
            return Err(next);
        }
        self.len += next.len;
        Ok(())
    }

    fn first(&self) -> *mut u8 {
        // SAFETY: `start <= bytes` of the mapping: a span is made of the whole, and splits and joins
        // keep it inside.
        unsafe { self.mapping.base.as_ptr().add(self.start) }
    }
}

impl Deref for Span {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the bytes from `start` on, `len` of them, are inside the mapping, which lives as
        // long as `self` and began as zeroes. No other span has one of them, for `split_to` divides
        // them and `join` consumes the other; so only `&mut self` could change them.
        unsafe { core::slice::from_raw_parts(self.first(), self.len) }
    }
}

impl DerefMut for Span {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `deref`; no other span has one of the bytes, and `self` is borrowed alone.
        unsafe { core::slice::from_raw_parts_mut(self.first(), self.len) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: made by `map` with this length; every span holds the mapping, so none is left.
        let result = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.bytes) };
        debug_assert!(result.is_ok(), "munmap of an own mapping fails only for bad arguments");
    }
}

impl fmt::Debug for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { mapping, start, len } = self;
        write!(f, "Span({start}..{} of {})", start + len, mapping.bytes)
    }
}

/// Gives free memory of the heap back to the kernel. The allocator of itself keeps what lies between pieces that are in
/// use. Other threads wait meanwhile as soon as they want memory: it takes about 0.1 ms for each MiB that is given back.
pub fn trim_heap() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it changes nothing that is in use (malloc_trim(3)).
    unsafe {
        libc::malloc_trim(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_written_apart_and_joined_in_order() {
        let mut rest = Span::map(8192).unwrap();
        let mut front = rest.split_to(5000);
        assert_eq!((front.start(), front.len(), rest.start(), rest.len()), (0, 5000, 5000, 3192));
        let (a, b) = (&mut front[..], &mut rest[..]);
        a.fill(1);
        b.fill(2);
        assert_eq!((a[4999], b[0]), (1, 2));
        rest = {
            let front = rest.join(front).expect_err("the front does not follow");
            let mut whole = front;
            whole.join(rest).unwrap();
            whole
        };
        assert_eq!((rest.len(), rest[4999], rest[5000]), (8192, 1, 2));
        assert!(rest.join(Span::map(4096).unwrap()).is_err(), "another mapping");
        assert!(rest.split_to(0).is_empty());
    }

    #[test]
    #[should_panic(expected = "8193 bytes of 8192")]
    fn a_part_is_not_larger_than_the_whole() {
        let _ = Span::map(8192).unwrap().split_to(8193);
    }
}
