//! A network whose listeners may speak TLS, over any other network. It makes the costly steps of handshakes.

mod handshakes;
mod quantum;
mod queue;

use core::cell::{Cell, RefCell};
use core::fmt;
use core::net::IpAddr;
use core::time::Duration;
use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use metrics::Counters;
use ring::{Completion, Fd, Ring};
use sendfile::Takes;
use tls::{Secured, SharedAcceptors, Took, WorkerAcceptors};

use self::handshakes::{Handshakes, Outcome};
use crate::network::{NetEvent, Network, Origin};
use config::Listen;

/// A network with TLS at those of its listeners that have an acceptor.
pub struct Secure<N> {
    below: N,
    acceptors: SharedAcceptors,
    /// The listeners with TLS, and their addresses, unless a listener has all of the machine. A connection of one that has no
    /// acceptor is closed, and never speaks without TLS.
    tls: HashMap<u32, Option<IpAddr>>,
    /// True if some of the listeners have no TLS.
    has_plain: bool,
    handshakes: Handshakes,
    /// The number of changes of the counters that were shown last.
    shown: Cell<u64>,
}

impl<N> Secure<N> {
    /// Adds TLS to a network with these listeners.
    #[must_use]
    pub fn new(below: N, acceptors: WorkerAcceptors, listeners: &[(u32, Listen)]) -> Self {
        let mut secure = Self {
            below,
            acceptors: Rc::new(RefCell::new(acceptors)),
            tls: HashMap::new(),
            has_plain: true,
            handshakes: Handshakes::new(),
            shown: Cell::new(0),
        };
        secure.note_listeners(listeners);
        secure
    }

    fn note_listeners(&mut self, listeners: &[(u32, Listen)]) {
        let with_tls = listeners.iter().filter(|(_, listen)| listen.tls);
        let address = |listen: &Listen| listen.address.ip().filter(|ip| !ip.is_unspecified());
        self.tls = with_tls.map(|(number, listen)| (*number, address(listen))).collect();
        self.has_plain = self.tls.len() < listeners.len();
    }

    /// Tells the handshakes that are under way the time of an event.
    #[inline]
    fn tell_time(&self, ring: &Ring) {
        if self.tls.is_empty() {
            return;
        }
        let acceptors = self.acceptors.borrow();
        if acceptors.counters().under_way() > 0 {
            acceptors.counters().set_now(ring.now());
        }
    }
}

impl<N: Network> Network for Secure<N> {
    type Transport = Secured<N::Transport>;
    type Newcomer = N::Newcomer;
    type Bytes = N::Bytes;

    fn takes(&self) -> Option<Takes> {
        match self.below.takes() {
            Some(Takes::Files) if self.tls.is_empty() => Some(Takes::Files),
            Some(Takes::Files) if self.has_plain => None,
            Some(Takes::Files) => Some(Takes::Memory),
            takes => takes,
        }
    }

    fn set_accepting(&mut self, ring: &mut Ring, on: bool) {
        self.below.set_accepting(ring, on);
    }

    #[inline]
    fn handle(
        &mut self,
        ring: &mut Ring,
        completion: Completion,
    ) -> Option<NetEvent<N::Newcomer, N::Bytes>> {
        self.tell_time(ring);
        self.below.handle(ring, completion)
    }

    #[inline]
    fn next_event(&mut self) -> Option<NetEvent<N::Newcomer, N::Bytes>> {
        self.below.next_event()
    }

    #[inline]
    fn wants_turn(&self) -> bool {
        self.handshakes.wants_turn() || self.below.wants_turn()
    }

    #[inline]
    fn next_of_turn(&mut self, ring: &mut Ring) -> Option<NetEvent<N::Newcomer, N::Bytes>> {
        match self.handshakes.next(ring) {
            Some(Outcome::Ready(id)) => Some(NetEvent::Ready(id)),
            Some(Outcome::Refused(id)) => Some(NetEvent::Lost(id)),
            Some(Outcome::Told(text)) => Some(NetEvent::Refused(text)),
            Some(Outcome::Noted(text)) => Some(NetEvent::Note(text)),
            None => self.below.next_of_turn(ring),
        }
    }

