//! Lines for the operator about gateways and from them, of which there may be too many.

use ring::Time;

use crate::shell::Shell;

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

impl Default for Lines {
    fn default() -> Self {
        Self { left: LINES_BURST, since: Time::default(), dropped: 0 }
    }
}
