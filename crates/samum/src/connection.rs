//! One client: requests in, responses out, in order, in bounded memory.
//!
//! ```text
//!              ┌────────────── last request seen ──────────────┐
//!              │                                               ▼
//!   accept ► Open ──(idle, slow or gone: close)──► closed ◄─ Last ──drained──► Lingering ──► closed
//! ```
//!
//! An idle connection is little more than its descriptor: everything else is in [`Work`], which it
//! has only while a request is being read or answered.

use core::time::Duration;
use std::collections::VecDeque;
use std::io;
use std::rc::Rc;

use http::{Head, Method, Reject, Status, Target};
use http1::server::{self, Event as HttpEvent};
use http1::{Framing, Limits, Parsed, Request};
use ring::{Completion, Event, Fd, Time};
use sendfile::{
    Failure, KernelTcp, Owner, Piece, Progress, Stream, Transport as _, Weight, Window,
};

use crate::budget::Budget;
use crate::content::{Answer, Content, Found, ListingStream, Resource, Ticket};
use crate::log::Record;
use crate::respond::CONTINUE;
use crate::shell::{Shell, kind};
use crate::wheel::Tick;

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
/// Bytes of a listing that wait to be sent; more are made when they have left.
const LISTING_BYTES_MAX: u64 = 64 * 1024;
/// Bytes of a listing that are made in one turn.
const LISTING_TURN_BYTES_MAX: u64 = 256 * 1024;
/// Memory of an idle connection's input buffer that is kept for the next one.
const INPUT_BYTES_KEPT: usize = 4 * 1024;

/// A client's connection.
pub(crate) struct Connection {
    id: u64,
    transport: KernelTcp,
    http: server::Connection,
    stage: Stage,
    wait: Wait,
    next_request: u32,
    work: Option<Box<Work>>,
    peer: Option<Box<str>>,
    /// Bytes of its own that the worker's budget counts.
    counted: u64,
    /// Where the earliest entry in the wheel is.
    pub(crate) wheel_tick: Tick,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Open,
    /// The request being answered is the last.
    Last,
    /// Everything is with the kernel; waiting for the peer to close.
    Lingering,
}

/// What the connection waits for, and since when.
#[derive(Clone, Copy, Debug)]
enum Wait {
    /// The first byte of a request.
    Idle(Time),
    /// The rest of a request.
    Request(Time),
    /// The disk, which has all the time it needs: since when, and if it was the peer's turn before,
    /// what that was to be judged by, whose clock has stopped.
    Disk(Time, Option<(Time, i64)>),
    /// The peer to take bytes; so many had it taken then.
    Peer(Time, i64),
    /// The peer to close.
    Close(Time),
}

/// What a connection needs while a request is being read or answered.
#[derive(Debug, Default)]
pub(crate) struct Work {
    pub(crate) stream: Stream,
    /// Requests whose responses are not in the stream yet, in order.
    exchanges: VecDeque<Exchange>,
    /// The listing at the end of the stream, if it is not all there yet.
    pub(crate) listing: Option<Listing>,
    /// Where responses end in the stream.
    ends: VecDeque<End>,
    /// Received and not understood yet.
    input: Vec<u8>,
    /// Whether it stands in the worker's line for another turn.
    queued: bool,
    /// The turn of the worker in which the connection last began a request, and how many it has
    /// begun in it.
    begun: (u64, u32),
}

#[derive(Debug)]
pub(crate) struct Listing {
    pub(crate) pieces: ListingStream,
    /// What the pieces are made of.
    pub(crate) resource: Rc<Resource>,
    /// Whether the client reads chunks (HTTP/1.1), or until the connection closes.
    pub(crate) chunked: bool,
    pub(crate) record: Option<Box<Record>>,
}

/// A request whose turn has not come.
#[derive(Debug)]
struct Exchange {
    request: u32,
    head: Vec<u8>,
    expect_continue: bool,
    /// Whether its body, in chunks, has not been skipped yet: the response has to report its faults.
    awaits_body: bool,
    last: bool,
    lookup: Lookup,
}

/// How far the answer to a request has been looked for.
#[derive(Debug)]
enum Lookup {
    /// The content will deliver it.
    Pending,
    Found(Answer),
    /// It was found, but was too large to be kept until its turn: it is looked for again then.
    Postponed,
}

