//! The bytes of segments, FINs, windows, and the times of acknowledgements.

use core::time::Duration;
use std::vec::Vec;

use super::super::harness::*;
use super::super::{Fate, TcpState};

const DELAY: Option<Duration> = Some(Duration::from_millis(40));

#[test]
fn rfc5681_4_2_an_acknowledgement_is_delayed_up_to_two_segments() {
    let mut bench = established();
    let mss = i64::try_from(MSS).unwrap();
    bench.hear(segment(0, 0).data(&bytes(MSS)));
    assert_eq!((bench.shown().as_str(), bench.deadline()), ("nothing", DELAY));
    bench.wait(Duration::from_millis(39));
    bench.hear(segment(mss, 0).data(&bytes(MSS)));
    assert_eq!(bench.sent(), [". 0+0 ack 2920"]);
    assert_eq!(bench.deadline(), None);
}

#[test]
fn rfc9293_3_8_6_3_a_delayed_acknowledgement_leaves_after_40_ms() {
    let mut bench = established();
    bench.hear(segment(0, 0).data(b"a"));
    bench.wait(Duration::from_millis(20));
    bench.hear(segment(1, 0).data(b"b"));
    assert_eq!(bench.deadline(), Some(Duration::from_millis(20)), "the first byte counts");
    bench.wait(Duration::from_millis(20));
    bench.handle_timer();
    assert_eq!(bench.sent(), [". 0+0 ack 2"]);
}

#[test]
fn a_young_connection_acknowledges_at_once() {
    let mut bench = Bench::new(&handshake(), config());
    for n in 0..20 {
        bench.hear(segment(n, 0).data(b"x"));
        assert_eq!(bench.shown() == "nothing", n >= 16, "{n}");
    }
}

#[test]
fn data_carries_the_acknowledgement() {
    let mut bench = established();
    bench.hear(segment(0, 0).data(b"request"));
    bench.push(b"answer");
    assert_eq!(bench.sent(), ["P. 0+6 ack 7"]);
    bench.hear(segment(7, 6));
    bench.drain();
    assert_eq!(bench.deadline(), None);
}

#[test]
fn rfc5681_4_2_a_segment_out_of_order_is_acknowledged_at_once() {
    let mut bench = established();
    bench.hear(segment(5, 0).data(b"fghij"));
    assert_eq!(bench.sent(), [". 0+0 ack 0 5-10"]);
    bench.hear(segment(15, 0).data(b"pqrst"));
    assert_eq!(bench.sent(), [". 0+0 ack 0 15-20 5-10"]);
    bench.hear(segment(0, 0).data(b"abcde"));
    assert_eq!(bench.sent(), [". 0+0 ack 10 15-20"], "the gap is filled");
    bench.hear(segment(10, 0).data(b"klmno"));
    assert_eq!(bench.sent(), [". 0+0 ack 20"]);
    assert_eq!(bench.received, b"abcdefghijklmnopqrst");
    assert!(bench.connection.held.is_none());
    assert_eq!(bench.shared.held_bytes, 0);
}

#[test]
fn a_segment_that_overlaps_held_bytes_is_cut() {
    let mut bench = established();
    bench.hear(segment(5, 0).data(b"fghij"));
    bench.hear(segment(0, 0).data(b"abcdefg"));
    assert_eq!(bench.received, b"abcdefghij");
    bench.hear(segment(12, 0).data(b"mn"));
    bench.hear(segment(10, 0).data(b"klmnop"));
    assert_eq!(bench.received, b"abcdefghijklmnop");
    assert_eq!(bench.shared.held_bytes, 0);
}

#[test]
fn rfc2883_4_bytes_that_came_twice_are_reported_once() {
    let mut bench = established();
    bench.hear(segment(0, 0).data(b"abcdef"));
    bench.hear(segment(0, 0).data(b"abcdef"));
    assert_eq!(bench.sent(), [". 0+0 ack 6 0-6"]);
    bench.hear(segment(4, 0).data(b"efgh"));
    assert_eq!(bench.sent(), [". 0+0 ack 8 4-6"], "a part of it");
    bench.hear(segment(12, 0).data(b"mn"));
    assert_eq!(bench.sent(), [". 0+0 ack 8 12-14"]);
    bench.hear(segment(12, 0).data(b"mn"));
    assert_eq!(bench.sent(), [". 0+0 ack 8 12-14 12-14"]);
    bench.hear(segment(8, 0).data(b"ijkl"));
    assert_eq!(bench.sent(), [". 0+0 ack 14"]);
    assert_eq!(bench.received, b"abcdefghijklmn");
}

