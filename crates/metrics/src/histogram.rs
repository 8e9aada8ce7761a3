//! Counters and histograms that one thread writes and others read.
//!
//! Relaxed loads and stores of one writer need no locked instruction: on the processors that samum runs on
//! they are plain moves. A reader sees each number as it is or shortly was, and never a smaller number than
//! before.

use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;

/// A number that one thread changes and others read.
#[derive(Debug, Default)]
pub struct Number(AtomicU64);

impl Number {
    /// Adds to the number. Only its one writer may call this: two would lose each other's additions.
    #[inline]
    pub fn add(&self, count: u64) {
        self.set(self.get().wrapping_add(count));
    }

    /// Subtracts from the number, as [`add`](Self::add) adds to it.
    #[inline]
    pub fn subtract(&self, count: u64) {
        self.set(self.get().wrapping_sub(count));
    }

    /// Replaces the number.
    #[inline]
    pub fn set(&self, value: u64) {
        // No other memory depends on it, so relaxed order is enough.
        self.0.store(value, Ordering::Relaxed);
    }

    /// Returns the number.
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// An upper bound of a bucket, and its text in the exposition.
pub(super) type Bound = (u64, &'static str);

/// The buckets of durations, in nanoseconds: the ones of OpenTelemetry's `http.server.request.duration`
/// (from 5 ms to 10 s), and six shorter ones, because a request for a file in memory takes less than a
/// millisecond.
pub(super) const DURATIONS: &[Bound; 20] = &[
    (50_000, "0.00005"),
    (100_000, "0.0001"),
    (250_000, "0.00025"),
    (500_000, "0.0005"),
    (1_000_000, "0.001"),
    (2_500_000, "0.0025"),
    (5_000_000, "0.005"),
    (10_000_000, "0.01"),
    (25_000_000, "0.025"),
    (50_000_000, "0.05"),
    (75_000_000, "0.075"),
    (100_000_000, "0.1"),
    (250_000_000, "0.25"),
    (500_000_000, "0.5"),
    (750_000_000, "0.75"),
    (1_000_000_000, "1"),
    (2_500_000_000, "2.5"),
    (5_000_000_000, "5"),
    (7_500_000_000, "7.5"),
    (10_000_000_000, "10"),
];

/// The buckets of the sizes of bodies, in bytes: powers of 8 from 512 bytes to 1 GiB.
pub(super) const SIZES: &[Bound; 8] = &[
    (1 << 9, "512"),
    (1 << 12, "4096"),
    (1 << 15, "32768"),
    (1 << 18, "262144"),
    (1 << 21, "2097152"),
    (1 << 24, "16777216"),
    (1 << 27, "134217728"),
    (1 << 30, "1073741824"),
];

/// The buckets of round trips, in nanoseconds, as the stack counts them.
pub(super) const ROUND_TRIPS: &[Bound; 8] = &[
    (100_000, "0.0001"),
    (1_000_000, "0.001"),
    (10_000_000, "0.01"),
    (50_000_000, "0.05"),
    (100_000_000, "0.1"),
    (250_000_000, "0.25"),
    (500_000_000, "0.5"),
    (1_000_000_000, "1"),
];

/// The number of observations in each of `N` buckets and above the last one, and the sum of the observed
/// values.
#[derive(Debug)]
pub(crate) struct Histogram<const N: usize> {
    bounds: &'static [Bound; N],
    counts: [Number; N],
    above: Number,
    /// In the unit of the bounds. It wraps, as counters of Prometheus may.
    sum: Number,
}

/// Durations in nanoseconds.
pub(crate) type Durations = Histogram<20>;
/// Sizes in bytes.
pub(crate) type Sizes = Histogram<8>;

/// The sum of several histograms with the same bounds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Total<const N: usize> {
    /// The observations in each bucket, and not in those before it.
    pub(super) counts: [u64; N],
    pub(super) above: u64,
    pub(super) sum: u64,
}

impl<const N: usize> Histogram<N> {
    pub(super) fn new(bounds: &'static [Bound; N]) -> Self {
        let counts = core::array::from_fn(|_| Number::default());
        Self { bounds, counts, above: Number::default(), sum: Number::default() }
    }

