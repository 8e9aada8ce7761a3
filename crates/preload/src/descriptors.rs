//! The table of descriptors: flags that any thread may read, and entries for the thread that holds the lock.
//!
//! Sockets whose numbers are beyond the table are never deferred.

use core::ffi::c_int;
use core::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use crate::interest::Interest;
use crate::sys::{self, Errno};

/// The numbers in the table if the hard limit of descriptors is at least as high.
const DESCRIPTORS_MAX: usize = 1 << 20;

/// The numbers in the table if the hard limit is lower than this.
const DESCRIPTORS_MIN: usize = 1 << 16;

/// There is an entry for the socket: the program has watched it, or it was deferred, since it was opened.
pub(crate) const IN_USE: u8 = 1;
/// The socket looks full: its file is being read.
pub(crate) const DEFERRED: u8 = 2;
/// The socket has other descriptors, by which it may be watched: it is not deferred. Or the epoll instance has
/// others, by which its registrations may be changed: no socket that it watches is deferred.
pub(crate) const SHARED: u8 = 4;
/// The program waits for the socket in a way that is not seen here: it is not deferred any more.
pub(crate) const UNSEEN: u8 = 8;

/// A reader's descriptor, which the program does not know.
pub(crate) const OURS: u8 = 16;

/// An epoll instance by which sockets are, or were, watched.
pub(crate) const INSTANCE: u8 = 32;

/// A descriptor by which the program has locked a file.
pub(crate) const LOCKER: u8 = 64;

static FLAGS: AtomicPtr<AtomicU8> = AtomicPtr::new(core::ptr::null_mut());
static EPOCHS: AtomicPtr<AtomicU32> = AtomicPtr::new(core::ptr::null_mut());
static RESPONSES: AtomicPtr<AtomicU64> = AtomicPtr::new(core::ptr::null_mut());
static LEN: AtomicUsize = AtomicUsize::new(0);
/// The number of descriptors with [`DEFERRED`].
static DEFERRED_COUNT: AtomicU32 = AtomicU32::new(0);

/// The flags of a descriptor; 0 for a number beyond the table.
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

/// The number of times that a descriptor was seen to be closed.
#[inline]
pub(crate) fn epoch(fd: c_int) -> u32 {
    with_epoch(fd, |epoch| epoch.load(Ordering::Relaxed)).unwrap_or(0)
}

/// Ends the epoch of a descriptor that is about to be closed, because another file may get its number.
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

/// The word about the response that a socket sends ([`crate::caching`]).
pub(crate) fn response(fd: c_int) -> Option<&'static AtomicU64> {
    // Acquire pairs with Release in `Table::map`.
    let len = LEN.load(Ordering::Acquire);
    let index = usize::try_from(fd).ok().filter(|&index| index < len)?;
    // SAFETY: the mapping has `len` words (`Table::map`).
    let response = unsafe { RESPONSES.load(Ordering::Relaxed).add(index) };
    // SAFETY: in the mapping, which stays; atomics of zeros are valid.
    Some(unsafe { &*response })
}

/// Says whether the table has a place for this number.
pub(crate) fn has_place(fd: c_int) -> bool {
    usize::try_from(fd).is_ok_and(|index| index < LEN.load(Ordering::Acquire))
}

/// Says whether any socket is deferred.
pub(crate) fn any_deferred() -> bool {
    DEFERRED_COUNT.load(Ordering::Relaxed) != 0
}

/// A descriptor in a list of waiting sockets, or none. 0 is none, so that an entry of zeros is empty.
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

/// The facts about one descriptor. An entry of zeros has none.
#[derive(Debug, Default)]
pub(crate) struct Entry {
    pub(crate) interest: Interest,
    /// The job that the socket waits for, counted from 1; 0: none.
    pub(crate) job: u16,
    /// The neighbours in that job's list.
    pub(crate) next: Link,
    pub(crate) previous: Link,
    /// The byte of the file that the socket waits for; 0: it waits for any progress of the job.
    pub(crate) offset: u64,
    /// The socket has waited at least once.
    pub(crate) is_stream: bool,
    /// The time at which the deferral began, in microseconds.
    pub(crate) since_us: u64,
    /// The calls of `sendfile` during the deferral since `calls_from_us`.
    pub(crate) calls: u32,
    pub(crate) calls_from_us: u64,
    /// The socket is not deferred until this time, in microseconds: the program has spun.
    pub(crate) unseen_until_us: u64,
    /// The place of the last deferral (a hash of file and offset), and the number of deferrals there.
    pub(crate) place: u64,
    pub(crate) strikes: u32,
    /// The place and the error of a read that failed for this socket; 0: none.
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

    /// Maps a table of this process's descriptors. `None` without memory.
    ///
    /// Called once: [`flags`] reads the last one made.
    pub(crate) fn map() -> Option<Self> {
        // Only numbers in use take memory. nginx raises the hard limit after it has started.
        let limit = usize::try_from(sys::descriptors_max()).unwrap_or(DESCRIPTORS_MAX);
        let len = limit.clamp(DESCRIPTORS_MIN, DESCRIPTORS_MAX);
        let flags = sys::map(len).cast::<AtomicU8>();
        let entries = sys::map(len * size_of::<Entry>()).cast::<Entry>();
        let epochs = sys::map(len * size_of::<AtomicU32>()).cast::<AtomicU32>();
        let responses = sys::map(len * size_of::<AtomicU64>()).cast::<AtomicU64>();
        if flags.is_null() || entries.is_null() || epochs.is_null() || responses.is_null() {
            return None;
        }
        RESPONSES.store(responses, Ordering::Relaxed);
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

    /// All numbers up to the highest that has ever had a flag.
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
        // Under the lock, so no other thread writes.
        let before = flags.swap(wanted, Ordering::Relaxed);
        match (before & DEFERRED != 0, wanted & DEFERRED != 0) {
            (false, true) => _ = DEFERRED_COUNT.fetch_add(1, Ordering::Relaxed),
            (true, false) => _ = DEFERRED_COUNT.fetch_sub(1, Ordering::Relaxed),
            _ => {}
        }
    }
}
