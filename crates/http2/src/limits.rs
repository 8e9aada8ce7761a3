//! The limits of a connection, in one place, and the budgets that refill with time.

use core::time::Duration;

/// Streams that are reset, by either side, before a connection ends. Honest clients cancel the pictures of a page; a
/// client that opens and resets streams all the time causes work for nothing.
pub const RESETS_MAX: u32 = 1000;

/// Resets that are forgiven each second.
pub const RESETS_PER_SECOND: u32 = 33;

/// Frames that carry nothing before a connection ends: PING, SETTINGS, PRIORITY, PRIORITY_UPDATE, WINDOW_UPDATE,
/// unknown frames, CONTINUATION, HEADERS of streams that have ended or come after the end of the connection, and DATA with
/// less than [`TINY_DATA`] that does not end its stream.
pub const IDLE_FRAMES_MAX: u32 = 10_000;

/// Such frames that are forgiven each second.
pub const IDLE_FRAMES_PER_SECOND: u32 = 330;

/// Such frames that are forgiven for each request: clients send some with each.
pub const IDLE_FRAMES_PER_REQUEST: u32 = 8;

/// One such frame is forgiven for this many bytes of data that are sent. Clients send WINDOW_UPDATE frames for the data
/// that they take: some of them two for each 4 KiB.
pub const SENT_BYTES_PER_IDLE_FRAME: u32 = 2048;

/// DATA with fewer bytes costs more than it carries.
pub const TINY_DATA: u32 = 64;

/// CONTINUATION frames of one header block.
pub const CONTINUATIONS_MAX: u32 = 8;

/// The bytes of a header block, as they are received.
pub const BLOCK_BYTES_MAX: usize = 32 * 1024;

/// The fields of a header block, with the crumbs of cookies. No honest peer sends as many.
pub const BLOCK_FIELDS_MAX: usize = 1000;

/// The size of the fields of a request, with 32 bytes more for each: SETTINGS_MAX_HEADER_LIST_SIZE.
pub const LIST_BYTES_MAX: u32 = 32 * 1024;

/// Bytes of answers to control frames (acknowledgements, resets, windows) that wait because the peer does not read:
/// those of about a thousand frames.
pub const CONTROL_BYTES_MAX: usize = 16 * 1024;

/// The settings in one frame. RFC 9113 and its extensions define eight.
pub const SETTINGS_MAX: usize = 32;

/// The streams of a connection that are open at the same time: SETTINGS_MAX_CONCURRENT_STREAMS. RFC 9113 §6.5.2
/// recommends no fewer.
pub const STREAMS_MAX: u32 = 100;

/// The streams that this side has reset and that are remembered, because frames of theirs may be under way.
pub const RESETS_REMEMBERED: usize = 100;

/// The priorities that are remembered for streams that are not open yet.
pub const EARLY_PRIORITIES_MAX: usize = 16;

/// The bytes of content that are dropped after a complete response before the stream is reset. Clients that wait for
/// room read the response meanwhile: some of them drop a response whose reset they read together with it.
pub use http::DISCARDED_BYTES_MAX;

/// The time for which such bytes are dropped.
pub const DISCARD_TIME: Duration = Duration::from_secs(2);

/// The window of each stream in the beginning, which needs no setting (RFC 9113 §6.9.2).
pub const STREAM_WINDOW: u32 = 65_535;

/// The largest window that a stream gets, even if its consumer has more room.
pub const STREAM_WINDOW_MAX: u32 = 256 * 1024;

/// The window of a connection in the beginning.
pub const CONNECTION_WINDOW: u32 = 65_535;

/// The largest window that a connection gets.
pub const CONNECTION_WINDOW_MAX: u32 = 1024 * 1024;

/// If the peer fills the window of the connection in less than this time, the window is doubled. So the window does not
/// slow paths with a round trip of up to this time.
pub const WINDOW_TIME: Duration = Duration::from_millis(100);

/// The largest payload of a frame: SETTINGS_MAX_FRAME_SIZE, by default (RFC 9113 §6.5.2).
pub const FRAME_BYTES_MAX: u32 = 16_384;

/// The largest window that the protocol allows (RFC 9113 §6.9.1).
pub const WINDOW_CEILING: u32 = (1 << 31) - 1;

/// The limits of requests, which an operator may choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The bytes of the field lines of a head, as [`http::Head`] has them. More is a 431.
    pub head_bytes_max: usize,
    /// The bytes of a path with its query. More is a 414.
    pub target_bytes_max: usize,
    /// The field lines in a head; all crumbs of a cookie are one. More is a 431.
    pub fields_max: usize,
    /// True if requests may ask for a tunnel: SETTINGS_ENABLE_CONNECT_PROTOCOL (RFC 8441).
    pub extended_connect: bool,
}

impl Limits {
    /// The limits of HTTP/1.
    pub const DEFAULT: Self = Self {
        head_bytes_max: 16 * 1024,
        target_bytes_max: 8 * 1024,
        fields_max: 100,
        extended_connect: false,
    };
}

impl Default for Limits {
    fn default() -> Self {
        Self::DEFAULT
    }
}

const _: () = assert!(Limits::DEFAULT.head_bytes_max <= LIST_BYTES_MAX as usize);
const _: () = assert!(Limits::DEFAULT.fields_max < BLOCK_FIELDS_MAX);
const _: () = assert!(LIST_BYTES_MAX as usize <= http::Head::LINES_BYTES_MAX);
const _: () = assert!(STREAM_WINDOW_MAX <= CONNECTION_WINDOW_MAX);

/// A number of events that may happen without a pause: `MAX`. It refills with time, by `PER_SECOND` events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Budget<const MAX: u32, const PER_SECOND: u32> {
    /// The time of the last refill, in milliseconds.
    at: u64,
    left: u32,
}

impl<const MAX: u32, const PER_SECOND: u32> Budget<MAX, PER_SECOND> {
    pub(crate) fn new(now: Duration) -> Self {
        Self { at: millis(now), left: MAX }
    }

    /// Takes one event; returns whether it was within the budget.
    #[must_use]
    pub(crate) fn take(&mut self, now: Duration) -> bool {
        if self.left == 0 {
            self.refill(now);
        }
        let left = self.left.checked_sub(1);
        self.left = left.unwrap_or_default();
        left.is_some()
    }

    /// Forgives some events.
    pub(crate) fn forgive(&mut self, events: u32) {
        self.left = MAX.min(self.left.saturating_add(events));
    }

    fn refill(&mut self, now: Duration) {
        let now = millis(now);
        let events = now.saturating_sub(self.at).saturating_mul(u64::from(PER_SECOND)) / 1000;
        if events > 0 {
            self.forgive(u32::try_from(events).unwrap_or(u32::MAX));
            self.at = now;
        }
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_refills_with_time_up_to_its_maximum() {
        let mut budget = Budget::<3, 2>::new(Duration::from_secs(10));
        let takes = |budget: &mut Budget<3, 2>, now: u64| {
            (0..10).take_while(|_| budget.take(Duration::from_millis(now))).count()
        };
        assert_eq!(takes(&mut budget, 10_000), 3);
        assert_eq!(takes(&mut budget, 10_499), 0);
        assert_eq!(takes(&mut budget, 10_999), 1);
        assert_eq!(takes(&mut budget, 12_000), 2);
        assert_eq!(takes(&mut budget, 1_000_000), 3);
        assert_eq!(takes(&mut budget, 0), 0);
        budget.forgive(2);
        assert_eq!(takes(&mut budget, 0), 2);
    }
}
