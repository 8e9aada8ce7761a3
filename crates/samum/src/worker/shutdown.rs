//! The end of a worker: it accepts no more, its connections end after their last responses, and its logs are written.

use core::ops::Range;
use core::time::Duration;
use std::collections::VecDeque;

use ring::Time;

use super::Worker;
use super::connection::Connection;
use super::connections::IDLE_MIN;
use crate::network::Network;
use handler::Handler;
use logs::Cut;
use session::Session;

/// Connections that learn of a shutdown in one worker turn. Thousands can be idle, and each of these is closed.
const ENDS_MAX: usize = 128;
/// Worker turns in which the receive of a closed connection ends and its descriptor is closed. A worker without
/// connections may wait for other workers after that, and its clients should not have to.
const CLOSING_TURNS: u64 = 3;
/// Connections that are closed at once at the end. Each of them may have lines for the log.
const CUTS_MAX: usize = 256;

/// The connections that have to learn of a shutdown.
#[derive(Default)]
pub(super) struct Shutdown {
    /// The index of the first connection that has not learned of it.
    pub(super) next: u32,
    /// Connections that may have sent a request which was not read yet, each with the end of its time for that.
    pub(super) late: VecDeque<(Time, u64)>,
    /// The worker turn in which a connection was last closed.
    pub(super) closed_in: u64,
    /// True if another process serves the listeners now. Idle connections stay then: a client may just be sending a
    /// request, and learns from its response that the connection ends.
    pub(super) is_replaced: bool,
}

/// The connections of a worker that were still in use at its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Remainder {
    /// All of them.
    pub connections: usize,
    /// Those among them that are tunnels.
    pub tunnels: usize,
}

impl<S: Session, N: Network, H: Handler> Worker<S, N, H> {
    /// Shuts down: accepts the connections that wait and no more, and closes idle connections. Other connections are
    /// closed after the responses to the requests that they have sent. Connections learn of it in the next worker
    /// turns.
    pub fn shut_down(&mut self) {
        self.shutdown = Some(Shutdown::default());
        self.shell.cx.is_ending = true;
        self.network.close(&mut self.shell.ring);
        while let Some(event) = self.network.next_event() {
            self.handle_event(event);
        }
    }

    /// Accepts no more, because another process accepts at the sockets of these listeners. Each connection goes on until
    /// its next response, which says that it is the last. [`shut_down`](Self::shut_down) may follow.
    pub fn leave(&mut self, shared: &[u32]) {
        if self.shutdown.is_some() {
            return;
        }
        self.shutdown = Some(Shutdown { is_replaced: true, ..Shutdown::default() });
        self.shell.cx.is_ending = true;
        self.network.leave(&mut self.shell.ring, shared);
        while let Some(event) = self.network.next_event() {
            self.handle_event(event);
        }
    }

    /// Returns true once [`leave`](Self::leave) or [`shut_down`](Self::shut_down) was called.
    #[must_use]
    pub const fn is_ending(&self) -> bool {
        self.shutdown.is_some()
    }

    /// The time for connections to end: at a shutdown, and if another process has replaced this one.
    #[must_use]
    pub fn timeout_drain(&self) -> (Duration, Duration) {
        self.shell.cx.tuning.drain_times()
    }

    /// Reports the shutdown to connections; false if no connection has to learn of it now. In a worker turn with
    /// completions more completions may wait, last requests among them. So connections whose time is over end only in a
    /// quiet turn.
    pub(super) fn end_connections(&mut self, is_quiet: bool) -> bool {
        let Some(shutdown) = &self.shutdown else { return false };
        let is_replaced = shutdown.is_replaced;
        let mut indices = self.connections.indices(shutdown.next);
        let (mut until, mut count) = (None, 0);
        while let Some((id, is_late)) = self.next_to_end(&mut indices, is_quiet) {
            let until = *until.get_or_insert_with(|| self.part_end());
            let now = self.shell.cx.now;
            let idle_since = self.connections.get_mut(id).and_then(|it| it.idle_since());
            // It may have been idle for long because this thread was not run: its request waits with the completions.
            let may_have_asked = |since| !is_quiet || since + IDLE_MIN > now;
            if is_replaced {
                self.make_next_last(id);
            } else if !is_late && idle_since.is_some_and(may_have_asked) {
                self.end_later(id);
            } else {
                self.act(id, Connection::handle_shutdown);
            }
            count += 1;
            if count == ENDS_MAX || self.shell.ring.now() >= until {
                break;
            }
        }
        if let Some(shutdown) = &mut self.shutdown {
            shutdown.next = indices.start;
        }
        count > 0
    }