#[test]
fn rfc2018_2_without_agreement_there_are_no_blocks() {
    let mut handshake = handshake();
    handshake.sack = false;
    let mut bench = Bench::new(&handshake, config());
    bench.hear(segment(5, 0).data(b"fghij"));
    assert_eq!(bench.sent(), [". 0+0 ack 0"]);
    bench.hear(segment(0, 0).data(b"abcde"));
    bench.hear(segment(0, 0).data(b"abcde"));
    assert_eq!(bench.sent(), [". 0+0 ack 10"]);
    assert!(bench.connection.held.is_none());
}

/// Data has no room for blocks: the acknowledgement leaves separately.
#[test]
fn blocks_are_not_lost_when_data_leaves() {
    let mut bench = established();
    bench.hear(segment(5, 0).data(b"fghij"));
    bench.push(b"answer");
    assert_eq!(bench.sent(), ["P. 0+6 ack 0", ". 6+0 ack 0 5-10"]);
}

#[test]
fn bytes_behind_the_window_are_cut_off() {
    let mut bench = established();
    bench.config.receive_bytes_max = 8;
    bench.connection.rcv_edge = bench.connection.rcv_nxt + 8;
    bench.hear(segment(0, 0).data(b"0123456789").fin());
    assert_eq!(bench.received, b"01234567");
    assert_eq!(bench.connection.state, TcpState::Established, "the FIN is behind the window, too");
    bench.acknowledge();
    bench.hear(segment(8, 0).data(b"89").fin());
    assert_eq!(bench.received, b"0123456789");
    assert_eq!(bench.connection.state, TcpState::CloseWait);
}

#[test]
fn rfc9293_3_10_7_4_eighth_a_fin_behind_a_gap_waits() {
    let mut bench = established();
    bench.hear(segment(5, 0).data(b"fghij").fin());
    assert_eq!(bench.sent(), [". 0+0 ack 0 5-10"]);
    bench.hear(segment(0, 0).data(b"abcde"));
    assert_eq!(bench.sent(), [". 0+0 ack 11"]);
    assert_eq!((bench.connection.state, &bench.news[..]), (TcpState::CloseWait, &["ended"][..]));
    assert_eq!(bench.received, b"abcdefghij");
    assert!(bench.connection.held.is_none());

    let mut bench = established();
    bench.hear(segment(5, 0).fin());
    assert_eq!(bench.sent(), [". 0+0 ack 0"]);
    bench.hear(segment(0, 0).data(b"abcde"));
    assert_eq!((bench.connection.state, &bench.news[..]), (TcpState::CloseWait, &["ended"][..]));
}

#[test]
fn a_fin_that_fits_no_window_is_taken_at_its_edge() {
    let mut bench = established();
    bench.config.receive_bytes_max = 5;
    bench.connection.rcv_edge = bench.connection.rcv_nxt + 5;
    bench.set_receiving(false);
    bench.hear(segment(0, 0).data(b"abcde").fin());
    assert_eq!(bench.sent(), [". 0+0 ack 6"]);
    bench.set_receiving(true);
    assert_eq!((&bench.received[..], &bench.news[..]), (&b"abcde"[..], &["ended"][..]));
    assert_eq!(bench.connection.rcv_edge, bench.connection.rcv_nxt);
}

