//! Peers that claim more than their share of a path: none is faster than an honest peer (Savage, Cardwell,
//! Wetherall, Anderson: "TCP Congestion Control with a Misbehaving Receiver", 1999; RFC 3465; RFC 2018, 8).

use core::net::{Ipv4Addr, SocketAddr};
use core::time::Duration;
use std::collections::BTreeMap;

use netstack::sim::{Conditions, Device, Host, Link, News, Random, Segment, TcpOption, flag, mac};
use netstack::tcp::Algorithm;
use netstack::{Address, Config, ConnectionId, Limits, Time};

const START: Time = Time::from_nanos(1_000_000_000);
const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const FILE_BYTES: usize = 64 * 1024 * 1024;
const MSS: u64 = 1460;
/// The shift of the peer's windows.
const SHIFT: u8 = 10;
const ISN: u32 = 77;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    Honest,
    /// Acknowledges each segment in ten pieces.
    Divides,
    /// Acknowledges ten segments more than it has.
    RunsAhead,
    /// Sends each acknowledgement three times.
    Repeats,
    /// Reports segments after a hole and drops every second one of them afterwards.
    TakesBack,
}

/// A receiver, which is played by hand.
struct Peer {
    manner: Manner,
    has_sack: bool,
    iss: u32,
    /// Bytes that have come without a gap.
    received: u64,
    /// The begin and the end of what has come after a gap.
    held: BTreeMap<u64, u64>,
    /// The same with what was taken back: what the sender is told.
    told: BTreeMap<u64, u64>,
    count: u64,
}

impl Peer {
    fn segment(&self, flags: u8, position: Option<u64>, options: Vec<TcpOption>) -> Vec<u8> {
        let ack = position.map_or(0, |position| self.number(position));
        let segment = Segment {
            source: SocketAddr::new(CLIENT.into(), 5000),
            destination: SocketAddr::new(SERVER.into(), 80),
            ecn: 0,
            seq: if flags & flag::SYN == 0 { ISN + 1 } else { ISN },
            ack,
            flags,
            window: u16::MAX,
            options,
            payload: vec![],
        };
        segment.to_frame()
    }

    fn syn(&self) -> Vec<u8> {
        let mut options = vec![TcpOption::Mss(1460), TcpOption::WindowScale(SHIFT)];
        options.extend(self.has_sack.then_some(TcpOption::SackPermitted));
        self.segment(flag::SYN, None, options)
    }

    fn number(&self, position: u64) -> u32 {
        let position = u32::try_from(position).expect("less than a file");
        self.iss.wrapping_add(1).wrapping_add(position)
    }

    fn acknowledgement(&self, position: u64) -> Vec<u8> {
        let mut options = vec![];
        if self.has_sack && !self.told.is_empty() {
            let blocks = self.told.iter().rev().take(3);
            let number = |(from, to): (&u64, &u64)| (self.number(*from), self.number(*to));
            options.push(TcpOption::Sack(blocks.map(number).collect()));
        }
        self.segment(flag::ACK, Some(position), options)
    }

    /// Takes a segment, and returns the answers.
    fn handle(&mut self, segment: &Segment) -> Vec<Vec<u8>> {
        if segment.has(flag::SYN) {
            self.iss = segment.seq;
            return vec![self.acknowledgement(0)];
        }
        let from = u64::from(segment.seq.wrapping_sub(self.iss.wrapping_add(1)));
        let to = from + u64::try_from(segment.payload.len()).expect("a segment");
        if from == to {
            return vec![];
        }
        let before = self.received;
        self.count += 1;
        insert(&mut self.told, from, to);
        let is_behind_a_gap = from > self.received;
        let is_dropped =
            self.manner == Manner::TakesBack && is_behind_a_gap && self.count.is_multiple_of(2);
        if !is_dropped {
            insert(&mut self.held, from, to);
        }
        while let Some((&from, &to)) =
            self.held.first_key_value().filter(|(from, _)| **from <= self.received)
        {
            self.held.remove(&from);
            self.received = self.received.max(to);
        }
        let received = self.received;
        self.told.retain(|from, to| *from > received && *to > received);
        match self.manner {
            Manner::Divides if received > before => (1..=10)
                .map(|part| self.acknowledgement(before + (received - before) * part / 10))
                .collect(),
            Manner::RunsAhead => vec![self.acknowledgement(received + 10 * MSS)],
            Manner::Repeats => vec![self.acknowledgement(received); 3],
            _ => vec![self.acknowledgement(received)],
        }
    }
}

/// Adds a range, joined with those that it touches.
fn insert(ranges: &mut BTreeMap<u64, u64>, mut from: u64, mut to: u64) {
    let touched: Vec<_> = ranges
        .range(..=to)
        .filter(|(_, end)| **end >= from)
        .map(|(begin, end)| (*begin, *end))
        .collect();
    for (begin, end) in touched {
        ranges.remove(&begin);
        (from, to) = (from.min(begin), to.max(end));
    }
    ranges.insert(from, to);
}

