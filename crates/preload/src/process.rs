//! The state of the process, behind one lock, and the check that this process may take the lock.

use core::sync::atomic::{AtomicI32, Ordering};
use core::time::Duration;

use crate::epoll;
use crate::lock::{Guard, Lock};
use crate::state::LockedState;
use crate::sys;

/// The one lock of the process.
pub(crate) static STATE: Lock<LockedState> = Lock::new(LockedState::new());

/// The process to which the state belongs.
static OWNER: AtomicI32 = AtomicI32::new(0);

/// Makes the state that of this process.
pub(crate) fn own() {
    OWNER.store(sys::pid(), Ordering::Relaxed);
}

/// Says whether the state is that of this process. It is not in a child of `vfork(2)`, which has its own
/// descriptors but its parent's memory, nor in a child of a bare `clone(2)`, where a thread that does not
/// exist may hold the lock.
pub(crate) fn is_ours() -> bool {
    OWNER.load(Ordering::Relaxed) == sys::pid()
}

/// Takes the lock if the state [`is_ours`].
pub(crate) fn lock() -> Option<Guard<'static, LockedState>> {
    is_ours().then(|| STATE.lock())
}

/// Resumes all sockets and stops the readers, because the library is off.
pub(crate) fn resume_all() {
    if let Some(mut state) = lock() {
        state.resume_all(epoll::apply);
    }
}

/// Waits until no reader is about to open or to close a descriptor.
pub(crate) fn settle(mut state: Guard<'static, LockedState>) -> Guard<'static, LockedState> {
    // An open or a close takes microseconds. If it needs the disk, the wait ends before it, and a child gets
    // one descriptor too many.
    for _ in 0..SETTLE_PAUSES_MAX {
        if state.in_transit == 0 {
            break;
        }
        drop(state);
        sys::pause(SETTLE_PAUSE);
        state = STATE.lock();
    }
    state
}

/// The pauses in which a fork or a lock waits for readers that open or close files: a tenth of a second.
const SETTLE_PAUSES_MAX: usize = 100;
const SETTLE_PAUSE: Duration = Duration::from_millis(1);
