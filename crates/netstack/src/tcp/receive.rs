//! Takes the bytes and the FIN of a segment, and decides when to acknowledge them: the seventh and the eighth step
//! of RFC 9293, 3.10.7.4.

use core::ops::Range;
use core::time::Duration;

use super::TcpState;
use super::connection::{Connection, Fate, Marks, Outcome};
use super::held::RANGE_COST;
use super::shared::{Context, HELD_BYTES_MAX};
use crate::seq::SeqNumber;
use crate::time::Time;
use crate::wire::tcp::Header;

/// The longest delay of an acknowledgement (RFC 9293, 3.8.6.3 allows 500 ms; Linux begins with 40 ms).
const ACK_DELAY: Duration = Duration::from_millis(40);

impl Connection {
    /// Handles the bytes and the FIN of an acceptable segment, which has at least one of them.
    #[inline]
    pub(super) fn handle_text(
        &mut self,
        now: Time,
        cx: &mut Context<'_>,
        header: &Header,
        payload: &[u8],
        outcome: &mut Outcome,
    ) {
        let seq = header.seq;
        let end = seq + len(payload);
        if self.state.has_ended() {
            // Nothing follows a FIN.
            return self.acknowledge_now();
        }
        if self.is_orphan() && end.is_after(self.rcv_nxt) {
            // No application will receive the bytes (RFC 9293, 3.6.1).
            outcome.fate = Fate::Reset;
            return;
        }
        let (from, to) = (seq.later(self.rcv_nxt), end.earlier(self.rcv_edge));
        if from != seq || to != end {
            // A part of the segment came before, or the peer probes a closed window.
            self.repeat_ack(seq, &payload[..index(from.earlier(end) - seq)]);
        }
        if to.is_after(from) {
            let bytes = index(from - seq)..index(to - seq);
            if from == self.rcv_nxt {
                self.take(now, cx, payload, bytes, outcome);
            } else {
                self.keep(cx, from, &payload[bytes]);
            }
        }
        // A FIN after a gap is kept until the gap is filled.
        if header.flags.fin && to == end && end != self.rcv_nxt {
            self.held.get_or_insert_default().note_fin(end);
            self.acknowledge_now();
        }
        let is_late = self.held.as_mut().is_some_and(|held| held.take_fin(self.rcv_nxt));
        if is_late || (header.flags.fin && end == self.rcv_nxt) {
            self.handle_end(cx, outcome);
        }
    }

    /// Handles the next bytes of the stream.
    #[inline]
    fn take(
        &mut self,
        now: Time,
        cx: &mut Context<'_>,
        payload: &[u8],
        bytes: Range<usize>,
        outcome: &mut Outcome,
    ) {
        if self.held.is_none() && self.marks.has(Marks::RECEIVING) {
            self.rcv_nxt += len(&payload[bytes.clone()]);
            outcome.received = bytes;
            return self.schedule_ack(now);
        }
        self.take_beside_held(now, cx, payload, bytes, outcome);
    }

    /// Handles the next bytes of the stream while other bytes are held, or these have to be.
    fn take_beside_held(
        &mut self,
        now: Time,
        cx: &mut Context<'_>,
        payload: &[u8],
        bytes: Range<usize>,
        outcome: &mut Outcome,
    ) {
        let is_receiving = self.marks.has(Marks::RECEIVING);
        let held = self.held.get_or_insert_default();
        let n = len(&payload[bytes.clone()]);
        if is_receiving && held.unread_bytes() == 0 {
            outcome.received = bytes;
        } else if cx.shared.held_bytes + bytes.len() <= HELD_BYTES_MAX {
            cx.shared.held_bytes += bytes.len();
            held.push_unread(&payload[bytes]);
        } else {
            cx.shared.counters.dropped_held += 1;
            return self.acknowledge_now();
        }
        let had_gap = held.is_out_of_order();
        let before = held.bytes();
        self.rcv_nxt = held.join(self.rcv_nxt + n);
        cx.shared.held_bytes -= before - held.bytes();
        outcome.more = is_receiving && held.unread_bytes() > 0;
        if had_gap {
            // RFC 5681, 4.2: a segment that fills a gap is acknowledged at once.
            self.acknowledge_now();
        } else {
            self.schedule_ack(now);
        }
        self.drop_held_if_empty();
    }

    /// Holds bytes that came out of order.
    fn keep(&mut self, cx: &mut Context<'_>, from: SeqNumber, bytes: &[u8]) {
        // RFC 5681, 4.2: an acknowledgement at once, so that the peer learns of the gap.
        self.acknowledge_now();
        let held = self.held.get_or_insert_default();
        let before = held.bytes();
        let has_room = cx.shared.held_bytes + RANGE_COST + bytes.len() <= HELD_BYTES_MAX;
        if has_room && held.insert(from, bytes) {
            cx.shared.counters.out_of_order += 1;
        } else {
            cx.shared.counters.dropped_held += 1;
        }
        cx.shared.held_bytes = cx.shared.held_bytes - before + held.bytes();
        self.drop_held_if_empty();
    }

