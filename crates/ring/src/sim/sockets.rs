//! The network: the calls of rings on sockets, and the effects of these calls.

use core::net::{Ipv4Addr, SocketAddr};
use core::num::NonZeroU64;
use core::time::Duration;
use std::io::{self, IoSlice};

use rustix::net::AddressFamily;

use super::net::{
    Connection, End, FarListener, Input, Listener, Output, Reading, Segment, take_front,
};
use super::world::{Descriptor, Happening, World, WorldState};
use super::{Waiter, errno};
use crate::op::{Address, SPARE_ACCEPTS_MAX};
use crate::pipe::Pipe;

/// The number of times per second that a peer reads, if it reads or is sent bytes at a rate.
const STEPS: u64 = 1000;

impl World {
    pub(crate) fn send(&self, fd: i32, pieces: &[IoSlice<'_>], more: bool) -> io::Result<usize> {
        let mut state = self.state();
        let conn = state.conn(fd)?;
        let total = pieces.iter().map(|piece| piece.len()).sum();
        let count = state.admit(conn, total)?;
        let mut left = count;
        for piece in pieces {
            let part = &piece[..left.min(piece.len())];
            state.conns[conn].outbox.extend(part);
            left -= part.len();
        }
        state.sent(conn, count, more);
        Ok(count)
    }

    pub(crate) fn report_acknowledgements(&self, fd: i32) {
        let mut state = self.state();
        if let Ok(conn) = state.conn(fd) {
            state.conns[conn].tell_acknowledgements();
        }
    }

    pub(crate) fn acknowledged(&self, fd: i32) -> u64 {
        let mut state = self.state();
        state.conn(fd).map_or(0, |conn| state.conns[conn].acknowledged())
    }

    pub(crate) fn receive(&self, fd: i32, room: &mut [u8]) -> io::Result<usize> {
        let mut state = self.state();
        state.now = state.now + state.config.receive;
        let conn = state.conn(fd)?;
        let most = state.receive_bytes_max();
        let one = &mut state.conns[conn];
        match one.input {
            _ if !one.inbox.is_empty() => Ok(one.take(room, most)),
            Input::Open => Err(io::ErrorKind::WouldBlock.into()),
            Input::Ended => Ok(0),
            Input::Reset => Err(errno(libc::ECONNRESET)),
        }
    }

    pub(crate) fn receive_to_pipe(&self, fd: i32, pipe: &mut Pipe) -> io::Result<usize> {
        let mut bytes = vec![0; pipe.want() - pipe.len()];
        let came = self.receive(fd, &mut bytes)?;
        let mut state = self.state();
        let pages = state.pipe(pipe.write_end())?;
        pages.borrow_mut().extend(&bytes[..came]);
        pipe.put_in(came);
        state.counts.fills += 1;
        Ok(came)
    }

    pub(crate) fn drain(
        &self,
        fd: i32,
        pipe: &mut Pipe,
        count: usize,
        more: bool,
    ) -> io::Result<usize> {
        let mut state = self.state();
        let conn = state.conn(fd)?;
        let pages = state.pipe(pipe.read_end().raw())?;
        let count = state.admit(conn, count.min(pipe.len()))?;
        take_front(&mut pages.borrow_mut(), count, |part| state.conns[conn].outbox.extend(part));
        pipe.take_out(count);
        state.sent(conn, count, more);
        state.counts.drains += 1;
        Ok(count)
    }

    pub(crate) fn queued(&self, fd: i32) -> u64 {
        let mut state = self.state();
        state.conn(fd).map_or(0, |conn| state.conns[conn].outbox.len() as u64)
    }

    pub(crate) fn sendfile(
        &self,
        fd: i32,
        file: i32,
        offset: u64,
        len: usize,
    ) -> io::Result<usize> {
        let mut state = self.state();
        let conn = state.conn(fd)?;
        if let Some(error) = state.config.sendfile_errno {
            return Err(errno(error));
        }
        let open = state.opened(file)?.clone();
        state.sleep_for_missing(&open, offset, len).map_err(errno)?;
        let range = state.disk.file(open.ino).map_err(errno)?.range(offset, len);
        if range.is_empty() {
            return Ok(0);
        }
        let count = state.admit(conn, range.len())?;
        let bytes = state.disk.file(open.ino).map_err(errno)?.bytes[range][..count].to_vec();
        state.conns[conn].outbox.extend(bytes);
        state.sent(conn, count, false);
        state.counts.sendfiles += 1;
        Ok(count)
    }

    pub(crate) fn cork(&self, fd: i32, corked: bool) {
        let mut state = self.state();
        if let Ok(conn) = state.conn(fd) {
            state.conns[conn].cork(corked);
            state.peer_reads(conn);
        }
    }

    pub(crate) fn set_rate(&self, fd: i32, bytes_per_second: Option<NonZeroU64>) -> bool {
        let mut state = self.state();
        let paces = state.config.paces;
        if paces && let Ok(conn) = state.conn(fd) {
            state.conns[conn].rate = bytes_per_second.map(NonZeroU64::get);
        }
        paces
    }

    pub(crate) fn accept(&self, fd: i32) -> io::Result<i32> {
        self.state().accept(fd)?.ok_or_else(|| errno(libc::EAGAIN))
    }

    /// Each peer has an address of its own.
    pub(crate) fn peer_name(&self, fd: i32) -> Option<SocketAddr> {
        let conn = self.state().conn(fd).ok()?;
        let host = u32::try_from(conn % 0x00ff_ffff).ok()? + 1;
        Some(SocketAddr::from((Ipv4Addr::from(0x0a00_0000 | host), 49_152)))
    }

    pub(crate) fn reset(&self, fd: i32) {
        let mut state = self.state();
        if let Ok(conn) = state.conn(fd) {
            let one = &mut state.conns[conn];
            one.output = Output::Reset;
            one.input = Input::Reset;
            one.outbox.clear();
            let (reader, writer, acknowledgements) = (one.reader, one.writer, one.acknowledgements);
            state.peer_reads(conn);
            for waiter in [reader, writer, acknowledgements] {
                state.look_soon(waiter);
            }
        }
    }

    pub(crate) fn shutdown(&self, fd: i32) {
        let mut state = self.state();
        if let Ok(conn) = state.conn(fd)
            && state.conns[conn].output == Output::Open
        {
            state.conns[conn].output = Output::Ended;
            state.peer_reads(conn);
            let writer = state.conns[conn].writer;
            state.look_soon(writer);
        }
    }
}

impl WorldState {
    /// Lets an accept wait for a listener. A spare accept is refused beyond the limit of its ring, as in the epoll
    /// driver.
    pub(super) fn begin_accept(&mut self, listener: usize, who: Waiter) -> io::Result<()> {
        let of_ring =
            |one: &Listener| one.accepts.iter().filter(|accept| accept.ring == who.ring).count();
        let spare: usize = self.listeners.iter().map(|one| of_ring(one).saturating_sub(1)).sum();
        if of_ring(&self.listeners[listener]) > 0 && spare >= SPARE_ACCEPTS_MAX {
            return Err(errno(libc::ENOBUFS));
        }
        self.listeners[listener].accepts.push(who);
        Ok(())
    }

