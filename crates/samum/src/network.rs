//! The networks that accept connections, and the events of connections, which have one form for every stack.
//!
//! A connection is accepted, received from, writable, acknowledged, ended, stopped or lost, and accepting pauses and
//! resumes. [`Listeners`] is the kernel's network. A network defines its own type of received bytes, so these may be a
//! part of a larger read. A stack of our own is one more descriptor in the ring, with a token kind of its own.
//!
//! The worker is generic over network, session and handler. `tests/seams` has others than the binary: records (TLS),
//! segments that are sent again (TCP), bodies that are made or echoed bit by bit (a proxy), and several responses in
//! frames (HTTP/2).

use core::fmt;
use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};
use std::io::{self, ErrorKind};

use ring::{Completion, Event, Fd, Key, Op, RecvBuf, Ring, Token};
use rustix::io::Errno;
use sendfile::{KernelTcp, Takes, Transport};

pub use session::network::{Known, NetEvent, Network, Origin, Peer};

use crate::listen::BACKLOG_MAX;
use session::shell::{id_of, kind};

/// The pause after descriptors have run out; then accepting is tried again.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// The most connections that are accepted before a removed listener is closed: the length of its accept queue. Without
/// this limit, connections that come meanwhile would keep the listener open.
const LAST_MAX: usize = BACKLOG_MAX;
/// The most connections that a removed listener accepts in one worker turn.
const LAST_TURN_MAX: usize = 64;
const ECANCELED: i32 = Errno::CANCELED.raw_os_error();

/// Listening sockets of the kernel's TCP, or Unix sockets.
///
/// `F` makes the transport of each connection. It is given the connection's socket and the number of
/// the listener that accepted it. [`new`](Self::new) uses [`KernelTcp`] itself.
pub struct Listeners<F = fn(KernelTcp, usize) -> KernelTcp> {
    takes: Option<Takes>,
    /// The listeners by number. A number is not used again for another listener.
    all: BTreeMap<u32, Listener>,
    /// The connections that waited at listeners when they were removed.
    left: VecDeque<Newcomer>,
    closed: bool,
    make: F,
}

/// A connection that one of the [`Listeners`] has accepted.
#[derive(Debug)]
pub struct Newcomer {
    socket: Fd,
    /// The number of the listener.
    listener: u32,
}

struct Listener {
    socket: Fd,
    state: Accepting,
    /// Some exactly while the listener is being emptied before its close: the number of connections that it may still
    /// accept.
    last: Option<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Accepting {
    Armed(Key),
    /// The accept was cancelled, and has not ended yet.
    Stopping(Key),
    /// A timer runs, because descriptors have run out or this turn has accepted enough.
    Paused,
    Stopped,
}

impl Listeners {
    /// Takes listening sockets, whose numbers are their indices. Their connections use the kernel's TCP as it is.
    #[must_use]
    pub fn new(sockets: Vec<Fd>) -> Self {
        Self::numbered((0..).zip(sockets))
    }

    /// Takes sockets that listen, with their numbers; their connections have no transport but the kernel's.
    #[must_use]
    pub fn numbered(sockets: impl IntoIterator<Item = (u32, Fd)>) -> Self {
        let mut listeners = Self::with(Vec::new(), |tcp, _| tcp);
        sockets.into_iter().for_each(|(number, socket)| listeners.insert(number, socket));
        listeners
    }
}

impl<F> Listeners<F> {
    /// Takes listening sockets, whose numbers are their indices, and a function that makes the transports of their
    /// connections.
    #[must_use]
    pub fn with(sockets: Vec<Fd>, make: F) -> Self {
        let (all, left) = (BTreeMap::new(), VecDeque::new());
        let takes = Some(Takes::Files);
        let mut listeners = Self { takes, all, left, closed: false, make };
        for (number, socket) in (0..).zip(sockets) {
            listeners.insert(number, socket);
        }
        listeners
    }

    /// The same with transports that all take this, or each its own.
    #[must_use]
    pub const fn taking(mut self, takes: Option<Takes>) -> Self {
        self.takes = takes;
        self
    }

    fn insert(&mut self, number: u32, socket: Fd) {
        let listener = Listener { socket, state: Accepting::Stopped, last: None };
        let before = self.all.insert(number, listener);
        debug_assert!(before.is_none(), "no number is used twice");
    }

    /// Accepts the connections that wait at a removed listener, and closes the listener. While descriptors are short,
    /// the listener stays open.
    fn empty(&mut self, ring: &mut Ring, number: u32) {
        let Some(listener) = self.all.get_mut(&number) else { return };
        for _ in 0..LAST_TURN_MAX {
            if listener.last == Some(0) {
                break;
            }
            match ring.accept(&listener.socket) {
                Ok(socket) => {
                    listener.last = listener.last.map(|last| last - 1);
                    self.left.push_back(Newcomer { socket, listener: number });
                }
                // The peer closed the connection before it was accepted: not an error of the listener.
                Err(error)
                    if [ErrorKind::ConnectionAborted, ErrorKind::Interrupted]
                        .contains(&error.kind()) => {}
                Err(error) if is_shortage(&error) => {
                    return listener.pause(ring, number, ACCEPT_PAUSE);
                }
                Err(_) => listener.last = Some(0),
            }
        }
        if listener.last != Some(0) {
            return listener.pause(ring, number, Duration::ZERO);
        }
        self.all.remove(&number);
    }

