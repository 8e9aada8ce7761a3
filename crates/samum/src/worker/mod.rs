//! One thread's share of the server: a loop of worker turns, each of which handles completions and lets connections
//! act.
//!
//! By default each core has one thread. Each thread has a socket of its own for a TCP address (`SO_REUSEPORT`), and all
//! threads share the socket of a Unix path. The threads share no connection; they share the counters and tables of
//! [`Parts`]. The thread makes no call that sleeps for a log. It makes a call that sleeps for a disk only in the cases
//! that `content/src/lib.rs` and `sendfile/src/file.rs` name. A connection has one quantum in each worker turn,
//! whatever wakes it: its client, a read that ends, or a producer. A connection that has more to do waits in a queue
//! for the next turn. Each part of a worker turn has 0.4 ms; the rest of its work is done in the next turn, which does
//! not wait. An idle connection with HTTP/1 and without TLS needs its descriptor, a receive in flight and 152 bytes.
//! With the own stack such a connection needs 112 bytes here, 12 in a table and 148 in the stack. HTTP/2 keeps the
//! state of its session in addition, TLS keeps its keys, and a log or a limit keeps the client.

mod admission;
mod connection;
mod connections;
mod newcomers;
mod shutdown;
mod trim;

use core::net::IpAddr;
use core::time::Duration;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;

use ring::{Completion, Fd, Ring, Silences, Time};
use sendfile::{Devices, Disk, DiskConfig, KernelTcp, PageCache};

use crate::crowd::Crowd;
use crate::network::{Listeners, NetEvent, Network};
use config::Log;
use connection::{After, Connection, Spare, Tools};
use connections::{Connections, IDLERS_PAUSE, Idlers};
use handler::Handler;
use handler::attach::Attachments;
use handler::desk::Desk;
use handler::router::Router;
use handler::serving::{Serving, Servings, Snapshot, Succession};
use handler::status_page::Board;
use interface::StackTransport;
use logs::{Cut, Logs, Sink};
use metrics::{Metrics, Stats};
use session::context::{Attack, Context};
use session::kind;
use session::other_protocol::Reported;
use session::shell::{Complaint, Shell};
use session::wheel::{Tick, Wheel};
use session::{Http, Session, Woken};
pub use shutdown::Remainder;
use shutdown::Shutdown;
use trim::Trim;

/// The precision of the deadlines of connections.
const TICK: Duration = Duration::from_millis(250);
/// The time of each part of a worker turn: completions; answers and news, twice; connections that get another quantum;
/// streams in the disk's queue; deadlines; connections that end at a shutdown. A part whose time is over does the rest
/// in the next turn, which does not wait and first handles the events that have come. The last step of a part may
/// exceed the time: a connection needs up to 0.25 ms for its quantum, to send 1 MiB. TLS, upstreams and pages with
/// directives have parts of the same length in modules of their own (`secure/quantum.rs`, `upstream/src/steps.rs`,
/// `gateways/src/proxy`, `handler/src/includes`). So a worker turn usually ends within 5 ms. These steps take longer:
/// the closing of many idle connections for newcomers, a search for pages to keep (`sendfile/src/trail.rs`), and a new
/// configuration.
const PART: Duration = Duration::from_micros(400);
/// Completions that are handled, and answers that are delivered, between two looks at the clock.
const CLOCK_LOOK: usize = 2;
/// Streams that are pumped in one worker turn because the disk has room.
const LINE_TURNS_MAX: usize = 64;
/// Rounds of news in one worker turn; further news wait for the next turn, which does not sleep.
const NEWS_ROUNDS_MAX: usize = 16;
/// Answers, interim responses and wake-ups that are handed to connections in one worker turn. The rest waits for the
/// next worker turn, which first handles the events that have come. Thousands of requests can wait for one file, or for
/// a device that does not answer.
const DELIVERIES_MAX: usize = 128;
/// Connections that get another quantum in one worker turn. The next turn does not wait, and first handles the events
/// that have come, such as the state of a file that a new client waits for. Thousands of connections can have more to
/// do for seconds.
const AGAIN_MAX: usize = 64;
/// Deadlines of connections that are looked at in one worker turn. Thousands of connections can expire at one tick.
const EXPIRIES_MAX: usize = 128;
/// Connections that are asked together to give back buffers, when others starve.
const RECLAIMS_MAX: usize = 16;

