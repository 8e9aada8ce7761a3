//! Direct calls on sockets.

use core::net::SocketAddr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::fs::OFlags;
use rustix::io::IoSlice;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags};
use rustix::pipe::{SpliceFlags, splice};

use crate::pipe::Pipe;

/// `IOV_MAX` of `<limits.h>`: the kernel takes no more pieces in one call.
const SEND_PIECES_MAX: usize = 1024;

/// `send(2)` or `sendmsg(2)`, nonblocking, without SIGPIPE.
pub(crate) fn send(
    socket: BorrowedFd<'_>,
    pieces: &[IoSlice<'_>],
    more: bool,
) -> io::Result<usize> {
    let mut flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    if more {
        flags |= SendFlags::MORE;
    }
    Ok(match &pieces[..pieces.len().min(SEND_PIECES_MAX)] {
        [one] => rustix::net::send(socket, one, flags)?,
        all => rustix::net::sendmsg(socket, all, &mut SendAncillaryBuffer::default(), flags)?,
    })
}

/// `recv(2)`, nonblocking.
pub(crate) fn receive(socket: BorrowedFd<'_>, room: &mut [u8]) -> io::Result<usize> {
    let (count, _) = rustix::net::recv(socket, room, RecvFlags::DONTWAIT)?;
    Ok(count)
}

/// Returns whether `O_NONBLOCK` is missing. An error says nothing about that, and comes again at the
/// first use.
pub(crate) fn is_blocking(socket: BorrowedFd<'_>) -> bool {
    rustix::fs::fcntl_getfl(socket).is_ok_and(|flags| !flags.contains(OFlags::NONBLOCK))
}

/// `sendfile(2)` with an offset of its own.
pub(crate) fn sendfile(
    socket: BorrowedFd<'_>,
    file: BorrowedFd<'_>,
    offset: u64,
    len: usize,
) -> io::Result<usize> {
    let mut at = offset;
    Ok(rustix::fs::sendfile(socket, file, Some(&mut at), len)?)
}

/// Bytes that the peer has not acknowledged: `SIOCOUTQ`, which is the same as `TIOCOUTQ`.
pub(crate) fn queued(socket: BorrowedFd<'_>) -> u64 {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the kernel writes an int, for which `bytes` is there.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    if result == 0 { u64::try_from(bytes).unwrap_or(0) } else { 0 }
}

/// `TCP_CORK`.
pub(crate) fn cork(socket: BorrowedFd<'_>, corked: bool) {
    // Fails for Unix sockets, which have no packets to fill.
    let _ = rustix::net::sockopt::set_tcp_cork(socket, corked);
}

/// `getpeername(2)`; `None` for Unix sockets, and for one whose peer has gone.
pub(crate) fn peer_name(socket: BorrowedFd<'_>) -> Option<SocketAddr> {
    rustix::net::getpeername(socket).ok()??.try_into().ok()
}

/// `shutdown(2)` for sending.
pub(crate) fn shutdown(socket: BorrowedFd<'_>) {
    // ENOTCONN: the peer was faster.
    let _ = rustix::net::shutdown(socket, rustix::net::Shutdown::Write);
}

/// `splice(2)` from a pipe to a socket.
pub(crate) fn drain(
    socket: BorrowedFd<'_>,
    pipe: &mut Pipe,
    count: usize,
    more: bool,
) -> io::Result<usize> {
    let mut flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
    if more {
        flags |= SpliceFlags::MORE;
    }
    let count = count.min(pipe.len());
    let sent = splice(pipe.read_end().os(), None, socket, None, count, flags)?;
    pipe.take_out(sent);
    Ok(sent)
}
