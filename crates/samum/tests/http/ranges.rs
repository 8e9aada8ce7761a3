//! Ranges (RFC 9110 §14), each byte compared.

use testkit::{Content, Response, Server, Tree};

use crate::common::{ask, on_both_drivers, serve};

/// Below and above what is kept in memory.
const SIZES: [(&str, u64); 2] = [("small.bin", 10_000), ("large.bin", 3_000_000)];

fn content(size: u64) -> Content {
    Content::pseudo_random(size, size)
}

fn tree() -> Tree {
    let tree = Tree::new().file("empty", "");
    for (name, size) in SIZES {
        tree.write(name, content(size));
    }
    tree
}

#[track_caller]
fn ask_for(server: &Server, name: &str, range: &str) -> Response {
    ask(server, &format!("GET /{name}\nRange: {range}"))
}

#[test]
fn one_range_is_that_part_of_the_file() {
    on_both_drivers(|driver| {
        let tree = tree();
        let server = serve(driver, tree.path(), &[]);
        for (name, size) in SIZES {
            let last = size - 1;
            for (range, first, end) in [
                ("bytes=0-0", 0, 1),
                ("bytes=0-", 0, size),
                ("Bytes=7-99", 7, 100),
                ("bytes=5000-", 5000, size),
                ("bytes=-1", last, size),
                ("bytes=-100", size - 100, size),
                ("bytes=-99999999999999999999999999", 0, size),
                ("bytes=4095-8192", 4095, 8193),
                ("bytes=9000-99999999999999999999999999", 9000, size),
                ("bytes=1-1,", 1, 2),
            ] {
                let response = ask_for(&server, name, range);
                assert_eq!(response.status, 206, "{name} {range}");
                let said = format!("bytes {first}-{}/{size}", end - 1);
                assert_eq!(response.header("Content-Range"), Some(&said[..]), "{name} {range}");
                assert_eq!(response.body.len() as u64, end - first, "{name} {range}");
                content(size).assert_at(first, &response.body);
            }
        }
    });
}

#[test]
fn what_is_no_range_is_ignored() {
    on_both_drivers(|driver| {
        let tree = tree();
        let server = serve(driver, tree.path(), &[]);
        let countless = format!("bytes={}", "0-0,".repeat(1000));
        for range in [
            "bytes=",
            "bytes=-",
            "bytes=5-4",
            "bytes=a-b",
            "lines=0-1",
            "bytes 0-1",
            "bytes=0-1;2-3",
            "bytes=0x1-2",
            &countless,
        ] {
            let response = ask_for(&server, "small.bin", range);
            assert_eq!((response.status, response.header("Content-Range")), (200, None), "{range}");
            content(10_000).assert_is(&response.body);
        }
        let two = ask(&server, "GET /small.bin\nRange: bytes=0-0\nRange: bytes=2-2");
        assert_eq!(two.status, 200, "two fields are none");
        assert_eq!(
            ask_for(&server, "empty", "bytes=0-").status,
            200,
            "an empty file has no ranges"
        );
        let head = ask(&server, "HEAD /small.bin\nRange: bytes=0-0");
        assert_eq!(
            (head.status, head.header("Content-Length")),
            (200, Some("10000")),
            "ranges are for GET"
        );
    });
}

#[test]
fn beyond_the_end_there_is_nothing() {
    on_both_drivers(|driver| {
        let tree = tree();
        let server = serve(driver, tree.path(), &[]);
        for range in [
            "bytes=10000-",
            "bytes=10000-10001",
            "bytes=-0",
            "bytes=99999999999999999999999999-",
            "bytes=20000-,30000-",
        ] {
            let response = ask_for(&server, "small.bin", range);
            assert_eq!(response.status, 416, "{range}");
            assert_eq!(response.header("Content-Range"), Some("bytes */10000"), "{range}");
        }
        let partly = ask_for(&server, "small.bin", "bytes=20000-,3-4");
        assert_eq!(
            (partly.status, partly.body.len()),
            (206, 2),
            "one that can be satisfied is enough"
        );
    });
}

