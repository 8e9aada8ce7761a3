//! Long contents: once their head has come, they are pulled past the ring, into a pipe that is spliced to the
//! client, or into a cyclic buffer that is sent from: if there is no pipe, and for a client that is slow. So is what comes
//! through a tunnel to the client, as long as much of it comes at once.
//!
//! The ring receives 20 KiB at a time from a server, and each of these is copied once more. That suits small
//! responses, for which no other call is needed.
//!
//! A content is pulled if 8 KiB or more of it are to come: the ring stops to receive, and `splice(2)` moves at most
//! `receive-max` at a time through the one pipe of the exchange. It is received into the cyclic buffer instead where
//! there is no free pipe, with `splice = false`, in chunks, up to the end of the connection, for transports that take
//! memory, and for a client that makes no room for 0.1 s.
//!
//! The bytes of a FastCGI application on a new link are pulled into the buffer from the first one on, because
//! php-fpm writes 8 KiB at a time, and each of these would be an event and a copy. A tunnel is pulled where 8 KiB wait
//! for the client, until less than 2 KiB come at once. So messages go through the ring, and bulk does not.
//!
//! While contents come in pieces, the worker's next wait gathers completions: as many as there are exchanges, at most
//! 16, for at most 20 µs. Each piece that finds the worker asleep costs its sender an interrupt.

use std::io;

use outq::Payload as _;
use ring::{Fd, Pipe, PipePool, Ring};
use sendfile::{Account, Cyclic, CyclicPool, Piece, Takes};

use super::reception::Way;
use super::{Exchange, Stage, Tools};
use crate::handler::gateway::output::EARLY_BYTES_MAX;
use crate::handler::proxy::is_pull_over;
use crate::handler::proxy::spool::Files;
use crate::handler::proxy::wire::Heard;
use session::budget::Budget;
use upstream::Link;

/// Contents of which so much is missing behind what has come with the head are pulled; those of unknown length, once so
/// much has come; what comes through a tunnel, once so much waits for the client. For less it is not worthwhile to have the
/// ring stop, and begin again.
pub(super) const PULLED_BYTES_MIN: u64 = 8 * 1024;
/// Once less than this comes at once through a tunnel, the ring receives again: that needs fewer calls for a message.
/// There is a distance to the number above, so that a tunnel does not go to and fro.
const TUNNEL_BYTES_MIN: u64 = 2 * 1024;
/// Pipes of a worker. While none is free, contents go through memory.
const PIPES_MAX: usize = 32;
/// Bytes of cyclic buffers that are kept for the next contents as long as there are exchanges. Memory of a kept buffer that was never used costs
/// nothing.
const CYCLIC_BYTES_KEPT: u64 = 16 * 1024 * 1024;
/// Shorter parts of a content are copied out of the cyclic buffer: to keep account of them costs more.
const PART_BYTES_MIN: usize = 1024;
/// Bytes of a cyclic buffer for a response before its turn, and while the worker's memory is short: the longest head fits,
/// with what may come behind it.
const SMALL_BYTES: usize = 36 * 1024;
/// Bytes of small buffers that are kept for the next contents.
const SMALL_BYTES_KEPT: u64 = 4 * 1024 * 1024;
/// Bytes of a line of framing that may have come before a content is pulled; a buffer has room for them.
const LINE_BYTES_MAX: usize = 4 * 1024;

/// The places into which a worker pulls contents.
#[derive(Debug)]
pub(in crate::handler::proxy) struct Places {
    pipes: PipePool,
    buffers: CyclicPool,
    /// Small ones. What may be in them is charged by the [`Output`](crate::handler::gateway::output::Output) of each.
    small: CyclicPool,
    pub(super) files: Files,
}

impl Places {
    /// Places with so many bytes of cyclic buffers, which are charged to `account`. While none is left for a content, that
    /// goes through a small one.
    pub(in crate::handler::proxy) fn new(account: &Account, buffers_bytes_max: u64) -> Self {
        let buffers = CyclicPool::charged_to(account, buffers_bytes_max, CYCLIC_BYTES_KEPT);
        // There is one for each exchange at most.
        let small = CyclicPool::new(u64::MAX, SMALL_BYTES_KEPT);
        Self { pipes: PipePool::new(PIPES_MAX), buffers, small, files: Files::default() }
    }

    /// A buffer of so many bytes, if the budget of the worker has room for it.
    fn take(&self, budget: &Budget, bytes: usize) -> Option<Cyclic> {
        // Those that are kept are charged already.
        if !budget.has_room(bytes as u64) && !self.buffers.keeps(bytes) {
            return None;
        }
        self.buffers.take(bytes)
    }

