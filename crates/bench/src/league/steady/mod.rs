//! Measures the load that a server bears: clients that become more and more, and the highest rate of clients at which
//! nobody suffers.
//!
//! Each client opens a connection, requests one file and leaves. Clients come by the clock, whether the server keeps up
//! or not. Popular files are in memory. Each other file is put out of memory when its last client has left, so the site
//! is as cold after an hour as in the first second.
//!
//! ```text
//!   files                     pure: sizes and popularity of the site
//!   shares, judge, seconds    pure: from the record of a load to its figures and its judgement
//!   search                    pure: the next load to try
//! ```
//!
//! A load is *safe* if for the time of a measurement all of this holds: the p99 of hot files is at most twice that
//! without other requests; each request gets its response; and each download gets at least half of its fair share.
//! A response that has not come two seconds after the last client is an error, so a load that the disk cannot serve is
//! not safe.

use core::fmt;
use core::time::Duration;
use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;
use std::thread;
use std::time::Instant;

use super::diskstats::Disk;
use super::mixed::ZIPF;
use super::peers::{Peer, STEADY};
use super::rounds::Rounds;
use super::server::Server;
use super::site::Site;
use super::throttle::Throttle;
use super::{Dropped, League};
use crate::load::schedule::nanos;
use crate::load::{Account, Arrival, Background, Order, Plan, Ramp, Sources, Target, pin};
use crate::run::{Figure, Table};
use crate::spread::Value;
use crate::stats::{float, median};
use crate::unit::NOTHING;
use crate::{Fault, Recorder, Test, Unit, interrupt, machine};

mod files;
mod judge;
mod search;
mod seconds;
mod shares;
#[cfg(test)]
mod simulated;

use files::{SIZE_MAX, SiteFile, bytes_from_disk};
use judge::{Figures, Judgement, LATENCY_MAX, SHARE_MIN, judge};
use search::{Direction, Found, Search};

/// The test.
#[must_use]
pub fn test(league: &Rc<League>) -> Test {
    let shared = Rc::clone(league);
    let title = "The load that a server bears, when clients become more and more";
    let mut test = Test::new("steady", title, move |recorder| run(&shared, recorder))
        .scales("as many clients as the disk can serve, and none of them waits for the others")
        .x("clients per second")
        .warm_up("popular files are read; in the search, a tenth of each measurement")
        .tabled();
    for disk in &league.disks {
        for (what, unit, log_y) in GRAPHS {
            let figure = Figure::of(unit).titled(&disk.of(what)).only(&[&disk.of(what)]);
            test = test.figure(figure.log_y(log_y).lines());
        }
    }
    test
}

/// The bytes per second of a disk, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskLimit(pub Option<u64>);

impl DiskLimit {
    /// Parses bytes per second, or `none`.
    ///
    /// # Errors
    /// A sentence.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Self(None));
        }
        match text.parse() {
            Ok(rate @ RATE_MIN..=RATE_MAX) => Ok(Self(Some(rate))),
            _ => Err(format!("must be bytes per second from {RATE_MIN} to {RATE_MAX}, or none")),
        }
    }

    /// The name of a figure with this disk.
    fn of(self, what: &str) -> String {
        format!("{what}, {self}")
    }

    /// The clients per second between which the server is tried, and at the end of the ramp.
    fn loads(self, bytes_from_disk: f64, peak: f64) -> Loads {
        match self.0 {
            // Clients whose files are as many bytes a second as the disk gives.
            Some(rate) => {
                let full = float(rate) / bytes_from_disk;
                Loads { full: Some(full), least: full / 8.0, most: 1.25 * full, peak: 1.5 * full }
            }
            None => Loads { full: None, least: peak / 32.0, most: peak, peak },
        }
    }
}

impl fmt::Display for DiskLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(rate) => write!(f, "disk of {}", Unit::BytesPerSecond.show(float(rate))),
            None => f.write_str("disk without a limit"),
        }
    }
}

/// Clients per second.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Loads {
    /// As many as the disk can serve; `None` without a limit.
    full: Option<f64>,
    least: f64,
    most: f64,
    /// At the end of the ramp.
    peak: f64,
}

