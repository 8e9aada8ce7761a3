//! The rules of routes: fallbacks, error pages, clean URLs, fields, types, dotfiles, links and redirects.

use std::fs;
use std::process::Command;

use testkit::{Response, Server, Tree, request};

use crate::common::{SAMUM, SOON, ask, ask_on, connect, on_both_drivers, serve, text, wait_until};

/// A site with error pages.
fn tree() -> Tree {
    Tree::new()
        .file("index.html", "index")
        .file("a.html", "page a")
        .file("404.html", "page 404")
        .file("sub/index.html", "sub")
        .file("style.css", "css")
        .file("style.css.gz", "gzipped")
        .file("data.foo", "data")
        .file("list/file", "file")
}

/// Serves what a configuration says of one site; `DIR` stands for the directory of the files.
fn serve_config(driver: &str, tree: &Tree, routes: &str) -> Server {
    let config = format!("[[site]]\nlisten = [\"127.0.0.1:0\"]\n{routes}");
    tree.write("samum.toml", config.replace("DIR", text(tree.path())).into_bytes());
    let mut command = Command::new(SAMUM);
    command.args(["serve", "--driver", driver, "--threads", "1", "--config"]);
    command.arg(tree.path().join("samum.toml"));
    Server::spawn(&mut command).expect("the server starts")
}

#[track_caller]
fn expect(server: &Server, head: &str, status: u16, body: &str) -> Response {
    let response = ask(server, head);
    let got = String::from_utf8_lossy(&response.body);
    assert_eq!((response.status, got.as_ref()), (status, body), "{head}");
    response
}

/// Returns the status and the location.
#[track_caller]
fn location(server: &Server, head: &str) -> (u16, String) {
    let response = ask(server, head);
    (response.status, response.header("Location").unwrap_or("none").to_owned())
}

fn moved(status: u16, location: &str) -> (u16, String) {
    (status, location.to_owned())
}

/// A drawing that is compressed by the nature of its format is sent as it is, also to clients that ask for no coding: there
/// is no other form of it.
#[test]
fn a_compressed_drawing_says_so_and_is_not_compressed_again() {
    let tree = Tree::new()
        .file("a.svgz", "gzipped")
        .file("a.svgz.gz", "twice")
        .file("a.svgz.br", "twice")
        .file("long.SVGZ", vec![b'x'; 300_000]);
    on_both_drivers(|driver| {
        let options = ["--errors", "404=/a.svgz", "--headers", "*.svgz Vary: X"];
        let server = serve(driver, tree.path(), &options);
        for _ in 0..2 {
            for head in [
                "GET /a.svgz",
                "GET /a.svgz\nAccept-Encoding: br, gzip",
                "GET /a.svgz\nAccept-Encoding: gzip;q=0, identity",
                "GET /a.svgz\nRange: bytes=0-",
                "HEAD /a.svgz",
                "GET /long.SVGZ",
                "GET /missing",
            ] {
                let response = ask(&server, head);
                let status = response.status;
                let expected = if head.contains("Range") { 206 } else { 200 };
                assert_eq!(status, if head.contains("missing") { 404 } else { expected }, "{head}");
                let header = |name| response.header(name);
                assert_eq!(header("Content-Type"), Some("image/svg+xml; charset=utf-8"), "{head}");
                assert_eq!(header("Content-Encoding"), Some("gzip"), "{head}");
                let is_whole = head.starts_with("GET") && !head.contains("long");
                assert!(!is_whole || response.body == b"gzipped", "{head}");
            }
        }
        let tag = ask(&server, "GET /a.svgz").header("ETag").unwrap().to_owned();
        let again = ask(&server, &format!("GET /a.svgz\nIf-None-Match: {tag}"));
        assert_eq!(again.status, 304);
    });
}

#[test]
fn a_fallback_is_served_where_there_is_nothing() {
    let tree = tree();
    on_both_drivers(|driver| {
        let options = ["--fallback", "/index.html", "--errors", "403=/404.html"];
        let server = serve(driver, tree.path(), &options);
        for _ in 0..2 {
            for path in ["/missing", "/missing/deep", "/missing/", "/a.html/x", "/index.html"] {
                let response = expect(&server, &format!("GET {path}"), 200, "index");
                assert!(response.header("ETag").is_some(), "it is a file like others");
            }
        }
        expect(&server, "GET /a.html", 200, "page a");
        expect(&server, "GET /missing\nRange: bytes=1-2", 206, "nd");
        assert_eq!(ask(&server, "HEAD /missing").header("Content-Length"), Some("5"));
        assert_eq!(ask(&server, "POST /missing").status, 405);
        assert_eq!(ask(&server, "GET /.env").status, 404, "what is hidden is not replaced");
        assert_eq!(ask(&server, "GET /%00").status, 400);
        let mut client = connect(&server);
        client.send("GET /no1 HTTP/1.1\r\nHost: a\r\n\r\n".repeat(3)).unwrap();
        for _ in 0..3 {
            assert_eq!(client.response().unwrap().body, b"index");
        }
    });
}

#[test]
fn a_fallback_that_is_missing_or_no_file_is_a_404() {
    let tree = tree();
    on_both_drivers(|driver| {
        for fallback in ["/none.html", "/sub", "/list/"] {
            let options = ["--fallback", fallback, "--errors", "404=/404.html", "--listing"];
            let server = serve(driver, tree.path(), &options);
            expect(&server, "GET /missing", 404, "page 404");
        }
    });
}

