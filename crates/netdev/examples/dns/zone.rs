//! Parses a zone file (RFC 1035, 5; RFC 2308, 4; RFC 3597, 5) into records.

use core::fmt;
use core::net::{Ipv4Addr, Ipv6Addr};

use crate::name::{self, Name};

/// Types of records (RFC 1035, 3.2.2).
pub(crate) mod kind {
    pub(crate) const A: u16 = 1;
    pub(crate) const NS: u16 = 2;
    pub(crate) const CNAME: u16 = 5;
    pub(crate) const SOA: u16 = 6;
    pub(crate) const PTR: u16 = 12;
    pub(crate) const MX: u16 = 15;
    pub(crate) const TXT: u16 = 16;
    pub(crate) const AAAA: u16 = 28;
    pub(crate) const OPT: u16 = 41;
    pub(crate) const DS: u16 = 43;
    /// The first type that occurs only in questions and messages.
    pub(crate) const META_FIRST: u16 = 128;
    pub(crate) const META_LAST: u16 = 255;
    pub(crate) const IXFR: u16 = 251;
    pub(crate) const AXFR: u16 = 252;
    pub(crate) const ANY: u16 = 255;
}

/// A record of the zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    /// The line of the file at which the record begins, from 1.
    pub(crate) line: usize,
    /// In lower case.
    pub(crate) owner: Name,
    pub(crate) kind: u16,
    pub(crate) ttl: u32,
    pub(crate) data: Vec<Part>,
}

/// A part of a record's data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Bytes(Vec<u8>),
    /// A name that a message may compress (RFC 3597, 4).
    Name(Name),
}

impl Record {
    /// The first name in the data, in lower case: the server of an NS, the target of a CNAME.
    pub(crate) fn target(data: &[Part]) -> Option<Name> {
        data.iter().find_map(|part| match part {
            Part::Name(name) => Some(name.lowercase()),
            Part::Bytes(_) => None,
        })
    }
}

/// An error in the zone.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Error {
    /// The line of the file, from 1.
    pub(crate) line: usize,
    pub(crate) reason: String,
}

impl Error {
    pub(crate) fn new(line: usize, reason: impl Into<String>) -> Self {
        Self { line, reason: reason.into() }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.line, self.reason)
    }
}

/// A line of the file, or several that parentheses join.
struct Entry<'a> {
    line: usize,
    /// True if the entry begins with a blank. Then the entry has the owner of the record before it.
    is_indented: bool,
    words: Vec<&'a [u8]>,
}

/// Cuts the next entry with words off the text. `line` is the number of the text's first line. A word in quotes
/// keeps its first quote, and every word keeps its escapes.
fn next_entry<'a>(text: &mut &'a [u8], line: &mut usize) -> Result<Option<Entry<'a>>, Error> {
    let begin = *line;
    let mut entry = Entry { line: begin, is_indented: false, words: Vec::new() };
    let mut depth = 0_usize;
    let mut is_first = true;
    while let &[byte, ref rest @ ..] = *text {
        match byte {
            b'\n' => {
                *text = rest;
                *line += 1;
                if depth == 0 && !entry.words.is_empty() {
                    return Ok(Some(entry));
                }
                if depth == 0 {
                    entry = Entry { line: *line, is_indented: false, words: Vec::new() };
                    is_first = true;
                    continue;
                }
            }
            b' ' | b'\t' | b'\r' => {
                entry.is_indented |= is_first;
                *text = rest;
            }
            b'(' => {
                depth += 1;
                *text = rest;
            }
            b')' => {
                depth =
                    depth.checked_sub(1).ok_or_else(|| Error::new(*line, "a ) without its ("))?;
                *text = rest;
            }
            b';' => {
                let end = text.iter().position(|byte| *byte == b'\n').unwrap_or(text.len());
                *text = &text[end..];
            }
            b'"' => {
                let length = word_length(rest, |byte| matches!(byte, b'"' | b'\n'));
                if rest.get(length) != Some(&b'"') {
                    return Err(Error::new(*line, "a \" without its end on the line"));
                }
                entry.words.push(&text[..=length]);
                *text = &rest[length + 1..];
            }
            _ => {
                let length = word_length(text, |byte| b" \t\r\n();\"".contains(&byte));
                entry.words.push(&text[..length]);
                *text = &text[length..];
            }
        }
        is_first = false;
    }
    if depth > 0 {
        return Err(Error::new(entry.line, "a ( without its )"));
    }
    Ok((!entry.words.is_empty()).then_some(entry))
}

