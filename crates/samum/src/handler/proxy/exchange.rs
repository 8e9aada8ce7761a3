//! One request that is passed on, with the response to it.
//!
//! ```text
//!              (the link breaks before anything of a response has come, and it is safe: another try)
//!                  ┌──────────────────────────────────────────────┐
//!                  ▼                                              │
//!   begin ──► (Collecting) ──► connecting or kept link ──► Asking ──head──► Content ──end──► Over
//!                                           │                 └──101──► Tunnel ──► Over
//!                                           └─ fault, end, timeout: 502, 504; behind the head: cut off
//! ```

pub(super) mod pull;
mod spooling;

use core::cell::RefCell;
use core::time::Duration;
use std::collections::VecDeque;
use std::io;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use http::{Method, Status};
use outq::Payload as _;
use ring::{Key, Time};
use rustix::io::Errno;
use sendfile::{Cyclic, Piece};

use self::pull::{Places, Share};
use super::response::{Meaning, Passed};
use super::spool::{MEMORY_BYTES, Spool};
use super::wire::{Heard, Wire};
use super::{Answer, Reached};
use crate::config::GatewayRules;
use crate::handler::gateway::body::{Input, Interest, Output};
use crate::handler::gateway::lines::{Lines, Text};
use crate::handler::{Interim, Request, Ticket};
use crate::shell::Shell;
use crate::upstream::retries::{Attempt, Reached as Progress, is_idempotent};
use crate::upstream::{Change, Chosen, Links, ServerSet, Try, Upstream};
use crate::wheel::Tick;

/// Bytes of content that are received in vain for the end of a response, so that the link can be kept.
const DROPPED_BYTES_MAX: u64 = 64 * 1024;
/// Bytes of a body that wait to be taken by a server; the client waits then.
const UNSENT_BYTES_MAX: u64 = 64 * 1024;

/// A client that takes fewer bytes between two looks, 0.1 s apart, may be slow enough for a disk to help; one
/// behind a link of a gigabit takes more.
const SLOW_BYTES: u64 = 8 * 1024 * 1024;

/// The line for the operator about bytes that belong to no response.
pub(super) const SURPLUS: &str = "it sent bytes behind its response; the connection is closed";

/// One request that is passed on.
#[derive(Debug)]
pub(super) struct Exchange {
    ticket: Ticket,
    key: Key,
    upstream: Arc<Upstream>,
    /// The hash by which its server is chosen.
    affinity: u64,
    /// The server that is asked.
    chosen: Option<Chosen>,
    /// The servers that have failed.
    failed: ServerSet,
    link: Option<Key>,
    /// Bytes that were sent through the link before.
    sent_before: u64,
    interest: Weak<Interest>,
    pub(super) wire: Wire,
    is_head: bool,
    /// True if it may be sent again without harm (RFC 9110 §9.2.2).
    is_idempotent: bool,
    /// The body of the request, or what the client sends into a tunnel.
    input: Option<Rc<RefCell<Input>>>,
    /// True once bytes of the body were given to a link.
    has_sent_body: bool,
    /// True once the end of the body was, or if there is none.
    has_sent_all: bool,
    /// The text that the server writes for the operator.
    text: Text,
    /// True once more has come than was announced.
    is_over_length: bool,
    /// Bytes of content that came when the client waited no more.
    dropped_bytes: u64,
    /// Bytes of the server that are not understood yet.
    unread: Vec<u8>,
    /// Bytes of memory of the beginning of a head that the client's connection is charged for.
    charged: usize,
    output: Rc<RefCell<Output>>,
    /// Bytes of the content that have come.
    content_bytes: u64,
    /// The same when it was last looked at.
    content_bytes_before: u64,
    /// True once the response is pulled past the ring.
    is_pulled: bool,
    /// The memory into which it is pulled, if it does not go through pipes.
    buffer: Option<Cyclic>,
    /// The work that is left for it in this turn of the worker.
    share: Share,
    /// True if the turn was over before all was understood that is in the buffer.
    is_interrupted: bool,
    /// True while it waits for another turn.
    is_queued: bool,
    /// The file in which it waits for a slow client, if the route has a directory for that.
    spool: Option<Box<Spool>>,
    stage: Stage,
    /// The number of times that it was sent.
    tries: u32,
    /// True once anything was received through the link.
    has_heard: bool,
    /// The duty of the server, while nothing can happen before it does that.
    duty: Option<Duty>,
    /// Since when the server has done nothing of its duty.
    since: Time,
    /// The tick of its earliest entry in the wheel.
    pub(super) wheel_tick: Tick,
}

