//! Delivery rate samples (draft-ietf-ccwg-bbr, 4.1): the rate at which the network delivered data.
//!
//! Each transmission records the bytes that had been delivered when it left. When the transmission itself is delivered,
//! the bytes delivered since then and the time they took are a sample of the rate. The time is the longer of the send
//! time and the acknowledgement time, so neither a burst of data nor a burst of acknowledgements looks like a fast
//! network.

use crate::tcp::clock::elapsed_us;
use crate::time::Time;

/// The state at the moment at which a transmission left: `P` of the draft.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Snapshot {
    /// `P.delivered` in bytes.
    delivered: u64,
    /// Microseconds from [`Deliveries::delivered_at`] to the transmission: `P.send_time - P.delivered_time`.
    delivery_age_us: u32,
    /// `P.send_time - P.first_send_time` in microseconds.
    send_elapsed_us: u32,
    /// `P.tx_in_flight` in bytes, this transmission included.
    tx_in_flight: u32,
    /// `P.lost` in bytes, modulo 2³².
    lost: u32,
    /// `P.is_app_limited`.
    is_app_limited: bool,
}

impl Snapshot {
    /// Extends the transmission by bytes that left at the same moment.
    pub(crate) const fn extend(&mut self, tx_in_flight: u32) {
        self.tx_in_flight = tx_in_flight;
    }
}

/// A sample: `RS` of the draft. Volumes are in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sample {
    /// `RS.delivery_rate` in bytes a second; 0 if it could not be measured.
    pub(crate) rate: u64,
    /// `RS.delivered`: the bytes delivered from the transmission to its own delivery.
    pub(crate) delivered: u32,
    /// `RS.prior_delivered`.
    pub(crate) prior_delivered: u64,
    /// `RS.tx_in_flight`.
    pub(crate) tx_in_flight: u32,
    /// `RS.lost`: the bytes found to be lost in this time.
    pub(crate) lost: u32,
    /// `RS.is_app_limited`.
    pub(crate) is_app_limited: bool,
}

/// The bytes that a connection has delivered since its data began to move: `C` of the draft.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Deliveries {
    /// `C.delivered` in bytes.
    delivered: u64,
    /// `C.delivered_time`.
    delivered_at: Time,
    /// `C.first_send_time`.
    first_sent_at: Time,
    /// `C.lost` in bytes, modulo 2³².
    lost: u32,
    /// `C.app_limited`: samples are too low until this many bytes are delivered.
    app_limited: u64,
}

impl Deliveries {
    /// `C.delivered` in bytes.
    pub(crate) const fn delivered(&self) -> u64 {
        self.delivered
    }

    /// Records bytes that leave. `pipe` is the bytes in flight with them.
    pub(crate) fn send(&mut self, now: Time, bytes: u32, pipe: u32) -> Snapshot {
        if pipe <= bytes {
            (self.first_sent_at, self.delivered_at) = (now, now);
            // The path was empty. Bytes that leave before the first delivery meet a filling path, and show only half of
            // the rate.
            self.app_limited = self.app_limited.max(self.delivered + 1);
        }
        Snapshot {
            delivered: self.delivered,
            delivery_age_us: elapsed_us(now, self.delivered_at),
            send_elapsed_us: elapsed_us(now, self.first_sent_at),
            tx_in_flight: pipe,
            lost: self.lost,
            is_app_limited: self.app_limited > self.delivered,
        }
    }

    /// Records that all bytes of the application were sent, with room for more. `pipe` is the bytes in flight.
    pub(crate) fn limit_by_application(&mut self, pipe: u32) {
        self.app_limited = self.delivered + u64::from(pipe);
    }

    /// Records bytes that were found to be lost.
    pub(crate) const fn lose(&mut self, bytes: u32) {
        self.lost = self.lost.wrapping_add(bytes);
    }

    /// Records bytes that an acknowledgement has delivered.
    pub(crate) fn deliver(&mut self, now: Time, bytes: u32) {
        if bytes > 0 {
            self.delivered += u64::from(bytes);
            self.delivered_at = now;
        }
    }

