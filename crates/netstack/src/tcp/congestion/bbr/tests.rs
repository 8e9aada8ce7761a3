//! The states and filters of the draft, by names of its sections.

use super::*;

const MSS: u32 = 1_000;
const RTT_US: u32 = 20_000;
/// Bytes a second; the bandwidth-delay product is 200,000 bytes.
const BW: u64 = 10_000_000;
const BDP: u32 = 200_000;

/// A flow whose acknowledgements come once in a round trip.
struct Flow {
    bbr: Bbr,
    now: Time,
    delivered: u64,
    cwnd: u32,
}

/// What an acknowledgement tells, but for the time.
#[derive(Clone, Copy)]
struct Told {
    rate: u64,
    inflight: u32,
    lost: u32,
    rtt_us: u32,
    is_app_limited: bool,
    is_cwnd_limited: bool,
}

const TOLD: Told = Told {
    rate: BW,
    inflight: BDP,
    lost: 0,
    rtt_us: RTT_US,
    is_app_limited: false,
    is_cwnd_limited: false,
};

impl Flow {
    fn new() -> Self {
        let cwnd = initial_window(MSS);
        Self { bbr: Bbr::new(), now: Time::from_nanos(1_000_000_000), delivered: 0, cwnd }
    }

    /// A flow in `ProbeBW_CRUISE` that knows the path.
    fn cruising() -> Self {
        let mut flow = Self::new();
        for rate in [BW / 8, BW / 4, BW / 2, BW, BW, BW, BW] {
            flow.hear(Told { rate, ..TOLD });
        }
        flow.hear(TOLD);
        flow.hear(Told { inflight: BDP / 2, ..TOLD });
        assert_eq!(flow.bbr.state, BbrState::Cruise);
        flow
    }

    fn hear(&mut self, told: Told) {
        self.now = later(self.now, u64::from(told.rtt_us));
        let prior_delivered = self.delivered;
        let bytes = u32::try_from(told.rate * u64::from(told.rtt_us) / 1_000_000).unwrap();
        self.delivered += u64::from(bytes);
        let sample = Sample {
            rate: told.rate,
            delivered: bytes,
            prior_delivered,
            tx_in_flight: told.inflight,
            lost: told.lost,
            is_app_limited: told.is_app_limited,
        };
        let signals = Signals {
            now: self.now,
            sample: Some(sample),
            delivered: self.delivered,
            newly_acked: bytes,
            has_loss: told.lost > 0,
            rtt_us: told.rtt_us,
            inflight: told.inflight,
            is_cwnd_limited: told.is_cwnd_limited,
        };
        self.cwnd = self.bbr.handle_ack(&signals, self.cwnd, MSS);
    }

    /// Hears the same until the state is this one.
    fn hear_until(&mut self, state: BbrState, told: Told) {
        for _ in 0..1_000 {
            if self.bbr.state == state {
                return;
            }
            self.hear(told);
        }
        panic!("never {state:?}");
    }

    /// Hears the same until the state is another one; returns how often.
    fn hear_until_change(&mut self, told: Told) -> u32 {
        let before = self.bbr.state;
        for n in 1..1_000 {
            self.hear(told);
            if self.bbr.state != before {
                return n;
            }
        }
        panic!("{before:?} for ever");
    }
}

#[test]
fn startup_doubles_the_rate_and_ends_after_three_rounds_without_growth() {
    let mut flow = Flow::new();
    for rate in [BW / 8, BW / 4, BW / 2, BW] {
        flow.hear(Told { rate, ..TOLD });
        assert_eq!(flow.bbr.state, BbrState::Startup);
        assert_eq!(flow.bbr.pacing_rate(flow.cwnd, RTT_US), rate * 277 * 99 / 10_000);
    }
    assert_eq!(flow.hear_until_change(Told { inflight: 2 * BDP, ..TOLD }), 3);
    assert_eq!(flow.bbr.state, BbrState::Drain);
    assert_eq!(flow.bbr.pacing_rate(flow.cwnd, RTT_US), BW * 99 / 200);
    flow.hear(Told { inflight: BDP + MSS, ..TOLD });
    assert_eq!(flow.bbr.state, BbrState::Drain);
    // The queue is empty, and so `ProbeBW_DOWN` has nothing to do.
    flow.hear(TOLD);
    assert_eq!(flow.bbr.state, BbrState::Cruise);
}

