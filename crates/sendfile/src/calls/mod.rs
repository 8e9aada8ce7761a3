//! Sends, receives and `sendfile`s as calls: begin a call, wait for its completion. The caller needs no loop, no state
//! of a socket and no buffer.
//!
//! The three calls are those of kevent (Polyakov 2006: `aio_send`, `aio_recv`, `aio_sendfile` on one queue of events).
//! A send of a cold file delays nothing else, as with FreeBSD's `sendfile(2)` (Smirnoff 2014).
//!
//! A send has one completion and a stream of its own, and the queue of a socket pumps its first send. So a send that
//! stops before its first byte leaves no trace. A send that stops midway reports how many bytes have left, and breaks
//! its socket. A receive waits until the socket is readable and fills the caller's memory by a direct call. Between two
//! calls nothing in the kernel refers to a caller's memory, so a cancelled call releases it at once. A blocking socket
//! stays blocking and is fed from memory.
//!
//! An operation that is late, or whose call was cancelled, stays in the ring without an owner. It refers to no memory
//! of the caller. The number of such operations is limited by their slots.

mod acknowledgement;
mod operations;
mod parts;
mod reads;
mod stores;
#[cfg(test)]
mod tests;

use core::time::Duration;
use std::collections::VecDeque;
use std::io;

use ring::{Completion, Fault, Fd, Key, Left, Op, Ring, Slab, Time, Token, Waker};

use crate::disk::{Disk, DiskConfig, Owner};
use crate::failure::Failure;
use crate::stream::{Progress, Stream};
use crate::tcp::KernelTcp;
use crate::transport::Transport as _;

use acknowledgement::Acknowledgements;
use operations::{Kind, OnDisk};
use reads::Read;
use stores::Store;

pub use parts::{Call, Done, Full, Outcome, Part, Room, Socket, Stop};

/// The limit of calls in flight and completions that wait for [`Calls::wait`], together; further calls are refused with
/// [`Full`]. Each takes at most 512 bytes in addition to its parameters, so all take 32 MiB.
pub const CALLS_MAX: usize = 65_536;
/// The limit of the bytes of memory that sends in flight keep alive; beyond it, further sends are refused with
/// [`Full`]. One call may exceed it by itself. It is four times the default memory of a [`Disk`], which is for files
/// only.
pub const MEMORY_BYTES_MAX: u64 = 64 << 20;

const _: () = assert!(size_of::<InFlight>() + size_of::<Send>() + size_of::<Done>() <= 512);

/// The maximum of sends of one socket that complete in a turn; then the turns of others come.
const SENDS_PER_TURN: usize = 64;

// Tokens on the ring: a kind, and the key of a call or a socket.
const DISK: Token = 1 << 56;
const CALL: Token = 2 << 56;
const WRITABLE: Token = 3 << 56;
const READABLE: Token = 4 << 56;
const ACKNOWLEDGED: Token = 5 << 56;
const LOOK: Token = 6 << 56;
const KIND: Token = 0xff << 56;