/// The number of bytes in front of the byte that ends the word. A backslash escapes the next byte, but not the end
/// of a line.
fn word_length(text: &[u8], is_end: impl Fn(u8) -> bool) -> usize {
    let mut at = 0;
    while at < text.len() && !is_end(text[at]) {
        let escapes = text[at] == b'\\' && text.get(at + 1).is_some_and(|byte| *byte != b'\n');
        at += if escapes { 2 } else { 1 };
    }
    at
}

/// Parses a zone file.
///
/// # Errors
///
/// If the file is not a zone of this origin; the error names the first wrong entry.
pub(crate) fn parse(mut text: &[u8], origin: &Name) -> Result<Vec<Record>, Error> {
    let mut state =
        State { origin: origin.clone(), owner: None, default_ttl: None, last_ttl: None };
    let mut records = Vec::new();
    let mut line = 1;
    while let Some(entry) = next_entry(&mut text, &mut line)? {
        let error = |reason: String| Error::new(entry.line, reason);
        if let Some(record) = state.handle_entry(&entry).map_err(error)? {
            if !record.owner.is_within(&origin.lowercase()) {
                return Err(error("the owner is outside of the zone".into()));
            }
            records.push(record);
        }
    }
    Ok(records)
}

/// The defaults that the entries so far set for the next one.
struct State {
    origin: Name,
    owner: Option<Name>,
    /// `$TTL` (RFC 2308, 4).
    default_ttl: Option<u32>,
    /// The TTL of the record before. Without `$TTL`, a record without a TTL takes it (RFC 1035, 5.1).
    last_ttl: Option<u32>,
}

impl State {
    fn handle_entry(&mut self, entry: &Entry<'_>) -> Result<Option<Record>, String> {
        match &entry.words[..] {
            [b"$ORIGIN", origin] => {
                self.origin = Name::parse(origin, &self.origin)?;
                Ok(None)
            }
            [b"$TTL", ttl] => {
                self.default_ttl = Some(parse_ttl(ttl).ok_or("$TTL without a time")?);
                Ok(None)
            }
            [word, ..] if word.starts_with(b"$") => {
                Err(format!("{} is not supported, or has not one value", show(word)))
            }
            words => self.handle_record(entry, words).map(Some),
        }
    }

    fn handle_record(&mut self, entry: &Entry<'_>, mut words: &[&[u8]]) -> Result<Record, String> {
        if !entry.is_indented {
            self.owner = Some(Name::parse(words[0], &self.origin)?.lowercase());
            words = &words[1..];
        }
        let owner = self.owner.clone().ok_or("a record without an owner")?;
        let mut ttl = None;
        let (kind, values) = loop {
            let [word, rest @ ..] = words else { return Err("a record without a type".into()) };
            words = rest;
            if ttl.is_none()
                && let Some(own) = parse_ttl(word)
            {
                ttl = Some(own);
            } else if !word.eq_ignore_ascii_case(b"IN") {
                break (parse_kind(word)?, rest);
            }
        };
        let data = parse_data(kind, values, &self.origin)?;
        // The SOA may come before any TTL, because its last field was once the default TTL (RFC 2308, 4).
        let minimum = (kind == kind::SOA).then(|| soa_minimum(&data));
        let ttl = ttl.or(self.default_ttl).or(self.last_ttl).or(minimum);
        let ttl = ttl.ok_or("a record without a TTL, and no $TTL")?;
        self.last_ttl = Some(ttl);
        Ok(Record { line: entry.line, owner, kind, ttl, data })
    }
}

/// The last field of a SOA.
pub(crate) fn soa_minimum(data: &[Part]) -> u32 {
    match data.last() {
        Some(Part::Bytes(bytes)) => {
            let (_, minimum) = bytes.split_last_chunk().expect("five fields of four bytes");
            u32::from_be_bytes(*minimum)
        }
        _ => unreachable!("a SOA ends with its numbers"),
    }
}

