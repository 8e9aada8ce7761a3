//! Heads as servers send them, and as clients get them.

use http1::client::{Connection, Event};
use http1::write::{self, Wire};

use super::*;
use config::RESPONSE_LIMITS;

const DATE: &str = "Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n";
pub(in super::super) const PLAIN: Asked =
    Asked { version: Version::Http11, upgrade: None, may_keep: true };

/// The meaning of a response to a request with this method.
fn meaning(method: http::Method<'_>, received: &str, asked: &Asked) -> Result<Meaning, Fault> {
    let mut connection = Connection::new();
    connection.begin(method);
    match connection.handle_input(received.as_bytes(), &RESPONSE_LIMITS).1 {
        Event::Response(response) => read(&response, &mut asked.clone(), (0, &date::format(0))),
        Event::Faulty(fault) => Err(fault),
        event => panic!("{event:?}"),
    }
}

/// The head that the client gets.
fn written(passed: &Passed) -> String {
    let mut out = Vec::new();
    write::response_head(&passed.head(0), &date::format(0), Wire::default(), &mut out);
    String::from_utf8(out).expect("UTF-8")
}

fn passed(received: &str) -> String {
    match meaning(http::Method::Get, received, &PLAIN) {
        Ok(Meaning::Response(passed)) => written(&passed),
        other => panic!("{received:?}: {other:?}"),
    }
}

#[test]
fn a_response_is_written_anew() {
    let received = format!(
        "HTTP/1.1 299 Some text\r\nServer: x\r\n{DATE}content-length:5\r\nSet-Cookie: a\r\nX-A:\r\n\
         Set-Cookie: b\r\n\r\n"
    );
    let expected = format!(
        "HTTP/1.1 299 \r\n{DATE}Content-Length: 5\r\nServer: x\r\nSet-Cookie: a\r\nX-A: \r\n\
         Set-Cookie: b\r\n\r\n"
    );
    assert_eq!(passed(&received), expected);
}

#[test]
fn fields_of_one_connection_end_here() {
    for (received, expected) in [
        // RFC 9110 §7.6.1
        ("Connection: close, X-A\r\nX-A: 1\r\nX-B: 2\r\n", "X-B: 2\r\n"),
        ("Keep-Alive: timeout=5\r\nProxy-Connection: close\r\nX: 1\r\n", "X: 1\r\n"),
        // §11.7, §6.6.2, §7.8
        ("Proxy-Authenticate: Basic\r\nTrailer: X\r\nUpgrade: h2c\r\n", ""),
        // Nearly fields of the framing, which a later program may mistake for these.
        ("Transfer_Encoding: chunked\r\nX: 1\r\nContent_Length: 5\r\n", "X: 1\r\n"),
        ("_Content-Length: 5\r\nTransferEncoding: chunked\r\n", ""),
        // Fields for the proxy.
        ("X-Accel-Buffering: no\r\nx-accel-expires: 0\r\nX-Sendfile-Type: x\r\n", ""),
        ("X-Accel-Redirect:\r\nX-Sendfile: \r\nX: 1\r\n", "X: 1\r\n"),
    ] {
        let head = passed(&format!("HTTP/1.1 404 \r\n{DATE}{received}Content-Length: 0\r\n\r\n"));
        let expected =
            format!("HTTP/1.1 404 Not Found\r\n{DATE}Content-Length: 0\r\n{expected}\r\n");
        assert_eq!(head, expected, "{received:?}");
    }
}

#[test]
fn rfc9110_6_6_1_the_date_is_that_of_the_server() {
    const EPOCH: &str = "Thu, 01 Jan 1970 00:00:00 GMT";
    for (received, expected) in [
        (DATE, "Sun, 06 Nov 1994 08:49:37 GMT"),
        // §5.6.7: older forms are written in the newer one.
        ("Date: Sunday, 06-Nov-94 08:49:37 GMT\r\n", "Sun, 06 Nov 1994 08:49:37 GMT"),
        ("", EPOCH),
        ("Date: yesterday\r\n", EPOCH),
        (&DATE.repeat(2), "Sun, 06 Nov 1994 08:49:37 GMT"),
        (&format!("{DATE}Date: Sun, 06 Nov 1994 08:49:38 GMT\r\n"), EPOCH),
    ] {
        let head = passed(&format!("HTTP/1.1 200 \r\n{received}Content-Length: 0\r\n\r\n"));
        let date = head.lines().nth(1).expect("a date");
        assert_eq!(date, format!("Date: {expected}"), "{received:?}");
        assert_eq!(head.matches("Date").count(), 1);
    }
}

