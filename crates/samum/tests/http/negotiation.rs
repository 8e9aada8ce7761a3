//! Precompressed siblings (RFC 9110 §12.5.3).

use testkit::{Content, Tree};

use crate::common::{ask, on_both_drivers, serve};

#[test]
fn the_client_chooses_among_the_siblings_that_exist() {
    on_both_drivers(|driver| {
        let tree = Tree::new()
            .file("a.css", "plain")
            .file("a.css.br", "as brotli")
            .file("a.css.zst", "as zstandard")
            .file("a.css.gz", "as gzip")
            .file("b.css", "plain")
            .file("b.css.gz", "as gzip")
            .file("dir/index.html", "plain index")
            .file("dir/index.html.gz", "gzip index")
            .file("big.js", Content::pseudo_random(1, 400_000))
            .file("big.js.br", Content::pseudo_random(2, 100_000));
        let server = serve(driver, tree.path(), &[]);
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
            let response = ask(&server, &format!("GET {path}\nAccept-Encoding: {accepted}"));
            assert_eq!(response.header("Content-Encoding"), coding, "{path} {accepted}");
            assert_eq!(response.body, body.as_bytes(), "{path} {accepted}");
            let vary = (!path.ends_with(".gz")).then_some("Accept-Encoding");
            assert_eq!(response.header("Vary"), vary, "{path} {accepted}");
        }
        let plain = ask(&server, "GET /a.css");
        assert_eq!(
            (plain.header("Content-Encoding"), plain.header("Vary")),
            (None, Some("Accept-Encoding"))
        );
        let encoded = ask(&server, "GET /a.css\nAccept-Encoding: br");
        assert_eq!(encoded.header("Content-Type"), Some("text/css; charset=utf-8"));
        assert_ne!(encoded.header("ETag"), plain.header("ETag"), "each has its own tag");
        let again = format!(
            "GET /a.css\nAccept-Encoding: br\nIf-None-Match: {}",
            encoded.header("ETag").unwrap()
        );
        let again = ask(&server, &again);
        assert_eq!((again.status, again.header("Vary")), (304, Some("Accept-Encoding")));
        let big = ask(&server, "GET /big.js\nAccept-Encoding: br");
        Content::pseudo_random(2, 100_000).assert_is(&big.body);
        let part = ask(&server, "GET /big.js\nAccept-Encoding: br\nRange: bytes=99990-");
        assert_eq!(part.header("Content-Range"), Some("bytes 99990-99999/100000"));
        assert_eq!(part.header("Content-Encoding"), Some("br"));
        Content::pseudo_random(2, 100_000).assert_at(99_990, &part.body);
    });
}

#[test]
fn what_is_not_a_file_is_no_sibling() {
    on_both_drivers(|driver| {
        let tree = Tree::new().file("a.css", "plain").directory("a.css.gz").file("x", "outside");
        let tree = tree.symlink("a.css.br", "x");
        crate::common::make_fifo(&tree.path().join("a.css.zst"));
        let server = serve(driver, tree.path(), &[]);
        let response = ask(&server, "GET /a.css\nAccept-Encoding: gzip, br, zstd");
        assert_eq!(
            (response.header("Content-Encoding"), &response.body[..]),
            (None, &b"plain"[..])
        );
    });
}
