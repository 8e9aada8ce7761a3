//! The clock, the limits, the configuration and the counters of a worker.

use core::cell::Cell;
use core::fmt;
use core::hash::BuildHasher as _;
use core::net::IpAddr;
use core::time::Duration;
use std::hash::RandomState;
use std::rc::Rc;
use std::sync::Arc;

use http::date::{self, DATE_LEN};
use http::{FieldSection, Head};
pub use http2::Attack;
use ring::Time;
use sendfile::Takes;

use crate::budget::Budget;
use crate::client::ClientAddress;
use crate::fields::Rules;
use crate::forwarded::Scheme;
use crate::other_protocol::OtherProtocol;
use crate::record::Recording;
use crate::request_id::Seed;
use crate::ticket::Ticket;
use config::Tuning;
use metrics::Counters;

const SECOND: Duration = Duration::from_secs(1);

/// The clock, limits, configuration and counters of one worker, and the notes of sessions for the worker. The clock and
/// the configuration are the same during a turn.
#[derive(Debug)]
pub struct Context {
    /// The number of this turn of the worker.
    pub turn: u64,
    /// The time at which the turn began.
    pub now: Time,
    /// The time at which the turn began, in Unix seconds.
    pub unix: i64,
    /// The second whose HTTP date was last needed, and that date.
    date: Cell<(i64, [u8; DATE_LEN])>,
    /// The time at which that second ends.
    second_ends: Time,
    /// True if there is an access log.
    pub logs: bool,
    /// True if requests are counted.
    pub counts: bool,
    /// True if the worker accepts no more connections, because the server ends or another process serves.
    pub is_ending: bool,
    /// Counters, which only this worker changes.
    pub stats: Arc<Counters>,
    /// The limits and times of the configuration.
    pub tuning: Rc<Tuning>,
    /// The rules of listeners and sites.
    pub site_rules: Rc<dyn SiteRules>,
    /// The memory that peers make the worker hold.
    pub budget: Budget,
    /// The pieces that all transports can send; `None` if they differ.
    pub takes: Option<Takes>,
    /// The protocol of a client that has begun with another protocol than HTTP/1 in this turn, and the client's
    /// address.
    pub other_protocol: Option<(OtherProtocol, Option<IpAddr>)>,
    /// A limit of HTTP/2 against attacks that a client has reached in this turn, and the client's address.
    pub http2_attack: Option<(Attack, Option<IpAddr>)>,
    /// The text of the last head of HTTP/2. No part of it is used again.
    pub head_text: Vec<u8>,
    /// The random bits of which the ids of requests are made.
    pub id_seed: Seed,
    /// The number of requests that no handler was asked about.
    unnamed: u32,
    /// The hash key and the counter of [`next_token`](Self::next_token).
    tokens: (RandomState, u64),
}

