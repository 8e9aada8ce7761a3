//! Measures the cost of TLS: requests over HTTP/1.1 and HTTP/2, and handshakes.
//!
//! The clients are those of others: `h2load` of nghttp2 for requests, and `openssl s_time` for handshakes. They offer one
//! cipher suite and one group, so that all servers do the same work. Both are closed loops, so only throughput and CPU
//! are shown. Session tickets are as each server ships them.

use core::net::SocketAddr;
use core::ops::Range;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::thread;
use std::time::Instant;

use super::peers::{TLS, find};
use super::rounds::Rounds;
use super::server::{Absent, Host, Server};
use super::site::Site;
use super::{Dropped, League};
use crate::load::account::{Bottleneck, OWN_CPU_MAX};
use crate::load::pin;
use crate::run::{Figure, Table};
use crate::stats::float;
use crate::unit::Better;
use crate::{Fault, Recorder, Test, Unit, machine};

/// The test.
#[must_use]
pub fn test(league: &Rc<League>) -> Test {
    let league = Rc::clone(league);
    let test = Test::new("tls", "Cost of requests and handshakes with TLS", move |recorder| {
        run(&league, recorder)
    })
    .scales("less CPU per request and per handshake than other servers");
    described(test, WORKS)
}

/// Describes a test of works.
pub(super) fn described(test: Test, works: impl IntoIterator<Item = Work>) -> Test {
    let mut test =
        test.x("round").warm_up("none: a measurement has thousands of requests").tabled();
    for work in works {
        let what = work.of(CPU);
        test = test.better(&what, Better::Less);
        test = test.figure(Figure::of(Unit::Nanoseconds).titled(&what).only(&[&what]).lines());
    }
    test
}

/// The work of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    /// HTTP/1.1 without TLS on kept connections, for a file of this many bytes.
    Plain(u64),
    /// HTTP/1.1 on kept connections, for a file of this many bytes.
    Kept(u64),
    /// Downloads of a file of this many bytes over HTTP/1.1, one after the other on one connection.
    Download(u64),
    /// HTTP/2 with [`STREAMS`] streams at the same time on each connection, for a file of this many bytes.
    Streams(u64),
    /// A connection for each request, with a full handshake.
    Full,
    /// The same, with a handshake by the ticket of an earlier connection.
    Resumed,
}

const WORKS: [Work; 6] = [
    Work::Kept(1 << 10),
    Work::Kept(64 << 10),
    Work::Kept(1 << 20),
    Work::Streams(1 << 10),
    Work::Full,
    Work::Resumed,
];

impl Work {
    fn name(self) -> String {
        let size = |bytes| Unit::Bytes.show(float(bytes));
        match self {
            Self::Plain(bytes) => format!("{} over kept connections without TLS", size(bytes)),
            Self::Kept(bytes) => format!("{} over kept connections", size(bytes)),
            Self::Download(bytes) => format!("downloads of {}", size(bytes)),
            Self::Streams(bytes) => format!("{} over HTTP/2, {STREAMS} streams", size(bytes)),
            Self::Full => "full handshakes".to_owned(),
            Self::Resumed => "resumed handshakes".to_owned(),
        }
    }

    /// The name of a figure of this work.
    fn of(self, what: &str) -> String {
        format!("{what}, {}", self.name())
    }

    pub(super) const fn bytes(self) -> u64 {
        match self {
            Self::Plain(bytes)
            | Self::Kept(bytes)
            | Self::Download(bytes)
            | Self::Streams(bytes) => bytes,
            Self::Full | Self::Resumed => 1 << 10,
        }
    }

    /// The client's program and its arguments.
    fn command(self, address: SocketAddr, seconds: u64) -> (&'static str, Vec<String>) {
        let scheme = if matches!(self, Self::Plain(_)) { "http" } else { "https" };
        let url = format!("{scheme}://{address}/{}", name(self.bytes()));
        let path = format!("/{}", name(self.bytes()));
        let words = |text: String| text.split(' ').map(str::to_owned).collect();
        let pinned = format!("--tls13-ciphers={SUITE} --groups={GROUP}");
        let seconds_min = seconds.max(1);
        match self {
            Self::Plain(_) | Self::Kept(_) => {
                let connections = CONNECTIONS;
                let all = format!("--h1 -t1 -c{connections} -m1 -D{seconds_min} {pinned} {url}");
                ("h2load", words(all))
            }
            Self::Download(_) => {
                ("h2load", words(format!("--h1 -t1 -c1 -m1 -n{DOWNLOADS} {pinned} {url}")))
            }
            Self::Streams(_) => {
                ("h2load", words(format!("-t1 -c8 -m{STREAMS} -D{seconds_min} {pinned} {url}")))
            }
            Self::Full | Self::Resumed => {
                let how = if self == Self::Full { "-new" } else { "-reuse" };
                let all = format!(
                    "s_time -connect {address} -www {path} {how} -time {seconds_min} -tls1_3"
                );
                ("openssl", words(format!("{all} -ciphersuites {SUITE}")))
            }
        }
    }

