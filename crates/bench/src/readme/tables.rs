//! The tables of servers, of gateways, and of the stack: the tests and figures that each has.

use super::comparison::{Column, Comparison, Figure, PRELOADED, Row, at_size, row};
use super::notes::{notes, notes_of_cpu, setup};
use super::show::{
    Show, bytes, hundredths, mebibytes, megabytes, microseconds, milliseconds,
    precise_microseconds, thousands, time, whole, whole_megabytes, whole_microseconds,
};
use super::{Kept, find, find_wide};
use crate::league::peers::{CROWDED, DNS};
use crate::league::proxy::{download as proxied, requests, slow};
use crate::league::rounds::Rounds;
use crate::league::{cold, dns, download, idle, mixed, warm, wire, wire_cold, wire_idle};
use crate::run::{Ran, Run};

/// The order of servers in a table: samum is last, and unlisted servers are first.
const ORDER: [&str; 7] = ["nginx", "nginx-aio", "h2o", "lighttpd", "caddy", "samum-epoll", "samum"];
const SAMUM: &str = "samum";
/// The order of servers over a link.
const WIRE_ORDER: [&str; 5] = ["floor", "nginx", "h2o", SAMUM, SAMUM_OWN];
const SAMUM_OWN: &str = "samum-own";

/// The other tables of servers of files, in the order of docs/measurements.md.
pub(super) fn of_servers(runs: &[Kept<'_>]) -> Vec<Comparison> {
    let of_files = [warm_table, mixed_table, download_table, idle_table];
    let of_the_stack = [wire_cold_table, wire_idle_table, dns_table];
    let of_files = of_files.iter().filter_map(|table| table(runs));
    let of_the_stack = of_the_stack.iter().filter_map(|table| table(runs));
    of_files.chain(wire_tables(runs)).chain(of_the_stack).collect()
}

/// The tables of proxies and gateways, in the order of docs/measurements.md.
pub(super) fn of_gateways(runs: &[Kept<'_>]) -> Vec<Comparison> {
    let gateways = GATEWAYS.iter().filter_map(|gateway| gateway_table(runs, gateway));
    proxied_table(runs).into_iter().chain(gateways).chain(slow_table(runs)).collect()
}

/// A table of servers, each compared with samum.
fn servers(
    runs: &[Kept<'_>],
    test: &str,
    title: &str,
    about: impl Fn(&Ran) -> String,
    columns: &[Figure<'_>],
) -> Option<Comparison> {
    let (kept, ran, rounds) = find_wide(runs, test)?;
    let column = |&(title, what, show): &Figure<'_>| Column {
        title: title.to_owned(),
        rounds: rounds.clone(),
        what: what.to_owned(),
        show,
    };
    let rows = rows(&rounds);
    Some(Comparison {
        title: title.to_owned(),
        about: about(ran),
        dirs: vec![kept.dir.to_owned()],
        columns: columns.iter().map(column).collect(),
        keeps_all: false,
        notes: notes(kept.run, ran, &rows),
        rows,
    })
}

/// The measured servers, in their order; the preload library has a table of its own.
fn rows(rounds: &Rounds) -> Vec<Row> {
    let there = rounds.servers();
    let known = ORDER.iter().copied().filter(|name| there.contains(name));
    let others = there.iter().copied().filter(|name| {
        !ORDER.contains(name) && !name.ends_with(PRELOADED) && !["floor", "read(2)"].contains(name)
    });
    let names = others.chain(known);
    names.map(|name| row(None, name, SAMUM)).collect()
}

/// The table of a small file in memory that is requested during downloads from a slow disk.
pub(super) fn cold_table(runs: &[Kept<'_>]) -> Option<Comparison> {
    servers(
        runs,
        "cold",
        "A small file in memory, beside downloads from a slow disk.",
        |ran| {
            let setup = setup(ran, "disk slowed down");
            let (setup, requests) = setup.split_once("; by the clock ").unwrap_or((&setup, ""));
            let requests = requests.trim_end_matches(" requests a second.");
            format!(
                "In the columns with requests/s, each connection sends its next request as soon as it has the response \
                 (a closed loop). In the columns \"by the clock\", {requests} requests are sent per second, at fixed \
                 times. {setup}.",
            )
        },
        &[
            ("alone, thousand requests/s", cold::ALONE, thousands),
            ("beside, thousand requests/s", cold::MAXIMUM, thousands),
            ("alone, p99 by the clock", cold::ALONE_P99, time),
            ("beside, p99 by the clock", cold::P99, time),
            ("downloads, MB/s", cold::COLD, megabytes),
        ],
    )
}

fn warm_table(runs: &[Kept<'_>]) -> Option<Comparison> {
    let (kept, _, _) = find(runs, "warm")?;
    let mut comparison = Comparison {
        title: "CPU per request, µs, when all files are in memory.".to_owned(),
        about: "By size of the file; the kernel's work for the server is included.".to_owned(),
        dirs: vec![kept.dir.to_owned()],
        columns: warm_columns(kept.run),
        rows: Vec::new(),
        keeps_all: false,
        notes: Vec::new(),
    };
    comparison.rows = rows(&comparison.columns.first()?.rounds);
    comparison.notes = notes_of_cpu(kept.run, "warm", &comparison.rows);
    Some(comparison)
}

/// CPU per request, a column for each size. In raw.csv a step of `warm` is a size, and each round is a
/// series.
pub(super) fn warm_columns(run: &Run) -> Vec<Column> {
    let sizes = sizes(run, "warm", ROUND_OF_CPU);
    let column = |&size: &f64| {
        let mut rounds = Rounds::default();
        for series in run.of("warm").filter(|series| series.series.starts_with(ROUND_OF_CPU)) {
            for &(_, value) in series.points.iter().filter(|point| point.0 == size) {
                rounds.add(&series.system, warm::CPU, value);
            }
        }
        Column { title: bytes(size), rounds, what: warm::CPU.to_owned(), show: microseconds }
    };
    sizes.iter().map(column).collect()
}

/// The sizes of files in the series of a test whose names begin so.
fn sizes(run: &Run, test: &str, series: &str) -> Vec<f64> {
    let of_series = run.of(test).filter(|it| it.series.starts_with(series));
    let mut sizes: Vec<f64> =
        of_series.flat_map(|series| series.points.iter().map(|point| point.0)).collect();
    sizes.sort_by(f64::total_cmp);
    sizes.dedup();
    sizes
}

/// The tables of requests over a link: each server compared with the floor, on the kernel's TCP and on samum's own.
fn wire_tables(runs: &[Kept<'_>]) -> Vec<Comparison> {
    let tables = [
        (wire::KEPT, "Requests over a link, all files in memory.", "Connections are kept."),
        (
            wire::CLOSED,
            "Connections over a link, all files in memory.",
            "Each connection is for one request.",
        ),
    ];
    tables
        .into_iter()
        .filter_map(|(test, title, about)| wire_table(runs, test, title, about))
        .collect()
}

fn wire_table(runs: &[Kept<'_>], test: &str, title: &str, about: &str) -> Option<Comparison> {
    let figures: [Figure<'_>; 5] = [
        ("requests/s", wire::RATE, whole),
        ("CPU of the core per request, µs", wire::CPU, precise_microseconds),
        ("own user time, µs", wire::USER, precise_microseconds),
        ("interrupts", wire::INTERRUPTS, hundredths),
        ("ratio to the floor", wire::RATIO, hundredths),
    ];
    let about = format!(
        "{about} By size of the file; the busy time of the server's core has the kernel's work for packets in it; \
         interrupts are those that the two CPUs send each other for a request; each ratio is of a round."
    );
    by_size(runs, test, [title, &about], &figures, |rounds, size| {
        let there = rounds.servers();
        let others = there.iter().copied().filter(|name| !WIRE_ORDER.contains(name));
        let known = WIRE_ORDER.into_iter().filter(|name| there.contains(name));
        others.chain(known).map(|name| row(Some(size), name, SAMUM_OWN)).collect()
    })
}

/// A table with rows for each size: those that `rows` says of the rounds and a size.
fn by_size(
    runs: &[Kept<'_>],
    test: &str,
    [title, about]: [&str; 2],
    figures: &[Figure<'_>],
    rows: impl Fn(&Rounds, &str) -> Vec<Row>,
) -> Option<Comparison> {
    let (kept, ran, _) = find_wide(runs, test)?;
    let names: Vec<&str> = figures.iter().map(|&(_, what, _)| what).collect();
    let rounds = rounds_by_size(kept.run, test, &names);
    let column = |&(title, what, show): &Figure<'_>| Column {
        title: title.to_owned(),
        rounds: rounds.clone(),
        what: what.to_owned(),
        show,
    };
    let (_, first, _) = figures.first()?;
    let sizes = sizes(kept.run, test, first);
    let rows: Vec<Row> = sizes.iter().flat_map(|&size| rows(&rounds, &bytes(size))).collect();
    Some(Comparison {
        title: title.to_owned(),
        about: about.to_owned(),
        dirs: vec![kept.dir.to_owned()],
        columns: figures.iter().map(column).collect(),
        keeps_all: true,
        notes: notes(kept.run, ran, &rows),
        rows,
    })
}

/// The rounds of a test whose x is the size of the file, each figure by its size.
pub(super) fn rounds_by_size(run: &Run, test: &str, figures: &[&str]) -> Rounds {
    let mut rounds = Rounds::default();
    for what in figures {
        let prefix = format!("{what}, round ");
        for series in run.of(test).filter(|series| series.series.starts_with(&prefix)) {
            for &(size, value) in &series.points {
                rounds.add(&series.system, &at_size(what, &bytes(size)), value);
            }
        }
    }
    rounds
}

/// A test of requests through proxies or gateways.
pub(super) struct Gateway {
    pub(super) test: &'static str,
    pub(super) title: &'static str,
    pub(super) about: &'static str,
    /// The server that the others are compared with.
    pub(super) reference: &'static str,
}

/// The tests of requests through proxies and gateways, in the order of docs/measurements.md.
pub(super) const GATEWAYS: [Gateway; 3] = [
    Gateway {
        test: "proxied-small",
        title: "A response of 1 KiB of another server.",
        about: "Connections are kept on both sides; `origin` is that server, asked directly.",
        reference: "samum-proxy",
    },
    Gateway {
        test: "fastcgi",
        title: "64 KiB of a PHP script.",
        about: "Each request has a connection of its own to php-fpm, which shares the core of the load generator.",
        reference: "samum-fastcgi",
    },
    Gateway {
        test: "includes",
        title: "A page of 1 MiB with 20 parts of another server.",
        about: "The page is a file in memory, and its parts have 1 KiB each.",
        reference: "samum-includes",
    },
];

pub(super) fn gateway_table(runs: &[Kept<'_>], gateway: &Gateway) -> Option<Comparison> {
    let figures =
        [("requests/s", requests::RATE, whole as Show), ("CPU, µs", requests::CPU, microseconds)];
    let mut table =
        servers(runs, gateway.test, gateway.title, |_| gateway.about.to_owned(), &figures)?;
    let rounds = &table.columns.first()?.rounds;
    table.rows = rows_beside(rounds, gateway.reference, None);
    table.keeps_all = true;
    Some(table)
}

/// The table of what proxies hold for slow clients.
fn slow_table(runs: &[Kept<'_>]) -> Option<Comparison> {
    let title = "A proxy with clients that are slow.";
    let about = |ran: &Ran| {
        let title = ran.tables.first().and_then(|table| table.title.split(':').next());
        format!(
            "{}; the server behind it is fast. Each proxy has its default buffers, samum 1 MiB for each response.",
            title.unwrap_or_default()
        )
    };
    let figures: [Figure<'_>; 3] = [
        ("memory over idle, MiB", slow::MEMORY, mebibytes),
        ("temporary files, MiB", slow::FILES, mebibytes),
        ("CPU per GiB, ms", slow::CPU, milliseconds),
    ];
    let mut table = servers(runs, "proxied-slow", title, about, &figures)?;
    table.rows = rows_beside(&table.columns.first()?.rounds, "samum-proxy", None);
    table.keeps_all = true;
    Some(table)
}

/// The table of downloads from the disk over a link: each way of caching on the kernel's TCP and on samum's own.
fn wire_cold_table(runs: &[Kept<'_>]) -> Option<Comparison> {
    let title = "Downloads from the disk over a link.";
    let about = |ran: &Ran| {
        let title = ran.tables.first().and_then(|table| table.title.split(':').next());
        let title = title.unwrap_or_default();
        format!(
            "{title}. `never`: with `--cache never`. Memory of the server, with what it holds for the disk."
        )
    };
    let figures: [Figure<'_>; 4] = [
        ("MB/s", wire_cold::RATE, whole_megabytes),
        ("CPU of the core per GiB, ms", wire_cold::CPU, milliseconds),
        ("memory, at most, MiB", wire_cold::MEMORY, mebibytes),
        ("more than before, MiB", wire_cold::GROWTH, mebibytes),
    ];
    let mut table = servers(runs, "wire-cold", title, about, &figures)?;
    let there = table.columns.first()?.rounds.clone();
    let rows = wire_cold::PAIRS.iter().flat_map(|pair| pair.map(|name| (name, pair[1])));
    let rows = rows.filter(|(name, _)| there.servers().contains(name));
    table.rows = rows.map(|(name, own)| row(None, name, own)).collect();
    table.keeps_all = true;
    Some(table)
}

/// The table of a crowd of idle connections to a stack of samum's own.
fn wire_idle_table(runs: &[Kept<'_>]) -> Option<Comparison> {
    let title = "Idle connections to a stack of samum's own.";
    let about = |ran: &Ran| {
        let title = ran.tables.first().and_then(|table| table.title.split(':').next());
        format!("{}; a new client connects and asks once.", title.unwrap_or_default())
    };
    let figures: [Figure<'_>; 4] = [
        ("memory, B each", wire_idle::EACH, whole),
        ("when all had asked", wire_idle::EACH_ASKED, whole),
        ("a new client alone, p50, µs", wire_idle::ALONE, whole_microseconds),
        ("beside them", wire_idle::BESIDE, whole_microseconds),
    ];
    let mut table = servers(runs, "wire-idle", title, about, &figures)?;
    table.rows = vec![row(None, CROWDED, CROWDED)];
    table.keeps_all = true;
    Some(table)
}

/// The table of answers of DNS over a link.
fn dns_table(runs: &[Kept<'_>]) -> Option<Comparison> {
    let title = "Answers of DNS over a link.";
    let about = "The second application of the stack, an example of `netdev`, beside NSD on the kernel's UDP. \
                 Interrupts are those that the two CPUs send each other for an answer.";
    let figures: [Figure<'_>; 3] = [
        ("answers/s", dns::RATE, whole),
        ("CPU of the core per answer, µs", dns::CPU, precise_microseconds),
        ("interrupts", dns::INTERRUPTS, hundredths),
    ];
    let mut table = servers(runs, "dns", title, |_| about.to_owned(), &figures)?;
    table.rows = rows_beside(&table.columns.first()?.rounds, DNS[1], None);
    table.keeps_all = true;
    Some(table)
}

/// The table of downloads through proxies: rows for each size.
fn proxied_table(runs: &[Kept<'_>]) -> Option<Comparison> {
    let figures: [Figure<'_>; 2] = [
        ("MB/s", proxied::SPEED, whole_megabytes),
        ("CPU per GiB, ms", proxied::CPU, milliseconds),
    ];
    let title = "Downloads through a proxy, one at a time.";
    let about = "By size; `origin` is the server behind the proxies, asked directly.";
    by_size(runs, "proxied", [title, about], &figures, |rounds, size| {
        rows_beside(rounds, "samum-proxy", Some(size))
    })
}

/// The servers, each compared with `reference`, which is the last.
fn rows_beside(rounds: &Rounds, reference: &str, size: Option<&str>) -> Vec<Row> {
    let there = rounds.servers();
    let others = there.iter().copied().filter(|name| *name != reference);
    let last = there.iter().copied().filter(|name| *name == reference);
    others.chain(last).map(|name| row(size, name, reference)).collect()
}

/// The beginning of the name of a round's series.
const ROUND_OF_CPU: &str = "CPU per request, round ";

fn mixed_table(runs: &[Kept<'_>]) -> Option<Comparison> {
    servers(
        runs,
        "mixed",
        "A site whose files are partly in memory.",
        |ran| setup(ran, "small files"),
        &[
            ("small files answered per second", mixed::GOT, whole),
            ("p99 of them", mixed::P99, time),
            ("downloads, MB/s", mixed::LARGE, megabytes),
        ],
    )
}

fn download_table(runs: &[Kept<'_>]) -> Option<Comparison> {
    let title = |ran: &Ran| {
        ran.tables.first().and_then(|table| table.title.split(':').next()).map(str::to_owned)
    };
    servers(
        runs,
        "download",
        "Downloads of what is not in memory, from a disk without a limit.",
        |ran| title(ran).map_or_else(String::new, |title| format!("{title}.")),
        &[
            ("one file, MB/s", download::ONE, whole_megabytes),
            ("its CPU, ms per GiB", download::ONE_CPU, milliseconds),
            ("200 files, MB/s", download::MANY, whole_megabytes),
            ("their CPU, ms per GiB", download::MANY_CPU, milliseconds),
        ],
    )
}

fn idle_table(runs: &[Kept<'_>]) -> Option<Comparison> {
    servers(
        runs,
        "idle",
        "Memory for each idle connection, bytes.",
        |ran| format!("{} connections.", ran.steps),
        &[("of the process", idle::PROCESS, whole), ("of the kernel", idle::SLAB, whole)],
    )
}
