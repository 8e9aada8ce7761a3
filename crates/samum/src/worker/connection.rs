//! One client: its transport, its session and the work between them.
//!
//! The session decides about requests and responses, and this file makes the calls. A work to which nothing refers any more
//! is given back here. These events close a connection without its session:
//!
//! - Its header of the PROXY protocol is invalid, or names a client that may not connect (`header.rs`).
//! - The header or the handshake takes too long.
//! - A receive fails, or the network has lost the connection.
//! - The peer takes nothing while others wait for the memory.
//! - The connection is idle, and a newcomer needs its place.
//! - The time of a shutdown is over.

mod header;
mod record;
mod respond;
mod work;

use core::fmt;
use core::num::NonZeroU64;
use std::io;

use http::Head;
use outq::OutQ;
use ring::Time;
use sendfile::{Disk, Failure, Progress, ReadDone, Takes, Transport};

use super::admission;
use crate::network::Origin;
use handler::desk::Desk;
use handler::{Found, Handler, Interim, Request, Ticket};
use logs::Cut;
use metrics::Counters;
use respond::respond;
use session::context::Context;
use session::handler::Reception;
use session::proxy_protocol;
use session::shell::{Complaint, Shell};
use session::standing::Standing;
use session::wheel::Tick;
use session::{Activity, Defer, Moved, Next, Outgoing, Pump, Requests, Session, Why, Woken};
use work::ConnectionWork;
pub(super) use work::Spare;

/// The most works that are kept for connections that have something to do next: a batch of completions.
const SPARE_MAX: usize = 256;

/// A client's connection.
///
/// An idle connection is little more than its descriptor: everything else is in [`ConnectionWork`], which exists only while a
/// request is being received or answered.
pub(super) struct Connection<S: Session, T, A> {
    transport: T,
    session: S,
    work: Option<Box<ConnectionWork<S::Work, A>>>,
    origin: Origin,
    /// `Some` until plain bytes can be exchanged.
    opening: Option<Box<Opening>>,
    /// Bytes of the connection's own memory that the worker's budget counts, at most 4 GiB.
    counted: u32,
    /// The tick of the connection's earliest entry in the wheel.
    pub(super) wheel_tick: Tick,
}

/// The state that a connection needs until plain bytes can be exchanged.
struct Opening {
    accepted: Time,
    /// `Some` while the connection may send a header of the PROXY protocol that has not come completely.
    header: Option<proxy_protocol::Reader>,
}

/// The parts of the worker through which a connection acts.
pub(super) struct Tools<'a, S: Session, H: Handler> {
    /// The connection that acts.
    pub(super) id: u64,
    pub(super) shell: &'a mut Shell<Desk>,
    pub(super) disk: &'a mut Disk,
    pub(super) handler: &'a mut H,
    pub(super) spare: &'a mut Spare<S, H::Answer>,
}

/// The worker's next step with a connection that has acted.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum After {
    Keep,
    /// Give the connection another quantum after the others.
    Again,
    /// Close the connection; responses that have not left are cut for this reason.
    Close(Cut),
}

impl<S: Session, T: Transport, A> Connection<S, T, A> {
    pub(super) fn new(
        transport: T,
        origin: Origin,
        header: Option<proxy_protocol::Reader>,
        now: Time,
    ) -> Self {
        let opens_later = header.is_some() || !transport.is_open();
        Self {
            transport,
            session: S::new(now),
            work: None,
            origin,
            opening: opens_later.then(|| Box::new(Opening { accepted: now, header })),
            counted: 0,
            wheel_tick: Tick::MAX,
        }
    }

    /// The time since which the connection has had nothing to do; `None` while a request is received or answered.
    pub(super) fn idle_since(&self) -> Option<Time> {
        self.session.idle_since()
    }

    /// Checks if plain bytes can be exchanged from now on. Call it after the connection has acted.
    #[inline]
    pub(super) fn note_opening(&mut self) {
        if self.opening.as_ref().is_some_and(|opening| opening.header.is_none())
            && self.transport.is_open()
        {
            self.opening = None;
        }
    }

