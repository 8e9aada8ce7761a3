//! Cold downloads and hot requests from one sender: `slow` with a disk slowed down by a cgroup, so
//! that every strategy has to wait for it, `fast` with the disk as it is.

use core::time::Duration;
use std::collections::BTreeMap;
use std::fs::File;
use std::rc::Rc;
use std::time::Instant;

use ring::{Choice, Ring};

use super::sender::Strategy;
use super::{Place, Plan, float};
use crate::http::figures::{remarks, show_seconds};
use crate::league::cold::merged;
use crate::league::rounds::Rounds;
use crate::league::server::Server;
use crate::league::site::Site;
use crate::league::throttle::Throttle;
use crate::load::{self, Account, Arrival, Background, Order, Target};
use crate::run::{Figure, Table};
use crate::{Fault, Recorder, Test, Unit, machine, suite};

/// The test with a slow disk.
pub(super) fn slow(plan: &Rc<Plan>) -> Test {
    let plan = Rc::clone(plan);
    figures(Test::new(
        "slow",
        "What do hot requests see while others wait for a slow disk?",
        move |recorder| run(&plan, recorder, Speed::Slow),
    ))
    .scales("hot requests are answered as fast as without cold ones, and the disk is used up")
}

/// The test with the disk as it is.
pub(super) fn fast(plan: &Rc<Plan>) -> Test {
    let plan = Rc::clone(plan);
    figures(Test::new(
        "fast",
        "How fast, and for how much CPU, do files come from the disk as it is?",
        move |recorder| run(&plan, recorder, Speed::Fast),
    ))
    .scales("as fast as the disk, for the CPU of sendfile, and hot requests are answered meanwhile")
}

fn figures(test: Test) -> Test {
    let time = |unit| Figure::of(unit).lines();
    test.x("second")
        .warm_up("files are read once and put out of memory again, for caches in the disk itself")
        .tabled()
        .figure(time(Unit::BytesPerSecond).titled("speed over time").only(&[SPEED]))
        .figure(time(Unit::Percent).titled("the sender's CPU over time").only(&[CPU]))
        .figure(
            time(Unit::Nanoseconds)
                .titled("slowest hot request of each 100 ms")
                .only(&[HOT])
                .log_y(true),
        )
}

/// Of the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Speed {
    Slow,
    Fast,
}

fn run(plan: &Plan, recorder: &mut Recorder<'_>, speed: Speed) -> Result<(), Fault> {
    let Place { site, _dir } = &plan.place()?;
    let throttle = throttle(plan, recorder, site, speed);
    let count = FILES_PER_READER * plan.readers;
    let names: Vec<String> = (0..count)
        .map(|i| site.file(&i.to_string(), plan.bytes / count as u64))
        .collect::<Result<_, _>>()?;
    site.evict(&names)?;
    site.warm(&names)?;
    recorder.note(format!(
        "{} downloads at once of {count} files of {}, each once; {:.0} hot requests a second beside them; {}",
        plan.readers,
        Unit::Bytes.show(float(plan.bytes / count as u64)),
        plan.requests,
        plan.where_it_runs()
    ));
    let stage = Stage { plan, site, throttle: throttle.as_ref(), names: &names };
    let mut rounds = Rounds::default();
    let mut accounts = BTreeMap::<String, Vec<Account>>::new();
    let total = recorder.steps() * plan.strategies.len();
    for turn in 0..total {
        let strategy = plan.strategies[turn % plan.strategies.len()];
        if recorder.is_stopped() {
            break;
        }
        let first = turn < plan.strategies.len();
        if let Some(round) = stage.round(recorder, strategy, first)? {
            let name = strategy.name();
            for (what, value) in [
                (RATE, round.rate),
                (CPU_PER_GB, round.cpu_per_gb),
                (READ, round.read),
                (LEFT, round.left),
                (MEMORY, round.memory),
            ] {
                rounds.add(&name, what, value);
            }
            accounts.entry(name).or_default().push(round.hot);
        }
        recorder.progress(float(turn as u64 + 1) / float(total as u64));
    }
    recorder.table(Table {
        title: "Medians (least–greatest) of rounds; latencies of all rounds".to_owned(),
        head: HEAD.map(str::to_owned).to_vec(),
        rows: plan
            .strategies
            .iter()
            .filter_map(|strategy| row(&strategy.name(), &rounds, &accounts))
            .collect(),
    });
    if let Some(noisy) = rounds.too_noisy(&[CPU_PER_GB]) {
        recorder.note(noisy);
    }
    Ok(())
}

