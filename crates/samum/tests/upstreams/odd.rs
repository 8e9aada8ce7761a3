//! Responses of servers that break a rule: passed on if they have one meaning, else a 502. Beside them nginx 1.22 and
//! Caddy 2.6 were asked for the same.

use std::io::{Read as _, Write as _};
use std::net::Shutdown;

use testkit::{Client, Server, Tree, request};

use super::bodies::{Origin, read_until};
use super::common::{SAMUM, SOON, on_both_drivers};

/// The method, what the server sends, and the status and the content for the client.
type Case = (&'static str, &'static str, u16, &'static str);

const CASES: &[Case] = &[
    // RFC 9112 §6.3: these end with their heads.
    ("DELETE", "HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 204, ""),
    ("DELETE", "HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n", 204, ""),
    ("DELETE", "HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\nhello", 204, ""),
    ("GET", "HTTP/1.1 204 \r\nContent-Length: 5\r\nContent-Length: x\r\n\r\n", 204, ""),
    ("GET", "HTTP/1.1 304 \r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", 304, ""),
    ("HEAD", "HTTP/1.1 200 \r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", 200, ""),
    ("HEAD", "HTTP/1.1 200 \r\nTransfer-Encoding: gzip\r\n\r\n", 200, ""),
    (
        "GET",
        "HTTP/1.1 100 \r\nContent-Length: 5\r\n\r\nHTTP/1.1 200 \r\nContent-Length: 2\r\n\r\nhi",
        200,
        "hi",
    ),
    // One length, however often it is said, and no coding.
    ("GET", "HTTP/1.1 200 OK\r\nContent-Length: 2, 2\r\n\r\nhi", 200, "hi"),
    ("GET", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nhi", 200, "hi"),
    ("GET", "HTTP/1.1 200 OK\r\nTransfer-Encoding: identity\r\n\r\nhi", 200, "hi"),
    ("GET", "HTTP/1.1 200 OK\r\nTransfer-Encoding:\r\nContent-Length: 2\r\n\r\nhi", 200, "hi"),
    (
        "GET",
        "HTTP/1.1 200 OK\r\nTransfer_Encoding: chunked\r\nContent-Length: 2\r\n\r\nhi",
        200,
        "hi",
    ),
    // Lines.
    ("GET", "HTTP/1.1 200 OK\nX: y\nContent-Length: 2\n\nhi", 200, "hi"),
    ("GET", "HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n2\nhi\n0\n\n", 200, "hi"),
    ("GET", "HTTP/1.1  200 OK\r\nX : y\r\nContent-Length: 2\r\n\r\nhi", 200, "hi"),
    ("GET", "HTTP/1.1 200 OK\r\nY: a\r\n b\r\nContent-Length: 2\r\n\r\nhi", 200, "hi"),
    ("GET", "HTTP/1.1 200 OK\r\nA B: c\r\nnone\r\nContent-Length: 2\r\n\r\nhi", 200, "hi"),
    (
        "GET",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2  \r\nhi\r\n0\r\n\r\n",
        200,
        "hi",
    ),
    // Two readings are possible.
    ("GET", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nhi", 502, ""),
    (
        "GET",
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        502,
        "",
    ),
    ("GET", "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 502, ""),
    ("GET", "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 502, ""),
    ("GET", "HTTP/1.1 200 OK\r\nContent-Length : 2\r\n\r\nhi", 502, ""),
    ("GET", "HTTP/1.1 200 OK\r\nX: a\rb\r\nContent-Length: 2\r\n\r\nhi", 502, ""),
    ("GET", "HTTP/1.1 200 OK\r\nX: a\r\n \r\nContent-Length: 2\r\n\r\nhi", 502, ""),
    ("GET", "http/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", 502, ""),
    ("GET", "HTTP/1.1 101 \r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", 502, ""),
];

#[test]
fn an_odd_response_is_passed_on_if_it_has_one_meaning_and_its_link_is_not_kept() {
    on_both_drivers(|driver| {
        let (tree, origin) = (Tree::new(), Origin::new());
        let config = format!(
            "[server]\nthreads = 1\ndriver = '{driver}'\n\
             [[site]]\nlisten = ['127.0.0.1:0']\n\
             [[site.route]]\nproxy = 'http://{}'\n",
            origin.address()
        );
        tree.write("samum.toml", config.as_str());
        let mut command = std::process::Command::new(SAMUM);
        command.args(["serve", "--config"]).arg(tree.path().join("samum.toml"));
        let server = Server::spawn(&mut command).expect("the server starts");
        for &(method, received, status, body) in CASES {
            let mut client = Client::connect(&server.address()).expect("the server accepts");
            client.set_limit(SOON);
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
