//! The layer between the link and the transports: packets, next hops, headers of frames, and all replies that need
//! no transport.

pub mod capture;
pub mod channel;
mod emit;
mod gateways;
mod layer;
mod limit;
mod neighbours;
mod packet;
mod report;

pub use layer::Unsent;
pub(crate) use layer::{Layer, Received, Segment};
pub(crate) use limit::Limit;
#[cfg(test)]
pub(crate) use neighbours::Neighbours;
pub(crate) use neighbours::NextHop;
pub use packet::ReceivedChecksum;
pub use report::Report;
pub(crate) use report::What;
