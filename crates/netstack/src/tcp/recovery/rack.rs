//! Recent acknowledgement: a segment is lost if a later one has arrived, and more time has passed than reordering
//! explains (RFC 8985, 6).

use super::sent::{Delivery, Newest, Sent};
use crate::seq::SeqNumber;
use crate::tcp::clock::elapsed_us;
use crate::time::Time;

/// `RACK.reo_wnd_persist`: the recoveries without a D-SACK before the window shrinks again.
const PERSIST_RECOVERIES: u8 = 16;

/// `DupThresh` in segments.
pub(crate) const DUP_THRESH: u32 = 3;

/// The state of RFC 8985, 5.2.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rack {
    /// `RACK.xmit_ts` and `RACK.end_seq`; none before the first acknowledgement.
    newest: Option<Newest>,
    /// `RACK.rtt` in microseconds.
    rtt_us: u32,
    /// `RACK.fack`: the highest byte that was delivered.
    fack: SeqNumber,
    /// `RACK.reordering_seen`.
    reordering_seen: bool,
    /// `RACK.reo_wnd_mult`: quarters of the minimum round trip.
    reo_wnd_mult: u8,
    /// `RACK.reo_wnd_persist`.
    reo_wnd_persist: u8,
    /// `RACK.dsack_round`: the window does not grow further before this number is acknowledged.
    dsack_round: Option<SeqNumber>,
}

impl Rack {
    /// The state while nothing is in flight.
    pub(crate) const fn new(snd_una: SeqNumber) -> Self {
        Self {
            newest: None,
            rtt_us: 0,
            fack: snd_una,
            reordering_seen: false,
            reo_wnd_mult: 1,
            reo_wnd_persist: PERSIST_RECOVERIES,
            dsack_round: None,
        }
    }

    /// The round trip of the transmission that was delivered last.
    pub(crate) const fn rtt_us(&self) -> u32 {
        self.rtt_us
    }

    /// Steps 1 to 3: records delivered bytes.
    pub(crate) fn handle_delivery(&mut self, now: Time, delivery: &Delivery) {
        if let Some(newest) = delivery.newest {
            let is_newer = self.newest.is_none_or(|known| {
                known.sent_at < newest.sent_at
                    || known.sent_at == newest.sent_at && known.end.is_before(newest.end)
            });
            if is_newer {
                self.newest = Some(newest);
            }
            self.rtt_us = elapsed_us(now, newest.sent_at);
        }
        self.reordering_seen |= delivery.lowest_once.is_some_and(|end| end.is_before(self.fack));
        if let Some(highest) = delivery.highest {
            self.fack = self.fack.later(highest);
        }
    }

    /// The same for bytes that were sent once and delivered in order; their end is the highest.
    pub(crate) fn handle_in_order(&mut self, newest: Newest, rtt_us: u32) {
        self.newest = Some(newest);
        self.rtt_us = rtt_us;
        self.fack = newest.end;
    }

    /// Handles a D-SACK: a retransmission was not needed, so the network reorders by more than the window.
    pub(crate) fn handle_dsack(&mut self, una: SeqNumber, snd_nxt: SeqNumber) {
        self.note_reordering();
        if self.dsack_round.is_none_or(|round| !una.is_before(round)) {
            self.dsack_round = Some(snd_nxt);
            self.reo_wnd_mult = self.reo_wnd_mult.saturating_add(1);
            self.reo_wnd_persist = PERSIST_RECOVERIES;
        }
    }

    /// Records that the network reorders: bytes that counted as lost have arrived.
    pub(crate) fn note_reordering(&mut self) {
        self.reordering_seen = true;
    }

    /// Handles the end of a recovery.
    pub(crate) fn handle_recovered(&mut self) {
        self.reo_wnd_persist = self.reo_wnd_persist.saturating_sub(1);
        if self.reo_wnd_persist == 0 {
            self.reo_wnd_mult = 1;
        }
    }

    /// Step 4: the time in microseconds by which a segment may be late.
    fn reo_wnd_us(&self, is_sure: bool, min_rtt_us: u32, srtt_us: u32) -> u64 {
        if is_sure && !self.reordering_seen {
            return 0;
        }
        (u64::from(self.reo_wnd_mult) * u64::from(min_rtt_us) / 4).min(u64::from(srtt_us))
    }

    /// Step 5: marks lost bytes. Returns the time of the next check. `is_sure` is true if enough segments were
    /// delivered after a gap for a loss by `DUP_THRESH`, or if a recovery is under way.
    pub(crate) fn detect(
        &self,
        now: Time,
        sent: &mut Sent,
        is_sure: bool,
        min_rtt_us: u32,
        srtt_us: u32,
    ) -> Option<Time> {
        let newest = self.newest?;
        let reo_wnd_us = self.reo_wnd_us(is_sure, min_rtt_us, srtt_us);
        sent.mark_lost_by_time(now, newest, u64::from(self.rtt_us) + reo_wnd_us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rfc8985_6_2_step_4_the_window_follows_reordering() {
        let mut rack = Rack::new(SeqNumber(0));
        let window = |rack: &Rack, is_sure| rack.reo_wnd_us(is_sure, 20_000, 30_000);
        assert_eq!((window(&rack, true), window(&rack, false)), (0, 5_000));
        rack.note_reordering();
        assert_eq!(window(&rack, true), 5_000);
        // One step for each round trip with a D-SACK, up to the smoothed round trip.
        let at = |n: u32| SeqNumber(n);
        rack.handle_dsack(at(10), at(20));
        rack.handle_dsack(at(19), at(30));
        assert_eq!(window(&rack, true), 10_000);
        for round in 2..400 {
            rack.handle_dsack(at(round * 10), at(round * 10 + 10));
        }
        assert_eq!(window(&rack, true), 30_000);
        for _ in 0..PERSIST_RECOVERIES {
            assert_eq!(window(&rack, true), 30_000);
            rack.handle_recovered();
        }
        assert_eq!(window(&rack, true), 5_000);
    }
}
