//! The transport of one connection over the stack.

use core::cell::RefCell;
use core::num::NonZeroU64;
use std::rc::Rc;

use netstack::ConnectionId;
use outq::OutQ;
use ring::Ring;
use sendfile::{Drained, Failure, Piece, Takes, Transport};

use super::rate::Rate;
use super::wire::{Wire, time};

/// A connection of the stack. Its queue is the send buffer: the stack reads lost bytes from it
/// again.
#[derive(Debug)]
pub struct StackTransport {
    wire: Rc<RefCell<Wire>>,
    id: ConnectionId,
    /// True if the windows were full when the queue was last drained.
    is_blocked: bool,
    /// True if the stack knows that nothing follows the promised bytes.
    is_finished: bool,
    receives: bool,
    has_ended: bool,
    /// True while bytes are sent at one of the wire's rates.
    has_rate: bool,
}

// The size counts because each idle connection has one.
const _: () = assert!(size_of::<StackTransport>() == 24);

impl StackTransport {
    pub(super) const fn new(wire: Rc<RefCell<Wire>>, id: ConnectionId) -> Self {
        Self {
            wire,
            id,
            is_blocked: false,
            is_finished: false,
            receives: true,
            has_ended: false,
            has_rate: false,
        }
    }

    /// Drains the bytes that the rate allows.
    #[cold]
    fn drain_at_rate(&self, ring: &mut Ring, queue: &mut OutQ<Piece>, budget: &mut u64) -> Drained {
        let mut wire = self.wire.borrow_mut();
        let Some(mut rate) = wire.rates.remove(&self.id) else { return Drained::Blocked };
        let allowed = rate.allowed(ring).min(*budget);
        let mut left = allowed;
        let drained = wire.drain(time(ring.woke_at()), self.id, queue, &mut left);
        let spent = allowed.saturating_sub(left);
        rate.spend(spent);
        *budget -= spent;
        wire.rates.insert(self.id, rate);
        if allowed == 0 && drained == Drained::TurnOver { Drained::Blocked } else { drained }
    }
}

impl Transport for StackTransport {
    fn takes(&self) -> Takes {
        Takes::Memory
    }

    fn drain(&mut self, ring: &mut Ring, queue: &mut OutQ<Piece>, budget: &mut u64) -> Drained {
        let drained = if self.has_rate {
            self.drain_at_rate(ring, queue, budget)
        } else {
            self.wire.borrow_mut().drain(time(ring.woke_at()), self.id, queue, budget)
        };
        self.is_blocked = drained == Drained::Blocked;
        drained
    }

    fn window(&self) -> u64 {
        self.wire.borrow().stack.window(self.id).into()
    }

    /// The frame of the bytes may also have brought an acknowledgement.
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

    /// Retransmitted bytes count, too.
    fn set_rate(&mut self, ring: &Ring, bytes_per_second: Option<NonZeroU64>) {
        let Some(bytes_per_second) = bytes_per_second else {
            if core::mem::take(&mut self.has_rate) {
                self.wire.borrow_mut().rates.remove(&self.id);
            }
            return;
        };
        let wire = &mut *self.wire.borrow_mut();
        let before = wire.rates.get(&self.id).map(Rate::bytes_per_second);
        if before != Some(bytes_per_second)
            && let Some(name) = wire.connections.name(self.id)
        {
            wire.rates.insert(self.id, Rate::new(ring, bytes_per_second, name));
            self.has_rate = true;
        }
    }

    fn set_receiving(&mut self, ring: &mut Ring, on: bool) {
        if core::mem::replace(&mut self.receives, on) != on {
            self.wire.borrow_mut().set_receiving(time(ring.woke_at()), self.id, on);
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
        // All bytes have been released. From now on only the end is sent, and sent again if it is
        // lost.
        self.wire.borrow_mut().end_alone(time(ring.woke_at()), self.id);
    }

    fn close_idle(&mut self, ring: &mut Ring) {
        self.shutdown(ring);
        self.wire.borrow_mut().remove(time(ring.woke_at()), self.id);
    }

    fn close_after(&mut self, ring: &mut Ring, last: OutQ<Piece>) {
        self.wire.borrow_mut().leave(time(ring.woke_at()), self.id, last);
    }

    fn close(&mut self, ring: &mut Ring) {
        self.wire.borrow_mut().close(time(ring.woke_at()), self.id);
    }
}
