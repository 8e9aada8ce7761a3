//! Opens root directories, and notices changes at their paths. A deploy may replace the directory or point a symbolic
//! link such as `current` to another one, or the directory may be missing.
//!
//! A look at a path can sleep for ever (on a dead network file system). So the roots are divided into groups by their
//! device, and each group has a thread of its own, for which no other thread waits.
//!
//! If nothing is at a path at two looks, 0.5 s apart, its requests get a 503. Workers get a new descriptor as an order
//! and swap it between two worker turns. A request under way is completed from the directory in which it began. A
//! directory is compared by device and inode with the open one, whose inode number cannot be used again.

use core::time::Duration;
use std::collections::HashMap;
use std::fs::OpenOptions;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use ring::learn_device;
use rustix::fs::{AtFlags, OFlags, StatxFlags, statx};
use rustix::io::Errno;

use crate::control::Workers;
use config::errno::words;
use logs::say::say;
use rights::is_confined;

/// The time between two looks at a path, which cost two system calls each. A new directory is served after this time
/// and one turn of each worker: well under a second. A group of more than a thousand roots takes half a second for each
/// thousand.
const PERIOD: Duration = Duration::from_millis(500);
/// The maximum number of looks without a pause between them.
const LOOKS_MAX: usize = 20;
/// The minimum pause. With [`LOOKS_MAX`] it limits a thread to 2,000 looks in a second.
const PAUSE_MIN: Duration = Duration::from_millis(10);
/// The maximum number of groups, and so of threads. Further devices share the last group: if one of them does not
/// answer, the changes of all of them are missed.
const GROUPS_MAX: usize = 16;

/// A directory that is served.
#[derive(Clone, Debug)]
pub(crate) struct Root {
    path: Arc<Path>,
    pub(crate) directory: Arc<OwnedFd>,
    identity: Identity,
    /// True while there is no directory at the path; the response to requests is a 503.
    pub(crate) is_lost: bool,
}

/// The device and the inode of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identity {
    device: (u32, u32),
    inode: u64,
}

impl Identity {
    /// On some file systems (overlayfs) the numbers of a directory change while it is in use. So two directories are
    /// compared by their current numbers. While a directory is open, no other directory gets its number.
    fn of(directory: &OwnedFd) -> Result<Self, Errno> {
        // The flag avoids a call to a network server, which may not answer.
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        let stat = statx(directory, c"", flags, StatxFlags::INO)?;
        Ok(Self { device: (stat.stx_dev_major, stat.stx_dev_minor), inode: stat.stx_ino })
    }
}

impl Root {
    /// Opens the directory to serve.
    pub(crate) fn open(path: &Path) -> Result<Self, String> {
        let directory = open(path).map_err(|error| explain(path, &error))?;
        let identity = Identity::of(&directory).map_err(|error| explain(path, &error.into()))?;
        // A relative path would change its meaning after a `chdir`, but `.` stays the working directory even if another
        // directory takes its path. The call fails only without a working directory.
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        Ok(Self { path: path.into(), directory: Arc::new(directory), identity, is_lost: false })
    }

    /// Returns true if another root is the same directory as the one that is served now.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let numbers = [&self.directory, &other.directory].map(|directory| Identity::of(directory));
        !self.is_lost && matches!(numbers, [Ok(mine), Ok(other)] if mine == other)
    }
}

fn open(path: &Path) -> io::Result<OwnedFd> {
    // O_NONBLOCK, because an open of a FIFO must not wait for its writer.
    let flags = OFlags::NONBLOCK | OFlags::DIRECTORY;
    let flags = i32::try_from(flags.bits()).expect("bits far below the sign");
    let directory = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    // The device is learned here, because a worker that gets the directory must not wait for it.
    learn_device(&directory);
    Ok(directory.into())
}

fn explain(path: &Path, error: &io::Error) -> String {
    let shown = path.display();
    match error.kind() {
        io::ErrorKind::NotFound => format!("cannot serve {shown}: there is no such directory"),
        io::ErrorKind::PermissionDenied => {
            let within = if is_confined() {
                ", and `confine` must have allowed it at the start"
            } else {
                ""
            };
            format!(
                "cannot serve {shown}: permission denied (this user must be able to read and enter it{within})"
            )
        }
        io::ErrorKind::NotADirectory => {
            format!("cannot serve {shown}: it is not a directory (serve the one that it is in)")
        }
        _ => format!("cannot serve {shown}: {}", words(error)),
    }
}

