//! Drains: the bytes sent, their segments, and the bytes released.

use std::vec;
use std::vec::Vec;

use outq::OutQ;

use super::super::harness::*;
use super::super::{Drained, Fate, Lost, TcpState, Timestamps};
use crate::transmit::Full;
use crate::wire::Ecn;

#[test]
fn bytes_leave_in_segments_and_are_released_by_acknowledgements() {
    let mut bench = established();
    assert_eq!(bench.push(&bytes(3000)), Drained::Empty);
    assert_eq!(bench.sent(), [". 0+1460 ack 0", ". 1460+1460 ack 0", "P. 2920+80 ack 0"]);
    bench.hear(segment(0, 1460));
    assert_eq!(bench.news, ["acknowledged"]);
    assert_eq!(bench.queue.released(), 0, "the next drain does");
    assert_eq!(bench.drain(), Drained::Empty);
    assert_eq!(bench.queue.released(), 1460);
    bench.hear(segment(0, 3000));
    assert!(bench.connection.sending.is_some());
    assert_eq!(bench.drain(), Drained::Empty);
    assert_eq!(bench.queue.released(), 3000);
    assert!(bench.connection.sending.is_none(), "nothing is in flight");
}

#[test]
fn an_idle_connection_may_have_another_queue() {
    let mut bench = established();
    bench.push(b"first");
    bench.hear(segment(0, 5));
    bench.drain();
    bench.clear();
    bench.queue = OutQ::new();
    bench.push(b"second");
    assert_eq!(bench.interface.sent[0].payload, b"second");
    assert_eq!(bench.sent(), ["P. 5+6 ack 0"]);
    bench.hear(segment(0, 11));
    bench.drain();
    assert_eq!(bench.queue.released(), 6);
}

#[test]
#[should_panic(expected = "in a queue that is not this connection's")]
fn a_connection_with_bytes_in_flight_may_not() {
    let mut bench = established();
    bench.push(b"first");
    bench.queue = OutQ::new();
    bench.push(b"second");
}

#[test]
fn a_frame_gathers_payloads() {
    let mut bench = established();
    for part in ["head ", "of ", "a ", "body"] {
        bench.queue.push(part.as_bytes().to_vec());
    }
    bench.drain();
    assert_eq!(bench.interface.sent[0].payload, b"head of a body");
    assert_eq!(bench.interface.sent[0].parts, 4);
    assert_eq!(bench.sent(), ["P. 0+14 ack 0"]);
}

#[test]
fn too_many_payloads_for_a_frame_make_it_shorter() {
    for cut_bytes_max in [0, 60_000] {
        let mut bench = established();
        bench.interface.limits.cut_bytes_max = cut_bytes_max;
        let mut stream = Vec::new();
        for n in 0..100 {
            let bytes = vec![n; 301];
            stream.extend_from_slice(&bytes);
            bench.queue.push(bytes);
        }
        assert_eq!(bench.drain(), Drained::Blocked, "the congestion window");
        let sent: Vec<u8> =
            bench.interface.sent.iter().flat_map(|sent| &sent.payload).copied().collect();
        assert_eq!(stream[..sent.len()], sent);
        let mss = MSS;
        if cut_bytes_max > 0 {
            // 16 payloads have 4,816 bytes: three segments.
            assert_eq!(bench.interface.sent[0].payload.len(), 3 * mss);
            assert!(
                bench
                    .interface
                    .sent
                    .iter()
                    .all(|sent| sent.payload.len() % mss == 0 || sent.header.flags.psh)
            );
        }
    }
}

#[test]
fn tiny_payloads_are_gathered_as_far_as_a_frame_has_parts() {
    let mut bench = established();
    for n in 0..40 {
        bench.queue.push(vec![n; 2]);
    }
    bench.drain();
    assert_eq!(bench.sent(), [". 0+32 ack 0", ". 32+32 ack 0", "P. 64+16 ack 0"]);
}

#[test]
fn an_interface_that_cuts_gets_large_frames() {
    let mut bench = established();
    bench.interface.limits.cut_bytes_max = 65_000;
    bench.push(&bytes(5000));
    assert_eq!(bench.interface.sent[0].segment_bytes, Some(1460));
    assert_eq!(bench.sent(), ["P. 0+5000 ack 0"]);
}

