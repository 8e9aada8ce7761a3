//! Measures cold downloads and hot requests at one sender. In `slow` a cgroup slows the disk down, so that
//! every strategy has to wait for it. In `fast` the disk has its full speed.

use core::time::Duration;
use std::collections::BTreeMap;
use std::fs::File;
use std::rc::Rc;
use std::thread;
use std::time::Instant;

use ring::{Choice, Ring};

use super::Plan;
use super::sender::{self, Strategy};
use crate::http::figures::remarks;
use crate::league::rounds::Rounds;
use crate::league::server::Server;
use crate::league::site::Site;
use crate::league::throttle::Throttle;
use crate::load::account::{Bottleneck, OWN_CPU_MAX, SLICE};
use crate::load::{self, Account, Arrival, Background, Failure, Order, Target};
use crate::run::{Figure, Table};
use crate::spread::Value;
use crate::stats::float;
use crate::{Fault, Recorder, Test, Unit, interrupt, machine};

/// The test with a slow disk.
pub(super) fn slow(plan: &Rc<Plan>) -> Test {
    let plan = Rc::clone(plan);
    figures(Test::new(
        "slow",
        "Latency of hot requests beside downloads from a slow disk",
        move |recorder| run(&plan, recorder, Speed::Slow),
    ))
    .scales("hot requests are answered as fast as without cold ones, and the disk is used up")
}

/// The test with the disk as it is.
pub(super) fn fast(plan: &Rc<Plan>) -> Test {
    let plan = Rc::clone(plan);
    figures(Test::new("fast", "Speed of downloads from a disk without a limit", move |recorder| {
        run(&plan, recorder, Speed::Fast)
    }))
    .scales("as fast as the disk, for the CPU of sendfile, and hot requests are answered meanwhile")
}

fn figures(test: Test) -> Test {
    let time = |unit| Figure::of(unit).lines();
    test.x("second")
        .warm_up("files are read once and put out of memory again, for caches in the disk itself")
        .tabled()
        .figure(time(Unit::BytesPerSecond).titled("speed over time").only(&[SPEED]).log_y(false))
        .figure(time(Unit::Percent).titled("the sender's CPU over time").only(&[CPU]).log_y(false))
        .figure(
            time(Unit::Nanoseconds)
                .titled("slowest hot request of each 100 ms, answered or still waiting")
                .only(&[HOT])
                .log_y(true),
        )
}

/// The speed of the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Speed {
    Slow,
    Fast,
}

fn run(plan: &Plan, recorder: &mut Recorder<'_>, speed: Speed) -> Result<(), Fault> {
    let site = &plan.site()?;
    site.has_room_for(plan.bytes)?;
    // The thread that only observes runs on the clients' CPU.
    load::pin(plan.client_cpu)?;
    let is_slow = speed == Speed::Slow && can_be_slow(plan, recorder, site);
    let count = FILES_PER_READER * plan.readers;
    let names: Vec<String> = (0..count)
        .map(|i| site.file(&i.to_string(), plan.bytes / count as u64))
        .collect::<Result<_, _>>()?;
    site.evict(&names)?;
    site.warm(&names)?;
    recorder.note(format!(
        "{} downloads at once of {count} files of {}, each once; {} hot requests a second beside them; {}. CPU \
         is that of all threads of the sender, for hot requests as well, without the kernel's own threads. What is \
         asked of the disk and kept in the page cache may be more than clients have got when the time is over: the \
         kernel and samum read ahead",
        plan.readers,
        Unit::Bytes.show(float(plan.bytes / count as u64)),
        plan.requests,
        plan.where_it_runs()
    ));
    recorder.note(sender::DIFFERENCES);
    let stage = Stage { plan, site, speed, is_slow, names: &names };
    let mut rounds = Rounds::default();
    let mut accounts = BTreeMap::<String, Vec<Account>>::new();
    let mut failures = Vec::new();
    let scenes = scenes(plan);
    let total = recorder.steps() * scenes.len();
    for turn in 0..total {
        let scene = &scenes[turn % scenes.len()];
        if recorder.is_stopped() {
            break;
        }
        let round = turn / scenes.len();
        match stage.round(recorder, scene, round == 0) {
            Ok(None) => {}
            Ok(Some(done)) => {
                for (what, unit, value) in done.figures() {
                    rounds.record(recorder, &scene.name, what, unit, float(round + 1), value);
                }
                accounts.entry(scene.name.clone()).or_default().push(done.hot);
            }
            Err(_) if recorder.is_stopped() => break,
            Err(Fault::Failed(why)) => failures.push(why),
            Err(skip) => return Err(skip),
        }
        recorder.progress(float(turn + 1) / float(total));
    }
    let rows = scenes
        .iter()
        .filter_map(|scene| Some(row(&scene.name, &rounds, accounts.get(&scene.name)?)));
    let mut table = Table {
        title: format!(
            "Medians (least–greatest) of rounds; latencies by the clock, ≥ where requests were cut off; {}",
            load::receives(COPIES)
        ),
        head: HEAD.map(str::to_owned).to_vec(),
        rows: rows.collect(),
    };
    if speed == Speed::Slow {
        // In `slow`, hot requests take most of the CPU, so a strategy that serves fewer of them would look
        // better.
        let at = table.head.iter().position(|name| name == PER_GB).unwrap_or(0);
        for row in core::iter::once(&mut table.head).chain(&mut table.rows) {
            row.remove(at);
        }
    }
    recorder.table(table);
    if let Some(noisy) = rounds.too_noisy(&[RATE, CPU_PER_GB]) {
        recorder.note(noisy);
    }
    if failures.is_empty() { Ok(()) } else { Err(Fault::Failed(failures.join("; "))) }
}

