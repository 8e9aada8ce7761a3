//! Requests that are passed on to upstreams.
//!
//! ```text
//!   consumer ──► Input ──┐                        ┌ head ──► Answer
//!                        ├─► Exchange ──► Link ───┤
//!   request::write ──────┘   (upstream)           └ content ─► Output ──► producer
//! ```
//!
//! A [`Proxy`] has all exchanges of a worker. An exchange is a request and its response. [`request`] writes the head of
//! the request, and [`response`](mod@response) interprets the head of the response. [`wire`] knows the upstream's
//! protocol, and `exchange` moves the bytes.
//!
//! No head is copied from the peer. Each head is written anew from the parsed head. Three tests check this: the corpus
//! of `http_desync_guardian`, a property test, and a set of real servers and proxies (`tests/garden`). If the upstream
//! stops before the head of its response, the client gets a 502 or 504. If the upstream stops later, the response is
//! cut off. If only the end of the connection marks the end of the response (HTTP/1.0), samum cuts the response off by
//! a reset of the client's connection.
//!
//! An upstream has one duty at a time: to accept the connection, to receive waiting bytes of the request, or to send.
//! Only progress in this duty extends its deadline. It has no duty while the client that sent the request has to act
//! first.

mod exchange;
mod location;
pub mod request;
pub mod response;
mod spool;
mod trailers;
pub mod wire;

use core::cell::RefCell;
use core::time::Duration;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use http::{ResponseHead, Status};
use ring::{Completion, Key, Op, Slab, Time};
use sendfile::Account;

use self::exchange::pull::Pools;
use self::exchange::{Exchange, SURPLUS, Tools};
use self::request::{HEAD_BYTES_MAX, TooLong};
use self::response::{HandOver, Passed, Target};
use self::wire::Wire;
use crate::bodies::{Bodies, Needs};
use crate::held::Held;
use crate::input::Input;
use crate::interest::{Interest, News, Waiter};
use crate::lines::Lines;
use crate::output::{EARLY_BYTES_MAX, Output, OutputProducer};
use crate::quota::Quota;
use session::handler::{
    AnswerSize, Body, Consumer, Found, Interim, Keep, Part, Request, Response, Search, Ticket,
};
use session::kind::{self, id_of};
use session::page;
use session::page::bare;
use session::reason::Reason;
use session::record::UpstreamTimes;
use session::shell::Shell;
use session::wheel::{Tick, Wheel};
use upstream::checks::Checks;
use upstream::{LinkEvent, LinkNews, Links, Server, Upstream};

/// The precision of the deadlines of exchanges.
const TICK: Duration = Duration::from_millis(100);
/// The time between two checks of the kept links.
const TIDY_TIME: Duration = Duration::from_secs(1);
/// The maximum number of buffers for heads that are kept for later requests: about the requests of one worker turn.
const TEXTS_MAX: usize = 64;
/// The maximum bytes of each kept buffer.
const TEXT_BYTES_MAX: usize = 4 * 1024;
/// The first capacity of a buffer for a head; most heads fit.
const TEXT_BYTES: usize = 1024;
/// Exchanges of one worker; further requests are refused (503).
const EXCHANGES_MAX: usize = 16_384;
/// The maximum number of deadlines that are handled in one worker turn. When an upstream dies, thousands may expire at
/// once. Each costs 3 µs, including the answer.
const EXPIRIES_MAX: usize = 128;

/// The time in a worker turn for moving long contents from upstreams to clients (pulling). There is one such time for
/// newly received bytes, and later another one for exchanges that get another quantum or whose clients have made room.
/// Other parts of a worker turn have this limit, too.
const PULL_TIME: Duration = Duration::from_micros(400);

const _: () = assert!(HEAD_BYTES_MAX == 64 * 1024, "the message says so");