    /// Handles the peer's FIN after all bytes in front of it.
    fn handle_end(&mut self, cx: &mut Context<'_>, outcome: &mut Outcome) {
        if let Some(held) = &mut self.held {
            cx.shared.held_bytes -= held.drop_out_of_order();
            self.drop_held_if_empty();
        }
        self.rcv_nxt += 1;
        // If the peer has used up the window, its FIN is after the window.
        self.rcv_edge = self.rcv_edge.later(self.rcv_nxt);
        let next = match self.state {
            TcpState::Established => TcpState::CloseWait,
            // CLOSING with our FIN acknowledged is the end of FIN-WAIT-2: see `completion`.
            TcpState::FinWait1 | TcpState::FinWait2 => TcpState::Closing,
            TcpState::CloseWait | TcpState::Closing | TcpState::LastAck => {
                unreachable!("nothing follows a FIN")
            }
        };
        self.set_state(cx.shared, next);
        self.acknowledge_now();
        // Held bytes are reported first: `receive` or `set_receiving`.
        outcome.ended = self.marks.has(Marks::RECEIVING);
        self.marks.set(Marks::END_UNTOLD, !outcome.ended && !self.is_orphan());
    }

    /// Sets whether the application receives bytes. Otherwise bytes are held up to the receive window, and then the
    /// window is closed (back-pressure).
    pub fn set_receiving(&mut self, on: bool) -> Outcome {
        self.marks.set(Marks::RECEIVING, on);
        let ended = on && self.marks.has(Marks::END_UNTOLD);
        if ended {
            self.marks.set(Marks::END_UNTOLD, false);
        }
        Outcome {
            more: on && self.unread_bytes() > 0,
            ended,
            fate: self.completion(),
            ..Outcome::default()
        }
    }

    /// Hands over the held bytes that are next in order.
    pub fn receive(&mut self, cx: &mut Context<'_>, mut take: impl FnMut(&[u8])) {
        let Some(held) = &mut self.held else { return };
        let bytes = held.take_unread();
        cx.shared.held_bytes -= bytes.len();
        self.drop_held_if_empty();
        if !bytes.is_empty() {
            take(&bytes);
        }
        if !self.state.has_ended() && self.next_edge(cx.config) != self.rcv_edge {
            self.acknowledge_now();
        }
    }

    /// The end of the window that can be announced now. It moves by at least a segment or half of the window (RFC
    /// 9293, 3.8.6.2.2).
    pub(super) fn next_edge(&self, config: &crate::Config) -> SeqNumber {
        let unread = u32::try_from(self.unread_bytes()).unwrap_or(u32::MAX);
        let max = config.receive_bytes_max.min(0xffff << self.rcv_wind_shift);
        let edge = self.rcv_nxt + max.saturating_sub(unread);
        let step = u32::from(self.mss).min(max / 2);
        // On the circle, an edge in front of the announced edge counts as far after it.
        let gain = edge - self.rcv_edge;
        if gain >= step && gain <= u32::MAX >> 1 { edge } else { self.rcv_edge }
    }

    /// The bytes in order that the application does not have yet.
    #[must_use]
    pub fn unread_bytes(&self) -> usize {
        self.held.as_ref().map_or(0, |held| held.unread_bytes())
    }

    /// Makes an acknowledgement leave with the batch.
    pub(super) const fn acknowledge_now(&mut self) {
        self.ack_at = Time::from_nanos(0);
    }

    /// Makes an acknowledgement leave with the second full segment, or after the delay (RFC 5681, 4.2).
    #[inline]
    fn schedule_ack(&mut self, now: Time) {
        if self.quick_acks > 0 {
            self.quick_acks -= 1;
            self.acknowledge_now();
        } else if self.rcv_nxt - self.last_ack_sent >= 2 * u32::from(self.mss) {
            self.acknowledge_now();
        } else {
            self.ack_at = self.ack_at.min(now + ACK_DELAY);
        }
    }

    /// Acknowledges bytes again that came before, and reports them as duplicates (RFC 2883).
    pub(super) fn repeat_ack(&mut self, seq: SeqNumber, payload: &[u8]) {
        self.acknowledge_now();
        if self.marks.has(Marks::SACK) && !payload.is_empty() {
            let right = (seq + len(payload)).earlier(self.rcv_nxt);
            self.held.get_or_insert_default().note_duplicate(seq, right);
        }
    }

    pub(super) fn drop_held_if_empty(&mut self) {
        self.held.take_if(|held| held.is_empty());
    }
}

/// The length of a segment's payload.
#[expect(clippy::cast_possible_truncation, reason = "the length field of IP has 16 bits")]
pub(super) const fn len(payload: &[u8]) -> u32 {
    payload.len() as u32
}

const fn index(n: u32) -> usize {
    n as usize
}

#[cfg(test)]
mod tests;
