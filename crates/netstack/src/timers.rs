//! Deadlines of many connections: a hierarchical timer wheel with lazy updates.
//!
//! A deadline moves with each segment, but its entry in the wheel stays. When an entry is due, the wheel asks its
//! owner for the present deadline. An owner keeps the tick of its entry, and adds another entry only if its
//! deadline is earlier. The owner ignores an entry with another tick than the one it keeps. A connection without a
//! deadline, such as an idle one, has no entry.
//!
//! The wheel is scheme 7 of Varghese and Lauck (1987): a level counts in units of the whole level below. An entry
//! is at the level of the highest digit in which its tick differs from the present one, so each entry of a level is
//! earlier than all of the next one.

use alloc::vec::Vec;

use crate::time::Time;

/// A moment in ticks of 65.536 µs. A tick has only the low 32 bits, which repeat after 78 hours. No deadline is
/// half as far in the future.
pub(crate) type Tick = u32;

/// Deadlines by tick.
pub(crate) struct Wheel {
    levels: [Level; LEVELS],
    /// Every entry before this tick has expired.
    current: u64,
    len: usize,
}

struct Level {
    slots: [Vec<Entry>; SLOTS],
    /// A bit for each slot that has entries.
    occupied: u64,
}

#[derive(Clone, Copy)]
struct Entry {
    tick: u64,
    id: u64,
}

/// A tick has 2 to the power of this nanoseconds.
const TICK_BITS: u32 = 16;
/// Bits of a digit.
const DIGIT_BITS: u32 = 6;
const SLOTS: usize = 1 << DIGIT_BITS;
/// The number of levels, enough for all ticks of a [`Time`]. The first levels reach 4 ms, 268 ms, 17 s and 18 min.
const LEVELS: usize = 8;
const _: () = assert!(TICK_BITS + DIGIT_BITS * 8 == u64::BITS && LEVELS == 8);
/// The longest wait of an entry, 19 h. The entry of a later deadline expires then, and is inserted again.
const FAR: u64 = 1 << 30;
/// The number of entries whose memory is kept in a slot that has become empty.
const KEPT: usize = 64;

const fn tick_of(time: Time) -> u64 {
    time.as_nanos() >> TICK_BITS
}

#[expect(clippy::cast_possible_truncation, reason = "a tick has the low bits")]
const fn short(tick: u64) -> Tick {
    tick as u32
}

/// True if an entry at `tick` expires too late for `deadline`.
pub(crate) fn is_later(tick: Tick, now: Time, deadline: Time) -> bool {
    let due = (tick_of(deadline) + 1).clamp(tick_of(now) + 1, tick_of(now) + FAR);
    short(due).wrapping_sub(tick).cast_signed() < 0
}

impl Wheel {
    pub(crate) fn new(now: Time) -> Self {
        let level = |_| Level { slots: core::array::from_fn(|_| Vec::new()), occupied: 0 };
        Self { levels: core::array::from_fn(level), current: tick_of(now), len: 0 }
    }

    /// Adds an entry that expires at most a tick after the deadline; returns its tick.
    pub(crate) fn insert(&mut self, now: Time, id: u64, deadline: Time) -> Tick {
        let now = tick_of(now).max(self.current);
        let tick = (tick_of(deadline) + 1).clamp(now + 1, now + FAR);
        self.place(Entry { tick, id });
        self.len += 1;
        short(tick)
    }

    /// The time to call [`expire`](Self::expire). It may be earlier than the first deadline.
    pub(crate) fn next(&self) -> Option<Time> {
        let (level, slot) = self.first()?;
        Some(Time::from_nanos(self.start(level, slot) << TICK_BITS))
    }

    /// Takes one entry that has expired by `now`: its owner, and its tick.
    pub(crate) fn expire(&mut self, now: Time) -> Option<(u64, Tick)> {
        let now = tick_of(now);
        while let Some((level, slot)) =
            self.first().filter(|(level, slot)| self.start(*level, *slot) <= now)
        {
            self.current = self.current.max(self.start(level, slot));
            if level == 0 {
                return self.take(slot);
            }
            self.spread(level, slot);
        }
        self.current = self.current.max(now);
        None
    }

    /// The number of entries.
    #[cfg(test)]
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    fn place(&mut self, entry: Entry) {
        let differing = u64::BITS - (entry.tick ^ self.current).leading_zeros();
        let level = (differing.saturating_sub(1) / DIGIT_BITS) as usize;
        let slot = digit(entry.tick, level);
        self.levels[level].slots[slot].push(entry);
        self.levels[level].occupied |= 1 << slot;
    }

    /// The level and the slot that come next.
    fn first(&self) -> Option<(usize, usize)> {
        let level = self.levels.iter().position(|level| level.occupied != 0)?;
        Some((level, self.levels[level].occupied.trailing_zeros() as usize))
    }

