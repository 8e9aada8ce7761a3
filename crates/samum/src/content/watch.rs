//! Directories that are watched: all on the way to what is cached, each only if its parent is.
//!
//! A directory is watched when something in it has been found, so a path that leads nowhere costs
//! no watch; what was found is then looked for once more, so no change falls between.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ffi::CString;
use std::io;

use core::time::Duration;

use ring::{Completion, Event, Op, Ring, Time};
use rustix::io::Errno;

use super::{Content, IDLE_MAX, Path, ancestors, below, parent, token};
use crate::shell::{Shell, kind};

/// Directories watched or known not to be watchable, per worker. At the limit those go in which
/// nothing is cached, or only a few resources that have been idle; files below others are believed
/// by age. The kernel's own limit is `fs.inotify.max_user_watches`.
const DIRS_MAX: usize = 4096;
/// Directories looked at to find one that can go.
const EVICTION_LOOKS: usize = 16;
/// So many idle resources go with their directory.
const EVICTED_MAX: usize = 4;
/// Watching is tried again so long after it failed for want of something.
const RETRY: Duration = Duration::from_secs(10);
/// Watches ended in one turn: each goes through all others (`sweep_watches` in the ring).
const CANCELS_MAX: usize = 16;

/// The directories that resources are in.
#[derive(Debug, Default)]
pub(super) struct Dirs {
    by_path: BTreeMap<Path, Dir>,
    by_id: HashMap<u32, Path>,
    /// In the order in which they are looked at when one has to go.
    hand: VecDeque<u32>,
    /// In which nothing was cached any more: those go first.
    spare: VecDeque<u32>,
    next_id: u32,
    /// Some after watching failed for want of something: when to try again.
    retry_at: Option<Time>,
    /// Watches that are to end.
    cancels: Vec<ring::Key>,
}

#[derive(Debug)]
struct Dir {
    id: u32,
    key: ring::Key,
    state: State,
}

#[derive(Debug)]
enum State {
    /// These loads wait to know whether changes will make events.
    Pending {
        loads: Vec<u32>,
        /// The directory may have been moved since: what will be watched is not what is meant.
        outdated: bool,
    },
    /// So are all above it.
    Watched,
    /// Changes there make no events, by its nature.
    Unwatchable,
}

/// Whether changes on the way to a resource make events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Watching {
    Yes,
    No,
    /// A directory has to answer first.
    Pending,
}

/// Why a directory is not watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    /// It is not there any more.
    Gone,
    /// Something is short; it may be there later.
    Shortage,
    /// Changes there may make no events, as long as it is what it is: a network file system, FUSE,
    /// a symbolic link, a directory that may be passed but not read.
    Nature,
}

impl Dirs {
    pub(super) fn has_cancels(&self) -> bool {
        !self.cancels.is_empty()
    }

    /// End some of the watches that nobody needs.
    pub(super) fn cancel_some(&mut self, ring: &mut Ring) {
        let rest = self.cancels.len().saturating_sub(CANCELS_MAX);
        for key in self.cancels.split_off(rest) {
            ring.cancel(key);
        }
    }

    /// Whether it is worth knowing which directories can go.
    pub(super) fn are_many(&self) -> bool {
        self.by_path.len() >= DIRS_MAX / 2
    }

    /// Nothing is cached in a directory any more.
    pub(super) fn emptied(&mut self, path: &[u8]) {
        if let Some(dir) = self.by_path.get(path)
            && self.spare.len() < DIRS_MAX
        {
            self.spare.push_back(dir.id);
        }
    }

    /// Watch the directory `path` no longer.
    fn remove(&mut self, path: &[u8]) {
        if let Some(dir) = self.by_path.remove(path) {
            self.by_id.remove(&dir.id);
            self.cancels.push(dir.key);
        }
    }
}

impl Content {
    /// Whether changes on the way to `key` make events now.
    pub(super) fn is_watched(&self, key: &[u8]) -> bool {
        let dir = self.dirs.by_path.get(parent(key));
        matches!(dir, Some(Dir { state: State::Watched, .. }))
    }

    /// Have the next directory on the way to the load's path watched, as far as that can be.
    pub(super) fn watch_on(&mut self, shell: &mut Shell, load: u32, key: &[u8]) -> Watching {
        for path in ancestors(key) {
            match self.dirs.by_path.get_mut(path).map(|dir| &mut dir.state) {
                Some(State::Watched) => {}
                Some(State::Unwatchable) => return Watching::No,
                Some(State::Pending { loads, .. }) => {
                    loads.push(load);
                    return Watching::Pending;
                }
                None => return self.watch(shell, path, load),
            }
        }
        Watching::Yes
    }

    fn watch(&mut self, shell: &mut Shell, path: &[u8], load: u32) -> Watching {
        let is_short = self.dirs.retry_at.is_some_and(|at| at > shell.cx.now);
        if is_short || (self.dirs.by_path.len() >= DIRS_MAX && !self.evict_dir(shell)) {
            return Watching::No;
        }
        let id = self.dirs.next_id;
        self.dirs.next_id = id.wrapping_add(1);
        let name = CString::new(path).expect("no path has a NUL");
        let op = Op::Watch { root: self.root.clone(), path: name };
        let key = shell.ring.submit(op, token(kind::WATCH, 0, id));
        let state = State::Pending { loads: vec![load], outdated: false };
        let path = Path::from(path);
        self.dirs.by_path.insert(path.clone(), Dir { id, key, state });
        self.dirs.by_id.insert(id, path);
        if self.dirs.hand.len() >= 2 * DIRS_MAX {
            let by_id = &self.dirs.by_id;
            self.dirs.hand.retain(|id| by_id.contains_key(id));
        }
        self.dirs.hand.push_back(id);
        Watching::Pending
    }