/// The stage of an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The body is being collected.
    Collecting,
    /// The connection is being made.
    Connecting,
    /// The head of the response has not come.
    Asking,
    /// The content of the response comes.
    Content,
    /// Both sides send what they want.
    Tunnel,
    Over,
}

/// The thing that a server has to do for the exchange to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Duty {
    /// Accept the connection.
    Connect,
    /// Take bytes of the request that wait for it, before it has answered.
    Take,
    /// Answer, or go on with its response. In a tunnel, take or send something.
    Give,
}

/// The tools with which an exchange goes on.
#[derive(Debug)]
pub(super) struct Tools<'a> {
    pub(super) shell: &'a mut Shell,
    pub(super) links: &'a mut Links,
    pub(super) answers: &'a mut VecDeque<(Ticket, Answer)>,
    pub(super) interims: &'a mut VecDeque<(Ticket, Interim)>,
    pub(super) woken: &'a mut VecDeque<Ticket>,
    pub(super) again: &'a mut VecDeque<Key>,
    pub(super) lines: &'a mut Lines,
    pub(super) places: &'a mut Places,
}

impl Exchange {
    /// A request that is to be passed on. `affinity` is the hash by which its server is chosen.
    pub(super) fn new(
        request: &Request<'_>,
        upstream: &Arc<Upstream>,
        affinity: u64,
        input: Option<Rc<RefCell<Input>>>,
        wire: Wire,
    ) -> Self {
        let method = &request.head.method;
        let has_sent_all = !wire.has_body();
        Self {
            ticket: request.ticket,
            key: Key::NONE,
            upstream: Arc::clone(upstream),
            affinity,
            chosen: None,
            failed: ServerSet::EMPTY,
            link: None,
            sent_before: 0,
            interest: Weak::new(),
            wire,
            is_head: *method == Method::Head,
            is_idempotent: is_idempotent(method),
            input,
            has_sent_body: false,
            has_sent_all,
            text: Text::default(),
            is_over_length: false,
            dropped_bytes: 0,
            unread: Vec::new(),
            charged: 0,
            output: Rc::new(RefCell::new(Output::new())),
            content_bytes: 0,
            content_bytes_before: 0,
            is_pulled: false,
            buffer: None,
            share: Share::default(),
            is_interrupted: false,
            is_queued: false,
            spool: None,
            stage: Stage::Connecting,
            tries: 0,
            has_heard: false,
            duty: None,
            since: Time::default(),
            wheel_tick: Tick::MAX,
        }
    }

    /// Bytes of memory that it keeps of its request.
    pub(super) fn memory(&self) -> usize {
        size_of::<Self>() + self.wire.memory()
    }

    /// Returns whether nothing is left to do.
    pub(super) fn is_over(&self) -> bool {
        self.stage == Stage::Over
    }

    /// Begins, under this name.
    pub(super) fn begin(&mut self, tools: &mut Tools<'_>, key: Key, interest: &Rc<Interest>) {
        self.key = key;
        self.interest = Rc::downgrade(interest);
        if let Some(input) = &self.input {
            let mut input = input.borrow_mut();
            input.set_key(key);
            if input.is_collected && input.length().is_none() {
                self.stage = Stage::Collecting;
                return;
            }
        }
        self.start(tools);
    }

    /// Begins once the whole body has come, if its length must be told.
    fn collect(&mut self, tools: &mut Tools<'_>) {
        let length = self.input.as_ref().and_then(|input| input.borrow().length());
        if let Some(length) = length {
            self.wire.set_content_length(length);
            self.start(tools);
        }
    }

