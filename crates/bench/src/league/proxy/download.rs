//! Measures downloads through proxies: one at a time by a fast client, of several sizes.

use core::time::Duration;
use std::rc::Rc;
use std::thread;

use super::super::rounds::Rounds;
use super::super::server::Server;
use super::super::site::Site;
use super::super::{Dropped, League};
use super::slow::{FILES, MEMORY};
use super::{COMPARED_TO, Stage};
use crate::http::figures::remarks;
use crate::load::{Account, Background, Order, Plan, Target};
use crate::run::{Figure, Table};
use crate::stats::float;
use crate::{Fault, Recorder, Test, Unit, interrupt};

/// The test.
#[must_use]
pub fn test(league: &Rc<League>) -> Test {
    let league = Rc::clone(league);
    Test::new("proxied", "Cost of a download through a proxy", move |recorder| {
        run(&league, recorder)
    })
    .scales("the origin's own speed, for no more CPU than moving the bytes takes")
    .x("size of the download, bytes")
    .warm_up("the first request of each proxy, whose bytes are compared")
    .tabled()
    .figure(curve(Unit::BytesPerSecond, SPEED))
    .figure(curve(Unit::Nanoseconds, CPU))
    .figure(curve(Unit::Nanoseconds, FIRST_BYTE))
    .figure(Figure::of(Unit::Bytes).titled("held").only(&[MEMORY, FILES]).log_x().lines())
}

pub(super) fn curve(unit: Unit, series: &str) -> Figure {
    Figure::of(unit).titled(series).only(&[series]).log_x().log_y(true).lines()
}

fn run(league: &League, recorder: &mut Recorder<'_>) -> Result<(), Fault> {
    let site = Site::new(league.root.as_deref())?;
    site.has_room_for(league.downloads.iter().fold(0, |sum, size| size.saturating_add(sum)))?;
    let mut sizes = league.downloads.clone();
    sizes.sort_unstable();
    let files: Vec<String> =
        sizes.iter().map(|&size| site.file(&name(size), size)).collect::<Result<_, _>>()?;
    let stage = Stage::new(league, &site, &files)?;
    let compared = sizes.iter().filter(|size| **size <= COMPARED_MAX).count().max(1);
    let mut servers: Vec<Started> = Vec::new();
    for peer in &league.proxies {
        servers.extend(stage.start(recorder, peer, compared).map(Started::new));
    }
    let mut rounds = Rounds::default();
    let mut accounts: Vec<(String, u64, Account)> = Vec::new();
    let mut dropped = Dropped::default();
    let (total, mut done) = (recorder.steps() * sizes.len() * servers.len(), 0_usize);
    for round in 1..=recorder.steps() {
        for &size in &sizes {
            for index in league.turns.of(servers.len(), round - 1) {
                if recorder.is_stopped() {
                    break;
                }
                let server = &mut servers[index];
                done += 1;
                let name = server.server.name().to_owned();
                if dropped.has(&name) {
                    continue;
                }
                let measured = match download(league, server, size) {
                    Ok(measured) => measured,
                    Err(fault) => {
                        dropped.add(recorder, &name, round, fault);
                        continue;
                    }
                };
                for ((what, unit), value) in FIGURES.into_iter().zip(measured.values) {
                    let series = format!("{what}, round {round}");
                    recorder.record(&name, &series, unit, float(size), value);
                    rounds.add(&name, &of_size(what, size), value);
                }
                accounts.push((name, size, measured.account));
                recorder.progress(float(done) / float(total));
            }
        }
    }
    let names: Vec<&str> = servers.iter().map(|started| started.server.name()).collect();
    for &size in &sizes {
        show(recorder, &rounds, &accounts, &names, (size, league.receives()));
    }
    if let Some(noisy) = rounds.too_noisy(&[SPEED, CPU]) {
        recorder.note(noisy);
    }
    recorder
        .note("memory is PSS; it and temporary files are the most at any time of a measurement");
    stage.describe(recorder, &league.proxies);
    if servers.is_empty() { Ok(()) } else { dropped.result(servers.len()) }
}

/// A server that has started.
pub(super) struct Started {
    server: Server,
    /// The bytes of its memory before anything was measured. They include one-time allocations, because the bytes
    /// of some files have been compared.
    idle_memory: u64,
}

impl Started {
    pub(super) fn new(server: Server) -> Self {
        thread::sleep(SETTLE);
        let idle_memory = server.memory();
        Self { server, idle_memory }
    }
}

pub(super) struct Measured {
    /// The values of [`FIGURES`].
    pub(super) values: [f64; 5],
    account: Account,
}

