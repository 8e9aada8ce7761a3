//! The client of a connection or a request: its address, as access rules, limits and logs know the address, and the
//! scheme that the client has asked for.

use core::iter;
use core::net::IpAddr;
use std::sync::Arc;

use http::{Field, Head};

use crate::forwarded::{self, Conflict, Scheme};
use crate::limits::{ClientKey, Counted, Limiter};
use config::AddressSet;
use config::Peers;

/// The client of a connection: its peer, or the client that a trusted peer has named.
#[derive(Debug)]
pub struct Client {
    /// The address. `None` for a Unix socket, and for a peer that had gone when the kernel was asked for the address.
    pub address: Option<IpAddr>,
    /// The name in logs.
    pub name: Box<str>,
    /// `Some` if the client's connections are counted.
    pub counted: Option<Counted>,
}

/// The address of a connection's client, if something has needed it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientAddress {
    /// Nothing needed the address.
    #[default]
    Unasked,
    /// The client has no address: it is at a Unix socket, or had gone when the kernel was asked for the address.
    Absent,
    /// The address.
    Ip(IpAddr),
}

impl ClientAddress {
    /// The address, if it is known.
    #[must_use]
    pub const fn ip(self) -> Option<IpAddr> {
        match self {
            Self::Unasked | Self::Absent => None,
            Self::Ip(address) => Some(address),
        }
    }

    /// Returns true if the address was asked for.
    #[must_use]
    pub const fn is_asked(self) -> bool {
        !matches!(self, Self::Unasked)
    }
}

impl From<Option<&Client>> for ClientAddress {
    fn from(client: Option<&Client>) -> Self {
        match client.map(|client| client.address) {
            None => Self::Unasked,
            Some(None) => Self::Absent,
            Some(Some(address)) => Self::Ip(address),
        }
    }
}

/// The sender of a request, according to its connection and the proxies that are believed. Everything that depends on
/// the scheme of a request gets the scheme from here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sender {
    /// The address of the other end of the connection. If this end is a proxy that has named its client in front of the
    /// stream, the address of that client. `None` for a Unix socket.
    pub peer: Option<IpAddr>,
    /// True if the peer is a proxy that is believed.
    pub is_trusted: bool,
    /// The client: the peer, or the client that the peer names if the peer is believed. If the fields of the request
    /// name different clients, the value is the peer, and the request is refused.
    pub client: Option<IpAddr>,
    /// The scheme that the peer itself has used.
    pub own_scheme: Scheme,
    /// The scheme that the client has asked for, if the peer is believed and names a scheme.
    pub told_scheme: Option<Scheme>,
    /// True if `Forwarded` names another scheme than the one that the client is taken to have asked for.
    pub is_contradicted: bool,
}

impl Sender {
    /// The scheme that the client has asked for.
    pub fn scheme(&self) -> Scheme {
        self.told_scheme.unwrap_or(self.own_scheme)
    }
}

/// The proxies that are believed when they name their clients.
#[derive(Clone, Debug, Default)]
pub struct Proxies {
    addresses: AddressSet,
    /// True if peers on Unix sockets are believed.
    unix: bool,
}

impl Client {
    /// The client with this address. Its connection is counted if there is a limiter.
    pub fn new(address: Option<IpAddr>, limiter: Option<&Arc<Limiter>>) -> Self {
        let address = address.map(|address| address.to_canonical());
        let name = address.map_or_else(|| "unix:".into(), |address| address.to_string().into());
        let counted =
            address.zip(limiter).map(|(address, limiter)| limiter.count(ClientKey::new(address)));
        Self { address, name, counted }
    }
}

impl Proxies {
    /// The proxies of a configuration.
    pub fn new(proxies: &[Peers]) -> Self {
        let prefixes = proxies.iter().filter_map(|proxies| proxies.prefix());
        Self { addresses: prefixes.collect(), unix: proxies.contains(&Peers::Unix) }
    }

    /// Returns true if no proxy is believed.
    pub fn is_empty(&self) -> bool {
        !self.unix && self.addresses == AddressSet::default()
    }

    /// Returns true if a peer with this address is believed. `None` stands for a peer on a Unix socket.
    #[inline]
    pub fn trusts(&self, peer: Option<IpAddr>) -> bool {
        peer.map_or(self.unix, |address| self.addresses.contains(address))
    }

    /// Returns the client of a request, on a connection of this client. If the client of the connection is a proxy that
    /// is believed and names another client, the result is that client.
    ///
    /// # Errors
    ///
    /// If the fields of the request name different clients.
    pub fn client_of(
        &self,
        connection: Option<IpAddr>,
        head: &Head<'_>,
    ) -> Result<Option<IpAddr>, Conflict> {
        if !self.trusts(connection) {
            return Ok(connection);
        }
        let trusts = |address| self.addresses.contains(address);
        let (forwarded, others) = (lines(head, b"Forwarded"), head.lines(Field::XForwardedFor));
        Ok(forwarded::client(forwarded, others, trusts)?.or(connection))
    }

    /// Returns the sender of a request, on a connection of this peer with this scheme.
    pub fn sender_of(&self, peer: Option<IpAddr>, own_scheme: Scheme, head: &Head<'_>) -> Sender {
        let client = self.client_of(peer, head);
        let told_scheme = self.told_scheme(peer, head);
        Sender {
            peer,
            is_trusted: self.trusts(peer),
            client: client.unwrap_or(peer),
            own_scheme,
            told_scheme,
            is_contradicted: told_scheme.is_some() && self.contradicts(head, told_scheme),
        }
    }

