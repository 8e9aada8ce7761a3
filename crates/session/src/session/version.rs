//! The session of a connection whose client speaks HTTP/1 or HTTP/2.
//!
//! A connection is one of HTTP/1 until its client has chosen. With TLS the client chooses in the handshake (ALPN). Without
//! TLS it begins with the preface of HTTP/2, which is no request of HTTP/1, so that parser finds it. A preface that
//! contradicts the choice of the handshake is refused, and so is one on a listener that does not speak HTTP/2.

use core::num::NonZeroU64;
use std::rc::Rc;

use http::Head;
use outq::OutQ;
use ring::{Ring, Time};
use sendfile::{Alpn, Disk, Failure, Piece, Progress, ReadDone, Takes, Transport, Weight};

use super::http1::{Http1, Work as Work1};
use super::http2::{Http2, Work as Work2};
use super::{
    Activity, Broken, Left, Moved, Next, Outgoing, Pump, Requests, Session, Turn, Unanswered, Woken,
};
use crate::client::ClientAddress;
use crate::context::Context;
use crate::forwarded::Scheme;
use crate::handler::{AnswerSize, Interim, Response, Search};

/// HTTP/1 or HTTP/2.
#[derive(Debug)]
pub struct Http(Inner);

#[derive(Debug)]
enum Inner {
    Http1(Http1),
    Http2(Box<Http2>),
}

/// The requests and responses of a connection, in the version of its session.
#[derive(Debug, Default)]
pub struct Work {
    http1: Work1,
    /// `Some` while the connection speaks HTTP/2.
    http2: Option<Box<Work2>>,
    /// The part for HTTP/2 of an earlier connection, for the next one.
    spare: Option<Box<Work2>>,
}

impl Work {
    /// Serves a connection with HTTP/2 from now on, which comes from the same place.
    fn begin_http2(&mut self) {
        let mut work = self.spare.take().unwrap_or_default();
        work.place = self.http1.place();
        self.http2 = Some(work);
    }

    /// The work of a session of HTTP/2.
    fn http2(&mut self) -> &mut Work2 {
        self.http2.as_deref_mut().expect("a session of HTTP/2 has adopted the work")
    }
}

/// Calls a method of the session with its work.
macro_rules! with_work {
    ($self:ident, $work:ident => |$session:ident, $its:ident| $call:expr) => {
        match &mut $self.0 {
            Inner::Http1($session) => {
                let $its = &mut $work.http1;
                $call
            }
            Inner::Http2($session) => {
                let $its = $work.http2();
                $call
            }
        }
    };
}

/// Calls a method of the session with its work, if there is one.
macro_rules! with_any_work {
    ($self:ident, $work:ident => |$session:ident, $its:ident| $call:expr) => {
        match &mut $self.0 {
            Inner::Http1($session) => {
                let $its = $work.map(|work| &mut work.http1);
                $call
            }
            Inner::Http2($session) => {
                let $its = $work.map(|work| work.http2());
                $call
            }
        }
    };
}

/// Calls a method of the session that changes nothing, with its work.
macro_rules! with_shared_work {
    ($self:ident, $work:ident, $other:expr => |$session:ident, $its:ident| $call:expr) => {
        match &$self.0 {
            Inner::Http1($session) => {
                let $its = &$work.http1;
                $call
            }
            Inner::Http2($session) => match $work.http2.as_deref() {
                Some($its) => $call,
                None => $other,
            },
        }
    };
}

impl Session for Http {
    type Work = Work;

    fn new(now: Time) -> Self {
        Self(Inner::Http1(Http1::new(now)))
    }

    #[inline]
    fn handle_bytes(
        &mut self,
        work: &mut Work,
        requests: &mut impl Requests,
        bytes: &[u8],
    ) -> usize {
        if let Inner::Http1(session) = &mut self.0 {
            let taken = session.handle_bytes(&mut work.http1, requests, bytes);
            if !work.http1.take_preface() {
                return taken;
            }
            let listener = work.http1.place().listener;
            self.begin_http2(work, requests.cx(), listener);
        }
        match &mut self.0 {
            Inner::Http1(_) => unreachable!("it has just been changed"),
            Inner::Http2(session) => session.handle_bytes(work.http2(), requests, bytes),
        }
    }

