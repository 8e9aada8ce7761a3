//! One request that is passed on, with the response to it.
//!
//! ```text
//!              (the link breaks before anything of a response has come, and it is safe: another try)
//!                  ┌──────────────────────────────────────────────┐
//!                  ▼                                              │
//!   begin ──► connecting or kept link ──► Asking ──head──► Content ──end──► Over
//!                                           │                 └──101──► Tunnel ──► Over
//!                                           └─ fault, end, timeout: 502, 504; behind the head: cut off
//! ```

pub(super) mod pull;

use core::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use http::{Method, Status};
use http1::client::{self, Eof, Event};
use http1::{Framing, write};
use ring::{Key, Time};
use sendfile::Cyclic;

use self::pull::Places;
use super::request::{self, Forwarding};
use super::response::{self, Asked, LIMITS, Meaning, Passed};
use super::{Answer, Reached};
use crate::handler::gateway::body::{Input, Output, Wish};
use crate::handler::gateway::lines::Lines;
use crate::handler::{Request, Ticket};
use crate::shell::Shell;
use crate::upstream::{Link, Links, Server, Upstream};

/// Tries of one request.
const TRIES_MAX: u32 = 3;
/// Bytes of a body that wait to be taken by a server; the client waits then.
const UNSENT_BYTES_MAX: u64 = 64 * 1024;

/// One request that is passed on.
#[derive(Debug)]
pub(super) struct Exchange {
    ticket: Ticket,
    key: Key,
    upstream: Arc<Upstream>,
    server: Option<Arc<Server>>,
    link: Option<Key>,
    wish: Weak<Wish>,
    asked: Asked,
    /// The head of the request as it is sent.
    head: Vec<u8>,
    is_head: bool,
    /// True if it may be sent again without harm (RFC 9110 §9.2.2).
    is_idempotent: bool,
    framing: Framing,
    /// The body of the request, or what the client sends into a tunnel.
    input: Option<Rc<RefCell<Input>>>,
    /// True once bytes of the body were given to a link.
    has_sent_body: bool,
    /// True once the end of the body was, or if there is none.
    has_sent_all: bool,
    client: client::Connection,
    /// Bytes of the server that are not understood yet.
    unread: Vec<u8>,
    output: Rc<RefCell<Output>>,
    /// True once the content is pulled past the ring.
    is_pulled: bool,
    /// The memory into which it is pulled, if it does not go through pipes.
    buffer: Option<Cyclic>,
    stage: Stage,
    tries: u32,
    /// True once anything was received through the link.
    has_heard: bool,
    /// Since when it is the server's turn.
    since: Time,
}

/// How far an exchange has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
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

/// What an exchange goes on with.
#[derive(Debug)]
pub(super) struct Tools<'a> {
    pub(super) shell: &'a mut Shell,
    pub(super) links: &'a mut Links,
    pub(super) answers: &'a mut VecDeque<(Ticket, Answer)>,
    pub(super) woken: &'a mut VecDeque<Ticket>,
    pub(super) lines: &'a mut Lines,
    pub(super) places: &'a Places,
}

impl Exchange {
    /// A request that is to be passed on.
    pub(super) fn new(
        request: &Request<'_>,
        upstream: &Arc<Upstream>,
        input: Option<Rc<RefCell<Input>>>,
        how: &Forwarding<'_>,
    ) -> Self {
        let head = request.head;
        let method = &head.method;
        let is_idempotent = matches!(
            method,
            Method::Get | Method::Head | Method::Options | Method::Put | Method::Delete
        );
        let mut text = Vec::with_capacity(1024);
        request::write(head, &mut text, how);
        let framing = request::framing(head);
        Self {
            ticket: request.ticket,
            key: Key::NONE,
            upstream: Arc::clone(upstream),
            server: None,
            link: None,
            wish: Weak::new(),
            asked: Asked::of(head),
            head: text,
            is_head: *method == Method::Head,
            is_idempotent,
            framing,
            input,
            has_sent_body: false,
            has_sent_all: framing == Framing::None,
            client: client::Connection::new(),
            unread: Vec::new(),
            output: Rc::new(RefCell::new(Output::new())),
            is_pulled: false,
            buffer: None,
            stage: Stage::Connecting,
            tries: 0,
            has_heard: false,
            since: Time::default(),
        }
    }