    /// The number of complete responses, by the words of the client.
    fn answered(self, said: &str) -> Result<u64, String> {
        let of_client = match self {
            Self::Plain(_) | Self::Kept(_) | Self::Download(_) | Self::Streams(_) => requests(said),
            Self::Full | Self::Resumed => connections(said, self.bytes()),
        };
        let last = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("nothing");
        match of_client {
            Some(count) if count > 0 => Ok(count),
            _ => Err(format!("{}: the client says: {last}", self.name())),
        }
    }
}

/// Requests that succeeded, if all that ended did: from the words of h2load.
fn requests(said: &str) -> Option<u64> {
    let line = said.lines().find_map(|line| line.strip_prefix("requests: "))?;
    let count = |name: &str| {
        let part = line.split(", ").find_map(|part| part.strip_suffix(name))?;
        part.trim().parse::<u64>().ok()
    };
    let failed = count("failed")? + count("errored")? + count("timeout")?;
    let succeeded = count("succeeded")?;
    (failed == 0).then_some(succeeded)
}

/// Connections, each with a response of at least this many bytes: from the words of `openssl s_time`.
fn connections(said: &str, bytes: u64) -> Option<u64> {
    let (count, rest) = said
        .lines()
        .rev()
        .find_map(|line| line.split_once(" connections in ").filter(|it| it.1.contains("real")))?;
    let each: u64 = rest.split_once(", ")?.1.split(' ').next()?.parse().ok()?;
    (each >= bytes).then(|| count.trim().parse().ok())?
}

/// The name of a file of this many bytes.
pub(super) fn name(bytes: u64) -> String {
    format!("f{bytes}")
}

/// A work, and the servers that do it.
#[derive(Debug)]
pub(super) struct Round {
    pub(super) work: Work,
    /// Their positions among all servers.
    pub(super) servers: Range<usize>,
    /// The servers to which the others are compared, each with the title of its column.
    pub(super) compared_to: [(&'static str, &'static str); 2],
}

fn run(league: &League, recorder: &mut Recorder<'_>) -> Result<(), Fault> {
    let peers = league.chosen(&TLS)?;
    has_clients()?;
    let site = Site::new(league.root.as_deref())?;
    let mut files = Vec::new();
    for work in WORKS {
        let name = name(work.bytes());
        if !files.contains(&name) {
            files.push(site.file(&name, work.bytes())?);
        }
    }
    certificate(site.root())?;
    let host = Host {
        root: site.root(),
        files: &files,
        cpu: league.server_cpu,
        throttle: None,
        origin: None,
        network: None,
    };
    let mut servers = Vec::new();
    for peer in &peers {
        let check = |server: &Server| {
            files.iter().try_for_each(|file| compare(server, file, &site.root().join(file)))
        };
        servers.extend(league.start_checked(recorder, peer, host, check));
    }
    let compared_to = [(TLS[1], "nginx = 1"), (TLS[2], "h2o = 1")];
    let all = WORKS.map(|work| Round { work, servers: 0..servers.len(), compared_to });
    let taken = take_turns(league, recorder, &mut servers, &all, site.root());
    league.describe_these(recorder, &peers);
    taken
}

/// Both clients are installed.
pub(super) fn has_clients() -> Result<(), Fault> {
    for program in ["h2load", "openssl"] {
        find(program).ok_or_else(|| Fault::Skip(format!("{program} is not installed")))?;
    }
    Ok(())
}

