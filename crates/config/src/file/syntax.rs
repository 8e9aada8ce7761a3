//! Finds the mistakes of a text that is not TOML, each once. Pure.
//!
//! A missing bracket or quotation mark gives the lines after it another meaning, and the parser then reports nearly each
//! of them. So only the first error counts. The statement that has it is blanked, and the rest is parsed again.

use core::ops::Range;

use toml::de::DeTable;
use toml_parser::Source;
use toml_parser::lexer::TokenKind;

/// The maximum of mistakes that are looked for. Each costs a pass over the text.
const MISTAKES_MAX: usize = 16;

/// The message of the parser for a key that is there twice, which gives no other line another meaning.
pub(super) const DUPLICATE: &str = "duplicate key";

/// The beginning of the message of the parser for a text without quotation marks.
const UNQUOTED: &str = "string values must be quoted";
/// The maximum length of such a text that a message repeats.
const WORD_BYTES_MAX: usize = 60;

/// The words that other formats have for `true`.
const TRUE: [&str; 3] = ["on", "true", "yes"];
/// The words that other formats have for `false`.
const FALSE: [&str; 3] = ["false", "no", "off"];

/// A mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mistake {
    /// The bytes that show it.
    pub(super) place: Range<usize>,
    pub(super) text: String,
}

/// Returns the mistakes of a text, but for keys that are there twice.
pub(super) fn mistakes(text: &str) -> Vec<Mistake> {
    let mut text = text.to_owned();
    let mut mistakes = Vec::new();
    while mistakes.len() < MISTAKES_MAX {
        let (_, errors) = DeTable::parse_recoverable(&text);
        let errors = errors.iter().filter(|error| error.message() != DUPLICATE);
        let errors = errors.map(|error| (error.span().unwrap_or_default(), error.message()));
        let Some((place, message)) = errors.min_by_key(|(place, _)| place.start) else { break };
        let (mistake, statement) = explain(&text, place, message);
        mistakes.push(mistake);
        if text[statement.clone()].trim().is_empty() {
            break;
        }
        let blank = |byte: u8| if byte == b'\n' { '\n' } else { ' ' };
        let blanks: String = text[statement.clone()].bytes().map(blank).collect();
        text.replace_range(statement, &blanks);
    }
    mistakes
}

/// Makes a mistake of an error of the parser. Returns also the lines of the statement that has it.
fn explain(text: &str, place: Range<usize>, message: &str) -> (Mistake, Range<usize>) {
    let scan = Scan::new(text);
    let line = line_of(text, place.start);
    if let Some((start, mark)) = scan.text_without_end(&line) {
        if mark.len() > 1 {
            let text_end = format!("the text that begins here has no `{mark}` at its end");
            let mistake = Mistake { place: start..start + mark.len(), text: text_end };
            return (mistake, line_of(text, start).start..text.len());
        }
        let text = format!("a `{mark}` is missing in this line: each text has two");
        let place = place.start.min(start)..line.end;
        return (Mistake { place, text }, line);
    }
    let is_open = |(start, end): &&(usize, Option<usize>)| end.is_none() && *start < place.start;
    let open = scan.brackets.iter().rev().find(is_open).map(|(start, _)| *start);
    // The parser explains brackets of headers, which are at the beginning of a line.
    let is_header = |start: usize| text[line_of(text, start)].trim_start().starts_with('[');
    if let Some(start) = open.filter(|start| !is_header(*start)) {
        let (opening, closing) =
            if text[start..].starts_with('[') { ('[', ']') } else { ('{', '}') };
        let mistake = Mistake {
            place: start..start + 1,
            text: format!("this `{opening}` has no `{closing}`"),
        };
        let first = line_of(text, start);
        return (mistake, first.start..first.end.max(line.start));
    }
    let statement = scan.statement(text, &line);
    let text = match &text[place.clone()] {
        word if is_one_of(word, &TRUE) => format!("`{word}` is no value: write `true`"),
        word if is_one_of(word, &FALSE) => format!("`{word}` is no value: write `false`"),
        word if message.starts_with(UNQUOTED) && word.len() <= WORD_BYTES_MAX => {
            format!("a text has quotation marks: write \"{word}\"")
        }
        _ => message.to_owned(),
    };
    (Mistake { place, text }, statement)
}

