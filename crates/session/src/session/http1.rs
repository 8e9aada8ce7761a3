//! HTTP/1.0 and 1.1 on one connection: requests are answered in order, in bounded memory and time.
//!
//! ```text
//!               ┌────────── the last request was read ──────────┐
//!               │                                               ▼
//!   accept ► Open ──(idle, slow or gone: close)──► closed ◄── Last ──all sent──► Lingering ──► closed
//! ```
//!
//! The table has the states in which a connection waits. [`Http1::check`] rejects most other states:
//!
//! | phase | waits for | requests without a response | producer | stream |
//! |---|---|---|---|---|
//! | Open | Idle: the first byte of a request | none | none | drained |
//! | Open | Request: the rest of a request or of its body | none, or a request that waits for its body | none | drained |
//! | Open, Last | Request: the rest of a body that a consumer takes, or bytes from the peer of a tunnel whose direction to the peer has ended | any | any | drained |
//! | Open, Last | Server: a disk, a handler, a producer, a consumer, a tunnel | any | any | not drained in a wait for a disk; any in the other waits |
//! | Open | Server: the next worker turn, because the quantum of this turn is used up | any | any | any |
//! | Open, Last | Peer: the socket is full | any | any | not drained, or the transport has bytes that it has not sent yet |
//! | Last | Request, after a shutdown within the body of a request: the next worker turn, in which the response begins without the rest of this body | only the request with this body | none | drained |
//! | Lingering | the end of the peer's stream | none | none | drained |
//!
//! A peer that has half-closed (ended its sending direction) sends no more requests. So the connection of such a peer
//! waits only in the states Server and Peer.

mod body;
mod exchange;
mod receive;
mod refuse;
mod response;
mod work;

use core::num::NonZeroU64;
use std::rc::Rc;

use http::{Framing, Head, Reject, Status};
use http1::server::{self, Event};
use http1::write;
use ring::Time;
use sendfile::{Piece, Progress};

use super::escaped::Escaped;
use super::{
    Activity, Defer, LINGER, Left, Moved, Next, Outgoing, Requests, Session, Turn, Unanswered, Why,
};
use crate::context::Context;
use crate::handler::{AnswerSize, Found, Interim, Keep, Produced, Response, Search};
use crate::standing::Standing;
use body::{Form, Sending};
use exchange::{Exchange, Known, Lookup, RequestFacts};
pub(in crate::session) use work::Work;

/// The limit of received bytes that were not parsed yet; at this limit no more bytes are received. By default the limit
/// is twice the longest head, so a head fits after other bytes. If longer heads are configured, the limit is the
/// longest head plus 16 KiB.
const INPUT_BYTES_MAX: usize = 32 * 1024;
/// The number of times that [`LINGER`] starts again because the peer has sent something. A peer that goes on sending
/// has a total of 30 s, as with nginx (`lingering_time`). In a shutdown, and when the listener is removed, [`LINGER`]
/// never starts again.
const LINGERS_MAX: u8 = 14;

/// The limit of received bytes that were not parsed yet.
#[inline]
fn input_bytes_max(cx: &Context) -> usize {
    INPUT_BYTES_MAX.max(cx.tuning.request_limits.head_bytes_max + INPUT_BYTES_MAX / 2)
}

/// HTTP/1.0 and 1.1.
#[derive(Debug)]
pub struct Http1 {
    phase: Phase,
    /// True if the peer has half-closed.
    ended: bool,
    /// True if the next request is the last.
    is_retiring: bool,
    /// True if the peer has sent something since [`LINGER`] last began.
    is_heard: bool,
    /// The number of times that [`LINGER`] has started again.
    lingers: u8,
    next_request: u32,
}

/// The phases of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Requests are taken and answered.
    Open(Wait),
    /// No further request is taken; the server answers requests that were taken.
    Last(Wait),
    /// All bytes and the end of the stream were sent, and the peer should close.
    Lingering {
        /// The time at which [`LINGER`] last began.
        since: Time,
        /// The bytes that the peer had acknowledged when its rate was last judged. The number is valid if `windows` is
        /// not 0.
        acknowledged: i64,
        /// 0 in the first [`LINGER`] period, and in each period that begins after the peer has acknowledged all bytes.
        /// In other periods: the number of periods since the rate was last judged, including the current period.
        windows: u16,
    },
}