/// The rules of listeners and sites that are needed without a handler. They say what a listener speaks, which proxies
/// are believed, and where a request is recorded if it was refused or if its client has left.
pub trait SiteRules: fmt::Debug {
    /// The place where a request to a listener is recorded, if it is recorded. Without a head the place is the place of
    /// bytes that are no request.
    fn recording(&self, listener: u32, head: Option<&Head<'_>>) -> Option<Rc<Recording>>;

    /// The client of a request for the log, if a proxy that is believed names a client. `own` is the address of the
    /// connection's client. If nothing needed this address before, no proxy is believed. A forged field names no
    /// client.
    fn client(&self, own: ClientAddress, head: &Head<'_>) -> Option<IpAddr>;

    /// Returns true if the peer is a proxy that is believed. `own` is as for [`client`](Self::client). By default no
    /// proxy is believed.
    fn trusts(&self, _own: ClientAddress) -> bool {
        false
    }

    /// The scheme of a request on a connection with the scheme `own`. If a proxy that is believed names another scheme,
    /// the result is that scheme. `client` is as for [`client`](Self::client). By default no proxy is believed.
    fn scheme(&self, own: Scheme, _client: ClientAddress, _head: &Head<'_>) -> Scheme {
        own
    }

    /// Returns true if a listener speaks HTTP/2 with clients that know this beforehand. By default no listener does.
    fn speaks_http2(&self, _listener: u32) -> bool {
        false
    }

    /// Returns true if a route of a listener accepts tunnels of HTTP/2. By default no route does.
    fn takes_tunnels(&self, _listener: u32) -> bool {
        false
    }

    /// The fields that the site of a request demands in a response that no handler makes. Without a head the site is
    /// the site of bytes that are no request. By default a site demands no fields.
    fn demands(&self, _listener: u32, _head: Option<&Head<'_>>) -> Demands {
        Demands::default()
    }
}

/// The fields that a site demands in a response that no handler makes.
#[derive(Clone, Debug, Default)]
pub struct Demands {
    /// The field `Strict-Transport-Security`, if responses over TLS have it.
    pub hsts: Option<FieldSection<'static>>,
    /// The rules for all fields.
    pub rules: Rules,
    /// True if the response has a `Server-Timing` field.
    pub server_timing: bool,
}

/// No rules: nothing is recorded.
impl SiteRules for () {
    fn recording(&self, _listener: u32, _head: Option<&Head<'_>>) -> Option<Rc<Recording>> {
        None
    }

    fn client(&self, _own: ClientAddress, _head: &Head<'_>) -> Option<IpAddr> {
        None
    }
}

impl Context {
    /// The bytes that a peer must have moved since then: `--rate-min`, and at least one byte.
    pub fn least_bytes_since(&self, since: Time) -> u64 {
        self.least_bytes_in(self.now.since(since))
    }

    /// The bytes that a peer must move in this time: `--rate-min`, and at least one byte.
    pub fn least_bytes_in(&self, time: Duration) -> u64 {
        let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        (self.tuning.rate_min.saturating_mul(millis) / 1000).max(1)
    }

    /// Returns true if a peer is fast enough, by its counts of acknowledged bytes: `before` at `since`, and `acknowledged`
    /// now.
    pub fn is_fast_enough(&self, since: Time, before: i64, acknowledged: i64) -> bool {
        let taken = u64::try_from(acknowledged.wrapping_sub(before)).unwrap_or(0);
        taken >= self.least_bytes_since(since)
    }

    /// The context of a worker before its first turn.
    pub fn new(tuning: Tuning, site_rules: Rc<dyn SiteRules>) -> Self {
        let tuning = Rc::new(tuning);
        let budget = Budget::new(tuning.memory_bytes_max);
        Self {
            turn: 0,
            now: Time::default(),
            unix: i64::MIN,
            second_ends: Time::default(),
            date: Cell::new((0, date::format(0))),
            logs: false,
            counts: false,
            is_ending: false,
            stats: Arc::default(),
            tuning,
            site_rules,
            budget,
            takes: Some(Takes::Files),
            other_protocol: None,
            http2_attack: None,
            head_text: Vec::new(),
            unnamed: 0,
            id_seed: Seed(
                [RandomState::new(), RandomState::new()].map(|state| state.hash_one(0_u8)),
            ),
            tokens: (RandomState::new(), 0),
        }
    }

    /// A name for a request that no handler was asked about.
    pub const fn next_unnamed(&mut self) -> Ticket {
        self.unnamed = self.unnamed.wrapping_add(1);
        Ticket { connection: Ticket::UNNAMED, request: self.unnamed }
    }

    /// From now on uses the limits of another configuration.
    pub fn set_tuning(&mut self, tuning: Tuning) {
        self.budget.set_max(tuning.memory_bytes_max);
        self.tuning = Rc::new(tuning);
    }

    /// The time at which the turn began, as an HTTP date. In each second the date is made when it is first needed. So
    /// turns without responses, such as turns that only write logs, cost no date.
    #[inline]
    pub fn date(&self) -> [u8; DATE_LEN] {
        let (second, date) = self.date.get();
        if second == self.unix { date } else { self.make_date() }
    }

    #[cold]
    fn make_date(&self) -> [u8; DATE_LEN] {
        let date = date::format(self.unix);
        self.date.set((self.unix, date));
        date
    }

    /// Begins a turn at this time. `clock` reads the seconds since 1970 and the nanoseconds since that second began.
    /// The clock is read when a second has gone by, so a change of the clock is noticed up to two seconds later.
    pub fn tick(&mut self, now: Time, clock: impl FnOnce() -> (i64, u32)) {
        self.turn += 1;
        self.now = now;
        if now < self.second_ends {
            return;
        }
        let (unix, nanos) = clock();
        self.second_ends = now + (SECOND - Duration::from_nanos(nanos.into()));
        self.unix = unix;
    }

    /// The time in milliseconds since 1970 at which the clock showed an earlier time.
    pub fn unix_ms(&self, at: Time) -> i64 {
        let left_nanos = self.second_ends.as_nanos().saturating_sub(at.as_nanos());
        (self.unix + 1) * 1000 - left_nanos.div_ceil(1_000_000).cast_signed()
    }

    /// Returns a number that a client cannot predict from earlier ones: a keyed hash of a counter.
    pub fn next_token(&mut self) -> u64 {
        let (key, count) = &mut self.tokens;
        *count += 1;
        key.hash_one(*count)
    }
}
