//! Heads of requests and responses, and lists of ranges, as long as the configuration lets them be.

use core::fmt::Write as _;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;
use std::thread;

use testkit::{Server, Tree};

use crate::common::{SAMUM, ask, on_both_drivers, text};

/// A server with these keys of `[server]` and these routes; `DIR` stands for the directory of the files.
fn serve_config(driver: &str, tree: &Tree, keys: &str, routes: &str) -> Server {
    let config = format!(
        "[server]\nthreads = 1\ndriver = '{driver}'\n{keys}\n\
         [[site]]\nlisten = ['127.0.0.1:0']\n{routes}"
    );
    tree.write("samum.toml", config.replace("DIR", text(tree.path())).into_bytes());
    let mut command = Command::new(SAMUM);
    command.args(["serve", "--config"]).arg(tree.path().join("samum.toml"));
    Server::spawn(&mut command).expect("the server starts")
}

/// Another server, which answers each request on a connection of its own with the head that it gets, and with this many
/// bytes of cookies; its port.
fn echo(cookies: usize) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for socket in listener.incoming() {
            let mut socket = socket.unwrap();
            thread::spawn(move || {
                let (mut head, mut part) = (Vec::new(), [0; 65536]);
                while !head.ends_with(b"\r\n\r\n") {
                    let Ok(count @ 1..) = socket.read(&mut part) else { return };
                    head.extend_from_slice(&part[..count]);
                }
                let mut answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n", head.len());
                for number in 0..cookies.div_ceil(4096) {
                    let value = "c".repeat(4096 - "Set-Cookie: 00=\r\n".len());
                    write!(answer, "Set-Cookie: {number:02}={value}\r\n").unwrap();
                }
                let answer = [answer.as_bytes(), b"Connection: close\r\n\r\n", &head].concat();
                let _ = socket.write_all(&answer);
            });
        }
    });
    port
}

#[test]
fn a_request_may_have_as_long_a_head_as_the_configuration_says() {
    let tree = Tree::new().file("a.txt", "a file");
    let routes = format!(
        "[[site.route]]\nfiles = 'DIR'\n\
         [[site.route]]\npath = '/proxy/'\nproxy = 'http://127.0.0.1:{}'\n",
        echo(0)
    );
    on_both_drivers(|driver| {
        let server = serve_config(
            driver,
            &tree,
            "max-request-head = '128KiB'\nmax-request-fields = 200",
            &routes,
        );
        let cookies = |bytes| format!("Cookie: {}", "c".repeat(bytes));
        let fields = |count| "\nX-A: b".repeat(count);
        for (head, status) in [
            (format!("GET /a.txt\n{}", cookies(64 * 1024)), 200),
            (format!("GET /a.txt\n{}\nIf-None-Match: *", cookies(120 * 1024)), 304),
            (format!("GET /a.txt\n{}", cookies(128 * 1024)), 431),
            (format!("GET /a.txt?{}", "q".repeat(63 * 1024)), 200),
            (format!("GET /a.txt?{}", "q".repeat(64 * 1024)), 414),
            (format!("GET /a.txt{}", fields(198)), 200),
            (format!("GET /a.txt{}", fields(201)), 431),
        ] {
            let response = ask(&server, &head);
            assert_eq!(response.status, status, "{}", &head[..60.min(head.len())]);
        }
        let long = format!("GET /proxy/\n{}", cookies(100 * 1024));
        let response = ask(&server, &long);
        assert_eq!(response.status, 200);
        assert!(text_of(&response.body).contains(&cookies(100 * 1024)), "it is passed on");
        // Without the keys.
        let server = serve_config(driver, &tree, "", &routes);
        assert_eq!(ask(&server, &format!("GET /a.txt\n{}", cookies(15 * 1024))).status, 200);
        assert_eq!(ask(&server, &format!("GET /a.txt\n{}", cookies(16 * 1024))).status, 431);
        assert_eq!(ask(&server, &format!("GET /{}", "a".repeat(8 * 1024))).status, 414);
        assert_eq!(ask(&server, &format!("GET /a.txt{}", fields(101))).status, 431);
    });
}

fn text_of(bytes: &[u8]) -> &str {
    core::str::from_utf8(bytes).unwrap()
}

