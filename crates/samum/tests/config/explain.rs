//! `samum explain`: what a server would do with a request, without doing it.

use std::fs::{self, Permissions};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use testkit::{Server, Tree};

use crate::common::{SAMUM, ask, on_both_drivers};

/// Asks with these arguments; returns the exit code, and what was printed and complained of.
fn explain(arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::new(SAMUM).arg("explain").args(arguments).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

fn site() -> Tree {
    Tree::new()
        .file("a.css", "body {}")
        .file("a.css.gz", "packed")
        .file("secret", "x")
        .file("d/index.html", "hello")
        .file("page.html", "a page")
        .symlink("out", "/etc/passwd")
}

/// A configuration with a site of each kind of route. `port` is that of an upstream that must not be asked.
fn config(dir: &Path, files: &Path, driver: &str, port: u16) -> String {
    let (dir, root) = (dir.display(), files.display());
    format!(
        "[server]\nthreads = 1\ndriver = \"{driver}\"\ncontrol = \"{dir}/control.sock\"\n\
         [[site]]\nlisten = [\"127.0.0.1:0\"]\nhosts = [\"a.example\"]\nlog = \"{dir}/log\"\n\
         limits = {{ requests-per-ip = \"1/min burst 1\" }}\n\
         [[site.route]]\nfiles = \"{root}\"\nclean-urls = true\nheaders = [{{ set = {{ X-Own = \"1\" }} }}]\n\
         [[site.route]]\npath = \"/private/\"\nfiles = \"{root}\"\nallow = [\"192.0.2.0/24\"]\n\
         [[site.route]]\npath = \"/private/\"\nmatch = \"*.png\"\nstatus = 404\n\
         [[site.route]]\npath = \"/api/\"\nproxy = \"http://127.0.0.1:{port}\"\n\
         request-headers = {{ Authorization = \"Bearer t0ps3cret\" }}\n\
         [[site.route]]\npath = \"/cgi/\"\ncgi = {{ directory = \"{dir}/cgi\", environment = {{ PASSWORD = \"t0ps3cret\" }} }}\n\
         [[site.route]]\npath = \"/old/\"\nredirect = \"/new/$0\"\n"
    )
}

#[test]
fn what_a_server_would_do_is_explained_and_not_done() {
    on_both_drivers(|driver| {
        let (dir, files) = (Tree::new().directory("cgi"), site());
        let upstream = TcpListener::bind("127.0.0.1:0").unwrap();
        upstream.set_nonblocking(true).unwrap();
        let port = upstream.local_addr().unwrap().port();
        let program = dir.path().join("cgi/run");
        let ran = dir.path().join("ran");
        fs::write(&program, format!("#!/bin/sh\ntouch {}\nprintf '\\n'\n", ran.display())).unwrap();
        fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
        let path = dir.path().join("samum.toml");
        fs::write(&path, config(dir.path(), files.path(), driver, port)).unwrap();
        let mut command = Command::new(SAMUM);
        let server = Server::spawn(command.arg("serve").arg("--config").arg(&path)).unwrap();
        let control = dir.path().join("control.sock");
        let (control, path) = (control.to_str().unwrap(), path.to_str().unwrap());
        let root = files.path().display().to_string();
        let css = format!("{root}/a.css (7 bytes, mode 0644, owner root)");
        let index = format!("{root}/d/index.html (5 bytes");
        let page = format!("{root}/page.html (6 bytes");
        let cases: [(&[&str], &[&str]); 13] = [
            (
                &["http://a.example/a.css", "-H", "Accept-Encoding: gzip"],
                &[
                    "a.example (its hosts have this host)",
                    "route         / (the longest path that fits)",
                    &css,
                    "precompressed Gzip, 6 bytes",
                    "media type    text/css; charset=utf-8",
                    "response      200 OK",
                    "Content-Encoding: gzip",
                    "Vary: Accept-Encoding",
                    "X-Own: 1",
                    "limit         ",
                ],
            ),
            (&["http://b.example/d/"], &["(the default: no site lists this host)", &index]),
            (&["http://a.example/page"], &[&page, "200 OK"]),
            (
                &["http://a.example/d"],
                &["its path has no slash at the end", "301", "Location: /d/"],
            ),
            (
                &["http://a.example/out"],
                &[
                    "404 Not Found: leaves the directory by a symbolic link (symlinks = \"beneath\")",
                ],
            ),
            (&["http://a.example/missing"], &["404 Not Found: no such file"]),
            (&["http://a.example/.git"], &["404 Not Found: a name begins with a dot"]),
            (
                &["http://a.example/private/a.css", "--from", "198.51.100.1"],
                &[
                    "allow         192.0.2.0/24",
                    "198.51.100.1 is not permitted",
                    "403 Forbidden: `allow` and `deny`",
                    "not /: its path is shorter",
                    "its `match` does not fit",
                ],
            ),
            (
                &["http://a.example/private/a.css", "--from", "192.0.2.7"],
                &["192.0.2.7 is permitted", "200 OK"],
            ),
            (
                &["HTTP://a.example/private/a.css", "--from", "unix"],
                &["unix is not permitted", "403 Forbidden: `allow` and `deny`"],
            ),
            (
                &["http://a.example/api/x"],
                &["upstream      http://127.0.0.1:", "which is not asked", "Authorization = …"],
            ),
            (&["http://a.example/cgi/run"], &["which is not started", "PASSWORD = …"]),
            (&["http://a.example/old/x?y"], &["308", "Location: /new/x?y"]),
        ];
        for (arguments, expected) in cases {
            let asked = explain(&[arguments, &["--control", control]].concat());
            let read = explain(&[arguments, &["--config", path]].concat());
            assert_eq!((asked.0, read.0), (Some(0), Some(0)), "{arguments:?}: {asked:?} {read:?}");
            for text in expected {
                assert!(asked.1.contains(text), "{arguments:?}: no {text:?} in\n{}", asked.1);
            }
            assert!(!asked.1.contains("t0ps3cret"), "{}", asked.1);
            assert!(asked.1.lines().all(|line| !line.chars().any(char::is_control)), "{asked:?}");
            // The server has numbered its requests no differently. The two may have been asked in different seconds.
            let without_date = |text: &str| -> Vec<String> {
                text.lines().filter(|line| !line.contains("Date: ")).map(str::to_owned).collect()
            };
            assert_eq!(without_date(&asked.1), without_date(&read.1), "{arguments:?}");
        }
        // Nothing was asked, started, counted or logged.
        assert!(upstream.accept().is_err() && !ran.exists());
        assert_eq!(ask(&server, "GET /a.css").status, 200);
        assert_eq!(ask(&server, "GET /a.css").status, 429);
        let log = fs::read_to_string(dir.path().join("log")).unwrap();
        assert!(!log.contains("missing"), "{log}");
        let is_of_request = |line: &String| line.contains("404 for ");
        assert!(!server.stderr().iter().any(is_of_request), "{:?}", server.stderr());
    });
}

#[test]
fn a_question_that_is_none_is_refused_with_its_reason() {
    let (dir, files) = (Tree::new(), site());
    let path = dir.path().join("samum.toml");
    fs::write(&path, config(dir.path(), files.path(), "epoll", 1)).unwrap();
    let path = path.to_str().unwrap();
    for (arguments, expected) in [
        (&["a.example/x"][..], "expected a URL with its scheme"),
        (&["http://a.example/x y"], "a URL has no blanks"),
        (&["http://a.example/\u{1b}[2J"], "\\u{1b}"),
        (&["http://a.example/", "-H", "A: b\r\nHost: c"], "expected a field"),
        (&["https://a.example/"], "no listener with TLS"),
    ] {
        let (code, _, stderr) = explain(&[arguments, &["--config", path]].concat());
        assert_eq!(code, Some(1), "{arguments:?}: {stderr}");
        assert!(stderr.contains(expected) && !stderr.contains('\u{1b}'), "{arguments:?}: {stderr}");
    }
    let (code, _, stderr) =
        explain(&["http://a.example/", "--control", "/nonexistent/control.sock"]);
    assert_eq!(code, Some(1));
    assert!(stderr.contains("no server listens"), "{stderr}");
}

#[test]
fn the_certificates_of_clients_and_values_of_files_are_said_without_their_content() {
    use crate::tls::Authority;
    let (dir, files) = (Tree::new().file("where", "/hidden-place/x\n"), site());
    let authority = Authority::new();
    authority.issue(&["a.example"]).put(&dir, "a");
    dir.write("ca.pem", authority.pem().into_bytes());
    let (at, root) = (dir.path().display(), files.path().display());
    for (require, expected) in [
        ("", "client        needs a certificate of "),
        (", require = false", "client        may have a certificate of "),
    ] {
        let text = format!(
            "[[site]]\nlisten = [{{ address = \"127.0.0.1:0\", tls = true }}]\nhosts = [\"a.example\"]\n\
             tls = {{ certificate = \"{at}/a.pem\", key = \"{at}/a.key\", client = {{ ca = \"{at}/ca.pem\"{require} }} }}\n\
             [[site.route]]\nfiles = \"{root}\"\n\
             [[site.route]]\npath = \"/to/\"\nredirect = \"${{file:{at}/where}}\"\n"
        );
        let path = dir.path().join("samum.toml");
        fs::write(&path, text).unwrap();
        let path = path.to_str().unwrap();
        let (code, said, _) = explain(&["https://a.example/a.css", "--config", path]);
        assert_eq!(code, Some(0));
        assert!(said.contains(&format!("{expected}{at}/ca.pem")), "{said}");
        let (_, said, _) = explain(&["https://a.example/to/", "--config", path]);
        assert!(said.contains("Location: …") && !said.contains("hidden-place"), "{said}");
        let checked = Command::new(SAMUM).args(["check", path]).output().unwrap();
        let said = String::from_utf8(checked.stdout).unwrap();
        assert!(said.contains("redirect = \"…\"") && !said.contains("hidden-place"), "{said}");
    }
}

/// The URL's address has a listener, one field comes with `https` only, and another is only kept from an upstream.
#[test]
fn addresses_schemes_and_fields_that_are_kept_back_are_explained() {
    let dir = Tree::new().file("www/a.txt", "a");
    let path = dir.path().join("samum.toml");
    let text = r#"
        [server]
        trusted-proxies = ["192.0.2.1"]

        [[site]]
        listen = ["127.0.0.1:8743"]
        hosts = ["y.example"]
        [[site.route]]
        status = 404

        [[site]]
        listen = ["[::1]:8743", { address = "[::1]:8443", tls = true }]
        hosts = ["x.example"]
        tls = "self-signed"
        hsts = "1d"
        [[site.route]]
        files = "www"
        [[site.route]]
        path = "/api/"
        proxy = ["http://127.0.0.1:1"]

        [[site]]
        listen = ["[::1]:8744"]
        [[site.route]]
        proxy = ["http://127.0.0.1:1"]
        request-headers = { X-Subject = "$tls-client", X-None = "" }
    "#;
    fs::write(&path, text).unwrap();
    let config = path.to_str().unwrap();
    let secure = "Strict-Transport-Security: max-age=86400";
    let told = &["--from", "192.0.2.1", "-H", "X-Forwarded-Proto: https"][..];
    for (url, more, expected, missing) in [
        ("http://[::1]:8743/a.txt", &[][..], &["listener      [::1]:8743", "200 OK"][..], secure),
        ("http://127.0.0.1:8743/a.txt", &[], &["listener      127.0.0.1:8743", "404"], secure),
        ("https://x.example:8443/a.txt", &[], &["200 OK", secure], "proxy"),
        ("http://[::1]:8743/a.txt", told, &[secure], "proxy"),
        ("http://[::1]:8743/api/", &[], &["sends         no X-Subject, whatever"], "X-None"),
        ("http://[::1]:8744/", &[], &["X-Subject = …", "no X-None, whatever"], "no X-Subject"),
    ] {
        let (code, shown, error) = explain(&[&["--config", config, url][..], more].concat());
        assert_eq!((code, &error[..]), (Some(0), ""), "{url}");
        assert!(expected.iter().all(|text| shown.contains(text)), "{url}: {shown}");
        assert!(!shown.contains(missing), "{url}: {shown}");
    }
}
