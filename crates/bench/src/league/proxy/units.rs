//! Measures downloads through samum as a proxy by the bytes that it receives in one step, through a pipe and through
//! its cyclic buffer: figures 4 and 5 of "Rethinking Sendfile Support in Unix Kernel" (Pathak, Stafman, Vithanage), on
//! Linux.

use std::rc::Rc;

use super::super::peers::Peer;
use super::super::rounds::Rounds;
use super::super::site::Site;
use super::super::{Dropped, League};
use super::Stage;
use super::download::{CPU, FIGURES, FIRST_BYTE, SPEED, Started, curve, download, name, of_size};
use super::slow::MEMORY;
use crate::run::Table;
use crate::stats::float;
use crate::{Fault, Recorder, Test, Unit};

/// The test.
#[must_use]
pub fn test(league: &Rc<League>) -> Test {
    let league = Rc::clone(league);
    Test::new(
        "proxied-units",
        "Cost of a download by the bytes received at once",
        move |recorder| run(&league, recorder),
    )
    .scales("no cost that grows with smaller units")
    .x("bytes received at once")
    .warm_up("the first request of each proxy, whose bytes are compared")
    .tabled()
    .figure(curve(Unit::BytesPerSecond, SPEED))
    .figure(curve(Unit::Nanoseconds, CPU))
    .figure(curve(Unit::Nanoseconds, FIRST_BYTE))
}

fn run(league: &League, recorder: &mut Recorder<'_>) -> Result<(), Fault> {
    let site = Site::new(league.root.as_deref())?;
    let size = if league.quick { SIZE_QUICK } else { SIZE };
    let files = [site.file(&name(size), size)?];
    let stage = Stage::new(league, &site, &files)?;
    let mut servers: Vec<(&str, u64, Started)> = Vec::new();
    for (way, splice) in WAYS {
        for unit in UNITS {
            let server = stage.start(recorder, &peer(unit, splice)?, 1);
            servers.extend(server.map(|server| (way, unit, Started::new(server))));
        }
    }
    let mut rounds = Rounds::default();
    let mut dropped = Dropped::default();
    let (total, mut done) = (recorder.steps() * servers.len(), 0_usize);
    for round in 1..=recorder.steps() {
        for index in league.turns.of(servers.len(), round - 1) {
            if recorder.is_stopped() {
                break;
            }
            let (way, unit, server) = &mut servers[index];
            let what = format!("{way}, {}", Unit::Bytes.show(float(*unit)));
            done += 1;
            if dropped.has(&what) {
                continue;
            }
            match download(league, server, size) {
                Ok(measured) => {
                    for ((figure, kind), value) in FIGURES.into_iter().zip(measured.values) {
                        let series = format!("{figure}, round {round}");
                        recorder.record(way, &series, kind, float(*unit), value);
                        rounds.add(way, &of_size(figure, *unit), value);
                    }
                }
                Err(fault) => dropped.add(recorder, &what, round, fault),
            }
            recorder.progress(float(done) / float(total));
        }
    }
    for (way, _) in WAYS {
        show(recorder, &rounds, way, league.receives());
    }
    recorder.note(format!("downloads of {}", Unit::Bytes.show(float(size))));
    stage.describe(recorder, &[peer(UNITS[0], true)?]);
    if servers.is_empty() { Ok(()) } else { dropped.result(servers.len()) }
}

/// A row for each unit: medians.
fn show(recorder: &mut Recorder<'_>, rounds: &Rounds, way: &str, receives: &str) {
    for unit in UNITS {
        for (what, kind) in FIGURES {
            let median = rounds.median(way, &of_size(what, unit));
            if median.is_finite() {
                recorder.record(way, what, kind, float(unit), median);
            }
        }
    }
    let rows = UNITS.map(|unit| {
        let cell = |what, show: fn(f64) -> String| rounds.cell(way, &of_size(what, unit), show);
        vec![
            Unit::Bytes.show(float(unit)),
            cell(SPEED, |rate| format!("{:.0}", rate / 1e6)),
            cell(CPU, |ns| format!("{:.0}", ns / 1e6)),
            cell(FIRST_BYTE, |ns| format!("{:.0}", ns / 1e3)),
            cell(MEMORY, |bytes| format!("{:.2}", bytes / float(1 << 20))),
        ]
    });
    let head =
        ["received at once", "MB/s", "CPU, ms per GiB", "first byte, µs", "memory over idle, MiB"];
    recorder.table(Table {
        title: format!("samum as a proxy, {way}; {receives}: median (least–greatest)"),
        head: head.map(str::to_owned).to_vec(),
        rows: rows.to_vec(),
    });
}

/// samum as a proxy that receives `unit` bytes in one step.
fn peer(unit: u64, splice: bool) -> Result<Peer, Fault> {
    let mut peer = Peer::named("samum-proxy").map_err(Fault::Failed)?;
    peer.configuration += &format!("splice = {splice}\nreceive-max = {unit}\n");
    Ok(peer)
}

/// Ways through the proxy, and whether contents are spliced.
const WAYS: [(&str, bool); 2] = [("spliced", true), ("through the buffer", false)];

/// The units of the paper, and the default.
const UNITS: [u64; 7] = [8 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10, 256 << 10, 512 << 10];

/// The bytes of a download.
const SIZE: u64 = 1 << 28;
const SIZE_QUICK: u64 = 8 << 20;
