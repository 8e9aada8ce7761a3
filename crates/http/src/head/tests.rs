//! Heads made by the plainest possible parser, which is not the parser of HTTP/1.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::*;

/// The field lines `fields`, each with its line end, and where they are.
pub(crate) fn index_of(fields: &str) -> FieldIndex {
    let mut index = FieldIndex::EMPTY;
    let mut at = 0;
    for line in fields.split_inclusive("\r\n") {
        let (name, value) = line.split_once(':').expect("a colon");
        if let Some(field) = Field::of_name(name.as_bytes()) {
            let start = at + line.len() - value.trim_start().len();
            index.add(field, start..at + line.trim_end().len().max(start - at));
        }
        at += line.len();
    }
    index
}

/// The head of a request for `/` with these fields.
pub(crate) fn head_of<'a>(method: &'a str, fields: &'a str) -> Head<'a> {
    Head::new(
        Method::of_token(method.as_bytes()),
        Target::Origin { path: b"/", query: None },
        Version::Http11,
        None,
        fields.as_bytes(),
        index_of(fields),
    )
}

#[test]
fn fields_are_found_by_name_and_in_order() {
    let head = head_of("GET", "Host: h\r\nX-A:1\r\nAccept: a \r\naccept:\tb\r\nRange:\r\n");
    assert_eq!(head.field(Field::Host), Some(&b"h"[..]));
    assert_eq!(head.field(Field::Accept), None, "it was sent twice");
    assert_eq!(head.lines(Field::Accept).collect::<Vec<_>>(), [b"a", b"b"]);
    assert_eq!(head.field(Field::Range), Some(&b""[..]));
    assert!(head.has(Field::Accept) && !head.has(Field::IfMatch));
    assert!(head.has_any(&[Field::IfMatch, Field::Range]) && !head.has_any(&[Field::IfMatch]));
    let without = head.without_conditions();
    assert!(!without.has(Field::Range) && without.field(Field::Range).is_none());
    assert_eq!(without.host(), head.host());
    let names: Vec<_> = head.fields().map(|(name, _)| String::from_utf8_lossy(name)).collect();
    assert_eq!(names, ["Host", "X-A", "Accept", "accept", "Range"]);
    assert_eq!(head.fields().nth(1), Some((&b"X-A"[..], &b"1"[..])));
}

#[test]
fn rfc9110_7_6_1_fields_that_connection_names_are_not_forwarded() {
    let lines = "A: 1\r\nKeep-Alive: x\r\nConnection: b, Upgrade\r\nTE: x\r\nB: 2\r\nconnection: c\r\n\
                 C: 3\r\nUpgrade: x\r\nBB: 4\r\nTransfer-Encoding: chunked\r\n\
                 Proxy-Authorization: Basic YTpi\r\nproxy-authenticate: Basic\r\n";
    let forwarded: Vec<_> = Fields::new(lines.as_bytes()).end_to_end().collect();
    assert_eq!(forwarded, [(&b"A"[..], &b"1"[..]), (b"BB", b"4")]);
}

#[test]
fn rfc9110_7_6_1_fields_of_one_connection_are_not_forwarded_in_any_case() {
    for name in [
        "Connection",
        "Keep-Alive",
        "Proxy-Authenticate",
        "Proxy-Authentication-Info",
        "Proxy-Authorization",
        "Proxy-Connection",
        "TE",
        "Trailer",
        "Transfer-Encoding",
        "Upgrade",
        "HTTP2-Settings",
    ] {
        let forwards = |name: &str| ConnectionOptions::NONE.is_end_to_end(name.as_bytes());
        assert!(!forwards(name), "{name}");
        assert!(!forwards(&name.to_ascii_lowercase()), "{name}");
        assert!(!forwards(&name.to_ascii_uppercase()), "{name}");
        assert!(forwards(&format!("{name}s")), "{name}");
        assert!(forwards(&format!("{}_", &name[..name.len() - 1])), "{name}");
    }
}

#[test]
fn many_connection_options_cause_little_work() {
    let options = "x, ".repeat(CONNECTION_OPTIONS_MAX - 1) + "b";
    let names = |connection: &str| {
        let lines = format!("Connection: {connection}\r\nB: 2\r\n");
        Fields::new(lines.as_bytes()).end_to_end().count()
    };
    assert_eq!(names(&options), 0);
    assert_eq!(names(&format!("x, {options}")), 1);
}

#[test]
fn the_authority_of_the_target_overrides_host() {
    let head = head_of("GET", "Host: h\r\n");
    assert_eq!(head.host(), Some(&b"h"[..]));
    let head = Head { authority: Some(b"other:1"), ..head };
    assert_eq!(head.host(), Some(&b"other:1"[..]));
    assert_eq!(head.field(Field::Host), Some(&b"h"[..]));
}

#[test]
fn request_lines_are_written() {
    let origin = |query| Target::Origin { path: b"/a", query };
    for (method, target, version, expected) in [
        (Method::Get, origin(None), Version::Http11, "GET /a HTTP/1.1"),
        (Method::Post, origin(Some(&b""[..])), Version::Http10, "POST /a? HTTP/1.0"),
        (Method::Other(b"BREW"), origin(Some(b"b=c")), Version::Http11, "BREW /a?b=c HTTP/1.1"),
        (Method::Options, Target::Asterisk, Version::Http11, "OPTIONS * HTTP/1.1"),
        (Method::Connect, Target::Authority, Version::Http11, "CONNECT h:1 HTTP/1.1"),
    ] {
        let head = Head::new(method, target, version, Some(b"h:1"), b"", FieldIndex::EMPTY);
        let mut line = Vec::new();
        head.request_line(&mut line);
        assert_eq!(String::from_utf8_lossy(&line), expected);
    }
}

#[test]
#[should_panic(expected = "too many bytes of fields")]
fn positions_that_16_bits_cannot_hold_are_refused() {
    let lines = format!("A: {}\r\n", "a".repeat(Head::LINES_BYTES_MAX));
    head_of("GET", &lines);
}
