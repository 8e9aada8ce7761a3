//! The upstreams, and a worker's connections to their servers.
//!
//! An [`Upstream`] has the servers of one route; all workers share it. [`Links`] are the connections of one handler of
//! one worker. Each link serves one request at a time, and is kept for the next one if the server lets it persist.
//!
//! A link is kept if no bytes are left on it, and none in its socket after a pulled response. If a request may be sent
//! again, the first 64 KiB of its body are held until the response begins, and its client is charged for them.

#![forbid(unsafe_code)]

mod balance;
pub mod checks;
mod choice;
mod health;
mod link;
pub mod names;
pub mod retries;
mod secure;
mod steps;

use core::net::{IpAddr, SocketAddr};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use core::time::Duration;
use std::collections::HashMap;
use std::io;
use std::rc::Rc;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use foldhash::fast::RandomState;
use ring::{Completion, Device, Key, Ring, Slab, Time, Token};
use sendfile::Account;
use tls::{ClientBuffers, ServerName, SharedClientSettings};

pub use self::balance::ServerSet;
use self::choice::{Choices, Numbers};
pub use self::choice::{Chosen, Cost, Try};
pub use self::health::Change;
use self::health::Health;
pub use self::link::{Link, LinkEvent};
use self::link::{Tokens, Usage};
use self::names::{Name, Names, Resolved};
pub use self::secure::Received;
use self::steps::Steps;
use config::{self, Balance, GatewayRules, HashBy, Protocol, ServerAddress, ServerUrl};
use metrics::{ServerNumbers, UPSTREAM_BOUNDS, UpstreamHandshakes, UpstreamTimes};

/// Links to one server that a worker keeps. Beyond it, the one that was kept for longest is closed.
const KEPT_MAX: usize = 256;
/// A link that was kept for this time is closed. Servers close theirs after 5 s (Node, Apache) to 75 s
/// (nginx); a request that meets a closed one is tried again where that is safe.
const KEPT_TIME_MAX: Duration = Duration::from_secs(30);

/// The servers of a route.
#[derive(Debug)]
pub struct Upstream {
    /// A number that no other upstream has.
    id: u64,
    /// Its site and path, for the operator.
    pub name: String,
    urls: Vec<ServerUrl>,
    sources: Vec<Source>,
    /// The limits and rules of exchanges with its servers.
    pub rules: GatewayRules,
    /// The settings of connections to those of its servers that speak TLS.
    tls: OnceLock<Arc<SharedClientSettings>>,
    /// True once the failure of the buffers' disk was reported to the operator.
    pub is_buffer_reported: AtomicBool,
}

/// The servers of one URL.
#[derive(Clone, Debug)]
enum Source {
    One(Arc<One>),
    /// One server for each address of a name.
    Named(Arc<Named>),
}

/// An address, and its server.
#[derive(Debug)]
struct One {
    url: ServerUrl,
    address: Option<ring::Address>,
    /// True if others had requests before it was added.
    joins: bool,
    /// Made when it is first wanted: this is when it joins the others.
    server: OnceLock<Arc<Server>>,
}

/// A name, and its servers.
#[derive(Debug)]
struct Named {
    url: ServerUrl,
    /// True if other servers had requests before it was added.
    joins: bool,
    name: Name,
    /// Its addresses, as soon as something resolves it.
    resolved: OnceLock<Arc<Resolved>>,
    found: Mutex<Vec<(SocketAddr, Arc<Server>)>>,
}

/// A server of an upstream.
#[derive(Debug)]
pub struct Server {
    /// A number that no other server has.
    id: u64,
    /// The address that the configuration has for it.
    pub url: ServerUrl,
    /// Its name for the operator.
    pub name: String,
    /// Its address, if it is known.
    address: Option<ring::Address>,
    /// The TLS that it speaks.
    tls: Option<ServerTls>,
    health: Arc<Health>,
    numbers: Numbers,
}

/// The TLS of a server.
#[derive(Debug)]
struct ServerTls {
    settings: Arc<SharedClientSettings>,
    /// The name that its certificate must have.
    name: ServerName,
}

