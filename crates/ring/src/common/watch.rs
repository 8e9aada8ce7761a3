//! Watches of directories and files, by `inotify(7)`.

use core::mem::MaybeUninit;
use std::collections::HashMap;
use std::ffi::CString;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader};
use rustix::io::Errno;

use super::{Common, Pinned, Slot};
use crate::helpers::watch::{DirectoryWatched, FileWatched};
use crate::op::{Change, Completion, Event, Op, parent_and_name};
use crate::slab::Key;

/// The watches of one ring.
#[derive(Debug, Default)]
pub(crate) struct Watches {
    /// `Some` from the first `Op::Watch` on.
    inotify: Option<Arc<OwnedFd>>,
    /// The operations that watch, by watch descriptor: several for one inode share one.
    watchers: HashMap<i32, Vec<Key>>,
    /// Watches that helpers are setting up.
    pub(super) settling: usize,
    /// True if a turn ended before the inotify descriptor was empty.
    left: bool,
}

/// A file that is watched.
#[derive(Debug)]
pub(crate) struct FileWatch {
    /// The name of the file in the directory.
    name: CString,
    /// The watch descriptor of the directory.
    dir_watch: i32,
    /// The watch descriptor of the inode that had the name at the last look; none if no inode had it.
    inode_watch: Option<i32>,
    look: Look,
}

/// The state of the look which inode has the name of a watched file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Look {
    Idle,
    /// A helper begins the watch.
    First,
    /// A helper looks.
    UnderWay,
    /// A helper looks, and another inode may have taken the name since it began.
    Again,
}

/// The meaning of an inode event for a watched file.
enum Meaning {
    /// The event is about another file.
    Other,
    /// The file may have other contents or attributes.
    Changed,
    /// Another inode may have the name.
    Replaced,
}

/// The maximum of inode events in one turn, so that a directory with many changes does not delay requests: each event
/// costs some microseconds. Further events wait in the kernel, whose queue is bounded (`max_queued_events`,
/// inotify(7)).
const INOTIFY_EVENTS_MAX: usize = 256;
/// Events of a directory that has no path any more, or another.
const GONE: ReadFlags = ReadFlags::DELETE_SELF
    .union(ReadFlags::MOVE_SELF)
    .union(ReadFlags::UNMOUNT)
    .union(ReadFlags::IGNORED);
/// Events of an entry after which another inode may have its name.
const OTHER_INODE: ReadFlags = ReadFlags::CREATE
    .union(ReadFlags::DELETE)
    .union(ReadFlags::MOVED_FROM)
    .union(ReadFlags::MOVED_TO);
/// The bytes of one read of inode events. All events of a read are delivered: without names there may be another 256.
const INOTIFY_BYTES: usize = 4 * 1024;

impl Watches {
    /// The inotify descriptor, if there has been a watch.
    pub(crate) fn inotify(&self) -> Option<&OwnedFd> {
        self.inotify.as_deref()
    }

    /// Keeps the descriptor open for ever: helpers that set up watches may use it when the ring has gone.
    pub(crate) fn leak(&self) {
        core::mem::forget(self.inotify.clone());
    }

    /// Watches that helpers are setting up.
    pub(crate) const fn settling(&self) -> usize {
        self.settling
    }

    /// The operation does not use this watch any more.
    fn forget(&mut self, watch: i32, key: Key) {
        if let Some(keys) = self.watchers.get_mut(&watch) {
            keys.retain(|other| *other != key);
        }
    }

    /// Returns whether a turn ended before the inotify descriptor was empty. Then the next turn reads on, and must not
    /// sleep before.
    pub(crate) const fn has_more(&self) -> bool {
        self.left
    }
}

impl Common {
    /// The inotify descriptor, made when it is first needed.
    pub(crate) fn inotify(&mut self) -> io::Result<Arc<OwnedFd>> {
        if let Some(fd) = &self.watches.inotify {
            return Ok(Arc::clone(fd));
        }
        let fd = Arc::new(inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?);
        self.watches.inotify = Some(Arc::clone(&fd));
        Ok(fd)
    }

