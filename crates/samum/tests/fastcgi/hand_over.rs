//! Requests that an application hands over to files of the site.

use std::os::unix::fs::symlink;

use testkit::Tree;

use crate::fastcgi::application::{Act, Seen, application, end, output};
use crate::fastcgi::stage::{Stage, on_both_drivers, serve, serve_route, serve_with, text, tree};

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
    serve_with(driver, tree, "", &routes)
}

#[test]
fn a_file_is_sent_in_the_place_of_an_output() {
    on_both_drivers(|driver| {
        let tree = files();
        let root = tree.path().display();
        let by_file = format!("X-Sendfile: {root}/inner/a.bin");
        let own = format!("X-Sendfile: {root}/www/a.txt");
        let above = format!("X-Sendfile: {root}/www/../none/.././inner//a.bin");
        let both = format!("X-Sendfile: {root}/www/a.txt\r\nX-Accel-Redirect: /inner/a.bin");
        let fields = "X-Accel-Redirect: /inner/a.bin\r\nSet-Cookie: a=1\r\nX-Powered-By: it";
        let cases = [
            ("X-Accel-Redirect: /inner/a.bin", "GET /", 200, FILE),
            (&by_file, "GET /", 200, FILE),
            ("X-Accel-Redirect: /a.txt", "GET /", 200, "a file"),
            (&own, "GET /", 200, "a file"),
            (&above, "GET /", 200, FILE),
            (&both, "GET /", 200, FILE),
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
        assert_eq!(stage.ask("GET /inner/a.bin").status, 404, "clients do not reach it");
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
            format!("X-Accel-Redirect: /inner/.hidden\r\nX-Sendfile: {root}/inner/a.bin"),
        ];
        let stage = stage(driver, &tree, headers.iter().map(|header| &header[..]));
        for header in &headers {
            let response = stage.ask("GET /");
            assert_eq!(response.status, 502, "{header}: {}", text(&response));
            stage.wait_for_log("php.sock");
        }
        let failed = stage.count("samum_proxy_requests_total", &[("event", "failed")]);
        assert_eq!(failed, headers.len() as u64);
        stage.wait_for_log("leads to no file of a route of the site");
    });
}

