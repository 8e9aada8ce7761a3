//! Measures the cost of a request that comes over a link between two network namespaces, all files cached:
//! servers on the kernel's TCP compared with a server with a stack of its own. In a closed loop latency follows from
//! throughput, so no latencies are shown.
//!
//! The cost is the busy time of the server's CPU. It includes the kernel's work on packets, which no process
//! is charged for. No other process may run on that CPU.

use core::time::Duration;
use std::rc::Rc;

use super::network::Network;
use super::peers::{KNOWN, Peer};
use super::server::{Host, Server};
use super::site::Site;
use super::sizes::{self, Column, Figures, Ratio};
use super::{League, warm};
use crate::load::Plan;
use crate::machine::{busy, interrupts};
use crate::run::Figure;
use crate::stats::float;
use crate::unit::Better;
use crate::{Fault, Recorder, Test, Unit};

/// The tests: with connections that are kept, and with one for each request.
#[must_use]
pub fn tests(league: &Rc<League>) -> [Test; 2] {
    [
        (KEPT, "Cost of a request over a link", true),
        (CLOSED, "Cost of a connection and a request over a link", false),
    ]
    .map(|(name, title, keep_alive)| {
        let league = Rc::clone(league);
        Test::new(name, title, move |recorder| run(&league, recorder, keep_alive))
            .scales("less CPU per request than the floor on the kernel's TCP")
            .x("size of the file, bytes")
            .warm_up("half a second of each measurement, at most")
            .tabled()
            .better(RATIO, Better::Less)
            .figure(Figure::of(Unit::Count).titled(RATIO).only(&[RATIO]).log_x().lines())
            .figure(
                Figure::of(Unit::Nanoseconds).titled(CPU).only(&[CPU]).log_x().log_y(true).lines(),
            )
            .figure(
                Figure::of(Unit::PerSecond).titled(RATE).only(&[RATE]).log_x().log_y(true).lines(),
            )
    })
}

fn run(league: &League, recorder: &mut Recorder<'_>, keep_alive: bool) -> Result<(), Fault> {
    let (cpu, client_cpu) = match (league.server_cpu, league.client_cpu) {
        (Some(server), Some(client)) if server != client => (server, client),
        _ => return Err(Fault::Skip("needs two CPUs".to_owned())),
    };
    let network = Network::new(cpu, client_cpu).map_err(Fault::Skip)?;
    // Servers are started in the other namespace; the load generator and the rest are clients in this one.
    let _inside = network.clients().enter()?;
    let site = Site::new(league.root.as_deref())?;
    let files = sizes::files(&site, &league.wire_sizes)?;
    let peers = peers(league)?;
    let mut servers: Vec<Server> = Vec::new();
    for peer in &peers {
        let (root, files) = (site.root(), &files[..]);
        let host = Host {
            root,
            files,
            cpu: Some(cpu),
            throttle: None,
            origin: None,
            network: Some(&network),
        };
        let server = league.start_on(recorder, peer, &site, host);
        if peer.has_own_stack() && server.is_some() {
            network.pin_polling(cpu);
        }
        servers.extend(server);
    }
    let how = if keep_alive { "" } else { ", each for one request" };
    let title =
        format!("closed loop over {} connections{how}; {}", league.connections, league.receives());
    let figures = Figures { columns: &COLUMNS, ratio: TO_FLOOR };
    let taken = sizes::take_turns(
        recorder,
        league.turns,
        &mut servers,
        &league.wire_sizes,
        figures,
        &title,
        |server, target| {
            let plan = Plan { keep_alive, ..league.plan(server, vec![target]) };
            let between = || interrupts(cpu) + interrupts(client_cpu);
            let before = (busy(cpu), server.user_time(), between());
            let account = league.measure(server, &plan)?.account;
            let after = (busy(cpu), server.user_time(), between());
            let requests = float(account.answered_ever);
            let each = |time: Duration| time.as_secs_f64() * 1e9 / requests;
            let used = [after.0.saturating_sub(before.0), after.1.saturating_sub(before.1)];
            let interrupts = float(after.2 - before.2) / requests;
            let values = [account.rate(), each(used[0]), each(used[1]), interrupts];
            Ok((account, values.to_vec()))
        },
    );
    recorder.note(
        "CPU of the core: user, system and interrupt time of the server's CPU; own user time: of the server's \
         processes; \
         interrupts: those that the two CPUs send each other",
    );
    league.describe_these(recorder, &peers);
    taken
}

/// The servers that take part: those that were chosen, or those that show the difference, and added ones.
fn peers(league: &League) -> Result<Vec<Peer>, Fault> {
    if league.only.is_some() {
        return Ok(league.peers.clone());
    }
    let added = league.peers.iter().filter(|peer| !KNOWN.contains(&&peer.name[..]));
    let named = PEERS.map(|name| Peer::named(name).map_err(Fault::Failed));
    named.into_iter().chain(added.cloned().map(Ok)).collect()
}

const PEERS: [&str; 5] = ["floor", "nginx", "h2o", "samum", "samum-own"];

/// The names of the tests.
pub(crate) const KEPT: &str = "wire";
pub(crate) const CLOSED: &str = "wire-close";

pub(crate) const RATE: &str = warm::RATE;
pub(crate) const CPU: &str = "CPU of the core per request";
pub(crate) const RATIO: &str = "CPU of the core, floor = 1";
pub(crate) const USER: &str = "own user time per request";
pub(crate) const INTERRUPTS: &str = "interrupts between the CPUs per request";

const COLUMNS: [Column; 4] = [
    warm::RATE_COLUMN,
    Column {
        what: CPU,
        unit: Unit::Nanoseconds,
        title: "CPU of the core, µs/request",
        show: microseconds,
    },
    Column {
        what: USER,
        unit: Unit::Nanoseconds,
        title: "own user time, µs/request",
        show: microseconds,
    },
    Column {
        what: INTERRUPTS,
        unit: Unit::Count,
        title: "interrupts/request",
        show: |each| format!("{each:.2}"),
    },
];

/// The machine's speed changes from round to round, and a round's ratio less.
const TO_FLOOR: Ratio = Ratio { what: RATIO, of: CPU, each_round: true };

fn microseconds(ns: f64) -> String {
    format!("{:.2}", ns / 1e3)
}
