//! The decisions of an upgrade, on the side of the process that is to be replaced.
//!
//! ```text
//!             settled        asked             started            ready            proved
//!   Arriving ─────────► Idle ───────► Starting ─────────► Waiting ─────────► Proving ────────► Draining
//!                        ▲               │ refused,          │ says why not,    │ says why not,   │ nothing
//!                        │               │ late, stop        │ ends, late, stop │ ends, stop      │ leads back
//!                        └── given up ◄──┴───────────────────┴──────────────────┘
//! ```
//!
//! Until `Draining` the process serves as before. From `Waiting` on both processes accept. So if the new process ends
//! early, no connection is left waiting. `Proving` is for new processes that end right after they said that they are
//! ready.

use core::time::Duration;

/// The time for the starter to start a process.
pub(super) const START_MAX: Duration = Duration::from_secs(5);
/// The time for the new process to become ready.
pub(super) const READY_MAX: Duration = Duration::from_secs(30);
/// The time for which the new process has to run after it said that it is ready.
pub(super) const PROOF: Duration = Duration::from_secs(1);

/// The state of an upgrade. Times come from a clock that never goes back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum State {
    /// No upgrade is under way.
    #[default]
    Idle,
    /// This process is ready to replace another process, which still serves.
    Arriving,
    /// The starter was asked, until this time.
    Starting(Duration),
    /// The new process has the listeners, and has to be ready at this time.
    Waiting(Duration),
    /// The new process serves. If it still runs at this time, it replaces this process.
    Proving(Duration, Successor),
    /// The new process has replaced this process.
    Draining,
}

/// The process that replaces this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Successor {
    /// Its process ID.
    pub(super) pid: u32,
    /// The numbers of the listeners that the process serves.
    pub(super) listeners: Vec<u32>,
}

/// An event of an upgrade.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// The operator wants an upgrade.
    Asked,
    /// This process has replaced another process.
    Settled,
    /// The starter has started a process.
    Started,
    /// The starter has started no process, for this reason.
    Refused(String),
    /// The new process is ready.
    Ready(Successor),
    /// The new process cannot serve, for this reason.
    Failed(String),
    /// The new process has ended, or the connection to it is lost.
    Ended,
    /// The server has to stop.
    Stop,
    /// Time has passed.
    Tick,
}

/// The step that follows an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Nothing.
    Nothing,
    /// The starter is to start a process.
    Start,
    /// The new process gets the listeners.
    HandOver,
    /// The new process replaces this process.
    Release(Successor),
    /// The upgrade was given up, for this reason. The process serves as before.
    GiveUp(String),
    /// No upgrade begins, for this reason. An upgrade that is under way goes on.
    Refuse(String),
}

