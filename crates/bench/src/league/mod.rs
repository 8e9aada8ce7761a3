//! `samum-bench league`: file servers side by side, in one run, on one machine.
//!
//! The server runs on one CPU, the load generator on another. Servers take turns in random order and medians count.
//! So a drift of the machine's speed, and the state that one server leaves to the next, affects all of them. A server's
//! CPU time is the time of all its threads, with the kernel's work for it. On a shared machine CPU time is steadier
//! than requests per second. Every server's bytes are compared with the files first.
//!
//! | test | asks |
//! |---|---|
//! | [`warm`] | the cost of a request when all files are cached |
//! | [`wire`] | the cost of a request, and of a connection, over a link: the kernel's TCP and a stack of samum's own |
//! | [`wire_cold`] | the cost and the memory of downloads from the disk over a link, with both stacks |
//! | [`wire_idle`] | the memory of idle connections to a stack of samum's own, and the latency of other requests meanwhile |
//! | [`dns`] | the cost of a DNS response over a link: the kernel's UDP and a stack of samum's own |
//! | [`cold`] | the speed of hot requests during downloads from a slow disk |
//! | [`disk`] | the CPU and the speed of downloads from the disk, as ratios to other servers |
//! | [`download`] | the speed of downloads from the disk at full speed, one and many at the same time |
//! | [`mixed`] | the latency of requests when some files are cached and some are not |
//! | [`steady`] | the load that a server bears, when clients become more and more |
//! | [`films`] | the time to the first picture, and the bytes read in vain, with players on a slow disk |
//! | [`crawler`] | the bytes read from the disk of a site that does not fit into memory, while a crawler reads |
//! | [`asleep`] | the time that threads sleep for the disk |
//! | [`proxy::stalled`] | requests for hot files while others wait for a stalled server |
//! | [`hung`] | the latency of requests while others wait for a device that does not answer |
//! | [`idle`] | the cost of idle connections |
//! | [`tls`] | the cost of requests and handshakes with TLS |
//! | [`proxy`] | the cost of passing responses on: large ones, small ones, to slow clients; of FastCGI, and of pages with parts of other servers |
//!
//! Servers take turns on one CPU, with the load on another. In `cold`, `mixed` and `steady` each server gets a fresh control
//! group: in a group whose limit had been lifted and set again, servers read faster than the limit. No file is read
//! twice. `wire` and `wire-close` measure the busy time of the server's core over a link between two network
//! namespaces, because no process is charged for the kernel's work on packets. A server that fails is dropped and
//! named.

use core::cell::{Cell, RefCell};
use core::time::Duration;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use crate::args::{Tests, rate, seconds};
use crate::http::figures::remarks;
use crate::load::account::Bottleneck;
use crate::load::{self, Account, Background, Failure, Order, Plan, Target};
use crate::run::Table;
use crate::spread::ROUNDS_MIN;
use crate::stats::float;
use crate::{Fault, Recorder, Test, interrupt, machine};

pub mod asleep;
pub mod cold;
pub mod crawler;
pub mod disk;
mod diskstats;
pub mod dns;
pub mod download;
pub mod films;
pub mod hung;
pub mod idle;
pub mod image;
pub mod mixed;
pub mod network;
pub mod peers;
pub mod proxy;
pub mod rounds;
pub mod server;
pub mod site;
pub mod sizes;
pub mod steady;
pub mod throttle;
pub mod tls;
pub mod turns;
pub mod warm;
pub mod wire;
pub mod wire_cold;
pub mod wire_idle;

use peers::Peer;
use rounds::Rounds;
use server::{Absent, Host, Server};
use site::Site;
use steady::DiskLimit;
use throttle::Throttle;
use turns::Turns;

