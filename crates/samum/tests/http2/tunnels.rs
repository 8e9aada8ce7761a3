//! WebSockets over HTTP/2 (RFC 8441): a server of HTTP/1.1 behind samum, and clients that ask for tunnels.

use core::time::Duration;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};

use rustix::process::Signal;
use testkit::http2::{END_STREAM, Http2, kind};
use testkit::metrics::Metrics;
use testkit::{Content, Server, Tree, or_skip, skip};

use super::{Certified, connect};
use crate::common::browser::Browser;
use crate::common::{
    SOON, on_both_drivers, on_both_drivers_at_once, python, serve_config, tcp_address, wait_until,
};
use crate::tunnels::{Echo, PYTHON};

const ENABLE_CONNECT_PROTOCOL: u16 = 8;
const PROTOCOL_ERROR: u32 = 1;
const CANCEL: u32 = 8;
const CONNECT_ERROR: u32 = 10;
/// The key of RFC 6455 §1.3, and what a server says to it.
const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
const ACCEPT: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";

/// A server whose connections the test speaks by itself.
struct Origin(TcpListener);

/// A connection of it.
struct Link(TcpStream);

impl Origin {
    fn new() -> Self {
        Self(TcpListener::bind("127.0.0.1:0").expect("an address"))
    }

    fn port(&self) -> u16 {
        self.0.local_addr().expect("it is bound").port()
    }

    /// The next connection, and the head of its request.
    fn accept(&self) -> (Link, String) {
        let (stream, _) = self.0.accept().expect("a connection");
        stream.set_read_timeout(Some(SOON)).expect("a time");
        let mut link = Link(stream);
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.extend(link.take(1));
        }
        (link, String::from_utf8(head).expect("text"))
    }
}

impl Link {
    fn take(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.0.read_exact(&mut bytes).expect("the bytes come");
        bytes
    }

    fn give(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).expect("it takes them");
    }

    /// Agrees to an upgrade with this key.
    fn agree(&mut self, key: &str) {
        let accept = accept_of(key);
        self.give(
            format!(
                "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                 Sec-WebSocket-Accept: {accept}\r\nSec-WebSocket-Protocol: chat\r\n\r\n"
            )
            .as_bytes(),
        );
    }
}

/// The value of a field of a head.
fn field<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let mut fields = head.lines().filter_map(|line| line.split_once(": "));
    fields.find(|(it, _)| it.eq_ignore_ascii_case(name)).map(|(_, value)| value)
}

/// The value with which a server accepts a key. Python computes its hash.
fn accept_of(key: &str) -> String {
    let script = "import sys, hashlib, base64; print(base64.b64encode(hashlib.sha1(\
                  (sys.argv[1] + '258EAFA5-E914-47DA-95CA-C5AB0DC85B11').encode()).digest()).decode())";
    let output =
        std::process::Command::new(python().expect("Python")).args(["-c", script, key]).output();
    let accept = String::from_utf8(output.expect("Python runs").stdout).expect("text");
    accept.trim().to_owned()
}

fn config(driver: &str, tree: &Tree, port: u16) -> String {
    let root = tree.path().display().to_string();
    format!(
        "[server]\nthreads = 1\ndriver = '{driver}'\n\
         [[site]]\nlisten = ['127.0.0.1:0']\nlog = '{root}/log'\n\
         [[site.route]]\nproxy = 'http://127.0.0.1:{port}'\n\
         [[site.route]]\npath = '/files/'\nfiles = '{root}/www'\n\
         [[site.route]]\npath = '/metrics'\nmetrics = true\n"
    )
}

fn stage(driver: &str, tree: &Tree, origin: &Origin) -> Server {
    serve_config(tree, &config(driver, tree, origin.port()))
}

fn tree() -> Tree {
    Tree::new().file("www/a.txt", "a file")
}

/// The fields of a request for a tunnel.
fn ask(protocol: &'static str, path: &'static str) -> Vec<(&'static str, &'static str)> {
    vec![
        (":method", "CONNECT"),
        (":protocol", protocol),
        (":scheme", "http"),
        (":authority", "localhost"),
        (":path", path),
        ("sec-websocket-version", "13"),
        ("sec-websocket-protocol", "chat"),
        ("origin", "http://localhost"),
    ]
}