/// The roots of the configuration, and the threads that look at their paths.
#[derive(Debug)]
pub(crate) struct Roots {
    state: Mutex<State>,
    workers: Arc<Workers>,
}

#[derive(Debug, Default)]
struct State {
    /// The roots in the order of [`Snapshot::roots`](handler::serving::Snapshot::roots).
    roots: Vec<Root>,
    /// The device of each group; `None` if it has no thread.
    groups: Vec<Option<(u32, u32)>>,
}

impl State {
    /// Returns the group of a device, if it has one.
    fn group(&self, device: (u32, u32)) -> Option<usize> {
        let found = self.groups.iter().position(|group| *group == Some(device));
        found.or_else(|| (self.groups.len() == GROUPS_MAX).then_some(GROUPS_MAX - 1))
    }

    /// Gives a device a group, if it has none and one is free. Returns a group that needs a thread.
    fn add_group(&mut self, device: (u32, u32)) -> Option<usize> {
        if self.groups.contains(&Some(device)) {
            return None;
        }
        let group = match self.groups.iter().position(Option::is_none) {
            Some(free) => free,
            None if self.groups.len() < GROUPS_MAX => {
                self.groups.push(None);
                self.groups.len() - 1
            }
            None => return None,
        };
        self.groups[group] = Some(device);
        Some(group)
    }
}

impl Roots {
    /// Takes the roots that the workers serve, and looks at their paths from now on.
    pub(crate) fn new(roots: Vec<Root>, workers: Arc<Workers>) -> Arc<Self> {
        let all = Arc::new(Self { state: Mutex::default(), workers });
        let mut state = all.lock();
        state.roots = roots;
        all.start_threads(&mut state);
        drop(state);
        all
    }

    /// The current roots.
    pub(crate) fn list(&self) -> Vec<Root> {
        self.lock().roots.clone()
    }