fn run(league: &League, recorder: &mut Recorder<'_>) -> Result<(), Fault> {
    let peers = league.chosen(&STEADY)?;
    let site = Site::new(league.root.as_deref())?;
    site.needs_a_disk()?;
    if league.disks.iter().any(|disk| disk.0.is_some()) {
        // Without a slow disk, no server needs to be started.
        Throttle::new(site.root()).map_err(Fault::Skip)?;
    }
    let files = files::files(if league.quick { FILES_QUICK } else { FILES });
    site.has_room_for(files.iter().map(|file| file.len).sum())?;
    let (mut cold, mut hot) = (Vec::new(), Vec::new());
    for file in &files {
        let name = site.file(&file.name, file.len)?;
        (if file.is_in_memory { &mut hot } else { &mut cold }).push(name);
    }
    let compared = site.file_to_compare()?;
    site.evict(cold.iter().chain([&compared]))?;
    let target = |file: &SiteFile| Target {
        len: Some(file.len),
        group: file.group() as usize,
        ..Target::new(format!("/{}", file.name))
    };
    let seconds = league.steady_length.as_secs_f64();
    let stage = Stage {
        league,
        site: &site,
        disk: Disk::under(site.root()),
        targets: files.iter().map(target).collect(),
        cold,
        hot,
        compared,
        bytes_from_disk: bytes_from_disk(&files),
        seconds,
        hold: seconds / HOLDS,
        connections: CONNECTIONS.min(recorder.descriptors().saturating_sub(OTHER_DESCRIPTORS)),
        precision: if league.quick { PRECISION_QUICK } else { PRECISION },
        files,
    };
    stage.describe(recorder);
    let mut rounds = Rounds::default();
    let mut dropped = Dropped::default();
    // The reason of each server and disk in the newest round, and the limits of the load generator.
    let mut remarks = BTreeMap::<(String, String), String>::new();
    let mut turns = Vec::new();
    for round in 0..recorder.steps() {
        for &disk in &league.disks {
            let order = league.turns.of(peers.len(), round);
            turns.extend(order.into_iter().map(|index| (round, disk, index)));
        }
    }
    let total = float(turns.len());
    for (nth, (round, disk, index)) in turns.into_iter().enumerate() {
        let peer = &peers[index];
        if recorder.is_stopped() {
            break;
        }
        if dropped.has(&peer.name) {
            continue;
        }
        match stage.turn(recorder, &mut rounds, peer, disk, round) {
            Ok(Some(remark)) => {
                remarks.insert((disk.to_string(), peer.name.clone()), remark);
            }
            Ok(None) => dropped.add_absent(recorder, &peer.name),
            Err(fault) => dropped.add(recorder, &peer.name, round + 1, fault),
        }
        recorder.progress(float(nth + 1) / total);
    }
    for &disk in &league.disks {
        stage.table(recorder, &rounds, &peers, disk, &remarks);
    }
    league.describe_these(recorder, &peers);
    dropped.result(peers.len())
}

/// The site and the parameters of all loads.
struct Stage<'a> {
    league: &'a League,
    site: &'a Site,
    /// `None` if the kernel counts no queue for it.
    disk: Option<Disk>,
    files: Vec<SiteFile>,
    /// In the order of [`Self::files`].
    targets: Vec<Target>,
    hot: Vec<String>,
    cold: Vec<String>,
    /// Requested only when a server starts.
    compared: String,
    /// Of each client, on average.
    bytes_from_disk: f64,
    /// The length of the ramp.
    seconds: f64,
    /// The length of each load of the search, in seconds.
    hold: f64,
    connections: usize,
    precision: f64,
}

/// A server with its disk. The server ends first.
struct Running {
    server: Server,
    throttle: Option<Throttle>,
}

impl Drop for Running {
    fn drop(&mut self) {
        // A server that waits for the disk cannot be ended. If the limit stays, it only takes longer.
        let _ = self.throttle.as_ref().map(|throttle| throttle.limit(None));
    }
}

/// A second as the machine saw it.
#[derive(Clone, Copy, Debug)]
struct Tick {
    /// Of the server's CPU, percent; `None` if it has none of its own.
    idle: Option<f64>,
    /// The length of the disk's queue; `None` if the kernel does not count it.
    queue: Option<f64>,
}