#[test]
fn an_error_has_a_file_as_its_page() {
    let tree = tree();
    on_both_drivers(|driver| {
        let options =
            ["--errors", "404=/404.html", "--errors", "405=/style.css", "--headers", "X-A: b"];
        let server = serve(driver, tree.path(), &options);
        for head in [
            "GET /missing",
            "GET /missing\nRange: bytes=0-1",
            "GET /missing\nIf-None-Match: *",
            "GET /missing\nIf-Match: \"a\"",
            "GET /.hidden",
            "GET /list/",
            "GET /a.html/",
        ] {
            let response = expect(&server, head, 404, "page 404");
            assert_eq!(response.header("Content-Type"), Some("text/html; charset=utf-8"));
            assert_eq!(response.header("X-A"), Some("b"));
            for name in ["ETag", "Last-Modified", "Accept-Ranges", "Content-Range"] {
                assert_eq!(response.header(name), None, "{head}: {name}");
            }
        }
        let response = ask(&server, "HEAD /missing");
        assert_eq!((response.status, response.header("Content-Length")), (404, Some("8")));
        let response = expect(&server, "DELETE /missing", 405, "css");
        assert_eq!(response.header("Allow"), Some("GET, HEAD, OPTIONS"));
        let response = expect(&server, "DELETE /\nAccept-Encoding: gzip", 405, "gzipped");
        assert_eq!(response.header("Content-Encoding"), Some("gzip"));
        assert_eq!(response.header("Vary"), Some("Accept-Encoding"));
        expect(&server, "GET /404.html", 200, "page 404");
    });
}

#[test]
fn a_path_that_no_file_can_have_and_one_without_a_route_have_the_page_of_the_site() {
    let tree = tree().file("400.html", "page 400").file("414.html", "page 414");
    on_both_drivers(|driver| {
        let errors = ["404=/404.html", "--errors", "400=/400.html", "--errors", "414=/414.html"];
        let server = serve(driver, tree.path(), &[&["--errors"][..], &errors].concat());
        let long = format!("GET /{}", "n".repeat(300));
        for path in ["GET /sub%2findex.html", "GET /sub%2Findex.html?q", "GET /a%2fb", &long] {
            let response = expect(&server, path, 404, "page 404");
            assert_eq!(response.header("Content-Type"), Some("text/html; charset=utf-8"));
        }
        assert_eq!(ask(&server, "HEAD /a%2fb").header("Content-Length"), Some("8"));
        expect(&server, &format!("GET /{}", "n/".repeat(2500)), 414, "page 414");
        for path in ["/%00", "/%zz", "/../a"] {
            expect(&server, &format!("GET {path}"), 400, "page 400");
        }
        let server = serve_config(
            driver,
            &tree,
            r#"
            errors = { 404 = "/pages/404.html", 400 = "/pages/400.html" }
            [[site.route]]
            path = "/pages/"
            files = "DIR"
            [[site.route]]
            path = "/own/"
            files = "DIR"
            errors = { 404 = "/pages/a.html" }
            headers = [{ set = { X-Own = "yes" } }]
            [[site.route]]
            path = "/closed/"
            files = "DIR"
            allow = ["192.0.2.1"]
            "#,
        );
        for path in ["/nowhere", "/", "/%2f", "/nowhere%2f"] {
            expect(&server, &format!("GET {path}"), 404, "page 404");
        }
        expect(&server, "GET /%00", 400, "page 400");
        let response = expect(&server, "GET /own/a%2fb", 404, "page a");
        assert_eq!(response.header("X-Own"), Some("yes"));
        assert_eq!(ask(&server, "GET /closed/a").status, 403);
        assert_eq!(ask(&server, "GET /closed/a%2fb").status, 403);
    });
}