    /// Tries the first server.
    fn start(&mut self, tools: &mut Tools<'_>) {
        match self.choose(tools) {
            Some(chosen) => self.attempt(tools, chosen, true),
            None => {
                self.note_failure(tools, "no name of its servers is resolved");
                self.fail(tools, Status::BadGateway);
            }
        }
    }

    /// Chooses a server that has not failed.
    fn choose(&self, tools: &mut Tools<'_>) -> Option<Chosen> {
        let ask = Try {
            key: self.affinity,
            failed: self.failed,
            is_retry: self.tries > 0,
            is_repeatable: self.is_idempotent && !self.wire.has_body(),
        };
        tools.links.choose(&self.upstream, ask, tools.shell.cx.now)
    }

    /// Tries a server.
    fn attempt(&mut self, tools: &mut Tools<'_>, chosen: Chosen, may_be_kept: bool) {
        self.tries += 1;
        self.has_heard = false;
        self.has_sent_all = !self.wire.has_body();
        self.unread.clear();
        self.since = tools.shell.cx.now;
        let server = Arc::clone(&chosen.server);
        self.chosen = Some(chosen);
        let kept = may_be_kept.then(|| tools.links.take_kept(&server, self.key)).flatten();
        let link = match kept {
            Some(kept) => Some(kept),
            None => tools.links.connect(&mut tools.shell.ring, &server, self.key),
        };
        self.stage = if kept.is_some() { Stage::Asking } else { Stage::Connecting };
        self.link = link;
        let Some(link) = link.and_then(|link| tools.links.get_mut(link)) else {
            self.note_failure(tools, "its address is not known");
            return self.fail(tools, Status::BadGateway);
        };
        self.is_pulled = kept.is_none() && self.wire.pulls_all();
        if self.is_pulled {
            link.set_receiving(&mut tools.shell.ring, false);
        }
        self.sent_before = link.sent();
        link.push_piece(self.wire.begin(server.url.path.as_deref()));
        self.send(tools);
    }

    /// The link has been made.
    pub(super) fn handle_connected(&mut self, tools: &mut Tools<'_>) {
        self.stage = Stage::Asking;
        self.since = tools.shell.cx.now;
        self.send(tools);
        if self.is_pulled
            && let Some(link) = self.link.and_then(|link| tools.links.get_mut(link))
        {
            link.await_bytes(&mut tools.shell.ring);
        }
    }

    /// The client or the link has made room, or has something more.
    pub(super) fn handle_touched(&mut self, tools: &mut Tools<'_>) {
        if self.stage == Stage::Collecting {
            return self.collect(tools);
        }
        self.send(tools);
        self.spool(tools);
        if self.is_pulled {
            self.pull(tools);
        } else {
            self.receive_if_wanted(tools);
        }
    }

    /// Gives the server what there is of the request.
    fn send(&mut self, tools: &mut Tools<'_>) {
        let Some(link) = self.link.and_then(|link| tools.links.get_mut(link)) else { return };
        let before = link.sent();
        let mut has_failed = link.flush(&mut tools.shell.ring).is_err();
        let is_tunnel = self.stage == Stage::Tunnel;
        // A body that was not given to a link can be sent by another one.
        let takes = is_tunnel || self.wire.has_body() && self.stage != Stage::Connecting;
        // As long as the server takes all of it: nothing tells when there is room in a queue that is empty.
        while let Some(input) = &self.input
            && takes
            && !self.has_sent_all
            && !has_failed
            && link.unsent() < UNSENT_BYTES_MAX
        {
            let mut input = input.borrow_mut();
            let bytes = Vec::from(core::mem::take(&mut input.waiting));
            let has_more = !bytes.is_empty();
            if has_more {
                self.has_sent_body = true;
                tools.woken.push_back(self.ticket);
            }
            if is_tunnel {
                link.push(bytes);
            } else {
                self.wire.push_body(link, bytes);
            }
            if input.has_ended && !input.is_unwanted {
                self.has_sent_all = true;
                if !is_tunnel {
                    self.wire.push_body_end(link, &input.trailers);
                }
            }
            has_failed = link.flush(&mut tools.shell.ring).is_err();
            if !has_more {
                break;
            }
        }
        if is_tunnel && self.has_sent_all && link.unsent() == 0 {
            link.shutdown(&mut tools.shell.ring);
        }
        if link.sent() > before {
            self.since = tools.shell.cx.now;
        }
        // The response may have come all the same: the end of what is received tells.
        self.has_sent_all |= has_failed;
    }

