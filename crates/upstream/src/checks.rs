//! A worker's checks, which find out whether servers are up.
//!
//! Each check has a link of its own, which is closed after the head of the response. When a check is due,
//! the worker that notices it first (`Health::take_check`) makes it for all workers.

use std::rc::Rc;
use std::sync::Arc;

use http::path;
use http1::Limits;
use http1::client::{self, Event};
use ring::{Completion, Key, Op, Ring, Slab, Time, Token};

use super::link::{Link, LinkEvent, Tokens};
use super::steps::Steps;
use super::{Server, Upstream};
use tls::ClientBuffers;

use config::{RESPONSE_LIMITS, ServerAddress};

/// The questions of a worker.
#[derive(Debug)]
pub struct Checks {
    /// The upstreams whose servers are checked.
    upstreams: Vec<Arc<Upstream>>,
    running: Slab<Check>,
    /// The timer of the next check.
    timer: Option<Key>,
    /// The handshakes with servers.
    steps: Steps,
    /// The timer of the steps that wait for another turn of the worker.
    steps_timer: Option<Key>,
    buffers: Rc<ClientBuffers>,
    /// The kinds of its tokens: for received bytes and the timer, and for sending.
    kinds: (Token, Token),
}

/// A question to a server.
#[derive(Debug)]
struct Check {
    upstream: Arc<Upstream>,
    server: Arc<Server>,
    link: Link,
    client: client::Connection,
    /// Received bytes that are not parsed yet.
    unread: Vec<u8>,
    /// When it has failed.
    until: Time,
}

impl Checks {
    /// No servers are checked yet. The operations have these kinds of tokens.
    pub fn new(receive: Token, writable: Token) -> Self {
        Self {
            upstreams: Vec::new(),
            running: Slab::new(),
            timer: None,
            steps: Steps::default(),
            steps_timer: None,
            buffers: Rc::default(),
            kinds: (receive, writable),
        }
    }