    /// Gives buffers and pipes that no exchange uses back to the kernel.
    pub(in crate::handler::proxy) fn shrink(&self) {
        self.buffers.shrink();
        self.small.shrink();
        self.pipes.shrink();
    }
}

/// The result of a pull.
enum Pulled {
    /// A part of a content of known length.
    Piece(Piece),
    /// Bytes with the framing among them; they are in the cyclic buffer.
    Framed,
    /// Nothing: the server will send no more.
    End,
}

impl Exchange {
    /// Begins to pull the content, or what comes through the tunnel, if it is so long that this is worthwhile.
    pub(super) fn pull_if_long(&mut self, tools: &mut Tools<'_>) {
        let bytes = match self.stage {
            Stage::Content => self.wire.content_left().unwrap_or(self.delivery.bytes),
            Stage::Tunnel => self.delivery.output.borrow().bytes,
            _ => 0,
        };
        if !self.reception.way.is_pulled()
            && bytes >= PULLED_BYTES_MIN
            && self.reception.unread.len() <= LINE_BYTES_MAX
            && let Some(link) = self.tries.link(tools.links)
        {
            self.reception.way = Way::Pipes;
            link.set_pulling(&mut tools.shell.ring);
            // From now on memory is taken when there is some.
            self.delivery.output.borrow_mut().allow(0);
        }
    }

    /// Goes on in another turn of the worker.
    pub(in crate::handler::proxy) fn handle_turn(&mut self, tools: &mut Tools<'_>) {
        self.reception.is_queued = false;
        self.send(tools);
        self.pull(tools);
    }

    /// Pulls what has come, as long as there is room for it and the turn is not over.
    pub(in crate::handler::proxy) fn pull(&mut self, tools: &mut Tools<'_>) {
        while self.reception.way.is_pulled() && self.receives() {
            // Short parts are copied out of the cyclic buffer, so its size does not bound them.
            if self.reception.way.is_memory() && self.is_full() {
                return;
            }
            if self.is_turn_over(tools) {
                return self.queue(tools);
            }
            if self.reception.way.is_interrupted() {
                self.understand_pulled(tools);
                continue;
            }
            let pulled = match self.wire.content_left() {
                _ if self.stage == Stage::Tunnel => self.pull_piece(tools, u64::MAX),
                Some(left) => self.pull_piece(tools, left),
                None => self.pull_framed(tools),
            };
            match pulled {
                None => return,
                Some(Ok(Pulled::Piece(piece))) if self.stage == Stage::Tunnel => {
                    self.pass_through(tools, piece);
                }
                Some(Ok(Pulled::Piece(piece))) => self.pass(tools, piece),
                Some(Ok(Pulled::Framed)) => self.understand_pulled(tools),
                Some(Ok(Pulled::End)) => return self.handle_ended(tools),
                Some(Err(error)) => return self.handle_failed(tools, &error),
            }
        }
    }

    /// Returns whether the share of the exchange in this turn of the worker is used up, or the time of all exchanges.
    fn is_turn_over(&mut self, tools: &mut Tools<'_>) -> bool {
        let has_share = self.reception.share.is_left(tools.shell.cx.turn);
        !has_share || is_pull_over(tools.pull_until, tools.shell)
    }

    /// Asks for another turn if something may have come.
    fn queue(&mut self, tools: &mut Tools<'_>) {
        let has_come = self.tries.link(tools.links).is_some_and(|link| link.may_pull());
        if (has_come || self.reception.way.is_interrupted())
            && !core::mem::replace(&mut self.reception.is_queued, true)
        {
            tools.again.push_back(self.key);
        }
    }

    /// Pulls into memory from now on if the client has not made room for another pipe for a while: its server
    /// can go on, as far as the route's buffer allows.
    pub(super) fn pull_for_slow_client(&mut self, tools: &mut Tools<'_>) {
        if self.may_be_slow() && !self.delivery.output.borrow().is_empty() && self.has_buffer(tools)
        {
            self.pull(tools);
        }
    }

    /// Returns whether its client would be given a cyclic buffer if it turned out to be slow.
    pub(super) fn may_be_slow(&self) -> bool {
        let may_help = match self.reception.way {
            Way::Ring => false,
            Way::Pipes => true,
            Way::Memory { .. } => self.may_spool(),
        };
        may_help && self.stage == Stage::Content && self.is_taken()
    }

    /// Returns whether the client takes the content. A hole of a page, and a response behind another one, has its turn
    /// later.
    pub(super) fn is_taken(&self) -> bool {
        self.delivery.output.borrow().takes.is_some()
    }

