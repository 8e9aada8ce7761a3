//! The files of logs, as they are opened by threads that may sleep.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use rustix::fs::Mode;

use crate::datagrams;
use crate::location::Location;
use config::errno::words;
use config::{Log, LogTarget};

/// The logs of the configuration that is served.
#[derive(Debug)]
pub struct OpenLogs(Mutex<Vec<Log>>);

impl OpenLogs {
    /// Keeps these logs, which are open.
    pub const fn new(logs: Vec<Log>) -> Self {
        Self(Mutex::new(logs))
    }

    /// The logs that are open now.
    pub fn list(&self) -> Vec<Log> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the logs by those of the configuration that is served now.
    pub fn replace(&self, logs: Vec<Log>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = logs;
    }
}

/// Opens the target of a log, which is not [`LogTarget::None`].
///
/// # Errors
///
/// A message for the operator that names the file.
pub fn open(target: &LogTarget) -> Result<OwnedFd, String> {
    if let LogTarget::Syslog(path) | LogTarget::Journald(path) = target {
        return datagrams::open(path);
    }
    let LogTarget::File(path) = target else {
        let stdout = io::stdout().as_fd().try_clone_to_owned();
        return stdout.map_err(|error| format!("cannot log to standard output: {error}"));
    };
    let opened =
        Location::find(path).and_then(|location| location.append(Mode::from_raw_mode(0o640)));
    opened.map_err(|error| cannot_log(path, &error))
}

/// The reason why a log cannot be opened, and the remedy.
pub fn cannot_log(path: &Path, error: &io::Error) -> String {
    let directory = path.parent().unwrap_or(path).display();
    let advice = match error.kind() {
        io::ErrorKind::NotFound => format!(" (the directory {directory} must exist)"),
        io::ErrorKind::PermissionDenied => {
            format!(
                " (the user of the server must be able to write to it and to enter {directory})"
            )
        }
        _ => String::new(),
    };
    format!("cannot log to {}: {}{advice}", path.display(), words(error))
}