/// Downloads a file again and again on one connection, as often as [`times`] says.
pub(super) fn download(
    league: &League,
    started: &mut Started,
    size: u64,
) -> Result<Measured, Fault> {
    let Started { server, idle_memory } = started;
    let times = times(size, league.quick);
    let target = Target { len: Some(size), ..Target::new(format!("/{}", name(size))) };
    let count = usize::try_from(times).unwrap_or(1);
    let plan = Plan {
        order: Order::Once,
        connections: 1,
        warmup: Duration::ZERO,
        duration: LIMIT,
        timeout: LIMIT,
        ..league.plan(server, vec![target; count])
    };
    let before = server.cpu();
    let load = Background::start(plan);
    let (mut memory, mut files) = (0, 0);
    while !load.is_finished() {
        memory = memory.max(server.memory());
        files = files.max(server.temporary_files());
        thread::sleep(SAMPLE);
    }
    let joined = load.join().and_then(|account| interrupt::check().map(|()| account));
    let account = joined.map_err(|error| Fault::Failed(error.to_string()))?;
    let cpu = server.cpu() - before;
    if account.answered_ever < times {
        return Err(Fault::Failed(format!("{size} bytes: {}", account.failures())));
    }
    let median = |times: &hdrhistogram::Histogram<u64>| float(times.value_at_quantile(0.5));
    let gib = float(size * times) / float(1 << 30);
    let values = [
        float(size) / (median(&account.latency) / 1e9),
        cpu.as_secs_f64() * 1e9 / gib,
        median(&account.first_byte),
        float(memory.saturating_sub(*idle_memory)),
        float(files),
    ];
    Ok(Measured { values, account })
}

/// Returns how often a measurement downloads a file of this size.
fn times(size: u64, quick: bool) -> u64 {
    let bytes = if quick { BYTES_QUICK } else { BYTES };
    (bytes / size).clamp(1, TIMES_MAX)
}

/// Shows a row for each server: medians, and the medians of one size in relation to other servers.
fn show(
    recorder: &mut Recorder<'_>,
    rounds: &Rounds,
    accounts: &[(String, u64, Account)],
    names: &[&str],
    (size, receives): (u64, &str),
) {
    for name in names {
        for (what, unit) in FIGURES {
            let median = rounds.median(name, &of_size(what, size));
            if median.is_finite() {
                recorder.record(name, what, unit, float(size), median);
            }
        }
    }
    let took_part = |name: &&&str| rounds.median(name, &of_size(SPEED, size)).is_finite();
    let rows = names.iter().filter(took_part).map(|name| {
        let of_server = |(server, of, _): &&(String, u64, _)| server == name && *of == size;
        let of_server: Vec<_> =
            accounts.iter().filter(of_server).map(|(_, _, account)| account).collect();
        let cell = |what, show: fn(f64) -> String| rounds.cell(name, &of_size(what, size), show);
        let ratios =
            |what| COMPARED_TO.map(|(other, _)| rounds.ratio(name, other, &of_size(what, size)));
        let mut row = vec![(*name).to_owned(), cell(SPEED, |rate| format!("{:.0}", rate / 1e6))];
        row.extend(ratios(SPEED));
        row.push(cell(CPU, |ns| format!("{:.0}", ns / 1e6)));
        row.extend(ratios(CPU));
        row.push(cell(FIRST_BYTE, |ns| format!("{:.0}", ns / 1e3)));
        let mebibytes = |bytes: f64| format!("{:.2}", bytes / float(1 << 20));
        row.extend([MEMORY, FILES].map(|what| cell(what, mebibytes)));
        row.push(remarks(&of_server));
        row
    });
    let [nginx, haproxy] = COMPARED_TO.map(|(_, title)| title);
    let head = [
        "server",
        "MB/s",
        nginx,
        haproxy,
        "CPU, ms per GiB",
        nginx,
        haproxy,
        "first byte, µs",
        "memory over idle, MiB",
        "temporary files, MiB",
        "remarks",
    ];
    recorder.table(Table {
        title: format!(
            "A download of {} at a time; {receives}: median (least–greatest); ratios in parentheses: not ranked",
            Unit::Bytes.show(float(size))
        ),
        head: head.map(str::to_owned).to_vec(),
        rows: rows.collect(),
    });
}

pub(super) fn name(size: u64) -> String {
    format!("f{size}")
}

pub(super) fn of_size(what: &str, size: u64) -> String {
    format!("{what}, {size} B")
}

pub(crate) const SPEED: &str = "speed of a download";
pub(crate) const CPU: &str = "CPU per GiB";
pub(super) const FIRST_BYTE: &str = "time to the first byte";

/// The figures that are measured. In raw.csv each round is a series of its own; the plots show medians.
pub(super) const FIGURES: [(&str, Unit); 5] = [
    (SPEED, Unit::BytesPerSecond),
    (CPU, Unit::Nanoseconds),
    (FIRST_BYTE, Unit::Nanoseconds),
    (MEMORY, Unit::Bytes),
    (FILES, Unit::Bytes),
];

/// The bytes downloaded in each measurement, at least one file.
const BYTES: u64 = 1 << 30;

/// The bytes in a quick run, which should take less than a minute with fourteen servers.
const BYTES_QUICK: u64 = 64 << 20;

/// Downloads in each measurement at most.
const TIMES_MAX: u64 = 1000;

/// Larger files are not compared before they are measured: it takes as long.
const COMPARED_MAX: u64 = 64 << 20;

/// The interval of looks at memory and files.
const SAMPLE: Duration = Duration::from_millis(50);

/// The pause before memory is measured, because some is freed late.
const SETTLE: Duration = Duration::from_millis(500);

/// For each measurement.
const LIMIT: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quick_run_downloads_less() {
        assert_eq!(times(1 << 20, false), 1024.min(TIMES_MAX));
        assert_eq!(times(64 << 20, false), 16);
        assert_eq!([1 << 20, 64 << 20, 1 << 30].map(|size| times(size, true)), [64, 1, 1]);
        assert_eq!(times(4 << 30, false), 1, "at least once");
        assert_eq!(times(1, true), TIMES_MAX);
    }
}
