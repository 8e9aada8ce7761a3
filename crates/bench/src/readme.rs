//! The tables of README.md, made from runs alone: what `samum-bench readme` prints. Pure.
//!
//! A table shows how servers differ, so what shows no difference is not in it. Every cell is the median of
//! the rounds with least and greatest behind it. A cell is *ranked* when its rounds tell it from those of
//! the server that its row is compared with ([`Spread::is_ranked_against`]); others are marked. A column
//! or a row in which nothing is ranked is left out, and named below the table; but not where the question is
//! what something costs, for "nothing that could be measured" is an answer. Of a closed loop there are no
//! latencies.

mod aims;

use core::fmt::Write as _;

use crate::league::peers::{CROWDED, DNS};
use crate::league::proxy::{download as proxied, requests, slow};
use crate::league::rounds::Rounds;
use crate::league::{cold, dns, download, idle, mixed, warm, wire, wire_cold, wire_idle};
use crate::load;
use crate::run::{Ran, Run};
use crate::spread::Spread;
use crate::summary;
use crate::unit::{NOTHING, Unit};

/// A run and what to call its directory.
#[derive(Clone, Copy, Debug)]
pub struct Kept<'a> {
    /// The directory, from where README.md is.
    pub dir: &'a str,
    /// What it holds.
    pub run: &'a Run,
}

