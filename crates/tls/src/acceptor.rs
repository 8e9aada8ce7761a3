//! The settings with which a listener accepts connections.
//!
//! A handshake has two steps. The client's first message names a server, and so a site. The site has a `ServerConfig` of its
//! own, with its profile, its rules for clients and its certificates, and the rest of the handshake goes by it. The site is
//! chosen by the function that chooses the sites of requests; its certificate by the names in its certificates.
//!
//! A client that connects to an address names no server (RFC 6066 §3). If the address may choose a site or a certificate, the
//! local address of the connection counts as the host: for the site, for the certificate, and for session tickets. rustls
//! would resume a session without a name at any address, so tickets of such a client are then sealed for its address.

use core::fmt;
use core::net::IpAddr;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::server::{ClientHello, NoServerSessionStorage, ProducesTickets, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::version::{TLS12, TLS13};

use crate::clients::Clients;
use crate::fault::{Cause, Fault};
use crate::names::Names;
use crate::pair::Pair;
use crate::provider::provider;
use crate::secrets::Told;
use crate::ticketer::Ticketer;
use crate::tickets::{Profile, Rules, TicketKeys};
use crate::x509::SubjectName;

/// The name of HTTP/2 among the protocols of a handshake (ALPN).
pub(crate) const HTTP2: &[u8] = b"h2";
/// The protocols that a client may choose, the best first.
const PROTOCOLS: [&[u8]; 2] = [HTTP2, b"http/1.1"];

/// The settings of a site of a listener.
#[derive(Clone, Debug)]
pub struct SiteTls {
    /// The hosts of the site: names, wildcards, addresses.
    pub hosts: Vec<String>,
    /// At least one. A client gets the first that covers the name of the server, or the address, and that it can verify, in
    /// the order of [`Algorithm`](crate::Algorithm). If none covers it, these are the pairs with the first name of the first
    /// pair.
    pub pairs: Vec<Arc<Pair>>,
    /// The versions of TLS.
    pub profile: Profile,
    /// The certificates of clients; none are asked for by default.
    pub clients: Option<Clients>,
    /// True if clients may choose HTTP/2.
    pub http2: bool,
}

/// Returns the index of the site for a host: a name or an address (of version 6 in brackets), with or without a port, or no
/// host. It is the function that chooses the sites of requests.
pub type SiteOf = dyn Fn(Option<&str>) -> usize + Send + Sync;

/// The settings that a listener needs to accept connections. It is cheap to clone, and does not change: a reload makes
/// another one.
#[derive(Clone)]
pub struct Acceptor(Arc<Sites>);

struct Sites {
    site_of: Box<SiteOf>,
    /// True if it matters to which address a client has connected.
    differ_by_address: bool,
    sites: Vec<Site>,
}

#[derive(Debug)]
struct Site {
    config: Arc<ServerConfig>,
    rules: Rules,
    keys: Arc<Ticketer>,
    pairs: Arc<Certificates>,
    /// The digests of its certificates, in order.
    certificates: Vec<[u8; 32]>,
}

/// The settings for a client.
#[derive(Clone, Debug)]
pub struct Chosen {
    /// The settings with which the handshake goes on.
    pub config: Arc<ServerConfig>,
    /// The index of the site, in the list that the acceptor was made of.
    pub site: usize,
}

impl Acceptor {
    /// Makes the settings of all sites, one of which `site_of` returns for each host.
    ///
    /// # Errors
    ///
    /// [`Cause::NoPair`] if a site has no pair; [`Cause::Settings`] if the system has no random numbers.
    pub fn new(
        sites: Vec<SiteTls>,
        site_of: Box<SiteOf>,
        tickets: &TicketKeys,
    ) -> Result<Self, Fault> {
        let mut hosts = sites.iter().flat_map(|site| &site.hosts);
        let sites_differ = sites.len() > 1 && hosts.any(|host| address_of(host).is_some());
        let is_address = |name: &SubjectName| matches!(name, SubjectName::Ip(_));
        let covers_address = |pair: &Arc<Pair>| pair.names().iter().any(is_address);
        let mut choices = sites.iter().map(|site| &site.pairs).filter(|pairs| pairs.len() > 1);
        let pairs_differ = choices.any(|pairs| pairs.iter().any(covers_address));
        let differ_by_address = sites_differ || pairs_differ;
        let sites = sites.into_iter().map(|site| Site::new(site, tickets));
        let sites = sites.collect::<Result<_, _>>()?;
        Ok(Self(Arc::new(Sites { site_of, differ_by_address, sites })))
    }

    /// Returns the settings for a client that names a server, or none.
    ///
    /// # Panics
    ///
    /// If the function that chooses sites returns an index that no site has.
    pub fn choose_by_name(&self, server_name: Option<&str>) -> Chosen {
        let site = self.site_of(server_name);
        Chosen { config: self.0.sites[site].config.clone(), site }
    }

    /// Returns the settings for a client that names no server and has connected to this address.
    ///
    /// # Panics
    ///
    /// As [`choose_by_name`](Self::choose_by_name).
    pub fn choose_by_address(&self, local: IpAddr) -> Chosen {
        let site = self.site_of(Some(&host_of(local)));
        Chosen { config: Arc::new(self.0.sites[site].config_at(local)), site }
    }

    /// Returns true if the address to which a client has connected may choose its settings.
    pub(crate) fn differs_by_address(&self) -> bool {
        self.0.differ_by_address
    }

    /// Returns the index of the site for a host, which may have a port, or for none.
    pub(crate) fn site_of(&self, host: Option<&str>) -> usize {
        (self.0.site_of)(host)
    }

    /// Returns true if clients of a site are asked for certificates.
    pub(crate) fn asks_for_certificates(&self, site: usize) -> bool {
        let (_, clients) = self.0.sites[site].rules;
        clients.is_some()
    }

    /// Returns true if both are of the same configuration.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Returns true if a site has the profile and the rules for clients of a site of another configuration.
    pub(crate) fn has_rules_of(&self, site: usize, other: &Self, of: usize) -> bool {
        self.0.sites[site].rules == other.0.sites[of].rules
    }

    /// Returns true if a client whose handshake chose the site `shown` may send requests for a host, which may have a port, or
    /// for none.
    pub(crate) fn permits(&self, shown: usize, host: Option<&str>) -> bool {
        self.is_interchangeable(shown, self.site_of(host))
    }

    /// Returns true if a client whose handshake chose the site `shown` may send requests to the site `asked`: both have the
    /// same certificates, the same profile and the same rules for clients. If they differ, such a request is to be answered
    /// 421 (RFC 9110 §15.5.20).
    ///
    /// # Panics
    ///
    /// If there is no site with one of these indexes.
    pub fn is_interchangeable(&self, shown: usize, asked: usize) -> bool {
        let (shown, asked) = (&self.0.sites[shown], &self.0.sites[asked]);
        shown.rules == asked.rules && shown.certificates == asked.certificates
    }
}

/// The address as the host of a URL (RFC 3986 §3.2.2). A client of a socket for both versions has an address of version 4 in
/// the form of version 6.
pub(crate) fn host_of(address: IpAddr) -> String {
    match address.to_canonical() {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => format!("[{address}]"),
    }
}

/// The address that a host of a site is; `None` for names.
fn address_of(host: &str) -> Option<IpAddr> {
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    bare.unwrap_or(host).parse().ok()
}

impl fmt::Debug for Acceptor {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Acceptor").field("sites", &self.0.sites.len()).finish_non_exhaustive()
    }
}