impl Stage<'_> {
    fn describe(&self, recorder: &mut Recorder<'_>) {
        let league = self.league;
        let small = Unit::Bytes.show(float(files::TAIL_FROM));
        recorder.note(format!(
            "{} files with sizes by SURGE (Barford and Crovella 1998; larger ones have {}), requested by Zipf's law \
             (s = {ZIPF}); half of the requests are for files in memory, each other file is put out of memory when its \
             last client has left, so that clients at the same time share its read; a client needs {} from the disk, on average; hot files are those in memory below \
             {small}, downloads those on the disk from {small} on",
            self.files.len(),
            Unit::Bytes.show(float(SIZE_MAX)),
            Unit::Bytes.show(self.bytes_from_disk),
        ));
        recorder.note(format!(
            "each client has a connection of its own, {} at most at once; the ramp takes {:.0} s, and each load of the \
             search {:.1} s; safe: p99 of hot files ≤ {LATENCY_MAX} × alone, no error, each download that takes a second \
             gets ≥ {SHARE_MIN} of its fair share; the search ends within {:.0} %",
            self.connections,
            self.seconds,
            self.hold,
            100.0 * (self.precision - 1.0),
        ));
        for &disk in &league.disks {
            let Loads { full, least, most, peak } = disk.loads(self.bytes_from_disk, league.peak);
            let full = full.map_or_else(String::new, |full| {
                format!(", which can serve {full:.0} clients per second")
            });
            recorder.note(format!(
                "{disk}{full}: ramp to {peak:.0} clients per second, search from {least:.0} to {most:.0}"
            ));
        }
    }

    /// Measures a server with a disk. Returns a remark for its row; `None` if the server did not start.
    fn turn(
        &self,
        recorder: &mut Recorder<'_>,
        rounds: &mut Rounds,
        peer: &Peer,
        disk: DiskLimit,
        round: usize,
    ) -> Result<Option<String>, Fault> {
        let (name, x) = (&peer.name, float(round + 1));
        let loads = disk.loads(self.bytes_from_disk, self.league.peak);
        let mut remarks = Vec::new();
        let Some(running) = self.start(recorder, peer, disk)? else { return Ok(None) };
        let (account, peak) = self.ramp(recorder, &running, loads, disk, round)?;
        rounds.record(recorder, name, &disk.of(PEAK), Unit::BytesPerSecond, x, peak);
        remarks.extend(account.bottleneck().map(|lacked| format!("ramp: {lacked}")));
        drop(running);
        let mut alone = f64::NAN;
        for (direction, what) in DIRECTIONS {
            let Some(running) = self.start(recorder, peer, disk)? else { return Ok(None) };
            if direction == Direction::Below {
                alone = self.alone(&running, loads, round)?;
                rounds.record(recorder, name, &disk.of(ALONE), Unit::Nanoseconds, x, alone);
            }
            let (found, why) = self.search(&running, direction, loads, alone, round)?;
            let value = match found {
                Found::Safe(load) => Some(load.into()),
                Found::AtLeast(load) => Some(Value { number: load, at_least: true }),
                Found::Nothing => Some(0.0.into()),
                Found::Unknown => None,
            };
            if let Some(value) = value {
                rounds.record(recorder, name, &disk.of(what), Unit::PerSecond, x, value);
            }
            remarks.extend((!why.is_empty()).then_some(why));
        }
        Ok(Some(remarks.join("; ")))
    }

    /// Starts a server with cold and hot files where they belong.
    fn start(
        &self,
        recorder: &mut Recorder<'_>,
        peer: &Peer,
        disk: DiskLimit,
    ) -> Result<Option<Running>, Fault> {
        self.site.warm(&self.hot)?;
        self.site.evict_clean(&self.compared)?;
        self.cool()?;
        let throttle =
            disk.0.map(|_| Throttle::new(self.site.root())).transpose().map_err(Fault::Skip)?;
        let first = [self.hot[0].clone(), self.compared.clone()];
        let started = self.league.start(recorder, peer, self.site, &first, throttle.as_ref());
        let Some(server) = started else { return Ok(None) };
        if let Some(throttle) = &throttle {
            throttle.limit(disk.0)?;
        }
        Ok(Some(Running { server, throttle }))
    }

    /// Puts all cold files out of memory.
    fn cool(&self) -> Result<(), Fault> {
        Ok(self.cold.iter().try_for_each(|name| self.site.evict_clean(name))?)
    }

    /// A load of clients that come by `arrival` and request the first `files`, the most popular ones.
    fn plan(&self, server: &Server, arrival: Arrival, seconds: f64, files: usize) -> Plan {
        Plan {
            order: Order::Zipf(ZIPF),
            arrival,
            connections: self.connections,
            keep_alive: false,
            warmup: Duration::ZERO,
            duration: Duration::from_secs_f64(seconds),
            timeout: TIMEOUT,
            sources: Sources::enough_for(self.connections, server.address()),
            is_traced: true,
            ..self.league.plan(server, self.targets[..files].to_vec())
        }
    }

    /// Runs a load. Meanwhile files that were left become cold again, and the machine is looked at each second.
    fn load(&self, plan: Plan) -> Result<(Account, Vec<Tick>), Fault> {
        let load = Background::start(plan);
        let watch = Watch {
            site: self.site,
            files: &self.files,
            disk: self.disk.as_ref(),
            server_cpu: self.league.server_cpu,
            client_cpu: self.league.client_cpu,
        };
        let ticks = thread::scope(|scope| {
            let watch = scope.spawn(|| watch.run(&load));
            watch.join().unwrap_or_else(|_| Err(io::Error::other("the watch panicked")))
        })?;
        let account = load.join()?;
        interrupt::check()?;
        Ok((account, ticks))
    }

    /// Measures the p99 of hot files without other requests, in nanoseconds.
    fn alone(&self, running: &Running, loads: Loads, round: usize) -> Result<f64, Fault> {
        // The files in memory are the most popular ones, so among them popularity stays as it is.
        let rate = files::HOT * loads.most / 2.0;
        let seconds = self.hold / 2.0;
        let plan = self.plan(&running.server, Arrival::Poisson(rate), seconds, self.hot.len());
        let (mut account, _) = self.load(Plan { seed: round as u64, ..plan })?;
        let trace = account.trace.take().unwrap_or_default();
        let figures = Figures::of(&trace, 0, |target| self.files[target].group());
        if figures.errors > 0 {
            let failed = account.failures();
            return Err(Fault::Failed(format!("hot files alone: {failed}")));
        }
        if figures.p99.number.is_nan() {
            return Err(Fault::Failed(format!("no hot file was requested within {seconds} s")));
        }
        Ok(figures.p99.number)
    }

    /// Lets clients become more, and records each second of the first round. Returns the peak of the traffic.
    fn ramp(
        &self,
        recorder: &mut Recorder<'_>,
        running: &Running,
        loads: Loads,
        disk: DiskLimit,
        round: usize,
    ) -> Result<(Account, f64), Fault> {
        let ramp = Ramp { from: loads.peak / RAMP, to: loads.peak, seconds: self.seconds };
        let plan = self.plan(&running.server, Arrival::Ramp(ramp), self.seconds, self.files.len());
        let (mut account, ticks) = self.load(Plan { seed: round as u64, ..plan })?;
        self.league.limits.add(running.server.name(), account.bottleneck());
        let trace = account.trace.take().unwrap_or_default();
        let count = self.seconds_count();
        let seconds = seconds::seconds(&trace, count, |target| self.files[target].group());
        if round == 0 {
            let name = running.server.name();
            for (nth, second) in seconds.iter().enumerate() {
                let tick = ticks.get(nth);
                for (what, unit, value) in [
                    (TRAFFIC, Unit::BytesPerSecond, Some(float(second.bytes))),
                    (IDLE, Unit::Percent, tick.and_then(|tick| tick.idle)),
                    (P99, Unit::Nanoseconds, second.p99.map(float)),
                    (QUEUE, Unit::Count, tick.and_then(|tick| tick.queue)),
                    (DOWNLOADS, Unit::Count, Some(second.downloads)),
                    (ERRORS, Unit::Count, Some(float(second.errors))),
                ] {
                    if let Some(value) = value {
                        let x = ramp.rate(float(nth) + 0.5);
                        recorder.record(name, &disk.of(what), unit, x, value);
                    }
                }
            }
        }
        Ok((account, seconds::peak(&seconds)))
    }

    /// The whole seconds of the ramp; at least one.
    fn seconds_count(&self) -> usize {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a day at most")]
        let count = self.seconds as usize;
        count.max(1)
    }

    /// Searches the highest safe load. Returns also the reason why the server does not bear more.
    fn search(
        &self,
        running: &Running,
        direction: Direction,
        loads: Loads,
        alone: f64,
        round: usize,
    ) -> Result<(Found, String), Fault> {
        let mut search = Search::new(direction, loads.least, loads.most, self.precision);
        let mut why = String::new();
        while let Some(load) = search.next() {
            let warm_up = self.hold / 10.0;
            let arrival = Arrival::Poisson(load);
            let plan = self.plan(&running.server, arrival, self.hold, self.files.len());
            let warmup = Duration::from_secs_f64(warm_up);
            let (account, _) = self.load(Plan { warmup, seed: round as u64, ..plan })?;
            let bottleneck = account.bottleneck();
            let trace = account.trace.unwrap_or_default();
            let group = |target: usize| self.files[target].group();
            match judge(&Figures::of(&trace, nanos(warmup), group), alone, bottleneck) {
                Judgement::Safe => search.tell(load, true),
                Judgement::Unsafe(reason) => {
                    why = format!("at {load:.0}/s: {reason}");
                    search.tell(load, false);
                }
                Judgement::Unknown(reason) => {
                    why = format!("at {load:.0}/s: {reason}");
                    break;
                }
            }
            // The next load begins without the connections and pages of this one.
            thread::sleep(Duration::from_secs_f64(warm_up.min(REST_MAX)));
            self.cool()?;
        }
        Ok((search.found(), why))
    }

    fn table(
        &self,
        recorder: &mut Recorder<'_>,
        rounds: &Rounds,
        peers: &[Peer],
        disk: DiskLimit,
        remarks: &BTreeMap<(String, String), String>,
    ) {
        let full = disk.loads(self.bytes_from_disk, self.league.peak).full;
        let took_part = |peer: &&Peer| rounds.spread(&peer.name, &disk.of(PEAK)).is_some();
        let rows = peers.iter().filter(took_part).map(|peer| {
            let name = &peer.name;
            let cell =
                |what: &str, show: fn(f64) -> String| rounds.cell(name, &disk.of(what), show);
            let medians = DIRECTIONS.map(|(_, what)| rounds.median(name, &disk.of(what)));
            let safe = median(medians.into_iter().filter(|load| load.is_finite()));
            let part = full.map(|full| 100.0 * safe / full).filter(|part| part.is_finite());
            let whole: fn(f64) -> String = |rate| format!("{rate:.0}");
            vec![
                name.clone(),
                cell(BELOW, whole),
                cell(ABOVE, whole),
                part.map_or_else(|| NOTHING.to_owned(), |part| format!("{part:.0} %")),
                cell(PEAK, |rate| format!("{:.1}", rate / 1e6)),
                cell(ALONE, |ns| Unit::Nanoseconds.show(ns)),
                remarks.get(&(disk.to_string(), name.clone())).cloned().unwrap_or_default(),
            ]
        });
        let head = [
            "server",
            "safe load from below, clients/s",
            "from above, clients/s",
            "of what the disk can serve",
            "peak of traffic, MB/s",
            "hot files alone, p99",
            "why not more, in the last round",
        ];
        let rows: Vec<_> = rows.collect();
        if !rows.is_empty() {
            recorder.table(Table {
                title: format!(
                    "Safe load, {disk}: median (least–greatest) of rounds; ≥ where nobody could tell at a higher one; {}",
                    self.league.receives()
                ),
                head: head.map(str::to_owned).to_vec(),
                rows,
            });
        }
    }
}

