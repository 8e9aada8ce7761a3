//! A rate for sockets that the kernel does not pace: bytes for each slice of time.

use core::num::NonZeroU64;
use core::time::Duration;

use ring::Time;

/// A socket is sent to ten times per second at most.
const SLICE: Duration = Duration::from_millis(100);
const BYTES_PER_SECOND_MIN: NonZeroU64 = NonZeroU64::new(10).expect("not zero");
const NANOS: u128 = 1_000_000_000;

/// The bytes of one socket, at a rate.
///
/// Sent bytes take their time at the rate. A slice may be sent ahead; then the socket waits until its time
/// has passed. A slice that was missed because a timer was late is made up for, but no more: a peer that
/// paused does not get the bytes of the pause.
#[derive(Debug)]
pub struct Slices {
    bytes_per_second: NonZeroU64,
    /// The time at which everything that was sent would have left at the rate.
    paid_until: Time,
    /// The bytes of the slice that may still be sent. At zero, the next bytes leave when a whole slice is
    /// due: a few bytes come due with each microsecond, and a send for each few would keep the CPU busy.
    left: u64,
}

impl Slices {
    /// A rate of less than a byte in a slice is one of a byte.
    #[must_use]
    pub fn new(bytes_per_second: NonZeroU64, now: Time) -> Self {
        Self {
            bytes_per_second: bytes_per_second.max(BYTES_PER_SECOND_MIN),
            paid_until: now,
            left: 0,
        }
    }

    /// The bytes that may be sent now.
    ///
    /// # Errors
    ///
    /// If there are none, the time at which the next slice may be sent.
    pub fn room(&mut self, now: Time) -> Result<NonZeroU64, Time> {
        if self.left == 0 && now < self.paid_until {
            return Err(self.paid_until);
        }
        if now.since(self.paid_until) > SLICE {
            self.paid_until = Time::from_nanos(now.as_nanos() - nanos(SLICE));
        }
        let left = (now + SLICE).since(self.paid_until);
        let bytes = u128::from(self.bytes_per_second.get()) * left.as_nanos() / NANOS;
        self.left = u64::try_from(bytes).unwrap_or(u64::MAX);
        // There is a byte in a slice, so the time is not over yet.
        NonZeroU64::new(self.left).ok_or(self.paid_until)
    }

    /// Notes that this many bytes have been sent.
    pub fn spend(&mut self, bytes: u64) {
        let time = (u128::from(bytes) * NANOS).div_ceil(self.bytes_per_second.get().into());
        let time = u64::try_from(time).unwrap_or(u64::MAX);
        self.paid_until = self.paid_until + Duration::from_nanos(time);
        self.left -= bytes.min(self.left);
    }
}

const fn nanos(duration: Duration) -> u64 {
    duration.as_secs() * 1_000_000_000 + duration.subsec_nanos() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Time {
        Time::from_nanos(1_000_000_000_000) + Duration::from_millis(millis)
    }

    /// The bytes sent in `millis` by a sender that always has some, and how often it slept. Its timers are
    /// late by `late` milliseconds.
    fn run(rate: u64, millis: u64, mut late: impl FnMut() -> u64) -> (u64, u32) {
        let mut slices = Slices::new(NonZeroU64::new(rate).unwrap(), at(0));
        let (mut now, mut sent, mut sleeps, mut sends) = (at(0), 0, 0, 0_u64);
        while now < at(millis) {
            match slices.room(now) {
                Ok(room) => {
                    let bytes = room.get().min(64 * 1024);
                    slices.spend(bytes);
                    sent += bytes;
                    sends += 1;
                    now = now + Duration::from_micros(2);
                }
                Err(until) => {
                    assert!(until > now, "time goes on");
                    now = until + Duration::from_millis(late());
                    sleeps += 1;
                }
            }
        }
        assert!(sends <= sent / (64 * 1024) + 2 * u64::from(sleeps) + 2, "{sends} sends of {sent}");
        (sent, sleeps)
    }

    #[test]
    fn the_rate_is_exact_also_with_late_timers() {
        for rate in [10_u64, 1000, 65_537, 1 << 20, 20 << 20, 1 << 30] {
            let mut random = testkit::Random::new(rate);
            let mut jitter = || random.below(60);
            for (sent, sleeps) in
                [run(rate, 60_000, || 0), run(rate, 60_000, || 7), run(rate, 60_000, &mut jitter)]
            {
                // Each piece may cost a nanosecond too much, and one slice is sent ahead.
                let (least, most) = (rate * 60 / 1000 * 999, rate * 60 + rate / 5 + 1);
                assert!((least..=most).contains(&sent), "{rate}: {sent} of {least}");
                assert!(sleeps <= 610, "{sleeps} timers in a minute");
            }
        }
    }

    #[test]
    fn a_pause_is_not_made_up_for() {
        let mut slices = Slices::new(NonZeroU64::new(1000).unwrap(), at(0));
        assert_eq!(slices.room(at(0)).unwrap().get(), 100);
        slices.spend(100);
        assert_eq!(slices.room(at(0)), Err(at(100)));
        assert_eq!(slices.room(at(99)), Err(at(100)));
        assert_eq!(slices.room(at(10_000)).unwrap().get(), 200, "two slices");
        slices.spend(200);
        assert_eq!(slices.room(at(10_000)), Err(at(10_100)));
    }

    #[test]
    fn any_rate_is_possible() {
        for rate in [1, u64::MAX] {
            let mut slices = Slices::new(NonZeroU64::new(rate).unwrap(), at(0));
            for turn in 0..100 {
                match slices.room(at(turn * 10)) {
                    Ok(room) => slices.spend(room.get()),
                    Err(until) => assert!(until > at(turn * 10)),
                }
            }
            slices.spend(u64::MAX);
            let _ = slices.room(at(2000));
        }
    }
}
