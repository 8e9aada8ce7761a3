//! Handles an acknowledgement: the bytes that it delivers, the losses that it shows, and its effect on the window.

use super::{Ack, Acked, Flight, Phase, ProbeState};
use crate::seq::SeqNumber;
use crate::tcp::clock::{elapsed_us, later, milliseconds};
use crate::tcp::congestion::undo::Undo;
use crate::tcp::congestion::{Growth, Signals};
use crate::tcp::recovery::probe::Verdict;
use crate::tcp::recovery::prr::Prr;
use crate::tcp::recovery::rack::DUP_THRESH;
use crate::tcp::recovery::sent::{Delivery, Newest};
use crate::time::Time;

/// The maximum segments that an acknowledgement adds to the window after a timeout (`L` of RFC 3465, 2.3), because
/// it may be for data that had left long before.
const GROWTH_AFTER_TIMEOUT_SEGMENTS: u32 = 2;

/// The minimum time before a peer counts as reneging on its selective acknowledgements, as in Linux
/// (`tcp_check_sack_reneging`). Reordered acknowledgements look the same for a moment.
const RENEGED_US_MIN: u64 = 10_000;

/// A block that reports bytes received twice (RFC 2883).
type Dsack = (SeqNumber, SeqNumber);

impl Flight {
    /// Handles an acknowledgement.
    pub fn handle_ack(&mut self, now: Time, ack: &Ack<'_>) -> Acked {
        let bytes = ack.una - self.snd_una;
        let flight_before = self.snd_nxt - self.snd_una;
        if bytes > flight_before {
            return Acked::default();
        }
        if bytes > 0 && ack.sack.is_empty() && !ack.ece && self.is_undisturbed() {
            return self.handle_plain_ack(now, ack.una, bytes, flight_before);
        }
        let mut delivery = Delivery::new(now, ack.ts_echo, self.rtt.min_us());
        self.sent.acknowledge(ack.una, &mut delivery);
        self.snd_una = ack.una;
        let mut dsack = None;
        if !self.path.sack {
            self.count_duplicates(ack, bytes, &mut delivery);
        } else if !ack.sack.is_empty() {
            dsack = self.take_blocks(ack, &mut delivery);
        }
        self.measure(now, ack, bytes, &delivery);
        if self.is_window_closed {
            // The peer may leave its window closed as long as it answers.
            self.timeouts = 0;
        }
        if bytes > 0 {
            self.timeouts = 0;
            if self.is_window_closed {
                self.is_window_closed = false;
                self.rtt.forgive();
            }
            self.restart_rto(now);
            if matches!(self.probe, ProbeState::Due) {
                self.probe = ProbeState::Idle;
            }
        }

        self.undo_if_spurious(now, ack, bytes, dsack, &delivery);
        let has_ended = self.end_phase();
        let is_worse = self.detect(now, bytes);
        let must_reduce = self.judge_probe(ack, bytes, dsack) | self.heed_ece(ack);
        self.inform_model(now, delivery.bytes, delivery.newest.as_ref(), is_worse | must_reduce);
        if is_worse {
            self.begin_recovery();
        } else if must_reduce {
            self.begin_reducing();
        }
        self.resize(now, bytes, flight_before, &delivery, is_worse, has_ended);
        if self.sent.is_reneged() {
            let patience_us = u64::from(self.rtt.srtt_us() / 2).max(RENEGED_US_MIN);
            self.rto_at = self.rto_at.min(later(now, patience_us));
        }
        self.schedule_probe(now);
        Acked {
            bytes,
            room: bytes > 0 || delivery.bytes > 0 || self.dup_acks > 0 || self.sent.lost() > 0,
        }
    }

    /// True in the common case: all bytes were sent once and in order, none is missing, and the flight waits only
    /// for acknowledgements.
    #[inline]
    fn is_undisturbed(&self) -> bool {
        matches!(self.phase, Phase::Open)
            && self.undo.is_none()
            && !matches!(self.probe, ProbeState::Out(_))
            && self.sent.is_plain()
            && self.dup_acks == 0
            && !self.is_window_closed
    }

