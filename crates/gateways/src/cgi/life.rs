//! The life of a program: decides when its response ends, and when its processes are stopped.
//!
//! A program is a group of processes: a leader, which the server started, and the processes that the leader starts. The
//! leader stays a zombie until the last signal to the group was sent, because until then no other group can get its
//! number.
//!
//! - The response ends with the output, when the output's end has come and the leader has ended, or [`GRACE`] after the
//!   output's end. It also ends when the leader has ended and a process that it left behind has put out nothing for
//!   [`GRACE`].
//! - A program is stopped by SIGTERM, and by SIGKILL if it still runs after [`PATIENCE`]. The reasons are: its time is
//!   over, its output is too long or has a faulty header, its client has gone, or processes that it left behind keep
//!   its output open and silent. If a program has ended by itself, its processes that have closed the output are left
//!   alone.
//! - A leader that cannot be killed, because it has taken on another user's rights, is given up.

use core::time::Duration;

use ring::Time;

use crate::programs::supervisor::PATIENCE;

/// The time from the end of the leader or of the output to the end of the response.
pub(super) const GRACE: Duration = Duration::from_secs(1);

/// The state of a program. This state decides what is done with the program.
#[derive(Clone, Debug)]
pub(super) struct Life {
    deadline: Time,
    /// Bytes that the program may still put out.
    left: u64,
    output: Output,
    leader: Leader,
    stop: Stop,
}

/// The output of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Output {
    /// The output is open. The time is since when there has been nothing to read, if the server wants to read.
    Open(Option<Time>),
    /// The output has ended, at this time.
    Ended(Time),
}

/// The first process of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leader {
    Runs,
    /// The leader has ended at this time, perhaps by a signal; or the wait for the leader was given up.
    Ended(Time, Option<i32>),
}

/// The state of stopping a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    No,
    /// The program has to be stopped.
    Asked(Cause),
    /// SIGTERM was sent at this time.
    Terminated(Cause, Time),
    /// SIGKILL was sent.
    Killed(Cause),
}

/// The reason why a response is cut off, or a program stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// The client has gone.
    Gone,
    /// The program has put out too much.
    Output,
    /// The program's header breaks a rule.
    Header,
    /// The leader has ended, and the output has been silent since.
    Silence,
    /// A signal ended the leader.
    Signal(i32),
    /// The program's time is over.
    Timeout,
}

/// The end of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The response is complete.
    Whole,
    /// The rest will not come.
    Cut(Cause),
}

/// An action on the processes of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Send SIGTERM.
    Terminate,
    /// Send SIGKILL.
    Kill,
    /// Wait for the leader, which has ended. This is the last action.
    Reap,
}

impl Life {
    /// A program that was started now.
    pub(super) fn new(now: Time, timeout: Duration, output_max: u64) -> Self {
        Self {
            deadline: now + timeout,
            left: output_max,
            output: Output::Open(None),
            leader: Leader::Runs,
            stop: Stop::No,
        }
    }

    /// Counts bytes of output.
    pub(super) fn handle_output(&mut self, bytes: u64) {
        self.output = Output::Open(None);
        self.handle_errors(bytes);
    }

    /// Counts bytes of standard error, which have the same limit.
    pub(super) fn handle_errors(&mut self, bytes: u64) {
        match self.left.checked_sub(bytes) {
            Some(left) => self.left = left,
            None => self.stop(Cause::Output),
        }
    }

    /// Records that there is nothing to read at the moment.
    pub(super) fn handle_quiet(&mut self, now: Time) {
        if self.output == Output::Open(None) {
            self.output = Output::Open(Some(now));
        }
    }

    /// Records the end of the output: no process can write to it any more.
    pub(super) const fn handle_output_end(&mut self, now: Time) {
        if let Output::Open(_) = self.output {
            self.output = Output::Ended(now);
        }
    }

    /// Records that the leader has ended, perhaps by a signal.
    pub(super) const fn handle_exit(&mut self, now: Time, signal: Option<i32>) {
        self.leader = Leader::Ended(now, signal);
    }

