//! TCP (RFC 9293), the side that answers and the side that asks.

mod handshake;
mod state;

pub use handshake::{Endpoints, Handshake, Timestamps};
pub use state::State;
