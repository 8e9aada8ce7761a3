//! The part of the beginning of a response that is the same in all versions of HTTP. Each version then only writes.

use http::{FieldSection, Head, ResponseHead};

use super::times::Times;
use crate::context::Context;
use crate::fields::has_hsts;
use crate::forwarded::Scheme;
use crate::handler::{Body, Response};
use crate::record::Record;

/// A response whose fields are complete, except those that belong to one connection or to a version.
pub(super) struct Opening<'r, 'a> {
    pub(super) fields: &'r mut ResponseHead<'a>,
    /// The field `Strict-Transport-Security` that comes after the other fields.
    pub(super) hsts: Option<&'a FieldSection<'static>>,
    pub(super) body: Body,
    /// The length of the body; `None` if it is not known beforehand. A tunnel has no length.
    pub(super) length: Option<u64>,
    pub(super) record: Option<Box<Record>>,
}

/// Counts a response that begins, and adds its `Server-Timing`. Returns the field `Strict-Transport-Security` of its site, if
/// the response may have it: a browser ignores the field over plain HTTP (RFC 6797 §7.2).
#[inline]
pub(super) fn begin<'a>(
    cx: &Context,
    times: &Times,
    response: &mut Response<'a>,
) -> Option<&'a FieldSection<'static>> {
    cx.stats.responses.add(1);
    if response.terms.server_timing {
        times.add_timing(cx, response);
    }
    if response.terms.scheme == Scheme::Https { response.hsts } else { None }
}

/// Opens a response that is not sent in its finished form. `hsts` is the field that [`begin`] has returned.
#[inline]
pub(super) fn open<'r, 'a>(
    cx: &Context,
    times: &Times,
    head: Option<&Head<'_>>,
    response: &'r mut Response<'a>,
    hsts: Option<&'a FieldSection<'static>>,
) -> Opening<'r, 'a> {
    let status = response.made().head.status;
    let mut record = times.begin_record(cx, head, status, &response.terms);
    if let Some(record) = &mut record {
        record.reason = response.reason.cloned();
        record.upstream = response.upstream.cloned();
    }
    let made = response.made();
    let (fields, body) = (&mut made.head, core::mem::take(&mut made.body));
    let length = match fields.content_length {
        Some(length) => Some(length),
        None if body.is_empty() => {
            if !status.is_bodiless() {
                fields.content_length = Some(0);
            }
            Some(0)
        }
        None => None,
    };
    // `Last-Modified` is not later than the date of the message (RFC 9110 §8.8.2.1).
    fields.last_modified = fields.last_modified.map(|time| time.min(cx.unix));
    let hsts = hsts.filter(|_| !has_hsts(fields));
    Opening { fields, hsts, body, length, record }
}
