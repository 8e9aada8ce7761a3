//! The end of the process.

use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::OnceLock;

use ring::Sockets;

/// The sockets that the process got from its parent, such as standard error.
static INHERITED: OnceLock<Sockets> = OnceLock::new();
/// True while another process accepts at sockets of this one, or is about to.
static SHARES_LISTENERS: AtomicBool = AtomicBool::new(false);
/// True if a service manager has sockets of this process, and passes them to the next server.
static HAS_MANAGER: AtomicBool = AtomicBool::new(false);
/// True once the server was told to stop.
static IS_STOPPING: AtomicBool = AtomicBool::new(false);

/// Notes the sockets that the process has before it makes its own.
pub(crate) fn note_inherited_sockets() {
    // A second server of the process has the same ones.
    INHERITED.get_or_init(Sockets::open_now);
}

/// Notes whether another process accepts at sockets of this one. Such sockets are only closed at the end: if one is shut
/// down, the other process loses it, too.
pub(crate) fn share_listeners(is_so: bool) {
    // The descriptors that go with it are passed on by system calls.
    SHARES_LISTENERS.store(is_so, Ordering::SeqCst);
}

/// Notes that the server was told to stop.
pub(crate) fn note_stop() {
    IS_STOPPING.store(true, Ordering::SeqCst);
}

/// Returns true once the server was told to stop.
pub(crate) fn is_stopping() -> bool {
    IS_STOPPING.load(Ordering::SeqCst)
}

/// Notes that a service manager has sockets of this process. They are only closed at the end.
pub(crate) fn leave_to_manager() {
    HAS_MANAGER.store(true, Ordering::SeqCst);
}

/// Returns true if a service manager has sockets of this process.
pub(crate) fn has_manager() -> bool {
    HAS_MANAGER.load(Ordering::SeqCst)
}

/// Shuts down the sockets that the server has made. The end of the process may not close them: a
/// thread that sleeps in a call on a disk cannot be killed before the disk answers, and it keeps
/// all descriptors open.
pub(crate) fn let_go() {
    if let Some(inherited) = INHERITED.get() {
        inherited.shut_down_others(has_manager() || SHARES_LISTENERS.load(Ordering::SeqCst));
    }
}

/// Ends the process at once, without a further turn of any worker.
pub(crate) fn exit(code: i32) -> ! {
    let_go();
    #[expect(clippy::exit, reason = "nothing else may run")]
    std::process::exit(code);
}
