//! The command `samum-bench`.

use std::io::{self, IsTerminal as _, Write as _};
use std::panic;
use std::process::{self, ExitCode};

use clap::Parser as _;
use samum_bench::args::{self, How, Tests};
use samum_bench::cli::{Cli, Command};
use samum_bench::run::Run;
use samum_bench::{
    Error, Test, compare, crowd, disk, events, http, instructions, interrupt, league, os, readme,
    report, suite, summary,
};

/// Why the command ends with another code than 0.
enum Stop {
    /// 1.
    Failed(Error),
    /// 2.
    Usage(String),
    /// 130, after the earlier failures.
    Interrupted(Vec<Error>),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

fn main() -> ExitCode {
    // In any thread, because after a panic the remaining state is unreliable.
    let hook = panic::take_hook();
    panic::set_hook(Box::new(move |fault| {
        hook(fault);
        process::abort();
    }));
    // clap itself exits with 2 for arguments that it cannot parse, and with 0 for --help.
    let result = match Cli::parse().command {
        Command::Os(tests) => tested("os", os::tests(), &tests),
        Command::Events(tests) => tested("events", events::tests(), &tests),
        Command::Http(args) => http::tests(&args)
            .map_err(Stop::Usage)
            .and_then(|all| tested("http", all, &args.tests())),
        Command::League(args) => league::tests(&args)
            .map_err(Stop::Usage)
            .and_then(|all| tested("league", all, &args.tests)),
        Command::Disk(args) => {
            disk::tests(&args).map_err(Stop::Usage).and_then(|all| tested("disk", all, &args.tests))
        }
        Command::DiskSender(args) => disk::sender::run(&args)
            .map_err(|error| Stop::Failed(format!("the sender cannot serve: {error}"))),
        Command::Crowd(args) => {
            crowd::run(&args).and_then(|it| print(&it.to_string())).map_err(Stop::Failed)
        }
        Command::Instructions(args) => {
            instructions::run(&args).and_then(|text| print(&text)).map_err(Stop::Failed)
        }
        Command::Report { runs, out } => report(&runs, &out),
        Command::Readme { runs, into } => readme(&runs, into.as_deref()),
        Command::Compare { a, b, json } => compare(&a, &b, json),
    };
    let (code, error) = match result {
        Ok(()) => return ExitCode::SUCCESS,
        Err(Stop::Failed(error)) => (1, error),
        Err(Stop::Usage(error)) => (2, error),
        Err(Stop::Interrupted(mut errors)) => {
            errors.push("interrupted: what was measured until then is written".to_owned());
            (interrupt::EXIT_CODE, errors.join("\nsamum-bench: "))
        }
    };
    // If standard error is closed, the exit code has to suffice.
    let _ = writeln!(io::stderr(), "samum-bench: {error}");
    ExitCode::from(code)
}

/// Runs the tests that were named, or lists them.
fn tested(suite: &str, all: Vec<Test>, command: &Tests) -> Result<(), Stop> {
    let chosen = args::choose(all, &command.tests).map_err(Stop::Usage)?;
    if command.list {
        let lines: String = chosen
            .iter()
            .map(|test| format!("{:18} {}\n", test.about().name, test.about().title))
            .collect();
        return Ok(print(&lines)?);
    }
    measure(suite, chosen, &command.how)
}

/// Runs tests, prints their verdicts, and fails if one failed.
fn measure(suite: &str, tests: Vec<Test>, how: &How) -> Result<(), Stop> {
    let finished = suite::run(tests, &how.options(suite))?;
    if how.json {
        let mut json = serde_json::to_string_pretty(&summary::summary(&finished.run))
            .map_err(|error| format!("cannot write the summary: {error}"))?;
        json.push('\n');
        print(&json)?;
    } else {
        print(&format!(
            "{}\n{}\n",
            summary::markdown(&finished.run),
            finished.dir.join(report::PAGE).display()
        ))?;
    }
    if finished.run.meta.interrupted {
        Err(Stop::Interrupted(finished.failures))
    } else if finished.failures.is_empty() {
        Ok(())
    } else {
        Err(Stop::Failed(finished.failures.join("\nsamum-bench: ")))
    }
}

fn report(dirs: &[std::path::PathBuf], out: &std::path::Path) -> Result<(), Stop> {
    let runs = dirs.iter().map(|dir| Run::load(dir)).collect::<Result<Vec<_>, _>>()?;
    samum_bench::run::write(out, report::page(&runs)?.as_bytes())?;
    if io::stdout().is_terminal() {
        print(&format!("{}\n", out.display()))?;
    }
    Ok(())
}

fn readme(dirs: &[std::path::PathBuf], into: Option<&std::path::Path>) -> Result<(), Stop> {
    let runs = dirs.iter().map(|dir| Run::load(dir)).collect::<Result<Vec<_>, _>>()?;
    let names: Vec<String> = dirs.iter().map(|dir| name_of(dir)).collect();
    let kept = names.iter().zip(&runs).map(|(dir, run)| readme::Kept { dir, run });
    let blocks = readme::blocks(&kept.collect::<Vec<_>>());
    if blocks.iter().all(|(_, block)| block.is_empty()) {
        return Err(Stop::Failed(format!(
            "no table of README.md or docs/measurements.md is of {}: they show servers of samum-bench league, without \
             what the rounds do not tell apart; give other runs",
            names.join(", ")
        )));
    }
    let Some(path) = into else {
        let text: String = blocks.iter().map(|(name, block)| readme::block(name, block)).collect();
        return Ok(print(&text)?);
    };
    let failed = |error: &dyn core::fmt::Display| format!("{}: {error}", path.display());
    let text = std::fs::read_to_string(path).map_err(|error| failed(&error))?;
    let text = readme::insert(&text, &blocks).map_err(|error| failed(&error))?;
    Ok(samum_bench::run::write(path, text.as_bytes())?)
}

fn compare(a: &std::path::Path, b: &std::path::Path, json: bool) -> Result<(), Stop> {
    let (a, b) = (Run::load(a)?, Run::load(b)?);
    let compared = compare::compare(&a, &b);
    if json {
        let text = serde_json::to_string_pretty(&compared)
            .map_err(|error| format!("cannot write the comparison: {error}"))?;
        print(&(text + "\n"))?;
    } else {
        print(&compare::markdown(&compared))?;
    }
    Ok(())
}

/// The name of a directory, without a slash at its end: links in tables continue it.
fn name_of(dir: &std::path::Path) -> String {
    dir.display().to_string().trim_end_matches('/').to_owned()
}

/// Prints to standard output. A reader that closes the pipe early (`head`) is no error.
fn print(text: &str) -> Result<(), Error> {
    match io::stdout().write_all(text.as_bytes()).and_then(|()| io::stdout().flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(format!("cannot write to standard output: {error}"))
        }
        _ => Ok(()),
    }
}
