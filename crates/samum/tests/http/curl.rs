//! Requests of the real curl.

use std::fs;
use std::process::{Command, Output};

use testkit::{Content, Server, Tree, skip};

use crate::common::{SOON, on_both_drivers, run, serve, tcp_address, text};

/// The URL of a path.
fn url(server: &Server, path: &str) -> String {
    format!("http://{}{path}", tcp_address(server))
}

fn curl(args: &[&str]) -> Output {
    let limit = SOON.as_secs().to_string();
    let output =
        Command::new("curl").args(["-sS", "--max-time", &limit]).args(args).output().expect("curl");
    assert!(output.status.success(), "curl {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    output
}

#[test]
fn curl_gets_the_responses_that_it_asks_for() {
    if let Err(reason) = run("curl", &["--version".as_ref()]) {
        skip!("no curl: {reason}");
    }
    on_both_drivers(|driver| {
        let content = Content::pseudo_random(4, 3_000_000);
        let tree =
            Tree::new().file("f.bin", content.clone()).file("t.css", "body{}").directory("d");
        fs::write(tree.path().join("t.css.gz"), GZIP).unwrap();
        let server = serve(driver, tree.path(), &["--listing"]);
        let file = url(&server, "/f.bin");
        content.assert_is(&curl(&[&file]).stdout);
        content.assert_is(&curl(&["--http1.0", &file]).stdout);
        content.assert_at(100, &curl(&["-r", "100-199", &file]).stdout);
        content.assert_at(2_999_000, &curl(&["-r", "-1000", &file]).stdout);
        let multipart = curl(&["-r", "0-9,1000-1009", &file]).stdout;
        assert!(multipart.windows(10).any(|window| window == content.read(1000, 10)));

        // -C resumes a partial download.
        let partial = Tree::new().file("f.bin", content.read(0, 1_234_567));
        let path = partial.path().join("f.bin");
        curl(&["-C", "-", "-o", text(&path), &file]);
        content.assert_is(&fs::read(&path).unwrap());

        assert_eq!(curl(&["--compressed", &url(&server, "/t.css")]).stdout, b"from gzip\n");
        assert_eq!(curl(&[&url(&server, "/t.css")]).stdout, b"body{}");

        // -z: only if newer than the local file, or than a date.
        let code = |args: &[&str]| {
            let all = [&["-o", "/dev/null", "-w", "%{http_code}"], args].concat();
            String::from_utf8(curl(&all).stdout).unwrap()
        };
        assert_eq!(code(&["-z", "Sun, 06 Nov 1994 08:49:37 GMT", &file]), "200");
        let here = tree.path().join("f.bin");
        assert_eq!(code(&["-z", text(&here), &file]), "304");

        // A body that the server skips, with and without `Expect: 100-continue`.
        assert_eq!(code(&["-d", "x=y", &file]), "405");
        let body = Tree::new().file("body", Content::pseudo_random(5, 900_000));
        let data = format!("@{}", text(&body.path().join("body")));
        assert_eq!(code(&["-H", "Expect: 100-continue", "--data-binary", &data, &file]), "405");
        assert_eq!(
            code(&["-H", "Transfer-Encoding: chunked", "--data-binary", &data, &file]),
            "405"
        );
        assert_eq!(code(&["-T", text(&body.path().join("body")), &file]), "405");

        assert_eq!(code(&["-L", &url(&server, "/d")]), "200");
        assert_eq!(code(&["-I", &file]), "200");
        assert_eq!(code(&["--path-as-is", &url(&server, "/../etc/passwd")]), "400");
        let two =
            curl(&["-w", "%{num_connects} ", "-o", "/dev/null", "-o", "/dev/null", &file, &file]);
        assert_eq!(two.stdout, b"1 0 ", "the connection is used again");
    });
}

/// The output of `printf 'from gzip\n' | gzip -n`.
const GZIP: &[u8] = &[
    0x1f, 0x8b, 0x08, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x03, 0x4b, 0x2b, 0xca, 0xcf, 0x55, 0x48,
    0xaf, 0xca, 0x2c, 0xe0, 0x02, 0x00, 0xf4, 0xe6, 0x5c, 0xa2, 0x0a, 0x00, 0x00, 0x00,
];
