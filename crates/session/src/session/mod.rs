//! The decisions of one connection: bytes go in, requests and actions come out.
//!
//! A session reads no clock and knows no socket. The worker gives it bytes, answers, progress, deadlines and the time of
//! the worker turn, and does what the session says. Only [`Pump::pump`] makes system calls: it moves the bytes of what the
//! session has decided, and gets the ring, the disk and the transport for that. One session serves one connection with
//! one protocol. The binary uses [`Http`], which is [`Http1`] until the client has chosen HTTP/2.
//!
//! ```text
//!   bytes ──► handle_bytes ──► Requests ──► (a handler finds the answer)
//!                                                        │
//!   stream ◄── respond ◄── next_turn (in order) ◄── handle_answer
//!      │
//!      └─ pump ──► handle_progress ──► Next: pump, read, turn over, wait, shut down, close
//! ```
//!
//! The session holds order, deadlines, limits and the back-pressure of reading. Requests are passed on by reference, and
//! answered now or later. An idle connection has only its session: 32 bytes, and with HTTP/2 also the state of its frames
//! and windows. Requests and responses under way are in its `Work`, which an idle connection gives back.

mod ends;
mod escaped;
mod framing;

mod http1;
mod http2;
mod opening;
mod refusal;
mod times;
mod version;

use core::num::NonZeroU64;
use core::time::Duration;
use std::rc::Rc;

use ring::{Ring, Time};
use sendfile::{Alpn, Disk, Failure, Progress, ReadDone, Takes, Transport, Weight};

use crate::client::ClientAddress;
use crate::context::Context;
use crate::forwarded::Scheme;
use crate::handler::{AnswerSize, Found, Interim, Reception, Response, Search};
use crate::record::{Cut, Record};
use crate::standing::Standing;
use http::{Head, HeadBuf};

pub use self::http1::Http1;
pub use self::version::Http;

/// The time that a silent peer may take to close after the last response (RFC 9112 §9.6). If the server closed earlier, a
/// reset could destroy bytes of the response that the peer has not read. Bytes that the peer sends during this time, such as
/// the rest of a body, are dropped.
const LINGER: Duration = Duration::from_secs(2);
/// The most bytes that a producer makes in one call. It makes more only when these have left, and with HTTP/2 when they are
/// in frames.
const PRODUCED_BYTES_MAX: u64 = 64 * 1024;

/// One protocol on one connection.
///
/// Each connection has a session, also an idle one, so the session should be small. State that is needed only while a
/// request is received or answered is in [`Work`](Self::Work).
pub trait Session: core::fmt::Debug + Sized {
    /// The state of requests that are being received or answered.
    type Work: Outgoing + Pump<Self>;

    /// The session of a connection that was accepted now.
    fn new(now: Time) -> Self;

    /// Parses plain bytes that the peer sent, gives the requests in them to `requests`, and returns the number of bytes
    /// taken. The caller keeps the rest. It gives the rest again, in front of later bytes, when more bytes have come or
    /// [`handle_progress`](Self::handle_progress) says [`Next::Read`]. It pumps afterwards.
    fn handle_bytes(
        &mut self,
        work: &mut Self::Work,
        requests: &mut impl Requests,
        bytes: &[u8],
    ) -> usize;

    /// Records that the peer will send no more. Responses to its requests are still sent. `work` is `None` if the
    /// connection has none.
    fn handle_eof(&mut self, work: Option<&mut Self::Work>) -> Next;

    /// Records that the answer to a [deferred](Defer) request was found. Returns whether the answer is to be kept until
    /// [`next_turn`](Self::next_turn). If not, it is found again then, or the request no longer waits. Call
    /// [`next_turn`](Self::next_turn) and pump afterwards.
    fn handle_answer(
        &mut self,
        work: &mut Self::Work,
        cx: &Context,
        request: u32,
        size: AnswerSize,
    ) -> bool;

    /// Handles an interim response to a deferred request. The session may send or drop it. Pump afterwards.
    fn handle_interim(&mut self, _work: &mut Self::Work, _request: u32, _interim: &Interim) {}

    /// The next deferred request whose response can begin now. Call [`respond`](Self::respond) or
    /// [`put_back`](Self::put_back) before anything else.
    fn next_turn(&mut self, work: &mut Self::Work, cx: &mut Context) -> Option<Turn>;