fn is_one_of(word: &str, words: &[&str]) -> bool {
    words.iter().any(|other| word.eq_ignore_ascii_case(other))
}

/// The bytes of the line around an offset, without its end.
fn line_of(text: &str, at: usize) -> Range<usize> {
    let bytes = text.as_bytes();
    let at = at.min(bytes.len());
    let is_end = |byte: &u8| *byte == b'\n';
    let start = bytes[..at].iter().rposition(is_end).map_or(0, |end| end + 1);
    let end = bytes[at..].iter().position(is_end).map_or(bytes.len(), |len| at + len);
    start..end
}

/// The brackets and the texts of a file that begin and end somewhere.
struct Scan<'a> {
    /// The offsets of brackets that open, in order, each with the offset of its partner.
    brackets: Vec<(usize, Option<usize>)>,
    /// The offsets of texts that have no beginning or no end, and their marks.
    endless: Vec<(usize, &'a str)>,
}

impl<'a> Scan<'a> {
    fn new(text: &'a str) -> Self {
        let mut scan = Self { brackets: Vec::new(), endless: Vec::new() };
        // The indices of brackets without a partner.
        let mut open: Vec<usize> = Vec::new();
        for token in Source::new(text).lex() {
            let (start, end) = (token.span().start(), token.span().end());
            let mark_len = match token.kind() {
                TokenKind::LeftSquareBracket | TokenKind::LeftCurlyBracket => {
                    open.push(scan.brackets.len());
                    scan.brackets.push((start, None));
                    continue;
                }
                TokenKind::RightSquareBracket | TokenKind::RightCurlyBracket => {
                    let partner = if text[start..end].starts_with(']') { '[' } else { '{' };
                    let is_partner =
                        |index: &usize| text[scan.brackets[*index].0..].starts_with(partner);
                    // Brackets in between have no partner.
                    if let Some(at) = open.iter().rposition(is_partner) {
                        scan.brackets[open[at]].1 = Some(start);
                        open.truncate(at);
                    }
                    continue;
                }
                TokenKind::Atom => {
                    // After a text whose first mark is missing.
                    if let Some(at) = text[start..end].find(['"', '\'']) {
                        scan.endless.push((start, &text[start + at..=start + at]));
                    }
                    continue;
                }
                TokenKind::LiteralString | TokenKind::BasicString => 1,
                TokenKind::MlLiteralString | TokenKind::MlBasicString => 3,
                _ => continue,
            };
            let (mark, rest) = text[start..end].split_at(mark_len);
            let is_escaped = |before: &str| {
                let slashes = before.bytes().rev().take_while(|byte| *byte == b'\\').count();
                mark.starts_with('"') && slashes % 2 == 1
            };
            if rest.strip_suffix(mark).is_none_or(is_escaped) {
                scan.endless.push((start, mark));
            }
        }
        scan
    }

    /// The first text without an end that begins in a line, or else one of several lines that contains the line.
    fn text_without_end(&self, line: &Range<usize>) -> Option<(usize, &'a str)> {
        let is_it = |(start, mark): &&(usize, &str)| {
            (line.start..=line.end).contains(start) || mark.len() > 1 && *start < line.start
        };
        self.endless.iter().find(is_it).copied()
    }

