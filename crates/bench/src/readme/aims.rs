//! The table of aims: the goals of the project, each with the measurement of a run. Pure.

use core::fmt::Write as _;
use std::collections::BTreeSet;

use super::comparison::at_size;
use super::notes::copies;
use super::show::{Show, hundredths, mebibytes, megabytes, precise_microseconds, tenths, whole};
use super::tables::rounds_by_size;
use super::{Kept, find};
use crate::league::peers::{CROWDED, DNS, METERED, STALLED};
use crate::league::proxy::{download, requests, slow, stalled};
use crate::league::rounds::{Rounds, in_windows};
use crate::league::{
    asleep, cold, crawler, disk, dns, films, hung, mixed, wire, wire_cold, wire_idle,
};
use crate::run::Table;
use crate::spread::are_ranked;
use crate::summary;
use crate::unit::Limit::{self, AtLeast, AtMost};

/// A goal of the project.
struct Aim {
    /// The description in the table.
    what: String,
    test: &'static str,
    /// The server, and its figure.
    of: (&'static str, String),
    /// The server and the figure that it is divided by; none, if the figure counts itself.
    to: Option<(&'static str, String)>,
    limit: Limit,
    show: Show,
}

impl Aim {
    fn ratio(
        what: impl Into<String>,
        test: &'static str,
        of: (&'static str, impl Into<String>),
        to: (&'static str, impl Into<String>),
        limit: Limit,
    ) -> Self {
        let (of, to) = ((of.0, of.1.into()), Some((to.0, to.1.into())));
        Self { what: what.into(), test, of, to, limit, show: hundredths }
    }

    fn figure(
        what: impl Into<String>,
        test: &'static str,
        of: (&'static str, impl Into<String>),
        limit: Limit,
        show: Show,
    ) -> Self {
        Self { what: what.into(), test, of: (of.0, of.1.into()), to: None, limit, show }
    }

    /// The row of the table; none if no run has measured it.
    fn row(&self, runs: &[Kept<'_>]) -> Option<Vec<String>> {
        let (kept, _, mut rounds) = find(runs, self.test)?;
        if BY_SIZE.contains(&self.test) {
            let figures = [wire::CPU, wire::RATIO, wire::USER, download::SPEED, download::CPU];
            rounds = rounds_by_size(kept.run, self.test, &figures);
        }
        let mut row = self.cells(&rounds)?.to_vec();
        let name = kept.dir.rsplit('/').next().unwrap_or_default();
        row.push(format!("[`{name}`]({}/summary.md)", kept.dir));
        Some(row)
    }

    /// Four cells: the description, the servers, the figure and the limit.
    fn cells(&self, rounds: &Rounds) -> Option<[String; 4]> {
        let median = |(server, what): &(&str, String)| {
            let median = rounds.median(server, what);
            median.is_finite().then_some(median)
        };
        let measured = match &self.to {
            Some(to) => median(&self.of)? / median(to)?,
            None => median(&self.of)?,
        };
        let (sign, limit, is_met) = match self.limit {
            AtMost(limit) => ("≤", limit, measured <= limit),
            AtLeast(limit) => ("≥", limit, measured >= limit),
        };
        let server = self.of.0;
        let compared = match &self.to {
            Some((other, _)) if *other != server => format!("{server} / {other}"),
            _ => server.to_owned(),
        };
        let measured = format!("{}{}", self.mark(rounds), (self.show)(measured));
        let missed = if is_met { "" } else { ", missed" };
        let enough = format!("{sign} {}{missed}", (self.show)(limit));
        Some([self.what.clone(), compared, measured, enough])
    }

    /// In front of ratios of what rounds cannot rank.
    fn mark(&self, rounds: &Rounds) -> &'static str {
        let Some(to) = &self.to else { return "" };
        let of = |(server, what): &(&str, String)| rounds.of(server, what);
        let ranked = are_ranked(of(&self.of), of(to));
        if ranked { "" } else { "≈ " }
    }
}

/// The tests whose figures are by size of the file.
const BY_SIZE: [&str; 3] = [wire::KEPT, wire::CLOSED, "proxied"];

/// The table of all aims that a run has measured; empty without any.
pub(super) fn table(runs: &[Kept<'_>]) -> String {
    let rows: Vec<_> = aims().iter().filter_map(|aim| aim.row(runs)).collect();
    let mut text = String::new();
    if rows.is_empty() {
        return text;
    }
    let head = ["what", "compared", "measured", "aim", "run"].map(str::to_owned).to_vec();
    let table = summary::table(&Table { title: String::new(), head, rows });
    let about = "Ratios are of medians, in one run. ≈: not ranked, because there are fewer than ten rounds, \
                 or a permutation test does not tell them from chance.";
    let _ = write!(text, "\n**Aims.** {about}{}\n\n{table}", clients(runs));
    text
}

/// Says what the clients of these runs do with the bodies that they receive, if a figure shows it.
fn clients(runs: &[Kept<'_>]) -> String {
    let aims = aims();
    let measured = aims.iter().filter(|aim| aim.row(runs).is_some());
    let of_runs = measured.filter_map(|aim| {
        let (kept, _, _) = find(runs, aim.test)?;
        Some((kept.dir.rsplit('/').next().unwrap_or_default(), copies(kept.run, aim.test)?))
    });
    let (mut copying, mut discards) = (BTreeSet::new(), false);
    for (run, copies) in of_runs {
        if copies {
            copying.insert(format!("`{run}`"));
        } else {
            discards = true;
        }
    }
    let copying: Vec<String> = copying.into_iter().collect();
    match (discards, copying.is_empty()) {
        (false, true) => String::new(),
        (false, false) => {
            " The load generator copies the bytes that it receives, so it uses more CPU time than one that discards them."
                .to_owned()
        }
        (true, true) => {
            " The load generator discards the bytes that it receives, in the kernel.".to_owned()
        }
        (true, false) => format!(
            " The load generator discards the bytes that it receives, in the kernel; in the runs {} it copies them.",
            copying.join(", ")
        ),
    }
}

fn aims() -> Vec<Aim> {
    disk_aims().into_iter().chain(gateway_aims()).chain(stack_aims()).collect()
}

/// The aims for downloads from disks, and for their effect on other requests.
fn disk_aims() -> Vec<Aim> {
    let milliseconds: Show = |ns| format!("{:.1}", ns / 1e6);
    let p99 = |kind| in_windows(hung::HOT_P99, kind);
    let p50 = |kind| in_windows(hung::COLD_P50, kind);
    let mut aims: Vec<Aim> = disk::aims()
        .into_iter()
        .map(|(figure, ours, theirs, limit)| {
            let what = match limit {
                AtMost(_) => figure.clone(),
                AtLeast(_) => format!("speed, {figure}"),
            };
            Aim::ratio(what, "disk", (ours, figure.clone()), (theirs, figure), limit)
        })
        .collect();
    aims.extend([
        Aim::figure(
            "200 streams from a slow disk: sleep of the worker for the disk, ms",
            "asleep",
            (METERED, asleep::DELAY),
            AtMost(0.0),
            milliseconds,
        ),
        Aim::figure(
            "its longest turn, ms",
            "asleep",
            (METERED, asleep::TURN),
            AtMost(5e6),
            milliseconds,
        ),
        Aim::figure(
            "its helper threads asleep",
            "asleep",
            (METERED, asleep::OTHERS),
            AtMost(0.0),
            tenths,
        ),
        Aim::figure(
            "threads of io_uring for it asleep",
            "asleep",
            (METERED, asleep::KERNEL),
            AtMost(0.0),
            tenths,
        ),
        Aim::figure(
            "small files beside eight downloads, 64 MiB/s: p99, ms",
            "mixed",
            ("samum", mixed::P99),
            AtMost(60e6),
            milliseconds,
        ),
        Aim::ratio(
            "the same",
            "mixed",
            ("samum", mixed::P99),
            ("nginx-preload", mixed::P99),
            AtMost(1.0),
        ),
        Aim::ratio(
            "hot files beside downloads of a slow disk: rate",
            "cold",
            ("samum", cold::MAXIMUM),
            ("samum", cold::ALONE),
            AtLeast(0.95),
        ),
        Aim::ratio(
            "the same: p99",
            "cold",
            ("samum", cold::P99),
            ("samum", cold::ALONE_P99),
            AtMost(1.5),
        ),
        Aim::figure(
            "these downloads, of 16 MiB/s: MB/s",
            "cold",
            ("samum", cold::COLD),
            AtLeast(0.98 * 16.0 * 1_048_576.0),
            megabytes,
        ),
        Aim::ratio(
            "hot files beside 10,000 requests for a disk that hangs: p99",
            "hung",
            ("samum", p99(hung::BESIDE)),
            ("samum", p99(hung::ALONE)),
            AtMost(1.5),
        ),
        Aim::ratio(
            "cold files of another disk beside them: p50",
            "hung",
            ("samum", p50(hung::BESIDE)),
            ("samum", p50(hung::ALONE)),
            AtMost(1.5),
        ),
    ]);
    aims.extend(policy_aims());
    aims
}

/// Each policy of the cache and of the readahead is compared with nginx, or with samum without that policy. In the
/// second case it has to save a tenth.
fn policy_aims() -> Vec<Aim> {
    let [named, unnamed] = films::NAMED;
    let crawler = |what, theirs, limit| {
        let (of, to) = (("samum", crawler::BESIDE), (theirs, crawler::BESIDE));
        Aim::ratio(what, "crawler", of, to, AtMost(limit))
    };
    let film =
        |what, figure| Aim::ratio(what, "films", (named, figure), (unnamed, figure), AtMost(0.9));
    vec![
        crawler("a site beside a crawler, in 384 MiB: bytes read from the disk", "nginx", 1.0),
        crawler("the same, against keeping all that is read", "samum-always", 0.9),
        film("two players that seek and leave: bytes read for each that is played", films::READ),
        film("time to the first picture", films::FIRST),
    ]
}

/// The aims for gateways.
fn gateway_aims() -> Vec<Aim> {
    let of_4_gib = |figure: &str| at_size(figure, "4 GiB");
    let proxied = |what: &str, figure, ours, theirs, limit| {
        Aim::ratio(what, "proxied", (ours, of_4_gib(figure)), (theirs, of_4_gib(figure)), limit)
    };
    let small = |theirs| {
        let (of, to) = (("samum-proxy", requests::CPU), (theirs, requests::CPU));
        Aim::ratio("1 KiB through a proxy: CPU", "proxied-small", of, to, AtMost(0.8))
    };
    let stalled = |what: &str, figure: &str, limit| {
        let series = |kind| (STALLED[0], in_windows(figure, kind));
        Aim::ratio(what, "stalled", series(stalled::BESIDE), series(stalled::ALONE), limit)
    };
    vec![
        proxied(
            "4 GiB through a proxy: speed (one of two is enough)",
            download::SPEED,
            "samum-proxy",
            "nginx-proxy",
            AtLeast(1.25),
        ),
        proxied(
            "the same (the other)",
            download::SPEED,
            "samum-proxy",
            "haproxy",
            AtLeast(1.0 / 1.05),
        ),
        proxied("CPU", download::CPU, "samum-proxy", "nginx-proxy", AtMost(0.8)),
        proxied("CPU", download::CPU, "samum-proxy", "haproxy", AtMost(1.0)),
        proxied(
            "CPU, through a buffer of 1 MiB",
            download::CPU,
            "samum-proxy-buffer",
            "nginx-proxy",
            AtMost(1.0),
        ),
        Aim::figure(
            "100 slow clients, buffers of 1 MiB: memory over idle, MiB",
            "proxied-slow",
            ("samum-proxy", slow::MEMORY),
            AtMost(105.0 * 1_048_576.0),
            mebibytes,
        ),
        small("nginx-proxy"),
        small("haproxy"),
        Aim::ratio(
            "64 KiB of PHP: requests/s",
            "fastcgi",
            ("samum-fastcgi", requests::RATE),
            ("nginx-fastcgi", requests::RATE),
            AtLeast(1.0),
        ),
        Aim::ratio(
            "64 KiB of PHP: CPU",
            "fastcgi",
            ("samum-fastcgi", requests::CPU),
            ("nginx-fastcgi", requests::CPU),
            AtMost(0.8),
        ),
        Aim::ratio(
            "a page of 1 MiB with 20 parts: CPU",
            "includes",
            ("samum-includes", requests::CPU),
            ("nginx-includes", requests::CPU),
            AtMost(0.7),
        ),
        stalled(
            "hot files beside a server that does not go on: rate",
            stalled::RATE,
            AtLeast(0.95),
        ),
        stalled("the same: p99", stalled::P99, AtMost(1.5)),
    ]
}

/// The stack of samum's own.
fn stack_aims() -> Vec<Aim> {
    let own = "samum-own";
    let of_floor = |what: &str, test, size: &str, limit| {
        Aim::figure(what, test, (own, at_size(wire::RATIO, size)), AtMost(limit), hundredths)
    };
    vec![
        of_floor("128 B over a link, floor = 1: CPU of the core", wire::KEPT, "128 B", 0.6),
        of_floor("8 KiB", wire::KEPT, "8 KiB", 0.75),
        of_floor("64 KiB", wire::KEPT, "64 KiB", 1.1),
        of_floor("128 B, a connection for each", wire::CLOSED, "128 B", 0.7),
        Aim::figure(
            "128 B: own user time, µs",
            wire::KEPT,
            (own, at_size(wire::USER, "128 B")),
            AtMost(500.0),
            precise_microseconds,
        ),
        Aim::ratio(
            "8 KiB: CPU of the core",
            wire::KEPT,
            (own, at_size(wire::CPU, "8 KiB")),
            ("nginx", at_size(wire::CPU, "8 KiB")),
            AtMost(1.0 / 3.0),
        ),
        Aim::figure(
            "a million idle connections: memory of each, when all have asked, B",
            "wire-idle",
            (CROWDED, wire_idle::EACH_ASKED),
            AtMost(300.0),
            whole,
        ),
        Aim::ratio(
            "a new client beside them: p50",
            "wire-idle",
            (CROWDED, wire_idle::BESIDE),
            (CROWDED, wire_idle::ALONE),
            AtMost(1.5),
        ),
        Aim::ratio(
            "an answer of DNS: CPU of the core",
            "dns",
            (DNS[1], dns::CPU),
            (DNS[0], dns::CPU),
            AtMost(0.5),
        ),
        Aim::ratio(
            "200 cold files over a link: CPU of the core",
            "wire-cold",
            (own, wire_cold::CPU),
            ("samum", wire_cold::CPU),
            AtMost(1.6),
        ),
        Aim::figure(
            "the same: memory beyond idle, MiB",
            "wire-cold",
            (own, wire_cold::GROWTH),
            AtMost(64.0 * 1_048_576.0),
            mebibytes,
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rounds() -> Rounds {
        let mut rounds = Rounds::default();
        for (server, values) in [("a", [1.0, 2.0, 3.0]), ("b", [8.0, 10.0, 12.0])] {
            for value in values.into_iter().cycle().take(12) {
                rounds.add(server, "CPU", value);
            }
        }
        rounds
    }

    #[test]
    fn what_is_missed_or_not_ranked_is_marked() {
        let cells = |of, to, limit| {
            Aim::ratio("it", "test", (of, "CPU"), (to, "CPU"), limit).cells(&rounds())
        };
        let texts = |measured: &str, enough: &str, compared: &str| {
            Some(["it", compared, measured, enough].map(str::to_owned))
        };
        assert_eq!(cells("a", "b", AtMost(0.2)), texts("0.20", "≤ 0.20", "a / b"));
        assert_eq!(cells("a", "b", AtMost(0.19)), texts("0.20", "≤ 0.19, missed", "a / b"));
        assert_eq!(cells("b", "a", AtLeast(5.1)), texts("5.00", "≥ 5.10, missed", "b / a"));
        assert_eq!(cells("a", "a", AtLeast(1.0)), texts("≈ 1.00", "≥ 1.00", "a"));
        assert_eq!(cells("a", "c", AtMost(1.0)), None, "nothing was measured of it");
        let one = Aim::figure("it", "test", ("b", "CPU"), AtMost(9.0), whole);
        assert_eq!(one.cells(&rounds()), texts("10", "≤ 9, missed", "b"));
    }
}
