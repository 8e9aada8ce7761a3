//! Chooses the next server of an upstream: by turn, by the fewest exchanges, or by consistent hashing with
//! bounded loads.
//!
//! Reading list: "Consistent Hashing with Bounded Loads" (Mirrokni, Thorup, Zadimoghaddam 2016); "A
//! Name-Based Mapping Scheme for Rendezvous" (Thaler, Ravishankar 1996). The second is the consistent hashing
//! used here: each server has a score for each key, and the highest score wins. It needs no table, and the keys
//! of a server that is full or down are spread over all others.
//!
//! A choice looks at each server once and allocates nothing. Each worker has a balancer of its own and counts
//! its own exchanges only, so counts need no atomics; all workers give one key to the same server.

use config::{Balance, Upstream};

/// The maximum number of servers of an upstream.
const SERVERS_MAX: usize = Upstream::SERVERS_MAX;
/// The bits of one word are a set of servers.
const _: () = assert!(SERVERS_MAX <= u64::BITS as usize);

/// The weight of a server that gets its full share.
pub(crate) const WEIGHT_FULL: u16 = 256;

/// With consistent hashing, a server has at most 5/4 of the average number of exchanges: with less, keys
/// change their server too often; with more, a popular key overloads one server. The paper's ε is 1/4.
const BOUND: (u64, u64) = (5, 4);

/// A server with fewer exchanges is never full: so few are no load, and the simultaneous requests of one browser
/// go to one server. For a server with a smaller share the limit is smaller in proportion.
const EXCHANGES_FREE: u64 = 16;

/// A set of servers of one upstream, by their numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerSet(u64);

/// The servers of an upstream, as one worker chooses among them.
///
/// A server keeps its number until it has been removed and another one needs the number. Later results of a
/// removed server's exchanges do not count.
#[derive(Debug)]
pub(crate) struct Balancer {
    rule: Balance,
    servers: Vec<Server>,
    /// The servers that can be chosen.
    members: ServerSet,
}

#[derive(Debug)]
struct Server {
    /// A hash of its address, the same in every worker.
    seed: u64,
    /// The number of servers that had its number before.
    generation: u32,
    /// Exchanges that have begun and not ended.
    exchanges: u32,
    /// Its share, from 1 to [`WEIGHT_FULL`].
    weight: u16,
    /// The shares that it should have had and has not had yet; below zero, those that it has had before
    /// its turn.
    credit: i64,
}

/// A server with which an exchange has begun. When the exchange ends, another server may have its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) number: usize,
    generation: u32,
}

impl ServerSet {
    /// No server.
    pub const EMPTY: Self = Self(0);

    pub(crate) const fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(crate) const fn contains(self, server: usize) -> bool {
        self.0 & (1 << server) != 0
    }

    /// Adds a server by its number.
    pub const fn insert(&mut self, server: usize) {
        self.0 |= 1 << server;
    }

    pub(crate) const fn remove(&mut self, server: usize) {
        self.0 &= !(1 << server);
    }

    /// The servers that are in one of both sets.
    pub(crate) const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The servers that are in both sets.
    pub(crate) const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// The servers of this set that are not in the other set.
    pub(crate) const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// The numbers in their order.
    pub(crate) fn iter(self) -> impl Iterator<Item = usize> {
        let mut rest = self.0;
        core::iter::from_fn(move || {
            let server = (rest != 0).then(|| rest.trailing_zeros() as usize)?;
            rest &= rest - 1;
            Some(server)
        })
    }
}

impl FromIterator<usize> for ServerSet {
    fn from_iter<I: IntoIterator<Item = usize>>(servers: I) -> Self {
        servers.into_iter().fold(Self::EMPTY, |mut all, server| {
            all.insert(server);
            all
        })
    }
}

impl Balancer {
    /// There are no servers yet.
    pub(crate) const fn new(rule: Balance) -> Self {
        Self { rule, servers: Vec::new(), members: ServerSet::EMPTY }
    }

    /// Adds a server with this address, and returns its number; `None` if there are [`SERVERS_MAX`].
    pub(crate) fn add(&mut self, address: &[u8]) -> Option<usize> {
        let (seed, weight) = (hash(address), WEIGHT_FULL);
        let mut server = Server { seed, generation: 0, exchanges: 0, weight, credit: 0 };
        let free = (0..self.servers.len()).filter(|at| !self.members.contains(*at));
        // A number whose server still has exchanges is taken last: they would be counted no more.
        let number = match free.min_by_key(|at| self.servers[*at].exchanges) {
            Some(at) if self.servers[at].exchanges == 0 || self.servers.len() == SERVERS_MAX => at,
            _ if self.servers.len() == SERVERS_MAX => return None,
            _ => self.servers.len(),
        };
        match self.servers.get_mut(number) {
            Some(place) => {
                server.generation = place.generation.wrapping_add(1);
                *place = server;
            }
            None => self.servers.push(server),
        }
        self.members.insert(number);
        Some(number)
    }

    /// Removes a server. Its exchanges go on.
    pub(crate) const fn remove(&mut self, server: usize) {
        self.members.remove(server);
    }

