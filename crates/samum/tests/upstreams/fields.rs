//! `request-headers`: the fields that a server gets.

use std::io::Write as _;

use testkit::{Client, Tree, request};

use super::bodies::{Origin, read_until};
use super::{configure, serve};
use crate::common::{SOON, on_both_drivers};

#[test]
fn a_server_gets_the_fields_of_its_route() {
    on_both_drivers(|driver| {
        let (tree, origin) = (Tree::new(), Origin::new());
        let keys = "request-headers = { X-Real-IP = '$client', Host = 'app.internal:81', X-Key = 'secret', \
                    Cookie = '', X-Asked = '${method} $host$path?$query' }";
        configure(&tree, driver, &[format!("http://{}", origin.address())], keys);
        let server = serve(&tree);
        let mut client = Client::connect(&server.address()).expect("the server accepts");
        client.set_limit(SOON);
        let head = "PUT /a?b=c\nCookie: a=b\nX-Key: forged\nX-Real-IP: 1.2.3.4\nConnection: X-Key\n\
                    Transfer-Encoding: chunked\nTrailer: X-Key";
        let body = "1\r\nx\r\n0\r\nX-Key: forged\r\nX-Sum: 1\r\n\r\n";
        client.send(request(head) + body).expect("the server receives");
        let mut link = origin.accept();
        let head = read_until(&mut link, "\r\n\r\n");
        for line in [
            "\r\nHost: app.internal:81\r\n",
            "\r\nX-Real-IP: 127.0.0.1\r\n",
            "\r\nX-Key: secret\r\n",
            "\r\nX-Forwarded-For: 127.0.0.1\r\n",
        ] {
            assert_eq!(head.matches(line).count(), 1, "{line}{head}");
        }
        assert!(head.contains("\r\nX-Asked: PUT "), "{head}");
        assert!(head.contains("/a?b=c\r\n") && !head.contains("Cookie"), "{head}");
        assert!(!head.contains("forged") && head.matches("\r\nHost: ").count() == 1, "{head}");
        assert_eq!(read_until(&mut link, "\r\n\r\n"), "1\r\nx\r\n0\r\nX-Sum: 1\r\n\r\n");
        link.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").expect("the server receives");
        assert_eq!(client.response().expect("a response").status, 204);
    });
}

#[test]
fn a_request_whose_head_would_be_too_long_is_answered_431() {
    on_both_drivers(|driver| {
        let (tree, origin) = (Tree::new(), Origin::new());
        let paths = "$path".repeat(8);
        let keys = format!("request-headers = {{ X-One = '{paths}', X-Two = '{paths}' }}");
        configure(&tree, driver, &[format!("http://{}", origin.address())], &keys);
        let server = serve(&tree);
        let mut client = Client::connect(&server.address()).expect("the server accepts");
        client.set_limit(SOON);
        let path = "x".repeat(5000);
        // A body that nobody takes keeps nothing waiting.
        let head = format!("POST /{path}\nContent-Length: 100000");
        client.send(request(&head) + &"x".repeat(100_000)).expect("the server receives");
        assert_eq!(client.response().expect("a response").status, 431);
        let line = "/: the head of a request would have more than 64 KiB; `X-Two` of `request-headers` does not fit";
        assert!(server.wait_for_stderr(line, SOON).is_some());
        origin.expect_nothing();
        // A shorter one is passed on, with a body.
        client.send(request("POST /y\nContent-Length: 1") + "x").expect("the server receives");
        let mut link = origin.accept();
        let head = read_until(&mut link, "\r\n\r\nx");
        assert!(head.contains("\r\nX-Two: /y/y/y/y/y/y/y/y\r\n"), "{head}");
        link.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").expect("the server receives");
        assert_eq!(client.response().expect("a response").status, 204);
    });
}
