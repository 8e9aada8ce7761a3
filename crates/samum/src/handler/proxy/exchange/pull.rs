//! Long contents: once their head has come, they are pulled past the ring, into a pipe that is spliced to the
//! client, or else into a cyclic buffer that is sent from.
//!
//! The ring receives 2 KiB at a time, and each of these is copied once more. That suits small responses, for
//! which no other call is needed.

use std::io;

use outq::Payload as _;
use ring::{Fd, Pipe, PipePool, Ring};
use sendfile::{Cyclic, CyclicPool, Piece, Takes};

use super::{Exchange, Stage, Tools};

/// Contents of which so much is missing behind what has come with the head are pulled. For less it is not
/// worthwhile to have the ring stop, and begin again.
const PULLED_BYTES_MIN: u64 = 64 * 1024;
/// Bytes that are spliced at once. More of them cost the same for each byte, and let the client wait.
const PIPE_BYTES: usize = 256 * 1024;
/// Bytes that are received into memory at once. The fewer there are, the more each of them costs.
const MEMORY_BYTES: usize = 512 * 1024;
/// Pipes of a worker. While none is free, contents go through memory.
const PIPES_MAX: usize = 32;
/// Bytes of the cyclic buffers of a worker. While there is no room, contents go through the ring.
const CYCLIC_BYTES_MAX: u64 = 512 * 1024 * 1024;
/// Bytes of cyclic buffers that are kept for the next contents.
const CYCLIC_BYTES_KEPT: u64 = 4 * 1024 * 1024;

/// The places into which a worker pulls contents.
#[derive(Debug)]
pub(in crate::handler::proxy) struct Places {
    pipes: PipePool,
    buffers: CyclicPool,
}

impl Default for Places {
    fn default() -> Self {
        let buffers = CyclicPool::new(CYCLIC_BYTES_MAX, CYCLIC_BYTES_KEPT);
        Self { pipes: PipePool::new(PIPES_MAX), buffers }
    }
}

/// The place into which the next piece is pulled.
enum Place<'a> {
    Pipe(Pipe),
    Memory(&'a mut Cyclic),
    /// There is none, and will not be.
    Nowhere,
}

impl Exchange {
    /// Begins to pull the content if so much of it is missing that it is worthwhile.
    pub(super) fn pull_if_long(&mut self, tools: &mut Tools<'_>) {
        let missing = self.wire.content_left().unwrap_or(0);
        if self.stage == Stage::Content
            && !self.is_pulled
            && missing >= PULLED_BYTES_MIN
            && let Some(link) = self.link.and_then(|link| tools.links.get_mut(link))
        {
            self.is_pulled = true;
            link.set_pulling(&mut tools.shell.ring);
        }
    }

    /// Pulls what has come, as long as there is room for it.
    pub(in crate::handler::proxy) fn pull(&mut self, tools: &mut Tools<'_>) {
        while self.is_pulled && self.stage == Stage::Content {
            match self.pull_piece(tools) {
                None => return,
                Some(Ok(Some(piece))) => self.pass(tools, piece),
                Some(Ok(None)) => return self.handle_ended(tools),
                Some(Err(error)) => return self.handle_failed(tools, &error),
            }
        }
    }

    /// Pulls a piece, unless there is no room for one or nothing has come. No piece is the end of what the
    /// server sends.
    fn pull_piece(&mut self, tools: &mut Tools<'_>) -> Option<io::Result<Option<Piece>>> {
        let left = usize::try_from(self.wire.content_left()?).unwrap_or(usize::MAX);
        let key = self.link?;
        let place = self.place(tools, left)?;
        let link = tools.links.get_mut(key)?;
        let ring = &mut tools.shell.ring;
        match place {
            Place::Pipe(mut pipe) => {
                let came = link.pull(ring, |ring, socket| fill(ring, socket, &mut pipe))?;
                Some(came.map(|()| (!pipe.is_empty()).then(|| Piece::pipe(pipe))))
            }
            Place::Memory(buffer) => {
                let room = buffer.room();
                let most = room.len().min(left).min(MEMORY_BYTES);
                if most == 0 {
                    return None;
                }
                let came =
                    link.pull(ring, |ring, socket| ring.receive(socket, &mut room[..most]))?;
                Some(came.map(|count| {
                    buffer.received(count);
                    (count > 0).then(|| Piece::Cyclic(buffer.take(count)))
                }))
            }
            Place::Nowhere => {
                // As before: through the ring.
                self.is_pulled = false;
                self.receive_if_wanted(tools);
                None
            }
        }
    }

    /// The place for the next piece of what is `left`; none while the client has to take something first.
    ///
    /// While a client takes pipes, it has one at a time: what it does not take stays in the kernel, in the
    /// socket of the server. Memory has as much as the route's buffer.
    fn place(&mut self, tools: &mut Tools<'_>, left: usize) -> Option<Place<'_>> {
        let output = self.output.borrow();
        let takes = output.takes?;
        if self.buffer.is_none() && takes == Takes::Files {
            if output.bytes > 0 {
                return None;
            }
            let wanted = left.min(PIPE_BYTES);
            if let Some(pipe) = tools.shell.ring.take_pipe(&tools.places.pipes, 0, wanted) {
                return Some(Place::Pipe(pipe));
            }
        }
        drop(output);
        if self.buffer.is_none() {
            let bytes = usize::try_from(self.upstream.rules.buffer).unwrap_or(usize::MAX);
            self.buffer = tools.places.buffers.take(bytes);
        }
        Some(self.buffer.as_mut().map_or(Place::Nowhere, Place::Memory))
    }

    /// Passes a piece of the content on to the client.
    fn pass(&mut self, tools: &mut Tools<'_>, piece: Piece) {
        self.since = tools.shell.cx.now;
        self.wire.pass(piece.len());
        let mut output = self.output.borrow_mut();
        output.push_piece(piece);
        if core::mem::take(&mut output.is_awaited) {
            tools.woken.push_back(self.ticket);
        }
        drop(output);
        if self.wire.content_left() == Some(0) {
            self.understand(tools, &[]);
        }
    }
}

/// Splices what has come, until the pipe has what it wants. An end or an error behind some bytes comes again.
fn fill(ring: &Ring, socket: &Fd, pipe: &mut Pipe) -> io::Result<()> {
    while pipe.len() < pipe.want() {
        match ring.receive_to_pipe(socket, pipe) {
            Ok(0) => break,
            Ok(_) => {}
            Err(_) if !pipe.is_empty() => break,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
