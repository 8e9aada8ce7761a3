//! Data in flight: the bytes sent but not acknowledged, the time of their retransmission, and the bytes that may be
//! sent.
//!
//! Only a connection with data in motion has a [`Flight`]. The connection asks [`Flight::next`] what to send, sends
//! it, and confirms with [`Flight::sent`]; it passes on each acknowledgement ([`Flight::handle_ack`]) and each timer
//! ([`Flight::handle_timer`]). A FIN is the last byte of the stream here: it has a sequence number, and it is sent,
//! lost and acknowledged as any byte is.
//!
//! Data in flight is a list of transmissions, one record per frame, split by selective acknowledgements. RACK-TLP
//! decides by time which data is lost, proportional rate reduction spreads the retransmissions, and a reduction that
//! was not needed is undone. Paths above 1 ms are paced.

mod acknowledge;
mod api;

pub use api::{Ack, Acked, Kind, Offer, Path, Saved, SendStep, Status, TimerOutcome};

use core::time::Duration;

use super::clock::{later, milliseconds};
use super::congestion::undo::Undo;
use super::congestion::{Congestion, initial_window};
use super::recovery::pacing::{Pacing, Rate};
use super::recovery::probe::{Probe, pto_us};
use super::recovery::prr::Prr;
use super::recovery::rack::Rack;
use super::recovery::rtt::Rtt;
use super::recovery::sent::Sent;
use crate::config::Algorithm;
use crate::seq::SeqNumber;
use crate::time::Time;

/// The timeouts before the [patience](Path::patience) with the peer counts: R1 of RFC 9293, 3.8.3. With timeouts of
/// a minute, 100 seconds would allow only two attempts.
const TIMEOUTS_MIN: u32 = 3;

/// The phase of congestion control (RFC 5681; Linux calls the phases Open, CWR, Recovery and Loss).
#[derive(Clone, Copy, Debug)]
enum Phase {
    /// No byte is known to be lost.
    Open,
    /// The window shrinks without retransmissions: because of ECN, or of a probe that repaired a loss.
    Reducing {
        /// `SND.NXT` at the begin. The phase ends when this number is acknowledged.
        until: SeqNumber,
        /// How much may be sent.
        prr: Prr,
    },
    /// Lost bytes are retransmitted (RFC 6675, RFC 6582).
    Recovery {
        /// `RecoveryPoint`.
        until: SeqNumber,
        /// How much may be sent.
        prr: Prr,
    },
    /// The timeout expired: all bytes are retransmitted, in slow start (RFC 5681, 3.1).
    Loss {
        /// `SND.NXT` at the begin.
        until: SeqNumber,
    },
}

/// The tail loss probe.
#[derive(Clone, Copy, Debug)]
enum ProbeState {
    /// No probe is wanted.
    Idle,
    /// The flight has a tail; the probe is due at this time.
    Scheduled(Time),
    /// The probe has to be sent now.
    Due,
    /// The probe was sent.
    Out(Probe),
}

/// The data in flight of a connection.
#[derive(Debug)]
pub struct Flight {
    path: Path,
    snd_una: SeqNumber,
    snd_nxt: SeqNumber,
    sent: Sent,
    rtt: Rtt,
    rack: Rack,
    congestion: Congestion,
    pacing: Pacing,
    phase: Phase,
    probe: ProbeState,
    /// Some from the begin of a recovery until it is undone or another recovery begins.
    undo: Option<Undo>,
    /// The time at which the retransmission timeout expires. It has no meaning while nothing is in flight.
    rto_at: Time,
    /// `Some` if bytes will count as lost at that time: the reordering timer (RFC 8985, 6.3).
    reorder_at: Option<Time>,
    /// True if bytes were sent that the closed window excludes. They are retransmitted when the window opens.
    is_window_closed: bool,
    /// The time of the first timeout since `SND.UNA` advanced.
    stalled_since: Time,
    /// The number of timeouts since `SND.UNA` advanced.
    timeouts: u32,
    /// The time at which data was sent last: milliseconds, modulo 2³².
    sent_ms: u32,
    /// The window grows for acknowledgements up to this number: the window was full when this was `SND.NXT`.
    limited_until: SeqNumber,
    /// The new bytes that the connection had at the last step to send new bytes.
    offered: u32,
    /// The number of segments that duplicate acknowledgements stand for, without SACK (RFC 5681, 3.2).
    dup_acks: u32,
    /// `recover` of RFC 6582, 3.2, plus one: duplicates up to this number are no sign of a new loss.
    recover: SeqNumber,
    /// An echo of congestion counts only after this number: once in a window (RFC 3168, 6.1.2).
    ece_heeded: SeqNumber,
    /// True if the next new segment has to carry CWR.
    cwr_is_due: bool,
}

