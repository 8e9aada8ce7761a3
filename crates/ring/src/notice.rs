//! The kernel's notices about sent bytes: how many the peer has acknowledged, and how it has left.

use crate::slab::Key;

/// The facts that are known about the bytes that were sent on a socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Notice {
    /// Bytes that the peer has acknowledged, of those that were sent since
    /// [`Ring::report_acknowledgements`](crate::Ring::report_acknowledgements). The number is exact only at the end of
    /// each send. Acknowledged pages of a file may still be referred to: a receiver on the same machine shares them.
    pub acknowledged: u64,
}

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

/// The notices of a socket.
#[derive(Debug, Default)]
pub(crate) struct Notices {
    now: Notice,
    /// The last one that was reported.
    told: Notice,
    /// The operation that reports the notices.
    pub(crate) reporter: Option<Key>,
}

impl Notices {
    pub(crate) const fn now(&self) -> Notice {
        self.now
    }

    /// The news to report, if it was not reported before.
    pub(crate) fn take_news(&mut self) -> Option<Notice> {
        let is_news = self.now != self.told;
        self.told = self.now;
        is_news.then_some(self.now)
    }

    /// Stores the present notice.
    pub(crate) const fn set(&mut self, notice: Notice) {
        self.now = notice;
    }

    /// The peer has acknowledged the byte with this number, modulo 2³², and all before it. Fewer than
    /// 2³¹ bytes are on their way.
    pub(crate) const fn acknowledged(&mut self, last: u32) {
        let known = self.now.acknowledged;
        let step = last.wrapping_add(1).wrapping_sub(low(known));
        if step < 1 << 31 {
            self.now.acknowledged = known + step as u64;
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
        let mut notices = Notices::default();
        let mut at = 0_u64;
        for step in [1, 70_000, 1 << 30, 1 << 30, 1 << 30, 1 << 30, 5] {
            at += step;
            notices.acknowledged(low(at - 1));
            assert_eq!(notices.now().acknowledged, at);
        }
        notices.acknowledged(low(at - 1));
        notices.acknowledged(low(at - 70_000));
        assert_eq!(notices.now().acknowledged, at, "an old one changes nothing");
    }

    #[test]
    fn news_are_told_once() {
        let mut notices = Notices::default();
        assert_eq!(notices.take_news(), None);
        notices.acknowledged(9);
        assert_eq!(notices.take_news(), Some(Notice { acknowledged: 10 }));
        assert_eq!(notices.take_news(), None);
    }
}
