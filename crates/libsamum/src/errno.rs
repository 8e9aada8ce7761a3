//! Maps each error to its errno.

use core::ffi::c_int;
use std::io;

use sendfile::{Failure, Stop};

/// The errno of a call that has ended early; `gone` is the errno for a peer that has closed.
pub(crate) const fn of_stop(stop: Stop, gone: c_int) -> c_int {
    match stop {
        Stop::Cancelled => libc::ECANCELED,
        Stop::Broken => libc::ECONNABORTED,
        Stop::Closed => libc::EBADF,
        Stop::Failed(Failure::Gone) => gone,
        Stop::Failed(Failure::Truncated | Failure::Unfinished) => libc::ENODATA,
        Stop::Failed(Failure::Late) => libc::ETIMEDOUT,
        Stop::Failed(
            Failure::Unreadable(errno) | Failure::NoMemory(errno) | Failure::Unexpected(errno),
        ) => match errno {
            0 => libc::EIO,
            errno => errno,
        },
    }
}

/// The errno of an error from a system call, or of an error that this library made.
pub(crate) fn of_error(error: &io::Error) -> c_int {
    error.raw_os_error().unwrap_or_else(|| match error.kind() {
        io::ErrorKind::IsADirectory => libc::EISDIR,
        io::ErrorKind::InvalidInput => libc::EINVAL,
        io::ErrorKind::OutOfMemory => libc::ENOMEM,
        io::ErrorKind::TimedOut => libc::ETIMEDOUT,
        io::ErrorKind::Unsupported => libc::EOPNOTSUPP,
        _ => libc::EIO,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_error_has_the_errno_of_success() {
        let failures = [
            Failure::Truncated,
            Failure::Unreadable(0),
            Failure::Unreadable(libc::EIO),
            Failure::NoMemory(libc::ENOMEM),
            Failure::Unexpected(0),
            Failure::Gone,
            Failure::Late,
            Failure::Unfinished,
        ];
        let stops = [Stop::Cancelled, Stop::Broken, Stop::Closed];
        for stop in stops.into_iter().chain(failures.map(Stop::Failed)) {
            assert_ne!(of_stop(stop, libc::EPIPE), 0, "{stop:?}");
        }
        assert_eq!(of_stop(Stop::Failed(Failure::Gone), libc::ECONNRESET), libc::ECONNRESET);
        assert_eq!(of_error(&io::ErrorKind::IsADirectory.into()), libc::EISDIR);
        assert_eq!(of_error(&io::ErrorKind::TimedOut.into()), libc::ETIMEDOUT);
        assert_eq!(of_error(&io::Error::other("broken")), libc::EIO);
        assert_eq!(of_error(&io::Error::from_raw_os_error(libc::ELOOP)), libc::ELOOP);
    }
}
