//! Watches of directories, by `inotify(7)`.

use core::mem::MaybeUninit;
use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader};

use super::{Common, Pinned, Slot};
use crate::op::{Change, Event};
use crate::slab::Key;

/// The watches of one ring.
#[derive(Debug, Default)]
pub(crate) struct Watches {
    /// Some from the first `Op::Watch` on.
    inotify: Option<Arc<OwnedFd>>,
    /// The operations that watch, by watch descriptor: several for one directory share one.
    watchers: HashMap<i32, Vec<Key>>,
    /// Watches that helpers are setting up.
    pub(super) settling: usize,
    /// Whether a turn ended before the inotify descriptor was empty.
    left: bool,
}

/// Inode events in one turn, so that a directory with many changes does not delay requests: each
/// event costs some microseconds. Others wait in the kernel,
/// whose queue is bounded (`max_queued_events`, inotify(7)).
const INOTIFY_EVENTS_MAX: usize = 256;
/// Bytes of one read of inode events. What it brought is delivered in any case: without names that
/// is another 256.
const INOTIFY_BYTES: usize = 4 * 1024;

impl Watches {
    /// The inotify descriptor, if there has been a watch.
    pub(crate) fn inotify(&self) -> Option<&OwnedFd> {
        self.inotify.as_deref()
    }

    /// Whether a turn ended before the inotify descriptor was empty: it is read on in the next,
    /// which must not sleep before.
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

    pub(super) fn watching(&mut self, key: Key, watch: i32) {
        let slot = self.table.get_mut(key).expect("a watch that is being set up stays until it is");
        slot.pinned = Pinned::Watch(watch);
        self.watches.watchers.entry(watch).or_default().push(key);
        if slot.cancelled {
            self.end_watch(key);
        } else {
            self.emit(key, Event::Watching);
        }
        self.watch_settled();
    }

    pub(super) fn watch_settled(&mut self) {
        self.watches.settling -= 1;
        self.sweep_watches();
    }

    /// Cancel a watch; its last completion is ready at once.
    pub(crate) fn end_watch(&mut self, key: Key) {
        if let Some(Slot { pinned: Pinned::Watch(watch), .. }) = self.table.get_mut(key) {
            let watch = *watch;
            if let Some(keys) = self.watches.watchers.get_mut(&watch) {
                keys.retain(|other| *other != key);
            }
            self.end_cancelled(key);
            self.sweep_watches();
        }
    }

    /// Removes the kernel's watches that no operation uses any more, unless a helper is setting one
    /// up: inotify gives all watches of one directory one descriptor, so that one may be the same.
    fn sweep_watches(&mut self) {
        let Some(inotify) = &self.watches.inotify else { return };
        if self.watches.settling > 0 {
            return;
        }
        self.watches.watchers.retain(|watch, keys| {
            if keys.is_empty() {
                // EINVAL: the kernel has removed it, because the directory went away. That is also
                // why this does not sleep: what loses a reference here is a directory with a name.
                let _ = inotify::remove_watch(inotify, *watch);
            }
            !keys.is_empty()
        });
    }

    /// Deliver inode events, at most about [`INOTIFY_EVENTS_MAX`]; call once in a turn when the
    /// inotify descriptor is readable or [something is left](Watches::has_more). Equal changes in a
    /// row are one: a write is three events.
    pub(crate) fn reap_inotify(&mut self) {
        let Some(inotify) = self.watches.inotify.clone() else { return };
        let mut space = [MaybeUninit::uninit(); INOTIFY_BYTES];
        let mut events = Reader::new(&inotify, &mut space);
        let mut last = None;
        let mut count = 0;
        self.watches.left = true;
        while count < INOTIFY_EVENTS_MAX || !events.is_buffer_empty() {
            count += 1;
            let Ok(event) = events.next() else {
                // EAGAIN: the queue is empty.
                self.watches.left = false;
                return;
            };
            let flags = event.events();
            if flags.contains(ReadFlags::QUEUE_OVERFLOW) {
                let all: Vec<Key> = self.watches.watchers.values().flatten().copied().collect();
                for key in all {
                    self.emit(key, Event::Changed(Change { name: None, directory: true }));
                }
                continue;
            }
            let gone = flags.intersects(
                ReadFlags::DELETE_SELF
                    | ReadFlags::MOVE_SELF
                    | ReadFlags::UNMOUNT
                    | ReadFlags::IGNORED,
            );
            let name = event.file_name().map(|name| name.to_bytes().to_vec());
            if name.is_none() && !gone {
                // Attributes of the directory itself: its entries are what they were.
                continue;
            }
            let watch = event.wd();
            let change = Change { name, directory: flags.contains(ReadFlags::ISDIR) };
            if last.as_ref() != Some(&(watch, change.clone())) {
                for key in self.watches.watchers.get(&watch).cloned().unwrap_or_default() {
                    self.emit(key, Event::Changed(change.clone()));
                }
                last = Some((watch, change));
            }
            if flags.contains(ReadFlags::IGNORED) {
                self.watches.watchers.remove(&watch);
            }
        }
    }
}
