//! The loads under way: their index by path, and the operations of the ring that they wait for.
//!
//! [`Load`] makes the decisions. The loader turns its requests into operations, and completions into replies.

use core::ffi::CStr;
use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};
use std::ffi::CString;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::rc::Rc;

use ring::{
    BufferPool, Caching, Completion, Device, Event, Fd, FileKind, Key, Op, OpenHow, Ring, Slab,
    Targets, Time,
};

use super::devices::Devices;
use super::entries::directories_first;
use super::in_memory::{BYTES_MAX_OF_MEMORY, InMemory};
use super::load::{Ask, Coverage, Load, Look, Next, PARTS, Reply, Tools, first_step};
use super::load_queue::LoadQueue;
use super::path::{Path, below, is_directory};
use super::resource::Resource;
use super::tree::Tree;
use crate::tree::TreeId;
use session::handler::Ticket;
use session::kind::{self, id_of};
use session::shell::Shell;

/// The maximum number of descriptors that one load has open: one for each part, and one being opened.
const DESCRIPTORS: usize = PARTS + 1;
/// The maximum number of small files that are read at the same time, per worker. A small file that gets no
/// buffer is sent like a large one.
const BUFFERS: usize = 64;
/// The maximum number of entries of a listing.
const ENTRIES_MAX: usize = 100_000;
/// Ended loads in the middle of `by_time` are removed only if there are more than this many.
const ENDED_MIN: usize = 1024;
/// In one worker turn, the kernel is asked directly for at most this many looks. Each takes some microseconds. The
/// requests of further looks go through the ring.
const AT_ONCE_MAX: usize = 64;
/// If a direct call takes at least this long, the kernel must have slept in it: a program had to permit an open
/// (fanotify), or an access control list was read from the disk. After such a call the worker makes no direct requests
/// for [`AT_ONCE_REST`].
const AT_ONCE_LONG: Duration = Duration::from_millis(5);
/// The pause after a direct call that took [`AT_ONCE_LONG`].
const AT_ONCE_REST: Duration = Duration::from_secs(60);
/// If a device has been silent for this time, the directories below it whose own device is not yet known count as parts
/// of it.
const SILENCE: Duration = Duration::from_secs(1);

/// The loads of a worker.
#[derive(Debug)]
pub(super) struct Loader {
    loads: Slab<Slot>,
    /// The loads that are not overdue, in the order in which they began, and among them some that have ended. The first
    /// one has not ended.
    by_time: VecDeque<(Time, Key)>,
    of_trees: Vec<OfTree>,
    pub(super) queue: LoadQueue,
    devices: Devices,
    /// True until a file could not be opened through `/proc/self/fd`.
    has_proc: bool,
    /// Each buffer has room for the largest file that may be in memory. The pages that no read uses take no memory.
    pool: BufferPool,
    in_memory: InMemory,
    /// The requests of the current step; empty between calls.
    asks: VecDeque<(usize, Ask<Fd>)>,
    at_once: AtOnce,
    /// The memory of the last name that was looked for before a load.
    name: Vec<u8>,
}

/// The loads of one tree.
#[derive(Debug, Default)]
struct OfTree {
    /// The loads that are not outdated, by path. Requests join them.
    by_path: BTreeMap<Path, Key>,
    /// The number of all loads of the tree.
    count: usize,
}

/// The requests that wait for a path.
#[derive(Debug)]
pub(super) enum Tickets<'a> {
    Open(&'a mut Vec<Ticket>),
    Overdue,
}

#[derive(Debug)]
struct Slot {
    load: Load<Fd>,
    /// The device whose slot the load has or waits for.
    device: Device,
    /// The device of the load's path, as far as it is known.
    found_on: Device,
    /// For each part, the key of its operation. `Some` while the operation is under way.
    in_flight: [Option<Key>; PARTS],
    /// For each part, true if no page of it was in the page cache before its read. Only then are its pages dropped
    /// after the read.
    brings: [bool; PARTS],
    /// True once the requests that waited for the load were answered because the disk does not answer.
    is_overdue: bool,
    asks_at_once: AsksAtOnce,
}