    /// Tells the session where the connection comes from, and what the handshake has said if it is complete now.
    #[cold]
    fn note_handshake(&mut self, work: &mut ConnectionWork<S::Work, A>, cx: &mut Context) {
        let handshake = match self.origin.handshake() {
            None => self.transport.handshake(),
            Some(_) => None,
        };
        let protocol = handshake.as_ref().map(|handshake| handshake.alpn());
        if let Some(handshake) = handshake {
            self.origin.set_handshake(handshake);
        }
        self.tell_origin(work);
        if let Some(protocol) = protocol {
            self.session.choose(&mut work.session, cx, protocol, self.origin.listener);
        }
    }

    /// The time by which something must have happened.
    pub(super) fn deadline(&self, shell: &Shell<Desk>) -> Option<Time> {
        if let Some(opening) = &self.opening {
            return Some(opening.accepted + shell.cx.tuning.timeout_header);
        }
        self.session.deadline(&shell.cx)
    }

    /// Handles bytes that have come from the network.
    pub(super) fn handle_received<H: Handler<Answer = A>>(
        &mut self,
        tools: &mut Tools<'_, S, H>,
        bytes: &[u8],
    ) -> After {
        if self.opening.as_ref().is_some_and(|opening| opening.header.is_some()) {
            return self.handle_header(tools, bytes);
        }
        let mut work = self.take_work(tools);
        let may_go_on = self.may_go_on(&work);
        let takes = self.transport.takes();
        let plain = match self.transport.receive(bytes, work.session.queue()) {
            Ok(plain) => plain,
            Err(failure) => {
                self.work = Some(work);
                return end(tools.shell, Why::Failed(failure));
            }
        };
        if self.opening.is_some() {
            // The first requests may come with the last bytes of the handshake, and have to know of it.
            let plain = plain.to_vec();
            self.note_handshake(&mut work, &mut tools.shell.cx);
            work.input.extend_from_slice(&plain);
            if may_go_on {
                self.read_input(tools, &mut work);
            }
        } else if !may_go_on {
            work.input.extend_from_slice(plain);
        } else if work.input.is_empty() {
            let taken = read(&mut self.session, &self.origin, takes, tools, &mut work, plain);
            work.input.extend_from_slice(&plain[taken..]);
        } else {
            work.input.extend_from_slice(plain);
            self.read_input(tools, &mut work);
        }
        // A transport may learn of the peer's end from the bytes that it receives.
        if self.transport.has_ended()
            && let Next::Close(why) = self.session.handle_eof(Some(&mut work.session))
        {
            self.work = Some(work);
            return end(tools.shell, why);
        }
        if may_go_on { self.proceed(tools, work) } else { self.wait_for_turn(tools, work) }
    }

    /// Handles the peer's end: it will send no more.
    pub(super) fn handle_end<H: Handler<Answer = A>>(
        &mut self,
        tools: &mut Tools<'_, S, H>,
    ) -> After {
        self.transport.handle_end();
        let next = self.session.handle_eof(self.work.as_mut().map(|work| &mut work.session));
        self.take_step(tools, next)
    }

    /// Goes on after receiving was stopped as asked; by now there may be room for more.
    pub(super) fn handle_stopped<H: Handler<Answer = A>>(
        &mut self,
        tools: &mut Tools<'_, S, H>,
    ) -> After {
        self.transport.handle_receive_stopped();
        let work = self.take_work(tools);
        self.go_on(tools, work)
    }

    /// Goes on because the transport can send again.
    pub(super) fn handle_writable<H: Handler<Answer = A>>(
        &mut self,
        tools: &mut Tools<'_, S, H>,
    ) -> After {
        self.transport.handle_writable();
        // An idle connection has work here, too: its transport may have to send something of its own again.
        let work = self.take_work(tools);
        self.go_on(tools, work)
    }