    /// Returns whether nothing is left to do.
    pub(super) fn is_over(&self) -> bool {
        self.stage == Stage::Over
    }

    /// Begins, under this name.
    pub(super) fn begin(&mut self, tools: &mut Tools<'_>, key: Key, wish: &Rc<Wish>) {
        self.key = key;
        self.wish = Rc::downgrade(wish);
        if let Some(input) = &self.input {
            input.borrow_mut().set_key(key);
        }
        self.attempt(tools, true);
    }

    /// Tries a server.
    fn attempt(&mut self, tools: &mut Tools<'_>, may_be_kept: bool) {
        self.tries += 1;
        self.has_heard = false;
        self.unread.clear();
        self.since = tools.shell.cx.now;
        let server = Arc::clone(self.upstream.next());
        let kept = may_be_kept.then(|| tools.links.take_kept(&server, self.key)).flatten();
        let link = match kept {
            Some(kept) => Some(kept),
            None => tools.links.connect(&mut tools.shell.ring, &server, self.key),
        };
        self.stage = if kept.is_some() { Stage::Asking } else { Stage::Connecting };
        self.link = link;
        let name = server.name.clone();
        self.server = Some(server);
        let Some(link) = link.and_then(|link| tools.links.get_mut(link)) else {
            tools.lines.note(tools.shell, &name, "its address is not known");
            return self.fail(tools, Status::BadGateway);
        };
        link.push(self.head.clone());
        self.client = client::Connection::new();
        self.client.begin(if self.is_head { Method::Head } else { Method::Get });
        self.send(tools);
    }

    /// The link has been made.
    pub(super) fn handle_connected(&mut self, tools: &mut Tools<'_>) {
        self.stage = Stage::Asking;
        self.since = tools.shell.cx.now;
        self.send(tools);
    }

    /// The client or the link has made room, or has something more.
    pub(super) fn handle_touched(&mut self, tools: &mut Tools<'_>) {
        self.send(tools);
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
        let mut taken = 0;
        if let Some(input) = &self.input {
            let mut input = input.borrow_mut();
            let is_tunnel = self.stage == Stage::Tunnel;
            let takes = is_tunnel || self.framing != Framing::None;
            if takes && !self.has_sent_all && link.unsent() < UNSENT_BYTES_MAX {
                let bytes = Vec::from(core::mem::take(&mut input.waiting));
                taken = bytes.len();
                self.has_sent_body |= taken > 0;
                push_body(link, bytes, !is_tunnel && self.framing == Framing::Chunked);
                if input.has_ended && !input.is_unwanted {
                    self.has_sent_all = true;
                    if !is_tunnel && self.framing == Framing::Chunked {
                        link.push(write::LAST_CHUNK.to_vec());
                    }
                }
            }
        }
        let flushed = link.flush(&mut tools.shell.ring);
        let has_sent = link.sent() > before;
        if self.stage == Stage::Tunnel && self.has_sent_all && link.unsent() == 0 {
            link.shutdown(&mut tools.shell.ring);
        }
        if has_sent {
            self.since = tools.shell.cx.now;
        }
        if taken > 0 {
            tools.woken.push_back(self.ticket);
        }
        // The response may have come all the same: the end of what is received tells.
        if flushed.is_err() {
            self.has_sent_all = true;
        }
    }

    /// Receives while there is room for it.
    fn receive_if_wanted(&mut self, tools: &mut Tools<'_>) {
        let is_full = self.is_full();
        if let Some(link) = self.link.and_then(|link| tools.links.get_mut(link)) {
            link.set_receiving(&mut tools.shell.ring, !is_full);
        }
    }

    fn is_full(&self) -> bool {
        self.output.borrow().bytes >= self.upstream.rules.buffer
    }