#[derive(Debug)]
struct End {
    at: u64,
    record: Option<Box<Record>>,
}

/// What the worker does with a connection after it has done something.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum After {
    Keep,
    /// Give it another turn after the others.
    Again,
    Close,
}

impl Connection {
    /// Take an accepted socket.
    pub(crate) fn new(shell: &mut Shell, id: u64, socket: Fd, peer: Option<Box<str>>) -> Self {
        let mut transport = KernelTcp::new(socket, kind::RECV | id, kind::WRITABLE | id);
        transport.set_receiving(&mut shell.ring, true);
        Self {
            id,
            transport,
            http: server::Connection::new(),
            stage: Stage::Open,
            wait: Wait::Idle(shell.now),
            next_request: 0,
            work: None,
            peer,
            counted: 0,
            wheel_tick: Tick::MAX,
        }
    }

    /// Since when the connection has had nothing to do; `None` while a request is received or answered.
    pub(crate) const fn idle_since(&self) -> Option<Time> {
        match self.wait {
            Wait::Idle(since) | Wait::Close(since) => Some(since),
            Wait::Request(_) | Wait::Disk(..) | Wait::Peer(..) => None,
        }
    }

    /// When something must have happened.
    pub(crate) fn deadline(&self, shell: &Shell) -> Option<Time> {
        let tuning = &shell.tuning;
        match self.wait {
            Wait::Idle(since) => Some(since + tuning.timeout_idle),
            Wait::Request(since) => Some(since + tuning.timeout_header),
            Wait::Peer(since, _) => Some(since + tuning.timeout_send),
            Wait::Close(since) => Some(since + LINGER),
            // A client that has ended its side and waits for a disk has most likely gone.
            Wait::Disk(since, _) if self.transport.has_ended() => Some(since + tuning.timeout_send),
            Wait::Disk(..) => None,
        }
    }

    /// The deadline has passed.
    pub(crate) fn handle_deadline(&mut self, shell: &mut Shell, content: &mut Content) -> After {
        match self.wait {
            Wait::Peer(since, then) => {
                let Some(work) = &mut self.work else { return After::Keep };
                let taken = self.transport.acknowledged(&shell.ring, work.stream.queue());
                let fresh = u64::try_from(taken.wrapping_sub(then)).unwrap_or(0);
                let millis = u64::try_from(shell.now.since(since).as_millis()).unwrap_or(u64::MAX);
                let asked = shell.tuning.rate_min.saturating_mul(millis) / 1000;
                if fresh >= asked.max(1) {
                    self.wait = Wait::Peer(shell.now, taken);
                    return After::Keep;
                }
                shell.stats.slow_peers += 1;
                After::Close
            }
            Wait::Idle(_) => {
                shell.stats.timeouts += 1;
                After::Close
            }
            Wait::Request(_) => {
                shell.stats.timeouts += 1;
                // Whose body is late has its answer, unless that waits for the body.
                let unanswered = |work: &mut Box<Work>| self.http.is_idle() || work.awaits_body();
                let Some(mut work) = self.work.take_if(unanswered) else { return After::Close };
                let reason = "the request took too long";
                self.reject(shell, &mut work, Reject { status: Status::RequestTimeout, reason });
                self.proceed(shell, content, work)
            }
            Wait::Close(_) => After::Close,
            Wait::Disk(..) if self.transport.has_ended() => {
                shell.stats.timeouts += 1;
                After::Close
            }
            Wait::Disk(..) => After::Keep,
        }
    }

    /// Take a completion of the receive.
    pub(crate) fn handle_receive(
        &mut self,
        shell: &mut Shell,
        content: &mut Content,
        completion: Completion,
    ) -> After {
        match completion.result {
            Ok(Event::Received(bytes)) => {
                if self.stage != Stage::Open {
                    return After::Keep;
                }
                let mut work = self.take_work(shell);
                if work.input.is_empty() {
                    let taken = self.read(shell, content, &mut work, &bytes);
                    work.input.extend_from_slice(&bytes[taken..]);
                } else {
                    work.input.extend_from_slice(&bytes);
                    self.read_input(shell, content, &mut work);
                }
                drop(bytes);
                self.proceed(shell, content, work)
            }
            Ok(Event::Eof) => {
                self.transport.handle_end();
                if self.stage == Stage::Lingering {
                    return After::Close;
                }
                match self.work.take() {
                    None => After::Close,
                    Some(work) => self.proceed(shell, content, work),
                }
            }
            Ok(event) => unreachable!("a receive brought {event:?}"),
            Err(error) if error.raw_os_error() == Some(ECANCELED) => {
                self.transport.handle_receive_stopped();
                // By now everything may have been answered; there may be more to receive.
                let work = self.take_work(shell);
                self.proceed(shell, content, work)
            }
            Err(_) => After::Close,
        }
    }

