//! Requests of HTTP/2 that would mean something else in HTTP/1: a recording upstream gets none of them. What it gets has the
//! meaning that it had in HTTP/2.

use core::net::SocketAddr;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use testkit::http2::{END_HEADERS, END_STREAM, block, kind, pseudo};
use testkit::{Server, Tree};

use super::connect;
use crate::common::{on_both_drivers, serve_config};

const PROTOCOL_ERROR: u32 = 1;

/// A server of HTTP/1.1 that keeps what it is asked, byte for byte.
struct Recorder {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<Request>>>,
}

/// A whole request: the lines of its head, its body, and the lines after a body in chunks.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Request {
    lines: Vec<String>,
    body: Vec<u8>,
    trailers: Vec<String>,
}

impl Recorder {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("an address");
        let address = listener.local_addr().expect("it is bound");
        let requests = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&requests);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let kept = Arc::clone(&kept);
                // A connection that ends within a request has recorded nothing of it.
                thread::spawn(move || while record(&stream, &kept).is_some() {});
            }
        });
        Self { address, requests }
    }

    /// The requests since the last call.
    fn take(&self) -> Vec<Request> {
        core::mem::take(&mut self.requests.lock().expect("no thread panics"))
    }
}

/// Records one request and answers it; `None` at the end of the connection.
fn record(stream: &TcpStream, kept: &Mutex<Vec<Request>>) -> Option<()> {
    let mut reader = BufReader::with_capacity(1, stream);
    let line = |reader: &mut BufReader<&TcpStream>| {
        let mut line = Vec::new();
        reader.read_until(b'\n', &mut line).ok()?;
        let line = line.strip_suffix(b"\r\n")?;
        Some(line.iter().map(|byte| char::from(*byte)).collect::<String>())
    };
    let section = |reader: &mut BufReader<&TcpStream>| {
        let mut lines = Vec::new();
        loop {
            match line(reader)? {
                end if end.is_empty() => return Some(lines),
                line => lines.push(line),
            }
        }
    };
    let lines = section(&mut reader)?;
    let field = |name: &str| {
        let mut fields = lines.iter().filter_map(|line| line.split_once(": "));
        fields.find(|(it, _)| it.eq_ignore_ascii_case(name)).map(|(_, value)| value.to_owned())
    };
    let (mut body, mut trailers) = (Vec::new(), Vec::new());
    let mut take = |reader: &mut BufReader<&TcpStream>, count: usize| {
        let mut bytes = vec![0; count];
        reader.read_exact(&mut bytes).ok()?;
        body.extend_from_slice(&bytes);
        Some(())
    };
    if field("transfer-encoding").is_some() {
        loop {
            let length = usize::from_str_radix(&line(&mut reader)?, 16).ok()?;
            if length == 0 {
                trailers = section(&mut reader)?;
                break;
            }
            take(&mut reader, length)?;
            line(&mut reader)?;
        }
    } else if let Some(length) = field("content-length") {
        take(&mut reader, length.parse().ok()?)?;
    }
    kept.lock().expect("no thread panics").push(Request { lines, body, trailers });
    let mut stream = stream;
    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").ok()
}

fn stage(driver: &str, tree: &Tree, recorder: &Recorder) -> Server {
    let config = format!(
        "[server]\nthreads = 1\ndriver = '{driver}'\n[[site]]\nlisten = ['127.0.0.1:0']\n\
         [[site.route]]\nproxy = 'http://{}'\n",
        recorder.address
    );
    serve_config(tree, &config)
}

type Fields<'a> = Vec<(&'a str, &'a str)>;

/// A request with one more field.
fn with<'a>(name: &'a str, value: &'a str) -> Fields<'a> {
    let mut fields = pseudo("GET", "/a");
    fields.push((name, value));
    fields
}

/// A request with another value of a pseudo-field, or without it.
fn instead<'a>(name: &'a str, value: Option<&'a str>) -> Fields<'a> {
    let mut fields = pseudo("GET", "/a");
    match value {
        Some(value) => fields.iter_mut().filter(|(it, _)| *it == name).for_each(|it| it.1 = value),
        None => fields.retain(|(it, _)| *it != name),
    }
    fields
}

