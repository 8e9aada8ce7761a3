//! The socket and the TLS of a link to a server that speaks TLS.

use core::ops::Deref;
use std::io;

use outq::OutQ;
use ring::{Key, RecvBuf, Ring};
use sendfile::{Drained, Failure, KernelTcp, Piece, Transport as _};
use tls::{ClientConnection, ClientFault, End, Plain};

/// Bytes that a server has sent.
#[derive(Debug)]
pub enum Received {
    /// As the ring has received them.
    Ring(RecvBuf),
    /// The content of records.
    Plain(Plain),
}

impl Deref for Received {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            Self::Ring(bytes) => bytes,
            Self::Plain(bytes) => bytes,
        }
    }
}

/// A connected socket with TLS.
#[derive(Debug)]
pub(super) struct Secure {
    pub(super) transport: KernelTcp,
    pub(super) tls: ClientConnection,
    /// A timer that reports bytes which were opened earlier than they are wanted, or their end.
    pub(super) nudge: Option<Key>,
    /// True if our side ends once everything has left.
    shuts_down: bool,
}

impl Secure {
    pub(super) const fn new(transport: KernelTcp, tls: ClientConnection) -> Self {
        Self { transport, tls, nudge: None, shuts_down: false }
    }

    /// Makes a step of the handshake. Returns true once the handshake is complete. The records of a step that does not
    /// complete it leave at once; those of the last step leave with the first bytes of the queue.
    pub(super) fn step(&mut self, ring: &mut Ring) -> Result<bool, io::Error> {
        let stepped = self.tls.step();
        if !matches!(stepped, Ok(true)) {
            // A failure shows itself when something is received.
            let _ = self.send(ring);
        }
        Ok(stepped?)
    }

    /// Sends the records: [`Drained::Empty`] only if all of them have left.
    fn send(&mut self, ring: &mut Ring) -> Drained {
        self.transport.drain(ring, self.tls.records(), &mut { u64::MAX })
    }

    /// Seals and sends the bytes of the queue, batch by batch, as far as the server receives them.
    pub(super) fn flush(
        &mut self,
        ring: &mut Ring,
        queue: &mut OutQ<Piece>,
    ) -> Result<(), Failure> {
        loop {
            match self.send(ring) {
                Drained::Empty => {}
                Drained::Blocked => {
                    self.tls.keep_few();
                    return Ok(());
                }
                Drained::TurnOver => unreachable!("there is no budget"),
                Drained::Refused => unreachable!("there are no files in the queue"),
                Drained::Failed(failure) => return Err(failure),
            }
            if self.tls.seal(queue) {
                continue;
            }
            if self.tls.is_used_up(queue) {
                return Err(Failure::Gone);
            }
            if core::mem::take(&mut self.shuts_down) {
                self.tls.say_end();
                self.send(ring);
                self.transport.shutdown(ring);
            }
            self.tls.rest();
            return Ok(());
        }
    }

    /// Ends our side once everything has left.
    pub(super) fn shutdown(&mut self, ring: &mut Ring, queue: &mut OutQ<Piece>) {
        self.shuts_down = true;
        // A failure shows itself when something is received.
        let _ = self.flush(ring, queue);
    }

    /// Receives plain bytes into `room`.
    pub(super) fn receive(
        &mut self,
        ring: &mut Ring,
        queue: &mut OutQ<Piece>,
        room: &mut [u8],
    ) -> io::Result<usize> {
        let Self { transport, tls, .. } = self;
        let received = tls.receive(room, |records| ring.receive(transport.socket(), records));
        self.answer_update(ring, queue);
        received
    }

    /// Handles bytes that the ring has received.
    pub(super) fn handle_received(
        &mut self,
        ring: &mut Ring,
        queue: &mut OutQ<Piece>,
        bytes: &[u8],
    ) {
        self.tls.handle_received(bytes);
        self.answer_update(ring, queue);
    }

    /// Sends new keys if the server waits for them.
    fn answer_update(&mut self, ring: &mut Ring, queue: &mut OutQ<Piece>) {
        if self.tls.owes_update() {
            // A failure shows itself when something is received.
            let _ = self.flush(ring, queue);
        }
    }

    /// The fault of the connection, if it has one.
    pub(super) fn fault(&self) -> Option<ClientFault> {
        match self.tls.end() {
            End::Failed(fault) => Some(fault.clone()),
            End::Open | End::Ended => None,
        }
    }

    /// Closes the connection. Our end is said only if nothing of the queue is missing, so the server can tell a request that
    /// was cut off.
    pub(super) fn close(&mut self, ring: &mut Ring, queue: &OutQ<Piece>) {
        if let Some(key) = self.nudge {
            ring.cancel(key);
        }
        if queue.sent() == queue.promised() && self.tls.unsent() == 0 {
            self.tls.say_end();
        }
        // An alert leaves if there is room for it. Nothing waits for more.
        self.send(ring);
        self.transport.close(ring);
    }
}
