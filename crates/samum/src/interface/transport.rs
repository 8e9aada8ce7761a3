//! One connection's way through the stack.

use core::cell::RefCell;
use std::rc::Rc;

use netstack::ConnectionId;
use outq::OutQ;
use ring::Ring;
use sendfile::{Drained, Failure, Piece, Takes, Transport};

use super::network::{Wire, time};

/// A connection of the stack. Its queue is the send buffer: the stack reads from it again what was lost.
#[derive(Debug)]
pub struct StackTransport {
    wire: Rc<RefCell<Wire>>,
    id: ConnectionId,
    /// Whether the windows were full when the queue was last drained.
    is_blocked: bool,
    /// Whether the stack knows that nothing follows what is promised.
    is_finished: bool,
    receives: bool,
    has_ended: bool,
}

impl StackTransport {
    pub(super) const fn new(wire: Rc<RefCell<Wire>>, id: ConnectionId) -> Self {
        Self { wire, id, is_blocked: false, is_finished: false, receives: true, has_ended: false }
    }
}

impl Transport for StackTransport {
    fn takes(&self) -> Takes {
        Takes::Memory
    }

    fn drain(&mut self, ring: &mut Ring, queue: &mut OutQ<Piece>, budget: &mut u64) -> Drained {
        let drained = self.wire.borrow_mut().drain(time(ring.now()), self.id, queue, budget);
        self.is_blocked = drained == Drained::Blocked;
        drained
    }

    /// An acknowledgement may have come with the bytes.
    fn receive<'a>(
        &'a mut self,
        bytes: &'a [u8],
        _queue: &mut OutQ<Piece>,
    ) -> Result<&'a [u8], Failure> {
        self.is_blocked = false;
        Ok(bytes)
    }

    fn handle_writable(&mut self) {
        self.is_blocked = false;
    }

    fn is_blocked(&self) -> bool {
        self.is_blocked
    }

    fn acknowledged(&self, _ring: &Ring, queue: &OutQ<Piece>) -> i64 {
        queue.released().cast_signed()
    }

    fn set_receiving(&mut self, ring: &mut Ring, on: bool) {
        if core::mem::replace(&mut self.receives, on) != on {
            self.wire.borrow_mut().set_receiving(ring, self.id, on);
        }
    }

    fn handle_receive_stopped(&mut self) {
        unreachable!("the stack stops at once")
    }

    fn handle_end(&mut self) {
        self.has_ended = true;
    }

    fn has_ended(&self) -> bool {
        self.has_ended
    }

    fn finish(&mut self) {
        if !core::mem::replace(&mut self.is_finished, true) {
            self.wire.borrow_mut().finish(self.id);
        }
    }

    fn shutdown(&mut self, ring: &mut Ring) {
        if !core::mem::replace(&mut self.is_finished, true) {
            self.wire.borrow_mut().finish(self.id);
        }
        // All bytes have been released. From now on the end alone leaves, again if it is lost.
        self.wire.borrow_mut().end_alone(time(ring.now()), self.id);
    }

    fn close(&mut self, ring: &mut Ring) {
        self.wire.borrow_mut().close(time(ring.now()), self.id);
    }
}
