//! A stack and its device as one network of the worker.

use core::cell::{Cell, RefCell};
use core::fmt;
use core::net::SocketAddr;
use core::time::Duration;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::rc::Rc;

use netdev::Watch;
use netstack::{ConnectionId, Stack};
use ring::{Completion, Ring};
use sendfile::Takes;

use super::capture::Port;
use super::connections::{Connections, Standing};
use super::listening::{Accepted, Listening, Newcomer};
use super::news::{Bytes, Came, News};
use super::plan::Local;
use super::polls::{Alarm, Announcements, Arrivals, Departures, READABLE, TIMER, WATCH, WRITABLE};
use super::report::Facts;
use super::transport::StackTransport;
use super::wire::{Wire, time};
use config::Listen;
use session::kind::{self, id_of};
use session::network::{NetEvent, Network, Origin};

/// So often a device is asked how many frames it has missed, for metrics.
const MISSED_PAUSE: Duration = Duration::from_secs(1);

/// Frames that are handled before the worker does other work.
const BATCH_FRAMES: usize = 256;

/// The network of one receive queue of an interface.
pub struct StackNetwork {
    /// The interface and its receive queue.
    name: String,
    wire: Rc<RefCell<Wire>>,
    arrivals: Arrivals,
    departures: Departures,
    /// Those about the interface, for one of its networks.
    announcements: Announcements,
    alarm: Alarm,
    listening: Listening,
    /// The time of the batch that is being handled.
    now: netstack::Time,
    /// Frames that this batch may still receive.
    frames_left: usize,
    /// The number of batches that had frames.
    batches: u64,
    /// [`netdev::Device::missed`] at a time. It is a system call, and metrics are counted in each worker turn.
    missed: Cell<(netstack::Time, u64)>,
}

impl StackNetwork {
    pub(super) fn new(
        name: String,
        ring: &Ring,
        stack: Stack,
        port: Port,
        news: News,
        locals: Vec<Local>,
        watch: Option<Watch>,
    ) -> io::Result<Self> {
        let readable = ring.adopt_socket(port.device.fd().try_clone_to_owned()?);
        let writable = ring.adopt_socket(port.device.room_fd().try_clone_to_owned()?);
        let now = time(ring.now());
        let (connections, rates) = (Connections::default(), HashMap::default());
        let leaving = VecDeque::new();
        let wire = Wire { stack, port, news, connections, rates, leaving };
        Ok(Self {
            name,
            wire: Rc::new(RefCell::new(wire)),
            arrivals: Arrivals::new(readable),
            departures: Departures::new(writable),
            announcements: Announcements::new(ring, watch)?,
            alarm: Alarm::default(),
            listening: Listening::new(locals),
            now,
            frames_left: 0,
            batches: 0,
            missed: Cell::new((now, 0)),
        })
    }

    /// The frames that the device has missed, at most [`MISSED_PAUSE`] before the last batch.
    fn missed(&self, wire: &Wire) -> u64 {
        let (asked_at, missed) = self.missed.get();
        if self.now.since(asked_at) < MISSED_PAUSE {
            return missed;
        }
        let missed = wire.port.device.missed();
        self.missed.set((self.now, missed));
        missed
    }

    fn facts(&self, wire: &Wire, missed: u64) -> Facts<'_> {
        Facts {
            name: &self.name,
            census: wire.stack.census(),
            states: wire.stack.states(),
            counters: wire.stack.counters(),
            device: wire.port.device.counters(),
            missed,
            batches: self.batches,
            memory: wire.stack.memory(),
            record_lost: wire.port.recorder.as_ref().map(|recorder| recorder.lost()),
        }
    }

    /// Adds a connection that was accepted; `None` if it waits, or is refused.
    fn accept(
        &mut self,
        id: ConnectionId,
        local: SocketAddr,
        peer: SocketAddr,
    ) -> Option<Newcomer> {
        let mut wire = self.wire.borrow_mut();
        let newcomer = match self.listening.accept(id, local, peer) {
            Accepted::Now(newcomer) => Some(newcomer),
            Accepted::Later => None,
            Accepted::Refused => {
                wire.end(self.now, id);
                return None;
            }
        };
        wire.connections.set(id, Standing::Waiting);
        newcomer
    }

    /// The next event of the news so far.
    fn next_told(&mut self) -> Option<NetEvent<Newcomer, Bytes>> {
        loop {
            let (id, came) = self.wire.borrow_mut().news.next()?;
            if let Came::Accepted { local, peer } = came {
                match self.accept(id, local, peer) {
                    Some(newcomer) => return Some(NetEvent::Accepted(newcomer)),
                    None => continue,
                }
            }
            let mut wire = self.wire.borrow_mut();
            match wire.connections.get(id) {
                // The worker has closed the connection.
                None => wire.handle_leaving(self.now, id, &came),
                Some(Standing::Waiting) => {
                    let is_bytes = matches!(came, Came::Bytes(_));
                    wire.connections.keep(id, came);
                    if is_bytes {
                        // The stack holds further bytes, up to the receive window, and then the peer stops.
                        wire.set_receiving(self.now, id, false);
                    }
                }
                Some(Standing::Ending(_)) if matches!(came, Came::Room) => {
                    wire.send_end(self.now, id);
                }
                Some(Standing::Open(id) | Standing::Ending(id)) => return Some(event(id, came)),
            }
        }
    }
}