    fn handle_eof(&mut self, work: Option<&mut Work>) -> Next {
        with_any_work!(self, work => |session, work| session.handle_eof(work))
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

    fn handle_interim(&mut self, work: &mut Work, request: u32, interim: &Interim) {
        with_work!(self, work => |session, work| session.handle_interim(work, request, interim));
    }

    #[inline]
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
        response: &mut Response<'_>,
    ) -> Option<NonZeroU64> {
        with_work!(self, work => |session, work| session.respond(work, cx, request, head, response))
    }

    fn wake(&mut self, work: &mut Work, cx: &Context, woken: Woken) {
        with_work!(self, work => |session, work| session.wake(work, cx, woken));
    }

    #[inline]
    fn handle_progress(&mut self, work: &mut Work, cx: &mut Context, moved: &Moved) -> Next {
        with_work!(self, work => |session, work| session.handle_progress(work, cx, moved))
    }

    #[inline]
    fn is_complete(&self, work: &Work) -> bool {
        with_shared_work!(self, work, false => |session, work| session.is_complete(work))
    }

    #[inline]
    fn next_left(&mut self, work: &mut Work) -> Option<Left> {
        with_work!(self, work => |session, work| session.next_left(work))
    }

    fn looks_whole(&self, work: &Work) -> bool {
        with_shared_work!(self, work, false => |session, work| session.looks_whole(work))
    }

    fn next_cut(&mut self, work: &mut Work, now: Time) -> Option<Left> {
        with_work!(self, work => |session, work| session.next_cut(work, now))
    }

    fn next_unanswered(&mut self, work: &mut Work) -> Option<Unanswered> {
        with_work!(self, work => |session, work| session.next_unanswered(work))
    }

    #[inline]
    fn next_failure(&mut self, work: &mut Work) -> Option<Failure> {
        with_work!(self, work => |session, work| session.next_failure(work))
    }

    #[inline]
    fn next_broken(&mut self, work: &mut Work) -> Option<Broken> {
        with_work!(self, work => |session, work| session.next_broken(work))
    }

    #[inline]
    fn had_its_quantum(&self, work: &Work) -> bool {
        with_shared_work!(self, work, false => |session, work| session.had_its_quantum(work))
    }

    #[inline]
    fn wants_bytes(&self, work: &Work, cx: &Context, unread: usize) -> bool {
        with_shared_work!(self, work, true => |session, work| {
            session.wants_bytes(work, cx, unread)
        })
    }

    #[inline]
    fn expects_much(&self, work: &Work) -> bool {
        with_shared_work!(self, work, false => |session, work| session.expects_much(work))
    }

    #[inline]
    fn deadline(&self, cx: &Context) -> Option<Time> {
        match &self.0 {
            Inner::Http1(session) => session.deadline(cx),
            Inner::Http2(session) => session.deadline(cx),
        }
    }

    fn handle_deadline(
        &mut self,
        work: Option<&mut Work>,
        cx: &mut Context,
        acknowledged: i64,
        unread: &[u8],
    ) -> Next {
        with_any_work!(self, work => |session, work| {
            session.handle_deadline(work, cx, acknowledged, unread)
        })
    }

    fn handle_shutdown(&mut self, work: Option<&mut Work>) -> Next {
        with_any_work!(self, work => |session, work| session.handle_shutdown(work))
    }

    fn handle_retirement(&mut self, work: Option<&mut Work>) -> Next {
        with_any_work!(self, work => |session, work| session.handle_retirement(work))
    }

    fn make_next_last(&mut self, work: Option<&mut Work>) -> Next {
        with_any_work!(self, work => |session, work| session.make_next_last(work))
    }

    #[inline]
    fn adopt(&self, work: &mut Work) {
        if let Inner::Http2(_) = &self.0 {
            work.begin_http2();
        }
    }

