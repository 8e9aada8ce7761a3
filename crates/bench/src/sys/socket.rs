//! Sockets: an option that has no safe call, and accepted descriptors made ours.

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};

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

/// The descriptor that an accept operation gave us.
pub(crate) fn adopt(accepted: i32) -> io::Result<OwnedFd> {
    if accepted < 0 {
        return Err(io::Error::from_raw_os_error(-accepted));
    }
    // SAFETY: the number is fresh from the kernel, in answer to an accept of ours; called once each.
    Ok(unsafe { OwnedFd::from_raw_fd(accepted) })
}
