//! URLs, requests, and connections to a server.

use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use core::time::Duration;
use std::io::{self, Error};
use std::net::ToSocketAddrs as _;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with, sockopt};

use crate::sys::socket::bind_without_port;

/// `http://HOST[:PORT]/PATH`, with its address looked up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    /// The address of the server.
    pub address: SocketAddr,
    /// Host and port as written, for the `Host` field.
    pub host: String,
    /// Path and query.
    pub path: String,
}

impl Url {
    /// Parses a URL and asks for its host's address.
    ///
    /// # Errors
    /// A sentence, if it is no `http` URL (a special one for TLS) or the host is unknown.
    pub fn parse(text: &str) -> Result<Self, String> {
        let uri: http::Uri =
            text.parse().map_err(|error| format!("'{text}' is not a URL: {error}"))?;
        let is_scheme =
            |name: &str| uri.scheme_str().is_some_and(|it| it.eq_ignore_ascii_case(name));
        if is_scheme("https") {
            return Err(format!(
                "'{text}': TLS is not supported; give the http:// URL of a listener without TLS of that server"
            ));
        }
        let (true, Some(authority)) = (is_scheme("http"), uri.authority()) else {
            return Err(format!("'{text}' does not begin with http://HOST"));
        };
        if authority.port().is_none() && authority.as_str() != authority.host() {
            return Err(format!("'{text}' has more than a host and a port up to 65535"));
        }
        let host = authority.host().trim_matches(['[', ']']);
        let address = (host, authority.port_u16().unwrap_or(80))
            .to_socket_addrs()
            .map_err(|error| format!("the address of '{host}' is not known: {error}"))?
            .next()
            .ok_or_else(|| format!("'{host}' has no address"))?;
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        Ok(Self { address, host: authority.to_string(), path: path.to_owned() })
    }
}

/// A file to request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Target {
    /// Path and query, from the first `/` on.
    pub path: String,
    /// The bytes that the body must have, if the number is known.
    pub len: Option<u64>,
    /// The body, if every response is to be compared with it. The comparison costs CPU.
    pub body: Option<Arc<[u8]>>,
    /// The group whose bytes a [`Trace`](super::Trace) adds up; below [`GROUPS`](super::trace::GROUPS).
    pub group: usize,
}

impl Target {
    /// A file of unknown content.
    #[must_use]
    pub fn new(path: impl Into<String>) -> Self {
        Self { path: path.into(), len: None, body: None, group: 0 }
    }

    /// A request for the target, which keeps the connection or not.
    #[must_use]
    pub fn request(&self, host: &str, keep_alive: bool) -> Vec<u8> {
        let connection = if keep_alive { "" } else { "Connection: close\r\n" };
        let path = &self.path;
        format!(
            "GET {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: samum-bench\r\n{connection}\r\n"
        )
        .into_bytes()
    }
}

/// The source addresses of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sources {
    /// The kernel's choice: about 28,000 ports (`ip_local_port_range`) for one destination.
    Any,
    /// As many addresses 127.0.0.x in turn, for a destination on the loopback interface.
    Loopback(u8),
}

impl Sources {
    /// As many as `connections` connections to `address` need at the same time.
    #[must_use]
    pub fn enough_for(connections: usize, address: SocketAddr) -> Self {
        let loopback = matches!(address.ip(), IpAddr::V4(ip) if ip.is_loopback());
        let addresses = connections.div_ceil(CONNECTIONS_PER_SOURCE);
        match u8::try_from(addresses) {
            Ok(addresses @ 2..) if loopback => Self::Loopback(addresses),
            _ => Self::Any,
        }
    }

    /// The source address of the `i`-th connection; `None` leaves it to the kernel.
    #[must_use]
    pub fn of(self, i: usize) -> Option<Ipv4Addr> {
        match self {
            Self::Any => None,
            Self::Loopback(n) => {
                let host = u8::try_from(i % usize::from(n)).unwrap_or(0);
                Some(Ipv4Addr::new(127, 0, 0, 1 + host))
            }
        }
    }
}

