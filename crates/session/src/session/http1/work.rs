//! The requests and responses of one connection, in order.

use core::time::Duration;

use http::{Method, bytes};
use http1::{server, write};
use outq::OutQ;
use ring::{Ring, Time};
use sendfile::{Disk, Owner, Piece, Progress, ReadDone, Stream, Takes, Transport, Weight};

use super::Http1;
use super::body::{Form, Incoming, Producing};
use super::exchange::{Exchange, Exchanges, Lookup, RequestFacts};
use crate::budget::Budget;
use crate::client::ClientAddress;
use crate::context::Context;
use crate::forwarded::Scheme;
use crate::handler::{BODY_BYTES_END, Keep};
use crate::record::Record;
use crate::session::ends::Ends;
use crate::session::refusal::ConnectionFacts;
use crate::session::{Outgoing, Pump};

/// The maximum requests of one connection that are answered side by side. At this limit no more requests are read until
/// responses have left.
pub(super) const REQUESTS_MAX: usize = 64;
/// The maximum requests of one connection that begin in one worker turn; later requests wait for the next turn. Each
/// further part of a response's body counts as a request, because a part takes about as much time as a request.
pub(super) const TURN_REQUESTS_MAX: u32 = 64;
/// If this many bytes of one connection are sent in one worker turn, the connection begins no other request in this
/// turn.
pub(super) const TURN_BYTES_MAX: u64 = 1024 * 1024;
/// The limit of promised bytes that have not been sent. At this limit no further response begins. Sums of positions and
/// sizes (`SIZE_MAX` in `content`, `BODY_BYTES_END` of gateways' responses) stay far below 2⁶⁴.
pub(super) const PROMISED_BYTES_MAX: u64 = BODY_BYTES_END;
/// If a producer has made this many bytes in one worker turn, the producer waits for the next turn.
pub(super) const PRODUCED_TURN_BYTES_MAX: u64 = 256 * 1024;

/// The work of one connection: its requests and responses.
#[derive(Debug, Default)]
pub struct Work {
    /// The reader of requests; the reader holds no state between two requests.
    pub(super) reader: server::Connection,
    /// The number of the listener that accepted the connection.
    pub(super) listener: u32,
    /// The scheme of requests, according to the connection.
    pub(super) scheme: Scheme,
    /// The address of the client.
    pub(super) client: ClientAddress,
    pub(super) stream: Stream,
    /// Requests whose responses have not begun, in order.
    pub(super) exchanges: Exchanges,
    /// The request that is to be answered or deferred next.
    pub(super) facts: RequestFacts,
    /// The producer at the end of the stream, if this producer has not ended.
    pub(super) producing: Option<Producing>,
    /// The consumer of bytes that the peer sends; the consumer belongs to the last request that was read.
    pub(super) incoming: Option<Incoming>,
    /// True if the bytes of the last body that was read are counted, because the head does not announce the length of
    /// the body.
    pub(super) counts_body: bool,
    /// The bytes of the current body that were dropped because no consumer takes the body.
    pub(super) dropped: u64,
    /// The positions in the stream at which responses end.
    pub(super) ends: Ends,
    /// True if only the end of the connection marks the end of the last response (RFC 9112 §6.3, item 8).
    pub(super) ends_with_connection: bool,
    /// The requests that were begun last.
    pub(super) begun: Begun,
    /// For a peer that has half-closed: the bytes of the stream that had been sent when the peer was last judged.
    judged_at: u64,
    /// The bytes that the peer had acknowledged when the wait for the peer began, or when the peer was last judged.
    pub(super) acknowledged: i64,
    /// The beginning of the peer's time to receive bytes, kept while the connection waits for the server.
    pub(super) peer_since: Option<Time>,
    /// The worker turn in which a producer last made bytes, and the number of these bytes.
    pub(super) produced: (u64, u64),
    /// The time since which the response that is being sent waits for a disk. The time is kept only if the response is
    /// recorded.
    pub(super) waits_since: Option<Time>,
    /// True if the connection begins with the preface of HTTP/2, and the listener speaks HTTP/2.
    pub(super) has_preface: bool,
}

/// The requests that were begun in one worker turn.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Begun {
    turn: u64,
    /// The number of requests and of further parts of bodies; at most [`TURN_REQUESTS_MAX`].
    count: u32,
    /// The bytes of the stream that had been sent before the worker turn `turn`.
    sent: u64,
}

impl Outgoing for Work {
    #[inline]
    fn set_takes(&mut self, takes: Takes) {
        self.stream.set_takes(takes);
    }

