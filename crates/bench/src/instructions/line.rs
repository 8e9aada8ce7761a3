//! The kinds of requests that are counted, and the servers that respond to them.

use core::time::Duration;
use std::fs;
use std::io::{self, Error, ErrorKind, Write as _};
use std::path::Path;
use std::thread::sleep;
use std::time::Instant;

use super::client::{Client, LIMIT, Protocol};
use super::tracer::{Count, Tracer};
use super::{Stop, calls, table};
use crate::league::network::Network;
use crate::league::peers::Peer;
use crate::league::server::{Absent, Host, Server};
use crate::league::site::Site;
use crate::sys::uring::Ring;
use crate::{interrupt, machine};
use table::{Cost, DRIVERS, EXACT, Row, Table};

/// A kind of request.
#[derive(Clone, Copy, Debug)]
struct RequestKind {
    name: &'static str,
    path: &'static str,
    /// The number of times that the path is repeated in the request.
    repeated: usize,
    /// Further fields, with their line ends; `{etag}` stands for the entity tag of the file.
    fields: &'static str,
    status: u16,
    /// Requests sent together.
    pipelined: usize,
    /// Connections that send these requests at the same time; the server finds all of them when it wakes up.
    connections: usize,
    protocol: Protocol,
    /// True if the file is evicted from the page cache before each request.
    is_cold: bool,
    /// True if the server writes an access log.
    is_logged: bool,
    /// True if the server is configured by [`SEEN`].
    is_seen: bool,
    /// True if the server is configured by [`OWN`].
    has_own_format: bool,
    /// True if another server has the files, and the one that is counted is configured by [`PROXY`].
    is_proxied: bool,
    /// The way of the frames (`--frames`), if the request comes over a link to a stack of the server's own. It is
    /// given, because the cheapest way that the server measures is not the same at each start.
    frames: Option<&'static str>,
    percent: u64,
}

const HOT: RequestKind = RequestKind {
    name: "hot 1 KiB",
    path: "/1k",
    repeated: 1,
    fields: "",
    status: 200,
    pipelined: 1,
    connections: 1,
    protocol: Protocol::HTTP1,
    is_cold: false,
    is_logged: false,
    is_seen: false,
    has_own_format: false,
    is_proxied: false,
    frames: None,
    percent: EXACT,
};

/// The number of reads for a cold file depends on the speed of the disk, so its counts vary more.
const COLD_PERCENT: u64 = 15;

/// The time at which a log line is written depends on the clock, so its counts vary more.
const LOGGED_PERCENT: u64 = 5;

/// A turn that makes many lines lasts for seconds when it is stepped, so more of what the server does by the clock falls
/// within it.
const LOGGED_TOGETHER_PERCENT: u64 = 10;

/// A stepped request lasts longer than a tick of the proxy's deadlines, and the number of ticks depends on the machine.
const PROXIED_PERCENT: u64 = 10;

/// Timers of the own stack run beside its requests, and their number depends on the machine. Whether the
/// acknowledgement of a response takes a turn of its own depends on it, too.
const OWN_STACK_PERCENT: u64 = 10;

const OWN_STACK: RequestKind = RequestKind { percent: OWN_STACK_PERCENT, ..HOT };

