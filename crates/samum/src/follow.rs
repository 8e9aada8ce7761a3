//! Opens a root directory, and opens it again when another directory takes its place: a
//! deploy may replace the directory, or point a symbolic link such as `current` to another one.
//!
//! Looking at a path can sleep for ever (on a dead network file system), so [`follow`] has a thread of
//! its own for each root, for which no other thread waits.

use core::time::Duration;
use std::fs::OpenOptions;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::thread;

use rustix::fs::OFlags;

use crate::control::{Order, Workers};
use crate::say::say;

/// The time between two looks at the path, which cost two system calls each. A new directory is served
/// after this time and one turn of each worker: well under a second.
const PERIOD: Duration = Duration::from_millis(500);

/// Opens the directory to serve.
pub(crate) fn open(path: &Path) -> Result<OwnedFd, String> {
    let shown = path.display();
    // O_NONBLOCK: opening a FIFO must not wait for its writer.
    let flags = OFlags::NONBLOCK | OFlags::DIRECTORY;
    let flags = i32::try_from(flags.bits()).expect("bits far below the sign");
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path);
    let file = file.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => format!("cannot serve {shown}: there is no such directory"),
        io::ErrorKind::PermissionDenied => {
            format!("cannot serve {shown}: permission denied (this user must be able to read and enter it)")
        }
        io::ErrorKind::NotADirectory => {
            format!("cannot serve {shown}: it is not a directory (serve the one that it is in)")
        }
        _ => format!("cannot serve {shown}: {error}"),
    })?;
    Ok(file.into())
}

/// Looks at the path of a root directory for as long as the process runs.
pub(crate) fn follow(root: usize, path: &Path, mut serving: OwnedFd, workers: &Workers) {
    let mut follower = Follower::default();
    loop {
        thread::sleep(PERIOD);
        let cannot =
            |error: io::Error| format!("cannot serve {} any more: {error}", path.display());
        let found = match look(path, &serving) {
            Ok(true) => Found::Same,
            Ok(false) => match replace(root, path, workers) {
                Ok(directory) => {
                    serving = directory;
                    Found::Another
                }
                Err(reason) => Found::Nothing(reason),
            },
            Err(error) => Found::Nothing(cannot(error)),
        };
        if let Some(text) = follower.handle(found, path) {
            say(&text);
        }
    }
}

/// Tells the workers to serve the root from the directory that is at the path now.
fn replace(root: usize, path: &Path, workers: &Workers) -> Result<OwnedFd, String> {
    let directory = open(path)?;
    let told = workers.tell(|fd| Order::Root(root, fd), &directory);
    told.map_err(|error| format!("cannot serve {} any more: {error}", path.display()))?;
    Ok(directory)
}

/// Returns whether the directory at the path is still the one being served.
///
/// Both are asked for their numbers each time, because on some file systems (overlayfs) the numbers of a
/// directory change while it is in use. As long as `serving` is open, no other directory gets its number.
fn look(path: &Path, serving: &OwnedFd) -> io::Result<bool> {
    let there = rustix::fs::stat(path)?;
    // The directory was removed on a network server (ESTALE), so the one at the path is another.
    let Ok(here) = rustix::fs::fstat(serving) else { return Ok(false) };
    Ok((here.st_dev, here.st_ino) == (there.st_dev, there.st_ino))
}

/// The result of a look at the path.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Found {
    /// The directory that is being served.
    Same,
    /// Another directory, which is served from now on.
    Another,
    /// Nothing that can be served, and the reason as a sentence.
    Nothing(String),
}

/// Decides which changes are reported to the operator.
#[derive(Debug, Default)]
struct Follower {
    /// Some exactly when the last look found nothing to serve: the reason, which has been reported.
    lost: Option<String>,
}

impl Follower {
    /// Takes the result of a look; returns a message if it is new for the operator.
    fn handle(&mut self, found: Found, path: &Path) -> Option<String> {
        let shown = path.display();
        match found {
            Found::Same => self
                .lost
                .take()
                .map(|_| format!("{shown} exists again; it was served all the time")),
            Found::Another => {
                self.lost = None;
                Some(format!("{shown} is another directory now: serving the new one"))
            }
            Found::Nothing(reason) if self.lost.as_ref() == Some(&reason) => None,
            Found::Nothing(reason) => {
                let text = format!(
                    "{reason}; the rest of the old directory is served until there is a new one"
                );
                self.lost = Some(reason);
                Some(text)
            }
        }
    }
}

/// The absolute path to look at. A relative path would change its meaning after a `chdir`, and `.` stays
/// the working directory even if another directory takes its path.
pub(crate) fn path_to_follow(path: &Path) -> PathBuf {
    // It fails only without a working directory.
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_change_is_reported_once() {
        let mut follower = Follower::default();
        let mut told = |found| follower.handle(found, Path::new("/srv/www"));
        let gone = || Found::Nothing("cannot serve /srv/www any more: no such file".to_owned());
        assert_eq!(told(Found::Same), None);
        let text = told(gone()).unwrap();
        assert!(
            text.starts_with(
                "cannot serve /srv/www any more: no such file; the rest of the old directory"
            ),
            "{text}"
        );
        assert_eq!(told(gone()), None);
        assert!(told(Found::Nothing("permission denied".to_owned())).is_some());
        let text = told(Found::Another).unwrap();
        assert_eq!(text, "/srv/www is another directory now: serving the new one");
        assert_eq!(told(Found::Same), None);
        assert!(told(gone()).is_some());
        assert!(told(Found::Same).unwrap().contains("exists again"));
        assert_eq!(told(Found::Same), None);
    }
}
