//! Measures the cost of a request when all files are cached: a closed loop over files of several sizes. In
//! a closed loop latency follows from throughput, so no latencies are shown.

use std::rc::Rc;

use super::rounds::Rounds;
use super::server::Server;
use super::site::Site;
use super::{Dropped, League, in_turn};
use crate::http::figures::remarks;
use crate::load::Target;
use crate::run::{Figure, Table};
use crate::stats::float;
use crate::unit::Better;
use crate::{Fault, Recorder, Test, Unit};

/// The test.
#[must_use]
pub fn test(league: &Rc<League>) -> Test {
    let league = Rc::clone(league);
    Test::new("warm", "Cost of a request for a file in memory", move |recorder| {
        run(&league, recorder)
    })
    .scales("CPU per request that is near the floor's, for small files and large")
    .x("size of the file, bytes")
    .warm_up("half a second of each measurement, at most")
    .tabled()
    .better(FLOORS, Better::Less)
    .figure(
        Figure::of(Unit::Count)
            .titled("CPU per request, floor = 1")
            .only(&[FLOORS])
            .log_x()
            .lines(),
    )
    .figure(
        Figure::of(Unit::Nanoseconds)
            .titled("CPU per request")
            .only(&[CPU])
            .log_x()
            .log_y(true)
            .lines(),
    )
    .figure(
        Figure::of(Unit::PerSecond)
            .titled("requests per second")
            .only(&[RATE])
            .log_x()
            .log_y(true)
            .lines(),
    )
}

fn run(league: &League, recorder: &mut Recorder<'_>) -> Result<(), Fault> {
    let site = Site::new(league.root.as_deref())?;
    site.has_room_for(league.sizes.iter().fold(0, |sum, size| size.saturating_add(sum)))?;
    let name = |size: u64| format!("f{size}");
    let files: Vec<String> =
        league.sizes.iter().map(|&size| site.file(&name(size), size)).collect::<Result<_, _>>()?;
    let mut servers: Vec<Server> = Vec::new();
    for peer in &league.peers {
        servers.extend(league.start(recorder, peer, &site, &files, None));
    }
    let mut rounds = Rounds::default();
    let mut accounts = Vec::new();
    let mut dropped = Dropped::default();
    let (total, mut done) = (recorder.steps() * league.sizes.len() * servers.len(), 0_usize);
    for round in 1..=recorder.steps() {
        for &size in &league.sizes {
            for index in in_turn(servers.len(), round - 1) {
                if recorder.is_stopped() {
                    break;
                }
                let server = &mut servers[index];
                done += 1;
                if dropped.has(server.name()) {
                    continue;
                }
                let target = Target { len: Some(size), ..Target::new(format!("/{}", name(size))) };
                let plan = league.plan(server, vec![target]);
                let measured = match league.measure(server, &plan) {
                    Ok(measured) => measured,
                    Err(fault) => {
                        dropped.add(recorder, server.name(), round, fault);
                        continue;
                    }
                };
                let account = &measured.account;
                let values = [account.rate(), measured.cpu_per_request()];
                for ((what, unit), value) in FIGURES.into_iter().zip(values) {
                    let series = format!("{what}, round {round}");
                    recorder.record(server.name(), &series, unit, float(size), value);
                    rounds.add(server.name(), &of_size(what, size), value);
                }
                accounts.push((server.name().to_owned(), size, measured.account));
                recorder.progress(float(done) / float(total));
            }
        }
    }
    let names: Vec<&str> = servers.iter().map(Server::name).collect();
    for &size in &league.sizes {
        let floor = rounds.median("floor", &of_size(CPU, size));
        for name in &names {
            for (what, unit) in FIGURES {
                let median = rounds.median(name, &of_size(what, size));
                if median.is_finite() {
                    recorder.record(name, what, unit, float(size), median);
                }
            }
            let ratio = rounds.median(name, &of_size(CPU, size)) / floor;
            if ratio.is_finite() {
                recorder.record(name, FLOORS, Unit::Count, float(size), ratio);
            }
        }
        let took_part = |name: &&&str| rounds.median(name, &of_size(RATE, size)).is_finite();
        let rows = names.iter().filter(took_part).map(|name| {
            let of_server = |(server, of, _): &&(String, u64, _)| server == name && *of == size;
            let of_server: Vec<_> =
                accounts.iter().filter(of_server).map(|(_, _, account)| account).collect();
            let cell =
                |what, show: fn(f64) -> String| rounds.cell(name, &of_size(what, size), show);
            let ratio = rounds.median(name, &of_size(CPU, size)) / floor;
            vec![
                (*name).to_owned(),
                cell(RATE, |rate| format!("{rate:.0}")),
                cell(CPU, |ns| format!("{:.2}", ns / 1e3)),
                if ratio.is_finite() { format!("{ratio:.2}") } else { "–".to_owned() },
                remarks(&of_server),
            ]
        });
        let head = ["server", "requests/s", "CPU, µs/request", "floor = 1", "remarks"];
        recorder.table(Table {
            title: format!(
                "{size} bytes, closed loop over {} connections: median (least–greatest)",
                league.connections
            ),
            head: head.map(str::to_owned).to_vec(),
            rows: rows.collect(),
        });
    }
    if let Some(noisy) = rounds.too_noisy(&[CPU, RATE]) {
        recorder.note(noisy);
    }
    league.describe(recorder);
    if servers.is_empty() { Ok(()) } else { dropped.result(servers.len()) }
}

fn of_size(what: &str, size: u64) -> String {
    format!("{what}, {size} B")
}

pub(crate) const RATE: &str = "requests per second";
pub(crate) const CPU: &str = "CPU per request";
const FLOORS: &str = "CPU per request, floor = 1";

/// The figures that are measured. In raw.csv each round is a series of its own; the plots show medians.
const FIGURES: [(&str, Unit); 2] = [(RATE, Unit::PerSecond), (CPU, Unit::Nanoseconds)];
