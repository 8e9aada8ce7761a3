//! Tail loss probes: one segment that makes the peer acknowledge the data it has (RFC 8985, 7).

use crate::seq::SeqNumber;

/// The maximum delay of a peer's acknowledgement: `TLP.max_ack_delay`, as with Linux.
const MAX_ACK_DELAY_US: u64 = 200_000;

/// The timeout before a round trip was measured (RFC 8985, 7.2).
const PTO_INITIAL_US: u64 = 1_000_000;

/// The minimum timeout, as in Linux (`TCP_TIMEOUT_MIN_US`): an earlier probe would come before a busy peer answers.
const PTO_MIN_US: u64 = 2_000;

/// The probe timeout in microseconds. A single segment may be acknowledged late.
pub(crate) fn pto_us(srtt_us: u32, is_one_segment: bool) -> u64 {
    let pto = match srtt_us {
        0 => PTO_INITIAL_US,
        srtt => 2 * u64::from(srtt),
    };
    pto + if is_one_segment { MAX_ACK_DELAY_US } else { PTO_MIN_US }
}

/// A probe that was sent and is not yet acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Probe {
    /// `TLP.end_seq`: `SND.NXT` at the transmission of the probe.
    pub(crate) end: SeqNumber,
    /// `TLP.is_retrans`: true if the probe carried bytes that had been sent before.
    pub(crate) is_again: bool,
}

/// The meaning of an acknowledgement for a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The probe is still unanswered.
    Open,
    /// The peer had all bytes before the probe.
    NothingLost,
    /// The probe has repaired a loss: the congestion window has to shrink as for any loss.
    Repaired,
}

impl Probe {
    /// Judges an acknowledgement (RFC 8985, 7.4.2). `dsack_end` is the end of a D-SACK. `is_duplicate` is true for
    /// a duplicate by RFC 5681 without blocks.
    pub(crate) fn judge(
        &self,
        una: SeqNumber,
        dsack_end: Option<SeqNumber>,
        is_duplicate: bool,
    ) -> Verdict {
        if una.is_before(self.end) {
            Verdict::Open
        } else if !self.is_again || dsack_end == Some(self.end) {
            Verdict::NothingLost
        } else if una.is_after(self.end) {
            Verdict::Repaired
        } else if is_duplicate {
            Verdict::NothingLost
        } else {
            Verdict::Open
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rfc8985_7_2_the_timeout() {
        for (srtt_us, is_one_segment, expected) in [
            (0, false, 1_002_000),
            (20_000, false, 42_000),
            (20_000, true, 240_000),
            (10, false, 2_020),
        ] {
            assert_eq!(pto_us(srtt_us, is_one_segment), expected);
        }
    }

    #[test]
    fn rfc8985_7_4_2_what_an_acknowledgement_means() {
        let at = |n: u32| SeqNumber(n);
        for (is_again, una, dsack_end, is_duplicate, expected) in [
            (true, 99, None, false, Verdict::Open),
            (false, 100, None, false, Verdict::NothingLost),
            (true, 100, None, false, Verdict::Open),
            (true, 100, Some(at(100)), false, Verdict::NothingLost),
            (true, 100, None, true, Verdict::NothingLost),
            (true, 101, None, false, Verdict::Repaired),
            (true, 101, Some(at(50)), false, Verdict::Repaired),
            (true, 101, Some(at(100)), false, Verdict::NothingLost),
        ] {
            let probe = Probe { end: at(100), is_again };
            assert_eq!(probe.judge(at(una), dsack_end, is_duplicate), expected);
        }
    }
}
