//! The checks of RFC 9293, 3.10.7.4, and of those that amend it, one table for each.

use core::time::Duration;

use super::super::harness::*;
use super::super::{Fate, TcpState, Timestamps};
use crate::seq::SeqNumber;
use crate::sim::Random;
use crate::wire::Ecn;

/// First check: the four cases of the table, with a window of 100 bytes from number 0 on.
#[test]
fn rfc9293_3_10_7_4_first_a_segment_is_acceptable_if_some_of_it_is_within_the_window() {
    let cases = [
        // (sequence number, bytes, what is sent at once, bytes that are received)
        (0, 0, "nothing", 0),
        (99, 0, "nothing", 0),
        (100, 0, ". 0+0 ack 0", 0),
        (-1, 0, ". 0+0 ack 0", 0),
        (0, 10, "nothing", 10),
        (0, 100, "nothing", 100),
        (0, 101, ". 0+0 ack 100", 100),
        (-10, 10, ". 0+0 ack 0 -10-0", 0),
        (-10, 11, ". 0+0 ack 1 -10-0", 1),
        (50, 10, ". 0+0 ack 0 50-60", 0),
        (99, 10, ". 0+0 ack 0 99-100", 0),
        (100, 10, ". 0+0 ack 0", 0),
        (0x7fff_ff00, 10, ". 0+0 ack 0", 0),
    ];
    for (seq, len, answer, received) in cases {
        let mut bench = established();
        bench.connection.rcv_edge = bench.connection.rcv_nxt + 100;
        bench.config.receive_bytes_max = 100;
        bench.hear(segment(seq, 0).data(&bytes(len)));
        assert_eq!(bench.shown(), answer, "{seq}+{len}");
        assert_eq!(bench.received.len(), received, "{seq}+{len}");
    }
}

#[test]
fn rfc9293_3_10_7_4_first_a_closed_window_takes_acknowledgements_and_resets() {
    let closed = || {
        let mut bench = established();
        bench.config.receive_bytes_max = 0;
        bench.connection.rcv_edge = bench.connection.rcv_nxt;
        bench
    };
    let mut bench = closed();
    bench.push(b"answer");
    bench.clear();
    bench.hear(segment(0, 6).data(b"a probe of the window"));
    assert_eq!(bench.news, ["acknowledged"]);
    assert_eq!(bench.sent(), [". 6+0 ack 0"]);
    assert_eq!(bench.interface.sent.len(), 0);
    assert!(bench.received.is_empty());

    let mut bench = closed();
    bench.hear(segment(0, 0).rst());
    assert_eq!(bench.fate, RESET);
}

/// RFC 9293, 3.10.7.4, second; RFC 5961, 3.2.
#[test]
fn rfc5961_3_a_reset_must_hit_the_next_number() {
    for (state, theirs, ours) in STATES {
        for (seq, fate, answer) in [
            (0, RESET, "nothing".into()),
            (1, Fate::Keep, std::format!(". {ours}+0 ack {theirs}")),
            (1000, Fate::Keep, std::format!(". {ours}+0 ack {theirs}")),
            (-1, Fate::Keep, "nothing".into()),
            (70_000, Fate::Keep, "nothing".into()),
        ] {
            let mut bench = state();
            bench.hear(segment(theirs + seq, 0).rst().without_ack());
            assert_eq!(
                (bench.fate, bench.shown()),
                (fate, answer),
                "{seq} in {:?}",
                bench.connection.state
            );
        }
    }
}

/// RFC 9293, 3.10.7.4, fourth; RFC 5961, 4.2.
#[test]
fn rfc5961_4_a_syn_is_challenged_wherever_it_is() {
    for (state, theirs, ours) in STATES {
        for seq in [-1, 0, 5, 70_000, -100_000] {
            let mut bench = state();
            let before = bench.connection.state;
            bench.hear(segment(theirs + seq, ours).syn());
            assert_eq!(
                bench.shown(),
                std::format!(". {ours}+0 ack {theirs}"),
                "{seq} in {before:?}"
            );
            assert_eq!((bench.fate, bench.connection.state), (Fate::Keep, before));
        }
    }
}

#[test]
fn rfc9293_3_10_7_4_fifth_a_segment_without_acknowledgement_is_dropped() {
    for (state, theirs, ours) in STATES {
        let mut bench = state();
        let before = bench.connection.state;
        bench.hear(segment(theirs, ours).data(b"data").without_ack());
        assert_eq!(bench.shown(), "nothing", "{before:?}");
        assert!(bench.received.is_empty());
        assert_eq!(bench.shared.counters.dropped_ack, 1);
    }
}

