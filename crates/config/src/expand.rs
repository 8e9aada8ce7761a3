//! Replaces variables of the environment and the contents of files in the texts of a configuration.
//!
//! ```text
//! text      = *( other | reference )
//! reference = "${" NAME [ ":-" default ] "}" | "${file:" path "}"
//! NAME      = capital letters, digits and underscores, and no digit at its beginning
//! ```
//!
//! A name in small letters is a [variable](super::variable) of a request, and is left to the texts that have those. What
//! comes in is a value: it is never TOML, and no variable is looked for in it. Before a reference two dollars stand for one,
//! so `$${NAME}` is the text `${NAME}`.
//!
//! Some texts have variables of a request, or captures, and there two dollars stand for one anyway. Such a text is
//! expanded as a *template*: its pairs of dollars stay, and each dollar that comes in becomes a pair.

use core::fmt;
use std::borrow::Cow;
use std::collections::HashMap;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::message::{Notes, Span};

/// The maximum of bytes of a file whose content is a value.
pub(super) const FILE_BYTES_MAX: u64 = 64 * 1024;
/// The maximum of bytes of a text with the values that came in.
const TEXT_BYTES_MAX: usize = 1024 * 1024;

/// A part of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part<'a> {
    Text(&'a str),
    /// The number of pairs of dollars before a reference.
    Pairs(usize),
    Reference(Reference<'a>),
}

/// A value that comes from elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reference<'a> {
    /// A variable of the environment, and the value if it is not set or empty.
    Variable { name: &'a str, default: Option<&'a str> },
    /// The content of a file.
    File(&'a str),
}

impl fmt::Display for Reference<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Variable { name, .. } => write!(f, "`${{{name}}}`"),
            Self::File(path) => write!(f, "`${{file:{path}}}`"),
        }
    }
}

/// A text of a file of the configuration that was expanded.
#[derive(Debug)]
pub(super) struct Expanded {
    /// The text, expanded as a template; `None` if that failed, which was reported.
    pub(super) template: Option<String>,
    /// True if the content of a file is in it.
    pub(super) is_secret: bool,
}

/// The texts of a file that were expanded.
#[derive(Debug, Default)]
pub(super) struct Texts {
    /// The key is the offset at which the text begins.
    by_start: HashMap<usize, Expanded>,
    has_secrets: bool,
}

impl Texts {
    /// The text that begins at an offset, if it was expanded.
    pub(super) fn get(&self, start: usize) -> Option<&Expanded> {
        self.by_start.get(&start)
    }

    /// Returns true if the content of another file is in one of them.
    pub(super) const fn has_secrets(&self) -> bool {
        self.has_secrets
    }

    fn insert(&mut self, start: usize, expanded: Expanded) {
        self.has_secrets |= expanded.is_secret;
        self.by_start.insert(start, expanded);
    }
}

