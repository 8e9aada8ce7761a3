//! BBRv3 (draft-ietf-ccwg-bbr-05): a model of the path, with its bandwidth and its least round trip, sets the sending
//! rate and the bytes in flight. Loss bounds the model; BBR does not wait for loss to find the rate.
//!
//! ```text
//! Startup ──► Drain ──► Down ──► Cruise ──► Refill ──► Up ──► Down ...      from all but ProbeRtt: ──► ProbeRtt
//! ```
//!
//! Names are the draft's: `inflight_hi` and `_lo` are its `inflight_longterm` and `_shortterm`, `bw_lo` its
//! `bw_shortterm`. Integers only: bandwidths are bytes a second, volumes bytes, gains hundredths.
//!
//! Three things are simpler than in the draft. Losses are judged once per acknowledgement, with its sample, not once
//! per lost packet. There is no offload budget beyond two frames. The random wait before a probe is computed from the
//! state.
//!
//! BBR follows samples of the delivery rate: each record of a transmission holds the bytes that had been delivered
//! when it left. An idle connection keeps only the bandwidth, in the field of the slow start threshold. The next
//! response begins with a probe for more, at the known rate, in a window of one round trip. Retransmissions are paced,
//! too, because nothing else spreads them.
//!
//! In the simulated network (`tests/throughput.txt`, `tests/sharing.txt`) BBR is several times as fast as CUBIC where
//! frames are lost at random, and keeps queues short. Elsewhere it is a few percent slower. Several flows of BBR do
//! not share short queues fairly, and the paths are simulated, so CUBIC stays the default. Measurements over real
//! paths could change this default.
//!
//! Responses of 100 kB, one in a second over 20 Mbit/s and 40 ms, take 62, 66 and 92 ms (medians) with 0, 1 and 3 % of
//! loss. With CUBIC, which begins each response with the initial window, they take 129, 272 and 372 ms. A policer with
//! a deep bucket drops 2.5 % of BBR's frames, and 0.6 % of CUBIC's.

use super::initial_window;
use crate::tcp::clock::{elapsed_us, later};
use crate::tcp::recovery::delivery::Sample;
use crate::time::Time;

/// `BBR.StartupPacingGain`: 4 · ln 2.
const STARTUP_PACING_GAIN: u64 = 277;

/// `BBR.DrainPacingGain`.
const DRAIN_PACING_GAIN: u64 = 50;

/// `BBR.PacingMarginPercent`, and the gain that it leaves.
const PACING_MARGIN: u64 = 99;

/// `BBR.DefaultCwndGain`.
const CWND_GAIN: u64 = 200;

/// `BBR.LossThresh` as a fraction: 2 %.
const LOSS_THRESH_PARTS: u32 = 50;

/// `BBR.StartupFullLossCnt`: acknowledgements with losses in a round trip that end Startup.
const STARTUP_FULL_LOSS_COUNT: u8 = 6;

/// Round trips without growth by a quarter that mean a full pipe.
const FULL_BW_COUNT: u8 = 3;

/// `BBR.Beta` in hundredths.
const BETA: u64 = 70;

/// The share of the path that a flow uses when there are other flows, in hundredths: 100 less `BBR.Headroom`.
const WITHOUT_HEADROOM: u64 = 85;

/// `BBR.MinPipeCwnd` in segments.
const MIN_PIPE_SEGMENTS: u32 = 4;

/// `BBR.MinRTTFilterLen` in microseconds.
const MIN_RTT_FILTER_US: u32 = 10_000_000;

/// `BBR.ProbeRTTInterval` in microseconds.
const PROBE_RTT_INTERVAL_US: u32 = 5_000_000;

/// `BBR.ProbeRTTDuration` in microseconds.
const PROBE_RTT_DURATION_US: u64 = 200_000;

/// Round trips of half of the filter for aggregation: `BBR.ExtraAckedFilterLen` is 10.
const EXTRA_ACKED_ROUNDS: u8 = 5;