/// Lets servers take turns at works, and shows a table of each. `directory` has the [`certificate`].
pub(super) fn take_turns(
    league: &League,
    recorder: &mut Recorder<'_>,
    servers: &mut [Server],
    all: &[Round],
    directory: &Path,
) -> Result<(), Fault> {
    let configuration = directory.join(CONFIGURATION);
    let mut rounds = Rounds::default();
    let mut dropped = Dropped::default();
    let each: usize = all.iter().map(|round| round.servers.len()).sum();
    let (total, mut done) = (recorder.steps() * each, 0_usize);
    for nth in 1..=recorder.steps() {
        for Round { work, servers: range, .. } in all {
            for index in league.turns.of(range.len(), nth) {
                let server = &mut servers[range.start + index];
                done += 1;
                if recorder.is_stopped() {
                    break;
                }
                if dropped.has(server.name()) {
                    continue;
                }
                match measure(league, server, *work, &configuration) {
                    Ok([cpu, rate]) => {
                        let (x, name) = (float(nth), server.name());
                        rounds.record(recorder, name, &work.of(CPU), Unit::Nanoseconds, x, cpu);
                        rounds.record(recorder, name, &work.of(RATE), Unit::PerSecond, x, rate);
                    }
                    Err(fault) => dropped.add(recorder, server.name(), nth, fault),
                }
                recorder.progress(float(done) / float(total));
            }
        }
    }
    recorder.note(format!(
        "clients: h2load, {CONNECTIONS} connections, 8 with HTTP/2, 1 for downloads; openssl s_time, one connection after \
         the other; TLS 1.3 with {SUITE} and {GROUP}; a certificate with P-256"
    ));
    for round in all {
        let names: Vec<_> = servers[round.servers.clone()].iter().map(Server::name).collect();
        table(recorder, &rounds, &names, round);
    }
    if servers.is_empty() { Ok(()) } else { dropped.result(servers.len()) }
}

fn table(recorder: &mut Recorder<'_>, rounds: &Rounds, names: &[&str], round: &Round) {
    let Round { work, compared_to, .. } = round;
    let (cpu, rate) = (work.of(CPU), work.of(RATE));
    let took_part = |name: &&&str| rounds.median(name, &cpu).is_finite();
    let rows = names.iter().filter(took_part).map(|name| {
        let mut row =
            vec![(*name).to_owned(), rounds.cell(name, &cpu, |ns| format!("{:.2}", ns / 1e3))];
        row.extend(compared_to.iter().map(|(other, _)| rounds.ratio(name, other, &cpu)));
        row.push(rounds.cell(name, &rate, |rate| match rate {
            ..10.0 => format!("{rate:.2}"),
            _ => format!("{rate:.0}"),
        }));
        row
    });
    let head = ["server", "CPU, µs", compared_to[0].1, compared_to[1].1, "per second"];
    recorder.table(Table {
        title: format!(
            "{}: median (least–greatest) of rounds; ratios in parentheses are not ranked",
            work.name()
        ),
        head: head.map(str::to_owned).to_vec(),
        rows: rows.collect(),
    });
}

/// Nanoseconds of the server's CPU for each response, and responses per second.
fn measure(
    league: &League,
    server: &mut Server,
    work: Work,
    configuration: &Path,
) -> Result<[f64; 2], Fault> {
    let (program, arguments) = work.command(server.address(), league.length.as_secs());
    let mut command = Command::new(program);
    command.args(arguments).env("OPENSSL_CONF", configuration).stdin(Stdio::null());
    let cpu = league.client_cpu;
    let client_busy = || cpu.map(machine::busy).unwrap_or_default();
    let (before, busy, start) = (server.cpu(), client_busy(), Instant::now());
    let output = thread::scope(|scope| {
        // The client inherits the CPU of a thread of its own.
        let client = scope.spawn(|| pin(cpu).and_then(|()| command.output()));
        client
            .join()
            .unwrap_or_else(|_| Err(std::io::Error::other("the thread of the client panicked")))
    })?;
    let passed = start.elapsed().as_secs_f64();
    let of_server = server.cpu() - before;
    let used = (client_busy() - busy).as_secs_f64() / passed;
    league.limits.add(server.name(), (used > OWN_CPU_MAX).then_some(Bottleneck::OwnCpu(used)));
    let said = String::from_utf8_lossy(&output.stdout);
    let count = float(work.answered(&said).map_err(Fault::Failed)?);
    Ok([of_server.as_secs_f64() * 1e9 / count, count / passed])
}

