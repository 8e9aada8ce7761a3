//! The kernel's notices about sent bytes: the peer has acknowledged them, or nothing refers to their memory any more.
//!
//! Acknowledged bytes may still be referred to, because a receiver on the same machine shares the sender's pages. So
//! the two notices are different, and memory is used again only after the second.

use core::ops::Range;

use crate::slab::Key;

/// The facts that are known about the bytes that were sent on a socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Notice {
    /// Bytes that the peer has acknowledged, of those that were sent since
    /// [`Ring::report_acknowledgements`](crate::Ring::report_acknowledgements). The number is exact only at the end of
    /// each send. Acknowledged memory may still be referred to: a receiver on the same machine shares the pages.
    pub acknowledged: u64,
    /// The number of calls of [`Ring::send_zero_copy`](crate::Ring::send_zero_copy) that sent something and whose
    /// memory the kernel has released, without gaps. Later calls may have been released, too.
    pub released: u64,
    /// True if the kernel has copied the memory of a zero-copy send after all.
    pub copied: bool,
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
    /// Sends that were released before an earlier one, by number.
    early: Vec<Range<u64>>,
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

    /// The kernel has released the sends from `first` to `last`, numbers modulo 2³².
    pub(crate) fn released(&mut self, first: u32, last: u32, copied: bool) {
        self.now.copied |= copied;
        let known = self.now.released;
        let start = known + u64::from(first.wrapping_sub(low(known)));
        self.early.push(start..start + u64::from(last.wrapping_sub(first)) + 1);
        while let Some(at) = self.early.iter().position(|run| run.start <= self.now.released) {
            self.now.released = self.now.released.max(self.early.swap_remove(at).end);
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
    fn sends_are_released_in_any_order_and_counted_in_theirs() {
        let mut notices = Notices::default();
        notices.now.released = u64::from(u32::MAX) - 1;
        let first = u32::MAX - 1;
        notices.released(first.wrapping_add(3), first.wrapping_add(5), false);
        notices.released(first.wrapping_add(1), first.wrapping_add(1), false);
        assert_eq!(notices.now().released, u64::from(first));
        notices.released(first, first, true);
        assert_eq!(notices.now().released, u64::from(first) + 2);
        notices.released(0, 0, false);
        let all = Notice { acknowledged: 0, released: u64::from(first) + 6, copied: true };
        assert_eq!(notices.now(), all);
        assert!(notices.early.is_empty());
    }

    #[test]
    fn news_are_told_once() {
        let mut notices = Notices::default();
        assert_eq!(notices.take_news(), None);
        notices.acknowledged(9);
        assert_eq!(notices.take_news(), Some(Notice { acknowledged: 10, ..Notice::default() }));
        assert_eq!(notices.take_news(), None);
    }
}