#[test]
fn bytes_are_held_while_the_application_does_not_receive() {
    let mut bench = established();
    bench.set_receiving(false);
    bench.hear(segment(0, 0).data(b"abc"));
    bench.hear(segment(5, 0).data(b"fg"));
    bench.hear(segment(3, 0).data(b"de"));
    bench.hear(segment(7, 0).fin());
    assert_eq!(bench.sent(), [". 0+0 ack 8"], "the peer need not repeat them");
    assert!(bench.received.is_empty() && bench.news.is_empty());
    assert_eq!((bench.shared.held_bytes, bench.connection.unread_bytes()), (7, 7));
    bench.set_receiving(true);
    assert_eq!((&bench.received[..], &bench.news[..]), (&b"abcdefg"[..], &["ended"][..]));
    assert_eq!(bench.shared.held_bytes, 0);
    assert!(bench.connection.held.is_none());
}

/// RFC 9293, 3.8.6.
#[test]
fn the_window_closes_while_the_application_does_not_receive_and_opens_with_an_update() {
    let mut bench = established();
    bench.config.receive_bytes_max = 4000;
    bench.connection.rcv_edge = bench.connection.rcv_nxt + 4000;
    bench.set_receiving(false);
    let window = |bench: &mut Bench, seq: i64, n: usize| {
        bench.hear(segment(seq, 0).data(&bytes(n)));
        bench.connection.acknowledge_now();
        bench.acknowledge();
        bench.interface.sent.pop().unwrap().header.window
    };
    assert_eq!(window(&mut bench, 0, 1000), 3000);
    assert_eq!(window(&mut bench, 1000, 2999), 1);
    assert_eq!(window(&mut bench, 3999, 1), 0);
    assert_eq!(window(&mut bench, 4000, 1), 0, "a probe");
    bench.clear();
    bench.set_receiving(true);
    assert_eq!(bench.received.len(), 4000);
    bench.acknowledge();
    assert_eq!(bench.interface.sent.pop().unwrap().header.window, 4000);
}

/// RFC 9293, 3.8.6.2.2: silly window syndrome.
#[test]
fn the_window_opens_by_a_segment_at_least() {
    let mut bench = established();
    bench.hear(segment(0, 0).data(&bytes(100)));
    bench.connection.acknowledge_now();
    bench.acknowledge();
    assert_eq!(bench.interface.sent.pop().unwrap().header.window, 65_435);
    bench.hear(segment(100, 0).data(&bytes(1460)));
    bench.connection.acknowledge_now();
    bench.acknowledge();
    assert_eq!(bench.interface.sent.pop().unwrap().header.window, 65_535);
}

#[test]
fn rfc9293_3_8_6_the_window_never_shrinks() {
    let mut bench = established();
    bench.config.receive_bytes_max = 1000;
    for n in 0..3 {
        bench.hear(segment(n, 0).data(b"x"));
        bench.connection.acknowledge_now();
        bench.acknowledge();
        let window = i64::from(bench.interface.sent.pop().unwrap().header.window);
        assert_eq!(n + 1 + window, 65_535);
    }
}

#[test]
fn what_all_connections_hold_is_limited() {
    let mut bench = established();
    let full = super::HELD_BYTES_MAX - super::RANGE_COST - 3;
    bench.shared.held_bytes = full;
    bench.hear(segment(5, 0).data(b"1234"));
    assert_eq!(bench.sent(), [". 0+0 ack 0"]);
    bench.hear(segment(5, 0).data(b"123"));
    assert_eq!(bench.sent(), [". 0+0 ack 0 5-8"]);
    bench.hear(segment(0, 0).data(b"01234"));
    assert_eq!(bench.received, b"01234123");
    assert_eq!(bench.shared.held_bytes, full);

    bench.shared.held_bytes = super::HELD_BYTES_MAX - 3;
    bench.set_receiving(false);
    bench.hear(segment(8, 0).data(b"1234"));
    assert_eq!(bench.sent(), [". 0+0 ack 8"], "as if it was lost");
    assert_eq!(bench.shared.counters.dropped_held, 2);
}

/// Single bytes with gaps between them cost more than they are.
#[test]
fn ranges_count_with_what_they_cost() {
    let mut bench = established();
    for n in 0..100 {
        bench.hear(segment(1 + 2 * n, 0).data(b"x"));
    }
    assert!(bench.shared.held_bytes > 32 * 64, "{}", bench.shared.held_bytes);
    bench.hear(segment(0, 0).fin());
    assert_eq!(bench.shared.held_bytes, 0, "nothing follows a FIN");
}

