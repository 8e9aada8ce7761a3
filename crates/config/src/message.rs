//! Errors and warnings about a configuration file, each with its line.

use core::fmt;
use core::ops::Range;
use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::secrets::{HIDDEN, Secrets};
use crate::credentials;
use crate::text::plain;

/// Errors, and warnings, that are kept; the others are counted.
const MESSAGES_MAX: usize = 50;
/// The maximum of characters of a line that are shown.
const LINE_CHARS_MAX: usize = 100;

/// A file that was read.
#[derive(Debug)]
pub(super) struct Source {
    /// The path, as it is shown.
    pub(super) path: PathBuf,
    pub(super) text: Arc<str>,
}

/// A piece of the text of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Span {
    /// The index of the file among those that were read.
    file: u32,
    /// The offset of its first byte; `end` is the offset after its last one.
    start: u32,
    end: u32,
}

/// A message about a position; without a position it is about the file as a whole.
#[derive(Debug)]
struct Note {
    place: Option<Span>,
    text: String,
    /// Another position, which ends the text.
    other: Option<Span>,
}

/// The messages about a configuration, in the order in which they were found.
#[derive(Debug, Default)]
pub(super) struct Notes {
    errors: List,
    warnings: List,
    /// The values that no output shows.
    pub(super) secrets: Secrets,
    /// Values that are credentials, perhaps, with their positions. No message shows the lines of the file that have one.
    private: Vec<(Span, String)>,
    /// The positions of texts into which values came, with the references: no line of the file shows these values.
    came_in: Vec<(Span, String)>,
}

#[derive(Debug, Default)]
struct List {
    notes: Vec<Note>,
    /// The number of messages beyond [`MESSAGES_MAX`].
    more: usize,
}

/// A message for the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// One line of visible text: file, line, column and the mistake.
    pub line: String,
    /// The line of the file, and a line that points to the position in it.
    pub excerpt: Option<String>,
}

impl Message {
    /// Makes an error about a position.
    pub(super) fn error(place: Option<Span>, text: &str, sources: &[Source]) -> Self {
        Note { place, text: text.to_owned(), other: None }.message(sources, "error", &[])
    }

    /// Makes a warning about a position.
    pub(super) fn warning(place: Option<Span>, text: &str, sources: &[Source]) -> Self {
        Note { place, text: text.to_owned(), other: None }.message(sources, "warning", &[])
    }

    /// Makes errors about positions in another file than those of a configuration, and counts the `more` that there
    /// are.
    pub fn of_file(
        path: &Path,
        text: Arc<str>,
        errors: impl IntoIterator<Item = (Range<usize>, String)>,
        more: usize,
    ) -> Vec<Self> {
        let sources = [Source { path: path.to_owned(), text }];
        let error = |(bytes, text): (Range<usize>, String)| {
            Self::error(Some(Span::new(0, bytes)), &text, &sources)
        };
        let mut messages: Vec<_> = errors.into_iter().map(error).collect();
        if more > 0 {
            let line = format!("{}: error: {more} more are not shown", path.display());
            messages.push(Self { line: plain(&line).into(), excerpt: None });
        }
        messages
    }
}

impl Span {
    /// Makes a position; files have at most 4 GiB.
    pub(super) fn new(file: usize, bytes: Range<usize>) -> Self {
        let short = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        Self { file: short(file), start: short(bytes.start), end: short(bytes.end) }
    }

    /// The beginning of a file.
    pub(super) fn start(file: usize) -> Self {
        Self::new(file, 0..0)
    }

    /// Writes file and line.
    fn shown(self, sources: &[Source]) -> String {
        let source = &sources[self.file as usize];
        let before = &source.text.as_bytes()[..self.start as usize];
        let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
        format!("{}:{line}", source.path.display())
    }
}

impl Notes {
    pub(super) fn error(&mut self, place: impl Into<Option<Span>>, text: impl Into<String>) {
        self.errors.add(Note { place: place.into(), text: text.into(), other: None });
    }

    pub(super) fn warning(&mut self, place: impl Into<Option<Span>>, text: impl Into<String>) {
        self.warnings.add(Note { place: place.into(), text: text.into(), other: None });
    }

    /// Adds an error whose text goes on with `at FILE:LINE`.
    pub(super) fn error_beside(&mut self, place: Span, text: impl Into<String>, other: Span) {
        self.errors.add(Note { place: Some(place), text: text.into(), other: Some(other) });
    }

    /// Adds a warning whose text goes on with `at FILE:LINE`.
    pub(super) fn warning_beside(&mut self, place: Span, text: impl Into<String>, other: Span) {
        self.warnings.add(Note { place: Some(place), text: text.into(), other: Some(other) });
    }

    /// Records a value that is a credential, perhaps. Messages go to logs, and do not show it.
    pub(super) fn hide(&mut self, place: Span, value: &str) {
        self.private.push((place, value.to_owned()));
    }

    /// Records that values came into a text by these references. A message about the text names them.
    pub(super) fn note_came_in(&mut self, place: Span, references: String) {
        self.came_in.push((place, references));
    }

    /// Replaces the values that no output shows, and a private value where a message about it quotes it.
    pub(super) fn conceal(&mut self) {
        for note in self.errors.notes.iter_mut().chain(&mut self.warnings.notes) {
            if let Cow::Owned(text) = self.secrets.conceal(&note.text) {
                note.text = text;
            }
            for (_, value) in self.private.iter().filter(|(place, _)| note.place == Some(*place)) {
                for value in [value, value.trim()] {
                    note.text = note.text.replace(&format!("{value:?}"), &format!("{HIDDEN:?}"));
                }
            }
        }
    }

