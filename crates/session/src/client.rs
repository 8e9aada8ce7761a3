//! The client of a connection or a request: its address, as access rules, limits and logs know it.

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
    /// The address; `None` for a Unix socket, and for a peer that had gone when it was asked for.
    pub address: Option<IpAddr>,
    /// The name in logs.
    pub name: Box<str>,
    /// Some if the client's connections are counted.
    pub counted: Option<Counted>,
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

    /// Returns whether no proxy is believed.
    pub fn is_empty(&self) -> bool {
        !self.unix && self.addresses == AddressSet::default()
    }

    /// Returns whether a peer with this address is believed; `None` is one on a Unix socket.
    #[inline]
    pub fn trusts(&self, peer: Option<IpAddr>) -> bool {
        peer.map_or(self.unix, |address| self.addresses.contains(address))
    }

    /// Returns the client of a request, on a connection of this client: another one if that is a proxy which
    /// is believed, and names it.
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

    /// Returns the scheme that the client of a request has asked for, on a connection of this client, if that is a proxy
    /// which is believed, and says it. What others say is nothing.
    pub fn scheme_of(&self, connection: Option<IpAddr>, head: &Head<'_>) -> Option<Scheme> {
        if !self.trusts(connection) {
            return None;
        }
        let trusts = |address| self.addresses.contains(address);
        let (forwarded, others) = (lines(head, b"Forwarded"), head.lines(Field::XForwardedFor));
        forwarded::scheme(forwarded, others, lines(head, b"X-Forwarded-Proto"), trusts)
    }
}

/// The values of all lines of a field.
fn lines<'a>(head: &Head<'a>, name: &'static [u8]) -> impl Iterator<Item = &'a [u8]> {
    let named = head.fields().filter(move |(found, _)| found.eq_ignore_ascii_case(name));
    named.map(|(_, value)| value)
}
