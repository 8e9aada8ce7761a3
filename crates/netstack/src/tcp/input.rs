//! Handling a segment (RFC 9293, 3.10.7.4). Read that, RFC 7323, 5 (timestamps) and RFC 5961 (challenges)
//! before changing the order of anything here.

use super::clock::seconds;
use super::connection::{Connection, Fate, Marks, Outcome};
use super::flight::{Ack, Acked};
use super::shared::Context;
use super::{Lost, TcpState};
use crate::seq::SeqNumber;
use crate::time::Time;
use crate::wire::Ecn;
use crate::wire::tcp::Header;

/// The result of the checks of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// The segment's acknowledgement, bytes and FIN count.
    Accept(SeqNumber),
    /// The segment does not count and gets no reply.
    Drop(Reason),
    /// The segment does not count. The reply is an acknowledgement, at most [`CHALLENGES_MAX`] in a second. Without
    /// the limit, two peers could exchange such acknowledgements endlessly.
    Challenge(Reason),
    /// The segment's bytes were received before: it is a retransmission, and our acknowledgement was lost.
    Repeated,
    /// The peer resets the connection.
    Reset,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reason {
    Ack,
    /// A SYN, or a reset that might be forged.
    Blind,
    Timestamp,
    Window,
}

/// The maximum challenges of a connection in a second (RFC 5961, 7).
const CHALLENGES_MAX: u8 = 5;

/// The age in seconds from which a timestamp is no longer believed: 24 days (RFC 7323, 5.5).
const TIMESTAMP_AGE_MAX: u32 = 24 * 86_400;

impl Connection {
    /// Handles a segment of the connection; `ecn` is the mark of its IP header.
    pub fn handle_segment(
        &mut self,
        now: Time,
        cx: &mut Context<'_>,
        header: &Header,
        payload: &[u8],
        ecn: Ecn,
    ) -> Outcome {
        match self.judge(now, header, payload.len()) {
            Verdict::Accept(ack) => self.accept(now, cx, header, ack, payload, ecn),
            Verdict::Drop(reason) => {
                count(cx, reason);
                Outcome::default()
            }
            Verdict::Challenge(reason) => {
                count(cx, reason);
                self.challenge(now, cx);
                Outcome::default()
            }
            Verdict::Repeated => {
                cx.shared.counters.dropped_window += 1;
                self.repeat_ack(header.seq, payload);
                Outcome::default()
            }
            Verdict::Reset => {
                cx.shared.counters.reset += 1;
                Outcome::of(Fate::Lost(Lost::Reset))
            }
        }
    }

    /// Checks a segment, in the order of RFC 9293, 3.10.7.4.
    #[inline]
    fn judge(&self, now: Time, header: &Header, payload_bytes: usize) -> Verdict {
        let flags = header.flags;
        // RFC 7323, 5.3: R1 comes before the first check.
        if self.marks.has(Marks::TIMESTAMPS) && !flags.rst {
            match header.options.timestamps {
                // RFC 7323, 3.2: once timestamps are agreed on, each segment has one.
                None => return Verdict::Drop(Reason::Timestamp),
                Some((value, _)) if self.is_old_timestamp(now, value) => {
                    return Verdict::Challenge(Reason::Timestamp);
                }
                Some(_) => {}
            }
        }
        // First: the sequence number.
        let len = u32::try_from(payload_bytes).unwrap_or(u32::MAX >> 1);
        let len = len + u32::from(flags.syn) + u32::from(flags.fin);
        if !self.is_acceptable(header.seq, len) {
            return if flags.rst {
                Verdict::Drop(Reason::Window)
            } else if len > 0 && !flags.syn && header.seq.is_before(self.rcv_nxt) {
                Verdict::Repeated
            } else {
                Verdict::Challenge(Reason::Window)
            };
        }
        // Second: RST. Its number must be exactly the next one (RFC 5961, 3.2).
        if flags.rst {
            return if self.is_only_untold() {
                // The peer may have dropped the connection and reset an acknowledgement of ours. To ignore the
                // reset does no harm, as in TIME-WAIT (RFC 1337, 3), and the application still gets its bytes.
                Verdict::Drop(Reason::Blind)
            } else if header.seq == self.rcv_nxt {
                Verdict::Reset
            } else {
                Verdict::Challenge(Reason::Blind)
            };
        }
        // Fourth: SYN (RFC 5961, 4.2).
        if flags.syn {
            return Verdict::Challenge(Reason::Blind);
        }
        // Fifth: ACK (RFC 5961, 5.2).
        let Some(ack) = header.ack else { return Verdict::Drop(Reason::Ack) };
        let oldest = SeqNumber(self.snd_una.0.wrapping_sub(self.snd_wnd_max));
        if ack - oldest > self.snd_nxt - oldest {
            return Verdict::Challenge(Reason::Ack);
        }
        Verdict::Accept(ack)
    }

    /// True if a timestamp shows that its segment is old (RFC 7323, 5.3). After a long idle time, the timestamp to
    /// compare with is itself too old (5.5).
    fn is_old_timestamp(&self, now: Time, value: u32) -> bool {
        let is_before = SeqNumber(value).is_before(SeqNumber(self.ts_recent));
        is_before && seconds(now).wrapping_sub(self.heard_s) < TIMESTAMP_AGE_MAX
    }

