//! Direct calls on sockets.

use core::net::SocketAddr;
use core::num::{NonZeroU32, NonZeroU64};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::io::{Errno, IoSlice};
use rustix::net::{AddressFamily, RecvFlags, SendAncillaryBuffer, SendFlags, SocketFlags};
use rustix::pipe::{SpliceFlags, splice};

use crate::acknowledged::{Acknowledged, Left};
use crate::pipe::Pipe;

/// `IOV_MAX` of `<limits.h>`: the kernel accepts no more pieces in one call.
const SEND_PIECES_MAX: usize = 1024;
/// `<linux/net_tstamp.h>`, from Linux 6.2 on: bytes are counted from the call on, also if others are on
/// their way.
const SOF_TIMESTAMPING_OPT_ID_TCP: libc::c_uint = 1 << 16;
/// `<linux/errqueue.h>`.
const SCM_TSTAMP_ACK: u32 = 2;
/// The size of a message in an error queue.
const ERROR_BYTES: u32 = 16;
const _: () = assert!(ERROR_BYTES as usize == size_of::<libc::sock_extended_err>());

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

/// Asks for a message when the peer has acknowledged the last byte of a send (`SO_TIMESTAMPING`, Linux's
/// networking/timestamping.rst): without the time and without a copy of the packet, with the number of
/// the byte, counted from now on.
pub(crate) fn report_acknowledgements(socket: BorrowedFd<'_>) -> io::Result<()> {
    let flags = libc::SOF_TIMESTAMPING_TX_ACK
        | libc::SOF_TIMESTAMPING_OPT_ID
        | SOF_TIMESTAMPING_OPT_ID_TCP
        | libc::SOF_TIMESTAMPING_OPT_TSONLY;
    // Other sockets accept the option, but report nothing.
    if rustix::net::sockopt::socket_protocol(socket)? != Some(rustix::net::ipproto::TCP) {
        return Err(Errno::OPNOTSUPP.into());
    }
    set_option(socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPING, &flags)
}

/// `setsockopt(2)` at the level of sockets.
fn set_option<T: Copy>(
    socket: BorrowedFd<'_>,
    level: libc::c_int,
    option: libc::c_int,
    value: &T,
) -> io::Result<()> {
    let len = libc::socklen_t::try_from(size_of::<T>()).expect("a small constant");
    let value: *const T = value;
    // SAFETY: the kernel reads `len` bytes, which is the size of `value`.
    let result = unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, value.cast(), len) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Reads the acknowledgements in the error queue of a socket until it is empty. Other messages are dropped, because the
/// next call also reports an error of the connection.
pub(crate) fn read_acknowledgements(socket: BorrowedFd<'_>, acknowledged: &mut Acknowledged) {
    // 8-aligned, as control messages are. Room for an error, an address and three timestamps.
    let mut control = [0_u64; 32];
    loop {
        // SAFETY: all zero is a `msghdr` without a name, bytes and control data.
        let mut message: libc::msghdr = unsafe { core::mem::zeroed() };
        message.msg_control = control.as_mut_ptr().cast();
        // The type of lengths here is `size_t` in glibc, and `socklen_t` in musl and in POSIX.
        message.msg_controllen = size_of_val(&control) as _;
        let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
        // SAFETY: the kernel writes at most `msg_controllen` bytes to `control`, and no others.
        let result = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, flags) };
        if result < 0 {
            match Errno::from_io_error(&io::Error::last_os_error()) {
                Some(Errno::INTR) => continue,
                // EAGAIN: it is empty.
                _ => return,
            }
        }
        // SAFETY: `message` is as the kernel left it, and `control` lives.
        let mut header = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
        while !header.is_null() {
            // SAFETY: CMSG_FIRSTHDR and CMSG_NXTHDR return pointers to whole headers within `control`.
            let libc::cmsghdr { cmsg_level, cmsg_type, cmsg_len, .. } = unsafe { *header };
            let is_error = matches!(
                (cmsg_level, cmsg_type),
                (libc::SOL_IP, libc::IP_RECVERR) | (libc::SOL_IPV6, libc::IPV6_RECVERR)
            );
            // SAFETY: CMSG_LEN only computes.
            let whole = unsafe { libc::CMSG_LEN(ERROR_BYTES) } as _;
            if is_error && cmsg_len >= whole {
                // SAFETY: `cmsg_len` says that the data begins with a `sock_extended_err`.
                let data = unsafe { libc::CMSG_DATA(header) }.cast::<libc::sock_extended_err>();
                // SAFETY: as above; control data need not be aligned for it.
                let error = unsafe { data.read_unaligned() };
                if error.ee_origin == libc::SO_EE_ORIGIN_TIMESTAMPING
                    && error.ee_info == SCM_TSTAMP_ACK
                {
                    acknowledged.go_on_to(error.ee_data);
                }
            }
            // SAFETY: as for CMSG_FIRSTHDR.
            header = unsafe { libc::CMSG_NXTHDR(&raw const message, header) };
        }
    }
}

