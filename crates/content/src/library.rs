//! The cache: the resources of all trees by tree and path, within one budget of bytes, entries and
//! descriptors.
//!
//! Resources are evicted by second chance: a clock hand goes around all resources, the oldest
//! first, and evicts resources that were not used since its last visit. Resources with open files
//! are also evicted after [`IDLE_MAX`] without a request. When a directory changes as a whole, its
//! resources are *outdated* at once and evicted bit by bit.
//!
//! This module makes no system call and reads no clock.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::rc::Rc;

use foldhash::fast::RandomState;
use ring::Time;

use super::open_files::OpenFiles;
use super::path::{Path, ancestors, below_from, parent, prefix};
use super::resource::Resource;
use crate::tree::TreeId;
use session::budget::CACHED_BYTES_MAX;

/// A resource with open files is evicted after this time without a request: an open file keeps its
/// file system busy, and the space of a deleted file in use.
pub(super) const IDLE_MAX: Duration = Duration::from_secs(30);
/// The maximum number of cached resources, per worker.
const RESOURCES_MAX: usize = 16 * 1024;
/// The maximum number of resources that are spared in one worker turn because they were used since
/// the hand's last visit.
const CHANCES_MAX: usize = 256;
/// The maximum number of idle resources that are evicted in one worker turn, which takes about 0.1
/// ms. The others are evicted in later turns.
const CLOSES_MAX: usize = 256;
/// The maximum number of resources that are examined in one worker turn to make room for one more
/// open file.
const ROOM_LOOKS_MAX: usize = 64;
/// The maximum number of directories with outdated resources, per tree; one more outdates the whole
/// tree.
const OUTDATED_MAX: usize = 16;
/// The maximum number of directories that are remembered because nothing in them is cached any
/// more.
const EMPTIED_MAX: usize = 4096;

/// The cached resources of a worker.
pub(super) struct Library {
    shelves: Vec<Shelf>,
    /// The trees with outdated resources.
    with_outdated: BTreeSet<TreeId>,
    /// All cached resources in the order of the clock hand, with the time of its last visit.
    /// Resources that were evicted for other reasons stay in the list until the hand comes to them.
    hand: VecDeque<(TreeId, Path, Time)>,
    count: usize,
    bytes: usize,
    /// Resources with open files, by the time at which they may have become idle. The number
    /// distinguishes resources with the same time.
    idle: BTreeMap<(Time, u64), (TreeId, Path)>,
    next_idle: u64,
    /// Directories whose last cached resource was evicted.
    emptied: BTreeSet<(TreeId, Path)>,
    pub(super) open_files: OpenFiles,
}

/// The cached resources of one tree.
#[derive(Debug, Default)]
struct Shelf {
    cached: HashMap<Path, Rc<Resource>, RandomState>,
    /// The paths of `cached` in order, so that those below a directory are neighbors.
    in_order: BTreeSet<Path>,
    outdated: Vec<Outdated>,
}

/// The resources below a directory that are outdated and not evicted yet.
#[derive(Debug)]
struct Outdated {
    prefix: Box<[u8]>,
    /// All outdated resources before this path have been evicted, so a resource cached before it is
    /// new. A new resource after it is evicted with the others. The position only moves forward,
    /// so the eviction ends even if resources are cached all the time.
    done: Box<[u8]>,
}

impl Library {
    /// Makes an empty cache for `trees` trees, whose files have at most `descriptors_max`
    /// descriptors.
    pub(super) fn new(trees: usize, descriptors_max: usize) -> Self {
        Self {
            shelves: (0..trees).map(|_| Shelf::default()).collect(),
            with_outdated: BTreeSet::new(),
            hand: VecDeque::new(),
            count: 0,
            bytes: 0,
            idle: BTreeMap::new(),
            next_idle: 0,
            emptied: BTreeSet::new(),
            open_files: OpenFiles::new(descriptors_max),
        }
    }

    /// Adds a tree.
    pub(super) fn add_tree(&mut self) {
        self.shelves.push(Shelf::default());
    }

    /// Returns true if nothing of a tree is cached, outdated resources included.
    pub(super) fn is_empty(&self, tree: TreeId) -> bool {
        let shelf = &self.shelves[tree.index()];
        shelf.cached.is_empty() && shelf.outdated.is_empty()
    }