/// The blocks of README.md that come from runs: name and Markdown. Of several runs that hold a test an aim is of
/// the first, and so is a table of servers, unless few of them took part.
#[must_use]
pub fn blocks(runs: &[Kept<'_>]) -> Vec<(&'static str, String)> {
    let servers: String = [cold_table, warm_table, mixed_table, download_table, idle_table]
        .iter()
        .filter_map(|table| table(runs))
        .chain(wire_tables(runs))
        .chain([wire_cold_table, wire_idle_table, dns_table].iter().filter_map(|table| table(runs)))
        .map(|table| table.markdown())
        .collect();
    let gateways = GATEWAYS.iter().filter_map(|gateway| gateway_table(runs, gateway));
    let gateways: String = proxied_table(runs)
        .into_iter()
        .chain(gateways)
        .chain(slow_table(runs))
        .map(|table| table.markdown())
        .collect();
    let preload: String = preload_tables(runs).iter().map(Comparison::markdown).collect();
    let aims = aims::table(runs);
    [("servers", servers), ("gateways", gateways), ("preload", preload), ("aims", aims)].into()
}

/// Puts the blocks between their marks in a text: `<!-- samum-bench readme: NAME -->` and
/// `<!-- end -->`, each on a line of its own.
///
/// # Errors
/// A sentence, when a mark is missing.
pub fn insert(text: &str, blocks: &[(&'static str, String)]) -> Result<String, String> {
    let mut text = text.to_owned();
    for (name, block) in blocks {
        let range = between_marks(&text, name)?;
        text.replace_range(range, block);
    }
    Ok(text)
}

/// A block with its marks.
#[must_use]
pub fn block(name: &str, text: &str) -> String {
    format!("{}{text}{END}", begin(name))
}

fn begin(name: &str) -> String {
    format!("<!-- samum-bench readme: {name} -->\n")
}

/// Where a block is in a text, without its marks.
///
/// # Errors
/// A sentence, when a mark is missing.
pub fn between_marks(text: &str, name: &str) -> Result<core::ops::Range<usize>, String> {
    let begin = begin(name);
    let missing = |mark: &str| format!("there is no line '{}' in it", mark.trim_end());
    let start = text.find(&begin).ok_or_else(|| missing(&begin))? + begin.len();
    let length = text[start..].find(END).ok_or_else(|| missing(END))?;
    Ok(start..start + length)
}

/// Behind a block.
const END: &str = "<!-- end -->\n";

/// The print format of a figure.
type Show = fn(f64) -> String;

/// A column's title, its name in the run, and how it is printed.
type Figure<'a> = (&'a str, &'a str, Show);

/// A column before it is known whether it shows a difference.
struct Column {
    title: String,
    /// What it is among the figures of its rounds.
    rounds: Rounds,
    what: String,
    show: Show,
}

/// Servers, each compared with another.
struct Comparison {
    title: String,
    /// A description of the measurement, a sentence or two.
    about: String,
    dirs: Vec<String>,
    columns: Vec<Column>,
    rows: Vec<Row>,
    /// Whether what is not ranked is marked, instead of left out.
    keeps_all: bool,
    /// Behind the table.
    notes: Vec<String>,
}

/// A row before it is known whether it shows a difference.
#[derive(Clone)]
struct Row {
    /// The size of the file, where each has rows of its own: all rows of a table, or none.
    size: Option<String>,
    server: String,
    /// The server that it is compared with, at the same size; `None` for those that are only compared with.
    reference: Option<String>,
}

impl Comparison {
    fn spread(&self, row: &Row, column: &Column) -> Option<Spread> {
        self.spread_of(&row.server, row, column)
    }

    /// The figures of any server at the size of a row.
    fn spread_of(&self, server: &str, row: &Row, column: &Column) -> Option<Spread> {
        match &row.size {
            Some(size) => column.rounds.spread(server, &at_size(&column.what, size)),
            None => column.rounds.spread(server, &column.what),
        }
    }

    /// Tells whether a cell says something about its server and the one it is compared with.
    fn is_ranked(&self, row: &Row, column: &Column) -> bool {
        let Some(reference) = &row.reference else { return false };
        let both = (self.spread(row, column), self.spread_of(reference, row, column));
        matches!(both, (Some(one), Some(other)) if one.is_ranked_against(&other))
    }

    fn cell(&self, row: &Row, column: &Column) -> String {
        let Some(spread) = self.spread(row, column) else { return NOTHING.to_owned() };
        let shown = spread.show(column.show);
        let is_marked = row.reference.is_some() && !self.is_ranked(row, column) && shown != NOTHING;
        if is_marked { format!("{MARK} {shown}") } else { shown }
    }

    /// Heading, table and what is to be said of it; empty if nothing is ranked.
    fn markdown(&self) -> String {
        let measured = |column: &&Column| {
            self.rows.iter().any(|row| self.spread(row, column).is_some_and(is_a_number))
        };
        let shows = |column: &&Column| {
            self.keeps_all || self.rows.iter().any(|row| self.is_ranked(row, column))
        };
        let measured: Vec<&Column> = self.columns.iter().filter(measured).collect();
        let (columns, left_out): (Vec<&Column>, Vec<&Column>) =
            measured.into_iter().partition(shows);
        let mut text = String::new();
        if columns.is_empty() {
            return text;
        }
        let is_shown = |row: &&Row| {
            let is_ranked = columns.iter().any(|column| self.is_ranked(row, column));
            // Who is compared with stays for the sake of those that are.
            let is_needed = self.rows.iter().any(|other| {
                other.reference.as_ref() == Some(&row.server)
                    && other.size == row.size
                    && columns.iter().any(|column| self.is_ranked(other, column))
            });
            self.keeps_all || is_ranked || is_needed
        };
        let rows: Vec<_> = self.rows.iter().filter(is_shown).collect();
        let of = |row: &&Row| {
            let cells = columns.iter().map(|column| self.cell(row, column));
            let size = row.size.iter().cloned();
            size.chain([row.server.clone()]).chain(cells).collect::<Vec<_>>()
        };
        let with_sizes = rows.iter().any(|row| row.size.is_some());
        let label = with_sizes.then(|| "file".to_owned());
        let titles = columns.iter().map(|column| column.title.clone());
        let table = crate::Table {
            title: String::new(),
            head: label.into_iter().chain(["server".to_owned()]).chain(titles).collect(),
            rows: rows.iter().map(of).collect(),
        };
        let _ = write!(text, "\n**{}** {}\n\n{}\n", self.title, self.about, summary::table(&table));
        let rounds = rows.iter().flat_map(|row| {
            columns.iter().filter_map(|column| self.spread(row, column).map(|s| s.rounds))
        });
        let (least, most) = rounds.fold((usize::MAX, 0), |(a, b), n| (a.min(n), b.max(n)));
        let rounds = if least == most { most.to_string() } else { format!("{least} to {most}") };
        let _ = write!(text, "{rounds} rounds: median (least–greatest).");
        let is_marked =
            |row: &&&_| columns.iter().any(|column| self.cell(row, column).starts_with(MARK));
        if rows.iter().any(|row| is_marked(&row)) {
            let _ = write!(text, " {MARK}: {}", self.mark());
        }
        if table.rows.iter().flatten().any(|cell| cell.contains('≥')) {
            text.push_str(" ≥: requests still waited when the measurement ended.");
        }
        let missing = self.rows.iter().filter(|row| {
            let is_measured =
                self.columns.iter().any(|column| self.spread(row, column).is_some_and(is_a_number));
            is_measured && !is_shown(row)
        });
        let missing: Vec<&str> = missing.map(|row| &row.server[..]).collect();
        let left_out = left_out.iter().map(|column| &column.title[..]);
        let unranked: Vec<&str> = missing.into_iter().chain(left_out).collect();
        if !unranked.is_empty() {
            let unranked = unranked.join("; ");
            let _ =
                write!(text, " Not shown, because rounds differ more than servers: {unranked}.");
        }
        for note in &self.notes {
            let _ = write!(text, " {note}");
        }
        let dirs = self.dirs.iter().map(|dir| format!("[`{dir}`]({dir}/summary.md)"));
        let _ = writeln!(text, " Run: {}.", dirs.collect::<Vec<_>>().join(", "));
        text
    }

    /// The meaning of the mark.
    fn mark(&self) -> String {
        let mut references: Vec<&str> =
            self.rows.iter().filter_map(|row| row.reference.as_deref()).collect();
        references.sort_unstable();
        references.dedup();
        let is_preloaded = self.rows.iter().any(|row| row.server.ends_with(PRELOADED));
        let whom = match references[..] {
            [one] => format!("{one}'s"),
            _ if is_preloaded => "those of the server without the library".to_owned(),
            _ => format!("those of {}", references.join(" and ")),
        };
        format!("too close to {whom} to be ranked.")
    }
}

/// In front of a cell that is not ranked.
const MARK: &str = "≈";

fn is_a_number(spread: Spread) -> bool {
    spread.least.number.is_finite()
}

/// The first run that holds a test, and the test.
fn find<'a>(runs: &[Kept<'a>], test: &str) -> Option<(Kept<'a>, &'a Ran, Rounds)> {
    all(runs, test).next()
}

/// The first run in which at least half as many servers took part in a test as in any, and the test: a table compares, and
/// a run of one or two servers is for another question.
fn find_wide<'a>(runs: &[Kept<'a>], test: &str) -> Option<(Kept<'a>, &'a Ran, Rounds)> {
    let count = |rounds: &Rounds| rounds.servers().len();
    let most = all(runs, test).map(|(_, _, rounds)| count(&rounds)).max()?;
    all(runs, test).find(|(_, _, rounds)| 2 * count(rounds) >= most)
}

