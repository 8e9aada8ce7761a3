//! Congestion control: how many bytes may be in flight.
//!
//! All windows are bytes. They grow by the bytes that are acknowledged (RFC 3465), so a peer gains nothing by
//! dividing its acknowledgements.

mod bbr;
mod cubic;
mod hystart;
mod newreno;
pub(crate) mod undo;

use bbr::Bbr;
pub(crate) use bbr::Signals;
use cubic::Cubic;
use hystart::HyStart;
use newreno::NewReno;

use super::recovery::pacing::Rate;
use crate::config::Algorithm;
use crate::seq::SeqNumber;
use crate::time::Time;

/// The largest window that window scaling can express (RFC 7323, 2.3).
const CWND_MAX: u32 = 1 << 30;

/// The initial slow start threshold: as high as possible (RFC 5681, 3.1).
const SSTHRESH_MAX: u32 = u32::MAX;

/// The initial window (RFC 6928, 2).
pub(crate) const fn initial_window(mss: u32) -> u32 {
    let floor = if 2 * mss > 14_600 { 2 * mss } else { 14_600 };
    if 10 * mss < floor { 10 * mss } else { floor }
}

/// Congestion control's view of an acknowledgement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Growth {
    /// The time.
    pub(crate) now: Time,
    /// Bytes that are newly acknowledged.
    pub(crate) bytes: u32,
    /// `SEG.ACK`.
    pub(crate) una: SeqNumber,
    /// `SND.NXT`.
    pub(crate) snd_nxt: SeqNumber,
    /// The round trip of the newest acknowledged transmission in microseconds; 0 if there is none.
    pub(crate) rtt_us: u32,
    /// The smoothed round trip in microseconds.
    pub(crate) srtt_us: u32,
}

/// The growth of a window beyond slow start, or the model that sizes it at all times.
#[derive(Clone, Copy, Debug)]
enum Avoidance {
    Bbr(Bbr),
    Cubic(Cubic),
    NewReno(NewReno),
}

/// The congestion window and its algorithm.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Congestion {
    cwnd: u32,
    ssthresh: u32,
    mss: u32,
    slow_start: HyStart,
    avoidance: Avoidance,
}

impl Congestion {
    /// Begins with [saved](Self::save) windows.
    pub(crate) fn new(
        algorithm: Algorithm,
        cwnd: u32,
        ssthresh: u32,
        mss: u32,
        snd_una: SeqNumber,
        srtt_us: u32,
    ) -> Self {
        let avoidance = match algorithm {
            Algorithm::Bbr if ssthresh == SSTHRESH_MAX => Avoidance::Bbr(Bbr::new()),
            Algorithm::Bbr => Avoidance::Bbr(Bbr::load(ssthresh, srtt_us, mss)),
            Algorithm::Cubic => Avoidance::Cubic(Cubic::new()),
            Algorithm::NewReno => Avoidance::NewReno(NewReno::new()),
        };
        // A model has no threshold: the saved value is its bandwidth.
        let ssthresh = if algorithm == Algorithm::Bbr { SSTHRESH_MAX } else { ssthresh };
        Self { cwnd, ssthresh, mss, slow_start: HyStart::new(snd_una), avoidance }
    }

    /// The window of a connection that has not sent yet.
    pub(crate) const fn initial(mss: u32) -> (u32, u32) {
        (initial_window(mss), SSTHRESH_MAX)
    }

    /// The window and the threshold to save. A model saves its bandwidth instead of a threshold.
    pub(crate) fn save(&self) -> (u32, u32) {
        match &self.avoidance {
            Avoidance::Bbr(bbr) if bbr.has_bandwidth() => (self.cwnd, bbr.save()),
            _ => (self.cwnd, self.ssthresh),
        }
    }

    /// The rate at which data leaves.
    pub(crate) fn rate(&self, srtt_us: u32) -> Rate {
        match &self.avoidance {
            Avoidance::Bbr(bbr) => Rate::new(bbr.pacing_rate(self.cwnd, srtt_us), srtt_us),
            _ => Rate::of(self.cwnd, srtt_us, self.is_slow_start()),
        }
    }

    /// True if a model sizes the window at all times. A model also paces retransmissions.
    pub(crate) const fn has_model(&self) -> bool {
        matches!(self.avoidance, Avoidance::Bbr(_))
    }