impl ServerTls {
    /// The TLS of a server with this URL; `None` if it speaks none, or if there are no settings for it.
    fn new(url: &ServerUrl, upstream: &Upstream) -> Option<Self> {
        let of_url = url.tls_name()?;
        let name = ServerName::new(names_of(&upstream.rules).unwrap_or(&of_url))?;
        Some(Self { settings: upstream.tls()?.clone(), name })
    }
}

impl Server {
    /// Counts a response, which has begun after this time.
    pub fn note_response(&self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let bucket = UPSTREAM_BOUNDS.iter().position(|(bound, _)| nanos <= *bound);
        // Other memory does not depend on these numbers, so relaxed order is enough.
        let bucket = bucket.unwrap_or(UPSTREAM_BOUNDS.len());
        self.numbers.times[bucket].fetch_add(1, Ordering::Relaxed);
        self.numbers.time_sum.fetch_add(nanos, Ordering::Relaxed);
    }

    /// Counts a handshake: `true` if it has resumed a session, `None` if it has failed.
    fn note_handshake(&self, is_resumed: Option<bool>) {
        let index = is_resumed.map_or(2, usize::from);
        self.numbers.handshakes[index].fetch_add(1, Ordering::Relaxed);
    }

    fn handshakes(&self) -> UpstreamHandshakes {
        let [full, resumed, failed] =
            self.numbers.handshakes.each_ref().map(|count| count.load(Ordering::Relaxed));
        UpstreamHandshakes { full, resumed, failed }
    }

    fn times(&self) -> UpstreamTimes {
        let counts = self.numbers.times.each_ref().map(|count| count.load(Ordering::Relaxed));
        UpstreamTimes { counts, sum: self.numbers.time_sum.load(Ordering::Relaxed) }
    }
}

/// The links of one handler of a worker.
#[derive(Debug)]
pub struct Links {
    links: Slab<Link>,
    /// The links that wait for a request, by server. The one that was kept last is at the end.
    kept: HashMap<u64, Vec<Key>, RandomState>,
    choices: Choices,
    /// The handshakes with servers.
    steps: Steps,
    buffers: Rc<ClientBuffers>,
    /// The kinds of its tokens: for receiving, and for sending.
    kinds: (Token, Token),
}

/// Something that has happened to a link.
#[derive(Debug)]
pub enum LinkNews {
    /// An event, for the request that has the link.
    Event(Key, LinkEvent),
    /// This server sent bytes through a kept link, after its last response.
    Surplus(Arc<Server>),
}

impl Upstream {
    /// The servers of a route, whose site and path are its name. Servers that an upstream `before` has under
    /// the same rules stay as they are: up or down, with their links. Servers that it does not have join the
    /// others.
    pub fn new(
        config: &config::Upstream,
        name: String,
        tls: Option<Arc<SharedClientSettings>>,
        before: Option<&Self>,
    ) -> Arc<Self> {
        let has_same_rules = before.is_some_and(|it| it.rules.health == config.rules.health);
        let has_same_tls = before.is_some_and(|it| {
            is_same_tls(it.tls(), tls.as_ref()) && names_of(&it.rules) == names_of(&config.rules)
        });
        let source = |url: &ServerUrl| {
            let is_same = has_same_tls || url.protocol != Protocol::Https;
            let known = before.filter(|_| is_same).and_then(|before| {
                let place = before.urls.iter().position(|other| other == url)?;
                Some(&before.sources[place])
            });
            match known {
                Some(source) if has_same_rules => source.clone(),
                known => Source::new(url, before.is_some() && known.is_none()),
            }
        };
        let sources = config.servers.iter().map(source).collect();
        let (urls, rules) = (config.servers.clone(), config.rules.clone());
        let is_buffer_reported = AtomicBool::new(false);
        let tls = tls.map_or_else(OnceLock::new, OnceLock::from);
        Arc::new(Self { id: next_id(), name, urls, sources, rules, tls, is_buffer_reported })
    }