#[test]
fn a_response_may_have_as_long_a_head_as_the_configuration_says() {
    let tree = Tree::new();
    let program = "#!/bin/sh\nprintf 'Content-Type: text/plain\\n'\nn=0\n\
        while [ $n -lt ${QUERY_STRING:-1} ]; do printf 'X-A%d: %01000d\\n' $n 0; n=$((n + 1)); done\n\
        printf '\\nok'\n";
    tree.write("cgi/run", program);
    fs::set_permissions(tree.path().join("cgi/run"), fs::Permissions::from_mode(0o755)).unwrap();
    let routes = format!(
        "[[site.route]]\nproxy = 'http://127.0.0.1:{}'\nretries = 0\n\
         [[site.route]]\npath = '/run/'\ncgi = 'DIR/cgi'\n",
        echo(64 * 1024)
    );
    on_both_drivers(|driver| {
        let server = serve_config(driver, &tree, "max-response-head = '80KiB'", &routes);
        let response = ask(&server, "GET /");
        assert_eq!(response.status, 200, "{:?}", server.stderr());
        let response = ask(&server, "GET /run/run?70");
        assert_eq!((response.status, &response.body[..]), (200, &b"ok"[..]));
        assert_eq!(ask(&server, "GET /run/run?90").status, 502);
        let server = serve_config(driver, &tree, "max-response-fields = 10", &routes);
        assert_eq!(ask(&server, "GET /").status, 502);
        assert_eq!(ask(&server, "GET /run/run?9").status, 200);
        assert_eq!(ask(&server, "GET /run/run?10").status, 502);
        let server = serve_config(driver, &tree, "", &routes);
        assert_eq!(ask(&server, "GET /run/run?25").status, 200);
        assert_eq!(ask(&server, "GET /run/run?40").status, 502);
    });
}

#[test]
fn many_ranges_cost_no_more_than_the_file_and_a_head_for_each() {
    let file: Vec<u8> = (0..1_000_000_u32).flat_map(u32::to_le_bytes).collect();
    let tree = Tree::new().file("a.bin", file.clone());
    let routes = "[[site.route]]\nfiles = 'DIR'\n";
    let list = |count: usize, step: usize, len: usize| {
        let all: Vec<_> =
            (0..count).map(|at| format!("{}-{}", at * step, at * step + len - 1)).collect();
        format!("GET /a.bin\nRange: bytes={}", all.join(","))
    };
    on_both_drivers(|driver| {
        let server = serve_config(driver, &tree, "", routes);
        // As zchunk asks.
        let response = ask(&server, &list(255, 10_000, 5_000));
        assert_eq!(response.status, 206);
        let kind = response.header("Content-Type").unwrap().to_owned();
        let boundary = kind.split_once("boundary=").expect("several parts").1;
        let parts = parts_of(&response.body, boundary);
        assert_eq!(parts.len(), 255);
        for (at, part) in parts.iter().enumerate() {
            assert!(*part == &file[at * 10_000..at * 10_000 + 5_000], "part {at}");
        }
        // Overlapping ones are one, and tiny ones that are near.
        let response = ask(&server, &list(256, 1, 4_000_000));
        assert_eq!((response.status, response.body.len()), (206, file.len()));
        let response = ask(&server, &list(256, 50, 1));
        assert_eq!((response.status, response.body.len()), (206, 255 * 50 + 1));
        assert_eq!(ask(&server, &list(257, 10_000, 1)).status, 200);
        let server = serve_config(driver, &tree, "max-ranges = 2", routes);
        assert_eq!(ask(&server, &list(2, 10_000, 1)).status, 206);
        assert_eq!(ask(&server, &list(3, 10_000, 1)).status, 200);
    });
}

/// The contents of the parts of a multipart body.
fn parts_of<'a>(body: &'a [u8], boundary: &str) -> Vec<&'a [u8]> {
    let delimiter = format!("--{boundary}");
    let find = |bytes: &[u8], what: &[u8]| bytes.windows(what.len()).position(|part| part == what);
    let (mut parts, mut rest) = (Vec::new(), body);
    while let Some(at) = find(rest, delimiter.as_bytes()) {
        rest = &rest[at + delimiter.len()..];
        if rest.starts_with(b"--") {
            break;
        }
        let start = find(rest, b"\r\n\r\n").expect("a head") + 4;
        let end = find(rest, format!("\r\n{delimiter}").as_bytes()).expect("an end");
        parts.push(&rest[start..end]);
        rest = &rest[end + 2..];
    }
    parts
}