#[test]
fn startup_goes_on_while_the_application_is_the_limit() {
    let mut flow = Flow::new();
    for _ in 0..100 {
        flow.hear(Told { is_app_limited: true, ..TOLD });
    }
    assert_eq!((flow.bbr.state, flow.bbr.max_bw()), (BbrState::Startup, BW));
}

#[test]
fn startup_ends_with_high_loss() {
    let mut flow = Flow::new();
    flow.hear(Told { rate: BW / 2, ..TOLD });
    // Six acknowledgements with losses in one round trip.
    flow.bbr.loss_count = STARTUP_FULL_LOSS_COUNT;
    flow.hear(Told { lost: BDP / 5, inflight: 2 * BDP, ..TOLD });
    assert_eq!(flow.bbr.state, BbrState::Drain);
    assert_eq!(flow.bbr.inflight_hi, BDP);
}

#[test]
fn probe_bw_cycles() {
    let mut flow = Flow::cruising();
    assert_eq!(flow.bbr.pacing_rate(flow.cwnd, RTT_US), BW * 99 / 100);
    // 63 round trips at most, as it is 1.3 s here.
    let rounds = flow.hear_until_change(TOLD);
    assert!((55..=63).contains(&rounds), "{rounds}");
    assert_eq!(flow.bbr.state, BbrState::Refill);
    assert_eq!(flow.hear_until_change(TOLD), 1);
    assert_eq!(flow.bbr.state, BbrState::Up);
    assert_eq!(flow.bbr.pacing_rate(flow.cwnd, RTT_US), BW * 125 * 99 / 10_000);
    assert_eq!(flow.hear_until_change(TOLD), 3);
    assert_eq!(flow.bbr.state, BbrState::Down);
    assert_eq!(flow.bbr.pacing_rate(flow.cwnd, RTT_US), BW * 90 * 99 / 10_000);
    assert_eq!(flow.hear_until_change(Told { inflight: BDP / 2, ..TOLD }), 1);
    assert_eq!(flow.bbr.state, BbrState::Cruise);
}

#[test]
fn the_bandwidth_is_the_greatest_of_two_cycles() {
    let mut flow = Flow::cruising();
    for (rate, during, after) in [(2 * BW, 2 * BW, 2 * BW), (BW, 2 * BW, BW)] {
        flow.hear_until(BbrState::Up, Told { inflight: BDP / 2, ..TOLD });
        while flow.bbr.state == BbrState::Up {
            flow.hear(Told { rate, ..TOLD });
            assert_eq!(flow.bbr.max_bw(), during);
        }
        // The samples of the probe end one round trip after it.
        flow.hear(TOLD);
        assert_eq!(flow.bbr.max_bw(), after);
    }
}

#[test]
fn a_loss_bounds_the_rate_until_the_next_refill() {
    let mut flow = Flow::cruising();
    // Each second round trip is one of losses: the first one still knows the rate before.
    for _ in 0..6 {
        flow.hear(Told { rate: BW / 2, lost: MSS, ..TOLD });
    }
    assert!(flow.bbr.bw() < BW && flow.bbr.bw() >= BW / 2, "{}", flow.bbr.bw());
    assert!(flow.cwnd < 2 * BDP, "{}", flow.cwnd);
    flow.hear_until_change(Told { rate: BW / 2, ..TOLD });
    assert_eq!((flow.bbr.state, flow.bbr.bw()), (BbrState::Refill, BW));
}

#[test]
fn a_probe_with_losses_sets_the_long_term_bound_and_one_without_raises_it() {
    let mut flow = Flow::cruising();
    flow.hear_until(BbrState::Up, TOLD);
    flow.hear(Told { inflight: 300_000, lost: 30_000, ..TOLD });
    assert_eq!((flow.bbr.state, flow.bbr.inflight_hi), (BbrState::Down, 300_000));
    flow.hear(Told { inflight: BDP / 2, ..TOLD });
    assert!(flow.cwnd <= 300_000 / 100 * 85, "headroom in cruise: {}", flow.cwnd);
    flow.hear_until(BbrState::Up, TOLD);
    for _ in 0..5 {
        flow.hear(Told { is_cwnd_limited: true, ..TOLD });
    }
    assert!(flow.bbr.inflight_hi > 300_000, "{}", flow.bbr.inflight_hi);
}

