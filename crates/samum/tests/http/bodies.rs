//! Request bodies that come late, or never.

use testkit::Tree;

use crate::common::{connect, on_both_drivers, request, serve};

fn tree() -> Tree {
    Tree::new().file("a.txt", "hello")
}

#[test]
fn a_client_that_vanishes_within_its_body_leaves_nothing_behind() {
    on_both_drivers(|driver| {
        let tree = tree();
        let server = serve(driver, tree.path(), &[]);
        for head in ["POST /\nContent-Length: 9", "POST /\nTransfer-Encoding: chunked"] {
            let mut client = connect(&server);
            client.send(request(head) + "3\r\n").unwrap();
            client.shutdown_write().unwrap();
            let rest = client.read_to_end().unwrap();
            let answered = rest.windows(9).filter(|bytes| bytes == b"HTTP/1.1 ").count();
            assert!(answered <= 1, "{}", String::from_utf8_lossy(&rest));
        }
    });
}

/// The response is larger than the budget of the connection; the skipped body takes no memory.
#[test]
fn a_body_is_skipped_while_a_large_response_waits_for_its_end() {
    on_both_drivers(|driver| {
        let tree = Tree::new().directory("many");
        for number in 0..2000 {
            tree.write(format!("many/{number:0>100}"), "");
        }
        let server = serve(driver, tree.path(), &["--listing", "--timeout-header", "3"]);
        let mut client = connect(&server);
        client.send(request("GET /many/\nTransfer-Encoding: chunked")).unwrap();
        std::thread::sleep(core::time::Duration::from_millis(300));
        client.send("5\r\nhello\r\n").unwrap();
        client.send("0\r\n\r\n").unwrap();
        assert_eq!(client.response().unwrap().status, 200);
    });
}
