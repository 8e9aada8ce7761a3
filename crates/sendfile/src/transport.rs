//! The interface between a queue and a socket.
//!
//! The contract:
//!
//! - `takes` says which payloads a transport can send: only memory, or also ranges of files and pipes. For a transport
//!   that sends only from memory, resident bytes are copied into buffers, and all others are read into them.
//! - `drain` returns `Empty` only if the transport holds nothing back. A stream is drained only when all of its bytes
//!   are released.
//! - `weight` is the memory that the transport keeps. It counts in the budget of the worker.
//! - `window` is the number of bytes that a transport can have on their way, if it keeps them until they are
//!   acknowledged. Its stream reads and holds at most twice that window, or twice 256 KiB, and no more than the file's
//!   own window.
//! - Until `is_open` is true, the connection has the time of a request head, even if bytes arrive.
//! - `set_receiving(false)` stops plain bytes and never acknowledgements.
//! - Positions of a queue begin at 0 again when the connection gives its work back.

use core::fmt;
use core::net::IpAddr;
use core::num::NonZeroU64;
use std::rc::Rc;

use outq::{OutQ, Weight};
use ring::Ring;

use crate::failure::Failure;
use crate::payload::Piece;

/// The pieces that a transport can send.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Takes {
    /// Only bytes in memory.
    #[default]
    Memory,
    /// Ranges of resident files, and pipes, too.
    Files,
}

/// The way in which a [drain](Transport::drain) ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drained {
    /// No ready byte is left in the queue, and nothing is held back in the transport.
    Empty,
    /// The socket is full; the transport will say when there is room again (an event "writable").
    Blocked,
    /// The budget is spent, and the queue has more ready bytes.
    TurnOver,
    /// The file of the range at the head of the queue cannot be sent on this socket. The transport
    /// has marked the file, so that the source retracts the range and reads it.
    Refused,
    /// The promised bytes cannot be sent: close the connection.
    Failed(Failure),
}

/// The protocol above a transport, as a client chooses it in the handshake (ALPN, RFC 7301).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alpn {
    /// HTTP/1.0 or 1.1, also if the client has chosen nothing.
    Http1,
    /// HTTP/2.
    Http2,
}

/// The facts of a handshake about a connection: its version and cipher, the names that the client has asked for and
/// shown.
pub trait Handshake: fmt::Debug {
    /// The version of TLS: `TLSv1.2` or `TLSv1.3`.
    fn version(&self) -> &'static str;

    /// The cipher suite, by its name at IANA.
    fn cipher(&self) -> Option<&'static str>;

    /// The server that the client has named (SNI).
    fn server_name(&self) -> Option<&str>;

    /// The subject of the client's certificate, if it has shown one that is accepted.
    fn client(&self) -> Option<&str>;

    /// The protocol that the client has chosen.
    fn alpn(&self) -> Alpn {
        Alpn::Http1
    }

    /// True if the keys are those of an earlier connection.
    fn is_resumed(&self) -> bool;

    /// Returns whether the rules for clients have changed since, or the profile: a client that met the old ones has to
    /// connect again. No request is answered any more, except by 421.
    fn is_outdated(&self) -> bool {
        false
    }

    /// Returns whether requests for a host, which may have a port, may come on this connection; `None` is a request without a
    /// host. If not, the request is answered 421 (RFC 9110 §15.5.20): for that host the client would have seen another
    /// certificate, or met other rules.
    fn permits(&self, host: Option<&str>) -> bool;
}

/// One way of bytes to a peer, and back. It drains a queue. No other code calls [`mark_sent`](OutQ::mark_sent) and
/// [`mark_released`](OutQ::mark_released).
///
/// [`KernelTcp`](crate::KernelTcp) is the transport for sockets of the kernel. A transport of your own, as for a
/// protocol that encrypts or retransmits, returns [memory only](Takes::Memory), and in each [`drain`](Self::drain)
///
/// 1. sends bytes of [`OutQ::next_ready`], as many as the peer and the budget allow, and calls `mark_sent` for them;
/// 2. calls `mark_released` for bytes whose memory it no longer needs: at once if it has copied them, or when they are
///    acknowledged if it may have to retransmit them (it finds them by [`OutQ::in_flight`]);
/// 3. returns why it has stopped. [`Drained::Blocked`] is a promise that the loop will hear when it can go on.
///
/// A stream is drained only when all of its bytes have been released.
pub trait Transport {
    /// The pieces that [`drain`](Self::drain) may find in the queue.
    fn takes(&self) -> Takes;

    /// Returns whether plain bytes can be exchanged. If the transport has a handshake, it comes before that. Until the
    /// handshake is complete, the connection has the time of one request head, even if bytes arrive. An open transport
    /// stays open.
    fn is_open(&self) -> bool {
        true
    }