    /// Orders the program to be stopped.
    pub(super) const fn stop(&mut self, cause: Cause) {
        if let Stop::No = self.stop {
            self.stop = Stop::Asked(cause);
        }
    }

    /// Gives up waiting for the leader, which cannot be killed.
    pub(super) const fn handle_immortal(&mut self, now: Time) {
        if let Leader::Runs = self.leader {
            self.leader = Leader::Ended(now, None);
        }
    }

    /// Returns true if only processes that hold the output are stopped, because the program has ended by itself.
    pub(super) const fn is_stopped_for_silence(&self) -> bool {
        matches!(
            self.stop,
            Stop::Asked(Cause::Silence)
                | Stop::Terminated(Cause::Silence, _)
                | Stop::Killed(Cause::Silence)
        )
    }

    /// Returns true if the program is being stopped.
    pub(super) fn is_stopped(&self) -> bool {
        self.stop != Stop::No
    }

    /// The end of the response, if it has come.
    pub(super) fn end(&self, now: Time) -> Option<End> {
        let signal = match (self.stop, self.output, self.leader) {
            (Stop::No, Output::Ended(_), Leader::Ended(_, signal))
            | (Stop::Asked(Cause::Silence), _, Leader::Ended(_, signal))
            | (Stop::Terminated(Cause::Silence, _), _, Leader::Ended(_, signal))
            | (Stop::Killed(Cause::Silence), _, Leader::Ended(_, signal)) => signal,
            (Stop::No, Output::Ended(at), Leader::Runs) if now >= at + GRACE => None,
            (Stop::No, Output::Open(_), Leader::Ended(_, signal)) if self.is_silent(now) => signal,
            (Stop::No, ..) => return None,
            (Stop::Asked(cause) | Stop::Terminated(cause, _) | Stop::Killed(cause), ..) => {
                return Some(End::Cut(cause));
            }
        };
        Some(signal.map_or(End::Whole, |signal| End::Cut(Cause::Signal(signal))))
    }

    /// The next action. The caller repeats the call until it returns `None`, and never calls again after the last
    /// action.
    pub(super) fn poll(&mut self, now: Time) -> Option<Action> {
        let has_ended = matches!(self.leader, Leader::Ended(..));
        if has_ended && matches!(self.output, Output::Ended(_)) {
            return Some(Action::Reap);
        }
        if self.stop == Stop::No {
            if now >= self.deadline {
                self.stop(Cause::Timeout);
            } else if self.is_silent(now) {
                self.stop(Cause::Silence);
            }
        }
        match self.stop {
            Stop::Asked(cause) => {
                self.stop = Stop::Terminated(cause, now);
                Some(Action::Terminate)
            }
            Stop::Terminated(cause, at) if now >= at + PATIENCE => {
                self.stop = Stop::Killed(cause);
                Some(Action::Kill)
            }
            Stop::Killed(_) if has_ended => Some(Action::Reap),
            Stop::No | Stop::Terminated(..) | Stop::Killed(_) => None,
        }
    }