    /// Handles a read that has ended, and sends its bytes if the quantum allows, because others wait for the memory.
    pub(super) fn handle_read<H: Handler<Answer = A>>(
        &mut self,
        tools: &mut Tools<'_, S, H>,
        done: ReadDone,
    ) -> After {
        let Some(mut work) = self.work.take() else { return After::Keep };
        work.session.handle_read(done);
        self.proceed(tools, work)
    }

    /// Goes on because the connection's next quantum has come.
    pub(super) fn handle_turn<H: Handler<Answer = A>>(
        &mut self,
        tools: &mut Tools<'_, S, H>,
    ) -> After {
        let Some(mut work) = self.work.take() else { return After::Keep };
        work.queued = false;
        self.proceed(tools, work)
    }

    /// Goes on because the disk has room for a request, or its producer has more to give, or its consumer has room.
    pub(super) fn handle_woken<H: Handler<Answer = A>>(
        &mut self,
        tools: &mut Tools<'_, S, H>,
        woken: Woken,
    ) -> After {
        let Some(mut work) = self.work.take() else { return After::Keep };
        self.session.wake(&mut work.session, &tools.shell.cx, woken);
        self.proceed(tools, work)
    }

    /// Handles the answer that was found for one of the requests.
    pub(super) fn handle_answer<H: Handler<Answer = A>>(
        &mut self,
        tools: &mut Tools<'_, S, H>,
        request: u32,
        answer: A,
    ) -> After {
        let Some(mut work) = self.work.take() else { return After::Keep };
        let size = tools.handler.size(&answer);
        if self.session.handle_answer(&mut work.session, &tools.shell.cx, request, size) {
            work.answers.push((request, answer));
        }
        self.go_on(tools, work)
    }

    /// Handles an interim response to one of the requests.
    pub(super) fn handle_interim<H: Handler<Answer = A>>(
        &mut self,
        tools: &mut Tools<'_, S, H>,
        request: u32,
        interim: &Interim,
    ) -> After {
        let Some(mut work) = self.work.take() else { return After::Keep };
        self.session.handle_interim(&mut work.session, request, interim);
        self.go_on(tools, work)
    }

    /// Acts because the deadline has passed.
    pub(super) fn handle_deadline<H: Handler<Answer = A>>(
        &mut self,
        tools: &mut Tools<'_, S, H>,
    ) -> After {
        let shell = &mut *tools.shell;
        if self.opening.is_some() {
            shell.cx.stats.timeouts.add(1);
            shell.cx.stats.header_timeouts.add(1);
            return end(shell, Why::TimedOut);
        }
        let (mut work, unread) = match &mut self.work {
            Some(work) => (Some(&mut work.session), &work.input[..]),
            None => (None, &[][..]),
        };
        let nothing = OutQ::new();
        let queue = work.as_mut().map_or(&nothing, |work| work.queue());
        let acknowledged = self.transport.acknowledged(&shell.ring, queue);
        let next = self.session.handle_deadline(work, &mut shell.cx, acknowledged, unread);
        self.take_step(tools, next)
    }

    /// Accepts no more requests, and closes as soon as no request is being answered.
    pub(super) fn handle_shutdown<H: Handler<Answer = A>>(
        &mut self,
        tools: &mut Tools<'_, S, H>,
    ) -> After {
        let next = self.session.handle_shutdown(self.work.as_mut().map(|work| &mut work.session));
        self.take_step(tools, next)
    }

    /// Closes the connection because its listener was removed: after the responses that have begun, or else after its
    /// next response.
    pub(super) fn retire<H: Handler<Answer = A>>(&mut self, tools: &mut Tools<'_, S, H>) -> After {
        tools.shell.desk.servings.enter_removed(self.origin.listener);
        self.await_last_request(tools)
    }

    /// Closes the connection after the responses that have begun, or else after its next response.
    pub(super) fn await_last_request<H: Handler<Answer = A>>(
        &mut self,
        tools: &mut Tools<'_, S, H>,
    ) -> After {
        let next = self.session.handle_retirement(self.work.as_mut().map(|work| &mut work.session));
        self.take_step(tools, next)
    }

