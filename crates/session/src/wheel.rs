//! Many deadlines: a wheel of coarse ticks with lazy entries.
//!
//! The deadline of a connection moves with each request, but its entry in the wheel stays. When an entry expires, its
//! owner says what its deadline is now. An entry is made only if the owner has none that is as early as its deadline,
//! so a busy connection costs nothing here.

use core::time::Duration;

use ring::Time;

/// Words with a bit for each tick of a round.
const WORDS: usize = 16;
/// Ticks of a round. An entry for a later deadline expires after one round and is put back.
const SLOTS: u64 = 64 * WORDS as u64;

/// A time in ticks. Ticks of 250 ms suffice for 34 years.
pub type Tick = u32;

/// Entries by tick, each with the name of its owner.
#[derive(Debug)]
pub struct Wheel<Id = u64> {
    /// The nanoseconds of a tick.
    tick_nanos: u64,
    slots: Vec<Vec<Id>>,
    /// A bit for each slot that is not empty.
    taken: [u64; WORDS],
    /// All entries up to this tick have expired.
    current: u64,
    entries: usize,
    /// The tick of the first entry; `u64::MAX` if there is none.
    soonest: u64,
}

impl<Id> Wheel<Id> {
    /// A wheel without entries, whose ticks have this length.
    pub fn new(now: Time, tick: Duration) -> Self {
        // A tick is far below the 584 years of 64 bits.
        let tick_nanos = u64::try_from(tick.as_nanos()).unwrap_or(u64::MAX).max(1);
        Self {
            tick_nanos,
            slots: (0..SLOTS).map(|_| Vec::new()).collect(),
            taken: [0; WORDS],
            current: now.as_nanos() / tick_nanos,
            entries: 0,
            soonest: u64::MAX,
        }
    }

    const fn tick_of(&self, time: Time) -> u64 {
        time.as_nanos() / self.tick_nanos
    }

    /// Returns true if an entry at `tick` expires too late for `deadline`.
    pub const fn is_later(&self, tick: Tick, deadline: Time) -> bool {
        tick as u64 > self.tick_of(deadline) + 1
    }

    /// Adds an entry, so that `id` expires at its deadline or soon after; returns the tick of the entry.
    pub fn insert(&mut self, id: Id, deadline: Time) -> Tick {
        let tick = (self.tick_of(deadline) + 1).clamp(self.current + 1, self.current + SLOTS - 1);
        self.slots[slot(tick)].push(id);
        self.taken[slot(tick) / 64] |= 1 << (slot(tick) % 64);
        self.entries += 1;
        self.soonest = self.soonest.min(tick);
        short(tick)
    }

    /// The time at which the next entry expires.
    pub fn next(&self) -> Option<Time> {
        (self.entries > 0)
            .then(|| Time::default() + Duration::from_nanos(self.soonest * self.tick_nanos))
    }

    /// Takes the entries that have expired.
    #[inline]
    pub fn expire(&mut self, now: Time, expired: &mut impl Extend<(Id, Tick)>) {
        // Most calls come within the tick of the last one.
        if now.as_nanos() < (self.current + 1) * self.tick_nanos {
            return;
        }
        self.begin_tick(self.tick_of(now), expired);
    }

    fn begin_tick(&mut self, now: u64, expired: &mut impl Extend<(Id, Tick)>) {
        if now < self.soonest || self.entries == 0 {
            self.current = self.current.max(now.min(self.soonest.saturating_sub(1)));
            return;
        }
        let last = now.min(self.current + SLOTS);
        let mut next = Some(self.soonest);
        while let Some(tick) = next.filter(|tick| *tick <= last) {
            let taken = core::mem::take(&mut self.slots[slot(tick)]);
            self.taken[slot(tick) / 64] &= !(1 << (slot(tick) % 64));
            self.entries -= taken.len();
            expired.extend(taken.into_iter().map(|id| (id, short(tick))));
            next = self.next_taken(tick + 1);
        }
        self.current = now;
        self.soonest = self.next_taken(now + 1).unwrap_or(u64::MAX);
    }

