//! The drivers of the real kernel.

pub(crate) mod epoll;
#[allow(unsafe_code, reason = "submissions carry pointers")]
pub(crate) mod uring;

/// The maximum number of connections that one operation accepts in one turn, so that a flood of new connections does
/// not stop open ones. An accept takes 1.9 µs. The kernel lets 4,096 connections wait by default
/// (`net.core.somaxconn`), which would take 8 ms.
pub(crate) const ACCEPTS_MAX: usize = 64;