    /// Closes the connection after the response to its next request, or when it was idle for long. Requests that were
    /// taken before end as they began.
    pub(super) fn make_next_last<H: Handler<Answer = A>>(
        &mut self,
        tools: &mut Tools<'_, S, H>,
    ) -> After {
        let next = self.session.make_next_last(self.work.as_mut().map(|work| &mut work.session));
        self.take_step(tools, next)
    }

    /// Counts the connection for the limits of another configuration, which has the listener.
    pub(super) fn count_client(&mut self, shell: &Shell<Desk>) {
        admission::count(shell, &mut self.origin);
    }

    /// The number of the listener that accepted the connection.
    pub(super) const fn listener(&self) -> u32 {
        self.origin.listener
    }

    /// Gives back the memory of bytes that the peer does not receive. Closes the connection of one that acknowledges
    /// too slowly what others wait to get.
    pub(super) fn reclaim(&mut self, cx: &mut Context) -> After {
        let is_stuck = self.work.as_mut().is_some_and(|work| work.session.reclaim(cx.now));
        if !is_stuck {
            return After::Keep;
        }
        cx.stats.slow_peers.add(1);
        After::Close(Cut::Timeout)
    }

    /// Counts what the connection holds and does now.
    pub(super) fn recount(&mut self, cx: &mut Context) {
        if cx.counts {
            self.count_work(&cx.stats);
        }
        let work = self.work.as_ref().map_or(0, |work| {
            let fixed = size_of::<ConnectionWork<S::Work, A>>() + work.input.capacity();
            work.session.weight().own + fixed as u64
        });
        let own = u32::try_from(self.transport.weight().own + work).unwrap_or(u32::MAX);
        cx.budget.recount(core::mem::replace(&mut self.counted, own).into(), own.into());
    }

    fn count_work(&mut self, stats: &Counters) {
        if let Some(work) = &mut self.work {
            let active = u32::try_from(work.session.active_requests()).unwrap_or(u32::MAX);
            work.count_requests(stats, self.origin.scheme(), active);
            let activity = match self.session.activity(&work.session) {
                // Handshakes are counted by the network.
                _ if self.opening.is_some() => Activity::Idle,
                // It goes on by itself when the others had their quantum.
                Activity::Waiting if work.queued => Activity::Writing,
                activity => activity,
            };
            work.count_activity(stats, activity);
        }
    }

    /// Logs what has been sent of unfinished responses, and the requests whose responses have not begun; lets go of
    /// everything.
    pub(super) fn close(mut self, shell: &mut Shell<Desk>, id: u64, cut: Cut) {
        let is_done = self.is_done();
        if let Some(mut work) = self.work.take() {
            if self.session.looks_whole(&work.session) {
                self.transport.reset(&mut shell.ring);
            }
            while let Some(left) = self.session.next_cut(&mut work.session, shell.cx.now) {
                self.record(shell, &left, Some(cut));
            }
            while let Some(unanswered) = self.session.next_unanswered(&mut work.session) {
                self.record_unanswered(shell, id, &unanswered, cut);
            }
            work.count_requests(&shell.cx.stats, self.origin.scheme(), 0);
            work.count_activity(&shell.cx.stats, Activity::Idle);
        }
        shell.desk.servings.leave_removed(self.origin.listener);
        if is_done {
            self.transport.close_idle(&mut shell.ring);
        } else {
            self.transport.close(&mut shell.ring);
        }
        shell.cx.budget.recount(self.counted.into(), 0);
    }

    /// Returns true if every request was answered and every byte sent.
    pub(super) fn is_done(&self) -> bool {
        self.work.as_ref().is_none_or(|work| work.is_done())
    }

    /// Returns true if it carries the bytes of another protocol, which has no end that the server knows.
    pub(super) fn is_tunnel(&self) -> bool {
        self.work.as_ref().is_some_and(|work| S::is_tunnel(&work.session))
    }

