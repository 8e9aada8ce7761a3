//! The listeners of a configuration: their numbers, their hosts, and their demands on clients.

use core::net::SocketAddr;
use std::collections::HashMap;
use std::path::Path;

use http::Head;

use super::Snapshot;
use config::site::{Hosts, SiteId};
use config::{Access, Action, Address, Config, Limits, Listen, Route, Site};

/// A listener in the form for connections.
#[derive(Debug)]
pub(in crate::serving) struct Listener {
    pub(in crate::serving) hosts: Hosts,
    admission: Admission,
}

/// The demands of a listener on each client that connects.
#[derive(Clone, Copy, Debug, Default)]
pub struct Admission {
    /// True if the client's address is needed.
    pub asks: bool,
    /// True if the client's connections are counted.
    pub counts: bool,
    /// The number of a client's connections beyond which further ones are closed immediately. `Some` if all routes have
    /// a limit: no route would answer, and clients that send no request must not take the slots of others.
    pub connections_max: Option<u32>,
    /// True if clients without an address are on Unix sockets; otherwise such clients have gone.
    pub is_unix: bool,
    /// True if proxies send a header of the PROXY protocol.
    pub proxy_protocol: bool,
    /// True if clients may speak HTTP/2.
    pub(crate) http2: bool,
    /// True if a route can take tunnels: one whose requests are passed on to servers.
    pub(crate) tunnels: bool,
}

impl Admission {
    /// The demands on clients of a listener, made of all its sites and their routes. `believes`: there are proxies that
    /// name their clients.
    fn new<'s>(
        listen: &Listen,
        believes: bool,
        sites: impl Iterator<Item = &'s Site> + Clone,
    ) -> Self {
        let routes = sites.clone().flat_map(|site| &site.routes);
        let of_routes = routes.clone().map(|route| (&route.access, &route.limits));
        let all = sites.clone().map(|site| (&site.access, &site.limits)).chain(of_routes);
        let needs = |(access, limits): (&Access, &Limits)| {
            let has_limit = limits.connections.is_some() || limits.requests.is_some();
            has_limit || *access != Access::default()
        };
        // An upstream gets the client's address.
        let is_told = |route: &Route| matches!(route.action, Action::Proxy(_));
        let of_sites = sites.filter_map(|site| site.limits.connections);
        let limits: Option<Vec<u32>> =
            routes.clone().map(|route| route.limits.connections).collect();
        let most = limits.and_then(|limits| limits.into_iter().chain(of_sites).max());
        Self {
            asks: listen.proxy_protocol
                || believes
                || all.clone().any(needs)
                || routes.clone().any(is_told),
            counts: all.clone().any(|(_, limits)| limits.connections.is_some()),
            // Connections between the limit and this number get a response with the reason.
            connections_max: most.map(|most| most.saturating_mul(2)),
            is_unix: matches!(listen.address, Address::Unix(_)),
            proxy_protocol: listen.proxy_protocol,
            http2: listen.http2,
            tunnels: routes.clone().any(is_told),
        }
    }
}

impl Snapshot {
    pub(super) fn add_listeners(
        &mut self,
        config: &Config,
        numbers: &HashMap<Endpoint<'_>, u32>,
        next: usize,
    ) -> Result<(), String> {
        let mut by_endpoint: HashMap<Endpoint<'_>, Vec<usize>> = HashMap::new();
        self.prepared.resize_with(next, || None);
        for (index, site) in config.sites.iter().enumerate() {
            for listen in &site.listen {
                let endpoint = Endpoint::of(&listen.address);
                let sites = by_endpoint.entry(endpoint).or_default();
                if sites.is_empty() {
                    let number = numbers.get(&endpoint).copied();
                    let number = number.map_or(self.prepared.len(), |number| number as usize);
                    if number == self.prepared.len() {
                        self.prepared.push(None);
                    }
                    let number = u32::try_from(number).expect("fewer listeners than 2³²");
                    self.listeners.push((number, listen.clone()));
                }
                sites.push(index);
            }
        }
        for (number, listen) in &self.listeners {
            let address = &listen.address;
            let sites = &by_endpoint[&Endpoint::of(address)];
            let chosen = sites.iter().find(|index| config.sites[**index].is_default);
            let mut hosts = Hosts::new(SiteId::new(*chosen.unwrap_or(&sites[0])));
            for index in sites {
                for host in &config.sites[*index].hosts {
                    let added = hosts.add(host, SiteId::new(*index), address.port());
                    added.map_err(|error| format!("{error} among the sites of {address}"))?;
                }
            }
            let sites = sites.iter().map(|index| &config.sites[*index]);
            let admission = Admission::new(listen, !self.proxies.is_empty(), sites);
            self.prepared[*number as usize] = Some(Listener { hosts, admission });
        }
        Ok(())
    }

    /// The listeners with their numbers, without repetitions.
    #[must_use]
    pub fn listeners(&self) -> &[(u32, Listen)] {
        &self.listeners
    }

    /// The demands on clients of a listener.
    pub fn admission(&self, listener: u32) -> Admission {
        self.listener(listener).map_or_else(Admission::default, |listener| listener.admission)
    }

    /// A listener; `None` if the configuration does not have it.
    #[inline]
    pub(in crate::serving) fn listener(&self, number: u32) -> Option<&Listener> {
        self.prepared.get(number as usize)?.as_ref()
    }

    /// Returns true if a site of a listener lists the host of a request.
    pub(crate) fn lists(&self, listener: u32, head: &Head<'_>) -> bool {
        let listener = self.listener(listener);
        let host = head.host().unwrap_or_default();
        listener.is_some_and(|one| one.hosts.listed(host, one.hosts.site(head)).is_some())
    }

    /// The address of a listener.
    pub(crate) fn address(&self, listener: u32) -> Option<&Address> {
        let found = self.listeners.iter().find(|(number, _)| *number == listener);
        found.map(|(_, listen)| &listen.address)
    }
}

/// The address of a listener. Two listeners cannot have the same one, also if the rights of a Unix socket differ.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Endpoint<'a> {
    Ip(SocketAddr),
    Unix(&'a Path),
}

impl<'a> Endpoint<'a> {
    pub(super) fn of(address: &'a Address) -> Self {
        match address {
            Address::Ip(address) => Self::Ip(*address),
            Address::Unix(socket) => Self::Unix(&socket.path),
        }
    }
}
