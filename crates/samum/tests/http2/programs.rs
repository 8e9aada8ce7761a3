//! Programs of others as clients: curl, h2load, nghttp, Chromium, h2spec; clients in Go, for Node.js and in Python.

use core::time::Duration;
use std::path::PathBuf;
use std::process::Command;

use testkit::http2::Http2;
use testkit::{Content, Op, Server, SlowFs, Tree, or_skip, skip, tether};

use super::Certified;
use crate::common::browser::Browser;
use crate::common::stage::script;
use crate::common::{on_both_drivers, serve, serve_config, tcp_address};

/// Cases of h2spec that fail at good servers. The first is about a port that HTTP/1 shares: a preface that is none gets
/// the answer 400.
const KNOWN: [&str; 1] = ["Sends invalid connection preface"];
/// The cases of h2spec that pass in each run, of 145.
const PASSED_MIN: usize = 142;
const RUNS: usize = 3;

fn tree() -> Tree {
    Tree::new()
        .file("1k", Content::pseudo_random(1, 1024))
        .file("64k", Content::pseudo_random(2, 65_536))
        .file("1m", Content::pseudo_random(3, 1 << 20))
}

/// Runs a program, and returns what it says; `None` if it is not installed.
fn run(program: &str, arguments: &[&str]) -> Option<(bool, String)> {
    match Command::new(program).args(arguments).output() {
        Ok(output) => {
            let text = [output.stdout, output.stderr].concat();
            Some((output.status.success(), String::from_utf8_lossy(&text).into_owned()))
        }
        Err(_) => {
            eprintln!("skipped: {program} is not installed");
            None
        }
    }
}

/// Runs a test with a server without TLS and one with it; the URL has no slash at its end.
fn with_both(test: impl Fn(&str, &Server)) {
    let (tree, certified) = (tree(), Certified::new());
    on_both_drivers(|driver| {
        let plain = serve(driver, tree.path(), &[]);
        test(&format!("http://{}", tcp_address(&plain)), &plain);
        let secure = serve(driver, tree.path(), &["--tls", &certified.files]);
        test(&format!("https://{}", tcp_address(&secure)), &secure);
    });
}

#[test]
fn curl_gets_files_by_http2() {
    with_both(|url, _| {
        let version = if url.starts_with("https") { "--http2" } else { "--http2-prior-knowledge" };
        for (path, status, length) in [
            ("/1k", 200, 1024),
            ("/64k", 200, 65_536),
            ("/1m", 200, 1 << 20),
            ("/none", 404, usize::MAX),
        ] {
            let url = format!("{url}{path}");
            let format = "%{http_version} %{http_code} %{size_download}";
            let arguments = ["-sk", version, "-o", "/dev/null", "-w", format, &url];
            let Some((_, said)) = run("curl", &arguments) else { return };
            let said: Vec<_> = said.split(' ').collect();
            assert_eq!(said[..2], ["2", &status.to_string()], "{url}: {said:?}");
            assert!(length == usize::MAX || said[2] == length.to_string(), "{url}: {said:?}");
        }
    });
}

/// curl 7.88 drops a response whose reset it reads together with it, and says that the status is 0.
#[test]
fn curl_gets_answers_that_come_before_the_end_of_its_body() {
    let certified = Certified::new();
    let (certificate, key) = certified.files.split_once(',').unwrap();
    let lengths = [10_000, 100_000, 3_000_000];
    let mut tree = Tree::new().directory("cgi").file("php/a.php", "<?php");
    for length in lengths {
        tree = tree.file(length.to_string(), Content::pseudo_random(1, length));
    }
    script(&tree, "cat", "printf 'Content-Type: a/b\\n\\n'; exec cat");
    let root = tree.path().display();
    on_both_drivers(|driver| {
        for is_secure in [false, true] {
            let tls = if is_secure {
                format!("tls = {{ certificate = '{certificate}', key = '{key}' }}\n")
            } else {
                String::new()
            };
            let config = format!(
                "[server]\nthreads = 1\ndriver = '{driver}'\n[[site]]\n\
                 listen = [{{ address = '127.0.0.1:0', tls = {is_secure} }}]\n{tls}\
                 [[site.route]]\nstatus = {{ code = 200, text = 'a' }}\n\
                 [[site.route]]\npath = '/short/'\ncgi = '{root}/cgi'\nmax-body = 1000\n\
                 [[site.route]]\npath = '/none/'\nproxy = 'http://127.0.0.1:1'\nmax-body = 9000000\n\
                 [[site.route]]\npath = '/php/'\nfiles = '{root}/php'\n\
                 fastcgi = 'unix:{root}/none'\nmax-body = 1000\n"
            );
            let server = serve_config(&tree, &config);
            let scheme = if is_secure { "https" } else { "http" };
            let version = if is_secure { "--http2" } else { "--http2-prior-knowledge" };
            for (path, status) in
                [("/a", "200"), ("/short/cat", "413"), ("/none/a", "502"), ("/php/a.php", "413")]
            {
                for length in lengths {
                    let url = format!("{scheme}://{}{path}", tcp_address(&server));
                    let body = format!("@{root}/{length}");
                    let arguments = [
                        ["-sk", version, "-o", "/dev/null", "-w", "%{http_version} %{http_code}"],
                        ["-m", "20", "-H", "Expect:", "--data-binary", &body],
                    ];
                    let arguments = [&arguments.concat()[..], &[&url]].concat();
                    let Some((_, said)) = run("curl", &arguments) else { return };
                    assert_eq!(said, format!("2 {status}"), "{url}: {length} bytes");
                }
            }
        }
    });
}

