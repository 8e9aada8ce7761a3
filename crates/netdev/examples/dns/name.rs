//! Domain names in wire format (RFC 1035, 3.1).

/// Bytes of the longest name.
pub(crate) const NAME_BYTES_MAX: usize = 255;
/// Bytes of the longest label.
const LABEL_BYTES_MAX: usize = 63;

/// An absolute domain name: its labels with a length before each, the empty label of the root last.
///
/// A length is less than the code of any letter, so the case of a name can be changed without parsing.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Name(Vec<u8>);

impl Name {
    /// The root.
    pub(crate) fn root() -> Self {
        Self(vec![0])
    }

    /// Parses a name as a zone file has it (RFC 1035, 5.1): `@` is the origin, and a name without a dot at its end
    /// is relative to it.
    pub(crate) fn parse(text: &[u8], origin: &Self) -> Result<Self, &'static str> {
        match text {
            b"@" => return Ok(origin.clone()),
            b"." => return Ok(Self::root()),
            b"" => return Err("an empty name"),
            _ => {}
        }
        let mut bytes = vec![0];
        let mut length_at = 0;
        let mut rest = text;
        while let Some((byte, is_escaped, behind)) = unescape(rest)? {
            rest = behind;
            if byte != b'.' || is_escaped {
                bytes.push(byte);
                continue;
            }
            end_label(&mut bytes, length_at)?;
            length_at = bytes.len();
            bytes.push(0);
        }
        if bytes.len() > length_at + 1 {
            end_label(&mut bytes, length_at)?;
            bytes.extend(&origin.0);
        }
        if bytes.len() > NAME_BYTES_MAX {
            return Err("a name of more than 255 bytes");
        }
        Ok(Self(bytes))
    }

    /// The name in wire format.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// The same name in lower case, for comparing (RFC 4343).
    pub(crate) fn lowercase(&self) -> Self {
        Self(self.0.to_ascii_lowercase())
    }

    /// The name without its first label; `None` for the root.
    pub(crate) fn parent(&self) -> Option<Self> {
        suffixes(&self.0).nth(1).map(|(_, parent)| Self(parent.to_vec()))
    }

    /// The wildcard below the name (RFC 4592, 2.1.1).
    pub(crate) fn wildcard(&self) -> Self {
        Self([b"\x01*", &self.0[..]].concat())
    }

    /// Returns whether this name is `other` or below it. Both are in lower case.
    pub(crate) fn is_within(&self, other: &Self) -> bool {
        suffixes(&self.0).any(|(_, suffix)| suffix == other.0)
    }
}

/// Writes the length of a complete label.
fn end_label(bytes: &mut [u8], length_at: usize) -> Result<(), &'static str> {
    let length = bytes.len() - length_at - 1;
    if length == 0 {
        return Err("an empty label");
    }
    if length > LABEL_BYTES_MAX {
        return Err("a label of more than 63 bytes");
    }
    bytes[length_at] = u8::try_from(length).expect("at most 63");
    Ok(())
}

/// The suffixes of a name in wire format, from the name itself to the root, with their positions.
pub(crate) fn suffixes(name: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let mut at = Some(0);
    core::iter::from_fn(move || {
        let here = at?;
        let length = usize::from(*name.get(here)?);
        at = (length > 0).then_some(here + 1 + length);
        Some((here, &name[here..]))
    })
}

/// Bytes of the name at the begin of a message's part, its end included; `None` if it is cut off, too long, or
/// compressed.
pub(crate) fn length(bytes: &[u8]) -> Option<usize> {
    let mut at = 0;
    while at < NAME_BYTES_MAX {
        let length = usize::from(*bytes.get(at)?);
        at += 1 + length;
        match length {
            0 => return Some(at),
            1..=LABEL_BYTES_MAX => {}
            _ => return None,
        }
    }
    None
}

/// A byte of a zone file with its escape resolved (`\X`, `\DDD`), true if it was escaped, and the text after it.
#[expect(clippy::type_complexity, reason = "three results that belong together for one line each")]
pub(crate) fn unescape(text: &[u8]) -> Result<Option<(u8, bool, &[u8])>, &'static str> {
    const WRONG: &str =
        "an escape that is neither \\DDD, at most 255, nor a backslash and a character";
    match text {
        [] => Ok(None),
        [b'\\', a @ b'0'..=b'9', b @ b'0'..=b'9', c @ b'0'..=b'9', rest @ ..] => {
            let digit = |digit: &u8| u16::from(digit - b'0');
            let code = digit(a) * 100 + digit(b) * 10 + digit(c);
            Ok(Some((u8::try_from(code).map_err(|_| WRONG)?, true, rest)))
        }
        [b'\\', b'0'..=b'9', ..] | [b'\\'] => Err(WRONG),
        [b'\\', byte, rest @ ..] => Ok(Some((*byte, true, rest))),
        [byte, rest @ ..] => Ok(Some((*byte, false, rest))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Vec<u8>, &'static str> {
        let origin = Name::parse(b"example.org.", &Name::root()).unwrap();
        Name::parse(text.as_bytes(), &origin).map(|name| name.0)
    }

    #[test]
    fn a_name_is_parsed_relative_to_the_origin() {
        assert_eq!(parse("@").unwrap(), b"\x07example\x03org\0");
        assert_eq!(parse("a.B").unwrap(), b"\x01a\x01B\x07example\x03org\0");
        assert_eq!(parse("a.b.").unwrap(), b"\x01a\x01b\0");
        assert_eq!(parse(".").unwrap(), b"\0");
        assert_eq!(parse(r"a\.b\046\@.").unwrap(), b"\x05a.b.@\0");
    }

    #[test]
    fn a_wrong_name_is_an_error() {
        let long_label = "a".repeat(64);
        let long_name = "a.".repeat(127) + "b";
        for wrong in ["", "..", "a..b", ".a", r"a\", r"a\25", r"a\256", &long_label, &long_name] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        assert!(parse(&"a".repeat(63)).is_ok());
        assert_eq!(parse(&"a.".repeat(127)).unwrap().len(), 255);
    }

    #[test]
    fn a_name_is_within_itself_and_those_above() {
        let name = |text: &str| Name(parse(text).unwrap());
        assert!(name("a.b").is_within(&name("b")));
        assert!(name("b").is_within(&name("b")));
        assert!(name("b").is_within(&Name::root()));
        assert!(!name("b").is_within(&name("a.b")));
        assert!(!name("ab").is_within(&name("b")));
    }

    #[test]
    fn the_length_of_a_name_in_a_message() {
        assert_eq!(length(b"\x01a\x02bc\0rest"), Some(6));
        assert_eq!(length(b"\0"), Some(1));
        assert_eq!(length(b"\x01a\x02bc"), None, "cut off");
        assert_eq!(length(b"\x01a\xc0\x0c"), None, "compressed");
        assert_eq!(length(&[b"\x01a".repeat(127), vec![0]].concat()), Some(255));
        assert_eq!(length(&[b"\x01a".repeat(128), vec![0]].concat()), None, "too long");
    }
}
