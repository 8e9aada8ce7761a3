//! A run, and the directory that keeps it: `meta.json` has the machine and the tests, `raw.csv` has every number. All
//! output is made from these two files.

use std::fs::{self, File};
use std::io::{BufWriter, ErrorKind};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::Error;
use crate::clock::Cost;
use crate::machine::{Machine, Noise};
use crate::origin::{Binary, Tree};
use crate::unit::{Better, Unit};

/// A run: what meta.json and raw.csv say together.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// meta.json.
    pub meta: Meta,
    /// raw.csv, in the order of measuring.
    pub series: Vec<Series>,
}

/// meta.json.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Meta {
    /// Version of samum-bench.
    pub version: String,
    /// `os`, `events`, `disk`, ...: the subcommand.
    pub suite: String,
    /// The command line.
    pub command: Vec<String>,
    /// The name of this run in a plot of several runs: the name of its directory.
    pub label: String,
    /// RFC 3339, UTC.
    pub start: String,
    /// RFC 3339, UTC; the present time while the run goes on.
    pub end: String,
    /// With few steps, to see that it works.
    pub quick: bool,
    /// True if ctrl-C ended the run; the measurements until then are kept.
    pub interrupted: bool,
    /// The machine it ran on.
    pub machine: Machine,
    /// The cost of reading the clock, nanoseconds.
    pub clock: Cost,
    /// The noise of the machine; `None` until the end.
    pub noise: Option<Noise>,
    /// The tree that samum-bench was built from; `None` without an answer of git, and in runs that are older than this
    /// field.
    #[serde(default)]
    pub tree: Option<Tree>,
    /// Programs and libraries of ours that were measured or measured; none in older runs.
    #[serde(default)]
    pub binaries: Vec<Binary>,
    /// The versions of the measured servers and libraries.
    pub versions: Vec<(String, String)>,
    /// The tests, in order.
    pub tests: Vec<Ran>,
}

/// One test of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ran {
    /// The description of the test.
    pub about: Description,
    /// The requested number of steps.
    pub steps: usize,
    /// Its duration, seconds.
    pub seconds: f64,
    /// Remarks on the figures: warm-up, an early end and its reason.
    pub notes: Vec<String>,
    /// Systems that could not be measured, with the reasons. An empty name means all of them.
    pub skipped: Vec<Skipped>,
    /// Tables that are not made of series.
    pub tables: Vec<Table>,
}

/// A row that says why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    /// The system that was not measured.
    pub system: String,
    /// The reason: a right, a limit, a program that is missing.
    pub why: String,
}

/// A table for the summary and the report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Table {
    /// The title.
    pub title: String,
    /// Names of the columns, with units.
    pub head: Vec<String>,
    /// Cells, as text; numbers are set to the right.
    pub rows: Vec<Vec<String>>,
}

/// The description of a test.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Description {
    /// Short, for the command line and as a file's name: `[a-z0-9-]`.
    pub name: String,
    /// The title of its plots and tables, one line. Older runs have questions here.
    #[serde(alias = "question")]
    pub title: String,
    /// The meaning of "scales" in this test, one line.
    pub scales: String,
    /// The unit of a step: "live children".
    pub x: String,
    /// The warm-up before anything is recorded.
    pub warm_up: String,
    /// The way its series are judged.
    pub judge: Judge,
    /// Its plots; empty: one for each unit.
    pub figures: Vec<Figure>,
    /// Series of which less or more is better though their unit does not say so.
    #[serde(default)]
    pub better: Vec<(String, Better)>,
    /// Series that are percentiles of one set of values, not values of their own.
    #[serde(default)]
    pub curves: Vec<String>,
}

impl Description {
    /// The better direction for one of its series; `None` if there is none.
    #[must_use]
    pub fn better(&self, series: &str, unit: Unit) -> Option<Better> {
        let own = self.better.iter().find(|(name, _)| name == series);
        own.map(|(_, better)| *better).or_else(|| unit.better())
    }
}

/// The ways to judge series.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Judge {
    /// By the curve of value against step: constant, logarithmic, linear, worse.
    Growth,
    /// By median and spread alone: steps are time, or there is only one.
    Level,
    /// By tables of the test's own; series are for raw.csv and its plots.
    Tables,
}

/// A plot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Figure {
    /// Follows the title of the test; may be empty.
    pub title: String,
    /// Series in it; empty: all that have the unit.
    pub series: Vec<String>,
    /// Unit of the y axis; series with another are left out.
    pub unit: Unit,
    /// Steps on a logarithmic axis.
    pub log_x: bool,
    /// Values on a logarithmic axis; `None`: if they spread so far that it helps.
    pub log_y: Option<bool>,
    /// Dots joined by a line: few points, or speed over time.
    pub lines: bool,
}

