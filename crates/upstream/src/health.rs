//! Decides whether requests go to a server, by the results of earlier requests and checks.
//!
//! ```text
//!            `max_fails` requests in a row fail, or `fall` checks
//!     Up ─────────────────────────────────────────────────────────► Down
//!      ▲                                                             │ after some time: one request, a probe
//!      └─────────────────────────────────────────────────────────────┘
//!            a request succeeds, or `rise` checks pass; a growing share for `slow_start`
//! ```
//!
//! The share of a server grows in the same way if it joins servers that have requests already.
//!
//! All workers share the health of a server, so a failure that one worker has seen spares the requests of the
//! others. While a server has no failures, this costs a worker one load per choice and one per response. The
//! lock is for servers with failures.

use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ring::Time;

use super::balance::WEIGHT_FULL;
use config::HealthRules;

/// The maximum time after which a server that is down is tried again, unless the first is longer.
const DOWN_MAX: Duration = Duration::from_secs(60);

/// The summary of a server with which nothing is wrong.
const FINE: u64 = 0;
/// The summary of a server that is up, but not [`FINE`].
const TROUBLED: u64 = 1;
/// The summary of a server that gets no requests before a check or a probe has ended.
const CLOSED: u64 = u64::MAX;

/// The rules by which a server is up or down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rules {
    /// Failures in a row after which a server is down; 0: it is never down because of requests.
    pub(crate) max_fails: u32,
    /// A failure is in a row with another one that is not longer ago. A server that is down is tried again
    /// after this time, and after twice as long each time that it is down again.
    pub(crate) fail_timeout: Duration,
    /// The time in which the share of a server grows that is up again or has joined others.
    pub(crate) slow_start: Duration,
    /// Checks, if there are any.
    pub(crate) checks: Option<Checks>,
}

/// The rules for requests that only find out whether a server is up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Checks {
    /// The time from one check to the next.
    pub(crate) interval: Duration,
    /// Checks in a row that pass before a server is up.
    pub(crate) rise: u32,
    /// Checks in a row that fail before a server is down.
    pub(crate) fall: u32,
}

/// Checks in a row after which a server is up again, and after which it is down.
const CHECKS_PASSED: u32 = 2;
const CHECKS_FAILED: u32 = 3;

impl From<&HealthRules> for Rules {
    fn from(rules: &HealthRules) -> Self {
        let HealthRules { max_fails, fail_timeout, slow_start, check, check_interval } = rules;
        let checks = Checks { interval: *check_interval, rise: CHECKS_PASSED, fall: CHECKS_FAILED };
        Self {
            max_fails: *max_fails,
            fail_timeout: *fail_timeout,
            slow_start: slow_start.unwrap_or_default(),
            checks: check.as_ref().map(|_| checks),
        }
    }
}

/// The health of a server, which all workers share.
pub(crate) struct Health {
    rules: Rules,
    /// The state in one word: [`FINE`], [`TROUBLED`], [`CLOSED`], or the earliest time of the next probe, in
    /// nanoseconds. It is written under the lock, and guards nothing else, so relaxed order is enough: a worker may see
    /// a change a little later.
    summary: AtomicU64,
    state: Mutex<HealthState>,
}

/// The things that a worker may do with a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// The server gets requests, with this weight: from 1 to [`WEIGHT_FULL`].
    Up(u16),
    /// The server may get one request, with a [`Probe`].
    Due,
    /// The server gets no requests.
    Down,
}

/// A change that is reported to the operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The server gets requests again.
    Up,
    /// Down, and tried again after this time; `None`: once checks pass.
    Down(Option<Duration>),
}

/// The permission to send one request to a server that is down. It goes back to [`Health`] with the outcome
/// of the request; if it is dropped instead, another probe may be sent.
pub(crate) struct Probe {
    health: Arc<Health>,
    /// The pause after which it was sent: a probe that ends after a later pause has begun does not count.
    pause: u64,
    has_outcome: bool,
}

/// Pure.
#[derive(Debug)]
struct HealthState {
    phase: Phase,
    /// The pauses that there were.
    pauses: u64,
    /// The length of the last.
    period: Duration,
    /// The checks in a row with the same outcome, and that outcome.
    row: (u32, bool),
    /// The time of the next check.
    check_at: Time,
}

#[derive(Debug)]
enum Phase {
    Up {
        /// When it came up, if it was down before, or joined others.
        since: Option<Time>,
        /// The failures in a row, and the time of the last.
        failures: u32,
        failed_at: Time,
    },
    /// Down because of requests.
    Down {
        /// When a probe may be sent.
        until: Time,
        /// True while there is a [`Probe`] that was sent after this pause.
        is_probed: bool,
    },
    /// Down because of checks.
    Failing,
}