    fn open(&mut self, ring: &mut Ring, newcomer: N::Newcomer, id: u64) -> Self::Transport {
        let origin = self.below.origin(&newcomer);
        self.acceptors.borrow().counters().set_now(ring.now());
        let below = self.below.open(ring, newcomer, id);
        let bound = self.tls.get(&origin.listener).copied();
        let mut transport = Secured::new(below, &self.acceptors, origin.listener, bound.is_some());
        if let Secured::Tls(tls) = &mut transport {
            let client = origin.address(ring).map(|address| address.ip());
            tls.ask(self.handshakes.steps(), id, client);
            let local = || Some(origin.local_address(ring)?.ip());
            tls.set_local_address(|| bound.flatten().or_else(local));
        }
        transport
    }

    fn origin(&self, newcomer: &N::Newcomer) -> Origin {
        self.below.origin(newcomer)
    }

    fn is_open(&self, listener: u32) -> bool {
        self.below.is_open(listener)
    }

    fn add(&mut self, number: u32, socket: Fd) {
        self.below.add(number, socket);
    }

    fn remove(&mut self, ring: &mut Ring, number: u32) {
        self.below.remove(ring, number);
    }

    fn set_listeners(&mut self, listeners: &[(u32, Listen)]) {
        self.note_listeners(listeners);
        self.below.set_listeners(listeners);
    }

    fn report(&self, has_connections: bool) -> Option<String> {
        self.below.report(has_connections)
    }

    fn count(&self, stats: &Counters) {
        self.below.count(stats);
        let acceptors = self.acceptors.borrow();
        let counters = acceptors.counters();
        if self.shown.replace(counters.changes()) == counters.changes() {
            return;
        }
        stats.tls_handshakes_under_way.set(counters.under_way());
        stats.tls_handshakes_failed.set(counters.failed());
        stats.tls_clients_refused.set(counters.clients_refused());
        stats.tls_handshakes_refused.set(counters.refused());
        let complete =
            [&stats.tls12_full, &stats.tls12_resumed, &stats.tls13_full, &stats.tls13_resumed];
        complete.iter().zip(counters.complete_by_kind()).for_each(|(to, count)| to.set(count));
        let Took { buckets, above, sum_us } = counters.took();
        stats.tls_took.iter().zip(buckets).for_each(|(to, count)| to.set(count));
        stats.tls_took_above.set(above);
        stats.tls_took_us.set(sum_us);
    }

    fn flush(&mut self, ring: &mut Ring) {
        self.handshakes.end_turn();
        self.below.flush(ring);
    }

    fn close(&mut self, ring: &mut Ring) {
        self.below.close(ring);
    }

    fn leave(&mut self, ring: &mut Ring, shared: &[u32]) {
        self.below.leave(ring, shared);
    }

    fn sockets(&self) -> io::Result<Vec<(u32, OwnedFd)>> {
        self.below.sockets()
    }

    fn is_closed(&self) -> bool {
        self.below.is_closed()
    }

    fn end(&mut self, limit: Duration) {
        self.below.end(limit);
    }
}

impl<N: fmt::Debug> fmt::Debug for Secure<N> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Secure").field("below", &self.below).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use config::Address;
    use tls::Acceptors;

    use super::*;
    use crate::network::Listeners;

    #[test]
    fn connections_with_tls_take_memory_and_the_others_what_those_below_take() {
        let listeners = |all: &[bool]| -> Vec<(u32, Listen)> {
            let address = || Address::Ip("127.0.0.1:0".parse().expect("an address"));
            let listen = |tls| Listen { tls, ..Listen::from(address()) };
            (0..).zip(all.iter().map(|tls| listen(*tls))).collect()
        };
        let (files, memory) = (Some(Takes::Files), Some(Takes::Memory));
        let all: [(&[bool], _); 4] =
            [(&[], files), (&[false], files), (&[true, false], None), (&[true, true], memory)];
        for (before, _) in all {
            for (tls, expected) in all {
                for (below, expected) in [(files, expected), (memory, memory)] {
                    let acceptors = WorkerAcceptors::new(Acceptors::new());
                    let network = Listeners::numbered([]).taking(below);
                    let mut secure = Secure::new(network, acceptors, &listeners(before));
                    secure.set_listeners(&listeners(tls));
                    assert_eq!(secure.takes(), expected, "{tls:?} after {before:?}");
                }
            }
        }
    }
}
