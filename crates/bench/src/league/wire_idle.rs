//! Measures idle connections to samum's own stack over a link between two network namespaces: the memory of the
//! server for each, and the latency of new clients meanwhile.
//!
//! The clients are a [`crowd`]: a kernel has neither the memory nor the ports for a million of them.

use core::net::Ipv4Addr;
use std::rc::Rc;
use std::thread;

use super::League;
use super::network::{self, Network};
use super::peers::CROWDED;
use super::rounds::Rounds;
use super::server::Host;
use super::site::Site;
use crate::crowd::{self, Measured};
use crate::load::pin;
use crate::run::{Figure, Table};
use crate::stats::float;
use crate::{Fault, Recorder, Test, Unit};

/// The test.
#[must_use]
pub fn test(league: &Rc<League>) -> Test {
    let league = Rc::clone(league);
    let title = "Idle connections to a stack of samum's own";
    Test::new("wire-idle", title, move |recorder| run(&league, recorder))
        .scales("at most 300 bytes for each, and new clients that wait no longer")
        .x("round")
        .warm_up("100 clients")
        .tabled()
        .figure(Figure::of(Unit::Bytes).titled(EACH).only(&[EACH, EACH_ASKED]))
        .figure(Figure::of(Unit::Nanoseconds).titled("new client").only(&[ALONE, BESIDE]))
}

fn run(league: &League, recorder: &mut Recorder<'_>) -> Result<(), Fault> {
    let (cpu, client_cpu) = match (league.server_cpu, league.client_cpu) {
        (Some(server), Some(client)) if server != client => (server, client),
        _ => return Err(Fault::Skip("needs two CPUs".to_owned())),
    };
    let peers = league.chosen(&[CROWDED])?;
    let network = Network::new(cpu, client_cpu).map_err(Fault::Skip)?;
    // Servers are started in the other namespace; all clients are in this one.
    let _inside = network.clients().enter()?;
    let site = Site::new(league.root.as_deref())?;
    let files = [site.file(FILE, 128)?];
    let host = Host {
        root: site.root(),
        files: &files,
        cpu: Some(cpu),
        throttle: None,
        origin: None,
        network: Some(&network),
    };
    let mut rounds = Rounds::default();
    for round in 1..=recorder.steps() {
        if recorder.is_stopped() {
            break;
        }
        let Some(server) = league.start_on(recorder, &peers[0], &site, host) else { break };
        network.pin_polling(cpu);
        let args = crowd::Args {
            interface: network::CLIENT.to_owned(),
            via: network::OWN.mac,
            server: server.address(),
            // An interface can own 16 addresses, and each has 64,512 ports.
            from: (10..26).map(|host| Ipv4Addr::new(10, 9, 1, host).into()).collect(),
            path: format!("/{FILE}"),
            count: league.crowd,
            newcomers: if league.quick { 100 } else { 2000 },
            pid: Some(server.pid()),
        };
        let measured = on(client_cpu, &args).map_err(Fault::Failed)?;
        for (what, unit, value) in figures(&measured) {
            rounds.record(recorder, CROWDED, what, unit, float(round), value);
        }
        rounds.add(
            CROWDED,
            RATIO,
            measured.beside.p50.as_secs_f64() / measured.alone.p50.as_secs_f64(),
        );
        recorder.progress(float(round) / float(recorder.steps()));
    }
    let microseconds = |ns: f64| format!("{:.0}", ns / 1e3);
    let seconds = |ns: f64| format!("{:.1}", ns / 1e9);
    let bytes = |bytes: f64| format!("{bytes:.0}");
    let row = vec![
        CROWDED.to_owned(),
        rounds.cell(CROWDED, EACH, bytes),
        rounds.cell(CROWDED, EACH_ASKED, bytes),
        rounds.cell(CROWDED, ALONE, microseconds),
        rounds.cell(CROWDED, BESIDE, microseconds),
        rounds.cell(CROWDED, RATIO, |ratio| format!("{ratio:.2}")),
        rounds.cell(CROWDED, OPENED, seconds),
        rounds.cell(CROWDED, ANSWERED, seconds),
    ];
    let head = [
        "server",
        "memory, B each",
        "when all had asked",
        "a new client alone, p50, µs",
        "beside them",
        "ratio",
        "opened in, s",
        "all answered in, s",
    ];
    recorder.table(Table {
        title: format!("{} connections: median (least–greatest)", league.crowd),
        head: head.map(str::to_owned).to_vec(),
        rows: vec![row],
    });
    if let Some(noisy) = rounds.too_noisy(&[EACH, ALONE, BESIDE]) {
        recorder.note(noisy);
    }
    league.describe_these(recorder, &peers);
    Ok(())
}

/// A crowd on a CPU, in this thread's namespace.
fn on(cpu: usize, args: &crowd::Args) -> Result<Measured, crate::Error> {
    thread::scope(|scope| {
        let crowd = scope.spawn(|| {
            pin(Some(cpu)).map_err(|error| error.to_string())?;
            crowd::run(args)
        });
        crowd.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// The figures of a round with their names and units.
fn figures(measured: &Measured) -> Vec<(&'static str, Unit, f64)> {
    let ns = |time: core::time::Duration| time.as_secs_f64() * 1e9;
    let mut figures = vec![
        (ALONE, Unit::Nanoseconds, ns(measured.alone.p50)),
        (BESIDE, Unit::Nanoseconds, ns(measured.beside.p50)),
        (OPENED, Unit::Nanoseconds, ns(measured.opened)),
        (ANSWERED, Unit::Nanoseconds, ns(measured.answered)),
    ];
    if let Some(memory) = measured.memory {
        figures.push((EACH, Unit::Bytes, float(memory.each)));
        figures.push((EACH_ASKED, Unit::Bytes, float(memory.each_asked)));
    }
    figures
}

/// The file that is asked for.
const FILE: &str = "f128";

pub(crate) const EACH: &str = "memory of each";
pub(crate) const EACH_ASKED: &str = "memory of each that has asked";
pub(crate) const ALONE: &str = "new client alone";
pub(crate) const BESIDE: &str = "new client beside them";
const RATIO: &str = "new client, alone = 1";
const OPENED: &str = "all opened";
const ANSWERED: &str = "all answered";
