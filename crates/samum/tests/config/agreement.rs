//! What `samum explain` says, compared with what the server does, for many generated configurations and requests.
//!
//! `SAMUM_SEEDS=1000` tries that many configurations instead of a few, `SAMUM_SEEDS=50..100` those from 50.

use core::fmt::Write as _;
use core::net::Ipv4Addr;
use core::ops::Range;
use core::time::Duration;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use samum::explain::{Question, explain_file};
use testkit::{Address, Client, Random, Response, Seed, Server, Tree};

use crate::common::{SAMUM, SOON};
use crate::tls::Authority;

const HOSTS: [&str; 3] = ["a.test", "b.test", "c.test"];
/// The requests of a configuration.
const REQUESTS: usize = 120;

fn seeds() -> Range<u64> {
    let Ok(text) = std::env::var("SAMUM_SEEDS") else { return 0..12 };
    let number = |text: &str| text.parse().expect("SAMUM_SEEDS is a number or a range");
    match text.split_once("..") {
        Some((start, end)) => number(start)..number(end),
        None => 0..number(&text),
    }
}

fn one<'a>(random: &mut Random, all: &[&'a str]) -> &'a str {
    all[random.below(all.len())]
}

fn files() -> Tree {
    let tree = Tree::new()
        .file("www/index.html", "index")
        .file("www/a.css", "body {}")
        .file("www/a.css.gz", "packed")
        .file("www/page.html", "a page")
        .file("www/in.shtml", "<!--#echo var=\"DOCUMENT_URI\" -->")
        .file("www/script.php", "source")
        .file("www/.hidden", "h")
        .file("www/.well-known/x", "x")
        .file("www/d/index.html", "d")
        .file("www/d/d/a.css", "deep")
        .file("www/e/x", "no index")
        .file("www/errors/404.html", "none")
        .symlink("www/out", "/etc/passwd")
        .symlink("www/circle", "circle")
        .file("cgi/run", "#!/bin/sh\nprintf 'Content-Type: text/plain\\nX-Program: 1\\n\\nran'\n")
        .file("cgi/plain", "not executable")
        .file("cgi/.hidden", "#!/bin/sh\n")
        .file("cgi/d/run", "#!/bin/sh\nprintf 'X-Program: 1\\n\\n'\n")
        .symlink("cgi/out", "/bin/true")
        .symlink("cgi/circle", "circle")
        .file("redirects", "/old /new\n/gone /page\n");
    for program in ["cgi/run", "cgi/.hidden", "cgi/d/run"] {
        fs::set_permissions(tree.path().join(program), Permissions::from_mode(0o755)).unwrap();
    }
    tree
}

/// A route, and the number by which its responses are known.
fn route(random: &mut Random, number: usize, dir: &Path) -> String {
    let root = dir.display();
    let mut text = String::from("[[site.route]]\n");
    let path = one(random, &["/", "/", "/a/", "/a/d/", "/d/", "/d", "/page", "/ x/", "/a.css"]);
    let _ = writeln!(text, "path = '{path}'");
    if random.one_in(4) {
        let pattern = one(random, &["*.css", "*.php", "*", "/a/*", "*/d/*"]);
        let _ = writeln!(text, "match = '{pattern}'");
    }
    let files = |random: &mut Random| {
        let mut text = format!("files = '{root}/www'\n");
        for rule in [
            "clean-urls = true",
            "dotfiles = true",
            "listing = true",
            "includes = true",
            "symlinks = 'follow'",
            "fallback = '/assets/page.html'",
            "fallback = '/assets/e/'",
        ] {
            if random.one_in(5) && !(rule.starts_with("fallback") && text.contains("fallback")) {
                let _ = writeln!(text, "{rule}");
            }
        }
        text
    };
    let action = match random.below(12) {
        0..4 => files(random),
        4 => format!(
            "redirect = '{}'\n",
            one(random, &["/new/$0", "/a/$0", "https://x.test/", "/d/"])
        ),
        5 => format!("status = {}\n", one(random, &["404", "403", "204", "405", "503", "418"])),
        6 => format!("cgi = '{root}/cgi'\n"),
        7 => "proxy = 'http://127.0.0.1:9'\n".to_owned(),
        8 => "fastcgi = { server = '127.0.0.1:9', root = '/srv' }\n".to_owned(),
        9 => format!("{}fastcgi = '127.0.0.1:9'\n", files(random)),
        10 => one(random, &["metrics = true\n", "status-page = true\nallow = ['127.0.0.1']\n"])
            .to_owned(),
        _ => format!("redirects = '{root}/redirects'\n"),
    };
    text += &action;
    if random.one_in(4) && !action.contains("allow") {
        text += one(
            random,
            &[
                "allow = []\n",
                "allow = ['192.0.2.0/24']\n",
                "deny = ['192.0.2.7']\n",
                "deny = ['unix']\n",
            ],
        );
    }
    if random.one_in(8) {
        text += "internal = true\n";
    }
    if random.one_in(3) && ["cgi", "proxy", "fastcgi"].iter().any(|it| action.contains(it)) {
        text += "max-body = 10\n";
    }
    if random.one_in(6) {
        text += "limits = { requests-per-ip = '100000/s burst 100000', bytes-per-connection = '100MB/s' }\n";
    }
    let _ = writeln!(text, "headers = [{{ set = {{ X-Route = 'r{number}' }} }}]");
    text
}