    /// Makes the request of a [`Turn`] wait again, because its answer is not there after all.
    fn put_back(&mut self, work: &mut Self::Work, turn: Turn, search: Option<Rc<dyn Search>>);

    /// Begins the response to a request that was just read, or to that of a [`Turn`]. If the response ends the
    /// connection, later requests are dropped, and their answers are never asked for. Returns the bytes per second at
    /// which the transport may send from now on.
    fn respond(
        &mut self,
        work: &mut Self::Work,
        cx: &mut Context,
        request: u32,
        head: &Head<'_>,
        response: &mut Response<'_>,
    ) -> Option<NonZeroU64>;

    /// Records that something is ready for which a request or its stream waited. Pump afterwards. By default nothing
    /// changes, because a pump looks at everything.
    fn wake(&mut self, _work: &mut Self::Work, _cx: &Context, _woken: Woken) {}

    /// Says what comes next, after the work was pumped and [`next_left`](Self::next_left) has returned the responses
    /// that have left. A session that says [`Next::Wait`] is in a state that [`check`](Self::check) accepts, and waits
    /// for the deadline and for the event that the state names. It says [`Next::Pump`] and [`Next::Read`] only finitely
    /// often in one worker turn if producers make bytes whenever they say
    /// [`Produced::More`](crate::handler::Produced::More).
    fn handle_progress(
        &mut self,
        work: &mut Self::Work,
        cx: &mut Context,
        progress: &Moved,
    ) -> Next;

    /// Returns true if the work will promise nothing more, because the connection ends after what was promised. Then
    /// the transport may send the end of the stream with its last byte.
    fn is_complete(&self, _work: &Self::Work) -> bool {
        false
    }

    /// The next response that has left, for the log.
    fn next_left(&mut self, work: &mut Self::Work) -> Option<Left>;

    /// Returns true if only the end of the connection marks the end of the response that is being sent. If the
    /// connection ended now, the peer would believe that the response is complete.
    fn looks_whole(&self, _work: &Self::Work) -> bool {
        false
    }

    /// The next response that is cut because the connection is closed now, for the log.
    fn next_cut(&mut self, work: &mut Self::Work, now: Time) -> Option<Left>;

    /// The next request whose response has not begun although the connection is closed now, for the log.
    fn next_unanswered(&mut self, _work: &mut Self::Work) -> Option<Unanswered> {
        None
    }

    /// The next response that has failed while the connection goes on with others, for the operator.
    /// A session whose responses share one stream has none: it closes the connection.
    fn next_failure(&mut self, _work: &mut Self::Work) -> Option<Failure> {
        None
    }

    /// The next request that has ended before its time while the connection goes on with others, for the log. Like
    /// [`next_failure`](Self::next_failure), by default there is none.
    fn next_broken(&mut self, _work: &mut Self::Work) -> Option<Broken> {
        None
    }

    /// Returns true if the connection had its quantum when it last began requests, and has more to do since. It goes on
    /// when its next quantum comes, whatever happens meanwhile. Otherwise each event would give it another quantum.
    fn had_its_quantum(&self, _work: &Self::Work) -> bool {
        false
    }

    /// Returns true if more bytes of the peer are wanted, while `unread` bytes wait to be taken.
    fn wants_bytes(&self, work: &Self::Work, cx: &Context, unread: usize) -> bool;

    /// Returns true while the peer may send many bytes for a consumer: of the body of a request, or of a tunnel. By
    /// default it is false.
    fn expects_much(&self, _work: &Self::Work) -> bool {
        false
    }

    /// The time at which the worker calls [`handle_deadline`](Self::handle_deadline). `None` only while the connection
    /// waits for the server's own side, or is an open tunnel, whose handler has deadlines.
    fn deadline(&self, cx: &Context) -> Option<Time>;

    /// Acts because the deadline has passed. `acknowledged` is the position of
    /// [`Transport::acknowledged`](sendfile::Transport::acknowledged).
    /// `unread` has the bytes of the peer that the session has not taken yet.
    fn handle_deadline(
        &mut self,
        work: Option<&mut Self::Work>,
        cx: &mut Context,
        acknowledged: i64,
        unread: &[u8],
    ) -> Next;

    /// Accepts no more requests. The connection is closed once the requests that were accepted are answered, at once if
    /// there are none.
    fn handle_shutdown(&mut self, work: Option<&mut Self::Work>) -> Next;