    /// A line, and the lines around it that its brackets take in.
    fn statement(&self, text: &str, line: &Range<usize>) -> Range<usize> {
        let (mut first, mut last) = (line.start, line.end);
        for (start, end) in &self.brackets {
            if let Some(end) = end.filter(|end| *start <= line.end && *end >= line.start) {
                (first, last) = (first.min(*start), last.max(end));
            }
        }
        line_of(text, first).start..line_of(text, last).end
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The mistakes, each as its line and its text.
    fn found(text: &str) -> Vec<(usize, String)> {
        let line = |place: usize| text[..place].matches('\n').count() + 1;
        mistakes(text).into_iter().map(|it| (line(it.place.start), it.text)).collect()
    }

    #[test]
    fn a_mistake_is_found_once_in_its_line() {
        let quote = "a `\"` is missing in this line: each text has two";
        let unclosed = "this `[` has no `]`";
        for (text, expected) in [
            (
                "[[site]]\nlisten = [\":80\"\nhosts = [\"a\"]\nname = \"b\"\n[[site.route]]\nfiles = \"x\"\n",
                &[(2, unclosed)][..],
            ),
            (
                "[[site]]\nlisten = [\n  \":80\",\nhosts = [\"a\"]\n\n[[site.route]]\nfiles = \"x\"\n",
                &[(2, unclosed)],
            ),
            ("[[site]]\nhosts = [\"a\"]\nlisten = [\":80\"", &[(3, unclosed)]),
            ("[[site]]\nlisten = [\":80\"\n", &[(2, unclosed)]),
            (
                "tls = { certificate = \"a\"\nhosts = [\"a\"]\n[[site.route]]\nfiles = \"x\"\n",
                &[(1, "this `{` has no `}`")],
            ),
            ("tls = { certificate = [\"a\", key = \"b\" }\nhosts = [\"a\"]\n", &[(1, unclosed)]),
            (
                "[[site]]\nname = \"a\nhosts = [\"b\"]\n[[site.route]]\nfiles = \"x\"\n",
                &[(2, quote)],
            ),
            ("[[site]]\nname = a\"\nhosts = [\"b\"]\n", &[(2, quote)]),
            (
                "[[site]]\nhosts = [\"a, \"b\"]\nlisten = [\":80\"]\n[[site.route]]\nfiles = \"x\"\n",
                &[(2, quote)],
            ),
            (
                "name = 'a\nhosts = ['b']\n",
                &[(1, "a `'` is missing in this line: each text has two")],
            ),
            ("name = \"a\\\"\nhosts = [\"b\"]\n", &[(1, quote)]),
            (
                "a = 1\nname = \"\"\"a\nhosts = [\"b\"]\nx y\n",
                &[(2, "the text that begins here has no `\"\"\"` at its end")],
            ),
            (
                "[[site]\nhosts = [\"a\"]\n[[site.route]]\nfiles = \"x\"\n",
                &[(1, "unclosed array table, expected `]`")],
            ),
            (
                "hosts = [\n  \"a\"\n  \"b\"\n]\nname = \"c\"\n",
                &[(3, "missing comma between array elements, expected `,`")],
            ),
            (
                "listing = on\ndotfiles = No\n",
                &[(1, "`on` is no value: write `true`"), (2, "`No` is no value: write `false`")],
            ),
            ("a = b-c\n", &[(1, "a text has quotation marks: write \"b-c\"")]),
            ("a = 1\na = 2\nb = True\n", &[(3, "`True` is no value: write `true`")]),
            ("listen = [\":80\"\n[[site]]\nname = \"a\n", &[(1, unclosed), (3, quote)]),
            ("a = 1\n", &[]),
            ("", &[]),
        ] {
            let expected: Vec<_> =
                expected.iter().map(|(line, text)| (*line, (*text).to_owned())).collect();
            assert_eq!(found(text), expected, "{text}");
        }
        assert_eq!(mistakes(&"x y\n".repeat(100)).len(), MISTAKES_MAX);
    }

    proptest! {
        #[test]
        fn any_text_has_mistakes_if_the_parser_has_errors(text in r#"([\[\]{}="'\\#,.a\n ä]|"""|on|\r\n){0,40}"#) {
            let (_, errors) = DeTable::parse_recoverable(&text);
            let is_wrong = errors.iter().any(|error| error.message() != DUPLICATE);
            let found = mistakes(&text);
            prop_assert_eq!(is_wrong, !found.is_empty());
            prop_assert!(found.iter().all(|mistake| mistake.place.end <= text.len()));
        }
    }
}
