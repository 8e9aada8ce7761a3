//! Deadlines: clients that are too slow, and the end of connections. To *judge* the streams is to check, at fixed
//! times, whether their client has made enough progress.

use core::time::Duration;

use http::{Method, Reject, Status};
use http2::ErrorCode;
use ring::Time;

use super::lane::Stage;
use super::work::Work;
use super::{Http2, Wait, clock};
use crate::context::Context;
use crate::record::Cut;
use crate::session::{Next, Why, refusal};

/// The time between two judgements of the streams of a connection. A stream that waits for its client at two judgements
/// in a row has to move some bytes in between, or it ends. If all streams wait, they have to move the bytes of the
/// minimum rate together, or a response has to end in between. Otherwise the connection ends, too.
pub(super) fn period(cx: &Context) -> Duration {
    cx.tuning.timeout_send.min(cx.tuning.timeout_header)
}

impl Http2 {
    /// Begins to judge streams, or stops, if none is left.
    pub(super) fn note_lanes(&mut self, work: &mut Work, cx: &Context) {
        if work.lanes.is_empty() {
            self.judge_at = None;
        } else if self.judge_at.is_none() {
            self.judge_at = Some(cx.now + period(cx));
            work.moved = 0;
        }
        self.skip_at = work.skips_until;
        self.pace_at = work.pace.as_ref().and_then(|pace| pace.due());
    }

    /// Acts because a deadline has passed.
    pub(super) fn expire(
        &mut self,
        mut work: Option<&mut Work>,
        cx: &mut Context,
        acknowledged: i64,
    ) -> Next {
        let is_due = |at: Option<Time>| at.is_some_and(|at| at <= cx.now);
        let mut next = Next::Wait;
        if is_due(self.pace_at) {
            self.pace_at = None;
            if let Some(work) = work.as_deref_mut() {
                work.refill_pace(cx.now);
            }
            next = Next::Pump;
        }
        if is_due(self.skip_at) {
            self.skip_at = None;
            if let Some(work) = work.as_deref_mut() {
                work.skips_until = None;
                for id in work.lanes.iter().map(|lane| lane.id).collect::<Vec<_>>() {
                    work.stop_waiting_for_body(id);
                }
            }
            next = Next::Pump;
        }
        if is_due(self.connection.deadline().map(|until| Time::default() + until)) {
            self.connection.handle_deadline(clock(cx.now));
            next = Next::Pump;
        }
        if let super::Drain::Until(until) = self.drain
            && until <= cx.now
        {
            self.drain = super::Drain::Over;
            self.connection.end(ErrorCode::NoError, "");
            next = Next::Pump;
        }
        if is_due(self.judge_at) {
            self.judge_at = Some(cx.now + period(cx));
            if let Some(work) = work.as_deref_mut() {
                self.judge(work, cx);
                next = Next::Pump;
            }
        }
        match self.wait {
            Wait::Idle(since) if !self.is_at_rest && since + super::REST <= cx.now => {
                self.is_at_rest = true;
                self.connection.shrink();
                next
            }
            Wait::Idle(since) if since + cx.tuning.timeout_idle <= cx.now => {
                cx.stats.timeouts.add(1);
                cx.stats.idle_timeouts.add(1);
                self.wait = Wait::Server(cx.now);
                self.connection.end(ErrorCode::NoError, "");
                Next::Pump
            }
            Wait::Request(since) if since + cx.tuning.timeout_header <= cx.now => {
                cx.stats.timeouts.add(1);
                cx.stats.header_timeouts.add(1);
                self.wait = Wait::Server(cx.now);
                self.connection.end(ErrorCode::NoError, "the rest of a frame took too long");
                Next::Pump
            }
            Wait::Server(since) if self.ended && since + cx.tuning.timeout_send <= cx.now => {
                cx.stats.timeouts.add(1);
                Next::Close(Why::TimedOut)
            }
            Wait::Peer(since, before) if since + cx.tuning.timeout_send <= cx.now => {
                if !cx.is_fast_enough(since, before, acknowledged) {
                    cx.stats.slow_peers.add(1);
                    return Next::Close(Why::TimedOut);
                }
                self.wait = Wait::Peer(cx.now, acknowledged);
                next
            }
            Wait::Lingering(since, before) if since + super::LINGER <= cx.now => {
                let sent = work.map_or(0, |work| work.queue.sent().cast_signed());
                if acknowledged == sent {
                    return Next::Close(Why::Done);
                }
                if acknowledged <= before {
                    cx.stats.slow_peers.add(1);
                    return Next::Close(Why::TimedOut);
                }
                self.wait = Wait::Lingering(cx.now, acknowledged);
                next
            }
            _ => next,
        }
    }

    /// Ends streams whose client does not go on. Ends the connection, too, if the client has done nothing else on it.
    fn judge(&mut self, work: &mut Work, cx: &mut Context) {
        let period = period(cx);
        let least = cx.least_bytes_in(period);
        let moved = core::mem::take(&mut work.moved);
        let has_answered = core::mem::take(&mut work.has_answered);
        let mut late = Vec::new();
        let (mut were_late, mut all_late) = (0, true);
        for lane in &mut work.lanes {
            let is_late = lane.waits_for_client();
            let was_late = core::mem::replace(&mut lane.was_late, is_late);
            let lane_moved = core::mem::take(&mut lane.moved);
            all_late &= is_late && was_late;
            if is_late && was_late {
                were_late += 1;
                late.push((lane.id, lane_moved));
            }
        }
        let is_slow = !late.is_empty() && all_late && moved < least && !has_answered;
        for (id, lane_moved) in late {
            let is_enough = !is_slow && lane_moved >= (least / were_late).max(1);
            if !is_enough && (is_slow || !work.stop_waiting_for_body(id)) {
                cx.stats.slow_streams.add(1);
                self.end_late(work, cx, id);
            }
        }
        if is_slow {
            cx.stats.slow_peers.add(1);
            self.connection.end(ErrorCode::NoError, "the streams were too slow");
            work.has_answered = false;
        }
    }

    /// Ends a stream whose client is late: with a response, unless one has begun.
    #[cold]
    fn end_late(&mut self, work: &mut Work, cx: &mut Context, id: u32) {
        let Some(lane) = work.lane(id) else { return };
        let stage = core::mem::replace(&mut lane.stage, Stage::Turning);
        let Stage::Asked { head, .. } = stage else {
            lane.stage = stage;
            self.connection.reset(id, ErrorCode::Cancel);
            return self.drop_lane(work, cx.now, id, Cut::Timeout);
        };
        self.stop_body(work, cx.now, id);
        let head = &head.as_head();
        refusal::make(cx, work.place, TOO_LATE, Some(head), |cx, response| {
            let is_head = head.method == Method::Head;
            self.begin_response(work, cx, id, Some(head), is_head, response);
        });
    }
}

/// The refusal of a request whose body comes too slowly.
const TOO_LATE: Reject =
    Reject { status: Status::RequestTimeout, reason: "the request took too long" };
