//! The field lines of a head or of a trailer section.
//!
//! Reading list: RFC 9112 §5, §11.1.

use core::ops::Range;

use http::bytes::{self, TOKEN};
use http::{Reject, Status};

/// A line of a head or of a trailer section. All positions are indices into the bytes given.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// `name ":" OWS value OWS CRLF`.
    Field {
        /// The position of the colon, at which the name ends.
        name_end: usize,
        /// The value without the whitespace around it.
        value: Range<usize>,
        /// The first byte of the next line.
        next: usize,
    },
    /// The empty line that ends the section; `next` is after it.
    End { next: usize },
}

/// Scans the field lines at the start of `bytes`, up to the empty line after them, and passes the name
/// of each and the position of its value to `add`. Returns the lines without the empty one; `None` if
/// more bytes are needed.
///
/// More than `fields_max` lines are a 431.
#[inline(always)]
pub(crate) fn section<'a>(
    bytes: &'a [u8],
    fields_max: usize,
    mut add: impl FnMut(&'a [u8], Range<usize>) -> Result<(), Reject>,
) -> Result<Option<&'a [u8]>, Reject> {
    let mut fields = 0;
    let mut at = 0;
    loop {
        let (name_end, value, next) = match line(bytes, at)? {
            Some(Line::Field { name_end, value, next }) => (name_end, value, next),
            Some(Line::End { .. }) => return Ok(Some(&bytes[..at])),
            None => return Ok(None),
        };
        fields += 1;
        if fields > fields_max {
            return Err(Reject::new(Status::HeaderFieldsTooLarge, "too many fields"));
        }
        add(&bytes[at..name_end], value)?;
        at = next;
    }
}

/// Scans the line that begins at `at`; `None` if more bytes are needed.
///
/// Refused, because two readers may understand them differently (RFC 9112 §5.1, §5.2, §11.1):
/// whitespace before the colon, a line that continues the one before (obs-fold), control
/// characters, CR without LF, and LF without CR.
#[inline(always)]
pub(crate) fn line(bytes: &[u8], at: usize) -> Result<Option<Line>, Reject> {
    let name_end = bytes::skip(bytes, at, TOKEN);
    match bytes.get(name_end) {
        Some(b':') if name_end > at => {}
        Some(b'\r') if name_end == at => return empty_line(bytes, at),
        Some(&byte) => return Err(bad_name(byte, name_end == at)),
        None => return Ok(None),
    }
    let mut start = name_end + 1;
    while let Some(b' ' | b'\t') = bytes.get(start) {
        start += 1;
    }
    let stop = bytes::skip_value(bytes, start);
    if !bytes.get(stop..).is_some_and(|rest| rest.starts_with(b"\r\n")) {
        return no_line_end(bytes, stop);
    }
    let mut end = stop;
    while end > start && matches!(bytes[end - 1], b' ' | b'\t') {
        end -= 1;
    }
    Ok(Some(Line::Field { name_end, value: start..end, next: stop + 2 }))
}

/// The fault of a value after which there is no line end; `None` if more bytes are needed.
#[cold]
fn no_line_end(bytes: &[u8], stop: usize) -> Result<Option<Line>, Reject> {
    Err(Reject::bad(match (bytes.get(stop), bytes.get(stop + 1)) {
        (Some(b'\r'), None) | (None, _) => return Ok(None),
        (Some(b'\r'), Some(_)) => "a CR without LF in a field value",
        (Some(b'\n'), _) => "a field line that ends in LF without CR",
        (Some(_), _) => "a control character in a field value",
    }))
}

fn empty_line(bytes: &[u8], at: usize) -> Result<Option<Line>, Reject> {
    match bytes.get(at + 1) {
        Some(b'\n') => Ok(Some(Line::End { next: at + 2 })),
        Some(_) => Err(Reject::bad("a CR without LF between field lines")),
        None => Ok(None),
    }
}

#[cold]
fn bad_name(byte: u8, at_start: bool) -> Reject {
    Reject::bad(match byte {
        b':' => "an empty field name",
        b' ' | b'\t' if at_start => "a folded field line",
        b' ' | b'\t' => "whitespace before the colon of a field line",
        b'\n' => "a line that ends in LF without CR",
        b'\r' => "a field line without a colon",
        _ => "a field name with a character that no name may have",
    })
}