impl Site {
    fn new(site: SiteTls, tickets: &TicketKeys) -> Result<Self, Fault> {
        let SiteTls { hosts, pairs, profile, clients, http2 } = site;
        if pairs.is_empty() {
            let site = hosts.into_iter().next().unwrap_or_else(|| "*".to_owned());
            return Err(Fault::new(None, Cause::NoPair { site }));
        }
        let versions = match profile {
            Profile::Modern => &[&TLS13][..],
            Profile::Intermediate => &[&TLS13, &TLS12],
        };
        let rules = (profile, clients.as_ref().map(Clients::digest));
        let builder = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(versions)
            .map_err(|error| Fault::new(None, Cause::Settings(error.to_string())))?;
        let builder = match &clients {
            Some(clients) => builder.with_client_cert_verifier(clients.verifier()),
            None => builder.with_no_client_auth(),
        };
        let certificates = pairs.iter().map(|pair| pair.digest()).collect();
        let pairs = Arc::new(Certificates::new(pairs));
        let mut config = builder.with_cert_resolver(pairs.clone());
        let protocols = if http2 { &PROTOCOLS[..] } else { &PROTOCOLS[1..] };
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        // The records of a connection are sealed by the transport, which has to know its keys, and those that follow.
        config.enable_secret_extraction = true;
        config.key_log = Arc::new(Told);
        config.session_storage = Arc::new(NoServerSessionStorage {});
        let keys = tickets.of(rules)?;
        config.ticketer = keys.clone();
        Ok(Self { config: Arc::new(config), rules, keys, pairs, certificates })
    }

