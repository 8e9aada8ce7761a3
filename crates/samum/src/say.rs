//! Messages to the operator, on standard error.

use std::io::{self, Write as _};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Writes a message to standard error, unless that is closed or full: a message must not block the
/// server.
pub(crate) fn say(text: &str) {
    let mut stderr = io::stderr();
    // Where poll(2) reports room, a line fits.
    let mut ready = [PollFd::from_borrowed_fd(rustix::stdio::stderr(), PollFlags::OUT)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    if poll(&mut ready, Some(&now)) != Ok(1) {
        return;
    }
    // No place is left to report an error of standard error itself.
    let _ = writeln!(stderr, "{}: {}", crate::NAME, crate::text::plain(text));
}