    fn take_work<H: Handler<Answer = A>>(
        &mut self,
        tools: &mut Tools<'_, S, H>,
    ) -> Box<ConnectionWork<S::Work, A>> {
        self.work.take().unwrap_or_else(|| {
            let mut work = tools.spare.0.pop().unwrap_or_default();
            work.session.set_takes(self.transport.takes());
            self.tell_origin(&mut work);
            self.session.adopt(&mut work.session);
            work
        })
    }

    /// Tells the session what is known of the other end.
    fn tell_origin(&self, work: &mut ConnectionWork<S::Work, A>) {
        let (listener, scheme) = (self.origin.listener, self.origin.scheme());
        work.session.set_origin(listener, scheme, self.origin.known_client());
    }

    /// Takes the step that the session said outside of [`proceed`](Self::proceed).
    fn take_step<H: Handler<Answer = A>>(
        &mut self,
        tools: &mut Tools<'_, S, H>,
        next: Next,
    ) -> After {
        match next {
            Next::Wait => After::Keep,
            Next::Close(why) => end(tools.shell, why),
            Next::TurnOver => match &mut self.work {
                None => After::Keep,
                Some(work) if work.queued => After::Keep,
                Some(work) => {
                    work.queued = true;
                    After::Again
                }
            },
            // A session without work may say these, too.
            Next::Pump | Next::Read | Next::ShutDown => {
                let work = self.take_work(tools);
                self.proceed(tools, work)
            }
        }
    }

    /// Returns true if the connection may go on at once. A connection that had its quantum waits in the queue with the
    /// others. With a quantum for each event, many such connections would use the worker for themselves.
    fn may_go_on(&self, work: &ConnectionWork<S::Work, A>) -> bool {
        !work.queued && !self.session.had_its_quantum(&work.session)
    }

    /// Goes on at once, or when its turn comes.
    fn go_on<H: Handler<Answer = A>>(
        &mut self,
        tools: &mut Tools<'_, S, H>,
        work: Box<ConnectionWork<S::Work, A>>,
    ) -> After {
        if self.may_go_on(&work) {
            self.proceed(tools, work)
        } else {
            self.wait_for_turn(tools, work)
        }
    }

    /// Receives as many bytes as the session wants. While bytes wait here, few more are received at a time.
    #[inline]
    fn set_receiving<H: Handler<Answer = A>>(
        &mut self,
        tools: &mut Tools<'_, S, H>,
        work: &ConnectionWork<S::Work, A>,
    ) {
        let shell = &mut *tools.shell;
        let wants_bytes = self.session.wants_bytes(&work.session, &shell.cx, work.input.len());
        let much = work.input.is_empty() && self.session.expects_much(&work.session);
        self.transport.expect_much(much);
        self.transport.set_receiving(&mut shell.ring, wants_bytes);
    }

    /// Enters the worker's queue.
    fn wait_for_turn<H: Handler<Answer = A>>(
        &mut self,
        tools: &mut Tools<'_, S, H>,
        mut work: Box<ConnectionWork<S::Work, A>>,
    ) -> After {
        self.set_receiving(tools, &work);
        let was_queued = core::mem::replace(&mut work.queued, true);
        self.work = Some(work);
        if was_queued { After::Keep } else { After::Again }
    }

