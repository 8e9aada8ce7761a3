//! Byte ranges: from the value of `Range` to the ranges that are sent.
//!
//! Reading list: RFC 9110 §14, §15.3.7, §15.5.17, §17.15.

use alloc::vec::Vec;
use core::fmt;

use crate::bytes;

/// The default maximum of ranges that a request may ask for; beyond it the field is ignored. Seekers ask for one, PDF
/// viewers for a dozen, tools that fetch the changed parts of a file for 255 (zchunk). Longer lists come from
/// attackers (RFC 9110 §17.15).
pub const RANGES_MAX: usize = 256;

/// Ranges this close together are sent as one: a part's own head and delimiter cost more than the
/// gap between them. RFC 9110 §15.3.7.2 names the same number.
pub const GAP_BYTES_MAX: u64 = 80;

/// Some bytes of a representation, at least one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// Offset of the first byte.
    pub start: u64,
    /// Offset after the last byte; greater than `start`.
    pub end: u64,
}

/// The meaning of the value of a `Range` field, given the size of the representation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RangeSet {
    /// The field is not understood, or asks for too many ranges: ignore it and send the whole representation.
    Ignore,
    /// All requested bytes are beyond the end: a 416.
    Unsatisfiable,
    /// These bytes are requested.
    Satisfiable(Ranges),
}

/// One or more ranges in the order of the request, no two of which overlap or are within
/// [`GAP_BYTES_MAX`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ranges(List);

/// Nearly every request asks for one range, which needs no allocation.
#[derive(Clone, Debug, PartialEq, Eq)]
enum List {
    One(Range),
    Several(Vec<Range>),
}

impl Range {
    /// The number of bytes.
    #[expect(clippy::len_without_is_empty, reason = "a range is never empty")]
    pub fn len(&self) -> u64 {
        self.end - self.start
    }

    /// The offset of the last byte, which is how ranges are written in fields.
    pub fn last(&self) -> u64 {
        self.end - 1
    }

    /// Returns whether there are at most [`GAP_BYTES_MAX`] bytes between the two.
    fn is_near(&self, other: &Self) -> bool {
        let gap = self.start.max(other.start).checked_sub(self.end.min(other.end));
        gap.is_none_or(|gap| gap <= GAP_BYTES_MAX)
    }

    /// The smallest range that holds both.
    fn cover(&self, other: &Self) -> Self {
        Self { start: self.start.min(other.start), end: self.end.max(other.end) }
    }
}

/// As in `Content-Range`: first and last byte.
impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.start, self.last())
    }
}

impl Ranges {
    /// The ranges, in the order of sending.
    pub fn as_slice(&self) -> &[Range] {
        match &self.0 {
            List::One(range) => core::slice::from_ref(range),
            List::Several(ranges) => ranges,
        }
    }

    /// The range, if there is only one.
    pub fn single(&self) -> Option<Range> {
        match self.as_slice() {
            [range] => Some(*range),
            _ => None,
        }
    }

    /// The number of bytes that they have together; never more than the representation has.
    pub fn total(&self) -> u64 {
        self.as_slice().iter().map(Range::len).sum()
    }

    /// Adds a range, joined with all ranges near it. The joined range replaces the first of them.
    fn add(&mut self, mut range: Range) {
        let mut list = match core::mem::replace(&mut self.0, List::One(range)) {
            List::One(first) if first.is_near(&range) => {
                self.0 = List::One(first.cover(&range));
                return;
            }
            List::One(first) => {
                let mut list = Vec::with_capacity(4);
                list.push(first);
                list
            }
            List::Several(list) => list,
        };
        let mut place = list.len();
        // A range grown by one neighbour may be near another: look again until nothing changes. Each round but the
        // last removes an element, so there are at most as many rounds as ranges.
        while let Some(near) = list.iter().position(|other| other.is_near(&range)) {
            range = range.cover(&list.remove(near));
            place = place.min(near);
        }
        list.insert(place.min(list.len()), range);
        self.0 = match list[..] {
            [range] => List::One(range),
            _ => List::Several(list),
        };
    }
}

