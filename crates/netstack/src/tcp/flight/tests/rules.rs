//! The rules, by RFC and section. Each begins with a path of 100 ms, segments of 1,000 bytes, and `SND.UNA` = 0.

use alloc::vec::Vec;
use core::time::Duration;

use super::super::{Ack, Acked, Flight, Kind, Offer, Path, Saved, SendStep, TimerOutcome};
use crate::config::Algorithm;
use crate::seq::SeqNumber;
use crate::time::Time;

const MSS: u32 = 1_000;
const RTT_MS: u64 = 100;

/// CUBIC with selective acknowledgements, NewReno without.
fn path(sack: bool) -> Path {
    let algorithm = if sack { Algorithm::Cubic } else { Algorithm::NewReno };
    Path { mss: MSS, sack, algorithm, patience: Duration::from_secs(100) }
}

/// A flight, and what the connection around it would do.
struct Bench {
    flight: Flight,
    now: Time,
    new_bytes: u32,
    window: u32,
    has_waited: bool,
    cut_bytes_max: u32,
    timestamps: bool,
}

/// What was sent: the first byte, the bytes, and the reason.
type Sent = (u32, u32, Kind);

impl Bench {
    fn new(path: Path) -> Self {
        let now = Time::from_nanos(10_000_000_000);
        let mut flight = Flight::new();
        let saved = Saved::new(now, Some(Duration::from_millis(RTT_MS)), MSS);
        flight.begin(saved, path, SeqNumber(0));
        Self {
            flight,
            now,
            new_bytes: 0,
            window: 1 << 20,
            has_waited: false,
            cut_bytes_max: 0,
            timestamps: false,
        }
    }

    fn sack() -> Self {
        Self::new(path(true))
    }

    fn reno() -> Self {
        Self::new(path(false))
    }

    fn pass_ms(&mut self, ms: u64) {
        self.now = self.now + Duration::from_millis(ms);
    }

    fn next(&mut self) -> SendStep {
        let offer = Offer {
            new_bytes: self.new_bytes,
            window_end: self.flight.snd_una() + self.window,
            window_max: 1 << 20,
            has_waited: self.has_waited,
            cut_bytes_max: self.cut_bytes_max,
        };
        self.flight.next(self.now, &offer)
    }

    /// Sends what may be sent, when pacing lets it.
    fn send(&mut self) -> Vec<Sent> {
        let mut sent = Vec::new();
        loop {
            let (from, bytes, kind) = match self.next() {
                SendStep::Send { from, bytes, kind, .. } => (from, bytes, kind),
                SendStep::WaitUntil(at) => {
                    self.now = at;
                    continue;
                }
                SendStep::Blocked => return sent,
            };
            if from == self.flight.snd_nxt() {
                self.new_bytes -= bytes;
            }
            self.flight.sent(self.now, from, bytes, kind);
            self.flight.check();
            sent.push((from.0, bytes, kind));
        }
    }

    /// Sends this many new segments without a pause.
    fn push(&mut self, segments: u32) -> Vec<Sent> {
        self.new_bytes += segments * MSS;
        self.send()
    }

    fn hear(&mut self, una: u32, sack: &[(u32, u32)], ts_echo: Option<u32>, ece: bool) -> Acked {
        let sack: Vec<_> = sack.iter().map(|&(l, r)| (SeqNumber(l), SeqNumber(r))).collect();
        let una = SeqNumber(una);
        let acked = self
            .flight
            .handle_ack(self.now, &Ack { una, sack: &sack, ts_echo, ece, is_duplicate: true });
        self.flight.check();
        acked
    }

    fn ack(&mut self, una: u32) -> Vec<Sent> {
        self.ack_sack(una, &[])
    }

    fn ack_sack(&mut self, una: u32, sack: &[(u32, u32)]) -> Vec<Sent> {
        let echo = self.timestamps.then(|| self.ms());
        self.hear(una, sack, echo, false);
        self.send()
    }

    /// The timestamp of now.
    fn ms(&self) -> u32 {
        u32::try_from(self.now.as_micros() / 1_000).expect("the clock began a moment ago")
    }

