//! Many deadlines: a wheel of coarse ticks that looks lazily.
//!
//! The deadline of a connection moves with each request, its entry in the wheel does not: when an entry
//! comes up, its owner says what its deadline is now. An entry is made only for an owner that has
//! none as early as its deadline, so a busy connection costs nothing here.

use core::time::Duration;

use ring::Time;

/// Ticks of a round. A deadline that is further off comes up after one round and is put back.
const SLOTS: u64 = 1024;

/// A moment in ticks: those of 250 ms last for 34 years.
pub(crate) type Tick = u32;

/// Entries by tick, each the name of its owner.
#[derive(Debug)]
pub(crate) struct Wheel<Id = u64> {
    /// The nanoseconds of a tick.
    tick_nanos: u64,
    slots: Vec<Vec<Id>>,
    /// Everything up to this tick has come up.
    current: u64,
    entries: usize,
    /// No entry is before this tick.
    soonest: u64,
}

impl<Id> Wheel<Id> {
    /// A wheel without entries, of ticks that last so long.
    pub(crate) fn new(now: Time, tick: Duration) -> Self {
        let tick_nanos = u64::try_from(tick.as_nanos()).expect("a tick is short");
        Self {
            tick_nanos,
            slots: (0..SLOTS).map(|_| Vec::new()).collect(),
            current: now.as_nanos() / tick_nanos,
            entries: 0,
            soonest: u64::MAX,
        }
    }

    const fn tick_of(&self, time: Time) -> u64 {
        time.as_nanos() / self.tick_nanos
    }

    /// Whether an entry at `tick` comes up too late for `deadline`.
    pub(crate) const fn is_later(&self, tick: Tick, deadline: Time) -> bool {
        tick as u64 > self.tick_of(deadline) + 1
    }

    /// Have `id` come up at its deadline or soon after; returns the tick of the entry.
    pub(crate) fn insert(&mut self, id: Id, deadline: Time) -> Tick {
        let tick = (self.tick_of(deadline) + 1).clamp(self.current + 1, self.current + SLOTS - 1);
        self.slots[slot(tick)].push(id);
        self.entries += 1;
        self.soonest = self.soonest.min(tick);
        short(tick)
    }

    /// When the next entry comes up.
    pub(crate) fn next(&self) -> Option<Time> {
        (self.entries > 0)
            .then(|| Time::default() + Duration::from_nanos(self.soonest * self.tick_nanos))
    }

    /// Take the entries that have come up.
    #[inline]
    pub(crate) fn expire(&mut self, now: Time, expired: &mut impl Extend<(Id, Tick)>) {
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
        for tick in self.current + 1..=last {
            let taken = core::mem::take(&mut self.slots[slot(tick)]);
            self.entries -= taken.len();
            expired.extend(taken.into_iter().map(|id| (id, short(tick))));
        }
        self.current = now;
        let (behind, ahead) = self.slots.split_at(slot(now + 1));
        let ticks = ahead.iter().chain(behind).position(|entries| !entries.is_empty());
        self.soonest = ticks.map_or(u64::MAX, |ticks| now + 1 + ticks as u64);
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
}
