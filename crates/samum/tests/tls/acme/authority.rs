//! Authorities that want more, refuse, hang, send too much, or change their terms.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::thread;

use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::super::Authority;
use super::*;

/// The time limit of a request to an authority, and some more.
const REQUEST: Duration = Duration::from_secs(60);

#[test]
fn an_account_may_need_a_key_of_the_authority() {
    const KEY: &str = "zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W";
    let ports = Ports::new();
    let behaviour = Behaviour { external: Some(("kid-1", KEY)), ..Behaviour::default() };
    let pebble = or_skip!(Pebble::start(ports, &behaviour));
    let tree = Tree::new();
    tree.write("eab.key", KEY.as_bytes());
    let eab = format!(
        "{}contact = [\"admin@a.example\"]\neab = {{ id = \"kid-1\", key-file = \"eab.key\" }}",
        pebble.keys()
    );
    let server = start(&tree, &config(ports, "uring", &eab, "", &[&["a.example"]]));
    wait_for_certificate(&server, ports.tls, "a.example");
    drop(server);
    let other = Tree::new();
    let server = start(&other, &config(ports, "uring", &pebble.keys(), "", &[&["a.example"]]));
    let said = server.wait_for_stderr("externalAccountRequired", ORDERED);
    assert!(
        said.is_some_and(|line| line.contains("the next try is in 1 min")),
        "{:?}",
        server.stderr()
    );
}

#[test]
fn an_order_that_is_refused_is_told_and_not_asked_for_again_at_once() {
    let ports = Ports::new();
    let pebble = or_skip!(Pebble::start(ports, &Behaviour::default()));
    let tree = Tree::new();
    let text = config(ports, "epoll", &pebble.keys(), "", &[&["refused.example"], &["a.example"]]);
    let mut server = start(&tree, &text);
    let said = "no certificate for refused.example: ";
    let line = server.wait_for_stderr(said, ORDERED).expect("a refusal");
    assert!(
        line.contains("(rejectedIdentifier)") && line.contains("the next try is in 1 min"),
        "{line}"
    );
    // The other site is not held up, and the refused one is served with what there is.
    wait_for_certificate(&server, ports.tls, "a.example");
    assert!(has(&shown(ports.tls, "refused.example").unwrap(), b"self-signed"));
    // A process that is started again and again asks no more often.
    let asked = || pebble.log().matches("refused.example").count();
    let before = asked();
    for _ in 0..3 {
        server.terminate().unwrap();
        server = start(&tree, &text);
        thread::sleep(Duration::from_millis(1500));
    }
    assert_eq!(asked(), before);
}

#[test]
fn another_authority_replaces_the_certificate_of_the_one_before() {
    let ports = Ports::new();
    let first = or_skip!(Pebble::start(ports, &Behaviour::default()));
    let second = or_skip!(Pebble::start(ports, &Behaviour::default()));
    let tree = Tree::new();
    let text = |pebble: &Pebble| config(ports, "uring", &pebble.keys(), "", &[&["a.example"]]);
    let mut server = start(&tree, &text(&first));
    let before = wait_for_certificate(&server, ports.tls, "a.example");
    tree.write("samum.toml", text(&second).as_bytes());
    server.signal(Signal::HUP).unwrap();
    // The one before is shown until then.
    let is_replaced = wait_until(ORDERED, || {
        let now = shown(ports.tls, "a.example").unwrap();
        assert!(has(&now, ISSUER));
        now != before
    });
    assert!(is_replaced, "{:?}", server.stderr());
    assert_eq!((first.orders(), second.orders()), (1, 1));
}

#[test]
fn new_terms_of_service_are_told() {
    let ports = Ports::new();
    let pebble = or_skip!(Pebble::start(ports, &Behaviour::default()));
    let tree = Tree::new();
    let text = config(ports, "uring", &pebble.keys(), "", &[&["a.example"]]);
    let server = start(&tree, &text);
    wait_for_certificate(&server, ports.tls, "a.example");
    drop(server);
    // The terms to which the account has agreed are others.
    let account = fs::read_dir(stored(&tree, "")).unwrap().map(|it| it.unwrap().path());
    let account =
        { account }.find(|path| path.extension().is_some_and(|it| it == "account")).unwrap();
    let before = fs::read_to_string(&account).unwrap();
    assert!(before.contains("Do%20what%20thou%20wilt"), "{before}");
    fs::write(&account, before.replace("Do%20what%20thou%20wilt", "Obey")).unwrap();
    let server = start(&tree, &text.replace("\"a.example\"", "\"a.example\", \"b.example\""));
    let said = server
        .wait_for_stderr("have changed: read data:text/plain,Do%20what%20thou%20wilt", ORDERED);
    assert!(said.is_some(), "{:?}", server.stderr());
    // The certificate without the new name is shown until the next has come.
    wait_for_certificate(&server, ports.tls, "b.example");
    assert!(
        !server.stderr().iter().any(|line| line.contains("self-signed")),
        "{:?}",
        server.stderr()
    );
}

