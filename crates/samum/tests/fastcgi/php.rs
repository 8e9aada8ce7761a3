//! php-fpm.

use core::time::Duration;
use std::fs;

use testkit::{Tree, or_skip, request};

use crate::common::{SOON, wait_until};
use crate::fastcgi::stage::{Php, on_both_drivers, serve, serve_route, serve_with, text, tree};

/// Prints some variables, and a digest of the content.
const SHOW: &str = r#"<?php
foreach (['REQUEST_METHOD', 'REQUEST_URI', 'QUERY_STRING', 'SCRIPT_NAME', 'SCRIPT_FILENAME', 'PATH_INFO',
          'DOCUMENT_ROOT', 'DOCUMENT_URI', 'CONTENT_LENGTH', 'HTTP_X_A', 'SERVER_PROTOCOL', 'APP'] as $name)
    echo $name, '=', $_SERVER[$name] ?? '-', "\n";
$content = file_get_contents('php://input');
echo strlen($content), ' ', md5($content), "\n";
"#;

fn scripts() -> Tree {
    tree()
        .file("www/index.php", SHOW)
        .file("www/sub/show.php", SHOW)
        .file("www/sub/b.txt", "b")
        .file("www/dir.php/b.txt", "b")
        .file("www/dir.php/.secret", "secret")
        .file("www/dir.php/.d/b.txt", "secret")
        .file("www/.show.php", SHOW)
        .file("www/dir.php/in.php/show.php", SHOW)
}

/// The value of a variable that a script has shown.
#[track_caller]
fn value<'a>(shown: &'a str, name: &str) -> &'a str {
    let line = shown.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    line.unwrap_or_else(|| panic!("no {name} in {shown}"))
}

#[test]
fn a_path_leads_to_a_script_or_a_file() {
    on_both_drivers(|driver| {
        let tree = scripts();
        let _php = or_skip!(Php::start(&tree));
        let stage = serve_with(driver, &tree, ", environment = { APP = 'x' }", "");
        let long = format!("/sub/show.php/{}", "n".repeat(300));
        for (path, name, info) in [
            ("/", "/index.php", "-"),
            ("/?a=b", "/index.php", "-"),
            ("/index.php", "/index.php", "-"),
            ("/sub/show.php?x=1&y", "/sub/show.php", "-"),
            ("/sub/show.php/a%20b/c/", "/sub/show.php", "/a b/c/"),
            ("/sub/../sub//show.php/a", "/sub/show.php", "/a"),
            // The front controller.
            ("/2026/11/a-post/?p=1", "/index.php", "-"),
            ("/sub/missing.php", "/index.php", "-"),
            ("/missing.php/info", "/index.php", "-"),
            // Directories may have such names, too.
            ("/dir.php/in.php/show.php/info", "/dir.php/in.php/show.php", "/info"),
            ("/dir.php/missing", "/index.php", "-"),
            // The slash is none for names of files, and the path of a request is told as it came.
            ("/a%2Fpost", "/index.php", "-"),
            ("/sub%2Fshow.php", "/index.php", "-"),
            ("/sub%2Fshow.php/a", "/index.php", "-"),
            ("/sub/show.php/a%2fb/%5C", "/sub/show.php", "/a/b/\\"),
            ("/sub/show.php/files/.hidden", "/sub/show.php", "/files/.hidden"),
            (&long, "/sub/show.php", &long["/sub/show.php".len()..]),
        ] {
            let response = stage.ask(&format!("GET {path}\nX-A: b"));
            assert_eq!(response.status, 200, "{path}: {:?}", stage.server.stderr());
            assert_eq!(response.header("Content-Type"), Some("text/html; charset=UTF-8"));
            let shown = text(&response);
            assert_eq!(value(shown, "SCRIPT_NAME"), name, "{path}");
            assert_eq!(value(shown, "PATH_INFO"), info, "{path}");
            assert_eq!(value(shown, "REQUEST_URI"), path);
            assert_eq!(
                value(shown, "QUERY_STRING"),
                path.split_once('?').map_or("", |(_, query)| query)
            );
            let document = format!("{name}{}", info.trim_matches('-'));
            assert_eq!(value(shown, "DOCUMENT_URI"), document, "{path}");
            let root = format!("{}/www", tree.path().display());
            assert_eq!(value(shown, "DOCUMENT_ROOT"), root);
            assert_eq!(value(shown, "SCRIPT_FILENAME"), root + name);
            assert_eq!((value(shown, "HTTP_X_A"), value(shown, "APP")), ("b", "x"));
        }
        assert_eq!(text(&stage.ask("GET /a.txt")), "a file");
        assert_eq!(text(&stage.ask("GET /sub/b.txt")), "b");
        assert_eq!(text(&stage.ask("GET /dir.php/b.txt")), "b");
        for path in ["/dir.php/.secret", "/dir.php/.d/b.txt", "/.show.php", "/sub/show.php/..%2F"] {
            assert_eq!(stage.ask(&format!("GET {path}")).status, 404, "{path}");
        }
        for path in ["/sub", "/dir.php", "/dir.php/in.php"] {
            let response = stage.ask(&format!("GET {path}"));
            assert_eq!(response.status, 301);
            assert_eq!(response.header("Location"), Some(&format!("{path}/")[..]));
        }
        // Letters are told as if they had been encoded.
        let response = stage.ask("GET /sub/show.php/é?ü");
        let (shown, uri) = (text(&response), "/sub/show.php/%C3%A9?%C3%BC");
        assert_eq!((value(shown, "PATH_INFO"), value(shown, "REQUEST_URI")), ("/é", uri));
        assert_eq!(value(shown, "QUERY_STRING"), "%C3%BC");
        let log = || fs::read_to_string(tree.path().join("access.log")).unwrap_or_default();
        assert!(wait_until(SOON, || log().contains(uri)), "{}", log());
        assert_eq!(stage.post("POST /a.txt", b"x").status, 405);
        let response = stage.ask("HEAD /sub/show.php");
        assert_eq!((response.status, &response.body[..]), (200, &b""[..]));
    });
}