    /// Lets the time pass until something is sent; returns the milliseconds and what was sent.
    fn wait(&mut self) -> (u64, Vec<Sent>) {
        let begin = self.now;
        loop {
            let at = self.flight.deadline().expect("a timer runs");
            self.now = self.now.max(at);
            let window_end = self.flight.snd_una() + self.window;
            assert_ne!(self.flight.handle_timer(self.now, window_end), TimerOutcome::TimedOut);
            self.flight.check();
            let sent = self.send();
            if !sent.is_empty() {
                let ms = self.now.since(begin).as_millis();
                return (u64::try_from(ms).expect("not so long"), sent);
            }
        }
    }

    fn cwnd(&self) -> u32 {
        self.flight.status().cwnd
    }
}

/// Whole new segments.
fn new(segments: core::ops::Range<u32>) -> Vec<Sent> {
    segments.map(|i| (i * MSS, MSS, Kind::New)).collect()
}

#[test]
fn rfc6928_2_ten_segments_leave_at_once() {
    let mut bench = Bench::sack();
    assert_eq!(bench.push(20), new(0..10));
    assert_eq!(bench.next(), SendStep::Blocked);
}

#[test]
fn rfc5681_3_1_an_acknowledgement_lets_two_segments_out_for_one() {
    let mut bench = Bench::reno();
    bench.push(20);
    bench.pass_ms(RTT_MS);
    assert_eq!(bench.ack(2_000), new(10..14));
    assert_eq!(bench.cwnd(), 12_000);
}

#[test]
fn rfc7661_3_a_window_that_is_not_full_does_not_grow() {
    let mut bench = Bench::sack();
    for i in 0..20 {
        bench.push(2);
        bench.pass_ms(RTT_MS);
        bench.ack((i + 1) * 2 * MSS);
    }
    assert_eq!(bench.cwnd(), 10_000);
}

#[test]
fn rfc5681_4_1_after_a_pause_the_initial_window_is_used() {
    let mut bench = Bench::sack();
    for i in 1..=4 {
        bench.push(if i == 1 { 10 } else { 40 });
        bench.pass_ms(RTT_MS);
        while !bench.flight.is_empty() {
            let una = bench.flight.snd_nxt().0;
            bench.ack(una);
            bench.pass_ms(20);
        }
    }
    assert!(bench.cwnd() > 30_000);
    bench.pass_ms(1_000);
    bench.push(40);
    assert_eq!(bench.cwnd(), 10_000);
}

#[test]
fn the_window_survives_between_two_flights() {
    let mut bench = Bench::sack();
    bench.push(20);
    bench.pass_ms(RTT_MS);
    bench.ack(10_000);
    bench.ack(20_000);
    let (cwnd, saved) = (bench.cwnd(), bench.flight.end());
    assert!(cwnd > 10_000);
    bench.flight.begin(saved, path(true), SeqNumber(20_000));
    bench.push(1);
    assert_eq!(bench.cwnd(), cwnd);
}

#[test]
fn rfc9293_3_8_6_2_1_no_silly_segments() {
    let mut bench = Bench::sack();
    bench.window = 3_500;
    assert_eq!(bench.push(10), new(0..3), "the rest of the window is less than a segment");
    // With nothing in flight even a little moves, after a while.
    bench.pass_ms(RTT_MS);
    bench.hear(3_000, &[], None, false);
    bench.window = 300;
    assert_eq!(bench.send(), []);
    bench.has_waited = true;
    assert_eq!(bench.send(), [(3_000, 300, Kind::New)]);
}

#[test]
fn a_frame_is_cut_from_whole_segments() {
    let mut bench = Bench::sack();
    bench.cut_bytes_max = 4_500;
    bench.new_bytes = 9_300;
    let sent = bench.send();
    assert_eq!(sent, [(0, 4_000, Kind::New), (4_000, 4_000, Kind::New), (8_000, 1_300, Kind::New)]);
}

#[test]
fn rfc5681_3_2_the_third_duplicate_sends_again_and_not_the_second() {
    let mut bench = Bench::reno();
    bench.push(10);
    bench.new_bytes = 5_000;
    bench.pass_ms(RTT_MS);
    // RFC 3042: the first two let new segments out.
    assert_eq!(bench.ack(0), new(10..11));
    assert_eq!(bench.ack(0), new(11..12));
    assert_eq!(bench.ack(0), [(0, 1_000, Kind::Fast)]);
    assert_eq!(bench.flight.status().ssthresh, 5_000);
}

