//! `max-body`: what a server sees of bodies that are as long as they may be, or longer.

use core::net::SocketAddr;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};

use testkit::metrics::Metrics;
use testkit::{Client, Server, Tree, request};

use crate::common::{SOON, ask, on_both_drivers, serve_config, wait_until};

/// A server of a proxy, whose requests the test answers.
pub(crate) struct Origin(TcpListener);

impl Origin {
    pub(crate) fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("an address");
        listener.set_nonblocking(true).expect("a flag");
        Self(listener)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.0.local_addr().expect("bound")
    }

    /// The next connection.
    #[track_caller]
    pub(crate) fn accept(&self) -> TcpStream {
        let mut found = None;
        wait_until(SOON, || {
            found = self.0.accept().ok();
            found.is_some()
        });
        let (stream, _) = found.expect("a connection");
        stream.set_nonblocking(false).expect("a flag");
        stream.set_read_timeout(Some(SOON)).expect("not zero");
        stream
    }

    #[track_caller]
    pub(crate) fn expect_nothing(&self) {
        let error = self.0.accept().expect_err("no connection");
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
    }
}

/// Reads until this has come; returns what came.
#[track_caller]
pub(crate) fn read_until(stream: &mut TcpStream, end: &str) -> String {
    let mut text = String::new();
    while !text.ends_with(end) {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap_or_else(|error| panic!("{error} behind {text:?}"));
        text.push(char::from(byte[0]));
    }
    text
}

/// Reads to the end, however the connection ends.
fn read_rest(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes);
    String::from_utf8(bytes).expect("UTF-8")
}

/// A site whose route to the origin takes bodies of 10 bytes, with a page for those that are longer.
fn serve(driver: &str, tree: &Tree, origin: &Origin) -> Server {
    let (root, url) = (tree.path().display(), origin.address());
    let config = format!(
        "[server]\nthreads = 1\ndriver = '{driver}'\n\
         [[site]]\nlisten = ['127.0.0.1:0']\nerrors = {{ 413 = '/too-long.html' }}\nmax-body = 10\n\
         headers = [{{ set = {{ X-Site = 'ours' }} }}]\nlog = '{root}/access.log'\n\
         [[site.route]]\npath = '/app/'\nproxy = 'http://{url}'\n\
         [[site.route]]\npath = '/any/'\nproxy = 'http://{url}'\nmax-body = 'none'\n\
         [[site.route]]\npath = '/metrics'\nmetrics = true\n\
         [[site.route]]\nfiles = '{root}/www'\n"
    );
    serve_config(tree, &config)
}

fn connect(server: &Server) -> Client {
    let mut client = Client::connect(&server.address()).expect("the server accepts");
    client.set_limit(SOON);
    client
}

/// Checks that the client gets the page of the site, and that its connection is closed then.
#[track_caller]
fn expect_refusal(client: &mut Client) {
    let response = client.response().expect("a response");
    assert_eq!((response.status, &response.body[..]), (413, &b"too long"[..]));
    assert_eq!(response.header("Connection"), Some("close"));
    assert_eq!(response.header("X-Site"), Some("ours"));
    assert_eq!(client.read_to_end().expect("the end"), b"");
}

const CHUNKED: &str = "POST /app/x\nTransfer-Encoding: chunked";

#[test]
fn a_body_may_have_as_many_bytes_as_its_route_says() {
    on_both_drivers(|driver| {
        let (tree, origin) = (Tree::new().file("www/too-long.html", "too long"), Origin::new());
        let server = serve(driver, &tree, &origin);
        for (head, body, framed) in [
            ("POST /app/x\nContent-Length: 10", "0123456789", "0123456789"),
            (CHUNKED, "6\r\n012345\r\n4\r\n6789\r\n0\r\n\r\n", "0\r\n\r\n"),
            ("POST /any/x\nContent-Length: 11", "0123456789a", "0123456789a"),
        ] {
            let mut client = connect(&server);
            client.send(request(head) + body).expect("the server receives");
            let mut link = origin.accept();
            let seen = read_until(&mut link, framed);
            assert!(seen.starts_with("POST /"), "{seen}");
            link.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
                .expect("the server receives");
            drop(link);
            let response = client.response().expect("a response");
            assert_eq!((response.status, &response.body[..]), (200, &b"ok"[..]), "{head}");
            assert_eq!(response.header("Connection"), None, "{head}");
        }
    });
}