    /// Take a completion of a watch.
    pub(crate) fn handle_watch(&mut self, shell: &mut Shell, completion: Completion) {
        #[allow(clippy::cast_possible_truncation, reason = "the low half is the number")]
        let id = completion.token as u32;
        let Some(path) = self.dirs.by_id.get(&id).cloned() else { return };
        let result = match completion.result {
            Ok(Event::Changed(change)) => {
                self.changed(shell, &path, &change);
                return self.schedule(shell);
            }
            Ok(_) => Ok(()),
            Err(error) => Err(error),
        };
        let Some(dir) = self.dirs.by_path.get_mut(&path) else { return };
        let state = match result.as_ref().map_err(refusal) {
            Err(Refusal::Nature) => State::Unwatchable,
            _ => State::Watched,
        };
        let before = core::mem::replace(&mut dir.state, state);
        let (loads, outdated) = match before {
            State::Pending { loads, outdated } => (loads, outdated),
            State::Watched | State::Unwatchable => (Vec::new(), false),
        };
        let gone = match result.as_ref().map_err(refusal) {
            Ok(()) if self.dirs.retry_at.take().is_some() => {
                shell.note("directories are watched for changes again");
                outdated
            }
            Ok(()) => outdated,
            Err(Refusal::Nature) => {
                self.unwatch_below(&path);
                outdated
            }
            Err(Refusal::Gone) => true,
            Err(Refusal::Shortage) => {
                if let (None, Err(error)) = (self.dirs.retry_at, &result) {
                    shell.note(&shortage(error));
                }
                self.dirs.retry_at = Some(shell.cx.now + RETRY);
                true
            }
        };
        if gone {
            self.dirs.remove(&path);
            self.unwatch_below(&path);
        }
        for load in loads {
            self.directory_known(shell, load, result.is_ok() && !gone);
        }
        self.schedule(shell);
    }

    /// Watch nothing below `path` any more. What waits for an answer gets it first.
    pub(super) fn unwatch_below(&mut self, path: &[u8]) {
        let prefix = if path.is_empty() { Vec::new() } else { [path, b"/"].concat() };
        let gone: Vec<Path> = below(&self.dirs.by_path, &prefix)
            .map(|(below, _)| below.clone())
            .filter(|below| **below != *path)
            .collect();
        for path in gone {
            self.unwatch(&path);
        }
    }

    /// Watch a directory no longer; one that waits for an answer gets it first.
    pub(super) fn unwatch(&mut self, path: &[u8]) {
        match self.dirs.by_path.get_mut(path).map(|dir| &mut dir.state) {
            Some(State::Pending { outdated, .. }) => *outdated = true,
            Some(_) => self.dirs.remove(path),
            None => {}
        }
    }

    /// Make room for one more directory: one without resources goes, or whose few resources are
    /// idle.
    fn evict_dir(&mut self, shell: &Shell) -> bool {
        for _ in 0..EVICTION_LOOKS {
            let spare = self.dirs.spare.pop_front();
            let is_spare = spare.is_some();
            let Some(id) = spare.or_else(|| self.dirs.hand.pop_front()) else { return false };
            // Gone before; the hand only now gets there.
            let Some(path) = self.dirs.by_id.get(&id).cloned() else { continue };
            if self.can_go(shell, &path) {
                self.dirs.remove(&path);
                return true;
            }
            if !is_spare {
                self.dirs.hand.push_back(id);
            }
        }
        false
    }

    /// Whether nothing needs the events of a directory, after idle resources in it have gone.
    fn can_go(&mut self, shell: &Shell, path: &[u8]) -> bool {
        let is_pending = |dir: &Dir| matches!(dir.state, State::Pending { .. });
        if path.is_empty() || self.dirs.by_path.get(path).is_some_and(is_pending) {
            return false;
        }
        let prefix = [path, b"/"].concat();
        if below(&self.dirs.by_path, &prefix).next().is_some()
            || below(&self.by_key, &prefix).next().is_some()
        {
            return false;
        }
        let idle: Vec<Path> = self.cached_below(&prefix).take(EVICTED_MAX + 1).cloned().collect();
        let is_idle = |key: &Path| {
            let resource = self.cache.get(key);
            resource.is_none_or(|resource| shell.cx.now.since(resource.used.get()) >= IDLE_MAX)
        };
        if idle.len() > EVICTED_MAX || !idle.iter().all(is_idle) {
            return false;
        }
        for key in idle {
            self.forget(&key);
        }
        true
    }
}

fn refusal(error: &io::Error) -> Refusal {
    match Errno::from_io_error(error) {
        Some(Errno::NOENT | Errno::NOTDIR) => Refusal::Gone,
        Some(
            Errno::MFILE
            | Errno::NFILE
            | Errno::NOMEM
            | Errno::NOSPC
            | Errno::AGAIN
            | Errno::INTR
            | Errno::CANCELED,
        )
        | None => Refusal::Shortage,
        Some(_) => Refusal::Nature,
    }
}

/// What the operator is told, and can do.
fn shortage(error: &io::Error) -> String {
    let knob = match Errno::from_io_error(error) {
        Some(Errno::NOSPC) => "raise fs.inotify.max_user_watches",
        Some(Errno::MFILE) => "raise fs.inotify.max_user_instances, or `ulimit -n`",
        _ => "memory or descriptors are short",
    };
    format!(
        "directories cannot be watched for changes: {error} ({knob}); until they can, files below them are \
         believed for a second"
    )
}