/// Heads that end their streams.
fn malformed() -> Vec<Fields<'static>> {
    let mut all = Vec::new();
    // Fields of a connection, and names that are none.
    for (name, value) in [
        ("connection", "close"),
        ("connection", "x-secret"),
        ("keep-alive", "timeout=5"),
        ("proxy-connection", "keep-alive"),
        ("transfer-encoding", "chunked"),
        ("transfer-encoding", "identity"),
        ("transfer-encoding", ""),
        ("upgrade", "websocket"),
        ("upgrade", "h2c"),
        ("te", "gzip"),
        ("te", "trailers, chunked"),
        ("Transfer-Encoding", "chunked"),
        ("X-Upper", "1"),
        ("transfer-encoding ", "chunked"),
        ("transfer-encoding\t", "chunked"),
        (" transfer-encoding", "chunked"),
        ("x: y\r\ntransfer-encoding", "chunked"),
        ("x\r\n\r\nget", "1"),
        ("x\ny", "1"),
        ("x\ry", "1"),
        ("x\0y", "1"),
        ("x:y", "1"),
        ("x\u{7f}", "1"),
        ("x\u{e9}", "1"),
        ("", "1"),
    ] {
        all.push(with(name, value));
    }
    // Values that end a line, or that a parser may trim or cut.
    for value in [
        "a\r\nx-second: 1",
        "a\r\n\r\nGET /b HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "a\nx-second: 1",
        "a\rx-second: 1",
        "a\0b",
        "\r\n",
        "\n",
        "\0",
        " a",
        "a ",
        "\ta",
        "a\t",
        "a\u{7f}",
        "a\u{b}",
    ] {
        all.extend([with("x-value", value), with("cookie", value), with("user-agent", value)]);
    }
    // Pseudo-fields.
    for (name, value) in [
        (":path", "/b"),
        (":method", "POST"),
        (":authority", "localhost"),
        (":scheme", "http"),
        (":status", "200"),
        (":protocol", "websocket"),
        (":unknown", "1"),
        (":", "1"),
    ] {
        all.push(with(name, value));
        // One that comes after a field.
        let mut fields = pseudo("GET", "/a");
        fields.retain(|(it, _)| *it != name);
        fields.extend([("x-a", "1"), (name, value)]);
        all.push(fields);
    }
    for name in [":method", ":scheme", ":path", ":authority"] {
        all.push(instead(name, None));
        all.push(instead(name, Some("")));
    }
    for method in [
        "GET /b HTTP/1.1\r\nHost: localhost\r\n\r\nGET",
        "GET ",
        " GET",
        "GE T",
        "GET\r\n",
        "GET\0",
        "G:T",
        "G\u{e9}T",
    ] {
        all.push(instead(":method", Some(method)));
    }
    for path in [
        "a",
        "?a",
        "*",
        "http://localhost/a",
        "localhost:80",
        " /a",
        "/a b",
        "/a HTTP/1.1\r\nHost: localhost\r\n\r\nGET /b",
        "/a\r\nx-second: 1",
        "/a\n",
        "/a\r",
        "/a\0",
        "/a\tb",
        "/a#b",
        "/a?b c",
        "/a?b\r\n",
        "/a\u{7f}",
    ] {
        all.push(instead(":path", Some(path)));
    }
    for authority in [
        "user@localhost",
        "localhost/b",
        "localhost?b",
        "localhost#b",
        "localhost, other",
        "local host",
        " localhost",
        "localhost\r\nx-second: 1",
        "localhost\0",
        "localhost:80:80",
        "localhost:x",
        ":80",
        "[::1",
        "a\\b",
    ] {
        all.push(instead(":authority", Some(authority)));
    }
    for scheme in ["http\r\nx: y", "http://", "ht tp", "1http", "http\0"] {
        all.push(instead(":scheme", Some(scheme)));
    }
    // The host.
    all.push(with("host", "other"));
    all.push(with("host", "localhost:80"));
    all.push(with("host", ""));
    let mut hosts = instead(":authority", None);
    hosts.extend([("host", "localhost"), ("host", "other")]);
    all.push(hosts);
    // Lengths that are none, and of content that does not come.
    for length in ["1", "5", "+0", "-0", "-1", "0x0", "0,0", "0, 0", "", "00 ", "1e1", "0.0"] {
        all.push(with("content-length", length));
    }
    all.push(with("content-length", "18446744073709551616"));
    let mut lengths = with("content-length", "0");
    lengths.push(("content-length", "0"));
    all.push(lengths);
    all
}

