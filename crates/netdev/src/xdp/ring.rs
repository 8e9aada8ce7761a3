//! The rings of an AF_XDP socket: one side writes entries, the other side reads them, and one of the two
//! is the kernel.
//!
//! The order of accesses is the same as in net/xdp/xsk_queue.h, which draws it so:
//!
//! ```text
//! producer                          consumer
//!
//! if (LOAD.acq ->consumer) {  (A)   LOAD.acq ->producer  (C)
//!    STORE $entry                   LOAD $entry
//!    STORE.rel ->producer     (B)   STORE.rel ->consumer (D)
//! }
//! ```
//!
//! (A) pairs with (D): an entry is not overwritten before it was read. (B) pairs with (C): an entry is
//! not read before it was written. The kernel's (A) is a control dependency, which Rust does not have.

use core::marker::PhantomData;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, Ordering};
use std::io;
use std::os::fd::BorrowedFd;

use rustix::net::xdp::XdpRingOffset;

use crate::mapping::Mapping;

/// A frame in the memory of a socket (`struct xdp_desc`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Descriptor {
    /// The offset of the frame in the memory.
    pub(crate) offset: u64,
    /// The length of the frame, bytes.
    pub(crate) bytes: u32,
    /// `XDP_PKT_CONTD`, `XDP_TX_METADATA`.
    pub(crate) options: u32,
}

/// An entry of a ring.
pub(crate) trait Entry: Copy {}

impl Entry for Descriptor {}
/// An offset in the memory: an entry of the fill ring or the completion ring.
impl Entry for u64 {}

/// Shared memory with the counters of both sides, flags, and entries.
#[derive(Debug)]
struct Ring<T> {
    memory: Mapping,
    offsets: Offsets,
    mask: u32,
    entries: PhantomData<T>,
}

/// Offsets in the memory of a ring.
#[derive(Clone, Copy, Debug)]
struct Offsets {
    producer: usize,
    consumer: usize,
    flags: usize,
    entries: usize,
}

impl<T: Entry> Ring<T> {
    /// Maps the ring of `entries`, a power of two, that a socket has at `page_offset`.
    fn map(
        socket: BorrowedFd<'_>,
        page_offset: u64,
        offsets: &XdpRingOffset,
        entries: u32,
    ) -> io::Result<Self> {
        assert!(entries.is_power_of_two(), "{entries} entries");
        let place = |offset: u64| usize::try_from(offset).map_err(io::Error::other);
        let offsets = Offsets {
            producer: place(offsets.producer)?,
            consumer: place(offsets.consumer)?,
            // Linux has the flags since 5.4, like XDP_USE_NEED_WAKEUP.
            flags: place(offsets.flags.ok_or(io::ErrorKind::Unsupported)?)?,
            entries: place(offsets.desc)?,
        };
        let bytes = offsets.entries + entries as usize * size_of::<T>();
        let memory = Mapping::shared(socket, page_offset, bytes)?;
        Ok(Self { memory, offsets, mask: entries - 1, entries: PhantomData })
    }

    fn counter(&self, offset: usize) -> &AtomicU32 {
        let counter = self.memory.at(offset, size_of::<AtomicU32>()).cast::<AtomicU32>();
        debug_assert!(counter.is_aligned(), "the kernel aligns its counters");
        // SAFETY: the counter is in the mapping (`at`), which `self` keeps, and all accesses to it on
        // this side are atomic.
        unsafe { counter.as_ref() }
    }

    fn producer(&self) -> &AtomicU32 {
        self.counter(self.offsets.producer)
    }

    fn consumer(&self) -> &AtomicU32 {
        self.counter(self.offsets.consumer)
    }

    /// The address of the entry with this number. Numbers count up for ever, and wrap.
    fn entry(&self, number: u32) -> NonNull<T> {
        let at = self.offsets.entries + (number & self.mask) as usize * size_of::<T>();
        self.memory.at(at, size_of::<T>()).cast()
    }
}

