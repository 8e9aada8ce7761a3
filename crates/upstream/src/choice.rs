//! A worker's choice of a server for each try of a request.
//!
//! Combines the decisions of the pure modules: [`balance`](super::balance) chooses among the servers that
//! [`health`](super::health) lets pass, and a further try needs the budget of [`retries`](super::retries).

use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};
use std::collections::HashMap;
use std::sync::{Arc, Weak};

use foldhash::fast::RandomState;
use metrics::UPSTREAM_BOUNDS;
use ring::Time;

use super::balance::{Balancer, Member, ServerSet, WEIGHT_FULL};
use super::health::{Change, Probe, Standing};
use super::retries::Budget;
use super::{Server, Upstream};

/// The upstreams as a worker chooses among their servers.
#[derive(Debug, Default)]
pub(super) struct Choices(HashMap<u64, Choice, RandomState>);

/// The servers of an upstream as a worker chooses among them.
#[derive(Debug)]
struct Choice {
    upstream: Weak<Upstream>,
    /// The version of its servers that this worker knows.
    version: u64,
    balancer: Balancer,
    /// The servers by their numbers.
    servers: Vec<Option<Arc<Server>>>,
    budget: Budget,
}

/// A try of a request.
#[derive(Clone, Copy, Debug)]
pub struct Try {
    /// The hash by which the server is chosen, if the upstream has its servers chosen so.
    pub key: u64,
    /// The servers with which the request has failed.
    pub failed: ServerSet,
    /// The cost for the budget of retries.
    pub cost: Cost,
    /// True if it can be tried once more: only such a request finds out whether a server is up again.
    pub is_repeatable: bool,
}

/// The cost of a try for the budget for retries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cost {
    /// The first try of a request, which adds to the budget.
    First,
    /// A further try, which takes one retry out of the budget.
    Retry,
    /// A try that takes over from one that no server has seen.
    Nothing,
}

/// A server that was chosen for a try. The exchange with it is counted until
/// [`Links::end`](super::Links::end).
#[derive(Debug)]
#[must_use]
pub struct Chosen {
    /// The server.
    pub server: Arc<Server>,
    /// The number of the server in the upstream.
    member: Member,
    upstream: u64,
    probe: Option<Probe>,
    /// True if all servers are down: if it fails, no other one is tried.
    pub is_last: bool,
}

/// The numbers of a server, of all workers together. They guard no other memory, so relaxed order is
/// enough.
#[derive(Debug, Default)]
pub(crate) struct Numbers {
    /// Exchanges that have begun.
    pub(crate) exchanges: AtomicU64,
    /// Exchanges that have begun and not ended.
    pub(crate) active: AtomicU64,
    /// Exchanges that have failed.
    pub(crate) failures: AtomicU64,
    /// Responses by the time until they began, and the sum of these times in nanoseconds.
    pub(crate) times: [AtomicU64; UPSTREAM_BOUNDS.len() + 1],
    pub(crate) time_sum: AtomicU64,
    /// TLS handshakes: full ones, resumed ones, and those that have failed.
    pub(crate) handshakes: [AtomicU64; 3],
}

impl Choices {
    /// Chooses a server; `None` if there is none that has not failed, or the budget for retries is used up.
    pub(super) fn begin(
        &mut self,
        upstream: &Arc<Upstream>,
        ask: Try,
        now: Time,
    ) -> Option<Chosen> {
        let choice = self.0.entry(upstream.id).or_insert_with(|| Choice::new(upstream));
        choice.update(upstream, now);
        choice.begin(upstream.id, ask, now)
    }

    /// The exchange with a server has ended.
    pub(super) fn end(&mut self, chosen: Chosen) {
        chosen.server.numbers.active.fetch_sub(1, Ordering::Relaxed);
        // The balancer may have dropped it, if the server was no longer in the upstream.
        if let Some(choice) = self.0.get_mut(&chosen.upstream) {
            choice.balancer.end(chosen.member);
        }
    }

    /// Drops the state of upstreams that no configuration and no request has any more.
    pub(super) fn tidy(&mut self) {
        self.0.retain(|_, choice| {
            choice.upstream.strong_count() > 0 || choice.balancer.has_exchanges()
        });
    }
}

