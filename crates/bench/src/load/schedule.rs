//! Plans the times of requests. Pure: times are nanoseconds since the start of the load.
//!
//! The latency of a request counts from its planned time, even if it leaves later. Otherwise a
//! stalled server would delay the very requests that would have seen the stall ("coordinated
//! omission", Gil Tene 2013).

/// Nanoseconds since the load began.
pub type Nanos = u64;

/// The event that makes the next request leave.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Arrival {
    /// Sends after the previous response on the same connection: it finds a server's maximum.
    Closed,
    /// The clock, at equal distances. Requests per second.
    Even(f64),
    /// The clock, as independent users would: exponential distances. Requests per second.
    Poisson(f64),
}

impl Arrival {
    /// Requests per second, of an open loop.
    #[must_use]
    pub fn rate(self) -> Option<f64> {
        match self {
            Self::Closed => None,
            Self::Even(rate) | Self::Poisson(rate) => Some(rate),
        }
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
}

impl Schedule {
    /// The first request of an even schedule leaves at 0. `seed` is for [`Arrival::Poisson`].
    #[must_use]
    pub fn new(arrival: Arrival, seed: u64) -> Self {
        let mut schedule =
            Self { arrival, random: fastrand::Rng::with_seed(seed), taken: 0, next: 0.0 };
        if let Arrival::Poisson(rate) = arrival {
            schedule.next = schedule.gap(rate);
        }
        schedule
    }

    /// The time at which the next request is meant to leave; None in a closed loop.
    #[must_use]
    pub fn next(&self) -> Option<Nanos> {
        self.arrival.rate().map(|_| nanos(self.next))
    }

    /// Takes the next request if it is due.
    pub fn take_due(&mut self, now: Nanos) -> Option<Nanos> {
        let due = self.next().filter(|&at| at <= now)?;
        self.taken += 1;
        self.next = match self.arrival {
            Arrival::Closed => unreachable!("a closed loop has no next()"),
            // Not a sum, which would drift.
            #[allow(clippy::cast_precision_loss, reason = "exact below 2^53 requests")]
            Arrival::Even(rate) => self.taken as f64 / rate,
            Arrival::Poisson(rate) => self.next + self.gap(rate),
        };
        Some(due)
    }

    fn gap(&mut self, rate: f64) -> f64 {
        // 1 - [0, 1) is never 0, whose logarithm is infinite.
        -(1.0 - self.random.f64()).ln() / rate
    }
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "times are positive and far below 2^64 nanoseconds, 584 years"
)]
fn nanos(seconds: f64) -> Nanos {
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

    proptest! {
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
