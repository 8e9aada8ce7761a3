//! A case as a plan: actions on a stack at fixed times, independent of its replies.

use core::time::Duration;

use crate::scripts::parse::{Action, Case, Pattern, Step};

use super::transcript::Entry;

/// The acts of a case on a stack, in order of time.
#[derive(Debug)]
pub(super) struct Plan<'a> {
    pub name: &'a str,
    /// Milliseconds without a segment before the first probe, between two probes, and the number of probes.
    pub keepalive: Option<[u64; 3]>,
    pub acts: Vec<Act<'a>>,
    /// When the case is over.
    pub end: Duration,
    pub differs: Option<Difference<'a>>,
}

#[derive(Debug)]
pub(super) struct Act<'a> {
    pub at: Duration,
    /// The line of the script.
    pub text: &'a str,
    pub what: What,
}

#[derive(Debug)]
pub(super) enum What {
    Inject(Pattern),
    /// The peer acknowledges the SYN of the stack; from now on it sends timestamps, or does not.
    Open {
        sends_timestamps: bool,
    },
    /// The peer's segments go to this port.
    Port(u16),
    Do(Action),
}

/// Why and how our answers are others than the recorded ones.
#[derive(Debug)]
pub(super) struct Difference<'a> {
    pub reason: &'a str,
    /// Our lines in the place of those that differ.
    pub ours: Vec<Entry>,
}

impl<'a> Plan<'a> {
    pub(super) fn new(case: &'a Case<'a>) -> Result<Self, String> {
        let mut plan = Self {
            name: case.name,
            keepalive: None,
            acts: Vec::new(),
            end: Duration::ZERO,
            differs: None,
        };
        for line in &case.lines {
            plan.add(line.text, line.after.0, &line.what)
                .map_err(|why| format!("line {}: {}: {why}", line.number, line.text))?;
        }
        Ok(plan)
    }

    fn add(&mut self, text: &'a str, after: Duration, step: &'a Step) -> Result<(), String> {
        self.end += after;
        let text =
            if after.is_zero() { text } else { text.split_once(' ').map_or("", |(_, rest)| rest) };
        let mut act = |at, text, what| self.acts.push(Act { at, text, what });
        match step {
            Step::Config(name, values) => match (&name[..], &values[..]) {
                ("keepalive", &[idle, interval, probes]) => {
                    self.keepalive = Some([idle, interval, probes]);
                }
                _ => return Err("the kernel has no such setting".to_owned()),
            },
            Step::Open(open) => {
                act(self.end, text, What::Inject(open.syn()));
                self.end += open.rtt;
                let opened = What::Open { sends_timestamps: open.timestamps };
                act(self.end, "< A 1 ack 1", opened);
            }
            Step::Inject(pattern) => act(self.end, text, What::Inject(pattern.clone())),
            Step::Peer(_, port) => act(self.end, text, What::Port(*port)),
            Step::Do(action) => act(self.end, text, What::Do(action.clone())),
            Step::Wait => {}
            Step::Differs(reason) => self.differs = Some(Difference { reason, ours: Vec::new() }),
            Step::Ours(answer) => {
                let differs = self.differs.as_mut().ok_or("why does it differ?")?;
                differs.ours.push(Entry::parse(answer).ok_or("no line of a recording")?);
            }
            _ => return Err("a recording has no place for it".to_owned()),
        }
        Ok(())
    }
}
