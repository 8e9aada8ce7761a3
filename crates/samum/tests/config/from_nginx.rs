//! The configurations of `docs/from-nginx.md`, served by nginx and by samum: both give the same answers.

use std::fs;
use std::path::Path;

use testkit::{Response, Server, Tree, skip};

use super::{samum, text};
use crate::common::nginx::{Nginx, free_address};
use crate::common::{ask, serve_config};
use crate::fastcgi::stage::Php;
use crate::tls::Authority;

/// The pairs of the page: a title, the text for nginx, and that for samum.
fn pairs() -> Vec<[String; 3]> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/from-nginx.md");
    let page = fs::read_to_string(page).unwrap();
    let block = |section: &str, kind: &str| {
        let (_, rest) = section.split_once(&format!("```{kind}\n")).expect("a block");
        rest.split_once("```").expect("its end").0.to_owned()
    };
    let sections = page.split("\n### ").skip(1);
    let titled = sections.map(|section| (section.lines().next().unwrap().to_owned(), section));
    titled.map(|(title, it)| [title, block(it, "nginx"), block(it, "toml")]).collect()
}

fn tree() -> Tree {
    Tree::new()
        .file("www/index.html", "the start")
        .file("www/404.html", "not there")
        .file("www/new.html", "new")
        .file("www/css/a.css", "b {}")
        .file("www/a.iso", "an image")
        .file("www/a.sig", "a signature")
        .file("www/data", "0123456789")
        .file("www/info.php", "<?php echo $_SERVER['SCRIPT_NAME'], '|', $_SERVER['QUERY_STRING'];")
        .file("www/uploads/a.txt", "an upload")
}

