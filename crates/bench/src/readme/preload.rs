//! The tables of the preload library.

use super::comparison::{Column, Comparison, Figure, PRELOADED, Row, row};
use super::notes::{doubts, notes_of_cpu, received, versions};
use super::show::{megabytes, thousands, time, whole};
use super::tables::warm_columns;
use super::{Kept, find};
use crate::league::{cold, mixed};

/// The preload library against the same server without it: its gain and its cost.
pub(super) fn tables(runs: &[Kept<'_>]) -> Vec<Comparison> {
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
                ("beside, thousand requests/s", cold::MAXIMUM, thousands),
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
    let rows_of_both = rows();
    let names = || rows_of_both.iter().map(|row| &row.server[..]);
    let versions = of_these.clone().filter_map(|kept| versions(kept.run, names()));
    let versions = versions.collect::<std::collections::BTreeSet<_>>();
    let notes = received(runs, ["cold", "mixed"])
        .into_iter()
        .chain(versions)
        .chain(of_these.filter_map(|kept| doubts(kept.run)))
        .collect();
    let brings = Comparison {
        title: "What the library brings.".to_owned(),
        about: "The first columns are of the small file beside eight downloads, those called \"site\" of the site \
                whose files are partly in memory, as above."
            .to_owned(),
        dirs,
        columns,
        rows: rows(),
        keeps_all: false,
        notes,
    };
    let costs = find(runs, "warm").map(|(kept, _, _)| Comparison {
        title: "What it costs when all files are in memory.".to_owned(),
        about: "CPU per request, µs, by size of the file.".to_owned(),
        dirs: vec![kept.dir.to_owned()],
        columns: warm_columns(kept.run),
        rows: rows(),
        keeps_all: true,
        notes: notes_of_cpu(kept.run, "warm", &rows()),
    });
    core::iter::once(brings).chain(costs).collect()
}

fn rows() -> Vec<Row> {
    let pair = |name: &str| [row(None, name, name), row(None, &format!("{name}{PRELOADED}"), name)];
    ["nginx", "lighttpd"].map(pair).into_iter().flatten().collect()
}
