//! The end of the process.

use std::sync::OnceLock;

use ring::Sockets;

/// The sockets that others gave the process, such as that of standard error.
static INHERITED: OnceLock<Sockets> = OnceLock::new();

/// Notes the sockets that the process has before it makes any itself.
pub(super) fn note_inherited_sockets() {
    // A second server of the process has the same.
    INHERITED.get_or_init(Sockets::open_now);
}

/// Shuts down the sockets that the server has made. The end of the process may not close them: a thread that sleeps in a
/// call on a disk cannot be killed before the disk answers, and keeps all descriptors open.
pub(super) fn let_go() {
    if let Some(inherited) = INHERITED.get() {
        inherited.shut_down_others();
    }
}

/// Ends the process without another turn of any worker.
pub(super) fn exit(code: i32) -> ! {
    let_go();
    #[expect(clippy::exit, reason = "nothing else may run")]
    std::process::exit(code);
}
