//! Lets proxies and gateways take turns at a closed loop of requests, and shows their rates and the CPU of each
//! request.

use super::super::rounds::Rounds;
use super::super::server::Server;
use super::super::{Dropped, League};
use crate::http::figures::remarks;
use crate::load::{Account, Plan};
use crate::run::{Figure, Table};
use crate::stats::float;
use crate::{Fault, Recorder, Test, Unit};

/// Describes a test of this kind.
pub(super) fn described(test: Test) -> Test {
    test.x("round")
        .warm_up("half a second of each measurement, at most")
        .tabled()
        .figure(Figure::of(Unit::Nanoseconds).titled(CPU).only(&[CPU]))
        .figure(Figure::of(Unit::PerSecond).titled(RATE).only(&[RATE]))
}

/// Lets servers take turns at `plan`, and shows a table with this title. Their CPU is compared to the CPU of
/// the servers in `compared_to`, each with the title of its column.
pub(super) fn take_turns(
    league: &League,
    recorder: &mut Recorder<'_>,
    servers: &mut [Server],
    compared_to: &[(&str, &str)],
    title: &str,
    plan: impl Fn(&Server) -> Plan,
) -> Result<(), Fault> {
    let mut rounds = Rounds::default();
    let mut accounts: Vec<(String, Account)> = Vec::new();
    let mut dropped = Dropped::default();
    let count = servers.len();
    let total = recorder.steps() * count;
    let turns = (0..recorder.steps()).flat_map(|round| {
        league.turns.of(count, round).into_iter().map(move |index| (round + 1, index))
    });
    for (nth, (round, index)) in turns.enumerate() {
        let server = &mut servers[index];
        if recorder.is_stopped() {
            break;
        }
        if dropped.has(server.name()) {
            continue;
        }
        match league.measure(server, &plan(server)) {
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
        row.extend(compared_to.iter().map(|(other, _)| rounds.ratio(name, other, CPU)));
        row.push(remarks(&of_server));
        row
    });
    let ratios = compared_to.iter().map(|(_, title)| *title);
    let head = ["server", "requests/s", "CPU, µs/request"].into_iter().chain(ratios);
    recorder.table(Table {
        title: format!(
            "{title}: median (least–greatest); ratios of CPU in parentheses: not ranked"
        ),
        head: head.chain(["remarks"]).map(str::to_owned).collect(),
        rows: rows.collect(),
    });
    if let Some(noisy) = rounds.too_noisy(&[CPU, RATE]) {
        recorder.note(noisy);
    }
    if servers.is_empty() { Ok(()) } else { dropped.result(servers.len()) }
}

pub(crate) const RATE: &str = "requests per second";
pub(crate) const CPU: &str = "CPU per request";

/// The figures that are measured.
const FIGURES: [(&str, Unit); 2] = [(RATE, Unit::PerSecond), (CPU, Unit::Nanoseconds)];