/// The parts of a `multipart/byteranges` body: first byte, last byte, bytes.
fn parts(response: &Response, size: u64) -> Vec<(u64, u64, Vec<u8>)> {
    assert_eq!(response.status, 206);
    assert_eq!(response.header("Content-Range"), None, "RFC 9110 §15.3.7.2");
    let kind = response.header("Content-Type").unwrap();
    let boundary =
        kind.strip_prefix("multipart/byteranges; boundary=").expect(kind).trim_matches('"');
    let mut rest = &response.body[..];
    let mut take = |until: &[u8]| {
        let at =
            rest.windows(until.len()).position(|window| window == until).expect("the body goes on");
        let (taken, after) = rest.split_at(at);
        rest = &after[until.len()..];
        taken.to_vec()
    };
    let mut parts = Vec::new();
    let delimiter = format!("--{boundary}");
    take(delimiter.as_bytes());
    loop {
        if take(b"\r\n").starts_with(b"--") {
            return parts;
        }
        let head = String::from_utf8(take(b"\r\n\r\n")).unwrap();
        assert!(head.contains("Content-Type: application/octet-stream"), "{head}");
        let line =
            head.lines().find_map(|line| line.strip_prefix("Content-Range: bytes ")).expect(&head);
        let (range, total) = line.split_once('/').unwrap();
        assert_eq!(total, size.to_string());
        let (first, last) = range.split_once('-').unwrap();
        let body = take(format!("\r\n{delimiter}").as_bytes());
        parts.push((first.parse().unwrap(), last.parse().unwrap(), body));
    }
}

#[track_caller]
fn assert_parts(response: &Response, size: u64, expected: &[(u64, u64)]) {
    let parts = parts(response, size);
    let ranges: Vec<_> = parts.iter().map(|(first, last, _)| (*first, *last)).collect();
    assert_eq!(ranges, expected);
    for (first, last, bytes) in parts {
        assert_eq!(bytes.len() as u64, last - first + 1);
        content(size).assert_at(first, &bytes);
    }
}

#[test]
fn several_ranges_come_as_parts_in_the_order_of_the_request() {
    on_both_drivers(|driver| {
        let tree = tree();
        let server = serve(driver, tree.path(), &[]);
        for (name, size) in SIZES {
            let response = ask_for(&server, name, "bytes=-1, 0-0, 4000-4999 ,7000-7001");
            assert_parts(
                &response,
                size,
                &[(size - 1, size - 1), (0, 0), (4000, 4999), (7000, 7001)],
            );
        }
        let large = ask_for(&server, "large.bin", "bytes=2000000-2999999,0-999999");
        assert_parts(&large, 3_000_000, &[(2_000_000, 2_999_999), (0, 999_999)]);
    });
}

/// Whoever can put bytes into a file could otherwise put parts into its answers.
#[test]
fn no_boundary_tells_the_next() {
    on_both_drivers(|driver| {
        let tree = tree();
        let server = serve(driver, tree.path(), &[]);
        let boundary = |_| {
            let response = ask_for(&server, "small.bin", "bytes=0-0,4000-4000");
            response.header("Content-Type").unwrap().to_owned()
        };
        let seen: std::collections::HashSet<String> = (0..20).map(boundary).collect();
        assert_eq!(seen.len(), 20, "{seen:?}");
    });
}

#[test]
fn overlapping_ranges_are_joined_so_that_nothing_is_sent_twice() {
    on_both_drivers(|driver| {
        let tree = tree();
        let server = serve(driver, tree.path(), &[]);
        let joined = ask_for(&server, "small.bin", "bytes=0-99,50-149,100-199");
        assert_eq!(joined.header("Content-Range"), Some("bytes 0-199/10000"));
        content(10_000).assert_at(0, &joined.body);
        let two = ask_for(&server, "small.bin", "bytes=5000-5999,0-10,5500-6999");
        assert_parts(&two, 10_000, &[(5000, 6999), (0, 10)]);
        // The most that can be asked for: never more than the file and a little for each part.
        let whole = vec!["0-"; 32].join(",");
        assert_eq!(ask_for(&server, "large.bin", &format!("bytes={whole}")).body.len(), 3_000_000);
        let many: Vec<_> = (0..32).map(|n| format!("{}-{}", n * 300, n * 300 + 100)).collect();
        let response = ask_for(&server, "small.bin", &format!("bytes={}", many.join(",")));
        let expected: Vec<_> = (0..32).map(|n| (n * 300, n * 300 + 100)).collect();
        assert_parts(&response, 10_000, &expected);
        assert!(response.body.len() < 10_000, "{}", response.body.len());
    });
}
