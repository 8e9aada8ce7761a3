//! Between the link and the transports: packets, next hops, and the heads of frames.

mod emit;
mod neighbours;
mod packet;

pub(crate) use emit::Emitter;
pub(crate) use neighbours::{Neighbours, NextHop};
pub(crate) use packet::Packet;
pub use packet::ReceivedChecksum;
