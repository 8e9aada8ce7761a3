//! The simulated world: its clock, its agenda, and what tests and rings do to it.

use core::cell::{RefCell, RefMut};
use core::cmp::Reverse;
use core::fmt;
use core::time::Duration;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::io::{self, IoSlice};
use std::rc::Rc;

use crate::op::Change;
use crate::timers::Time;

use super::disk::{Body, Disk, File, Found, PAGE, ROOT, Walk};
use super::net::{Connection, End, Input, Listener, Output, Reading, Segment};
use super::random::Random;
use super::{Config, Latency, Waiter, errno};

/// Descriptors 0 to 2 are taken, as in any process.
const FIRST_DESCRIPTOR: usize = 3;
/// How often a peer that reads at a rate does so, per second.
const STEPS: u64 = 1000;

/// A handle on a simulated world; clones mean the same one.
#[derive(Clone)]
pub struct World(Rc<RefCell<State>>);

/// A peer in the simulated world: the other end of a connection. It reads at once what comes,
/// until told otherwise, and closes when dropped.
pub struct Peer {
    world: World,
    conn: usize,
}

/// A [`Ring::sendfile`](crate::Ring::sendfile) that would have slept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stall {
    /// The name that the file was opened by.
    pub file: String,
    /// Bytes from the start of the file.
    pub offset: u64,
    /// Bytes that were asked for.
    pub len: usize,
    /// When.
    pub at: Time,
}

pub(super) struct State {
    pub(super) config: Config,
    pub(super) random: Random,
    pub(super) now: Time,
    pub(super) disk: Disk,
    pub(super) listeners: Vec<Listener>,
    pub(super) conns: Vec<Connection>,
    /// By number.
    descriptors: Vec<Option<Descriptor>>,
    agenda: BinaryHeap<Reverse<(Time, u64, Happening)>>,
    /// By ring: operations to look at.
    pub(super) due: Vec<Vec<Due>>,
    pub(super) watches: BTreeMap<Waiter, Watch>,
    stalls: Vec<Stall>,
}

/// What is behind a number.
#[derive(Clone, Debug)]
pub(super) enum Descriptor {
    Listener(usize),
    Socket(usize),
    File(OpenFile),
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

/// What an operation of a ring shall do now.
#[derive(Clone, Copy, Debug)]
pub(super) enum Due {
    /// See whether it can go on.
    Look(u64),
    /// End, because it was cancelled.
    End(u64),
}

#[derive(Debug)]
pub(super) struct Watch {
    pub(super) dir: u64,
    pub(super) queue: VecDeque<Change>,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Happening {
    Look(Waiter),
    End(Waiter),
    /// A connection comes to this listener, or to any.
    Connect(usize, Option<usize>),
    Arrive(usize, Segment),
    PeerReads(usize),
}

impl World {
    /// Make a world: an empty root directory, and nobody in it.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let random = Random::new(config.seed);
        Self(Rc::new(RefCell::new(State {
            config,
            random,
            // Not 0, so that "a second ago" is a time.
            now: Time::from_nanos(1_000_000_000_000),
            disk: Disk::new(),
            listeners: Vec::new(),
            conns: Vec::new(),
            descriptors: vec![None; FIRST_DESCRIPTOR],
            agenda: BinaryHeap::new(),
            due: Vec::new(),
            watches: BTreeMap::new(),
            stalls: Vec::new(),
        })))
    }

    pub(super) fn state(&self) -> RefMut<'_, State> {
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

    /// Change what the world is like from now on.
    pub fn configure(&self, change: impl FnOnce(&mut Config)) {
        change(&mut self.state().config);
    }

    /// Every `sendfile` so far that would have slept on the disk.
    #[must_use]
    pub fn stalls(&self) -> Vec<Stall> {
        self.state().stalls.clone()
    }

    /// Descriptors that the rings' process has open.
    #[must_use]
    pub fn open_descriptors(&self) -> usize {
        self.state().descriptors.iter().flatten().count()
    }

    // Peers

    /// A new connection to one of the listeners; refused (that is, reset) when there is none.
    #[must_use]
    pub fn connect(&self) -> Peer {
        self.dial(None)
    }

    /// A new connection to the listener with this number ([`Fd::raw`](crate::Fd::raw)).
    ///
    /// # Panics
    ///
    /// If it is not a listener's.
    #[must_use]
    pub fn connect_to(&self, listener: i32) -> Peer {
        let listener = self.state().listener(listener).expect("a listener");
        self.dial(Some(listener))
    }

