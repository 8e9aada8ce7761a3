//! The table of counts as text: printed, parsed, and compared. Pure.

use core::fmt;
use core::str::FromStr;
use std::collections::BTreeMap;

use crate::Error;

/// The costs of requests, and the machine and compiler they were counted with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Table {
    /// The facts besides the code that determine the counts: compiler, C library, processor, kernel.
    pub(super) made_with: BTreeMap<String, String>,
    /// One row for each kind of request.
    pub(super) rows: Vec<Row>,
    /// The kinds of requests that cannot be counted here, and the reasons. No text of a table has them.
    pub(super) skipped: Vec<(String, String)>,
}

/// The cost of one kind of request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row {
    /// The kind of request.
    pub(super) line: String,
    /// The percentage by which a count may differ from the kept one; [`SLACK`] instructions are always allowed.
    pub(super) percent: u64,
    /// With [`DRIVERS`], in that order.
    pub(super) costs: [Cost; 2],
}

/// The cost of one request with one driver.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Cost {
    pub(super) instructions: u64,
    /// Hundredths of system calls, by name.
    pub(super) calls: BTreeMap<String, u64>,
}

/// The drivers that are compared, as the table names them.
pub(super) const DRIVERS: [&str; 2] = ["io_uring", "epoll"];

/// The percentage for exact lines, whose system calls must also be the same as before.
pub(super) const EXACT: u64 = 3;

/// Counts that differ by at most this many instructions count as equal.
pub(super) const SLACK: u64 = 60;

const ABOUT: &str = "\
# Instructions in user space and system calls for one request, of the release build of samum with one worker.
# `samum-bench instructions --update FILE` writes this table; `--check FILE` counts again and fails where a line
# has grown or shrunk by more than it may, or by more than 60 instructions, whichever is more; the system calls of
# lines that may differ by 3 % must be the same. The worker and its helper threads are single-stepped from
# the moment a request is sent until they sleep again. The kernel's work, the effects of caches and branches, and the
# server's other threads are not counted. With an access log, each line is written by itself. A zero
# was not counted, and nothing is compared with it.
#
";

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(ABOUT)?;
        for (what, value) in &self.made_with {
            writeln!(f, "# {what}: {value}")?;
        }
        let heads = ["line", "may differ", DRIVERS[0], DRIVERS[1]].map(str::to_owned);
        let calls = DRIVERS.map(|driver| format!("system calls, {driver}"));
        let rows = self.rows.iter().map(Row::fields);
        let lines: Vec<[String; 6]> =
            [[&heads[..], &calls[..]].concat().try_into().unwrap_or_default()]
                .into_iter()
                .chain(rows)
                .collect();
        let width = |i: usize| lines.iter().map(|line| line[i].len()).max().unwrap_or(0);
        let [a, b, c, d, e] = [0, 1, 2, 3, 4].map(width);
        writeln!(f)?;
        for [line, percent, uring, epoll, uring_calls, epoll_calls] in &lines {
            writeln!(
                f,
                "{line:a$} | {percent:>b$} | {uring:>c$} | {epoll:>d$} | {uring_calls:e$} | {epoll_calls}"
            )?;
        }
        Ok(())
    }
}

impl Row {
    fn fields(&self) -> [String; 6] {
        let [uring, epoll] = &self.costs;
        [
            self.line.clone(),
            format!("{} %", self.percent),
            uring.instructions.to_string(),
            epoll.instructions.to_string(),
            words(&uring.calls),
            words(&epoll.calls),
        ]
    }

    fn parse(text: &str) -> Option<Self> {
        let fields: Vec<&str> = text.split('|').map(str::trim).collect();
        let [line, percent, uring, epoll, uring_calls, epoll_calls] = fields[..] else {
            return None;
        };
        let cost = |instructions: &str, calls| {
            Some(Cost { instructions: instructions.parse().ok()?, calls: parse_calls(calls)? })
        };
        Some(Self {
            line: line.to_owned(),
            percent: percent.strip_suffix('%')?.trim().parse().ok()?,
            costs: [cost(uring, uring_calls)?, cost(epoll, epoll_calls)?],
        })
    }
}

/// `sendto 1, splice 0.5`.
fn words(calls: &BTreeMap<String, u64>) -> String {
    let word = |(name, n): (&String, &u64)| match (n / 100, n % 100) {
        (whole, 0) => format!("{name} {whole}"),
        (whole, part) => format!("{name} {whole}.{part:02}"),
    };
    calls.iter().map(word).collect::<Vec<_>>().join(", ")
}

