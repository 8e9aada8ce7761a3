//! The direct calls on sockets: of the kernel, or of the simulated world.

use core::net::SocketAddr;
use core::num::{NonZeroU32, NonZeroU64};
use std::io::{self, IoSlice};

use super::Ring;
use crate::acknowledged::Left;
use crate::fd::{Fd, Handle};
use crate::now::socket as kernel;
use crate::pipe::Pipe;

impl Ring {
    /// `send(2)` as many bytes as the socket has room for now. `more` says that the rest of a message follows
    /// immediately (`MSG_MORE`).
    ///
    /// # Errors
    ///
    /// `WouldBlock` when the socket is full (then [`Op::Writable`](crate::Op::Writable)). [`Fault`](crate::Fault) has
    /// the meaning of the others.
    pub fn send(&self, socket: &Fd, pieces: &[IoSlice<'_>], more: bool) -> io::Result<usize> {
        match self.world() {
            Some(world) => world.send(socket.raw(), pieces, more),
            None => kernel::send(socket.os(), pieces, more),
        }
    }

    /// Asks the kernel to report when the peer has acknowledged bytes that are sent from now on:
    /// [`Op::Acknowledgements`](crate::Op::Acknowledgements). It costs a message of the kernel for each send.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` for sockets other than TCP; for these [`queued`](Self::queued) returns about the same number.
    pub fn report_acknowledgements(&self, socket: &Fd) -> io::Result<()> {
        match self.world() {
            Some(world) => world.report_acknowledgements(socket.raw()),
            None => kernel::report_acknowledgements(socket.os())?,
        }
        socket.count_acknowledged();
        Ok(())
    }

    /// `recv(2)` of the bytes that have come, at most as many as `room` holds. 0 is the end of the stream, if there is
    /// room. Not together with [`Op::Recv`](crate::Op::Recv).
    ///
    /// # Errors
    ///
    /// `WouldBlock` when nothing has come (then [`Op::Readable`](crate::Op::Readable)), else the errors of `recv(2)`.
    pub fn receive(&self, socket: &Fd, room: &mut [u8]) -> io::Result<usize> {
        match self.world() {
            Some(world) => world.receive(socket.raw(), room),
            None => kernel::receive(socket.os(), room),
        }
    }

    /// `splice(2)` of the bytes that have come into the pipe, at most as many as the pipe still [wants](Pipe::want). 0
    /// is the end of the stream, if the pipe wants anything. The socket is a nonblocking one. Not together with
    /// [`Op::Recv`](crate::Op::Recv).
    ///
    /// # Errors
    ///
    /// `WouldBlock` when nothing has come (then [`Op::Readable`](crate::Op::Readable)), or when small pieces have
    /// filled the pipe before it has as many bytes as it wants. Else the errors of `splice(2)`.
    pub fn receive_to_pipe(&self, socket: &Fd, pipe: &mut Pipe) -> io::Result<usize> {
        match self.world() {
            Some(world) => world.receive_to_pipe(socket.raw(), pipe),
            None => kernel::receive_to_pipe(socket.os(), pipe),
        }
    }

    /// `accept4(2)` a connection that waits at a listener. Not together with
    /// [`Op::Accept`](crate::Op::Accept).
    ///
    /// # Errors
    ///
    /// `WouldBlock` when no connection waits, else the errors of `accept4(2)`.
    pub fn accept(&self, listener: &Fd) -> io::Result<Fd> {
        let handle = match self.world() {
            Some(world) => Handle::Sim(world.accept(listener.raw())?),
            None => listener.accepted(kernel::accept(listener.os())?),
        };
        Ok(self.common.fd(handle))
    }

    /// Returns whether the socket is a blocking one (`O_NONBLOCK` of `open(2)`). On a blocking socket
    /// [`send`](Self::send) and [`receive`](Self::receive) still return at once, but [`sendfile`](Self::sendfile) and
    /// [`drain`](Self::drain) would sleep until the peer has taken enough.
    #[must_use]
    pub fn is_blocking(&self, socket: &Fd) -> bool {
        match self.world() {
            Some(_) => false,
            None => kernel::is_blocking(socket.os()),
        }
    }

    /// `sendfile(2)` as many bytes as the socket has room for now. Sleeps on the disk unless the range is resident: ask
    /// [`probe`](Self::probe) first.
    ///
    /// # Errors
    ///
    /// `WouldBlock` when the socket is full (then [`Op::Writable`](crate::Op::Writable));
    /// [`Fault`](crate::Fault) says whether another
    /// is of the socket or of the file.
    pub fn sendfile(&self, socket: &Fd, file: &Fd, offset: u64, len: usize) -> io::Result<usize> {
        match self.world() {
            Some(world) => world.sendfile(socket.raw(), file.raw(), offset, len),
            None => kernel::sendfile(socket.os(), file.os(), offset, len),
        }
    }

    /// `splice(2)` as many of at most `count` bytes in the pipe as the socket has room for now.
    ///
    /// # Errors
    ///
    /// As for [`send`](Self::send).
    pub fn drain(
        &self,
        socket: &Fd,
        pipe: &mut Pipe,
        count: usize,
        more: bool,
    ) -> io::Result<usize> {
        match self.world() {
            Some(world) => world.drain(socket.raw(), pipe, count, more),
            None => kernel::drain(socket.os(), pipe, count, more),
        }
    }

    /// The bytes that have been sent and that the peer has not acknowledged (`SIOCOUTQ`, tcp(7)). For Unix sockets it
    /// is roughly the memory that they occupy (unix(7)). A TCP socket whose connection has ended keeps its number; a
    /// Unix socket has 0 once its peer has gone. After [`reset`](Self::reset) the number has no meaning.
    #[must_use]
    pub fn queued(&self, socket: &Fd) -> u64 {
        match self.world() {
            Some(world) => world.queued(socket.raw()),
            None => kernel::queued(socket.os()),
        }
    }

    /// Hold back packets that are not full, for 200 ms at most; or no longer (`TCP_CORK`, tcp(7)).
    pub fn cork(&self, socket: &Fd, corked: bool) {
        match self.world() {
            Some(world) => world.cork(socket.raw(), corked),
            None => kernel::cork(socket.os(), corked),
        }
    }

    /// Accept no more bytes while this many wait to be sent, not counting bytes on their way to the peer. `None` is the
    /// system's limit (`TCP_NOTSENT_LOWAT`, tcp(7)). Nothing changes for Unix sockets.
    pub fn bound_unsent(&self, socket: &Fd, bytes: Option<NonZeroU32>) {
        // The buffers of simulated sockets are smaller.
        if self.world().is_none() {
            kernel::bound_unsent(socket.os(), bytes);
        }
    }

    /// Send at most this many bytes per second from now on, or as many as possible (`SO_MAX_PACING_RATE`). Returns
    /// false if the socket has no pacing: Unix sockets have no packets that could be spread over time.
    pub fn set_rate(&self, socket: &Fd, bytes_per_second: Option<NonZeroU64>) -> bool {
        match self.world() {
            Some(world) => world.set_rate(socket.raw(), bytes_per_second),
            None => kernel::set_rate(socket.os(), bytes_per_second),
        }
    }

    /// The address of the peer; `None` for Unix sockets, and for one whose peer has gone.
    #[must_use]
    pub fn peer_name(&self, socket: &Fd) -> Option<SocketAddr> {
        match self.world() {
            Some(world) => world.peer_name(socket.raw()),
            None => kernel::peer_name(socket.os()),
        }
    }

    /// The address of this end; `None` for Unix sockets, and always in the simulation.
    #[must_use]
    pub fn local_name(&self, socket: &Fd) -> Option<SocketAddr> {
        match self.world() {
            Some(_) => None,
            None => kernel::local_name(socket.os()),
        }
    }

    /// Returns how the peer of a socket has left; `None` if it is there, and always in the simulation.
    #[must_use]
    pub fn has_left(&self, socket: &Fd) -> Option<Left> {
        match self.world() {
            Some(_) => None,
            None => kernel::has_left(socket.os()),
        }
    }

    /// Breaks a connection at once: the peer is reset, and the kernel drops the bytes that were not sent (`connect(2)`
    /// with `AF_UNSPEC`).
    pub fn reset(&self, socket: &Fd) {
        match self.world() {
            Some(world) => world.reset(socket.raw()),
            None => kernel::reset(socket.os()),
        }
    }

    /// `shutdown(2)` for sending: the peer sees the end of the stream.
    pub fn shutdown(&self, socket: &Fd) {
        match self.world() {
            Some(world) => world.shutdown(socket.raw()),
            None => kernel::shutdown(socket.os()),
        }
    }
}
