//! The configurations that a worker serves at the same time: the present one, and those of removed listeners.

use core::cell::RefCell;
use core::net::IpAddr;
use std::collections::BTreeMap;
use std::rc::Rc;

use config::site::SiteId;
use http::{Head, Target, path};
use logs::Recording;
use session::client::ClientAddress;
use session::context::{Demands, SiteRules};
use session::forwarded::Scheme;

use super::{Destination, Serving};

/// The configuration that a worker serves now, and the earlier ones for the connections of listeners that are gone.
#[derive(Debug)]
pub struct Servings {
    now: RefCell<Rc<Serving>>,
    /// Listeners that the configuration does not have any more, by their numbers.
    removed: RefCell<BTreeMap<u32, Removed>>,
}

/// A listener that the configuration does not have any more, while connections of it are open. Their
/// requests are for the sites of the configuration that had it.
#[derive(Debug)]
struct Removed {
    serving: Rc<Serving>,
    /// The number of its connections.
    connections: usize,
}

impl Servings {
    /// Returns the first configuration.
    pub fn new(serving: Serving) -> Self {
        Self { now: RefCell::new(Rc::new(serving)), removed: RefCell::default() }
    }

    /// The configuration that is served now.
    pub fn now(&self) -> Rc<Serving> {
        Rc::clone(&self.now.borrow())
    }

    /// Serves another configuration from now on.
    pub(crate) fn replace(&self, serving: Rc<Serving>) {
        self.now.replace(serving);
    }

    /// Returns the serving and the site for a request, by its listener and its host.
    #[inline]
    pub(crate) fn of(&self, listener: u32, head: &Head<'_>) -> (Rc<Serving>, SiteId) {
        let now = self.now.borrow();
        match now.site(listener, head) {
            Some(site) => (Rc::clone(&now), site),
            None => self.of_removed(listener, head),
        }
    }

    /// Does the same for a request that no handler answers, or for bytes that are no request.
    fn of_refused(&self, listener: u32, head: Option<&Head<'_>>) -> (Rc<Serving>, SiteId) {
        match head {
            Some(head) => self.of(listener, head),
            None => {
                let serving = self.at(listener);
                // A network of another kind than the kernel's has no listeners.
                let site = serving.default_site(listener).unwrap_or(SiteId::FIRST);
                (serving, site)
            }
        }
    }

    #[cold]
    fn of_removed(&self, listener: u32, head: &Head<'_>) -> (Rc<Serving>, SiteId) {
        let serving = self.at(listener);
        // A network of another kind than the kernel's has no listeners.
        let site = serving.site(listener, head).unwrap_or(SiteId::FIRST);
        (serving, site)
    }

    /// The place where a request is recorded whose route makes no response any more, because its client has left.
    pub fn recording_of_route(&self, listener: u32, head: &Head<'_>) -> Option<Rc<Recording>> {
        let (serving, site) = self.of(listener, head);
        let mut name = Vec::new();
        let destination = match head.target {
            Target::Origin { path, .. } if path::normalize_rooted(path, &mut name).is_ok() => {
                serving.destination(site, &name)
            }
            _ => Destination { site, route: None },
        };
        serving.recording(destination)
    }

    /// The serving of the connections of a listener.
    pub fn at(&self, listener: u32) -> Rc<Serving> {
        let removed = self.removed.borrow().get(&listener).map(|one| Rc::clone(&one.serving));
        removed.unwrap_or_else(|| self.now())
    }

    /// Notes that the configuration has a listener no more. Requests of its connections are for the sites of this one.
    pub fn remove(&self, listener: u32, serving: Rc<Serving>) {
        self.removed.borrow_mut().insert(listener, Removed { serving, connections: 0 });
    }

    /// Returns whether there are connections of listeners that were removed, or may be.
    pub fn has_removed(&self) -> bool {
        !self.removed.borrow().is_empty()
    }

    /// Returns whether a listener was removed.
    pub fn is_removed(&self, listener: u32) -> bool {
        self.removed.borrow().contains_key(&listener)
    }

    /// Counts a connection of a listener, if that was removed.
    pub fn enter_removed(&self, listener: u32) {
        if let Some(removed) = self.removed.borrow_mut().get_mut(&listener) {
            removed.connections += 1;
        }
    }

    /// Counts a connection of a listener no more, if that was removed.
    pub fn leave_removed(&self, listener: u32) {
        if let Some(removed) = self.removed.borrow_mut().get_mut(&listener) {
            removed.connections -= 1;
        }
    }

    /// Forgets removed listeners that have no connections and are not `open`.
    pub fn retain_removed(&self, is_open: impl Fn(u32) -> bool) {
        let mut removed = self.removed.borrow_mut();
        removed.retain(|listener, removed| removed.connections > 0 || is_open(*listener));
    }
}

impl SiteRules for Servings {
    fn recording(&self, listener: u32, head: Option<&Head<'_>>) -> Option<Rc<Recording>> {
        let (serving, site) = self.of_refused(listener, head);
        serving.recording(Destination { site, route: None })
    }

    fn trusts(&self, own: ClientAddress) -> bool {
        let now = self.now.borrow();
        let proxies = now.snapshot.proxies();
        !proxies.is_empty() && own.is_asked() && proxies.trusts(own.ip())
    }

    fn scheme(&self, own: Scheme, client: ClientAddress, head: &Head<'_>) -> Scheme {
        let now = self.now.borrow();
        let proxies = now.snapshot.proxies();
        if proxies.is_empty() || !client.is_asked() {
            return own;
        }
        proxies.told_scheme(client.ip(), head).unwrap_or(own)
    }

    fn speaks_http2(&self, listener: u32) -> bool {
        self.at(listener).snapshot.admission(listener).http2
    }

    fn takes_tunnels(&self, listener: u32) -> bool {
        self.at(listener).snapshot.admission(listener).tunnels
    }

    fn demands(&self, listener: u32, head: Option<&Head<'_>>) -> Demands {
        let (serving, site) = self.of_refused(listener, head);
        Demands {
            hsts: serving.hsts(site).cloned(),
            rules: serving.fields(Destination { site, route: None }).clone(),
            server_timing: serving.has_timing(Destination { site, route: None }),
        }
    }

    fn client(&self, own: ClientAddress, head: &Head<'_>) -> Option<IpAddr> {
        let now = self.now.borrow();
        let proxies = now.snapshot.proxies();
        if proxies.is_empty() || !own.is_asked() {
            return None;
        }
        proxies.client_of(own.ip(), head).ok()?
    }
}
