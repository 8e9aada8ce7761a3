//! A stack and its device as one network of the worker.

use core::cell::{Cell, RefCell};
use core::fmt;
use core::net::SocketAddr;
use core::time::Duration;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::AsFd as _;
use std::rc::Rc;

use netdev::{ROOM_PAUSE, Room, Wait, Watch};
use netstack::{ConnectionId, Stack};
use ring::{Completion, Fd, Op, Ring, Token};
use sendfile::Takes;

use super::capture::Port;
use super::news::{Bytes, Came, News};
use super::places::{Place, Places};
use super::plan::{self, Local};
use super::report::Facts;
use super::transport::StackTransport;
use super::wire::{Wire, time};
use crate::config::Listen;
use crate::metrics::Stats;
use crate::network::{NetEvent, Network, Origin};
use crate::say::say;
use crate::shell::{id_of, kind};

/// The device has frames.
const READABLE: Token = kind::NETWORK;
/// The device may have room again.
const WRITABLE: Token = kind::NETWORK | 1;
/// A timer of the stack is due, or there is news that the worker was not told.
const TIMER: Token = kind::NETWORK | 2;
/// There are news about interfaces.
const WATCH: Token = kind::NETWORK | 3;

/// Reports of frames in a row without any, after which the device is asked at intervals: its interface is gone.
const VAIN_REPORTS_MAX: u32 = 4;
/// The interval.
const VAIN_PAUSE: Duration = Duration::from_millis(100);
/// So often a device is asked how many frames it has missed, for metrics.
const MISSED_PAUSE: Duration = Duration::from_secs(1);

/// Frames that are handled before the worker looks at other things.
const BATCH_FRAMES: usize = 256;

/// A connection that the stack has accepted.
#[derive(Clone, Debug)]
pub struct Newcomer {
    id: ConnectionId,
    listener: u32,
    peer: SocketAddr,
}