    /// Returns the cached resource of a path, unless it is outdated.
    #[inline]
    pub(super) fn get(&self, tree: TreeId, path: &[u8]) -> Option<&Rc<Resource>> {
        let shelf = &self.shelves[tree.index()];
        shelf.cached.get(path).filter(|_| !shelf.is_outdated(path))
    }

    /// Caches a resource, and evicts others if the cache has become too large.
    pub(super) fn insert(&mut self, now: Time, resource: Rc<Resource>) {
        let (tree, path) = (resource.tree, Rc::clone(&resource.path));
        self.evict(tree, &path);
        self.count += 1;
        self.bytes += resource.memory;
        self.open_files.cache(&resource);
        self.hand.push_back((tree, Rc::clone(&path), now));
        if !self.emptied.is_empty() {
            for directory in ancestors(&path) {
                self.emptied.remove(&(tree, Path::from(directory)));
            }
        }
        if resource.descriptors > 0 {
            self.look_when_idle(&resource, now + IDLE_MAX);
        }
        let shelf = &mut self.shelves[tree.index()];
        shelf.in_order.insert(Rc::clone(&path));
        shelf.cached.insert(path, resource);
        self.evict_to_fit(now);
    }

    fn evict_to_fit(&mut self, now: Time) {
        let mut chances = CHANCES_MAX;
        let mut steps = 2 * self.hand.len();
        while (self.bytes as u64 > CACHED_BYTES_MAX
            || self.count > RESOURCES_MAX
            || self.hand.len() > 2 * RESOURCES_MAX)
            && steps > 0
        {
            steps -= 1;
            let Some((tree, path, seen)) = self.hand.pop_front() else { break };
            match self.shelves[tree.index()].cached.get(&path) {
                Some(resource) if resource.used.get() > seen && chances > 0 => {
                    chances -= 1;
                    self.hand.push_back((tree, path, now));
                }
                Some(_) => self.evict(tree, &path),
                // The resource was evicted before the hand came to it.
                None => {}
            }
        }
    }

    /// Evicts the resource of a path, if it is cached.
    pub(super) fn evict(&mut self, tree: TreeId, path: &[u8]) {
        let shelf = &mut self.shelves[tree.index()];
        // The set is asked first: a comparison ends at the first different byte, and a hash would
        // read the whole path.
        if shelf.in_order.remove(path)
            && let Some(resource) = shelf.cached.remove(path)
        {
            if let Some(at) = resource.idle_at.take() {
                self.idle.remove(&at);
            }
            self.count -= 1;
            self.bytes -= resource.memory;
            self.open_files.evict(&resource);
            let directory = parent(path);
            if !directory.is_empty()
                && self.emptied.len() < EMPTIED_MAX
                && self.below(tree, &prefix(directory)).next().is_none()
            {
                self.emptied.insert((tree, directory.into()));
            }
        }
    }

    /// Outdates all resources whose paths begin with `prefix`.
    pub(super) fn outdate(&mut self, tree: TreeId, prefix: &[u8]) {
        if self.below(tree, prefix).next().is_some() {
            self.shelves[tree.index()].outdate(prefix);
            self.with_outdated.insert(tree);
        }
    }

    /// Returns true if outdated resources wait to be evicted.
    pub(super) fn has_outdated(&self) -> bool {
        !self.with_outdated.is_empty()
    }

    /// Evicts at most `count` outdated resources.
    pub(super) fn evict_outdated(&mut self, mut count: usize) {
        while count > 0
            && let Some(tree) = self.with_outdated.first().copied()
        {
            let shelf = &mut self.shelves[tree.index()];
            let paths = shelf.take_outdated(count);
            if shelf.outdated.is_empty() {
                self.with_outdated.remove(&tree);
            }
            count -= paths.len();
            for path in paths {
                self.evict(tree, &path);
            }
        }
    }

