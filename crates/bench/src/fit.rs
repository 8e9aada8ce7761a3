//! Finds the curve of a growth: constant, logarithmic, linear or worse. Pure.
//!
//! 1. The points are cut into bins along the steps, narrow at the beginning where a logarithm bends. Each
//!    bin becomes the median of its values, so an outlier counts as one point at any distance.
//! 2. Each candidate `a + b·f(x)` is fitted to the medians by least squares, weighted by the certainty of
//!    each median. It is scored by leaving each bin out in turn (PRESS, Allen 1974).
//! 3. The better score wins, but the simpler curve is kept if the other gains little. A growth by less
//!    than [`GROWTH_MIN`] over the whole range is constant, because caches and frequency cause as much.
//! 4. Points that a single step up explains much better than any curve are a step, even if only the last
//!    bin lies above it. A growth by more than [`GROWTH_MIN`] that fits no curve is never constant.
//! 5. The same is done with resampled bins; the share that agrees is the confidence.
//! 6. The last bin is wide, so it is searched for a step within, unless a curve is sure already.

use core::fmt;

use serde::{Deserialize, Serialize};

use crate::stats;

/// The dependence of a value on the step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Shape {
    /// The values do not grow (they may fall).
    Constant,
    /// Like log n.
    Logarithmic,
    /// Like n.
    Linear,
    /// Like n log n, n² or beyond.
    Worse,
    /// Constant, then constant at a higher level.
    Step,
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Constant => "constant",
            Self::Logarithmic => "logarithmic",
            Self::Linear => "linear",
            Self::Worse => "worse than linear",
            Self::Step => "a step up",
        })
    }
}

/// The result of [`classify`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fit {
    /// The curve.
    pub shape: Shape,
    /// 0 to 1: the part of resamples that give the same curve. For a growth it is multiplied by the part
    /// of the growth that the curve explains.
    pub confidence: f64,
    /// The median of the last bin divided by that of the first. For a step it is the median above the
    /// step divided by the one below.
    pub growth: f64,
}

/// Below this growth from the first to the last step a curve is constant.
pub const GROWTH_MIN: f64 = 1.25;
/// The confidence below which a curve is not claimed. A resample adds its own noise to the noise of the
/// values, so right curves have less agreement than the share of data in which they are found. At 0.8, 2
/// or 3 in 100 would not be claimed though all are found (the tests below).
pub const CONFIDENCE_MIN: f64 = 0.6;
/// With fewer points there is no verdict.
pub const POINTS_MIN: usize = 20;
/// Over fewer different steps neither.
pub const STEPS_MIN: usize = 5;

/// Bins at most.
const BINS: usize = 24;
/// Points in a bin at least.
const BIN_MIN: usize = 4;
/// A growing curve must leave at most this part of the squared error of a constant.
const GAIN_OVER_CONSTANT: f64 = 0.7;
/// A curve beyond linear must leave at most this part of the squared error of a line.
const GAIN_OVER_LINEAR: f64 = 0.6;
/// If two constants leave less than this part of a curve's squared error, there is no curve.
const GAIN_OF_STAIR: f64 = 0.5;
/// The minimum of values above a step within the last bin: fewer may lie high by chance.
const TAIL_MIN: usize = 10;
/// No median is surer than this part of itself: clocks tick, caches come and go.
const ERROR_FLOOR: f64 = 0.005;
/// Resamples for the confidence.
const RESAMPLES: usize = 100;

/// Finds the curve of the values; `points` are (step, value) in any order. `None` for less than
/// [`POINTS_MIN`] points or [`STEPS_MIN`] steps, or values that are not numbers.
#[must_use]
pub fn classify(points: &[(f64, f64)]) -> Option<Fit> {
    let bins = bins(points)?;
    let medians: Vec<_> = bins.iter().map(|bin| Median::of(bin.x, &bin.sorted)).collect();
    let Chosen { shape, explained, growth } = choose(&medians)?;
    let mut random = fastrand::Rng::with_seed(1);
    let mut agree = 0_u32;
    for _ in 0..RESAMPLES {
        let again: Vec<_> = bins
            .iter()
            .zip(&medians)
            .map(|(bin, median)| Median { y: bin.resampled_median(&mut random), ..*median })
            .collect();
        agree += u32::from(choose(&again).is_some_and(|chosen| chosen.shape == shape));
    }
    #[allow(clippy::cast_precision_loss, reason = "a hundred")]
    let agreement = f64::from(agree) / RESAMPLES as f64;
    let confidence = agreement * explained;
    let may_be_late = shape == Shape::Constant || confidence < CONFIDENCE_MIN;
    if let Some(LateStep { rise, above }) = late_step(&bins).filter(|_| may_be_late) {
        return Some(Fit { shape: Shape::Step, confidence: above, growth: rise });
    }
    Some(Fit { shape, confidence, growth })
}