impl Default for Flight {
    fn default() -> Self {
        Self::new()
    }
}

impl Flight {
    /// An empty flight, for the spares. [`Flight::begin`] makes it usable.
    #[must_use]
    pub fn new() -> Self {
        let zero = SeqNumber(0);
        let path = Path {
            mss: 536,
            sack: false,
            algorithm: Algorithm::Cubic,
            patience: Duration::from_secs(100),
        };
        let (cwnd, ssthresh) = Congestion::initial(path.mss);
        Self {
            path,
            snd_una: zero,
            snd_nxt: zero,
            sent: Sent::new(),
            rtt: Rtt::default(),
            rack: Rack::new(zero),
            congestion: Congestion::new(path.algorithm, cwnd, ssthresh, path.mss, zero, 0),
            pacing: Pacing::default(),
            phase: Phase::Open,
            probe: ProbeState::Idle,
            undo: None,
            rto_at: Time::MAX,
            reorder_at: None,
            is_window_closed: false,
            stalled_since: Time::MAX,
            timeouts: 0,
            sent_ms: 0,
            limited_until: zero,
            offered: 0,
            dup_acks: 0,
            recover: zero,
            ece_heeded: zero,
            cwr_is_due: false,
        }
    }

    /// Begins in place, without allocating or freeing memory. `SND.NXT` is `snd_una`: nothing is in flight.
    pub fn begin(&mut self, saved: Saved, path: Path, snd_una: SeqNumber) {
        let Saved { srtt_us, rttvar_us, cwnd, ssthresh, sent_ms, cwr_is_due } = saved;
        self.path = path;
        self.snd_una = snd_una;
        self.snd_nxt = snd_una;
        self.sent.clear(snd_una);
        self.rtt = Rtt::load(srtt_us, rttvar_us);
        self.rack = Rack::new(snd_una);
        self.congestion =
            Congestion::new(path.algorithm, cwnd, ssthresh, path.mss, snd_una, srtt_us);
        self.pacing = Pacing::default();
        self.phase = Phase::Open;
        self.probe = ProbeState::Idle;
        self.undo = None;
        self.reorder_at = None;
        self.is_window_closed = false;
        self.timeouts = 0;
        self.sent_ms = sent_ms;
        self.limited_until = snd_una;
        self.offered = 0;
        self.dup_acks = 0;
        self.recover = SeqNumber(snd_una.0.wrapping_sub(1));
        self.ece_heeded = snd_una;
        self.cwr_is_due = cwr_is_due;
    }

    /// Ends the flight when nothing is in flight. Then it can be kept as a spare.
    #[must_use]
    pub fn end(&mut self) -> Saved {
        debug_assert!(self.is_empty(), "nothing is in flight");
        let (srtt_us, rttvar_us) = self.rtt.save();
        let (cwnd, ssthresh) = self.congestion.save();
        self.sent.clear(self.snd_una);
        let (sent_ms, cwr_is_due) = (self.sent_ms, self.cwr_is_due);
        Saved { srtt_us, rttvar_us, cwnd, ssthresh, sent_ms, cwr_is_due }
    }

    /// Returns the next step of sending. If the interface is full, the caller does not call [`Flight::sent`], and
    /// the next call returns the same step.
    pub fn next(&mut self, now: Time, offer: &Offer) -> SendStep {
        if self.is_empty() && offer.new_bytes > 0 {
            self.restart(now);
        }
        if matches!(self.probe, ProbeState::Due) {
            return self.next_probe(offer);
        }
        if self.is_window_closed && offer.window_end.is_after(self.snd_una) {
            self.handle_open_window(now);
        }
        let pipe = self.pipe();
        let room = self.congestion.cwnd().saturating_sub(pipe);
        if let Some(lost) = self.sent.first_lost() {
            // No bytes outside of the peer's window are sent, except the first segment, which makes the peer answer.
            // The peer may have shrunk its window below the sent bytes.
            let mss = self.path.mss;
            let is_in_window = !lost.end().is_after(offer.window_end);
            let is_partly = offer.window_end.is_after(lost.from + mss);
            if is_in_window || is_partly || lost.from == self.snd_una {
                let kind = match self.phase {
                    _ if self.is_window_closed => Kind::Probe,
                    Phase::Loss { .. } => Kind::Timeout,
                    _ => Kind::Fast,
                };
                let (has_model, rate) = (self.congestion.has_model(), self.rate());
                let most = match is_in_window {
                    true if has_model => rate.frame_bytes(self.path.mss),
                    true => u32::MAX,
                    false if is_partly => offer.window_end - lost.from,
                    false => mss,
                };
                let wanted = lost.bytes.min(self.frame_bytes(lost.bytes, offer, most));
                // The first retransmission always leaves.
                let room = if pipe == 0 { room.max(self.path.mss) } else { room };
                let bytes = self.fitting(wanted, room);
                // A window shrinks in proportion to the delivered bytes; a model has its rate.
                if bytes > 0
                    && has_model
                    && let Some(at) = self.pacing.wait(now, rate)
                {
                    return SendStep::WaitUntil(at);
                }
                return match bytes {
                    0 => SendStep::Blocked,
                    bytes => SendStep::Send { from: lost.from, bytes, kind, cwr: false },
                };
            }
        }
        self.next_new(now, offer, room)
    }

