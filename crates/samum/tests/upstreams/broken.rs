//! Clients that break off the bodies of their requests, before and after the beginning of the response.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;

use testkit::metrics::Metrics;
use testkit::{Client, Server, Tree, request};

use super::bodies::{Origin, read_until};
use crate::common::{SOON, ask, on_both_drivers, serve_config, wait_until};

const CHUNKED: &str = "POST /x\nTransfer-Encoding: chunked";
const LENGTH: &str = "POST /x\nContent-Length: 10";

/// The way in which a client breaks its body off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Break {
    /// It sends bytes that are no chunk.
    BadChunk,
    /// It ends its side.
    Fin,
}

/// All ways, each with the head of a request and the beginning of its body.
const BREAKS: [(Break, &str, &str); 4] = [
    (Break::BadChunk, CHUNKED, "5\r\n01234\r\n"),
    (Break::Fin, CHUNKED, "5\r\n01234\r\n"),
    (Break::Fin, CHUNKED, "5\r\n012"),
    (Break::Fin, LENGTH, "01234"),
];

impl Break {
    fn by(self, client: &mut Client) {
        match self {
            Self::BadChunk => client.send("no length\r\n").expect("the server receives"),
            Self::Fin => client.shutdown_write().expect("connected"),
        }
    }
}

/// Waits until the server closes a link, in whatever way.
#[track_caller]
fn expect_end(link: &mut TcpStream) {
    if let Err(error) = link.read_to_end(&mut Vec::new()) {
        assert_eq!(error.kind(), ErrorKind::ConnectionReset, "the link is not closed");
    }
}

struct Stage {
    tree: Tree,
    origin: Origin,
    server: Server,
}

impl Stage {
    fn new(driver: &str, keys: &str) -> Self {
        let (tree, origin) = (Tree::new(), Origin::new());
        let (root, url) = (tree.path().display(), origin.address());
        let config = format!(
            "[server]\nthreads = 1\ndriver = '{driver}'\n\
             [[site]]\nlisten = ['127.0.0.1:0']\n\
             log = {{ file = '{root}/access.log', format = 'json' }}\n\
             [[site.route]]\nproxy = 'http://{url}'\n{keys}\n\
             [[site.route]]\npath = '/metrics'\nmetrics = true\n"
        );
        let server = serve_config(&tree, &config);
        Self { tree, origin, server }
    }

    /// A client that has sent this, and the link through which the beginning of a body has come.
    fn begin(&self, head: &str, part: &str) -> (Client, TcpStream) {
        let mut client = self.connect();
        client.send(request(head) + part).expect("the server receives");
        let mut link = self.origin.accept();
        read_until(&mut link, if part.ends_with("012") { "\r\n\r\n" } else { part });
        (client, link)
    }

    fn connect(&self) -> Client {
        let mut client = Client::connect(&self.server.address()).expect("the server accepts");
        client.set_limit(SOON);
        client
    }

    /// Waits for a line of the access log with these members, in this order.
    #[track_caller]
    fn expect_line(&self, members: &[&str]) {
        let path = self.tree.path().join("access.log");
        let log = || std::fs::read_to_string(&path).unwrap_or_default();
        let has_all = |line: &str| {
            let mut rest = line;
            members.iter().all(|member| match rest.split_once(member) {
                Some((_, behind)) => {
                    rest = behind;
                    true
                }
                None => false,
            })
        };
        assert!(wait_until(SOON, || log().lines().any(has_all)), "no {members:?} in {}", log());
    }

    fn events(&self, event: &str) -> f64 {
        let text = ask(&self.server, "GET /metrics").body;
        let metrics = Metrics::parse(core::str::from_utf8(&text).expect("UTF-8")).expect("metrics");
        metrics.sum("samum_proxy_requests_total", &[("event", event)])
    }
}

/// The server of the route need not do anything: it would wait for the rest of the body.
#[test]
fn a_response_that_has_begun_is_cut_off_with_the_body_of_its_request() {
    on_both_drivers(|driver| {
        for (how, head, part) in BREAKS {
            for (fields, begun) in
                [("Content-Length: 6", "ear"), ("Transfer-Encoding: chunked", "3\r\near\r\n")]
            {
                let stage = Stage::new(driver, "");
                let (mut client, mut link) = stage.begin(head, part);
                let response = format!("HTTP/1.1 200 OK\r\n{fields}\r\n\r\n{begun}");
                link.write_all(response.as_bytes()).expect("the server receives");
                let mut seen = Vec::new();
                while !seen.ends_with(begun.as_bytes()) {
                    seen.extend(client.read_exactly(1).expect("its beginning"));
                }
                how.by(&mut client);
                expect_end(&mut link);
                assert_eq!(client.read_to_end().unwrap_or_default(), b"", "{how:?} {fields}");
                stage.expect_line(&["\"status\":200", "\"cut\":\"client\""]);
                let line = "the client waits no more; its response is cut off";
                assert!(stage.server.wait_for_stderr(line, SOON).is_some());
                assert!(
                    !stage.server.stderr().iter().any(|line| line.contains("could not be made"))
                );
                assert_eq!((stage.events("client-left"), stage.events("failed")), (1.0, 0.0));
            }
        }
    });
}