    /// Checks the servers of these upstreams from now on, as far as their rules say so.
    pub fn watch<'a>(
        &mut self,
        ring: &mut Ring,
        upstreams: impl Iterator<Item = &'a Arc<Upstream>>,
        now: Time,
    ) {
        let checked = upstreams.filter(|upstream| upstream.rules.health.check.is_some());
        self.upstreams = checked.cloned().collect();
        if let Some(timer) = self.timer.take() {
            ring.cancel(timer);
        }
        self.wait(ring, now);
    }

    /// Handles a completion, in this turn of the worker. Returns the news for the operator.
    pub fn handle(
        &mut self,
        ring: &mut Ring,
        completion: Completion,
        turn: u64,
        now: Time,
    ) -> Option<String> {
        let key = Key::from_bits(completion.token);
        if key == Key::NONE {
            // Another one than this was cancelled.
            if self.timer == Some(completion.key) {
                self.timer = None;
                return self.handle_timer(ring, now);
            }
            if self.steps_timer == Some(completion.key) {
                self.steps_timer = None;
                return self.take_steps(ring, turn, now);
            }
            return None;
        }
        let check = self.running.get_mut(key)?;
        let tokens = Tokens::of(self.kinds, key);
        let event = check.link.handle(ring, completion, tokens)?;
        self.handle_event(ring, key, event, turn, now)
    }

    /// Makes the steps of handshakes for which this turn has time.
    fn take_steps(&mut self, ring: &mut Ring, turn: u64, now: Time) -> Option<String> {
        let mut notes = Vec::new();
        while let Some(key) = self.steps.next(turn, || ring.now()) {
            // The check may have ended since.
            let Some(check) = self.running.get_mut(key) else { continue };
            let Some(event) = check.link.step(ring) else { continue };
            notes.extend(self.handle_event(ring, key, event, turn, now));
        }
        self.wait_for_turn(ring);
        (!notes.is_empty()).then(|| notes.join("\n"))
    }

    /// Starts a timer that begins another turn, if steps wait for it.
    fn wait_for_turn(&mut self, ring: &mut Ring) {
        if self.steps.is_waiting() && self.steps_timer.is_none() {
            let timer = Op::Timer(ring.now());
            self.steps_timer = Some(ring.submit(timer, self.kinds.0 | Key::NONE.to_bits()));
        }
    }

    fn handle_event(
        &mut self,
        ring: &mut Ring,
        key: Key,
        mut event: LinkEvent,
        turn: u64,
        now: Time,
    ) -> Option<String> {
        if matches!(event, LinkEvent::StepDue) {
            if !self.steps.take_or_wait(key, turn, || ring.now()) {
                self.wait_for_turn(ring);
                return None;
            }
            event = self.running.get_mut(key)?.link.step(ring)?;
        }
        let check = self.running.get_mut(key)?;
        let outcome = match event {
            LinkEvent::StepDue => None,
            LinkEvent::Connected | LinkEvent::Writable => {
                check.link.flush(ring).err().map(|_| Err("the connection broke".to_owned()))
            }
            LinkEvent::Received(bytes) => check.understand(&bytes),
            LinkEvent::Ended => Some(Err("the connection was closed".to_owned())),
            LinkEvent::Failed(error) => Some(Err(error.to_string())),
            LinkEvent::Pullable => unreachable!("no content is pulled"),
        };
        self.end(ring, key, outcome?, now)
    }

    /// Begins a check, because its time has come.
    fn handle_timer(&mut self, ring: &mut Ring, now: Time) -> Option<String> {
        let mut notes = Vec::new();
        let late: Vec<_> = self
            .running
            .iter()
            .filter(|(_, check)| now >= check.until)
            .map(|(key, _)| key)
            .collect();
        for key in late {
            notes.extend(self.end(ring, key, Err("no response came in time".to_owned()), now));
        }
        for upstream in self.upstreams.clone() {
            for server in upstream.servers(now) {
                if server.health.take_check(now) {
                    self.begin(ring, &upstream, server, now);
                }
            }
        }
        self.wait(ring, now);
        (!notes.is_empty()).then(|| notes.join("\n"))
    }

    fn begin(&mut self, ring: &mut Ring, upstream: &Arc<Upstream>, server: Arc<Server>, now: Time) {
        let rules = &upstream.rules.health;
        let (Some(path), Some(address)) = (&rules.check, server.address.clone()) else { return };
        let until = now + rules.check_interval;
        let mut client = client::Connection::new();
        client.begin(http::Method::Get);
        let Self { running, kinds, buffers, .. } = self;
        running.insert_with(|key| {
            let tokens = Tokens::of(*kinds, key);
            let mut link = Link::connect(ring, &server, address, Key::NONE, tokens, buffers);
            link.push(request(path, &server));
            let (upstream, unread) = (Arc::clone(upstream), Vec::new());
            Check { upstream, server, link, client, unread, until }
        });
    }

    /// A check has passed, or has failed for a reason.
    fn end(
        &mut self,
        ring: &mut Ring,
        key: Key,
        outcome: Result<(), String>,
        now: Time,
    ) -> Option<String> {
        let mut check = self.running.remove(key)?;
        check.link.close(ring);
        let Check { server, upstream, .. } = &check;
        let change = server.health.handle_check(outcome.is_ok(), now)?;
        let reason = outcome.err().map(|error| format!("; the last one: {error}"));
        let (name, of) = (&server.name, &upstream.name);
        Some(format!("{name}: {change}{} (a server of {of})", reason.unwrap_or_default()))
    }

    /// Waits for the next check.
    fn wait(&mut self, ring: &mut Ring, now: Time) {
        let servers = self.upstreams.iter().flat_map(|upstream| upstream.servers(now));
        let due = servers.filter_map(|server| server.health.check_at()).min();
        // A name that is not resolved has no servers yet.
        let later =
            self.upstreams.iter().map(|upstream| now + upstream.rules.health.check_interval);
        if let Some(at) = due.or_else(|| later.min()) {
            self.timer = Some(ring.submit(Op::Timer(at), self.kinds.0 | Key::NONE.to_bits()));
        }
    }
}

/// The limits of the response to a check: the maximum that a configuration may set.
const LIMITS: Limits = Limits { head_bytes_max: 256 * 1024, ..RESPONSE_LIMITS };

impl Check {
    /// Parses bytes from the server. Returns whether the server is well, once that is known.
    fn understand(&mut self, bytes: &[u8]) -> Option<Result<(), String>> {
        self.unread.extend_from_slice(bytes);
        loop {
            let (taken, event) = self.client.handle_input(&self.unread, &LIMITS);
            let outcome = match event {
                Event::Interim(_) => None,
                Event::Response(response) if matches!(response.status.code(), 200..=399) => {
                    Some(Ok(()))
                }
                Event::Response(response) => {
                    Some(Err(format!("its status is {}", response.status.code())))
                }
                Event::Faulty(fault) => Some(Err(fault.reason.to_owned())),
                Event::Partial
                | Event::Closed
                | Event::Body(_)
                | Event::Trailer(..)
                | Event::NoTrailers
                | Event::BodyEnd => return None,
            };
            if outcome.is_some() {
                return outcome;
            }
            self.unread.drain(..taken);
        }
    }
}

/// The head of a question.
fn request(path: &str, server: &Server) -> Vec<u8> {
    let mut text = b"GET ".to_vec();
    path::encode(path.as_bytes(), &mut text);
    let host = match &server.url.address {
        ServerAddress::Unix(_) => "localhost".to_owned(),
        address => address.to_string(),
    };
    let rest =
        format!(" HTTP/1.1\r\nHost: {host}\r\nUser-Agent: samum\r\nConnection: close\r\n\r\n");
    text.extend_from_slice(rest.as_bytes());
    text
}