/// The cgroup for a slow disk; without one the disk is as it is, and a row says so.
fn throttle(
    plan: &Plan,
    recorder: &mut Recorder<'_>,
    site: &Site,
    speed: Speed,
) -> Option<Throttle> {
    if speed == Speed::Fast {
        return None;
    }
    match Throttle::new(site.root()) {
        Ok(throttle) => {
            let rate = Unit::BytesPerSecond.show(float(plan.rate));
            recorder.note(format!("the disk is slowed down to {rate} by a cgroup"));
            Some(throttle)
        }
        Err(why) => {
            recorder.skip("slow disk", format!("{why}; figures are of the disk as it is"));
            None
        }
    }
}

/// What a round needs.
struct Stage<'a> {
    plan: &'a Plan,
    site: &'a Site,
    throttle: Option<&'a Throttle>,
    names: &'a [String],
}

/// One strategy's figures.
struct Round {
    /// Bytes of cold files per second.
    rate: f64,
    /// Nanoseconds of the sender for 10^9 bytes, hot requests included.
    cpu_per_gb: f64,
    /// Bytes that the disk gave, of bytes delivered, in percent.
    read: f64,
    /// Bytes of the files in the page cache at the end, of bytes delivered, in percent.
    left: f64,
    /// Bytes.
    memory: f64,
    hot: Account,
}

impl Stage<'_> {
    fn round(
        &self,
        recorder: &mut Recorder<'_>,
        strategy: Strategy,
        first: bool,
    ) -> Result<Option<Round>, Fault> {
        let Self { plan, site, throttle, names } = *self;
        site.evict(names)?;
        let started = plan.start(recorder, strategy, site, throttle)?;
        let Some(mut server) = started else { return Ok(None) };
        if let Some(throttle) = throttle {
            throttle.limit(Some(plan.rate))?;
        }
        let length = if throttle.is_some() { plan.length } else { LENGTH_MAX };
        let targets = names.iter().map(|name| Target::new(format!("/{name}"))).collect();
        let before = (server.cpu(), disk_bytes(server.pid()));
        let start = Instant::now();
        let cold = Background::start(load::Plan {
            order: Order::Once,
            connections: plan.readers,
            ..self.load(&server, targets, length + LENGTH_MAX)
        });
        let hot = Background::start(load::Plan {
            arrival: Arrival::Even(plan.requests),
            connections: HOT_CONNECTIONS,
            timeout: HOT_LIMIT,
            ..self.load(&server, vec![Target::new("/hot")], length)
        });
        let name = first.then(|| strategy.name());
        let watched = self.watch(recorder, name.as_deref(), &mut server, &cold, start + length);
        let (elapsed, delivered, cpu) = watched;
        let memory = float(server.memory());
        let read = disk_bytes(server.pid()) - before.1;
        let left = self.left()?;
        let failed = |error| Fault::Failed(format!("{}: {error}", strategy.name()));
        // Without a slow disk its window ends later than the downloads do, so it is stopped.
        let hot = if throttle.is_some() { hot.join() } else { hot.stop() }.map_err(failed)?;
        if let Some(throttle) = throttle {
            throttle.limit(None)?;
        }
        let cold = cold.stop().map_err(failed)?;
        let failures = [cold.failures(), hot.failures()].concat();
        if cold.failed_ever() > cold.failed(load::Failure::Unfinished) {
            recorder.note(format!("{}: {failures}", strategy.name()));
        }
        if let Some(name) = name {
            for (slice, at) in hot.slices.iter().zip(1_u32..) {
                let second = f64::from(at) * load::account::SLICE.as_secs_f64();
                let slowest = float(slice.latency_max);
                recorder.record(&name, HOT, Unit::Nanoseconds, second, slowest);
            }
        }
        Ok(Some(Round {
            rate: delivered / elapsed,
            cpu_per_gb: (cpu - before.0).as_secs_f64() * 1e9 / (delivered / 1e9),
            read: 100.0 * float(read) / delivered,
            left: 100.0 * float(left) / delivered,
            memory,
            hot,
        }))
    }

    fn load(&self, server: &Server, targets: Vec<Target>, duration: Duration) -> load::Plan {
        load::Plan {
            warmup: Duration::ZERO,
            duration,
            timeout: Duration::from_secs(3600),
            cpu: self.plan.client_cpu,
            ..load::Plan::new(server.address(), targets)
        }
    }

    /// Waits until the downloads have ended, or `end`, and records speed and CPU every [`SAMPLE`]
    /// under `name`. Seconds, bytes delivered, CPU time of the sender since it started.
    fn watch(
        &self,
        recorder: &mut Recorder<'_>,
        name: Option<&str>,
        server: &mut Server,
        cold: &Background,
        end: Instant,
    ) -> (f64, f64, Duration) {
        let start = Instant::now();
        let mut last = (start, cold.bytes(), server.cpu());
        let mut finished = start;
        while !cold.is_finished() && Instant::now() < end && !recorder.is_stopped() {
            let _ = suite::sleep(SAMPLE.min(end.saturating_duration_since(Instant::now())));
            let now = (Instant::now(), cold.bytes(), server.cpu());
            let seconds = (now.0 - last.0).as_secs_f64();
            if let Some(name) = name {
                let at = (now.0 - start).as_secs_f64();
                let speed = float(now.1 - last.1) / seconds;
                let cpu = 100.0 * (now.2 - last.2).as_secs_f64() / seconds;
                recorder.record(name, SPEED, Unit::BytesPerSecond, at, speed);
                recorder.record(name, CPU, Unit::Percent, at, cpu);
            }
            last = now;
            finished = now.0;
        }
        ((finished - start).as_secs_f64(), float(cold.bytes()), server.cpu())
    }

    /// Bytes of the files that are in the page cache.
    fn left(&self) -> Result<u64, Fault> {
        const PAGE: u64 = 4096;
        let ring = Ring::new(Choice::Epoll)?;
        let pages = |name: &String| {
            let file = File::open(self.site.root().join(name))?;
            let len = file.metadata()?.len();
            if len == 0 { Ok(0) } else { ring.cached_pages(&ring.adopt_file(file.into()), 0, len) }
        };
        let pages: Vec<u64> = self.names.iter().map(pages).collect::<std::io::Result<_>>()?;
        Ok(PAGE * pages.iter().sum::<u64>())
    }
}