/// The minimum wait for a probe of the bandwidth, and the maximum random addition.
const PROBE_WAIT_US: [u32; 2] = [2_000_000, 1_000_000];

/// Round trips after which a probe always comes, because Reno's windows grow in this time.
const RENO_ROUNDS_MAX: u32 = 63;

/// The greatest number of doublings of the growth of `inflight_hi`.
const PROBE_UP_ROUNDS_MAX: u8 = 30;

/// The unit of the bandwidth in [`Bbr::save`], bytes a second.
const SAVED_BW_UNIT: u64 = 1_024;

/// The bit of [`Bbr::save`] for `full_bw_reached`.
const FULL_BW_REACHED: u32 = 1 << 31;

/// No bound.
const NONE: u32 = u32::MAX;

/// `BBR.state`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BbrState {
    /// The rate doubles in each round trip.
    Startup,
    /// The queue of Startup is drained.
    Drain,
    /// `ProbeBW_DOWN`: slower than the path, so that the queue empties and other flows find room.
    Down,
    /// `ProbeBW_CRUISE`: as fast as the path.
    Cruise,
    /// `ProbeBW_REFILL`: one round trip without the short term bounds.
    Refill,
    /// `ProbeBW_UP`: faster than the path.
    Up,
    /// Little is in flight, so that the round trip shows the path without a queue.
    ProbeRtt,
}

/// `BBR.ack_phase`: the phase in which the present samples were sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AckPhase {
    /// No phase.
    Init,
    /// Samples of a probe will come.
    ProbeStarting,
    /// Samples of a probe come.
    ProbeFeedback,
    /// The last samples of a probe come.
    ProbeStopping,
}

/// The model's view of an acknowledgement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Signals {
    /// The time.
    pub(crate) now: Time,
    /// The sample; none without delivered bytes of known time.
    pub(crate) sample: Option<Sample>,
    /// `C.delivered` in bytes.
    pub(crate) delivered: u64,
    /// `RS.newly_acked` in bytes.
    pub(crate) newly_acked: u32,
    /// True if the acknowledgement shows a loss or a congestion mark.
    pub(crate) has_loss: bool,
    /// The round trip in microseconds; 0 if none was measured.
    pub(crate) rtt_us: u32,
    /// `C.inflight` in bytes.
    pub(crate) inflight: u32,
    /// True if the sender filled its window in the last round trip.
    pub(crate) is_cwnd_limited: bool,
}

/// The model and the state of its probes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bbr {
    state: BbrState,
    pacing_rate: u64,
    round_count: u32,
    /// True if this acknowledgement begins a round trip.
    round_start: bool,
    next_round_delivered: u64,
    /// `BBR.max_bw_filter`: the greatest bandwidth of this cycle of probes and of the one before.
    max_bw: [u64; 2],
    bw_lo: Option<u64>,
    bw_latest: u64,
    inflight_latest: u32,
    inflight_lo: u32,
    inflight_hi: u32,
    loss_round_start: bool,
    loss_round_delivered: u64,
    /// Acknowledgements with losses in this round trip.
    loss_count: u8,
    full_bw: u64,
    full_bw_count: u8,
    full_bw_now: bool,
    full_bw_reached: bool,
    drain_start_round: u32,
    /// The minimum round trip in microseconds; none before the first measurement.
    min_rtt_us: u32,
    min_rtt_at: Time,
    probe_rtt_min_us: u32,
    probe_rtt_min_at: Time,
    probe_rtt_expired: bool,
    probe_rtt_done_at: Option<Time>,
    probe_rtt_round_done: bool,
    idle_restart: bool,
    extra_acked: [u32; 2],
    extra_acked_rounds: u8,
    extra_acked_from: Time,
    extra_acked_delivered: u64,
    ack_phase: AckPhase,
    bw_probe_samples: bool,
    cycle_at: Time,
    bw_probe_wait_us: u32,
    rounds_since_bw_probe: u32,
    bw_probe_up_rounds: u8,
    bw_probe_up_acks: u64,
    probe_up_bytes: u64,
    prior_cwnd: u32,
}