    fn next_new(&mut self, now: Time, offer: &Offer, room: u32) -> SendStep {
        let window = self.usable_window(offer);
        if offer.new_bytes == 0 || window == 0 || !self.sent.has_room() {
            return SendStep::Blocked;
        }
        let rate = self.rate();
        // The small window of a begin may leave in one frame; the window of a model may already be large.
        let frame_rate = if self.congestion.has_model() {
            self.congestion.rate(self.rtt.srtt_us())
        } else {
            rate
        };
        let mut wanted = offer.new_bytes.min(self.frame_bytes(
            offer.new_bytes,
            offer,
            frame_rate.frame_bytes(self.path.mss),
        ));
        if wanted > window {
            // Silly window syndrome (RFC 9293, 3.8.6.2.1): whole segments, or half of the peer's window, or all
            // remaining bytes. Bytes in flight may open the window; otherwise the override timeout runs.
            wanted = window - window % self.path.mss;
            if wanted == 0 {
                if window < offer.window_max / 2 && !(self.is_empty() && offer.has_waited) {
                    return SendStep::Blocked;
                }
                wanted = window;
            }
        }
        let bytes = self.fitting(wanted, room);
        if bytes == 0 {
            self.limited_until = self.snd_nxt;
            return SendStep::Blocked;
        }
        if let Some(at) = self.pacing.wait(now, rate) {
            return SendStep::WaitUntil(at);
        }
        self.offered = offer.new_bytes;
        SendStep::Send { from: self.snd_nxt, bytes, kind: Kind::New, cwr: self.cwr_is_due }
    }

    /// New bytes if there are any and the peer has room for them; otherwise a retransmission of the last bytes (RFC
    /// 8985, 7.3).
    fn next_probe(&mut self, offer: &Offer) -> SendStep {
        let new_bytes = offer.new_bytes.min(self.path.mss).min(self.usable_window(offer));
        if new_bytes > 0 && self.sent.has_room() {
            let (from, kind) = (self.snd_nxt, Kind::Probe);
            return SendStep::Send { from, bytes: new_bytes, kind, cwr: false };
        }
        match self.sent.last() {
            Some(last) if !last.end().is_after(offer.window_end) => {
                let bytes = last.bytes.min(self.path.mss);
                let from = last.from + (last.bytes - bytes);
                SendStep::Send { from, bytes, kind: Kind::Probe, cwr: false }
            }
            _ => {
                self.probe = ProbeState::Idle;
                SendStep::Blocked
            }
        }
    }

    /// Retransmits bytes that the closed window had excluded, because the peer has most likely dropped them.
    fn handle_open_window(&mut self, now: Time) {
        self.is_window_closed = false;
        self.sent.mark_all_lost();
        self.rtt.forgive();
        self.restart_rto(now);
    }

    /// Records sent bytes: the bytes of `next`, or fewer of them.
    pub fn sent(&mut self, now: Time, from: SeqNumber, bytes: u32, kind: Kind) {
        let is_new = from == self.snd_nxt;
        let is_first = self.is_empty();
        if is_new {
            self.sent.push(now, from, bytes);
            self.snd_nxt += bytes;
            if bytes == self.offered && self.pipe() < self.congestion.cwnd() {
                self.sent.limit_by_application();
            }
        } else {
            self.sent.resend(now, from, bytes);
            let is_recovering = matches!(self.phase, Phase::Recovery { .. } | Phase::Loss { .. });
            if let (true, Some(undo)) = (is_recovering, &mut self.undo) {
                undo.sent(now, from + bytes, bytes);
            }
        }
        if let Phase::Reducing { prr, .. } | Phase::Recovery { prr, .. } = &mut self.phase {
            prr.sent(bytes);
        }
        self.sent_ms = milliseconds(now);
        let rate = self.rate();
        self.pacing.sent(now, bytes, rate);
        self.cwr_is_due &= kind != Kind::New;

        let is_probe = kind == Kind::Probe;
        if is_first || is_probe || from == self.snd_una {
            self.restart_rto(now);
        }
        if is_probe && !self.is_window_closed {
            self.probe = ProbeState::Out(Probe { end: self.snd_nxt, is_again: !is_new });
        } else if is_new {
            self.schedule_probe(now);
        }
    }