/// One queue for all events that a program waits for: sends, receives, files to be opened and watched, directories to
/// be listed, connections, timers, signals, child processes, and every other operation of a [`Ring`].
///
/// | call | on | completes with |
/// |---|---|---|
/// | [`send`](Self::send) memory and files | a [`Socket`] | [`Outcome::Sent`], once all has left |
/// | [`receive_into`](Self::receive_into) memory | a [`Socket`] | [`Outcome::Received`] |
/// | [`receive_to_file`](Self::receive_to_file) | a [`Socket`] | [`Outcome::Stored`], once all is in the file |
/// | [`read_into`](Self::read_into) memory | a [`File`](crate::File) | [`Outcome::Read`] |
/// | [`acknowledgement`](Self::acknowledgement) of sent bytes | a [`Socket`] | [`Outcome::Acknowledged`] |
/// | [`accept`](Self::accept) connections | a listening [`Fd`] | [`Outcome::Accepted`], for each |
/// | [`connect`](Self::connect) | an [`Address`](ring::Address) | [`Outcome::Connected`] |
/// | [`open`](Self::open) a file to be sent | a directory's [`Fd`] | [`Outcome::Opened`] |
/// | [`list`](Self::list) a directory | a directory's [`Fd`] | [`Outcome::Listed`] |
/// | [`watch_file`](Self::watch_file) | a directory's [`Fd`] | [`Outcome::Watching`], then [`Outcome::Changed`] for each change |
/// | [`timer`](Self::timer) | a [`Time`] | [`Outcome::Timer`] |
/// | [`signal`](Self::signal) | a number | [`Outcome::Signal`], for each |
/// | [`child`](Self::child) | a process | [`Outcome::Exited`] |
/// | [`submit`](Self::submit) any other [`Op`] | | [`Outcome::Event`] |
///
/// A descriptor becomes an [`Fd`] by [`Ring::adopt_socket`] or [`Ring::adopt_file`] of [`ring`](Self::ring), and
/// a connected socket's `Fd` becomes a [`Socket`] by [`adopt`](Self::adopt); from then on the queue closes it. A
/// token is any number that the caller chooses; it comes back with each completion ([`Done`]).
///
/// Only [`wait`](Self::wait) and [`wait_for`](Self::wait_for) sleep, and nothing sleeps on a disk: a send of a cold
/// file delays neither the thread nor another call. A send first does all that is possible immediately, and goes on
/// during `wait`, so call `wait` again and again. Each call completes once. The order of completions is fixed only
/// among the calls of one socket. [`accept`](Self::accept), [`signal`](Self::signal), [`watch_file`](Self::watch_file)
/// and some operations complete several times ([`Done::more`]).
///
/// - Sends on one socket leave in the order of the calls, however slowly their files are read. If a send stops after
///   some of its bytes have left, all sends after it fail, too ([`Stop::Broken`]), because the peer could not find the
///   beginning of the next one. A send that stops before its first byte leaves no trace.
/// - Receives on one socket are filled in the order of the calls.
/// - A *blocking* socket is served in the same way, and stays blocking, but `sendfile(2)` would sleep
///   on it, so files are copied. Set `O_NONBLOCK` to spare the copy.
/// - A queue belongs to the thread that made it. Dropping it ends all calls without completions. Bytes of files with
///   [`Caching::Never`](crate::Caching::Never) leave the page cache some time after they were sent. What is there at the
///   drop is discarded once, within a second; pages that packets still refer to may stay.
///
/// ```
/// use sendfile::{Calls, DiskConfig, Outcome, Part, Room};
/// use std::os::unix::net::UnixStream;
///
/// let mut calls = Calls::new(ring::Ring::new(ring::Choice::Auto)?, DiskConfig::default())?;
/// let (ours, theirs) = UnixStream::pair()?;
/// let ours = calls.adopt(calls.ring().adopt_socket(ours.into()));
/// let theirs = calls.adopt(calls.ring().adopt_socket(theirs.into()));
/// let parts = vec![Part::Static(b"hello, "), Part::Bytes(b"calls".to_vec())];
/// let send = calls.send(ours, parts, 1).expect("the queue is empty");
/// let room = Room::Owned(vec![0; 100]);
/// let receive = calls.receive_into(theirs, room, 2).expect("the queue is empty");
/// let (mut completed, mut done) = (0, Vec::new());
/// while completed < 2 {
///     calls.wait(None, &mut done)?;
///     for one in done.drain(..) {
///         completed += 1;
///         match one.outcome {
///             Outcome::Sent { bytes, end } => assert_eq!((bytes, end), (12, Ok(()))),
///             Outcome::Received { room, end } => {
///                 assert_eq!(&room.bytes()[..end.unwrap()], b"hello, calls");
///             }
///             _ => unreachable!("there are two calls"),
///         }
///     }
/// }
/// # std::io::Result::Ok(())
/// ```
#[derive(Debug)]
pub struct Calls {
    disk: Disk,
    calls: Slab<InFlight>,
    sockets: Slab<SocketQueues>,
    /// The work that can go on now. The sends of a socket have one entry at most, and so has a read.
    turns: VecDeque<Turn>,
    /// Completions that wait for the caller.
    done: Vec<Done>,
    /// Completions of the ring; empty between two waits.
    batch: Vec<Completion>,
    /// The bytes that sends in flight keep alive.
    memory: u64,
    /// The pieces that receives into files have in memory: at most [`stores::PIECES_MAX`].
    pieces: usize,
    /// The receives that wait for one of these; some have ended.
    pieces_line: VecDeque<Call>,
    /// True if a wake-up waits for [`wait`](Self::wait): later ones are the same event.
    is_woken: bool,
    /// If set, files that take longer to be opened, listed or watched fail.
    patience: Option<Duration>,
    /// Dropped last, because the ring closes the descriptors of all others.
    ring: Ring,
}

