//! Measures the speed of hot requests at the same time as downloads from a slow disk.
//!
//! Each round starts each server afresh. It measures a hot file alone, in a closed loop and by the clock.
//! Then it measures both again during downloads of cold files, from a disk slowed down to [`Args::rate`].
//! The closed loop gives requests per second and their CPU. Latencies come from the load by the clock alone,
//! because a closed loop sends little to a server that stands still.
//!
//! [`Args::rate`]: super::Args::rate

use core::time::Duration;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::thread;
use std::time::Instant;

use hdrhistogram::Histogram;

use super::peers::Peer;
use super::rounds::Rounds;
use super::site::Site;
use super::throttle::Throttle;
use super::{FILES_PER_READER, League, Measured};
use crate::http::figures::{ONE_IN, curve};
use crate::load::{self, Account, Arrival, Plan, Target};
use crate::run::{Figure, Table};
use crate::stats::float;
use crate::unit::Better;
use crate::{Fault, Recorder, Test, Unit};

/// The test.
#[must_use]
pub fn test(league: &Rc<League>) -> Test {
    let league = Rc::clone(league);
    Test::new(
        "cold",
        "Latency of requests for a file in memory beside cold downloads",
        move |recorder| run(&league, recorder),
    )
    .scales("hot requests as fast beside cold downloads as alone")
    .x(ONE_IN)
    .warm_up("the hot file is fetched first; a second of downloads, before hot requests join them")
    .tabled()
    .better(KEPT, Better::More)
    .figure(
        Figure::of(Unit::Nanoseconds)
            .titled("with the time that requests had waited when they were cut off")
            .only(&[BESIDE])
            .log_x()
            .log_y(true)
            .lines(),
    )
}

fn run(league: &League, recorder: &mut Recorder<'_>) -> Result<(), Fault> {
    let site = Site::new(league.root.as_deref())?;
    site.needs_a_disk()?;
    // Without a slow disk, no server needs to be started.
    Throttle::new(site.root()).map_err(Fault::Skip)?;
    let hot = site.file("hot", HOT_BYTES)?;
    // No file is read twice: even if all measurements end late, the time does not suffice for all files.
    let longest = HEAD_START + 3 * league.length + 3 * load::engine::DRAIN;
    let count = FILES_PER_READER * league.readers;
    let size = (league.rate * (longest.as_secs() + 2) / count as u64).max(1 << 20);
    site.has_room_for(size.saturating_mul(count as u64))?;
    let compared = site.file_to_compare()?;
    let cold: Vec<String> =
        (0..count).map(|i| site.file(&format!("cold/{i}"), size)).collect::<Result<_, _>>()?;
    let requests = league.requests.unwrap_or(REQUESTS);
    recorder.note(format!(
        "disk slowed down to {}; {} downloads; hot file of {HOT_BYTES} bytes over {CONNECTIONS} connections; \
         by the clock {requests} requests a second",
        Unit::BytesPerSecond.show(float(league.rate)),
        league.readers,
    ));
    let mut rounds = Rounds::default();
    let mut accounts = BTreeMap::<String, Vec<Account>>::new();
    let files: Vec<String> = [hot, compared].into_iter().chain(cold).collect();
    let stage = Stage { league, site: &site, files: &files, size, requests };
    let result = league.take_turns(recorder, |recorder, peer, x| {
        let Some(round) = stage.round(recorder, peer)? else { return Ok(()) };
        let name = &peer.name;
        let (alone, beside) = (&round.alone.account, &round.beside.account);
        for (what, unit, value) in [
            (ALONE, Unit::PerSecond, alone.rate().into()),
            (ALONE_CPU, Unit::Nanoseconds, round.alone.cpu_per_request().into()),
            (ALONE_P99, Unit::Nanoseconds, round.paced_alone.percentile(0.99)),
            (MAXIMUM, Unit::PerSecond, beside.rate().into()),
            (MAXIMUM_CPU, Unit::Nanoseconds, round.beside.cpu_per_request().into()),
            (KEPT, Unit::Percent, (100.0 * beside.rate() / alone.rate()).into()),
            (P50, Unit::Nanoseconds, round.paced.percentile(0.5)),
            (P99, Unit::Nanoseconds, round.paced.percentile(0.99)),
            (MAX, Unit::Nanoseconds, round.paced.percentile(1.0)),
            (COLD, Unit::BytesPerSecond, round.cold_rate.into()),
        ] {
            rounds.record(recorder, name, what, unit, x, value);
        }
        let of_round = [round.alone.account, round.paced_alone, round.beside.account, round.paced];
        accounts.entry(name.clone()).or_default().extend(of_round);
        Ok(())
    });
    let rows = league.peers.iter().filter_map(|peer| {
        let name = &peer.name[..];
        let all = accounts.get(name)?;
        curve(recorder, name, BESIDE, &merged(all.iter().skip(3).step_by(4)));
        let whole = |rate: f64| format!("{rate:.0}");
        let nanoseconds = |ns: f64| Unit::Nanoseconds.show(ns);
        let microseconds = |ns: f64| format!("{:.2}", ns / 1e3);
        Some(vec![
            name.to_owned(),
            rounds.cell(name, ALONE, whole),
            rounds.cell(name, ALONE_CPU, microseconds),
            rounds.cell(name, ALONE_P99, nanoseconds),
            rounds.cell(name, MAXIMUM, whole),
            rounds.cell(name, MAXIMUM_CPU, microseconds),
            rounds.cell(name, KEPT, |part| format!("{part:.1} %")),
            rounds.cell(name, P50, nanoseconds),
            rounds.cell(name, P99, nanoseconds),
            rounds.cell(name, MAX, nanoseconds),
            rounds.cell(name, COLD, |rate| format!("{:.1}", rate / 1e6)),
            League::remarks(&all.iter().collect::<Vec<_>>(), &rounds, name, COLD, league.rate),
        ])
    });
    let rows: Vec<_> = rows.collect();
    let by_the_clock = |what: &str| format!("{what} at {requests}/s");
    let head = [
        "server",
        "hot alone, req/s",
        "CPU, µs/request",
        &by_the_clock("p99"),
        "beside cold, req/s",
        "CPU, µs/request",
        "kept",
        &by_the_clock("p50"),
        &by_the_clock("p99"),
        &by_the_clock("max"),
        "cold, MB/s",
        "remarks",
    ];
    recorder.table(Table {
        title: format!(
            "Hot requests beside cold downloads: median (least–greatest) of rounds. Requests per second, their CPU \
             and what is kept are of a closed loop, latencies by the clock; ≥ where requests were cut off; {}",
            league.receives()
        ),
        head: head.map(str::to_owned).to_vec(),
        rows,
    });
    if let Some(noisy) = rounds.too_noisy(&[ALONE, ALONE_CPU, MAXIMUM, MAXIMUM_CPU, KEPT, COLD]) {
        recorder.note(noisy);
    }
    league.describe(recorder);
    result
}