    /// The first tick of a slot: the digits of the present tick above the level, then the slot.
    const fn start(&self, level: usize, slot: usize) -> u64 {
        let low = low_bit(level);
        let above = !(u64::MAX >> (u64::BITS - low - DIGIT_BITS));
        self.current & above | (slot as u64) << low
    }

    /// Takes an entry of the lowest level.
    fn take(&mut self, slot: usize) -> Option<(u64, Tick)> {
        let level = &mut self.levels[0];
        let entry = level.slots[slot].pop()?;
        if level.slots[slot].is_empty() {
            level.occupied &= !(1 << slot);
            level.slots[slot].shrink_to(KEPT);
        }
        self.len -= 1;
        Some((entry.id, short(entry.tick)))
    }

    /// Moves the entries of a slot whose time has begun to lower levels.
    fn spread(&mut self, level: usize, slot: usize) {
        self.levels[level].occupied &= !(1 << slot);
        let mut entries = core::mem::take(&mut self.levels[level].slots[slot]);
        for entry in entries.drain(..) {
            self.place(entry);
        }
        entries.shrink_to(KEPT);
        self.levels[level].slots[slot] = entries;
    }
}

#[expect(clippy::cast_possible_truncation, reason = "a digit has six bits")]
const fn digit(tick: u64, level: usize) -> usize {
    (tick >> low_bit(level)) as usize & (SLOTS - 1)
}

/// The lowest bit of a level's digit.
#[expect(clippy::cast_possible_truncation, reason = "there are eight levels")]
const fn low_bit(level: usize) -> u32 {
    DIGIT_BITS * level as u32
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use proptest::prelude::*;

    use super::*;

    fn at(micros: u64) -> Time {
        Time::default() + Duration::from_micros(micros)
    }

    fn expire_all(wheel: &mut Wheel, now: Time) -> Vec<u64> {
        let mut all: Vec<_> = core::iter::from_fn(|| wheel.expire(now)).map(|(id, _)| id).collect();
        all.sort_unstable();
        all
    }

    #[test]
    fn an_entry_comes_up_once_not_before_its_deadline() {
        let mut wheel = Wheel::new(at(10_000_000));
        wheel.insert(at(10_000_000), 1, at(12_000_000));
        wheel.insert(at(10_000_000), 2, at(11_000_000));
        assert_eq!(expire_all(&mut wheel, at(10_999_999)), []);
        assert_eq!(expire_all(&mut wheel, at(11_000_140)), [2]);
        assert_eq!(expire_all(&mut wheel, at(11_999_999)), []);
        assert_eq!(expire_all(&mut wheel, at(70_000_000)), [1]);
        assert_eq!((wheel.next(), wheel.len()), (None, 0));
    }

    #[test]
    fn a_deadline_that_has_passed_comes_up_at_the_next_tick() {
        let mut wheel = Wheel::new(at(0));
        let tick = wheel.insert(at(100_000), 7, at(5));
        assert!(
            !is_later(tick, at(100_000), at(5))
                && is_later(tick.wrapping_add(1), at(100_000), at(5))
        );
        assert_eq!(expire_all(&mut wheel, at(100_000)), []);
        assert_eq!(expire_all(&mut wheel, at(100_200)), [7]);
    }

    #[test]
    fn a_deadline_that_is_far_off_comes_up_early() {
        let mut wheel = Wheel::new(at(0));
        let tick = wheel.insert(at(0), 1, Time::MAX);
        assert!(!is_later(tick, at(0), Time::MAX));
        assert_eq!(expire_all(&mut wheel, at(72_000_000_000)), [1]);
    }

    proptest! {
        /// Each entry expires in the first step after its deadline, or in the step of its tick. `next` is never
        /// later than an entry.
        #[test]
        fn entries_come_up_in_time(
            start in 0..u64::MAX / 4,
            steps in prop::collection::vec((0..40_u32, any::<u64>(), 0..38_u32, any::<u64>()), 1..300),
        ) {
            const TICK: u64 = 1 << TICK_BITS;
            let mut now = start;
            let mut wheel = Wheel::new(Time::from_nanos(now));
            let mut inside: Vec<(u64, u64)> = Vec::new();
            for (id, (step_bits, step, deadline_bits, deadline)) in (0..).zip(steps) {
                now += step % (1 << step_bits);
                let time = Time::from_nanos(now);
                let next = wheel.next();
                let due = expire_all(&mut wheel, time);
                prop_assert!(due.is_empty() || next.is_some_and(|next| next <= time));
                for (id, deadline) in core::mem::take(&mut inside) {
                    let came = due.contains(&id);
                    prop_assert!(!came || deadline <= now, "{id} came early");
                    prop_assert!(came || now < deadline + 2 * TICK, "{id} is late");
                    if !came {
                        inside.push((id, deadline));
                    }
                }
                let deadline = now + deadline % (1 << deadline_bits);
                wheel.insert(time, id, Time::from_nanos(deadline));
                inside.push((id, deadline));
                prop_assert_eq!(wheel.len(), inside.len());
            }
        }
    }
}
