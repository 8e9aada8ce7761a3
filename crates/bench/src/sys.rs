//! System calls that no safe function covers: all of this crate's `unsafe`, behind types that own what
//! they make and take it back when dropped.

pub(crate) mod memory;
pub(crate) mod process;
pub(crate) mod select;
pub(crate) mod signal;
pub(crate) mod socket;
pub(crate) mod transfer;
pub(crate) mod uring;
