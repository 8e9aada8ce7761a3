//! Measures how much of a site stays in memory that does not fit, while a crawler reads other files once each.
//! The figure is the bytes of the site that are read from the disk.
//!
//! A server runs in a cgroup with a limit of memory, to which the page cache that it fills is charged. Files of the
//! site are requested by Zipf's law, in turns with files of the crawler. No file of the crawler was in memory before,
//! so all further reads from the disk are for the site.

use core::time::Duration;
use std::rc::Rc;

use super::peers::{CACHING, Peer};
use super::rounds::Rounds;
use super::server::Server;
use super::site::Site;
use super::throttle::Throttle;
use super::{Dropped, League};
use crate::load::popularity::Popularity;
use crate::load::{Order, Plan, Target};
use crate::run::Table;
use crate::stats::float;
use crate::{Fault, Recorder, Test, Unit};

/// The test.
#[must_use]
pub fn test(league: &Rc<League>) -> Test {
    let league = Rc::clone(league);
    let title = "A site that does not fit into memory, beside a crawler";
    Test::new("crawler", title, move |recorder| run(&league, recorder))
        .scales("as few bytes of the site are read from the disk as without the crawler")
        .x("round")
        .warm_up("a third of the requests for the site, without the crawler")
        .tabled()
}

/// Numbers of files and requests, and the limit.
#[derive(Clone, Copy)]
struct Sizes {
    files: usize,
    requests: usize,
    limit: u64,
}

const SIZES: Sizes = Sizes { files: 2000, requests: 6000, limit: 384 << 20 };
const QUICK: Sizes = Sizes { files: 300, requests: 600, limit: 96 << 20 };

fn run(league: &League, recorder: &mut Recorder<'_>) -> Result<(), Fault> {
    let peers = league.chosen(&CACHING)?;
    let sizes = if league.quick { QUICK } else { SIZES };
    let site = Site::new(league.root.as_deref())?;
    site.needs_a_disk()?;
    Throttle::of_memory(sizes.limit).map_err(Fault::Skip)?;
    site.has_room_for((sizes.files + sizes.requests) as u64 * FILE_BYTES)?;
    let make = |directory: &str, count: usize| -> Result<Vec<String>, Fault> {
        let file = |i: usize| Ok(site.file(&format!("{directory}/{i}"), FILE_BYTES)?);
        (0..count).map(file).collect()
    };
    let stage = Stage {
        league,
        site: &site,
        sizes,
        files: make("site", sizes.files)?,
        crawled: make("crawled", sizes.requests)?,
    };
    recorder.note(format!(
        "a site of {} files of {}, asked for by Zipf's law (s = {ZIPF}) {} times; in turns with them, as many files of a \
         crawler, each once; {CONNECTIONS} connections; memory of the server and of the page cache that it fills: {}",
        sizes.files,
        Unit::Bytes.show(float(FILE_BYTES)),
        sizes.requests,
        Unit::Bytes.show(float(sizes.limit)),
    ));
    let mut rounds = Rounds::default();
    let mut dropped = Dropped::default();
    let total = recorder.steps() * peers.len();
    let turns = (0..recorder.steps()).flat_map(|round| {
        league.turns.of(peers.len(), round).into_iter().map(move |index| (round + 1, index))
    });
    for (nth, (round, index)) in turns.enumerate() {
        let peer = &peers[index];
        if recorder.is_stopped() {
            break;
        }
        if dropped.has(&peer.name) {
            continue;
        }
        match stage.round(recorder, peer, round) {
            Ok(Some(measured)) => {
                for (what, unit, value) in [
                    (ALONE, Unit::Percent, measured.alone),
                    (BESIDE, Unit::Percent, measured.beside),
                    (CPU, Unit::Nanoseconds, measured.cpu_per_gib),
                ] {
                    rounds.record(recorder, &peer.name, what, unit, float(round), value);
                }
            }
            Ok(None) => dropped.add_absent(recorder, &peer.name),
            Err(fault) => dropped.add(recorder, &peer.name, round, fault),
        }
        recorder.progress(float(nth + 1) / float(total));
    }
    let took_part = |peer: &&Peer| rounds.median(&peer.name, BESIDE).is_finite();
    let rows = peers.iter().filter(took_part).map(|peer| {
        let read = |what| rounds.cell(&peer.name, what, |it| format!("{:.3}", it / 100.0));
        let cpu = rounds.cell(&peer.name, CPU, |ns| Unit::Nanoseconds.show(ns));
        vec![peer.name.clone(), read(ALONE), read(BESIDE), cpu]
    });
    let rows = rows.collect();
    let head = [
        "server",
        "read from the disk per byte of the site, before the crawler comes",
        "the same beside the crawler",
        "CPU per GiB of both",
    ];
    recorder.table(Table {
        title: format!(
            "Site beside a crawler: median (least–greatest) of rounds; {}",
            league.receives()
        ),
        head: head.map(str::to_owned).to_vec(),
        rows,
    });
    league.describe_these(recorder, &peers);
    dropped.result(peers.len())
}

