//! A value of a TOML file with its file and line, and conversions that report faulty values.

use core::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::expand::{Expanded, Texts};
use super::message::{Notes, Span};
use super::{Address, value};

/// The file in which a value stands.
#[derive(Clone, Copy, Debug)]
pub(super) struct Origin<'a> {
    /// Its index among the files that were read.
    pub(super) file: usize,
    /// Its directory, as an absolute path.
    pub(super) directory: &'a Path,
    /// The addresses of the sockets that a service manager has passed, with their names.
    pub(super) passed: &'a [(String, Address)],
    /// The texts of the file in which something was replaced.
    pub(super) texts: &'a Texts,
    /// The whole file.
    pub(super) text: &'a str,
}

/// Finds the address of the only passed socket with a name.
fn passed_address(passed: &[(String, Address)], name: &str) -> Result<Address, String> {
    let mut found = passed.iter().filter(|(other, _)| other == name).map(|(_, address)| address);
    match (found.next(), found.next()) {
        (Some(one), None) => Ok(one.clone()),
        (Some(one), Some(other)) => Err(format!(
            "several sockets have the name `{name}`, such as those for {one} and {other}: write their addresses"
        )),
        (None, _) => Err(format!(
            "no service manager has passed a socket with the name `{name}` (`FileDescriptorName=` of a socket unit; \
             only a server that the unit has started knows its sockets)"
        )),
    }
}

/// A value.
#[derive(Clone, Copy, Debug)]
pub(super) struct Node<'a> {
    value: &'a DeValue<'a>,
    pub(super) place: Span,
    /// The offset at which it begins.
    start: usize,
    origin: Origin<'a>,
}

/// A table, whose keys are known by a list of names.
#[derive(Clone, Copy, Debug)]
pub(super) struct Table<'a> {
    entries: &'a DeTable<'a>,
    pub(super) place: Span,
    origin: Origin<'a>,
}

impl<'a> Table<'a> {
    pub(super) const fn new(entries: &'a DeTable<'a>, place: Span, origin: Origin<'a>) -> Self {
        Self { entries, place, origin }
    }

    /// The keys with their positions and values.
    pub(super) fn entries(self) -> impl Iterator<Item = (&'a str, Span, Node<'a>)> {
        self.entries.iter().map(move |(name, value)| {
            let place = Span::new(self.origin.file, name.span());
            (&**name.get_ref(), place, Node::new(value, self.origin))
        })
    }

    pub(super) fn has(self, name: &str) -> bool {
        self.entries.contains_key(name)
    }
}

impl<'a> Node<'a> {
    pub(super) fn new(value: &'a Spanned<DeValue<'a>>, origin: Origin<'a>) -> Self {
        let (place, start) = (Span::new(origin.file, value.span()), value.span().start);
        Self { value: value.get_ref(), place, start, origin }
    }