#[test]
fn h2load_and_nghttp_get_whole_files() {
    with_both(|url, _| {
        for (path, streams, count) in
            [("/1k", "1", "500"), ("/1k", "100", "5000"), ("/1m", "10", "100")]
        {
            let url = format!("{url}{path}");
            let arguments = ["-t1", "-c4", "-m", streams, "-n", count, &url];
            let Some((is_ok, said)) = run("h2load", &arguments) else { return };
            let all = format!("{count} succeeded, 0 failed");
            assert!(is_ok && said.contains(&all), "{url}: {said}");
        }
        let url = format!("{url}/64k");
        if let Some((is_ok, said)) = run("nghttp", &["-ns", &url]) {
            assert!(is_ok && said.contains(" 200 "), "{url}: {said}");
        }
    });
}

/// A page of 300 files, 30 of which are on a disk that sleeps until it is woken.
#[test]
fn a_browser_gets_the_hot_files_of_a_page_while_the_disk_sleeps() {
    const FILES: usize = 300;
    const COLD: usize = 30;
    let certified = Certified::new();
    on_both_drivers(|driver| {
        let mut browser = match Browser::with(&["--ignore-certificate-errors"]) {
            Ok(browser) => browser,
            Err(reason) => skip!("{reason}"),
        };
        let page = format!(
            "<!DOCTYPE html><title>t</title><script>
             window.hot = 0; window.cold = 0; window.wrong = 0;
             for (let n = 0; n < {FILES}; n++)
               fetch('/' + n).then(r => r.arrayBuffer()).then(b => {{
                 if (b.byteLength != 40000) window.wrong++;
                 if (n % 10) window.hot++; else window.cold++;
               }}).catch(() => window.wrong++);
             </script>"
        );
        let mut builder = SlowFs::builder().file("index.html", page.as_str());
        for number in 0..FILES {
            builder = builder.file(number.to_string(), Content::pseudo_random(1, 40_000));
        }
        let slow = or_skip!(builder.cache_attributes(Duration::from_secs(60)).keep_data().mount());
        let server = serve(driver, slow.path(), &["--tls", &certified.files]);
        let mut client = Http2::new(certified.connect(&server), &[]).unwrap();
        for number in (0..FILES).filter(|number| number % 10 != 0).flat_map(|number| [number; 2]) {
            assert_eq!(client.ask(&format!("/{number}")).unwrap().body.len(), 40_000);
        }
        for number in (0..FILES).step_by(10) {
            slow.set_delay_of(number.to_string(), Op::Read, Duration::MAX);
        }
        browser.load(&format!("https://{}/", tcp_address(&server)));
        browser.wait_for(&format!("window.hot == {}", FILES - COLD));
        assert_eq!(browser.value("window.cold"), 0);
        for number in (0..FILES).step_by(10) {
            slow.set_delay_of(number.to_string(), Op::Read, Duration::ZERO);
        }
        browser.wait_for(&format!("window.cold == {COLD}"));
        assert_eq!(browser.value("window.wrong"), 0);
        let protocols = "[...new Set(performance.getEntriesByType('resource')\
                         .map(entry => entry.nextHopProtocol))].join()";
        assert_eq!(browser.value(protocols), "h2");
    });
}

/// The program, if it is somewhere that `go install` puts it.
fn h2spec() -> Option<PathBuf> {
    let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join("go/bin/h2spec"));
    let named = std::env::var_os("H2SPEC").map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let of_path = std::env::split_paths(&path).map(|dir| dir.join("h2spec"));
    named.into_iter().chain(home).chain(of_path).find(|file| file.is_file())
}

