//! Pacing: frames leave at a rate, not all together when an acknowledgement opens the window.

use crate::tcp::clock::later;
use crate::time::Time;

/// Paths with a shorter round trip are not paced: their bursts are short, and timers would cost more than they
/// gain.
const RTT_MIN_US: u32 = 1_000;

/// The segments that leave at once if nothing was in flight: the initial window (RFC 6928).
const BURST_SEGMENTS: u32 = 10;

/// The maximum delay that a sender catches up with, because timers are late and must not lower the rate.
const CATCH_UP_US: u64 = 2_000;

/// A frame carries the bytes of this time, but at least two segments, as in Linux (`tcp_tso_autosize`).
const FRAME_US: u64 = 1_000;

/// The rate at which data leaves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rate {
    /// Bytes in a second; `None` without pacing.
    bytes_per_s: Option<u64>,
}

impl Rate {
    /// No pacing.
    pub(crate) const UNLIMITED: Self = Self { bytes_per_s: None };

    /// A rate in bytes a second; unlimited on paths that are too short for pacing.
    pub(crate) fn new(bytes_per_s: u64, srtt_us: u32) -> Self {
        if srtt_us < RTT_MIN_US {
            return Self::UNLIMITED;
        }
        Self { bytes_per_s: Some(bytes_per_s.max(1)) }
    }

    /// The rate for a window. In slow start the window doubles in a round trip, and so does the rate;
    /// later the rate is a quarter above the window's, so that the window is the limit.
    pub(crate) fn of(cwnd: u32, srtt_us: u32, is_slow_start: bool) -> Self {
        let quarters = if is_slow_start { 8 } else { 5 };
        Self::new(u64::from(cwnd) * quarters * 250_000 / u64::from(srtt_us.max(1)), srtt_us)
    }

    /// Bytes of the largest frame at this rate.
    pub(crate) fn frame_bytes(self, mss: u32) -> u32 {
        let Some(rate) = self.bytes_per_s else { return u32::MAX };
        let bytes = rate.saturating_mul(FRAME_US) / 1_000_000;
        u32::try_from(bytes).unwrap_or(u32::MAX).max(2 * mss)
    }
}

/// The clock of departures of frames.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pacing {
    /// The earliest time at which the next frame leaves.
    next_at: Time,
    /// The bytes that may still leave without a wait.
    burst_bytes: u32,
    /// `Some` while the connection waits.
    waits_until: Option<Time>,
}

impl Pacing {
    /// Restarts with nothing in flight: the first segments leave at once.
    pub(crate) fn restart(&mut self, mss: u32) {
        *self = Self { burst_bytes: BURST_SEGMENTS * mss, ..Self::default() };
    }

    /// True if data leaves without a wait, so that the rate does not matter.
    pub(crate) const fn is_bursting(&self) -> bool {
        self.burst_bytes > 0
    }

    /// Returns the time to wait for, if data may not leave now.
    pub(crate) fn wait(&mut self, now: Time, rate: Rate) -> Option<Time> {
        let must_wait = rate.bytes_per_s.is_some() && now < self.next_at;
        self.waits_until = must_wait.then_some(self.next_at);
        self.waits_until
    }

    /// Records bytes that have left. The rate does not matter in a burst.
    pub(crate) fn sent(&mut self, now: Time, bytes: u32, rate: Rate) {
        self.waits_until = None;
        if self.is_bursting() {
            self.burst_bytes = self.burst_bytes.saturating_sub(bytes);
            return;
        }
        let Some(rate) = rate.bytes_per_s else { return };
        let earliest = now.as_nanos().saturating_sub(CATCH_UP_US * 1_000);
        let begins = Time::from_nanos(earliest.max(self.next_at.as_nanos()));
        self.next_at = later(begins, u64::from(bytes) * 1_000_000 / rate);
    }

    /// The time for which the connection waits.
    pub(crate) const fn deadline(&self) -> Option<Time> {
        self.waits_until
    }

    /// Returns true if the wait is over, and ends it.
    pub(crate) fn is_due(&mut self, now: Time) -> bool {
        self.waits_until.take_if(|at| *at <= now).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_on_this_machine_is_not_paced() {
        let mut pacing = Pacing::default();
        let rate = Rate::of(14_480, 999, false);
        for _ in 0..100 {
            assert_eq!(pacing.wait(Time::default(), rate), None);
            pacing.sent(Time::default(), 65_536, rate);
        }
        assert_eq!((rate.frame_bytes(1_448), pacing.deadline()), (u32::MAX, None));
    }

    #[test]
    fn the_first_segments_leave_at_once_and_the_others_at_the_rate() {
        let (mss, srtt_us, cwnd) = (1_000, 20_000, 40_000);
        for (is_slow_start, expected_us) in [(true, 10_000), (false, 16_000)] {
            let rate = Rate::of(cwnd, srtt_us, is_slow_start);
            let mut pacing = Pacing::default();
            pacing.restart(mss);
            let start = Time::from_nanos(1_000_000_000);
            let (mut now, mut at_once, mut sent) = (start, 0, 0);
            while sent < cwnd + BURST_SEGMENTS * mss {
                match pacing.wait(now, rate) {
                    Some(at) => {
                        assert_eq!(pacing.deadline(), Some(at));
                        assert!(at > now && !pacing.is_due(now) && pacing.is_due(at));
                        now = at;
                    }
                    None => {
                        at_once += if now == start { mss } else { 0 };
                        sent += mss;
                        pacing.sent(now, mss, rate);
                    }
                }
            }
            let us = u64::from(now.since(start).subsec_micros());
            assert!(at_once >= BURST_SEGMENTS * mss);
            assert!(us.abs_diff(expected_us) <= CATCH_UP_US + 500, "{us}");
        }
    }

    #[test]
    fn a_frame_is_a_millisecond_and_at_least_two_segments() {
        for (cwnd, expected) in [(10_000, 2_896), (1_000_000, 62_500)] {
            assert_eq!(Rate::of(cwnd, 20_000, false).frame_bytes(1_448), expected);
        }
    }
}