    pub(super) fn watching(&mut self, key: Key, watched: DirectoryWatched) {
        let DirectoryWatched { watch, mount } = watched;
        let slot = self.table.get_mut(key).expect("a watch that is being set up stays until it is");
        slot.pinned = Pinned::Watch(watch);
        self.watches.watchers.entry(watch).or_default().push(key);
        if slot.cancelled {
            self.end_watch(key);
        } else {
            self.emit(key, Event::Watching { mount });
        }
        self.watch_settled();
    }

    /// A helper has watched a file, at first or because another inode may have its name.
    pub(super) fn watching_file(&mut self, key: Key, watched: FileWatched) {
        let FileWatched { dir: DirectoryWatched { watch: dir_watch, mount }, inode_watch } =
            watched;
        let slot = self.table.get_mut(key).expect("a watch that is being set up stays until it is");
        let Op::WatchFile { path, .. } = &slot.op else {
            unreachable!("begun as a watch of a file")
        };
        let (before, look) = match &slot.pinned {
            Pinned::WatchFile(file) => (file.watches(), file.look),
            _ => ([None, None], Look::First),
        };
        let (_, name) = parent_and_name(path).expect("looked at when it was begun");
        let inode = inode_watch.as_ref().map_or(None, |watch| *watch);
        let file = FileWatch { dir_watch, inode_watch: inode, name, look: Look::Idle };
        let (now, change) = (file.watches(), file.change());
        let cancelled = slot.cancelled;
        slot.pinned = Pinned::WatchFile(file);
        for watch in before.into_iter().flatten() {
            self.watches.forget(watch, key);
        }
        for watch in now.into_iter().flatten() {
            self.watches.watchers.entry(watch).or_default().push(key);
        }
        match inode_watch {
            _ if cancelled => self.end_watch(key),
            Err(error) => self.end_watch_with(key, error),
            Ok(_) if look == Look::First => self.emit(key, Event::Watching { mount }),
            Ok(_) => self.emit(key, Event::Changed(change)),
        }
        if look == Look::Again {
            self.look_at_name(key);
        }
        self.watch_settled();
    }

    /// Lets a helper find the inode that has the name of a watched file, and watch this inode.
    fn look_at_name(&mut self, key: Key) {
        let Some(Slot { pinned: Pinned::WatchFile(file), .. }) = self.table.get_mut(key) else {
            return;
        };
        if file.look != Look::Idle {
            file.look = Look::Again;
            return;
        }
        file.look = Look::UnderWay;
        self.submit_job(key);
    }

    pub(super) fn watch_settled(&mut self) {
        self.watches.settling -= 1;
        self.sweep_watches();
    }

    /// Cancels a watch; its last completion is ready at once. If a helper works at the watch, the watch ends after the
    /// helper.
    pub(crate) fn end_watch(&mut self, key: Key) {
        match self.table.get(key).map(|slot| &slot.pinned) {
            Some(Pinned::Watch(_)) => {}
            Some(Pinned::WatchFile(file)) if file.look == Look::Idle => {}
            _ => return,
        }
        self.end_watch_with(key, Errno::CANCELED.into());
    }

    pub(super) fn end_watch_with(&mut self, key: Key, error: io::Error) {
        let watches = match self.table.get(key).map(|slot| &slot.pinned) {
            Some(Pinned::Watch(watch)) => [Some(*watch), None],
            Some(Pinned::WatchFile(file)) => file.watches(),
            _ => [None, None],
        };
        for watch in watches.into_iter().flatten() {
            self.watches.forget(watch, key);
        }
        self.end(key, Err(error));
        self.sweep_watches();
    }

    /// Removes the kernel's watches that no operation uses any more, unless a helper is setting up a watch. inotify
    /// gives all watches of one directory one descriptor, so the helper's watch may have the same.
    fn sweep_watches(&mut self) {
        let Some(inotify) = &self.watches.inotify else { return };
        if self.watches.settling > 0 {
            return;
        }
        self.watches.watchers.retain(|watch, keys| {
            if keys.is_empty() {
                // EINVAL: the kernel has removed the watch, because the directory went away. The call does not sleep
                // for a similar reason: the directory whose reference it drops still has a name.
                let _ = inotify::remove_watch(inotify, *watch);
            }
            !keys.is_empty()
        });
    }

