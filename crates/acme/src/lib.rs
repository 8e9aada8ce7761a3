//! Certificates by ACME (RFC 8555): they are ordered, renewed before they expire, and kept in a directory.
//!
//! [`keep`] is the body of one thread. It looks at the certificates of a [`Plan`], and orders those that are due. A
//! certificate that was issued is written to a file with its key. Who serves it watches that file, so this crate shows no
//! certificate to anybody.
//!
//! ```text
//!   wanted.rs    the certificates that are wanted, and the process that wants them
//!   plan.rs      decides: wait, ask for the time of renewal, order, or go on with an order     (pure)
//!   record.rs    the record of a certificate, and its form in a file                          (pure)
//!   storage.rs   the directory: files that are replaced as a whole, a lock between processes
//!   jws.rs       signed messages
//!   https.rs     one request at a time, with limits for time and bytes
//!   protocol.rs  the messages of an authority: account, order, challenges, certificate
//!   issue.rs     one order, from its first message to the certificate
//!   keeper.rs    the thread: all certificates, in turn
//! ```
//!
//! Challenges wait in the storage. Each process that has the storage gets them by [`Operator::set_challenges`], and can
//! answer the authority. One process at a time has the lock, and asks the authority.
//!
//! Reading list: RFC 8555 (ACME), RFC 8737 (tls-alpn-01), RFC 9773 (times of renewals, ARI), RFC 7515 and RFC 7638 (JWS).

#![forbid(unsafe_code)]

mod clock;
mod https;
mod issue;
mod jws;
mod keeper;
mod plan;
mod protocol;
mod record;
mod storage;
mod wanted;

pub use https::check_roots;
pub use keeper::keep;
pub use protocol::{ExternalAccount, check_external_key, terms_of_service};
pub use record::{Challenge, Kind};
pub use storage::{Storage, Unfit};
pub use wanted::{Operator, Plan, Wanted};