/// A tunnel with both of its ends.
fn open(client: &mut Http2, origin: &Origin) -> (u32, Link) {
    let stream = client.request(ask("websocket", "/chat?a"), false).unwrap();
    let (mut link, head) = origin.accept();
    link.agree(field(&head, "sec-websocket-key").expect("a key"));
    while client.so_far(stream).status == 0 {
        client.take_frame().unwrap();
    }
    assert_eq!(client.so_far(stream).status, 200);
    (stream, link)
}

/// Receives frames until this many bytes have come through a tunnel.
fn body_of(client: &mut Http2, stream: u32, count: usize) -> Vec<u8> {
    while client.so_far(stream).body.len() < count {
        client.take_frame().unwrap();
    }
    client.so_far(stream).body.clone()
}

/// The settings that a server begins with.
fn settings(client: &mut Http2) -> Vec<(u16, u32)> {
    loop {
        let frame = client.take_frame().unwrap();
        if frame.kind == kind::SETTINGS && frame.flags == 0 {
            let pair = |setting: &[u8]| {
                let (id, value) = setting.split_at(2);
                let id = u16::from_be_bytes(id.try_into().unwrap());
                (id, u32::from_be_bytes(value.try_into().unwrap()))
            };
            return frame.payload.chunks_exact(6).map(pair).collect();
        }
    }
}

#[test]
fn tunnels_are_offered_only_where_a_route_can_take_them() {
    on_both_drivers(|driver| {
        let (tree, origin) = (tree(), Origin::new());
        let server = stage(driver, &tree, &origin);
        let offered = settings(&mut connect(&server));
        assert!(offered.contains(&(ENABLE_CONNECT_PROTOCOL, 1)), "{offered:?}");
        // Only files.
        let server = crate::common::serve(driver, tree.path().join("www"), &[]);
        let mut client = connect(&server);
        let offered = settings(&mut client);
        assert!(offered.iter().all(|(id, _)| *id != ENABLE_CONNECT_PROTOCOL), "{offered:?}");
        let stream = client.request(ask("websocket", "/a.txt"), false).unwrap();
        assert_eq!(client.reply(stream).unwrap().reset, Some(PROTOCOL_ERROR));
    });
}