    /// Replaces all roots. `replace` gets the current roots, gives the workers the new configuration, and returns its
    /// roots. No root changes meanwhile.
    pub(crate) fn replace(
        self: &Arc<Self>,
        replace: impl FnOnce(&[Root]) -> Result<Vec<Root>, String>,
    ) -> Result<(), String> {
        let mut state = self.lock();
        let next = replace(&state.roots)?;
        let before = core::mem::replace(&mut state.roots, next);
        self.start_threads(&mut state);
        // The lock is not held here, because to close a directory may sleep.
        drop(state);
        drop(before);
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the threads of devices that have none.
    fn start_threads(self: &Arc<Self>, state: &mut State) {
        for index in 0..state.roots.len() {
            let device = state.roots[index].identity.device;
            let Some(group) = state.add_group(device) else { continue };
            let roots = Arc::clone(self);
            let thread = thread::Builder::new().name("roots".to_owned());
            if let Err(error) = thread.spawn(move || roots.watch(group)) {
                state.groups[group] = None;
                let shown = state.roots[index].path.display();
                say(&format!("cannot start a thread that notices changes of {shown}: {error}"));
            }
        }
    }

    /// The roots of a group with their indices. If there are none, the group ends.
    fn of_group(&self, group: usize) -> Option<Vec<(usize, Root)>> {
        let mut state = self.lock();
        let is_mine = |root: &Root| state.group(root.identity.device) == Some(group);
        let all = state.roots.iter().enumerate().filter(|(_, root)| is_mine(root));
        let mine: Vec<_> = all.map(|(index, root)| (index, root.clone())).collect();
        if mine.is_empty() {
            state.groups[group] = None;
            return None;
        }
        Some(mine)
    }

    /// Looks at the paths of a group as long as it has roots.
    fn watch(self: Arc<Self>, group: usize) {
        let mut watchers: HashMap<Arc<Path>, Watcher> = HashMap::new();
        while let Some(roots) = self.of_group(group) {
            let looks = roots.len().div_ceil(50).min(LOOKS_MAX);
            let pauses = u32::try_from(roots.len().div_ceil(looks)).unwrap_or(u32::MAX);
            let pause = (PERIOD / pauses).max(PAUSE_MIN);
            let mut before = core::mem::take(&mut watchers);
            for batch in roots.chunks(looks) {
                thread::sleep(pause);
                for (index, root) in batch {
                    let watcher = before.remove(&root.path).unwrap_or_default();
                    let watcher = self.look(*index, root, watcher);
                    if watcher != Watcher::Content {
                        watchers.insert(Arc::clone(&root.path), watcher);
                    }
                }
            }
        }
    }

    /// Looks at the path of a root, and acts on the result.
    fn look(self: &Arc<Self>, index: usize, root: &Root, watcher: Watcher) -> Watcher {
        let (next, step, text) = watcher.handle(look(root), &root.path);
        match self.take(index, root, step) {
            Ok(true) => {}
            // The configuration has replaced the root.
            Ok(false) => return Watcher::Content,
            // The next look will find the same.
            Err(_) => return watcher,
        }
        if let Some(text) = text {
            say(&text);
        }
        next
    }

    /// Takes a step, if the root is still in use. Returns true if it is.
    fn take(self: &Arc<Self>, index: usize, root: &Root, step: Step) -> io::Result<bool> {
        let new = match step {
            Step::None => return Ok(true),
            Step::Lose => Root { is_lost: true, ..root.clone() },
            Step::Restore => Root { is_lost: false, ..root.clone() },
            Step::Replace(directory, identity) => {
                let (path, directory) = (Arc::clone(&root.path), Arc::new(directory));
                Root { path, directory, identity, is_lost: false }
            }
        };
        let mut state = self.lock();
        let is_it = |other: &&mut Root| {
            other.path == root.path && Arc::ptr_eq(&other.directory, &root.directory)
        };
        let Some(place) = state.roots.get_mut(index).filter(is_it) else { return Ok(false) };
        self.workers.replace_root(index, (!new.is_lost).then_some(&new.directory))?;
        let before = core::mem::replace(place, new);
        self.start_threads(&mut state);
        drop(state);
        drop(before);
        Ok(true)
    }
}

/// Looks at the path of a root.
fn look(root: &Root) -> PathState {
    let path = &root.path;
    let no_more =
        |error: &io::Error| explain(path, error).replacen("cannot serve", "can no longer serve", 1);
    let there = match rustix::fs::stat(&**path) {
        Ok(there) => there,
        Err(error) => {
            let is_certain = [Errno::NOENT, Errno::NOTDIR, Errno::LOOP].contains(&error);
            let reason = no_more(&error.into());
            return if is_certain {
                PathState::Nothing(reason)
            } else {
                PathState::Unknown(reason)
            };
        }
    };
    // If the directory was removed on a network server (ESTALE), the directory at the path is another one.
    let here = rustix::fs::fstat(&root.directory);
    if here.is_ok_and(|here| (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino)) {
        return PathState::Same;
    }
    let opened = open(path).and_then(|directory| Ok((Identity::of(&directory)?, directory)));
    match opened {
        Ok((identity, directory)) => PathState::Another(directory, identity),
        Err(error) => {
            let is_shortage = [Errno::MFILE, Errno::NFILE, Errno::NOMEM]
                .iter()
                .any(|one| error.raw_os_error() == Some(one.raw_os_error()));
            let reason = no_more(&error);
            if is_shortage { PathState::Unknown(reason) } else { PathState::Nothing(reason) }
        }
    }
}

/// The result of a look at the path.
#[derive(Debug)]
enum PathState {
    /// The directory that is served.
    Same,
    /// Another directory.
    Another(OwnedFd, Identity),
    /// Nothing that can be served, and the reason as a sentence.
    Nothing(String),
    /// An error that does not show what is at the path, as a sentence.
    Unknown(String),
}

/// The action after a look.
#[derive(Debug)]
enum Step {
    None,
    /// The response to requests is a 503.
    Lose,
    /// The directory is served again.
    Restore,
    /// The other directory is served.
    Replace(OwnedFd, Identity),
}

/// The results of the last looks, which decide on the steps and on reports to the operator.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Watcher {
    /// The directory that is served.
    #[default]
    Content,
    /// Nothing. A symbolic link that is replaced in two steps is missing for a moment, so another look decides.
    Doubtful,
    /// Nothing, at several looks. The reason has been reported.
    Lost(String),
    /// An error. The reason has been reported.
    Uncertain(String),
}

