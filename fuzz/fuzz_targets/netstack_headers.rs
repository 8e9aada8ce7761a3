//! Arbitrary bytes as each of the headers of frames. Checked: what a header carries is a part of the bytes,
//! what was understood is emitted and understood again as the same, and the checksum is that of its definition.

#![no_main]

use libfuzzer_sys::fuzz_target;
use netstack::channel::{Filter, Network};
use netstack::wire::checksum::Sum;
use netstack::wire::{
    EtherType, Malformed, Protocol, arp, ethernet, icmpv4, icmpv6, ipv4, ipv6, ndp, tcp, udp,
};

// The first byte says which header it is.
fuzz_target!(|input: &[u8]| {
    let [which, bytes @ ..] = input else { return };
    match which % 12 {
        0 => check_ethernet(bytes),
        1 => check(bytes, arp::Header::parse, |header, _| emitted(|into| header.emit(into))),
        2 => check_ipv4(bytes),
        3 => check_ipv6(bytes),
        4 => check(bytes, icmpv4::Header::parse, |header, _| emitted(|into| header.emit(into))),
        5 => check(bytes, icmpv6::Header::parse, |header, _| emitted(|into| header.emit(into))),
        6 => check(bytes, ndp::Header::parse, |header, _| {
            let mut into = [0xaa; ndp::Header::LEN_MAX];
            let len = header.emit(&mut into);
            into[..len].to_vec()
        }),
        7 => check_tcp(bytes),
        8 => check(bytes, udp::Header::parse, |header, payload| {
            emitted(|into| header.emit(length(payload), into))
        }),
        9 => check_checksum(bytes),
        10 => check_frame(bytes),
        _ => check_filter(bytes),
    }
});

/// Parses bytes, emits what was found, and parses that.
fn check<H: PartialEq + std::fmt::Debug>(
    bytes: &[u8],
    parse: impl Fn(&[u8]) -> Result<(H, &[u8]), Malformed>,
    emit: impl Fn(&H, &[u8]) -> Vec<u8>,
) {
    let Ok((header, payload)) = parse(bytes) else { return };
    assert!(is_part(payload, bytes) || payload.is_empty());
    let again = [emit(&header, payload), payload.to_vec()].concat();
    assert_eq!(parse(&again), Ok((header, payload)));
}

/// The bytes of a header of one length.
fn emitted<const N: usize>(emit: impl FnOnce(&mut [u8; N])) -> Vec<u8> {
    let mut into = [0xaa; N];
    emit(&mut into);
    into.to_vec()
}

fn length(payload: &[u8]) -> u16 {
    u16::try_from(payload.len()).expect("a length field has 16 bits")
}

fn is_part(part: &[u8], whole: &[u8]) -> bool {
    let (part, whole) = (part.as_ptr_range(), whole.as_ptr_range());
    whole.start <= part.start && part.end <= whole.end
}

fn check_ethernet(bytes: &[u8]) {
    // A second tag would be emitted as the first one.
    let is_double = |header: &ethernet::Header| header.ethertype == EtherType::VLAN;
    let Ok((header, payload)) = ethernet::Header::parse(bytes) else { return };
    if is_double(&header) {
        return assert!(is_part(payload, bytes));
    }
    check(bytes, ethernet::Header::parse, |header, _| {
        let mut into = [0xaa; ethernet::Header::LEN_MAX];
        let len = header.emit(&mut into);
        into[..len].to_vec()
    });
}

/// The bytes with a right checksum: the fuzzer would hardly find one.
fn with_checksum(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    if let Some(&first) = bytes.first()
        && let Some(head) = bytes.get_mut(..usize::from(first & 0xf) * 4)
        && head.len() >= 20
    {
        head[10..12].fill(0);
        let checksum = Sum::of(head).checksum();
        head[10..12].copy_from_slice(&checksum.to_be_bytes());
    }
    bytes
}

fn check_ipv4(bytes: &[u8]) {
    let _ = ipv4::Header::parse_quoted(bytes);
    check(&with_checksum(bytes), ipv4::Header::parse, |header, payload| {
        emitted(|into| header.emit(length(payload), into))
    });
}

fn check_ipv6(bytes: &[u8]) {
    let _ = ipv6::Header::parse_quoted(bytes);
    check(bytes, ipv6::Header::parse, |header, payload| {
        emitted(|into| header.emit(length(payload), into))
    });
}

fn check_tcp(bytes: &[u8]) {
    let Ok((header, payload)) = tcp::Header::parse(bytes) else { return };
    assert!(is_part(payload, bytes));
    let mut into = [0xaa; tcp::Header::LEN_MAX];
    let len = header.emit(&mut into);
    assert_eq!(len, tcp::Header::LEN + header.options.emitted_len());
    let (mut again, rest) = tcp::Header::parse(&into[..len]).unwrap();
    assert!(rest.is_empty());
    // With padding between the options, the last block may have no room.
    assert!(header.options.sack.starts_with(&again.options.sack));
    assert!(header.options.sack.len() <= again.options.sack.len() + 1);
    again.options.sack = header.options.sack;
    assert_eq!(again, header);
}

/// The first byte is the size of the pieces.
fn check_checksum(bytes: &[u8]) {
    let [piece, bytes @ ..] = bytes else { return };
    let mut expected = 0_u32;
    for word in bytes.chunks(2) {
        expected += u32::from(word[0]) << 8 | u32::from(*word.get(1).unwrap_or(&0));
        expected = (expected >> 16) + (expected & 0xffff);
    }
    let mut sum = Sum::default();
    for piece in bytes.chunks(usize::from(*piece) + 1) {
        sum.add(piece);
    }
    assert_eq!(u32::from(sum.partial()), expected);
    assert_eq!(Sum::of(bytes).partial(), sum.partial());
}

/// All headers of a frame, one in the other.
fn check_frame(frame: &[u8]) {
    let Ok((link, packet)) = ethernet::Header::parse(frame) else { return };
    let (protocol, payload) = match link.ethertype {
        EtherType::IPV4 => {
            let packet = with_checksum(packet);
            let Ok((header, payload)) = ipv4::Header::parse(&packet) else { return };
            (header.protocol, payload.to_vec())
        }
        EtherType::IPV6 => {
            let Ok((header, payload)) = ipv6::Header::parse(packet) else { return };
            (header.protocol, payload.to_vec())
        }
        _ => return,
    };
    match protocol {
        Protocol::TCP => check_tcp(&payload),
        Protocol::UDP => drop(udp::Header::parse(&payload)),
        Protocol::ICMP => drop(icmpv4::Header::parse(&payload)),
        Protocol::ICMPV6 => drop((icmpv6::Header::parse(&payload), ndp::Header::parse(&payload))),
        _ => {}
    }
}

/// A filter that asks for more applies to fewer frames.
fn check_filter(bytes: &[u8]) {
    let [protocol, prefix, p0, p1, addr @ ..] = bytes else { return };
    let Some((addr, frame)) = addr.split_first_chunk::<4>() else { return };
    let all = Filter {
        protocol: Some(Protocol(*protocol)),
        network: Some(Network { addr: (*addr).into(), prefix: *prefix }),
        port: Some(u16::from_be_bytes([*p0, *p1])),
    };
    if all.applies_to(frame) {
        assert!(Filter { protocol: None, ..all }.applies_to(frame));
        assert!(Filter { network: None, ..all }.applies_to(frame));
        assert!(Filter { port: None, ..all }.applies_to(frame));
    }
}
