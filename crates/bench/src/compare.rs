//! Two runs side by side: ratios of medians, and which of them are more than noise. Pure.

use core::fmt::Write as _;

use serde::Serialize;

use crate::machine::Noise;
use crate::run::{Run, Table, Unit};
use crate::stats::{self, Interval};
use crate::summary;

/// Two runs.
#[derive(Debug, Serialize)]
pub struct Comparison {
    /// Name of the run that counts as 1.
    pub a: String,
    /// Name of the other.
    pub b: String,
    /// Ratios closer to 1 than this are noise whatever the spread within the runs says: the same
    /// machine differs from itself by as much.
    pub floor: f64,
    /// A row for each series that both have.
    pub rows: Vec<Ratio>,
    /// Series that only one has, as "test, system, series: only in A".
    pub missing: Vec<String>,
    /// What makes the two hard to compare: another kernel, other CPUs, noise.
    pub warnings: Vec<String>,
}

/// One series in two runs.
#[derive(Debug, Serialize)]
pub struct Ratio {
    /// Name of the test.
    pub test: String,
    /// What is compared.
    pub system: String,
    /// What is measured of it.
    pub series: String,
    /// Of the values.
    pub unit: Unit,
    /// Median in A.
    pub a: f64,
    /// Median in B.
    pub b: f64,
    /// B over A with its 95 % interval; `None` where A's median is zero.
    pub ratio: Option<Interval>,
    /// What that means.
    pub verdict: Difference,
}

/// What a ratio means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Difference {
    /// B is better, beyond noise.
    Better,
    /// B is worse, beyond noise.
    Worse,
    /// The interval holds 1, or is nearer to it than the floor.
    Noise,
    /// No ratio.
    Unknown,
}

/// Runs of the same program on the same machine differ by so much even when both are quiet: where
/// pages and hash buckets come to lie is chance.
const FLOOR: f64 = 0.05;

/// Compares `b` with `a`.
#[must_use]
pub fn compare(a: &Run, b: &Run) -> Comparison {
    let floor = FLOOR + drift(a) + drift(b);
    let key = |s: &crate::run::Series| (s.test.clone(), s.system.clone(), s.series.clone(), s.unit);
    let mut missing = Vec::new();
    let mut rows = Vec::new();
    for ours in &a.series {
        let Some(theirs) = b.series.iter().find(|theirs| key(theirs) == key(ours)) else {
            missing.push(format!("{}, {}, {}: only in A", ours.test, ours.system, ours.series));
            continue;
        };
        let values = |points: &[(f64, f64)]| points.iter().map(|point| point.1).collect::<Vec<_>>();
        let (va, vb) = (values(&ours.points), values(&theirs.points));
        let ratio = stats::ratio_of_medians(&va, &vb);
        rows.push(Ratio {
            test: ours.test.clone(),
            system: ours.system.clone(),
            series: ours.series.clone(),
            unit: ours.unit,
            a: stats::median(va),
            b: stats::median(vb),
            ratio,
            verdict: ratio.map_or(Difference::Unknown, |ratio| judge(ratio, ours.unit, floor)),
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

/// How far the calibration loop moved within a run.
fn drift(run: &Run) -> f64 {
    let moved = |noise: &Noise| (noise.after.median / noise.before.median - 1.0).abs();
    run.meta.noise.as_ref().map_or(0.0, moved)
}

fn judge(ratio: Interval, unit: Unit, floor: f64) -> Difference {
    let is_less = ratio.high < 1.0 - floor;
    let is_more = ratio.low > 1.0 + floor;
    match (is_less, is_more) {
        (false, false) => Difference::Noise,
        (is_less, _) if is_less == unit.less_is_better() => Difference::Better,
        _ => Difference::Worse,
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
        "A: {a}\nB: {b}\n\nRatios of medians, B over A, with the 95 % interval from the spread within the runs. \
         Closer to 1 than {:.0} % counts as noise.\n",
        floor * 100.0
    );
    for warning in warnings {
        let _ = writeln!(text, "- {warning}");
    }
    if !warnings.is_empty() {
        text.push('\n');
    }
    let head = ["test", "system", "measured", "A", "B", "B/A", "95 %", "verdict"];
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
            Difference::Noise => "noise",
            Difference::Unknown => "–",
        };
        vec![
            row.test.clone(),
            row.system.clone(),
            row.series.clone(),
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
        let time = |interval| judge(interval, Unit::Nanoseconds, 0.05);
        assert_eq!(time(ratio(0.99, 1.0, 1.01)), Difference::Noise);
        assert_eq!(time(ratio(1.01, 1.02, 1.04)), Difference::Noise, "below the floor");
        assert_eq!(time(ratio(0.9, 1.5, 2.0)), Difference::Noise, "too wide");
        assert_eq!(time(ratio(1.4, 1.5, 1.6)), Difference::Worse);
        assert_eq!(time(ratio(0.4, 0.5, 0.6)), Difference::Better);
        let speed = |interval| judge(interval, Unit::BytesPerSecond, 0.05);
        assert_eq!(speed(ratio(1.4, 1.5, 1.6)), Difference::Better);
        assert_eq!(speed(ratio(0.4, 0.5, 0.6)), Difference::Worse);
    }
}
