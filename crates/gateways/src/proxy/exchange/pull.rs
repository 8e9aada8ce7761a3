//! After the head has come, a long content bypasses the ring: the worker reads it from the socket with direct calls.
//! This is called *pulling*. The content goes into a pipe that is spliced to the client. If no pipe is free, or if the
//! client is slow, it goes into a cyclic buffer from which it is sent. In a tunnel, the bytes for the client are pulled
//! while many of them arrive at a time.
//!
//! The ring receives up to 20 KiB at a time from an upstream, and copies these bytes once more. This suits small
//! responses, because they need no other call.
//!
//! A content is pulled if at least 8 KiB of it are still to come: the ring stops receiving, and `splice(2)` moves at
//! most `receive-max` at a time through the exchange's one pipe. The cyclic buffer is used instead
//!
//! - if no pipe is free, or with `splice = false`,
//! - for content in chunks, or up to the end of the connection,
//! - for transports that send only from memory, and for an upstream that speaks TLS,
//! - for a client that has made no room during the last 0.1 s.
//!
//! Bytes of a FastCGI application on a new link are pulled into the buffer from the first byte on. php-fpm writes 8 KiB
//! at a time, and each write would be an event and a copy. Pulling of a tunnel begins when 8 KiB wait for the
//! client, and ends when one call brings less than 2 KiB. So messages go through the ring, and bulk data does not.
//!
//! While contents come in pieces, the worker's next wait gathers completions: as many as there are exchanges, at most
//! 16, for at most 20 µs. Otherwise each piece would wake the sleeping worker, and each
//! wake-up costs the upstream an interrupt.

use std::io;

use outq::Payload as _;
use ring::{Fd, Pipe, PipePool, Ring};
use sendfile::{Account, Cyclic, CyclicPool, Piece, Takes};

use super::reception::ReceiveMethod;
use super::{Exchange, Stage, Tools};
use crate::output::EARLY_BYTES_MAX;
use crate::proxy::is_pull_over;
use crate::proxy::spool::Files;
use crate::proxy::wire::Heard;
use session::budget::Budget;
use upstream::Link;

/// A pull is worthwhile if at least this many bytes are involved, because the ring has to stop and begin again. For a
/// content of known length, this is the rest after the bytes that came with the head. For a content of unknown length
/// it is the bytes that have come, and for a tunnel the bytes that wait for the client.
pub(super) const PULLED_BYTES_MIN: u64 = 8 * 1024;
/// If one call brings fewer bytes than this through a tunnel, the tunnel goes back to the ring. The ring needs fewer
/// calls for a short message. The value is less than [`PULLED_BYTES_MIN`], so that a tunnel does not switch to and fro.
const TUNNEL_BYTES_MIN: u64 = 2 * 1024;
/// Pipes of a worker. While none is free, contents go through memory.
const PIPES_MAX: usize = 32;
/// Bytes of cyclic buffers that are kept for the next contents while there are exchanges. Parts of a kept buffer that
/// were never written cost nothing.
const CYCLIC_BYTES_KEPT: u64 = 16 * 1024 * 1024;
/// Shorter parts of a content are copied out of the cyclic buffer, because keeping account of them costs more.
const PART_BYTES_MIN: usize = 1024;
/// Bytes of a cyclic buffer for a response before its turn, and while the worker's memory is short. The longest head
/// fits, with the bytes that may come after it.
const SMALL_BYTES: usize = 36 * 1024;
/// Bytes of a cyclic buffer for a content whose connection has other contents at the same time. A line of framing fits,
/// and a piece after it.
pub(super) const SHARED_BYTES: usize = 16 * 1024;
/// Bytes of small buffers that are kept for the next contents.
const SMALL_BYTES_KEPT: u64 = 4 * 1024 * 1024;
/// Bytes of a line of framing that may have come before a content is pulled; a buffer has room for them.
const LINE_BYTES_MAX: usize = 4 * 1024;

/// The pipes and buffers into which a worker pulls contents.
#[derive(Debug)]
pub(in crate::proxy) struct Pools {
    pipes: PipePool,
    buffers: CyclicPool,
    /// Small buffers. The [`Output`](crate::output::Output) that uses a small buffer charges the bytes that may be in
    /// the buffer.
    small: CyclicPool,
    pub(super) files: Files,
}