#[test]
fn a_body_that_is_announced_to_be_longer_reaches_no_server() {
    on_both_drivers(|driver| {
        let (tree, origin) = (Tree::new().file("www/too-long.html", "too long"), Origin::new());
        let server = serve(driver, &tree, &origin);
        for head in [
            "POST /app/x\nContent-Length: 11",
            "PUT /app/x\nContent-Length: 11\nExpect: 100-continue",
            "POST /app/x\nContent-Length: 18446744073709551615\nExpect: 100-continue",
            "GET /app/x\nContent-Length: 2000000",
            "POST /app/x\nContent-Length: 2000000\nConnection: close",
        ] {
            let mut client = connect(&server);
            // The response comes before the body.
            client.send(request(head)).expect("the server receives");
            expect_refusal(&mut client);
        }
        // A client that sends all of it first can read the answer.
        let mut client = connect(&server);
        client.send(request("POST /app/x\nContent-Length: 1000000")).expect("the server receives");
        client.send(vec![b'x'; 1_000_000]).expect("the server receives");
        expect_refusal(&mut client);
        origin.expect_nothing();
        // Other routes of the site go on skipping bodies.
        let mut client = connect(&server);
        client.send(request("POST /x\nContent-Length: 11") + "0123456789a").expect("received");
        assert_eq!(client.response().expect("a response").status, 405);
        client.send(request("GET /too-long.html")).expect("the server receives");
        assert_eq!(client.response().expect("a response").status, 200);
    });
}

#[test]
fn a_body_in_chunks_that_grows_too_long_is_refused_and_its_server_sees_no_end_of_it() {
    on_both_drivers(|driver| {
        let (tree, origin) = (Tree::new().file("www/too-long.html", "too long"), Origin::new());
        let mut server = serve(driver, &tree, &origin);
        for expects in ["", "\nExpect: 100-continue"] {
            let mut client = connect(&server);
            client.send(request(&format!("{CHUNKED}{expects}"))).expect("the server receives");
            if !expects.is_empty() {
                assert_eq!(client.response().expect("an invitation").status, 100);
            }
            client.send("6\r\n012345\r\n").expect("the server receives");
            let mut link = origin.accept();
            read_until(&mut link, "012345\r\n");
            // Much of it is on its way when it is refused.
            client.send(format!("100000\r\n{}", "x".repeat(500_000))).expect("received");
            expect_refusal(&mut client);
            assert_eq!(read_rest(&mut link), "", "the server sees no byte more, and no last chunk");
        }
        // All of it comes in one piece, after another request that has not been answered.
        let mut client = connect(&server);
        client.send(request("GET /app/first")).expect("the server receives");
        let mut link = origin.accept();
        read_until(&mut link, "\r\n\r\n");
        client.send(request(CHUNKED) + "b\r\n0123456789a\r\n0\r\n\r\n").expect("received");
        link.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").expect("received");
        assert_eq!(client.response().expect("a response").status, 204);
        expect_refusal(&mut client);
        server.terminate().expect("it ends");
        let log = std::fs::read_to_string(tree.path().join("access.log")).expect("a log");
        assert_eq!(log.matches("\"POST /app/x HTTP/1.1\" 413 8 ").count(), 3, "{log}");
    });
}

/// The number of requests that were refused for this reason.
fn refused(server: &Server, reason: &str) -> f64 {
    let text = ask(server, "GET /metrics").body;
    let metrics = Metrics::parse(core::str::from_utf8(&text).expect("UTF-8")).expect("metrics");
    metrics.sum("samum_requests_refused_total", &[("reason", reason)])
}

#[test]
fn a_response_that_has_begun_is_cut_off_when_the_body_grows_too_long() {
    on_both_drivers(|driver| {
        let (tree, origin) = (Tree::new(), Origin::new());
        tree.write("www/too-long.html", "too long");
        let server = serve(driver, &tree, &origin);
        let mut client = connect(&server);
        client.send(request(CHUNKED) + "6\r\n012345\r\n").expect("the server receives");
        let mut link = origin.accept();
        read_until(&mut link, "012345\r\n");
        let head = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n";
        link.write_all(format!("{head}ear").as_bytes()).expect("the server receives");
        // The head has come before the rest of the body leaves.
        let begun = client.read_exactly(12).expect("a response");
        assert_eq!(begun, b"HTTP/1.1 200");
        client.send("5\r\nabcde\r\n0\r\n\r\n").expect("the server receives");
        // The server of the route does not have to do anything.
        assert_eq!(read_rest(&mut link), "", "no end of the body");
        let rest = client.read_to_end().expect("the connection is closed");
        assert!(rest.ends_with(b"\r\n\r\near"), "{}", rest.escape_ascii());
        let line = "the body of a request is longer than `max-body`; its response is cut off";
        assert!(server.wait_for_stderr(line, SOON).is_some());
    });
}

