//! The duties of an upstream, and their timeouts.

use core::time::Duration;

use http::Status;
use ring::Time;

use super::{Exchange, Stage, Tools};
use session::wheel::Tick;

/// A client that receives fewer bytes between two looks (0.1 s apart) may be so slow that its response should be kept
/// in a file. A client with a link of one gigabit per second receives more.
const SLOW_BYTES: u64 = 8 * 1024 * 1024;

/// The deadlines of an exchange.
#[derive(Debug)]
pub(in crate::proxy) struct Clock {
    /// The duty of the upstream, while the exchange waits for it.
    duty: Option<Duty>,
    /// The time since which the upstream has done nothing of its duty.
    pub(super) since: Time,
    /// The time at which the exchange is given up if no client waits for the rest of its response.
    pub(super) until: Option<Time>,
    /// The time that the connection took; none for one that was kept.
    pub(super) connect: Option<Duration>,
    /// The time at which the connection was there.
    pub(super) connected: Time,
    /// The tick of the exchange's earliest entry in the wheel.
    pub(in crate::proxy) wheel_tick: Tick,
}

/// The next act of an upstream that an exchange needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Duty {
    /// Accept the connection.
    Connect,
    /// Receive bytes of the request that wait for it, before its response.
    Take,
    /// Send the response, or more of it. In a tunnel, receive or send bytes.
    Give,
}

/// The facts about an exchange with a link that decide on the duty of its upstream.
#[derive(Clone, Copy, Debug)]
struct Facts {
    stage: Stage,
    /// True if bytes of the request or the tunnel wait for the upstream to receive them.
    has_unsent: bool,
    /// True if the client has to send more of its body.
    is_body_owed: bool,
    /// True if there is room for the next bytes of the upstream, so that the exchange only waits for them.
    is_awaited: bool,
}

impl Clock {
    pub(super) fn new() -> Self {
        Self {
            duty: None,
            since: Time::default(),
            until: None,
            connect: None,
            connected: Time::default(),
            wheel_tick: Tick::MAX,
        }
    }

    /// Records that the upstream has sent bytes. These bytes do not extend the upstream's time to receive the
    /// request.
    pub(super) fn note_progress(&mut self, now: Time) {
        if self.duty != Some(Duty::Take) {
            self.since = now;
        }
    }
}

impl Facts {
    /// The duty of the upstream; `None` while its client has to act first.
    fn duty(self) -> Option<Duty> {
        match self.stage {
            Stage::Connecting => return Some(Duty::Connect),
            Stage::Asking if self.has_unsent => return Some(Duty::Take),
            Stage::Tunnel if self.has_unsent => return Some(Duty::Give),
            _ => {}
        }
        // An upstream does not have to receive anything while its response waits for the client.
        let owes_body = self.stage != Stage::Tunnel && !self.has_unsent && self.is_body_owed;
        // An upstream may need more of the body to continue its content. The session limits the time of the client that
        // owes the body.
        (self.is_awaited && !owes_body).then_some(Duty::Give)
    }
}

impl Exchange {
    /// Notes the upstream's duty after each step. The time for a duty begins with it.
    pub(in crate::proxy) fn note_duty(&mut self, tools: &mut Tools<'_>) {
        let duty = self.current_duty(tools);
        if core::mem::replace(&mut self.clock.duty, duty) != duty {
            self.clock.since = tools.shell.cx.now;
        }
    }

    /// The time of the next look; `None` while the client has to act first; the session limits the client's time.
    pub(in crate::proxy) fn deadline(&self, now: Time) -> Option<Time> {
        if self.may_be_slow()
            || self.delivery.spool.as_ref().is_some_and(|spool| spool.is_waiting())
        {
            return Some(now);
        }
        let of_duty = self.clock.duty.map(|duty| self.clock.since + self.patience(duty));
        [of_duty, self.clock.until].into_iter().flatten().min()
    }