#[test]
fn malformed_heads_reach_no_upstream() {
    let recorder = Recorder::start();
    let tree = Tree::new();
    on_both_drivers(|driver| {
        let server = stage(driver, &tree, &recorder);
        let mut client = connect(&server);
        for fields in malformed() {
            let stream = client.request(fields.clone(), true).unwrap();
            let reply = client.reply(stream).unwrap();
            assert_eq!(reply.reset, Some(PROTOCOL_ERROR), "{fields:?}: {}", reply.status);
            assert_eq!(recorder.take(), [], "{fields:?}");
        }
        // A plain CONNECT has a status, and no upstream is asked for it.
        let connect = [(":method", "CONNECT"), (":authority", "localhost:80")];
        let stream = client.request(connect, true).unwrap();
        assert!(client.reply(stream).unwrap().status >= 400);
        assert_eq!(recorder.take(), []);
        // The connection has lived through all of them.
        assert_eq!(client.ask("/a").unwrap().body, b"ok");
        assert_eq!(recorder.take().len(), 1);
    });
}

/// A body that is not as long as its head says is never a whole request of HTTP/1.
#[test]
fn content_has_its_announced_length_or_reaches_no_upstream() {
    let recorder = Recorder::start();
    let tree = Tree::new();
    on_both_drivers(|driver| {
        let server = stage(driver, &tree, &recorder);
        let mut client = connect(&server);
        let second = "0\r\n\r\nGET /b HTTP/1.1\r\nHost: localhost\r\n\r\n";
        let long = (second.len() + 1).to_string();
        // The announced length, the content in its frames, trailers.
        type Case<'a> = (Option<&'a str>, &'a [&'a str], Fields<'a>);
        let cases: [Case<'_>; 14] = [
            (Some("0"), &[second], vec![]),
            (Some("5"), &[second], vec![]),
            (Some("5"), &["1234", "56"], vec![]),
            (Some(&long), &[second], vec![]),
            (Some("5"), &["123"], vec![]),
            (Some("5"), &[""], vec![]),
            (Some("5"), &["123"], vec![("x-trailer", "1")]),
            (None, &["123"], vec![(":path", "/b")]),
            (None, &["123"], vec![("x-trailer", "1"), (":status", "200")]),
            (None, &["123"], vec![("transfer-encoding", "chunked")]),
            (None, &["123"], vec![("connection", "close")]),
            (None, &["123"], vec![("X-Upper", "1")]),
            (None, &["123"], vec![("x-trailer", "1\r\n\r\nGET /b HTTP/1.1")]),
            (None, &["123"], vec![("x\r\n\r\nGET /b", "1")]),
        ];
        for (length, content, trailers) in cases {
            let mut fields = pseudo("POST", "/a");
            fields.extend(length.map(|length| ("content-length", length)));
            let stream = client.request(fields, false).unwrap();
            for (nth, piece) in content.iter().enumerate() {
                let is_last = nth + 1 == content.len() && trailers.is_empty();
                let end = if is_last { END_STREAM } else { 0 };
                client.frame(kind::DATA, end, stream, piece.as_bytes()).unwrap();
            }
            if !trailers.is_empty() {
                let block = block(trailers.iter().copied());
                client.frame(kind::HEADERS, END_HEADERS | END_STREAM, stream, &block).unwrap();
            }
            let reply = client.reply(stream).unwrap();
            let case = (length, content, trailers);
            assert_eq!(reply.reset, Some(PROTOCOL_ERROR), "{case:?}: {}", reply.status);
            assert_eq!(client.ask("/after").unwrap().body, b"ok");
            let mut requests = recorder.take();
            // If no content is announced, the head is a whole request. It may leave before the excess has come, and
            // the excess never follows it.
            if case.0 == Some("0") && requests.len() == 2 {
                let early = requests.remove(0);
                assert_eq!((&*early.lines[0], &*early.body), ("POST /a HTTP/1.1", &b""[..]));
            }
            assert_eq!(requests.len(), 1, "{case:?}: {requests:?}");
            assert_eq!(requests[0].lines[0], "GET /after HTTP/1.1", "{case:?}");
        }
    });
}