#[test]
fn a_path_that_no_file_can_have_is_for_what_its_route_does() {
    let tree = tree().file("a/b", "below").file("page.html", "<!--#echo var=\"DOCUMENT_URI\"-->");
    tree.write("redirects.txt", "/moved/a%2Fb /listed\n/wild/* /to/:splat\n");
    let long = "n".repeat(300);
    let deep = "/n".repeat(2100);
    on_both_drivers(|driver| {
        let server = serve_config(
            driver,
            &tree,
            r#"
            [[site.route]]
            files = "DIR"
            fallback = "/index.html"
            [[site.route]]
            path = "/page/"
            files = "DIR"
            includes = true
            fallback = "/page/page.html"
            [[site.route]]
            path = "/closed/"
            files = "DIR"
            fallback = "/index.html"
            allow = ["192.0.2.1"]
            [[site.route]]
            path = "/to/"
            redirect = { to = "/there/$0", status = 302 }
            [[site.route]]
            path = "/query/"
            redirect = { to = "/there?at=$0", status = 302 }
            [[site.route]]
            redirects = "DIR/redirects.txt"
            [[site.route]]
            path = "/gone/"
            status = 410
            [[site.route]]
            path = "/text/"
            status = { code = 200, text = "text" }
            [[site.route]]
            path = "/list/"
            files = "DIR/list"
            listing = true
            "#,
        );
        for path in [
            "/project/a%2Fb",
            "/%2f",
            "/a%2fb",
            "/a%2f..%2fb",
            "/a%2f.%2e%2f..%2f..%2fetc%2fpasswd",
            &format!("/{long}/x"),
            &deep,
            // Another route is not chosen by a slash that is encoded, nor is its rule.
            "/closed%2Fa",
            "/gone%2F",
        ] {
            expect(&server, &format!("GET {path}"), 200, "index");
        }
        expect(&server, "GET /a/b", 200, "below");
        expect(&server, "GET /page/x%2Fy", 200, "/page/page.html");
        for path in ["/closed/a%2Fb", "/closed/%2F", &format!("/closed/{long}")] {
            assert_eq!(ask(&server, &format!("GET {path}")).status, 403, "{path}");
        }
        assert_eq!(location(&server, "GET /to/a%2fb?q"), moved(302, "/there/a%2Fb?q"));
        assert_eq!(location(&server, "GET /to/%2F%2Fevil"), moved(302, "/there/%2F%2Fevil"));
        assert_eq!(location(&server, "GET /to/a%2F..%2Fb"), moved(302, "/there/a%2F..%2Fb"));
        assert_eq!(location(&server, "GET /query/a%2Fb"), moved(302, "/there?at=a%2Fb"));
        assert_eq!(location(&server, "POST /to/a%2fb"), moved(302, "/there/a%2Fb"));
        let to = format!("/there/{long}");
        assert_eq!(location(&server, &format!("GET /to/{long}")), moved(302, &to));
        let escaped = moved(302, "/there/%C3%A9?%C3%BC=%fc");
        assert_eq!(location(&server, "GET /to/é?ü=%fc"), escaped);
        assert_eq!(location(&server, "GET /list?ü"), moved(301, "/list/?%C3%BC"));
        assert_eq!(location(&server, "GET /moved/a%2fb"), moved(301, "/listed"));
        expect(&server, "GET /moved/a/b", 200, "index");
        assert_eq!(location(&server, "GET /wild/a%2Fb"), moved(301, "/to/a%2Fb"));
        assert_eq!(ask(&server, "GET /gone/a%2Fb").status, 410);
        expect(&server, "GET /text/a%2Fb", 200, "text");
        assert_eq!(ask(&server, "GET /list/a%2Fb").status, 404);
        assert_eq!(ask(&server, "OPTIONS /a%2fb").status, 204);
        assert_eq!(ask(&server, "DELETE /a%2fb").status, 405);
        for path in ["/a%00b", "/%zz", "/..", "/%2e%2e/a"] {
            assert_eq!(ask(&server, &format!("GET {path}")).status, 400, "{path}");
        }
    });
}

#[test]
fn an_error_whose_page_fails_has_the_page_of_the_server() {
    let tree = tree();
    on_both_drivers(|driver| {
        for page in ["404=/none.html", "404=/sub", "404=/list/"] {
            let server = serve(driver, tree.path(), &["--errors", page, "--listing"]);
            let response = ask(&server, "GET /missing");
            assert_eq!(response.status, 404);
            let body = String::from_utf8(response.body).unwrap();
            assert!(body.contains("There is nothing by this name"), "{page}: {body}");
        }
    });
}

#[test]
fn clean_urls_leave_out_the_suffix_of_pages() {
    let tree = tree().file("both", "plain").file("both.html", "page");
    on_both_drivers(|driver| {
        let options = ["--clean-urls", "--fallback", "/a.html", "--headers", "*.html X-Page: yes"];
        let server = serve(driver, tree.path(), &options);
        for _ in 0..2 {
            let response = expect(&server, "GET /a", 200, "page a");
            assert_eq!(response.header("Content-Type"), Some("text/html; charset=utf-8"));
            assert_eq!(response.header("X-Page"), Some("yes"), "its file matches");
            expect(&server, "GET /both", 200, "plain");
            expect(&server, "GET /none", 200, "page a");
        }
        assert_eq!(location(&server, "GET /a.html?b=c"), moved(308, "/a?b=c"));
        assert_eq!(location(&server, "GET /sub/index.html"), moved(308, "/sub/"));
        assert_eq!(location(&server, "GET /index.html"), moved(308, "/"));
        assert_eq!(location(&server, "GET /sub"), moved(301, "/sub/"), "a directory is there");
        expect(&server, "GET /a\nAccept-Encoding: gzip", 200, "page a");
        tree.write("a.html.gz", "gzipped a");
        let is_seen = || ask(&server, "GET /a\nAccept-Encoding: gzip").body == b"gzipped a";
        assert!(wait_until(SOON, is_seen), "a sibling of the page has come");
        tree.write("a.html", "new a");
        assert!(wait_until(SOON, || ask(&server, "GET /a").body == b"new a"), "it has changed");
        tree.write("a", "the file itself");
        let is_seen = || ask(&server, "GET /a").body == b"the file itself";
        assert!(wait_until(SOON, is_seen), "a file with the name itself has come");
        for name in ["a", "a.html.gz"] {
            fs::remove_file(tree.path().join(name)).unwrap();
        }
        tree.write("a.html", "page a");
    });
}

