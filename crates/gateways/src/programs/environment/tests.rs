use core::net::{IpAddr, Ipv4Addr};

use http1::{Limits, server};

use super::*;
use crate::tls::tests::Said;

/// The environment of a request, one variable a line, sorted.
fn environment(
    request: &str,
    circumstances: &Circumstances<'_>,
    script: Script<'_>,
) -> Vec<String> {
    let text = request.replace('\n', "\r\n") + "\r\n\r\n";
    let mut connection = server::Connection::new();
    let (_, event) = connection.handle_input(text.as_bytes(), &Limits::DEFAULT);
    let server::Event::Request(request) = event else { panic!("{text}: {event:?}") };
    let length = request.head.field(Field::ContentLength).and_then(http::bytes::decimal);
    let mut all = Environment::new(&request.head, circumstances);
    if let Some(length) = length {
        all.set_content_length(length);
    }
    all.set_script(script, Path::new("/srv/cgi"), Some(Path::new("/srv/www")));
    let line = |(name, value): (&OsStr, &OsStr)| {
        format!("{}={}", name.to_str().unwrap(), value.to_string_lossy())
    };
    let mut lines: Vec<_> = all.iter().map(line).collect();
    lines.sort();
    lines
}

const SCRIPT: Script<'_> = Script { mount: b"/tool/", path: b"env", directory: false, len: 3 };

const SENDER: Sender = Sender {
    peer: None,
    is_trusted: false,
    client: Some(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7))),
    own_scheme: Scheme::Http,
    told_scheme: None,
    is_contradicted: false,
};

fn circumstances() -> Circumstances<'static> {
    Circumstances {
        sender: SENDER,
        user: None,
        told_host: None,
        requested: None,
        client_port: Some(4711),
        server_name: "default",
        server_address: Some(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1))),
        port: Some(8080),
        handshake: None,
        request_id: None,
        reserved: &[],
    }
}

/// The variables with one of these names, as far as they are set.
#[track_caller]
fn some(request: &str, names: &[&str]) -> Vec<String> {
    let mut lines = environment(request, &circumstances(), SCRIPT);
    lines.retain(|line| names.iter().any(|name| line.split('=').next() == Some(name)));
    lines
}

#[test]
fn rfc3875_4_1_all_variables_of_a_request() {
    let request = "POST /tool/a%20b/env/x/%C3%A4?q=1&%41 HTTP/1.1\nHost: Example.org:81\nContent-Type: a/b\n\
        Content-Length: 5\nAccept: text/*\nUser-Agent: me\nAuthorization: Basic eA==";
    let path = "a b/env/x/\u{e4}".as_bytes();
    let script = Script { mount: b"/tool/", path, directory: false, len: 7 };
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(
        environment(request, &circumstances(), script),
        [
            "AUTH_TYPE=",
            "CONTENT_LENGTH=5",
            "CONTENT_TYPE=a/b",
            "DOCUMENT_ROOT=/srv/www",
            "DOCUMENT_URI=/tool/a b/env/x/\u{e4}",
            "GATEWAY_INTERFACE=CGI/1.1",
            "HTTP_ACCEPT=text/*",
            "HTTP_AUTHORIZATION=Basic eA==",
            "HTTP_HOST=Example.org:81",
            "HTTP_USER_AGENT=me",
            "PATH_INFO=/x/\u{e4}",
            "PATH_TRANSLATED=/srv/www/x/\u{e4}",
            "QUERY_STRING=q=1&%41",
            "REDIRECT_STATUS=200",
            "REMOTE_ADDR=192.0.2.7",
            "REMOTE_HOST=192.0.2.7",
            "REMOTE_PORT=4711",
            "REQUEST_METHOD=POST",
            "REQUEST_SCHEME=http",
            "REQUEST_URI=/tool/a%20b/env/x/%C3%A4?q=1&%41",
            "SCRIPT_FILENAME=/srv/cgi/a b/env",
            "SCRIPT_NAME=/tool/a b/env",
            "SERVER_ADDR=192.0.2.1",
            "SERVER_NAME=Example.org",
            "SERVER_PORT=8080",
            "SERVER_PROTOCOL=HTTP/1.1",
            &format!("SERVER_SOFTWARE=samum/{version}"),
        ]
    );
}