/// A client of HTTP/1.0 would take the end of the connection for that of the response.
#[test]
fn a_response_that_ends_with_its_connection_is_reset_if_its_request_breaks_off() {
    on_both_drivers(|driver| {
        let stage = Stage::new(driver, "");
        let mut client = stage.connect();
        client.send("POST /x HTTP/1.0\r\nContent-Length: 10\r\n\r\n01234").expect("received");
        let mut link = stage.origin.accept();
        read_until(&mut link, "01234");
        let response = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\near\r\n";
        link.write_all(response.as_bytes()).expect("the server receives");
        let mut seen = Vec::new();
        while !seen.ends_with(b"ear") {
            seen.extend(client.read_exactly(1).expect("its beginning"));
        }
        client.shutdown_write().expect("connected");
        expect_end(&mut link);
        assert!(client.read_to_end().is_err(), "it looks whole");
        stage.expect_line(&["\"status\":200", "\"cut\":\"client\""]);
    });
}

#[test]
fn a_request_that_is_broken_off_before_its_response_has_a_line_in_the_log() {
    on_both_drivers(|driver| {
        for keys in ["", "half-close = true"] {
            for (how, head, part) in BREAKS {
                let stage = Stage::new(driver, keys);
                let (mut client, mut link) = stage.begin(head, part);
                how.by(&mut client);
                if how == Break::BadChunk {
                    let response = client.response().expect("a response");
                    assert_eq!(response.status, 400);
                    assert_eq!(response.header("Connection"), Some("close"));
                    stage.expect_line(&["\"path\":\"/x\"", "\"status\":400"]);
                } else {
                    stage.expect_line(&["\"path\":\"/x\"", "\"status\":499", "\"cut\":\"client\""]);
                }
                assert_eq!(client.read_to_end().expect("the end"), b"", "{how:?} {keys}");
                expect_end(&mut link);
            }
        }
    });
}

#[test]
fn a_request_that_is_broken_off_behind_another_one_has_no_response() {
    on_both_drivers(|driver| {
        let stage = Stage::new(driver, "half-close = true");
        let (mut client, mut first) = stage.begin("GET /first", "\r\n\r\n");
        let (head, part) = ("GET /second\nContent-Length: 10", "01234");
        client.send(request(head) + part).expect("the server receives");
        client.shutdown_write().expect("connected");
        std::thread::sleep(core::time::Duration::from_millis(200));
        first.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").expect("received");
        assert_eq!(client.response().expect("a response").status, 204);
        assert_eq!(client.read_to_end().expect("the end"), b"");
        stage.expect_line(&["\"path\":\"/second\"", "\"status\":499", "\"cut\":\"client\""]);
    });
}

#[test]
fn a_client_that_has_sent_all_of_its_request_may_end_its_side_within_the_response() {
    on_both_drivers(|driver| {
        for (head, body) in [(LENGTH, "0123456789"), (CHUNKED, "5\r\n01234\r\n0\r\n\r\n")] {
            let stage = Stage::new(driver, "");
            let (mut client, mut link) = stage.begin(head, body);
            link.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\near").expect("received");
            let mut seen = Vec::new();
            while !seen.ends_with(b"ear") {
                seen.extend(client.read_exactly(1).expect("its beginning"));
            }
            client.shutdown_write().expect("connected");
            std::thread::sleep(core::time::Duration::from_millis(200));
            link.write_all(b"ly.").expect("received");
            assert_eq!(client.read_to_end().expect("the end"), b"ly.");
            assert_eq!(stage.events("client-left").to_bits(), 0_f64.to_bits());
        }
    });
}

/// It costs its server nothing any more.
#[test]
fn a_response_that_its_server_has_completed_is_sent_to_its_end() {
    on_both_drivers(|driver| {
        for (how, head, part) in BREAKS {
            let stage = Stage::new(driver, "buffer = '16MiB'");
            let (mut client, mut link) = stage.begin(head, part);
            // More than the sockets hold.
            let content = vec![b'x'; 12 << 20];
            let head =
                format!("HTTP/1.1 403 Forbidden\r\nContent-Length: {}\r\n\r\n", content.len());
            link.write_all(head.as_bytes()).expect("the server receives");
            link.write_all(&content).expect("the server receives");
            expect_end(&mut link);
            how.by(&mut client);
            let response = client.response().unwrap_or_else(|error| panic!("{error}: {how:?}"));
            assert_eq!(response.status, 403);
            assert!(response.body == content, "{how:?}");
        }
    });
}