#[test]
fn a_page_comes_before_the_directory_of_the_same_name() {
    let tree = Tree::new().file("sub.html", "page").file("sub/index.html", "index");
    on_both_drivers(|driver| {
        let server = serve(driver, tree.path(), &["--clean-urls"]);
        for _ in 0..2 {
            expect(&server, "GET /sub", 200, "page");
            expect(&server, "GET /sub/", 200, "index");
            assert_eq!(location(&server, "GET /sub.html"), moved(308, "/sub"));
        }
        fs::remove_file(tree.path().join("sub.html")).unwrap();
        assert!(wait_until(SOON, || ask(&server, "GET /sub").status == 301), "it has gone");
        tree.write("sub.html", "page");
        assert!(wait_until(SOON, || ask(&server, "GET /sub").body == b"page"), "it is there again");
    });
}

#[test]
fn a_directory_with_the_name_of_a_page_is_no_page() {
    let tree = Tree::new().file("d/index.html/file", "").file("a.html/index.html", "a directory");
    on_both_drivers(|driver| {
        let server = serve(driver, tree.path(), &["--clean-urls", "--listing"]);
        for _ in 0..2 {
            let to = moved(301, "/d/index.html/?q");
            assert_eq!(location(&server, "GET /d/index.html?q"), to);
            assert_eq!(location(&server, "GET /a.html"), moved(301, "/a.html/"));
            expect(&server, "GET /a.html/", 200, "a directory");
            for path in ["/d/", "/d/index.html/"] {
                assert_eq!(
                    ask(&server, &format!("GET {path}")).status,
                    200,
                    "it is listed: {path}"
                );
            }
            assert_eq!(location(&server, "GET /none.html"), moved(308, "/none"));
            assert_eq!(location(&server, "GET /a.html/index.html"), moved(308, "/a.html/"));
        }
    });
}

#[test]
fn fields_are_set_and_removed_in_responses_of_all_kinds() {
    let tree = tree();
    on_both_drivers(|driver| {
        let options = [
            "--listing",
            "--errors",
            "404=/404.html",
            "--headers",
            "Server:",
            "--headers",
            "X-All: 1",
            "--headers",
            "*.css Cache-Control: max-age=60",
            "--headers",
            "*.css Content-Language: de",
            "--headers",
            "*.foo Content-Type: a/foo",
            "--headers",
            "*.foo Last-Modified:",
            "--headers",
            "*.html ETag:",
            "--headers",
            "/list* Cache-Control: no-store",
            "--headers",
            "/missing* Retry-After: 7",
            "--headers",
            "/ X-Home: yes",
        ];
        let server = serve(driver, tree.path(), &options);
        for round in 0..2 {
            for (head, status, name, value) in [
                ("GET /style.css", 200, "Cache-Control", Some("max-age=60")),
                ("HEAD /style.css", 200, "Cache-Control", Some("max-age=60")),
                ("GET /style.css\nConnection: close", 200, "Cache-Control", Some("max-age=60")),
                ("GET /style.css\nRange: bytes=0-0", 206, "Cache-Control", Some("max-age=60")),
                ("GET /style.css\nRange: bytes=9-", 416, "Cache-Control", None),
                ("GET /style.css\nIf-Match: \"x\"", 412, "Cache-Control", None),
                ("GET /style.css\nIf-None-Match: *", 304, "Cache-Control", Some("max-age=60")),
                ("GET /style.css\nIf-None-Match: *", 304, "Content-Language", None),
                ("GET /style.css", 200, "Content-Language", Some("de")),
                ("GET /style.css\nAccept-Encoding: gzip", 200, "Cache-Control", Some("max-age=60")),
                ("GET /data.foo", 200, "Content-Type", Some("a/foo")),
                ("GET /data.foo", 200, "Last-Modified", None),
                ("GET /a.html", 200, "ETag", None),
                ("GET /", 200, "ETag", None),
                ("GET /", 200, "X-Home", Some("yes")),
                ("GET /sub/", 200, "X-Home", None),
                ("GET /list", 301, "Cache-Control", Some("no-store")),
                ("GET /list/", 200, "Cache-Control", Some("no-store")),
                ("GET /missing", 404, "Retry-After", Some("7")),
                ("GET /missing.css", 404, "Cache-Control", None),
                ("POST /", 405, "X-Home", Some("yes")),
                ("OPTIONS /", 204, "X-Home", Some("yes")),
            ] {
                let response = ask(&server, head);
                assert_eq!(response.status, status, "{head} {round}");
                assert_eq!(response.header(name), value, "{head} {round}: {name}");
                assert_eq!(response.header("X-All"), Some("1"), "{head} {round}");
                assert_eq!(response.header("Server"), None, "{head} {round}");
                assert!(response.header("Date").is_some(), "{head} {round}");
            }
        }
        // A file of the future has the date of the message as its last modification.
        let file = fs::File::options().write(true).open(tree.path().join("data.foo")).unwrap();
        file.set_modified(std::time::SystemTime::now() + core::time::Duration::from_secs(9999))
            .unwrap();
        let mut client = connect(&server);
        for _ in 0..3 {
            let response = ask_on(&mut client, "GET /data.foo");
            assert_eq!(response.body, b"data");
            assert_eq!(response.header("Last-Modified"), None);
        }
    });
}

