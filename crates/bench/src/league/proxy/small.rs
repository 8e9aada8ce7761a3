//! Measures small responses through proxies: a closed loop over connections that are kept on both sides.

use std::rc::Rc;

use super::super::League;
use super::super::rounds::Rounds;
use super::super::server::Server;
use super::super::site::Site;
use super::super::{Dropped, in_turn};
use super::{COMPARED_TO, Stage, ratio};
use crate::http::figures::remarks;
use crate::load::{Account, Target};
use crate::run::{Figure, Table};
use crate::stats::float;
use crate::{Fault, Recorder, Test, Unit};

/// The test.
#[must_use]
pub fn test(league: &Rc<League>) -> Test {
    let league = Rc::clone(league);
    let title = "Cost of a small response through a proxy";
    Test::new("proxied-small", title, move |recorder| run(&league, recorder))
        .scales("CPU per request that is near that of two requests without a proxy")
        .x("round")
        .warm_up("half a second of each measurement, at most")
        .tabled()
        .figure(Figure::of(Unit::Nanoseconds).titled(CPU).only(&[CPU]))
        .figure(Figure::of(Unit::PerSecond).titled(RATE).only(&[RATE]))
}

fn run(league: &League, recorder: &mut Recorder<'_>) -> Result<(), Fault> {
    let site = Site::new(league.root.as_deref())?;
    let files = vec![site.file("small", BYTES)?];
    let stage = Stage::new(league, &site, &files)?;
    let mut servers: Vec<Server> = Vec::new();
    for peer in &league.proxies {
        servers.extend(stage.start(recorder, peer, files.len()));
    }
    let mut rounds = Rounds::default();
    let mut accounts: Vec<(String, Account)> = Vec::new();
    let mut dropped = Dropped::default();
    let count = servers.len();
    let total = recorder.steps() * count;
    let turns = (0..recorder.steps())
        .flat_map(|round| in_turn(count, round).map(move |index| (round + 1, index)));
    for (nth, (round, index)) in turns.enumerate() {
        let server = &mut servers[index];
        if recorder.is_stopped() {
            break;
        }
        if dropped.has(server.name()) {
            continue;
        }
        let target = Target { len: Some(BYTES), ..Target::new("/small") };
        let plan = league.plan(server, vec![target]);
        match league.measure(server, &plan) {
            Ok(measured) => {
                let values = [measured.account.rate(), measured.cpu_per_request()];
                for ((what, unit), value) in FIGURES.into_iter().zip(values) {
                    rounds.record(recorder, server.name(), what, unit, float(round), value);
                }
                accounts.push((server.name().to_owned(), measured.account));
            }
            Err(fault) => dropped.add(recorder, server.name(), round, fault),
        }
        recorder.progress(float(nth + 1) / float(total));
    }
    let took_part = |server: &&Server| rounds.median(server.name(), RATE).is_finite();
    let rows = servers.iter().filter(took_part).map(|server| {
        let name = server.name();
        let of_server: Vec<_> =
            accounts.iter().filter(|(of, _)| of == name).map(|(_, account)| account).collect();
        let mut row = vec![
            name.to_owned(),
            rounds.cell(name, RATE, |rate| format!("{rate:.0}")),
            rounds.cell(name, CPU, |ns| format!("{:.2}", ns / 1e3)),
        ];
        row.extend(COMPARED_TO.map(|(other, _)| ratio(&rounds, name, other, CPU)));
        row.push(remarks(&of_server));
        row
    });
    let [nginx, haproxy] = COMPARED_TO.map(|(_, title)| title);
    recorder.table(Table {
        title: format!(
            "{BYTES} bytes, closed loop over {} connections: median (least–greatest); ratios of CPU in parentheses: not ranked",
            league.connections
        ),
        head: ["server", "requests/s", "CPU, µs/request", nginx, haproxy, "remarks"]
            .map(str::to_owned)
            .to_vec(),
        rows: rows.collect(),
    });
    if let Some(noisy) = rounds.too_noisy(&[CPU, RATE]) {
        recorder.note(noisy);
    }
    stage.describe(recorder);
    if servers.is_empty() { Ok(()) } else { dropped.result(servers.len()) }
}

pub(crate) const RATE: &str = "requests per second";
pub(crate) const CPU: &str = "CPU per request";

/// The figures that are measured.
const FIGURES: [(&str, Unit); 2] = [(RATE, Unit::PerSecond), (CPU, Unit::Nanoseconds)];

/// Of the response's body.
const BYTES: u64 = 1024;
