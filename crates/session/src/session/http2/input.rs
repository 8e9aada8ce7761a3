//! The bytes of the client: requests and their bodies.

use core::time::Duration;

use http::{FieldSection, Fields, Framing, Reject, Status};
use http2::server::Event;
use http2::{ErrorCode, Fault};
use ring::Time;

use super::lane::{Form, Incoming, Lookup, Stage};
use super::work::{DROPPED_BYTES_MAX, HELD_BYTES_MAX, Work};
use super::{Http2, clock, limits};
use crate::context::Context;
use crate::handler::Consumer;
use crate::record::{Cut, Sketch};
use crate::session::Requests;
use crate::session::escaped::Escaped;
use crate::session::refusal;
use crate::session::times::Times;
use crate::standing::Standing;

impl Http2 {
    /// Handles the frames of the client; returns the number of bytes that were handled.
    pub(super) fn take_bytes(
        &mut self,
        work: &mut Work,
        requests: &mut impl Requests,
        bytes: &[u8],
    ) -> usize {
        if self.is_lingering() {
            return bytes.len();
        }
        let mut text = core::mem::take(&mut requests.cx().head_text);
        let mut at = 0;
        loop {
            let cx = requests.cx();
            if work.is_full() || work.had_its_quantum(cx.turn) {
                break;
            }
            let (now, limits) = (clock(cx.now), limits(cx, self.takes_tunnels));
            let (taken, event) =
                self.connection.handle_input(&bytes[at..], &mut text, now, &limits);
            at += taken;
            match event {
                Event::Partial => break,
                Event::Closed => {
                    at = bytes.len();
                    break;
                }
                event => self.handle_event(work, requests, event),
            }
        }
        requests.cx().head_text = text;
        at
    }

    fn handle_event(&mut self, work: &mut Work, requests: &mut impl Requests, event: Event<'_>) {
        match event {
            Event::Partial | Event::Closed => {}
            Event::Request(mut request) => {
                if !self.begin_request(work, requests.cx(), request.stream, request.wish) {
                    return;
                }
                let escaped;
                if request.has_raw_target {
                    escaped = Escaped::of(&request.head);
                    request.head = escaped.head(&request.head);
                    self.handle_request(work, requests, &request);
                } else {
                    self.handle_request(work, requests, &request);
                }
            }
            Event::Rejected { stream, reject, method, path } => {
                let cx = requests.cx();
                if self.begin_request(work, cx, stream, http2::priority::Wish::NONE) {
                    let sketch = match cx.logs {
                        true => Sketch::new(method, path, b"HTTP/2.0"),
                        false => Sketch::default(),
                    };
                    refusal::make_unread(cx, work.place, reject, sketch, |cx, response| {
                        let is_head = method == b"HEAD";
                        self.begin_response(work, cx, stream, None, is_head, response);
                    });
                }
            }
            Event::Body { stream, bytes } => {
                self.handle_body(work, requests.cx(), stream, bytes);
            }
            Event::End { stream, trailers } => {
                self.handle_end_of_body(work, requests.cx().now, stream, trailers);
            }
            Event::Reset { stream, code: _, fault } => {
                let cx = requests.cx();
                cx.stats.http2_resets.add(u64::from(fault.is_none()));
                cx.stats.http2_malformed.add(u64::from(fault.is_some()));
                self.drop_lane(work, cx.now, stream, Cut::Client);
            }
            Event::Malformed { .. } => requests.cx().stats.http2_malformed.add(1),
            Event::Refused { .. } => requests.cx().stats.http2_refused.add(1),
            Event::Room { stream: 0 } => work.note_room(),
            Event::Room { stream } => work.scheduler.set_ready(stream, true),
            Event::Priority { stream, wish } => {
                if let Some(lane) = work.lane(stream) {
                    lane.wish = wish;
                    let priority = wish.or(lane.default);
                    work.scheduler.set_priority(stream, priority);
                }
            }
            // The streams that are open go on.
            Event::GoAway { .. } => {}
            Event::Failed(fault) => self.handle_fault(work, requests.cx(), fault),
        }
    }

    /// Counts a request that was read, unless its stream is refused.
    fn begin_request(
        &mut self,
        work: &mut Work,
        cx: &mut Context,
        stream: u32,
        wish: http2::priority::Wish,
    ) -> bool {
        work.begins(cx.turn);
        let is_short =
            work.counted.held >= HELD_BYTES_MAX || (cx.budget.is_spent() && !work.lanes.is_empty());
        if is_short {
            cx.stats.http2_refused.add(1);
            self.connection.reset(stream, ErrorCode::RefusedStream);
            return false;
        }
        self.asked_at = cx.now;
        work.current = (stream, Times::new(cx.now), wish);
        true
    }

