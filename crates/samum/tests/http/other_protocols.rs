//! Clients that speak another protocol to a listener for plain HTTP: what they get, and what the operator is told.

use crate::common::{SOON, ask_raw, connect, on_both_drivers, serve, text};
use testkit::{Server, Tree};

/// The beginning of a first record of TLS.
const HELLO: &[u8] = b"\x16\x03\x01\0\x2f\x01\0\0\x2b\x03\x03";
/// The fatal alert `protocol_version`.
const ALERT: &[u8] = b"\x15\x03\x01\0\x02\x02\x46";

fn hello() -> Vec<u8> {
    [HELLO, &[7; 41]].concat()
}

/// Lines for the operator with a text.
fn told(server: &Server, what: &str) -> usize {
    server.stderr().iter().filter(|line| line.contains(what)).count()
}

#[test]
fn tls_is_answered_by_an_alert_and_the_operator_is_told_once() {
    let tree = Tree::new().file("a", "a");
    on_both_drivers(|driver| {
        let server = serve(driver, tree.path(), &["--threads", "2"]);
        for _ in 0..20 {
            assert_eq!(ask_raw(&server, hello()), ALERT);
        }
        let line = server.wait_for_stderr("speaks TLS", SOON).expect("a line");
        assert!(line.contains("http://") && line.contains("tls = true"), "{line}");
        // The first byte is enough, and what comes after it does not reset the connection.
        let mut client = connect(&server);
        client.send(&hello()[..1]).unwrap();
        let alert = client.read_exactly(ALERT.len()).unwrap();
        client.send(&hello()[1..]).unwrap();
        assert_eq!((&alert[..], &client.read_to_end().unwrap()[..]), (ALERT, &b""[..]));
        // After a request it is a request that cannot be understood.
        let mut client = connect(&server);
        client.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        assert_eq!(client.response().unwrap().status, 200);
        client.send(hello()).unwrap();
        assert_eq!(client.response().unwrap().status, 400);
        assert_eq!(told(&server, "speaks TLS"), 1);
    });
}

#[test]
fn others_get_a_response_of_http() {
    let tree = Tree::new();
    on_both_drivers(|driver| {
        let server = serve(driver, tree.path(), &["--no-http2"]);
        let preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
        let binary = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0caaaabbbbccdd";
        for (bytes, status, said) in [
            (preface.as_bytes(), "505", Some("begins with HTTP/2")),
            (
                b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n",
                "400",
                Some("header of the PROXY protocol"),
            ),
            (binary, "400", None),
            (b"SSH-2.0-OpenSSH_9.6\r\n", "400", None),
            (b"EHLO example.org\r\n", "400", None),
            (b"\x15\x03\x01\0\x02\x02\x46", "400", None),
        ] {
            let shown = bytes.escape_ascii();
            let response = ask_raw(&server, bytes);
            assert!(response.starts_with(format!("HTTP/1.1 {status} ").as_bytes()), "{shown}");
            if let Some(said) = said {
                assert!(server.wait_for_stderr(said, SOON).is_some(), "{shown}");
            }
        }
        assert_eq!(told(&server, "header of the PROXY protocol"), 1);
    });
}

/// A proxy that has to send a header, and speaks TLS.
#[test]
fn tls_in_place_of_a_header_of_the_proxy_protocol_is_called_that() {
    let tree = Tree::new();
    on_both_drivers(|driver| {
        let root = text(tree.path());
        let config = format!(
            "[server]\ntrusted-proxies = [\"127.0.0.1\"]\n[[site]]\n\
             listen = [{{ address = \"127.0.0.1:0\", proxy-protocol = true }}]\n\
             [[site.route]]\nfiles = \"{root}\"\n"
        );
        tree.write("samum.toml", config.into_bytes());
        let mut command = std::process::Command::new(crate::common::SAMUM);
        command.args(["serve", "--driver", driver, "--config"]).arg(tree.path().join("samum.toml"));
        let server = Server::spawn(&mut command).expect("the server starts");
        assert_eq!(ask_raw(&server, hello()), b"");
        let told = server.wait_for_stderr("speaks TLS where a header of the PROXY protocol", SOON);
        assert!(told.is_some(), "{:?}", server.stderr());
    });
}
