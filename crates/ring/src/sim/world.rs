//! The simulated world: its clock, its agenda, and the actions of tests and rings on it.

use core::cell::{RefCell, RefMut};
use core::cmp::Reverse;
use core::fmt;
use core::sync::atomic::Ordering;
use core::time::Duration;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::io;
use std::rc::Rc;

use crate::op::Stat;
use crate::timers::Time;

use super::disk::{Disk, OpenFile, ROOT, Watch};
use super::net::{Connection, FarListener, Listener, Output, Segment, Stall};
use super::process::Process;
use super::random::Random;
use super::{Config, Flag, Latency, Waiter, errno};

/// Descriptors 0 to 2 are taken, as in any process.
const FIRST_DESCRIPTOR: usize = 3;
/// A handle on a simulated world; clones mean the same one.
#[derive(Clone)]
pub struct World(Rc<RefCell<WorldState>>);

/// The bytes in a pipe, shared by its ends.
pub(super) type PipeBytes = Rc<RefCell<VecDeque<u8>>>;

/// Counts of events that are worth testing: a test that is about one of them asserts that it happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Splices from a file into a pipe that brought something.
    pub splices: u64,
    /// Pipes filled from a socket, or a part of them.
    pub fills: u64,
    /// Pipes emptied into a socket, or a part of them.
    pub drains: u64,
    /// `sendfile`s that sent something.
    pub sendfiles: u64,
    /// Sends of any kind that took fewer bytes than they were given.
    pub partial_sends: u64,
    /// Pages that a test or a program dropped from the page cache.
    pub evictions: u64,
    /// Pages that the kernel reclaimed.
    pub reclaims: u64,
    /// Reads and splices that failed.
    pub failures: u64,
    /// Operations that waited for a device that hung.
    pub hangs: u64,
}

impl core::ops::AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.splices += other.splices;
        self.fills += other.fills;
        self.drains += other.drains;
        self.sendfiles += other.sendfiles;
        self.partial_sends += other.partial_sends;
        self.evictions += other.evictions;
        self.reclaims += other.reclaims;
        self.failures += other.failures;
        self.hangs += other.hangs;
    }
}

pub(super) struct WorldState {
    pub(super) config: Config,
    pub(super) random: Random,
    pub(super) now: Time,
    pub(super) disk: Disk,
    pub(super) listeners: Vec<Listener>,
    /// The listeners of peers, by number; `None` is closed.
    pub(super) far_listeners: Vec<Option<FarListener>>,
    pub(super) conns: Vec<Connection>,
    /// By number.
    pub(super) descriptors: Vec<Option<Descriptor>>,
    agenda: BinaryHeap<Reverse<(Time, u64, Happening)>>,
    /// By ring: operations to look at.
    pub(super) due: Vec<Vec<Due>>,
    /// By ring: what wakes it.
    pub(super) woken: Vec<Flag>,
    pub(super) watches: BTreeMap<Waiter, Watch>,
    pub(super) process: Process,
    pub(super) stalls: Vec<Stall>,
    pub(super) counts: Counts,
    /// Operations that a device which hangs keeps.
    pub(super) parked: Vec<(u64, Waiter)>,
}

/// The object behind a number.
#[derive(Clone, Debug)]
pub(super) enum Descriptor {
    Listener(usize),
    Socket(usize),
    File(OpenFile),
    /// Either end of a pipe: the bytes in it.
    Pipe(PipeBytes),
}

/// The action that is due for an operation of a ring.
#[derive(Clone, Copy, Debug)]
pub(super) enum Due {
    /// See whether it can go on.
    Look(u64),
    /// End, because it was cancelled.
    End(u64),
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Happening {
    Look(Waiter),
    End(Waiter),
    /// A connection comes to this listener, or to any listener.
    Connect(usize, Option<usize>),
    Arrive(usize, Segment),
    PeerReads(usize),
    /// A packet has been held back for long enough.
    Flush(usize),
    /// A thread beside this ring has done a job.
    Wake(usize),
}

impl World {
    /// Makes a world with an empty root directory and no peers.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let random = Random::new(config.seed);
        Self(Rc::new(RefCell::new(WorldState {
            config,
            random,
            // Not 0, so that "a second ago" is a time.
            now: Time::from_nanos(1_000_000_000_000),
            disk: Disk::new(),
            listeners: Vec::new(),
            far_listeners: Vec::new(),
            conns: Vec::new(),
            descriptors: vec![None; FIRST_DESCRIPTOR],
            agenda: BinaryHeap::new(),
            due: Vec::new(),
            woken: Vec::new(),
            watches: BTreeMap::new(),
            process: Process::default(),
            stalls: Vec::new(),
            counts: Counts::default(),
            parked: Vec::new(),
        })))
    }