/// RFC 9293, 3.10.7.4, fifth; RFC 5961, 5.2: between SND.UNA - MAX.SND.WND and SND.NXT.
#[test]
fn rfc5961_5_an_acknowledgement_must_be_near() {
    for (ack, is_taken) in [
        (5, true),
        (6, false),
        (0, true),
        (-1, true),
        (-60_000, true),
        (-60_001, false),
        (0x7fff_ffff, false),
        (-0x7fff_ffff, false),
    ] {
        let mut bench = established();
        bench.push(b"12345");
        bench.clear();
        bench.hear(segment(0, ack).data(b"data"));
        assert_eq!(bench.received.is_empty(), !is_taken, "{ack}");
        if !is_taken {
            assert_eq!(bench.sent(), [". 5+0 ack 0"]);
            assert_eq!(bench.shared.counters.dropped_ack, 1);
        }
    }
}

#[test]
fn rfc5961_7_challenges_are_limited() {
    let mut bench = established();
    for n in 0..20 {
        bench.hear(segment(10, 0).rst());
        assert_eq!(bench.sent().len(), usize::from(n < super::CHALLENGES_MAX), "{n}");
    }
    bench.wait(Duration::from_secs(1));
    bench.hear(segment(10, 0).rst());
    assert_eq!(bench.sent(), [". 0+0 ack 0"]);
}

/// A peer in the same state would answer our answer.
#[test]
fn old_acknowledgements_cause_no_endless_exchange() {
    let mut bench = established();
    let answers = (0..100).filter(|_| {
        bench.hear(segment(-1, 0));
        !bench.sent().is_empty()
    });
    assert_eq!(answers.count(), usize::from(super::CHALLENGES_MAX));
}

#[test]
fn rfc9293_3_10_7_4_fifth_the_window_is_taken_from_the_latest_segment() {
    let mut bench = established();
    let mut hear = |seq, ack, window| {
        bench.hear(segment(seq, ack).window(window));
        bench.connection.snd_wnd
    };
    assert_eq!(hear(0, 0, 1000), 1000);
    assert_eq!(hear(5, 0, 900), 900, "a later segment");
    assert_eq!(hear(0, 0, 2000), 900, "an earlier one");
    assert_eq!(hear(5, 0, 800), 800, "the same number: the window may shrink");
    assert_eq!(bench.connection.snd_wnd_max, 60_000);
}

#[test]
fn rfc7323_2_windows_are_scaled() {
    let mut handshake = handshake();
    (handshake.snd_wind_shift, handshake.rcv_wind_shift) = (7, 3);
    let mut config = config();
    config.receive_bytes_max = 100_001;
    let mut bench = Bench::new(&handshake, config);
    bench.hear(segment(0, 0).data(b"x").window(1000));
    assert_eq!(bench.connection.snd_wnd, 128_000);
    bench.acknowledge();
    let window = u32::from(bench.interface.sent[0].header.window);
    assert_eq!(window, 100_001_u32.div_ceil(8), "rounded up, so that it never shrinks");
    assert_eq!(bench.connection.rcv_edge - bench.connection.rcv_nxt, window << 3);
}

/// The transitions of RFC 9293, 3.3.2 on the acknowledgement of our FIN, the peer's FIN, and both in one segment.
#[test]
fn rfc9293_3_3_2_states_follow_the_fins() {
    use TcpState::{CloseWait, Closing, Established, FinWait1, FinWait2, LastAck};
    // (state, peer's FIN, our FIN acknowledged, state, fate)
    let cases = [
        (0, true, false, CloseWait, Fate::Keep),
        (0, false, false, Established, Fate::Keep),
        (1, false, true, FinWait2, Fate::Keep),
        (1, true, false, Closing, Fate::Keep),
        (1, true, true, Closing, Fate::TimeWait),
        (1, false, false, FinWait1, Fate::Keep),
        (2, true, true, Closing, Fate::TimeWait),
        (2, false, true, FinWait2, Fate::Keep),
        (3, true, true, CloseWait, Fate::Keep),
        (4, false, true, Closing, Fate::TimeWait),
        (4, false, false, Closing, Fate::Keep),
        (5, false, true, LastAck, Fate::Closed),
        (5, false, false, LastAck, Fate::Keep),
    ];
    for (from, fin, acknowledges, state, fate) in cases {
        let (bench, theirs, ours) = STATES[from];
        let mut bench = bench();
        let before = bench.connection.state;
        let ack = if acknowledges { ours } else { 0 };
        // A FIN that came before is repeated with its own number.
        let peer = if fin && theirs == 1 { segment(0, ack).fin() } else { segment(theirs, ack) };
        bench.hear(if fin { peer.fin() } else { peer });
        assert_eq!(
            (bench.connection.state, bench.fate),
            (state, fate),
            "{before:?} {fin} {acknowledges}"
        );
        if fin {
            assert_eq!(bench.sent(), [std::format!(". {ours}+0 ack 1")], "{before:?}");
            assert_eq!(bench.news.contains(&"ended"), theirs == 0);
        }
    }
}

