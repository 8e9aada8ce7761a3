//! A simulated network on a virtual clock. A seed determines the whole run.
//!
//! A [`Device`] is the interface of a stack: it cuts large frames into segments and fills in checksums as an
//! adapter does, and checks what a stack promises to an adapter. A [`Link`] is one direction of a path: loss, bursts, reordering,
//! duplication, corruption, delay, jitter, a rate with a queue in front of it, a policer, an MTU, and a box that
//! overwrites options. A [`Segment`] is a segment as a value, for peers that a test plays itself. A [`Host`] is a
//! stack with a device and the queues of its connections, and a [`World`] two of them with the path between.
//!
//! Nothing here uses the stack's own headers: a mistake in them would cancel itself out and stay unnoticed.

mod bytes;
mod device;
mod host;
mod link;
mod messages;
mod random;
mod segment;
#[cfg(test)]
mod tests;
mod world;

pub use crate::stack::Numbers;
pub use device::Device;
pub use host::{Datagram, Host, News};
pub use link::{Burst, Conditions, Fates, Link, Policer};
pub use messages::{host_unreachable, too_large};
pub use random::Random;
pub use segment::{Segment, TcpOption, flag, mac};
pub use world::World;