    fn dial(&self, listener: Option<usize>) -> Peer {
        let mut state = self.state();
        let conn = state.conns.len();
        let capacity = state.config.send_buffer;
        state.conns.push(Connection::new(capacity));
        let at = state.after_network();
        state.conns[conn].last_arrival = at;
        state.plan(at, Happening::Connect(conn, listener));
        Peer { world: self.clone(), conn }
    }

    // Files. Paths begin at the root; a leading slash may be left out.

    /// Create a file or overwrite it in place, where open descriptors see it. It is in the page
    /// cache afterwards.
    ///
    /// # Panics
    ///
    /// If the directory is missing.
    pub fn write_file(&self, path: &str, bytes: &[u8]) {
        let mut state = self.state();
        let found = state.find(path, false);
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

    /// Put a new file in the place of an old one (or none) in one step, as `rename(2)` does: open
    /// descriptors go on to refer to the old one.
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
        let mut state = self.state();
        let found = state.find(path, false);
        let now = state.now;
        let ino = found.ino.expect("the file is there");
        state.disk.file(ino).expect("a file").change(now, |bytes| bytes.resize(len, 0));
        state.disk.modified(ino, now);
        state.changed(found.dir, Some(&found.name), false);
    }

    /// Make a directory.
    ///
    /// # Panics
    ///
    /// If its parent is missing or the name is taken.
    pub fn make_dir(&self, path: &str) {
        let body = Body::Directory { parent: ROOT, entries: BTreeMap::new() };
        self.make(path, body, true);
    }

    /// Make a symbolic link.
    ///
    /// # Panics
    ///
    /// If the directory is missing or the name is taken.
    pub fn symlink(&self, target: &str, path: &str) {
        self.make(path, Body::Symlink(target.into()), false);
    }

    fn make(&self, path: &str, body: Body, directory: bool) {
        let mut state = self.state();
        let found = state.find(path, true);
        assert!(found.ino.is_none(), "{path} is taken");
        let now = state.now;
        let ino = state.disk.make(found.dir, found.name.clone(), body, now);
        if let Body::Directory { parent, .. } = &mut state.disk.inode_mut(ino).body {
            *parent = found.dir;
        }
        state.changed(found.dir, Some(&found.name), directory);
    }

    /// Give a file or directory another name, in place of what has it.
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
        state.changed(source.dir, Some(&source.name), directory);
        state.changed(target.dir, Some(&target.name), directory);
    }

    /// Remove a file, a link, or a directory with all that is in it.
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
    pub fn set_mtime(&self, path: &str, seconds: i64) {
        let mut state = self.state();
        let found = state.find(path, false);
        let since =
            u64::try_from(seconds - state.config.unix_time).expect("after the clock's start");
        let ino = found.ino.expect("something is there");
        let now = state.now;
        let inode = state.disk.inode_mut(ino);
        (inode.mtime, inode.ctime) = (Time::default() + Duration::from_secs(since), now);
        state.changed(found.dir, Some(&found.name), false);
    }

    /// Drop a file from the page cache, but for what is just being read.
    ///
    /// # Panics
    ///
    /// If there is no such file.
    pub fn evict(&self, path: &str) {
        let mut state = self.state();
        let ino = state.find(path, false).ino.expect("the file is there");
        let now = state.now;
        state.disk.file(ino).expect("a file").evict(0, 0, now);
    }

    /// Drop all files from the page cache, but for what is just being read.
    #[expect(clippy::missing_panics_doc, reason = "files are files")]
    pub fn evict_all(&self) {
        let mut state = self.state();
        let now = state.now;
        for ino in state.disk.files() {
            state.disk.file(ino).expect("a file").evict(0, 0, now);
        }
    }

    // What rings do

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

    pub(crate) fn unix_time(&self) -> i64 {
        let state = self.state();
        state.unix(state.now).0
    }

    pub(crate) fn send(&self, fd: i32, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut state = self.state();
        let conn = state.conn(fd)?;
        let total = pieces.iter().map(|piece| piece.len()).sum();
        let count = state.admit(conn, total)?;
        let bytes = pieces.iter().flat_map(|piece| piece.iter().copied());
        state.conns[conn].outbox.extend(bytes.take(count));
        state.peer_reads(conn);
        Ok(count)
    }

