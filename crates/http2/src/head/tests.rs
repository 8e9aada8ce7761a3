//! The rules of RFC 9113 §8.2 and §8.3, a request for each.

use super::*;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use proptest::prelude::*;

const LIMITS: Limits = Limits { extended_connect: true, ..Limits::DEFAULT };

/// Takes fields as a decoder gives them, and shows the result.
fn verdict_of(limits: &Limits, fields: &[(&str, &str)], has_ended: bool) -> String {
    let mut text = Vec::new();
    let mut collector = Collector::new(limits, false);
    push(&mut collector, &mut text, fields);
    match collector.finish(&mut text, false, has_ended) {
        Verdict::Malformed(reason) => format!("malformed: {reason}"),
        Verdict::Rejected(reject, _) => reject.to_string(),
        Verdict::Request(found) => {
            let request = found.request(1, &text, found.wish);
            check(&request);
            let mut line = Vec::new();
            request.head.request_line(&mut line);
            let host = request.head.host().unwrap_or_default();
            let [line, host] = [&line, host].map(|part| part.escape_ascii().to_string());
            format!("{line} to {host}, {:?}", request.head.framing)
        }
    }
}

fn push(collector: &mut Collector<'_>, text: &mut Vec<u8>, fields: &[(&str, &str)]) {
    for (name, value) in fields {
        let start = text.len();
        text.extend_from_slice(name.as_bytes());
        text.extend_from_slice(b": ");
        text.extend_from_slice(value.as_bytes());
        let value = start + name.len() + 2..text.len();
        text.extend_from_slice(b"\r\n");
        let line = Line { name: start..start + name.len(), value, is_secret: false };
        collector.handle_line(text, &line);
    }
}

/// Checks the promises of every head: its lines have the form that others rely on, and the index is right.
fn check(request: &Request<'_>) {
    let head = &request.head;
    let mut lines = Vec::new();
    let mut crumbs = 0;
    for (name, value) in head.fields() {
        http::push_line(&mut lines, name, value);
        crumbs += usize::from(name == b"cookie");
        if let Some(field) = Field::of_name(name) {
            assert!(head.has(field) && head.lines(field).any(|other| other == value));
            assert!(head.field(field).is_none_or(|other| other == value));
        }
    }
    assert_eq!(lines.len(), head.lines_len());
    assert!(crumbs <= 1);
    assert_eq!(head.to_owned().as_head(), *head);
}

const GET: [(&str, &str); 4] =
    [(":method", "GET"), (":scheme", "https"), (":authority", "h"), (":path", "/a?b")];

/// `GET` with one of its fields changed, left out if `value` is "-", or with another field after them.
fn get_with(name: &'static str, value: &'static str) -> Vec<(&'static str, &'static str)> {
    let mut fields = GET.to_vec();
    match fields.iter_mut().find(|field| field.0 == name) {
        Some(field) => field.1 = value,
        None => fields.push((name, value)),
    }
    fields.retain(|field| field.1 != "-");
    fields
}