    /// Handles a due timer: call it at [`Flight::deadline`] or later. `window_end` is as in [`Offer`].
    pub fn handle_timer(&mut self, now: Time, window_end: SeqNumber) -> TimerOutcome {
        let mut outcome = TimerOutcome::Nothing;
        if self.pacing.is_due(now) {
            outcome = TimerOutcome::Room;
        }
        if self.is_empty() {
            return outcome;
        }
        if self.reorder_at.take_if(|at| *at <= now).is_some() {
            self.handle_reorder_timer(now);
            outcome = TimerOutcome::Room;
        }
        match self.probe {
            ProbeState::Scheduled(at) if at <= now => {
                self.probe = ProbeState::Due;
                self.restart_rto(now);
                outcome = TimerOutcome::Room;
            }
            _ if self.rto_at <= now => outcome = self.handle_rto(now, window_end),
            _ => {}
        }
        outcome
    }

    /// Handles an expired retransmission timeout (RFC 6298, 5.4 to 5.7; RFC 5681, 3.1).
    fn handle_rto(&mut self, now: Time, window_end: SeqNumber) -> TimerOutcome {
        let is_reneged = self.sent.is_reneged();
        if is_reneged {
            self.sent.forget_sacked();
        }
        if self.sent.pipe() == 0 && self.sent.lost() > 0 {
            // The interface did not accept the retransmission, so this time was not lost in the network.
            self.restart_rto(now);
            return TimerOutcome::Room;
        }
        if self.timeouts == 0 {
            self.stalled_since = now;
        }
        self.timeouts += 1;
        let stalled = now.since(self.stalled_since);
        if self.timeouts > TIMEOUTS_MIN && stalled >= self.path.patience {
            return TimerOutcome::TimedOut;
        }
        self.rtt.back_off();
        self.restart_rto(now);
        if !window_end.is_after(self.snd_una) {
            // This is no congestion: the first bytes are a probe of the closed window.
            self.is_window_closed = true;
            self.sent.mark_all_lost();
            return TimerOutcome::Room;
        }
        if matches!(self.phase, Phase::Open) {
            self.undo = Some(Undo::new(self.congestion, self.snd_una));
            self.congestion.reduce(self.window_in_use());
        }
        if is_reneged {
            // The peer may have kept some of the reported bytes. Their acknowledgement without a retransmission does
            // not show that no byte was lost.
            self.undo = None;
        }
        self.sent.mark_all_lost();
        self.inform_model(now, 0, None, true);
        self.congestion.set_cwnd(self.path.mss);
        self.phase = Phase::Loss { until: self.snd_nxt };
        self.recover = self.snd_nxt;
        self.dup_acks = 0;
        self.probe = ProbeState::Idle;
        self.reorder_at = None;
        TimerOutcome::Room
    }