#[test]
fn bodies_that_are_too_long_are_counted() {
    on_both_drivers(|driver| {
        let (tree, origin) = (Tree::new().file("www/too-long.html", "too long"), Origin::new());
        let server = serve(driver, &tree, &origin);
        assert_eq!(refused(&server, "body"), 0.0);
        let mut client = connect(&server);
        client.send(request("POST /app/x\nContent-Length: 11")).expect("the server receives");
        expect_refusal(&mut client);
        assert_eq!(refused(&server, "body"), 1.0);
        let mut client = connect(&server);
        client.send(request(CHUNKED) + "b\r\n0123456789a\r\n").expect("the server receives");
        expect_refusal(&mut client);
        assert_eq!(refused(&server, "body"), 2.0);
        // The framing is at fault.
        let mut client = connect(&server);
        client.send(request(CHUNKED) + "x\r\n").expect("the server receives");
        assert_eq!(client.response().expect("a response").status, 400);
        assert_eq!(refused(&server, "body"), 2.0);
    });
}

#[test]
fn a_request_whose_client_ends_its_side_within_the_body_is_in_the_log() {
    on_both_drivers(|driver| {
        let (tree, origin) = (Tree::new().directory("www"), Origin::new());
        let server = serve(driver, &tree, &origin);
        let log = || std::fs::read_to_string(tree.path().join("access.log")).unwrap_or_default();
        for (count, head, part) in [
            (1, "POST /app/x\nContent-Length: 10", "01234"),
            (2, CHUNKED, "5\r\n01234\r\n"),
            (3, CHUNKED, ""),
        ] {
            let mut client = connect(&server);
            client.send(request(head) + part).expect("the server receives");
            // The server of the route has it.
            let mut link = origin.accept();
            read_until(&mut link, if part.is_empty() { "\r\n\r\n" } else { part });
            client.shutdown_write().expect("connected");
            assert_eq!(client.read_to_end().expect("the end"), b"");
            read_rest(&mut link);
            let lines = || log().matches("\"POST /app/x HTTP/1.1\" 499 0 ").count();
            assert!(wait_until(SOON, || lines() == count), "{head}: {}", log());
        }
        assert_eq!(log().lines().count(), 3, "{}", log());
    });
}

/// The request waits behind another one with its body, and begins when that is answered.
#[test]
fn a_body_that_grows_too_long_behind_another_request_is_in_the_log_of_its_site() {
    on_both_drivers(|driver| {
        let (tree, origin) = (Tree::new().directory("www"), Origin::new());
        let (root, url) = (tree.path().display(), origin.address());
        let config = format!(
            "[server]\nthreads = 1\ndriver = '{driver}'\n\
             [[site]]\nlisten = ['127.0.0.1:0']\nlog = '{root}/default.log'\ndefault = true\n\
             [[site.route]]\nfiles = '{root}/www'\n\
             [[site]]\nhosts = ['b.example']\nlisten = ['127.0.0.1:0']\nlog = '{root}/b.log'\n\
             [[site.route]]\nproxy = 'http://{url}'\nmax-body = 10\n"
        );
        let mut server = serve_config(&tree, &config);
        let mut client = connect(&server);
        client.send(request("GET /first\nHost: b.example")).expect("the server receives");
        let mut first = origin.accept();
        read_until(&mut first, "\r\n\r\n");
        let head = "GET /second\nHost: b.example\nTransfer-Encoding: chunked";
        client.send(request(head) + "6\r\n012345\r\n").expect("the server receives");
        first.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").expect("received");
        assert_eq!(client.response().expect("a response").status, 204);
        read_until(&mut first, "012345\r\n");
        client.send("5\r\nabcde\r\n0\r\n\r\n").expect("the server receives");
        read_rest(&mut first);
        assert_eq!(client.response().expect("a response").status, 413);
        server.terminate().expect("it ends");
        let log = |name: &str| std::fs::read_to_string(tree.path().join(name)).expect("a log");
        assert_eq!(log("b.log").matches("\"GET /second HTTP/1.1\" 413 ").count(), 1);
        assert_eq!(log("default.log"), "");
    });
}