#[test]
fn rfc6582_3_2_a_partial_acknowledgement_sends_the_next_hole() {
    let mut bench = Bench::reno();
    bench.push(10);
    bench.pass_ms(RTT_MS);
    // Segments 0 and 4 are lost; eight arrive.
    let mut sent = Vec::new();
    for _ in 0..8 {
        sent.extend(bench.ack(0));
    }
    assert_eq!(sent, [(0, 1_000, Kind::Fast)]);
    bench.pass_ms(RTT_MS);
    assert_eq!(bench.ack(4_000), [(4_000, 1_000, Kind::Fast)]);
    bench.pass_ms(RTT_MS);
    assert_eq!(bench.ack(10_000), []);
    assert_eq!((bench.cwnd(), bench.flight.is_empty()), (5_000, true));
}

#[test]
fn rfc6582_4_duplicates_of_an_old_loss_begin_no_recovery() {
    let mut bench = Bench::reno();
    bench.push(10);
    let (_, sent) = bench.wait();
    assert_eq!(sent, [(0, 1_000, Kind::Timeout)]);
    bench.pass_ms(RTT_MS);
    bench.ack(10_000);
    bench.push(5);
    let ssthresh = bench.flight.status().ssthresh;
    for _ in 0..5 {
        assert_eq!(bench.ack(10_000), []);
    }
    assert_eq!(bench.flight.status().ssthresh, ssthresh);
}

#[test]
fn rfc8985_6_2_what_is_older_than_three_delivered_segments_is_lost_at_once() {
    let mut bench = Bench::sack();
    bench.push(10);
    bench.pass_ms(RTT_MS);
    assert_eq!(bench.ack_sack(0, &[(1_000, 2_000)]), []);
    assert_eq!(bench.ack_sack(0, &[(1_000, 3_000)]), []);
    assert_eq!(bench.ack_sack(0, &[(1_000, 4_000)]), [(0, 1_000, Kind::Fast)]);
}

#[test]
fn rfc8985_6_3_fewer_are_judged_by_the_reordering_timer() {
    let mut bench = Bench::sack();
    bench.push(3);
    bench.pass_ms(RTT_MS);
    assert_eq!(bench.ack_sack(0, &[(2_000, 3_000)]), []);
    // A quarter of the least round trip.
    let (ms, sent) = bench.wait();
    assert_eq!((ms, sent), (RTT_MS / 4, [(0, 1_000, Kind::Fast)].into()));
    // RFC 6937: the second one follows when the first has arrived.
    assert_eq!(bench.flight.status().pipe, 1_000);
    bench.pass_ms(RTT_MS);
    assert_eq!(bench.ack_sack(1_000, &[(2_000, 3_000)]), [(1_000, 1_000, Kind::Fast)]);
}

#[test]
fn rfc8985_6_2_reordering_is_learned() {
    let mut bench = Bench::sack();
    bench.push(10);
    bench.pass_ms(RTT_MS);
    bench.ack_sack(0, &[(1_000, 3_000)]);
    bench.ack(3_000);
    // The first segment came late: the next gap has time, although many segments came after it.
    assert_eq!(bench.ack_sack(3_000, &[(4_000, 9_000)]), []);
    let (ms, sent) = bench.wait();
    assert_eq!((ms, sent), (RTT_MS / 4, [(3_000, 1_000, Kind::Fast)].into()));
}

#[test]
fn rfc8985_6_2_a_lost_retransmission_is_sent_again_without_a_timeout() {
    let mut bench = Bench::sack();
    bench.push(10);
    bench.new_bytes = 20_000;
    bench.pass_ms(RTT_MS);
    assert_eq!(bench.ack_sack(0, &[(1_000, 4_000)])[0], (0, 1_000, Kind::Fast));
    bench.pass_ms(10);
    bench.ack_sack(0, &[(1_000, 9_000)]);
    let last = bench.ack_sack(0, &[(1_000, 10_000)]).last().copied();
    let behind = last.map_or(10_000, |(from, ..)| from);
    assert!(behind >= 10_000, "new segments leave behind the retransmission");
    bench.pass_ms(RTT_MS);
    // They arrive, and the retransmission does not.
    let sent = bench.ack_sack(0, &[(1_000, behind + MSS)]);
    assert_eq!(sent.first(), Some(&(0, 1_000, Kind::Fast)));
}

