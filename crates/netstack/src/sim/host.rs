//! A stack with an interface and the queues of its connections: one end of the simulated network.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::net::SocketAddr;

use outq::OutQ;

use super::device::Device;
use super::segment::mac;
use crate::application::{Application, ConnectionId};
use crate::config::Config;
use crate::ip::{ReceivedChecksum, Unsent};
use crate::stack::{Borrowed, Census, Numbers, Stack};
use crate::tcp::{Drained, Endpoints, Lost};
use crate::time::Time;
use crate::wire::ethernet::Mac;

/// What a stack has told its application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// A connection is open: our end and the peer's.
    Accepted(SocketAddr, SocketAddr),
    /// Bytes have come.
    Received(Vec<u8>),
    /// The peer has acknowledged bytes. Its queue is drained by itself.
    Acknowledged,
    /// More can be sent. Its queue is drained by itself.
    Room,
    /// The peer has ended its side.
    Ended,
    /// Both sides have ended.
    Closed,
    /// The connection is lost.
    Lost(Lost),
}

/// A datagram that has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// The address and port that it was sent to.
    pub local: SocketAddr,
    /// Those that it came from.
    pub peer: SocketAddr,
    /// The data.
    pub bytes: Vec<u8>,
}

/// Notes what the stack tells.
#[derive(Debug, Default)]
struct Ear {
    news: Vec<(ConnectionId, News)>,
    datagrams: Vec<Datagram>,
}

impl Application for Ear {
    fn accepted(&mut self, id: ConnectionId, local: SocketAddr, peer: SocketAddr) {
        self.news.push((id, News::Accepted(local, peer)));
    }

    fn received(&mut self, id: ConnectionId, bytes: &[u8]) {
        assert!(!bytes.is_empty(), "received nothing");
        self.news.push((id, News::Received(bytes.to_vec())));
    }

    fn acknowledged(&mut self, id: ConnectionId) {
        self.news.push((id, News::Acknowledged));
    }

    fn room(&mut self, id: ConnectionId) {
        self.news.push((id, News::Room));
    }

    fn ended(&mut self, id: ConnectionId) {
        self.news.push((id, News::Ended));
    }

    fn closed(&mut self, id: ConnectionId) {
        self.news.push((id, News::Closed));
    }

    fn lost(&mut self, id: ConnectionId, why: Lost) {
        self.news.push((id, News::Lost(why)));
    }

    fn datagram(&mut self, local: SocketAddr, peer: SocketAddr, bytes: &[u8]) {
        self.datagrams.push(Datagram { local, peer, bytes: bytes.to_vec() });
    }
}

/// Bytes that one drain sends at most: less than a queue may hold, so that turns end in the midst of it.
const TURN_BYTES: u64 = 100_000;

/// One end of the simulated network.
///
/// After [`handle_frame`](Self::handle_frame), [`handle_timers`](Self::handle_timers) and every call of an
/// application, [`settle`](Self::settle) lets it send; then [`frames`](Self::frames) go over the wire and
/// [`news`](Self::news) to the application.
#[derive(Debug)]
pub struct Host {
    stack: Stack,
    device: Device,
    ear: Ear,
    /// The queue of each open connection.
    queues: BTreeMap<ConnectionId, OutQ<Vec<u8>>>,
    /// The connections that are to be drained.
    waiting: BTreeSet<ConnectionId>,
    frames: Vec<Vec<u8>>,
    news: Vec<(ConnectionId, News)>,
}

impl Host {
    /// A host that begins at `now`.
    #[must_use]
    pub fn new(config: Config, device: Device, secret: [u8; 16], now: Time) -> Self {
        Self {
            stack: Stack::new(config, secret, now),
            device,
            ear: Ear::default(),
            queues: BTreeMap::new(),
            waiting: BTreeSet::new(),
            frames: Vec::new(),
            news: Vec::new(),
        }
    }

    /// The stack, to look at.
    #[must_use]
    pub const fn stack(&self) -> &Stack {
        &self.stack
    }

    /// A frame has arrived.
    pub fn handle_frame(&mut self, now: Time, frame: &[u8]) {
        let checksum = ReceivedChecksum::Unverified;
        self.stack.handle_frame(now, frame, checksum, &mut self.ear, &mut self.device);
    }

    /// The time of [`next_timer`](Self::next_timer) has come.
    pub fn handle_timers(&mut self, now: Time) {
        self.stack.handle_timers(now, &mut self.ear, &mut self.device);
    }

    /// The moment of the next timer.
    #[must_use]
    pub fn next_timer(&self) -> Option<Time> {
        self.stack.next_timer()
    }