    fn choose(&mut self, work: &mut Work, cx: &mut Context, protocol: Alpn, listener: u32) {
        if protocol == Alpn::Http2 {
            self.begin_http2(work, cx, listener);
        }
    }

    fn is_tunnel(work: &Work) -> bool {
        match &work.http2 {
            None => Http1::is_tunnel(&work.http1),
            Some(work) => Http2::is_tunnel(work),
        }
    }

    fn idle_since(&self) -> Option<Time> {
        match &self.0 {
            Inner::Http1(session) => session.idle_since(),
            Inner::Http2(session) => session.idle_since(),
        }
    }

    fn activity(&self, work: &Work) -> Activity {
        with_shared_work!(self, work, Activity::Idle => |session, work| session.activity(work))
    }

    fn check(&self, work: Option<&Work>) {
        match &self.0 {
            Inner::Http1(session) => session.check(work.map(|work| &work.http1)),
            Inner::Http2(session) => session.check(work.and_then(|work| work.http2.as_deref())),
        }
    }
}

impl Http {
    /// Speaks HTTP/2 from now on.
    #[cold]
    fn begin_http2(&mut self, work: &mut Work, cx: &mut Context, listener: u32) {
        cx.stats.http2_connections.add(1);
        work.begin_http2();
        let mut session = Box::new(Http2::begin(cx, listener));
        let is_retiring = match &self.0 {
            Inner::Http1(before) => before.is_retiring(),
            Inner::Http2(_) => false,
        };
        if is_retiring || cx.is_ending {
            session.announce_end();
        }
        self.0 = Inner::Http2(session);
    }
}

impl Pump<Http> for Work {
    #[inline]
    fn pump(
        &mut self,
        session: &mut Http,
        ring: &mut Ring,
        disk: &mut Disk,
        transport: &mut impl Transport,
        connection: u64,
        spent: u64,
    ) -> Progress {
        match &mut session.0 {
            Inner::Http1(session) => {
                self.http1.pump(session, ring, disk, transport, connection, spent)
            }
            Inner::Http2(session) => {
                self.http2().pump(session, ring, disk, transport, connection, spent)
            }
        }
    }
}

/// Calls a method of the work that is in use.
macro_rules! of_active {
    ($self:ident => |$work:ident| $call:expr) => {
        match $self.http2.as_deref_mut() {
            None => {
                let $work = &mut $self.http1;
                $call
            }
            Some($work) => $call,
        }
    };
}

impl Outgoing for Work {
    #[inline]
    fn set_takes(&mut self, takes: Takes) {
        self.http1.set_takes(takes);
    }

    #[inline]
    fn set_origin(&mut self, listener: u32, scheme: Scheme, client: ClientAddress) {
        self.http1.set_origin(listener, scheme, client);
    }

    fn handle_read(&mut self, done: ReadDone) {
        of_active!(self => |work| work.handle_read(done));
    }

    fn reclaim(&mut self, now: Time) -> bool {
        of_active!(self => |work| work.reclaim(now))
    }

    #[inline]
    fn queue(&mut self) -> &mut OutQ<Piece> {
        of_active!(self => |work| work.queue())
    }

    #[inline]
    fn weight(&self) -> Weight {
        match &self.http2 {
            None => self.http1.weight(),
            Some(work) => work.weight(),
        }
    }

    #[inline]
    fn is_idle(&self) -> bool {
        match &self.http2 {
            None => self.http1.is_idle(),
            Some(work) => work.is_idle(),
        }
    }

    fn active_requests(&self) -> usize {
        match &self.http2 {
            None => self.http1.active_requests(),
            Some(work) => work.active_requests(),
        }
    }

    #[inline]
    fn restart(&mut self) {
        if self.http2.is_some() {
            self.spare = self.http2.take();
            self.spare.iter_mut().for_each(|work| work.restart());
        }
        self.http1.restart();
    }
}

// Each connection has one, even an idle connection.
const _: () = assert!(size_of::<Http>() == size_of::<Http1>());
