//! HTTP/1.0 and 1.1 on one connection: requests are answered in order, in bounded memory and time.
//!
//! ```text
//!               ┌────────── the last request was read ──────────┐
//!               │                                               ▼
//!   accept ► Open ──(idle, slow or gone: close)──► closed ◄── Last ──all sent──► Lingering ──► closed
//! ```
//!
//! The states in which a connection waits; [`Http1::check`] rejects all others:
//!
//! | phase | waits for | requests without a response | producer | stream |
//! |---|---|---|---|---|
//! | Open | Idle: the first byte of a request | none | none | drained |
//! | Open | Request: the rest of a request or of its body | none, or one that waits for its body | none | drained |
//! | Open, Last | Request: the rest of a body that a consumer takes | any | any | drained |
//! | Open, Last | Source: a disk, a handler, a producer, a consumer, a tunnel | any | any | not drained, unless one of these waits |
//! | Open | Source: another turn, because the connection has begun all requests of this one | any | any | any |
//! | Open, Last | Peer: the socket is full | any | any | not drained, or the transport holds something back |
//! | Last | Request: another turn, because a shutdown ended the wait for a body | that one | none | drained |
//! | Lingering | the peer's end | none | none | drained |
//!
//! A peer that has ended its side is in none of them but Source and Peer: it sends no more requests.

use core::time::Duration;
use std::collections::VecDeque;

use http::{Head, HeadBuf, Method, Reject, ResponseHead, Status, Version};
use http1::server::{Connection, Event};
use http1::write::{self, ConnectionOption, Wire};
use http1::{Framing, Limits};
use outq::Payload as _;
use ring::{Ring, Time};
use sendfile::{
    Disk, Failure, Owner, Piece, Progress, ReadDone, Stream, Transport, Weight, Window,
};

use super::{Left, Moved, Next, Outgoing, Session, Step, Turn, Why};
use crate::budget::Budget;
use crate::context::Context;
use crate::handler::{
    AnswerSize, BodySink, CONSUMER_ROOM_MIN, Consumer, Part, Parts, Produced, Producer, Response,
    page,
};
use crate::log::Record;

/// Requests of one connection that are answered side by side; more are not read until some have
/// left.
const REQUESTS_MAX: usize = 64;
/// Requests of one connection that are begun in one turn; those behind them wait for the next.
const TURN_REQUESTS_MAX: u32 = 64;
/// Received bytes that wait to be understood; at it nothing more is received. Two of the largest
/// heads, so that one can be completed whatever stands before it.
const INPUT_BYTES_MAX: usize = 32 * 1024;
/// Promised bytes that have not been sent; at it no further response begins. Sums of positions and
/// sizes ([`SIZE_MAX`](crate::content::SIZE_MAX)) stay far below 2⁶⁴.
const PROMISED_BYTES_MAX: u64 = 1 << 62;
/// After the last response the peer may take this long to close, so that it reads the response
/// before a reset destroys it (RFC 9112 §9.6).
const LINGER: Duration = Duration::from_secs(2);
/// Bytes of a producer that wait to be sent; more are made when they have left.
const PRODUCED_BYTES_MAX: u64 = 64 * 1024;
/// Bytes of a producer that are made in one turn.
const PRODUCED_TURN_BYTES_MAX: u64 = 256 * 1024;
/// Invites the body of a request (RFC 9110 §15.2.1).
const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// HTTP/1.0 and 1.1.
#[derive(Debug)]
pub struct Http1 {
    reader: Connection,
    phase: Phase,
    /// Whether the peer has ended its side.
    ended: bool,
    next_request: u32,
}

/// How far the connection has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Requests are taken and answered.
    Open(Wait),
    /// No further request is taken; those that were are answered.
    Last(Wait),
    /// All is sent and the peer has been told, since then; it is to close now.
    Lingering(Time),
}

/// What an open connection waits for, and since when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    /// The first byte of a request.
    Idle(Time),
    /// The rest of a request.
    Request(Time),
    /// Something of the server's own (a disk, a handler), which has all the time it needs. If it
    /// was the peer's turn before, the second is what the peer is judged by; its clock stands still.
    Source(Time, Option<Taking>),
    /// The peer to take bytes.
    Peer(Taking),
}

/// How fast a peer takes bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Taking {
    since: Time,
    /// Bytes that the peer had acknowledged then.
    acknowledged: i64,
}

/// Requests and responses of one connection.
#[derive(Debug, Default)]
pub struct Work {
    stream: Stream,
    /// Requests whose responses have not begun, in order.
    exchanges: VecDeque<Exchange>,
    /// The request that is to be answered or deferred next.
    asked: Asked,
    /// The producer at the end of the stream, if it has not ended.
    producing: Option<Producing>,
    /// What a consumer takes of what the peer sends: it belongs to the last request that was read.
    incoming: Option<Incoming>,
    /// The framing of the body of that request.
    framing: Option<Framing>,
    /// Bytes of a body that were dropped because its response had ended before.
    dropped: u64,
    /// Where responses end in the stream.
    ends: VecDeque<End>,
    /// The turn of the worker in which the connection last began a request, and how many it has
    /// begun in it.
    begun: (u64, u32),
    /// The turn of the worker in which a producer last made bytes, and how many.
    produced: (u64, u64),
}

/// What HTTP/1 knows of a request beside its head.
#[derive(Clone, Copy, Debug, Default)]
struct Asked {
    /// Whether the client waits to be invited to send the body.
    expect_continue: bool,
    /// Whether its body, in chunks, has not been skipped yet: the response has to report its faults.
    awaits_body: bool,
    /// Whether it is the last of the connection.
    last: bool,
}

