//! Measures the cost of an answer of DNS over a link between two network namespaces: a server on the kernel's UDP
//! compared with one on samum's own stack, with the same zone.
//!
//! The cost is the busy time of the server's CPU, as in `wire`. In a closed loop latency follows from throughput, so
//! no latencies are shown.

use core::time::Duration;
use std::fs;
use std::rc::Rc;
use std::thread;

use super::network::Network;
use super::peers::DNS;
use super::rounds::Rounds;
use super::server::{Host, Server};
use super::{Dropped, League};
use crate::load::questions::{Answered, Questions};
use crate::machine::{busy, interrupts};
use crate::run::{Figure, Table};
use crate::stats::float;
use crate::unit::Better;
use crate::{Fault, Recorder, Test, Unit};

/// The test.
#[must_use]
pub fn test(league: &Rc<League>) -> Test {
    let league = Rc::clone(league);
    Test::new("dns", "Cost of an answer of DNS over a link", move |recorder| run(&league, recorder))
        .scales("half the CPU for each answer of a server on the kernel's UDP")
        .x("round")
        .warm_up("a fifth of each measurement")
        .tabled()
        .better(CPU, Better::Less)
        .figure(Figure::of(Unit::Nanoseconds).titled(CPU).only(&[CPU]))
        .figure(Figure::of(Unit::PerSecond).titled(RATE).only(&[RATE]))
}

fn run(league: &League, recorder: &mut Recorder<'_>) -> Result<(), Fault> {
    let (cpu, client_cpu) = match (league.server_cpu, league.client_cpu) {
        (Some(server), Some(client)) if server != client => (server, client),
        _ => return Err(Fault::Skip("needs two CPUs".to_owned())),
    };
    let peers = league.chosen(&DNS)?;
    let network = Network::new(cpu, client_cpu).map_err(Fault::Skip)?;
    // Servers are started in the other namespace; the load generator and the rest are clients in this one.
    let _inside = network.clients().enter()?;
    let root = tempfile::Builder::new().prefix("samum-bench-").tempdir()?;
    fs::write(root.path().join("zone"), zone())?;
    let host = Host {
        root: root.path(),
        files: &[],
        cpu: Some(cpu),
        throttle: None,
        origin: None,
        network: Some(&network),
    };
    let mut servers = Vec::new();
    for peer in &peers {
        let started = league.start_checked(recorder, peer, host, |server| Ok(check(server)?));
        if peer.has_own_stack() && started.is_some() {
            network.pin_polling(cpu);
        }
        servers.extend(started);
    }
    let mut rounds = Rounds::default();
    let mut dropped = Dropped::default();
    let total = recorder.steps() * servers.len();
    let turns = (0..recorder.steps()).flat_map(|round| league.turns.of(servers.len(), round));
    for (nth, index) in turns.enumerate() {
        if recorder.is_stopped() {
            break;
        }
        let (server, round) = (&servers[index], nth / servers.len() + 1);
        if !dropped.has(server.name()) {
            match measure(league, server, (cpu, client_cpu)) {
                Ok(figures) => {
                    for (what, unit, value) in figures {
                        rounds.record(recorder, server.name(), what, unit, float(round), value);
                    }
                }
                Err(fault) => dropped.add(recorder, server.name(), round, fault),
            }
        }
        recorder.progress(float(nth + 1) / float(total));
    }
    let names: Vec<&str> = servers.iter().map(Server::name).collect();
    for name in &names {
        for ratio in rounds.ratios(name, NSD, CPU) {
            rounds.add(name, RATIO, ratio);
        }
    }
    let microseconds = |ns: f64| format!("{:.2}", ns / 1e3);
    let rows = names.iter().map(|name| {
        vec![
            (*name).to_owned(),
            rounds.cell(name, RATE, |rate| format!("{rate:.0}")),
            rounds.cell(name, CPU, microseconds),
            rounds.cell(name, USER, microseconds),
            rounds.cell(name, INTERRUPTS, |each| format!("{each:.2}")),
            rounds.cell(name, RATIO, |ratio| format!("{ratio:.2}")),
            rounds.cell(name, LOST, |lost| format!("{lost:.0}")),
        ]
    });
    let head = [
        "server",
        "answers/s",
        "CPU of the core, µs/answer",
        "own user time, µs/answer",
        "interrupts/answer",
        "nsd = 1",
        "asked again after 0.2 s",
    ];
    recorder.table(Table {
        title: format!(
            "{NAMES} names, {} clients, each with one question at a time: median (least–greatest)",
            league.connections
        ),
        head: head.map(str::to_owned).to_vec(),
        rows: rows.collect(),
    });
    recorder.note("interrupts: those that the two CPUs send each other");
    if let Some(noisy) = rounds.too_noisy(&[CPU]) {
        recorder.note(noisy);
    }
    league.describe_these(recorder, &peers);
    if servers.is_empty() { Ok(()) } else { dropped.result(servers.len()) }
}

