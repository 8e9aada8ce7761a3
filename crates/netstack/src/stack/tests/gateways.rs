//! Peers of other networks, whose frames come from a station that is not the router.

use core::net::IpAddr;

use super::*;
use crate::config::Gateway;
use crate::sim::{Segment, flag};
use crate::wire::{EtherType, ethernet};

/// Stations of the link.
const SERVER: u8 = 1;
const BALANCER: u8 = 7;
const ROUTER: u8 = 8;
const OTHER_ROUTER: u8 = 9;

/// For each version of IP: the server, the router, a peer of the link, a peer of another network.
const V4: [&str; 4] = ["192.0.2.1", "192.0.2.254", "192.0.2.77", "198.51.100.1"];
const V6: [&str; 4] = ["2001:db8::1", "2001:db8::ff", "2001:db8::77", "2a00::1"];
const FAR: usize = 3;

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

/// A station with an address of each version.
fn station(number: u8, addresses: [&str; 2]) -> Config {
    let mut config = Config::new(mac(number).0);
    for (text, prefix) in addresses.into_iter().zip([24, 64]) {
        config.addresses.push(Address { ip: ip(text), prefix, is_ours: true });
    }
    config
}

fn server(gateways: &[Gateway]) -> End {
    let mut config = station(SERVER, [V4[0], V6[0]]);
    config.tcp_ports.push(80);
    config.gateways = gateways.to_vec();
    End::new(config)
}

fn gateways() -> [Gateway; 2] {
    [V4, V6].map(|[_, router, ..]| Gateway::new(ip(router)))
}

/// The answers of a router, asked by these frames.
fn answers_of(number: u8, questions: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut router = End::new(station(number, [V4[1], V6[1]]));
    router.sends(at(0), questions)
}

fn link(frame: &[u8]) -> ethernet::Header {
    ethernet::Header::parse(frame).expect("a frame").0
}

fn tagged(mut frame: Vec<u8>, vlan: u8) -> Vec<u8> {
    frame.splice(12..12, [0x81, 0, 0, vlan]);
    frame
}

/// A frame of a peer, which comes from a station.
fn frame(from: u8, versions: [&str; 4], peer: usize, flags: u8, seq: u32, ack: u32) -> Vec<u8> {
    let segment = Segment {
        source: SocketAddr::new(ip(versions[peer]), 4000),
        destination: SocketAddr::new(ip(versions[0]), 80),
        ecn: 0,
        seq,
        ack,
        flags,
        window: 60_000,
        options: Vec::new(),
        payload: Vec::new(),
    };
    let mut frame = segment.to_frame();
    frame[..6].copy_from_slice(&mac(SERVER).0);
    frame[6..12].copy_from_slice(&mac(from).0);
    frame
}

impl End {
    /// The frames that are sent at this moment.
    fn sends(&mut self, now: Time, frames: &[Vec<u8>]) -> Vec<Vec<u8>> {
        self.handle(now, frames);
        self.device.take()
    }

    /// The station that the only frame goes to that is sent at this moment.
    fn sends_to(&mut self, now: Time, frame: Vec<u8>) -> Mac {
        let sent = self.sends(now, &[frame]);
        assert_eq!(sent.len(), 1, "{sent:?}");
        link(&sent[0]).destination
    }

    /// Lets a router answer what is asked at this moment.
    fn learn(&mut self, now: Time, router: u8) {
        let questions = self.sends(now, &[]);
        assert_eq!(questions.len(), 2, "ARP and neighbour discovery");
        assert_eq!(self.sends(now, &answers_of(router, &questions)), Vec::<Vec<u8>>::new());
        assert_eq!(self.stack.counters().drops, crate::Drops::default());
    }
}

#[test]
fn peers_of_other_networks_are_answered_through_the_router() {
    for versions in [V4, V6] {
        let mut server = server(&gateways());
        server.learn(at(0), ROUTER);
        let expected = [(1, BALANCER), (2, BALANCER), (FAR, ROUTER)];
        for (peer, station) in expected {
            let syn = frame(BALANCER, versions, peer, flag::SYN, 7, 0);
            assert_eq!(server.sends_to(at(1), syn), mac(station), "{}", versions[peer]);
            // A reset goes there, too.
            let wrong = frame(BALANCER, versions, peer, flag::ACK, 8, 0);
            assert_eq!(server.sends_to(at(1), wrong), mac(station), "{}", versions[peer]);
        }
    }
}

#[test]
fn echoes_go_through_the_router_too() {
    let mut server = server(&gateways());
    server.learn(at(0), ROUTER);
    let mut echo = frame(BALANCER, V4, FAR, 0, 0, 0);
    // The protocol, the checksum of the header, and the message.
    echo[23] = 1;
    let sum = u16::from_be_bytes([echo[24], echo[25]]) + 5;
    echo[24..26].copy_from_slice(&sum.to_be_bytes());
    echo[34..].fill(0);
    echo[34..38].copy_from_slice(&[8, 0, 0xf7, 0xff]);
    assert_eq!(server.sends_to(at(1), echo), mac(ROUTER));
}