#[test]
fn a_body_reaches_the_script() {
    on_both_drivers(|driver| {
        let tree = scripts();
        let _php = or_skip!(Php::start(&tree));
        let stage = serve(driver, &tree);
        let long: Vec<u8> = (0u8..251).cycle().take(10 * 1024 * 1024).collect();
        let digest = |bytes: &[u8]| match bytes.len() {
            0 => "0 d41d8cd98f00b204e9800998ecf8427e",
            5 => "5 5d41402abc4b2a76b9719d911017c592",
            _ => DIGEST_OF_LONG,
        };
        for body in [&b""[..], b"hello", &long] {
            for path in ["/sub/show.php", "/a/pretty/url", "/"] {
                let response = stage.post(&format!("POST {path}"), body);
                let shown = text(&response);
                assert_eq!(value(shown, "REQUEST_METHOD"), "POST");
                assert!(shown.ends_with(&format!("{}\n", digest(body))), "{path}: {shown}");
            }
        }
        let response = stage.post("POST /sub/show.php", b"");
        assert_eq!(value(text(&response), "CONTENT_LENGTH"), "0");
        // One in chunks is collected: PHP reads as much as it is told.
        let mut client = stage.connect();
        client.send(request("POST /sub/show.php\nTransfer-Encoding: chunked")).unwrap();
        client.send("2\r\nhe\r\n").unwrap();
        std::thread::sleep(Duration::from_millis(50));
        client.send("3\r\nllo\r\n0\r\n\r\n").unwrap();
        let response = client.response().unwrap();
        assert_eq!(value(text(&response), "CONTENT_LENGTH"), "5");
        assert!(text(&response).ends_with(&format!("{}\n", digest(b"hello"))));
        // What does not fit into memory waits in a file.
        let mut client = stage.connect();
        client.send(request("POST /sub/show.php\nTransfer-Encoding: chunked")).unwrap();
        client.send([b"a00000\r\n", &long[..], b"\r\n0\r\n\r\n"].concat()).unwrap();
        let response = client.response().unwrap();
        assert_eq!(value(text(&response), "CONTENT_LENGTH"), "10485760");
        assert!(text(&response).ends_with(&format!("{}\n", digest(&long))));
        assert_eq!(stage.count("samum_body_files_total", &[("event", "begun")]), 1);
    });
}

/// The request waits for its file, and all of its body has come when that is found to be a script.
#[test]
fn a_script_learns_the_length_of_a_body_in_chunks_that_has_come_before_the_file_is_found() {
    on_both_drivers(|driver| {
        let tree = scripts();
        let _php = or_skip!(Php::start(&tree));
        let stage = serve(driver, &tree);
        let mut client = stage.connect();
        let head = request("POST /sub/show.php\nTransfer-Encoding: chunked");
        client.send(head + "5\r\nhello\r\n0\r\n\r\n").unwrap();
        let response = client.response().unwrap();
        assert_eq!(value(text(&response), "CONTENT_LENGTH"), "5");
        assert!(text(&response).ends_with("5 5d41402abc4b2a76b9719d911017c592\n"));
    });
}