/// The files that the servers have.
struct Stage<'a> {
    league: &'a League,
    site: &'a Site,
    sizes: Sizes,
    files: Vec<String>,
    crawled: Vec<String>,
}

/// The figures of one server in one round.
struct Round {
    /// Percent of the bytes of the site that were read from the disk.
    alone: f64,
    beside: f64,
    cpu_per_gib: f64,
}

impl Stage<'_> {
    /// `None` if the server did not start.
    fn round(
        &self,
        recorder: &mut Recorder<'_>,
        peer: &Peer,
        round: usize,
    ) -> Result<Option<Round>, Fault> {
        let Self { league, site, sizes, files, crawled } = self;
        site.evict(files.iter().chain(crawled))?;
        let group = Throttle::of_memory(sizes.limit).map_err(Fault::Skip)?;
        let Some(mut server) = league.start(recorder, peer, site, &[], Some(&group)) else {
            return Ok(None);
        };
        // In a round all servers get the same requests.
        let mut zipf = Popularity::new(Order::Zipf(ZIPF), files.len(), round as u64);
        let mut draw = || files[zipf.draw().unwrap_or(0)].clone();
        let alone: Vec<String> = (0..sizes.requests / 2).map(|_| draw()).collect();
        let beside: Vec<String> = crawled.iter().flat_map(|file| [draw(), file.clone()]).collect();
        let alone = self.load(&mut server, &alone, 0)?;
        let crawled = crawled.len();
        let (read, cpu) = self.load(&mut server, &beside, crawled)?;
        Ok(Some(Round { alone: alone.0, beside: read, cpu_per_gib: cpu }))
    }

    /// Requests each of these files once; some of them were never in memory. Returns the percentage of the other files'
    /// bytes that were read from the disk, and the CPU time for a GiB of all.
    fn load(
        &self,
        server: &mut Server,
        names: &[String],
        crawled: usize,
    ) -> Result<(f64, f64), Fault> {
        let target = |name| Target { len: Some(FILE_BYTES), ..Target::new(format!("/{name}")) };
        let plan = Plan {
            order: Order::Once,
            connections: CONNECTIONS,
            warmup: Duration::ZERO,
            duration: LIMIT,
            timeout: LIMIT,
            ..self.league.plan(server, names.iter().map(target).collect())
        };
        let before = server.read_bytes();
        let measured = self.league.measure(server, &plan)?;
        let read = server.read_bytes() - before;
        if measured.account.answered_ever < names.len() as u64 {
            let why = format!("not all files came: {}", measured.account.failures());
            return Err(Fault::Failed(why));
        }
        let of_site = read.saturating_sub(crawled as u64 * FILE_BYTES);
        let asked = (names.len() - crawled) as u64 * FILE_BYTES;
        let gib = float(names.len() as u64 * FILE_BYTES) / float(1_u64 << 30);
        Ok((100.0 * float(of_site) / float(asked), measured.cpu.as_secs_f64() * 1e9 / gib))
    }
}

const ALONE: &str = "read for the site";
/// Percent of the bytes of the site that were read from the disk while the crawler came.
pub const BESIDE: &str = "read for the site, beside the crawler";
const CPU: &str = "CPU per GiB";

/// The bytes of each file.
const FILE_BYTES: u64 = 330 << 10;
/// The exponent of Zipf's law for requests for files of the site.
const ZIPF: f64 = 0.8;
const CONNECTIONS: usize = 8;
/// For all requests of a round.
const LIMIT: Duration = Duration::from_secs(120);
