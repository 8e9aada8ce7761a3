use std::vec::Vec;

use proptest::prelude::*;

use super::*;
use crate::ip::packet::{Packet, ReceivedChecksum};
use crate::seq::SeqNumber;
use crate::sim;
use crate::transmit::Limits;
use crate::wire::tcp::{Flags, Options};

const MAC: Mac = Mac([2, 0, 0, 0, 0, 1]);
const PEER: Mac = Mac([2, 0, 0, 0, 0, 2]);

const V4: [&str; 2] = ["192.0.2.1:80", "198.51.100.7:40000"];
const V6: [&str; 2] = ["[2001:db8::1]:80", "[2001:db8::7]:40000"];

fn endpoints([local, peer]: [&str; 2]) -> Endpoints {
    Endpoints { local: local.parse().unwrap(), peer: peer.parse().unwrap() }
}

fn limits(fills_checksums: bool) -> Limits {
    Limits { mtu: 1500, cut_bytes_max: if fills_checksums { 65_000 } else { 0 }, fills_checksums }
}

/// The frames that one emission makes. The simulated interface checks them, too.
fn frames(
    fills_checksums: bool,
    vlan: Option<u16>,
    emit: impl FnOnce(&mut Emitter<'_, sim::Device>) -> Result<(), Full>,
) -> Vec<Vec<u8>> {
    let mut neighbours = Neighbours::new();
    assert_eq!(neighbours.learn(NextHop::new(PEER, vlan)), Some(0));
    let mut device = sim::Device::new(limits(fills_checksums), 1);
    let mut counters = Counters::default();
    let mut emitter = Emitter {
        mac: MAC,
        neighbours: &neighbours,
        flow_key: 7,
        counters: &mut counters,
        out: &mut device,
    };
    emit(&mut emitter).unwrap();
    assert_eq!(counters.frames_sent, 1);
    device.take()
}

fn header(endpoints: &Endpoints) -> tcp::Header {
    tcp::Header {
        source: endpoints.local.port(),
        destination: endpoints.peer.port(),
        seq: SeqNumber(1000),
        ack: Some(SeqNumber(2000)),
        flags: Flags { psh: true, ..Flags::NONE },
        window: 500,
        options: Options { timestamps: Some((1, 2)), ..Options::default() },
    }
}

/// Reads a frame with this stack's headers, and checks the checksum.
fn read(frame: &[u8]) -> (ethernet::Header, Packet<'_>, tcp::Header, &[u8]) {
    let (link, bytes) = ethernet::Header::parse(frame).unwrap();
    let packet = Packet::parse(link.ethertype, bytes).unwrap().unwrap();
    assert!(packet.is_right(packet.payload, 0, ReceivedChecksum::Unverified));
    let (header, payload) = tcp::Header::parse(packet.payload).unwrap();
    (link, packet, header, payload)
}

#[test]
fn a_frame_of_the_simplest_kind_byte_by_byte() {
    let endpoints = endpoints(V4);
    let header = tcp::Header { options: Options::default(), ..header(&endpoints) };
    let frames = frames(false, None, |emitter| {
        emitter.tcp(&endpoints, 0, &header, &[b"ab", b"c"], None, Ecn::Ect0)
    });
    let expected = [
        &[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0][..],
        &[0x45, 2, 0, 43, 0, 0, 0x40, 0, 64, 6, 0x4e, 0x8f, 192, 0, 2, 1, 198, 51, 100, 7],
        &[0, 80, 0x9c, 0x40, 0, 0, 3, 0xe8, 0, 0, 7, 0xd0, 0x50, 0x18, 1, 0xf4, 0x54, 0xee, 0, 0],
        b"abc",
    ];
    assert_eq!(frames, [expected.concat()]);
}

#[test]
fn a_large_frame_is_cut_by_the_interface() {
    for addresses in [V4, V6] {
        let endpoints = endpoints(addresses);
        let payload: Vec<u8> = (0..=255).cycle().take(40_001).collect();
        let (a, b) = payload.split_at(777);
        let frames = frames(true, Some(9), |emitter| {
            emitter.tcp(&endpoints, 0, &header(&endpoints), &[a, b], Some(1000), Ecn::NotEct)
        });
        assert_eq!(frames.len(), 41);
        let mut at = 0;
        for frame in &frames {
            let (link, _, header, part) = read(frame);
            assert_eq!(link.vlan, Some(9));
            assert_eq!(header.seq, SeqNumber(1000 + u32::try_from(at).unwrap()));
            assert_eq!(part, &payload[at..at + part.len()]);
            at += part.len();
        }
        assert_eq!(at, payload.len());
    }
}

#[test]
fn a_datagram_never_looks_as_if_it_had_no_checksum() {
    let [local, peer] = V4.map(|addr| addr.parse().unwrap());
    // The payload makes the sum all ones.
    let mut missing = 0;
    for payload in (0..=u16::MAX).map(u16::to_be_bytes) {
        let hop = NextHop::new(PEER, None);
        let frames = frames(false, None, |emitter| emitter.udp(local, peer, hop, &[&payload]));
        let checksum = &frames[0][14 + 20 + 6..][..2];
        assert_ne!(checksum, [0, 0]);
        missing += u32::from(checksum == [0xff, 0xff]);
    }
    assert_eq!(missing, 1);
}

#[test]
fn rfc6437_a_flow_keeps_its_label_and_others_have_others() {
    let label = |addresses| {
        let endpoints = endpoints(addresses);
        let frames = frames(false, None, |emitter| {
            emitter.tcp(&endpoints, 0, &header(&endpoints), &[], None, Ecn::NotEct)
        });
        ipv6::Header::parse(&frames[0][14..]).unwrap().0.flow_label
    };
    let flow = label(V6);
    assert_eq!(label(V6), flow);
    assert_ne!(label([V6[0], "[2001:db8::7]:40001"]), flow);
    assert_ne!(label([V6[0], "[2001:db8::8]:40000"]), flow);
}

#[test]
fn a_frame_that_finds_no_room_is_not_counted() {
    let endpoints = endpoints(V4);
    let mut neighbours = Neighbours::new();
    neighbours.learn(NextHop::new(PEER, None));
    let mut device = sim::Device::new(limits(false), 0);
    let mut counters = Counters::default();
    let mut emitter = Emitter {
        mac: MAC,
        neighbours: &neighbours,
        flow_key: 7,
        counters: &mut counters,
        out: &mut device,
    };
    let sent = emitter.tcp(&endpoints, 0, &header(&endpoints), &[], None, Ecn::NotEct);
    assert_eq!(sent, Err(Full));
    assert_eq!(counters.frames_sent, 0);
}

proptest! {
    /// What is emitted is parsed, and both ways of the checksum give the same frame.
    #[test]
    fn segments_arrive_as_they_were(
        is_v4: bool, vlan in prop::option::of(1..4096_u16), ecn in 0..4_u8,
        parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..200), 0..6),
    ) {
        let endpoints = endpoints(if is_v4 { V4 } else { V6 });
        let parts: Vec<&[u8]> = parts.iter().map(|part| &part[..]).collect();
        let ecn = Ecn::from_bits(ecn);
        let [ours, filled] = [false, true].map(|fills_checksums| {
            frames(fills_checksums, vlan, |emitter| {
                emitter.tcp(&endpoints, 0, &header(&endpoints), &parts, None, ecn)
            })
        });
        prop_assert_eq!(&ours, &filled);
        let (link, packet, parsed, payload) = read(&ours[0]);
        prop_assert_eq!((link.destination, link.source, link.vlan), (PEER, MAC, vlan));
        prop_assert_eq!(packet.source, endpoints.local.ip());
        prop_assert_eq!(packet.destination, endpoints.peer.ip());
        prop_assert_eq!((packet.ecn, packet.hop_limit), (ecn, 64));
        prop_assert_eq!(parsed, header(&endpoints));
        prop_assert_eq!(payload, parts.concat());
    }
}
