//! The watched directories: all directories on the way to cached resources. A directory is watched
//! only if its parent is.
//!
//! A directory is watched after something in it was found, so a path that does not exist costs no
//! watch. The path is then looked at again, so no change is missed.

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};
use std::ffi::CString;

use ring::{Change, Completion, Device, Event, Fd, Key, Op, Ring, Slab, Time};

use super::errors::{Unwatched, shortage_of_watches};
use super::media_types::is_coded;
use super::path::{Path, ancestors, below, parent, prefix};
use crate::tree::TreeId;
use session::kind::{self, id_of};
use session::shell::Shell;

/// The maximum number of directories, watched or unwatchable, per worker. At the limit a directory is dropped in which
/// nothing or only a few idle resources are cached. If there is none, files in further directories are believed by age.
/// The kernel's own limit is `fs.inotify.max_user_watches`.
const DIRECTORIES_MAX: usize = 4096;
/// The time between a watch that failed for lack of watches, descriptors or memory, and the next try.
const RETRY: Duration = Duration::from_secs(10);
/// The maximum number of watches cancelled in one worker turn: each costs a look at all others (`sweep_watches` in the
/// ring).
const CANCELS_MAX: usize = 16;

/// The number of looks at files of a directory before its names are searched for precompressed files. For fewer
/// requests a search is not worthwhile.
const CODED_LOOKS: u8 = 4;
/// The maximum number of names that are searched. In a larger directory siblings are looked for one by one. It is small
/// because a client can cause a search by five requests, once the watch of the directory was dropped.
const NAMES_MAX: usize = 10_000;

/// The watched directories of all trees.
#[derive(Debug)]
pub(super) struct Watches {
    directories: Slab<Directory>,
    /// The directories of each tree.
    by_path: Vec<BTreeMap<Path, Key>>,
    /// The keys of directories, in the order in which they are examined when one has to be dropped. Some of the
    /// directories have gone already.
    hand: VecDeque<Key>,
    /// The time of the next try after a watch failed for lack of watches, descriptors or memory.
    retry_at: Option<Time>,
    /// Watches that have to be cancelled.
    cancels: Vec<Key>,
}

#[derive(Debug)]
struct Directory {
    tree: TreeId,
    path: Path,
    /// The operation that watches the directory.
    operation: Key,
    /// The earlier operation that watched the directory; `Some` until the result of the new one is known.
    before: Option<Key>,
    /// Its mount, once it is watched (`Stat::mount`).
    mount: u64,
    /// True if files in the directory are mounts themselves: because of one the directory was watched again, and was
    /// not covered.
    has_mounts: bool,
    state: State,
    coded: Coded,
}

/// The state of the search for precompressed files in a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Coded {
    /// Not searched; `looks` looks have asked.
    Unknown { looks: u8 },
    /// The search is under way.
    Reading,
    /// There are no such files. Events report new ones.
    Absent,
    /// There is such a file, or the search failed.
    Present,
}

#[derive(Debug)]
enum State {
    /// The watch has been requested.
    Pending {
        /// Loads that wait for the result of the watch.
        loads: Vec<Key>,
        /// True if the directory may have been moved since. Then the watch may be on another directory.
        is_outdated: bool,
    },
    /// The directory is watched, and so are all directories above it.
    Watched,
    /// Changes in such a directory make no events.
    Unwatchable,
}

/// The state of the directories on the way to a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress<'a> {
    /// All of them are watched.
    Watched,
    /// One of them cannot be watched.
    Unwatchable,
    /// The load waits for one of them.
    Pending,
    /// This directory has to be watched next.
    Next(&'a [u8]),
}

/// The meaning of a completion for the content.
#[derive(Debug)]
pub(super) enum Notice {
    /// Something in a watched directory has changed.
    Changed(TreeId, Path, Change),
    /// The result of a watch is known, and these loads have waited for it.
    Known {
        loads: Vec<Key>,
        is_watched: bool,
        /// The first directory on the way that a mount may cover; nothing below it is watched any more.
        covered: Option<(TreeId, Path)>,
    },
}

