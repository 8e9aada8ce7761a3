//! Conditional requests, in the order of RFC 9110 §13.2.2.

use core::time::Duration;
use std::fs::{self, File};
use std::time::{SystemTime, UNIX_EPOCH};

use testkit::{Server, Tree};

use crate::common::{SOON, ask, on_both_drivers, serve, wait_until};

/// Sun, 06 Nov 1994 08:49:37 GMT.
const MODIFIED: u64 = 784_111_777;
const SAME: [&str; 3] =
    ["Sun, 06 Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994"];
const EARLIER: [&str; 3] =
    ["Sun, 06 Nov 1994 08:49:36 GMT", "Sunday, 06-Nov-94 08:49:36 GMT", "Sun Nov  6 08:49:36 1994"];

fn tree() -> Tree {
    let tree = Tree::new().file("a.txt", "0123456789");
    set_modified(&tree, "a.txt");
    tree
}

fn set_modified(tree: &Tree, name: &str) {
    let file = File::options().write(true).open(tree.path().join(name)).unwrap();
    let time: SystemTime = UNIX_EPOCH + Duration::from_secs(MODIFIED);
    file.set_modified(time).unwrap();
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

/// The tag of a file as soon as it has one.
#[track_caller]
fn tag(server: &Server, path: &str) -> String {
    let mut tag = None;
    let get = format!("GET {path}");
    assert!(wait_until(SOON, || {
        tag = ask(server, &get).header("ETag").map(str::to_owned);
        tag.is_some()
    }));
    tag.unwrap()
}

/// As Nix, container layers and `rsync -t` have them.
#[test]
fn another_file_of_the_same_size_and_time_is_another_file() {
    on_both_drivers(|driver| {
        for (etag, size) in [("stat", 10), ("hash", 10), ("stat", 100_000), ("hash", 100_000)] {
            let tree = Tree::new().file("a", vec![b'a'; size]).file("b", vec![b'b'; size]);
            set_modified(&tree, "a");
            set_modified(&tree, "b");
            let server = serve(driver, tree.path(), &["--etag", etag]);
            let (old, other) = (tag(&server, "/a"), tag(&server, "/b"));
            assert_ne!(old, other);
            let part = format!("GET /a\nRange: bytes=2-4\nIf-Range: {old}");
            let unless = format!("GET /a\nIf-None-Match: {old}");
            assert_eq!((ask(&server, &part).status, ask(&server, &unless).status), (206, 304));
            // In its place; or the bytes changed, and the time set back.
            let steps: [fn(&Tree, usize); 2] = [
                |tree, _| fs::rename(tree.path().join("b"), tree.path().join("a")).unwrap(),
                |tree, size| {
                    fs::write(tree.path().join("a"), vec![b'c'; size]).unwrap();
                    set_modified(tree, "a");
                },
            ];
            for (step, byte) in steps.into_iter().zip([b'b', b'c']) {
                step(&tree, size);
                let is_new = || ask(&server, "GET /a").body[0] == byte;
                assert!(wait_until(SOON, is_new));
                for head in [&part, &unless] {
                    let response = ask(&server, head);
                    assert_eq!((response.status, response.body.len()), (200, size), "{head}");
                    assert!(response.body.iter().all(|one| *one == byte));
                }
            }
        }
    });
}

#[test]
fn a_download_is_resumed_after_a_restart_of_the_server() {
    on_both_drivers(|driver| {
        let tree = tree();
        for etag in ["stat", "hash"] {
            let before = tag(&serve(driver, tree.path(), &["--etag", etag]), "/a.txt");
            let server = serve(driver, tree.path(), &["--etag", etag]);
            assert_eq!(tag(&server, "/a.txt"), before);
            let part = format!("GET /a.txt\nRange: bytes=2-4\nIf-Range: {before}");
            assert_eq!(ask(&server, &part).body, b"234");
        }
    });
}

#[test]
fn a_tag_of_contents_is_the_same_for_the_same_bytes_anywhere() {
    on_both_drivers(|driver| {
        let large = vec![b'l'; 300_000];
        let make = || {
            let tree = Tree::new().file("a.txt", "0123456789").file("large", large.clone());
            let tree = tree.file("large.gz", vec![b'g'; 70_000]).file("same.gz", "0123456789");
            tree.file("same", "0123456789")
        };
        let (one, two) = (make(), make());
        set_modified(&two, "a.txt");
        let servers = [&one, &two].map(|tree| serve(driver, tree.path(), &["--etag", "hash"]));
        for path in ["/a.txt", "/large", "/same"] {
            let tags = [0, 1].map(|number: usize| tag(&servers[number], path));
            assert_eq!(tags[0], tags[1], "{path}");
        }
        for path in ["/large", "/same"] {
            let head = format!("GET {path}\nAccept-Encoding: gzip");
            assert!(wait_until(SOON, || ask(&servers[0], &head).header("ETag").is_some()));
            let coded = ask(&servers[0], &head).header("ETag").unwrap().to_owned();
            assert_ne!(coded, tag(&servers[0], path), "{path}");
            assert!(coded.ends_with("-gzip\""), "{coded}");
        }
    });
}