impl Figure {
    /// A dot per step of all series with `unit`; linear steps, values as it helps.
    #[must_use]
    pub fn of(unit: Unit) -> Self {
        let (title, series) = (String::new(), Vec::new());
        Self { title, series, unit, log_x: false, log_y: None, lines: false }
    }
    /// Adds to the title.
    #[must_use]
    pub fn titled(mut self, title: &str) -> Self {
        title.clone_into(&mut self.title);
        self
    }
    /// Only these series.
    #[must_use]
    pub fn only(mut self, series: &[&str]) -> Self {
        self.series = series.iter().map(|name| (*name).to_owned()).collect();
        self
    }
    /// Steps on a logarithmic axis.
    #[must_use]
    pub fn log_x(mut self) -> Self {
        self.log_x = true;
        self
    }
    /// Values on a logarithmic axis, or not.
    #[must_use]
    pub fn log_y(mut self, log: bool) -> Self {
        self.log_y = Some(log);
        self
    }
    /// Dots joined by a line.
    #[must_use]
    pub fn lines(mut self) -> Self {
        self.lines = true;
        self
    }
}

/// The points of one line in a plot.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Name of the test.
    pub test: String,
    /// The system being compared: "epoll", "nginx 1.22".
    pub system: String,
    /// The measured quantity of the system: "fork", "wake-up".
    pub series: String,
    /// The unit of the values.
    pub unit: Unit,
    /// Step and value, in the order of measuring.
    pub points: Vec<(f64, f64)>,
}

/// A row of raw.csv.
#[derive(Serialize, Deserialize)]
struct Row<'a> {
    test: &'a str,
    system: &'a str,
    series: &'a str,
    step: f64,
    value: f64,
    unit: Unit,
}

const META: &str = "meta.json";
const RAW: &str = "raw.csv";
/// The first line of raw.csv: the fields of a [`Row`].
const HEAD: [&str; 6] = ["test", "system", "series", "step", "value", "unit"];
/// Runs that begin in the same minute and have the same parent directory.
const SAME_NAME_MAX: u32 = 100;

