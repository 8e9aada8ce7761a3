//! HPACK, the compression of header fields in HTTP/2.
//!
//! [`Decoder`] turns a header block into field lines in one buffer, in the form that `http::Head` uses. [`Encoder`]
//! writes the fields of responses for one connection. [`Block`] is a header block that was prepared for all
//! connections, and whose date can be changed.
//!
//! This crate does no I/O and reads no clock.
//!
//! # Limits
//!
//! A block of a few bytes can stand for megabytes of fields, because one byte may refer to a long field. So the limits
//! hold while a block is decoded: see [`Limits`]. No allocation is larger than the bytes that were received allow.
//!
//! # Reading list
//!
//! - RFC 7541, HPACK: §2.3 tables, §4 size of the dynamic table, §5 integers and strings, §6 representations, §7 attacks
//! - RFC 9113 §4.3, header blocks in HTTP/2; §10.5.1, limits
//!
//! ```
//! use hpack::{Decoder, Encoder, Limits};
//!
//! let mut block = Vec::new();
//! let mut encoder = Encoder::new();
//! encoder.begin(&mut block);
//! encoder.field(b":status", b"200", &mut block);
//! encoder.field(b"Content-Type", b"text/html", &mut block);
//! assert_eq!(block.len(), 11);
//!
//! let mut text = Vec::new();
//! let decoded = Decoder::new().decode(&block, &Limits::DEFAULT, &mut text, |_, _| ())?;
//! assert_eq!(text, b":status: 200\r\ncontent-type: text/html\r\n");
//! assert_eq!((decoded.fields, decoded.is_cut), (2, false));
//! # Ok::<(), hpack::Fault>(())
//! ```

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod huffman;

mod block;
mod decoder;
mod dynamic_table;
mod encoder;
mod fault;
mod integer;
mod literal;
mod static_table;

pub use block::{Block, DATE_LEN};
pub use decoder::{Decoded, Decoder, Limits, Line};
pub use dynamic_table::{FIELD_OVERHEAD, TABLE_BYTES_MAX};
pub use encoder::Encoder;
pub use fault::Fault;