    /// Receives while there is room for it.
    fn receive_if_wanted(&mut self, tools: &mut Tools<'_>) {
        let is_full = self.is_full();
        if let Some(link) = self.link.and_then(|link| tools.links.get_mut(link)) {
            link.set_receiving(&mut tools.shell.ring, !is_full);
        }
    }

    fn is_full(&self) -> bool {
        self.output.borrow().in_memory() >= self.memory_max()
    }

    /// Bytes of the content that may wait in memory.
    fn memory_max(&self) -> u64 {
        let GatewayRules { buffer, buffer_dir, .. } = &self.upstream.rules;
        if buffer_dir.is_some() { MEMORY_BYTES.min(*buffer) } else { *buffer }
    }

    /// The server has sent this.
    pub(super) fn handle_received(&mut self, tools: &mut Tools<'_>, bytes: &[u8]) {
        self.note_heard(tools);
        if self.unread.is_empty() {
            let taken = self.understand(tools, bytes);
            self.unread.extend_from_slice(&bytes[taken..]);
        } else {
            let mut all = core::mem::take(&mut self.unread);
            all.extend_from_slice(bytes);
            let taken = self.understand(tools, &all);
            all.drain(..taken);
            self.unread = all;
        }
        if self.stage != Stage::Over {
            if core::mem::take(&mut self.output.borrow_mut().is_awaited) {
                tools.woken.push_back(self.ticket);
            }
            self.pull_if_long(tools);
            if !self.is_pulled && self.is_full() {
                self.receive_if_wanted(tools);
            }
        }
    }

    /// Bytes of the server have come.
    fn note_heard(&mut self, tools: &Tools<'_>) {
        self.has_heard = true;
        if self.wire.counts_bytes() {
            self.note_progress(tools);
        }
    }

    /// The server has said something. That gives it no more time to take the request.
    fn note_progress(&mut self, tools: &Tools<'_>) {
        if self.duty != Some(Duty::Take) {
            self.since = tools.shell.cx.now;
        }
    }

    /// Understands received bytes; returns how many.
    fn understand(&mut self, tools: &mut Tools<'_>, bytes: &[u8]) -> usize {
        let mut at = 0;
        while self.stage != Stage::Over {
            if self.stage == Stage::Tunnel {
                self.output.borrow_mut().push(&bytes[at..]);
                return bytes.len();
            }
            let (taken, heard) = self.wire.handle_input(&bytes[at..], tools.shell.cx.dated());
            at += taken;
            match heard {
                Heard::Partial => break,
                heard => self.handle_heard(tools, heard, bytes.len() == at),
            }
        }
        at
    }

    /// Takes what the server has said. `is_clean`: no bytes follow it.
    fn handle_heard(&mut self, tools: &mut Tools<'_>, heard: Heard<'_>, is_clean: bool) {
        if !matches!(heard, Heard::Partial) {
            self.note_progress(tools);
        }
        match heard {
            Heard::Partial | Heard::Nothing => {}
            Heard::Head { meaning, has_content, content } => {
                self.answer(tools, meaning, has_content);
                if self.stage == Stage::Tunnel {
                    // The client may have sent something behind its request.
                    self.send(tools);
                }
                if self.stage == Stage::Content {
                    if self.wire.ends_with_head(has_content) {
                        self.end(tools, is_clean);
                    } else {
                        self.take(tools, Piece::Bytes(content.to_vec()));
                    }
                }
            }
            Heard::Interim(interim) => tools.interims.push_back((self.ticket, interim)),
            Heard::Content(content) => self.take(tools, Piece::Bytes(content.to_vec())),
            Heard::Trailer(name, value) => self.output.borrow_mut().trailers.push(name, value),
            Heard::Text(text) => self.read_text(tools, text),
            Heard::End => self.end(tools, is_clean),
            Heard::Overloaded => {
                self.note_failure(tools, "it has too much to do");
                self.fail(tools, Status::ServiceUnavailable);
            }
            Heard::Faulty(reason) => self.blame(tools, reason),
        }
    }

