//! Requests as the servers behind samum parse them.

use core::fmt::Write as _;

use testkit::{Client, Response, Tree, or_skip};

use super::{connect, pass_on};
use crate::common::on_both_drivers;
use crate::garden::origins::{self, FIELDS, FRONTS, Origin, PROGRAMMED, SERVERS};

/// A request, and what of it a server must tell.
struct Case {
    /// The head, and the body as it is sent.
    sent: String,
    /// True if the client waits for an invitation before it sends the body.
    waits: bool,
    /// Request line, fields, and body.
    line: &'static str,
    fields: &'static [&'static str],
    body: String,
}

/// The requests that any server can tell of.
fn cases() -> Vec<Case> {
    let case = |sent: &str, line, fields, body: &str| Case {
        sent: sent.to_owned(),
        waits: false,
        line,
        fields,
        body: body.to_owned(),
    };
    // Longer than what waits for a server.
    let long = "0123456789abcdef".repeat(20_000);
    let in_chunks: String = long.as_bytes().chunks(7_777).fold(String::new(), |mut text, chunk| {
        write!(text, "{:x}\r\n{}\r\n", chunk.len(), str::from_utf8(chunk).unwrap()).unwrap();
        text
    });
    vec![
        case(
            "GET /echo?a=b&c= HTTP/1.1\r\nHost: h\r\nX-A: 1\r\nCookie: a=b\r\nX-A: 2\r\n\r\n",
            "GET /echo?a=b&c=",
            &["cookie: a=b", "x-a: 1, 2"],
            "",
        ),
        case(
            "POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello",
            "POST /echo",
            &[],
            "hello",
        ),
        case("POST /echo HTTP/1.1\r\nHost: h\r\n\r\n", "POST /echo", &[], ""),
        // RFC 9112 §7.1
        case(
            "POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: Chunked\r\nTrailer: X-Hop\r\n\r\n\
             3;a=b\r\nhel\r\n02\r\nlo\r\n0\r\nX-Hop: 1\r\n\r\n",
            "POST /echo",
            &[],
            "hello",
        ),
        case(
            &format!(
                "POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n{in_chunks}0\r\n\r\n"
            ),
            "POST /echo",
            &[],
            &long,
        ),
        case(
            &format!(
                "PUT /echo HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\r\n{long}",
                long.len()
            ),
            "PUT /echo",
            &[],
            &long,
        ),
        // RFC 9110 §10.1.1
        Case {
            waits: true,
            ..case(
                "PUT /echo HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\nhello",
                "PUT /echo",
                &[],
                "hello",
            )
        },
        case("DELETE /echo HTTP/1.1\r\nHost: h\r\n\r\n", "DELETE /echo", &[], ""),
        case(
            "PATCH /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n",
            "PATCH /echo",
            &[],
            "",
        ),
        // A path of which servers could have different views, RFC 3986 §6.2.2.
        case(
            "GET //echo/./x/../%7Ea%2bb%20c?%7E=.. HTTP/1.1\r\nHost: h\r\n\r\n",
            "GET /echo/~a%2Bb%20c?%7E=..",
            &[],
            "",
        ),
    ]
}

/// The requests of which a proxy before samum would make others.
fn direct_cases() -> Vec<Case> {
    let case = |sent: &str, line, fields| Case {
        sent: sent.to_owned(),
        waits: false,
        line,
        fields,
        body: String::new(),
    };
    vec![
        // RFC 9110 §7.6.1
        case(
            "GET /echo HTTP/1.1\r\nHost: h\r\nConnection: X-Hop, Keep-Alive\r\nX-Hop: 1\r\nX-A: 1\r\n\
             Keep-Alive: timeout=5\r\nProxy-Authorization: Basic YTpi\r\nProxy: http://evil/\r\n\
             X-Forwarded-For: 1.1.1.1\r\nForwarded: for=1.1.1.1\r\nX-Real-IP: 1.1.1.1\r\nX_Hop: 1\r\n\r\n",
            "GET /echo",
            &["x-a: 1", "x-forwarded-for: 127.0.0.1", "forwarded: for=127.0.0.1;host=h;proto=http"],
        ),
        // RFC 9112 §3.2.2
        case(
            "GET http://other:81/echo HTTP/1.1\r\nHost: h\r\n\r\n",
            "GET /echo",
            &["host: other:81"],
        ),
        // RFC 9110 §10.1.4
        case(
            "GET /echo HTTP/1.1\r\nHost: h\r\nTE: trailers, deflate\r\nConnection: TE\r\n\r\n",
            "GET /echo",
            &["te: trailers"],
        ),
        case(
            "GET /echo HTTP/1.0\r\nHost: h\r\nConnection: keep-alive\r\n\r\n",
            "GET /echo",
            &["via: 1.0 samum"],
        ),
        case("GET /echo HTTP/1.0\r\n\r\n", "GET /echo", &["host: localhost", "via: 1.0 samum"]),
    ]
}

#[test]
fn servers_parse_what_clients_mean() {
    for (name, start) in SERVERS {
        eprintln!("{name}");
        check_origin(name, &or_skip!(start()));
    }
}

