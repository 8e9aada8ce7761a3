//! Plans the times of requests. Pure: times are nanoseconds since the start of the load.
//!
//! The latency of a request counts from its planned time, even if it leaves later. Otherwise a
//! stalled server would delay the very requests that would have seen the stall ("coordinated
//! omission", Gil Tene 2013).

use core::time::Duration;

/// Nanoseconds since the load began.
pub type Nanos = u64;

/// A duration in nanoseconds; longer ones count as 584 years.
pub(crate) fn nanos(duration: Duration) -> Nanos {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// The event that makes the next request leave.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Arrival {
    /// Sends after the previous response on the same connection: it finds a server's maximum.
    Closed,
    /// The clock, at equal distances. Requests per second.
    Even(f64),
    /// The clock, as independent users would: exponential distances. Requests per second.
    Poisson(f64),
    /// The clock, as independent users who become more would.
    Ramp(Ramp),
}

/// A rate that grows steadily, and stays when it has grown: an inhomogeneous Poisson process.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ramp {
    /// Requests per second at the start; above 0.
    pub from: f64,
    /// Requests per second at the end, at least as many.
    pub to: f64,
    /// The time from the start to the end, seconds; above 0.
    pub seconds: f64,
}

impl Ramp {
    /// The rate at a time, in requests per second.
    #[must_use]
    pub fn rate(self, second: f64) -> f64 {
        self.from + self.slope() * second.clamp(0.0, self.seconds)
    }

    /// The number of requests that are expected until a time.
    #[must_use]
    pub fn expected(self, second: f64) -> f64 {
        let grown = second.clamp(0.0, self.seconds);
        let growing = (self.from + self.slope() / 2.0 * grown) * grown;
        growing + self.to * (second - grown).max(0.0)
    }

    /// The time until which this many requests are expected: the inverse of [`Self::expected`].
    fn time_of(self, expected: f64) -> f64 {
        let growing = self.expected(self.seconds);
        if expected > growing {
            return self.seconds + (expected - growing) / self.to;
        }
        // The root of slope/2 t² + from t = expected, in the form that also holds for a slope of 0.
        let root = self.from.mul_add(self.from, 2.0 * self.slope() * expected).sqrt();
        2.0 * expected / (self.from + root)
    }

    fn slope(self) -> f64 {
        (self.to - self.from) / self.seconds
    }
}

/// The times of an open loop's requests, one after the other. It holds only one time, even if many
/// are due: those are taken later, and are then late.
#[derive(Debug)]
pub struct Schedule {
    arrival: Arrival,
    random: fastrand::Rng,
    taken: u64,
    /// Seconds, so that the distances of a Poisson process add up without rounding.
    next: f64,
    /// Of a [`Ramp`]: the number of requests that are expected until then.
    expected: f64,
}

impl Schedule {
    /// The first request of an even schedule leaves at 0. `seed` is for [`Arrival::Poisson`] and [`Arrival::Ramp`].
    #[must_use]
    pub fn new(arrival: Arrival, seed: u64) -> Self {
        let random = fastrand::Rng::with_seed(seed);
        let mut schedule = Self { arrival, random, taken: 0, next: 0.0, expected: 0.0 };
        if let Arrival::Poisson(_) | Arrival::Ramp(_) = arrival {
            schedule.next = schedule.following();
        }
        schedule
    }

    /// The time at which the next request is meant to leave; `None` in a closed loop.
    #[must_use]
    pub fn next(&self) -> Option<Nanos> {
        (self.arrival != Arrival::Closed).then(|| nanos_of(self.next))
    }

    /// Takes the next request if it is due.
    pub fn take_due(&mut self, now: Nanos) -> Option<Nanos> {
        let due = self.next().filter(|&at| at <= now)?;
        self.taken += 1;
        self.next = self.following();
        Some(due)
    }

    /// The time of the request after [`Self::next`], in seconds.
    fn following(&mut self) -> f64 {
        match self.arrival {
            Arrival::Closed => unreachable!("a closed loop has no next()"),
            // Not a sum, which would drift.
            #[allow(clippy::cast_precision_loss, reason = "exact below 2^53 requests")]
            Arrival::Even(rate) => self.taken as f64 / rate,
            Arrival::Poisson(rate) => self.next + self.gap() / rate,
            // A process with a changing rate is one with the rate 1 in the time of expected requests.
            Arrival::Ramp(ramp) => {
                self.expected += self.gap();
                ramp.time_of(self.expected)
            }
        }
    }