#[test]
fn texts_without_an_extension_are_shown_and_what_is_unknown_has_the_default_type() {
    let tree = tree()
        .file("README", "text")
        .file("README.gz", "gzipped")
        .file("SHA256SUMS", "sums")
        .file("own", "own")
        .file("a.own", "by extension")
        .file("program", "unknown");
    on_both_drivers(|driver| {
        let types = r#"types = { own = "a/own", "a.own" = "a/name" }"#;
        let routes = format!(
            "{types}\n[[site.route]]\nfiles = \"DIR\"\n\
             [[site.route]]\npath = \"/show/\"\nfiles = \"DIR\"\ndefault-type = \"text/plain\"\n"
        );
        let server = serve_config(driver, &tree, &routes);
        let text = "text/plain; charset=utf-8";
        for _ in 0..2 {
            for (path, expected) in [
                ("/README", text),
                ("/SHA256SUMS", text),
                ("/README.gz", "application/gzip"),
                ("/own", "a/own"),
                ("/a.own", "a/name"),
                ("/program", "application/octet-stream"),
                ("/show/program", text),
                ("/show/own", "a/own"),
                ("/show/a.html", "text/html; charset=utf-8"),
                ("/show/style.css.gz", "application/gzip"),
            ] {
                let response = ask(&server, &format!("GET {path}"));
                assert_eq!(response.header("Content-Type"), Some(expected), "{path}");
                assert_eq!(response.header("X-Content-Type-Options"), Some("nosniff"), "{path}");
            }
            let head = "GET /README\nAccept-Encoding: gzip";
            let coded = expect(&server, head, 200, "gzipped");
            assert_eq!(coded.header("Content-Type"), Some(text));
            let tag = coded.header("ETag").unwrap();
            assert_eq!(ask(&server, &format!("{head}\nIf-None-Match: {tag}")).status, 304);
        }
        let options = ["--default-type", "text/x", "--types", "PROGRAM=a/b"];
        let server = serve(driver, tree.path(), &options);
        for (path, expected) in [("/program", "a/b"), ("/own", "text/x; charset=utf-8")] {
            let response = ask(&server, &format!("GET {path}"));
            assert_eq!(response.header("Content-Type"), Some(expected), "{path}");
        }
    });
}

#[test]
fn types_and_charset_are_those_of_the_configuration() {
    let tree = tree();
    on_both_drivers(|driver| {
        let options = ["--types", "foo=text/foo", "--charset", "iso-8859-1"];
        let server = serve(driver, tree.path(), &options);
        for (path, expected) in
            [("/data.foo", "text/foo; charset=iso-8859-1"), ("/", "text/html; charset=iso-8859-1")]
        {
            let response = ask(&server, &format!("GET {path}"));
            assert_eq!(response.header("Content-Type"), Some(expected));
        }
        let server = serve(driver, tree.path(), &["--charset", "none"]);
        assert_eq!(ask(&server, "GET /").header("Content-Type"), Some("text/html"));
    });
}

#[test]
fn dotfiles_are_hidden_unless_they_are_wanted() {
    let tree = tree()
        .file(".env", "secret")
        .file(".git/config", "secret")
        .file("list/.htaccess", "secret")
        .file(".well-known/security.txt", "contact")
        .file(".well-known/.x", "secret")
        .file("list/.well-known/x", "secret");
    on_both_drivers(|driver| {
        let server = serve(driver, tree.path(), &["--listing"]);
        let shown = serve(driver, tree.path(), &["--listing", "--dotfiles"]);
        for path in [
            "/.env",
            "/%2eenv",
            "/%2Eenv",
            "/x/../.env",
            "//.env",
            "/.git/config",
            "/.git",
            "/.git/",
            "/list/.htaccess",
            "/.well-known/.x",
            "/list/.well-known/x",
            "/.env?x",
        ] {
            let head = format!("GET {path}");
            assert_eq!(ask(&server, &head).status, 404, "{path}");
            assert_ne!(ask(&shown, &head).status, 404, "{path}");
        }
        expect(&server, "GET /.well-known/security.txt", 200, "contact");
        assert_eq!(location(&server, "GET /.well-known"), moved(301, "/.well-known/"));
        let json = "GET /\nAccept: application/json";
        for (server, path, has) in
            [(&server, "list", false), (&shown, "list", true), (&server, ".well-known", false)]
        {
            let response = ask(server, &json.replacen('/', &format!("/{path}/"), 1));
            let names = String::from_utf8(response.body).unwrap();
            assert_eq!(names.contains("\"name\":\"."), has, "{path}: {names}");
        }
    });
}

#[test]
fn symbolic_links_are_followed_unless_they_are_forbidden() {
    let tree = tree().symlink("link.css", "style.css").symlink("dir", "sub").symlink("up", "/etc");
    on_both_drivers(|driver| {
        let followed = serve(driver, tree.path(), &["--listing"]);
        let never = serve(driver, tree.path(), &["--listing", "--symlinks", "never"]);
        expect(&followed, "GET /link.css", 200, "css");
        expect(&followed, "GET /dir/", 200, "sub");
        expect(&never, "GET /style.css", 200, "css");
        for path in ["/link.css", "/dir/", "/dir", "/dir/index.html", "/up/passwd", "/up/"] {
            assert_eq!(ask(&never, &format!("GET {path}")).status, 404, "{path}");
        }
        assert_eq!(ask(&followed, "GET /up/passwd").status, 404);
    });
}

