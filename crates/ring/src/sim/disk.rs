//! Inodes in memory, and their part in the simulated page cache. Errors are errno values.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use super::errno;
use super::net::MissingPage;
use crate::op::{Change, FileKind};
use crate::symlinks::{Names, SymlinkScope, follow};
use crate::timers::Time;

pub(super) const PAGE: usize = 4096;
pub(super) const ROOT: u64 = 1;
/// Symbolic links followed in one path, as in the kernel (`MAXSYMLINKS`).
const LINKS_MAX: usize = 40;

#[derive(Debug)]
pub(super) struct Disk {
    inodes: BTreeMap<u64, Inode>,
    next: u64,
    /// The devices of subvolumes, by their numbers.
    pub(super) subvolumes: BTreeMap<u64, u64>,
    /// By device: since when it hangs.
    hung: BTreeMap<u64, Time>,
    /// For each device with a rate: the time at which its last read ends.
    busy: BTreeMap<u64, Time>,
    /// The devices that have no space.
    pub(super) full: BTreeSet<u64>,
}

#[derive(Debug)]
pub(super) struct Inode {
    pub(super) body: Body,
    pub(super) dev: u64,
    pub(super) mtime: Time,
    pub(super) ctime: Time,
    pub(super) links: u32,
    /// Descriptors that are open; an inode goes when this and `links` are 0.
    pub(super) opens: u32,
}

#[derive(Debug)]
pub(super) enum Body {
    File(File),
    Directory { parent: u64, entries: BTreeMap<Vec<u8>, u64> },
    Symlink(Vec<u8>),
}

#[derive(Debug, Default)]
pub(super) struct File {
    pub(super) bytes: Vec<u8>,
    pages: Vec<Page>,
}

/// A page of a file.
#[derive(Clone, Copy, Debug, Default)]
struct Page {
    /// `None` if the page is not in the cache, else the time at which its contents come (or came). A time in
    /// the future means that the page is being read.
    cached: Option<Time>,
    /// The time when the kernel reclaimed the page, if that was its last eviction.
    reclaimed: Option<Time>,
}

#[derive(Clone, Debug)]
pub(super) struct OpenFile {
    pub(super) ino: u64,
    pub(super) dir: u64,
    pub(super) name: Vec<u8>,
    /// `O_RDONLY`, `O_WRONLY` or `O_RDWR`.
    pub(super) access: i32,
    pub(super) readahead: bool,
}

#[derive(Debug)]
pub(super) struct Watch {
    pub(super) dir: u64,
    /// The entry that is watched; all if there is none.
    pub(super) name: Option<Vec<u8>>,
    pub(super) queue: VecDeque<Change>,
}

/// The end of a path.
#[derive(Debug)]
pub(super) struct PathEnd {
    /// The directory that has (or would have) the last name.
    pub(super) dir: u64,
    pub(super) name: Vec<u8>,
    pub(super) ino: Option<u64>,
}

/// The limits for walking a path; the names are those of `openat2(2)`.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Walk {
    pub(super) beneath: bool,
    pub(super) no_symlinks: bool,
    /// Do not follow the last name if it is a symbolic link.
    pub(super) stop_at_link: bool,
}

impl Names for Disk {
    type Node = u64;

    fn look_up(&self, directory: &u64, name: &[u8]) -> io::Result<u64> {
        let walk = Walk { stop_at_link: true, ..Walk::default() };
        let found = self.walk(*directory, name, walk).map_err(errno)?;
        found.ino.ok_or_else(|| errno(libc::ENOENT))
    }

    fn top(&self) -> io::Result<u64> {
        Ok(ROOT)
    }

    fn target(&self, node: &u64) -> io::Result<Option<Vec<u8>>> {
        match &self.inode(*node).body {
            Body::Symlink(target) => Ok(Some(target.clone())),
            Body::File(_) | Body::Directory { .. } => Ok(None),
        }
    }

    fn path(&self, node: &u64) -> io::Result<Vec<u8>> {
        self.path_of(*node)
    }

