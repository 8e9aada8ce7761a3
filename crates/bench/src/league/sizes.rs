//! Servers that take turns over cached files of several sizes: `warm` and `wire` measure in this way, each
//! with figures of its own.

use super::Dropped;
use super::rounds::Rounds;
use super::server::Server;
use super::site::Site;
use super::turns::Turns;
use crate::http::figures::remarks;
use crate::load::{Account, Target};
use crate::run::Table;
use crate::stats::float;
use crate::{Fault, Recorder, Unit};

/// A figure of each turn, and its column.
#[derive(Clone, Copy, Debug)]
pub(super) struct Column {
    pub(super) what: &'static str,
    pub(super) unit: Unit,
    pub(super) title: &'static str,
    pub(super) show: fn(f64) -> String,
}

/// A figure in relation to the floor's.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ratio {
    /// The name of the ratio.
    pub(super) what: &'static str,
    /// The name of the figure.
    pub(super) of: &'static str,
    /// True if each round has a ratio of its own; otherwise the medians have one.
    pub(super) each_round: bool,
}

/// The figures of a test. In raw.csv each round is a series of its own; the plots show medians.
#[derive(Clone, Copy, Debug)]
pub(super) struct Figures<'a> {
    pub(super) columns: &'a [Column],
    pub(super) ratio: Ratio,
}

/// Makes a file of each size.
pub(super) fn files(site: &Site, sizes: &[u64]) -> Result<Vec<String>, Fault> {
    site.has_room_for(sizes.iter().fold(0, |sum, size| size.saturating_add(sum)))?;
    Ok(sizes.iter().map(|&size| site.file(&name(size), size)).collect::<Result<_, _>>()?)
}

fn name(size: u64) -> String {
    format!("f{size}")
}

/// Lets servers take turns over the files of each size, and shows the figures of `measure` in a table for
/// each size, under the size and `title`.
pub(super) fn take_turns(
    recorder: &mut Recorder<'_>,
    turns: Turns,
    servers: &mut [Server],
    sizes: &[u64],
    figures: Figures<'_>,
    title: &str,
    mut measure: impl FnMut(&mut Server, Target) -> Result<(Account, Vec<f64>), Fault>,
) -> Result<(), Fault> {
    let mut rounds = Rounds::default();
    let mut accounts = Vec::new();
    let mut dropped = Dropped::default();
    let (total, mut done) = (recorder.steps() * sizes.len() * servers.len(), 0_usize);
    for round in 1..=recorder.steps() {
        for &size in sizes {
            for index in turns.of(servers.len(), round - 1) {
                if recorder.is_stopped() {
                    break;
                }
                let server = &mut servers[index];
                done += 1;
                if dropped.has(server.name()) {
                    continue;
                }
                let target = Target { len: Some(size), ..Target::new(format!("/{}", name(size))) };
                let (account, values) = match measure(server, target) {
                    Ok(measured) => measured,
                    Err(fault) => {
                        dropped.add(recorder, server.name(), round, fault);
                        continue;
                    }
                };
                for (column, value) in figures.columns.iter().zip(values) {
                    let series = of_round(column.what, round);
                    recorder.record(server.name(), &series, column.unit, float(size), value);
                    rounds.add(server.name(), &of_size(column.what, size), value);
                }
                accounts.push((server.name().to_owned(), size, account));
                recorder.progress(float(done) / float(total));
            }
        }
    }
    let names: Vec<&str> = servers.iter().map(Server::name).collect();
    for &size in sizes {
        for name in &names {
            for Column { what, unit, .. } in figures.columns {
                let median = rounds.median(name, &of_size(what, size));
                if median.is_finite() {
                    recorder.record(name, what, *unit, float(size), median);
                }
            }
            figures.ratio.record(recorder, &mut rounds, name, size);
        }
        let took_part = |name: &&&str| {
            let columns = figures.columns.iter();
            columns.clone().any(|it| rounds.median(name, &of_size(it.what, size)).is_finite())
        };
        let rows = names.iter().filter(took_part).map(|name| {
            let of_server = |(server, of, _): &&(String, u64, _)| server == name && *of == size;
            let of_server: Vec<_> =
                accounts.iter().filter(of_server).map(|(_, _, account)| account).collect();
            let cell =
                |what, show: fn(f64) -> String| rounds.cell(name, &of_size(what, size), show);
            let mut row = vec![(*name).to_owned()];
            row.extend(figures.columns.iter().map(|column| cell(column.what, column.show)));
            row.push(cell(figures.ratio.what, |ratio| format!("{ratio:.2}")));
            row.push(remarks(&of_server));
            row
        });
        let titles = figures.columns.iter().map(|column| column.title);
        let head = ["server"].into_iter().chain(titles).chain(["floor = 1", "remarks"]);
        recorder.table(Table {
            title: format!("{size} bytes, {title}: median (least–greatest)"),
            head: head.map(str::to_owned).collect(),
            rows: rows.collect(),
        });
    }
    let measured: Vec<&str> = figures.columns.iter().map(|column| column.what).collect();
    if let Some(noisy) = rounds.too_noisy(&measured) {
        recorder.note(noisy);
    }
    if servers.is_empty() { Ok(()) } else { dropped.result(servers.len()) }
}

impl Ratio {
    /// Records and adds the ratio of a server, or one for each round.
    fn record(&self, recorder: &mut Recorder<'_>, rounds: &mut Rounds, server: &str, size: u64) {
        let (of, what) = (of_size(self.of, size), of_size(self.what, size));
        let ratios = if self.each_round {
            rounds.ratios(server, "floor", &of)
        } else {
            vec![rounds.median(server, &of) / rounds.median("floor", &of)]
        };
        for (round, &ratio) in (1..).zip(&ratios).filter(|(_, ratio)| ratio.is_finite()) {
            if self.each_round {
                let series = of_round(self.what, round);
                recorder.record(server, &series, Unit::Count, float(size), ratio);
            }
            rounds.add(server, &what, ratio);
        }
        let median = rounds.median(server, &what);
        if median.is_finite() {
            recorder.record(server, self.what, Unit::Count, float(size), median);
        }
    }
}

/// The name of a figure for one of several sizes.
fn of_size(what: &str, size: u64) -> String {
    format!("{what}, {size} B")
}

/// The series of a figure in a round.
fn of_round(what: &str, round: usize) -> String {
    format!("{what}, round {round}")
}
