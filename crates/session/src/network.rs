//! The events of connections, the same from every stack, and where connections come from.
//!
//! All stacks report connections that are accepted, received from, writable, ended or lost ([`NetEvent`]). The kernel's
//! stack also reports that receiving has stopped, and that accepting pauses. A network defines its own type of received
//! bytes, because these bytes may be a part of a larger read.

use core::net::{IpAddr, SocketAddr, SocketAddrV4, SocketAddrV6};
use core::ops::Deref;
use core::time::Duration;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use config::Listen;
use metrics::Counters;
use ring::{Completion, Fd, RecvBuf, Ring};
pub use sendfile::Handshake;
use sendfile::{Takes, Transport};

use crate::client::{Client, ClientAddress};
use crate::forwarded::Scheme;

/// A stack that accepts connections: the kernel's, or one of our own whose interface is one more
/// descriptor in the ring.
pub trait Network {
    /// A connection's way to its peer.
    type Transport: Transport;
    /// A connection that was accepted and has no place yet.
    type Newcomer;
    /// Bytes received for one connection: a whole buffer, or a part of one that has brought bytes of
    /// several connections.
    type Bytes: Deref<Target = [u8]>;

    /// The pieces that all of its transports can send; `None` if some send ranges of files, and others only memory. By
    /// default all send ranges of files.
    fn takes(&self) -> Option<Takes> {
        Some(Takes::Files)
    }

    /// Accepts connections, or leaves them in the stack's line.
    fn set_accepting(&mut self, ring: &mut Ring, on: bool);

    /// Handles a completion whose token is of the network's kinds.
    fn handle(
        &mut self,
        ring: &mut Ring,
        completion: Completion,
    ) -> Option<NetEvent<Self::Newcomer, Self::Bytes>>;

    /// A further event of the completion that was handled last: one read of an interface may bring
    /// many.
    fn next_event(&mut self) -> Option<NetEvent<Self::Newcomer, Self::Bytes>> {
        None
    }

    /// Returns true if the network has work of its own that wants a part of the next worker turn, which does not wait then.
    fn wants_turn(&self) -> bool {
        false
    }

    /// An event that comes of the network's own work. The worker asks in each turn until there is none, after the events
    /// that have come. A network with much work leaves some of it for the next turn.
    fn next_of_turn(&mut self, _ring: &mut Ring) -> Option<NetEvent<Self::Newcomer, Self::Bytes>> {
        None
    }

    /// Gives a newcomer its place: from now on its events carry `id`.
    fn open(&mut self, ring: &mut Ring, newcomer: Self::Newcomer, id: u64) -> Self::Transport;

    /// The origin of a newcomer.
    fn origin(&self, newcomer: &Self::Newcomer) -> Origin;

    /// Whether a listener may bring connections.
    fn is_open(&self, _listener: u32) -> bool {
        false
    }

    /// Adds a listening socket of the kernel, which may be one of several of its listener. It accepts after the next [`set_accepting`](Self::set_accepting).
    /// By default it is closed: a stack of our own has no use for it.
    fn add(&mut self, _number: u32, _socket: Fd) {}

    /// Accepts the connections that wait at a listener, and closes it. The events of these connections
    /// follow; ask [`next_event`](Self::next_event) for those that are there already.
    fn remove(&mut self, _ring: &mut Ring, _number: u32) {}

    /// Uses the listeners of the next configuration from now on. By default nothing changes: those of the kernel are
    /// added and removed one by one.
    fn set_listeners(&mut self, _listeners: &[(u32, Listen)]) {}

    /// The state of the stack for the operator, with its connections or without, if it is one of our own.
    fn report(&self, _has_connections: bool) -> Option<String> {
        None
    }

    /// Puts the numbers of the stack among the worker's, if it is one of our own.
    fn count(&self, _stats: &Counters) {}

    /// Sends what was collected for the stack to send at once; the worker waits next. Transports may
    /// have been drained since the last call. By default nothing was.
    fn flush(&mut self, _ring: &mut Ring) {}

    /// Accepts the connections that wait, and no more, for good. The events of these connections follow; ask
    /// [`next_event`](Self::next_event) for those that are there already.
    fn close(&mut self, ring: &mut Ring);

    /// Accepts no more, for good, because another process accepts at the sockets of these listeners. The connections that
    /// wait at other listeners are accepted, as by [`close`](Self::close). By default no listener is shared.
    fn leave(&mut self, ring: &mut Ring, _shared: &[u32]) {
        self.close(ring);
    }

    /// Duplicates of the listening sockets of the kernel, with the numbers of their listeners. By default there are none.
    ///
    /// # Errors
    ///
    /// Those of `dup(2)`.
    fn sockets(&self) -> io::Result<Vec<(u32, OwnedFd)>> {
        Ok(Vec::new())
    }

    /// Returns true after [`close`](Self::close), once nothing of the network's own is under way and the worker has been told
    /// of all connections that waited.
    fn is_closed(&self) -> bool;

    /// Waits until other records than those of connections, such as frames, are written; for `limit` at most. Nothing
    /// comes after it.
    fn end(&mut self, _limit: Duration) {}
}