fn parse_calls(text: &str) -> Option<BTreeMap<String, u64>> {
    let parse = |word: &str| {
        let (name, number) = word.trim().split_once(' ')?;
        let (whole, part) = number.split_once('.').unwrap_or((number, "00"));
        let [whole, part]: [u64; 2] = [whole.parse().ok()?, part.parse().ok()?];
        Some((name.to_owned(), whole.checked_mul(100)?.checked_add(part)?))
    };
    text.split(',').filter(|word| !word.trim().is_empty()).map(parse).collect()
}

impl FromStr for Table {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let mut table = Self::default();
        let mut lines = text.lines().filter(|line| !line.trim().is_empty());
        for line in lines.by_ref() {
            let Some(comment) = line.strip_prefix('#') else { break };
            if let Some((what, value)) = comment.trim().split_once(": ") {
                table.made_with.insert(what.to_owned(), value.to_owned());
            }
        }
        // The line of heads ended the loop.
        for line in lines {
            let row = Row::parse(line).ok_or_else(|| format!("this is no row: {line}"))?;
            table.rows.push(row);
        }
        if table.rows.is_empty() {
            return Err("there is no table of instructions in it".to_owned());
        }
        Ok(table)
    }
}

/// The things that decide which instructions a source becomes, or which of its variants the C library
/// chooses.
const DECISIVE: [&str; 3] = ["compiler", "C library", "processor"];

/// The first decisive thing that is another than it was: the tables cannot be compared then.
pub(super) fn made_otherwise(kept: &Table, counted: &Table) -> Option<String> {
    DECISIVE.iter().find_map(|what| {
        let (old, new) = (kept.made_with.get(*what)?, counted.made_with.get(*what)?);
        (old != new).then(|| format!("{what}: {old}, now {new}"))
    })
}

/// The first of these tables that can be compared.
pub(super) fn comparable<'a>(kept: &'a [Table], counted: &Table) -> Option<&'a Table> {
    kept.iter().find(|kept| made_otherwise(kept, counted).is_none())
}

/// Whether a table has this cost for a line and a driver, or one that differs by no more than it may.
pub(super) fn agrees(kept: &Table, line: &str, driver: &str, new: &Cost) -> bool {
    let Some(row) = kept.rows.iter().find(|row| row.line == line) else { return false };
    DRIVERS.iter().zip(&row.costs).any(|(name, old)| {
        let is_counted = *name == driver && old.instructions != 0;
        is_counted && difference(line, driver, row.percent, (old, new)).is_none()
    })
}

/// Lines that say what differs by more than it may; none if nothing does.
pub(super) fn compare(kept: &Table, counted: &Table) -> Vec<String> {
    let mut differences = Vec::new();
    for new in &counted.rows {
        match kept.rows.iter().find(|row| row.line == new.line) {
            Some(old) => {
                for (driver, costs) in DRIVERS.iter().zip(old.costs.iter().zip(&new.costs)) {
                    differences.extend(difference(&new.line, driver, old.percent, costs));
                }
            }
            None => differences.push(format!("  {}: is not in the table\n", new.line)),
        }
    }
    for old in &kept.rows {
        let is_skipped = counted.skipped.iter().any(|(line, _)| *line == old.line);
        if !is_skipped && !counted.rows.iter().any(|row| row.line == old.line) {
            differences.push(format!("  {}: is no longer counted\n", old.line));
        }
    }
    if !differences.is_empty() {
        for (what, old) in &kept.made_with {
            let new = counted.made_with.get(what).map_or("unknown", |new| new);
            if new != old {
                differences.push(format!("  The {what} differs too: {old}, now {new}\n"));
            }
        }
    }
    differences
}

