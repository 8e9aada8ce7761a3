//! The networks that accept connections, and the events of connections, which have one form for every stack.
//!
//! The events are in [`NetEvent`]. [`Listeners`] is the kernel's network. A network defines its own type of received
//! bytes, because these bytes may be a part of a larger read. The own TCP/IP stack is one more descriptor in the ring,
//! with a token kind of its own.
//!
//! The worker is generic over network, session and handler. `tests/seams` has small test versions of parts that the
//! binary has (TLS, a TCP stack of its own, a proxy), and versions of parts that the binary does not have yet.

use core::fmt;
use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;

use ring::{Completion, Event, Fd, Key, Op, RecvBuf, Ring, Token};
use rustix::io::Errno;
use sendfile::{KernelTcp, Takes, Transport};

pub use session::network::{Known, NetEvent, Network, Origin, Peer};

use crate::listen::BACKLOG_MAX;
use session::kind::{self, id_of};

/// The pause after descriptors have run out; then accepting is tried again.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// The most connections that are accepted before a removed listener is closed: the length of its accept queue. Without
/// this limit, connections that come meanwhile would keep the listener open.
const LAST_MAX: usize = BACKLOG_MAX;
/// The most connections that a removed listener accepts in one worker turn.
const LAST_TURN_MAX: usize = 64;
/// The first key of further sockets of listeners. A worker has several sockets of a listener if its server has replaced
/// one with more workers: the accept queue of each socket goes on. No server has as many listeners.
const FURTHER: u32 = 1 << 31;
const ECANCELED: i32 = Errno::CANCELED.raw_os_error();