#[test]
fn precompressed_siblings_are_left_alone_where_they_are_not_wanted() {
    let tree = tree();
    on_both_drivers(|driver| {
        let server = serve(driver, tree.path(), &["--precompressed", "false"]);
        let response = expect(&server, "GET /style.css\nAccept-Encoding: gzip", 200, "css");
        assert_eq!(response.header("Vary"), None);
    });
}

#[test]
fn a_file_of_redirects_comes_before_files() {
    let tree = tree().file(
        "redirects.txt",
        "/old /new\n/blog/* /news/:splat 308\n/a.html https://example.org/ 302\n/loop/* /:splat 301\n",
    );
    let file = tree.path().join("redirects.txt");
    on_both_drivers(|driver| {
        let server = serve(driver, tree.path(), &["--redirects", text(&file)]);
        assert_eq!(location(&server, "GET /old?a=b"), moved(301, "/new?a=b"));
        assert_eq!(location(&server, "GET /blog/a%20b"), moved(308, "/news/a%20b"));
        assert_eq!(location(&server, "POST /old"), moved(301, "/new"));
        assert_eq!(location(&server, "HEAD /old"), moved(301, "/new"));
        assert_eq!(location(&server, "GET /a.html"), moved(302, "https://example.org/"));
        assert_eq!(location(&server, "GET /loop/%2f/evil.org"), moved(301, "/%2F/evil.org"));
        assert_eq!(location(&server, "GET /loop//evil.org"), moved(301, "/evil.org"));
        assert_eq!(location(&server, "GET /loop/%5Cevil.org"), moved(301, "/%5Cevil.org"));
        expect(&server, "GET /style.css", 200, "css");
        assert_eq!(ask(&server, "GET /none").status, 404);
    });
}

#[test]
fn the_cache_rules_of_a_path_are_not_for_its_failures() {
    let tree = tree()
        .file("app.js", "js")
        .file("sub/404.html", "page of sub")
        .file("big.js", "0123456789");
    on_both_drivers(|driver| {
        let server = serve_config(
            driver,
            &tree,
            r#"
            headers = [
              { set = { Cache-Control = "max-age=31536000, immutable", Expires = "never", Access-Control-Allow-Origin = "*" } },
              { match = "*.html", set = { Content-Language = "en" } },
              { match = "/soon/*", status = [404, "5xx"], set = { Cache-Control = "max-age=5", X-Soon = "yes" } },
              { match = "/app.js", status = 304, set = { X-Same = "yes" } },
              { match = "/app.js", status = "206", remove = ["Cache-Control"] },
            ]
            [[site.route]]
            files = "DIR"
            errors = { 404 = "/404.html", 405 = "/a.html" }
            [[site.route]]
            path = "/spa/"
            files = "DIR/list"
            fallback = "/index.html"
            [[site.route]]
            path = "/gone"
            status = { code = 410, text = "gone" }
            [[site.route]]
            path = "/down/"
            proxy = "http://127.0.0.1:1"
            [[site.route]]
            path = "/denied/"
            files = "DIR"
            deny = ["0.0.0.0/0"]
            [[site.route]]
            path = "/moved"
            redirect = "/app.js"
            "#,
        );
        let long = Some("max-age=31536000, immutable");
        let tag = ask(&server, "GET /app.js").header("ETag").unwrap().to_owned();
        for _ in 0..2 {
            for (head, status, caching) in [
                ("GET /app.js", 200, long),
                ("HEAD /app.js", 200, long),
                ("GET /big.js\nRange: bytes=0-1", 206, long),
                ("GET /app.js\nRange: bytes=0-0", 206, None),
                (&format!("GET /app.js\nIf-None-Match: {tag}"), 304, long),
                ("GET /app.js\nRange: bytes=9-", 416, None),
                ("GET /app.js\nIf-Match: \"x\"", 412, None),
                ("POST /app.js", 405, None),
                ("OPTIONS /app.js", 204, long),
                ("GET /missing.js", 404, None),
                ("GET /missing.html", 404, None),
                ("GET /soon/x.js", 404, Some("max-age=5")),
                ("POST /soon/x.js", 405, None),
                ("GET /.hidden", 404, None),
                ("GET /spa/x.js", 200, long),
                ("GET /gone", 410, None),
                ("GET /down/x.js", 502, None),
                ("GET /denied/x.js", 403, None),
                ("GET /moved", 308, long),
                ("GET /sub", 301, long),
            ] {
                let response = ask(&server, head);
                let got = (response.status, response.header("Cache-Control"));
                assert_eq!(got, (status, caching), "{head}");
                assert_eq!(response.header("Access-Control-Allow-Origin"), Some("*"), "{head}");
                let expires = (long == caching || head.contains("bytes=0-0")).then_some("never");
                assert_eq!(response.header("Expires"), expires, "{head}");
                let soon = (caching == Some("max-age=5")).then_some("yes");
                assert_eq!(response.header("X-Soon"), soon, "{head}");
                assert_eq!(response.header("X-Same").is_some(), status == 304, "{head}");
            }
        }
    });
}