/// Makes a certificate, its key and the configuration of the clients in a directory.
pub(super) fn certificate(directory: &Path) -> Result<(), Fault> {
    fs::write(directory.join(CONFIGURATION), OPENSSL)?;
    let failed = |why: String| Fault::Failed(format!("openssl makes no certificate: {why}"));
    let path = |name: &str| directory.join(name);
    let output = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"])
        .args(["-days", "30", "-subj", "/CN=localhost"])
        .args(["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"])
        .arg("-keyout")
        .arg(path("key.pem"))
        .arg("-out")
        .arg(path("certificate.pem"))
        .output()
        .map_err(|error| failed(error.to_string()))?;
    if !output.status.success() {
        return Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
    }
    // haproxy wants both in a file.
    let pair = [fs::read(path("certificate.pem"))?, fs::read(path("key.pem"))?].concat();
    Ok(fs::write(path("both.pem"), pair)?)
}

/// Compares a response over TLS with a file.
pub(super) fn compare(server: &Server, name: &str, file: &Path) -> Result<(), Absent> {
    let failed = |error: std::io::Error| format!("{name} over TLS: {error}");
    let address = server.address().to_string();
    let mut client = Command::new("openssl")
        .args(["s_client", "-quiet", "-ign_eof", "-tls1_3", "-connect", &address])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(failed)?;
    let request = format!("GET /{name} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    if let Some(mut to) = client.stdin.take() {
        to.write_all(request.as_bytes()).map_err(failed)?;
    }
    let response = client.wait_with_output().map_err(failed)?.stdout;
    let end = response.windows(4).position(|bytes| bytes == b"\r\n\r\n");
    let body = end.map_or(&[][..], |end| &response[end + 4..]);
    if body == fs::read(file).map_err(failed)? {
        return Ok(());
    }
    let first = String::from_utf8_lossy(&response).lines().next().unwrap_or("nothing").to_owned();
    Err(format!(
        "{} serves other bytes at /{name} over TLS than the file has: {first}",
        server.name()
    )
    .into())
}

const CPU: &str = "CPU";
const RATE: &str = "per second";

/// Connections over HTTP/1.1.
const CONNECTIONS: usize = 64;
/// Downloads of a measurement.
const DOWNLOADS: usize = 2;
/// Streams at the same time on each connection of HTTP/2.
const STREAMS: usize = 10;

/// All clients offer only these.
const SUITE: &str = "TLS_AES_128_GCM_SHA256";
const GROUP: &str = "X25519";

/// The name of the configuration of OpenSSL. `openssl s_time` has no option for groups.
const CONFIGURATION: &str = "openssl.cnf";
const OPENSSL: &str = "\
openssl_conf = all
[all]
ssl_conf = modules
[modules]
system_default = defaults
[defaults]
Ciphersuites = TLS_AES_128_GCM_SHA256
Groups = X25519
MinProtocol = TLSv1.3
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_h2load_are_understood() {
        let said = |failed: u32| {
            format!(
                "finished in 2.00s, 1234.50 req/s, 1.2MB/s\nrequests: 2469 total, 2485 started, 2469 done, 2469 \
                 succeeded, {failed} failed, 0 errored, 0 timeout\nstatus codes: 2469 2xx, 0 3xx, 0 4xx, 0 5xx\n"
            )
        };
        assert_eq!(Work::Streams(1024).answered(&said(0)), Ok(2469));
        assert!(Work::Kept(1024).answered(&said(1)).unwrap_err().contains("status codes"));
        assert!(Work::Kept(1024).answered("").unwrap_err().ends_with("the client says: nothing"));
    }

    #[test]
    fn words_of_s_time_are_understood() {
        let said = "Collecting connection statistics for 2 seconds\n****\n\n900 connections in 0.50s; 1800.00 \
                    connections/user sec, bytes read 1125900\n900 connections in 3 real seconds, 1251 bytes read per \
                    connection\n";
        assert_eq!(Work::Full.answered(said), Ok(900));
        let short = said.replace("1251", "300");
        assert!(
            Work::Resumed
                .answered(&short)
                .unwrap_err()
                .starts_with("resumed handshakes: the client says: 900")
        );
        assert!(Work::Full.answered("ERROR\n").is_err());
    }

    #[test]
    fn clients_offer_one_suite() {
        let address = SocketAddr::from(([127, 0, 0, 1], 8443));
        for work in WORKS {
            let (program, arguments) = work.command(address, 0);
            let all = arguments.join(" ");
            assert!(all.contains(SUITE) && all.contains("127.0.0.1:8443"), "{program} {all}");
            assert!(all.contains("-D1 ") || all.contains("-time 1 "), "whole seconds: {all}");
        }
        assert!(OPENSSL.contains(SUITE) && OPENSSL.contains(GROUP));
    }
}