    /// The socket can take bytes.
    pub(crate) fn handle_writable(&mut self, shell: &mut Shell, content: &mut Content) -> After {
        self.transport.handle_writable();
        let Some(work) = self.work.take() else { return After::Keep };
        self.proceed(shell, content, work)
    }

    /// A read has ended.
    pub(crate) fn handle_read(
        &mut self,
        shell: &mut Shell,
        content: &mut Content,
        done: sendfile::ReadDone,
    ) -> After {
        let Some(mut work) = self.work.take() else { return After::Keep };
        work.stream.handle_read(&shell.ring, done);
        self.proceed(shell, content, work)
    }

    /// There is room on the disk, or it is this connection's turn again.
    pub(crate) fn handle_turn(
        &mut self,
        shell: &mut Shell,
        content: &mut Content,
        from_line: bool,
    ) -> After {
        let Some(mut work) = self.work.take() else { return After::Keep };
        if !from_line {
            work.queued = false;
        }
        self.proceed(shell, content, work)
    }

    /// The answer to one of the requests has been found.
    pub(crate) fn handle_answer(
        &mut self,
        shell: &mut Shell,
        content: &mut Content,
        ticket: Ticket,
        answer: Answer,
    ) -> After {
        let Some(mut work) = self.work.take() else { return After::Keep };
        work.answered(&shell.budget, ticket.request, answer);
        self.proceed(shell, content, work)
    }

    /// Give back the memory of what the peer does not take.
    pub(crate) fn reclaim(&mut self) {
        if let Some(work) = &mut self.work {
            work.stream.reclaim();
        }
    }

    /// Take no more requests, and close as soon as nothing is being answered either.
    pub(crate) fn finish(&mut self) -> After {
        self.http.close();
        if self.stage == Stage::Open {
            self.stage = Stage::Last;
        }
        let Some(work) = self.work.as_mut().filter(|work| !work.is_idle()) else {
            return After::Close;
        };
        let Some(last) = work.exchanges.back_mut() else { return After::Keep };
        last.last = true;
        if core::mem::take(&mut last.awaits_body) && !core::mem::replace(&mut work.queued, true) {
            return After::Again;
        }
        After::Keep
    }

    /// Log what has been sent of unfinished responses, and let go of everything.
    pub(crate) fn close(mut self, shell: &mut Shell) {
        if let Some(mut work) = self.work.take() {
            let sent = work.stream.sent();
            while let Some(end) = work.ends.pop_front() {
                if let Some(record) = end.record {
                    self.log(shell, &record, sent);
                }
            }
            if let Some(record) = work.listing.and_then(|listing| listing.record) {
                self.log(shell, &record, sent);
            }
        }
        self.transport.close(&mut shell.ring);
        shell.budget.recount(self.counted, 0);
    }

    fn take_work(&mut self, shell: &mut Shell) -> Box<Work> {
        self.work.take().or_else(|| shell.spare.pop()).unwrap_or_default()
    }

    fn read_input(&mut self, shell: &mut Shell, content: &mut Content, work: &mut Work) {
        let mut input = core::mem::take(&mut work.input);
        let taken = self.read(shell, content, work, &input);
        input.drain(..taken);
        work.input = input;
    }

