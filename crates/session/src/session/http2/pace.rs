//! The rate of the responses of one connection: those of routes with a rate share it, and others are not slowed.

use core::num::NonZeroU64;
use core::time::Duration;

use ring::Time;

/// A paced connection sends the bytes of this time in one step. It is the precision of deadlines.
const PACE_TIME: Duration = Duration::from_millis(250);
/// The most time whose bytes are made up for, because deadlines pass late. A client that paused does not get the bytes of the
/// pause.
const LATE_MAX: Duration = Duration::from_secs(1);

/// The rate of the responses of a connection that have one.
#[derive(Debug)]
pub(super) struct Pace {
    rate: NonZeroU64,
    /// The bytes that may be sent before the next refill.
    room: u64,
    refilled: Time,
    /// True if a lane waits for the refill.
    is_wanted: bool,
}

impl Pace {
    pub(super) fn new(rate: NonZeroU64, now: Time) -> Self {
        Self { rate, room: bytes_of(rate, PACE_TIME), refilled: now, is_wanted: false }
    }

    /// Another response has this rate.
    pub(super) fn slow_down(&mut self, rate: NonZeroU64) {
        self.rate = self.rate.min(rate);
    }

    /// Allows the bytes of the time since the last refill.
    pub(super) fn refill(&mut self, now: Time) {
        let most = bytes_of(self.rate, LATE_MAX);
        let since = now.since(self.refilled).min(LATE_MAX);
        self.room = (self.room + bytes_of(self.rate, since)).min(most);
        self.refilled = now;
        self.is_wanted = false;
    }

    /// The bytes that may be sent now.
    pub(super) const fn room(&self) -> u64 {
        self.room
    }

    /// Records bytes that are sent, at most the room.
    pub(super) const fn spend(&mut self, bytes: u64) {
        self.room -= bytes;
    }

    /// Records that a lane waits for the refill.
    pub(super) const fn want(&mut self) {
        self.is_wanted = true;
    }

    /// The time of the next refill, if a lane waits for it.
    pub(super) fn due(&self) -> Option<Time> {
        self.is_wanted.then(|| self.refilled + PACE_TIME)
    }
}

/// The bytes of a time at a rate, at least one.
fn bytes_of(rate: NonZeroU64, time: Duration) -> u64 {
    let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    (rate.get().saturating_mul(millis) / 1000).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(bytes: u64) -> NonZeroU64 {
        NonZeroU64::new(bytes).expect("not zero")
    }

    #[test]
    fn the_lowest_rate_counts_and_time_has_its_bytes() {
        let now = Time::from_nanos(1_000_000_000);
        let mut pace = Pace::new(rate(4000), now);
        assert_eq!((pace.room(), pace.due()), (1000, None));
        pace.spend(1000);
        pace.want();
        assert_eq!(pace.due(), Some(now + PACE_TIME));
        pace.slow_down(rate(400));
        pace.slow_down(rate(8000));
        pace.refill(now + PACE_TIME);
        assert_eq!((pace.room(), pace.due()), (100, None));
        assert_eq!(Pace::new(rate(1), now).room(), 1, "some byte can be sent");
        let mut late = Pace::new(rate(4000), now);
        late.spend(1000);
        late.refill(now + 2 * PACE_TIME);
        assert_eq!(late.room(), 2000, "a deadline that passes late costs no bytes");
        late.refill(now + 100 * PACE_TIME);
        assert_eq!(late.room(), 4000, "a pause is not made up for");
    }
}