impl Phase {
    const fn lingering(since: Time) -> Self {
        Self::Lingering { since, acknowledged: 0, windows: 0 }
    }

    /// Starts [`LINGER`] again when the period with the number `windows` has ended, for a peer that has not
    /// acknowledged all bytes. Returns `None` if the peer has taken less than `rate_min` for `timeout_send`.
    fn linger_again(cx: &Context, windows: u16, before: i64, acknowledged: i64) -> Option<Self> {
        let since = cx.now;
        let time = LINGER * u32::from(windows);
        if windows > 0 && time < cx.tuning.timeout_send {
            let windows = windows.saturating_add(1);
            return Some(Self::Lingering { since, acknowledged: before, windows });
        }
        let taken = u64::try_from(acknowledged.wrapping_sub(before)).unwrap_or(0);
        let is_fast = windows == 0 || taken >= cx.least_bytes_in(time);
        is_fast.then_some(Self::Lingering { since, acknowledged, windows: 1 })
    }
}

/// The event for which an open connection waits, and the time since which it waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    /// The first byte of a request.
    Idle(Time),
    /// The rest of a request.
    Request(Time),
    /// A step of the server (a disk, a handler). There is no deadline while the peer can still send. During such a step
    /// the peer's time for receiving bytes is paused ([`Work::peer_since`]).
    Server(Time),
    /// The peer, which has to receive bytes. The peer's rate counts the bytes that the peer has acknowledged since
    /// [`Work::acknowledged`] was set.
    Peer(Time),
}

impl Session for Http1 {
    type Work = Work;

    fn new(now: Time) -> Self {
        let phase = Phase::Open(Wait::Idle(now));
        Self {
            phase,
            ended: false,
            is_retiring: false,
            is_heard: false,
            lingers: 0,
            next_request: 0,
        }
    }

    #[inline]
    fn handle_bytes(
        &mut self,
        work: &mut Work,
        requests: &mut impl Requests,
        bytes: &[u8],
    ) -> usize {
        let mut at = 0;
        loop {
            if work.incoming.is_some() {
                at += self.receive(work, requests.cx(), &bytes[at..]);
                if work.incoming.is_some() {
                    return at;
                }
            }
            let cx = requests.cx();
            if at == bytes.len()
                || !self.is_open()
                || work.is_full(&cx.budget)
                || work.had_its_quantum(cx.turn)
                || !work.may_read(&bytes[at..])
            {
                break;
            }
            let was_idle = work.reader.is_idle();
            // The reference avoids a copy of the request, of about 250 bytes.
            let limits = &cx.tuning.request_limits;
            let (taken, event) = &mut work.reader.handle_input(&bytes[at..], limits);
            at += *taken;
            match event {
                Event::Partial => {
                    if was_idle && bytes.len() - at > INPUT_BYTES_MAX && cx.budget.is_spent() {
                        let reason = "its head is long, and there is no memory for the rest of it";
                        let reject = Reject::new(Status::ServiceUnavailable, reason);
                        self.refuse(work, cx, reject, &bytes[at..]);
                    }
                    break;
                }
                // No consumer takes this body, so the session drops it.
                Event::Body(content) => {
                    let count = content.len();
                    work.count_body(count);
                    self.drop_body(work, *taken);
                }
                Event::Trailer(..) => self.drop_body(work, *taken),
                Event::BodyEnd => work.body_skipped(),
                // The consumer of the body may be a gateway, and a gateway begins a request only when the client can
                // receive the response. So the session parses this request again after the earlier responses.
                Event::Request(request)
                    if request.head.framing != Framing::None && !work.has_begun_responses() =>
                {
                    at -= *taken;
                    work.reader = server::Connection::new();
                    break;
                }
                Event::Request(request) => {
                    let escaped;
                    let mut with_escaped;
                    let request = if request.has_raw_target {
                        escaped = Escaped::of(&request.head);
                        let head = escaped.head(&request.head);
                        with_escaped = http1::Request { head, ..request.clone() };
                        &mut with_escaped
                    } else {
                        request
                    };
                    self.handle_request(work, requests, request);
                }
                Event::Rejected(reject) if was_idle || work.body_is_outstanding() => {
                    let refused = &bytes[at - *taken..at];
                    if !(was_idle && self.refuse_protocol(work, cx, refused)) {
                        let unread = if was_idle { refused } else { &[] };
                        self.refuse(work, cx, *reject, unread);
                    }
                }
                // The faulty body belongs to a request that has been answered already.
                Event::Rejected(_) | Event::Closed => self.take_no_more(),
            }
        }
        if self.is_open() {
            return at;
        }
        self.is_heard = true;
        bytes.len()
    }