/// Bytes of the peer for a consumer.
#[derive(Debug)]
struct Incoming {
    consumer: Box<dyn Consumer>,
    form: Form,
}

/// The form in which bytes for a consumer come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// The body of a request.
    Body,
    /// An upgrade has been asked for: the response decides what the bytes are.
    Offered,
    /// A tunnel.
    Tunnel,
    /// A tunnel in which nothing follows for the peer, which has been told.
    HalfClosed,
}

/// A request whose response has not begun.
#[derive(Debug)]
enum Exchange {
    /// Nothing is wrong with it so far.
    Asked { request: u32, head: HeadBuf, asked: Asked, lookup: Lookup },
    /// It was refused.
    Refused(Reject),
}

/// How far the answer to a request has been found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lookup {
    /// The handler will deliver it.
    Pending,
    /// The connection keeps it.
    Found(AnswerSize),
    /// It is too large to be kept, and is found again when its turn comes.
    Postponed,
}

/// A producer that has more to give, and the body that goes on behind it.
#[derive(Debug)]
struct Producing {
    producer: Box<dyn Producer>,
    body: Sending,
}

/// A body on its way into the stream.
#[derive(Debug)]
struct Sending {
    /// The parts that are not in the stream.
    parts: Parts,
    framing: BodyFraming,
    record: Option<Box<Record>>,
    /// Where in the stream the body begins.
    body_at: u64,
}

/// How the end of a body is marked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BodyFraming {
    /// By its length, of which so much is missing.
    Length(u64),
    /// By chunks.
    Chunked,
    /// By the end of the connection.
    Close,
}

/// The end of a response.
#[derive(Debug)]
struct End {
    at: u64,
    record: Option<Box<Record>>,
}

impl Session for Http1 {
    type Work = Work;

    fn new(now: Time) -> Self {
        let phase = Phase::Open(Wait::Idle(now));
        Self { reader: Connection::new(), phase, ended: false, next_request: 0 }
    }

