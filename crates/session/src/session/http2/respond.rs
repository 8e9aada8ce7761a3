//! Responses: a head, and a lane for the body unless the body is sent together with the head.

use http::{FieldSection, Head, Status};
use http2::ErrorCode;
use http2::priority::{Priority, Wish};
use outq::Payload as _;

use super::lane::{Pause, Sending, Stage};
use super::pace::Pace;
use super::websocket::Tunnel;
use super::work::{BATCH_BYTES, INLINED_BYTES_MAX, Work};
use super::{Http2, clock};
use crate::context::Context;
use crate::handler::{Body, Part, Response};
use crate::record::{Cut, Record};
use crate::session::framing::BodyFraming;
use crate::session::opening::{self, Opening};
use sendfile::Takes;

/// The priority of responses by their media types, about which neither client nor upstream says anything: documents,
/// styles and scripts before pictures and films, which a browser shows in parts.
const PRIORITIES: &[(&[u8], Priority)] = &[
    (b"text/html", Priority { urgency: 2, incremental: true }),
    (b"text/css", Priority { urgency: 2, incremental: false }),
    (b"text/javascript", Priority { urgency: 2, incremental: false }),
    (b"application/javascript", Priority { urgency: 2, incremental: false }),
    (b"font/", Priority { urgency: 3, incremental: false }),
    (b"image/", Priority { urgency: 4, incremental: true }),
    (b"audio/", Priority { urgency: 5, incremental: true }),
    (b"video/", Priority { urgency: 5, incremental: true }),
];

/// The priority of a response by its media type.
fn default_priority(content_type: Option<&[u8]>) -> Priority {
    let content_type = content_type.unwrap_or_default();
    let is_it = |(prefix, _): &&(&[u8], Priority)| {
        let prefix: &[u8] = prefix;
        content_type.get(..prefix.len()).is_some_and(|it| it.eq_ignore_ascii_case(prefix))
    };
    PRIORITIES.iter().find(is_it).map_or(Priority { urgency: 3, incremental: true }, |it| it.1)
}

impl Http2 {
    /// Puts the head of a response into frames. Its body follows directly, or by a lane. Without a head of the request,
    /// `is_head` says that its method is HEAD.
    #[inline]
    pub(super) fn begin_response(
        &mut self,
        work: &mut Work,
        cx: &mut Context,
        id: u32,
        head: Option<&Head<'_>>,
        is_head: bool,
        response: &mut Response<'_>,
    ) {
        let times = match work.lane(id) {
            Some(lane) if matches!(lane.tunnel, Tunnel::Asked(_)) => {
                return self.answer_connect(work, cx, id, head, response);
            }
            Some(lane) => lane.times,
            None => work.current.1,
        };
        self.write_control(work);
        work.begin_frames();
        if response.is_made_while_sent() {
            self.invite(work, id);
        }
        let hsts = opening::begin(cx, &times, response);
        // A body that is too long ends with its stream.
        if response.terms.is_last && response.outcome().0 != Status::ContentTooLarge {
            self.connection.end(ErrorCode::NoError, "");
        }
        let rate = response.terms.rate;
        if let Some(whole) = response.whole_file()
            && let Some(block) = whole.block(cx.unix, || cx.date())
        {
            let finished = &whole.variant().finished;
            let record = times.begin_record(cx, head, Status::Ok, &response.terms);
            let hsts = hsts.filter(|_| !finished.has_hsts).map(FieldSection::as_borrowed);
            let size = whole.variant().size;
            let more = hsts.unwrap_or_default();
            let is_last = is_head || size == 0;
            self.connection.respond_prepared(id, &block, &more, is_last, &mut work.out);
            drop(block);
            if is_last {
                return self.end_response(work, cx, id, record);
            }
            let has_body = finished.has_body_for(Takes::Memory);
            if has_body
                && size <= INLINED_BYTES_MAX
                && rate.is_none()
                && self.may_send(work, id, size)
            {
                return finished.with_body(|body| self.send_whole(work, cx, id, body, record));
            }
            let body = if has_body {
                Body::from(Part::Piece(finished.part(0..size)))
            } else {
                response.take_body()
            };
            let priority = default_priority(Some(whole.content_type()));
            let framing = BodyFraming::Length(size);
            self.begin_body(work, id, body, framing, record, priority, Wish::NONE);
            return self.pace(work, cx, id, rate);
        }
        let Opening { fields, hsts, body, length, record } =
            opening::open(cx, &times, head, response, hsts);
        if fields.status == Status::SwitchingProtocols {
            // Only a request for a tunnel asks for that.
            self.connection.reset(id, ErrorCode::Internal);
            return self.drop_lane(work, cx.now, id, Cut::Handler);
        }
        let framing = length.map_or(BodyFraming::Unframed, BodyFraming::Length);
        if let Some(hsts) = hsts {
            hsts.fields().for_each(|(name, value)| fields.extra.push_checked(name, value));
        }
        let is_last = is_head || body.is_empty();
        self.connection.respond(id, fields, &cx.date(), is_last, &mut work.out);
        if is_last {
            return self.end_response(work, cx, id, record);
        }
        if let BodyFraming::Length(length) = framing
            && length <= INLINED_BYTES_MAX
            && rate.is_none()
            && self.may_send(work, id, length)
            && let Some(piece) = body.only_piece().filter(|piece| piece.len() == length)
        {
            return self.send_whole(work, cx, id, piece.bytes(), record);
        }
        let priority = default_priority(fields.content_type.as_deref());
        let mut said =
            fields.extra.fields().filter(|(name, _)| name.eq_ignore_ascii_case(b"priority"));
        let wish = said.next().map_or(Wish::NONE, |(_, value)| Wish::parse(value));
        self.begin_body(work, id, body, framing, record, priority, wish);
        self.pace(work, cx, id, rate);
    }

