//! The algorithms of congestion control together and alone, in the simulated network: what they get, what others are
//! left, how long the queue is, what is lost. The table is a file, so that a change shows in review.
//! `SAMUM_WRITE=1 cargo test -p samum-netstack --test all sharing` writes it.

use core::fmt::Write;
use core::net::{Ipv4Addr, SocketAddr};
use core::time::Duration;

use netstack::sim::{Conditions, Host, Link, News, Policer, Random, mac};
use netstack::tcp::Algorithm::{self, Bbr, Cubic};
use netstack::{ConnectionId, Time};

use crate::hosts::{START, host};

/// Bytes that an endless sender keeps queued.
const QUEUED: usize = 4 * 1024 * 1024;
/// A flow is measured from here on.
const WARM: Duration = Duration::from_secs(10);
const END: Duration = Duration::from_secs(60);

/// Servers whose data goes to one client through one link.
struct Bottleneck {
    now: Time,
    client: Host,
    servers: Vec<Host>,
    down: Link,
    up: Link,
    /// Whether the servers always have more to send.
    is_endless: bool,
    /// The first server's connection.
    first: Option<ConnectionId>,
    /// What the client got from each server since the measurement began.
    received: Vec<usize>,
    /// The waits in the queue that each frame met, in microseconds.
    waits_us: Vec<u128>,
}

impl Bottleneck {
    fn new(algorithms: &[Algorithm], down: Conditions, up: Conditions) -> Self {
        let mut random = Random::new(1);
        let servers = (2..).zip(algorithms).map(|(index, algorithm)| host(index, *algorithm));
        Self {
            now: START,
            client: host(1, Cubic),
            servers: servers.collect(),
            down: Link::new(down, random.fork()),
            up: Link::new(up, random.fork()),
            is_endless: true,
            first: None,
            received: vec![0; algorithms.len()],
            waits_us: Vec::new(),
        }
    }

    fn connect(&mut self, server: usize) {
        let number = u8::try_from(server).expect("few");
        let local = SocketAddr::new(Ipv4Addr::new(10, 0, 0, 1).into(), 5000 + u16::from(number));
        let peer = SocketAddr::new(Ipv4Addr::new(10, 0, 0, 2 + number).into(), 80);
        assert!(self.client.connect(self.now, local, peer).is_some());
    }

    /// Goes on until then.
    fn run(&mut self, until: Time) {
        loop {
            self.settle();
            let hosts = self.servers.iter().chain([&self.client]);
            let timers = hosts.filter_map(Host::next_timer);
            let arrivals = [self.down.next_arrival(), self.up.next_arrival()];
            let next = timers.chain(arrivals.into_iter().flatten()).min();
            let Some(next) = next.filter(|next| *next <= until) else { break };
            self.now = self.now.max(next);
            self.step();
        }
        self.now = until;
    }

    fn step(&mut self) {
        let now = self.now;
        while let Some(frame) = self.down.take(now) {
            self.client.handle_frame(now, &frame);
        }
        while let Some(frame) = self.up.take(now) {
            // The last byte of the link address is that of the address.
            let to = (0..self.servers.len()).find(|n| frame[..6] == address(*n));
            self.servers[to.expect("a server")].handle_frame(now, &frame);
        }
        for host in self.servers.iter_mut().chain([&mut self.client]) {
            if host.next_timer().is_some_and(|at| at <= now) {
                host.handle_timers(now);
            }
        }
        for server in &mut self.servers {
            for (id, news) in server.news() {
                match news {
                    News::Accepted(..) | News::Acknowledged if self.is_endless => fill(server, id),
                    News::Accepted(..) => self.first = Some(id),
                    News::Lost(why) => panic!("{why:?}"),
                    _ => {}
                }
            }
        }
        let ports = self.client.news();
        for (id, news) in ports {
            if let News::Received(bytes) = news {
                let peer = self.client.stack().connections().find(|(other, _)| *other == id);
                let port = peer.expect("a connection").1.endpoints.local.port();
                self.received[usize::from(port - 5000)] += bytes.len();
            }
        }
    }