/// Bytes that the peer has without a gap after the time of a path.
fn download(congestion: Algorithm, manner: Manner, has_sack: bool, path: Path, seed: u64) -> u64 {
    let (path, time) = path;
    let config = Config {
        addresses: vec![Address { ip: SERVER.into(), prefix: 24, is_ours: true }],
        tcp_ports: vec![80],
        ecn: false,
        congestion,
        ..Config::new(mac(SERVER.into()))
    };
    let limits = Limits { mtu: 1500, cut_bytes_max: 65_000, fills_checksums: true };
    let mut server = Host::new(config, Device::new(limits, usize::MAX), [3; 16], START);
    let mut peer = Peer {
        manner,
        has_sack,
        iss: 0,
        received: 0,
        held: BTreeMap::new(),
        told: BTreeMap::new(),
        count: 0,
    };
    let mut random = Random::new(seed);
    let way_back = Conditions { loss: 0.0, rate: None, ..path };
    let mut down = Link::new(path, random.fork());
    let mut up = Link::new(way_back, random.fork());
    let (mut now, until) = (START, START + time);
    up.carry(now, peer.syn());
    loop {
        let events = [up.next_arrival(), down.next_arrival(), server.next_timer()];
        let Some(next) = events.into_iter().flatten().min().filter(|next| *next <= until) else {
            return peer.received;
        };
        now = now.max(next);
        while let Some(frame) = up.take(now) {
            server.handle_frame(now, &frame);
        }
        if server.next_timer().is_some_and(|timer| timer <= now) {
            server.handle_timers(now);
        }
        for (id, news) in server.news() {
            hear(&mut server, id, &news);
        }
        server.settle(now);
        for frame in server.frames() {
            down.carry(now, frame);
        }
        while let Some(frame) = down.take(now) {
            let segment = Segment::from_frame(&frame).expect("a segment");
            assert!(!segment.has(flag::RST), "{manner:?} ends the connection");
            for answer in peer.handle(&segment) {
                up.carry(now, answer);
            }
        }
    }
}

fn hear(server: &mut Host, id: ConnectionId, news: &News) {
    match news {
        News::Accepted(..) => server.send(id, vec![5; FILE_BYTES]),
        News::Lost(why) => panic!("{why:?}"),
        _ => {}
    }
}

/// A path that loses nothing: what is gained in slow start.
const WIDE: Conditions = Conditions {
    loss: 0.0,
    burst: None,
    duplicate: 0.0,
    corrupt: 0.0,
    reorder: (0.0, Duration::ZERO),
    delay: Duration::from_millis(50),
    jitter: Duration::ZERO,
    rate: None,
    policer: None,
    bunch: Duration::ZERO,
    queue_bytes: usize::MAX,
    mark_bytes: None,
    mtu: 1500,
    says_too_large: true,
    strips: 0,
};

/// A path that loses: what is gained in congestion avoidance and in recovery.
const LOSSY: Conditions =
    Conditions { loss: 0.01, rate: Some(2_500_000), queue_bytes: 100_000, ..WIDE };

/// A path, and the time that the peer has.
type Path = (Conditions, Duration);

/// An algorithm, the number of downloads with it, and the most that a peer may get in relation to an honest one.
type Case = (Algorithm, u64, f64);

/// Nothing is of chance. Two repeated acknowledgements let two segments more out (RFC 3042), which BBR's model sees.
const IN_SLOW_START: [Case; 3] =
    [(Algorithm::Cubic, 1, 1.02), (Algorithm::NewReno, 1, 1.02), (Algorithm::Bbr, 1, 1.05)];

/// Fewer downloads spread more. BBR's move eight times as much, and so take longer here.
const WHERE_FRAMES_ARE_LOST: [Case; 3] =
    [(Algorithm::Cubic, 10, 1.05), (Algorithm::NewReno, 5, 1.15), (Algorithm::Bbr, 3, 1.2)];

/// The bytes that peers of this manner get.
fn bytes(&(congestion, seeds, _): &Case, manner: Manner, has_sack: bool, path: Path) -> f64 {
    let all = (0..seeds).map(|seed| download(congestion, manner, has_sack, path, seed));
    f64::from(u32::try_from(all.sum::<u64>()).expect("less than 4 GB"))
}

/// The bytes of peers of each of these manners, in relation to those of honest ones.
fn gains(case: &Case, manners: &[Manner], has_sack: bool, path: Path) -> Vec<(Manner, f64)> {
    let honest = bytes(case, Manner::Honest, has_sack, path);
    assert!(honest > 4e5, "an honest peer gets something");
    let gains = manners.iter().map(|manner| {
        let own = bytes(case, *manner, has_sack, path);
        eprintln!("{:?}, {manner:?}, SACK {has_sack}: {own} bytes, honest {honest}", case.0);
        (*manner, own / honest)
    });
    gains.collect()
}

/// Checks that no peer of these manners gets more than its share.
fn check(cases: &[Case], manners: &[Manner], path: Path) {
    for case in cases {
        for has_sack in [false, true] {
            for (manner, gain) in gains(case, manners, has_sack, path) {
                assert!(gain < case.2, "{case:?}, {manner:?}, SACK {has_sack}: {gain}");
            }
        }
    }
}

#[test]
fn in_slow_start_no_manner_gains() {
    // Seven round trips.
    let path = (WIDE, Duration::from_millis(750));
    check(&IN_SLOW_START, &[Manner::Divides, Manner::RunsAhead, Manner::Repeats], path);
}

#[test]
fn on_a_path_that_loses_no_manner_gains() {
    let path = (LOSSY, Duration::from_secs(20));
    let manners = [Manner::Divides, Manner::RunsAhead, Manner::Repeats, Manner::TakesBack];
    check(&WHERE_FRAMES_ARE_LOST, &manners, path);
}

/// What was reported and dropped is sent again: the connection does not stand still.
#[test]
fn a_peer_that_takes_back_what_it_reported_still_gets_everything() {
    let path = (Conditions { loss: 0.005, ..LOSSY }, Duration::from_secs(20));
    for case in &WHERE_FRAMES_ARE_LOST {
        let gains = gains(case, &[Manner::TakesBack], true, path);
        assert!(gains.iter().all(|(_, gain)| (0.01..1.05).contains(gain)), "{case:?}: {gains:?}");
    }
}
