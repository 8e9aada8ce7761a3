//! Limits the memory that peers can make a worker hold: bytes that wait to be sent, requests that wait for an answer,
//! and responses that wait to be logged.
//!
//! The memory that gateways wait for counts in advance: a request is charged for the most bytes that its response may
//! have before its turn. Later the request gives back the bytes that it did not need.
//!
//! Each connection has a budget, and all connections of a worker share one. When a connection's budget is spent, the
//! worker receives nothing more from it and begins no further response until the peer has received some bytes. When the
//! worker's budget is spent, each connection has one response at a time, and the response to a listing is a 503. Memory
//! with limits of its own does not count: buffers and pipes of the disk (`sendfile::Disk`), receive buffers (`ring`),
//! lines of logs (`logs`).

use sendfile::{Account, Weight};

use config::WORKER_BYTES_MAX;

/// Bytes that one connection may hold. The last response that begins below this limit may exceed the limit by its own
/// memory: a finished response or 64 KiB of a listing. Three finished responses of 32 KiB, each with its head, can wait
/// while a fourth begins. A response of 256 KiB, the largest for transports that send only from memory, waits alone.
pub const CONNECTION_BYTES_MAX: u64 = 128 * 1024;

/// Bytes of finished responses and listings that one worker keeps for later requests.
pub const CACHED_BYTES_MAX: u64 = 64 * 1024 * 1024;

// With default settings, a worker has the budgets of 512 connections in addition to a full cache.
const _: () = assert!(WORKER_BYTES_MAX == CACHED_BYTES_MAX + 512 * CONNECTION_BYTES_MAX);

/// The part of a worker's budget that contents for slow clients may not use.
const LEFT_PART: u64 = 8;

/// The memory that the connections of one worker hold.
#[derive(Debug)]
pub struct Budget {
    /// Memory that several connections and the cache share, each piece charged once.
    pub shared: Account,
    /// Memory that belongs to single connections, as last counted for each of them.
    own: u64,
    /// The budget of the worker.
    bytes_max: u64,
}

impl Budget {
    /// The budget of a worker that holds nothing.
    pub fn new(bytes_max: u64) -> Self {
        Self { shared: Account::default(), own: 0, bytes_max }
    }

    /// Gives the worker another budget.
    pub const fn set_max(&mut self, bytes_max: u64) {
        self.bytes_max = bytes_max;
    }

    /// Counts a connection's own memory again: it was `before` bytes and is `now` bytes.
    pub const fn recount(&mut self, before: u64, now: u64) {
        self.own = self.own - before + now;
    }

    /// Bytes that connections hold in addition to shared ones.
    pub const fn own(&self) -> u64 {
        self.own
    }

    /// Bytes held now, including cached responses.
    pub fn held(&self) -> u64 {
        self.own + self.shared.charged()
    }

    /// Returns true if the worker's budget is spent.
    pub fn is_spent(&self) -> bool {
        self.held() >= self.bytes_max
    }

    /// Returns true if `bytes` more bytes may be held for a connection whose turn it is. A part of the budget is left
    /// for connections that hold few bytes.
    pub fn has_room(&self, bytes: u64) -> bool {
        self.held().saturating_add(bytes) <= self.bytes_max - self.bytes_max / LEFT_PART
    }

    /// Returns true if a connection that holds `weight` may begin another response.
    pub fn allows(&self, weight: Weight) -> bool {
        let held = weight.total();
        held == 0 || (held < CONNECTION_BYTES_MAX && !self.is_spent())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: Weight = Weight { own: 0, shared: 0 };
    const LITTLE: Weight = Weight { own: 1, shared: 0 };

    #[test]
    fn a_connection_that_holds_nothing_may_always_begin_a_response() {
        let mut budget = Budget::new(1000);
        budget.recount(0, 1000);
        assert!(budget.is_spent());
        assert!(budget.allows(NOTHING));
        assert!(!budget.allows(LITTLE));
    }

    #[test]
    fn a_part_of_the_budget_is_left_for_those_that_hold_little() {
        let mut budget = Budget::new(1000);
        let charge = budget.shared.charge(500);
        assert!(budget.has_room(375) && !budget.has_room(376) && !budget.has_room(u64::MAX));
        budget.recount(0, 400);
        assert!(!budget.has_room(0) && budget.allows(LITTLE));
        drop(charge);
        assert!(budget.has_room(475));
    }

    #[test]
    fn own_and_shared_memory_count_towards_a_connections_budget() {
        let budget = Budget::new(WORKER_BYTES_MAX);
        let half = CONNECTION_BYTES_MAX / 2;
        assert!(budget.allows(Weight { own: half, shared: half - 1 }));
        assert!(!budget.allows(Weight { own: half, shared: half }));
    }

    #[test]
    fn memory_that_one_connection_releases_is_free_for_others() {
        let mut budget = Budget::new(1000);
        budget.recount(0, 600);
        let cached = budget.shared.charge(400);
        assert!(!budget.allows(LITTLE));
        budget.recount(600, 599);
        assert!(budget.allows(LITTLE));
        drop(cached);
        assert_eq!(budget.held(), 599);
    }
}
