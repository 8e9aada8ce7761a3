//! Loss recovery: what was sent, what of it was lost, and when it is sent again.
//!
//! Each file is one mechanism and reads alone; [`Flight`](super::flight::Flight) puts them together.

pub(crate) mod delivery;
pub(crate) mod pacing;
pub(crate) mod probe;
pub(crate) mod prr;
pub(crate) mod rack;
pub(crate) mod rtt;
pub(crate) mod sent;
