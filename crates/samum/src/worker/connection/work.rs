//! The state that a connection has only while a request is being received or answered.

use core::num::NonZeroU64;

use metrics::{Counters, Number};
use session::forwarded::Scheme;
use session::{Activity, Outgoing, Session};

/// The largest memory of an empty input buffer that is kept: for the rest of a tunnel, or for the next connection.
const INPUT_BYTES_KEPT: usize = 1024;

/// The memory that a connection needs while a request is being received or answered.
pub(super) struct ConnectionWork<W, A> {
    pub(super) session: W,
    /// Bytes that were received and that the session has not taken.
    pub(super) input: Vec<u8>,
    /// `Some` if a response has begun since the last pump: the bytes per second at which the response is sent.
    pub(super) rate: Option<Option<NonZeroU64>>,
    /// Answers that were found before their turn, by the number of the request.
    pub(super) answers: Vec<(u32, A)>,
    /// True while the connection waits in the worker's queue for another quantum.
    pub(super) queued: bool,
    /// The worker turn in which the connection was last pumped.
    turn: u64,
    /// Bytes that had been sent before that turn.
    sent_before: u64,
    /// Requests that the worker counts as active.
    pub(super) active_requests: u32,
    /// The activity with which the worker counts the connection.
    activity: Activity,
}

/// Works that connections have given back, for the next connection that has something to do.
pub(in crate::worker) struct Spare<S: Session, A>(pub(super) Vec<Box<ConnectionWork<S::Work, A>>>);

impl<W, A> ConnectionWork<W, A> {
    /// Removes the `count` bytes of the input that the session has handled. The memory of a burst is freed with its
    /// last byte, because a connection may go on for hours.
    pub(super) fn consume(&mut self, count: usize) {
        self.input.drain(..count);
        if self.input.is_empty() {
            self.input.shrink_to(INPUT_BYTES_KEPT);
        }
    }
}

impl<W: Outgoing, A> ConnectionWork<W, A> {
    /// Returns true if every request was answered and every byte sent. The connection may still wait in the worker's
    /// queue.
    pub(super) fn is_done(&self) -> bool {
        self.session.is_idle() && self.input.is_empty()
    }

    /// Returns whether nothing refers to it any more, so that it can serve another connection.
    pub(super) fn is_idle(&self) -> bool {
        self.is_done() && !self.queued
    }

    /// The bytes that were sent in this worker turn: the part of the connection's quantum that is used up.
    pub(super) fn spent(&mut self, turn: u64) -> u64 {
        let sent = self.session.queue().sent();
        if self.turn != turn {
            (self.turn, self.sent_before) = (turn, sent);
        }
        sent - self.sent_before
    }

    /// Notes how many requests the worker counts as active from now on. The scheme is that of the connection: it does not
    /// change while requests are active.
    pub(super) fn count_requests(&mut self, stats: &Counters, scheme: Scheme, active: u32) {
        if active == self.active_requests {
            return;
        }
        let before = core::mem::replace(&mut self.active_requests, active);
        let sum = match scheme {
            Scheme::Http => &stats.active_requests,
            Scheme::Https => &stats.active_requests_tls,
        };
        sum.add(active.into());
        sum.subtract(before.into());
    }

    /// Notes the activity with which the worker counts the connection from now on. Idle connections are not counted: they
    /// have no work.
    pub(super) fn count_activity(&mut self, stats: &Counters, activity: Activity) {
        if activity == self.activity {
            return;
        }
        let before = core::mem::replace(&mut self.activity, activity);
        if let Some(count) = count_of(stats, before) {
            count.subtract(1);
        }
        if let Some(count) = count_of(stats, activity) {
            count.add(1);
        }
    }

    pub(super) fn take_answer(&mut self, request: u32) -> Option<A> {
        let place = self.answers.iter().position(|(other, _)| *other == request)?;
        Some(self.answers.remove(place).1)
    }

    /// Nothing is left to do: what is kept serves another connection, of which it must know nothing.
    pub(super) fn restart(&mut self) {
        self.session.restart();
        self.answers.clear();
        self.rate = None;
        // The queue begins again at its position 0.
        self.sent_before = 0;
        self.input.shrink_to(INPUT_BYTES_KEPT);
    }
}

/// The number of connections with this activity, if they are counted.
const fn count_of(stats: &Counters, activity: Activity) -> Option<&Number> {
    match activity {
        Activity::Idle => None,
        Activity::Reading => Some(&stats.connections_reading),
        Activity::Waiting => Some(&stats.connections_waiting),
        Activity::Writing => Some(&stats.connections_writing),
        Activity::Tunnel => Some(&stats.connections_tunnels),
    }
}

impl<W: Default, A> Default for ConnectionWork<W, A> {
    fn default() -> Self {
        let (session, input, answers) = (W::default(), Vec::new(), Vec::new());
        let activity = Activity::Idle;
        Self {
            session,
            input,
            rate: None,
            answers,
            queued: false,
            turn: 0,
            sent_before: 0,
            active_requests: 0,
            activity,
        }
    }
}

impl<S: Session, A> Default for Spare<S, A> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_of_a_burst_is_given_back_with_its_last_byte() {
        for len in [1, INPUT_BYTES_KEPT, INPUT_BYTES_KEPT + 1, 100 * INPUT_BYTES_KEPT] {
            let mut work = ConnectionWork::<(), ()>::default();
            work.input.extend(vec![0; len]);
            work.consume(len - 1);
            assert_eq!(work.input.len(), 1);
            work.consume(1);
            assert!(work.input.capacity() <= INPUT_BYTES_KEPT, "{len} {}", work.input.capacity());
        }
    }
}
