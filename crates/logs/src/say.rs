//! Messages to the operator, on standard error.

use core::sync::atomic::{AtomicBool, Ordering};
use std::io::{self, Write as _};
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use config::ErrorFormat;

use crate::line::message_json;

/// True if messages are JSON. It is set once the configuration is known.
static IS_JSON: AtomicBool = AtomicBool::new(false);

/// Chooses the format of all messages from now on.
pub fn set_format(format: ErrorFormat) {
    // No other memory depends on it, so relaxed order is enough.
    IS_JSON.store(format == ErrorFormat::Json, Ordering::Relaxed);
}

/// Turns a message about a configuration into lines, with their ends: the mistake, and an excerpt
/// of the file.
#[must_use]
pub fn lines(about: &config::Message) -> Vec<u8> {
    let text = about.to_string();
    if IS_JSON.load(Ordering::Relaxed) { message(&text) } else { format!("{text}\n").into_bytes() }
}

/// Does the same for a server: each line begins with its name, like its other messages.
#[must_use]
pub fn lines_of_server(about: &config::Message) -> Vec<u8> {
    let text = about.to_string();
    if IS_JSON.load(Ordering::Relaxed) {
        message(&text)
    } else {
        text.lines().flat_map(message).collect()
    }
}

/// Turns a message into a line, with its end.
#[must_use]
pub fn message(text: &str) -> Vec<u8> {
    if !IS_JSON.load(Ordering::Relaxed) {
        return format!("{}: {}\n", config::NAME, config::text::plain(text)).into_bytes();
    }
    // A clock before 1970 was not set, and counts as 0.
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    message_json(text, i64::try_from(now.as_millis()).unwrap_or_default())
}

/// Writes a message to standard error, unless that is closed or full: a message must not block the
/// server.
pub fn say(text: &str) {
    write(&message(text));
}

/// Writes a message about a configuration to standard error, in the same way.
pub fn say_about(about: &config::Message) {
    write(&lines_of_server(about));
}

fn write(bytes: &[u8]) {
    let mut stderr = io::stderr();
    // If poll(2) reports room, a line fits.
    let mut ready = [PollFd::from_borrowed_fd(rustix::stdio::stderr(), PollFlags::OUT)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    if poll(&mut ready, Some(&now)) != Ok(1) {
        return;
    }
    // An error of standard error itself can be reported nowhere.
    let _ = stderr.write_all(bytes);
}