    /// Counts an observation.
    #[inline]
    pub(super) fn observe(&self, value: u64) {
        let bucket = self.bounds.iter().position(|(bound, _)| value <= *bound);
        bucket.map_or(&self.above, |bucket| &self.counts[bucket]).add(1);
        self.sum.add(value);
    }

    /// The sum of the observed values. It wraps.
    pub(super) fn sum(&self) -> u64 {
        self.sum.get()
    }

    /// Adds this histogram to a sum.
    pub(super) fn add_to(&self, total: &mut Total<N>) {
        for (total, count) in total.counts.iter_mut().zip(&self.counts) {
            *total += count.get();
        }
        total.above += self.above.get();
        total.sum = total.sum.wrapping_add(self.sum.get());
    }
}

impl Durations {
    /// Counts a duration.
    #[inline]
    pub(super) fn observe_duration(&self, duration: Duration) {
        self.observe(nanos(duration));
    }
}

impl<const N: usize> Total<N> {
    pub(super) const ZERO: Self = Self { counts: [0; N], above: 0, sum: 0 };

    /// Adds another sum.
    pub(super) fn add(&mut self, other: &Self) {
        for (count, more) in self.counts.iter_mut().zip(other.counts) {
            *count += more;
        }
        self.above += other.above;
        self.sum = self.sum.wrapping_add(other.sum);
    }
}

/// A duration in nanoseconds: 584 years at most.
#[inline]
pub(super) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn total<const N: usize>(histogram: &Histogram<N>) -> Total<N> {
        let mut total = Total::ZERO;
        histogram.add_to(&mut total);
        total
    }

    #[test]
    fn bounds_ascend_and_their_texts_say_the_same() {
        let all = [(&DURATIONS[..], 1e9), (&SIZES[..], 1.0), (&ROUND_TRIPS[..], 1e9)];
        for (bounds, unit) in all {
            assert!(bounds.is_sorted_by(|one, other| one.0 < other.0));
            for (bound, text) in bounds {
                let value = text.parse::<f64>().unwrap() * unit;
                assert_eq!(format!("{value:.0}"), bound.to_string(), "{text}");
            }
        }
        assert_eq!(DURATIONS[0], (50_000, "0.00005"));
        let stacks = netstack::tcp::RoundTrips::BOUNDS_US.map(|us| us * 1000);
        assert_eq!(ROUND_TRIPS.map(|(bound, _)| bound), stacks);
    }

    #[test]
    fn a_bound_belongs_to_its_bucket() {
        let histogram = Histogram::new(SIZES);
        for value in [0, 512, 513, 4096, 1 << 30, (1 << 30) + 1, u64::MAX] {
            histogram.observe(value);
        }
        let found = total(&histogram);
        assert_eq!((found.counts, found.above), ([2, 2, 0, 0, 0, 0, 0, 1], 2));
        // The largest of all counts as -1 where the sum wraps.
        assert_eq!(found.sum, 512 + 513 + 4096 + (1 << 30) + (1 << 30));
    }

    #[test]
    fn sums_of_several_writers_are_exact() {
        let histograms: Vec<_> = (0..3).map(|_| Histogram::new(DURATIONS)).collect();
        std::thread::scope(|scope| {
            for histogram in &histograms {
                scope.spawn(|| {
                    for micros in 0..1000 {
                        histogram.observe_duration(Duration::from_micros(micros));
                    }
                });
            }
        });
        let mut all = Total::ZERO;
        histograms.iter().for_each(|histogram| histogram.add_to(&mut all));
        let expected = [51, 50, 150, 250, 499].map(|count| 3 * count);
        assert_eq!((&all.counts[..5], all.above), (&expected[..], 0));
        assert_eq!(all.sum, 3 * 999 * 1000 / 2 * 1000);
        assert_eq!(nanos(Duration::MAX), u64::MAX);
    }
}