const LINES: [RequestKind; 23] = [
    HOT,
    RequestKind { name: "hot 1 KiB, 16 pipelined", pipelined: 16, ..HOT },
    RequestKind { name: "hot 1 KiB, access log", is_logged: true, percent: LOGGED_PERCENT, ..HOT },
    RequestKind {
        name: "hot 1 KiB, log with ids, status page",
        is_logged: true,
        has_own_format: true,
        percent: LOGGED_PERCENT,
        ..HOT
    },
    RequestKind {
        name: "hot 1 KiB, metrics, 2 sites, JSON log",
        is_logged: true,
        is_seen: true,
        percent: LOGGED_PERCENT,
        ..HOT
    },
    // Lines that are written together, as under load.
    RequestKind {
        name: "access log, 16 pipelined",
        pipelined: 16,
        is_logged: true,
        percent: LOGGED_TOGETHER_PERCENT,
        ..HOT
    },
    RequestKind {
        name: "metrics, JSON log, 16 pipelined",
        pipelined: 16,
        is_logged: true,
        is_seen: true,
        percent: LOGGED_TOGETHER_PERCENT,
        ..HOT
    },
    RequestKind {
        name: "304 Not Modified",
        fields: "If-None-Match: {etag}\r\n",
        status: 304,
        ..HOT
    },
    RequestKind { name: "404 Not Found", path: "/missing", status: 404, ..HOT },
    // Many names must not cost more than their bytes. With more names, to step through a request would take the second
    // after which a server writes another line for the operator, and the count would differ by that line.
    RequestKind { name: "404 Not Found, 40 names", path: "/d", repeated: 40, status: 404, ..HOT },
    RequestKind {
        name: "414 URI Too Long, 500 names",
        path: "/d",
        repeated: 500,
        status: 414,
        ..HOT
    },
    RequestKind { name: "hot 64 KiB", path: "/64k", ..HOT },
    RequestKind { name: "hot 1 MiB", path: "/1m", ..HOT },
    RequestKind {
        name: "64 KiB of hot 1 MiB",
        path: "/1m",
        fields: "Range: bytes=100000-165535\r\n",
        status: 206,
        ..HOT
    },
    RequestKind { name: "TLS, hot 1 KiB", protocol: Protocol::HTTPS1, ..HOT },
    RequestKind { name: "TLS, hot 64 KiB", path: "/64k", protocol: Protocol::HTTPS1, ..HOT },
    RequestKind { name: "HTTP/2, hot 1 KiB", protocol: Protocol::HTTP2, ..HOT },
    RequestKind { name: "HTTP/2 and TLS, hot 1 KiB", protocol: Protocol::HTTPS2, ..HOT },
    RequestKind {
        name: "HTTP/2 and TLS, hot 1 KiB, 10 streams",
        protocol: Protocol::HTTPS2,
        pipelined: 10,
        ..HOT
    },
    RequestKind { name: "proxied 1 KiB", is_proxied: true, percent: PROXIED_PERCENT, ..HOT },
    RequestKind { name: "cold 1 MiB", path: "/1m", is_cold: true, percent: COLD_PERCENT, ..HOT },
    RequestKind {
        name: "own stack, hot 128 B, 4 connections",
        path: "/128",
        connections: 4,
        frames: Some("xdp"),
        ..OWN_STACK
    },
    RequestKind { name: "own stack, hot 8 KiB", path: "/8k", frames: Some("packet"), ..OWN_STACK },
];

/// Two sites whose requests are counted, and logged in JSON.
const SEEN: &str = r#"
[[site]]
listen = ["127.0.0.1:{port}"]
hosts = ["localhost"]
log = { file = "{dir}/access.log", format = "json" }

  [[site.route]]
  files = "{root}"

  [[site.route]]
  path = "/metrics"
  metrics = true

[[site]]
listen = ["127.0.0.1:{port}"]
hosts = ["example.org"]

  [[site.route]]
  files = "{root}"
"#;

/// A format of one's own for a route: what the combined one has, and the ids of requests. The server also counts what its
/// status page shows.
const OWN: &str = r#"
[[site]]
listen = ["127.0.0.1:{port}"]
log = "none"

  [[site.route]]
  path = "/status"
  status-page = true
  allow = ["127.0.0.1"]

  [[site.route]]
  files = "{root}"

  [site.route.log]
  file = "{dir}/access.log"
  format = '$client [$time] "$request" $status $bytes "$referer" "$user-agent" $request-id'
"#;

/// A proxy as in the league.
const PROXY: &str = r#"
[[site]]
listen = ["127.0.0.1:{port}"]
log = "none"

  [[site.route]]
  proxy = ["http://{origin}"]
"#;

/// The files, by name and length.
const FILES: [(&str, u64); 5] =
    [("128", 128), ("1k", 1 << 10), ("8k", 8 << 10), ("64k", 64 << 10), ("1m", 1 << 20)];

