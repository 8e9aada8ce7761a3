//! Measures requests for healthy files while thousands of requests wait for files on a device that does not answer.
//!
//! The device is a loop device whose reads the block layer holds back (a limit of one byte per second), as for
//! a disk whose cable was pulled. Windows without and with the hung requests take turns. At the end of each
//! window with hung requests the device answers again, and every request must get its response.

use core::time::Duration;
use std::fs;
use std::rc::Rc;
use std::thread;
use std::time::Instant;

use super::image::Image;
use super::peers::Peer;
use super::rounds::{Rounds, in_windows};
use super::server::Server;
use super::site::Site;
use super::throttle::Throttle;
use super::{Dropped, League, Measured};
use crate::load::{Arrival, Background, Order, Plan, Sources, Target};
use crate::run::Table;
use crate::stats::float;
use crate::{Fault, Recorder, Test, Unit};

/// The test.
#[must_use]
pub fn test(league: &Rc<League>) -> Test {
    let league = Rc::clone(league);
    let title = "Latency of requests beside those for a device that does not answer";
    Test::new("hung", title, move |recorder| run(&league, recorder))
        .scales("as fast beside requests for the hung device as without them")
        .x("window")
        .warm_up(
            "the hot file is fetched first; the hung requests are sent three seconds before each window",
        )
        .tabled()
}

fn run(league: &League, recorder: &mut Recorder<'_>) -> Result<(), Fault> {
    let windows = recorder.steps();
    let requests = recorder.descriptors().saturating_sub(OTHER_DESCRIPTORS).min(league.hung);
    let site = Site::new(league.root.as_deref())?;
    site.needs_a_disk()?;
    let hot = site.file("hot", HOT_BYTES)?;
    let per_window = (COLD_RATE * 2.0 * league.length.as_secs_f64()).ceil();
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "hundreds")]
    let per_window = per_window as usize + 10;
    let cold: Vec<String> = (0..per_window)
        .map(|i| site.file(&format!("cold/{i}"), COLD_BYTES))
        .collect::<Result<_, _>>()?;
    // No file is requested in two windows, because it would then come from memory.
    let directory = |window: usize| format!("hung/{window}");
    let write = |mounted: &std::path::Path| {
        for window in 0..windows {
            let directory = mounted.join(window.to_string());
            fs::create_dir(&directory)?;
            for file in 0..HUNG_FILES {
                fs::write(directory.join(file.to_string()), [b'x'; HUNG_BYTES])?;
            }
        }
        Ok(())
    };
    let len = (64 << 20) + (windows * HUNG_FILES * 2 * HUNG_BYTES) as u64;
    let root = site.root().join("hung");
    let image = Image::new(league.root.as_deref(), len, root, write)?;
    let mut table = Vec::new();
    let mut dropped = Dropped::default();
    let names = league.only.clone().unwrap_or_else(|| vec!["samum".to_owned()]);
    let count = names.len();
    for name in names {
        let peer = Peer::named(&name).map_err(Fault::Failed)?;
        image.remount()?;
        let throttle = Throttle::new(&site.root().join("hung")).map_err(Fault::Skip)?;
        let known = [hot.clone()];
        let Some(server) = league.start(recorder, &peer, &site, &known, Some(&throttle)) else {
            continue;
        };
        let mut stage =
            Stage { league, site: &site, throttle: &throttle, hot: &hot, cold: &cold, server };
        let mut rounds = Rounds::default();
        for window in 0..windows {
            if recorder.is_stopped() {
                break;
            }
            let x = float(window + 1);
            match stage.windows(&directory(window), requests) {
                Ok(([alone, beside], recovered)) => {
                    alone.record(recorder, &mut rounds, &name, ALONE, x);
                    beside.record(recorder, &mut rounds, &name, BESIDE, x);
                    rounds.record(recorder, &name, RECOVERY, Unit::Nanoseconds, x, recovered);
                }
                Err(fault) => {
                    dropped.add(recorder, &name, window + 1, fault);
                    break;
                }
            }
            recorder.progress(x / float(windows));
        }
        // The server must end before its cgroup and its files go.
        drop(stage);
        if rounds.spread(&name, RECOVERY).is_none() {
            continue;
        }
        for (what, bar) in
            [("p99 of a hot file", 1.5), ("p50 of cold files", 1.5), ("p99 of cold files", 1.5)]
        {
            let series = |kind| in_windows(what, kind);
            let ratio =
                rounds.median(&name, &series(BESIDE)) / rounds.median(&name, &series(ALONE));
            let cell = |kind| rounds.cell(&name, &series(kind), |ns| Unit::Nanoseconds.show(ns));
            let row = [
                what.to_owned(),
                format!("{ratio:.2}"),
                format!("≤ {bar:.2}"),
                cell(BESIDE),
                cell(ALONE),
            ];
            table.push([vec![name.clone()], row.to_vec()].concat());
        }
        let mut row =
            vec![name.clone(), "all hung requests answered, after the device answers".to_owned()];
        row.extend([String::new(), String::new()]);
        row.push(rounds.cell(&name, RECOVERY, |ns| Unit::Nanoseconds.show(ns)));
        row.push(String::new());
        table.push(row);
    }
    let head = ["server", "what", "ratio", "bar", "beside hung requests", "without"];
    recorder.table(Table {
        title: format!(
            "{requests} requests for {HUNG_FILES} files of a device that does not answer: medians (least–greatest) \
             of {windows} windows each; {}",
            league.receives()
        ),
        head: head.map(str::to_owned).to_vec(),
        rows: table,
    });
    dropped.result(count)
}

