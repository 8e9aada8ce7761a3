//! A table of servers, each compared with another: the cells that it shows, marks and leaves out.

use core::fmt::Write as _;

use super::show::Show;
use crate::league::rounds::Rounds;
use crate::spread::{ROUNDS_MIN, Spread, Value, are_ranked};
use crate::summary;
use crate::unit::NOTHING;

/// The end of the names of servers that run with the preload library.
pub(super) const PRELOADED: &str = "-preload";

/// A column's title, its name in the run, and how it is printed.
pub(super) type Figure<'a> = (&'a str, &'a str, Show);

/// A column, before the comparison shows whether its servers differ.
pub(super) struct Column {
    pub(super) title: String,
    /// The rounds that have its figure.
    pub(super) rounds: Rounds,
    pub(super) what: String,
    pub(super) show: Show,
}

/// Servers, each compared with another.
pub(super) struct Comparison {
    pub(super) title: String,
    /// A description of the measurement, a sentence or two.
    pub(super) about: String,
    pub(super) dirs: Vec<String>,
    pub(super) columns: Vec<Column>,
    pub(super) rows: Vec<Row>,
    /// If true, the table marks unranked cells, instead of leaving them out.
    pub(super) keeps_all: bool,
    /// After the table.
    pub(super) notes: Vec<String>,
}

/// A row, before the comparison shows whether it differs.
#[derive(Clone)]
pub(super) struct Row {
    /// The size of the file, where each has rows of its own: all rows of a table, or none.
    pub(super) size: Option<String>,
    pub(super) server: String,
    /// The server that it is compared with, at the same size; `None` for those that are only compared with.
    pub(super) reference: Option<String>,
}

impl Comparison {
    fn spread(&self, row: &Row, column: &Column) -> Option<Spread> {
        Spread::of(Self::rounds(&row.server, row, column))
    }

