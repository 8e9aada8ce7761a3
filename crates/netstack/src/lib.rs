//! A TCP/IP stack for a server that sends prepared content.
//!
//! Frames and the time go in; frames and news come out. The stack reads no clock, owns no descriptor
//! and holds no byte that is to be sent: the application's queue ([`outq::OutQ`]) is the send buffer,
//! and a retransmission reads from it. The idea is Sandstorm's (Marinos, Watson, Handley: "Network
//! Stack Specialization for Performance", SIGCOMM 2014).

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod application;
mod config;
mod counters;
mod ip;
mod seq;
pub mod sim;
mod siphash;
pub mod slots;
mod stack;
mod table;
pub mod tcp;
mod time;
mod timers;
mod transmit;
pub mod wire;

pub use application::{Application, ConnectionId, Lost};
pub use config::{Address, Config, Gateway, Keepalive};
pub use counters::{Counters, Drops, Handshakes};
pub use ip::{ReceivedChecksum, Unsent, capture, channel};
pub use outq::Memory;
pub use seq::SeqNumber;
pub use stack::{Borrowed, Census, ConnectError, Stack, Status};
pub use time::Time;
pub use transmit::{Checksum, Frame, Full, Limits, Transmit};
