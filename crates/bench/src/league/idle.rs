//! What connections cost that do nothing: memory of the server and of the kernel for each, and
//! whether others get slower by them.

use core::time::Duration;
use std::io;
use std::rc::Rc;
use std::thread;

use super::League;
use super::server::Server;
use super::site::Site;
use crate::http::crowd::Crowd;
use crate::load::{Sources, Target};
use crate::machine;
use crate::run::{Figure, Table};
use crate::stats::float;
use crate::{Fault, Recorder, Test, Unit};

/// The test.
#[must_use]
pub fn test(league: &Rc<League>) -> Test {
    let league = Rc::clone(league);
    Test::new("idle", "What do idle connections cost?", move |recorder| run(&league, recorder))
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
    let mut rows = Vec::new();
    for (i, peer) in league.peers.iter().enumerate() {
        if recorder.is_stopped() {
            break;
        }
        let Some(server) = league.start(recorder, peer, &site, &file, None) else { continue };
        match fill(league, recorder, &server, count) {
            Ok(row) => rows.push(row),
            Err(error) => recorder.skip(&peer.name, error.to_string()),
        }
        recorder.progress(float(i + 1) / float(league.peers.len()));
    }
    let head = [
        "server",
        "connections",
        "process, B each",
        "slab, B each",
        "p50 of a request with 1",
        "with all",
        "remarks",
    ];
    recorder.table(Table {
        title: "Idle connections".into(),
        head: head.map(str::to_owned).to_vec(),
        rows,
    });
    league.describe(recorder);
    Ok(())
}

/// Opens connections to one server, and measures before and after.
fn fill(
    league: &League,
    recorder: &mut Recorder<'_>,
    server: &Server,
    count: usize,
) -> io::Result<Vec<String>> {
    let name = server.name().to_owned();
    let sources = Sources::enough_for(count, server.address());
    let host = server.address().to_string();
    let mut crowd =
        Crowd::new(server.address(), &host, &Target::new("/f128"), sources, league.client_cpu);
    crowd.grow()?;
    let with_one = crowd.latency()?;
    let (memory, slab_before) = (server.memory(), slab());
    let connect = recorder.series(&name, CONNECT, Unit::Nanoseconds, count);
    let request = recorder.series(&name, REQUEST, Unit::Nanoseconds, count);
    let mut remarks = Vec::new();
    while crowd.len() < count && !recorder.is_stopped() {
        match crowd.grow() {
            Ok(step) => {
                let x = float(crowd.len());
                recorder.push(connect, x, step.connect);
                recorder.push(request, x, step.request);
            }
            Err(error) => {
                remarks.push(format!("stopped at {}: {error}", crowd.len()));
                break;
            }
        }
    }
    thread::sleep(SETTLE);
    let more = float(crowd.len() as u64 - 1).max(1.0);
    let each = |after: u64, before: u64| format!("{:.0}", (float(after) - float(before)) / more);
    let (process, kernel) = (each(server.memory(), memory), each(slab(), slab_before));
    let with_all = crowd.latency().unwrap_or_else(|error| {
        remarks.push(format!("with all: {error}"));
        f64::NAN
    });
    let show = |ns: f64| Unit::Nanoseconds.show(ns);
    Ok(vec![
        name,
        crowd.len().to_string(),
        process,
        kernel,
        show(with_one),
        show(with_all),
        remarks.join("; "),
    ])
}

/// Bytes of the kernel's own objects (proc(5), `/proc/meminfo`).
fn slab() -> u64 {
    machine::field(&machine::read("/proc/meminfo"), "Slab:").unwrap_or(0) * 1024
}

const CONNECT: &str = "connect";
const REQUEST: &str = "first request";

/// Until memory is counted, so that what is freed late is freed.
const SETTLE: Duration = Duration::from_millis(500);
