//! Methods, the fields of responses, and how long a connection lives.

use testkit::{Content, Framing};

use super::{Case, Expected, LAST_MODIFIED, Site, request};

const TEXT: &str = "hello, world\n";
const ALLOWED: &str = "GET, HEAD, OPTIONS";

fn big() -> Content {
    Content::pseudo_random(1, 300_000)
}

fn site(name: &'static str) -> Site {
    Site::new(name).file("a.txt", TEXT).file("big.bin", big())
}

fn text() -> Expected {
    Expected::ok(TEXT)
}

pub(super) fn sites() -> Vec<Site> {
    let mut cases = vec![get()];
    cases.extend(methods());
    cases.extend(pages());
    cases.extend(lifetimes());
    cases.extend(hosts());
    vec![site("messages").cases(cases), types(), site("heads").with_listings().cases(heads())]
}

fn get() -> Case {
    let expected = text()
        .framed(Framing::Length(13))
        .field("Content-Type", "text/plain; charset=utf-8")
        .field("Accept-Ranges", "bytes")
        .field("Server", "samum")
        .field("Last-Modified", LAST_MODIFIED)
        // There is nothing to choose from.
        .absent("Vary")
        .strong_tag();
    Case::of("GET /a.txt", expected)
}

fn types() -> Site {
    let names = [
        ("index.html", "text/html; charset=utf-8"),
        ("s.css", "text/css; charset=utf-8"),
        ("s.js", "text/javascript; charset=utf-8"),
        ("d.json", "application/json; charset=utf-8"),
        ("i.svg", "image/svg+xml; charset=utf-8"),
        ("i.PNG", "image/png"),
        ("v.mp4", "video/mp4"),
        ("archive.tar.gz", "application/gzip"),
        ("unknown", "application/octet-stream"),
    ];
    let mut site = Site::new("types follow from names");
    for (name, kind) in names {
        let expected = Expected::ok("x").field("Content-Type", kind);
        site = site.file(name, "x").cases([Case::of(format!("GET /{name}"), expected)]);
    }
    site
}

/// HEAD has the fields of GET, and no body.
fn heads() -> Vec<Case> {
    let case = |path: &str, expected: Expected| {
        Case::new(format!("HEAD and GET {path}"))
            .ask(&format!("HEAD {path}"), expected.clone())
            .ask(&format!("GET {path}"), expected.same_fields())
    };
    vec![
        case("/a.txt", text()),
        case("/big.bin", Expected::ok(big())),
        case("/missing", Expected::page(404)),
        case("/", Expected::text([""])),
    ]
}

fn methods() -> Vec<Case> {
    let mut cases = Vec::new();
    for target in ["/a.txt", "/missing", "*", "http://test", "http://test/a.txt"] {
        let expected = Expected::empty(204).field("Allow", ALLOWED);
        cases.push(Case::of(format!("OPTIONS {target}"), expected));
    }
    let mut refused = Case::new("other methods are not allowed or not implemented");
    for method in ["POST", "PUT", "PATCH", "DELETE", "TRACE"] {
        let expected = Expected::page(405).field("Allow", ALLOWED);
        refused = refused.ask(&format!("{method} /a.txt"), expected);
    }
    for method in ["get", "BREW", "PROPFIND", "M-SEARCH"] {
        refused = refused.ask(&format!("{method} /a.txt"), Expected::page(501));
    }
    // The connection is as good as before.
    cases.push(refused.ask("GET /a.txt", text()));
    // There is nothing that the authority of another server takes.
    cases.push(Case::of("CONNECT test:80", Expected::page(405).field("Allow", "")));
    cases
}

fn pages() -> Vec<Case> {
    let nothing = Expected::page_saying(404, "There is nothing by this name.");
    let no_host = "The request was refused: HTTP/1.1 without a Host field.";
    vec![
        Case::of("GET /missing", nothing.field("Content-Type", "text/html; charset=utf-8")),
        Case::new("a rejected request")
            .send("GET / HTTP/1.1\r\n\r\n", [Expected::page_saying(400, no_host)])
            .closes(),
    ]
}

fn lifetimes() -> Vec<Case> {
    let closed = || text().field("Connection", "close");
    let mut stays = Case::new("HTTP/1.1 connections stay open unless told otherwise");
    for _ in 0..100 {
        stays = stays.ask("GET /a.txt", text().absent("Connection"));
    }
    let mut old = Case::new("HTTP/1.0 connections close unless told otherwise");
    for _ in 0..3 {
        old = old.send(
            "GET /a.txt HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
            [text().field("Connection", "keep-alive")],
        );
    }
    vec![
        stays.ask("GET /a.txt\nConnection: Keep-Alive, Close", closed()).closes(),
        old.send("GET /a.txt HTTP/1.0\r\n\r\n", [closed()]).closes(),
        Case::new("a client that has ended its side still gets its responses")
            .send(request("GET /big.bin") + &request("GET /a.txt"), [Expected::ok(big()), text()])
            .shuts_down(),
        Case::of("GET /a.txt\nRange: bytes=0-4", Expected::part(&TEXT.into(), 0, 4)),
    ]
}

/// HTTP/1.1 needs a `Host`; an absolute target overrides it.
fn hosts() -> Vec<Case> {
    let bad = || Expected::page(400);
    let mut cases = Vec::new();
    for (head, expected) in [
        ("GET /a.txt HTTP/1.1", bad()),
        ("GET /a.txt HTTP/1.1\r\nHost: a\r\nHost: a", bad()),
        ("GET /a.txt HTTP/1.1\r\nHost: a b", bad()),
        ("GET /a.txt HTTP/1.1\r\nHost: u@a", bad()),
        ("GET http:///a.txt HTTP/1.1\r\nHost: a", bad()),
        ("GET /a.txt HTTP/1.0", text()),
        ("GET /a.txt HTTP/1.1\r\nHost: ", text()),
        ("GET /a.txt HTTP/1.1\r\nHost: a", text()),
        ("GET /a.txt HTTP/1.1\r\nHost: a:80", text()),
        ("GET /a.txt HTTP/1.1\r\nHost: [::1]:8080", text()),
        ("GET /a.txt HTTP/1.1\r\nHost: 127.0.0.1", text()),
        ("GET http://other:81/a.txt?x HTTP/1.1\r\nHost: a", text()),
        ("GET HTTPS://other/missing HTTP/1.1\r\nHost: a", Expected::page(404)),
    ] {
        let bytes = format!("{head}\r\nConnection: close\r\n\r\n");
        cases.push(Case::new(head).send(bytes, [expected]).closes());
    }
    cases
}
