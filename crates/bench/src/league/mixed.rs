//! Measures the requests of visitors of a site with hot and cold files, while others download.
//!
//! Thousands of small files are requested by the clock and by Zipf's law. The files that get 95 of 100
//! requests are in memory when a round begins. The others are on a disk that is slowed down, and large
//! files are downloaded from it at the same time. No file is read twice, so cold files stay cold until
//! their request.

use core::time::Duration;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Instant;

use super::cold::merged;
use super::peers::Peer;
use super::rounds::Rounds;
use super::site::Site;
use super::throttle::Throttle;
use super::{FILES_PER_READER, League};
use crate::http::figures::{ONE_IN, curve};
use crate::load::{Account, Arrival, Order, Plan, Target};
use crate::run::{Figure, Table};
use crate::stats::float;
use crate::{Fault, Recorder, Test, Unit};

/// The test.
#[must_use]
pub fn test(league: &Rc<League>) -> Test {
    let league = Rc::clone(league);
    Test::new("mixed", "Latency of a site whose files are partly in memory", move |recorder| {
        run(&league, recorder)
    })
    .scales("only requests for cold files wait")
    .x(ONE_IN)
    .warm_up(
        "files that get 95 % of the requests are read; half a second of each measurement, at most",
    )
    .tabled()
    .figure(
        Figure::of(Unit::Nanoseconds)
            .titled("small files, with the time that requests had waited when they were cut off")
            .only(&[SMALL])
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
    let rate = RATE_TIMES * league.rate;
    let length = LENGTHS * league.length;
    let count = if league.quick { FILES / 10 } else { FILES };
    let small: Vec<(String, u64)> = (0..count)
        .map(|i| {
            let len = small_len(i);
            Ok((site.file(&format!("small/{}/{i}", i % 64), len)?, len))
        })
        .collect::<Result<_, Fault>>()?;
    // No file is read twice within a round.
    let files = FILES_PER_READER * league.readers;
    let size = rate * (2 * length.as_secs() + 5) / files as u64;
    site.has_room_for(size.saturating_mul(files as u64))?;
    let compared = site.file_to_compare()?;
    let large: Vec<String> =
        (0..files).map(|i| site.file(&format!("large/{i}"), size)).collect::<Result<_, _>>()?;
    let stage = Stage {
        league,
        site: &site,
        rate,
        requests: league.requests.unwrap_or(REQUESTS),
        length,
        small,
        compared,
        large,
        size,
    };
    recorder.note(format!(
        "{count} small files, 1 to 64 KiB, asked for {} times a second by Zipf's law (s = {ZIPF}); {:.0} % of \
         requests are for files in memory when a round begins; {} downloads at once of {files} files of {} from a disk \
         slowed down to {}",
        stage.requests,
        100.0 * HOT,
        league.readers,
        Unit::Bytes.show(float(size)),
        Unit::BytesPerSecond.show(float(rate)),
    ));
    let mut rounds = Rounds::default();
    let mut accounts = BTreeMap::<String, Vec<Account>>::new();
    let result = league.take_turns(recorder, |recorder, peer, x| {
        let Some(round) = stage.round(recorder, peer)? else { return Ok(()) };
        let name = &peer.name;
        for (what, unit, value) in [
            (GOT, Unit::PerSecond, round.account.rate()),
            (LARGE, Unit::BytesPerSecond, round.large_rate),
            (CPU, Unit::Nanoseconds, round.cpu_per_gb),
        ] {
            rounds.record(recorder, name, what, unit, x, value);
        }
        for (what, q) in PERCENTILES {
            let value = round.account.percentile(q);
            rounds.record(recorder, name, what, Unit::Nanoseconds, x, value);
        }
        accounts.entry(name.clone()).or_default().push(round.account);
        Ok(())
    });
    let rows = league.peers.iter().filter_map(|peer| {
        let name = &peer.name[..];
        let all = accounts.get(name)?;
        curve(recorder, name, SMALL, &merged(all.iter()));
        let latencies =
            PERCENTILES.map(|(what, _)| rounds.cell(name, what, |ns| Unit::Nanoseconds.show(ns)));
        let mut row = vec![name.to_owned()];
        row.push(rounds.cell(name, GOT, |rate| format!("{rate:.0}")));
        row.extend(latencies);
        row.extend([
            rounds.cell(name, LARGE, |rate| format!("{:.1}", rate / 1e6)),
            rounds.cell(name, CPU, |ns| format!("{:.2}", ns / 1e9)),
            League::remarks(&all.iter().collect::<Vec<_>>(), &rounds, name, LARGE, rate),
        ]);
        Some(row)
    });
    let rows = rows.collect();
    let head = [
        "server",
        "small files/s",
        "p50",
        "p90",
        "p99",
        "p99.9",
        "max",
        "large, MB/s",
        "CPU, s per GB",
        "remarks",
    ];
    recorder.table(Table {
        title: format!(
            "Small files, asked for by the clock, beside large ones: median (least–greatest) of rounds; ≥ where \
             requests were cut off; {}",
            league.receives()
        ),
        head: head.map(str::to_owned).to_vec(),
        rows,
    });
    if let Some(noisy) = rounds.too_noisy(&[GOT, LARGE, CPU]) {
        recorder.note(noisy);
    }
    league.describe(recorder);
    result
}

/// The parameters of a round.
struct Stage<'a> {
    league: &'a League,
    site: &'a Site,
    /// The rate of the disk in bytes per second.
    rate: u64,
    /// Per second, for small files.
    requests: f64,
    length: Duration,
    /// Most popular first.
    small: Vec<(String, u64)>,
    /// Not downloaded while it is measured.
    compared: String,
    large: Vec<String>,
    /// The bytes of each large file.
    size: u64,
}