    pub(crate) fn queued(&self, fd: i32) -> u64 {
        let mut state = self.state();
        state.conn(fd).map_or(0, |conn| state.conns[conn].outbox.len() as u64)
    }

    pub(crate) fn sendfile(
        &self,
        fd: i32,
        file: i32,
        offset: u64,
        len: usize,
    ) -> io::Result<usize> {
        let mut state = self.state();
        let conn = state.conn(fd)?;
        if let Some(error) = state.config.sendfile_errno {
            return Err(errno(error));
        }
        let open = state.opened(file)?.clone();
        let now = state.now;
        let contents = state.disk.file(open.ino).map_err(errno)?;
        let range = contents.range(offset, len);
        if contents.resident(offset, len, now) < range.len() {
            let file = String::from_utf8_lossy(&open.name).into_owned();
            state.stalls.push(Stall { file, offset, len, at: now });
            state.sleep_on(&open, offset, len);
        }
        if range.is_empty() {
            return Ok(0);
        }
        let count = state.admit(conn, range.len())?;
        let bytes = state.disk.file(open.ino).map_err(errno)?.bytes[range][..count].to_vec();
        state.conns[conn].outbox.extend(bytes);
        state.peer_reads(conn);
        Ok(count)
    }

    pub(crate) fn probe(&self, file: i32, offset: u64, len: usize) -> io::Result<usize> {
        let mut state = self.state();
        let ino = state.opened(file)?.ino;
        let now = state.now;
        let denial = state.config.faults.probe_denial;
        let denied = state.random.chance(denial);
        let arrival = now + state.latency(|config| &config.disk);
        let file = state.disk.file(ino).map_err(errno)?;
        let count = file.resident(offset, len, now);
        if count < file.range(offset, len).len() {
            // As Linux does it: asked for what is not there, it begins to read.
            file.fetch(offset, len, now, arrival);
        }
        if (count == 0 || denied) && !file.range(offset, len).is_empty() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(count)
    }

    pub(crate) fn cached_pages(&self, file: i32, offset: u64, len: u64) -> io::Result<u64> {
        let mut state = self.state();
        let ino = state.opened(file)?.ino;
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        Ok(state.disk.file(ino).map_err(errno)?.cached(offset, len) as u64)
    }

    pub(crate) fn shutdown(&self, fd: i32) {
        let mut state = self.state();
        if let Ok(conn) = state.conn(fd)
            && state.conns[conn].output == Output::Open
        {
            state.conns[conn].output = Output::Ended;
            state.peer_reads(conn);
            let writer = state.conns[conn].writer;
            state.look_soon(writer);
        }
    }

    pub(crate) fn no_readahead(&self, file: i32) {
        if let Ok(open) = self.state().opened(file) {
            open.readahead = false;
        }
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

impl Peer {
    /// Send bytes to the socket.
    pub fn send(&self, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.world.state().segment(self.conn, Segment::Bytes(bytes.to_vec()));
        }
    }

    /// Send no more.
    pub fn shutdown_write(&self) {
        self.world.state().segment(self.conn, Segment::End);
    }

    /// Close: send no more, and answer what still comes with a reset.
    pub fn close(&self) {
        let mut state = self.world.state();
        if !core::mem::replace(&mut state.conns[self.conn].peer.closed, true) {
            state.segment(self.conn, Segment::End);
            state.peer_reads(self.conn);
        }
    }

    /// Break the connection.
    pub fn reset(&self) {
        let mut state = self.world.state();
        if !core::mem::replace(&mut state.conns[self.conn].peer.closed, true) {
            state.segment(self.conn, Segment::Reset);
        }
    }

    /// All that it has read and not [taken](Self::take).
    #[must_use]
    pub fn received(&self) -> Vec<u8> {
        self.world.state().conns[self.conn].peer.received.clone()
    }

    /// What it has read since the last time.
    #[must_use]
    pub fn take(&self) -> Vec<u8> {
        core::mem::take(&mut self.world.state().conns[self.conn].peer.received)
    }

    /// How the stream to it has ended, if it has.
    #[must_use]
    pub fn end(&self) -> Option<End> {
        self.world.state().conns[self.conn].peer.end
    }

    /// Read no more, so that the socket fills.
    pub fn stop_reading(&self) {
        self.world.state().conns[self.conn].peer.reading = Reading::Stopped;
    }

    /// Read so many bytes per second; `None` is as fast as they come.
    ///
    /// # Panics
    ///
    /// If the rate is 0: that is [`stop_reading`](Self::stop_reading).
    pub fn set_read_rate(&self, bytes_per_second: Option<u64>) {
        assert_ne!(bytes_per_second, Some(0));
        let mut state = self.world.state();
        let reading = bytes_per_second.map_or(Reading::Unlimited, Reading::Rate);
        state.conns[self.conn].peer.reading = reading;
        state.peer_reads(self.conn);
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.close();
    }
}

impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Peer({})", self.conn)
    }
}

