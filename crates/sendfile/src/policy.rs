//! The choices of an application for a range of a file.

use core::time::Duration;

/// The treatment of a range of a file that a stream sends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// The use of the page cache, if the range has to be read.
    pub caching: Caching,
    /// The limit of prefetching.
    pub window: Window,
}

/// The use of the page cache for bytes that are read from the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Caching {
    /// No page stays in the page cache, as with FreeBSD's `SF_NOCACHE`. Pages that no other process has brought are
    /// discarded 0.1 s after the transport has sent them. The kernel keeps pages to which packets refer, so discards
    /// are repeated for a minute. The kernel reclaims the pages that a dropped [`Disk`](crate::Disk) has not discarded.
    Never,
    /// The files that are requested most often stay, as many as fit ([`PageCache`](crate::PageCache)). A stream decides
    /// when it comes to the range, for the whole range. Each such range is counted as one request.
    #[default]
    Popular,
    /// All pages stay. The kernel decides for how long: it first reclaims pages that were used only once.
    Always,
}

/// The limit of prefetching, in bytes. The bytes of reads in flight, and the bytes that were read and not released, are
/// together at most the window. The key `readahead` sets this limit. A read begins only if less than half of the window
/// is used, and brings at most half of the window: one half is sent while the other half is read. If a stream sends
/// ranges with different windows, each read begins within the window of the range that is read.
///
/// A stream that has nothing to send reads one block of 256 KiB even if the window is full. So a stream holds at most
/// the window plus one such block. The kernel's own readahead (`File::read_ahead`) brings more bytes into the page
/// cache.
///
/// A window may be [paced](Self::paced). Then only a part of the window is used for a peer that receives bytes no
/// faster than expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
// Packed, so that a promise that has one needs no more memory.
#[repr(Rust, packed)]
pub struct Window {
    bytes: u32,
    /// The number of times that the window is halved for a peer that receives bytes as slowly as expected.
    halvings: u8,
}

/// The minimum of paced prefetching: two of the smallest reads, one that is sent while the other is under way.
const PACED_BYTES_MIN: u64 = 512 * 1024;

impl Window {
    /// The largest window: 4 GiB less one byte.
    pub const BYTES_MAX: u64 = u32::MAX as u64;

    /// A window of `bytes`; [`BYTES_MAX`](Self::BYTES_MAX) at most.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "larger numbers are not cast")]
    pub const fn of(bytes: u64) -> Self {
        Self { bytes: if bytes < u32::MAX as u64 { bytes as u32 } else { u32::MAX }, halvings: 0 }
    }

    /// The playing time whose bytes a paced window holds. A read begins when half of these bytes are left, so it may
    /// take 1 s. In 1 s a disk of 16 MiB/s also completes all other reads of a worker: 64 of 256 KiB.
    pub const PACE: Duration = Duration::from_secs(2);

    /// The same window for a peer that is expected to receive this many bytes in [`PACE`](Self::PACE), such as a player
    /// of a film. Prefetching is limited to these bytes, rounded up to a half, a quarter or less of the window, and at
    /// least 512 KiB. The limit ends when the peer receives a whole window in a quarter of the expected time. Then the
    /// peer is no player, or fills a buffer of its own. The buffers of the two sockets, which fill at once, are too
    /// small to end the limit.
    #[must_use]
    pub const fn paced(self, bytes: u64) -> Self {
        let least = if bytes > PACED_BYTES_MIN { bytes } else { PACED_BYTES_MIN };
        let mut halvings = 0;
        while self.bytes() >> (halvings + 1) >= least {
            halvings += 1;
        }
        Self { bytes: self.bytes, halvings }
    }

    /// The limit of prefetching, in bytes, for a peer that receives bytes as slowly as expected.
    #[must_use]
    pub const fn paced_bytes(self) -> u64 {
        self.bytes() >> self.halvings
    }

    /// Returns whether less than the window is used for a peer that receives bytes as slowly as expected.
    pub(crate) const fn is_paced(self) -> bool {
        self.halvings > 0
    }

    /// The time in which a peer that is faster than expected receives a whole window; `None` if nothing is
    /// expected.
    pub(crate) fn fast(self) -> Option<Duration> {
        self.is_paced().then(|| Self::PACE / 4 * (1 << self.halvings))
    }

    /// The limit of prefetching, in bytes.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        self.bytes as u64
    }
}

impl Default for Window {
    /// 2 MiB: two of the largest reads, one that is sent while the other is under way.
    fn default() -> Self {
        Self::of(2 << 20)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_less_than_4_gib() {
        let max = u64::from(u32::MAX);
        for (bytes, expected) in
            [(0, 0), (1, 1), (700_000, 700_000), (max - 1, max - 1), (max, max), (u64::MAX, max)]
        {
            assert_eq!(Window::of(bytes).bytes(), expected, "{bytes}");
        }
    }

    #[test]
    fn a_paced_window_has_the_bytes_that_are_expected_and_two_reads_at_least() {
        const KIB: u64 = 1024;
        for (window, expected, paced) in [
            (2048, 0, 512),
            (2048, 512, 512),
            (2048, 513, 1024),
            (2048, 1025, 2048),
            (2048, 1 << 40, 2048),
            (8192, 600, 1024),
            (600, 0, 600),
            (0, 0, 0),
        ] {
            let window = Window::of(window * KIB).paced(expected * KIB);
            assert_eq!(window.paced_bytes(), paced * KIB, "{window:?}");
            // Four times as fast as expected.
            let is_paced = window.paced_bytes() < window.bytes();
            let expected =
                Window::PACE.as_secs() * 1000 * window.bytes() / window.paced_bytes().max(1);
            let fast = window.fast().map(|time| 4 * u64::try_from(time.as_millis()).unwrap());
            assert_eq!(fast, is_paced.then_some(expected), "{window:?}");
        }
        assert!(Window::of(u64::MAX).paced(0).paced_bytes() >= PACED_BYTES_MIN);
    }
}
