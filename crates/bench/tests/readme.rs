//! README.md has no figure that a kept run does not support: its tables are what `samum-bench readme`
//! prints.

use std::fs;
use std::path::Path;

use samum_bench::readme::{Kept, between_marks, blocks};
use samum_bench::report;
use samum_bench::run::Run;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// The names of the blocks.
const BLOCKS: [&str; 4] = ["servers", "gateways", "preload", "aims"];

/// The runs that a text says its tables are of, the newest first: if a test is in several of them, it counts.
fn runs(text: &str) -> Vec<String> {
    let mut dirs = Vec::new();
    for part in text.split("](docs/runs/").skip(1) {
        let dir = part.split("/summary.md)").next().unwrap();
        let dir = format!("docs/runs/{dir}");
        if !dirs.contains(&dir) {
            dirs.push(dir);
        }
    }
    // Their names begin with their dates.
    dirs.sort_unstable_by(|a, b| b.cmp(a));
    dirs
}

#[test]
fn the_tables_of_the_readme_are_those_of_its_runs() {
    let readme = fs::read_to_string(Path::new(ROOT).join("README.md")).unwrap();
    let block = |name: &str| &readme[between_marks(&readme, name).unwrap()];
    let dirs = runs(&BLOCKS.map(block).concat());
    assert!(!dirs.is_empty(), "tables without a run");
    let loaded: Vec<Run> =
        dirs.iter().map(|dir| Run::load(&Path::new(ROOT).join(dir)).unwrap()).collect();
    let kept: Vec<Kept<'_>> =
        dirs.iter().zip(&loaded).map(|(dir, run)| Kept { dir, run }).collect();
    for (name, printed) in blocks(&kept) {
        assert!(
            printed == block(name),
            "block {name}: samum-bench readme {} --into README.md\n{printed}",
            dirs.join(" ")
        );
    }
}

/// All runs that are kept, and none that a text links but that is not there.
#[test]
fn each_run_that_is_linked_can_be_read() {
    let root = Path::new(ROOT);
    let mut dirs: Vec<String> = fs::read_dir(root.join("docs/runs"))
        .unwrap()
        .map(|entry| entry.unwrap())
        .filter(|entry| entry.file_type().unwrap().is_dir())
        .map(|entry| format!("docs/runs/{}", entry.file_name().to_str().unwrap()))
        .collect();
    let mut texts: Vec<_> = ["README.md", "DESIGN.md"].map(|name| root.join(name)).into();
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

/// What is in a table with least and greatest behind it stands between the marks; elsewhere there are no
/// requests per second, no speeds and no percentiles.
#[test]
fn no_figure_stands_outside_the_tables() {
    let mut readme = fs::read_to_string(Path::new(ROOT).join("README.md")).unwrap();
    for name in BLOCKS {
        let range = between_marks(&readme, name).unwrap();
        readme.replace_range(range, "");
    }
    for word in ["MB/s", "req/s", "p50", "p99", "µs"] {
        assert!(!readme.contains(word), "'{word}' in README.md without a run");
    }
}
