//! One connection to a server: it connects, sends the bytes of its queue, and receives while bytes are wanted.
//!
//! Bytes from a server come through the ring, in small buffers. The bytes of a long content are *pulled*: direct calls
//! receive them into their destination.
//!
//! A link to a server that speaks TLS is [`Connected`](LinkEvent::Connected) once the handshake is complete. Until then the
//! ring receives, whatever the user of the link wants, and the costly steps of the handshake are made by
//! [`step`](Link::step), which waits for its turn. Bytes are opened as they come; some may be opened earlier than they
//! are wanted. A timer that ends at once reports those.

use std::io;
use std::rc::Rc;
use std::sync::Arc;

use outq::OutQ;
use ring::{Completion, Event, Fd, Key, Op, Ring, Time, Token};
use rustix::io::Errno;
use sendfile::{Drained, Failure, KernelTcp, Piece, Transport as _};
use tls::{ClientBuffers, ClientConnection, End};

use super::Server;
use super::secure::{Received, Secure};

const ECANCELED: i32 = Errno::CANCELED.raw_os_error();

/// A connection to a server.
#[derive(Debug)]
pub struct Link {
    pub(crate) server: Arc<Server>,
    pub(super) usage: Usage,
    /// The requests that it has served before.
    pub served: u64,
    state: LinkState,
    queue: OutQ<Piece>,
    inflow: Inflow,
    receive_token: Token,
    /// The generation of the settings of TLS with which it was made; 0 without TLS.
    generation: u64,
    /// True once our side has ended.
    has_shut_down: bool,
}

/// The use of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Usage {
    /// The link serves this request.
    Serving(Key),
    /// The link has been kept for another request since this time.
    Kept(Time),
}

/// The way of the bytes of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Inflow {
    /// The ring receives them.
    Ring,
    /// The bytes wait in the socket.
    Held,
    /// The bytes will be pulled. The ring has been asked to stop, and its last bytes may still come.
    Stopping,
    /// The bytes are pulled, and some may have come.
    Pullable,
    /// The bytes are pulled, and none have come. This operation reports the next ones.
    Awaited(Key),
}

#[derive(Debug)]
enum LinkState {
    /// The connection is being made; with the TLS that follows, if the server speaks it.
    Connecting(Key, Option<Box<ClientConnection>>),
    Open(KernelTcp),
    /// The socket is connected. The handshake may not be complete.
    Secure(Box<Secure>),
}

/// The tokens of a link's operations.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tokens {
    /// For received bytes, and for the connection.
    pub(super) receive: Token,
    pub(super) writable: Token,
}

impl Tokens {
    /// The tokens of a link of these kinds.
    pub(super) const fn of((receive, writable): (Token, Token), link: Key) -> Self {
        Self { receive: receive | link.to_bits(), writable: writable | link.to_bits() }
    }
}

/// The news of a link.
#[derive(Debug)]
pub enum LinkEvent {
    /// The connection has been made.
    Connected,
    /// A step of the handshake is due.
    StepDue,
    /// The server has sent these bytes.
    Received(Received),
    /// More can be pulled.
    Pullable,
    /// The server will send no more.
    Ended,
    /// The connection was not made, or is broken.
    Failed(io::Error),
    /// More can be sent.
    Writable,
}

impl Link {
    /// Begins to connect to a server that has an address.
    pub(super) fn connect(
        ring: &mut Ring,
        server: &Arc<Server>,
        address: ring::Address,
        user: Key,
        tokens: Tokens,
        buffers: &Rc<ClientBuffers>,
    ) -> Self {
        let key = ring.submit(Op::Connect(address), tokens.receive);
        let tls = server.tls.as_ref();
        // Settings that come between the two calls are of a later generation: then the link is closed early.
        let generation = tls.map_or(0, |tls| tls.settings.generation());
        let tls = tls.map(|tls| ClientConnection::new(&tls.settings.get(), &tls.name, buffers));
        Self {
            server: Arc::clone(server),
            usage: Usage::Serving(user),
            served: 0,
            state: LinkState::Connecting(key, tls.map(Box::new)),
            queue: OutQ::new(),
            inflow: Inflow::Ring,
            receive_token: tokens.receive,
            generation,
            has_shut_down: false,
        }
    }

    /// Returns true if a new link would have the same settings of TLS.
    pub(super) fn has_present_settings(&self) -> bool {
        let settings = self.server.tls.as_ref().map(|tls| &tls.settings);
        settings.is_none_or(|settings| settings.generation() == self.generation)
    }

