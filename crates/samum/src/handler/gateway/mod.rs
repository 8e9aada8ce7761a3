//! What all gateways share: routes whose answers are made by something else, a program or another server.

pub(in crate::handler) mod bodies;
pub(in crate::handler) mod input;
pub(in crate::handler) mod interest;
pub(in crate::handler) mod lines;
pub(in crate::handler) mod names;
pub(in crate::handler) mod output;

use http::{Field, Head, bytes};
use http1::Framing;

/// Programs or scripts that may hand one request over to a path, one after the other.
pub(super) const HAND_OVERS_MAX: u32 = 10;

/// The framing of the body of a request, by its head.
pub(super) fn framing(head: &Head<'_>) -> Framing {
    if head.has(Field::TransferEncoding) {
        return Framing::Chunked;
    }
    match head.field(Field::ContentLength).and_then(bytes::decimal) {
        None | Some(0) => Framing::None,
        Some(length) => Framing::Length(length),
    }
}
