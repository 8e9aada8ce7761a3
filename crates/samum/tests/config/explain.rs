//! `samum explain`: what a server would do with a request, without doing it.

use std::fs::{self, Permissions};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use testkit::{Server, Tree};

use crate::common::{SAMUM, ask, connect, on_both_drivers, request};

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
fn programs_that_would_not_run_and_bodies_that_are_too_long_are_explained() {
    let dir = Tree::new()
        .file("cgi/run", "#!/bin/sh\nprintf '\\nran'\n")
        .file("cgi/plain", "#!/bin/sh\n")
        .file("cgi/.hidden", "#!/bin/sh\n")
        .directory("cgi/d")
        .symlink("cgi/out", "/bin/true")
        .symlink("cgi/circle", "circle");
    for program in ["run", ".hidden"] {
        let path = dir.path().join("cgi").join(program);
        fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
    }
    let path = dir.path().join("samum.toml");
    let at = dir.path().display();
    let text = format!(
        "[server]\nthreads = 1\n[[site]]\nlisten = ['127.0.0.1:0']\n\
         [[site.route]]\npath = '/cgi/'\ncgi = '{at}/cgi'\nmax-body = 10\n\
         [[site.route]]\npath = '/api/'\nproxy = 'http://127.0.0.1:9'\n"
    );
    fs::write(&path, text).unwrap();
    let mut command = Command::new(SAMUM);
    let server = Server::spawn(command.arg("serve").arg("--config").arg(&path)).unwrap();
    let config = path.to_str().unwrap();
    let long = "413 Content Too Large: its body is longer than `max-body`";
    for (method, target, length, expected) in [
        ("GET", "cgi/run", 0, "cgi/run (cgi), which is not started"),
        ("POST", "cgi/run", 10, "cgi/run (cgi), which is not started"),
        ("POST", "cgi/run", 11, long),
        ("GET", "cgi/plain", 11, long),
        ("TRACE", "cgi/run", 0, "405 Method Not Allowed: "),
        ("TRACE", "api/", 0, "405 Method Not Allowed: "),
        ("GET", "cgi/none", 0, "404 Not Found: no program has this path"),
        (
            "GET",
            "cgi/.hidden",
            0,
            "404 Not Found: no program is reached by a name that begins with a dot",
        ),
        (
            "GET",
            "cgi/d/.hidden",
            0,
            "404 Not Found: no program is reached by a name that begins with a dot",
        ),
        ("GET", "cgi/d", 0, "404 Not Found: a directory, and no program in it is named"),
        ("GET", "cgi/", 0, "404 Not Found: a directory, and no program in it is named"),
        ("GET", "cgi/plain/info", 0, "403 Forbidden: the file is not executable"),
        (
            "GET",
            "cgi/out",
            0,
            "403 Forbidden: a symbolic link leads out of the directory of the programs",
        ),
        ("GET", "cgi/circle", 0, "403 Forbidden: symbolic links lead in a circle"),
    ] {
        let url = format!("http://localhost/{target}");
        let field = format!("Content-Length: {length}");
        let fields: &[&str] = if length > 0 { &["-H", &field] } else { &[] };
        let (code, said, error) =
            explain(&[&[&url[..], "--config", config, "-X", method], fields].concat());
        assert_eq!((code, &error[..]), (Some(0), ""), "{method} {target}");
        assert!(said.contains(expected), "{method} {target}: no {expected:?} in\n{said}");
        assert!(said.starts_with(&format!("request       {method} {url}\n")), "{said}");
        let field = if length > 0 { format!("\n{field}") } else { String::new() };
        let mut client = connect(&server);
        client.send(request(&format!("{method} /{target}{field}"))).unwrap();
        client.send(vec![b'x'; length]).unwrap();
        let status = client.response().unwrap().status.to_string();
        let (of_explanation, _) = explained_response(&said);
        let expected = if of_explanation == "none" { "200" } else { &of_explanation };
        assert_eq!(status, expected, "{method} {target}");
    }
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

/// The URL has the host of the handshake, and the field that of the request.
#[test]
fn a_host_of_another_site_than_that_of_the_handshake_and_challenges_are_explained() {
    let dir = Tree::new().file("www/a.txt", "a").file("www/.well-known/acme-challenge/x", "x");
    let path = dir.path().join("samum.toml");
    let site = |host: &str, tls: &str| {
        format!(
            "[[site]]\nlisten = [\"127.0.0.1:8743\", {{ address = \"127.0.0.1:8443\", tls = true }}]\n\
             hosts = [\"{host}\"]\nhttps = \"redirect\"\n{tls}\n[[site.route]]\nfiles = \"www\"\ndotfiles = true\n"
        )
    };
    let same = "tls = { certificate = \"a.pem\" }";
    let demanding = "tls = { certificate = \"a.pem\", client = { ca = \"ca.pem\" } }";
    let text = site("a.example", same)
        + &site("b.example", same)
        + &site("c.example", demanding)
        + &site("d.example", "tls = \"self-signed\"")
        + &site("127.0.0.1", "tls = \"self-signed\"");
    let acme =
        "[acme]\ncontact = [\"mailto:a@a.example\"]\nstorage = \"acme\"\nagree-terms = true\n";
    let acme = site("e.example", "tls = \"acme\"") + acme;
    let misdirected = "421 Misdirected Request";
    let of_others = "the routes answer it, for other programs that get certificates";
    for (text, url, host, expected) in [
        (&text, "https://a.example:8443/a.txt", "b.example", &["200 OK"][..]),
        (
            &text,
            "https://a.example:8443/a.txt",
            "c.example",
            &[
                misdirected,
                "handshake     for a.example:8443 (the site a.example); the site c.example has another",
            ],
        ),
        (&text, "https://c.example:8443/a.txt", "a.example", &[misdirected, "needs a certificate"]),
        (&text, "https://d.example:8443/a.txt", "127.0.0.1", &[misdirected]),
        (&text, "https://127.0.0.1:8443/a.txt", "127.0.0.1:8443", &["200 OK"]),
        // No site has these: they are the default's.
        (&text, "https://x.example:8443/a.txt", "y.example", &["200 OK"]),
        (
            &text,
            "http://127.0.0.1:8743/",
            "c.example",
            &["308", "Location: https://c.example:8443/"],
        ),
        (
            &text,
            "http://a.example:8743/.well-known/acme-challenge/x",
            "a.example",
            &[of_others, "`https` does not redirect it", "200 OK"],
        ),
        (
            &acme,
            "http://e.example:8743/.well-known/acme-challenge/x",
            "e.example",
            &["while an authority asks for its token: not now", of_others, "200 OK"],
        ),
        (
            &acme,
            "https://e.example:8443/.well-known/acme-challenge/x",
            "e.example",
            &["authorities ask without TLS", of_others, "200 OK"],
        ),
    ] {
        fs::write(&path, text).unwrap();
        let field = format!("Host: {host}");
        let arguments = [url, "-H", &field, "--config", path.to_str().unwrap()];
        let (code, shown, error) = explain(&arguments);
        assert_eq!((code, &error[..]), (Some(0), ""), "{url}");
        for text in expected {
            assert!(shown.contains(text), "{url} {host}: no {text:?} in\n{shown}");
        }
        assert_eq!(shown.contains(misdirected), expected.contains(&misdirected), "{url}: {shown}");
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

/// The sites of [`an_explanation_has_what_the_server_sends`].
fn differing(dir: &Path, files: &Path, driver: &str) -> String {
    let (dir, root) = (dir.display(), files.display());
    format!(
        "[server]\nthreads = 1\ndriver = '{driver}'\ncontrol = '{dir}/control.sock'\n\
         trusted-proxies = ['127.0.0.1']\n\
         [[site]]\nlisten = ['127.0.0.1:0']\nhosts = ['test']\nhsts = 60\nserver-timing = true\n\
         log = {{ file = '{dir}/log', format = 'json' }}\nallow = ['192.0.2.0/24', '127.0.0.0/8']\n\
         errors = {{ 403 = '/pages/403.html', 404 = '/pages/404.html', 410 = '/pages/none.html', 500 = '/pages/404.html' }}\n\
         headers = [{{ set = {{ X-Site = '1', Cache-Control = 'max-age=9' }} }}, {{ match = '*.css', remove = ['Server'] }}, \
         {{ status = '4xx', set = {{ X-Failed = '1' }} }}]\n\
         [[site.route]]\npath = '/files/'\nfiles = '{root}'\nlisting = true\nserver-timing = false\n\
         headers = [{{ set = {{ X-Own = '1' }} }}]\n\
         [[site.route]]\npath = '/ssi/'\nfiles = '{root}'\nincludes = true\n\
         [[site.route]]\npath = '/clean/'\nfiles = '{root}'\nclean-urls = true\nfallback = '/files/page.html'\n\
         [[site.route]]\npath = '/pages/'\nfiles = '{root}/pages'\n\
         [[site.route]]\npath = '/open/'\nfiles = '{root}'\nallow = []\n\
         [[site.route]]\npath = '/gone'\nstatus = 410\n\
         [[site.route]]\npath = '/tea'\nstatus = {{ code = 418, text = 'tea' }}\n\
         [[site.route]]\npath = '/no'\nstatus = 405\n\
         [[site.route]]\npath = '/nothing'\nstatus = 204\n\
         [[site.route]]\npath = '/busy'\nstatus = 503\n\
         [[site.route]]\npath = '/old/'\nredirect = '/new/$0'\n\
         [[site.route]]\nmatch = '/loop*'\nredirect = '/$1loop'\n\
         [[site]]\nlisten = ['127.0.0.1:0']\nhosts = ['b.test']\nhttps = 'redirect'\nhsts = 60\nallow = ['192.0.2.0/24']\n\
         [[site.route]]\npath = '/files/'\nfiles = '{root}'\n\
         [[site.route]]\npath = '/open/'\nfiles = '{root}'\nallow = []\n"
    )
}

/// The status and the fields of an explained response.
fn explained_response(said: &str) -> (String, Vec<String>) {
    let mut lines = said.lines().skip_while(|line| !line.starts_with("response "));
    let status = lines.next().map_or("none", |line| &line[14..17]);
    let fields = lines.filter_map(|line| line.strip_prefix("              "));
    let fields = fields.filter(|line| !line.starts_with("with the page"));
    let fields = fields.filter_map(|line| line.split_once(": "));
    (status.to_owned(), fields.map(|(name, value)| normal(name, value)).collect())
}

/// A field without what differs from one response to the next.
fn normal(name: &str, value: &str) -> String {
    let is_of_time = ["Date", "Server-Timing"].contains(&name);
    let value = value.split("boundary=").next().unwrap_or_default();
    format!("{name}: {}", if is_of_time { "" } else { value })
}

#[test]
fn an_explanation_has_what_the_server_sends() {
    let files = site()
        .file("pages/404.html", "an error page")
        .file("pages/404.html.gz", "packed")
        .file("pages/403.html", "<!--#echo var=\"x\" -->")
        .file("plain.html", "no directives")
        .file("page.shtml", "<!--#echo var=\"DOCUMENT_URI\" -->")
        .file("included.html", "<!--#include virtual=\"/files/a.css\" -->")
        .file("list/x", "x")
        .file("empty", "")
        .file("big.bin", vec![b'x'; 300_000]);
    on_both_drivers(|driver| {
        let dir = Tree::new();
        let path = dir.path().join("samum.toml");
        fs::write(&path, differing(dir.path(), files.path(), driver)).unwrap();
        let mut command = Command::new(SAMUM);
        let server = Server::spawn(command.arg("serve").arg("--config").arg(&path)).unwrap();
        let control = dir.path().join("control.sock");
        let control = control.to_str().unwrap();
        let tls = "X-Forwarded-Proto: https";
        let denied = "X-Forwarded-For: 198.51.100.1";
        let mut wrong = Vec::new();
        let none: &[&str] = &[];
        for (url, fields) in [
            // Files.
            ("test/files/a.css", none),
            ("test/files/a.css", &["Accept-Encoding: gzip"]),
            ("test/files/empty", none),
            ("test/files/big.bin", none),
            ("test/files/a.css", &[tls]),
            ("test/files/a.css", &["If-None-Match: *"]),
            ("test/files/a.css", &["If-Match: \"x\""]),
            ("test/files/a.css", &["Range: bytes=1-2"]),
            ("test/files/a.css", &["Range: bytes=100-"]),
            ("test/files/a.css", &["Range: bytes=0-0,2-2"]),
            ("test/files/a.css", &["Range: bytes=0-0", "If-Range: \"x\""]),
            ("test/files/a.css", &["If-Modified-Since: Fri, 01 Jan 2100 00:00:00 GMT"]),
            ("test/files/a.css", &["If-Unmodified-Since: Thu, 01 Jan 1970 00:00:00 GMT"]),
            // Directories.
            ("test/files/list/", none),
            ("test/files/list/", &["Accept: application/json"]),
            ("test/files/list", none),
            ("test/files/d/", none),
            ("test/files", none),
            ("test/open/list/", none),
            // Pages with directives, and files that may have some.
            ("test/ssi/included.html", none),
            ("test/ssi/included.html", &["If-None-Match: *", "Range: bytes=0-1"]),
            ("test/ssi/page.shtml", none),
            ("test/ssi/plain.html", none),
            ("test/ssi/plain.html", &["If-None-Match: *"]),
            ("test/ssi/d/", none),
            // Clean URLs and fallbacks.
            ("test/clean/page", none),
            ("test/clean/page.html", none),
            ("test/clean/none", none),
            // Errors, with pages and without.
            ("test/files/none", none),
            ("test/files/none.css", none),
            ("test/files/none", &["Accept-Encoding: gzip"]),
            ("test/files/none", &["Range: bytes=0-1", "If-None-Match: *"]),
            ("test/files/.git", none),
            ("test/files/.git", &[denied]),
            ("test/files/out", none),
            ("test/ssi/none", none),
            ("test/none", none),
            ("test/none.css", &[tls]),
            ("test/", none),
            ("test/gone", none),
            ("test/tea", none),
            ("test/no", none),
            ("test/nothing", none),
            ("test/busy", none),
            ("test/a%00b", none),
            ("test/files/a%2Fb", none),
            // Refusals.
            ("test/files/a.css", &[denied]),
            ("test/files/a.css", &["X-Forwarded-For: 192.0.2.7"]),
            ("test/none", &[denied]),
            ("test/files", &[denied]),
            ("test/open", &[denied]),
            ("test/open/a.css", &[denied]),
            ("test/none", &["X-Forwarded-For: 192.0.2.1", "Forwarded: for=192.0.2.2"]),
            // Redirects.
            ("test/old/a?b", none),
            ("test/looploop", none),
            ("b.test/files/a?b", none),
            ("b.test/files/a?b", &["X-Forwarded-For: 192.0.2.1"]),
            ("b.test/open/", &[denied]),
            ("b.test/none", &[denied]),
            ("b.test/files/none", &[tls, "X-Forwarded-For: 192.0.2.1"]),
            ("b.test/files/a.css", &[tls, denied]),
        ] {
            let url = format!("http://{url}");
            let mut arguments = vec![&url[..], "--control", control, "--from", "127.0.0.1"];
            for field in fields {
                arguments.extend(["-H", field]);
            }
            let (code, said, error) = explain(&arguments);
            assert_eq!((code, &error[..]), (Some(0), ""), "{url}");
            let (status, expected) = explained_response(&said);
            let (host, target) = url["http://".len()..].split_once('/').unwrap();
            // A range is for GET alone (RFC 9110 §14.2).
            let has_range = fields.iter().any(|field| field.starts_with("Range"));
            let methods: &[&str] = if has_range { &["GET"] } else { &["GET", "HEAD"] };
            for method in methods {
                let all: String = fields.iter().map(|field| format!("\n{field}")).collect();
                let response = ask(&server, &format!("{method} /{target}\nHost: {host}{all}"));
                let sent = response.headers.iter().map(|(name, value)| normal(name, value));
                let sent: Vec<_> = sent.collect();
                if (response.status.to_string(), &sent) != (status.clone(), &expected) {
                    wrong.push(format!(
                        "{method} {url} {fields:?}\n  explained {status} {expected:?}\n  sent      {} {sent:?}",
                        response.status
                    ));
                }
            }
        }
        assert!(wrong.is_empty(), "{driver}:\n{}", wrong.join("\n"));
    });
}