/// The requests of a load with which the worker asks the kernel directly, before it submits them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AsksAtOnce {
    Nothing,
    /// `openat2` calls with `O_PATH`: these never sleep. A name that does not exist needs nothing else.
    Names,
    /// All that the kernel may have in memory.
    All,
}

impl AsksAtOnce {
    fn has(self, ask: &Ask<Fd>) -> bool {
        match self {
            Self::Nothing => false,
            Self::Names => matches!(ask, Ask::Open { how, .. } if how.flags & O_PATH != 0),
            Self::All => true,
        }
    }
}

/// The looks of this worker turn for which the kernel is asked directly.
#[derive(Debug)]
struct AtOnce {
    /// The maximum of `count`.
    max: usize,
    turn: Time,
    count: usize,
    /// The end of the current pause.
    rests_until: Time,
}

impl AtOnce {
    const fn new(max: usize) -> Self {
        Self { max, turn: Time::from_nanos(0), count: 0, rests_until: Time::from_nanos(0) }
    }

    /// Counts one more look, unless there were too many. A look leaves two or more descriptors to be closed, so
    /// `unclosed` has a limit, too.
    fn take(&mut self, now: Time, unclosed: usize) -> bool {
        if self.turn != now {
            (self.turn, self.count) = (now, 0);
        }
        self.count += 1;
        self.count <= self.max && unclosed <= 2 * self.max && now >= self.rests_until
    }

    /// Makes a call to the kernel, and checks the time that it took.
    fn call<T>(&mut self, ring: &Ring, call: impl FnOnce() -> T) -> T {
        let began = ring.now();
        let result = call();
        self.took(began, ring.now());
        result
    }

    fn took(&mut self, began: Time, ended: Time) {
        if ended.since(began) >= AT_ONCE_LONG {
            self.rests_until = ended + AT_ONCE_REST;
        }
    }
}

impl Slot {
    /// Records the device of the file itself. A sibling may be found through a link, and be on another device.
    fn learn(&mut self, devices: &mut Devices, part: usize, reply: &Reply<Fd>) {
        if let (0, Reply::Stat(stat)) = (part, reply)
            && stat.kind == FileKind::Regular
        {
            self.found_on = stat.device;
            if self.load.is_linked() {
                devices.learn_linked(self.load.tree, &self.load.path, self.found_on);
            } else {
                devices.learn(self.load.tree, &self.load.path, self.found_on);
            }
        }
    }
}

impl Loader {
    /// Makes a loader for `trees` trees. `descriptors_max` is the number of descriptors for files
    /// that stay open; loads use up to half as many in addition. `in_memory` says which files are read.
    ///
    /// # Errors
    ///
    /// Those of `mmap(2)`.
    pub(super) fn new(
        trees: usize,
        descriptors_max: usize,
        in_memory: InMemory,
    ) -> io::Result<Self> {
        let size = usize::try_from(BYTES_MAX_OF_MEMORY).unwrap_or(usize::MAX);
        let slots = (descriptors_max / 2 / DESCRIPTORS).max(1);
        Ok(Self {
            loads: Slab::new(),
            by_time: VecDeque::new(),
            of_trees: (0..trees).map(|_| OfTree::default()).collect(),
            queue: LoadQueue::new(slots),
            devices: Devices::new(trees),
            has_proc: true,
            pool: BufferPool::new(size, BUFFERS)?,
            in_memory,
            asks: VecDeque::new(),
            // Descriptors of these looks are closed later, when their slots belong to other loads.
            at_once: AtOnce::new(AT_ONCE_MAX.min(slots / 4)),
            name: Vec::new(),
        })
    }

    /// The files that are kept in memory.
    pub(super) const fn in_memory(&self) -> InMemory {
        self.in_memory
    }

    /// Changes which files are read into memory from now on.
    pub(super) const fn set_in_memory(&mut self, in_memory: InMemory) {
        self.in_memory = in_memory;
    }

    /// Takes one more tree.
    pub(super) fn add_tree(&mut self) {
        self.of_trees.push(OfTree::default());
        self.devices.add_tree();
    }

