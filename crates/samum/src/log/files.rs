//! The files of logs, as they are opened by threads that may sleep.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use rustix::fs::Mode;

use crate::config::{Log, LogTarget};
use crate::errno::words;
use crate::place::Place;

/// The logs of the configuration that is served.
#[derive(Debug)]
pub(crate) struct OpenLogs(Mutex<Vec<Log>>);

impl OpenLogs {
    pub(crate) const fn new(logs: Vec<Log>) -> Self {
        Self(Mutex::new(logs))
    }

    pub(crate) fn list(&self) -> Vec<Log> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Takes the logs of the configuration that is served now.
    pub(crate) fn replace(&self, logs: Vec<Log>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = logs;
    }
}

/// Opens the target of a log, which is not [`LogTarget::None`].
pub(crate) fn open(target: &LogTarget) -> Result<OwnedFd, String> {
    let LogTarget::File(path) = target else {
        let stdout = io::stdout().as_fd().try_clone_to_owned();
        return stdout.map_err(|error| format!("cannot log to standard output: {error}"));
    };
    let opened = Place::find(path).and_then(|place| place.append(Mode::from_raw_mode(0o640)));
    opened.map_err(|error| cannot_log(path, &error))
}

/// The reason why a log cannot be opened, and the remedy.
pub(crate) fn cannot_log(path: &Path, error: &io::Error) -> String {
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
