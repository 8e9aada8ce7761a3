//! Lines of servers that are malformed but have only one meaning.
//!
//! Reading list: RFC 9112 §2.2, §5.1, §5.2, §7.1.1; RFC 9110 §5.5.
//!
//! Only the client's side uses this module, and only for a line that the strict parser has refused. A proxy that
//! responds with 502 because of such a line hides a response that its client would have understood:
//!
//! | line | reading |
//! |---|---|
//! | ends in LF without CR | as if it ended in CR LF |
//! | whitespace before the colon | it is left out |
//! | continues the line before (obs-fold) | the line break is a space |
//! | control characters in a value | each is a space |
//! | no field: no colon, or a name that is no token | it is left out |
//!
//! Lines that two readers may understand differently are refused: a CR without LF, NUL, and a line of spaces. A line
//! that is, or looks like, a field of the framing is refused if more than its end is wrong, unless the response ends with
//! its head in any case. A connection with such a line is used for no other request, so that bytes of a misunderstood
//! response cannot become the response to the next one.

use alloc::borrow::Cow;
use alloc::vec::Vec;

use http::bytes::{self, HEX, TOKEN};
use http::{Field, Reject, Status};

use crate::limits::{Limits, within};

/// The fault of a [line that may frame a message](Line::Framing).
pub(crate) const MALFORMED_FRAMING: &str = "a malformed field of the framing";

/// A field: its name, and its value, which is borrowed unless it was changed.
pub(crate) type FieldLine<'a> = (&'a [u8], Cow<'a, [u8]>);

/// A line that is not well-formed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Line<'a> {
    /// A field with this name and value.
    Field(&'a [u8], Cow<'a, [u8]>),
    /// A continuation of the value of the previous line.
    Continuation(Cow<'a, [u8]>),
    /// A malformed line that is, or looks like, a field of the framing.
    Framing,
    /// A line without a meaning.
    Nothing,
    /// The empty line that ends the section.
    End,
}

/// Reads the line that begins at `at`. Returns it with the start of the next line; `None` if more bytes are needed.
#[cold]
#[inline(never)]
pub(crate) fn line(bytes: &[u8], at: usize) -> Result<Option<(Line<'_>, usize)>, Reject> {
    let Some((line, next)) = whole_line(bytes, at)? else { return Ok(None) };
    if line.is_empty() {
        return Ok(Some((Line::End, next)));
    }
    let colon = line.iter().position(|&byte| byte == b':');
    let (start, value) = line.split_at(colon.unwrap_or(line.len()));
    let name = bytes::trim(start);
    // The colon is left.
    let value = bytes::trim(value.get(1..).unwrap_or_default());
    let is_plain = !name.is_empty()
        && bytes::skip(name, 0, TOKEN) == start.len()
        && bytes::skip_value(value, 0) == value.len();
    if colon.is_some() && is_plain {
        return Ok(Some((Line::Field(name, Cow::Borrowed(value)), next)));
    }
    if is_like_framing(name) {
        return Ok(Some((Line::Framing, next)));
    }
    let line = if matches!(line[0], b' ' | b'\t') {
        let more = bytes::trim(line);
        if more.is_empty() {
            return Err(Reject::bad("a line of spaces, which looks like the end of the fields"));
        }
        Line::Continuation(printable(more))
    } else if colon.is_some() && !name.is_empty() && bytes::skip(name, 0, TOKEN) == name.len() {
        Line::Field(name, printable(value))
    } else {
        Line::Nothing
    };
    Ok(Some((line, next)))
}

/// Adds a [line](fn@line) to the fields before it. `is_open`: the line before is the last of them, so that it may be
/// continued.
pub(crate) fn add<'a>(
    line: Line<'a>,
    fields: &mut Vec<FieldLine<'a>>,
    is_open: bool,
) -> Result<(), Reject> {
    match line {
        Line::Field(name, value) => fields.push((name, value)),
        Line::Continuation(more) => match fields.last_mut() {
            _ if !is_open => {}
            Some((name, _)) if is_framing(name) => {
                return Err(Reject::bad("a folded field of the framing"));
            }
            Some((_, value)) => {
                if !value.is_empty() {
                    value.to_mut().push(b' ');
                }
                value.to_mut().extend_from_slice(&more);
            }
            None => {}
        },
        Line::Framing | Line::Nothing | Line::End => {}
    }
    Ok(())
}

