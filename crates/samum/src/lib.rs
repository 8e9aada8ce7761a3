//! A file server for Linux whose workers wait for the disk only in the cases that `sendfile/src/file.rs` names.
//!
//! [`server::run`] starts the workers that a [configuration](config::Config) asks for: one [`worker::Worker`] per
//! thread, each with its own ring, disk and cache. Workers share no connection, but the limits on the number of all
//! connections ([`crowd`]) and on those of each client. `DESIGN.md` describes the architecture.
//!
//! ```text
//!  network ──events──► worker ──► connection ──bytes──► session ──request──► handler ──► content
//!     ▲                               │ pump               │ ◄──────── response ──┘         │
//!     │                               ▼                    ▼ promises                       ▼
//!    ring ◄──submit── transport ◄──drain── sendfile::Stream (queue and file source) ──reads──► ring
//! ```
//!
//! [`worker::Worker`] is generic over the [network](network::Network), the [session](session::Session) and the
//! [handler](session::handler::Handler). The network of the binary is the kernel's sockets, or a TCP/IP stack of its
//! own for each receive queue of an interface, both also with TLS. Its session speaks HTTP/1 and HTTP/2. Its handler is
//! the router, which answers with files and pages, and passes requests on to upstreams, FastCGI applications and
//! programs.

#![forbid(unsafe_code)]

mod account;
mod activation;
mod attached;
mod certificates;
pub mod check;
pub mod cli;
mod confine;
mod control;
pub mod control_socket;
pub mod crowd;
mod descriptor_store;
mod descriptors;
mod exit;
pub mod explain;
mod keeper;
mod listen;
mod machine;
mod memory;
pub mod network;
mod notify;
pub mod preload;
pub mod reload;
mod roots;
pub mod secure;
pub mod server;
mod shares;
pub mod upgrade;
mod warnings;
mod watchdog;
pub mod worker;