#[test]
fn rfc8441_5_bytes_pass_both_ways_to_a_server_of_http1() {
    or_skip!(python());
    on_both_drivers(|driver| {
        let (tree, origin) = (tree(), Origin::new());
        let server = stage(driver, &tree, &origin);
        let mut client = connect(&server);
        let mut fields = ask("websocket", "/chat?a");
        // A key of the client has no meaning here.
        fields.push(("sec-websocket-key", KEY));
        let stream = client.request(fields, false).unwrap();
        let (mut link, head) = origin.accept();
        assert!(head.starts_with("GET /chat?a HTTP/1.1\r\n"), "{head}");
        for (name, value) in [
            ("host", "localhost"),
            ("upgrade", "websocket"),
            ("connection", "upgrade"),
            ("sec-websocket-version", "13"),
            ("sec-websocket-protocol", "chat"),
            ("origin", "http://localhost"),
        ] {
            assert_eq!(field(&head, name), Some(value), "{head}");
        }
        assert_eq!(head.to_ascii_lowercase().matches("sec-websocket-key").count(), 1, "{head}");
        for name in ["content-length", "transfer-encoding"] {
            assert_eq!(field(&head, name), None, "{head}");
        }
        let key = field(&head, "sec-websocket-key").unwrap();
        assert!(key != KEY && key.len() == KEY.len(), "{head}");
        // The server behind gets early bytes when it has agreed.
        client.upload_part(stream, b"early ").unwrap();
        link.agree(key);
        link.give(b"hello");
        assert_eq!(body_of(&mut client, stream, 5), b"hello");
        let reply = client.so_far(stream);
        assert_eq!((reply.status, reply.field("sec-websocket-protocol")), (200, Some("chat")));
        for name in ["upgrade", "connection", "sec-websocket-accept", "content-length"] {
            assert_eq!(reply.field(name), None, "{name}");
        }
        client.upload_part(stream, b"and late").unwrap();
        assert_eq!(link.take(14), b"early and late");
        // Other requests go on at the same time, and so do other tunnels.
        assert_eq!(client.ask("/files/a.txt").unwrap().body, b"a file");
        let (second, mut other) = open(&mut client, &origin);
        other.give(b"second");
        assert_eq!(body_of(&mut client, second, 6), b"second");
        // More than any window, both ways.
        let bytes = Content::pseudo_random(1, 1_000_000).read(0, 1_000_000);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let got = link.take(bytes.len());
                assert!(got == bytes);
                link.give(&got);
            });
            client.upload_part(stream, &bytes).unwrap();
            let got = body_of(&mut client, stream, 5 + bytes.len());
            assert!(got[5..] == bytes);
        });
        // The end of one direction is that of the connection after.
        client.frame(kind::DATA, END_STREAM, stream, b"bye").unwrap();
        assert_eq!(link.take(3), b"bye");
        assert_eq!(link.0.read(&mut [0]).unwrap(), 0);
        link.give(b"and the last");
        drop(link);
        let reply = client.reply(stream).unwrap();
        assert!(reply.has_ended && reply.body.ends_with(b"and the last"));
        // The server's end ends the stream.
        drop(other);
        assert!(client.reply(second).unwrap().has_ended);
        assert_eq!(client.ask("/files/a.txt").unwrap().body, b"a file");
        let log = || fs::read_to_string(tree.path().join("log")).unwrap_or_default();
        let line = format!("\"CONNECT /chat?a HTTP/2.0\" 200 {}", 5 + bytes.len() + 12);
        assert!(wait_until(SOON, || log().contains(&line)), "{}", log());
    });
}

#[test]
fn what_is_no_websocket_is_no_tunnel() {
    on_both_drivers(|driver| {
        let (tree, origin) = (tree(), Origin::new());
        let server = stage(driver, &tree, &origin);
        let mut client = connect(&server);
        // Other protocols, and routes that have none.
        for (protocol, path, status) in [
            ("connect-udp", "/chat", 501),
            ("h2c", "/chat", 501),
            ("websocket", "/files/none", 404),
        ] {
            let stream = client.request(ask(protocol, path), false).unwrap();
            let reply = client.reply(stream).unwrap();
            assert_eq!((reply.status, reply.reset), (status, None), "{protocol} {path}");
        }
        // A client would take a success for the beginning of its tunnel.
        let stream = client.request(ask("websocket", "/files/a.txt"), false).unwrap();
        let reply = client.reply(stream).unwrap();
        assert_eq!(reply.status, 501);
        assert!(!reply.body.starts_with(b"a file"));
        // A tunnel that has ended already.
        let stream = client.request(ask("websocket", "/chat"), true).unwrap();
        assert_eq!(client.reply(stream).unwrap().status, 400);
        // Answers of a server.
        let accept = format!("Sec-WebSocket-Accept: {ACCEPT}\r\n");
        let switch =
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n";
        for (answer, status) in [
            ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nno".to_owned(), 501),
            ("HTTP/1.1 204 No Content\r\n\r\n".to_owned(), 501),
            ("HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno".to_owned(), 403),
            ("HTTP/1.1 302 Found\r\nLocation: /b\r\nContent-Length: 0\r\n\r\n".to_owned(), 302),
            (format!("{switch}\r\n"), 502),
            // The hash of another key.
            (format!("{switch}{accept}\r\n"), 502),
            (format!("{}\r\n", switch.replace("websocket", "tcp")), 502),
        ] {
            let stream = client.request(ask("websocket", "/chat"), false).unwrap();
            let (mut link, _) = origin.accept();
            client.frame(kind::DATA, 0, stream, b"early").unwrap();
            link.give(answer.as_bytes());
            let reply = client.reply(stream).unwrap();
            assert_eq!(reply.status, status, "{answer:?}");
            assert_eq!(reply.field("upgrade"), None);
            if status == 502 {
                assert_eq!(
                    link.0.read(&mut [0; 9]).unwrap_or(0),
                    0,
                    "no byte of the tunnel passes"
                );
            }
        }
        assert_eq!(client.ask("/files/a.txt").unwrap().body, b"a file");
        assert_eq!(client.goaways, []);
    });
}

