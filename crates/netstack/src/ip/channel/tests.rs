use std::vec;
use std::vec::Vec;

use super::*;
use crate::sim;
use crate::wire::EtherType;

const HEAD: [u8; 14] = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];

/// A frame of IPv4 between these addresses, with a wrong checksum and the ports 80 and 4000.
fn frame(source: [u8; 4], destination: [u8; 4], protocol: Protocol) -> Vec<u8> {
    let fields = [0x45, 0, 0, 24, 0, 0, 0, 0, 64, protocol.0, 1, 1];
    [&HEAD[..], &fields, &source, &destination, &[0, 80, 0x0f, 0xa0]].concat()
}

fn network(text: &str, prefix: u8) -> Network {
    Network { addr: text.parse().unwrap(), prefix }
}

#[test]
fn a_network_is_all_addresses_that_begin_with_its_bits() {
    for (addr, prefix, inside, outside) in [
        ("10.1.2.3", 8, "10.255.0.1", "11.1.2.3"),
        ("10.1.2.3", 31, "10.1.2.2", "10.1.2.4"),
        ("10.1.2.3", 32, "10.1.2.3", "10.1.2.2"),
        ("10.1.2.3", 99, "10.1.2.3", "10.1.2.2"),
        ("10.1.2.3", 0, "99.1.2.3", "::"),
        ("2001:db8::", 32, "2001:db8:ffff::1", "2001:db9::1"),
        ("2001:db8::1", 128, "2001:db8::1", "2001:db8::"),
        ("::", 0, "ffff::", "0.0.0.0"),
    ] {
        let network = network(addr, prefix);
        assert!(network.contains(inside.parse().unwrap()), "{network:?} {inside}");
        assert!(!network.contains(outside.parse().unwrap()), "{network:?} {outside}");
    }
}

#[test]
fn all_parts_of_a_filter_have_to_apply() {
    let tcp = frame([10, 0, 0, 1], [10, 0, 9, 2], Protocol::TCP);
    let icmp = frame([10, 0, 0, 1], [10, 0, 9, 2], Protocol::ICMP);
    let any = Filter::default();
    for (filter, takes_tcp, takes_icmp) in [
        (any, true, true),
        (Filter { protocol: Some(Protocol::TCP), ..any }, true, false),
        (Filter { port: Some(80), ..any }, true, false),
        (Filter { port: Some(4000), ..any }, true, false),
        (Filter { port: Some(81), ..any }, false, false),
        (Filter { network: Some(network("10.0.9.0", 24)), ..any }, true, true),
        (Filter { network: Some(network("10.0.0.0", 24)), ..any }, true, true),
        (Filter { network: Some(network("10.0.1.0", 24)), ..any }, false, false),
        (Filter { network: Some(network("10.0.1.0", 24)), port: Some(80), ..any }, false, false),
    ] {
        assert_eq!(filter.applies_to(&tcp), takes_tcp, "{filter:?}");
        assert_eq!(filter.applies_to(&icmp), takes_icmp, "{filter:?}");
        assert_eq!(filter.applies_to(b"short"), filter == any);
        let mut other = tcp.clone();
        other[12..14].copy_from_slice(&EtherType::ARP.0.to_be_bytes());
        assert_eq!(filter.applies_to(&other), filter == any);
    }
}

#[test]
fn a_batch_has_all_frames_in_order() {
    let mut batches = vec![];
    let mut channel = Channel::new(Filter::default(), 60, |batch: Batch<'_>| {
        let frames: Vec<_> = batch
            .frames()
            .map(|frame| (frame.time, frame.direction, frame.len, frame.bytes.to_vec()))
            .collect();
        batches.push(frames);
    });
    let limits = Limits { mtu: 1500, cut_bytes_max: 0, fills_checksums: false };
    let mut device = sim::Device::new(limits, 1);
    let time = Time::from_nanos;
    channel.flush();
    channel.received(time(1), b"first");
    let head = [&HEAD[..12], &[0x88, 0xcc]].concat();
    let frame =
        Frame { head: &head, parts: &[&[7; 40], &[8; 40]], segment_bytes: None, checksum: None };
    let mut out = Tapped { out: &mut device, channel: &mut channel, now: time(2) };
    assert_eq!(out.send(&frame), Ok(()));
    // The interface has no room for a second one.
    assert_eq!(out.send(&frame), Err(Full));
    channel.flush();
    channel.received(time(3), b"last");
    channel.flush();
    let copied = [&head[..], &[7; 40], &[8; 6]].concat();
    let expected = vec![
        vec![
            (time(1), Direction::Received, 5, b"first".to_vec()),
            (time(2), Direction::Sent, 94, copied),
        ],
        vec![(time(3), Direction::Received, 4, b"last".to_vec())],
    ];
    assert_eq!(batches, expected);
}

#[test]
fn a_full_batch_is_delivered_at_once() {
    for (len, expected) in [(14, BATCH_FRAMES_MAX), (4096, BATCH_BYTES_MAX / 4096)] {
        let mut delivered = vec![];
        let mut channel = Channel::new(Filter::default(), 65_535, |batch: Batch<'_>| {
            delivered.push(batch.frames().count());
        });
        for _ in 0..=2 * expected {
            channel.received(Time::default(), &vec![0; len]);
        }
        channel.flush();
        assert_eq!(delivered, [expected, expected, 1], "{len}");
    }
}
