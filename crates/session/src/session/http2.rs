//! HTTP/2 on one connection: many requests are answered side by side, in bounded memory and time.
//!
//! The crate `http2` keeps the state of frames, streams and windows. This session gives requests to handlers and bodies
//! to consumers, and puts the responses into frames. Each request that is not answered at once has a
//! [`Lane`](lane::Lane): its head until the response begins, its consumer, and a stream of its own for the response's
//! body.
//!
//! ```text
//!   bytes ──► http2::Connection ──► events ──► Requests, consumers of bodies
//!                   │                                │
//!                   │ control frames          respond: a head, and a lane for the body
//!                   ▼                                │
//!   transport ◄── queue ◄── DATA frames ◄── Scheduler ◄── lanes: each has a stream with its source
//! ```
//!
//! - The session is chosen by `version.rs`: by ALPN, or by the preface on a listener without TLS.
//! - A small body in memory is sent together with its head, if no lane has bytes to send. No lane is made for it.
//! - The scheduler chooses among lanes that are *ready*: that have bytes, or may get some. A lane yields at once if its
//!   next bytes have to be read first, and is ready again when they have come. So a cold file holds up no other
//!   response.
//! - The bytes of files that lanes have in memory are bounded. They count from the moment when their read begins: see
//!   `room.rs`.
//! - The bytes of a lane are in memory, and never references to files. They move into the queue of the connection, about
//!   one batch ahead of the transport.
//! - Sending: a lane is not ready if the client's window has no room. Receiving: a stream's window is the room of its
//!   consumer, at most [`STREAM_WINDOW_MAX`](http2::limits::STREAM_WINDOW_MAX). Each stream begins with a window of
//!   65,535 bytes. If the consumer has no room for bytes in this window, they wait in the lane.
//! - A tunnel is a lane whose two bodies have no framing: see `tunnel.rs`.
//! - A fault of a response resets its stream. Only a fault of the client against the protocol ends the connection.
//! - An idle connection has an `Http2`, but no [`Work`]. Memory that it does not need is given back after [`REST`].
//!
//! Limits of one connection, in addition to those of the crate `http2`:
//!
//! | what | limit | at the limit |
//! |---|---|---|
//! | heads of requests that wait | `work::HEAD_BYTES_MAX` | nothing more is read |
//! | these heads, and bodies that consumers keep or have no room for | [`work::HELD_BYTES_MAX`] | further streams are refused |
//! | frames that the transport does not accept | [`work::UNSENT_MAX`] | nothing more is read |
//! | bytes of files in all lanes together, including reads in flight | [`room::FILE_BYTES_MAX`] | lanes wait; lanes that currently cannot send give up the bytes that they have read |
//! | bytes of files that are read ahead, because the client's windows have room for them | [`work::HELD_BYTES_MAX`] minus what requests hold; the only lane with a file may read as far as the prefetch window (`readahead`) of this file | lanes read less ahead |
//! | lanes that read files, including lanes whose streams have ended | [`room::READING_MAX`] | further lanes wait to read |
//! | bytes of a request body that arrive after the complete response, and that nothing uses | [`DISCARDED_BYTES_MAX`](http2::limits::DISCARDED_BYTES_MAX) | the stream is reset |
//! | tunnels | `tunnel::TUNNELS_MAX` | further tunnels are refused with 503 |
//! | streams that occupy gateways | [`work::GATEWAYS_MAX`] | further requests for gateways wait |
//! | requests that begin in one worker turn | [`work::TURN_REQUESTS_MAX`] | the rest waits for the next turn |
//! | time: idle, for a head, for bytes, for a client's window | those of HTTP/1 | the stream ends with 408 or is reset, or the connection ends |
//!
//! The states in which a connection waits:
//!
//! | wait | for what | deadline |
//! |---|---|---|
//! | Idle | a frame of a request | `timeout-idle` |
//! | Request | the rest of a preface, of a frame or of a header block, while no stream is open | `timeout-header` |
//! | Server | a disk, a handler, a window, a body | none until the client half-closes, then `timeout-send`; every [`period`](judge::period), each stream that waits for its client has to show progress (`judge.rs`); request bodies that still come after the complete response are dropped for at most [`DISCARD_TIME`](http2::limits::DISCARD_TIME) |
//! | Peer | the client has to receive bytes | `timeout-send` |
//! | Lingering | the end of the client's side, after that of the server's side | [`LINGER`] |

