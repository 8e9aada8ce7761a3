//! Long times and hostile frames: memory does not grow, and no connection is lost.

use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use core::time::Duration;
use std::collections::HashMap;

use netstack::sim::{
    Conditions, Device, Host, Link, News, Random, Segment, TcpOption, World, flag, mac,
};
use netstack::{Address, Config, ConnectionId, Keepalive, Limits, Time};

use crate::worlds::attack::volley;
use crate::worlds::plan::Aim;

const START: Time = Time::from_nanos(1_000_000_000);
const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

fn host(ip: Ipv4Addr, secret: u8) -> Host {
    let config = Config {
        addresses: vec![Address { ip: ip.into(), prefix: 8, is_ours: true }],
        tcp_ports: vec![80],
        half_open_max: 256,
        keepalive: Some(Keepalive {
            idle: Duration::from_secs(300),
            interval: Duration::from_secs(10),
            probes: 5,
        }),
        ..Config::new(mac(ip.into()))
    };
    let limits = Limits { mtu: 1500, cut_bytes_max: 65_000, fills_checksums: true };
    Host::new(config, Device::new(limits, usize::MAX), [secret; 16], START)
}

fn world(conditions: Conditions) -> World {
    let mut random = Random::new(5);
    let links = [Link::new(conditions, random.fork()), Link::new(conditions, random.fork())];
    World::new(START, [host(CLIENT, 1), host(SERVER, 2)], links)
}

/// What a client does with connections that it has asked for, once they are open: the bytes that it sends, and
/// whether it ends its side after them.
#[derive(Default)]
struct Client(HashMap<ConnectionId, (usize, bool)>);

impl Client {
    fn connect(&mut self, world: &mut World, port: u16, bytes: usize, ends: bool) -> ConnectionId {
        let (local, peer) =
            (SocketAddr::new(CLIENT.into(), port), SocketAddr::new(SERVER.into(), 80));
        let id = world.hosts[0].connect(world.now(), local, peer).expect("room for a connection");
        self.0.insert(id, (bytes, ends));
        world.settle();
        id
    }

    /// Lets the world run until then. The server answers as many bytes as it gets, and ends when its peer
    /// does. Returns what the client receives.
    fn run(&mut self, world: &mut World, until: Time) -> usize {
        let mut received = 0;
        while let Some(news) = world.advance(until) {
            for (host, id, news) in news {
                match (host, news) {
                    (1, News::Received(bytes)) => world.hosts[1].send(id, bytes),
                    (1, News::Ended) => world.hosts[1].shutdown(id),
                    (0, News::Accepted(..)) => {
                        let (bytes, ends) = self.0.remove(&id).expect("a connection of the client");
                        world.hosts[0].send(id, vec![BYTE; bytes]);
                        if ends {
                            world.hosts[0].shutdown(id);
                        }
                    }
                    (0, News::Received(bytes)) => {
                        assert!(bytes.iter().all(|byte| *byte == BYTE), "other bytes");
                        received += bytes.len();
                    }
                    (host, News::Lost(why)) => panic!("host {host} lost a connection: {why:?}"),
                    _ => {}
                }
            }
            world.settle();
        }
        received
    }
}

/// Two kinds of things that are kept in reserve.
const MORE_BYTES_MAX: usize = 4 * 1024;

/// All that is sent.
const BYTE: u8 = 7;

#[test]
fn a_day_leaves_nothing_behind() {
    let lossy =
        Conditions { loss: 0.01, delay: Duration::from_millis(20), ..Conditions::default() };
    let mut world = world(lossy);
    let mut client = Client::default();
    let idle: Vec<_> = (0..20).map(|n| client.connect(&mut world, 1000 + n, 0, false)).collect();
    let (mut most, mut memory) = (0, [0; 2]);
    for minute in 0..24 * 60_u16 {
        let until = START + Duration::from_secs(60) * (u32::from(minute) + 1);
        client.connect(&mut world, 10_000 + minute % 100, 3000, true);
        let mut expected = 3000;
        if minute % 30 == 29 {
            for id in &idle {
                world.hosts[0].send(*id, vec![BYTE; 1000]);
                expected += 1000;
            }
        }
        world.settle();
        assert_eq!(client.run(&mut world, until), expected, "in minute {minute}");
        let [ours, servers] = [0, 1].map(|host| world.hosts[host].stack().census());
        most = most.max(ours.time_wait + servers.time_wait);
        assert_eq!((servers.connections, servers.half_open), (20, 0), "in minute {minute}");
        // After an hour more connections may send at the same time than ever before. What each connection did not give
        // back would be more than a thousand times as much at the end of the day.
        let now = [0, 1].map(|host| world.hosts[host].stack().memory());
        if minute == 60 {
            memory = now;
        }
        let is_more = |host: usize| now[host] > memory[host] + MORE_BYTES_MAX;
        let is_leak = minute > 60 && (is_more(0) || is_more(1));
        assert!(!is_leak, "bytes in minute {minute}: {memory:?}, now {now:?}");
    }
    assert!(most <= 10, "{most} in TIME-WAIT with one connection a minute");
    idle.into_iter().for_each(|id| world.hosts[0].shutdown(id));
    end(world, client);
}