/// The command line of `samum-bench league`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Tests to run: warm, wire, wire-close, wire-cold, wire-idle, dns, cold, disk, download, mixed, steady, films, crawler, asleep, hung, idle, tls,
    /// proxied, proxied-small, proxied-tls, proxied-slow, proxied-units, fastcgi, includes, stalled.
    #[command(flatten)]
    pub tests: Tests,
    /// Servers to compare [default: all that samum-bench knows]
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    pub servers: Vec<String>,
    /// One more server, started by a command with {root}, {ip} and {port}, or a proxy with {origin} and
    /// {port}; may be repeated
    #[arg(long, value_name = "NAME=COMMAND")]
    pub add: Vec<String>,
    /// Directory in which the served files are made; they are removed at the end [default: /var/tmp]
    #[arg(long, value_name = "DIR")]
    pub root: Option<PathBuf>,
    /// Rounds in which the servers take turns [default: 10, idle and steady 3, quick 1]; fewer than 10 rank nothing
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: Option<u32>,
    /// Seconds of each measurement [default: 3, quick 0.4]; steady: of the time in which clients become more [default: 180,
    /// quick 3]
    #[arg(long, visible_alias = "seconds", value_name = "S", value_parser = seconds)]
    pub secs: Option<f64>,
    /// warm, wire: sizes of files, bytes [default: 128,8192,65536, warm 1048576 as well, quick 128,65536]
    #[arg(long, value_name = "N,...", value_delimiter = ',', value_parser = clap::value_parser!(u64).range(..=1 << 40))]
    pub sizes: Vec<u64>,
    /// warm, wire: connections; dns: clients
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub connections: u32,
    /// cold, films: the limit of the disk, bytes per second; mixed, asleep: four times as many
    #[arg(long, value_name = "N", default_value_t = 16 << 20, value_parser = clap::value_parser!(u64).range(1 << 16..=1 << 34))]
    pub rate: u64,
    /// steady: limits of the disk, bytes per second, or none [default: 16 MiB, 64 MiB and none, quick 64 MiB]
    #[arg(long, value_name = "N,...", value_delimiter = ',', value_parser = DiskLimit::parse)]
    pub disks: Vec<DiskLimit>,
    /// steady: clients per second from a disk without a limit, at most
    #[arg(long, value_name = "N", default_value_t = 8000.0, value_parser = rate)]
    pub peak: f64,
    /// cold, mixed: concurrent downloads from the disk; films: players [default: 8, films 16]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub readers: Option<u32>,
    /// cold, mixed: requests per second in measurements at a fixed rate [default: 5000, mixed 1000]
    #[arg(long, value_name = "N", value_parser = rate)]
    pub requests: Option<f64>,
    /// disk, download: bytes of the file [default: 1 GiB, quick 32 MiB]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1 << 20..=1 << 40))]
    pub bytes: Option<u64>,
    /// proxied: sizes of downloads, bytes [default: 1 MiB,64 MiB,1 GiB, quick 64 KiB,8 MiB]
    #[arg(long, value_name = "N,...", value_delimiter = ',', value_parser = clap::value_parser!(u64).range(1..=1 << 40))]
    pub downloads: Vec<u64>,
    /// proxied-slow: clients [default: 100, quick 10]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub clients: Option<u32>,
    /// idle: connections; hung: requests [default: 10000, quick 500]; wire-idle: connections [default: 1000000, quick 5000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub count: Option<u32>,
    /// Copy received bytes out of the kernel instead of discarding them there; not in download, where
    /// one CPU cannot copy as fast as a disk reads
    #[arg(long)]
    pub copy: bool,
    /// CPU of the servers [default: the first, if there are two]
    #[arg(long, value_name = "N", value_parser = crate::args::cpu)]
    pub server_cpu: Option<usize>,
    /// CPU of the load generator [default: the first of another core, if there are two]
    #[arg(long, value_name = "N", value_parser = crate::args::cpu)]
    pub client_cpu: Option<usize>,
}

/// The parameters of all tests of a league.
#[derive(Debug)]
pub struct League {
    /// Servers of files.
    peers: Vec<Peer>,
    /// Proxies, and the origin asked directly.
    proxies: Vec<Peer>,
    /// The servers that were chosen, if any were.
    only: Option<Vec<String>>,
    described: Cell<bool>,
    root: Option<PathBuf>,
    length: Duration,
    quick: bool,
    sizes: Vec<u64>,
    wire_sizes: Vec<u64>,
    connections: usize,
    /// The rounds of `idle`, whose steps are connections.
    rounds: usize,
    rate: u64,
    /// The disks of `steady`, and the time in which its clients become more.
    disks: Vec<DiskLimit>,
    steady_length: Duration,
    /// Clients per second from a disk without a limit.
    peak: f64,
    readers: usize,
    /// The number of players of films.
    players: usize,
    requests: Option<f64>,
    bytes: u64,
    /// Idle connections to a stack of samum's own.
    crowd: u32,
    /// Sizes of proxied downloads.
    downloads: Vec<u64>,
    /// Slow clients of a proxy.
    clients: usize,
    copy: bool,
    /// Requests for a device that hangs.
    hung: usize,
    server_cpu: Option<usize>,
    client_cpu: Option<usize>,
    silent: Silent,
    turns: Turns,
    limits: Limits,
}