/// Parses seconds, or numbers with BIND's units: `1h30m`. At most 2³¹ − 1 (RFC 2181, 8).
fn parse_ttl(word: &[u8]) -> Option<u32> {
    let mut total = 0_u32;
    let mut number = None;
    for byte in word {
        match byte {
            b'0'..=b'9' => {
                let digit = u32::from(byte - b'0');
                number = Some(number.unwrap_or(0_u32).checked_mul(10)?.checked_add(digit)?);
            }
            unit => {
                let seconds = match unit.to_ascii_lowercase() {
                    b's' => 1,
                    b'm' => 60,
                    b'h' => 60 * 60,
                    b'd' => 24 * 60 * 60,
                    b'w' => 7 * 24 * 60 * 60,
                    _ => return None,
                };
                total = total.checked_add(number.take()?.checked_mul(seconds)?)?;
            }
        }
    }
    let is_number = word.first()?.is_ascii_digit();
    let total = total.checked_add(number.unwrap_or(0))?;
    (is_number && total <= i32::MAX.cast_unsigned()).then_some(total)
}

fn parse_kind(word: &[u8]) -> Result<u16, String> {
    let upper = word.to_ascii_uppercase();
    let kind = match &upper[..] {
        b"A" => kind::A,
        b"NS" => kind::NS,
        b"CNAME" => kind::CNAME,
        b"SOA" => kind::SOA,
        b"PTR" => kind::PTR,
        b"MX" => kind::MX,
        b"TXT" => kind::TXT,
        b"AAAA" => kind::AAAA,
        // RFC 3597, 5.
        _ => match upper.strip_prefix(b"TYPE").and_then(number) {
            Some(0 | kind::OPT | kind::META_FIRST..=kind::META_LAST) | None => {
                return Err(format!("{} is no type of a record that is supported", show(word)));
            }
            Some(kind) => kind,
        },
    };
    Ok(kind)
}

fn parse_data(kind: u16, words: &[&[u8]], origin: &Name) -> Result<Vec<Part>, String> {
    let name = |word: &[u8]| Name::parse(word, origin).map(Part::Name);
    match (kind, words) {
        (kind::A, [address]) => {
            let address: Ipv4Addr = parse_text(address).ok_or("an A without an IPv4 address")?;
            Ok(vec![Part::Bytes(address.octets().to_vec())])
        }
        (kind::AAAA, [address]) => {
            let address: Ipv6Addr = parse_text(address).ok_or("an AAAA without an IPv6 address")?;
            Ok(vec![Part::Bytes(address.octets().to_vec())])
        }
        (kind::NS | kind::CNAME | kind::PTR, [target]) => Ok(vec![name(target)?]),
        (kind::MX, [preference, exchange]) => {
            let preference: u16 = number(preference).ok_or("an MX without its preference")?;
            Ok(vec![Part::Bytes(preference.to_be_bytes().to_vec()), name(exchange)?])
        }
        (kind::SOA, [primary, mailbox, serial, times @ ..]) if times.len() == 4 => {
            let mut numbers = Vec::new();
            let serial: u32 = number(serial).ok_or("the SOA's serial is no number")?;
            numbers.extend(serial.to_be_bytes());
            for time in times {
                numbers.extend(parse_ttl(time).ok_or("a wrong time in the SOA")?.to_be_bytes());
            }
            Ok(vec![name(primary)?, name(mailbox)?, Part::Bytes(numbers)])
        }
        (kind::TXT, [_, ..]) => {
            let strings: Result<Vec<_>, _> = words.iter().map(|word| parse_string(word)).collect();
            Ok(vec![Part::Bytes(strings?.concat())])
        }
        (kind::A | kind::AAAA | kind::NS | kind::CNAME | kind::PTR | kind::MX, _)
        | (kind::SOA | kind::TXT, _) => {
            Err("the record has not the number of values that its type wants".into())
        }
        (_, [br"\#", length, digits @ ..]) => {
            let bytes = parse_hex(&digits.concat()).ok_or("data that are no hex digits")?;
            if number(length) != Some(bytes.len()) {
                return Err("data of another length than announced".into());
            }
            Ok(vec![Part::Bytes(bytes)])
        }
        _ => Err(r"the type needs its data as \# LENGTH HEX".into()),
    }
}