fn with_timestamps() -> Bench {
    let mut handshake = handshake();
    handshake.timestamps = Some(Timestamps { recent: 0xffff_fff0, offset: 77 });
    let mut bench = Bench::new(&handshake, config());
    bench.connection.quick_acks = 0;
    bench
}

#[test]
fn rfc7323_5_3_a_segment_with_an_old_timestamp_is_answered_and_dropped() {
    for (value, is_taken) in
        [(0xffff_fff0, true), (5, true), (0xffff_ffef, false), (0x7fff_ffff, false)]
    {
        let mut bench = with_timestamps();
        bench.hear(segment(0, 0).data(b"data").timestamps(value, 0));
        assert_eq!(bench.received.is_empty(), !is_taken, "{value:x}");
        if !is_taken {
            assert_eq!(bench.sent(), [". 0+0 ack 0"]);
        }
    }
}

#[test]
fn rfc7323_5_3_a_reset_needs_no_timestamp() {
    let mut bench = with_timestamps();
    bench.hear(segment(0, 0).rst());
    assert_eq!(bench.fate, RESET);
}

#[test]
fn rfc7323_3_2_a_segment_without_a_timestamp_is_dropped() {
    let mut bench = with_timestamps();
    bench.hear(segment(0, 0).data(b"data"));
    assert!(bench.received.is_empty());
    assert_eq!(bench.shown(), "nothing");
    assert_eq!(bench.shared.counters.dropped_timestamp, 1);
}

#[test]
fn rfc7323_5_5_an_old_timestamp_counts_after_24_idle_days() {
    let mut bench = with_timestamps();
    bench.wait(Duration::from_secs(24 * 86_400 + 1));
    bench.hear(segment(0, 0).data(b"data").timestamps(0xffff_0000, 0));
    assert_eq!(bench.received, b"data");
    assert_eq!(bench.connection.ts_recent, 0xffff_0000);
}

/// RFC 7323, 4.3: the timestamp of the earliest segment that is not acknowledged, and of no later one.
#[test]
fn rfc7323_4_3_the_echo_is_that_of_the_segment_that_moved_the_window() {
    let mut bench = with_timestamps();
    let mut recent = |seq, data: &[u8], value| {
        bench.hear(segment(seq, 0).data(data).timestamps(value, 0));
        bench.connection.ts_recent
    };
    assert_eq!(recent(0, b"12345", 10), 10);
    assert_eq!(recent(5, b"12345", 20), 10, "the first one is not acknowledged yet");
    bench.wait(Duration::from_millis(40));
    bench.acknowledge();
    assert_eq!(bench.interface.sent[0].header.options.timestamps, Some((5040 + 77, 10)));
    let mut recent = |seq, value| {
        bench.hear(segment(seq, 0).data(b"12345").timestamps(value, 0));
        bench.connection.ts_recent
    };
    assert_eq!(recent(15, 30), 10, "behind a gap");
    assert_eq!(recent(10, 40), 40);
}

/// RFC 3168, 6.1.3.
#[test]
fn rfc3168_a_mark_is_echoed_until_the_peer_knows() {
    let mut handshake = handshake();
    handshake.ecn = true;
    let mut bench = Bench::new(&handshake, config());
    let mut hear = |seq, ecn, cwr| {
        let mut peer = segment(seq, 0).data(b"1");
        peer.ecn = ecn;
        peer.header.flags.cwr = cwr;
        bench.hear(peer);
        bench.shown()
    };
    assert_eq!(hear(0, Ecn::Ect0, false), ". 0+0 ack 1");
    assert_eq!(hear(1, Ecn::Ce, false), "E. 0+0 ack 2");
    assert_eq!(hear(2, Ecn::Ect0, false), "E. 0+0 ack 3");
    assert_eq!(hear(3, Ecn::Ect0, true), ". 0+0 ack 4");
    assert_eq!(hear(4, Ecn::Ce, true), "E. 0+0 ack 5", "a new mark");
}

#[test]
fn a_mark_without_agreement_is_ignored() {
    let mut bench = established();
    let mut peer = segment(0, 0).data(b"1");
    peer.ecn = Ecn::Ce;
    bench.hear(peer);
    bench.wait(Duration::from_millis(40));
    assert_eq!(bench.sent(), [". 0+0 ack 1"]);
}

