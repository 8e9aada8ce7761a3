//! Inode events, and what they make us forget.

use std::ffi::CString;
use std::io;

use http1::Coding;
use ring::{Change, Completion, Event, Key, Op};

use super::{Content, ancestors, token};
use crate::shell::{Shell, kind};

/// Directories watched or known not to be watchable, per worker; beyond it, files are believed by
/// age. The kernel's own limit is `fs.inotify.max_user_watches`.
const DIRS_MAX: usize = 4096;

/// What is known of a directory that resources are in.
#[derive(Debug)]
pub(super) struct Dir {
    id: u32,
    key: Key,
    state: State,
}

#[derive(Debug)]
enum State {
    /// These loads wait to know whether changes will make events.
    Pending(Vec<u32>),
    Watched,
    Unwatchable,
}

/// Whether changes in the directories of a path make events.
pub(super) enum Watched {
    Yes,
    No,
    /// So many directories have to answer first.
    Pending(u32),
}

impl Content {
    /// See to it that all directories on the way to `key` are watched, as far as they can be.
    pub(super) fn watch_ancestors(&mut self, shell: &mut Shell, key: &[u8], load: u32) -> Watched {
        // Nobody may call back a load that does not wait: its number may be another's by then.
        let unknown = ancestors(key).filter(|path| !self.dirs.contains_key(*path)).count();
        let is_unwatchable =
            |path| matches!(self.dirs.get(path), Some(Dir { state: State::Unwatchable, .. }));
        if self.dirs.len() + unknown > DIRS_MAX || ancestors(key).any(is_unwatchable) {
            return Watched::No;
        }
        let mut pending = 0;
        for path in ancestors(key) {
            match self.dirs.get_mut(path) {
                Some(Dir { state: State::Watched | State::Unwatchable, .. }) => {}
                Some(Dir { state: State::Pending(loads), .. }) => {
                    loads.push(load);
                    pending += 1;
                }
                None => {
                    let id = self.next_dir;
                    self.next_dir = self.next_dir.wrapping_add(1);
                    let root = self.root.clone();
                    let name = CString::new(path).expect("no path has a NUL");
                    let op = Op::Watch { root, path: name };
                    let key = shell.ring.submit(op, token(kind::WATCH, 0, id));
                    let dir = Dir { id, key, state: State::Pending(vec![load]) };
                    self.dirs.insert(path.into(), dir);
                    self.dir_keys.insert(id, path.into());
                    pending += 1;
                }
            }
        }
        if pending > 0 { Watched::Pending(pending) } else { Watched::Yes }
    }

    /// Take a completion of a watch.
    pub(crate) fn handle_watch(&mut self, shell: &mut Shell, completion: Completion) {
        #[allow(clippy::cast_possible_truncation, reason = "the low half is the number")]
        let id = completion.token as u32;
        let Some(path) = self.dir_keys.get(&id).cloned() else { return };
        let (state, watched, is_missing) = match completion.result {
            Ok(Event::Changed(change)) => return self.changed(shell, &path, &change),
            Ok(_) => (State::Watched, true, false),
            Err(error) => {
                let kinds = [io::ErrorKind::NotFound, io::ErrorKind::NotADirectory];
                (State::Unwatchable, false, kinds.contains(&error.kind()))
            }
        };
        let Some(dir) = self.dirs.get_mut(&path) else { return };
        let before = core::mem::replace(&mut dir.state, state);
        if let State::Pending(loads) = before {
            for load in loads {
                self.directory_known(shell, load, watched);
            }
        }
        if is_missing {
            // Ask again when somebody asks for it.
            self.dirs.remove(&path);
            self.dir_keys.remove(&id);
        }
    }

    fn changed(&mut self, shell: &mut Shell, dir: &[u8], change: &Change) {
        let prefix = if dir.is_empty() { Vec::new() } else { [dir, b"/"].concat() };
        let Some(name) = &change.name else {
            self.invalidate_below(shell, &prefix);
            return;
        };
        // The directory's own resource: its index or its listing.
        self.invalidate(&prefix);
        let path = [&prefix[..], name].concat();
        self.invalidate(&path);
        for coding in Coding::PREFERENCE {
            if let Some(plain) = path.strip_suffix(suffix(coding).as_bytes()) {
                self.invalidate(plain);
            }
        }
        if change.directory {
            self.invalidate_below(shell, &[&path[..], b"/"].concat());
        }
    }

    /// Forget one key, and keep no load of it that is under way.
    fn invalidate(&mut self, key: &[u8]) {
        self.forget(key);
        if let Some(load) = self.by_key.remove(key).and_then(|id| self.loads[id as usize].as_mut())
        {
            load.outdated = true;
        }
    }

    /// Forget everything below a directory, which may have been moved, and watch it no longer.
    fn invalidate_below(&mut self, shell: &mut Shell, prefix: &[u8]) {
        let cached = self.cache.keys().chain(self.by_key.keys());
        let keys: Vec<_> = cached.filter(|key| key.starts_with(prefix)).cloned().collect();
        for key in keys {
            self.invalidate(&key);
        }
        let name = prefix.strip_suffix(b"/").unwrap_or(prefix);
        let below = |path: &[u8]| path == name || path.starts_with(prefix);
        let gone: Vec<_> = self.dirs.keys().filter(|path| below(path)).cloned().collect();
        for path in gone {
            if let Some(Dir { state: State::Pending(_), .. }) = self.dirs.get(&path) {
                // Loads wait for its answer.
                continue;
            }
            if let Some(dir) = self.dirs.remove(&path) {
                self.dir_keys.remove(&dir.id);
                shell.ring.cancel(dir.key);
            }
        }
    }
}

/// What a precompressed sibling's name ends in.
pub(super) const fn suffix(coding: Coding) -> &'static str {
    match coding {
        Coding::Br => ".br",
        Coding::Zstd => ".zst",
        Coding::Gzip => ".gz",
    }
}
