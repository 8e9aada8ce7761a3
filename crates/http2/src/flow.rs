//! Flow control: the windows of streams and of the connection, in both directions.
//!
//! Reading list: RFC 9113 §5.2, §6.9.

use core::time::Duration;

use crate::limits::{
    CONNECTION_WINDOW, CONNECTION_WINDOW_MAX, STREAM_WINDOW, STREAM_WINDOW_MAX, WINDOW_CEILING,
    WINDOW_TIME,
};

/// The bytes of data that the peer allows this side to send. Negative if the peer has made its initial window smaller
/// than what was sent (RFC 9113 §6.9.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SendWindow(i64);

impl SendWindow {
    pub(crate) fn new(bytes: u32) -> Self {
        Self(i64::from(bytes))
    }

    /// The bytes that may be sent now.
    #[inline]
    pub(crate) fn room(self) -> u32 {
        u32::try_from(self.0).unwrap_or_default()
    }

    /// Handles a WINDOW_UPDATE, or a change of the initial window. Returns false if the window is larger than allowed then.
    #[must_use]
    pub(crate) fn change(&mut self, bytes: i64) -> bool {
        self.0 += bytes;
        self.0 <= i64::from(WINDOW_CEILING)
    }

    /// Records bytes that are sent.
    ///
    /// # Panics
    ///
    /// In debug builds, if they are more than the room.
    #[inline]
    pub(crate) fn take(&mut self, bytes: u32) {
        debug_assert!(bytes <= self.room(), "{bytes} bytes in a window of {}", self.0);
        self.0 -= i64::from(bytes);
    }
}

/// The bytes of data that the peer may send on one stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReceiveWindow(u32);

impl ReceiveWindow {
    /// The window of a new stream.
    pub(crate) const NEW: Self = Self(STREAM_WINDOW);

    /// Records received bytes; returns false if they are more than the window.
    #[must_use]
    pub(crate) const fn receive(&mut self, bytes: u32) -> bool {
        match self.0.checked_sub(bytes) {
            Some(left) => self.0 = left,
            None => return false,
        }
        true
    }

    /// Gives back bytes that need no memory, such as padding. The peer is told.
    pub(crate) const fn give_back(&mut self, bytes: u32) {
        self.0 += bytes;
    }

    /// Makes the window as large as the room of its consumer, or [`STREAM_WINDOW_MAX`]. Returns the bytes to tell the
    /// peer. They are none until the window is less than half of that: many small updates cost more than they are worth.
    pub(crate) fn widen(&mut self, room: u64) -> Option<u32> {
        let target = u32::try_from(room).unwrap_or(u32::MAX).min(STREAM_WINDOW_MAX);
        if self.0 > target / 2 {
            return None;
        }
        let more = target - self.0;
        self.0 = target;
        (more > 0).then_some(more)
    }
}

/// The bytes of data that the peer may send on all streams together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ConnectionWindow {
    /// The bytes that the peer may send.
    left: u32,
    /// Bytes that the consumers have taken, and that the peer was not told about.
    taken: u32,
    /// The window when all bytes are taken.
    max: u32,
    /// The time of the last update.
    updated: Duration,
}

impl ConnectionWindow {
    pub(crate) const fn new(now: Duration) -> Self {
        Self { left: CONNECTION_WINDOW, taken: 0, max: CONNECTION_WINDOW, updated: now }
    }

    /// Records received bytes; returns false if they are more than the window.
    #[must_use]
    pub(crate) const fn receive(&mut self, bytes: u32) -> bool {
        match self.left.checked_sub(bytes) {
            Some(left) => self.left = left,
            None => return false,
        }
        true
    }

    /// Records received bytes that need no more memory. Returns the bytes to tell the peer, if half of the window
    /// was taken. The window is doubled if it was taken that fast.
    pub(crate) fn take(&mut self, bytes: u32, now: Duration) -> Option<u32> {
        self.taken += bytes;
        debug_assert!(self.left + self.taken <= self.max, "more was taken than received");
        if self.taken < self.max / 2 {
            return None;
        }
        let mut more = core::mem::take(&mut self.taken);
        if now.saturating_sub(self.updated) < WINDOW_TIME / 2 && self.max < CONNECTION_WINDOW_MAX {
            let wider = (2 * self.max).min(CONNECTION_WINDOW_MAX);
            more += wider - self.max;
            self.max = wider;
        }
        self.updated = now;
        self.left += more;
        Some(more)
    }

    /// The window when all bytes are taken: the most memory that the bytes of all streams need.
    pub(crate) const fn max(&self) -> u32 {
        self.max
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn rfc9113_6_9_2_a_smaller_initial_window_may_leave_less_than_nothing() {
        let mut window = SendWindow::new(100);
        window.take(60);
        assert!(window.change(-80));
        assert_eq!((window, window.room()), (SendWindow(-40), 0));
        assert!(window.change(50));
        assert_eq!(window.room(), 10);
        assert!(window.change(i64::from(WINDOW_CEILING) - 10));
        assert!(!window.change(1));
    }

    #[test]
    fn the_window_of_a_stream_is_what_its_consumer_takes() {
        let mut window = ReceiveWindow::NEW;
        assert!(!window.receive(STREAM_WINDOW + 1));
        assert!(window.receive(STREAM_WINDOW));
        assert!(!window.receive(1));
        assert_eq!(window.widen(0), None);
        assert_eq!(window.widen(10), Some(10));
        assert_eq!(window.widen(10), None);
        assert_eq!(window.widen(19), None);
        assert_eq!(window.widen(20), Some(10));
        assert_eq!(window.widen(u64::MAX), Some(STREAM_WINDOW_MAX - 20));
        assert_eq!(window.widen(u64::MAX), None);
    }

    #[test]
    fn the_window_of_a_connection_grows_with_fast_peers_only() {
        for (step_ms, expected) in [(1, CONNECTION_WINDOW_MAX), (60, CONNECTION_WINDOW)] {
            let mut now = Duration::from_secs(5);
            let mut window = ConnectionWindow::new(Duration::ZERO);
            for _ in 0..100 {
                let half = window.max() / 2;
                assert!(window.receive(half));
                assert!(window.take(half, now).is_some_and(|more| more >= half));
                now += Duration::from_millis(step_ms);
            }
            assert_eq!(window.max(), expected, "{step_ms} ms");
        }
    }

    proptest! {
        #[test]
        fn what_waits_is_within_the_window(
            operations in proptest::collection::vec((any::<bool>(), 0u32..100_000, 0u64..80), 0..200),
        ) {
            let mut window = ConnectionWindow::new(Duration::ZERO);
            let (mut now, mut waiting, mut allowed) = (Duration::ZERO, 0, CONNECTION_WINDOW);
            for (is_received, bytes, ms) in operations {
                now += Duration::from_millis(ms);
                if is_received {
                    prop_assert_eq!(window.receive(bytes), bytes <= allowed);
                    if bytes <= allowed {
                        (allowed, waiting) = (allowed - bytes, waiting + bytes);
                    }
                } else {
                    let bytes = bytes.min(waiting);
                    waiting -= bytes;
                    allowed += window.take(bytes, now).unwrap_or_default();
                }
                prop_assert!(allowed + waiting <= window.max());
                prop_assert!(window.max() <= CONNECTION_WINDOW_MAX);
                prop_assert!(waiting > 0 || allowed > window.max() / 2, "it is stuck");
            }
        }
    }
}
