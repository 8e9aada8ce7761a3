//! Heads as clients send them, and as servers get them.

use http1::Limits;

use super::*;
use crate::tls::tests::Said;
use session::forwarded::Scheme;

const PEER: IpAddr = IpAddr::V4(core::net::Ipv4Addr::new(192, 0, 2, 7));
pub(in super::super) const SENDER: Sender = Sender {
    peer: Some(PEER),
    is_trusted: false,
    client: Some(PEER),
    own_scheme: Scheme::Http,
    told_scheme: None,
    is_contradicted: false,
};
pub(in super::super) const HOW: Forwarding<'_> = Forwarding {
    prefix: b"/",
    authority: b"server:9000",
    sender: SENDER,
    told_host: None,
    is_include: false,
    fields: None,
    handshake: None,
    request_id: None,
};

/// The head that is sent for one that was received.
fn sent(received: &str, how: &Forwarding<'_>) -> String {
    sent_to(received, how, None)
}

/// The same to a server with this path.
fn sent_to(received: &str, how: &Forwarding<'_>, base: Option<&[u8]>) -> String {
    let parsed = http1::parse(received.as_bytes(), &Limits::DEFAULT);
    let (request, _) = parsed.expect("accepted").expect("complete");
    let mut out = Vec::new();
    let Written { prefix, .. } = write(&request.head, &mut out, how).expect("not too long");
    let out = base.map_or_else(|| out.clone(), |base| with_base(&out, prefix, base));
    String::from_utf8(out).expect("UTF-8")
}

/// The lines that are sent for a request with these lines, without those of `Via` and of its origin.
fn lines(received: &str) -> Vec<String> {
    let added = ["Via: ", "X-Forwarded-", "Forwarded: "];
    let head = sent(&format!("{received}\r\n"), &HOW);
    head.lines()
        .filter(|line| !line.is_empty() && !added.iter().any(|added| line.starts_with(added)))
        .map(str::to_owned)
        .collect()
}

/// The values of a field of a request that is sent.
fn values_of(head: &str, name: &str) -> Vec<String> {
    let is_it = |line: &&str| line.get(..name.len()).is_some_and(|found| found == name);
    head.lines().filter(is_it).map(|line| line[name.len() + 2..].to_owned()).collect()
}

#[test]
fn a_request_is_written_anew() {
    let received =
        "GET /a?b HTTP/1.1\r\nHost: h\r\nAccept:\t*/* \r\nCookie: a\r\ncookie: b\r\n\r\n";
    let expected = "GET /a?b HTTP/1.1\r\nHost: h\r\nAccept: */*\r\nCookie: a\r\ncookie: b\r\n\
                    Via: 1.1 samum\r\nX-Forwarded-For: 192.0.2.7\r\nX-Forwarded-Host: h\r\n\
                    X-Forwarded-Proto: http\r\nForwarded: for=192.0.2.7;host=h;proto=http\r\n\r\n";
    assert_eq!(sent(received, &HOW), expected);
}

/// Fields of a route.
pub(in super::super) fn fields(list: &[(&str, &str)]) -> Arc<[RequestHeader]> {
    list.iter().map(|(name, text)| RequestHeader::new(name, text).expect("a field")).collect()
}

