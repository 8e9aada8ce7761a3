//! The peers: the other ends of connections.

use core::fmt;
use std::collections::VecDeque;

use super::net::{Connection, End, FarListener, Reading, Segment};
use super::world::{Happening, World};
use crate::op::Address;

/// A peer in the simulated world: the other end of a connection. It reads received bytes at once,
/// until told otherwise, and closes when dropped.
pub struct Peer {
    world: World,
    conn: usize,
}

impl World {
    /// A new connection to one of the listeners; it is refused (that is, reset) when there is none.
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
}

/// A peer that listens, for [`Op::Connect`](crate::Op::Connect). It makes each connection at once,
/// until told otherwise, and refuses further ones when dropped.
#[derive(Debug)]
pub struct PeerListener {
    world: World,
    number: usize,
}

impl World {
    /// Lets a peer listen at this address.
    ///
    /// # Panics
    ///
    /// If another one does.
    #[must_use]
    pub fn listen(&self, address: impl Into<Address>) -> PeerListener {
        let address = address.into();
        let listeners = &mut self.state().far_listeners;
        let is_in_use = listeners.iter().flatten().any(|one| one.address == address);
        assert!(!is_in_use, "{address:?} is in use");
        let number = listeners.len();
        listeners.push(Some(FarListener { address, backlog: VecDeque::new(), answers: true }));
        PeerListener { world: self.clone(), number }
    }
}

impl PeerListener {
    /// The peer's end of the next connection, if one was made.
    #[must_use]
    pub fn accept(&self) -> Option<Peer> {
        let conn = self.with(|listener| listener.backlog.pop_front())?;
        Some(Peer { world: self.world.clone(), conn })
    }

    /// Neither make nor refuse connections from now on, so that they hang.
    pub fn stop_answering(&self) {
        self.with(|listener| listener.answers = false);
    }

    fn with<T>(&self, act: impl FnOnce(&mut FarListener) -> T) -> T {
        let mut state = self.world.state();
        act(state.far_listeners[self.number].as_mut().expect("open until it is dropped"))
    }
}

impl Drop for PeerListener {
    fn drop(&mut self) {
        while let Some(peer) = self.accept() {
            peer.reset();
        }
        self.world.state().far_listeners[self.number] = None;
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

    /// Close: send no more, and reset the connection when further bytes arrive.
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

    /// All bytes that it has read and that were not [taken](Self::take).
    #[must_use]
    pub fn received(&self) -> Vec<u8> {
        self.world.state().conns[self.conn].peer.received.clone()
    }

    /// The number of bytes that it has read and not [taken](Self::take).
    #[must_use]
    pub fn received_bytes(&self) -> usize {
        self.world.state().conns[self.conn].peer.received.len()
    }

    /// Takes the bytes that it has read since the last time.
    #[must_use]
    pub fn take(&self) -> Vec<u8> {
        core::mem::take(&mut self.world.state().conns[self.conn].peer.received)
    }

    /// The number of bytes that it has sent, that have come, and that the socket has not received.
    #[must_use]
    pub fn unreceived_bytes(&self) -> usize {
        self.world.state().conns[self.conn].inbox.len()
    }

    /// The way in which the stream to the peer has ended, if it has.
    #[must_use]
    pub fn end(&self) -> Option<End> {
        self.world.state().conns[self.conn].peer.end
    }

    /// Read no more, so that the socket fills.
    pub fn stop_reading(&self) {
        self.world.state().conns[self.conn].peer.reading = Reading::Stopped;
    }

    /// Read at this number of bytes per second; `None` is as fast as they come.
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