/// Everything that one thread serves: connections from the network `N`, each with a session `S`, and
/// what the handler `H` answers.
pub struct Worker<S: Session = Http, N: Network = Listeners, H: Handler = Router> {
    shell: Shell<Desk>,
    disk: Disk,
    handler: H,
    network: N,
    connections: Connections<Connection<S, N::Transport, H::Answer>>,
    spare: Spare<S, H::Answer>,
    crowd: Arc<Crowd>,
    /// Connections that were accepted and wait for a slot.
    newcomers: VecDeque<N::Newcomer>,
    /// The number of newcomers that the crowd was last given.
    announced: usize,
    idlers: Idlers,
    trim: Trim,
    /// The deadlines of connections, by their indices.
    wheel: Wheel<u32>,
    /// Connections whose quantum was over before they were done.
    again: VecDeque<u64>,
    /// True if the handler may have more for connections.
    has_news: bool,
    /// True if the last worker turn may have changed numbers: it was for more than the log.
    has_acted: bool,
    /// `Some` once [`shut_down`](Self::shut_down) was called.
    shutdown: Option<Shutdown>,
    completions: Vec<Completion>,
    /// Entries of the wheel whose ticks have come and that were not looked at yet.
    expired: VecDeque<(u32, Tick)>,
}

/// The parts of a configuration that replaces another one.
#[derive(Debug)]
pub struct Replacement {
    /// The configuration, which is the [successor](Snapshot::successor) of the one that is served.
    pub snapshot: Arc<Snapshot>,
    /// The parts of the earlier configuration that it keeps.
    pub succession: Arc<Succession>,
    /// The open directories of its new trees, by their indices among [`Snapshot::roots`].
    pub roots: HashMap<usize, Fd>,
    /// Its new listening sockets and their numbers.
    pub listeners: Vec<(u32, Fd)>,
    /// The open files of its new logs.
    pub logs: Vec<(Log, Fd)>,
}

/// The parts that a worker is made of.
pub struct Parts {
    /// Made on the worker's own thread.
    pub ring: Ring,
    /// Listening sockets.
    pub listeners: Vec<Fd>,
    /// The configuration.
    pub snapshot: Arc<Snapshot>,
    /// The open directories of [`Snapshot::roots`].
    pub roots: Vec<Fd>,
    /// The slots for connections, of all workers together.
    pub crowd: Arc<Crowd>,
    /// The state of the page cache, as all workers know it.
    pub page_cache: Arc<PageCache>,
    /// The state of the devices, as all workers know it.
    pub devices: Arc<Devices>,
    /// The devices that do not answer, with their names for the operator, as all workers find them.
    pub silences: Arc<Silences<String>>,
    /// The times at which any worker last reported clients that do not speak HTTP/1.
    pub reported: Arc<Reported>,
    /// The figures of all workers, for the page of the operator.
    pub board: Arc<Board>,
    /// Open files that this worker may keep.
    pub descriptors_max: usize,
    /// The open files of [`Snapshot::logs`].
    pub logs: Vec<(Log, Fd)>,
    /// The numbers of all workers, and the index of this one among them.
    pub metrics: (Arc<Metrics>, usize),
    /// The destination of messages.
    pub notes: Option<Fd>,
    /// The parts that attach to the router.
    pub attachments: Attachments,
}

// All memory of an idle connection, without its descriptor and its receive but with 8 bytes of its slot.
const _: () = assert!(size_of::<Connection<Http, KernelTcp, <Router as Handler>::Answer>>() <= 144);
// All memory of an idle connection of our own stack: its slot, its part of the stack, and the entry of the table that
// leads from the stack to the slot (see `netstack::Stack` and `interface`).
const _: () =
    assert!(size_of::<Connection<Http, StackTransport, <Router as Handler>::Answer>>() == 104);

