//! Classifies the errno of a send, a `sendfile` or a read by the side at fault, which decides what
//! the caller does.
//!
//! One call works on a socket and on a file, and only its errno says which of the two failed. The
//! families are those of `send(2)`, of `tcp(7)` and of file systems. An errno in none of the
//! families counts as a fault of this program, and is never taken for a peer that has gone.

use std::io;

/// The family of an error. The faults of a file, of memory and of this program carry the errno, to
/// be reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The socket is full: try again when it is writable.
    Blocked,
    /// A signal came first: try again.
    Interrupted,
    /// The peer, or the path to it, has gone: close the connection; there is nothing to report.
    Peer,
    /// The file cannot be read: close the connection, and report the file.
    File(i32),
    /// The file system does not know this call: use another.
    Unsupported(i32),
    /// The machine has no memory for the call.
    Memory(i32),
    /// A mistake of this program, or an errno that this table does not know.
    Ours(i32),
}

impl Fault {
    /// The family that an error belongs to.
    #[must_use]
    pub fn of(error: &io::Error) -> Self {
        let Some(errno) = error.raw_os_error() else {
            return match error.kind() {
                io::ErrorKind::WouldBlock => Self::Blocked,
                io::ErrorKind::Interrupted => Self::Interrupted,
                // Errors of the simulation without an errno, and errors that std finds without a
                // call.
                _ => Self::Ours(0),
            };
        };
        match errno {
            libc::EAGAIN => Self::Blocked,
            libc::EINTR => Self::Interrupted,
            // The connection has ended, by either side or by a timeout; or the path to the peer has
            // failed (`icmp_err_convert` in net/ipv4/icmp.c, and the errors of packet filters).
            libc::EPIPE
            | libc::ECONNRESET
            | libc::ECONNABORTED
            | libc::ECONNREFUSED
            | libc::ETIMEDOUT
            | libc::ENOTCONN
            | libc::ESHUTDOWN
            | libc::EHOSTUNREACH
            | libc::EHOSTDOWN
            | libc::ENETUNREACH
            | libc::ENETDOWN
            | libc::ENETRESET
            | libc::ENONET
            | libc::ENOPROTOOPT
            | libc::EMSGSIZE
            | libc::EPERM => Self::Peer,
            // A broken disk (EIO), a broken file system (EUCLEAN, EBADMSG: a checksum), a file that
            // a server has removed (ESTALE), a file beyond the range of the call (EOVERFLOW,
            // EFBIG), a device or a daemon that has gone.
            libc::EIO
            | libc::EREMOTEIO
            | libc::EUCLEAN
            | libc::EBADMSG
            | libc::EILSEQ
            | libc::ENODATA
            | libc::ESTALE
            | libc::EOVERFLOW
            | libc::EFBIG
            | libc::ENXIO
            | libc::ENODEV
            | libc::ENOLINK
            | libc::ENOKEY
            | libc::EKEYEXPIRED
            | libc::EKEYREVOKED
            | libc::EKEYREJECTED => Self::File(errno),
            libc::EINVAL | libc::EOPNOTSUPP | libc::ENOSYS => Self::Unsupported(errno),
            libc::ENOMEM | libc::ENOBUFS => Self::Memory(errno),
            _ => Self::Ours(errno),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_ends_a_connection_is_the_peers_fault() {
        let of = |errno| Fault::of(&io::Error::from_raw_os_error(errno));
        for errno in [libc::EPIPE, libc::ECONNRESET, libc::ETIMEDOUT, libc::EHOSTUNREACH] {
            assert_eq!(of(errno), Fault::Peer);
        }
        for errno in [libc::EIO, libc::EOVERFLOW, libc::ESTALE, libc::EUCLEAN] {
            assert_eq!(of(errno), Fault::File(errno));
        }
        for errno in [libc::EINVAL, libc::EOPNOTSUPP, libc::ENOSYS] {
            assert_eq!(of(errno), Fault::Unsupported(errno));
        }
        for errno in [libc::ENOMEM, libc::ENOBUFS] {
            assert_eq!(of(errno), Fault::Memory(errno));
        }
        for errno in [libc::EBADF, libc::EFAULT, libc::ENOTSOCK, libc::EDOM, 4095] {
            assert_eq!(of(errno), Fault::Ours(errno));
        }
        assert_eq!(of(libc::EAGAIN), Fault::Blocked);
        assert_eq!(of(libc::EINTR), Fault::Interrupted);
    }

    #[test]
    fn an_error_without_an_errno_has_a_family_too() {
        assert_eq!(Fault::of(&io::ErrorKind::WouldBlock.into()), Fault::Blocked);
        assert_eq!(Fault::of(&io::ErrorKind::Interrupted.into()), Fault::Interrupted);
        assert_eq!(Fault::of(&io::Error::other("broken")), Fault::Ours(0));
    }
}
