//! Entity tags and their comparison.
//!
//! Reading list: RFC 9110 §8.8.3, §13.1.1, §13.1.2.

use crate::bytes::{self, ETAG};

/// An entity tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntityTag<'a> {
    /// True if it is prefixed by `W/`: a weak tag does not promise that the bytes are the same.
    pub weak: bool,
    /// The tag with its double quotes.
    pub opaque: &'a [u8],
}

/// A way to compare two tags (RFC 9110 §8.8.3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// Equal if both are strong and the same: for ranges and `If-Match`.
    Strong,
    /// Equal if they differ at most in the prefix: for `If-None-Match`.
    Weak,
}

/// The match of the current tag in a list of tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listed {
    /// The list is `*`: any current representation matches.
    Any,
    /// The tag is in the list.
    Matching,
    /// The list is well-formed, and the tag is not in it.
    Missing,
    /// The list is malformed, or has no element. Nothing matches.
    Malformed,
}

impl<'a> EntityTag<'a> {
    /// Parses a field value that is one tag.
    pub fn parse(value: &'a [u8]) -> Option<Self> {
        let (tag, rest) = Self::split(value)?;
        rest.is_empty().then_some(tag)
    }

    /// Returns whether both tags are strong and the same (RFC 9110 §8.8.3.2).
    pub fn strong_eq(&self, other: &EntityTag<'_>) -> bool {
        !self.weak && !other.weak && self.opaque == other.opaque
    }

    /// Returns whether the tags are the same, strong or weak (RFC 9110 §8.8.3.2).
    pub fn weak_eq(&self, other: &EntityTag<'_>) -> bool {
        self.opaque == other.opaque
    }

    /// The tag at the start of `value`, and what follows it.
    fn split(value: &'a [u8]) -> Option<(Self, &'a [u8])> {
        // Case-sensitive, RFC 9110 §8.8.3.
        let (weak, value) = match value.strip_prefix(b"W/") {
            Some(rest) => (true, rest),
            None => (false, value),
        };
        if value.first() != Some(&b'"') {
            return None;
        }
        let end = bytes::skip(value, 1, ETAG);
        if value.get(end) != Some(&b'"') {
            return None;
        }
        let (opaque, rest) = value.split_at(end + 1);
        Some((Self { weak, opaque }, rest))
    }
}

/// Looks for `current` in the list that the lines of `If-Match` or `If-None-Match` make up
/// together.
///
/// A list with any malformed element is malformed as a whole, even if the tag is in it: the client's
/// intention is not known. `current` is `None` if the representation has no tag.
pub fn find<'a>(
    lines: impl Iterator<Item = &'a [u8]>,
    current: Option<&EntityTag<'_>>,
    comparison: Comparison,
) -> Listed {
    let mut elements = 0;
    let mut any = false;
    let mut matching = false;
    for line in lines {
        let mut rest = line;
        loop {
            // A recipient ignores empty elements, RFC 9110 §5.6.1.2.
            while let [b',' | b' ' | b'\t', after @ ..] = rest {
                rest = after;
            }
            if rest.is_empty() {
                break;
            }
            elements += 1;
            if let [b'*', after @ ..] = rest {
                any = true;
                rest = after;
            } else if let Some((tag, after)) = EntityTag::split(rest) {
                matching |= current.is_some_and(|current| match comparison {
                    Comparison::Strong => current.strong_eq(&tag),
                    Comparison::Weak => current.weak_eq(&tag),
                });
                rest = after;
            } else {
                return Listed::Malformed;
            }
            rest = bytes::trim(rest);
            if !matches!(rest, [] | [b',', ..]) {
                return Listed::Malformed;
            }
        }
    }
    match elements {
        0 => Listed::Malformed,
        1 if any => Listed::Any,
        _ if any => Listed::Malformed,
        _ if matching => Listed::Matching,
        _ => Listed::Missing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tag(text: &str) -> EntityTag<'_> {
        EntityTag::parse(text.as_bytes()).expect(text)
    }

    #[test]
    fn rfc9110_8_8_3_2_example_comparisons() {
        for (a, b, strong, weak) in [
            (r#"W/"1""#, r#"W/"1""#, false, true),
            (r#"W/"1""#, r#"W/"2""#, false, false),
            (r#"W/"1""#, r#""1""#, false, true),
            (r#""1""#, r#""1""#, true, true),
        ] {
            let (a, b) = (tag(a), tag(b));
            assert_eq!(a.strong_eq(&b), strong);
            assert_eq!(b.strong_eq(&a), strong);
            assert_eq!(a.weak_eq(&b), weak);
            assert_eq!(b.weak_eq(&a), weak);
        }
    }

    #[test]
    fn malformed_tags_are_none() {
        for text in [
            "",
            "abc",
            "\"",
            "\"a",
            "a\"",
            "w/\"a\"",
            "W/a",
            "W/",
            "\"a b\"",
            "\"a\"b\"",
            "'a'",
            "\"a\" ",
            "\"\u{7f}\"",
        ] {
            assert_eq!(EntityTag::parse(text.as_bytes()), None, "{text:?}");
        }
    }

    #[test]
    fn an_empty_tag_and_obs_text_are_tags() {
        assert_eq!(tag("\"\"").opaque, b"\"\"");
        assert_eq!(tag("\"\u{e4},\"").opaque, "\"\u{e4},\"".as_bytes());
    }

    fn find_in(lines: &[&str], comparison: Comparison) -> Listed {
        find(lines.iter().map(|line| line.as_bytes()), Some(&tag("\"x\"")), comparison)
    }

    #[test]
    fn rfc9110_13_1_2_lists_are_searched() {
        use Listed::{Any, Malformed, Matching, Missing};
        for (lines, expected) in [
            (&["\"x\""][..], Matching),
            (&["\"a\", \"x\""], Matching),
            (&["\"a\",\"x\" ,\t\"b\""], Matching),
            (&[", ,\"x\","], Matching),
            (&["\"a\"", "\"x\""], Matching),
            (&["\"a\", \"b,\"x\"\""], Malformed),
            (&["\"a,\\\"", "\"b\""], Missing),
            (&["\"X\""], Missing),
            (&["*"], Any),
            (&[" , *"], Any),
            (&["*", "*"], Malformed),
            (&["*, \"x\""], Malformed),
            (&["\"x\", *"], Malformed),
            (&["\"x\" \"y\""], Malformed),
            (&["\"x\", junk"], Malformed),
            (&["x"], Malformed),
            (&[""], Malformed),
            (&[",,"], Malformed),
            (&[], Malformed),
        ] {
            assert_eq!(find_in(lines, Comparison::Strong), expected, "{lines:?}");
            assert_eq!(find_in(lines, Comparison::Weak), expected, "{lines:?}");
        }
    }

    #[test]
    fn weak_tags_match_only_weakly() {
        assert_eq!(find_in(&["W/\"x\""], Comparison::Weak), Listed::Matching);
        assert_eq!(find_in(&["W/\"x\""], Comparison::Strong), Listed::Missing);
    }

    #[test]
    fn without_a_current_tag_only_the_asterisk_matches() {
        let find = |line: &'static [u8]| find([line].into_iter(), None, Comparison::Weak);
        assert_eq!(find(b"\"x\""), Listed::Missing);
        assert_eq!(find(b"*"), Listed::Any);
    }
}
