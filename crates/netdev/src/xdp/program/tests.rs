use std::io::{self, Write as _};

use super::*;
use crate::xdp::bpf::tests::run;
use crate::xdp::bpf::{Program, SocketMap};

const V4: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const OTHER_V4: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const OWN_V4: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 9);
const V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 1, 0, 0, 0, 1);
const OTHER_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 1, 0, 0, 0, 2);
const OWN_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 1, 0, 0, 0, 9);
/// The tag of a provider's network (802.1ad).
const ETHERTYPE_SERVICE_VLAN: u16 = 0x88a8;
const PEER_V4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const PEER_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);

fn ethernet(ethertype: u16, payload: &[u8]) -> Vec<u8> {
    [&[2; 12], &ethertype.to_be_bytes()[..], payload].concat()
}

fn tagged(tag: u16, ethertype: u16, payload: &[u8]) -> Vec<u8> {
    ethernet(tag, &[&[0, 5], &ethertype.to_be_bytes()[..], payload].concat())
}

/// An IPv4 packet: `fragment` is the field with flags and offset.
fn ipv4(to: Ipv4Addr, protocol: u8, fragment: u16, options: &[u8], payload: &[u8]) -> Vec<u8> {
    let words = u8::try_from(5 + options.len() / 4).unwrap();
    let [f0, f1] = fragment.to_be_bytes();
    let start = [0x40 | words, 0, 0, 0, 0, 0, f0, f1, 64, protocol, 0, 0];
    [&start, &PEER_V4.octets()[..], &to.octets(), options, payload].concat()
}

fn ipv6(to: Ipv6Addr, next: u8, payload: &[u8]) -> Vec<u8> {
    let start = [0x60, 0, 0, 0, 0, 0, next, 64];
    [&start, &PEER_V6.octets()[..], &to.octets(), payload].concat()
}

/// An extension header of `units` units of 8 bytes, in front of a payload.
fn extended(next: u8, units: u8, payload: &[u8]) -> Vec<u8> {
    [&[next, units - 1], &vec![0; usize::from(units) * 8 - 2][..], payload].concat()
}

/// A fragment with this offset in units of 8 bytes; `more` is 1 if more fragments follow.
fn fragment(next: u8, offset: u16, more: u16, payload: &[u8]) -> Vec<u8> {
    let [a, b] = (offset << 3 | more).to_be_bytes();
    [&[next, 0, a, b, 0, 0, 0, 1], payload].concat()
}

/// The begin of a TCP or UDP header.
fn to_port(port: u16) -> Vec<u8> {
    [&[0xc0, 0x01], &port.to_be_bytes()[..], &[0; 16]].concat()
}

/// An ICMP error about a packet that was sent from `from` and `port`.
fn error_v4(kind: u8, from: Ipv4Addr, protocol: u8, port: u16) -> Vec<u8> {
    let start = [0x45, 0, 0, 0, 0, 0, 0, 0, 64, protocol, 0, 0];
    let about = [&start, &from.octets()[..], &PEER_V4.octets(), &port.to_be_bytes(), &[0; 6]];
    [&[kind, 4, 0, 0, 0, 0, 0, 0], &about.concat()[..]].concat()
}

fn error_v6(kind: u8, from: Ipv6Addr, protocol: u8, port: u16) -> Vec<u8> {
    let start = [0x60, 0, 0, 0, 0, 0, protocol, 64];
    let about = [&start, &from.octets()[..], &PEER_V6.octets(), &port.to_be_bytes(), &[0; 6]];
    [&[kind, 0, 0, 0, 0, 0, 0, 0], &about.concat()[..]].concat()
}

fn solicitation(target: Ipv6Addr) -> Vec<u8> {
    [&[135, 0, 0, 0, 0, 0, 0, 0], &target.octets()[..], &[1, 1, 2, 2, 2, 2, 2, 2]].concat()
}

fn arp(target: Ipv4Addr) -> Vec<u8> {
    let start = [0, 1, 8, 0, 6, 4, 0, 1, 2, 2, 2, 2, 2, 2];
    [&start, &PEER_V4.octets()[..], &[0; 6], &target.octets()].concat()
}

fn taken() -> Taken {
    Taken {
        services: vec![
            (TCP, SocketAddr::new(V4.into(), 80)),
            (TCP, SocketAddr::new(V4.into(), 443)),
            (UDP, SocketAddr::new(V4.into(), 53)),
            (TCP, SocketAddr::new(V6.into(), 80)),
            (UDP, SocketAddr::new(V6.into(), 53)),
        ],
        own_addresses: vec![OWN_V4.into(), OWN_V6.into()],
    }
}

