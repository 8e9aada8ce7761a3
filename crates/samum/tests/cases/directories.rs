//! Index, redirect, listing.

use testkit::Framing;

use super::{Case, Expected, Site, request};

pub(super) fn sites() -> Vec<Site> {
    vec![index(), other_index(), redirects(), listing(), long_listing(), not_listed()]
}

fn indexed(name: &'static str) -> Site {
    Site::new(name)
        .file("index.html", "root")
        .file("d/index.html", "below")
        .file("e/other.html", "other")
        .directory("f/index.html")
}

fn index() -> Site {
    let below = || Expected::ok("below").field("Content-Type", "text/html; charset=utf-8");
    indexed("index").cases([
        Case::of("GET /", Expected::ok("root")),
        Case::of("GET /d/", below()),
        Case::of("GET /d/.", below()),
        Case::of("GET /d/x/..", below()),
        Case::of("GET /d/?query", below()),
        // No index, and listings are off.
        Case::of("GET /e/", Expected::page(404)),
        // An index that is a directory.
        Case::of("GET /f/", Expected::page(404)),
    ])
}

fn other_index() -> Site {
    indexed("another name for the index").with_index("other.html").cases([
        Case::of("GET /e/", Expected::ok("other")),
        Case::of("GET /d/", Expected::page(404)),
    ])
}

fn redirects() -> Site {
    let names: [(&[u8], &str); 7] = [
        (b"a b", "/a%20b/"),
        (b"cr\r\nSet-Cookie: x", "/cr%0D%0ASet-Cookie:%20x/"),
        (b"quotes\"'<>", "/quotes%22'%3C%3E/"),
        ("gr\u{fc}n".as_bytes(), "/gr%C3%BCn/"),
        (b"\xff\xfe", "/%FF%FE/"),
        (b"100%41", "/100%2541/"),
        (b"back\\slash", "/back%5Cslash/"),
    ];
    let mut site = Site::new("directories without their slash are redirected on this host")
        .directory("d/e")
        .directory("evil.example")
        .link("link", "d");
    let to = |location: &str| Expected::page(301).field("Location", location);
    let mut cases: Vec<_> = [
        ("/d", "/d/"),
        ("/d/e", "/d/e/"),
        ("/d?a=b&c", "/d/?a=b&c"),
        ("/d?//evil", "/d/?//evil"),
        ("/link", "/link/"),
        ("//evil.example", "/evil.example/"),
        ("///evil.example", "/evil.example/"),
        ("/.//evil.example", "/evil.example/"),
        ("/d/..//evil.example", "/evil.example/"),
        ("/%2e//evil.example", "/evil.example/"),
        ("http://evil.example/d", "/d/"),
    ]
    .map(|(target, location)| Case::of(format!("GET {target}"), to(location)))
    .into();
    for (name, location) in names {
        site = site.directory(name);
        let encoded: String = name.iter().map(|byte| format!("%{byte:02x}")).collect();
        cases.push(Case::of(format!("GET /{encoded}"), to(location)));
    }
    cases.push(Case::of("HEAD /d", to("/d/")));
    site.cases(cases)
}