    #[inline]
    fn set_origin(&mut self, listener: u32, scheme: Scheme, client: ClientAddress) {
        (self.listener, self.scheme, self.client) = (listener, scheme, client);
    }

    fn handle_read(&mut self, done: ReadDone) {
        self.stream.handle_read(done);
    }

    fn reclaim(&mut self, now: Time) -> bool {
        self.stream.reclaim(now)
    }

    fn queue(&mut self) -> &mut OutQ<Piece> {
        self.stream.queue()
    }

    fn weight(&self) -> Weight {
        let mut weight = self.stream.weight();
        weight += self.exchanges.weight();
        weight += self.ends.weight();
        if let Some(incoming) = &self.incoming {
            weight.own += incoming.consumer.weight();
        }
        if let Some(producing) = &self.producing {
            weight.shared += producing.producer.weight();
        }
        weight
    }

    fn is_idle(&self) -> bool {
        self.has_answered_all()
            && self.dropped == 0
            && (self.reader.is_idle() || self.reader.is_closed())
    }

    fn active_requests(&self) -> usize {
        self.exchanges.len() + self.ends.len() + usize::from(self.producing.is_some())
    }

    fn restart(&mut self) {
        debug_assert!(self.is_idle() && self.ends.is_empty() && self.waits_since.is_none());
        self.stream.restart();
        (self.begun, self.produced) = (Begun::default(), (0, 0));
        (self.facts, self.dropped, self.judged_at) = (RequestFacts::default(), 0, 0);
        self.reader = server::Connection::new();
        (self.acknowledged, self.peer_since) = (0, None);
    }
}

impl Pump<Http1> for Work {
    #[inline]
    fn pump(
        &mut self,
        _session: &mut Http1,
        ring: &mut Ring,
        disk: &mut Disk,
        transport: &mut impl Transport,
        connection: u64,
        spent: u64,
    ) -> Progress {
        if let Some(since) = self.waits_since.take() {
            self.note_wait(ring.woke_at().since(since));
        }
        // If the producer already has bytes, these bytes are sent together with the head. If bytes in front of the
        // producer still have to be read, the producer must not fail yet, because a failure would cut off the bytes in
        // front, too.
        if self.producing.as_mut().is_some_and(|producing| core::mem::take(&mut producing.is_new))
            && self.stream.queue().unsent_ready() == self.unsent()
        {
            self.produce(self.produced.0);
        }
        let progress = self.stream.pump_rest(ring, disk, transport, Owner::of(connection), spent);
        if progress == Progress::Waiting && !transport.is_blocked() && self.record().is_some() {
            self.waits_since = Some(ring.woke_at());
        }
        progress
    }
}

impl Work {
    /// Returns true if the connection begins with the preface of HTTP/2. In this case the work is as new afterwards.
    #[inline]
    pub(in crate::session) fn take_preface(&mut self) -> bool {
        if self.has_preface {
            self.has_preface = false;
            self.reader = server::Connection::new();
            return true;
        }
        false
    }

    /// The place where the connection comes from.
    pub(in crate::session) const fn place(&self) -> ConnectionFacts {
        ConnectionFacts { listener: self.listener, scheme: self.scheme, client: self.client }
    }

    /// Returns true if no request is being answered, no file is being read, and no consumer takes bytes. The rest of a
    /// request's body may still be coming, but no response waits for it.
    pub(super) fn has_answered_all(&self) -> bool {
        self.stream.is_drained()
            && self.exchanges.is_empty()
            && self.producing.is_none()
            && self.incoming.is_none()
            && !self.stream.is_reading()
    }

    /// Counts bytes of the body of the last request that was read, unless the head has announced the length. Bytes are
    /// counted if they come before the response or with it. When the response has left, bytes of the body are no longer
    /// counted.
    pub(super) fn count_body(&mut self, bytes: usize) {
        if !self.counts_body {
            return;
        }
        let bytes = bytes as u64;
        if let Some(exchange) = self.exchanges.back_facts() {
            exchange.times.body_bytes += bytes;
        } else if self.exchanges.is_empty() {
            let record = match &mut self.producing {
                Some(producing) => Some(&mut producing.body.record),
                None => self.ends.last_record(),
            };
            if let Some(record) = record.and_then(Option::as_deref_mut) {
                record.add_body(bytes);
            }
        }
    }

