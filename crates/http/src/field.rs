//! The request fields that the server reads, and their places in a head.
//!
//! Reading list: RFC 9110 §5.

use alloc::vec::Vec;
use core::ops::Range;

use crate::bytes;

/// Declares [`Field`] and its names from one table.
macro_rules! fields {
    ($($variant:ident = $name:literal,)*) => {
        /// A request field that is remembered while a head is parsed, so that looking it up costs
        /// nothing.
        ///
        /// [`Head::fields`](crate::Head::fields) finds all others.
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
    Traceparent = "traceparent",
    TransferEncoding = "Transfer-Encoding",
    UserAgent = "User-Agent",
    XForwardedFor = "X-Forwarded-For",
    XRequestId = "X-Request-Id",
}

impl Field {
    /// The number of fields.
    pub(crate) const COUNT: usize = Self::ALL.len();
    /// The fields of conditions and ranges.
    pub(crate) const CONDITIONS: [Self; 6] = [
        Self::IfMatch,
        Self::IfModifiedSince,
        Self::IfNoneMatch,
        Self::IfRange,
        Self::IfUnmodifiedSince,
        Self::Range,
    ];

    /// The field's bit in a set of fields.
    #[inline(always)]
    pub(crate) const fn bit(self) -> u32 {
        1 << self as u8
    }

    /// The field of this name in any case; `name` must consist of token characters.
    ///
    /// Length and first letter leave one candidate (two with `If-Match` and `If-Range`), so one
    /// comparison decides.
    #[inline]
    pub fn of_name(name: &[u8]) -> Option<Self> {
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
            (11, b't') => Self::Traceparent,
            (12, b'x') => Self::XRequestId,
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
        is_same(name, candidate.name().as_bytes()).then_some(candidate)
    }
}

/// Compares two names of the same length, of at least four token characters, without regard to case: four
/// characters a step, the last step over the last four.
fn is_same(a: &[u8], b: &[u8]) -> bool {
    // This bit is the case of a letter. For `-`, the only other character in these names, it makes a CR, which is
    // no token character.
    let is_same = |(a, b): (&[u8; 4], &[u8; 4])| {
        (u32::from_ne_bytes(*a) ^ u32::from_ne_bytes(*b)) & !u32::from_ne_bytes([0x20; 4]) == 0
    };
    let last = a.last_chunk().zip(b.last_chunk());
    last.is_some_and(is_same) && a.as_chunks().0.iter().zip(b.as_chunks().0).all(is_same)
}

const _: () = assert!(Field::COUNT <= u32::BITS as usize);

/// The positions of the fields named in [`Field`] among the field lines of a head.
///
/// A parser adds each such line that it accepts, in their order, and passes the index to
/// [`Head::new`](crate::Head::new).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldIndex {
    /// The fields that were sent, by [`Field::bit`].
    present: u32,
    /// The fields that were sent on more than one line; a subset of `present`.
    repeated: u32,
    /// The value of the first line of each field that is present.
    spans: [Span; Field::COUNT],
}

/// A value, as offsets from where the field lines begin. An index is copied with each head, so they have 16 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    start: u16,
    end: u16,
}

impl Span {
    /// The size of the short form.
    const BYTES: usize = 4;
    /// Stands for a value that ends too far behind for these offsets: its lines are searched.
    const FAR: Self = Self { start: u16::MAX, end: 0 };

    #[inline(always)]
    fn of(value: &Range<usize>) -> Self {
        match (u16::try_from(value.start), u16::try_from(value.end)) {
            (Ok(start), Ok(end)) => Self { start, end },
            _ => Self::FAR,
        }
    }
}

impl FieldIndex {
    /// The maximum of bytes of field lines in a head: more than any server accepts.
    pub const LINES_BYTES_MAX: usize = 1024 * 1024;

    /// The index of a head without any of these fields.
    pub const EMPTY: Self =
        Self { present: 0, repeated: 0, spans: [Span { start: 0, end: 0 }; Field::COUNT] };

    /// Adds a line whose value, without the whitespace around it, is at `value` among the field lines. Returns
    /// true for the first line of its field.
    #[inline(always)]
    pub fn add(&mut self, field: Field, value: Range<usize>) -> bool {
        if self.present & field.bit() != 0 {
            self.repeated |= field.bit();
            return false;
        }
        self.present |= field.bit();
        self.spans[field as usize] = Span::of(&value);
        true
    }

    /// Treats these fields as if they were not sent.
    pub(crate) fn remove(&mut self, fields: &[Field]) {
        let bits = fields.iter().fold(0, |bits, field| bits | field.bit());
        self.present &= !bits;
        self.repeated &= !bits;
    }

    /// Returns whether the field was sent at least once.
    #[inline(always)]
    #[must_use]
    pub const fn has(&self, field: Field) -> bool {
        self.present & field.bit() != 0
    }