    /// Returns true if a whole body may leave together with its head: no lane has bytes that are to be sent before, and
    /// the client receives them.
    fn may_send(&self, work: &Work, id: u32, size: u64) -> bool {
        work.scheduler.next_stream().is_none()
            && work.unsent() < BATCH_BYTES
            && u64::from(self.connection.data_room(id)) >= size
    }

    /// Puts a whole body into frames, after its head.
    fn send_whole(
        &mut self,
        work: &mut Work,
        cx: &Context,
        id: u32,
        body: &[u8],
        mut record: Option<Box<Record>>,
    ) {
        let length = u32::try_from(body.len()).unwrap_or(u32::MAX);
        if let Some(head) = self.connection.data_head(id, length, true) {
            work.out.extend_from_slice(&head);
            work.out.extend_from_slice(body);
            if let Some(record) = &mut record {
                record.body_bytes = body.len() as u64;
            }
        }
        self.connection.finish(id);
        self.end_response(work, cx, id, record);
    }

    /// Ends a response whose frames are all written.
    fn end_response(
        &mut self,
        work: &mut Work,
        cx: &Context,
        id: u32,
        record: Option<Box<Record>>,
    ) {
        if !work.lanes.is_empty()
            && let Some(lane) = work.remove(id)
        {
            self.give_back(&lane, cx.now);
        }
        self.connection.discard(id, clock(cx.now));
        work.end_response(record);
    }

    /// Makes the lane of a response send its body.
    fn begin_body(
        &mut self,
        work: &mut Work,
        id: u32,
        body: Body,
        framing: BodyFraming,
        record: Option<Box<Record>>,
        default: Priority,
        said: Wish,
    ) {
        let lane = work.lane_of_current(id);
        lane.default = default;
        lane.wish = lane.wish.merge(said);
        lane.pause = Pause::No;
        lane.stage = Stage::Sending(Sending {
            is_made: body.has_producer(),
            parts: Some(body.into_iter()),
            producer: None,
            framing,
            takes_much: false,
            trailers: FieldSection::EMPTY,
            record,
            framed: 0,
        });
        let priority = lane.wish.or(default);
        work.scheduler.insert(id, priority);
        work.scheduler.set_ready(id, true);
        work.recount(id);
    }

    /// Sends a response at this rate at most, together with the others of the connection that have a rate.
    fn pace(
        &mut self,
        work: &mut Work,
        cx: &Context,
        id: u32,
        rate: Option<core::num::NonZeroU64>,
    ) {
        if let Some(rate) = rate
            && let Some(lane) = work.lane(id)
        {
            lane.is_paced = true;
            match &mut work.pace {
                Some(pace) => pace.slow_down(rate),
                None => work.pace = Some(Pace::new(rate, cx.now)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_styles_and_scripts_come_before_pictures() {
        let urgency = |text: &str| default_priority(Some(text.as_bytes())).urgency;
        let all = ["text/html; charset=utf-8", "TEXT/CSS", "text/javascript"];
        for text in all {
            assert!(urgency(text) < urgency("application/json"), "{text}");
        }
        assert!(urgency("application/json") < urgency("image/png"));
        assert!(urgency("image/png") < urgency("video/mp4"));
        assert_eq!(default_priority(None).urgency, Priority::DEFAULT.urgency);
    }
}
