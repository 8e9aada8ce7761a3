//! The records of TLS after a handshake: plain bytes in, records out, and back.
//!
//! ```text
//!   pieces of a stream ──seal──► records            Records: the keys of both directions, and what may
//!   plain bytes ◄──open── records ◄──next── bytes    be said within records: alerts and KeyUpdate
//!                                 Assembly
//! ```
//!
//! A handshake gives the [`Keys`] of both directions. [`Records`] seals pieces of memory that do not change, without a copy
//! if a piece fills a record, and opens whole records, which [`Assembly`] cuts out of received bytes. All of TLS 1.3, and
//! the AEAD suites of TLS 1.2. A client gets tickets, too.
//!
//! ```
//! use tls_record::{Assembly, Cipher, Keys, Records};
//!
//! // Each side reads with the secret that the other writes with.
//! let keys = |secret: u8| Keys::tls13(Cipher::Aes128Gcm, &[secret; 32], 0).expect("a length of SHA-256");
//! let (mut server, mut client) = (Records::new(keys(1), keys(2)), Records::new(keys(2), keys(1)));
//!
//! let mut out = [0; 64];
//! let sealed = server.seal([&b"two "[..], b"pieces"], usize::MAX, &mut out);
//! assert_eq!(sealed.plain, 10);
//!
//! let (mut assembly, mut plain) = (Assembly::default(), Vec::new());
//! let mut input = &out[..sealed.written];
//! while let Some(record) = assembly.next(&mut input)? {
//!     client.open(record, &mut plain)?;
//! }
//! assert_eq!(plain, b"two pieces");
//! # Ok::<(), tls_record::Fault>(())
//! ```
//!
//! Nothing here does I/O or reads a clock. What a peer may cost is bounded: see [`NO_DATA_RECORDS_MAX`], [`WARNINGS_MAX`],
//! [`TICKETS_MAX`] and [`RECORD_BYTES_MAX`]. Keys are wiped when they are dropped.
//!
//! Reading list: RFC 8446 §4.6.3, §5, §6 and §7 (TLS 1.3), RFC 5246 §6.2.3.3 and §7.2 (TLS 1.2), RFC 5288 (AES-GCM in
//! TLS 1.2), RFC 7905 (ChaCha20-Poly1305 in TLS 1.2), RFC 8448 (an example of TLS 1.3, byte by byte).

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod aead;
mod assembly;
mod direction;
mod fault;
mod frame;
mod keys;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod peer;
mod records;
#[cfg(test)]
mod tests;

pub use self::aead::{Aead, AwsLc, Cipher, Forged};
pub use self::assembly::Assembly;
pub use self::fault::{Alert, Fault};
pub use self::frame::{PLAIN_BYTES_MAX, RECORD_BYTES_MAX, RECORD_OVERHEAD_MAX};
pub use self::keys::Keys;
pub use self::records::{
    Contexts, NO_DATA_RECORDS_MAX, RECORDS_MAX, Records, Sealed, TICKET_BYTES_MAX, TICKETS_MAX,
    WARNINGS_MAX,
};
