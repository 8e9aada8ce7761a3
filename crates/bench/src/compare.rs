//! Two runs side by side: the ratios of their values at the same step, and which ratios are more than
//! noise. Pure.
//!
//! Each step is compared only with the same step of the other run. Otherwise a series that went further in
//! one run would be slower there. The median of these ratios counts.

use core::fmt::Write as _;

use serde::Serialize;

use crate::machine::Noise;
use crate::run::{Description, Run, Series, Table};
use crate::stats::{self, Interval};
use crate::summary;
use crate::unit::{Better, Unit};

/// Two runs.
#[derive(Debug, Serialize)]
pub struct Comparison {
    /// Name of the run that counts as 1.
    pub a: String,
    /// The name of run B.
    pub b: String,
    /// Ratios closer to 1 than this are noise, at any spread within the runs: the same machine differs from
    /// itself by as much.
    pub floor: f64,
    /// A row for each series that both have.
    pub rows: Vec<Ratio>,
    /// Series that only one has, as "test, system, series: only in A".
    pub missing: Vec<String>,
    /// Reasons why the two are hard to compare: another kernel, other CPUs, noise.
    pub warnings: Vec<String>,
}

/// One series in two runs.
#[derive(Debug, Serialize)]
pub struct Ratio {
    /// Name of the test.
    pub test: String,
    /// The system being compared.
    pub system: String,
    /// The measured quantity of the system.
    pub series: String,
    /// The unit of the values.
    pub unit: Unit,
    /// Median in A, of the steps that both have.
    pub a: f64,
    /// Median in B, of those steps.
    pub b: f64,
    /// The number of steps that both have.
    pub pairs: usize,
    /// B over A, the median of all steps, with its 95 % interval; `None` without steps, or where A is zero.
    pub ratio: Option<Interval>,
    /// The verdict.
    pub verdict: Difference,
}

/// The verdict on a ratio.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Difference {
    /// B is better, beyond noise.
    Better,
    /// B is worse, beyond noise.
    Worse,
    /// The difference is beyond noise, and the test does not say which direction is better.
    Other,
    /// The interval contains 1, or is nearer to 1 than the floor.
    Noise,
    /// No ratio, or one of fewer than [`PAIRS_MIN`] steps.
    Unknown,
}

/// Ratios of fewer steps have no verdict: their interval would say nothing.
pub const PAIRS_MIN: usize = 5;

/// Runs of the same program on the same machine differ by so much even when both are quiet: where
/// pages and hash buckets come to lie is chance.
const FLOOR: f64 = 0.05;

/// Compares `b` with `a`.
#[must_use]
pub fn compare(a: &Run, b: &Run) -> Comparison {
    let floor = FLOOR + drift(a) + drift(b);
    let key = |s: &Series| (s.test.clone(), s.system.clone(), s.series.clone(), s.unit);
    let mut missing = Vec::new();
    let mut rows = Vec::new();
    for ours in &a.series {
        let Some(theirs) = b.series.iter().find(|theirs| key(theirs) == key(ours)) else {
            missing.push(format!("{}, {}, {}: only in A", ours.test, ours.system, ours.series));
            continue;
        };
        if is_curve(a, ours) || is_curve(b, theirs) {
            continue;
        }
        let pairs = pairs(&ours.points, &theirs.points);
        let ratios: Vec<_> = pairs.iter().map(|(a, b)| b / a).filter(|r| r.is_finite()).collect();
        let ratio = stats::median_interval(&ratios);
        let better = about(a, ours).and_then(|about| about.better(&ours.series, ours.unit));
        let is_enough = ratios.len() >= PAIRS_MIN;
        rows.push(Ratio {
            test: ours.test.clone(),
            system: ours.system.clone(),
            series: ours.series.clone(),
            unit: ours.unit,
            a: stats::median(pairs.iter().map(|pair| pair.0)),
            b: stats::median(pairs.iter().map(|pair| pair.1)),
            pairs: ratios.len(),
            ratio,
            verdict: ratio
                .filter(|_| is_enough)
                .map_or(Difference::Unknown, |ratio| judge(ratio, better, floor)),
        });
    }
    for theirs in &b.series {
        if !a.series.iter().any(|ours| key(ours) == key(theirs)) {
            missing
                .push(format!("{}, {}, {}: only in B", theirs.test, theirs.system, theirs.series));
        }
    }
    let (a_name, b_name) = (a.meta.label.clone(), b.meta.label.clone());
    Comparison { a: a_name, b: b_name, floor, rows, missing, warnings: warnings(a, b) }
}