/// Something that can go on now.
#[derive(Clone, Copy, Debug)]
enum Turn {
    /// The sends of a socket.
    Send(Socket),
    /// The receives of a socket.
    Receive(Socket),
    /// A read of a file.
    Read(Call),
}

#[derive(Debug)]
struct InFlight {
    token: Token,
    work: Work,
}

#[derive(Debug)]
enum Work {
    Send(Box<Send>),
    Receive {
        socket: Socket,
        room: Room,
    },
    Store(Box<Store>),
    Read(Box<Read>),
    /// The operation in flight, and the file once it is open.
    Open {
        op: OnDisk,
        file: Option<Fd>,
    },
    /// Ends once the peer has acknowledged this many bytes.
    Acknowledgement {
        socket: Socket,
        bytes: u64,
    },
    /// The operation in flight: the directory is opened, and then read.
    List {
        op: OnDisk,
        entries_max: usize,
    },
    WatchFile(OnDisk),
    /// One operation; its completions are the call's completions.
    Op {
        op: Key,
        kind: Kind,
    },
}

#[derive(Debug)]
struct Send {
    socket: Socket,
    stream: Stream,
    /// The bytes that it adds to [`Calls::memory`].
    memory: u64,
}

/// A socket, and the calls that wait for it.
#[derive(Debug)]
struct SocketQueues {
    transport: KernelTcp,
    /// The first is being sent.
    sends: VecDeque<Call>,
    /// The first is filled next.
    receives: VecDeque<Call>,
    /// `Some` while the ring waits for the socket to have something to read.
    readable: Option<Key>,
    /// True if a send has left in part.
    is_broken: bool,
    /// True if a receive into a file has lost bytes.
    has_lost: bool,
    /// True if its sends are among [`Calls::turns`].
    is_queued: bool,
    /// The bytes of the sends that have ended.
    sent: u64,
    /// The bytes that the peer had acknowledged at the last look.
    acknowledged: u64,
    /// True once a receive has found that the peer of a Unix socket has left bytes unread; the kernel says it once.
    is_unread: bool,
    /// `Some` once a call has waited for acknowledgements.
    acknowledgements: Option<Box<Acknowledgements>>,
}

impl Calls {
    /// Makes a queue over a ring, which it owns from now on. It chooses the tokens of the disk, so
    /// [`DiskConfig::token_base`] is not used. [`DiskConfig::patience`] holds for all calls: see
    /// [`set_patience`](Self::set_patience).
    ///
    /// # Errors
    ///
    /// The errors of `mmap(2)`.
    pub fn new(ring: Ring, config: DiskConfig) -> io::Result<Self> {
        Ok(Self {
            patience: config.patience,
            ring,
            disk: Disk::new(DiskConfig { token_base: DISK, ..config })?,
            calls: Slab::new(),
            sockets: Slab::new(),
            turns: VecDeque::new(),
            done: Vec::new(),
            batch: Vec::new(),
            memory: 0,
            pieces: 0,
            pieces_line: VecDeque::new(),
            is_woken: false,
        })
    }

    /// Sets the patience with disks from now on; `None` is no limit. A send of which one read takes longer fails with
    /// [`Failure::Late`]. An [`open`](Self::open), a [`list`](Self::list) or a [`watch_file`](Self::watch_file) that
    /// has not begun fails with [`ErrorKind::TimedOut`](io::ErrorKind::TimedOut) if all its operations together take
    /// longer. Calls from before this keep their patience. While a device does not answer, its further reads fail at
    /// once, except one in each such time.
    ///
    /// A late operation cannot be cancelled: it keeps a slot of its device until the device answers.
    pub const fn set_patience(&mut self, patience: Option<Duration>) {
        self.patience = patience;
        self.disk.set_patience(patience);
    }