impl HealthState {
    /// A server without a history. It has joined others at this time, if any.
    const fn new(since: Option<Time>) -> Self {
        Self {
            phase: Phase::Up { since, failures: 0, failed_at: Time::from_nanos(0) },
            pauses: 0,
            period: Duration::ZERO,
            row: (0, true),
            check_at: Time::from_nanos(0),
        }
    }

    /// A request has got a response.
    fn handle_success(&mut self, now: Time) -> Option<Change> {
        match &mut self.phase {
            Phase::Up { failures, .. } => {
                *failures = 0;
                None
            }
            Phase::Down { .. } => Some(self.rise(now)),
            Phase::Failing => None,
        }
    }

    /// Notes that a request has failed for a reason on the server's side. It was the probe after this pause,
    /// or an ordinary request.
    fn handle_failure(&mut self, rules: &Rules, probe: Option<u64>, now: Time) -> Option<Change> {
        match &mut self.phase {
            Phase::Up { failures, failed_at, since } => {
                let is_in_row = now.since(*failed_at) <= rules.fail_timeout;
                *failures = if is_in_row { *failures + 1 } else { 1 };
                *failed_at = now;
                if rules.max_fails == 0 || *failures < rules.max_fails {
                    return None;
                }
                // A server that was up only for a short time had not recovered.
                let was_short = since.is_some_and(|since| now.since(since) < self.period);
                self.period = if was_short { self.longer(rules) } else { rules.fail_timeout };
                Some(self.fall(now))
            }
            Phase::Down { .. } if probe == Some(self.pauses) => {
                self.period = self.longer(rules);
                self.fall(now);
                None
            }
            // A request that began before, or one that was sent because all servers are down.
            Phase::Down { .. } | Phase::Failing => None,
        }
    }

    fn handle_check(&mut self, checks: &Checks, passed: bool, now: Time) -> Option<Change> {
        let (count, last) = self.row;
        let count = if last == passed { count.saturating_add(1) } else { 1 };
        self.row = (count, passed);
        match &self.phase {
            Phase::Up { .. } if !passed && count >= checks.fall => {
                self.phase = Phase::Failing;
                Some(Change::Down(None))
            }
            Phase::Down { .. } if !passed && count >= checks.fall => {
                self.phase = Phase::Failing;
                None
            }
            Phase::Down { .. } | Phase::Failing if passed && count >= checks.rise => {
                Some(self.rise(now))
            }
            _ => None,
        }
    }

    /// A probe has ended without an outcome: its client has gone, for instance.
    const fn handle_lost_probe(&mut self, pause: u64) {
        if let Phase::Down { is_probed, .. } = &mut self.phase
            && pause == self.pauses
        {
            *is_probed = false;
        }
    }

    /// Takes the permission for a probe, if one may be sent; returns the pause after which it is sent.
    fn take_probe(&mut self, now: Time) -> Option<u64> {
        match &mut self.phase {
            Phase::Down { until, is_probed } if !*is_probed && now >= *until => {
                *is_probed = true;
                Some(self.pauses)
            }
            _ => None,
        }
    }

    /// Takes the permission for the next check, if its time has come.
    fn take_check(&mut self, checks: &Checks, now: Time) -> bool {
        let is_due = now >= self.check_at;
        if is_due {
            self.check_at = now + checks.interval;
        }
        is_due
    }

    fn rise(&mut self, now: Time) -> Change {
        self.phase = Phase::Up { since: Some(now), failures: 0, failed_at: now };
        Change::Up
    }

    fn fall(&mut self, now: Time) -> Change {
        self.pauses += 1;
        self.phase = Phase::Down { until: now + self.period, is_probed: false };
        Change::Down(Some(self.period))
    }

    fn longer(&self, rules: &Rules) -> Duration {
        self.period.saturating_mul(2).min(DOWN_MAX).max(rules.fail_timeout)
    }

    /// The part of the requests that the server gets, once it is up.
    fn weight(&self, rules: &Rules, now: Time) -> u16 {
        let Phase::Up { since: Some(since), .. } = self.phase else { return WEIGHT_FULL };
        let passed = now.since(since);
        if passed >= rules.slow_start {
            return WEIGHT_FULL;
        }
        let weight = u128::from(WEIGHT_FULL) * passed.as_nanos() / rules.slow_start.as_nanos();
        u16::try_from(weight.max(1)).expect("less than WEIGHT_FULL")
    }

