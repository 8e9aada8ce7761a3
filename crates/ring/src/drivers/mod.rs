//! The drivers of the real kernel.

pub(crate) mod epoll;
#[allow(unsafe_code, reason = "submissions carry pointers")]
pub(crate) mod uring;

/// The maximum number of connections that one operation accepts in one turn, so that a flood of them does not stop those
/// that are open: an accept takes 1.9 µs, so 4,096 connections that wait, as many as the kernel lets by default
/// (`net.core.somaxconn`), would take 8 ms.
pub(crate) const ACCEPTS_MAX: usize = 64;
