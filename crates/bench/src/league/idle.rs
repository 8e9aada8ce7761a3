//! Measures the cost of idle connections: the memory of the server and of the kernel for each
//! connection, and the latency of other requests meanwhile.

use core::time::Duration;
use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;
use std::thread;

use super::rounds::Rounds;
use super::server::Server;
use super::site::Site;
use super::{Dropped, League};
use crate::http::crowd::{Crowd, End, QUICK_LIMIT};
use crate::load::{Sources, Target};
use crate::machine;
use crate::run::{Figure, Table};
use crate::stats::float;
use crate::{Fault, Recorder, Test, Unit};

/// The test.
#[must_use]
pub fn test(league: &Rc<League>) -> Test {
    let league = Rc::clone(league);
    Test::new("idle", "Cost of idle connections", move |recorder| run(&league, recorder))
        .scales("no more for the last connection than for the first, in time and in bytes")
        .x("open connections")
        .warm_up("none: the first connection is part of the picture")
        .figure(Figure::of(Unit::Nanoseconds).titled("connect").only(&[CONNECT]).log_y(true))
        .figure(Figure::of(Unit::Nanoseconds).titled("first request").only(&[REQUEST]).log_y(true))
}

fn run(league: &League, recorder: &mut Recorder<'_>) -> Result<(), Fault> {
    let site = Site::new(league.root.as_deref())?;
    let file = vec![site.file("f128", 128)?];
    let count = recorder.steps_within_descriptors(1);
    recorder.note(
        "slab is the kernel's, of the whole machine: other work on it is in those figures; \
         connections of the client are, too",
    );
    let mut rounds = Rounds::default();
    let mut remarks = BTreeMap::<&str, Vec<String>>::new();
    let mut dropped = Dropped::default();
    let turns = (0..league.rounds).flat_map(|round| {
        league.turns.of(league.peers.len(), round).into_iter().map(move |index| (round, index))
    });
    for (nth, (round, index)) in turns.enumerate() {
        if recorder.is_stopped() {
            break;
        }
        let peer = &league.peers[index];
        if dropped.has(&peer.name) {
            continue;
        }
        let Some(server) = league.start(recorder, peer, &site, &file, None) else { continue };
        match fill(league, recorder, &server, count, round == 0) {
            Ok(filled) => {
                for (what, unit, value) in filled.figures {
                    rounds.record(recorder, &peer.name, what, unit, float(round + 1), value);
                }
                remarks.entry(&peer.name).or_default().extend(filled.remarks);
            }
            Err(error) => dropped.add(recorder, &peer.name, round + 1, error.into()),
        }
        recorder.progress(float(nth + 1) / float(league.rounds * league.peers.len()));
    }
    let bytes = |bytes: f64| format!("{bytes:.0}");
    let time = |ns: f64| Unit::Nanoseconds.show(ns);
    let rows = league.peers.iter().map(|peer| &peer.name[..]).filter_map(|name| {
        let mut remarks = remarks.remove(name)?;
        remarks.dedup();
        Some(vec![
            name.to_owned(),
            rounds.cell(name, OPEN, bytes),
            rounds.cell(name, PROCESS, bytes),
            rounds.cell(name, SLAB, bytes),
            rounds.cell(name, WITH_ONE, time),
            rounds.cell(name, WITH_ALL, time),
            remarks.join("; "),
        ])
    });
    let rows = rows.collect();
    let head = [
        "server",
        "connections",
        "process, B each",
        "slab, B each",
        "one request at a time, beside none, median",
        "beside all, median",
        "remarks",
    ];
    recorder.table(Table {
        title: "Idle connections: median (least–greatest) of rounds".into(),
        head: head.map(str::to_owned).to_vec(),
        rows,
    });
    if let Some(noisy) = rounds.too_noisy(&[PROCESS, SLAB]) {
        recorder.note(noisy);
    }
    league.describe(recorder);
    dropped.result(league.peers.len())
}

/// The figures of a server and its connections.
struct Filled {
    figures: [(&'static str, Unit, f64); 5],
    remarks: Vec<String>,
}

/// Opens connections to one server, and measures before and after. `first`: with how long each takes.
fn fill(
    league: &League,
    recorder: &mut Recorder<'_>,
    server: &Server,
    count: usize,
    first: bool,
) -> io::Result<Filled> {
    let name = server.name().to_owned();
    let sources = Sources::enough_for(count, server.address());
    let host = server.address().to_string();
    let mut crowd =
        Crowd::new(server.address(), &host, &Target::new("/f128"), sources, league.client_cpu);
    crowd.grow()?;
    let with_one = crowd.latency()?;
    let (memory, slab_before) = (server.memory(), slab());
    let series = first.then(|| {
        [CONNECT, REQUEST].map(|what| recorder.series(&name, what, Unit::Nanoseconds, count))
    });
    let mut remarks = Vec::new();
    let limit = league.quick.then_some(QUICK_LIMIT);
    let end = crowd.grow_to(count, limit, |open, step| {
        for (series, value) in series.into_iter().flatten().zip([step.connect, step.request]) {
            recorder.push(series, float(open), value);
        }
        !recorder.is_stopped()
    });
    match end {
        End::Enough => {}
        End::Late => remarks.push(format!(
            "stopped at {}: a quick run opens none after {} s",
            crowd.len(),
            QUICK_LIMIT.as_secs()
        )),
        End::Failed(error) => remarks.push(format!("stopped at {}: {error}", crowd.len())),
    }
    thread::sleep(SETTLE);
    let more = float(crowd.len() as u64 - 1).max(1.0);
    let each = |after: u64, before: u64| (float(after) - float(before)) / more;
    let (process, kernel) = (each(server.memory(), memory), each(slab(), slab_before));
    let with_all = crowd.latency().unwrap_or_else(|error| {
        remarks.push(format!("with all: {error}"));
        f64::NAN
    });
    let figures = [
        (OPEN, Unit::Count, float(crowd.len() as u64)),
        (PROCESS, Unit::Bytes, process),
        (SLAB, Unit::Bytes, kernel),
        (WITH_ONE, Unit::Nanoseconds, with_one),
        (WITH_ALL, Unit::Nanoseconds, with_all),
    ];
    Ok(Filled { figures, remarks })
}

/// The bytes of the kernel's own objects (proc(5), `/proc/meminfo`).
fn slab() -> u64 {
    machine::field(&machine::read("/proc/meminfo"), "Slab:").unwrap_or(0) * 1024
}

const CONNECT: &str = "connect";
const REQUEST: &str = "first request";
const OPEN: &str = "open connections";
pub(crate) const PROCESS: &str = "memory of the process, each";
pub(crate) const SLAB: &str = "memory of the kernel, each";
const WITH_ONE: &str = "request beside none";
const WITH_ALL: &str = "request beside all";

/// The pause before memory is measured, because some is freed late.
const SETTLE: Duration = Duration::from_millis(500);
