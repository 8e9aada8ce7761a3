//! The settings with which a listener accepts connections.
//!
//! A handshake has two steps. The client's first message names a server, and so a site. The site has a `ServerConfig` of its
//! own, with its profile, its rules for clients and its certificates, and the rest of the handshake goes by it. The site is
//! chosen by the hosts of the sites, just as for a request; its certificate by the names in its certificates.

use core::fmt;
use core::net::Ipv4Addr;
use std::collections::HashMap;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::version::{TLS12, TLS13};

use crate::clients::Clients;
use crate::fault::{Cause, Fault};
use crate::names::{Names, Reach, is_name};
use crate::pair::Pair;
use crate::provider::provider;
use crate::secrets::Told;
use crate::tickets::{Profile, Rules, TicketKeys};
use crate::x509::SubjectName;

/// The name of HTTP/2 among the protocols of a handshake (ALPN).
pub(crate) const HTTP2: &[u8] = b"h2";
/// The protocols that a client may choose, the best first.
const PROTOCOLS: [&[u8]; 2] = [HTTP2, b"http/1.1"];

/// The settings of a site of a listener.
#[derive(Clone, Debug)]
pub struct SiteTls {
    /// The hosts of the site: names, wildcards for any depth, addresses, which no client names in a handshake.
    pub hosts: Vec<String>,
    /// At least one. A client gets the first that covers the name of the server and that it can verify, in the order of
    /// [`Algorithm`](crate::Algorithm); the pairs with the first name of the first pair if none covers it.
    pub pairs: Vec<Arc<Pair>>,
    /// The versions of TLS.
    pub profile: Profile,
    /// The certificates of clients; none are asked for by default.
    pub clients: Option<Clients>,
    /// True if clients may choose HTTP/2.
    pub http2: bool,
}

/// What a listener needs to accept connections. It is cheap to clone, and does not change: a reload makes another one.
#[derive(Clone)]
pub struct Acceptor(Arc<Sites>);

#[derive(Debug)]
struct Sites {
    /// The indexes of sites by their hosts.
    hosts: Names<usize>,
    /// The same for hosts that are no names: addresses.
    addresses: HashMap<String, usize>,
    /// The index of the site for all other names.
    default: usize,
    sites: Vec<Site>,
}

#[derive(Debug)]
struct Site {
    config: Arc<ServerConfig>,
    rules: Rules,
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
    /// Makes the settings of all sites. `default` is the index of the site for clients that name no server, or one that no
    /// site has. If two sites have the same host, it belongs to the first.
    ///
    /// # Errors
    ///
    /// [`Cause::NoPair`] if a site has no pair; [`Cause::Settings`] if the system has no random numbers.
    ///
    /// # Panics
    ///
    /// If there is no site with the index `default`.
    pub fn new(sites: Vec<SiteTls>, default: usize, tickets: &TicketKeys) -> Result<Self, Fault> {
        assert!(default < sites.len(), "a default site");
        let mut hosts = Names::new(Reach::AnyDepth, Vec::new());
        let mut addresses = HashMap::new();
        for (index, site) in sites.iter().enumerate() {
            for host in &site.hosts {
                if hosts.add(host, index).is_err() {
                    addresses.entry(host.to_ascii_lowercase()).or_insert(index);
                }
            }
        }
        let sites = sites.into_iter().map(|site| Site::new(site, tickets));
        let sites = sites.collect::<Result<_, _>>()?;
        Ok(Self(Arc::new(Sites { hosts, addresses, default, sites })))
    }

    /// Returns the settings for a client, by its first message.
    pub fn choose(&self, hello: &ClientHello<'_>) -> Chosen {
        self.choose_by_name(hello.server_name())
    }

    /// Returns the settings for a client that names a server, or none.
    pub fn choose_by_name(&self, server_name: Option<&str>) -> Chosen {
        let site = self.0.hosts.find(server_name).next().copied().unwrap_or(self.0.default);
        Chosen { config: self.0.sites[site].config.clone(), site }
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

    /// Returns true if a client whose handshake chose the site `shown` may send requests for a host: a name, an address, or
    /// none, which is also written as an empty host. The site of any other host is chosen by the request and not known here,
    /// so it must not differ from any.
    pub(crate) fn permits(&self, shown: usize, host: Option<&str>) -> bool {
        let host = host.filter(|host| !host.is_empty());
        let asked = match host {
            Some(host) if is_address(host) => {
                self.0.addresses.get(&host.to_ascii_lowercase()).copied().unwrap_or(self.0.default)
            }
            Some(host) if !is_name(host) => {
                return (0..self.0.sites.len()).all(|site| self.is_interchangeable(shown, site));
            }
            name => self.choose_by_name(name).site,
        };
        self.is_interchangeable(shown, asked)
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

/// Returns true if a host is an address: four numbers, or an address in brackets (RFC 3986 §3.2.2). No wildcard covers it.
fn is_address(host: &str) -> bool {
    host.parse::<Ipv4Addr>().is_ok() || host.starts_with('[') && host.ends_with(']')
}

impl fmt::Debug for Acceptor {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Acceptor").field("hosts", &self.0.hosts).finish_non_exhaustive()
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
        let mut config = builder.with_cert_resolver(Arc::new(Certificates::new(pairs)));
        let protocols = if http2 { &PROTOCOLS[..] } else { &PROTOCOLS[1..] };
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        // The records of a connection are sealed by the transport, which has to know its keys, and those that follow.
        config.enable_secret_extraction = true;
        config.key_log = Arc::new(Told);
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.ticketer = tickets.of(rules)?;
        Ok(Self { config: Arc::new(config), rules, certificates })
    }
}

/// The pairs of a site, by the names in their certificates.
#[derive(Debug)]
struct Certificates(Names<Arc<Pair>>);

impl Certificates {
    fn new(mut pairs: Vec<Arc<Pair>>) -> Self {
        let first = pairs[0].clone();
        // Stable: of two pairs of one kind, the first stays the first.
        pairs.sort_by_key(|pair| pair.algorithm());
        // Clients that name no server, or another one, get a pair beside the first, too, if they can verify that better.
        let is_beside = |pair: &Arc<Pair>| match first.names().first() {
            Some(name) => pair.names().contains(name),
            None => Arc::ptr_eq(pair, &first),
        };
        let default = pairs.iter().filter(|pair| is_beside(pair)).cloned().collect();
        let mut names = Names::new(Reach::OneLabel, default);
        for pair in &pairs {
            for name in pair.names() {
                if let SubjectName::Dns(name) = name {
                    // No client asks for a name of another form.
                    let _ = names.add(name, pair.clone());
                }
            }
        }
        Self(names)
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let schemes = hello.signature_schemes();
        let can_verify = |pair: &Arc<Pair>| pair.certified().key.choose_scheme(schemes).is_some();
        self.0.choose(hello.server_name(), can_verify).map(|pair| pair.certified())
    }
}

#[cfg(test)]
mod tests;
