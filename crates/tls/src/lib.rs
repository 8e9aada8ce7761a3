//! TLS: certificates, keys, and the settings of a listener.
//!
//! A [`Pair`] is a chain of certificates and its key, read from files and matched. [`Names`] chooses a pair by the name
//! of the server. An [`Acceptor`] has the settings for the handshakes of a listener: the client's first message chooses
//! a site, or else the address to which the client has connected. The site chooses the settings of the handshake. A
//! [`ClientConnection`] is the client's end of a connection to a server. [`check`] warns the operator about usable pairs.
//!
//! ```
//! use std::sync::Arc;
//! use tls::{Acceptor, Pair, Profile, SiteTls, TicketKeys};
//!
//! let hosts = vec!["example.org".to_owned()];
//! let pair = Pair::self_signed(&hosts, 1_782_907_200)?;
//! let site = SiteTls { hosts, pairs: vec![Arc::new(pair)], profile: Profile::default(), clients: None, http2: true };
//! let acceptor = Acceptor::new(vec![site], Box::new(|_| 0), &TicketKeys::new())?;
//! assert_eq!(acceptor.choose_by_name(Some("example.org")).site, 0);
//! # Ok::<(), tls::Fault>(())
//! ```
//!
//! This crate opens no file and no socket: callers give bytes, and paths for messages. Errors are [`Fault`]s, for the
//! operator. Private keys are wiped after use, are never shown, and can only sign.
//!
//! Reading list: RFC 8446 (TLS 1.3), RFC 5246 (TLS 1.2), RFC 6066 §3 (SNI), RFC 5280 (certificates), RFC 7468 (PEM),
//! RFC 9525 (names in certificates).

#![forbid(unsafe_code)]

mod acceptor;
mod acceptors;
mod buffers;
mod challenges;
pub mod check;
mod client;
mod clients;
mod contexts;
mod counters;
mod established;
mod fault;
mod handshake;
mod names;
mod open;
mod pair;
mod pem;
mod provider;
mod secrets;
mod secured;
mod self_signed;
mod steps;
#[cfg(test)]
mod testing;
mod ticketer;
mod tickets;
mod transport;
mod x509;

pub use self::acceptor::{Acceptor, Chosen, SiteOf, SiteTls};
pub use self::acceptors::{
    Acceptors, ListenerTls, Listening, SharedAcceptors, Urls, WorkerAcceptors,
};
pub use self::client::{
    ClientBuffers, ClientConnection, ClientFault, ClientSettings, End, Plain, ROOTS_BYTES_MAX,
    Roots, ServerName, SharedClientSettings,
};
pub use self::clients::{Clients, Refusal};
pub use self::counters::{Counters, Took};
pub use self::fault::{CERTIFICATES_MAX, CRL_BYTES_MAX, Cause, FILE_BYTES_MAX, Fault};
pub use self::names::{InvalidName, NAME_BYTES_MAX, Names};
pub use self::pair::Pair;
pub use self::pem::Source;
pub use self::secured::Secured;
pub use self::steps::{RefusedClient, Slot, Step, Stepped, Steps, Wish};
pub use self::tickets::{Profile, TicketKeys};
pub use self::transport::Tls;
pub use self::x509::{Algorithm, SubjectName};