/// The network of one receive queue of an interface.
pub struct StackNetwork {
    /// The interface and its receive queue.
    name: String,
    wire: Rc<RefCell<Wire>>,
    /// The device's descriptors for frames that come, and for room.
    readable: Fd,
    writable: Fd,
    is_reading: bool,
    /// Frames that the device had received when it was last asked for them because it had reported some.
    received: u64,
    /// How often in a row the device had none.
    vain_reports: u32,
    /// Some for one of the networks of an interface, with the descriptor of the watch.
    watch: Option<(Watch, Fd)>,
    is_watching: bool,
    waits_for_room: bool,
    room: Room,
    /// The earliest timer that is in the ring.
    timer_at: Option<ring::Time>,
    /// The time of the batch that is being handled.
    now: netstack::Time,
    /// Frames of this batch that may still be received.
    frames_left: usize,
    /// Rounds in which frames were received.
    batches: u64,
    /// [`netdev::Device::missed`] at a time. It is a system call, and metrics are counted in each turn.
    missed: Cell<(netstack::Time, u64)>,
    /// What it took at the start. The stack has these ports until the end.
    locals: Vec<SocketAddr>,
    /// Those that are served now.
    listeners: HashMap<SocketAddr, u32>,
    /// Newcomers that wait because the worker accepts none.
    waiting: VecDeque<Newcomer>,
    accepts: bool,
    closed: bool,
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
        let watch = watch.map(|watch| {
            let fd = ring.adopt_socket(watch.as_fd().try_clone_to_owned()?);
            Ok::<_, io::Error>((watch, fd))
        });
        let now = time(ring.now());
        let (places, rates) = (Places::default(), HashMap::default());
        let wire = Wire { stack, port, news, places, rates };
        Ok(Self {
            name,
            wire: Rc::new(RefCell::new(wire)),
            readable,
            writable,
            is_reading: false,
            received: 0,
            vain_reports: 0,
            watch: watch.transpose()?,
            is_watching: false,
            waits_for_room: false,
            room: Room::default(),
            timer_at: None,
            now,
            frames_left: 0,
            batches: 0,
            missed: Cell::new((now, 0)),
            locals: locals.iter().map(|(_, local)| *local).collect(),
            listeners: locals.into_iter().map(|(number, local)| (local, number)).collect(),
            waiting: VecDeque::new(),
            accepts: true,
            closed: false,
        })
    }

    /// The frames that the device missed, at most [`MISSED_PAUSE`] before the last batch.
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

    /// Has the ring call again at a time, or earlier.
    fn wake_at(&mut self, ring: &mut Ring, at: ring::Time) {
        if self.timer_at.is_none_or(|before| at < before) {
            ring.submit(Op::Timer(at), TIMER);
            self.timer_at = Some(at);
        }
    }

    /// Takes in a connection that was accepted; `None` if it waits, or is refused.
    fn accept(
        &mut self,
        id: ConnectionId,
        local: SocketAddr,
        peer: SocketAddr,
    ) -> Option<Newcomer> {
        let listener = self.listeners.get(&local).filter(|_| !self.closed);
        let Some(listener) = listener else {
            // The port is served at another address, or no longer.
            self.wire.borrow_mut().end(self.now, id);
            return None;
        };
        let newcomer = Newcomer { id, listener: *listener, peer };
        self.wire.borrow_mut().places.set(id, Place::Waiting);
        if self.accepts {
            return Some(newcomer);
        }
        self.waiting.push_back(newcomer);
        None
    }

    /// The next event of the news that are there.
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
            match wire.places.get(id) {
                // The worker has closed it.
                None => {}
                Some(Place::Waiting) => {
                    let is_bytes = matches!(came, Came::Bytes(_));
                    wire.places.keep(id, came);
                    if is_bytes {
                        // The stack holds what follows, up to the receive window, and then the peer stops.
                        wire.set_receiving(self.now, id, false);
                    }
                }
                Some(Place::Ending(_)) if matches!(came, Came::Room) => {
                    wire.send_end(self.now, id);
                }
                Some(Place::Open(id) | Place::Ending(id)) => return Some(event(id, came)),
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
        self.accepts = on;
        if on && !self.waiting.is_empty() {
            self.wake_at(ring, ring.now());
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
                self.is_reading = false;
                self.frames_left = BATCH_FRAMES;
                self.batches += 1;
            }
            WRITABLE => {
                self.waits_for_room = false;
                self.room.handle_end(&wire.port.device.counters());
                if wire.port.flush() {
                    wire.stack.handle_room(self.now, &mut wire.news.teller(None), &mut wire.port);
                }
            }
            // Later timers may be in the ring; they do no harm.
            TIMER => {
                self.timer_at = None;
                wire.stack.handle_timers(self.now, &mut wire.news.teller(None), &mut wire.port);
            }
            WATCH => {
                self.is_watching = false;
                let (watch, _) = self.watch.as_mut().expect("it has news");
                match watch.handle_readable() {
                    Ok(news) => {
                        news.iter().for_each(|sentence| say(sentence));
                        if watch.is_gone() {
                            self.watch = None;
                        }
                    }
                    // There will be no more news.
                    Err(_) => self.watch = None,
                }
            }
            // The rate of a connection allows more.
            token if token & kind::MASK == kind::WRITABLE => {
                return Some(NetEvent::Writable(id_of(token)));
            }
            token => unreachable!("no operation of an interface has the token {token:x}"),
        }
        None
    }

    /// The next event of the news that are there, or of the next frame.
    fn next_event(&mut self) -> Option<NetEvent<Newcomer, Bytes>> {
        loop {
            if self.accepts
                && let Some(newcomer) = self.waiting.pop_front()
            {
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
        wire.places.set(newcomer.id, Place::Open(id));
        for came in wire.places.take_kept(newcomer.id).into_iter().rev() {
            wire.news.put_back(newcomer.id, came);
        }
        // The application has now been told all earlier bytes, so the stack gives it the ones that it has held.
        wire.set_receiving(self.now, newcomer.id, true);
        StackTransport::new(Rc::clone(&self.wire), newcomer.id)
    }

    fn origin(&self, newcomer: &Newcomer) -> Origin {
        Origin { listener: newcomer.listener, peer: newcomer.peer.into() }
    }

    fn set_listeners(&mut self, listeners: &[(u32, Listen)]) {
        self.listeners = plan::served(listeners, &self.locals).collect();
    }

    fn report(&self, has_connections: bool) -> Option<String> {
        let wire = self.wire.borrow();
        let connections = wire.stack.connections().map(|(_, status)| status);
        let facts = self.facts(&wire, wire.port.device.missed());
        Some(facts.text(connections, has_connections))
    }

    fn count(&self, stats: &mut Stats) {
        let wire = self.wire.borrow();
        self.facts(&wire, self.missed(&wire)).count(stats);
    }

    fn flush(&mut self, ring: &mut Ring) {
        let now = ring.woke_at();
        let wire = Rc::clone(&self.wire);
        let wire = &mut *wire.borrow_mut();
        wire.stack.flush(time(now), &mut wire.port);
        if !core::mem::replace(&mut self.is_reading, true) {
            let received = wire.port.device.counters().received;
            let is_vain = core::mem::replace(&mut self.received, received) == received;
            self.vain_reports = if is_vain { self.vain_reports.saturating_add(1) } else { 0 };
            let op = if self.vain_reports > VAIN_REPORTS_MAX {
                Op::Timer(now + VAIN_PAUSE)
            } else {
                Op::Readable(self.readable.clone())
            };
            ring.submit(op, READABLE);
        }
        if let Some((_, fd)) = &self.watch
            && !core::mem::replace(&mut self.is_watching, true)
        {
            ring.submit(Op::Readable(fd.clone()), WATCH);
        }
        let has_left = wire.port.flush();
        let waits = self.room.handle_batch(has_left, &wire.port.device.counters());
        if waits != Wait::Nothing && !core::mem::replace(&mut self.waits_for_room, true) {
            let op = match waits {
                Wait::Pause => Op::Timer(now + ROOM_PAUSE),
                Wait::Nothing | Wait::Writable => Op::Writable(self.writable.clone()),
            };
            ring.submit(op, WRITABLE);
        }
        if !wire.news.is_empty() {
            self.wake_at(ring, now);
        } else if let Some(at) = wire.stack.next_timer() {
            self.wake_at(ring, ring::Time::from_nanos(at.as_nanos()));
        }
    }

    fn close(&mut self, ring: &mut Ring) {
        self.closed = true;
        self.set_accepting(ring, true);
    }

    fn is_closed(&self) -> bool {
        self.closed && self.waiting.is_empty()
    }

    fn end(&mut self, limit: Duration) {
        self.wire.borrow_mut().port.finish(limit);
    }
}

impl fmt::Debug for StackNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StackNetwork({} listeners)", self.listeners.len())
    }
}