impl<S: Session> Worker<S> {
    /// Begins to accept from listening sockets, and to serve the sites of the snapshot.
    ///
    /// # Errors
    ///
    /// Those of `mmap(2)`.
    ///
    /// # Panics
    ///
    /// If there is not one open directory for each root of the snapshot.
    pub fn new(parts: Parts) -> io::Result<Self> {
        let network = Listeners::new(parts.listeners.clone());
        Self::over(parts, network)
    }
}

impl<S: Session, N: Network> Worker<S, N> {
    /// Does the same over another network; the listeners of `parts` are not used.
    ///
    /// # Errors
    ///
    /// Those of `mmap(2)`.
    ///
    /// # Panics
    ///
    /// If there is not one open directory for each root of the snapshot.
    pub fn over(mut parts: Parts, network: N) -> io::Result<Self> {
        let (roots, descriptors_max) = (core::mem::take(&mut parts.roots), parts.descriptors_max);
        let attachments = core::mem::take(&mut parts.attachments);
        Self::with(parts, network, |shell| {
            let mut router = Router::new(&roots, descriptors_max, shell)?;
            router.attach(shell, attachments);
            Ok(router)
        })
    }

    /// Serves one of [`Snapshot::roots`] from another directory from now on, or responds with 503 if there is none.
    /// Responses that have begun are completed from the old directory.
    pub fn replace_root(&mut self, root: usize, directory: Option<&Fd>) {
        self.handler.replace_root(&mut self.shell, root, directory);
    }
}

impl<S: Session, N: Network> Worker<S, N> {
    /// Serves another configuration from now on. A request that has begun is answered by the old configuration.
    ///
    /// Listeners at the same address are kept. At a removed listener, the connections that wait are accepted before it
    /// is closed. Each of its connections is closed after the responses that have begun, or else after its next
    /// response.
    ///
    /// # Panics
    ///
    /// If the directory of a new tree is missing.
    pub fn replace_configuration(&mut self, replacement: Replacement) {
        if self.shutdown.is_some() {
            return;
        }
        let Replacement { snapshot, succession, roots, listeners, logs } = replacement;
        let before = self.shell.desk.servings.now();
        for (log, file) in logs {
            self.shell.desk.logs.open(&log, file, self.shell.cx.now);
        }
        self.handler.replace(&mut self.shell, snapshot, &succession, &roots);
        self.disk.set_patience(Some(self.shell.cx.tuning.timeout_disk));
        for listener in succession.removed() {
            self.shell.desk.servings.remove(*listener, Rc::clone(&before));
            self.network.remove(&mut self.shell.ring, *listener);
        }
        drop(before);
        for (number, socket) in listeners {
            self.network.add(number, socket);
        }
        let serving = self.shell.desk.servings.now();
        self.network.set_listeners(serving.snapshot.listeners());
        self.shell.cx.takes = self.network.takes();
        self.handler.set_takes(self.shell.cx.takes);
        // All of them, for their deadlines and limits are others now.
        for id in self.connections.ids() {
            self.act(id, |connection, tools| {
                let is_removed = succession.removes(connection.listener());
                if is_removed {
                    return connection.retire(tools);
                }
                connection.count_client(tools.shell);
                After::Keep
            });
        }
        while let Some(event) = self.network.next_event() {
            self.handle_event(event);
        }
        self.admit();
    }
}

