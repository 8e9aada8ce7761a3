//! Proportional rate reduction (RFC 6937 and its successor): the bytes sent per bytes delivered while the window
//! shrinks.

/// The state of one reduction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Prr {
    /// Bytes in flight at the begin of the reduction: `RecoverFS`.
    recover_fs: u32,
    /// Bytes delivered since the begin.
    delivered: u32,
    /// Bytes sent since the begin.
    out: u32,
}

impl Prr {
    /// Begins a reduction with `flight_bytes` bytes between `SND.UNA` and `SND.NXT`.
    pub(crate) fn new(flight_bytes: u32) -> Self {
        Self { recover_fs: flight_bytes.max(1), delivered: 0, out: 0 }
    }

    /// Records sent bytes.
    pub(crate) fn sent(&mut self, bytes: u32) {
        self.out = self.out.saturating_add(bytes);
    }

    /// Returns the number of bytes that an acknowledgement allows to send. `is_safe` is true if it advanced
    /// `SND.UNA` and showed no further loss.
    pub(crate) fn handle_ack(
        &mut self,
        delivered: u32,
        pipe: u32,
        ssthresh: u32,
        mss: u32,
        is_safe: bool,
    ) -> u32 {
        self.delivered = self.delivered.saturating_add(delivered);
        let bytes = if pipe > ssthresh {
            // Proportional: the share of the window that remains is the share of delivered bytes that may leave.
            let share = u64::from(self.delivered) * u64::from(ssthresh);
            let due = share.div_ceil(u64::from(self.recover_fs));
            u32::try_from(due).unwrap_or(u32::MAX).saturating_sub(self.out)
        } else {
            // More was lost than the reduction wanted. As many bytes leave as were delivered, and one segment more
            // if that is safe, up to the threshold.
            let due = self.delivered.saturating_sub(self.out).max(delivered);
            let due = if is_safe { due.saturating_add(mss) } else { due };
            due.min(ssthresh - pipe)
        };
        // The fast retransmission never waits.
        if self.out == 0 { bytes.max(mss) } else { bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: u32 = 1_000;

    #[test]
    fn half_leaves_of_what_arrives_while_more_than_the_threshold_is_in_flight() {
        let mut prr = Prr::new(100 * MSS);
        let (mut pipe, mut sent) = (99 * MSS, 0);
        for _ in 0..98 {
            pipe -= MSS;
            let bytes = prr.handle_ack(MSS, pipe, 50 * MSS, MSS, false) / MSS * MSS;
            prr.sent(bytes);
            (pipe, sent) = (pipe + bytes, sent + bytes);
        }
        assert!((49..=51).contains(&(sent / MSS)), "{sent}");
        assert!((49..=51).contains(&(pipe / MSS)), "{pipe}");
    }

    #[test]
    fn after_many_losses_the_pipe_is_filled_no_faster_than_slow_start() {
        for (is_safe, per_ack) in [(false, MSS), (true, 2 * MSS)] {
            let mut prr = Prr::new(100 * MSS);
            let first = prr.handle_ack(MSS, 10 * MSS, 50 * MSS, MSS, is_safe);
            prr.sent(first);
            for _ in 0..5 {
                let bytes = prr.handle_ack(MSS, 10 * MSS, 50 * MSS, MSS, is_safe);
                assert_eq!(bytes, per_ack);
                prr.sent(bytes);
            }
            assert_eq!(prr.handle_ack(MSS, 50 * MSS - 300, 50 * MSS, MSS, is_safe), 300);
        }
    }

    #[test]
    fn the_first_retransmission_leaves_at_once() {
        let mut prr = Prr::new(100 * MSS);
        assert_eq!(prr.handle_ack(MSS, 99 * MSS, MSS, MSS, false), MSS);
        let mut prr = Prr::new(0);
        assert_eq!(prr.handle_ack(0, 0, 2 * MSS, MSS, false), MSS);
    }
}
