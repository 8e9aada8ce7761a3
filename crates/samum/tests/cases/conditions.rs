//! Conditional requests, in the order of RFC 9110 §13.2.2.

use testkit::Content;

use super::{Case, Expected, LAST_MODIFIED, Site};

const SAME: [&str; 3] =
    [LAST_MODIFIED, "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994"];
const EARLIER: [&str; 3] =
    ["Sun, 06 Nov 1994 08:49:36 GMT", "Sunday, 06-Nov-94 08:49:36 GMT", "Sun Nov  6 08:49:36 1994"];
const DIGITS: &str = "0123456789";

/// A case that begins with an unconditional request, whose tag is `{etag}` from then on.
fn after_get(name: String) -> Case {
    Case::new(name).ask("GET /a.txt", Expected::ok(DIGITS).field("Last-Modified", LAST_MODIFIED))
}

/// GET and HEAD with these fields have this status.
fn case(fields: &str, status: u16) -> Case {
    let expected = match status {
        200 => Expected::ok(DIGITS),
        304 => Expected::empty(304).field("ETag", "{etag}"),
        _ => Expected::page(status),
    };
    after_get(fields.to_owned())
        .ask(&format!("GET /a.txt\n{fields}"), expected.clone())
        .ask(&format!("HEAD /a.txt\n{fields}"), expected)
}

pub(super) fn sites() -> Vec<Site> {
    let mut cases = Vec::new();
    for date in SAME {
        cases.push(case(&format!("If-Modified-Since: {date}"), 304));
        cases.push(case(&format!("If-Unmodified-Since: {date}"), 200));
    }
    for date in EARLIER {
        cases.push(case(&format!("If-Modified-Since: {date}"), 200));
        cases.push(case(&format!("If-Unmodified-Since: {date}"), 412));
    }
    for no_date in ["yesterday", "", "Sun, 31 Nov 1994 08:49:37 GMT"] {
        cases.push(case(&format!("If-Modified-Since: {no_date}"), 200));
        cases.push(case(&format!("If-Unmodified-Since: {no_date}"), 200));
    }
    let tags = [
        ("If-None-Match: {etag}", 304),
        ("If-None-Match: W/{etag}", 304),
        ("If-None-Match: \"x\", {etag}", 304),
        ("If-None-Match: \"x\"\nIf-None-Match: {etag}", 304),
        ("If-None-Match: *", 304),
        ("If-None-Match: \"x\"", 200),
        ("If-Match: {etag}", 200),
        ("If-Match: \"x\", {etag}", 200),
        ("If-Match: *", 200),
        ("If-Match: W/{etag}", 412),
        ("If-Match: \"x\"", 412),
        // A tag takes precedence over a date, and failure over "not modified".
        ("If-Match: \"x\"\nIf-None-Match: {etag}", 412),
        ("If-Match: {etag}\nIf-None-Match: {etag}", 304),
        ("Range: bytes=0-0\nIf-None-Match: {etag}", 304),
        ("Range: bytes=0-0\nIf-Match: \"x\"", 412),
        ("Range: bytes=99-\nIf-None-Match: {etag}", 304),
    ];
    cases.extend(tags.map(|(fields, status)| case(fields, status)));
    let (same, earlier) = (SAME[0], EARLIER[0]);
    for (fields, status) in [
        (format!("If-None-Match: \"x\"\nIf-Modified-Since: {same}"), 200),
        (format!("If-None-Match: {{etag}}\nIf-Modified-Since: {earlier}"), 304),
        (format!("If-Match: {{etag}}\nIf-Unmodified-Since: {earlier}"), 200),
        (format!("If-Match: \"x\"\nIf-Unmodified-Since: {same}"), 412),
        (format!("If-Unmodified-Since: {earlier}\nIf-None-Match: {{etag}}"), 412),
    ] {
        cases.push(case(&fields, status));
    }
    for fields in ["If-Match: *", "If-None-Match: *", "If-Match: \"x\"", "Range: bytes=0-0"] {
        cases.push(Case::of(format!("GET /missing\n{fields}"), Expected::page(404)));
    }
    let digits = Content::from(DIGITS);
    for (condition, is_same) in [
        ("{etag}", true),
        (SAME[0], true),
        ("W/{etag}", false),
        ("\"x\"", false),
        (EARLIER[0], false),
        ("Sun, 06 Nov 1994 08:49:38 GMT", false),
        ("nonsense", false),
    ] {
        let fields = format!("Range: bytes=2-4\nIf-Range: {condition}");
        let expected = if is_same { Expected::part(&digits, 2, 4) } else { Expected::ok(DIGITS) };
        cases.push(after_get(fields.clone()).ask(&format!("GET /a.txt\n{fields}"), expected));
    }
    vec![Site::new("conditions").file("a.txt", DIGITS).cases(cases)]
}