/// The first request waits for its file, and is held back while its body grows too long.
#[test]
fn a_script_is_not_run_for_a_body_that_is_longer_than_its_route_allows() {
    on_both_drivers(|driver| {
        let tree = scripts();
        let _php = or_skip!(Php::start(&tree));
        let stage = serve_with(driver, &tree, "", "max-body = 5");
        let chunked = "POST /sub/show.php\nTransfer-Encoding: chunked";
        for _ in 0..2 {
            let mut client = stage.connect();
            client.send(request(chunked) + "2\r\nhe\r\n4\r\nllo!\r\n0\r\n\r\n").unwrap();
            assert_eq!(client.response().unwrap().status, 413);
            assert_eq!(client.read_to_end().unwrap(), b"");
        }
        assert_eq!(stage.post("POST /sub/show.php", b"hello!").status, 413);
        let mut client = stage.connect();
        client.send(request(chunked) + "5\r\nhello\r\n0\r\n\r\n").unwrap();
        let response = client.response().unwrap();
        assert_eq!(value(text(&response), "CONTENT_LENGTH"), "5");
        assert_eq!(stage.post("POST /sub/show.php", b"hello").status, 200);
    });
}

#[test]
fn a_directory_leads_to_the_first_index_that_it_has() {
    on_both_drivers(|driver| {
        let script = "<?php echo 'run ', $_SERVER['SCRIPT_NAME'];";
        let tree = tree()
            .file("www/plain/index.html", "plain")
            .file("www/both/index.html", "plain")
            .file("www/both/index.php", script);
        let _php = or_skip!(Php::start(&tree));
        let root = tree.path().display();
        let route = format!(
            "files = '{root}/www'\nindex = ['index.php', 'index.html']\nfastcgi = 'unix:{root}/php.sock'"
        );
        let stage = serve_route(driver, &tree, "", &route);
        let leads_to = |head: &str, expected: &str| {
            assert!(wait_until(SOON, || text(&stage.ask(head)) == expected), "{head}: {expected}");
        };
        for _ in 0..2 {
            leads_to("GET /plain/", "plain");
            leads_to("GET /both/", "run /both/index.php");
            leads_to("GET /both/index.html", "plain");
        }
        assert_eq!(text(&stage.post("POST /both/", b"hello")), "run /both/index.php");
        assert_eq!(stage.post("POST /plain/", b"hello").status, 405);
        tree.write("www/plain/index.php", script);
        leads_to("GET /plain/", "run /plain/index.php");
        fs::remove_file(tree.path().join("www/both/index.php")).unwrap();
        leads_to("GET /both/", "plain");
    });
}

/// Of 10 MiB.
const DIGEST_OF_LONG: &str = "10485760 d9a6fbf6e6dbdfe64365f218c62dbcd7";

#[test]
fn responses_are_streamed() {
    on_both_drivers(|driver| {
        let tree = scripts()
            .file(
                "www/many.php",
                "<?php for ($i = 0; $i < $_GET['n']; $i++) echo str_repeat('x', 1024);",
            )
            .file(
                "www/length.php",
                "<?php header('Content-Length: 65536'); echo str_repeat('y', 65536);",
            )
            .file("www/slow.php", "<?php echo 'a'; flush(); usleep(200000); echo 'b';")
            .file("www/none.php", "<?php http_response_code(204);")
            .file("www/moved.php", "<?php header('Location: /a.txt');")
            .file("www/gone.php", "<?php http_response_code(404); echo 'nothing';");
        let _php = or_skip!(Php::start(&tree));
        for keep in ["", ", keep = true"] {
            let stage = serve_with(driver, &tree, keep, "buffer = '64k'\n");
            let mut client = stage.connect();
            for count in [1, 64, 8192] {
                client.send(request(&format!("GET /many.php?n={count}"))).unwrap();
                let body = client.response().unwrap().body;
                assert_eq!(body.len(), count * 1024);
                assert!(body.iter().all(|byte| *byte == b'x'));
            }
            for (path, status, body) in [
                ("/length.php", 200, "y".repeat(65_536)),
                ("/slow.php", 200, "ab".to_owned()),
                ("/none.php", 204, String::new()),
                ("/moved.php", 302, String::new()),
                ("/gone.php", 404, "nothing".to_owned()),
            ] {
                client.send(request(&format!("GET {path}"))).unwrap();
                let response = client.response().unwrap();
                assert_eq!((response.status, text(&response)), (status, &body[..]), "{path}");
            }
            let response = stage.ask("HEAD /length.php");
            assert_eq!(response.header("Content-Length"), Some("65536"));
        }
    });
}

