//! The text of one directive, between `<!--#` and `-->`.
//!
//! ```text
//! directive = space* command (space+ name space* "=" space* value)* space*
//! value     = '"' … '"' | "'" … "'" | "`" … "`" | word
//! ```
//!
//! Within quotes, a backslash before the quote stands for the quote itself.

/// Values that a directive has at most.
const VALUES_MAX: usize = 3;

/// A directive in evaluated form. Values are unchanged: variables in them are not replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Directive {
    /// The response to another path of the site.
    Include(Reference),
    /// The value of a variable.
    Echo { name: Box<[u8]>, encoding: Encoding, default: Option<Box<[u8]>> },
    /// A variable gets a value.
    Set { name: Box<[u8]>, value: Box<[u8]> },
    /// The following text is for requests for which the condition is true.
    If(Box<[u8]>),
    /// The following text is for the other requests for which this condition is true.
    Elif(Box<[u8]>),
    /// The following text is for all other requests.
    Else,
    /// The following text is for all requests again.
    Endif,
    /// The error message or the form of times is changed.
    Config { errmsg: Option<Box<[u8]>>, timefmt: Option<Box<[u8]>> },
    /// A directive that cannot be understood.
    Malformed,
}

/// The way in which an include names what it includes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reference {
    /// A path of the site, perhaps with a query; without a slash at the beginning it is relative to the page.
    Virtual(Box<[u8]>),
    /// A file in the directory of the page, or below it.
    File(Box<[u8]>),
}

/// The form in which the value of a variable is put into the page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Encoding {
    /// As it is.
    None,
    /// As a part of a URL.
    Url,
    /// As text of HTML, within quotes, too.
    #[default]
    Entity,
}

impl Directive {
    /// Reads a directive.
    pub(super) fn parse(text: &[u8]) -> Self {
        Self::read(text).unwrap_or(Self::Malformed)
    }

    fn read(text: &[u8]) -> Option<Self> {
        let (command, rest) = split_word(text.trim_ascii());
        let mut values = Values::read(rest)?;
        let directive = match &command.to_ascii_lowercase()[..] {
            b"include" => {
                // Includes are always sent in order, so `wait` needs no action.
                values.take(b"wait");
                Self::Include(match (values.take(b"virtual"), values.take(b"file")) {
                    (Some(path), None) => Reference::Virtual(path),
                    (None, Some(path)) => Reference::File(path),
                    _ => return None,
                })
            }
            b"echo" => Self::Echo {
                name: values.take(b"var")?,
                encoding: match values.take(b"encoding").as_deref() {
                    None | Some(b"entity") => Encoding::Entity,
                    Some(b"none") => Encoding::None,
                    Some(b"url") => Encoding::Url,
                    Some(_) => return None,
                },
                default: values.take(b"default"),
            },
            b"set" => Self::Set { name: values.take(b"var")?, value: values.take(b"value")? },
            b"if" => Self::If(values.take(b"expr")?),
            b"elif" => Self::Elif(values.take(b"expr")?),
            b"else" => Self::Else,
            b"endif" => Self::Endif,
            b"config" => {
                let (errmsg, timefmt) = (values.take(b"errmsg"), values.take(b"timefmt"));
                if errmsg.is_none() && timefmt.is_none() {
                    return None;
                }
                Self::Config { errmsg, timefmt }
            }
            _ => return None,
        };
        values.0.is_empty().then_some(directive)
    }

    /// The bytes of memory that it keeps in addition to itself.
    pub(super) fn memory(&self) -> usize {
        let len = |text: &Option<Box<[u8]>>| text.as_ref().map_or(0, |text| text.len());
        match self {
            Self::Include(Reference::Virtual(text) | Reference::File(text))
            | Self::If(text)
            | Self::Elif(text) => text.len(),
            Self::Echo { name, default, .. } => name.len() + len(default),
            Self::Set { name, value } => name.len() + value.len(),
            Self::Config { errmsg, timefmt } => len(errmsg) + len(timefmt),
            Self::Else | Self::Endif | Self::Malformed => 0,
        }
    }
}

/// The values of a directive by their names, in lower case.
struct Values(Vec<(Vec<u8>, Box<[u8]>)>);

impl Values {
    fn read(mut rest: &[u8]) -> Option<Self> {
        let mut values = Self(Vec::new());
        while !rest.is_empty() {
            let end = rest.iter().position(|byte| *byte == b'=')?;
            let name = rest[..end].trim_ascii().to_ascii_lowercase();
            if name.is_empty() || !name.iter().all(u8::is_ascii_alphabetic) {
                return None;
            }
            let (value, behind) = split_value(rest[end + 1..].trim_ascii_start())?;
            if values.0.len() == VALUES_MAX || values.0.iter().any(|(other, _)| *other == name) {
                return None;
            }
            values.0.push((name, value));
            rest = behind.trim_ascii_start();
        }
        Some(values)
    }

