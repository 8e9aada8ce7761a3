//! Responses of servers that break a rule: passed on if they have one meaning, else a 502. Beside them nginx 1.22 and
//! Caddy 2.6 were asked for the same.

use std::io::{Read as _, Write as _};
use std::net::Shutdown;

use testkit::{Tree, request};

use super::bodies::{Origin, read_until};
use super::{passing_on, patient};
use crate::common::{on_both_drivers, serve_config};

/// Responses to `GET`, after `HTTP/1.1 200 `, that are passed on with the content [`CONTENT`].
const PASSED: &[&str] = &[
    // One length, however often it is said, and no coding.
    "OK\r\nContent-Length: 2, 2\r\n\r\nhi",
    "OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nhi",
    "OK\r\nTransfer-Encoding: identity\r\n\r\nhi",
    "OK\r\nTransfer-Encoding:\r\nContent-Length: 2\r\n\r\nhi",
    "OK\r\nTransfer-Encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
    "OK\r\nTransfer_Encoding: chunked\r\nContent-Length: 2\r\n\r\nhi",
    // Lines.
    "OK\nX: y\nContent-Length: 2\n\nhi",
    "OK\nTransfer-Encoding: chunked\n\n2\nhi\n0\n\n",
    "OK\r\nX : y\r\nContent-Length: 2\r\n\r\nhi",
    "OK\r\nY: a\r\n b\r\nContent-Length: 2\r\n\r\nhi",
    "OK\r\nA B: c\r\nnone\r\nContent-Length: 2\r\n\r\nhi",
    "OK\r\nTransfer-Encoding: chunked\r\n\r\n2  \nhi\r\n0\r\n\r\n",
];
const CONTENT: &str = "hi";

/// The same where two readings are possible: the client gets a 502.
const REFUSED: &[&str] = &[
    "OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nhi",
    "OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "OK\r\nContent-Length : 2\r\n\r\nhi",
    "OK\r\nX: a\rb\r\nContent-Length: 2\r\n\r\nhi",
    "OK\r\nX: a\r\n \r\nContent-Length: 2\r\n\r\nhi",
];

/// Others: the method, what the server sends, and the status and the content for the client.
const OTHERS: &[(&str, &str, u16, &str)] = &[
    // RFC 9112 §6.3: these end with their heads.
    ("DELETE", "HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 204, ""),
    ("DELETE", "HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n", 204, ""),
    ("DELETE", "HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\nhello", 204, ""),
    ("GET", "HTTP/1.1 204 \r\nContent-Length: 5\r\nContent-Length: x\r\n\r\n", 204, ""),
    ("GET", "HTTP/1.1 304 \r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", 304, ""),
    ("HEAD", "HTTP/1.1 200 \r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", 200, ""),
    ("HEAD", "HTTP/1.1 200 \r\nTransfer-Encoding: gzip\r\n\r\n", 200, ""),
    ("HEAD", "HTTP/1.1 200 \r\nContent-Length : 5\r\n\r\n", 200, ""),
    ("DELETE", "HTTP/1.1 204 \r\nContent-Length : 0\r\n\r\n", 204, ""),
    ("GET", "HTTP/1.1 304 \r\nTransfer-Encoding:\r\n chunked\r\n\r\n", 304, ""),
    (
        "GET",
        "HTTP/1.1 100 \r\nContent-Length: 5\r\n\r\nHTTP/1.1 200 \r\nContent-Length: 2\r\n\r\nhi",
        200,
        CONTENT,
    ),
    // Start lines.
    ("GET", "HTTP/1.1  200 OK\r\nX : y\r\nContent-Length: 2\r\n\r\nhi", 200, CONTENT),
    ("GET", "HTTP/2 200 OK\r\nContent-Length: 2\r\n\r\nhi", 200, CONTENT),
    ("GET", "\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", 200, CONTENT),
    ("GET", "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 502, ""),
    ("GET", "http/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", 502, ""),
    ("GET", "HTTP/1.1 101 \r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", 502, ""),
];

/// All of them, as those of the last table.
fn cases() -> impl Iterator<Item = (&'static str, String, u16, &'static str)> {
    let whole = |rest: &str| format!("HTTP/1.1 200 {rest}");
    let passed = PASSED.iter().map(move |rest| ("GET", whole(rest), 200, CONTENT));
    let refused = REFUSED.iter().map(move |rest| ("GET", whole(rest), 502, ""));
    let others = OTHERS
        .iter()
        .map(|&(method, received, status, content)| (method, received.to_owned(), status, content));
    // Limits of the lines between the chunks, whose content is whole.
    let chunked = |rest: &str| whole(&format!("OK\r\nTransfer-Encoding: chunked\r\n\r\n{rest}"));
    let long = [
        chunked(&format!("2\r\nhi\r\n0\r\nA: b\r\nB: {}\r\n\r\n", "c".repeat(16_000))),
        chunked(&format!("{}2\r\nhi\r\n0\r\n\r\n", "0".repeat(40))),
        chunked(&format!("2;a={}\r\nhi\r\n0\r\n\r\n", "b".repeat(3000))),
    ];
    let long = long.into_iter().map(|received| ("GET", received, 200, CONTENT));
    passed.chain(refused).chain(others).chain(long)
}

#[test]
fn an_odd_response_is_passed_on_if_it_has_one_meaning_and_its_link_is_not_kept() {
    on_both_drivers(|driver| {
        let (tree, origin) = (Tree::new(), Origin::new());
        let url = format!("http://{}", origin.address());
        let server = serve_config(&tree, &passing_on(driver, &url, ""));
        for (method, received, status, body) in cases() {
            let mut client = patient(&server);
            client.send(request(&format!("{method} /x"))).expect("the server receives");
            let mut link = origin.accept();
            read_until(&mut link, "\r\n\r\n");
            link.write_all(received.as_bytes()).expect("the server receives");
            let _ = link.shutdown(Shutdown::Write);
            let response = loop {
                let response = if method == "HEAD" { client.head() } else { client.response() };
                let response = response.unwrap_or_else(|error| panic!("{received:?}: {error}"));
                if response.status >= 200 {
                    break response;
                }
            };
            assert_eq!(response.status, status, "{received:?}");
            if status < 500 {
                assert_eq!(response.body, body.as_bytes(), "{received:?}");
                let expected = received.contains("X : y").then_some("y");
                assert!(expected.is_none() || response.header("X") == expected, "{received:?}");
                let folded = received.contains("Y: a").then_some("a b");
                assert_eq!(response.header("Y"), folded, "{received:?}");
                if status == 204 {
                    assert_eq!(response.header("Content-Length"), None, "{received:?}");
                }
            }
            // Each request comes by a link of its own.
            let _ = link.read_to_end(&mut Vec::new());
        }
    });
}