#[test]
fn a_tunnel_that_breaks_resets_its_stream_alone() {
    or_skip!(python());
    on_both_drivers(|driver| {
        let (tree, origin) = (tree(), Origin::new());
        let server = stage(driver, &tree, &origin);
        let mut client = connect(&server);
        let (broken, link) = open(&mut client, &origin);
        let (cancelled, mut other) = open(&mut client, &origin);
        // The server resets its connection.
        rustix::net::sockopt::set_socket_linger(&link.0, Some(Duration::ZERO)).unwrap();
        drop(link);
        assert_eq!(client.reply(broken).unwrap().reset, Some(CONNECT_ERROR));
        // The client resets its stream.
        client.frame(kind::RST_STREAM, 0, cancelled, &CANCEL.to_be_bytes()).unwrap();
        assert_eq!(other.0.read(&mut [0]).unwrap_or(0), 0);
        // The client leaves.
        let (_, mut last) = open(&mut client, &origin);
        assert_eq!(client.ask("/files/a.txt").unwrap().body, b"a file");
        client.stream().shutdown(Shutdown::Both).unwrap();
        assert_eq!(last.0.read(&mut [0]).unwrap_or(0), 0);
    });
}

/// Tunnels may be silent, but are not without end: the limits are those of HTTP/1.1.
#[test]
fn tunnels_have_deadlines_and_limits() {
    or_skip!(python());
    on_both_drivers_at_once(|driver| {
        let (tree, origin) = (tree(), Origin::new());
        let times = "timeout-send = 1\ntimeout-header = 1\ntimeout-idle = 1\nrate-min = 1000\n";
        let config = config(driver, &tree, origin.port())
            .replacen("threads = 1\n", &format!("threads = 1\n{times}"), 1)
            .replacen("[[site.route]]\n", "[[site.route]]\ntimeout-upstream = 6\n", 1);
        let server = serve_config(&tree, &config);
        let mut client = connect(&server);
        let (silent, mut link) = open(&mut client, &origin);
        let state = || {
            let page = connect(&server).ask("/metrics").unwrap();
            let metrics = Metrics::parse(str::from_utf8(&page.body).unwrap()).unwrap();
            metrics.sum("samum_connections", &[("state", "tunnel")]).to_string()
        };
        assert!(wait_until(SOON, || state() == "1"));
        // Four times the time of clients that have to do something.
        std::thread::sleep(Duration::from_secs(4));
        link.give(b"still here");
        assert_eq!(body_of(&mut client, silent, 10), b"still here");
        client.frame(kind::DATA, 0, silent, b"so am I").unwrap();
        assert_eq!(link.take(7), b"so am I");
        // A client that receives nothing is not waited for.
        client.keep_windows();
        link.give(&[0; 200_000]);
        // It is the only stream, so the connection ends with it.
        client.read_to_end().unwrap();
        assert!(!client.so_far(silent).has_ended);
        assert_eq!(link.0.read(&mut [0]).unwrap_or(0), 0);
        // Silence at both ends ends the tunnel, as with HTTP/1.1.
        let mut client = connect(&server);
        let (silent, _link) = open(&mut client, &origin);
        assert!(client.reply(silent).unwrap().is_over());
    });
}

