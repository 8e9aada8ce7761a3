//! Measures the CPU and the speed of downloads from the disk, and divides them by those of servers that do the same in
//! the same way. `COMPARISONS` has the servers and the allowed ratios.
//!
//! Unlike in `download`, a server is measured from its very first request on, when it has not yet learned the speed of
//! the disk. Then all files are evicted and downloaded once more. The large file has a start of its own. Before a
//! download its memory is brought into the same state each time ([`Site::renew_memory`]).
//!
//! Speeds need many rounds. TCP over loopback with BBR between 200 connections and one client is bimodal with every
//! server: about 700 or 2,100 MiB/s, with or without delayed acknowledgements. A few rounds say nothing about speed,
//! and even medians of nine vary. CPU per GiB varies far less.

use std::rc::Rc;

use super::peers::Peer;
use super::rounds::Rounds;
use super::server::Server;
use super::site::Site;
use super::{AT_ONCE_RECEIVES, Dropped, League};
use crate::run::{Figure, Table};
use crate::stats::float;
use crate::unit::{Limit, NOTHING};
use crate::{Fault, Recorder, Test, Unit};

/// The test.
#[must_use]
pub fn test(league: &Rc<League>) -> Test {
    let league = Rc::clone(league);
    let title = "CPU and speed of downloads from the disk, in relation to other servers";
    Test::new("disk", title, move |recorder| run(&league, recorder))
        .scales("less CPU than threads that sleep in each read, at the same speed")
        .x("round")
        .warm_up(
            "none: a server's first requests are measured; files are put out of memory before each download",
        )
        .tabled()
        .figure(Figure::of(Unit::Nanoseconds).titled("CPU per GiB"))
        .figure(Figure::of(Unit::BytesPerSecond).titled("speed"))
}

/// A kind of download.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// [`PARALLEL`] files at the same time, from a server that has just started.
    First,
    /// The same files once more.
    Again,
    /// A single large file.
    One,
}

impl Kind {
    /// In the order in which a server has them.
    const ALL: [Self; 3] = [Self::First, Self::Again, Self::One];

    /// The kinds of downloads after each start of a server. After the start for the large file no server has yet
    /// learned the speed of the disk.
    const STARTS: [&[Self]; 2] = [&[Self::First, Self::Again], &[Self::One]];

    const fn name(self) -> &'static str {
        match self {
            Self::First => "200 at once, first",
            Self::Again => "200 at once, again",
            Self::One => "one file",
        }
    }

    /// The name of the series of CPU per GiB.
    fn cpu(self) -> String {
        format!("CPU per GiB, {}", self.name())
    }
}

/// Two servers and the allowed ratio.
#[derive(Clone, Copy, Debug)]
struct Comparison {
    kind: Kind,
    ours: &'static str,
    theirs: &'static str,
    /// The maximum CPU of ours, in relation to theirs.
    cpu_max: f64,
    /// The minimum speed of ours, in relation to theirs; `None` if the other server reads in another way.
    speed_min: Option<f64>,
}

#[rustfmt::skip]
const COMPARISONS: [Comparison; 7] = [
    Comparison { kind: Kind::First, ours: "samum", theirs: "nginx-aio", cpu_max: 0.8, speed_min: Some(0.97) },
    Comparison { kind: Kind::Again, ours: "samum", theirs: "nginx-aio", cpu_max: 0.8, speed_min: Some(0.97) },
    Comparison { kind: Kind::First, ours: "samum-never", theirs: "nginx-directio", cpu_max: 0.8, speed_min: Some(0.97) },
    Comparison { kind: Kind::Again, ours: "samum-never", theirs: "nginx-directio", cpu_max: 0.8, speed_min: Some(0.97) },
    Comparison { kind: Kind::Again, ours: "samum-never", theirs: "samum", cpu_max: 1.2, speed_min: None },
    Comparison { kind: Kind::One, ours: "samum", theirs: "lighttpd", cpu_max: 1.0, speed_min: Some(0.97) },
    Comparison { kind: Kind::One, ours: "samum", theirs: "nginx", cpu_max: 1.0, speed_min: Some(0.97) },
];