#[test]
fn probe_rtt_comes_after_five_seconds_and_lasts_200_ms() {
    let mut flow = Flow::cruising();
    let start = flow.now;
    let queued = Told { rtt_us: RTT_US + 1_000, ..TOLD };
    flow.hear_until(BbrState::ProbeRtt, queued);
    let waited = flow.now.since(start).as_millis();
    assert!((4_700..5_200).contains(&waited), "{waited} ms");
    flow.hear(queued);
    assert_eq!(flow.cwnd, BDP / 2);
    let start = flow.now;
    flow.hear_until_change(Told { inflight: BDP / 2, ..TOLD });
    let lasted = flow.now.since(start).as_millis();
    assert!((200..280).contains(&lasted), "{lasted} ms");
    assert_eq!((flow.bbr.state, flow.bbr.min_rtt_us), (BbrState::Cruise, RTT_US));
    assert!(flow.cwnd > BDP, "{}", flow.cwnd);
}

#[test]
fn aggregated_acknowledgements_widen_the_window() {
    let mut flow = Flow::cruising();
    let before = flow.cwnd;
    // All of four round trips together.
    for _ in 0..5 {
        flow.now = later(flow.now, 3 * u64::from(RTT_US));
        for _ in 0..4 {
            let now = flow.now;
            flow.hear(TOLD);
            flow.now = now;
        }
    }
    assert!(flow.cwnd > before, "{} was {before}", flow.cwnd);
}

#[test]
fn the_bandwidth_survives_an_idle_time() {
    let flow = Flow::cruising();
    let bbr = Bbr::load(flow.bbr.save(), RTT_US, MSS);
    assert!(bbr.max_bw() - BW <= SAVED_BW_UNIT, "{}", bbr.max_bw());
    assert_eq!((bbr.state, bbr.full_bw_reached, bbr.min_rtt_us), (BbrState::Refill, true, RTT_US));
    let mut young = Flow::new();
    young.hear(TOLD);
    let bbr = Bbr::load(young.bbr.save(), RTT_US, MSS);
    assert_eq!((bbr.state, bbr.full_bw_reached), (BbrState::Startup, false));
    assert!(bbr.pacing_rate(0, RTT_US) > BW * 2);
    // A very short response has measured too little: the initial window leads.
    let mut young = Flow::new();
    young.hear(Told { rate: 1_000, ..TOLD });
    let bbr = Bbr::load(young.bbr.save(), RTT_US, MSS);
    assert_eq!(bbr.pacing_rate(0, RTT_US), 277 * 5_000);
}

#[test]
fn window_and_rate_are_never_zero() {
    let mut seed = 1_u64;
    let mut below = |n: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % n
    };
    for _ in 0..200 {
        let mut flow = Flow::new();
        for _ in 0..300 {
            let rate = [0, 1, 1_000, BW, 100 * BW][usize::try_from(below(5)).unwrap()];
            let told = Told {
                rate,
                inflight: u32::try_from(below(1 << 20)).unwrap(),
                lost: u32::try_from(below(4) / 3 * below(100_000)).unwrap(),
                rtt_us: u32::try_from(below(1_000_000)).unwrap(),
                is_app_limited: below(3) == 0,
                is_cwnd_limited: below(2) == 0,
            };
            flow.hear(told);
            assert!(flow.cwnd >= MIN_PIPE_SEGMENTS * MSS, "{}", flow.cwnd);
            assert!(flow.bbr.pacing_rate(flow.cwnd, told.rtt_us) > 0);
            if below(50) == 0 {
                flow.bbr = Bbr::load(flow.bbr.save(), told.rtt_us, MSS);
            }
            if below(50) == 0 {
                flow.bbr.save_cwnd(flow.cwnd);
                flow.cwnd = MSS;
            }
        }
    }
}