    pub(super) fn accept(&mut self, fd: i32) -> io::Result<Option<i32>> {
        let listener = self.listener(fd)?;
        let Some(conn) = self.listeners[listener].backlog.front().copied() else { return Ok(None) };
        let fails = self.config.faults.accept_error;
        if self.random.chance(fails) {
            return Err(errno(libc::EMFILE));
        }
        let socket = self.open(Descriptor::Socket(conn))?;
        self.listeners[listener].backlog.pop_front();
        Ok(Some(socket))
    }

    /// A connection of a ring to a peer that listens there; `None` if the peer never answers.
    pub(super) fn connect(&mut self, address: &Address) -> io::Result<Option<i32>> {
        let is_there = |listener: &&mut FarListener| listener.address == *address;
        let Some(listener) = self.far_listeners.iter_mut().flatten().find(is_there) else {
            let is_unix = address.as_any().address_family() == AddressFamily::UNIX;
            return Err(errno(if is_unix { libc::ENOENT } else { libc::ECONNREFUSED }));
        };
        if !listener.answers {
            return Ok(None);
        }
        let conn = self.conns.len();
        listener.backlog.push_back(conn);
        self.conns.push(Connection::new(self.config.send_buffer));
        let socket = self.open(Descriptor::Socket(conn));
        if socket.is_err() {
            self.refuse(conn);
        }
        socket.map(Some)
    }

    // The network

    pub(super) fn connected(&mut self, conn: usize, wanted: Option<usize>) {
        let fits = |at: &usize| !self.listeners[*at].closed && wanted.is_none_or(|one| one == *at);
        let open: Vec<usize> = (0..self.listeners.len()).filter(fits).collect();
        if open.is_empty() {
            self.refuse(conn);
            return;
        }
        let listener = open[self.random.below(open.len())];
        self.listeners[listener].backlog.push_back(conn);
        for accept in self.listeners[listener].accepts.clone() {
            self.look_soon(Some(accept));
        }
    }

