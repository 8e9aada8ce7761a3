//! The kernel's TCP with a queue of bytes that a transport above it has made.

use core::time::Duration;

use outq::OutQ;
use ring::Ring;
use samum::session::Http1;
use sendfile::{Drained, KernelTcp, Piece, Transport, Weight};

use crate::cases::Site;
use crate::world::{self, Make, assert_nothing_is_left, config, pass, serve_over, tuning};

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

    /// The memory of what has not left, and of these buffers of the transport.
    pub(crate) fn weight(&self, buffers: [&Vec<u8>; 2]) -> Weight {
        let bytes: usize = buffers.iter().map(|buffer| buffer.capacity()).sum();
        let mut weight = self.made.weight();
        weight.own += bytes as u64;
        weight
    }

    /// Bytes that the peer's socket has.
    pub(crate) fn acknowledged(&self, ring: &Ring) -> i64 {
        self.tcp.acknowledged(ring, &self.made)
    }
}

/// Asserts that a transport counts its memory: `head` begins a record, or a segment, of more than
/// 10,000 bytes, the rest of which never comes.
pub(crate) fn assert_a_part_is_counted<T: Transport>(make: Make<T>, head: &[u8]) {
    let site = Site::new("empty");
    let world = world::make(config(1), &site);
    let mut worker = serve_over::<Http1, T>(&world, tuning(&site), make);
    let peer = world.connect();
    peer.send(head);
    peer.send(&[0; 10_000]);
    pass(&mut worker, Duration::from_secs(1));
    assert!(worker.held().0 >= 10_000, "{:?}", worker.held());
    drop(peer);
    assert_nothing_is_left(&world, &mut worker);
}
