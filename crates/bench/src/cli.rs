//! The command line as it is written: the subcommands.

use std::path::PathBuf;

use clap::{Parser, Subcommand};

use crate::args::Tests;

/// Does it scale? Times every single step of N, plots step i against i, and says constant,
/// logarithmic, linear or worse.
#[derive(Debug, Parser)]
#[command(name = "samum-bench", version, propagate_version = true, max_term_width = 100)]
#[command(
    after_help = "Exit codes: 0 all went well, 1 something failed while running, 2 the command line is wrong, \
                  130 interrupted (by ctrl-C, SIGTERM or SIGHUP): what was measured until then is written."
)]
pub struct Cli {
    /// The subcommand.
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Does the operating system scale? fork, mmap, open, bind, timers, io_uring and more
    Os(Tests),
    /// Do the ways to wait for events scale? select, poll, SIGIO, epoll, io_uring
    Events(Tests),
    /// Does an HTTP server scale? Latency against open connections, maximum, latency at rates
    Http(crate::http::Args),
    /// samum, nginx, h2o, lighttpd and Caddy side by side: warm, cold, download, mixed, idle
    League(crate::league::Args),
    /// Do the ways to send a file scale to a disk? read, sendfile, threads, AIO, io_uring, samum
    Disk(crate::disk::Args),
    /// What `disk` measures: serves files by one strategy until its parent has gone
    #[command(hide = true)]
    DiskSender(crate::disk::sender::Args),
    /// What does a request cost samum? Instructions and system calls, by single-stepping
    Instructions(crate::instructions::Args),
    /// One HTML page for several runs, overlaid
    Report {
        /// Directories of runs
        #[arg(value_name = "RUN", required = true)]
        runs: Vec<PathBuf>,
        /// The page to write
        #[arg(long, value_name = "FILE", default_value = "report.html")]
        out: PathBuf,
    },
    /// The tables of README.md, from runs of the league
    Readme {
        /// Directories of runs, from where README.md is; of a test in several of them the first counts
        #[arg(value_name = "RUN", required = true)]
        runs: Vec<PathBuf>,
        /// Put them between their marks in this file, instead of printing them
        #[arg(long, value_name = "FILE")]
        into: Option<PathBuf>,
    },
    /// Ratios of two runs or two machines, and which are beyond noise
    Compare {
        /// Directory of the run that counts as 1
        a: PathBuf,
        /// Directory of the run to compare with it
        b: PathBuf,
        /// Print JSON instead of a table
        #[arg(long)]
        json: bool,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }
}