impl Bbr {
    pub(crate) const fn new() -> Self {
        let zero = Time::from_nanos(0);
        Self {
            state: BbrState::Startup,
            pacing_rate: 0,
            round_count: 0,
            round_start: false,
            next_round_delivered: 0,
            max_bw: [0; 2],
            bw_lo: None,
            bw_latest: 0,
            inflight_latest: 0,
            inflight_lo: NONE,
            inflight_hi: NONE,
            loss_round_start: false,
            loss_round_delivered: 0,
            loss_count: 0,
            full_bw: 0,
            full_bw_count: 0,
            full_bw_now: false,
            full_bw_reached: false,
            drain_start_round: 0,
            min_rtt_us: NONE,
            min_rtt_at: zero,
            probe_rtt_min_us: NONE,
            probe_rtt_min_at: zero,
            probe_rtt_expired: false,
            probe_rtt_done_at: None,
            probe_rtt_round_done: false,
            idle_restart: true,
            extra_acked: [0; 2],
            extra_acked_rounds: 0,
            extra_acked_from: zero,
            extra_acked_delivered: 0,
            ack_phase: AckPhase::ProbeStopping,
            bw_probe_samples: false,
            cycle_at: zero,
            bw_probe_wait_us: 0,
            rounds_since_bw_probe: 0,
            bw_probe_up_rounds: 0,
            bw_probe_up_acks: 0,
            probe_up_bytes: u64::MAX,
            prior_cwnd: 0,
        }
    }

    /// Continues with the state that an earlier flight of the connection has [saved](Self::save).
    pub(crate) fn load(saved: u32, srtt_us: u32, mss: u32) -> Self {
        let mut bbr = Self::new();
        bbr.max_bw = [u64::from(saved & !FULL_BW_REACHED) * SAVED_BW_UNIT, 0];
        // This value holds until the first measurement.
        bbr.min_rtt_us = srtt_us.max(1);
        if saved & FULL_BW_REACHED != 0 {
            // The path may have become faster: the new data begins with a probe.
            bbr.full_bw_reached = true;
            bbr.start_refill(0);
        } else {
            // At least as fast as a new connection. A pace for the whole window would be too fast, because the
            // window is for two round trips.
            bbr.pacing_rate = bbr.pacing_rate(initial_window(mss), srtt_us);
        }
        bbr.set_pacing_rate();
        bbr
    }

    /// Restarts after a time with nothing in flight (`BBRHandleRestartFromIdle`). This time has measured the round trip
    /// of an empty path.
    pub(crate) fn restart(&mut self) {
        self.idle_restart = true;
    }

    /// True if there is a bandwidth to save.
    pub(crate) fn has_bandwidth(&self) -> bool {
        self.max_bw() > 0
    }

    /// The state that survives while nothing is in flight: the bandwidth, and the flag that it fills the path.
    pub(crate) fn save(&self) -> u32 {
        let units = u32::try_from(self.max_bw().div_ceil(SAVED_BW_UNIT)).unwrap_or(NONE);
        let bit = if self.full_bw_reached { FULL_BW_REACHED } else { 0 };
        units.min(!FULL_BW_REACHED - 1) | bit
    }

    /// The rate at which data leaves, bytes a second. `srtt_us` is the round trip of the handshake while no bandwidth
    /// is known.
    pub(crate) fn pacing_rate(&self, cwnd: u32, srtt_us: u32) -> u64 {
        match self.pacing_rate {
            0 => STARTUP_PACING_GAIN * u64::from(cwnd) * 10_000 / u64::from(srtt_us.max(1_000)),
            rate => rate,
        }
        .max(1)
    }

