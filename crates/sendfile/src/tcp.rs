//! The kernel's transport: a TCP socket or a Unix stream socket.
//!
//! Read first: `send(2)`, `sendfile(2)`, `splice(2)`, `tcp(7)`.
//!
//! Bytes are released as soon as the kernel has accepted them. The kernel copies bytes in memory. For a file, the
//! kernel refers to memory pages of the file. These pages stay in memory until they were sent, even if the page cache
//! evicts them. On loopback, a send that refers to memory costs more than a copy (`docs/linux.md`, `MSG_ZEROCOPY`).

use core::iter::once;
use core::num::{NonZeroU32, NonZeroU64};
use std::io::{self, IoSlice};

use outq::{Chunk, OutQ};
use ring::{Fault, Fd, Key, Op, Ring, Token};

use crate::failure::Failure;
use crate::payload::{Piece, index};
use crate::slice::Slices;
use crate::transport::{Drained, Takes, Transport};

/// If at least this many bytes are left to send, bytes from a disk are sent in full packets only.
const CORK_BYTES_MIN: u64 = 512 * 1024;
/// The maximum of unsent bytes in a socket whose unsent bytes are bounded: a quarter of a second of the fastest film
/// whose window is paced. Without a bound the kernel accepted 2 MB of a film that is played at 0.25 MB per second.
const UNSENT_MAX: NonZeroU32 = NonZeroU32::new(128 * 1024).expect("not 0");
/// The maximum of pieces of memory in one `sendmsg(2)`.
const PIECES_MAX: usize = 16;

/// A stream socket of the kernel, over a ring.
#[derive(Debug)]
pub struct KernelTcp {
    socket: Fd,
    receive_token: Token,
    writable_token: Token,
    receiving: Receiving,
    /// `Some` while the ring waits for the socket to have room for bytes, because it was full or was sent
    /// what its rate allows.
    writable: Option<Key>,
    /// `Some` while the socket is sent bytes at a rate. Few are, and an idle connection is to stay small.
    rate: Option<Box<Rate>>,
    /// True while the socket sends whole packets only.
    corked: bool,
    /// True if its unsent bytes are bounded.
    is_bound: bool,
    takes: Takes,
}

/// The rate of a socket.
#[derive(Debug)]
struct Rate {
    bytes_per_second: NonZeroU64,
    /// `Some` if the kernel does not keep to the rate.
    slices: Option<Slices>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Receiving {
    /// The ring does not receive.
    Stopped,
    /// The ring receives.
    Armed(Key),
    /// The ring has been asked to stop, and will report when it has.
    Stopping,
    /// The peer will send no more.
    Ended,
}

impl KernelTcp {
    /// Makes a transport of a connected socket. The transport's operations have these tokens. No byte is received
    /// before [`set_receiving`](Transport::set_receiving).
    #[must_use]
    pub const fn new(socket: Fd, receive_token: Token, writable_token: Token) -> Self {
        Self {
            socket,
            receive_token,
            writable_token,
            receiving: Receiving::Stopped,
            writable: None,
            rate: None,
            corked: false,
            is_bound: false,
            takes: Takes::Files,
        }
    }

    /// From now on, sends only from memory. On a blocking socket, `sendfile(2)` and `splice(2)` would sleep until the
    /// peer has received enough bytes. A send of memory returns at once on any socket.
    #[must_use]
    pub const fn of_memory(mut self) -> Self {
        self.takes = Takes::Memory;
        self
    }

    /// Returns whether the ring receives bytes, or has not yet reported that it stopped receiving.
    #[must_use]
    pub const fn is_receiving(&self) -> bool {
        matches!(self.receiving, Receiving::Armed(_) | Receiving::Stopping)
    }

    /// The socket.
    #[must_use]
    pub const fn socket(&self) -> &Fd {
        &self.socket
    }