    fn real(&self, path: &Path) -> Option<Vec<u8>> {
        let found = self.walk(ROOT, path.as_os_str().as_bytes(), Walk::default()).ok()?;
        self.path_of(found.ino?).ok()
    }
}

/// The state that a read found when it began.
#[derive(Debug)]
pub(super) struct Fetch {
    /// When the last page is there.
    pub(super) ready: Time,
    /// The pages that this read brings in.
    pub(super) brought: Vec<usize>,
}

impl Disk {
    pub(super) fn new() -> Self {
        let body = Body::Directory { parent: ROOT, entries: BTreeMap::new() };
        let root = Inode {
            body,
            dev: 1,
            mtime: Time::default(),
            ctime: Time::default(),
            links: 2,
            opens: 0,
        };
        Self {
            inodes: BTreeMap::from([(ROOT, root)]),
            next: ROOT + 1,
            subvolumes: BTreeMap::new(),
            hung: BTreeMap::new(),
            busy: BTreeMap::new(),
            full: BTreeSet::new(),
        }
    }

    /// The time at which the device of a file has read these bytes, in addition to its earlier reads.
    pub(super) fn brings(&mut self, ino: u64, bytes: u64, rate: u64, now: Time) -> Time {
        let busy = self.busy.entry(self.inodes[&ino].dev).or_default();
        *busy = (*busy).max(now) + Duration::from_nanos(bytes * 1_000_000_000 / rate);
        *busy
    }

    /// From now on nothing is read from the device.
    pub(super) fn hang(&mut self, dev: u64, now: Time) {
        self.hung.entry(dev).or_insert(now);
    }

    /// The device works again.
    pub(super) fn release(&mut self, dev: u64) {
        self.hung.remove(&dev);
    }

    pub(super) fn hung_devices(&self) -> Vec<u64> {
        self.hung.keys().copied().collect()
    }

    pub(super) fn hangs(&self, device: u64) -> bool {
        self.hung.contains_key(&device)
    }

    /// The time of the file's device, which stands still while the device hangs: reads due by then have
    /// ended, and no others end.
    pub(super) fn clock(&self, ino: u64, now: Time) -> Time {
        self.hung.get(&self.device(ino)).copied().unwrap_or(now)
    }

    /// The device of an inode, which has another number than its subvolume.
    pub(super) fn device(&self, ino: u64) -> u64 {
        let dev = self.inode(ino).dev;
        self.subvolumes.get(&dev).copied().unwrap_or(dev)
    }

    pub(super) fn inode(&self, ino: u64) -> &Inode {
        &self.inodes[&ino]
    }

    pub(super) fn inode_mut(&mut self, ino: u64) -> &mut Inode {
        self.inodes.get_mut(&ino).expect("inodes with names or descriptors stay")
    }

    pub(super) fn file(&mut self, ino: u64) -> Result<&mut File, i32> {
        match &mut self.inode_mut(ino).body {
            Body::File(file) => Ok(file),
            Body::Directory { .. } => Err(libc::EISDIR),
            Body::Symlink(_) => Err(libc::EINVAL),
        }
    }

    pub(super) fn entries(&self, ino: u64) -> Result<&BTreeMap<Vec<u8>, u64>, i32> {
        match &self.inode(ino).body {
            Body::Directory { entries, .. } => Ok(entries),
            _ => Err(libc::ENOTDIR),
        }
    }

    /// The contents have changed.
    pub(super) fn modified(&mut self, ino: u64, now: Time) {
        let inode = self.inode_mut(ino);
        (inode.mtime, inode.ctime) = (now, now);
    }

    fn entries_mut(&mut self, ino: u64) -> &mut BTreeMap<Vec<u8>, u64> {
        match &mut self.inode_mut(ino).body {
            Body::Directory { entries, .. } => entries,
            _ => unreachable!("walked through as a directory"),
        }
    }