    fn standing(&self, rules: &Rules, now: Time) -> Standing {
        match self.phase {
            Phase::Up { .. } => Standing::Up(self.weight(rules, now)),
            Phase::Down { until, is_probed: false } if now >= until => Standing::Due,
            Phase::Down { .. } | Phase::Failing => Standing::Down,
        }
    }

    fn summary(&self, rules: &Rules, now: Time) -> u64 {
        match self.phase {
            Phase::Up { failures: 0, .. } if self.weight(rules, now) == WEIGHT_FULL => FINE,
            Phase::Up { .. } => TROUBLED,
            Phase::Down { until, is_probed: false } => {
                until.as_nanos().clamp(TROUBLED + 1, CLOSED - 1)
            }
            Phase::Down { .. } | Phase::Failing => CLOSED,
        }
    }
}

impl Health {
    /// A server without a history is up. If it joins others at this time, its share grows.
    pub(crate) fn new(rules: Rules, joined: Option<Time>) -> Arc<Self> {
        let state = HealthState::new(joined);
        let summary = AtomicU64::new(state.summary(&rules, joined.unwrap_or_default()));
        Arc::new(Self { rules, summary, state: Mutex::new(state) })
    }

    /// Returns whether the server is up.
    pub(crate) fn is_up(&self) -> bool {
        self.summary.load(Ordering::Relaxed) <= TROUBLED
    }

    /// Returns what may be done with the server.
    pub(crate) fn standing(&self, now: Time) -> Standing {
        match self.summary.load(Ordering::Relaxed) {
            FINE => Standing::Up(WEIGHT_FULL),
            TROUBLED => self.with(now, |state, rules| state.standing(rules, now)),
            until if now.as_nanos() >= until => Standing::Due,
            _ => Standing::Down,
        }
    }

    /// Takes the permission to send a probe, if the server is [`Due`](Standing::Due): another worker may have
    /// been faster.
    pub(crate) fn take_probe(self: &Arc<Self>, now: Time) -> Option<Probe> {
        let pause = self.with(now, |state, _| state.take_probe(now))?;
        Some(Probe { health: Arc::clone(self), pause, has_outcome: false })
    }

    /// A server has answered a request.
    pub(crate) fn handle_success(&self, probe: Option<Probe>, now: Time) -> Option<Change> {
        end(probe);
        if self.summary.load(Ordering::Relaxed) == FINE {
            return None;
        }
        self.with(now, |state, _| state.handle_success(now))
    }

    /// A request has failed, for a reason that is the server's.
    pub(crate) fn handle_failure(&self, probe: Option<Probe>, now: Time) -> Option<Change> {
        let probe = end(probe);
        self.with(now, |state, rules| state.handle_failure(rules, probe, now))
    }

    /// Takes the permission to check the server, if it is time: one worker checks it for all.
    pub(crate) fn take_check(&self, now: Time) -> bool {
        let Some(checks) = self.rules.checks else { return false };
        self.with(now, |state, _| state.take_check(&checks, now))
    }

    /// The time of the next check; `None` if there are none.
    pub(crate) fn check_at(&self) -> Option<Time> {
        self.rules.checks.map(|_| self.lock().check_at)
    }

    /// A check has ended.
    pub(crate) fn handle_check(&self, passed: bool, now: Time) -> Option<Change> {
        let checks = self.rules.checks?;
        self.with(now, |state, _| state.handle_check(&checks, passed, now))
    }

    fn with<T>(&self, now: Time, act: impl FnOnce(&mut HealthState, &Rules) -> T) -> T {
        let mut state = self.lock();
        let result = act(&mut state, &self.rules);
        self.summary.store(state.summary(&self.rules, now), Ordering::Relaxed);
        result
    }

    /// No code under the lock can panic and leave a half-changed state.
    fn lock(&self) -> MutexGuard<'_, HealthState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends a probe that has an outcome. Returns the pause after which it was sent.
fn end(probe: Option<Probe>) -> Option<u64> {
    probe.map(|mut probe| {
        probe.has_outcome = true;
        probe.pause
    })
}

impl Drop for Probe {
    fn drop(&mut self) {
        if !self.has_outcome {
            // The time does not matter for a server that is down.
            self.health.with(Time::default(), |state, _| state.handle_lost_probe(self.pause));
        }
    }
}

impl fmt::Debug for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Health({:?})", *self.lock())
    }
}

impl fmt::Debug for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Probe")
    }
}

#[cfg(test)]
mod tests;