    /// Deliver inode events, at most about [`INOTIFY_EVENTS_MAX`]; call once in a turn when the
    /// inotify descriptor is readable or [something is left](Watches::has_more). Equal changes in a
    /// row are one: a write is three events.
    pub(crate) fn reap_inotify(&mut self) {
        let before = self.ready.len();
        self.read_inotify();
        if self.ready.len() > before {
            // A client may have sent its request after a change, so the server learns of the change first. A burst of more
            // than `INOTIFY_EVENTS_MAX` changes takes several turns, and the last changes come late.
            let is_change = |one: &Completion| {
                matches!(one.result, Ok(Event::Watching { .. } | Event::Changed(_)))
            };
            self.ready.sort_by_key(|one| !is_change(one));
        }
    }

    fn read_inotify(&mut self) {
        let Some(inotify) = self.watches.inotify.clone() else { return };
        let mut space = [MaybeUninit::uninit(); INOTIFY_BYTES];
        let mut events = Reader::new(&inotify, &mut space);
        let mut last = None;
        // Watches of files for which an event was reported.
        let mut told = Vec::new();
        let mut count = 0;
        self.watches.left = true;
        while count < INOTIFY_EVENTS_MAX || !events.is_buffer_empty() {
            count += 1;
            let Ok(event) = events.next() else {
                // EAGAIN: the queue is empty.
                self.watches.left = false;
                return;
            };
            let (watch, flags) = (event.wd(), event.events());
            if flags.contains(ReadFlags::QUEUE_OVERFLOW) {
                self.changes_were_lost();
                continue;
            }
            let name = event.file_name().map(|name| name.to_bytes().to_vec());
            let gone = flags.intersects(GONE);
            let change = Change { name, directory: gone || flags.contains(ReadFlags::ISDIR) };
            let is_attributes = change.name.is_none() && !gone;
            let is_new = last.as_ref() != Some(&(watch, change.clone(), gone));
            for key in self.watches.watchers.get(&watch).cloned().unwrap_or_default() {
                let slot = self.table.get(key);
                match slot.map(|slot| &slot.pinned) {
                    // The directory above reports changes of attributes; the root has no watch above it.
                    Some(Pinned::Watch(_))
                        if is_attributes && !slot.is_some_and(|slot| slot.op.watches_root()) => {}
                    Some(Pinned::Watch(_)) if is_new => {
                        self.emit(key, Event::Changed(change.clone()));
                    }
                    Some(Pinned::WatchFile(file)) => match file.meaning(watch, &change, flags) {
                        Meaning::Other => {}
                        Meaning::Replaced => self.look_at_name(key),
                        Meaning::Changed if told.contains(&key) => {}
                        Meaning::Changed => {
                            let change = file.change();
                            told.push(key);
                            self.emit(key, Event::Changed(change));
                        }
                    },
                    _ => {}
                }
            }
            last = Some((watch, change, gone));
            if flags.contains(ReadFlags::IGNORED) {
                self.watches.watchers.remove(&watch);
            }
        }
    }

    /// The kernel had more events than it keeps.
    fn changes_were_lost(&mut self) {
        let mut all: Vec<Key> = self.watches.watchers.values().flatten().copied().collect();
        // A watched file has two watches.
        all.sort_unstable_by_key(|key| key.to_bits());
        all.dedup();
        for key in all {
            match self.table.get(key).map(|slot| &slot.pinned) {
                // The event is reported after the look.
                Some(Pinned::WatchFile(_)) => self.look_at_name(key),
                _ => self.emit(key, Event::Changed(Change { name: None, directory: true })),
            }
        }
    }
}

impl FileWatch {
    /// The meaning of an event for the file.
    fn meaning(&self, watch: i32, change: &Change, flags: ReadFlags) -> Meaning {
        if watch != self.dir_watch {
            return Meaning::Changed;
        }
        match &change.name {
            None if flags.intersects(GONE) => Meaning::Replaced,
            Some(name) if name == self.name.to_bytes() => {
                if flags.intersects(OTHER_INODE) {
                    Meaning::Replaced
                } else {
                    Meaning::Changed
                }
            }
            _ => Meaning::Other,
        }
    }

    const fn watches(&self) -> [Option<i32>; 2] {
        [Some(self.dir_watch), self.inode_watch]
    }

    fn change(&self) -> Change {
        Change { name: Some(self.name.to_bytes().to_vec()), directory: false }
    }
}