/// A step up within the last bin.
struct LateStep {
    /// The median of the values after it, divided by the median of the values before it.
    rise: f64,
    /// The part of these that lie above three quarters of the values before it.
    above: f64,
}

/// Searches the last bin for a step up: compares its last 10, 20, 40, … values with the others of the
/// last two bins.
fn late_step(bins: &[Bin]) -> Option<LateStep> {
    let [.., before, last] = bins else { return None };
    if last.is_one_step {
        return None;
    }
    let values = [&before.in_order[..], &last.in_order[..]].concat();
    let counts = core::iter::successors(Some(TAIL_MIN), |count| Some(count * 2));
    counts.take_while(|&count| count <= last.in_order.len()).find_map(|count| {
        let (before, after) = values.split_at(values.len() - count);
        let [before, after] = [before, after].map(|side| stats::sorted(side.iter().copied()));
        let high = stats::quantile(&before, 0.75);
        let rise = stats::quantile(&after, 0.5) / stats::quantile(&before, 0.5);
        let is_step = stats::quantile(&after, 0.25) > high && rise > GROWTH_MIN;
        let above = after.iter().filter(|&&value| value > high).count();
        #[allow(clippy::cast_precision_loss, reason = "lengths below 2^52")]
        let above = above as f64 / count as f64;
        is_step.then_some(LateStep { rise, above })
    })
}

/// The medians along the steps that [`classify`] looks at: (step, median of values).
#[must_use]
pub fn trend(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let Some(bins) = bins(points) else { return Vec::new() };
    bins.iter().map(|bin| (bin.x, stats::quantile(&bin.sorted, 0.5))).collect()
}

/// Values of neighbouring steps.
struct Bin {
    /// The middle step.
    x: f64,
    /// Its values all belong to one step, so their order means nothing.
    is_one_step: bool,
    /// The values, by step.
    in_order: Vec<f64>,
    /// The values, ascending.
    sorted: Vec<f64>,
}

impl Bin {
    /// Makes bins of points that are sorted by step.
    fn of(points: &[(f64, f64)]) -> Self {
        let in_order: Vec<f64> = points.iter().map(|point| point.1).collect();
        Self {
            x: stats::median(points.iter().map(|point| point.0)),
            is_one_step: points.windows(2).all(|pair| pair[0].0 == pair[1].0),
            sorted: stats::sorted(in_order.iter().copied()),
            in_order,
        }
    }

    /// The median of a sample with replacement. Its rank is the middle one of n uniform ranks, which the
    /// mean of a few uniforms approaches. Drawing n values and sorting them gives the same.
    fn resampled_median(&self, random: &mut fastrand::Rng) -> f64 {
        // Rank of the median: about normal, mean 1/2, deviation 1/(2√n). Twelve uniforms have
        // deviation 1.
        let normal: f64 = (0..12).map(|_| random.f64()).sum::<f64>() - 6.0;
        #[allow(clippy::cast_precision_loss, reason = "lengths below 2^52")]
        let deviation = 0.5 / (self.sorted.len() as f64).sqrt();
        stats::quantile(&self.sorted, 0.5 + normal * deviation)
    }
}