/// The writing side of a ring.
#[derive(Debug)]
pub(crate) struct Producer<T> {
    ring: Ring<T>,
    /// The number of entries written, with entries that are not yet published.
    written: u32,
    /// Entries that the other side had read when it was asked last.
    read: u32,
}

impl<T: Entry> Producer<T> {
    /// Maps the ring of `entries`, a power of two, that a socket has at `page_offset`.
    pub(crate) fn map(
        socket: BorrowedFd<'_>,
        page_offset: u64,
        offsets: &XdpRingOffset,
        entries: u32,
    ) -> io::Result<Self> {
        let ring = Ring::map(socket, page_offset, offsets, entries)?;
        let written = ring.producer().load(Ordering::Relaxed);
        Ok(Self { ring, written, read: written })
    }

    /// True if the ring has room for an entry.
    pub(crate) fn has_room(&mut self) -> bool {
        if self.written.wrapping_sub(self.read) > self.ring.mask {
            // (A), which pairs with (D).
            self.read = self.ring.consumer().load(Ordering::Acquire);
        }
        self.written.wrapping_sub(self.read) <= self.ring.mask
    }

    /// Writes an entry, which the other side does not see yet. Returns `false` if the ring is full.
    #[must_use]
    pub(crate) fn push(&mut self, entry: T) -> bool {
        if !self.has_room() {
            return false;
        }
        // SAFETY: the entry is in the mapping and aligned (`entry`), and belongs to this side until (B): by the
        // check above, the other side has read its old content.
        unsafe { self.ring.entry(self.written).write(entry) };
        self.written = self.written.wrapping_add(1);
        true
    }

    /// Shows the other side all entries that were written.
    pub(crate) fn publish(&self) {
        // (B), which pairs with (C).
        self.ring.producer().store(self.written, Ordering::Release);
    }

    /// The number of entries that the other side has not read.
    pub(crate) fn unread(&self) -> u32 {
        self.written.wrapping_sub(self.ring.consumer().load(Ordering::Relaxed))
    }

    /// True if the kernel looks at the ring only after a system call.
    pub(crate) fn needs_wakeup(&self) -> bool {
        // Relaxed: the flag only decides whether a system call is made.
        let flags = self.ring.counter(self.ring.offsets.flags).load(Ordering::Relaxed);
        flags & libc::XDP_RING_NEED_WAKEUP != 0
    }
}

/// The reading side of a ring.
#[derive(Debug)]
pub(crate) struct Consumer<T> {
    ring: Ring<T>,
    /// Entries that the other side had written when it was asked last.
    written: u32,
    /// The number of entries read, with entries that are not yet released.
    read: u32,
}

impl<T: Entry> Consumer<T> {
    /// Maps the ring of `entries`, a power of two, that a socket has at `page_offset`.
    pub(crate) fn map(
        socket: BorrowedFd<'_>,
        page_offset: u64,
        offsets: &XdpRingOffset,
        entries: u32,
    ) -> io::Result<Self> {
        let ring = Ring::map(socket, page_offset, offsets, entries)?;
        let read = ring.consumer().load(Ordering::Relaxed);
        Ok(Self { ring, written: read, read })
    }

    /// Reads the next entry.
    pub(crate) fn pop(&mut self) -> Option<T> {
        if self.read == self.written {
            // (C), which pairs with (B).
            self.written = self.ring.producer().load(Ordering::Acquire);
            if self.read == self.written {
                return None;
            }
        }
        // SAFETY: the entry is in the mapping and aligned (`entry`), and was written before (B), which
        // (C) has seen. Any bytes are an entry: it is made of integers.
        let entry = unsafe { self.ring.entry(self.read).read() };
        self.read = self.read.wrapping_add(1);
        Some(entry)
    }

    /// Lets the other side overwrite all entries that were read.
    pub(crate) fn release(&self) {
        // (D), which pairs with (A).
        self.ring.consumer().store(self.read, Ordering::Release);
    }
}

#[cfg(test)]
mod tests;
