//! Verdicts: the conclusions from the figures of a run, as a table. Pure.

use core::fmt::Write as _;

use serde::Serialize;

use crate::fit::{self, Fit, Shape};
use crate::machine::Noise;
use crate::origin::{Binary, Tree};
use crate::run::{Judge, Meta, Ran, Run, Table};
use crate::stats::{Spread, float};
use crate::unit::Unit;

/// The summary of a run, as `--json` prints it.
#[derive(Debug, Serialize)]
pub struct Summary<'a> {
    /// The description of the run.
    pub meta: &'a Meta,
    /// A row for each series.
    pub verdicts: Vec<Verdict<'a>>,
}

/// A series in one row.
#[derive(Debug, Serialize)]
pub struct Verdict<'a> {
    /// Name of the test.
    pub test: &'a str,
    /// The system being compared.
    pub system: &'a str,
    /// The measured quantity of the system.
    pub series: &'a str,
    /// The unit of the values.
    pub unit: Unit,
    /// The values.
    pub spread: Spread,
    /// The dependence of the values on the step; `None` if it is not asked for or cannot be found.
    pub fit: Option<Fit>,
}

impl Verdict<'_> {
    /// "linear, ×12 (99 %)": curve, growth from the first to the last step, confidence; "falls, ×0.06"
    /// for what [does not grow](Shape::Constant), but is not the same either.
    #[must_use]
    pub fn words(&self) -> String {
        let Some(Fit { shape, confidence, growth }) = self.fit else { return "–".to_owned() };
        /// Beyond this ratio the values certainly grow, even if the curve is unknown.
        const PLAIN: f64 = 2.0;
        let percent = confidence * 100.0;
        let is_sure = confidence >= fit::CONFIDENCE_MIN;
        // As far down as up, from the point where it is no longer constant. The confidence is for not
        // growing.
        if is_sure && shape == Shape::Constant && growth < 1.0 / fit::GROWTH_MIN {
            return format!("falls, ×{growth:.2}");
        }
        if is_sure && shape == Shape::Constant {
            return format!("{shape} ({percent:.0} %)");
        }
        if !is_sure && (growth < PLAIN || !growth.is_finite()) {
            return format!("unclear; {shape}? ({percent:.0} %)");
        }
        let growth = if growth >= 99.5 {
            format!("×{growth:.0}")
        } else if growth >= 9.95 {
            format!("×{growth:.1}")
        } else {
            format!("×{growth:.2}")
        };
        if is_sure {
            format!("{shape}, {growth} ({percent:.0} %)")
        } else {
            format!("grows, {growth}, on no plain curve; {shape}? ({percent:.0} %)")
        }
    }
}

/// Sums up the figures of a run.
#[must_use]
pub fn summary(run: &Run) -> Summary<'_> {
    let verdicts = run.meta.tests.iter().flat_map(|ran| verdicts(run, ran)).collect();
    Summary { meta: &run.meta, verdicts }
}

/// The verdicts on one test of a run.
#[must_use]
pub fn verdicts<'a>(run: &'a Run, ran: &Ran) -> Vec<Verdict<'a>> {
    run.series
        .iter()
        .filter(|series| series.test == ran.about.name)
        .filter_map(|series| {
            Some(Verdict {
                test: &series.test,
                system: &series.system,
                series: &series.series,
                unit: series.unit,
                spread: Spread::of(series.points.iter().map(|point| point.1))?,
                fit: match ran.about.judge {
                    Judge::Growth => fit::classify(&series.points),
                    Judge::Level | Judge::Tables => None,
                },
            })
        })
        .collect()
}

/// summary.md.
#[must_use]
pub fn markdown(run: &Run) -> String {
    let mut text = String::new();
    let meta = &run.meta;
    let noise =
        meta.noise.as_ref().map_or_else(|| "The run was cut off.".to_owned(), Noise::verdict);
    // Writing to a String does not fail.
    let _ = write!(
        text,
        "# samum-bench {}: {}\n\n{} · {} CPUs, {} · {} · {}\n\n{}\n\n{noise} {}\n",
        meta.suite,
        meta.label,
        meta.machine.cpu,
        meta.machine.cpus,
        Unit::Bytes.show(float(meta.machine.memory)),
        meta.machine.kernel,
        meta.start,
        origin(meta),
        meta.clock.words(),
    );
    if meta.quick {
        text.push_str("\nA quick run: it shows that the tests work, and little more.\n");
    }
    if meta.interrupted {
        text.push_str("\nInterrupted: what was measured until then is here.\n");
    }
    let verdicts = verdict_table(run, true);
    text.push('\n');
    if !verdicts.rows.is_empty() {
        let _ = writeln!(text, "## Verdicts\n\n{}", table(&verdicts));
    }
    for ran in &meta.tests {
        if ran.tables.is_empty() && ran.notes.is_empty() {
            continue;
        }
        let _ = writeln!(text, "## {}: {}\n", ran.about.name, ran.about.title);
        for note in &ran.notes {
            let _ = writeln!(text, "- {note}");
        }
        for extra in &ran.tables {
            let _ = writeln!(text, "\n{}\n\n{}", extra.title, table(extra));
        }
        text.push('\n');
    }
    text
}

