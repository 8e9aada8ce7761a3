//! The plan of a world, drawn from a seed.

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;

use netstack::sim::{Burst, Conditions, Device, Host, Link, Random, World, mac};
use netstack::tcp::Algorithm;
use netstack::{Address, Config, Keepalive, Limits, Time};

/// Chunks of a side. Where no option passes, a path that loses 3 % of the segments takes more than an hour for this
/// many chunks of one byte: they are in flight together, one of them is lost each time, and the timeout stays as long
/// as it was (Karn).
const CHUNKS_MAX: u64 = 100_000;

/// The port of the server.
const PORT: u16 = 80;

/// What happens in a world.
#[derive(Debug)]
pub(crate) struct Plan {
    pub seed: u64,
    /// The properties of the path, there and back.
    pub conditions: [Conditions; 2],
    /// The moments at which the MTU of the path changes, and what it becomes.
    pub mtu_changes: Vec<(Duration, u16)>,
    pub hosts: [HostPlan; 2],
    pub is_v6: bool,
    pub connections: Vec<ConnectionPlan>,
    /// The moments at which segments are forged, in order.
    pub forgeries: Vec<(Duration, Aim)>,
}

/// What is known of a connection by an attacker who is not on its path, besides addresses and ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Aim {
    /// Nothing: all numbers are guessed.
    Blind,
    /// The receive window, but neither the number that is expected next, nor what was sent.
    Window,
}

#[derive(Debug)]
pub(crate) struct HostPlan {
    pub limits: Limits,
    /// Frames that the interface takes in one step.
    pub room: usize,
    pub receive_bytes_max: u32,
    pub half_open_max: u32,
    pub time_wait_max: u32,
    pub ecn: bool,
    pub congestion: Algorithm,
}

/// A connection: when it begins, how many bytes go up and down, and how it ends.
#[derive(Clone, Debug)]
pub(crate) struct ConnectionPlan {
    pub begins: Duration,
    pub up: u64,
    pub down: u64,
    /// Bytes that an application queues in one step.
    pub chunk: u64,
    pub end: End,
    /// For each side, the length of the pauses in which it does not receive, and their number.
    pub pauses: [(Duration, u32); 2],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The client ends after its request. The server ends after its response, when it has heard of the client's end.
    ClientFirst,
    /// The server ends after its response; the client when it has heard of that.
    ServerFirst,
    /// Each side ends after what it sends.
    Together,
    /// The client gives up after this many bytes of the response.
    ClientAborts(u64),
    /// The server gives up after this many bytes of the request.
    ServerAborts(u64),
}

impl Plan {
    pub(crate) fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let random = &mut random;
        let one = conditions(random);
        // Most paths are alike in both directions; boxes that strip options always are.
        let other = if random.chance(0.5) { one } else { conditions(random) };
        let conditions = [one, Conditions { strips: one.strips, ..other }];
        let changes = if random.chance(0.2) { random.within(1..=3) } else { 0 };
        let mtu_changes =
            (0..changes).map(|_| (milliseconds(random, 1..=5000), mtu(random))).collect();
        let connections = random.within(1..=6);
        let mut hosts = [host(random), host(random)];
        // Its applications ask for connections only if there is room.
        hosts[0].half_open_max = 100;
        // Apart from the other numbers of the seed.
        let algorithms = [Algorithm::Cubic, Algorithm::Bbr, Algorithm::NewReno];
        let mut choice = Random::new(!seed);
        for host in &mut hosts {
            host.congestion = algorithms[choice.index(algorithms.len())];
        }
        // Few bytes through a tiny window are as many segments as many through a large one.
        let [down_max, up_max] =
            [0, 1].map(|index| u64::from(hosts[index].receive_bytes_max).saturating_mul(500));
        let is_v6 = random.chance(0.4);
        let connections = (0..connections).map(|_| connection(random, up_max, down_max)).collect();
        Self {
            seed,
            conditions,
            mtu_changes,
            hosts,
            is_v6,
            connections,
            // Last, so that each seed's world is the same with and without them.
            forgeries: forgeries(random),
        }
    }

    /// Whether a connection may be lost to its path without the path being dead.
    pub(crate) fn is_harsh(&self) -> bool {
        self.conditions.iter().any(|one| one.burst.is_some() || one.loss + one.corrupt > 0.06)
            || self.hosts.iter().any(|host| host.half_open_max < 10)
    }

    pub(crate) fn address(&self, host: usize) -> IpAddr {
        let text = match (self.is_v6, host) {
            (false, 0) => "10.0.0.1",
            (false, _) => "10.0.0.2",
            (true, 0) => "fd00::1",
            (true, _) => "fd00::2",
        };
        text.parse().expect("an address")
    }

    /// The server.
    pub(crate) fn server(&self) -> SocketAddr {
        SocketAddr::new(self.address(1), PORT)
    }

    pub(crate) fn world(&self, start: Time) -> World {
        let mut random = Random::new(self.seed ^ 0x1234_5678);
        let host = |index: usize, plan: &HostPlan, secret: u8| {
            let ip = self.address(index);
            let config = Config {
                addresses: vec![Address {
                    ip,
                    prefix: if self.is_v6 { 64 } else { 24 },
                    is_ours: true,
                }],
                tcp_ports: vec![PORT],
                receive_bytes_max: plan.receive_bytes_max,
                half_open_max: plan.half_open_max,
                time_wait_max: plan.time_wait_max,
                ecn: plan.ecn,
                congestion: plan.congestion,
                patience: Duration::from_secs(900),
                // A peer that gives up may do so with a reset that is lost.
                keepalive: Some(Keepalive {
                    idle: Duration::from_secs(60),
                    interval: Duration::from_secs(10),
                    probes: 20,
                }),
                ..Config::new(mac(ip))
            };
            Host::new(config, Device::new(plan.limits, plan.room), [secret; 16], start)
        };
        let secret = random.bits().to_be_bytes()[0];
        let hosts = [host(0, &self.hosts[0], secret), host(1, &self.hosts[1], !secret)];
        let links = self.conditions.map(|conditions| Link::new(conditions, random.fork()));
        World::new(start, hosts, links)
    }
}

