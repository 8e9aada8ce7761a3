//! Messages to the service manager (sd_notify(3)): a datagram with lines to the socket that the environment names.
//!
//! The protocol is stable and that short, so no crate is used for it.

use core::sync::atomic::{AtomicBool, Ordering};
use std::env;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use rustix::time::{ClockId, clock_gettime};

/// The variable with the path of the socket, or with its abstract name after `@`.
const SOCKET: &str = "NOTIFY_SOCKET";

/// True while the manager counts this process as the main one of the service. It accepts messages from no other
/// process.
static IS_MAIN: AtomicBool = AtomicBool::new(false);

/// The process is the main one of its service, and serves.
pub(crate) fn begin() {
    succeed();
    tell("READY=1");
}

/// The process is the main one from now on, because it has replaced another one. The manager learns that by [`end`].
pub(crate) fn succeed() {
    // No other memory depends on it, so relaxed order is enough.
    IS_MAIN.store(true, Ordering::Relaxed);
}

/// Another process is the main one from now on.
pub(crate) fn end(next: u32) {
    tell(&format!("MAINPID={next}"));
    IS_MAIN.store(false, Ordering::Relaxed);
}

/// Returns true while the process is the main one of its service.
pub(crate) fn is_main() -> bool {
    IS_MAIN.load(Ordering::Relaxed)
}

/// Sends lines, if there is a manager that wants them. A manager that does not receive them immediately gets none: it
/// must not block the server.
pub(crate) fn tell(lines: &str) {
    if !is_main() {
        return;
    }
    // Without the manager there is no place to report an error of the manager's socket.
    let _ = connect().and_then(|socket| {
        socket.set_nonblocking(true)?;
        socket.send(lines.as_bytes())
    });
}

/// Connects a socket for messages to the manager.
///
/// # Errors
///
/// [`NotFound`](io::ErrorKind::NotFound) if there is no manager, and those of the system.
pub(crate) fn connect() -> io::Result<UnixDatagram> {
    let name = env::var_os(SOCKET).ok_or(io::ErrorKind::NotFound)?;
    let address = address(name.as_bytes())?;
    let socket = UnixDatagram::unbound()?;
    socket.connect_addr(&address)?;
    Ok(socket)
}

/// A reload begins. Its end is told by `READY=1`.
pub(crate) fn tell_reload() {
    let now = clock_gettime(ClockId::Monotonic);
    let microseconds = i128::from(now.tv_sec) * 1_000_000 + i128::from(now.tv_nsec / 1000);
    tell(&format!("RELOADING=1\nMONOTONIC_USEC={microseconds}"));
}

fn address(name: &[u8]) -> io::Result<SocketAddr> {
    match name.strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(std::ffi::OsStr::from_bytes(name)),
    }
}