impl Watches {
    pub(super) fn new(trees: usize) -> Self {
        Self {
            directories: Slab::new(),
            by_path: vec![BTreeMap::new(); trees],
            hand: VecDeque::new(),
            retry_at: None,
            cancels: Vec::new(),
        }
    }

    /// Adds a tree.
    pub(super) fn add_tree(&mut self) {
        self.by_path.push(BTreeMap::new());
    }

    /// Returns true if no directory of a tree is watched, or about to be.
    pub(super) fn is_empty(&self, tree: TreeId) -> bool {
        self.by_path[tree.index()].is_empty()
    }

    fn state(&self, tree: TreeId, path: &[u8]) -> Option<&State> {
        let key = self.by_path[tree.index()].get(path)?;
        Some(&self.directories.get(*key).expect("by_path has only those").state)
    }

    fn state_mut(&mut self, tree: TreeId, path: &[u8]) -> Option<&mut State> {
        let key = self.by_path[tree.index()].get(path)?;
        Some(&mut self.directories.get_mut(*key).expect("by_path has only those").state)
    }

    /// The mount of the directory of `path` if all changes on the way to `path` make events now.
    pub(super) fn mount_of_watched(&self, tree: TreeId, path: &[u8]) -> Option<u64> {
        let key = self.by_path[tree.index()].get(parent(path))?;
        let directory = self.directories.get(*key).expect("by_path has only those");
        matches!(directory.state, State::Watched).then_some(directory.mount)
    }

    /// Returns false if the directory of a file has no precompressed files. Each look at a file calls it. After
    /// [`CODED_LOOKS`] of them the directory is searched once, and from then on events report changes.
    pub(super) fn may_have_coded(
        &mut self,
        shell: &mut Shell,
        root: &Fd,
        device: Device,
        tree: TreeId,
        path: &[u8],
    ) -> bool {
        let Some(key) = self.by_path[tree.index()].get(parent(path)).copied() else { return true };
        let directory = self.directories.get_mut(key).expect("by_path has only those");
        if !matches!(directory.state, State::Watched) {
            return true;
        }
        match &mut directory.coded {
            Coded::Absent => return false,
            Coded::Reading | Coded::Present => {}
            Coded::Unknown { looks } if *looks < CODED_LOOKS => *looks += 1,
            Coded::Unknown { .. } => {
                directory.coded = Coded::Reading;
                let op = Op::HasName {
                    root: root.clone(),
                    path: CString::new(parent(path)).expect("no path has a NUL"),
                    entries_max: NAMES_MAX,
                    is_wanted: is_coded,
                };
                shell.ring.submit_to(device, op, kind::WATCH | key.to_bits());
            }
        }
        true
    }

