//! Index, redirect, listing.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;

use testkit::{Framing, Tree};

use crate::common::{ask, ask_raw, connect, on_both_drivers, serve};

#[test]
fn a_directory_is_its_index() {
    on_both_drivers(|driver| {
        let tree = Tree::new()
            .file("index.html", "root")
            .file("d/index.html", "below")
            .file("e/other.html", "other")
            .directory("f/index.html");
        let server = serve(driver, tree.path(), &[]);
        assert_eq!(ask(&server, "GET /").body, b"root");
        assert_eq!(ask(&server, "GET /d/").body, b"below");
        assert_eq!(ask(&server, "GET /d/.").body, b"below");
        assert_eq!(ask(&server, "GET /d/x/..").body, b"below");
        assert_eq!(ask(&server, "GET /d/?query").body, b"below");
        assert_eq!(
            ask(&server, "GET /d/").header("Content-Type"),
            Some("text/html; charset=utf-8")
        );
        assert_eq!(ask(&server, "GET /e/").status, 404, "no index, and listings are off");
        assert_eq!(ask(&server, "GET /f/").status, 404, "an index that is a directory");
        drop(server);
        let server = serve(driver, tree.path(), &["--index", "other.html"]);
        assert_eq!(ask(&server, "GET /e/").body, b"other");
        assert_eq!(ask(&server, "GET /d/").status, 404);
    });
}

#[test]
fn a_directory_without_its_slash_is_redirected_on_this_host() {
    on_both_drivers(|driver| {
        let tree = Tree::new().directory("d/e").directory("evil.example").symlink("link", "d");
        let names: [(&[u8], &str); 7] = [
            (b"a b", "/a%20b/"),
            (b"cr\r\nSet-Cookie: x", "/cr%0D%0ASet-Cookie%3A%20x/"),
            (b"quotes\"'<>", "/quotes%22%27%3C%3E/"),
            ("gr\u{fc}n".as_bytes(), "/gr%C3%BCn/"),
            (b"\xff\xfe", "/%FF%FE/"),
            (b"100%41", "/100%2541/"),
            (b"back\\slash", "/back%5Cslash/"),
        ];
        for (name, _) in names {
            fs::create_dir(tree.path().join(OsStr::from_bytes(name))).unwrap();
        }
        let server = serve(driver, tree.path(), &[]);
        let location = |target: &str| {
            let response = ask(&server, &format!("GET {target}"));
            assert_eq!(response.status, 301, "{target}");
            response.header("Location").unwrap().to_owned()
        };
        assert_eq!(location("/d"), "/d/");
        assert_eq!(location("/d/e"), "/d/e/");
        assert_eq!(location("/d?a=b&c"), "/d/?a=b&c");
        assert_eq!(location("/d?//evil"), "/d/?//evil");
        assert_eq!(location("/link"), "/link/");
        for open in [
            "//evil.example",
            "///evil.example",
            "/.//evil.example",
            "/d/..//evil.example",
            "/%2e//evil.example",
        ] {
            assert_eq!(location(open), "/evil.example/", "{open}");
        }
        assert_eq!(location("http://evil.example/d"), "/d/");
        for (name, expected) in names {
            let encoded: String = name.iter().map(|byte| format!("%{byte:02x}")).collect();
            assert_eq!(location(&format!("/{encoded}")), expected);
        }
        let head = ask(&server, "HEAD /d");
        assert_eq!((head.status, head.header("Location")), (301, Some("/d/")));
    });
}

fn listed() -> Tree {
    let tree = Tree::new()
        .file("b.txt", "12345")
        .file("a.txt", "1")
        .file("sub/x", "x")
        .directory("Zdir")
        .symlink("link", "a.txt")
        .file("<script>alert(1)</script>.txt".replace('/', "_"), "")
        .file("\"quoted\" & 'so'", "")
        .file("javascript:alert(1)", "")
        .file(".hidden", "");
    fs::write(tree.path().join(OsStr::from_bytes(b"bad\xffutf8\n")), "").unwrap();
    tree
}

#[test]
fn a_listing_is_html_sorted_and_escaped() {
    on_both_drivers(|driver| {
        let tree = listed();
        let server = serve(driver, tree.path(), &["--listing"]);
        let response = ask(&server, "GET /");
        assert_eq!((response.status, response.framing), (200, Framing::Chunked));
        assert_eq!(response.header("Content-Type"), Some("text/html; charset=utf-8"));
        assert_eq!(response.header("X-Content-Type-Options"), Some("nosniff"));
        assert_eq!(response.header("Vary"), Some("Accept"));
        let page = String::from_utf8(response.body).unwrap();
        let place = |text: &str| page.find(text).unwrap_or_else(|| panic!("{text} in {page}"));
        assert!(place("href=\"./Zdir/\"") < place("href=\"./sub/\""), "directories by name");
        assert!(place("href=\"./sub/\"") < place("href=\"./a.txt\""), "before files");
        assert!(place("href=\"./a.txt\"") < place("href=\"./b.txt\""), "by name");
        place("href=\"./bad%FFutf8%0A\"");
        place("./%22quoted%22%20%26%20%27so%27");
        place("&quot;quoted&quot; &amp; &#39;so&#39;");
        assert!(!page.contains("<script>") && !page.contains("href=\"javascript"), "{page}");
        assert!(!page.contains("href=\"../\""), "there is nothing above the root");
        assert!(
            String::from_utf8(ask(&server, "GET /sub/").body).unwrap().contains("href=\"../\"")
        );
    });
}