/// The origin of a connection.
#[derive(Clone, Debug)]
pub struct Origin {
    /// The number of the listener that accepted it.
    pub listener: u32,
    /// The other end.
    pub peer: Peer,
}

/// The other end of a connection.
#[derive(Clone, Debug)]
pub enum Peer {
    /// The peer of this socket.
    Socket(Fd),
    /// The peer with this address, of a stack of our own.
    V4(SocketAddrV4),
    /// The same; boxed, so that other connections are small.
    V6(Box<SocketAddrV6>),
    /// One whose client is known, because something needs to know it: a log, access rules, limits; or one with which
    /// there was a handshake.
    Known(Rc<Known>),
}

/// A peer about which more is known than its address.
#[derive(Clone, Debug)]
pub struct Known {
    peer: Peer,
    client: Option<Rc<Client>>,
    handshake: Option<Rc<dyn Handshake>>,
}

// Each connection has one.
const _: () = assert!(size_of::<Origin>() == 24);

impl From<SocketAddr> for Peer {
    fn from(address: SocketAddr) -> Self {
        match address {
            SocketAddr::V4(address) => Self::V4(address),
            SocketAddr::V6(address) => Self::V6(Box::new(address)),
        }
    }
}

impl Origin {
    /// The address of the peer; `None` for Unix sockets, and once the peer has gone. For a socket of the
    /// kernel this is a system call, `getpeername(2)`.
    #[must_use]
    pub fn address(&self, ring: &Ring) -> Option<SocketAddr> {
        self.peer.address(ring)
    }

    /// The address of this end; `None` for Unix sockets, and for connections of a stack of our own. For a socket of the
    /// kernel this is a system call, `getsockname(2)`.
    #[must_use]
    pub fn local_address(&self, ring: &Ring) -> Option<SocketAddr> {
        self.peer.local_address(ring)
    }

    /// The client, if something needs to know it.
    #[must_use]
    pub fn client(&self) -> Option<&Client> {
        match &self.peer {
            Peer::Known(known) => known.client.as_deref(),
            _ => None,
        }
    }

    /// The address of the client, if something needed to know it.
    #[must_use]
    pub fn known_client(&self) -> ClientAddress {
        self.client().into()
    }

    /// Notes the client, in place of the one that was known before.
    pub fn set_client(&mut self, client: Client) {
        let known = Known { client: Some(Rc::new(client)), ..self.known() };
        self.peer = Peer::Known(Rc::new(known));
    }

    /// The handshake of the connection, if it has TLS.
    #[must_use]
    #[inline]
    pub fn handshake(&self) -> Option<&dyn Handshake> {
        match &self.peer {
            Peer::Known(known) => known.handshake.as_deref(),
            _ => None,
        }
    }

    /// The scheme of requests on the connection, as far as the connection tells.
    #[must_use]
    #[inline]
    pub fn scheme(&self) -> Scheme {
        if self.handshake().is_some() { Scheme::Https } else { Scheme::Http }
    }

    /// Notes the handshake.
    pub fn set_handshake(&mut self, handshake: Rc<dyn Handshake>) {
        let known = Known { handshake: Some(handshake), ..self.known() };
        self.peer = Peer::Known(Rc::new(known));
    }

    fn known(&self) -> Known {
        match &self.peer {
            Peer::Known(known) => Known::clone(known),
            peer => Known { peer: peer.clone(), client: None, handshake: None },
        }
    }

    /// The address of the client, as far as the connection tells; `None` as for
    /// [`address`](Self::address).
    #[must_use]
    pub fn client_address(&self, ring: &Ring) -> Option<IpAddr> {
        match self.client() {
            Some(client) => client.address,
            // The connection is older than the need to know it.
            None => self.address(ring).map(|address| address.ip().to_canonical()),
        }
    }
}

impl Peer {
    fn address(&self, ring: &Ring) -> Option<SocketAddr> {
        match self {
            Self::Socket(socket) => ring.peer_name(socket),
            Self::V4(address) => Some(SocketAddr::V4(*address)),
            Self::V6(address) => Some(SocketAddr::V6(**address)),
            Self::Known(known) => known.peer.address(ring),
        }
    }

    fn local_address(&self, ring: &Ring) -> Option<SocketAddr> {
        match self {
            Self::Socket(socket) => ring.local_name(socket),
            Self::V4(_) | Self::V6(_) => None,
            Self::Known(known) => known.peer.local_address(ring),
        }
    }
}

/// An event on the network. Connections are named by the id they were opened with.
#[derive(Debug)]
pub enum NetEvent<Newcomer, Bytes = RecvBuf> {
    /// A connection was accepted.
    Accepted(Newcomer),
    /// The peer will send no more.
    Ended(u64),
    /// The connection is broken.
    Lost(u64),
    /// A text for the operator. The network limits the number of such texts.
    Note(String),
    /// The transport can go on with bytes that it has received before.
    Ready(u64),
    /// Bytes have come.
    Received(u64, Bytes),
    /// Connections were refused, because their clients ask for more than their share. The text is for the operator.
    Refused(String),
    /// Connections can be accepted again.
    Resumed,
    /// A connection could not be accepted; there is a pause.
    Shortage(io::Error),
    /// Receiving was stopped, as asked.
    Stopped(u64),
    /// The transport can send again.
    Writable(u64),
}