    fn handle_eof(&mut self, work: Option<&mut Work>) -> Next {
        self.ended = true;
        match (self.phase, work) {
            (Phase::Lingering { .. }, _) | (_, None) => Next::Close(Why::Done),
            _ => Next::Pump,
        }
    }

    fn handle_answer(
        &mut self,
        work: &mut Work,
        cx: &Context,
        request: u32,
        size: AnswerSize,
    ) -> bool {
        let mut with_it = work.weight();
        with_it.shared += size.shared;
        // A large answer, or an answer with open files, is kept only for the next response. If such an answer were kept
        // for a later response, the answer could occupy memory or files that the next response needs. An answer that
        // cannot be found again is always kept.
        let may_wait = !size.holds_files && cx.budget.allows(with_it);
        let keeps = |place| match size.keep {
            Keep::IfSmall => place == 0 || may_wait,
            Keep::Always => true,
            Keep::Never => false,
        };
        work.exchanges.settle(request, size, cx.now, keeps)
    }

    /// Sends an interim response, if no other bytes are being sent and the response is for the first waiting request. A
    /// client assumes that every interim response belongs to its first unanswered request.
    fn handle_interim(&mut self, work: &mut Work, request: u32, interim: &Interim) {
        let is_next = matches!(
            work.exchanges.front(),
            Some(Exchange::Asked { request: next, .. }) if *next == request
        );
        if is_next && work.producing.is_none() && work.stream.is_drained() {
            let mut bytes = Vec::new();
            write::interim_head(interim.status, &interim.fields, &mut bytes);
            work.stream.push(Piece::Bytes(bytes));
        }
    }

    fn next_turn(&mut self, work: &mut Work, cx: &mut Context) -> Option<Turn> {
        while work.producing.is_none() {
            work.invite_body();
            if !work.is_first_ready() || !work.may_respond(&cx.budget) {
                return None;
            }
            match work.exchanges.pop_front()? {
                Exchange::Asked { request, head, facts, lookup } => {
                    work.facts = facts;
                    work.facts.times.since = cx.now;
                    let found = matches!(lookup, Lookup::Found(_));
                    // The handler is asked about each request when the request is read. An answer that refuses it is
                    // always kept.
                    return Some(Turn { request, head, found, standing: Standing::Counted });
                }
                Exchange::Refused(reject, request) => {
                    self.respond_to_refused(work, cx, reject, request);
                }
            }
        }
        None
    }

    fn put_back(&mut self, work: &mut Work, turn: Turn, search: Option<Rc<dyn Search>>) {
        let Turn { request, head, .. } = turn;
        let (facts, lookup) = (work.facts, Lookup::Pending(search));
        work.exchanges.push_front(Exchange::Asked { request, head, facts, lookup });
    }

    #[inline]
    fn respond(
        &mut self,
        work: &mut Work,
        cx: &mut Context,
        _request: u32,
        head: &Head<'_>,
        response: &mut Response<'_>,
    ) -> Option<NonZeroU64> {
        let rate = response.terms.rate;
        if work.facts.expect_continue && response.is_made_while_sent() {
            work.invite();
        }
        // A client that got no `100 Continue` may send its body after this response, or may leave the body out (RFC
        // 9110 §10.1.1). The next bytes could be either a body or a request, so this response is the last.
        let last = work.facts.last || work.facts.expect_continue || response.terms.is_last;
        if work.begin_response(cx, Some(head), response, last) {
            // The response ends the connection, even if the request asked to keep the connection. Later requests that
            // were already read get no response. One of them may even have asked to close the connection.
            work.drop_behind();
            Self::close_reader(work);
            self.take_no_more();
        }
        rate
    }

