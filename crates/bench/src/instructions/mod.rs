//! `samum-bench instructions`: what a request costs, in a unit that noise does not touch.
//!
//! The release build of `samum`, as users run it, serves requests on loopback while its worker and the
//! worker's helper threads are single-stepped ([`tracer`]). Counted is what they execute in user space
//! from the moment a request is sent until all of them sleep again and the client has the response; the
//! system calls of the same time are counted by name. A table of both is kept with the code
//! (`docs/instructions.txt`), and a change that makes a line grow or shrink is seen by comparing
//! ([`table`]).
//!
//! Not seen: the kernel's work (copies, TCP, the page cache, the threads of io_uring), what the processor makes of
//! instructions (cache and branch misses), the server's other threads (log, signals, the look at the
//! directory twice a second), and what batches save, for the worker has only one thing to do at a time.
//! `league` and `http` measure those, by the clock.
//!
//! What would make counts differ from run to run is kept away: the client's receive buffer takes a whole
//! response; each request comes when whatever the last one left behind has been done; files are older than
//! the server's doubt in their times; and each line has a server of its own. A new date once a second, or
//! another look at a watched file, only adds to a request, so the cheapest of several counts.

#[cfg(target_arch = "x86_64")]
mod calls;
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
    /// Compare with a table that was kept, and fail where a line differs by more than it may
    #[arg(long, value_name = "FILE", conflicts_with = "update")]
    pub check: Option<PathBuf>,
    /// Write the table to this file
    #[arg(long, value_name = "FILE")]
    pub update: Option<PathBuf>,
    /// Where to make the files to serve, on a disk, in a directory of their own, which is removed [default: /var/tmp]
    #[arg(long, value_name = "DIR")]
    pub root: Option<PathBuf>,
}

/// Why there is no table.
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
    // A wrong file is told before a minute has passed.
    let kept = args.check.as_deref().map(load).transpose()?;
    let counted = match count_all(args.root.as_deref()) {
        Ok(counted) => counted,
        Err(Stop::Skip(why)) => return Ok(format!("skipped: {why}\n")),
        Err(Stop::Failed(error)) => return Err(error),
    };
    if let Some(path) = &args.update {
        crate::run::write(path, counted.to_string().as_bytes())?;
    }
    if let Some(kept) = kept {
        let differences = table::compare(&kept, &counted);
        if !differences.is_empty() {
            return Err(format!(
                "instructions differ from those that were kept:\n{}If that is meant, --update writes them.",
                differences.concat()
            ));
        }
    }
    Ok(counted.to_string())
}

#[cfg(not(target_arch = "x86_64"))]
fn count_all(_root: Option<&Path>) -> Result<Table, Stop> {
    Err(Stop::Skip("instructions are counted on x86_64 only".to_owned()))
}

fn load(path: &Path) -> Result<Table, Error> {
    let failed = |error: &dyn core::fmt::Display| format!("{}: {error}", path.display());
    let text = fs::read_to_string(path).map_err(|error| failed(&error))?;
    text.parse().map_err(|error: Error| failed(&error))
}