    /// The servers that can be chosen.
    pub(crate) const fn members(&self) -> ServerSet {
        self.members
    }

    /// Returns whether any exchange has begun and not ended.
    pub(crate) fn has_exchanges(&self) -> bool {
        self.servers.iter().any(|server| server.exchanges > 0)
    }

    /// Sets the share of a server, from 1 to [`WEIGHT_FULL`].
    pub(crate) fn set_weight(&mut self, server: usize, weight: u16) {
        self.servers[server].weight = weight.clamp(1, WEIGHT_FULL);
    }

    /// Chooses one of these servers, and counts an exchange with it; `None` if there is no server among
    /// them. [`Balance::Hash`] uses the key, a [`hash`].
    pub(crate) fn begin(&mut self, among: ServerSet, key: u64) -> Option<Member> {
        let among = among.and(self.members);
        let server = match self.rule {
            Balance::RoundRobin => self.next_in_turn(among),
            Balance::Least => self.next_in_turn(self.least(among)),
            Balance::Hash => self.highest(among, key),
        }?;
        self.servers[server].exchanges += 1;
        Some(Member { number: server, generation: self.servers[server].generation })
    }

    /// An exchange with a server has ended.
    pub(crate) fn end(&mut self, member: Member) {
        let server = &mut self.servers[member.number];
        if server.generation == member.generation {
            server.exchanges = server.exchanges.checked_sub(1).expect("each exchange ends once");
        }
    }

    /// Chooses the next server in turn: the one that lacks most of its share, as nginx's smooth weighted
    /// round robin does. The credits of a set whose servers are chosen among do not change in sum.
    fn next_in_turn(&mut self, among: ServerSet) -> Option<usize> {
        let mut total = 0;
        let mut best: Option<usize> = None;
        for at in among.iter() {
            let server = &mut self.servers[at];
            server.credit += i64::from(server.weight);
            total += i64::from(server.weight);
            let credit = server.credit;
            if best.is_none_or(|best| credit > self.servers[best].credit) {
                best = Some(at);
            }
        }
        self.servers[best?].credit -= total;
        best
    }

    /// The servers with the fewest exchanges by weight.
    fn least(&self, among: ServerSet) -> ServerSet {
        let mut all = among.iter();
        let Some(first) = all.next() else { return among };
        let mut least = ServerSet::from_iter([first]);
        let mut lowest = &self.servers[first];
        for at in all {
            let server = &self.servers[at];
            // a / b against c / d.
            let one = u64::from(server.exchanges) * u64::from(lowest.weight);
            let other = u64::from(lowest.exchanges) * u64::from(server.weight);
            if one < other {
                (least, lowest) = (ServerSet::EMPTY, server);
            }
            if one <= other {
                least.insert(at);
            }
        }
        least
    }

    /// The server with the highest score for a key, of the servers that are not full and accept the key. A server
    /// with a smaller share accepts only that part of its keys. Otherwise it would get all of its keys in one moment,
    /// as most servers are far from full.
    fn highest(&self, among: ServerSet, key: u64) -> Option<usize> {
        let mut exchanges = 1;
        let mut weights = 0;
        let mut heaviest = 0;
        for server in among.iter().map(|at| &self.servers[at]) {
            exchanges += u64::from(server.exchanges);
            weights += u64::from(server.weight);
            heaviest = heaviest.max(u64::from(server.weight));
        }
        let is_full = |server: &Server| {
            let weight = u64::from(server.weight);
            // The bound is rounded up, so all bounds together are more than the exchanges: there is always
            // a server that is not full.
            let bound = (BOUND.0 * exchanges * weight).div_ceil(BOUND.1 * weights);
            let free = (EXCHANGES_FREE * weight).div_ceil(heaviest);
            u64::from(server.exchanges) >= bound.max(free)
        };
        let score = |at: &usize| mix(self.servers[*at].seed ^ key);
        // As the score, this depends only on the server and the key, so a server keeps its keys while its share
        // grows. The number is a part of 2^32, which is compared to the share.
        let takes = |at: &usize| {
            let part = mix(score(at)) >> 32;
            part * heaviest < u64::from(self.servers[*at].weight) << 32
        };
        let free = || among.iter().filter(|at| !is_full(&self.servers[*at]));
        free().filter(takes).max_by_key(score).or_else(|| free().max_by_key(score))
    }
}

/// The hash of an address or a key. It has no secret and is the same in every process, so several machines in
/// front of the same servers agree. Clients can choose keys that go to one server; the limit of its load holds
/// for such keys, too.
pub(crate) fn hash(bytes: &[u8]) -> u64 {
    let words = bytes.chunks(8).map(|chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        u64::from_le_bytes(word)
    });
    words.fold(mix(bytes.len() as u64), |hash, word| mix(hash ^ word))
}

/// A permutation of words in which each bit depends on all bits: the end of `SplitMix64` (Steele, Lea, Flood
/// 2014).
const fn mix(word: u64) -> u64 {
    let word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests;