/// The exchanges of a worker with upstreams.
#[derive(Debug)]
pub struct Proxy {
    /// They are boxed, because they are large and would be copied several times.
    exchanges: Slab<Box<Exchange>>,
    wheel: Wheel,
    links: Links,
    checks: Checks,
    news: Rc<RefCell<News>>,
    /// News without content, whose memory is used again.
    spare_news: News,
    /// Buffers of sent heads, which are used again.
    texts: Vec<Rc<Vec<u8>>>,
    answers: VecDeque<(Ticket, Answer)>,
    interims: VecDeque<(Ticket, Interim)>,
    /// Requests whose producers or consumers can go on.
    woken: VecDeque<Ticket>,
    /// Exchanges whose quantum was over before they were done. Some may have ended since.
    again: VecDeque<Key>,
    /// The worker turn in which [`act`](Self::act) last gave out quanta.
    turn: u64,
    /// When the time for pulls in this turn ends; `None` until the first pull.
    pull_until: Option<Time>,
    /// Entries of the wheel that have expired and were not handled yet.
    expired: VecDeque<(u64, Tick)>,
    /// The time of the next tick, for which a timer is in flight.
    tick_at: Option<Time>,
    /// When the links were last looked at.
    tidied: Time,
    bodies: Bodies,
    lines: Lines,
    pools: Pools,
}

/// The answer to a request that was passed on.
#[derive(Debug)]
pub enum Answer {
    /// The status of an error, and the reason for the operator; there is no response of an upstream.
    Error(Status, Reason),
    /// The response of an upstream.
    Response(Box<Reached>),
    /// The upstream has handed the request over. The request is held back until its destination is known.
    HandOver(Box<HandOver>, Arc<Server>, Held),
}

/// A request on its way to an upstream.
#[derive(Debug)]
pub struct Passing<'a> {
    /// The upstream that the route names.
    pub upstream: &'a Arc<Upstream>,
    /// The [key](Upstream::key) of the request.
    pub affinity: u64,
    /// The request in the protocol of the upstream.
    pub wire: Wire,
    /// The held request, if it was held back.
    pub held: Option<Held>,
}

/// A response that has begun.
#[derive(Debug)]
pub struct Reached {
    passed: Passed,
    /// True if content follows, or a tunnel.
    has_content: bool,
    output: Rc<RefCell<Output>>,
    interest: Rc<Interest>,
    /// The reason for the operator, if the response is an error.
    reason: Option<Reason>,
    /// The times of the upstream, if there is a log.
    times: Option<Rc<UpstreamTimes>>,
}

impl Proxy {
    /// Makes a proxy without exchanges. All cyclic buffers together have at most `buffers_bytes_max` bytes. These are charged
    /// to `account`, as are the bytes that links with TLS have opened. `quota` limits the files of bodies.
    pub fn new(account: &Account, buffers_bytes_max: u64, quota: Arc<Quota>) -> Self {
        Self {
            exchanges: Slab::new(),
            wheel: Wheel::new(Time::default(), TICK),
            links: Links::new(kind::LINK, kind::LINK_WRITABLE, account),
            checks: Checks::new(kind::CHECK, kind::CHECK_WRITABLE),
            news: Rc::default(),
            spare_news: News::default(),
            texts: Vec::new(),
            answers: VecDeque::new(),
            interims: VecDeque::new(),
            woken: VecDeque::new(),
            again: VecDeque::new(),
            turn: 0,
            pull_until: None,
            expired: VecDeque::new(),
            tick_at: None,
            tidied: Time::default(),
            bodies: Bodies::new(kind::FASTCGI_BODY, quota),
            lines: Lines::default(),
            pools: Pools::new(account, buffers_bytes_max),
        }
    }

    /// Returns a consumer for the body of a request, with the limit `bytes_max`. For an upgrade the consumer also
    /// receives the bytes after the request. The session asks for the request's answer next.
    pub fn consumer(
        &mut self,
        request: &Request<'_>,
        needs: Needs,
        bytes_max: u64,
    ) -> Option<Box<dyn Consumer>> {
        let framing = request.head.framing;
        let awaits_tunnel =
            matches!(needs, Needs::Nothing) && request::upgrade(request.head).is_some();
        if !framing.has_content() && !awaits_tunnel {
            return None;
        }
        let limits = (bytes_max, awaits_tunnel);
        Some(self.bodies.offer(request.ticket, framing, needs, limits, &self.news))
    }

    /// Takes the offered body of a request, if there is one, before the search for its answer begins.
    pub fn take_body(&mut self, ticket: Ticket) -> Option<Rc<RefCell<Input>>> {
        self.bodies.take(ticket)
    }