    fn handle_progress(&mut self, work: &mut Work, cx: &mut Context, moved: &Moved) -> Next {
        if work.incoming.is_some()
            && !matches!(moved.progress, Progress::Failed(_))
            && let Some(next) = self.handle_incoming(work, cx, moved)
        {
            return next;
        }
        match moved.progress {
            Progress::Drained => self.handle_drained(work, cx, moved),
            Progress::Blocked => {
                // The blocked bytes may be bytes of the transport itself, such as records of TLS. Such bytes do not end
                // the idle time.
                if !self.is_between_requests(work, moved) {
                    self.wait_for_peer(work, cx.now, moved.acknowledged);
                }
                Next::Wait
            }
            Progress::Waiting => {
                if !moved.blocked {
                    self.wait_for_server(work, cx.now);
                }
                Next::Wait
            }
            Progress::More => self.end_turn(work, cx),
            Progress::Failed(failure) => Next::Close(Why::Failed(failure)),
        }
    }

    fn is_complete(&self, work: &Work) -> bool {
        matches!(self.phase, Phase::Last(_))
            && work.exchanges.is_empty()
            && work.producing.is_none()
            && work.incoming.is_none()
    }

    #[inline]
    fn next_left(&mut self, work: &mut Work) -> Option<Left> {
        let sent = work.stream.sent();
        while let Some(end) = work.ends.pop_sent(sent) {
            if let Some(record) = end.record {
                return Some(Left::new(record, sent));
            }
        }
        None
    }

    fn looks_whole(&self, work: &Work) -> bool {
        work.ends_with_connection && (work.producing.is_some() || !work.ends.is_empty())
    }

    fn next_cut(&mut self, work: &mut Work, now: Time) -> Option<Left> {
        if let Some(since) = work.waits_since.take() {
            work.note_wait(now.since(since));
        }
        let sent = work.stream.sent();
        while let Some(end) = work.ends.pop() {
            if let Some(record) = end.record {
                return Some(Left::new(record, sent));
            }
        }
        let Sending { record, body_at, .. } = work.producing.take()?.body;
        let mut record = record?;
        record.body_at = body_at;
        record.body_bytes = u64::MAX;
        Some(Left::new(record, sent))
    }

    fn next_unanswered(&mut self, work: &mut Work) -> Option<Unanswered> {
        // Only the last request can have a malformed head. A request with a malformed head has no head to return, so
        // `?` may end the iteration.
        let exchange = work.exchanges.pop_front()?;
        let request = exchange.request();
        let (head, RequestFacts { times, .. }) = exchange.into_request()?;
        Some(Unanswered { request, head, at: times.at, body_bytes: times.body_bytes })
    }

    #[inline]
    fn had_its_quantum(&self, work: &Work) -> bool {
        // A session that accepts no more requests drops all bytes directly, and needs no further turn.
        self.is_open() && work.has_begun_all()
    }

    #[inline]
    fn wants_bytes(&self, work: &Work, cx: &Context, unread: usize) -> bool {
        let may_wait = work.incoming.is_none() && self.is_open() && work.is_full(&cx.budget);
        unread < input_bytes_max(cx) && !may_wait
    }

    #[inline]
    fn expects_much(&self, work: &Work) -> bool {
        work.incoming.is_some()
    }

    fn deadline(&self, cx: &Context) -> Option<Time> {
        let tuning = &cx.tuning;
        match self.phase {
            Phase::Lingering { since, .. } => Some(since + LINGER),
            Phase::Open(wait) | Phase::Last(wait) => match wait {
                Wait::Idle(since) => Some(since + tuning.timeout_idle),
                Wait::Request(since) => Some(since + tuning.timeout_header),
                Wait::Peer(since) => Some(since + tuning.timeout_send),
                // If the peer has half-closed while the server waits for a disk, the peer has most likely gone.
                Wait::Server(since) if self.ended => Some(since + tuning.timeout_send),
                Wait::Server(_) => None,
            },
        }
    }

