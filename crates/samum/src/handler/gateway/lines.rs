//! Lines for the operator about gateways and from them, of which there may be too many.

use ring::Time;

use crate::shell::Shell;

/// Bytes of a line; the rest of a longer one is left out.
const LINE_BYTES_MAX: usize = 512;
/// Lines that are logged at once, and the number of them in a second after that.
const LINES_BURST: u32 = 100;
const LINES_PER_SECOND: u32 = 20;

/// The lines that a handler of a worker may log.
#[derive(Debug)]
pub(in crate::handler) struct Lines {
    left: u32,
    /// When `left` was last raised.
    since: Time,
    dropped: u64,
}

impl Lines {
    /// Logs a line, which begins with the name of what it is about, unless there are too many.
    pub(in crate::handler) fn note(&mut self, shell: &mut Shell, name: &str, text: &str) {
        let now = shell.cx.now;
        let seconds = now.since(self.since).as_secs();
        if seconds > 0 {
            let more = u32::try_from(seconds).unwrap_or(u32::MAX).saturating_mul(LINES_PER_SECOND);
            self.left = self.left.saturating_add(more).min(LINES_BURST);
            self.since = now;
        }
        if self.left == 0 {
            self.dropped += 1;
            return;
        }
        self.left -= 1;
        let dropped = core::mem::take(&mut self.dropped);
        if dropped > 0 {
            shell.note(&format!("{dropped} lines of gateways were dropped"));
        }
        shell.note(&format!("{name}: {text}"));
    }
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
        Self { left: LINES_BURST, since: Time::default(), dropped: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
