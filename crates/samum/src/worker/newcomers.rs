//! Newcomers: connections that were accepted, and get a slot that is left or the slot of an idle connection.

use super::connection::{After, Connection};
use super::{Worker, admission};
use crate::network::Network;
use handler::Handler;
use logs::Cut;
use session::Session;
use session::proxy_protocol::Reader;
use session::shell::Complaint;

impl<S: Session, N: Network, H: Handler> Worker<S, N, H> {
    /// Gives the slots that are left to newcomers.
    pub(super) fn admit(&mut self) {
        while !self.newcomers.is_empty() && self.crowd.enter() {
            let Some(newcomer) = self.newcomers.pop_front() else { return self.crowd.leave() };
            self.open(newcomer);
        }
        // Further connections wait in the kernel's accept queue.
        if self.shutdown.is_none() {
            self.network.set_accepting(&mut self.shell.ring, self.newcomers.is_empty());
        }
    }

    /// Closes the connection that has been idle for longest, if this turn knows one that can be closed.
    fn close_idle(&mut self) -> bool {
        let idle_since = |connection: &Connection<_, _, _>| connection.idle_since();
        let Some(id) = self.idlers.next(&self.connections, self.shell.cx.now, idle_since) else {
            return false;
        };
        self.shell.cx.stats.idle_closed.add(1);
        self.act(id, |_, _| After::Close(Cut::Server));
        true
    }

    /// Gives slots to newcomers, here or in other workers: slots that are left, or slots of idle connections.
    /// Connections are closed only after the events of a worker turn were handled, because these may be requests on
    /// connections that were idle until now.
    pub(super) fn serve_crowd(&mut self) {
        if !self.newcomers.is_empty() {
            self.admit();
        }
        while !self.newcomers.is_empty() {
            let places = self.crowd.places();
            self.shell.complain(Complaint::Connections, &format!(
                "{places} connections, as many as --max-connections and `ulimit -n` allow; idle ones \
                 are closed for further clients, which wait while none is idle"
            ));
            if !self.close_idle() {
                break;
            }
            self.admit();
        }
        if self.newcomers.len() != self.announced {
            self.crowd.set_waiting(self.announced, self.newcomers.len());
            self.announced = self.newcomers.len();
        }
        if self.newcomers.is_empty() {
            if self.crowd.is_full() {
                self.close_idle();
            } else {
                self.idlers.stop_looking();
            }
        }
    }

    fn open(&mut self, newcomer: N::Newcomer) {
        self.shell.cx.stats.accepted.add(1);
        let mut origin = self.network.origin(&newcomer);
        if !admission::admit(&mut self.shell, &mut origin) {
            return self.crowd.leave();
        }
        let snapshot = &self.shell.desk.servings.at(origin.listener).snapshot;
        let header = snapshot.admission(origin.listener).proxy_protocol.then(|| {
            let proxies = snapshot.proxies();
            let peer = origin.client().and_then(|client| client.address);
            Reader::new(proxies.trusts(peer))
        });
        let Self { connections, network, shell, .. } = self;
        let id = connections.insert_with(|id| {
            let transport = network.open(&mut shell.ring, newcomer, id);
            Connection::new(transport, origin, header, shell.cx.now)
        });
        self.settle(id, After::Keep);
        if self.shell.desk.servings.has_removed() {
            self.retire_if_removed(id);
        }
        match &self.shutdown {
            Some(shutdown) if shutdown.is_replaced => self.make_next_last(id),
            Some(_) => self.end_later(id),
            None => {}
        }
    }

    /// Allows a new connection of a removed listener one response.
    #[cold]
    fn retire_if_removed(&mut self, id: u64) {
        self.act(id, |connection, tools| {
            let is_removed = tools.shell.desk.servings.is_removed(connection.listener());
            if is_removed { connection.retire(tools) } else { After::Keep }
        });
    }
}