fn milliseconds(random: &mut Random, range: core::ops::RangeInclusive<u64>) -> Duration {
    Duration::from_millis(random.within(range))
}

fn mtu(random: &mut Random) -> u16 {
    u16::try_from(random.within(1280..=1500)).expect("an MTU")
}

/// A number up to `most`, small ones more often: each length in bits is as probable as another.
fn skewed(random: &mut Random, most: u64) -> u64 {
    let bits = random.within(0..=u64::from(most.ilog2()));
    random.within(0..=(1 << bits)).min(most)
}

/// Before the first connection begins, while data moves, and when all may be over.
fn forgeries(random: &mut Random) -> Vec<(Duration, Aim)> {
    let count = if random.chance(0.5) { random.within(1..=60) } else { 0 };
    let mut forgeries: Vec<_> = (0..count)
        .map(|_| {
            let aim = if random.chance(0.5) { Aim::Blind } else { Aim::Window };
            (milliseconds(random, 0..=8000), aim)
        })
        .collect();
    forgeries.sort_by_key(|(after, _)| *after);
    forgeries
}

fn conditions(random: &mut Random) -> Conditions {
    let sometimes = |random: &mut Random, chance: f64, most: f64| {
        let share = f64::from(u32::try_from(random.within(0..=1000)).expect("small")) / 1000.0;
        if random.chance(chance) { share * most } else { 0.0 }
    };
    let rate = random.chance(0.5).then(|| 20_000 + skewed(random, 20_000_000));
    // From a few packets to bufferbloat: two seconds of the rate.
    let bloat = rate.map_or(0, |rate| rate * random.within(1..=2000) / 1000);
    let queue_bytes = usize::try_from(bloat.max(6000)).expect("a queue");
    Conditions {
        loss: sometimes(random, 0.5, 0.1),
        burst: random.chance(0.15).then(|| Burst {
            begin: sometimes(random, 1.0, 0.02),
            end: 0.3,
            loss: 0.8,
        }),
        duplicate: sometimes(random, 0.3, 0.1),
        corrupt: sometimes(random, 0.3, 0.05),
        reorder: (sometimes(random, 0.3, 0.2), milliseconds(random, 1..=50)),
        delay: Duration::from_micros(skewed(random, 300_000)),
        jitter: Duration::from_micros(skewed(random, 30_000)),
        rate,
        queue_bytes,
        mark_bytes: random.chance(0.3).then_some(queue_bytes / 2),
        mtu: if random.chance(0.2) { mtu(random) } else { 1500 },
        says_too_large: true,
        strips: match random.within(0..=9) {
            0 => 1 << 4,
            1 => 1 << 8,
            2 => 1 << 3,
            3 => 1 << 3 | 1 << 4 | 1 << 8,
            _ => 0,
        },
        ..Conditions::default()
    }
}

fn host(random: &mut Random) -> HostPlan {
    let cuts = random.chance(0.6);
    HostPlan {
        limits: Limits {
            mtu: if random.chance(0.8) { 1500 } else { mtu(random) },
            cut_bytes_max: if cuts {
                u32::try_from(random.within(3000..=65_000)).expect("64 KiB")
            } else {
                0
            },
            fills_checksums: cuts || random.chance(0.3),
        },
        room: if random.chance(0.3) {
            usize::try_from(random.within(1..=20)).expect("few")
        } else {
            usize::MAX
        },
        receive_bytes_max: match random.within(0..=9) {
            0 => 1 + u32::try_from(skewed(random, 3000)).expect("small"),
            1 => 3000 + u32::try_from(random.within(0..=10_000)).expect("small"),
            2..=5 => 64 * 1024,
            _ => 1024 * 1024,
        },
        half_open_max: if random.chance(0.1) {
            u32::try_from(random.within(0..=2)).expect("small")
        } else {
            100
        },
        time_wait_max: if random.chance(0.1) { 1 } else { 100 },
        ecn: random.chance(0.5),
        congestion: Algorithm::Cubic,
    }
}

fn connection(random: &mut Random, up_max: u64, down_max: u64) -> ConnectionPlan {
    let (up, down) = (skewed(random, up_max.min(200_000)), skewed(random, down_max.min(2_000_000)));
    let mut pauses = || {
        let count = if random.chance(0.2) { random.within(1..=20) } else { 0 };
        (milliseconds(random, 1..=3000), u32::try_from(count).expect("few"))
    };
    let pauses = [pauses(), pauses()];
    let begins = milliseconds(random, 0..=3000);
    let chunk = 1 + skewed(random, 200_000);
    // So is much in tiny chunks, 16 of which fit into a segment.
    let most = chunk.saturating_mul(CHUNKS_MAX);
    ConnectionPlan {
        begins,
        up: up.min(most),
        down: down.min(most),
        chunk,
        end: match random.within(0..=9) {
            0..=2 => End::ClientFirst,
            3..=5 => End::ServerFirst,
            6..=7 => End::Together,
            8 => End::ClientAborts(skewed(random, down.max(2))),
            _ => End::ServerAborts(skewed(random, up.max(2))),
        },
        pauses,
    }
}