    /// Handles a completion; returns its meaning, if it has any.
    pub(super) fn handle(
        &mut self,
        ring: &mut Ring,
        completion: Completion,
        tokens: Tokens,
    ) -> Option<LinkEvent> {
        match completion.result {
            Ok(Event::Connected(socket)) => Some(self.open(ring, socket, tokens)),
            Ok(Event::Received(bytes)) => {
                let LinkState::Secure(secure) = &mut self.state else {
                    return Some(LinkEvent::Received(Received::Ring(bytes)));
                };
                secure.handle_received(ring, &mut self.queue, &bytes);
                if secure.tls.is_open() { self.news(ring) } else { Some(LinkEvent::StepDue) }
            }
            Ok(Event::Readable) => {
                if self.inflow != Inflow::Ring {
                    self.inflow = Inflow::Pullable;
                }
                Some(LinkEvent::Pullable)
            }
            Ok(Event::Eof) => {
                self.transport()?.handle_end();
                let LinkState::Secure(secure) = &mut self.state else {
                    return Some(LinkEvent::Ended);
                };
                secure.tls.handle_end();
                if secure.tls.is_open() { self.news(ring) } else { Some(LinkEvent::StepDue) }
            }
            Ok(Event::Timer) => {
                let LinkState::Secure(secure) = &mut self.state else { return None };
                secure.nudge = None;
                match self.inflow {
                    Inflow::Pullable => Some(LinkEvent::Pullable),
                    // They are reported when they are wanted again.
                    Inflow::Held => None,
                    Inflow::Ring | Inflow::Stopping | Inflow::Awaited(_) => self.news(ring),
                }
            }
            _ if completion.token == tokens.writable => {
                self.transport()?.handle_writable();
                if let LinkState::Secure(secure) = &mut self.state
                    && !secure.tls.is_open()
                {
                    let failed = secure.flush(ring, &mut self.queue).err();
                    return failed.map(|_| LinkEvent::Failed(io::ErrorKind::BrokenPipe.into()));
                }
                Some(LinkEvent::Writable)
            }
            Ok(event) => unreachable!("a link brought {event:?}"),
            Err(error) if error.raw_os_error() == Some(ECANCELED) => {
                let inflow = self.inflow;
                let transport = self.transport()?;
                transport.handle_receive_stopped();
                transport.set_receiving(ring, inflow == Inflow::Ring);
                (inflow == Inflow::Stopping).then(|| {
                    self.inflow = Inflow::Pullable;
                    LinkEvent::Pullable
                })
            }
            Err(error) => {
                // Bytes that were opened before the connection broke come first, and so does a fault that was found.
                if let LinkState::Secure(secure) = &mut self.state
                    && matches!(self.inflow, Inflow::Ring | Inflow::Held | Inflow::Stopping)
                    && secure.tls.has_news()
                {
                    secure.tls.handle_end();
                    return self.news(ring);
                }
                Some(LinkEvent::Failed(error))
            }
        }
    }

    fn open(&mut self, ring: &mut Ring, socket: Fd, tokens: Tokens) -> LinkEvent {
        let mut transport = KernelTcp::new(socket, tokens.receive, tokens.writable);
        if let LinkState::Connecting(_, tls) = &mut self.state
            && let Some(tls) = tls.take()
        {
            transport.set_receiving(ring, true);
            self.state = LinkState::Secure(Box::new(Secure::new(transport, *tls)));
            return LinkEvent::StepDue;
        }
        transport.set_receiving(ring, self.inflow == Inflow::Ring);
        self.state = LinkState::Open(transport);
        LinkEvent::Connected
    }

    /// Makes a step of the handshake; returns its meaning, if it has any.
    pub(super) fn step(&mut self, ring: &mut Ring) -> Option<LinkEvent> {
        let LinkState::Secure(secure) = &mut self.state else { return None };
        // A step that is due no more: the handshake was completed by an earlier one.
        if secure.tls.is_open() {
            return None;
        }
        match secure.step(ring) {
            Ok(false) => {
                let fault = secure.fault()?;
                self.server.note_handshake(None);
                Some(LinkEvent::Failed(fault.into()))
            }
            Ok(true) => {
                self.server.note_handshake(Some(secure.tls.is_resumed()));
                // The handshake needed bytes that the user of the link may not want yet.
                let receives = self.inflow == Inflow::Ring;
                secure.transport.set_receiving(ring, receives);
                if receives {
                    self.nudge(ring);
                }
                Some(LinkEvent::Connected)
            }
            Err(error) => {
                self.server.note_handshake(None);
                Some(LinkEvent::Failed(error))
            }
        }
    }

