use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

use super::{Conditions, Device, Link, Random, Segment, TcpOption, bytes, flag};
use crate::{Checksum, Frame, Full, Limits, Time, Transmit};

const HEAD_BYTES: usize = 14 + 20 + 20;

fn segment(payload: usize) -> Segment {
    Segment {
        source: "10.0.0.1:80".parse().expect("an address"),
        destination: "10.0.0.2:5000".parse().expect("an address"),
        ecn: 2,
        seq: 0xffff_fc00,
        ack: 7,
        flags: flag::ACK | flag::PSH | flag::FIN | flag::CWR,
        window: 1000,
        options: vec![],
        payload: (0..payload).map(|n| u8::try_from(n % 251).expect("less")).collect(),
    }
}

fn over_v6(mut segment: Segment) -> Segment {
    segment.source = "[fd00::1]:80".parse().expect("an address");
    segment.destination = "[fd00::2]:5000".parse().expect("an address");
    segment
}

/// The head of a segment as a stack gives it to an interface that fills in checksums.
fn partial(segment: &Segment) -> (Vec<u8>, usize) {
    let mut frame = segment.to_frame();
    let layout = bytes::layout(&frame).expect("a packet");
    let pseudo = bytes::fold(layout.pseudo_sum(&frame, layout.transport.len()));
    bytes::put_u16(&mut frame, layout.transport.start + 16, pseudo);
    (frame, layout.transport.start)
}

#[test]
fn a_segment_is_read_as_it_was_written() {
    let mut one = segment(33);
    one.options = vec![
        TcpOption::Timestamps(1, 2),
        TcpOption::Sack(vec![(10, 20), (30, 40)]),
        TcpOption::Other(254, vec![1, 2]),
    ];
    for one in [one.clone(), over_v6(one)] {
        let mut frame = one.to_frame();
        assert_eq!(Segment::from_frame(&frame), Ok(one));
        // Class, flow and hops of IPv6 have no checksum.
        let covered = if frame[14] >> 4 == 4 { 14 } else { 22 };
        for at in covered..frame.len() {
            frame[at] ^= 4;
            assert!(Segment::from_frame(&frame).is_err(), "byte {at}");
            frame[at] ^= 4;
        }
    }
}

#[test]
fn a_large_frame_is_cut_into_segments() {
    for whole in [segment(2500), over_v6(segment(2500))] {
        let limits = Limits { mtu: 1500, cut_bytes_max: 65_000, fills_checksums: true };
        let mut device = Device::new(limits, 1);
        let (frame, start) = partial(&whole);
        let checksum = Some(Checksum { start: u16::try_from(start).expect("short"), offset: 16 });
        let (head, payload) = frame.split_at(start + 20);
        let frame = Frame {
            head,
            parts: &[&payload[..7], &payload[7..]],
            segment_bytes: Some(1000),
            checksum,
        };
        assert_eq!(device.send(&frame), Ok(()));
        assert_eq!(device.send(&frame), Err(Full));
        assert!(device.has_refused() && !device.has_refused());

        let frames = device.take();
        let segments: Vec<_> =
            frames.iter().map(|frame| Segment::from_frame(frame).expect("a segment")).collect();
        let seen: Vec<_> =
            segments.iter().map(|one| (one.seq, one.flags, one.payload.len())).collect();
        let last = flag::ACK | flag::PSH | flag::FIN;
        let expected = [
            (0xffff_fc00, flag::ACK | flag::CWR, 1000),
            (0xffff_ffe8, flag::ACK, 1000),
            (0x3d0, last, 500),
        ];
        assert_eq!(seen, expected);
        let payload: Vec<_> = segments.into_iter().flat_map(|one| one.payload).collect();
        assert!(payload == whole.payload);
        assert_eq!(device.send(&frame), Ok(()));
    }
}

#[test]
fn a_link_has_a_rate_and_a_queue() {
    let second = Duration::from_secs(1);
    let frame_bytes = HEAD_BYTES + 946;
    let conditions = Conditions {
        delay: second,
        rate: Some(1000),
        queue_bytes: 2 * frame_bytes,
        mark_bytes: Some(frame_bytes - 1),
        ..Conditions::default()
    };
    let mut link = Link::new(conditions, Random::new(1));
    let start = Time::from_nanos(0);
    for _ in 0..3 {
        assert_eq!(link.carry(start, segment(946).to_frame()), None);
    }
    assert_eq!((link.fates().overflowed, link.fates().marked), (1, 1));
    assert_eq!(link.next_arrival(), Some(start + 2 * second));
    assert_eq!(link.take(start + second), None);
    assert_eq!(link.take(start + 2 * second), Some(segment(946).to_frame()));
    let second_one = link.take(start + 3 * second).expect("arrived");
    assert_eq!(Segment::from_frame(&second_one).expect("a segment").ecn, 3);
    assert_eq!(link.next_arrival(), None);
}

