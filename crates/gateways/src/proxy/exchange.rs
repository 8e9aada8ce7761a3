//! One request that is passed on, with the response to it.
//!
//! ```text
//!              (the link breaks before a byte of a response, and the request may be sent again)
//!                  ┌──────────────────────────────────────────────┐
//!                  ▼                                              │
//!   begin ──► (Collecting) ──► connecting or kept link ──► Asking ──head──► Content ──end──► Over
//!                                           │                 └──101──► Tunnel ──► Over
//!                                           └─ fault, end, timeout: 502, 504; after the head: cut off
//! ```

mod attempt;
mod delivery;
mod duty;
mod failure;
pub(super) mod pull;
mod receive;
mod reception;
mod spooling;
mod upload;

use core::cell::RefCell;
use std::collections::VecDeque;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use http::Method;
use ring::{Key, Time};
use sendfile::Account;

use self::attempt::Tries;
use self::delivery::Delivery;
use self::duty::Clock;
use self::pull::Pools;
use self::receive::memory_max;
use self::reception::Reception;
use self::upload::Upload;
use crate::input::Input;
use crate::interest::Interest;
use crate::lines::{Lines, Text};
use crate::proxy::Answer;
use crate::proxy::wire::Wire;
use session::handler::{Interim, Request, Ticket};
use session::record::UpstreamTimes;
use session::shell::Shell;
use upstream::retries::is_idempotent;
use upstream::{Links, Upstream};

/// The line for the operator about bytes that belong to no response.
pub(super) const SURPLUS: &str = "it sent bytes behind its response; the connection is closed";

/// One request that is passed on.
#[derive(Debug)]
pub(super) struct Exchange {
    ticket: Ticket,
    key: Key,
    upstream: Arc<Upstream>,
    interest: Weak<Interest>,
    pub(super) wire: Wire,
    stage: Stage,
    tries: Tries,
    upload: Upload,
    reception: Reception,
    delivery: Delivery,
    pub(super) clock: Clock,
    /// The text that the upstream writes for the operator.
    text: Text,
    /// The times of the upstream for the log, and when the head of its response had come.
    times: Option<(Rc<UpstreamTimes>, Time)>,
}

/// The stage of an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Nothing was sent to the upstream yet. Perhaps the body is still being collected.
    Collecting,
    /// The connection is being made.
    Connecting,
    /// The head of the response has not come.
    Asking,
    /// The content of the response comes.
    Content,
    /// Both sides send whenever they have bytes.
    Tunnel,
    Over,
}

/// The tools with which an exchange continues.
#[derive(Debug)]
pub(super) struct Tools<'a> {
    pub(super) shell: &'a mut Shell,
    pub(super) links: &'a mut Links,
    pub(super) answers: &'a mut VecDeque<(Ticket, Answer)>,
    pub(super) interims: &'a mut VecDeque<(Ticket, Interim)>,
    pub(super) woken: &'a mut VecDeque<Ticket>,
    pub(super) again: &'a mut VecDeque<Key>,
    pub(super) lines: &'a mut Lines,
    pub(super) pools: &'a mut Pools,
    /// The time until which this worker turn may pull contents (`pull.rs`); `None` until the first pull.
    pub(super) pull_until: &'a mut Option<Time>,
}

impl Exchange {
    /// Creates the exchange of a request. `account` is charged for the response. The hash `affinity` chooses the server
    /// of the request.
    pub(super) fn new(
        request: &Request<'_>,
        account: &Account,
        upstream: &Arc<Upstream>,
        affinity: u64,
        input: Option<Rc<RefCell<Input>>>,
        wire: Wire,
    ) -> Self {
        let method = &request.head.method;
        let is_idempotent = is_idempotent(method);
        let upload = Upload::new(input, wire.has_body(), is_idempotent);
        Self {
            ticket: request.ticket,
            key: Key::NONE,
            upstream: Arc::clone(upstream),
            interest: Weak::new(),
            wire,
            stage: Stage::Collecting,
            tries: Tries::new(affinity, is_idempotent),
            upload,
            reception: Reception::new(),
            delivery: Delivery::new(*method == Method::Head, account, memory_max(&upstream.rules)),
            clock: Clock::new(),
            text: Text::default(),
            times: None,
        }
    }

    /// The memory of the exchange and its request, in bytes.
    pub(super) fn memory(&self) -> usize {
        size_of::<Self>() + self.wire.memory()
    }

    /// Returns true if nothing is left to do.
    pub(super) fn is_over(&self) -> bool {
        self.stage == Stage::Over
    }

    /// Begins the exchange, under this key.
    pub(super) fn begin(&mut self, tools: &mut Tools<'_>, key: Key, interest: &Rc<Interest>) {
        self.key = key;
        self.interest = Rc::downgrade(interest);
        self.upload.begin(key);
        self.collect(tools);
    }

    /// Ends the exchange with the upstream.
    pub(super) fn leave(&mut self, links: &mut Links) {
        if let Some(chosen) = self.tries.chosen.take() {
            links.end(chosen);
        }
    }

    /// Gives back the memory of the request's head so that another request can use it, unless the head still has to be
    /// sent.
    pub(super) fn into_text(self) -> Option<Rc<Vec<u8>>> {
        self.wire.into_text()
    }

    /// Logs the text that the application writes for the operator, up to a limit. Text beyond the limit does not extend
    /// the upstream's deadline. Each line uses as much of the quantum as an empty part of the response.
    fn read_text(&mut self, tools: &mut Tools<'_>, text: &[u8]) {
        let Self { text: all, tries, upstream, wire, reception, .. } = self;
        let Tools { shell, lines, .. } = tools;
        let source = tries.server_name(upstream);
        let name = wire.name_at(source);
        let note = |line: &str| {
            reception.share.spend(0);
            lines.note_text(shell, source, &name, line);
        };
        if all.push(text, note) {
            self.clock.note_progress(shell.cx.now);
        } else if all.is_endless() {
            self.blame(tools, "it writes more than 64 MiB to standard error");
        }
    }

    fn end_text(&mut self, tools: &mut Tools<'_>) {
        let Self { text, tries, upstream, wire, .. } = self;
        let Tools { shell, lines, .. } = tools;
        let source = tries.server_name(upstream);
        text.end(|line| lines.note_text(shell, source, &wire.name_at(source), line));
    }
}