    pub(super) fn files(&self) -> Vec<u64> {
        let is_file = |inode: &Inode| matches!(inode.body, Body::File(_));
        self.inodes.iter().filter(|(_, inode)| is_file(inode)).map(|(ino, _)| *ino).collect()
    }

    /// The directory that a path without links leads to; an empty one is where it starts.
    pub(super) fn dir_beneath(&self, start: u64, path: &[u8]) -> Result<u64, i32> {
        let path = if path.is_empty() { b"." } else { path };
        let walk = Walk { beneath: true, no_symlinks: true, stop_at_link: false };
        self.walk(start, path, walk)?.ino.ok_or(libc::ENOENT)
    }

    pub(super) fn walk(&self, start: u64, path: &[u8], how: Walk) -> Result<PathEnd, i32> {
        if path.is_empty() {
            return Err(libc::ENOENT);
        }
        let mut todo = Vec::new();
        let mut here = PathEnd { dir: start, name: b".".to_vec(), ino: Some(start) };
        let mut links = 0;
        let begin = |path: &[u8], here: u64, todo: &mut Vec<Vec<u8>>| {
            todo.extend(path.split(|byte| *byte == b'/').rev().map(<[u8]>::to_vec));
            match path.first() {
                Some(b'/') if how.beneath => Err(libc::EXDEV),
                Some(b'/') => Ok(ROOT),
                _ => Ok(here),
            }
        };
        here.ino = Some(begin(path, start, &mut todo)?);
        while let Some(name) = todo.pop() {
            let dir = here.ino.ok_or(libc::ENOENT)?;
            let Body::Directory { parent, entries } = &self.inode(dir).body else {
                return Err(libc::ENOTDIR);
            };
            here = match &name[..] {
                b"" | b"." => PathEnd { dir, name: b".".to_vec(), ino: Some(dir) },
                b".." if how.beneath && dir == start => return Err(libc::EXDEV),
                b".." => PathEnd { dir, name, ino: Some(*parent) },
                _ => PathEnd { dir, ino: entries.get(&name).copied(), name },
            };
            let Some(Body::Symlink(target)) = here.ino.map(|ino| &self.inode(ino).body) else {
                continue;
            };
            if todo.is_empty() && how.stop_at_link {
                continue;
            }
            links += 1;
            if how.no_symlinks || links > LINKS_MAX {
                return Err(libc::ELOOP);
            }
            here = PathEnd { dir, name: b".".to_vec(), ino: Some(begin(target, dir, &mut todo)?) };
        }
        Ok(here)
    }

    /// The target of a path through links of a kind.
    pub(super) fn through_links(
        &self,
        start: u64,
        path: &[u8],
        symlinks: &SymlinkScope,
    ) -> io::Result<u64> {
        let walk = Walk {
            beneath: matches!(symlinks, SymlinkScope::Never | SymlinkScope::Beneath),
            no_symlinks: *symlinks == SymlinkScope::Never,
            stop_at_link: false,
        };
        if let SymlinkScope::Into(into) = symlinks {
            return follow(self, &start, path, into);
        }
        let found = self.walk(start, path, walk).map_err(errno)?;
        found.ino.ok_or_else(|| errno(libc::ENOENT))
    }

    /// The path of an inode; one of its paths if it has several names.
    pub(super) fn path_of(&self, ino: u64) -> io::Result<Vec<u8>> {
        let mut path = Vec::new();
        let mut here = ino;
        while here != ROOT {
            let has_it = |(dir, inode): (&u64, &Inode)| {
                let Body::Directory { entries, .. } = &inode.body else { return None };
                let (name, _) = entries.iter().find(|(_, ino)| **ino == here)?;
                Some((*dir, [b"/", &name[..]].concat()))
            };
            let (dir, name) =
                self.inodes.iter().find_map(has_it).ok_or_else(|| errno(libc::ENOENT))?;
            path.splice(..0, name);
            here = dir;
        }
        Ok(if path.is_empty() { b"/".to_vec() } else { path })
    }

