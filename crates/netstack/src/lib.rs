//! A TCP/IP stack for a server that sends prepared content.
//!
//! Frames and the time go in; frames and events come out. The stack reads no clock, owns no descriptor and holds no
//! bytes to send: the application's queue ([`outq::OutQ`]) is the send buffer, and a retransmission reads from it.
//! The idea is Sandstorm's (Marinos, Watson, Handley: "Network Stack Specialization for Performance", SIGCOMM
//! 2014).
//!
//! # Use
//!
//! - A [`Config`] names the addresses and ports that are served, and all limits.
//! - A [`Stack`] receives frames and the time, and reports events to an [`Application`]. The application acts
//!   afterwards: [`drain`](Stack::drain), [`shutdown`](Stack::shutdown), [`close`](Stack::close). A
//!   [`flush`](Stack::flush) ends each batch.
//! - A [`Transmit`] accepts the frames that leave. The crate `netdev` has one for interfaces of Linux, and a loop that
//!   runs an application on it; [`sim`] has a simulated one.
//!
//! # Example
//!
//! An echo, and a client in the simulated network. It needs no interface, no rights and no clock.
//!
//! ```
//! use core::net::{IpAddr, SocketAddr};
//! use core::time::Duration;
//! use std::collections::HashMap;
//!
//! use netstack::sim::{Device, Host, News, mac};
//! use netstack::{
//!     Address, Application, Config, ConnectionId, Limits, Lost, ReceivedChecksum, Stack, Time,
//! };
//! use outq::OutQ;
//!
//! /// Sends back what it receives.
//! #[derive(Default)]
//! struct Echo {
//!     /// The bytes that a peer has not acknowledged: lost ones are sent again from here.
//!     queues: HashMap<ConnectionId, OutQ<Vec<u8>>>,
//!     /// Connections with something to send.
//!     due: Vec<ConnectionId>,
//!     /// Connections whose peer has ended its side.
//!     ended: Vec<ConnectionId>,
//! }
//!
//! impl Application for Echo {
//!     fn accepted(&mut self, id: ConnectionId, _local: SocketAddr, _peer: SocketAddr) {
//!         self.queues.insert(id, OutQ::new());
//!     }
//!     fn received(&mut self, id: ConnectionId, bytes: &[u8]) {
//!         self.queues.get_mut(&id).unwrap().push(bytes.to_vec());
//!         self.due.push(id);
//!     }
//!     fn acknowledged(&mut self, id: ConnectionId) {
//!         self.due.push(id);
//!     }
//!     fn room(&mut self, id: ConnectionId) {
//!         self.due.push(id);
//!     }
//!     fn ended(&mut self, id: ConnectionId) {
//!         self.ended.push(id);
//!     }
//!     fn closed(&mut self, id: ConnectionId) {
//!         self.queues.remove(&id);
//!     }
//!     fn lost(&mut self, id: ConnectionId, _why: Lost) {
//!         self.queues.remove(&id);
//!     }
//! }
//!
//! fn config(ip: &str) -> Config {
//!     let ip: IpAddr = ip.parse().unwrap();
//!     Config {
//!         addresses: vec![Address { ip, prefix: 24, is_ours: true }],
//!         tcp_ports: vec![7],
//!         ..Config::new(mac(ip))
//!     }
//! }
//!
//! let mut now = Time::from_nanos(0);
//! let limits = Limits { mtu: 1500, cut_bytes_max: 0, fills_checksums: false };
//! let mut device = Device::new(limits, usize::MAX);
//! // The secret has to be random where others can reach the stack.
//! let mut stack = Stack::new(config("192.0.2.1"), [1; 16], now);
//! let mut echo = Echo::default();
//!
//! let mut client = Host::new(config("192.0.2.2"), Device::new(limits, usize::MAX), [2; 16], now);
//! let ends = ["192.0.2.2:5000", "192.0.2.1:7"].map(|text| text.parse().unwrap());
//! client.connect(now, ends[0], ends[1]).unwrap();
//! let (mut answer, mut is_over) = (Vec::new(), false);
//! while !is_over {
//!     // Frames have come, or a timer is due: the stack tells the application.
//!     client.settle(now);
//!     for frame in client.frames() {
//!         let checksum = ReceivedChecksum::Unverified;
//!         stack.handle_frame(now, &frame, checksum, &mut echo, &mut device);
//!     }
//!     if stack.next_timer().is_some_and(|timer| timer <= now) {
//!         stack.handle_timers(now, &mut echo, &mut device);
//!     }
//!     // The application acts.
//!     for id in echo.ended.drain(..) {
//!         stack.shutdown(id);
//!         echo.due.push(id);
//!     }
//!     for id in echo.due.drain(..) {
//!         let Some(queue) = echo.queues.get_mut(&id) else { continue };
//!         let mut budget = u64::MAX;
//!         stack.drain(now, id, queue, &mut budget, &mut device);
//!     }
//!     // The batch ends: acknowledgements leave, and timers are armed.
//!     stack.flush(now, &mut device);
//!
//!     for frame in device.take() {
//!         client.handle_frame(now, &frame);
//!     }
//!     for (id, news) in client.news() {
//!         match news {
//!             News::Accepted(..) => {
//!                 client.send(id, b"hello".to_vec());
//!                 client.shutdown(id);
//!             }
//!             News::Received(bytes) => answer.extend(bytes),
//!             News::Closed => is_over = true,
//!             _ => {}
//!         }
//!     }
//!     now = now + Duration::from_millis(1);
//! }
//! assert_eq!(answer, b"hello");
//! ```
//!
//! # Properties
//!
//! - IPv4 and IPv6 over Ethernet, with or without a VLAN tag. Fragments are dropped, because segments are as long as
//!   the path allows. When the path reports a smaller MTU, the stack uses that MTU.
//! - An idle connection takes 148 bytes. Packets of open connections cost no allocation; `tests/allocations.rs` lists
//!   what does allocate.
//! - Packets to a peer go through a [`Gateway`], or to the station that the peer's frames come from. There are no other
//!   routes.
//! - A datagram can be sent only to a peer that has sent a datagram lately.
//! - Each stack belongs to one thread. An interface with several receive queues has several stacks. A router's report
//!   about a connection may reach another stack than the connection's ([`Application::stray`]).

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod application;
mod cache;
mod config;
mod counters;
mod hash;
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

pub use application::{Application, ConnectionId};
pub use config::{Address, Config, Gateway, Keepalive};
pub use counters::{Counters, Drops, Handshakes};
pub use ip::{ReceivedChecksum, Report, Unsent, capture, channel};
pub use outq::Memory;
pub use seq::SeqNumber;
pub use stack::{Borrowed, Census, ConnectError, Stack, Status};
pub use tcp::Lost;
pub use time::Time;
pub use transmit::{Checksum, Frame, Full, Limits, Transmit};
