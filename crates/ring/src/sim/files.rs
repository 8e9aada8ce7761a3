//! Open files, as rings work with them.

use core::ffi::CStr;
use std::io;

use super::disk::{Body, Fetch, File, OpenFile, PAGE, PathEnd, ROOT, Walk, Watch};
use super::net::Stall;
use super::world::{Descriptor, PipeBytes, World, WorldState};
use super::{Waiter, errno};
use crate::buffer::Buffer;
use crate::gate::Device;
use crate::helpers::watch::LOCAL;
use crate::op::{
    Caching, Change, Entry, FileKind, Listing, Op, OpenHow, Stat, Targets, parent_and_name,
    path_of_entry,
};
use crate::symlinks::SymlinkScope;
use crate::timers::Time;

/// The result of `mincore(2)` for a mapped file.
#[derive(Debug)]
pub(crate) struct Mapping {
    world: World,
    ino: u64,
}

impl Mapping {
    pub(crate) fn resident(&self, offset: u64, len: usize) -> io::Result<usize> {
        let mut state = self.world.state();
        if state.config.mincore_denied {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        state.reclaim_some();
        let clock = state.disk.clock(self.ino, state.now);
        Ok(state.disk.file(self.ino).map_err(errno)?.resident(offset, len, clock))
    }

    pub(crate) fn has_any(&self, offset: u64, len: u64) -> io::Result<bool> {
        let mut state = self.world.state();
        if state.config.mincore_denied {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let clock = state.disk.clock(self.ino, state.now);
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        Ok(state.disk.file(self.ino).map_err(errno)?.has_any(offset, len, clock))
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        self.world.state().close_file(self.ino);
    }
}

impl World {
    /// A mapping keeps the inode, as a descriptor does.
    pub(crate) fn map(&self, file: i32) -> io::Result<Mapping> {
        let mut state = self.state();
        let ino = state.opened(file)?.ino;
        state.disk.inode_mut(ino).opens += 1;
        Ok(Mapping { world: self.clone(), ino })
    }

    pub(crate) fn has_swap(&self) -> bool {
        self.state().config.swap
    }

    /// The ends of a new pipe, and how many bytes fit.
    pub(crate) fn make_pipe(&self) -> io::Result<(i32, i32, usize)> {
        let mut state = self.state();
        let bytes = PipeBytes::default();
        let read = state.open(Descriptor::Pipe(bytes.clone()))?;
        match state.open(Descriptor::Pipe(bytes)) {
            Ok(write) => Ok((read, write, state.config.pipe_bytes)),
            Err(error) => {
                state.close(read);
                Err(error)
            }
        }
    }

    /// Chance decides if the names of a path are in memory.
    pub(crate) fn open_cached(
        &self,
        dir: i32,
        path: &CStr,
        how: OpenHow,
    ) -> Option<io::Result<i32>> {
        let mut state = self.state();
        let cached = state.config.cached_names;
        if !state.random.chance(cached) {
            return None;
        }
        let fd = match state.open_path(Some(dir), path.to_bytes(), how) {
            Ok(fd) => fd,
            Err(error) => return Some(Err(error)),
        };
        let [from, to] = [dir, fd].map(|fd| state.device_of(fd));
        if from != to {
            // The file is on another mount.
            state.close(fd);
            return None;
        }
        Some(Ok(fd))
    }

    /// Network file systems ask their servers.
    pub(crate) fn stat_cached(&self, file: i32) -> Option<Stat> {
        let mut state = self.state();
        if !LOCAL.contains(&state.config.file_system) {
            return None;
        }
        state.stat(file).ok()
    }

    /// The first `len` bytes of a file, if all are in the page cache.
    pub(crate) fn read_cached(&self, file: i32, len: usize) -> Option<Vec<u8>> {
        let mut state = self.state();
        let ino = state.opened(file).ok()?.ino;
        if state.config.cachestat_errno.is_some() || state.config.probe_errno.is_some() {
            return None;
        }
        state.reclaim_some();
        let clock = state.disk.clock(ino, state.now);
        let file = state.disk.file(ino).ok()?;
        let is_there = file.resident(0, len, clock) >= len;
        is_there.then(|| file.bytes[..len].to_vec())
    }

    pub(crate) fn probe(&self, file: i32, offset: u64, len: usize) -> io::Result<usize> {
        let mut state = self.state();
        let ino = state.opened(file)?.ino;
        state.probe(ino, offset, len)
    }

    /// It may bring fewer bytes than are resident.
    pub(crate) fn read_resident(
        &self,
        file: i32,
        offset: u64,
        buf: &mut Buffer,
    ) -> io::Result<usize> {
        let mut state = self.state();
        let ino = state.opened(file)?.ino;
        let found = state.probe(ino, offset, buf.want())?;
        let short = state.config.faults.short_read;
        let count = if found > 1 && state.random.chance(short) {
            1 + state.random.below(found)
        } else {
            found
        };
        let contents = state.disk.file(ino).map_err(errno)?;
        buf.fill_from(&contents.bytes[contents.range(offset, count)]);
        Ok(count)
    }

    /// It sleeps for missing bytes.
    pub(crate) fn read_mapped(
        &self,
        file: i32,
        offset: u64,
        buf: &mut Buffer,
    ) -> io::Result<usize> {
        let mut state = self.state();
        let open = state.opened(file)?.clone();
        state.sleep_for_missing(&open, offset, buf.want()).map_err(errno)?;
        let contents = state.disk.file(open.ino).map_err(errno)?;
        let range = contents.range(offset, buf.want());
        buf.fill_from(&contents.bytes[range]);
        Ok(buf.len())
    }

    pub(crate) fn cached_pages(&self, file: i32, offset: u64, len: u64) -> io::Result<u64> {
        let mut state = self.state();
        let ino = state.opened(file)?.ino;
        if let Some(error) = state.config.cachestat_errno {
            return Err(errno(error));
        }
        state.reclaim_some();
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        Ok(state.disk.file(ino).map_err(errno)?.cached(offset, len) as u64)
    }

    pub(crate) fn read_ahead_from(&self, file: i32, offset: u64) {
        let mut state = self.state();
        let Ok(open) = state.opened(file).cloned() else { return };
        let arrival = state.now + state.latency(|config| &config.disk);
        let pages = if open.readahead { state.config.readahead_pages } else { 0 };
        if let Ok(file) = state.disk.file(open.ino) {
            file.fetch_next(offset, pages, arrival);
        }
    }

    pub(crate) fn no_readahead(&self, file: i32) {
        if let Ok(open) = self.state().opened(file) {
            open.readahead = false;
        }
    }
}

impl World {
    /// Keep an operation if its device hangs.
    pub(super) fn park(&self, op: &Op, who: Waiter) -> bool {
        let mut state = self.state();
        let Some(dev) = state.hung_device(op) else { return false };
        state.parked.push((dev, who));
        state.counts.hangs += 1;
        true
    }

    /// All devices work again.
    pub(super) fn release_all(&self) {
        let mut state = self.state();
        for dev in state.disk.hung_devices() {
            state.release(dev);
        }
    }
}

impl WorldState {
    /// When the read is done, and the pages that it brings in.
    pub(super) fn begin_read(
        &mut self,
        fd: i32,
        offset: u64,
        want: usize,
        caching: Caching,
    ) -> io::Result<(Time, Vec<usize>)> {
        let open = self.opened(fd)?.clone();
        if open.access == libc::O_WRONLY {
            return Err(errno(libc::EBADF));
        }
        if caching == Caching::Drop && !self.config.can_drop {
            return Err(errno(libc::EOPNOTSUPP));
        }
        if self.is_absent(open.ino, offset)? && self.lacks_memory() {
            self.counts.failures += 1;
            return Err(errno(libc::ENOMEM));
        }
        let fetch = self.fetch(&open, offset, want).map_err(errno)?;
        Ok((fetch.ready + self.latency(|config| &config.cache), fetch.brought))
    }

    pub(super) fn open_path(
        &mut self,
        dir: Option<i32>,
        path: &[u8],
        how: OpenHow,
    ) -> io::Result<i32> {
        let start = match dir {
            Some(dir) => self.opened(dir)?.ino,
            None => ROOT,
        };
        let walk = Walk {
            beneath: how.resolve & libc::RESOLVE_BENEATH != 0,
            no_symlinks: how.resolve & libc::RESOLVE_NO_SYMLINKS != 0,
            stop_at_link: how.flags & libc::O_NOFOLLOW != 0,
        };
        let found = match path.strip_prefix(b"/proc/self/fd/") {
            Some(number) if self.config.proc => self.found_by_number(number)?,
            _ => self.disk.walk(start, path, walk).map_err(errno)?,
        };
        let (has, now) = (|flag| how.flags & flag == flag, self.now);
        let ino = match found.ino {
            Some(_) if has(libc::O_CREAT | libc::O_EXCL) => return Err(errno(libc::EEXIST)),
            Some(ino) => ino,
            None if has(libc::O_CREAT) => {
                let body = Body::File(File::default());
                let ino = self.disk.make(found.dir, found.name.clone(), body, now);
                self.changed(found.dir, Some(&found.name), false);
                ino
            }
            None => return Err(errno(libc::ENOENT)),
        };
        let access = how.flags & libc::O_ACCMODE;
        if has(libc::O_TMPFILE) {
            return self.open_nameless(ino, access);
        }
        match &self.disk.inode(ino).body {
            Body::Symlink(_) => return Err(errno(libc::ELOOP)),
            Body::Directory { .. } if access != libc::O_RDONLY => return Err(errno(libc::EISDIR)),
            Body::File(_) if has(libc::O_DIRECTORY) => return Err(errno(libc::ENOTDIR)),
            _ if has(libc::O_DIRECT) => return Err(errno(libc::EINVAL)),
            _ => {}
        }
        if has(libc::O_TRUNC) && access != libc::O_RDONLY {
            self.disk.file(ino).map_err(errno)?.set(now, b"");
            self.changed(found.dir, Some(&found.name), false);
        }
        let (dir, name) = (found.dir, found.name);
        self.open(Descriptor::File(OpenFile { ino, dir, name, access, readahead: true }))
    }

    /// Opens the target of a path through links of a kind.
    pub(super) fn open_through_links(
        &mut self,
        root: i32,
        path: &[u8],
        how: OpenHow,
        symlinks: &SymlinkScope,
    ) -> io::Result<i32> {
        let start = self.opened(root)?.ino;
        let found = self.disk.through_links(start, path, symlinks)?;
        let path = self.disk.path_of(found)?;
        self.open_path(None, &path, OpenHow { resolve: 0, ..how })
    }

    /// A new file in a directory, without a name (`O_TMPFILE`).
    fn open_nameless(&mut self, dir: u64, access: i32) -> io::Result<i32> {
        self.disk.entries(dir).map_err(errno)?;
        if access == libc::O_RDONLY {
            return Err(errno(libc::EINVAL));
        }
        let (now, name) = (self.now, b"no name".to_vec());
        let ino = self.disk.make(dir, name.clone(), Body::File(File::default()), now);
        let file = OpenFile { ino, dir, name: name.clone(), access, readahead: true };
        let opened = self.open(Descriptor::File(file));
        self.disk.unlink(dir, &name, now);
        opened
    }

    fn device_of(&mut self, fd: i32) -> Option<u64> {
        let ino = self.opened(fd).ok()?.ino;
        Some(self.disk.device(ino))
    }

    /// The target of a link in `/proc/self/fd`: the very inode, even after a change of its name.
    fn found_by_number(&mut self, number: &[u8]) -> io::Result<PathEnd> {
        let number = core::str::from_utf8(number).ok().and_then(|number| number.parse().ok());
        let open = self.opened(number.ok_or_else(|| errno(libc::ENOENT))?)?;
        Ok(PathEnd { dir: open.dir, name: open.name.clone(), ino: Some(open.ino) })
    }

    pub(super) fn stat(&mut self, fd: i32) -> io::Result<Stat> {
        let ino = self.opened(fd)?.ino;
        let inode = self.disk.inode(ino);
        let (mtime, mtime_nanos) = self.unix(inode.mtime);
        let (ctime, ctime_nanos) = self.unix(inode.ctime);
        Ok(Stat {
            kind: self.disk.kind(ino),
            size: self.disk.size(ino),
            mtime,
            mtime_nanos,
            ctime,
            ctime_nanos,
            dev: inode.dev,
            device: Device::of(self.disk.device(ino)),
            ino,
            links: inode.links,
            mode: 0o644,
            owner: 0,
            from_image: false,
            direct_align: 0,
            mount: 0,
        })
    }

    /// Writes bytes at a position, or at the end.
    pub(super) fn write(&mut self, fd: i32, at: Option<u64>, bytes: &[u8]) -> io::Result<usize> {
        let open = self.opened(fd)?.clone();
        if open.access == libc::O_RDONLY {
            return Err(errno(libc::EBADF));
        }
        let short = self.config.faults.short_write;
        let mut count = bytes.len();
        if count > 1 && self.random.chance(short) {
            count = 1 + self.random.below(count);
        }
        if self.disk.full.contains(&self.disk.device(open.ino)) {
            return Err(errno(libc::ENOSPC));
        }
        let now = self.now;
        let file = self.disk.file(open.ino).map_err(errno)?;
        file.change(now, |all| {
            let at = at.map_or(all.len(), |at| usize::try_from(at).expect("files are small"));
            let end = all.len().max(at + count);
            all.resize(end, 0);
            all[at..at + count].copy_from_slice(&bytes[..count]);
        });
        self.disk.modified(open.ino, now);
        self.changed(open.dir, Some(&open.name), false);
        Ok(count)
    }

    pub(super) fn list(
        &mut self,
        fd: i32,
        entries_max: usize,
        targets: Option<&Targets>,
    ) -> io::Result<Listing> {
        let start = match targets {
            Some(targets) => Some(self.opened(targets.root.raw())?.ino),
            None => None,
        };
        let dir = self.opened(fd)?.ino;
        let entries = self.disk.entries(dir).map_err(errno)?;
        let is_link = |ino: u64| self.disk.kind(ino) == FileKind::Symlink;
        let entry = |(name, ino): (&Vec<u8>, &u64)| {
            let ino = match (targets, start) {
                (Some(targets), Some(start)) if is_link(*ino) => {
                    let path = path_of_entry(&targets.path, name);
                    self.disk.through_links(start, path.to_bytes(), &targets.symlinks).ok()?
                }
                _ => *ino,
            };
            Some(Entry {
                name: name.clone(),
                kind: self.disk.kind(ino),
                size: self.disk.size(ino),
                mtime: self.unix(self.disk.inode(ino).mtime).0,
                target: None,
            })
        };
        Ok(Listing {
            entries: entries.iter().take(entries_max).filter_map(entry).collect(),
            truncated: entries.len() > entries_max,
            has_links: entries.values().any(|ino| is_link(*ino)),
            path: None,
        })
    }

    pub(super) fn has_name(
        &mut self,
        root: i32,
        path: &[u8],
        entries_max: usize,
        is_wanted: fn(&[u8]) -> bool,
    ) -> io::Result<bool> {
        let start = self.opened(root)?.ino;
        let dir = self.disk.dir_beneath(start, path).map_err(errno)?;
        let entries = self.disk.entries(dir).map_err(errno)?;
        Ok(entries.len() > entries_max || entries.keys().any(|name| is_wanted(name)))
    }

    pub(super) fn discard(&mut self, fd: i32, offset: u64, len: u64) -> io::Result<()> {
        let ino = self.opened(fd)?.ino;
        self.evict(ino, offset, len).map_err(errno)
    }

    pub(super) fn punch(&mut self, fd: i32, offset: u64, len: u64) -> io::Result<()> {
        let open = self.opened(fd)?.clone();
        if open.access == libc::O_RDONLY {
            return Err(errno(libc::EBADF));
        }
        let (now, file) = (self.now, self.disk.file(open.ino).map_err(errno)?);
        let end = offset.saturating_add(len).min(file.bytes.len() as u64);
        let place = |at: u64| usize::try_from(at.min(end)).expect("within a file in memory");
        file.change(now, |all| all[place(offset)..place(end)].fill(0));
        Ok(())
    }

    pub(super) fn watched_dir(&mut self, root: i32, path: &[u8]) -> Result<u64, i32> {
        let start = self.opened(root).map_err(|_| libc::EBADF)?.ino;
        let dir = self.disk.dir_beneath(start, path)?;
        self.disk.entries(dir)?;
        if !LOCAL.contains(&self.config.file_system) {
            return Err(libc::EOPNOTSUPP);
        }
        Ok(dir)
    }

    /// The directory and the name of a file that is watched from now on.
    pub(super) fn watched_file(
        &mut self,
        root: i32,
        path: &CStr,
    ) -> Result<(u64, Option<Vec<u8>>), i32> {
        let (parent, name) = parent_and_name(path).ok_or(libc::EINVAL)?;
        let dir = self.watched_dir(root, parent.to_bytes())?;
        match self.disk.entries(dir)?.get(name.to_bytes()).map(|ino| self.disk.kind(*ino)) {
            Some(FileKind::Directory) => Err(libc::EISDIR),
            Some(FileKind::Symlink) => Err(libc::ELOOP),
            Some(FileKind::Regular | FileKind::Other) | None => Ok((dir, Some(name.into_bytes()))),
        }
    }

    /// The path of a watched file may lead to another directory by now.
    pub(super) fn follow(&mut self, root: i32, path: &CStr, who: Waiter) -> Result<(), i32> {
        let (dir, _) = self.watched_file(root, path)?;
        self.watches.get_mut(&who).expect("it watches").dir = dir;
        Ok(())
    }

    /// Reports a change to all watches of the directory, and of the entry.
    pub(super) fn changed(&mut self, dir: u64, name: Option<&[u8]>, directory: bool) {
        let most = self.config.watch_queue;
        let mut told = Vec::new();
        let concerns = |watch: &Watch| {
            watch.dir == dir
                && (watch.name.is_none() || name.is_none() || watch.name.as_deref() == name)
        };
        for (who, watch) in self.watches.iter_mut().filter(|(_, watch)| concerns(watch)) {
            let mut change = Change { name: name.map(<[u8]>::to_vec), directory };
            if watch.queue.len() >= most {
                change = Change { name: None, directory: true };
                watch.queue.clear();
            }
            // As inotify(7) does, equal changes in a row are one.
            if watch.queue.back() != Some(&change) {
                watch.queue.push_back(change);
                told.push(*who);
            }
        }
        for who in told {
            let at = self.now + self.latency(|config| &config.metadata);
            self.look_at(at, who);
        }
    }

    /// Begin to read a range; returns the time at which all of it is there, and the missing pages.
    pub(super) fn fetch(&mut self, open: &OpenFile, offset: u64, len: usize) -> Result<Fetch, i32> {
        let now = self.now;
        let pages = self.disk.file(open.ino)?.uncached(offset, len);
        let begun = match self.config.disk_rate {
            Some(rate) => self.disk.brings(open.ino, (pages * PAGE) as u64, rate, now),
            None => now,
        };
        let arrival = begun + self.latency(|config| &config.disk);
        let later = arrival + self.latency(|config| &config.disk);
        let may_read_ahead = open.readahead && !self.lacks_memory();
        let ahead = if may_read_ahead { self.config.readahead_pages } else { 0 };
        let file = self.disk.file(open.ino)?;
        let fetch = file.fetch(offset, len, now, arrival);
        if !fetch.brought.is_empty() {
            file.fetch_ahead(offset, len, ahead, later);
        }
        Ok(fetch)
    }

    /// The result of a read that does not wait.
    fn probe(&mut self, ino: u64, offset: u64, len: usize) -> io::Result<usize> {
        if let Some(error) = self.config.probe_errno {
            return Err(errno(error));
        }
        self.reclaim_some();
        let now = self.now;
        let clock = self.disk.clock(ino, now);
        let denial = self.config.faults.probe_denial;
        let denied = self.random.chance(denial);
        let arrival = now + self.latency(|config| &config.disk);
        let file = self.disk.file(ino).map_err(errno)?;
        let count = file.resident(offset, len, clock);
        if count < file.range(offset, len).len() {
            // As on Linux, a request for missing pages begins to read them.
            file.fetch(offset, len, now, arrival);
        }
        if (count == 0 || denied) && !file.range(offset, len).is_empty() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(count)
    }

    /// Lets the worker sleep if pages of a range are missing that it believes to be resident.
    pub(super) fn sleep_for_missing(
        &mut self,
        open: &OpenFile,
        offset: u64,
        len: usize,
    ) -> Result<(), i32> {
        self.reclaim_some();
        let now = self.now;
        let clock = self.disk.clock(open.ino, now);
        let missing = self.disk.file(open.ino)?.missing(offset, len, clock);
        if !missing.is_empty() {
            let file = String::from_utf8_lossy(&open.name).into_owned();
            self.stalls.push(Stall { file, offset, len, at: now, missing });
            self.sleep_on(open, offset, len);
        }
        Ok(())
    }

    /// Returns whether the page of this byte is neither resident nor on its way.
    fn is_absent(&mut self, ino: u64, offset: u64) -> io::Result<bool> {
        Ok(self.disk.file(ino).map_err(errno)?.uncached(offset, 1) > 0)
    }

    /// Returns whether there is no memory for pages now. Chance is asked only in worlds in which that
    /// happens.
    fn lacks_memory(&mut self) -> bool {
        let probability = self.config.faults.no_memory;
        probability > 0.0 && self.random.chance(probability)
    }

    /// The bytes of a read that has its pages. Pages that the read brought in are dropped again if it
    /// fails, or if it must leave nothing behind.
    pub(super) fn end_read(
        &mut self,
        fd: i32,
        offset: u64,
        want: usize,
        brought: &[usize],
        drop_after: bool,
    ) -> io::Result<Vec<u8>> {
        let (short, fails) = (self.config.faults.short_read, self.config.faults.read_error);
        let fails = !brought.is_empty() && self.random.chance(fails);
        let short = self.random.chance(short);
        let chosen = self.random.below(want);
        let ino = self.opened(fd)?.ino;
        let contents = self.disk.file(ino).map_err(errno)?;
        if fails || drop_after {
            brought.iter().for_each(|page| contents.drop_page(*page));
        }
        if fails {
            self.counts.failures += 1;
            return Err(errno(libc::EIO));
        }
        let range = contents.range(offset, want);
        let count =
            if short && range.len() > 1 { 1 + chosen % (range.len() - 1) } else { range.len() };
        Ok(contents.bytes[range][..count].to_vec())
    }

    /// The device that an operation on a file needs, if that hangs.
    pub(super) fn hung_device(&mut self, op: &Op) -> Option<u64> {
        let ino = match op {
            Op::Open { dir, path, .. } => {
                let start = match dir {
                    Some(dir) => self.opened(dir.raw()).ok()?.ino,
                    None => ROOT,
                };
                let found = self.disk.walk(start, path.to_bytes(), Walk::default()).ok()?;
                found.ino.unwrap_or(found.dir)
            }
            Op::Follow { root, path, symlinks, .. } => {
                let start = self.opened(root.raw()).ok()?.ino;
                self.disk.through_links(start, path.to_bytes(), symlinks).ok()?
            }
            Op::Read { file, offset, buf, .. } => self.missing(file.raw(), *offset, buf.want())?,
            Op::Splice { file, offset, pipe } => self.missing(file.raw(), *offset, pipe.want())?,
            Op::Stat(fd) | Op::FileSystem(fd) | Op::Extents(fd) => self.opened(fd.raw()).ok()?.ino,
            Op::Write { file: fd, .. }
            | Op::List { dir: fd, .. }
            | Op::HasName { root: fd, .. }
            | Op::Punch { file: fd, .. }
            | Op::Discard { file: fd, .. } => self.opened(fd.raw()).ok()?.ino,
            _ => return None,
        };
        let device = self.disk.device(ino);
        self.disk.hangs(device).then_some(device)
    }

    /// The inode, if a part of the range is not in the page cache.
    pub(super) fn missing(&mut self, fd: i32, offset: u64, len: usize) -> Option<u64> {
        let ino = self.opened(fd).ok()?.ino;
        let clock = self.disk.clock(ino, self.now);
        let file = self.disk.file(ino).ok()?;
        (file.resident(offset, len, clock) < file.range(offset, len).len()).then_some(ino)
    }

    /// Makes the worker sleep for a `sendfile` or a read of a range that is not resident. Nothing could end the
    /// hang of a device while the worker sleeps, so even a hanging device brings this range. Nothing is
    /// read ahead, so that one stall does not cause another: `cachestat` would count these pages.
    fn sleep_on(&mut self, open: &OpenFile, offset: u64, len: usize) {
        let open = &OpenFile { readahead: false, ..open.clone() };
        if let Ok(fetch) = self.fetch(open, offset, len) {
            self.now = self.now.max(fetch.ready);
            let clock = self.disk.clock(open.ino, self.now);
            if let Ok(file) = self.disk.file(open.ino) {
                file.arrive(offset, len, clock);
            }
        }
    }

    /// Drop whole pages of the range (`len` 0: to the end) that are not being read.
    pub(super) fn evict(&mut self, ino: u64, offset: u64, len: u64) -> Result<(), i32> {
        let clock = self.disk.clock(ino, self.now);
        self.counts.evictions += self.disk.file(ino)?.evict(offset, len, clock, None);
        Ok(())
    }

    /// Now and then memory is short: any pages of a file go, mostly few.
    pub(super) fn reclaim_some(&mut self) {
        let eviction = self.config.faults.eviction;
        if !self.random.chance(eviction) {
            return;
        }
        let files = self.disk.files();
        if files.is_empty() {
            return;
        }
        let ino = files[self.random.below(files.len())];
        let (now, clock) = (self.now, self.disk.clock(ino, self.now));
        let pages = self.disk.file(ino).expect("a file").page_count();
        let first = self.random.below(pages.max(1));
        let most = if self.random.chance(0.7) { 16 } else { pages.max(1) };
        let count = 1 + self.random.below(most);
        let (offset, len) = ((first * PAGE) as u64, (count * PAGE) as u64);
        let file = self.disk.file(ino).expect("a file");
        self.counts.reclaims += file.evict(offset, len, clock, Some(now));
    }
}