#[test]
fn rfc9113_8_requests_with_one_unusual_field() {
    let good = "GET /a?b HTTP/2.0 to h, None";
    for (name, value, expected) in [
        ("accept", "*/*", good),
        ("te", "trailers", good),
        ("x", "", good),
        ("host", "H", good),
        (":path", "/%20?", "GET /%20? HTTP/2.0 to h, None"),
        (":path", "/\u{fc}", "GET /\\xc3\\xbc HTTP/2.0 to h, None"),
        (":method", "post", "post /a?b HTTP/2.0 to h, None"),
        (":authority", "[::1]:8", "GET /a?b HTTP/2.0 to [::1]:8, None"),
        ("content-length", "0", good),
        // Malformed (RFC 9113 §8.2).
        ("Accept", "*/*", "malformed: a field name in upper case"),
        ("", "a", "malformed: a field name with a character that no name may have"),
        ("a b", "a", "malformed: a field name with a character that no name may have"),
        ("a:", "a", "malformed: a field name with a character that no name may have"),
        ("a\r\nb", "a", "malformed: a field name with a character that no name may have"),
        ("\u{fc}", "a", "malformed: a field name with a character that no name may have"),
        ("a", "b\r\nc: d", "malformed: a control character in a field value"),
        ("a", "b\n", "malformed: a control character in a field value"),
        ("a", "\0", "malformed: a control character in a field value"),
        ("a", " b", "malformed: whitespace around a field value"),
        ("a", "b\t", "malformed: whitespace around a field value"),
        ("a", " ", "malformed: whitespace around a field value"),
        ("connection", "close", "malformed: a field of a connection"),
        ("keep-alive", "1", "malformed: a field of a connection"),
        ("proxy-connection", "a", "malformed: a field of a connection"),
        ("transfer-encoding", "chunked", "malformed: a field of a connection"),
        ("upgrade", "h2c", "malformed: a field of a connection"),
        ("te", "gzip", "malformed: a TE that is not trailers"),
        ("content-length", "1", "malformed: a Content-Length without content"),
        ("content-length", "+1", "malformed: an invalid Content-Length"),
        ("content-length", "0, 0", "malformed: an invalid Content-Length"),
        // Pseudo-fields (RFC 9113 §8.3).
        (":status", "200", "malformed: an unknown pseudo-field"),
        (":x", "a", "malformed: an unknown pseudo-field"),
        (":", "a", "malformed: an unknown pseudo-field"),
        (":method", "-", "malformed: a request without :method"),
        (":method", "", "malformed: a method that is no token"),
        (":method", "GET /x HTTP/1.1\r\n", "malformed: a method that is no token"),
        (":scheme", "-", "malformed: a request without :scheme"),
        (":scheme", "", "malformed: an invalid :scheme"),
        (":scheme", "ht tp", "malformed: an invalid :scheme"),
        (":scheme", "1http", "malformed: an invalid :scheme"),
        (":authority", "-", "malformed: a request without :authority"),
        (":authority", "", "malformed: an invalid :authority"),
        (":authority", ":80", "malformed: an invalid :authority"),
        (":authority", "user@h", "malformed: an invalid :authority"),
        (":authority", "h/a", "malformed: an invalid :authority"),
        (":authority", "h h", "malformed: an invalid :authority"),
        (":authority", "h\r\na: b", "malformed: an invalid :authority"),
        (":authority", "h:123456", "malformed: an invalid :authority"),
        (":authority", "[]", "malformed: an invalid :authority"),
        ("host", "other", "malformed: a Host that differs from :authority"),
        (":path", "-", "malformed: a request without :path"),
        (":path", "", "malformed: a :path that does not begin with a slash"),
        (":path", "a", "malformed: a :path that does not begin with a slash"),
        (":path", "*", "malformed: a :path that does not begin with a slash"),
        (":path", "http://h/", "malformed: a :path that does not begin with a slash"),
        (":path", "/a b", "malformed: a :path with a character that no path may have"),
        (":path", "/a#b", "malformed: a :path with a character that no path may have"),
        (
            ":path",
            "/ HTTP/1.1\r\na: b",
            "malformed: a :path with a character that no path may have",
        ),
        (":path", "/\0", "malformed: a :path with a character that no path may have"),
        (":protocol", "websocket", "malformed: a :protocol without CONNECT"),
        // Answered with a status.
        ("expect", "100-continue, a", "417 Expectation Failed: an unknown expectation"),
        (
            ":method",
            "M23456789012345678901234567890123",
            "501 Not Implemented: a method that is too long",
        ),
    ] {
        let fields = get_with(name, value);
        assert_eq!(verdict_of(&LIMITS, &fields, true), expected, "{name}: {value}");
    }
}