/// A configuration; the number is that of its sites.
fn config(random: &mut Random, dir: &Path) -> String {
    let has_tls = random.one_in(2);
    let mut text =
        "[server]\nthreads = 1\ndriver = 'epoll'\ntrusted-proxies = ['127.0.0.1']\n".to_owned();
    if random.one_in(6) {
        text += "max-request-head = '1KiB'\n";
    }
    let listen = match has_tls {
        true => "['127.0.0.1:0', { address = '127.0.0.2:0', tls = true }]",
        false => "['127.0.0.1:0']",
    };
    let mut number = 0;
    for (site, host) in HOSTS.iter().take(1 + random.below(3_usize)).enumerate() {
        let _ = writeln!(text, "[[site]]\nlisten = {listen}\nhosts = ['{host}']");
        if has_tls {
            let certificate = one(random, &["a", "b"]);
            let _ = writeln!(
                text,
                "tls = {{ certificate = '{certificate}.pem', key = '{certificate}.key' }}"
            );
        }
        if random.one_in(4) {
            text += "https = 'redirect'\n";
        }
        if random.one_in(3) {
            text += "errors = { 404 = '/assets/errors/404.html', 403 = '/assets/page.html' }\n";
        }
        if random.one_in(5) {
            text += "allow = ['192.0.2.0/24', '127.0.0.1']\n";
        }
        if random.one_in(5) {
            text += "headers = [{ match = '*.css', set = { X-Css = '1' } }]\n";
        }
        let _ = writeln!(text, "hsts = {}", site + 1);
        let internal = if random.one_in(2) { "internal = true\n" } else { "" };
        let root = dir.display();
        let _ = writeln!(
            text,
            "[[site.route]]\npath = '/assets/'\nfiles = '{root}/www'\n{internal}\
             headers = [{{ set = {{ X-Route = 'assets' }} }}]"
        );
        for _ in 0..1 + random.below(5_usize) {
            text += &route(random, number, dir);
            number += 1;
        }
    }
    text
}

#[derive(Debug)]
struct Asked {
    is_tls: bool,
    method: &'static str,
    /// The host of the handshake.
    shown: &'static str,
    host: &'static str,
    target: String,
    fields: Vec<String>,
    body: usize,
}

fn request(random: &mut Random, has_tls: bool) -> Asked {
    let methods =
        ["GET", "GET", "GET", "HEAD", "POST", "PUT", "OPTIONS", "TRACE", "DELETE", "BREW"];
    let method = one(random, &methods);
    let mut target = String::new();
    for _ in 0..random.below(5) {
        target.push_str(one(random, &["/", "/", "/", "/", "//", "/./", "/x/../", "%2F"]));
        target.push_str(one(
            random,
            &[
                "a",
                "d",
                "e",
                "run",
                "plain",
                "page",
                "page.html",
                "a.css",
                "index.html",
                "script.php",
                "script.php/info",
                "in.shtml",
                ".hidden",
                ".well-known",
                "x",
                "out",
                "circle",
                "%61.css",
                "old",
                "..",
                "%2e%2e",
                "a%2Fd",
                "none",
                "a%00",
                "%zz",
                "%20x",
                "d/d",
            ],
        ));
    }
    if !target.starts_with('/') {
        target.insert(0, '/');
    }
    if random.one_in(3) {
        target.push('/');
    }
    if random.one_in(4) {
        target.push_str("?q=1");
    }
    if random.one_in(30) {
        target.push_str(&"x".repeat(700));
    }
    let mut fields = Vec::new();
    if random.one_in(3) {
        let client = one(random, &["192.0.2.7", "192.0.2.8", "198.51.100.1", "unknown"]);
        fields.push(format!("X-Forwarded-For: {client}"));
    }
    if random.one_in(4) {
        fields.push(format!("X-Forwarded-Proto: {}", one(random, &["https", "http"])));
    }
    if random.one_in(12) {
        fields.push("Forwarded: for=198.51.100.1".to_owned());
    }
    if random.one_in(4) {
        fields.push(
            one(
                random,
                &[
                    "Range: bytes=1-2",
                    "Range: bytes=900-",
                    "If-None-Match: *",
                    "If-Match: \"x\"",
                    "Accept-Encoding: gzip",
                    "Accept: application/json",
                    "Content_Length: 1",
                    "Max-Forwards: 0",
                ],
            )
            .to_owned(),
        );
    }
    let mut body = 0;
    if random.one_in(if method == "POST" { 2 } else { 10 }) {
        body = [1, 10, 11, 5000][random.below(4)];
        fields.push(format!("Content-Length: {body}"));
    }
    let shown = HOSTS[random.below(3)];
    let host = if random.one_in(2) {
        shown
    } else {
        one(random, &["a.test", "b.test", "c.test", "d.test"])
    };
    Asked { is_tls: has_tls && random.one_in(2), method, shown, host, target, fields, body }
}