/// samum writes a request for an upstream anew, so the request has one reading.
#[test]
fn an_upstream_gets_what_the_client_meant() {
    let recorder = Recorder::start();
    let tree = Tree::new();
    on_both_drivers(|driver| {
        let server = stage(driver, &tree, &recorder);
        let mut client = connect(&server);
        let mut ask = |fields: &Fields<'_>, body: Option<&str>, trailers: &Fields<'_>| {
            let stream = client.request(fields.iter().copied(), body.is_none()).unwrap();
            if let Some(body) = body {
                client.upload(stream, body.as_bytes(), trailers).unwrap();
            }
            let reply = client.reply(stream).unwrap();
            assert_eq!((reply.status, &reply.body[..]), (200, &b"ok"[..]), "{fields:?}");
            let [request] = &recorder.take()[..] else { panic!("{fields:?}: not one request") };
            request.clone()
        };
        let value = |request: &Request, name: &str| {
            let is_it = |line: &&String| {
                line.split_once(": ").is_some_and(|(it, _)| it.eq_ignore_ascii_case(name))
            };
            let lines = request.lines.iter().filter(is_it);
            lines.map(|line| line.split_once(": ").unwrap().1.to_owned()).collect::<Vec<_>>()
        };
        let none: [&str; 0] = [];

        let request = ask(&pseudo("GET", "/a?b"), None, &vec![]);
        assert_eq!(request.lines[0], "GET /a?b HTTP/1.1");
        assert_eq!(value(&request, "host"), ["localhost"]);
        assert_eq!(value(&request, "content-length"), none);
        assert_eq!(value(&request, "transfer-encoding"), none);
        assert_eq!(value(&request, "connection"), none);

        // The host may come by its field, or by both.
        let mut fields = instead(":authority", None);
        fields.push(("host", "localhost:8080"));
        assert_eq!(value(&ask(&fields, None, &vec![]), "host"), ["localhost:8080"]);
        assert_eq!(value(&ask(&with("host", "LOCALHOST"), None, &vec![]), "host").len(), 1);

        // A target that HTTP/1 cannot carry is encoded.
        let request = ask(&instead(":path", Some("/\u{e9}?\u{e9}")), None, &vec![]);
        assert_eq!(request.lines[0], "GET /%C3%A9?%C3%A9 HTTP/1.1");
        let request = ask(&instead(":path", Some("//other/a")), None, &vec![]);
        assert!(request.lines[0].starts_with("GET /"), "{request:?}");

        // Crumbs, expectations, and fields whose names other programs take for others.
        let mut crumbs = with("cookie", "a=1");
        crumbs.extend([("x-between", "1"), ("cookie", "b=2"), ("cookie", "c=3")]);
        assert_eq!(value(&ask(&crumbs, None, &vec![]), "cookie"), ["a=1; b=2; c=3"]);
        let request = ask(&with("te", "trailers"), None, &vec![]);
        assert_eq!(value(&request, "te"), ["trailers"]);
        assert_eq!(value(&request, "connection"), ["TE"]);
        let request = ask(&with("x_forwarded_for", "1.2.3.4"), None, &vec![]);
        assert_eq!(value(&request, "x_forwarded_for"), none);
        let request = ask(&with("proxy", "http://evil"), None, &vec![]);
        assert_eq!(value(&request, "proxy"), none);

        // Content has a length if the client names one, else it comes in chunks.
        let mut announced = pseudo("POST", "/a");
        announced.push(("content-length", "5"));
        let request = ask(&announced, Some("12345"), &vec![]);
        assert_eq!(value(&request, "content-length"), ["5"]);
        assert_eq!(value(&request, "transfer-encoding"), none);
        assert_eq!(request.body, b"12345");
        let body = "0\r\n\r\nGET /b HTTP/1.1\r\nHost: localhost\r\n\r\n";
        let request = ask(&pseudo("POST", "/a"), Some(body), &vec![]);
        assert_eq!(value(&request, "transfer-encoding"), ["chunked"]);
        assert_eq!(value(&request, "content-length"), none);
        assert_eq!(request.body, body.as_bytes());
        let request = ask(&announced, Some("12345"), &vec![("x-trailer", "1")]);
        assert_eq!(request.body, b"12345");

        // A trailer frames no message, and is no field of a head (RFC 9110 §6.5.1).
        for name in ["content-length", "host", "trailer", "authorization", "cookie"] {
            let request = ask(&pseudo("POST", "/a"), Some("12345"), &vec![(name, "5")]);
            assert_eq!(request.body, b"12345");
            assert_eq!(request.trailers, none, "{name}");
        }
        let request = ask(&pseudo("POST", "/a"), Some("12345"), &vec![("x-trailer", "1")]);
        assert!(
            request.trailers == ["x-trailer: 1"] || request.trailers.is_empty(),
            "{:?}",
            request.trailers
        );
    });
}