#[test]
fn a_segment_of_one_mss_is_not_cut() {
    let mut bench = established();
    bench.interface.limits.cut_bytes_max = 65_000;
    bench.push(&bytes(1460));
    assert_eq!(bench.interface.sent[0].segment_bytes, None);
}

#[test]
fn the_peers_window_is_a_limit() {
    let mut bench = established();
    bench.window = 2000;
    bench.hear(segment(0, 0));
    assert_eq!(bench.push(&bytes(5000)), Drained::Blocked);
    let sent: usize = bench.interface.sent.iter().map(|sent| sent.payload.len()).sum();
    assert!((1460..=2000).contains(&sent));
    bench.clear();
    bench.hear(segment(0, 0).window(5000));
    assert!(bench.news.contains(&"room"));
}

#[test]
fn a_budget_is_a_limit() {
    let mut bench = established();
    bench.queue.push(bytes(5000));
    assert_eq!(bench.drain_with(3000), Ok(Drained::TurnOver));
    assert_eq!(bench.sent().len(), 3, "overdrawn by less than a segment");
    assert_eq!(bench.drain_with(0), Ok(Drained::TurnOver));
    assert_eq!(bench.shown(), "nothing");
    assert_eq!(bench.drain_with(1000), Ok(Drained::Empty));
    assert_eq!(bench.sent(), ["P. 4380+620 ack 0"]);
}

#[test]
fn a_full_interface_changes_nothing() {
    let mut bench = established();
    bench.hear(segment(0, 0).data(b"request"));
    bench.interface.room = 1;
    bench.queue.push(bytes(3000));
    assert_eq!(bench.drain_with(u64::MAX), Err(Full));
    assert_eq!(bench.sent(), [". 0+1460 ack 7"]);
    assert_eq!(bench.queue.sent(), 1460);
    bench.interface.room = 0;
    assert_eq!(bench.drain_with(u64::MAX), Err(Full));
    bench.interface.room = usize::MAX;
    assert_eq!(bench.drain(), Drained::Empty);
    assert_eq!(bench.sent(), [". 1460+1460 ack 7", "P. 2920+80 ack 7"]);
}

#[test]
fn rfc6691_2_options_are_taken_off_the_mss() {
    let mut handshake = handshake();
    handshake.timestamps = Some(Timestamps { recent: 1, offset: 0 });
    let mut bench = Bench::new(&handshake, config());
    bench.push(&bytes(3000));
    assert_eq!(bench.sent(), [". 0+1448 ack 0", ". 1448+1448 ack 0", "P. 2896+104 ack 0"]);
    handshake.timestamps = None;
    handshake.peer_mss = 1000;
    let mut bench = Bench::new(&handshake, config());
    bench.push(&bytes(1001));
    assert_eq!(bench.sent(), [". 0+1000 ack 0", "P. 1000+1 ack 0"]);
    handshake.peer_mss = 0;
    assert_eq!(Bench::new(&handshake, config()).connection.mss, 48);
}

#[test]
fn a_gap_in_the_queue_holds_bytes_and_fin_back() {
    let mut bench = established();
    bench.queue.push(b"head".to_vec());
    let body = bench.queue.promise(4);
    bench.connection.shutdown();
    assert_eq!(bench.drain(), Drained::Empty);
    assert_eq!(bench.sent(), ["P. 0+4 ack 0"]);
    assert_eq!(bench.connection.state, TcpState::Established);
    bench.queue.fill(body, b"body".to_vec());
    bench.drain();
    assert_eq!(bench.sent(), ["FP. 4+4 ack 0"]);
    assert_eq!(bench.connection.state, TcpState::FinWait1);
}

#[test]
fn a_stream_that_failed_has_no_fin() {
    let mut bench = established();
    bench.queue.push(b"head".to_vec());
    let body = bench.queue.promise(4);
    bench.queue.fail(body);
    bench.connection.shutdown();
    bench.drain();
    assert_eq!(bench.sent(), ["P. 0+4 ack 0"]);
    bench.hear(segment(0, 4));
    bench.drain();
    assert_eq!(bench.connection.close(), Fate::Reset);
}