/// The change of the calibration loop within a run.
fn drift(run: &Run) -> f64 {
    let moved = |noise: &Noise| (noise.after.median / noise.before.median - 1.0).abs();
    run.meta.noise.as_ref().map_or(0.0, moved)
}

/// The values of both at each step that both have: medians where a step was measured several times.
fn pairs(a: &[(f64, f64)], b: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let by_step = |points: &[(f64, f64)]| -> Vec<(f64, f64)> {
        let mut points: Vec<_> =
            points.iter().copied().filter(|point| point.1.is_finite()).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        let steps = points.chunk_by(|a, b| a.0 == b.0);
        steps.map(|step| (step[0].0, stats::median(step.iter().map(|point| point.1)))).collect()
    };
    let (a, b) = (by_step(a), by_step(b));
    let value_in_b = |step: f64| Some(b[b.binary_search_by(|at| at.0.total_cmp(&step)).ok()?].1);
    a.iter().filter_map(|&(step, value)| Some((value, value_in_b(step)?))).collect()
}

/// The description of a series' test.
fn about<'a>(run: &'a Run, series: &Series) -> Option<&'a Description> {
    run.meta.tests.iter().map(|ran| &ran.about).find(|about| about.name == series.test)
}

/// Returns whether a series is percentiles of one set of values: its hundreds of points count as one.
fn is_curve(run: &Run, series: &Series) -> bool {
    about(run, series).is_some_and(|about| about.curves.contains(&series.series))
}

fn judge(ratio: Interval, better: Option<Better>, floor: f64) -> Difference {
    let is_less = ratio.high < 1.0 - floor;
    let is_more = ratio.low > 1.0 + floor;
    match (is_less, is_more, better) {
        (false, false, _) => Difference::Noise,
        (true, _, Some(Better::Less)) | (_, true, Some(Better::More)) => Difference::Better,
        (_, _, Some(_)) => Difference::Worse,
        (_, _, None) => Difference::Other,
    }
}

fn warnings(a: &Run, b: &Run) -> Vec<String> {
    let mut warnings = Vec::new();
    let (ma, mb) = (&a.meta.machine, &b.meta.machine);
    let facts = [
        ("kernel", &ma.kernel, &mb.kernel),
        ("CPU", &ma.cpu, &mb.cpu),
        ("suite", &a.meta.suite, &b.meta.suite),
    ];
    for (what, a, b) in facts {
        if a != b {
            warnings.push(format!("another {what}: {a} in A, {b} in B"));
        }
    }
    if ma.cpus != mb.cpus {
        warnings.push(format!("{} CPUs in A, {} in B", ma.cpus, mb.cpus));
    }
    for (name, run) in [("A", a), ("B", b)] {
        match &run.meta.noise {
            Some(noise) if !noise.is_quiet() => {
                warnings.push(format!("{name} was noisy: {}", noise.reasons.join("; ")));
            }
            None => warnings.push(format!("{name} was cut off")),
            Some(_) => {}
        }
        if run.meta.quick {
            warnings.push(format!("{name} was a quick run"));
        }
    }
    warnings
}

