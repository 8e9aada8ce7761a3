//! Conditional requests, in the order of RFC 9110 §13.2.2.

use core::time::Duration;
use std::fs::File;
use std::time::{SystemTime, UNIX_EPOCH};

use testkit::{Server, Tree};

use crate::common::{ask, on_both_drivers, serve};

/// Sun, 06 Nov 1994 08:49:37 GMT.
const MODIFIED: u64 = 784_111_777;
const SAME: [&str; 3] =
    ["Sun, 06 Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994"];
const EARLIER: [&str; 3] =
    ["Sun, 06 Nov 1994 08:49:36 GMT", "Sunday, 06-Nov-94 08:49:36 GMT", "Sun Nov  6 08:49:36 1994"];

fn tree() -> Tree {
    let tree = Tree::new().file("a.txt", "0123456789");
    let file = File::options().write(true).open(tree.path().join("a.txt")).unwrap();
    let time: SystemTime = UNIX_EPOCH + Duration::from_secs(MODIFIED);
    file.set_modified(time).unwrap();
    tree
}

/// The status of GET, of HEAD the same.
#[track_caller]
fn status(server: &Server, fields: &str) -> u16 {
    let get = ask(server, &format!("GET /a.txt\n{fields}"));
    let head = ask(server, &format!("HEAD /a.txt\n{fields}"));
    assert_eq!(get.status, head.status, "{fields}");
    match get.status {
        200 => assert_eq!(get.body, b"0123456789"),
        304 => {
            assert_eq!(get.body, b"");
            assert_eq!(get.header("ETag"), ask(server, "GET /a.txt").header("ETag"));
            assert!(get.header("Date").is_some());
        }
        _ => {}
    }
    get.status
}

#[test]
fn dates_of_all_three_formats_are_compared() {
    on_both_drivers(|driver| {
        let tree = tree();
        let server = serve(driver, tree.path(), &[]);
        assert_eq!(ask(&server, "GET /a.txt").header("Last-Modified"), Some(SAME[0]));
        for date in SAME {
            assert_eq!(status(&server, &format!("If-Modified-Since: {date}")), 304, "{date}");
            assert_eq!(status(&server, &format!("If-Unmodified-Since: {date}")), 200, "{date}");
        }
        for date in EARLIER {
            assert_eq!(status(&server, &format!("If-Modified-Since: {date}")), 200, "{date}");
            assert_eq!(status(&server, &format!("If-Unmodified-Since: {date}")), 412, "{date}");
        }
        for no_date in ["yesterday", "", "Sun, 31 Nov 1994 08:49:37 GMT"] {
            assert_eq!(status(&server, &format!("If-Modified-Since: {no_date}")), 200, "{no_date}");
            assert_eq!(
                status(&server, &format!("If-Unmodified-Since: {no_date}")),
                200,
                "{no_date}"
            );
        }
    });
}

#[test]
fn tags_are_compared() {
    on_both_drivers(|driver| {
        let tree = tree();
        let server = serve(driver, tree.path(), &[]);
        let response = ask(&server, "GET /a.txt");
        let etag = response.header("ETag").unwrap();
        for (fields, expected) in [
            (format!("If-None-Match: {etag}"), 304),
            (format!("If-None-Match: W/{etag}"), 304),
            (format!("If-None-Match: \"x\", {etag}"), 304),
            (format!("If-None-Match: \"x\"\nIf-None-Match: {etag}"), 304),
            ("If-None-Match: *".into(), 304),
            ("If-None-Match: \"x\"".into(), 200),
            (format!("If-Match: {etag}"), 200),
            (format!("If-Match: \"x\", {etag}"), 200),
            ("If-Match: *".into(), 200),
            (format!("If-Match: W/{etag}"), 412),
            ("If-Match: \"x\"".into(), 412),
        ] {
            assert_eq!(status(&server, &fields), expected, "{fields}");
        }
    });
}

#[test]
fn a_tag_takes_precedence_over_a_date_and_failure_over_not_modified() {
    on_both_drivers(|driver| {
        let tree = tree();
        let server = serve(driver, tree.path(), &[]);
        let response = ask(&server, "GET /a.txt");
        let etag = response.header("ETag").unwrap();
        let (same, earlier) = (SAME[0], EARLIER[0]);
        for (fields, expected) in [
            (format!("If-None-Match: \"x\"\nIf-Modified-Since: {same}"), 200),
            (format!("If-None-Match: {etag}\nIf-Modified-Since: {earlier}"), 304),
            (format!("If-Match: {etag}\nIf-Unmodified-Since: {earlier}"), 200),
            (format!("If-Match: \"x\"\nIf-Unmodified-Since: {same}"), 412),
            (format!("If-Match: \"x\"\nIf-None-Match: {etag}"), 412),
            (format!("If-Match: {etag}\nIf-None-Match: {etag}"), 304),
            (format!("If-Unmodified-Since: {earlier}\nIf-None-Match: {etag}"), 412),
            (format!("Range: bytes=0-0\nIf-None-Match: {etag}"), 304),
            ("Range: bytes=0-0\nIf-Match: \"x\"".into(), 412),
            (format!("Range: bytes=99-\nIf-None-Match: {etag}"), 304),
        ] {
            assert_eq!(status(&server, &fields), expected, "{fields}");
        }
    });
}

#[test]
fn a_missing_file_is_missing_whatever_the_conditions() {
    on_both_drivers(|driver| {
        let tree = tree();
        let server = serve(driver, tree.path(), &[]);
        for fields in ["If-Match: *", "If-None-Match: *", "If-Match: \"x\"", "Range: bytes=0-0"] {
            assert_eq!(ask(&server, &format!("GET /missing\n{fields}")).status, 404, "{fields}");
        }
    });
}

#[test]
fn if_range_sends_the_part_only_of_the_same_file() {
    on_both_drivers(|driver| {
        let tree = tree();
        let server = serve(driver, tree.path(), &[]);
        let response = ask(&server, "GET /a.txt");
        let etag = response.header("ETag").unwrap();
        for (condition, expected) in [
            (etag.to_owned(), 206),
            (SAME[0].to_owned(), 206),
            (format!("W/{etag}"), 200),
            ("\"x\"".to_owned(), 200),
            (EARLIER[0].to_owned(), 200),
            ("Sun, 06 Nov 1994 08:49:38 GMT".to_owned(), 200),
            ("nonsense".to_owned(), 200),
        ] {
            let response =
                ask(&server, &format!("GET /a.txt\nRange: bytes=2-4\nIf-Range: {condition}"));
            assert_eq!(response.status, expected, "{condition}");
            let body: &[u8] = if expected == 206 { b"234" } else { b"0123456789" };
            assert_eq!(response.body, body, "{condition}");
        }
    });
}