    /// Panics unless requests and responses are in order and within their bounds.
    pub(super) fn check(&self, is_open: bool) {
        let Self { exchanges, ends, .. } = self;
        let count = exchanges.len() + ends.len() + usize::from(self.producing.is_some());
        assert!(count <= REQUESTS_MAX + 1, "requests are bounded: {self:?}");
        assert!(self.begun.count <= TURN_REQUESTS_MAX, "so are those of one turn");
        exchanges.check();
        ends.check(self.stream.sent(), self.stream.promised());
        let mut before = None;
        for (place, exchange) in exchanges.iter().enumerate() {
            let (is_front, is_back) = (place == 0, place + 1 == exchanges.len());
            match exchange {
                Exchange::Asked { request, facts, lookup, .. } => {
                    let is_next =
                        before.is_none_or(|before: u32| before.wrapping_add(1) == *request);
                    assert!(is_next, "requests wait in order: {self:?}");
                    before = Some(*request);
                    assert!(
                        is_back || !facts.skips_body_first,
                        "only the last body is outstanding"
                    );
                    assert!(is_open || !facts.skips_body_first, "its end cannot come");
                    assert!(is_back && !is_open || !facts.last, "{self:?} goes on behind the last");
                    let keeps_files = matches!(lookup, Lookup::Found(size) if size.holds_files && size.keep != Keep::Always);
                    assert!(is_front || !keeps_files, "only the next response keeps files open");
                }
                Exchange::Refused(..) => assert!(is_back && !is_open, "nothing follows a refusal"),
            }
        }
    }

    /// The record of the response that is being sent.
    fn record(&mut self) -> Option<&mut Record> {
        let record = match (self.ends.first_record(), &mut self.producing) {
            (Some(record), _) => record,
            (None, Some(producing)) => &mut producing.body.record,
            (None, None) => return None,
        };
        record.as_deref_mut()
    }

    /// Notes that the response that is being sent has waited for a disk.
    #[cold]
    pub(super) fn note_wait(&mut self, wait: Duration) {
        if let Some(record) = self.record() {
            record.disk_wait += wait;
        }
    }

    /// Returns true if the response to the request that was just read may begin now.
    pub(super) fn is_next(&self) -> bool {
        !self.facts.skips_body_first && self.has_begun_responses()
    }

    /// Returns true if all responses have begun and no response is being made. Then the next request is the next to be
    /// answered.
    pub(super) fn has_begun_responses(&self) -> bool {
        self.exchanges.is_empty() && self.producing.is_none()
    }

    /// Returns true if no further request may be read now.
    pub(super) fn is_full(&self, budget: &Budget) -> bool {
        // To skip a body takes no memory, and no other request begins before the end of the body.
        if self.is_idle() || self.body_is_outstanding() {
            return false;
        }
        self.exchanges.len() + self.ends.len() >= REQUESTS_MAX
            || self.unsent() >= PROMISED_BYTES_MAX
            || !budget.allows(self.weight())
    }

    /// Returns true if the next request may be read now. The server answers requests side by side only if all of them
    /// are safe (RFC 9112 §9.3.2). An unsafe request is read when no other request waits for its response. The next
    /// request is read when the response to the unsafe request has begun.
    #[inline]
    pub(super) fn may_read(&self, input: &[u8]) -> bool {
        match self.exchanges.back() {
            // If the reader is not idle, the bytes are the rest of the body of this request.
            Some(Exchange::Asked { head, .. }) if self.reader.is_idle() => {
                is_safe(head.as_head().method) && !begins_unsafe(input)
            }
            _ => true,
        }
    }

    /// Drops the requests after the request that is being answered. The consumer, if any, belongs to the last of the
    /// dropped requests.
    pub(super) fn drop_behind(&mut self) {
        if !self.exchanges.is_empty() {
            self.exchanges.clear();
            self.incoming = None;
        }
    }

    /// Returns true if another response may be put into the stream.
    pub(super) fn may_respond(&self, budget: &Budget) -> bool {
        self.unsent() < PROMISED_BYTES_MAX && budget.allows(self.stream.weight())
    }

    /// Promised bytes that have not been sent.
    pub(super) const fn unsent(&self) -> u64 {
        self.stream.promised() - self.stream.sent()
    }

    /// Returns true if the answer to the first request that waits was found, or if this request was refused. Then the
    /// response can begin, if there is room for it.
    pub(super) fn is_first_ready(&self) -> bool {
        self.exchanges.front().is_some_and(Exchange::is_ready)
    }

    /// Returns true if the connection had its quantum in this worker turn, so that it begins no further request in this
    /// turn.
    pub(super) const fn had_its_quantum(&self, turn: u64) -> bool {
        self.begun.turn == turn && self.has_begun_all()
    }

    /// Returns true if the connection used its quantum up in the last turn in which it began requests.
    pub(super) const fn has_begun_all(&self) -> bool {
        let sent = self.stream.sent() - self.begun.sent;
        self.begun.count == TURN_REQUESTS_MAX || sent >= TURN_BYTES_MAX
    }

