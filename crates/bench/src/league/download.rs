//! Measures downloads from the disk at full speed: one file alone, and many at the same time. Each file is evicted
//! from the page cache before each download.

use std::fs::File;
use std::io::Read as _;
use std::rc::Rc;
use std::thread;
use std::time::Instant;

use super::peers::Peer;
use super::rounds::Rounds;
use super::site::Site;
use super::{AT_ONCE_RECEIVES, Dropped, League};
use crate::http::figures::remarks;
use crate::load::{Account, pin};
use crate::run::{Figure, Table};
use crate::stats::float;
use crate::{Fault, Recorder, Test, Unit, interrupt};

/// The test.
#[must_use]
pub fn test(league: &Rc<League>) -> Test {
    let league = Rc::clone(league);
    Test::new("download", "Speed of downloads from the disk", move |recorder| {
        run(&league, recorder)
    })
    .scales("as fast as the disk can be read, alone and 200 at once, for little CPU")
    .x("round")
    .warm_up(
        "files are read once and put out of memory again, for the sake of caches in the disk itself; \
         each server has sent 16 MiB from it before it is measured",
    )
    .tabled()
    .figure(Figure::of(Unit::BytesPerSecond).titled("one file").only(&[ONE]))
    .figure(Figure::of(Unit::BytesPerSecond).titled("200 at once").only(&[MANY]))
    .figure(Figure::of(Unit::Nanoseconds).titled("CPU per GiB").only(&[ONE_CPU, MANY_CPU]))
}

fn run(league: &League, recorder: &mut Recorder<'_>) -> Result<(), Fault> {
    let site = Site::new(league.root.as_deref())?;
    site.needs_a_disk()?;
    site.has_room_for(league.bytes.saturating_mul(2))?;
    let one = vec![site.file("one", league.bytes)?];
    let many: Vec<String> = (0..PARALLEL)
        .map(|i| site.file(&format!("many/{i}"), league.bytes / PARALLEL as u64))
        .collect::<Result<_, _>>()?;
    let mut rounds = Rounds::default();
    let mut accounts: Vec<(&str, Account)> = Vec::new();
    let mut dropped = Dropped::default();
    let kinds = [(ONE, ONE_CPU, &one), (MANY, MANY_CPU, &many)];
    site.file(FIRST, FIRST_BYTES)?;
    for (_, _, files) in kinds {
        // A virtual disk may have a cache of its own, which is now in the same state for all servers.
        site.evict(files)?;
        read(league, &site, files)?;
    }
    'rounds: for round in 0..recorder.steps() {
        if recorder.is_stopped() {
            break;
        }
        let x = float(round + 1);
        for (speed, _, files) in kinds {
            site.evict(files)?;
            let rate = match read(league, &site, files) {
                // The figures so far are still shown.
                Err(_) if recorder.is_stopped() => break 'rounds,
                rate => rate?,
            };
            rounds.record(recorder, READ, speed, Unit::BytesPerSecond, x, rate);
        }
        for (nth, index) in league.turns.of(league.peers.len(), round).into_iter().enumerate() {
            let peer = &league.peers[index];
            for (speed, cpu, files) in kinds {
                if recorder.is_stopped() {
                    break;
                }
                let name = &peer.name;
                if dropped.has(name) {
                    continue;
                }
                let done = match download(league, recorder, peer, &site, files, round == 0) {
                    Ok(Some(done)) => done,
                    Ok(None) => continue,
                    Err(fault) => {
                        dropped.add(recorder, name, round + 1, fault);
                        continue;
                    }
                };
                rounds.record(recorder, name, speed, Unit::BytesPerSecond, x, done.rate);
                rounds.record(recorder, name, cpu, Unit::Nanoseconds, x, done.cpu_per_gib);
                accounts.push((&peer.name, done.account));
            }
            let part = float(nth + 1) / float(league.peers.len());
            recorder.progress((x - 1.0 + part) / float(recorder.steps()));
        }
    }
    let megabytes = |rate: f64| format!("{:.0}", rate / 1e6);
    let milliseconds = |ns: f64| format!("{:.0}", ns / 1e6);
    let names = core::iter::once(READ).chain(league.peers.iter().map(|peer| &peer.name[..]));
    let rows = names.filter(|name| rounds.median(name, ONE).is_finite()).map(|name| {
        let of_server: Vec<_> = accounts
            .iter()
            .filter(|(server, _)| *server == name)
            .map(|(_, account)| account)
            .collect();
        vec![
            name.to_owned(),
            rounds.cell(name, ONE, megabytes),
            format!("{:.2}", rounds.median(name, ONE) / rounds.median(READ, ONE)),
            rounds.cell(name, ONE_CPU, milliseconds),
            rounds.cell(name, MANY, megabytes),
            rounds.cell(name, MANY_CPU, milliseconds),
            remarks(&of_server),
        ]
    });
    let head = [
        "server",
        "one, MB/s",
        "read(2) = 1",
        "CPU, ms per GiB",
        "200 at once, MB/s",
        "CPU, ms per GiB",
        "remarks",
    ];
    recorder.table(Table {
        title: format!(
            "{} as one file and as {PARALLEL}, from the disk: median (least–greatest); {}",
            Unit::Bytes.show(float(league.bytes)),
            AT_ONCE_RECEIVES
        ),
        head: head.map(str::to_owned).to_vec(),
        rows: rows.collect(),
    });
    if let Some(noisy) = rounds.too_noisy(&[ONE, ONE_CPU, MANY, MANY_CPU]) {
        recorder.note(noisy);
    }
    league.describe(recorder);
    dropped.result(league.peers.len())
}