    /// The time in which the upstream must make progress in a duty.
    fn patience(&self, duty: Duty) -> Duration {
        let rules = &self.upstream.rules;
        match duty {
            Duty::Connect => rules.timeout_connect,
            Duty::Take => rules.timeout_upstream_send,
            Duty::Give => rules.timeout_upstream,
        }
    }

    /// The text for the operator if the upstream does not finish its duty within its time.
    fn overdue(&self, tools: &mut Tools<'_>, duty: Duty) -> String {
        let is_shaking = self.tries.link(tools.links).is_some_and(|link| link.is_shaking());
        let (what, key) = match duty {
            Duty::Connect if is_shaking => {
                ("the TLS handshake was not complete", "timeout-connect")
            }
            Duty::Connect => ("no connection was made", "timeout-connect"),
            Duty::Take => ("it took nothing of the request", "timeout-upstream-send"),
            Duty::Give if self.stage == Stage::Tunnel => {
                ("nothing was sent through the tunnel", "timeout-upstream")
            }
            Duty::Give => ("it did not answer", "timeout-upstream"),
        };
        format!("{what} within {} s ({key})", self.patience(duty).as_secs_f64())
    }

    /// Acts because the [deadline](Self::deadline) has passed, unless it has moved.
    pub(in crate::proxy) fn handle_deadline(&mut self, tools: &mut Tools<'_>) {
        if self.clock.until.is_some_and(|until| tools.shell.cx.now >= until) {
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
        // A duty that begins now has its full time left.
        let Some(duty) = self.current_duty(tools).filter(|duty| self.clock.duty == Some(*duty))
        else {
            return;
        };
        if tools.shell.cx.now.since(self.clock.since) < self.patience(duty) {
            return;
        }
        tools.shell.cx.stats.proxy_timeouts.add(1);
        let text = self.overdue(tools, duty);
        self.handle_broken(tools, &text, Status::GatewayTimeout);
    }

    /// The duty of the upstream; `None` while its client has to act first.
    fn current_duty(&self, tools: &mut Tools<'_>) -> Option<Duty> {
        let link = self.tries.link(tools.links)?;
        let is_pulled = self.reception.method.is_pulled();
        let facts = Facts {
            stage: self.stage,
            has_unsent: link.unsent() > 0,
            is_body_owed: !self.upload.has_sent_all,
            is_awaited: if is_pulled { link.waits_for_more() } else { !self.is_full() },
        };
        facts.duty()
    }
}

#[cfg(test)]
mod tests {
    use Duty::{Connect, Give, Take};
    use Stage::{Asking, Connecting, Content, Tunnel};

    use super::*;

    /// The duty of an upstream that is awaited, and of one that is not.
    fn duties(stage: Stage, has_unsent: bool, is_body_owed: bool) -> [Option<Duty>; 2] {
        [true, false].map(|is_awaited| Facts { stage, has_unsent, is_body_owed, is_awaited }.duty())
    }

    #[test]
    fn the_duty_of_a_server_depends_on_the_stage_and_on_what_waits_for_it() {
        for (stage, has_unsent, is_body_owed, expected) in [
            (Connecting, false, false, [Some(Connect); 2]),
            (Connecting, true, true, [Some(Connect); 2]),
            (Asking, true, false, [Some(Take); 2]),
            (Asking, true, true, [Some(Take); 2]),
            (Asking, false, false, [Some(Give), None]),
            (Asking, false, true, [None; 2]),
            // An upstream does not have to receive anything while its response waits for the client.
            (Content, true, false, [Some(Give), None]),
            (Content, true, true, [Some(Give), None]),
            (Content, false, false, [Some(Give), None]),
            // The upstream may wait for the rest of the body.
            (Content, false, true, [None; 2]),
            (Tunnel, true, false, [Some(Give); 2]),
            (Tunnel, true, true, [Some(Give); 2]),
            // Either end of a tunnel may be silent.
            (Tunnel, false, false, [Some(Give), None]),
            (Tunnel, false, true, [Some(Give), None]),
        ] {
            let duties = duties(stage, has_unsent, is_body_owed);
            assert_eq!(duties, expected, "{stage:?} {has_unsent} {is_body_owed}");
        }
    }
}
