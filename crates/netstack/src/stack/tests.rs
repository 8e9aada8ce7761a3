mod crowd;
mod gateways;
mod opening;
mod reports;

use std::collections::BTreeMap;
use std::vec::Vec;

use core::time::Duration;

use super::*;
use crate::config::Address;
use crate::sim::Device;
use crate::tcp::Lost;
use crate::transmit::Limits;
use crate::wire::Mac;

const LIMITS: Limits = Limits { mtu: 1500, cut_bytes_max: 65_000, fills_checksums: true };

/// One end: a stack, its interface, and an application that notes everything.
struct End {
    stack: Stack,
    device: Device,
    notes: Notes,
    queues: BTreeMap<ConnectionId, OutQ<Vec<u8>>>,
}

#[derive(Default)]
struct Notes {
    accepted: Vec<ConnectionId>,
    received: BTreeMap<ConnectionId, Vec<u8>>,
    to_drain: Vec<ConnectionId>,
    ended: Vec<ConnectionId>,
    closed: Vec<ConnectionId>,
    lost: Vec<(ConnectionId, Lost)>,
    datagrams: Vec<(SocketAddr, SocketAddr, Vec<u8>)>,
    strays: Vec<Report>,
}

impl Application for Notes {
    fn accepted(&mut self, id: ConnectionId, _local: SocketAddr, _peer: SocketAddr) {
        self.accepted.push(id);
    }

    fn received(&mut self, id: ConnectionId, bytes: &[u8]) {
        self.received.entry(id).or_default().extend_from_slice(bytes);
    }

    fn acknowledged(&mut self, id: ConnectionId) {
        self.to_drain.push(id);
    }

    fn room(&mut self, id: ConnectionId) {
        self.to_drain.push(id);
    }

    fn ended(&mut self, id: ConnectionId) {
        self.ended.push(id);
    }

    fn closed(&mut self, id: ConnectionId) {
        self.closed.push(id);
    }

    fn lost(&mut self, id: ConnectionId, why: Lost) {
        self.lost.push((id, why));
    }

    fn datagram(&mut self, local: SocketAddr, peer: SocketAddr, bytes: &[u8]) {
        self.datagrams.push((local, peer, bytes.to_vec()));
    }

    fn stray(&mut self, report: Report) {
        self.strays.push(report);
    }
}

fn mac(host: u8) -> Mac {
    Mac([2, 0, 0, 0, 0, host])
}

fn config(host: u8) -> Config {
    let mut config = Config::new(mac(host).0);
    let ips = [
        core::net::IpAddr::from([192, 0, 2, host]),
        core::net::IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, u16::from(host)]),
    ];
    config.addresses = ips.map(|ip| Address { ip, prefix: 24, is_ours: true }).to_vec();
    config.tcp_ports = [80].to_vec();
    config.udp_ports = [53].to_vec();
    config
}

fn ends(is_v4: bool, port: u16) -> Endpoints {
    let addresses =
        |host| if is_v4 { config(host).addresses[0].ip } else { config(host).addresses[1].ip };
    Endpoints {
        local: SocketAddr::new(addresses(2), port),
        peer: SocketAddr::new(addresses(1), 80),
    }
}

impl End {
    fn new(config: Config) -> Self {
        let stack = Stack::new(config, *b"0123456789abcdef", at(0));
        let device = Device::new(LIMITS, 1000);
        Self { stack, device, notes: Notes::default(), queues: BTreeMap::new() }
    }

    fn handle(&mut self, now: Time, frames: &[Vec<u8>]) {
        for frame in frames {
            let (stack, device) = (&mut self.stack, &mut self.device);
            stack.handle_frame(now, frame, ReceivedChecksum::Unverified, &mut self.notes, device);
        }
        self.finish(now);
    }

    /// Drains what is to be drained, and flushes.
    fn finish(&mut self, now: Time) {
        if self.stack.next_timer().is_some_and(|at| at <= now) {
            self.stack.handle_timers(now, &mut self.notes, &mut self.device);
        }
        if self.device.has_refused() {
            self.stack.handle_room(now, &mut self.notes, &mut self.device);
        }
        let mut to_drain = mem::take(&mut self.notes.to_drain);
        to_drain.sort();
        to_drain.dedup();
        for id in to_drain {
            self.drain(now, id);
        }
        self.stack.flush(now, &mut self.device);
    }

    fn drain(&mut self, now: Time, id: ConnectionId) -> Drained {
        let queue = self.queues.entry(id).or_default();
        self.stack.drain(now, id, queue, &mut u64::MAX.clone(), &mut self.device)
    }

    fn send(&mut self, now: Time, id: ConnectionId, bytes: Vec<u8>) {
        self.queues.entry(id).or_default().push(bytes);
        self.drain(now, id);
        self.stack.flush(now, &mut self.device);
    }

    fn shutdown(&mut self, now: Time, id: ConnectionId) {
        self.stack.shutdown(id);
        self.drain(now, id);
        self.stack.flush(now, &mut self.device);
    }
}

fn at(millis: u64) -> Time {
    Time::default() + Duration::from_millis(millis)
}

/// A perfect link of 10 ms between a server and a client.
struct Pair {
    now: Time,
    server: End,
    client: End,
}

impl Pair {
    fn new() -> Self {
        Self { now: at(1000), server: End::new(config(1)), client: End::new(config(2)) }
    }