mod deadlines;
mod input;
mod judge;
mod lane;
mod pace;
mod pump;
mod respond;
mod room;
mod share;
mod tunnel;
mod websocket;
mod work;

use core::num::NonZeroU64;
use core::time::Duration;
use std::rc::Rc;

use http::{Head, Method};
use http2::ErrorCode;
use http2::server::Connection;
use ring::Time;
use sendfile::{Failure, Progress};

use super::{
    Activity, Broken, BrokenEnd, Defer, LINGER, Left, Moved, Next, Requests, Session, Turn,
    Unanswered, Why, Woken,
};
use crate::context::Context;
use crate::handler::{AnswerSize, Found, Interim, Keep, Response, Search};
use crate::record::Cut;
use lane::{Lookup, Stage};
pub(in crate::session) use work::Work;

/// The time for which the server waits for the client's answer to the PING after the first GOAWAY. Without an answer, the
/// final GOAWAY is sent then.
const DRAIN: Duration = Duration::from_secs(1);
/// The time after which an idle connection gives back memory that it does not need. Most clients ask again before.
const REST: Duration = Duration::from_secs(1);
/// The limit of received bytes that were not parsed yet. It is larger than one frame.
const INPUT_BYTES_MAX: usize = 2 * http2::INPUT_BYTES_MAX;

/// The session of HTTP/2.
#[derive(Debug)]
pub(super) struct Http2 {
    connection: Connection,
    wait: Wait,
    /// The time of the next judgement of streams, while there are any.
    judge_at: Option<Time>,
    /// The time at which responses with a rate may go on.
    pace_at: Option<Time>,
    /// If no consumer takes the body of a request, the request waits until this time for the end of the body (`SKIP` in
    /// `input.rs`). Then the handler is asked about the request.
    skip_at: Option<Time>,
    drain: Drain,
    /// True if the peer has half-closed.
    ended: bool,
    /// True if the connection has given memory back since it became idle.
    is_at_rest: bool,
    /// True if the client was told that it may ask for tunnels.
    takes_tunnels: bool,
    /// The last time at which a request began or a lane was open. The idle timeout counts from this time; other frames do
    /// not extend it.
    asked_at: Time,
}

/// The event for which the connection waits, and the time since which it waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    Idle(Time),
    Request(Time),
    Server(Time),
    /// The number is the position that the peer had acknowledged then.
    Peer(Time, i64),
    /// The same.
    Lingering(Time, i64),
}

/// The progress of the end of the connection, which the server announces by GOAWAY.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Drain {
    No,
    /// The end was announced.
    Announced,
    /// The end comes at this time.
    Until(Time),
    /// The end has come.
    Over,
}

/// The time in the form that the crate `http2` uses.
pub(super) fn clock(now: Time) -> Duration {
    now.since(Time::default())
}

/// The limits of requests. `takes_tunnels`: a route of the listener accepts tunnels.
fn limits(cx: &Context, takes_tunnels: bool) -> http2::Limits {
    let limits = &cx.tuning.request_limits;
    http2::Limits {
        head_bytes_max: limits.head_bytes_max.min(http2::limits::LIST_BYTES_MAX as usize),
        target_bytes_max: limits.target_bytes_max,
        fields_max: limits.fields_max.min(http2::limits::BLOCK_FIELDS_MAX),
        extended_connect: takes_tunnels,
    }
}

impl Http2 {
    /// The session of a connection of this listener, on which nothing was received.
    pub(super) fn begin(cx: &Context, listener: u32) -> Self {
        let limits = limits(cx, cx.site_rules.takes_tunnels(listener));
        Self::with(cx.now, &limits)
    }