/// The servers of [`COMPARISONS`] that take part, each with its kinds of downloads.
fn peers(league: &League) -> Result<Vec<(Peer, Vec<Kind>)>, Fault> {
    let mut names: Vec<&str> = COMPARISONS.iter().flat_map(|it| [it.ours, it.theirs]).collect();
    names.sort_unstable();
    names.dedup();
    if let Some(only) = &league.only {
        names.retain(|name| only.iter().any(|it| it == name));
    }
    let kinds = |name: &str| {
        let of_server = |kind: &Kind| {
            let is_in = |it: &Comparison| it.kind == *kind && [it.ours, it.theirs].contains(&name);
            COMPARISONS.iter().any(is_in)
        };
        Kind::ALL.into_iter().filter(of_server).collect()
    };
    let peer = |name: &str| Ok((Peer::named(name).map_err(Fault::Failed)?, kinds(name)));
    names.into_iter().map(peer).collect()
}

fn run(league: &League, recorder: &mut Recorder<'_>) -> Result<(), Fault> {
    let peers = peers(league)?;
    if peers.is_empty() {
        return Err(Fault::Skip("none of its servers was chosen".into()));
    }
    let site = Site::new(league.root.as_deref())?;
    site.needs_a_disk()?;
    site.has_room_for(league.bytes.saturating_mul(2))?;
    let one = vec![site.file("one", league.bytes)?];
    let many: Vec<String> = (0..PARALLEL)
        .map(|i| site.file(&format!("many/{i}"), league.bytes / PARALLEL as u64))
        .collect::<Result<_, _>>()?;
    let stage = Stage { league, site: &site, one, many };
    let mut rounds = Rounds::default();
    let mut dropped = Dropped::default();
    let total = recorder.steps() * peers.len();
    let turns = (0..recorder.steps()).flat_map(|round| league.turns.of(peers.len(), round));
    for (nth, index) in turns.enumerate() {
        if recorder.is_stopped() {
            break;
        }
        let ((peer, kinds), round) = (&peers[index], nth / peers.len() + 1);
        if !dropped.has(&peer.name) {
            let turn = stage.turn(recorder, peer, kinds, float(round), &mut rounds);
            if let Err(fault) = turn {
                dropped.add(recorder, &peer.name, round, fault);
            }
        }
        recorder.progress(float(nth + 1) / float(total));
    }
    recorder.table(Table {
        title: format!(
            "{} from the disk, as one file or as {PARALLEL}: ratios of medians, and medians (least–greatest); {}",
            Unit::Bytes.show(float(league.bytes)),
            AT_ONCE_RECEIVES
        ),
        head: ["what", "compared", "ratio", "bar", "ours", "theirs"].map(str::to_owned).to_vec(),
        rows: COMPARISONS.iter().flat_map(|it| rows(it, &rounds)).collect(),
    });
    league.describe_these(recorder, peers.iter().map(|(peer, _)| peer));
    dropped.result(peers.len())
}

/// The aims of this test: the name of a figure, the server that it is of, the server whose figure divides it, and the
/// limit. CPU has a limit from above, speed from below.
pub(crate) fn aims() -> Vec<(String, &'static str, &'static str, Limit)> {
    COMPARISONS
        .iter()
        .flat_map(|it| {
            let cpu = (it.kind.cpu(), it.ours, it.theirs, Limit::AtMost(it.cpu_max));
            let speed = it
                .speed_min
                .map(|min| (it.kind.name().to_owned(), it.ours, it.theirs, Limit::AtLeast(min)));
            core::iter::once(cpu).chain(speed)
        })
        .collect()
}

