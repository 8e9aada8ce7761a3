//! The memory that sockets receive into. The ring owns these buffers, so an idle connection needs none. Accepted
//! sockets receive requests into small buffers. Connected sockets receive responses into wide ones, and accepted sockets
//! receive long bodies into them.

use core::cell::{Cell, RefCell};
use core::fmt;
use core::ops::Deref;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU16, Ordering};
use std::io;
use std::rc::Rc;

use io_uring::types::BufRingEntry;
use rustix::mm::{Advice, MapFlags, ProtFlags};

use crate::fd::Fd;

/// The buffers of a pool.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// The number of buffers; a power of two, as the kernel requires. It is enough for one batch of completions.
    /// When the buffers run out, received bytes wait in the kernel.
    pub(crate) count: u16,
    /// The bytes of each buffer.
    pub(crate) size: usize,
    /// True if all pages exist from the beginning; otherwise they are made [when needed](RecvPool::populate).
    is_populated: bool,
}

/// For requests: a browser's head fits.
pub(crate) const SMALL: Shape = Shape { count: 512, size: 2 * 1024, is_populated: true };
/// For responses: most of them fit, head and content of 16 KiB. A ring that receives neither responses nor long
/// bodies uses one page of it.
pub(crate) const WIDE: Shape = Shape { count: 64, size: 20 * 1024, is_populated: false };
const _: () = assert!(SMALL.count.is_power_of_two() && WIDE.count.is_power_of_two());
/// The kernel reports a length in 16 bits.
const _: () = assert!(SMALL.size <= WIDE.size && WIDE.size <= u16::MAX as usize);

/// The bytes of a [`Round`]: 64 small buffers, or 7 wide ones. The bytes of another client wait behind these at most.
const ROUND_BYTES_MAX: usize = 64 * SMALL.size;

/// The buffers, and whether the kernel or this process hands them out.
pub(crate) struct RecvPool {
    shape: Shape,
    memory: NonNull<u8>,
    bytes: usize,
    source: Source,
    is_populated: Cell<bool>,
    /// The number of [`RecvBuf`]s.
    lent: Cell<u16>,
}

enum Source {
    /// We do.
    List(RefCell<Vec<u16>>),
    /// The kernel does, from a ring of descriptors at the start of the mapping, after which come
    /// the buffers. `tail` is ours alone to write; the kernel reads it.
    Kernel { tail: Cell<u16> },
}

/// The bytes that accepted sockets may receive in one turn which had to wait for buffers, or have more bytes than one
/// buffer holds. While the caller has not looked at all received bytes, one socket may receive. Otherwise clients that
/// send without end would fill all buffers again and again, and the bytes of other clients would wait behind these for
/// seconds.
#[derive(Debug)]
pub(crate) struct Round {
    bytes_left: usize,
}

/// Received bytes, in a buffer that goes back to the ring when dropped: copy what must stay.
pub struct RecvBuf {
    pool: Rc<RecvPool>,
    id: u16,
    len: u16,
}

impl Round {
    /// A round with the buffers of these pools.
    pub(crate) fn new(small: &RecvPool, wide: &RecvPool) -> Self {
        let bytes_left = match small.is_all_free() && wide.is_all_free() {
            true => ROUND_BYTES_MAX,
            false => usize::from(small.has_free()),
        };
        Self { bytes_left }
    }

    /// Returns whether a socket may receive, too, and counts its buffer. The last buffer may be larger than what is left.
    pub(crate) fn admits(&mut self, fd: &Fd) -> bool {
        let shape = if fd.wants_wide() { WIDE } else { SMALL };
        let admits = self.bytes_left > 0;
        self.bytes_left = self.bytes_left.saturating_sub(shape.size);
        admits
    }
}

impl Shape {
    const fn descriptors_bytes(self) -> usize {
        self.count as usize * size_of::<BufRingEntry>()
    }
}

impl RecvPool {
    pub(crate) fn with_list(shape: Shape) -> io::Result<Rc<Self>> {
        Self::map(shape, Source::List(RefCell::new((0..shape.count).rev().collect())))
    }

    /// For `IORING_REGISTER_PBUF_RING`: the descriptors are at [`Self::descriptors`].
    pub(crate) fn with_kernel(shape: Shape) -> io::Result<Rc<Self>> {
        let pool = Self::map(shape, Source::Kernel { tail: Cell::new(0) })?;
        for id in 0..shape.count {
            pool.offer(id);
        }
        Ok(pool)
    }

