//! The round trip and the retransmission timeout (RFC 6298).

use crate::tcp::clock::elapsed_us;
use crate::time::Time;

/// The timeout before a round trip was measured (RFC 6298, 2.1).
const RTO_INITIAL_US: u64 = 1_000_000;

/// The minimum that the timeout adds to the smoothed round trip. RFC 6298, 2.4, wants a timeout of at least one
/// second. This stack follows Linux: peers delay an acknowledgement by up to 200 ms, so the timeout of a short path
/// is the round trip and this delay. A tail loss then costs a fifth of the RFC's timeout. A timeout that was too
/// early is undone (`undo`).
const VARIANCE_MIN_US: u64 = 200_000;

/// The longest timeout (RFC 6298, 2.5).
const RTO_MAX_US: u64 = 60_000_000;

/// The maximum doublings of the timeout; further ones would not change it.
const BACKOFF_MAX: u8 = 16;

/// The minimum round trip is taken over a window of this length and the window before it.
const MIN_WINDOW_US: u32 = 5_000_000;

/// The estimator.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rtt {
    /// The smoothed round trip in microseconds; 0 if none was measured.
    srtt_us: u32,
    /// The mean deviation of the round trip in microseconds.
    rttvar_us: u32,
    /// The number of doublings of the timeout since the last measurement.
    backoff: u8,
    /// The minima of this window and of the window before; 0 without a measurement.
    min_us: [u32; 2],
    /// The begin of this window.
    min_since: Time,
}

impl Rtt {
    /// Begins with the values that `save` has returned.
    pub(crate) fn load(srtt_us: u32, rttvar_us: u32) -> Self {
        Self { srtt_us, rttvar_us, ..Self::default() }
    }

    /// The smoothed round trip and its deviation. A doubled timeout keeps its length, because without a measurement
    /// there is no better value (RFC 6298, 5.7, and Karn's algorithm).
    pub(crate) fn save(&self) -> (u32, u32) {
        if self.backoff == 0 {
            return (self.srtt_us, self.rttvar_us);
        }
        let deviation = self.rto_us().saturating_sub(u64::from(self.srtt_us)) / 4;
        (self.srtt_us, u32::try_from(deviation).unwrap_or(u32::MAX))
    }

    /// Uses a measurement from a segment that was sent once, or from timestamps (RFC 6298, 2.2, 2.3, and 3).
    pub(crate) fn sample(&mut self, rtt_us: u32) {
        let r = rtt_us.max(1);
        if self.srtt_us == 0 {
            (self.srtt_us, self.rttvar_us) = (r, r / 2);
        } else {
            let deviation = u64::from(self.srtt_us.abs_diff(r));
            self.rttvar_us = eighths(6, self.rttvar_us, 2, deviation);
            self.srtt_us = eighths(7, self.srtt_us, 1, u64::from(r)).max(1);
        }
        self.backoff = 0;
    }

    /// Records the round trip of the segment that was delivered last, for the minimum.
    pub(crate) fn note_least(&mut self, now: Time, rtt_us: u32) {
        let r = rtt_us.max(1);
        if elapsed_us(now, self.min_since) > MIN_WINDOW_US {
            self.min_us = [r, self.min_us[0]];
            self.min_since = now;
        } else if self.min_us[0] == 0 || r < self.min_us[0] {
            self.min_us[0] = r;
        }
    }

    /// The smoothed round trip in microseconds; 0 if none was measured.
    pub(crate) const fn srtt_us(&self) -> u32 {
        self.srtt_us
    }

    /// The minimum round trip of the last seconds; the smoothed round trip without a measurement in this time.
    pub(crate) fn min_us(&self) -> u32 {
        match self.min_us {
            [0, 0] => self.srtt_us,
            [now, 0] => now,
            [0, before] => before,
            [now, before] => now.min(before),
        }
    }

    /// The retransmission timeout.
    pub(crate) fn rto_us(&self) -> u64 {
        let variance = 4 * u64::from(self.rttvar_us);
        let rto = match self.srtt_us {
            0 => variance.max(RTO_INITIAL_US),
            srtt => u64::from(srtt) + variance.max(VARIANCE_MIN_US),
        };
        (rto << self.backoff).min(RTO_MAX_US)
    }

    /// Doubles the timeout (RFC 6298, 5.5).
    pub(crate) fn back_off(&mut self) {
        self.backoff = (self.backoff + 1).min(BACKOFF_MAX);
    }

    /// Undoes the doublings after a spurious timeout.
    pub(crate) fn forgive(&mut self) {
        self.backoff = 0;
    }
}

/// `(a·x + b·y) / 8`.
fn eighths(a: u64, x: u32, b: u64, y: u64) -> u32 {
    u32::try_from((a * u64::from(x) + b * y) / 8).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rtt(samples: &[u32]) -> Rtt {
        let mut rtt = Rtt::default();
        for us in samples {
            rtt.sample(*us);
        }
        rtt
    }

    #[test]
    fn rfc6298_2_the_estimate() {
        for (samples, srtt_us, rttvar_us, rto_us) in [
            (&[][..], 0, 0, 1_000_000),
            (&[100_000], 100_000, 50_000, 300_000),
            (&[500_000], 500_000, 250_000, 1_500_000),
            (&[100_000, 100_000], 100_000, 37_500, 300_000),
            (&[100_000, 900_000], 200_000, 237_500, 1_150_000),
            (&[20], 20, 10, 200_020),
            (&[0], 1, 0, 200_001),
            (&[u32::MAX, u32::MAX], u32::MAX, 1_610_612_735, 60_000_000),
        ] {
            let rtt = rtt(samples);
            let found = (rtt.srtt_us, rtt.rttvar_us, rtt.rto_us());
            assert_eq!(found, (srtt_us, rttvar_us, rto_us), "{samples:?}");
        }
    }

    #[test]
    fn rfc6298_5_5_the_timeout_is_doubled_up_to_a_minute_and_until_a_measurement() {
        let mut rtt = rtt(&[100_000]);
        for expected in [600_000, 1_200_000, 2_400_000] {
            rtt.back_off();
            assert_eq!(rtt.rto_us(), expected);
        }
        for _ in 0..300 {
            rtt.back_off();
        }
        assert_eq!(rtt.rto_us(), RTO_MAX_US);
        rtt.sample(100_000);
        assert_eq!(rtt.rto_us(), 300_000);
    }

    #[test]
    fn a_doubled_timeout_survives() {
        for samples in [&[][..], &[100_000], &[700_000, 900_000]] {
            let mut rtt = rtt(samples);
            rtt.back_off();
            rtt.back_off();
            let (srtt_us, rttvar_us) = rtt.save();
            let loaded = Rtt::load(srtt_us, rttvar_us);
            assert!(loaded.rto_us().abs_diff(rtt.rto_us()) < 4, "{samples:?}: {loaded:?}");
        }
    }

    #[test]
    fn the_least_round_trip_is_of_the_last_seconds() {
        let mut rtt = rtt(&[50_000]);
        assert_eq!(rtt.min_us(), 50_000);
        let at = |s: u64| Time::from_nanos(s * 1_000_000_000);
        for (s, us, expected) in
            [(0, 40_000, 40_000), (1, 30_000, 30_000), (6, 60_000, 30_000), (12, 70_000, 60_000)]
        {
            rtt.note_least(at(s), us);
            assert_eq!(rtt.min_us(), expected, "after {s} s");
        }
    }
}
