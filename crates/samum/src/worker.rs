//! One thread's share of the server: a loop that takes completions and gives turns.

use core::time::Duration;
use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;

use ring::{Completion, DriverKind, Event, Fd, Key, Op, Ring, Time};
use sendfile::{Disk, DiskConfig};

use crate::config::Tuning;
use crate::connection::{After, Connection};
use crate::content::{Content, Policy};
use crate::crowd::Crowd;
use crate::log::{AccessLog, Sink};
use crate::shell::{Limit, Shell, Stats, id_of, kind};
use crate::wheel::{Tick, Wheel};

/// After descriptors have run out, accepting is tried again after this.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// A file that would fill more than one part in so many of the memory is not cached.
const MEMORY_SHARE: u64 = 8;
/// Streams pumped in one turn because the disk has room.
const LINE_TURNS_MAX: usize = 64;
/// Idle connections that are remembered to be closed when places are wanted, from one look at all.
const IDLERS_MAX: usize = 256;
/// When a look has found fewer, the next is not before this.
const IDLERS_PAUSE: Duration = Duration::from_millis(50);
/// Connections asked to give back buffers at once, when others starve.
const RECLAIMS_MAX: usize = 16;

const ECANCELED: i32 = rustix::io::Errno::CANCELED.raw_os_error();

/// Everything that one thread serves.
pub struct Worker {
    shell: Shell,
    content: Content,
    listeners: Vec<Listener>,
    /// Accepts in flight.
    accepts: usize,
    connections: Connections,
    crowd: Arc<Crowd>,
    /// Accepted, and waiting for a place.
    newcomers: VecDeque<Fd>,
    /// How many of them the crowd has been told of.
    told: usize,
    idlers: Idlers,
    wheel: Wheel,
    /// Connections whose turn was over before they were done.
    again: VecDeque<u64>,
    draining: bool,
    completions: Vec<Completion>,
    expired: Vec<(u64, Tick)>,
}

struct Listener {
    socket: Fd,
    state: Accepting,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Accepting {
    Armed(Key),
    /// It has been told to stop, and will say when it has.
    Stopping(Key),
    /// Until descriptors are free again; a timer runs.
    Paused,
    /// Until no newcomer waits for a place.
    Stopped,
    /// For good.
    Closed,
}

/// What a worker is made of.
pub struct Parts {
    /// Made on the worker's own thread.
    pub ring: Ring,
    /// Listening sockets.
    pub listeners: Vec<Fd>,
    /// The directory to serve.
    pub root: Fd,
    /// The places for connections, of all workers together.
    pub crowd: Arc<Crowd>,
    /// Open files this worker may keep.
    pub descriptors_max: usize,
    /// The rest of the configuration.
    pub tuning: Tuning,
    /// Where the access log goes and how it looks; the name is for messages.
    pub access: Option<(Fd, crate::LogFormat, String, bool)>,
    /// Where messages go.
    pub notes: Option<Fd>,
}

impl Worker {
    /// Begin to accept.
    ///
    /// # Errors
    ///
    /// Those of `mmap(2)`.
    pub fn new(parts: Parts) -> io::Result<Self> {
        let disk = Disk::new(DiskConfig {
            caching: parts.tuning.caching,
            // There are no pipes in the simulation.
            pipes: if parts.ring.kind() == DriverKind::Sim {
                0
            } else {
                // Two descriptors each: half of what is left of an eighth beside loads.
                DiskConfig::default().pipes.min(parts.descriptors_max / 4)
            },
            cached_bytes_max: crate::memory::limit() / MEMORY_SHARE,
            token_base: kind::DISK,
            ..DiskConfig::default()
        })?;
        let policy = Policy {
            index: parts.tuning.index.clone(),
            listing: parts.tuning.listing,
            keep: parts.tuning.caching != sendfile::Caching::Never,
            tags: parts.tuning.tags,
            descriptors_max: parts.descriptors_max,
        };
        let access = parts.access.map(|(fd, format, name, is_file)| {
            AccessLog::new(Sink::new(Some(fd), kind::ACCESS, &name, is_file), format)
        });
        let notes = Sink::new(parts.notes, kind::NOTE, "messages", false);
        let shell = Shell::new(parts.ring, disk, Rc::new(parts.tuning), access, notes);
        let mut worker = Self {
            content: Content::new(parts.root, policy, shell.budget.shared.clone())?,
            wheel: Wheel::new(shell.now),
            shell,
            listeners: Vec::new(),
            accepts: 0,
            connections: Connections::default(),
            crowd: parts.crowd,
            newcomers: VecDeque::new(),
            told: 0,
            idlers: Idlers::default(),
            again: VecDeque::new(),
            draining: false,
            completions: Vec::new(),
            expired: Vec::new(),
        };
        for socket in parts.listeners {
            worker.listeners.push(Listener { socket, state: Accepting::Stopped });
        }
        worker.accept_again();
        Ok(worker)
    }

