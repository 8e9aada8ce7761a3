//! Timers, closing, and reports by ICMP.

use core::time::Duration;

use super::super::harness::*;
use super::super::{Context, Drained, Fate, Lost, Outcome, TcpState};
use crate::config::Keepalive;
use crate::seq::SeqNumber;

fn keepalive() -> Bench {
    let mut bench = established();
    bench.config.keepalive = Some(Keepalive {
        idle: Duration::from_secs(60),
        interval: Duration::from_secs(10),
        probes: 3,
    });
    bench
}

#[test]
fn rfc9293_3_8_4_an_idle_connection_is_not_probed_by_default() {
    let mut bench = established();
    assert_eq!(bench.deadline(), None);
    bench.wait(Duration::from_secs(1_000_000));
    assert!(!bench.handle_timer());
    assert_eq!(bench.fate, Fate::Keep);
}

#[test]
fn rfc9293_3_8_4_keepalives_repeat_the_last_number() {
    let mut bench = keepalive();
    assert_eq!(bench.deadline(), Some(Duration::from_secs(60)));
    bench.wait(Duration::from_secs(60));
    bench.handle_timer();
    assert_eq!(bench.sent(), [". -1+0 ack 0"]);
    bench.hear(segment(0, 0));
    assert_eq!(bench.deadline(), Some(Duration::from_secs(60)), "the peer lives");
}

#[test]
fn rfc9293_3_8_4_a_silent_peer_is_given_up() {
    let mut bench = keepalive();
    for wait in [60, 10, 10] {
        bench.wait(Duration::from_secs(wait));
        bench.handle_timer();
        assert_eq!(bench.sent(), [". -1+0 ack 0"]);
    }
    assert_eq!(bench.deadline(), Some(Duration::from_secs(10)));
    bench.wait(Duration::from_secs(10));
    bench.handle_timer();
    assert_eq!(bench.fate, Fate::Lost(Lost::TimedOut));
    assert_eq!(bench.shared.counters.timed_out, 1);
}

/// A connection with everything received, sent and acknowledged ends in order; any other one is reset.
#[test]
fn rfc2525_2_17_a_connection_with_bytes_left_is_reset() {
    let cases: [(&str, Begin, Fate); 10] = [
        ("not shut down", established, Fate::Reset),
        ("the peer has ended, not shut down", close_wait, Fate::Reset),
        ("our FIN in flight", fin_wait_1, Fate::Keep),
        ("our FIN acknowledged", fin_wait_2, Fate::Keep),
        ("both FINs sent", closing, Fate::Keep),
        ("both FINs sent, the peer's first", last_ack, Fate::Keep),
        (
            "shut down, and not drained since: bytes may be queued",
            || {
                let bench = established();
                let mut bench = bench;
                bench.connection.shutdown();
                bench
            },
            Fate::Reset,
        ),
        (
            "bytes in flight",
            || {
                let mut bench = established();
                bench.connection.shutdown();
                bench.push(b"data");
                bench
            },
            Fate::Reset,
        ),
        (
            "bytes unsent",
            || {
                let mut bench = established();
                bench.window = 0;
                bench.hear(segment(0, 0));
                bench.connection.shutdown();
                bench.push(b"data");
                bench
            },
            Fate::Reset,
        ),
        (
            "bytes unread",
            || {
                let mut bench = fin_wait_2();
                bench.set_receiving(false);
                bench.hear(segment(0, 1).data(b"unread"));
                bench
            },
            Fate::Reset,
        ),
    ];
    for (name, bench, fate) in cases {
        let mut bench = bench();
        assert_eq!(bench.connection.close(), fate, "{name}");
        assert_eq!(bench.connection.is_orphan(), fate == Fate::Keep, "{name}");
    }
}

#[test]
fn an_orphan_ends_without_the_application() {
    // Its queue is gone before the last acknowledged bytes were released.
    let mut bench = established();
    bench.connection.shutdown();
    bench.push(b"data");
    bench.hear(segment(0, 4));
    assert_eq!(bench.connection.close(), Fate::Keep);
    bench.queue = outq::OutQ::new();
    assert_eq!(bench.drain(), Drained::Empty);
    bench.hear(segment(0, 5));
    bench.drain();
    assert_eq!(bench.connection.state, TcpState::FinWait2);
    assert!(bench.connection.sending.is_none());
    bench.hear(segment(0, 5).fin());
    assert_eq!(bench.fate, Fate::TimeWait);
}

#[test]
fn an_orphan_does_not_wait_for_ever() {
    let mut bench = fin_wait_2();
    assert_eq!(bench.deadline(), None, "the application may wait");
    assert_eq!(bench.connection.close(), Fate::Keep);
    assert_eq!(bench.deadline(), Some(bench.config.fin_wait));
    bench.wait(bench.config.fin_wait);
    bench.handle_timer();
    assert_eq!(bench.fate, Fate::Closed);
}

#[test]
fn a_close_with_the_end_untold_is_complete() {
    let mut bench = fin_wait_2();
    bench.set_receiving(false);
    bench.hear(segment(0, 1).fin());
    assert_eq!(bench.fate, Fate::Keep);
    assert_eq!(bench.connection.close(), Fate::TimeWait);
}

fn number(at: u32) -> SeqNumber {
    ISS + 1 + at
}

