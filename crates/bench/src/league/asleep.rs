//! Measures how long the threads of a server sleep for the disk, during 200 downloads at the same time from a slow
//! disk. The files are in pieces, and nothing of them is in memory, not even metadata.
//!
//! The kernel sums up this sleep of each thread, in ticks of 10 ms (`delayacct_blkio_ticks`, proc_pid_stat(5)); the sum
//! of the threads with connections is shown. Before Linux 6.15 it includes the waits of io_uring_enter(2). Linux 6.18
//! sometimes adds the time since boot, and always does so to io_uring's threads. A sum that is longer than the
//! measurement is left out. So the states of all threads are also sampled every 5 ms: a thread that sleeps for a disk
//! is in the state D.
//!
//! samum itself reports its longest turn since its start. The longest turn of another server is at most the longest
//! latency of a request for a cached file meanwhile.

use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use std::fs;
use std::path::PathBuf;
use std::rc::Rc;
use std::thread;
use std::time::Instant;

use super::image::{Image, write_in_pieces};
use super::peers::{METERED, METRICS, Peer};
use super::rounds::Rounds;
use super::server::Server;
use super::site::Site;
use super::throttle::Throttle;
use super::{AT_ONCE_RECEIVES, Dropped, League};
use crate::load::fetch::fetch;
use crate::load::{Arrival, Background, Plan, Target};
use crate::machine::{of_ticks, read};
use crate::processes::family;
use crate::run::Table;
use crate::stats::float;
use crate::{Fault, Recorder, Test, Unit};

/// The test.
#[must_use]
pub fn test(league: &Rc<League>) -> Test {
    let league = Rc::clone(league);
    let title = "Time that threads sleep for the disk";
    Test::new("asleep", title, move |recorder| run(&league, recorder))
        .scales("the thread that has the connections never sleeps for the disk")
        .x("round")
        .warm_up("the hot file is fetched first")
        .tabled()
}