/// The runs that hold a test, and the test.
fn all<'a>(runs: &[Kept<'a>], test: &str) -> impl Iterator<Item = (Kept<'a>, &'a Ran, Rounds)> {
    runs.iter().filter_map(move |&kept| {
        let ran = kept.run.meta.tests.iter().find(|ran| ran.about.name == test)?;
        let rounds = Rounds::of_run(kept.run, test);
        (!rounds.servers().is_empty()).then_some((kept, ran, rounds))
    })
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
    Some(Comparison {
        title: title.to_owned(),
        about: about(ran),
        dirs: vec![kept.dir.to_owned()],
        columns: columns.iter().map(column).collect(),
        rows: rows(&rounds),
        keeps_all: false,
        notes: receives(kept.run, test)
            .into_iter()
            .chain(limits(ran))
            .chain(doubts(kept.run))
            .collect(),
    })
}

/// Those that were measured, in the order of README.md; the preload library has a table of its own.
fn rows(rounds: &Rounds) -> Vec<Row> {
    let there = rounds.servers();
    let known = ORDER.iter().copied().filter(|name| there.contains(name));
    let others = there.iter().copied().filter(|name| {
        !ORDER.contains(name) && !name.ends_with(PRELOADED) && !["floor", "read(2)"].contains(name)
    });
    let names = others.chain(known);
    names.map(|name| row(None, name, SAMUM)).collect()
}

/// A row that is compared with another, if it is not that one.
fn row(size: Option<&str>, server: &str, reference: &str) -> Row {
    let reference = (server != reference).then(|| reference.to_owned());
    Row { size: size.map(str::to_owned), server: server.to_owned(), reference }
}