    /// Updates the model and the state (`BBRUpdateOnACK`); returns the window.
    pub(crate) fn handle_ack(&mut self, ack: &Signals, mut cwnd: u32, mss: u32) -> u32 {
        if self.pacing_rate == 0 {
            self.pacing_rate = self.pacing_rate(cwnd, ack.rtt_us);
        }
        if ack.has_loss {
            self.note_loss(ack.delivered);
        }
        if let Some(sample) = ack.sample {
            self.update_latest_delivery_signals(ack, &sample);
            self.update_round(ack, &sample);
            self.update_max_bw(&sample);
            self.adapt_lower_bounds(cwnd);
            self.update_ack_aggregation(ack, cwnd);
            self.check_full_bw_reached(&sample);
            self.check_startup_done(&sample, mss);
            self.check_drain_done(ack, mss);
            self.update_probe_bw_cycle(ack, &sample, cwnd, mss);
            self.update_min_rtt(ack);
            cwnd = self.check_probe_rtt(ack, cwnd, mss);
            if self.loss_round_start {
                (self.bw_latest, self.inflight_latest) = (sample.rate, sample.delivered);
                self.loss_count = 0;
            }
        }
        self.set_pacing_rate();
        self.window(ack, cwnd, mss)
    }

    /// `BBR.max_bw`.
    fn max_bw(&self) -> u64 {
        self.max_bw[0].max(self.max_bw[1])
    }

    /// `BBR.bw`.
    fn bw(&self) -> u64 {
        let max_bw = self.max_bw();
        self.bw_lo.map_or(max_bw, |lo| lo.min(max_bw))
    }

    /// `BBRBDPMultiple`: hundredths of the bandwidth-delay product, for a bandwidth.
    fn bdp(&self, bw: u64, gain: u64, mss: u32) -> u32 {
        if self.min_rtt_us == NONE || bw == 0 {
            return initial_window(mss);
        }
        let bdp = u128::from(bw) * u128::from(self.min_rtt_us) * u128::from(gain) / 100_000_000;
        u32::try_from(bdp).unwrap_or(NONE)
    }

    /// `BBRQuantizationBudget`: adds room for the frames of a millisecond.
    fn with_budget(&self, inflight: u32, mss: u32) -> u32 {
        let frame = u32::try_from(self.pacing_rate / 1_000).unwrap_or(NONE).min(65_536);
        let most = inflight.max(2 * frame.max(mss)).max(MIN_PIPE_SEGMENTS * mss);
        if self.state == BbrState::Up { most.saturating_add(2 * mss) } else { most }
    }

    /// `BBRInflight`: the bytes that fill the path.
    fn inflight_at(&self, gain: u64, mss: u32) -> u32 {
        self.with_budget(self.bdp(self.max_bw(), gain, mss), mss)
    }

    fn inflight_with_headroom(&self, mss: u32) -> u32 {
        if self.inflight_hi == NONE {
            return NONE;
        }
        percent(self.inflight_hi, WITHOUT_HEADROOM)
            .min(self.inflight_hi.saturating_sub(mss))
            .max(MIN_PIPE_SEGMENTS * mss)
    }

    fn note_loss(&mut self, delivered: u64) {
        if self.loss_count == 0 {
            self.loss_round_delivered = delivered;
        }
        self.loss_count = self.loss_count.saturating_add(1);
    }

    fn update_latest_delivery_signals(&mut self, ack: &Signals, sample: &Sample) {
        self.bw_latest = self.bw_latest.max(sample.rate);
        self.inflight_latest = self.inflight_latest.max(sample.delivered);
        self.loss_round_start = sample.prior_delivered >= self.loss_round_delivered;
        if self.loss_round_start {
            self.loss_round_delivered = ack.delivered;
        }
    }

    fn update_round(&mut self, ack: &Signals, sample: &Sample) {
        self.round_start = sample.prior_delivered >= self.next_round_delivered;
        if self.round_start {
            self.start_round(ack.delivered);
            self.round_count = self.round_count.wrapping_add(1);
            self.rounds_since_bw_probe = self.rounds_since_bw_probe.saturating_add(1);
        }
    }

    fn start_round(&mut self, delivered: u64) {
        self.next_round_delivered = delivered;
    }

    fn update_max_bw(&mut self, sample: &Sample) {
        if sample.rate >= self.max_bw() || !sample.is_app_limited {
            self.max_bw[1] = self.max_bw[1].max(sample.rate);
        }
    }