fn run(league: &League, recorder: &mut Recorder<'_>) -> Result<(), Fault> {
    let site = Site::new(league.root.as_deref())?;
    site.needs_a_disk()?;
    let hot = site.file("hot", HOT_BYTES)?;
    let bytes = if league.quick { FILE_BYTES / 8 } else { FILE_BYTES };
    let names: Vec<String> = (0..FILES).map(|i| format!("cold/{i}")).collect();
    let write = |mounted: &std::path::Path| {
        let paths: Vec<PathBuf> = (0..FILES).map(|i| mounted.join(i.to_string())).collect();
        write_in_pieces(&paths, bytes)
    };
    let root = site.root().join("cold");
    let len = (64 << 20) + 2 * (FILES * bytes) as u64;
    let image = Image::new(league.root.as_deref(), len, root.clone(), write)?;
    let mut rounds = Rounds::default();
    let mut dropped = Dropped::default();
    let peers = league.only.clone().unwrap_or_else(|| vec![METERED.to_owned()]);
    let _accounting = Accounting::enable().map_err(Fault::Skip)?;
    for round in 1..=recorder.steps() {
        for name in league.turns.of(peers.len(), round).into_iter().map(|index| &peers[index]) {
            if recorder.is_stopped() || dropped.has(name) {
                continue;
            }
            let peer = Peer::named(name).map_err(Fault::Failed)?;
            image.remount()?;
            let throttle = Throttle::new(&root).map_err(Fault::Skip)?;
            let known = [hot.clone()];
            let Some(mut server) = league.start(recorder, &peer, &site, &known, Some(&throttle))
            else {
                dropped.add_absent(recorder, name);
                continue;
            };
            throttle.limit(Some(league.rate * RATE_TIMES))?;
            let target = Target { len: Some(HOT_BYTES), ..Target::new(format!("/{hot}")) };
            let forever = Duration::from_secs(3600);
            let requests = Background::start(Plan {
                connections: 8,
                arrival: Arrival::Poisson(HOT_RATE),
                duration: forever,
                ..league.plan(&server, vec![target])
            });
            let downloads = league.at_once(&server, &names, bytes as u64);
            let (stop, pid) = (AtomicBool::new(false), server.pid());
            let (delay_before, since) = (delay(pid), Instant::now());
            let (measured, sampled) = thread::scope(|scope| {
                let sampler = scope.spawn(|| sample(pid, &stop));
                let measured = league.measure(&mut server, &downloads);
                stop.store(true, Ordering::Relaxed);
                (measured, sampler.join())
            });
            let sampled = sampled.map_err(|_| Fault::Failed("the sampler panicked".into()))?;
            throttle.limit(None)?;
            let delay = delay(pid).saturating_sub(delay_before);
            let is_sum = delay <= since.elapsed();
            let turn = longest_turn(&server);
            let latency = requests.close().map_err(Fault::from);
            let (latency, account) = match (latency, measured) {
                (Ok(latency), Ok(measured)) => {
                    league.limits.add(name, latency.bottleneck());
                    (latency, measured.account)
                }
                (Err(fault), _) | (_, Err(fault)) => {
                    dropped.add(recorder, name, round, fault);
                    continue;
                }
            };
            if account.answered_ever < FILES as u64 {
                let why = format!("not all files were downloaded: {}", account.failures());
                dropped.add(recorder, name, round, Fault::Failed(why));
                continue;
            }
            let x = float(round);
            for (what, unit, value) in [
                (FIRST, Unit::Percent, sampled.percent(sampled.first).into()),
                (OTHERS, Unit::Count, (sampled.percent(sampled.others) / 100.0).into()),
                (KERNEL, Unit::Count, (sampled.percent(sampled.kernel) / 100.0).into()),
                (THREADS, Unit::Count, float(sampled.kernel_threads).into()),
                (P99, Unit::Nanoseconds, latency.percentile(0.99)),
                (LONGEST, Unit::Nanoseconds, latency.percentile(1.0)),
            ] {
                rounds.record(recorder, name, what, unit, x, value);
            }
            let delay = is_sum.then_some(delay.as_secs_f64());
            for (what, seconds) in [(DELAY, delay), (TURN, turn)] {
                if let Some(seconds) = seconds {
                    rounds.record(recorder, name, what, Unit::Nanoseconds, x, seconds * 1e9);
                }
            }
        }
        recorder.progress(float(round) / float(recorder.steps()));
    }
    let rows = peers.iter().filter(|name| rounds.median(name, FIRST).is_finite()).map(|name| {
        let time = |ns: f64| Unit::Nanoseconds.show(ns);
        let cell = |what| rounds.cell(name, what, time);
        let count = |what| rounds.cell(name, what, |n| format!("{n:.1}"));
        vec![
            name.clone(),
            count(FIRST),
            cell(DELAY),
            cell(TURN),
            count(OTHERS),
            count(THREADS),
            count(KERNEL),
            cell(P99),
            cell(LONGEST),
        ]
    });
    recorder.table(Table {
        title: format!(
            "{FILES} files of {} in pieces of {}, from a disk slowed down to {}: medians (least–greatest); {}",
            Unit::Bytes.show(float(bytes)),
            Unit::Bytes.show(float(super::image::PIECE)),
            Unit::BytesPerSecond.show(float(league.rate * RATE_TIMES)),
            AT_ONCE_RECEIVES,
        ),
        head: [
            "server",
            "the thread that has the connections is asleep for the disk, % of the time",
            "its sum by the kernel",
            "its longest turn",
            "other threads asleep, on average",
            "io_uring's threads, at most",
            "these asleep, on average",
            "p99 of a hot file meanwhile",
            "longest",
        ]
        .map(str::to_owned)
        .to_vec(),
        rows: rows.collect(),
    });
    dropped.result(peers.len())
}

/// The threads of a server that were found asleep for a disk, added up over samples.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Sampled {
    samples: usize,
    /// Samples of threads with connections: the workers of samum, the first threads of other servers' processes.
    first: usize,
    others: usize,
    /// Samples of threads that the kernel started for io_uring.
    kernel: usize,
    /// The maximum of such threads that existed at the same time.
    kernel_threads: usize,
}

impl Sampled {
    /// `asleep` samples as a percentage of all.
    fn percent(&self, asleep: usize) -> f64 {
        100.0 * float(asleep) / float(self.samples)
    }
}

/// Samples the threads of a server until `stop` is set.
fn sample(server: u32, stop: &AtomicBool) -> Sampled {
    let mut all = Sampled::default();
    while !stop.load(Ordering::Relaxed) {
        let mut kernel_threads = 0;
        for pid in family(server) {
            for task in fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
                let stat = read(&task.path().join("stat").display().to_string());
                let Some((name, is_asleep)) = name_and_sleep(&stat) else { continue };
                let is_first = task.file_name().to_str().is_some_and(|tid| tid == pid.to_string());
                if name.starts_with("iou-wrk") {
                    kernel_threads += 1;
                    all.kernel += usize::from(is_asleep);
                } else if is_first || name.starts_with(WORKER) {
                    all.first += usize::from(is_asleep);
                } else {
                    all.others += usize::from(is_asleep);
                }
            }
        }
        all.samples += 1;
        all.kernel_threads = all.kernel_threads.max(kernel_threads);
        thread::sleep(BETWEEN_SAMPLES);
    }
    all
}