    fn settle(&mut self) {
        for server in &mut self.servers {
            server.settle(self.now);
            for frame in server.frames() {
                self.waits_us.push(self.down.wait(self.now).as_micros());
                self.down.carry(self.now, frame);
            }
        }
        self.client.settle(self.now);
        for frame in self.client.frames() {
            self.up.carry(self.now, frame);
        }
    }
}

fn address(server: usize) -> [u8; 6] {
    let number = u8::try_from(server).expect("few");
    mac(Ipv4Addr::new(10, 0, 0, 2 + number).into())
}

fn fill(server: &mut Host, id: ConnectionId) {
    if server.queued(id) < QUEUED as u64 {
        server.send(id, vec![0; QUEUED / 4]);
    }
}

/// What came of a path.
struct Outcome {
    /// Mbit/s of each server.
    mbits: Vec<f64>,
    /// Milliseconds in the queue: the median, and what 95 of 100 frames wait at most.
    waits_ms: [f64; 2],
    /// Hundredths of the frames that were lost.
    lost: f64,
}

/// Endless downloads by these algorithms; each begins a second after the one before.
fn share(algorithms: &[Algorithm], down: Conditions, up: Conditions) -> Outcome {
    let mut path = Bottleneck::new(algorithms, down, up);
    for server in 0..algorithms.len() {
        path.connect(server);
        path.run(path.now + Duration::from_secs(1));
    }
    path.run(START + WARM);
    path.received.fill(0);
    path.waits_us.clear();
    let before = path.down.fates();
    path.run(START + END);
    let fates = path.down.fates();
    let (offered, delivered) = (fates.offered - before.offered, fates.delivered - before.delivered);
    path.waits_us.sort_unstable();
    let wait = |part: usize| {
        let us = path.waits_us[path.waits_us.len() * part / 100];
        f64::from(u32::try_from(us).expect("short")) / 1e3
    };
    let float = |n: u64| f64::from(u32::try_from(n).expect("few"));
    let seconds = (END - WARM).as_secs_f64();
    Outcome {
        mbits: path.received.iter().map(|n| float(*n as u64) * 8.0 / 1e6 / seconds).collect(),
        waits_ms: [wait(50), wait(95)],
        lost: float(offered.saturating_sub(delivered)) * 100.0 / float(offered),
    }
}

/// Milliseconds of 50 responses of 100 kB, one in a second on one connection: those of the first, the median and the
/// longest.
fn responses(algorithm: Algorithm, down: Conditions, up: Conditions) -> [u32; 3] {
    const BYTES: usize = 100_000;
    const MILLISECOND: Duration = Duration::from_millis(1);
    let mut path = Bottleneck::new(&[algorithm], down, up);
    path.is_endless = false;
    path.connect(0);
    path.run(START + Duration::from_secs(1));
    let id = path.first.expect("a connection");
    let mut all: Vec<u32> = (1..=50)
        .map(|number| {
            path.servers[0].send(id, vec![0; BYTES]);
            let mut ms = 0;
            while path.received[0] < number * BYTES {
                path.run(path.now + MILLISECOND);
                ms += 1;
            }
            path.run(path.now + Duration::from_secs(1).saturating_sub(ms * MILLISECOND));
            ms
        })
        .collect();
    let first = all[0];
    all.sort_unstable();
    [first, all[25], all[49]]
}

/// A rate in Mbit/s with a queue of this many bytes, half of a round trip away.
fn link(mbits: u64, rtt_ms: u64, queue_bytes: usize) -> Conditions {
    Conditions {
        rate: Some(mbits * 125_000),
        queue_bytes,
        delay: Duration::from_micros(rtt_ms * 500),
        ..Conditions::default()
    }
}

/// The way back, without a limit.
fn back(rtt_ms: u64) -> Conditions {
    Conditions { delay: Duration::from_micros(rtt_ms * 500), ..Conditions::default() }
}

fn row(text: &mut String, name: &str, algorithms: &[Algorithm], down: Conditions, up: Conditions) {
    let outcome = share(algorithms, down, up);
    let names: Vec<_> = algorithms.iter().map(|one| format!("{one:?}")).collect();
    let mbits: Vec<_> = outcome.mbits.iter().map(|one| format!("{one:.1}")).collect();
    let [median, most] = outcome.waits_ms;
    let _ = writeln!(
        text,
        "{name:<50}{:<20}{:<24}{median:>8.1}{most:>8.1}{:>8.2}",
        names.join(" "),
        mbits.join(" "),
        outcome.lost
    );
}