    fn handle_accept(
        &mut self,
        ring: &mut Ring,
        completion: Completion,
    ) -> Option<NetEvent<Newcomer>> {
        let number = number_of(completion.token);
        let listener = self.all.get_mut(&number).expect("kept while it accepts");
        if !completion.more {
            listener.state = Accepting::Stopped;
        }
        let is_last = listener.last.is_some() && !completion.more;
        match completion.result {
            Ok(Event::Accepted(socket)) => {
                if is_last {
                    self.empty(ring, number);
                }
                Some(NetEvent::Accepted(Newcomer { socket, listener: number }))
            }
            Ok(event) => unreachable!("an accept brought {event:?}"),
            Err(_) if is_last => {
                self.empty(ring, number);
                self.next_left()
            }
            Err(error) if error.raw_os_error() == Some(ECANCELED) => Some(NetEvent::Resumed),
            Err(error) => {
                listener.pause(ring, number, ACCEPT_PAUSE);
                Some(NetEvent::Shortage(error))
            }
        }
    }

    /// Accepts again after a pause: descriptors may be free by now.
    fn resume(&mut self, ring: &mut Ring, number: u32) -> Option<NetEvent<Newcomer>> {
        // A removed listener that was emptied is no longer in the map.
        let listener = self.all.get_mut(&number)?;
        if listener.state != Accepting::Paused {
            return None;
        }
        listener.state = Accepting::Stopped;
        if listener.last.is_some() {
            self.empty(ring, number);
            return self.next_left();
        }
        Some(NetEvent::Resumed)
    }

    fn next_left(&mut self) -> Option<NetEvent<Newcomer>> {
        self.left.pop_front().map(NetEvent::Accepted)
    }
}

impl Listener {
    /// Pauses accepting at a listener; a timer ends the pause.
    fn pause(&mut self, ring: &mut Ring, number: u32, pause: Duration) {
        self.state = Accepting::Paused;
        let at = ring.now() + pause;
        ring.submit(Op::Timer(at), kind::RESUME | u64::from(number));
    }
}

/// The number of a listener in a token.
fn number_of(token: Token) -> u32 {
    u32::try_from(id_of(token)).expect("the number of a listener")
}

/// Returns true for errors after which an accept may succeed later.
fn is_shortage(error: &io::Error) -> bool {
    let all = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM];
    all.iter().any(|one| error.raw_os_error() == Some(one.raw_os_error()))
}

impl<T: Transport, F: FnMut(KernelTcp, usize) -> T> Network for Listeners<F> {
    type Transport = T;
    type Newcomer = Newcomer;
    type Bytes = RecvBuf;

    fn takes(&self) -> Option<Takes> {
        self.takes
    }

    fn set_accepting(&mut self, ring: &mut Ring, on: bool) {
        for (number, listener) in &mut self.all {
            match listener.state {
                Accepting::Armed(key) if !on => {
                    ring.cancel(key);
                    listener.state = Accepting::Stopping(key);
                }
                Accepting::Stopped if on && listener.last.is_none() => {
                    let op = Op::Accept(listener.socket.clone());
                    listener.state =
                        Accepting::Armed(ring.submit(op, kind::ACCEPT | u64::from(*number)));
                }
                _ => {}
            }
        }
    }

    #[inline]
    fn handle(&mut self, ring: &mut Ring, completion: Completion) -> Option<NetEvent<Newcomer>> {
        let id = id_of(completion.token);
        match completion.token & kind::MASK {
            kind::RECV => Some(match completion.result {
                Ok(Event::Received(bytes)) => NetEvent::Received(id, bytes),
                Ok(Event::Eof) => NetEvent::Ended(id),
                Ok(event) => unreachable!("a receive brought {event:?}"),
                Err(error) if error.raw_os_error() == Some(ECANCELED) => NetEvent::Stopped(id),
                Err(_) => NetEvent::Lost(id),
            }),
            // If the poll has failed, the next send returns the error.
            kind::WRITABLE => Some(NetEvent::Writable(id)),
            kind::ACCEPT => self.handle_accept(ring, completion),
            kind::RESUME => self.resume(ring, number_of(completion.token)),
            _ => unreachable!("no operation of a network has the token {:x}", completion.token),
        }
    }

    fn open(&mut self, ring: &mut Ring, newcomer: Newcomer, id: u64) -> T {
        let mut tcp = KernelTcp::new(newcomer.socket, kind::RECV | id, kind::WRITABLE | id);
        tcp.set_receiving(ring, true);
        (self.make)(tcp, newcomer.listener as usize)
    }

    fn origin(&self, newcomer: &Newcomer) -> Origin {
        let listener = newcomer.listener;
        Origin { listener, peer: Peer::Socket(newcomer.socket.clone()) }
    }

    #[inline]
    fn next_event(&mut self) -> Option<NetEvent<Newcomer>> {
        self.next_left()
    }

    fn is_open(&self, listener: u32) -> bool {
        self.all.contains_key(&listener)
    }

    fn add(&mut self, number: u32, socket: Fd) {
        self.insert(number, socket);
    }

    fn remove(&mut self, ring: &mut Ring, number: u32) {
        let Some(listener) = self.all.get_mut(&number) else { return };
        listener.last = Some(LAST_MAX);
        match listener.state {
            Accepting::Armed(key) => {
                ring.cancel(key);
                listener.state = Accepting::Stopping(key);
            }
            Accepting::Stopping(_) => {}
            Accepting::Paused | Accepting::Stopped => self.empty(ring, number),
        }
    }

    fn close(&mut self, ring: &mut Ring) {
        self.closed = true;
        let all: Vec<u32> = self.all.keys().copied().collect();
        all.into_iter().for_each(|number| self.remove(ring, number));
    }

    fn is_closed(&self) -> bool {
        self.closed && self.all.is_empty() && self.left.is_empty()
    }
}

impl<F> fmt::Debug for Listeners<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Listeners({})", self.all.len())
    }
}