/// Cuts the points into bins: by step where steps are repeated, else such that bin k ends at
/// (k/[`BINS`])² of all points. `None` if there are too few.
fn bins(points: &[(f64, f64)]) -> Option<Vec<Bin>> {
    if points.len() < POINTS_MIN || points.iter().any(|(x, y)| !x.is_finite() || !y.is_finite()) {
        return None;
    }
    let mut points = points.to_vec();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    let by_step: Vec<_> = points.chunk_by(|a, b| a.0 == b.0).collect();
    if by_step.len() < STEPS_MIN {
        return None;
    }
    // A single value per step says nothing about its certainty.
    if by_step.len() <= BINS && by_step.len() * BIN_MIN <= points.len() {
        return Some(by_step.into_iter().map(Bin::of).collect());
    }
    let mut bins = Vec::new();
    let mut start = 0;
    for k in 1..=BINS {
        let end = points.len() * k * k / (BINS * BINS);
        let is_last = k == BINS;
        if end - start >= BIN_MIN && points.len() - end >= BIN_MIN || is_last {
            bins.push(Bin::of(&points[start..end]));
            start = end;
        }
    }
    Some(bins)
}

/// The part of a bin that a fit uses.
#[derive(Clone, Copy)]
struct Median {
    x: f64,
    y: f64,
    weight: f64,
}

impl Median {
    fn of(x: f64, sorted: &[f64]) -> Self {
        /// The deviation of a normal distribution divided by its MAD, times the deviation of a median
        /// divided by that of a mean.
        const SCALE: f64 = 1.4826 * 1.2533;
        let y = stats::quantile(sorted, 0.5);
        #[allow(clippy::cast_precision_loss, reason = "lengths below 2^52")]
        let error = SCALE * stats::mad(sorted) / (sorted.len() as f64).sqrt();
        let floor = (ERROR_FLOOR * y.abs()).max(f64::MIN_POSITIVE.sqrt());
        Self { x, y, weight: 1.0 / (error * error + floor * floor) }
    }
}

struct Chosen {
    shape: Shape,
    /// Part of the squared error of a constant that the curve takes away; 1 for a constant, 0 for
    /// what fits none.
    explained: f64,
    /// As [`Fit::growth`].
    growth: f64,
}

fn choose(medians: &[Median]) -> Option<Chosen> {
    type Curve = fn(f64) -> f64;
    let curves: [(Shape, Curve); 6] = [
        (Shape::Logarithmic, |x| x.max(1e-9).ln()),
        (Shape::Linear, |x| x),
        (Shape::Worse, |x| x * x.max(1.0).ln()),
        (Shape::Worse, |x| x.powf(1.5)),
        (Shape::Worse, |x| x * x),
        (Shape::Worse, |x| x * x * x),
    ];
    let constant = Fitted::constant(medians)?;
    let [log, line, worse @ ..] =
        curves.map(|(shape, f)| Fitted::curve(medians, f).map(|fitted| (shape, fitted)));
    let (log, line) = (log?, line?);
    let worse =
        worse.into_iter().flatten().min_by(|a, b| a.1.score.total_cmp(&b.1.score)).unwrap_or(line);
    let mut best = if log.1.score <= line.1.score { log } else { line };
    if worse.1.score < GAIN_OVER_LINEAR * best.1.score {
        best = worse;
    }
    let (shape, fitted) = best;
    let fits = fitted.growth >= GROWTH_MIN
        && fitted.slope > 0.0
        && fitted.score < GAIN_OVER_CONSTANT * constant.score;
    let stair = Stair::of(medians);
    let others = if fits { fitted.score } else { constant.score };
    let is_stair = stair.rise >= GROWTH_MIN && stair.score < GAIN_OF_STAIR * others;
    let explained = |score: f64| (1.0 - score / constant.score).clamp(0.0, 1.0);
    let growth = medians.last()?.y / medians.first()?.y;
    Some(if is_stair {
        Chosen { shape: Shape::Step, explained: explained(stair.score), growth: stair.rise }
    } else if fits {
        Chosen { shape, explained: explained(fitted.score), growth }
    } else if growth > GROWTH_MIN {
        // The values grow, but on no curve.
        Chosen { shape, explained: 0.0, growth }
    } else {
        Chosen { shape: Shape::Constant, explained: 1.0, growth }
    })
}

/// Two constants, one before and one after a single step.
struct Stair {
    /// As [`Fitted::score`], for the best position of the step.
    score: f64,
    /// The median after it over that before.
    rise: f64,
}

