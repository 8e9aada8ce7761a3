//! The plan of a response: preconditions and ranges put together.
//!
//! Reading list: RFC 9110 §13.2.2, §14, §15.3.7; RFC 2046 §5.1.1 (multipart).

use alloc::vec::Vec;

use crate::bytes;
use crate::field::Field;
use crate::head::Head;
use crate::precondition::{self, Outcome, Validators};
use crate::range::{self, RANGES_MAX, Range, RangeSet, Ranges};

/// The representation that the request selects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Representation<'a> {
    /// Its length in bytes, encoded as it would be sent.
    pub size: u64,
    /// The marks that distinguish this state of it from others.
    pub validators: Validators<'a>,
}

/// The response to a GET or HEAD for a representation that exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Plan {
    /// 200 with the whole representation.
    Full,
    /// 304 without content, with the validators.
    NotModified,
    /// 412.
    PreconditionFailed,
    /// 206 with one range and a `Content-Range`.
    Partial(Range),
    /// 206 with several ranges as `multipart/byteranges`.
    Multipart(Multipart),
    /// 416 with `Content-Range: bytes */size`.
    Unsatisfiable,
}

/// Plans the response to a GET or HEAD. `now` is the server's clock in Unix seconds.
///
/// HEAD gets the plan of a GET without `Range`. The plan has the size of `representation`, so do not
/// ask for the size of the file again between planning and sending.
#[inline]
pub fn plan(head: &Head<'_>, representation: &Representation<'_>, now: i64) -> Plan {
    plan_up_to(head, representation, now, RANGES_MAX)
}

/// As [`plan`], with another limit of ranges than [`RANGES_MAX`].
#[inline]
pub fn plan_up_to(
    head: &Head<'_>,
    representation: &Representation<'_>,
    now: i64,
    ranges_max: usize,
) -> Plan {
    match precondition::evaluate(head, &representation.validators, now) {
        Outcome::Proceed { range_allowed: false } => Plan::Full,
        Outcome::Proceed { range_allowed: true } => {
            plan_range(head, representation.size, ranges_max)
        }
        Outcome::NotModified => Plan::NotModified,
        Outcome::Failed => Plan::PreconditionFailed,
    }
}

fn plan_range(head: &Head<'_>, size: u64, ranges_max: usize) -> Plan {
    let value = head.field(Field::Range).unwrap_or_default();
    match range::parse_up_to(value, size, ranges_max) {
        RangeSet::Ignore => Plan::Full,
        RangeSet::Unsatisfiable => Plan::Unsatisfiable,
        RangeSet::Satisfiable(ranges) => match ranges.single() {
            Some(range) => Plan::Partial(range),
            None if size > MULTIPART_SIZE_MAX => Plan::Full,
            None => Plan::Multipart(Multipart { ranges, size }),
        },
    }
}

/// The size above which ranges are not sent as a multipart: no file is that large, and below it the
/// length of the body cannot overflow.
const MULTIPART_SIZE_MAX: u64 = i64::MAX as u64;

/// Several ranges, sent as one `multipart/byteranges`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Multipart {
    ranges: Ranges,
    size: u64,
}

impl Multipart {
    /// The ranges, in the order of the parts.
    pub fn ranges(&self) -> &[Range] {
        self.ranges.as_slice()
    }

    /// The wrapping of the parts.
    ///
    /// `part_type` is the `Content-Type` of the representation, empty if it has none. It must not
    /// hold control characters; if it does, it is left out (a panic in debug builds). `token` makes
    /// the boundary, which must not occur in the content (RFC 2046 §5.1.1). The content is not
    /// searched for it: use a token that the author of the content could not know, such as a random number of this
    /// process.
    pub fn wrapping<'a>(&'a self, part_type: &'a [u8], token: u64) -> Wrapping<'a> {
        let is_clean = bytes::skip_value(part_type, 0) == part_type.len();
        debug_assert!(is_clean, "content type {}", part_type.escape_ascii());
        let part_type = if is_clean { part_type } else { b"" };
        Wrapping { multipart: self, part_type, boundary: boundary(token) }
    }
}

