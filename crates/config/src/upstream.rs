//! The upstreams: their addresses, and the rules for requests that are passed on to them.

use core::fmt;
use core::net::{Ipv6Addr, SocketAddr};
use core::time::Duration;
use std::path::PathBuf;

use crate::{TlsFiles, placeholder};

/// The servers that the requests of a route are passed on to, and the rules for that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upstream {
    /// The servers, 1 to [`SERVERS_MAX`](Self::SERVERS_MAX).
    pub servers: Vec<ServerUrl>,
    /// The rules.
    pub rules: GatewayRules,
}

impl Upstream {
    /// The maximum of servers of one route.
    pub const SERVERS_MAX: usize = 64;

    /// Returns true if one of the servers speaks TLS.
    #[must_use]
    pub fn has_tls(&self) -> bool {
        self.servers.iter().any(|server| server.protocol == Protocol::Https)
    }
}

/// A server of an upstream, and the path that it has there.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ServerUrl {
    /// The protocol that it speaks.
    pub protocol: Protocol,
    /// Its address.
    pub address: ServerAddress,
    /// The path at the server that replaces the path of the route; none if paths are kept as they are.
    pub path: Option<String>,
}

/// The protocol that a server speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// HTTP/1.1.
    Http,
    /// HTTP/1.1 over TLS.
    Https,
    /// FastCGI.
    Fastcgi,
}

/// The address of a server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ServerAddress {
    /// TCP.
    Ip(SocketAddr),
    /// TCP, at the addresses of this host.
    Host(String, u16),
    /// A Unix socket.
    Unix(PathBuf),
}

/// The rules for messages that are passed on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatewayRules {
    /// The bytes of a response that may wait for the client; beyond it the server waits. By default 1 MiB, 16 KiB at
    /// least.
    pub buffer: u64,
    /// The directory on whose disk bytes wait for a slow client; none by default: they wait in memory. It also holds
    /// bodies that are collected for an application, which are in the system's directory for temporary files by
    /// default. With a directory, [`buffer`](Self::buffer) is at least [`BUFFER_FILE_MIN`](Self::BUFFER_FILE_MIN).
    pub buffer_dir: Option<PathBuf>,
    /// True if long contents of known length go to the client through a pipe, which copies nothing. The default is true.
    pub splice: bool,
    /// The maximum of bytes of a long content that are received in one step, 512 KiB by default and 4 KiB at least. A
    /// pipe has room for 1 MiB.
    pub receive_max: u64,
    /// The time in which a connection must be made; 5 s by default.
    pub timeout_connect: Duration,
    /// The time in which a server must send some bytes while it is its turn; in a tunnel, in which either end must
    /// take or send some. 60 s by default.
    pub timeout_upstream: Duration,
    /// The time in which a server that has not responded must receive some bytes of a request that wait for it; 60 s by
    /// default.
    pub timeout_upstream_send: Duration,
    /// The rule by which the server of a request is chosen.
    pub balance: Balance,
    /// The part of a request that has its server, for [`Balance::Hash`].
    pub hash_by: HashBy,
    /// The number of times that a request is sent again at most, if that is safe; 2 by default.
    pub retries: u32,
    /// The rules by which a server is up or down.
    pub health: HealthRules,
    /// The TLS of connections to servers that speak it; by default they are verified by the system's authorities.
    pub tls: Option<Box<UpstreamTls>>,
}

/// The TLS of connections to servers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct UpstreamTls {
    /// The file of the authorities of the servers; by default those of the system.
    pub ca: Option<PathBuf>,
    /// The name or the address that the certificates of the servers must have; by default the host of the URL.
    pub name: Option<String>,
    /// The files of our certificate and its key; none by default.
    pub pair: Option<TlsFiles>,
    /// True if servers are verified, which is the default.
    pub verify: bool,
}

impl Default for UpstreamTls {
    fn default() -> Self {
        Self { ca: None, name: None, pair: None, verify: true }
    }
}

