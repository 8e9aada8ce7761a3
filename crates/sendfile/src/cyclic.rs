//! Cyclic buffers: memory of a fixed size that receives fill and streams send from, and that is filled
//! again.
//!
//! Read first: "Rethinking Sendfile Support in Unix Kernel" (Pathak, Stafman, Vithanage), whose proxy
//! keeps a table of the partitions of its buffer. A partition is the memory that is taken in one step. The pieces cut
//! from a partition own it together. Its memory is free again once the last piece is dropped. A queue
//! drops a piece when its transport has [released](outq::OutQ::mark_released) it. Partitions may be
//! released in any order.
//!
//! No byte is overwritten while a piece has it: a partition owns its memory ([`Span`]), and only the
//! owner of memory can write to it.

mod file;
mod table;

use core::cell::RefCell;
use core::fmt;
use core::ops::{Deref, Range};
use std::rc::Rc;

use ring::Span;

use crate::shared::{Account, Charge};
pub use file::CyclicFile;
use table::{Extent, Table};

/// Memory of a fixed size for the bytes that one stream brings and others send.
///
/// ```text
///      in use        |  received  |        room         |      in use, or free
///  +-----------------+------------+---------------------+--------------------------+
///       take(n) ◄────   bytes()     room(), received(n)
/// ```
///
/// ```
/// use sendfile::{CyclicPool, Piece, Stream};
///
/// let pool = CyclicPool::new(64 << 20, 4 << 20);
/// let mut buffer = pool.take(1 << 20).expect("within the bound");
/// let mut stream = Stream::new();
///
/// // A receive writes to the room.
/// buffer.room()[..10].copy_from_slice(b"5\r\nhello\r\n");
/// buffer.received(10);
/// // The framing is dropped, the content is sent.
/// assert_eq!(buffer.bytes(), b"5\r\nhello\r\n");
/// drop(buffer.take(3));
/// stream.push(Piece::Cyclic(buffer.take(5)));
/// drop(buffer.take(2));
/// assert!(buffer.free() < 1 << 20, "until the content has been released");
/// # drop(stream);
/// # assert_eq!(buffer.free(), 1 << 20);
/// ```
#[derive(Debug)]
pub struct Cyclic {
    /// The bytes that were received and not taken, and the memory that is filled next. No other owner has
    /// any of these bytes.
    room: Span,
    /// The number of bytes at the beginning of `room` that were received.
    received: usize,
    memory: Rc<Memory>,
}

/// A part of the bytes of one call of [`Cyclic::take`]. While any part of these lives, their memory is
/// not filled again.
pub struct Part {
    partition: Rc<Partition>,
    range: Range<usize>,
}

/// The cyclic buffers of a worker. A clone is the same pool.
#[derive(Clone, Debug)]
pub struct CyclicPool(Rc<Pool>);

#[derive(Debug)]
struct Pool {
    bytes_max: u64,
    kept_max: u64,
    /// The bytes of all buffers, in use or kept.
    mapped: RefCell<Charge>,
    /// Buffers that are not in use. The last was used last.
    kept: RefCell<Vec<Span>>,
}

/// The memory of one buffer: it outlives the buffer as long as a part of it is being sent.
#[derive(Debug)]
struct Memory {
    table: RefCell<Table<Span>>,
    pool: Rc<Pool>,
}

/// The bytes that one call of [`Cyclic::take`] took.
#[derive(Debug)]
struct Partition {
    span: Span,
    /// Its position in the table.
    at: u64,
    memory: Rc<Memory>,
}

impl CyclicPool {
    /// A pool of at most `bytes_max` bytes. It keeps `kept_max` bytes of unused buffers, so that their
    /// memory need not be made again, and unmaps the others.
    #[must_use]
    pub fn new(bytes_max: u64, kept_max: u64) -> Self {
        Self::charged_to(&Account::default(), bytes_max, kept_max)
    }

    /// As [`new`](Self::new), with buffers that are charged to `account`, in use or kept.
    #[must_use]
    pub fn charged_to(account: &Account, bytes_max: u64, kept_max: u64) -> Self {
        let (mapped, kept) = (RefCell::new(account.charge(0)), RefCell::default());
        Self(Rc::new(Pool { bytes_max, kept_max, mapped, kept }))
    }

    /// A buffer of `bytes`; `None` if that is more than the pool may have, or the kernel has no
    /// memory. Until it is touched, it costs address space only.
    #[must_use]
    pub fn take(&self, bytes: usize) -> Option<Cyclic> {
        let room = self.0.take(bytes)?;
        let table = RefCell::new(Table::new(bytes as u64));
        let memory = Rc::new(Memory { table, pool: Rc::clone(&self.0) });
        Some(Cyclic { room, received: 0, memory })
    }

    /// Returns whether a buffer of `bytes` is kept, so that [`take`](Self::take) needs no further memory.
    #[must_use]
    pub fn keeps(&self, bytes: usize) -> bool {
        self.0.kept.borrow().iter().any(|span| span.len() == bytes)
    }

    /// The bytes of all buffers, in use or kept.
    #[must_use]
    pub fn mapped(&self) -> u64 {
        self.0.mapped()
    }

    /// Unmaps the buffers that are not in use; for a worker that goes idle.
    pub fn shrink(&self) {
        self.0.unmap(|pool| !pool.kept.borrow().is_empty());
    }
}

impl Pool {
    fn mapped(&self) -> u64 {
        self.mapped.borrow().bytes()
    }