/// The figures of one server.
struct Round {
    account: Account,
    /// The bytes per second of the large files.
    large_rate: f64,
    /// Nanoseconds for 10^9 bytes, small and large.
    cpu_per_gb: f64,
}

impl Stage<'_> {
    fn round(&self, recorder: &mut Recorder<'_>, peer: &Peer) -> Result<Option<Round>, Fault> {
        let (league, site) = (self.league, self.site);
        if peer.needs_files {
            recorder.skip(&peer.name, "knows few files, and holds them in its own memory");
            return Ok(None);
        }
        let names = || self.small.iter().map(|(name, _)| name);
        site.evict(names().chain(&self.large).chain([&self.compared]))?;
        site.warm(names().take(hot_files(self.small.len(), HOT)))?;
        let throttle = Throttle::new(site.root()).map_err(Fault::Skip)?;
        let first = [self.small[0].0.clone(), self.compared.clone()];
        let started = league.start(recorder, peer, site, &first, Some(&throttle));
        let Some(mut server) = started else { return Ok(None) };
        throttle.limit(Some(self.rate))?;
        let before = server.cpu();
        let downloads = league.download(&server, &self.large, self.size);
        let start = Instant::now();
        let small = self.small.iter();
        let targets = small
            .map(|(name, len)| Target { len: Some(*len), ..Target::new(format!("/{name}")) })
            .collect();
        let plan = Plan {
            order: Order::Zipf(ZIPF),
            arrival: Arrival::Poisson(self.requests),
            connections: CONNECTIONS,
            duration: self.length,
            ..league.plan(&server, targets)
        };
        let account = league.measure(&mut server, &plan)?.account;
        let large_bytes = downloads.bytes();
        let large_rate = float(large_bytes) / start.elapsed().as_secs_f64();
        let cpu = server.cpu() - before;
        throttle.limit(None)?;
        league.end(recorder, &peer.name, downloads, self.large.len());
        // For small files the window's rate stands for the whole time.
        let bytes = float(large_bytes) + account.bytes_rate() * start.elapsed().as_secs_f64();
        let cpu_per_gb = cpu.as_secs_f64() * 1e9 / (bytes / 1e9);
        Ok(Some(Round { account, large_rate, cpu_per_gb }))
    }
}

/// The bytes of the i-th file: 1 to 64 KiB, half of all below 8 KiB, independent of its popularity.
fn small_len(i: usize) -> u64 {
    let mut random = fastrand::Rng::with_seed(i as u64);
    let kib = 2_f64.powf(6.0 * random.f64());
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "1 to 64 KiB")]
    let bytes = (kib * 1024.0) as u64;
    bytes
}

/// Of this many files, the number of the most popular ones that together get a part of all requests.
pub(super) fn hot_files(files: usize, part: f64) -> usize {
    #[allow(clippy::cast_precision_loss, reason = "files are few")]
    let weight = |k: usize| (k as f64).powf(-ZIPF);
    let total: f64 = (1..=files).map(weight).sum();
    let mut sum = 0.0;
    (1..=files)
        .take_while(|&k| {
            sum += weight(k);
            sum < part * total
        })
        .count()
}

const SMALL: &str = "latency of small files";
pub(crate) const GOT: &str = "small files per second";
pub(crate) const P99: &str = "p99 of small files";
/// The percentiles of small files, by the clock.
const PERCENTILES: [(&str, f64); 5] = [
    ("p50 of small files", 0.5),
    ("p90 of small files", 0.9),
    (P99, 0.99),
    ("p99.9 of small files", 0.999),
    ("max of small files", 1.0),
];
pub(crate) const LARGE: &str = "large files";
const CPU: &str = "CPU per GB";

/// Small files; a tenth in a quick run.
const FILES: usize = 5000;

/// The exponent of requests for small files: Breslau and others (1999) found 0.64 to 0.83.
pub(super) const ZIPF: f64 = 0.8;

/// Part of the requests that are for files in memory when a round begins.
const HOT: f64 = 0.95;

/// For small files, per second.
const REQUESTS: f64 = 1000.0;

/// The connections for small files: as many as requests that may wait at the same time. So no request
/// waits for a connection instead of the server.
const CONNECTIONS: usize = 2000;

/// The factor by which the disk is faster than in `cold`, because it has more to do.
const RATE_TIMES: u64 = 4;

/// The measurement takes [`Args::secs`](super::Args::secs) this number of times, so that rare events
/// happen.
const LENGTHS: u32 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn popular_files_are_hot() {
        let hot = hot_files(FILES, HOT);
        assert!((3500..4500).contains(&hot), "{hot}");
        assert!(hot_files(1, HOT) <= 1);
        let lens: Vec<u64> = (0..FILES).map(small_len).collect();
        assert!(lens.iter().all(|len| (1024..=65_536).contains(len)));
        let below = lens.iter().filter(|&&len| len < 8192).count();
        assert!((FILES * 2 / 5..FILES * 3 / 5).contains(&below), "{below}");
    }
}
