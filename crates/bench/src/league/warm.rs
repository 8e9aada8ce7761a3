//! Measures the cost of a request when all files are cached: a closed loop over files of several sizes. In
//! a closed loop latency follows from throughput, so no latencies are shown.

use std::rc::Rc;

use super::League;
use super::server::Server;
use super::site::Site;
use super::sizes::{self, Column, Figures, Ratio};
use crate::run::Figure;
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
    let files = sizes::files(&site, &league.sizes)?;
    let mut servers: Vec<Server> = Vec::new();
    for peer in &league.peers {
        servers.extend(league.start(recorder, peer, &site, &files, None));
    }
    let title =
        format!("closed loop over {} connections; {}", league.connections, league.receives());
    let taken = sizes::take_turns(
        recorder,
        league.turns,
        &mut servers,
        &league.sizes,
        FIGURES,
        &title,
        |server, target| {
            let measured = league.measure(server, &league.plan(server, vec![target]))?;
            let values = vec![measured.account.rate(), measured.cpu_per_request()];
            Ok((measured.account, values))
        },
    );
    league.describe(recorder);
    taken
}

pub(crate) const RATE: &str = "requests per second";
pub(crate) const CPU: &str = "CPU per request";
const FLOORS: &str = "CPU per request, floor = 1";

pub(super) const RATE_COLUMN: Column = Column {
    what: RATE,
    unit: Unit::PerSecond,
    title: "requests/s",
    show: |rate| format!("{rate:.0}"),
};

const FIGURES: Figures<'_> = Figures {
    columns: &[
        RATE_COLUMN,
        Column {
            what: CPU,
            unit: Unit::Nanoseconds,
            title: "CPU, µs/request",
            show: |ns| format!("{:.2}", ns / 1e3),
        },
    ],
    ratio: Ratio { what: FLOORS, of: CPU, each_round: false },
};