    /// `BBRAdaptLowerBoundsFromCongestion`: once in a round trip with losses, unless a probe has caused them.
    fn adapt_lower_bounds(&mut self, cwnd: u32) {
        let is_probing = matches!(self.state, BbrState::Startup | BbrState::Refill | BbrState::Up);
        if !self.loss_round_start || self.loss_count == 0 || is_probing {
            return;
        }
        let bw_lo = self.bw_lo.unwrap_or_else(|| self.max_bw());
        self.bw_lo = Some(self.bw_latest.max(bw_lo * BETA / 100).max(1));
        let inflight_lo = if self.inflight_lo == NONE { cwnd } else { self.inflight_lo };
        self.inflight_lo = self.inflight_latest.max(percent(inflight_lo, BETA));
    }

    fn reset_lower_bounds(&mut self) {
        (self.bw_lo, self.inflight_lo) = (None, NONE);
    }

    /// `BBRUpdateACKAggregation`: the bytes that were acknowledged beyond what the bandwidth explains.
    fn update_ack_aggregation(&mut self, ack: &Signals, cwnd: u32) {
        let interval_us = elapsed_us(ack.now, self.extra_acked_from);
        let mut expected = self.bw().saturating_mul(u64::from(interval_us)) / 1_000_000;
        if self.extra_acked_delivered <= expected {
            (self.extra_acked_delivered, self.extra_acked_from) = (0, ack.now);
            expected = 0;
        }
        self.extra_acked_delivered += u64::from(ack.newly_acked);
        let extra = u32::try_from(self.extra_acked_delivered - expected).unwrap_or(NONE).min(cwnd);
        if self.round_start {
            self.extra_acked_rounds += 1;
            let rounds = if self.full_bw_reached { EXTRA_ACKED_ROUNDS } else { 1 };
            if self.extra_acked_rounds >= rounds {
                self.extra_acked_rounds = 0;
                self.extra_acked = [self.extra_acked[1], 0];
            }
        }
        self.extra_acked[1] = self.extra_acked[1].max(extra);
    }

    fn check_full_bw_reached(&mut self, sample: &Sample) {
        if self.full_bw_now || !self.round_start || sample.is_app_limited {
            return;
        }
        if sample.rate >= self.full_bw.saturating_mul(5) / 4 {
            self.reset_full_bw(sample.rate);
            return;
        }
        self.full_bw_count += 1;
        self.full_bw_now = self.full_bw_count >= FULL_BW_COUNT;
        self.full_bw_reached |= self.full_bw_now;
    }

    fn reset_full_bw(&mut self, full_bw: u64) {
        (self.full_bw, self.full_bw_count, self.full_bw_now) = (full_bw, 0, false);
    }

    fn check_startup_done(&mut self, sample: &Sample, mss: u32) {
        if self.state != BbrState::Startup {
            return;
        }
        // `BBRCheckStartupHighLoss`.
        let has_high_loss = self.loss_round_start
            && self.loss_count >= STARTUP_FULL_LOSS_COUNT
            && is_inflight_too_high(sample);
        if has_high_loss {
            self.full_bw_reached = true;
            let bdp = self.bdp(self.max_bw(), 100, mss);
            self.inflight_hi = bdp.max(self.inflight_latest);
        }
        if self.full_bw_reached {
            self.state = BbrState::Drain;
            self.drain_start_round = self.round_count;
        }
    }

    fn check_drain_done(&mut self, ack: &Signals, mss: u32) {
        let is_long = self.round_count.wrapping_sub(self.drain_start_round) > 3;
        if self.state == BbrState::Drain && (is_long || ack.inflight <= self.inflight_at(100, mss))
        {
            self.start_down(ack);
        }
    }

