//! The time of day, from a monotonic clock that is read anyway and a look at the other clock each second.

use core::cell::Cell;
use core::time::Duration;

use crate::timers::Time;

/// The time of the last look, and the nanoseconds that the other clock showed then.
#[derive(Debug, Default)]
pub(crate) struct Wall(Cell<Option<(Time, u64)>>);

/// The time after which a changed clock is noticed.
const LOOK_EVERY: Duration = Duration::from_secs(1);
const NANOS: u64 = 1_000_000_000;

impl Wall {
    /// Seconds since 1970 at `now`, and the nanoseconds since that second began. `look` reads the other clock, in
    /// nanoseconds.
    pub(crate) fn clock(&self, now: Time, look: impl FnOnce() -> u64) -> (i64, u32) {
        let (at, then) = match self.0.get() {
            Some((at, then)) if now >= at && now.since(at) < LOOK_EVERY => (at, then),
            _ => (now, look()),
        };
        self.0.set(Some((at, then)));
        let nanos = then + (now.as_nanos() - at.as_nanos());
        let second =
            i64::try_from(nanos / NANOS).expect("a u64 of nanoseconds has 34 bits of seconds");
        (second, u32::try_from(nanos % NANOS).expect("less than a second"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_other_clock_is_looked_at_each_second() {
        let wall = Wall::default();
        let looks = Cell::new(0);
        let read = |millis: u64, other: u64| {
            let now = Time::from_nanos(millis * 1_000_000);
            let look = || {
                looks.set(looks.get() + 1);
                other * 1_000_000
            };
            let (second, nanos) = wall.clock(now, look);
            (second, nanos / 1_000_000, looks.get())
        };
        assert_eq!(read(50, 1_950), (1, 950, 1));
        assert_eq!(read(1_049, 0), (2, 949, 1), "it goes on by itself");
        assert_eq!(read(1_050, 7_000), (7, 0, 2), "it was set");
        assert_eq!(read(1_149, 0), (7, 99, 2));
        assert_eq!(read(1_049, 8_000), (8, 0, 3), "a time that has passed");
    }
}