    fn map(shape: Shape, source: Source) -> io::Result<Rc<Self>> {
        let bytes = shape.descriptors_bytes() + usize::from(shape.count) * shape.size;
        let populated = if shape.is_populated { MapFlags::POPULATE } else { MapFlags::empty() };
        // SAFETY: an anonymous private mapping at an address of the kernel's choice (mmap(2))
        // touches no memory that exists.
        let memory = unsafe {
            rustix::mm::mmap_anonymous(
                core::ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | populated,
            )
        }?;
        let memory = NonNull::new(memory.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        let is_populated = Cell::new(shape.is_populated);
        Ok(Rc::new(Self { shape, memory, bytes, source, is_populated, lent: Cell::new(0) }))
    }

    /// The number and the size of its buffers.
    pub(crate) const fn shape(&self) -> Shape {
        self.shape
    }

    /// Makes all pages now, if that was not done before, so that they do not look like the cost of the first
    /// connections.
    #[cold]
    pub(crate) fn populate(&self) {
        if self.is_populated.replace(true) {
            return;
        }
        let all = self.memory.as_ptr().cast();
        // SAFETY: the range is this pool's mapping; its bytes stay as they are (madvise(2)).
        let result = unsafe { rustix::mm::madvise(all, self.bytes, Advice::LinuxPopulateWrite) };
        // If memory is short, each page is made at its first access.
        let _ = result;
    }

    /// Returns whether all pages have been made.
    pub(crate) const fn is_populated(&self) -> bool {
        self.is_populated.get()
    }

    /// The start of the ring of descriptors; page-aligned as the kernel wants it.
    pub(crate) fn descriptors(&self) -> *mut BufRingEntry {
        self.memory.as_ptr().cast()
    }

    fn buffer(&self, id: u16) -> *mut u8 {
        assert!(id < self.shape.count);
        let at = self.shape.descriptors_bytes() + usize::from(id) * self.shape.size;
        // SAFETY: the mapping holds the descriptors and `count` buffers of `size` after them.
        unsafe { self.memory.as_ptr().add(at) }
    }

    /// Take a free buffer and let `fill` write into it; `None` when all are in use.
    pub(crate) fn receive(
        self: &Rc<Self>,
        fill: impl FnOnce(&mut [u8]) -> io::Result<usize>,
    ) -> Option<io::Result<RecvBuf>> {
        let Source::List(free) = &self.source else {
            unreachable!("the kernel hands out the buffers of this pool")
        };
        let id = free.borrow_mut().pop()?;
        let mut buf = self.lend(id, 0);
        // SAFETY: the id was free, so nothing else refers to these `size` initialised bytes.
        let slice = unsafe { core::slice::from_raw_parts_mut(self.buffer(id), self.shape.size) };
        Some(fill(slice).map(|len| {
            buf.len = u16::try_from(len).expect("at most the size");
            buf
        }))
    }

    /// The kernel has written `len` bytes to buffer `id` and no longer refers to it.
    pub(crate) fn received(self: &Rc<Self>, id: u16, len: usize) -> RecvBuf {
        assert!(id < self.shape.count && len <= self.shape.size);
        self.lend(id, u16::try_from(len).expect("asserted"))
    }

    fn lend(self: &Rc<Self>, id: u16, len: u16) -> RecvBuf {
        self.lent.set(self.lent.get() + 1);
        RecvBuf { pool: Rc::clone(self), id, len }
    }

    /// Returns whether a receive can find a buffer, or could once the receives under way have been reported.
    pub(crate) fn has_free(&self) -> bool {
        self.lent.get() < self.shape.count
    }

    /// Returns whether no caller has a buffer that was received into.
    pub(crate) fn is_all_free(&self) -> bool {
        self.lent.get() == 0
    }

    /// Makes a buffer available that nothing refers to.
    fn offer(&self, id: u16) {
        match &self.source {
            Source::List(free) => free.borrow_mut().push(id),
            Source::Kernel { tail } => {
                let at = tail.get();
                // SAFETY: the index is masked to the ring's `count` descriptors.
                let entry =
                    unsafe { self.descriptors().add((at & (self.shape.count - 1)) as usize) };
                // SAFETY: the kernel does not read a descriptor at or beyond the tail, and the
                // ring has room for all ids, so this one is ours to write.
                let entry = unsafe { &mut *entry };
                entry.set_addr(self.buffer(id) as u64);
                entry.set_len(u32::try_from(self.shape.size).expect("a small constant"));
                entry.set_bid(id);
                tail.set(at.wrapping_add(1));
                // SAFETY: the first descriptor exists; its `resv` field is the tail.
                let shared = unsafe { BufRingEntry::tail(self.descriptors()) };
                // SAFETY: the field is 2-aligned and written only here; the kernel reads it with
                // acquire (io_uring_buf_ring in io_uring/kbuf.c), which pairs with this release.
                let shared = unsafe { AtomicU16::from_ptr(shared.cast_mut()) };
                shared.store(tail.get(), Ordering::Release);
            }
        }
    }
}

impl Drop for RecvPool {
    fn drop(&mut self) {
        // SAFETY: made by `map` with this length; every `RecvBuf` holds the pool, and the ring
        // that registered it unregisters it before it drops its own reference.
        let result = unsafe { rustix::mm::munmap(self.memory.as_ptr().cast(), self.bytes) };
        debug_assert!(result.is_ok(), "munmap of an own mapping fails only for bad arguments");
    }
}

impl Deref for RecvBuf {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: the buffer is ours until it is given back in drop; `len` bytes were written by
        // the receive that made it, and the mapping began as zeroes.
        unsafe { core::slice::from_raw_parts(self.pool.buffer(self.id), self.len as usize) }
    }
}

impl Drop for RecvBuf {
    fn drop(&mut self) {
        self.pool.lent.set(self.pool.lent.get() - 1);
        self.pool.offer(self.id);
    }
}

impl fmt::Debug for RecvBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RecvBuf({}: {} bytes)", self.id, self.len)
    }
}

impl fmt::Debug for RecvPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RecvPool")
    }
}
