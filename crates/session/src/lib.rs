//! The contracts between the parts of a worker, and the sessions of HTTP/1 and HTTP/2.
//!
//! A [`network`](network::Network) brings connections and their bytes. A [`session`](Session) decides what becomes of them,
//! for each connection. A [`handler`](handler::Handler) answers requests with [responses](handler::Response). A worker
//! connects one of each kind. This crate has the sessions of the server, but neither a network nor a handler. They act
//! on the world by a [`Shell`](shell::Shell), or a part of it, which the worker lends to them.

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
pub mod standing;
mod ticket;
pub mod user;
pub mod wheel;

pub use session::{
    Activity, Broken, BrokenEnd, Defer, Http, Http1, Left, Moved, Next, Outgoing, Pump, Requests,
    Session, Turn, Unanswered, Why, Woken,
};