#[test]
fn the_fields_of_a_route_take_the_place_of_others() {
    let all = fields(&[
        ("X-Real-IP", "$client"),
        ("x-key", "secret"),
        ("Cookie", ""),
        ("X-From", "${peer}|$method|$host|$path|$query|$$"),
        ("X-Empty", "$query"),
        ("X_Under", "own"),
        ("X-Forwarded-For", "$client"),
        ("x-forwarded-host", ""),
        ("Forwarded", ""),
    ]);
    let client: IpAddr = "2001:db8::1".parse().unwrap();
    let how = Forwarding {
        fields: Some(&all),
        sender: Sender { client: Some(client), is_trusted: true, ..SENDER },
        ..HOW
    };
    let received = "GET /a%20b/../c HTTP/1.1\r\nHost: h:1\r\nX-Key: forged\r\nX-KEY: again\r\nCookie: a\r\n\
                    X-Real-IP: 1.1.1.1\r\nX-Under: forged\r\nConnection: x-key, X-From\r\n\
                    X-Forwarded-For: 2001:db8::1\r\nForwarded: for=_x\r\nX-Other: 1\r\n\r\n";
    let expected = "GET /c HTTP/1.1\r\nHost: h:1\r\nX-Other: 1\r\nVia: 1.1 samum\r\nX-Forwarded-Proto: http\r\n\
                    X-Real-IP: 2001:db8::1\r\nx-key: secret\r\nX-From: 192.0.2.7|GET|h:1|/a%20b/../c||$\r\n\
                    X_Under: own\r\nX-Forwarded-For: 2001:db8::1\r\n\r\n";
    assert_eq!(sent(received, &how), expected);
    // On a Unix socket there is no address; a host takes the place of that of the client.
    let all = fields(&[("host", "b.org:81"), ("X-A", "$client $peer $host ?$query")]);
    let how = Forwarding {
        fields: Some(&all),
        sender: Sender { client: None, peer: None, ..SENDER },
        ..HOW
    };
    let head = sent("GET /?a=$b HTTP/1.1\r\nHost: h\r\n\r\n", &how);
    assert!(head.starts_with("GET /?a=$b HTTP/1.1\r\nHost: b.org:81\r\nVia"), "{head}");
    assert!(head.ends_with("\r\nX-A: unknown unknown h ?a=$b\r\n\r\n"), "{head}");
    assert_eq!(values_of(&head, "X-Forwarded-Host"), ["h"]);
    // Without a host of its own a request has that of the server.
    let all = fields(&[("Host", "$host"), ("X-A", "$host")]);
    let how = Forwarding { fields: Some(&all), ..HOW };
    let head = sent("GET / HTTP/1.0\r\n\r\n", &how);
    let hosts = (values_of(&head, "Host"), values_of(&head, "X-A"));
    assert_eq!(hosts, (vec!["server:9000".to_owned()], vec!["server:9000".to_owned()]));
}

#[test]
fn a_head_has_64_kib_at_most() {
    // The length of the head that is sent for a path and a cookie of these lengths, or the field that does not fit.
    let outcome = |list: &[(&str, &str)], path: usize, cookie: usize| {
        let own = fields(list);
        let how = Forwarding { fields: Some(&own), ..HOW };
        let (path, cookie) = ("x".repeat(path), "x".repeat(cookie));
        let received = format!("GET /{path} HTTP/1.1\r\nHost: h\r\nCookie: {cookie}\r\n\r\n");
        let parsed = http1::parse(received.as_bytes(), &Limits::DEFAULT);
        let (request, _) = parsed.expect("accepted").expect("complete");
        // The limit does not count bytes that stood in the buffer before.
        let mut out = vec![b'x'; 1000];
        let written = write(&request.head, &mut out, &how);
        let len = out.len() - 1000;
        assert!(len <= HEAD_BYTES_MAX + path.len() + 1, "{len} bytes were written");
        written.map(|_| len).map_err(|error| error.field.map(str::to_owned))
    };
    let paths = "$path$path$path$path$path$path$path$path";
    let long = [("A", paths), ("B", "$path")];
    let len = outcome(&long, 6000, 1).expect("not too long");
    let rest = HEAD_BYTES_MAX - len;
    assert!((1..8000).contains(&rest), "{rest}");
    assert_eq!(outcome(&long, 6000, 1 + rest), Ok(HEAD_BYTES_MAX));
    // The end of the head does not fit, then a field.
    assert_eq!(outcome(&long, 6000, 2 + rest), Err(None));
    assert_eq!(outcome(&long, 6000, 10 + rest), Err(Some("B".to_owned())));
    let all: Vec<_> = ["A", "B", "C", "D"].iter().map(|name| (*name, paths)).collect();
    assert_eq!(outcome(&all, 8000, 1), Err(Some("A".to_owned())));
    assert_eq!(outcome(&all, 3000, 1), Err(Some("C".to_owned())));
}