    /// The head of the response has come.
    fn answer(&mut self, tools: &mut Tools<'_>, meaning: Meaning, has_content: bool) {
        let now = tools.shell.cx.now;
        let change = self.chosen.as_mut().and_then(|chosen| chosen.handle_success(now));
        self.note_change(tools, change);
        let Some(interest) = self.interest.upgrade() else { return self.abort(tools) };
        let reached = |passed: Passed, has_content: bool| {
            let output = Rc::clone(&self.output);
            Answer::Response(Box::new(Reached { passed, has_content, output, interest }))
        };
        let answer = match meaning {
            Meaning::Response(passed) => {
                self.stage = Stage::Content;
                let mut output = self.output.borrow_mut();
                if has_content && !self.is_head {
                    output.promise(passed.content_length);
                } else {
                    output.drop_rest();
                }
                drop(output);
                reached(passed, has_content)
            }
            Meaning::Tunnel(passed) => {
                self.stage = Stage::Tunnel;
                self.has_sent_all = false;
                reached(passed, true)
            }
            Meaning::HandOver(over) => {
                let chosen = self.chosen.as_ref().expect("a server has answered");
                let answer = Answer::HandOver(Box::new(over), Arc::clone(&chosen.server));
                tools.answers.push_back((self.ticket, answer));
                return self.give_up(tools);
            }
        };
        tools.answers.push_back((self.ticket, answer));
    }

    /// Takes content.
    fn take(&mut self, tools: &mut Tools<'_>, content: Piece) {
        self.content_bytes += content.len();
        if self.interest.strong_count() == 0 {
            self.dropped_bytes += content.len();
            if self.dropped_bytes > DROPPED_BYTES_MAX {
                self.abort(tools);
            }
            return;
        }
        let mut output = self.output.borrow_mut();
        let is_within = output.push_piece(content);
        if core::mem::take(&mut output.is_awaited) {
            tools.woken.push_back(self.ticket);
        }
        drop(output);
        if !is_within && !core::mem::replace(&mut self.is_over_length, true) {
            tools.shell.cx.stats.proxy_surplus += 1;
            self.note(tools, "it sent more than its Content-Length; the rest is dropped");
        }
        self.spool(tools);
    }

    /// The server says that the response is complete. `is_clean`: no bytes follow it.
    fn end(&mut self, tools: &mut Tools<'_>, is_clean: bool) {
        if !is_clean {
            tools.shell.cx.stats.proxy_surplus += 1;
            self.note(tools, SURPLUS);
        }
        self.finish(tools, is_clean);
    }

    /// The response is complete. `is_clean`: the connection has not ended, and no bytes follow.
    fn finish(&mut self, tools: &mut Tools<'_>, is_clean: bool) {
        if !self.end_output(tools, true) {
            tools.shell.cx.stats.proxy_failed += 1;
            self.note(tools, "it sent less than its Content-Length; its response is cut off");
        }
        let is_idle = self.wire.is_idle() && self.has_sent_all && is_clean;
        if let Some(key) = self.link.take() {
            let has_left = tools.links.get_mut(key).is_some_and(|link| link.unsent() == 0);
            if is_idle && has_left {
                tools.links.keep(&mut tools.shell.ring, key, tools.shell.cx.now);
            } else {
                tools.links.close(&mut tools.shell.ring, key);
            }
        }
        self.end_text(tools);
        self.drop_input();
        self.stage = Stage::Over;
    }