    // Always: what it returns is large, and would be copied twice.
    #[inline(always)]
    fn handle_bytes<'b>(
        &mut self,
        work: &mut Work,
        cx: &mut Context,
        bytes: &'b [u8],
    ) -> (usize, Option<Step<'b>>) {
        let mut at = 0;
        if work.incoming.is_some() {
            at = self.receive(work, cx, bytes);
            if work.incoming.is_some() {
                return (at, None);
            }
        }
        while at < bytes.len()
            && self.is_open()
            && !work.is_full(&cx.budget)
            && !work.had_its_turn(cx.turn)
        {
            let was_idle = self.reader.is_idle();
            let (taken, event) = self.reader.handle_input(&bytes[at..], &Limits::DEFAULT);
            at += taken;
            match event {
                Event::Partial => break,
                // Its response has ended.
                Event::Body(_) => self.drop_body(work, taken),
                Event::BodyEnd => work.body_skipped(),
                Event::Request(http1::Request {
                    head,
                    framing,
                    keep_alive,
                    expect_continue,
                    asks_upgrade,
                }) => {
                    let awaits_body = framing == Framing::Chunked && keep_alive;
                    work.asked = Asked { expect_continue, awaits_body, last: !keep_alive };
                    let offers_body = framing != Framing::None || asks_upgrade;
                    if offers_body {
                        work.framing = Some(framing);
                    }
                    let request = self.next_number(work, cx);
                    return (
                        at,
                        Some(Step::Request { request, head, now: work.is_next(), offers_body }),
                    );
                }
                Event::Rejected(reject) if was_idle || work.awaits_body() => {
                    self.refuse(work, cx, reject);
                }
                // The fault is in the body of a request that has been answered already.
                Event::Rejected(_) | Event::Closed => self.take_no_more(),
            }
        }
        (if self.is_open() { at } else { bytes.len() }, None)
    }

    fn accept_body(
        &mut self,
        work: &mut Work,
        cx: &mut Context,
        head: &Head<'_>,
        consumer: Box<dyn Consumer>,
    ) -> bool {
        let framing = work.framing.take().unwrap_or(Framing::None);
        if framing == Framing::None {
            work.incoming = Some(Incoming { consumer, form: Form::Offered });
            return true;
        }
        let Asked { expect_continue, last, .. } = work.asked;
        let mut request = http1::Request {
            head: head.clone(),
            framing,
            keep_alive: !last,
            expect_continue,
            asks_upgrade: false,
        };
        if let Err(reject) = self.reader.decode_body(&mut request, consumer.bytes_max()) {
            self.refuse(work, cx, reject);
            return false;
        }
        let (last, expect_continue) = (!request.keep_alive, request.expect_continue);
        work.asked = Asked { expect_continue, awaits_body: false, last };
        // A body that is too long to be skipped does not end the connection if it is taken.
        if let Phase::Last(wait) = self.phase
            && !last
        {
            self.phase = Phase::Open(wait);
        }
        work.incoming = Some(Incoming { consumer, form: Form::Body });
        true
    }

    fn handle_eof(&mut self, work: Option<&mut Work>) -> Next {
        self.ended = true;
        match (self.phase, work) {
            (Phase::Lingering(_), _) | (_, None) => Next::Close(Why::Done),
            _ => Next::Pump,
        }
    }

    fn defer(
        &mut self,
        work: &mut Work,
        request: u32,
        head: &Head<'_>,
        found: Option<AnswerSize>,
    ) -> bool {
        let lookup = match found {
            None => Lookup::Pending,
            Some(size) if work.exchanges.is_empty() || !size.holds_files => Lookup::Found(size),
            Some(_) => Lookup::Postponed,
        };
        let (head, asked) = (head.to_owned(), work.asked);
        work.exchanges.push_back(Exchange::Asked { request, head, asked, lookup });
        matches!(lookup, Lookup::Found(_))
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
        // Only the answer of the next response is kept if it is large or holds open files: requests
        // that wait for such an answer could keep it from being found.
        let may_wait = !size.holds_files && cx.budget.allows(with_it);
        for (place, exchange) in work.exchanges.iter_mut().enumerate() {
            if let Exchange::Asked { request: other, lookup, .. } = exchange
                && *other == request
            {
                let keep = place == 0 || may_wait;
                *lookup = if keep { Lookup::Found(size) } else { Lookup::Postponed };
                return keep;
            }
        }
        false
    }

    fn next_turn(&mut self, work: &mut Work, cx: &mut Context) -> Option<Turn> {
        while work.producing.is_none() {
            work.invite_body();
            if !work.may_respond(&cx.budget) || !work.has_turn() {
                return None;
            }
            match work.exchanges.pop_front()? {
                Exchange::Asked { request, head, asked, lookup } => {
                    work.asked = asked;
                    let found = lookup != Lookup::Postponed;
                    return Some(Turn { request, head, found });
                }
                Exchange::Refused(reject) => self.respond_to_refused(work, cx, reject),
            }
        }
        None
    }

    fn put_back(&mut self, work: &mut Work, turn: Turn) {
        let Turn { request, head, .. } = turn;
        let (asked, lookup) = (work.asked, Lookup::Pending);
        work.exchanges.push_front(Exchange::Asked { request, head, asked, lookup });
    }

    #[inline]
    fn respond(
        &mut self,
        work: &mut Work,
        cx: &mut Context,
        head: &Head<'_>,
        mut response: Response<'_>,
    ) {
        if work.asked.expect_continue {
            work.stream.push(Piece::Static(CONTINUE));
        }
        let last = work.asked.last;
        if work.begin_response(cx, Some(head), &mut response, last) {
            // The response ends the connection, whatever the request said. Requests behind it, one
            // that said that it is the last among them, get no response.
            if self.is_open() {
                self.close_reader(work);
                self.take_no_more();
            }
            work.exchanges.clear();
        }
    }

    fn handle_progress(&mut self, work: &mut Work, cx: &mut Context, moved: &Moved) -> Next {
        if work.incoming.is_some()
            && !matches!(moved.progress, Progress::Failed(_))
            && let Some(next) = self.handle_incoming(work, moved)
        {
            return next;
        }
        match moved.progress {
            Progress::Drained => self.handle_drained(work, cx, moved),
            Progress::Blocked => {
                self.wait_for_peer(cx.now, moved.acknowledged);
                Next::Wait
            }
            Progress::Waiting => {
                if !moved.blocked {
                    self.wait_for_source(cx.now);
                }
                Next::Wait
            }
            Progress::More => self.end_turn(cx),
            Progress::Failed(failure) => Next::Close(Why::Failed(failure)),
        }
    }

    #[inline]
    fn next_left(&mut self, work: &mut Work) -> Option<Left> {
        let sent = work.stream.sent();
        while work.ends.front().is_some_and(|end| end.at <= sent) {
            if let Some(End { record: Some(record), .. }) = work.ends.pop_front() {
                return Some(Left::new(record, sent));
            }
        }
        None
    }

    fn next_cut(&mut self, work: &mut Work) -> Option<Left> {
        let sent = work.stream.sent();
        while let Some(end) = work.ends.pop_front() {
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

    #[inline]
    fn wants_bytes(&self, work: &Work, cx: &Context, unread: usize) -> bool {
        if work.incoming.is_some() {
            return unread < INPUT_BYTES_MAX;
        }
        !self.is_open() || (!work.is_full(&cx.budget) && unread < INPUT_BYTES_MAX)
    }

    fn deadline(&self, cx: &Context) -> Option<Time> {
        let tuning = &cx.tuning;
        match self.phase {
            Phase::Lingering(since) => Some(since + LINGER),
            Phase::Open(wait) | Phase::Last(wait) => match wait {
                Wait::Idle(since) => Some(since + tuning.timeout_idle),
                Wait::Request(since) => Some(since + tuning.timeout_header),
                Wait::Peer(taking) => Some(taking.since + tuning.timeout_send),
                // A client that has ended its side and waits for a disk has most likely gone.
                Wait::Source(since, _) if self.ended => Some(since + tuning.timeout_send),
                Wait::Source(..) => None,
            },
        }
    }

    fn handle_deadline(
        &mut self,
        work: Option<&mut Work>,
        cx: &mut Context,
        acknowledged: i64,
    ) -> Next {
        let (Phase::Open(wait) | Phase::Last(wait)) = self.phase else {
            return Next::Close(Why::Done);
        };
        match wait {
            Wait::Peer(taking) => {
                if taking.is_fast_enough(cx, acknowledged) {
                    self.set_wait(Wait::Peer(Taking { since: cx.now, acknowledged }));
                    return Next::Wait;
                }
                cx.stats.slow_peers += 1;
                Next::Close(Why::TimedOut)
            }
            Wait::Source(..) if !self.ended => Next::Wait,
            Wait::Idle(_) | Wait::Source(..) => {
                cx.stats.timeouts += 1;
                Next::Close(Why::TimedOut)
            }
            Wait::Request(_) => {
                cx.stats.timeouts += 1;
                match work {
                    // If the request was already answered, a late body only closes the connection.
                    Some(work) if self.reader.is_idle() || work.awaits_body() => {
                        let reason = "the request took too long";
                        self.refuse(work, cx, Reject { status: Status::RequestTimeout, reason });
                        Next::Pump
                    }
                    _ => Next::Close(Why::TimedOut),
                }
            }
        }
    }

    fn handle_shutdown(&mut self, work: Option<&mut Work>) -> Next {
        self.take_no_more();
        let Some(work) = work.filter(|work| !work.is_idle()) else {
            return Next::Close(Why::Done);
        };
        self.close_reader(work);
        if let Some(Exchange::Asked { asked, .. }) = work.exchanges.back_mut() {
            asked.last = true;
            if core::mem::take(&mut asked.awaits_body) {
                return Next::TurnOver;
            }
        }
        Next::Wait
    }

    fn idle_since(&self) -> Option<Time> {
        match self.phase {
            Phase::Open(Wait::Idle(since)) | Phase::Last(Wait::Idle(since)) => Some(since),
            Phase::Lingering(since) => Some(since),
            Phase::Open(_) | Phase::Last(_) => None,
        }
    }

    fn check(&self, work: Option<&Work>) {
        let Some(work) = work else {
            let needs_no_work = matches!(
                self.phase,
                Phase::Open(Wait::Idle(_) | Wait::Request(_)) | Phase::Lingering(_)
            );
            return assert!(needs_no_work, "{self:?} without work");
        };
        let is_drained = work.stream.is_drained();
        let is_taking = work.incoming.is_some();
        let is_empty = work.exchanges.is_empty() && work.producing.is_none() && !is_taking;
        let has_one = work.exchanges.len() == 1 && work.producing.is_none();
        let is_in_table = match self.phase {
            Phase::Open(Wait::Idle(_)) => {
                is_drained && is_empty && self.reader.is_idle() && !self.ended
            }
            Phase::Open(Wait::Request(_)) => {
                is_drained
                    && (is_empty || is_taking || has_one && work.awaits_body())
                    && !self.ended
            }
            Phase::Last(Wait::Request(_)) => {
                is_drained && (is_taking || has_one && !work.awaits_body())
            }
            Phase::Open(Wait::Source(..)) => {
                !is_drained || !is_empty || work.begun.1 == TURN_REQUESTS_MAX
            }
            Phase::Last(Wait::Source(..)) => !is_drained || !is_empty,
            // The transport may hold something back, such as the rest of a record.
            Phase::Open(Wait::Peer(_)) | Phase::Last(Wait::Peer(_)) => true,
            Phase::Lingering(_) => is_drained && is_empty && !self.ended,
            Phase::Last(Wait::Idle(_)) => false,
        };
        assert!(is_in_table, "{self:?} with {work:?}");
        assert!(!(self.is_open() && self.reader.is_closed()), "{self:?} reads no more requests");
        work.check(self.is_open());
    }
}

impl Http1 {
    const fn is_open(&self) -> bool {
        matches!(self.phase, Phase::Open(_))
    }

    /// The requests that were taken are the last.
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

    /// The socket is full.
    fn wait_for_peer(&mut self, now: Time, acknowledged: i64) {
        let (Phase::Open(wait) | Phase::Last(wait)) = &mut self.phase else { return };
        *wait = match *wait {
            Wait::Peer(taking) => Wait::Peer(taking),
            Wait::Source(began, Some(taking)) => {
                Wait::Peer(Taking { since: taking.since + now.since(began), ..taking })
            }
            _ => Wait::Peer(Taking { since: now, acknowledged }),
        };
    }

    /// Bytes have to be read, found or made.
    const fn wait_for_source(&mut self, now: Time) {
        let (Phase::Open(wait) | Phase::Last(wait)) = &mut self.phase else { return };
        *wait = match *wait {
            Wait::Source(since, taking) => Wait::Source(since, taking),
            Wait::Peer(taking) => Wait::Source(now, Some(taking)),
            _ => Wait::Source(now, None),
        };
    }

    /// A producer has made something since.
    fn renew_wait_for_source(&mut self, now: Time) {
        if let Phase::Open(Wait::Source(since, taking)) | Phase::Last(Wait::Source(since, taking)) =
            &mut self.phase
        {
            if let Some(taking) = taking {
                taking.since = taking.since + now.since(*since);
            }
            *since = now;
        }
    }

    /// The next bytes have to come from the peer if a consumer has room for more of a body, else
    /// from a source.
    fn wait_for_body_or_source(&mut self, work: &Work, cx: &Context) -> Next {
        if work.expects_bytes() {
            return self.wait_for_request(cx);
        }
        self.wait_for_source(cx.now);
        Next::Wait
    }

    /// The turn is over, and there is more to do. The wait for another is no longer than for a disk;
    /// the peer is still judged.
    const fn end_turn(&mut self, cx: &Context) -> Next {
        if !matches!(self.phase, Phase::Open(Wait::Peer(_)) | Phase::Last(Wait::Peer(_))) {
            self.wait_for_source(cx.now);
        }
        Next::TurnOver
    }

    /// The rest of a request, its body included, has to come.
    const fn wait_for_request(&mut self, cx: &Context) -> Next {
        if self.ended {
            return Next::Close(Why::Done);
        }
        if !matches!(self.phase, Phase::Open(Wait::Request(_)) | Phase::Last(Wait::Request(_))) {
            self.set_wait(Wait::Request(cx.now));
        }
        Next::Wait
    }

    /// A request was read; returns its number.
    #[inline]
    fn next_number(&mut self, work: &mut Work, cx: &Context) -> u32 {
        if work.asked.last {
            self.take_no_more();
        }
        // The time that the next one may take begins when this one is complete.
        if let Phase::Open(wait @ Wait::Request(_)) | Phase::Last(wait @ Wait::Request(_)) =
            &mut self.phase
        {
            *wait = Wait::Idle(cx.now);
        }
        work.begins(cx.turn);
        let request = self.next_request;
        self.next_request = request.wrapping_add(1);
        request
    }

    /// Gives the consumer what it has room for; returns how many bytes were taken.
    #[inline(never)]
    fn receive(&mut self, work: &mut Work, cx: &mut Context, bytes: &[u8]) -> usize {
        let mut at = 0_usize;
        while let Some(incoming) = &mut work.incoming {
            let room = if incoming.has_room() { incoming.consumer.room() } else { 0 };
            let room = usize::try_from(room).unwrap_or(usize::MAX);
            let next = &bytes[at..bytes.len().min(at.saturating_add(room))];
            match incoming.form {
                Form::Offered => break,
                Form::Tunnel | Form::HalfClosed => {
                    if next.is_empty() {
                        break;
                    }
                    incoming.consumer.push(next);
                    at += next.len();
                }
                Form::Body => {
                    // Also without bytes: the end may follow what was given last.
                    let (taken, event) = self.reader.handle_body(next, &Limits::DEFAULT);
                    at += taken;
                    match event {
                        Event::Body(content) => incoming.consumer.push(content),
                        Event::BodyEnd => {
                            incoming.consumer.end();
                            work.incoming = None;
                        }
                        Event::Rejected(reject) if work.awaits_body() => {
                            self.refuse(work, cx, reject);
                        }
                        Event::Rejected(_) => {
                            work.incoming = None;
                            self.take_no_more();
                        }
                        Event::Partial => break,
                        Event::Request(_) | Event::Closed => {
                            unreachable!("the body has not ended")
                        }
                    }
                }
            }
        }
        if at > 0
            && let Phase::Open(Wait::Request(since)) | Phase::Last(Wait::Request(since)) =
                &mut self.phase
        {
            *since = cx.now;
        }
        at
    }

    /// So many bytes of a body were dropped: it is read to its end only if it is not too long.
    fn drop_body(&mut self, work: &mut Work, bytes: usize) {
        work.dropped += bytes as u64;
        if work.dropped > Limits::DEFAULT.body_bytes_max {
            self.reader.close();
            self.take_no_more();
        }
    }

    /// No further request will be read, but the body of the last one, if a consumer takes it.
    fn close_reader(&mut self, work: &Work) {
        if !work.receives_body() {
            self.reader.close();
        }
    }

    /// The consumer has room for what waits, or the peer will send no more.
    fn handle_incoming(&mut self, work: &mut Work, moved: &Moved) -> Option<Next> {
        let incoming = work.incoming.as_mut()?;
        let has_room = incoming.has_room();
        if moved.unread > 0 && has_room && !moved.stuck {
            return Some(Next::Read);
        }
        let all_taken = moved.unread == 0 || (moved.stuck && has_room);
        if !self.ended || !all_taken || incoming.form == Form::Offered {
            return None;
        }
        if incoming.form != Form::Body {
            incoming.consumer.end();
        }
        // The request is not complete, and will not be.
        if work.awaits_body() {
            work.exchanges.pop_back();
        }
        self.take_no_more();
        work.incoming = None;
        Some(Next::Pump)
    }

    /// Refuses what cannot be understood; in its turn, if others are being answered.
    #[cold]
    fn refuse(&mut self, work: &mut Work, cx: &mut Context, reject: Reject) {
        self.take_no_more();
        // It takes the place of the answer to the request that has the faulty body.
        if work.awaits_body() {
            work.exchanges.pop_back();
        }
        work.incoming = None;
        if work.exchanges.is_empty() && work.producing.is_none() {
            self.respond_to_refused(work, cx, reject);
        } else {
            work.exchanges.push_back(Exchange::Refused(reject));
        }
    }

    fn respond_to_refused(&mut self, work: &mut Work, cx: &mut Context, reject: Reject) {
        let bare =
            ResponseHead { server: Some(crate::NAME.into()), ..ResponseHead::new(reject.status) };
        work.begin_response(cx, None, &mut page::refused(reject, bare), true);
    }

    /// All that was promised is with the transport.
    fn handle_drained(&mut self, work: &mut Work, cx: &Context, moved: &Moved) -> Next {
        if work.producing.is_some() {
            if work.made_its_turn(cx.turn) {
                self.wait_for_source(cx.now);
                return Next::TurnOver;
            }
            let before = work.stream.promised();
            let produced = work.produce(cx.turn);
            if work.stream.promised() > before {
                self.renew_wait_for_source(cx.now);
            }
            if produced == Produced::Waiting && work.stream.is_drained() {
                return self.wait_for_body_or_source(work, cx);
            }
            return Next::Pump;
        }
        if work.has_turn() {
            return Next::Pump;
        }
        if moved.unread > 0 && self.is_open() && work.incoming.is_none() {
            if work.had_its_turn(cx.turn) {
                self.wait_for_source(cx.now);
                return Next::TurnOver;
            }
            if !moved.stuck {
                return Next::Read;
            }
        }
        match work.exchanges.front() {
            None => {}
            Some(Exchange::Asked { asked, .. }) if asked.awaits_body => {
                return self.wait_for_request(cx);
            }
            Some(_) => return self.wait_for_body_or_source(work, cx),
        }
        if let Some(incoming) = &mut work.incoming {
            // Only a tunnel outlives its response.
            if incoming.form != Form::HalfClosed {
                incoming.form = Form::HalfClosed;
                self.set_wait(Wait::Request(cx.now));
                return Next::ShutDown;
            }
            return self.wait_for_body_or_source(work, cx);
        }
        match self.phase {
            _ if self.ended => Next::Close(Why::Done),
            Phase::Last(_) => {
                self.phase = Phase::Lingering(cx.now);
                Next::ShutDown
            }
            Phase::Lingering(_) => Next::Wait,
            Phase::Open(_) if moved.unread == 0 && self.reader.is_idle() => {
                self.set_wait(Wait::Idle(cx.now));
                Next::Wait
            }
            Phase::Open(_) => self.wait_for_request(cx),
        }
    }
}

impl Taking {
    /// Whether the peer has taken as much since then as it must.
    fn is_fast_enough(self, cx: &Context, acknowledged: i64) -> bool {
        let fresh = u64::try_from(acknowledged.wrapping_sub(self.acknowledged)).unwrap_or(0);
        let millis = u64::try_from(cx.now.since(self.since).as_millis()).unwrap_or(u64::MAX);
        let asked = cx.tuning.rate_min.saturating_mul(millis) / 1000;
        fresh >= asked.max(1)
    }
}

impl Outgoing for Work {
    #[inline]
    fn pump(
        &mut self,
        ring: &mut Ring,
        disk: &mut Disk,
        transport: &mut impl Transport,
        connection: u64,
        window: Window,
    ) -> Progress {
        self.stream.pump(ring, disk, transport, Owner::of(connection), window)
    }

    fn handle_read(&mut self, ring: &Ring, done: ReadDone) {
        self.stream.handle_read(ring, done);
    }

    fn reclaim(&mut self) {
        self.stream.reclaim();
    }

    fn queue(&mut self) -> &mut outq::OutQ<Piece> {
        self.stream.queue()
    }

    fn weight(&self) -> Weight {
        let mut weight = self.stream.weight();
        self.exchanges.iter().for_each(|exchange| weight += exchange.weight());
        self.ends.iter().for_each(|end| weight += end.weight());
        if let Some(incoming) = &self.incoming {
            weight.own += incoming.consumer.weight();
        }
        if let Some(producing) = &self.producing {
            weight.shared += producing.producer.weight();
        }
        weight
    }

    fn is_idle(&self) -> bool {
        self.stream.is_drained()
            && self.exchanges.is_empty()
            && self.producing.is_none()
            && self.incoming.is_none()
            && self.dropped == 0
            && !self.stream.is_reading()
    }

    fn restart(&mut self) {
        debug_assert!(self.is_idle() && self.ends.is_empty());
        self.stream.restart();
        self.begun = (0, 0);
        self.produced = (0, 0);
    }
}

impl Work {
    /// Panics unless requests and responses are in order and within their bounds.
    fn check(&self, is_open: bool) {
        let Self { exchanges, ends, .. } = self;
        let count = exchanges.len() + ends.len() + usize::from(self.producing.is_some());
        assert!(count <= REQUESTS_MAX + 1, "requests are bounded: {self:?}");
        assert!(self.begun.1 <= TURN_REQUESTS_MAX, "so are those of one turn");
        assert!(ends.iter().is_sorted_by_key(|end| end.at), "responses end in order: {self:?}");
        assert!(ends.front().is_none_or(|end| end.at > self.stream.sent()), "they were logged");
        assert!(ends.back().is_none_or(|end| end.at <= self.stream.promised()));
        let mut before = None;
        for (place, exchange) in exchanges.iter().enumerate() {
            let (is_front, is_back) = (place == 0, place + 1 == exchanges.len());
            match exchange {
                Exchange::Asked { request, asked, lookup, .. } => {
                    let is_next =
                        before.is_none_or(|before: u32| before.wrapping_add(1) == *request);
                    assert!(is_next, "requests wait in order: {self:?}");
                    before = Some(*request);
                    assert!(is_back || !asked.awaits_body, "only the last body is outstanding");
                    assert!(is_open || !asked.awaits_body, "its end cannot come");
                    assert!(is_back && !is_open || !asked.last, "{self:?} goes on behind the last");
                    let keeps_files = matches!(lookup, Lookup::Found(size) if size.holds_files);
                    assert!(is_front || !keeps_files, "only the next response keeps files open");
                }
                Exchange::Refused(_) => assert!(is_back && !is_open, "nothing follows a refusal"),
            }
        }
    }

    /// Whether the response to the request that was just read may begin now.
    fn is_next(&self) -> bool {
        !self.asked.awaits_body && self.exchanges.is_empty() && self.producing.is_none()
    }

    /// Whether no more requests are to be read for now.
    fn is_full(&self, budget: &Budget) -> bool {
        // A body is skipped without memory, and no other request begins before its end.
        if self.awaits_body() {
            return false;
        }
        self.exchanges.len() + self.ends.len() >= REQUESTS_MAX
            || self.unsent() >= PROMISED_BYTES_MAX
            || !budget.allows(self.weight())
    }

    /// Whether another response may be put into the stream.
    fn may_respond(&self, budget: &Budget) -> bool {
        self.unsent() < PROMISED_BYTES_MAX && budget.allows(self.stream.weight())
    }

    /// Promised bytes that have not been sent.
    const fn unsent(&self) -> u64 {
        self.stream.promised() - self.stream.sent()
    }

    /// Whether the response to the first request that waits can begin.
    fn has_turn(&self) -> bool {
        self.exchanges.front().is_some_and(Exchange::is_ready)
    }

    /// Whether the connection has begun as many requests in this turn of the worker as it may.
    fn had_its_turn(&self, turn: u64) -> bool {
        self.begun == (turn, TURN_REQUESTS_MAX)
    }

    /// A request begins in this turn of the worker.
    const fn begins(&mut self, turn: u64) {
        let (last, count) = self.begun;
        self.begun = (turn, if last == turn { count + 1 } else { 1 });
    }

    /// Whether as many bytes have been made in this turn of the worker as may be.
    const fn made_its_turn(&self, turn: u64) -> bool {
        let (last, bytes) = self.produced;
        last == turn && bytes >= PRODUCED_TURN_BYTES_MAX
    }

    /// Whether the last request that was read has a body that its response waits for.
    fn awaits_body(&self) -> bool {
        let receives_body = self.receives_body();
        matches!(
            self.exchanges.back(),
            Some(Exchange::Asked { asked, .. }) if asked.awaits_body || receives_body
        )
    }

    /// Whether a consumer takes the body of the last request that was read.
    fn receives_body(&self) -> bool {
        self.incoming.as_ref().is_some_and(|incoming| incoming.form == Form::Body)
    }

    /// Whether it is the peer's turn to send bytes for a consumer, which has to be soon.
    fn expects_bytes(&self) -> bool {
        let Some(incoming) = &self.incoming else { return false };
        matches!(incoming.form, Form::Body | Form::HalfClosed)
            && incoming.has_room()
            // A client may wait for an invitation until the responses before have been made.
            && (self.exchanges.is_empty() || (self.exchanges.len() == 1 && self.producing.is_none()))
    }

    /// The body of the last request that was read has been skipped.
    fn body_skipped(&mut self) {
        self.dropped = 0;
        if let Some(Exchange::Asked { asked, .. }) = self.exchanges.back_mut() {
            asked.awaits_body = false;
        }
    }

    /// Invites the body, if its response waits for it and the client for the invitation.
    fn invite_body(&mut self) {
        let receives_body = self.receives_body() && self.exchanges.len() == 1;
        if let Some(Exchange::Asked { asked, .. }) = self.exchanges.front_mut()
            && (asked.awaits_body || receives_body)
            && core::mem::take(&mut asked.expect_continue)
        {
            self.stream.push(Piece::Static(CONTINUE));
        }
    }

    /// Puts a response into the stream; returns whether it ends the connection.
    #[inline]
    fn begin_response(
        &mut self,
        cx: &mut Context,
        head: Option<&Head<'_>>,
        response: &mut Response<'_>,
        mut last: bool,
    ) -> bool {
        cx.stats.responses += 1;
        let is_head = head.is_some_and(|head| head.method == Method::Head);
        let is_http10 = head.is_some_and(|head| head.version == Version::Http10);
        if let Some(finished) = response.finished()
            && !last
            && !is_http10
            && self.incoming.is_none()
        {
            let record = Record::new(cx, head, Status::Ok);
            let body_at = self.stream.promised() + finished.head_len as u64;
            let stream = &mut self.stream;
            finished.send(cx.unix, &cx.date, !is_head, |piece| stream.push(piece));
            if is_head || finished.has_body() {
                self.end_response(record, body_at);
            } else {
                // Its length is in the head.
                let (parts, framing) = (response.take_body().into_iter(), BodyFraming::Close);
                self.push_parts(Sending { parts, framing, record, body_at });
            }
            return false;
        }
        let made = response.made();
        let (fields, body) = (&mut made.head, core::mem::take(&mut made.body));
        let record = Record::new(cx, head, fields.status);
        let is_tunnel = self.switch(fields.status);
        let framing = match fields.content_length {
            _ if is_tunnel => BodyFraming::Close,
            Some(length) => BodyFraming::Length(length),
            None if body.is_empty() => BodyFraming::Length(0),
            None if is_http10 => BodyFraming::Close,
            None => BodyFraming::Chunked,
        };
        last |= framing == BodyFraming::Close;
        // Not later than the date of the message (RFC 9110 §8.8.2.1).
        fields.last_modified = fields.last_modified.map(|time| time.min(cx.unix));
        let wire = Wire {
            connection: match (last, is_http10) {
                _ if is_tunnel => ConnectionOption::Upgrade,
                (true, _) => ConnectionOption::Close,
                (false, true) => ConnectionOption::KeepAlive,
                (false, false) => ConnectionOption::Unsaid,
            },
            chunked: framing == BodyFraming::Chunked,
        };
        let mut bytes = Vec::new();
        write::response_head(fields, &cx.date, wire, &mut bytes);
        self.stream.push(Piece::Bytes(bytes));
        let body_at = self.stream.promised();
        if is_head {
            self.end_response(record, body_at);
        } else {
            self.push_parts(Sending { parts: body.into_iter(), framing, record, body_at });
        }
        last
    }

    /// Decides with the status of a response whether the tunnel begins that its request may have asked
    /// for.
    fn switch(&mut self, status: Status) -> bool {
        let Some(incoming) = &mut self.incoming else { return false };
        if incoming.form != Form::Offered || !self.exchanges.is_empty() {
            return false;
        }
        if status == Status::SwitchingProtocols {
            incoming.form = Form::Tunnel;
            return true;
        }
        self.incoming = None;
        false
    }

    /// Puts parts of a body into the stream, up to the first that has to be made.
    #[inline]
    fn push_parts(&mut self, mut body: Sending) {
        while let Some(part) = body.parts.next() {
            match part {
                Part::Piece(piece) => {
                    let length = piece.len();
                    body.framing.begin(length, &mut self.stream);
                    self.stream.push(piece);
                    body.framing.end(&mut self.stream);
                }
                Part::File(file, range) => {
                    body.framing.begin(range.end - range.start, &mut self.stream);
                    self.stream.push_file(&file, range);
                    body.framing.end(&mut self.stream);
                }
                Part::Producer(producer) => {
                    self.producing = Some(Producing { producer, body });
                    return;
                }
            }
        }
        if body.framing == BodyFraming::Chunked {
            self.stream.push(Piece::Static(write::LAST_CHUNK));
        }
        self.end_response(body.record, body.body_at);
    }

    /// Has the producer make more of its bytes.
    fn produce(&mut self, turn: u64) -> Produced {
        let Some(Producing { mut producer, mut body }) = self.producing.take() else {
            return Produced::Ended;
        };
        let before = self.stream.promised();
        let mut sink = Sink { stream: &mut self.stream, framing: &mut body.framing };
        let mut produced = producer.poll(PRODUCED_BYTES_MAX, &mut sink);
        let (last, bytes) = self.produced;
        let made = self.stream.promised() - before;
        self.produced = (turn, if last == turn { bytes + made } else { made });
        if body.framing.is_broken(produced) {
            produced = Produced::Failed;
        }
        match produced {
            Produced::More | Produced::Waiting => {
                self.producing = Some(Producing { producer, body });
            }
            Produced::Ended => self.push_parts(body),
            Produced::Failed => {
                self.stream.abort(Failure::Unfinished);
                self.producing = Some(Producing { producer, body });
            }
        }
        produced
    }

    /// A response ends where the stream ends now.
    #[inline]
    fn end_response(&mut self, mut record: Option<Box<Record>>, body_at: u64) {
        let at = self.stream.promised();
        if self.receives_body() && self.exchanges.is_empty() {
            self.incoming = None;
        }
        if let Some(record) = &mut record {
            record.body_at = body_at;
            record.body_bytes = at - body_at;
        }
        self.ends.push_back(End { at, record });
    }
}

impl BodyFraming {
    /// A piece of `length` bytes follows.
    #[inline]
    fn begin(&mut self, length: u64, stream: &mut Stream) {
        match self {
            Self::Length(left) => *left = left.wrapping_sub(length),
            Self::Chunked => {
                let mut head = Vec::with_capacity(18);
                write::chunk_head(length, &mut head);
                stream.push(Piece::Bytes(head));
            }
            Self::Close => {}
        }
    }

    /// Bytes that the body may still have.
    const fn room(self) -> u64 {
        match self {
            Self::Length(left) if left > 1 << 63 => 0,
            Self::Length(left) => left,
            Self::Chunked | Self::Close => u64::MAX,
        }
    }

    /// The piece is in the stream.
    #[inline]
    fn end(self, stream: &mut Stream) {
        if self == Self::Chunked {
            stream.push(Piece::Static(write::CHUNK_END));
        }
    }

    /// Whether a producer has not kept to the length that was promised.
    const fn is_broken(self, produced: Produced) -> bool {
        match self {
            Self::Length(left) => {
                left > 1 << 63 || (left > 0 && matches!(produced, Produced::Ended))
            }
            Self::Chunked | Self::Close => false,
        }
    }
}

/// The stream, as a producer sees it.
struct Sink<'a> {
    stream: &'a mut Stream,
    framing: &'a mut BodyFraming,
}