    /// The paths of cached resources that begin with `prefix`, outdated ones included.
    pub(super) fn below<'a>(
        &'a self,
        tree: TreeId,
        prefix: &'a [u8],
    ) -> impl Iterator<Item = &'a Path> {
        below_from(&self.shelves[tree.index()].in_order, prefix, prefix)
    }

    /// Evicts the resources below a directory if there are at most `most`, all of them idle.
    /// Returns true if nothing is cached there now.
    pub(super) fn evict_idle_below(
        &mut self,
        now: Time,
        tree: TreeId,
        prefix: &[u8],
        most: usize,
    ) -> bool {
        let paths: Vec<Path> = self.below(tree, prefix).take(most + 1).cloned().collect();
        let cached = &self.shelves[tree.index()].cached;
        let is_idle = |path: &Path| {
            cached.get(path).is_none_or(|resource| now.since(resource.used.get()) >= IDLE_MAX)
        };
        let can_go = paths.len() <= most && paths.iter().all(is_idle);
        if can_go {
            for path in paths {
                self.evict(tree, &path);
            }
        }
        can_go
    }

    /// Takes a directory whose last cached resource was evicted.
    pub(super) fn take_emptied(&mut self) -> Option<(TreeId, Path)> {
        self.emptied.pop_first()
    }

    /// The time at which the next resource may have become idle.
    pub(super) fn next_idle_look(&self) -> Option<Time> {
        self.idle.first_key_value().map(|((at, _), _)| *at)
    }

    /// Evicts resources with open files that have not been used for [`IDLE_MAX`].
    pub(super) fn evict_idle(&mut self, now: Time) {
        for _ in 0..CLOSES_MAX {
            if self.next_idle_look().is_none_or(|at| at > now) {
                return;
            }
            let Some((_, resource)) = self.pop_idle() else { return };
            let until = resource.used.get() + IDLE_MAX;
            if until > now {
                self.look_when_idle(&resource, until);
            } else {
                self.evict_popped(resource);
            }
        }
    }

    /// Evicts resources that are not being sent, those idle for longest first, until `count` more
    /// files may be open. Returns true if they may.
    pub(super) fn make_room(&mut self, now: Time, count: usize) -> bool {
        if self.open_files.fits(count) {
            return true;
        }
        self.open_files.prune();
        for _ in 0..ROOM_LOOKS_MAX {
            if self.open_files.fits(count) {
                return true;
            }
            let Some((due, resource)) = self.pop_idle() else { return false };
            let again = resource.used.get() + IDLE_MAX;
            // One reference is held here, and one by the cache.
            let is_sent = Rc::strong_count(&resource) > 2 || resource.is_sent();
            if is_sent || again > due {
                let again = if is_sent { now + IDLE_MAX } else { again };
                self.look_when_idle(&resource, again);
            } else {
                self.evict_popped(resource);
            }
        }
        self.open_files.fits(count)
    }

    fn look_when_idle(&mut self, resource: &Resource, at: Time) {
        let at = (at, self.next_idle);
        self.next_idle += 1;
        resource.idle_at.set(Some(at));
        self.idle.insert(at, (resource.tree, Rc::clone(&resource.path)));
    }

    /// Takes the resource that may have become idle first, with that time.
    fn pop_idle(&mut self) -> Option<(Time, Rc<Resource>)> {
        let ((due, _), (tree, path)) = self.idle.pop_first()?;
        let cached = &self.shelves[tree.index()].cached;
        let resource = Rc::clone(cached.get(&path).expect("evicted together with its entry"));
        resource.idle_at.set(None);
        Some((due, resource))
    }

    fn evict_popped(&mut self, resource: Rc<Resource>) {
        let (tree, path) = (resource.tree, Rc::clone(&resource.path));
        // Drops this reference first: the files of a resource without references are closed, and no
        // longer count.
        drop(resource);
        self.evict(tree, &path);
    }
}

impl core::fmt::Debug for Library {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Library({} resources, {} bytes)", self.count, self.bytes)
    }
}

impl Shelf {
    fn is_outdated(&self, path: &[u8]) -> bool {
        self.outdated.iter().any(|other| path.starts_with(&other.prefix) && *path >= *other.done)
    }

    fn outdate(&mut self, prefix: &[u8]) {
        let covering = self.outdated.iter_mut().find(|other| prefix.starts_with(&other.prefix));
        if let Some(covering) = covering {
            if *covering.done > *prefix {
                covering.done = prefix.into();
            }
            return;
        }
        self.outdated.retain(|other| !other.prefix.starts_with(prefix));
        let mut prefix = prefix;
        if self.outdated.len() >= OUTDATED_MAX {
            self.outdated.clear();
            prefix = b"";
        }
        self.outdated.push(Outdated { prefix: prefix.into(), done: prefix.into() });
    }