#[test]
fn scripts_that_fail_are_told_to_the_client_and_the_operator() {
    on_both_drivers(|driver| {
        let tree = scripts()
            .file("www/exit.php", "<?php echo 'said'; exit(3);")
            .file("www/log.php", "<?php error_log('for the operator'); echo 'fine';")
            .file("www/fatal.php", "<?php missing();")
            .file("www/die.php", "<?php exec('kill -9 ' . getmypid()); sleep(5);")
            .file(
                "www/cut.php",
                "<?php echo str_repeat('x', 100000); flush(); exec('kill -9 ' . getmypid()); sleep(5);",
            )
            .file("www/sleep.php", "<?php sleep(4); echo 'late';");
        let _php = or_skip!(Php::start(&tree));
        let stage = serve_with(driver, &tree, "", "timeout-upstream = 1\n");
        let counted = |event| stage.count("samum_proxy_requests_total", &[("event", event)]);
        assert_eq!(text(&stage.ask("GET /exit.php")), "said");
        assert_eq!(text(&stage.ask("GET /log.php?secret")), "fine");
        stage.wait_for_log("php.sock /log.php: PHP message: for the operator");
        assert_eq!(stage.ask("GET /fatal.php").status, 500);
        stage.wait_for_log("/fatal.php: PHP message: PHP Fatal error");
        assert_eq!((counted("begun"), counted("failed")), (3, 0));
        assert_eq!(stage.ask("GET /die.php").status, 502);
        assert_eq!(counted("failed"), 1);
        // It is closed, or reset if something of the request was not read.
        stage.wait_for_log("php.sock /die.php: ");
        let mut client = stage.connect();
        client.send(request("GET /cut.php")).unwrap();
        client.response().expect_err("it is cut off");
        assert_eq!((counted("failed"), counted("timeout")), (2, 0));
        assert_eq!(stage.ask("GET /sleep.php").status, 504);
        assert_eq!((counted("failed"), counted("timeout")), (3, 1));
        stage.wait_for_log("php.sock /sleep.php: it did not answer within 1 s");
        assert!(!stage.server.stderr().iter().any(|line| line.contains("secret")));
    });
}

#[test]
fn without_files_the_application_decides_what_exists() {
    on_both_drivers(|driver| {
        let tree = scripts();
        let _php = or_skip!(Php::start(&tree));
        let root = tree.path().display();
        let route = format!("fastcgi = {{ server = 'unix:{root}/php.sock', root = '{root}/www' }}");
        let stage = serve_route(driver, &tree, "", &route);
        for (path, name, info) in [
            ("/", "/index.php", "-"),
            ("/sub/show.php/x", "/sub/show.php", "/x"),
            ("/sub/show.php/x%2Fy", "/sub/show.php", "/x/y"),
        ] {
            let response = stage.ask(&format!("GET {path}"));
            let shown = text(&response);
            assert_eq!((value(shown, "SCRIPT_NAME"), value(shown, "PATH_INFO")), (name, info));
        }
        for path in ["/missing.php", "/sub%2Fshow.php"] {
            assert_eq!(stage.ask(&format!("GET {path}")).status, 404);
        }
        stage.wait_for_log("Primary script unknown");
        // It runs nothing but scripts.
        assert_eq!(stage.ask("GET /a.txt").status, 403);
    });
}

/// A trusted proxy says what its client has asked for, and nobody else does.
#[test]
fn the_scheme_is_that_which_a_trusted_proxy_says() {
    const SCHEME: &str = "<?php foreach (['HTTPS', 'REQUEST_SCHEME', 'SERVER_PORT', 'HTTP_X_FORWARDED_PROTO', \
        'HTTP_FORWARDED'] as $name) echo $_SERVER[$name] ?? '-', ' ';";
    on_both_drivers(|driver| {
        let tree = tree().file("www/index.php", SCHEME);
        let _php = or_skip!(Php::start(&tree));
        let root = tree.path().display();
        let route = format!(
            "files = '{root}/www'\nindex = 'index.php'\nfastcgi = {{ server = 'unix:{root}/php.sock' }}\n"
        );
        let trusted = serve_route(driver, &tree, "trusted-proxies = ['127.0.0.1']", &route);
        for (fields, expected) in [
            ("X-Forwarded-Proto: https", "on https 443 https - "),
            ("X-Forwarded-Proto: https\nX-Forwarded-Port: 8443", "on https 8443 https - "),
            ("X-Forwarded-Proto: https\nX-Forwarded-Host: a:444", "on https 444 https - "),
            ("Forwarded: proto=https", "on https 443 - proto=https "),
            ("X-Forwarded-Proto: http", "- http 80 http - "),
        ] {
            assert_eq!(text(&trusted.ask(&format!("GET /\n{fields}"))), expected, "{fields}");
        }
        let plain = serve_route(driver, &tree, "", &route);
        let alone = text(&plain.ask("GET /")).to_owned();
        assert!(alone.starts_with("- http ") && alone.ends_with(" - - "), "{alone}");
        for fields in ["X-Forwarded-Proto: https\nX-Forwarded-Port: 8443", "Forwarded: proto=https"]
        {
            assert_eq!(text(&plain.ask(&format!("GET /\n{fields}"))), alone, "{fields}");
        }
    });
}