    pub(super) fn state(&self) -> RefMut<'_, WorldState> {
        self.0.borrow_mut()
    }

    /// The seed it was made with.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.state().config.seed
    }

    /// The virtual clock.
    #[must_use]
    pub fn now(&self) -> Time {
        self.state().now
    }

    /// Lets so much time go by while the program computes.
    pub fn compute(&self, time: Duration) {
        let mut state = self.state();
        state.now = state.now + time;
    }

    /// Change the configuration of the world from now on.
    pub fn configure(&self, change: impl FnOnce(&mut Config)) {
        change(&mut self.state().config);
    }

    /// Every `sendfile` so far that would have slept on the disk.
    #[must_use]
    pub fn stalls(&self) -> Vec<Stall> {
        self.state().stalls.clone()
    }

    /// The counts of events so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.state().counts
    }

    /// Descriptors that the rings' process has open.
    #[must_use]
    pub fn open_descriptors(&self) -> usize {
        self.state().descriptors.iter().flatten().count()
    }

    /// The number of open descriptors that are ends of pipes.
    #[must_use]
    pub fn open_pipes(&self) -> usize {
        self.state().pipes().count()
    }

    /// Directories that are watched, each as often as it is watched.
    #[must_use]
    pub fn watches(&self) -> usize {
        self.state().watches.len()
    }

    /// The bytes in all pipes.
    #[must_use]
    pub fn pipe_bytes(&self) -> usize {
        self.state().pipes().map(|bytes| bytes.borrow().len()).sum::<usize>() / 2
    }

    /// When a job beside the ring is done, after which the ring is woken: it reads a file, or nothing.
    pub(crate) fn wake_later(&self, ring: usize) -> Time {
        let mut state = self.state();
        let at = state.now + state.latency(|config| &config.disk);
        state.plan(at, Happening::Wake(ring));
        at
    }

    /// The file as it is now.
    pub(crate) fn contents(&self, file: i32) -> io::Result<(Vec<u8>, Stat)> {
        let mut state = self.state();
        let stat = state.stat(file)?;
        let bytes = state.disk.file(stat.ino).map_err(errno)?.bytes.clone();
        Ok((bytes, stat))
    }

    pub(crate) fn open_listener(&self) -> i32 {
        let mut state = self.state();
        let listener = state.listeners.len();
        state.listeners.push(Listener::default());
        state.open(Descriptor::Listener(listener)).expect("a free descriptor")
    }

    pub(crate) fn open_root(&self) -> i32 {
        let access = libc::O_RDONLY;
        let root = OpenFile { ino: ROOT, dir: ROOT, name: b".".to_vec(), access, readahead: true };
        self.state().open(Descriptor::File(root)).expect("a free descriptor")
    }

    pub(crate) fn root_device(&self) -> u64 {
        self.state().disk.inode(ROOT).dev
    }

    pub(crate) fn unix_clock(&self) -> (i64, u32) {
        let state = self.state();
        state.unix(state.now)
    }
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not through `state`: a panic may print this while it is borrowed.
        match self.0.try_borrow() {
            Ok(state) => write!(f, "World(seed {}, {:?})", state.config.seed, state.now),
            Err(_) => f.write_str("World"),
        }
    }
}

impl WorldState {
    pub(super) fn latency(&mut self, of: impl FnOnce(&Config) -> &Latency) -> Duration {
        self.random.latency(of(&self.config))
    }

    pub(super) fn after_network(&mut self) -> Time {
        self.now + self.latency(|config| &config.network)
    }

    /// The wall clock at some time: seconds since 1970 and nanoseconds.
    pub(super) fn unix(&self, at: Time) -> (i64, u32) {
        let seconds = i64::try_from(at.as_nanos() / 1_000_000_000).expect("below 2^35");
        let nanos = u32::try_from(at.as_nanos() % 1_000_000_000).expect("below 10^9");
        (self.config.unix_time + seconds, nanos)
    }

    // The agenda

    pub(super) fn plan(&mut self, at: Time, what: Happening) {
        let tie = self.random.bits();
        self.agenda.push(Reverse((at, tie, what)));
    }

    /// Look at an operation some time later.
    pub(super) fn look_at(&mut self, at: Time, who: Waiter) {
        self.plan(at, Happening::Look(who));
    }

    /// Look at an operation after an event of the network.
    pub(super) fn look_soon(&mut self, who: Option<Waiter>) {
        if let Some(who) = who {
            let at = self.after_network();
            self.plan(at, Happening::Look(who));
        }
    }