/// A strategy with downloads or without.
struct Scene {
    name: String,
    strategy: Strategy,
    cold: bool,
}

/// The scenes: hot requests alone on either event loop, then each strategy with downloads.
fn scenes(plan: &Plan) -> Vec<Scene> {
    let alone = [(Strategy::Sendfile, "epoll"), (Strategy::UringRead, "io_uring")];
    let alone = alone.into_iter().map(|(strategy, driver)| Scene {
        name: format!("no downloads, {driver}"),
        strategy,
        cold: false,
    });
    let strategies = plan.strategies.iter().map(|&strategy| Scene {
        name: strategy.name(),
        strategy,
        cold: true,
    });
    alone.chain(strategies).collect()
}

/// Slows down the disk if the test requires it; a row says so if that is impossible.
fn can_be_slow(plan: &Plan, recorder: &mut Recorder<'_>, site: &Site) -> bool {
    match Throttle::new(site.root()) {
        Ok(_) => {
            let rate = Unit::BytesPerSecond.show(float(plan.rate));
            recorder.note(format!("the disk is slowed down to {rate} by a cgroup"));
            true
        }
        Err(why) => {
            recorder.skip("slow disk", format!("{why}; figures are of the disk as it is"));
            false
        }
    }
}

/// The parameters of a round.
struct Stage<'a> {
    plan: &'a Plan,
    site: &'a Site,
    speed: Speed,
    /// True if the disk is slowed down.
    is_slow: bool,
    names: &'a [String],
}

/// The figures of one strategy.
struct Round {
    seconds: f64,
    /// The bytes of cold files that were delivered; `None` without downloads.
    bytes: Option<f64>,
    /// CPU seconds of the sender, including hot requests.
    cpu: f64,
    /// The bytes read from the disk.
    read: f64,
    /// The bytes of the files in the page cache at the end.
    left: f64,
    /// The memory of the sender in bytes.
    memory: f64,
    hot: Account,
    /// The share of their CPU that both load generators used together.
    clients_cpu: f64,
    /// True if the CPU time for cold bytes is measured separately from that for hot requests.
    counts_cpu: bool,
}

impl Round {
    fn figures(&self) -> Vec<(&'static str, Unit, Value)> {
        let mut figures = vec![
            (CPU_SHARE, Unit::Percent, (100.0 * self.cpu / self.seconds).into()),
            (CLIENTS_CPU, Unit::Percent, (100.0 * self.clients_cpu).into()),
            (MEMORY, Unit::Bytes, self.memory.into()),
            (P50, Unit::Nanoseconds, self.hot.percentile(0.5)),
            (P99, Unit::Nanoseconds, self.hot.percentile(0.99)),
            (MAX, Unit::Nanoseconds, self.hot.percentile(1.0)),
        ];
        if let Some(bytes) = self.bytes {
            figures.extend([
                (RATE, Unit::BytesPerSecond, (bytes / self.seconds).into()),
                (READ, Unit::Percent, (100.0 * self.read / bytes).into()),
                (LEFT, Unit::Percent, (100.0 * self.left / bytes).into()),
            ]);
            if self.counts_cpu {
                let cpu = self.cpu * 1e9 / (bytes / 1e9);
                figures.push((CPU_PER_GB, Unit::Nanoseconds, cpu.into()));
            }
        }
        figures
    }
}