/// Begins to connect, without waiting. The socket sends each write at once (`TCP_NODELAY`).
///
/// # Errors
/// As socket(2), bind(2) and connect(2), except that `EINPROGRESS` is none.
pub fn begin_connect(address: SocketAddr, source: Option<Ipv4Addr>) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(family, SocketType::STREAM, flags, None)?;
    sockopt::set_tcp_nodelay(&socket, true)?;
    if let Some(source) = source {
        // The kernel finds a port that is free at this address. It finds one when it connects: only then are ports
        // usable whose last connection to the same server has ended.
        bind_without_port(socket.as_fd())?;
        rustix::net::bind(&socket, &SocketAddr::from((source, 0)))?;
    }
    match rustix::net::connect(&socket, &address) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(socket),
        Err(error) => Err(error.into()),
    }
}

/// Connects, and waits for it.
///
/// # Errors
/// As connect(2), and `TimedOut`.
pub fn connect(
    address: SocketAddr,
    source: Option<Ipv4Addr>,
    limit: Duration,
) -> io::Result<OwnedFd> {
    let socket = begin_connect(address, source)?;
    let limit = Timespec::try_from(limit).map_err(|_| Error::from(io::ErrorKind::InvalidInput))?;
    if poll(&mut [PollFd::new(&socket, PollFlags::OUT)], Some(&limit))? == 0 {
        return Err(io::ErrorKind::TimedOut.into());
    }
    sockopt::socket_error(&socket)??;
    Ok(socket)
}

/// The connections of one source address: the kernel's default port range, with some ports left for
/// others.
const CONNECTIONS_PER_SOURCE: usize = 12_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls() {
        let url =
            |text: &str| Url::parse(text).map(|url| (url.address.to_string(), url.host, url.path));
        let is = |a: &str, h: &str, p: &str| Ok((a.to_owned(), h.to_owned(), p.to_owned()));
        assert_eq!(
            url("http://127.0.0.1:8080/a?b"),
            is("127.0.0.1:8080", "127.0.0.1:8080", "/a?b")
        );
        assert_eq!(url("http://127.0.0.1"), is("127.0.0.1:80", "127.0.0.1", "/"));
        assert_eq!(url("http://[::1]:81/"), is("[::1]:81", "[::1]:81", "/"));
        assert_eq!(url("HTTP://127.0.0.1:81/"), is("127.0.0.1:81", "127.0.0.1:81", "/"));
        for wrong in ["", "/x", "ftp://127.0.0.1/", "http://", "http://127.0.0.1:99999/"] {
            let error = url(wrong).unwrap_err();
            assert!(error.contains(&format!("'{wrong}'")) && !error.contains("TLS"), "{error}");
        }
        for secure in ["https://127.0.0.1/", "HTTPS://127.0.0.1:8443/"] {
            let error = url(secure).unwrap_err();
            assert!(error.contains(&format!("'{secure}': TLS is not supported; give the http://")));
        }
    }

    #[test]
    fn requests() {
        let request = |keep_alive| Target::new("/x").request("h:1", keep_alive);
        let head = "GET /x HTTP/1.1\r\nHost: h:1\r\nUser-Agent: samum-bench\r\n";
        assert_eq!(request(true), format!("{head}\r\n").as_bytes());
        assert_eq!(request(false), format!("{head}Connection: close\r\n\r\n").as_bytes());
    }

    #[test]
    fn source_addresses_are_taken_when_ports_run_out() {
        let loopback = "127.0.0.1:80".parse().unwrap();
        assert_eq!(Sources::enough_for(1000, loopback), Sources::Any);
        let sources = Sources::enough_for(15_000, loopback);
        assert_eq!(sources, Sources::Loopback(2));
        let of = [0, 1, 2].map(|i| sources.of(i).unwrap().octets()[3]);
        assert_eq!(of, [1, 2, 1]);
        assert_eq!(Sources::enough_for(15_000, "192.0.2.1:80".parse().unwrap()), Sources::Any);
    }
}