/// The tests of a league, in the order of the table above.
///
/// # Errors
/// A message for exit code 2, if the command line is invalid.
pub fn tests(args: &Args) -> Result<Vec<Test>, String> {
    let quick = args.tests.how.quick;
    let names = || peers::KNOWN.iter().chain(&peers::PROXIES).map(|name| (*name).to_owned());
    let names = if args.servers.is_empty() { names().collect() } else { args.servers.clone() };
    let added = args.add.iter().map(|text| Peer::added(text));
    let peers: Vec<Peer> =
        names.iter().map(|name| Peer::named(name)).chain(added).collect::<Result<_, _>>()?;
    if let Some(twice) =
        (1..peers.len()).find(|&i| peers[..i].iter().any(|p| p.name == peers[i].name))
    {
        return Err(format!("'{}' takes part twice", peers[twice].name));
    }
    if let Some(root) = args.root.as_ref().filter(|root| !root.is_dir()) {
        return Err(format!("--root: {} is not a directory", root.display()));
    }
    let (proxies, peers) =
        peers.into_iter().partition(|peer| peer.is_proxy() || peer.name == peers::ORIGIN);
    let downloads: &[u64] =
        if quick { &[64 << 10, 8 << 20] } else { &[1 << 20, 64 << 20, 1 << 30] };
    let small: &[u64] = if quick { &[128, 65_536] } else { &[128, 8192, 65_536] };
    let large: &[u64] = if quick { &[] } else { &[1 << 20] };
    let sizes_or = |sizes: &[&[u64]]| {
        if args.sizes.is_empty() { sizes.concat() } else { args.sizes.clone() }
    };
    let two_cpus = machine::two_cpus();
    let index = |n: u32| usize::try_from(n).unwrap_or(usize::MAX);
    let rounds_or = |n| index(args.rounds.unwrap_or(n));
    let league = Rc::new(League {
        peers,
        proxies,
        only: (!args.servers.is_empty()).then(|| args.servers.clone()),
        described: Cell::new(false),
        root: args.root.clone(),
        length: Duration::from_secs_f64(args.secs.unwrap_or(if quick { 0.4 } else { 3.0 })),
        quick,
        sizes: sizes_or(&[small, large]),
        wire_sizes: sizes_or(&[small]),
        connections: index(args.connections),
        rounds: rounds_or(if quick { 1 } else { 3 }),
        rate: args.rate,
        disks: match (&args.disks[..], quick) {
            ([], false) => steady::DISKS.to_vec(),
            ([], true) => steady::DISKS_QUICK.to_vec(),
            (disks, _) => disks.to_vec(),
        },
        steady_length: Duration::from_secs_f64(args.secs.unwrap_or(if quick {
            steady::SECONDS_QUICK
        } else {
            steady::SECONDS
        })),
        peak: args.peak,
        readers: index(args.readers.unwrap_or(8)),
        players: index(args.readers.unwrap_or(16)),
        requests: args.requests,
        bytes: args.bytes.unwrap_or(if quick { 32 << 20 } else { 1 << 30 }),
        downloads: if args.downloads.is_empty() {
            downloads.to_vec()
        } else {
            args.downloads.clone()
        },
        clients: index(args.clients.unwrap_or(if quick { 10 } else { 100 })),
        crowd: args.count.unwrap_or(if quick { 5000 } else { 1_000_000 }),
        copy: args.copy,
        hung: index(args.count.unwrap_or(if quick { 500 } else { 10_000 })),
        server_cpu: args.server_cpu.or_else(|| two_cpus.map(|cpus| cpus.0)),
        client_cpu: args.client_cpu.or_else(|| two_cpus.map(|cpus| cpus.1)),
        silent: Silent::default(),
        turns: Turns { seed: fastrand::u64(..) },
        limits: Limits::default(),
    });
    let rounds = |test: Test| {
        let full = args.rounds.map_or(ROUNDS_MIN, index);
        test.steps(full, rounds_or(1))
    };
    let count = |n| index(args.count.unwrap_or(n));
    let [wire, wire_close] = wire::tests(&league);
    let all = vec![
        rounds(warm::test(&league)),
        rounds(wire),
        rounds(wire_close),
        rounds(wire_cold::test(&league)),
        rounds(wire_idle::test(&league)),
        rounds(dns::test(&league)),
        rounds(cold::test(&league)),
        rounds(disk::test(&league)),
        rounds(download::test(&league)),
        rounds(mixed::test(&league)),
        steady::test(&league).steps(rounds_or(3), rounds_or(1)),
        rounds(films::test(&league)),
        rounds(crawler::test(&league)),
        rounds(asleep::test(&league)),
        rounds(hung::test(&league)),
        idle::test(&league).steps(count(10_000), count(500)),
        rounds(tls::test(&league)),
        rounds(proxy::download::test(&league)),
        rounds(proxy::small::test(&league)),
        rounds(proxy::secured::test(&league)),
        rounds(proxy::slow::test(&league)),
        rounds(proxy::units::test(&league)),
        rounds(proxy::fastcgi::test(&league)),
        rounds(proxy::includes::test(&league)),
        rounds(proxy::stalled::test(&league)),
    ];
    let with_limits = |test: Test| {
        let league = Rc::clone(&league);
        test.then(move |recorder| league.limits.note(recorder))
    };
    Ok(all.into_iter().map(with_limits).collect())
}

