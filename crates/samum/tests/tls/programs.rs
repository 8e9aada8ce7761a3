//! Clients of others: OpenSSL with each version, suite and group, Node and Go.

use core::net::SocketAddr;
use core::time::Duration;
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::thread;

use testkit::{Server, Tree, skip};

use super::Authority;
use crate::common::{on_both_drivers, run, serve_config, tcp_address, text};

/// The words of OpenSSL for what a client may insist on, and what it says of the connection then.
const TAKEN: [(&[&str], &str); 11] = [
    (
        &["-tls1_3", "-ciphersuites", "TLS_AES_128_GCM_SHA256"],
        "TLSv1.3, Cipher is TLS_AES_128_GCM_SHA256",
    ),
    (
        &["-tls1_3", "-ciphersuites", "TLS_AES_256_GCM_SHA384"],
        "TLSv1.3, Cipher is TLS_AES_256_GCM_SHA384",
    ),
    (
        &["-tls1_3", "-ciphersuites", "TLS_CHACHA20_POLY1305_SHA256"],
        "TLSv1.3, Cipher is TLS_CHACHA20_POLY1305_SHA256",
    ),
    (
        &["-tls1_2", "-cipher", "ECDHE-ECDSA-AES128-GCM-SHA256"],
        "Cipher is ECDHE-ECDSA-AES128-GCM-SHA256",
    ),
    (
        &["-tls1_2", "-cipher", "ECDHE-ECDSA-AES256-GCM-SHA384"],
        "Cipher is ECDHE-ECDSA-AES256-GCM-SHA384",
    ),
    (
        &["-tls1_2", "-cipher", "ECDHE-ECDSA-CHACHA20-POLY1305"],
        "Cipher is ECDHE-ECDSA-CHACHA20-POLY1305",
    ),
    (&["-tls1_3", "-groups", "X25519"], "Server Temp Key: X25519"),
    (&["-tls1_3", "-groups", "P-256"], "Server Temp Key: ECDH, prime256v1"),
    (&["-tls1_3", "-groups", "P-384"], "Server Temp Key: ECDH, secp384r1"),
    // The first group has no share that the server can use, so it asks again (RFC 8446 §4.1.4).
    (&["-tls1_3", "-groups", "P-521:X448:P-256"], "Server Temp Key: ECDH, prime256v1"),
    (&["-alpn", "h3,http/1.1"], "ALPN protocol: http/1.1"),
];

/// What no client gets, and the alert for it.
const REFUSED: [(&[&str], &str); 5] = [
    (&["-tls1_1", "-cipher", "DEFAULT@SECLEVEL=0"], "alert handshake failure"),
    (&["-tls1_2", "-cipher", "ECDHE-ECDSA-AES128-SHA"], "alert handshake failure"),
    (&["-tls1_2", "-cipher", "DHE-RSA-AES128-GCM-SHA256"], "alert handshake failure"),
    (&["-tls1_3", "-groups", "X448"], "alert handshake failure"),
    (&["-alpn", "h3"], "alert no application protocol"),
];

fn config(driver: &str) -> String {
    format!(
        "[server]\ndriver = \"{driver}\"\nthreads = 1\n\n[[site]]\n\
         listen = [{{ address = \"127.0.0.1:0\", tls = true }}]\nhosts = [\"localhost\"]\n\
         tls = {{ certificate = \"a.pem\", key = \"a.key\" }}\n\n[[site.route]]\nfiles = \"www\"\n"
    )
}

/// A server with a file, and the authority that its clients trust.
fn serve(driver: &str) -> (Tree, Server) {
    let authority = Authority::new();
    let tree = Tree::new().file("www/index.html", "the page");
    authority.issue(&["localhost"]).put(&tree, "a");
    tree.write("authority.pem", &*authority.pem());
    let server = serve_config(&tree, &config(driver));
    (tree, server)
}

/// What OpenSSL's client says that sends these parts, one after the other, and stays until the server closes. A part that
/// begins with `k`, `K` or `R` is a command for it.
fn s_client(tree: &Tree, address: SocketAddr, more: &[&str], parts: &[&str]) -> String {
    let authority = tree.path().join("authority.pem");
    let mut child = Command::new("openssl")
        .args(["s_client", "-connect", &address.to_string(), "-servername", "localhost"])
        .args(["-CAfile", text(&authority), "-verify_return_error"])
        .args(more)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("openssl");
    let mut input = child.stdin.take().expect("a pipe");
    for part in parts {
        // A command is one only at the beginning of the bytes that the client reads in one call.
        thread::sleep(Duration::from_millis(100));
        // A client that was refused does not read it.
        let _ = input.write_all(part.as_bytes());
    }
    let output = child.wait_with_output().expect("an end");
    drop(input);
    [output.stdout, output.stderr].map(|said| String::from_utf8_lossy(&said).into_owned()).concat()
}

const REQUEST: &str = "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";

