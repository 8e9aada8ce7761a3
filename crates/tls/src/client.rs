//! The client's end of TLS: connections to servers that requests are passed on to.
//!
//! [`ClientSettings`] say which servers are trusted and which certificate is shown to them. All connections with the same
//! settings share a cache of sessions, in memory and bounded. A [`ClientConnection`] is one connection without its socket:
//! records go in and out, and so do plain bytes. As at the server's end, rustls does the handshake, and the records after it
//! are those of `tls-record`.
//!
//! A server is verified by its chain, its times and its name (RFC 5280, RFC 9525). A certificate that stands itself in the
//! file of the authorities is trusted without a chain, as long as its times and its name are right: servers of private
//! networks often have a self-signed one.

mod connection;
mod day;
mod fault;
mod roots;
mod settings;
mod shaking;
mod verifier;

pub use self::connection::{ClientBuffers, ClientConnection, End, Plain};
pub use self::fault::ClientFault;
pub use self::roots::{ROOTS_BYTES_MAX, Roots};
pub use self::settings::{ClientSettings, ServerName, SharedClientSettings};

#[cfg(test)]
mod tests;