    /// The value as a text in which something was replaced, if it is one.
    fn expanded(self) -> Option<&'a Expanded> {
        self.origin.texts.get(self.start).filter(|_| self.value.is_str())
    }

    /// Returns true if nothing could take the place of a reference in it, which was reported.
    pub(super) fn has_failed(self) -> bool {
        self.expanded().is_some_and(|expanded| expanded.template.is_none())
    }

    /// Returns true if it, or a value in it, has the content of a file.
    pub(super) fn is_secret(self) -> bool {
        match self.value {
            DeValue::Array(array) => {
                array.iter().any(|value| Node::new(value, self.origin).is_secret())
            }
            DeValue::Table(table) => {
                table.iter().any(|(_, value)| Node::new(value, self.origin).is_secret())
            }
            _ => self.expanded().is_some_and(|expanded| expanded.is_secret),
        }
    }

    /// Returns true if a value of the file has the content of another file.
    pub(super) const fn has_secrets(self) -> bool {
        self.origin.texts.has_secrets()
    }

    /// The value as a text, if it is one.
    pub(super) fn as_text(self) -> Option<&'a str> {
        self.value.as_str()
    }

    /// Returns true if it is a table. So is `[[name]]` where one table is expected, which [`table`](Self::table) reports.
    pub(super) fn is_table(self) -> bool {
        self.value.is_table() || self.header().is_some()
    }

    /// The name in the brackets of `[[name]]`, if it is a list that such headers make.
    fn header(self) -> Option<&'a str> {
        let is_of_tables = self.value.as_array()?.iter().next()?.get_ref().is_table();
        let text = self.origin.text.get(self.start..).filter(|_| is_of_tables)?;
        Some(text.strip_prefix("[[")?.split(']').next()?.trim())
    }

    pub(super) fn is_flag(self) -> bool {
        self.value.is_bool()
    }

    pub(super) fn is_list(self) -> bool {
        self.value.is_array()
    }

    pub(super) fn is_empty_list(self) -> bool {
        self.value.as_array().is_some_and(|array| array.is_empty())
    }

    /// Reports a value of the wrong kind.
    pub(super) fn expected(self, what: &str, notes: &mut Notes) {
        if self.has_failed() {
            return;
        }
        let found = match self.value {
            DeValue::String(_) => "a string",
            DeValue::Integer(_) => "a whole number",
            DeValue::Float(_) => "a number with a fraction",
            DeValue::Boolean(true) => "true",
            DeValue::Boolean(false) => "false",
            DeValue::Datetime(_) => "a date",
            DeValue::Array(_) => "a list",
            DeValue::Table(_) => "a table",
        };
        notes.error(self.place, format!("expected {what}, found {found}"));
    }

    /// Converts a string.
    pub(super) fn text<T>(
        self,
        read: impl FnOnce(&str) -> Result<T, String>,
        notes: &mut Notes,
    ) -> Option<T> {
        self.text_or("a string", read, notes)
    }

    /// Converts a string. `what` says which values are allowed, for values that are no strings.
    pub(super) fn text_or<T>(
        self,
        what: &str,
        read: impl FnOnce(&str) -> Result<T, String>,
        notes: &mut Notes,
    ) -> Option<T> {
        match self.value {
            DeValue::String(_) if self.has_failed() => None,
            DeValue::String(text) => read(text).map_err(|why| notes.error(self.place, why)).ok(),
            _ => {
                self.expected(what, notes);
                None
            }
        }
    }

    /// Converts one of the words of an enum.
    pub(super) fn choice<E: ValueEnum>(self, notes: &mut Notes) -> Option<E> {
        self.choice_or("", notes)
    }

    /// As `choice`, where `other` is allowed as well, such as `, or a table`.
    pub(super) fn choice_or<E: ValueEnum>(self, other: &str, notes: &mut Notes) -> Option<E> {
        let words = value::words::<E>(other);
        self.text_or(&words, |text| value::choice_or(text, other), notes)
    }

    /// As `text`, for a text in which two dollars stand for one.
    pub(super) fn template<T>(
        self,
        read: impl FnOnce(&str) -> Result<T, String>,
        notes: &mut Notes,
    ) -> Option<T> {
        match self.expanded().and_then(|expanded| expanded.template.as_deref()) {
            Some(template) => read(template).map_err(|why| notes.error(self.place, why)).ok(),
            None => self.text(read, notes),
        }
    }

    /// Converts an address to listen on: one that is written, or `systemd:NAME`, that of a socket which was passed.
    pub(super) fn address(self, notes: &mut Notes) -> Option<Address> {
        let passed = self.origin.passed;
        let read = |text: &str| match text.strip_prefix("systemd:") {
            Some(name) => passed_address(passed, name),
            None => value::address(text),
        };
        self.text(read, notes)
    }

    /// Converts a string with a unit, or a number without one.
    pub(super) fn quantity<T>(
        self,
        read: impl FnOnce(&str) -> Result<T, String>,
        notes: &mut Notes,
    ) -> Option<T> {
        let text = match self.value {
            DeValue::String(_) if self.has_failed() => return None,
            DeValue::String(text) => text.as_ref().to_owned(),
            DeValue::Integer(number) if number.radix() == 10 => number.as_str().to_owned(),
            DeValue::Float(number) => number.as_str().to_owned(),
            _ => {
                self.expected("a number, or a string with a unit", notes);
                return None;
            }
        };
        read(&text).map_err(|why| notes.error(self.place, why)).ok()
    }

    /// Returns a whole number.
    pub(super) fn number(self, range: RangeInclusive<i64>, notes: &mut Notes) -> Option<i64> {
        self.number_or("", range, notes)
    }

    /// As `number`, where `other` is allowed as well, such as `, or a table`.
    pub(super) fn number_or(
        self,
        other: &str,
        range: RangeInclusive<i64>,
        notes: &mut Notes,
    ) -> Option<i64> {
        let what = format!("a whole number from {} to {}{other}", range.start(), range.end());
        let number = match self.value {
            DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix()),
            DeValue::String(text) if self.expanded().is_some() && !self.has_failed() => {
                text.parse()
            }
            _ => {
                self.expected(&what, notes);
                return None;
            }
        };
        let number = number.ok().filter(|number| range.contains(number));
        if number.is_none() {
            notes.error(self.place, format!("expected {what}"));
        }
        number
    }

    /// Returns true or false.
    pub(super) fn flag(self, notes: &mut Notes) -> Option<bool> {
        let flag = match self.value {
            DeValue::String(text) if self.expanded().is_some() => text.parse().ok(),
            value => value.as_bool(),
        };
        if flag.is_none() {
            self.expected("true or false", notes);
        }
        flag
    }

    /// Converts the elements of a list; those that are wrong are reported and left out.
    pub(super) fn list<T>(
        self,
        notes: &mut Notes,
        mut read: impl FnMut(Self, &mut Notes) -> Option<T>,
    ) -> Option<Vec<T>> {
        match self.value {
            DeValue::Array(array) => {
                let nodes = array.iter().map(|value| Node::new(value, self.origin));
                Some(nodes.filter_map(|node| read(node, notes)).collect())
            }
            DeValue::Table(_) => {
                self.expected("a list", notes);
                None
            }
            _ => {
                self.expected("a list in brackets, such as `[\"…\"]`", notes);
                None
            }
        }
    }

    /// Returns a table.
    pub(super) fn table(self, notes: &mut Notes) -> Option<Table<'a>> {
        match (self.value, self.header()) {
            (DeValue::Table(entries), _) => Some(Table::new(entries, self.place, self.origin)),
            (_, Some(name)) => {
                let text = format!("expected `[{name}]` in single brackets, found a list");
                notes.error(self.place, text);
                None
            }
            (_, None) => {
                self.expected("a table in braces, such as `{ … }`", notes);
                None
            }
        }
    }

    /// Returns the tables of `[[name]]`.
    pub(super) fn tables(self, name: &str, notes: &mut Notes) -> Vec<Table<'a>> {
        let DeValue::Array(array) = self.value else {
            self.expected(&format!("`[[{name}]]` in two brackets"), notes);
            return Vec::new();
        };
        let nodes = array.iter().map(|value| Node::new(value, self.origin));
        nodes.filter_map(|node| node.table(notes)).collect()
    }

    /// Returns a path in the file system; a relative one begins at the directory of the file.
    pub(super) fn file(self, notes: &mut Notes) -> Option<PathBuf> {
        self.text(|text| self.join(text), notes)
    }

    /// Joins a path to the directory of the file.
    pub(super) fn join(self, path: &str) -> Result<PathBuf, String> {
        if path.is_empty() || path.contains('\0') {
            return Err("expected a path in the file system".to_owned());
        }
        // Without `.` and repeated slashes; `..` stays, because it may follow a symbolic link.
        Ok(self.origin.directory.join(path).components().collect())
    }
}