#[test]
fn fields_of_one_connection_end_here() {
    for (received, expected) in [
        // RFC 9110 §7.6.1
        ("Connection: close, X-A\r\nX-A: 1\r\nX-B: 2\r\n", &["X-B: 2"][..]),
        ("Keep-Alive: timeout=5\r\nProxy-Connection: keep-alive\r\nX: 1\r\n", &["X: 1"]),
        // Own fields are written whatever `Connection` names.
        ("Connection: Host, X-Forwarded-For, Content-Length\r\n", &[]),
        // §10.1.4: of `TE` only the option that is understood is left.
        ("Connection: TE\r\nTE: gzip, trailers;q=0.5\r\n", &["TE: trailers", "Connection: TE"]),
        ("Connection: TE\r\nTE: gzip, trailers;q=0\r\n", &[]),
        ("Connection: TE\r\nTE:\r\n", &[]),
        // §6.6.2, §10.1.1
        ("Trailer: X\r\n", &[]),
        // §11.7
        ("Proxy-Authorization: Basic YTpi\r\nProxy-Authenticate: Basic\r\n", &[]),
        // §7.8, and RFC 9113 §3.1: HTTP/2 in a tunnel would bypass all routes.
        (
            "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: k\r\n",
            &["Sec-WebSocket-Key: k", "Upgrade: websocket", "Connection: upgrade"],
        ),
        (
            "Connection: upgrade\r\nUpgrade: a/1, H2C , b\r\n",
            &["Upgrade: a/1, b", "Connection: upgrade"],
        ),
        ("Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAM\r\n", &[]),
        ("Connection: upgrade\r\nUpgrade: HTTP/2.0\r\n", &[]),
        ("Connection: upgrade\r\nUpgrade: TLS/1.2\r\n", &[]),
        ("Connection: upgrade\r\n", &[]),
        ("Upgrade: websocket\r\n", &[]),
        // Two readers could take these for others.
        ("Proxy: http://evil\r\nX_Real_IP: 1\r\nX.Y: 1\r\n", &[]),
        ("X-Real-IP: 1\r\nX-Forwarded-Port: 1\r\nx-forwarded-prefix: /\r\n", &[]),
        // Applications take these for the scheme of a trusted proxy's client.
        ("Front-End-Https: on\r\nX-Url-Scheme: https\r\nX-Scheme: https\r\nHTTPS: 1\r\n", &[]),
        (
            "CloudFront-Forwarded-Proto: https\r\nCF-Visitor: {}\r\nX-ARR-SSL: a\r\nX-Proto: SSL\r\n",
            &[],
        ),
        ("CF-Ray: 1\r\nX-Schemes: a\r\n", &["CF-Ray: 1", "X-Schemes: a"]),
    ] {
        let found = lines(&format!("GET / HTTP/1.1\r\nHost: h\r\n{received}"));
        assert_eq!(found[..2], ["GET / HTTP/1.1", "Host: h"], "{received:?}");
        assert_eq!(found[2..], *expected, "{received:?}");
    }
}

#[test]
fn rfc9110_7_8_a_request_for_a_head_alone_asks_for_no_other_protocol() {
    for (method, expected) in [
        ("GET", Some("Upgrade: a")),
        ("POST", Some("Upgrade: a")),
        ("OPTIONS", Some("Upgrade: a")),
        ("HEAD", None),
    ] {
        let received =
            format!("{method} / HTTP/1.1\r\nHost: h\r\nConnection: upgrade\r\nUpgrade: a\r\n");
        let found = lines(&received);
        let upgrade = found.iter().find(|line| line.starts_with("Upgrade"));
        assert_eq!(upgrade.map(|line| &line[..]), expected, "{method}");
        assert_eq!(found.iter().any(|line| line == "Connection: upgrade"), expected.is_some());
    }
}

