//! System calls that no safe function covers. All of this crate's `unsafe` is here, behind types that
//! own their resources and free them when dropped.

pub(crate) mod memory;
pub(crate) mod process;
pub(crate) mod select;
pub(crate) mod signal;
pub(crate) mod socket;
pub(crate) mod transfer;
pub(crate) mod uring;