impl Watcher {
    /// Takes the result of a look. Returns the next state, the step, and a message if there is news for the operator.
    fn handle(&self, found: PathState, path: &Path) -> (Self, Step, Option<String>) {
        let shown = path.display();
        match found {
            PathState::Same => match self {
                Self::Content | Self::Doubtful => (Self::Content, Step::None, None),
                Self::Lost(_) => {
                    let text = format!("{shown} exists again: serving it");
                    (Self::Content, Step::Restore, Some(text))
                }
                Self::Uncertain(_) => {
                    let text = format!("{shown} is there; it was served all the time");
                    (Self::Content, Step::None, Some(text))
                }
            },
            PathState::Another(directory, identity) => {
                let text = format!("{shown} is another directory now: serving the new one");
                (Self::Content, Step::Replace(directory, identity), Some(text))
            }
            PathState::Nothing(reason) => match self {
                Self::Content | Self::Uncertain(_) => (Self::Doubtful, Step::None, None),
                Self::Lost(before) if *before == reason => (self.clone(), Step::None, None),
                Self::Doubtful | Self::Lost(_) => {
                    let text = format!(
                        "{reason}; requests for its files get a 503 until there is a directory again"
                    );
                    (Self::Lost(reason), Step::Lose, Some(text))
                }
            },
            PathState::Unknown(reason) => match self {
                Self::Lost(_) => (self.clone(), Step::None, None),
                Self::Uncertain(before) if *before == reason => (self.clone(), Step::None, None),
                _ => {
                    let text = format!("{reason}; the directory that was there is still served");
                    (Self::Uncertain(reason), Step::None, Some(text))
                }
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn another() -> PathState {
        let directory = open(Path::new("/")).unwrap();
        let identity = Identity::of(&directory).unwrap();
        PathState::Another(directory, identity)
    }

    #[test]
    fn each_change_is_reported_once_and_nothing_is_lost_at_one_look() {
        let mut watcher = Watcher::default();
        let mut handle = |found| {
            let (next, step, text) = watcher.handle(found, Path::new("/srv/www"));
            watcher = next;
            let step = match step {
                Step::None => "",
                Step::Lose => "lose",
                Step::Restore => "restore",
                Step::Replace(..) => "replace",
            };
            (step, text.unwrap_or_default())
        };
        let gone =
            || PathState::Nothing("can no longer serve /srv/www: no such directory".to_owned());
        let odd =
            || PathState::Unknown("can no longer serve /srv/www: input/output error".to_owned());
        let nothing = || ("", String::new());
        assert_eq!(handle(PathState::Same), nothing());
        // It is missing for a moment.
        assert_eq!(handle(gone()), nothing());
        assert_eq!(handle(PathState::Same), nothing());
        assert_eq!(handle(gone()), nothing());
        let (step, text) = handle(gone());
        assert_eq!(step, "lose");
        assert!(text.starts_with("can no longer serve /srv/www: no such directory; requests"));
        assert_eq!(handle(gone()), nothing());
        assert_eq!(handle(odd()), nothing(), "it is still lost");
        assert_eq!(handle(PathState::Nothing("permission denied".to_owned())).0, "lose");
        let (step, text) = handle(PathState::Same);
        assert!(step == "restore" && text.contains("exists again"), "{step} {text}");
        assert_eq!(handle(PathState::Same), nothing());
        let (step, text) = handle(odd());
        assert!(step.is_empty() && text.contains("is still served"), "{step} {text}");
        assert_eq!(handle(odd()), nothing());
        assert!(handle(PathState::Same).1.contains("all the time"));
        let expected = "/srv/www is another directory now: serving the new one".to_owned();
        assert_eq!(handle(another()), ("replace", expected));
        assert_eq!((handle(gone()), handle(gone()).0), (nothing(), "lose"));
        assert_eq!(handle(another()).0, "replace");
        assert_eq!(handle(PathState::Same), nothing());
    }

    #[test]
    fn devices_have_groups_of_their_own_and_further_ones_share_the_last() {
        let mut state = State::default();
        for device in 0..20 {
            let expected = (device < 16).then_some(device as usize);
            assert_eq!(state.add_group((8, device)), expected);
            assert_eq!(state.add_group((8, device)), None);
        }
        for device in 0..20 {
            assert_eq!(state.group((8, device)), Some(15.min(device as usize)));
        }
        // The thread of one has ended.
        state.groups[3] = None;
        assert_eq!(state.group((8, 3)), Some(15));
        assert_eq!(state.add_group((8, 19)), Some(3));
        assert_eq!(state.group((8, 19)), Some(3));
    }
}