/// Counts the lines whose names contain `wanted` with both drivers, and reports each count on standard error. A line is
/// counted until it is what one of the `kept` tables says.
pub(super) fn count_all(root: Option<&Path>, wanted: &str, kept: &[Table]) -> Result<Table, Stop> {
    interrupt::catch()?;
    Ring::new(8, 16).map_err(|error| Stop::Skip(format!("no io_uring here: {error}")))?;
    let site = Site::new(root).and_then(|site| site.needs_a_disk().map(|()| site));
    let site = site?;
    for (name, len) in FILES {
        site.file(name, len)?;
    }
    sleep(SETTLED);
    // On one CPU the stepped thread and this one take turns, so no race influences the counts.
    let cpu = machine::two_cpus().map(|cpus| cpus.0);
    crate::load::pin(cpu)?;
    let files =
        Server::start(&serving(DRIVERS[0], "none")?, host(&site, cpu)).map_err(Absent::why)?;
    let mut table = Table::default();
    let mut links = None;
    for line in LINES.iter().filter(|line| line.name.contains(wanted)) {
        let network = match line.frames {
            None => None,
            Some(_) => match links.get_or_insert_with(|| link(cpu)) {
                Ok(network) => Some(&*network),
                Err(why) => {
                    table.skipped.push((line.name.to_owned(), why.clone()));
                    continue;
                }
            },
        };
        // A server with a stack of its own is in the other namespace, and its client is in this one.
        let _inside = network.map(|network| network.clients().enter()).transpose()?;
        let mut costs = <[Cost; 2]>::default();
        for (driver, cost) in DRIVERS.iter().zip(&mut costs).take(line.drivers()) {
            let host = Host { origin: Some(files.address()), network, ..host(&site, cpu) };
            let requests = line.pipelined * line.connections;
            let mut counts = Vec::new();
            for _ in 0..SERVERS_MAX {
                let server = start(line, driver, host)?;
                if table.made_with.is_empty() {
                    table.made_with = made_with(&server)?;
                }
                let kept = table::comparable(kept, &table);
                let is_known = |count: &Count| {
                    let cost = cost_of(count, requests);
                    kept.is_some_and(|kept| table::agrees(kept, line.name, driver, &cost))
                };
                counts.extend(count(line, &server, &site, is_known)?);
                if kept.is_none() || counts.iter().any(is_known) {
                    break;
                }
            }
            tell(line, driver, &counts);
            *cost = least(&counts, requests);
        }
        table.rows.push(Row { line: line.name.to_owned(), percent: line.percent, costs });
    }
    Ok(table)
}

/// The link to the servers with a stack of their own, or the reason why there is none.
fn link(cpu: Option<usize>) -> Result<Network, String> {
    let cpu = cpu.unwrap_or(0);
    Network::new(cpu, cpu)
}

fn start(line: &RequestKind, driver: &str, host: Host<'_>) -> Result<Server, Stop> {
    if let Some(frames) = line.frames {
        return Ok(Server::start(&on_own_stack(driver, frames)?, host).map_err(Absent::why)?);
    }
    let mut peer = serving(driver, if line.is_logged { "{dir}/access.log" } else { "none" })?;
    if line.protocol.is_sealed {
        peer.command.extend(["--tls", "self-signed"].map(str::to_owned));
    }
    let configuration = match (line.is_seen, line.has_own_format, line.is_proxied) {
        (true, ..) => Some(SEEN),
        (_, true, _) => Some(OWN),
        (.., true) => Some(PROXY),
        _ => None,
    };
    if let Some(configuration) = configuration {
        configuration.clone_into(&mut peer.configuration);
        let command = ["{samum}", "serve", "--config", "{conf}", "--threads", "1"];
        peer.command =
            command.into_iter().chain(["--driver", name(driver)]).map(str::to_owned).collect();
    }
    Ok(Server::start(&peer, host).map_err(Absent::why)?)
}

/// A server of files.
fn serving(driver: &str, log: &str) -> Result<Peer, Stop> {
    let driver = name(driver);
    Ok(Peer::added(&format!(
        "samum={{samum}} serve {{root}} --listen 127.0.0.1:{{port}} --threads 1 --driver {driver} --log {log}"
    ))?)
}