#[test]
fn memory_returns_when_a_connection_is_removed() {
    let mut bench = established();
    bench.hear(segment(5, 0).data(b"1234"));
    bench.set_receiving(false);
    bench.hear(segment(0, 0).data(b"12"));
    bench.push(b"in flight");
    assert_eq!(bench.shared.held_bytes, 6 + super::RANGE_COST);
    bench.connection.release(&mut bench.shared);
    assert_eq!(bench.shared.held_bytes, 0);
}

/// The connection lives until the application knows that the peer has ended.
#[test]
fn a_connection_waits_for_the_application() {
    for (state, ours, fate) in
        [(fin_wait_2 as Begin, 1, Fate::TimeWait), (fin_wait_1, 1, Fate::TimeWait)]
    {
        let mut bench = state();
        bench.set_receiving(false);
        bench.hear(segment(0, ours).data(b"last").fin());
        assert_eq!(bench.fate, Fate::Keep);
        assert_eq!(bench.sent(), [". 1+0 ack 5"]);
        bench.set_receiving(true);
        assert_eq!((&bench.received[..], bench.fate), (&b"last"[..], fate));
    }
    let mut bench = established();
    bench.set_receiving(false);
    bench.hear(segment(0, 0).data(b"last").fin());
    bench.connection.shutdown();
    bench.drain();
    bench.hear(segment(5, 1));
    assert_eq!((bench.connection.state, bench.fate), (TcpState::LastAck, Fate::Keep));
    bench.set_receiving(true);
    assert_eq!((&bench.received[..], bench.fate), (&b"last"[..], Fate::Closed));
}

#[test]
fn nothing_follows_a_fin() {
    let mut bench = close_wait();
    bench.hear(segment(1, 0).data(b"more"));
    assert_eq!(bench.sent(), [". 0+0 ack 1"]);
    assert!(bench.received.is_empty());
    bench.hear(segment(0, 0).fin());
    assert_eq!(bench.sent(), [". 0+0 ack 1"]);
    assert_eq!(bench.connection.state, TcpState::CloseWait);
}

/// Segments in any order, any overlap, twice, and an application that stops receiving now and then.
#[test]
fn a_stream_arrives_byte_exact() {
    use proptest::prelude::*;
    use proptest::test_runner::{Config, TestRunner};
    let mut runner = TestRunner::new(Config { cases: 400, ..Config::default() });
    let arrivals = prop::collection::vec((0_usize..2000, 0_usize..400, 0_u8..20), 0..80);
    runner
        .run(&(1_usize..2000, arrivals), |(len, arrivals)| {
            let stream = bytes(len);
            let mut bench = established();
            let hear = |bench: &mut Bench, from: usize, n: usize| {
                let (from, end) = (from.min(len), (from + n).min(len));
                let peer = segment(i64::try_from(from).unwrap(), 0).data(&stream[from..end]);
                bench.hear(if end == len { peer.fin() } else { peer });
            };
            for (from, n, other) in arrivals {
                hear(&mut bench, from, n);
                match other {
                    0 => bench.set_receiving(false),
                    1 => bench.set_receiving(true),
                    2 => bench.acknowledge(),
                    _ => {}
                }
                prop_assert_eq!(&bench.received[..], &stream[..bench.received.len()]);
            }
            // The peer repeats what is not acknowledged.
            for from in (0..=len).step_by(300) {
                hear(&mut bench, from, 300);
            }
            bench.set_receiving(true);
            prop_assert_eq!(&bench.received, &stream);
            prop_assert_eq!(&bench.news[..], &["ended"][..]);
            prop_assert_eq!(bench.shared.held_bytes, 0);
            bench.acknowledge();
            prop_assert!(bench.connection.held.is_none());
            let acks: Vec<_> = bench.sent();
            let last = std::format!(". 0+0 ack {}", len + 1);
            prop_assert!(acks.last().unwrap().starts_with(&last));
            Ok(())
        })
        .unwrap();
}
