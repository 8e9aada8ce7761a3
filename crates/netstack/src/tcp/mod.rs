//! TCP (RFC 9293), the side that answers and the side that asks.

mod congestion;
mod flight;
mod handshake;
mod state;

pub use congestion::Algorithm;
pub use flight::{Ack, Acked, Flight, Kind, Next, Offer, Path, Saved, Status, TimerOutcome};
pub use handshake::{Endpoints, Handshake, Timestamps};
pub use state::State;