/// The work that is done during a load: on a thread of its own, which is not on the CPU of the server.
struct Watch<'a> {
    site: &'a Site,
    files: &'a [SiteFile],
    disk: Option<&'a Disk>,
    server_cpu: Option<usize>,
    client_cpu: Option<usize>,
}

/// The counters at a moment.
struct Look {
    at: Instant,
    busy: Option<Duration>,
    waited: Option<Duration>,
}

impl Watch<'_> {
    /// Watches a load until it ends.
    fn run(&self, load: &Background) -> io::Result<Vec<Tick>> {
        pin(self.client_cpu)?;
        // Of this thread alone (setpriority(2)): the load generator goes first.
        rustix::process::nice(NICE)?;
        let (start, mut ticks) = (Instant::now(), Vec::new());
        let mut before = self.look();
        while !load.is_finished() {
            thread::sleep(LEFT_EVERY);
            for target in load.take_left() {
                let file = &self.files[target];
                if !file.is_in_memory {
                    self.site.evict_clean(&file.name)?;
                }
            }
            if start.elapsed().as_secs() > ticks.len() as u64 {
                let now = self.look();
                ticks.push(Tick::between(&before, &now));
                before = now;
            }
        }
        Ok(ticks)
    }

    fn look(&self) -> Look {
        Look {
            at: Instant::now(),
            busy: self.server_cpu.map(machine::busy),
            waited: self.disk.map(Disk::waited),
        }
    }
}