/// The kernel's accounting of what threads wait for, which is off by default. Dropping it restores the setting.
struct Accounting {
    before: String,
}

impl Accounting {
    /// For threads that are made from now on.
    fn enable() -> Result<Self, String> {
        let before = read(Self::FILE);
        let failed = |error| format!("needs root, for {}: {error}", Self::FILE);
        fs::write(Self::FILE, "1").map_err(failed)?;
        Ok(Self { before })
    }

    const FILE: &str = "/proc/sys/kernel/task_delayacct";
}

impl Drop for Accounting {
    fn drop(&mut self) {
        // A setting that stays does no harm.
        let _ = fs::write(Self::FILE, self.before.trim());
    }
}

/// The time for which the threads of a server that have connections have slept for disks, by the kernel.
fn delay(server: u32) -> Duration {
    let mut ticks = 0;
    for pid in family(server) {
        for task in fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
            let stat = read(&task.path().join("stat").display().to_string());
            let is_first = task.file_name().to_str().is_some_and(|tid| tid == pid.to_string());
            if name_and_sleep(&stat).is_some_and(|(name, _)| is_first || name.starts_with(WORKER)) {
                ticks += ticks_for_disks(&stat);
            }
        }
    }
    of_ticks(ticks)
}

/// Field 42 of /proc/PID/task/TID/stat.
fn ticks_for_disks(stat: &str) -> u64 {
    // The name, in parentheses, may contain anything; field 3 is the first one after it.
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    fields.split_whitespace().nth(42 - 3).and_then(|ticks| ticks.parse().ok()).unwrap_or(0)
}

/// The longest turn of a server that reports it, in seconds.
fn longest_turn(server: &Server) -> Option<f64> {
    let told = fetch(server.address(), METRICS, Duration::from_secs(5)).ok()?;
    longest_of(&String::from_utf8_lossy(&told))
}

fn longest_of(metrics: &str) -> Option<f64> {
    metrics
        .lines()
        .find_map(|line| line.strip_prefix("samum_worker_turn_longest_seconds "))?
        .parse()
        .ok()
}

/// A thread's name, and whether it is in an uninterruptible sleep, from /proc/PID/task/TID/stat.
fn name_and_sleep(stat: &str) -> Option<(&str, bool)> {
    let (before, after) = stat.rsplit_once(')')?;
    Some((before.split_once('(')?.1, after.split_whitespace().next()? == "D"))
}

const BETWEEN_SAMPLES: Duration = Duration::from_millis(5);

/// The beginning of the names of samum's threads that have connections.
const WORKER: &str = "worker-";

pub(crate) const DELAY: &str = "sleep of threads with connections, by the kernel";
pub(crate) const TURN: &str = "longest turn";
const FIRST: &str = "threads with connections asleep";
pub(crate) const OTHERS: &str = "other threads asleep";
pub(crate) const KERNEL: &str = "io_uring's threads asleep";
const THREADS: &str = "io_uring's threads";
const P99: &str = "p99 of a hot file";
const LONGEST: &str = "max of a hot file";

/// Files downloaded at the same time.
const FILES: usize = 200;
const FILE_BYTES: usize = 1 << 20;
const HOT_BYTES: u64 = 1024;
/// Requests for the hot file per second.
const HOT_RATE: f64 = 1000.0;
/// The factor by which the disk is faster than in `cold`.
const RATE_TIMES: u64 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_stands_behind_the_name() {
        assert_eq!(name_and_sleep("7 (a (D) c) S 1 2"), Some(("a (D) c", false)));
        assert_eq!(name_and_sleep("7 (iou-wrk-3) D 1 2"), Some(("iou-wrk-3", true)));
        assert_eq!(name_and_sleep(""), None);
    }

    #[test]
    fn the_sum_of_sleep_is_the_forty_second_field() {
        let fields: Vec<String> = (3..=52).map(|field: u32| field.to_string()).collect();
        assert_eq!(ticks_for_disks(&format!("7 (a) b) {}", fields.join(" "))), 42);
        assert_eq!(ticks_for_disks("7 (a) S 1"), 0);
    }

    #[test]
    fn the_longest_turn_is_found_among_metrics() {
        let metrics = "# TYPE samum_worker_turn_longest_seconds gauge\nsamum_worker_turn_longest_seconds 0.0042\n";
        assert_eq!(longest_of(metrics), Some(0.0042));
        assert_eq!(longest_of("up 1\n"), None);
    }
}
