//! Pages whose holes other servers and applications fill.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::thread;

use crate::fastcgi::application::{Act, Seen, application, end, output};
use crate::includes::stage::{ERRMSG, on_both_drivers, script, serve, tree};

/// A server that answers a request on each connection with these bytes, and closes it.
fn answer(path: &Path, answers: &'static [&str]) {
    let listener = UnixListener::bind(path).unwrap();
    thread::spawn(move || {
        for answer in answers {
            let (mut stream, _) = listener.accept().unwrap();
            let mut head = [0; 4096];
            let _ = stream.read(&mut head).unwrap();
            stream.write_all(answer.as_bytes()).unwrap();
        }
    });
}

#[test]
fn servers_and_applications_fill_holes() {
    on_both_drivers(|driver| {
        let tree = tree();
        answer(
            &tree.path().join("app.sock"),
            &[
                "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok",
                "garbage\r\n\r\n",
            ],
        );
        let header = "Content-Type: a/b\r\n\r\n";
        let acts = vec![
            Act::Close([output(&format!("{header}script")), end(0)].concat()),
            Act::Close(end(2)),
            Act::Close(output(&format!("{header}half"))),
        ];
        let _seen = application(&tree.path().join("php.sock"), acts);
        tree.write(
            "www/page.html",
            "1<!--#include virtual=\"/server/a\"-->2<!--#include virtual=\"/script/a.php\"-->3",
        );
        let stage = serve(driver, &tree);
        assert_eq!(stage.page("/page.html"), "1ok2script3");
        assert_eq!(stage.page("/page.html"), format!("1{ERRMSG}2{ERRMSG}3"));
        stage.wait_for_log("php.sock /script/a.php: it has too much to do");
        let mut client = stage.connect();
        client.send(testkit::request("GET /page.html")).unwrap();
        client.response().expect_err("it is cut off");
        stage.wait_for_log("its response is cut off");
    });
}

/// As in nginx and Apache httpd; the query is that of the include.
#[test]
fn includes_have_the_uri_that_the_client_has_requested() {
    on_both_drivers(|driver| {
        let tree = tree();
        let show = "<!--#echo var=\"REQUEST_URI\"-->?<!--#echo var=\"QUERY_STRING\"-->";
        tree.write("www/part.html", format!("({show})").as_str());
        tree.write(
            "www/page.html",
            format!(
                "{show}<!--#include virtual=\"/part.html?b\"-->\
                 <!--#include virtual=\"/tool/show?c\"--><!--#include virtual=\"/tool/over\"-->\
                 <!--#include virtual=\"/script/a.php?d\"-->"
            )
            .as_str(),
        );
        script(
            &tree,
            "show",
            "printf 'Content-Type: a/b\\n\\n%s' \"<$REQUEST_URI?$QUERY_STRING>\"",
        );
        script(&tree, "over", "printf 'Location: /tool/show?o\\n\\n'");
        let answer = [output("Content-Type: a/b\r\n\r\nscript"), end(0)].concat();
        let seen = application(&tree.path().join("php.sock"), vec![Act::Close(answer)]);
        let stage = serve(driver, &tree);
        let uri = "/%70age.html?a&";
        let shown = uri.replace('&', "&amp;");
        assert_eq!(stage.page(uri), format!("{shown}?a&amp;({shown}?b)<{uri}?c><{uri}?o>script"));
        let Ok(Seen::Request(variables, _)) = seen.recv() else { panic!("no request") };
        let variables = variables.escape_ascii().to_string();
        assert!(variables.contains(&format!("REQUEST_URI{uri}")), "{variables}");
        assert!(variables.contains("QUERY_STRINGd"), "{variables}");
    });
}

/// Its own holes were asked for, and theirs, to the power of eight.
#[test]
fn a_page_that_includes_itself_through_its_own_server_is_asked_for_once_more_by_each_include() {
    on_both_drivers(|driver| {
        let tree = tree();
        let page = "<!--#include virtual=\"/server/page.html?1\"-->\
                    <!--#include virtual=\"/server/page.html?2\"-->.";
        tree.write("www/page.html", page);
        let stage = serve(driver, &tree);
        // The route of the server leads to the server itself.
        let testkit::Address::Tcp(address) = stage.server.address() else {
            panic!("it listens on no port")
        };
        let listener = UnixListener::bind(tree.path().join("app.sock")).unwrap();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                thread::spawn(move || {
                    let mut head = Vec::new();
                    while !head.ends_with(b"\r\n\r\n") {
                        let mut byte = [0];
                        stream.read_exact(&mut byte).unwrap();
                        head.extend(byte);
                    }
                    let head = String::from_utf8(head).unwrap().replacen("/server/", "/", 1);
                    let head = head.replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n");
                    let mut own = std::net::TcpStream::connect(address).unwrap();
                    own.write_all(head.as_bytes()).unwrap();
                    let _ = std::io::copy(&mut own, &mut stream);
                });
            }
        });
        let inner = format!("{ERRMSG}{ERRMSG}.");
        assert_eq!(stage.page("/page.html"), format!("{inner}{inner}."));
        assert_eq!(stage.count("samum_proxy_requests_total", &[("event", "begun")]), 2);
        assert_eq!(stage.count("samum_includes_total", &[("event", "cycle")]), 4);
        stage.wait_for_log("508");
    });
}

