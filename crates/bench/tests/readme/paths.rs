//! Each file that a paper or a comment names is there: a reader who follows the name finds it.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::ROOT;
use super::english::papers;

/// The directories of sources.
const SOURCES: [&str; 3] = ["crates", "fuzz", "examples"];

/// Adds the paths of all files beneath a directory, without those of builds.
fn add_files(dir: &Path, files: &mut BTreeSet<String>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.ends_with("target") {
            add_files(&path, files);
        } else if path.is_file() {
            let name = path.strip_prefix(ROOT).unwrap().to_str().expect("our names are text");
            files.insert(name.to_owned());
        }
    }
}

/// Returns the names of files of Rust and of papers in the code spans of a line.
fn names(line: &str) -> impl Iterator<Item = &str> {
    let spans = line.split('`').skip(1).step_by(2);
    spans.filter(|name| {
        let is_path =
            name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '/'));
        is_path && (name.ends_with(".rs") || name.ends_with(".md"))
    })
}

/// Returns whether there is such a file. The first part may be a crate, whose `src` is left out.
fn is_there(name: &str, files: &BTreeSet<String>) -> bool {
    let in_crate = name.replacen('/', "/src/", 1);
    [name, &in_crate].iter().any(|name| {
        let end = format!("/{name}");
        files.iter().any(|file| file == name || file.ends_with(&end))
    })
}

#[test]
fn each_file_that_is_named_is_there() {
    let mut files = BTreeSet::new();
    for dir in SOURCES.into_iter().chain(["docs"]) {
        add_files(&Path::new(ROOT).join(dir), &mut files);
    }
    let papers = papers().into_iter().map(|path| path.strip_prefix(ROOT).unwrap().to_owned());
    let papers: Vec<String> = papers.map(|path| path.to_str().unwrap().to_owned()).collect();
    files.extend(papers.iter().cloned());
    let mut missing = Vec::new();
    let sources: Vec<_> = files.iter().filter(|name| name.ends_with(".rs")).collect();
    for name in sources.into_iter().chain(&papers) {
        let text = fs::read_to_string(Path::new(ROOT).join(name)).unwrap();
        let is_source = name.ends_with(".rs");
        for (number, line) in text.lines().enumerate() {
            let comment =
                if is_source { line.split_once("//").map_or("", |(_, it)| it) } else { line };
            let gone = names(comment).filter(|named| !is_there(named, &files));
            missing.extend(gone.map(|named| format!("{name}:{}: {named}", number + 1)));
        }
    }
    assert!(missing.is_empty(), "there are no such files:\n{}", missing.join("\n"));
}
