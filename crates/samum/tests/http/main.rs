//! HTTP/1.0 and 1.1 (RFC 9110, RFC 9112) over real sockets, on both drivers.

#[path = "../common/mod.rs"]
mod common;

mod bodies;
mod conditions;
mod costs;
mod curl;
mod directories;
mod files;
mod loads;
mod malformed;
mod messages;
mod negotiation;
mod paths;
mod pipelining;
mod ranges;
