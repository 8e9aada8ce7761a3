//! The stack: frames and the time in, frames and events out.
//!
//! Folders are layers: `wire` has one header per file, whose `parse` and `emit` are inverse; `ip` finds the owner of a
//! packet; `tcp` is RFC 9293 with the documents that each rule names. Each frame is handed up, answered, or dropped
//! and counted under one reason. A flush ends a batch: it sends the acknowledgements that no data has carried, and
//! arms timers.
//!
//! Connections live in chunks of slots that never move, and are found by a keyed hash with linear hashing, so the
//! stack grows to a million connections without a pause. A connection that moves data borrows the memory for it from a
//! list of spares, and gives it back when nothing is in flight. At the maximum of connections, a new one replaces a
//! connection that was closed in order but not yet ended by its peer. A close without a complete shutdown sends a
//! reset, so that no peer mistakes a part of the stream for the whole.

mod connections;
mod opening;

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::SocketAddr;
use core::{fmt, mem};

use outq::{Memory, OutQ};

use crate::application::{Application, ConnectionId};
use crate::config::Config;
use crate::counters::Counters;
use crate::ip::{self, Received, ReceivedChecksum, Report, Segment, Unsent, What};
use crate::siphash;
use crate::slots::Key;
use crate::tcp::time_wait::{self, Remains, TimeWait};
use crate::tcp::{self, Context, Drained, Endpoints, Fate, Outcome, Shared, TcpState, listen};
use crate::time::Time;
use crate::timers::{self, Tick, Wheel};
use crate::transmit::{Full, Transmit};

use connections::{Connections, id_of, key_of};
pub use opening::ConnectError;
use opening::Opening;

/// A TCP/IP stack.
///
/// The owner of the interface passes on events: a frame ([`handle_frame`](Self::handle_frame)), the time
/// ([`handle_timers`](Self::handle_timers)), room on the interface ([`handle_room`](Self::handle_room)). Meanwhile
/// the stack reports to the [`Application`]. Afterwards the application acts: [`drain`](Self::drain) for the
/// connections with room or new bytes, [`shutdown`](Self::shutdown), [`close`](Self::close). At the end of the
/// batch, and before the owner sleeps, [`flush`](Self::flush) sends the acknowledgements that no data has carried
/// and arms the timers of the connections that changed.
///
/// A call with the identifier of a connection that is gone has no effect.
pub struct Stack {
    config: Config,
    counters: Counters,
    /// Frames, addresses, next hops.
    layer: ip::Layer,
    /// The state that all connections share.
    shared: Shared,
    connections: Connections,
    /// The connections that their applications have closed, in the order of closing. Some may be over.
    orphans: VecDeque<Key>,
    /// Handshakes.
    opening: Opening,
    time_wait: TimeWait,
    /// True if the wheel has an entry for `time_wait`.
    has_time_wait_tick: bool,
    /// The limit of replies to segments without a connection.
    replies: ip::Limit,
    wheel: Wheel,
    /// The connections that changed since the last flush, each once.
    touched: Vec<Key>,
    /// The connections that wait for room at the interface, each once.
    blocked: Vec<Key>,
}

/// The kinds of owners of entries in the wheel. The highest 8 bits of an entry's id are the kind, the others the
/// key.
mod kind {
    pub(super) const MASK: u64 = 0xff << 56;
    pub(super) const CONNECTION: u64 = 0;
    pub(super) const HANDSHAKE: u64 = 1 << 56;
    pub(super) const TIME_WAIT: u64 = 2 << 56;
}

/// A connection, as `samum stack` shows it.
#[derive(Clone, Copy, Debug)]
pub struct Status {
    /// Both ends.
    pub endpoints: Endpoints,
    /// The state.
    pub state: TcpState,
    /// `Some` if data is in flight.
    pub flight: Option<tcp::Status>,
}

/// The number of connections by their kind of memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// Connections in SYN-SENT and SYN-RECEIVED.
    pub half_open: usize,
    /// Connections from ESTABLISHED to LAST-ACK.
    pub connections: usize,
    /// TIME-WAIT.
    pub time_wait: usize,
}

/// The sequence numbers of a connection, which an attacker has to guess.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Numbers {
    /// `SND.NXT`: the number of the next new byte.
    pub snd_nxt: u32,
    /// `RCV.NXT`: the next expected number.
    pub rcv_nxt: u32,
    /// The quantity of numbers from `rcv_nxt` on that the peer may send.
    pub receive_window: u32,
}

