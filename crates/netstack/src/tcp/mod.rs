//! TCP (RFC 9293), for the passive side and the active side of a connection.

mod clock;
mod congestion;
mod connection;
pub(crate) mod cookie;
mod ends;
mod flight;
pub(crate) mod half_open;
mod handshake;
#[cfg(test)]
mod harness;
mod held;
mod input;
pub(crate) mod isn;
pub(crate) mod listen;
mod output;
#[cfg(test)]
mod pair;
pub(crate) mod path_mtu;
mod persist;
mod receive;
mod recovery;
mod round_trips;
mod shared;
mod state;
pub(crate) mod time_wait;

pub use crate::config::Algorithm;
pub use connection::{Connection, Fate, Outcome};
pub(crate) use ends::EndpointBytes;
pub use flight::{Ack, Acked, Flight, Kind, Offer, Path, Saved, SendStep, Status, TimerOutcome};
pub use handshake::{Endpoints, Handshake, Timestamps};
pub use output::{Drained, Emit};
pub use round_trips::RoundTrips;
pub use shared::{ConnectionCounters, Context, HELD_BYTES_MAX, Shared};
pub use state::{Lost, TcpState};