    /// The ring, to adopt descriptors and to ask for the time.
    #[must_use]
    pub const fn ring(&self) -> &Ring {
        &self.ring
    }

    /// Calls in flight.
    #[must_use]
    pub const fn in_flight(&self) -> usize {
        self.calls.len()
    }

    /// Calls in flight, and completions that wait for [`wait`](Self::wait): [`CALLS_MAX`] bounds both together.
    #[must_use]
    pub const fn pending(&self) -> usize {
        self.calls.len() + self.done.len()
    }

    /// Returns whether a completion of this call will come, or waits for [`wait`](Self::wait).
    #[must_use]
    pub fn is_pending(&self, call: Call) -> bool {
        self.calls.get(call.0).is_some() || self.done.iter().any(|one| one.call == call)
    }

    /// Adds a connected stream socket, TCP or Unix, blocking or not.
    pub fn adopt(&mut self, socket: Fd) -> Socket {
        let is_blocking = self.ring.is_blocking(&socket);
        let new = |key: Key| {
            let transport =
                KernelTcp::new(socket, READABLE | key.to_bits(), WRITABLE | key.to_bits());
            SocketQueues {
                transport: if is_blocking { transport.of_memory() } else { transport },
                sends: VecDeque::new(),
                receives: VecDeque::new(),
                readable: None,
                is_broken: false,
                has_lost: false,
                is_queued: false,
                sent: 0,
                acknowledged: 0,
                is_unread: false,
                acknowledgements: None,
            }
        };
        Socket(self.sockets.insert_with(new))
    }

    /// Returns whether a socket has not been closed.
    #[must_use]
    pub fn is_open(&self, socket: Socket) -> bool {
        self.sockets.get(socket.0).is_some()
    }

    /// Ends our side (`shutdown(2)`): the peer sees the end of the stream after the sent bytes. Sends in flight fail,
    /// so wait for them first.
    pub fn shutdown(&mut self, socket: Socket) {
        if let Some(queues) = self.sockets.get_mut(socket.0) {
            queues.transport.shutdown(&mut self.ring);
            // A Unix socket that is full does not say that it accepts nothing any more, but a send that is tried fails.
            queues.transport.stop_waiting(&mut self.ring);
            self.pump(socket);
        }
    }

    /// Closes a socket: the peer sees that when [`wait`](Self::wait) is called next. Its calls in flight
    /// complete with [`Stop::Closed`], and use their memory no more when this returns.
    pub fn close(&mut self, socket: Socket) {
        let Some(mut queues) = self.sockets.remove(socket.0) else { return };
        queues.transport.close(&mut self.ring);
        if let Some(op) = queues.readable {
            self.ring.cancel(op);
        }
        for call in queues.sends {
            self.end_send(call, Err(Stop::Closed));
        }
        for call in queues.receives {
            self.stop_receive(call, Stop::Closed);
        }
        let Some(acknowledgements) = queues.acknowledgements else { return };
        let Acknowledgements { calls, reports, look } = *acknowledgements;
        for op in reports.into_iter().chain(look) {
            self.ring.cancel(op);
        }
        for call in calls {
            self.end_acknowledgement(call, Err(Stop::Closed));
        }
    }