/// The resources of a stack that its connections and handshakes hold. Each gives back its resources before it ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Borrowed {
    /// Flights, the memory for data in flight. A connection gives back its flight when nothing is in flight.
    pub flights: usize,
    /// Received bytes that wait for applications.
    pub held_bytes: usize,
    /// Uses of next hops: one use for each connection and each handshake.
    pub next_hops: usize,
}

impl Stack {
    /// A new stack. The secret makes the stack's numbers unpredictable, so it has to be random.
    #[must_use]
    pub fn new(config: Config, secret: [u8; 16], now: Time) -> Self {
        let secret = siphash::Key::new(secret);
        Self {
            counters: Counters::default(),
            layer: ip::Layer::new(&config, secret, now),
            shared: Shared::new(secret.keyed(b"paths")),
            connections: Connections::new(secret, config.connections_max),
            orphans: VecDeque::new(),
            opening: Opening::new(secret, config.half_open_max),
            time_wait: TimeWait::new(secret, config.time_wait_max),
            has_time_wait_tick: false,
            replies: ip::Limit::new(config.replies_per_second_max, secret.derive(b'r'), now),
            wheel: Wheel::new(now),
            touched: Vec::new(),
            blocked: Vec::new(),
            config,
        }
    }

    /// Handles a frame from the interface.
    pub fn handle_frame(
        &mut self,
        now: Time,
        frame: &[u8],
        checksum: ReceivedChecksum,
        app: &mut impl Application,
        out: &mut impl Transmit,
    ) {
        match self.layer.handle_frame(now, frame, checksum, &mut self.counters, out) {
            Received::Segment(segment) => self.handle_segment(now, &segment, app, out),
            Received::Datagram { local, peer, payload } => app.datagram(local, peer, payload),
            Received::Report(report) => {
                if !self.handle_report(now, &report, app, out) {
                    app.stray(report);
                }
            }
            Received::Nothing => {}
        }
    }

    /// Finds the owner of a segment (RFC 9293, 3.10.7).
    #[inline]
    fn handle_segment(
        &mut self,
        now: Time,
        segment: &Segment<'_>,
        app: &mut impl Application,
        out: &mut impl Transmit,
    ) {
        if let Some(key) = self.connections.find(&self.config, &segment.endpoints) {
            return self.handle_in_connection(now, key, segment, app, out);
        }
        if let Some(key) = self.opening.handshakes.find(&segment.endpoints) {
            return self.handle_in_handshake(now, key, segment, app, out);
        }
        match self.handle_in_time_wait(now, segment) {
            None => self.handle_unowned(now, segment, None, app, out),
            Some(time_wait::Step::Drop) => {}
            Some(time_wait::Step::Acknowledge(header)) => self.reply(now, segment, &header, out),
            Some(time_wait::Step::Reuse(least)) => {
                self.handle_unowned(now, segment, Some(least), app, out);
            }
        }
    }

    /// A segment of a connection.
    #[inline]
    fn handle_in_connection(
        &mut self,
        now: Time,
        key: Key,
        segment: &Segment<'_>,
        app: &mut impl Application,
        out: &mut impl Transmit,
    ) {
        let Some(place) = self.connections.get_mut(key) else { return };
        let connection = &mut place.connection;
        let mut cx = Context { config: &self.config, shared: &mut self.shared };
        let &Segment { ref header, payload, ecn, hop, .. } = segment;
        let outcome = connection.handle_segment(now, &mut cx, header, payload, ecn);
        // Only a segment with accepted data or a new acknowledgement can divert the connection to another next hop.
        if outcome.acknowledged || !outcome.received.is_empty() {
            let neighbour = self.layer.neighbours.relearn(connection.neighbour(), hop);
            connection.set_neighbour(neighbour);
        }
        self.conclude(now, key, outcome, payload, app, out);
    }

    fn handle_in_time_wait(&mut self, now: Time, segment: &Segment<'_>) -> Option<time_wait::Step> {
        if self.time_wait.len() == 0 {
            return None;
        }
        let Segment { endpoints, header, payload, .. } = segment;
        let local = self.config.place_of(endpoints.local.ip())?;
        let offset = self.opening.isn.timestamp_offset(endpoints);
        let seg_len = listen::seg_len(header, payload);
        self.time_wait.handle_segment(now, local, endpoints, offset, header, seg_len)
    }

    /// Handles a report that was [stray](Application::stray) at another stack of the interface. Returns false if this
    /// stack does not have the connection either.
    pub fn handle_report(
        &mut self,
        now: Time,
        report: &Report,
        app: &mut impl Application,
        out: &mut impl Transmit,
    ) -> bool {
        let key = self.connections.find(&self.config, &report.endpoints);
        let Some(key) = key else { return false };
        let Some(place) = self.connections.get_mut(key) else { return false };
        match report.what {
            What::Unreachable => place.connection.handle_unreachable(report.seq),
            What::TooBig { mtu } => {
                let mut cx = Context { config: &self.config, shared: &mut self.shared };
                let outcome = place.connection.handle_path_mtu(now, &mut cx, report.seq, mtu);
                self.conclude(now, key, outcome, &[], app, out);
            }
        }
        true
    }