    /// The next bytes that were opened, or their end.
    fn news(&mut self, ring: &mut Ring) -> Option<LinkEvent> {
        let LinkState::Secure(secure) = &mut self.state else { return None };
        if let Some(plain) = secure.tls.take_plain() {
            self.nudge(ring);
            return Some(LinkEvent::Received(Received::Plain(plain)));
        }
        match secure.tls.end() {
            End::Open => None,
            End::Ended => Some(LinkEvent::Ended),
            End::Failed(fault) => Some(LinkEvent::Failed(fault.clone().into())),
        }
    }

    /// Starts a timer that reports the opened bytes, if there are some.
    fn nudge(&mut self, ring: &mut Ring) {
        if let LinkState::Secure(secure) = &mut self.state
            && secure.tls.has_news()
            && secure.nudge.is_none()
        {
            secure.nudge = Some(ring.submit(Op::Timer(ring.now()), self.receive_token));
        }
    }

    /// Returns true if bytes were opened that nothing has used, or if the server has said its end. Then the link
    /// accepts no other request.
    pub(super) fn has_news(&self) -> bool {
        matches!(&self.state, LinkState::Secure(secure) if secure.tls.has_news())
    }

    /// Returns true if the socket is connected, and the handshake that follows is not complete.
    pub fn is_shaking(&self) -> bool {
        matches!(&self.state, LinkState::Secure(secure) if !secure.tls.is_open())
    }

    /// Returns true if bytes can be spliced without a copy in the memory of this program.
    pub const fn may_splice(&self) -> bool {
        !matches!(self.state, LinkState::Secure(_))
    }

    const fn transport(&mut self) -> Option<&mut KernelTcp> {
        match &mut self.state {
            LinkState::Open(transport) => Some(transport),
            LinkState::Secure(secure) => Some(&mut secure.transport),
            LinkState::Connecting(..) => None,
        }
    }

    /// Queues bytes for the server. They are sent by [`flush`](Self::flush).
    pub fn push(&mut self, bytes: Vec<u8>) {
        self.push_piece(Piece::Bytes(bytes));
    }

    /// Like [`push`](Self::push), of a piece of memory.
    pub fn push_piece(&mut self, piece: Piece) {
        self.queue.push(piece);
    }

    /// The number of bytes that wait to be sent.
    pub const fn unsent(&self) -> u64 {
        let unsealed = self.queue.promised() - self.queue.sent();
        match &self.state {
            LinkState::Secure(secure) => unsealed + secure.tls.unsent(),
            LinkState::Open(_) | LinkState::Connecting(..) => unsealed,
        }
    }

    /// The number of bytes that were sent through the link: of records with content, if it has TLS.
    pub const fn sent(&self) -> u64 {
        match &self.state {
            LinkState::Secure(secure) => secure.tls.sent(),
            LinkState::Open(_) | LinkState::Connecting(..) => self.queue.sent(),
        }
    }

    /// Sends as many bytes as the server receives now. Nothing is sent before the link is connected.
    ///
    /// # Errors
    ///
    /// If the link is broken.
    pub fn flush(&mut self, ring: &mut Ring) -> Result<(), Failure> {
        let transport = match &mut self.state {
            LinkState::Open(transport) => transport,
            LinkState::Secure(secure) if secure.tls.is_open() => {
                return secure.flush(ring, &mut self.queue);
            }
            LinkState::Secure(_) | LinkState::Connecting(..) => return Ok(()),
        };
        // The queue has only a head and a part of a body. The drain has no further limit, because no event would come
        // for the rest.
        match transport.drain(ring, &mut self.queue, &mut { u64::MAX }) {
            Drained::Empty | Drained::Blocked => Ok(()),
            Drained::TurnOver => unreachable!("there is no budget"),
            Drained::Refused => unreachable!("there are no files in the queue"),
            Drained::Failed(failure) => Err(failure),
        }
    }

    /// Stops receiving through the ring: what comes from now on is [pulled](Self::pull), once the ring has
    /// delivered the rest.
    pub fn set_pulling(&mut self, ring: &mut Ring) {
        self.set_receiving(ring, false);
        let transport = match &self.state {
            LinkState::Open(transport) => transport,
            LinkState::Secure(secure) => &secure.transport,
            LinkState::Connecting(..) => return,
        };
        let is_stopped = !transport.is_receiving();
        self.inflow = if is_stopped { Inflow::Pullable } else { Inflow::Stopping };
    }

