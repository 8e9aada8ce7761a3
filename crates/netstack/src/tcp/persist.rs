//! The persist timer (RFC 9293, 3.8.6.1): probes a peer that has closed its window, because the segment that
//! reopens the window may have been lost. The same timer, as in Linux, ends the wait for a larger window while the
//! window is open but small (the override timeout of 3.8.6.2.1).
//!
//! The probe is an empty segment, because a lost byte of data would look like congestion.

use core::time::Duration;

use crate::time::Time;

/// The time of the next window probe.
///
/// A probe has no data: it repeats the number in front of the next number, so that the peer answers with its
/// window. Linux does the same. A byte of data would be lost at a closed window, and look like congestion.
#[derive(Debug, Default)]
pub(super) struct Persist {
    /// `Some` while data waits for the window and nothing is in flight.
    at: Option<Time>,
    /// The number of probes since the window was closed.
    probes: u32,
    /// True if the window was small for long enough to use it.
    has_waited: bool,
}

/// The first wait if no round trip was measured (RFC 6298, 2.1).
const FIRST: Duration = Duration::from_secs(1);
/// The shortest wait: Linux's shortest retransmission timeout.
const SHORTEST: Duration = Duration::from_millis(200);
/// The longest wait.
const LONGEST: Duration = Duration::from_secs(60);
/// The longest wait for a small window to grow (RFC 9293, 3.8.6.2.1).
const OVERRIDE_MAX: Duration = Duration::from_secs(1);

impl Persist {
    /// Starts the wait of data for a closed window.
    pub(super) fn wait(&mut self, now: Time, srtt: Option<Duration>) {
        if self.at.is_none() {
            self.probes = 0;
            self.at = Some(now + first(srtt));
        }
    }

    /// Starts the wait of data for a window that is open but too small to use immediately.
    pub(super) fn wait_for_more(&mut self, now: Time, srtt: Option<Duration>) {
        self.probes = 0;
        let at = now + first(srtt).min(OVERRIDE_MAX);
        self.at = Some(self.at.map_or(at, |before| before.min(at)));
    }

    /// Stops the wait: data is sent, or no data waits.
    pub(super) const fn stop(&mut self) {
        self.at = None;
        self.has_waited = false;
    }

    /// Makes the connection use a small window when the wait is over.
    pub(super) const fn use_small_window(&mut self) {
        self.has_waited = true;
    }

    /// True if a small window is used.
    pub(super) const fn has_waited(&self) -> bool {
        self.has_waited
    }

    /// The time of the next probe.
    pub(super) const fn deadline(&self) -> Option<Time> {
        self.at
    }

    /// If a probe is due, returns the number of probes with this one, and doubles the wait for the next.
    pub(super) fn take_due(&mut self, now: Time, srtt: Option<Duration>) -> Option<u32> {
        self.at.take_if(|at| *at <= now)?;
        self.probes += 1;
        let wait = first(srtt) * (1 << self.probes.min(16));
        self.at = Some(now + wait.min(LONGEST));
        Some(self.probes)
    }
}

fn first(srtt: Option<Duration>) -> Duration {
    // A peer can make the round trip look long by forged timestamps.
    srtt.map_or(FIRST, |srtt| srtt * 3).clamp(SHORTEST, LONGEST)
}