impl State {
    /// Handles an event, and returns the next step.
    pub(super) fn handle(&mut self, now: Duration, event: Event) -> Step {
        match (core::mem::take(self), event) {
            (Self::Idle, Event::Asked) => {
                *self = Self::Starting(now + START_MAX);
                Step::Start
            }
            (Self::Draining, Event::Asked) => {
                *self = Self::Draining;
                Step::Refuse("another process has replaced this one already".to_owned())
            }
            (before, Event::Asked) => {
                *self = before;
                Step::Refuse("an upgrade is under way".to_owned())
            }
            (Self::Arriving, Event::Settled) => Step::Nothing,
            (Self::Starting(_), Event::Started) => {
                *self = Self::Waiting(now + READY_MAX);
                Step::HandOver
            }
            (Self::Starting(_), Event::Refused(why)) => Step::GiveUp(why),
            (Self::Starting(_) | Self::Waiting(_) | Self::Proving(..), Event::Stop) => {
                Step::GiveUp("the server is shutting down".to_owned())
            }
            (Self::Waiting(_), Event::Ready(successor)) => {
                *self = Self::Proving(now + PROOF, successor);
                Step::Nothing
            }
            (Self::Waiting(_) | Self::Proving(..), Event::Failed(why) | Event::Refused(why)) => {
                Step::GiveUp(format!("the new process cannot serve: {why}"))
            }
            (Self::Waiting(_), Event::Ended) => Step::GiveUp(
                "the new process has ended before it was ready; its messages in the log may say why"
                    .to_owned(),
            ),
            (Self::Proving(..), Event::Ended) => Step::GiveUp(
                "the new process has ended right after it said that it is ready; its messages in the log may say why"
                    .to_owned(),
            ),
            (Self::Starting(at), Event::Tick) if at <= now => {
                Step::GiveUp(format!("the starter has not answered within {} s", START_MAX.as_secs()))
            }
            (Self::Waiting(at), Event::Tick) if at <= now => Step::GiveUp(format!(
                "the new process is not ready after {} s",
                READY_MAX.as_secs()
            )),
            (Self::Proving(at, successor), Event::Tick) if at <= now => {
                *self = Self::Draining;
                Step::Release(successor)
            }
            (before, _) => {
                *self = before;
                Step::Nothing
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn successor() -> Successor {
        Successor { pid: 7, listeners: vec![1, 2] }
    }

    fn states() -> [State; 6] {
        [
            State::Idle,
            State::Arriving,
            State::Starting(at(5)),
            State::Waiting(at(30)),
            State::Proving(at(31), successor()),
            State::Draining,
        ]
    }

    /// The state after an event, and the first words of the step.
    fn after(mut state: State, now: Duration, event: Event) -> (State, String) {
        let step = state.handle(now, event);
        (state, format!("{step:?}"))
    }

    #[test]
    fn an_upgrade_has_five_steps() {
        let mut state = State::default();
        assert_eq!(state.handle(at(0), Event::Asked), Step::Start);
        assert_eq!(state.handle(at(1), Event::Started), Step::HandOver);
        assert_eq!(state.handle(at(2), Event::Ready(successor())), Step::Nothing);
        assert_eq!(state.handle(at(2), Event::Tick), Step::Nothing);
        assert_eq!(state.handle(at(3), Event::Tick), Step::Release(successor()));
        assert_eq!(state, State::Draining);
        assert_eq!(state.handle(at(4), Event::Ended), Step::Nothing);
        assert_eq!(state, State::Draining);
    }

    #[test]
    fn a_process_that_replaces_another_one_is_replaced_only_afterwards() {
        let mut state = State::Arriving;
        assert!(matches!(state.handle(at(0), Event::Asked), Step::Refuse(_)));
        assert_eq!(state.handle(at(1), Event::Settled), Step::Nothing);
        assert_eq!(state.handle(at(1), Event::Asked), Step::Start);
    }

    #[test]
    fn whatever_fails_leads_back_to_serving_as_before() {
        let [_, _, starting, waiting, proving, _] = states();
        for (state, now, event, why) in [
            (&starting, 1, Event::Refused("no file".into()), "no file"),
            (&starting, 5, Event::Tick, "has not answered within 5 s"),
            (&starting, 1, Event::Stop, "shutting down"),
            (&waiting, 1, Event::Failed("port".into()), "cannot serve: port"),
            (&waiting, 1, Event::Refused("exec".into()), "cannot serve: exec"),
            (&waiting, 1, Event::Ended, "before it was ready"),
            (&waiting, 30, Event::Tick, "not ready after 30 s"),
            (&waiting, 1, Event::Stop, "shutting down"),
            (&proving, 30, Event::Ended, "right after it said"),
            (&proving, 30, Event::Failed("memory".into()), "cannot serve: memory"),
            (&proving, 30, Event::Stop, "shutting down"),
        ] {
            let (next, step) = after(state.clone(), at(now), event);
            assert_eq!(next, State::Idle, "{step}");
            assert!(step.starts_with("GiveUp") && step.contains(why), "{step}");
        }
    }

    #[test]
    fn a_second_upgrade_is_refused_and_changes_nothing() {
        for state in &states()[1..] {
            let (next, step) = after(state.clone(), at(1), Event::Asked);
            assert_eq!(&next, state);
            assert!(step.starts_with("Refuse"), "{step}");
        }
    }

    #[test]
    fn events_at_other_times_change_nothing() {
        let all = [
            Event::Started,
            Event::Refused(String::new()),
            Event::Ready(successor()),
            Event::Failed(String::new()),
            Event::Ended,
            Event::Stop,
            Event::Tick,
        ];
        for state in [State::Idle, State::Arriving, State::Draining] {
            for event in all.clone() {
                assert_eq!(after(state.clone(), at(99), event).0, state);
            }
        }
        let early = State::Starting(at(5));
        for event in [Event::Ready(successor()), Event::Ended, Event::Failed(String::new())] {
            assert_eq!(after(early.clone(), at(1), event), (early.clone(), "Nothing".to_owned()));
        }
    }
}