    /// Understand what was received; returns how much of it.
    fn read(
        &mut self,
        shell: &mut Shell,
        content: &mut Content,
        work: &mut Work,
        bytes: &[u8],
    ) -> usize {
        let mut at = 0;
        while at < bytes.len()
            && self.stage == Stage::Open
            && !work.is_full(&shell.budget)
            && !work.had_its_turn(shell.turn)
        {
            let was_idle = self.http.is_idle();
            let (taken, event) = self.http.handle_input(&bytes[at..], &Limits::DEFAULT);
            let raw = &bytes[at..at + taken];
            at += taken;
            match event {
                HttpEvent::Partial => break,
                HttpEvent::BodySkipped => work.body_skipped(),
                HttpEvent::Request(request) => self.request(shell, content, work, raw, &request),
                HttpEvent::Rejected(reject) if was_idle || work.awaits_body() => {
                    self.reject(shell, work, reject);
                }
                // A fault in the body of a request that has been answered already.
                HttpEvent::Rejected(_) => self.stage = Stage::Last,
                HttpEvent::Closed => self.stage = Stage::Last,
            }
        }
        if self.stage == Stage::Open { at } else { bytes.len() }
    }

    fn request(
        &mut self,
        shell: &mut Shell,
        content: &mut Content,
        work: &mut Work,
        raw: &[u8],
        received: &Request<'_>,
    ) {
        if !received.keep_alive {
            self.stage = Stage::Last;
        }
        // The time that the next one may take begins when this one is complete.
        if matches!(self.wait, Wait::Request(_)) {
            self.wait = Wait::Idle(shell.now);
        }
        work.begins(shell.turn);
        let request = self.next_request;
        self.next_request = request.wrapping_add(1);
        let found = self.find(shell, content, request, &received.head);
        // One that is not skipped is not looked at.
        let awaits_body = received.framing == Framing::Chunked && received.keep_alive;
        let lookup = match found {
            Found::Now(answer)
                if !awaits_body && work.exchanges.is_empty() && work.listing.is_none() =>
            {
                return self.respond(
                    shell,
                    work,
                    &received.head,
                    &answer,
                    received.expect_continue,
                    !received.keep_alive,
                );
            }
            Found::Now(answer) if work.exchanges.is_empty() || !answer.holds_files() => {
                Lookup::Found(answer)
            }
            Found::Now(_) => Lookup::Postponed,
            Found::Later => Lookup::Pending,
        };
        work.exchanges.push_back(Exchange {
            request,
            head: raw.to_vec(),
            expect_continue: received.expect_continue,
            awaits_body,
            last: !received.keep_alive,
            lookup,
        });
    }

    /// Looks for the answer to a request.
    fn find(
        &self,
        shell: &mut Shell,
        content: &mut Content,
        request: u32,
        head: &Head<'_>,
    ) -> Found {
        match (head.method, head.target) {
            (Method::Get | Method::Head, Target::Origin { path, .. }) => {
                content.find(shell, path, Ticket { connection: self.id, request })
            }
            (Method::Get | Method::Head, Target::Asterisk) => {
                Found::Now(Answer::Error(Status::BadRequest))
            }
            (Method::Options, _) => Found::Now(Answer::Options),
            (method, _) if method.is_known() => Found::Now(Answer::Error(Status::MethodNotAllowed)),
            _ => Found::Now(Answer::Error(Status::NotImplemented)),
        }
    }

    /// Refuse what cannot be understood; in its turn, if others are being answered.
    fn reject(&mut self, shell: &mut Shell, work: &mut Work, reject: Reject) {
        self.stage = Stage::Last;
        let answer = Answer::Rejected(reject);
        // It takes the place of the answer to the request that has the faulty body.
        if work.awaits_body() {
            work.exchanges.pop_back();
        }
        if work.exchanges.is_empty() && work.listing.is_none() {
            self.respond_without_request(shell, work, &answer);
        } else {
            work.exchanges.push_back(Exchange {
                request: self.next_request,
                head: Vec::new(),
                expect_continue: false,
                awaits_body: false,
                last: true,
                lookup: Lookup::Found(answer),
            });
        }
    }

