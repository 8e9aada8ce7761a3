//! The tables of README.md and docs/measurements.md, made from runs alone. `samum-bench readme` prints them. Pure.
//!
//! A table shows how servers differ, so it leaves out equal results. Every cell is the median of the rounds, followed
//! by the least and the greatest. A cell is *ranked* when its rounds differ enough from those of the server that its
//! row is compared with ([`are_ranked`]); other cells are marked. A column or a row without ranked cells is left
//! out, and named below the table. It stays if the question is the cost of something, because "nothing that could be
//! measured" is a result, too. A table of too few rounds for any ranking says so and keeps all of its cells. A closed
//! loop has no latencies.
//!
//! [`are_ranked`]: crate::spread::are_ranked

mod aims;
mod comparison;
mod notes;
mod preload;
mod show;
mod tables;

use crate::league::rounds::Rounds;
use crate::run::{Ran, Run};
use comparison::Comparison;

/// A run and what to call its directory.
#[derive(Clone, Copy, Debug)]
pub struct Kept<'a> {
    /// The directory, from where the text is that gets the tables.
    pub dir: &'a str,
    /// The contents of the run.
    pub run: &'a Run,
}

/// The blocks that come from runs: name and Markdown. If several runs hold a test, an aim uses the first. A table of
/// servers also uses the first, unless few servers took part in it.
#[must_use]
pub fn blocks(runs: &[Kept<'_>]) -> Vec<(&'static str, String)> {
    let text = |tables: Vec<Comparison>| tables.iter().map(Comparison::markdown).collect();
    let beside = text(tables::cold_table(runs).into_iter().collect());
    let servers = text(tables::of_servers(runs));
    let gateways = text(tables::of_gateways(runs));
    let preload = text(preload::tables(runs));
    let aims = aims::table(runs);
    vec![
        ("beside", beside),
        ("servers", servers),
        ("gateways", gateways),
        ("preload", preload),
        ("aims", aims),
    ]
}

/// Puts blocks between their marks in a text: `<!-- samum-bench readme: NAME -->` and `<!-- end -->`, each on a line
/// of its own. Blocks that the text has no marks for are left out.
///
/// # Errors
/// A sentence, when the text has no marks, or only the first of a block.
pub fn insert(text: &str, blocks: &[(&'static str, String)]) -> Result<String, String> {
    let mut inserted = text.to_owned();
    let wanted = blocks.iter().filter(|(name, _)| text.contains(&begin(name)));
    for (name, block) in wanted.clone() {
        let range = between_marks(&inserted, name)?;
        inserted.replace_range(range, block);
    }
    if wanted.count() == 0 { Err(missing(&begin("NAME"))) } else { Ok(inserted) }
}

/// A block with its marks.
#[must_use]
pub fn block(name: &str, text: &str) -> String {
    format!("{}{text}{END}", begin(name))
}

fn begin(name: &str) -> String {
    format!("<!-- samum-bench readme: {name} -->\n")
}

/// The position of a block in a text, without its marks.
///
/// # Errors
/// A sentence, if a mark is missing.
pub fn between_marks(text: &str, name: &str) -> Result<core::ops::Range<usize>, String> {
    let begin = begin(name);
    let start = text.find(&begin).ok_or_else(|| missing(&begin))? + begin.len();
    let length = text[start..].find(END).ok_or_else(|| missing(END))?;
    Ok(start..start + length)
}

fn missing(mark: &str) -> String {
    format!("there is no line '{}' in it", mark.trim_end())
}

/// After a block.
const END: &str = "<!-- end -->\n";

/// The first run that holds a test, and the test.
fn find<'a>(runs: &[Kept<'a>], test: &str) -> Option<(Kept<'a>, &'a Ran, Rounds)> {
    all(runs, test).next()
}

/// The first run in which at least half as many servers took part in a test as in any run, and the test. A table
/// compares, and a run of one or two servers has another purpose.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_go_between_their_marks() {
        let blocks = [("one", "1\n".to_owned()), ("two", "2\n".to_owned())];
        let text = format!("a\n{}b\n{}c\n", block("two", "old\n"), block("one", ""));
        let new = insert(&text, &blocks).unwrap();
        assert_eq!(new, format!("a\n{}b\n{}c\n", block("two", "2\n"), block("one", "1\n")));
        assert_eq!(insert(&new, &blocks).unwrap(), new, "twice is once");
        let some = block("one", "old\n");
        assert_eq!(insert(&some, &blocks).unwrap(), block("one", "1\n"), "those with marks");
        assert!(insert("nothing", &blocks).unwrap_err().contains("readme: NAME -->"));
        let unended = text.replace("<!-- end -->", "");
        assert!(insert(&unended, &blocks).unwrap_err().contains("<!-- end -->"));
    }
}
