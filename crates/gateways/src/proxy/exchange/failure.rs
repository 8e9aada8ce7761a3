//! Failures of an exchange: another attempt, the answer to the client, and the line in the log.

use std::io;

use http::Status;
use rustix::io::Errno;

use super::{Exchange, Stage, Tools};
use crate::proxy::Answer;
use config::errno::words;
use session::reason::Reason;
use upstream::retries::{Attempt, Reached};
use upstream::{Change, Cost};

/// The reason why a request is sent again, to the same server or to another server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    /// The server has failed.
    Failure,
    /// The server has too much to do. The next link is a new link, so bytes that follow on this link are not mistaken
    /// for another server's response.
    Overload,
    /// The server has closed a kept link. Servers may do this at any time. The try does not count, and the next link is
    /// a new link.
    KeptLinkEnded,
}

/// The reason why a connection to a server was not made.
fn no_connection(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "cannot connect: there is no such socket".to_owned(),
        io::ErrorKind::ConnectionRefused => {
            "cannot connect: no program listens there (connection refused)".to_owned()
        }
        io::ErrorKind::PermissionDenied => {
            "cannot connect: permission denied (the user of this server must be able to write to the socket)"
                .to_owned()
        }
        _ => format!("cannot connect: {}", words(error)),
    }
}

impl Exchange {
    /// Handles a link that was not made, or that broke.
    pub(in crate::proxy) fn handle_failed(&mut self, tools: &mut Tools<'_>, error: &io::Error) {
        let is_connecting = self.stage == Stage::Connecting;
        let text = if is_connecting { no_connection(error) } else { words(error) };
        if is_connecting && is_shortage(error) {
            // The shortage is this server's own, and no upstream's fault.
            self.note(tools, &text);
            let reason = Reason::failed(&self.name(), &text);
            return self.fail(tools, Status::ServiceUnavailable, reason);
        }
        self.handle_broken(tools, &text, Status::BadGateway);
    }

    /// Handles a link that can no longer be used.
    pub(super) fn handle_broken(&mut self, tools: &mut Tools<'_>, reason: &str, status: Status) {
        let link = self.tries.link(tools.links);
        let (was_kept, sent) = link.map_or((false, 0), |link| (link.served > 0, link.sent()));
        let reached = self.tries.reached(sent);
        self.close_link(tools);
        let is_fault = !was_kept || self.tries.has_heard || status == Status::GatewayTimeout;
        let cause = if is_fault { Cause::Failure } else { Cause::KeptLinkEnded };
        // A tunnel may end for reasons that are not the upstream's fault, and clients can cause them.
        if is_fault && self.stage != Stage::Tunnel {
            self.accuse(tools);
        }
        let shown = is_fault.then_some(reason);
        if !self.ask_another(tools, reached, shown, cause) {
            self.refuse(tools, reason, status);
        }
    }

    /// Handles a server that has not begun the request, because it has too much to do. That is no fault of the server.
    pub(super) fn handle_overloaded(&mut self, tools: &mut Tools<'_>) {
        const REASON: &str = "it has too much to do";
        self.close_link(tools);
        self.tries.exclude();
        if !self.ask_another(tools, Reached::Nothing, Some(REASON), Cause::Overload) {
            self.refuse(tools, REASON, Status::ServiceUnavailable);
        }
    }

