//! The persist timer (RFC 9293, 3.8.6.1): a peer that has closed its window is asked whether it has opened it,
//! for the segment that says so may have been lost.

use core::time::Duration;

use crate::time::Time;

/// The time of the next window probe.
///
/// A probe has no data: it repeats the number in front of the next one, so that the peer answers with its window.
/// Linux probes so, too. A byte of data would be lost if the window is closed, and look like congestion.
#[derive(Debug, Default)]
pub(super) struct Persist {
    /// Some exactly while data waits for the window and nothing is in flight.
    at: Option<Time>,
    /// Probes since the window was closed.
    probes: u32,
}

/// The first wait without a measured round trip (RFC 6298, 2.1).
const FIRST: Duration = Duration::from_secs(1);
/// The shortest wait: Linux's shortest retransmission timeout.
const SHORTEST: Duration = Duration::from_millis(200);
/// The longest wait.
const LONGEST: Duration = Duration::from_secs(60);

impl Persist {
    /// The window is closed and data waits.
    pub(super) fn wait(&mut self, now: Time, srtt: Option<Duration>) {
        if self.at.is_none() {
            self.probes = 0;
            self.at = Some(now + srtt.map_or(FIRST, |srtt| srtt * 3).max(SHORTEST));
        }
    }

    /// The window has opened, or nothing waits for it.
    pub(super) const fn stop(&mut self) {
        self.at = None;
    }

    /// The time of the next probe.
    pub(super) const fn deadline(&self) -> Option<Time> {
        self.at
    }

    /// If a probe is due, returns how many there were, this one included, and waits twice as long for the
    /// next.
    pub(super) fn take_due(&mut self, now: Time, srtt: Option<Duration>) -> Option<u32> {
        self.at.take_if(|at| *at <= now)?;
        self.probes += 1;
        let first = srtt.map_or(FIRST, |srtt| srtt * 3).max(SHORTEST);
        self.at = Some(now + (first * (1 << self.probes.min(16))).min(LONGEST));
        Some(self.probes)
    }
}