impl Stair {
    fn of(medians: &[Median]) -> Self {
        /// Bins before it at least: the first calls of anything are slow or quick by themselves.
        const BEFORE_MIN: usize = 2;
        let none = Self { score: f64::INFINITY, rise: 1.0 };
        (BEFORE_MIN..medians.len())
            .filter_map(|at| {
                let (before, after) = medians.split_at(at);
                let score = Fitted::constant(before)?.score + Fitted::constant(after)?.score;
                let middle = |side: &[Median]| stats::median(side.iter().map(|m| m.y));
                Some(Self { score, rise: middle(after) / middle(before) })
            })
            .fold(none, |best, next| if next.score < best.score { next } else { best })
    }
}

/// A curve through the medians.
#[derive(Clone, Copy)]
struct Fitted {
    /// Sum of squared errors at bins left out, weighted.
    score: f64,
    slope: f64,
    /// Its value at the last bin over that at the first; infinite if that is not positive.
    growth: f64,
}

impl Fitted {
    fn constant(medians: &[Median]) -> Option<Self> {
        let total: f64 = medians.iter().map(|m| m.weight).sum();
        let mean = medians.iter().map(|m| m.weight * m.y).sum::<f64>() / total;
        let score = medians
            .iter()
            .map(|m| {
                let left_out = (m.y - mean) / (1.0 - m.weight / total).max(LEVERAGE_LEFT_MIN);
                m.weight * left_out * left_out
            })
            .sum();
        (total.is_finite() && total > 0.0).then_some(Self { score, slope: 0.0, growth: 1.0 })
    }

    /// `a + b·f(x)` by weighted least squares.
    fn curve(medians: &[Median], f: impl Fn(f64) -> f64) -> Option<Self> {
        let total: f64 = medians.iter().map(|m| m.weight).sum();
        let mean = |value: &dyn Fn(&Median) -> f64| {
            medians.iter().map(|m| m.weight * value(m)).sum::<f64>() / total
        };
        let (mean_f, mean_y) = (mean(&|m| f(m.x)), mean(&|m| m.y));
        let moment = |value: &dyn Fn(&Median) -> f64| {
            medians.iter().map(|m| m.weight * (f(m.x) - mean_f) * value(m)).sum::<f64>()
        };
        let (sff, sfy) = (moment(&|m| f(m.x) - mean_f), moment(&|m| m.y - mean_y));
        if sff.is_nan() || sff <= 0.0 {
            return None;
        }
        let slope = sfy / sff;
        let at = |x: f64| mean_y + slope * (f(x) - mean_f);
        let score = medians
            .iter()
            .map(|m| {
                let away = f(m.x) - mean_f;
                let leverage = m.weight / total + m.weight * away * away / sff;
                let left_out = (m.y - at(m.x)) / (1.0 - leverage).max(LEVERAGE_LEFT_MIN);
                m.weight * left_out * left_out
            })
            .sum();
        let (first, last) = (at(medians.first()?.x), at(medians.last()?.x));
        let growth = if first > 0.0 { last / first } else { f64::INFINITY };
        Some(Self { score, slope, growth })
    }
}

