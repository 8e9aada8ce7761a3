//! Reports of routers that reach the wrong one of several stacks.

use super::*;
use crate::sim::{host_unreachable, too_large};

/// Bytes of a link header.
const LINK: usize = 14;

/// A server with data in flight and the frames that carry it, and another stack of its interface.
fn servers(is_v4: bool) -> (Pair, Vec<Vec<u8>>, End) {
    let mut pair = Pair::new();
    pair.connect(ends(is_v4, 40_000));
    pair.run(100);
    let id = pair.server.notes.accepted[0];
    // Frames as they are on a link: none is longer than its MTU.
    pair.server.device = Device::new(Limits { cut_bytes_max: 0, ..LIMITS }, 1000);
    pair.server.send(pair.now, id, pattern(5000));
    let sent = pair.server.device.take();
    assert!(sent.len() > 3 && sent[0].len() > 1400 + LINK, "{is_v4}: {}", sent[0].len());
    let other = End::new(config(1));
    (pair, sent, other)
}

#[test]
fn a_report_at_another_stack_reaches_the_connection_through_the_application() {
    for is_v4 in [true, false] {
        let (mut pair, sent, mut other) = servers(is_v4);
        let message = too_large(&sent[0], 1400).expect("a packet that may not be cut");
        other.handle(pair.now, &[message]);
        let [report] = other.notes.strays[..] else { panic!("{:?}", other.notes.strays) };
        assert_eq!(other.device.take(), Vec::<Vec<u8>>::new());

        let End { stack, device, notes, .. } = &mut pair.server;
        assert!(stack.handle_report(pair.now, &report, notes, device));
        pair.server.finish(pair.now);
        let again = pair.server.device.take();
        assert!(!again.is_empty() && again.iter().all(|frame| frame.len() <= 1400 + LINK));
        assert_eq!(pair.server.notes.strays, []);
        // The next connection to the peer begins with this MTU.
        let peer = ends(is_v4, 0).local.ip();
        assert_eq!(pair.server.stack.shared.path_mtus.get(pair.now, peer), Some(1400));
    }
}

#[test]
fn a_report_is_stray_where_it_has_come_from_the_network_only() {
    let (mut pair, sent, mut other) = servers(true);
    let message = host_unreachable(&sent[0]).expect("a packet");
    other.handle(pair.now, core::slice::from_ref(&message));
    let report = other.notes.strays.pop().expect("no connection of this stack");
    let End { stack, device, notes, .. } = &mut other;
    assert!(!stack.handle_report(pair.now, &report, notes, device));
    assert_eq!(notes.strays, [], "it would go round for ever");
    // At the connection's own stack it is nobody else's.
    pair.server.handle(pair.now, &[message]);
    assert_eq!(pair.server.notes.strays, []);
}

/// RFC 5927, 7.2: forged news with the true numbers of a connection, a message for each batch of frames.
#[test]
fn forged_news_of_a_small_path_shorten_segments_for_a_round_trip_at_most() {
    const LEN: usize = 1_000_000;
    for (is_v4, mtu, cut_bytes_max) in
        [(true, 68, 0), (true, 576, 65_000), (true, 0, 0), (false, 1280, 0)]
    {
        let mut pair = Pair::new();
        pair.server.device = Device::new(Limits { cut_bytes_max, ..LIMITS }, 1000);
        pair.connect(ends(is_v4, 40_000));
        pair.run(100);
        let id = pair.server.notes.accepted[0];
        pair.server.send(pair.now, id, pattern(LEN));
        let (mut received, mut short) = (0, 0);
        for turn in 0..2000 {
            let (up, down) = (pair.client.device.take(), pair.server.device.take());
            pair.now = pair.now + Duration::from_millis(5);
            pair.client.handle(pair.now, &down);
            pair.server.handle(pair.now, &up);
            let arrived = pair.client.notes.received.values().map(Vec::len).sum::<usize>();
            for frame in down.iter().filter(|frame| frame.len() > 600) {
                let forged = too_large(frame, mtu).expect("a packet that may not be cut");
                pair.server.handle(pair.now, &[forged]);
            }
            short += down.iter().filter(|frame| (100..1500).contains(&frame.len())).count();
            received = arrived;
            if received == LEN {
                break;
            }
            assert!(turn < 1000, "{is_v4} {mtu}: {received} bytes have arrived");
        }
        assert_eq!(received, LEN, "{is_v4} {mtu}");
        // Before the first segments are acknowledged, the initial window is sent again in shorter ones.
        assert!(short <= 40, "{is_v4} {mtu} {cut_bytes_max}: {short} short segments");
    }
}