    /// Pulls a piece of what is `left` of a content of known length, unless there is no room for it or nothing
    /// has come.
    ///
    /// While a client takes pipes, it has one at a time. Memory has as much as the route's buffer.
    fn pull_piece(&mut self, tools: &mut Tools<'_>, left: u64) -> Option<io::Result<Pulled>> {
        let left = usize::try_from(left).unwrap_or(usize::MAX);
        let link = self.tries.link(tools.links)?;
        let ring = &mut tools.shell.ring;
        if !link.may_pull() {
            return None;
        }
        let (takes, waiting) = {
            let output = self.delivery.output.borrow();
            (output.takes?, output.bytes)
        };
        let most = left.min(self.receive_max());
        if !self.reception.way.is_memory() && takes == Takes::Files && self.upstream.rules.splice {
            if waiting > 0 {
                return None;
            }
            if let Some(mut pipe) = ring.take_pipe(&tools.places.pipes, 0, most) {
                let came = link.pull(ring, |ring, socket| fill(ring, socket, &mut pipe))?;
                let is_end = pipe.is_empty();
                return Some(came.map(|()| {
                    if is_end { Pulled::End } else { Pulled::Piece(Piece::pipe(pipe)) }
                }));
            }
        }
        if !self.has_buffer(tools) {
            return self.stop_pulling(tools);
        }
        let most = most.min(self.room());
        let link = self.tries.link(tools.links)?;
        let buffer = self.reception.way.buffer()?;
        let came = receive(link, &mut tools.shell.ring, buffer, most)?;
        Some(came.map(|count| match count {
            0 => Pulled::End,
            _ => Pulled::Piece(Piece::Cyclic(buffer.take(count))),
        }))
    }

    /// Pulls a content into memory whose end is marked by its framing, or is that of the connection. Until the
    /// client takes it, it stays in the socket. If nobody wants it any more, only its end is read, so that the connection
    /// can be kept.
    fn pull_framed(&mut self, tools: &mut Tools<'_>) -> Option<io::Result<Pulled>> {
        let link = self.tries.link(tools.links)?;
        let is_early = !self.is_taken() && !self.delivery.has_all();
        if !link.may_pull() || is_early && self.stage == Stage::Content {
            return None;
        }
        if !self.has_buffer(tools) {
            return self.stop_pulling(tools);
        }
        let most = self.receive_max().min(self.room());
        let link = self.tries.link(tools.links)?;
        let (buffer, unread) = (self.reception.way.buffer()?, &mut self.reception.unread);
        if !unread.is_empty() {
            buffer.room()[..unread.len()].copy_from_slice(unread);
            buffer.received(unread.len());
            unread.clear();
        }
        let came = receive(link, &mut tools.shell.ring, buffer, most)?;
        if matches!(came, Ok(0)) {
            // A line that has no end.
            unread.extend_from_slice(buffer.bytes());
        }
        Some(came.map(|count| if count == 0 { Pulled::End } else { Pulled::Framed }))
    }

    /// Bytes that are received at once at most.
    fn receive_max(&self) -> usize {
        usize::try_from(self.upstream.rules.receive_max).unwrap_or(usize::MAX)
    }

    /// Returns whether the server may send something.
    const fn receives(&self) -> bool {
        self.receives_response() || matches!(self.stage, Stage::Tunnel)
    }

    /// Returns whether a part of the content has come, and not all of it.
    pub(in crate::handler::proxy) const fn has_more_to_come(&self) -> bool {
        matches!(self.stage, Stage::Content)
    }

    /// Returns whether the head or the content of the response comes.
    const fn receives_response(&self) -> bool {
        matches!(self.stage, Stage::Asking | Stage::Content)
    }

    /// Takes the framing off what has been pulled, and passes the content on.
    fn understand_pulled(&mut self, tools: &mut Tools<'_>) {
        self.note_heard(tools);
        let Some(mut buffer) = self.reception.way.take_buffer() else { return };
        let mut is_interrupted = false;
        while self.receives_response() {
            if !self.reception.share.is_left(tools.shell.cx.turn) {
                is_interrupted = true;
                break;
            }
            let bytes = buffer.bytes();
            let (taken, heard) = self.wire.handle_input(
                bytes,
                &tools.shell.cx.tuning.response_limits,
                tools.shell.cx.dated(),
            );
            self.reception.share.spend(taken as u64);
            match heard {
                Heard::Content(content) => {
                    self.clock.note_progress(tools.shell.cx.now);
                    let (before, length) = (offset(bytes, content), <[u8]>::len(content));
                    drop_first(&mut buffer, before);
                    let part = buffer.take(length);
                    drop_first(&mut buffer, taken - before - length);
                    let is_short = length < PART_BYTES_MIN;
                    let piece =
                        if is_short { Piece::Bytes(part.to_vec()) } else { Piece::Cyclic(part) };
                    self.take(tools, piece);
                }
                heard => {
                    let is_partial = matches!(heard, Heard::Partial);
                    self.handle_heard(tools, heard, taken == <[u8]>::len(bytes));
                    drop_first(&mut buffer, taken);
                    if is_partial {
                        break;
                    }
                }
            }
        }
        // What follows the head of a tunnel belongs to it.
        let rest = buffer.bytes().len();
        if self.stage == Stage::Tunnel && rest > 0 {
            let piece = Piece::Cyclic(buffer.take(rest));
            self.take(tools, piece);
        }
        // If another server is asked, the rest is of the one before.
        if self.stage != Stage::Connecting {
            self.reception.way = Way::Memory { buffer, is_interrupted };
        }
    }

