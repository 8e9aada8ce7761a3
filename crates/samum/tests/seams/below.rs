//! The kernel's TCP with a queue of bytes that a transport above it has made.

use outq::OutQ;
use ring::Ring;
use sendfile::{Drained, KernelTcp, Piece, Transport as _};

/// A socket, and what has to leave through it before anything else.
#[derive(Debug)]
pub(crate) struct Below {
    pub(crate) tcp: KernelTcp,
    made: OutQ<Piece>,
    /// Whether the end of our side follows the queue.
    shuts_down: bool,
}

impl Below {
    pub(crate) const fn new(tcp: KernelTcp) -> Self {
        Self { tcp, made: OutQ::new(), shuts_down: false }
    }

    pub(crate) fn push(&mut self, bytes: Vec<u8>) {
        self.made.push(Piece::Bytes(bytes));
    }

    /// Sends what the queue holds: [`Drained::Empty`] only if all of it has left.
    pub(crate) fn flush(&mut self, ring: &mut Ring) -> Drained {
        let mut all = self.made.unsent_ready();
        let drained = self.tcp.drain(ring, &mut self.made, &mut all);
        if drained == Drained::Empty && core::mem::take(&mut self.shuts_down) {
            self.tcp.shutdown(ring);
        }
        drained
    }

    /// Ends our side once the queue has left.
    pub(crate) fn shut_down(&mut self, ring: &mut Ring) {
        self.shuts_down = true;
        self.flush(ring);
    }

    /// Bytes that the peer's socket has.
    pub(crate) fn acknowledged(&self, ring: &Ring) -> i64 {
        self.tcp.acknowledged(ring, &self.made)
    }
}
