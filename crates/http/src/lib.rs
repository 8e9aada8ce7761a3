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
pub mod plan;
pub mod precondition;
pub mod range;

mod field;
mod head;
mod head_buf;
mod method;
mod response;
mod section;
mod status;

pub use encoding::{Coding, Codings};
pub use etag::EntityTag;
pub use field::{Field, FieldIndex};
pub use head::{Fields, Head, Lines, Target, Version};
pub use head_buf::HeadBuf;
pub use method::Method;
pub use plan::{ContentRange, Multipart, Part, Plan, Representation, Wrapping, plan};
pub use precondition::{Outcome, Validators};
pub use range::{Range, RangeSet, Ranges};
pub use response::ResponseHead;
pub use section::FieldSection;
pub use status::{OtherCode, Reject, Status};