/// Checks that a server answers a question.
fn check(server: &Server) -> Result<(), String> {
    let duration = Duration::from_millis(100);
    let answered = ask(server, 1, duration, None).map_err(|error| error.to_string())?;
    if answered.answers == 0 { Err("it does not answer".to_owned()) } else { Ok(()) }
}

/// A turn of a server: its figures with their names and units.
fn measure(
    league: &League,
    server: &Server,
    (cpu, client_cpu): (usize, usize),
) -> Result<[(&'static str, Unit, f64); 5], Fault> {
    let load = |length| {
        let answered = ask(server, league.connections, length, Some(client_cpu))
            .map_err(|error| Fault::Failed(error.to_string()))?;
        if answered.answers == 0 || answered.wrong > 0 {
            let Answered { answers, wrong, .. } = answered;
            return Err(Fault::Failed(format!("{answers} answers, and {wrong} that are wrong")));
        }
        Ok::<_, Fault>(answered)
    };
    load(league.length / 5)?;
    let between = || interrupts(cpu) + interrupts(client_cpu);
    let before = (busy(cpu), server.user_time(), between());
    let answered = load(league.length)?;
    league.limits.add(server.name(), answered.bottleneck());
    let after = (busy(cpu), server.user_time(), between());
    let answers = float(answered.answers);
    let each = |time: Duration| time.as_secs_f64() * 1e9 / answers;
    Ok([
        (RATE, Unit::PerSecond, answers / answered.time.as_secs_f64()),
        (CPU, Unit::Nanoseconds, each(after.0.saturating_sub(before.0))),
        (USER, Unit::Nanoseconds, each(after.1.saturating_sub(before.1))),
        (INTERRUPTS, Unit::Count, float(after.2 - before.2) / answers),
        (LOST, Unit::Count, float(answered.lost)),
    ])
}

/// Asks a server on a thread of its own, so that this thread stays where it is.
fn ask(
    server: &Server,
    clients: usize,
    duration: Duration,
    cpu: Option<usize>,
) -> std::io::Result<Answered> {
    let names = (0..NAMES).map(|number| format!("n{number}.{ORIGIN}")).collect();
    let questions = Questions { address: server.address(), names, clients, duration, cpu };
    thread::scope(|scope| {
        scope
            .spawn(|| questions.ask())
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// A zone in which each name has an address (RFC 1035, 5.1).
fn zone() -> String {
    let address = |n: usize| format!("n{n} A 192.0.{}.{}\n", n / 250, n % 250 + 1);
    let head =
        "$TTL 1h\n@ IN SOA ns1 hostmaster ( 1 2h 15m 2w 5m )\n  IN NS ns1\nns1 A 192.0.2.1\n";
    head.to_owned() + &(0..NAMES).map(address).collect::<String>()
}

/// The server on the kernel's UDP that others are compared with.
const NSD: &str = DNS[0];

/// The origin of the zone, as in the commands of the servers.
const ORIGIN: &str = "example.org";

/// Names that have an address.
const NAMES: usize = 1000;

pub(crate) const RATE: &str = "answers per second";
pub(crate) const CPU: &str = "CPU of the core per answer";
const USER: &str = "own user time per answer";
const RATIO: &str = "CPU of the core, nsd = 1";
pub(crate) const INTERRUPTS: &str = "interrupts between the CPUs per answer";
const LOST: &str = "questions asked again";