#[test]
fn a_fin_rides_on_the_last_segment() {
    for len in [1, 1459, 1460, 1461, 2920] {
        for cut_bytes_max in [0, 65_000] {
            let mut bench = established();
            bench.interface.limits.cut_bytes_max = cut_bytes_max;
            bench.connection.shutdown();
            assert_eq!(bench.push(&bytes(len)), Drained::Empty);
            let frames = if cut_bytes_max > 0 { 1 } else { len.div_ceil(MSS) };
            assert_eq!(bench.interface.sent.len(), frames, "{len}");
            let fins = bench.interface.sent.iter().filter(|sent| sent.header.flags.fin);
            assert_eq!(fins.count(), 1);
            assert!(bench.interface.sent.last().unwrap().header.flags.fin);
            let all = i64::try_from(len).unwrap() + 1;
            assert_eq!(position(ISS, bench.connection.snd_nxt), all);
            bench.hear(segment(0, all));
            assert_eq!(bench.connection.state, TcpState::FinWait2);
            bench.drain();
            assert_eq!(bench.queue.released(), u64::try_from(len).unwrap());
        }
    }
}

#[test]
fn a_fin_leaves_alone_if_all_was_sent() {
    let mut bench = established();
    bench.push(b"all");
    bench.clear();
    bench.connection.shutdown();
    bench.drain();
    assert_eq!(bench.sent(), ["F. 3+0 ack 0"]);
    assert_eq!(bench.drain(), Drained::Empty);
    assert_eq!(bench.shown(), "nothing", "once");
}

#[test]
fn a_fin_waits_for_the_peers_window() {
    let mut bench = established();
    bench.window = 4;
    bench.hear(segment(0, 0));
    bench.connection.shutdown();
    bench.push(b"1234");
    assert!(!bench.interface.sent[0].header.flags.fin);
    bench.clear();
    bench.hear(segment(0, 4).window(1));
    bench.drain();
    assert_eq!(bench.sent(), ["F. 4+0 ack 0"]);
}

/// RFC 9293, 3.6: the FIN is sent again as any byte is.
#[test]
fn a_fin_is_sent_again() {
    let mut bench = established();
    bench.connection.shutdown();
    bench.push(b"all");
    assert_eq!(bench.sent(), ["FP. 0+3 ack 0"]);
    bench.repeat();
    assert_eq!(bench.sent(), ["FP. 0+3 ack 0"]);
    bench.hear(segment(0, 3));
    bench.drain();
    assert_eq!(bench.connection.state, TcpState::FinWait1);
    bench.repeat();
    assert_eq!(bench.sent(), ["F. 3+0 ack 0"]);
    bench.hear(segment(0, 4));
    assert_eq!(bench.connection.state, TcpState::FinWait2);
}

impl Bench {
    /// Waits until the timer has sent something again.
    fn repeat(&mut self) {
        for _ in 0..10 {
            self.wait(self.deadline().unwrap());
            if self.handle_timer() {
                self.drain();
            }
            if !self.interface.sent.is_empty() {
                return;
            }
        }
        panic!("nothing is sent again");
    }
}

#[test]
fn a_segment_is_sent_again_from_the_queue() {
    let mut bench = established();
    bench.push(b"head");
    bench.push(b"body");
    bench.hear(segment(0, 2));
    bench.drain();
    bench.clear();
    bench.repeat();
    let sent = &bench.interface.sent[0];
    assert!(sent.payload == b"ad" || sent.payload == b"adbody" || sent.payload == b"body");
    let counters = bench.shared.counters;
    assert_eq!(
        counters.retransmitted_timeout + counters.probes_sent + counters.retransmitted_fast,
        1
    );
}

#[test]
fn rfc3168_6_1_5_only_new_data_is_marked() {
    let mut handshake = handshake();
    handshake.ecn = true;
    let mut bench = Bench::new(&handshake, config());
    bench.hear(segment(0, 0).data(b"request"));
    bench.acknowledge();
    bench.push(b"answer");
    bench.repeat_after_clear();
    let marks: Vec<Ecn> = bench.interface.sent.iter().map(|sent| sent.ecn).collect();
    assert_eq!(marks, [Ecn::NotEct, Ecn::Ect0, Ecn::NotEct]);
}