impl BodySink for Sink<'_> {
    fn push(&mut self, mut bytes: Vec<u8>) {
        if bytes.is_empty() {
            return;
        }
        let length = bytes.len() as u64;
        // The client would take more for the next response.
        bytes.truncate(usize::try_from(self.framing.room()).unwrap_or(usize::MAX));
        self.framing.begin(length, self.stream);
        if !bytes.is_empty() {
            self.stream.push(Piece::Bytes(bytes));
        }
        self.framing.end(self.stream);
    }
}

impl Incoming {
    /// Whether the consumer can be given bytes.
    fn has_room(&self) -> bool {
        let least = if self.form == Form::Body { CONSUMER_ROOM_MIN } else { 1 };
        self.form != Form::Offered && self.consumer.room() >= least
    }
}

impl Exchange {
    /// Whether its response can begin.
    const fn is_ready(&self) -> bool {
        match self {
            Self::Asked { asked, lookup, .. } => {
                !matches!(lookup, Lookup::Pending) && !asked.awaits_body
            }
            Self::Refused(_) => true,
        }
    }

    fn weight(&self) -> Weight {
        let mut weight = Weight { own: size_of::<Self>() as u64, shared: 0 };
        if let Self::Asked { head, lookup, .. } = self {
            weight.own += head.memory() as u64;
            if let Lookup::Found(size) = lookup {
                weight.shared += size.shared;
            }
        }
        weight
    }
}

impl End {
    fn weight(&self) -> Weight {
        let record = self.record.as_ref().map_or(0, |record| record.memory());
        Weight { own: (size_of::<Self>() + record) as u64, shared: 0 }
    }
}

// One for each connection, idle ones too.
const _: () = assert!(size_of::<Http1>() <= 88);

#[cfg(test)]
mod tests;