impl<S: Session, N: Network, H: Handler> Worker<S, N, H> {
    /// Does the same with another handler; listeners, roots and attachments of `parts` are not used.
    ///
    /// # Errors
    ///
    /// Those of `mmap(2)`, and of `handler`.
    pub fn with(
        parts: Parts,
        network: N,
        handler: impl FnOnce(&mut Shell<Desk>) -> io::Result<H>,
    ) -> io::Result<Self> {
        let config = DiskConfig {
            // A pipe has two descriptors: half of the eighth that loads leave is for pipes.
            pipes: DiskConfig::default().pipes.min(parts.descriptors_max / 4),
            // The other half is for files that responses still hold, and for second descriptors.
            lingering_files: DiskConfig::default().lingering_files.min(parts.descriptors_max / 4),
            patience: Some(parts.snapshot.tuning().timeout_disk),
            token_base: kind::DISK,
            ..DiskConfig::default()
        };
        let disk = Disk::sharing(config, parts.page_cache, parts.devices)?;
        let mut logs = Logs::new(kind::ACCESS);
        for (log, file) in parts.logs {
            logs.open(&log, file, parts.ring.now());
        }
        let (metrics, number) = parts.metrics;
        let notes = Sink::new(parts.notes, kind::NOTE, "messages", false);
        let tuning = parts.snapshot.tuning().clone();
        let servings = Rc::new(Servings::new(Serving::new(parts.snapshot, Vec::new())));
        let meters = metrics.meters(number);
        let mut cx = Context::new(tuning, Rc::<Servings>::clone(&servings));
        cx.stats = meters.counters();
        let desk = Desk::new(servings, logs, meters, notes, parts.reported, parts.board);
        let mut shell = Shell::new(parts.ring, cx, parts.silences, desk);
        shell.desk.logs.set_seed(shell.cx.id_seed);
        shell.cx.takes = network.takes();
        let mut worker = Self {
            handler: handler(&mut shell)?,
            network,
            wheel: Wheel::new(shell.cx.now, TICK),
            shell,
            disk,
            connections: Connections::default(),
            spare: Spare::default(),
            crowd: parts.crowd,
            newcomers: VecDeque::new(),
            announced: 0,
            idlers: Idlers::default(),
            trim: Trim::default(),
            again: VecDeque::new(),
            has_news: false,
            has_acted: true,
            shutdown: None,
            completions: Vec::new(),
            expired: VecDeque::new(),
        };
        worker.network.set_accepting(&mut worker.shell.ring, true);
        Ok(worker)
    }