    fn handle_deadline(
        &mut self,
        mut work: Option<&mut Work>,
        cx: &mut Context,
        acknowledged: i64,
        unread: &[u8],
    ) -> Next {
        let wait = match self.phase {
            Phase::Open(wait) | Phase::Last(wait) => wait,
            Phase::Lingering { acknowledged: before, windows, .. } => {
                let sent = work.map_or(0, |work| work.stream.sent().cast_signed());
                // A close at this time would reset the connection. The peer would lose bytes that it has not received
                // or has not read.
                let is_heard = core::mem::take(&mut self.is_heard) && self.lingers < LINGERS_MAX;
                self.lingers += u8::from(is_heard);
                let has_all = acknowledged == sent;
                if has_all && !is_heard {
                    return Next::Close(Why::Done);
                }
                let next = match has_all {
                    true => Some(Phase::lingering(cx.now)),
                    false => Phase::linger_again(cx, windows, before, acknowledged),
                };
                let Some(next) = next else {
                    cx.stats.slow_peers.add(1);
                    return Next::Close(Why::TimedOut);
                };
                self.phase = next;
                return Next::Wait;
            }
        };
        match wait {
            Wait::Peer(since) => {
                if let Some(work) = work
                    && cx.is_fast_enough(since, work.acknowledged, acknowledged)
                {
                    work.acknowledged = acknowledged;
                    self.set_wait(Wait::Peer(cx.now));
                    return Next::Wait;
                }
                cx.stats.slow_peers.add(1);
                Next::Close(Why::TimedOut)
            }
            Wait::Server(_) if !self.ended => Next::Wait,
            Wait::Server(_) if work.as_mut().is_some_and(|work| work.has_sent_more()) => {
                self.set_wait(Wait::Server(cx.now));
                Next::Wait
            }
            Wait::Idle(_) => {
                cx.stats.timeouts.add(1);
                cx.stats.idle_timeouts.add(1);
                Next::Close(Why::TimedOut)
            }
            Wait::Server(_) => {
                cx.stats.timeouts.add(1);
                Next::Close(Why::TimedOut)
            }
            Wait::Request(since) => {
                if work.as_mut().is_some_and(|work| work.is_received_fast_enough(cx, since)) {
                    self.set_wait(Wait::Request(cx.now));
                    return Next::Wait;
                }
                cx.stats.timeouts.add(1);
                cx.stats.header_timeouts.add(1);
                match work {
                    // A request is refused only if no response to the request has begun. Otherwise the connection is
                    // closed without a refusal.
                    Some(work) if work.reader.is_idle() || work.body_is_outstanding() => {
                        let reason = "the request took too long";
                        let reject = Reject { status: Status::RequestTimeout, reason };
                        self.refuse(work, cx, reject, unread);
                        Next::Pump
                    }
                    _ => Next::Close(Why::TimedOut),
                }
            }
        }
    }

    fn handle_shutdown(&mut self, work: Option<&mut Work>) -> Next {
        self.lingers = LINGERS_MAX;
        if let Phase::Lingering { .. } = self.phase {
            return Next::Wait;
        }
        self.take_no_more();
        let Some(work) = work.filter(|work| !work.is_idle()) else {
            return Next::Close(Why::Done);
        };
        if work.has_answered_all() {
            // The peer still sends a body whose request has been answered, so the connection lingers.
            work.reader.close();
            return Next::Pump;
        }
        Self::close_reader(work);
        if let Some(facts) = work.exchanges.back_facts() {
            facts.last = true;
            if core::mem::take(&mut facts.skips_body_first) {
                return Next::TurnOver;
            }
        }
        Next::Wait
    }

    fn handle_retirement(&mut self, work: Option<&mut Work>) -> Next {
        self.is_retiring = true;
        match work {
            Some(work) if !work.has_answered_all() => self.handle_shutdown(Some(work)),
            _ => Next::Wait,
        }
    }

    fn make_next_last(&mut self, _work: Option<&mut Work>) -> Next {
        self.is_retiring = true;
        Next::Wait
    }

