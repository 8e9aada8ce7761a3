//! The clock, the limits, the configuration and the counters of a worker.
//!
//! The limit of finished responses was measured with load generators that copy what they receive, as browsers do
//! (`wrk`, `samum-bench league --copy`). With many connections a copy of 64 KiB costs the server more than
//! `sendfile(2)`, because source and packets do not stay in its caches. A generator that has the kernel discard what
//! comes does not see that. Sends are direct calls and no operations of the ring: a bare io_uring server sent no
//! cheaper through its ring, and a direct call leaves nothing in flight that would have to be cancelled.

use core::hash::BuildHasher as _;
use core::net::IpAddr;
use core::time::Duration;
use std::collections::BTreeMap;
use std::hash::RandomState;
use std::rc::Rc;

use http::Head;
use http::date::{self, DATE_LEN};
use ring::Time;
use sendfile::Takes;

use crate::budget::Budget;
use crate::config::Tuning;
use crate::log::Recording;
use crate::metrics::Stats;
use crate::other_protocol::OtherProtocol;
use crate::serving::Serving;
use crate::site::SiteId;

/// Files up to this size are kept in memory as finished responses, together with their heads. For
/// larger files `sendfile` is cheaper (see the head of this module).
const FINISHED_BYTES_MAX: u64 = 32 * 1024;
/// The same where transports take memory only: a larger file is read for each request.
const FINISHED_BYTES_MAX_OF_MEMORY: u64 = 256 * 1024;

const SECOND: Duration = Duration::from_secs(1);

/// The clock, limits, configuration and counters of one worker. Only the counters and the budget change during a turn.
#[derive(Debug)]
pub struct Context {
    /// The number of this turn of the worker.
    pub turn: u64,
    /// The time at which the turn began.
    pub now: Time,
    /// The time at which the turn began, in Unix seconds.
    pub unix: i64,
    /// The same time as an HTTP date.
    pub date: [u8; DATE_LEN],
    /// When that second ends.
    second_ends: Time,
    /// True if there is an access log.
    pub logs: bool,
    /// True if requests are counted.
    pub(crate) counts: bool,
    /// Counters.
    pub stats: Stats,
    pub(crate) tuning: Rc<Tuning>,
    pub(crate) serving: Rc<Serving>,
    /// Listeners that the configuration does not have any more, by their numbers.
    pub(crate) removed: BTreeMap<u32, Removed>,
    pub(crate) budget: Budget,
    /// Files up to this size are kept in memory as finished responses.
    pub(crate) finished_bytes_max: u64,
    /// Another protocol than HTTP/1 that a client has begun with in this turn, and the client's address.
    pub(crate) other_protocol: Option<(OtherProtocol, Option<IpAddr>)>,
    /// The hash key and the counter of [`next_token`](Self::next_token).
    tokens: (RandomState, u64),
}

/// A listener that the configuration does not have any more, while connections of it are open. Their
/// requests are for the sites of the configuration that had it.
#[derive(Debug)]
pub(crate) struct Removed {
    pub(crate) serving: Rc<Serving>,
    /// The number of its connections.
    pub(crate) connections: usize,
}

impl Context {
    /// The bytes that a peer must have moved since then: `--rate-min`, and one at least.
    pub(crate) fn least_bytes_since(&self, since: Time) -> u64 {
        let millis = u64::try_from(self.now.since(since).as_millis()).unwrap_or(u64::MAX);
        (self.tuning.rate_min.saturating_mul(millis) / 1000).max(1)
    }

    pub(crate) fn new(serving: Rc<Serving>) -> Self {
        let tuning = Rc::new(serving.snapshot.tuning().clone());
        let budget = Budget::new(tuning.memory_bytes_max);
        Self {
            turn: 0,
            now: Time::default(),
            unix: i64::MIN,
            second_ends: Time::default(),
            date: date::format(0),
            logs: false,
            counts: false,
            stats: Stats::default(),
            tuning,
            serving,
            removed: BTreeMap::new(),
            budget,
            finished_bytes_max: FINISHED_BYTES_MAX,
            other_protocol: None,
            tokens: (RandomState::new(), 0),
        }
    }