#[test]
fn rfc8985_7_2_a_tail_is_probed_after_two_round_trips() {
    let mut bench = Bench::sack();
    bench.push(4);
    let (ms, sent) = bench.wait();
    assert_eq!((ms, sent), (2 * RTT_MS + 2, [(3_000, 1_000, Kind::Probe)].into()));
    // The answer shows that the three in front were lost.
    bench.pass_ms(RTT_MS);
    let sent = bench.ack_sack(0, &[(3_000, 4_000)]);
    assert_eq!(sent.first(), Some(&(0, 1_000, Kind::Fast)));
}

#[test]
fn rfc8985_7_3_new_data_is_the_better_probe() {
    let mut bench = Bench::sack();
    bench.push(10);
    bench.new_bytes = 3_000;
    assert_eq!(bench.send(), [], "the window is full");
    assert_eq!(bench.wait().1, [(10_000, 1_000, Kind::Probe)]);
}

#[test]
fn rfc8985_7_4_2_a_probe_that_repaired_a_loss_shrinks_the_window_and_another_does_not() {
    for (dsack, cwnd) in [(None, 7_000), (Some((9_000, 10_000)), 10_000)] {
        let mut bench = Bench::sack();
        bench.push(10);
        bench.wait();
        bench.pass_ms(RTT_MS);
        bench.ack_sack(9_000, &[]);
        bench.new_bytes = 1_000;
        bench.send();
        bench.ack_sack(10_000, dsack.as_slice());
        bench.pass_ms(RTT_MS);
        bench.ack(11_000);
        let status = bench.flight.status();
        assert_eq!(status.cwnd.min(10_000), cwnd, "{dsack:?}: {status:?}");
    }
}

#[test]
fn rfc6298_5_the_timeout_sends_the_first_and_doubles() {
    let mut bench = Bench::reno();
    bench.push(10);
    let mut last = 0;
    for i in 0..5 {
        let (ms, sent) = bench.wait();
        assert_eq!(sent, [(0, 1_000, Kind::Timeout)]);
        assert!(i == 0 || ms == 2 * last, "{ms} after {last}");
        (last, _) = (ms, assert_eq!(bench.cwnd(), MSS));
    }
    // RFC 5681, 3.1: the threshold is half of what was in flight at the first of them.
    assert_eq!(bench.flight.status().ssthresh, 5_000);
    // Slow start from one segment; all is sent again.
    bench.pass_ms(RTT_MS);
    assert_eq!(bench.ack(1_000), [(1_000, 1_000, Kind::Timeout), (2_000, 1_000, Kind::Timeout)]);
}

#[test]
fn rfc9293_3_8_3_a_peer_that_is_silent_for_100_s_is_given_up() {
    let mut bench = Bench::sack();
    bench.push(1);
    let begin = bench.now;
    loop {
        bench.now = bench.flight.deadline().expect("a timer runs");
        let window_end = bench.flight.snd_una() + bench.window;
        if bench.flight.handle_timer(bench.now, window_end) == TimerOutcome::TimedOut {
            break;
        }
        bench.send();
    }
    let s = bench.now.since(begin).as_secs();
    assert!((100..200).contains(&s), "{s}");
}

#[test]
fn a_full_interface_is_no_loss() {
    let mut bench = Bench::reno();
    bench.push(10);
    for _ in 0..20 {
        bench.now = bench.flight.deadline().expect("a timer runs");
        let window_end = bench.flight.snd_una() + bench.window;
        assert_eq!(bench.flight.handle_timer(bench.now, window_end), TimerOutcome::Room);
    }
    assert_eq!(bench.send(), [(0, 1_000, Kind::Timeout)]);
    let (ms, _) = bench.wait();
    assert_eq!(ms, 600, "doubled once");
}