#[test]
fn a_line_of_a_field_is_appended_wherever_the_texts_of_others_are() {
    let request = "GET / HTTP/1.1\nHost: h\nA:\nContent-Type: a/b\nCookie: c=1\nB: b\nContent-Type: c/d\n\
        A: a\nCookie: d=2\nB: e\nA: f\nC: g";
    let names =
        ["CONTENT_TYPE", "HTTP_A", "HTTP_B", "HTTP_C", "HTTP_COOKIE", "HTTP_HOST", "SCRIPT_NAME"];
    assert_eq!(
        some(request, &names),
        [
            "CONTENT_TYPE=c/d",
            "HTTP_A=, a, f",
            "HTTP_B=b, e",
            "HTTP_C=g",
            "HTTP_COOKIE=c=1; d=2",
            "HTTP_HOST=h",
            "SCRIPT_NAME=/tool/env",
        ]
    );
}

#[test]
fn an_include_has_the_uri_of_its_page() {
    let all = Circumstances { requested: Some(b"/page.html?a"), ..circumstances() };
    let mut lines = environment("GET /tool/env?b HTTP/1.1\nHost: h", &all, SCRIPT);
    lines.retain(|line| line.starts_with("REQUEST_URI") || line.starts_with("QUERY"));
    assert_eq!(lines, ["QUERY_STRING=b", "REQUEST_URI=/page.html?a"]);
    let target = Target::Origin { path: b"/tool/env", query: Some(b"b") };
    let version = http::Version::Http11;
    let head = Head::new(http::Method::Get, target, version, None, b"", http::FieldIndex::EMPTY);
    for (all, path) in [(all, "/tool/env"), (circumstances(), "/tool/env")] {
        assert_eq!(Environment::new(&head, &all).path(), path.as_bytes());
    }
}

#[test]
fn httpoxy_no_field_becomes_the_proxy_of_a_program() {
    let request = "GET / HTTP/1.1\nHost: h\nProxy: evil\nPROXY: evil\npRoXy: evil\nProxy-Authorization: x\n\
        Proxy-Connection: x\nPro_xy: x";
    let lines = environment(request, &circumstances(), SCRIPT);
    assert!(
        !lines.iter().any(|line| line.contains("PRO") && line.starts_with("HTTP_")),
        "{lines:?}"
    );
}

#[test]
fn fields_with_other_characters_and_fields_of_the_connection_are_dropped() {
    let request = "GET / HTTP/1.1\nHost: h\nX_Real_IP: evil\nX.A: 1\nX-A: 2\nConnection: X-Hop, close\nX-Hop: 1\n\
        Keep-Alive: 1\nTE: trailers\nExpect: 100-continue\nX-Content_Length: 9\n!: 1";
    let mut lines = environment(request, &circumstances(), SCRIPT);
    lines.retain(|line| line.starts_with("HTTP_"));
    assert_eq!(lines, ["HTTP_HOST=h", "HTTP_X_A=2"]);
}

#[test]
fn rfc3875_4_1_18_repeated_fields_are_one_variable() {
    let request = "GET / HTTP/1.1\nHost: h\nAccept: a\naccept: b\nCookie: c=1\nCookie: d=2";
    assert_eq!(
        some(request, &["HTTP_ACCEPT", "HTTP_COOKIE"]),
        ["HTTP_ACCEPT=a, b", "HTTP_COOKIE=c=1; d=2"]
    );
}

#[test]
fn rfc3875_4_1_14_name_and_port_of_the_server() {
    let names = ["SERVER_NAME", "SERVER_PORT", "SERVER_PROTOCOL"];
    for (request, port, expected) in [
        ("GET / HTTP/1.1\nHost: a.example", Some(8080), ["a.example", "8080", "HTTP/1.1"]),
        ("GET / HTTP/1.1\nHost: a.example:81", None, ["a.example", "81", "HTTP/1.1"]),
        ("GET / HTTP/1.1\nHost: [2001:db8::1]:81", None, ["[2001:db8::1]", "81", "HTTP/1.1"]),
        ("GET / HTTP/1.1\nHost: [2001:db8::1]", None, ["[2001:db8::1]", "80", "HTTP/1.1"]),
        ("GET / HTTP/1.1\nHost: a:99999", None, ["a", "80", "HTTP/1.1"]),
        ("GET / HTTP/1.1\nHost:", None, ["default", "80", "HTTP/1.1"]),
        ("GET / HTTP/1.0", Some(1), ["default", "1", "HTTP/1.0"]),
        ("GET http://b.example:82/ HTTP/1.1\nHost: a", None, ["b.example", "82", "HTTP/1.1"]),
    ] {
        let mut lines = environment(request, &Circumstances { port, ..circumstances() }, SCRIPT);
        lines.retain(|line| names.iter().any(|name| line.split('=').next() == Some(name)));
        let expected: Vec<_> =
            names.iter().zip(expected).map(|(name, value)| format!("{name}={value}")).collect();
        assert_eq!(lines, expected, "{request}");
    }
}

