//! The interface between the stack and the application that runs on it.

use core::net::SocketAddr;

use crate::ip::Report;
use crate::slots::Key;
use crate::tcp::Lost;

/// The identifier of a connection. The stack never uses an identifier again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnectionId(pub u64);

impl ConnectionId {
    /// The slot of the connection in its stack, below 2²⁴: no other connection has the slot at the same time. Free
    /// slots are used first, so a table by slot is not much longer than the number of concurrent connections.
    #[must_use]
    pub const fn place(self) -> usize {
        Key::from_bits(self.0).index as usize
    }

    /// Distinguishes the connection from earlier connections in its slot.
    #[must_use]
    pub const fn generation(self) -> u32 {
        Key::from_bits(self.0).generation
    }
}

/// An application on the stack: a file server, a DNS server, an echo server.
///
/// The stack reports events while it handles a frame or a timer. The application notes its reactions, and acts
/// afterwards: for instance, it drains the queue after `acknowledged` and `room`. No method is required: an
/// application without datagrams ignores them.
pub trait Application {
    /// A connection is open: a peer has opened it, or [`Stack::connect`](crate::Stack::connect) has.
    fn accepted(&mut self, _id: ConnectionId, _local: SocketAddr, _peer: SocketAddr) {}

    /// Bytes have been received, in order; never empty.
    fn received(&mut self, _id: ConnectionId, _bytes: &[u8]) {}

    /// The peer has acknowledged more bytes: drain the queue, which releases them.
    fn acknowledged(&mut self, _id: ConnectionId) {}

    /// More bytes can be sent, or bytes or a FIN must be retransmitted: drain the queue.
    fn room(&mut self, _id: ConnectionId) {}

    /// The peer has ended its side; all its bytes have been received.
    fn ended(&mut self, _id: ConnectionId) {}

    /// Both sides have ended, and the peer has acknowledged everything: the connection and its identifier are gone.
    /// The application may drop the rest of the queue.
    fn closed(&mut self, _id: ConnectionId) {}

    /// The connection is lost, and its identifier is gone.
    fn lost(&mut self, _id: ConnectionId, _why: Lost) {}

    /// A datagram for `local` has been received.
    fn datagram(&mut self, _local: SocketAddr, _peer: SocketAddr, _bytes: &[u8]) {}

    /// A report from the network about a connection that this stack does not have. If an interface has several
    /// stacks, the connection may belong to another stack: pass the report to
    /// [`Stack::handle_report`](crate::Stack::handle_report).
    fn stray(&mut self, _report: Report) {}
}