    /// Put responses into the stream whose turn has come, as far as the budget allows.
    fn answer_in_order(&mut self, shell: &mut Shell, content: &mut Content, work: &mut Work) {
        while work.listing.is_none() {
            work.invite_body();
            if !work.may_respond(&shell.budget) {
                return;
            }
            if !work.exchanges.front().is_some_and(Exchange::is_ready) {
                return;
            }
            let Some(mut exchange) = work.exchanges.pop_front() else { return };
            let parsed = http1::parse(&exchange.head, &Limits::DEFAULT);
            let head = match &parsed {
                Ok(Parsed::Complete { request, .. }) => Some(&request.head),
                // What was refused has no head.
                _ => None,
            };
            let lookup = core::mem::replace(&mut exchange.lookup, Lookup::Pending);
            let found = match (lookup, head) {
                (Lookup::Found(answer), _) => Found::Now(answer),
                (Lookup::Postponed, Some(head)) => {
                    self.find(shell, content, exchange.request, head)
                }
                _ => {
                    unreachable!("only what was found is ready, and only what has a head is found")
                }
            };
            match (found, head) {
                (Found::Now(answer), Some(head)) => {
                    let (expect_continue, last) = (exchange.expect_continue, exchange.last);
                    self.respond(shell, work, head, &answer, expect_continue, last);
                }
                (Found::Now(answer), None) => self.respond_without_request(shell, work, &answer),
                (Found::Later, _) => return work.exchanges.push_front(exchange),
            }
        }
    }

    /// Go on with whatever can be gone on with, until everything waits.
    fn proceed(&mut self, shell: &mut Shell, content: &mut Content, mut work: Box<Work>) -> After {
        let mut listed = 0;
        let after = loop {
            self.answer_in_order(shell, content, &mut work);
            let window = Window(shell.tuning.readahead);
            let (ring, disk, owner) = (&mut shell.ring, &mut shell.disk, Owner::of(self.id));
            let progress = work.stream.pump(ring, disk, &mut self.transport, owner, window);
            self.log_sent(shell, &mut work);
            match progress {
                Progress::Drained => {
                    if work.listing.is_some() {
                        if listed >= LISTING_TURN_BYTES_MAX {
                            break self.over(shell);
                        }
                        listed += work.write_listing();
                        continue;
                    }
                    if work.exchanges.front().is_some_and(Exchange::is_ready) {
                        continue;
                    }
                    if !work.input.is_empty() && self.stage == Stage::Open {
                        if work.had_its_turn(shell.turn) {
                            break self.over(shell);
                        }
                        let before = work.input.len();
                        self.read_input(shell, content, &mut work);
                        if !work.stream.is_drained() || work.input.len() < before {
                            continue;
                        }
                    }
                    break self.drained(shell, &work);
                }
                Progress::Blocked => {
                    if !matches!(self.wait, Wait::Peer(..)) {
                        let queue = work.stream.queue();
                        let taken = self.transport.acknowledged(&shell.ring, queue);
                        self.wait = self.wait.then_peer(shell.now, taken);
                    }
                    break After::Keep;
                }
                Progress::Waiting => {
                    self.wait = self.wait.then_disk(shell.now);
                    break After::Keep;
                }
                Progress::More => break self.over(shell),
                Progress::Failed(failure) => {
                    self.note_failure(shell, failure);
                    break After::Close;
                }
            }
        };
        let after = if after == After::Again && core::mem::replace(&mut work.queued, true) {
            After::Keep
        } else {
            after
        };
        self.adjust_receiving(shell, &work);
        if work.is_idle() && work.input.is_empty() && after == After::Keep {
            work.restart();
            shell.give_spare(work);
        } else {
            self.work = Some(work);
        }
        after
    }

    /// Tell the budget what the connection holds now.
    pub(crate) fn recount(&mut self, budget: &mut Budget) {
        let own = self.work.as_ref().map_or(0, |work| {
            let fixed = size_of::<Work>() + work.input.capacity();
            work.weight().own + fixed as u64
        });
        budget.recount(core::mem::replace(&mut self.counted, own), own);
    }

    /// The turn is over, and there is more to do. The wait for another is no longer than for a disk;
    /// the peer is still judged.
    fn over(&mut self, shell: &Shell) -> After {
        if !matches!(self.wait, Wait::Peer(..)) {
            self.wait = self.wait.then_disk(shell.now);
        }
        After::Again
    }

