//! Streams whose clients are too slow. To *judge* the streams is to check, at fixed times, whether their client has made
//! enough progress.

use core::time::Duration;

use http::{Method, Reject, Status};
use http2::ErrorCode;

use super::Http2;
use super::lane::Stage;
use super::work::Work;
use crate::context::Context;
use crate::record::Cut;
use crate::session::refusal;

/// The time between two judgements of the streams of a connection. A stream that waits for its client at two judgements
/// in a row has to move some bytes in between, or it ends. If all streams wait, they have to move the bytes of the
/// minimum rate together, or a response has to end in between. Otherwise the connection ends, too.
pub(super) fn period(cx: &Context) -> Duration {
    cx.tuning.timeout_send.min(cx.tuning.timeout_header)
}

impl Http2 {
    /// Ends streams whose client does not go on. Ends the connection, too, if the client has done nothing else on it.
    pub(super) fn judge(&mut self, work: &mut Work, cx: &mut Context) {
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
