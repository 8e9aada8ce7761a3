//! Field lines as one piece of text.
//!
//! Reading list: RFC 9110 §5, RFC 9112 §5, §11.1 (response splitting).

use alloc::borrow::Cow;
use alloc::vec::Vec;
use core::fmt;

use crate::bytes::{self, TOKEN};
use crate::head::Fields;

/// Some field lines, in their order: `name ": " value CRLF` each, in one buffer.
///
/// All lines share one allocation; there is none if there are no lines or if they are borrowed. HTTP/1.1
/// sends the text as it is.
///
/// ```
/// use http::FieldSection;
///
/// let mut section = FieldSection::EMPTY;
/// section.push(b"X-Frame-Options", b"DENY");
/// assert_eq!(section.as_bytes(), b"X-Frame-Options: DENY\r\n");
/// assert_eq!(section.fields().next(), Some((&b"X-Frame-Options"[..], &b"DENY"[..])));
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct FieldSection<'a>(Cow<'a, [u8]>);

impl<'a> FieldSection<'a> {
    /// No lines.
    pub const EMPTY: Self = Self(Cow::Borrowed(&[]));

    /// No lines, and room for this many bytes of them.
    pub fn with_capacity(bytes: usize) -> Self {
        Self(Cow::Owned(Vec::with_capacity(bytes)))
    }

    /// Appends a line. No name or value can end its line. A line whose name is not a token is left out,
    /// and values lose their control characters.
    ///
    /// # Panics
    ///
    /// In debug builds, if a name is not a token or a value holds a control character other than
    /// HTAB.
    pub fn push(&mut self, name: &[u8], value: &[u8]) {
        let is_token = !name.is_empty() && bytes::skip(name, 0, TOKEN) == name.len();
        debug_assert!(is_token, "field name {}", name.escape_ascii());
        if !is_token {
            return;
        }
        let out = self.0.to_mut();
        out.extend_from_slice(name);
        out.extend_from_slice(b": ");
        bytes::push_value(out, bytes::trim(value));
        out.extend_from_slice(b"\r\n");
    }

    /// Appends a line from a parsed head: its name is a token, and its value has no control character but
    /// HTAB. Neither is checked again.
    ///
    /// # Panics
    ///
    /// In debug builds, like [`push`](Self::push).
    pub fn push_checked(&mut self, name: &[u8], value: &[u8]) {
        push_line(self.0.to_mut(), name, value);
    }

    /// Removes all lines with this name, in any case.
    pub fn remove(&mut self, name: &[u8]) {
        let is_it = |other: &[u8]| other.eq_ignore_ascii_case(name);
        if self.fields().all(|(other, _)| !is_it(other)) {
            return;
        }
        let mut kept = FieldSection::EMPTY;
        for (other, value) in self.fields().filter(|(other, _)| !is_it(other)) {
            kept.push(other, value);
        }
        self.0 = Cow::Owned(kept.0.into_owned());
    }

    /// The lines as `(name, value)`, in their order.
    pub fn fields(&self) -> Fields<'_> {
        Fields::new(&self.0)
    }

    /// The text of all lines.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The lines, borrowed from these.
    pub fn as_borrowed(&self) -> FieldSection<'_> {
        FieldSection(Cow::Borrowed(&self.0))
    }

    /// The lines in a buffer of their own.
    pub fn into_owned(self) -> FieldSection<'static> {
        match self.0 {
            Cow::Borrowed([]) => FieldSection::EMPTY,
            text => FieldSection(Cow::Owned(text.into_owned())),
        }
    }
}

/// Appends a line to the text of others, as [`FieldSection::push_checked`] does.
///
/// # Panics
///
/// In debug builds, if the name is not a token or the value holds a control character other than HTAB.
pub fn push_line(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    debug_assert!(bytes::skip(name, 0, TOKEN) == name.len() && !name.is_empty());
    debug_assert!(bytes::skip_value(value, 0) == value.len());
    out.extend_from_slice(name);
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

impl Default for FieldSection<'_> {
    fn default() -> Self {
        Self::EMPTY
    }
}

impl fmt::Debug for FieldSection<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_keep_their_order_and_may_repeat() {
        let mut section = FieldSection::EMPTY;
        section.push(b"Set-Cookie", b"a=1");
        section.push(b"X", b" \tpadded ");
        section.push(b"Set-Cookie", b"");
        let lines: Vec<_> = section.fields().collect();
        let expected: [(&[u8], &[u8]); 3] =
            [(b"Set-Cookie", b"a=1"), (b"X", b"padded"), (b"Set-Cookie", b"")];
        assert_eq!(lines, expected);
        assert_eq!(section.as_borrowed().into_owned(), section);
    }

    #[test]
    fn all_lines_with_a_name_are_removed() {
        let mut section = FieldSection::EMPTY;
        for (name, value) in [(b"A", b"1"), (b"B", b"2"), (b"a", b"3"), (b"C", b"4")] {
            section.push(name, value);
        }
        section.remove(b"X");
        section.remove(b"a");
        assert_eq!(section.as_bytes(), b"B: 2\r\nC: 4\r\n");
    }

    #[test]
    #[cfg_attr(debug_assertions, should_panic(expected = "field name"))]
    fn rfc9112_11_1_a_name_cannot_end_its_line() {
        let mut section = FieldSection::EMPTY;
        section.push(b"A\r\nB", b"x");
        section.push(b"", b"x");
        assert_eq!(section.as_bytes(), b"");
    }

    #[test]
    #[cfg_attr(debug_assertions, should_panic(expected = "field value"))]
    fn rfc9112_11_1_a_value_cannot_end_its_line() {
        let mut section = FieldSection::EMPTY;
        section.push(b"A", b"x\r\nB: y");
        assert_eq!(section.as_bytes(), b"A: xB: y\r\n");
    }
}