    /// Ends the connection soon, because its listener was removed. The session accepts no request after the one that is
    /// being received or answered, or else after the next one.
    fn handle_retirement(&mut self, work: Option<&mut Self::Work>) -> Next {
        self.handle_shutdown(work)
    }

    /// Makes the next request the last, whose response says so. Requests that were taken before end as they began. By
    /// default nothing changes.
    fn make_next_last(&mut self, _work: Option<&mut Self::Work>) -> Next {
        Next::Wait
    }

    /// Makes an idle work ready for this connection, after [`set_origin`](Outgoing::set_origin). By default it is ready.
    fn adopt(&self, _work: &mut Self::Work) {}

    /// Speaks a protocol, because the client has chosen it in the handshake of the transport with this listener. The call
    /// comes before the first byte, and after [`set_origin`](Outgoing::set_origin). By default nothing changes.
    fn choose(
        &mut self,
        _work: &mut Self::Work,
        _cx: &mut Context,
        _protocol: Alpn,
        _listener: u32,
    ) {
    }

    /// Returns true if the connection is a tunnel. By default none is.
    fn is_tunnel(_work: &Self::Work) -> bool {
        false
    }

    /// The time since which the connection has had nothing to do; `None` while a request is received or answered.
    fn idle_since(&self) -> Option<Time>;

    /// Says what the connection does, for the operator. By default it waits while it is not idle.
    fn activity(&self, _work: &Self::Work) -> Activity {
        if self.idle_since().is_some() { Activity::Idle } else { Activity::Waiting }
    }

    /// Panics unless the state is one that the documentation allows. Only for sessions that wait: between an event and
    /// the pump after it, a session may be in other states.
    fn check(&self, work: Option<&Self::Work>);
}

/// The session of one version of HTTP, as the receiver of its [requests](Requests) sees it. [`Http`] is none, because one of
/// these sessions reads its requests.
pub trait Defer: Session {
    /// Keeps a request that was just read, because its answer is missing or its turn has not come. Returns whether an
    /// answer that was found is to be kept until [`next_turn`](Session::next_turn). An answer that is not kept is found
    /// again then.
    fn defer(
        &mut self,
        work: &mut Self::Work,
        request: u32,
        head: &Head<'_>,
        found: Found<AnswerSize>,
    ) -> bool;
}

/// The receiver of the requests that a session reads.
///
/// Requests are passed on by reference, wherever their bytes are: in received bytes, or in memory of the session.
pub trait Requests {
    /// The worker's context.
    fn cx(&mut self) -> &mut Context;

    /// The consumer of a request's body, or of the bytes after the request if it becomes a tunnel. The session asks
    /// for it before it passes the request on, and only if the request has a body or asks for an upgrade. It passes the
    /// request on with the standing that it gets here.
    fn consumer(&mut self, request: u32, head: &Head<'_>) -> Reception;

    /// Receives a request, whose number on its connection is `request`. Its `standing` is new if no consumer was asked for.
    /// The receiver finds its answer. Then it calls
    /// [`respond`](Session::respond) if the response [is next](crate::handler::Request::is_next), else
    /// [`defer`](Defer::defer).
    fn handle_request<S: Defer>(
        &mut self,
        session: &mut S,
        work: &mut S::Work,
        request: u32,
        head: &Head<'_>,
        is_next: bool,
        standing: Standing,
    );
}

/// A thing that an open connection does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Activity {
    /// It has no request, or only waits until the client closes it.
    #[default]
    Idle,
    /// It receives a request or the body of a request.
    Reading,
    /// It waits for an answer or a disk.
    Waiting,
    /// It has bytes for the client, which has to receive earlier ones first.
    Writing,
    /// It carries bytes of another protocol.
    Tunnel,
}

/// The part of a connection for which something is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// The request with this number: its producer has bytes, or its consumer has room.
    Request(u32),
    /// The stream with this number ([`Owner::lane`](sendfile::Owner::lane)): the disk has room for it.
    Stream(u32),
}

/// A deferred request whose response can begin.
#[derive(Debug)]
pub struct Turn {
    /// The number of the request on its connection.
    pub request: u32,
    /// Its head.
    pub head: HeadBuf,
    /// True if the connection keeps its answer.
    pub found: bool,
    /// The decision of the handler's conditions about it so far.
    pub standing: Standing,
}

