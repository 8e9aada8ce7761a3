//! Direct calls on sockets.

use core::net::SocketAddr;
use core::num::NonZeroU64;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::OFlags;
use rustix::io::IoSlice;
use rustix::net::{AddressFamily, RecvFlags, SendAncillaryBuffer, SendFlags, SocketFlags};
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

/// `accept4(2)`; the listener is a nonblocking one.
pub(crate) fn accept(listener: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    Ok(rustix::net::accept_with(listener, flags)?)
}

/// `recv(2)`, nonblocking.
pub(crate) fn receive(socket: BorrowedFd<'_>, room: &mut [u8]) -> io::Result<usize> {
    let (count, _) = rustix::net::recv(socket, room, RecvFlags::DONTWAIT)?;
    Ok(count)
}

/// `splice(2)` from a socket, which is a nonblocking one, to a pipe.
pub(crate) fn receive_to_pipe(socket: BorrowedFd<'_>, pipe: &mut Pipe) -> io::Result<usize> {
    let flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
    let room = pipe.want() - pipe.len();
    let came = splice(socket, None, pipe.write_fd().os(), None, room, flags)?;
    pipe.put_in(came);
    Ok(came)
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

/// `SO_MAX_PACING_RATE`, in bytes per second; returns false for sockets other than those of IP, which take
/// the option and do not obey it.
pub(crate) fn set_rate(socket: BorrowedFd<'_>, rate: Option<NonZeroU64>) -> bool {
    let domain = rustix::net::sockopt::socket_domain(socket);
    if !domain.is_ok_and(|domain| matches!(domain, AddressFamily::INET | AddressFamily::INET6)) {
        return false;
    }
    let rate = rate.map_or(libc::c_ulong::MAX, NonZeroU64::get);
    let len = libc::socklen_t::try_from(size_of_val(&rate)).expect("a small constant");
    // SAFETY: the kernel reads `len` bytes, which is the size of `rate`.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MAX_PACING_RATE,
            (&raw const rate).cast(),
            len,
        )
    };
    result == 0
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