impl Tick {
    fn between(before: &Look, after: &Look) -> Self {
        let passed = (after.at - before.at).as_secs_f64();
        let part = |after: Option<Duration>, before: Option<Duration>| {
            Some(after?.saturating_sub(before?).as_secs_f64() / passed)
        };
        let busy = part(after.busy, before.busy);
        Self {
            idle: busy.map(|busy| (100.0 * (1.0 - busy)).max(0.0)),
            queue: part(after.waited, before.waited),
        }
    }
}

const TRAFFIC: &str = "traffic";
const IDLE: &str = "idle CPU";
const P99: &str = "p99 of hot files";
const QUEUE: &str = "queue of the disk";
const DOWNLOADS: &str = "downloads under way";
const ERRORS: &str = "errors";
const PEAK: &str = "peak of traffic";
const ALONE: &str = "p99 of hot files alone";
const BELOW: &str = "safe load, from below";
const ABOVE: &str = "safe load, from above";

const DIRECTIONS: [(Direction, &str); 2] = [(Direction::Below, BELOW), (Direction::Above, ABOVE)];

/// The graphs of each disk, over the seconds of the ramp; true: with a logarithmic axis.
const GRAPHS: [(&str, Unit, bool); 6] = [
    (TRAFFIC, Unit::BytesPerSecond, false),
    (IDLE, Unit::Percent, false),
    (P99, Unit::Nanoseconds, true),
    (QUEUE, Unit::Count, false),
    (DOWNLOADS, Unit::Count, false),
    (ERRORS, Unit::Count, false),
];