    /// Carries out the outcome of a connection's step.
    #[inline]
    fn conclude(
        &mut self,
        now: Time,
        key: Key,
        outcome: Outcome,
        payload: &[u8],
        app: &mut impl Application,
        out: &mut impl Transmit,
    ) {
        let Some(place) = self.connections.get_mut(key) else { return };
        place.touch(key, &mut self.touched);
        let id = id_of(key);
        let is_orphan = place.connection.is_orphan();
        if !is_orphan {
            if let Some(bytes) =
                payload.get(outcome.received.clone()).filter(|bytes| !bytes.is_empty())
            {
                app.received(id, bytes);
            }
            if outcome.more {
                let mut cx = Context { config: &self.config, shared: &mut self.shared };
                place.connection.receive(&mut cx, |bytes| app.received(id, bytes));
            }
            if outcome.acknowledged {
                app.acknowledged(id);
            }
            if outcome.room {
                app.room(id);
            }
            if outcome.ended {
                app.ended(id);
            }
        } else if outcome.room {
            self.drain_orphan(now, key, out);
        }
        match outcome.fate {
            Fate::Keep => {}
            fate => {
                self.settle(now, key, fate, out);
                match fate {
                    _ if is_orphan => {}
                    Fate::Lost(why) => app.lost(id, why),
                    _ => app.closed(id),
                }
            }
        }
    }

    /// Removes a connection that is over.
    fn settle(&mut self, now: Time, key: Key, fate: Fate, out: &mut impl Transmit) {
        let Some(mut connection) = self.connections.remove(&self.config, key) else { return };
        let mut cx = Context { config: &self.config, shared: &mut self.shared };
        let mut emitter = self.layer.emitter(&mut self.counters, out);
        match fate {
            Fate::Keep | Fate::Closed | Fate::Lost(_) => {}
            Fate::Reset => connection.reset(now, &mut cx, &mut emitter),
            Fate::TimeWait => {
                if connection.is_ack_due(now) {
                    // If the interface has no room, the peer repeats its FIN, and the repeated FIN is acknowledged.
                    let _ = connection.acknowledge(now, &mut cx, &mut emitter);
                }
                let endpoints = connection.endpoints(&self.config);
                let remains = Remains {
                    snd_nxt: connection.snd_nxt(),
                    rcv_nxt: connection.rcv_nxt(),
                    timestamps: connection.timestamps(),
                };
                if let Some(local) = self.config.place_of(endpoints.local.ip()) {
                    let is_early = self.time_wait.insert(now, local, &endpoints, &remains);
                    self.counters.time_wait_overflows += u64::from(is_early);
                    self.arm_time_wait(now);
                }
            }
        }
        self.layer.neighbours.release(connection.neighbour());
        connection.release(&mut self.shared);
    }

    /// Sends the bytes that a connection's windows allow, lost bytes first, and subtracts the sent bytes from
    /// `budget`. First the queue releases the acknowledged bytes. `Empty` if the connection is gone, `Blocked` if
    /// it is not open yet.
    ///
    /// # Panics
    ///
    /// If bytes are in flight, and `queue` is not their queue.
    pub fn drain<P: Memory>(
        &mut self,
        now: Time,
        id: ConnectionId,
        queue: &mut OutQ<P>,
        budget: &mut u64,
        out: &mut impl Transmit,
    ) -> Drained {
        let key = key_of(id);
        let Some(place) = self.connections.get_mut(key) else {
            let is_asked = self.connections.handshake_of(key).is_some();
            return if is_asked { Drained::Blocked } else { Drained::Empty };
        };
        let mut cx = Context { config: &self.config, shared: &mut self.shared };
        let mut emitter = self.layer.emitter(&mut self.counters, out);
        place.touch(key, &mut self.touched);
        let drained = place.connection.drain(now, &mut cx, queue, budget, &mut emitter);
        drained.unwrap_or_else(|Full| {
            place.block(key, &mut self.blocked);
            Drained::Blocked
        })
    }

    /// Sends the FIN of a connection that its application has closed, or retransmits it.
    fn drain_orphan(&mut self, now: Time, key: Key, out: &mut impl Transmit) {
        let mut queue = OutQ::<&[u8]>::new();
        self.drain(now, id_of(key), &mut queue, &mut u64::MAX.clone(), out);
    }