    /// Goes on with everything until the connection waits.
    fn proceed<H: Handler<Answer = A>>(
        &mut self,
        tools: &mut Tools<'_, S, H>,
        mut work: Box<ConnectionWork<S::Work, A>>,
    ) -> After {
        let mut stuck = false;
        let after = loop {
            self.begin_responses(tools, &mut work);
            let shell = &mut *tools.shell;
            let ring = &mut shell.ring;
            if let Some(rate) = work.rate.take() {
                self.transport.set_rate(ring, rate);
            }
            if self.session.is_complete(&work.session) {
                self.transport.finish();
            }
            let was_blocked = self.transport.is_blocked();
            let spent = work.spent(shell.cx.turn);
            let (session, transport) = (&mut self.session, &mut self.transport);
            let progress = work.session.pump(session, ring, tools.disk, transport, tools.id, spent);
            while let Some(left) = self.session.next_left(&mut work.session) {
                self.record(shell, &left, None);
            }
            while let Some(failure) = self.session.next_failure(&mut work.session) {
                tell(shell, failure, "gave up the response");
            }
            while let Some(broken) = self.session.next_broken(&mut work.session) {
                self.record_broken(shell, tools.id, &mut work, broken);
            }
            let acknowledged = if matches!(progress, Progress::Blocked) && !was_blocked {
                self.transport.acknowledged(&shell.ring, work.session.queue())
            } else {
                0
            };
            let blocked = self.transport.is_blocked();
            let moved = Moved { progress, blocked, acknowledged, unread: work.input.len(), stuck };
            match self.session.handle_progress(&mut work.session, &mut shell.cx, &moved) {
                Next::Pump => {}
                Next::Read => {
                    let before = work.input.len();
                    self.read_input(tools, &mut work);
                    stuck = work.input.len() == before;
                }
                Next::Wait => break After::Keep,
                Next::TurnOver if core::mem::replace(&mut work.queued, true) => break After::Keep,
                Next::TurnOver => break After::Again,
                Next::ShutDown => {
                    self.transport.shutdown(&mut shell.ring);
                    // The session accepts no more requests, and drops the bytes that wait here.
                    self.read_input(tools, &mut work);
                    break After::Keep;
                }
                Next::Close(why) => break end(shell, why),
            }
        };
        self.set_receiving(tools, &work);
        if cfg!(debug_assertions) && !matches!(after, After::Close(_)) {
            self.session.check(Some(&work.session));
        }
        // A blocked transport may hold back bytes of its own, which leave when the transport is pumped again.
        if after == After::Keep && work.is_idle() && !self.transport.is_blocked() {
            work.count_requests(&tools.shell.cx.stats, self.origin.scheme(), 0);
            work.count_activity(&tools.shell.cx.stats, Activity::Idle);
            work.restart();
            if tools.spare.0.len() < SPARE_MAX {
                tools.spare.0.push(work);
            }
        } else {
            self.work = Some(work);
        }
        after
    }

    fn read_input<H: Handler<Answer = A>>(
        &mut self,
        tools: &mut Tools<'_, S, H>,
        work: &mut ConnectionWork<S::Work, A>,
    ) {
        let input = core::mem::take(&mut work.input);
        let takes = self.transport.takes();
        let taken = read(&mut self.session, &self.origin, takes, tools, work, &input);
        work.input = input;
        work.consume(taken);
    }

    /// Begins the responses whose turn has come.
    fn begin_responses<H: Handler<Answer = A>>(
        &mut self,
        tools: &mut Tools<'_, S, H>,
        work: &mut ConnectionWork<S::Work, A>,
    ) {
        while let Some(turn) = self.session.next_turn(&mut work.session, &mut tools.shell.cx) {
            let kept = if turn.found { work.take_answer(turn.request) } else { None };
            let answer = match kept {
                Some(answer) => answer,
                None => {
                    let ticket = Ticket { connection: tools.id, request: turn.request };
                    let (head, origin) = (&turn.head.as_head(), &self.origin);
                    let standing = turn.standing;
                    let request = Request { head, ticket, origin, standing, is_next: true };
                    match tools.handler.find(tools.shell, &request) {
                        Found::Now(answer) => answer,
                        Found::Later(search) => {
                            self.session.put_back(&mut work.session, turn, search);
                            continue;
                        }
                    }
                }
            };
            let (session, head) = (&mut work.session, &turn.head.as_head());
            work.rate = Some(respond(
                &mut self.session,
                tools,
                session,
                turn.request,
                head,
                &self.origin,
                self.transport.takes(),
                &answer,
            ));
        }
    }
}

