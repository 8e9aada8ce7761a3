//! What a connection decides: bytes in, requests and actions out.
//!
//! A session is pure. It makes no system call, reads no clock and knows no socket: the worker gives
//! it bytes, answers, progress and deadlines, and does what it says. One session serves one
//! connection with one protocol; [`Http1`] is the one that users have.
//!
//! ```text
//!   bytes ──► handle_bytes ──► Requests ──► (a handler finds the answer)
//!                                                        │
//!   stream ◄── respond ◄── next_turn (in order) ◄── handle_answer
//!      │
//!      └─ pump ──► handle_progress ──► Next: respond, read, wait, shut down, close
//! ```
//!
//! Only the work of a session is handed the ring, to pump its streams. The session holds order, deadlines, limits and
//! back-pressure of reading. Requests are handed on by reference, to be answered now or later. An idle connection is
//! the session alone, 32 bytes; requests and responses under way are its `Work`, which it gives back.

mod http1;

use core::net::IpAddr;
use std::rc::Rc;

use ring::{Ring, Time};
use sendfile::{Disk, Failure, Progress, ReadDone, Takes, Transport, Weight};

use crate::context::Context;
use crate::handler::{AnswerSize, Consumer, Found, Interim, Response, Search};
use crate::record::Record;
use http::{Head, HeadBuf};

pub use self::http1::Http1;

/// One protocol on one connection.
///
/// The session itself exists for each connection, idle ones too, and should be small; what it needs
/// while a request is received or answered is in [`Work`](Self::Work).
pub trait Session: core::fmt::Debug {
    /// The state of requests that are being received or answered.
    type Work: Outgoing;

    /// The session of a connection that was accepted now.
    fn new(now: Time) -> Self;

    /// Takes plain bytes that the peer sent, and gives the requests in them to `requests`; returns how
    /// many bytes were taken. Keep the rest, and give it again, in front of what comes later, when
    /// more bytes have come or [`handle_progress`](Self::handle_progress) says [`Next::Read`]. Pump
    /// afterwards.
    fn handle_bytes(
        &mut self,
        work: &mut Self::Work,
        requests: &mut impl Requests,
        bytes: &[u8],
    ) -> usize;

    /// The peer will send no more. Responses to its requests are still sent. `work` is `None` if the
    /// connection has none.
    fn handle_eof(&mut self, work: Option<&mut Self::Work>) -> Next;

    /// Keeps a request whose answer is not there yet, or whose turn has not come. Called for a request
    /// that was just read. Returns whether an answer that is there is to be kept until
    /// [`next_turn`](Self::next_turn); if not, it is found again then.
    fn defer(
        &mut self,
        work: &mut Self::Work,
        request: u32,
        head: &Head<'_>,
        found: Found<AnswerSize>,
    ) -> bool;

    /// The answer to a deferred request has been found; returns whether it is to be kept until
    /// [`next_turn`](Self::next_turn). If not, it is found again then, or the request is no longer
    /// waiting. Call [`next_turn`](Self::next_turn) and pump afterwards.
    fn handle_answer(
        &mut self,
        work: &mut Self::Work,
        cx: &Context,
        request: u32,
        size: AnswerSize,
    ) -> bool;

    /// An interim response to a deferred request has come: it may be sent, or dropped. Pump afterwards.
    fn handle_interim(&mut self, _work: &mut Self::Work, _request: u32, _interim: &Interim) {}

    /// The next deferred request whose response can begin now. Call [`respond`](Self::respond) or
    /// [`put_back`](Self::put_back) before anything else.
    fn next_turn(&mut self, work: &mut Self::Work, cx: &mut Context) -> Option<Turn>;

    /// The answer of a [`Turn`] is not there after all: the request waits for it.
    fn put_back(&mut self, work: &mut Self::Work, turn: Turn, search: Option<Rc<dyn Search>>);

    /// Begins the response to a request that was just read, or of a [`Turn`]. If the response ends
    /// the connection, requests behind it are dropped, and their answers are never asked for.
    fn respond(
        &mut self,
        work: &mut Self::Work,
        cx: &mut Context,
        request: u32,
        head: &Head<'_>,
        response: Response<'_>,
    );

    /// The work was pumped, and [`next_left`](Self::next_left) has told the responses that have left;
    /// says what comes next. A session that says [`Next::Wait`] is in a state that
    /// [`check`](Self::check) accepts, and waits for the deadline and for what that state names. It
    /// says [`Next::Pump`] and [`Next::Read`] only finitely often in one turn if producers make bytes
    /// whenever they say [`Produced::More`](crate::handler::Produced::More).
    fn handle_progress(
        &mut self,
        work: &mut Self::Work,
        cx: &mut Context,
        progress: &Moved,
    ) -> Next;

    /// Returns whether the work will promise nothing beyond what it has promised, because the connection ends
    /// behind it: the transport may send the end of the stream with its last byte.
    fn is_complete(&self, _work: &Self::Work) -> bool {
        false
    }

    /// The next response that has left, for the log.
    fn next_left(&mut self, work: &mut Self::Work) -> Option<Left>;

    /// Returns whether the peer would take the response that is being sent for a whole one if the connection
    /// ended now, because nothing else tells its end.
    fn looks_whole(&self, _work: &Self::Work) -> bool {
        false
    }

    /// The next response that will not leave to its end, for the log: the connection is closed now.
    fn next_cut(&mut self, work: &mut Self::Work, now: Time) -> Option<Left>;

    /// The next request whose response has not begun, and when its head was complete, for the log: the connection
    /// is closed now.
    fn next_unanswered(&mut self, _work: &mut Self::Work) -> Option<(HeadBuf, Time)> {
        None
    }

