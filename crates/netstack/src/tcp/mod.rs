//! TCP (RFC 9293), the side that answers and the side that asks.

mod congestion;
mod connection;
pub(crate) mod cookie;
mod flight;
pub(crate) mod half_open;
mod handshake;
mod held;
mod input;
pub(crate) mod isn;
pub(crate) mod listen;
mod output;
mod receive;
mod recovery;
mod state;
pub(crate) mod time_wait;

pub use congestion::Algorithm;
pub use connection::{
    Connection, ConnectionCounters, Context, Fate, HELD_BYTES_MAX, Outcome, Shared,
};
pub use flight::{Ack, Acked, Flight, Kind, Next, Offer, Path, Saved, Status, TimerOutcome};
pub use handshake::{Endpoints, Handshake, Timestamps};
pub use output::{Drained, Emit};
pub use state::State;