    /// The sample of the transmission that was delivered last, after [`deliver`](Self::deliver). An interval shorter
    /// than the minimum round trip gives no sample, because the acknowledgement was for an earlier transmission.
    pub(crate) fn sample(
        &mut self,
        now: Time,
        sent_at: Time,
        snapshot: &Snapshot,
        min_rtt_us: u32,
    ) -> Sample {
        self.first_sent_at = sent_at;
        let delivered = self.delivered - snapshot.delivered;
        let ack_elapsed_us = elapsed_us(now, sent_at).saturating_add(snapshot.delivery_age_us);
        let interval_us = ack_elapsed_us.max(snapshot.send_elapsed_us);
        let rate = if interval_us < min_rtt_us.max(1) {
            0
        } else {
            delivered.saturating_mul(1_000_000) / u64::from(interval_us)
        };
        Sample {
            rate,
            delivered: u32::try_from(delivered).unwrap_or(u32::MAX),
            prior_delivered: snapshot.delivered,
            tx_in_flight: snapshot.tx_in_flight,
            lost: self.lost.wrapping_sub(snapshot.lost),
            is_app_limited: snapshot.is_app_limited,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(us: u64) -> Time {
        Time::from_nanos(1_000_000_000 + us * 1_000)
    }

    /// Ten segments, each acknowledged a round trip of 10 ms after it left, or later.
    fn last_sample(send_every_us: u64, ack_every_us: u64) -> Sample {
        let mut deliveries = Deliveries::default();
        let sent: [_; 10] = core::array::from_fn(|n| {
            let n = u32::try_from(n).unwrap();
            let now = at(u64::from(n) * send_every_us);
            (now, deliveries.send(now, 1_000, (n + 1) * 1_000))
        });
        let mut sample = Sample::default();
        for (n, (sent_at, snapshot)) in (0..).zip(&sent) {
            let now = at(10_000 + n * ack_every_us);
            deliveries.deliver(now, 1_000);
            sample = deliveries.sample(now, *sent_at, snapshot, 10_000);
        }
        sample
    }

    #[test]
    fn the_slower_one_of_sending_and_acknowledging_is_the_rate() {
        // All 10,000 bytes in 10 ms and nine intervals of 1 ms.
        assert_eq!(last_sample(0, 1_000).rate, 10_000 * 1_000_000 / 19_000);
        assert_eq!(last_sample(1_000, 1_000).rate, 10_000 * 1_000_000 / 19_000);
        // A burst of acknowledgements 19 ms after the first segment.
        assert_eq!(last_sample(1_000, 1_000), last_sample(0, 1_000));
    }

    #[test]
    fn an_interval_shorter_than_the_round_trip_is_no_sample() {
        let mut deliveries = Deliveries::default();
        let snapshot = deliveries.send(at(0), 1_000, 1_000);
        deliveries.deliver(at(5_000), 1_000);
        let sample = deliveries.sample(at(5_000), at(0), &snapshot, 10_000);
        assert_eq!((sample.rate, sample.delivered), (0, 1_000));
    }

    #[test]
    fn what_leaves_after_a_pause_of_the_application_is_marked_until_that_is_delivered() {
        let mut deliveries = Deliveries::default();
        let beginning = [1_000, 2_000].map(|pipe| deliveries.send(at(0), 1_000, pipe));
        deliveries.deliver(at(1), 1_000);
        let first = deliveries.send(at(1), 1_000, 2_000);
        deliveries.limit_by_application(2_000);
        let second = deliveries.send(at(2), 1_000, 3_000);
        deliveries.deliver(at(3), 2_000);
        let third = deliveries.send(at(3), 1_000, 2_000);
        assert!(beginning.iter().all(|one| one.is_app_limited), "the path was empty");
        assert_eq!([first, second, third].map(|one| one.is_app_limited), [false, true, false]);
    }

    #[test]
    fn losses_between_are_counted() {
        let mut deliveries = Deliveries::default();
        deliveries.lose(u32::MAX);
        deliveries.send(at(0), 2_000, 2_000);
        let snapshot = deliveries.send(at(0), 1_000, 3_000);
        deliveries.lose(2_000);
        deliveries.deliver(at(10_000), 1_000);
        let sample = deliveries.sample(at(10_000), at(0), &snapshot, 0);
        assert_eq!((sample.lost, sample.tx_in_flight, sample.rate), (2_000, 3_000, 100_000));
    }
}
