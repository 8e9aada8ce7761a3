//! Lines for the operator about gateways and from them; their number is limited.

use std::collections::BTreeMap;

use ring::Time;

use super::HAND_OVERS_MAX;
use session::shell::Shell;

/// Bytes of a line that are logged; the rest of a longer line is left out.
const LINE_BYTES_MAX: usize = 512;
/// Bytes of the text of one response that are logged; the rest of the text is left out.
pub(crate) const TEXT_BYTES_MAX: usize = 64 * 1024;
/// The text of one response has fewer bytes. An application that sends more writes without end.
pub(crate) const TEXT_BYTES_END: u64 = 64 * 1024 * 1024;
/// Sources of text with a budget of their own. Further sources share one budget.
const SOURCES_MAX: usize = 64;
/// The limit of lines about gateways, and of lines from each source of text.
const GATEWAYS: Limit = Limit { burst: 100, per_second: 20 };
/// The limit of lines that clients can cause as often as they like.
const CLIENTS: Limit = Limit { burst: 10, per_second: 1 };

/// The lines that a handler of a worker may log.
#[derive(Debug)]
pub struct Lines {
    gateways: Budget,
    /// The budget of lines that clients cause, so that no client can keep a line about a gateway out of the log.
    clients: Budget,
    /// The budgets of the sources of text by name, so that no source can keep another's lines out of the log.
    texts: BTreeMap<Box<str>, Budget>,
}

/// The number of lines that are logged without a pause, and the number per second after that.
#[derive(Clone, Copy, Debug)]
struct Limit {
    burst: u32,
    per_second: u32,
}

/// The number of lines that may be logged now.
#[derive(Debug)]
pub struct Budget {
    limit: Limit,
    left: u32,
    /// The time at which `left` was last raised.
    since: Time,
    dropped: u64,
}

impl Lines {
    /// Logs a line, which begins with the name of its subject, unless the budget is spent.
    pub(crate) fn note(&mut self, shell: &mut Shell, name: &str, text: &str) {
        if let Some(dropped) = self.gateways.take(shell.cx.now) {
            log(shell, name, text, dropped, "about gateways");
        }
    }

    /// Like [`note`](Self::note), for a line of the text that an application, or a program of a directory, writes to
    /// standard error.
    pub(crate) fn note_text(&mut self, shell: &mut Shell, source: &str, name: &str, text: &str) {
        let now = shell.cx.now;
        if let Some(dropped) = self.budget_of(source, now).take(now) {
            log(shell, name, text, dropped, &format!("from the standard error of {source}"));
        }
    }

    /// The budget of a source of text.
    fn budget_of(&mut self, source: &str, now: Time) -> &mut Budget {
        let is_known = self.texts.contains_key(source);
        if !is_known && self.texts.len() >= SOURCES_MAX {
            // A source that has written nothing for long has a full budget and needs no entry; a reload may have
            // removed the source.
            self.texts.retain(|_, budget| !budget.is_full(now));
        }
        let is_one_of_many = !is_known && self.texts.len() >= SOURCES_MAX;
        let name = if is_one_of_many { "" } else { source };
        // The name of a known source is not copied: a script can write thousands of lines in one moment.
        if !self.texts.contains_key(name) {
            self.texts.insert(name.into(), Budget::new(GATEWAYS));
        }
        self.texts.get_mut(name).expect("it has just been looked for")
    }

    /// Logs a line like [`note`](Self::note), but for a fault that the client may have caused. Fewer of these are
    /// logged.
    pub(crate) fn note_client(&mut self, shell: &mut Shell, name: &str, text: &str) {
        if let Some(dropped) = self.clients.take(shell.cx.now) {
            log(shell, name, text, dropped, "about clients of gateways");
        }
    }

    /// Logs a line like `note_client`, about a fault of a page that clients can request as often
    /// as they want.
    pub fn note_page(&mut self, shell: &mut Shell, name: &str, text: &str) {
        if let Some(dropped) = self.clients.take(shell.cx.now) {
            log(shell, name, text, dropped, "about faults of pages");
        }
    }