    /// What has happened so far.
    #[must_use]
    pub const fn stats(&self) -> Stats {
        self.shell.stats
    }

    /// Connections open now.
    #[must_use]
    pub const fn connections(&self) -> usize {
        self.connections.len
    }

    /// The ring, for a waker and its clock.
    pub const fn ring(&mut self) -> &mut Ring {
        &mut self.shell.ring
    }

    /// Serve another directory from now on. What is under way is finished from the one before.
    pub fn replace_root(&mut self, directory: OwnedFd) {
        let root = self.shell.ring.adopt_file(directory);
        self.content.replace_root(&mut self.shell, root);
    }

    /// Write the access log, if there is one, to another file from now on.
    pub fn replace_log(&mut self, file: OwnedFd) {
        let file = self.shell.ring.adopt_file(file);
        if let Some(access) = &mut self.shell.access {
            access.sink.replace(file);
        }
    }

    /// Wait until something happens, but not beyond `until`, and do everything about it.
    ///
    /// # Errors
    ///
    /// When the ring cannot wait: the worker is of no more use.
    pub fn turn(&mut self, until: Option<Time>) -> io::Result<()> {
        let wants_place = !self.newcomers.is_empty() || self.crowd.is_full();
        let look = wants_place.then_some(self.shell.now + IDLERS_PAUSE);
        let until =
            [until, look, self.wheel.next(), self.shell.flush_logs()].into_iter().flatten().min();
        let until = if self.again.is_empty() { until } else { Some(self.shell.now) };
        let mut completions = core::mem::take(&mut self.completions);
        self.shell.ring.wait(until, &mut completions)?;
        self.shell.tick();
        for completion in completions.drain(..) {
            self.handle(completion);
        }
        self.completions = completions;
        self.deliver_answers();
        for _ in 0..self.again.len() {
            let Some(id) = self.again.pop_front() else { break };
            self.with(id, |connection, shell, content| {
                connection.handle_turn(shell, content, false)
            });
        }
        self.serve_line();
        self.deliver_answers();
        self.expire();
        self.serve_crowd();
        Ok(())
    }

    fn handle(&mut self, completion: Completion) {
        let id = id_of(completion.token);
        match completion.token & kind::MASK {
            kind::RECV => {
                self.with(id, |connection, shell, content| {
                    connection.handle_receive(shell, content, completion)
                });
            }
            // If the poll has failed, sending tells why.
            kind::WRITABLE => self.with(id, Connection::handle_writable),
            kind::ACCEPT => self.handle_accept(id, completion),
            kind::DISK => self.handle_disk(completion),
            kind::LOAD => self.content.handle_load(&mut self.shell, completion),
            kind::WATCH => self.content.handle_watch(&mut self.shell, completion),
            kind::TIDY => self.content.handle_tidy(&mut self.shell, &completion),
            kind::ACCESS | kind::NOTE => self.shell.log_written(completion),
            kind::RESUME => self.resume(id),
            // What another thread wants is seen by the caller of `turn`, a place by `serve_crowd`.
            kind::WAKE => self.content.handle_wake(&mut self.shell),
            _ => unreachable!("no operation has the token {:x}", completion.token),
        }
    }