    /// The time to call [`Flight::handle_timer`].
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        if self.is_empty() {
            return self.pacing.deadline();
        }
        let probe_at = match self.probe {
            ProbeState::Scheduled(at) => at,
            _ => Time::MAX,
        };
        let at = self.rto_at.min(probe_at).min(self.reorder_at.unwrap_or(Time::MAX));
        Some(at.min(self.pacing.deadline().unwrap_or(Time::MAX)))
    }

    /// True if nothing is in flight.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.snd_una == self.snd_nxt
    }

    /// `SND.UNA`.
    #[must_use]
    pub fn snd_una(&self) -> SeqNumber {
        self.snd_una
    }

    /// `SND.NXT`.
    #[must_use]
    pub fn snd_nxt(&self) -> SeqNumber {
        self.snd_nxt
    }

    /// Bytes of payload in a whole segment.
    #[must_use]
    pub fn mss(&self) -> u32 {
        self.path.mss
    }

    /// True if the retransmission timeout has expired since the last acknowledgement of new bytes.
    pub(super) fn has_timed_out(&self) -> bool {
        self.timeouts > 0
    }

    /// Lets new segments be longer again.
    pub fn lengthen_mss(&mut self, mss: u32) {
        self.path.mss = mss;
        self.congestion.set_mss(mss);
    }

    /// Handles a smaller segment size of the path (RFC 1191, RFC 8201): the bytes in flight are retransmitted in
    /// smaller segments. The change is no congestion.
    pub fn shrink_mss(&mut self, mss: u32) {
        self.path.mss = mss;
        self.congestion.set_mss(mss);
        self.sent.mark_all_lost();
        self.probe = ProbeState::Idle;
        self.reorder_at = None;
    }

    /// The smoothed round trip in microseconds; 0 if none was measured.
    pub(super) fn srtt_us(&self) -> u32 {
        self.rtt.srtt_us()
    }

    /// The status for `samum stack`.
    #[must_use]
    pub fn status(&self) -> Status {
        let srtt_us = self.rtt.srtt_us();
        Status {
            cwnd: self.congestion.cwnd(),
            ssthresh: self.congestion.ssthresh(),
            pipe: self.pipe(),
            srtt: (srtt_us > 0).then(|| Duration::from_micros(u64::from(srtt_us))),
        }
    }

    /// Checks the invariants.
    #[cfg(test)]
    fn check(&self) {
        self.sent.check(self.snd_una, self.snd_nxt);
        assert!(
            self.is_empty() || self.deadline().is_some(),
            "a timer runs while data is in flight"
        );
        assert!(self.pipe() <= self.snd_nxt - self.snd_una);
    }

    /// Bytes that are thought to be in the network.
    fn pipe(&self) -> u32 {
        let pipe = self.sent.pipe();
        pipe - pipe.min(self.dup_acks.saturating_mul(self.path.mss))
    }

    /// The window that congestion has tested: the whole window if it was full lately, otherwise the bytes in flight
    /// (RFC 7661, 4.4.1). The minimum is the initial window, which needs no proof: a short response that loses a
    /// segment has not tested more.
    fn window_in_use(&self) -> u32 {
        let cwnd = self.congestion.cwnd();
        if self.snd_una.is_after(self.limited_until) {
            cwnd.min(initial_window(self.path.mss).max(self.snd_nxt - self.snd_una))
        } else {
            cwnd
        }
    }

    /// Bytes after `SND.NXT` within the peer's window.
    fn usable_window(&self, offer: &Offer) -> u32 {
        if offer.window_end.is_after(self.snd_nxt) { offer.window_end - self.snd_nxt } else { 0 }
    }

    /// The rate at which new data leaves.
    fn rate(&self) -> Rate {
        if self.pacing.is_bursting() {
            return Rate::UNLIMITED;
        }
        self.congestion.rate(self.rtt.srtt_us())
    }

    /// The size of a frame for `bytes` bytes: one segment, or for more bytes several whole segments.
    fn frame_bytes(&self, bytes: u32, offer: &Offer, paced: u32) -> u32 {
        let mss = self.path.mss;
        if bytes <= mss {
            return mss;
        }
        let most = offer.cut_bytes_max.min(paced);
        (most - most % mss).max(mss)
    }

    /// Returns the part of `wanted` bytes that fits the room: all bytes, or whole segments.
    fn fitting(&self, wanted: u32, room: u32) -> u32 {
        if wanted <= room { wanted } else { room - room % self.path.mss }
    }

    /// Restarts pacing, and after a long pause the window, before bytes leave again with nothing in flight.
    fn restart(&mut self, now: Time) {
        self.pacing.restart(self.path.mss);
        let idle_ms = milliseconds(now).wrapping_sub(self.sent_ms);
        if u64::from(idle_ms) * 1_000 > self.rtt.rto_us() {
            self.congestion.restart(self.snd_una);
        }
    }

    fn restart_rto(&mut self, now: Time) {
        self.rto_at = later(now, self.rtt.rto_us());
    }

    /// RFC 8985, 7.2: a probe is only for a tail without known losses or reordering.
    fn schedule_probe(&mut self, now: Time) {
        let is_open = matches!(self.phase, Phase::Open | Phase::Reducing { .. });
        let is_out = matches!(self.probe, ProbeState::Out(_) | ProbeState::Due);
        if is_out {
            return;
        }
        let is_clean = self.sent.sacked() == 0 && self.sent.lost() == 0 && !self.is_window_closed;
        self.probe = if self.path.sack && is_open && is_clean && !self.is_empty() {
            let is_one_segment = self.snd_nxt - self.snd_una <= self.path.mss;
            let at = later(now, pto_us(self.rtt.srtt_us(), is_one_segment));
            ProbeState::Scheduled(at.min(self.rto_at))
        } else {
            ProbeState::Idle
        };
    }
}

#[cfg(test)]
mod tests;