/// The text before, between and after the ranges of a multipart body.
///
/// ```text
/// --boundary CRLF             ┐
/// Content-Type: … CRLF        │ head of the first part
/// Content-Range: … CRLF CRLF  ┘
/// bytes of the first range      from the file
/// CRLF --boundary CRLF        ┐
/// …                           ┘ head of the second part
/// bytes of the second range
/// CRLF --boundary-- CRLF        the end
/// ```
#[derive(Clone, Debug)]
pub struct Wrapping<'a> {
    multipart: &'a Multipart,
    part_type: &'a [u8],
    boundary: [u8; BOUNDARY_LEN],
}

/// One part of a multipart body: send `head`, then the bytes of `range`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The text before the bytes.
    pub head: Vec<u8>,
    /// The bytes of the representation.
    pub range: Range,
}

impl Wrapping<'_> {
    /// The value of the response's own `Content-Type`.
    pub fn content_type(&self) -> Vec<u8> {
        [&b"multipart/byteranges; boundary="[..], &self.boundary].concat()
    }

    /// The exact length of the whole body, for `Content-Length`.
    pub fn content_length(&self) -> u64 {
        let heads: u64 = (0..).zip(self.multipart.ranges()).map(|(i, r)| self.head_len(i, r)).sum();
        heads + self.multipart.ranges.total() + self.end().len() as u64
    }

    /// The parts, in order. After the last comes [`end`](Self::end).
    pub fn parts(&self) -> impl Iterator<Item = Part> {
        (0..).zip(self.multipart.ranges()).map(|(index, &range)| {
            let mut head = Vec::new();
            self.write_head(index, &range, &mut head);
            Part { head, range }
        })
    }

    /// The closing delimiter.
    pub fn end(&self) -> [u8; END_LEN] {
        let mut end = *b"\r\n--................--\r\n";
        end[4..4 + BOUNDARY_LEN].copy_from_slice(&self.boundary);
        end
    }

    fn write_head(&self, index: usize, range: &Range, out: &mut Vec<u8>) {
        if index > 0 {
            out.extend_from_slice(b"\r\n");
        }
        out.extend_from_slice(b"--");
        out.extend_from_slice(&self.boundary);
        if !self.part_type.is_empty() {
            out.extend_from_slice(b"\r\nContent-Type: ");
            out.extend_from_slice(self.part_type);
        }
        out.extend_from_slice(b"\r\nContent-Range: ");
        ContentRange::Part { range: *range, size: self.multipart.size }.write_to(out);
        out.extend_from_slice(b"\r\n\r\n");
    }

    /// The number of bytes that [`write_head`](Self::write_head) writes.
    fn head_len(&self, index: usize, range: &Range) -> u64 {
        let mut fixed = "--".len() + BOUNDARY_LEN + "\r\nContent-Range: bytes -/\r\n\r\n".len();
        if index > 0 {
            fixed += "\r\n".len();
        }
        if !self.part_type.is_empty() {
            fixed += "\r\nContent-Type: ".len() + self.part_type.len();
        }
        fixed as u64
            + bytes::decimal_len(range.start)
            + bytes::decimal_len(range.last())
            + bytes::decimal_len(self.multipart.size)
    }
}

/// The value of a `Content-Range` field (RFC 9110 §14.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentRange {
    /// `bytes first-last/size`, with a 206.
    Part {
        /// The range of these bytes in the representation.
        range: Range,
        /// The length of the whole representation.
        size: u64,
    },
    /// `bytes */size`, with a 416.
    Unsatisfied {
        /// The length of the whole representation.
        size: u64,
    },
}

impl ContentRange {
    /// Appends the value.
    pub fn write_to(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"bytes ");
        let size = match self {
            Self::Part { range, size } => {
                bytes::push_decimal(out, range.start);
                out.push(b'-');
                bytes::push_decimal(out, range.last());
                size
            }
            Self::Unsatisfied { size } => {
                out.push(b'*');
                size
            }
        };
        out.push(b'/');
        bytes::push_decimal(out, *size);
    }
}

/// The digits of a token in hexadecimal.
const BOUNDARY_LEN: usize = 16;
const END_LEN: usize = BOUNDARY_LEN + 8;

fn boundary(token: u64) -> [u8; BOUNDARY_LEN] {
    let mut digits = [0; BOUNDARY_LEN];
    for (place, digit) in digits.iter_mut().rev().enumerate() {
        let nibble = (token >> (4 * place) & 0xf) as usize;
        *digit = b"0123456789abcdef"[nibble];
    }
    digits
}

#[cfg(test)]
mod tests;