    fn is_tunnel(work: &Work) -> bool {
        let form = work.incoming.as_ref().map(|incoming| incoming.form);
        matches!(form, Some(Form::Tunnel | Form::HalfClosed))
    }

    fn idle_since(&self) -> Option<Time> {
        match self.phase {
            Phase::Open(Wait::Idle(since)) | Phase::Last(Wait::Idle(since)) => Some(since),
            Phase::Lingering { since, .. } => Some(since),
            Phase::Open(_) | Phase::Last(_) => None,
        }
    }

    fn activity(&self, work: &Work) -> Activity {
        match self.phase {
            Phase::Lingering { .. } => Activity::Idle,
            Phase::Open(_) | Phase::Last(_) if Self::is_tunnel(work) => Activity::Tunnel,
            Phase::Open(wait) | Phase::Last(wait) => match wait {
                Wait::Idle(_) => Activity::Idle,
                Wait::Request(_) => Activity::Reading,
                Wait::Server(_) => Activity::Waiting,
                Wait::Peer(_) => Activity::Writing,
            },
        }
    }

    fn check(&self, work: Option<&Work>) {
        let Some(work) = work else {
            let needs_no_work = matches!(
                self.phase,
                Phase::Open(Wait::Idle(_) | Wait::Request(_)) | Phase::Lingering { .. }
            );
            return assert!(needs_no_work, "{self:?} without work");
        };
        let is_drained = work.stream.is_drained();
        let is_taking = work.incoming.is_some();
        let is_empty = work.exchanges.is_empty() && work.producing.is_none() && !is_taking;
        let has_one = work.exchanges.len() == 1 && work.producing.is_none();
        let is_in_table = match self.phase {
            Phase::Open(Wait::Idle(_)) => {
                is_drained && is_empty && work.reader.is_idle() && !self.ended
            }
            Phase::Open(Wait::Request(_)) => {
                is_drained
                    && (is_empty || is_taking || has_one && work.body_is_outstanding())
                    && !self.ended
            }
            Phase::Last(Wait::Request(_)) => {
                is_drained && (is_taking || has_one && !work.body_is_outstanding())
            }
            Phase::Open(Wait::Server(_)) => !is_drained || !is_empty || work.has_begun_all(),
            Phase::Last(Wait::Server(_)) => !is_drained || !is_empty,
            // The stream may be in any state in this wait, because the transport may hold back bytes, such as the rest
            // of a record.
            Phase::Open(Wait::Peer(_)) | Phase::Last(Wait::Peer(_)) => true,
            Phase::Lingering { .. } => is_drained && is_empty && !self.ended,
            Phase::Last(Wait::Idle(_)) => false,
        };
        assert!(is_in_table, "{self:?} with {work:?}");
        assert!(!(self.is_open() && work.reader.is_closed()), "{self:?} reads no more requests");
        work.check(self.is_open());
    }
}

impl Defer for Http1 {
    fn defer(
        &mut self,
        work: &mut Work,
        request: u32,
        head: &Head<'_>,
        found: Found<AnswerSize>,
    ) -> bool {
        let lookup = match found {
            Found::Later(search) => Lookup::Pending(search),
            Found::Now(size) => {
                let is_kept = match size.keep {
                    Keep::IfSmall => !size.holds_files || work.exchanges.is_empty(),
                    Keep::Always => true,
                    Keep::Never => false,
                };
                if is_kept { Lookup::Found(size) } else { Lookup::Postponed }
            }
        };
        let is_kept = matches!(lookup, Lookup::Found(_));
        let (head, facts) = (head.to_owned(), work.facts);
        work.exchanges.push_back(Exchange::Asked { request, head, facts, lookup });
        is_kept
    }
}

impl Http1 {
    /// Returns true if the next request is the last.
    pub(super) const fn is_retiring(&self) -> bool {
        self.is_retiring
    }

    const fn is_open(&self) -> bool {
        matches!(self.phase, Phase::Open(_))
    }

    /// Returns true if the peer has sent nothing since the last response left.
    fn is_between_requests(&self, work: &Work, moved: &Moved) -> bool {
        matches!(self.phase, Phase::Open(Wait::Idle(_)))
            && work.is_idle()
            && moved.unread == 0
            && !self.ended
    }

