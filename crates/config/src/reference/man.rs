//! Turns the reference into a man page: `samum.toml(5)`, in the macros of man(7).
//!
//! The reference has a small part of Markdown: headings, paragraphs, lists of one level, fenced code, **bold** text, `code` and links.

use core::fmt::Write as _;

use super::markdown;

/// The title, and the section that each man page begins with.
const HEADER: &str = ".TH samum.toml 5 \"\" samum\n.SH NAME\nsamum.toml \\- configuration of the samum file server\n.SH DESCRIPTION\n";

/// Returns the reference as a man page.
#[must_use]
pub fn man() -> String {
    page(&markdown())
}

/// The macro that the next text line follows.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Block {
    /// Nothing has come since the last heading.
    Begin,
    Paragraph,
    /// An element of a list, or a key.
    Item,
    /// Between two fences.
    Code,
}

fn page(markdown: &str) -> String {
    let mut out = HEADER.to_owned();
    let mut block = Block::Begin;
    // The title of the document is that of the page.
    for line in markdown.lines().skip_while(|line| line.starts_with("# ") || line.is_empty()) {
        if line.starts_with("```") {
            let is_end = block == Block::Code;
            out.push_str(if is_end { ".EE\n.RE\n" } else { ".PP\n.RS 4\n.EX\n" });
            block = if is_end { Block::Paragraph } else { Block::Code };
        } else if block == Block::Code {
            push_text(&mut out, line, escape);
        } else if line.starts_with("<!--") {
            // A note for those who change the document.
        } else if let Some(title) = line.strip_prefix("## ") {
            let _ = writeln!(out, ".SH {}", inline(title));
            block = Block::Begin;
        } else if line.is_empty() {
            if block != Block::Begin {
                block = Block::Paragraph;
                out.push_str(".PP\n");
            }
        } else if let Some(item) = line.strip_prefix("- ") {
            out.truncate(out.trim_end_matches(".PP\n").len());
            match item.split_once("**: ").filter(|_| item.starts_with("**`")) {
                // A key of the configuration, with its kind, default and example.
                Some((key, facts)) => {
                    let key = key.trim_start_matches("**`").trim_end_matches('`');
                    let _ = write!(out, ".TP\n\\fB{}\\fR\n", escape(key));
                    push_text(&mut out, facts.trim_end(), inline);
                    out.push_str(".br\n");
                }
                None => {
                    out.push_str(".IP \\(bu 2\n");
                    push_text(&mut out, item, inline);
                }
            }
            block = Block::Item;
        } else {
            push_text(&mut out, line.trim(), inline);
            if block == Block::Begin {
                block = Block::Paragraph;
            }
        }
    }
    out
}

/// Adds a line of text. One that begins as a macro does is marked as text (groff(7), "Control characters").
fn push_text(out: &mut String, line: &str, form: impl Fn(&str) -> String) {
    let text = form(line);
    if text.starts_with(['.', '\'']) {
        out.push_str("\\&");
    }
    out.push_str(&text);
    out.push('\n');
}

/// Escapes what is special anywhere in a line: the backslash, and the hyphen, which would become a typographic one.
fn escape(text: &str) -> String {
    text.replace('\\', "\\e").replace('-', "\\-")
}

/// Translates bold text, code and links within a line.
fn inline(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(['`', '*', '[', '\\']) {
        out.push_str(&escape(&rest[..at]));
        rest = &rest[at..];
        let (markup, behind) = match rest.as_bytes() {
            [b'`', ..] => match rest[1..].split_once('`') {
                Some((code, behind)) => (format!("\\fB{}\\fR", escape(code)), behind),
                None => ("`".to_owned(), &rest[1..]),
            },
            [b'*', b'*', ..] => match rest[2..].split_once("**") {
                Some((bold, behind)) => {
                    (format!("\\fB{}\\fR", escape(bold.trim_matches('`'))), behind)
                }
                None => ("**".to_owned(), &rest[2..]),
            },
            // A link: its text is enough, its file is not where the page is read.
            [b'[', ..] => match rest[1..].split_once("](").and_then(|(name, behind)| {
                (!name.contains('[')).then_some((name, behind.split_once(')')?.1))
            }) {
                Some((name, behind)) => (escape(name), behind),
                None => ("[".to_owned(), &rest[1..]),
            },
            [b'\\', b'[', ..] => ("[".to_owned(), &rest[2..]),
            [b'\\', ..] => ("\\e".to_owned(), &rest[1..]),
            _ => ("*".to_owned(), &rest[1..]),
        };
        out.push_str(&markup);
        rest = behind;
    }
    out + &escape(rest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys;

    #[test]
    fn markdown_becomes_macros() {
        for (markdown, macros) in [
            ("# Title\n\nText with `a-b`.\nMore.\n", "Text with \\fBa\\-b\\fR.\nMore.\n"),
            ("## Keys of `x`\n\n.dot\n", ".SH Keys of \\fBx\\fR\n\\&.dot\n"),
            (
                "a\n\n- one\n- two [x](y.md)\n\nb\n",
                "a\n.IP \\(bu 2\none\n.IP \\(bu 2\ntwo x\n.PP\nb\n",
            ),
            (
                "- **`k`**: path. Default: `1`.  \n  Text.\n",
                ".TP\n\\fBk\\fR\npath. Default: \\fB1\\fR.\n.br\nText.\n",
            ),
            (
                "```toml\n[a]\n.b = 'c\\d'\n```\n",
                ".PP\n.RS 4\n.EX\n[a]\n\\&.b = 'c\\ed'\n.EE\n.RE\n",
            ),
            ("**a** \\[b] * [c\n", "\\fBa\\fR [b] * [c\n"),
            ("<!-- note -->\n", ""),
        ] {
            assert_eq!(page(markdown), HEADER.to_owned() + macros, "{markdown}");
        }
    }

    /// Each line that begins with a dot is one of the macros above, and each key has its paragraph.
    #[test]
    fn the_page_has_all_keys_and_only_known_macros() {
        let page = man();
        for line in page.lines().filter(|line| line.starts_with(['.', '\''])) {
            let name = line.split(' ').next().unwrap_or_default();
            let known = [".TH", ".SH", ".PP", ".TP", ".IP", ".br", ".RS", ".RE", ".EX", ".EE"];
            assert!(known.contains(&name), "{line}");
        }
        for row in keys::sections().iter().flat_map(|section| &section.rows) {
            assert!(page.contains(&format!(".TP\n\\fB{}\\fR\n", escape(row.name))), "{}", row.name);
        }
        assert!(!page.contains("](") && !page.contains("**"));
    }
}