    /// Sends the request again, if it may be sent and there is a server for it. The link of the last try is closed.
    /// `shown` is the reason for the operator.
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
        tools.shell.cx.stats.proxy_retries.add(1);
        if let Some(reason) = shown {
            self.note(tools, &format!("{reason}; another server is asked"));
        }
        self.leave(tools.links);
        self.attempt(tools, next, cause == Cause::Failure);
        true
    }

    /// Records a fault of the upstream. The client gets an error, or its response is cut off.
    pub(super) fn blame(&mut self, tools: &mut Tools<'_>, reason: &str) {
        self.accuse(tools);
        self.refuse(tools, reason, Status::BadGateway);
    }

    /// Reports a failure, and answers with an error or cuts the response off.
    pub(super) fn refuse(&mut self, tools: &mut Tools<'_>, reason: &str, status: Status) {
        self.note_failure(tools, reason);
        let reason = Reason::failed(&self.name(), reason);
        self.fail(tools, status, reason);
    }

    /// Counts the failure of the exchange as the upstream's fault.
    pub(super) fn accuse(&mut self, tools: &mut Tools<'_>) {
        self.tries.exclude();
        let now = tools.shell.cx.now;
        let change = self.tries.chosen.as_mut().and_then(|chosen| chosen.handle_failure(now));
        self.note_change(tools, change);
    }

    /// Handles a client that waits no more, has got all that it wanted, or has broken its request off.
    pub(in crate::proxy) fn handle_left(&mut self, tools: &mut Tools<'_>) {
        let is_begun = match self.stage {
            Stage::Collecting | Stage::Connecting | Stage::Asking => {
                let answer = Answer::Error(Status::ServiceUnavailable, Reason::Gone);
                tools.answers.push_back((self.ticket, answer));
                false
            }
            Stage::Content | Stage::Tunnel | Stage::Over => true,
        };
        let has_all = self.delivery.has_all();
        // The end of the response is near, and then the link can be kept. Content that waits for the client would use
        // the room that the end needs.
        if is_begun && has_all && self.wire.keeps() && self.upload.has_sent_all {
            self.delivery.output.borrow_mut().drop_rest();
            let patience = self.upstream.rules.timeout_upstream;
            self.clock.until.get_or_insert(tools.shell.cx.now + patience);
            return self.handle_touched(tools);
        }
        // A tunnel ends when either side closes it.
        if !is_begun || self.stage == Stage::Content && !has_all {
            let is_too_long = self.upload.is_too_long();
            tools.shell.cx.stats.proxy_left.add(u64::from(!is_too_long));
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

    /// Ends the exchange, and asks the upstream to end the response.
    pub(super) fn abort(&mut self, tools: &mut Tools<'_>) {
        if let Some(link) = self.tries.link(tools.links) {
            self.wire.push_abort(link);
            // An error does not matter, because the link is closed.
            let _ = link.flush(&mut tools.shell.ring);
        }
        self.give_up(tools);
    }

    /// Answers with a page for this status, or cuts the response off if it has begun.
    pub(super) fn fail(&mut self, tools: &mut Tools<'_>, status: Status, reason: Reason) {
        match self.stage {
            Stage::Collecting | Stage::Connecting | Stage::Asking => {
                tools.answers.push_back((self.ticket, Answer::Error(status, reason)));
            }
            Stage::Content | Stage::Tunnel => {
                self.end_output(tools, false);
            }
            Stage::Over => {}
        }
        self.give_up(tools);
    }

    /// Ends the exchange and closes its link.
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

    /// Reports that the upstream has failed, and the consequence.
    pub(super) fn note_failure(&self, tools: &mut Tools<'_>, reason: &str) {
        tools.shell.cx.stats.proxy_failed.add(1);
        match self.stage {
            Stage::Content | Stage::Tunnel => {
                let end = if self.delivery.has_all() { "was whole" } else { "is cut off" };
                self.note(tools, &format!("{reason}; its response {end}"));
            }
            Stage::Collecting | Stage::Connecting | Stage::Asking => self.note(tools, reason),
            Stage::Over => {}
        }
    }

    /// Reports that the server is now up or down. Without a change nothing is reported.
    pub(super) fn note_change(&self, tools: &mut Tools<'_>, change: Option<Change>) {
        if let Some(change) = change {
            let text = format!("{change} (a server of {})", self.upstream.name);
            tools.lines.note(tools.shell, self.tries.server_name(&self.upstream), &text);
        }
    }

    /// Logs a line about the upstream.
    pub(super) fn note(&self, tools: &mut Tools<'_>, text: &str) {
        tools.lines.note(tools.shell, &self.name(), text);
    }

    /// Logs a line about something that a client can cause.
    pub(super) fn note_client(&self, tools: &mut Tools<'_>, text: &str) {
        tools.lines.note_client(tools.shell, &self.name(), text);
    }

    /// The name of the server, or of the upstream while no server is chosen, and the name of the script.
    fn name(&self) -> String {
        self.wire.name_at(self.tries.server_name(&self.upstream))
    }
}

/// Returns true if this server lacks a resource, such as descriptors.
fn is_shortage(error: &io::Error) -> bool {
    // With `ADDRNOTAVAIL` all ports of this host are in use for the address.
    let all = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM, Errno::ADDRNOTAVAIL];
    all.iter().any(|one| error.raw_os_error() == Some(one.raw_os_error()))
}