    /// Make an inode and give it a name, which must be free.
    pub(super) fn make(&mut self, dir: u64, name: Vec<u8>, body: Body, now: Time) -> u64 {
        let ino = self.next;
        self.next += 1;
        let dev = self.inode(dir).dev;
        self.inodes.insert(ino, Inode { body, dev, mtime: now, ctime: now, links: 1, opens: 0 });
        let old = self.entries_mut(dir).insert(name, ino);
        assert!(old.is_none(), "the name is taken");
        self.modified(dir, now);
        ino
    }

    pub(super) fn link(&mut self, dir: u64, name: Vec<u8>, ino: u64, now: Time) {
        self.entries_mut(dir).insert(name, ino);
        if let Body::Directory { parent, .. } = &mut self.inode_mut(ino).body {
            *parent = dir;
        }
        let inode = self.inode_mut(ino);
        inode.links += 1;
        inode.ctime = now;
        self.modified(dir, now);
    }

    pub(super) fn unlink(&mut self, dir: u64, name: &[u8], now: Time) {
        if let Some(ino) = self.entries_mut(dir).remove(name) {
            let inode = self.inode_mut(ino);
            inode.links -= 1;
            inode.ctime = now;
            self.modified(dir, now);
            self.forget(ino);
        }
    }

    /// Frees an inode that has neither a name nor a descriptor.
    pub(super) fn forget(&mut self, ino: u64) {
        let inode = self.inode(ino);
        if inode.links == 0 && inode.opens == 0 {
            self.inodes.remove(&ino);
        }
    }

    pub(super) fn kind(&self, ino: u64) -> FileKind {
        match self.inode(ino).body {
            Body::File(_) => FileKind::Regular,
            Body::Directory { .. } => FileKind::Directory,
            Body::Symlink(_) => FileKind::Symlink,
        }
    }

    pub(super) fn size(&self, ino: u64) -> u64 {
        match &self.inode(ino).body {
            Body::File(file) => file.bytes.len() as u64,
            Body::Directory { .. } => PAGE as u64,
            Body::Symlink(target) => target.len() as u64,
        }
    }
}

impl Page {
    const fn written(now: Time) -> Self {
        Self { cached: Some(now), reclaimed: None }
    }

    fn is_resident(self, now: Time) -> bool {
        self.cached.is_some_and(|at| at <= now)
    }
}

impl File {
    /// Change the contents; written pages are in the cache.
    pub(super) fn change(&mut self, now: Time, change: impl FnOnce(&mut Vec<u8>)) {
        let before = self.bytes.len();
        change(&mut self.bytes);
        self.pages.truncate(before / PAGE);
        self.pages.resize(self.bytes.len().div_ceil(PAGE), Page::written(now));
    }

    /// Replace the contents.
    pub(super) fn set(&mut self, now: Time, bytes: &[u8]) {
        self.bytes = bytes.to_vec();
        self.pages.clear();
        self.pages.resize(bytes.len().div_ceil(PAGE), Page::written(now));
    }

    /// The bytes of the range that the file has.
    pub(super) fn range(&self, offset: u64, len: usize) -> core::ops::Range<usize> {
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(self.bytes.len());
        start..start.saturating_add(len).min(self.bytes.len())
    }

    fn pages_of(&self, offset: u64, len: usize) -> core::ops::Range<usize> {
        let bytes = self.range(offset, len);
        if bytes.is_empty() { 0..0 } else { bytes.start / PAGE..bytes.end.div_ceil(PAGE) }
    }

    /// The number of bytes from `offset` on that are resident now.
    pub(super) fn resident(&self, offset: u64, len: usize, now: Time) -> usize {
        let bytes = self.range(offset, len);
        match self.pages_of(offset, len).find(|page| !self.pages[*page].is_resident(now)) {
            Some(page) => (page * PAGE).saturating_sub(bytes.start),
            None => bytes.len(),
        }
    }

    pub(super) fn has_any(&self, offset: u64, len: usize, now: Time) -> bool {
        self.pages_of(offset, len).any(|page| self.pages[page].is_resident(now))
    }

