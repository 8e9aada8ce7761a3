//! Measures downloads of files that are not cached, many at the same time, over a link between two network namespaces:
//! the kernel's TCP compared with samum's own stack, with the page cache and without.
//!
//! The cost is the busy time of the server's CPU, as in `wire`. A server's memory is measured while the downloads
//! run. It does not include the bytes in the sockets of the kernel's TCP. Only samum's own stack keeps bytes in
//! the process until they are acknowledged.

use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use std::rc::Rc;
use std::thread;

use super::network::Network;
use super::peers::Peer;
use super::rounds::Rounds;
use super::server::{Host, Server};
use super::site::Site;
use super::{AT_ONCE_RECEIVES, Dropped, League};
use crate::load::pin;
use crate::machine::busy;
use crate::run::{Figure, Table};
use crate::stats::float;
use crate::unit::{Better, NOTHING};
use crate::{Fault, Recorder, Test, Unit};

/// The test.
#[must_use]
pub fn test(league: &Rc<League>) -> Test {
    let league = Rc::clone(league);
    let title = "Cost and memory of downloads from the disk over a link";
    Test::new("wire-cold", title, move |recorder| run(&league, recorder))
        .scales("little more CPU than over the kernel's TCP, in bounded memory")
        .x("round")
        .warm_up("one file from the disk; all files are put out of memory before each download")
        .tabled()
        .better(CPU, Better::Less)
        .figure(Figure::of(Unit::Nanoseconds).titled(CPU).only(&[CPU]))
        .figure(Figure::of(Unit::Bytes).titled(MEMORY).only(&[MEMORY]))
}

fn run(league: &League, recorder: &mut Recorder<'_>) -> Result<(), Fault> {
    let (cpu, client_cpu) = match (league.server_cpu, league.client_cpu) {
        (Some(server), Some(client)) if server != client => (server, client),
        _ => return Err(Fault::Skip("needs two CPUs".to_owned())),
    };
    let network = Network::new(cpu, client_cpu).map_err(Fault::Skip)?;
    // Servers are started in the other namespace; the load generator and the rest are clients in this one.
    let _inside = network.clients().enter()?;
    let site = Site::new(league.root.as_deref())?;
    site.needs_a_disk()?;
    let bytes = if league.quick { FILE_BYTES / 20 } else { FILE_BYTES };
    site.has_room_for(PARALLEL as u64 * bytes)?;
    let files: Vec<String> =
        (0..PARALLEL).map(|i| site.file(&format!("many/{i}"), bytes)).collect::<Result<_, _>>()?;
    let first = site.file_to_compare()?;
    let peers = peers(league)?;
    let stage = Stage { league, site: &site, network: &network, cpu, first, files, bytes };
    let mut rounds = Rounds::default();
    let mut dropped = Dropped::default();
    let total = recorder.steps() * peers.len();
    let turns = (0..recorder.steps()).flat_map(|round| league.turns.of(peers.len(), round));
    for (nth, index) in turns.enumerate() {
        if recorder.is_stopped() {
            break;
        }
        let (peer, round) = (&peers[index], nth / peers.len() + 1);
        if !dropped.has(&peer.name) {
            match stage.turn(recorder, peer) {
                Ok(Some(done)) => {
                    for (what, unit, value) in done {
                        rounds.record(recorder, &peer.name, what, unit, float(round), value);
                    }
                }
                Ok(None) => {}
                Err(fault) => dropped.add(recorder, &peer.name, round, fault),
            }
        }
        recorder.progress(float(nth + 1) / float(total));
    }
    let rows = peers.iter().map(|peer| row(&peer.name, &rounds)).collect();
    let head = [
        "server",
        "CPU of the core, ms per GiB",
        "own user time, ms per GiB",
        RATIO,
        "MB/s",
        "memory, at most, MiB",
        "more than before, MiB",
    ];
    recorder.table(Table {
        title: format!(
            "{PARALLEL} files of {} at once, from the disk: median (least–greatest); {}",
            Unit::Bytes.show(float(bytes)),
            AT_ONCE_RECEIVES
        ),
        head: head.map(str::to_owned).to_vec(),
        rows,
    });
    if let Some(noisy) = rounds.too_noisy(&[CPU]) {
        recorder.note(noisy);
    }
    league.describe_these(recorder, &peers);
    dropped.result(peers.len())
}

/// The servers that take part: those that were chosen, or ours.
fn peers(league: &League) -> Result<Vec<Peer>, Fault> {
    if league.only.is_some() {
        return Ok(league.peers.clone());
    }
    let names = PAIRS.iter().flatten();
    names.map(|name| Peer::named(name).map_err(Fault::Failed)).collect()
}