/// The origin of the measured programs, in a line: the commit, and the hash of each binary of ours.
#[must_use]
pub fn origin(meta: &Meta) -> String {
    let binaries = meta.binaries.iter().map(Binary::words);
    let parts = core::iter::once(Tree::words(meta.tree.as_ref())).chain(binaries);
    format!("samum-bench {}, {}", meta.version, parts.collect::<Vec<_>>().join(" · "))
}

/// A row for each series, and one for each that could not be measured. `with_tests` adds a column for
/// the test.
#[must_use]
pub fn verdict_table(run: &Run, with_tests: bool) -> Table {
    let rows = run.meta.tests.iter().flat_map(|ran| test_rows(run, ran, with_tests)).collect();
    Table { title: "Verdicts".into(), head: head(with_tests), rows }
}

/// The table of verdicts on one test.
#[must_use]
pub fn test_table(run: &Run, ran: &Ran) -> Table {
    Table { title: ran.about.title.clone(), head: head(false), rows: test_rows(run, ran, false) }
}

fn head(with_tests: bool) -> Vec<String> {
    let head = [
        "test",
        "system",
        "measured",
        "n",
        "median",
        "middle half",
        "99 %",
        "least … greatest",
        "verdict",
    ];
    head.iter().skip(usize::from(!with_tests)).map(|name| (*name).to_owned()).collect()
}

fn test_rows(run: &Run, ran: &Ran, with_tests: bool) -> Vec<Vec<String>> {
    let name = with_tests.then(|| ran.about.name.clone());
    let mut rows: Vec<Vec<String>> = verdicts(run, ran)
        .iter()
        .filter(|_| ran.about.judge != Judge::Tables)
        .map(|verdict| {
            let Spread { count, min, q1, median, q3, p99, max } = verdict.spread;
            let show = |value| verdict.unit.show(value);
            let cells = [
                verdict.system.to_owned(),
                verdict.series.to_owned(),
                count.to_string(),
                show(median),
                format!("{} … {}", show(q1), show(q3)),
                show(p99),
                format!("{} … {}", show(min), show(max)),
                verdict.words(),
            ];
            name.iter().cloned().chain(cells).collect()
        })
        .collect();
    rows.extend(ran.skipped.iter().map(|skipped| {
        let system = if skipped.system.is_empty() { "all" } else { &skipped.system };
        let mut cells = vec![system.to_owned(), "not measured".to_owned()];
        cells.extend(["", "", "", "", ""].map(str::to_owned));
        cells.push(skipped.why.clone());
        name.iter().cloned().chain(cells).collect()
    }));
    rows
}

/// A table of Markdown.
#[must_use]
pub fn table(table: &Table) -> String {
    let escape = |cell: &String| cell.replace('|', "\\|").replace('\n', " ");
    let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    let mut text = line(table.head.iter().map(escape).collect());
    let rule = (0..table.head.len())
        .map(|column| if is_numeric(table, column) { "--:" } else { "---" }.to_owned());
    text += &line(rule.collect());
    for row in &table.rows {
        text += &line(row.iter().map(escape).collect());
    }
    text
}

/// Tells whether a column holds numbers, which are aligned to the right.
#[must_use]
pub fn is_numeric(table: &Table, column: usize) -> bool {
    let mut cells = table
        .rows
        .iter()
        .filter_map(|row| row.get(column))
        .filter(|cell| !cell.is_empty())
        .peekable();
    cells.peek().is_some()
        && cells
            .all(|cell| cell.starts_with(|c: char| c.is_ascii_digit() || "-–<>×+≈≥".contains(c)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_falls_is_not_called_constant() {
        let spread = Spread::of([1.0]).unwrap();
        let words = |growth, confidence| {
            let fit = Some(Fit { shape: Shape::Constant, confidence, growth });
            let unit = Unit::Nanoseconds;
            Verdict { test: "", system: "", series: "", unit, spread, fit }.words()
        };
        assert_eq!(words(0.06, 1.0), "falls, ×0.06");
        assert_eq!(words(0.81, 1.0), "constant (100 %)");
        assert_eq!(words(1.2, 1.0), "constant (100 %)");
        assert_eq!(words(0.06, 0.4), "unclear; constant? (40 %)");
        let fit = Some(Fit { shape: Shape::Step, confidence: 0.97, growth: 4.31 });
        let unit = Unit::Nanoseconds;
        let step = Verdict { test: "", system: "", series: "", unit, spread, fit };
        assert_eq!(step.words(), "a step up, ×4.31 (97 %)");
    }
}