/// What both must agree on: the status, the content, and the fields that the configurations speak of.
fn essence(response: &Response) -> (u16, Vec<(&'static str, Option<String>)>, String) {
    let names = ["content-type", "cache-control", "location", "content-range", "x-upstream"];
    let fields = names.map(|name| {
        let value = response.header(name).map(ToOwned::to_owned);
        // nginx makes a path absolute, with the scheme, the host and the port that it was asked by; and does not say in
        // which set of characters a text is. The port of TLS is another one here than 443.
        let without_port = |rest: &str| {
            rest.trim_start_matches(|it: char| it == ':' || it.is_ascii_digit()).to_owned()
        };
        let value = value.map(|value| {
            if let Some(rest) = value.strip_prefix("http://example.org") {
                without_port(rest)
            } else if let Some(rest) = value.strip_prefix("https://example.org") {
                format!("https://example.org{}", without_port(rest))
            } else {
                value.replace("; charset=utf-8", "").replace(";charset=UTF-8", "")
            }
        });
        // The type of a page about an error says nothing about the site.
        (name, value.filter(|_| name != "content-type" || response.status < 300))
    });
    // Pages about errors have words of their own.
    let is_own = response.status >= 300 && !response.body.starts_with(b"not there");
    let body = if is_own { String::new() } else { text(&response.body) };
    (response.status, fields.to_vec(), body)
}

/// A site of both.
struct Both {
    title: String,
    nginx: Nginx,
    samum: Server,
    tree: Tree,
}

impl Both {
    /// Serves the pair with this title; what is `replaced` are sockets and addresses. `None` without nginx.
    fn serve(title: &str, replaced: &[(&str, &str)], tree: Tree) -> Option<Self> {
        let pairs = pairs();
        let [_, of_nginx, of_samum] =
            pairs.iter().find(|[name, ..]| name == title).expect("a pair with this title");
        let root = text(tree.path().to_str().unwrap().as_bytes());
        let here = |text: &str, address: &str, more: &[(&str, &str)]| {
            let mut text = text.replace("/srv/www", &format!("{root}/www"));
            text = text.replace("127.0.0.1:8080", address);
            for (from, to) in replaced.iter().chain(more) {
                text = text.replace(from, to);
            }
            text
        };
        let tls = free_address().to_string();
        let nginx = Nginx::start(&tree, |address| {
            let own = here(of_nginx, &address.to_string(), &[("127.0.0.1:8443", &tls)]);
            format!("include /etc/nginx/mime.types;\ndefault_type application/octet-stream;\n{own}")
        })?;
        let tls = free_address().to_string();
        let config = here(of_samum, "127.0.0.1:0", &[("127.0.0.1:8443", &tls)]);
        tree.write("samum.toml", &*config);
        let checked = samum(tree.path(), &["check", "samum.toml"]);
        let said = text(&checked.stderr);
        let is_clean = said.lines().all(|line| line.contains("expires") || !line.contains("error"));
        assert!(checked.status.success() && is_clean, "{title}: {said}");
        let samum = serve_config(&tree, &config);
        Some(Self { title: title.to_owned(), nginx, samum, tree })
    }

    fn compare(&self, heads: &[&str]) {
        for head in heads {
            let head = format!("{head}\nHost: example.org");
            let (theirs, ours) = (self.nginx.ask(&head), ask(&self.samum, &head));
            assert_eq!(essence(&ours), essence(&theirs), "{head}");
            let request = head.replace("\nHost: example.org", "").replace('\n', ", ");
            // A transcript has these lines (packaging/transcripts).
            eprintln!("nginx and samum: {}: {request}: {}", self.title, ours.status);
        }
        assert!(self.tree.path().exists());
    }
}

#[test]
fn all_pairs_are_tested_here() {
    let titles: Vec<String> = pairs().into_iter().map(|[title, ..]| title).collect();
    let tested = ["A static site", "A PHP application", "A reverse proxy", "A mirror", "TLS"];
    assert_eq!(titles, tested);
}

#[test]
fn a_static_site() {
    let Some(both) = Both::serve("A static site", &[], tree()) else { skip!("no nginx") };
    both.compare(&[
        "GET /",
        "GET /css/a.css",
        "GET /css/none.css",
        "GET /none",
        "GET /old",
        "GET /css",
        "GET /data\nRange: bytes=2-4",
        "POST /data\nContent-Length: 0",
    ]);
}

#[test]
fn a_php_application() {
    let tree = tree().file("www/index.php", "<?php echo 'front ', $_SERVER['QUERY_STRING'];");
    let php = match Php::start(&tree) {
        Ok(php) => php,
        Err(reason) => skip!("{reason}"),
    };
    let socket = tree.path().join("php.sock");
    let replaced = [("/run/php/php-fpm.sock", socket.to_str().unwrap())];
    let Some(both) = Both::serve("A PHP application", &replaced, tree) else { skip!("no nginx") };
    both.compare(&[
        "GET /",
        "GET /info.php?a=1",
        "GET /a/pretty/path?b=2",
        "GET /uploads/a.txt",
        "GET /uploads/none",
        "GET /css/a.css",
    ]);
    drop(php);
}

#[test]
fn a_reverse_proxy() {
    let application = serve_config(
        &Tree::new(),
        "[[site]]\nlisten = [\"127.0.0.1:0\"]\n[[site.route]]\nstatus = { code = 200, text = \"it\" }\n\
         headers = [{ set = { X-Upstream = \"yes\" } }]\n",
    );
    let address = crate::common::tcp_address(&application).to_string();
    let replaced = [("127.0.0.1:9001", &*address)];
    let Some(both) = Both::serve("A reverse proxy", &replaced, tree()) else { skip!("no nginx") };
    both.compare(&[
        "GET /",
        "GET /a/b?c=d",
        "GET /static/a.css",
        "GET /static/none",
        "POST /\nContent-Length: 2000000",
    ]);
}

#[test]
fn a_mirror() {
    let Some(both) = Both::serve("A mirror", &[], tree()) else { skip!("no nginx") };
    both.compare(&[
        "GET /a.iso",
        "GET /a.sig",
        "GET /data",
        "GET /data\nRange: bytes=-3",
        "GET /none",
        "GET /css",
    ]);
    // Listings look different, and have the same names.
    let names = |page: &Response| {
        let page = text(&page.body);
        ["404.html", "a.iso", "css/", "data"].map(|name| page.contains(&format!("href=\"{name}\"")))
    };
    for path in ["GET /css/\nHost: a", "GET /uploads/\nHost: a"] {
        assert_eq!(both.nginx.ask(path).status, ask(&both.samum, path).status);
    }
    let root = "GET /index.html/../\nHost: a";
    assert_eq!(names(&both.nginx.ask(root)), names(&ask(&both.samum, root)));
}

#[test]
fn tls() {
    let tree = tree();
    let authority = Authority::new();
    authority.issue(&["example.org"]).put(&tree, "example.org");
    let path = |name: &str| tree.path().join(name).to_str().unwrap().to_owned();
    let (certificate, key) = (path("example.org.pem"), path("example.org.key"));
    let replaced =
        [("/etc/ssl/example.org.pem", &*certificate), ("/etc/ssl/example.org.key", &key)];
    let Some(both) = Both::serve("TLS", &replaced, tree) else { skip!("no nginx") };
    both.compare(&["GET /", "GET /css/a.css?x=y"]);
    let addresses = both.samum.addresses();
    let [_, testkit::Address::Tcp(address)] = addresses[..] else { panic!("{addresses:?}") };
    let mut client = authority.connect(address, "example.org").unwrap();
    assert_eq!(client.get("example.org", "/new.html").unwrap(), b"new");
    let head = client.head("example.org", "/").unwrap();
    assert!(head.contains("\r\nstrict-transport-security: max-age=15552000\r\n"), "{head}");
}