    /// Gives it the settings of connections to its servers that speak TLS, unless it has some. Before that these servers
    /// cannot be asked.
    pub fn set_tls(&self, settings: Arc<SharedClientSettings>) {
        self.tls.get_or_init(|| settings);
    }

    /// The settings of connections to its servers that speak TLS.
    pub fn tls(&self) -> Option<&Arc<SharedClientSettings>> {
        self.tls.get()
    }

    /// The device of its [directory for buffers](GatewayRules::buffer_dir), as long as nothing is open there.
    pub const fn buffer_device(&self) -> Device {
        Device::unknown(self.id)
    }

    /// Begins to resolve the names of its servers, and goes on with it.
    ///
    /// # Errors
    ///
    /// The errors of starting a thread.
    pub fn resolve(&self, names: &Names) -> io::Result<()> {
        for source in &self.sources {
            if let Source::Named(named) = source
                && named.resolved.get().is_none()
            {
                let resolved = names.resolve(named.name.clone())?;
                named.resolved.get_or_init(|| resolved);
            }
        }
        Ok(())
    }

    /// Its servers at present, at most [`config::Upstream::SERVERS_MAX`].
    pub fn servers(&self, now: Time) -> Vec<Arc<Server>> {
        let mut all = Vec::new();
        for source in &self.sources {
            match source {
                Source::One(one) => all.push(one.server(self, now)),
                Source::Named(named) => all.extend(named.servers(self, now)),
            }
        }
        all.truncate(config::Upstream::SERVERS_MAX);
        all
    }

    /// Counts the changes of its servers. Read before [`servers`](Self::servers), so that no change is
    /// missed.
    fn version(&self) -> u64 {
        let versions = self.sources.iter().map(|source| match source {
            Source::One(_) => 0,
            Source::Named(named) => named.resolved.get().map_or(0, |resolved| resolved.version()),
        });
        versions.sum()
    }

    /// The numbers of its servers.
    pub fn numbers(&self, now: Time) -> Vec<ServerNumbers> {
        let of = |server: Arc<Server>| ServerNumbers {
            upstream: self.name.clone(),
            server: server.name.clone(),
            is_up: server.health.is_up(),
            requests: server.numbers.exchanges.load(Ordering::Relaxed),
            in_flight: server.numbers.active.load(Ordering::Relaxed),
            failures: server.numbers.failures.load(Ordering::Relaxed),
            times: server.times(),
            handshakes: server.tls.is_some().then(|| server.handshakes()),
        };
        self.servers(now).into_iter().map(of).collect()
    }

    /// The key of a request of this client for this path: requests with the same key have the same server,
    /// if the rules say so. Clients on Unix sockets are one client.
    pub fn key(&self, client: Option<IpAddr>, path: &[u8]) -> u64 {
        match (self.rules.balance, self.rules.hash_by) {
            (Balance::RoundRobin | Balance::Least, _) => 0,
            (Balance::Hash, HashBy::Path) => balance::hash(path),
            (Balance::Hash, HashBy::Client) => match client.map(|client| client.to_canonical()) {
                Some(IpAddr::V4(client)) => balance::hash(&client.octets()),
                Some(IpAddr::V6(client)) => balance::hash(&client.octets()),
                None => 0,
            },
        }
    }

    /// Returns whether the upstream matches this configuration, with these settings of TLS.
    pub fn is_same(
        &self,
        config: &config::Upstream,
        tls: Option<&Arc<SharedClientSettings>>,
    ) -> bool {
        let has_same_tls = is_same_tls(self.tls(), tls);
        has_same_tls && self.rules == config.rules && self.urls == config.servers
    }
}

/// Returns true if a renewal replaces both together, or if there are none.
fn is_same_tls(
    one: Option<&Arc<SharedClientSettings>>,
    other: Option<&Arc<SharedClientSettings>>,
) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => Arc::ptr_eq(one, other),
        (None, None) => true,
        _ => false,
    }
}

/// The name that the certificates of all servers must have, if the rules say one.
fn names_of(rules: &GatewayRules) -> Option<&str> {
    rules.tls.as_ref()?.name.as_deref()
}