    /// The pages of the range that are not resident now.
    pub(super) fn missing(&self, offset: u64, len: usize, now: Time) -> Vec<MissingPage> {
        let missing = self.pages_of(offset, len).filter(|page| !self.pages[*page].is_resident(now));
        let describe = |number| MissingPage { number, reclaimed: self.pages[number].reclaimed };
        missing.map(describe).collect()
    }

    /// Pages of the range that are there or on their way.
    pub(super) fn cached(&self, offset: u64, len: usize) -> usize {
        self.pages_of(offset, len).filter(|page| self.pages[*page].cached.is_some()).count()
    }

    /// Pages of the range that are neither there nor on their way.
    pub(super) fn uncached(&self, offset: u64, len: usize) -> usize {
        self.pages_of(offset, len).len() - self.cached(offset, len)
    }

    /// Begin to read the missing pages, which come at `arrival`.
    pub(super) fn fetch(&mut self, offset: u64, len: usize, now: Time, arrival: Time) -> Fetch {
        let mut fetch = Fetch { ready: now, brought: Vec::new() };
        for page in self.pages_of(offset, len) {
            let at = *self.pages[page].cached.get_or_insert_with(|| {
                fetch.brought.push(page);
                arrival
            });
            fetch.ready = fetch.ready.max(at);
        }
        fetch
    }

    /// Begin to read `pages` pages after the range, as the kernel's readahead does.
    pub(super) fn fetch_ahead(&mut self, offset: u64, len: usize, pages: usize, arrival: Time) {
        let end = self.pages_of(offset, len).end;
        for page in end..end.saturating_add(pages).min(self.pages.len()) {
            self.pages[page].cached.get_or_insert(arrival);
        }
    }

    /// Begin to read `pages` more pages if at most that many are there or on their way from `offset` on. The
    /// kernel does so when a read comes to the last window of its readahead.
    pub(super) fn fetch_next(&mut self, offset: u64, pages: usize, arrival: Time) {
        let start = self.pages_of(offset, 1).start;
        let is_missing = |page: &Page| page.cached.is_none();
        let Some(left) = self.pages[start..].iter().position(is_missing) else { return };
        if left <= pages {
            self.fetch_ahead(offset, left * PAGE, pages, arrival);
        }
    }

    /// Brings the pages of the range that are being read, at the latest at `time`.
    pub(super) fn arrive(&mut self, offset: u64, len: usize, time: Time) {
        for page in self.pages_of(offset, len) {
            let cached = &mut self.pages[page].cached;
            *cached = cached.map(|at| at.min(time));
        }
    }

    pub(super) fn drop_page(&mut self, page: usize) {
        if let Some(page) = self.pages.get_mut(page) {
            *page = Page::default();
        }
    }

    /// Drop whole pages of the range (`len` 0: to the end) that are not being read; how many. The last
    /// page of a file counts as whole (`POSIX_FADV_DONTNEED`, mm/fadvise.c). `reclaimed`: the time, if
    /// it is the kernel that needs memory.
    pub(super) fn evict(
        &mut self,
        offset: u64,
        len: u64,
        now: Time,
        reclaimed: Option<Time>,
    ) -> u64 {
        let whole = |byte: u64| usize::try_from(byte / PAGE as u64).unwrap_or(usize::MAX);
        let start = whole(offset.saturating_add(PAGE as u64 - 1)).min(self.pages.len());
        let end = offset.saturating_add(len);
        let to_the_end = len == 0 || end >= self.bytes.len() as u64;
        let end = if to_the_end { usize::MAX } else { whole(end) };
        let end = end.min(self.pages.len()).max(start);
        let mut count = 0;
        for page in &mut self.pages[start..end] {
            if page.is_resident(now) {
                *page = Page { cached: None, reclaimed };
                count += 1;
            }
        }
        count
    }

    pub(super) const fn page_count(&self) -> usize {
        self.pages.len()
    }
}