    /// The server will send no more.
    pub(super) fn handle_ended(&mut self, tools: &mut Tools<'_>) {
        if self.stage == Stage::Tunnel {
            return self.finish(tools, false);
        }
        if self.wire.handle_eof(self.unread.len()) {
            self.finish(tools, false);
        } else {
            self.handle_broken(tools, "the connection was closed", Status::BadGateway);
        }
    }

    /// The link was not made, or broke.
    pub(super) fn handle_failed(&mut self, tools: &mut Tools<'_>, error: &io::Error) {
        if self.stage == Stage::Connecting && is_shortage(error) {
            // No server is to blame.
            self.note(tools, &error.to_string());
            return self.fail(tools, Status::ServiceUnavailable);
        }
        self.handle_broken(tools, &error.to_string(), Status::BadGateway);
    }

    /// The link is of no more use.
    fn handle_broken(&mut self, tools: &mut Tools<'_>, reason: &str, status: Status) {
        let link = self.link.and_then(|link| tools.links.get_mut(link));
        let (was_kept, sent) = link.map_or((false, 0), |link| (link.served > 0, link.sent()));
        let reached = match (self.has_heard, sent > self.sent_before) {
            (true, _) => Progress::Response,
            (false, true) => Progress::Sent,
            (false, false) => Progress::Nothing,
        };
        self.close_link(tools);
        // Servers close links that were kept as they like.
        let is_fault = !was_kept || self.has_heard || status == Status::GatewayTimeout;
        if is_fault {
            self.accuse(tools);
        }
        let attempt = Attempt {
            is_idempotent: self.is_idempotent,
            reached,
            is_body_consumed: self.has_sent_body,
            tries: self.tries,
        };
        let is_last = self.chosen.as_ref().is_some_and(|chosen| chosen.is_last);
        if attempt.may_be_repeated(self.upstream.rules.retries)
            && !is_last
            && self.interest.strong_count() > 0
            && let Some(next) = self.choose(tools)
        {
            tools.shell.cx.stats.proxy_retries += 1;
            if is_fault {
                self.note(tools, &format!("{reason}; another server is asked"));
            }
            self.leave(tools.links);
            return self.attempt(tools, next, is_fault);
        }
        self.note_failure(tools, reason);
        self.fail(tools, status);
    }

    /// The server has failed: its response is an error, or is cut off.
    fn blame(&mut self, tools: &mut Tools<'_>, reason: &str) {
        self.accuse(tools);
        self.note_failure(tools, reason);
        self.fail(tools, Status::BadGateway);
    }

    /// The failure of the exchange is the server's fault.
    fn accuse(&mut self, tools: &mut Tools<'_>) {
        let Some(chosen) = &mut self.chosen else { return };
        self.failed.insert(chosen.number);
        let change = chosen.handle_failure(tools.shell.cx.now);
        self.note_change(tools, change);
    }

    /// The exchange with the server has ended.
    pub(super) fn leave(&mut self, links: &mut Links) {
        if let Some(chosen) = self.chosen.take() {
            links.end(chosen);
        }
    }

    /// Notes after each step what the server has to do now. Its time begins with the duty.
    pub(super) fn note_duty(&mut self, tools: &mut Tools<'_>) {
        let duty = self.current_duty(tools);
        if core::mem::replace(&mut self.duty, duty) != duty {
            self.since = tools.shell.cx.now;
        }
    }

    /// Charges the client's connection after each step for what has come of a head that is not complete.
    pub(super) fn charge_head(&mut self, tools: &mut Tools<'_>) {
        if self.stage != Stage::Asking {
            return;
        }
        let kept = self.unread.capacity() + self.wire.head_bytes();
        if core::mem::replace(&mut self.charged, kept) != kept
            && let Some(interest) = self.interest.upgrade()
        {
            interest.set_head(kept as u64);
            // Its connection is counted again.
            tools.woken.push_back(self.ticket);
        }
    }

