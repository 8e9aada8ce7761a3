//! A kept run supports every figure in README.md and docs/measurements.md: their tables are the output of
//! `samum-bench readme`.

use std::fs;
use std::path::Path;

use samum_bench::readme::{Kept, between_marks, blocks};
use samum_bench::report;
use samum_bench::run::Run;

#[path = "readme/english.rs"]
mod english;
#[path = "readme/paths.rs"]
mod paths;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// A text with tables.
struct Paper {
    /// Its directory, from the root of the repository.
    dir: &'static str,
    name: &'static str,
    /// The directory of the kept runs, as its links have it.
    runs: &'static str,
    /// The blocks of the paper.
    blocks: &'static [&'static str],
}

const PAPERS: [Paper; 2] = [
    Paper { dir: "", name: "README.md", runs: "docs/runs/", blocks: &["beside"] },
    Paper {
        dir: "docs",
        name: "measurements.md",
        runs: "runs/",
        blocks: &["beside", "servers", "gateways", "preload", "aims"],
    },
];

impl Paper {
    fn text(&self) -> String {
        fs::read_to_string(Path::new(ROOT).join(self.dir).join(self.name)).unwrap()
    }

    /// The runs of its tables, the newest first: if several runs have a test, the first counts.
    fn dirs(&self, tables: &str) -> Vec<String> {
        let mut dirs = Vec::new();
        for part in tables.split(&format!("]({}", self.runs)).skip(1) {
            let dir = part.split("/summary.md)").next().unwrap();
            let dir = format!("{}{dir}", self.runs);
            if !dirs.contains(&dir) {
                dirs.push(dir);
            }
        }
        // Their names begin with their dates.
        dirs.sort_unstable_by(|a, b| b.cmp(a));
        dirs
    }
}

#[test]
fn the_tables_of_a_paper_are_those_of_its_runs() {
    for paper in PAPERS {
        let text = paper.text();
        let block = |name: &str| &text[between_marks(&text, name).unwrap()];
        let tables: String = paper.blocks.iter().map(|name| block(name)).collect();
        let dirs = paper.dirs(&tables);
        assert!(!dirs.is_empty(), "tables without a run in {}", paper.name);
        let load = |dir: &String| Run::load(&Path::new(ROOT).join(paper.dir).join(dir)).unwrap();
        let loaded: Vec<Run> = dirs.iter().map(load).collect();
        let kept: Vec<Kept<'_>> =
            dirs.iter().zip(&loaded).map(|(dir, run)| Kept { dir, run }).collect();
        for (name, printed) in blocks(&kept) {
            assert!(
                !paper.blocks.contains(&name) || printed == block(name),
                "block {name}, in ./{}: samum-bench readme {} --into {}\n{printed}",
                paper.dir,
                dirs.join(" "),
                paper.name
            );
        }
    }
}

/// All kept runs can be read, and each linked run exists.
#[test]
fn each_run_that_is_linked_can_be_read() {
    let root = Path::new(ROOT);
    let mut dirs: Vec<String> = fs::read_dir(root.join("docs/runs"))
        .unwrap()
        .map(|entry| entry.unwrap())
        .filter(|entry| entry.file_type().unwrap().is_dir())
        .map(|entry| format!("docs/runs/{}", entry.file_name().to_str().unwrap()))
        .collect();
    let mut texts: Vec<_> =
        ["README.md", "DESIGN.md", "CHANGELOG.md"].map(|name| root.join(name)).into();
    texts.extend(dirs.iter().map(|dir| root.join(dir).join("README.md")));
    for dir in ["docs", "docs/runs"] {
        let entries = fs::read_dir(root.join(dir)).unwrap().map(|entry| entry.unwrap().path());
        texts.extend(entries.filter(|path| path.extension().is_some_and(|end| end == "md")));
    }
    for path in texts {
        let text = fs::read_to_string(&path).unwrap();
        let is_date = |name: &str| name.starts_with("20") && name.contains('-');
        let links = text.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next());
        let names =
            links.filter_map(|link| link.trim_start_matches("../").split('/').find(|n| is_date(n)));
        dirs.extend(names.map(|name| format!("docs/runs/{name}")));
    }
    dirs.sort_unstable();
    dirs.dedup();
    assert!(dirs.len() > 20, "{dirs:?}");
    let read = |dir: &String| Run::load(&root.join(dir)).and_then(|run| report::page(&[run]));
    let unreadable: Vec<_> = dirs.iter().filter_map(|dir| read(dir).err()).collect();
    assert!(unreadable.is_empty(), "{unreadable:#?}");
}

/// Figures with their least and greatest are only in tables between the marks. Other text has no requests
/// per second, no speeds and no percentiles.
#[test]
fn no_figure_stands_outside_the_tables() {
    for paper in PAPERS {
        let mut text = paper.text();
        for name in paper.blocks {
            let range = between_marks(&text, name).unwrap();
            text.replace_range(range, "");
        }
        for word in ["MB/s", "req/s", "p50", "p99", "µs"] {
            assert!(!text.contains(word), "'{word}' in {} without a run", paper.name);
        }
    }
}