impl Source {
    /// `joins`: others had requests before it was added.
    fn new(url: &ServerUrl, joins: bool) -> Self {
        let address = match &url.address {
            ServerAddress::Ip(address) => Some(ring::Address::from(*address)),
            // The path was checked when the configuration was read.
            ServerAddress::Unix(path) => ring::Address::unix(path).ok(),
            ServerAddress::Host(host, port) => {
                return Self::Named(Arc::new(Named {
                    url: url.clone(),
                    joins,
                    name: Name { host: host.as_str().into(), port: *port },
                    resolved: OnceLock::new(),
                    found: Mutex::default(),
                }));
            }
        };
        Self::One(Arc::new(One { url: url.clone(), address, joins, server: OnceLock::new() }))
    }
}

impl One {
    fn server(&self, upstream: &Upstream, now: Time) -> Arc<Server> {
        let make = || {
            let (name, address) = (self.url.to_string(), self.address.clone());
            Server::new(&self.url, name, address, upstream, self.joins.then_some(now))
        };
        Arc::clone(self.server.get_or_init(make))
    }
}

impl Named {
    /// The servers at the present addresses of the name. A server whose address is still present stays the same;
    /// others join them, and the first ones join the servers of other names.
    fn servers(&self, upstream: &Upstream, now: Time) -> Vec<Arc<Server>> {
        let Some(resolved) = self.resolved.get() else { return Vec::new() };
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        let addresses = resolved.addresses();
        let joined = (self.joins || !found.is_empty()).then_some(now);
        let next = addresses.iter().map(|address| {
            let same = found.iter().find(|(known, _)| known == address);
            let server = same.map(|(_, server)| Arc::clone(server)).unwrap_or_else(|| {
                let name = format!("{} ({})", self.url, address.ip());
                Server::new(&self.url, name, Some((*address).into()), upstream, joined)
            });
            (*address, server)
        });
        *found = next.collect();
        found.iter().map(|(_, server)| Arc::clone(server)).collect()
    }
}

impl Server {
    fn new(
        url: &ServerUrl,
        name: String,
        address: Option<ring::Address>,
        upstream: &Upstream,
        joined: Option<Time>,
    ) -> Arc<Self> {
        let health = Health::new((&upstream.rules.health).into(), joined);
        let (id, numbers) = (next_id(), Numbers::default());
        let tls = ServerTls::new(url, upstream);
        // Without settings it is never asked: not even in the clear.
        let address = address.filter(|_| tls.is_some() || url.protocol != Protocol::Https);
        Arc::new(Self { id, url: url.clone(), name, address, tls, health, numbers })
    }
}

/// A number that nothing else has.
fn next_id() -> u64 {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    COUNT.fetch_add(1, Ordering::Relaxed)
}

impl Links {
    /// No links. Their operations have these kinds of tokens. The bytes that links with TLS have opened for a client are
    /// charged to `account`.
    pub fn new(receive: Token, writable: Token, account: &Account) -> Self {
        Self {
            links: Slab::new(),
            kept: HashMap::default(),
            choices: Choices::default(),
            steps: Steps::default(),
            buffers: ClientBuffers::charged_to(account),
            kinds: (receive, writable),
        }
    }

    /// Chooses a server for a request; `None` if there is none that has not failed, or the budget for
    /// retries is used up.
    pub fn choose(&mut self, upstream: &Arc<Upstream>, ask: Try, now: Time) -> Option<Chosen> {
        self.choices.begin(upstream, ask, now)
    }

    /// The exchange with a server has ended.
    pub fn end(&mut self, chosen: Chosen) {
        self.choices.end(chosen);
    }

    /// Begins to connect to a server for a request; `None` if its address is not known.
    pub fn connect(&mut self, ring: &mut Ring, server: &Arc<Server>, user: Key) -> Option<Key> {
        let address = server.address.clone()?;
        let Self { links, kinds, buffers, .. } = self;
        Some(links.insert_with(|key| {
            Link::connect(ring, server, address, user, Tokens::of(*kinds, key), buffers)
        }))
    }

