//! The drivers, and what they share.

pub(crate) mod common;
pub(crate) mod epoll;
#[allow(unsafe_code, reason = "submissions carry pointers")]
pub(crate) mod uring;
