//! Facts about the peer of a socket: the number of bytes that it has acknowledged, and the way in which it has left.

use crate::slab::Key;

/// The way in which a peer has left a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// The connection has ended. It is no Unix socket, so the queued bytes are still the unacknowledged ones.
    Ended,
    /// The peer has closed a Unix socket, or has ended its side after we have ended ours, and has read everything that is
    /// not queued.
    Read,
    /// The peer has closed a Unix socket without having read everything: the number of bytes that it has read is
    /// unknown.
    Unread,
}

/// The bytes that the peer has acknowledged, and their reports.
#[derive(Debug, Default)]
pub(crate) struct Acknowledged {
    bytes: u64,
    /// The number that was reported last.
    told: u64,
    /// The operation that reports the number.
    pub(crate) reporter: Option<Key>,
}

impl Acknowledged {
    /// The number of bytes to report, if it was not reported before.
    pub(crate) fn take_news(&mut self) -> Option<u64> {
        let is_news = self.bytes != self.told;
        self.told = self.bytes;
        is_news.then_some(self.bytes)
    }

    /// Stores the present number of bytes.
    pub(crate) const fn set(&mut self, bytes: u64) {
        self.bytes = bytes;
    }

    /// The peer has acknowledged the byte with this number, modulo 2³², and all before it. Fewer than
    /// 2³¹ bytes are on their way.
    pub(crate) const fn go_on_to(&mut self, last: u32) {
        let known = self.bytes;
        let step = last.wrapping_add(1).wrapping_sub(low(known));
        if step < 1 << 31 {
            self.bytes = known + step as u64;
        }
    }
}

/// The low half.
#[expect(clippy::cast_possible_truncation, reason = "modulo 2^32")]
const fn low(value: u64) -> u32 {
    value as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_go_on_beyond_32_bits() {
        let mut acknowledged = Acknowledged::default();
        let mut at = 0_u64;
        for step in [1, 70_000, 1 << 30, 1 << 30, 1 << 30, 1 << 30, 5] {
            at += step;
            acknowledged.go_on_to(low(at - 1));
            assert_eq!(acknowledged.bytes, at);
        }
        acknowledged.go_on_to(low(at - 1));
        acknowledged.go_on_to(low(at - 70_000));
        assert_eq!(acknowledged.bytes, at, "an old one changes nothing");
    }

    #[test]
    fn news_are_told_once() {
        let mut acknowledged = Acknowledged::default();
        assert_eq!(acknowledged.take_news(), None);
        acknowledged.go_on_to(9);
        assert_eq!(acknowledged.take_news(), Some(10));
        assert_eq!(acknowledged.take_news(), None);
    }
}