/// What was explained: the status, or none if a gateway would answer, and the route.
fn explained(file: &Path, asked: &Asked) -> (Option<u16>, Option<String>, String) {
    let scheme = if asked.is_tls { "https" } else { "http" };
    let url = format!("{scheme}://{}{}", asked.shown, asked.target);
    let mut fields = asked.fields.clone();
    fields.push(format!("Host: {}", asked.host));
    let question = Question::new(asked.method, &url, Some("127.0.0.1".parse().unwrap()), &fields);
    let said = question
        .and_then(|question| explain_file(file, &question).map_err(|why| format!("{why:?}")));
    let said = match said {
        Ok(said) => said,
        Err(why) => {
            let at =
                why.find("the request is refused: ").unwrap_or_else(|| panic!("{asked:?}: {why}"));
            let status = &why[at + "the request is refused: ".len()..][..3];
            return (Some(status.parse().unwrap()), None, why);
        }
    };
    let status = said.lines().find_map(|line| line.strip_prefix("response      "));
    let route = said.lines().find_map(|line| line.trim_start().strip_prefix("X-Route: "));
    (status.map(|status| status[..3].parse().unwrap()), route.map(str::to_owned), said)
}

/// What the server answers.
fn answered(authority: &Authority, server: &Server, asked: &Asked) -> Response {
    let mut text =
        format!("{} {} HTTP/1.1\r\nHost: {}\r\n", asked.method, asked.target, asked.host);
    asked.fields.iter().for_each(|field| text.push_str(&format!("{field}\r\n")));
    text.push_str("Connection: close\r\n\r\n");
    text.push_str(&"x".repeat(asked.body));
    let ip = if asked.is_tls { Ipv4Addr::new(127, 0, 0, 2) } else { Ipv4Addr::LOCALHOST };
    let all = server.addresses();
    let address = all.iter().find(|one| matches!(one, Address::Tcp(it) if it.ip() == ip));
    let address = address.unwrap_or_else(|| panic!("{all:?}"));
    let is_head = asked.method == "HEAD";
    if asked.is_tls {
        let Address::Tcp(address) = address else { panic!("{address:?}") };
        let mut client = authority.connect(*address, asked.shown).unwrap();
        let bytes = client.ask(&text).unwrap();
        let parsed =
            Response::parse(&bytes, is_head, true).unwrap_or_else(|why| panic!("{asked:?}: {why}"));
        return parsed.expect("a response").0;
    }
    let mut client = Client::connect(address).unwrap();
    client.send(&text).unwrap();
    let response = if is_head { client.head() } else { client.response() };
    response.unwrap_or_else(|why| panic!("{asked:?}: {why}"))
}

#[test]
fn an_explanation_agrees_with_the_server_whatever_is_configured_and_asked() {
    let authority = Authority::new();
    let mut wrong = Vec::new();
    for seed in seeds() {
        let failing = Seed::new(seed);
        let mut random = Random::new(seed);
        let tree = files();
        for name in ["a", "b"] {
            authority.issue(&HOSTS).put(&tree, name);
        }
        let file = tree.path().join("samum.toml");
        let mut text = String::new();
        // Some are refused, such as two routes with the same path.
        for _ in 0..50 {
            text = config(&mut random, tree.path());
            fs::write(&file, &text).unwrap();
            match samum::check::check(&file) {
                Ok(_) => break,
                Err(why) => {
                    eprintln!("seed {seed}: {:?}", why.0.first().map(|message| &message.line))
                }
            }
        }
        let mut command = Command::new(SAMUM);
        let server = Server::spawn(command.arg("serve").arg("--config").arg(&file)).unwrap();
        let has_tls = text.contains("tls = true");
        if has_tls {
            let started = std::time::Instant::now();
            while server.addresses().len() < 2 && started.elapsed() < SOON {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        for _ in 0..REQUESTS {
            let asked = request(&mut random, has_tls);
            let (status, route, said) = explained(&file, &asked);
            let response = answered(&authority, &server, &asked);
            let is_same = match status {
                Some(status) => response.status == status,
                // A gateway: a program that ran, or a server that does not listen.
                None => {
                    response.header("X-Program").is_some() || [502, 503].contains(&response.status)
                }
            };
            // Metrics and pages that are made anew are explained without their fields.
            let knows_route = said.lines().any(|line| line.starts_with("              "));
            let same_route = status.is_none()
                || said.contains("made anew")
                || !knows_route
                || response.header("X-Route") == route.as_deref();
            if !is_same || !same_route {
                wrong.push(format!(
                    "seed {seed}: {asked:?}\nanswered {} {:?}\nexplained:\n{said}",
                    response.status, response.headers
                ));
            }
        }
        drop(failing);
    }
    let few: Vec<_> = wrong.iter().take(6).cloned().collect();
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), few.join("\n"));
}