fn listing() -> Site {
    let html = "text/html; charset=utf-8";
    let page = Expected::text([
        // Directories by name, before files by name.
        "href=\"./Zdir/\"",
        "href=\"./sub/\"",
        "href=\"./a.txt\"",
        "href=\"./b.txt\"",
    ])
    .has("href=\"./bad%FFutf8%0A\"")
    .has("./%22quoted%22%20%26%20%27so%27")
    .has("&quot;quoted&quot; &amp; &#39;so&#39;")
    .lacks("<script>")
    .lacks("href=\"javascript")
    // There is nothing above the root.
    .lacks("href=\"../\"")
    .framed(Framing::Chunked)
    .field("Content-Type", html)
    .field("X-Content-Type-Options", "nosniff")
    .field("Vary", "Accept");
    let name = |name: &str| format!("\n{{\"name\":\"{name}\",\"type\":\"");
    let json = Expected::text([
        "[".to_owned(),
        name("Zdir"),
        name("sub"),
        name("\\\"quoted\\\" & 'so'"),
        name("<script>alert(1)<_script>.txt"),
        name("a.txt"),
        name("b.txt"),
        name("bad\u{fffd}utf8\\u000a"),
        name("javascript:alert(1)"),
        name("link"),
        "}\n]\n".to_owned(),
    ])
    .lacks(".hidden")
    .has("\"name\":\"b.txt\",\"type\":\"file\",\"size\":5,")
    .has("\"name\":\"sub\",\"type\":\"directory\",")
    .field("Content-Type", "application/json");
    let mut cases = vec![
        Case::of("GET /", page),
        Case::of("GET /sub/", Expected::text(["href=\"../\""])),
        Case::of("GET /\nAccept: application/json", json),
        Case::of(
            "GET /\nAccept: text/html,application/xhtml+xml,*/*;q=0.8",
            Expected::text([""]).field("Content-Type", html),
        ),
        Case::of("GET /Zdir/", Expected::text([""])),
    ];
    // Each entry of the listing in JSON leads to what it stands for, whatever its name.
    for (href, content) in [
        ("%22quoted%22%20%26%20%27so%27", ""),
        ("%3Cscript%3Ealert(1)%3C_script%3E.txt", ""),
        ("a.txt", "1"),
        ("b.txt", "12345"),
        ("bad%FFutf8%0A", ""),
        ("javascript%3Aalert(1)", ""),
        ("link", "1"),
    ] {
        cases.push(
            Case::new(format!("the listing's {href}"))
                .ask(
                    "GET /\nAccept: application/json",
                    Expected::text([format!("\"href\":\"./{href}\"")]),
                )
                .ask(&format!("GET /{href}"), Expected::ok(content)),
        );
    }
    Site::new("listing")
        .with_listings()
        .file("b.txt", "12345")
        .file("a.txt", "1")
        .file("sub/x", "x")
        .directory("Zdir")
        .link("link", "a.txt")
        .file("<script>alert(1)<_script>.txt", "")
        .file("\"quoted\" & 'so'", "")
        .file("javascript:alert(1)", "")
        .file(".hidden", "")
        .file(b"bad\xffutf8\n", "")
        .cases(cases)
}

fn long_listing() -> Site {
    const FILES: usize = 3000;
    let all = || Expected::text((0..FILES).map(|number| format!("href=\"./file-{number:04}\"")));
    let mut cases = vec![
        Case::new("three long listings, and a request behind them").send(
            request("GET /").repeat(3) + &request("GET /file-0001"),
            [
                all().framed(Framing::Chunked),
                all().framed(Framing::Chunked),
                all().framed(Framing::Chunked),
                Expected::ok("").field("Content-Length", "0"),
            ],
        ),
        Case::new("HEAD in HTTP/1.0")
            .send("HEAD / HTTP/1.0\r\n\r\n", [Expected::text([""]).for_head()])
            .closes(),
    ];
    // HTTP/1.0 knows no chunks: the connection's end is the listing's, even if the client asks for
    // something else.
    for fields in ["", "Connection: keep-alive\r\n"] {
        let bytes = format!("GET / HTTP/1.0\r\n{fields}\r\n").repeat(2);
        let whole = all().framed(Framing::Close).field("Connection", "close");
        cases.push(
            Case::new(format!("a long listing in HTTP/1.0 {fields}")).send(bytes, [whole]).closes(),
        );
    }
    let mut site = Site::new("a long listing").with_listings();
    for number in 0..FILES {
        site = site.file(format!("file-{number:04}"), "");
    }
    site.cases(cases)
}

fn not_listed() -> Site {
    Site::new("what cannot be listed").with_listings().file("a", "a").directory("d").cases([
        Case::of("GET /missing/", Expected::page(404)),
        Case::of("GET /a/", Expected::page(404)),
        Case::of("GET /d/", Expected::text([""])),
        Case::of("GET /d", Expected::page(301)),
    ])
}