    /// Returns true if any load of a tree is under way, also an outdated one.
    pub(super) fn is_busy(&self, tree: TreeId) -> bool {
        self.of_trees[tree.index()].count > 0
    }

    pub(super) fn is_loading(&self, tree: TreeId, path: &[u8]) -> bool {
        self.of_trees[tree.index()].by_path.contains_key(path)
    }

    /// Returns true if any load of a path that begins with `prefix` is under way and not outdated.
    pub(super) fn is_loading_below(&self, tree: TreeId, prefix: &[u8]) -> bool {
        below(&self.of_trees[tree.index()].by_path, prefix).next().is_some()
    }

    /// The requests that wait for a path, if it is being loaded. No request may join an overdue load.
    pub(super) fn tickets(&mut self, tree: TreeId, path: &[u8]) -> Option<Tickets<'_>> {
        let key = *self.of_trees[tree.index()].by_path.get(path)?;
        let slot = self.loads.get_mut(key).expect("kept until it ends");
        Some(if slot.is_overdue { Tickets::Overdue } else { Tickets::Open(&mut slot.load.tickets) })
    }

    /// The time at which the next load is overdue.
    pub(super) fn next_deadline(&self, patience: Duration) -> Option<Time> {
        self.by_time.front().map(|(begun, _)| *begun + patience)
    }

    /// The next load that has taken longer than `patience`. Each load is returned once.
    pub(super) fn next_overdue(&mut self, now: Time, patience: Duration) -> Option<Key> {
        let (begun, key) = *self.by_time.front()?;
        if now.since(begun) < patience {
            return None;
        }
        self.by_time.pop_front();
        self.skip_ended();
        self.loads.get_mut(key).expect("kept until it ends").is_overdue = true;
        Some(key)
    }

    /// Looks for a path as the first step of its load would, if that would look for one name, and the kernel has the answer
    /// in memory. Scanners ask for many names that nothing has, and these need no load.
    pub(super) fn glance(
        &mut self,
        shell: &Shell,
        tree: &Tree,
        path: &[u8],
    ) -> Option<io::Result<Fd>> {
        if is_directory(path)
            || tree.rules.clean_urls
            || !self.at_once.take(shell.cx.now, shell.ring.unclosed())
        {
            return None;
        }
        self.name.clear();
        self.name.extend_from_slice(path);
        self.name.push(0);
        let name = CStr::from_bytes_with_nul(&self.name).expect("no path has a NUL");
        let ring = &shell.ring;
        self.at_once.call(ring, || ring.open_cached(tree.root(), name, first_step()))
    }

    /// Adds a load, which does not begin yet. `found` is the file, if a [`glance`](Self::glance) has found it.
    pub(super) fn insert(
        &mut self,
        tree: TreeId,
        path: &[u8],
        device: Device,
        previous: Option<Rc<Resource>>,
        ticket: Option<Ticket>,
        found: Option<Fd>,
        begun: Time,
    ) -> Key {
        let path = Path::from(path);
        let load = Load::new(tree, Rc::clone(&path), previous, ticket, found);
        self.queue.charge(load.bytes());
        let key = self.loads.insert(Slot {
            load,
            device,
            found_on: device,
            in_flight: [None; PARTS],
            brings: [false; PARTS],
            is_overdue: false,
            asks_at_once: AsksAtOnce::Nothing,
        });
        let of_tree = &mut self.of_trees[tree.index()];
        of_tree.by_path.insert(path, key);
        of_tree.count += 1;
        debug_assert!(self.by_time.back().is_none_or(|(last, _)| *last <= begun), "time goes on");
        self.by_time.push_back((begun, key));
        key
    }

    /// The device of a path, as far as it is known.
    pub(super) fn device(
        &self,
        shell: &Shell,
        trees: &[Tree],
        tree: TreeId,
        path: &[u8],
    ) -> Device {
        let is_silent = |device| shell.ring.silence(device) >= SILENCE;
        self.devices.of(tree, trees[tree.index()].root().device(), path, is_silent)
    }

    /// The device whose slot a load has or waits for.
    pub(super) fn device_of(&self, key: Key) -> Device {
        self.loads.get(key).expect("kept until it ends").device
    }

    /// The device of a load's path, as far as it is known.
    pub(super) fn found_on(&self, key: Key) -> Device {
        self.loads.get(key).expect("kept until it ends").found_on
    }

    /// Drops the devices of a tree, whose root directory was replaced.
    pub(super) fn forget_devices(&mut self, tree: TreeId) {
        self.devices.forget(tree);
    }

    pub(super) fn load(&self, key: Key) -> &Load<Fd> {
        &self.loads.get(key).expect("kept until it ends").load
    }

    pub(super) fn load_mut(&mut self, key: Key) -> &mut Load<Fd> {
        &mut self.loads.get_mut(key).expect("kept until it ends").load
    }

    /// Looks at the path of a load, for the first time or again; returns the need of the load. `mount` is the mount of
    /// its directory, if the directory is watched.
    pub(super) fn look(
        &mut self,
        shell: &mut Shell,
        trees: &[Tree],
        key: Key,
        mount: Option<u64>,
        may_have_siblings: bool,
    ) -> Next<Fd> {
        let way = if mount.is_some() { Coverage::Watched } else { Coverage::Unwatched };
        let slot = self.loads.get_mut(key).expect("kept until it ends");
        // A look that has found its file before was counted then.
        let may_ask =
            slot.load.has_found() || self.at_once.take(shell.cx.now, shell.ring.unclosed());
        slot.asks_at_once = match mount {
            _ if !may_ask => AsksAtOnce::Nothing,
            Some(_) => AsksAtOnce::All,
            None => AsksAtOnce::Names,
        };
        let root = trees[slot.load.tree.index()].root().clone();
        let (began, unix) = (shell.cx.now, shell.cx.unix);
        let look = Look { began, unix, root, way, mount, may_have_siblings };
        self.step(shell, trees, key, |load, tools| load.look(look, tools))
    }

    /// Continues a load. At most `files` of its files may stay open.
    pub(super) fn admit(
        &mut self,
        shell: &mut Shell,
        trees: &[Tree],
        key: Key,
        files: usize,
    ) -> Next<Fd> {
        self.step(shell, trees, key, |load, tools| load.admit(files, tools))
    }

    /// Handles a completion; returns the load to which it belongs, and the need of that load.
    pub(super) fn handle(
        &mut self,
        shell: &mut Shell,
        trees: &[Tree],
        completion: Completion,
    ) -> (Key, Next<Fd>) {
        let key = Key::from_bits(id_of(completion.token));
        let slot = self.loads.get_mut(key).expect("kept until its last completion");
        let is_it = |operation: &Option<Key>| *operation == Some(completion.key);
        let part = slot.in_flight.iter().position(is_it).expect("completed once");
        slot.in_flight[part] = None;
        let reply = match completion.result {
            Ok(Event::Opened(file)) => Reply::Opened(file),
            Ok(Event::Stat(stat)) => Reply::Stat(*stat),
            Ok(Event::Listed(entries)) => Reply::Listed(entries),
            Ok(Event::Read(buffer)) => Reply::Read(buffer),
            Ok(Event::Discarded) => Reply::Dropped,
            Ok(event) => unreachable!("no load asks for {event:?}"),
            Err(error) => Reply::Failed(error),
        };
        slot.learn(&mut self.devices, part, &reply);
        (key, self.step(shell, trees, key, |load, tools| load.handle(part, reply, tools)))
    }

    /// Makes a step of a load, and further steps while the kernel answers its direct requests. Submits the other
    /// requests.
    fn step(
        &mut self,
        shell: &mut Shell,
        trees: &[Tree],
        key: Key,
        step: impl FnOnce(&mut Load<Fd>, &mut Tools<'_, Fd>) -> Next<Fd>,
    ) -> Next<Fd> {
        let slot = self.loads.get_mut(key).expect("kept until it ends");
        let tree = &trees[slot.load.tree.index()];
        let mut tools = Tools {
            rules: &tree.rules,
            has_proc: &mut self.has_proc,
            pool: &self.pool,
            in_memory: self.in_memory,
            asks: &mut self.asks,
        };
        let mut next = step(&mut slot.load, &mut tools);
        while let Some((part, ask)) = tools.asks.pop_front() {
            debug_assert!(slot.in_flight[part].is_none(), "a part has one operation at a time");
            let is_asked = slot.asks_at_once.has(&ask);
            let asked =
                if is_asked { at_once(&mut self.at_once, shell, tree, ask) } else { Err(ask) };
            let ask = match asked {
                Ok(reply) => {
                    slot.learn(&mut self.devices, part, &reply);
                    next = slot.load.handle(part, reply, &mut tools);
                    continue;
                }
                Err(ask) => ask,
            };
            match &ask {
                // For this call the file system may ask a server, as it may in an open for reading.
                Ask::Stat(_) => slot.asks_at_once = AsksAtOnce::Nothing,
                Ask::Read(file, buffer, Caching::Keep) if !tree.keeps() => {
                    let pages = shell.ring.cached_pages(file, 0, buffer.want() as u64);
                    slot.brings[part] = pages.is_ok_and(|pages| pages == 0);
                }
                Ask::Drop(_) if !slot.brings[part] => {
                    next = slot.load.handle(part, Reply::Dropped, &mut tools);
                    continue;
                }
                _ => {}
            }
            let device = match &ask {
                Ask::Open { .. } => slot.found_on,
                // The target of the link may be on another device than the link.
                Ask::Follow { .. } => self.devices.behind(slot.load.tree, &slot.load.path),
                Ask::OpenForReading(file)
                | Ask::Stat(file)
                | Ask::List { dir: file, .. }
                | Ask::Read(file, ..)
                | Ask::Drop(file) => file.device(),
            };
            let operation = operation(ask, tree);
            let token = kind::LOAD | key.to_bits();
            slot.in_flight[part] = Some(shell.ring.submit_to(device, operation, token));
        }
        next
    }

    /// Removes a load that has ended.
    pub(super) fn remove(&mut self, key: Key) -> Load<Fd> {
        let Slot { load, in_flight, .. } = self.loads.remove(key).expect("ends once");
        self.skip_ended();
        debug_assert!(in_flight.iter().all(Option::is_none), "it ends after its last completion");
        let of_tree = &mut self.of_trees[load.tree.index()];
        of_tree.count -= 1;
        if !load.is_outdated {
            of_tree.by_path.remove(&load.path);
        }
        self.queue.refund(load.bytes());
        load
    }

    /// Removes ended loads from the front of `by_time`, and all of them once they are the majority.
    fn skip_ended(&mut self) {
        let Self { by_time, loads, .. } = self;
        let is_live = |key: Key| loads.get(key).is_some();
        while by_time.front().is_some_and(|(_, key)| !is_live(*key)) {
            by_time.pop_front();
        }
        if by_time.len() > 2 * loads.len() + ENDED_MIN {
            by_time.retain(|(_, key)| is_live(*key));
        }
    }

    /// Outdates the load of a path, if there is one. It still answers the requests that have joined it, and no others
    /// can join.
    pub(super) fn outdate(&mut self, tree: TreeId, path: &[u8]) {
        if let Some(key) = self.of_trees[tree.index()].by_path.remove(path) {
            self.load_mut(key).is_outdated = true;
        }
    }

    /// Outdates the loads of all paths that begin with `prefix`.
    pub(super) fn outdate_below(&mut self, tree: TreeId, prefix: &[u8]) {
        let loads = below(&self.of_trees[tree.index()].by_path, prefix);
        let paths: Vec<Path> = loads.map(|(path, _)| Rc::clone(path)).collect();
        for path in paths {
            self.outdate(tree, &path);
        }
    }
}

