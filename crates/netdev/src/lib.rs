//! Frames from and to a network interface: AF_XDP, packet sockets with large segments, TAP.
//!
//! [`open`] looks at an interface, attaches an XDP program if needed, and returns a [`Queue`] for each receive
//! queue in use. The thread that serves a queue starts it as a [`Device`]. With AF_XDP a small XDP program takes
//! the frames of the services from the interface, and passes all others to the kernel. The kernel detaches the
//! program when the process ends.
//!
//! A device has one socket and one worker per receive queue that is in use when it is opened. The kernel accounts the
//! memory of a socket before it looks at the queue, so if the memory is too much, a socket with one page tests whether
//! the queue is in use at all. If a queue reports room or frames and has none, it is polled again after a pause, so
//! that no descriptor keeps a worker busy. veth gets generic mode, because native mode polls on the sender's CPU. In
//! native mode a socket is bound without copies where the driver can (`XDP_ZEROCOPY`). Zero copy has never run,
//! because no test machine has such a driver. Only the choice at `bind(2)` and its fallback have a test.

mod changes;
mod choose;
mod counters;
mod error;
mod frames;
mod interface;
mod mapping;
mod measure;
mod netlink;
mod packet;
mod parts;
mod patience;
mod pool;
mod rights;
mod room;
mod run;
mod sockets;
mod tap;
mod vnet;
mod watch;
mod xdp;

pub use counters::Counters;
pub use error::Error;
pub use frames::{
    Device, Frames, HELD_MAX, OWN_ADDRESSES_MAX, Opened, Options, Protocol, Queue, SERVICES_MAX,
    Service, open,
};
pub use interface::Interface;
pub use pool::Received;
pub use room::{ROOM_PAUSE, Room, Wait};
pub use run::{Program, run};
pub use watch::Watch;