    fn connect(&mut self, ends: Endpoints) -> ConnectionId {
        self.client.stack.connect(self.now, ends, mac(1), &mut self.client.device).expect("room")
    }

    /// Carries frames over until nothing moves for this many milliseconds.
    fn run(&mut self, quiet_ms: u64) {
        let mut last = self.now;
        while self.now.since(last) <= Duration::from_millis(quiet_ms) {
            let (up, down) = (self.client.device.take(), self.server.device.take());
            if !up.is_empty() || !down.is_empty() {
                last = self.now;
            }
            self.now = self.now + Duration::from_millis(5);
            self.server.handle(self.now, &up);
            self.client.handle(self.now, &down);
        }
    }
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| u8::try_from((at * 31 + at / 251) % 256).expect("small")).collect()
}

#[test]
fn a_request_and_10_mib_of_response_are_exchanged_byte_exactly() {
    for is_v4 in [true, false] {
        let mut pair = Pair::new();
        let id = pair.connect(ends(is_v4, 40_000));
        pair.run(100);
        assert_eq!(pair.client.notes.accepted, [id]);
        let server_id = pair.server.notes.accepted[0];
        pair.client.send(pair.now, id, b"GET".to_vec());
        pair.run(100);
        assert_eq!(pair.server.notes.received[&server_id], b"GET");
        let body = pattern(10 << 20);
        pair.server.send(pair.now, server_id, body.clone());
        pair.server.shutdown(pair.now, server_id);
        pair.run(300);
        assert!(
            pair.client.notes.received[&id] == body,
            "{}",
            pair.client.notes.received[&id].len()
        );
        assert_eq!(pair.client.notes.ended, [id]);
        assert_eq!(pair.server.queues[&server_id].released(), 10 << 20);
        pair.client.shutdown(pair.now, id);
        pair.run(100);
        assert_eq!(pair.client.notes.closed, [id]);
        assert_eq!(pair.server.notes.closed, [server_id]);
        // The link takes 5 ms each way.
        for end in [&pair.server, &pair.client] {
            let trips = end.stack.counters().connections.round_trips;
            assert_eq!(trips.counts[2], trips.counts.iter().sum::<u64>(), "{trips:?}");
            assert!(trips.counts[2] > 0 && trips.above == 0, "{trips:?}");
        }
        let census = Census { half_open: 0, connections: 0, time_wait: 1 };
        assert_eq!(pair.server.stack.census(), census);
        assert_eq!(pair.client.stack.census(), Census::default());
        pair.run(61_000);
        assert_eq!(pair.server.stack.census(), Census::default());
        assert_eq!((pair.server.stack.next_timer(), pair.client.stack.next_timer()), (None, None));
        assert_eq!(pair.server.stack.counters().drops, crate::Drops::default());
    }
}

#[test]
fn what_moving_data_needs_counts_as_memory_and_is_given_back() {
    let mut pair = Pair::new();
    let id = pair.connect(ends(true, 40_000));
    pair.run(100);
    let server_id = pair.server.notes.accepted[0];
    let idle = pair.server.stack.memory();
    pair.client.stack.set_receiving(
        pair.now,
        id,
        false,
        &mut pair.client.notes,
        &mut pair.client.device,
    );
    pair.server.send(pair.now, server_id, pattern(20_000));
    let borrowed = pair.server.stack.borrowed();
    assert_eq!(borrowed, Borrowed { flights: 1, held_bytes: 0, next_hops: 1 });
    assert!(pair.server.stack.memory() > idle);
    let before = pair.client.stack.memory();
    pair.run(100);
    let borrowed = pair.client.stack.borrowed();
    assert_eq!(borrowed, Borrowed { flights: 0, held_bytes: 20_000, next_hops: 1 });
    assert_eq!(pair.client.stack.memory(), before + 20_000);
    let (client, server) = (&mut pair.client, &mut pair.server);
    client.stack.close(pair.now, id, &mut client.device);
    assert_eq!(client.stack.borrowed(), Borrowed::default());
    server.stack.close(pair.now, server_id, &mut server.device);
    assert_eq!(server.stack.borrowed(), Borrowed::default());
}

#[test]
fn connections_are_counted_by_state() {
    let mut pair = Pair::new();
    let ids: Vec<_> = (0..3)
        .map(|n| {
            let id = pair.connect(ends(true, 40_000 + n));
            pair.run(100);
            id
        })
        .collect();
    let servers = pair.server.notes.accepted.clone();
    assert_eq!(pair.server.stack.states(), [3, 0, 0, 0, 0, 0]);
    pair.client.shutdown(pair.now, ids[0]);
    pair.client.shutdown(pair.now, ids[1]);
    pair.server.shutdown(pair.now, servers[1]);
    assert_eq!(pair.server.stack.states(), [2, 1, 0, 0, 0, 0]);
    pair.server.shutdown(pair.now, servers[2]);
    pair.run(100);
    assert_eq!(pair.server.stack.states(), [0, 0, 1, 1, 0, 0]);
    assert_eq!(pair.client.stack.states(), [0, 0, 1, 1, 0, 0]);
    for (id, server_id) in ids.into_iter().zip(servers) {
        pair.client.stack.close(pair.now, id, &mut pair.client.device);
        pair.server.stack.close(pair.now, server_id, &mut pair.server.device);
    }
    pair.run(61_000);
    assert_eq!([pair.server.stack.states(), pair.client.stack.states()], [[0; 6]; 2]);
}