    /// Takes a link to a server that was kept. Links that were made with other settings of TLS are closed.
    pub fn take_kept(&mut self, ring: &mut Ring, server: &Server, user: Key) -> Option<Key> {
        loop {
            let key = self.kept.get_mut(&server.id)?.pop()?;
            let link = self.links.get_mut(key)?;
            if link.has_present_settings() {
                link.usage = Usage::Serving(user);
                return Some(key);
            }
            self.close(ring, key);
        }
    }

    /// Keeps a link for another request.
    ///
    /// # Panics
    ///
    /// If the link was closed.
    pub fn keep(&mut self, ring: &mut Ring, key: Key, now: Time) {
        let link = self.links.get_mut(key).expect("the link of a request exists");
        if link.has_news() {
            return self.close(ring, key);
        }
        link.usage = Usage::Kept(now);
        link.served += 1;
        // The end of the connection must be noticed.
        link.set_receiving(ring, true);
        let kept = self.kept.entry(link.server.id).or_default();
        kept.push(key);
        if kept.len() > KEPT_MAX {
            let oldest = kept.remove(0);
            self.close(ring, oldest);
        }
    }

    /// Closes a link.
    pub fn close(&mut self, ring: &mut Ring, key: Key) {
        if let Some(mut link) = self.links.remove(key) {
            link.close(ring);
        }
    }

    /// Closes the links that were kept for too long.
    pub fn tidy(&mut self, ring: &mut Ring, now: Time) {
        let Self { links, kept, choices, .. } = self;
        choices.tidy();
        kept.retain(|_, keys| {
            keys.retain(|key| {
                let Some(link) = links.get_mut(*key) else { return false };
                let is_young =
                    !matches!(link.usage, Usage::Kept(since) if now.since(since) >= KEPT_TIME_MAX);
                if !is_young && let Some(mut link) = links.remove(*key) {
                    link.close(ring);
                }
                is_young
            });
            !keys.is_empty()
        });
    }

    /// A link.
    pub fn get_mut(&mut self, key: Key) -> Option<&mut Link> {
        self.links.get_mut(key)
    }

    /// Returns whether there are no links.
    pub fn is_empty(&self) -> bool {
        self.links.is_empty()
    }

    /// Makes the next step of a handshake that waits for one, if this turn of the worker has time for it. Returns its
    /// meaning: `None` inside if it has none yet.
    pub fn next_step(&mut self, ring: &mut Ring, turn: u64) -> Option<Option<(Key, LinkEvent)>> {
        let key = self.steps.next(turn, || ring.now())?;
        // The link may have been closed since.
        let Some(link) = self.links.get_mut(key) else { return Some(None) };
        let event = link.step(ring);
        let Usage::Serving(user) = link.usage else { return Some(None) };
        Some(event.map(|event| (user, event)))
    }

    /// Returns true if handshakes wait for another turn of the worker.
    pub fn wants_turn(&self) -> bool {
        self.steps.is_waiting()
    }

    /// Handles a completion of a link, in this turn of the worker; returns its meaning, if it has any. Any event of a kept
    /// link closes it.
    pub fn handle(
        &mut self,
        ring: &mut Ring,
        key: Key,
        completion: Completion,
        turn: u64,
    ) -> Option<LinkNews> {
        let tokens = Tokens::of(self.kinds, key);
        // The link may have been closed since.
        let link = self.links.get_mut(key)?;
        let mut event = link.handle(ring, completion, tokens)?;
        if matches!(event, LinkEvent::StepDue) {
            if !self.steps.take_or_wait(key, turn, || ring.now()) {
                return None;
            }
            event = link.step(ring)?;
        }
        if let Usage::Serving(user) = link.usage {
            return Some(LinkNews::Event(user, event));
        }
        if matches!(event, LinkEvent::Writable) {
            return None;
        }
        let server = Arc::clone(&link.server);
        if let Some(kept) = self.kept.get_mut(&server.id) {
            kept.retain(|other| *other != key);
        }
        self.close(ring, key);
        matches!(event, LinkEvent::Received(_)).then_some(LinkNews::Surplus(server))
    }
}

#[cfg(test)]
mod tests;