    fn handle_disk(&mut self, completion: Completion) {
        // A read for a connection that has gone since gives its buffer back here.
        let Some(done) = self.shell.disk.handle(&mut self.shell.ring, completion) else { return };
        self.with(done.owner.connection, |connection, shell, content| {
            connection.handle_read(shell, content, done)
        });
    }

    fn handle_accept(&mut self, number: u64, completion: Completion) {
        let number = usize::try_from(number).expect("an index of listeners");
        self.accepts -= usize::from(!completion.more);
        if self.draining {
            return;
        }
        if !completion.more {
            self.listeners[number].state = Accepting::Stopped;
        }
        match completion.result {
            Ok(Event::Accepted(socket)) => self.newcomers.push_back(socket),
            Ok(event) => unreachable!("an accept brought {event:?}"),
            Err(error) if error.raw_os_error() == Some(ECANCELED) => {}
            Err(error) => {
                self.shell.complain_of_limit(&error);
                self.listeners[number].state = Accepting::Paused;
                let at = self.shell.now + ACCEPT_PAUSE;
                self.shell.ring.submit(Op::Timer(at), kind::RESUME | number as u64);
            }
        }
        self.admit();
    }

    /// Give newcomers the places that are left, or those of idle connections.
    fn admit(&mut self) {
        while !self.newcomers.is_empty() {
            if !self.crowd.enter() {
                let places = self.crowd.places();
                self.shell.complain(Limit::Connections, &format!(
                    "{places} connections, as many as --max-connections and `ulimit -n` allow; idle ones \
                     are closed for further clients, which wait while none is idle"
                ));
                if !(self.close_idle() && self.crowd.enter()) {
                    break;
                }
            }
            let Some(socket) = self.newcomers.pop_front() else { return self.crowd.leave() };
            self.open(socket);
        }
        if self.newcomers.is_empty() {
            self.accept_again();
        } else {
            self.accept_no_more();
        }
    }

    /// Close the connection that has been idle for longest, if any is.
    fn close_idle(&mut self) -> bool {
        let Some(id) = self.idlers.next(&self.connections, self.shell.now) else { return false };
        self.shell.stats.idle_closed += 1;
        self.with(id, |_, _, _| After::Close);
        true
    }

    /// Let newcomers in, here or in other workers.
    fn serve_crowd(&mut self) {
        if !self.newcomers.is_empty() {
            self.admit();
        }
        if self.newcomers.len() != self.told {
            self.crowd.set_waiting(self.told, self.newcomers.len());
            self.told = self.newcomers.len();
        }
        if self.newcomers.is_empty() && self.crowd.is_full() {
            self.close_idle();
        }
    }

    fn open(&mut self, socket: Fd) {
        self.shell.stats.accepted += 1;
        let named = self.shell.access.is_some() && self.shell.ring.kind() != DriverKind::Sim;
        let peer = named.then(|| crate::listen::peer_name(&socket));
        let id = self.connections.reserve();
        let connection = Connection::new(&mut self.shell, id, socket, peer);
        self.settle(id, Box::new(connection), After::Keep);
    }

    /// Stop accepting while newcomers wait: others wait in the kernel's line.
    fn accept_no_more(&mut self) {
        for listener in &mut self.listeners {
            if let Accepting::Armed(key) = listener.state {
                self.shell.ring.cancel(key);
                listener.state = Accepting::Stopping(key);
            }
        }
    }

    /// Descriptors may be free again.
    fn resume(&mut self, number: u64) {
        let number = usize::try_from(number).expect("an index of listeners");
        // None are left when the worker is draining.
        if let Some(listener) = self.listeners.get_mut(number)
            && listener.state == Accepting::Paused
        {
            listener.state = Accepting::Stopped;
            self.admit();
        }
    }

    /// Accept where it was stopped.
    fn accept_again(&mut self) {
        if self.draining {
            return;
        }
        for (number, listener) in (0..).zip(&mut self.listeners) {
            if listener.state == Accepting::Stopped {
                let op = Op::Accept(listener.socket.clone());
                listener.state =
                    Accepting::Armed(self.shell.ring.submit(op, kind::ACCEPT | number));
                self.accepts += 1;
            }
        }
    }