    /// Sends at most `budget` bytes from the head of the queue: a range of a file, pages of a pipe, or several pieces
    /// of memory. The `rest` are the ready chunks after the `first` one.
    fn send<'a>(
        &mut self,
        ring: &mut Ring,
        queue: &OutQ<Piece>,
        first: Chunk<'a, Piece>,
        rest: impl Iterator<Item = Chunk<'a, Piece>>,
        budget: u64,
    ) -> io::Result<usize> {
        let left = queue.promised() - queue.sent();
        if !self.corked && left >= CORK_BYTES_MIN && first.payload.is_read() {
            // `MSG_MORE` holds back a packet that is not full until the next acknowledgement comes; a cork holds it
            // back until it is full. Bytes come from the disk piece by piece, so the cork saves packets and wake-ups of
            // the peer. Other bytes come in large pieces anyway.
            self.corked = true;
            ring.cork(&self.socket, true);
        }
        let count = first.len().min(budget);
        match first.payload {
            Piece::File(range) => {
                let offset = range.offset + first.range.start;
                ring.sendfile(&self.socket, range.file.fd(), offset, index(count))
            }
            Piece::Pipe(pages) => {
                let more = count < left;
                ring.drain(&self.socket, &mut pages.pipe.borrow_mut(), index(count), more)
            }
            // Most responses are one piece.
            _ if count == budget.min(left) => self.send_memory::<1>(ring, once(first), left, count),
            _ => {
                let (ready, len) = (once(first).chain(rest), budget.min(left));
                self.send_memory::<PIECES_MAX>(ring, ready, left, len)
            }
        }
    }

    /// Sends at most `len` bytes of memory, in at most `N` pieces. If they are not all of the `left` bytes of the stream,
    /// a packet that is not full waits for more. If the rest waits for a disk, the kernel sends the packet after 200 ms.
    fn send_memory<'a, const N: usize>(
        &self,
        ring: &Ring,
        ready: impl Iterator<Item = Chunk<'a, Piece>>,
        left: u64,
        len: u64,
    ) -> io::Result<usize> {
        let mut pieces = [IoSlice::new(&[]); N];
        let mut count = 0;
        let mut room = len;
        for chunk in ready.take(N).take_while(|chunk| chunk.payload.is_memory()) {
            let end = chunk.range.end.min(chunk.range.start + room);
            let bytes = &chunk.payload.bytes()[index(chunk.range.start)..index(end)];
            pieces[count] = IoSlice::new(bytes);
            count += 1;
            room -= bytes.len() as u64;
            if room == 0 {
                break;
            }
        }
        let len = len - room;
        ring.send(&self.socket, &pieces[..count], len < left)
    }

    /// The part of a budget that the rate allows now; `None` if it allows nothing, and a timer runs.
    #[inline]
    fn allowed(&mut self, ring: &mut Ring, budget: u64) -> Option<u64> {
        match &mut self.rate {
            None => Some(budget),
            Some(rate) => {
                let Some(slices) = &mut rate.slices else { return Some(budget) };
                match slices.room(ring.now()) {
                    Ok(room) => Some(room.get().min(budget)),
                    Err(until) => {
                        self.writable = Some(ring.submit(Op::Timer(until), self.writable_token));
                        None
                    }
                }
            }
        }
    }

    /// The next send is tried at once, whether or not the socket was full.
    pub(crate) fn stop_waiting(&mut self, ring: &mut Ring) {
        if let Some(key) = self.writable.take() {
            ring.cancel(key);
        }
    }

    fn uncork(&mut self, ring: &Ring) {
        if core::mem::take(&mut self.corked) {
            ring.cork(&self.socket, false);
        }
    }
}

impl Transport for KernelTcp {
    fn takes(&self) -> Takes {
        self.takes
    }

