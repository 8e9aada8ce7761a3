//! Failures of an exchange: another attempt, the answer to the client, and the line in the log.

use std::io;

use http::Status;
use rustix::io::Errno;

use super::{Exchange, Stage, Tools};
use crate::handler::proxy::Answer;
use upstream::retries::{Attempt, Reached};
use upstream::{Change, Cost};

/// The reason for asking another server, or the same once more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    /// The server has failed.
    Failure,
    /// It has too much to do. The next link is a new one: what follows on this one is not taken for the answer of
    /// another server.
    Overload,
    /// It has closed a link that was kept, as servers do when they like. That was no try, and the next link is a
    /// new one.
    KeptLinkEnded,
}

impl Exchange {
    /// The link was not made, or broke.
    pub(in crate::handler::proxy) fn handle_failed(
        &mut self,
        tools: &mut Tools<'_>,
        error: &io::Error,
    ) {
        if self.stage == Stage::Connecting && is_shortage(error) {
            // No server is to blame.
            self.note(tools, &error.to_string());
            return self.fail(tools, Status::ServiceUnavailable);
        }
        self.handle_broken(tools, &error.to_string(), Status::BadGateway);
    }

    /// The link is of no more use.
    pub(super) fn handle_broken(&mut self, tools: &mut Tools<'_>, reason: &str, status: Status) {
        let link = self.tries.link(tools.links);
        let (was_kept, sent) = link.map_or((false, 0), |link| (link.served > 0, link.sent()));
        let reached = self.tries.reached(sent);
        self.close_link(tools);
        let is_fault = !was_kept || self.tries.has_heard || status == Status::GatewayTimeout;
        let cause = if is_fault { Cause::Failure } else { Cause::KeptLinkEnded };
        // The ends of a tunnel have their own reasons, which clients can bring about.
        if is_fault && self.stage != Stage::Tunnel {
            self.accuse(tools);
        }
        let shown = is_fault.then_some(reason);
        if !self.ask_another(tools, reached, shown, cause) {
            self.note_failure(tools, reason);
            self.fail(tools, status);
        }
    }

    /// The server has not begun with the request, because it has too much to do. That is no fault of it.
    pub(super) fn handle_overloaded(&mut self, tools: &mut Tools<'_>) {
        const REASON: &str = "it has too much to do";
        self.close_link(tools);
        self.tries.exclude();
        if !self.ask_another(tools, Reached::Nothing, Some(REASON), Cause::Overload) {
            self.note_failure(tools, REASON);
            self.fail(tools, Status::ServiceUnavailable);
        }
    }

    /// Sends the request once more, if it may be sent and there is a server for it. The link of the last try is
    /// closed. `shown` is the reason for the operator.
    fn ask_another(
        &mut self,
        tools: &mut Tools<'_>,
        reached: Reached,
        shown: Option<&str>,
        cause: Cause,
    ) -> bool {
        let was_try = cause != Cause::KeptLinkEnded;
        self.tries.count -= u32::from(!was_try);
        let attempt = Attempt {
            is_idempotent: self.tries.is_idempotent,
            reached,
            is_body_consumed: self.upload.is_consumed(),
            tries: self.tries.count,
        };
        let is_last = self.tries.chosen.as_ref().is_some_and(|chosen| chosen.is_last);
        if !attempt.may_be_repeated(self.upstream.rules.retries)
            || is_last && was_try
            || self.interest.strong_count() == 0
        {
            return false;
        }
        let cost = if was_try { Cost::Retry } else { Cost::Nothing };
        let Some(next) = self.choose(tools, cost) else { return false };
        tools.shell.cx.stats.proxy_retries += 1;
        if let Some(reason) = shown {
            self.note(tools, &format!("{reason}; another server is asked"));
        }
        self.leave(tools.links);
        self.attempt(tools, next, cause == Cause::Failure);
        true
    }

    /// The server has failed: its response is an error, or is cut off.
    pub(super) fn blame(&mut self, tools: &mut Tools<'_>, reason: &str) {
        self.accuse(tools);
        self.note_failure(tools, reason);
        self.fail(tools, Status::BadGateway);
    }

    /// The failure of the exchange is the server's fault.
    pub(super) fn accuse(&mut self, tools: &mut Tools<'_>) {
        self.tries.exclude();
        let now = tools.shell.cx.now;
        let change = self.tries.chosen.as_mut().and_then(|chosen| chosen.handle_failure(now));
        self.note_change(tools, change);
    }