    /// Let a connection do something, if it is still there.
    fn with(
        &mut self,
        id: u64,
        act: impl FnOnce(&mut Connection, &mut Shell, &mut Content) -> After,
    ) {
        if let Some(mut connection) = self.connections.take(id) {
            let after = act(&mut connection, &mut self.shell, &mut self.content);
            self.settle(id, connection, after);
        }
    }

    /// Put a connection back, or close it.
    fn settle(&mut self, id: u64, mut connection: Box<Connection>, after: After) {
        connection.recount(&mut self.shell.budget);
        match after {
            After::Close => {
                connection.close(&mut self.shell);
                self.connections.free(id);
                self.crowd.leave();
                return;
            }
            After::Again => self.again.push_back(id),
            After::Keep => {}
        }
        if let Some(deadline) = connection.deadline(&self.shell)
            && Wheel::is_later(connection.wheel_tick, deadline)
        {
            connection.wheel_tick = self.wheel.insert(id, deadline);
        }
        self.connections.put(id, connection);
    }

    fn deliver_answers(&mut self) {
        while !self.content.answers.is_empty() {
            for (ticket, answer) in core::mem::take(&mut self.content.answers) {
                self.with(ticket.connection, |connection, shell, content| {
                    connection.handle_answer(shell, content, ticket, answer)
                });
            }
        }
    }

    /// Give turns to streams that wait for the disk, and see that they get buffers.
    fn serve_line(&mut self) {
        for _ in 0..RECLAIMS_MAX {
            if !self.shell.disk.is_starved() {
                break;
            }
            let Some(owner) = self.shell.disk.next_holder() else { break };
            let id = owner.connection;
            if let Some(mut connection) = self.connections.take(id) {
                connection.reclaim();
                self.connections.put(id, connection);
            }
        }
        for _ in 0..LINE_TURNS_MAX {
            let Some(owner) = self.shell.disk.next_waiting() else { return };
            let id = owner.connection;
            self.with(id, |connection, shell, content| {
                connection.handle_turn(shell, content, true)
            });
        }
    }

    fn expire(&mut self) {
        let mut expired = core::mem::take(&mut self.expired);
        self.wheel.expire(self.shell.now, &mut expired);
        for (id, tick) in expired.drain(..) {
            let Some(mut connection) = self.connections.take(id) else { continue };
            if connection.wheel_tick != tick {
                // An earlier entry came up in its place.
                self.connections.put(id, connection);
                continue;
            }
            connection.wheel_tick = Tick::MAX;
            let due =
                connection.deadline(&self.shell).is_some_and(|deadline| deadline <= self.shell.now);
            let after = if due {
                connection.handle_deadline(&mut self.shell, &mut self.content)
            } else {
                After::Keep
            };
            self.settle(id, connection, after);
        }
        self.expired = expired;
    }

    /// Accept no more, close what is idle, and let what is being answered be the last.
    pub fn drain(&mut self) {
        self.draining = true;
        for listener in &mut self.listeners {
            if let Accepting::Armed(key) = listener.state {
                self.shell.ring.cancel(key);
            }
            listener.state = Accepting::Closed;
        }
        self.listeners.clear();
        self.newcomers.clear();
        self.serve_crowd();
        for id in self.connections.ids() {
            self.with(id, |connection, _, _| connection.finish());
        }
    }

    /// Whether nothing is left to do after [`drain`](Self::drain).
    #[must_use]
    pub const fn is_drained(&self) -> bool {
        self.connections.len == 0 && self.accepts == 0
    }

    /// Write what the logs hold, for at most as long as `until`; returns the number of lines of the
    /// access log that are lost and that nobody has been told of.
    pub fn finish_logs(&mut self, until: Time) -> u64 {
        // Once in any case: what nobody uses any more is closed on the way.
        let now = self.shell.now;
        if self.turn(Some(now)).is_err() {
            return 0;
        }
        while self.shell.ring.now() < until {
            let now = self.shell.ring.now();
            let mut quiet = self.shell.notes.is_quiet();
            self.shell.notes.hurry(&mut self.shell.ring, now);
            if let Some(access) = &mut self.shell.access {
                access.sink.hurry(&mut self.shell.ring, now);
                quiet &= access.sink.is_quiet();
            }
            if quiet || self.turn(Some(until)).is_err() {
                break;
            }
        }
        self.shell.access.as_ref().map_or(0, |access| access.sink.lost())
    }
}

impl core::fmt::Debug for Worker {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Worker({} connections, {:?})", self.connections.len, self.content)
    }
}