    /// Counts a request that begins in this worker turn.
    pub(super) const fn begins(&mut self, turn: u64) {
        self.enter(turn);
        self.begun.count += 1;
    }

    /// Counts a body that begins in this worker turn and has `further` parts after its first part.
    pub(super) fn begins_parts(&mut self, turn: u64, further: usize) {
        self.enter(turn);
        let count = u32::try_from(further).unwrap_or(u32::MAX);
        self.begun.count = self.begun.count.saturating_add(count).min(TURN_REQUESTS_MAX);
    }

    const fn enter(&mut self, turn: u64) {
        if self.begun.turn != turn {
            self.begun = Begun { turn, count: 0, sent: self.stream.sent() };
        }
    }

    /// Returns true if the producer has made as many bytes in this worker turn as it may.
    pub(super) const fn made_its_turn(&self, turn: u64) -> bool {
        let (last, bytes) = self.produced;
        last == turn && bytes >= PRODUCED_TURN_BYTES_MAX
    }

    /// Returns true if the response to the last request that was read waits for the end of the request's body.
    pub(super) fn body_is_outstanding(&self) -> bool {
        let receives_body = self.receives_body();
        matches!(
            self.exchanges.back(),
            Some(Exchange::Asked { facts, .. }) if facts.skips_body_first || receives_body
        )
    }

    /// Returns true if a consumer takes the body of the last request that was read.
    pub(super) fn receives_body(&self) -> bool {
        self.incoming.as_ref().is_some_and(|incoming| incoming.form == Form::Body)
    }

    /// Returns true if the peer has to send bytes for a consumer soon.
    pub(super) fn expects_bytes(&self) -> bool {
        let Some(incoming) = &self.incoming else { return false };
        matches!(incoming.form, Form::Body | Form::HalfClosed)
            && incoming.has_room()
            // A client may wait for `100 Continue`, which is sent only after the earlier responses have been made.
            && (self.exchanges.is_empty() || (self.exchanges.len() == 1 && self.producing.is_none()))
    }

    /// Returns true if bytes were sent since the last call.
    pub(super) fn has_sent_more(&mut self) -> bool {
        let sent = self.stream.sent();
        core::mem::replace(&mut self.judged_at, sent) < sent
    }

    /// Returns true if enough bytes of a body have come for a consumer since `since`. The count of these bytes begins
    /// again at 0.
    pub(super) fn is_received_fast_enough(&mut self, cx: &Context, since: Time) -> bool {
        let Some(incoming) = self.incoming.as_mut().filter(|incoming| incoming.form == Form::Body)
        else {
            return false;
        };
        core::mem::take(&mut incoming.received) >= cx.least_bytes_since(since)
    }

    /// Records that the body of the last request that was read has been skipped.
    pub(super) fn body_skipped(&mut self) {
        self.dropped = 0;
        if let Some(facts) = self.exchanges.back_facts() {
            facts.skips_body_first = false;
        }
    }

    /// Invites the body that a consumer takes, if the client waits for an invitation and the answer was not found
    /// without the body.
    pub(super) fn invite_body(&mut self) {
        if self.receives_body()
            && self.exchanges.len() == 1
            && !self.is_first_ready()
            && let Some(facts) = self.exchanges.front_facts()
            && core::mem::take(&mut facts.expect_continue)
        {
            self.stream.push(Piece::Static(write::CONTINUE));
        }
    }

    /// Invites the body of the request whose response begins, if a consumer takes the body. The rest of the response
    /// may need the body.
    #[cold]
    pub(super) fn invite(&mut self) {
        if self.receives_body() {
            self.facts.expect_continue = false;
            self.stream.push(Piece::Static(write::CONTINUE));
        }
    }
}

/// Returns true for methods that change nothing (RFC 9110 §9.2.1).
const fn is_safe(method: Method<'_>) -> bool {
    matches!(method, Method::Get | Method::Head | Method::Options | Method::Trace)
}

/// Returns true if the bytes that have come begin a request whose method may not be safe. Returns false for bytes that
/// are no request, because such bytes are refused at once.
fn begins_unsafe(input: &[u8]) -> bool {
    // Empty lines in front of a request are skipped (RFC 9112 §2.2).
    let input = input.trim_ascii_start();
    let is_begun = |begin: &&[u8]| input.starts_with(begin) || begin.starts_with(input);
    input.first().is_some_and(|byte| bytes::is(*byte, bytes::TOKEN))
        && ![&b"GET "[..], b"HEAD ", b"OPTIONS ", b"TRACE "].iter().any(is_begun)
}