/// The parameters of a round.
struct Stage<'a> {
    league: &'a League,
    site: &'a Site,
    /// The hot one, the one to compare, and those to download.
    files: &'a [String],
    /// The bytes of each file to download.
    size: u64,
    /// Per second, of the measurements by the clock.
    requests: f64,
}

/// The figures of one server.
struct Round {
    alone: Measured,
    /// By the clock.
    paced_alone: Account,
    beside: Measured,
    /// By the clock, too.
    paced: Account,
    /// The bytes per second of the downloads.
    cold_rate: f64,
}

impl Stage<'_> {
    fn round(&self, recorder: &mut Recorder<'_>, peer: &Peer) -> Result<Option<Round>, Fault> {
        let (league, site) = (self.league, self.site);
        let (to_compare, cold) = self.files.split_at(2);
        let hot = &to_compare[..1];
        let throttle = Throttle::new(site.root()).map_err(Fault::Skip)?;
        site.warm(hot)?;
        site.evict(&to_compare[1..])?;
        // A server that needs the names of its files gets all of them.
        let known = if peer.needs_files { self.files } else { to_compare };
        let started = league.start(recorder, peer, site, known, Some(&throttle));
        let Some(mut server) = started else { return Ok(None) };
        let target = Target { len: Some(HOT_BYTES), ..Target::new(format!("/{}", hot[0])) };
        let plan = Plan { connections: CONNECTIONS, ..league.plan(&server, vec![target]) };
        let by_the_clock = Plan { arrival: Arrival::Poisson(self.requests), ..plan.clone() };
        let alone = league.measure(&mut server, &plan)?;
        let paced_alone = league.measure(&mut server, &by_the_clock)?.account;
        site.evict(cold)?;
        throttle.limit(Some(league.rate))?;
        let downloads = league.download(&server, cold, self.size);
        thread::sleep(HEAD_START.min(2 * league.length));
        let (bytes, start) = (downloads.bytes(), Instant::now());
        let beside = league.measure(&mut server, &plan)?;
        let paced = league.measure(&mut server, &by_the_clock)?.account;
        let cold_rate = float(downloads.bytes() - bytes) / start.elapsed().as_secs_f64();
        throttle.limit(None)?;
        league.end(recorder, &peer.name, downloads, cold.len());
        Ok(Some(Round { alone, paced_alone, beside, paced, cold_rate }))
    }
}

/// The latencies of several rounds together.
pub(crate) fn merged<'a>(accounts: impl Iterator<Item = &'a Account>) -> Histogram<u64> {
    let mut all = Account::new(load::engine::DRAIN).latency;
    all.auto(true);
    for account in accounts {
        // The histogram grows as needed.
        let _ = all.add(&account.latency);
    }
    all
}

pub(crate) const ALONE: &str = "hot alone";
const ALONE_CPU: &str = "CPU per hot request, alone";
pub(crate) const ALONE_P99: &str = "p99 by the clock, alone";
pub(crate) const MAXIMUM: &str = "hot beside cold";
const MAXIMUM_CPU: &str = "CPU per hot request, beside cold";
const BESIDE: &str = "latency of hot requests beside cold ones";
const KEPT: &str = "kept beside cold";
const P50: &str = "p50 by the clock, beside cold";
pub(crate) const P99: &str = "p99 by the clock, beside cold";
const MAX: &str = "max by the clock, beside cold";
pub(crate) const COLD: &str = "cold downloads";

/// The bytes of the file in memory.
const HOT_BYTES: u64 = 1024;

/// Connections that request it.
const CONNECTIONS: usize = 32;

/// Requests per second of the measurements by the clock.
const REQUESTS: f64 = 5000.0;

/// The time for which the downloads are alone.
const HEAD_START: Duration = Duration::from_secs(1);