#[test]
fn rfc9112_6_the_framing_is_that_of_the_parsed_body() {
    for (received, expected) in [
        ("GET / HTTP/1.1\r\nHost: h\r\n", &[][..]),
        ("GET / HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n", &[]),
        // RFC 9110 §9.3.1: some servers take this body for a request.
        (
            "GET / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n",
            &["Content-Length: 5", "Connection: close"],
        ),
        // §9.3.5 says the same, and OPTIONS has no use for it either (§9.3.7).
        (
            "DELETE / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n",
            &["Content-Length: 5", "Connection: close"],
        ),
        (
            "OPTIONS / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n",
            &["Transfer-Encoding: chunked", "Connection: close"],
        ),
        ("DELETE / HTTP/1.1\r\nHost: h\r\n", &[]),
        ("POST / HTTP/1.1\r\nHost: h\r\n", &["Content-Length: 0"]),
        ("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 007\r\n", &["Content-Length: 7"]),
        (
            "PUT / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: , CHUNKED\r\nTrailer: X\r\n",
            &["Transfer-Encoding: chunked"],
        ),
        // RFC 9110 §10.1.1: the session invites the body.
        (
            "PUT / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 5\r\n",
            &["Content-Length: 5"],
        ),
        // §7.8: the body comes before the other protocol.
        (
            "PUT / HTTP/1.1\r\nHost: h\r\nConnection: upgrade\r\nUpgrade: x\r\nContent-Length: 5\r\n",
            &["Content-Length: 5", "Upgrade: x", "Connection: upgrade"],
        ),
        (
            "POST / HTTP/1.1\r\nHost: h\r\nConnection: a, Upgrade\r\nUpgrade: tcp\r\n\
             Transfer-Encoding: chunked\r\n",
            &["Transfer-Encoding: chunked", "Upgrade: tcp", "Connection: upgrade"],
        ),
        (
            "POST / HTTP/1.1\r\nHost: h\r\nUpgrade: tcp\r\nContent-Length: 5\r\n",
            &["Content-Length: 5"],
        ),
        (
            "DELETE / HTTP/1.1\r\nHost: h\r\nConnection: upgrade\r\nUpgrade: x\r\nContent-Length: 5\r\n",
            &["Content-Length: 5", "Upgrade: x", "Connection: upgrade, close"],
        ),
        (
            "GET / HTTP/1.1\r\nHost: h\r\nConnection: upgrade\r\nUpgrade: x\r\nTransfer-Encoding: chunked\r\n",
            &["Transfer-Encoding: chunked", "Upgrade: x", "Connection: upgrade, close"],
        ),
        // Nothing may come after the head of the response.
        (
            "HEAD / HTTP/1.1\r\nHost: h\r\nConnection: upgrade\r\nUpgrade: x\r\nContent-Length: 5\r\n",
            &["Content-Length: 5", "Connection: close"],
        ),
    ] {
        assert_eq!(lines(received)[2..], *expected, "{received:?}");
    }
}

#[test]
fn rfc9112_3_2_the_host_is_that_of_the_target() {
    for (received, expected) in [
        ("GET / HTTP/1.1\r\nHost: Example.ORG:81\r\n", "Host: Example.ORG:81"),
        ("GET http://a:1/ HTTP/1.1\r\nHost: b\r\n", "Host: a:1"),
        ("GET / HTTP/1.1\r\nHost:\r\n", "Host: "),
        ("GET / HTTP/1.0\r\n", "Host: server:9000"),
        ("GET / HTTP/1.0\r\nHost: b\r\n", "Host: b"),
    ] {
        assert_eq!(lines(received), ["GET / HTTP/1.1", expected], "{received:?}");
    }
    let head = sent("GET / HTTP/1.0\r\n\r\n", &HOW);
    assert_eq!(values_of(&head, "X-Forwarded-Host"), [""; 0]);
    assert_eq!(values_of(&head, "Forwarded"), ["for=192.0.2.7;proto=http"]);
    assert_eq!(values_of(&head, "Via"), ["1.0 samum"]);
}