/// Bytes that the disk gave to a process, by `/proc/PID/io` (proc(5)); 0 where it cannot be read.
fn disk_bytes(pid: u32) -> u64 {
    machine::field(&machine::read(&format!("/proc/{pid}/io")), "read_bytes:").unwrap_or(0)
}

fn row(
    name: &str,
    rounds: &Rounds,
    accounts: &BTreeMap<String, Vec<Account>>,
) -> Option<Vec<String>> {
    let all = accounts.get(name)?;
    let latency = merged(all.iter());
    let at = |q| show_seconds(float(latency.value_at_quantile(q)) / 1e9);
    let whole = |value: f64| format!("{value:.0}");
    Some(vec![
        name.to_owned(),
        rounds.cell(name, RATE, |rate| format!("{:.0}", rate / 1e6)),
        at(0.5),
        at(0.99),
        at(1.0),
        rounds.cell(name, CPU_PER_GB, |ns| format!("{:.2}", ns / 1e9)),
        rounds.cell(name, READ, whole),
        rounds.cell(name, LEFT, whole),
        rounds.cell(name, MEMORY, |bytes| format!("{:.1}", bytes / 1e6)),
        remarks(&all.iter().collect::<Vec<_>>()),
    ])
}

const HEAD: [&str; 10] = [
    "strategy",
    "cold, MB/s",
    "hot p50",
    "p99",
    "max",
    "CPU, s per GB",
    "read from the disk, % of sent",
    "left in the page cache, % of sent",
    "memory (PSS), MB",
    "remarks",
];

/// Series, and what rounds are made of.
const SPEED: &str = "cold";
const CPU: &str = "CPU";
const HOT: &str = "hot";
const RATE: &str = "cold downloads";
const CPU_PER_GB: &str = "CPU per GB";
const READ: &str = "read";
const LEFT: &str = "left";
const MEMORY: &str = "memory";

/// How often speed and CPU are looked at.
const SAMPLE: Duration = Duration::from_millis(100);

/// So many for each download at once: who ends early takes another that nobody has read.
const FILES_PER_READER: usize = 2;

/// That ask for what is hot: at the default rate nobody waits for one unless the sender stalls.
const HOT_CONNECTIONS: usize = 64;

/// A hot request that takes longer counts with what it has waited.
const HOT_LIMIT: Duration = Duration::from_secs(20);

/// A round of `fast` ends by then.
const LENGTH_MAX: Duration = Duration::from_secs(30);
