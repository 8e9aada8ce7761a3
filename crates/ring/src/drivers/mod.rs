//! The drivers of the real kernel.

pub(crate) mod epoll;
#[allow(unsafe_code, reason = "submissions carry pointers")]
pub(crate) mod uring;