#[test]
fn the_length_is_known_or_not() {
    use http::Method::{Get, Head};
    for (method, received, expected) in [
        (Get, "200 \r\nContent-Length: 5\r\n", Some(5)),
        (Get, "200 \r\nContent-Length: 0\r\n", Some(0)),
        (Get, "200 \r\nContent-Length: 4611686018427387903\r\n", Some(BODY_BYTES_END - 1)),
        (Get, "200 \r\nTransfer-Encoding: chunked\r\n", None),
        (Get, "200 \r\n", None),
        // RFC 9110 §8.6: the length that the content would have.
        (Head, "200 \r\nContent-Length: 5\r\n", Some(5)),
        (Head, "200 \r\nTransfer-Encoding: chunked\r\n", None),
        (Head, "200 \r\n", None),
        (Get, "304 \r\nContent-Length: 5\r\n", Some(5)),
        (Get, "304 \r\n", None),
        (Get, "304 \r\nContent-Length: 4611686018427387904\r\n", None),
        (Head, "200 \r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n", None),
        (Get, "204 \r\nContent-Length: 0\r\n", None),
        (Get, "204 \r\nContent-Length: 5\r\n", None),
        (Get, "204 \r\nTransfer-Encoding: chunked\r\n", None),
        (Get, "200 \r\nContent-Length: 5\r\nContent-Length: 5\r\n", Some(5)),
        (Get, "200 \r\nContent-Length: 5, 5\r\n", Some(5)),
        (Get, "204 \r\n", None),
    ] {
        match meaning(method, &format!("HTTP/1.1 {received}\r\n"), &PLAIN) {
            Ok(Meaning::Response(passed)) => {
                assert_eq!(passed.content_length, expected, "{received:?}");
            }
            other => panic!("{received:?}: {other:?}"),
        }
    }
}

#[test]
fn lines_that_are_not_well_formed_are_written_well_formed() {
    for (received, expected) in [
        ("X : 1\r\nY: a\r\n b\r\nZ: c\x01d\n", "X: 1\r\nY: a b\r\nZ: c d\r\n"),
        ("Content-Type: a/b\nConnection : X\nX: 1\n: 1\nA B: 1\n", "Content-Type: a/b\r\n"),
        ("Location: /a\r\n /b\r\n", "Location: /a /b\r\n"),
    ] {
        let head = passed(&format!("HTTP/1.1 200\n{DATE}{received}Content-Length: 0\n\n"));
        let expected = format!("HTTP/1.1 200 OK\r\n{DATE}Content-Length: 0\r\n{expected}\r\n");
        assert_eq!(head, expected, "{received:?}");
    }
}

#[test]
fn contradictions_are_faults() {
    for received in [
        // RFC 9112 §6.3
        "200 \r\nContent-Length: 5\r\nContent-Length: 6\r\n",
        "200 \r\nContent-Length: 5, 6\r\n",
        "200 \r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        "200 \r\nTransfer-Encoding: gzip, chunked\r\n",
        "200 \r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: gzip\r\n",
        // They cannot be added to what a client has been promised.
        "200 \r\nContent-Length: 18446744073709551615\r\n",
        "200 \r\nContent-Length: 4611686018427387904\r\n",
        // RFC 9110 §7.8
        "101 \r\nUpgrade: websocket\r\nConnection: upgrade\r\n",
        // Nothing that a client may ask for is elsewhere.
        "200 \r\nX-Accel-Redirect: /a\r\nX-Accel-Redirect: /b\r\n",
        "200 \r\nX-Sendfile: /a\r\nX-Sendfile: /b\r\n",
        "200 \r\nX-Accel-Redirect: a\r\n",
        "200 \r\nX-Accel-Redirect: @name\r\n",
        "200 \r\nX-Sendfile: a\r\n",
        // Versions and lines, RFC 9112 §2.3, §4, §5
        "200 \r\n folded\r\n",
        "1000 \r\n",
    ] {
        let meaning = meaning(http::Method::Get, &format!("HTTP/1.1 {received}\r\n"), &PLAIN);
        assert!(meaning.is_err(), "{received:?}: {meaning:?}");
    }
}

#[test]
fn rfc9110_7_8_only_a_protocol_that_was_asked_for_is_switched_to() {
    let asked = Asked { upgrade: Some(b"a/1, WebSocket".into()), ..PLAIN };
    let switched = |lines: &str| {
        let received = format!("HTTP/1.1 101 \r\nConnection: upgrade\r\n{lines}\r\n");
        meaning(http::Method::Get, &received, &asked)
    };
    let Ok(Meaning::Tunnel(passed)) = switched("Upgrade: websocket\r\nSec-WebSocket-Accept: x\r\n")
    else {
        panic!("no tunnel")
    };
    let head = written(&passed);
    assert!(head.ends_with("\r\nSec-WebSocket-Accept: x\r\nUpgrade: websocket\r\n\r\n"), "{head}");
    assert!(matches!(
        switched("Upgrade: websocket\r\nUpgrade: websocket\r\n"),
        Ok(Meaning::Tunnel(_))
    ));
    for lines in ["", "Upgrade:\r\n", "Upgrade: b\r\n", "Upgrade: a/1\r\nUpgrade: websocket\r\n"] {
        assert!(switched(lines).is_err(), "{lines:?}");
    }
    let declined = meaning(http::Method::Get, "HTTP/1.1 426 \r\nUpgrade: b\r\n\r\n", &asked);
    assert!(matches!(declined, Ok(Meaning::Response(_))), "{declined:?}");
}