/// A server of files whose connections belong to its own stack.
fn on_own_stack(driver: &str, frames: &str) -> Result<Peer, Stop> {
    let driver = name(driver);
    Ok(Peer::added(&format!(
        "samum={{samum}} serve {{root}} --listen {{ip}}:{{port}} --interface {{interface}} --frames {frames} \
         --threads 1 --driver {driver} --log none"
    ))?)
}

/// The name of a driver on the command line.
fn name(driver: &str) -> &str {
    if driver == DRIVERS[0] { "uring" } else { driver }
}

fn host(site: &Site, cpu: Option<usize>) -> Host<'_> {
    Host { root: site.root(), files: &[], cpu, throttle: None, origin: None, network: None }
}

/// Counts each of [`REQUESTS`] requests, or groups of requests that are sent together, until one `is_known`.
fn count(
    line: &RequestKind,
    server: &Server,
    site: &Site,
    is_known: impl Fn(&Count) -> bool,
) -> Result<Vec<Count>, Stop> {
    let mut clients = Vec::new();
    for _ in 0..line.connections {
        let mut client = Client::connect(server, line.protocol)?;
        for _ in 0..WARM_UP {
            // The first request has no entity tag to send, and gets the whole file.
            let times = line.asked_together();
            let requests = line.requests(&mut client, times);
            client.ask(&requests, times)?;
        }
        if client.status != line.status {
            return Err(format!("{}: the server says {}", line.name, client.status).into());
        }
        clients.push(client);
    }
    let mut tracer =
        Tracer::attach(server.pid(), is_stepped).map_err(|error| match error.kind() {
            ErrorKind::PermissionDenied => {
                Stop::Skip(format!("ptrace(2) is not permitted: {error}"))
            }
            _ => error.into(),
        })?;
    let quiet = if line.is_logged { LOG_DELAY } else { QUIET };
    let mut counts = Vec::new();
    // The first request also executes what stopping the threads left behind, so it does not count.
    for number in 0..=line.counted() {
        interrupt::check()?;
        if line.is_cold {
            site.evict([&line.path[1..].to_owned()])?;
        }
        sleep(PAUSE);
        let deadline = Instant::now() + LIMIT;
        let failed = |error: Error| format!("{}: {error}", line.name);
        tracer.run_until_idle(quiet, deadline).map_err(failed)?;
        if line.is_logged && line.pipelined > 1 {
            // After some seconds the server looks at a cached file again, and a stepped group lasts for seconds. This
            // request takes the look.
            let client = &mut clients[0];
            let request = line.requests(client, 1);
            client.send(&request)?;
            let mut received = 0;
            while received < client.expected {
                tracer.run_until_idle(quiet, deadline).map_err(failed)?;
                received += client.receive()?;
            }
        }
        let (mut expected, began) = (0, Instant::now());
        for client in &mut clients {
            let requests = line.requests(client, line.pipelined);
            client.send(&requests)?;
            expected += client.expected * (line.pipelined / line.asked_together());
        }
        let (mut count, mut received) = (Count::default(), 0);
        while received < expected {
            count += tracer.run_until_idle(quiet, deadline).map_err(failed)?;
            for client in &mut clients {
                received += client.receive()?;
            }
        }
        if line.is_logged {
            let turn = began.elapsed().saturating_sub(quiet);
            count += tracer.run_until_idle(turn, deadline).map_err(failed)?;
        }
        if number == 0 {
            continue;
        }
        counts.push(count);
        if counts.last().is_some_and(&is_known) {
            break;
        }
    }
    Ok(counts)
}

/// The cost of the cheapest request: other work of the server can only add instructions.
fn least(counts: &[Count], requests: usize) -> Cost {
    let least = counts.iter().min_by_key(|count| count.instructions);
    least.map(|count| cost_of(count, requests)).unwrap_or_default()
}

/// The cost of one of the requests that were sent together.
fn cost_of(count: &Count, requests: usize) -> Cost {
    let requests = requests as u64;
    let hundredths = |n: u64| (n * 100 + requests / 2) / requests;
    Cost {
        instructions: (count.instructions + requests / 2) / requests,
        calls: count.calls.iter().map(|(call, n)| (calls::name(*call), hundredths(*n))).collect(),
    }
}

/// The threads that serve requests.
fn is_stepped(name: &str) -> bool {
    name.starts_with("worker-") || name == "ring-helper"
}

