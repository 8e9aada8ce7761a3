//! The deadlines of a connection that have passed, and what follows from each.

use http2::ErrorCode;
use ring::Time;

use super::judge::period;
use super::work::Work;
use super::{Http2, Wait, clock};
use crate::context::Context;
use crate::session::{Next, Why};

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
}
