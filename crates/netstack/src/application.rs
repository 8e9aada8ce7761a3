//! The interface between the stack and the application that runs on it.

use core::net::SocketAddr;

use crate::ip::Report;
use crate::slots::Key;
use crate::tcp::Lost;

/// The name of a connection. It is not used again for another one while the stack lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnectionId(pub u64);

impl ConnectionId {
    /// The place of the connection among those of its stack, below 2²⁴: no other connection has it at the same
    /// time. Places that have become free are used first, so a table by place is not much longer than there are
    /// connections at once.
    #[must_use]
    pub const fn place(self) -> usize {
        Key::from_bits(self.0).index as usize
    }

    /// Tells the connection from others that have had its place.
    #[must_use]
    pub const fn generation(self) -> u32 {
        Key::from_bits(self.0).generation
    }
}

/// A program on the stack: a file server, a DNS server, an echo.
///
/// The stack tells what has happened while it handles a frame or a timer. The application notes what it
/// wants to do, and does it afterwards: it drains the queue after `acknowledged` and `room`,
/// for instance. No method is required: a program without datagrams ignores them.
pub trait Application {
    /// A peer has opened a connection, or one that was asked for is open.
    fn accepted(&mut self, _id: ConnectionId, _local: SocketAddr, _peer: SocketAddr) {}

    /// Bytes have come, in order; never empty.
    fn received(&mut self, _id: ConnectionId, _bytes: &[u8]) {}

    /// The peer has acknowledged more bytes: drain its queue, which releases them.
    fn acknowledged(&mut self, _id: ConnectionId) {}

    /// More can be sent, or something is to be sent again, a FIN for instance: drain its queue.
    fn room(&mut self, _id: ConnectionId) {}

    /// The peer has ended its side; all its bytes have been received.
    fn ended(&mut self, _id: ConnectionId) {}

    /// Both sides have ended, and the peer has acknowledged everything: the connection is gone, and its name
    /// with it. What the queue still holds may be dropped.
    fn closed(&mut self, _id: ConnectionId) {}

    /// The connection is lost, and its name with it.
    fn lost(&mut self, _id: ConnectionId, _why: Lost) {}

    /// A datagram has come for `local`.
    fn datagram(&mut self, _local: SocketAddr, _peer: SocketAddr, _bytes: &[u8]) {}

    /// The network reports something about a connection that this stack has not. Behind one interface with several
    /// stacks it may be another's: give it to [`Stack::handle_report`](crate::Stack::handle_report).
    fn stray(&mut self, _report: Report) {}
}