    /// The rounds of any server at the size of a row.
    fn rounds<'a>(server: &str, row: &Row, column: &'a Column) -> &'a [Value] {
        match &row.size {
            Some(size) => column.rounds.of(server, &at_size(&column.what, size)),
            None => column.rounds.of(server, &column.what),
        }
    }

    /// The rounds of a cell, and of the server that its row is compared with.
    fn both<'a>(row: &Row, column: &'a Column) -> Option<[&'a [Value]; 2]> {
        let reference = row.reference.as_ref()?;
        Some([&row.server, reference].map(|server| Self::rounds(server, row, column)))
    }

    /// Tells whether a cell says something about its server and the one it is compared with.
    fn is_ranked(row: &Row, column: &Column) -> bool {
        Self::both(row, column).is_some_and(|[one, other]| are_ranked(one, other))
    }

    /// Tells whether a cell has rounds enough for a ranking.
    fn is_rankable(&self) -> bool {
        let cells =
            self.rows.iter().flat_map(|row| self.columns.iter().map(move |column| (row, column)));
        let mut both = cells.filter_map(|(row, column)| Self::both(row, column));
        both.any(|both| both.iter().all(|rounds| rounds.len() >= ROUNDS_MIN))
    }

    fn cell(&self, row: &Row, column: &Column) -> String {
        let Some(spread) = self.spread(row, column) else { return NOTHING.to_owned() };
        let shown = spread.show(column.show);
        let is_unranked = row.reference.is_some() && !Self::is_ranked(row, column);
        if is_unranked && self.is_rankable() && shown != NOTHING {
            format!("{MARK} {shown}")
        } else {
            shown
        }
    }

    /// The heading, the table and its remarks; empty if nothing is ranked that could be, and if nothing is compared.
    pub(super) fn markdown(&self) -> String {
        let is_rankable = self.is_rankable();
        // With too few rounds for any ranking, all that has been measured of both servers counts.
        let counts = |row: &Row, column: &Column| match is_rankable {
            true => Self::is_ranked(row, column),
            false => Self::both(row, column)
                .is_some_and(|both| both.iter().all(|rounds| !rounds.is_empty())),
        };
        let measured = |column: &&Column| {
            self.rows.iter().any(|row| self.spread(row, column).is_some_and(is_a_number))
        };
        let shows =
            |column: &&Column| self.keeps_all || self.rows.iter().any(|row| counts(row, column));
        let measured: Vec<&Column> = self.columns.iter().filter(measured).collect();
        let (columns, left_out): (Vec<&Column>, Vec<&Column>) =
            measured.into_iter().partition(shows);
        let mut text = String::new();
        if columns.is_empty() {
            return text;
        }
        let is_shown = |row: &&Row| {
            let has_cell = columns.iter().any(|column| counts(row, column));
            // A server stays if such a server is compared with it.
            let is_needed = self.rows.iter().any(|other| {
                other.reference.as_ref() == Some(&row.server)
                    && other.size == row.size
                    && columns.iter().any(|column| counts(other, column))
            });
            self.keeps_all || has_cell || is_needed
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
        let is_compared = rows.iter().any(|row| row.reference.is_some());
        if is_compared && !is_rankable {
            let _ =
                write!(text, " Servers are ranked only if there are at least {ROUNDS_MIN} rounds.");
        }
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
        if is_rankable && !unranked.is_empty() {
            let unranked = unranked.join("; ");
            let _ = write!(
                text,
                " Not shown, because a permutation test does not tell their rounds from others: {unranked}."
            );
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
        format!("a permutation test does not tell the rounds from {whom}.")
    }
}

/// In front of a cell that is not ranked.
const MARK: &str = "≈";

fn is_a_number(spread: Spread) -> bool {
    spread.least.number.is_finite()
}

/// A row that is compared with another, if it is not that one.
pub(super) fn row(size: Option<&str>, server: &str, reference: &str) -> Row {
    let reference = (server != reference).then(|| reference.to_owned());
    Row { size: size.map(str::to_owned), server: server.to_owned(), reference }
}

/// The name of a figure at a size, where each size has rows of its own.
pub(super) fn at_size(what: &str, size: &str) -> String {
    format!("{what}, {size}")
}

#[cfg(test)]
mod tests {
    use super::super::show::whole;
    use super::*;

    /// A comparison of servers with "a", from their rounds of one figure, and of another that is the same
    /// for all.
    fn comparison(servers: &[(&str, [f64; 3])]) -> Comparison {
        comparison_of(servers, 4)
    }

    /// Each server has its values this many times.
    fn comparison_of(servers: &[(&str, [f64; 3])], times: usize) -> Comparison {
        let mut rounds = Rounds::default();
        for (server, values) in servers {
            for value in values.iter().cycle().take(times * values.len()) {
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
        let below = "12 rounds: median (least–greatest). Not shown, because a permutation test does not tell their \
                     rounds from others: c; the same. Run: [`docs/run`](docs/run/summary.md).\n";
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
        assert!(
            text.contains("≈: a permutation test does not tell the rounds from a's."),
            "{text}"
        );
        assert!(text.contains("| --- | --: | --: |"), "numbers all the same: {text}");
    }

    #[test]
    fn a_table_of_few_rounds_keeps_all_and_ranks_nothing() {
        let servers = [("b", [10.0, 11.0, 12.0]), ("c", [2.0, 4.0, 6.0]), ("a", [3.0, 4.0, 5.0])];
        let text = comparison_of(&servers, 3).markdown();
        for row in ["| b | 11 (10–12) | 7 (7–7) |", "| c | 4 (2–6) | 7 (7–7) |"] {
            assert!(text.contains(row), "{text}");
        }
        let below = "9 rounds: median (least–greatest). Servers are ranked only if there are at least 10 rounds. Run";
        assert!(text.contains(below) && !text.contains(MARK), "{text}");
    }

    #[test]
    fn sizes_have_rows_of_their_own() {
        let mut comparison = comparison(&[("b", [9.0; 3]), ("a", [8.0; 3])]);
        for (server, size, value) in [("b", "8 KiB", 5.0), ("a", "8 KiB", 2.0), ("a", "1 MiB", 7.0)]
        {
            for _ in 0..12 {
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
        let stalled = Value { number: 13.0, at_least: true };
        comparison.columns[0].rounds.add("b", "speed", stalled);
        let text = comparison.markdown();
        assert!(text.contains("(10–≥ 13) |"), "{text}");
        assert!(text.contains("12 to 13 rounds") && text.contains("≥: requests"), "{text}");
    }
}
