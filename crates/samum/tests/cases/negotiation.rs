//! Precompressed siblings (RFC 9110 §12.5.3).

use testkit::Content;

use super::{Case, Expected, Site};

pub(super) fn sites() -> Vec<Site> {
    let (big, coded) = (Content::pseudo_random(1, 400_000), Content::pseudo_random(2, 100_000));
    let vary = |expected: Expected| expected.field("Vary", "Accept-Encoding");
    let mut cases = Vec::new();
    for (path, accepted, coding, body) in [
        ("/a.css", "gzip, deflate, br, zstd", Some("br"), "as brotli"),
        ("/a.css", "gzip, zstd", Some("zstd"), "as zstandard"),
        ("/a.css", "gzip", Some("gzip"), "as gzip"),
        ("/a.css", "x-gzip", Some("gzip"), "as gzip"),
        ("/a.css", "br;q=0.2, gzip;q=0.5", Some("gzip"), "as gzip"),
        ("/a.css", "br;q=0, *", Some("zstd"), "as zstandard"),
        ("/a.css", "identity, gzip;q=0.5", None, "plain"),
        ("/a.css", "gzip;q=0", None, "plain"),
        ("/a.css", "", None, "plain"),
        ("/a.css", "deflate", None, "plain"),
        ("/b.css", "br, gzip;q=0.1", Some("gzip"), "as gzip"),
        ("/b.css", "br", None, "plain"),
        ("/dir/", "gzip", Some("gzip"), "gzip index"),
        ("/a.css.gz", "br, gzip", None, "as gzip"),
    ] {
        let varies = (!path.ends_with(".gz")).then_some("Accept-Encoding");
        let expected = Expected::ok(body)
            .field_or_absent("Content-Encoding", coding)
            .field_or_absent("Vary", varies);
        cases.push(Case::of(format!("GET {path}\nAccept-Encoding: {accepted}"), expected));
    }
    let plain = || vary(Expected::ok("plain")).absent("Content-Encoding");
    let brotli = || {
        vary(Expected::ok("as brotli"))
            .field("Content-Type", "text/css; charset=utf-8")
            .present("ETag")
    };
    cases.extend([
        Case::new("each coding has its own tag")
            .ask("GET /a.css", plain().present("ETag"))
            .ask("GET /a.css\nAccept-Encoding: br", brotli().field_other_than("ETag", "{etag}")),
        Case::new("a coded file is not modified")
            .ask("GET /a.css\nAccept-Encoding: br", brotli())
            .ask(
                "GET /a.css\nAccept-Encoding: br\nIf-None-Match: {etag}",
                vary(Expected::empty(304)).field("ETag", "{etag}"),
            ),
        Case::of("GET /big.js\nAccept-Encoding: br", Expected::ok(coded.clone())),
        Case::of(
            "GET /big.js\nAccept-Encoding: br\nRange: bytes=99990-",
            Expected::part(&coded, 99_990, 99_999).field("Content-Encoding", "br"),
        ),
    ]);
    let site = Site::new("negotiation")
        .file("a.css", "plain")
        .file("a.css.br", "as brotli")
        .file("a.css.zst", "as zstandard")
        .file("a.css.gz", "as gzip")
        .file("b.css", "plain")
        .file("b.css.gz", "as gzip")
        .file("dir/index.html", "plain index")
        .file("dir/index.html.gz", "gzip index")
        .file("big.js", big)
        .file("big.js.br", coded);
    vec![site.cases(cases)]
}