/// Loads the program; `None` if this process may not.
fn load(taken: &Taken) -> Option<(Program, SocketMap)> {
    const EPERM: Option<i32> = Some(1);
    let map = match SocketMap::new(1) {
        Err(error) if error.raw_os_error() == EPERM => {
            // Not eprintln!, because the test harness hides its output unless the test fails.
            writeln!(io::stderr(), "skipped: no right to load a program").unwrap();
            return None;
        }
        map => map.unwrap(),
    };
    // The map has no sockets, so the program drops each frame that it takes.
    let program = Program::load(&assemble(taken, map.raw_fd(), XDP_DROP)).unwrap();
    Some((program, map))
}

const XDP_DROP: i32 = 1;

#[test]
fn frames_of_the_stack_are_taken_and_others_are_passed() {
    let Some((program, _map)) = load(&taken()) else { return };
    let (take, pass) = (true, false);
    let v4 = |to, protocol, port| ipv4(to, protocol, 0x4000, &[], &to_port(port));
    let v6 = |to, protocol, port| ipv6(to, protocol, &to_port(port));
    let options = [1; 40];
    let icmp4 = |to, payload: &[u8]| ipv4(to, ICMPV4, 0, &[], payload);
    let icmp6 = |to, payload: &[u8]| ipv6(to, ICMPV6, payload);
    let echo = [8, 0, 0, 0, 0, 1, 0, 1];
    let all_nodes = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00, 9);
    let cases = [
        ("TCP", take, ETHERTYPE_IPV4, v4(V4, TCP, 80)),
        ("another port", take, ETHERTYPE_IPV4, v4(V4, TCP, 443)),
        ("UDP", take, ETHERTYPE_IPV4, v4(V4, UDP, 53)),
        ("ssh", pass, ETHERTYPE_IPV4, v4(V4, TCP, 22)),
        ("UDP to a port of TCP", pass, ETHERTYPE_IPV4, v4(V4, UDP, 80)),
        ("TCP to a port of UDP", pass, ETHERTYPE_IPV4, v4(V4, TCP, 53)),
        ("another protocol", pass, ETHERTYPE_IPV4, v4(V4, 132, 80)),
        ("another address", pass, ETHERTYPE_IPV4, v4(OTHER_V4, TCP, 80)),
        ("options", take, ETHERTYPE_IPV4, ipv4(V4, TCP, 0, &options, &to_port(80))),
        ("options, ssh", pass, ETHERTYPE_IPV4, ipv4(V4, TCP, 0, &options, &to_port(22))),
        ("a first fragment", take, ETHERTYPE_IPV4, ipv4(V4, TCP, 0x2000, &[], &to_port(80))),
        ("a later fragment", pass, ETHERTYPE_IPV4, ipv4(V4, TCP, 0x0001, &[], &to_port(80))),
        ("ping", pass, ETHERTYPE_IPV4, icmp4(V4, &echo)),
        ("too big", take, ETHERTYPE_IPV4, icmp4(V4, &error_v4(3, V4, TCP, 80))),
        ("too big, ssh", pass, ETHERTYPE_IPV4, icmp4(V4, &error_v4(3, V4, TCP, 22))),
        ("too big, a client's", pass, ETHERTYPE_IPV4, icmp4(V4, &error_v4(3, OTHER_V4, TCP, 80))),
        ("time exceeded", pass, ETHERTYPE_IPV4, icmp4(V4, &error_v4(11, V4, TCP, 80))),
        ("ARP", pass, ETHERTYPE_ARP, arp(V4)),
        ("own: ARP", take, ETHERTYPE_ARP, arp(OWN_V4)),
        ("own: ssh", take, ETHERTYPE_IPV4, v4(OWN_V4, TCP, 22)),
        ("own: ping", take, ETHERTYPE_IPV4, icmp4(OWN_V4, &echo)),
        ("own: a fragment", take, ETHERTYPE_IPV4, ipv4(OWN_V4, TCP, 0x0001, &[], &to_port(80))),
        ("TCP", take, ETHERTYPE_IPV6, v6(V6, TCP, 80)),
        ("UDP", take, ETHERTYPE_IPV6, v6(V6, UDP, 53)),
        ("ssh", pass, ETHERTYPE_IPV6, v6(V6, TCP, 22)),
        ("UDP to a port of TCP", pass, ETHERTYPE_IPV6, v6(V6, UDP, 80)),
        ("another address", pass, ETHERTYPE_IPV6, v6(OTHER_V6, TCP, 80)),
        ("an unknown header", pass, ETHERTYPE_IPV6, v6(V6, 135, 80)),
        ("options", take, ETHERTYPE_IPV6, ipv6(V6, 0, &extended(TCP, 1, &to_port(80)))),
        ("long options", take, ETHERTYPE_IPV6, ipv6(V6, 60, &extended(UDP, 8, &to_port(53)))),
        ("longer options", pass, ETHERTYPE_IPV6, ipv6(V6, 60, &extended(TCP, 9, &to_port(80)))),
        ("options, ssh", pass, ETHERTYPE_IPV6, ipv6(V6, 60, &extended(TCP, 1, &to_port(22)))),
        ("a routing header", take, ETHERTYPE_IPV6, ipv6(V6, 43, &extended(TCP, 3, &to_port(80)))),
        (
            "two headers",
            take,
            ETHERTYPE_IPV6,
            ipv6(V6, 0, &extended(60, 2, &extended(TCP, 8, &to_port(80)))),
        ),
        (
            "three headers",
            pass,
            ETHERTYPE_IPV6,
            ipv6(V6, 0, &extended(60, 1, &extended(60, 1, &extended(TCP, 1, &to_port(80))))),
        ),
        ("a whole packet", take, ETHERTYPE_IPV6, ipv6(V6, 44, &fragment(TCP, 0, 0, &to_port(80)))),
        (
            "a first fragment",
            take,
            ETHERTYPE_IPV6,
            ipv6(V6, 44, &fragment(TCP, 0, 1, &to_port(80))),
        ),
        (
            "a later fragment",
            pass,
            ETHERTYPE_IPV6,
            ipv6(V6, 44, &fragment(TCP, 1, 0, &to_port(80))),
        ),
        (
            "a listener report",
            pass,
            ETHERTYPE_IPV6,
            ipv6(all_nodes, 0, &extended(ICMPV6, 1, &[143; 24])),
        ),
        ("ping", pass, ETHERTYPE_IPV6, icmp6(V6, &[&[128], &[0; 40][..]].concat())),
        ("too big", take, ETHERTYPE_IPV6, icmp6(V6, &error_v6(2, V6, TCP, 80))),
        ("unreachable", take, ETHERTYPE_IPV6, icmp6(V6, &error_v6(1, V6, UDP, 53))),
        ("too big, ssh", pass, ETHERTYPE_IPV6, icmp6(V6, &error_v6(2, V6, TCP, 22))),
        ("a solicitation", pass, ETHERTYPE_IPV6, icmp6(all_nodes, &solicitation(V6))),
        ("own: a solicitation", take, ETHERTYPE_IPV6, icmp6(all_nodes, &solicitation(OWN_V6))),
        ("own: an advertisement", take, ETHERTYPE_IPV6, icmp6(OWN_V6, &[136, 0, 0, 0])),
        ("own: ssh", take, ETHERTYPE_IPV6, v6(OWN_V6, TCP, 22)),
        ("LLDP", pass, 0x88cc, v4(V4, TCP, 80)),
        ("a tag in a tag", pass, ETHERTYPE_VLAN, v4(V4, TCP, 80)),
    ];
    for (name, is_taken, ethertype, packet) in cases {
        for (frame, is_taken) in [
            (ethernet(ethertype, &packet), is_taken),
            (tagged(ETHERTYPE_VLAN, ethertype, &packet), is_taken),
            // The stack does not read this tag.
            (tagged(ETHERTYPE_SERVICE_VLAN, ethertype, &packet), pass),
        ] {
            let wanted = if is_taken { XDP_DROP } else { XDP_PASS }.cast_unsigned();
            let result = run(&program, &frame).unwrap();
            assert_eq!(result, wanted, "{name}: {frame:02x?}");
        }
    }
}

