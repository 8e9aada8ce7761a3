//! The choices of an application for a range of a file.

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
    /// Nothing stays: FreeBSD's `SF_NOCACHE`. What nobody else has brought leaves the page cache 0.1 s after the
    /// transport has taken it, or as soon as no packet refers to it, tried for a minute; what a dropped
    /// [`Disk`](crate::Disk) has not got to is left to the kernel.
    Never,
    /// What is requested often stays: as much as fits ([`PageCache`](crate::PageCache)). It is decided
    /// when a stream comes to the range, for the whole range, which counts as one request.
    #[default]
    Popular,
    /// Everything stays. The kernel decides for how long: it reclaims pages first that were used once.
    Always,
}

/// The limit of prefetching, bytes: reads in flight, and bytes that were read and not released,
/// never exceed it together. A read begins while less than half of the window is used, and brings at
/// most half, so that one is sent while the next is read. A stream that sends ranges with different
/// windows begins each read within the window of its range.
///
/// If a stream has nothing to send, it reads even without room in the window, 256 KiB at once; so it
/// holds at most its window and 256 KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window(u32);

impl Window {
    /// A window of so many bytes; 4 GiB less one byte at most.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "larger numbers are not cast")]
    pub const fn of(bytes: u64) -> Self {
        Self(if bytes < u32::MAX as u64 { bytes as u32 } else { u32::MAX })
    }

    /// The limit.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        self.0 as u64
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
}