#[test]
fn a_policer_lets_a_burst_through_and_then_its_rate() {
    let frame_bytes = u64::try_from(segment(946).to_frame().len()).expect("short");
    let policer = Some(super::Policer { rate: frame_bytes, burst_bytes: 2 * frame_bytes });
    let mut link = Link::new(Conditions { policer, ..Conditions::default() }, Random::new(1));
    let start = Time::from_nanos(5_000_000_000);
    for (ms, passed) in [(0, 1), (0, 2), (0, 2), (999, 2), (1000, 3), (1000, 3), (9000, 4)] {
        link.carry(start + Duration::from_millis(ms), segment(946).to_frame());
        let fates = link.fates();
        assert_eq!(fates.offered - fates.policed, passed, "after {ms} ms");
    }
}

#[test]
fn frames_arrive_in_bunches() {
    let bunch = Duration::from_millis(10);
    let mut link = Link::new(Conditions { bunch, ..Conditions::default() }, Random::new(1));
    for (us, arrives_ms) in [(1, 10), (9_999, 10), (10_000, 10), (10_001, 20)] {
        let now = Time::default() + Duration::from_micros(us);
        link.carry(now, segment(0).to_frame());
        while let Some(at) = link.next_arrival() {
            assert_eq!(at, Time::default() + Duration::from_millis(arrives_ms), "{us}");
            link.take(at);
        }
    }
}

#[test]
fn a_frame_that_is_too_large_is_answered() {
    for (one, protocol) in [(segment(100), 1), (over_v6(segment(100)), 58)] {
        let mut link = Link::new(Conditions { mtu: 100, ..Conditions::default() }, Random::new(1));
        let answer = link.carry(Time::default(), one.to_frame()).expect("an answer");
        let layout = bytes::layout(&answer).expect("a packet");
        assert_eq!(layout.protocol, protocol);
        assert!(layout.has_right_checksums(&answer));
        assert_eq!(layout.addresses(&answer), (one.destination.ip(), one.source.ip()));
        assert_eq!((link.fates().too_large, link.next_arrival()), (1, None));
    }
}

#[test]
fn options_are_stripped() {
    let mut one = segment(10);
    one.options = vec![TcpOption::Mss(1000), TcpOption::SackPermitted, TcpOption::WindowScale(7)];
    let conditions = Conditions { strips: 1 << 4, ..Conditions::default() };
    let mut link = Link::new(conditions, Random::new(1));
    assert_eq!(link.carry(Time::default(), one.to_frame()), None);
    let frame = link.take(Time::default()).expect("arrived");
    let options = Segment::from_frame(&frame).expect("a segment").options;
    assert_eq!(options, [TcpOption::Mss(1000), TcpOption::WindowScale(7)]);
}

#[test]
fn accidents_happen_as_often_as_they_should() {
    let conditions = Conditions {
        loss: 0.1,
        burst: Some(super::Burst { begin: 0.01, end: 0.1, loss: 1.0 }),
        duplicate: 0.05,
        corrupt: 0.02,
        reorder: (0.1, Duration::from_millis(5)),
        ..Conditions::default()
    };
    let mut link = Link::new(conditions, Random::new(7));
    let frame = segment(0).to_frame();
    for n in 0..10_000 {
        assert_eq!(link.carry(Time::from_nanos(n), frame.clone()), None);
    }
    while link.take(Time::MAX).is_some() {}
    let fates = link.fates();
    let is_about = |count: u64, expected: f64| {
        let share = f64::from(u32::try_from(count).expect("few")) / 10_000.0;
        assert!((share - expected).abs() < expected / 4.0, "{share} for {expected}: {fates:?}");
    };
    let carried = 0.9 * (1.0 - 1.0 / 11.0);
    is_about(fates.lost, 1.0 - carried);
    is_about(fates.duplicated, 0.05 * carried);
    is_about(fates.corrupted, 0.02 * carried);
    is_about(fates.reordered, 0.1 * carried * 1.05);
    assert_eq!(fates.delivered, fates.offered - fates.lost + fates.duplicated);
}