#[test]
fn h2spec_finds_no_fault() {
    let Some(program) = h2spec() else {
        eprintln!("skipped: h2spec is not installed");
        return;
    };
    with_both(|url, server| {
        let port = tcp_address(server).port().to_string();
        let mut failed_always: Option<Vec<String>> = None;
        for _ in 0..RUNS {
            // A file that no window holds: its stream is open when a faulty frame comes.
            let mut arguments = vec!["-h", "127.0.0.1", "-p", &port, "-P", "/1m", "-o", "2"];
            if url.starts_with("https") {
                arguments.extend(["-t", "-k"]);
            }
            let said = Command::new(&program).args(arguments).output().expect("it runs");
            let said = String::from_utf8_lossy(&said.stdout).into_owned();
            let tests = said.split("Failures:").next().unwrap_or_default();
            let passed = tests.matches('✔').count();
            let failed: Vec<String> = tests
                .lines()
                .filter_map(|line| line.split_once('×'))
                .map(|(_, name)| name.trim().to_owned())
                .filter(|name| !KNOWN.iter().any(|known| name.contains(known)))
                .collect();
            assert!(passed >= PASSED_MIN, "{passed} passed: {said}");
            failed_always = Some(match failed_always {
                None => failed,
                Some(before) => before.into_iter().filter(|it| failed.contains(it)).collect(),
            });
            if failed_always.as_ref().is_some_and(Vec::is_empty) {
                break;
            }
        }
        assert_eq!(failed_always, Some(Vec::new()), "{url}");
    });
}

/// A script of `clients`.
fn client(name: &str) -> String {
    format!("{}/tests/http2/clients/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// Lets a client that others wrote get many files at the same time, upload, cancel, and get long files; plain and over
/// TLS.
fn serve_client(command: impl Fn() -> Command) {
    let certified = Certified::new();
    let mut tree = Tree::new().directory("cgi").directory("trust");
    for number in 0..300 {
        tree = tree.file(format!("www/{number}"), Content::pseudo_random(number, 30_000));
    }
    let tree = tree.file("www/long", Content::pseudo_random(1, 20_000_000));
    script(&tree, "sum", "printf 'Content-Type: a/b\\n\\n'; exec md5sum");
    let trusted = tree.path().join("trust/ca.pem");
    std::fs::write(&trusted, certified.authority.pem()).unwrap();
    let root = tree.path().display().to_string();
    let (certificate, key) = certified.files.split_once(',').unwrap();
    on_both_drivers(|driver| {
        for is_secure in [false, true] {
            let tls = format!("tls = {{ certificate = '{certificate}', key = '{key}' }}\n");
            let server = serve_config(
                &tree,
                &format!(
                    "[server]\nthreads = 1\ndriver = '{driver}'\n\
                     [[site]]\nlisten = [{{ address = '127.0.0.1:0', tls = {is_secure} }}]\n{}\
                     [[site.route]]\npath = '/files/'\nfiles = '{root}/www'\n\
                     [[site.route]]\npath = '/tool/'\ncgi = '{root}/cgi'\nmax-body = 10000000\n",
                    if is_secure { &tls } else { "" }
                ),
            );
            let mut command = command();
            let scheme = if is_secure { "https" } else { "http" };
            command.arg(format!("{scheme}://{}", tcp_address(&server)));
            if is_secure {
                command.arg(&trusted);
            }
            let output = tether(&mut command).output().expect("it was there");
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{scheme}: {said} {:?}", server.stderr());
        }
    });
}

/// Go's compiler, if it is somewhere where its installation puts it.
fn go() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let of_path = std::env::split_paths(&path).map(|dir| dir.join("go"));
    of_path.chain([PathBuf::from("/usr/local/go/bin/go")]).find(|file| file.is_file())
}

#[test]
fn gos_client_gets_files_uploads_and_cancels() {
    let Some(go) = go() else { skip!("Go is not installed") };
    let built = Tree::new();
    let program = built.path().join("client");
    let build =
        Command::new(go).arg("build").arg("-o").arg(&program).arg(client("client.go")).output();
    let build = build.expect("it runs");
    let said = String::from_utf8_lossy(&build.stderr);
    if said.contains("Protocols") || said.contains("all.Go") {
        skip!("this Go is too old");
    }
    assert!(build.status.success(), "{said}");
    serve_client(|| Command::new(&program));
}

#[test]
fn nodes_client_gets_files_uploads_and_cancels() {
    if Command::new("node").arg("--version").output().is_err() {
        skip!("Node.js is not installed");
    }
    serve_client(|| {
        let mut command = Command::new("node");
        command.arg(client("client.js"));
        command
    });
}

#[test]
fn pythons_client_gets_files_uploads_and_cancels() {
    // Debian's Python, which has Debian's libraries.
    const PYTHON: &str = "/usr/bin/python3";
    let has_h2 = Command::new(PYTHON).args(["-c", "import h2"]).output();
    if !has_h2.is_ok_and(|output| output.status.success()) {
        skip!("Python's library h2 is not installed");
    }
    serve_client(|| {
        let mut command = Command::new(PYTHON);
        command.arg(client("client.py"));
        command
    });
}