impl core::fmt::Debug for Parts {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Parts({} listeners)", self.listeners.len())
    }
}

/// Idle connections to close when places are wanted, the oldest first.
#[derive(Default)]
struct Idlers {
    found: VecDeque<(u64, Time)>,
    /// There is no use in looking before this.
    look_at: Time,
}

impl Idlers {
    /// The next one to close. A look at all connections finds many, so that a flood of newcomers
    /// costs each of them little.
    fn next(&mut self, connections: &Connections, now: Time) -> Option<u64> {
        loop {
            while let Some((id, since)) = self.found.pop_front() {
                if connections.peek(id).and_then(Connection::idle_since) == Some(since) {
                    return Some(id);
                }
            }
            if now < self.look_at {
                return None;
            }
            let mut all: Vec<(Time, u64)> = connections
                .present()
                .filter_map(|(id, connection)| Some((connection.idle_since()?, id)))
                .collect();
            if all.len() > IDLERS_MAX {
                all.select_nth_unstable(IDLERS_MAX);
                all.truncate(IDLERS_MAX);
            } else {
                self.look_at = now + IDLERS_PAUSE;
            }
            all.sort_unstable();
            self.found = all.into_iter().map(|(since, id)| (id, since)).collect();
            if self.found.is_empty() {
                return None;
            }
        }
    }
}

/// Connections by id: an index, and a generation that tells the present one from those before.
#[derive(Default)]
struct Connections {
    slots: Vec<Slot>,
    free: Vec<u32>,
    len: usize,
}

struct Slot {
    generation: u32,
    connection: Option<Box<Connection>>,
}

/// Ids are 56 bits in a token: 32 of index and 24 of generation.
const GENERATION_MASK: u32 = 0xff_ffff;

impl Connections {
    fn reserve(&mut self) -> u64 {
        self.len += 1;
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { generation: 0, connection: None });
            u32::try_from(self.slots.len() - 1).expect("descriptors are 31 bits")
        });
        u64::from(self.slots[index as usize].generation) << 32 | u64::from(index)
    }

    fn slot(&mut self, id: u64) -> Option<&mut Slot> {
        let index = usize::try_from(id & u64::from(u32::MAX)).expect("32 bits");
        self.slots.get_mut(index).filter(|slot| u64::from(slot.generation) == id >> 32)
    }

    fn peek(&self, id: u64) -> Option<&Connection> {
        let index = usize::try_from(id & u64::from(u32::MAX)).expect("32 bits");
        let slot = self.slots.get(index).filter(|slot| u64::from(slot.generation) == id >> 32)?;
        slot.connection.as_deref()
    }

    fn take(&mut self, id: u64) -> Option<Box<Connection>> {
        self.slot(id)?.connection.take()
    }

    fn put(&mut self, id: u64, connection: Box<Connection>) {
        let slot = self.slot(id).expect("reserved and not freed");
        slot.connection = Some(connection);
    }

    fn free(&mut self, id: u64) {
        let slot = self.slot(id).expect("reserved and not freed");
        slot.generation = (slot.generation + 1) & GENERATION_MASK;
        self.len -= 1;
        self.free.push(u32::try_from(id & u64::from(u32::MAX)).expect("32 bits"));
    }

    fn ids(&self) -> Vec<u64> {
        self.present().map(|(id, _)| id).collect()
    }

    fn present(&self) -> impl Iterator<Item = (u64, &Connection)> {
        self.slots.iter().zip(0_u64..).filter_map(|(slot, index)| {
            let connection = slot.connection.as_deref()?;
            Some((u64::from(slot.generation) << 32 | index, connection))
        })
    }
}
