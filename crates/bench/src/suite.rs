//! Tests as values, and the code that runs several: recorder, progress, ctrl-C, noise before and after.

use core::time::Duration;
use std::io::{IsTerminal as _, stderr};
use std::path::{Path, PathBuf};
use std::time::Instant;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tempfile::TempDir;

use crate::clock::{self, Cost};
use crate::machine::{self, CpuTime, Machine, Noise};
use crate::origin::{Binary, Tree};
use crate::run::{self, Description, Figure, Judge, Meta, Ran, Run, Series, Skipped, Table};
use crate::unit::{Better, Unit};
use crate::{Error, interrupt, report};

/// Why a test ends without its figures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The test cannot run here: a right, a limit or a program is missing. It becomes a row with the
    /// reason; the run goes on and succeeds.
    Skip(String),
    /// The test should have run. It becomes a row too, and the run exits with 1 in the end.
    Failed(String),
}

/// Errors of the system are failures, unless the kernel does not know the call or forbids it.
impl From<std::io::Error> for Fault {
    fn from(error: std::io::Error) -> Self {
        use rustix::io::Errno;
        let skips =
            [Errno::NOSYS, Errno::PERM, Errno::ACCESS, Errno::OPNOTSUPP].map(Errno::raw_os_error);
        if error.raw_os_error().is_some_and(|errno| skips.contains(&errno)) {
            Self::Skip(format!("the kernel refuses it: {error}"))
        } else {
            Self::Failed(error.to_string())
        }
    }
}

impl From<rustix::io::Errno> for Fault {
    fn from(errno: rustix::io::Errno) -> Self {
        std::io::Error::from(errno).into()
    }
}

/// The function that measures.
pub type Body = Box<dyn FnMut(&mut Recorder<'_>) -> Result<(), Fault>>;

/// A test: its question, its number of steps, and its code.
pub struct Test {
    about: Description,
    steps: usize,
    quick: usize,
    body: Body,
}

impl core::fmt::Debug for Test {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Test").field("about", &self.about).finish_non_exhaustive()
    }
}

impl Test {
    /// A test with 1000 steps, 50 in quick mode, judged by growth, one plot for each unit.
    /// `name` is `[a-z0-9-]`, `title` one line.
    pub fn new(
        name: &str,
        title: &str,
        body: impl FnMut(&mut Recorder<'_>) -> Result<(), Fault> + 'static,
    ) -> Self {
        let about = Description {
            name: name.to_owned(),
            title: title.to_owned(),
            scales: String::new(),
            x: "step".to_owned(),
            warm_up: "none: the first step is part of the picture".to_owned(),
            judge: Judge::Growth,
            figures: Vec::new(),
            better: Vec::new(),
            curves: Vec::new(),
        };
        Self { about, steps: 1000, quick: 50, body: Box::new(body) }
    }
    /// Sets the meaning of "scales", one line.
    #[must_use]
    pub fn scales(mut self, text: &str) -> Self {
        text.clone_into(&mut self.about.scales);
        self
    }
    /// Sets the unit of a step: "live children".
    #[must_use]
    pub fn x(mut self, text: &str) -> Self {
        text.clone_into(&mut self.about.x);
        self
    }
    /// Describes the warm-up.
    #[must_use]
    pub fn warm_up(mut self, text: &str) -> Self {
        text.clone_into(&mut self.about.warm_up);
        self
    }
    /// Steps in full and in quick mode.
    #[must_use]
    pub fn steps(mut self, full: usize, quick: usize) -> Self {
        (self.steps, self.quick) = (full, quick);
        self
    }
    /// Judged by median and spread alone.
    #[must_use]
    pub fn level(mut self) -> Self {
        self.about.judge = Judge::Level;
        self
    }
    /// Not judged: it has tables of its own.
    #[must_use]
    pub fn tabled(mut self) -> Self {
        self.about.judge = Judge::Tables;
        self
    }
    /// Adds a plot; the first replaces the default ones.
    #[must_use]
    pub fn figure(mut self, figure: Figure) -> Self {
        self.about.figures.push(figure);
        self
    }
    /// Sets the better direction for a series whose unit does not imply one.
    #[must_use]
    pub fn better(mut self, series: &str, better: Better) -> Self {
        self.about.better.push((series.to_owned(), better));
        self
    }
    /// Adds what is to be said after the measurement, however it ends.
    #[must_use]
    pub fn then(mut self, after: impl Fn(&mut Recorder<'_>) + 'static) -> Self {
        let mut body = self.body;
        self.body = Box::new(move |recorder: &mut Recorder<'_>| {
            let result = body(recorder);
            after(recorder);
            result
        });
        self
    }
    /// The description of the test.
    #[must_use]
    pub fn about(&self) -> &Description {
        &self.about
    }
}

/// The options of a run.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// `os`, `events`, ...
    pub suite: String,
    /// Directory to write; `None`: `runs/<date>-<host>`.
    pub out: Option<PathBuf>,
    /// Name for the host instead of its own.
    pub host: Option<String>,
    /// The directory for the files of tests; `None`: `$TMPDIR` or `/tmp`.
    pub temp: Option<PathBuf>,
    /// Few steps.
    pub quick: bool,
    /// Steps of every test instead of its own.
    pub steps: Option<usize>,
}