/// Many tunnels are no way around the streams of gateways, and hold up no other request.
#[test]
fn more_tunnels_than_the_limit_are_refused() {
    or_skip!(python());
    on_both_drivers(|driver| {
        let (tree, origin) = (tree(), Origin::new());
        let server = stage(driver, &tree, &origin);
        let mut client = connect(&server);
        let _tunnels: Vec<_> = (0..32).map(|_| open(&mut client, &origin)).collect();
        let stream = client.request(ask("websocket", "/chat"), false).unwrap();
        assert_eq!(client.reply(stream).unwrap().status, 503);
        let stream = client.get("/other").unwrap();
        let (mut link, head) = origin.accept();
        assert!(head.starts_with("GET /other "), "{head}");
        link.give(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        assert_eq!(client.reply(stream).unwrap().body, b"ok");
    });
}

/// At a shutdown tunnels are announced to end, and are cut when its time is over.
#[test]
fn a_shutdown_ends_tunnels_as_those_of_http1() {
    or_skip!(python());
    on_both_drivers_at_once(|driver| {
        let (tree, origin) = (tree(), Origin::new());
        let config = config(driver, &tree, origin.port()).replacen(
            "threads = 1\n",
            "threads = 1\ntimeout-drain = 2\n",
            1,
        );
        let mut server = serve_config(&tree, &config);
        let mut client = connect(&server);
        let (stream, mut link) = open(&mut client, &origin);
        server.signal(Signal::TERM).unwrap();
        while client.goaways.is_empty() {
            client.take_frame().unwrap();
        }
        // It goes on until then.
        link.give(b"hello");
        assert_eq!(body_of(&mut client, stream, 5), b"hello");
        client.read_to_end().unwrap();
        assert_eq!(link.0.read(&mut [0]).unwrap_or(0), 0);
        let said = server.wait_for_stderr("1 of them a tunnel", SOON);
        assert!(said.is_some(), "{:?}", server.stderr());
    });
}

/// A browser opens a WebSocket on the connection that it has, to a server that knows nothing of HTTP/2.
#[test]
fn a_browser_speaks_with_a_websocket_server_by_http2() {
    let certified = Certified::new();
    on_both_drivers(|driver| {
        let mut browser = match Browser::with(&["--ignore-certificate-errors"]) {
            Ok(browser) => browser,
            Err(reason) => skip!("{reason}"),
        };
        let echo = or_skip!(Echo::start(PYTHON));
        let page = "<!DOCTYPE html><title>t</title><script>
            window.got = []; window.ended = 0;
            const socket = new WebSocket(`wss://${location.host}/chat`);
            socket.binaryType = 'arraybuffer';
            const large = 'x'.repeat(300000);
            socket.onopen = () => { socket.send('hello'); socket.send(new Uint8Array(70000)); socket.send(large); };
            socket.onmessage = m => {
              window.got.push(m.data.byteLength ?? m.data.length);
              if (window.got.length == 3) socket.close(1000);
            };
            socket.onclose = e => window.ended = e.wasClean ? e.code : -e.code;
            socket.onerror = () => window.failed = 1;
            </script>";
        let tree = Tree::new().file("www/index.html", page);
        let root = tree.path().display().to_string();
        let (certificate, key) = certified.files.split_once(',').unwrap();
        let server = serve_config(
            &tree,
            &format!(
                "[server]\nthreads = 1\ndriver = '{driver}'\n\
                 [[site]]\nlisten = [{{ address = '127.0.0.1:0', tls = true }}]\n\
                 tls = {{ certificate = '{certificate}', key = '{key}' }}\nlog = '{root}/log'\n\
                 [[site.route]]\nfiles = '{root}/www'\n\
                 [[site.route]]\npath = '/chat'\nproxy = 'http://127.0.0.1:{}'\n",
                echo.port
            ),
        );
        browser.load(&format!("https://{}/", tcp_address(&server)));
        browser.wait_for("Math.abs(window.ended) > 0 || window.failed == 1");
        let log = || fs::read_to_string(tree.path().join("log")).unwrap_or_default();
        let got = browser.value("window.got.join()");
        assert_eq!(got, "5,70000,300000", "{:?} {}", browser.value("window.ended"), log());
        assert_eq!(browser.value("window.ended"), 1000);
        let is_there = || log().contains("\"CONNECT /chat HTTP/2.0\" 200 ");
        assert!(wait_until(SOON, is_there), "{}", log());
    });
}