/// Makes the directory of a new run: `out`, or else `runs/<date>-<host>`. The second run of a minute
/// gets `-2`, and so on to `-100`; a run that is there already is never written into.
///
/// # Errors
/// When it cannot be made, or `out` holds a run.
pub fn create(out: Option<&Path>, host: &str) -> Result<PathBuf, Error> {
    if let Some(out) = out {
        let failed = |error| format!("cannot make the directory {}: {error}", out.display());
        fs::create_dir_all(out).map_err(failed)?;
        return if out.join(META).exists() {
            Err(format!("{} holds a run already: give --out another directory", out.display()))
        } else {
            Ok(out.to_owned())
        };
    }
    let host: String =
        host.chars().map(|c| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' }).collect();
    let base = format!("{}-{host}", jiff::Timestamp::now().strftime("%Y-%m-%d-%H%M"));
    fs::create_dir_all("runs").map_err(|error| {
        format!("cannot make the directory runs here: {error}; --out DIR names another")
    })?;
    for nth in 1..=SAME_NAME_MAX {
        let name = if nth == 1 { base.clone() } else { format!("{base}-{nth}") };
        let dir = Path::new("runs").join(name);
        match fs::create_dir(&dir) {
            Ok(()) => return Ok(dir),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => {
                return Err(format!("cannot make the directory {}: {error}", dir.display()));
            }
        }
    }
    Err(format!("runs/{base} and {SAME_NAME_MAX} more exist already: name one with --out DIR"))
}

impl Run {
    /// The points of a test.
    pub fn of<'a>(&'a self, test: &'a str) -> impl Iterator<Item = &'a Series> {
        self.series.iter().filter(move |series| series.test == test)
    }

    /// Writes meta.json and raw.csv. Each appears whole or not at all.
    ///
    /// # Errors
    /// If the disk refuses them.
    pub fn save(&self, dir: &Path) -> Result<(), Error> {
        let json = serde_json::to_vec_pretty(&self.meta)
            .map_err(|error| format!("cannot write {META}: {error}"))?;
        write(&dir.join(META), &json)?;
        let path = dir.join(RAW);
        let new = path.with_extension("new");
        let failed =
            |error: &dyn core::fmt::Display| format!("cannot write {}: {error}", new.display());
        let mut csv =
            csv::Writer::from_writer(BufWriter::new(File::create(&new).map_err(|e| failed(&e))?));
        if self.series.iter().all(|series| series.points.is_empty()) {
            csv.write_record(HEAD).map_err(|e| failed(&e))?;
        }
        for Series { test, system, series, unit, points } in &self.series {
            for &(step, value) in points {
                csv.serialize(Row { test, system, series, step, value, unit: *unit })
                    .map_err(|e| failed(&e))?;
            }
        }
        csv.flush().map_err(|e| failed(&e))?;
        fs::rename(&new, &path).map_err(|e| failed(&e))
    }

    /// Reads a run from its directory.
    ///
    /// # Errors
    /// If the directory holds no run, or a damaged one: a file is missing, empty, cut off, or differs from the output
    /// of [`save`](Self::save). The error names the run, the file, the fault, and a remedy.
    pub fn load(dir: &Path) -> Result<Self, Error> {
        let text = fs::read(dir.join(META)).map_err(|error| match error.kind() {
            ErrorKind::NotFound | ErrorKind::NotADirectory => format!(
                "{} is not the directory of a run: {META}: {error}; give a directory that samum-bench has written",
                dir.display()
            ),
            _ => format!("cannot read {META} of the run {}: {error}", dir.display()),
        })?;
        let meta = read_meta(&text).map_err(|what| damaged(dir, META, &what))?;
        let text = fs::read(dir.join(RAW)).map_err(|error| match error.kind() {
            ErrorKind::NotFound => damaged(dir, RAW, "is missing"),
            _ => format!("cannot read {RAW} of the run {}: {error}", dir.display()),
        })?;
        let series = read_raw(&text, &meta).map_err(|what| damaged(dir, RAW, &what))?;
        Ok(Self { meta, series })
    }
}

fn damaged(dir: &Path, file: &str, what: &str) -> Error {
    format!(
        "the run {} is damaged: {file} {what}: restore the file, or measure again",
        dir.display()
    )
}

/// Parses meta.json. The error continues a sentence that begins with the name of the file.
fn read_meta(text: &[u8]) -> Result<Meta, String> {
    if text.is_empty() {
        return Err("is empty".to_owned());
    }
    let meta: Meta = serde_json::from_slice(text)
        .map_err(|error| format!("is not what was written ({error})"))?;
    // A run is written for the first time when its first test has ended.
    if meta.tests.is_empty() { Err("names no test".to_owned()) } else { Ok(meta) }
}

/// Parses raw.csv of the run with this description. The error continues a sentence that begins with the name of the file.
fn read_raw(text: &[u8], meta: &Meta) -> Result<Vec<Series>, String> {
    let failed = |error: csv::Error| format!("is not what was written ({error})");
    if text.is_empty() {
        return Err("is empty".to_owned());
    }
    // A number or a unit without its end may still be one.
    if !text.ends_with(b"\n") {
        return Err("is cut off: its last line has no end".to_owned());
    }
    let mut csv = csv::Reader::from_reader(text);
    let headers = csv.headers().map_err(failed)?.clone();
    if !headers.iter().eq(HEAD) {
        return Err(format!("does not begin with the line {}", HEAD.join(",")));
    }
    let mut series = Vec::<Series>::new();
    let mut record = csv::StringRecord::new();
    while csv.read_record(&mut record).map_err(failed)? {
        let row: Row<'_> = record.deserialize(Some(&headers)).map_err(failed)?;
        // Values may be infinite: the cost of each of no requests.
        if !row.step.is_finite() {
            return Err(format!("has a row of {} at the step {}", row.test, row.step));
        }
        let is_it = |s: &Series| {
            s.test == row.test
                && s.system == row.system
                && s.series == row.series
                && s.unit == row.unit
        };
        // Rows of a series stand together, so the last is nearly always the one.
        let at = match series.iter().rposition(is_it) {
            Some(at) => at,
            None => {
                if !meta.tests.iter().any(|ran| ran.about.name == row.test) {
                    return Err(format!(
                        "has rows of '{}', a test that {META} does not name",
                        row.test
                    ));
                }
                series.push(Series {
                    test: row.test.to_owned(),
                    system: row.system.to_owned(),
                    series: row.series.to_owned(),
                    unit: row.unit,
                    points: Vec::new(),
                });
                series.len() - 1
            }
        };
        series[at].points.push((row.step, row.value));
    }
    // If there is no row, each test has a reason.
    let has_reason = |ran: &Ran| !ran.skipped.is_empty();
    if series.is_empty() && !meta.interrupted && !meta.tests.iter().all(has_reason) {
        return Err(format!("has no rows, and {META} has no reason for that"));
    }
    Ok(series)
}

/// Writes a file so that it appears whole or not at all.
///
/// # Errors
/// When the disk refuses it.
pub fn write(path: &Path, text: &[u8]) -> Result<(), Error> {
    let new = path.with_extension("new");
    fs::write(&new, text)
        .and_then(|()| fs::rename(&new, path))
        .map_err(|error| format!("cannot write {}: {error}", path.display()))
}