    /// If the request has a body, gives it to a consumer. Then passes the request on.
    fn handle_request(
        &mut self,
        work: &mut Work,
        requests: &mut impl Requests,
        request: &http2::Request<'_>,
    ) {
        if let Some(protocol) = request.protocol {
            return self.handle_connect(work, requests, request, protocol);
        }
        let (id, head) = (request.stream, &request.head);
        let mut standing = Standing::New;
        if !request.has_ended && head.framing.has_content() {
            let reception = requests.consumer(id, head);
            standing = reception.standing;
            let Some(consumer) = reception.consumer else {
                return self.skip_body(work, requests, request, standing);
            };
            let is_too_long =
                matches!(head.framing, Framing::Length(length) if length > consumer.bytes_max());
            if is_too_long {
                let cx = requests.cx();
                cx.stats.long_bodies.add(1);
                return refusal::make(cx, work.place, TOO_LONG, Some(head), |cx, response| {
                    let is_head = head.method == http::Method::Head;
                    self.begin_response(work, cx, id, Some(head), is_head, response);
                });
            }
            self.accept_body(work, requests.cx(), request, consumer);
        }
        let is_next = work.has_gateway_room();
        requests.handle_request(self, work, id, head, is_next, standing);
    }

    /// No consumer takes the body of this request. Asks the handler when the body has come; or immediately, if the
    /// client waits for `100 Continue`.
    fn skip_body(
        &mut self,
        work: &mut Work,
        requests: &mut impl Requests,
        request: &http2::Request<'_>,
        standing: Standing,
    ) {
        let (id, head) = (request.stream, &request.head);
        if request.expect_continue {
            let is_next = work.has_gateway_room();
            return requests.handle_request(self, work, id, head, is_next, standing);
        }
        let (head, lookup) = (head.to_owned(), Lookup::Body(0));
        let lane = work.lane_of_current(id);
        lane.stage = Stage::Asked { head, lookup };
        lane.standing = standing;
        let until = requests.cx().now + SKIP;
        work.skips_until.get_or_insert(until);
        work.recount(id);
    }

    fn accept_body(
        &mut self,
        work: &mut Work,
        cx: &Context,
        request: &http2::Request<'_>,
        consumer: Box<dyn Consumer>,
    ) {
        let id = request.stream;
        let is_announced = request.head.framing != Framing::Unknown;
        let form = if is_announced { Form::Announced } else { Form::Counted };
        let incoming = Incoming::new(consumer, form);
        let room = incoming.room();
        let lane = work.lane_of_current(id);
        lane.expect_continue = request.expect_continue;
        lane.incoming = Some(incoming);
        work.recount(id);
        self.connection.handle_taken(id, 0, room, clock(cx.now));
    }

    /// Sends `100 Continue` if the client waits for it and a consumer still wants the body.
    pub(super) fn invite(&mut self, work: &mut Work, id: u32) {
        let Some(lane) = work.lane(id) else { return };
        if core::mem::take(&mut lane.expect_continue) && lane.incoming.is_some() {
            self.write_control(work);
            let out = &mut work.out;
            self.connection.respond_interim(id, Status::Continue, &FieldSection::EMPTY, out);
        }
    }

    fn handle_body(&mut self, work: &mut Work, cx: &mut Context, stream: u32, bytes: &[u8]) {
        let now = clock(cx.now);
        let count = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let incoming = work.lane(stream).and_then(|lane| lane.incoming.as_mut());
        let Some(incoming) = incoming else {
            // Nothing uses it, and the client gets no further window for it.
            self.connection.handle_taken(stream, count, 0, now);
            return drop_body(work, stream, count);
        };
        incoming.received += bytes.len() as u64;
        if incoming.is_too_long() {
            self.connection.handle_taken(stream, count, 0, now);
            return self.handle_long_body(work, cx, stream);
        }
        let taken = incoming.push(bytes);
        let (room, is_counted) = (incoming.room(), incoming.form == Form::Counted);
        let taken = u32::try_from(taken).unwrap_or(u32::MAX);
        self.connection.handle_taken(stream, taken, room, now);
        if let Some(lane) = work.lane(stream) {
            // A client that sends without an invitation needs none.
            lane.expect_continue = false;
            lane.moved += u64::from(count);
            if is_counted {
                lane.times.body_bytes += u64::from(count);
                if let Stage::Sending(sending) = &mut lane.stage
                    && let Some(record) = &mut sending.record
                {
                    record.add_body(count.into());
                }
            }
        }
        work.moved += u64::from(count);
        work.recount(stream);
    }

    fn handle_end_of_body(
        &mut self,
        work: &mut Work,
        now: Time,
        stream: u32,
        trailers: Fields<'_>,
    ) {
        let incoming = work.lane(stream).and_then(|lane| lane.incoming.as_mut());
        let Some(incoming) = incoming else {
            work.stop_waiting_for_body(stream);
            return;
        };
        let mut section = FieldSection::EMPTY;
        trailers.for_each(|(name, value)| section.push_checked(name, value));
        incoming.end = Some(section);
        self.feed(work, now, stream);
    }

