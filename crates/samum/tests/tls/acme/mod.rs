//! Certificates by ACME, from Pebble.

mod authority;
mod pebble;
mod processes;
mod storage;

use core::net::{Ipv4Addr, SocketAddr};
use core::time::Duration;
use std::fs;
use std::io::{self, Error, Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;
use std::sync::Arc;

use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use testkit::{Address, AnyCertificate, Client, Server, Signal, Tree, or_skip, request};

use self::pebble::{Behaviour, Pebble, Ports, stored};
use crate::common::{SAMUM, SOON, on_both_drivers_at_once, wait_until};

/// The time for an order against a server that refuses every second nonce, on a busy machine.
const ORDERED: Duration = Duration::from_secs(120);
/// A part of the name of Pebble's authority.
const ISSUER: &[u8] = b"Pebble Intermediate CA";

/// A configuration with sites, each with these hosts, and with these keys in `[acme]`.
fn config(ports: Ports, driver: &str, acme: &str, server: &str, sites: &[&[&str]]) -> String {
    let mut text =
        format!("[server]\nthreads = 1\ndriver = \"{driver}\"\n{server}\n[acme]\n{acme}\n");
    if !acme.contains("storage") {
        text = text.replace("[acme]\n", "[acme]\nstorage = \"acme\"\n");
    }
    for hosts in sites {
        let hosts: Vec<_> = hosts.iter().map(|host| format!("\"{host}\"")).collect();
        text += &format!(
            "[[site]]\nlisten = [\"127.0.0.1:{}\", {{ address = \"127.0.0.1:{}\", tls = true }}]\nhosts = [{}]\n\
             tls = \"acme\"\nhttps = \"redirect\"\n",
            ports.http,
            ports.tls,
            hosts.join(", ")
        );
        text += "[[site.route]]\nstatus = { code = 200, text = \"served\" }\n[[site.route]]\npath = \"/metrics\"\nmetrics = true\n";
        // Not even challenges are for these clients, if the routes are asked.
        text += "[[site.route]]\npath = \"/.well-known/\"\nstatus = 204\nallow = [\"192.0.2.1\"]\n";
    }
    text
}

/// The command that serves by a configuration, which becomes a file of the tree.
fn serving(tree: &Tree, config: &str) -> Command {
    tree.write("samum.toml", config);
    let mut command = Command::new(SAMUM);
    command
        .args(["serve", "--config"])
        .arg(tree.path().join("samum.toml"))
        .env_remove("STATE_DIRECTORY");
    command
}

#[track_caller]
fn start(tree: &Tree, config: &str) -> Server {
    Server::spawn(&mut serving(tree, config)).expect("the server starts")
}

/// A connection of a client of a host, whose handshake is complete.
fn connect(port: u16, host: &str) -> io::Result<StreamOwned<ClientConnection, TcpStream>> {
    let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()));
    let builder = builder.with_safe_default_protocol_versions().map_err(Error::other)?;
    let builder = builder
        .dangerous()
        .with_custom_certificate_verifier(AnyCertificate::of(&default_provider()));
    let config = Arc::new(builder.with_no_client_auth());
    let name = ServerName::try_from(host.to_owned()).map_err(Error::other)?;
    let mut connection = ClientConnection::new(config, name).map_err(Error::other)?;
    let mut socket = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    socket.set_read_timeout(Some(SOON))?;
    while connection.is_handshaking() {
        connection.complete_io(&mut socket)?;
    }
    Ok(StreamOwned::new(connection, socket))
}

/// The certificate that a client of a host is shown.
fn shown(port: u16, host: &str) -> io::Result<Vec<u8>> {
    let stream = connect(port, host)?;
    let certificates = stream.conn.peer_certificates().ok_or(io::ErrorKind::InvalidData)?;
    Ok(certificates[0].to_vec())
}

/// What a client of a host gets for a path by TLS.
fn ask(port: u16, host: &str, path: &str) -> io::Result<String> {
    let mut stream = connect(port, host)?;
    let head = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes())?;
    let mut response = String::new();
    stream.read_to_string(&mut response)?;
    Ok(response)
}

fn has(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|it| it == part)
}