    pub(super) fn end_at(&mut self, at: Time, who: Waiter) {
        self.plan(at, Happening::End(who));
    }

    pub(super) fn next_time(&self) -> Option<Time> {
        self.agenda.peek().map(|Reverse((at, ..))| *at)
    }

    /// Carry out the events that are due.
    pub(super) fn happen(&mut self) {
        while self.next_time().is_some_and(|at| at <= self.now) {
            let Some(Reverse((_, _, what))) = self.agenda.pop() else { return };
            match what {
                Happening::Look(who) => self.due[who.ring].push(Due::Look(who.key)),
                Happening::End(who) => self.due[who.ring].push(Due::End(who.key)),
                Happening::Connect(conn, listener) => self.connected(conn, listener),
                Happening::Arrive(conn, segment) => self.arrived(conn, segment),
                Happening::PeerReads(conn) => self.peer_step(conn),
                Happening::Flush(conn) => self.peer_reads(conn),
                // Release pairs with the acquire in `Sim::take_woken`.
                Happening::Wake(ring) => self.woken[ring].store(true, Ordering::Release),
            }
        }
    }

    // Descriptors

    /// The lowest free number, as in any process: numbers are used again at once.
    pub(super) fn open(&mut self, what: Descriptor) -> io::Result<i32> {
        if let Descriptor::File(open) = &what {
            self.disk.inode_mut(open.ino).opens += 1;
        }
        let free =
            (FIRST_DESCRIPTOR..self.descriptors.len()).find(|at| self.descriptors[*at].is_none());
        let at = free.unwrap_or(self.descriptors.len());
        if at >= self.config.descriptors {
            if let Descriptor::File(open) = what {
                self.close_file(open.ino);
            }
            return Err(errno(libc::EMFILE));
        }
        if at == self.descriptors.len() {
            self.descriptors.push(None);
        }
        self.descriptors[at] = Some(what);
        Ok(i32::try_from(at).expect("descriptors are few"))
    }

    fn descriptor(&mut self, fd: i32) -> &mut Descriptor {
        let at = usize::try_from(fd).expect("a descriptor of this world");
        self.descriptors[at].as_mut().expect("an `Fd` keeps it open")
    }

    pub(super) fn conn(&mut self, fd: i32) -> io::Result<usize> {
        match self.descriptor(fd) {
            Descriptor::Socket(conn) => Ok(*conn),
            _ => Err(errno(libc::ENOTSOCK)),
        }
    }

    pub(super) fn listener(&mut self, fd: i32) -> io::Result<usize> {
        match self.descriptor(fd) {
            Descriptor::Listener(listener) => Ok(*listener),
            Descriptor::Socket(_) => Err(errno(libc::EINVAL)),
            Descriptor::File(_) | Descriptor::Pipe(_) => Err(errno(libc::ENOTSOCK)),
        }
    }

    /// The pipes, each once for either end.
    fn pipes(&self) -> impl Iterator<Item = &PipeBytes> {
        self.descriptors.iter().flatten().filter_map(|one| match one {
            Descriptor::Pipe(bytes) => Some(bytes),
            _ => None,
        })
    }

    pub(super) fn pipe(&mut self, fd: i32) -> io::Result<PipeBytes> {
        match self.descriptor(fd) {
            Descriptor::Pipe(bytes) => Ok(Rc::clone(bytes)),
            _ => Err(errno(libc::EINVAL)),
        }
    }

    pub(super) fn opened(&mut self, fd: i32) -> io::Result<&mut OpenFile> {
        match self.descriptor(fd) {
            Descriptor::File(open) => Ok(open),
            _ => Err(errno(libc::EINVAL)),
        }
    }

    pub(super) fn close(&mut self, fd: i32) {
        let at = usize::try_from(fd).expect("a descriptor of this world");
        match self.descriptors[at].take().expect("closed once") {
            Descriptor::File(open) => self.close_file(open.ino),
            Descriptor::Pipe(_) => {}
            Descriptor::Socket(conn) => {
                let unread = !self.conns[conn].inbox.is_empty();
                // A connection that was reset before stays so.
                if unread {
                    self.conns[conn].output = Output::Reset;
                } else if self.conns[conn].output == Output::Open {
                    self.conns[conn].output = Output::Ended;
                }
                self.peer_reads(conn);
            }
            Descriptor::Listener(listener) => {
                self.listeners[listener].closed = true;
                for conn in core::mem::take(&mut self.listeners[listener].backlog) {
                    self.refuse(conn);
                }
            }
        }
    }

    pub(super) fn close_file(&mut self, ino: u64) {
        self.disk.inode_mut(ino).opens -= 1;
        self.disk.forget(ino);
    }
}