fn table() -> String {
    let mut text = String::from(
        "Endless downloads of 60 s, measured from 10 s on; each flow begins a second after the one before.\n\n",
    );
    let _ = writeln!(
        text,
        "{:<50}{:<20}{:<24}{:>8}{:>8}{:>8}",
        "path", "flows", "Mbit/s of each", "wait ms", "95 %", "lost %"
    );
    let alone: [&[Algorithm]; 2] = [&[Cubic], &[Bbr]];
    // 20 Mbit/s and 40 ms are 100 kB.
    for (name, queue) in [("0.1", 10_000), ("0.5", 50_000), ("1", 100_000), ("10", 1_000_000)] {
        for flows in alone {
            let name = format!("20 Mbit/s, 40 ms, queue of {name} BDP");
            row(&mut text, &name, flows, link(20, 40, queue), back(40));
        }
    }
    text.push('\n');
    for (name, queue) in [("0.5", 50_000), ("1", 100_000), ("4", 400_000), ("10", 1_000_000)] {
        let name = format!("20 Mbit/s, 40 ms, queue of {name} BDP");
        for flows in [
            &[Cubic, Cubic][..],
            &[Bbr, Bbr],
            &[Cubic, Bbr],
            &[Bbr, Cubic],
            &[Bbr, Bbr, Bbr, Cubic],
        ] {
            row(&mut text, &name, flows, link(20, 40, queue), back(40));
        }
    }
    text.push('\n');
    for burst_bytes in [20_000, 100_000, 500_000] {
        let policer = Some(Policer { rate: 2_500_000, burst_bytes });
        let down = Conditions { policer, ..link(100, 40, 500_000) };
        let name = format!("100 Mbit/s, 40 ms, 20 after {} kB", burst_bytes / 1000);
        for flows in alone {
            row(&mut text, &name, flows, down, back(40));
        }
    }
    text.push('\n');
    for bunch_ms in [5, 20, 50] {
        let up = Conditions { bunch: Duration::from_millis(bunch_ms), ..back(40) };
        let name = format!("20 Mbit/s, 40 ms, 1 BDP, ACKs in bunches of {bunch_ms} ms");
        for flows in alone {
            row(&mut text, &name, flows, link(20, 40, 100_000), up);
        }
    }
    for jitter_ms in [5, 20] {
        let down = Conditions { jitter: Duration::from_millis(jitter_ms), ..link(20, 40, 100_000) };
        let name = format!("20 Mbit/s, 40 ms, 1 BDP, jitter of {jitter_ms} ms");
        for flows in alone {
            row(&mut text, &name, flows, down, back(40));
        }
    }
    text.push_str(
        "\nResponses of 100 kB, one in a second on one connection, over 20 Mbit/s, 40 ms, 1 BDP: milliseconds.\n\n",
    );
    let _ =
        writeln!(text, "{:<8}{:<8}{:>8}{:>8}{:>9}", "loss %", "flow", "first", "median", "longest");
    for loss in [0.0, 0.01, 0.03] {
        for algorithm in [Cubic, Bbr] {
            let down = Conditions { loss, ..link(20, 40, 100_000) };
            let [first, median, longest] = responses(algorithm, down, back(40));
            let (loss, name) = (loss * 100.0, format!("{algorithm:?}"));
            let _ = writeln!(text, "{loss:<8}{name:<8}{first:>8}{median:>8}{longest:>9}");
        }
    }
    text
}

#[test]
fn the_shares_are_as_in_the_table() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/sharing.txt");
    let table = table();
    if std::env::var_os("SAMUM_WRITE").is_some() {
        std::fs::write(path, &table).expect("the table is written");
    }
    let expected = std::fs::read_to_string(path).unwrap_or_default();
    assert!(table == expected, "something has changed; SAMUM_WRITE=1 writes the table:\n{table}");
}
