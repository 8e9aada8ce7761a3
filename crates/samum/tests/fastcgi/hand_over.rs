//! Requests that an application hands over to files of the site.

use testkit::Tree;

use crate::application::{Act, application, end, output};
use crate::stage::{Stage, on_both_drivers, text, tree};

const FILE: &str = "0123456789";

/// A tree with a script, internal files, and a file that no route has.
fn files() -> Tree {
    tree()
        .file("www/index.php", "<?php source")
        .file("www/sub/index.php", "<?php source")
        .file("inner/a.bin", FILE)
        .file("inner/.hidden", "secret")
        .file("secret", "secret")
}

/// A server with an internal route, and one whose directory is also that of the scripts. The application answers
/// each request with one of these headers.
fn stage<'a>(driver: &str, tree: &Tree, headers: impl Iterator<Item = &'a str>) -> Stage {
    let acts = headers.map(|header| {
        Act::Close(
            [output(&format!("Content-Type: a/b\r\n{header}\r\n\r\nignored")), end(0)].concat(),
        )
    });
    let _seen = application(&tree.path().join("php.sock"), acts.collect());
    let root = tree.path().display();
    let routes = format!(
        "[[site.route]]\npath = '/inner/'\nfiles = '{root}/inner'\ninternal = true\n\
         [[site.route]]\npath = '/all/'\nfiles = '{root}/www'\ninternal = true\n"
    );
    Stage::with(driver, tree, "", &routes)
}

#[test]
fn a_file_is_sent_in_the_place_of_an_output() {
    on_both_drivers(|driver| {
        let tree = files();
        let root = tree.path().display();
        let by_file = format!("X-Sendfile: {root}/inner/a.bin");
        let own = format!("X-Sendfile: {root}/www/a.txt");
        let fields = "X-Accel-Redirect: /inner/a.bin\r\nSet-Cookie: a=1\r\nX-Powered-By: it";
        let cases = [
            ("X-Accel-Redirect: /inner/a.bin", "GET /", 200, FILE),
            (&by_file, "GET /", 200, FILE),
            ("X-Accel-Redirect: /a.txt", "GET /", 200, "a file"),
            (&own, "GET /", 200, "a file"),
            ("X-Accel-Redirect: /inner/a.bin", "GET /\nRange: bytes=2-4", 206, "234"),
            (&by_file, "GET /\nRange: bytes=-3", 206, "789"),
            (&by_file, "GET /\nRange: bytes=10-", 416, ""),
            ("X-Accel-Redirect: /inner/a.bin", "HEAD /", 200, ""),
            (fields, "GET /", 200, FILE),
        ];
        let stage = stage(driver, &tree, cases.iter().map(|(header, ..)| *header));
        for (header, request, status, body) in cases {
            let response = stage.ask(request);
            assert_eq!(response.status, status, "{header}");
            for name in ["X-Accel-Redirect", "X-Sendfile", "X-Powered-By"] {
                assert_eq!(response.header(name), None);
            }
            if status == 416 {
                assert_eq!(response.header("Content-Range"), Some("bytes */10"));
                continue;
            }
            assert_eq!(text(&response), body, "{header} {request}");
            assert!(response.header("ETag").is_some());
            assert_eq!(response.header("Content-Type"), Some("a/b"));
            let cookie = (header == fields).then_some("a=1");
            assert_eq!(response.header("Set-Cookie"), cookie);
        }
        assert_eq!(stage.ask("GET /inner/a.bin").status, 502, "there are no more acts");
        assert!(!stage.server.stderr().iter().any(|line| line.contains("leads to no file")));
    });
}

#[test]
fn what_is_no_file_of_a_route_is_refused() {
    on_both_drivers(|driver| {
        let tree = files();
        let root = tree.path().display();
        let headers = [
            "X-Accel-Redirect: /inner/.hidden".to_owned(),
            "X-Accel-Redirect: /inner/../../secret".to_owned(),
            "X-Accel-Redirect: http://a/inner/a.bin".to_owned(),
            format!("X-Sendfile: {root}/secret"),
            format!("X-Sendfile: {root}/inner/../secret"),
            format!("X-Sendfile: {root}/innermost"),
            "X-Sendfile: inner/a.bin".to_owned(),
            format!("X-Accel-Redirect: /inner/a.bin\r\nX-Sendfile: {root}/inner/a.bin"),
        ];
        let stage = stage(driver, &tree, headers.iter().map(|header| &header[..]));
        for header in &headers {
            let response = stage.ask("GET /");
            assert_eq!(response.status, 502, "{header}: {}", text(&response));
            stage.wait_for_log("php.sock: ");
        }
        let failed = stage.count("samum_proxy_requests_total", &[("event", "failed")]);
        assert_eq!(failed, headers.len() as u64);
        stage.wait_for_log("leads to no file of a route of the site");
    });
}

/// Neither by a path of its own route, nor by another route with the same directory.
#[test]
fn the_source_of_a_script_is_not_sent() {
    on_both_drivers(|driver| {
        let tree = files();
        let root = tree.path().display();
        let headers = [
            "X-Accel-Redirect: /index.php".to_owned(),
            "X-Accel-Redirect: /sub/index.php?a".to_owned(),
            "X-Accel-Redirect: /sub/".to_owned(),
            "X-Accel-Redirect: /".to_owned(),
            "X-Accel-Redirect: /all/index.php".to_owned(),
            format!("X-Sendfile: {root}/www/index.php"),
            format!("X-Sendfile: {root}/www//sub/./index.php"),
            // As a CGI program hands a request over.
            "Location: /index.php".to_owned(),
        ];
        let stage = stage(driver, &tree, headers.iter().map(|header| &header[..]));
        for header in &headers {
            let response = stage.ask("GET /");
            assert_eq!(response.status, 502, "{header}: {}", text(&response));
            assert!(!text(&response).contains("source"), "{header}");
        }
        stage.wait_for_log("/index.php leads to no file of a route of the site");
    });
}

#[test]
fn the_type_is_that_of_the_file_if_the_application_names_none() {
    on_both_drivers(|driver| {
        let tree = files();
        let root = tree.path().display();
        let by_file = format!("X-Sendfile: {root}/www/a.txt\r\n\r\nignored");
        let cases = [
            ("X-Accel-Redirect: /a.txt\r\n\r\n", 200, "a file", Some("text/plain; charset=utf-8")),
            (&by_file, 200, "a file", Some("text/plain; charset=utf-8")),
            // Without a hand-over there is none (RFC 9110 §8.3).
            ("Status: 201 Created\r\n\r\n", 201, "", None),
            ("X-Powered-By: it\r\n\r\nhello", 200, "hello", None),
        ];
        let acts = cases.iter().map(|(out, ..)| Act::Close([output(out), end(0)].concat()));
        let _seen = application(&tree.path().join("php.sock"), acts.collect());
        let stage = Stage::new(driver, &tree);
        for (out, status, body, content_type) in cases {
            let response = stage.ask("GET /");
            assert_eq!((response.status, text(&response)), (status, body), "{out}");
            assert_eq!(response.header("Content-Type"), content_type, "{out}");
        }
    });
}