    /// The fast path of an advance while the flight is [undisturbed](Self::is_undisturbed). It has the same effect
    /// as [`handle_ack`](Self::handle_ack).
    #[inline]
    fn handle_plain_ack(
        &mut self,
        now: Time,
        una: SeqNumber,
        bytes: u32,
        flight_before: u32,
    ) -> Acked {
        let Some((oldest_sent_at, newest)) = self.sent.acknowledge_plain(una) else {
            return Acked::default();
        };
        self.snd_una = una;
        let rtt_us = elapsed_us(now, newest.sent_at);
        let oldest_us =
            if oldest_sent_at == newest.sent_at { rtt_us } else { elapsed_us(now, oldest_sent_at) };
        self.rtt.sample(oldest_us);
        self.rack.handle_in_order(newest, rtt_us);
        self.rtt.note_least(now, rtt_us);
        self.timeouts = 0;
        self.reorder_at = None;
        self.inform_model(now, bytes, Some(&newest), false);
        self.grow(now, bytes, flight_before, rtt_us);
        self.probe = ProbeState::Idle;
        if !self.is_empty() {
            self.restart_rto(now);
            self.schedule_probe(now);
        }
        Acked { bytes, room: true }
    }

    /// Reports delivered and lost bytes to the model of the path, if there is one.
    #[inline]
    pub(super) fn inform_model(
        &mut self,
        now: Time,
        bytes: u32,
        newest: Option<&Newest>,
        has_loss: bool,
    ) {
        if !self.congestion.has_model() {
            return;
        }
        let sample = self.sent.sample(now, bytes, newest, self.rtt.min_us());
        self.congestion.handle_signals(&Signals {
            now,
            sample,
            delivered: self.sent.delivered(),
            newly_acked: bytes,
            has_loss,
            rtt_us: newest.map_or(0, |newest| elapsed_us(now, newest.sent_at)),
            inflight: self.pipe(),
            is_cwnd_limited: !self.snd_una.is_after(self.limited_until),
        });
    }

    /// Grows the window if it was full. A window that was not full is untested (RFC 7661, 3). In slow start a
    /// half-full window is enough, because the rest was on its way.
    #[inline]
    fn grow(&mut self, now: Time, bytes: u32, flight_before: u32, rtt_us: u32) {
        let congestion = &mut self.congestion;
        if congestion.has_model() {
            return;
        }
        let is_limited = !self.snd_una.is_after(self.limited_until)
            || congestion.is_slow_start() && congestion.cwnd() < 2 * flight_before;
        if is_limited {
            congestion.grow(&Growth {
                now,
                bytes,
                una: self.snd_una,
                snd_nxt: self.snd_nxt,
                rtt_us,
                srtt_us: self.rtt.srtt_us(),
            });
        }
    }

    /// Handles an expired reordering timer (RFC 8985, 6.3).
    pub(super) fn handle_reorder_timer(&mut self, now: Time) {
        if self.detect(now, 0) {
            self.begin_recovery();
            let nothing = Delivery::new(now, None, 0);
            self.inform_model(now, 0, None, true);
            self.resize(now, 0, 0, &nothing, true, false);
        }
    }

    /// Marks the bytes that the blocks cover; returns a D-SACK if there is one.
    fn take_blocks(&mut self, ack: &Ack<'_>, delivery: &mut Delivery) -> Option<Dsack> {
        let mut dsack = None;
        for (i, &(left, right)) in ack.sack.iter().enumerate() {
            if !left.is_before(right) || right.is_after(self.snd_nxt) {
                continue;
            }
            // RFC 2883, 4: the first block lies below the acknowledgement or within the second block.
            let is_within_next = ack.sack.get(1).is_some_and(|&(next_left, next_right)| {
                !left.is_before(next_left) && !right.is_after(next_right)
            });
            if i == 0 && (!right.is_after(ack.una) || is_within_next) {
                dsack = Some((left, right));
                continue;
            }
            let left = left.later(ack.una);
            if left.is_before(right) {
                self.sent.sack(left, right, self.path.mss, delivery);
            }
        }
        if dsack.is_some() {
            self.rack.handle_dsack(ack.una, self.snd_nxt);
        }
        dsack
    }