    /// Puts back a body that [`take_body`](Self::take_body) returned. The next call must search for the answer to its request.
    pub fn give_back(&mut self, ticket: Ticket, body: Rc<RefCell<Input>>) {
        self.bodies.give_back(ticket, body);
    }

    /// Holds back a request that may be passed on, with its body. Returns the held request, and the [`Search`] that the
    /// client's session keeps while it waits.
    pub fn hold(&mut self, ticket: Ticket, waiter: Waiter) -> (Held, Rc<dyn Search>) {
        let interest = Rc::new(Interest::new(Key::NONE, waiter.half_close, Rc::clone(&self.news)));
        interest.set_memory(waiter.memory as u64);
        let input = self.bodies.take(ticket);
        let held = Held::new(Rc::downgrade(&interest), input);
        (held, interest)
    }

    /// Passes a request on.
    pub fn find(
        &mut self,
        shell: &mut Shell,
        request: &Request<'_>,
        Passing { upstream, affinity, wire, held }: Passing<'_>,
        waiter: Waiter,
    ) -> Found<Answer> {
        let ticket = request.ticket;
        let (interest, input) = match held {
            Some(held) => held.into_parts(),
            None => {
                let input = self.bodies.take(ticket);
                let interest = Interest::new(Key::NONE, waiter.half_close, Rc::clone(&self.news));
                (Some(Rc::new(interest)), input)
            }
        };
        let has_no_room = input.as_ref().is_some_and(|input| input.borrow().has_no_room());
        let is_too_much = self.exchanges.len() >= EXCHANGES_MAX
            || has_no_room
            || (wire.has_body() && input.is_none());
        let is_too_long = input.as_ref().is_some_and(|input| input.borrow().is_too_long());
        let refusal = wire
            .refusal
            .map(|status| (status, Reason::NotPassedOn))
            .or_else(|| is_too_long.then_some((Status::ContentTooLarge, Reason::BodyTooLong)))
            .or_else(|| is_too_much.then_some((Status::ServiceUnavailable, Reason::NoRoom)));
        let (None, Some(interest)) = (&refusal, interest) else {
            if let Some(input) = input {
                input.borrow_mut().drop_rest();
            }
            let (status, reason) = refusal.unwrap_or((Status::ServiceUnavailable, Reason::Gone));
            return Found::Now(Answer::Error(status, reason));
        };
        shell.cx.stats.proxied.add(1);
        let exchange =
            Exchange::new(request, &shell.cx.budget.shared, upstream, affinity, input, wire);
        interest.set_memory((waiter.memory + exchange.memory()) as u64);
        interest.reserve(EARLY_BYTES_MAX);
        let key = self.exchanges.insert(Box::new(exchange));
        interest.pass_to(key, &self.news);
        self.look_soon(shell, key);
        self.step(shell, key, |exchange, tools| exchange.begin(tools, key, &interest));
        self.tick_later(shell);
        Found::Later(Some(interest))
    }

    /// The memory that an answer keeps. The response of an upstream cannot be found again, so the connection always keeps
    /// it.
    pub fn size(answer: &Answer) -> AnswerSize {
        let Answer::Response(reached) = answer else { return AnswerSize::default() };
        let shared = reached.output.borrow().reserved();
        AnswerSize { shared, holds_files: false, keep: Keep::Always }
    }

    /// Continues exchanges that need another quantum, exchanges whose deadline has passed, and exchanges with news from
    /// clients or bodies.
    pub fn act(&mut self, shell: &mut Shell) {
        if core::mem::replace(&mut self.turn, shell.cx.turn) != shell.cx.turn {
            self.pull_until = None;
            // Exchanges that get no time now are first in the next turn.
            for nth in 0..self.again.len() {
                if is_pull_over(&mut self.pull_until, shell) && nth > 0 {
                    break;
                }
                let Some(key) = self.again.pop_front() else { break };
                self.step(shell, key, Exchange::handle_turn);
            }
            while let Some(taken) = self.links.next_step(&mut shell.ring, shell.cx.turn) {
                if let Some((key, event)) = taken {
                    self.handle_event(shell, key, event);
                }
            }
            self.expire(shell);
        }
        loop {
            let has_acted = self.bodies.go_on(shell, &mut self.woken);
            if self.news.borrow().is_empty() {
                if has_acted {
                    continue;
                }
                return;
            }
            let spare = core::mem::take(&mut self.spare_news);
            let mut news = self.news.replace(spare);
            for key in news.left.drain(..) {
                self.step(shell, key, Exchange::handle_left);
            }
            for key in news.touched.drain(..) {
                self.step(shell, key, Exchange::handle_touched);
            }
            self.spare_news = news;
        }
    }