/// The rules by which a server is up or down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthRules {
    /// Failures in a row after which a server is down; 3 by default. 0: it is never down because of
    /// requests.
    pub max_fails: u32,
    /// A failure is in a row with another one that is not longer ago. A server that is down is tried again
    /// after this time, and after twice as long each time that it is down again, up to a minute. 10 s by
    /// default.
    pub fail_timeout: Duration,
    /// The time in which the share of a server grows after it is up again, or after it was added: a further address of
    /// its name, or by a reload. By default it does not grow: it is `None`.
    pub slow_start: Option<Duration>,
    /// The path that is asked for to find out whether a server is up; none by default.
    pub check: Option<String>,
    /// The time from one check to the next, in which a response must come; 5 s by default.
    pub check_interval: Duration,
}

/// A rule by which the server of a request is chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Balance {
    /// Each server in its turn
    #[default]
    RoundRobin,
    /// A server with the fewest requests at the moment, by turn if there are several
    Least,
    /// The same server for the same client or path, unless it is down or has 5/4 of its share
    Hash,
}

/// The part of a request that has its server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum HashBy {
    /// The address of the client
    #[default]
    Client,
    /// The path
    Path,
}

impl GatewayRules {
    /// The default of [`buffer`](Self::buffer).
    pub const BUFFER: u64 = 1024 * 1024;
    /// The least value of [`buffer`](Self::buffer).
    pub const BUFFER_MIN: u64 = 16 * 1024;
    /// The minimum of [`buffer`](Self::buffer) with a [directory](Self::buffer_dir): a part of it is memory, on the way
    /// to the disk.
    pub const BUFFER_FILE_MIN: u64 = 4 * 1024 * 1024;
    /// The least value of [`receive_max`](Self::receive_max).
    pub const RECEIVE_MIN: u64 = 4 * 1024;
    /// The greatest value of [`retries`](Self::retries).
    pub const RETRIES_MAX: u32 = 2;
}

impl Default for GatewayRules {
    fn default() -> Self {
        Self {
            buffer: Self::BUFFER,
            buffer_dir: None,
            splice: true,
            receive_max: 512 * 1024,
            timeout_connect: Duration::from_secs(5),
            timeout_upstream: Duration::from_secs(60),
            timeout_upstream_send: Duration::from_secs(60),
            balance: Balance::default(),
            hash_by: HashBy::default(),
            retries: Self::RETRIES_MAX,
            health: HealthRules::default(),
            tls: None,
        }
    }
}

impl Default for HealthRules {
    fn default() -> Self {
        Self {
            max_fails: 3,
            fail_timeout: Duration::from_secs(10),
            slow_start: None,
            check: None,
            check_interval: Duration::from_secs(5),
        }
    }
}

/// Reads `http://HOST[:PORT][/PATH]`, the same with `https`, or `unix:PATH`.
///
/// # Errors
///
/// A sentence for the operator.
pub fn server(text: &str) -> Result<ServerUrl, String> {
    let capture = || placeholder::capture(text).map(|capture| format!("`{capture}`"));
    if let Some(variable) = placeholder::any(text).or_else(capture) {
        return Err(format!(
            "{text:?}: {variable} is not replaced: a server has a fixed URL; with a path in the URL, the rest of the request's \
             path behind the `path` of the route follows it"
        ));
    }
    if let Some(before) = text.strip_suffix("/*") {
        return Err(format!("{text:?}: a server has no patterns: write \"{before}/\""));
    }
    if let Some(path) = text.strip_prefix("unix:") {
        return Ok(ServerUrl { protocol: Protocol::Http, address: unix(path)?, path: None });
    }
    let with_tls = text.strip_prefix("https://");
    let Some(rest) = with_tls.or_else(|| text.strip_prefix("http://")) else {
        let hint = match text {
            _ if is_path(text) => format!(": write \"unix:{}\"", socket_of(text)),
            _ if !text.contains("://") && authority_of(text, 0).is_ok() => {
                format!(": write \"http://{text}\"")
            }
            _ => match text.split_once("://") {
                Some((scheme, rest)) => of_scheme(scheme, rest),
                None => String::new(),
            },
        };
        return Err(format!(
            "{text:?}: expected http://HOST:PORT, https://HOST:PORT or unix:PATH{hint}"
        ));
    };
    if let Some(path) = rest.strip_prefix("unix:") {
        // nginx has the path of requests after a second colon.
        let socket = path.split(':').next().unwrap_or_default();
        return Err(format!("{text:?}: write \"unix:{socket}\""));
    }
    if rest.contains(' ') {
        return Err(format!("{text:?}: this is one server; several servers are a list"));
    }
    if rest.contains(['?', '#']) {
        return Err(format!("{text:?}: a server has a path at most; queries come from requests"));
    }
    let (authority, path) = match rest.find('/') {
        Some(slash) => (&rest[..slash], Some(super::rule::path(&rest[slash..])?)),
        None => (rest, None),
    };
    let (protocol, port) =
        if with_tls.is_some() { (Protocol::Https, 443) } else { (Protocol::Http, 80) };
    Ok(ServerUrl { protocol, address: authority_of(authority, port)?, path })
}