#[test]
fn without_agreement_the_error_says_where_the_terms_are() {
    let ports = Ports::new();
    let pebble = or_skip!(Pebble::start(ports, &Behaviour::default()));
    let tree = Tree::new();
    let keys = pebble.keys().replace("agree-terms = true", "agree-terms = false");
    let text = config(ports, "uring", &keys, "", &[&["a.example"]]);
    tree.write("samum.toml", text.as_bytes());
    let run = |command: &str| {
        let mut samum = Command::new(SAMUM);
        samum.arg(command).args(if command == "serve" { &["--config"][..] } else { &[] });
        let output = samum.arg(tree.path().join("samum.toml")).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8(output.stderr).unwrap()
    };
    for command in ["check", "serve"] {
        let error = run(command);
        assert!(
            error.contains(
                "agree to the terms of service of the authority: read data:text/plain,Do"
            ),
            "{error}"
        );
    }
    drop(pebble);
    let error = run("check");
    assert!(
        error.contains("/dir names them (`termsOfService`), but cannot be read now: "),
        "{error}"
    );
}

/// A server that speaks TLS, and then does this with each connection. Returns the keys of `[acme]` that lead to it.
fn odd_authority(
    tree: &Tree,
    act: impl Fn(StreamOwned<ServerConnection, TcpStream>) + Send + 'static,
) -> String {
    let authority = Authority::new();
    tree.write("ca.pem", authority.pem().as_bytes());
    let issued = authority.issue(&["127.0.0.1"]);
    let key = PrivateKeyDer::from_pem_slice(issued.key.as_bytes()).unwrap();
    let builder = ServerConfig::builder_with_provider(Arc::new(default_provider()));
    let builder = builder.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
    let config = Arc::new(builder.with_single_cert(vec![issued.der.clone()], key).unwrap());
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for socket in listener.incoming().flatten() {
            let connection = ServerConnection::new(Arc::clone(&config)).unwrap();
            act(StreamOwned::new(connection, socket));
        }
    });
    format!("directory = \"https://127.0.0.1:{port}/dir\"\nca = \"ca.pem\"\nagree-terms = true\n")
}

#[test]
fn an_authority_that_hangs_or_sends_too_much_holds_nobody_up() {
    let hangs = |mut stream: StreamOwned<ServerConnection, TcpStream>| {
        // The request, and then nothing.
        let _ = stream.read(&mut [0; 4096]);
        thread::sleep(Duration::from_secs(90));
    };
    let floods = |mut stream: StreamOwned<ServerConnection, TcpStream>| {
        let _ = stream.read(&mut [0; 4096]);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1073741824\r\n\r\n");
        while stream.write_all(&[b' '; 16 * 1024]).is_ok() {}
    };
    let floods_in_chunks = |mut stream: StreamOwned<ServerConnection, TcpStream>| {
        let _ = stream.read(&mut [0; 4096]);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
        let chunk = [&b"4000\r\n"[..], &[b' '; 16 * 1024], b"\r\n"].concat();
        while stream.write_all(&chunk).is_ok() {}
    };
    thread::scope(|scope| {
        scope.spawn(|| refuses(hangs, "no complete response within 30 s"));
        scope.spawn(|| refuses(floods, "the response is refused: "));
        scope.spawn(|| refuses(floods_in_chunks, "the response is refused: "));
    });
}

/// Serves beside an odd authority, until this was said about it.
fn refuses(
    act: impl Fn(StreamOwned<ServerConnection, TcpStream>) + Send + 'static,
    expected: &str,
) {
    let (ports, tree) = (Ports::new(), Tree::new());
    let keys = odd_authority(&tree, act);
    let server = start(&tree, &config(ports, "uring", &keys, "", &[&["a.example"]]));
    let line = server.wait_for_stderr("the ACME server cannot be asked", REQUEST);
    let line = line.unwrap_or_else(|| panic!("{:?}", server.stderr()));
    assert!(line.contains(expected) && line.contains("the next try is in 1 min"), "{line}");
    assert!(has(&shown(ports.tls, "a.example").unwrap(), b"self-signed"));
    assert_eq!(ask_plain(ports.http, "a.example", "/").0, 308);
    assert!(crate::common::resident_bytes(&server) < 200 << 20, "no gigabyte was kept");
}