    /// The server has sent this.
    pub(super) fn handle_received(&mut self, tools: &mut Tools<'_>, bytes: &[u8]) {
        self.has_heard = true;
        self.since = tools.shell.cx.now;
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

    /// Understands received bytes; returns how many.
    fn understand(&mut self, tools: &mut Tools<'_>, bytes: &[u8]) -> usize {
        let mut at = 0;
        while self.stage != Stage::Over {
            if self.stage == Stage::Tunnel {
                self.output.borrow_mut().push(&bytes[at..]);
                return bytes.len();
            }
            let (taken, event) = self.client.handle_input(&bytes[at..], &LIMITS);
            at += taken;
            match event {
                Event::Partial | Event::Closed => break,
                Event::Interim(_) => {}
                Event::Response(response) => {
                    match response::read(&response, &self.asked, tools.shell.cx.unix) {
                        Ok(meaning) => self.answer(tools, meaning, response.framing),
                        Err(fault) => self.blame(tools, fault.reason),
                    }
                    if self.stage == Stage::Content
                        && response.framing == http1::response::Framing::None
                    {
                        self.finish(tools, bytes.len() == at);
                    }
                }
                Event::Body(content) => {
                    self.output.borrow_mut().push(content);
                }
                Event::BodyEnd => self.finish(tools, bytes.len() == at),
                Event::Faulty(fault) => self.blame(tools, fault.reason),
            }
        }
        at
    }

    /// The head of the response has come.
    fn answer(
        &mut self,
        tools: &mut Tools<'_>,
        meaning: Meaning,
        framing: http1::response::Framing,
    ) {
        let Some(wish) = self.wish.upgrade() else { return self.give_up(tools) };
        let reached = |passed: Passed, has_content: bool| {
            let output = Rc::clone(&self.output);
            Answer::Response(Box::new(Reached { passed, has_content, output, wish }))
        };
        let answer = match meaning {
            Meaning::Response(passed) => {
                self.stage = Stage::Content;
                reached(passed, framing != http1::response::Framing::None)
            }
            Meaning::Tunnel(passed) => {
                self.stage = Stage::Tunnel;
                self.has_sent_all = false;
                reached(passed, true)
            }
            Meaning::HandOver(to) => {
                tools.answers.push_back((self.ticket, Answer::HandOver(Box::new(to))));
                return self.give_up(tools);
            }
        };
        tools.answers.push_back((self.ticket, answer));
    }

    /// The response is complete. `is_clean`: no bytes follow it.
    fn finish(&mut self, tools: &mut Tools<'_>, is_clean: bool) {
        self.end_output(tools, true);
        let is_idle = self.client.is_idle() && self.asked.may_keep && self.has_sent_all && is_clean;
        if let Some(key) = self.link.take() {
            let has_left = tools.links.get_mut(key).is_some_and(|link| link.unsent() == 0);
            if is_idle && has_left {
                tools.links.keep(&mut tools.shell.ring, key, tools.shell.cx.now);
            } else {
                tools.links.close(&mut tools.shell.ring, key);
            }
        }
        self.drop_input();
        self.stage = Stage::Over;
    }

    /// The server will send no more.
    pub(super) fn handle_ended(&mut self, tools: &mut Tools<'_>) {
        if self.stage == Stage::Tunnel {
            return self.finish(tools, false);
        }
        match self.client.handle_eof(self.unread.len()) {
            Eof::BodyEnd => self.finish(tools, false),
            Eof::Clean | Eof::Unanswered | Eof::Truncated => {
                self.handle_broken(tools, "the connection was closed");
            }
        }
    }

    /// The link was not made, or broke.
    pub(super) fn handle_failed(&mut self, tools: &mut Tools<'_>, error: &io::Error) {
        self.handle_broken(tools, &error.to_string());
    }

    /// The link is of no more use.
    fn handle_broken(&mut self, tools: &mut Tools<'_>, reason: &str) {
        let link = self.link.and_then(|link| tools.links.get_mut(link));
        let (was_kept, sent) = link.map_or((false, 0), |link| (link.served > 0, link.sent()));
        let is_new = self.stage == Stage::Connecting;
        let may_repeat = is_new && sent == 0
            || was_kept && !self.has_heard && self.is_idempotent && !self.has_sent_body;
        self.close_link(tools);
        if may_repeat && self.tries < TRIES_MAX && self.wish.strong_count() > 0 {
            tools.shell.cx.stats.proxy_retries += 1;
            if is_new {
                self.note(tools, reason);
            }
            return self.attempt(tools, is_new);
        }
        self.blame(tools, reason);
    }

    /// The server has failed: its response is an error, or is cut off.
    fn blame(&mut self, tools: &mut Tools<'_>, reason: &str) {
        tools.shell.cx.stats.proxy_failed += 1;
        match self.stage {
            Stage::Content | Stage::Tunnel => {
                self.note(tools, &format!("{reason}; its response is cut off"));
            }
            Stage::Connecting | Stage::Asking => self.note(tools, reason),
            Stage::Over => return,
        }
        self.fail(tools, Status::BadGateway);
    }

    /// Time has passed.
    pub(super) fn handle_tick(&mut self, tools: &mut Tools<'_>) {
        let now = tools.shell.cx.now;
        if !self.is_servers_turn(tools) {
            self.since = now;
            return;
        }
        let rules = &self.upstream.rules;
        let (most, what) = match self.stage {
            Stage::Connecting => (rules.timeout_connect, "no connection was made"),
            _ => (rules.timeout_upstream, "it did not answer"),
        };
        if now.since(self.since) < most {
            return;
        }
        tools.shell.cx.stats.proxy_timeouts += 1;
        let text = format!("{what} within {} s", most.as_secs_f64());
        if self.stage == Stage::Connecting {
            return self.handle_broken(tools, &text);
        }
        self.note(tools, &text);
        self.fail(tools, Status::GatewayTimeout);
    }

    /// Returns whether nothing can happen before the server does something.
    fn is_servers_turn(&self, tools: &mut Tools<'_>) -> bool {
        let Some(link) = self.link.and_then(|link| tools.links.get_mut(link)) else { return false };
        if self.stage == Stage::Connecting || link.unsent() > 0 {
            return true;
        }
        if self.is_pulled {
            return link.waits_for_more();
        }
        let owes_body = self.stage != Stage::Tunnel && !self.has_sent_all;
        !self.is_full() && !owes_body
    }

    /// The client waits no more, or has got what it wanted.
    pub(super) fn handle_left(&mut self, tools: &mut Tools<'_>) {
        if matches!(self.stage, Stage::Connecting | Stage::Asking) {
            let answer = Answer::Error(Status::ServiceUnavailable);
            tools.answers.push_back((self.ticket, answer));
        }
        self.give_up(tools);
    }

    /// Answers with a page for this status, or cuts the response off.
    fn fail(&mut self, tools: &mut Tools<'_>, status: Status) {
        match self.stage {
            Stage::Connecting | Stage::Asking => {
                tools.answers.push_back((self.ticket, Answer::Error(status)));
            }
            Stage::Content | Stage::Tunnel => self.end_output(tools, false),
            Stage::Over => {}
        }
        self.give_up(tools);
    }

    fn end_output(&self, tools: &mut Tools<'_>, is_whole: bool) {
        let mut output = self.output.borrow_mut();
        output.finish(is_whole);
        if core::mem::take(&mut output.is_awaited) {
            tools.woken.push_back(self.ticket);
        }
    }

    /// Ends it here.
    fn give_up(&mut self, tools: &mut Tools<'_>) {
        self.close_link(tools);
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

    /// Tells the operator something about the server.
    fn note(&self, tools: &mut Tools<'_>, text: &str) {
        let name = self.server.as_ref().map_or("a server", |server| &server.name);
        tools.lines.note(tools.shell, name, text);
    }
}

/// Queues bytes of a body, as a chunk if it is sent in chunks.
fn push_body(link: &mut Link, bytes: Vec<u8>, is_chunk: bool) {
    if bytes.is_empty() {
        return;
    }
    if is_chunk {
        let mut head = Vec::with_capacity(18);
        write::chunk_head(bytes.len() as u64, &mut head);
        link.push(head);
        link.push(bytes);
        link.push(write::CHUNK_END.to_vec());
    } else {
        link.push(bytes);
    }
}