/// The rows of a comparison, if both servers have figures.
fn rows(it: &Comparison, rounds: &Rounds) -> Vec<Vec<String>> {
    let row = |what: &str, bar: String, show: fn(f64) -> String| {
        let ratio = rounds.median(it.ours, what) / rounds.median(it.theirs, what);
        let cells = [it.ours, it.theirs].map(|name| rounds.cell(name, what, show));
        let compared = format!("{} / {}", it.ours, it.theirs);
        let mut row = vec![what.to_owned(), compared, format!("{ratio:.2}"), bar];
        row.extend(cells);
        ratio.is_finite().then_some(row)
    };
    let milliseconds: fn(f64) -> String = |ns| format!("{:.0} ms", ns / 1e6);
    let megabytes: fn(f64) -> String = |rate| format!("{:.0} MB/s", rate / 1e6);
    let bar = it.speed_min.map_or_else(|| NOTHING.to_owned(), |bar| format!("≥ {bar:.2}"));
    let cpu = row(&it.kind.cpu(), format!("≤ {:.2}", it.cpu_max), milliseconds);
    [cpu, row(it.kind.name(), bar, megabytes)].into_iter().flatten().collect()
}

struct Stage<'a> {
    league: &'a League,
    site: &'a Site,
    one: Vec<String>,
    many: Vec<String>,
}

impl Stage<'_> {
    /// Starts a server for each of [`Kind::STARTS`], and downloads from it.
    fn turn(
        &self,
        recorder: &mut Recorder<'_>,
        peer: &Peer,
        kinds: &[Kind],
        x: f64,
        rounds: &mut Rounds,
    ) -> Result<(), Fault> {
        for start in Kind::STARTS {
            let mut kinds = start.iter().filter(|kind| kinds.contains(kind)).peekable();
            if kinds.peek().is_none() {
                continue;
            }
            // No file is compared before: the server's first requests are measured.
            self.site.evict(self.many.iter().chain(&self.one))?;
            let Some(mut server) = self.league.start(recorder, peer, self.site, &[], None) else {
                return Ok(());
            };
            for kind in kinds {
                let (rate, cpu) = self.download(&mut server, *kind)?;
                rounds.record(recorder, &peer.name, kind.name(), Unit::BytesPerSecond, x, rate);
                rounds.record(recorder, &peer.name, &kind.cpu(), Unit::Nanoseconds, x, cpu);
            }
        }
        Ok(())
    }

    /// Returns the bytes per second, and the nanoseconds of CPU per GiB.
    fn download(&self, server: &mut Server, kind: Kind) -> Result<(f64, f64), Fault> {
        let files = if kind == Kind::One { &self.one } else { &self.many };
        self.site.evict(files)?;
        Site::renew_memory(self.league.bytes + self.league.bytes / 4)?;
        let len = self.league.bytes / files.len() as u64;
        let measured = self.league.measure(server, &self.league.at_once(server, files, len))?;
        let account = &measured.account;
        if account.answered_ever < files.len() as u64 || account.failed_ever() > 0 {
            let failed = account.failures();
            return Err(Fault::Failed(format!("{} was not downloaded: {failed}", kind.name())));
        }
        let gib = float(account.bytes) / float(1 << 30);
        Ok((account.bytes_rate(), measured.cpu.as_secs_f64() * 1e9 / gib))
    }
}

/// Files downloaded at the same time.
const PARALLEL: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_of_medians_and_stand_beside_their_bars() {
        let mut rounds = Rounds::default();
        let it = COMPARISONS[0];
        for (ours, theirs) in [(50e6, 100e6), (60e6, 120e6), (80e6, 110e6)] {
            rounds.add(it.ours, &it.kind.cpu(), ours);
            rounds.add(it.theirs, &it.kind.cpu(), theirs);
        }
        let [row] = &rows(&it, &rounds)[..] else { panic!("no speeds are known") };
        assert_eq!(row[1..4], ["samum / nginx-aio", "0.55", "≤ 0.80"]);
        assert_eq!(row[4..], ["60 ms (50 ms–80 ms)", "110 ms (100 ms–120 ms)"].map(str::to_owned));
    }

    #[test]
    fn all_servers_that_are_compared_are_known() {
        for it in &COMPARISONS {
            assert!(Peer::named(it.ours).is_ok() && Peer::named(it.theirs).is_ok(), "{it:?}");
        }
    }
}
