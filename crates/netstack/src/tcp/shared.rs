//! The state that the connections of a stack share.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::flight::Flight;
use super::path_mtu::{Believed, Doubted, PathMtus};
use super::persist::Persist;
use super::round_trips::RoundTrips;
use super::state::TcpState;
use crate::config::Config;
use crate::time::Time;

/// The state that the connections of a stack share.
#[derive(Debug)]
pub struct Shared {
    /// The counters of the connections.
    pub counters: ConnectionCounters,
    /// Bytes that all connections hold for their applications, with the cost of ranges: at most [`HELD_BYTES_MAX`].
    pub(super) held_bytes: usize,
    /// The MTUs that routers have reported for the paths to peers.
    pub(crate) path_mtus: PathMtus,
    /// The number of connections in each state, in the order of [`TcpState::ALL`].
    states: [usize; TcpState::ALL.len()],
    /// The number of flights that connections hold.
    pub(super) flights: usize,
    #[expect(clippy::vec_box, reason = "connections take and give back the boxes")]
    spares: Vec<Box<Sending>>,
}

/// The maximum received bytes that all connections of a stack hold, with the overhead of ranges out of order. Segments
/// beyond this limit are dropped; their peers retransmit them.
pub const HELD_BYTES_MAX: usize = 256 * 1024 * 1024;

/// The state of a connection while it sends.
#[derive(Debug)]
pub(super) struct Sending {
    /// The data in flight.
    pub(super) flight: Flight,
    /// The probes of a closed window.
    pub(super) persist: Persist,
    /// A router's report that contradicts segments that arrived.
    pub(super) doubted: Option<Doubted>,
    /// A router's report that shortened the segments, until an acknowledgement proves or refutes it.
    pub(super) believed: Option<Believed>,
    /// The time at which segments get their full length again, after a router's report; [`Time::MAX`] without a
    /// report.
    pub(super) lengthen_at: Time,
}

impl Default for Sending {
    fn default() -> Self {
        Self {
            flight: Flight::default(),
            persist: Persist::default(),
            doubted: None,
            believed: None,
            lengthen_at: Time::MAX,
        }
    }
}

/// The maximum number of spares. Further ones are freed.
const SPARES_MAX: usize = 4096;

impl Shared {
    /// The shared state of a new stack. The key hides from peers which of them share a slot in a table.
    #[must_use]
    pub fn new(key: u64) -> Self {
        Self {
            counters: ConnectionCounters::default(),
            held_bytes: 0,
            path_mtus: PathMtus::new(key),
            states: [0; TcpState::ALL.len()],
            flights: 0,
            spares: Vec::new(),
        }
    }

    /// Counts a connection that is new.
    pub fn begin(&mut self) {
        self.states[TcpState::Established as usize] += 1;
    }

    /// Counts a connection that changes its state.
    pub(super) fn change(&mut self, from: TcpState, to: TcpState) {
        self.states[from as usize] -= 1;
        self.states[to as usize] += 1;
    }

    /// Counts a connection that is gone.
    pub(super) fn end(&mut self, last: TcpState) {
        self.states[last as usize] -= 1;
    }

    /// The number of connections in each state, in the order of [`TcpState::ALL`].
    #[must_use]
    pub const fn states(&self) -> [usize; TcpState::ALL.len()] {
        self.states
    }

    pub(super) fn take_sending(&mut self) -> Box<Sending> {
        self.flights += 1;
        self.spares.pop().unwrap_or_default()
    }

    pub(super) fn keep_sending(&mut self, sending: Box<Sending>) {
        self.flights -= 1;
        self.counters.round_trips.note(sending.flight.srtt_us());
        if self.spares.len() < SPARES_MAX {
            self.spares.push(sending);
        }
    }

    /// Bytes that all connections hold for their applications.
    #[must_use]
    pub const fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// The number of connections that send, or wait for the peer's window.
    #[must_use]
    pub const fn flights(&self) -> usize {
        self.flights
    }

    /// Bytes of memory for moving data, without the records of transmissions in flight.
    pub(crate) const fn memory(&self) -> usize {
        (self.flights + self.spares.len()) * size_of::<Sending>() + self.held_bytes
    }
}

/// The counters of connections since the stack began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectionCounters {
    /// Acknowledgements that were sent without data.
    pub acks_sent: u64,
    /// Challenge acknowledgements (RFC 5961) among `acks_sent`.
    pub challenges_sent: u64,
    /// Resets that were sent.
    pub resets_sent: u64,
    /// Retransmissions after acknowledgements of later bytes.
    pub retransmitted_fast: u64,
    /// Retransmissions after a timeout.
    pub retransmitted_timeout: u64,
    /// Probes: of the tail and of a closed window.
    pub probes_sent: u64,
    /// SYNs, and resets that may be forged (RFC 5961).
    pub dropped_blind: u64,
    /// Segments outside of the window.
    pub dropped_window: u64,
    /// Segments with an old timestamp (RFC 7323, 5).
    pub dropped_timestamp: u64,
    /// Segments with an acknowledgement of bytes that were never sent or were acknowledged long ago, or without
    /// one.
    pub dropped_ack: u64,
    /// Segments that came out of order and were held.
    pub out_of_order: u64,
    /// Segments that came out of order and were dropped for lack of room.
    pub dropped_held: u64,
    /// Connections that the peer has reset.
    pub reset: u64,
    /// Connections that timed out.
    pub timed_out: u64,
    /// The round trips of the connections.
    pub round_trips: RoundTrips,
}

/// The parts of the stack that a step of a connection needs.
#[derive(Debug)]
pub struct Context<'a> {
    /// The settings.
    pub config: &'a Config,
    /// What all connections share.
    pub shared: &'a mut Shared,
}