    /// Returns the state of the directories on the way to `path`. If one is pending, the load waits for it from now on.
    pub(super) fn wait_for<'a>(&mut self, tree: TreeId, path: &'a [u8], load: Key) -> Progress<'a> {
        for directory in ancestors(path) {
            match self.state_mut(tree, directory) {
                Some(State::Watched) => {}
                Some(State::Unwatchable) => return Progress::Unwatchable,
                Some(State::Pending { loads, .. }) => {
                    loads.push(load);
                    return Progress::Pending;
                }
                None => return Progress::Next(directory),
            }
        }
        Progress::Watched
    }

    /// Returns true if a watch failed a short time ago for lack of watches, descriptors or memory.
    pub(super) fn is_short(&self, now: Time) -> bool {
        self.retry_at.is_some_and(|at| at > now)
    }

    pub(super) const fn is_full(&self) -> bool {
        self.directories.len() >= DIRECTORIES_MAX
    }

    /// Requests the watch of a directory; the load waits for the result.
    pub(super) fn watch(
        &mut self,
        shell: &mut Shell,
        root: &Fd,
        device: Device,
        tree: TreeId,
        path: &[u8],
        load: Key,
    ) {
        let name = CString::new(path).expect("no path has a NUL");
        let op = Op::Watch { root: root.clone(), path: name };
        let state = State::Pending { loads: vec![load], is_outdated: false };
        let path = Path::from(path);
        let key = self.directories.insert_with(|key| {
            let operation = shell.ring.submit_to(device, op, kind::WATCH | key.to_bits());
            let coded = Coded::Unknown { looks: 0 };
            Directory {
                tree,
                path: path.clone(),
                operation,
                before: None,
                mount: 0,
                has_mounts: false,
                state,
                coded,
            }
        });
        self.by_path[tree.index()].insert(path, key);
        if self.hand.len() >= 2 * DIRECTORIES_MAX {
            self.hand.retain(|key| self.directories.get(*key).is_some());
        }
        self.hand.push_back(key);
    }

    /// Watches the directory of a file on another mount by its path again; the load waits for the result. Returns false
    /// if it would change nothing. Either it was done meanwhile, or the directory is the root, which is open and cannot
    /// be covered, or files in this directory are mounts themselves.
    pub(super) fn watch_again(
        &mut self,
        shell: &mut Shell,
        root: &Fd,
        device: Device,
        (tree, path): (TreeId, &[u8]),
        mount: u64,
        load: Key,
    ) -> bool {
        let path = parent(path);
        let Some(key) = self.by_path[tree.index()].get(path).copied() else { return false };
        let directory = self.directories.get_mut(key).expect("by_path has only those");
        match &mut directory.state {
            State::Pending { loads, .. } => loads.push(load),
            State::Watched
                if mount != directory.mount && !path.is_empty() && !directory.has_mounts =>
            {
                let name = CString::new(path).expect("no path has a NUL");
                let op = Op::Watch { root: root.clone(), path: name };
                let operation = shell.ring.submit_to(device, op, kind::WATCH | key.to_bits());
                // The earlier operation reports changes until the new one does.
                directory.before = Some(core::mem::replace(&mut directory.operation, operation));
                directory.state = State::Pending { loads: vec![load], is_outdated: false };
            }
            State::Watched | State::Unwatchable => return false,
        }
        true
    }

    /// Handles a completion; returns its meaning for others.
    pub(super) fn handle(&mut self, shell: &mut Shell, completion: Completion) -> Option<Notice> {
        let key = Key::from_bits(id_of(completion.token));
        // A cancelled watch may still report changes.
        let directory = self.directories.get_mut(key)?;
        let (tree, path) = (directory.tree, Path::clone(&directory.path));
        let is_before = directory.before == Some(completion.key);
        if completion.key != directory.operation && !is_before {
            // This is the end of the search. If a change came meanwhile, the state says so already.
            if directory.coded == Coded::Reading {
                let is_absent = matches!(completion.result, Ok(Event::HasName(false)));
                directory.coded = if is_absent { Coded::Absent } else { Coded::Present };
            }
            return None;
        }
        let result = match completion.result {
            Ok(Event::Changed(change)) => {
                if change.name.as_deref().is_none_or(is_coded) {
                    directory.coded = Coded::Present;
                }
                return Some(Notice::Changed(tree, path, change));
            }
            _ if is_before => return None,
            Ok(Event::Watching { mount }) => Ok(mount),
            Ok(event) => unreachable!("no watch ends with {event:?}"),
            Err(error) => Err((Unwatched::of(&error), error)),
        };
        let before = directory.before.take();
        let is_covered = before.is_some() && result.as_ref().ok() != Some(&directory.mount);
        directory.has_mounts |= before.is_some() && !is_covered;
        if let Ok(mount) = &result {
            directory.mount = *mount;
        }
        self.cancels.extend(before);
        let state = match &result {
            Err((Unwatched::Nature, _)) => State::Unwatchable,
            _ => State::Watched,
        };
        let (loads, is_outdated) = match core::mem::replace(&mut directory.state, state) {
            State::Pending { loads, is_outdated } => (loads, is_outdated),
            State::Watched | State::Unwatchable => (Vec::new(), false),
        };
        let is_gone = match &result {
            Ok(_) => {
                if self.retry_at.take().is_some() {
                    shell.note("directories are watched for changes again");
                }
                is_outdated
            }
            Err((Unwatched::Nature, _)) => {
                self.unwatch_below(tree, &path);
                is_outdated
            }
            Err((Unwatched::Gone, _)) => true,
            Err((Unwatched::Shortage, error)) => {
                if self.retry_at.is_none() {
                    shell.note(&shortage_of_watches(error));
                }
                self.retry_at = Some(shell.cx.now + RETRY);
                true
            }
        };
        if is_gone {
            self.remove(tree, &path);
            self.unwatch_below(tree, &path);
        }
        let first = ancestors(&path).nth(1).unwrap_or(&path);
        let covered = is_covered.then(|| (tree, Path::from(first)));
        Some(Notice::Known { loads, is_watched: result.is_ok() && !is_gone, covered })
    }

    /// Ends the watches of all directories below a directory. Watches for which loads wait end when their result is
    /// known.
    pub(super) fn unwatch_below(&mut self, tree: TreeId, path: &[u8]) {
        let prefix = prefix(path);
        let gone: Vec<Path> = below(&self.by_path[tree.index()], &prefix)
            .map(|(below, _)| below.clone())
            .filter(|below| **below != *path)
            .collect();
        for path in gone {
            self.unwatch(tree, &path);
        }
    }

    /// Ends the watch of a directory. If loads wait for it, it ends when its result is known.
    pub(super) fn unwatch(&mut self, tree: TreeId, path: &[u8]) {
        match self.state_mut(tree, path) {
            Some(State::Pending { is_outdated, .. }) => *is_outdated = true,
            Some(State::Watched | State::Unwatchable) => self.remove(tree, path),
            None => {}
        }
    }

    fn remove(&mut self, tree: TreeId, path: &[u8]) {
        if let Some(key) = self.by_path[tree.index()].remove(path)
            && let Some(directory) = self.directories.remove(key)
        {
            self.cancels.push(directory.operation);
        }
    }

    /// Takes the next directory that may be dropped. It comes again only after [`spare`](Self::spare).
    pub(super) fn next_to_go(&mut self) -> Option<Key> {
        while let Some(key) = self.hand.pop_front() {
            if self.directories.get(key).is_some() {
                return Some(key);
            }
        }
        None
    }

    /// The tree and the path of a directory.
    pub(super) fn place(&self, key: Key) -> Option<(TreeId, Path)> {
        self.directories.get(key).map(|directory| (directory.tree, directory.path.clone()))
    }

    /// Puts a directory back that cannot be dropped now.
    pub(super) fn spare(&mut self, key: Key) {
        self.hand.push_back(key);
    }

    /// Returns true if a directory can be dropped without others: no load waits for it, and no directory below it is in
    /// the list.
    pub(super) fn is_leaf(&self, tree: TreeId, path: &[u8]) -> bool {
        matches!(self.state(tree, path), Some(State::Watched | State::Unwatchable))
            && below(&self.by_path[tree.index()], &prefix(path)).next().is_none()
    }

    pub(super) fn has_cancels(&self) -> bool {
        !self.cancels.is_empty()
    }

    /// Cancels some of the watches that have to be cancelled.
    pub(super) fn cancel_some(&mut self, ring: &mut Ring) {
        let rest = self.cancels.len().saturating_sub(CANCELS_MAX);
        for operation in self.cancels.split_off(rest) {
            ring.cancel(operation);
        }
    }
}