    fn start_down(&mut self, ack: &Signals) {
        self.state = BbrState::Down;
        (self.loss_count, self.bw_latest, self.inflight_latest) = (0, 0, 0);
        self.probe_up_bytes = u64::MAX;
        // `BBRPickProbeWait`.
        let noise = (ack.now.as_nanos() ^ ack.delivered).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33;
        self.rounds_since_bw_probe = u32::from(noise & 1 == 1);
        let [least, most_more] = PROBE_WAIT_US;
        let more = u32::try_from(noise % u64::from(most_more)).unwrap_or(0);
        self.bw_probe_wait_us = least + more;
        self.cycle_at = ack.now;
        self.ack_phase = AckPhase::ProbeStopping;
        self.start_round(ack.delivered);
    }

    fn start_refill(&mut self, delivered: u64) {
        self.state = BbrState::Refill;
        self.reset_lower_bounds();
        (self.bw_probe_up_rounds, self.bw_probe_up_acks) = (0, 0);
        self.ack_phase = AckPhase::Init;
        self.start_round(delivered);
    }

    fn start_up(&mut self, ack: &Signals, sample: &Sample, cwnd: u32, mss: u32) {
        self.state = BbrState::Up;
        self.bw_probe_samples = true;
        self.ack_phase = AckPhase::ProbeStarting;
        self.start_round(ack.delivered);
        self.reset_full_bw(sample.rate);
        self.raise_slope(cwnd, mss);
    }

    /// `BBRUpdateProbeBWCyclePhase`.
    fn update_probe_bw_cycle(&mut self, ack: &Signals, sample: &Sample, cwnd: u32, mss: u32) {
        if !self.full_bw_reached {
            return;
        }
        self.adapt_long_term_model(ack, sample, cwnd, mss);
        let state = self.state;
        match state {
            BbrState::Down | BbrState::Cruise if self.is_time_to_probe(ack, cwnd, mss) => {
                self.start_refill(ack.delivered);
            }
            BbrState::Down if self.is_time_to_cruise(ack, mss) => self.state = BbrState::Cruise,
            BbrState::Refill if self.round_start => self.start_up(ack, sample, cwnd, mss),
            BbrState::Up if self.is_time_to_go_down(ack, sample, cwnd) => self.start_down(ack),
            _ => {}
        }
    }

    /// `BBRAdaptLongTermModel`: `inflight_hi` follows the results of probes.
    fn adapt_long_term_model(&mut self, ack: &Signals, sample: &Sample, cwnd: u32, mss: u32) {
        if self.ack_phase == AckPhase::ProbeStarting && self.round_start {
            self.ack_phase = AckPhase::ProbeFeedback;
        }
        if self.ack_phase == AckPhase::ProbeStopping && self.round_start {
            // The end of the samples of a probe: `BBRAdvanceMaxBwFilter`.
            self.bw_probe_samples = false;
            let is_cycling =
                !matches!(self.state, BbrState::Startup | BbrState::Drain | BbrState::ProbeRtt);
            self.ack_phase = AckPhase::Init;
            if is_cycling && !sample.is_app_limited && self.max_bw[1] > 0 {
                self.max_bw = [self.max_bw[1], 0];
            }
        }
        if is_inflight_too_high(sample) {
            if self.bw_probe_samples {
                self.handle_inflight_too_high(ack, sample, cwnd, mss);
            }
        } else if self.inflight_hi != NONE {
            self.inflight_hi = self.inflight_hi.max(sample.tx_in_flight);
            if self.state == BbrState::Up {
                self.probe_inflight_hi_upward(ack, cwnd, mss);
            }
        }
    }

    fn handle_inflight_too_high(&mut self, ack: &Signals, sample: &Sample, cwnd: u32, mss: u32) {
        self.bw_probe_samples = false;
        if !sample.is_app_limited {
            let target = self.bdp(self.bw(), 100, mss).min(cwnd);
            self.inflight_hi = sample.tx_in_flight.max(percent(target, BETA));
        }
        if self.state == BbrState::Up {
            self.start_down(ack);
        }
    }

