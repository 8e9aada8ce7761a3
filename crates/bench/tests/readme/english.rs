//! A sentence of the papers has at most 30 words, so that readers read it once.
//!
//! A colon and a semicolon end a sentence here, because each side can be read alone. The ends of list items and of
//! table cells end a sentence, too. A piece of code is one word, and a number is none.

use std::fs;
use std::path::{Path, PathBuf};

use super::ROOT;

const WORDS_MAX: usize = 30;

/// All papers for users and for contributors.
pub(super) fn papers() -> Vec<PathBuf> {
    let root = Path::new(ROOT);
    let names =
        ["README.md", "DESIGN.md", "CHANGELOG.md", "CONTRIBUTING.md", "docs/runs/README.md"];
    let entries = fs::read_dir(root.join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let docs = entries.filter(|path| path.extension().is_some_and(|end| end == "md"));
    names.map(|name| root.join(name)).into_iter().chain(docs).collect()
}

/// Returns the paragraphs, list items and cells of a text, each in one line. Code and tables of runs are left out.
fn paragraphs(text: &str) -> Vec<String> {
    let (mut all, mut paragraph) = (Vec::new(), String::new());
    let (mut is_code, mut is_made) = (false, false);
    for line in text.lines().map(str::trim) {
        is_made |= line.starts_with("<!-- samum-bench readme:");
        let is_fence = line.starts_with("```");
        is_code ^= is_fence;
        let is_row = line.starts_with('|');
        let is_left_out = is_code || is_fence || is_made || is_row;
        let is_other = line.is_empty() || line.starts_with(['#', '<']);
        let is_item =
            line.starts_with("- ") || line.starts_with(|first: char| first.is_ascii_digit());
        if is_left_out || is_other || is_item {
            all.push(core::mem::take(&mut paragraph));
        }
        if is_row && !is_code && !is_made {
            all.extend(line.split('|').map(str::to_owned));
        } else if !is_left_out && !is_other {
            paragraph = paragraph + line + " ";
        }
        is_made &= line != "<!-- end -->";
    }
    all.push(paragraph);
    all
}

/// Returns the sentences of a paragraph.
fn sentences(paragraph: &str) -> Vec<String> {
    // Every second part is code.
    let parts = paragraph.split('`').enumerate();
    let text: String = parts.map(|(at, part)| if at % 2 == 0 { part } else { "code" }).collect();
    let (mut all, mut sentence) = (Vec::new(), String::new());
    for word in text.split_whitespace() {
        sentence = sentence + word + " ";
        if word.ends_with(['.', ':', ';', '?', '!']) {
            all.push(core::mem::take(&mut sentence));
        }
    }
    all.push(sentence);
    all
}

fn words(sentence: &str) -> usize {
    sentence.split_whitespace().filter(|word| word.contains(char::is_alphabetic)).count()
}

#[test]
fn sentences_of_the_papers_are_short() {
    let mut long = Vec::new();
    for path in papers() {
        let text = fs::read_to_string(&path).unwrap();
        let all = paragraphs(&text).into_iter().flat_map(|paragraph| sentences(&paragraph));
        let too_long = all.filter(|sentence| words(sentence) > WORDS_MAX);
        long.extend(too_long.map(|sentence| format!("{}: {sentence}", path.display())));
    }
    assert!(long.is_empty(), "more than {WORDS_MAX} words:\n{}", long.join("\n"));
}

#[test]
fn words_are_counted_by_sentence() {
    let text = "# Title\nOne `a b c` two\nthree. Four\n\n- five 6; seven\n\n```\ncode here\n```\n| a b | c. d |\n";
    let counts: Vec<usize> = paragraphs(text)
        .iter()
        .flat_map(|paragraph| sentences(paragraph))
        .map(|sentence| words(&sentence))
        .filter(|&count| count > 0)
        .collect();
    assert_eq!(counts, [4, 1, 1, 1, 2, 1, 1]);
}
