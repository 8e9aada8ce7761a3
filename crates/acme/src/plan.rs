//! Decides what to do next for a certificate. Pure: the time is an argument, in seconds since 1970.
//!
//! ```text
//!   an order is under way ──────────────────────────► Continue        (nothing is asked twice)
//!   no certificate, or a name is missing ───────────► Order
//!   the authority may know a better time (ARI) ─────► AskWindow
//!   the time of renewal has come ───────────────────► Order
//!   otherwise, and while a failure is recent ───────► Wait
//! ```
//!
//! All times that count come from the storage, so a process that is started again and again asks no more often. Clocks can
//! be wrong: a remembered time that lies in the future was written under another clock, and does not count. A certificate
//! that was due at once when it came was issued by another clock than ours, and the next order waits for a day.

use crate::record::{FAILURES_PER_HOUR_MAX, ORDERS_PER_DAY_MAX, Record};

pub(crate) const MINUTE: i64 = 60;
pub(crate) const HOUR: i64 = 60 * MINUTE;
pub(crate) const DAY: i64 = 24 * HOUR;

/// The times between a failure and the next try: for the first failure in a row, the second, and so on.
const PAUSES: [i64; 6] = [MINUTE, 5 * MINUTE, 15 * MINUTE, HOUR, 3 * HOUR, 6 * HOUR];
/// The longest wait that an authority can ask for, and the longest that is decided in one step.
pub(crate) const WAIT_MAX: i64 = DAY;
/// The oldest order that is gone on with. Authorities keep orders for a week.
const ORDER_AGE_MAX: i64 = 7 * DAY;
/// The difference between two clocks that may be called right.
const CLOCK_TOLERANCE: i64 = HOUR;

/// The certificate that there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) not_before: i64,
    pub(crate) not_after: i64,
    /// True if it is valid for all names that are wanted.
    pub(crate) covers: bool,
}

/// The next step for a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Nothing before this time, which is at most a day away.
    Wait(i64),
    /// Ask the authority when to renew it.
    AskWindow,
    /// Go on with the order that is under way.
    Continue,
    /// Order it.
    Order,
}

impl Held {
    /// The time of renewal if the authority names none: two thirds of its life.
    fn two_thirds(self) -> i64 {
        let life = self.not_after.saturating_sub(self.not_before).max(0);
        self.not_before.saturating_add(life / 3 * 2)
    }

    /// The time of renewal: the one that the authority has named, but before the end of the certificate.
    pub(crate) fn due_at(self, record: &Record) -> i64 {
        record.renew_at.map_or_else(|| self.two_thirds(), |at| at.min(self.not_after))
    }

    /// Returns true if the certificate is not valid yet: the clock is wrong, and an order would not help.
    pub(crate) const fn is_early(self, now: i64) -> bool {
        self.not_before.saturating_sub(CLOCK_TOLERANCE) > now
    }

    /// Returns true if two thirds of the certificate were over in the moment in which it came: our clock is not that of
    /// the authority.
    pub(crate) fn came_late(self, record: &Record) -> bool {
        record.issued_at.is_some_and(|issued_at| self.two_thirds() <= issued_at)
    }
}

/// Decides the next step for a certificate.
pub(crate) fn next(record: &Record, held: Option<Held>, now: i64) -> Next {
    let wait =
        |until: i64| Next::Wait(until.clamp(now.saturating_add(1), now.saturating_add(WAIT_MAX)));
    let earliest = earliest(record, now);
    let has_order = record
        .order
        .as_ref()
        .is_some_and(|order| (now.saturating_sub(order.since)).saturating_abs() < ORDER_AGE_MAX);
    if has_order {
        return if earliest <= now { Next::Continue } else { wait(earliest) };
    }
    let Some(held) = held.filter(|held| held.covers) else {
        let earliest = earliest.max(orders_permit(record, now));
        return if earliest <= now { Next::Order } else { wait(earliest) };
    };
    if held.is_early(now) {
        return wait(held.not_before);
    }
    if record.ask_at.is_none_or(|at| at <= now || at > now.saturating_add(WAIT_MAX)) {
        return Next::AskWindow;
    }
    let mut due = held.due_at(record);
    if held.came_late(record)
        && let Some(issued_at) = record.issued_at.filter(|at| !is_ahead(*at, now))
    {
        due = due.max(issued_at.saturating_add(DAY));
    }
    if due > now {
        return wait(due.min(record.ask_at.unwrap_or(due)));
    }
    let earliest = earliest.max(orders_permit(record, now));
    if earliest <= now { Next::Order } else { wait(earliest) }
}

/// The pause after this many failures in a row.
pub(crate) fn pause(streak: u32) -> i64 {
    let index = usize::try_from(streak.saturating_sub(1)).unwrap_or(usize::MAX);
    PAUSES[index.min(PAUSES.len() - 1)]
}

/// The earliest time for the next message after failures.
fn earliest(record: &Record, now: i64) -> i64 {
    let failures = || record.failures.iter().copied().filter(|at| !is_ahead(*at, now));
    let after_last = if record.streak == 0 {
        0
    } else {
        failures().max().map_or(0, |last| last.saturating_add(pause(record.streak)))
    };
    let asked = record.not_before.filter(|at| *at <= now.saturating_add(WAIT_MAX)).unwrap_or(0);
    after_last.max(asked).max(permits(failures(), FAILURES_PER_HOUR_MAX, HOUR))
}

/// The earliest time for the next order after those of the last day.
fn orders_permit(record: &Record, now: i64) -> i64 {
    let orders = record.orders.iter().copied().filter(|at| !is_ahead(*at, now));
    permits(orders, ORDERS_PER_DAY_MAX, DAY)
}

/// Returns true if a time was written under another clock.
const fn is_ahead(at: i64, now: i64) -> bool {
    at > now.saturating_add(CLOCK_TOLERANCE)
}

/// The earliest time for one event more, if there may be `max` in a `period`.
fn permits(events: impl Iterator<Item = i64>, max: usize, period: i64) -> i64 {
    let mut events: Vec<_> = events.collect();
    events.sort_unstable();
    let first_that_counts = events.len().checked_sub(max).and_then(|index| events.get(index));
    first_that_counts.map_or(0, |at| at.saturating_add(period))
}

#[cfg(test)]
mod tests;