#[test]
fn rfc3522_3_2_a_late_acknowledgement_undoes_a_timeout() {
    for (is_late, windows) in [(true, 10_000..=11_000), (false, 2_000..=2_000)] {
        let mut bench = Bench::sack();
        bench.timestamps = true;
        bench.push(10);
        let sent_ms = bench.ms();
        // The probe, then the timeout.
        bench.wait();
        let (_, sent) = bench.wait();
        assert_eq!(sent, [(0, 1_000, Kind::Timeout)]);
        bench.pass_ms(10);
        bench.hear(1_000, &[], Some(if is_late { sent_ms } else { bench.ms() }), false);
        assert!(windows.contains(&bench.cwnd()), "{}", bench.cwnd());
        let sent = bench.send();
        assert_eq!(sent.is_empty(), is_late, "{sent:?}");
    }
}

#[test]
fn rfc3708_2_a_retransmission_that_came_twice_undoes_a_recovery() {
    let mut bench = Bench::sack();
    bench.push(10);
    bench.pass_ms(RTT_MS);
    assert_eq!(bench.ack_sack(0, &[(1_000, 4_000)]), [(0, 1_000, Kind::Fast)]);
    assert_eq!(bench.flight.status().ssthresh, 7_000);
    // It was late only.
    bench.pass_ms(10);
    bench.ack(4_000);
    bench.pass_ms(RTT_MS);
    bench.ack_sack(10_000, &[(0, 1_000)]);
    let status = bench.flight.status();
    assert!(status.cwnd >= 10_000 && status.ssthresh == u32::MAX, "{status:?}");
}

#[test]
fn rfc3708_2_what_the_network_has_duplicated_undoes_no_recovery() {
    let mut bench = Bench::sack();
    bench.push(10);
    bench.pass_ms(RTT_MS);
    assert_eq!(bench.ack_sack(0, &[(1_000, 10_000)]), [(0, 1_000, Kind::Fast)]);
    bench.pass_ms(RTT_MS);
    bench.ack(10_000);
    bench.push(2);
    bench.ack(11_000);
    bench.ack_sack(11_000, &[(10_000, 11_000)]);
    assert_eq!(bench.flight.status().ssthresh, 7_000);
}

#[test]
fn rfc5682_3_1_originals_that_arrive_after_a_timeout_undo_it() {
    let mut bench = Bench::sack();
    bench.push(10);
    bench.wait();
    assert_eq!(bench.wait().1, [(0, 1_000, Kind::Timeout)]);
    bench.pass_ms(10);
    assert_eq!(bench.ack(2_000), []);
    assert!(bench.cwnd() >= 10_000);
    assert_eq!(bench.flight.status().pipe, 8_000, "nothing is lost any more");
}

#[test]
fn rfc3168_6_1_2_congestion_is_heeded_once_in_a_window() {
    let mut bench = Bench::sack();
    bench.push(30);
    bench.pass_ms(RTT_MS);
    bench.hear(1_000, &[], None, true);
    assert_eq!(bench.flight.status().ssthresh, 7_000);
    let mut carried = Vec::new();
    for una in 2..=10 {
        bench.pass_ms(20);
        while let SendStep::Send { from, bytes, kind, cwr } = bench.next() {
            carried.push(cwr);
            bench.flight.sent(bench.now, from, bytes, kind);
        }
        bench.hear(una * MSS, &[], None, true);
    }
    assert_eq!(bench.flight.status().ssthresh, 7_000);
    assert!(carried[0] && carried[1..].iter().all(|cwr| !cwr), "{carried:?}");
    assert_eq!(bench.cwnd(), 7_000);
    // The next window is another one.
    bench.hear(bench.flight.snd_nxt().0, &[], None, true);
    assert!(bench.flight.status().ssthresh < 7_000);
}

#[test]
fn rfc2018_8_what_was_acknowledged_selectively_and_dropped_is_sent_again() {
    let mut bench = Bench::sack();
    bench.push(10);
    bench.pass_ms(RTT_MS);
    bench.ack_sack(0, &[(1_000, 10_000)]);
    // The peer receives the first segment and has none of the others any more.
    bench.pass_ms(RTT_MS);
    assert_eq!(bench.ack(1_000), []);
    let (ms, sent) = bench.wait();
    assert!(ms <= 60, "{ms}");
    assert_eq!(sent, [(1_000, 1_000, Kind::Timeout)]);
    for una in [2, 4, 8, 10] {
        bench.pass_ms(RTT_MS);
        bench.ack(una * MSS);
    }
    assert!(bench.flight.is_empty());
}