/// The disks of a full and of a quick run.
pub(super) const DISKS: [DiskLimit; 3] =
    [DiskLimit(Some(16 << 20)), DiskLimit(Some(64 << 20)), DiskLimit(None)];
pub(super) const DISKS_QUICK: [DiskLimit; 1] = [DiskLimit(Some(64 << 20))];

/// Seconds of the ramp, in a full and in a quick run.
pub(super) const SECONDS: f64 = 180.0;
pub(super) const SECONDS_QUICK: f64 = 3.0;

/// The limits of a disk that can be asked for, as those of `--rate`.
const RATE_MIN: u64 = 1 << 16;
const RATE_MAX: u64 = 1 << 34;

/// The ramp is this many times as long as a load of the search: three minutes and one.
const HOLDS: f64 = 3.0;

/// The ramp ends with this many times the clients of its start.
const RAMP: f64 = 30.0;

/// Files of the site. A server may keep each of them open, in addition to [`CONNECTIONS`], within 20,000 descriptors.
const FILES: usize = 4000;
const FILES_QUICK: usize = 1000;

/// Connections at the same time: as many as servers and the load generator have descriptors for.
const CONNECTIONS: usize = 15_000;

/// Descriptors that the load generator needs for other things.
const OTHER_DESCRIPTORS: usize = 256;

/// The precision of the search.
const PRECISION: f64 = 1.05;
const PRECISION_QUICK: f64 = 1.6;

/// The time limit of a request.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The interval at which files that were left become cold.
const LEFT_EVERY: Duration = Duration::from_millis(20);

/// The lowest priority.
const NICE: i32 = 19;

/// The longest rest between two loads, seconds.
const REST_MAX: f64 = 2.0;