    /// Sends parts in their order, as one call: [`Outcome::Sent`] when the kernel has taken all. Bytes that can leave
    /// now leave before this returns. Only the first call of a socket prefetches its files.
    ///
    /// Memory is copied into the kernel (`send(2)`). `IORING_OP_SEND_ZC` would avoid the copy where a network card
    /// reads the memory. To a receiver on the same machine, over loopback or over a veth pair between two network
    /// namespaces, the kernel still copies: on Linux 6.18 each of its notifications said so
    /// (`IORING_NOTIF_USAGE_ZC_COPIED`). CPU seconds of the sender per GiB, plain and zero-copy, medians of three
    /// rounds: loopback 0.20 and 0.21 with sends of 64 KiB, 0.15 and 0.15 with 256 KiB, 0.14 and 0.14 with 1 MiB; veth
    /// 0.22 and 0.21, 0.33 and 0.32, 0.17 and 0.14. The last pair moves the copy to the receiver's side: the whole
    /// machine used 1.1 and 2.0. Registered memory (`IORING_RECVSEND_FIXED_BUF`) changed nothing beyond the noise. So
    /// this crate has no such send.
    ///
    /// # Errors
    ///
    /// [`Full`] beyond [`CALLS_MAX`] and [`MEMORY_BYTES_MAX`]; nothing has been done then.
    ///
    /// # Panics
    ///
    /// If a range ends beyond its file's size or buffer, or before it starts, or if the parts have 2⁶⁴ bytes or more.
    pub fn send(
        &mut self,
        socket: Socket,
        parts: Vec<Part>,
        token: Token,
    ) -> Result<Call, Full<Vec<Part>>> {
        if !self.has_room() || self.memory >= MEMORY_BYTES_MAX {
            return Err(Full(parts));
        }
        let mut stream = Stream::new();
        for part in parts {
            part.promise(&mut stream);
        }
        let weight = stream.weight();
        let memory = weight.own + weight.shared;
        self.memory += memory;
        let call = self.begin(token, Work::Send(Box::new(Send { socket, stream, memory })));
        match self.sockets.get_mut(socket.0) {
            None => self.end_send(call, Err(Stop::Closed)),
            Some(queues) if queues.is_broken => self.end_send(call, Err(Stop::Broken)),
            Some(queues) => {
                queues.sends.push_back(call);
                if queues.sends.len() == 1 {
                    self.pump(socket);
                }
            }
        }
        Ok(call)
    }

    /// Receives the next bytes, at least one, into the front of `room`: [`Outcome::Received`]. Without room it receives
    /// nothing, which looks like the end.
    ///
    /// # Errors
    ///
    /// [`Full`] beyond [`CALLS_MAX`]; nothing has been done then.
    pub fn receive_into(
        &mut self,
        socket: Socket,
        room: Room,
        token: Token,
    ) -> Result<Call, Full<Room>> {
        if !self.has_room() {
            return Err(Full(room));
        }
        let call = self.begin(token, Work::Receive { socket, room });
        self.line_up(socket, call);
        Ok(call)
    }

    /// Puts a receive behind the others of its socket.
    fn line_up(&mut self, socket: Socket, call: Call) {
        match self.sockets.get_mut(socket.0) {
            None => _ = self.stop_receive(call, Stop::Closed),
            Some(queues) if queues.has_lost => _ = self.stop_receive(call, Stop::Broken),
            Some(queues) => {
                queues.receives.push_back(call);
                if queues.readable.is_none() && queues.receives.len() == 1 {
                    self.receive(socket);
                }
            }
        }
    }

    /// Ends a call. A send or a receive completes with [`Stop::Cancelled`], and no longer uses its memory when this
    /// returns. A call for a file completes with `ECANCELED`, although a disk that does not answer keeps its operation.
    /// Any other call completes with `ECANCELED` or with an earlier result. A call that has completed is passed over.
    pub fn cancel(&mut self, call: Call) {
        match self.calls.get(call.0).map(|one| &one.work) {
            None => {}
            Some(Work::Send(send)) => {
                let socket = send.socket;
                self.end_send(call, Err(Stop::Cancelled));
                self.pump(socket);
            }
            Some(Work::Receive { .. } | Work::Store(_)) => {
                let socket = self.stop_receive(call, Stop::Cancelled);
                self.go_on_receiving(socket);
            }
            Some(Work::Read(_)) => self.end_read(call, Err(Stop::Cancelled)),
            Some(Work::Acknowledgement { .. }) => {
                self.end_acknowledgement(call, Err(Stop::Cancelled));
            }
            Some(Work::Open { .. } | Work::List { .. } | Work::WatchFile(_)) => {
                self.end_on_disk(call, ring::cancelled());
            }
            Some(Work::Op { op, .. }) => self.ring.cancel(*op),
        }
    }

    /// Makes a waker of this queue for other threads. Each wake-up is an [`Outcome::Event`] with
    /// [`Event::Woken`](ring::Event::Woken), without a call, with the token of the first request for the waker.
    ///
    /// # Errors
    ///
    /// As [`Ring::waker`].
    pub fn waker(&mut self, token: Token) -> io::Result<Waker> {
        self.ring.waker(token)
    }