fn tell(line: &RequestKind, driver: &str, counts: &[Count]) {
    let mut all: Vec<_> = counts.iter().map(|count| count.instructions).collect();
    all.sort_unstable();
    // A closed standard error must not stop the count.
    let _ = writeln!(io::stderr(), "{}, {driver}: {all:?}", line.name);
}

/// The facts besides the code that determine the counts.
fn made_with(server: &Server) -> Result<std::collections::BTreeMap<String, String>, Stop> {
    let program = format!("/proc/{}/exe", server.pid());
    let maps = fs::read_to_string(format!("/proc/{}/maps", server.pid()))?;
    let mut mapped = maps.lines().filter_map(|line| line.split_whitespace().nth(5));
    let library = mapped.find(|path| path.contains("/libc.so")).unwrap_or_default();
    let machine = machine::Machine::this(None);
    let facts = [
        ("compiler", text_in(&program, "rustc version ")),
        ("C library", text_in(library, "GNU C Library ")),
        ("processor", machine.cpu),
        // The profile of this program; the same build has made the server.
        ("profile", if cfg!(debug_assertions) { "dev" } else { "release" }.to_owned()),
        ("kernel", rustix::system::uname().release().to_string_lossy().into_owned()),
    ];
    Ok(facts.into_iter().map(|(what, value)| (what.to_owned(), value)).collect())
}

/// The rest of the line with this beginning in a program; "unknown" if there is none.
fn text_in(path: &str, beginning: &str) -> String {
    let bytes = fs::read(path).unwrap_or_default();
    let at = bytes.windows(beginning.len()).position(|part| part == beginning.as_bytes());
    let Some(at) = at else { return "unknown".to_owned() };
    let rest = &bytes[at..];
    let end = rest.iter().position(|byte| byte.is_ascii_control()).unwrap_or(rest.len());
    String::from_utf8_lossy(&rest[..end]).into_owned()
}

impl RequestKind {
    /// The drivers that are counted. With epoll the number of turns for frames that come together differs from time to
    /// time by one, and the cost then differs by half.
    const fn drivers(&self) -> usize {
        if self.frames.is_some() { 1 } else { DRIVERS.len() }
    }

    /// Requests, or groups of them, that are counted.
    const fn counted(&self) -> usize {
        if self.frames.is_some() { REQUESTS_ON_OWN_STACK } else { REQUESTS }
    }

    /// Requests whose responses are awaited together before counting. Those of HTTP/2 share records.
    const fn asked_together(&self) -> usize {
        if self.protocol.is_http2 { self.pipelined } else { 1 }
    }

    fn requests(&self, client: &mut Client, times: usize) -> Vec<u8> {
        let fields = if client.etag.is_empty() { "" } else { self.fields };
        let fields = fields.replace("{etag}", &client.etag);
        client.requests(&self.path.repeat(self.repeated), &fields, times)
    }
}

/// Requests of a kind, of which the cheapest counts.
const REQUESTS: usize = 7;

/// Servers that are counted for a line that is not what it was. A call that is stepped can seem so long to a server that it
/// takes another way for a minute (`content/src/loader.rs`).
const SERVERS_MAX: usize = 2;

/// The number of requests on the own stack: its timers often run beside a request, because a stepped one takes long.
const REQUESTS_ON_OWN_STACK: usize = 20;

/// Requests before counting, after which the server has cached all it will cache.
const WARM_UP: usize = 20;

/// The age of a file from which the server trusts its times (`content/src/lib.rs`, freshness).
const SETTLED: Duration = Duration::from_millis(3500);

/// The pause before each request: longer than the server trusts a residency check (5 ms), so that each
/// request makes one.
const PAUSE: Duration = Duration::from_millis(10);

/// The time for which all stepped threads must sleep to count as idle: longer than a wake-up takes.
const QUIET: Duration = Duration::from_millis(2);

/// The pause with an access log: longer than a line waits to be written, so that the write is counted. A line waits for
/// 250 ms from a time within the turn that made it. The server sleeps for the rest of these as if the turn had just
/// begun, so the time of a stepped turn is added.
const LOG_DELAY: Duration = Duration::from_millis(400);