/// The address of a server that a URL names: `HOST[:PORT]`, if it is one. `port` is that of a URL without one.
pub fn server_address(authority: &str, port: u16) -> Option<ServerAddress> {
    authority_of(authority, port).ok()
}

/// Reads `HOST:PORT` or `unix:PATH`, of a FastCGI application.
///
/// # Errors
///
/// A sentence for the operator.
pub fn application(text: &str) -> Result<ServerUrl, String> {
    let address = match text.strip_prefix("unix:") {
        Some(path) => unix(path)?,
        None if is_path(text) => {
            return Err(format!(
                "{text:?}: expected HOST:PORT or unix:PATH: write \"unix:{}\"",
                socket_of(text)
            ));
        }
        None => {
            if let Some((_, rest)) = text.split_once("://") {
                let rest = rest.trim_end_matches('/');
                let write =
                    if rest.starts_with('/') { format!("unix:{rest}") } else { rest.to_owned() };
                return Err(format!("{text:?}: an application has no scheme: write \"{write}\""));
            }
            authority_of(text, 0)?
        }
    };
    Ok(ServerUrl { protocol: Protocol::Fastcgi, address, path: None })
}

/// The path of a socket, as Caddy writes it or without any prefix.
fn socket_of(text: &str) -> &str {
    text.strip_prefix("unix/").unwrap_or(text)
}

/// Says what to write instead of a scheme that no server here has.
fn of_scheme(scheme: &str, rest: &str) -> String {
    match scheme {
        "ws" => format!(": write \"http://{rest}\", which is for WebSockets, too"),
        "wss" => format!(": write \"https://{rest}\", which is for WebSockets, too"),
        "fcgi" | "fastcgi" => format!(": write `fastcgi = \"{rest}\"`"),
        "h2c" | "grpc" | "grpcs" | "h2" => ": servers are asked in HTTP/1.1".to_owned(),
        "tcp" => format!(": write \"http://{rest}\""),
        _ => String::new(),
    }
}

/// Returns true if a text is rather the path of a socket than a host.
fn is_path(text: &str) -> bool {
    text.contains('/') && !text.contains("://")
}

fn unix(path: &str) -> Result<ServerAddress, String> {
    if let Some((socket, _)) = path.split_once(":/") {
        return Err(format!(
            "{path:?}: a path of requests cannot follow the socket: write unix:{socket}"
        ));
    }
    ring::Address::unix(path)
        .map_err(|error| format!("{path:?} is no path of a socket: {error}"))?;
    Ok(ServerAddress::Unix(path.into()))
}

/// Reads a host and a port; 0 is no default.
fn authority_of(text: &str, default: u16) -> Result<ServerAddress, String> {
    let wrong = || format!("{text:?}: expected HOST:PORT, with an IPv6 address in brackets");
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => {
            (host, port.parse().map_err(|_| format!("{port:?} is no port"))?)
        }
        _ => (text, default),
    };
    if port == 0 {
        let is_given = text.ends_with(":0");
        return Err(if is_given { "a server has no port 0".to_owned() } else { wrong() });
    }
    if let Some(inner) = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        let address: Ipv6Addr = inner.parse().map_err(|_| wrong())?;
        return Ok(ServerAddress::Ip((address, port).into()));
    }
    if let Ok(address) = host.parse() {
        return Ok(ServerAddress::Ip(SocketAddr::new(core::net::IpAddr::V4(address), port)));
    }
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    if host.is_empty() || host.len() > 253 || !host.bytes().all(is_name) {
        return Err(wrong());
    }
    Ok(ServerAddress::Host(host.to_ascii_lowercase(), port))
}