    /// Returns a buffer for the head of a request. Nothing else refers to this buffer.
    pub fn text(&mut self) -> Rc<Vec<u8>> {
        self.texts.pop().unwrap_or_else(|| Rc::new(Vec::with_capacity(TEXT_BYTES)))
    }

    /// Checks the servers of these upstreams from now on, if their rules say so.
    pub fn watch<'a>(
        &mut self,
        shell: &mut Shell,
        upstreams: impl Iterator<Item = &'a Arc<Upstream>>,
    ) {
        self.checks.watch(&mut shell.ring, upstreams, shell.cx.now);
    }

    /// Handles a completion of one of the checks' operations.
    pub fn handle_check(&mut self, shell: &mut Shell, completion: Completion) {
        let (turn, now) = (shell.cx.turn, shell.cx.now);
        let notes = self.checks.handle(&mut shell.ring, completion, turn, now);
        for note in notes.iter().flat_map(|notes| notes.lines()) {
            shell.note(note);
        }
    }

    /// Handles a completion of one of the exchanges' operations.
    pub fn handle(&mut self, shell: &mut Shell, completion: Completion) {
        let link = Key::from_bits(id_of(completion.token));
        if link == Key::NONE {
            return self.handle_tick(shell);
        }
        let news = self.links.handle(&mut shell.ring, link, completion, shell.cx.turn);
        let (key, event) = match news {
            None => return,
            Some(LinkNews::Event(key, event)) => (key, event),
            Some(LinkNews::Surplus(server)) => {
                shell.cx.stats.proxy_surplus.add(1);
                return self.lines.note(shell, &server.name, SURPLUS);
            }
        };
        self.handle_event(shell, key, event);
        if self.exchanges.get(key).is_some_and(|exchange| exchange.has_more_to_come()) {
            // Each exchange may soon receive a piece, so the next wait collects several completions.
            shell.ring.gather(self.exchanges.len());
        }
    }

    fn handle_event(&mut self, shell: &mut Shell, key: Key, event: LinkEvent) {
        self.step(shell, key, |exchange, tools| match event {
            // The links have taken it.
            LinkEvent::StepDue => {}
            LinkEvent::Connected => exchange.handle_connected(tools),
            LinkEvent::Received(bytes) => exchange.handle_received(tools, &bytes),
            LinkEvent::Pullable => exchange.pull(tools),
            LinkEvent::Ended => exchange.handle_ended(tools),
            LinkEvent::Failed(error) => exchange.handle_failed(tools, &error),
            LinkEvent::Writable => exchange.handle_touched(tools),
        });
    }

    /// Handles a completion of an operation on a file that keeps content of a response.
    pub fn handle_spool(&mut self, shell: &mut Shell, completion: Completion) {
        let key = Key::from_bits(id_of(completion.token));
        self.step(shell, key, |exchange, tools| exchange.handle_spool(tools, completion));
    }

    /// Handles a completion of an operation on the file of a body.
    pub fn handle_body(&mut self, shell: &mut Shell, completion: Completion) {
        self.bodies.handle(shell, completion, &mut self.woken);
    }

    /// Reports a hand-over whose target belongs to none of the site's routes with files.
    pub fn refuse(&mut self, shell: &mut Shell, server: &Server, to: &Target) {
        shell.cx.stats.proxy_failed.add(1);
        let text = format!("{to} leads to no file of a route of the site");
        self.lines.note(shell, &server.name, &text);
    }

    /// Reports that an upstream has handed a request over to a path of a route with files, and that there is no file.
    pub fn note_missing(&mut self, shell: &mut Shell, server: &Server, to: &Target) {
        shell.cx.stats.proxy_failed.add(1);
        let text = format!("{to} leads to a path without a file; its client gets a 404");
        self.lines.note(shell, &server.name, &text);
    }

    /// Reports that one request was handed over too many times. `path` is the last target.
    pub fn note_hand_overs(&mut self, shell: &mut Shell, path: &[u8]) {
        shell.cx.stats.proxy_failed.add(1);
        self.lines.note_hand_overs(shell, path);
    }

    /// Refuses a request whose head would be too long for an upstream.
    pub fn refuse_head(
        &mut self,
        shell: &mut Shell,
        ticket: Ticket,
        upstream: &Upstream,
        TooLong { field }: TooLong<'_>,
    ) {
        if let Some(input) = self.bodies.take(ticket) {
            input.borrow_mut().drop_rest();
        }
        let field = field.map(|name| format!("; `{name}` of `request-headers` does not fit"));
        let field = field.unwrap_or_default();
        let text = format!("the head of a request would have more than 64 KiB{field}");
        self.lines.note_client(shell, &upstream.name, &text);
    }

    /// The next interim response that has come.
    pub fn next_interim(&mut self) -> Option<(Ticket, Interim)> {
        self.interims.pop_front()
    }

    /// The next answer that was found.
    pub fn next_answer(&mut self) -> Option<(Ticket, Answer)> {
        self.answers.pop_front()
    }

    /// The next request whose producer or consumer can go on.
    pub fn next_woken(&mut self) -> Option<Ticket> {
        self.woken.pop_front()
    }

    /// Returns true if no request is being passed on, and all answers have been taken.
    pub fn is_idle(&self) -> bool {
        self.exchanges.is_empty() && self.answers.is_empty()
    }

    /// Returns true if an exchange waits for another quantum; then the worker does not wait.
    pub fn wants_turn(&self) -> bool {
        let has_some =
            !self.again.is_empty() || !self.expired.is_empty() || self.links.wants_turn();
        has_some && !self.is_idle()
    }

    /// Returns true if there may be work, or news for a request. The exchange of that request may have ended.
    pub fn may_have_news(&self) -> bool {
        !self.is_idle() || !self.woken.is_empty() || !self.interims.is_empty()
    }

    /// Sets a timer for the next tick: 100 ms with exchanges, 1 s without. Kept links alone need fewer ticks.
    fn tick_later(&mut self, shell: &mut Shell) {
        let wait = if self.exchanges.is_empty() { TIDY_TIME } else { TICK };
        let at = shell.cx.now + wait;
        if self.tick_at.is_none_or(|tick| at < tick) {
            self.tick_at = Some(at);
            shell.ring.submit(Op::Timer(at), kind::LINK | Key::NONE.to_bits());
        }
    }

    /// Puts a new exchange into the wheel for the next tick. Most exchanges end before it, and never need an entry for their
    /// real deadline.
    fn look_soon(&mut self, shell: &Shell, key: Key) {
        if self.exchanges.len() == 1 {
            // The wheel does not turn while there are no exchanges.
            self.wheel.expire(shell.cx.now, &mut Vec::new());
        }
        let exchange = self.exchanges.get_mut(key).expect("just inserted");
        exchange.clock.wheel_tick = self.wheel.insert(key.to_bits(), shell.cx.now);
    }

    fn handle_tick(&mut self, shell: &mut Shell) {
        let now = shell.cx.now;
        // If an earlier tick was set after this timer, that tick has already replaced this one.
        if self.tick_at.take_if(|tick| *tick <= now).is_none() {
            return;
        }
        self.bodies.handle_tick(shell, &mut self.woken);
        // The next call of `act` handles the expired entries.
        self.wheel.expire(now, &mut self.expired);
        if now.since(self.tidied) >= TIDY_TIME {
            self.tidied = now;
            self.links.tidy(&mut shell.ring, now);
        }
        if self.exchanges.is_empty() {
            self.pools.shrink();
        }
        if !self.exchanges.is_empty() || !self.links.is_empty() {
            self.tick_later(shell);
        }
    }

    /// Acts on deadlines that have passed, within the limit of one worker turn.
    fn expire(&mut self, shell: &mut Shell) {
        for _ in 0..self.expired.len().min(EXPIRIES_MAX) {
            let Some((id, tick)) = self.expired.pop_front() else { return };
            let key = Key::from_bits(id);
            if let Some(exchange) = self.exchanges.get_mut(key)
                && exchange.clock.wheel_tick == tick
            {
                exchange.clock.wheel_tick = Tick::MAX;
                self.step(shell, key, Exchange::handle_deadline);
            }
        }
    }

    /// Lets an exchange make a step, and removes the exchange if that was its last step.
    fn step(
        &mut self,
        shell: &mut Shell,
        key: Key,
        step: impl FnOnce(&mut Exchange, &mut Tools<'_>),
    ) {
        let Self {
            exchanges,
            wheel,
            links,
            texts,
            answers,
            interims,
            woken,
            again,
            lines,
            pools,
            turn,
            pull_until,
            ..
        } = self;
        // The exchange may have ended before this step.
        let Some(exchange) = exchanges.get_mut(key) else { return };
        let now = shell.cx.now;
        let has_acted = *turn == shell.cx.turn;
        let pull_until = if has_acted { pull_until } else { &mut Some(now + PULL_TIME) };
        let tools =
            &mut Tools { shell, links, answers, interims, woken, again, lines, pools, pull_until };
        step(exchange, tools);
        if exchange.is_over() {
            exchange.leave(links);
            if let Some(exchange) = exchanges.remove(key)
                && texts.len() < TEXTS_MAX
            {
                let text = exchange.into_text();
                let is_kept = |text: &Rc<Vec<u8>>| (1..=TEXT_BYTES_MAX).contains(&text.capacity());
                texts.extend(text.filter(is_kept));
            }
            return;
        }
        exchange.note_duty(tools);
        exchange.charge_head(tools);
        if let Some(deadline) = exchange.deadline(now)
            && wheel.is_later(exchange.clock.wheel_tick, deadline)
        {
            exchange.clock.wheel_tick = wheel.insert(key.to_bits(), deadline);
        }
    }
}

