//! The listeners of the server, and their addresses.

use core::fmt;
use core::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

/// A listener: its address, and how its connections begin. Sites can share a listener.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Listen {
    /// Its address.
    pub address: Address,
    /// True if trusted proxies send a header of the PROXY protocol, version 1 or 2, in front of each connection:
    /// `{ address = "...", proxy-protocol = true }`. Other clients may send none.
    pub proxy_protocol: bool,
    /// True if connections begin with a handshake of TLS, after the header of a proxy if there is one:
    /// `{ address = "...", tls = true }`.
    pub tls: bool,
    /// True if clients may speak HTTP/2: by their choice in the handshake of TLS, or by its preface without TLS.
    pub http2: bool,
}

/// The listener at an address for connections that begin with a request, without TLS. They may speak HTTP/2.
impl From<Address> for Listen {
    fn from(address: Address) -> Self {
        Self { address, proxy_protocol: false, tls: false, http2: true }
    }
}

/// Returns the URL of an address at which the server listens, with TLS or without.
#[must_use]
pub fn url(local: SocketAddr, tls: bool) -> String {
    let scheme = if tls { "https" } else { "http" };
    format!("{scheme}://{local}/")
}

/// The address of a listener.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// TCP.
    Ip(SocketAddr),
    /// A stream socket in the file system.
    Unix(UnixSocket),
}

/// A stream socket in the file system.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct UnixSocket {
    /// Its path.
    pub path: PathBuf,
    /// Its permissions, if not 0777 less the umask. Users with write permission can connect.
    pub mode: Option<u32>,
    /// The name or number of the user that will own it.
    pub user: Option<String>,
    /// The name or number of the group that will own it.
    pub group: Option<String>,
}

impl Address {
    /// The port, if it has one.
    #[must_use]
    pub const fn port(&self) -> Option<u16> {
        match self {
            Self::Ip(address) => Some(address.port()),
            Self::Unix(_) => None,
        }
    }

    /// The address without its port, if it has one.
    #[must_use]
    pub const fn ip(&self) -> Option<IpAddr> {
        match self {
            Self::Ip(address) => Some(address.ip()),
            Self::Unix(_) => None,
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(address) => address.fmt(f),
            Self::Unix(socket) => write!(f, "unix:{}", socket.path.display()),
        }
    }
}