#[test]
fn rfc9293_3_6_1_bytes_for_a_closed_connection_reset_it() {
    let mut bench = fin_wait_2();
    assert_eq!(bench.connection.close(), Fate::Keep);
    bench.hear(segment(0, 1));
    assert_eq!(bench.fate, Fate::Keep);
    bench.hear(segment(0, 1).data(b"late"));
    assert_eq!(bench.fate, Fate::Reset);
}

/// What was acknowledged before may come late: it is no duplicate and no window.
#[test]
fn an_old_acknowledgement_changes_nothing() {
    let mut bench = established();
    bench.push(b"12345");
    bench.hear(segment(0, 5));
    bench.drain();
    bench.clear();
    bench.hear(segment(0, 3).window(1));
    assert_eq!(bench.connection.snd_wnd, 60_000);
    assert_eq!(bench.connection.snd_una, SeqNumber(ISS.0.wrapping_add(6)));
    assert_eq!((bench.shown().as_str(), bench.news.len()), ("nothing", 0));
}

/// A peer that sends anything, near the windows and far from them. Nothing panics, no bytes are made up, and the
/// memory that it takes is bounded and returns.
#[test]
fn a_hostile_peer_breaks_nothing() {
    let seeds =
        std::env::var("NETSTACK_HOSTILE_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(500);
    for seed in 0..seeds {
        let outcome = std::panic::catch_unwind(|| hostile(seed));
        assert!(outcome.is_ok(), "seed {seed}");
    }
}

fn hostile(seed: u64) {
    let mut random = Random::new(seed);
    let mut handshake = handshake();
    handshake.sack = random.chance(0.8);
    handshake.ecn = random.chance(0.5);
    (handshake.snd_wind_shift, handshake.rcv_wind_shift) = (2, 3);
    let mut bench = Bench::new(&handshake, config());
    if random.chance(0.5) {
        bench.interface.limits.cut_bytes_max = 30_000;
    }
    for _ in 0..random.within(1..=300) {
        match random.within(0..=9) {
            0 => _ = bench.push(&bytes(random.index(5000) + 1)),
            1 => bench.set_receiving(random.chance(0.7)),
            2 => bench.wait(Duration::from_millis(random.within(0..=3000))),
            3 if random.chance(0.1) => bench.connection.shutdown(),
            4 => bench.acknowledge(),
            _ => bench.hear(anything(&mut random, &bench)),
        }
        bench.handle_timer();
        bench.connection.check(&bench.config);
        if bench.fate != Fate::Keep {
            break;
        }
        bench.drain_with(random.within(0..=20_000)).unwrap();
        bench.queue.check();
        bench.connection.check(&bench.config);
        assert!(bench.shared.held_bytes() <= 2 * 65_536);
        bench.interface.sent.clear();
    }
    bench.connection.release(&mut bench.shared);
    assert_eq!(bench.shared.held_bytes(), 0);
}

/// A number near one of those that matter, or anywhere.
fn near(random: &mut Random, numbers: &[SeqNumber]) -> SeqNumber {
    let base = numbers[random.index(numbers.len())];
    #[expect(clippy::cast_possible_truncation, reason = "on the circle")]
    let noise = match random.within(0..=9) {
        0..=3 => 0,
        4..=6 => random.within(0..=6) as u32,
        7 | 8 => random.within(0..=60_000) as u32,
        _ => random.bits() as u32,
    };
    let is_behind = random.chance(0.5);
    SeqNumber(if is_behind { base.0.wrapping_sub(noise) } else { base.0.wrapping_add(noise) })
}

fn anything(random: &mut Random, bench: &Bench) -> Peer {
    let connection = &bench.connection;
    let ours = [connection.snd_una, connection.snd_nxt, ISS];
    let theirs = [connection.rcv_nxt, connection.rcv_edge, IRS];
    let len = if random.chance(0.5) { 0 } else { random.index(3000) };
    let mut peer = segment(0, 0).data(&bytes(len));
    let header = &mut peer.header;
    header.seq = near(random, &theirs);
    header.ack = random.chance(0.95).then(|| near(random, &ours));
    header.flags.fin = random.chance(0.03);
    header.flags.syn = random.chance(0.03);
    header.flags.rst = random.chance(0.02);
    header.flags.ece = random.chance(0.1);
    header.flags.cwr = random.chance(0.1);
    for _ in 0..random.within(0..=4) {
        header.options.sack.push(near(random, &ours), near(random, &ours));
    }
    let window = if random.chance(0.2) { 0 } else { random.within(0..=65_535) };
    peer.ecn = if random.chance(0.2) { Ecn::Ce } else { Ecn::Ect0 };
    peer.window(u16::try_from(window).unwrap())
}
