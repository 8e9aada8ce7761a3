//! The contracts between the parts of a worker, and the sessions of HTTP/1 and HTTP/2.
//!
//! A [`network`](network::Network) brings connections and their bytes. A [`session`](Session) decides what becomes of them,
//! for each connection. A [`handler`](handler::Handler) answers requests with [responses](handler::Response). A worker
//! connects these, and each of them is one of several: the crate has the sessions that users have, and neither network
//! nor handler. What acts on the world is handed to them as a [`Shell`](shell::Shell), or a part of it.

#![forbid(unsafe_code)]

pub mod budget;
pub mod client;
pub mod context;
pub mod fields;
pub mod files;
pub mod forwarded;
pub mod handler;
pub mod kind;
pub mod limits;
pub mod network;
pub mod other_protocol;
pub mod page;
pub mod proxy_protocol;
pub mod reason;
pub mod record;
pub mod request_id;
mod session;
pub mod shell;
mod ticket;
pub mod wheel;

pub use session::{
    Activity, Broken, BrokenEnd, Defer, Http, Http1, Left, Moved, Next, Outgoing, Pump, Requests,
    Session, Turn, Unanswered, Why,
};