/// A bin that alone decides a curve says nothing about its fit, but must not divide by zero.
const LEVERAGE_LEFT_MIN: f64 = 0.05;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SEEDS: u64 = 1000;
    /// In a hundred.
    const RIGHT_MIN: u64 = 99;

    /// `n` latencies along `curve` with a skewed noise of `noise` (relative) and one outlier in 20,
    /// 2 to 1000 times as slow.
    fn measured(seed: u64, n: u32, noise: f64, curve: impl Fn(f64) -> f64) -> Vec<(f64, f64)> {
        let mut random = fastrand::Rng::with_seed(seed);
        (1..=n)
            .map(|step| {
                let x = f64::from(step);
                let normal = (0..12).map(|_| random.f64()).sum::<f64>() - 6.0;
                let mut y = curve(x) * (noise * normal).exp();
                if random.u32(..20) == 0 {
                    y *= 2.0 * 500_f64.powf(random.f64());
                }
                (x, y)
            })
            .collect()
    }

    /// Counts how many seeds give `want`; the curve's parameters are drawn from each.
    fn check(want: Shape, curve: impl Fn(&mut fastrand::Rng, f64, f64) -> f64) {
        let mut wrong = Vec::new();
        for seed in 0..SEEDS {
            let mut random = fastrand::Rng::with_seed(seed ^ 0xabcd);
            let n = random.u32(400..2000);
            let noise = 0.02 + 0.13 * random.f64();
            let base = 200.0 + 5000.0 * random.f64();
            // The rise over the range, in units of its base.
            let rise = 1.0 + 20.0 * random.f64();
            let parameters = random.clone();
            let points = measured(seed, n, noise, |x| {
                base * (1.0 + rise * curve(&mut parameters.clone(), x, f64::from(n)))
            });
            let found = classify(&points).unwrap();
            // As displayed: a curve with little confidence is called unclear.
            if found.shape != want || found.confidence < CONFIDENCE_MIN {
                wrong.push((seed, found));
            }
        }
        let right = SEEDS - wrong.len() as u64;
        assert!(right * 100 >= RIGHT_MIN * SEEDS, "{right} of {SEEDS} {want}; wrong: {wrong:?}");
    }

    fn binned(points: &[(f64, f64)]) -> Vec<Median> {
        bins(points).unwrap().iter().map(|bin| Median::of(bin.x, &bin.sorted)).collect()
    }

    #[test]
    fn constant_is_told() {
        check(Shape::Constant, |_, _, _| 0.0);
    }

    #[test]
    fn a_slope_too_small_to_matter_is_constant() {
        for seed in 0..100 {
            let points = measured(seed, 1000, 0.05, |x| 1000.0 + 0.05 * x);
            assert_eq!(classify(&points).unwrap().shape, Shape::Constant, "seed {seed}");
        }
    }

    #[test]
    fn logarithmic_is_told() {
        check(Shape::Logarithmic, |_, x, n| x.ln() / n.ln());
    }

    #[test]
    fn linear_is_told() {
        check(Shape::Linear, |_, x, n| x / n);
    }

    #[test]
    fn powers_beyond_linear_are_told() {
        check(Shape::Worse, |random, x, n| (x / n).powf(1.5 + 1.5 * random.f64()));
    }

    /// n log n is nearly a line: it takes a quiet machine or more steps.
    #[test]
    fn n_log_n_is_told_where_noise_allows() {
        let right = (0..SEEDS)
            .filter(|seed| {
                let points = measured(*seed, 2000, 0.03, |x| 100.0 + x * x.ln());
                choose(&binned(&points)).unwrap().shape == Shape::Worse
            })
            .count() as u64;
        assert!(right * 100 >= RIGHT_MIN * SEEDS, "{right} of {SEEDS}");
    }

    #[test]
    fn few_repeated_steps_are_enough() {
        let steps = [1, 4, 16, 64, 256, 1024, 4096, 16384].map(f64::from);
        for seed in 0..100 {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut points = |curve: &dyn Fn(f64) -> f64| -> Vec<_> {
                steps
                    .iter()
                    .flat_map(|x| [*x; 30])
                    .map(|x| (x, curve(x) * (0.9 + 0.2 * random.f64())))
                    .collect()
            };
            let mut shape = |curve: &dyn Fn(f64) -> f64| classify(&points(curve)).unwrap().shape;
            assert_eq!(shape(&|_| 700.0), Shape::Constant, "seed {seed}");
            assert_eq!(shape(&|x| 700.0 + 300.0 * x.ln()), Shape::Logarithmic, "seed {seed}");
            assert_eq!(shape(&|x| 700.0 + 3.0 * x), Shape::Linear, "seed {seed}");
            assert_eq!(shape(&|x| 700.0 + 0.03 * x * x), Shape::Worse, "seed {seed}");
        }
    }

    #[test]
    fn confidence_is_high_where_it_is_plain_and_low_where_it_is_not() {
        let plain = classify(&measured(1, 1000, 0.05, |x| 500.0 + 10.0 * x)).unwrap();
        assert!(plain.confidence > 0.85, "{plain:?}");
        // At the edge between constant and growing, with much noise and few points.
        let vague = classify(&measured(1, 60, 0.5, |x| 500.0 + 2.5 * x)).unwrap();
        assert!(vague.confidence < 0.9, "{vague:?}");
    }

    /// `samum-bench os`, fork of a static program with N children, as the picture of the run of
    /// 2026-11-21 shows it: 42 µs up to 1,300 children, 231 µs from 1,350 on.
    const FORK: &str = include_str!("fit/fork_static.csv");

    #[test]
    fn fork_that_gets_five_times_as_slow_at_the_end_is_not_constant() {
        let points = FORK.lines().map(|line| {
            let (step, value) = line.split_once(',').unwrap();
            (step.parse().unwrap(), value.parse().unwrap())
        });
        let fit = classify(&points.collect::<Vec<_>>()).unwrap();
        assert!((4.0..6.0).contains(&fit.growth), "{fit:?}");
        assert_eq!(fit.shape, Shape::Step, "{fit:?}");
        assert!(fit.confidence >= CONFIDENCE_MIN, "{fit:?}");
    }

    #[test]
    fn a_step_in_the_last_bin_is_seen() {
        // The last bin begins at 919 of 1000.
        for at in [925.0, 940.0, 960.0, 980.0, 988.0] {
            for seed in 0..100 {
                let curve = |x| if x < at { 500.0 } else { 900.0 };
                let fit = classify(&measured(seed, 1000, 0.05, curve)).unwrap();
                assert_eq!(fit.shape, Shape::Step, "at {at}, seed {seed}: {fit:?}");
                assert!(fit.growth > 1.5, "at {at}, seed {seed}: {fit:?}");
            }
        }
        let steps = [1, 4, 16, 64, 256, 1024, 4096, 16384].map(f64::from);
        let points: Vec<_> = steps
            .iter()
            .flat_map(|&x| [7.0, 7.1, 7.2, 7.1].map(|y| (x, if x > 9999.0 { 2.0 * y } else { y })))
            .collect();
        assert_eq!(classify(&points).unwrap().shape, Shape::Step);
    }

    #[test]
    fn a_stair_is_claimed_by_no_curve() {
        for seed in 0..300_u32 {
            let at = 100.0 + f64::from(seed) * 2.5;
            let curve = |x| if x < at { 500.0 } else { 900.0 };
            let points = measured(seed.into(), 1000, 0.05, curve);
            let fit = classify(&points).unwrap();
            let is_claimed = fit.shape != Shape::Step && fit.confidence >= CONFIDENCE_MIN;
            assert!(!is_claimed, "seed {seed}: {fit:?}");
        }
    }

    #[test]
    fn what_falls_is_constant() {
        let points = measured(3, 1000, 0.05, |x| 5000.0 - 4.0 * x);
        assert_eq!(classify(&points).unwrap().shape, Shape::Constant);
    }

    #[test]
    fn too_little_has_no_verdict() {
        assert_eq!(classify(&[]), None);
        assert_eq!(classify(&[(1.0, 1.0); 100]), None);
        let points: Vec<_> = (0..100).map(|x| (f64::from(x), f64::NAN)).collect();
        assert_eq!(classify(&points), None);
        assert_eq!(trend(&points), []);
    }

    proptest! {
        #[test]
        fn any_numbers_are_survived(
            points in prop::collection::vec((0.0..1e9f64, -1e12..1e12f64), 0..200),
        ) {
            if let Some(fit) = classify(&points) {
                prop_assert!((0.0..=1.0).contains(&fit.confidence), "{fit:?}");
            }
        }

        #[test]
        fn what_grew_is_never_constant(
            values in prop::collection::vec(1.0..1e6f64, 20..200),
            growth in 1.0..100.0f64,
        ) {
            let count = values.len() as f64;
            let rising = (0_u32..).zip(&values).map(|(step, value)| {
                let part = f64::from(step) / count;
                (f64::from(step), value * (1.0 + (growth - 1.0) * part))
            });
            let fit = classify(&rising.collect::<Vec<_>>()).unwrap();
            prop_assert!(fit.growth <= GROWTH_MIN || fit.shape != Shape::Constant, "{fit:?}");
        }

        #[test]
        fn the_unit_does_not_matter(seed in 0..100u64, scale in 1e-6..1e6f64) {
            let points = measured(seed, 300, 0.1, |x| 100.0 + x);
            let scaled: Vec<_> = points.iter().map(|(x, y)| (*x, y * scale)).collect();
            prop_assert_eq!(
                classify(&points).unwrap().shape,
                classify(&scaled).unwrap().shape
            );
        }
    }
}
