//! Keeps the state whole over a fork, and resets it in the child.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::lock::{Guard, Lock};
use crate::process::{STATE, is_ours, own, settle};
use crate::state::LockedState;
use crate::{fuse, stats, sys};

/// The signals that were blocked before the fork in the thread that forks.
static SIGNALS: AtomicU64 = AtomicU64::new(0);

/// The lock is held over a fork. Written and read under it.
static IS_HELD: AtomicBool = AtomicBool::new(false);

/// Before `fork(2)`: takes the lock, so that no other thread is in the middle of a change.
pub(crate) extern "C" fn before_fork() {
    if fuse::is_on() && is_ours() && fuse::run("fork", hold).is_some() {
        IS_HELD.store(true, Ordering::Relaxed);
    }
}

fn hold() {
    SIGNALS.store(Lock::hold(settle(STATE.lock())), Ordering::Relaxed);
}

/// After `fork(2)`, in the parent.
pub(crate) extern "C" fn after_fork() {
    if IS_HELD.swap(false, Ordering::Relaxed) {
        drop(STATE.reclaim(SIGNALS.load(Ordering::Relaxed)));
    }
}

/// After `fork(2)`, in the child.
pub(crate) extern "C" fn forked() {
    if IS_HELD.swap(false, Ordering::Relaxed) {
        let state = STATE.reclaim(SIGNALS.load(Ordering::Relaxed));
        fuse::run("child", || begin_anew(state));
    }
}

fn begin_anew(mut state: Guard<'_, LockedState>) {
    own();
    let sink = state.begin_anew(sys::close);
    sink.into_iter().for_each(sys::close_null);
    stats::reset();
}
