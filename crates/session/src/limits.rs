//! The limits for each client: its requests, as token buckets, and its open connections, as counts.
//!
//! All workers share the limits, because the connections of one client go to any worker. A lock guards a small part of
//! each table and is held for one step. Buckets have a fixed amount of memory. There are as many counts as clients with
//! open connections.

use core::hash::BuildHasher;
use core::net::IpAddr;
use core::num::NonZeroU32;
use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;
use std::collections::HashMap;
use std::hash::RandomState;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ring::Time;

/// Buckets of all workers together: 16 MiB. If no bucket is free, a hash chooses `WAYS` buckets. Of these, the one
/// that will be full first is evicted.
pub const BUCKETS_MAX: usize = 1 << 20;
/// Parts of the tables with a lock each, so that workers rarely wait for each other.
const SHARDS: usize = 64;
/// The number of buckets in which a client's bucket is looked for.
const WAYS: usize = 8;
const SETS: usize = BUCKETS_MAX / SHARDS / WAYS;
/// The longest time in which an empty bucket becomes full.
const FILL_MAX: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// A client as limits count it: an IPv4 address, or the /64 of an IPv6 address, because a network gives at least a /64
/// to one customer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientKey(u64);

/// The rate at which a token bucket is filled, and its size.
///
/// A bucket is kept as the time at which it is full again ("generic cell rate algorithm", ITU-T I.371). So it fills
/// without work, and a full bucket needs no memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refill {
    /// Nanoseconds for one token.
    token: u64,
    /// Nanoseconds for all tokens of a bucket.
    all: u64,
}

/// The limits of all clients.
#[derive(Debug)]
pub struct Limiter {
    hash: RandomState,
    buckets: [Mutex<Buckets>; SHARDS],
    connections: [Mutex<HashMap<ClientKey, Arc<AtomicU32>>>; SHARDS],
}

/// An open connection of a client, which counts until this is dropped.
#[derive(Debug)]
pub struct Counted {
    limiter: Arc<Limiter>,
    client: ClientKey,
    count: Arc<AtomicU32>,
    /// The number of the client's open connections when this one was opened, itself included.
    rank: u32,
}

/// Buckets of a part of the clients; no memory is taken before the first one is used.
#[derive(Debug, Default)]
struct Buckets {
    /// Hashes of clients and limits. Two that have the same hash of 64 bits share a bucket.
    keys: Box<[[u64; WAYS]]>,
    /// The times at which the buckets are full again, in nanoseconds of the ring's clock.
    full_at: Box<[[u64; WAYS]]>,
}

impl ClientKey {
    /// The client with this address.
    #[must_use]
    pub fn new(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            // The keys of IPv4 addresses are in ::/32, where no client has an address.
            IpAddr::V4(address) => address.to_bits().into(),
            IpAddr::V6(address) => {
                let [a, b, c, d, e, f, g, h, ..] = address.octets();
                u64::from_be_bytes([a, b, c, d, e, f, g, h])
            }
        })
    }
}

impl Refill {
    /// The refill of buckets of `burst` tokens, at least one, at `per_second` tokens per second. An empty bucket is
    /// full after 100 years at the latest, also if `per_second` is not a positive number.
    #[must_use]
    pub fn new(per_second: f64, burst: u32) -> Self {
        let burst = burst.max(1);
        let token = Duration::try_from_secs_f64(1.0 / per_second).unwrap_or(FILL_MAX);
        let token = nanos(token).clamp(1, nanos(FILL_MAX) / u64::from(burst));
        Self { token, all: token * u64::from(burst) }
    }

    /// Takes a token out of the bucket that is full again at `full_at`. Returns the time at which the bucket is then
    /// full again, or the time until it has a token.
    fn take(self, full_at: Time, now: Time) -> Result<Time, Duration> {
        let then = full_at.max(now) + Duration::from_nanos(self.token);
        let missing = then.since(now).saturating_sub(Duration::from_nanos(self.all));
        if missing.is_zero() { Ok(then) } else { Err(missing) }
    }
}

impl Limiter {
    /// The limits before any client has used them.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            hash: RandomState::new(),
            buckets: core::array::from_fn(|_| Mutex::default()),
            connections: core::array::from_fn(|_| Mutex::default()),
        })
    }

    /// Takes a token out of a client's bucket. Each `limit` has buckets of its own.
    ///
    /// # Errors
    ///
    /// The number of seconds, rounded up, after which the bucket has a token, if it has none.
    pub fn take(
        &self,
        limit: u64,
        refill: Refill,
        client: ClientKey,
        now: Time,
    ) -> Result<(), NonZeroU32> {
        let key = self.hash.hash_one((limit, client));
        let (shard, set) = (part(key, SHARDS), part(key >> 32, SETS));
        let taken = lock(&self.buckets[shard]).take(set, key, refill, now);
        taken.map_err(|missing| {
            let seconds = missing.as_secs() + u64::from(missing.subsec_nanos() > 0);
            // At most [`FILL_MAX`].
            let seconds = u32::try_from(seconds).unwrap_or(u32::MAX);
            NonZeroU32::new(seconds).unwrap_or(NonZeroU32::MIN)
        })
    }

    /// Counts an open connection of a client.
    #[must_use]
    pub fn count(self: &Arc<Self>, client: ClientKey) -> Counted {
        let mut counts = self.counts(client);
        let count = counts.entry(client).or_default();
        let rank = count.fetch_add(1, Ordering::Relaxed) + 1;
        Counted { limiter: Arc::clone(self), client, count: Arc::clone(count), rank }
    }

    fn counts(&self, client: ClientKey) -> MutexGuard<'_, HashMap<ClientKey, Arc<AtomicU32>>> {
        lock(&self.connections[part(self.hash.hash_one(client), SHARDS)])
    }
}

impl Buckets {
    fn take(&mut self, set: usize, key: u64, refill: Refill, now: Time) -> Result<(), Duration> {
        if self.keys.is_empty() {
            // The kernel gives memory only for the parts that are written.
            self.keys = vec![[0; WAYS]; SETS].into();
            self.full_at = vec![[0; WAYS]; SETS].into();
        }
        let (keys, full_at) = (&mut self.keys[set], &mut self.full_at[set]);
        let place = keys.iter().position(|other| *other == key);
        let was_full_at = place.map_or(0, |place| full_at[place]);
        let is_full_at = refill.take(Time::from_nanos(was_full_at), now)?;
        let place =
            place.unwrap_or_else(|| (0..WAYS).min_by_key(|place| full_at[*place]).unwrap_or(0));
        (keys[place], full_at[place]) = (key, is_full_at.as_nanos());
        Ok(())
    }
}

impl Counted {
    /// Returns true if the client had at least `max` other connections when it opened this one, and still has more than
    /// `max` in all. So if a client opens too many, its first connections continue.
    #[must_use]
    pub fn is_beyond(&self, max: u32) -> bool {
        self.rank > max && self.count.load(Ordering::Relaxed) > max
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        // Relaxed is enough, as in `count`: both changes are made under the lock, and a reader may see the count late.
        let mut counts = self.limiter.counts(self.client);
        if self.count.fetch_sub(1, Ordering::Relaxed) == 1 {
            counts.remove(&self.client);
        }
    }
}

/// One of `parts` parts, a power of two, by the lower bits of a hash.
fn part(hash: u64, parts: usize) -> usize {
    usize::try_from(hash % parts as u64).expect("less than a usize")
}

/// No code that holds a lock can panic and leave a table inconsistent.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

const _: () = assert!(SHARDS.is_power_of_two() && SETS.is_power_of_two());

#[cfg(test)]
mod tests;
