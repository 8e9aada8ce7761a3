//! HyStart++ (RFC 9406): slow start ends when the round trip grows, before a loss.

use super::Growth;
use crate::seq::SeqNumber;

/// `MIN_RTT_THRESH` in microseconds.
const MIN_RTT_THRESH_US: u32 = 4_000;

/// `MAX_RTT_THRESH` in microseconds.
const MAX_RTT_THRESH_US: u32 = 16_000;

/// `MIN_RTT_DIVISOR`.
const MIN_RTT_DIVISOR: u32 = 8;

/// `N_RTT_SAMPLE`: measurements in a round before the round is judged.
const N_RTT_SAMPLE: u8 = 8;

/// `CSS_GROWTH_DIVISOR`.
const CSS_GROWTH_DIVISOR: u32 = 4;

/// `CSS_ROUNDS`.
const CSS_ROUNDS: u8 = 5;

/// No measurement: infinity in the RFC.
const NONE: u32 = u32::MAX;

/// The state of one slow start. RFC 9406, 4.2: its `L` is infinite, because segments are paced.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HyStart {
    /// `windowEnd`: the round ends when this number is acknowledged.
    window_end: SeqNumber,
    /// `lastRoundMinRTT` in microseconds.
    last_round_min_us: u32,
    /// `currentRoundMinRTT`.
    round_min_us: u32,
    /// `rttSampleCount`.
    samples: u8,
    /// `cssBaselineMinRtt`; `Some` only in conservative slow start.
    css_baseline_us: Option<u32>,
    /// Rounds of conservative slow start that have ended.
    css_rounds: u8,
}

impl HyStart {
    pub(crate) const fn new(snd_una: SeqNumber) -> Self {
        Self {
            window_end: snd_una,
            last_round_min_us: NONE,
            round_min_us: NONE,
            samples: 0,
            css_baseline_us: None,
            css_rounds: 0,
        }
    }

    /// True if congestion avoidance has to begin.
    pub(crate) const fn is_over(&self) -> bool {
        self.css_rounds >= CSS_ROUNDS
    }

    /// The growth of the window, bytes (RFC 9406, 4.2).
    pub(crate) fn growth(&mut self, growth: &Growth) -> u32 {
        if !growth.una.is_before(self.window_end) {
            self.begin_round(growth.snd_nxt);
        }
        if growth.rtt_us > 0 {
            self.round_min_us = self.round_min_us.min(growth.rtt_us);
            self.samples = self.samples.saturating_add(1);
            self.judge();
        }
        match self.css_baseline_us {
            None => growth.bytes,
            Some(_) => growth.bytes / CSS_GROWTH_DIVISOR,
        }
    }

    fn begin_round(&mut self, snd_nxt: SeqNumber) {
        if self.css_baseline_us.is_some() {
            self.css_rounds += 1;
        }
        self.window_end = snd_nxt;
        self.last_round_min_us = self.round_min_us;
        self.round_min_us = NONE;
        self.samples = 0;
    }

    fn judge(&mut self) {
        if self.samples < N_RTT_SAMPLE || self.last_round_min_us == NONE {
            return;
        }
        match self.css_baseline_us {
            None => {
                let thresh = (self.last_round_min_us / MIN_RTT_DIVISOR)
                    .clamp(MIN_RTT_THRESH_US, MAX_RTT_THRESH_US);
                if self.round_min_us >= self.last_round_min_us.saturating_add(thresh) {
                    self.css_baseline_us = Some(self.round_min_us);
                    self.css_rounds = 0;
                }
            }
            Some(baseline) if self.round_min_us < baseline => self.css_baseline_us = None,
            Some(_) => {}
        }
    }
}