/// The reply to a request, if the kernel has it in memory. A file is opened for reading only after
/// its attributes were in memory, and if it is on the device of the root, because other file systems may ask servers.
/// Directories to be listed go through the ring, too: their first block may be read when they are opened.
fn at_once(
    calls: &mut AtOnce,
    shell: &Shell,
    tree: &Tree,
    ask: Ask<Fd>,
) -> Result<Reply<Fd>, Ask<Fd>> {
    let ring = &shell.ring;
    match ask {
        Ask::Open { dir, name, how } if how.flags & O_DIRECTORY == 0 => {
            let path = CString::new(name).expect("no path has a NUL");
            match calls.call(ring, || ring.open_cached(&dir, &path, how)) {
                Some(Ok(file)) => Ok(Reply::Opened(file)),
                Some(Err(error)) => Ok(Reply::Failed(error)),
                None => Err(Ask::Open { dir, name: path.into_bytes(), how }),
            }
        }
        Ask::Stat(file) => match calls.call(ring, || ring.stat_cached(&file)) {
            Some(stat) if stat.device == tree.root().device() => Ok(Reply::Stat(stat)),
            _ => Err(Ask::Stat(file)),
        },
        Ask::Read(file, mut buffer, caching) => {
            if calls.call(ring, || ring.read_cached(&file, &mut buffer)) {
                Ok(Reply::Read(buffer))
            } else {
                Err(Ask::Read(file, buffer, caching))
            }
        }
        ask @ (Ask::Open { .. }
        | Ask::Follow { .. }
        | Ask::OpenForReading(_)
        | Ask::List { .. }
        | Ask::Drop(_)) => Err(ask),
    }
}

