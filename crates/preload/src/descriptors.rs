//! What is known of each descriptor number: flags that anyone may read, entries for who holds the
//! lock.
//!
//! Numbers beyond the table are left to the kernel: their sockets are never deferred.

use core::ffi::c_int;
use core::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, AtomicUsize, Ordering};

use crate::interest::Interest;
use crate::sys::{self, Errno};

/// Numbers in the table, if the hard limit of descriptors is as high.
const DESCRIPTORS_MAX: usize = 1 << 20;

/// And if it is not.
const DESCRIPTORS_MIN: usize = 1 << 16;

/// Something is known of the socket: since it was opened the program has had it watched.
pub(crate) const IN_USE: u8 = 1;
/// The socket looks full: its file is being read.
pub(crate) const DEFERRED: u8 = 2;
/// The open socket has other descriptors, by which it may be watched: it is not deferred.
pub(crate) const SHARED: u8 = 4;
/// The program does not wait in a way that is seen here: it is not deferred any more.
pub(crate) const UNSEEN: u8 = 8;

/// A reader's descriptor, which the program does not know.
pub(crate) const OURS: u8 = 16;

/// An epoll instance by which sockets are, or were, watched.
pub(crate) const INSTANCE: u8 = 32;

/// A descriptor by which the program has locked a file.
pub(crate) const LOCKER: u8 = 64;

static FLAGS: AtomicPtr<AtomicU8> = AtomicPtr::new(core::ptr::null_mut());
static EPOCHS: AtomicPtr<AtomicU32> = AtomicPtr::new(core::ptr::null_mut());
static LEN: AtomicUsize = AtomicUsize::new(0);
/// How many descriptors have [`DEFERRED`].
static DEFERRED_COUNT: AtomicU32 = AtomicU32::new(0);

/// The flags of a descriptor; 0 of any other number.
#[inline]
pub(crate) fn flags(fd: c_int) -> u8 {
    // Acquire pairs with Release in `Table::map`.
    let len = LEN.load(Ordering::Acquire);
    match usize::try_from(fd) {
        Ok(index) if index < len => {
            // SAFETY: the mapping has `len` flags (`Table::map`).
            let flags = unsafe { FLAGS.load(Ordering::Relaxed).add(index) };
            // SAFETY: in the mapping, which stays; atomics of zeros are valid.
            let flags = unsafe { &*flags };
            flags.load(Ordering::Relaxed)
        }
        _ => 0,
    }
}

/// How often a descriptor has been closed, as far as was seen.
#[inline]
pub(crate) fn epoch(fd: c_int) -> u32 {
    with_epoch(fd, |epoch| epoch.load(Ordering::Relaxed)).unwrap_or(0)
}

/// A descriptor is about to be closed: what was open at it is not what will be.
#[inline]
pub(crate) fn end_epoch(fd: c_int) {
    with_epoch(fd, |epoch| epoch.fetch_add(1, Ordering::Relaxed));
}

#[inline]
fn with_epoch<T>(fd: c_int, then: impl FnOnce(&AtomicU32) -> T) -> Option<T> {
    // Acquire pairs with Release in `Table::map`.
    let len = LEN.load(Ordering::Acquire);
    let index = usize::try_from(fd).ok().filter(|&index| index < len)?;
    // SAFETY: the mapping has `len` epochs (`Table::map`).
    let epoch = unsafe { EPOCHS.load(Ordering::Relaxed).add(index) };
    // SAFETY: in the mapping, which stays; atomics of zeros are valid.
    Some(then(unsafe { &*epoch }))
}

/// Whether the table has a place for this number.
pub(crate) fn has_place(fd: c_int) -> bool {
    usize::try_from(fd).is_ok_and(|index| index < LEN.load(Ordering::Acquire))
}

/// Whether any socket is deferred.
pub(crate) fn any_deferred() -> bool {
    DEFERRED_COUNT.load(Ordering::Relaxed) != 0
}

/// A descriptor in a list of those that wait, or none. 0 is none, so that zeros are an empty entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Link(u32);

impl Link {
    pub(crate) const NONE: Self = Self(0);

    pub(crate) fn to(fd: c_int) -> Self {
        Self(fd.unsigned_abs() + 1)
    }

    pub(crate) fn fd(self) -> Option<c_int> {
        self.0.checked_sub(1).map(u32::cast_signed)
    }
}