    /// Goes on with all calls, and sleeps until one has completed or the clock has reached `until`;
    /// `None` is no limit, a time that has passed means "only look". Replaces the contents of `done`,
    /// which stay empty if the time came first.
    ///
    /// # Errors
    ///
    /// As [`Ring::wait`]: when the kernel refuses to wait for good. Give up the queue then.
    pub fn wait(&mut self, until: Option<Time>, done: &mut Vec<Done>) -> io::Result<()> {
        done.clear();
        self.go_on(until, |done| !done.is_empty())?;
        self.is_woken = false;
        core::mem::swap(&mut self.done, done);
        Ok(())
    }

    /// As [`wait`](Self::wait), until this call has completed; for a call that completes several times, until its next
    /// completion. The completions of other calls stay for `wait`. `None` means that the time came first, or that the
    /// call is not [pending](Self::is_pending).
    ///
    /// A program without other work can make a call and wait for it, as with `sendfile(2)` on a blocking socket. A disk
    /// that a send waits for does not delay the other calls meanwhile.
    ///
    /// The completions of an accept in flight have no limit meanwhile, and each holds a socket: cancel it before a long
    /// wait.
    ///
    /// # Errors
    ///
    /// The errors of [`wait`](Self::wait).
    pub fn wait_for(&mut self, call: Call, until: Option<Time>) -> io::Result<Option<Done>> {
        if !self.is_pending(call) {
            return Ok(None);
        }
        self.go_on(until, |done| done.iter().any(|one| one.call == call))?;
        let at = self.done.iter().position(|one| one.call == call);
        Ok(at.map(|at| self.done.remove(at)))
    }

    /// Goes on with all calls until something has come among the completions, or the clock has reached `until`.
    fn go_on(&mut self, until: Option<Time>, has_come: impl Fn(&[Done]) -> bool) -> io::Result<()> {
        loop {
            for _ in 0..self.turns.len() {
                match self.turns.pop_front() {
                    Some(Turn::Send(socket)) => {
                        if let Some(queues) = self.sockets.get_mut(socket.0) {
                            queues.is_queued = false;
                        }
                        self.pump(socket);
                    }
                    Some(Turn::Receive(socket)) => self.go_on_receiving(socket),
                    Some(Turn::Read(call)) => {
                        if let Some(InFlight { work: Work::Read(read), .. }) =
                            self.calls.get_mut(call.0)
                        {
                            read.is_queued = false;
                        }
                        self.pump_read(call);
                    }
                    None => break,
                }
            }
            self.serve_line();
            let at_once = has_come(&self.done) || !self.turns.is_empty();
            let until_now = if at_once { Some(self.ring.now()) } else { until };
            let mut batch = core::mem::take(&mut self.batch);
            let waited = self.ring.wait(until_now, &mut batch);
            for completion in batch.drain(..) {
                self.handle(completion);
            }
            self.batch = batch;
            waited?;
            if has_come(&self.done) || until.is_some_and(|until| self.ring.now() >= until) {
                return Ok(());
            }
        }
    }

    const fn has_room(&self) -> bool {
        self.pending() < CALLS_MAX
    }

    fn begin(&mut self, token: Token, work: Work) -> Call {
        Call(self.calls.insert(InFlight { token, work }))
    }

    /// Handles a completion of the ring.
    fn handle(&mut self, completion: Completion) {
        let key = Key::from_bits(completion.token);
        if completion.key == Key::NONE {
            if core::mem::replace(&mut self.is_woken, true) {
                return;
            }
            return self.complete(
                Call(Key::NONE),
                completion.token,
                Outcome::Event(completion.result),
                true,
            );
        }
        match completion.token & KIND {
            DISK => self.handle_read(completion),
            CALL => self.handle_op(Call(key), completion),
            WRITABLE => {
                if let Some(queues) = self.sockets.get_mut(key) {
                    queues.transport.handle_writable();
                    self.pump(Socket(key));
                }
            }
            READABLE => {
                if let Some(queues) = self.sockets.get_mut(key) {
                    queues.readable = None;
                    self.receive(Socket(key));
                }
            }
            ACKNOWLEDGED => self.look(Socket(key)),
            LOOK => {
                let acknowledgements =
                    self.sockets.get_mut(key).and_then(|queues| queues.acknowledgements.as_mut());
                if let Some(acknowledgements) = acknowledgements {
                    acknowledgements.look = None;
                    self.look(Socket(key));
                }
            }
            _ => unreachable!("a token of this queue"),
        }
    }

