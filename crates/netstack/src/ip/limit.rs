//! A token bucket that limits replies, with a level that a peer cannot measure.
//!
//! All peers share the bucket. If each use took one token, an attacker could send packets in the name of another host
//! and count the replies that are left for its own packets. The count would show which of the forged packets were
//! answered, and so which ports are closed or which connections exist (Man et al.: "DNS Cache Poisoning Attack
//! Reloaded", 2020; CVE-2020-25705). As in Linux (`icmp_global_allow` in net/ipv4/icmp.c), a use takes 0, 1 or 2 tokens
//! by chance: one on average.

use core::time::Duration;

use crate::siphash;
use crate::time::Time;

/// Allows about `per_second_max` uses in each second, without a pause or spread.
pub(crate) struct Limit {
    per_second_max: u32,
    /// The tokens at the time `at`. Never more than `per_second_max`.
    left: u32,
    /// The time at which `left` last grew.
    at: Time,
    /// The key of the random source: a hash of `uses`.
    key: siphash::Key,
    uses: u64,
}

/// A use takes fewer tokens than this number.
const TOKENS_END: u64 = 3;

impl Limit {
    /// Makes a full bucket. The key is for this limit alone.
    pub(crate) const fn new(per_second_max: u32, key: siphash::Key, now: Time) -> Self {
        Self { per_second_max, left: per_second_max, at: now, key, uses: 0 }
    }

    /// Returns true if a use is allowed now, and counts the use.
    pub(crate) fn allows(&mut self, now: Time) -> bool {
        if self.per_second_max == 0 {
            return false;
        }
        let each = Duration::from_secs(1) / self.per_second_max;
        let grown = now.since(self.at).as_nanos() / each.as_nanos();
        let room = self.per_second_max - self.left;
        if let Some(grown) = u32::try_from(grown).ok().filter(|grown| *grown < room) {
            self.left += grown;
            // The remainder of the time counts at the next call.
            self.at = self.at + each * grown;
        } else {
            self.left = self.per_second_max;
            self.at = now;
        }
        let allows = self.left > 0;
        if allows {
            self.left = self.left.saturating_sub(self.tokens());
        }
        allows
    }

    /// The tokens that the next use takes.
    fn tokens(&mut self) -> u32 {
        self.uses += 1;
        let tokens = self.key.keyed(&self.uses.to_le_bytes()) % TOKENS_END;
        u32::try_from(tokens).expect("a small remainder")
    }
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;

    fn allowed(limit: &mut Limit, now: Time, tries: u32) -> u32 {
        (0..tries).map(|_| u32::from(limit.allows(now))).sum()
    }

    fn limit(per_second_max: u32, seed: u8, now: Time) -> Limit {
        Limit::new(per_second_max, siphash::Key::new([seed; 16]), now)
    }

    #[test]
    fn about_as_much_as_the_limit_says_is_allowed_in_each_second() {
        let second = Duration::from_secs(1);
        for per_second_max in [1, 3, 1000] {
            let start = Time::from_nanos(77);
            let mut limit = limit(per_second_max, 1, start);
            allowed(&mut limit, start, 5000);
            let mut count = 0;
            for step in 1..=1_000_000 {
                count += allowed(&mut limit, start + second / 1000 * step, 3);
            }
            // The use that empties the bucket may take fewer tokens than its number.
            let all = 1000 * per_second_max;
            assert!((all * 9 / 10..all * 2).contains(&count), "{per_second_max}: {count}");
        }
        assert_eq!(allowed(&mut limit(0, 1, Time::default()), Time::MAX, 3), 0);
    }

    #[test]
    fn what_was_not_used_does_not_pile_up() {
        let mut limit = limit(1000, 1, Time::default());
        let later = Time::default() + Duration::from_secs(100);
        for now in [Time::default(), later] {
            let count = allowed(&mut limit, now, 5000);
            assert!((900..1100).contains(&count), "{count}");
        }
    }

    /// A use by another peer shifts the number that is left by one; chance shifts it by much more.
    #[test]
    fn cve_2020_25705_the_uses_that_are_left_do_not_tell_those_before() {
        let now = Time::default();
        let counts = |before| {
            let mut counts: Vec<_> = (0..=255)
                .map(|seed| {
                    let mut limit = limit(1000, seed, now);
                    allowed(&mut limit, now, before);
                    allowed(&mut limit, now, 5000)
                })
                .collect();
            counts.sort_unstable();
            counts
        };
        let (unused, used) = (counts(0), counts(1));
        // The standard deviation is 26: two thirds of the uses' variance of 2/3.
        let quartiles = [unused[64], unused[192]];
        assert!((980..1000).contains(&quartiles[0]), "{quartiles:?}");
        assert!((1001..1020).contains(&quartiles[1]), "{quartiles:?}");
        assert!(used[64] + 10 < quartiles[1] && quartiles[0] + 10 < used[192], "{quartiles:?}");
    }
}
