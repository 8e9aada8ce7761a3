//! Memory for frames: a mapping cut into chunks, and each chunk has one owner.
//!
//! ```text
//!           blank()               lend()
//!   free ────────────► Chunk ───────────────► the kernel's
//!    ▲                 │   ▲                    │
//!    │ last one drops  │   └────────────────────┘
//!    └──── Received ◄──┘ share()   take_back()
//! ```

use core::cell::{Cell, RefCell};
use core::fmt;
use core::ops::{Deref, Range};
use core::ptr::NonNull;
use std::io;
use std::rc::Rc;

use netstack::ReceivedChecksum;

use crate::mapping::Mapping;

/// Chunks of equal length.
pub(crate) struct Pool {
    memory: Mapping,
    chunk_bytes: usize,
    /// For each chunk: the number of frames that refer to it, or `OWNED` or `LENT`.
    holders: Box<[Cell<u32>]>,
    /// Free chunks. The chunk that was used last is on top, because it is likely to be in the processor's cache.
    free: RefCell<Vec<u32>>,
    /// Chunks with holders.
    held: Cell<usize>,
}

const FREE: u32 = 0;
/// The owner is a [`Chunk`].
const OWNED: u32 = u32::MAX;
/// The owner is the kernel.
const LENT: u32 = u32::MAX - 1;

impl Pool {
    pub(crate) fn new(chunk_bytes: usize, chunks: u32) -> io::Result<Self> {
        let memory = Mapping::anonymous(chunk_bytes * chunks as usize)?;
        let holders = (0..chunks).map(|_| Cell::new(FREE)).collect();
        let free = RefCell::new((0..chunks).rev().collect());
        Ok(Self { memory, chunk_bytes, holders, free, held: Cell::new(0) })
    }

    pub(crate) const fn memory(&self) -> &Mapping {
        &self.memory
    }

    pub(crate) const fn chunk_bytes(&self) -> usize {
        self.chunk_bytes
    }

    /// Takes a free chunk. The chunk still has the bytes of its last use.
    pub(crate) fn blank(self: &Rc<Self>) -> Option<Chunk<'_>> {
        let index = self.free.borrow_mut().pop()?;
        self.move_to(index, FREE, OWNED);
        Some(Chunk { pool: self, index })
    }

    /// Takes back the chunk that the kernel returns by an offset into the memory. Returns `None` if the
    /// kernel does not have that chunk.
    pub(crate) fn take_back(self: &Rc<Self>, offset: u64) -> Option<Chunk<'_>> {
        let index = usize::try_from(offset).ok()? / self.chunk_bytes;
        self.holders.get(index).filter(|holders| holders.get() == LENT)?.set(OWNED);
        Some(Chunk { pool: self, index: u32::try_from(index).ok()? })
    }

    fn move_to(&self, index: u32, from: u32, to: u32) {
        let was = self.holders[index as usize].replace(to);
        assert_eq!(was, from, "the state of chunk {index}");
    }

    /// Frees a chunk that nothing refers to.
    fn release(&self, index: u32) {
        self.holders[index as usize].set(FREE);
        self.free.borrow_mut().push(index);
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("chunk_bytes", &self.chunk_bytes)
            .field("chunks", &self.holders.len())
            .field("held", &self.held.get())
            .finish_non_exhaustive()
    }
}

/// A chunk, and its only owner.
#[derive(Debug)]
pub(crate) struct Chunk<'a> {
    pool: &'a Rc<Pool>,
    index: u32,
}