impl Stage<'_> {
    fn round(
        &self,
        recorder: &mut Recorder<'_>,
        scene: &Scene,
        first: bool,
    ) -> Result<Option<Round>, Fault> {
        let Self { plan, site, speed, is_slow, names } = *self;
        site.evict(names)?;
        // Each round has a throttle of its own (see there). It is dropped after the sender.
        let throttle = if is_slow { Throttle::new(site.root()).map(Some) } else { Ok(None) };
        let throttle = throttle.map_err(Fault::Failed)?;
        let started = plan.start(recorder, scene.strategy, site, throttle.as_ref())?;
        let Some(mut server) = started else { return Ok(None) };
        if let Some(throttle) = &throttle {
            throttle.limit(Some(plan.rate))?;
        }
        let length = if is_slow || !scene.cold { plan.length } else { LENGTH_MAX };
        let targets = names.iter().map(|name| Target::new(format!("/{name}"))).collect();
        let before = (server.cpu(), disk_bytes(server.pid()));
        let start = Instant::now();
        let cold = scene.cold.then(|| {
            Background::start(load::Plan {
                order: Order::Once,
                connections: plan.readers,
                ..self.load(&server, targets, length + LENGTH_MAX)
            })
        });
        let hot = Background::start(load::Plan {
            arrival: Arrival::Even(plan.requests),
            connections: HOT_CONNECTIONS,
            timeout: HOT_LIMIT,
            ..self.load(&server, vec![Target::new("/hot")], length)
        });
        let name = first.then_some(&scene.name[..]);
        let watched = self.watch(recorder, name, &mut server, cold.as_ref(), start + length);
        let (seconds, bytes, cpu) = watched;
        let memory = float(server.memory());
        let read = float(disk_bytes(server.pid()) - before.1);
        let left = float(self.left()?);
        let failed = |error| Fault::Failed(format!("{}: {error}", scene.name));
        // The round ends early if the downloads have ended.
        let hot = hot.close().map_err(failed)?;
        if let Some(throttle) = &throttle {
            throttle.limit(None)?;
        }
        // A round that ctrl-C cuts short is not a measurement.
        interrupt::check()?;
        let mut clients_cpu = hot.own_cpu_share();
        if let Some(cold) = cold {
            let cold = cold.stop().map_err(failed)?;
            clients_cpu += cold.own_cpu_share();
            if cold.failed_ever() > cold.failed(Failure::Unfinished) {
                recorder.note(format!("{}, downloads: {}", scene.name, cold.failures()));
            }
        }
        if first {
            // Zero means that no request was due in this slice.
            let slices = hot.slices.iter().zip(1_u32..).filter(|(slice, _)| slice.latency_max > 0);
            for (slice, at) in slices {
                let second = f64::from(at) * SLICE.as_secs_f64();
                let slowest = float(slice.latency_max);
                recorder.record(&scene.name, HOT, Unit::Nanoseconds, second, slowest);
            }
        }
        Ok(Some(Round {
            seconds,
            bytes: scene.cold.then_some(bytes),
            cpu: (cpu - before.0).as_secs_f64(),
            read,
            left,
            memory,
            hot,
            clients_cpu,
            counts_cpu: speed == Speed::Fast,
        }))
    }

    fn load(&self, server: &Server, targets: Vec<Target>, duration: Duration) -> load::Plan {
        load::Plan {
            warmup: Duration::ZERO,
            duration,
            timeout: Duration::from_secs(3600),
            copy: COPIES,
            cpu: self.plan.client_cpu,
            ..load::Plan::new(server.address(), targets)
        }
    }

    /// Waits until the downloads have ended, or `end`, and records speed and CPU every [`SAMPLE`] under
    /// `name`. Returns seconds, bytes delivered, and the sender's CPU time since it started.
    fn watch(
        &self,
        recorder: &mut Recorder<'_>,
        name: Option<&str>,
        server: &mut Server,
        cold: Option<&Background>,
        end: Instant,
    ) -> (f64, f64, Duration) {
        let start = Instant::now();
        let bytes = || cold.map_or(0, Background::bytes);
        let is_finished = || cold.is_some_and(Background::is_finished);
        let mut last = (start, bytes(), server.cpu());
        let mut finished = start;
        while !is_finished() && finished < end && !recorder.is_stopped() {
            thread::sleep(GLANCE);
            finished = Instant::now();
            if finished - last.0 < SAMPLE {
                continue;
            }
            let now = (Instant::now(), bytes(), server.cpu());
            let seconds = (now.0 - last.0).as_secs_f64();
            if let Some(name) = name {
                let at = (now.0 - start).as_secs_f64();
                let speed = float(now.1 - last.1) / seconds;
                let cpu = 100.0 * (now.2 - last.2).as_secs_f64() / seconds;
                if cold.is_some() {
                    recorder.record(name, SPEED, Unit::BytesPerSecond, at, speed);
                }
                recorder.record(name, CPU, Unit::Percent, at, cpu);
            }
            last = now;
        }
        ((finished - start).as_secs_f64(), float(bytes()), server.cpu())
    }

    /// The bytes of the files that are in the page cache.
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