/// Parses a character string, with quotes or without, and puts its length before it.
fn parse_string(word: &[u8]) -> Result<Vec<u8>, &'static str> {
    let mut rest = word.strip_prefix(b"\"").unwrap_or(word);
    let mut string = vec![0];
    while let Some((byte, _, behind)) = name::unescape(rest)? {
        string.push(byte);
        rest = behind;
    }
    string[0] = u8::try_from(string.len() - 1).map_err(|_| "a string of more than 255 bytes")?;
    Ok(string)
}

fn parse_hex(digits: &[u8]) -> Option<Vec<u8>> {
    let pairs = digits.chunks(2).map(|pair| {
        let is_hex = pair.len() == 2 && pair.iter().all(u8::is_ascii_hexdigit);
        is_hex.then(|| u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok())?
    });
    pairs.collect()
}

/// Parses a number of digits only.
fn number<T: core::str::FromStr>(word: &[u8]) -> Option<T> {
    word.iter().all(u8::is_ascii_digit).then(|| parse_text(word))?
}

fn parse_text<T: core::str::FromStr>(word: &[u8]) -> Option<T> {
    str::from_utf8(word).ok()?.parse().ok()
}

fn show(word: &[u8]) -> String {
    String::from_utf8_lossy(word).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        Name::parse(text.as_bytes(), &Name::root()).unwrap()
    }

    fn parse(text: &str) -> Result<Vec<Record>, Error> {
        super::parse(text.as_bytes(), &name("example.org."))
    }

    #[test]
    fn a_zone_of_every_form_is_parsed() {
        let text = r#"
$TTL 1h ; the default
@ IN SOA ns root\.mail ( 1 ; serial
   2m 3h 4d
   1w )
  NS ns
Www 5 IN A 192.0.2.1
    IN 6 AAAA 2001:db8::1
$ORIGIN sub.example.org.
t TXT "a; (b" c\"d "\065"
mail.example.org. MX 10 www.example.org.
x TYPE99 \# 3 ab cdEF
"#;
        let records = parse(text).unwrap();
        let shown: Vec<_> =
            records.iter().map(|record| (record.line, record.kind, record.ttl)).collect();
        assert_eq!(
            shown,
            [
                (3, 6, 3600),
                (6, 2, 3600),
                (7, 1, 5),
                (8, 28, 6),
                (10, 16, 3600),
                (11, 15, 3600),
                (12, 99, 3600)
            ]
        );
        assert_eq!(soa_minimum(&records[0].data), 604_800);
        assert_eq!(records[1].owner, name("example.org."));
        assert_eq!(records[3].owner, name("www.example.org."));
        assert_eq!(records[4].owner, name("t.sub.example.org."));
        assert_eq!(records[4].data, [Part::Bytes(b"\x05a; (b\x03c\"d\x01A".to_vec())]);
        assert_eq!(records[6].data, [Part::Bytes(vec![0xab, 0xcd, 0xef])]);
    }

    #[test]
    fn an_error_names_its_line() {
        for (line, text) in [
            (1, "a A 192.0.2.1"),
            (1, " 5 A 192.0.2.1"),
            (2, "$TTL 5\na A 192.0.2"),
            (2, "$TTL 5\na A 192.0.2.1 x"),
            (2, "$TTL 5\na.org. A 192.0.2.1"),
            (2, "$TTL 5\na WHAT 1"),
            (2, "$TTL 5\na"),
            (2, "$TTL 5\na TYPE41 \\# 0"),
            (2, "$TTL 5\na TYPE300 \\# 2 aa"),
            (2, "$TTL 5\na TYPE300 \\# 1 a"),
            (2, "$TTL 5\na CH A 192.0.2.1"),
            (2, "$TTL 5\na TXT \"a\nb\""),
            (2, "$TTL 5\na ( A\n192.0.2.1"),
            (1, ")"),
            (1, "$INCLUDE file"),
            (1, "$TTL 9999999999"),
        ] {
            assert_eq!(parse(text).unwrap_err().line, line, "{text}");
        }
    }

    #[test]
    fn times_have_units() {
        for (text, time) in [
            ("0", Some(0)),
            ("1h30M", Some(5400)),
            ("2w1", Some(1_209_601)),
            ("2147483647", Some(2_147_483_647)),
            ("2147483648", None),
            ("", None),
            ("h", None),
            ("1hh", None),
            ("1y", None),
        ] {
            assert_eq!(parse_ttl(text.as_bytes()), time, "{text}");
        }
    }
}