    /// Without SACK a duplicate means that one segment has arrived, and an advance shows which segments the duplicates
    /// were for. Fewer than three duplicates may be copies of one acknowledgement, so they deliver nothing. Otherwise a
    /// peer that sends each acknowledgement three times would look twice as fast to the model.
    fn count_duplicates(&mut self, ack: &Ack<'_>, bytes: u32, delivery: &mut Delivery) {
        let mss = self.path.mss;
        let is_recovery = matches!(self.phase, Phase::Recovery { .. });
        if bytes > 0 {
            let has_counted = is_recovery || self.dup_acks >= DUP_THRESH;
            let counted = match self.phase {
                Phase::Recovery { .. } => self.dup_acks.min((bytes / mss).saturating_sub(1)),
                _ => self.dup_acks,
            };
            self.dup_acks -= counted;
            if has_counted {
                delivery.bytes = delivery.bytes.saturating_sub(counted * mss);
            }
        } else if ack.is_duplicate
            && !self.is_empty()
            && !self.is_window_closed
            && !matches!(self.phase, Phase::Loss { .. })
        {
            // Segments may be small, so the first three count with any number of bytes in flight.
            let arrived = self.pipe().min(mss);
            if arrived == mss || self.dup_acks < DUP_THRESH {
                self.dup_acks += 1;
                if is_recovery || self.dup_acks >= DUP_THRESH {
                    delivery.bytes += arrived;
                }
            }
        }
    }

    /// Measures the round trip (RFC 6298, 3, and RFC 7323, 4.3).
    fn measure(&mut self, now: Time, ack: &Ack<'_>, bytes: u32, delivery: &Delivery) {
        if let Some(sent_at) = delivery.oldest_sent_at
            && !delivery.has_again
        {
            self.rtt.sample(elapsed_us(now, sent_at));
        } else if bytes > 0
            && let Some(echo) = ack.ts_echo
        {
            let ms = milliseconds(now).wrapping_sub(echo);
            // The other half of the circle is in the future.
            if !ms.cast_signed().is_negative() {
                self.rtt.sample(ms.saturating_mul(1_000));
            }
        }
        self.rack.handle_delivery(now, delivery);
        if delivery.newest.is_some() {
            self.rtt.note_least(now, self.rack.rtt_us());
        }
    }

    /// Undoes a recovery that was not needed.
    fn undo_if_spurious(
        &mut self,
        now: Time,
        ack: &Ack<'_>,
        bytes: u32,
        dsack: Option<Dsack>,
        delivery: &Delivery,
    ) {
        let Some(undo) = &mut self.undo else { return };
        let is_active = matches!(self.phase, Phase::Recovery { .. } | Phase::Loss { .. });
        let by_timestamp = is_active && bytes > 0 && undo.is_spurious_by_timestamp(ack.ts_echo);
        let by_dsack = dsack.is_some_and(|(left, right)| undo.is_spurious_by_dsack(left, right));
        // RFC 5682, 3.1: after the timeout the peer received bytes that were sent before it and not retransmitted.
        // Timestamps show this more exactly.
        let by_delivery = matches!(self.phase, Phase::Loss { .. })
            && self.path.sack
            && ack.ts_echo.is_none()
            && delivery.was_not_lost;
        if !(by_timestamp || by_dsack || by_delivery) {
            return;
        }
        self.congestion.undo(&undo.before);
        self.undo = None;
        self.rack.note_reordering();
        self.rtt.forgive();
        if is_active {
            self.phase = Phase::Open;
            self.sent.mark_none_lost();
            self.dup_acks = 0;
            self.restart_rto(now);
        }
    }

    /// Ends the phase if all bytes in flight at its begin are acknowledged. Returns true if a reduction has ended.
    fn end_phase(&mut self) -> bool {
        let (until, is_recovery) = match self.phase {
            Phase::Open => return false,
            Phase::Reducing { until, .. } | Phase::Loss { until } => (until, false),
            Phase::Recovery { until, .. } => (until, true),
        };
        if self.snd_una.is_before(until) {
            return false;
        }
        let has_reduced = !matches!(self.phase, Phase::Loss { .. });
        if has_reduced || self.congestion.has_model() {
            self.congestion.end_reduction();
        }
        if is_recovery {
            self.rack.handle_recovered();
            self.recover = until;
            self.dup_acks = 0;
        }
        self.phase = Phase::Open;
        has_reduced
    }

