//! Finds the listener of a connection that the stack has accepted, and decides whether the worker accepts it now. Pure.

use core::net::SocketAddr;
use std::collections::{HashMap, VecDeque};

use netstack::ConnectionId;

use super::plan::{self, Local};
use config::Listen;

/// A connection that the stack has accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Newcomer {
    pub(super) id: ConnectionId,
    pub(super) listener: u32,
    pub(super) peer: SocketAddr,
}

/// The listeners of a stack, and the connections that wait at them.
#[derive(Debug)]
pub(super) struct Listening {
    /// The addresses that it took at the start. The stack has these ports until the end.
    locals: Vec<SocketAddr>,
    /// Those that are served now.
    listeners: HashMap<SocketAddr, u32>,
    /// Newcomers that wait because the worker accepts none.
    waiting: VecDeque<Newcomer>,
    accepts: bool,
    closed: bool,
}

/// The fate of a connection that the stack has accepted.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Accepted {
    /// The worker accepts it.
    Now(Newcomer),
    /// It waits until the worker accepts connections again.
    Later,
    /// The port is served at another address, or no longer.
    Refused,
}

impl Listening {
    /// Accepts connections at these addresses.
    pub(super) fn new(locals: Vec<Local>) -> Self {
        Self {
            locals: locals.iter().map(|(_, local)| *local).collect(),
            listeners: locals.into_iter().map(|(number, local)| (local, number)).collect(),
            waiting: VecDeque::new(),
            accepts: true,
            closed: false,
        }
    }

    /// The number of listeners that are served.
    pub(super) fn len(&self) -> usize {
        self.listeners.len()
    }

    /// Uses the listeners of the next configuration from now on, as far as they are at the addresses of the stack.
    pub(super) fn replace(&mut self, listeners: &[(u32, Listen)]) {
        self.listeners = plan::served(listeners, &self.locals).collect();
    }

    /// The worker accepts connections from now on, or lets them wait. Returns whether some have waited for that.
    pub(super) fn set_accepting(&mut self, on: bool) -> bool {
        self.accepts = on;
        on && !self.waiting.is_empty()
    }

    /// The stack has accepted a connection at one of its addresses.
    pub(super) fn accept(
        &mut self,
        id: ConnectionId,
        local: SocketAddr,
        peer: SocketAddr,
    ) -> Accepted {
        match self.listeners.get(&local) {
            Some(&listener) if !self.closed => {
                let newcomer = Newcomer { id, listener, peer };
                if self.accepts {
                    return Accepted::Now(newcomer);
                }
                self.waiting.push_back(newcomer);
                Accepted::Later
            }
            Some(_) | None => Accepted::Refused,
        }
    }

    /// The next connection that has waited, if the worker accepts connections.
    pub(super) fn next_waiting(&mut self) -> Option<Newcomer> {
        if self.accepts { self.waiting.pop_front() } else { None }
    }

    /// Accepts nothing more than what waits. Returns whether something does.
    pub(super) fn close(&mut self) -> bool {
        self.closed = true;
        self.set_accepting(true)
    }

    /// Returns whether it is closed, and the worker has all connections.
    pub(super) fn is_closed(&self) -> bool {
        self.closed && self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::Address;

    const PEER: &str = "10.0.0.9:5000";

    fn at(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    fn listening() -> Listening {
        Listening::new(vec![(3, at("10.0.0.1:80")), (5, at("10.0.0.1:81"))])
    }

    /// The number of the listener that has a connection, if the worker accepts it now.
    fn accept(listening: &mut Listening, local: &str) -> Result<u32, Accepted> {
        match listening.accept(ConnectionId(1), at(local), at(PEER)) {
            Accepted::Now(newcomer) => Ok(newcomer.listener),
            other => Err(other),
        }
    }

    #[test]
    fn a_connection_belongs_to_the_listener_of_its_address() {
        let mut listening = listening();
        assert_eq!(accept(&mut listening, "10.0.0.1:80"), Ok(3));
        assert_eq!(accept(&mut listening, "10.0.0.1:81"), Ok(5));
        assert_eq!(accept(&mut listening, "10.0.0.2:80"), Err(Accepted::Refused));
        let listen = |text: &str| Listen::from(Address::Ip(at(text)));
        listening.replace(&[(7, listen("0.0.0.0:81")), (8, listen("10.0.0.1:82"))]);
        assert_eq!(listening.len(), 1, "the stack does not have the other one");
        assert_eq!(accept(&mut listening, "10.0.0.1:80"), Err(Accepted::Refused));
        assert_eq!(accept(&mut listening, "10.0.0.1:81"), Ok(7));
    }

    #[test]
    fn connections_wait_in_order_while_the_worker_accepts_none() {
        let mut listening = listening();
        assert!(!listening.set_accepting(false));
        assert_eq!(accept(&mut listening, "10.0.0.1:81"), Err(Accepted::Later));
        assert_eq!(accept(&mut listening, "10.0.0.1:80"), Err(Accepted::Later));
        assert_eq!(listening.next_waiting(), None);
        assert!(listening.set_accepting(true));
        let next = |listening: &mut Listening| listening.next_waiting().map(|new| new.listener);
        assert_eq!([(); 3].map(|()| next(&mut listening)), [Some(5), Some(3), None]);
        assert!(!listening.set_accepting(true), "nothing waits");
    }

    #[test]
    fn the_connections_that_wait_are_taken_before_it_is_closed() {
        let mut listening = listening();
        listening.set_accepting(false);
        assert_eq!(accept(&mut listening, "10.0.0.1:80"), Err(Accepted::Later));
        assert!(listening.close() && !listening.is_closed());
        assert_eq!(accept(&mut listening, "10.0.0.1:80"), Err(Accepted::Refused));
        assert!(listening.next_waiting().is_some() && listening.is_closed());
    }
}