#[test]
fn without_a_router_answers_go_to_where_the_frames_come_from() {
    let mut server = server(&[]);
    assert_eq!(server.sends(at(0), &[]), Vec::<Vec<u8>>::new());
    for versions in [V4, V6] {
        let syn = frame(BALANCER, versions, FAR, flag::SYN, 7, 0);
        assert_eq!(server.sends_to(at(1), syn), mac(BALANCER));
    }
}

#[test]
fn a_router_is_asked_each_second_until_it_answers_and_each_10_s_afterwards() {
    let mut server = server(&gateways()[..1]);
    let asked: Vec<_> =
        (0..40).filter(|tenth| !server.sends(at(tenth * 100), &[]).is_empty()).collect();
    assert_eq!(asked, [0, 10, 20, 30]);
    // A peer that has no answer meanwhile.
    let syn = || frame(BALANCER, V4, FAR, flag::SYN, 7, 0);
    let sent = server.sends(at(4000), &[syn()]);
    assert_eq!(sent.len(), 2);
    assert_eq!(link(&sent[0]).destination, mac(BALANCER));
    assert_eq!(link(&sent[1]).ethertype, EtherType::ARP);
    server.sends(at(4000), &answers_of(ROUTER, &sent[1..]));
    // Its handshake goes on through the router.
    assert_eq!(server.sends_to(at(4500), syn()), mac(ROUTER));
    let asked: Vec<_> = (50..300)
        .filter(|tenth| {
            let sent = server.sends(at(tenth * 100), &[]);
            sent.iter().any(|frame| link(frame).ethertype == EtherType::ARP)
        })
        .collect();
    assert_eq!(asked, [50, 150, 250]);
}

#[test]
fn a_router_is_asked_in_the_virtual_lan_that_frames_come_from() {
    let mut server = server(&gateways()[..1]);
    assert_eq!(link(&server.sends(at(0), &[])[0]).vlan, None);
    let syn = tagged(frame(BALANCER, V4, FAR, flag::SYN, 7, 0), 5);
    let sent = server.sends(at(1000), &[syn]);
    assert_eq!([link(&sent[0]).vlan, link(&sent[1]).vlan], [Some(5); 2]);
    server.sends(at(1000), &answers_of(ROUTER, &sent[1..]));
    let syn = frame(BALANCER, V4, FAR, flag::SYN, 7, 0);
    let sent = server.sends(at(1001), &[syn]);
    let header = link(&sent[0]);
    assert_eq!((header.destination, header.vlan), (mac(ROUTER), Some(5)));
}

#[test]
fn a_download_follows_its_router_to_another_station() {
    for versions in [V4, V6] {
        let mut server = server(&gateways());
        server.learn(at(0), ROUTER);
        let syn = frame(BALANCER, versions, FAR, flag::SYN, 7, 0);
        let sent = server.sends(at(1), &[syn]);
        let iss = Segment::from_frame(&sent[0]).expect("a segment").seq;
        server.sends(at(2), &[frame(BALANCER, versions, FAR, flag::ACK, 8, iss + 1)]);
        let id = server.notes.accepted[0];
        server.send(at(3), id, pattern(1000));
        assert_eq!(link(&server.device.take()[0]).destination, mac(ROUTER));
        // The peer is silent: what is sent to the old router is lost.
        let questions: Vec<_> = (10..20)
            .flat_map(|second| server.sends(at(second * 1000), &[]))
            .filter(|frame| link(frame).destination.is_multicast())
            .collect();
        server.sends(at(20_000), &answers_of(OTHER_ROUTER, &questions));
        let sent = (20..200).flat_map(|second| server.sends(at(second * 1000), &[]));
        let again: Vec<_> =
            sent.map(|frame| link(&frame).destination).filter(|to| !to.is_multicast()).collect();
        assert!(!again.is_empty() && again.iter().all(|to| *to == mac(OTHER_ROUTER)), "{again:?}");
    }
}

#[test]
fn an_answer_to_one_stack_of_an_interface_is_known_to_all() {
    let gateways = gateways();
    let [mut one, mut other] = [(); 2].map(|()| server(&gateways));
    one.learn(at(0), ROUTER);
    other.sends(at(0), &[]);
    assert_eq!(other.sends_to(at(1), frame(BALANCER, V4, FAR, flag::SYN, 7, 0)), mac(ROUTER));
}

#[test]
fn other_stations_cannot_answer_for_the_router() {
    let mut server = server(&gateways());
    let questions = server.sends(at(0), &[]);
    let mut lies = answers_of(OTHER_ROUTER, &questions);
    assert_eq!(lies.len(), 2);
    // The sender of the ARP message, the target of the advertisement.
    lies[0][31] ^= 1;
    let (low, checksum) = (14 + 40 + 23, 14 + 40 + 3);
    lies[1][low] ^= 1;
    lies[1][checksum] ^= 1;
    server.sends(at(0), &lies);
    assert_eq!(server.stack.counters().drops.not_ours, 2);
    for versions in [V4, V6] {
        let syn = frame(BALANCER, versions, FAR, flag::SYN, 7, 0);
        assert_eq!(server.sends_to(at(1), syn), mac(BALANCER));
    }
}
