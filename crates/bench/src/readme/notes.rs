//! The notes below a table: they say whether clients copied, which servers met the limit of the load generator, and why
//! a run should be repeated.

use super::comparison::{PRELOADED, Row};
use super::{Kept, find};
use crate::league::peers::ORIGIN;
use crate::league::wire;
use crate::load;
use crate::run::{Ran, Run};

/// The notes below a table with these rows: of its clients, of limits of the load generator, of versions, and of doubts.
pub(super) fn notes(run: &Run, ran: &Ran, rows: &[Row]) -> Vec<String> {
    let first = receives(run, &ran.about.name).into_iter().chain(limits(ran));
    first.chain(versions(run, names(rows))).chain(doubts(run)).collect()
}

/// As [`notes`], for a table of CPU alone, which a load generator at its limit does not change.
pub(super) fn notes_of_cpu(run: &Run, test: &str, rows: &[Row]) -> Vec<String> {
    receives(run, test).into_iter().chain(versions(run, names(rows))).chain(doubts(run)).collect()
}

fn names(rows: &[Row]) -> impl Iterator<Item = &str> {
    rows.iter().map(|row| &row.server[..])
}

/// Why a run should be made again before anybody believes it.
pub(super) fn doubts(run: &Run) -> Option<String> {
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

/// Says whether the clients of a test copy the bodies that they receive, if it has figures for that. Some kept runs are
/// older than the sentence in their tables, so the run's command decides.
pub(super) fn receives(run: &Run, test: &str) -> Option<String> {
    let words = load::receives(copies(run, test)?);
    let (first, rest) = words.split_at(1);
    Some(format!("{}{rest}.", first.to_uppercase()))
}

/// As [`receives`], for a table of two tests, which may be of two runs.
pub(super) fn received(runs: &[Kept<'_>], tests: [&str; 2]) -> Vec<String> {
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

/// Tells whether the client of a test copied received bytes; `None` if it made no difference, because all bytes came
/// with heads.
pub(super) fn copies(run: &Run, test: &str) -> Option<bool> {
    let (by_option, never) = (BY_OPTION.contains(&test), NEVER_COPIED.contains(&test));
    (by_option || never).then(|| by_option && run.meta.command.iter().any(|word| word == "--copy"))
}

/// Tests in which `--copy` decides.
pub(super) const BY_OPTION: [&str; 10] = [
    "warm",
    wire::KEPT,
    wire::CLOSED,
    "cold",
    "mixed",
    "steady",
    "hung",
    "proxied",
    "fastcgi",
    "includes",
];

/// Tests in which the client never copies.
pub(super) const NEVER_COPIED: [&str; 5] =
    ["disk", "download", "asleep", "wire-cold", "proxied-slow"];

/// The versions of these servers, as a run has noted them: each program once. `None` if the run has noted none.
pub(super) fn versions<'a>(
    run: &Run,
    servers: impl IntoIterator<Item = &'a str>,
) -> Option<String> {
    let mut all = Vec::new();
    for server in servers {
        let said = run.meta.versions.iter().find(|(name, _)| name == server);
        let Some(version) = said.and_then(|(_, said)| number(said)) else { continue };
        // Servers that differ only in their settings have a common beginning.
        let program = match server.split('-').next() {
            Some(ORIGIN) => "nginx",
            program => program.unwrap_or(server),
        };
        let version = format!("{program} {version}");
        if !all.contains(&version) {
            all.push(version);
        }
    }
    (!all.is_empty()).then(|| format!("Versions: {}.", all.join(", ")))
}

/// The version in the words with which a program shows it: `1.22.1` in `nginx version: nginx/1.22.1`.
fn number(said: &str) -> Option<&str> {
    let words = said.split_whitespace().map(|word| word.rsplit('/').next().unwrap_or(word));
    let mut words = words.map(|word| word.trim_start_matches('v'));
    words.find(|word| word.starts_with(|c: char| c.is_ascii_digit()) && word.contains('.'))
}

/// Names the figures that the load generator limited, not the server, by the remarks of the test's table.
pub(super) fn limits(ran: &Ran) -> Option<String> {
    let rows = ran.tables.iter().flat_map(|table| &table.rows);
    let of_rows = rows.filter_map(|row| Some((&row.first()?[..], &row.last()?[..])));
    // Tests without remarks in their tables have notes.
    let of_notes = ran.notes.iter().filter_map(|note| note.split_once(": "));
    let mut names = Vec::new();
    for (name, said) in of_rows.chain(of_notes) {
        let is_shown = !name.ends_with(PRELOADED) && name != "floor";
        if said.contains("the load generator used") && is_shown && !names.contains(&name) {
            names.push(name);
        }
    }
    (!names.is_empty()).then(|| {
        format!(
            "The load generator was at its limit with {}: they may serve more requests per second.",
            names.join(", ")
        )
    })
}

/// The note of a test that begins in some way, as a sentence.
pub(super) fn setup(ran: &Ran, begin: &str) -> String {
    let note = ran.notes.iter().find(|note| note.contains(begin));
    let mut letters = note.map_or("", |note| &note[..]).chars();
    let first = letters.next().map(|first| first.to_uppercase().to_string());
    first.map_or_else(String::new, |first| format!("{first}{}.", letters.as_str()))
}

#[cfg(test)]
mod tests {
    use super::super::aims;
    use super::super::tables::{GATEWAYS, gateway_table};
    use super::*;

    /// A run with a table of servers, and one with a table whose bodies all come with their heads.
    fn run_of(command: &[&str]) -> Run {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/runs/2026-11-26-gateways");
        let mut run = Run::load(std::path::Path::new(path)).unwrap();
        run.meta.command = command.iter().map(|word| (*word).to_owned()).collect();
        run
    }

    #[test]
    fn tables_say_what_the_client_does_with_bodies() {
        let discards = "The load generator discards the bytes that it receives, in the kernel.";
        let copies = "The load generator copies the bytes that it receives, so it uses more CPU time than one that discards them.";
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
            assert!(aims.contains(words), "{aims}");
        }
        // In these tests the generator never copies, with any command.
        assert_eq!(receives(&run_of(&["--copy"]), "download").unwrap(), discards);
        assert_eq!(receives(&run_of(&["--copy"]), "idle"), None);
    }

    #[test]
    fn versions_are_shown_once_for_each_program() {
        for (said, version) in [
            ("nginx version: nginx/1.22.1", Some("1.22.1")),
            ("h2o version 2.2.5", Some("2.2.5")),
            ("lighttpd/1.4.69 (ssl) - a light and fast webserver", Some("1.4.69")),
            ("v2.10.2", Some("2.10.2")),
            (
                "HAProxy version 2.6.12-1+deb12u3 2025/10/03 - https://haproxy.org/",
                Some("2.6.12-1+deb12u3"),
            ),
            ("samum 0.5.0", Some("0.5.0")),
            ("no number", None),
        ] {
            assert_eq!(number(said), version);
        }
        let mut run = run_of(&[]);
        let version = |name: &str, said: &str| (name.to_owned(), said.to_owned());
        run.meta.versions = vec![
            version("nginx", "nginx version: nginx/1.22.1"),
            version("nginx-aio", "nginx version: nginx/1.22.1"),
            version("samum", "samum 0.5.0"),
        ];
        let of = |names: &[&str]| versions(&run, names.iter().copied());
        assert_eq!(
            of(&["nginx", "nginx-aio", "floor", "samum"]).unwrap(),
            "Versions: nginx 1.22.1, samum 0.5.0."
        );
        assert_eq!(of(&["floor"]), None);
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
}
