//! Medians, quantiles and spread, and their certainty. Pure; no value is ever dropped.

/// A count as a number to reckon with: exact below 2^53, which no count here reaches.
#[allow(clippy::cast_precision_loss, reason = "as documented")]
pub(crate) fn float(count: impl TryInto<u64>) -> f64 {
    count.try_into().unwrap_or(u64::MAX) as f64
}

/// The `q`-quantile (0 to 1) of values in ascending order, interpolated between neighbours (type 7 of
/// Hyndman and Fan 1996, the default of R and numpy). NaN without values.
#[must_use]
pub fn quantile(sorted: &[f64], q: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else { return f64::NAN };
    #[allow(clippy::cast_precision_loss, reason = "positions below 2^52")]
    let position = q.clamp(0.0, 1.0) * last as f64;
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "between 0 and the length"
    )]
    let below = position as usize;
    let part = position.fract();
    // The neighbour has no weight then, even if it is infinite or no number.
    if part == 0.0 {
        return sorted[below];
    }
    sorted[below] + (sorted[below + 1] - sorted[below]) * part
}

/// The values in ascending order; NaN last.
#[must_use]
pub fn sorted(values: impl IntoIterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<_> = values.into_iter().collect();
    values.sort_unstable_by(f64::total_cmp);
    values
}

/// The median of values in any order. NaN without values.
#[must_use]
pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    quantile(&sorted(values), 0.5)
}

/// The median distance from the median, of values in ascending order: half of all values are
/// nearer. Not scaled to a normal distribution. NaN without values.
#[must_use]
pub fn mad(sorted: &[f64]) -> f64 {
    let middle = quantile(sorted, 0.5);
    median(sorted.iter().map(|value| (value - middle).abs()))
}

/// A distribution in seven numbers.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Spread {
    /// The number of values.
    pub count: usize,
    /// The least.
    pub min: f64,
    /// A quarter is below.
    pub q1: f64,
    /// Half is below.
    pub median: f64,
    /// Three quarters are below.
    pub q3: f64,
    /// 99 of 100 values are below.
    pub p99: f64,
    /// The greatest.
    pub max: f64,
}

impl Spread {
    /// The statistics of values in any order; `None` without values.
    #[must_use]
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let sorted = sorted(values);
        Some(Self {
            count: sorted.len(),
            min: *sorted.first()?,
            q1: quantile(&sorted, 0.25),
            median: quantile(&sorted, 0.5),
            q3: quantile(&sorted, 0.75),
            p99: quantile(&sorted, 0.99),
            max: *sorted.last()?,
        })
    }
}

/// A number and where it lies in 95 of 100 repetitions.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Interval {
    /// The lower end.
    pub low: f64,
    /// The best guess.
    pub value: f64,
    /// The upper end.
    pub high: f64,
}

/// Resamples of a bootstrap: enough for the 2.5 % quantile to rest on ten values.
const RESAMPLES: usize = 400;
/// Values a resample of a long series takes; the interval is widened to match (m out of n bootstrap,
/// Bickel and others 1997).
const RESAMPLE_MAX: usize = 2000;

/// The median with its 95 % interval (percentile bootstrap, seeded: same in, same out). It reflects
/// the spread among the values, not differences from run to run. `None` without values.
#[must_use]
pub fn median_interval(values: &[f64]) -> Option<Interval> {
    if values.is_empty() {
        return None;
    }
    let value = median(values.iter().copied());
    let mut random = fastrand::Rng::with_seed(1);
    let take = values.len().min(RESAMPLE_MAX);
    #[allow(clippy::cast_precision_loss, reason = "lengths below 2^52")]
    let shrink = (take as f64 / values.len() as f64).sqrt();
    let medians = sorted((0..RESAMPLES).map(|_| {
        let drawn = median((0..take).map(|_| values[random.usize(..values.len())]));
        value + (drawn - value) * shrink
    }));
    Some(Interval { low: quantile(&medians, 0.025), value, high: quantile(&medians, 0.975) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn quantiles_interpolate_as_in_r() {
        let values = [1.0, 2.0, 3.0, 4.0];
        for (q, want) in [(0.0, 1.0), (0.25, 1.75), (0.5, 2.5), (0.9, 3.7), (1.0, 4.0)] {
            assert!((quantile(&values, q) - want).abs() < 1e-12, "{q}");
        }
        assert!(quantile(&[], 0.5).is_nan());
        assert_eq!(mad(&[1.0, 1.0, 2.0, 2.0, 4.0, 6.0, 9.0]), 1.0);
    }

    #[test]
    fn one_outlier_moves_the_maximum_alone() {
        let quiet = Spread::of((0..1000).map(f64::from)).unwrap();
        let loud = Spread::of((0..1000).map(f64::from).chain([1e9])).unwrap();
        assert!((quiet.median - loud.median).abs() < 1.0);
        assert_eq!((loud.count, loud.max), (1001, 1e9));
    }

    #[test]
    fn the_interval_covers_the_truth_as_often_as_it_says() {
        let mut random = fastrand::Rng::with_seed(7);
        let mut draw = |scale: f64| -> Vec<f64> {
            (0..200).map(|_| scale * (1.0 + 0.2 * (random.f64() + random.f64() - 1.0))).collect()
        };
        let covered = (0..200)
            .filter(|_| {
                let interval = median_interval(&draw(1.5)).unwrap();
                (interval.low..=interval.high).contains(&1.5)
            })
            .count();
        assert!((178..=200).contains(&covered), "{covered} of 200");
    }

    proptest! {
        #[test]
        fn the_seven_numbers_are_in_order(values in prop::collection::vec(-1e9..1e9f64, 1..200)) {
            let s = Spread::of(values).unwrap();
            let row = [s.min, s.q1, s.median, s.q3, s.p99, s.max];
            prop_assert!(row.is_sorted(), "{row:?}");
        }
    }
}
