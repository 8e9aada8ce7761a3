//! How often something may be done: a token bucket.

use core::time::Duration;

use crate::time::Time;

/// Allows so much in each second, at once or spread over it.
#[derive(Debug)]
pub(crate) struct Limit {
    per_second_max: u32,
    /// How often it may be done at once, as of `at`. Never more than `per_second_max`.
    left: u32,
    /// The moment up to which `left` has grown.
    at: Time,
}

impl Limit {
    pub(crate) const fn new(per_second_max: u32, now: Time) -> Self {
        Self { per_second_max, left: per_second_max, at: now }
    }

    /// Returns whether it may be done now, and counts it if so.
    pub(crate) fn allows(&mut self, now: Time) -> bool {
        if self.per_second_max == 0 {
            return false;
        }
        let each = Duration::from_secs(1) / self.per_second_max;
        let grown = now.since(self.at).as_nanos() / each.as_nanos();
        let room = self.per_second_max - self.left;
        if let Some(grown) = u32::try_from(grown).ok().filter(|grown| *grown < room) {
            self.left += grown;
            // The rest of the time since then counts next time.
            self.at = self.at + each * grown;
        } else {
            self.left = self.per_second_max;
            self.at = now;
        }
        let allows = self.left > 0;
        self.left -= u32::from(allows);
        allows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(limit: &mut Limit, now: Time, tries: u32) -> u32 {
        (0..tries).map(|_| u32::from(limit.allows(now))).sum()
    }

    #[test]
    fn as_much_as_the_limit_says_is_allowed_at_once_and_in_each_second() {
        let second = Duration::from_secs(1);
        for per_second_max in [1, 3, 1000] {
            let start = Time::from_nanos(77);
            let mut limit = Limit::new(per_second_max, start);
            assert_eq!(allowed(&mut limit, start, 5000), per_second_max);
            let mut count = 0;
            for step in 1..=10_000 {
                count += allowed(&mut limit, start + second / 1000 * step, 2);
            }
            assert_eq!(count, 10 * per_second_max);
            // What was not used does not pile up.
            assert_eq!(allowed(&mut limit, start + second * 100, 5000), per_second_max);
        }
        assert_eq!(allowed(&mut Limit::new(0, Time::default()), Time::MAX, 3), 0);
    }
}