/// Returns whether the time for pulls has ended. The time starts at the first call in a turn. Most turns pull nothing, so
/// they do not read the clock.
fn is_pull_over(until: &mut Option<Time>, shell: &Shell) -> bool {
    let now = shell.ring.now();
    now >= *until.get_or_insert(now + PULL_TIME)
}

impl Answer {
    /// The reason for the operator, if the answer is an error.
    pub fn reason(&self) -> Option<&Reason> {
        match self {
            Self::Error(_, reason) => Some(reason),
            Self::Response(reached) => reached.reason.as_ref(),
            Self::HandOver(..) => None,
        }
    }

    /// The times of the upstream, if there is a log.
    pub fn times(&self) -> Option<&Rc<UpstreamTimes>> {
        match self {
            Self::Response(reached) => reached.times.as_ref(),
            Self::Error(..) | Self::HandOver(..) => None,
        }
    }
}

/// Makes the response for an answer. `now` is the time of sending, in Unix seconds.
pub fn response(answer: &Answer, now: i64) -> Response<'_> {
    let reached = match answer {
        Answer::Error(status, _) if status.is_bodiless() => return Response::bare(bare(*status)),
        Answer::Error(status, _) => return page::error(bare(*status)),
        Answer::Response(reached) => reached,
        Answer::HandOver(..) => unreachable!("the router has followed it"),
    };
    let Reached { passed, has_content, output, interest, .. } = &**reached;
    let fields = ResponseHead { server: None, ..passed.head(now) };
    // A response to HEAD must have the same head as one to GET. The session sees an unknown length only from a body.
    let has_unknown_length = passed.content_length.is_none() && !passed.status.is_bodiless();
    if !has_content && !has_unknown_length {
        return Response::bare(fields);
    }
    if let Some(whole) = output.borrow_mut().take_whole() {
        return Response::new(fields, Body::from(Part::Piece(whole)));
    }
    let producer = OutputProducer { output: Rc::clone(output), interest: Rc::clone(interest) };
    Response::new(fields, Body::from(Part::Producer(Box::new(producer))))
}

#[cfg(test)]
mod tests {
    mod desync;
}