    fn take(&mut self, name: &[u8]) -> Option<Box<[u8]>> {
        let place = self.0.iter().position(|(other, _)| other == name)?;
        Some(self.0.swap_remove(place).1)
    }
}

/// Splits a text at the first space.
fn split_word(text: &[u8]) -> (&[u8], &[u8]) {
    let end = text.iter().position(u8::is_ascii_whitespace).unwrap_or(text.len());
    (&text[..end], text[end..].trim_ascii_start())
}

/// Splits a value off, which ends at its quote or at a space.
fn split_value(text: &[u8]) -> Option<(Box<[u8]>, &[u8])> {
    let Some(quote) = text.first().copied().filter(|byte| is_quote(*byte)) else {
        let (word, rest) = split_word(text);
        let is_plain = !word.is_empty() && !word.iter().any(|byte| is_quote(*byte));
        return is_plain.then(|| (word.into(), rest));
    };
    let (mut value, mut at) = (Vec::new(), 1);
    loop {
        match (*text.get(at)?, text.get(at + 1)) {
            (b'\\', Some(next)) => {
                if *next != quote {
                    value.push(b'\\');
                }
                value.push(*next);
                at += 2;
            }
            (byte, _) if byte == quote => break,
            (byte, _) => {
                value.push(byte);
                at += 1;
            }
        }
    }
    let rest = &text[at + 1..];
    // Something must separate it from the next name.
    rest.first().is_none_or(u8::is_ascii_whitespace).then(|| (value.into(), rest))
}

/// Returns whether a byte is one of the three quotes of values.
pub(super) const fn is_quote(byte: u8) -> bool {
    matches!(byte, b'"' | b'\'' | b'`')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directive_is_read() {
        let boxed = |text: &str| Box::<[u8]>::from(text.as_bytes());
        let virtual_path = |text: &str| Directive::Include(Reference::Virtual(boxed(text)));
        let echo = |name: &str, encoding, default: Option<&str>| Directive::Echo {
            name: boxed(name),
            encoding,
            default: default.map(boxed),
        };
        for (text, expected) in [
            (r#"include virtual="/a?b=c" "#, virtual_path("/a?b=c")),
            (r#" Include  VIRTUAL = "/a" "#, virtual_path("/a")),
            ("include virtual='/a \"b\"'", virtual_path("/a \"b\"")),
            ("include virtual=`/a`", virtual_path("/a")),
            ("include virtual=/a", virtual_path("/a")),
            (r#"include virtual="/a" wait="yes""#, virtual_path("/a")),
            (r#"include virtual="a\"b\\c\$d""#, virtual_path(r#"a"b\\c\$d"#)),
            ("include\nfile=\"a\"", Directive::Include(Reference::File(boxed("a")))),
            (r#"echo var="A""#, echo("A", Encoding::Entity, None)),
            (r#"echo var="A" encoding="none""#, echo("A", Encoding::None, None)),
            (r#"echo encoding="url" var="A" default="""#, echo("A", Encoding::Url, Some(""))),
            (r#"set var="a" value="""#, Directive::Set { name: boxed("a"), value: boxed("") }),
            (r#"if expr="$a = b""#, Directive::If(boxed("$a = b"))),
            (r#"elif expr="$a""#, Directive::Elif(boxed("$a"))),
            ("else", Directive::Else),
            (" endif ", Directive::Endif),
            (
                r#"config timefmt="%Y""#,
                Directive::Config { errmsg: None, timefmt: Some(boxed("%Y")) },
            ),
        ] {
            assert_eq!(Directive::parse(text.as_bytes()), expected, "{text}");
        }
        for text in [
            "",
            "include",
            "include virtual",
            "include virtual=",
            r#"include virtual="/a"#,
            r#"include virtual="/a"x"#,
            r#"include virtual="/a" file="a""#,
            r#"include virtual="/a" virtual="/b""#,
            r#"include virtual="/a" stub="b""#,
            r#"include virtual=/a"b""#,
            r#"echo var="A" encoding="rot13""#,
            "echo",
            r#"set var="a""#,
            r#"echo var="A" encoding="url" default="" more="b""#,
            r#"else expr="$a""#,
            "if",
            "config",
            r#"exec cmd="ls""#,
            r#"block name="a""#,
            "= =",
        ] {
            assert_eq!(Directive::parse(text.as_bytes()), Directive::Malformed, "{text}");
        }
    }
}
