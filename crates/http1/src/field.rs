//! The fields a static server looks at, and the scanning of one field line.
//!
//! Reading list: RFC 9110 §5 (fields), RFC 9112 §5 (their syntax on the wire).

use crate::bytes::{self, TOKEN};
use crate::status::Reject;

/// Declares [`Field`] and its names from one table.
macro_rules! fields {
    ($($variant:ident = $name:literal,)*) => {
        /// A request field that is remembered while a head is parsed, so that looking it up costs
        /// nothing.
        ///
        /// All other fields are checked and passed over; [`Head::fields`](crate::Head::fields)
        /// finds them again.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum Field {
            $(#[doc = concat!("`", $name, "`")] $variant,)*
        }

        impl Field {
            /// Every field of the enum, in its order.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// The field's name as it is usually written.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }
        }
    };
}

fields! {
    Accept = "Accept",
    AcceptEncoding = "Accept-Encoding",
    Authorization = "Authorization",
    Connection = "Connection",
    ContentLength = "Content-Length",
    Expect = "Expect",
    Host = "Host",
    IfMatch = "If-Match",
    IfModifiedSince = "If-Modified-Since",
    IfNoneMatch = "If-None-Match",
    IfRange = "If-Range",
    IfUnmodifiedSince = "If-Unmodified-Since",
    Range = "Range",
    Referer = "Referer",
    TransferEncoding = "Transfer-Encoding",
    UserAgent = "User-Agent",
    XForwardedFor = "X-Forwarded-For",
}

impl Field {
    /// How many fields there are.
    pub(crate) const COUNT: usize = Self::ALL.len();

    /// The field's place in a set of fields.
    #[inline(always)]
    pub(crate) const fn bit(self) -> u32 {
        1 << self as u8
    }

    /// The field of this name in any case; `name` must consist of token characters.
    ///
    /// Length and first letter leave one candidate (two with `If-Match` and `If-Range`), so one
    /// comparison decides.
    #[inline]
    pub(crate) fn of_name(name: &[u8]) -> Option<Self> {
        let first = name.first()? | 0x20;
        let candidate = match (name.len(), first) {
            (4, b'h') => Self::Host,
            (5, b'r') => Self::Range,
            (6, b'a') => Self::Accept,
            (6, b'e') => Self::Expect,
            (7, b'r') => Self::Referer,
            (8, b'i') if name[3] | 0x20 == b'm' => Self::IfMatch,
            (8, b'i') => Self::IfRange,
            (10, b'c') => Self::Connection,
            (10, b'u') => Self::UserAgent,
            (13, b'a') => Self::Authorization,
            (13, b'i') => Self::IfNoneMatch,
            (14, b'c') => Self::ContentLength,
            (15, b'a') => Self::AcceptEncoding,
            (15, b'x') => Self::XForwardedFor,
            (17, b'i') => Self::IfModifiedSince,
            (17, b't') => Self::TransferEncoding,
            (19, b'i') => Self::IfUnmodifiedSince,
            _ => return None,
        };
        name.eq_ignore_ascii_case(candidate.name().as_bytes()).then_some(candidate)
    }
}

const _: () = assert!(Field::COUNT <= u32::BITS as usize);

/// One step through the lines of a head or of a trailer section. All positions are indices into the
/// bytes given.
#[derive(Debug)]
pub(crate) enum Line {
    /// More bytes are needed; those that are there are well-formed.
    Partial,
    /// `name ":" OWS value OWS CRLF`.
    Field {
        /// Where the name ends and the colon stands.
        name_end: usize,
        /// The value without the whitespace around it: first byte, and the byte behind the last.
        value: (usize, usize),
        /// The first byte of the next line.
        next: usize,
    },
    /// The empty line that ends the section; `next` is behind it.
    End { next: usize },
}

/// Scans the line that begins at `at`.
///
/// Refused, because two readers may understand them differently (RFC 9112 §5.1, §5.2, §11.1):
/// whitespace before the colon, a line that continues the one before (obs-fold), control
/// characters, CR without LF, and LF without CR.
#[inline(always)]
pub(crate) fn line(bytes: &[u8], at: usize) -> Result<Line, Reject> {
    let name_end = bytes::skip(bytes, at, TOKEN);
    match bytes.get(name_end) {
        Some(b':') if name_end > at => {}
        Some(b'\r') if name_end == at => return empty_line(bytes, at),
        Some(&byte) => return Err(bad_name(byte, name_end == at)),
        None => return Ok(Line::Partial),
    }
    let mut start = name_end + 1;
    while let Some(b' ' | b'\t') = bytes.get(start) {
        start += 1;
    }
    let stop = bytes::skip_value(bytes, start);
    match (bytes.get(stop), bytes.get(stop + 1)) {
        (Some(b'\r'), Some(b'\n')) => {}
        (Some(b'\r'), None) | (None, _) => return Ok(Line::Partial),
        (Some(b'\r'), Some(_)) => return Err(Reject::bad("a CR without LF in a field value")),
        (Some(b'\n'), _) => return Err(Reject::bad("a field line that ends in LF without CR")),
        (Some(_), _) => return Err(Reject::bad("a control character in a field value")),
    }
    let mut end = stop;
    while end > start && matches!(bytes[end - 1], b' ' | b'\t') {
        end -= 1;
    }
    Ok(Line::Field { name_end, value: (start, end), next: stop + 2 })
}

fn empty_line(bytes: &[u8], at: usize) -> Result<Line, Reject> {
    match bytes.get(at + 1) {
        Some(b'\n') => Ok(Line::End { next: at + 2 }),
        Some(_) => Err(Reject::bad("a CR without LF between field lines")),
        None => Ok(Line::Partial),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_recognized_in_any_case() {
        for &field in Field::ALL {
            let name = field.name();
            assert_eq!(Field::of_name(name.as_bytes()), Some(field));
            assert_eq!(Field::of_name(name.to_ascii_lowercase().as_bytes()), Some(field));
            assert_eq!(Field::of_name(name.to_ascii_uppercase().as_bytes()), Some(field));
        }
    }

    #[test]
    fn near_misses_are_other_fields() {
        for name in [
            "",
            "Hos",
            "Hosts",
            "Hose",
            "If_Match",
            "If-Mat\u{63}s",
            "Rang\u{c}",
            "X-Forwarded-Foo",
        ] {
            assert_eq!(Field::of_name(name.as_bytes()), None, "{name}");
        }
    }
}