#[test]
fn rfc9110_15_5_22_a_426_names_the_protocols_that_it_demands() {
    for (received, expected) in [
        (
            "Upgrade: a/1, b\r\nConnection: Upgrade\r\n",
            "Upgrade: a/1, b\r\nConnection: upgrade\r\n",
        ),
        (
            "Upgrade: a\r\nX: 1\r\nUpgrade: b\r\n",
            "X: 1\r\nUpgrade: a\r\nUpgrade: b\r\nConnection: upgrade\r\n",
        ),
        ("X: 1\r\n", "X: 1\r\n"),
    ] {
        let head = passed(&format!("HTTP/1.1 426 \r\n{DATE}{received}Content-Length: 0\r\n\r\n"));
        assert!(head.ends_with(&format!("Content-Length: 0\r\n{expected}\r\n")), "{head}");
    }
    let mut fields = FieldSection::EMPTY;
    fields.push(b"Upgrade", b"a");
    fields.push(b"Connection", b"upgrade");
    let document = Document {
        status: Status::from_code(426).expect("a status"),
        content_type: None,
        content_length: None,
        location: None,
        fields,
    };
    let Ok((Meaning::Response(passed), true)) = of_script(Reply::Document(document)) else {
        panic!("no response")
    };
    assert!(written(&passed).ends_with("\r\nUpgrade: a\r\nConnection: upgrade\r\n\r\n"));
}

#[test]
fn rfc9110_15_2_interim_responses_are_for_clients_that_know_them() {
    let mut connection = Connection::new();
    connection.begin(http::Method::Get);
    let received =
        b"HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\nConnection: x\r\n\r\n";
    let (_, Event::Interim(response)) = connection.handle_input(received, &RESPONSE_LIMITS) else {
        panic!("not interim")
    };
    let hints = interim(&response, &PLAIN).expect("passed on");
    assert_eq!(hints.status.code(), 103);
    assert_eq!(hints.fields.as_bytes(), b"Link: </a.css>; rel=preload\r\n");
    assert_eq!(interim(&response, &Asked { version: Version::Http10, ..PLAIN }), None);
}

#[test]
fn a_file_can_take_the_place_of_a_response() {
    let received = format!(
        "HTTP/1.1 200 \r\n{DATE}Content-Type: a/b\r\nSet-Cookie: a\r\nset-cookie: b\r\nETag: \"x\"\r\n\
         Content-Length: 7\r\nContent-Disposition: attachment\r\nServer: s\r\nExpires: 0\r\n\
         Cache-Control: private\r\nX-Other: 1\r\nLOCATION"
    );
    let expected = "Content-Type: a/b\r\nSet-Cookie: a\r\nset-cookie: b\r\n\
                    Content-Disposition: attachment\r\nExpires: 0\r\nCache-Control: private\r\n";
    for (field, expected_to) in [
        ("X-Accel-Redirect: /private/a%20b?c", Target::Path(b"/private/a%20b?c".into())),
        ("x-sendfile: /srv/private/a b", Target::File(b"/srv/private/a b".into())),
        ("X-Sendfile: /srv/a\r\nX-Accel-Redirect: /a\r\nX-Sendfile: b", Target::Path(b"/a".into())),
        ("X-Accel-Redirect:\r\nX-Sendfile: /srv/a\r\nX-Sendfile:", Target::File(b"/srv/a".into())),
        ("X-Accel-Redirect: /a\r\nX-Accel-Redirect: /a", Target::Path(b"/a".into())),
        ("X-Sendfile: /srv/a\r\nx-sendfile: /srv/a", Target::File(b"/srv/a".into())),
    ] {
        let received = received.replace("LOCATION", &format!("{field}\r\n\r\n"));
        let meaning = meaning(http::Method::Get, &received, &PLAIN);
        let Ok(Meaning::HandOver(HandOver { to, fields })) = meaning else {
            panic!("{field}: {meaning:?}")
        };
        assert_eq!(to, expected_to);
        assert_eq!(fields.as_bytes(), expected.as_bytes());
    }
    for status in [200, 201, 204, 206, 302, 304, 401, 403, 404, 500, 999] {
        let received = format!("HTTP/1.1 {status} \r\nX-Accel-Redirect: /private/a\r\n\r\n");
        let meaning = meaning(http::Method::Get, &received, &PLAIN);
        assert!(matches!(meaning, Ok(Meaning::HandOver(_))), "{status}: {meaning:?}");
    }
}