/// A load and its cost for the server.
#[derive(Debug)]
struct Measured {
    account: Account,
    /// CPU time of the server, warm-up and end included.
    cpu: Duration,
}

impl Measured {
    /// Nanoseconds of the server's CPU for each response.
    fn cpu_per_request(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e9 / float(self.account.answered_ever)
    }
}

impl League {
    /// A closed loop against a server; shorter than the default for a quick run.
    fn plan(&self, server: &Server, targets: Vec<Target>) -> Plan {
        Plan {
            warmup: self.length.min(Duration::from_millis(500)) / 2,
            duration: self.length,
            timeout: Duration::from_secs(if self.quick { 1 } else { 20 }),
            cpu: self.client_cpu,
            copy: self.copy,
            connections: self.connections,
            ..Plan::new(server.address(), targets)
        }
    }

    /// The remark for tables of loads of [`Self::plan`] whose bodies are so large that not all of them come with their
    /// heads.
    fn receives(&self) -> &'static str {
        load::receives(self.copy)
    }

    /// Starts a peer and compares its bytes. A peer that cannot take part becomes a row that says
    /// why, once.
    fn start(
        &self,
        recorder: &mut Recorder<'_>,
        peer: &Peer,
        site: &Site,
        files: &[String],
        throttle: Option<&Throttle>,
    ) -> Option<Server> {
        let cpu = self.server_cpu;
        let host = Host { root: site.root(), files, cpu, throttle, origin: None, network: None };
        self.start_on(recorder, peer, site, host)
    }

    /// As `start`, on a given host.
    fn start_on(
        &self,
        recorder: &mut Recorder<'_>,
        peer: &Peer,
        site: &Site,
        host: Host<'_>,
    ) -> Option<Server> {
        if peer.needs_files && host.files.len() > FLOOR_FILES {
            recorder.skip(&peer.name, format!("knows {FLOOR_FILES} files at most"));
            return None;
        }
        let checked = &host.files[..host.files.len().min(CHECKED)];
        self.start_checked(recorder, peer, host, |server| {
            checked.iter().try_for_each(|file| server.check(site.root(), file))
        })
    }

    /// Starts a peer and checks it. A peer that cannot take part becomes a row with the reason; a silent one is not
    /// started again.
    fn start_checked(
        &self,
        recorder: &mut Recorder<'_>,
        peer: &Peer,
        host: Host<'_>,
        check: impl FnOnce(&Server) -> Result<(), Absent>,
    ) -> Option<Server> {
        for (name, path) in peer.binaries().iter().filter(|(_, path)| path.exists()) {
            recorder.binary(name, path);
        }
        let start = || Server::start(peer, host).and_then(|server| check(&server).map(|()| server));
        match self.silent.unless(&peer.name, start) {
            Ok(server) => Some(server),
            Err(why) => {
                // ctrl-C may have come before the server was ready.
                if !recorder.is_stopped() {
                    recorder.skip(&peer.name, why);
                }
                None
            }
        }
    }

    /// The servers of these names, of which some may have been chosen.
    fn chosen(&self, names: &[&str]) -> Result<Vec<Peer>, Fault> {
        let is_chosen =
            |name: &str| self.only.as_ref().is_none_or(|only| only.iter().any(|it| it == name));
        let names = names.iter().filter(|name| is_chosen(name));
        let peers: Vec<Peer> =
            names.map(|name| Peer::named(name).map_err(Fault::Failed)).collect::<Result<_, _>>()?;
        if peers.is_empty() { Err(Fault::Skip("none was chosen".into())) } else { Ok(peers) }
    }

    /// Compares the response at `path` with the bytes of a file. A server that fails becomes a row with the reason.
    fn compared(
        &self,
        recorder: &mut Recorder<'_>,
        server: Option<Server>,
        path: &str,
        file: &Path,
    ) -> Option<Server> {
        let server = server?;
        match self.silent.unless(server.name(), || server.check_path(path, file)) {
            Ok(()) => Some(server),
            Err(why) => {
                recorder.skip(server.name(), why);
                None
            }
        }
    }

    /// Runs a load and measures the server's CPU time. A load that ctrl-C cuts short is an error.
    fn measure(&self, server: &mut Server, plan: &Plan) -> Result<Measured, Fault> {
        let before = server.cpu();
        let account = load::measure(plan)
            .and_then(|account| interrupt::check().map(|()| account))
            .map_err(|error| Fault::Failed(error.to_string()))?;
        self.limits.add(server.name(), account.bottleneck());
        Ok(Measured { account, cpu: server.cpu() - before })
    }

    /// Lets the peers take turns, one round for each step of the recorder, from 1 on; until ctrl-C. A
    /// peer whose turn fails becomes a row that says why, and has no further turns; the others go on.
    ///
    /// Returns the fault with which to end the test after its table, if no peer is left.
    fn take_turns(
        &self,
        recorder: &mut Recorder<'_>,
        mut turn: impl FnMut(&mut Recorder<'_>, &Peer, f64) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let count = self.peers.len();
        let total = recorder.steps() * count;
        let mut dropped = Dropped::default();
        let turns = (0..recorder.steps()).flat_map(|round| self.turns.of(count, round));
        for (nth, index) in turns.enumerate() {
            if recorder.is_stopped() {
                break;
            }
            let (peer, round) = (&self.peers[index], nth / count + 1);
            if !dropped.has(&peer.name)
                && let Err(fault) = turn(recorder, peer, float(round))
            {
                dropped.add(recorder, &peer.name, round, fault);
            }
            recorder.progress(float(nth + 1) / float(total));
        }
        dropped.result(self.peers.len())
    }

    /// A plan that downloads each of these files of `len` bytes once, all at the same time.
    fn at_once(&self, server: &Server, files: &[String], len: u64) -> Plan {
        let target = |file| Target { len: Some(len), ..Target::new(format!("/{file}")) };
        Plan {
            order: Order::Once,
            connections: files.len(),
            warmup: Duration::ZERO,
            duration: AT_ONCE_LIMIT,
            timeout: AT_ONCE_LIMIT,
            // A client that copies would be measured, not the servers.
            copy: AT_ONCE_COPIES,
            ..self.plan(server, files.iter().map(target).collect())
        }
    }

    /// Downloads these files of `len` bytes, [`Self::readers`] at a time. Each is requested once, because a second
    /// response would come from memory.
    fn download(&self, server: &Server, files: &[String], len: u64) -> Background {
        let target = |file| Target { len: Some(len), ..Target::new(format!("/{file}")) };
        let targets = files.iter().map(target).collect();
        let forever = Duration::from_secs(3600);
        Background::start(Plan {
            order: Order::Once,
            connections: self.readers,
            warmup: Duration::ZERO,
            duration: forever,
            timeout: forever,
            ..self.plan(server, targets)
        })
    }

    /// Ends downloads of several files, and notes which of them failed or ended too early.
    fn end(&self, recorder: &mut Recorder<'_>, server: &str, downloads: Background, files: usize) {
        let result = downloads.stop();
        if let Ok(account) = &result {
            self.limits.add(server, account.bottleneck());
            let left = files - usize::try_from(account.answered_ever).unwrap_or(files).min(files);
            if left < self.readers {
                recorder.note(format!(
                    "{server}: files ran out: {left} of {} downloads at once when the measurement ended",
                    self.readers
                ));
            }
        }
        match result {
            // Downloads in progress are not among the failures.
            Ok(account) if account.failed_ever() > account.failed(Failure::Unfinished) => {
                recorder.note(format!("{server}, downloads: {}", account.failures()));
            }
            Ok(_) => {}
            Err(error) => recorder.note(format!("{server}: the downloads ended early: {error}")),
        }
    }

    /// The remarks about a server's rounds. They include reads from the disk, by name in `rounds`, beyond the disk's
    /// limit.
    fn remarks(
        accounts: &[&Account],
        rounds: &Rounds,
        server: &str,
        read: &str,
        limit: u64,
    ) -> String {
        let mut said = remarks(accounts);
        let (above, of) = rounds.above(server, read, LIMIT_MISSED * float(limit));
        if above > 0 {
            let separator = if said.is_empty() { "" } else { "; " };
            // As the column has it.
            let limit = float(limit) / 1e6;
            said += &format!(
                "{separator}the disk gave more than its limit of {limit:.1} MB/s in {above} of {of} rounds"
            );
        }
        said
    }

    /// Shows versions, commands and configurations of all possible participants as tables, and their machine. Once per
    /// run.
    fn describe(&self, recorder: &mut Recorder<'_>) {
        if !self.described.replace(true) {
            self.describe_these(recorder, &self.peers);
        }
    }

    /// As `describe`, for these participants.
    fn describe_these<'a>(
        &self,
        recorder: &mut Recorder<'_>,
        peers: impl IntoIterator<Item = &'a Peer>,
    ) {
        recorder.note(match (self.server_cpu, self.client_cpu) {
            (Some(server), Some(client)) if server != client => {
                format!("server on CPU {server}, load generator on CPU {client}")
            }
            _ => "server and load generator share CPUs: figures are of both".to_owned(),
        });
        recorder.note(format!(
            "servers take turns in a random order of each round; seed {}",
            self.turns.seed
        ));
        for peer in peers.into_iter().filter(|peer| peer.program().is_ok()) {
            // The path of the library is private; meta.json has its hash.
            let file = |value: &str| value.rsplit('/').next().unwrap_or(value).to_owned();
            let environment =
                peer.environment.iter().map(|(name, value)| format!("{name}={}", file(value)));
            let command =
                environment.chain(peer.command.iter().cloned()).collect::<Vec<_>>().join(" ");
            let version = server::version(peer).unwrap_or_default();
            if !version.is_empty() {
                recorder.version(&peer.name, &version[..]);
            }
            let mut rows = vec![vec![command]];
            rows.extend(peer.configuration.lines().map(|line| vec![line.to_owned()]));
            let title = format!("{}: {version}", peer.name);
            recorder.table(Table { title, head: vec!["command and configuration".into()], rows });
        }
    }
}