#[test]
fn libraries_parse_what_clients_mean() {
    for (name, start) in PROGRAMMED.into_iter().filter(|(name, _)| *name != "Go") {
        eprintln!("{name}");
        check_origin(name, &or_skip!(start()));
    }
}

/// Apart, because to build the program may take a minute.
#[test]
fn go_parses_what_clients_mean() {
    check_origin("Go", &or_skip!(origins::go()));
}

#[test]
fn proxies_in_front_change_nothing() {
    let h11 = or_skip!(origins::h11());
    for (name, start) in FRONTS {
        eprintln!("{name}");
        let tree = Tree::new();
        let samum = pass_on("uring", &tree, &h11.address, "trusted-proxies = ['127.0.0.1']");
        let front = or_skip!(start(&samum.address()));
        let mut client = connect(&front.address);
        for case in cases() {
            let told = case.ask(&mut client);
            case.check(name, &told, &[]);
            // The list of the proxy is continued, and what it adds is believed.
            let hops = told.field("x-forwarded-for").expect("a list");
            assert!(hops.ends_with("127.0.0.1, 127.0.0.1"), "{name}: {hops}");
        }
    }
}

/// Checks what a server tells of the requests, all on one connection.
fn check_origin(name: &str, origin: &Origin) {
    on_both_drivers(|driver| {
        let tree = Tree::new();
        let samum = pass_on(driver, &tree, &origin.address, "");
        let mut client = connect(&samum.address());
        for case in cases() {
            let told = case.ask(&mut client);
            let origin_of = |host: &str| {
                [
                    format!("forwarded: for=127.0.0.1;host={host};proto=http"),
                    format!("x-forwarded-host: {host}"),
                    "x-forwarded-for: 127.0.0.1".to_owned(),
                    "x-forwarded-proto: http".to_owned(),
                ]
            };
            case.check(name, &told, &origin_of("h"));
        }
        for case in direct_cases() {
            let told = case.ask(&mut connect(&samum.address()));
            case.check(name, &told, &[]);
        }
    });
}

/// What a server tells of a request.
struct Told {
    line: String,
    fields: Vec<(String, String)>,
    body: String,
}

impl Told {
    fn new(response: &Response) -> Self {
        assert_eq!(response.status, 200, "{response:?}");
        let text = String::from_utf8(response.body.clone()).expect("UTF-8");
        let (line, rest) = text.split_once('\n').expect("a line");
        let (fields, body) = match rest.strip_prefix('\n') {
            Some(body) => ("", body),
            None => rest.split_once("\n\n").expect("an empty line"),
        };
        let field = |line: &str| {
            let (name, value) = line.split_once(':').expect("a field");
            (name.to_owned(), value.trim().to_owned())
        };
        // nginx tells of fields that it has not got, too.
        let fields = fields.lines().map(field).filter(|(_, value)| !value.is_empty()).collect();
        Self { line: line.to_owned(), fields, body: body.to_owned() }
    }

    fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(other, _)| other == name).map(|(_, value)| &**value)
    }
}

impl Case {
    /// Sends the request in pieces, and returns what the server tells of it.
    fn ask(&self, client: &mut Client) -> Told {
        let body_at = self.sent.find("\r\n\r\n").expect("a head") + 4;
        let (head, body) = self.sent.split_at(body_at);
        client.send(head).unwrap();
        if self.waits {
            let invitation = client.response().unwrap();
            assert_eq!(invitation.status, 100, "{invitation:?}");
        }
        for piece in body.as_bytes().chunks(body.len() / 3 + 1) {
            client.send(piece).unwrap();
        }
        let response = client.response().unwrap_or_else(|error| panic!("{head:?}: {error}"));
        Told::new(&response)
    }

    /// Checks what a server tells. `added`: further fields.
    fn check(&self, name: &str, told: &Told, added: &[String]) {
        let head = self.sent.get(..100).unwrap_or(&self.sent);
        assert_eq!(told.line, self.line, "{name}: {head:?}");
        // It cannot tell of bodies.
        if name != "nginx" || !told.body.is_empty() {
            assert!(told.body == self.body, "{name}: {head:?}: {} bytes", told.body.len());
        }
        for expected in self.fields.iter().copied().chain(added.iter().map(|line| &**line)) {
            let (field, value) = expected.split_once(": ").expect("a field");
            // nginx before 1.23 tells of the first line only.
            let (value, found) = match (name, field) {
                ("nginx", "x-a") => ("1", told.field(field).and_then(|all| all.get(..1))),
                _ => (value, told.field(field)),
            };
            assert_eq!(found, Some(value), "{name}: {head:?}: {:?}", told.fields);
        }
        let says =
            |name: &str| self.fields.iter().any(|field| field.starts_with(&format!("{name}: ")));
        let of_path = [
            "forwarded",
            "host",
            "via",
            "x-forwarded-for",
            "x-forwarded-host",
            "x-forwarded-proto",
        ];
        for field in FIELDS.iter().filter(|field| !of_path.contains(field) && !says(field)) {
            // Without a value that means anything.
            let is_te = *field == "connection" && says("te");
            let found = told.field(field).filter(|_| !is_te);
            assert_eq!(found, None, "{name}: {field} of {head:?}");
        }
        assert!(
            told.field("host").is_some() && told.field("via").is_some(),
            "{name}: {:?}",
            told.fields
        );
    }
}
