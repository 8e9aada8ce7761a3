//! Bodies of requests, which nobody wants: skipped within a limit (RFC 9112 §9.3).

use testkit::Tree;

use crate::common::{ask_on, connect, on_both_drivers, request, serve};

fn tree() -> Tree {
    Tree::new().file("a.txt", "hello")
}

#[test]
fn a_body_is_skipped_and_the_connection_goes_on() {
    on_both_drivers(|driver| {
        let tree = tree();
        let server = serve(driver, tree.path(), &[]);
        let mut client = connect(&server);
        let smuggled = request("GET /smuggled");
        for length in [1, 1000, 1024 * 1024] {
            client.send(request(&format!("POST /a.txt\nContent-Length: {length}"))).unwrap();
            client
                .send(&smuggled.repeat(length / smuggled.len() + 1).as_bytes()[..length])
                .unwrap();
            assert_eq!(client.response().unwrap().status, 405, "{length}");
        }
        client.send(request("GET /a.txt\nContent-Length: 5") + "xxxxx").unwrap();
        assert_eq!(client.response().unwrap().body, b"hello");
        assert_eq!(ask_on(&mut client, "GET /a.txt").body, b"hello");
    });
}

#[test]
fn a_body_of_chunks_is_skipped_and_the_connection_goes_on() {
    on_both_drivers(|driver| {
        let tree = tree();
        let server = serve(driver, tree.path(), &[]);
        let mut client = connect(&server);
        let mut bytes = request("POST /a.txt\nTransfer-Encoding: Chunked");
        bytes += "5;name=\"value\"\r\nhello\r\n00A\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\n";
        // At once, byte by byte, and once more.
        client.send(&bytes).unwrap();
        for byte in bytes.bytes() {
            client.send([byte]).unwrap();
        }
        client.send(bytes.repeat(3) + &request("GET /a.txt")).unwrap();
        for _ in 0..5 {
            assert_eq!(client.response().unwrap().status, 405);
        }
        assert_eq!(client.response().unwrap().body, b"hello");
    });
}

#[test]
fn a_body_that_is_too_large_ends_the_connection() {
    on_both_drivers(|driver| {
        let tree = tree();
        let server = serve(driver, tree.path(), &[]);
        let mut client = connect(&server);
        let response = ask_on(&mut client, "POST /a.txt\nContent-Length: 1048577");
        assert_eq!((response.status, response.header("Connection")), (405, Some("close")));
        assert_eq!(client.read_to_end().unwrap(), b"");
        let mut client = connect(&server);
        client.send(request("GET /a.txt\nTransfer-Encoding: chunked")).unwrap();
        let chunk = format!("10000\r\n{}\r\n", "x".repeat(0x10000));
        for _ in 0..17 {
            client.send(&chunk).unwrap();
        }
        let response = client.response().unwrap();
        assert_eq!((response.status, response.header("Connection")), (413, Some("close")));
    });
}

#[test]
fn who_expects_100_continue_gets_it_before_the_body_is_sent() {
    on_both_drivers(|driver| {
        let tree = tree();
        let server = serve(driver, tree.path(), &[]);
        let mut client = connect(&server);
        for (framing, body) in
            [("Content-Length: 3", "abc"), ("Transfer-Encoding: chunked", "3\r\nabc\r\n0\r\n\r\n")]
        {
            // Behind another request, whose answer comes first.
            client
                .send(
                    request("GET /a.txt")
                        + &request(&format!("PUT /a.txt\n{framing}\nExpect: 100-continue")),
                )
                .unwrap();
            assert_eq!(client.response().unwrap().body, b"hello");
            assert_eq!(client.response().unwrap().status, 100, "{framing}");
            client.send(body).unwrap();
            assert_eq!(client.response().unwrap().status, 405, "{framing}");
        }
        // Who is refused for its size is not invited.
        let response =
            ask_on(&mut client, "PUT /a.txt\nContent-Length: 99999999\nExpect: 100-continue");
        assert_eq!(response.status, 405);
        assert_eq!(client.read_to_end().unwrap(), b"");
    });
}

#[test]
fn a_client_that_vanishes_within_its_body_leaves_nothing_behind() {
    on_both_drivers(|driver| {
        let tree = tree();
        let server = serve(driver, tree.path(), &[]);
        for head in ["POST /\nContent-Length: 9", "POST /\nTransfer-Encoding: chunked"] {
            let mut client = connect(&server);
            client.send(request(head) + "3\r\n").unwrap();
            client.finish_sending().unwrap();
            let rest = client.read_to_end().unwrap();
            let answered = rest.windows(9).filter(|bytes| bytes == b"HTTP/1.1 ").count();
            assert!(answered <= 1, "{}", String::from_utf8_lossy(&rest));
        }
    });
}

/// The answer is too large to wait within the budget of the connection; the body costs nothing.
#[test]
fn a_body_is_skipped_while_a_large_answer_waits_for_its_end() {
    on_both_drivers(|driver| {
        let tree = Tree::new().directory("many");
        for number in 0..2000 {
            tree.write(format!("many/{number:0>100}"), "");
        }
        let server = serve(driver, tree.path(), &["--listing", "--timeout-header", "3"]);
        let mut client = connect(&server);
        let fields = "Transfer-Encoding: chunked\nExpect: 100-continue";
        client.send(request(&format!("GET /many/\n{fields}"))).unwrap();
        assert_eq!(client.response().unwrap().status, 100);
        std::thread::sleep(core::time::Duration::from_millis(300));
        client.send("5\r\nhello\r\n").unwrap();
        client.send("0\r\n\r\n").unwrap();
        assert_eq!(client.response().unwrap().status, 200);
    });
}
