//! The end of the process.

use std::sync::OnceLock;

use ring::Sockets;

/// The sockets that the process got from its parent, such as standard error.
static INHERITED: OnceLock<Sockets> = OnceLock::new();

/// Notes the sockets that the process has before it makes its own.
pub(super) fn note_inherited_sockets() {
    // A second server of the process has the same ones.
    INHERITED.get_or_init(Sockets::open_now);
}

/// Shuts down the sockets that the server has made. The end of the process may not close them: a
/// thread that sleeps in a call on a disk cannot be killed before the disk answers, and it keeps
/// all descriptors open.
pub(super) fn let_go() {
    if let Some(inherited) = INHERITED.get() {
        inherited.shut_down_others();
    }
}

/// Ends the process at once, without a further turn of any worker.
pub(super) fn exit(code: i32) -> ! {
    let_go();
    #[expect(clippy::exit, reason = "nothing else may run")]
    std::process::exit(code);
}