impl Bench {
    fn repeat_after_clear(&mut self) {
        let before = core::mem::take(&mut self.interface.sent);
        self.repeat();
        self.interface.sent.splice(0..0, before);
    }
}

#[test]
fn rfc9293_3_8_6_1_a_closed_window_is_probed() {
    let mut bench = established();
    bench.window = 0;
    bench.hear(segment(0, 0));
    assert_eq!(bench.push(b"waiting"), Drained::Blocked);
    assert_eq!(bench.shown(), "nothing");
    // Asked again, later and later, as long as the peer answers.
    let mut waits = Vec::new();
    for _ in 0..12 {
        let wait = bench.deadline().unwrap();
        bench.wait(wait);
        bench.handle_timer();
        assert_eq!(bench.sent(), [". -1+0 ack 0"]);
        bench.hear(segment(0, 0));
        bench.drain();
        waits.push(wait.as_millis());
    }
    assert_eq!(waits[..3], [200, 400, 800]);
    assert_eq!(waits[11], 60_000);
    assert_eq!(bench.fate, Fate::Keep);
    bench.clear();
    bench.hear(segment(0, 0).window(100));
    assert_eq!(bench.news, ["room"]);
    assert_eq!(bench.drain(), Drained::Empty);
    assert_eq!(bench.sent(), ["P. 0+7 ack 0"]);
    bench.hear(segment(0, 7).window(0));
    bench.drain();
    assert_eq!(bench.deadline(), None, "nothing waits");
}

#[test]
fn a_closed_window_without_answers_is_given_up() {
    let mut bench = established();
    bench.window = 0;
    bench.hear(segment(0, 0));
    bench.push(b"waiting");
    let begin = bench.now;
    while bench.fate == Fate::Keep {
        bench.wait(bench.deadline().unwrap());
        bench.handle_timer();
        bench.acknowledge();
    }
    assert_eq!(bench.fate, Fate::Lost(Lost::TimedOut));
    let silence = bench.now.since(begin);
    assert!(silence >= bench.config.patience && silence < bench.config.patience * 2);
}

#[test]
fn an_orphan_does_not_wait_for_a_window_for_ever() {
    let mut bench = established();
    bench.window = 0;
    bench.hear(segment(0, 0));
    bench.connection.shutdown();
    assert_eq!(bench.drain(), Drained::Blocked);
    assert_eq!(bench.connection.close(), Fate::Keep);
    while bench.fate == Fate::Keep {
        bench.wait(bench.deadline().unwrap());
        bench.handle_timer();
        bench.acknowledge();
        bench.hear(segment(0, 0));
        bench.drain();
    }
    assert_eq!(bench.fate, Fate::Reset);
}

#[test]
fn a_window_of_one_byte_moves_every_byte() {
    let mut bench = established();
    bench.window = 1;
    bench.hear(segment(0, 0));
    bench.connection.shutdown();
    bench.push(b"abcdef");
    let mut got = Vec::new();
    for n in 1..=7 {
        if bench.interface.sent.is_empty() {
            bench.repeat();
        }
        let sent = bench.interface.sent.remove(0);
        assert_eq!(position(ISS, sent.header.seq), n - 1);
        got.extend_from_slice(&sent.payload);
        assert_eq!(sent.payload.is_empty(), sent.header.flags.fin);
        bench.clear();
        bench.hear(segment(0, n));
        bench.drain();
    }
    assert_eq!(got, b"abcdef");
    assert_eq!(bench.connection.state, TcpState::FinWait2);
}

#[test]
fn a_reset_has_the_next_number() {
    let mut bench = established();
    bench.push(b"data");
    bench.clear();
    let cx = &mut super::Context { config: &bench.config, shared: &mut bench.shared };
    bench.connection.reset(bench.now, cx, &mut bench.interface);
    assert_eq!(bench.interface.sent[0].header.window, 0);
    assert_eq!(bench.sent(), ["R. 4+0 ack 0"]);
    assert_eq!(bench.shared.counters.resets_sent, 1);
}