/// Servers that sent nothing until a time limit, and the sentence about it. They are asked once per run, because each
/// try would take as long.
#[derive(Debug, Default)]
struct Silent(RefCell<Vec<(String, String)>>);

impl Silent {
    /// Asks a server, unless it has been silent before.
    fn unless<T>(&self, name: &str, ask: impl FnOnce() -> Result<T, Absent>) -> Result<T, String> {
        if let Some((_, why)) = self.0.borrow().iter().find(|(silent, _)| silent == name) {
            return Err(why.clone());
        }
        ask().map_err(|absent| match absent {
            Absent::Silent(why) => {
                let why =
                    format!("{why}; it was asked once, and is left out of the rest of the league");
                self.0.borrow_mut().push((name.to_owned(), why.clone()));
                why
            }
            Absent::Failed(why) => why,
        })
    }
}

/// The servers with which the load generator was at its limit, and how far beyond, in the present test.
#[derive(Debug, Default)]
struct Limits(RefCell<BTreeMap<String, Bottleneck>>);

impl Limits {
    /// Adds a load; the worst one of each server counts.
    fn add(&self, server: &str, lacked: Option<Bottleneck>) {
        let Some(lacked) = lacked else { return };
        let mut all = self.0.borrow_mut();
        let worst = all.entry(server.to_owned()).or_insert(lacked);
        if lacked.partial_cmp(worst).is_some_and(core::cmp::Ordering::is_gt) {
            *worst = lacked;
        }
    }