    /// The number of errors so far.
    pub(super) fn count_errors(&self) -> usize {
        self.errors.notes.len() + self.errors.more
    }

    /// The text of the first error, without its position.
    pub(super) fn first_error(&self) -> Option<&str> {
        self.errors.notes.first().map(|note| &*note.text)
    }

    /// The number of errors, with those that are not kept.
    pub(super) const fn error_count(&self) -> usize {
        self.errors.notes.len() + self.errors.more
    }

    pub(super) const fn has_errors(&self) -> bool {
        !self.errors.notes.is_empty()
    }

    /// Makes errors and warnings of the notes, in the order of files and lines.
    pub(super) fn into_messages(mut self, sources: &[Source]) -> (Vec<Message>, Vec<Message>) {
        for note in self.errors.notes.iter_mut().chain(&mut self.warnings.notes) {
            let of_text = self.came_in.iter().find(|(place, _)| note.place == Some(*place));
            if let Some((_, references)) = of_text {
                note.text = format!("{} (its value comes by {references})", note.text);
            }
        }
        let private: Vec<_> = self.private.into_iter().map(|(place, _)| place).collect();
        let show = |list: List, kind| list.into_messages(sources, kind, &private);
        (show(self.errors, "error"), show(self.warnings, "warning"))
    }
}

impl List {
    fn add(&mut self, note: Note) {
        if self.notes.len() < MESSAGES_MAX {
            self.notes.push(note);
        } else {
            self.more += 1;
        }
    }

    fn into_messages(mut self, sources: &[Source], kind: &str, private: &[Span]) -> Vec<Message> {
        self.notes.sort_by_key(|note| note.place);
        let mut messages: Vec<_> =
            self.notes.iter().map(|note| note.message(sources, kind, private)).collect();
        if self.more > 0 {
            let line = format!("{kind}: {} more are not shown", self.more);
            messages.push(Message { line, excerpt: None });
        }
        messages
    }
}

impl Note {
    /// Makes a message; without an excerpt if that would show one of these positions, or perhaps a credential.
    fn message(&self, sources: &[Source], kind: &str, private: &[Span]) -> Message {
        let text = match self.other {
            Some(other) => format!("{} at {}", self.text, other.shown(sources)),
            None => self.text.clone(),
        };
        let Some(place) = self.place else {
            return Message { line: plain(&format!("{kind}: {text}")).into(), excerpt: None };
        };
        let source = &sources[place.file as usize];
        let said = text;
        let text = &source.text;
        let start = boundary(text, place.start as usize);
        let line_start = text[..start].rfind('\n').map_or(0, |at| at + 1);
        let line = text[line_start..].lines().next().unwrap_or_default();
        let has_credential = credentials::may_have_one(line);
        let said = if has_credential { without_quotations(&said, line) } else { said };
        let head = format!("{kind}: {said}");
        let number = text[..line_start].bytes().filter(|byte| *byte == b'\n').count() + 1;
        let column = text[line_start..start].chars().count();
        let head = format!("{}:{number}:{}: {head}", source.path.display(), column + 1);
        let end = (place.end as usize).min(line_start + line.len()).max(start);
        let len = text[start..boundary(text, end)].chars().count();
        let is_private = |span: &Span| {
            span.file == place.file
                && (span.start as usize) <= line_start + line.len()
                && span.end as usize >= line_start
        };
        let is_shown = !has_credential && !private.iter().any(is_private);
        let excerpt = is_shown.then(|| excerpt(line, number, column, len.max(1)));
        Message { line: plain(&head).into(), excerpt }
    }
}

/// The next offset before or at `at` that begins a character.
fn boundary(text: &str, at: usize) -> usize {
    (0..=at.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0)
}

/// Hides what a text quotes from a line: `"…"` is in its place.
fn without_quotations(text: &str, line: &str) -> String {
    let hide = |(number, part): (usize, &str)| match number % 2 {
        1 if !part.is_empty() && line.contains(part) => HIDDEN.to_owned(),
        _ => part.to_owned(),
    };
    text.split('"').enumerate().map(hide).collect::<Vec<_>>().join("\"")
}

/// Shows a line with carets below `len` characters from `column` on. Each hidden character, such as a tab, is shown
/// as one space, so that the carets are in the right column.
fn excerpt(line: &str, number: usize, column: usize, len: usize) -> String {
    let skipped = if column + len.min(LINE_CHARS_MAX / 2) <= LINE_CHARS_MAX {
        0
    } else {
        column - LINE_CHARS_MAX / 4
    };
    let visible = |char| if crate::text::is_hidden(char) { ' ' } else { char };
    let rest = line.chars().skip(skipped);
    let shown: String = rest.clone().take(LINE_CHARS_MAX).map(visible).collect();
    let (before, behind) =
        (if skipped > 0 { "…" } else { "" }, if rest.count() > LINE_CHARS_MAX { "…" } else { "" });
    let indent = column - skipped + before.chars().count();
    let carets = "^".repeat(len.min(LINE_CHARS_MAX - (column - skipped)).max(1));
    let margin = " ".repeat(number.to_string().len());
    format!("  {number} | {before}{shown}{behind}\n  {margin} | {}{carets}", " ".repeat(indent))
        .trim_end()
        .to_owned()
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.line)?;
        match &self.excerpt {
            Some(excerpt) => write!(f, "\n{excerpt}"),
            None => Ok(()),
        }
    }
}
