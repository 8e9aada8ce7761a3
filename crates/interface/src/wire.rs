//! A stack and its device, shared by the network and the transports of one worker.

use core::fmt;
use std::collections::{HashMap, VecDeque};

use netstack::{ConnectionId, Stack, tcp};
use outq::OutQ;
use sendfile::{Drained, Piece};

use super::capture::Port;
use super::connections::{Connections, Standing};
use super::news::{Came, News};
use super::rate::Rate;

/// The maximum number of connections that the worker has closed before their last bytes were acknowledged, such as the
/// end of TLS. If there are more, the oldest is reset: its peer has had the most time.
const LEAVING_MAX: usize = 256;

/// The stack's time on the ring's clock.
pub(super) const fn time(at: ring::Time) -> netstack::Time {
    netstack::Time::from_nanos(at.as_nanos())
}

/// A stack and its device, shared by the network and the transports of one worker.
pub(super) struct Wire {
    pub(super) stack: Stack,
    pub(super) port: Port,
    pub(super) news: News,
    pub(super) connections: Connections,
    /// The rates of the connections that have one.
    pub(super) rates: HashMap<ConnectionId, Rate, foldhash::quality::RandomState>,
    /// The last bytes of connections that the worker has closed, the oldest connection first.
    pub(super) leaving: VecDeque<(ConnectionId, OutQ<Piece>)>,
}

impl Wire {
    /// Handles the next frame; returns false if there is none.
    pub(super) fn receive(&mut self, now: netstack::Time) -> bool {
        let Self { stack, port, news, .. } = self;
        let Some(frame) = port.receive(now) else { return false };
        stack.handle_frame(now, &frame, frame.checksum(), &mut news.teller(Some(&frame)), port);
        true
    }

    /// Handles reports that other queues of the interface have got about connections of this one.
    pub(super) fn take_strays(&mut self, now: netstack::Time) {
        let Self { stack, port, news, .. } = self;
        for report in news.take_strays() {
            stack.handle_report(now, &report, &mut news.teller(None), port);
        }
    }

    pub(super) fn drain(
        &mut self,
        now: netstack::Time,
        id: ConnectionId,
        queue: &mut OutQ<Piece>,
        budget: &mut u64,
    ) -> Drained {
        self.port.now = now;
        match self.stack.drain(now, id, queue, budget, &mut self.port) {
            tcp::Drained::Empty => Drained::Empty,
            tcp::Drained::Blocked => Drained::Blocked,
            tcp::Drained::TurnOver => Drained::TurnOver,
        }
    }

    /// Sends the end of a connection whose queue is empty for good.
    pub(super) fn end_alone(&mut self, now: netstack::Time, id: ConnectionId) {
        if let Some(Standing::Open(name)) = self.connections.get(id) {
            self.connections.set(id, Standing::Ending(name));
        }
        self.send_end(now, id);
    }

    /// Sends the end of a connection that has nothing else to send, if the end is due.
    pub(super) fn send_end(&mut self, now: netstack::Time, id: ConnectionId) {
        // A FIN takes one sequence number.
        self.drain(now, id, &mut OutQ::new(), &mut 1);
    }

    /// Records that nothing follows the promised bytes of a connection's queue.
    pub(super) fn finish(&mut self, id: ConnectionId) {
        self.stack.shutdown(id);
    }

    /// Starts or stops receiving; the worker gets bytes that were held in the next worker turn.
    pub(super) fn set_receiving(&mut self, now: netstack::Time, id: ConnectionId, on: bool) {
        let Self { stack, port, news, .. } = self;
        stack.set_receiving(now, id, on, &mut news.teller(None), port);
    }

    /// Closes a connection that the worker has given up: the peer gets a reset.
    pub(super) fn close(&mut self, now: netstack::Time, id: ConnectionId) {
        // The stack does not know bytes that are queued and not drained.
        self.stack.shutdown(id);
        self.remove(now, id);
    }

    /// Removes a connection that the worker no longer needs. If its [end](Self::end_alone) has
    /// left, the stack does the rest.
    pub(super) fn remove(&mut self, now: netstack::Time, id: ConnectionId) {
        self.connections.remove(id);
        self.rates.remove(&id);
        self.end(now, id);
    }

    /// Removes a connection whose last bytes are not acknowledged, and keeps their queue until they are. The end follows
    /// them.
    pub(super) fn leave(&mut self, now: netstack::Time, id: ConnectionId, last: OutQ<Piece>) {
        self.connections.remove(id);
        self.rates.remove(&id);
        self.stack.shutdown(id);
        if self.leaving.len() == LEAVING_MAX
            && let Some((oldest, _)) = self.leaving.pop_front()
        {
            self.end(now, oldest);
        }
        self.leaving.push_back((id, last));
        self.handle_leaving(now, id, &Came::Room);
    }

    /// Handles news of a connection that the worker has closed.
    pub(super) fn handle_leaving(&mut self, now: netstack::Time, id: ConnectionId, came: &Came) {
        let Some(at) = self.leaving.iter().position(|(other, _)| *other == id) else { return };
        match came {
            Came::Room => {
                let Some((_, mut last)) = self.leaving.remove(at) else { return };
                self.drain(now, id, &mut last, &mut { u64::MAX });
                if last.released() == last.promised() {
                    self.end(now, id);
                } else {
                    self.leaving.insert(at, (id, last));
                }
            }
            Came::Lost => _ = self.leaving.remove(at),
            // The peer may say its end, too. Nobody waits for it.
            Came::Accepted { .. } | Came::Bytes(_) | Came::End => {}
        }
    }

    pub(super) fn end(&mut self, now: netstack::Time, id: ConnectionId) {
        self.stack.close(now, id, &mut self.port);
    }
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Wire({:?})", self.port.device)
    }
}