impl ServerUrl {
    /// The name or the address that the certificate of the server must have; `None` if it speaks no TLS.
    #[must_use]
    pub fn tls_name(&self) -> Option<String> {
        match &self.address {
            _ if self.protocol != Protocol::Https => None,
            ServerAddress::Ip(address) => Some(address.ip().to_string()),
            ServerAddress::Host(host, _) => Some(host.clone()),
            ServerAddress::Unix(_) => None,
        }
    }
}

impl fmt::Display for ServerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.address {
            ServerAddress::Unix(_) => self.address.fmt(f),
            address => {
                let scheme = match self.protocol {
                    Protocol::Http => "http",
                    Protocol::Https => "https",
                    Protocol::Fastcgi => "fastcgi",
                };
                write!(f, "{scheme}://{address}{}", self.path.as_deref().unwrap_or_default())
            }
        }
    }
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(address) => address.fmt(f),
            Self::Host(host, port) => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_have_an_address_and_perhaps_a_path() {
        let ip = |text: &str| ServerAddress::Ip(text.parse().unwrap());
        let host = |name: &str, port| ServerAddress::Host(name.to_owned(), port);
        for (text, address, path, printed) in [
            ("http://127.0.0.1:9000", ip("127.0.0.1:9000"), None, "http://127.0.0.1:9000"),
            ("http://[::1]:81/a/", ip("[::1]:81"), Some("/a/"), "http://[::1]:81/a/"),
            ("http://[::1]/", ip("[::1]:80"), Some("/"), "http://[::1]:80/"),
            ("http://App.local", host("app.local", 80), None, "http://app.local:80"),
            (
                "unix:/run/a.sock",
                ServerAddress::Unix("/run/a.sock".into()),
                None,
                "unix:/run/a.sock",
            ),
        ] {
            let path = path.map(str::to_owned);
            let expected = ServerUrl { protocol: Protocol::Http, address, path };
            assert_eq!(server(text), Ok(expected.clone()), "{text}");
            assert_eq!(expected.to_string(), printed);
            assert_eq!(server(printed), Ok(expected));
        }
        for (text, name, printed) in [
            ("https://10.0.0.5:8443", "10.0.0.5", "https://10.0.0.5:8443"),
            ("https://[::1]/a", "::1", "https://[::1]:443/a"),
            ("https://App.local/", "app.local", "https://app.local:443/"),
        ] {
            let url = server(text).unwrap();
            assert_eq!((url.protocol, &url.tls_name().unwrap()[..]), (Protocol::Https, name));
            assert_eq!(url.to_string(), printed);
        }
        assert_eq!(server("http://a").unwrap().tls_name(), None);
        for bad in [
            "",
            "127.0.0.1:80",
            "https://",
            "https://a:0",
            "https+unix:/run/a.sock",
            "http://a/b?c=d",
            "http://a/b#c",
            "unix:/run/a.sock:/b",
            "http://",
            "http://:80",
            "http://a:0",
            "http://a:70000",
            "http://a b",
            "http://[::1",
            "http://user@a",
            "http://a/b/../c",
            "http://a?b",
            "unix:",
        ] {
            assert!(server(bad).is_err(), "{bad}");
        }
        for text in ["http://unix:/run/a.sock", "http://unix:/run/a.sock:/b/"] {
            let why = server(text).expect_err(text);
            assert!(why.ends_with(": write \"unix:/run/a.sock\""), "{why}");
        }
        assert_eq!(server("http://a:0"), Err("a server has no port 0".to_owned()));
        let app = application("app:9000").expect("an application");
        assert_eq!(
            (&app.address, &app.to_string()[..]),
            (&host("app", 9000), "fastcgi://app:9000")
        );
        assert!(application("app").is_err());
    }
}