/// Expands all texts of a file, as those that are no templates. `find` returns the value of a reference, or a sentence for
/// the operator.
pub(super) fn expand(
    table: &mut DeTable<'_>,
    file: usize,
    notes: &mut Notes,
    find: &mut dyn FnMut(Reference<'_>) -> Result<String, String>,
) -> Texts {
    let mut texts = Texts::default();
    for (_, value) in table.iter_mut() {
        expand_value(value, file, notes, find, &mut texts);
    }
    texts
}

fn expand_value(
    value: &mut Spanned<DeValue<'_>>,
    file: usize,
    notes: &mut Notes,
    find: &mut dyn FnMut(Reference<'_>) -> Result<String, String>,
    texts: &mut Texts,
) {
    let span = value.span();
    match value.get_mut() {
        DeValue::String(text) => {
            let (plain, expanded) = match expand_text(text, find) {
                Ok(None) => return,
                Ok(Some(Both { plain, template, is_secret, references })) => {
                    notes.note_came_in(Span::new(file, span.clone()), references.join(", "));
                    (Some(plain), Expanded { template: Some(template), is_secret })
                }
                Err(why) => {
                    notes.error(Span::new(file, span.clone()), why);
                    (None, Expanded { template: None, is_secret: false })
                }
            };
            if let Some(plain) = plain {
                *text = Cow::Owned(plain);
            }
            texts.insert(span.start, expanded);
        }
        DeValue::Array(array) => {
            for value in array.iter_mut() {
                expand_value(value, file, notes, find, texts);
            }
        }
        DeValue::Table(table) => {
            for (_, value) in table.iter_mut() {
                expand_value(value, file, notes, find, texts);
            }
        }
        DeValue::Integer(_) | DeValue::Float(_) | DeValue::Boolean(_) | DeValue::Datetime(_) => {}
    }
}

/// A text that was expanded in both ways.
#[derive(Debug, PartialEq, Eq)]
struct Both {
    plain: String,
    template: String,
    is_secret: bool,
    /// The references as messages show them, such as `` `${PORT}` ``; a default is left out.
    references: Vec<String>,
}

/// Expands a text; `None` if it has nothing to expand.
fn expand_text(
    text: &str,
    find: &mut dyn FnMut(Reference<'_>) -> Result<String, String>,
) -> Result<Option<Both>, String> {
    if !text.contains("${") {
        return Ok(None);
    }
    let parts = parts(text)?;
    if parts.iter().all(|part| matches!(part, Part::Text(_))) {
        return Ok(None);
    }
    let mut both = Both {
        plain: String::new(),
        template: String::new(),
        is_secret: false,
        references: Vec::new(),
    };
    for part in parts {
        match part {
            Part::Text(text) => {
                both.plain.push_str(text);
                both.template.push_str(text);
            }
            Part::Pairs(pairs) => {
                both.plain.extend(core::iter::repeat_n('$', pairs));
                both.template.extend(core::iter::repeat_n("$$", pairs));
            }
            Part::Reference(reference) => {
                let value = find(reference)?;
                both.is_secret |= matches!(reference, Reference::File(_));
                both.references.push(reference.to_string());
                both.plain.push_str(&value);
                both.template.push_str(&value.replace('$', "$$"));
            }
        }
        if both.plain.len() > TEXT_BYTES_MAX {
            return Err("a text has 1 MiB at most, with the values that it takes".to_owned());
        }
    }
    Ok(Some(both))
}

/// Splits a text into its parts.
fn parts(text: &str) -> Result<Vec<Part<'_>>, String> {
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        let (before, behind) = rest.split_at(at);
        let dollars = behind.bytes().take_while(|byte| *byte == b'$').count();
        let (run, behind) = behind.split_at(dollars);
        parts.push(Part::Text(before));
        rest = behind;
        if !begins_reference(behind) {
            parts.push(Part::Text(run));
            continue;
        }
        if dollars > 1 {
            parts.push(Part::Pairs(dollars / 2));
        }
        if dollars % 2 == 1 {
            let (inside, behind) = behind[1..].split_once('}').ok_or_else(|| {
                format!("expected `}}` behind `${behind}`; `$${{` stands for a dollar and a brace")
            })?;
            parts.push(Part::Reference(reference(inside)?));
            rest = behind;
        }
    }
    parts.push(Part::Text(rest));
    parts.retain(|part| *part != Part::Text(""));
    Ok(parts)
}

/// Returns whether a text after a dollar begins with a brace and a name that is no variable of a request.
fn begins_reference(text: &str) -> bool {
    let Some(inside) = text.strip_prefix('{') else { return false };
    inside.starts_with("file:") || inside.starts_with(|c: char| c.is_ascii_uppercase() || c == '_')
}

/// Reads a reference without its braces.
fn reference(inside: &str) -> Result<Reference<'_>, String> {
    if let Some(path) = inside.strip_prefix("file:") {
        if path.is_empty() {
            return Err("expected the name of a file behind `${file:`".to_owned());
        }
        return Ok(Reference::File(path));
    }
    let (name, default) = match inside.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (inside, None),
    };
    if default.is_some_and(|default| default.contains("${")) {
        return Err(format!(
            "`${{{name}:-…}}`: a default has no references of its own: set `{name}`, or write the value"
        ));
    }
    let is_plain = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
    if !name.bytes().all(is_plain) {
        return Err(format!(
            "`${{{inside}}}`: a variable of the environment has capitals, digits and underscores, and its default \
             stands behind `:-`; one of a request has small letters"
        ));
    }
    Ok(Reference::Variable { name, default })
}