    fn handle_read(&mut self, completion: Completion) {
        // A read of a call that has ended only gives back its buffer.
        let mut next = self.disk.handle(&mut self.ring, completion);
        // These reports are for an operator, and calls have none.
        while self.disk.next_silence().is_some() {}
        while let Some(read) = next.take().or_else(|| self.disk.next_late()) {
            let call = Key::from_bits(read.owner.connection);
            match self.calls.get_mut(call).map(|one| &mut one.work) {
                Some(Work::Send(send)) => {
                    send.stream.handle_read(read);
                    let socket = send.socket;
                    self.pump(socket);
                }
                Some(Work::Read(one)) => {
                    one.stream.handle_read(read);
                    self.pump_read(Call(call));
                }
                _ => {}
            }
        }
    }

    /// Sends what can be sent now on a socket.
    fn pump(&mut self, socket: Socket) {
        for _ in 0..SENDS_PER_TURN {
            let Some(queues) = self.sockets.get_mut(socket.0) else { return };
            let Some(&call) = queues.sends.front() else { return };
            let Some(InFlight { work: Work::Send(send), .. }) = self.calls.get_mut(call.0) else {
                unreachable!("a call leaves the queue when it ends")
            };
            let (ring, disk, transport) = (&mut self.ring, &mut self.disk, &mut queues.transport);
            let end = match send.stream.pump(ring, disk, transport, owner(call)) {
                Progress::Blocked | Progress::Waiting => return,
                Progress::More => break,
                Progress::Drained => Ok(()),
                Progress::Failed(failure) => Err(Stop::Failed(failure)),
            };
            self.end_send(call, end);
        }
        if let Some(queues) = self.sockets.get_mut(socket.0)
            && !core::mem::replace(&mut queues.is_queued, true)
        {
            self.turns.push_back(Turn::Send(socket));
        }
    }

    /// Fills the receives of a socket, unless the ring waits for the socket to have something to read.
    fn go_on_receiving(&mut self, socket: Socket) {
        if self.sockets.get(socket.0).is_some_and(|queues| queues.readable.is_none()) {
            self.receive(socket);
        }
    }

    /// Fills the receives of a socket that can be filled now.
    fn receive(&mut self, socket: Socket) {
        while let Some(queues) = self.sockets.get_mut(socket.0)
            && let Some(&call) = queues.receives.front()
        {
            let room = match self.calls.get_mut(call.0).map(|one| &mut one.work) {
                Some(Work::Receive { room, .. }) => room,
                Some(Work::Store(_)) => {
                    if self.store(call) {
                        continue;
                    }
                    return;
                }
                _ => unreachable!("a call leaves the queue when it ends"),
            };
            let fd = queues.transport.socket();
            let received = self.ring.receive(fd, room.bytes_mut());
            let end = match received.map_err(|error| Fault::of(&error)) {
                Ok(count) => Ok(count),
                Err(Fault::Interrupted) => continue,
                Err(Fault::Blocked) => {
                    let token = READABLE | socket.to_bits();
                    queues.readable = Some(self.ring.submit(Op::Readable(fd.clone()), token));
                    return;
                }
                Err(fault) => {
                    // An error of a Unix socket whose peer has left means that the peer has not read all
                    // (`unix_release_sock`).
                    queues.is_unread |= self.ring.has_left(fd) == Some(Left::Read);
                    Err(Stop::Failed(Failure::of_send(fault)))
                }
            };
            self.end_receive(call, end);
        }
    }