#[test]
fn the_address_of_the_server_is_that_of_the_connection() {
    for (address, expected) in [
        (Some("::1"), Some("SERVER_ADDR=::1")),
        (Some("::ffff:192.0.2.9"), Some("SERVER_ADDR=192.0.2.9")),
        // A Unix socket has none.
        (None, None),
    ] {
        let server_address = address.map(|address| address.parse().unwrap());
        let all = Circumstances { server_address, ..circumstances() };
        let lines = environment("GET / HTTP/1.1\nHost: h", &all, SCRIPT);
        let found = lines.iter().find(|line| line.starts_with("SERVER_ADDR"));
        assert_eq!(found.map(String::as_str), expected);
    }
}

#[test]
fn the_length_of_an_empty_body_is_zero_if_the_client_says_so() {
    for (lines, framing, expected) in [
        ("Content-Length: 0\r\n", Framing::None, Some("0")),
        ("Content-Length: 0\r\n", Framing::Tunnel, Some("0")),
        ("Content-Length: 5\r\n", Framing::Length(5), Some("5")),
        ("", Framing::None, None),
        ("", Framing::Unknown, None),
    ] {
        let (target, version) = (Target::Asterisk, http::Version::Http11);
        let mut index = http::FieldIndex::EMPTY;
        if !lines.is_empty() {
            index.add(Field::ContentLength, 16..17);
        }
        let lines = lines.as_bytes();
        let mut head = Head::new(http::Method::Post, target, version, None, lines, index);
        head.framing = framing;
        let mut environment = Environment::default();
        environment.announce_content(&head);
        let value = environment.value("CONTENT_LENGTH").and_then(OsStr::to_str);
        assert_eq!(value, expected, "{framing:?}");
    }
}

#[test]
fn a_trusted_proxy_says_what_its_client_has_asked_for() {
    let (http, https) = (Some(Scheme::Http), Some(Scheme::Https));
    for (scheme, fields, expected) in [
        (https, "", [Some("on"), Some("https"), Some("443")]),
        (http, "", [None, Some("http"), Some("80")]),
        (None, "", [None, Some("http"), Some("8080")]),
        (https, "\nX-Forwarded-Port: 8443", [Some("on"), Some("https"), Some("8443")]),
        (https, "\nX-Forwarded-Port: x", [Some("on"), Some("https"), Some("443")]),
        (https, "\nX-Forwarded-Port: 0", [Some("on"), Some("https"), Some("443")]),
        (https, "\nX-Forwarded-Host: b:444", [Some("on"), Some("https"), Some("444")]),
        (https, "\nX-Forwarded-Host: b", [Some("on"), Some("https"), Some("443")]),
        (
            https,
            "\nX-Forwarded-Host: b:444\nX-Forwarded-Port: 445",
            [Some("on"), Some("https"), Some("445")],
        ),
        (None, "\nX-Forwarded-Host: b:444", [None, Some("http"), Some("444")]),
        (None, "\nX-Forwarded-Host: b", [None, Some("http"), Some("8080")]),
    ] {
        let sender = Sender { told_scheme: scheme, is_trusted: true, ..SENDER };
        let all = Circumstances { sender, ..circumstances() };
        let request = format!("GET / HTTP/1.1\nHost: a{fields}");
        let lines = environment(&request, &all, SCRIPT);
        let value =
            |name: &str| lines.iter().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        let found = ["HTTPS", "REQUEST_SCHEME", "SERVER_PORT"].map(value);
        assert_eq!(found, expected, "{scheme:?} {fields:?}");
    }
    for (told_host, fields, port) in [
        (None, "Host: a:81", "81"),
        // The proxy has written its own name for samum.
        (None, "Host: 127.0.0.1:8080", "443"),
        (Some("e.org:8443"), "Host: 127.0.0.1:8080", "8443"),
        (Some("e.org:8443"), "Host: a:81", "8443"),
        (Some("e.org"), "Host: a:81", "443"),
        (Some("e.org:8443"), "Host: a:81\nX-Forwarded-Host: b:444", "444"),
    ] {
        let sender = Sender { told_scheme: https, is_trusted: true, ..SENDER };
        let told_host = told_host.map(str::as_bytes);
        let all = Circumstances { sender, told_host, ..circumstances() };
        let request = format!("GET / HTTP/1.1\n{fields}\nX-Forwarded-Proto: https");
        let lines = environment(&request, &all, SCRIPT);
        assert!(lines.contains(&format!("SERVER_PORT={port}")), "{fields}: {lines:?}");
        assert!(lines.contains(&"HTTP_X_FORWARDED_PROTO=https".to_owned()), "{lines:?}");
    }
}