    /// Everything promised is with the kernel.
    fn drained(&mut self, shell: &mut Shell, work: &Work) -> After {
        match work.exchanges.front() {
            None => {}
            Some(exchange) if exchange.awaits_body => return self.await_request(shell),
            Some(_) => {
                self.wait = self.wait.then_disk(shell.now);
                return After::Keep;
            }
        }
        match self.stage {
            _ if self.transport.has_ended() => After::Close,
            Stage::Last => {
                self.transport.shutdown(&mut shell.ring);
                self.stage = Stage::Lingering;
                self.wait = Wait::Close(shell.now);
                After::Keep
            }
            Stage::Lingering => After::Keep,
            Stage::Open if work.input.is_empty() && self.http.is_idle() => {
                self.wait = Wait::Idle(shell.now);
                After::Keep
            }
            Stage::Open => self.await_request(shell),
        }
    }

    /// The rest of a request, its body included, has to come.
    fn await_request(&mut self, shell: &Shell) -> After {
        if self.transport.has_ended() {
            return After::Close;
        }
        if !matches!(self.wait, Wait::Request(_)) {
            self.wait = Wait::Request(shell.now);
        }
        After::Keep
    }

    /// The response just put into the stream ends the connection, whatever the request said.
    pub(crate) fn end_after(&mut self, work: &mut Work) {
        if self.stage == Stage::Open {
            self.http.close();
            self.stage = Stage::Last;
            work.exchanges.clear();
            work.input.clear();
        }
    }

    /// Receive while there is room for more requests, and not otherwise.
    fn adjust_receiving(&mut self, shell: &mut Shell, work: &Work) {
        let has_room = || !work.is_full(&shell.budget) && work.input.len() < INPUT_BYTES_MAX;
        let wanted = self.stage != Stage::Open || has_room();
        self.transport.set_receiving(&mut shell.ring, wanted);
    }

    fn log_sent(&self, shell: &mut Shell, work: &mut Work) {
        let sent = work.stream.sent();
        while work.ends.front().is_some_and(|end| end.at <= sent) {
            if let Some(End { record: Some(record), .. }) = work.ends.pop_front() {
                self.log(shell, &record, sent);
            }
        }
    }

    fn log(&self, shell: &mut Shell, record: &Record, sent: u64) {
        let now = shell.now;
        if let Some(access) = &mut shell.access {
            let bytes = sent.saturating_sub(record.body_at).min(record.body_bytes);
            access.record(record, self.peer.as_deref().unwrap_or("-"), bytes, now);
        }
    }

    fn note_failure(&self, shell: &mut Shell, failure: Failure) {
        match failure {
            Failure::Gone => {}
            Failure::Truncated => {
                shell.stats.truncated += 1;
                shell.note("a file became shorter while it was being sent; closed the connection");
            }
            Failure::Unreadable(errno) => {
                shell.stats.disk_errors += 1;
                let error = io::Error::from_raw_os_error(errno);
                shell.note(&format!("a file could not be read while it was being sent: {error}; closed the connection"));
            }
            Failure::NoMemory(errno) | Failure::Unexpected(errno) => {
                let error = io::Error::from_raw_os_error(errno);
                shell
                    .note(&format!("a response could not be sent: {error}; closed the connection"));
            }
        }
    }
}

impl Wait {
    /// The socket is full.
    fn then_peer(self, now: Time, taken: i64) -> Self {
        match self {
            Self::Peer(..) => self,
            Self::Disk(began, Some((since, then))) => Self::Peer(since + now.since(began), then),
            _ => Self::Peer(now, taken),
        }
    }

    /// Bytes have to be read.
    fn then_disk(self, now: Time) -> Self {
        match self {
            Self::Disk(..) => self,
            Self::Peer(since, then) => Self::Disk(now, Some((since, then))),
            _ => Self::Disk(now, None),
        }
    }
}

const ECANCELED: i32 = rustix::io::Errno::CANCELED.raw_os_error();

impl Work {
    /// Whether nothing is being answered, and no read is in flight.
    fn is_idle(&self) -> bool {
        self.stream.is_drained()
            && self.exchanges.is_empty()
            && self.listing.is_none()
            && !self.stream.is_reading()
            && !self.queued
    }