impl Pools {
    /// Makes pools with `buffers_bytes_max` bytes of cyclic buffers, which are charged to `account`. A content for
    /// which no buffer is left goes through a small one.
    pub(in crate::proxy) fn new(account: &Account, buffers_bytes_max: u64) -> Self {
        let buffers = CyclicPool::charged_to(account, buffers_bytes_max, CYCLIC_BYTES_KEPT);
        // Each exchange has at most one pipe.
        let small = CyclicPool::new(u64::MAX, SMALL_BYTES_KEPT);
        Self { pipes: PipePool::new(PIPES_MAX), buffers, small, files: Files::default() }
    }

    /// A buffer of `bytes` bytes, if the budget of the worker has room for it.
    fn take(&self, budget: &Budget, bytes: usize) -> Option<Cyclic> {
        // Kept buffers are charged already.
        if !budget.has_room(bytes as u64) && !self.buffers.keeps(bytes) {
            return None;
        }
        self.buffers.take(bytes)
    }

    /// Gives back to the kernel the buffers and pipes that no exchange uses.
    pub(in crate::proxy) fn shrink(&self) {
        self.buffers.shrink();
        self.small.shrink();
        self.pipes.shrink();
    }
}

/// The result of a pull.
enum Pulled {
    /// A part of a content of known length.
    Piece(Piece),
    /// Bytes with their framing, which are in the cyclic buffer.
    Framed,
    /// The end: the upstream will send no more.
    End,
}

impl Exchange {
    /// Begins to pull the content, or the bytes of a tunnel, if it is long enough.
    pub(super) fn pull_if_long(&mut self, tools: &mut Tools<'_>) {
        let bytes = match self.stage {
            Stage::Content => self.wire.content_left().unwrap_or(self.delivery.bytes),
            Stage::Tunnel => self.delivery.output.borrow().bytes,
            _ => 0,
        };
        if !self.reception.method.is_pulled()
            && bytes >= PULLED_BYTES_MIN
            && self.reception.unread.len() <= LINE_BYTES_MAX
            && let Some(link) = self.tries.link(tools.links)
        {
            self.reception.method = ReceiveMethod::Pipes;
            link.set_pulling(&mut tools.shell.ring);
            // From now on bytes are charged when they take memory.
            self.delivery.output.borrow_mut().allow(0);
            self.wire.let_go();
        }
    }

    /// Continues in another worker turn.
    pub(in crate::proxy) fn handle_turn(&mut self, tools: &mut Tools<'_>) {
        self.reception.is_queued = false;
        self.send(tools);
        self.pull(tools);
    }