#[test]
fn a_connection_with_tls_has_the_scheme_https_and_the_port_of_its_listener() {
    let (http, https) = (Some(Scheme::Http), Some(Scheme::Https));
    for (own, told, port, host, expected) in [
        (Scheme::Https, None, Some(8443), "a", [Some("on"), Some("https"), Some("8443")]),
        (Scheme::Https, None, Some(443), "a:1", [Some("on"), Some("https"), Some("443")]),
        (Scheme::Https, None, None, "a:444", [Some("on"), Some("https"), Some("444")]),
        (Scheme::Https, None, None, "a", [Some("on"), Some("https"), Some("443")]),
        (Scheme::Http, None, None, "a", [None, Some("http"), Some("80")]),
        // A trusted proxy may speak TLS to samum, and HTTP to its client.
        (Scheme::Https, http, Some(8443), "a", [None, Some("http"), Some("80")]),
        (Scheme::Https, https, Some(8443), "a", [Some("on"), Some("https"), Some("443")]),
    ] {
        let sender =
            Sender { own_scheme: own, told_scheme: told, is_trusted: told.is_some(), ..SENDER };
        let all = Circumstances { sender, port, ..circumstances() };
        let lines = environment(&format!("GET / HTTP/1.1\nHost: {host}"), &all, SCRIPT);
        let value =
            |name: &str| lines.iter().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        let found = ["HTTPS", "REQUEST_SCHEME", "SERVER_PORT"].map(value);
        assert_eq!(found, expected, "{own:?} {told:?} {port:?} {host}");
    }
}

#[test]
fn the_facts_of_a_handshake_are_variables_that_no_field_imitates() {
    let named = Said(Some(("a.org", "CN=al\r\n\0")));
    let request = "GET / HTTP/1.1\nHost: a.org\nSSL-Client-Verify: SUCCESS\nSSL_Client_Verify: SUCCESS\n\
                   SSL-Protocol: x\nHTTPS: on";
    let expected: [(Option<&dyn Handshake>, &[&str]); _] = [
        (
            Some(&named),
            &[
                "SSL_CIPHER=TLS_AES_128_GCM_SHA256",
                "SSL_CLIENT_S_DN=CN=al\\0D\\0A\\00",
                "SSL_CLIENT_VERIFY=SUCCESS",
                "SSL_PROTOCOL=TLSv1.3",
                "SSL_SERVER_NAME=a.org",
            ],
        ),
        (Some(&Said(None)), &["SSL_CLIENT_VERIFY=NONE", "SSL_PROTOCOL=TLSv1.3"]),
        (None, &[]),
    ];
    for (handshake, expected) in expected {
        let all = Circumstances { handshake, ..circumstances() };
        let lines = environment(request, &all, SCRIPT);
        let begins = |start: &str| {
            let lines = lines.iter().filter(|line| line.starts_with(start));
            lines.map(String::as_str).collect::<Vec<_>>()
        };
        assert_eq!(begins("SSL_"), expected, "{handshake:?}");
        // The scheme is of the sender, and the fields of the client have names of their own.
        assert_eq!(begins("HTTPS"), [""; 0]);
        let own = ["HTTP_SSL_CLIENT_VERIFY=SUCCESS", "HTTP_SSL_PROTOCOL=x"];
        assert_eq!(begins("HTTP_SSL"), own);
    }
}