#[test]
fn other_requests() {
    let connect = [(":method", "CONNECT"), (":authority", "h:80")];
    let extended = [
        (":method", "CONNECT"),
        (":protocol", "websocket"),
        (":scheme", "https"),
        (":path", "/chat"),
        (":authority", "h"),
    ];
    let options =
        [(":method", "OPTIONS"), (":scheme", "http"), (":path", "*"), (":authority", "h")];
    let host = [(":method", "GET"), (":scheme", "http"), (":path", "/"), ("host", "a.b")];
    for (fields, has_ended, expected) in [
        (&options[..], true, "OPTIONS * HTTP/2.0 to h, None"),
        (&host, true, "GET / HTTP/2.0 to a.b, None"),
        (&connect, false, "CONNECT h:80 HTTP/2.0 to h:80, Unknown"),
        (&connect[..1], false, "malformed: a request without :authority"),
        (&[connect[0], (":authority", "h")], false, "malformed: CONNECT without a port"),
        (
            &[connect[0], connect[1], (":path", "/")],
            false,
            "malformed: CONNECT with :scheme or :path",
        ),
        (&extended, false, "CONNECT /chat HTTP/2.0 to h, Tunnel"),
        (&extended[..3], false, "malformed: a request without :authority"),
        (
            &[extended[0], extended[1], extended[2], extended[4]],
            false,
            "malformed: a request without :path",
        ),
        (&[GET[0], GET[0]], true, "malformed: a pseudo-field that comes twice"),
        (&[("a", "b"), GET[0]], true, "malformed: a pseudo-field behind a field"),
        (
            &[GET[0], GET[1], GET[3], ("host", "h"), ("host", "h")],
            true,
            "malformed: two Host fields",
        ),
        (
            &[GET[0], GET[1], GET[2], GET[3], ("content-length", "5"), ("content-length", "5")],
            false,
            "malformed: two Content-Length fields",
        ),
        (
            &[GET[0], GET[1], GET[2], GET[3], ("content-length", "5")],
            false,
            "GET /a?b HTTP/2.0 to h, Length(5)",
        ),
        (&GET, false, "GET /a?b HTTP/2.0 to h, Unknown"),
    ] {
        assert_eq!(verdict_of(&LIMITS, fields, has_ended), expected, "{fields:?}");
    }
    let verdict = verdict_of(&Limits::DEFAULT, &extended, false);
    assert_eq!(verdict, "malformed: an unknown pseudo-field");
}

#[test]
fn long_heads_are_answered() {
    let limits = Limits { head_bytes_max: 60, target_bytes_max: 10, fields_max: 4, ..LIMITS };
    let with = |more: &[(&'static str, &'static str)]| [&GET[..], more].concat();
    let tiny = ("a", "b");
    for (fields, expected) in [
        (with(&[tiny; 4]), "GET /a?b HTTP/2.0 to h, None"),
        (with(&[tiny; 5]), "431 Request Header Fields Too Large: too many fields"),
        (with(&[("cookie", "a=1"); 9]), "GET /a?b HTTP/2.0 to h, None"),
        (
            with(&[("cookie", "a=12345"); 9]),
            "431 Request Header Fields Too Large: a head that is too long",
        ),
        (get_with(":path", "/123456789"), "GET /123456789 HTTP/2.0 to h, None"),
        (get_with(":path", "/1234567890"), "414 URI Too Long: a target that is too long"),
    ] {
        assert_eq!(verdict_of(&limits, &fields, true), expected);
    }
    let mut text = Vec::new();
    let mut collector = Collector::new(&limits, false);
    push(&mut collector, &mut text, &[(":method", "HEAD")]);
    let Verdict::Rejected(reject, outline) = collector.finish(&mut text, true, true) else {
        panic!("it is accepted")
    };
    assert_eq!(reject.status, Status::HeaderFieldsTooLarge);
    assert_eq!((&text[outline.method], &text[outline.path]), (&b"HEAD"[..], &b""[..]));
}

#[test]
fn the_parts_of_a_rejected_request_that_are_known_are_told() {
    let limits = Limits { target_bytes_max: 10, ..Limits::DEFAULT };
    for (method, path, is_cut, expected) in [
        ("GET", "/a?b", true, ("GET", "/a?b")),
        ("GET", "/a b", true, ("GET", "")),
        ("G T", "/a", true, ("", "/a")),
        ("GET", "/1234567890", false, ("GET", "/123456789")),
        (&"M".repeat(40), "/", false, (&"M".repeat(METHOD_BYTES_MAX)[..], "/")),
    ] {
        let mut text = Vec::new();
        let mut collector = Collector::new(&limits, false);
        let rest = [(":path", path), (":scheme", "http"), (":authority", "h")];
        push(&mut collector, &mut text, &[(":method", method)]);
        push(&mut collector, &mut text, &rest);
        let Verdict::Rejected(_, outline) = collector.finish(&mut text, is_cut, true) else {
            panic!("{method} {path} is accepted")
        };
        let found = (&text[outline.method], &text[outline.path]);
        assert_eq!(found, (expected.0.as_bytes(), expected.1.as_bytes()));
    }
}