/// Returns a text that becomes this one when it is expanded: with two dollars before what would be a reference.
pub(super) fn literal(text: &str) -> Cow<'_, str> {
    if !text.contains("${") {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 8);
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        let dollars = rest[at..].bytes().take_while(|byte| *byte == b'$').count();
        let (before, behind) = rest.split_at(at + dollars);
        out.push_str(before);
        if begins_reference(behind) {
            out.extend(core::iter::repeat_n('$', dollars));
        }
        rest = behind;
    }
    out.push_str(rest);
    Cow::Owned(out)
}

const _: () = assert!(TEXT_BYTES_MAX == 1 << 20 && FILE_BYTES_MAX == 64 << 10, "messages say so");

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn both(text: &str) -> Result<Option<(String, String)>, String> {
        let mut find = |reference: Reference<'_>| match reference {
            Reference::Variable { name: "PORT", .. } => Ok("8000".to_owned()),
            Reference::Variable { name: "_A1", .. } => Ok("$x${PORT}".to_owned()),
            Reference::Variable { default: Some(default), .. } => Ok(default.to_owned()),
            Reference::Variable { name, .. } => Err(format!("no {name}")),
            Reference::File(path) => Ok(format!("<{path}>")),
        };
        let found = expand_text(text, &mut find)?;
        Ok(found.map(|Both { plain, template, .. }| (plain, template)))
    }

    #[test]
    fn references_are_replaced_and_what_comes_in_is_a_value() {
        for (text, plain, template) in [
            ("${PORT}", "8000", "8000"),
            (":${PORT}/$client", ":8000/$client", ":8000/$client"),
            ("${PORT}${PORT}", "80008000", "80008000"),
            ("${_A1}", "$x${PORT}", "$$x$${PORT}"),
            ("${NO:-}", "", ""),
            ("${NO:-a:-b}", "a:-b", "a:-b"),
            ("${NO:-$$}", "$$", "$$$$"),
            ("${file:/run/a b}", "</run/a b>", "</run/a b>"),
            ("$${PORT}", "${PORT}", "$${PORT}"),
            ("$$${PORT}", "$8000", "$$8000"),
            ("$$$${PORT}", "$${PORT}", "$$$${PORT}"),
            ("$${file:x}", "${file:x}", "$${file:x}"),
            ("$$ $${PORT}", "$$ ${PORT}", "$$ $${PORT}"),
            ("ä${PORT}ä", "ä8000ä", "ä8000ä"),
        ] {
            let expected = (plain.to_owned(), template.to_owned());
            assert_eq!(both(text), Ok(Some(expected)), "{text}");
        }
        for text in ["", "a", "$", "$PORT", "${client}", "$$", "${", "${}", "{PORT}", "$ {PORT}"] {
            assert_eq!(both(text), Ok(None), "{text}");
        }
        for (text, why) in [
            ("${NO}", "no NO"),
            ("a ${PORT", "expected `}` behind `${PORT`"),
            ("${Port}", "capitals, digits and underscores"),
            ("${PORT-1}", "capitals, digits and underscores"),
            ("${file:}", "the name of a file"),
            ("${NO:-${PORT}}", "`${NO:-…}`: a default has no references of its own"),
        ] {
            let error = both(text).expect_err(text);
            assert!(error.contains(why), "{text}: {error}");
        }
        let long = "${_A1}".repeat(TEXT_BYTES_MAX / 8);
        assert!(both(&long).is_err_and(|why| why.contains("1 MiB")));
    }

    proptest! {
        #[test]
        fn a_literal_text_becomes_itself(text in r"(\$|\{|\}|A|a|file:|:-){0,12}") {
            let expanded = both(&literal(&text)).expect("no reference is in it");
            prop_assert_eq!(expanded.map_or_else(|| literal(&text).into_owned(), |both| both.0), text);
        }
    }
}