/// The recorder that each test gets: it records the figures and answers questions about the run.
#[derive(Debug)]
pub struct Recorder<'a> {
    options: &'a Options,
    steps: usize,
    series: Vec<Series>,
    ran: &'a mut Ran,
    versions: &'a mut Vec<(String, String)>,
    binaries: &'a mut Vec<Binary>,
    measured_cpu: &'a mut Duration,
    bar: &'a ProgressBar,
    descriptors: usize,
}

/// One series within a [`Recorder`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeriesId(usize);

impl Recorder<'_> {
    /// Steps to do.
    #[must_use]
    pub fn steps(&self) -> usize {
        self.steps
    }
    /// True if a whole suite should take under a minute.
    #[must_use]
    pub fn is_quick(&self) -> bool {
        self.options.quick
    }
    /// True once ctrl-C has come: leave the loop and clean up. The recorded points are kept.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        interrupt::is_set()
    }
    /// Descriptors that this process may have.
    #[must_use]
    pub fn descriptors(&self) -> usize {
        self.descriptors
    }
    /// Steps that fit into the limit of descriptors when each needs `each`; notes it if that is fewer.
    pub fn steps_within_descriptors(&mut self, each: usize) -> usize {
        /// Standard streams, the terminal, a directory, a ring.
        const OTHERS: usize = 64;
        /// The kernel's memory for a descriptor: roughly that of a socket.
        const EACH_BYTES: u64 = 4096;
        let fit = self.descriptors.saturating_sub(OTHERS) / each;
        if fit < self.steps {
            self.note(format!(
                "{fit} of {} steps: the limit of descriptors is {} (ulimit -n), and a step needs {each}",
                self.steps, self.descriptors
            ));
        }
        self.steps_within_memory(EACH_BYTES * each as u64).min(fit)
    }
    /// The number of steps that fit into half of the free memory if each takes `each` bytes, on top of
    /// the memory of its points. A note says so if it is fewer than `--steps`, which would otherwise
    /// end in the kernel's OOM killer.
    pub fn steps_within_memory(&mut self, each: u64) -> usize {
        /// The maximum of bytes of a step's points, here and in the kept run.
        const POINTS: u64 = 128;
        let fit = machine::available_memory() / 2 / (each + POINTS);
        let fit = usize::try_from(fit).unwrap_or(usize::MAX);
        if fit < self.steps {
            self.note(format!(
                "{fit} of {} steps: a step takes {each} bytes or so, and more than half of the free memory is not \
                 to be taken",
                self.steps
            ));
        }
        self.steps.min(fit)
    }
    /// Begins a series and makes room for `capacity` points, so that recording does not allocate.
    pub fn series(&mut self, system: &str, series: &str, unit: Unit, capacity: usize) -> SeriesId {
        let is_it = |s: &Series| s.system == system && s.series == series && s.unit == unit;
        let at = match self.series.iter().position(is_it) {
            Some(at) => at,
            None => {
                self.series.push(Series {
                    test: self.ran.about.name.clone(),
                    system: system.to_owned(),
                    series: series.to_owned(),
                    unit,
                    points: Vec::new(),
                });
                self.series.len() - 1
            }
        };
        // Written once, so that no page is first touched within a timed step.
        self.series[at].points.reserve(capacity);
        let spare = capacity.saturating_sub(self.series[at].points.len());
        let length = self.series[at].points.len();
        self.series[at].points.extend(core::iter::repeat_n((0.0, 0.0), spare));
        self.series[at].points.truncate(length);
        SeriesId(at)
    }
    /// Adds a point.
    pub fn push(&mut self, series: SeriesId, step: f64, value: f64) {
        self.series[series.0].points.push((step, value));
    }
    /// Adds a point to a series by name; for values that are not nanoseconds.
    pub fn record(&mut self, system: &str, series: &str, unit: Unit, step: f64, value: f64) {
        let id = self.series(system, series, unit, 0);
        self.push(id, step, value);
    }
    /// Marks a series as a curve of percentiles: its points are of one set of values.
    pub fn is_curve(&mut self, series: &str) {
        if !self.ran.about.curves.iter().any(|known| known == series) {
            self.ran.about.curves.push(series.to_owned());
        }
    }
    /// Something to know about the figures.
    pub fn note(&mut self, text: impl Into<String>) {
        let text = text.into();
        if !self.ran.notes.contains(&text) {
            self.ran.notes.push(text);
        }
    }
    /// Notes that one of several systems cannot be measured here, with the reason.
    pub fn skip(&mut self, system: &str, why: impl Into<String>) {
        let skipped = Skipped { system: system.to_owned(), why: why.into() };
        if !self.ran.skipped.contains(&skipped) {
            self.ran.skipped.push(skipped);
        }
    }
    /// Notes the version of a measured program, for meta.json; the first version of a name counts.
    pub fn version(&mut self, name: &str, version: impl Into<String>) {
        if !self.versions.iter().any(|(known, _)| known == name) {
            self.versions.push((name.to_owned(), version.into()));
        }
    }
    /// Notes a program or library of ours that is measured, for meta.json. It is read once per run, so
    /// call this before it starts. A file that cannot be read is noted.
    pub fn binary(&mut self, name: &str, path: &Path) {
        if self.binaries.iter().any(|known| known.name == name) {
            return;
        }
        match Binary::of(name, path) {
            Ok(binary) => self.binaries.push(binary),
            Err(error) => self.note(format!("no hash of {name}: {error}")),
        }
    }
    /// CPU time that was used by somebody who is measured and not a child of this process: others that
    /// made the machine noisy they are not.
    pub fn measured_cpu(&mut self, used: Duration) {
        *self.measured_cpu += used;
    }
    /// A table for the summary and the report.
    pub fn table(&mut self, table: Table) {
        self.ran.tables.push(table);
    }
    /// Shows the progress of the test, 0 to 1. It draws at most ten times a second, and only on a
    /// terminal. Call it between steps, never within a timed step.
    pub fn progress(&self, part: f64) {
        /// Units of the bar for one test.
        const WHOLE: f64 = 1000.0;
        if !self.bar.is_hidden() {
            #[allow(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "clamped to 0 to 1000"
            )]
            self.bar.set_position((part.clamp(0.0, 1.0) * WHOLE) as u64);
        }
    }
    /// A directory for files, which removes itself when dropped.
    ///
    /// # Errors
    /// When it cannot be made; says where.
    pub fn temp_dir(&self) -> Result<TempDir, Fault> {
        let parent = self.options.temp.clone().unwrap_or_else(std::env::temp_dir);
        tempfile::Builder::new().prefix("samum-bench-").tempdir_in(&parent).map_err(|error| {
            Fault::Failed(format!(
                "cannot make a directory in {}: {error}; --temp DIR names another",
                parent.display()
            ))
        })
    }
}

