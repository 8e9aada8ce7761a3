//! Each field alone, and their precedence.

use alloc::format;
use alloc::string::String;

use super::*;
use crate::head::tests::head_of;

/// Sun, 06 Nov 1994 08:49:37 GMT, when the representation was modified.
const MODIFIED: i64 = 784_111_777;
const NOW: i64 = MODIFIED + 3600;

const AT: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
const BEFORE: &str = "Sun, 06 Nov 1994 08:49:36 GMT";
const AFTER: &str = "Sun, 06 Nov 1994 08:49:38 GMT";

const VALIDATORS: Validators<'_> =
    Validators { etag: b"\"x\"", last_modified: Some(MODIFIED), strong_date: true };

const WHOLE: Outcome = Outcome::Proceed { range_allowed: false };
const RANGE: Outcome = Outcome::Proceed { range_allowed: true };

fn evaluate_with(method: &str, fields: &str, validators: &Validators<'_>, now: i64) -> Outcome {
    evaluate(&head_of(method, fields), validators, now)
}

#[track_caller]
fn check(fields: &str, expected: Outcome) {
    assert_eq!(evaluate_with("GET", fields, &VALIDATORS, NOW), expected, "{fields}");
}

#[test]
fn without_conditions_the_request_proceeds() {
    check("", WHOLE);
    check("Range: bytes=0-1\r\n", RANGE);
}

#[test]
fn rfc9110_13_1_1_if_match() {
    check("If-Match: \"x\"\r\n", WHOLE);
    check("If-Match: \"y\", \"x\"\r\n", WHOLE);
    check("If-Match: \"y\"\r\nIf-Match: \"x\"\r\n", WHOLE);
    check("If-Match: *\r\n", WHOLE);
    check("If-Match: \"y\"\r\n", Outcome::Failed);
    check("If-Match: W/\"x\"\r\n", Outcome::Failed);
    check("If-Match: x\r\n", Outcome::Failed);
    check("If-Match:\r\n", Outcome::Failed);
}

#[test]
fn rfc9110_13_1_2_if_none_match() {
    check("If-None-Match: \"x\"\r\n", Outcome::NotModified);
    check("If-None-Match: W/\"x\"\r\n", Outcome::NotModified);
    check("If-None-Match: \"y\"\r\nIf-None-Match: \"x\"\r\n", Outcome::NotModified);
    check("If-None-Match: *\r\n", Outcome::NotModified);
    check("If-None-Match: \"y\"\r\n", WHOLE);
    check("If-None-Match: x\r\n", WHOLE);
    check("If-None-Match: \"x\", y\r\n", WHOLE);
}

#[test]
fn rfc9110_13_1_3_if_modified_since() {
    check(&format!("If-Modified-Since: {BEFORE}\r\n"), WHOLE);
    check(&format!("If-Modified-Since: {AT}\r\n"), Outcome::NotModified);
    check(&format!("If-Modified-Since: {AFTER}\r\n"), Outcome::NotModified);
    check("If-Modified-Since: tomorrow\r\n", WHOLE);
    check(&format!("If-Modified-Since: {AT}\r\nIf-Modified-Since: {AT}\r\n"), WHOLE);
    let undated = Validators { last_modified: None, ..VALIDATORS };
    let fields = format!("If-Modified-Since: {AT}\r\n");
    assert_eq!(evaluate_with("GET", &fields, &undated, NOW), WHOLE);
}

#[test]
fn rfc9110_13_1_4_if_unmodified_since() {
    check(&format!("If-Unmodified-Since: {BEFORE}\r\n"), Outcome::Failed);
    check(&format!("If-Unmodified-Since: {AT}\r\n"), WHOLE);
    check(&format!("If-Unmodified-Since: {AFTER}\r\n"), WHOLE);
    check("If-Unmodified-Since: yesterday\r\n", WHOLE);
    let undated = Validators { last_modified: None, ..VALIDATORS };
    let fields = format!("If-Unmodified-Since: {BEFORE}\r\n");
    assert_eq!(evaluate_with("GET", &fields, &undated, NOW), WHOLE);
}

#[test]
fn rfc9110_8_8_2_1_a_modification_in_the_future_is_no_condition() {
    let now = MODIFIED - 86_400;
    // The server sent these dates instead, now and a minute ago.
    let sent = [now, now - 60].map(|time| String::from_utf8(date::format(time).to_vec()).unwrap());
    for sent in sent.iter().map(String::as_str).chain([AT]) {
        for (fields, expected) in [
            (format!("If-Unmodified-Since: {sent}\r\n"), WHOLE),
            (format!("If-Unmodified-Since: {sent}\r\nRange: bytes=0-1\r\n"), RANGE),
            (format!("If-Modified-Since: {sent}\r\n"), WHOLE),
            // Such a date is weak (§8.8.2.2).
            (format!("Range: bytes=0-1\r\nIf-Range: {sent}\r\n"), WHOLE),
        ] {
            assert_eq!(evaluate_with("GET", &fields, &VALIDATORS, now), expected, "{fields}");
        }
    }
}

