//! Memory that the disk reads into: pages from one mapping, lent and taken back.

use core::cell::RefCell;
use core::fmt;
use core::ops::Deref;
use core::ptr::NonNull;
use std::io;
use std::rc::Rc;

use rustix::mm::{MapFlags, ProtFlags};

/// A fixed number of page-aligned buffers of one size.
///
/// Untouched buffers cost address space only; the one given back last is lent first, so a quiet
/// worker keeps few pages warm.
#[derive(Clone)]
pub struct BufferPool(Rc<Pool>);

struct Pool {
    base: NonNull<u8>,
    size: usize,
    count: usize,
    free: RefCell<Vec<u32>>,
}

/// A buffer of a pool, given back when dropped.
pub struct Buffer {
    pool: Rc<Pool>,
    index: u32,
    want: u32,
    len: u32,
}

impl BufferPool {
    /// Map `count` buffers of `size` bytes each.
    ///
    /// # Errors
    ///
    /// Those of `mmap(2)`.
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
        Ok(Self(Rc::new(Pool { base, size, count, free: RefCell::new((0..last).rev().collect()) })))
    }

    /// Borrow a buffer to read `want` bytes into, or `None` when all are lent.
    ///
    /// # Panics
    ///
    /// If `want` is 0 or more than [`size`](Self::size).
    #[must_use]
    pub fn take(&self, want: usize) -> Option<Buffer> {
        assert!(want > 0 && want <= self.0.size);
        let index = self.0.free.borrow_mut().pop()?;
        Some(Buffer {
            pool: Rc::clone(&self.0),
            index,
            want: u32::try_from(want).expect("at most size, which fits"),
            len: 0,
        })
    }

    /// Bytes in each buffer.
    #[must_use]
    pub fn size(&self) -> usize {
        self.0.size
    }

    /// Buffers that can be taken now.
    #[must_use]
    pub fn available(&self) -> usize {
        self.0.free.borrow().len()
    }

    /// All buffers, lent or not.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.count
    }
}

impl Buffer {
    /// The number of bytes that a read shall bring.
    #[must_use]
    pub const fn want(&self) -> usize {
        self.want as usize
    }

    /// The place that the kernel writes to; `want` bytes from here belong to this buffer.
    pub(crate) fn as_mut_ptr(&mut self) -> *mut u8 {
        // SAFETY: index < count and the mapping has count * size bytes, so the result is inside it.
        unsafe { self.pool.base.as_ptr().add(self.index as usize * self.pool.size) }
    }

    /// Say how many bytes were read.
    pub(crate) fn set_len(&mut self, len: usize) {
        assert!(len <= self.want(), "the kernel wrote more than it was asked for");
        self.len = u32::try_from(len).expect("at most want, which fits");
    }

    /// Fill it by hand: what the simulation and `memfd` sources do.
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
        let offset = self.index as usize * self.pool.size;
        // SAFETY: as in `as_mut_ptr`, the start is inside the mapping.
        let start = unsafe { self.pool.base.as_ptr().add(offset) };
        // SAFETY: `set_len` was given what the kernel wrote (or zero), the mapping began as zeroes,
        // and while `&self` lives no operation owns the buffer.
        unsafe { core::slice::from_raw_parts(start, self.len as usize) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.pool.free.borrow_mut().push(self.index);
    }
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
