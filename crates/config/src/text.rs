//! Escapes text from clients and file systems for terminals, logs and JSON.
//!
//! Clients choose the text of requests, and users who can write to DIR choose names of files. Some
//! characters make a terminal or an editor do something: clear the screen, reverse the text after
//! U+202E, hide U+200B. The server always escapes these:
//!
//! | output | written as they are | written as | by |
//! |---|---|---|---|
//! | access log, common and combined | printable ASCII except `"` and `\` | each byte as `\xHH` | `logs/src/line.rs` |
//! | access log and listings in JSON | all characters that are not hidden | `\uHHHH` | this module |
//! | messages on standard error | all characters that are not hidden | `\u{HHHH}` | this module |

use core::fmt::Write as _;
use std::borrow::Cow;

/// Returns whether software that shows text may act on a character instead of showing it: controls
/// (C0, DEL and C1), format characters (including all that change the direction of text), and separators
/// of lines and paragraphs.
pub(crate) fn is_hidden(char: char) -> bool {
    let next = HIDDEN.partition_point(|&(_, last)| last < char);
    char.is_control() || HIDDEN.get(next).is_some_and(|&(first, _)| first <= char)
}

/// The general categories Cf, Zl and Zp of Unicode 16 (DerivedGeneralCategory.txt), and the gaps
/// between them that are reserved for more of the same. In order, for a search by halves.
const HIDDEN: [(char, char); 21] = [
    ('\u{ad}', '\u{ad}'),
    ('\u{600}', '\u{605}'),
    ('\u{61c}', '\u{61c}'),
    ('\u{6dd}', '\u{6dd}'),
    ('\u{70f}', '\u{70f}'),
    ('\u{890}', '\u{891}'),
    ('\u{8e2}', '\u{8e2}'),
    ('\u{180e}', '\u{180e}'),
    ('\u{200b}', '\u{200f}'),
    ('\u{2028}', '\u{202e}'),
    ('\u{2060}', '\u{206f}'),
    ('\u{feff}', '\u{feff}'),
    ('\u{fff0}', '\u{fffb}'),
    ('\u{110bd}', '\u{110bd}'),
    ('\u{110cd}', '\u{110cd}'),
    ('\u{13430}', '\u{1343f}'),
    ('\u{1bca0}', '\u{1bca3}'),
    ('\u{1d173}', '\u{1d17a}'),
    ('\u{e0000}', '\u{e007f}'),
    ('\u{e0080}', '\u{e00ff}'),
    ('\u{e01f0}', '\u{e0fff}'),
];

/// Writes a character as JSON escapes: `\u202e`, and two of them beyond U+FFFF (RFC 8259 §7).
pub(crate) fn push_json_escape(char: char, out: &mut String) {
    for unit in char.encode_utf16(&mut [0; 2]) {
        // Writing to a string cannot fail.
        let _ = write!(out, "\\u{unit:04x}");
    }
}

/// Escapes text for a JSON string.
pub fn escape_json(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            char if is_hidden(char) => push_json_escape(char, &mut out),
            char => out.push(char),
        }
    }
    out
}

/// Makes a message one line of visible text: hidden characters become `\u{HHHH}`.
pub fn plain(text: &str) -> Cow<'_, str> {
    if !text.contains(is_hidden) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    for char in text.chars() {
        if is_hidden(char) {
            out.extend(char.escape_unicode());
        } else {
            out.push(char);
        }
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_that_a_terminal_acts_on_are_hidden() {
        for char in [
            '\0',
            '\n',
            '\x1b',
            '\x7f',
            '\u{85}',
            '\u{9b}',
            '\u{ad}',
            '\u{200b}',
            '\u{200e}',
            '\u{2028}',
            '\u{2029}',
            '\u{202e}',
            '\u{2066}',
            '\u{2069}',
            '\u{feff}',
            '\u{e0041}',
        ] {
            assert!(is_hidden(char), "{char:?}");
        }
        for char in ['a', ' ', '~', 'ä', '\u{a0}', 'ß', '水', 'ع', '😀', '\u{fffd}', '\u{301}']
        {
            assert!(!is_hidden(char), "{char:?}");
        }
        assert!(HIDDEN.iter().flat_map(|(first, last)| [first, last]).is_sorted());
    }

    #[test]
    fn a_message_stays_one_line_that_reads_from_left_to_right() {
        assert_eq!(plain("no such file: /ä b"), "no such file: /ä b");
        assert_eq!(plain("a\u{202e}b\n\x1b[2J"), "a\\u{202e}b\\u{a}\\u{1b}[2J");
    }

    #[test]
    fn json_escapes_are_utf_16() {
        let mut out = String::new();
        for char in ['\u{202e}', '\u{e0041}', '\x1b'] {
            push_json_escape(char, &mut out);
        }
        assert_eq!(out, r"\u202e\udb40\udc41\u001b");
    }
}