    /// Pulls the bytes that have come, while there is room for them and the quantum is not used up.
    pub(in crate::proxy) fn pull(&mut self, tools: &mut Tools<'_>) {
        while self.reception.method.is_pulled() && self.receives() {
            // Short parts are copied out of the cyclic buffer, so its size does not limit how many bytes wait. This check does.
            let is_bounded = self.reception.method.is_memory() || self.is_beside_others();
            if is_bounded && self.is_full() {
                return;
            }
            if self.is_turn_over(tools) {
                return self.queue(tools);
            }
            if self.reception.method.is_interrupted() {
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

    /// Returns true if, in this worker turn, the exchange has used up its quantum, or all exchanges together have used up
    /// their time.
    fn is_turn_over(&mut self, tools: &mut Tools<'_>) -> bool {
        let has_share = self.reception.share.is_left(tools.shell.cx.turn);
        !has_share || is_pull_over(tools.pull_until, tools.shell)
    }

    /// Asks for another quantum if bytes may have come.
    fn queue(&mut self, tools: &mut Tools<'_>) {
        let has_come = self.tries.link(tools.links).is_some_and(|link| link.may_pull());
        if (has_come || self.reception.method.is_interrupted())
            && !core::mem::replace(&mut self.reception.is_queued, true)
        {
            tools.again.push_back(self.key);
        }
    }

    /// Pulls into memory from now on if the client has not made room for another pipe for a while. Then the upstream
    /// can continue, as far as the route's buffer allows.
    pub(super) fn pull_for_slow_client(&mut self, tools: &mut Tools<'_>) {
        if self.may_be_slow() && !self.delivery.output.borrow().is_empty() && self.has_buffer(tools)
        {
            self.pull(tools);
        }
    }

    /// Returns true if a cyclic buffer or a file would help now if the client is slow.
    pub(super) fn may_be_slow(&self) -> bool {
        let may_help = match self.reception.method {
            ReceiveMethod::Ring => false,
            ReceiveMethod::Pipes => true,
            ReceiveMethod::Memory { .. } => self.may_spool(),
        };
        may_help && self.stage == Stage::Content && self.is_taken()
    }

    /// Returns true if the client receives the content now. Otherwise the content waits for its turn: it is an included
    /// part of a page, or another response comes first.
    pub(super) fn is_taken(&self) -> bool {
        self.delivery.output.borrow().takes.is_some()
    }

    /// Returns true if the client receives the content now, and has no other request at the same time. A connection of
    /// HTTP/2 has many requests, so it should not get one whole buffer for each request. If the route has a buffer
    /// directory, every request gets its buffer.
    pub(super) fn has_its_turn(&self) -> bool {
        self.is_taken() && !self.is_beside_others()
    }

    /// Returns true if the client receives other contents at the same time, or receives little. Always false if the
    /// route has a buffer directory.
    pub(super) fn is_beside_others(&self) -> bool {
        self.delivery.output.borrow().is_shared && self.upstream.rules.buffer_dir.is_none()
    }

    /// Pulls a piece of the `left` missing bytes of a content of known length, unless there is no room for it or
    /// nothing has come.
    ///
    /// A client whose transport sends from pipes has one pipe at a time. In memory, as many bytes may wait as the
    /// route's buffer has.
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
        if !self.reception.method.is_memory()
            && takes == Takes::Files
            && self.upstream.rules.splice
            && link.may_splice()
        {
            if waiting > 0 {
                return None;
            }
            if let Some(mut pipe) = ring.take_pipe(&tools.pools.pipes, 0, most) {
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
        let buffer = self.reception.method.buffer()?;
        let came = receive(link, &mut tools.shell.ring, buffer, most)?;
        Some(came.map(|count| match count {
            0 => Pulled::End,
            _ => Pulled::Piece(Piece::Cyclic(buffer.take(count))),
        }))
    }

    /// Pulls into memory a content whose end is marked by its framing or by the end of the connection. Until the turn
    /// of the content comes, it stays in the socket. If no client wants the content any more, the rest of it is read and dropped, so
    /// that the connection can be kept.
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
        let (buffer, unread) = (self.reception.method.buffer()?, &mut self.reception.unread);
        if !unread.is_empty() {
            buffer.room()[..unread.len()].copy_from_slice(unread);
            buffer.received(unread.len());
            unread.clear();
        }
        let came = receive(link, &mut tools.shell.ring, buffer, most)?;
        if matches!(came, Ok(0)) {
            // The connection has ended, perhaps within a line.
            unread.extend_from_slice(buffer.bytes());
        }
        Some(came.map(|count| if count == 0 { Pulled::End } else { Pulled::Framed }))
    }

    /// The most bytes that are received in one call.
    fn receive_max(&self) -> usize {
        usize::try_from(self.upstream.rules.receive_max).unwrap_or(usize::MAX)
    }

    /// Returns true if the upstream may send bytes.
    const fn receives(&self) -> bool {
        self.receives_response() || matches!(self.stage, Stage::Tunnel)
    }

    /// Returns true if a part of the content has come, but not all of it.
    pub(in crate::proxy) const fn has_more_to_come(&self) -> bool {
        matches!(self.stage, Stage::Content)
    }

    /// Returns true if the head or the content of the response is coming.
    const fn receives_response(&self) -> bool {
        matches!(self.stage, Stage::Asking | Stage::Content)
    }

    /// Removes the framing of pulled bytes, and passes the content on.
    fn understand_pulled(&mut self, tools: &mut Tools<'_>) {
        self.note_heard(tools);
        let Some(mut buffer) = self.reception.method.take_buffer() else { return };
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
                (tools.shell.cx.unix, &tools.shell.cx.date()),
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
        // The bytes after the head belong to the tunnel.
        let rest = buffer.bytes().len();
        if self.stage == Stage::Tunnel && rest > 0 {
            let piece = Piece::Cyclic(buffer.take(rest));
            self.take(tools, piece);
        }
        // If another server is asked now, the bytes in the buffer came from the last one, and are dropped.
        if self.stage != Stage::Connecting {
            self.reception.method = ReceiveMethod::Memory { buffer, is_interrupted };
        }
    }

    /// Takes a cyclic buffer, unless there is one; returns false if none is free. A response gets a small buffer in
    /// each of these cases: its turn has not come; its connection has other requests; the worker has no memory for a
    /// whole buffer.
    pub(super) fn has_buffer(&mut self, tools: &Tools<'_>) -> bool {
        let whole = self.buffer_bytes();
        if !self.reception.method.is_memory() {
            let buffer = if self.has_its_turn() { self.take_whole_buffer(tools) } else { None };
            let small = whole.min(if self.is_beside_others() { SHARED_BYTES } else { SMALL_BYTES });
            if let Some(buffer) = buffer.or_else(|| tools.pools.small.take(small)) {
                self.reception.method = ReceiveMethod::Memory { buffer, is_interrupted: false };
            }
        } else if self.delivery.bytes >= EARLY_BYTES_MAX
            && self.reception.method.buffer().is_some_and(|buffer| buffer.size() < whole as u64)
            && self.has_its_turn()
        {
            self.renew_buffer(tools);
        }
        self.reception.method.is_memory()
    }

    /// Takes a cyclic buffer of the size that the route says, if there is memory for it.
    fn take_whole_buffer(&self, tools: &Tools<'_>) -> Option<Cyclic> {
        let buffer = tools.pools.take(&tools.shell.cx.budget, self.buffer_bytes())?;
        // The buffer is charged as a whole.
        self.delivery.output.borrow_mut().allow(0);
        Some(buffer)
    }

    /// Bytes of a cyclic buffer.
    fn buffer_bytes(&self) -> usize {
        usize::try_from(self.memory_max()).unwrap_or(usize::MAX)
    }

    /// From now on receives into another cyclic buffer. The memory of a cyclic buffer becomes free only in order, and
    /// some bytes of this buffer still wait for the client.
    pub(super) fn renew_buffer(&mut self, tools: &Tools<'_>) {
        if self.reception.method.is_memory()
            && let Some(mut new) = self.take_whole_buffer(tools)
            && let Some(buffer) = self.reception.method.buffer()
        {
            let begun = buffer.bytes();
            new.room()[..begun.len()].copy_from_slice(begun);
            new.received(begun.len());
            *buffer = new;
        }
    }

    /// Receives through the ring again.
    fn stop_pulling<T>(&mut self, tools: &mut Tools<'_>) -> Option<T> {
        self.reception.method = ReceiveMethod::Ring;
        self.receive_if_wanted(tools);
        None
    }

    /// Passes on a piece that has come through a tunnel.
    fn pass_through(&mut self, tools: &mut Tools<'_>, piece: Piece) {
        self.clock.since = tools.shell.cx.now;
        let length = piece.len();
        self.reception.share.spend(length);
        self.take(tools, piece);
        if length < TUNNEL_BYTES_MIN {
            self.stop_pulling::<()>(tools);
        }
    }

    /// Passes on a piece of a content of known length.
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

/// The offset of a part within these bytes.
fn offset(bytes: &[u8], part: &[u8]) -> usize {
    part.as_ptr().addr() - bytes.as_ptr().addr()
}

/// Frees the memory of the `count` bytes that were received first.
fn drop_first(buffer: &mut Cyclic, count: usize) {
    if count > 0 {
        drop(buffer.take(count));
    }
}

/// Splices bytes that have come, until the pipe is full enough. An end or an error after some bytes is reported by the
/// next call.
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

/// Receives into a buffer, up to a number of bytes. Returns the number received, 0 at the end; nothing if there is no
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
    let came = link.pull_into(ring, &mut room[..most])?;
    Some(came.inspect(|count| buffer.received(*count)))
}