/// Returns whether one of these events is pending (`poll(2)`).
pub(crate) fn polls(fd: BorrowedFd<'_>, what: PollFlags) -> bool {
    let mut one = [PollFd::from_borrowed_fd(fd, what)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    // An error says nothing about the descriptor; the caller's own call will.
    poll(&mut one, Some(&now)).is_ok_and(|count| count > 0)
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

/// Returns whether `O_NONBLOCK` is missing. After an error it returns false; the error comes again at the first use.
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

/// The bytes that the peer has not acknowledged: `SIOCOUTQ`, which is the same as `TIOCOUTQ`.
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

/// `TCP_NOTSENT_LOWAT`, in bytes.
pub(crate) fn bound_unsent(socket: BorrowedFd<'_>, bytes: Option<NonZeroU32>) {
    // With 0 the system's setting counts.
    let bytes = bytes.map_or(0, NonZeroU32::get);
    // Fails for Unix sockets.
    let _ = set_option(socket, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, &bytes);
}

/// Sets `SO_MAX_PACING_RATE`, in bytes per second. Returns false for sockets other than those of IP, which accept the
/// option and ignore it.
pub(crate) fn set_rate(socket: BorrowedFd<'_>, rate: Option<NonZeroU64>) -> bool {
    let domain = rustix::net::sockopt::socket_domain(socket);
    if !domain.is_ok_and(|domain| matches!(domain, AddressFamily::INET | AddressFamily::INET6)) {
        return false;
    }
    let rate = rate.map_or(libc::c_ulong::MAX, NonZeroU64::get);
    set_option(socket, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, &rate).is_ok()
}

/// `getpeername(2)`; `None` for Unix sockets, and for one whose peer has gone.
pub(crate) fn peer_name(socket: BorrowedFd<'_>) -> Option<SocketAddr> {
    rustix::net::getpeername(socket).ok()??.try_into().ok()
}

/// `getsockname(2)`; `None` for Unix sockets.
pub(crate) fn local_name(socket: BorrowedFd<'_>) -> Option<SocketAddr> {
    rustix::net::getsockname(socket).ok()?.try_into().ok()
}

/// Returns how the peer has left; `None` if it is there (`inet_getname` in net/ipv4/af_inet.c, `unix_release_sock` and
/// `unix_poll` in net/unix/af_unix.c).
pub(crate) fn has_left(socket: BorrowedFd<'_>) -> Option<Left> {
    if rustix::net::sockopt::socket_domain(socket) != Ok(AddressFamily::UNIX) {
        return rustix::net::getpeername(socket).is_err().then_some(Left::Ended);
    }
    let mut look = [PollFd::from_borrowed_fd(socket, PollFlags::empty())];
    poll(&mut look, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).ok()?;
    let events = look[0].revents();
    let left = if events.contains(PollFlags::ERR) { Left::Unread } else { Left::Read };
    events.intersects(PollFlags::ERR | PollFlags::HUP).then_some(left)
}

/// `connect(2)` with `AF_UNSPEC`: resets the connection and drops its queued bytes.
pub(crate) fn reset(socket: BorrowedFd<'_>) {
    // ENOTCONN and similar errors: there is no connection to break.
    let _ = rustix::net::connect_unspec(socket);
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