/// The bytes that a process has read from the disk, by `/proc/PID/io` (proc(5)); 0 if that is unreadable.
fn disk_bytes(pid: u32) -> u64 {
    machine::field(&machine::read(&format!("/proc/{pid}/io")), "read_bytes:").unwrap_or(0)
}

fn row(name: &str, rounds: &Rounds, all: &[Account]) -> Vec<String> {
    let cell = |what, show: fn(f64) -> String| rounds.cell(name, what, show);
    let time = |ns| Unit::Nanoseconds.show(ns);
    let whole = |value: f64| format!("{value:.0}");
    let mut remarks = remarks(&all.iter().collect::<Vec<_>>());
    let clients_cpu = rounds.median(name, CLIENTS_CPU) / 100.0;
    if clients_cpu > OWN_CPU_MAX {
        let separator = if remarks.is_empty() { "" } else { "; " };
        remarks = format!("{remarks}{separator}{}", Bottleneck::OwnCpu(clients_cpu));
    }
    vec![
        name.to_owned(),
        cell(RATE, |rate| format!("{:.0}", rate / 1e6)),
        cell(P50, time),
        cell(P99, time),
        cell(MAX, time),
        cell(CPU_SHARE, whole),
        cell(CLIENTS_CPU, whole),
        cell(CPU_PER_GB, |ns| format!("{:.2}", ns / 1e9)),
        cell(READ, whole),
        cell(LEFT, whole),
        cell(MEMORY, |bytes| format!("{:.1}", bytes / 1e6)),
        remarks,
    ]
}

const HEAD: [&str; 12] = [
    "strategy",
    "cold, MB/s",
    "hot p50",
    "p99",
    "max",
    "CPU, %",
    "clients' CPU, %",
    PER_GB,
    "asked of the disk, % of delivered",
    "in the page cache at the end, % of delivered",
    "memory (PSS), MB",
    "remarks",
];

/// A column that `slow` does not have.
const PER_GB: &str = "CPU, s per GB";

/// Names of series and of figures of rounds.
const SPEED: &str = "cold";
const CPU: &str = "CPU";
const HOT: &str = "hot";
const RATE: &str = "cold downloads";
const P50: &str = "hot p50";
const P99: &str = "hot p99";
const MAX: &str = "hot max";
const CPU_SHARE: &str = "CPU share";
const CLIENTS_CPU: &str = "clients' CPU share";
const CPU_PER_GB: &str = "CPU per GB";
const READ: &str = "read";
const LEFT: &str = "left";
const MEMORY: &str = "memory";

/// The clients do not copy received bytes, because otherwise they would be measured.
const COPIES: bool = false;

/// The interval of samples of speed and CPU.
const SAMPLE: Duration = Duration::from_millis(100);

/// The interval of checks for the end.
const GLANCE: Duration = Duration::from_millis(2);

/// Files per concurrent download: a client that has ended early takes another file that is still cold.
const FILES_PER_READER: usize = 2;

/// Connections for hot requests: at the default rate one is always free unless the sender stalls.
const HOT_CONNECTIONS: usize = 64;

/// A hot request that takes longer is cut off, and counts with the time that it has waited.
const HOT_LIMIT: Duration = Duration::from_secs(20);

/// The longest round of `fast`.
const LENGTH_MAX: Duration = Duration::from_secs(30);