    /// Says which pieces the transports take, before anything is served.
    pub(crate) const fn set_takes(&mut self, takes: Takes) {
        self.finished_bytes_max = match takes {
            Takes::Files => FINISHED_BYTES_MAX,
            Takes::Memory => FINISHED_BYTES_MAX_OF_MEMORY,
        };
    }

    /// Serves another configuration from now on.
    pub(crate) fn replace(&mut self, serving: Rc<Serving>) {
        self.tuning = Rc::new(serving.snapshot.tuning().clone());
        self.budget.set_max(self.tuning.memory_bytes_max);
        self.serving = serving;
    }

    /// Returns the serving and the site for a request, by its listener and its host.
    #[inline]
    pub(crate) fn serving_of(&self, listener: u32, head: &Head<'_>) -> (Rc<Serving>, SiteId) {
        match self.serving.site(listener, head) {
            Some(site) => (Rc::clone(&self.serving), site),
            None => self.serving_of_removed(listener, head),
        }
    }

    /// The serving of the connections of a listener.
    pub(crate) fn serving_at(&self, listener: u32) -> &Rc<Serving> {
        self.removed.get(&listener).map_or(&self.serving, |removed| &removed.serving)
    }

    /// The client of a request for the log, if there is one and a proxy that is believed names the client. `own` is the
    /// address of the connection's client, `Some(None)` on a Unix socket; nobody is believed where it was not asked for.
    /// A forged field names no client.
    #[inline]
    pub(crate) fn forwarded(
        &self,
        own: impl FnOnce() -> Option<Option<IpAddr>>,
        head: &Head<'_>,
    ) -> Option<IpAddr> {
        let proxies = self.serving.snapshot.proxies();
        if !self.logs || proxies.is_empty() {
            None
        } else {
            proxies.client_of(own()?, head).ok()?
        }
    }

    /// The place where requests that cannot be understood are recorded: that of the default site of their listener.
    pub(crate) fn default_recording(&self, listener: u32) -> Option<Rc<Recording>> {
        let serving = self.serving_at(listener);
        // A network of another kind than the kernel's has no listeners.
        serving.recording(serving.default_site(listener).unwrap_or(SiteId::FIRST))
    }

    #[cold]
    fn serving_of_removed(&self, listener: u32, head: &Head<'_>) -> (Rc<Serving>, SiteId) {
        let serving = self.serving_at(listener);
        // A network of another kind than the kernel's has no listeners.
        (Rc::clone(serving), serving.site(listener, head).unwrap_or(SiteId::FIRST))
    }

    /// The time at which the turn began, in Unix seconds and as an HTTP date.
    pub(crate) const fn dated(&self) -> (i64, &[u8; DATE_LEN]) {
        (self.unix, &self.date)
    }

    /// Begins a turn at this time. `clock` reads the seconds since 1970 and the nanoseconds since that second began; it
    /// is asked when a second has gone by, so a clock that is set is noticed up to two seconds later.
    pub(crate) fn tick(&mut self, now: Time, clock: impl FnOnce() -> (i64, u32)) {
        self.turn += 1;
        self.now = now;
        if now < self.second_ends {
            return;
        }
        let (unix, nanos) = clock();
        self.second_ends = now + (SECOND - Duration::from_nanos(nanos.into()));
        if unix != self.unix {
            self.unix = unix;
            self.date = date::format(unix);
        }
    }

    /// The time in milliseconds since 1970 at which the clock showed an earlier time.
    pub(crate) fn unix_ms(&self, at: Time) -> i64 {
        let millis = |time: Duration| i64::try_from(time.as_millis()).unwrap_or_default();
        let of_second = SECOND.saturating_sub(self.second_ends.since(self.now));
        self.unix * 1000 + millis(of_second) - millis(self.now.since(at))
    }

    /// Returns a number that a client cannot predict from earlier ones: a keyed hash of a counter.
    pub(crate) fn next_token(&mut self) -> u64 {
        let (key, count) = &mut self.tokens;
        *count += 1;
        key.hash_one(*count)
    }
}
