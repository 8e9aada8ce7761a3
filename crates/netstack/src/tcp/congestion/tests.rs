//! The rules of RFC 5681, 6928 and 9406, by section.

use super::*;

const MSS: u32 = 1_000;

fn congestion(algorithm: Algorithm, cwnd: u32, ssthresh: u32) -> Congestion {
    Congestion::new(algorithm, cwnd, ssthresh, MSS, SeqNumber(0), 0)
}

fn growth(ms: u64, bytes: u32, una: u32, snd_nxt: u32, rtt_us: u32) -> Growth {
    Growth {
        now: Time::from_nanos(ms * 1_000_000),
        bytes,
        una: SeqNumber(una),
        snd_nxt: SeqNumber(snd_nxt),
        rtt_us,
        srtt_us: rtt_us,
    }
}

#[test]
fn rfc6928_2_the_initial_window() {
    for (mss, expected) in
        [(536, 5_360), (1_448, 14_480), (1_460, 14_600), (8_960, 17_920), (1_500, 14_600)]
    {
        assert_eq!(initial_window(mss), expected, "{mss}");
    }
}

#[test]
fn rfc5681_3_1_slow_start_and_avoidance_count_bytes() {
    for parts in [1, 4, 100] {
        // A window that is acknowledged in few or in many parts grows by the same.
        let mut slow = congestion(Algorithm::NewReno, 10 * MSS, 100 * MSS);
        let mut avoiding = congestion(Algorithm::NewReno, 10 * MSS, 10 * MSS);
        for _ in 0..parts {
            slow.grow(&growth(0, 10 * MSS / parts, 0, 0, 20_000));
            avoiding.grow(&growth(0, 10 * MSS / parts, 0, 0, 20_000));
        }
        assert_eq!(slow.cwnd(), 20 * MSS, "{parts} parts");
        assert!((10_900..=11_000).contains(&avoiding.cwnd()), "{parts}: {}", avoiding.cwnd());
    }
}

#[test]
fn rfc5681_3_1_the_threshold_after_a_loss() {
    for (algorithm, flight, expected) in [
        (Algorithm::NewReno, 100 * MSS, 50 * MSS),
        (Algorithm::Cubic, 100 * MSS, 70 * MSS),
        (Algorithm::NewReno, 3 * MSS, 2 * MSS),
        (Algorithm::Cubic, MSS, 2 * MSS),
    ] {
        let mut congestion = congestion(algorithm, 100 * MSS, SSTHRESH_MAX);
        congestion.reduce(flight);
        assert_eq!(congestion.ssthresh(), expected);
    }
}

#[test]
fn rfc5681_4_1_an_idle_connection_starts_with_the_initial_window() {
    let mut congestion = congestion(Algorithm::Cubic, 100 * MSS, 40 * MSS);
    congestion.restart(SeqNumber(0));
    assert_eq!((congestion.cwnd(), congestion.ssthresh()), (10 * MSS, 75 * MSS));
}

#[test]
fn rfc4015_3_2_a_reduction_is_undone() {
    let mut congestion = congestion(Algorithm::Cubic, 100 * MSS, SSTHRESH_MAX);
    let before = congestion;
    congestion.reduce(100 * MSS);
    congestion.set_cwnd(MSS);
    congestion.undo(&before);
    assert_eq!((congestion.cwnd(), congestion.ssthresh()), (100 * MSS, SSTHRESH_MAX));
}

/// Sends a round of ten acknowledgements with the given round trip.
fn round(congestion: &mut Congestion, seq: &mut u32, rtt_us: u32) {
    for _ in 0..10 {
        *seq += 1_000;
        congestion.grow(&growth(0, 1_000, *seq, *seq + 10_000, rtt_us));
    }
}

#[test]
fn rfc9406_slow_start_ends_five_rounds_after_the_round_trip_has_grown() {
    let (mut congestion, mut seq) = (congestion(Algorithm::Cubic, 10 * MSS, SSTHRESH_MAX), 0);
    for _ in 0..4 {
        round(&mut congestion, &mut seq, 40_000);
    }
    assert_eq!(congestion.cwnd(), 50 * MSS);
    for _ in 0..5 {
        round(&mut congestion, &mut seq, 46_000);
        assert!(congestion.is_slow_start());
    }
    // A quarter of the growth while it is watched.
    assert!((62 * MSS..68 * MSS).contains(&congestion.cwnd()), "{}", congestion.cwnd());
    round(&mut congestion, &mut seq, 46_000);
    round(&mut congestion, &mut seq, 46_000);
    assert!(!congestion.is_slow_start());
}

#[test]
fn rfc9406_slow_start_goes_on_if_the_round_trip_falls_again() {
    let (mut congestion, mut seq) = (congestion(Algorithm::Cubic, 10 * MSS, SSTHRESH_MAX), 0);
    for rtt_us in [40_000, 40_000, 46_000, 40_000, 40_000, 40_000, 40_000, 40_000, 40_000, 40_000] {
        round(&mut congestion, &mut seq, rtt_us);
    }
    assert!(congestion.is_slow_start() && congestion.ssthresh() == SSTHRESH_MAX);
    assert!(congestion.cwnd() > 90 * MSS);
}