    /// The facts of the transport's handshake, once the transport [is open](Self::is_open); `None` if it has none.
    fn handshake(&self) -> Option<Rc<dyn Handshake>> {
        None
    }

    /// The memory that the transport holds in addition to the queue, such as a record that is not sent yet, or the
    /// first part of a received one. By default there is none.
    fn weight(&self) -> Weight {
        Weight::default()
    }

    /// Sends ready bytes of the queue, at most `budget` of them, and subtracts the sent bytes from `budget`.
    fn drain(&mut self, ring: &mut Ring, queue: &mut OutQ<Piece>, budget: &mut u64) -> Drained;

    /// The bytes that may be on their way to the peer at the same time, as far as the transport knows: its congestion
    /// window, or the peer's if that is smaller. Files are [read ahead](crate::Window) as far as two such windows. By
    /// default there is no such limit: a socket of the kernel releases bytes when it has taken them.
    fn window(&self) -> u64 {
        u64::MAX
    }

    /// Turns bytes that came from the network into the peer's plain bytes. May release bytes of the
    /// queue (an acknowledgement), and may have something of its own to send: drain afterwards.
    ///
    /// # Errors
    ///
    /// If the peer breaks the protocol of the transport.
    fn receive<'a>(
        &'a mut self,
        bytes: &'a [u8],
        queue: &mut OutQ<Piece>,
    ) -> Result<&'a [u8], Failure>;

    /// Notes the address of the client, which a proxy before it has told; it comes before bytes of the client. By default
    /// nothing changes: few transports treat clients differently.
    fn set_client(&mut self, _client: IpAddr) {}

    /// The socket has room for bytes again. Drain afterwards.
    fn handle_writable(&mut self);

    /// Returns whether the socket was full at the last try, and has not reported room since.
    fn is_blocked(&self) -> bool;

    /// The position in the stream before which the peer has acknowledged all bytes, as far as is known. It is equal to
    /// the number of bytes sent when the peer has all of them, and negative while the kernel still has bytes of an
    /// earlier stream.
    fn acknowledged(&self, ring: &Ring, queue: &OutQ<Piece>) -> i64;

    /// Sends at most this many bytes per second from now on, or without a rate as many as the peer receives. By default
    /// nothing changes: a transport without rates sends as fast as it can.
    fn set_rate(&mut self, _ring: &Ring, _bytes_per_second: Option<NonZeroU64>) {}

    /// Keeps few bytes beyond those on their way to the peer from now on, or as many as fit. Bytes in a transport were
    /// read for a peer that may leave. A second call with the same value changes nothing. By default nothing changes:
    /// a transport with a [window](Self::window) keeps no more than that.
    fn bound_unsent(&mut self, _ring: &Ring, _is_bound: bool) {}

    /// Receives from the socket from now on, or no longer. A second call with the same value changes nothing. A
    /// receive that is being stopped ends with `ECANCELED`: then call
    /// [`handle_receive_stopped`](Self::handle_receive_stopped), and this again if bytes are wanted by then.
    fn set_receiving(&mut self, ring: &mut Ring, on: bool);

    /// Expects a long body from the peer from now on, or no longer: larger pieces of it are received at a time. By default
    /// nothing changes: a transport that hands out its own buffers receives what has come.
    fn expect_much(&mut self, _much: bool) {}

    /// Notes that the receive has ended as requested.
    fn handle_receive_stopped(&mut self);

    /// The peer has ended its side: nothing more will be received.
    fn handle_end(&mut self);

    /// Returns whether the peer has ended its side.
    fn has_ended(&self) -> bool;

    /// Notes that nothing will be promised beyond the queue: the transport may send the end of our side with the last
    /// byte. [`shutdown`](Self::shutdown) follows when all is released. By default the end waits for that.
    fn finish(&mut self) {}

    /// Ends our side: the peer sees the end of the stream once everything has left.
    fn shutdown(&mut self, ring: &mut Ring);

    /// Breaks the connection: the peer sees a reset, where it could mistake a plain end of the stream for the end of a
    /// response. [`close`](Self::close) follows. By default `close` resets by itself.
    fn reset(&mut self, _ring: &mut Ring) {}

    /// Cancels every operation in flight; for a connection that is closed. The transport is of no
    /// more use.
    fn close(&mut self, ring: &mut Ring);

    /// As [`close`](Self::close), for a connection whose bytes are all sent and released. The peer sees the end of the
    /// stream, if it has not seen it before. By default every close does so.
    fn close_idle(&mut self, ring: &mut Ring) {
        self.close(ring);
    }

    /// As [`close_idle`](Self::close_idle), for a connection whose last bytes are not released: the transport may keep
    /// their queue until they are. By default it is dropped, because a socket of the kernel has copied them.
    fn close_after(&mut self, ring: &mut Ring, _last: OutQ<Piece>) {
        self.close_idle(ring);
    }
}