fn operation(ask: Ask<Fd>, tree: &Tree) -> Op {
    let c_string = |name| CString::new(name).expect("no path has a NUL");
    let symlinks = || tree.rules.symlinks.scope();
    match ask {
        Ask::Open { dir, name, how } => Op::Open { dir: Some(dir), path: c_string(name), how },
        Ask::OpenForReading(file) => {
            let path = c_string(format!("/proc/self/fd/{}", file.raw()).into_bytes());
            Op::Open { dir: None, path, how: READ }
        }
        Ask::Stat(file) => Op::Stat(file),
        Ask::Follow { root, name, how } => {
            Op::Follow { root, path: c_string(name), how, symlinks: symlinks() }
        }
        Ask::List { dir, root, name } => {
            let (path, names) = (c_string(name), tree.sources.is_some());
            let targets = Some(Targets { root, path, symlinks: symlinks(), names });
            Op::List { dir, entries_max: ENTRIES_MAX, order: directories_first, targets }
        }
        Ask::Read(file, buf, caching) => Op::Read { file, offset: 0, buf, caching },
        Ask::Drop(file) => Op::Discard { file, offset: 0, len: 0 },
    }
}

/// The path of an open file, as the kernel knows it, without a call to a disk.
pub(super) fn path_of(file: &Fd) -> io::Result<PathBuf> {
    fs::read_link(format!("/proc/self/fd/{}", file.raw()))
}