    /// The time by which it is to be looked at; `None` while the client has to do something first, whose time
    /// is the session's matter.
    pub(super) fn deadline(&self, now: Time) -> Option<Time> {
        if self.may_be_slow() || self.spool.as_ref().is_some_and(|spool| spool.is_waiting()) {
            return Some(now);
        }
        self.duty.map(|duty| self.since + self.patience(duty))
    }

    /// The time in which the server must do something of a duty.
    fn patience(&self, duty: Duty) -> Duration {
        let rules = &self.upstream.rules;
        match duty {
            Duty::Connect => rules.timeout_connect,
            Duty::Take => rules.timeout_upstream_send,
            Duty::Give => rules.timeout_upstream,
        }
    }

    /// The fault if the server takes longer, for the operator.
    fn overdue(&self, duty: Duty) -> String {
        let (what, key) = match duty {
            Duty::Connect => ("no connection was made", "timeout-connect"),
            Duty::Take => ("it took nothing of the request", "timeout-upstream-send"),
            Duty::Give if self.stage == Stage::Tunnel => {
                ("nothing was sent through the tunnel", "timeout-upstream")
            }
            Duty::Give => ("it did not answer", "timeout-upstream"),
        };
        format!("{what} within {} s ({key})", self.patience(duty).as_secs_f64())
    }

    /// The [deadline](Self::deadline) has passed, unless it has moved.
    pub(super) fn handle_deadline(&mut self, tools: &mut Tools<'_>) {
        let before = core::mem::replace(&mut self.content_bytes_before, self.content_bytes);
        if before == self.content_bytes {
            self.pull_for_slow_client(tools);
        }
        if self.content_bytes - before < SLOW_BYTES {
            self.spool_for_slow_client(tools);
        }
        if self.spool.as_ref().is_some_and(|spool| spool.is_overdue(tools.shell.cx.now)) {
            self.fail_spool(tools, "the disk does not answer");
            self.pull(tools);
        }
        // A duty that begins now has all of its time left.
        let Some(duty) = self.current_duty(tools).filter(|duty| self.duty == Some(*duty)) else {
            return;
        };
        if tools.shell.cx.now.since(self.since) < self.patience(duty) {
            return;
        }
        tools.shell.cx.stats.proxy_timeouts += 1;
        let text = self.overdue(duty);
        self.handle_broken(tools, &text, Status::GatewayTimeout);
    }

    /// The duty of the server; none while its client has to do something first.
    fn current_duty(&self, tools: &mut Tools<'_>) -> Option<Duty> {
        let link = self.link.and_then(|link| tools.links.get_mut(link))?;
        let has_unsent = link.unsent() > 0;
        match self.stage {
            Stage::Connecting => return Some(Duty::Connect),
            Stage::Asking if has_unsent => return Some(Duty::Take),
            Stage::Tunnel if has_unsent => return Some(Duty::Give),
            _ => {}
        }
        // A server whose response waits for the client may take nothing meanwhile.
        let owes_body = self.stage != Stage::Tunnel && !self.has_sent_all && !has_unsent;
        let is_servers = if self.is_pulled && (self.stage == Stage::Content || !owes_body) {
            link.waits_for_more()
        } else {
            !self.is_full() && !owes_body
        };
        is_servers.then_some(Duty::Give)
    }

    /// The client waits no more, or has got what it wanted.
    pub(super) fn handle_left(&mut self, tools: &mut Tools<'_>) {
        let is_begun = match self.stage {
            Stage::Collecting | Stage::Connecting | Stage::Asking => {
                let answer = Answer::Error(Status::ServiceUnavailable);
                tools.answers.push_back((self.ticket, answer));
                false
            }
            Stage::Content | Stage::Tunnel | Stage::Over => true,
        };
        let has_all = {
            let output = self.output.borrow();
            output.has_ended() || output.is_unwanted
        };
        // The end of the response is about to come, and then the link can be kept.
        if is_begun && has_all && self.wire.keeps() {
            return;
        }
        // A tunnel ends when either end closes it.
        if !is_begun || self.stage == Stage::Content && !has_all {
            tools.shell.cx.stats.proxy_left += 1;
        }
        self.abort(tools);
    }

