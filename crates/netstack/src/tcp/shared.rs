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

/// What the connections of a stack share.
#[derive(Debug)]
pub struct Shared {
    /// What they have done.
    pub counters: ConnectionCounters,
    /// Bytes that all connections hold for their applications, with the cost of ranges: at most [`HELD_BYTES_MAX`].
    pub(super) held_bytes: usize,
    /// What routers have said about the paths to peers.
    pub(crate) path_mtus: PathMtus,
    /// The number of connections in each state, in the order of [`TcpState::ALL`].
    states: [usize; TcpState::ALL.len()],
    /// Flights that connections have taken and not given back.
    pub(super) flights: usize,
    #[expect(clippy::vec_box, reason = "connections take and give back the boxes")]
    spares: Vec<Box<Sending>>,
}

/// The most received bytes that all connections of a stack hold, with what the ranges of those out of order cost. Segments that would make more are dropped:
/// their peers send them again.
pub const HELD_BYTES_MAX: usize = 256 * 1024 * 1024;

/// What a connection needs while it sends.
#[derive(Debug)]
pub(super) struct Sending {
    /// The data in flight.
    pub(super) flight: Flight,
    /// The probes of a closed window.
    pub(super) persist: Persist,
    /// What a router has said and what segments that arrived speak against.
    pub(super) doubted: Option<Doubted>,
    /// What a router has said and what shortened the segments, until an acknowledgement tells whether it is true.
    pub(super) believed: Option<Believed>,
    /// When segments are as long again as both ends take, although a router has said that the path does not take
    /// them; [`Time::MAX`] while none has.
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

/// The most that are kept in reserve. More are freed.
const SPARES_MAX: usize = 4096;

impl Shared {
    /// What the connections of a new stack share. The key hides from peers which of them share a place in a table.
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

/// What connections have done since the stack began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectionCounters {
    /// Acknowledgements that were sent without data.
    pub acks_sent: u64,
    /// Challenge acknowledgements (RFC 5961) among them.
    pub challenges_sent: u64,
    /// Resets that were sent.
    pub resets_sent: u64,
    /// Retransmissions because later bytes were acknowledged.
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
    /// Segments that acknowledge what was never sent or is long acknowledged, or nothing.
    pub dropped_ack: u64,
    /// Segments that came out of order and were held.
    pub out_of_order: u64,
    /// Segments that came out of order and for which there was no room.
    pub dropped_held: u64,
    /// Connections that the peer has reset.
    pub reset: u64,
    /// Connections that timed out.
    pub timed_out: u64,
    /// Their round trips.
    pub round_trips: RoundTrips,
}

/// What a step needs from the stack.
#[derive(Debug)]
pub struct Context<'a> {
    /// The settings.
    pub config: &'a Config,
    /// What all connections share.
    pub shared: &'a mut Shared,
}