struct Stage<'a> {
    league: &'a League,
    site: &'a Site,
    throttle: &'a Throttle,
    hot: &'a str,
    cold: &'a [String],
    server: Server,
}

/// The figures of a window.
struct Window {
    hot: Measured,
    cold: Measured,
}

impl Window {
    fn record(
        &self,
        recorder: &mut Recorder<'_>,
        rounds: &mut Rounds,
        name: &str,
        kind: &str,
        x: f64,
    ) {
        for (what, value) in [
            (HOT_P99, self.hot.account.percentile(0.99)),
            (COLD_P50, self.cold.account.percentile(0.5)),
            ("p99 of cold files", self.cold.account.percentile(0.99)),
        ] {
            let series = in_windows(what, kind);
            rounds.record(recorder, name, &series, Unit::Nanoseconds, x, value);
        }
    }
}

impl Stage<'_> {
    /// A window alone and one beside hung requests, and the nanoseconds until the hung ones had their
    /// responses.
    fn windows(&mut self, directory: &str, requests: usize) -> Result<([Window; 2], f64), Fault> {
        let alone = self.window()?;
        let hung = self.hang(directory, requests);
        thread::sleep(HEAD_START);
        let beside = self.window();
        // However the window went: a server that waits for the device cannot be ended.
        let recovered = self.recover(hung, requests);
        Ok(([alone, beside?], recovered?))
    }

    /// Requests the hot file, and after it cold files of the healthy disk, both by the clock.
    fn window(&mut self) -> Result<Window, Fault> {
        let target =
            |(name, len): (&str, u64)| Target { len: Some(len), ..Target::new(format!("/{name}")) };
        self.site.evict(self.cold)?;
        let hot = Plan {
            connections: HOT_CONNECTIONS,
            arrival: Arrival::Poisson(HOT_RATE),
            ..self.league.plan(&self.server, vec![target((self.hot, HOT_BYTES))])
        };
        let hot = self.league.measure(&mut self.server, &hot)?;
        let files = self.cold.iter().map(|name| target((name, COLD_BYTES)));
        let cold = Plan {
            connections: COLD_CONNECTIONS,
            order: Order::Once,
            arrival: Arrival::Poisson(COLD_RATE),
            ..self.league.plan(&self.server, files.collect())
        };
        let cold = self.league.measure(&mut self.server, &cold)?;
        for (what, measured) in [("hot", &hot), ("cold", &cold)] {
            if measured.account.failed_ever() > 0 {
                let failures = measured.account.failures();
                return Err(Fault::Failed(format!("requests for {what} files: {failures}")));
            }
        }
        Ok(Window { hot, cold })
    }

    /// Stops the device and requests its files, each on several connections.
    fn hang(&self, directory: &str, requests: usize) -> std::io::Result<Background> {
        self.throttle.limit(Some(1))?;
        let target = |file| Target {
            len: Some(HUNG_BYTES as u64),
            ..Target::new(format!("/{directory}/{}", file % HUNG_FILES))
        };
        Ok(Background::start(Plan {
            order: Order::Once,
            connections: requests,
            warmup: Duration::ZERO,
            duration: HUNG_LIMIT,
            timeout: HUNG_LIMIT,
            sources: Sources::enough_for(requests, self.server.address()),
            ..self.league.plan(&self.server, (0..requests).map(target).collect())
        }))
    }

    /// Lets the device answer; returns the nanoseconds until all requests had their responses.
    fn recover(&self, hung: std::io::Result<Background>, requests: usize) -> Result<f64, Fault> {
        let start = Instant::now();
        self.throttle.limit(None)?;
        let account = hung?.join()?;
        if account.answered_ever < requests as u64 {
            let (answered, failures) = (account.answered_ever, account.failures());
            return Err(Fault::Failed(format!(
                "{answered} of {requests} hung requests were answered: {failures}"
            )));
        }
        Ok(start.elapsed().as_secs_f64() * 1e9)
    }
}

pub(crate) const HOT_P99: &str = "p99 of a hot file";
pub(crate) const COLD_P50: &str = "p50 of cold files";
pub(crate) const ALONE: &str = "alone";
pub(crate) const BESIDE: &str = "beside hung requests";
const RECOVERY: &str = "recovery";

const HOT_BYTES: u64 = 1024;
const HOT_CONNECTIONS: usize = 32;
/// The requests per second for the healthy file.
const HOT_RATE: f64 = 5000.0;

const COLD_BYTES: u64 = 64 << 10;
const COLD_CONNECTIONS: usize = 32;
/// Requests for such files per second.
const COLD_RATE: f64 = 100.0;

/// Files of the hung device that are requested in a window.
const HUNG_FILES: usize = 1000;
const HUNG_BYTES: usize = 4096;
/// By then hung requests are given up.
const HUNG_LIMIT: Duration = Duration::from_secs(60);
/// From the first hung request to the window.
const HEAD_START: Duration = Duration::from_secs(3);

/// The descriptors of this process besides those of hung requests.
const OTHER_DESCRIPTORS: usize = 256;