    /// Logs that a request was handed over too often, and the last path.
    pub(crate) fn note_hand_overs(&mut self, shell: &mut Shell, path: &[u8]) {
        let text = format!("a request was handed over {HAND_OVERS_MAX} times");
        self.note(shell, &String::from_utf8_lossy(path), &text);
    }
}

impl Budget {
    /// The budget of lines that clients can cause as often as they like: 10 without a pause, then 1 a second.
    pub fn of_clients() -> Self {
        Self::new(CLIENTS)
    }

    fn new(limit: Limit) -> Self {
        Self { limit, left: limit.burst, since: Time::default(), dropped: 0 }
    }

    /// Returns true if the budget is in the state that it has before the first line.
    fn is_full(&mut self, now: Time) -> bool {
        self.refill(now);
        self.left == self.limit.burst && self.dropped == 0
    }

    fn refill(&mut self, now: Time) {
        let seconds = now.since(self.since).as_secs();
        if seconds > 0 {
            let seconds = u32::try_from(seconds).unwrap_or(u32::MAX);
            let more = seconds.saturating_mul(self.limit.per_second);
            self.left = self.left.saturating_add(more).min(self.limit.burst);
            self.since = now;
        }
    }

    /// Takes a line from the budget. Returns the number of lines that were dropped before this line, or `None` if this
    /// line is dropped, too.
    pub fn take(&mut self, now: Time) -> Option<u64> {
        self.refill(now);
        if self.left == 0 {
            self.dropped += 1;
            return None;
        }
        self.left -= 1;
        Some(core::mem::take(&mut self.dropped))
    }
}

fn log(shell: &mut Shell, name: &str, text: &str, dropped: u64, kind: &str) {
    if dropped > 0 {
        shell.note(&format!("{dropped} lines {kind} were dropped"));
    }
    shell.note(&format!("{name}: {text}"));
}

/// A text for the operator that comes in pieces.
#[derive(Debug, Default)]
pub(crate) struct Text {
    /// The beginning of the line that is not complete.
    line: Vec<u8>,
    /// The number of bytes that have come.
    bytes: u64,
}

impl Text {
    /// Takes the next piece, and returns the lines that end in this piece. Of all pieces, the first [`TEXT_BYTES_MAX`]
    /// bytes are used. Returns false if the whole piece is beyond this limit.
    pub(crate) fn push(&mut self, bytes: &[u8], mut take: impl FnMut(&str)) -> bool {
        let before = usize::try_from(self.bytes).unwrap_or(usize::MAX);
        let room = TEXT_BYTES_MAX.saturating_sub(before);
        self.bytes += bytes.len() as u64;
        let is_first_behind = bytes.len() > room && before <= TEXT_BYTES_MAX;
        let bytes = &bytes[..bytes.len().min(room)];
        for piece in bytes.split_inclusive(|&byte| byte == b'\n') {
            let (text, is_end) = match piece.strip_suffix(b"\n") {
                Some(text) => (text, true),
                None => (piece, false),
            };
            let room = LINE_BYTES_MAX - self.line.len();
            self.line.extend_from_slice(&text[..text.len().min(room)]);
            if is_end {
                take(&String::from_utf8_lossy(&self.line));
                self.line.clear();
            }
        }
        if is_first_behind {
            self.end(&mut take);
            take("the rest of its standard error is left out: it has more than 64 KiB");
        }
        room > 0
    }

    /// Returns true if the text has [`TEXT_BYTES_END`] or more bytes.
    pub(crate) const fn is_endless(&self) -> bool {
        self.bytes >= TEXT_BYTES_END
    }

    /// Returns the beginning of a line, if there is one, because the text has ended.
    pub(crate) fn end(&mut self, mut take: impl FnMut(&str)) {
        if !self.line.is_empty() {
            take(&String::from_utf8_lossy(&self.line));
            self.line.clear();
        }
    }
}

