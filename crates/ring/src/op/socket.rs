//! Operations on sockets: each waits for one thing to happen to one descriptor.

use core::net::SocketAddr;
use std::io;
use std::path::Path;

use rustix::io::Errno;
use rustix::net::{SocketAddrAny, SocketAddrUnix};

/// `sun_path` of `struct sockaddr_un`, without the NUL.
const UNIX_PATH_BYTES_MAX: usize = 107;

/// The address of a listening stream socket: TCP over IPv4 or IPv6, or a Unix socket.
///
/// ```
/// use ring::{Address, Op};
///
/// let tcp = Op::Connect(Address::from(std::net::SocketAddr::from(([127, 0, 0, 1], 8080))));
/// let unix = Op::Connect(Address::unix("/run/upstream.sock")?);
/// # std::io::Result::Ok(())
/// ```
// In the form that the kernel reads, at an address that does not move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address(Box<SocketAddrAny>);

impl Address {
    /// The address of a Unix socket that has a name in a file system.
    ///
    /// # Errors
    ///
    /// `ENAMETOOLONG` if the path has more than 107 bytes (unix(7)), `EINVAL` if it has a NUL, and
    /// `ENOENT` if it is empty.
    pub fn unix(path: impl AsRef<Path>) -> io::Result<Self> {
        let path = path.as_ref();
        match path.as_os_str().len() {
            // An empty path would be a socket without a name.
            0 => Err(Errno::NOENT.into()),
            1..=UNIX_PATH_BYTES_MAX => Ok(Self(Box::new(SocketAddrUnix::new(path)?.into()))),
            _ => Err(Errno::NAMETOOLONG.into()),
        }
    }

    pub(crate) const fn as_any(&self) -> &SocketAddrAny {
        &self.0
    }
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Self {
        Self(Box::new(address.into()))
    }
}

/// The event of a descriptor that an operation waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// Connections, again and again.
    Accept,
    /// The end of a connect, once.
    Connect,
    /// Received bytes, again and again.
    Recv,
    /// Something to read, once.
    Readable,
    /// Room to write, once.
    Writable,
    /// Acknowledgements of sent bytes, again and again.
    Acknowledgements,
    /// Signals, again and again.
    Signal,
    /// The end of a child process, once.
    Child,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unix_address_has_a_path_that_the_kernel_takes() {
        let errno = |path: &str| Address::unix(path).map_err(|error| error.raw_os_error());
        assert!(errno("a").is_ok());
        let longest = errno(&"x".repeat(UNIX_PATH_BYTES_MAX)).unwrap();
        assert!(format!("{longest:?}").contains("xxx"));
        assert_eq!(errno(&"x".repeat(UNIX_PATH_BYTES_MAX + 1)), Err(Some(libc::ENAMETOOLONG)));
        assert_eq!(errno("a\0b"), Err(Some(libc::EINVAL)));
        assert_eq!(errno(""), Err(Some(libc::ENOENT)));
    }
}