#[test]
fn openssl_gets_what_it_insists_on_or_an_alert() {
    if let Err(reason) = run("openssl", &["version".as_ref()]) {
        skip!("no openssl: {reason}");
    }
    on_both_drivers(|driver| {
        let (tree, server) = serve(driver);
        let address = tcp_address(&server);
        for (words, expected) in TAKEN {
            let said = s_client(&tree, address, words, &[REQUEST]);
            assert!(said.contains(expected), "{words:?}: {said}");
            assert!(said.contains("the page"), "{words:?}: {said}");
        }
        for (words, expected) in REFUSED {
            let said = s_client(&tree, address, words, &[REQUEST]);
            assert!(said.contains(expected), "{words:?}: {said}");
            assert!(!said.contains("the page"), "{words:?}: {said}");
        }
    });
}

/// A renegotiation is refused (RFC 5746 §4.4: `R` asks for one), and new keys are taken (`k`, and `K`, which asks for ours).
#[test]
fn openssl_may_renew_keys_and_not_renegotiate() {
    if let Err(reason) = run("openssl", &["version".as_ref()]) {
        skip!("no openssl: {reason}");
    }
    on_both_drivers(|driver| {
        let (tree, server) = serve(driver);
        let address = tcp_address(&server);
        let kept = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
        let parts = [kept, "k\n", kept, "K\n", REQUEST];
        let said = s_client(&tree, address, &["-tls1_3"], &parts);
        assert_eq!(said.matches("KEYUPDATE").count(), 2, "{said}");
        assert_eq!(said.matches("the page").count(), 3, "{said}");
        let said = s_client(&tree, address, &["-tls1_2"], &["R\n"]);
        assert!(said.contains("no renegotiation"), "{said}");
    });
}

/// The certificate of a client does not fit in one record of the least length that OpenSSL makes, so that its messages come in
/// several.
#[test]
fn messages_of_a_handshake_may_come_in_many_records() {
    if let Err(reason) = run("openssl", &["version".as_ref()]) {
        skip!("no openssl: {reason}");
    }
    on_both_drivers(|driver| {
        let authority = Authority::new();
        let tree = Tree::new().file("www/index.html", "the page");
        authority.issue(&["localhost"]).put(&tree, "a");
        let names: Vec<_> = (0..100).map(|number| format!("name-{number}.example")).collect();
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        authority.issue(&names).put(&tree, "client");
        tree.write("authority.pem", &*authority.pem());
        let demand = "key = \"a.key\", client = { ca = \"authority.pem\" }";
        let server = serve_config(&tree, &config(driver).replace("key = \"a.key\"", demand));
        let [certificate, key] = ["client.pem", "client.key"].map(|name| tree.path().join(name));
        for version in ["-tls1_3", "-tls1_2"] {
            let words = [version, "-max_send_frag", "512"];
            let shown = ["-cert", text(&certificate), "-key", text(&key)];
            let address = tcp_address(&server);
            let said = s_client(&tree, address, &[words.as_slice(), &shown].concat(), &[REQUEST]);
            assert!(said.contains("the page"), "{version}: {said}");
            let said = s_client(&tree, address, &words, &[REQUEST]);
            assert!(!said.contains("the page"), "{version}: {said}");
        }
    });
}

/// A program in JavaScript that asks twice on one connection, and then with the ticket of the first handshake.
const NODE: &str = r#"
const https = require("https"), fs = require("fs");
const [ca, port] = [fs.readFileSync(process.argv[2]), process.argv[3]];
const agent = new https.Agent({ ca, keepAlive: true, maxSockets: 1 });
const ask = (agent) => new Promise((done, fail) => {
  https.get({ host: "127.0.0.1", servername: "localhost", headers: { host: "localhost" }, port, path: "/", agent }, (response) => {
    const { socket } = response;
    let text = "";
    response.on("data", (part) => (text += part)).on("end", () =>
      done([text, socket.getProtocol(), socket.isSessionReused(), socket.localPort].join(" ")));
  }).on("error", fail);
});
(async () => {
  const [first, second] = [await ask(agent), await ask(agent)];
  agent.destroy();
  console.log([first === second, first.replace(/ \d+$/, "")].join(" "));
  const other = new https.Agent({ ca, maxCachedSessions: 10 });
  await ask(other);
  console.log((await ask(other)).replace(/ \d+$/, ""));
})();
"#;

#[test]
fn node_keeps_connections_and_comes_again_with_a_ticket() {
    if let Err(reason) = run("node", &["--version".as_ref()]) {
        skip!("no node: {reason}");
    }
    on_both_drivers(|driver| {
        let (tree, server) = serve(driver);
        tree.write("ask.js", NODE);
        let [script, authority] = ["ask.js", "authority.pem"].map(|name| tree.path().join(name));
        let port = tcp_address(&server).port().to_string();
        let output = Command::new("node").args([text(&script), text(&authority), &port]).output();
        let output = output.expect("node");
        let said = String::from_utf8_lossy(&output.stdout);
        let expected = "true the page TLSv1.3 false\nthe page TLSv1.3 true\n";
        assert_eq!(said, expected, "{}", String::from_utf8_lossy(&output.stderr));
    });
}