/// The comparison for people.
#[must_use]
pub fn markdown(comparison: &Comparison) -> String {
    let mut text = String::new();
    let Comparison { a, b, floor, rows, missing, warnings } = comparison;
    // Writing to a String does not fail.
    let _ = writeln!(
        text,
        "A: {a}\nB: {b}\n\nB over A at each step that both have, the median of all steps, with its 95 % interval. \
         Closer to 1 than {:.0} % counts as noise; fewer than {PAIRS_MIN} steps have no verdict. Curves of percentiles \
         are not compared, the tables of the reports are there for them.\n",
        floor * 100.0
    );
    for warning in warnings {
        let _ = writeln!(text, "- {warning}");
    }
    if !warnings.is_empty() {
        text.push('\n');
    }
    let head = ["test", "system", "measured", "steps", "A", "B", "B/A", "95 %", "verdict"];
    let cells = |row: &Ratio| {
        let (value, interval) = row.ratio.map_or_else(
            || ("–".into(), "–".into()),
            |ratio| {
                (format!("{:.3}", ratio.value), format!("{:.3} … {:.3}", ratio.low, ratio.high))
            },
        );
        let verdict = match row.verdict {
            Difference::Better => "B is better",
            Difference::Worse => "B is worse",
            Difference::Other => "B differs",
            Difference::Noise => "noise",
            Difference::Unknown => "–",
        };
        vec![
            row.test.clone(),
            row.system.clone(),
            row.series.clone(),
            row.pairs.to_string(),
            row.unit.show(row.a),
            row.unit.show(row.b),
            value,
            interval,
            verdict.to_owned(),
        ]
    };
    text += &summary::table(&Table {
        title: String::new(),
        head: head.map(str::to_owned).to_vec(),
        rows: rows.iter().map(cells).collect(),
    });
    if !missing.is_empty() {
        text.push('\n');
    }
    for series in missing {
        let _ = writeln!(text, "- {series}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_must_be_beyond_the_floor_and_the_interval() {
        let ratio = |low, value, high| Interval { low, value, high };
        let time = |interval| judge(interval, Unit::Nanoseconds.better(), 0.05);
        assert_eq!(time(ratio(0.99, 1.0, 1.01)), Difference::Noise);
        assert_eq!(time(ratio(1.01, 1.02, 1.04)), Difference::Noise, "below the floor");
        assert_eq!(time(ratio(0.9, 1.5, 2.0)), Difference::Noise, "too wide");
        assert_eq!(time(ratio(1.4, 1.5, 1.6)), Difference::Worse);
        assert_eq!(time(ratio(0.4, 0.5, 0.6)), Difference::Better);
        let speed = |interval| judge(interval, Unit::BytesPerSecond.better(), 0.05);
        assert_eq!(speed(ratio(1.4, 1.5, 1.6)), Difference::Better);
        assert_eq!(speed(ratio(0.4, 0.5, 0.6)), Difference::Worse);
        let part = |interval| judge(interval, Unit::Percent.better(), 0.05);
        assert_eq!(part(ratio(0.4, 0.5, 0.6)), Difference::Other, "of nobody knows what");
    }

    #[test]
    fn each_step_is_compared_with_its_own() {
        let line = |steps: core::ops::RangeInclusive<u32>, slope: f64| -> Vec<(f64, f64)> {
            steps.map(|x| (f64::from(x), slope * f64::from(x))).collect()
        };
        // B went ten times as far, and is as fast at each step.
        let same = pairs(&line(1..=100, 2.0), &line(1..=1000, 2.0));
        assert_eq!(same.len(), 100);
        assert!(same.iter().all(|(a, b)| a == b));
        let [mut several, one] = [line(1..=10, 1.0), line(5..=20, 3.0)];
        several.extend([(7.0, 7.0), (7.0, 1e9), (8.0, f64::NAN)]);
        let paired = pairs(&several, &one);
        assert_eq!(paired.len(), 6, "5 to 10");
        assert!(paired.iter().all(|(a, b)| b / a == 3.0), "{paired:?}");
        assert_eq!(pairs(&line(1..=5, 1.0), &line(6..=9, 1.0)), []);
    }
}