    /// Takes the paths of at most `count` outdated resources, which the caller evicts. Fewer than
    /// `count` are the last ones of a directory.
    fn take_outdated(&mut self, count: usize) -> Vec<Path> {
        let Some(last) = self.outdated.last_mut() else { return Vec::new() };
        let below = below_from(&self.in_order, &last.prefix, &last.done);
        let paths: Vec<Path> = below.take(count).cloned().collect();
        match paths.last() {
            // The least path after the last one.
            Some(path) if paths.len() == count => last.done = [path, &b"\0"[..]].concat().into(),
            _ => drop(self.outdated.pop()),
        }
        paths
    }
}

#[cfg(test)]
mod tests {
    use super::super::resource::Kind;
    use super::*;

    fn tree() -> TreeId {
        TreeId::new(0)
    }

    fn at(seconds: u64) -> Time {
        Time::from_nanos(seconds * 1_000_000_000)
    }

    fn resource(
        tree: TreeId,
        path: &str,
        memory: usize,
        descriptors: usize,
        now: Time,
    ) -> Rc<Resource> {
        Rc::new(Resource {
            tree,
            path: path.as_bytes().into(),
            index: 0,
            kind: Kind::Redirect,
            validated: now.into(),
            watched: false.into(),
            settled: false,
            used: now.into(),
            idle_at: None.into(),
            memory,
            descriptors,
            _charge: sendfile::Account::default().charge(0),
        })
    }

    impl Library {
        fn has(&self, path: &str) -> bool {
            self.get(tree(), path.as_bytes()).is_some()
        }

        /// The invariants that all methods keep.
        fn check(&self) {
            let all = || self.shelves.iter().flat_map(|shelf| shelf.cached.values());
            assert_eq!(self.count, all().count());
            assert_eq!(self.bytes, all().map(|resource| resource.memory).sum::<usize>());
            let descriptors = all().map(|resource| resource.descriptors).sum::<usize>();
            assert_eq!(self.open_files.held(), descriptors);
            assert!(self.bytes as u64 <= CACHED_BYTES_MAX && self.count <= RESOURCES_MAX);
            for shelf in &self.shelves {
                let mut paths: Vec<_> = shelf.cached.keys().cloned().collect();
                paths.sort();
                assert!(shelf.in_order.iter().eq(&paths));
            }
            let idle = all().filter(|resource| resource.idle_at.get().is_some()).count();
            assert_eq!(self.idle.len(), idle);
            assert_eq!(idle, all().filter(|resource| resource.descriptors > 0).count());
            for (tree, directory) in &self.emptied {
                assert_eq!(self.below(*tree, &prefix(directory)).next(), None);
            }
        }
    }

    #[test]
    fn sites_have_paths_of_their_own_and_one_budget() {
        let [one, other] = [0, 1].map(TreeId::new);
        let mut library = Library::new(2, 8);
        let half = usize::try_from(CACHED_BYTES_MAX / 2).unwrap();
        library.insert(at(1), resource(one, "a", half, 0, at(1)));
        library.insert(at(2), resource(other, "a", half, 0, at(2)));
        assert!(library.get(one, b"a").is_some() && library.get(other, b"a").is_some());
        library.outdate(one, b"");
        assert!(library.get(one, b"a").is_none() && library.get(other, b"a").is_some());
        library.insert(at(3), resource(other, "b", 1, 0, at(3)));
        library.check();
        assert_eq!(library.count, 2, "the oldest of all trees has gone");
        assert!(library.get(other, b"a").is_some() && library.get(other, b"b").is_some());
    }

    #[test]
    fn a_resource_that_was_used_since_the_hands_last_visit_has_a_second_chance() {
        let mut library = Library::new(1, 8);
        let third = usize::try_from(CACHED_BYTES_MAX / 3).unwrap();
        for path in ["a", "b", "c"] {
            library.insert(at(1), resource(tree(), path, third, 0, at(1)));
        }
        library.get(tree(), b"a").unwrap().used.set(at(2));
        library.insert(at(3), resource(tree(), "d", third, 0, at(3)));
        assert_eq!(["a", "b", "c", "d"].map(|path| library.has(path)), [true, false, true, true]);
        library.insert(at(4), resource(tree(), "e", third, 0, at(4)));
        assert_eq!(["a", "c", "d", "e"].map(|path| library.has(path)), [true, false, true, true]);
        library.check();
    }

