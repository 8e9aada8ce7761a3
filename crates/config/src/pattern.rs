//! Patterns for paths: `*` stands for any bytes, `?` for one.

use core::fmt;

/// A pattern for whole paths, such as `*.css` or `/blog/*/feed`. `*` stands for any bytes, slashes too, and
/// `?` for one byte; everything else stands for itself.
///
/// Characters with another meaning in the patterns of other servers are refused, because they would silently match
/// nothing: `{css,js}`, `[ab]`, `a|b`, `~`, `=` and `^` at the beginning, `$` at the end. After a backslash such
/// a character stands for itself.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Pattern {
    /// As it was written.
    text: Box<str>,
    /// The pattern without backslashes.
    shape: Box<str>,
}

/// The maximum number of stars in a pattern: captures have the names `$1` to `$9`, and few stars keep a match
/// short.
const STARS_MAX: usize = 9;
/// The characters that may come after a backslash.
const ESCAPED: &str = r"{}[]()|~=^$\";
/// Alternatives that the message about braces writes out.
const ALTERNATIVES_MAX: usize = 4;

impl Pattern {
    /// Makes a pattern.
    ///
    /// # Errors
    ///
    /// A sentence for the operator, if it has more than nine stars, or is written as for another server.
    pub fn new(text: &str) -> Result<Self, String> {
        if text.bytes().filter(|byte| *byte == b'*').count() > STARS_MAX {
            return Err(format!("{text}: a pattern has at most {STARS_MAX} stars"));
        }
        Ok(Self { text: text.into(), shape: shape_of(text)?.into() })
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
        let mut literals = self.shape.as_bytes().split(|byte| *byte == b'*');
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
    pub fn stars(&self) -> usize {
        self.shape.bytes().filter(|byte| *byte == b'*').count()
    }

    /// The pattern as it was written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The pattern without backslashes: all characters but `*` and `?` stand for themselves.
    pub fn shape(&self) -> &str {
        &self.shape
    }
}

/// Removes the backslashes of a pattern.
///
/// # Errors
///
/// A sentence for the operator, if something in it is not supported.
fn shape_of(text: &str) -> Result<String, String> {
    const EXPRESSION: &str = "this is a regular expression; a pattern is for the whole path, and has only `*` for any \
                              characters and `?` for one";
    if let Some(path) = text.strip_prefix("^~") {
        let path = path.trim_start();
        return Err(format!(
            "{text}: `^~` is not supported; for all paths below it write `path = \"{path}\"`"
        ));
    }
    if let Some(path) = text.strip_prefix('=') {
        let path = path.trim_start();
        return Err(format!(
            "{text}: `=` is not supported; a pattern without stars is for one path: write `{path}`"
        ));
    }
    if text.starts_with(['~', '^']) {
        return Err(format!("{text}: {EXPRESSION}"));
    }
    let itself =
        |char: char| format!("`\\{char}` is the character itself (in TOML in single quotes)");
    let mut shape = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(char) = rest.chars().next() {
        let behind = &rest[char.len_utf8()..];
        rest = behind;
        let within = |end: char| behind.split_once(end).map(|(within, _)| within);
        match char {
            '\\' => match behind.chars().next() {
                Some(next) if ESCAPED.contains(next) => {
                    shape.push(next);
                    rest = &behind[next.len_utf8()..];
                }
                _ => {
                    return Err(format!(
                        "{text}: `\\` is only for one of {ESCAPED} behind it; {EXPRESSION}"
                    ));
                }
            },
            '{' => {
                let single = alternatives(text);
                return Err(format!(
                    "{text}: alternatives in braces are not supported: {single}; {}",
                    itself(char)
                ));
            }
            '[' if within(']').is_some() => {
                let why = "a choice of characters in brackets is not supported: write one for each, or `?`";
                return Err(format!("{text}: {why}; {}", itself(char)));
            }
            '(' if within(')').is_some_and(|within| {
                ["|", ".*", ".+"].iter().any(|part| within.contains(part))
            }) =>
            {
                return Err(format!("{text}: {EXPRESSION}; {}", itself(char)));
            }
            '|' => {
                let all: Vec<_> = text.split('|').map(|one| format!("`{}`", one.trim())).collect();
                return Err(format!(
                    "{text}: alternatives with `|` are not supported: write one for each, {}; {}",
                    all.join(" and "),
                    itself(char)
                ));
            }
            '$' if behind.is_empty() => {
                return Err(format!("{text}: {EXPRESSION}; {}", itself(char)));
            }
            char => shape.push(char),
        }
    }
    Ok(shape)
}

/// The text for an error about alternatives in braces: the patterns to write instead.
fn alternatives(text: &str) -> String {
    let expanded = text.split_once('{').and_then(|(before, rest)| {
        let (within, behind) = rest.split_once('}')?;
        let all: Vec<_> = within.split(',').map(|one| format!("`{before}{one}{behind}`")).collect();
        let is_simple = (2..=ALTERNATIVES_MAX).contains(&all.len()) && !behind.contains('{');
        is_simple.then(|| all.join(" and "))
    });
    match expanded {
        Some(all) => format!("write one for each, {all}"),
        None => "write one for each".to_owned(),
    }
}

/// Returns whether a text starts with a literal, in which `?` stands for any byte.
fn starts_with(text: &[u8], literal: &[u8]) -> bool {
    let same = |(byte, expected): (&u8, &u8)| byte == expected || *expected == b'?';
    text.len() >= literal.len() && text.iter().zip(literal).all(same)
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.text, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_a_pattern_of_another_server_is_refused() {
        for (text, expected) in [
            ("*.{css,js}", "write one for each, `*.css` and `*.js`; `\\{` is the character itself"),
            ("/{a,b}/{c,d}", "alternatives in braces are not supported: write one for each;"),
            ("/users/{id}", "alternatives in braces"),
            ("/a{", "alternatives in braces"),
            ("*.[jt]s", "a choice of characters in brackets"),
            ("*.(css|js)", "this is a regular expression"),
            ("*.css|*.js", "write one for each, `*.css` and `*.js`; `\\|` is the character itself"),
            ("/(a)|b", "alternatives with `|` are not supported"),
            ("/x/(.*)", "this is a regular expression"),
            ("~ \\.php$", "this is a regular expression"),
            ("~* .php", "this is a regular expression"),
            ("^/a", "this is a regular expression"),
            ("*.php$", "this is a regular expression"),
            ("*\\.php", "this is a regular expression"),
            ("/a\\", "is only for one of"),
            ("^~ /a/", "write `path = \"/a/\"`"),
            ("= /a", "write `/a`"),
        ] {
            let why = Pattern::new(text).expect_err(text);
            assert!(why.contains(expected), "{text}: {why}");
        }
    }

    #[test]
    fn a_character_behind_a_backslash_stands_for_itself() {
        for (pattern, path) in [
            (r"/\{a,b\}", "/{a,b}"),
            (r"*.\[jt\]s", "/a.[jt]s"),
            (r"/\(a\|b)", "/(a|b)"),
            (r"/a\$", "/a$"),
            (r"/a\\b", r"/a\b"),
            ("/Foo_(bar)", "/Foo_(bar)"),
            ("/a$b~c^d=e}", "/a$b~c^d=e}"),
            ("/a[", "/a["),
        ] {
            let pattern = Pattern::new(pattern).unwrap();
            assert!(pattern.matches(path.as_bytes()), "{pattern:?}");
            assert_eq!(Pattern::new(pattern.as_str()).as_ref(), Ok(&pattern));
        }
    }

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
