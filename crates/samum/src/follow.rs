//! Opens DIR, and follows it when another directory takes its place: a deploy that removes the
//! directory and makes it
//! again, or that points a symbolic link such as `current` somewhere else.
//!
//! Looking at a path can sleep for ever (a dead network file system), so this is a thread of its own,
//! that nobody waits for.

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

/// How often the path is looked at: two system calls. The new directory is served after this, and the
/// time that a turn of each worker takes: well under a second.
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

/// Look at the path of the directory being served, for as long as the process lives.
pub(crate) fn follow(path: &Path, mut serving: OwnedFd, workers: &Workers) {
    let mut follower = Follower::default();
    loop {
        thread::sleep(PERIOD);
        let cannot =
            |error: io::Error| format!("cannot serve {} any more: {error}", path.display());
        let found = match look(path, &serving) {
            Ok(true) => Found::Same,
            Ok(false) => match replace(path, workers) {
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

/// Have the workers serve the directory that is at the path now.
fn replace(path: &Path, workers: &Workers) -> Result<OwnedFd, String> {
    let directory = open(path)?;
    let told = workers.tell(Order::Root, &directory);
    told.map_err(|error| format!("cannot serve {} any more: {error}", path.display()))?;
    Ok(directory)
}

/// Whether the directory being served is still what is at the path.
///
/// Both are asked each time: on some file systems (overlayfs) the numbers of a directory change while it
/// is in use. A number is not given to another directory as long as `serving` is open.
fn look(path: &Path, serving: &OwnedFd) -> io::Result<bool> {
    let there = rustix::fs::stat(path)?;
    // Gone on its server (ESTALE): what is at the path is another.
    let Ok(here) = rustix::fs::fstat(serving) else { return Ok(false) };
    Ok((here.st_dev, here.st_ino) == (there.st_dev, there.st_ino))
}

/// What is found at the path of the directory.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Found {
    /// The directory that is being served.
    Same,
    /// Another directory, which is being served from now on.
    Another,
    /// Nothing that can be served; the reason, as a sentence.
    Nothing(String),
}

/// Decides what the operator is told.
#[derive(Debug, Default)]
struct Follower {
    /// Some exactly when nothing could be served at the last look; the reason, which has been told.
    lost: Option<String>,
}

impl Follower {
    /// Takes what was found; returns what is new for the operator.
    fn handle(&mut self, found: Found, path: &Path) -> Option<String> {
        let shown = path.display();
        match found {
            Found::Same => {
                self.lost.take().map(|_| format!("{shown} is there again; it was served all along"))
            }
            Found::Another => {
                self.lost = None;
                Some(format!("{shown} is another directory now: serving that one"))
            }
            Found::Nothing(reason) if self.lost.as_ref() == Some(&reason) => None,
            Found::Nothing(reason) => {
                let text = format!(
                    "{reason}; what is left of the directory that was there is served until there is another"
                );
                self.lost = Some(reason);
                Some(text)
            }
        }
    }
}

/// The path to look at: a relative one would mean something else after a `chdir`, and `.` is the working
/// directory itself, whatever is at its path by now.
pub(crate) fn path_to_follow(path: &Path) -> PathBuf {
    // Without a working directory nothing better is known.
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_change_is_told_once() {
        let mut follower = Follower::default();
        let mut told = |found| follower.handle(found, Path::new("/srv/www"));
        let gone = || Found::Nothing("cannot serve /srv/www any more: no such file".to_owned());
        assert_eq!(told(Found::Same), None);
        let text = told(gone()).unwrap();
        assert!(
            text.starts_with("cannot serve /srv/www any more: no such file; what is left"),
            "{text}"
        );
        assert_eq!(told(gone()), None);
        assert!(told(Found::Nothing("permission denied".to_owned())).is_some());
        let text = told(Found::Another).unwrap();
        assert_eq!(text, "/srv/www is another directory now: serving that one");
        assert_eq!(told(Found::Same), None);
        assert!(told(gone()).is_some());
        assert!(told(Found::Same).unwrap().contains("there again"));
        assert_eq!(told(Found::Same), None);
    }
}