#[test]
fn redirects_have_captures_and_take_all_methods() {
    let tree = tree();
    on_both_drivers(|driver| {
        let server = serve_config(
            driver,
            &tree,
            r#"
            [[site.route]]
            files = "DIR"
            [[site.route]]
            match = "/*/old/*"
            redirect = { to = "/$1/new/$2", status = 303 }
            headers = [{ set = { "Cache-Control" = "max-age=9" } }]
            [[site.route]]
            path = "/all/"
            redirect = { to = "https://example.org/x/$0?fixed", status = 307 }
            [[site.route]]
            path = "/a"
            match = "/a*"
            redirect = { to = "/$1", status = 302 }
            "#,
        );
        let response = ask(&server, "GET /x/old/y/z?q");
        assert_eq!(response.status, 303);
        assert_eq!(response.header("Location"), Some("/x/new/y/z?q"));
        assert_eq!(response.header("Cache-Control"), Some("max-age=9"));
        assert_eq!(location(&server, "PUT /all/b?q"), moved(307, "https://example.org/x/b?fixed"));
        assert_eq!(location(&server, "GET /all"), moved(301, "/all/"));
        assert_eq!(location(&server, "GET /x/old//evil.org"), moved(303, "/x/new/evil.org"));
        // Characters that a segment may have stay. Those that would end the path or the line stay encoded.
        let reserved = "GET /x/old/a:b@c&d'e;f=g%3F%23%0D%0Ah";
        let expected = moved(303, "/x/new/a:b@c&d'e;f=g%3F%23%0D%0Ah");
        assert_eq!(location(&server, reserved), expected);
        for (path, to) in [("/a/%2Fevil.org", "/%2Fevil.org"), ("/a/%5Cevil.org", "/%5Cevil.org")] {
            assert_eq!(location(&server, &format!("GET {path}")), moved(302, to));
        }
        assert_eq!(location(&server, "BREW /all/b"), moved(501, "none"));
        let options = ask(&server, "OPTIONS /all/b");
        assert_eq!(options.status, 204);
        assert_eq!(options.header("Allow"), Some("GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"));
        assert_eq!(ask(&server, "OPTIONS /").header("Allow"), Some("GET, HEAD, OPTIONS"));
        assert_eq!(location(&server, "GET /a/x"), moved(302, "/x"));
    });
}

#[test]
fn a_redirect_that_leads_to_its_own_path_is_a_500() {
    let tree = tree().file("redirects.txt", "/x/* /x/y/:splat\n");
    let file = tree.path().join("redirects.txt");
    on_both_drivers(|driver| {
        let server = serve(driver, tree.path(), &["--redirects", text(&file)]);
        assert_eq!(location(&server, "GET /x/a"), moved(301, "/x/y/a"));
        let server = serve_config(
            driver,
            &tree,
            "[[site.route]]\nmatch = \"/b*\"\nredirect = \"/$1b\"\n[[site.route]]\nfiles = \"DIR\"\n",
        );
        assert_eq!(location(&server, "GET /bc?q=1"), moved(308, "/cb?q=1"));
        assert_eq!(location(&server, "GET /bbb?q=1"), moved(500, "none"));
        expect(&server, "GET /style.css", 200, "css");
    });
}

#[test]
fn the_path_of_a_route_without_its_slash_is_redirected() {
    let tree = tree().file("pages", "a file");
    on_both_drivers(|driver| {
        let config = r#"
            [[site.route]]
            files = "DIR"
            [[site.route]]
            path = "/p/"
            files = "DIR/sub"
            [[site.route]]
            path = "/pages/"
            files = "DIR/sub"
            "#;
        let server = serve_config(driver, &tree, config);
        assert_eq!(location(&server, "GET /p?q"), moved(301, "/p/?q"));
        assert_eq!(location(&server, "GET /%70"), moved(301, "/p/"));
        expect(&server, "GET /p/", 200, "sub");
        expect(&server, "GET /pages", 200, "a file");
        expect(&server, "GET /pages/", 200, "sub");
        assert_eq!(ask(&server, "GET /q").status, 404);
        let only = config.split("[[site.route]]").nth(2).unwrap();
        let server = serve_config(driver, &tree, &format!("[[site.route]]{only}"));
        assert_eq!(location(&server, "GET /p"), moved(301, "/p/"));
        assert_eq!(ask(&server, "GET /q").status, 404);
    });
}