/// The row of a server. A server with a stack of its own is compared with the same one on the kernel's.
fn row(name: &str, rounds: &Rounds) -> Vec<String> {
    let milliseconds = |ns: f64| format!("{:.0}", ns / 1e6);
    let mebibytes = |bytes: f64| format!("{:.1}", bytes / float(1 << 20));
    let pair = PAIRS.iter().find(|[_, own]| *own == name);
    let ratio = pair.map(|[kernel, _]| rounds.median(name, CPU) / rounds.median(kernel, CPU));
    vec![
        name.to_owned(),
        rounds.cell(name, CPU, milliseconds),
        rounds.cell(name, USER, milliseconds),
        ratio
            .filter(|it| it.is_finite())
            .map_or_else(|| NOTHING.to_owned(), |it| format!("{it:.2}")),
        rounds.cell(name, RATE, |rate| format!("{:.0}", rate / 1e6)),
        rounds.cell(name, MEMORY, mebibytes),
        rounds.cell(name, GROWTH, mebibytes),
    ]
}

/// The values of one turn, each with its name and unit.
type Measured = [(&'static str, Unit, f64); 5];

struct Stage<'a> {
    league: &'a League,
    site: &'a Site,
    network: &'a Network,
    cpu: usize,
    /// The file that is compared when a server starts.
    first: String,
    files: Vec<String>,
    /// The bytes of each file.
    bytes: u64,
}

impl Stage<'_> {
    /// Starts a server and downloads each file once, all at the same time. `None` if it did not start.
    fn turn(&self, recorder: &mut Recorder<'_>, peer: &Peer) -> Result<Option<Measured>, Fault> {
        let first = [self.first.clone()];
        self.site.evict(self.files.iter().chain(&first))?;
        let host = Host {
            root: self.site.root(),
            files: &first,
            cpu: Some(self.cpu),
            throttle: None,
            origin: None,
            network: Some(self.network),
        };
        let Some(mut server) = self.league.start_on(recorder, peer, self.site, host) else {
            return Ok(None);
        };
        if peer.has_own_stack() {
            self.network.pin_polling(self.cpu);
        }
        let idle = server.memory();
        let plan = self.league.at_once(&server, &self.files, self.bytes);
        let before = (busy(self.cpu), server.user_time());
        let (measured, memory) = watched(server.pid(), self.league.client_cpu, || {
            self.league.measure(&mut server, &plan)
        });
        let after = (busy(self.cpu), server.user_time());
        let account = measured?.account;
        if account.answered_ever < self.files.len() as u64 || account.failed_ever() > 0 {
            return Err(Fault::Failed(format!("not downloaded: {}", account.failures())));
        }
        let gib = float(account.bytes) / float(1 << 30);
        let per_gib = |time: Duration| time.as_secs_f64() * 1e9 / gib;
        Ok(Some([
            (CPU, Unit::Nanoseconds, per_gib(after.0.saturating_sub(before.0))),
            (USER, Unit::Nanoseconds, per_gib(after.1.saturating_sub(before.1))),
            (RATE, Unit::BytesPerSecond, account.bytes_rate()),
            (MEMORY, Unit::Bytes, float(memory)),
            (GROWTH, Unit::Bytes, float(memory.saturating_sub(idle))),
        ]))
    }
}

/// Does `work`, and samples on that CPU the memory of a process and of its new children. Returns the maximum.
fn watched<T>(pid: u32, cpu: Option<usize>, work: impl FnOnce() -> T) -> (T, u64) {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let watch = scope.spawn(|| {
            // Without a CPU of its own it disturbs the server, which is no reason not to look.
            let _ = pin(cpu);
            let mut most = 0;
            while !is_over.load(Ordering::Relaxed) {
                most = most.max(Server::memory_of(pid));
                thread::sleep(LOOK);
            }
            most
        });
        let done = work();
        is_over.store(true, Ordering::Relaxed);
        (done, watch.join().unwrap_or(0))
    })
}

/// The kernel's TCP and samum's own, with the same settings.
pub(crate) const PAIRS: [[&str; 2]; 2] =
    [["samum", "samum-own"], ["samum-never", "samum-own-never"]];

pub(crate) const CPU: &str = "CPU of the core per GiB";
const RATIO: &str = "CPU, kernel's TCP = 1";
const USER: &str = "own user time per GiB";
pub(crate) const RATE: &str = "200 at once";
pub(crate) const MEMORY: &str = "memory of the server, at most";
pub(crate) const GROWTH: &str = "memory, more than before";

/// Files downloaded at the same time.
const PARALLEL: usize = 200;

/// The bytes of each file.
const FILE_BYTES: u64 = 5 << 20;

/// The memory is looked at in these intervals.
const LOOK: Duration = Duration::from_millis(10);