    fn take(&self, bytes: usize) -> Option<Span> {
        let kept = self.kept.borrow().iter().rposition(|span| span.len() == bytes);
        if let Some(at) = kept {
            return Some(self.kept.borrow_mut().remove(at));
        }
        let len = bytes as u64;
        let is_too_much = |pool: &Self| pool.bytes_max.saturating_sub(pool.mapped()) < len;
        self.unmap(is_too_much);
        if is_too_much(self) {
            return None;
        }
        let span = Span::map(bytes).ok()?;
        let mapped = self.mapped() + len;
        self.mapped.borrow_mut().set(mapped);
        Some(span)
    }

    fn keep(&self, span: Span) {
        self.kept.borrow_mut().push(span);
        let kept_bytes = |pool: &Self| pool.kept.borrow().iter().map(Extent::bytes).sum::<u64>();
        self.unmap(|pool| kept_bytes(pool) > pool.kept_max);
    }

    /// Unmaps kept buffers, the one that was used the longest ago first, while `is_too_much` holds.
    fn unmap(&self, is_too_much: impl Fn(&Self) -> bool) {
        while is_too_much(self) && !self.kept.borrow().is_empty() {
            let span = self.kept.borrow_mut().remove(0);
            let mapped = self.mapped() - Extent::bytes(&span);
            self.mapped.borrow_mut().set(mapped);
        }
    }
}

impl Cyclic {
    /// The memory that can be filled now, as far as it is contiguous. If it is empty, all memory is in
    /// use, or holds bytes that were received.
    pub fn room(&mut self) -> &mut [u8] {
        let mut table = self.memory.table.borrow_mut();
        let before = self.room.start();
        self.room = table.extend(take(&mut self.room));
        if self.received > 0 && self.room.start() < before {
            // No partition is in use, so the room is all memory. Its begin moves to the received bytes.
            self.room.copy_within(before..before + self.received, 0);
        }
        if self.room.len() == self.received
            && let Some(mut next) = table.next_free(self.received as u64)
        {
            // At the end of the memory, filling goes on at its beginning. Received bytes stay together,
            // because they may be a part of a line, which has only a few bytes.
            next[..self.received].copy_from_slice(&self.room);
            let at = table.fill(self.received as u64);
            table.release(at, core::mem::replace(&mut self.room, next));
        }
        drop(table);
        &mut self.room[self.received..]
    }

    /// Notes that the first `n` bytes of the [room](Self::room) have been filled.
    ///
    /// # Panics
    ///
    /// If there was less room.
    pub fn received(&mut self, n: usize) {
        assert!(n <= self.room.len() - self.received, "more bytes than there was room for");
        self.received += n;
    }

    /// The bytes that were received and not taken.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.room[..self.received]
    }

    /// Takes the first `n` of the received bytes. Their memory is free again when they are dropped.
    ///
    /// # Panics
    ///
    /// If `n` is 0 or more than were received.
    #[must_use]
    pub fn take(&mut self, n: usize) -> Part {
        assert!(n > 0 && n <= self.received, "{n} bytes of {}", self.received);
        self.received -= n;
        let span = self.room.split_to(n);
        let at = self.memory.table.borrow_mut().fill(n as u64);
        let partition = Rc::new(Partition { span, at, memory: Rc::clone(&self.memory) });
        Part { partition, range: 0..n }
    }

    /// The bytes of memory, in use or not.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.memory.table.borrow().size()
    }

    /// The bytes that may be filled. They need not be contiguous: [`room`](Self::room) may be less.
    #[must_use]
    pub fn free(&self) -> u64 {
        self.memory.table.borrow().free() - self.received as u64
    }

    /// Panics unless the table of partitions and the room agree. For tests: walks the table.
    #[doc(hidden)]
    pub fn check(&self) {
        self.memory.table.borrow().check(&self.room);
    }
}

impl Drop for Cyclic {
    fn drop(&mut self) {
        self.memory.table.borrow_mut().put_back(take(&mut self.room));
    }
}

impl Drop for Partition {
    fn drop(&mut self) {
        self.memory.table.borrow_mut().release(self.at, take(&mut self.span));
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let whole = self.table.get_mut().take_whole();
        self.pool.keep(whole);
    }
}

/// Takes all bytes of a span, and leaves it empty.
fn take(span: &mut Span) -> Span {
    span.split_to(span.len())
}

impl Part {
    /// Cuts off the first `n` bytes and returns them; `self` keeps the rest. Either may be empty.
    ///
    /// # Panics
    ///
    /// If there are fewer bytes.
    #[must_use]
    pub fn split_to(&mut self, n: usize) -> Self {
        assert!(n <= self.range.len(), "{n} bytes of {}", self.range.len());
        let middle = self.range.start + n;
        let range = core::mem::replace(&mut self.range.start, middle)..middle;
        Self { partition: Rc::clone(&self.partition), range }
    }
}

impl Deref for Part {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.partition.span[self.range.clone()]
    }
}

impl fmt::Debug for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Part({:?} of {:?})", self.range, self.partition.span)
    }
}

impl Extent for Span {
    fn start(&self) -> u64 {
        self.start() as u64
    }

    fn bytes(&self) -> u64 {
        self.len() as u64
    }

    fn join(&mut self, next: Self) -> Result<(), Self> {
        self.join(next)
    }
}

#[cfg(test)]
mod tests;