    /// The bytes that a connection may have in flight now: the smaller of its congestion window and the peer's
    /// window. 0 if the connection is not open.
    #[must_use]
    pub fn window(&self, id: ConnectionId) -> u32 {
        self.connections.get(key_of(id)).map_or(0, |place| place.connection.window())
    }

    /// Ends this side: the peer sees the end of the stream after all promised bytes. Drain afterwards.
    pub fn shutdown(&mut self, id: ConnectionId) {
        if let Some(place) = self.connections.get_mut(key_of(id)) {
            place.connection.shutdown();
        }
    }

    /// Closes a connection. If this side was shut down and all bytes were sent, acknowledged and received, the
    /// stack ends the connection in order. Otherwise the stack resets it. The identifier is gone: the application
    /// gets no more events of the connection.
    pub fn close(&mut self, now: Time, id: ConnectionId, out: &mut impl Transmit) {
        let key = key_of(id);
        if let Some(handshake) = self.connections.handshake_of(key) {
            self.connections.remove(&self.config, key);
            self.remove_handshake(handshake);
            return;
        }
        // The identifier of an orphan is already gone for the application.
        let is_open = |place: &&mut connections::TableEntry| !place.connection.is_orphan();
        let Some(place) = self.connections.get_mut(key).filter(is_open) else { return };
        match place.connection.close() {
            Fate::Keep => {
                self.note_orphan(key);
                self.drain_orphan(now, key, out);
            }
            fate => self.settle(now, key, fate, out),
        }
    }

    fn note_orphan(&mut self, key: Key) {
        // At least half of the orphans are over.
        if self.orphans.len() >= 2 * self.connections.len() {
            let Self { orphans, connections, .. } = self;
            orphans.retain(|key| is_orphan(connections, *key));
        }
        self.orphans.push_back(key);
    }

    /// Resets the connection that was closed first, to make room. A peer that does not end its side, or does not
    /// acknowledge our FIN, would otherwise keep the slot for a minute or more.
    fn end_oldest_orphan(&mut self, now: Time, out: &mut impl Transmit) {
        while let Some(key) = self.orphans.pop_front() {
            if is_orphan(&self.connections, key) {
                self.counters.orphan_overflows += 1;
                return self.settle(now, key, Fate::Reset, out);
            }
        }
    }

    /// Delivers received bytes to the application from now on, or holds them back (back-pressure): the peer stops
    /// when the receive window is full.
    pub fn set_receiving(
        &mut self,
        now: Time,
        id: ConnectionId,
        on: bool,
        app: &mut impl Application,
        out: &mut impl Transmit,
    ) {
        let key = key_of(id);
        let Some(place) = self.connections.get_mut(key) else { return };
        let outcome = place.connection.set_receiving(on);
        self.conclude(now, key, outcome, &[], app, out);
    }

    /// Sends a datagram from a served address to a peer that has sent one lately. The stack does not retransmit.
    ///
    /// # Errors
    ///
    /// If the datagram cannot be sent.
    pub fn send_datagram(
        &mut self,
        local: SocketAddr,
        peer: SocketAddr,
        parts: &[&[u8]],
        out: &mut impl Transmit,
    ) -> Result<(), Unsent> {
        self.layer.send_datagram(local, peer, parts, &mut self.counters, out)
    }

    /// Ends a batch: sends due acknowledgements, and arms timers.
    pub fn flush(&mut self, now: Time, out: &mut impl Transmit) {
        self.layer.tend_gateways(now, &mut self.counters, out);
        let mut touched = mem::take(&mut self.touched);
        for key in touched.drain(..) {
            let Some(place) = self.connections.get_mut(key) else { continue };
            place.is_touched = false;
            if place.connection.is_ack_due(now) {
                let mut cx = Context { config: &self.config, shared: &mut self.shared };
                let mut emitter = self.layer.emitter(&mut self.counters, out);
                if place.connection.acknowledge(now, &mut cx, &mut emitter) == Err(Full) {
                    place.block(key, &mut self.blocked);
                }
            }
            // An entry in the wheel that is early enough stays.
            if let Some(deadline) = place.connection.deadline(&self.config)
                && (!place.has_tick || timers::is_later(place.tick, now, deadline))
            {
                place.tick = self.wheel.insert(now, kind::CONNECTION | key.to_bits(), deadline);
                place.has_tick = true;
            }
        }
        self.touched = touched;
    }