    /// Receives by a direct call, after [`set_pulling`](Self::set_pulling). Returns nothing if nothing
    /// has come: then it becomes [`LinkEvent::Pullable`]. The bytes are those of the socket: only for links that
    /// [may splice](Self::may_splice).
    pub fn pull<T>(
        &mut self,
        ring: &mut Ring,
        receive: impl FnOnce(&Ring, &Fd) -> io::Result<T>,
    ) -> Option<io::Result<T>> {
        let (LinkState::Open(transport), Inflow::Pullable) = (&self.state, self.inflow) else {
            return None;
        };
        match receive(ring, transport.socket()) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.await_bytes(ring);
                None
            }
            result => Some(result),
        }
    }

    /// As [`pull`](Self::pull), into `room`, which is not empty. Returns the number of bytes, 0 at the end.
    pub fn pull_into(&mut self, ring: &mut Ring, room: &mut [u8]) -> Option<io::Result<usize>> {
        let LinkState::Secure(secure) = &mut self.state else {
            return self.pull(ring, |ring, socket| ring.receive(socket, room));
        };
        if self.inflow != Inflow::Pullable {
            return None;
        }
        match secure.receive(ring, &mut self.queue, room) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.await_bytes(ring);
                None
            }
            result => Some(result),
        }
    }

    /// Receives the bytes that have come after a response that was pulled, as far as there is room; 0 if none have
    /// come.
    ///
    /// # Errors
    ///
    /// If the connection has ended.
    pub fn receive_behind(&mut self, ring: &mut Ring, room: &mut [u8]) -> io::Result<usize> {
        let received = match &mut self.state {
            LinkState::Open(transport) => ring.receive(transport.socket(), room),
            LinkState::Secure(secure) => secure.receive(ring, &mut self.queue, room),
            LinkState::Connecting(..) => return Ok(0),
        };
        match received {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
            received => received,
        }
    }

    /// Asks the ring to report when bytes have come that can be pulled. The link is connected and does not receive
    /// through the ring.
    pub fn await_bytes(&mut self, ring: &mut Ring) {
        let socket = match &self.state {
            LinkState::Open(transport) => transport.socket().clone(),
            // The handshake needed the ring, which has not stopped yet.
            LinkState::Secure(secure) if secure.transport.is_receiving() => {
                return self.set_pulling(ring);
            }
            LinkState::Secure(secure) if secure.tls.has_news() => {
                self.inflow = Inflow::Pullable;
                return self.nudge(ring);
            }
            LinkState::Secure(secure) => secure.transport.socket().clone(),
            LinkState::Connecting(..) => return,
        };
        self.inflow = Inflow::Awaited(ring.submit(Op::Readable(socket), self.receive_token));
    }

    /// Returns whether bytes may have come that can be pulled.
    pub fn may_pull(&self) -> bool {
        self.inflow == Inflow::Pullable
    }

    /// Returns whether the link is pulled, and no bytes have come.
    pub const fn waits_for_more(&self) -> bool {
        matches!(self.inflow, Inflow::Awaited(_) | Inflow::Stopping)
    }

    /// Receives through the ring from now on, or no longer. Bytes on their way still come.
    pub fn set_receiving(&mut self, ring: &mut Ring, on: bool) {
        self.inflow = if on { Inflow::Ring } else { Inflow::Held };
        match &mut self.state {
            LinkState::Open(transport) => transport.set_receiving(ring, on),
            LinkState::Secure(secure) if secure.tls.is_open() => {
                secure.transport.set_receiving(ring, on);
                if on {
                    self.nudge(ring);
                }
            }
            LinkState::Secure(_) | LinkState::Connecting(..) => {}
        }
    }

    /// Ends our side once everything has left.
    pub fn shutdown(&mut self, ring: &mut Ring) {
        if matches!(self.state, LinkState::Connecting(..))
            || core::mem::replace(&mut self.has_shut_down, true)
        {
            return;
        }
        match &mut self.state {
            LinkState::Open(transport) => transport.shutdown(ring),
            LinkState::Secure(secure) => secure.shutdown(ring, &mut self.queue),
            LinkState::Connecting(..) => {}
        }
    }

    /// Cancels everything in flight.
    pub(super) fn close(&mut self, ring: &mut Ring) {
        if let Inflow::Awaited(key) = self.inflow {
            ring.cancel(key);
        }
        match &mut self.state {
            LinkState::Connecting(key, _) => ring.cancel(*key),
            LinkState::Open(transport) => transport.close(ring),
            LinkState::Secure(secure) => secure.close(ring, &self.queue),
        }
    }
}
