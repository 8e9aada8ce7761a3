//! The state of this process: the one lock, and whether the process may take it.

use core::sync::atomic::{AtomicI32, Ordering};
use core::time::Duration;

use crate::epoll;
use crate::lock::{Guard, Lock};
use crate::state::State;
use crate::sys;

/// The one lock of the process.
pub(crate) static STATE: Lock<State> = Lock::new(State::new());

/// The process that all this belongs to.
static OWNER: AtomicI32 = AtomicI32::new(0);

/// From now on it is this process.
pub(crate) fn own() {
    OWNER.store(sys::pid(), Ordering::Relaxed);
}

/// Not so in a child of `vfork(2)`, whose descriptors are its own while the memory is its parent's, and
/// of a bare `clone(2)`, where a thread that is not there may hold the lock.
pub(crate) fn is_ours() -> bool {
    OWNER.load(Ordering::Relaxed) == sys::pid()
}

/// The lock, if it [`is_ours`].
pub(crate) fn lock() -> Option<Guard<'static, State>> {
    is_ours().then(|| STATE.lock())
}

/// The library is off: nobody waits any more, and no reader reads on.
pub(crate) fn resume_all() {
    if let Some(mut state) = lock() {
        state.resume_all(epoll::apply);
    }
}

/// Wait until no reader is about to open or to close a descriptor.
pub(crate) fn settle(mut state: Guard<'static, State>) -> Guard<'static, State> {
    // To open or to close takes microseconds. If the disk must be asked, the child has one too many.
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

/// How often, and for how long, a fork or a lock waits for readers that open or close files: a tenth of a second.
const SETTLE_PAUSES_MAX: usize = 100;
const SETTLE_PAUSE: Duration = Duration::from_millis(1);