    /// Sends what is to be sent.
    pub fn settle(&mut self, now: Time) {
        loop {
            self.hear();
            while let Some(id) = self.waiting.pop_first() {
                let Some(queue) = self.queues.get_mut(&id) else { continue };
                let mut budget = TURN_BYTES;
                if self.stack.drain(now, id, queue, &mut budget, &mut self.device)
                    == Drained::TurnOver
                {
                    self.waiting.insert(id);
                }
                queue.check();
            }
            self.stack.flush(now, &mut self.device);
            self.frames.extend(self.device.take());
            if self.device.has_refused() {
                self.stack.handle_room(now, &mut self.ear, &mut self.device);
            } else if self.ear.news.is_empty() {
                break;
            }
        }
    }

    /// Handles the news that the stack has told.
    fn hear(&mut self) {
        for (id, news) in self.ear.news.drain(..) {
            match &news {
                News::Accepted(..) => {
                    self.queues.entry(id).or_default();
                    self.waiting.insert(id);
                }
                News::Acknowledged | News::Room => {
                    self.waiting.insert(id);
                }
                News::Closed | News::Lost(_) => {
                    self.queues.remove(&id);
                    self.waiting.remove(&id);
                }
                _ => {}
            }
            self.news.push((id, news));
        }
    }

    /// The frames that were sent since the last call.
    pub fn frames(&mut self) -> Vec<Vec<u8>> {
        core::mem::take(&mut self.frames)
    }

    /// What was told since the last call.
    pub fn news(&mut self) -> Vec<(ConnectionId, News)> {
        self.hear();
        core::mem::take(&mut self.news)
    }

    /// The datagrams that have come since the last call.
    pub fn datagrams(&mut self) -> Vec<Datagram> {
        core::mem::take(&mut self.ear.datagrams)
    }

    /// Sends a datagram to a peer that has sent one.
    ///
    /// # Errors
    ///
    /// If the stack cannot send it.
    pub fn send_datagram(
        &mut self,
        local: SocketAddr,
        peer: SocketAddr,
        bytes: &[u8],
    ) -> Result<(), Unsent> {
        let parts: &[&[u8]] = if bytes.is_empty() { &[] } else { &[bytes] };
        let sent = self.stack.send_datagram(local, peer, parts, &mut self.device);
        self.frames.extend(self.device.take());
        sent
    }

    /// Opens a connection; `None` if the stack cannot.
    pub fn connect(
        &mut self,
        now: Time,
        local: SocketAddr,
        peer: SocketAddr,
    ) -> Option<ConnectionId> {
        let via = Mac(mac(peer.ip()));
        self.stack.connect(now, Endpoints { local, peer }, via, &mut self.device).ok()
    }

    /// Queues bytes. They are dropped if the connection is gone and the application does not know yet, or
    /// if it is not open yet.
    pub fn send(&mut self, id: ConnectionId, bytes: Vec<u8>) {
        if let Some(queue) = self.queues.get_mut(&id) {
            queue.push(bytes);
            self.waiting.insert(id);
        }
    }

    /// Ends our side after what is queued.
    pub fn shutdown(&mut self, id: ConnectionId) {
        self.stack.shutdown(id);
        self.waiting.insert(id);
    }

    /// Gives a connection up.
    pub fn close(&mut self, now: Time, id: ConnectionId) {
        self.hear();
        self.queues.remove(&id);
        self.waiting.remove(&id);
        self.stack.close(now, id, &mut self.device);
    }

    /// Whether bytes are to be told.
    pub fn set_receiving(&mut self, now: Time, id: ConnectionId, on: bool) {
        self.stack.set_receiving(now, id, on, &mut self.ear, &mut self.device);
    }

    /// Bytes that are queued and not acknowledged.
    #[must_use]
    pub fn queued(&self, id: ConnectionId) -> u64 {
        self.queues.get(&id).map_or(0, |queue| queue.promised() - queue.released())
    }

    /// The name of a connection's state in RFC 9293; `None` if there is no such connection.
    #[must_use]
    pub fn state(&self, id: ConnectionId) -> Option<&'static str> {
        let mut connections = self.stack.connections();
        connections.find(|(other, _)| *other == id).map(|(_, status)| status.state.name())
    }

    /// The sequence numbers of a connection, for tests that forge segments; `None` if it is not open.
    #[must_use]
    pub fn numbers(&self, id: ConnectionId) -> Option<Numbers> {
        self.stack.numbers(id)
    }

    /// Checks that nothing is left of any connection.
    ///
    /// # Panics
    ///
    /// If something is left.
    pub fn check_empty(&self) {
        assert_eq!(self.stack.census(), Census::default(), "connections are left");
        assert!(self.stack.states().iter().all(|count| *count == 0), "states are left");
        assert_eq!(self.stack.borrowed(), Borrowed::default(), "something was not given back");
        assert_eq!(self.queues.len(), 0, "queues are left");
        assert_eq!(self.stack.next_timer(), None, "a timer is left");
    }
}