    /// Lets the model size the window for an acknowledgement.
    pub(crate) fn handle_signals(&mut self, signals: &Signals) {
        if let Avoidance::Bbr(bbr) = &mut self.avoidance {
            self.cwnd = bbr.handle_ack(signals, self.cwnd, self.mss).min(CWND_MAX);
        }
    }

    /// Ends a reduction after all losses are repaired, and sets `cwnd` to its final value.
    pub(crate) fn end_reduction(&mut self) {
        match &mut self.avoidance {
            Avoidance::Bbr(bbr) => self.cwnd = bbr.restore_cwnd(self.cwnd),
            _ => self.set_cwnd(self.ssthresh),
        }
    }

    /// `cwnd` in bytes.
    pub(crate) const fn cwnd(&self) -> u32 {
        self.cwnd
    }

    /// `ssthresh` in bytes.
    pub(crate) const fn ssthresh(&self) -> u32 {
        self.ssthresh
    }

    /// True if the window grows by slow start (RFC 5681, 3.1).
    pub(crate) const fn is_slow_start(&self) -> bool {
        self.cwnd < self.ssthresh
    }

    /// Grows the window for an acknowledgement that came while the window was full.
    pub(crate) fn grow(&mut self, growth: &Growth) {
        if self.is_slow_start() {
            // HyStart++ is only for the first slow start. A later slow start ends at a threshold that a loss has
            // set.
            let bytes = if self.ssthresh == SSTHRESH_MAX {
                self.slow_start.growth(growth)
            } else {
                growth.bytes
            };
            self.cwnd = self.cwnd.saturating_add(bytes).min(self.ssthresh).min(CWND_MAX);
            if self.slow_start.is_over() {
                self.ssthresh = self.cwnd;
                self.slow_start = HyStart::new(growth.snd_nxt);
            }
            return;
        }
        let bytes = match &mut self.avoidance {
            Avoidance::Cubic(cubic) => cubic.growth(growth, self.cwnd, self.mss),
            Avoidance::NewReno(newreno) => newreno.growth(growth.bytes, self.cwnd, self.mss),
            Avoidance::Bbr(_) => 0,
        };
        self.cwnd = self.cwnd.saturating_add(bytes).min(CWND_MAX);
    }

    /// Lowers the threshold because of congestion. `flight` is the part of the window that was in flight, bytes.
    /// The caller sets the window itself.
    pub(crate) fn reduce(&mut self, flight: u32) {
        let ssthresh = match &mut self.avoidance {
            Avoidance::Cubic(cubic) => cubic.reduce(flight),
            Avoidance::NewReno(_) => newreno::reduce(flight),
            Avoidance::Bbr(bbr) => return bbr.save_cwnd(self.cwnd),
        };
        self.ssthresh = ssthresh.max(2 * self.mss);
    }

    /// Sets the window: a recovery does so with each acknowledgement.
    pub(crate) fn set_cwnd(&mut self, cwnd: u32) {
        self.cwnd = cwnd.clamp(self.mss, CWND_MAX);
    }

    /// Restores the state before a reduction that was not needed (RFC 4015, 3.2; RFC 9438, 4.9).
    pub(crate) fn undo(&mut self, before: &Self) {
        let cwnd = self.cwnd.max(before.cwnd);
        if let (Avoidance::Bbr(bbr), Avoidance::Bbr(before)) =
            (&mut self.avoidance, &before.avoidance)
        {
            bbr.undo(before);
            self.cwnd = cwnd;
            return;
        }
        *self = Self { cwnd, mss: self.mss, ..*before };
    }

    /// Restarts after more than a timeout without sending, because the window is out of date (RFC 5681, 4.1). The
    /// threshold keeps the old window, so that slow start leads back to it (RFC 7661, 4.4.2).
    pub(crate) fn restart(&mut self, snd_una: SeqNumber) {
        if let Avoidance::Bbr(bbr) = &mut self.avoidance {
            // BBR keeps its window, because BBR paces all data.
            return bbr.restart();
        }
        if self.ssthresh != SSTHRESH_MAX {
            self.ssthresh = self.ssthresh.max(self.cwnd / 4 * 3);
        }
        self.cwnd = self.cwnd.min(initial_window(self.mss));
        self.slow_start = HyStart::new(snd_una);
        if let Avoidance::Cubic(cubic) = &mut self.avoidance {
            cubic.restart();
        }
    }

    /// Handles a smaller segment size of the path.
    pub(crate) fn set_mss(&mut self, mss: u32) {
        self.mss = mss;
        self.cwnd = self.cwnd.max(mss);
    }
}

#[cfg(test)]
mod tests;
