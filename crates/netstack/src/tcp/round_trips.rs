//! A histogram of round trips.

/// Smoothed round trips of connections, one for each period of data in flight. The round trip is taken when all
/// data is acknowledged, or when the connection ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RoundTrips {
    /// The number of round trips above the previous bound and up to each bound.
    pub counts: [u64; Self::BOUNDS_US.len()],
    /// The number of round trips longer than the last bound.
    pub above: u64,
    /// The sum of all round trips, in microseconds.
    pub sum_us: u64,
}

impl RoundTrips {
    /// The bounds, in microseconds.
    pub const BOUNDS_US: [u64; 8] =
        [100, 1_000, 10_000, 50_000, 100_000, 250_000, 500_000, 1_000_000];

    /// Counts a round trip; 0 means that it was not measured.
    pub(super) fn note(&mut self, srtt_us: u32) {
        if srtt_us == 0 {
            return;
        }
        let us = u64::from(srtt_us);
        let bucket = Self::BOUNDS_US.iter().position(|bound| us <= *bound);
        *bucket.map_or(&mut self.above, |bucket| &mut self.counts[bucket]) += 1;
        self.sum_us += us;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_belongs_to_its_bucket() {
        let mut trips = RoundTrips::default();
        for us in [0, 1, 100, 101, 1_000_000, 1_000_001, u32::MAX] {
            trips.note(us);
        }
        let sum_us = 1 + 100 + 101 + 1_000_000 + 1_000_001 + u64::from(u32::MAX);
        assert_eq!(trips, RoundTrips { counts: [2, 1, 0, 0, 0, 0, 0, 1], above: 2, sum_us });
    }
}