/// What is known of one descriptor. All zeros is nothing.
#[derive(Debug, Default)]
pub(crate) struct Entry {
    pub(crate) interest: Interest,
    /// The job that is waited for, from 1 on; 0: none.
    pub(crate) job: u16,
    /// Neighbours in that job's list.
    pub(crate) next: Link,
    pub(crate) previous: Link,
    /// The byte of the file that is waited for; 0: for any progress of the job.
    pub(crate) offset: u64,
    /// It has waited at least once.
    pub(crate) is_stream: bool,
    /// When the deferral began, in microseconds.
    pub(crate) since_us: u64,
    /// Calls of `sendfile` while it was deferred, from some moment on, in microseconds.
    pub(crate) calls: u32,
    pub(crate) calls_from_us: u64,
    /// It is not deferred until then, in microseconds: the program has spun.
    pub(crate) unseen_until_us: u64,
    /// Where the last deferral was (a hash of file and offset), and how many there were.
    pub(crate) place: u64,
    pub(crate) strikes: u32,
    /// A read that failed for this socket: where, and how; 0: none.
    pub(crate) failed_place: u64,
    pub(crate) failed: Errno,
}

/// The entries and the flags.
pub(crate) struct Table {
    flags: &'static [AtomicU8],
    entries: &'static mut [Entry],
    /// No number from this on has ever had a flag.
    used: usize,
}

impl Table {
    pub(crate) const fn empty() -> Self {
        Self { flags: &[], entries: &mut [], used: 0 }
    }

    /// A table of this process's descriptors. `None` without memory.
    ///
    /// Called once: [`flags`] reads the last one made.
    pub(crate) fn map() -> Option<Self> {
        // Memory is taken as numbers are used. nginx raises the hard limit after it has started.
        let limit = usize::try_from(sys::descriptors_max()).unwrap_or(DESCRIPTORS_MAX);
        let len = limit.clamp(DESCRIPTORS_MIN, DESCRIPTORS_MAX);
        let flags = sys::map(len).cast::<AtomicU8>();
        let entries = sys::map(len * size_of::<Entry>()).cast::<Entry>();
        let epochs = sys::map(len * size_of::<AtomicU32>()).cast::<AtomicU32>();
        if flags.is_null() || entries.is_null() || epochs.is_null() {
            return None;
        }
        EPOCHS.store(epochs, Ordering::Relaxed);
        FLAGS.store(flags, Ordering::Relaxed);
        // Release pairs with Acquire in `flags`.
        LEN.store(len, Ordering::Release);
        Some(Self {
            // SAFETY: mapped above with this length, page-aligned, zeros, and never unmapped.
            flags: unsafe { core::slice::from_raw_parts(flags, len) },
            // SAFETY: the same; zeros are a valid `Entry` (numbers and bools only), and this is
            // the only reference.
            entries: unsafe { core::slice::from_raw_parts_mut(entries, len) },
            used: 0,
        })
    }

    /// A table of its own, for tests of pure code.
    #[cfg(test)]
    pub(crate) fn for_test(len: usize) -> Self {
        let flags: Vec<_> = (0..len).map(|_| AtomicU8::new(0)).collect();
        let entries: Vec<_> = (0..len).map(|_| Entry::default()).collect();
        Self { flags: flags.leak(), entries: entries.leak(), used: 0 }
    }

    pub(crate) fn entry(&mut self, fd: c_int) -> Option<&mut Entry> {
        self.entries.get_mut(usize::try_from(fd).ok()?)
    }

    pub(crate) fn flags(&self, fd: c_int) -> u8 {
        let flags = usize::try_from(fd).ok().and_then(|index| self.flags.get(index));
        flags.map_or(0, |flags| flags.load(Ordering::Relaxed))
    }

    /// All numbers that have ever had a flag.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = c_int> + use<> {
        (0..self.used).map_while(|index| c_int::try_from(index).ok())
    }

    /// The entries of all numbers in use, with the numbers.
    pub(crate) fn in_use(&mut self) -> impl Iterator<Item = (c_int, &mut Entry)> {
        let both = self.flags.iter().zip(self.entries.iter_mut()).take(self.used);
        both.enumerate().filter_map(|(index, (flags, entry))| {
            let is_in_use = flags.load(Ordering::Relaxed) & IN_USE != 0;
            is_in_use.then_some((c_int::try_from(index).ok()?, entry))
        })
    }

    pub(crate) fn set_flags(&mut self, fd: c_int, wanted: u8) {
        let Some(index) = usize::try_from(fd).ok().filter(|&index| index < self.flags.len()) else {
            return;
        };
        self.used = self.used.max(index + 1);
        let flags = &self.flags[index];
        // Under the lock: nobody else writes.
        let before = flags.swap(wanted, Ordering::Relaxed);
        match (before & DEFERRED != 0, wanted & DEFERRED != 0) {
            (false, true) => _ = DEFERRED_COUNT.fetch_add(1, Ordering::Relaxed),
            (true, false) => _ = DEFERRED_COUNT.fetch_sub(1, Ordering::Relaxed),
            _ => {}
        }
    }
}