    /// Takes a cyclic buffer, unless there is one; returns false if none can be had. A response has a small one before its
    /// turn, and while the worker has no memory for the whole of it.
    pub(super) fn has_buffer(&mut self, tools: &Tools<'_>) -> bool {
        let whole = self.buffer_bytes();
        if !self.reception.way.is_memory() {
            let buffer = if self.is_taken() { self.take_whole_buffer(tools) } else { None };
            if let Some(buffer) = buffer.or_else(|| tools.places.small.take(whole.min(SMALL_BYTES)))
            {
                self.reception.way = Way::Memory { buffer, is_interrupted: false };
            }
        } else if self.delivery.bytes >= EARLY_BYTES_MAX
            && self.reception.way.buffer().is_some_and(|buffer| buffer.size() < whole as u64)
            && self.is_taken()
        {
            self.renew_buffer(tools);
        }
        self.reception.way.is_memory()
    }

    /// Takes a cyclic buffer of the size that the route says, if there is memory for it.
    fn take_whole_buffer(&self, tools: &Tools<'_>) -> Option<Cyclic> {
        let buffer = tools.places.take(&tools.shell.cx.budget, self.buffer_bytes())?;
        // It is charged as a whole.
        self.delivery.output.borrow_mut().allow(0);
        Some(buffer)
    }

    /// Bytes of a cyclic buffer.
    fn buffer_bytes(&self) -> usize {
        usize::try_from(self.memory_max()).unwrap_or(usize::MAX)
    }

    /// Receives into another cyclic buffer from now on. Memory is free again in its order only, and some of this
    /// one waits for the client.
    pub(super) fn renew_buffer(&mut self, tools: &Tools<'_>) {
        if self.reception.way.is_memory()
            && let Some(mut new) = self.take_whole_buffer(tools)
            && let Some(buffer) = self.reception.way.buffer()
        {
            let begun = buffer.bytes();
            new.room()[..begun.len()].copy_from_slice(begun);
            new.received(begun.len());
            *buffer = new;
        }
    }

    /// Goes on as before, through the ring.
    fn stop_pulling<T>(&mut self, tools: &mut Tools<'_>) -> Option<T> {
        self.reception.way = Way::Ring;
        self.receive_if_wanted(tools);
        None
    }

    /// Passes a piece on that has come through a tunnel.
    fn pass_through(&mut self, tools: &mut Tools<'_>, piece: Piece) {
        self.clock.since = tools.shell.cx.now;
        let length = piece.len();
        self.reception.share.spend(length);
        self.take(tools, piece);
        if length < TUNNEL_BYTES_MIN {
            self.stop_pulling::<()>(tools);
        }
    }

    /// Passes a piece of a content of known length on.
    fn pass(&mut self, tools: &mut Tools<'_>, piece: Piece) {
        self.clock.since = tools.shell.cx.now;
        self.reception.share.spend(piece.len());
        self.wire.pass(piece.len());
        self.take(tools, piece);
        if self.wire.content_left() == Some(0) {
            self.understand(tools, &[]);
        }
    }
}

/// Where a part of these bytes begins.
fn offset(bytes: &[u8], part: &[u8]) -> usize {
    part.as_ptr().addr() - bytes.as_ptr().addr()
}

/// Frees the memory of the first bytes that were received.
fn drop_first(buffer: &mut Cyclic, count: usize) {
    if count > 0 {
        drop(buffer.take(count));
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

/// Receives at most so many bytes into a buffer and returns how many, 0 at the end; nothing if there is no
/// room or nothing has come.
fn receive(
    link: &mut Link,
    ring: &mut Ring,
    buffer: &mut Cyclic,
    most: usize,
) -> Option<io::Result<usize>> {
    let room = buffer.room();
    let most = most.min(room.len());
    if most == 0 {
        return None;
    }
    let came = link.pull(ring, |ring, socket| ring.receive(socket, &mut room[..most]))?;
    Some(came.inspect(|count| buffer.received(*count)))
}
