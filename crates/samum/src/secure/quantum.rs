//! The part of a worker turn in which steps of handshakes are taken, and refused.

use core::time::Duration;

use ring::Time;

/// The most time for steps in one worker turn. They get as much as the other parts of the turn took, but not more than this.
const TIME_MAX: Duration = Duration::from_micros(400);
/// Connections that are closed in one worker turn because their steps were refused; the next turn closes the others.
const REFUSALS_MAX: usize = 32;

/// The steps and refusals of one worker turn.
#[derive(Debug, Default)]
pub(super) struct Quantum {
    /// The time at which the steps of this turn end; `None` until a step was taken.
    until: Option<Time>,
    /// Connections closed in this turn.
    refusals: usize,
}

impl Quantum {
    /// Returns true if this turn has time for a step. It has time for one at least.
    pub(super) fn has_time(&self, now: Time) -> bool {
        self.until.is_none_or(|until| now < until)
    }

    /// Records a step that begins now, in a worker turn that began at `woke_at`.
    pub(super) fn note_step(&mut self, woke_at: Time, now: Time) {
        self.until.get_or_insert_with(|| now + now.since(woke_at).min(TIME_MAX));
    }

    /// Returns true, and records a refusal, if this turn may have another one.
    pub(super) fn take_refusal(&mut self) -> bool {
        let may = self.refusals < REFUSALS_MAX;
        self.refusals += usize::from(may);
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(micros: u64) -> Time {
        Time::default() + Duration::from_micros(micros)
    }

    /// A step takes 150 µs here.
    fn steps_after(others: u64) -> usize {
        let mut quantum = Quantum::default();
        let steps = (0..).take_while(|step| {
            let now = at(others + 150 * step);
            let has_time = quantum.has_time(now);
            if has_time {
                quantum.note_step(at(0), now);
            }
            has_time
        });
        steps.count()
    }

    #[test]
    fn steps_get_as_much_time_as_the_rest_of_the_turn_and_one_at_least() {
        for (others, steps) in [(0, 1), (1, 1), (150, 1), (151, 2), (300, 2), (400, 3), (9000, 3)] {
            assert_eq!(steps_after(others), steps, "{others} µs");
        }
    }

    #[test]
    fn a_turn_closes_so_many_connections_and_no_more() {
        let mut quantum = Quantum::default();
        let closed = (0..100).filter(|_| quantum.take_refusal()).count();
        assert_eq!(closed, REFUSALS_MAX);
    }
}