#[test]
fn pages_beside_scripts_are_pages() {
    on_both_drivers(|driver| {
        let tree = tree();
        let text = "-".repeat(100_000);
        tree.write("www/page.html", "1<!--#include virtual=\"/mixed/a.php\"-->2");
        tree.write("www/page.html.gz", "compressed");
        // Not in memory.
        tree.write("www/long/index.html", format!("<!--#echo var=\"none\"-->{text}").as_str());
        tree.write("www/a.php", "<?php source");
        tree.write("www/plain.html", "<!-- no directive -->");
        let script = [output("Content-Type: a/b\r\n\r\nscript"), end(0)].concat();
        let _seen = application(&tree.path().join("php.sock"), vec![Act::Close(script); 5]);
        let stage = serve(driver, &tree);
        for _ in 0..2 {
            let response = stage.ask("GET /mixed/page.html\nAccept-Encoding: gzip");
            assert_eq!((response.status, &response.body[..]), (200, &b"1script2"[..]));
            assert_eq!(response.header("Content-Encoding"), None);
            assert_eq!(response.header("ETag"), None);
            assert_eq!(stage.page("/back/none"), "1script2");
            assert_eq!(stage.page("/mixed/long/"), format!("(none){text}"));
        }
        assert_eq!(stage.page("/mixed/a.php"), "script");
        assert!(stage.ask("GET /mixed/plain.html").header("ETag").is_some());
        assert_eq!(stage.ask("POST /mixed/page.html").status, 405);
    });
}

/// Servers, applications and programs hand requests over, of clients and of pages, to files that are known and to others.
#[test]
fn a_page_to_which_a_request_is_handed_over_is_a_page() {
    on_both_drivers(|driver| {
        let tree = tree();
        let long = "-".repeat(100_000);
        let page = "<!--#echo var=\"DOCUMENT_URI\"-->?<!--#echo var=\"QUERY_STRING\"-->\
                    <!--#include virtual=\"part.txt\"-->";
        tree.write("www/d/page.html", page);
        tree.write("www/d/page.html.gz", "compressed");
        // Not in memory.
        tree.write("www/d/long.html", format!("{page}{long}").as_str());
        tree.write("www/d/part.txt", "!");
        tree.write("www/outer.html", "(<!--#include virtual=\"/script/a.php\"-->)");
        tree.write("www/self.html", "(<!--#include virtual=\"/script/self.php\"-->)");
        script(&tree, "over", "printf 'Location: /d/page.html?q=1\\n\\n'");
        script(&tree, "long", "printf 'Location: /d/long.html\\n\\n'");
        let root = tree.path().display();
        let by_file = format!("X-Sendfile: {root}/www/d/long.html");
        let cases = [
            (
                "X-Accel-Redirect: /d/page.html?q=1",
                "GET /script/a.php",
                "/d/page.html?q=1!".to_owned(),
            ),
            (
                "X-Accel-Redirect: /d/page.html",
                "POST /script/a.php\nContent-Length: 0",
                "/d/page.html?!".to_owned(),
            ),
            (&by_file, "GET /script/a.php", format!("/d/long.html?!{long}")),
            ("Location: /d/long.html?a", "GET /script/a.php", format!("/d/long.html?a!{long}")),
            ("X-Accel-Redirect: /d/page.html?q=1", "HEAD /script/a.php", String::new()),
            // The outermost page is the document.
            ("X-Accel-Redirect: /d/page.html", "GET /outer.html", "(/outer.html?!)".to_owned()),
        ];
        let act = |header: &str| {
            // With a cookie, `Location` would be for the client.
            let cookie = if header.starts_with("X-") { "Set-Cookie: a=1\r\n" } else { "" };
            let header = format!("Content-Type: text/html\r\n{cookie}{header}\r\n\r\nignored");
            Act::Close([output(&header), end(0)].concat())
        };
        let cyclic = vec!["X-Accel-Redirect: /self.html"; 8];
        let headers = cases.iter().map(|(header, ..)| *header);
        let twice = headers.clone().chain(headers).chain(cyclic);
        let _seen = application(&tree.path().join("php.sock"), twice.map(act).collect());
        let stage = serve(driver, &tree);
        for (header, request, expected) in cases.iter().chain(&cases) {
            let response =
                stage.ask(&format!("{request}\nAccept-Encoding: gzip\nRange: bytes=0-1"));
            assert_eq!(response.status, 200, "{header}");
            assert_eq!(response.header("Content-Encoding"), None);
            assert_eq!(response.header("ETag"), None);
            assert_eq!(String::from_utf8(response.body.clone()).unwrap(), *expected, "{header}");
            // A local redirect has no fields for the client, and an included response has none.
            let has_some = header.starts_with("X-") && !request.contains("outer");
            let cookie = response.header("Set-Cookie");
            assert_eq!(cookie, has_some.then_some("a=1"), "{header}");
        }
        for _ in 0..2 {
            assert_eq!(stage.page("/tool/over"), "/d/page.html?q=1!");
            assert_eq!(stage.page("/tool/long"), format!("/d/long.html?!{long}"));
        }
        for count in 1..=8 {
            assert_eq!(stage.page("/self.html"), format!("({ERRMSG})"));
            assert_eq!(stage.count("samum_includes_total", &[("event", "cycle")]), count);
        }
        stage.wait_for_log("a page includes itself");
    });
}
