//! One connection to a server: it connects, sends the bytes of its queue, and receives while bytes are wanted.
//!
//! Bytes from a server come through the ring, in small buffers. The bytes of a long content are *pulled*: direct calls
//! receive them into their destination.

use std::io;
use std::sync::Arc;

use outq::OutQ;
use ring::{Completion, Event, Fd, Key, Op, RecvBuf, Ring, Time, Token};
use rustix::io::Errno;
use sendfile::{Drained, Failure, KernelTcp, Piece, Transport as _};

use super::Server;

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
    Connecting(Key),
    Open(KernelTcp),
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
    /// The server has sent these bytes.
    Received(RecvBuf),
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
    ) -> Self {
        let key = ring.submit(Op::Connect(address), tokens.receive);
        Self {
            server: Arc::clone(server),
            usage: Usage::Serving(user),
            served: 0,
            state: LinkState::Connecting(key),
            queue: OutQ::new(),
            inflow: Inflow::Ring,
            receive_token: tokens.receive,
            has_shut_down: false,
        }
    }

    /// Takes a completion; returns its meaning, if it has any.
    pub(super) fn handle(
        &mut self,
        ring: &mut Ring,
        completion: Completion,
        tokens: Tokens,
    ) -> Option<LinkEvent> {
        match completion.result {
            Ok(Event::Connected(socket)) => {
                self.open(ring, socket, tokens);
                Some(LinkEvent::Connected)
            }
            Ok(Event::Received(bytes)) => Some(LinkEvent::Received(bytes)),
            Ok(Event::Readable) => {
                if self.inflow != Inflow::Ring {
                    self.inflow = Inflow::Pullable;
                }
                Some(LinkEvent::Pullable)
            }
            Ok(Event::Eof) => {
                self.transport()?.handle_end();
                Some(LinkEvent::Ended)
            }
            _ if completion.token == tokens.writable => {
                self.transport()?.handle_writable();
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
            Err(error) => Some(LinkEvent::Failed(error)),
        }
    }

    fn open(&mut self, ring: &mut Ring, socket: Fd, tokens: Tokens) {
        let mut transport = KernelTcp::new(socket, tokens.receive, tokens.writable);
        transport.set_receiving(ring, self.inflow == Inflow::Ring);
        self.state = LinkState::Open(transport);
    }

    const fn transport(&mut self) -> Option<&mut KernelTcp> {
        match &mut self.state {
            LinkState::Open(transport) => Some(transport),
            LinkState::Connecting(_) => None,
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
        self.queue.promised() - self.queue.sent()
    }

    /// The number of bytes that were sent through the link.
    pub const fn sent(&self) -> u64 {
        self.queue.sent()
    }

    /// Sends as many bytes as the server takes now. Nothing is sent before the link is connected.
    ///
    /// # Errors
    ///
    /// If the link is broken.
    pub fn flush(&mut self, ring: &mut Ring) -> Result<(), Failure> {
        let LinkState::Open(transport) = &mut self.state else { return Ok(()) };
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
        if let LinkState::Open(transport) = &self.state {
            let is_stopped = !transport.is_receiving();
            self.inflow = if is_stopped { Inflow::Pullable } else { Inflow::Stopping };
        }
    }

    /// Receives by a direct call, after [`set_pulling`](Self::set_pulling). Returns nothing if nothing
    /// has come: then it becomes [`LinkEvent::Pullable`].
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

    /// Receives what has come behind a response that was pulled, as far as there is room; 0 if nothing has.
    ///
    /// # Errors
    ///
    /// If the connection has ended.
    pub fn receive_behind(&self, ring: &Ring, room: &mut [u8]) -> io::Result<usize> {
        let LinkState::Open(transport) = &self.state else { return Ok(0) };
        match ring.receive(transport.socket(), room) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
            received => received,
        }
    }

    /// Has the ring say when something has come that can be pulled. The link is connected and does not receive through
    /// the ring.
    pub fn await_bytes(&mut self, ring: &mut Ring) {
        if let LinkState::Open(transport) = &self.state {
            let op = Op::Readable(transport.socket().clone());
            self.inflow = Inflow::Awaited(ring.submit(op, self.receive_token));
        }
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
        if let LinkState::Open(transport) = &mut self.state {
            transport.set_receiving(ring, on);
        }
    }

    /// Ends our side once everything has left.
    pub fn shutdown(&mut self, ring: &mut Ring) {
        if let LinkState::Open(transport) = &mut self.state
            && !core::mem::replace(&mut self.has_shut_down, true)
        {
            transport.shutdown(ring);
        }
    }

    /// Cancels everything in flight.
    pub(super) fn close(&mut self, ring: &mut Ring) {
        if let Inflow::Awaited(key) = self.inflow {
            ring.cancel(key);
        }
        match &mut self.state {
            LinkState::Connecting(key) => ring.cancel(*key),
            LinkState::Open(transport) => transport.close(ring),
        }
    }
}