    /// Notes them in the test, and forgets them.
    fn note(&self, recorder: &mut Recorder<'_>) {
        for (server, lacked) in core::mem::take(&mut *self.0.borrow_mut()) {
            recorder.note(format!("{server}: {lacked}, so the server may do more"));
        }
    }
}

/// Peers that have no further turns, and why.
#[derive(Debug, Default)]
struct Dropped(Vec<(String, Fault)>);

impl Dropped {
    fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(dropped, _)| dropped == name)
    }

    /// Adds a fault of a server, unless ctrl-C came meanwhile and caused it.
    fn add(&mut self, recorder: &mut Recorder<'_>, name: &str, round: usize, fault: Fault) {
        if !recorder.is_stopped() {
            let (Fault::Skip(why) | Fault::Failed(why)) = &fault;
            recorder.skip(name, format!("dropped in round {round}: {why}"));
            self.0.push((name.to_owned(), fault));
        }
    }

    /// As `add`, for a server that did not start. It has its row already.
    fn add_absent(&mut self, recorder: &Recorder<'_>, name: &str) {
        if !recorder.is_stopped() {
            self.0.push((name.to_owned(), Fault::Failed("it did not start".into())));
        }
    }

    /// The last fault, if all `peers` have been dropped: then the peers are hardly at fault.
    fn result(mut self, peers: usize) -> Result<(), Fault> {
        if self.0.len() < peers {
            Ok(())
        } else {
            self.0.pop().map_or(Ok(()), |(_, last)| Err(last))
        }
    }
}