/// Reads a line with a chunk-size that ends in LF without CR: the size, and the length of the line. `None` if more bytes
/// are needed.
#[cold]
#[inline(never)]
pub(crate) fn size_line(input: &[u8], limits: &Limits) -> Result<Option<(u64, usize)>, Reject> {
    const DIGITS_MAX: usize = 16;
    let too_long = Reject::bad("a chunk-size line that is too long");
    within(input, limits.chunk_line_bytes_max, too_long, |view| {
        let Some((line, next)) = whole_line(view, 0)? else { return Ok(None) };
        let digits_end = bytes::skip(line, 0, HEX);
        let zeros = line[..digits_end].iter().take_while(|byte| **byte == b'0').count();
        // The end of an extension with LF in it is disputed.
        let is_bare = bytes::trim(&line[digits_end..]).is_empty();
        if digits_end == 0 || digits_end - zeros > DIGITS_MAX || !is_bare {
            return Err(Reject::bad("a malformed chunk-size"));
        }
        let digits = line[zeros..digits_end].iter().filter_map(|&byte| bytes::hex_digit(byte));
        Ok(Some((digits.fold(0, |size, digit| size << 4 | u64::from(digit)), next)))
    })
}

/// Reads the next line of a trailer section that may have `bytes_left` more bytes, and leaves it out, as RFC 9112
/// §7.1.2 permits for all trailers. Returns the length of the line, and whether it ends the section; `None` if more
/// bytes are needed.
#[cold]
#[inline(never)]
pub(crate) fn trailer(input: &[u8], bytes_left: usize) -> Result<Option<(usize, bool)>, Reject> {
    let too_long = Reject::new(Status::HeaderFieldsTooLarge, "a trailer section that is too long");
    within(input, bytes_left, too_long, |view| match line(view, 0)? {
        Some((Line::Framing, _)) => Err(Reject::bad(MALFORMED_FRAMING)),
        line => Ok(line.map(|(line, next)| (next, line == Line::End))),
    })
}

/// The length of a line end without CR after the data of a chunk.
#[cold]
pub(crate) fn data_end(input: &[u8]) -> Result<Option<usize>, Reject> {
    match input {
        [b'\n', ..] => Ok(Some(1)),
        _ => Err(Reject::bad("a chunk longer than its size")),
    }
}

/// The bytes of the line that begins at `at`, without its end, and the start of the next line.
fn whole_line(bytes: &[u8], at: usize) -> Result<Option<(&[u8], usize)>, Reject> {
    let rest = &bytes[at..];
    let Some(stop) = rest.iter().position(|byte| matches!(byte, b'\r' | b'\n' | 0)) else {
        return Ok(None);
    };
    let line_end = match rest[stop..] {
        [b'\n', ..] => 1,
        [b'\r', b'\n', ..] => 2,
        [b'\r'] => return Ok(None),
        [b'\r', ..] => return Err(Reject::bad("a CR without LF")),
        _ => return Err(Reject::bad("a NUL")),
    };
    Ok(Some((&rest[..stop], at + stop + line_end)))
}

/// A value with a space instead of each control character.
fn printable(value: &[u8]) -> Cow<'_, [u8]> {
    if bytes::skip_value(value, 0) == value.len() {
        return Cow::Borrowed(value);
    }
    let space = |&byte: &u8| if bytes::skip_value(&[byte], 0) == 0 { b' ' } else { byte };
    let value: Vec<_> = value.iter().map(space).collect();
    Cow::Owned(bytes::trim(&value).to_vec())
}

/// Returns whether a name belongs to a field that frames messages.
fn is_framing(name: &[u8]) -> bool {
    matches!(Field::of_name(name), Some(Field::ContentLength | Field::TransferEncoding))
}

/// Returns whether a name has the letters of a field that frames messages, and perhaps other characters.
fn is_like_framing(name: &[u8]) -> bool {
    let letters = |name: &[u8]| -> Vec<u8> {
        let letters = name.iter().filter(|byte| byte.is_ascii_alphabetic());
        letters.map(u8::to_ascii_lowercase).collect()
    };
    let name = letters(name);
    [Field::ContentLength, Field::TransferEncoding]
        .iter()
        .any(|field| letters(field.name().as_bytes()) == name)
}