    /// Completes a send. A send that stopped after a part of it had left breaks its socket.
    fn end_send(&mut self, call: Call, end: Result<(), Stop>) {
        let Some(InFlight { token, work: Work::Send(send) }) = self.calls.remove(call.0) else {
            unreachable!("only sends end here")
        };
        self.memory -= send.memory;
        self.disk.leave_line(owner(call).connection);
        let bytes = send.stream.sent();
        self.complete(call, token, Outcome::Sent { bytes, end }, false);
        let Some(queues) = self.sockets.get_mut(send.socket.0) else { return };
        leave(&mut queues.sends, call);
        queues.sent += bytes;
        if end.is_err() && bytes > 0 {
            queues.is_broken = true;
            // Nothing of these sends has left, so they break nothing more.
            for behind in core::mem::take(&mut queues.sends) {
                self.end_send(behind, Err(Stop::Broken));
            }
        }
    }

    fn end_receive(&mut self, call: Call, end: Result<usize, Stop>) {
        let Some(InFlight { token, work }) = self.calls.remove(call.0) else {
            unreachable!("a call ends once")
        };
        let Work::Receive { socket, room } = work else { unreachable!("only receives end here") };
        self.complete(call, token, Outcome::Received { room, end }, false);
        self.leave_receives(socket, call, false);
    }

    /// Completes a receive into memory or a file early, and returns its socket.
    fn stop_receive(&mut self, call: Call, stop: Stop) -> Socket {
        match self.calls.get(call.0).map(|one| &one.work) {
            Some(Work::Receive { socket, .. }) => {
                let socket = *socket;
                self.end_receive(call, Err(stop));
                socket
            }
            Some(Work::Store(store)) => {
                let socket = store.socket();
                self.end_store(call, Err(stop));
                socket
            }
            _ => unreachable!("only receives end here"),
        }
    }

    /// Takes a receive out of the queue of its socket. If it has lost bytes, those after it end, too.
    fn leave_receives(&mut self, socket: Socket, call: Call, has_lost: bool) {
        let Some(queues) = self.sockets.get_mut(socket.0) else { return };
        leave(&mut queues.receives, call);
        queues.has_lost |= has_lost;
        if has_lost {
            for behind in core::mem::take(&mut queues.receives) {
                self.stop_receive(behind, Stop::Broken);
            }
        }
    }

    fn complete(&mut self, call: Call, token: Token, outcome: Outcome, more: bool) {
        self.done.push(Done { call, token, outcome, more });
    }

    /// Gives buffers to the sends that wait for one, and takes buffers from sends whose peers receive nothing.
    fn serve_line(&mut self) {
        while self.disk.is_starved()
            && let Some(owner) = self.disk.next_holder(self.ring.now())
        {
            let call = Key::from_bits(owner.connection);
            let now = self.ring.now();
            match self.calls.get_mut(call).map(|one| &mut one.work) {
                // A call ends for its socket or its file alone: a peer that acknowledges nothing is the caller's to
                // judge.
                Some(Work::Send(send)) => _ = send.stream.reclaim(now),
                Some(Work::Read(read)) => _ = read.stream.reclaim(now),
                _ => {}
            }
        }
        while let Some(owner) = self.disk.next_waiting() {
            let call = Key::from_bits(owner.connection);
            match self.calls.get(call).map(|one| &one.work) {
                Some(Work::Send(send)) => {
                    let socket = send.socket;
                    self.pump(socket);
                }
                Some(Work::Read(_)) => self.pump_read(Call(call)),
                _ => {}
            }
        }
    }
}

impl Drop for Calls {
    /// Sends of files that are not to stay in the page cache leave pages there until their peers may have acknowledged
    /// them. A program that ends soon discards what it can: once, in the time that the ring has for its drop.
    fn drop(&mut self) {
        self.calls = Slab::new();
        let began = self.ring.now();
        let limit = self.ring.drop_limit();
        self.disk.discard_last(&mut self.ring, limit.map(|limit| began + limit));
        let took = self.ring.now().since(began);
        self.ring.set_drop_limit(limit.map(|limit| limit.saturating_sub(took)));
    }
}

/// The name of a call's stream.
const fn owner(call: Call) -> Owner {
    Owner::of(call.to_bits())
}

/// Takes a call out of a queue; most are at its head.
fn leave(queue: &mut VecDeque<Call>, call: Call) {
    if queue.front() == Some(&call) {
        queue.pop_front();
    } else {
        queue.retain(|other| *other != call);
    }
}
