//! Sockets: options that have no safe calls, and accepted descriptors made ours.

use core::net::SocketAddr;
use std::io;
use std::net::TcpStream;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};

use rustix::net::{AddressFamily, SocketType};

/// `IP_BIND_ADDRESS_NO_PORT` (ip(7), Linux 4.2): bind() to port 0 leaves the port to connect().
pub(crate) fn bind_without_port(fd: BorrowedFd<'_>) -> io::Result<()> {
    let on: libc::c_int = 1;
    let length = libc::socklen_t::try_from(size_of_val(&on)).unwrap_or(0);
    // SAFETY: the option takes an int, and the length is that of one.
    let result = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::IPPROTO_IP,
            libc::IP_BIND_ADDRESS_NO_PORT,
            (&raw const on).cast(),
            length,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Connects with segments of TCP (`TCP_MAXSEG`, tcp(7)) that are so large at most, in both directions.
pub(crate) fn connect_with_segments(address: SocketAddr, bytes: u16) -> io::Result<TcpStream> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = rustix::net::socket(family, SocketType::STREAM, None)?;
    let bytes = libc::c_int::from(bytes);
    let length = libc::socklen_t::try_from(size_of_val(&bytes)).unwrap_or(0);
    // SAFETY: the option takes an int, and the length is that of one.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_MAXSEG,
            (&raw const bytes).cast(),
            length,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    rustix::net::connect(&socket, &address)?;
    Ok(socket.into())
}

/// The descriptor that an accept operation gave us.
pub(crate) fn adopt(accepted: i32) -> io::Result<OwnedFd> {
    if accepted < 0 {
        return Err(io::Error::from_raw_os_error(-accepted));
    }
    // SAFETY: the number is fresh from the kernel, in answer to an accept of ours; called once each.
    Ok(unsafe { OwnedFd::from_raw_fd(accepted) })
}
