//! Patterns for paths: `*` stands for any bytes, `?` for one.

use core::fmt;

/// A pattern for whole paths, such as `*.css` or `/blog/*/feed`. `*` stands for any bytes, slashes too, and
/// `?` for one byte; everything else stands for itself.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Pattern(Box<str>);

/// The maximum number of stars in a pattern: as many captures have names, and a match is short.
const STARS_MAX: usize = 9;

impl Pattern {
    /// Makes a pattern.
    ///
    /// # Errors
    ///
    /// A sentence for the operator, if it has more than nine stars.
    pub fn new(text: &str) -> Result<Self, String> {
        if text.bytes().filter(|byte| *byte == b'*').count() > STARS_MAX {
            return Err(format!("{text}: a pattern has at most {STARS_MAX} stars"));
        }
        Ok(Self(text.into()))
    }

    /// Returns whether the whole text matches.
    #[must_use]
    pub fn matches(&self, text: &[u8]) -> bool {
        self.captures(text).is_some()
    }

    /// Returns the bytes for which each star stands, if the whole text matches. A star stands for as few
    /// bytes as possible, but the last one.
    #[must_use]
    pub fn captures<'t>(&self, text: &'t [u8]) -> Option<Vec<&'t [u8]>> {
        let mut literals = self.0.as_bytes().split(|byte| *byte == b'*');
        let first = literals.next().unwrap_or_default();
        let mut rest = if starts_with(text, first) { &text[first.len()..] } else { return None };
        let mut captures = Vec::new();
        let literals: Vec<_> = literals.collect();
        let Some((last, middle)) = literals.split_last() else {
            return rest.is_empty().then_some(captures);
        };
        for literal in middle {
            let at = (0..=rest.len()).find(|at| starts_with(&rest[*at..], literal))?;
            captures.push(&rest[..at]);
            rest = &rest[at + literal.len()..];
        }
        let at = rest.len().checked_sub(last.len())?;
        captures.push(&rest[..at]);
        starts_with(&rest[at..], last).then_some(captures)
    }

    /// The number of its stars.
    pub(crate) fn stars(&self) -> usize {
        self.0.bytes().filter(|byte| *byte == b'*').count()
    }

    /// The pattern as it was written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Returns whether a text starts with a literal, in which `?` stands for any byte.
fn starts_with(text: &[u8], literal: &[u8]) -> bool {
    let same = |(byte, expected): (&u8, &u8)| byte == expected || *expected == b'?';
    text.len() >= literal.len() && text.iter().zip(literal).all(same)
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_stand_for_any_bytes_and_question_marks_for_one() {
        let cases: [(&str, &str, Option<&[&str]>); 16] = [
            ("", "", Some(&[])),
            ("", "a", None),
            ("/a", "/a", Some(&[])),
            ("/a", "/ab", None),
            ("/?", "/a", Some(&[])),
            ("/?", "/", None),
            ("*", "", Some(&[""])),
            ("*", "/a/b", Some(&["/a/b"])),
            ("*.css", "/a/b.css", Some(&["/a/b"])),
            ("*.css", "/a/b.css.map", None),
            ("*.css", ".css.css", Some(&[".css"])),
            ("/blog/*/*", "/blog/2026/a/b", Some(&["2026", "a/b"])),
            ("/a*a", "/a", None),
            ("/a*a", "/aa", Some(&[""])),
            ("*a*b*", "xxaybz", Some(&["xx", "y", "z"])),
            ("*a*b", "aab", Some(&["", "a"])),
        ];
        for (pattern, text, expected) in cases {
            let captures =
                Pattern::new(pattern).unwrap().captures(text.as_bytes()).map(|captures| {
                    captures
                        .iter()
                        .map(|bytes| str::from_utf8(bytes).unwrap().to_owned())
                        .collect::<Vec<_>>()
                });
            let expected =
                expected.map(|all| all.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>());
            assert_eq!(captures, expected, "{pattern} {text}");
        }
        assert!(Pattern::new("**********").is_err());
    }
}