/// The time limit of downloads that start at the same time, and of each of them.
const AT_ONCE_LIMIT: Duration = Duration::from_secs(60);

/// The client does not copy received bytes, and the tables say so.
const AT_ONCE_COPIES: bool = false;
const AT_ONCE_RECEIVES: &str = load::receives(AT_ONCE_COPIES);

/// Files per concurrent download: a client that is done with one takes another that is still cold.
const FILES_PER_READER: usize = 2;

/// Times its limit that a disk may give without a remark: bytes that were on their way when the
/// measurement began count, too.
const LIMIT_MISSED: f64 = 1.05;

/// Files whose bytes are compared when a server starts.
const CHECKED: usize = 8;

/// Files that the floor can hold.
const FLOOR_FILES: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_keeps_silent_is_asked_once() {
        let (silent, asked) = (Silent::default(), Cell::new(0));
        let ask = |name: &str, answer: Result<(), Absent>| {
            silent.unless(name, || {
                asked.set(asked.get() + 1);
                answer
            })
        };
        let why = "nothing; it was asked once, and is left out of the rest of the league";
        for _ in 0..2 {
            assert_eq!(ask("a", Err(Absent::Silent("nothing".into()))).unwrap_err(), why);
            assert_eq!(ask("a", Ok(())).unwrap_err(), why);
            assert_eq!(asked.get(), 1);
        }
        // A server that responds, or fails at once, costs no time when it is asked again.
        assert_eq!(ask("b", Err(Absent::Failed("no".into()))).unwrap_err(), "no");
        assert_eq!(ask("b", Ok(())), Ok(()));
        assert_eq!(asked.get(), 3);
    }

    #[test]
    fn the_worst_limit_of_the_generator_counts() {
        let limits = Limits::default();
        for (server, cpu) in [("a", 0.92), ("a", 0.98), ("b", 0.5), ("a", 0.95)] {
            limits.add(server, (cpu > 0.9).then_some(Bottleneck::OwnCpu(cpu)));
        }
        assert_eq!(*limits.0.borrow(), [("a".to_owned(), Bottleneck::OwnCpu(0.98))].into());
    }

    #[test]
    fn a_disk_above_its_limit_is_remarked() {
        let mut rounds = Rounds::default();
        for rate in [16.5e6, 17.5e6, 26e6] {
            rounds.add("a", "cold", rate);
            rounds.add("b", "cold", 16.9e6);
        }
        let remarks = |server| League::remarks(&[], &rounds, server, "cold", 16 << 20);
        assert_eq!(remarks("a"), "the disk gave more than its limit of 16.8 MB/s in 1 of 3 rounds");
        assert_eq!(remarks("b"), "");
    }
}
