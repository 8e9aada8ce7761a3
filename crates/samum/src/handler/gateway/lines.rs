//! Lines for the operator about gateways and from them, of which there may be too many.

use ring::Time;

use crate::shell::Shell;

/// Bytes of a line; the rest of a longer one is left out.
const LINE_BYTES_MAX: usize = 512;
/// The limit of lines about gateways and from them.
const GATEWAYS: Limit = Limit { burst: 100, per_second: 20 };
/// The limit of lines that clients can cause as often as they like.
const CLIENTS: Limit = Limit { burst: 10, per_second: 1 };

/// The lines that a handler of a worker may log.
#[derive(Debug)]
pub(in crate::handler) struct Lines {
    gateways: Budget,
    /// Has a budget of its own, so that no client can keep a line about a gateway out of the log.
    clients: Budget,
}

/// The lines that are logged at once, and the number of them in a second after that.
#[derive(Clone, Copy, Debug)]
struct Limit {
    burst: u32,
    per_second: u32,
}

/// The number of lines that may be logged.
#[derive(Debug)]
struct Budget {
    limit: Limit,
    left: u32,
    /// When `left` was last raised.
    since: Time,
    dropped: u64,
}

impl Lines {
    /// Logs a line, which begins with the name of what it is about, unless there are too many.
    pub(in crate::handler) fn note(&mut self, shell: &mut Shell, name: &str, text: &str) {
        if let Some(dropped) = self.gateways.take(shell.cx.now) {
            log(shell, name, text, dropped, "of gateways");
        }
    }

    /// Like [`note`](Self::note), for a line whose cause may be the client. There are fewer of these.
    pub(in crate::handler) fn note_client(&mut self, shell: &mut Shell, name: &str, text: &str) {
        if let Some(dropped) = self.clients.take(shell.cx.now) {
            log(shell, name, text, dropped, "about clients of gateways");
        }
    }
}

impl Budget {
    fn new(limit: Limit) -> Self {
        Self { limit, left: limit.burst, since: Time::default(), dropped: 0 }
    }

    /// Takes a line. Returns the number of lines that were dropped before it, or `None` if it is dropped, too.
    fn take(&mut self, now: Time) -> Option<u64> {
        let seconds = now.since(self.since).as_secs();
        if seconds > 0 {
            let seconds = u32::try_from(seconds).unwrap_or(u32::MAX);
            let more = seconds.saturating_mul(self.limit.per_second);
            self.left = self.left.saturating_add(more).min(self.limit.burst);
            self.since = now;
        }
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
pub(in crate::handler) struct Text {
    /// The beginning of the line whose end has not come.
    line: Vec<u8>,
}

impl Text {
    /// Takes the next piece, and gives the lines that end in it.
    pub(in crate::handler) fn push(&mut self, bytes: &[u8], mut take: impl FnMut(&str)) {
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
    }

    /// Gives the beginning of a line, if there is one: the text has ended.
    pub(in crate::handler) fn end(&mut self, mut take: impl FnMut(&str)) {
        if !self.line.is_empty() {
            take(&String::from_utf8_lossy(&self.line));
            self.line.clear();
        }
    }
}

impl Default for Lines {
    fn default() -> Self {
        Self { gateways: Budget::new(GATEWAYS), clients: Budget::new(CLIENTS) }
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