    /// The distance of two requests at one request per second, in seconds.
    fn gap(&mut self) -> f64 {
        // 1 - [0, 1) is never 0, whose logarithm is infinite.
        -(1.0 - self.random.f64()).ln()
    }
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "times are positive and far below 2^64 nanoseconds, 584 years"
)]
fn nanos_of(seconds: f64) -> Nanos {
    (seconds * 1e9).round() as Nanos
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn take(schedule: &mut Schedule, until: Nanos) -> Vec<Nanos> {
        core::iter::from_fn(|| schedule.take_due(until)).collect()
    }

    #[test]
    fn even_times_do_not_drift() {
        let mut schedule = Schedule::new(Arrival::Even(3.0), 0);
        let times = take(&mut schedule, 3_600_000_000_000);
        assert_eq!(times.len(), 3 * 3600 + 1);
        assert_eq!(times[..3], [0, 333_333_333, 666_666_667]);
        assert_eq!(times.last(), Some(&3_600_000_000_000));
    }

    #[test]
    fn a_closed_loop_has_no_times() {
        let mut schedule = Schedule::new(Arrival::Closed, 0);
        assert_eq!(schedule.next(), None);
        assert_eq!(schedule.take_due(u64::MAX), None);
    }

    #[test]
    fn what_is_not_due_stays() {
        let mut schedule = Schedule::new(Arrival::Even(1000.0), 0);
        assert_eq!(schedule.take_due(0), Some(0));
        assert_eq!(schedule.take_due(999_999), None);
        assert_eq!(schedule.next(), Some(1_000_000));
        assert_eq!(schedule.take_due(5_000_000), Some(1_000_000), "meant earlier than it leaves");
    }

    #[test]
    fn a_ramp_that_does_not_grow_is_a_poisson_process() {
        let ramp = Ramp { from: 50.0, to: 50.0, seconds: 3.0 };
        for arrival in [Arrival::Ramp(ramp), Arrival::Poisson(50.0)] {
            let times = take(&mut Schedule::new(arrival, 7), 10_000_000_000);
            assert!((400..600).contains(&times.len()), "{arrival:?}: {}", times.len());
        }
        assert!((ramp.expected(10.0) - 500.0).abs() < 1e-9 && ramp.rate(99.0) == 50.0);
    }

    proptest! {
        /// The numbers of requests in windows of a ramp are those of its rate, to six standard deviations.
        #[test]
        fn a_ramp_grows_as_it_says(
            seed in any::<u64>(),
            from in 0.5..500.0f64,
            more in 0.0..5000.0f64,
            seconds in 1.0..20.0f64,
        ) {
            let ramp = Ramp { from, to: from + more, seconds };
            let mut schedule = Schedule::new(Arrival::Ramp(ramp), seed);
            let end = 1.5 * seconds;
            let times = take(&mut schedule, nanos_of(end));
            prop_assert!(times.is_sorted());
            for window in 0..6 {
                let [a, b] = [window, window + 1].map(|nth| end * f64::from(nth) / 6.0);
                let expected = ramp.expected(b) - ramp.expected(a);
                let is_in = |time: &&Nanos| (a..b).contains(&(**time as f64 / 1e9));
                let count = times.iter().filter(is_in).count() as f64;
                prop_assert!((count - expected).abs() < 6.0 * expected.sqrt() + 6.0, "{count}, {expected}");
            }
        }

        /// Poisson: mean distance 1/rate; its standard deviation is as large as its mean.
        #[test]
        fn poisson_distances_are_exponential(seed in any::<u64>(), rate in 10.0..1e5f64) {
            let mut schedule = Schedule::new(Arrival::Poisson(rate), seed);
            let n = 10_000;
            let times: Vec<f64> =
                (0..n).filter_map(|_| schedule.take_due(u64::MAX)).map(|t| t as f64 / 1e9).collect();
            prop_assert!(times.is_sorted());
            let gaps: Vec<f64> = times.windows(2).map(|w| (w[1] - w[0]) * rate).collect();
            let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
            let variance = gaps.iter().map(|g| (g - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
            // Standard errors: 0.01 of the mean, 0.028 of the variance. Six of each.
            prop_assert!((mean - 1.0).abs() < 0.06, "mean {mean}");
            prop_assert!((variance - 1.0).abs() < 0.17, "variance {variance}");
        }
    }
}