    /// Accepts no further request. Requests that were accepted are still answered.
    const fn take_no_more(&mut self) {
        if let Phase::Open(wait) = self.phase {
            self.phase = Phase::Last(wait);
        }
    }

    const fn set_wait(&mut self, next: Wait) {
        if let Phase::Open(wait) | Phase::Last(wait) = &mut self.phase {
            *wait = next;
        }
    }

    /// Waits for the peer, because the socket is full.
    fn wait_for_peer(&mut self, work: &mut Work, now: Time, acknowledged: i64) {
        let (Phase::Open(wait) | Phase::Last(wait)) = &mut self.phase else { return };
        *wait = match (*wait, work.peer_since) {
            (Wait::Peer(since), _) => Wait::Peer(since),
            (Wait::Server(began), Some(since)) => Wait::Peer(since + now.since(began)),
            _ => {
                work.acknowledged = acknowledged;
                Wait::Peer(now)
            }
        };
    }

    /// Waits for the server, because bytes have to be read, found or made.
    const fn wait_for_server(&mut self, work: &mut Work, now: Time) {
        let (Phase::Open(wait) | Phase::Last(wait)) = &mut self.phase else { return };
        work.peer_since = match *wait {
            Wait::Server(_) => return,
            Wait::Peer(since) => Some(since),
            Wait::Idle(_) | Wait::Request(_) => None,
        };
        *wait = Wait::Server(now);
    }

    /// Renews the wait for the server, because a producer has made bytes since the wait began.
    fn renew_wait_for_server(&mut self, work: &mut Work, now: Time) {
        if let Phase::Open(Wait::Server(since)) | Phase::Last(Wait::Server(since)) = &mut self.phase
        {
            if let Some(peer) = &mut work.peer_since {
                *peer = *peer + now.since(*since);
            }
            *since = now;
        }
    }

    /// Waits for bytes of the peer if a consumer has room for more of a body; otherwise waits for the server.
    fn wait_for_body_or_server(&mut self, work: &mut Work, cx: &Context) -> Next {
        if work.expects_bytes() {
            return self.wait_for_request(cx);
        }
        self.wait_for_server(work, cx.now);
        Next::Wait
    }

    /// Ends the quantum of a connection that has more to do. The wait for the next quantum counts as a wait for the
    /// server ([`Wait::Server`]). A wait for the peer goes on.
    const fn end_turn(&mut self, work: &mut Work, cx: &Context) -> Next {
        if !matches!(self.phase, Phase::Open(Wait::Peer(_)) | Phase::Last(Wait::Peer(_))) {
            self.wait_for_server(work, cx.now);
        }
        Next::TurnOver
    }

    /// Waits for the rest of a request, including the body.
    const fn wait_for_request(&mut self, cx: &Context) -> Next {
        if self.ended {
            return Next::Close(Why::Gone);
        }
        if !matches!(self.phase, Phase::Open(Wait::Request(_)) | Phase::Last(Wait::Request(_))) {
            self.set_wait(Wait::Request(cx.now));
        }
        Next::Wait
    }

    /// Gives the body of a request to a consumer, if the handler has a consumer for it. Then passes the request on.
    #[inline(always)]
    fn handle_request(
        &mut self,
        work: &mut Work,
        requests: &mut impl Requests,
        request: &mut http1::Request<'_>,
    ) {
        work.facts = RequestFacts::of(request, requests.cx().now);
        if self.is_retiring {
            work.facts = RequestFacts { last: true, skips_body_first: false, ..work.facts };
        }
        let number = self.next_number(work, requests.cx());
        let has_more = request.head.framing != Framing::None;
        if has_more {
            work.counts_body = request.head.framing == Framing::Unknown;
        }
        let mut standing = Standing::New;
        if has_more {
            let reception = requests.consumer(number, &request.head);
            standing = reception.standing;
            if let Some(consumer) = reception.consumer
                && let Err(reject) = self.accept_body(work, request, consumer)
            {
                let refused = Known::Request(request.head.to_owned(), work.facts);
                return self.refuse_request(work, requests.cx(), reject, refused);
            }
        }
        requests.handle_request(self, work, number, &request.head, work.is_next(), standing);
    }