    /// True if a part of the segment is within the window, or the segment is at its edge: the table of RFC 9293,
    /// 3.10.7.4. While the window is closed, a segment at its edge counts for its acknowledgement and for RST; its
    /// bytes are cut off later.
    #[inline]
    fn is_acceptable(&self, seq: SeqNumber, len: u32) -> bool {
        let window = self.rcv_edge - self.rcv_nxt;
        seq == self.rcv_nxt
            || seq.is_within(self.rcv_nxt, window)
            || (len > 0 && (seq + (len - 1)).is_within(self.rcv_nxt, window))
    }

    /// Answers a segment that does not count.
    fn challenge(&mut self, now: Time, cx: &mut Context<'_>) {
        #[expect(clippy::cast_possible_truncation, reason = "two of them are compared")]
        let second = seconds(now) as u8;
        if self.challenges.0 != second {
            self.challenges = (second, 0);
        }
        if self.challenges.1 < CHALLENGES_MAX {
            self.challenges.1 += 1;
            cx.shared.counters.challenges_sent += 1;
            self.acknowledge_now();
        }
    }

    /// Takes the timestamp, the acknowledgement, the bytes and the FIN of an accepted segment.
    #[inline]
    fn accept(
        &mut self,
        now: Time,
        cx: &mut Context<'_>,
        header: &Header,
        ack: SeqNumber,
        payload: &[u8],
        ecn: Ecn,
    ) -> Outcome {
        self.hear(now);
        if let (true, Some((value, _))) =
            (self.marks.has(Marks::TIMESTAMPS), header.options.timestamps)
            && !header.seq.is_after(self.last_ack_sent)
        {
            // RFC 7323, 4.3. The checks have refused a timestamp older than the last one.
            self.ts_recent = value;
        }
        let mut outcome = if ack.is_before(self.snd_una) {
            Outcome::default()
        } else {
            self.handle_ack(now, cx, header, ack, payload.len())
        };
        if !payload.is_empty() || header.flags.fin {
            self.echo_congestion(header, ecn);
            self.handle_text(now, cx, header, payload, &mut outcome);
        }
        if outcome.fate == Fate::Keep {
            outcome.fate = self.completion();
        }
        outcome
    }

    /// The fifth check, for an acknowledgement between `SND.UNA` and `SND.NXT`.
    #[inline]
    fn handle_ack(
        &mut self,
        now: Time,
        cx: &mut Context<'_>,
        header: &Header,
        ack: SeqNumber,
        payload_bytes: usize,
    ) -> Outcome {
        let before = self.snd_una;
        let window = u32::from(header.window) << self.snd_wind_shift;
        let is_same_window = window == self.snd_wnd;
        let has_grown = window > self.snd_wnd;
        self.snd_una = ack;
        if !header.seq.is_before(self.snd_wl1) {
            self.snd_wnd = window;
            self.snd_wnd_max = self.snd_wnd_max.max(window);
            self.snd_wl1 = header.seq;
        }
        // Without `sending` nothing is in flight and nothing waits for a window.
        let Some(sending) = &mut self.sending else { return Outcome::default() };
        let Acked { room, .. } = sending.flight.handle_ack(
            now,
            &Ack {
                una: ack,
                sack: if self.marks.has(Marks::SACK) { &header.options.sack } else { &[] },
                ts_echo: match header.options.timestamps {
                    Some((_, echo)) if self.marks.has(Marks::TIMESTAMPS) => {
                        Some(echo.wrapping_sub(self.ts_offset))
                    }
                    _ => None,
                },
                ece: header.flags.ece && self.marks.has(Marks::ECN),
                is_duplicate: payload_bytes == 0 && !header.flags.fin && is_same_window,
            },
        );
        if ack == before {
            return Outcome { room: room || has_grown, ..Outcome::default() };
        }
        if ack - before >= self.mss.into() && sending.flight.mss() == self.mss.into() {
            self.marks.set(Marks::WHOLE_ARRIVED, true);
        }
        sending.doubted.take_if(|doubted| ack.is_after(doubted.seq));
        if let (Some(believed), Some((_, echo))) = (sending.believed, header.options.timestamps)
            && self.marks.has(Marks::TIMESTAMPS)
            && believed.is_refuted(before, echo.wrapping_sub(self.ts_offset))
        {
            self.disbelieve(now, cx);
        }
        self.marks.set(Marks::UNREACHABLE, false);
        // Our FIN has the last number, so it is acknowledged if all numbers are.
        if self.state == TcpState::FinWait1 && ack == self.snd_nxt {
            self.set_state(cx.shared, TcpState::FinWait2);
        }
        let acknowledged = before.is_before(self.data_nxt());
        Outcome { acknowledged, room: !acknowledged, ..Outcome::default() }
    }

    /// Records the congestion marks of a segment with data (RFC 3168, 6.1.3).
    fn echo_congestion(&mut self, header: &Header, ecn: Ecn) {
        if self.marks.has(Marks::ECN) {
            let echo = self.marks.has(Marks::ECHO) && !header.flags.cwr;
            self.marks.set(Marks::ECHO, echo || ecn == Ecn::Ce);
        }
    }
}

fn count(cx: &mut Context<'_>, reason: Reason) {
    let counters = &mut cx.shared.counters;
    match reason {
        Reason::Ack => counters.dropped_ack += 1,
        Reason::Blind => counters.dropped_blind += 1,
        Reason::Timestamp => counters.dropped_timestamp += 1,
        Reason::Window => counters.dropped_window += 1,
    }
}

#[cfg(test)]
mod tests;
