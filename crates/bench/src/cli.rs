//! The command line as it is written: the subcommands.

use std::path::PathBuf;

use clap::{Parser, Subcommand};

use crate::args::Tests;

/// Benchmarks of operating systems and servers. Each of N steps is timed, and the growth of the times
/// is classified as constant, logarithmic, linear or worse
#[derive(Debug, Parser)]
#[command(name = "samum-bench", version, propagate_version = true, max_term_width = 100)]
#[command(
    after_help = "Exit codes: 0 success, 1 an error while running, 2 an error in the command line, 130 an \
                  interruption by Ctrl-C, SIGTERM or SIGHUP (the measurements made until then are written; a \
                  second Ctrl-C leaves at once, without them, and servers, mounts and limits of disks behind)."
)]
pub struct Cli {
    /// The subcommand.
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Calls of the operating system: fork, mmap, open, bind, timers, io_uring and others
    Os(Tests),
    /// Ways to wait for events: select, poll, SIGIO, epoll, io_uring
    Events(Tests),
    /// Any HTTP server: latency by open connections, maximum rate, latency at fixed rates
    Http(crate::http::Args),
    /// Comparison of samum, nginx, h2o, lighttpd and Caddy: warm, cold, download, mixed, films, idle
    League(crate::league::Args),
    /// Ways to send files from a disk: read, sendfile, threads, AIO, io_uring, samum
    Disk(crate::disk::Args),
    /// The server that `disk` measures, which sends files by one strategy until its parent exits
    #[command(hide = true)]
    DiskSender(crate::disk::sender::Args),
    /// As many connections as a server can hold, from an interface of their own
    Crowd(crate::crowd::Args),
    /// Instructions and system calls of samum for one request, counted by single-stepping
    Instructions(crate::instructions::Args),
    /// One HTML page with the plots of several runs
    Report {
        /// Directories of runs
        #[arg(value_name = "RUN", required = true)]
        runs: Vec<PathBuf>,
        /// The page to write
        #[arg(long, value_name = "FILE", default_value = "report.html")]
        out: PathBuf,
    },
    /// The tables of README.md and docs/measurements.md, from runs of the league
    Readme {
        /// Directories of runs, relative to the file; if several have the same test, the first counts
        #[arg(value_name = "RUN", required = true)]
        runs: Vec<PathBuf>,
        /// Write those that this file has marks for into it instead of printing them
        #[arg(long, value_name = "FILE")]
        into: Option<PathBuf>,
    },
    /// Ratios between two runs or two machines, and which of them exceed the noise
    Compare {
        /// Directory of the run that is the base
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