/// Reads the value of a `Range` field for a representation of `size` bytes.
///
/// It ignores units other than `bytes`, values with any syntax error (as a last byte before the first, RFC 9110
/// §14.1.1), and more than [`RANGES_MAX`] ranges. It also ignores any range of an empty representation, which has no
/// bytes for a `Content-Range`: clients that always ask for `bytes=0-` are better served by a 200 than by a 416.
/// Numbers that do not fit in 64 bits are beyond any end, and saturate.
///
/// Ranges that overlap or are near each other are always joined (RFC 9110 §15.3.7.2), so the response is never larger
/// than the representation. The others keep the order of the request, because clients put the most urgent first
/// (§14.2).
pub fn parse(value: &[u8], size: u64) -> RangeSet {
    parse_up_to(value, size, RANGES_MAX)
}

/// As [`parse`], with another limit than [`RANGES_MAX`].
pub fn parse_up_to(value: &[u8], size: u64, ranges_max: usize) -> RangeSet {
    let Some(specs) = strip_unit(value) else {
        return RangeSet::Ignore;
    };
    let mut ranges: Option<Ranges> = None;
    let mut count = 0;
    for spec in bytes::list(specs) {
        count += 1;
        if count > ranges_max {
            return RangeSet::Ignore;
        }
        match resolve(spec, size) {
            Spec::Malformed => return RangeSet::Ignore,
            Spec::BeyondEnd => {}
            Spec::Within(range) => match &mut ranges {
                None => ranges = Some(Ranges(List::One(range))),
                Some(ranges) => ranges.add(range),
            },
        }
    }
    match ranges {
        _ if count == 0 || size == 0 => RangeSet::Ignore,
        None => RangeSet::Unsatisfiable,
        Some(ranges) => RangeSet::Satisfiable(ranges),
    }
}

/// One range of the request, applied to a representation.
enum Spec {
    Malformed,
    BeyondEnd,
    Within(Range),
}

/// `first "-" [ last ]` or `"-" suffix-length` (RFC 9110 §14.1.1, §14.1.2).
fn resolve(spec: &[u8], size: u64) -> Spec {
    let Some(dash) = spec.iter().position(|&byte| byte == b'-') else {
        return Spec::Malformed;
    };
    let (first, last) = (&spec[..dash], &spec[dash + 1..]);
    let (Some(first), Some(last)) = (number(first), number(last)) else {
        return Spec::Malformed;
    };
    let (start, end) = match (first, last) {
        (None, None) => return Spec::Malformed,
        (Some(first), Some(last)) if last < first => return Spec::Malformed,
        (Some(first), Some(last)) => (first, last.saturating_add(1).min(size)),
        (Some(first), None) => (first, size),
        // A suffix longer than the representation means all of it: the RFC says to saturate.
        (None, Some(suffix)) => (size.saturating_sub(suffix), size),
    };
    if start < end { Spec::Within(Range { start, end }) } else { Spec::BeyondEnd }
}

/// `Some(None)` for nothing, `Some(Some(n))` for digits, saturating; `None` for anything else.
fn number(digits: &[u8]) -> Option<Option<u64>> {
    if digits.is_empty() {
        return Some(None);
    }
    let value = digits.iter().try_fold(0u64, |value, &byte| {
        let digit = bytes::digit(byte)?;
        Some(value.saturating_mul(10).saturating_add(u64::from(digit)))
    })?;
    Some(Some(value))
}

/// The text after `bytes=`, which may be in any case.
fn strip_unit(value: &[u8]) -> Option<&[u8]> {
    let (unit, rest) = value.split_at_checked(b"bytes=".len())?;
    unit.eq_ignore_ascii_case(b"bytes=").then_some(rest)
}

#[cfg(test)]
mod tests;
