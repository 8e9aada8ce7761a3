//! The actions of a test on files. Paths begin at the root, and a leading slash may be left out. The paths of
//! new files and directories need not be UTF-8.

use core::ops::Range;
use core::time::Duration;
use std::collections::BTreeMap;

use super::disk::{Body, File, PathEnd, ROOT, Walk};
use super::errno;
use super::world::{World, WorldState};
use crate::timers::Time;

impl World {
    /// Create a file or overwrite it in place, where open descriptors see it. Its pages are in the page cache
    /// afterwards.
    ///
    /// # Panics
    ///
    /// If the directory is missing.
    pub fn write_file(&self, path: &(impl AsRef<[u8]> + ?Sized), bytes: &[u8]) {
        let mut state = self.state();
        let found = state.find(path.as_ref(), false);
        let now = state.now;
        let ino = match found.ino {
            Some(ino) => ino,
            None => {
                let body = Body::File(File::default());
                state.disk.make(found.dir, found.name.clone(), body, now)
            }
        };
        state.disk.file(ino).expect("a file").set(now, bytes);
        state.disk.modified(ino, now);
        state.changed(found.dir, Some(&found.name), false);
    }

    /// The bytes of a file.
    ///
    /// # Panics
    ///
    /// If there is no such file.
    #[must_use]
    pub fn read_file(&self, path: &str) -> Vec<u8> {
        let mut state = self.state();
        let ino = state.find(path, true).ino.expect("a file");
        state.disk.file(ino).expect("a file").bytes.clone()
    }

    /// Write at the end of a file.
    ///
    /// # Panics
    ///
    /// If there is no such file.
    pub fn append(&self, path: &str, bytes: &[u8]) {
        self.change(path, |all| all.extend_from_slice(bytes));
    }

    /// Put a new file in the place of an old one (or none) in one step, as `rename(2)` does: open descriptors
    /// still refer to the old one.
    ///
    /// # Panics
    ///
    /// If the directory is missing.
    pub fn replace_file(&self, path: &str, bytes: &[u8]) {
        let mut state = self.state();
        let found = state.find(path, false);
        let now = state.now;
        state.disk.unlink(found.dir, &found.name, now);
        let mut file = File::default();
        file.set(now, bytes);
        state.disk.make(found.dir, found.name.clone(), Body::File(file), now);
        state.changed(found.dir, Some(&found.name), false);
    }

    /// Make a file shorter or (with zeroes) longer, where open descriptors see it.
    ///
    /// # Panics
    ///
    /// If there is no such file.
    pub fn truncate(&self, path: &str, len: usize) {
        self.change(path, |bytes| bytes.resize(len, 0));
    }

    fn change(&self, path: &str, change: impl FnOnce(&mut Vec<u8>)) {
        let mut state = self.state();
        let found = state.find(path, false);
        let now = state.now;
        let ino = found.ino.expect("the file is there");
        state.disk.file(ino).expect("a file").change(now, change);
        state.disk.modified(ino, now);
        state.changed(found.dir, Some(&found.name), false);
    }

    /// Make a directory.
    ///
    /// # Panics
    ///
    /// If its parent is missing or the name is taken.
    pub fn make_dir(&self, path: &(impl AsRef<[u8]> + ?Sized)) {
        let body = Body::Directory { parent: ROOT, entries: BTreeMap::new() };
        self.make(path.as_ref(), body, true);
    }

    /// Make a directory that is a device of its own; its number.
    ///
    /// # Panics
    ///
    /// As [`make_dir`](Self::make_dir).
    pub fn make_device(&self, path: &str) -> u64 {
        self.make_dir(path);
        let mut state = self.state();
        let ino = state.find(path, true).ino.expect("just made");
        // Inode numbers are used once.
        let dev = ino + 1;
        state.disk.inode_mut(ino).dev = dev;
        dev
    }

    /// Make a directory whose files have a number of their own and are on a device that was made before, as a
    /// subvolume of a btrfs has.
    ///
    /// # Panics
    ///
    /// As [`make_dir`](Self::make_dir).
    pub fn make_subvolume(&self, path: &str, device: u64) {
        let number = self.make_device(path);
        self.state().disk.subvolumes.insert(number, device);
    }

    /// From now on no operation on files of this device completes, except reads of resident pages. None can
    /// be cancelled, as on Linux.
    pub fn hang(&self, device: u64) {
        let mut state = self.state();
        let now = state.now;
        state.disk.hang(device, now);
    }

    /// From now on nothing can be written to files of this device (`ENOSPC`), or again.
    pub fn set_full(&self, device: u64, is_full: bool) {
        let full = &mut self.state().disk.full;
        if is_full {
            full.insert(device);
        } else {
            full.remove(&device);
        }
    }

    /// Makes the device work again: all operations that wait for it go on.
    pub fn release(&self, device: u64) {
        self.state().release(device);
    }