/// The result of a pump.
#[derive(Debug)]
pub struct Moved {
    /// The result of the pump.
    pub progress: Progress,
    /// True if the peer receives nothing at the moment.
    pub blocked: bool,
    /// The position in the stream before which the peer has acknowledged all bytes: see
    /// [`Transport::acknowledged`](sendfile::Transport::acknowledged).
    pub acknowledged: i64,
    /// Bytes that were received from the peer and that the session has not taken.
    pub unread: usize,
    /// True if the session took none of them when it last got them. Then it says [`Next::Read`] only after something
    /// else has happened.
    pub stuck: bool,
}

/// The worker's next step with a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Close the connection.
    Close(Why),
    /// Begin responses whose turn has come, and pump.
    Pump,
    /// Give the session the bytes that wait, then pump.
    Read,
    /// Let the peer see the end of the stream, and wait.
    ShutDown,
    /// Give the connection another quantum, after the others.
    TurnOver,
    /// Wait for an event.
    Wait,
}

/// The reason why a connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// All responses were sent, and the connection is no longer needed.
    Done,
    /// Promised bytes cannot be sent.
    Failed(Failure),
    /// The client has left before it had all responses.
    Gone,
    /// A deadline has passed.
    TimedOut,
}

/// A request whose response has not begun when its connection is closed.
#[derive(Debug)]
pub struct Unanswered {
    /// Its number on its connection; none if it was refused before the handler could know it.
    pub request: Option<u32>,
    /// Its head.
    pub head: HeadBuf,
    /// The time when its head was complete.
    pub at: Time,
    /// Bytes of its body that have come, if its head does not announce their number.
    pub body_bytes: u64,
}

/// A request that has ended before its time while its connection goes on.
#[derive(Debug)]
pub struct Broken {
    /// Its number on its connection.
    pub request: u32,
    /// The sent part of its response, if the response has begun and is recorded.
    pub end: BrokenEnd,
    /// Why it has ended.
    pub cut: Cut,
}

/// The part of a request that there was at its end.
#[derive(Debug)]
pub enum BrokenEnd {
    /// Its response had not begun.
    Unanswered(Unanswered),
    /// A part of its response was sent.
    Left(Left),
    /// A response that is not recorded.
    Unrecorded,
}

/// A response that has left, or that was cut.
#[derive(Debug)]
pub struct Left {
    /// The entry of its request.
    pub record: Box<Record>,
    /// Bytes of its body that were sent.
    pub bytes: u64,
}

impl Left {
    /// `sent`: bytes of the stream that were sent.
    pub fn new(record: Box<Record>, sent: u64) -> Self {
        let bytes = sent.saturating_sub(record.body_at).min(record.body_bytes);
        Self { record, bytes }
    }
}

/// The work of a session as the sender of what that has decided.
pub trait Pump<S> {
    /// Moves what can be moved now, at most the rest of a quantum of which `spent` bytes were sent before in this worker
    /// turn.
    fn pump(
        &mut self,
        session: &mut S,
        ring: &mut Ring,
        disk: &mut Disk,
        transport: &mut impl Transport,
        connection: u64,
        spent: u64,
    ) -> Progress;
}

/// The bytes that a session has to send, and the way that they move: the queue that the transport drains, and the
/// sources that fill it.
pub trait Outgoing: Default + core::fmt::Debug {
    /// Says which pieces the transport can send. By default all pieces are made in memory.
    fn set_takes(&mut self, _takes: Takes) {}

    /// Says which listener accepted the connection, the scheme of its requests, and the address of its client. By default
    /// it changes nothing.
    fn set_origin(&mut self, _listener: u32, _scheme: Scheme, _client: ClientAddress) {}

    /// Handles a read that has ended.
    fn handle_read(&mut self, done: ReadDone);

    /// Gives back buffers with bytes that the peer does not receive. Returns true if the connection is to be closed
    /// because its peer keeps others waiting for memory: see [`Stream::reclaim`](sendfile::Stream::reclaim).
    fn reclaim(&mut self, now: Time) -> bool;

    /// The queue that the transport drains.
    fn queue(&mut self) -> &mut outq::OutQ<sendfile::Piece>;

    /// Memory that waits to be sent, answered or logged.
    fn weight(&self) -> Weight;

    /// Returns true if nothing is being received, answered or read.
    fn is_idle(&self) -> bool;

    /// The number of requests that are being answered.
    fn active_requests(&self) -> usize {
        usize::from(!self.is_idle())
    }

    /// Makes an idle work ready for another connection, and drops everything about the last one.
    fn restart(&mut self);
}