    /// Ends it here, and tells the server that the response is not wanted any more.
    fn abort(&mut self, tools: &mut Tools<'_>) {
        if let Some(link) = self.link.and_then(|link| tools.links.get_mut(link)) {
            self.wire.push_abort(link);
            // The link is closed anyway.
            let _ = link.flush(&mut tools.shell.ring);
        }
        self.give_up(tools);
    }

    /// Answers with a page for this status, or cuts the response off.
    fn fail(&mut self, tools: &mut Tools<'_>, status: Status) {
        match self.stage {
            Stage::Collecting | Stage::Connecting | Stage::Asking => {
                tools.answers.push_back((self.ticket, Answer::Error(status)));
            }
            Stage::Content | Stage::Tunnel => {
                self.end_output(tools, false);
            }
            Stage::Over => {}
        }
        self.give_up(tools);
    }

    /// Ends the content. Returns false if something of it is missing that is wanted.
    fn end_output(&mut self, tools: &mut Tools<'_>, is_whole: bool) -> bool {
        let unwritten = self.spool.as_mut().map(|spool| spool.fail()).unwrap_or_default();
        let mut output = self.output.borrow_mut();
        // It has its memory already. What is in the file stays there until the client has it.
        unwritten.into_iter().for_each(|piece| output.give_back(piece));
        let is_complete = output.finish(is_whole) || output.is_unwanted;
        if core::mem::take(&mut output.is_awaited) {
            tools.woken.push_back(self.ticket);
        }
        is_complete
    }

    /// Logs what the server says to the operator.
    fn read_text(&mut self, tools: &mut Tools<'_>, text: &[u8]) {
        let Tools { shell, lines, .. } = tools;
        let name = self.wire.name();
        self.text.push(text, |line| lines.note(shell, &name, line));
    }

    fn end_text(&mut self, tools: &mut Tools<'_>) {
        let Tools { shell, lines, .. } = tools;
        let wire = &self.wire;
        self.text.end(|line| lines.note(shell, &wire.name(), line));
    }

    /// Ends it here.
    fn give_up(&mut self, tools: &mut Tools<'_>) {
        self.close_link(tools);
        self.end_text(tools);
        self.drop_input();
        self.stage = Stage::Over;
    }

    fn close_link(&mut self, tools: &mut Tools<'_>) {
        if let Some(key) = self.link.take() {
            tools.links.close(&mut tools.shell.ring, key);
        }
    }

    fn drop_input(&self) {
        if let Some(input) = &self.input {
            input.borrow_mut().drop_rest();
        }
    }

    /// Tells the operator that the server has failed, and what of it.
    fn note_failure(&self, tools: &mut Tools<'_>, reason: &str) {
        tools.shell.cx.stats.proxy_failed += 1;
        match self.stage {
            Stage::Content | Stage::Tunnel => {
                self.note(tools, &format!("{reason}; its response is cut off"));
            }
            Stage::Collecting | Stage::Connecting | Stage::Asking => self.note(tools, reason),
            Stage::Over => {}
        }
    }

    /// Tells the operator that the server is up or down, if that has changed.
    fn note_change(&self, tools: &mut Tools<'_>, change: Option<Change>) {
        if let Some(change) = change {
            self.note(tools, &format!("{change} (a server of {})", self.upstream.name));
        }
    }

    /// Tells the operator something about the server.
    fn note(&self, tools: &mut Tools<'_>, text: &str) {
        let name = self.chosen.as_ref().map_or(&self.upstream.name, |chosen| &chosen.server.name);
        tools.lines.note(tools.shell, name, text);
    }
}

/// Returns whether this server has too little of something.
fn is_shortage(error: &io::Error) -> bool {
    let all = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM];
    all.iter().any(|one| error.raw_os_error() == Some(one.raw_os_error()))
}