    /// Memory that waits to be sent, answered or logged.
    fn weight(&self) -> Weight {
        let mut weight = self.stream.weight();
        self.exchanges.iter().for_each(|exchange| weight += exchange.weight());
        self.ends.iter().for_each(|end| weight += end.weight());
        if let Some(listing) = &self.listing {
            weight.shared += listing.resource.memory as u64;
        }
        weight
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

    /// Whether the connection has begun as many requests in this turn of the worker as it may.
    fn had_its_turn(&self, turn: u64) -> bool {
        self.begun == (turn, TURN_REQUESTS_MAX)
    }

    /// A request begins in this turn of the worker.
    const fn begins(&mut self, turn: u64) {
        let (last, count) = self.begun;
        self.begun = (turn, if last == turn { count + 1 } else { 1 });
    }

    /// The answer to a request has been found. Only that of the next response is kept if it is large,
    /// or holds open files: those that wait for it could keep it from being opened.
    fn answered(&mut self, budget: &Budget, request: u32, answer: Answer) {
        let held = self.weight();
        let mut waiting = self.exchanges.iter_mut().enumerate();
        let Some((place, exchange)) = waiting.find(|(_, other)| other.request == request) else {
            return;
        };
        let mut with_it = held;
        with_it.shared += weight_of(&answer);
        exchange.lookup = if place == 0 || (!answer.holds_files() && budget.allows(with_it)) {
            Lookup::Found(answer)
        } else {
            Lookup::Postponed
        };
    }

    /// Nothing is left to do: what is kept serves another connection, of which it must know nothing.
    pub(crate) fn restart(&mut self) {
        debug_assert!(self.is_idle() && self.ends.is_empty() && self.input.is_empty());
        self.stream.restart();
        self.input.shrink_to(INPUT_BYTES_KEPT);
        self.begun = (0, 0);
    }

    /// Whether the last request that was read has a body that its response waits for.
    fn awaits_body(&self) -> bool {
        self.exchanges.back().is_some_and(|exchange| exchange.awaits_body)
    }

    /// The body of the last request that was read has been skipped.
    fn body_skipped(&mut self) {
        if let Some(exchange) = self.exchanges.back_mut() {
            exchange.awaits_body = false;
        }
    }

    /// Say that the body may come, if its response waits for it and the client for that.
    fn invite_body(&mut self) {
        if let Some(exchange) = self.exchanges.front_mut()
            && exchange.awaits_body
            && core::mem::take(&mut exchange.expect_continue)
        {
            self.stream.push(Piece::Static(CONTINUE));
        }
    }

    /// The response ends where the stream ends now.
    pub(crate) fn end_response(&mut self, record: Option<Box<Record>>) {
        self.ends.push_back(End { at: self.stream.promised(), record });
    }

    /// Put more of the listing into the stream; returns how many bytes.
    fn write_listing(&mut self) -> u64 {
        let before = self.stream.promised();
        while let Some(listing) = &mut self.listing
            && self.stream.promised() - before < LISTING_BYTES_MAX
        {
            let piece = listing.pieces.next_piece();
            let ended = piece.is_none();
            let mut bytes = piece.unwrap_or_default();
            if listing.chunked {
                let size = format!("{:x}\r\n", bytes.len()).into_bytes();
                bytes.splice(0..0, size);
                bytes.extend_from_slice(b"\r\n");
            }
            if !bytes.is_empty() {
                self.stream.push(Piece::Bytes(bytes));
            }
            if ended {
                let mut record = self.listing.take().and_then(|listing| listing.record);
                if let Some(record) = &mut record {
                    record.body_bytes = self.stream.promised() - record.body_at;
                }
                self.end_response(record);
            }
        }
        self.stream.promised() - before
    }
}

impl Exchange {
    /// Whether its response can begin.
    const fn is_ready(&self) -> bool {
        !matches!(self.lookup, Lookup::Pending) && !self.awaits_body
    }

    fn weight(&self) -> Weight {
        let shared = if let Lookup::Found(answer) = &self.lookup { weight_of(answer) } else { 0 };
        Weight { own: (size_of::<Self>() + self.head.capacity()) as u64, shared }
    }
}

impl End {
    fn weight(&self) -> Weight {
        let record = self.record.as_ref().map_or(0, |record| record.memory());
        Weight { own: (size_of::<Self>() + record) as u64, shared: 0 }
    }
}

/// Memory that an answer keeps alive.
fn weight_of(answer: &Answer) -> u64 {
    if let Answer::Resource(resource) = answer { resource.memory as u64 } else { 0 }
}

impl core::fmt::Debug for Connection {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Connection({:?}, {:?})", self.stage, self.wait)
    }
}
