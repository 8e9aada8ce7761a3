//! `samum-bench disk`: strategies for sending a cold file, with one sender on one CPU, and hot requests at the same
//! time. It is chapter 2.3 of Smirnoff's thesis on sendfile (2014) as a program. It also is the network half of the
//! kevent posts (Polyakov 2006): several system calls that receive and send.
//!
//! | test | asks |
//! |---|---|
//! | [`bytes`] | whether each strategy delivers every byte, and with how many system calls |
//! | [`beside`]: `slow` | the latency of hot requests while others wait for a slow disk |
//! | [`beside`]: `fast` | the speed and the CPU time of downloads from the disk at full speed |
//! | [`network`]: `receive`, `send` | the cost of several system calls, without a disk |
//!
//! The strategies share one event loop, and differ in the way of the bytes of files: see [`sender`].

use core::time::Duration;
use std::path::PathBuf;
use std::rc::Rc;

use crate::args::{Tests, rate, seconds};
use crate::league::peers::Peer;
use crate::league::server::{Host, Server};
use crate::league::site::Site;
use crate::league::throttle::Throttle;
use crate::{Fault, Recorder, Test, machine};

pub mod beside;
pub mod bytes;
mod calls;
pub mod network;
pub mod sender;

use sender::Strategy;

/// The command line of `samum-bench disk`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Tests to run: bytes, slow, fast, receive, send.
    #[command(flatten)]
    pub tests: Tests,
    /// Directory on the disk to measure; files are made in it, and removed at the end
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    pub root: PathBuf,
    /// Strategies to compare [default: all]
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', value_enum)]
    pub strategies: Vec<Strategy>,
    /// Rounds in which the strategies take turns [default: 3, quick 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: Option<u32>,
    /// slow: seconds of each measurement [default: 3, quick 0.5]
    #[arg(long, value_name = "S", value_parser = seconds)]
    pub secs: Option<f64>,
    /// slow: the limit of the disk, bytes per second
    #[arg(long, value_name = "N", default_value_t = 32 << 20, value_parser = clap::value_parser!(u64).range(1 << 20..=1 << 34))]
    pub rate: u64,
    /// slow, fast: bytes of all files together; as many again as `slow` can read, at least [default: 1 GiB, quick 64 MiB]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1 << 20..=1 << 40))]
    pub bytes: Option<u64>,
    /// slow, fast: concurrent downloads
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub readers: u32,
    /// slow, fast: hot requests per second
    #[arg(long, value_name = "N", default_value_t = 2000.0, value_parser = rate)]
    pub requests: f64,
    /// receive, send: bytes of each transfer [default: 4 GiB, quick 256 MiB]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1 << 20..=1 << 40))]
    pub transfer: Option<u64>,
    /// CPU of the sender [default: the first, if there are two]
    #[arg(long, value_name = "N", value_parser = crate::args::cpu)]
    pub sender_cpu: Option<usize>,
    /// CPU of the clients [default: the first of another core, if there are two]
    #[arg(long, value_name = "N", value_parser = crate::args::cpu)]
    pub client_cpu: Option<usize>,
}

/// The parameters of all tests.
#[derive(Debug)]
struct Plan {
    root: PathBuf,
    strategies: Vec<Strategy>,
    length: Duration,
    quick: bool,
    rate: u64,
    bytes: u64,
    readers: usize,
    requests: f64,
    /// Rounded so that ten sockets get equal parts.
    transfer: u64,
    sender_cpu: Option<usize>,
    client_cpu: Option<usize>,
}

/// The tests, in the order of the table above.
///
/// # Errors
/// A message for exit code 2, if the command line is invalid.
pub fn tests(args: &Args) -> Result<Vec<Test>, String> {
    if !args.root.is_dir() {
        return Err(format!("--root: {} is not a directory", args.root.display()));
    }
    let quick = args.tests.how.quick;
    let two_cpus = machine::two_cpus();
    let length = Duration::from_secs_f64(args.secs.unwrap_or(if quick { 0.5 } else { 3.0 }));
    let all = || <Strategy as clap::ValueEnum>::value_variants().to_vec();
    let needed = args.rate.saturating_mul(2 * (length.as_secs() + 2));
    let bytes = args.bytes.unwrap_or(if quick { 64 << 20 } else { 1 << 30 });
    let plan = Rc::new(Plan {
        root: args.root.clone(),
        strategies: if args.strategies.is_empty() { all() } else { args.strategies.clone() },
        length,
        quick,
        rate: args.rate,
        bytes: bytes.max(needed),
        readers: usize::try_from(args.readers).unwrap_or(usize::MAX),
        requests: args.requests,
        transfer: args.transfer.unwrap_or(if quick { 256 << 20 } else { 4 << 30 }) / 10 * 10,
        sender_cpu: args.sender_cpu.or_else(|| two_cpus.map(|cpus| cpus.0)),
        client_cpu: args.client_cpu.or_else(|| two_cpus.map(|cpus| cpus.1)),
    });
    let rounds = |n| args.rounds.map_or(n, |n| usize::try_from(n).unwrap_or(usize::MAX));
    let tests = [
        beside::slow(&plan),
        beside::fast(&plan),
        network::receive(&plan),
        network::send_test(&plan),
    ];
    let tests = tests.into_iter().map(|test| test.steps(rounds(3), rounds(1)));
    Ok(core::iter::once(bytes::test(&plan)).chain(tests).collect())
}

impl Plan {
    /// Makes the directory for the files.
    fn site(&self) -> Result<Site, Fault> {
        let site = Site::new(Some(&self.root))?;
        site.needs_a_disk()?;
        Ok(site)
    }

    /// Starts a sender. If it cannot run, its row has the reason.
    fn start(
        &self,
        recorder: &mut Recorder<'_>,
        strategy: Strategy,
        site: &Site,
        throttle: Option<&Throttle>,
    ) -> Result<Option<Server>, Fault> {
        let us = std::env::current_exe()?.display().to_string();
        let strategy = strategy.name();
        let words = [&us, "disk-sender", "--strategy", &strategy, "--port", "{port}", "{root}"];
        let peer = Peer {
            name: strategy.clone(),
            command: words.map(str::to_owned).to_vec(),
            configuration: String::new(),
            environment: Vec::new(),
            version: &[],
            needs_files: false,
        };
        let cpu = self.sender_cpu;
        let host =
            Host { root: site.root(), files: &[], cpu, throttle, origin: None, network: None };
        match Server::start(&peer, host) {
            Ok(server) => Ok(Some(server)),
            Err(absent) => {
                // ctrl-C may have come before the sender was ready.
                if !recorder.is_stopped() {
                    recorder.skip(&strategy, absent.why());
                }
                Ok(None)
            }
        }
    }

    /// Describes the CPUs of the sender and the clients.
    fn where_it_runs(&self) -> String {
        match (self.sender_cpu, self.client_cpu) {
            (Some(sender), Some(client)) if sender != client => {
                format!("sender on CPU {sender}, clients on CPU {client}")
            }
            _ => "sender and clients share CPUs: figures are of both".to_owned(),
        }
    }
}