/// RFC 1191, 6; RFC 5927, 7.2.
#[test]
fn rfc5927_7_a_smaller_path_mtu_is_believed_only_about_bytes_in_flight() {
    for (seq, mtu, mss) in [
        (number(0), 1400, 1360),
        (number(1460), 1400, 1360),
        (number(2920), 1400, 1460),
        (SeqNumber(ISS.0), 1400, 1460),
        (number(0), 1500, 1460),
        (number(0), 9000, 1460),
        (number(0), 68, 536),
    ] {
        let mut bench = established();
        bench.push(&bytes(2920));
        let outcome = told(&mut bench, seq, mtu);
        assert_eq!(usize::from(bench.connection.mss_in_use()), mss, "{seq:?} {mtu}");
        assert_eq!(outcome.room, mss < MSS);
    }
}

/// Tells the connection that the segment at that number was too long.
fn told(bench: &mut Bench, seq: SeqNumber, mtu: u16) -> Outcome {
    let mut cx = Context { config: &bench.config, shared: &mut bench.shared };
    bench.connection.handle_path_mtu(bench.now, &mut cx, seq, mtu)
}

/// The next timer expires.
fn time_out(bench: &mut Bench) {
    bench.now = bench.connection.deadline(&bench.config).expect("data is in flight");
    bench.handle_timer();
    bench.drain();
}

/// A connection of which the peer has acknowledged a whole segment, and two more in flight.
fn proven() -> Bench {
    let mut bench = established();
    bench.push(&bytes(1460));
    bench.hear(segment(0, 1460));
    bench.push(&bytes(2920));
    bench.clear();
    bench
}

/// RFC 5927, 7.2: who forges such messages changes nothing while whole segments arrive.
#[test]
fn rfc5927_7_2_a_smaller_path_mtu_is_doubted_while_whole_segments_arrive() {
    let mut bench = proven();
    for mtu in [68, 576, 1400] {
        let outcome = told(&mut bench, number(1460), mtu);
        bench.tell(&outcome);
        bench.drain();
        assert!(bench.interface.sent.is_empty(), "nothing is sent again: {mtu}");
    }
    bench.hear(segment(0, 4380));
    bench.push(&bytes(2920));
    assert!(bench.interface.sent.iter().any(|sent| sent.payload.len() == MSS));
    assert_eq!(bench.connection.mss_in_use(), 1460);
    // A timeout for other bytes is no proof of what was acknowledged.
    for _ in 0..2 {
        time_out(&mut bench);
    }
    assert_eq!(bench.connection.mss_in_use(), 1460);
}

#[test]
fn rfc5927_7_2_a_smaller_path_mtu_is_believed_when_the_segment_does_not_arrive() {
    let mut bench = proven();
    let outcome = told(&mut bench, number(1460), 1000);
    bench.tell(&outcome);
    // The tail loss probe, then the timeout.
    for _ in 0..2 {
        time_out(&mut bench);
    }
    assert_eq!(bench.connection.mss_in_use(), 960);
    assert!(bench.interface.sent.last().is_some_and(|sent| sent.payload.len() <= 960));
}

/// RFC 1191, 6.3: larger packets are tried again after ten minutes, and the flight in between ends and begins.
#[test]
fn rfc1191_6_3_segments_are_longer_again_when_the_news_is_old() {
    for has_a_pause in [true, false] {
        let mut bench = established();
        bench.push(&bytes(2920));
        let outcome = told(&mut bench, number(0), 1000);
        bench.tell(&outcome);
        bench.drain();
        if has_a_pause {
            bench.hear(segment(0, 2920));
            bench.drain();
        }
        bench.push(&bytes(100));
        assert_eq!(bench.connection.mss_in_use(), 960);
        bench.now = bench.now + super::super::path_mtu::AGE_MAX;
        bench.hear(segment(0, 3020));
        bench.drain();
        bench.clear();
        bench.push(&bytes(2920));
        assert_eq!(bench.connection.mss_in_use(), 1460);
        assert_eq!(bench.interface.sent[0].payload.len(), MSS);
    }
}

#[test]
fn new_segments_fit_the_smaller_path() {
    let mut bench = established();
    bench.push(&bytes(1460));
    bench.clear();
    let outcome = told(&mut bench, number(0), 1000);
    bench.tell(&outcome);
    bench.drain();
    bench.push(&bytes(2000));
    bench.hear(segment(0, 1460));
    bench.drain();
    assert!(bench.interface.sent.iter().all(|sent| sent.payload.len() <= 960));
    assert!(!bench.interface.sent.is_empty());
}

#[test]
fn rfc5927_5_2_a_peer_that_cannot_be_reached_is_given_up_in_the_end_only() {
    let mut bench = established();
    bench.push(b"data");
    bench.connection.handle_unreachable(number(4));
    assert!(!bench.connection.marks.has(super::Marks::UNREACHABLE), "not in flight");
    bench.connection.handle_unreachable(number(0));
    assert_eq!(bench.fate, Fate::Keep);
    assert!(bench.connection.marks.has(super::Marks::UNREACHABLE));
    bench.hear(segment(0, 4));
    assert!(!bench.connection.marks.has(super::Marks::UNREACHABLE), "it was reached");
}