#[test]
fn the_path_is_of_the_route_that_was_chosen() {
    let at = |prefix, base: Option<&'static [u8]>| (Forwarding { prefix, ..HOW }, base);
    for ((how, base), path, expected) in [
        (at(b"/", None), "/a//b/./c?d//../e", "/a/b/c?d//../e"),
        (at(b"/", None), "/a?", "/a?"),
        (at(b"/", None), "/%2e%2e/%61pi/../x", "/x"),
        (at(b"/api/", None), "/api/x", "/api/x"),
        (at(b"/api/", None), "/%61pi//x%2Fy", "/api//x%2Fy"),
        (at(b"/api/", Some(b"/")), "/api/x", "/x"),
        (at(b"/api/", Some(b"/")), "/api/", "/"),
        (at(b"/api/", Some(b"/")), "/api", "/"),
        (at(b"/api/", Some(b"/")), "/api?q", "/?q"),
        (at(b"/", None), "//key", "//key"),
        (at(b"/", None), "//api//%7E/?", "//api//%7E/?"),
        (at(b"/", None), "/a;b=c/+/%2b/[x]?+;%2b?", "/a;b=c/+/%2b/[x]?+;%2b?"),
        (at(b"/", Some(b"/")), "//key", "//key"),
        (at(b"/", Some(b"/v1/")), "//key", "/v1//key"),
        (at(b"/api/", None), "//api//key", "/api//key"),
        (at(b"/api/", None), "//api//%7Ekey//?a//b", "/api//%7Ekey//?a//b"),
        (at(b"/api/", None), "//api", "/api"),
        (at(b"/api/", None), "/api//;c", "/api//;c"),
        (at(b"/", None), "/;c", "/;c"),
        (at(b"/", None), "/;c/admin/x", "/%3Bc/admin/x"),
        (at(b"/a/b/", None), "/a//b//c", "/a/b//c"),
        (at(b"/a b/c/", None), "/a%20b/%63//d", "/a%20b/c//d"),
        (at(b"/api/", None), "//api//../api//key", "/api/key"),
        (at(b"/api/", Some(b"/v1/")), "//api//key", "/v1//key"),
        (at(b"/api/", Some(b"/")), "/api///x//y", "///x//y"),
        (at(b"/api/", Some(b"/v1/")), "/api//x", "/v1//x"),
        (at(b"/api/", None), "/api//x", "/api//x"),
        (at(b"/api/", Some(b"/v1")), "/api", "/v1"),
        (at(b"/api/", Some(b"/v1")), "/api/", "/v1/"),
        (at(b"/api/", Some(b"/v1/")), "/%61pi//x/../y%20z?q", "/v1/y%20z?q"),
        (at(b"/a b/c/", Some(b"/v1/")), "/a%20b/%63/d", "/v1/d"),
        (at(b"/", Some(b"/v1/")), "/x", "/v1/x"),
        (at(b"/", Some(b"/v1")), "/", "/v1/"),
        (at(b"/", Some(b"/v 1/")), "/x", "/v%201/x"),
    ] {
        let head = sent_to(&format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n"), &how, base);
        assert_eq!(head.split(' ').nth(1), Some(expected), "{path} by {how:?} to {base:?}");
    }
}

#[test]
fn rfc9110_7_6_3_each_server_adds_itself_to_via() {
    let received = "GET / HTTP/1.1\r\nHost: h\r\nVia: 1.0 a, 2 b\r\nVia: 1.1 c\r\n\r\n";
    assert_eq!(values_of(&sent(received, &HOW), "Via"), ["1.0 a, 2 b", "1.1 c", "1.1 samum"]);
}

/// A trusted proxy whose client has asked for `http`.
fn told_http() -> Sender {
    Sender { is_trusted: true, told_scheme: Some(Scheme::Http), ..SENDER }
}

#[test]
fn the_host_that_a_trusted_proxy_says_is_the_same_in_all_fields() {
    let how = Forwarding { sender: told_http(), told_host: Some(b"e.org:81"), ..HOW };
    for (field, expected) in [("", "e.org:81"), ("X-Forwarded-Host: x\r\n", "x")] {
        let received = format!("GET / HTTP/1.1\r\nHost: h\r\n{field}\r\n");
        assert_eq!(values_of(&sent(&received, &how), "X-Forwarded-Host"), [expected]);
    }
}

#[test]
fn the_scheme_that_a_trusted_proxy_says_is_the_same_in_all_fields() {
    let by = |sender| Forwarding { sender, ..HOW };
    let https = Sender { is_trusted: true, told_scheme: Some(Scheme::Https), ..SENDER };
    let client: IpAddr = "2001:db8::1".parse().unwrap();
    let named = by(Sender { client: Some(client), ..https });
    let contradicted = by(Sender { client: Some(client), is_contradicted: true, ..told_http() });
    let plain = by(Sender { client: Some(client), ..told_http() });
    let https = by(https);
    let sealed = by(Sender { own_scheme: Scheme::Https, ..SENDER });
    for (how, fields, proto, forwarded) in [
        (https, "X-Forwarded-Proto: https", "https", "for=192.0.2.7;host=h;proto=https"),
        (https, "Forwarded: proto=https", "https", "proto=https, for=192.0.2.7;host=h;proto=http"),
        (
            named,
            "Forwarded: for=\"[2001:db8::1]\";proto=https",
            "https",
            "for=\"[2001:db8::1]\";proto=https, for=192.0.2.7;host=h;proto=http",
        ),
        (
            named,
            "X-Forwarded-For: 2001:db8::1\r\nX-Forwarded-Proto: https",
            "https",
            "for=\"[2001:db8::1]\";host=h;proto=https, for=192.0.2.7;host=h;proto=http",
        ),
        (sealed, "X-Forwarded-Proto: http", "https", "for=192.0.2.7;host=h;proto=https"),
        // RFC 7239 §4 has one scheme for each element, and the other field has the scheme that counts.
        (
            named,
            "X-Forwarded-For: 2001:db8::1\r\nX-Forwarded-Proto: https, http",
            "https",
            "for=\"[2001:db8::1]\";host=h;proto=https, for=192.0.2.7;host=h;proto=http",
        ),
        (https, "X-Forwarded-Proto: junk", "https", "for=192.0.2.7;host=h;proto=https"),
        // The two fields differ, so the scheme is `http`.
        (
            plain,
            "X-Forwarded-Proto: https\r\nForwarded: for=\"[2001:db8::1]\";proto=http",
            "http",
            "for=\"[2001:db8::1]\";proto=http, for=192.0.2.7;host=h;proto=http",
        ),
        (
            contradicted,
            "X-Forwarded-Proto: http\r\nForwarded: for=\"[2001:db8::1]\";proto=https",
            "http",
            "for=\"[2001:db8::1]\";host=h;proto=http, for=192.0.2.7;host=h;proto=http",
        ),
        (
            HOW,
            "X-Forwarded-Proto: https\r\nForwarded: proto=https",
            "http",
            "for=192.0.2.7;host=h;proto=http",
        ),
    ] {
        let sent = sent(&format!("GET / HTTP/1.1\r\nHost: h\r\n{fields}\r\n\r\n"), &how);
        assert_eq!(values_of(&sent, "X-Forwarded-Proto"), [proto], "{fields:?}");
        assert_eq!(values_of(&sent, "Forwarded"), [forwarded], "{fields:?}");
    }
}

#[test]
fn the_scheme_is_that_of_the_connection_unless_a_trusted_proxy_says_another() {
    let all = fields(&[("X-Scheme", "$scheme"), ("X-Url", "$scheme://$host$path")]);
    let (http, https) = (Scheme::Http, Scheme::Https);
    for (own_scheme, is_trusted, told_scheme, expected) in [
        (http, false, None, "http"),
        (https, false, None, "https"),
        (http, true, None, "http"),
        (https, true, None, "https"),
        (http, true, Some(https), "https"),
        (https, true, Some(http), "http"),
        (https, true, Some(https), "https"),
    ] {
        let sender = Sender { own_scheme, is_trusted, told_scheme, ..SENDER };
        let how = Forwarding { fields: Some(&all), sender, ..HOW };
        // Whatever a client says of itself, its fields are left out.
        let head = sent("GET /a HTTP/1.1\r\nHost: h\r\nX-Scheme: ftp\r\n\r\n", &how);
        let told = format!("{sender:?}");
        assert_eq!(values_of(&head, "X-Forwarded-Proto"), [expected], "{told}");
        assert_eq!(values_of(&head, "X-Scheme"), [expected], "{told}");
        assert_eq!(values_of(&head, "X-Url"), [format!("{expected}://h/a")], "{told}");
        let forwarded = format!("for=192.0.2.7;host=h;proto={expected}");
        assert_eq!(values_of(&head, "Forwarded"), [forwarded], "{told}");
    }
}

#[test]
fn the_facts_of_a_handshake_are_variables() {
    let all = fields(&[
        ("X-Client", "$tls-client"),
        ("X-Tls", "$tls-version|$tls-cipher|$tls-server-name"),
        ("X-Both", "$tls-client-$client"),
    ]);
    let named = Said(Some(("a.org", "CN=al\u{e4}\r\nX-Evil: 1,O=b")));
    let cipher = "TLS_AES_128_GCM_SHA256";
    let client = "CN=al\u{e4}\\0D\\0AX-Evil: 1,O=b";
    for (handshake, expected) in [
        (
            Some(&named as &dyn Handshake),
            [client, &format!("TLSv1.3|{cipher}|a.org"), &format!("{client}-192.0.2.7")],
        ),
        (Some(&Said(None)), ["", "TLSv1.3||", "-192.0.2.7"]),
        (None, ["", "||", "-192.0.2.7"]),
    ] {
        let how = Forwarding { fields: Some(&all), handshake, ..HOW };
        let received = "GET / HTTP/1.1\r\nHost: h\r\nX-Client: CN=forged\r\nX_Client: CN=forged\r\n\
                        X-TLS: forged\r\n\r\n";
        let head = sent(received, &how);
        for (name, expected) in ["X-Client", "X-Tls", "X-Both"].into_iter().zip(expected) {
            // An empty field is left out, and that of the client does not take its place.
            let expected: Vec<_> =
                Some(expected).filter(|text| !text.is_empty()).into_iter().collect();
            assert_eq!(values_of(&head, name), expected, "{handshake:?}");
        }
        assert!(!head.contains("forged") && !head.contains("\nX-Evil"), "{head}");
    }
}

#[test]
fn rfc7239_the_origin_is_told() {
    let by = |sender| Forwarding { sender, ..HOW };
    let trusted = Sender { is_trusted: true, ..SENDER };
    let client: IpAddr = "2001:db8::1".parse().unwrap();
    let named = by(Sender { client: Some(client), ..trusted });
    let secure = Sender { client: Some(client), told_scheme: Some(Scheme::Https), ..trusted };
    let secure = by(secure);
    let trusted = by(trusted);
    let unix = by(Sender { peer: None, client: None, ..SENDER });
    let own = "for=192.0.2.7;host=h;proto=http";
    type Expected = (&'static str, &'static str, &'static str, String);
    let cases: [(Forwarding<'_>, &str, Expected); _] = [
        // The fields of a client about itself count for nothing.
        (
            HOW,
            "X-Forwarded-For: 1.1.1.1\r\nX-Forwarded-Host: evil\r\nX-Forwarded-Proto: https\r\n\
             Forwarded: for=1.1.1.1\r\n",
            ("192.0.2.7", "h", "http", own.into()),
        ),
        // The lists of a trusted proxy are continued, in one line.
        (
            secure,
            "X-Forwarded-For: 2001:db8::1\r\nX-Forwarded-For: 10.0.0.1\r\nX-Forwarded-Host: x\r\n\
             X-Forwarded-Proto: https\r\nForwarded: for=\"[2001:db8::1]\"\r\nForwarded: for=_x\r\n",
            (
                "2001:db8::1, 10.0.0.1, 192.0.2.7",
                "x",
                "https",
                format!("for=\"[2001:db8::1]\", for=_x, {own}"),
            ),
        ),
        // A list that it has not sent begins with the client.
        (
            secure,
            "X-Forwarded-For: 2001:db8::1\r\nX-Forwarded-Proto: https\r\n",
            (
                "2001:db8::1, 192.0.2.7",
                "h",
                "https",
                format!("for=\"[2001:db8::1]\";host=h;proto=https, {own}"),
            ),
        ),
        (
            named,
            "Forwarded: for=\"[2001:db8::1]\"\r\n",
            ("2001:db8::1, 192.0.2.7", "h", "http", format!("for=\"[2001:db8::1]\", {own}")),
        ),
        (trusted, "", ("192.0.2.7", "h", "http", own.into())),
        // A quote would hide the elements after it.
        (
            trusted,
            "Forwarded: for=1.1.1.1;x=\"\r\nX-Forwarded-Proto: a\r\nX-Forwarded-Proto: b\r\n",
            ("192.0.2.7", "h", "http", own.into()),
        ),
        (
            named,
            "X-Forwarded-For: 2001:db8::1\r\nX-Forwarded-Host: a\"b\\c\r\n",
            (
                "2001:db8::1, 192.0.2.7",
                "a\"b\\c",
                "http",
                format!("for=\"[2001:db8::1]\";host=\"a\\\"b\\\\c\";proto=http, {own}"),
            ),
        ),
        (unix, "", ("unknown", "h", "http", "for=unknown;host=h;proto=http".into())),
    ];
    for (how, received, (nodes, host, scheme, forwarded)) in cases {
        let head = sent(&format!("GET / HTTP/1.1\r\nHost: h\r\n{received}\r\n"), &how);
        assert_eq!(values_of(&head, "X-Forwarded-For"), [nodes], "{received:?}");
        assert_eq!(values_of(&head, "X-Forwarded-Host"), [host], "{received:?}");
        assert_eq!(values_of(&head, "X-Forwarded-Proto"), [scheme], "{received:?}");
        assert_eq!(values_of(&head, "Forwarded"), [forwarded], "{received:?}");
    }
}

#[test]
fn a_request_says_that_it_is_for_an_include() {
    let how = Forwarding { is_include: true, ..HOW };
    let head = sent("GET / HTTP/1.0\r\nHost: h\r\nVia: 1.1 a\r\n\r\n", &how);
    assert_eq!(values_of(&head, "Via"), ["1.1 a", "1.0 samum (include)"]);
    for (via, expected) in [
        ("1.1 samum (include)", true),
        ("1.1 a, 1.1 samum\t (include), 1.1 b", true),
        ("1.1 samum", false),
        ("1.1 samum (included)", false),
        ("1.1 other (include)", false),
        ("1.1", false),
        ("", false),
    ] {
        let received = format!("GET / HTTP/1.1\r\nHost: h\r\nVia: {via}\r\n\r\n");
        let parsed = http1::parse(received.as_bytes(), &Limits::DEFAULT);
        let head = parsed.expect("accepted").expect("complete").0.head;
        assert_eq!(is_for_include(&head), expected, "{via}");
    }
}

#[test]
fn some_requests_are_for_no_server() {
    let code = |received: &str| {
        let parsed = http1::parse(received.as_bytes(), &Limits::DEFAULT);
        refusal(&parsed.expect("accepted").expect("complete").0.head).map(Status::code)
    };
    let with = |method: &str, lines: &str| format!("{method} / HTTP/1.1\r\nHost: h\r\n{lines}\r\n");
    assert_eq!(code(&with("GET", "Max-Forwards: 0\r\n")), None);
    assert_eq!(code(&with("BREW", "")), None);
    assert_eq!(code(&with("TRACE", "")), Some(405));
    assert_eq!(code("CONNECT h:1 HTTP/1.1\r\nHost: h:1\r\n\r\n"), Some(405));
    // Some server may take these for what they are not.
    for name in ["Content_Length", "transfer---encoding", "TransferEncoding", "Content.Length"] {
        assert_eq!(code(&with("POST", &format!("{name}: 5\r\n"))), Some(400), "{name}");
    }
    assert_eq!(code(&with("POST", "Content-Length: 5\r\nX-Content-Length: 6\r\n")), None);
    // RFC 9110 §7.6.2
    assert_eq!(code(&with("OPTIONS", "Max-Forwards: 0\r\n")), Some(204));
    assert_eq!(code(&with("OPTIONS", "Max-Forwards: 1\r\n")), None);
    let head = sent(&with("OPTIONS", "Max-Forwards: 7\r\n"), &HOW);
    assert_eq!(values_of(&head, "Max-Forwards"), ["6"]);
    // RFC 9110 §7.6.3: a request that goes round in a circle.
    let hops = |count| format!("Via: 1.1 other{}\r\n", ", 1.1 samum".repeat(count));
    assert_eq!(code(&with("GET", &hops(HOPS_MAX - 1))), None);
    assert_eq!(code(&with("GET", &hops(HOPS_MAX))), Some(508));
    let comments = "Via: 1.1 other (1.1 samum), 1.1 samum (include),1.0  samum\t(a b)\r\n";
    assert_eq!(code(&with("GET", &(hops(HOPS_MAX - 3) + comments))), None);
    assert_eq!(code(&with("GET", &(hops(HOPS_MAX - 2) + comments))), Some(508));
}

#[test]
fn each_octet_of_an_address_is_written_in_decimal() {
    for octet in 0..=u8::MAX {
        let address = IpAddr::from([octet, 0, octet, 1]);
        let mut text = Vec::new();
        push_address(address, &mut text);
        assert_eq!(text, address.to_string().as_bytes());
    }
}