impl Choice {
    fn new(upstream: &Arc<Upstream>) -> Self {
        let balancer = Balancer::new(upstream.rules.balance);
        let (servers, budget) = (Vec::new(), Budget::default());
        Self { upstream: Arc::downgrade(upstream), version: u64::MAX, balancer, servers, budget }
    }

    /// Learns of servers that were added or removed.
    #[inline]
    fn update(&mut self, upstream: &Upstream, now: Time) {
        let version = upstream.version();
        if self.version != version {
            self.version = version;
            self.replace(&upstream.servers(now));
        }
    }

    #[cold]
    fn replace(&mut self, servers: &[Arc<Server>]) {
        let is_listed = |server: &Arc<Server>| servers.iter().any(|one| one.id == server.id);
        for number in self.balancer.members().iter() {
            if !self.servers[number].as_ref().is_some_and(is_listed) {
                self.balancer.remove(number);
            }
        }
        for server in servers {
            let is_member = |number: usize| {
                self.servers[number].as_ref().is_some_and(|member| member.id == server.id)
            };
            if self.balancer.members().iter().any(is_member) {
                continue;
            }
            // An upstream has no more servers than there are numbers.
            let Some(number) = self.balancer.add(server.name.as_bytes()) else { continue };
            if self.servers.len() <= number {
                self.servers.resize(number + 1, None);
            }
            self.servers[number] = Some(Arc::clone(server));
        }
    }

    fn begin(&mut self, upstream: u64, ask: Try, now: Time) -> Option<Chosen> {
        if ask.cost == Cost::First {
            self.budget.handle_request(now);
        }
        let (mut up, mut due) = (ServerSet::EMPTY, ServerSet::EMPTY);
        for number in self.balancer.members().iter() {
            let Some(server) = &self.servers[number] else { continue };
            let weight = match server.health.standing(now) {
                Standing::Up(weight) => {
                    up.insert(number);
                    weight
                }
                Standing::Due => {
                    due.insert(number);
                    WEIGHT_FULL
                }
                Standing::Down => continue,
            };
            self.balancer.set_weight(number, weight);
        }
        let probes = if ask.is_repeatable || up.is_empty() { due } else { ServerSet::EMPTY };
        let mut among = up.or(probes).without(ask.failed);
        let (member, probe, is_last) = loop {
            match self.balancer.begin(among, ask.key) {
                Some(member) if due.contains(member.number) => {
                    let server =
                        self.servers[member.number].as_ref().expect("members have servers");
                    if let Some(probe) = server.health.take_probe(now) {
                        break (member, Some(probe), false);
                    }
                    // Another worker was faster.
                    self.balancer.end(member);
                    among.remove(member.number);
                }
                Some(member) => break (member, None, false),
                // All servers are down. One of them gets the request nevertheless, once.
                None if ask.failed.is_empty() => {
                    break (self.balancer.begin(self.balancer.members(), ask.key)?, None, true);
                }
                None => return None,
            }
        };
        if ask.cost == Cost::Retry && !self.budget.take(now) {
            self.balancer.end(member);
            return None;
        }
        let server =
            Arc::clone(self.servers[member.number].as_ref().expect("members have servers"));
        server.numbers.exchanges.fetch_add(1, Ordering::Relaxed);
        server.numbers.active.fetch_add(1, Ordering::Relaxed);
        Some(Chosen { server, member, upstream, probe, is_last })
    }
}

impl Chosen {
    /// Its number among the servers of the upstream.
    pub const fn number(&self) -> usize {
        self.member.number
    }

    /// The server has answered.
    pub fn handle_success(&mut self, now: Time) -> Option<Change> {
        self.server.health.handle_success(self.probe.take(), now)
    }

    /// The exchange has failed, and that is the server's fault.
    pub fn handle_failure(&mut self, now: Time) -> Option<Change> {
        self.server.numbers.failures.fetch_add(1, Ordering::Relaxed);
        self.server.health.handle_failure(self.probe.take(), now)
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Up => f.write_str("it is up again"),
            Self::Down(Some(pause)) => {
                write!(f, "it is down; it is tried again after {} s", pause.as_secs_f64())
            }
            Self::Down(None) => f.write_str("it is down until its checks pass"),
        }
    }
}
