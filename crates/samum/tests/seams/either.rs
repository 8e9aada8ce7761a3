//! A session that is HTTP/1 or framed, as the first byte of the peer says: the shape of HTTP/2 with
//! prior knowledge beside HTTP/1. No method of HTTP begins with a byte below 16, and the ids of frames
//! begin with one.

use std::rc::Rc;

use http::Head;
use outq::OutQ;
use ring::{Ring, Time};
use samum::handler::{AnswerSize, Found, Response, Search};
use sendfile::{Disk, Failure, Piece, Progress, ReadDone, Transport, Weight};
use session::context::Context;
use session::{Http1, Left, Moved, Next, Outgoing, Requests, Session, Turn};

use crate::seams::framed::Framed;

/// The session; HTTP/1 until it is chosen.
#[derive(Debug)]
pub(crate) struct Either {
    is_chosen: bool,
    inner: Inner,
}

#[derive(Debug)]
enum Inner {
    Http1(Http1),
    Framed(Framed),
}

#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "one for each connection that is not idle")]
pub(crate) enum Work {
    Http1(<Http1 as Session>::Work),
    Framed(<Framed as Session>::Work),
}

impl Default for Work {
    fn default() -> Self {
        Self::Http1(Default::default())
    }
}

impl Work {
    /// The work of this session: an idle one may have served a session of the other kind.
    fn of(&mut self, inner: &Inner) -> &mut Self {
        match (inner, &self) {
            (Inner::Framed(_), Self::Http1(work)) => {
                assert!(work.is_idle(), "of another connection");
                *self = Self::Framed(Default::default());
            }
            (Inner::Http1(_), Self::Framed(work)) => {
                assert!(work.is_idle(), "of another connection");
                *self = Self::Http1(Default::default());
            }
            _ => {}
        }
        self
    }
}

/// Calls a method of the session with its work.
macro_rules! with_work {
    ($self:ident, $work:ident => |$session:ident, $its:ident| $call:expr) => {
        match ($work.of(&$self.inner), &mut $self.inner) {
            (Work::Http1($its), Inner::Http1($session)) => $call,
            (Work::Framed($its), Inner::Framed($session)) => $call,
            _ => unreachable!("the work is of the session's kind"),
        }
    };
}

/// The same where there may be no work.
macro_rules! with_any_work {
    ($self:ident, $work:ident => |$session:ident, $its:ident| $call:expr) => {
        match ($work.map(|work| work.of(&$self.inner)), &mut $self.inner) {
            (work, Inner::Http1($session)) => {
                let $its = work
                    .map(|work| if let Work::Http1(work) = work { work } else { unreachable!() });
                $call
            }
            (work, Inner::Framed($session)) => {
                let $its = work
                    .map(|work| if let Work::Framed(work) = work { work } else { unreachable!() });
                $call
            }
        }
    };
}

/// Calls a method of whichever it is.
macro_rules! each {
    ($enum:ident, $value:expr => |$inner:ident| $call:expr) => {
        match $value {
            $enum::Http1($inner) => $call,
            $enum::Framed($inner) => $call,
        }
    };
}

impl Session for Either {
    type Work = Work;

    fn new(now: Time) -> Self {
        Self { is_chosen: false, inner: Inner::Http1(Http1::new(now)) }
    }

    fn handle_bytes(
        &mut self,
        work: &mut Work,
        requests: &mut impl Requests,
        bytes: &[u8],
    ) -> usize {
        if let Some(first) = bytes.first()
            && !core::mem::replace(&mut self.is_chosen, true)
            && *first < 16
        {
            self.inner = Inner::Framed(Framed::new(requests.cx().now));
        }
        with_work!(self, work => |session, work| session.handle_bytes(work, requests, bytes))
    }

    fn handle_eof(&mut self, work: Option<&mut Work>) -> Next {
        with_any_work!(self, work => |session, work| session.handle_eof(work))
    }

    fn defer(
        &mut self,
        _work: &mut Work,
        _request: u32,
        _head: &Head<'_>,
        _found: Found<AnswerSize>,
    ) -> bool {
        unreachable!("requests are handed on by the session inside")
    }

