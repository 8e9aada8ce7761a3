//! The clock, the limits, the configuration and the counters of a worker.

use core::hash::BuildHasher as _;
use std::hash::RandomState;
use std::rc::Rc;

use http::date::{self, DATE_LEN};
use ring::Time;

use crate::budget::Budget;
use crate::config::Tuning;
use crate::serving::Serving;

/// Declares [`Stats`] and the order of its values from one table.
macro_rules! stats {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Numbers of a worker: counters since it began, unless another meaning is given.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Stats {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Stats {
            /// The number of numbers.
            pub(crate) const COUNT: usize = [$(stringify!($name)),*].len();

            /// All numbers in order.
            pub(crate) const fn values(&self) -> [u64; Self::COUNT] {
                [$(self.$name),*]
            }

            /// The same from their values in order.
            pub(crate) const fn from_values([$($name),*]: [u64; Self::COUNT]) -> Self {
                Self { $($name),* }
            }
        }
    };
}

stats! {
    /// Connections accepted.
    accepted,
    /// Connections that are open now.
    connections,
    /// Responses begun.
    responses,
    /// Requests that are being answered now.
    active_requests,
    /// Responses cut off because a file became shorter while it was being sent.
    truncated,
    /// Opens, stats and reads that failed for another reason than "not found" or "not permitted".
    disk_errors,
    /// Requests answered 503, and responses cut off, because a disk did not answer in time.
    disk_timeouts,
    /// Connections closed because their peer took less than the minimum rate for too long.
    slow_peers,
    /// Connections closed because their peer sent nothing, or no complete request, for too long.
    timeouts,
    /// Those of them that sent nothing at all: idle connections.
    idle_timeouts,
    /// Idle connections closed to make room for new ones.
    idle_closed,
    /// Lines dropped because they could not be written to a log.
    log_lines_dropped,
    /// Times that accepting stopped because descriptors ran out.
    descriptor_shortages,
}

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
    /// True if requests are logged.
    pub logs: bool,
    /// Counters.
    pub stats: Stats,
    pub(crate) tuning: Rc<Tuning>,
    pub(crate) serving: Rc<Serving>,
    pub(crate) budget: Budget,
    /// The hash key and the counter of [`next_token`](Self::next_token).
    tokens: (RandomState, u64),
}

impl Context {
    /// The bytes that a peer must have moved since then: `--rate-min`, and one at least.
    pub(crate) fn least_bytes_since(&self, since: Time) -> u64 {
        let millis = u64::try_from(self.now.since(since).as_millis()).unwrap_or(u64::MAX);
        (self.tuning.rate_min.saturating_mul(millis) / 1000).max(1)
    }

    pub(crate) fn new(serving: Rc<Serving>, logs: bool) -> Self {
        let tuning = Rc::new(serving.snapshot.tuning().clone());
        let budget = Budget::new(tuning.memory_bytes_max);
        Self {
            turn: 0,
            now: Time::default(),
            unix: i64::MIN,
            date: date::format(0),
            logs,
            stats: Stats::default(),
            tuning,
            serving,
            budget,
            tokens: (RandomState::new(), 0),
        }
    }

    /// Begins a turn at this time.
    pub(crate) fn tick(&mut self, now: Time, unix: i64) {
        self.turn += 1;
        self.now = now;
        if unix != self.unix {
            self.unix = unix;
            self.date = date::format(unix);
        }
    }

    /// Returns a number that a client cannot predict from earlier ones: a keyed hash of a counter.
    pub(crate) fn next_token(&mut self) -> u64 {
        let (key, count) = &mut self.tokens;
        *count += 1;
        key.hash_one(*count)
    }
}
