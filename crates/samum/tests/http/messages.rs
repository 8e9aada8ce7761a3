//! Methods, the fields of responses, and how long a connection lives.

use testkit::{Content, Framing, Tree};

use crate::common::{ask, ask_on, ask_raw, connect, on_both_drivers, request, serve};

fn tree() -> Tree {
    Tree::new().file("a.txt", "hello, world\n").file("big.bin", Content::pseudo_random(1, 300_000))
}

#[test]
fn get_sends_the_file_and_says_what_it_is() {
    on_both_drivers(|driver| {
        let tree = tree();
        let server = serve(driver, tree.path(), &[]);
        let response = ask(&server, "GET /a.txt");
        assert_eq!((response.status, response.minor_version), (200, 1));
        assert_eq!(response.body, b"hello, world\n");
        assert_eq!(response.framing, Framing::Length(13));
        assert_eq!(response.header("Content-Type"), Some("text/plain; charset=utf-8"));
        assert_eq!(response.header("Accept-Ranges"), Some("bytes"));
        assert_eq!(response.header("Server"), Some("samum"));
        assert_eq!(response.header("Vary"), None, "there is nothing to choose from");
        let etag = response.header("ETag").expect("a validator");
        assert!(etag.starts_with('"') && etag.ends_with('"') && etag.len() > 2, "strong: {etag}");
        for field in ["Date", "Last-Modified"] {
            let date = response.header(field).expect("a date");
            assert!(date.len() == 29 && date.ends_with(" GMT"), "{field}: {date}");
        }
    });
}

#[test]
fn types_follow_from_names() {
    on_both_drivers(|driver| {
        let names = [
            ("index.html", "text/html; charset=utf-8"),
            ("s.css", "text/css; charset=utf-8"),
            ("s.js", "text/javascript; charset=utf-8"),
            ("d.json", "application/json; charset=utf-8"),
            ("i.svg", "image/svg+xml; charset=utf-8"),
            ("i.PNG", "image/png"),
            ("v.mp4", "video/mp4"),
            ("archive.tar.gz", "application/gzip"),
            ("unknown", "application/octet-stream"),
        ];
        let tree = Tree::new();
        for (name, _) in names {
            tree.write(name, "x");
        }
        let server = serve(driver, tree.path(), &[]);
        for (name, kind) in names {
            assert_eq!(
                ask(&server, &format!("GET /{name}")).header("Content-Type"),
                Some(kind),
                "{name}"
            );
        }
    });
}

#[test]
fn head_has_the_fields_of_get_and_no_body() {
    on_both_drivers(|driver| {
        let tree = tree();
        let server = serve(driver, tree.path(), &["--listing"]);
        let mut client = connect(&server);
        for path in ["/a.txt", "/big.bin", "/missing", "/"] {
            let head = ask_on(&mut client, &format!("HEAD {path}"));
            let mut get = ask_on(&mut client, &format!("GET {path}"));
            get.body.clear();
            get.trailers.clear();
            // Between the two a second may have passed.
            let undated = |mut response: testkit::Response| {
                response.headers.retain(|(name, _)| name != "Date");
                response
            };
            assert_eq!(undated(head), undated(get), "{path}");
        }
    });
}

#[test]
fn options_says_what_is_allowed() {
    on_both_drivers(|driver| {
        let tree = tree();
        let server = serve(driver, tree.path(), &[]);
        for target in ["/a.txt", "/missing", "*", "http://test", "http://test/a.txt"] {
            let response = ask(&server, &format!("OPTIONS {target}"));
            assert_eq!(response.status, 204, "{target}");
            assert_eq!(response.header("Allow"), Some("GET, HEAD, OPTIONS"));
        }
    });
}

#[test]
fn other_methods_are_not_allowed_or_not_implemented() {
    on_both_drivers(|driver| {
        let tree = tree();
        let server = serve(driver, tree.path(), &[]);
        let mut client = connect(&server);
        for method in ["POST", "PUT", "PATCH", "DELETE", "TRACE"] {
            let response = ask_on(&mut client, &format!("{method} /a.txt"));
            assert_eq!(response.status, 405, "{method}");
            assert_eq!(response.header("Allow"), Some("GET, HEAD, OPTIONS"), "{method}");
        }
        for method in ["get", "BREW", "PROPFIND", "M-SEARCH"] {
            assert_eq!(ask_on(&mut client, &format!("{method} /a.txt")).status, 501, "{method}");
        }
        assert_eq!(
            ask_on(&mut client, "GET /a.txt").status,
            200,
            "the connection is as good as before"
        );
        assert_eq!(ask(&server, "CONNECT test:80").status, 405);
    });
}

#[test]
fn a_page_says_what_went_wrong() {
    on_both_drivers(|driver| {
        let tree = tree();
        let server = serve(driver, tree.path(), &[]);
        let response = ask(&server, "GET /missing");
        assert_eq!(response.status, 404);
        assert_eq!(response.header("Content-Type"), Some("text/html; charset=utf-8"));
        let page = String::from_utf8(response.body).unwrap();
        assert!(
            page.contains("<h1>404 Not Found</h1><p>There is nothing by this name.</p>"),
            "{page}"
        );
        let rejected = String::from_utf8(ask_raw(&server, "GET / HTTP/1.1\r\n\r\n")).unwrap();
        assert!(
            rejected.contains("<p>The request was refused: HTTP/1.1 without a Host field.</p>"),
            "{rejected}"
        );
    });
}