    /// The settings for clients that have connected to an address and name no server.
    fn config_at(&self, address: IpAddr) -> ServerConfig {
        let (pairs, keys) = (self.pairs.clone(), self.keys.clone());
        let mut config = ServerConfig::clone(&self.config);
        config.cert_resolver = Arc::new(AtAddress { address: address.to_canonical(), pairs });
        config.ticketer = Arc::new(TicketsAt { host: host_of(address).into_bytes(), keys });
        config
    }
}

/// The pairs of a site.
#[derive(Debug)]
struct Certificates {
    /// The best first.
    pairs: Vec<Arc<Pair>>,
    /// The same by the names in their certificates.
    by_name: Names<Arc<Pair>>,
}

impl Certificates {
    fn new(mut pairs: Vec<Arc<Pair>>) -> Self {
        let first = pairs[0].clone();
        // Stable: of two pairs of one kind, the first stays the first.
        pairs.sort_by_key(|pair| pair.algorithm());
        // Clients that name no server, or another one, get a pair other than the first, too, if they can verify that
        // better.
        let is_beside = |pair: &Arc<Pair>| match first.names().first() {
            Some(name) => pair.names().contains(name),
            None => Arc::ptr_eq(pair, &first),
        };
        let default = pairs.iter().filter(|pair| is_beside(pair)).cloned().collect();
        let mut by_name = Names::new(default);
        for pair in &pairs {
            for name in pair.names() {
                if let SubjectName::Dns(name) = name {
                    // No client asks for a name of another form.
                    let _ = by_name.add(name, pair.clone());
                }
            }
        }
        Self { pairs, by_name }
    }
}

/// Returns true if a client can verify the signatures of a pair.
fn can_verify(hello: &ClientHello<'_>, pair: &Pair) -> bool {
    pair.certified().key.choose_scheme(hello.signature_schemes()).is_some()
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let pair = self.by_name.choose(hello.server_name(), |pair| can_verify(&hello, pair));
        pair.map(|pair| pair.certified())
    }
}

/// The pairs of a site for clients that have connected to an address.
#[derive(Debug)]
struct AtAddress {
    address: IpAddr,
    pairs: Arc<Certificates>,
}

impl ResolvesServerCert for AtAddress {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let name = SubjectName::Ip(self.address);
        let mut pairs = self.pairs.pairs.iter();
        let covers = |pair: &&Arc<Pair>| pair.names().contains(&name) && can_verify(&hello, pair);
        match pairs.find(covers) {
            Some(pair) => Some(pair.certified()),
            None => self.pairs.resolve(hello),
        }
    }
}

/// The tickets of clients that have connected to an address. They are good for clients of that address.
#[derive(Debug)]
struct TicketsAt {
    /// The address as a host.
    host: Vec<u8>,
    keys: Arc<Ticketer>,
}

impl ProducesTickets for TicketsAt {
    fn enabled(&self) -> bool {
        self.keys.enabled()
    }

    fn lifetime(&self) -> u32 {
        self.keys.lifetime()
    }

    fn encrypt(&self, state: &[u8]) -> Option<Vec<u8>> {
        self.keys.seal(&self.host, state)
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        self.keys.open(&self.host, ticket)
    }
}

#[cfg(test)]
mod tests;