    fn probe_inflight_hi_upward(&mut self, ack: &Signals, cwnd: u32, mss: u32) {
        if !ack.is_cwnd_limited || cwnd < self.inflight_hi {
            return;
        }
        self.bw_probe_up_acks += u64::from(ack.newly_acked);
        let steps = self.bw_probe_up_acks / self.probe_up_bytes;
        if steps > 0 {
            self.bw_probe_up_acks -= steps * self.probe_up_bytes;
            let bytes = steps.saturating_mul(u64::from(mss));
            let bytes = u32::try_from(bytes).unwrap_or(NONE);
            self.inflight_hi = self.inflight_hi.saturating_add(bytes).min(NONE - 1);
        }
        if self.round_start {
            self.raise_slope(cwnd, mss);
        }
    }

    /// `BBRRaiseInflightHiSlope`: 1, 2, 4, 8 ... segments in a round trip.
    fn raise_slope(&mut self, cwnd: u32, mss: u32) {
        let segments = 1_u64 << self.bw_probe_up_rounds;
        self.bw_probe_up_rounds = (self.bw_probe_up_rounds + 1).min(PROBE_UP_ROUNDS_MAX);
        self.probe_up_bytes = (u64::from(cwnd) / segments).max(u64::from(mss));
    }

    /// `BBRIsTimeToProbeBW`: after two to three seconds, or as many round trips as Reno needs to refill such a window.
    fn is_time_to_probe(&self, ack: &Signals, cwnd: u32, mss: u32) -> bool {
        let target = self.bdp(self.bw(), 100, mss).min(cwnd);
        let reno_rounds = (target / mss).min(RENO_ROUNDS_MAX);
        elapsed_us(ack.now, self.cycle_at) > self.bw_probe_wait_us
            || self.rounds_since_bw_probe >= reno_rounds
    }

    fn is_time_to_cruise(&self, ack: &Signals, mss: u32) -> bool {
        ack.inflight <= self.inflight_with_headroom(mss)
            && ack.inflight <= self.inflight_at(100, mss)
    }

    fn is_time_to_go_down(&mut self, ack: &Signals, sample: &Sample, cwnd: u32) -> bool {
        if ack.is_cwnd_limited && cwnd >= self.inflight_hi {
            self.reset_full_bw(sample.rate);
        }
        self.full_bw_now
    }

    fn update_min_rtt(&mut self, ack: &Signals) {
        self.probe_rtt_expired = elapsed_us(ack.now, self.probe_rtt_min_at) > PROBE_RTT_INTERVAL_US;
        if ack.rtt_us > 0 && (ack.rtt_us < self.probe_rtt_min_us || self.probe_rtt_expired) {
            (self.probe_rtt_min_us, self.probe_rtt_min_at) = (ack.rtt_us, ack.now);
        }
        let min_rtt_expired = elapsed_us(ack.now, self.min_rtt_at) > MIN_RTT_FILTER_US;
        if self.probe_rtt_min_us < self.min_rtt_us || min_rtt_expired {
            (self.min_rtt_us, self.min_rtt_at) = (self.probe_rtt_min_us, self.probe_rtt_min_at);
        }
    }

    /// Returns the window.
    fn check_probe_rtt(&mut self, ack: &Signals, cwnd: u32, mss: u32) -> u32 {
        let is_restart = core::mem::take(&mut self.idle_restart);
        if self.state == BbrState::ProbeRtt {
            return self.handle_probe_rtt(ack, cwnd, mss);
        }
        if self.probe_rtt_expired && !is_restart {
            self.save_cwnd(cwnd);
            self.state = BbrState::ProbeRtt;
            self.probe_rtt_done_at = None;
            self.ack_phase = AckPhase::ProbeStopping;
            self.start_round(ack.delivered);
        }
        cwnd
    }

    fn handle_probe_rtt(&mut self, ack: &Signals, cwnd: u32, mss: u32) -> u32 {
        match self.probe_rtt_done_at {
            None if ack.inflight <= self.probe_rtt_cwnd(mss) => {
                self.probe_rtt_done_at = Some(later(ack.now, PROBE_RTT_DURATION_US));
                self.probe_rtt_round_done = false;
                self.start_round(ack.delivered);
            }
            None => {}
            Some(done_at) => {
                self.probe_rtt_round_done |= self.round_start;
                if self.probe_rtt_round_done && ack.now > done_at {
                    self.exit_probe_rtt(ack);
                    return self.restore_cwnd(cwnd);
                }
            }
        }
        cwnd
    }

