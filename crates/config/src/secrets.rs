//! The values of a configuration that came from files by `${file:…}`, which no output shows.

use core::fmt;
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The text in the place of a value that is not shown.
pub(super) const HIDDEN: &str = "…";
/// If a value has at least this many characters, it is replaced also within a word.
const LONG: usize = 4;

/// Values that no output shows. Of two values the longer one comes first.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secrets {
    values: Vec<Arc<str>>,
    keys: BTreeSet<&'static str>,
}

impl Secrets {
    /// Adds a value. An empty one has nothing to hide.
    pub(super) fn add(&mut self, value: &str) {
        if !value.is_empty() && !self.values.iter().any(|other| **other == *value) {
            self.values.push(value.into());
            self.values.sort_by_key(|value| core::cmp::Reverse(value.len()));
        }
    }

    /// Adds those of others.
    pub(super) fn extend(&mut self, others: Self) {
        others.values.iter().for_each(|value| self.add(value));
        self.keys.extend(others.keys);
    }

    /// Adds a key in whose value there is one.
    pub(super) fn add_key(&mut self, name: &'static str) {
        self.keys.insert(name);
    }

    /// Returns true if there is a value in the value of a key, in some table.
    pub(super) fn has_key(&self, name: &str) -> bool {
        self.keys.contains(name)
    }

    /// Replaces the values in a text, also those that were escaped.
    #[must_use]
    pub fn conceal<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let mut out = Cow::Borrowed(text);
        for value in &self.values {
            let (debug, plain) = (value.escape_debug().to_string(), crate::text::plain(value));
            for form in [value, &*debug, &plain, value.trim()] {
                if let Some(text) = replaced(&out, form) {
                    out = Cow::Owned(text);
                }
            }
        }
        out
    }
}

/// Replaces a value in a text; `None` if the text does not have it. A short value, such as a number, is replaced only
/// where it is no part of a longer word.
fn replaced(text: &str, value: &str) -> Option<String> {
    let is_apart = |at: usize| {
        let before = text[..at].chars().next_back();
        let behind = text[at + value.len()..].chars().next();
        !before.into_iter().chain(behind).any(char::is_alphanumeric)
    };
    let is_long = value.chars().count() >= LONG;
    let found: Vec<_> = match value {
        "" => Vec::new(),
        _ => text.match_indices(value).map(|(at, _)| at).collect(),
    };
    let found: Vec<_> = found.into_iter().filter(|at| is_long || is_apart(*at)).collect();
    if found.is_empty() {
        return None;
    }
    let mut out = String::with_capacity(text.len());
    let mut end = 0;
    for at in found {
        out.push_str(&text[end..at]);
        out.push_str(HIDDEN);
        end = at + value.len();
    }
    out.push_str(&text[end..]);
    Some(out)
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} values in {:?}", self.values.len(), self.keys)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_concealed_in_all_forms() {
        let mut secrets = Secrets::default();
        for value in ["7", "abcd", "abcdef", "two\nlines\u{1b}", "", "abcd"] {
            secrets.add(value);
        }
        for (text, expected) in [
            ("plain", "plain"),
            ("x abcdef abcde", "x … …e"),
            ("x7 127.0.0.1 = 7", "x7 127.0.0.1 = …"),
            (r#"wrong: "two\nlines\u{1b}""#, r#"wrong: "…""#),
            ("two\\u{a}lines\\u{1b}", "…"),
        ] {
            assert_eq!(secrets.conceal(text), expected, "{text}");
        }
        secrets.add_key("headers");
        assert!(secrets.has_key("headers") && !secrets.has_key("log"));
        assert!(!format!("{secrets:?}").contains("abc"));
    }
}