    fn with(now: Time, limits: &http2::Limits) -> Self {
        Self {
            connection: Connection::new(clock(now), limits),
            wait: Wait::Request(now),
            asked_at: now,
            judge_at: None,
            pace_at: None,
            skip_at: None,
            drain: Drain::No,
            ended: false,
            is_at_rest: false,
            takes_tunnels: limits.extended_connect,
        }
    }

    const fn is_lingering(&self) -> bool {
        matches!(self.wait, Wait::Lingering(..))
    }

    /// Announces the end of the connection. Requests that are under way are answered.
    pub(super) fn announce_end(&mut self) {
        if self.drain == Drain::No {
            self.drain = Drain::Announced;
            self.connection.shut_down();
        }
    }

    /// Waits for a step of the server.
    const fn wait_for_server(&mut self, now: Time) {
        if !matches!(self.wait, Wait::Server(_)) {
            self.wait = Wait::Server(now);
        }
    }

    /// Chooses the next step after everything that could be sent was sent.
    fn rest(&mut self, work: &mut Work, cx: &Context, moved: &Moved) -> Next {
        let is_sent = work.is_sent();
        let has_lanes = !work.lanes.is_empty();
        if self.is_lingering() {
            return Next::Wait;
        }
        if !has_lanes && is_sent && self.connection.is_done() {
            if self.ended {
                return Next::Close(Why::Done);
            }
            self.wait = Wait::Lingering(cx.now, moved.acknowledged);
            return Next::ShutDown;
        }
        if self.ended && (!has_lanes || work.is_lost_without_client()) {
            return Next::Close(if has_lanes { Why::Gone } else { Why::Done });
        }
        if has_lanes {
            self.asked_at = cx.now;
        }
        if has_lanes || !is_sent || self.connection.deadline().is_some() {
            self.wait_for_server(cx.now);
        } else if !self.connection.is_idle() || moved.unread > 0 {
            if !matches!(self.wait, Wait::Request(_)) {
                self.wait = Wait::Request(cx.now);
            }
        } else if !matches!(self.wait, Wait::Idle(_)) {
            self.wait = Wait::Idle(self.asked_at);
            self.is_at_rest = false;
        }
        Next::Wait
    }
}

impl Session for Http2 {
    type Work = Work;

    fn new(now: Time) -> Self {
        Self::with(now, &http2::Limits::DEFAULT)
    }

    fn handle_bytes(
        &mut self,
        work: &mut Work,
        requests: &mut impl Requests,
        bytes: &[u8],
    ) -> usize {
        self.take_bytes(work, requests, bytes)
    }

    fn handle_eof(&mut self, work: Option<&mut Work>) -> Next {
        self.ended = true;
        if work.is_some() { Next::Pump } else { Next::Close(Why::Done) }
    }

    fn handle_answer(
        &mut self,
        work: &mut Work,
        cx: &Context,
        request: u32,
        size: AnswerSize,
    ) -> bool {
        let Some(lane) = work.lane(request) else { return false };
        let Stage::Asked { lookup, .. } = &mut lane.stage else { return false };
        lane.times.found += cx.now.since(lane.times.since);
        let is_kept = size.keep != Keep::Never;
        *lookup = Lookup::Queued;
        if is_kept {
            work.turns.push_back((request, true));
        } else {
            work.postponed.push_back(request);
        }
        is_kept
    }

    fn handle_interim(&mut self, work: &mut Work, request: u32, interim: &Interim) {
        let is_asked = |lane: &mut lane::Lane| matches!(lane.stage, Stage::Asked { .. });
        if work.lane(request).is_some_and(is_asked) {
            self.write_control(work);
            let (status, fields) = (interim.status, &interim.fields);
            self.connection.respond_interim(request, status, fields, &mut work.out);
        }
    }

    fn next_turn(&mut self, work: &mut Work, cx: &mut Context) -> Option<Turn> {
        if work.turns.is_empty() && work.postponed.is_empty() {
            return None;
        }
        let (request, found) = work.next_turn()?;
        let lane = work.lane(request)?;
        lane.times.since = cx.now;
        match core::mem::replace(&mut lane.stage, Stage::Turning) {
            Stage::Asked { head, .. } => {
                Some(Turn { request, head, found, standing: lane.standing })
            }
            Stage::Turning | Stage::Sending(_) => {
                unreachable!("only requests without a response are in line")
            }
        }
    }