    fn exit_probe_rtt(&mut self, ack: &Signals) {
        self.probe_rtt_min_at = ack.now;
        self.reset_lower_bounds();
        self.state = BbrState::Startup;
        if self.full_bw_reached {
            self.start_down(ack);
            self.state = BbrState::Cruise;
        }
    }

    /// `BBRSaveCwnd`: a window to return to.
    pub(crate) fn save_cwnd(&mut self, cwnd: u32) {
        self.prior_cwnd = self.prior_cwnd.max(cwnd);
    }

    /// Returns the window from before a timeout or a recovery, at its end (`BBRRestoreCwnd`).
    pub(crate) fn restore_cwnd(&mut self, cwnd: u32) -> u32 {
        cwnd.max(core::mem::take(&mut self.prior_cwnd))
    }

    /// Undoes the effect of a spurious loss (`BBRHandleSpuriousLossDetection`).
    pub(crate) fn undo(&mut self, before: &Self) {
        self.loss_count = 0;
        self.reset_full_bw(0);
        self.bw_lo = self.bw_lo.zip(before.bw_lo).map(|(now, before)| now.max(before));
        self.inflight_lo = self.inflight_lo.max(before.inflight_lo);
        self.inflight_hi = self.inflight_hi.max(before.inflight_hi);
    }

    fn probe_rtt_cwnd(&self, mss: u32) -> u32 {
        self.bdp(self.bw(), 50, mss).max(MIN_PIPE_SEGMENTS * mss)
    }

    const fn pacing_gain(&self) -> u64 {
        match self.state {
            BbrState::Startup => STARTUP_PACING_GAIN,
            BbrState::Drain => DRAIN_PACING_GAIN,
            BbrState::Down => 90,
            BbrState::Up => 125,
            BbrState::Cruise | BbrState::Refill | BbrState::ProbeRtt => 100,
        }
    }

    fn set_pacing_rate(&mut self) {
        let rate = self.bw().saturating_mul(self.pacing_gain() * PACING_MARGIN) / 10_000;
        if self.full_bw_reached || rate > self.pacing_rate {
            self.pacing_rate = rate;
        }
    }

    /// `BBRSetCwnd`.
    fn window(&self, ack: &Signals, cwnd: u32, mss: u32) -> u32 {
        let gain = if self.state == BbrState::Up { 225 } else { CWND_GAIN };
        let extra_acked = self.extra_acked[0].max(self.extra_acked[1]);
        let max_inflight =
            self.with_budget(self.bdp(self.max_bw(), gain, mss).saturating_add(extra_acked), mss);
        let grown = cwnd.saturating_add(ack.newly_acked);
        let cwnd = if self.full_bw_reached {
            grown.min(max_inflight)
        } else if cwnd < max_inflight || ack.delivered < u64::from(initial_window(mss)) {
            grown
        } else {
            cwnd
        };
        let most = match self.state {
            BbrState::ProbeRtt => self.inflight_with_headroom(mss).min(self.probe_rtt_cwnd(mss)),
            BbrState::Cruise => self.inflight_with_headroom(mss),
            BbrState::Down | BbrState::Refill | BbrState::Up => self.inflight_hi,
            BbrState::Startup | BbrState::Drain => NONE,
        };
        cwnd.min(most).min(self.inflight_lo).max(MIN_PIPE_SEGMENTS * mss)
    }
}

/// `IsInflightTooHigh`: more than 2 % of the bytes in flight were lost.
const fn is_inflight_too_high(sample: &Sample) -> bool {
    sample.lost > sample.tx_in_flight / LOSS_THRESH_PARTS
}

/// `percent` hundredths of a volume.
fn percent(bytes: u32, percent: u64) -> u32 {
    u32::try_from(u64::from(bytes) * percent / 100).unwrap_or(NONE)
}

#[cfg(test)]
mod tests;