    /// Counts a request that was read, and returns its number.
    #[inline]
    fn next_number(&mut self, work: &mut Work, cx: &Context) -> u32 {
        if work.facts.last {
            self.take_no_more();
        }
        // The idle time is counted from this request, unless the connection first waits for something else.
        if let Phase::Open(wait @ (Wait::Idle(_) | Wait::Request(_)))
        | Phase::Last(wait @ (Wait::Idle(_) | Wait::Request(_))) = &mut self.phase
        {
            *wait = Wait::Idle(cx.now);
        }
        work.begins(cx.turn);
        let request = self.next_request;
        self.next_request = request.wrapping_add(1);
        request
    }

    /// Chooses the next step after all promised bytes were sent and released. The first step of this list that applies
    /// is chosen: make more of the response's body; begin the next response; read the next request; wait for the first
    /// request's body or for its answer; continue a tunnel; be idle, or close.
    fn handle_drained(&mut self, work: &mut Work, cx: &Context, moved: &Moved) -> Next {
        if work.producing.is_some() {
            return self.go_on_producing(work, cx);
        }
        if work.is_first_ready() {
            return Next::Pump;
        }
        if moved.unread > 0 && self.is_open() && work.incoming.is_none() {
            if work.had_its_quantum(cx.turn) {
                self.wait_for_server(work, cx.now);
                return Next::TurnOver;
            }
            if !moved.stuck {
                return Next::Read;
            }
        }
        match work.exchanges.front() {
            None => {}
            Some(Exchange::Asked { facts, .. }) if facts.skips_body_first => {
                return self.wait_for_request(cx);
            }
            Some(Exchange::Asked { lookup: Lookup::BrokenOff, .. }) => {
                return Next::Close(Why::Gone);
            }
            Some(Exchange::Asked { lookup: Lookup::Pending(Some(search)), .. })
                if self.ended && search.ends_with_client() =>
            {
                return Next::Close(Why::Gone);
            }
            Some(_) => return self.wait_for_body_or_server(work, cx),
        }
        if let Some(incoming) = &mut work.incoming {
            // All responses have ended, so this consumer belongs to a tunnel.
            if incoming.form != Form::HalfClosed {
                incoming.form = Form::HalfClosed;
                self.set_wait(Wait::Request(cx.now));
                return Next::ShutDown;
            }
            return self.wait_for_body_or_server(work, cx);
        }
        self.be_idle_or_close(work, cx, moved.unread)
    }

    /// Asks the producer at the end of the stream for more bytes.
    fn go_on_producing(&mut self, work: &mut Work, cx: &Context) -> Next {
        if work.made_its_turn(cx.turn) {
            self.wait_for_server(work, cx.now);
            return Next::TurnOver;
        }
        let before = work.stream.promised();
        let produced = work.produce(cx.turn);
        if work.stream.promised() > before {
            self.renew_wait_for_server(work, cx.now);
        }
        if produced == Produced::Waiting && work.stream.is_drained() {
            return self.wait_for_body_or_server(work, cx);
        }
        Next::Pump
    }

    /// Becomes idle or closes, because all requests are answered and all responses are sent.
    fn be_idle_or_close(&mut self, work: &Work, cx: &Context, unread: usize) -> Next {
        match self.phase {
            _ if self.ended => Next::Close(Why::Done),
            Phase::Last(_) => {
                self.phase = Phase::lingering(cx.now);
                self.is_heard = false;
                Next::ShutDown
            }
            Phase::Lingering { .. } => Next::Wait,
            Phase::Open(wait) if unread == 0 && work.reader.is_idle() => {
                // Bytes from the peer that are only for the transport do not restart the idle time.
                if !matches!(wait, Wait::Idle(_)) {
                    self.set_wait(Wait::Idle(cx.now));
                }
                Next::Wait
            }
            Phase::Open(_) => self.wait_for_request(cx),
        }
    }
}

// Each connection has an `Http1`, even an idle connection.
const _: () = assert!(size_of::<Http1>() == 32);

#[cfg(test)]
mod tests;
