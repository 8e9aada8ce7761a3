//! HTTP semantics without a wire version.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod bytes;
pub mod date;
pub mod encoding;
pub mod etag;
pub mod negotiate;
pub mod path;
pub mod range;

mod field;
mod status;

pub use encoding::{Coding, Codings};
pub use etag::EntityTag;
pub use field::Field;
pub use range::{Range, RangeSet, Ranges};
pub use status::{Reject, Status};
