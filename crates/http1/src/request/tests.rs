//! Request heads, accepted and refused.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use proptest::prelude::*;

use super::*;
use crate::testing::{
    AMBIGUOUS_LENGTHS, MALFORMED_LINES, PERSISTENCE, SMALL, TRANSFER_ENCODINGS, check_prefixes,
    nearly,
};

fn parse_all(input: &str) -> Result<Option<(Request<'_>, usize)>, Reject> {
    parse(input.as_bytes(), &Limits::DEFAULT)
}

/// The request of an input that is one complete head.
#[track_caller]
fn accept(input: &str) -> Request<'_> {
    match parse_all(input) {
        Ok(Some((request, len))) => {
            assert_eq!(len, input.len(), "length of {input:?}");
            request
        }
        other => panic!("{input:?}: {other:?}"),
    }
}

/// The status with which an input is refused.
#[track_caller]
fn refuse(input: &str) -> Status {
    refuse_bytes(input.as_bytes())
}

#[track_caller]
fn refuse_bytes(input: &[u8]) -> Status {
    match parse(input, &Limits::DEFAULT) {
        Err(reject) => reject.status,
        other => panic!("{}: {other:?}", input.escape_ascii()),
    }
}

/// A head with this request line and a `Host`.
fn with_line(line: &str) -> String {
    format!("{line}\r\nHost: h\r\n\r\n")
}

/// A head with these field lines, each with its line end, and a `Host`.
fn with_fields(fields: &str) -> String {
    format!("GET / HTTP/1.1\r\nHost: h\r\n{fields}\r\n")
}

/// Clients mean the bytes that they should have encoded; no other byte passes with them.
#[test]
fn bytes_outside_ascii_are_taken_in_a_target_and_told() {
    let parsed = |target: &[u8]| {
        let head = [b"GET ", target, b" HTTP/1.0\r\n\r\n"].concat();
        let (request, len) = parse(&head, &Limits::DEFAULT)?.expect("a whole head");
        assert_eq!(len, head.len());
        let Target::Origin { path, query } = request.head.target else { panic!("{target:?}") };
        Ok::<_, Reject>((request.has_raw_target, path.to_vec(), query.map(<[u8]>::to_vec)))
    };
    for (target, is_raw, path, query) in [
        (&b"/a"[..], false, &b"/a"[..], None),
        (b"/\xc3\xa9/b", true, b"/\xc3\xa9/b", None),
        (b"/\xff?\x80=?&", true, b"/\xff", Some(&b"\x80=?&"[..])),
        (b"/a?b\xe9", true, b"/a", Some(b"b\xe9")),
        (b"http://h/\xe9", true, b"/\xe9", None),
    ] {
        assert_eq!(parsed(target), Ok((is_raw, path.to_vec(), query.map(<[u8]>::to_vec))));
    }
    for target in ["/é\u{1}", "/é\u{7f}", "/é?#", "/?é\t", "é", "http://é/"] {
        let refused = parsed(target.as_bytes()).expect_err(target);
        assert_eq!(refused.status, Status::BadRequest, "{target:?}");
    }
}

#[test]
fn the_usual_request_is_understood() {
    let request = accept(
        "GET /a/b.html?x=1&y=2 HTTP/1.1\r\nHost: example.org:8080\r\nUser-Agent: t/1\r\n\r\n",
    );
    let head = &request.head;
    assert_eq!(head.method, Method::Get);
    assert_eq!(head.target, Target::Origin { path: b"/a/b.html", query: Some(b"x=1&y=2") });
    assert_eq!(head.version, Version::Http11);
    assert!(request.keep_alive);
    assert_eq!(request.head.framing, Framing::None);
    assert!(!request.expect_continue);
    assert_eq!(head.host(), Some(&b"example.org:8080"[..]));
    assert_eq!(head.field(Field::UserAgent), Some(&b"t/1"[..]));
    assert_eq!(head.field(Field::Range), None);
}

