//! Finds the directives in the bytes of a file, however these are cut into pieces.

use core::ops::Range;

use super::directive::{Directive, is_quote};

/// Directives of a file. The file from a further one on is replaced by the error message.
pub(crate) const DIRECTIVES_MAX: usize = 1000;
/// The maximum of bytes of a directive between `<!--#` and `-->`. The error message replaces a
/// longer one.
pub(crate) const DIRECTIVE_BYTES_MAX: usize = 2048;

const BEGIN: &[u8] = b"<!--#";

/// A file with directives: the positions of its text, and the directives between.
#[derive(Debug, PartialEq, Eq)]
pub struct Template {
    parts: Vec<Part>,
    /// The lines of the file in which the directives begin, in order.
    lines: Vec<u32>,
    /// The bytes of the file.
    len: u64,
}

/// A part of a template.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Text, which is sent unchanged. It is not empty, and does not touch another text.
    Text(Range<u64>),
    /// A directive, which replaces these bytes.
    Directive(Range<u64>, Directive),
}

/// Makes a [`Template`] of the bytes of a file.
#[derive(Debug, Default)]
pub struct Parser {
    parts: Vec<Part>,
    /// The lines in which the directives begin that have ended.
    lines: Vec<u32>,
    /// Ends of lines that were taken.
    line_ends: u32,
    /// The line in which the present directive begins.
    line: u32,
    /// The number of bytes that were taken.
    at: u64,
    state: ParserState,
    /// The text of the directive that is being read.
    text: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
enum ParserState {
    /// In text that began at a position; the last `matched` bytes may begin a directive.
    Text { from: u64, matched: usize },
    /// In a directive that began at a position.
    Directive { from: u64, inner: Inner },
}

/// The position within a directive.
#[derive(Clone, Copy, Debug)]
enum Inner {
    /// After some hyphens, of which only 2 matter.
    Bare { hyphens: usize },
    /// Within these quotes.
    Quoted(u8),
    /// After a backslash within these quotes.
    Escaped(u8),
    /// It is too long, and ends at the next `-->`, of which these hyphens may be the beginning.
    Lost { hyphens: usize },
    /// The file has too many directives: this one ends with the file.
    Endless,
}

impl Default for ParserState {
    fn default() -> Self {
        Self::Text { from: 0, matched: 0 }
    }
}

impl Parser {
    /// Parses the next bytes of the file.
    pub fn push(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let taken = match self.state {
                ParserState::Text { from, matched } => self.push_text(from, matched, bytes),
                ParserState::Directive { from, inner } => {
                    self.push_byte(from, inner, bytes[0]);
                    1
                }
            };
            let ends = bytes[..taken].iter().filter(|byte| **byte == b'\n').count();
            self.line_ends = self.line_ends.saturating_add(u32::try_from(ends).unwrap_or(u32::MAX));
            self.at += taken as u64;
            bytes = &bytes[taken..];
        }
    }

    /// Parses bytes of text, up to a byte that may begin a directive. Returns their number.
    fn push_text(&mut self, from: u64, matched: usize, bytes: &[u8]) -> usize {
        if matched == 0 {
            let plain = bytes.iter().position(|byte| *byte == BEGIN[0]).unwrap_or(bytes.len());
            if plain > 0 {
                return plain;
            }
        }
        let byte = bytes[0];
        if byte != BEGIN[matched] {
            // Only its first byte begins it.
            let matched = usize::from(byte == BEGIN[0]);
            self.state = ParserState::Text { from, matched };
        } else if matched + 1 < BEGIN.len() {
            self.state = ParserState::Text { from, matched: matched + 1 };
        } else {
            let begin = self.at + 1 - BEGIN.len() as u64;
            if from < begin {
                self.parts.push(Part::Text(from..begin));
            }
            self.text.clear();
            self.line = self.line_ends.saturating_add(1);
            let is_over = self.lines.len() == DIRECTIVES_MAX;
            let inner = if is_over { Inner::Endless } else { Inner::Bare { hyphens: 0 } };
            self.state = ParserState::Directive { from: begin, inner };
        }
        1
    }

    /// Parses a byte of a directive.
    fn push_byte(&mut self, from: u64, inner: Inner, byte: u8) {
        let inner = match inner {
            Inner::Endless => return,
            Inner::Bare { hyphens: 2 } if byte == b'>' => {
                self.text.truncate(self.text.len() - 2);
                let directive = Directive::parse(&self.text);
                return self.end(from, self.at + 1, directive);
            }
            Inner::Lost { hyphens: 2 } if byte == b'>' => {
                return self.end(from, self.at + 1, Directive::Malformed);
            }
            Inner::Bare { hyphens } if byte == b'-' => {
                Inner::Bare { hyphens: (hyphens + 1).min(2) }
            }
            Inner::Lost { hyphens } if byte == b'-' => {
                Inner::Lost { hyphens: (hyphens + 1).min(2) }
            }
            Inner::Lost { .. } => Inner::Lost { hyphens: 0 },
            Inner::Bare { .. } if is_quote(byte) => Inner::Quoted(byte),
            Inner::Bare { .. } => Inner::Bare { hyphens: 0 },
            Inner::Quoted(quote) if byte == quote => Inner::Bare { hyphens: 0 },
            Inner::Quoted(quote) if byte == b'\\' => Inner::Escaped(quote),
            Inner::Quoted(quote) | Inner::Escaped(quote) => Inner::Quoted(quote),
        };
        let inner = match inner {
            Inner::Lost { .. } | Inner::Endless => inner,
            _ if self.text.len() < DIRECTIVE_BYTES_MAX => {
                self.text.push(byte);
                inner
            }
            Inner::Bare { hyphens } => Inner::Lost { hyphens },
            Inner::Quoted(_) | Inner::Escaped(_) => Inner::Lost { hyphens: 0 },
        };
        self.state = ParserState::Directive { from, inner };
    }

    /// A directive ends here.
    fn end(&mut self, from: u64, to: u64, directive: Directive) {
        self.lines.push(self.line);
        self.parts.push(Part::Directive(from..to, directive));
        self.state = ParserState::Text { from: to, matched: 0 };
    }

    /// Ends the file.
    pub fn finish(mut self) -> Template {
        match self.state {
            ParserState::Text { from, .. } if from < self.at => {
                self.parts.push(Part::Text(from..self.at))
            }
            ParserState::Text { .. } => {}
            ParserState::Directive { from, .. } => self.end(from, self.at, Directive::Malformed),
        }
        self.parts.shrink_to_fit();
        self.lines.shrink_to_fit();
        Template { parts: self.parts, lines: self.lines, len: self.at }
    }
}

impl Template {
    /// Returns whether the file has no directives.
    pub fn is_plain(&self) -> bool {
        self.parts.iter().all(|part| matches!(part, Part::Text(_)))
    }

    /// The bytes of the file.
    pub const fn bytes(&self) -> u64 {
        self.len
    }

    /// The line in which a directive begins, by the number of directives in front of it.
    pub(super) fn line(&self, directive: usize) -> u32 {
        self.lines.get(directive).copied().unwrap_or_default()
    }

    pub(super) fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// The bytes of memory that it keeps.
    pub fn memory(&self) -> usize {
        let own = |part: &Part| match part {
            Part::Text(_) => 0,
            Part::Directive(_, directive) => directive.memory(),
        };
        size_of::<Self>()
            + self.parts.len() * size_of::<Part>()
            + self.lines.len() * size_of::<u32>()
            + self.parts.iter().map(own).sum::<usize>()
    }
}