#[test]
fn rfc3465_1_dividing_acknowledgements_gains_nothing() {
    let windows: Vec<u32> = [1, 10, 1_000]
        .into_iter()
        .map(|parts| {
            let mut bench = Bench::sack();
            bench.push(100);
            bench.pass_ms(RTT_MS);
            for part in 1..=parts {
                bench.hear(10_000 * part / parts, &[], None, false);
            }
            bench.cwnd()
        })
        .collect();
    assert_eq!(windows, [20_000; 3]);
}

#[test]
fn an_acknowledgement_of_what_was_not_sent_changes_nothing() {
    let mut bench = Bench::sack();
    bench.push(10);
    for una in [10_001, 1 << 20, 1 << 31, u32::MAX] {
        assert_eq!(bench.hear(una, &[], None, false), Acked::default());
    }
    // Blocks after SND.NXT, in front of SND.UNA, and turned around.
    for block in
        [(9_000, 11_000), (1 << 30, 1 << 31), (5_000, 5_000), (6_000, 5_000), (0, u32::MAX)]
    {
        bench.hear(0, &[(1 << 20, 1 << 21), block], None, false);
        assert_eq!(bench.flight.status().pipe, 10_000, "{block:?}");
    }
}

#[test]
fn with_nothing_in_flight_a_closed_window_is_the_connections() {
    let mut bench = Bench::sack();
    bench.window = 0;
    assert_eq!(bench.push(3), []);
    assert_eq!(bench.flight.deadline(), None);
}

#[test]
fn a_window_that_closes_over_bytes_in_flight_is_no_congestion() {
    let mut bench = Bench::sack();
    bench.push(10);
    bench.pass_ms(RTT_MS);
    bench.hear(4_000, &[], None, false);
    bench.window = 0;
    for _ in 0..4 {
        let (_, sent) = bench.wait();
        assert_eq!(sent, [(4_000, 1_000, Kind::Probe)]);
        bench.hear(4_000, &[], None, false);
    }
    bench.window = 20_000;
    let sent = bench.send();
    assert_eq!(sent.iter().map(|sent| sent.1).sum::<u32>(), 6_000);
    assert!(bench.cwnd() >= 10_000);
}

#[test]
fn rfc9293_3_8_6_what_a_smaller_window_takes_of_a_frame_is_sent_again_at_once() {
    let mut bench = Bench::reno();
    bench.cut_bytes_max = 8_000;
    bench.push(10);
    bench.window = 3_500;
    assert_eq!(bench.wait().1, [(0, 1_000, Kind::Timeout)]);
    bench.pass_ms(RTT_MS);
    assert_eq!(bench.ack(1_000), [(1_000, 2_000, Kind::Timeout)]);
    bench.pass_ms(RTT_MS);
    // The window would let four segments out, and the peer's takes three whole ones.
    assert_eq!(bench.ack(3_000), [(3_000, 3_000, Kind::Timeout)]);
}

#[test]
fn rfc1191_6_5_a_smaller_path_sends_all_again_in_smaller_segments() {
    let mut bench = Bench::sack();
    bench.push(4);
    bench.flight.shrink_mss(600);
    let sent = bench.send();
    assert!(sent.iter().all(|&(_, bytes, kind)| bytes <= 600 && kind == Kind::Fast), "{sent:?}");
    assert_eq!(sent.iter().map(|sent| sent.1).sum::<u32>(), 4_000);
    assert_eq!(bench.cwnd(), 10_000);
}

#[test]
fn pacing_spreads_a_window_and_its_moment_is_a_deadline() {
    let mut bench = Bench::sack();
    bench.push(10);
    bench.new_bytes = 100_000;
    bench.pass_ms(RTT_MS);
    bench.hear(9_000, &[], None, false);
    while let SendStep::Send { from, bytes, kind, .. } = bench.next() {
        bench.flight.sent(bench.now, from, bytes, kind);
    }
    let SendStep::WaitUntil(at) = bench.next() else { panic!("all leaves at once") };
    assert_eq!(bench.flight.deadline(), Some(at));
    // Twice the window of 19 segments in a round trip is one in 2.63 ms; a first one may come 2 ms late.
    assert_eq!(bench.flight.status().pipe, 2_000);
    assert_eq!(at.since(bench.now), Duration::from_micros(631));
}