    /// Returns whether any of the fields was sent.
    #[inline(always)]
    pub(crate) fn has_any(&self, fields: &[Field]) -> bool {
        let bits = fields.iter().fold(0, |bits, field| bits | field.bit());
        self.present & bits != 0
    }

    /// Returns whether the field was sent on more than one line.
    #[inline(always)]
    pub(crate) const fn is_repeated(&self, field: Field) -> bool {
        self.repeated & field.bit() != 0
    }

    /// The value of a field that was sent on exactly one line.
    #[inline(always)]
    pub(crate) fn single<'a>(&self, field: Field, lines: &'a [u8]) -> Option<&'a [u8]> {
        if self.present & !self.repeated & field.bit() == 0 {
            return None;
        }
        let Span { start, end } = self.spans[field as usize];
        let value = lines.get(usize::from(start)..usize::from(end));
        if value.is_none() { far(field, lines) } else { value }
    }
}

/// The value of a field that was sent on one line, which ends after the first 64 KiB.
#[cold]
fn far(field: Field, lines: &[u8]) -> Option<&[u8]> {
    lines.split(|byte| *byte == b'\n').find_map(|line| {
        let colon = line.iter().position(|byte| *byte == b':')?;
        let value = &line[colon + 1..];
        let value = value.strip_suffix(b"\r").unwrap_or(value);
        (Field::of_name(&line[..colon]) == Some(field)).then(|| bytes::trim(value))
    })
}

/// A short form of an index, for heads that are kept.
impl FieldIndex {
    /// The sets of fields that are present, and repeated.
    pub(crate) const fn sets(&self) -> [u32; 2] {
        [self.present, self.repeated]
    }

    /// The number of bytes that [`write_spans`](Self::write_spans) appends for an index with these sets.
    pub(crate) const fn spans_len([present, _]: [u32; 2]) -> usize {
        present.count_ones() as usize * Span::BYTES
    }

    /// Appends the positions of the fields that are present.
    pub(crate) fn write_spans(&self, out: &mut Vec<u8>) {
        for place in places(self.present) {
            let Span { start, end } = self.spans[place];
            let ([a, b], [c, d]) = (start.to_ne_bytes(), end.to_ne_bytes());
            out.extend_from_slice(&[a, b, c, d]);
        }
    }

    /// The index with these sets whose positions [`write_spans`](Self::write_spans) has written.
    pub(crate) fn from_spans([present, repeated]: [u32; 2], spans: &[u8]) -> Self {
        let mut index = Self { present, repeated, ..Self::EMPTY };
        let (spans, _) = spans.as_chunks::<{ Span::BYTES }>();
        for (place, &[a, b, c, d]) in places(present).zip(spans) {
            let (start, end) = (u16::from_ne_bytes([a, b]), u16::from_ne_bytes([c, d]));
            index.spans[place] = Span { start, end };
        }
        index
    }
}

/// The bits of the fields in a set, in their order.
fn places(mut set: u32) -> impl Iterator<Item = usize> {
    core::iter::from_fn(move || {
        let place = set.trailing_zeros();
        set &= set.checked_sub(1)?;
        Some(place as usize)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytes;

    #[test]
    fn values_behind_the_first_64_kib_are_found() {
        let long = "x".repeat(70_000);
        let text = std::format!("Cookie: {long}\r\nHost: \t a.b \r\nRange: bytes=0-1\r\n");
        let mut index = FieldIndex::EMPTY;
        let at = |value: &str| {
            let start = text.rfind(value).unwrap();
            start..start + value.len()
        };
        assert!(index.add(Field::Host, at("a.b")));
        assert!(index.add(Field::Range, at("bytes=0-1")));
        let mut spans = Vec::new();
        index.write_spans(&mut spans);
        for index in [&index, &FieldIndex::from_spans(index.sets(), &spans)] {
            assert_eq!(index.single(Field::Host, text.as_bytes()), Some(&b"a.b"[..]));
            assert_eq!(index.single(Field::Range, text.as_bytes()), Some(&b"bytes=0-1"[..]));
            assert_eq!(index.single(Field::Expect, text.as_bytes()), None);
        }
    }

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
    fn a_name_with_another_character_is_another_name() {
        for &field in Field::ALL {
            for at in 0..field.name().len() {
                for token in (0..=u8::MAX).filter(|&byte| bytes::is(byte, bytes::TOKEN)) {
                    let mut name = field.name().as_bytes().to_vec();
                    name[at] = token;
                    let is_same = name.eq_ignore_ascii_case(field.name().as_bytes());
                    let expected = is_same.then_some(field);
                    assert_eq!(Field::of_name(&name), expected, "{}", name.escape_ascii());
                }
            }
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