/// Lets all connections end, and checks that nothing is left of them. Returns what the client receives.
fn end(mut world: World, mut client: Client) -> usize {
    world.settle();
    let until = world.now() + Duration::from_secs(1000);
    let received = client.run(&mut world, until);
    world.hosts.iter().for_each(Host::check_empty);
    assert_eq!(world.next_event(), None);
    received
}

fn forged(random: &mut Random, source: IpAddr, port: u16, flags: u8) -> Segment {
    Segment {
        source: SocketAddr::new(source, port),
        destination: SocketAddr::new(SERVER.into(), 80),
        ecn: 0,
        seq: u32::try_from(random.within(0..=u64::from(u32::MAX))).expect("32 bits"),
        ack: u32::try_from(random.within(0..=u64::from(u32::MAX))).expect("32 bits"),
        flags,
        window: 1000,
        options: vec![],
        payload: vec![],
    }
}

#[test]
fn a_flood_of_forged_syns_stops_no_download() {
    let mut world = world(Conditions { delay: Duration::from_millis(5), ..Conditions::default() });
    let mut random = Random::new(9);
    let mut client = Client::default();
    let id = client.connect(&mut world, 1000, 10_000, false);
    let until = world.now() + Duration::from_millis(100);
    let mut got = client.run(&mut world, until);
    for round in 0..1000_u32 {
        for _ in 0..100 {
            let [.., a, b, c] = random.bits().to_be_bytes();
            let source = Ipv4Addr::new(10, a, b, c.max(3));
            let mut syn = forged(&mut random, source.into(), 5000, flag::SYN);
            syn.options = vec![TcpOption::Mss(1460), TcpOption::SackPermitted];
            let now = world.now();
            world.hosts[1].handle_frame(now, &syn.to_frame());
        }
        if round % 10 == 9 {
            world.hosts[0].send(id, vec![BYTE; 10_000]);
        }
        world.settle();
        let until = world.now() + Duration::from_millis(1);
        got += client.run(&mut world, until);
        assert!(world.hosts[1].stack().census().half_open <= 256);
    }
    // A newcomer gets in, too: by a cookie.
    client.connect(&mut world, 1001, 5000, true);
    world.hosts[0].shutdown(id);
    let cookies = world.hosts[1].stack().counters().handshakes.cookies_sent;
    assert!(cookies > 90_000, "{cookies} cookies");
    assert_eq!(got + end(world, client), 1_015_000);
}

/// Lets an attacker forge segments to both ends of a connection for 10 s while data goes up and down, and returns the
/// challenges that it was sent in all. Each byte arrives, and the connection ends in order.
fn forge(aim: Aim) -> u64 {
    let mut world = world(Conditions { delay: Duration::from_millis(5), ..Conditions::default() });
    let mut random = Random::new(11);
    let mut client = Client::default();
    let id = client.connect(&mut world, 1000, 10_000, false);
    let until = world.now() + Duration::from_millis(100);
    let mut got = client.run(&mut world, until);
    let ends = [(CLIENT, 1000), (SERVER, 80)].map(|(ip, port)| SocketAddr::new(ip.into(), port));
    for round in 0..500_u32 {
        for host in [0, 1] {
            let stack = &world.hosts[host];
            let mut open = stack.stack().connections();
            let numbers = open.next().and_then(|(id, _)| stack.numbers(id));
            drop(open);
            assert!(numbers.is_some(), "host {host} has lost its connection in round {round}");
            let frames = volley(&mut random, ends[1 - host], ends[host], aim, numbers);
            let now = world.now();
            frames.iter().for_each(|frame| world.hosts[host].handle_frame(now, frame));
        }
        if round % 10 == 0 {
            world.hosts[0].send(id, vec![BYTE; 2000]);
        }
        world.settle();
        let until = world.now() + Duration::from_millis(20);
        got += client.run(&mut world, until);
    }
    world.hosts[0].shutdown(id);
    let counters = [0, 1].map(|host| world.hosts[host].stack().counters().connections);
    assert_eq!(got + end(world, client), 110_000);
    counters.iter().map(|counters| counters.challenges_sent).sum()
}

/// 13,500 segments to each end; both answer at most 5 in a second (RFC 5961, 7).
#[test]
fn forged_segments_end_no_connection() {
    for aim in [Aim::Blind, Aim::Window] {
        let challenges = forge(aim);
        assert!((2 * 5 * 9..=2 * 5 * 12).contains(&challenges), "{aim:?}: {challenges}");
    }
}