    fn handle_answer(
        &mut self,
        work: &mut Work,
        cx: &Context,
        request: u32,
        size: AnswerSize,
    ) -> bool {
        with_work!(self, work => |session, work| session.handle_answer(work, cx, request, size))
    }

    fn next_turn(&mut self, work: &mut Work, cx: &mut Context) -> Option<Turn> {
        with_work!(self, work => |session, work| session.next_turn(work, cx))
    }

    fn put_back(&mut self, work: &mut Work, turn: Turn, search: Option<Rc<dyn Search>>) {
        with_work!(self, work => |session, work| session.put_back(work, turn, search));
    }

    fn respond(
        &mut self,
        work: &mut Work,
        cx: &mut Context,
        request: u32,
        head: &Head<'_>,
        response: Response<'_>,
    ) {
        with_work!(self, work => |session, work| session.respond(work, cx, request, head, response));
    }

    fn handle_progress(&mut self, work: &mut Work, cx: &mut Context, moved: &Moved) -> Next {
        with_work!(self, work => |session, work| session.handle_progress(work, cx, moved))
    }

    fn next_left(&mut self, work: &mut Work) -> Option<Left> {
        with_work!(self, work => |session, work| session.next_left(work))
    }

    fn next_cut(&mut self, work: &mut Work, now: Time) -> Option<Left> {
        with_work!(self, work => |session, work| session.next_cut(work, now))
    }

    fn next_failure(&mut self, work: &mut Work) -> Option<Failure> {
        with_work!(self, work => |session, work| session.next_failure(work))
    }

    fn wants_bytes(&self, work: &Work, cx: &Context, unread: usize) -> bool {
        match (&self.inner, work) {
            (Inner::Http1(session), Work::Http1(work)) => session.wants_bytes(work, cx, unread),
            (Inner::Framed(session), Work::Framed(work)) => session.wants_bytes(work, cx, unread),
            _ => unreachable!("the work is of the session's kind"),
        }
    }

    fn deadline(&self, cx: &Context) -> Option<Time> {
        each!(Inner, &self.inner => |session| session.deadline(cx))
    }

    fn handle_deadline(
        &mut self,
        work: Option<&mut Work>,
        cx: &mut Context,
        acknowledged: i64,
    ) -> Next {
        with_any_work!(self, work => |session, work| session.handle_deadline(work, cx, acknowledged))
    }

    fn handle_shutdown(&mut self, work: Option<&mut Work>) -> Next {
        with_any_work!(self, work => |session, work| session.handle_shutdown(work))
    }

    fn idle_since(&self) -> Option<Time> {
        each!(Inner, &self.inner => |session| session.idle_since())
    }

    fn check(&self, work: Option<&Work>) {
        match (&self.inner, work) {
            (Inner::Http1(session), Some(Work::Http1(work))) => session.check(Some(work)),
            (Inner::Framed(session), Some(Work::Framed(work))) => session.check(Some(work)),
            (inner, _) => each!(Inner, inner => |session| session.check(None)),
        }
    }
}

impl Outgoing for Work {
    fn pump(
        &mut self,
        ring: &mut Ring,
        disk: &mut Disk,
        transport: &mut impl Transport,
        connection: u64,
    ) -> Progress {
        each!(Self, self => |work| work.pump(ring, disk, transport, connection))
    }

    fn handle_read(&mut self, done: ReadDone) {
        each!(Self, self => |work| work.handle_read(done));
    }

    fn reclaim(&mut self, now: Time) -> bool {
        each!(Self, self => |work| work.reclaim(now))
    }

    fn queue(&mut self) -> &mut OutQ<Piece> {
        each!(Self, self => |work| work.queue())
    }

    fn weight(&self) -> Weight {
        each!(Self, self => |work| work.weight())
    }

    fn is_idle(&self) -> bool {
        each!(Self, self => |work| work.is_idle())
    }

    fn restart(&mut self) {
        each!(Self, self => |work| work.restart());
    }
}