/// Opens a file for reading through `/proc/self/fd`, whose links are magic links.
const READ: OpenHow = OpenHow { flags: O_NOCTTY, mode: 0, resolve: 0 };

#[allow(clippy::cast_possible_wrap, reason = "a single bit far below the sign")]
const O_NOCTTY: i32 = rustix::fs::OFlags::NOCTTY.bits() as i32;
#[allow(clippy::cast_possible_wrap, reason = "a single bit far below the sign")]
const O_PATH: i32 = rustix::fs::OFlags::PATH.bits() as i32;
#[allow(clippy::cast_possible_wrap, reason = "a single bit far below the sign")]
const O_DIRECTORY: i32 = rustix::fs::OFlags::DIRECTORY.bits() as i32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_looks_of_a_turn_are_answered_at_once_unless_the_kernel_has_waited() {
        let at = |ms: u64| Time::from_nanos(ms * 1_000_000);
        let mut at_once = AtOnce::new(2);
        assert_eq!([at(1), at(1), at(1)].map(|now| at_once.take(now, 0)), [true, true, false]);
        assert!(at_once.take(at(2), 4), "another turn");
        assert!(!at_once.take(at(3), 5), "first others are closed");
        at_once.took(at(2), at(6));
        assert!(at_once.take(at(7), 0), "that was not long");
        at_once.took(at(7), at(12));
        assert!(!at_once.take(at(13), 0));
        let rest = u64::try_from(AT_ONCE_REST.as_millis()).unwrap();
        assert!(!at_once.take(at(12 + rest - 1), 0) && at_once.take(at(12 + rest), 0));
    }
}