    pub(super) fn refuse(&mut self, conn: usize) {
        self.conns[conn].output = Output::Reset;
        self.conns[conn].input = Input::Reset;
        self.peer_reads(conn);
    }

    /// Send a segment, after the earlier segments of the peer.
    pub(super) fn segment(&mut self, conn: usize, segment: Segment) {
        let after_last = self.conns[conn].last_arrival + Duration::from_nanos(1);
        let at = self.after_network().max(after_last);
        self.conns[conn].last_arrival = at;
        self.plan(at, Happening::Arrive(conn, segment));
    }

    pub(super) fn arrived(&mut self, conn: usize, segment: Segment) {
        let lossy = self.random.chance(0.5);
        let one = &mut self.conns[conn];
        if one.input != Input::Open {
            // After an end only a reset means something.
            if segment != Segment::Reset {
                return;
            }
        }
        match segment {
            Segment::Bytes(bytes) => one.inbox.extend(bytes),
            Segment::End => one.input = Input::Ended,
            Segment::Reset => {
                one.input = Input::Reset;
                one.outbox.clear();
                if lossy {
                    one.inbox.clear();
                }
            }
        }
        let (reader, writer, acknowledgements) = (one.reader, one.writer, one.acknowledgements);
        self.look_soon(reader);
        self.look_soon(writer);
        self.look_soon(acknowledgements);
    }

    /// The maximum of bytes that a receive brings.
    pub(super) fn receive_bytes_max(&mut self) -> usize {
        let short = self.config.faults.short_receive;
        if self.random.chance(short) { 1 + self.random.below(100) } else { usize::MAX }
    }

    /// The number of bytes, of `total`, that the socket accepts now.
    pub(super) fn admit(&mut self, conn: usize, total: usize) -> io::Result<usize> {
        let count = self.conns[conn].room()?.min(total);
        let short = self.config.faults.short_send;
        let short = count > 1 && self.random.chance(short);
        let count = if short { 1 + self.random.below(count - 1) } else { count };
        self.counts.partial_sends += u64::from(count < total);
        Ok(count)
    }

    /// Notes that the socket has taken bytes. If wanted, bytes that do not fill a packet wait for more, but not for
    /// long.
    fn sent(&mut self, conn: usize, count: usize, more: bool) {
        if let Some(at) = self.conns[conn].sent(count, more, self.now) {
            self.plan(at, Happening::Flush(conn));
        }
        self.peer_reads(conn);
    }

    /// Let the peer read, if it wants to and bytes have come.
    pub(super) fn peer_reads(&mut self, conn: usize) {
        let one = &self.conns[conn];
        let nothing = one.available(self.now) == 0 && one.output == Output::Open;
        let stopped = one.peer.reading == Reading::Stopped && !one.peer.closed;
        if one.peer.busy || nothing || stopped || one.peer.end.is_some() {
            return;
        }
        let at = match one.flow() {
            // Less than one byte in a step is one in a longer time.
            Some(rate) => self.now + Duration::from_nanos(1_000_000_000 / rate.clamp(1, STEPS)),
            None => self.after_network(),
        };
        self.conns[conn].peer.busy = true;
        self.plan(at, Happening::PeerReads(conn));
    }

    pub(super) fn peer_step(&mut self, conn: usize) {
        let available = self.conns[conn].available(self.now);
        let chosen = 1 + self.random.below(available.max(1));
        let one = &mut self.conns[conn];
        one.peer.busy = false;
        if one.output == Output::Reset {
            one.outbox.clear();
            one.peer.end = Some(End::Reset);
            return;
        }
        if one.peer.closed {
            one.peer.end = Some(End::Reset);
            if available > 0 {
                self.segment(conn, Segment::Reset);
            }
            return;
        }
        let most = match one.flow() {
            _ if one.peer.reading == Reading::Stopped => return,
            Some(rate) => usize::try_from(rate / STEPS).unwrap_or(usize::MAX).max(1),
            None => chosen,
        };
        one.peer_takes(most.min(available));
        if one.outbox.is_empty() && one.output == Output::Ended {
            one.peer.end = Some(End::Eof);
        }
        let (writer, acknowledgements) =
            (one.writer.filter(|_| one.is_writable()), one.acknowledgements);
        self.look_soon(writer);
        self.look_soon(acknowledgements);
        self.peer_reads(conn);
    }
}
