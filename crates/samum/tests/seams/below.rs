//! What the transports above the kernel's TCP have in common: the socket, frames that have to leave
//! through it, and received bytes that are no whole frame yet.

use core::ops::Range;
use core::time::Duration;
use std::rc::Rc;

use outq::OutQ;
use ring::Ring;
use sendfile::{Drained, Failure, Handshake, KernelTcp, Piece, Takes, Transport, Weight};
use session::Http1;

use crate::cases::Site;
use crate::seams::world::{self, Make, assert_nothing_is_left, config, options, pass, serve_over};

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

    pub(crate) fn push(&mut self, frame: Vec<u8>) {
        self.made.push(Piece::Bytes(frame));
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
}

/// A protocol between a stream and a socket: it makes frames of the one, and undoes those that come
/// from the other.
pub(crate) trait Layer {
    /// Whether it must receive even while no plain bytes are wanted, for acknowledgements.
    const RECEIVES_ALWAYS: bool = false;

    /// As [`Transport::is_open`].
    fn is_open(&self) -> bool {
        true
    }

    /// As [`Transport::handshake`].
    fn handshake(&self) -> Option<Rc<dyn Handshake>> {
        None
    }

    /// Whether something has to come before any frame can be made.
    fn is_full(&self) -> bool {
        false
    }

    /// As [`Transport::acknowledged`]; by default the bytes of frames are counted.
    fn acknowledged(&self, _queue: &OutQ<Piece>) -> Option<i64> {
        None
    }

    /// Makes frames of bytes that were sent before and have to be sent again; returns whether there
    /// are any.
    fn repeat(&mut self, _below: &mut Below, _queue: &OutQ<Piece>) -> bool {
        false
    }

    /// Makes a frame of the next ready bytes of the stream, at most `most` of them, and marks them as
    /// sent. Returns their number, which is 0 only if the layer is full.
    fn make(&mut self, below: &mut Below, queue: &mut OutQ<Piece>, most: u64) -> u64;

    /// Takes whole frames off `input` and adds their bytes to `plain`. Returns whether the peer has
    /// ended its side.
    fn undo(
        &mut self,
        below: &mut Below,
        queue: &mut OutQ<Piece>,
        input: &mut Vec<u8>,
        plain: &mut Vec<u8>,
    ) -> Result<bool, Failure>;

    /// Makes the frame that ends our side.
    fn end(&mut self) -> Vec<u8>;
}

/// A layer above the kernel's TCP.
#[derive(Debug)]
pub(crate) struct Layered<L> {
    layer: L,
    below: Below,
    /// Received bytes of a frame that is not complete.
    input: Vec<u8>,
    /// Plain bytes of the last receive.
    plain: Vec<u8>,
    has_ended: bool,
}

impl<L> Layered<L> {
    pub(crate) fn new(tcp: KernelTcp, layer: L) -> Self {
        let (input, plain) = (Vec::new(), Vec::new());
        Self { layer, below: Below::new(tcp), input, plain, has_ended: false }
    }
}

impl<L: Layer> Transport for Layered<L> {
    fn takes(&self) -> Takes {
        Takes::Memory
    }

    fn is_open(&self) -> bool {
        self.layer.is_open()
    }

    fn handshake(&self) -> Option<Rc<dyn Handshake>> {
        self.layer.handshake()
    }

    fn weight(&self) -> Weight {
        let buffers = (self.input.capacity() + self.plain.capacity()) as u64;
        let made = self.below.made.weight();
        Weight { own: made.own + buffers, ..made }
    }

    fn drain(&mut self, ring: &mut Ring, queue: &mut OutQ<Piece>, budget: &mut u64) -> Drained {
        loop {
            let drained = self.below.flush(ring);
            if drained != Drained::Empty {
                return drained;
            }
            if self.layer.repeat(&mut self.below, queue) {
                continue;
            }
            if queue.unsent_ready() == 0 || !self.is_open() {
                return Drained::Empty;
            }
            if *budget == 0 {
                return Drained::TurnOver;
            }
            match self.layer.make(&mut self.below, queue, *budget) {
                0 => return Drained::Blocked,
                sent => *budget -= sent,
            }
        }
    }

    fn receive<'a>(
        &'a mut self,
        bytes: &'a [u8],
        queue: &mut OutQ<Piece>,
    ) -> Result<&'a [u8], Failure> {
        let Self { layer, below, input, plain, has_ended } = self;
        input.extend_from_slice(bytes);
        plain.clear();
        *has_ended |= layer.undo(below, queue, input, plain)?;
        Ok(plain)
    }

    fn handle_writable(&mut self) {
        self.below.tcp.handle_writable();
    }

    fn is_blocked(&self) -> bool {
        self.below.tcp.is_blocked() || self.layer.is_full()
    }

    fn acknowledged(&self, ring: &Ring, queue: &OutQ<Piece>) -> i64 {
        let of_frames = || self.below.tcp.acknowledged(ring, &self.below.made);
        self.layer.acknowledged(queue).unwrap_or_else(of_frames)
    }

    fn set_receiving(&mut self, ring: &mut Ring, on: bool) {
        self.below.tcp.set_receiving(ring, on || L::RECEIVES_ALWAYS);
    }

    fn handle_receive_stopped(&mut self) {
        self.below.tcp.handle_receive_stopped();
    }

    fn handle_end(&mut self) {
        self.below.tcp.handle_end();
        self.has_ended = true;
    }

    fn has_ended(&self) -> bool {
        self.has_ended
    }

    fn shutdown(&mut self, ring: &mut Ring) {
        self.below.push(self.layer.end());
        self.below.shuts_down = true;
        self.below.flush(ring);
    }

    fn close(&mut self, ring: &mut Ring) {
        // The end is said if there is room for it. Nothing waits for more.
        self.below.push(self.layer.end());
        self.below.flush(ring);
        self.below.tcp.close(ring);
    }
}

/// Where a chunk is in its payload.
pub(crate) fn bounds(range: &Range<u64>) -> Range<usize> {
    let index = |at| usize::try_from(at).expect("within a slice");
    index(range.start)..index(range.end)
}

/// Asserts that a transport counts its memory: `head` begins a record, or a segment, of more than
/// 10,000 bytes, the rest of which never comes.
pub(crate) fn assert_a_part_is_counted<T: Transport>(make: Make<T>, head: &[u8]) {
    let site = Site::new("empty");
    let world = world::make(config(1), &site);
    let mut worker = serve_over::<Http1, T>(&world, options(&site), make);
    let peer = world.connect();
    peer.send(head);
    peer.send(&[0; 10_000]);
    pass(&mut worker, Duration::from_secs(1));
    assert!(worker.held().0 >= 10_000, "{:?}", worker.held());
    drop(peer);
    assert_nothing_is_left(&world, &mut worker);
}