fn difference(
    line: &str,
    driver: &str,
    percent: u64,
    (old, new): (&Cost, &Cost),
) -> Option<String> {
    let [before, after] = [old.instructions, new.instructions];
    if before == 0 {
        return None;
    }
    let allowed = (before * percent / 100).max(SLACK);
    let [calls_before, calls_after] = [&old.calls, &new.calls].map(words);
    if before.abs_diff(after) > allowed {
        let sign = if after > before { '+' } else { '-' };
        let difference = before.abs_diff(after);
        Some(format!(
            "  {line}, {driver}: {before} instructions before, {after} now ({sign}{difference}, {allowed} allowed)\n"
        ))
    } else if percent <= EXACT && old.calls != new.calls {
        Some(format!("  {line}, {driver}: {calls_before} before, {calls_after} now\n"))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cost(instructions: u64, calls: &[(&str, u64)]) -> Cost {
        let calls = calls.iter().map(|(name, n)| ((*name).to_owned(), *n)).collect();
        Cost { instructions, calls }
    }

    fn table(uring: Cost, percent: u64) -> Table {
        let epoll = cost(900, &[("epoll_pwait2", 100), ("recvfrom", 6), ("sendto", 1250)]);
        Table {
            made_with: [("compiler".to_owned(), "rustc 1.95.0 (5 2026)".to_owned())].into(),
            rows: vec![Row { line: "hot 1 KiB".to_owned(), percent, costs: [uring, epoll] }],
            skipped: Vec::new(),
        }
    }

    #[test]
    fn a_table_is_parsed_as_it_is_printed() {
        let table = table(cost(1000, &[("sendto", 100)]), 3);
        let text = table.to_string();
        assert_eq!(text.parse(), Ok(table), "{text}");
        assert!(text.contains("epoll_pwait2 1, recvfrom 0.06, sendto 12.50"), "{text}");
        for wrong in ["", "# only: this\n", "line | a\nhot 1 KiB | 3 % | x | 1 | | \n"] {
            assert!(wrong.parse::<Table>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_cost_agrees_with_the_one_of_its_line_and_driver_if_that_was_counted() {
        let kept = table(cost(1000, &[]), 3);
        let calls = [("epoll_pwait2", 100), ("recvfrom", 6), ("sendto", 1250)];
        for (line, driver, new, want) in [
            ("hot 1 KiB", DRIVERS[0], cost(1060, &[]), true),
            ("hot 1 KiB", DRIVERS[0], cost(1061, &[]), false),
            ("hot 1 KiB", DRIVERS[0], cost(1000, &[("sendto", 100)]), false),
            ("hot 1 KiB", DRIVERS[1], cost(900, &calls), true),
            ("hot 1 KiB", DRIVERS[1], cost(1000, &[]), false),
            ("another", DRIVERS[0], cost(1000, &[]), false),
        ] {
            assert_eq!(agrees(&kept, line, driver, &new), want, "{line}, {driver}: {new:?}");
        }
        assert!(!agrees(&table(cost(0, &[]), 3), "hot 1 KiB", DRIVERS[0], &cost(0, &[])));
    }

    #[test]
    fn a_line_may_differ_by_its_share_or_by_the_slack() {
        let differs = |before: u64, after: u64, percent: u64| {
            let [before, after] = [before, after].map(|n| table(cost(n, &[]), percent));
            !compare(&before, &after).is_empty()
        };
        for (before, after, percent, want) in [
            (1000, 1000, 3, false),
            (0, 1000, 3, false),
            (1000, 1060, 3, false),
            (1000, 1061, 3, true),
            (1000, 940, 3, false),
            (1000, 939, 3, true),
            (10_000, 10_300, 3, false),
            (10_000, 10_301, 3, true),
            (10_000, 9_699, 3, true),
            (10_000, 11_000, 10, false),
            (10_000, 11_001, 10, true),
            (0, 60, 3, false),
        ] {
            assert_eq!(differs(before, after, percent), want, "{before} {after} {percent}");
        }
    }

    #[test]
    fn exact_lines_must_make_the_same_calls() {
        let differences = |percent| {
            let [one, two] = [100, 200].map(|n| table(cost(1000, &[("sendto", n)]), percent));
            compare(&one, &two)
        };
        assert_eq!(differences(3), ["  hot 1 KiB, io_uring: sendto 1 before, sendto 2 now\n"]);
        assert!(differences(10).is_empty());
    }

    #[test]
    fn tables_of_different_compilers_are_not_compared() {
        let kept = table(cost(1000, &[]), 3);
        assert_eq!(made_otherwise(&kept, &kept), None);
        let mut counted = kept.clone();
        counted.made_with.insert("compiler".to_owned(), "rustc 2.0".to_owned());
        let other = made_otherwise(&kept, &counted).unwrap();
        assert_eq!(other, "compiler: rustc 1.95.0 (5 2026), now rustc 2.0");
    }

    #[test]
    fn lines_that_come_and_go_and_another_compiler_are_told() {
        let kept = table(cost(1000, &[]), 3);
        let mut counted = kept.clone();
        counted.rows[0].line = "hot 2 KiB".to_owned();
        counted.made_with.clear();
        assert_eq!(
            compare(&kept, &counted),
            [
                "  hot 2 KiB: is not in the table\n",
                "  hot 1 KiB: is no longer counted\n",
                "  The compiler differs too: rustc 1.95.0 (5 2026), now unknown\n",
            ]
        );
    }

    #[test]
    fn a_line_that_cannot_be_counted_here_is_no_difference() {
        let kept = table(cost(1000, &[]), 3);
        let mut counted = kept.clone();
        counted.rows.clear();
        counted.skipped.push((kept.rows[0].line.clone(), "needs root".to_owned()));
        assert!(compare(&kept, &counted).is_empty());
    }
}
