//! Congestion avoidance as in RFC 5681, 3.1: one segment in a round trip, half the window after a loss.

/// Congestion avoidance, with the growth below one byte.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewReno {
    /// Acknowledged bytes times the segment size, modulo the window.
    remainder: u64,
}

impl NewReno {
    pub(crate) const fn new() -> Self {
        Self { remainder: 0 }
    }

    /// The growth of the window, bytes: `SMSS * bytes / cwnd`, without loss by rounding.
    pub(crate) fn growth(&mut self, bytes: u32, cwnd: u32, mss: u32) -> u32 {
        let due = self.remainder + u64::from(bytes) * u64::from(mss);
        self.remainder = due % u64::from(cwnd);
        u32::try_from(due / u64::from(cwnd)).unwrap_or(u32::MAX)
    }
}

/// The threshold after a loss (RFC 5681, 3.1, equation 4).
pub(crate) const fn reduce(flight: u32) -> u32 {
    flight / 2
}