/// Listening sockets of the kernel's TCP, or Unix sockets.
///
/// `F` makes the transport of each connection. It is given the connection's socket and the number of
/// the listener that accepted it. [`new`](Self::new) uses [`KernelTcp`] itself.
pub struct Listeners<F = fn(KernelTcp, usize) -> KernelTcp> {
    takes: Option<Takes>,
    /// The listening sockets by key: the number of the listener, which is not used again for another one, or a key from
    /// [`FURTHER`] on.
    all: BTreeMap<u32, Listener>,
    /// The key of the next socket of a listener that has one already.
    next_key: u32,
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
    /// The number of the listener.
    number: u32,
    socket: Fd,
    state: Accepting,
    /// `Some` while the listener is being emptied before its close: the number of connections that it may still
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
        let mut listeners = Self { takes, all, next_key: FURTHER, left, closed: false, make };
        for (number, socket) in (0..).zip(sockets) {
            listeners.insert(number, socket);
        }
        listeners
    }

    /// The same with transports that all send these pieces, or each its own.
    #[must_use]
    pub const fn taking(mut self, takes: Option<Takes>) -> Self {
        self.takes = takes;
        self
    }

    fn insert(&mut self, number: u32, socket: Fd) {
        let listener = Listener { number, socket, state: Accepting::Stopped, last: None };
        let key = if self.all.contains_key(&number) {
            self.next_key += 1;
            self.next_key - 1
        } else {
            number
        };
        let before = self.all.insert(key, listener);
        debug_assert!(before.is_none(), "no key is used twice");
    }

    /// The keys of the sockets of a listener.
    fn keys(&self, number: u32) -> Vec<u32> {
        let is_its = |(_, listener): &(&u32, &Listener)| listener.number == number;
        self.all.iter().filter(is_its).map(|(key, _)| *key).collect()
    }

    /// Accepts at most `last` of the connections that wait at a socket, and closes the socket.
    fn end(&mut self, ring: &mut Ring, key: u32, last: usize) {
        let Some(listener) = self.all.get_mut(&key) else { return };
        listener.last = Some(last);
        match listener.state {
            Accepting::Armed(armed) => {
                ring.cancel(armed);
                listener.state = Accepting::Stopping(armed);
            }
            Accepting::Stopping(_) => {}
            Accepting::Paused | Accepting::Stopped => self.empty(ring, key),
        }
    }

    /// Accepts the connections that wait at a removed listener, and closes the listener. While descriptors are short,
    /// the listener stays open.
    fn empty(&mut self, ring: &mut Ring, key: u32) {
        let Some(listener) = self.all.get_mut(&key) else { return };
        for _ in 0..LAST_TURN_MAX {
            if listener.last == Some(0) {
                break;
            }
            match ring.accept(&listener.socket) {
                Ok(socket) => {
                    listener.last = listener.last.map(|last| last - 1);
                    self.left.push_back(Newcomer { socket, listener: listener.number });
                }
                // The peer closed the connection before it was accepted: not an error of the listener.
                Err(error)
                    if [ErrorKind::ConnectionAborted, ErrorKind::Interrupted]
                        .contains(&error.kind()) => {}
                Err(error) if is_shortage(&error) => {
                    return listener.pause(ring, key, ACCEPT_PAUSE);
                }
                Err(_) => listener.last = Some(0),
            }
        }
        if listener.last != Some(0) {
            return listener.pause(ring, key, Duration::ZERO);
        }
        self.all.remove(&key);
    }

    fn handle_accept(
        &mut self,
        ring: &mut Ring,
        completion: Completion,
    ) -> Option<NetEvent<Newcomer>> {
        let key = key_of(completion.token);
        let listener = self.all.get_mut(&key).expect("kept while it accepts");
        let number = listener.number;
        if !completion.more {
            listener.state = Accepting::Stopped;
        }
        let is_last = listener.last.is_some() && !completion.more;
        match completion.result {
            Ok(Event::Accepted(socket)) => {
                if is_last {
                    self.empty(ring, key);
                }
                Some(NetEvent::Accepted(Newcomer { socket, listener: number }))
            }
            Ok(event) => unreachable!("an accept brought {event:?}"),
            Err(_) if is_last => {
                self.empty(ring, key);
                self.next_left()
            }
            Err(error) if error.raw_os_error() == Some(ECANCELED) => Some(NetEvent::Resumed),
            Err(error) => {
                listener.pause(ring, key, ACCEPT_PAUSE);
                Some(NetEvent::Shortage(error))
            }
        }
    }

    /// Accepts again after a pause: descriptors may be free by now.
    fn resume(&mut self, ring: &mut Ring, key: u32) -> Option<NetEvent<Newcomer>> {
        // A removed listener that was emptied is no longer in the map.
        let listener = self.all.get_mut(&key)?;
        if listener.state != Accepting::Paused {
            return None;
        }
        listener.state = Accepting::Stopped;
        if listener.last.is_some() {
            self.empty(ring, key);
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
    fn pause(&mut self, ring: &mut Ring, key: u32, pause: Duration) {
        self.state = Accepting::Paused;
        let at = ring.now() + pause;
        ring.submit(Op::Timer(at), kind::RESUME | u64::from(key));
    }
}

/// The key of a socket in a token.
fn key_of(token: Token) -> u32 {
    u32::try_from(id_of(token)).expect("the key of a socket")
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
        for (key, listener) in &mut self.all {
            match listener.state {
                Accepting::Armed(armed) if !on => {
                    ring.cancel(armed);
                    listener.state = Accepting::Stopping(armed);
                }
                Accepting::Stopped if on && listener.last.is_none() => {
                    let op = Op::Accept(listener.socket.clone());
                    listener.state =
                        Accepting::Armed(ring.submit(op, kind::ACCEPT | u64::from(*key)));
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
            kind::RESUME => self.resume(ring, key_of(completion.token)),
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
        self.all.values().any(|one| one.number == listener)
    }

    fn add(&mut self, number: u32, socket: Fd) {
        self.insert(number, socket);
    }

    fn remove(&mut self, ring: &mut Ring, number: u32) {
        for key in self.keys(number) {
            self.end(ring, key, LAST_MAX);
        }
    }

    fn close(&mut self, ring: &mut Ring) {
        self.leave(ring, &[]);
    }

    fn leave(&mut self, ring: &mut Ring, shared: &[u32]) {
        self.closed = true;
        let all: Vec<_> = self.all.iter().map(|(key, one)| (*key, one.number)).collect();
        for (key, number) in all {
            self.end(ring, key, if shared.contains(&number) { 0 } else { LAST_MAX });
        }
    }

    fn sockets(&self) -> io::Result<Vec<(u32, OwnedFd)>> {
        // A listener that is being emptied is no longer in the configuration.
        let all = self.all.values().filter(|listener| listener.last.is_none());
        all.map(|one| Ok((one.number, one.socket.os().try_clone_to_owned()?))).collect()
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