    /// Returns true if the leader has ended, and the output has been silent for a while since.
    fn is_silent(&self, now: Time) -> bool {
        let (Output::Open(Some(quiet)), Leader::Ended(ended, _)) = (self.output, self.leader)
        else {
            return false;
        };
        now >= quiet.max(ended) + GRACE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Time = Time::from_nanos(1_000_000_000);
    const TIMEOUT: Duration = Duration::from_secs(60);

    fn life() -> Life {
        Life::new(START, TIMEOUT, 1000)
    }

    fn after(seconds: u64) -> Time {
        START + Duration::from_secs(seconds)
    }

    /// A millisecond before.
    fn nearly(seconds: u64) -> Time {
        START + (Duration::from_secs(seconds) - Duration::from_millis(1))
    }

    #[test]
    fn a_response_ends_with_the_output_and_the_leader() {
        for order in [[0, 1], [1, 0]] {
            for (signal, end) in [(None, End::Whole), (Some(11), End::Cut(Cause::Signal(11)))] {
                let mut life = life();
                for what in order {
                    assert_eq!((life.end(START), life.poll(START)), (None, None));
                    match what {
                        0 => life.handle_output_end(START),
                        _ => life.handle_exit(START, signal),
                    }
                }
                assert_eq!(life.end(START), Some(end));
                assert_eq!(life.poll(START), Some(Action::Reap));
            }
        }
    }

    #[test]
    fn a_program_may_go_on_after_its_output() {
        let mut life = life();
        life.handle_output_end(after(1));
        assert_eq!(life.end(after(1)), None, "it may be about to end by a signal");
        assert_eq!(life.end(after(2)), Some(End::Whole));
        assert_eq!(life.poll(after(59)), None);
        // Not for longer than any program.
        assert_eq!(life.poll(after(60)), Some(Action::Terminate));
        assert_eq!(life.poll(after(64)), None);
        assert_eq!(life.poll(after(65)), Some(Action::Kill));
        assert_eq!(life.poll(after(100)), None);
        life.handle_exit(after(101), Some(9));
        assert_eq!(life.poll(after(101)), Some(Action::Reap));
    }

    #[test]
    fn processes_that_are_left_behind_may_put_out_more_but_not_be_silent() {
        let mut life = life();
        life.handle_quiet(after(1));
        life.handle_exit(after(5), None);
        assert_eq!((life.end(after(5)), life.poll(after(5))), (None, None));
        assert_eq!((life.end(nearly(6)), life.poll(nearly(6))), (None, None));
        life.handle_output(1);
        assert_eq!(life.end(after(20)), None, "the client takes nothing");
        life.handle_quiet(after(20));
        life.handle_quiet(nearly(21));
        assert_eq!(life.end(nearly(21)), None);
        assert_eq!(life.end(after(21)), Some(End::Whole));
        assert_eq!(life.poll(after(21)), Some(Action::Terminate));
        // The program obeys the signal.
        life.handle_output_end(after(22));
        assert_eq!(life.poll(after(22)), Some(Action::Reap));
    }

    #[test]
    fn what_does_not_obey_sigterm_is_killed_though_the_leader_has_ended() {
        let mut life = life();
        life.stop(Cause::Gone);
        assert_eq!(life.end(START), Some(End::Cut(Cause::Gone)));
        assert_eq!(life.poll(START), Some(Action::Terminate));
        life.handle_exit(START, Some(15));
        assert_eq!(life.poll(after(4)), None);
        assert_eq!(life.poll(after(5)), Some(Action::Kill));
        assert_eq!(life.poll(after(5)), Some(Action::Reap));
    }

    #[test]
    fn a_leader_that_cannot_be_killed_is_given_up() {
        let mut life = life();
        assert_eq!(life.poll(after(60)), Some(Action::Terminate));
        assert_eq!(life.poll(after(65)), Some(Action::Kill));
        assert_eq!(life.poll(after(66)), None);
        life.handle_immortal(after(66));
        assert_eq!(life.poll(after(66)), Some(Action::Reap));
        assert!(!life.is_stopped_for_silence());
    }

    #[test]
    fn output_is_bounded_and_the_first_cause_counts() {
        let mut life = life();
        life.handle_output(1000);
        assert!(!life.is_stopped());
        life.handle_output(1);
        assert!(life.is_stopped());
        life.stop(Cause::Gone);
        assert_eq!(life.end(START), Some(End::Cut(Cause::Output)));
        assert_eq!(life.poll(after(100)), Some(Action::Terminate));
    }

    #[test]
    fn a_program_that_hangs_is_stopped() {
        let mut life = life();
        life.handle_quiet(START);
        assert_eq!(life.poll(nearly(60)), None);
        assert_eq!(life.poll(after(60)), Some(Action::Terminate));
        assert_eq!(life.end(after(60)), Some(End::Cut(Cause::Timeout)));
    }
}
