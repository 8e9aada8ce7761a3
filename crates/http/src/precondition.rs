//! Conditional requests: the client has the representation already, or wants only a certain one.
//!
//! Reading list: RFC 9110 §13 (the order of evaluation is §13.2.2), §8.8.2.2 (when a date is a
//! strong validator).

use crate::date;
use crate::etag::{self, Comparison, EntityTag, Listed};
use crate::field::Field;
use crate::head::Head;
use crate::method::Method;

/// The marks that distinguish one state of a representation from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validators<'a> {
    /// The entity tag as in the `ETag` field, with its quotes; empty if the representation has none.
    ///
    /// A static server has strong tags. A weak one (`W/"..."`) is honoured as such: it never
    /// validates a range.
    pub etag: &'a [u8],
    /// The time of the last modification, in Unix seconds.
    pub last_modified: Option<i64>,
    /// True if a change of the bytes always changes that time, except for changes within one second. If other states
    /// may have the same time, it is a weak validator (§8.8.2.2), and never validates a range.
    pub strong_date: bool,
}

/// The outcome of a request's preconditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Perform the request.
    Proceed {
        /// True if a `Range` field counts: the method is GET, there is exactly one such line, and
        /// `If-Range` does not object.
        range_allowed: bool,
    },
    /// 304: the client's copy is still good.
    NotModified,
    /// 412: the representation is not the one that the client expects.
    Failed,
}

/// Evaluates the preconditions of a request for an existing representation.
///
/// `now` is the server's clock in Unix seconds. Call it only if the response without conditions would be a 2xx (RFC
/// 9110 §13.2.1): a missing file is a 404 under any conditions.
///
/// Malformed fields: a malformed date is ignored, as the RFC says. A malformed `If-Match` fails and a
/// malformed `If-None-Match` does not match, so that the client gets the representation in doubt.
/// With a malformed `If-Range` the range is ignored.
#[inline]
pub fn evaluate(head: &Head<'_>, validators: &Validators<'_>, now: i64) -> Outcome {
    if !head.has_any(&Field::CONDITIONS) {
        return Outcome::Proceed { range_allowed: false };
    }
    evaluate_fields(head, validators, now)
}

fn evaluate_fields(head: &Head<'_>, validators: &Validators<'_>, now: i64) -> Outcome {
    let reads = matches!(head.method, Method::Get | Method::Head);
    // §13.2.1: methods that neither select nor modify a representation ignore all preconditions.
    if matches!(head.method, Method::Options | Method::Trace | Method::Connect) {
        return Outcome::Proceed { range_allowed: false };
    }
    let etag = || EntityTag::parse(validators.etag);
    // A time in the future cannot be the time of the last modification, so the date of the message was sent instead
    // (§8.8.2.1). So no date is available, and the conditions about it are ignored (§13.1.3, §13.1.4).
    let last_modified = validators.last_modified.filter(|modified| *modified <= now);

    // Steps 1 and 2 of §13.2.2.
    if head.has(Field::IfMatch) {
        let listed = etag::find(head.lines(Field::IfMatch), etag().as_ref(), Comparison::Strong);
        if !matches!(listed, Listed::Any | Listed::Matching) {
            return Outcome::Failed;
        }
    } else if let Some(modified) = last_modified
        && let Some(date) = date_of(head, Field::IfUnmodifiedSince, now)
        && modified > date
    {
        return Outcome::Failed;
    }

    // Steps 3 and 4.
    if head.has(Field::IfNoneMatch) {
        let matches = || {
            let lines = head.lines(Field::IfNoneMatch);
            let listed = etag::find(lines, etag().as_ref(), Comparison::Weak);
            matches!(listed, Listed::Any | Listed::Matching)
        };
        // Nearly every client sends just the tag that it was given.
        let is_given = |value| value == validators.etag && !validators.etag.is_empty();
        if head.field(Field::IfNoneMatch).is_some_and(is_given) || matches() {
            return if reads { Outcome::NotModified } else { Outcome::Failed };
        }
    } else if reads
        && let Some(modified) = last_modified
        && let Some(date) = date_of(head, Field::IfModifiedSince, now)
        && modified <= date
    {
        return Outcome::NotModified;
    }

    // Step 5. `Range` is defined for GET only, §14.2.
    let range_allowed = head.method == Method::Get
        && head.field(Field::Range).is_some()
        && (!head.has(Field::IfRange) || if_range_holds(head, etag().as_ref(), validators, now));
    Outcome::Proceed { range_allowed }
}

/// The date in a field; `None` if it is absent, malformed, or more than one.
fn date_of(head: &Head<'_>, field: Field, now: i64) -> Option<i64> {
    date::parse(head.field(field)?, now)
}

/// RFC 9110 §13.1.5. Returns whether the client's part is of the current representation, byte for byte.
fn if_range_holds(
    head: &Head<'_>,
    etag: Option<&EntityTag<'_>>,
    validators: &Validators<'_>,
    now: i64,
) -> bool {
    let Some(value) = head.field(Field::IfRange) else {
        return false;
    };
    if value.iter().take(3).any(|&byte| byte == b'"') {
        return match (EntityTag::parse(value), etag) {
            (Some(wanted), Some(current)) => wanted.strong_eq(current),
            _ => false,
        };
    }
    // A date is a strong validator only once its second is over: until then the file may change
    // again without the date changing (§8.8.2.2).
    match (date::parse(value, now), validators.last_modified) {
        (Some(wanted), Some(modified)) => {
            validators.strong_date && wanted == modified && modified < now
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests;