    fn put_back(&mut self, work: &mut Work, turn: Turn, search: Option<Rc<dyn Search>>) {
        let Turn { request, head, .. } = turn;
        if let Some(lane) = work.lane(request) {
            lane.stage = Stage::Asked { head, lookup: Lookup::Pending(search) };
            lane.note_asked();
            self.invite(work, request);
        }
        work.recount(request);
    }

    fn respond(
        &mut self,
        work: &mut Work,
        cx: &mut Context,
        request: u32,
        head: &Head<'_>,
        response: &mut Response<'_>,
    ) -> Option<NonZeroU64> {
        let is_head = head.method == Method::Head;
        self.begin_response(work, cx, request, Some(head), is_head, response);
        None
    }

    fn wake(&mut self, work: &mut Work, cx: &Context, woken: Woken) {
        // A stream has the number of its request.
        let (Woken::Request(request) | Woken::Stream(request)) = woken;
        self.feed(work, cx.now, request);
        if work.lane(request).is_some_and(|lane| matches!(lane.stage, Stage::Sending(_))) {
            work.scheduler.set_ready(request, true);
        }
    }

    fn handle_progress(&mut self, work: &mut Work, cx: &mut Context, moved: &Moved) -> Next {
        self.note_lanes(work, cx);
        if self.drain == Drain::Announced {
            self.drain = Drain::Until(cx.now + DRAIN);
        }
        match moved.progress {
            Progress::Failed(failure) => return Next::Close(Why::Failed(failure)),
            Progress::More => {
                self.wait_for_server(cx.now);
                return Next::TurnOver;
            }
            Progress::Blocked => {
                if !matches!(self.wait, Wait::Peer(..) | Wait::Lingering(..)) {
                    self.wait = Wait::Peer(cx.now, moved.acknowledged);
                }
                return Next::Wait;
            }
            Progress::Waiting | Progress::Drained => {}
        }
        if work.has_next_turn() || !self.connection.control().is_empty() {
            return Next::Pump;
        }
        if moved.unread > 0 && !self.is_lingering() && !work.is_full() {
            if work.had_its_quantum(cx.turn) {
                self.wait_for_server(cx.now);
                return Next::TurnOver;
            }
            if !moved.stuck {
                return Next::Read;
            }
        }
        self.rest(work, cx, moved)
    }

    fn next_left(&mut self, work: &mut Work) -> Option<Left> {
        let sent = work.queue.sent();
        while let Some(end) = work.ends.pop_sent(sent) {
            if let Some(record) = end.record {
                return Some(Left { bytes: record.body_bytes, record });
            }
        }
        None
    }

    fn next_cut(&mut self, work: &mut Work, _now: Time) -> Option<Left> {
        while let Some(end) = work.ends.pop() {
            if let Some(record) = end.record {
                return Some(Left { bytes: record.body_bytes, record });
            }
        }
        work.lanes.iter_mut().find_map(|lane| lane.take_left())
    }

    fn next_unanswered(&mut self, work: &mut Work) -> Option<Unanswered> {
        loop {
            let lane = work.lanes.pop()?;
            if let Some(unanswered) = lane.into_unanswered() {
                return Some(unanswered);
            }
        }
    }

    fn next_failure(&mut self, work: &mut Work) -> Option<Failure> {
        work.failures.pop()
    }

    fn next_broken(&mut self, work: &mut Work) -> Option<Broken> {
        work.broken.pop()
    }

    fn wants_bytes(&self, work: &Work, cx: &Context, unread: usize) -> bool {
        let _ = cx;
        self.is_lingering() || (unread < INPUT_BYTES_MAX && !work.is_full())
    }