#[test]
fn rfc9113_8_2_3_crumbs_are_one_cookie() {
    for (fields, expected) in [
        (vec![("cookie", "a=1"), ("cookie", "b=2"), ("cookie", "c")], "cookie: a=1; b=2; c|"),
        (
            vec![
                ("cookie", "a"),
                ("range", "bytes=0-1"),
                ("cookie", "b"),
                ("x", "y"),
                ("host", "h"),
            ],
            "range: bytes=0-1|x: y|host: h|cookie: a; b|",
        ),
        (vec![("x", "y"), ("cookie", "a"), ("cookie", ""), ("z", "y")], "x: y|cookie: a|z: y|"),
    ] {
        let mut text = Vec::new();
        let mut collector = Collector::new(&LIMITS, false);
        push(&mut collector, &mut text, &GET);
        push(&mut collector, &mut text, &fields);
        let Verdict::Request(found) = collector.finish(&mut text, false, true) else {
            panic!("refused: {fields:?}")
        };
        let request = found.request(1, &text, found.wish);
        let mut lines = String::new();
        for (name, value) in request.head.fields() {
            lines += &format!("{}: {}|", name.escape_ascii(), value.escape_ascii());
        }
        assert_eq!(lines, expected);
        if fields.len() == 5 {
            check(&request);
            assert_eq!(request.head.field(Field::Range), Some(&b"bytes=0-1"[..]));
        }
    }
}

#[test]
fn what_else_a_request_says() {
    let mut text = Vec::new();
    let mut collector = Collector::new(&LIMITS, false);
    let more = [("priority", "u=1"), ("expect", "100-Continue"), ("priority", "i")];
    push(&mut collector, &mut text, &[&GET[..], &more].concat());
    let Verdict::Request(found) = collector.finish(&mut text, false, false) else { panic!() };
    let request = found.request(7, &text, found.wish);
    assert_eq!(request.wish, Wish { urgency: Some(1), incremental: Some(true) });
    assert!(request.expect_continue && !request.has_ended && !request.has_raw_target);
    assert_eq!((request.stream, request.scheme, request.protocol), (7, &b"https"[..], None));
}

#[test]
fn trailers_are_checked() {
    for (fields, expected) in [
        (&[("a", "b"), ("cookie", "c"), ("host", "other")][..], Ok(())),
        (&[(":path", "/")], Err("a pseudo-field among trailers")),
        (&[("A", "b")], Err("a field name in upper case")),
        (&[("a", "b\n")], Err("a control character in a field value")),
        (&[("a", "b"); 101], Err("too many trailers")),
    ] {
        let mut text = Vec::new();
        let mut collector = Collector::new(&LIMITS, true);
        push(&mut collector, &mut text, fields);
        assert_eq!(collector.finish_trailers(&text, false), expected);
    }
    assert!(Collector::new(&LIMITS, true).finish_trailers(b"", true).is_err());
}

proptest! {
    /// Whatever the fields are, no part of a request that is accepted can end its line in HTTP/1.1.
    #[test]
    fn accepted_requests_can_be_written_in_http1(
        fields in proptest::collection::vec(
            (
                prop_oneof![
                    Just(":method"), Just(":path"), Just(":authority"), Just(":scheme"), Just("host"),
                    Just("cookie"), Just("content-length"), Just("x"), Just("te"), Just("Connection"),
                ],
                prop_oneof![
                    3 => proptest::sample::select(vec!["GET", "/", "h", "https", "5", "trailers", "a=b"])
                        .prop_map(String::from),
                    1 => "[ -~\r\n\t\u{fc}\0]{0,6}",
                ],
            ),
            0..6),
        has_ended: bool,
    ) {
        let mut all: Vec<(&str, &str)> = GET.to_vec();
        for (name, value) in &fields {
            match all.iter_mut().find(|field| field.0 == *name && name.starts_with(':')) {
                Some(field) => field.1 = value,
                None => all.push((name, value)),
            }
        }
        let mut text = Vec::new();
        let mut collector = Collector::new(&LIMITS, false);
        push(&mut collector, &mut text, &all);
        if let Verdict::Request(found) = collector.finish(&mut text, false, has_ended) {
            let request = found.request(1, &text, found.wish);
            check(&request);
            let mut line = Vec::new();
            request.head.request_line(&mut line);
            prop_assert!(!line.contains(&b'\r') && !line.contains(&b'\n'));
            prop_assert_eq!(line.iter().filter(|&&byte| byte == b' ').count(), 2);
        }
    }
}