/// A path without a file is a 404, as nginx answers it, and the server that has named it is at fault.
#[test]
fn a_path_without_a_file_is_a_404_and_told() {
    on_both_drivers(|driver| {
        let tree = files().directory("inner/sub");
        let root = tree.path().display();
        symlink(tree.path().join("secret"), tree.path().join("inner/link")).unwrap();
        let fifo = tree.path().join("inner/fifo");
        let made = std::process::Command::new("mkfifo").arg(&fifo).status();
        assert!(made.unwrap().success());
        let headers = [
            "X-Accel-Redirect: /inner/none?a".to_owned(),
            "X-Accel-Redirect: /inner/sub/".to_owned(),
            format!("X-Sendfile: {root}/inner/none"),
            format!("X-Sendfile: {root}/inner/link"),
            format!("X-Sendfile: {root}/inner/fifo"),
            format!("X-Sendfile: {root}/inner/sub/"),
        ];
        let stage = stage(driver, &tree, headers.iter().map(|header| &header[..]));
        for (count, header) in (1..).zip(&headers) {
            let response = stage.ask("GET /");
            assert_eq!(response.status, 404, "{header}: {}", text(&response));
            stage.wait_for_log(&format!("{header} leads to a path without a file"));
            let failed = stage.count("samum_proxy_requests_total", &[("event", "failed")]);
            assert_eq!(failed, count, "{header}");
        }
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

/// What a path of the site does not lead to, a path of the file system does not, either.
#[test]
fn both_fields_hand_out_the_same_files() {
    on_both_drivers(|driver| {
        let tree = files()
            .file("inner/.git/config", "secret")
            .file("inner/closed/a.txt", "secret")
            .file("inner/cgi-bin/tool", "#!/bin/sh source")
            .file("inner/a.PHP", "<?php source")
            .file("inner/d/index.php", "<?php source")
            .file("www/b.PHP", "<?php source")
            .file("www/b.php.gz", "<?php source");
        let root = tree.path().display().to_string();
        let all = [
            "/inner/.git/config",
            "/inner/.hidden",
            "/inner/closed/a.txt",
            "/inner/cgi-bin/tool",
            "/b.PHP",
            "/b.php.gz",
            "/all/b.PHP",
            "/all/sub/index.php",
        ];
        let of_file = |path: &str| match path.strip_prefix("/inner/") {
            Some(rest) => format!("{root}/inner/{rest}"),
            None => {
                format!("{root}/www/{}", path.trim_start_matches("/all").trim_start_matches('/'))
            }
        };
        let mut headers = Vec::new();
        for path in all {
            headers.push(format!("X-Accel-Redirect: {path}"));
            headers.push(format!("X-Sendfile: {}", of_file(path)));
        }
        let acts = headers.iter().map(|header| {
            Act::Close([output(&format!("{header}\r\n\r\nignored")), end(0)].concat())
        });
        let _seen = application(&tree.path().join("php.sock"), acts.collect());
        let routes = format!(
            "[[site.route]]\npath = '/inner/'\nfiles = '{root}/inner'\ninternal = true\n\
             [[site.route]]\npath = '/inner/closed/'\nstatus = 403\n\
             [[site.route]]\npath = '/inner/cgi-bin/'\ncgi = '{root}/inner/cgi-bin'\n\
             [[site.route]]\npath = '/all/'\nfiles = '{root}/www'\ninternal = true\n"
        );
        let stage = serve_with(driver, &tree, "", &routes);
        for two in headers.chunks(2) {
            let statuses: Vec<_> = two
                .iter()
                .map(|header| {
                    let response = stage.ask("GET /");
                    let body = text(&response);
                    assert!(
                        !body.contains("source") && !body.contains("secret"),
                        "{header}: {body}"
                    );
                    response.status
                })
                .collect();
            assert_eq!(statuses[0], statuses[1], "{two:?}");
            assert!(statuses[0] >= 400, "{two:?}: {statuses:?}");
        }
    });
}

/// A route for all files beside one for scripts, and one whose directory has that of the programs below it.
#[test]
fn a_script_is_not_sent_however_its_name_is_spelled() {
    on_both_drivers(|driver| {
        let tree = tree();
        let names = [
            "index.php",
            "a.php",
            "a.PHP",
            "a.pHp",
            "a.php.",
            "a.php ",
            "a.php.gz",
            "a.php.br",
            "a.phtml",
            "d.php/in.PHP",
            "cgi-bin/tool",
            "d/index.php",
        ];
        for name in names {
            tree.write(format!("www/{name}"), "<?php source");
        }
        let root = tree.path().display();
        let acts =
            (0..2000).map(|_| Act::Close([output("Status: 200\r\n\r\nrun"), end(0)].concat()));
        let _seen = application(&tree.path().join("php.sock"), acts.collect());
        let beside = format!(
            "files = '{root}/www'\nlisting = true\n\
             [[site.route]]\nmatch = '*.php'\nfastcgi = {{ server = 'unix:{root}/php.sock', root = '{root}/www' }}\n\
             [[site.route]]\npath = '/cgi-bin/'\ncgi = '{root}/www/cgi-bin'\n\
             [[site.route]]\npath = '/all/'\nfiles = '{root}'\n"
        );
        let own = format!(
            "files = '{root}/www'\nindex = 'index.php'\n\
             fastcgi = {{ server = 'unix:{root}/php.sock' }}\n\
             [[site.route]]\npath = '/static/'\nfiles = '{root}/www'\n\
             [[site.route]]\npath = '/cgi-bin/'\ncgi = '{root}/www/cgi-bin'\n"
        );
        for (route, prefixes) in [(beside, ["/", "/all/www/"]), (own, ["/", "/static/"])] {
            let stage = serve_route(driver, &tree, "", &route);
            for prefix in prefixes {
                let spelled = names.iter().flat_map(|name| {
                    let name = name.replace(' ', "%20");
                    [
                        name.clone(),
                        format!("{name}/"),
                        format!("/{name}"),
                        format!("./{name}"),
                        format!("{name}%00"),
                        format!("{name}%20"),
                        format!("{name}."),
                        name.replace(".p", "%2ep"),
                        name.replace(".p", ".%70"),
                        format!("{name}/../{name}"),
                    ]
                });
                for path in spelled.chain(["".to_owned(), "d".to_owned(), "d/".to_owned()]) {
                    for fields in ["", "\nAccept-Encoding: gzip, br", "\nRange: bytes=0-99"] {
                        let response = stage.ask(&format!("GET {prefix}{path}{fields}"));
                        let body = text(&response);
                        assert!(!body.contains("source"), "{prefix}{path}: {body}");
                    }
                }
            }
            assert_eq!(text(&stage.ask("GET /a.txt")), "a file");
            assert_eq!(text(&stage.ask("GET /a.php")), "run");
        }
    });
}

/// A symbolic link has another name than the script that it leads to.
#[test]
fn a_script_behind_a_link_is_not_sent() {
    on_both_drivers(|driver| {
        let tree = tree()
            .file("www/index.php", "<?php source")
            .file("www/a.php.gz", "source")
            .file("www/cgi-bin/tool", "#!/bin/sh source")
            .file("disk/index.php", "<?php source")
            .directory("other");
        let at = |name: &str| tree.path().join(name);
        let links = [
            ("index.php", "www/a.html"),
            ("a.html", "www/hop.css"),
            ("a.txt", "www/b.txt"),
            ("a.php.gz", "www/a.txt.gz"),
            ("cgi-bin/tool", "www/tool.txt"),
        ];
        for (target, link) in links {
            symlink(target, at(link)).unwrap();
        }
        symlink(at("disk"), at("www/d")).unwrap();
        symlink(at("disk/index.php"), at("www/disk.txt")).unwrap();
        symlink(at("www"), at("other/www")).unwrap();
        symlink(at("www/index.php"), at("other/page.html")).unwrap();
        let acts =
            (0..200).map(|_| Act::Close([output("Status: 200\r\n\r\nrun"), end(0)].concat()));
        let _seen = application(&tree.path().join("php.sock"), acts.collect());
        let root = tree.path().display();
        let route = format!(
            "files = '{root}/www'\nsymlinks = 'follow'\nlisting = true\n\
             fastcgi = {{ server = 'unix:{root}/php.sock' }}\n\
             [[site.route]]\npath = '/static/'\nfiles = '{root}/www'\nlisting = true\n\
             [[site.route]]\npath = '/other/'\nfiles = '{root}/other'\nsymlinks = 'follow'\nlisting = true\n\
             [[site.route]]\npath = '/cgi-bin/'\ncgi = '{root}/www/cgi-bin'\n"
        );
        let stage = serve_route(driver, &tree, "", &route);
        let names = ["a.html", "hop.css", "tool.txt", "a.txt", "disk.txt", "d/index.php"];
        let below = |prefix: &'static str| names.map(|name| format!("{prefix}{name}"));
        let paths = [below("/"), below("/static/"), below("/other/www/")].concat();
        for path in paths.into_iter().chain(["/other/page.html".to_owned()]) {
            for fields in ["", "\nAccept-Encoding: gzip"] {
                let response = stage.ask(&format!("GET {path}{fields}"));
                assert!(!text(&response).contains("source"), "{path}{fields}: {}", text(&response));
            }
        }
        assert_eq!(stage.ask("GET /a.html").status, 404);
        for path in ["/b.txt", "/static/b.txt", "/other/www/b.txt"] {
            assert_eq!(text(&stage.ask(&format!("GET {path}"))), "a file", "{path}");
        }
        assert_eq!(text(&stage.ask("GET /index.php")), "run");
        // A listing has no file that is not sent.
        for (path, files) in [
            ("/", &["b.txt", "index.php"][..]),
            ("/static/", &["b.txt"]),
            ("/other/", &[]),
            ("/other/www/", &["b.txt"]),
        ] {
            let response = stage.ask(&format!("GET {path}\nAccept: application/json"));
            let listing = text(&response);
            let name = |line: &str| {
                Some(line.split_once("\"href\":\"./")?.1.split_once('"')?.0.to_owned())
            };
            let mut names: Vec<_> = listing.lines().filter_map(name).collect();
            names.retain(|name| !name.ends_with('/') && name != "a.txt");
            assert_eq!(names, files, "{path}: {listing}");
            for name in &names {
                assert_eq!(stage.ask(&format!("GET {path}{name}")).status, 200, "{path}{name}");
            }
            let page = stage.page(path);
            for name in ["a.html", "hop.css", "tool.txt", "disk.txt", "page.html", "a.php.gz"] {
                assert!(!page.contains(name), "{path}: {page}");
            }
        }
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
            ("X-Accel-Redirect:\r\nX-Sendfile:\r\n\r\nhello", 200, "hello", None),
        ];
        let acts = cases.iter().map(|(out, ..)| Act::Close([output(out), end(0)].concat()));
        let _seen = application(&tree.path().join("php.sock"), acts.collect());
        let stage = serve(driver, &tree);
        for (out, status, body, content_type) in cases {
            let response = stage.ask("GET /");
            assert_eq!((response.status, text(&response)), (status, body), "{out}");
            assert_eq!(response.header("Content-Type"), content_type, "{out}");
        }
    });
}

#[test]
fn rfc3875_6_2_2_a_local_redirect_is_answered_as_if_the_client_had_asked() {
    on_both_drivers(|driver| {
        let tree = files();
        let to = |path: &str| output(&format!("Location: {path}\r\n\r\n"));
        let script = output("Content-Type: a/b\r\n\r\nscript");
        let endless = vec![to("/sub/?a"); 11];
        let outputs = [
            vec![to("/sub/?a=b"), script.clone()],
            vec![to("/sub/index.php/info"), script.clone()],
            // The fallback.
            vec![to("/pretty/url"), to("/pretty/other"), script.clone()],
            vec![to("/a.txt")],
            vec![to("/inner/a.bin")],
            vec![to("/inner/.hidden")],
            vec![to("/all/index.php")],
            vec![to("//server/a?b")],
            endless,
            vec![to("/index.php"), script],
        ];
        let acts = outputs.concat().into_iter();
        let acts = acts.map(|output| Act::Close([output, end(0)].concat())).collect();
        let seen = application(&tree.path().join("php.sock"), acts);
        let root = tree.path().display();
        let routes = format!(
            "[[site.route]]\npath = '/inner/'\nfiles = '{root}/inner'\ninternal = true\n\
             [[site.route]]\npath = '/all/'\nfiles = '{root}/www'\ninternal = true\n\
             [[site.route]]\npath = '/server/'\nproxy = 'unix:{root}/none'\n"
        );
        let stage = serve_with(driver, &tree, "", &routes);
        for (status, body) in [
            (200, "script"),
            (200, "script"),
            (200, "script"),
            (200, "a file"),
            (200, FILE),
            (404, ""),
            (404, ""),
            // The other server is away.
            (502, ""),
            (502, ""),
        ] {
            let response = stage.ask("GET /?x=y");
            assert_eq!(response.status, status);
            if status == 200 {
                assert_eq!(text(&response), body);
            }
        }
        stage.wait_for_log("/sub/?a: a request was handed over 10 times");
        assert_eq!(stage.count("samum_proxy_requests_total", &[("event", "failed")]), 2);
        // The body was for the first one.
        let response = stage.post("POST /\nContent-Type: c/d", b"lost");
        assert_eq!((response.status, text(&response)), (200, "script"));
        let seen: Vec<_> = seen.try_iter().collect();
        let request = |index: usize| match &seen[index] {
            Seen::Request(variables, content) => {
                (variables.escape_ascii().to_string(), content.clone())
            }
            seen @ Seen::Rest(_) => panic!("{seen:?}"),
        };
        for (index, expected) in [
            (0, "REQUEST_URI/?x=y"),
            (1, "REQUEST_URI/sub/?a=b"),
            (1, "QUERY_STRINGa=b"),
            (1, "SCRIPT_NAME/sub/index.php"),
            (3, "PATH_INFO/info"),
            (6, "REQUEST_URI/pretty/other"),
        ] {
            assert!(request(index).0.contains(expected), "{index}: {}", request(index).0);
        }
        let (first, last) = (request(seen.len() - 2), request(seen.len() - 1));
        assert!(first.0.contains("METHODPOST") && first.1 == b"lost", "{first:?}");
        assert!(last.0.contains("METHODGET") && last.1.is_empty(), "{last:?}");
        assert!(!last.0.contains("CONTENT_TYPEc/d"), "{last:?}");
    });
}

/// With 301 or 308 clients would ask there in place of the script from then on, and with 308 send the body once more.
#[test]
fn a_local_redirect_to_a_path_that_has_another_form_sends_the_client_there_for_now() {
    on_both_drivers(|driver| {
        let tree = files().file("www/page.html", "a page").directory("www/dir");
        let root = tree.path().display();
        let cases = [
            ("/api?a=b", "/api/?a=b"),
            ("/%61pi", "/api/"),
            ("/gone?a", "/gone/?a"),
            ("/files?a", "/files/?a"),
            ("/files/dir?a", "/files/dir/?a"),
            ("/files/page.html?a", "/files/page?a"),
            ("/files/", "none"),
            ("/api?a=b", "/api/?a=b"),
        ];
        let acts = cases.iter().map(|(to, _)| {
            Act::Close([output(&format!("Location: {to}\r\n\r\n")), end(0)].concat())
        });
        let seen = application(&tree.path().join("php.sock"), acts.collect());
        let route = format!(
            "fastcgi = {{ server = 'unix:{root}/php.sock', root = '{root}/www' }}\n\
             [[site.route]]\npath = '/api/'\nproxy = 'unix:{root}/none'\n\
             [[site.route]]\npath = '/gone/'\nstatus = 410\n\
             [[site.route]]\npath = '/files/'\nfiles = '{root}/www'\nclean-urls = true\nlisting = true\n"
        );
        let stage = serve_route(driver, &tree, "", &route);
        for (index, (to, location)) in cases.iter().enumerate() {
            let response = match index {
                7 => stage.post("POST /x.php?client", b"a body"),
                _ => stage.ask("GET /x.php?client"),
            };
            let status = if *location == "none" { 200 } else { 302 };
            let found = (response.status, response.header("Location").unwrap_or("none"));
            assert_eq!(found, (status, *location), "{to}");
        }
        // It has not got the requests that it has handed over.
        assert_eq!(seen.try_iter().filter(|seen| matches!(seen, Seen::Request(..))).count(), 8);
    });
}
