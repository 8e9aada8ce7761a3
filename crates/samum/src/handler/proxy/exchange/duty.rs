//! The duties of a server, and their timeouts.

use core::time::Duration;

use http::Status;
use ring::Time;

use super::{Exchange, SLOW_BYTES, Stage, Tools};

/// The thing that a server has to do for the exchange to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Duty {
    /// Accept the connection.
    Connect,
    /// Take bytes of the request that wait for it, before it has answered.
    Take,
    /// Answer, or go on with its response. In a tunnel, take or send something.
    Give,
}

impl Exchange {
    /// Notes after each step what the server has to do now. Its time begins with the duty.
    pub(in crate::handler::proxy) fn note_duty(&mut self, tools: &mut Tools<'_>) {
        let duty = self.current_duty(tools);
        if core::mem::replace(&mut self.duty, duty) != duty {
            self.since = tools.shell.cx.now;
        }
    }

    /// The time by which it is to be looked at; `None` while the client has to do something first, whose time
    /// is the session's matter.
    pub(in crate::handler::proxy) fn deadline(&self, now: Time) -> Option<Time> {
        if self.may_be_slow()
            || self.delivery.spool.as_ref().is_some_and(|spool| spool.is_waiting())
        {
            return Some(now);
        }
        let of_duty = self.duty.map(|duty| self.since + self.patience(duty));
        [of_duty, self.until].into_iter().flatten().min()
    }

    /// The time in which the server must do something of a duty.
    pub(super) fn patience(&self, duty: Duty) -> Duration {
        let rules = &self.upstream.rules;
        match duty {
            Duty::Connect => rules.timeout_connect,
            Duty::Take => rules.timeout_upstream_send,
            Duty::Give => rules.timeout_upstream,
        }
    }

    /// The fault if the server takes longer, for the operator.
    pub(super) fn overdue(&self, duty: Duty) -> String {
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
    pub(in crate::handler::proxy) fn handle_deadline(&mut self, tools: &mut Tools<'_>) {
        if self.until.is_some_and(|until| tools.shell.cx.now >= until) {
            return self.abort(tools);
        }
        let came = self.delivery.came();
        if came == 0 {
            self.pull_for_slow_client(tools);
        }
        if came < SLOW_BYTES {
            self.spool_for_slow_client(tools);
        }
        if self.delivery.spool.as_ref().is_some_and(|spool| spool.is_overdue(tools.shell.cx.now)) {
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
    pub(super) fn current_duty(&self, tools: &mut Tools<'_>) -> Option<Duty> {
        let link = self.tries.link(tools.links)?;
        let has_unsent = link.unsent() > 0;
        match self.stage {
            Stage::Connecting => return Some(Duty::Connect),
            Stage::Asking if has_unsent => return Some(Duty::Take),
            Stage::Tunnel if has_unsent => return Some(Duty::Give),
            _ => {}
        }
        // A server whose response waits for the client may take nothing meanwhile.
        let owes_body = self.stage != Stage::Tunnel && !has_unsent && self.upload.is_owed();
        let is_servers =
            if self.reception.way.is_pulled() && (self.stage == Stage::Content || !owes_body) {
                link.waits_for_more()
            } else {
                !self.is_full() && !owes_body
            };
        is_servers.then_some(Duty::Give)
    }
}
