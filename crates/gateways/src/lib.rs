//! Parts that all gateways share. A gateway is a route whose answers come from a program, an application or an
//! upstream.
//!
//! An `Input` holds the body of a request, and an `Output` holds the content of a response. An `Interest` lives as long
//! as the client waits for the response or receives it. Each of them is bounded.
//!
//! If a client ends its side before the head of the response has left, the gateway assumes that the client is gone, as
//! nginx and Caddy do. TCP cannot distinguish a client that ended its side from a client that closed its socket. A
//! client that is gone should occupy no upstream and no process. With `half-close = true`, and for files, such a client
//! gets its response. If the response has begun, the client gets the rest. If the client is really gone, it answers the
//! sent bytes with a reset.

#![forbid(unsafe_code)]

pub mod bodies;
pub mod cgi;
pub mod fastcgi;
pub mod held;
pub mod input;
pub mod interest;
pub mod lines;
mod names;
mod output;
pub mod programs;
pub mod proxy;
pub mod quota;
mod row;
mod tls;

/// Hand-overs of one request to a path, one after the other, by programs or scripts.
pub const HAND_OVERS_MAX: u32 = 10;