#[test]
fn a_field_that_only_the_server_may_write_has_no_variable() {
    let reserved = [RequestHeader::new("X-Client", "").expect("a field")];
    let all = Circumstances { reserved: &reserved, ..circumstances() };
    let request = "GET / HTTP/1.1\nHost: a\nX-Client: a\nx-client: b\nX_Client: c\nX-Client-Id: d";
    let mut lines = environment(request, &all, SCRIPT);
    lines.retain(|line| line.starts_with("HTTP_X_"));
    assert_eq!(lines, ["HTTP_X_CLIENT_ID=d"]);
}

#[test]
fn what_others_say_of_the_scheme_does_not_reach_the_application() {
    let fields = [
        "Forwarded: proto=https",
        "X-Forwarded-Proto: https",
        "x-forwarded-proto: https",
        "X-Forwarded-Protocol: https",
        "X-Forwarded-Scheme: https",
        "X-Forwarded-Ssl: on",
        "X-Forwarded-Port: 443",
        "X-Forwarded-Host: evil",
        "X-Url-Scheme: https",
        "X-Scheme: https",
        "Front-End-Https: on",
        "CloudFront-Forwarded-Proto: https",
        "CF-Visitor: {\"scheme\":\"https\"}",
        "X-ARR-SSL: 2048|256|C=US",
        "X-Proto: SSL",
        "HTTPS: 1",
    ];
    let plain = environment("GET / HTTP/1.1\nHost: a\nX-A: 1", &circumstances(), SCRIPT);
    let request = format!("GET / HTTP/1.1\nHost: a\n{}\nX-A: 1", fields.join("\n"));
    assert_eq!(environment(&request, &circumstances(), SCRIPT), plain);
    assert_eq!(
        some("GET / HTTP/1.1\nHost: a\nX-Forwarded-For: 1.1.1.1", &["HTTP_X_FORWARDED_FOR"]),
        ["HTTP_X_FORWARDED_FOR=1.1.1.1"]
    );
}

#[test]
fn a_client_has_an_address_or_came_by_a_unix_socket() {
    let names = ["REMOTE_ADDR", "REMOTE_HOST", "REMOTE_PORT"];
    for (client, expected) in [
        ((Some("2001:db8::1"), Some(5)), &["2001:db8::1", "2001:db8::1", "5"][..]),
        ((Some("::ffff:192.0.2.1"), Some(5)), &["192.0.2.1", "192.0.2.1", "5"]),
        ((Some("192.0.2.1"), None), &["192.0.2.1", "192.0.2.1"]),
        ((None, None), &["unix:", "unix:"]),
    ] {
        let (client, client_port) = client;
        let client = client.map(|client| client.parse().unwrap());
        let sender = Sender { client, ..SENDER };
        let all = Circumstances { sender, client_port, ..circumstances() };
        let mut lines = environment("GET / HTTP/1.1\nHost: h", &all, SCRIPT);
        lines.retain(|line| names.iter().any(|name| line.split('=').next() == Some(name)));
        let expected: Vec<_> =
            names.iter().zip(expected).map(|(name, value)| format!("{name}={value}")).collect();
        assert_eq!(lines, expected);
    }
}

#[test]
fn rfc3875_4_1_5_the_rest_of_the_path() {
    for (path, len, directory, name, info) in [
        ("a", 1, false, "/tool/a", None),
        ("a", 1, true, "/tool/a", Some("/")),
        ("a/b", 1, false, "/tool/a", Some("/b")),
        ("a/b", 1, true, "/tool/a", Some("/b/")),
        ("a/b", 3, false, "/tool/a/b", None),
    ] {
        let script = Script { mount: b"/tool/", path: path.as_bytes(), directory, len };
        let lines = environment("GET / HTTP/1.1\nHost: h", &circumstances(), script);
        let value =
            |name: &str| lines.iter().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        assert_eq!((value("SCRIPT_NAME"), value("PATH_INFO")), (Some(name), info), "{path}");
        let translated = info.map(|info| format!("/srv/www{info}"));
        assert_eq!(value("PATH_TRANSLATED"), translated.as_deref(), "{path}");
    }
}

#[test]
fn names_are_tried_from_the_first_on_and_none_that_begins_with_a_dot() {
    let all = |path: &str| {
        candidates(path.as_bytes()).map(|len| path[..len].to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(all("a"), ["a"]);
    assert_eq!(all("a/bc/d"), ["a", "a/bc", "a/bc/d"]);
    assert_eq!(all(""), [""; 0]);
    assert_eq!(all(".git/hooks/x"), [""; 0]);
    assert_eq!(all("a/.b/c"), ["a"]);
}