/// Why a run should be made again before anybody believes it.
fn doubts(run: &Run) -> Option<String> {
    let meta = &run.meta;
    let noise = meta.noise.as_ref().filter(|noise| !noise.is_quiet());
    let doubts = [
        noise.map(|noise| format!("the machine was not quiet ({})", noise.reasons.join("; "))),
        meta.quick.then(|| "it was a quick run".to_owned()),
        meta.noise.is_none().then(|| "it was cut off".to_owned()),
    ];
    let doubts: Vec<String> = doubts.into_iter().flatten().collect();
    (!doubts.is_empty()).then(|| format!("Measure again: {}.", doubts.join("; ")))
}

/// Says what the clients of a test do with the bodies that they receive, where that is in its figures. Runs that
/// were made before their tables said it are among those that are kept, so it is taken from their command.
fn receives(run: &Run, test: &str) -> Option<String> {
    let words = load::receives(copies(run, test)?);
    let (first, rest) = words.split_at(1);
    Some(format!("{}{rest}.", first.to_uppercase()))
}

/// The same of a table of two tests, which may be of two runs.
fn received(runs: &[Kept<'_>], tests: [&str; 2]) -> Vec<String> {
    let found = tests.iter().filter_map(|test| {
        let (kept, _, _) = find(runs, test)?;
        Some((*test, receives(kept.run, test)?))
    });
    let found: Vec<_> = found.collect();
    match &found[..] {
        [(_, one), (_, other)] if one != other => {
            found.iter().map(|(test, words)| format!("In `{test}`: {words}")).collect()
        }
        _ => found.into_iter().map(|(_, words)| words).take(1).collect(),
    }
}

/// Tells whether the client of a test copied what came; `None` if it made no difference, because all of it came with
/// heads.
fn copies(run: &Run, test: &str) -> Option<bool> {
    let (by_option, never) = (BY_OPTION.contains(&test), NEVER_COPIED.contains(&test));
    (by_option || never).then(|| by_option && run.meta.command.iter().any(|word| word == "--copy"))
}

/// Tests in which `--copy` decides.
const BY_OPTION: [&str; 9] =
    ["warm", wire::KEPT, wire::CLOSED, "cold", "mixed", "hung", "proxied", "fastcgi", "includes"];

/// Tests in which the client never copies.
const NEVER_COPIED: [&str; 5] = ["disk", "download", "asleep", "wire-cold", "proxied-slow"];

/// Where the load generator set a figure and not the server, by the remarks of the test's table.
fn limits(ran: &Ran) -> Option<String> {
    let mut names = Vec::new();
    for row in ran.tables.iter().flat_map(|table| &table.rows) {
        let (Some(name), Some(remarks)) = (row.first(), row.last()) else { continue };
        let is_shown = !name.ends_with(PRELOADED) && name != "floor";
        if remarks.contains("the load generator used") && is_shown && !names.contains(name) {
            names.push(name.clone());
        }
    }
    (!names.is_empty()).then(|| {
        format!(
            "The load generator was at its limit with {}: their requests per second are at least that many.",
            names.join(", ")
        )
    })
}

fn cold_table(runs: &[Kept<'_>]) -> Option<Comparison> {
    servers(
        runs,
        "cold",
        "A small file in memory, beside downloads from a slow disk.",
        |ran| {
            format!("{} Requests per second are of a closed loop.", setup(ran, "disk slowed down"))
        },
        &[
            ("alone, 1,000 requests/s", cold::ALONE, thousands),
            ("beside, 1,000 requests/s", cold::MAXIMUM, thousands),
            ("alone, p99 by the clock", cold::ALONE_P99, time),
            ("beside, p99 by the clock", cold::P99, time),
            ("downloads, MB/s", cold::COLD, megabytes),
        ],
    )
}

/// The note of a test that begins in some way, as a sentence.
fn setup(ran: &Ran, begin: &str) -> String {
    let note = ran.notes.iter().find(|note| note.contains(begin));
    let mut letters = note.map_or("", |note| &note[..]).chars();
    let first = letters.next().map(|first| first.to_uppercase().to_string());
    first.map_or_else(String::new, |first| format!("{first}{}.", letters.as_str()))
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
        notes: receives(kept.run, "warm").into_iter().chain(doubts(kept.run)).collect(),
    };
    comparison.rows = rows(&comparison.columns.first()?.rounds);
    Some(comparison)
}

/// CPU per request, a column for each size. In raw.csv a step of `warm` is a size, and each round is a
/// series.
fn warm_columns(run: &Run) -> Vec<Column> {
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

/// The tables of requests over a link: each server beside the floor, on the kernel's TCP and on samum's own.
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
    Some(Comparison {
        title: title.to_owned(),
        about: about.to_owned(),
        dirs: vec![kept.dir.to_owned()],
        columns: figures.iter().map(column).collect(),
        rows: sizes.iter().flat_map(|&size| rows(&rounds, &bytes(size))).collect(),
        keeps_all: true,
        notes: receives(kept.run, test)
            .into_iter()
            .chain(limits(ran))
            .chain(doubts(kept.run))
            .collect(),
    })
}

/// The rounds of a test whose x is the size of the file, each figure by its size.
fn rounds_by_size(run: &Run, test: &str, figures: &[&str]) -> Rounds {
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

/// The name of a figure at a size, where each size has rows of its own.
fn at_size(what: &str, size: &str) -> String {
    format!("{what}, {size}")
}

/// A test of requests through proxies or gateways.
struct Gateway {
    test: &'static str,
    title: &'static str,
    about: &'static str,
    /// The server that the others are compared with.
    reference: &'static str,
}

/// The tests of requests through proxies and gateways, in the order of README.md.
const GATEWAYS: [Gateway; 3] = [
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

fn gateway_table(runs: &[Kept<'_>], gateway: &Gateway) -> Option<Comparison> {
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

/// The preload library against the same server without it: what it brings, and what it costs.
fn preload_tables(runs: &[Kept<'_>]) -> Vec<Comparison> {
    let columns_of = |test: &str, columns: &[Figure<'_>]| {
        let found = find(runs, test);
        let columns = columns.to_vec();
        found.map(|(kept, _, rounds)| {
            let columns = columns.into_iter().map(move |(title, what, show)| Column {
                title: title.to_owned(),
                rounds: rounds.clone(),
                what: what.to_owned(),
                show,
            });
            (kept.dir.to_owned(), columns.collect::<Vec<_>>())
        })
    };
    let parts = [
        columns_of(
            "cold",
            &[
                ("beside, 1,000 requests/s", cold::MAXIMUM, thousands),
                ("beside, p99 by the clock", cold::P99, time),
                ("downloads, MB/s", cold::COLD, megabytes),
            ],
        ),
        columns_of(
            "mixed",
            &[
                ("site: answered per second", mixed::GOT, whole),
                ("site: p99 of them", mixed::P99, time),
                ("site: downloads, MB/s", mixed::LARGE, megabytes),
            ],
        ),
    ];
    let (mut dirs, mut columns) = (Vec::new(), Vec::new());
    for (dir, part) in parts.into_iter().flatten() {
        dirs.push(dir);
        columns.extend(part);
    }
    dirs.dedup();
    let of_these = runs.iter().filter(|kept| dirs.iter().any(|dir| dir == kept.dir));
    let notes = received(runs, ["cold", "mixed"])
        .into_iter()
        .chain(of_these.filter_map(|kept| doubts(kept.run)))
        .collect();
    let brings = Comparison {
        title: "What the library brings.".to_owned(),
        about: "The first columns are of the small file beside eight downloads, those called \"site\" of the site \
                whose files are partly in memory, as above."
            .to_owned(),
        dirs,
        columns,
        rows: preload_rows(),
        keeps_all: false,
        notes,
    };
    let costs = find(runs, "warm").map(|(kept, _, _)| Comparison {
        title: "What it costs when all files are in memory.".to_owned(),
        about: "CPU per request, µs, by size of the file.".to_owned(),
        dirs: vec![kept.dir.to_owned()],
        columns: warm_columns(kept.run),
        rows: preload_rows(),
        keeps_all: true,
        notes: receives(kept.run, "warm").into_iter().chain(doubts(kept.run)).collect(),
    });
    core::iter::once(brings).chain(costs).collect()
}

fn preload_rows() -> Vec<Row> {
    let pair = |name: &str| [row(None, name, name), row(None, &format!("{name}{PRELOADED}"), name)];
    ["nginx", "lighttpd"].map(pair).into_iter().flatten().collect()
}

/// In README.md servers stand in this order, samum's last; others before them.
const ORDER: [&str; 7] = ["nginx", "nginx-aio", "h2o", "lighttpd", "caddy", "samum-epoll", "samum"];
const SAMUM: &str = "samum";
/// The order of servers over a link.
const WIRE_ORDER: [&str; 5] = ["floor", "nginx", "h2o", SAMUM, SAMUM_OWN];
const SAMUM_OWN: &str = "samum-own";
const PRELOADED: &str = "-preload";

fn thousands(value: f64) -> String {
    format!("{:.1}", value / 1e3)
}

fn megabytes(value: f64) -> String {
    format!("{:.1}", value / 1e6)
}

fn whole_megabytes(value: f64) -> String {
    format!("{:.0}", value / 1e6)
}

fn microseconds(value: f64) -> String {
    format!("{:.1}", value / 1e3)
}

fn whole_microseconds(value: f64) -> String {
    format!("{:.0}", value / 1e3)
}

fn mebibytes(value: f64) -> String {
    format!("{:.1}", value / 1_048_576.0)
}

fn precise_microseconds(value: f64) -> String {
    format!("{:.2}", value / 1e3)
}

fn tenths(value: f64) -> String {
    format!("{value:.1}")
}

fn hundredths(value: f64) -> String {
    format!("{value:.2}")
}

/// A size without needless digits: `8 KiB`.
fn bytes(value: f64) -> String {
    Unit::Bytes.show(value).replace(".00", "").replace(".0 ", " ")
}

fn milliseconds(value: f64) -> String {
    format!("{:.0}", value / 1e6)
}

fn whole(value: f64) -> String {
    format!("{value:.0}")
}

fn time(value: f64) -> String {
    Unit::Nanoseconds.show(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A comparison of servers with "a", from their rounds of one figure, and of another that is the same
    /// for all.
    fn comparison(servers: &[(&str, [f64; 3])]) -> Comparison {
        let mut rounds = Rounds::default();
        for (server, values) in servers {
            for value in values {
                rounds.add(server, "speed", *value);
                rounds.add(server, "same", 7.0);
            }
        }
        let column = |what: &str| Column {
            title: format!("the {what}"),
            rounds: rounds.clone(),
            what: what.to_owned(),
            show: whole,
        };
        Comparison {
            title: "Title.".into(),
            about: "About.".into(),
            dirs: vec!["docs/run".into()],
            columns: vec![column("speed"), column("same")],
            rows: servers.iter().map(|(name, _)| row(None, name, "a")).collect(),
            keeps_all: false,
            notes: Vec::new(),
        }
    }

    #[test]
    fn rows_and_columns_without_a_difference_are_left_out_and_named() {
        let servers = [("b", [10.0, 11.0, 12.0]), ("c", [2.0, 4.0, 6.0]), ("a", [3.0, 4.0, 5.0])];
        let text = comparison(&servers).markdown();
        let rows: Vec<&str> = text.lines().filter(|line| line.starts_with('|')).collect();
        let want =
            ["| server | the speed |", "| --- | --: |", "| b | 11 (10–12) |", "| a | 4 (3–5) |"];
        assert_eq!(rows, want);
        let below = "3 rounds: median (least–greatest). Not shown, because rounds differ more than servers: c; the \
                     same. Run: [`docs/run`](docs/run/summary.md).\n";
        assert!(text.ends_with(below), "{text}");
        assert_eq!(comparison(&servers[1..]).markdown(), "", "no difference, no table");
    }

    #[test]
    fn what_is_not_ranked_is_marked_where_it_stays() {
        let servers = [("b", [10.0, 11.0, 12.0]), ("c", [2.0, 4.0, 6.0]), ("a", [3.0, 4.0, 5.0])];
        let all = Comparison { keeps_all: true, ..comparison(&servers) };
        let text = all.markdown();
        for row in ["| b | 11 (10–12) | ≈ 7 (7–7) |", "| c | ≈ 4 (2–6) | ≈ 7 (7–7) |"]
        {
            assert!(text.contains(row), "{text}");
        }
        assert!(text.contains("≈: too close to a's to be ranked."), "{text}");
        assert!(text.contains("| --- | --: | --: |"), "numbers all the same: {text}");
    }

    #[test]
    fn sizes_have_rows_of_their_own() {
        let mut comparison = comparison(&[("b", [9.0; 3]), ("a", [8.0; 3])]);
        for (server, size, value) in [("b", "8 KiB", 5.0), ("a", "8 KiB", 2.0), ("a", "1 MiB", 7.0)]
        {
            for _ in 0..3 {
                comparison.columns[0].rounds.add(server, &at_size("speed", size), value);
            }
        }
        let sizes = ["8 KiB", "1 MiB"];
        comparison.rows = sizes
            .iter()
            .flat_map(|size| ["b", "a"].map(|name| row(Some(size), name, "a")))
            .collect();
        let text = comparison.markdown();
        let rows: Vec<&str> = text.lines().filter(|line| line.starts_with('|')).collect();
        let want = [
            "| file | server | the speed |",
            "| --: | --- | --: |",
            "| 8 KiB | b | 5 (5–5) |",
            "| 8 KiB | a | 2 (2–2) |",
        ];
        assert_eq!(rows, want);
    }

    #[test]
    fn what_was_cut_off_is_said() {
        let mut comparison = comparison(&[("b", [10.0, 11.0, 12.0]), ("a", [3.0, 4.0, 5.0])]);
        let stalled = crate::spread::Value { number: 13.0, at_least: true };
        comparison.columns[0].rounds.add("b", "speed", stalled);
        let text = comparison.markdown();
        assert!(text.contains("(10–≥ 13) |"), "{text}");
        assert!(text.contains("3 to 4 rounds") && text.contains("≥: requests"), "{text}");
    }

    /// A run of a table of servers, and of one whose bodies all come with their heads.
    fn run_of(command: &[&str]) -> Run {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/runs/2026-11-26-gateways");
        let mut run = Run::load(std::path::Path::new(path)).unwrap();
        run.meta.command = command.iter().map(|word| (*word).to_owned()).collect();
        run
    }

    #[test]
    fn tables_say_what_the_client_does_with_bodies() {
        let discards = "The client discards what comes, in the kernel.";
        let copies = "The client copies what comes.";
        for (command, words, other) in [
            (&["samum-bench", "league"][..], discards, copies),
            (&["samum-bench", "league", "--copy"], copies, discards),
        ] {
            let run = run_of(command);
            let runs = [Kept { dir: "docs/run", run: &run }];
            let table = |gateway| gateway_table(&runs, gateway).unwrap().markdown();
            for (gateway, depends) in GATEWAYS.iter().zip([false, true, true]) {
                let text = table(gateway);
                assert_eq!(text.contains(words), depends, "{text}");
                assert!(!text.contains(other), "{text}");
            }
            let aims = aims::table(&runs);
            let clients = words.replacen("The client discards", "Clients discard", 1);
            let clients = clients.replacen("The client copies", "Clients copy", 1);
            assert!(aims.contains(&clients), "{aims}");
        }
        // It never copies in these, whatever the command says.
        assert_eq!(receives(&run_of(&["--copy"]), "download").unwrap(), discards);
        assert_eq!(receives(&run_of(&["--copy"]), "idle"), None);
    }

    #[test]
    fn tests_that_say_so_exist() {
        use clap::Parser as _;
        let cli = crate::cli::Cli::try_parse_from(["samum-bench", "league"]).unwrap();
        let crate::cli::Command::League(args) = cli.command else { panic!("league") };
        let tests = crate::league::tests(&args).unwrap();
        for name in BY_OPTION.iter().chain(&NEVER_COPIED) {
            assert!(tests.iter().any(|test| test.about().name == *name), "{name}");
        }
    }

    #[test]
    fn blocks_go_between_their_marks() {
        let blocks = [("one", "1\n".to_owned()), ("two", "2\n".to_owned())];
        let text = format!("a\n{}b\n{}c\n", block("two", "old\n"), block("one", ""));
        let new = insert(&text, &blocks).unwrap();
        assert_eq!(new, format!("a\n{}b\n{}c\n", block("two", "2\n"), block("one", "1\n")));
        assert_eq!(insert(&new, &blocks).unwrap(), new, "twice is once");
        assert!(insert("nothing", &blocks).unwrap_err().contains("readme: one -->"));
        let unended = text.replace("<!-- end -->", "");
        assert!(insert(&unended, &blocks).unwrap_err().contains("<!-- end -->"));
    }
}