    /// Returns the scheme that the client has asked for, if this peer is a proxy that is believed, and names a scheme.
    pub fn told_scheme(&self, peer: Option<IpAddr>, head: &Head<'_>) -> Option<Scheme> {
        // The fields of other peers do not count.
        if !self.trusts(peer) {
            return None;
        }
        let trusts = |address| self.addresses.contains(address);
        let (forwarded, others) = (lines(head, b"Forwarded"), head.lines(Field::XForwardedFor));
        forwarded::scheme(forwarded, others, lines(head, b"X-Forwarded-Proto"), trusts)
    }

    /// Returns true if the peer is a proxy that is believed, and its `Forwarded` names another scheme than this scheme.
    fn contradicts(&self, head: &Head<'_>, scheme: Option<Scheme>) -> bool {
        let trusts = |address| self.addresses.contains(address);
        let forwarded = lines(head, b"Forwarded");
        let named = forwarded::scheme(forwarded, iter::empty(), iter::empty(), trusts);
        named.is_some() && named != scheme
    }

    /// Returns the host, perhaps with a port, that the client has asked for, if this peer is a proxy that is believed,
    /// and names the host in `Forwarded`.
    pub fn told_host<'a>(&self, peer: Option<IpAddr>, head: &Head<'a>) -> Option<&'a [u8]> {
        if !self.trusts(peer) {
            return None;
        }
        forwarded::host(lines(head, b"Forwarded"), |address| self.addresses.contains(address))
    }
}

/// The values of all lines of a field.
fn lines<'a>(head: &Head<'a>, name: &'static [u8]) -> impl Iterator<Item = &'a [u8]> {
    let named = head.fields().filter(move |(found, _)| found.eq_ignore_ascii_case(name));
    named.map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use http1::Limits;

    use super::*;

    #[test]
    fn only_a_proxy_that_is_believed_names_the_client_and_the_scheme() {
        let address = |text: &str| text.parse::<IpAddr>().ok();
        let proxies = Proxies::new(&["10.0.0.0/8".parse().unwrap(), Peers::Unix]);
        let (http, https) = (Scheme::Http, Scheme::Https);
        for (peer, own, fields, client, scheme) in [
            ("192.0.2.1", http, "", "192.0.2.1", http),
            ("192.0.2.1", https, "X-Forwarded-Proto: http\r\n", "192.0.2.1", https),
            ("192.0.2.1", http, "Forwarded: for=1.1.1.1;proto=https\r\n", "192.0.2.1", http),
            ("10.0.0.1", http, "", "10.0.0.1", http),
            ("10.0.0.1", https, "", "10.0.0.1", https),
            ("10.0.0.1", http, "Forwarded: for=1.1.1.1;proto=https\r\n", "1.1.1.1", https),
            ("10.0.0.1", https, "X-Forwarded-Proto: http\r\n", "10.0.0.1", http),
            ("unix", http, "X-Forwarded-For: 1.1.1.1\r\n", "1.1.1.1", http),
            (
                "10.0.0.1",
                http,
                "Forwarded: for=1.1.1.1;proto=https\r\nX-Forwarded-For: 2.2.2.2\r\n",
                "10.0.0.1",
                https,
            ),
        ] {
            let text = format!("GET / HTTP/1.1\r\nHost: h\r\n{fields}\r\n");
            let parsed = http1::parse(text.as_bytes(), &Limits::DEFAULT).unwrap();
            let (request, _) = parsed.unwrap();
            let sender = proxies.sender_of(address(peer), own, &request.head);
            let found = (sender.client, sender.scheme());
            assert_eq!(found, (address(client), scheme), "{peer} {fields}");
            assert_eq!((sender.peer, sender.own_scheme), (address(peer), own));
            assert_eq!(sender.is_trusted, peer != "192.0.2.1");
        }
    }

    #[test]
    fn forwarded_contradicts_if_it_names_another_scheme_than_the_one_that_counts() {
        let address = |text: &str| text.parse::<IpAddr>().ok();
        let proxies = Proxies::new(&["10.0.0.0/8".parse().unwrap()]);
        for (peer, forwarded, proto, is_contradicted, host) in [
            ("10.0.0.1", "for=1.1.1.1;proto=https;host=a", "http", true, Some("a")),
            ("10.0.0.1", "for=1.1.1.1;proto=http", "https", false, None),
            ("10.0.0.1", "for=1.1.1.1;proto=https", "https", false, None),
            ("10.0.0.1", "for=1.1.1.1", "https", false, None),
            ("192.0.2.1", "for=1.1.1.1;proto=https;host=a", "http", false, None),
        ] {
            let text = format!(
                "GET / HTTP/1.1\r\nHost: h\r\nForwarded: {forwarded}\r\nX-Forwarded-Proto: {proto}\r\n\r\n"
            );
            let (request, _) = http1::parse(text.as_bytes(), &Limits::DEFAULT).unwrap().unwrap();
            let sender = proxies.sender_of(address(peer), Scheme::Http, &request.head);
            assert_eq!(sender.is_contradicted, is_contradicted, "{forwarded} {proto}");
            let told = proxies.told_host(address(peer), &request.head);
            assert_eq!(told, host.map(str::as_bytes), "{forwarded}");
        }
    }
}
