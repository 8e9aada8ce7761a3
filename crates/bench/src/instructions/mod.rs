//! `samum-bench instructions`: the cost of a request in instructions and system calls, which noise does not change.
//!
//! The release build of `samum`, as users run it, serves requests on loopback with one worker. The worker
//! and its helper threads are single-stepped (`tracer`) from the moment a request is sent until all of
//! them sleep again and the client has the whole response. The instructions that they execute in user
//! space and the system calls that they make are counted. A table of the counts is kept with the code
//! (`docs/instructions.txt`), for one kind of processor. On such a processor CI compares each change with it (`table`).
//!
//! Requests to samum's own stack come over the link of `league` between two network namespaces. The link needs root;
//! without root their lines are skipped.
//!
//! The counts do not include the kernel's work (copies, TCP, the page cache, io_uring's threads), the effects of
//! caches and branch prediction, or the server's other threads (log, signals, the look at the directory twice a
//! second). They do not show what a busy worker saves by handling several completions in one turn. `league` and
//! `http` measure all of these with the clock.
//!
//! These measures make the counts repeatable: the client's receive buffer holds a whole response; each
//! request is sent when the work for the last one has ended; the files are old enough for the server to
//! trust their times; and each line has a server of its own. Periodic work (a new date each second,
//! another look at a watched file) can only add instructions, so the cheapest of several requests counts. One that costs
//! what the table says needs no others to be compared with it.

#[cfg(target_arch = "x86_64")]
mod calls;
#[cfg(target_arch = "x86_64")]
mod client;
#[cfg(target_arch = "x86_64")]
mod line;
mod table;
#[cfg(target_arch = "x86_64")]
mod tracer;

use std::fs;
use std::path::{Path, PathBuf};

use crate::{Error, Fault};
#[cfg(target_arch = "x86_64")]
use line::count_all;
use table::Table;

/// The command line of `samum-bench instructions`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Compare with the table in this file; fail if a line differs by more than its limit. May be repeated: the
    /// first table that was made with this processor, compiler and C library counts
    #[arg(long, value_name = "FILE", conflicts_with = "update")]
    pub check: Vec<PathBuf>,
    /// Write the table to this file
    #[arg(long, value_name = "FILE")]
    pub update: Option<PathBuf>,
    /// Count only the lines whose names contain this
    #[arg(long, value_name = "TEXT", default_value = "", conflicts_with = "update")]
    pub lines: String,
    /// Directory on a disk in which the served files are made; they are removed at the end [default: /var/tmp]
    #[arg(long, value_name = "DIR")]
    pub root: Option<PathBuf>,
}

/// The reasons for having no table.
#[derive(Debug)]
pub(crate) enum Stop {
    /// Instructions cannot be counted here.
    Skip(String),
    /// Something went wrong.
    Failed(Error),
}

impl From<std::io::Error> for Stop {
    fn from(error: std::io::Error) -> Self {
        Self::Failed(error.to_string())
    }
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl From<Fault> for Stop {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Skip(why) => Self::Skip(why),
            Fault::Failed(error) => Self::Failed(error),
        }
    }
}

/// Counts, and compares, writes or returns the table. Returns what to print.
///
/// # Errors
/// A sentence for exit code 1: a server that does not serve, a file that cannot be read or written, or
/// the lines that differ.
pub fn run(args: &Args) -> Result<String, Error> {
    // A wrong file is reported before counting, which takes a minute or two.
    let mut tables = args.check.iter().map(|path| load(path)).collect::<Result<Vec<_>, _>>()?;
    for table in &mut tables {
        table.rows.retain(|row| row.line.contains(&args.lines));
    }
    let counted = match count_all(args.root.as_deref(), &args.lines, &tables) {
        Ok(counted) => counted,
        Err(Stop::Skip(why)) => return Ok(format!("skipped: {why}\n")),
        Err(Stop::Failed(error)) => return Err(error),
    };
    let skipped: String =
        counted.skipped.iter().map(|(line, why)| format!("skipped: {line}: {why}\n")).collect();
    if let Some(path) = &args.update {
        if !skipped.is_empty() {
            return Err(format!("a table without these lines is not written:\n{skipped}"));
        }
        crate::run::write(path, counted.to_string().as_bytes())?;
    }
    let mut notes = skipped;
    if let Some(kept) = table::comparable(&tables, &counted) {
        let differences = table::compare(kept, &counted);
        if !differences.is_empty() {
            return Err(format!(
                "instructions differ from those that were kept:\n{}If that is meant, --update writes them.",
                differences.concat()
            ));
        }
    } else if let Some(other) =
        tables.first().and_then(|kept| table::made_otherwise(kept, &counted))
    {
        notes += &format!("skipped: the table was made with another {other}\n");
    }
    Ok(format!("{counted}{notes}"))
}

#[cfg(not(target_arch = "x86_64"))]
fn count_all(_root: Option<&Path>, _wanted: &str, _kept: &[Table]) -> Result<Table, Stop> {
    Err(Stop::Skip("instructions are counted on x86_64 only".to_owned()))
}

fn load(path: &Path) -> Result<Table, Error> {
    let failed = |error: &dyn core::fmt::Display| format!("{}: {error}", path.display());
    let text = fs::read_to_string(path).map_err(|error| failed(&error))?;
    text.parse().map_err(|error: Error| failed(&error))
}
