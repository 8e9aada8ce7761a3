//! The servers behind this one, and a worker's connections to them.
//!
//! An [`Upstream`] has the servers of one route; all workers share it. [`Links`] are the connections of one
//! handler of one worker: each serves one request at a time, and is kept for the next one if the server
//! lets it persist.

#[cfg_attr(not(test), expect(dead_code, reason = "upstreams do not use it yet"))]
mod balance;
#[cfg_attr(not(test), expect(dead_code, reason = "upstreams do not use it yet"))]
mod health;
mod link;
#[cfg_attr(not(test), expect(dead_code, reason = "upstreams do not use it yet"))]
mod names;
#[cfg_attr(not(test), expect(dead_code, reason = "upstreams do not use it yet"))]
mod retries;

use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;
use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;
use ring::{Completion, Key, Ring, Slab, Time, Token};

use self::link::Tokens;
pub(crate) use self::link::{Link, LinkEvent};
use crate::config::{self, GatewayRules, ServerAddress, ServerUrl};

/// Links to one server that a worker keeps. Beyond it, the one that was kept for longest is closed.
const KEPT_MAX: usize = 256;
/// A link that was kept for this time is closed. Servers close theirs after 5 s (Node, Apache) to 75 s
/// (nginx); a request that meets a closed one is tried again where that is safe.
const KEPT_TIME_MAX: Duration = Duration::from_secs(30);

/// The servers of a route.
#[derive(Debug)]
pub(crate) struct Upstream {
    pub(crate) servers: Vec<Arc<Server>>,
    pub(crate) rules: GatewayRules,
    /// The number of requests so far.
    count: AtomicU64,
}

/// A server behind this one.
#[derive(Debug)]
pub(crate) struct Server {
    /// Differs from those of all other servers.
    id: u64,
    pub(crate) url: ServerUrl,
    /// Its name for the operator.
    pub(crate) name: String,
    /// Its address, if that is known.
    address: Option<ring::Address>,
}

/// The links of one handler of a worker.
#[derive(Debug)]
pub(crate) struct Links {
    links: Slab<Link>,
    /// The links that wait for a request, by server. The one that was kept last is at the end.
    kept: HashMap<u64, Vec<Key>, RandomState>,
    /// The kinds of its tokens: for what is received, and for what can be sent.
    kinds: (Token, Token),
}

impl Upstream {
    /// The servers of a route.
    pub(crate) fn new(config: &config::Upstream) -> Arc<Self> {
        let servers = config.servers.iter().map(|url| Arc::new(Server::new(url))).collect();
        Arc::new(Self { servers, rules: config.rules.clone(), count: AtomicU64::new(0) })
    }

    /// The path that the servers have in place of that of the route, if they have one.
    pub(crate) fn path(&self) -> Option<&str> {
        self.servers.first().and_then(|server| server.url.path.as_deref())
    }

    /// The server for the next request.
    pub(crate) fn next(&self) -> &Arc<Server> {
        let count = self.count.fetch_add(1, Ordering::Relaxed);
        let index = usize::try_from(count % self.servers.len() as u64).unwrap_or_default();
        &self.servers[index]
    }

    /// Returns whether this is what a configuration says.
    pub(crate) fn is_same(&self, config: &config::Upstream) -> bool {
        self.rules == config.rules
            && self.servers.iter().map(|server| &server.url).eq(&config.servers)
    }
}

impl Server {
    fn new(url: &ServerUrl) -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let address = match &url.address {
            ServerAddress::Ip(address) => Some(ring::Address::from(*address)),
            ServerAddress::Unix(path) => ring::Address::unix(path).ok(),
            ServerAddress::Host(..) => None,
        };
        let id = COUNT.fetch_add(1, Ordering::Relaxed);
        Self { id, url: url.clone(), name: url.to_string(), address }
    }
}

impl Links {
    /// No links. Their operations have these kinds of tokens.
    pub(crate) fn new(receive: Token, writable: Token) -> Self {
        Self { links: Slab::new(), kept: HashMap::default(), kinds: (receive, writable) }
    }

    /// Begins to connect to a server for a request; `None` if its address is not known.
    pub(crate) fn connect(
        &mut self,
        ring: &mut Ring,
        server: &Arc<Server>,
        user: Key,
    ) -> Option<Key> {
        let address = server.address.clone()?;
        let kinds = self.kinds;
        Some(
            self.links.insert_with(|key| {
                Link::connect(ring, server, address, user, Tokens::of(kinds, key))
            }),
        )
    }

    /// Takes a link to a server that was kept.
    pub(crate) fn take_kept(&mut self, server: &Server, user: Key) -> Option<Key> {
        let key = self.kept.get_mut(&server.id)?.pop()?;
        let link = self.links.get_mut(key).expect("links that are kept exist");
        link.user = Some(user);
        Some(key)
    }

    /// Keeps a link for another request.
    pub(crate) fn keep(&mut self, ring: &mut Ring, key: Key, now: Time) {
        let link = self.links.get_mut(key).expect("the link of a request exists");
        (link.user, link.kept_since) = (None, now);
        link.served += 1;
        // The end of the connection is to be seen.
        link.set_receiving(ring, true);
        let kept = self.kept.entry(link.server.id).or_default();
        kept.push(key);
        if kept.len() > KEPT_MAX {
            let oldest = kept.remove(0);
            self.close(ring, oldest);
        }
    }

    /// Closes a link.
    pub(crate) fn close(&mut self, ring: &mut Ring, key: Key) {
        if let Some(mut link) = self.links.remove(key) {
            link.close(ring);
        }
    }

    /// Closes the links that were kept for too long.
    pub(crate) fn tidy(&mut self, ring: &mut Ring, now: Time) {
        let Self { links, kept, .. } = self;
        kept.retain(|_, keys| {
            keys.retain(|key| {
                let Some(link) = links.get_mut(*key) else { return false };
                let is_young = now.since(link.kept_since) < KEPT_TIME_MAX;
                if !is_young && let Some(mut link) = links.remove(*key) {
                    link.close(ring);
                }
                is_young
            });
            !keys.is_empty()
        });
    }

    /// A link.
    pub(crate) fn get_mut(&mut self, key: Key) -> Option<&mut Link> {
        self.links.get_mut(key)
    }

    /// Returns whether there are no links.
    pub(crate) fn is_empty(&self) -> bool {
        self.links.is_empty()
    }

    /// Takes a completion of a link; returns the request that it concerns, and what has happened to the link. A
    /// link that is kept is closed by whatever happens to it.
    pub(crate) fn handle(
        &mut self,
        ring: &mut Ring,
        key: Key,
        completion: Completion,
    ) -> Option<(Key, LinkEvent)> {
        let tokens = Tokens::of(self.kinds, key);
        // It may have been closed since.
        let link = self.links.get_mut(key)?;
        let event = link.handle(ring, completion, tokens)?;
        if let Some(user) = link.user {
            return Some((user, event));
        }
        if !matches!(event, LinkEvent::Writable) {
            let id = link.server.id;
            if let Some(kept) = self.kept.get_mut(&id) {
                kept.retain(|other| *other != key);
            }
            self.close(ring, key);
        }
        None
    }
}