    #[test]
    fn outdated_resources_are_not_found_and_new_ones_in_their_place_stay() {
        let mut library = Library::new(1, 8);
        let paths: Vec<String> = (0..10).map(|number| format!("d/{number}")).collect();
        for path in paths.iter().map(String::as_str).chain(["d0", "c/x"]) {
            library.insert(at(1), resource(tree(), path, 1, 0, at(1)));
        }
        library.outdate(tree(), b"d/");
        assert!(paths.iter().all(|path| !library.has(path)));
        assert!(library.has("d0") && library.has("c/x"));
        library.evict_outdated(4);
        assert_eq!(library.count, 8);
        library.insert(at(2), resource(tree(), "d/1", 1, 0, at(2)));
        assert!(library.has("d/1"), "it is new");
        library.evict_outdated(100);
        assert!(!library.has_outdated());
        assert_eq!(library.count, 3);
        assert!(library.has("d/1"));
        library.check();
    }

    #[test]
    fn open_files_are_closed_when_idle_and_when_others_need_room() {
        let mut library = Library::new(1, 3);
        for (path, now) in [("a", 0), ("b", 1), ("c", 2)] {
            library.insert(at(now), resource(tree(), path, 1, 1, at(now)));
        }
        assert!(!library.open_files.fits(1));
        assert!(library.make_room(at(3), 1));
        assert_eq!(["a", "b", "c"].map(|path| library.has(path)), [false, true, true]);
        library.get(tree(), b"b").unwrap().used.set(at(10));
        library.evict_idle(at(2) + IDLE_MAX);
        assert_eq!(["a", "b", "c"].map(|path| library.has(path)), [false, true, false]);
        library.evict_idle(at(10) + IDLE_MAX);
        assert!(!library.has("b"));
        library.check();
    }

    #[test]
    fn a_directory_is_emptied_by_the_last_of_its_resources() {
        let mut library = Library::new(1, 8);
        for path in ["d/a", "d/e/b", "x", "f/c"] {
            library.insert(at(1), resource(tree(), path, 1, 0, at(1)));
        }
        for path in ["d/a", "x", "f/c"] {
            library.evict(tree(), path.as_bytes());
        }
        library.insert(at(2), resource(tree(), "f/new", 1, 0, at(2)));
        library.check();
        assert_eq!(library.take_emptied(), None);
        library.evict(tree(), b"d/e/b");
        let emptied = core::iter::from_fn(|| library.take_emptied()).map(|(_, path)| path);
        assert_eq!(emptied.collect::<Vec<_>>(), [Path::from(&b"d/e"[..])]);
    }

    #[test]
    fn whatever_comes_the_counts_are_true() {
        for seed in 0..200_u64 {
            let mut state = seed;
            let mut below = |bound: u64| {
                state =
                    state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
                (state >> 33) % bound
            };
            let mut library = Library::new(2, 20);
            for now in 0..300 {
                let tree = TreeId::new(usize::try_from(below(2)).unwrap());
                let names = ["a", "b", "c/a", "c/b", "c/d/a", "e/a"];
                let path = names[usize::try_from(below(6)).unwrap()];
                match below(8) {
                    0 => library.evict(tree, path.as_bytes()),
                    1 => library.outdate(tree, b"c/"),
                    2 => library.evict_outdated(2),
                    3 => library.evict_idle(at(now)),
                    4 => drop(library.make_room(at(now), 1)),
                    _ => {
                        let memory = usize::try_from(below(CACHED_BYTES_MAX / 4)).unwrap();
                        let descriptors = usize::try_from(below(3)).unwrap();
                        let new = resource(tree, path, memory, descriptors, at(now));
                        library.insert(at(now), new);
                        let is_found = library.get(tree, path.as_bytes()).is_some();
                        assert!(is_found || library.has_outdated(), "seed {seed}");
                    }
                }
                library.check();
            }
        }
    }
}
