//! A lock that is safe with signal handlers: the program's threads hold it with all signals blocked, and in reader
//! threads only handlers of the C library run.

use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicU32, Ordering};

use crate::sys::{self, Signals};

/// A value for one thread at a time. Its three states are those of Drepper's "Futexes Are Tricky" (2011).
pub(crate) struct Lock<T> {
    word: AtomicU32,
    value: UnsafeCell<T>,
}

const FREE: u32 = 0;
const HELD: u32 = 1;
/// Held, and a thread may be asleep.
const AWAITED: u32 = 2;

// SAFETY: `lock` lets one thread at a time reach the value, so it only needs to be `Send`.
unsafe impl<T: Send> Sync for Lock<T> {}

impl<T> Lock<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self { word: AtomicU32::new(FREE), value: UnsafeCell::new(value) }
    }

    /// Waits until the value is free and takes it.
    pub(crate) fn lock(&self) -> Guard<'_, T> {
        let signals = sys::block_signals();
        self.acquire();
        Guard { lock: self, signals: Some(signals) }
    }

    /// Does the same in a reader ([`sys::start_thread`]), where no handler of the program runs.
    pub(crate) fn lock_in_reader(&self) -> Guard<'_, T> {
        self.acquire();
        Guard { lock: self, signals: None }
    }

    fn acquire(&self) {
        // Acquire pairs with Release in `release`.
        if self.word.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_err() {
            while self.word.swap(AWAITED, Ordering::Acquire) != FREE {
                sys::futex_wait(&self.word, AWAITED, None);
            }
        }
    }

    fn release(&self) {
        // Release pairs with Acquire in `lock`.
        if self.word.swap(FREE, Ordering::Release) == AWAITED {
            sys::futex_wake(&self.word);
        }
    }

    /// Drops a guard but keeps the lock, because `fork(2)` is about to copy the memory. Returns the
    /// signals that [`Lock::reclaim`] needs.
    pub(crate) fn hold(guard: Guard<'_, T>) -> Signals {
        let signals = guard.signals.unwrap_or_default();
        core::mem::forget(guard);
        signals
    }

    /// Makes the guard again that was given to [`Lock::hold`], in the parent or in the child.
    pub(crate) fn reclaim(&self, signals: Signals) -> Guard<'_, T> {
        Guard { lock: self, signals: Some(signals) }
    }
}

/// The right to use the value; dropping it releases the lock.
pub(crate) struct Guard<'a, T> {
    lock: &'a Lock<T>,
    /// The signals that were blocked before; none in a reader.
    signals: Option<Signals>,
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: `word` is not FREE while a guard exists, so no other reference exists.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: `word` is not FREE while a guard exists, so no other reference exists.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    fn drop(&mut self) {
        self.lock.release();
        self.signals.into_iter().for_each(sys::restore_signals);
    }
}