#[test]
fn what_follows_the_head_is_left_alone() {
    let input = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n\0\xff GET";
    let Ok(Some((_, len))) = parse(input, &Limits::DEFAULT) else { panic!() };
    assert_eq!(len, input.len() - 6);
}

#[test]
fn every_prefix_of_a_head_is_partial() {
    let input =
        "\r\nOPTIONS http://h:1/%20?q HTTP/1.1\r\nHost: h\r\nConnection: \t a, b \r\nX:\r\n\r\n";
    for end in 0..input.len() {
        assert_eq!(parse_all(&input[..end]), Ok(None), "{:?}", &input[..end]);
    }
    accept(input);
}

#[test]
fn rfc9112_2_2_empty_lines_before_the_request_are_passed_over() {
    accept("\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n");
    accept("\r\n\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_eq!(refuse("\r\n\r\n\r"), Status::BadRequest);
    assert_eq!(refuse("\nGET / HTTP/1.1\r\n"), Status::BadRequest);
    assert_eq!(refuse("\rG"), Status::BadRequest);
}

#[test]
fn rfc9112_2_2_a_line_must_not_end_in_lf_alone() {
    for input in [
        "GET / HTTP/1.1\nHost: h\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: h\n\r\n",
        "GET / HTTP/1.1\r\nHost: h\r\n\n",
        "GET / HTTP/1.1\r\nX\n",
        "GET /\n",
    ] {
        assert_eq!(refuse(input), Status::BadRequest, "{input:?}");
    }
}

#[test]
fn rfc9112_2_2_bare_cr_is_refused() {
    for input in [
        "GET / HTTP/1.1\rX",
        "GET /\rx HTTP/1.1\r\n",
        "GET / HTTP/1.1\r\nHost: h\rX",
        "GET / HTTP/1.1\r\nA: b\r c\r\n",
        "GET / HTTP/1.1\r\nHost: h\r\n\rX",
        "GET / HTTP/1.1\r\nHo\rst: h\r\n",
    ] {
        assert_eq!(refuse(input), Status::BadRequest, "{input:?}");
    }
}

#[test]
fn rfc9110_9_methods_are_told_apart() {
    for (name, method) in [
        ("GET", Method::Get),
        ("HEAD", Method::Head),
        ("OPTIONS", Method::Options),
        ("POST", Method::Post),
        ("PUT", Method::Put),
        ("PATCH", Method::Patch),
        ("DELETE", Method::Delete),
        ("TRACE", Method::Trace),
        ("get", Method::Other(b"get")),
        ("GETS", Method::Other(b"GETS")),
        ("PROPFIND", Method::Other(b"PROPFIND")),
        ("!#$%&'*+-.^_`|~09", Method::Other(b"!#$%&'*+-.^_`|~09")),
    ] {
        let input = with_line(&format!("{name} / HTTP/1.1"));
        let head = accept(&input).head;
        assert_eq!(head.method, method);
        assert_eq!(head.method.as_bytes(), name.as_bytes());
        assert_eq!(head.method.is_known(), !matches!(method, Method::Other(_)));
    }
}

#[test]
fn rfc9112_3_malformed_request_lines_are_refused_early() {
    for input in [
        " ",
        "GET\t",
        "G\0",
        "G(",
        "G:",
        "GET  ",
        "GET /  ",
        "GET / \t",
        "GET\r",
        "GET \r",
        "GET /\r",
        "GET /a\tb",
        "GET /a\0",
        "GET /a\x7f",
        "GET /a#",
        "GET /?a#",
        "GET /? ?",
        "GET / H ",
        "GET / http/1.1",
        "GET / HTTP/1,",
        "GET / HTTP/1.x",
        "GET / HTTP/a",
        "GET / HTTP/0",
        "GET / HTTP/11",
        "GET / HTTP/1.1 ",
        "GET / HTTP/1.10",
        "GET / HTTP/1.1\t",
        "GET / HTTP/1.2x",
        "GET / HTTP/1.2\rx",
        "GET / HTTPS/",
        "{",
        "\x16\x03\x01",
    ] {
        assert_eq!(refuse(input), Status::BadRequest, "{input:?}");
    }
    assert_eq!(refuse_bytes(b"\xc3"), Status::BadRequest);
}

#[test]
fn rfc9112_3_a_long_method_is_not_implemented() {
    let longest = "M".repeat(METHOD_BYTES_MAX);
    accept(&with_line(&format!("{longest} / HTTP/1.1")));
    assert_eq!(refuse(&format!("{longest}M")), Status::NotImplemented);
}

#[test]
fn rfc9112_2_3_versions() {
    for (text, version) in [
        ("1.0", Version::Http10),
        ("1.1", Version::Http11),
        ("1.2", Version::Http11),
        ("1.9", Version::Http11),
    ] {
        assert_eq!(accept(&with_line(&format!("GET / HTTP/{text}"))).head.version, version);
    }
    for text in ["2", "2.0", "3.1", "9"] {
        assert_eq!(refuse(&format!("GET / HTTP/{text}")), Status::VersionNotSupported);
    }
    assert_eq!(refuse("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), Status::VersionNotSupported);
}

#[test]
fn rfc9112_3_2_1_characters_that_browsers_do_not_escape_are_accepted() {
    let head = accept("GET /a|b^`{}\"<>\\?q=|{}\"? HTTP/1.1\r\nHost: h\r\n\r\n").head;
    let target = Target::Origin { path: b"/a|b^`{}\"<>\\", query: Some(b"q=|{}\"?") };
    assert_eq!(head.target, target);
}

#[test]
fn rfc9112_3_2_1_an_empty_query_is_a_query() {
    let head = accept("GET /? HTTP/1.1\r\nHost: h\r\n\r\n").head;
    assert_eq!(head.target, Target::Origin { path: b"/", query: Some(b"") });
}

#[test]
fn rfc9112_3_2_2_absolute_form_is_reduced_and_overrides_host() {
    for (line, path, query, host) in [
        ("GET http://example.org/a?b HTTP/1.1", "/a", Some("b"), "example.org"),
        ("GET HTTPS://example.org:443/ HTTP/1.1", "/", None, "example.org:443"),
        ("GET http://example.org HTTP/1.1", "/", None, "example.org"),
        ("GET http://example.org?q HTTP/1.1", "/", Some("q"), "example.org"),
        ("GET http://[::1]:80/x HTTP/1.1", "/x", None, "[::1]:80"),
        ("GET http://h//x HTTP/1.1", "//x", None, "h"),
        ("OPTIONS http://h? HTTP/1.1", "/", Some(""), "h"),
        ("OPTIONS http://h/ HTTP/1.1", "/", None, "h"),
    ] {
        let input = format!("{line}\r\nHost: other\r\n\r\n");
        let head = accept(&input).head;
        let query = query.map(str::as_bytes);
        assert_eq!(head.target, Target::Origin { path: path.as_bytes(), query }, "{line}");
        assert_eq!(head.host(), Some(host.as_bytes()), "{line}");
        assert_eq!(head.field(Field::Host), Some(&b"other"[..]));
    }
}

#[test]
fn rfc9112_3_2_targets_that_are_of_no_form_are_refused() {
    for target in [
        "a",
        "a/b",
        "*",
        "**",
        "http:/h/",
        "http:///x",
        "http://:80/",
        "http://u@h/",
        "http://h:port/",
        "http://h:123456/",
        "http://h|/",
        "ftp://h/",
        "http://[::1/",
        "http://[]/",
        "http://[::1]x/",
        "?",
        "?/",
        "h:80",
    ] {
        assert_eq!(
            refuse(&with_line(&format!("GET {target} HTTP/1.1"))),
            Status::BadRequest,
            "{target}"
        );
    }
}

#[test]
fn rfc9112_3_2_3_connect_takes_host_and_port() {
    let request = accept("CONNECT h:443 HTTP/1.1\r\nHost: h:443\r\n\r\n");
    let head = &request.head;
    assert_eq!(head.method, Method::Connect);
    assert_eq!(head.target, Target::Authority);
    assert_eq!(head.host(), Some(&b"h:443"[..]));
    assert!(!request.keep_alive, "what follows is not for us");
    for target in
        ["/", "h", "h:", ":1", "h:1/", "h:1?", "?h:1", "http://h:1", "*", "[::1]", "[:1]:a"]
    {
        let input = with_line(&format!("CONNECT {target} HTTP/1.1"));
        assert_eq!(refuse(&input), Status::BadRequest, "{target}");
    }
    assert_eq!(accept(&with_line("CONNECT [::1]:8 HTTP/1.1")).head.target, Target::Authority);
}

#[test]
fn rfc9112_3_2_4_asterisk_is_for_options_only() {
    assert_eq!(accept(&with_line("OPTIONS * HTTP/1.1")).head.target, Target::Asterisk);
    let input = with_line("OPTIONS http://h:8 HTTP/1.1");
    let head = accept(&input).head;
    assert_eq!(head.target, Target::Asterisk);
    assert_eq!(head.host(), Some(&b"h:8"[..]));
    for line in ["GET * HTTP/1.1", "OPTIONS *? HTTP/1.1", "OPTIONS *a HTTP/1.1"] {
        assert_eq!(refuse(&with_line(line)), Status::BadRequest, "{line}");
    }
}

#[test]
fn rfc9112_3_2_host_is_required_once_and_valid() {
    for value in [
        "",
        "h",
        "a.b-c_d~e",
        "127.0.0.1",
        "h:",
        "h:80",
        "[::1]",
        "[::1]:80",
        "[v1.a:b]",
        "xn--p1ai",
        "a%20b",
        "!$&'()*+,;=",
    ] {
        let input = format!("GET / HTTP/1.1\r\nHost: {value}\r\n\r\n");
        assert_eq!(accept(&input).head.host(), Some(value.as_bytes()), "{value}");
    }
    for value in [
        "a b", "a/b", "a@b", "h:80:80", "h:8a", "h:123456", "::1", "[::1", "[::1]]", "[]", "[a/b]",
        "a\"", "a?", "a#b", "<", "\u{e4}",
    ] {
        let input = format!("GET / HTTP/1.1\r\nHost: {value}\r\n");
        assert_eq!(refuse(&input), Status::BadRequest, "{value}");
    }
    assert_eq!(refuse("GET / HTTP/1.1\r\n\r\n"), Status::BadRequest);
    assert_eq!(refuse("GET http://h/ HTTP/1.1\r\n\r\n"), Status::BadRequest);
    assert_eq!(refuse("GET / HTTP/1.1\r\nHost: h\r\nhost: h\r\n"), Status::BadRequest);
    assert_eq!(refuse("GET / HTTP/1.0\r\nHost: h\r\nhost: h\r\n"), Status::BadRequest);
    assert_eq!(accept("GET / HTTP/1.0\r\n\r\n").head.host(), None);
}

#[test]
fn rfc9112_5_1_malformed_field_lines_are_refused_early() {
    for line in MALFORMED_LINES {
        assert_eq!(refuse(&format!("GET / HTTP/1.1\r\n{line}")), Status::BadRequest, "{line:?}");
        assert_eq!(
            refuse(&format!("GET / HTTP/1.1\r\nB: long enough to be scanned by words\r\n{line}")),
            Status::BadRequest
        );
    }
}

#[test]
fn rfc9110_5_5_values_are_trimmed_and_may_hold_obs_text() {
    let input = b"GET / HTTP/1.1\r\nHost:h\r\n\
        Referer: \t a\tb \xe4 c \t \r\nUser-Agent:\r\nAccept: \r\n\r\n";
    let Ok(Some((Request { head, .. }, _))) = parse(input, &Limits::DEFAULT) else { panic!() };
    assert_eq!(head.field(Field::Referer), Some(&b"a\tb \xe4 c"[..]));
    assert_eq!(head.field(Field::UserAgent), Some(&b""[..]));
    assert_eq!(head.field(Field::Accept), Some(&b""[..]));
    assert_eq!(head.host(), Some(&b"h"[..]));
}

#[test]
fn rfc9110_5_3_repeated_fields_are_lines_but_no_field() {
    let input = with_fields("Accept: a\r\nrange: 1\r\nACCEPT: b\r\nX-Accept: c\r\naccept:\r\n");
    let head = accept(&input).head;
    assert_eq!(head.field(Field::Accept), None);
    assert!(head.has(Field::Accept));
    assert!(!head.has(Field::IfRange));
    assert_eq!(head.lines(Field::Accept).collect::<Vec<_>>(), [&b"a"[..], b"b", b""]);
    assert_eq!(head.lines(Field::Range).collect::<Vec<_>>(), [b"1"]);
    assert_eq!(head.lines(Field::IfRange).next(), None);
    let names: Vec<_> = head.fields().map(|(name, _)| name).collect();
    assert_eq!(names, [&b"Host"[..], b"Accept", b"range", b"ACCEPT", b"X-Accept", b"accept"]);
}

#[test]
fn rfc9112_6_3_content_length_frames_a_body() {
    assert_eq!(accept(&with_fields("Content-Length: 5\r\n")).head.framing, Framing::Length(5));
    assert_eq!(accept(&with_fields("content-length: 0005\r\n")).head.framing, Framing::Length(5));
    assert_eq!(accept(&with_fields("Content-Length: 0\r\n")).head.framing, Framing::None);
    let most = format!("Content-Length: {}\r\n", u64::MAX);
    assert_eq!(accept(&with_fields(&most)).head.framing, Framing::Length(u64::MAX));
}

#[test]
fn rfc9112_6_3_ambiguous_lengths_are_refused() {
    for fields in AMBIGUOUS_LENGTHS {
        assert_eq!(refuse(&with_fields(fields)), Status::BadRequest, "{fields:?}");
    }
}

#[test]
fn rfc9112_6_1_transfer_codings() {
    for &(fields, expected) in TRANSFER_ENCODINGS {
        let input = with_fields(fields);
        let body = parse_all(&input).map_err(|reject| reject.status).map(|parsed| match parsed {
            Some((request, _)) => request.head.framing,
            None => panic!("{fields:?}"),
        });
        assert_eq!(body, expected.map(|()| Framing::Unknown), "{fields:?}");
    }
    let input = "GET / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert_eq!(refuse(input), Status::BadRequest);
}

#[test]
fn rfc9112_9_3_persistence() {
    for &(version, fields, expected) in PERSISTENCE {
        let input = format!("GET / HTTP/{version}\r\nHost: h\r\n{fields}\r\n");
        assert_eq!(accept(&input).keep_alive, expected, "{input:?}");
    }
}

#[test]
fn rfc9110_10_1_1_expectations() {
    let expects = |fields: &str| accept(&with_fields(fields)).expect_continue;
    assert!(expects("Expect: 100-continue\r\nContent-Length: 1\r\n"));
    assert!(expects("Expect: 100-Continue\r\nTransfer-Encoding: chunked\r\n"));
    assert!(expects("Expect: 100-continue\r\nExpect: 100-continue\r\nContent-Length: 1\r\n"));
    assert!(!expects("Expect: 100-continue\r\n"), "there is no body");
    assert!(!expects("Expect: 100-continue\r\nContent-Length: 0\r\n"), "there is no body");
    assert!(!expects("Expect:\r\nContent-Length: 1\r\n"), "an empty list");
    assert_eq!(refuse(&with_fields("Expect: tea\r\n")), Status::ExpectationFailed);
    assert_eq!(refuse(&with_fields("Expect: 100-continue, tea\r\n")), Status::ExpectationFailed);
    let old = "POST / HTTP/1.0\r\nExpect: 100-continue, tea\r\nContent-Length: 1\r\n\r\n";
    assert!(!accept(old).expect_continue);
}

#[test]
fn long_targets_are_refused_before_their_end() {
    let limits = Limits { target_bytes_max: 10, ..Limits::DEFAULT };
    let status = |input: &str| parse(input.as_bytes(), &limits).map(|_| ()).map_err(|r| r.status);
    assert_eq!(status("GET /234567890 HTTP/1.1\r\nHost: h\r\n\r\n"), Ok(()));
    assert_eq!(status("GET /2345?7890 HTTP/1.1\r\nHost: h\r\n\r\n"), Ok(()));
    assert_eq!(status("GET /234567890"), Ok(()));
    assert_eq!(status("GET /2345678901"), Err(Status::UriTooLong));
    assert_eq!(status("GET /2345?78901"), Err(Status::UriTooLong));
    assert_eq!(status("GET /2345678901 HTTP/1.1\r\n"), Err(Status::UriTooLong));
}

#[test]
fn long_heads_are_refused_before_their_end() {
    let input = "GET / HTTP/1.1\r\nHost: h\r\n\r\n";
    let limits = Limits { head_bytes_max: input.len(), ..Limits::DEFAULT };
    assert!(matches!(parse(input.as_bytes(), &limits), Ok(Some(_))));
    assert!(matches!(parse((input.to_owned() + "more").as_bytes(), &limits), Ok(Some(_))));
    let limits = Limits { head_bytes_max: input.len() - 1, ..Limits::DEFAULT };
    for end in 0..=input.len() {
        let result = parse(&input.as_bytes()[..end], &limits);
        if end < input.len() - 1 {
            assert_eq!(result, Ok(None));
        } else {
            assert_eq!(result.map_err(|r| r.status), Err(Status::HeaderFieldsTooLarge));
        }
    }
}

#[test]
fn the_ceiling_of_a_head_holds_whatever_the_limit() {
    let limits = Limits { head_bytes_max: usize::MAX, fields_max: usize::MAX, ..Limits::DEFAULT };
    let mut input = "GET / HTTP/1.1\r\nHost: h\r\n".to_owned();
    input.push_str(&"A: b\r\n".repeat((Limits::HEAD_BYTES_CEILING - input.len() - 8 - 2) / 6));
    input.push_str("Range:");
    let rest = Limits::HEAD_BYTES_CEILING - input.len() - 4;
    input.push_str(&"r".repeat(rest));
    input.push_str("\r\n\r\n");
    let Ok(Some((Request { head, .. }, len))) = parse(input.as_bytes(), &limits) else { panic!() };
    assert_eq!(len, Limits::HEAD_BYTES_CEILING);
    assert_eq!(head.field(Field::Range).map(<[u8]>::len), Some(rest));

    input.insert(input.len() - 4, 'r');
    let status = parse(input.as_bytes(), &limits).map_err(|reject| reject.status);
    assert_eq!(status, Err(Status::HeaderFieldsTooLarge));
}

#[test]
fn too_many_fields_are_refused() {
    let fields = |count: usize| with_fields(&"A:\r\n".repeat(count - 1));
    accept(&fields(Limits::DEFAULT.fields_max));
    assert_eq!(refuse(&fields(Limits::DEFAULT.fields_max + 1)), Status::HeaderFieldsTooLarge);
}

#[test]
fn debug_output_is_readable() {
    let head = format!("{:?}", accept("GET /\" HTTP/1.0\r\nX: \u{e4}\r\n\r\n"));
    assert!(head.contains("method: GET"), "{head}");
    assert!(head.contains(r#"path: "/\"""#), "{head}");
    assert!(head.contains(r"X: \xc3\xa4\r\n"), "{head}");
}

/// Bytes that are nearly requests.
pub(crate) fn nearly_a_request() -> impl Strategy<Value = Vec<u8>> {
    nearly(&[
        b"GET / HTTP/1.1\r\nHost: h\r\n",
        b"POST http://h/a?b HTTP/1.1\r\nHost: h\r\n",
        b"OPTIONS * HTTP/1.0\r\n",
        b"Expect: 100-continue\r\n",
        b"Accept: a, b\r\n",
        b" ",
    ])
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(bytes: Vec<u8>) {
        let _ = parse(&bytes, &Limits::DEFAULT);
    }

    #[test]
    fn the_verdict_on_a_prefix_is_the_verdict_on_the_whole(bytes in nearly_a_request()) {
        check_prefixes(&bytes, |prefix| parse(prefix, &SMALL))?;
    }

    #[test]
    fn fields_and_lines_agree(bytes in nearly_a_request()) {
        if let Ok(Some((Request { head, .. }, _))) = parse(&bytes, &Limits::DEFAULT) {
            for &field in Field::ALL {
                let lines: Vec<_> = head.lines(field).collect();
                let found: Vec<_> = head
                    .fields()
                    .filter(|(name, _)| name.eq_ignore_ascii_case(field.name().as_bytes()))
                    .map(|(_, value)| value)
                    .collect();
                prop_assert_eq!(&lines, &found);
                prop_assert_eq!(head.has(field), !lines.is_empty());
                let only = if lines.len() == 1 { Some(lines[0]) } else { None };
                prop_assert_eq!(head.field(field), only);
            }
        }
    }
}

#[test]
fn the_parts_of_a_request_line_are_made_out_in_bytes_that_are_refused() {
    let limits = Limits { target_bytes_max: 10, ..Limits::DEFAULT };
    for (input, expected) in [
        // Whole requests.
        ("GET /a?b HTTP/1.1\r\nExpect: tea\r\n\r\n", Some(("GET", "/a?b", "HTTP/1.1"))),
        ("\r\nBREW / HTTP/1.0\r\n", Some(("BREW", "/", "HTTP/1.0"))),
        ("GET / HTTP/3.0\r\n", Some(("GET", "/", "HTTP/3.0"))),
        // Parts.
        ("GET /a", Some(("GET", "/a", ""))),
        ("GET ", Some(("GET", "", ""))),
        ("GET / HT", Some(("GET", "/", ""))),
        ("GET / HTTP/1.1", Some(("GET", "/", "HTTP/1.1"))),
        ("GE", None),
        ("", None),
        ("\r\n", None),
        // Malformed ones.
        ("GET /a b HTTP/1.1\r\n", Some(("GET", "/a", "HTTP/1.1"))),
        ("GET  / HTTP/1.1\n", Some(("GET", "", "HTTP/1.1"))),
        ("GET HTTP/1.1\r\n", Some(("GET", "", "HTTP/1.1"))),
        ("GET /a\tb http/1.1\r\n", Some(("GET", "/a\tb", ""))),
        (" / HTTP/1.1\r\n", None),
        ("{\"a\": 1}\r\n", None),
        ("\u{16}\u{3}\u{1} a", None),
        // Long ones.
        ("GET /234567890123 HTTP/1.1\r\n", Some(("GET", "/234567890"[..10].as_ref(), "HTTP/1.1"))),
        (&"M".repeat(40), Some((&"M".repeat(METHOD_BYTES_MAX)[..], "", ""))),
    ] {
        let found = sketch(input.as_bytes(), &limits);
        let expected = expected.map(|(method, target, version): (&str, &str, &str)| Sketch {
            method: method.as_bytes(),
            target: target.as_bytes(),
            version: version.as_bytes(),
        });
        assert_eq!(found, expected, "{input:?}");
    }
}