    /// The next connection that has to learn of the shutdown, and whether its time for a last request is over.
    /// Connections whose time is over come first, then connections with these indices.
    fn next_to_end(&mut self, indices: &mut Range<u32>, is_quiet: bool) -> Option<(u64, bool)> {
        let late = &mut self.shutdown.as_mut()?.late;
        if is_quiet
            && let Some((until, id)) = late.front().copied()
            && until <= self.shell.cx.now
        {
            late.pop_front();
            return Some((id, true));
        }
        let id = indices.find_map(|index| self.connections.id_at(index))?;
        Some((id, false))
    }

    /// Gives a connection time for a request that it may have sent already; then the connection ends.
    pub(super) fn end_later(&mut self, id: u64) {
        self.act(id, Connection::await_last_request);
        if let Some(shutdown) = &mut self.shutdown {
            shutdown.late.push_back((self.shell.cx.now + IDLE_MIN, id));
        }
    }

    /// Returns whether all connections are closed after [`shut_down`](Self::shut_down), and the handler has
    /// nothing under way.
    #[must_use]
    pub fn has_shut_down(&self) -> bool {
        self.connections.len() == 0
            && self.newcomers.is_empty()
            && self.network.is_closed()
            && self.handler.is_idle()
            && !self.is_closing()
    }

    /// Returns true if a connection was closed within the last [`CLOSING_TURNS`].
    pub(super) fn is_closing(&self) -> bool {
        let is_recent =
            |shutdown: &Shutdown| self.shell.cx.turn < shutdown.closed_in + CLOSING_TURNS;
        self.shutdown.as_ref().is_some_and(is_recent)
    }

    /// Ends what the handler has under way.
    pub fn end(&mut self) {
        self.handler.end();
    }

    /// Closes the connections that are left. The log gets a line for each response that is cut, until `until` at the
    /// latest. Returns the connections that were in use.
    pub fn cut_off(&mut self, until: Time) -> Remainder {
        let mut cut = Remainder::default();
        for ids in self.connections.ids().chunks(CUTS_MAX) {
            for id in ids {
                if let Some(used) = self.connections.get_mut(*id).filter(|it| !it.is_done()) {
                    cut.connections += 1;
                    cut.tunnels += usize::from(used.is_tunnel());
                }
                self.close(*id, Cut::Server);
            }
            // Lines of the next connections need room.
            self.write_logs(until);
        }
        cut
    }

    /// Waits, for `limit` at most, until everything that the network has recorded is written.
    pub fn end_network(&mut self, limit: Duration) {
        self.network.end(limit);
    }

    /// Writes the lines that wait in the logs, until `until` at the latest. Returns the number of lost lines of the
    /// access log that were not reported yet.
    pub fn write_logs(&mut self, until: Time) -> u64 {
        // Logs are written once in any case: this also closes descriptors that are no longer used.
        let now = self.shell.cx.now;
        if self.turn(Some(now)).is_err() {
            return 0;
        }
        while self.shell.ring.now() < until {
            let now = self.shell.ring.now();
            let mut quiet = self.shell.desk.notes.is_quiet();
            self.shell.desk.notes.hurry(&mut self.shell.ring, now);
            quiet &= self.shell.desk.logs.hurry(&mut self.shell.ring, now);
            if quiet || self.turn(Some(until)).is_err() {
                break;
            }
        }
        self.shell.desk.logs.lost()
    }
}