    /// Make a symbolic link.
    ///
    /// # Panics
    ///
    /// If the directory is missing or the name is taken.
    pub fn symlink(&self, target: &str, path: &str) {
        self.make(path.as_bytes(), Body::Symlink(target.into()), false);
    }

    fn make(&self, path: &[u8], body: Body, directory: bool) {
        let mut state = self.state();
        let found = state.find(path, true);
        assert!(found.ino.is_none(), "{} is taken", path.escape_ascii());
        let now = state.now;
        let ino = state.disk.make(found.dir, found.name.clone(), body, now);
        if let Body::Directory { parent, .. } = &mut state.disk.inode_mut(ino).body {
            *parent = found.dir;
        }
        state.changed(found.dir, Some(&found.name), directory);
    }

    /// Give a file or directory another name; it replaces the present owner of that name.
    ///
    /// # Panics
    ///
    /// If there is nothing of that name, or no directory for the new one.
    pub fn rename(&self, from: &str, to: &str) {
        let mut state = self.state();
        let (source, target) = (state.find(from, true), state.find(to, true));
        let ino = source.ino.expect("the source is there");
        let now = state.now;
        let directory = matches!(state.disk.inode(ino).body, Body::Directory { .. });
        state.disk.unlink(target.dir, &target.name, now);
        state.disk.link(target.dir, target.name.clone(), ino, now);
        state.disk.unlink(source.dir, &source.name, now);
        if directory {
            state.changed(ino, None, true);
        }
        state.changed(source.dir, Some(&source.name), directory);
        state.changed(target.dir, Some(&target.name), directory);
    }

    /// Remove a file, a link, or a directory with all its entries.
    ///
    /// # Panics
    ///
    /// If there is nothing of that name.
    pub fn remove(&self, path: &str) {
        let mut state = self.state();
        let found = state.find(path, true);
        state.remove(found.dir, &found.name, found.ino.expect("something is there"));
    }

    /// Set a file's time of modification: seconds since 1970, after the clock's start.
    ///
    /// # Panics
    ///
    /// If there is nothing of that name, or the time is before the clock's start.
    pub fn set_mtime(&self, path: &(impl AsRef<[u8]> + ?Sized), seconds: i64) {
        let mut state = self.state();
        let found = state.find(path.as_ref(), false);
        let since =
            u64::try_from(seconds - state.config.unix_time).expect("after the clock's start");
        let ino = found.ino.expect("something is there");
        let now = state.now;
        let inode = state.disk.inode_mut(ino);
        (inode.mtime, inode.ctime) = (Time::default() + Duration::from_secs(since), now);
        state.changed(found.dir, Some(&found.name), false);
    }

    /// Drop a file from the page cache, except pages that are being read.
    ///
    /// # Panics
    ///
    /// If there is no such file.
    pub fn evict(&self, path: &str) {
        self.evict_range(path, 0..u64::MAX);
    }

    /// Drop the whole pages of a range of a file from the page cache.
    ///
    /// # Panics
    ///
    /// If the file is not there.
    pub fn evict_range(&self, path: &str, range: Range<u64>) {
        let mut state = self.state();
        let ino = state.find(path, false).ino.expect("the file is there");
        state.evict(ino, range.start, range.end - range.start).expect("a file");
    }

    /// Drop all files from the page cache, except pages that are being read.
    #[expect(clippy::missing_panics_doc, reason = "files are files")]
    pub fn evict_all(&self) {
        let mut state = self.state();
        for ino in state.disk.files() {
            state.evict(ino, 0, 0).expect("a file");
        }
    }
}

impl WorldState {
    pub(super) fn release(&mut self, device: u64) {
        self.disk.release(device);
        let (free, parked) =
            core::mem::take(&mut self.parked).into_iter().partition(|(dev, _)| *dev == device);
        self.parked = parked;
        let free: Vec<_> = free;
        for (_, who) in free {
            let at = self.now + self.latency(|config| &config.disk);
            self.look_at(at, who);
        }
    }

    pub(super) fn find(&self, path: &(impl AsRef<[u8]> + ?Sized), stop_at_link: bool) -> PathEnd {
        let walk = Walk { stop_at_link, ..Walk::default() };
        let path = [b"/", path.as_ref()].concat();
        match self.disk.walk(ROOT, &path, walk) {
            Ok(found) => found,
            Err(error) => panic!("{}: {}", path.escape_ascii(), errno(error)),
        }
    }

    pub(super) fn remove(&mut self, dir: u64, name: &[u8], ino: u64) {
        let below: Vec<(Vec<u8>, u64)> = match self.disk.entries(ino) {
            Ok(entries) => entries.iter().map(|(name, ino)| (name.clone(), *ino)).collect(),
            Err(_) => Vec::new(),
        };
        for (name, below) in below {
            self.remove(ino, &name, below);
        }
        let directory = self.disk.entries(ino).is_ok();
        if directory {
            self.changed(ino, None, true);
        }
        let now = self.now;
        self.disk.unlink(dir, name, now);
        self.changed(dir, Some(name), directory);
    }
}