    /// The client waits no more, has got what it wanted, or has broken its request off.
    pub(in crate::handler::proxy) fn handle_left(&mut self, tools: &mut Tools<'_>) {
        let is_begun = match self.stage {
            Stage::Collecting | Stage::Connecting | Stage::Asking => {
                let answer = Answer::Error(Status::ServiceUnavailable);
                tools.answers.push_back((self.ticket, answer));
                false
            }
            Stage::Content | Stage::Tunnel | Stage::Over => true,
        };
        let has_all = self.delivery.has_all();
        // The end of the response is about to come, and then the link can be kept. What waits for the client would take
        // the room that the end needs.
        if is_begun && has_all && self.wire.keeps() && self.upload.has_sent_all {
            self.delivery.output.borrow_mut().drop_rest();
            let patience = self.upstream.rules.timeout_upstream;
            self.clock.until.get_or_insert(tools.shell.cx.now + patience);
            return self.handle_touched(tools);
        }
        // A tunnel ends when either end closes it.
        if !is_begun || self.stage == Stage::Content && !has_all {
            let is_too_long = self.upload.is_too_long();
            tools.shell.cx.stats.proxy_left += u64::from(!is_too_long);
            let text = match (is_begun, is_too_long) {
                (false, _) => "the client waits no more; its request is given up",
                (true, false) => "the client waits no more; its response is cut off",
                (true, true) => {
                    "the body of a request is longer than `max-body`; its response is cut off"
                }
            };
            self.note_client(tools, text);
        }
        self.end_output(tools, false);
        self.abort(tools);
    }

    /// Ends it here, and tells the server that the response is not wanted any more.
    pub(super) fn abort(&mut self, tools: &mut Tools<'_>) {
        if let Some(link) = self.tries.link(tools.links) {
            self.wire.push_abort(link);
            // The link is closed anyway.
            let _ = link.flush(&mut tools.shell.ring);
        }
        self.give_up(tools);
    }

    /// Answers with a page for this status, or cuts the response off.
    pub(super) fn fail(&mut self, tools: &mut Tools<'_>, status: Status) {
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

    /// Ends it here.
    pub(super) fn give_up(&mut self, tools: &mut Tools<'_>) {
        self.close_link(tools);
        self.end_text(tools);
        self.upload.drop_rest();
        self.stage = Stage::Over;
    }

    pub(super) fn close_link(&mut self, tools: &mut Tools<'_>) {
        if let Some(key) = self.tries.link.take() {
            tools.links.close(&mut tools.shell.ring, key);
        }
    }

    /// Tells the operator that the server has failed, and what of it.
    pub(super) fn note_failure(&self, tools: &mut Tools<'_>, reason: &str) {
        tools.shell.cx.stats.proxy_failed += 1;
        match self.stage {
            Stage::Content | Stage::Tunnel => {
                let end = if self.delivery.has_all() { "was whole" } else { "is cut off" };
                self.note(tools, &format!("{reason}; its response {end}"));
            }
            Stage::Collecting | Stage::Connecting | Stage::Asking => self.note(tools, reason),
            Stage::Over => {}
        }
    }

    /// Tells the operator that the server is up or down, if that has changed.
    pub(super) fn note_change(&self, tools: &mut Tools<'_>, change: Option<Change>) {
        if let Some(change) = change {
            let text = format!("{change} (a server of {})", self.upstream.name);
            tools.lines.note(tools.shell, self.tries.server_name(&self.upstream), &text);
        }
    }

    /// Tells the operator something about the server.
    pub(super) fn note(&self, tools: &mut Tools<'_>, text: &str) {
        tools.lines.note(tools.shell, &self.name(), text);
    }

    /// Tells the operator something that a client can cause.
    pub(super) fn note_client(&self, tools: &mut Tools<'_>, text: &str) {
        tools.lines.note_client(tools.shell, &self.name(), text);
    }

    /// The name of the server, or that of all while none is chosen, and that of the script.
    fn name(&self) -> String {
        self.wire.name_at(self.tries.server_name(&self.upstream))
    }
}

/// Returns whether this server has too little of something.
fn is_shortage(error: &io::Error) -> bool {
    // The last one: all ports of this host are in use for the address.
    let all = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM, Errno::ADDRNOTAVAIL];
    all.iter().any(|one| error.raw_os_error() == Some(one.raw_os_error()))
}
