//! Loss recovery: records transmissions, detects losses, and times retransmissions.
//!
//! Each file is one mechanism and can be read alone; [`Flight`](super::flight::Flight) puts them
//! together.

pub(crate) mod delivery;
pub(crate) mod pacing;
pub(crate) mod probe;
pub(crate) mod prr;
pub(crate) mod rack;
pub(crate) mod rtt;
pub(crate) mod sent;