#[test]
fn rfc9110_13_1_5_if_range() {
    let with_range = |value: &str| format!("Range: bytes=0-1\r\nIf-Range: {value}\r\n");
    for (value, expected) in [
        ("\"x\"", RANGE),
        ("\"y\"", WHOLE),
        ("W/\"x\"", WHOLE),
        ("\"x\", \"x\"", WHOLE),
        ("x", WHOLE),
        ("", WHOLE),
        (AT, RANGE),
        (BEFORE, WHOLE),
        (AFTER, WHOLE),
        ("Sunday, 06-Nov-94 08:49:37 GMT", RANGE),
    ] {
        check(&with_range(value), expected);
    }
    check("If-Range: \"x\"\r\n", WHOLE);
    check("Range: bytes=0-1\r\nIf-Range: \"x\"\r\nIf-Range: \"x\"\r\n", WHOLE);
}

#[test]
fn rfc9110_8_8_2_2_a_date_is_strong_only_when_its_second_is_over() {
    let fields = format!("Range: bytes=0-1\r\nIf-Range: {AT}\r\n");
    assert_eq!(evaluate_with("GET", &fields, &VALIDATORS, MODIFIED - 1), WHOLE);
    assert_eq!(evaluate_with("GET", &fields, &VALIDATORS, MODIFIED), WHOLE);
    assert_eq!(evaluate_with("GET", &fields, &VALIDATORS, MODIFIED + 1), RANGE);
    let weak = Validators { strong_date: false, ..VALIDATORS };
    assert_eq!(evaluate_with("GET", &fields, &weak, NOW), WHOLE, "or never");
}

#[test]
fn rfc9110_13_2_2_tags_take_precedence_over_dates() {
    check(&format!("If-Match: \"x\"\r\nIf-Unmodified-Since: {BEFORE}\r\n"), WHOLE);
    check(&format!("If-None-Match: \"y\"\r\nIf-Modified-Since: {AT}\r\n"), WHOLE);
    check(&format!("If-None-Match: junk\r\nIf-Modified-Since: {AT}\r\n"), WHOLE);
}

#[test]
fn rfc9110_13_2_2_failing_comes_before_not_modified_and_that_before_ranges() {
    check("If-Match: \"y\"\r\nIf-None-Match: \"x\"\r\n", Outcome::Failed);
    check("If-Match: \"x\"\r\nIf-None-Match: \"x\"\r\n", Outcome::NotModified);
    check("If-None-Match: \"x\"\r\nRange: bytes=0-1\r\n", Outcome::NotModified);
    check("If-None-Match: \"y\"\r\nRange: bytes=0-1\r\n", RANGE);
    check("If-Match: \"y\"\r\nRange: bytes=0-1\r\nIf-Range: \"x\"\r\n", Outcome::Failed);
}

#[test]
fn rfc9110_14_2_ranges_are_for_get() {
    assert_eq!(evaluate_with("HEAD", "Range: bytes=0-1\r\n", &VALIDATORS, NOW), WHOLE);
    check("Range: bytes=0-1\r\nRange: bytes=0-1\r\n", WHOLE);
}

#[test]
fn rfc9110_13_2_1_what_depends_on_the_method() {
    let none_match = "If-None-Match: \"x\"\r\n";
    let modified = format!("If-Modified-Since: {AT}\r\n");
    assert_eq!(evaluate_with("HEAD", none_match, &VALIDATORS, NOW), Outcome::NotModified);
    assert_eq!(evaluate_with("HEAD", &modified, &VALIDATORS, NOW), Outcome::NotModified);
    assert_eq!(evaluate_with("PUT", none_match, &VALIDATORS, NOW), Outcome::Failed);
    assert_eq!(evaluate_with("PUT", &modified, &VALIDATORS, NOW), WHOLE);
    for method in ["OPTIONS", "TRACE"] {
        assert_eq!(evaluate_with(method, "If-Match: \"y\"\r\n", &VALIDATORS, NOW), WHOLE);
    }
}

#[test]
fn without_a_tag_only_the_asterisk_matches() {
    let untagged = Validators { etag: b"", ..VALIDATORS };
    for (fields, expected) in [
        ("If-Match: \"x\"\r\n", Outcome::Failed),
        ("If-Match: \"\"\r\n", Outcome::Failed),
        ("If-Match: *\r\n", WHOLE),
        ("If-None-Match: \"x\"\r\n", WHOLE),
        ("If-None-Match: *\r\n", Outcome::NotModified),
        ("Range: bytes=0-1\r\nIf-Range: \"x\"\r\n", WHOLE),
    ] {
        assert_eq!(evaluate_with("GET", fields, &untagged, NOW), expected, "{fields}");
    }
}

#[test]
fn a_weak_tag_never_validates_a_range() {
    let weak = Validators { etag: b"W/\"x\"", ..VALIDATORS };
    let fields = "Range: bytes=0-1\r\nIf-Range: W/\"x\"\r\n";
    assert_eq!(evaluate_with("GET", fields, &weak, NOW), WHOLE);
    assert_eq!(evaluate_with("GET", "If-None-Match: \"x\"\r\n", &weak, NOW), Outcome::NotModified);
}