    /// Gives the consumer of a stream the bytes that wait for it, and the end after them.
    pub(super) fn feed(&mut self, work: &mut Work, now: Time, stream: u32) {
        let Some(lane) = work.lane(stream) else { return };
        let Some(incoming) = &mut lane.incoming else { return };
        let count = u32::try_from(incoming.feed()).unwrap_or(u32::MAX);
        let room = incoming.room();
        if let Some(trailers) = incoming.take_end() {
            // A tunnel has none.
            for (name, value) in trailers.fields().filter(|_| incoming.form != Form::Tunnel) {
                incoming.consumer.trailer(name, value);
            }
            incoming.consumer.end();
            lane.incoming = None;
        }
        self.connection.handle_taken(stream, count, room, clock(now));
        work.recount(stream);
    }

    /// Handles a body that is longer than its consumer takes.
    #[cold]
    fn handle_long_body(&mut self, work: &mut Work, cx: &mut Context, stream: u32) {
        cx.stats.long_bodies.add(1);
        let Some(lane) = work.lane(stream) else { return };
        let Some(mut incoming) = lane.incoming.take() else { return };
        let is_handed_back = incoming.consumer.handle_excess();
        let waiting = u32::try_from(incoming.waiting.len()).unwrap_or(u32::MAX);
        drop(incoming);
        self.connection.handle_taken(stream, waiting, 0, clock(cx.now));
        let is_pending = matches!(lane.stage, Stage::Asked { lookup: Lookup::Pending(_), .. });
        if is_handed_back && (is_pending || matches!(lane.stage, Stage::Sending(_))) {
            return work.recount(stream);
        }
        match core::mem::replace(&mut lane.stage, Stage::Turning) {
            Stage::Asked { head, .. } => {
                let head = &head.as_head();
                refusal::make(cx, work.place, TOO_LONG, Some(head), |cx, response| {
                    let is_head = head.method == http::Method::Head;
                    self.begin_response(work, cx, stream, Some(head), is_head, response);
                });
            }
            stage => {
                lane.stage = stage;
                self.connection.reset(stream, ErrorCode::Cancel);
                self.drop_lane(work, cx.now, stream, Cut::Client);
            }
        }
    }

    /// Drops the consumer of a body, and the bytes that wait for it.
    pub(super) fn stop_body(&mut self, work: &mut Work, now: Time, stream: u32) {
        let incoming = work.lane(stream).and_then(|lane| lane.incoming.take());
        if let Some(incoming) = incoming {
            let waiting = u32::try_from(incoming.waiting.len()).unwrap_or(u32::MAX);
            self.connection.handle_taken(stream, waiting, 0, clock(now));
            work.recount(stream);
        }
    }

    /// Drops a request and its response, which will not be completed.
    pub(super) fn drop_lane(&mut self, work: &mut Work, now: Time, stream: u32, cut: Cut) {
        let Some(lane) = work.remove(stream) else { return };
        self.give_back(&lane, now);
        work.note_broken(lane, cut);
    }

    /// Gives the client back the connection's window for bytes that this lane will not take.
    pub(super) fn give_back(&mut self, lane: &super::lane::Lane, now: Time) {
        if let Some(incoming) = &lane.incoming {
            let waiting = u32::try_from(incoming.waiting.len()).unwrap_or(u32::MAX);
            self.connection.handle_taken(lane.id, waiting, 0, clock(now));
        }
    }

    /// Ends the connection because the client broke the protocol, or a limit.
    #[cold]
    fn handle_fault(&mut self, work: &mut Work, cx: &mut Context, fault: Fault) {
        if let Some(attack) = fault.attack {
            cx.stats.http2_attacks[attack as usize].add(1);
            cx.http2_attack = Some((attack, work.place.client.ip()));
        } else {
            cx.stats.http2_faults.add(1);
        }
        while let Some(id) = work.lanes.last().map(|lane| lane.id) {
            if let Some(lane) = work.remove(id) {
                work.note_broken(lane, Cut::Client);
            }
        }
    }
}

/// The time for which a request waits for the end of a body that no consumer takes. A client may wait for the response
/// before it sends more.
const SKIP: Duration = Duration::from_millis(500);

/// Counts bytes of a body that no consumer takes.
fn drop_body(work: &mut Work, stream: u32, count: u32) {
    work.moved += u64::from(count);
    let Some(lane) = work.lane(stream) else { return };
    lane.moved += u64::from(count);
    let Stage::Asked { head, lookup: Lookup::Body(dropped) } = &mut lane.stage else { return };
    *dropped += u64::from(count);
    if head.as_head().framing == Framing::Unknown {
        lane.times.body_bytes += u64::from(count);
    }
    if *dropped >= DROPPED_BYTES_MAX {
        work.stop_waiting_for_body(stream);
    }
}

// Each limit has a counter.
const _: () = assert!(http2::Attack::ALL.len() == metrics::HTTP2_ATTACKS);

/// The refusal of a body that is longer than its consumer takes.
const TOO_LONG: Reject = Reject { status: Status::ContentTooLarge, reason: "the body is too long" };