    /// The first tick with entries from this one on, within a round.
    fn next_taken(&self, from: u64) -> Option<u64> {
        if self.entries == 0 {
            return None;
        }
        let (first, before) = (slot(from) / 64, slot(from) % 64);
        // The word of this tick is examined twice: first for the ticks from it on, and last for earlier ticks.
        (0..=WORDS).find_map(|n| {
            let word = self.taken[(first + n) % WORDS];
            let word = match n {
                0 => word & (u64::MAX << before),
                WORDS => word & !(u64::MAX << before),
                _ => word,
            };
            let ticks = 64 * n as u64 + u64::from(word.trailing_zeros());
            (word != 0).then(|| from + ticks - before as u64)
        })
    }
}

fn short(tick: u64) -> Tick {
    Tick::try_from(tick).expect("the clock runs for less than 34 years")
}

fn slot(tick: u64) -> usize {
    usize::try_from(tick % SLOTS).expect("a small number")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TICK: Duration = Duration::from_millis(250);

    fn at(millis: u64) -> Time {
        Time::default() + Duration::from_millis(millis)
    }

    #[test]
    fn an_entry_comes_up_once_not_before_its_deadline_and_soon_after() {
        let mut wheel = Wheel::new(at(10_000), TICK);
        let mut expired = Vec::new();
        wheel.insert(1, at(12_000));
        wheel.insert(2, at(11_000));
        assert!(wheel.next().is_some_and(|next| next >= at(11_000) && next <= at(11_500)));
        wheel.expire(at(10_999), &mut expired);
        assert_eq!(expired, []);
        wheel.expire(at(11_500), &mut expired);
        assert_eq!(expired.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [2]);
        expired.clear();
        wheel.expire(at(11_999), &mut expired);
        assert_eq!(expired, []);
        wheel.expire(at(60_000), &mut expired);
        assert_eq!(expired.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [1]);
        assert_eq!(wheel.next(), None);
    }

    #[test]
    fn a_deadline_beyond_the_round_comes_up_early_and_a_long_sleep_loses_none() {
        let mut wheel = Wheel::new(at(0), TICK);
        let mut expired = Vec::new();
        wheel.insert(1, at(10_000_000));
        assert!(wheel.next().is_some_and(|next| next <= at(256_000)));
        for id in 2..100 {
            wheel.insert(id, at(id * 1000));
        }
        wheel.expire(at(20_000_000), &mut expired);
        assert_eq!(expired.len(), 99);
    }

    #[test]
    fn a_deadline_in_the_past_comes_up_at_the_next_tick() {
        let mut wheel = Wheel::new(at(100_000), TICK);
        let mut expired = Vec::new();
        wheel.expire(at(100_000), &mut expired);
        wheel.insert(7, at(5));
        wheel.expire(at(100_600), &mut expired);
        assert_eq!(expired.len(), 1);
    }

    proptest! {
        #[test]
        fn each_entry_comes_up_at_its_tick_and_the_next_one_is_known(
            steps in proptest::collection::vec((any::<bool>(), 0u64..300_000), 1..60),
        ) {
            let mut wheel = Wheel::new(at(777), TICK);
            let (mut now, mut waiting) = (at(777), Vec::new());
            for (number, (inserts, millis)) in steps.into_iter().enumerate() {
                let time = now + Duration::from_millis(millis);
                if inserts {
                    waiting.push((wheel.insert(number, time), number));
                } else {
                    now = time;
                    let mut expired = Vec::new();
                    wheel.expire(now, &mut expired);
                    let tick = short(wheel.tick_of(now));
                    let (mut due, left): (Vec<_>, _) =
                        waiting.into_iter().partition(|(at, _)| *at <= tick);
                    waiting = left;
                    let mut expired: Vec<_> = expired.iter().map(|(id, at)| (*at, *id)).collect();
                    expired.sort_unstable();
                    due.sort_unstable();
                    prop_assert_eq!(expired, due);
                }
                let soonest = waiting.iter().map(|(tick, _)| u64::from(*tick)).min();
                let next = wheel.next().map(|next| wheel.tick_of(next));
                prop_assert_eq!(next, soonest);
            }
        }
    }
}