/// Waits until clients of a host are shown a certificate of Pebble for it.
#[track_caller]
fn wait_for_certificate(server: &Server, port: u16, host: &str) -> Vec<u8> {
    let mut last = Vec::new();
    let has_come = wait_until(ORDERED, || {
        last = shown(port, host).unwrap_or_default();
        has(&last, ISSUER) && has(&last, host.as_bytes())
    });
    assert!(has_come, "{host}: {:#?}", server.stderr());
    last
}

/// The status and the body of the response to a request for a path, without TLS.
fn ask_plain(port: u16, host: &str, path: &str) -> (u16, String) {
    let address = Address::Tcp(SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    let mut client = Client::connect(&address).expect("the server accepts");
    let head = format!("GET {path}\nHost: {host}");
    client.send(request(&head)).expect("the server takes it");
    let response = client.response().expect("a response");
    (response.status, String::from_utf8_lossy(&response.body).into_owned())
}

#[test]
fn the_first_certificate_comes_by_each_challenge() {
    for challenge in ["http-01", "tls-alpn-01"] {
        on_both_drivers_at_once(|driver| {
            let ports = Ports::new();
            let pebble = or_skip!(Pebble::start(
                ports,
                &Behaviour { sleep: Some(1), ..Behaviour::default() }
            ));
            let tree = Tree::new();
            let keys = format!("{}challenges = [\"{challenge}\"]", pebble.keys());
            let text = config(ports, driver, &keys, "", &[&["a.example", "b.example"]]);
            let server = start(&tree, &text);
            // The first answers come at once, with another certificate.
            let first = shown(ports.tls, "a.example").unwrap();
            assert!(has(&first, b"self-signed"));
            let said = "a.example has no certificate by ACME yet: a self-signed one is shown";
            assert!(server.wait_for_stderr(said, SOON).is_some(), "{:?}", server.stderr());
            for path in [
                "/.well-known/acme-challenge/unknown",
                "/.well-known/acme-challenge/..%2f..%2fetc/passwd",
                "/.well-known/acme-challenge/",
                "/.well-known/acme-challenge/a/../b",
            ] {
                let (status, _) = ask_plain(ports.http, "a.example", path);
                assert!([308, 403].contains(&status), "{path}: {status}");
            }
            wait_for_certificate(&server, ports.tls, "a.example");
            wait_for_certificate(&server, ports.tls, "b.example");
            let said = "the certificate of a.example has come, issued by CN=Pebble Intermediate CA";
            assert!(server.wait_for_stderr(said, SOON).is_some(), "{:?}", server.stderr());
            assert!(
                server
                    .wait_for_stderr("got a certificate for a.example, b.example", SOON)
                    .is_some()
            );
            let left: Vec<_> = fs::read_dir(stored(&tree, ""))
                .unwrap()
                .map(|it| it.unwrap().file_name())
                .collect();
            assert!(
                !left.iter().any(|name| name.to_string_lossy().ends_with(".challenge")),
                "{left:?}"
            );
            assert_eq!(pebble.orders(), 1);
            let metrics = ask(ports.tls, "a.example", "/metrics").unwrap();
            let file = stored(&tree, "a.example.pem");
            let line = format!("file=\"{}\"", file.display());
            assert!(
                metrics.contains("samum_tls_certificate_expiry_seconds{")
                    && metrics.contains(&line),
                "{metrics}"
            );
            // After a start there is nothing to ask for.
            drop(server);
            let server = start(&tree, &text);
            assert!(has(&shown(ports.tls, "a.example").unwrap(), ISSUER));
            assert!(!server.stderr().iter().any(|line| line.contains("self-signed")));
            std::thread::sleep(Duration::from_secs(3));
            assert_eq!(pebble.orders(), 1);
        });
    }
}

#[test]
fn a_check_says_what_will_come_and_makes_nothing() {
    let tree = Tree::new();
    let text = config(Ports::new(), "uring", "agree-terms = true", "", &[&["a.example"]]);
    tree.write("samum.toml", text.as_bytes());
    let output =
        Command::new(SAMUM).arg("check").arg(tree.path().join("samum.toml")).output().unwrap();
    let (out, error) =
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert!(output.status.success(), "{error}");
    assert!(
        out.starts_with("# a.example gets a certificate by ACME when the server runs"),
        "{out}"
    );
    assert!(out.contains("\n[acme]\n") && out.contains("\ntls = \"acme\"\n"), "{out}");
    assert!(!tree.path().join("acme").exists());
}

#[test]
fn certificates_are_renewed_while_clients_are_served() {
    on_both_drivers_at_once(|driver| {
        let ports = Ports::new();
        let pebble =
            or_skip!(Pebble::start(ports, &Behaviour { validity: 30, ..Behaviour::default() }));
        let tree = Tree::new();
        let server = start(&tree, &config(ports, driver, &pebble.keys(), "", &[&["a.example"]]));
        let first = wait_for_certificate(&server, ports.tls, "a.example");
        let mut next = first.clone();
        let is_renewed = wait_until(ORDERED, || {
            // No client fails meanwhile.
            next = shown(ports.tls, "a.example").unwrap();
            next != first && has(&next, ISSUER)
        });
        assert!(is_renewed, "{:#?}", server.stderr());
        let said = "the certificate of a.example was renewed";
        assert!(server.wait_for_stderr(said, SOON).is_some(), "{:?}", server.stderr());
    });
}

/// The names of the threads of a server.
fn threads(server: &Server) -> Vec<String> {
    let tasks = fs::read_dir(format!("/proc/{}/task", server.pid())).unwrap().flatten();
    let name = |task: fs::DirEntry| fs::read_to_string(task.path().join("comm")).ok();
    tasks.filter_map(name).map(|name| name.trim().to_owned()).collect()
}

#[test]
fn a_reload_adds_a_certificate_and_ends_what_is_not_needed_any_more() {
    on_both_drivers_at_once(|driver| {
        let ports = Ports::new();
        let pebble = or_skip!(Pebble::start(ports, &Behaviour::default()));
        let tree = Tree::new();
        let text = |sites| config(ports, driver, &pebble.keys(), "", sites);
        let mut server = start(&tree, &text(&[&["a.example"]]));
        wait_for_certificate(&server, ports.tls, "a.example");
        tree.write("samum.toml", text(&[&["a.example"], &["b.example"]]).as_bytes());
        server.signal(Signal::HUP).unwrap();
        wait_for_certificate(&server, ports.tls, "b.example");
        assert!(threads(&server).contains(&"acme".to_owned()));
        let without = text(&[&["a.example"]]).replace("tls = \"acme\"", "tls = \"self-signed\"");
        tree.write("samum.toml", without.as_bytes());
        server.signal(Signal::HUP).unwrap();
        let has_ended = || !threads(&server).contains(&"acme".to_owned());
        assert!(wait_until(SOON, has_ended), "{:?}", server.stderr());
        assert!(has(&shown(ports.tls, "a.example").unwrap(), b"self-signed"));
    });
}

#[test]
fn a_site_may_have_a_hundred_names() {
    let ports = Ports::new();
    let pebble = or_skip!(Pebble::start(ports, &Behaviour::default()));
    let names: Vec<_> = (0..100).map(|number| format!("n{number}.example")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let tree = Tree::new();
    let server = start(&tree, &config(ports, "uring", &pebble.keys(), "", &[&names]));
    for name in [names[0], names[99]] {
        wait_for_certificate(&server, ports.tls, name);
    }
    assert_eq!(pebble.orders(), 1);
}

#[test]
fn sites_with_fifty_names_have_certificates_and_no_request_fails() {
    let ports = Ports::new();
    let pebble = or_skip!(Pebble::start(ports, &Behaviour::default()));
    let names: Vec<Vec<String>> = (0..10)
        .map(|site| (0..5).map(|name| format!("n{name}.s{site}.example")).collect())
        .collect();
    let sites: Vec<Vec<&str>> =
        names.iter().map(|all| all.iter().map(String::as_str).collect()).collect();
    let sites: Vec<&[&str]> = sites.iter().map(Vec::as_slice).collect();
    let tree = Tree::new();
    let server = start(&tree, &config(ports, "uring", &pebble.keys(), "", &sites));
    for name in names.iter().flatten() {
        wait_for_certificate(&server, ports.tls, name);
        assert_eq!(ask_plain(ports.http, name, "/").0, 308);
    }
    assert_eq!(pebble.orders(), 10);
}