struct Done {
    /// The speed in bytes per second.
    rate: f64,
    /// Nanoseconds.
    cpu_per_gib: f64,
    account: Account,
}

/// Downloads each file once, all at the same time. Bytes are compared `first`, with a separate server,
/// because the measured one must not remember pages in memory.
fn download(
    league: &League,
    recorder: &mut Recorder<'_>,
    peer: &Peer,
    site: &Site,
    files: &[String],
    first: bool,
) -> Result<Option<Done>, Fault> {
    if first {
        site.evict(files)?;
        if league.start(recorder, peer, site, files, None).is_none() {
            return Ok(None);
        }
    }
    // None of these is compared again, but a server that must know its files gets the list.
    let before = [FIRST.to_owned()];
    let known = if peer.needs_files { &[files, &before].concat() } else { &[][..] };
    let Some(mut server) = league.start(recorder, peer, site, known, None) else {
        return Ok(None);
    };
    // Servers, and gateways in front of them, learn the speed of the disk.
    site.evict(&before)?;
    let check = || server.check(site.root(), FIRST);
    league.silent.unless(&peer.name, check).map_err(Fault::Failed)?;
    site.evict(files)?;
    let plan = league.at_once(&server, files, league.bytes / files.len() as u64);
    let measured = league.measure(&mut server, &plan)?;
    let gib = float(measured.account.bytes) / float(1 << 30);
    Ok(Some(Done {
        rate: measured.account.bytes_rate(),
        cpu_per_gib: measured.cpu.as_secs_f64() * 1e9 / gib,
        account: measured.account,
    }))
}

/// The bytes per second of a loop of read(2) over the files, on the servers' CPU: the speed of the disk
/// for the simplest of programs.
fn read(league: &League, site: &Site, files: &[String]) -> Result<f64, Fault> {
    let paths: Vec<_> = files.iter().map(|file| site.root().join(file)).collect();
    let cpu = league.server_cpu;
    let reader = thread::spawn(move || {
        pin(cpu)?;
        let mut buffer = vec![0; READ_BYTES];
        let (mut bytes, start) = (0, Instant::now());
        for path in paths {
            let mut file = File::open(path)?;
            loop {
                interrupt::check()?;
                let n = file.read(&mut buffer)?;
                if n == 0 {
                    break;
                }
                bytes += n as u64;
            }
        }
        Ok::<_, std::io::Error>(float(bytes) / start.elapsed().as_secs_f64())
    });
    let joined = reader.join().map_err(|_| Fault::Failed("the reading thread panicked".into()))?;
    Ok(joined?)
}

const READ: &str = "read(2)";
pub(crate) const ONE: &str = "one file";
pub(crate) const MANY: &str = "200 at once";
pub(crate) const ONE_CPU: &str = "CPU per GiB, one file";
pub(crate) const MANY_CPU: &str = "CPU per GiB, 200 at once";

/// The file that servers send before they are measured.
const FIRST: &str = "first";
const FIRST_BYTES: u64 = 16 << 20;

/// Files downloaded at the same time.
const PARALLEL: usize = 200;

/// The bytes of each read(2).
const READ_BYTES: usize = 256 << 10;