fn event(id: u64, came: Came) -> NetEvent<Newcomer, Bytes> {
    match came {
        Came::Bytes(bytes) => NetEvent::Received(id, bytes),
        Came::End => NetEvent::Ended(id),
        Came::Lost => NetEvent::Lost(id),
        Came::Room => NetEvent::Writable(id),
        Came::Accepted { .. } => unreachable!("a connection is accepted once"),
    }
}

impl Network for StackNetwork {
    type Transport = StackTransport;
    type Newcomer = Newcomer;
    type Bytes = Bytes;

    fn takes(&self) -> Option<Takes> {
        Some(Takes::Memory)
    }

    fn set_accepting(&mut self, ring: &mut Ring, on: bool) {
        if self.listening.set_accepting(on) {
            self.alarm.set(ring, ring.now());
        }
    }

    /// Nearly all events are those of [`next_event`](Network::next_event).
    fn handle(
        &mut self,
        ring: &mut Ring,
        completion: Completion,
    ) -> Option<NetEvent<Newcomer, Bytes>> {
        self.now = time(ring.woke_at());
        let wire = Rc::clone(&self.wire);
        let wire = &mut *wire.borrow_mut();
        wire.take_strays(self.now);
        match completion.token {
            READABLE => {
                self.arrivals.handle();
                self.frames_left = BATCH_FRAMES;
                self.batches += 1;
            }
            WRITABLE => {
                self.departures.handle(&wire.port.device.counters());
                if wire.port.flush() {
                    wire.stack.handle_room(self.now, &mut wire.news.teller(None), &mut wire.port);
                }
            }
            TIMER => {
                self.alarm.handle();
                wire.stack.handle_timers(self.now, &mut wire.news.teller(None), &mut wire.port);
            }
            WATCH => self.announcements.handle(),
            // The rate of a connection allows more.
            token if token & kind::MASK == kind::WRITABLE => {
                return Some(NetEvent::Writable(id_of(token)));
            }
            token => unreachable!("no operation of an interface has the token {token:x}"),
        }
        None
    }

    /// The next event of the news so far, or of the next frame.
    fn next_event(&mut self) -> Option<NetEvent<Newcomer, Bytes>> {
        loop {
            if let Some(newcomer) = self.listening.next_waiting() {
                return Some(NetEvent::Accepted(newcomer));
            }
            if let Some(event) = self.next_told() {
                return Some(event);
            }
            self.frames_left = self.frames_left.checked_sub(1)?;
            if !self.wire.borrow_mut().receive(self.now) {
                self.frames_left = 0;
                return None;
            }
        }
    }

    fn open(&mut self, _ring: &mut Ring, newcomer: Newcomer, id: u64) -> StackTransport {
        let wire = &mut *self.wire.borrow_mut();
        wire.connections.set(newcomer.id, Standing::Open(id));
        for came in wire.connections.take_kept(newcomer.id).into_iter().rev() {
            wire.news.put_back(newcomer.id, came);
        }
        // The worker has now got all earlier bytes, so the stack gives it the bytes that it has held.
        wire.set_receiving(self.now, newcomer.id, true);
        StackTransport::new(Rc::clone(&self.wire), newcomer.id)
    }

    fn origin(&self, newcomer: &Newcomer) -> Origin {
        Origin { listener: newcomer.listener, peer: newcomer.peer.into() }
    }

    fn set_listeners(&mut self, listeners: &[(u32, Listen)]) {
        self.listening.replace(listeners);
    }

    fn report(&self, has_connections: bool) -> Option<String> {
        let wire = self.wire.borrow();
        let connections = wire.stack.connections().map(|(_, status)| status);
        let facts = self.facts(&wire, wire.port.device.missed());
        Some(facts.text(connections, has_connections))
    }

    fn count(&self, stats: &metrics::Counters) {
        let wire = self.wire.borrow();
        self.facts(&wire, self.missed(&wire)).count(stats);
    }

    fn flush(&mut self, ring: &mut Ring) {
        let now = ring.woke_at();
        let wire = Rc::clone(&self.wire);
        let wire = &mut *wire.borrow_mut();
        wire.stack.flush(time(now), &mut wire.port);
        self.arrivals.await_more(ring, now, || wire.port.device.counters().received);
        self.announcements.await_more(ring);
        let has_left = wire.port.flush();
        self.departures.await_room(ring, now, has_left, &wire.port.device.counters());
        if !wire.news.is_empty() {
            self.alarm.set(ring, now);
        } else if let Some(at) = wire.stack.next_timer() {
            self.alarm.set(ring, ring::Time::from_nanos(at.as_nanos()));
        }
    }

    fn close(&mut self, ring: &mut Ring) {
        if self.listening.close() {
            self.alarm.set(ring, ring.now());
        }
    }

    fn is_closed(&self) -> bool {
        self.listening.is_closed()
    }

    fn end(&mut self, limit: Duration) {
        self.wire.borrow_mut().port.finish(limit);
    }
}

impl fmt::Debug for StackNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StackNetwork({} listeners)", self.listening.len())
    }
}