/// Gives bytes to the session; returns how many were taken.
fn read<S: Session, H: Handler>(
    session: &mut S,
    origin: &Origin,
    takes: Takes,
    tools: &mut Tools<'_, S, H>,
    work: &mut ConnectionWork<S::Work, H::Answer>,
    bytes: &[u8],
) -> usize {
    let (answers, rate) = (&mut work.answers, &mut work.rate);
    let mut reader = Reader { origin, takes, tools, answers, rate };
    session.handle_bytes(&mut work.session, &mut reader, bytes)
}

/// Finds answers to the requests that a session reads.
struct Reader<'r, 't, S: Session, H: Handler> {
    origin: &'r Origin,
    takes: Takes,
    tools: &'r mut Tools<'t, S, H>,
    answers: &'r mut Vec<(u32, H::Answer)>,
    rate: &'r mut Option<Option<NonZeroU64>>,
}

impl<T: Session, H: Handler> Requests for Reader<'_, '_, T, H> {
    #[inline]
    fn cx(&mut self) -> &mut Context {
        &mut self.tools.shell.cx
    }

    fn consumer(&mut self, request: u32, head: &Head<'_>) -> Reception {
        let ticket = Ticket { connection: self.tools.id, request };
        let origin = self.origin;
        let request = Request { head, ticket, origin, standing: Standing::New, is_next: true };
        self.tools.handler.consumer(self.tools.shell, &request)
    }

    // Inlined: each kind of session has one call, which every request passes.
    #[inline(always)]
    fn handle_request<S: Defer>(
        &mut self,
        session: &mut S,
        work: &mut S::Work,
        request: u32,
        head: &Head<'_>,
        is_next: bool,
        standing: Standing,
    ) {
        let ticket = Ticket { connection: self.tools.id, request };
        let origin = self.origin;
        let asked = Request { head, ticket, origin, standing, is_next };
        match self.tools.handler.find(self.tools.shell, &asked) {
            Found::Now(answer) if is_next => {
                let (origin, takes) = (self.origin, self.takes);
                let rate =
                    respond(session, self.tools, work, request, head, origin, takes, &answer);
                *self.rate = Some(rate);
            }
            Found::Now(answer) => {
                let size = self.tools.handler.size(&answer);
                if session.defer(work, request, head, Found::Now(size)) {
                    self.answers.push((request, answer));
                }
            }
            Found::Later(search) => {
                session.defer(work, request, head, Found::Later(search));
            }
        }
    }
}

/// The session wants the connection closed: the operator is told why if responses are missing.
fn end(shell: &mut Shell<Desk>, why: Why) -> After {
    if let Why::Failed(failure) = why {
        tell(shell, failure, "closed the connection");
    }
    After::Close(match why {
        Why::Done => Cut::Server,
        Why::Failed(failure) => Cut::of(failure),
        Why::Gone => Cut::Client,
        Why::TimedOut => Cut::Timeout,
    })
}

/// Tells the operator why a response is not complete, unless its peer has gone, and what became of
/// it.
fn tell(shell: &mut Shell<Desk>, failure: Failure, outcome: &str) {
    let error = io::Error::from_raw_os_error;
    match failure {
        Failure::Gone => {}
        Failure::Unfinished => {
            shell.note(&format!("a response could not be made to its end; {outcome}"));
        }
        Failure::Truncated => {
            shell.cx.stats.truncated.add(1);
            shell.note(&format!("a file became shorter while it was being sent; {outcome}"));
        }
        Failure::Late => {
            shell.cx.stats.disk_timeouts.add(1);
            let text = format!("a disk did not answer while a file was being sent; {outcome}");
            shell.complain(Complaint::Disk, &text);
        }
        Failure::Unreadable(errno) => {
            shell.cx.stats.disk_errors.add(1);
            shell.note(&format!(
                "a file could not be read while it was being sent: {}; {outcome}",
                error(errno)
            ));
        }
        Failure::NoMemory(errno) | Failure::Unexpected(errno) => {
            shell.note(&format!("a response could not be sent: {}; {outcome}", error(errno)));
        }
    }
}

impl<S: Session, T, A> fmt::Debug for Connection<S, T, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Connection({:?})", self.session)
    }
}