    /// The next response that has failed while the connection goes on with others, for the operator.
    /// A session whose responses share one stream has none: it closes the connection.
    fn next_failure(&mut self, _work: &mut Self::Work) -> Option<Failure> {
        None
    }

    /// Returns whether the connection had its share when it last began requests, and has more to do since. It goes on
    /// when its turn comes, whatever happens meanwhile: each event would give it another share.
    fn had_its_share(&self, _work: &Self::Work) -> bool {
        false
    }

    /// Whether more bytes of the peer are wanted, `unread` of which wait to be taken.
    fn wants_bytes(&self, work: &Self::Work, cx: &Context, unread: usize) -> bool;

    /// The time by which something must have happened. `None` only while the connection waits for the
    /// server's own side, or is an open tunnel, whose time is the handler's.
    fn deadline(&self, cx: &Context) -> Option<Time>;

    /// The deadline has passed. `acknowledged`: bytes of the stream that the peer has.
    fn handle_deadline(
        &mut self,
        work: Option<&mut Self::Work>,
        cx: &mut Context,
        acknowledged: i64,
    ) -> Next;

    /// Takes no more requests. The connection is closed once those that were taken are answered, at
    /// once if there are none.
    fn handle_shutdown(&mut self, work: Option<&mut Self::Work>) -> Next;

    /// The connection is to end soon, because its listener was removed: takes no request after the one that
    /// is being received or answered, or after the next one if there is none.
    fn handle_retirement(&mut self, work: Option<&mut Self::Work>) -> Next {
        self.handle_shutdown(work)
    }

    /// Since when the connection has had nothing to do; `None` while a request is received or
    /// answered.
    fn idle_since(&self) -> Option<Time>;

    /// Panics unless the state is one that the documentation allows. For sessions that wait: between
    /// an event and the pump behind it, a session may be in other states.
    fn check(&self, work: Option<&Self::Work>);
}

/// What takes the requests that a session reads.
///
/// They are handed on by reference, wherever their bytes are: in what was received, or in memory of
/// the session.
pub trait Requests {
    /// The worker's context.
    fn cx(&mut self) -> &mut Context;

    /// What takes the body of a request, or what follows it if it becomes a tunnel. Asked for before
    /// the request is handed on, and only if it has a body or asks for an upgrade.
    fn consumer(&mut self, request: u32, head: &Head<'_>) -> Option<Box<dyn Consumer>>;

    /// A request. Find its answer, then [`respond`](Session::respond) if its response may begin `now`,
    /// else [`defer`](Session::defer). `request` is its number on its connection.
    fn handle_request<S: Session>(
        &mut self,
        session: &mut S,
        work: &mut S::Work,
        request: u32,
        head: &Head<'_>,
        now: bool,
    );
}

/// A deferred request whose response can begin.
#[derive(Debug)]
pub struct Turn {
    /// The number of the request on its connection.
    pub request: u32,
    /// Its head.
    pub head: HeadBuf,
    /// Whether the connection keeps its answer.
    pub found: bool,
}

/// What a pump has come to.
#[derive(Debug)]
pub struct Moved {
    /// How the pump ended.
    pub progress: Progress,
    /// Whether the peer takes nothing at the moment.
    pub blocked: bool,
    /// Bytes of the stream that the peer has acknowledged; only differences mean something.
    pub acknowledged: i64,
    /// Bytes of the peer that were received and not taken by the session.
    pub unread: usize,
    /// Whether the session took none of them when it was last given them. Then it does not say
    /// [`Next::Read`] again before something else has happened.
    pub stuck: bool,
}

/// What the worker does next with a connection.
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
    /// Give the connection another turn, after the others.
    TurnOver,
    /// Wait for an event.
    Wait,
}

/// Why a connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// It has served its purpose.
    Done,
    /// What was promised cannot be sent.
    Failed(Failure),
    /// The client has left before it had all responses.
    Gone,
    /// Something took too long.
    TimedOut,
}

/// A response that has left, or of which no more will leave.
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

/// What a session has to send, and how it moves: the queue that the transport drains, and the
/// sources that fill it.
pub trait Outgoing: Default + core::fmt::Debug {
    /// Moves what can be moved now, at most one turn of it.
    fn pump(
        &mut self,
        ring: &mut Ring,
        disk: &mut Disk,
        transport: &mut impl Transport,
        connection: u64,
    ) -> Progress;

    /// Says which pieces the transport takes. By default all that is made is memory.
    fn set_takes(&mut self, _takes: Takes) {}

    /// Says which listener accepted the connection, and the address of its client: `Some(None)` on a Unix socket, `None`
    /// if it was not asked for. By default that makes no difference.
    fn set_origin(&mut self, _listener: u32, _client: Option<Option<IpAddr>>) {}

    /// Takes a read that has ended.
    fn handle_read(&mut self, done: ReadDone);

    /// Gives back buffers of bytes that the peer does not take. Returns true if the connection is to be closed,
    /// because its peer keeps others waiting for memory: see [`Stream::reclaim`](sendfile::Stream::reclaim).
    fn reclaim(&mut self, now: Time) -> bool;

    /// The queue that the transport drains.
    fn queue(&mut self) -> &mut outq::OutQ<sendfile::Piece>;

    /// Memory that waits to be sent, answered or logged.
    fn weight(&self) -> Weight;

    /// Whether nothing is being received, answered or read.
    fn is_idle(&self) -> bool;

    /// The number of requests that are being answered.
    fn active_requests(&self) -> usize {
        usize::from(!self.is_idle())
    }

    /// Makes an idle work ready for another connection, of which it must know nothing.
    fn restart(&mut self);
}