    /// Marks lost bytes; returns true if more bytes are lost than before.
    fn detect(&mut self, now: Time, bytes: u32) -> bool {
        let lost_before = self.sent.lost();
        let is_recovering = matches!(self.phase, Phase::Recovery { .. } | Phase::Loss { .. });
        if self.path.sack {
            self.reorder_at = None;
            if self.sent.is_in_order() {
                return false;
            }
            let (min_rtt_us, srtt_us) = (self.rtt.min_us(), self.rtt.srtt_us());
            let is_sure = is_recovering || self.sent.sacked() >= DUP_THRESH * self.path.mss;
            self.reorder_at = self.rack.detect(now, &mut self.sent, is_sure, min_rtt_us, srtt_us);
        } else if matches!(self.phase, Phase::Recovery { .. }) {
            // RFC 6582, 3.2, step 3: a partial acknowledgement shows the next loss.
            if bytes > 0 {
                self.sent.mark_first_lost(self.path.mss);
            }
        } else if self.dup_acks >= DUP_THRESH && self.snd_una.is_after(self.recover) {
            self.sent.mark_first_lost(self.path.mss);
        }
        self.sent.lost() > lost_before
    }

    /// Begins to retransmit lost bytes, unless a recovery is under way.
    fn begin_recovery(&mut self) {
        let until = self.snd_nxt;
        match self.phase {
            Phase::Open => {
                self.undo = Some(Undo::new(self.congestion, self.snd_una));
                let prr = self.reduce();
                self.phase = Phase::Recovery { until, prr };
            }
            // The window is already shrinking.
            Phase::Reducing { prr, .. } => self.phase = Phase::Recovery { until, prr },
            Phase::Recovery { .. } | Phase::Loss { .. } => {}
        }
        self.probe = ProbeState::Idle;
    }

    /// Begins to shrink the window, unless it is already shrinking.
    fn begin_reducing(&mut self) {
        if matches!(self.phase, Phase::Open) {
            self.undo = None;
            let prr = self.reduce();
            if self.is_empty() {
                self.congestion.end_reduction();
            } else {
                self.phase = Phase::Reducing { until: self.snd_nxt, prr };
            }
        }
    }

    fn reduce(&mut self) -> Prr {
        self.congestion.reduce(self.window_in_use());
        Prr::new(self.snd_nxt - self.snd_una)
    }

    /// Judges the probe in flight. Returns true if it has repaired a loss.
    fn judge_probe(&mut self, ack: &Ack<'_>, bytes: u32, dsack: Option<Dsack>) -> bool {
        let ProbeState::Out(probe) = self.probe else { return false };
        let is_duplicate = ack.is_duplicate && bytes == 0 && ack.sack.is_empty();
        let verdict = probe.judge(self.snd_una, dsack.map(|(_, right)| right), is_duplicate);
        if verdict != Verdict::Open {
            self.probe = ProbeState::Idle;
        }
        verdict == Verdict::Repaired
    }

    /// Returns true if the acknowledgement echoes congestion to which the flight has not reacted yet (RFC 3168,
    /// 6.1.2).
    fn heed_ece(&mut self, ack: &Ack<'_>) -> bool {
        let is_news = ack.ece && self.snd_una.is_after(self.ece_heeded);
        if is_news {
            self.ece_heeded = self.snd_nxt;
            self.cwr_is_due = true;
        }
        is_news
    }

    /// Sizes the congestion window.
    fn resize(
        &mut self,
        now: Time,
        bytes: u32,
        flight_before: u32,
        delivery: &Delivery,
        is_worse: bool,
        has_ended: bool,
    ) {
        if self.congestion.has_model() {
            return;
        }
        let (pipe, mss) = (self.pipe(), self.path.mss);
        let rtt_us = if delivery.newest.is_some() { self.rack.rtt_us() } else { 0 };
        match &mut self.phase {
            Phase::Reducing { prr, .. } | Phase::Recovery { prr, .. } => {
                let ssthresh = self.congestion.ssthresh();
                let is_safe = bytes > 0 && !is_worse;
                let out = prr.handle_ack(delivery.bytes, pipe, ssthresh, mss, is_safe);
                self.congestion.set_cwnd(pipe.saturating_add(out));
            }
            Phase::Loss { .. } => {
                let bytes = delivery.bytes.min(GROWTH_AFTER_TIMEOUT_SEGMENTS * mss);
                self.grow(now, bytes, flight_before, rtt_us);
            }
            Phase::Open if bytes > 0 && !has_ended => self.grow(now, bytes, flight_before, rtt_us),
            Phase::Open => {}
        }
    }
}