    fn deadline(&self, cx: &Context) -> Option<Time> {
        let tuning = &cx.tuning;
        let wait = match self.wait {
            Wait::Idle(since) if !self.is_at_rest => Some(since + REST.min(tuning.timeout_idle)),
            Wait::Idle(since) => Some(since + tuning.timeout_idle),
            Wait::Request(since) => Some(since + tuning.timeout_header),
            Wait::Peer(since, _) => Some(since + tuning.timeout_send),
            Wait::Server(since) if self.ended => Some(since + tuning.timeout_send),
            Wait::Server(_) => None,
            Wait::Lingering(since, _) => Some(since + LINGER),
        };
        let drain = match self.drain {
            Drain::Until(until) => Some(until),
            Drain::No | Drain::Announced | Drain::Over => None,
        };
        let discards = self.connection.deadline().map(|until| Time::default() + until);
        Time::earliest([wait, self.judge_at, self.pace_at, self.skip_at, drain, discards])
    }

    fn handle_deadline(
        &mut self,
        work: Option<&mut Work>,
        cx: &mut Context,
        acknowledged: i64,
        _unread: &[u8],
    ) -> Next {
        self.expire(work, cx, acknowledged)
    }

    fn handle_shutdown(&mut self, work: Option<&mut Work>) -> Next {
        if self.is_lingering() {
            return Next::Wait;
        }
        if work.is_none_or(|work| work.lanes.is_empty()) {
            self.connection.end(ErrorCode::NoError, "");
        }
        self.announce_end();
        Next::Pump
    }

    fn handle_retirement(&mut self, _work: Option<&mut Work>) -> Next {
        if self.is_lingering() {
            return Next::Wait;
        }
        self.announce_end();
        Next::Pump
    }

    fn make_next_last(&mut self, work: Option<&mut Work>) -> Next {
        self.handle_retirement(work)
    }

    fn idle_since(&self) -> Option<Time> {
        match self.wait {
            Wait::Idle(since) | Wait::Lingering(since, _) => Some(since),
            Wait::Request(_) | Wait::Server(_) | Wait::Peer(..) => None,
        }
    }

    fn is_tunnel(work: &Work) -> bool {
        work.lanes.iter().any(|lane| lane.is_tunnel())
    }

    fn activity(&self, work: &Work) -> Activity {
        match self.wait {
            Wait::Idle(_) | Wait::Lingering(..) => Activity::Idle,
            Wait::Request(_) => Activity::Reading,
            Wait::Server(_) if Self::is_tunnel(work) => Activity::Tunnel,
            Wait::Server(_) => Activity::Waiting,
            Wait::Peer(..) => Activity::Writing,
        }
    }

    fn check(&self, work: Option<&Work>) {
        let Some(work) = work else { return };
        work.check();
        assert!(
            work.lanes.is_empty() || !matches!(self.wait, Wait::Idle(_) | Wait::Lingering(..)),
            "{self:?} is idle with {work:?}"
        );
        assert!(work.lanes.is_empty() || self.judge_at.is_some(), "lanes are judged");
    }
}

impl Defer for Http2 {
    fn defer(
        &mut self,
        work: &mut Work,
        request: u32,
        head: &Head<'_>,
        found: Found<AnswerSize>,
    ) -> bool {
        let lane = work.lane_of_current(request);
        // A request that needs a gateway has its turn last. The answer to any other request is kept, because the turn of
        // that request comes at once.
        let (lookup, is_kept) = match found {
            Found::Later(search) => (Lookup::Pending(search), None),
            Found::Now(AnswerSize { keep: Keep::Never, .. }) => (Lookup::Queued, Some(false)),
            Found::Now(_) => (Lookup::Queued, Some(true)),
        };
        lane.stage = Stage::Asked { head: head.to_owned(), lookup };
        lane.note_asked();
        match is_kept {
            Some(true) => work.turns.push_back((request, true)),
            Some(false) => work.postponed.push_back(request),
            None => self.invite(work, request),
        }
        work.recount(request);
        is_kept.unwrap_or(false)
    }
}

impl Work {
    /// Records a request that has ended before its time.
    fn note_broken(&mut self, lane: Box<lane::Lane>, cut: Cut) {
        let request = lane.id;
        let end = lane.into_end();
        if !matches!(end, BrokenEnd::Unrecorded) || cut != Cut::Server {
            self.broken.push(Broken { request, end, cut });
        }
    }
}