    fn drain(&mut self, ring: &mut Ring, queue: &mut OutQ<Piece>, budget: &mut u64) -> Drained {
        if self.is_blocked() {
            return Drained::Blocked;
        }
        loop {
            let mut ready = queue.next_ready();
            let Some(first) = ready.next() else {
                if queue.is_drained() {
                    self.uncork(ring);
                }
                return Drained::Empty;
            };
            if *budget == 0 {
                return Drained::TurnOver;
            }
            let Some(allowed) = self.allowed(ring, *budget) else { return Drained::Blocked };
            let payload = first.payload;
            match self.send(ring, queue, first, ready, allowed) {
                // Only a file can end early.
                Ok(0) => return Drained::Failed(Failure::Truncated),
                Ok(sent) => {
                    let sent = sent as u64;
                    *budget -= sent;
                    if let Some(slices) = self.rate.as_mut().and_then(|rate| rate.slices.as_mut()) {
                        slices.spend(sent);
                    }
                    queue.mark_sent(sent);
                    queue.mark_released(sent);
                }
                Err(error) => match (Fault::of(&error), payload) {
                    (Fault::Blocked, _) => {
                        let op = Op::Writable(self.socket.clone());
                        self.writable = Some(ring.submit(op, self.writable_token));
                        return Drained::Blocked;
                    }
                    (Fault::Interrupted, _) => {}
                    (Fault::Unsupported(_), Piece::File(range)) => {
                        range.file.cannot_be_sent();
                        return Drained::Refused;
                    }
                    (fault, _) => return Drained::Failed(Failure::of_send(fault)),
                },
            }
        }
    }

    fn receive<'a>(
        &'a mut self,
        bytes: &'a [u8],
        _queue: &mut OutQ<Piece>,
    ) -> Result<&'a [u8], Failure> {
        Ok(bytes)
    }

    fn handle_writable(&mut self) {
        self.writable = None;
    }

    fn is_blocked(&self) -> bool {
        self.writable.is_some()
    }

    /// The kernel may have taken megabytes more, and the socket becomes writable only when a third of them has gone.
    fn acknowledged(&self, ring: &Ring, queue: &OutQ<Piece>) -> i64 {
        queue.sent().wrapping_sub(ring.queued(&self.socket)).cast_signed()
    }

    fn set_rate(&mut self, ring: &Ring, bytes_per_second: Option<NonZeroU64>) {
        if self.rate.as_ref().map(|rate| rate.bytes_per_second) == bytes_per_second {
            return;
        }
        let is_paced = ring.set_rate(&self.socket, bytes_per_second);
        self.rate = bytes_per_second.map(|bytes_per_second| {
            let slices = (!is_paced).then(|| Slices::new(bytes_per_second, ring.now()));
            Box::new(Rate { bytes_per_second, slices })
        });
    }

    fn set_receiving(&mut self, ring: &mut Ring, on: bool) {
        match (self.receiving, on) {
            (Receiving::Armed(key), false) => {
                self.receiving = Receiving::Stopping;
                ring.cancel(key);
            }
            (Receiving::Stopped, true) => {
                let key = ring.submit(Op::Recv(self.socket.clone()), self.receive_token);
                self.receiving = Receiving::Armed(key);
            }
            (Receiving::Armed(_), true)
            | (Receiving::Stopped, false)
            | (Receiving::Stopping | Receiving::Ended, _) => {}
        }
    }

    fn expect_much(&mut self, much: bool) {
        self.socket.expect_much(much);
    }

    fn bound_unsent(&mut self, ring: &Ring, is_bound: bool) {
        if self.is_bound != is_bound {
            self.is_bound = is_bound;
            ring.bound_unsent(&self.socket, is_bound.then_some(UNSENT_MAX));
        }
    }

    fn handle_receive_stopped(&mut self) {
        self.receiving = Receiving::Stopped;
    }

    fn handle_end(&mut self) {
        self.receiving = Receiving::Ended;
    }

    fn has_ended(&self) -> bool {
        self.receiving == Receiving::Ended
    }

    fn shutdown(&mut self, ring: &mut Ring) {
        ring.shutdown(&self.socket);
    }

    fn reset(&mut self, ring: &mut Ring) {
        ring.reset(&self.socket);
    }

    fn close(&mut self, ring: &mut Ring) {
        if let Receiving::Armed(key) = self.receiving {
            ring.cancel(key);
        }
        if let Some(key) = self.writable {
            ring.cancel(key);
        }
    }
}