    /// Handles new room at an interface that was full.
    pub fn handle_room(&mut self, now: Time, app: &mut impl Application, out: &mut impl Transmit) {
        for key in mem::take(&mut self.blocked) {
            let Some(place) = self.connections.get_mut(key) else { continue };
            place.is_blocked = false;
            let outcome = Outcome { room: true, ..Outcome::default() };
            self.conclude(now, key, outcome, &[], app, out);
        }
    }

    /// The time at which the owner has to call [`handle_timers`](Self::handle_timers). The call may find no due
    /// deadline.
    #[must_use]
    pub fn next_timer(&self) -> Option<Time> {
        self.wheel.next()
    }

    /// Handles all deadlines up to `now`.
    pub fn handle_timers(
        &mut self,
        now: Time,
        app: &mut impl Application,
        out: &mut impl Transmit,
    ) {
        while let Some((id, tick)) = self.wheel.expire(now) {
            let key = Key::from_bits(id);
            match id & kind::MASK {
                kind::CONNECTION => self.handle_connection_timer(now, key, tick, app, out),
                kind::HANDSHAKE => self.handle_handshake_timer(now, key, app, out),
                _ => {
                    self.has_time_wait_tick = false;
                    self.time_wait.handle_timer(now);
                    self.arm_time_wait(now);
                }
            }
        }
    }

    fn handle_connection_timer(
        &mut self,
        now: Time,
        key: Key,
        tick: Tick,
        app: &mut impl Application,
        out: &mut impl Transmit,
    ) {
        let Some(place) = self.connections.get_mut(key) else { return };
        if !place.has_tick || place.tick != tick {
            return;
        }
        place.has_tick = false;
        // The flush arms the timer again.
        place.touch(key, &mut self.touched);
        if place.connection.deadline(&self.config).is_some_and(|at| at <= now) {
            let mut cx = Context { config: &self.config, shared: &mut self.shared };
            let outcome = place.connection.handle_timer(now, &mut cx);
            self.conclude(now, key, outcome, &[], app, out);
        }
    }

    fn arm_time_wait(&mut self, now: Time) {
        if self.has_time_wait_tick {
            return;
        }
        if let Some(at) = self.time_wait.deadline(now) {
            self.wheel.insert(now, kind::TIME_WAIT, at);
            self.has_time_wait_tick = true;
        }
    }

    /// The settings.
    #[must_use]
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// The counters since the stack began.
    #[must_use]
    pub const fn counters(&self) -> Counters {
        Counters { connections: self.shared.counters, ..self.counters }
    }

    /// The number of connections of each kind.
    #[must_use]
    pub const fn census(&self) -> Census {
        Census {
            half_open: self.opening.handshakes.len(),
            connections: self.connections.len(),
            time_wait: self.time_wait.len(),
        }
    }

    /// The number of open connections in each state, in the order of [`TcpState::ALL`].
    #[must_use]
    pub const fn states(&self) -> [usize; TcpState::ALL.len()] {
        self.shared.states()
    }

    /// The open connections.
    pub fn connections(&self) -> impl Iterator<Item = (ConnectionId, Status)> {
        self.connections.iter().map(|(key, connection)| {
            let status = Status {
                endpoints: connection.endpoints(&self.config),
                state: connection.state(),
                flight: connection.flight_status(),
            };
            (id_of(key), status)
        })
    }

    /// The sequence numbers of a connection, for an attacker in the simulated network; `None` if it is not open.
    pub(crate) fn numbers(&self, id: ConnectionId) -> Option<Numbers> {
        let connection = &self.connections.get(key_of(id))?.connection;
        Some(Numbers {
            snd_nxt: connection.snd_nxt().0,
            rcv_nxt: connection.rcv_nxt().0,
            receive_window: connection.receive_window(),
        })
    }

    /// Counts the resources that connections and handshakes hold now.
    #[must_use]
    pub fn borrowed(&self) -> Borrowed {
        Borrowed {
            flights: self.shared.flights(),
            held_bytes: self.shared.held_bytes(),
            next_hops: self.layer.neighbours.uses(),
        }
    }

    /// Bytes of memory for connections: their slots, flights and spare flights, and received bytes that wait for
    /// applications. The records of transmissions in flight come on top, 56 bytes for each frame.
    #[must_use]
    pub fn memory(&self) -> usize {
        let places =
            self.connections.memory() + self.opening.handshakes.memory() + self.time_wait.memory();
        places + self.orphans.capacity() * size_of::<Key>() + self.shared.memory()
    }
}

fn is_orphan(connections: &Connections, key: Key) -> bool {
    connections.get(key).is_some_and(|place| place.connection.is_orphan())
}

impl fmt::Debug for Stack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stack({:?})", self.census())
    }
}

#[cfg(test)]
mod tests;
