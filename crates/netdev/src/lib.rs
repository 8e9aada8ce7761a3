//! Frames from and to a network interface: AF_XDP, packet sockets with large segments, TAP.
//!
//! [`open`] looks at an interface, attaches what is needed, and returns a [`Queue`] for each receive
//! queue in use; the thread that serves it starts it as a [`Device`]. With AF_XDP a small XDP program takes the
//! frames of the services from the interface, and passes all others to the kernel. The program goes
//! with the process.
//!
//! A device has one socket and one worker per receive queue that is in use when it is opened. The kernel accounts the
//! memory of a socket before it looks at the queue, so a queue whose memory is too much is asked with one page whether
//! it is in use at all. A queue that reports room or frames and has none is asked again after a pause, so that no
//! descriptor keeps a worker busy. veth gets generic mode, because native mode polls on the sender's CPU. In native
//! mode a socket is bound without copies where the driver can (`XDP_ZEROCOPY`). That has never run: no adapter here
//! has such a driver, and only the choice at `bind(2)` with its way back has a test.

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
pub use rights::drop_rights;
pub use room::{ROOM_PAUSE, Room, Wait};
pub use run::{Program, run};
pub use watch::Watch;
