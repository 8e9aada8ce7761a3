//! From the path of a URL to a file beneath the root, and never to anything else.

use super::{Case, Expected, Site};

/// A request for a path, and the file's content or a status.
fn case(path: &str, expected: Result<&'static str, u16>) -> Case {
    let expected = match expected {
        Ok(content) => Expected::ok(content),
        Err(status) => Expected::page(status),
    };
    Case::of(format!("GET {path}"), expected)
}

pub(super) fn sites() -> Vec<Site> {
    vec![decoded(), too_long(), links()]
}

/// Paths are decoded once, and normalized.
fn decoded() -> Site {
    Site::new("paths")
        .file("a b.txt", "space")
        .file("100%.txt", "percent")
        .file("%41.txt", "encoded")
        .file("A.txt", "letter")
        .file("grün/ä.txt", "umlaut")
        .file("back\\slash", "backslash")
        .file("d/e.txt", "below")
        .file(".hidden", "hidden")
        .file("...", "dots")
        .file(".well-known/x", "public")
        .file("q?x#y&\"'<>", "signs")
        .cases(
            [
                ("/a%20b.txt", Ok("space")),
                ("/a%20b%2Etxt", Ok("space")),
                ("/100%25.txt", Ok("percent")),
                ("/%41.txt", Ok("letter")),
                ("/%2541.txt", Ok("encoded")),
                ("/%252541.txt", Err(404)),
                ("/gr%C3%BCn/%c3%a4.txt", Ok("umlaut")),
                ("/grün/ä.txt?ö", Ok("umlaut")),
                ("/gr%C3%BCn/ä.txt", Ok("umlaut")),
                ("/grün/\u{85}/..//ä.txt", Ok("umlaut")),
                ("/ä", Err(404)),
                ("/back%5Cslash", Ok("backslash")),
                ("/back\\slash", Ok("backslash")),
                ("/d/e.txt", Ok("below")),
                ("/d//e.txt", Ok("below")),
                ("//d/e.txt", Ok("below")),
                ("/./d/./e.txt", Ok("below")),
                ("/d/../d/e.txt", Ok("below")),
                ("/d/x/%2e%2E/e.txt", Ok("below")),
                ("/d/e.txt?query=/../..", Ok("below")),
                ("/.hidden", Err(404)),
                ("/...", Err(404)),
                ("/%2ehidden", Err(404)),
                ("/.well-known/x", Ok("public")),
                ("/d/../.well-known/x", Ok("public")),
                ("/q%3Fx%23y%26%22'%3C%3E", Ok("signs")),
                ("/..", Err(400)),
                ("/../etc/passwd", Err(400)),
                ("/%2e%2e/etc/passwd", Err(400)),
                ("/d/../../etc/passwd", Err(400)),
                ("/d%2Fe.txt", Err(404)),
                ("/..%2Fetc%2Fpasswd", Err(404)),
                ("/..%5C..%5Cetc", Err(404)),
                ("/%252e%252e/etc/passwd", Err(404)),
                ("/a%00b", Err(400)),
                ("/d/e.txt%00.html", Err(400)),
                ("/%", Err(400)),
                ("/%4", Err(400)),
                ("/%zz", Err(400)),
                ("/d/e.txt/", Err(404)),
                ("/d/e.txt/x", Err(404)),
                ("/d/e.txt/..", Err(404)),
            ]
            .map(|(path, expected)| case(path, expected)),
        )
}

/// Names that cannot be are not found, or too long.
fn too_long() -> Site {
    let name = "n".repeat(255);
    let deepest = format!("{}f", "d/".repeat(127));
    let mut cases = vec![
        case(&format!("/{name}"), Ok("long")),
        case(&format!("/{name}n"), Err(404)),
        case(&format!("/{deepest}"), Ok("deep")),
    ];
    // The last has 4,200 bytes.
    for (depth, status) in [(127, 404), (128, 404), (129, 414), (2000, 414), (2100, 414)] {
        cases.push(case(&"/e".repeat(depth), Err(status)));
    }
    let site = Site::new("long paths").file("x", "x").file(name, "long").file(deepest, "deep");
    site.cases(cases)
}

/// Symbolic links lead anywhere inside, and nowhere outside.
fn links() -> Site {
    let inside = [
        ("/relative.txt", "inside"),
        ("/d/up.txt", "inside"),
        ("/chain.txt", "inside"),
        ("/e/b.txt", "below"),
        ("/e/up.txt", "inside"),
    ];
    let outside = [
        "/absolute.txt",
        "/parent",
        "/parent/",
        "/climb",
        "/loop",
        "/loop/",
        "/loop/x",
        "/loop-a",
        "/dangling",
        "/proc",
    ];
    Site::new("links")
        .with_listings()
        .file("a.txt", "inside")
        .file("d/b.txt", "below")
        .link("relative.txt", "a.txt")
        .link("d/up.txt", "../a.txt")
        .link("e", "d")
        .link("chain.txt", "relative.txt")
        .link("absolute.txt", "/etc/passwd")
        .link("parent", "..")
        .link("climb", "../../../../../../etc/passwd")
        .link("loop", "loop")
        .link("loop-a", "loop-b")
        .link("loop-b", "loop-a")
        .link("dangling", "nothing")
        .link("proc", "/proc/self/root/etc/passwd")
        .cases(inside.map(|(path, content)| case(path, Ok(content))))
        .cases(outside.map(|path| case(path, Err(404))))
}