/// The program handles frames that are cut at any byte, as the kernel's verifier has proved.
#[test]
fn cut_frames_are_passed() {
    let Some((program, _map)) = load(&taken()) else { return };
    let whole = ethernet(ETHERTYPE_IPV4, &ipv4(V4, TCP, 0, &[1; 8], &to_port(80)));
    let ports = 14 + 28 + 4;
    // Linux runs programs with whole Ethernet headers only.
    for end in 14..whole.len() {
        let wanted = if end < ports { XDP_PASS } else { XDP_DROP };
        assert_eq!(run(&program, &whole[..end]).unwrap(), wanted.cast_unsigned(), "{end} bytes");
    }
}

#[test]
fn cut_extension_headers_are_passed() {
    let Some((program, _map)) = load(&taken()) else { return };
    let packet = ipv6(V6, 0, &extended(44, 3, &fragment(TCP, 0, 0, &to_port(80))));
    let whole = ethernet(ETHERTYPE_IPV6, &packet);
    let ports = 14 + 40 + 24 + 8 + 4;
    for end in 14..whole.len() {
        let wanted = if end < ports { XDP_PASS } else { XDP_DROP };
        assert_eq!(run(&program, &whole[..end]).unwrap(), wanted.cast_unsigned(), "{end} bytes");
    }
}

#[test]
fn the_longest_program_is_verified() {
    let services = (1..=crate::frames::SERVICES_MAX).map(|number| {
        let port = u16::try_from(number).unwrap();
        (TCP, SocketAddr::new(if number % 2 == 0 { V4.into() } else { V6.into() }, port))
    });
    let own_addresses = vec![OWN_V6.into(); crate::frames::OWN_ADDRESSES_MAX];
    load(&Taken { services: services.collect(), own_addresses });
}
