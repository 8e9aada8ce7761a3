//! The numbers of handshakes of one worker, and the times that they took.

use core::cell::Cell;
use core::time::Duration;

use ring::Time;

/// The ends of the buckets in which complete handshakes are counted by their durations: those of round trips among the
/// metrics.
const BUCKETS: [Duration; 8] = [
    Duration::from_micros(100),
    Duration::from_millis(1),
    Duration::from_millis(10),
    Duration::from_millis(50),
    Duration::from_millis(100),
    Duration::from_millis(250),
    Duration::from_millis(500),
    Duration::from_secs(1),
];

/// The numbers of handshakes. A worker publishes them with its other numbers.
#[derive(Debug, Default)]
pub struct Counters {
    under_way: Cell<u64>,
    failed: Cell<u64>,
    clients_refused: Cell<u64>,
    refused: Cell<u64>,
    /// Complete ones: full and resumed, of TLS 1.2 and of TLS 1.3.
    complete: [Cell<u64>; 4],
    /// Complete ones by their durations, the last for longer ones.
    buckets: [Cell<u64>; BUCKETS.len() + 1],
    /// The sum of the durations in microseconds. It wraps.
    sum_us: Cell<u64>,
    /// The time of the present event.
    now: Cell<Time>,
    /// The number of changes so far.
    changes: Cell<u64>,
}

/// The durations of complete handshakes, from the accepted connection to the last message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Took {
    /// Handshakes of up to 0.1, 1, 10, 50, 100, 250, 500 and 1,000 ms that were longer than those before.
    pub buckets: [u64; 8],
    /// Longer ones.
    pub above: u64,
    /// The sum of the durations in microseconds. It wraps.
    pub sum_us: u64,
}

impl Counters {
    fn add(&self, to: &Cell<u64>, count: i64) {
        to.set(to.get().saturating_add_signed(count));
        self.changes.set(self.changes.get() + 1);
    }

    /// The number of changes of all numbers so far.
    pub fn changes(&self) -> u64 {
        self.changes.get()
    }

    /// Handshakes under way.
    pub fn under_way(&self) -> u64 {
        self.under_way.get()
    }

    /// Handshakes that have failed because of the certificate of the client.
    pub fn clients_refused(&self) -> u64 {
        self.clients_refused.get()
    }

    /// Handshakes that have failed for another reason, or that the client has given up.
    pub fn failed(&self) -> u64 {
        self.failed.get()
    }

    /// Handshakes that were refused, or had waited for too long, because clients have asked for too many.
    pub fn refused(&self) -> u64 {
        self.refused.get()
    }

    /// Complete handshakes: TLS 1.2 full, TLS 1.2 resumed, TLS 1.3 full, TLS 1.3 resumed.
    pub fn complete_by_kind(&self) -> [u64; 4] {
        self.complete.each_ref().map(Cell::get)
    }

    /// The durations of complete handshakes.
    pub fn took(&self) -> Took {
        let mut buckets = [0; 8];
        for (to, from) in buckets.iter_mut().zip(&self.buckets) {
            *to = from.get();
        }
        let [.., above] = &self.buckets;
        Took { buckets, above: above.get(), sum_us: self.sum_us.get() }
    }

    /// Sets the time of the events that follow, by which handshakes are measured.
    pub fn set_now(&self, now: Time) {
        self.now.set(now);
    }

    /// Counts a handshake that begins, and returns the time.
    pub(crate) fn begin(&self) -> Time {
        self.add(&self.under_way, 1);
        self.now.get()
    }

    pub(crate) fn fail(&self) {
        self.add(&self.under_way, -1);
        self.add(&self.failed, 1);
    }

    pub(crate) fn refuse_client(&self) {
        self.add(&self.under_way, -1);
        self.add(&self.clients_refused, 1);
    }

    pub(crate) fn refuse(&self) {
        self.add(&self.under_way, -1);
        self.add(&self.refused, 1);
    }

    pub(crate) fn complete(&self, began: Time, is_1_3: bool, is_resumed: bool) {
        let took = self.now.get().since(began);
        let bucket = BUCKETS.iter().position(|end| took <= *end).unwrap_or(BUCKETS.len());
        self.add(&self.buckets[bucket], 1);
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.sum_us.set(self.sum_us.get().wrapping_add(us));
        self.add(&self.under_way, -1);
        self.add(&self.complete[2 * usize::from(is_1_3) + usize::from(is_resumed)], 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_counted_up_to_the_end_of_their_bucket() {
        let counters = Counters::default();
        for micros in [0, 100, 101, 1_000, 999_999, 1_000_001, 90_000_000] {
            counters.set_now(Time::default());
            let began = counters.begin();
            counters.set_now(Time::default() + Duration::from_micros(micros));
            counters.complete(began, true, false);
        }
        let expected = Took { buckets: [2, 2, 0, 0, 0, 0, 0, 1], above: 2, sum_us: 92_001_201 };
        assert_eq!(counters.took(), expected);
        assert_eq!((counters.under_way(), counters.complete_by_kind()), (0, [0, 0, 7, 0]));
    }
}