    /// The worker's counters so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.shell.cx.stats.read()
    }

    /// The number of connections that are open now.
    #[must_use]
    pub const fn connections(&self) -> usize {
        self.connections.len()
    }

    /// The bytes of memory that connections hold for themselves, and the buffers that the disk has lent.
    #[must_use]
    pub fn held(&self) -> (u64, usize) {
        (self.shell.cx.budget.own(), self.disk.buffers_lent())
    }

    /// The bytes of memory that connections and cached responses share.
    #[must_use]
    pub fn shared(&self) -> u64 {
        self.shell.cx.budget.shared.charged()
    }

    /// The ring, which has a waker and the clock.
    pub const fn ring(&mut self) -> &mut Ring {
        &mut self.shell.ring
    }

    /// The state of the network's own stack for the operator, with its connections or without, if it has one.
    #[must_use]
    pub fn report(&self, has_connections: bool) -> Option<String> {
        self.network.report(has_connections)
    }

    /// Writes an access log to another file from now on.
    pub fn replace_log(&mut self, log: &Log, file: OwnedFd) {
        let file = self.shell.ring.adopt_file(file);
        self.shell.desk.logs.open(log, file, self.shell.cx.now);
    }

    /// Waits until something happens, but not beyond `until`, and handles everything that has happened.
    ///
    /// # Errors
    ///
    /// When the ring cannot wait; then the worker is of no more use.
    pub fn turn(&mut self, until: Option<Time>) -> io::Result<()> {
        let wants_place = !self.newcomers.is_empty() || self.crowd.is_full();
        let look = wants_place.then_some(self.shell.cx.now + IDLERS_PAUSE);
        let late = self.shutdown.as_ref().and_then(|shutdown| Some(shutdown.late.front()?.0));
        let trim = self.trim.due();
        let Shell { ring, cx, desk, .. } = &mut self.shell;
        let lines = desk.flush_logs(ring, cx);
        let until = Time::earliest([until, look, late, trim, self.wheel.next(), lines]);
        let is_busy = self.has_news
            || !self.again.is_empty()
            || !self.expired.is_empty()
            || self
                .shutdown
                .as_ref()
                .is_some_and(|shutdown| !self.connections.is_end(shutdown.next))
            || self.is_closing()
            || (wants_place && self.idlers.is_looking())
            || self.disk.has_next_waiting()
            || self.handler.wants_turn()
            || self.network.wants_turn();
        let until = if is_busy { Some(self.shell.cx.now) } else { until };
        self.network.flush(&mut self.shell.ring);
        if self.shell.cx.counts && self.has_acted {
            self.network.count(&self.shell.cx.stats);
            let Shell { ring, cx, desk, .. } = &mut self.shell;
            desk.end_turn(ring, cx, &self.disk, self.connections.len());
        }
        self.shell.ring.wait_since(self.shell.cx.now, until, &mut self.completions)?;
        self.shell.tick();
        let is_quiet = self.completions.is_empty();
        if self.shell.cx.counts {
            self.has_acted = is_busy || !self.completions.iter().all(is_of_log);
        }
        let queued = self.again.len();
        self.handle_completions();
        while let Some(event) = self.network.next_of_turn(&mut self.shell.ring) {
            self.handle_event(event);
        }
        if let Some(other) = self.shell.cx.other_protocol.take() {
            let Shell { ring, cx, desk, .. } = &mut self.shell;
            desk.tell_protocol(ring, cx.now, other);
        }
        if let Some((attack, client)) = self.shell.cx.http2_attack.take() {
            self.tell_attack(attack, client);
        }
        self.deliver_answers();
        let acted = self.take_turns(queued)
            | self.serve_line()
            | self.expire()
            | self.end_connections(is_quiet);
        if acted {
            self.has_acted = true;
            self.deliver_answers();
        }
        self.serve_crowd();
        if trim.is_some() && self.trim.is_wanted(self.shell.cx.budget.held(), self.shell.cx.now) {
            ring::trim_heap();
        }
        if self.shell.desk.servings.has_removed() {
            self.drop_removed();
        }
        Ok(())
    }

    /// Tells the operator that a client has reached a limit of HTTP/2 against attacks.
    #[cold]
    fn tell_attack(&mut self, attack: Attack, client: Option<IpAddr>) {
        let client = client.map_or_else(|| "a client".to_owned(), |client| client.to_string());
        let text = format!(
            "{client} reached a limit of HTTP/2 against attacks ({}); closed the connection",
            attack.name()
        );
        self.shell.complain(Complaint::Http2, &text);
    }

    /// Handles completions. Completions for which there is no time stay with the ring, in front of later ones.
    fn handle_completions(&mut self) {
        let until = self.shell.cx.now + PART;
        self.completions.reverse();
        let mut count = 0_usize;
        while let Some(completion) = self.completions.pop() {
            self.handle(completion);
            count += 1;
            if count.is_multiple_of(CLOCK_LOOK) && self.shell.ring.now() >= until {
                self.completions.reverse();
                return self.shell.ring.put_back(&mut self.completions);
            }
        }
    }

    fn handle(&mut self, completion: Completion) {
        match completion.token & kind::MASK {
            kind::RECV | kind::WRITABLE | kind::ACCEPT | kind::RESUME | kind::NETWORK => {
                let event = self.network.handle(&mut self.shell.ring, completion);
                if let Some(event) = event {
                    self.handle_event(event);
                }
                while let Some(event) = self.network.next_event() {
                    self.handle_event(event);
                }
            }
            kind::DISK => self.handle_disk(completion),
            kind::ACCESS | kind::NOTE => {
                let Shell { ring, cx, desk, .. } = &mut self.shell;
                desk.log_written(ring, cx.now, completion);
            }
            // A wake-up of another thread is here, too. It may also be for the caller of `turn`, or for `serve_crowd`:
            // these look in each turn.
            _ => self.handler.handle(&mut self.shell, completion),
        }
    }

    #[inline]
    fn handle_event(&mut self, event: NetEvent<N::Newcomer, N::Bytes>) {
        match event {
            NetEvent::Received(id, bytes) => {
                self.act(id, |connection, tools| connection.handle_received(tools, &bytes));
            }
            NetEvent::Ready(id) => {
                self.act(id, |connection, tools| connection.handle_received(tools, &[]));
            }
            NetEvent::Writable(id) => self.act(id, Connection::handle_writable),
            NetEvent::Ended(id) => self.act(id, Connection::handle_end),
            NetEvent::Stopped(id) => self.act(id, Connection::handle_stopped),
            NetEvent::Lost(id) => self.act(id, |_, _| After::Close(Cut::Client)),
            NetEvent::Accepted(newcomer) => {
                self.newcomers.push_back(newcomer);
                self.admit();
            }
            NetEvent::Resumed => self.admit(),
            NetEvent::Note(text) => self.shell.note(&text),
            NetEvent::Refused(text) => self.shell.complain(Complaint::Handshakes, &text),
            NetEvent::Shortage(error) => {
                self.shell.complain_of_limit(&error);
                self.admit();
            }
        }
    }

    fn handle_disk(&mut self, completion: Completion) {
        // A read for a connection that has gone since gives its buffer back here.
        let mut next = self.disk.handle(&mut self.shell.ring, completion);
        while let Some(file_system) = self.disk.next_unusual() {
            self.shell.note(&file_system.to_string());
        }
        while let Some(silence) = self.disk.next_silence() {
            self.shell.tell_silence(silence);
        }
        while let Some(done) = next.take().or_else(|| self.disk.next_late()) {
            if let Some(device) = done.late_on() {
                self.shell.report_silence(device, None);
            }
            let owner = done.owner;
            self.act(owner.connection, |connection, tools| connection.handle_read(tools, done));
        }
    }

    /// Closes a connection after its next response.
    fn make_next_last(&mut self, id: u64) {
        self.act(id, Connection::make_next_last);
    }

    /// Drops the configurations of removed listeners without connections.
    #[cold]
    fn drop_removed(&mut self) {
        let Self { shell, network, newcomers, .. } = self;
        shell.desk.servings.retain_removed(|listener| {
            network.is_open(listener)
                || newcomers.iter().any(|new| network.origin(new).listener == listener)
        });
    }

    /// Lets a connection act, if it is still open.
    #[inline]
    fn act(
        &mut self,
        id: u64,
        act: impl FnOnce(&mut Connection<S, N::Transport, H::Answer>, &mut Tools<'_, S, H>) -> After,
    ) {
        let Self { connections, shell, disk, handler, spare, .. } = self;
        if let Some(connection) = connections.get_mut(id) {
            let after = act(connection, &mut Tools { id, shell, disk, handler, spare });
            self.settle(id, after);
        }
    }

    /// Follows what a connection has done: watches its deadline, or closes it.
    fn settle(&mut self, id: u64, after: After) {
        if let After::Close(cut) = after {
            return self.close(id, cut);
        }
        if after == After::Again {
            self.again.push_back(id);
        }
        let Some(connection) = self.connections.get_mut(id) else { return };
        connection.note_opening();
        connection.recount(&mut self.shell.cx);
        if let Some(deadline) = connection.deadline(&self.shell)
            && self.wheel.is_later(connection.wheel_tick, deadline)
        {
            connection.wheel_tick = self.wheel.insert(Connections::<()>::index(id), deadline);
        }
    }

    fn close(&mut self, id: u64, cut: Cut) {
        let Some(mut connection) = self.connections.remove(id) else { return };
        self.trim.handle_close(self.shell.cx.budget.held(), self.shell.cx.now);
        if let Some(shutdown) = &mut self.shutdown {
            shutdown.closed_in = self.shell.cx.turn;
        }
        connection.recount(&mut self.shell.cx);
        connection.close(&mut self.shell, id, cut);
        self.disk.leave_line(id);
        self.crowd.leave();
    }

    /// Lets the handler act, and gives connections the answers and the bytes that it has for them. A connection's
    /// reaction may give the handler more to do.
    #[inline]
    fn deliver_answers(&mut self) {
        if self.has_news || self.handler.may_have_news() {
            self.deliver_news();
        }
    }

    fn deliver_news(&mut self) {
        let (mut until, mut left) = (None, DELIVERIES_MAX);
        for _ in 0..NEWS_ROUNDS_MAX {
            let before = left;
            self.handler.act(&mut self.shell);
            while left > 0 && self.deliver_answer() {
                left -= 1;
                // Mostly there is nothing to deliver, and then the clock is not read.
                if left.is_multiple_of(CLOCK_LOOK) {
                    let until = *until.get_or_insert_with(|| self.part_end());
                    left = if self.shell.ring.now() >= until { 0 } else { left };
                }
            }
            self.has_news = left < before || left == 0;
            if !self.has_news || left == 0 {
                return;
            }
        }
    }

    /// Gives one connection what the handler has for it; false if the handler has nothing.
    fn deliver_answer(&mut self) -> bool {
        if let Some((ticket, interim)) = self.handler.next_interim() {
            self.act(ticket.connection, |connection, tools| {
                connection.handle_interim(tools, ticket.request, &interim)
            });
        } else if let Some((ticket, answer)) = self.handler.next_answer() {
            self.act(ticket.connection, |connection, tools| {
                connection.handle_answer(tools, ticket.request, answer)
            });
        } else if let Some(ticket) = self.handler.next_woken() {
            self.act(ticket.connection, |connection, tools| {
                connection.handle_woken(tools, Woken::Request(ticket.request))
            });
        } else {
            return false;
        }
        true
    }

    /// The end of the part of the worker turn that begins now.
    fn part_end(&self) -> Time {
        self.shell.ring.now() + PART
    }

    /// Gives a quantum to connections of the queue, of which the first `queued` entered it before this worker turn; false
    /// if none did.
    fn take_turns(&mut self, queued: usize) -> bool {
        if queued == 0 {
            return false;
        }
        let until = self.part_end();
        for _ in 0..queued.min(AGAIN_MAX) {
            let Some(id) = self.again.pop_front() else { break };
            self.act(id, Connection::handle_turn);
            if self.shell.ring.now() >= until {
                break;
            }
        }
        true
    }

    /// Pumps streams that wait for the disk, and finds buffers for them; false if no stream was pumped.
    fn serve_line(&mut self) -> bool {
        for _ in 0..RECLAIMS_MAX {
            if !self.disk.is_starved() {
                break;
            }
            let Some(owner) = self.disk.next_holder(self.shell.cx.now) else { break };
            self.act(owner.connection, |connection, tools| connection.reclaim(&mut tools.shell.cx));
        }
        let mut until = None;
        for turn in 0..LINE_TURNS_MAX {
            let Some(owner) = self.disk.next_waiting() else { return turn > 0 };
            let until = *until.get_or_insert_with(|| self.part_end());
            self.act(owner.connection, |connection, tools| {
                connection.handle_woken(tools, Woken::Stream(owner.lane))
            });
            if self.shell.ring.now() >= until {
                break;
            }
        }
        true
    }

    /// Acts on deadlines that have passed; false if there is none.
    fn expire(&mut self) -> bool {
        self.wheel.expire(self.shell.cx.now, &mut self.expired);
        let mut until = None;
        for count in 0..EXPIRIES_MAX {
            if until.is_some_and(|until| self.shell.ring.now() >= until) {
                break;
            }
            let Some((index, tick)) = self.expired.pop_front() else { return count > 0 };
            until.get_or_insert_with(|| self.part_end());
            let Self { connections, shell, disk, handler, spare, .. } = self;
            // It may be another connection by now.
            let Some(id) = connections.id_at(index) else { continue };
            // A connection with another tick has an earlier entry in the wheel, which has replaced this one.
            let connection = connections.get_mut(id).filter(|it| it.wheel_tick == tick);
            let Some(connection) = connection else { continue };
            connection.wheel_tick = Tick::MAX;
            let now = shell.cx.now;
            let due = connection.deadline(shell).is_some_and(|deadline| deadline <= now);
            let after = if due {
                connection.handle_deadline(&mut Tools { id, shell, disk, handler, spare })
            } else {
                After::Keep
            };
            self.settle(id, after);
        }
        true
    }

    /// Duplicates of the listening sockets, with the numbers of their listeners.
    ///
    /// # Errors
    ///
    /// Those of `dup(2)`.
    pub fn sockets(&self) -> io::Result<Vec<(u32, OwnedFd)>> {
        self.network.sockets()
    }
}

/// Returns true if a line was written to a log.
const fn is_of_log(completion: &Completion) -> bool {
    matches!(completion.token & kind::MASK, kind::ACCESS | kind::NOTE)
}

impl<S: Session, N: Network, H: Handler> core::fmt::Debug for Worker<S, N, H> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Worker({} connections)", self.connections.len())
    }
}

impl core::fmt::Debug for Parts {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Parts({} listeners)", self.listeners.len())
    }
}
