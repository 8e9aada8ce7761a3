//! Parts that all gateways share: routes whose answers are made by something else, a program or another server.
//!
//! An `Input` takes the body of a request, an `Output` holds the content of a response, and an `Interest` lives as
//! long as the client waits or takes. Each of them is bounded.
//!
//! A client that ends its side before the head of the response has left, as nginx and Caddy see it. TCP does not tell
//! a client that ended its side from a client that closed its socket, and nothing should occupy an upstream or a
//! process for nobody. With `half-close = true`, and for files, such a client gets its response. So does a client
//! whose response has begun, because bytes to a client that has left are answered by a reset.

pub(in crate::handler) mod bodies;
pub(in crate::handler) mod input;
pub(in crate::handler) mod interest;
pub(in crate::handler) mod lines;
pub(in crate::handler) mod names;
pub(in crate::handler) mod output;

/// Programs or scripts that may hand one request over to a path, one after the other.
pub(super) const HAND_OVERS_MAX: u32 = 10;