#[test]
fn a_listing_is_json_for_those_who_prefer_it() {
    on_both_drivers(|driver| {
        let tree = listed();
        let server = serve(driver, tree.path(), &["--listing"]);
        let response = ask(&server, "GET /\nAccept: application/json");
        assert_eq!(response.header("Content-Type"), Some("application/json"));
        let json = String::from_utf8(response.body).unwrap();
        let lines: Vec<_> = json.lines().collect();
        assert_eq!((lines.first(), lines.last()), (Some(&"["), Some(&"]")));
        let names: Vec<_> = lines[1..lines.len() - 1]
            .iter()
            .map(|line| {
                line.split("\"name\":\"")
                    .nth(1)
                    .and_then(|rest| rest.split("\",\"type\"").next())
                    .expect(line)
            })
            .collect();
        assert_eq!(
            names,
            [
                "Zdir",
                "sub",
                "\\\"quoted\\\" & 'so'",
                ".hidden",
                "<script>alert(1)<_script>.txt",
                "a.txt",
                "b.txt",
                "bad\u{fffd}utf8\\u000a",
                "javascript:alert(1)",
                "link"
            ]
        );
        assert!(json.contains("\"name\":\"b.txt\",\"type\":\"file\",\"size\":5,"), "{json}");
        assert!(json.contains("\"name\":\"sub\",\"type\":\"directory\","), "{json}");
        // Each leads to what it stands for, whatever its name.
        for line in &lines[1..lines.len() - 1] {
            let href = line.split("\"href\":\"./").nth(1).and_then(|rest| rest.split('"').next());
            let status = ask(&server, &format!("GET /{}", href.expect(line))).status;
            assert_eq!(status, 200, "{line}");
        }
        let html = ask(&server, "GET /\nAccept: text/html,application/xhtml+xml,*/*;q=0.8");
        assert_eq!(html.header("Content-Type"), Some("text/html; charset=utf-8"));
    });
}

#[test]
fn a_long_listing_is_complete_however_the_client_reads() {
    on_both_drivers(|driver| {
        let tree = Tree::new();
        for number in 0..3000 {
            tree.write(format!("file-{number:04}"), "");
        }
        let server = serve(driver, tree.path(), &["--listing"]);
        let count = |body: &[u8]| String::from_utf8_lossy(body).matches("href=\"./file-").count();
        // Chunked, with a request behind it.
        let mut client = connect(&server);
        client
            .send(
                crate::common::request("GET /").repeat(3)
                    + &crate::common::request("GET /file-0001"),
            )
            .unwrap();
        for _ in 0..3 {
            let response = client.response().unwrap();
            assert_eq!((response.framing, count(&response.body)), (Framing::Chunked, 3000));
        }
        assert_eq!(client.response().unwrap().header("Content-Length"), Some("0"));
        // HTTP/1.0 knows no chunks: the connection's end is the listing's, whatever was asked for.
        for fields in ["", "Connection: keep-alive\r\n"] {
            let mut client = connect(&server);
            client.send(format!("GET / HTTP/1.0\r\n{fields}\r\n").repeat(2)).unwrap();
            let response = client.response().unwrap();
            assert_eq!(
                (response.framing, response.header("Connection")),
                (Framing::Close, Some("close"))
            );
            assert_eq!(count(&response.body), 3000, "{fields}");
        }
        let head = ask_raw(&server, "HEAD / HTTP/1.0\r\n\r\n");
        assert!(head.ends_with(b"\r\n\r\n"), "no body");
    });
}

#[test]
fn a_listing_of_what_cannot_be_listed_is_an_error() {
    on_both_drivers(|driver| {
        let tree = Tree::new().file("a", "a").directory("d");
        let server = serve(driver, tree.path(), &["--listing"]);
        assert_eq!(ask(&server, "GET /missing/").status, 404);
        assert_eq!(ask(&server, "GET /a/").status, 404);
        assert_eq!(ask(&server, "GET /d/").status, 200);
        assert_eq!(ask(&server, "GET /d").status, 301);
    });
}
