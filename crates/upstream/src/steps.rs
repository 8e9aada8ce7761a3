//! The steps of handshakes with servers, which get a part of each worker turn.
//!
//! A step makes keys or verifies signatures: 0.1 to 0.3 ms, and some ms if our certificate has a large RSA key. Those for
//! which a turn has no time wait in line. A link waits for one step at a time, so the line is as long as there are links.

use core::time::Duration;
use std::collections::VecDeque;

use ring::{Key, Time};

/// The most time for steps in one worker turn. One step is taken at least.
const TIME_MAX: Duration = Duration::from_micros(400);

/// The steps that wait, and the time that the worker turn has for them.
#[derive(Debug, Default)]
pub(super) struct Steps {
    /// Links whose step is due, each once. Some may have been closed since.
    waiting: VecDeque<Key>,
    turn: u64,
    /// The time at which the steps of this turn end; `None` until a step was taken.
    until: Option<Time>,
}

impl Steps {
    /// Returns true if a step may be taken now. Otherwise the link waits in line. `now` is read only if it is needed.
    pub(super) fn take_or_wait(&mut self, link: Key, turn: u64, now: impl Fn() -> Time) -> bool {
        if self.waiting.is_empty() && self.take(turn, now()) {
            return true;
        }
        if !self.waiting.contains(&link) {
            self.waiting.push_back(link);
        }
        false
    }

    /// Takes the next link out of the line, if this turn has time for its step.
    pub(super) fn next(&mut self, turn: u64, now: impl Fn() -> Time) -> Option<Key> {
        if self.waiting.is_empty() || !self.take(turn, now()) {
            return None;
        }
        self.waiting.pop_front()
    }

    /// Returns true if links wait in line.
    pub(super) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    fn take(&mut self, turn: u64, now: Time) -> bool {
        if core::mem::replace(&mut self.turn, turn) != turn {
            self.until = None;
        }
        now < *self.until.get_or_insert(now + TIME_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ring::Slab;

    #[test]
    fn a_turn_has_time_for_some_steps_and_the_others_keep_their_order() {
        let mut slab = Slab::new();
        let links: Vec<_> = (0..7).map(|number| slab.insert(number)).collect();
        let mut steps = Steps::default();
        // A step takes 150 µs here.
        let at = |micros: u64| move || Time::default() + Duration::from_micros(micros);
        let mut taken = Vec::new();
        for (link, micros) in links.iter().zip((0..).step_by(150)) {
            if steps.take_or_wait(*link, 1, at(micros)) {
                taken.push(*link);
            }
        }
        assert_eq!(taken, links[..3]);
        // One that hears more while it waits keeps its place.
        assert!(!steps.take_or_wait(links[4], 1, at(1050)));
        assert_eq!(steps.next(1, at(1050)), None);
        for (turn, micros, expected) in
            [(2, 2000, Some(3)), (2, 2150, Some(4)), (2, 2300, Some(5)), (2, 2450, None)]
        {
            assert_eq!(steps.next(turn, at(micros)), expected.map(|index: usize| links[index]));
        }
        // A link that comes now is last in the queue.
        assert!(!steps.take_or_wait(links[0], 3, at(3000)));
        assert_eq!(steps.next(3, at(3000)), Some(links[6]));
        // A turn whose first step takes long takes one.
        assert_eq!(steps.next(4, at(4000)), Some(links[0]));
        assert!(!steps.is_waiting());
        assert!(!steps.take_or_wait(links[1], 4, at(9000)));
        assert!(steps.is_waiting());
    }
}
