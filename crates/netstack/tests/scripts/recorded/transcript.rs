//! The segments that a stack sent in a case, as lines to keep and compare.

use core::fmt::{self, Write as _};
use core::time::Duration;

use netstack::sim::{Segment, TcpOption, flag};

use crate::scripts::end::{End, blocks, numbers};

use super::plan::Act;

/// Whatever the time, an answer may come this many milliseconds earlier or later: the turns of a busy machine, and the kernel's ticks
/// of 4 ms. Less than half of the kernel's shortest pause, the 40 ms for which it delays an acknowledgement.
const TOLERANCE_MIN: u64 = 15;

/// A timer may differ by this part of the pause before it: the kernel rounds its long ones up by an eighth
/// (`kernel/time/timer.c` of Linux).
const TOLERANCE_PART: u64 = 8;

/// The lines of a case in order.
#[derive(Clone, Debug, Default)]
pub(super) struct Transcript(pub Vec<Entry>);

/// A line: what was done to the stack, or with `>` what it sent.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    /// Milliseconds since the case began.
    pub at: u64,
    pub text: String,
}

impl Transcript {
    /// Adds what was done to the stack.
    pub(super) fn done(&mut self, act: &Act<'_>) {
        self.add(act.at, act.text.to_owned());
    }

    /// Adds what the stack has sent.
    pub(super) fn sent(&mut self, at: Duration, segment: &Segment, end: &End) {
        self.add(at, format!("> {}", words(segment, end)));
    }

    fn add(&mut self, at: Duration, text: String) {
        self.0.push(Entry { at: u64::try_from(at.as_millis()).expect("a short case"), text });
    }
}

/// The lines in which two transcripts differ, between those at the beginning and at the end that are the same.
pub(super) fn differences<'a>(one: &'a [Entry], other: &'a [Entry]) -> [&'a [Entry]; 2] {
    let (pauses, others) = (pauses(one), pauses(other));
    let same = |at: usize, its: usize| {
        let tolerance = pauses[at].max(others[its]) / TOLERANCE_PART;
        let tolerance = if one[at].is_sent() { tolerance.max(TOLERANCE_MIN) } else { 0 };
        one[at].text == other[its].text && one[at].at.abs_diff(other[its].at) <= tolerance
    };
    let begin = (0..one.len().min(other.len())).take_while(|at| same(*at, *at)).count();
    let mut ends = (one.len(), other.len());
    while ends.0 > begin && ends.1 > begin && same(ends.0 - 1, ends.1 - 1) {
        ends = (ends.0 - 1, ends.1 - 1);
    }
    [&one[begin..ends.0], &other[begin..ends.1]]
}

/// How long each line came after what had last been done to the stack.
fn pauses(entries: &[Entry]) -> Vec<u64> {
    let mut done = 0;
    let pause = |entry: &Entry| {
        if !entry.is_sent() {
            done = entry.at;
        }
        entry.at - done
    };
    entries.iter().map(pause).collect()
}

impl Entry {
    fn is_sent(&self) -> bool {
        self.text.starts_with('>')
    }

    /// Reads a line.
    pub(super) fn parse(line: &str) -> Option<Self> {
        let (at, text) = line.trim().split_once(' ')?;
        Some(Self { at: at.parse().ok()?, text: text.to_owned() })
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>6} {}", self.at, self.text)
    }
}

/// A segment of the stack in the words of scripts, without what a stack chooses: PSH, its windows unless they are closed,
/// its clock, the shift of its windows.
fn words(segment: &Segment, end: &End) -> String {
    let mut text = numbers(segment, segment.flags & !flag::PSH, end.iss.unwrap_or(0), end.isn);
    if segment.window == 0 && !segment.has(flag::RST) {
        text.push_str(" win 0");
    }
    text.push_str(["", " ect1", " ect0", " ce"][usize::from(segment.ecn)]);
    // Their order is the stack's to choose, too.
    let mut options: Vec<String> = segment
        .options
        .iter()
        .map(|option| match option {
            TcpOption::Mss(mss) => format!("mss {mss}"),
            TcpOption::WindowScale(_) => "ws *".to_owned(),
            TcpOption::SackPermitted => "sackok".to_owned(),
            TcpOption::Sack(ranges) => format!("sack {}", blocks(ranges, end.isn)),
            TcpOption::Timestamps(_, echo) => format!("ts * {echo}"),
            TcpOption::Other(kind, _) => format!("other {kind}"),
        })
        .collect();
    options.retain(|option| option != "other 1");
    options.sort_unstable();
    if !options.is_empty() {
        let _ = write!(text, " <{}>", options.join(", "));
    }
    text
}