impl Chunk<'_> {
    /// The offset of the chunk in the memory.
    fn offset(&self) -> usize {
        self.index as usize * self.pool.chunk_bytes
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        let base = self.pool.memory.at(self.offset(), self.pool.chunk_bytes);
        // SAFETY: the bytes are in the mapping (`at`), which `pool` keeps, and they change only through
        // their owner: the state is OWNED, so that they are neither the kernel's nor another chunk's.
        unsafe { core::slice::from_raw_parts(base.as_ptr(), self.pool.chunk_bytes) }
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        let base = self.pool.memory.at(self.offset(), self.pool.chunk_bytes);
        // SAFETY: as in `bytes`; the owner is borrowed exclusively.
        unsafe { core::slice::from_raw_parts_mut(base.as_ptr(), self.pool.chunk_bytes) }
    }

    /// Gives the chunk to the kernel, and returns its offset in the memory.
    pub(crate) fn lend(self) -> u64 {
        self.pool.move_to(self.index, OWNED, LENT);
        self.offset() as u64
    }

    /// Makes the chunk a received frame: the bytes in `range` of the chunk.
    pub(crate) fn share(self, range: Range<usize>, checksum: ReceivedChecksum) -> Received {
        assert!(range.start <= range.end, "{range:?}");
        assert!(range.end <= self.pool.chunk_bytes, "{range:?}");
        self.pool.move_to(self.index, OWNED, 1);
        self.pool.held.set(self.pool.held.get() + 1);
        let bytes = NonNull::from(&self.bytes()[range]);
        let owner = Owner::Pool(Holder { pool: Rc::clone(self.pool), index: self.index });
        Received { owner, bytes, checksum }
    }

    /// As [`share`](Self::share), but a copy if `held_max` chunks have holders.
    pub(crate) fn share_or_copy(
        self,
        range: Range<usize>,
        checksum: ReceivedChecksum,
        held_max: usize,
    ) -> Received {
        if self.pool.held.get() < held_max {
            self.share(range, checksum)
        } else {
            Received::copy(&self.bytes()[range], checksum)
        }
    }
}

impl Drop for Chunk<'_> {
    fn drop(&mut self) {
        // Otherwise the chunk was lent or shared, and has another owner.
        if self.pool.holders[self.index as usize].get() == OWNED {
            self.pool.release(self.index);
        }
    }
}

/// A received frame. Its clones and parts share its bytes.
///
/// The application should drop the frame soon, because its memory belongs to the interface. An interface lends
/// [`HELD_MAX`](crate::HELD_MAX) frames; further frames are copies.
#[derive(Clone)]
pub struct Received {
    owner: Owner,
    /// A part of the memory that `owner` keeps.
    bytes: NonNull<[u8]>,
    checksum: ReceivedChecksum,
}

impl Received {
    /// Makes a copy of `bytes`, which uses no memory of the interface.
    pub(crate) fn copy(bytes: &[u8], checksum: ReceivedChecksum) -> Self {
        let copy = Rc::<[u8]>::from(bytes);
        Self { bytes: NonNull::from(&*copy), owner: Owner::Copied(copy), checksum }
    }

    /// True if the frame is a copy, with memory of its own.
    pub(crate) const fn is_copy(&self) -> bool {
        matches!(self.owner, Owner::Copied(_))
    }

    /// The knowledge about the checksum of TCP or UDP.
    #[must_use]
    pub const fn checksum(&self) -> ReceivedChecksum {
        self.checksum
    }

    /// A part of the frame, which shares the frame's memory.
    ///
    /// # Panics
    ///
    /// If the range is not inside of the frame.
    #[must_use]
    pub fn part(&self, range: Range<usize>) -> Self {
        Self { bytes: NonNull::from(&self[range]), ..self.clone() }
    }
}

impl Deref for Received {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the bytes are a part of what `owner` keeps (`share`, `copy`, `part`), at an address that does not
        // change. Nothing writes to it: a chunk of the pool is neither the kernel's nor a `Chunk`'s while it has
        // holders, and a copy is shared.
        unsafe { self.bytes.as_ref() }
    }
}

impl fmt::Debug for Received {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Received")
            .field("len", &self.len())
            .field("checksum", &self.checksum)
            .field("is_copy", &self.is_copy())
            .finish()
    }
}

/// The owner of a frame's memory.
#[derive(Clone)]
#[expect(dead_code, reason = "the fields keep the memory, and nothing reads them")]
enum Owner {
    Pool(Holder),
    Copied(Rc<[u8]>),
}

/// One of the holders of a chunk.
struct Holder {
    pool: Rc<Pool>,
    index: u32,
}

impl Holder {
    fn count(&self) -> &Cell<u32> {
        &self.pool.holders[self.index as usize]
    }
}

impl Clone for Holder {
    fn clone(&self) -> Self {
        let count = self.count().get() + 1;
        assert!(count < LENT, "too many holders");
        self.count().set(count);
        Self { pool: Rc::clone(&self.pool), index: self.index }
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let count = self.count().get() - 1;
        self.count().set(count);
        if count == 0 {
            self.pool.held.set(self.pool.held.get() - 1);
            self.pool.release(self.index);
        }
    }
}

#[cfg(test)]
mod tests;
