//! Upgrades of requests with a body, as `docker exec` and `docker attach` send them, and some clients with `GET`.

use std::io::{Read as _, Write as _};

use testkit::{Tree, request};

use super::bodies::{Origin, read_until};
use super::{passing_on, patient};
use crate::common::{SOON, on_both_drivers, serve_config};

const SWITCHED: &str = "HTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n";
/// Requests, and what the server is told about its connection. A link whose server may take the body of a `GET` for
/// another request is not used again.
const HEADS: [(&str, &str); 2] = [
    ("POST /exec/1/start\nConnection: Upgrade\nUpgrade: tcp", "Connection: upgrade\r\n"),
    ("GET /exec/1/start\nConnection: Upgrade\nUpgrade: tcp", "Connection: upgrade, close\r\n"),
];

/// A body as the client sends it, with the field that frames it, and as the server gets it.
const BODIES: [(&str, &str, &str); 3] = [
    ("Content-Length: 2", "{}", "{}"),
    ("Transfer-Encoding: chunked", "2\r\n{}\r\n0\r\n\r\n", "2\r\n{}\r\n0\r\n\r\n"),
    ("Content-Length: 0", "", ""),
];

#[test]
fn rfc9110_7_8_a_tunnel_begins_behind_the_body_of_its_request() {
    on_both_drivers(|driver| {
        let (tree, origin) = (Tree::new(), Origin::new());
        let url = format!("http://{}", origin.address());
        let server = serve_config(&tree, &passing_on(driver, &url, ""));
        let cases = HEADS.iter().flat_map(|head| BODIES.map(|body| (*head, body)));
        for ((head_lines, connection), (framing, sent, received)) in cases {
            // Without a body, a `GET` is as good as any other request.
            let has_use = head_lines.starts_with("POST ") || received.is_empty();
            let connection = if has_use { "Connection: upgrade\r\n" } else { connection };
            // All together, or the body when its request has reached the server.
            for is_late in [false, true] {
                let mut client = patient(&server);
                let head = request(&format!("{head_lines}\n{framing}"));
                let (first, rest) = match is_late {
                    false => (head + sent + "early", ""),
                    true => (head, sent),
                };
                client.send(first).unwrap();
                let mut link = origin.accept();
                let head = read_until(&mut link, "\r\n\r\n");
                for line in ["Upgrade: tcp\r\n", connection] {
                    assert!(head.contains(line), "{framing}: {head}");
                }
                client.send(rest).unwrap();
                let mut body = vec![0; received.len()];
                link.read_exact(&mut body).unwrap();
                assert_eq!(body, received.as_bytes(), "{framing}");
                link.write_all(SWITCHED.as_bytes()).unwrap();
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    head.extend(client.read_exactly(1).unwrap());
                }
                assert!(head.starts_with(b"HTTP/1.1 101 "), "{framing}");
                client.send(if is_late { "early, late." } else { ", late." }).unwrap();
                assert_eq!(read_until(&mut link, "."), "early, late.", "{framing}");
                link.write_all(b"back").unwrap();
                assert_eq!(client.read_exactly(4).unwrap(), b"back");
                client.shutdown_write().unwrap();
                assert_eq!(link.read_to_end(&mut Vec::new()).unwrap(), 0, "{framing}");
                drop(link);
                assert_eq!(client.read_to_end().unwrap(), b"");
            }
            // The server does not switch: the next request follows on the same connection.
            let mut client = patient(&server);
            client
                .send(request(&format!("{head_lines}\n{framing}")) + sent + &request("GET /next"))
                .unwrap();
            let mut link = origin.accept();
            read_until(&mut link, "\r\n\r\n");
            let mut body = vec![0; received.len()];
            link.read_exact(&mut body).unwrap();
            link.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nno").unwrap();
            assert_eq!(client.response().unwrap().body, b"no", "{framing}");
            let mut next = link;
            let mut head = [0; 4];
            let is_closed = next.read_exact(&mut head).is_err();
            assert!(is_closed || has_use, "{framing}: a link after a GET with a body");
            if is_closed {
                next = origin.accept();
                next.read_exact(&mut head).unwrap();
            }
            assert_eq!(&head, b"GET ", "{framing}");
            read_until(&mut next, "\r\n\r\n");
            next.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nnext").unwrap();
            assert_eq!(client.response().unwrap().body, b"next", "{framing}");
        }
        // A 101 before the end of the body.
        let mut client = patient(&server);
        client.send(request(&format!("{}\nContent-Length: 5", HEADS[0].0)) + "abc").unwrap();
        let mut link = origin.accept();
        read_until(&mut link, "abc");
        link.write_all(SWITCHED.as_bytes()).unwrap();
        assert_eq!(client.response().unwrap().status, 502);
        let line = server.wait_for_stderr("a 101 before the end of the request's body", SOON);
        assert!(line.is_some(), "{:?}", server.stderr());
    });
}