impl State {
    pub(super) fn latency(&mut self, of: impl FnOnce(&Config) -> &Latency) -> Duration {
        self.random.latency(of(&self.config))
    }

    fn after_network(&mut self) -> Time {
        self.now + self.latency(|config| &config.network)
    }

    /// The wall clock at some time: seconds since 1970 and nanoseconds.
    pub(super) fn unix(&self, at: Time) -> (i64, u32) {
        let seconds = i64::try_from(at.as_nanos() / 1_000_000_000).expect("below 2^35");
        let nanos = u32::try_from(at.as_nanos() % 1_000_000_000).expect("below 10^9");
        (self.config.unix_time + seconds, nanos)
    }

    // The agenda

    fn plan(&mut self, at: Time, what: Happening) {
        let tie = self.random.bits();
        self.agenda.push(Reverse((at, tie, what)));
    }

    /// Have an operation looked at some time later.
    pub(super) fn look_at(&mut self, at: Time, who: Waiter) {
        self.plan(at, Happening::Look(who));
    }

    /// Have an operation looked at when the network has told it.
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

    /// Let happen what is due.
    pub(super) fn happen(&mut self) {
        while self.next_time().is_some_and(|at| at <= self.now) {
            let Some(Reverse((_, _, what))) = self.agenda.pop() else { return };
            match what {
                Happening::Look(who) => self.due[who.ring].push(Due::Look(who.key)),
                Happening::End(who) => self.due[who.ring].push(Due::End(who.key)),
                Happening::Connect(conn, listener) => self.connected(conn, listener),
                Happening::Arrive(conn, segment) => self.arrived(conn, segment),
                Happening::PeerReads(conn) => self.peer_step(conn),
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
            Descriptor::File(_) => Err(errno(libc::ENOTSOCK)),
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
            Descriptor::Socket(conn) => {
                let unread = !self.conns[conn].inbox.is_empty();
                self.conns[conn].output = if unread { Output::Reset } else { Output::Ended };
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

    fn close_file(&mut self, ino: u64) {
        self.disk.inode_mut(ino).opens -= 1;
        self.disk.forget(ino);
    }

    // The network

    fn connected(&mut self, conn: usize, wanted: Option<usize>) {
        let fits = |at: &usize| !self.listeners[*at].closed && wanted.is_none_or(|one| one == *at);
        let open: Vec<usize> = (0..self.listeners.len()).filter(fits).collect();
        if open.is_empty() {
            self.refuse(conn);
            return;
        }
        let listener = open[self.random.below(open.len())];
        self.listeners[listener].backlog.push_back(conn);
        let accept = self.listeners[listener].accept;
        self.look_soon(accept);
    }

    fn refuse(&mut self, conn: usize) {
        self.conns[conn].output = Output::Reset;
        self.conns[conn].input = Input::Reset;
        self.peer_reads(conn);
    }

    /// Put a segment on the way, behind those that the peer sent before.
    fn segment(&mut self, conn: usize, segment: Segment) {
        let after_last = self.conns[conn].last_arrival + Duration::from_nanos(1);
        let at = self.after_network().max(after_last);
        self.conns[conn].last_arrival = at;
        self.plan(at, Happening::Arrive(conn, segment));
    }

    fn arrived(&mut self, conn: usize, segment: Segment) {
        let lossy = self.random.chance(0.5);
        let one = &mut self.conns[conn];
        if one.input != Input::Open {
            // Behind an end only a reset means something.
            if segment != Segment::Reset {
                return;
            }
        }
        match segment {
            Segment::Bytes(bytes) => one.inbox.extend(bytes),
            Segment::End => one.input = Input::Ended,
            Segment::Reset => {
                one.input = Input::Reset;
                one.outbox.clear();
                if lossy {
                    one.inbox.clear();
                }
            }
        }
        let (reader, writer) = (one.reader, one.writer);
        self.look_soon(reader);
        self.look_soon(writer);
    }

    /// How many of so many bytes the socket takes now.
    fn admit(&mut self, conn: usize, total: usize) -> io::Result<usize> {
        let count = self.conns[conn].room()?.min(total);
        let short = self.config.faults.short_send;
        if count > 1 && self.random.chance(short) {
            return Ok(1 + self.random.below(count));
        }
        Ok(count)
    }

    /// Have the peer read, if there is something to read and it wants to.
    fn peer_reads(&mut self, conn: usize) {
        let one = &self.conns[conn];
        let nothing = one.outbox.is_empty() && one.output == Output::Open;
        let stopped = one.peer.reading == Reading::Stopped && !one.peer.closed;
        if one.peer.busy || nothing || stopped || one.peer.end.is_some() {
            return;
        }
        let at = match one.peer.reading {
            Reading::Rate(_) => self.now + Duration::from_nanos(1_000_000_000 / STEPS),
            _ => self.after_network(),
        };
        self.conns[conn].peer.busy = true;
        self.plan(at, Happening::PeerReads(conn));
    }

    fn peer_step(&mut self, conn: usize) {
        let available = self.conns[conn].outbox.len();
        let chosen = 1 + self.random.below(available.max(1));
        let one = &mut self.conns[conn];
        one.peer.busy = false;
        if one.output == Output::Reset {
            one.outbox.clear();
            one.peer.end = Some(End::Reset);
            return;
        }
        if one.peer.closed {
            one.peer.end = Some(End::Reset);
            if available > 0 {
                self.segment(conn, Segment::Reset);
            }
            return;
        }
        let most = match one.peer.reading {
            Reading::Unlimited => chosen,
            Reading::Rate(rate) => usize::try_from(rate / STEPS).unwrap_or(usize::MAX).max(1),
            Reading::Stopped => return,
        };
        let taken = one.outbox.drain(..most.min(available));
        one.peer.received.extend(taken);
        if one.outbox.is_empty() && one.output == Output::Ended {
            one.peer.end = Some(End::Eof);
        }
        let writer = one.writer.filter(|_| one.is_writable());
        self.look_soon(writer);
        self.peer_reads(conn);
    }

    // Files

    fn find(&self, path: &str, stop_at_link: bool) -> Found {
        let walk = Walk { stop_at_link, ..Walk::default() };
        let path = format!("/{path}");
        match self.disk.walk(ROOT, path.as_bytes(), walk) {
            Ok(found) => found,
            Err(error) => panic!("{path}: {}", errno(error)),
        }
    }

    fn remove(&mut self, dir: u64, name: &[u8], ino: u64) {
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

    /// Tell those who watch the directory.
    pub(super) fn changed(&mut self, dir: u64, name: Option<&[u8]>, directory: bool) {
        let most = self.config.watch_queue;
        let mut told = Vec::new();
        for (who, watch) in self.watches.iter_mut().filter(|(_, watch)| watch.dir == dir) {
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

    /// Begin to read a range; when all of it is there, and which pages were not.
    pub(super) fn fetch(
        &mut self,
        open: &OpenFile,
        offset: u64,
        len: usize,
    ) -> Result<super::disk::Fetch, i32> {
        let now = self.now;
        let arrival = now + self.latency(|config| &config.disk);
        let later = arrival + self.latency(|config| &config.disk);
        let ahead = if open.readahead { self.config.readahead_pages } else { 0 };
        let file = self.disk.file(open.ino)?;
        let fetch = file.fetch(offset, len, now, arrival);
        if !fetch.brought.is_empty() {
            file.fetch_ahead(offset, len, ahead, later);
        }
        Ok(fetch)
    }

    /// What a `sendfile` of a range that is not there does to the worker.
    fn sleep_on(&mut self, open: &OpenFile, offset: u64, len: usize) {
        if let Ok(fetch) = self.fetch(open, offset, len) {
            self.now = self.now.max(fetch.ready);
        }
    }

    /// Now and then memory is short.
    pub(super) fn evict_some(&mut self) {
        let eviction = self.config.faults.eviction;
        if !self.random.chance(eviction) {
            return;
        }
        let files = self.disk.files();
        if files.is_empty() {
            return;
        }
        let ino = files[self.random.below(files.len())];
        let now = self.now;
        let file = self.disk.file(ino).expect("a file");
        let first = self.random.below(file.page_count().max(1));
        let count = 1 + self.random.below(16);
        file.evict((first * PAGE) as u64, (count * PAGE) as u64, now);
    }
}