#[test]
fn http_1_1_connections_stay_open_unless_told_otherwise() {
    on_both_drivers(|driver| {
        let tree = tree();
        let server = serve(driver, tree.path(), &[]);
        let mut client = connect(&server);
        for _ in 0..100 {
            let response = ask_on(&mut client, "GET /a.txt");
            assert_eq!((response.status, response.header("Connection")), (200, None));
        }
        let response = ask_on(&mut client, "GET /a.txt\nConnection: Keep-Alive, Close");
        assert_eq!(response.header("Connection"), Some("close"));
        assert_eq!(client.read_to_end().unwrap(), b"");
    });
}

#[test]
fn http_1_0_connections_close_unless_told_otherwise() {
    on_both_drivers(|driver| {
        let tree = tree();
        let server = serve(driver, tree.path(), &[]);
        let mut client = connect(&server);
        for _ in 0..3 {
            client.send("GET /a.txt HTTP/1.0\r\nConnection: keep-alive\r\n\r\n").unwrap();
            let response = client.response().unwrap();
            assert_eq!(response.header("Connection"), Some("keep-alive"));
            assert_eq!(response.body, b"hello, world\n");
        }
        client.send("GET /a.txt HTTP/1.0\r\n\r\n").unwrap();
        let response = client.response().unwrap();
        assert_eq!((response.status, response.minor_version), (200, 1));
        assert_eq!(response.header("Connection"), Some("close"));
        assert_eq!(client.read_to_end().unwrap(), b"");
    });
}

#[test]
fn a_half_closed_client_still_gets_its_answers() {
    on_both_drivers(|driver| {
        let tree = tree();
        let server = serve(driver, tree.path(), &[]);
        let mut client = connect(&server);
        client.send(request("GET /big.bin") + &request("GET /a.txt")).unwrap();
        client.finish_sending().unwrap();
        Content::pseudo_random(1, 300_000).assert_is(&client.response().unwrap().body);
        assert_eq!(client.response().unwrap().body, b"hello, world\n");
        assert_eq!(client.read_to_end().unwrap(), b"");
    });
}

#[test]
fn a_request_may_come_one_byte_at_a_time() {
    on_both_drivers(|driver| {
        let tree = tree();
        let server = serve(driver, tree.path(), &[]);
        let mut client = connect(&server);
        for byte in request("GET /a.txt\nRange: bytes=0-4").bytes() {
            client.send([byte]).unwrap();
        }
        let response = client.response().unwrap();
        assert_eq!((response.status, &response.body[..]), (206, &b"hello"[..]));
    });
}

#[test]
fn host_is_asked_for_and_an_absolute_target_overrides_it() {
    on_both_drivers(|driver| {
        let tree = tree();
        let server = serve(driver, tree.path(), &[]);
        let status = |head: &str| {
            let answer = ask_raw(&server, format!("{head}\r\nConnection: close\r\n\r\n"));
            String::from_utf8_lossy(&answer[9..12]).into_owned()
        };
        assert_eq!(status("GET /a.txt HTTP/1.1"), "400", "none");
        assert_eq!(status("GET /a.txt HTTP/1.1\r\nHost: a\r\nHost: a"), "400", "two");
        assert_eq!(status("GET /a.txt HTTP/1.1\r\nHost: a b"), "400", "a space in it");
        assert_eq!(status("GET /a.txt HTTP/1.1\r\nHost: u@a"), "400", "user information");
        assert_eq!(status("GET http:///a.txt HTTP/1.1\r\nHost: a"), "400", "none in the target");
        assert_eq!(status("GET /a.txt HTTP/1.0"), "200", "1.0 need not");
        for good in ["", "a", "a:80", "[::1]:8080", "127.0.0.1"] {
            assert_eq!(status(&format!("GET /a.txt HTTP/1.1\r\nHost: {good}")), "200", "{good}");
        }
        assert_eq!(status("GET http://other:81/a.txt?x HTTP/1.1\r\nHost: a"), "200");
        assert_eq!(status("GET HTTPS://other/missing HTTP/1.1\r\nHost: a"), "404");
    });
}

#[test]
fn a_modification_time_in_the_future_is_not_told() {
    on_both_drivers(|driver| {
        let tree = tree();
        for name in ["a.txt", "big.bin"] {
            let file = std::fs::File::options().write(true).open(tree.path().join(name)).unwrap();
            let future = std::time::SystemTime::now() + core::time::Duration::from_secs(86_400);
            file.set_modified(future).unwrap();
        }
        let server = serve(driver, tree.path(), &[]);
        // RFC 9110 §8.8.2.1: the date of the message stands in for it.
        let mut last = None;
        for head in ["GET /a.txt", "GET /big.bin", "GET /a.txt\nRange: bytes=0-0", "HEAD /a.txt"] {
            let response = ask(&server, head);
            assert!(response.header("Date").is_some());
            assert_eq!(response.header("Last-Modified"), response.header("Date"), "{head}");
            last = response.header("Date").map(str::to_owned);
        }
        // And once more in another second.
        let changed = crate::common::wait_until(crate::common::SOON, || {
            let response = ask(&server, "GET /a.txt");
            assert_eq!(response.header("Last-Modified"), response.header("Date"));
            response.header("Date") != last.as_deref()
        });
        assert!(changed);
    });
}