impl Default for Lines {
    fn default() -> Self {
        Self {
            gateways: Budget::new(GATEWAYS),
            clients: Budget::new(CLIENTS),
            texts: BTreeMap::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;

    #[test]
    fn lines_beyond_a_limit_are_dropped_and_counted() {
        let second = |seconds| Time::default() + Duration::from_secs(seconds);
        let mut budget = Budget::new(Limit { burst: 3, per_second: 2 });
        let mut take = |seconds, lines: u32| {
            (0..lines).map(|_| budget.take(second(seconds))).collect::<Vec<_>>()
        };
        assert_eq!(take(0, 5), [Some(0), Some(0), Some(0), None, None]);
        assert_eq!(take(1, 4), [Some(2), Some(0), None, None]);
        // Time without lines saves no more than a burst.
        assert_eq!(take(1_000_000, 4), [Some(2), Some(0), Some(0), None]);
    }

    #[test]
    fn each_source_of_text_has_a_budget_of_its_own() {
        let second = |seconds| Time::default() + Duration::from_secs(seconds);
        let mut lines = Lines::default();
        let mut take = |source: &str, seconds| {
            lines.budget_of(source, second(seconds)).take(second(seconds)).is_some()
        };
        assert_eq!((0..200).filter(|_| take("a", 1)).count(), 100);
        assert!(take("b", 1), "the flood of another source");
        for number in 0..SOURCES_MAX {
            assert!(take(&number.to_string(), 1));
        }
        // The sources that came last share one budget.
        assert_eq!((0..200).filter(|number| take(&format!("x{number}"), 1)).count(), 98);
        assert!(!take("a", 1) && take("b", 1));
        // All budgets but the one with dropped lines have no entry any more.
        assert!(take("new", 1000));
        assert_eq!(lines.texts.keys().map(|name| &name[..]).collect::<Vec<_>>(), ["", "a", "new"]);
    }

    #[test]
    fn a_text_has_a_bound() {
        for size in [7, 1000, TEXT_BYTES_MAX, 2 * TEXT_BYTES_MAX + 7] {
            let mut text = Text::default();
            let (mut lines, mut taken) = (Vec::new(), 0);
            let bytes = b"a line\n".repeat(TEXT_BYTES_MAX / 7 * 2 + 14);
            for piece in bytes.chunks(size) {
                taken += usize::from(text.push(piece, |line| lines.push(line.to_owned())));
            }
            text.end(|line| lines.push(line.to_owned()));
            assert_eq!(taken, TEXT_BYTES_MAX.div_ceil(size), "{size}");
            let last = lines.pop();
            assert!(last.is_some_and(|last| last.ends_with("it has more than 64 KiB")), "{size}");
            assert_eq!(lines.len(), TEXT_BYTES_MAX.div_ceil(7), "{size}");
            assert!(!text.is_endless());
            text.bytes = TEXT_BYTES_END - 1;
            assert!(!text.push(b"a", |line| panic!("{line}")) && text.is_endless());
        }
    }

    #[test]
    fn a_text_is_cut_into_lines() {
        for size in [1, 2, 7, 100] {
            let mut text = Text::default();
            let mut lines = Vec::new();
            for piece in b"one\n\ntwo\nthe end".chunks(size) {
                text.push(piece, |line| lines.push(line.to_owned()));
            }
            text.end(|line| lines.push(line.to_owned()));
            text.end(|line| lines.push(line.to_owned()));
            assert_eq!(lines, ["one", "", "two", "the end"]);
        }
    }

    #[test]
    fn the_rest_of_a_long_line_is_left_out() {
        let mut text = Text::default();
        let mut lines = Vec::new();
        for _ in 0..10 {
            text.push(&[b'x'; 100], |line| lines.push(line.to_owned()));
        }
        text.push(b"\nnext\n", |line| lines.push(line.to_owned()));
        assert_eq!(lines, ["x".repeat(LINE_BYTES_MAX), "next".to_owned()]);
    }
}