/// A route that denies its clients is not passed by without the slash.
#[test]
fn the_path_without_its_slash_is_not_left_to_a_shorter_path() {
    let tree = tree().file("redirects.txt", "/listed /to\n/* /:splat/other\n").directory("cgi");
    let redirects = tree.path().join("redirects.txt");
    on_both_drivers(|driver| {
        let below = r#"
            [[site.route]]
            path = "/api/"
            proxy = "unix:DIR/none"
            deny = ["0.0.0.0/0", "::/0"]
            [[site.route]]
            path = "/p/"
            files = "DIR/sub"
            [[site.route]]
            path = "/own/"
            files = "DIR/sub"
            [[site.route]]
            path = "/own"
            status = 410
            [[site.route]]
            path = "/listed/"
            files = "DIR/sub"
            [[site.route]]
            path = "/named/"
            files = "DIR/sub"
            [[site.route]]
            path = "/"
            match = "/named"
            status = 402
            "#;
        let around = [
            "proxy = \"unix:DIR/none\"",
            "fastcgi = { server = \"unix:DIR/none\", root = \"DIR\" }",
            "cgi = \"DIR/cgi\"",
            "status = 200",
            "redirect = \"https://example.org/$0\"",
            "metrics = true",
            "match = \"*\"\nredirect = \"https://example.org/$0\"",
            &format!("redirects = \"{}\"", text(&redirects)),
        ];
        for around in around {
            let routes = format!("{below}[[site.route]]\npath = \"/\"\n{around}\n");
            let server = serve_config(driver, &tree, &routes);
            assert_eq!(location(&server, "GET /api?q"), moved(301, "/api/?q"), "{around}");
            assert_eq!(location(&server, "GET /%61pi"), moved(301, "/api/"), "{around}");
            let mut client = connect(&server);
            client.send(request("POST /api\nContent-Length: 2") + "ab").expect("it is taken");
            let post = client.response().expect("a response");
            assert_eq!((post.status, post.header("Location")), (308, Some("/api/")), "{around}");
            assert_eq!(ask(&server, "GET /api/").status, 403, "{around}");
            assert_eq!(location(&server, "GET /p"), moved(301, "/p/"), "{around}");
            assert_eq!(location(&server, "POST /p"), moved(308, "/p/"), "{around}");
            assert_eq!(ask(&server, "GET /own").status, 410, "{around}");
            assert_eq!(ask(&server, "GET /named").status, 402, "{around}");
            let listed = if around.starts_with("redirects") { "/to" } else { "/listed/" };
            assert_eq!(location(&server, "GET /listed"), moved(301, listed), "{around}");
            assert_ne!(location(&server, "GET /apis").1, "/apis/", "{around}");
        }
    });
}

/// Clients turn a POST that is answered with 301 into a GET, and a 405 tells them nothing of the other path.
#[test]
fn a_method_that_a_route_takes_is_sent_to_its_path_with_a_slash_and_keeps_its_body() {
    let tree = tree().file("api", "a file").directory("cgi");
    on_both_drivers(|driver| {
        let gateways = r#"
            [[site.route]]
            path = "/api/"
            proxy = "unix:DIR/none"
            [[site.route]]
            path = "/php/"
            fastcgi = { server = "unix:DIR/none", root = "DIR" }
            [[site.route]]
            path = "/tool/"
            cgi = "DIR/cgi"
            [[site.route]]
            path = "/gone/"
            status = 410
            [[site.route]]
            path = "/away/"
            redirect = "https://example.org/$0"
            "#;
        let files = r#"
            [[site.route]]
            files = "DIR"
            [[site.route]]
            path = "/p/"
            files = "DIR/sub"
            "#;
        let server = serve_config(driver, &tree, &format!("{files}{gateways}"));
        let only = serve_config(driver, &tree, gateways);
        for name in ["api", "php", "tool", "gone", "away"] {
            let to = format!("/{name}/?q");
            let unknown = if name == "away" { "PUT" } else { "BREW" };
            for method in ["POST", "PUT", "DELETE", "PATCH", unknown] {
                let head = format!("{method} /{name}?q");
                assert_eq!(location(&server, &head), moved(308, &to), "{head}");
                assert_eq!(location(&only, &head), moved(308, &to), "{head}");
            }
            for method in ["GET", "HEAD"] {
                let head = format!("{method} /{name}?q");
                assert_eq!(location(&only, &head), moved(301, &to), "{head}");
            }
        }
        expect(&server, "GET /api", 200, "a file");
        assert_eq!(location(&server, "GET /php"), moved(301, "/php/"));
        assert_eq!(location(&server, "POST /p"), moved(405, "none"));
        assert_eq!(location(&server, "BREW /away"), moved(501, "none"));
        assert_eq!(location(&server, "POST /apis"), moved(405, "none"));
        assert_eq!(ask(&server, "OPTIONS /api").status, 204);
        for (path, allowed) in [
            ("api/", "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"),
            ("php/x.php", "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"),
            ("tool/x", "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"),
            ("style.css", "GET, HEAD, OPTIONS"),
        ] {
            let response = ask(&server, &format!("TRACE /{path}"));
            let found = (response.status, response.header("Allow"));
            assert_eq!(found, (405, Some(allowed)), "{path}");
        }
    });
}

#[test]
fn pages_may_be_files_of_routes_that_no_request_reaches() {
    let tree = tree().file("pages/404.html", "internal 404");
    on_both_drivers(|driver| {
        let server = serve_config(
            driver,
            &tree,
            r#"
            errors = { 404 = "/.errors/404.html" }
            [[site.route]]
            files = "DIR/sub"
            [[site.route]]
            path = "/.errors/"
            files = "DIR/pages"
            internal = true
            "#,
        );
        expect(&server, "GET /missing", 404, "internal 404");
        expect(&server, "GET /.errors/404.html", 404, "internal 404");
        expect(&server, "GET /", 200, "sub");
    });
}

#[test]
fn files_of_a_route_that_no_request_reaches_are_not_those_of_a_shorter_path() {
    let tree = Tree::new().file("a", "open").file("protected/b", "closed");
    on_both_drivers(|driver| {
        let server = serve_config(
            driver,
            &tree,
            r#"
            [[site.route]]
            files = "DIR"
            [[site.route]]
            path = "/protected/"
            files = "DIR/protected"
            internal = true
            "#,
        );
        expect(&server, "GET /a", 200, "open");
        for path in ["/protected/b", "/protected/", "/./protected//b", "/%70rotected/b"] {
            assert_eq!(ask(&server, &format!("GET {path}")).status, 404, "{path}");
        }
    });
}