/// A run that has ended, and where it is.
#[derive(Debug)]
pub struct Finished {
    /// Its directory.
    pub dir: PathBuf,
    /// The contents of the run.
    pub run: Run,
    /// Tests that failed where they should have run, as sentences.
    pub failures: Vec<String>,
}

/// Runs tests one after the other and writes the directory: meta.json and raw.csv after each test, the
/// rest at the end. After ctrl-C the remaining tests are rows with that reason.
///
/// # Errors
/// If the directory cannot be written. A test that fails does not fail the run: see
/// [`Finished::failures`].
pub fn run(tests: Vec<Test>, options: &Options) -> Result<Finished, Error> {
    interrupt::catch()?;
    let descriptors = machine::raise_descriptors();
    let machine = Machine::this(options.host.as_deref());
    let dir = run::create(options.out.as_deref(), &machine.host)?;
    let (from, before) = (CpuTime::now(), clock::calibrate());
    let mut run = Run {
        meta: Meta {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            suite: options.suite.clone(),
            command: std::env::args().collect(),
            label: label(&dir),
            start: now(),
            end: now(),
            quick: options.quick,
            interrupted: false,
            machine,
            clock: Cost::measure(),
            noise: None,
            tree: Tree::ours(),
            binaries: Vec::new(),
            versions: Vec::new(),
            tests: Vec::new(),
        },
        series: Vec::new(),
    };
    let (mut failures, mut measured_cpu) = (Vec::new(), Duration::ZERO);
    let total = tests.len();
    for (nth, mut test) in tests.into_iter().enumerate() {
        let bar = progress_bar(&test.about.name, nth + 1, total);
        let own = if options.quick { test.quick } else { test.steps };
        let mut ran = Ran {
            about: test.about,
            steps: options.steps.unwrap_or(own),
            seconds: 0.0,
            notes: Vec::new(),
            skipped: Vec::new(),
            tables: Vec::new(),
        };
        let start = Instant::now();
        let (result, series) = if interrupt::is_set() {
            (Err(Fault::Skip("interrupted before it began".into())), Vec::new())
        } else {
            let steps = ran.steps;
            let mut recorder = Recorder {
                options,
                steps,
                series: Vec::new(),
                ran: &mut ran,
                versions: &mut run.meta.versions,
                binaries: &mut run.meta.binaries,
                measured_cpu: &mut measured_cpu,
                bar: &bar,
                descriptors,
            };
            // The file that runs, even if it was built again meanwhile.
            recorder.binary("samum-bench", Path::new("/proc/self/exe"));
            let result = (test.body)(&mut recorder);
            (result, recorder.series)
        };
        ran.seconds = start.elapsed().as_secs_f64();
        if interrupt::is_set() && result.is_ok() {
            ran.notes.push("interrupted: fewer steps than asked for".into());
        }
        if let Err(fault) = result {
            let (Fault::Skip(why) | Fault::Failed(why)) = &fault;
            // A fault that ctrl-C has caused is no failure.
            if let Fault::Failed(_) = fault
                && !interrupt::is_set()
            {
                failures.push(format!("{}: {why}", ran.about.name));
            }
            ran.skipped.push(Skipped { system: String::new(), why: why.clone() });
        }
        bar.finish_and_clear();
        run.series.extend(series.into_iter().filter(|series| !series.points.is_empty()));
        run.meta.tests.push(ran);
        run.meta.end = now();
        run.meta.interrupted = interrupt::is_set();
        run.save(&dir)?;
    }
    let after = clock::calibrate();
    run.meta.noise = Some(Noise::judge(before, after, from, CpuTime::now().with(measured_cpu)));
    run.save(&dir)?;
    report::write(&run, &dir)?;
    Ok(Finished { dir, run, failures })
}

/// RFC 3339, UTC, whole seconds.
fn now() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// The last part of a path.
fn label(dir: &Path) -> String {
    let whole = dir.canonicalize().unwrap_or_else(|_| dir.to_owned());
    whole.file_name().map_or_else(|| "run".to_owned(), |name| name.to_string_lossy().into_owned())
}

fn progress_bar(name: &str, nth: usize, of: usize) -> ProgressBar {
    /// Redraws a second: drawing is noise, too.
    const REDRAWS: u8 = 10;
    if !stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style =
        ProgressStyle::with_template("{prefix:>7} {msg:18} {bar:40} {percent:>3} % {elapsed}");
    let bar =
        ProgressBar::with_draw_target(Some(1000), ProgressDrawTarget::stderr_with_hz(REDRAWS));
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.set_prefix(format!("{nth}/{of}"));
    bar.set_message(name.to_owned());
    bar.tick();
    bar
}
