//! Undoes a reduction of the window that was not needed, because data was late and not lost (RFC 3522 and 4015, RFC
//! 3708, RFC 5682).

use super::Congestion;
use crate::seq::SeqNumber;
use crate::tcp::clock::milliseconds;
use crate::time::Time;

/// The state that is kept from the beginning of a recovery until its end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Undo {
    /// The congestion control before the reduction.
    pub(crate) before: Congestion,
    /// `SND.UNA` when the recovery began.
    marker: SeqNumber,
    /// The end of the bytes that the recovery has retransmitted. A D-SACK after it concerns other bytes.
    end: SeqNumber,
    /// Retransmitted bytes that the peer has not reported as received twice.
    again_bytes: u32,
    /// The timestamp of the first retransmission.
    first_again_ms: Option<u32>,
}

impl Undo {
    /// The state at the begin of a recovery.
    pub(crate) const fn new(before: Congestion, snd_una: SeqNumber) -> Self {
        Self { before, marker: snd_una, end: snd_una, again_bytes: 0, first_again_ms: None }
    }

    /// Records that the recovery has retransmitted bytes.
    pub(crate) fn sent(&mut self, now: Time, end: SeqNumber, bytes: u32) {
        self.end = self.end.later(end);
        self.again_bytes = self.again_bytes.saturating_add(bytes);
        self.first_again_ms.get_or_insert_with(|| milliseconds(now));
    }

    /// Eifel detection (RFC 3522, 3.2): true if the acknowledgement of retransmitted bytes echoes a time before the
    /// retransmission.
    pub(crate) fn is_spurious_by_timestamp(&self, ts_echo: Option<u32>) -> bool {
        match (ts_echo, self.first_again_ms) {
            (Some(echo), Some(first)) => echo.wrapping_sub(first).cast_signed().is_negative(),
            _ => false,
        }
    }

    /// D-SACK (RFC 3708, 2): true if the peer has now received all retransmitted bytes twice.
    pub(crate) fn is_spurious_by_dsack(&mut self, left: SeqNumber, right: SeqNumber) -> bool {
        let is_other = left.is_before(self.marker) || right.is_after(self.end);
        if is_other || self.again_bytes == 0 {
            return false;
        }
        self.again_bytes = self.again_bytes.saturating_sub(right - left);
        self.again_bytes == 0
    }
}
