//! Servers that speak TLS: which are trusted, and what comes through.

mod origin;

use core::net::SocketAddr;
use core::time::Duration;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread;

use rcgen::{DnType, KeyPair};
use rustls::SupportedProtocolVersion;
use rustls::version::{TLS12, TLS13};
use testkit::metrics::Metrics;
use testkit::{Server, Tree, request};

use self::origin::{CHUNKS, DOWNLOAD, Settings, download};
use super::bodies::read_until;
use super::passing_on;
use crate::common::nginx::{Nginx, free_address};
use crate::common::{
    SAMUM, SOON, ask, ask_on, connect, on_both_drivers, on_both_drivers_at_once, serve_config,
    tcp_address, wait_until,
};
use crate::tls::{Authority, Issued, put};

type Versions = &'static [&'static SupportedProtocolVersion];
const ONLY_13: Versions = &[&TLS13];
const ONLY_12: Versions = &[&TLS12];

/// The year, month and day of a certificate that has expired.
const PAST: (i32, u8, u8) = (1999, 12, 31);

fn config(driver: &str, url: &str, keys: &str) -> String {
    let keys = format!("{keys}\n[[site.route]]\npath = '/metrics'\nmetrics = true\n");
    passing_on(driver, url, &keys)
}

fn text(server: &Server, path: &str) -> String {
    let response = ask(server, &format!("GET {path}"));
    assert_eq!(response.status, 200, "{:?}", server.stderr());
    String::from_utf8(response.body).unwrap()
}

/// Expects that requests are not passed on, and that the log says why.
#[track_caller]
fn expect_refused(tree: &Tree, driver: &str, url: &str, keys: &str, why: &[&str]) {
    let server = serve_config(tree, &config(driver, url, keys));
    let response = ask(&server, "GET /");
    assert_eq!(response.status, 502, "{why:?}");
    let line = server.wait_for_stderr(why[0], SOON);
    let line = line.unwrap_or_else(|| panic!("{why:?}: {:?}", server.stderr()));
    assert!(line.contains(url), "the server is named: {line}");
    for part in why {
        assert!(line.contains(part), "{part:?} is not in {line:?}");
    }
}

const TLS: &str = "upstream-tls = { ca = 'ca.pem', name = 'app.test' }";

#[test]
fn a_server_with_the_right_certificate_is_asked_by_its_name() {
    on_both_drivers(|driver| {
        let (tree, authority) = (Tree::new(), Authority::new());
        tree.write("ca.pem", authority.pem().as_str());
        let issued = authority.issue(&["app.test", "127.0.0.1", "localhost"]);
        for (versions, version) in [(ONLY_13, "1.3"), (ONLY_12, "1.2")] {
            let origin = Settings { versions, ..Settings::new(&issued) }.start();
            let port = origin.address.port();
            let ca = "upstream-tls = { ca = 'ca.pem' }";
            for (url, keys, sni) in [
                (origin.url(), TLS, "app.test"),
                // No name is sent, and the address is verified.
                (origin.url(), ca, "none"),
                (format!("https://localhost:{port}"), ca, "localhost"),
            ] {
                let before = origin.accepted();
                let server = serve_config(&tree, &config(driver, &url, keys));
                let found = text(&server, "/");
                let expected = format!(
                    "connection {} request 1 sni {sni} resumed false client false version {version}",
                    before + 1
                );
                assert_eq!(found, expected);
                // The connection is kept.
                assert!(
                    text(&server, "/")
                        .starts_with(&format!("connection {} request 2 ", before + 1))
                );
                assert_eq!(
                    server.stderr().iter().filter(|line| line.contains("upstream")).count(),
                    0
                );
            }
        }
    });
}

#[test]
fn a_certificate_that_does_not_verify_is_a_502_with_its_reason() {
    on_both_drivers(|driver| {
        let (tree, authority, other) = (Tree::new(), Authority::new(), Authority::new());
        tree.write("ca.pem", authority.pem().as_str());
        let day = |(year, month, day)| rcgen::date_time_ymd(year, month, day);
        let expired = authority.issue_with(&["app.test"], |params| params.not_after = day(PAST));
        let future =
            authority.issue_with(&["app.test"], |params| params.not_before = day((2199, 1, 2)));
        let key = KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::new(vec!["app.test".to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, "itself");
        let certificate = params.self_signed(&key).unwrap();
        let der = certificate.der().clone();
        let itself = Issued { certificate: certificate.pem(), key: key.serialize_pem(), der };
        for (issued, why) in [
            (&expired, &["its certificate expired on 1999-12-31"][..]),
            (&future, &["its certificate is not valid before 2199-01-02"]),
            (
                &authority.issue(&["other.test", "10.0.0.1"]),
                &["its certificate is for other.test, 10.0.0.1 and not for app.test", "name = "],
            ),
            (&itself, &["its certificate is self-signed", "ca = "]),
            (
                &other.issue(&["app.test"]),
                &["its certificate, issued by CN=Authority of tests, was not signed", "/ca.pem"],
            ),
        ] {
            let origin = Settings::new(issued).start();
            expect_refused(&tree, driver, &origin.url(), TLS, why);
            // By the authorities of the system.
            if !why[0].contains("expired") {
                let keys = "upstream-tls = { name = 'app.test' }";
                let server = serve_config(&tree, &config(driver, &origin.url(), keys));
                assert_eq!(ask(&server, "GET /").status, 502);
            }
            // Any certificate.
            let keys = "upstream-tls = { verify = false, name = 'app.test' }";
            let server = serve_config(&tree, &config(driver, &origin.url(), keys));
            assert!(
                server.wait_for_stderr("`verify = false` accepts any certificate", SOON).is_some()
            );
            assert!(text(&server, "/").contains(" request 1 "));
            // One that is named itself.
            tree.write("it.pem", issued.certificate.as_str());
            let keys = "upstream-tls = { ca = 'it.pem', name = 'app.test' }";
            let server = serve_config(&tree, &config(driver, &origin.url(), keys));
            let status = ask(&server, "GET /").status;
            let is_right = why[0].contains("self-signed") || why[0].contains("not signed");
            assert_eq!(status, if is_right { 200 } else { 502 }, "{why:?}");
        }
    });
}

#[test]
fn a_server_that_speaks_no_tls_gets_no_request() {
    on_both_drivers(|driver| {
        let tree = Tree::new();
        tree.write("ca.pem", Authority::new().pem().as_str());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("https://{}", listener.local_addr().unwrap());
        let plain = thread::spawn(move || {
            let mut seen = Vec::new();
            for answer in ["HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n", ""] {
                let (mut stream, _) = listener.accept().unwrap();
                let mut bytes = [0; 4096];
                let count = stream.read(&mut bytes).unwrap();
                seen.push(bytes[..count].to_vec());
                stream.write_all(answer.as_bytes()).unwrap();
            }
            seen
        });
        expect_refused(&tree, driver, &url, TLS, &["it does not speak TLS there", "http://"]);
        expect_refused(&tree, driver, &url, TLS, &["was closed in the TLS handshake"]);
        for seen in plain.join().unwrap() {
            assert!(!seen.is_empty() && seen[0] == 22, "the first message of a handshake");
            assert!(!seen.windows(4).any(|part| part == b"GET "), "nothing in the clear");
        }
    });
}

#[test]
fn a_server_that_demands_a_certificate_gets_it() {
    on_both_drivers(|driver| {
        let (tree, authority) = (Tree::new(), Authority::new());
        tree.write("ca.pem", authority.pem().as_str());
        let issued = authority.issue(&["app.test"]);
        authority.issue(&["gateway.test"]).put(&tree, "gateway");
        Authority::new().issue(&["gateway.test"]).put(&tree, "other");
        for versions in [ONLY_13, ONLY_12] {
            let settings =
                Settings { clients: Some(&authority), versions, ..Settings::new(&issued) };
            let origin = settings.start();
            let keys = |name: &str| {
                format!(
                    "upstream-tls = {{ ca = 'ca.pem', name = 'app.test', certificate = '{name}.pem', key = '{name}.key' }}"
                )
            };
            let server = serve_config(&tree, &config(driver, &origin.url(), &keys("gateway")));
            assert!(text(&server, "/").contains(" client true "));
            let why = ["certificate", "upstream-tls"];
            expect_refused(&tree, driver, &origin.url(), TLS, &why);
            expect_refused(&tree, driver, &origin.url(), &keys("other"), &why);
        }
    });
}

#[test]
fn files_that_change_are_read_again_without_a_reload() {
    on_both_drivers_at_once(|driver| {
        let (tree, authority, other) = (Tree::new(), Authority::new(), Authority::new());
        put(&tree, "ca.pem", &authority.pem());
        other.issue(&["gateway.test"]).put(&tree, "gateway");
        let issued = authority.issue(&["app.test"]);
        let origin = Settings { clients: Some(&authority), ..Settings::new(&issued) };
        let origin = origin.start();
        let keys = "upstream-tls = { ca = 'ca.pem', name = 'app.test', certificate = 'gateway.pem', key = 'gateway.key' }";
        let mut server = serve_config(&tree, &config(driver, &origin.url(), keys));
        assert_eq!(ask(&server, "GET /").status, 502, "a certificate of another authority");
        let becomes = |server: &Server, status: u16| {
            let is = wait_until(SOON, || ask(server, "GET /").status == status);
            assert!(is, "{status}: {:#?}", server.stderr());
        };
        let renewed = authority.issue(&["gateway.test"]);
        renewed.put(&tree, "gateway");
        becomes(&server, 200);
        let said = "the files of `upstream-tls` of default/ were read again; servers are shown a certificate that expires on ";
        assert!(server.wait_for_stderr(said, SOON).is_some(), "{:#?}", server.stderr());
        // A pair that does not fit, and what is no certificate.
        let kept = "the files of `upstream-tls` of default/ were not read again, and those before still count: ";
        for (name, text, why) in [
            (
                "gateway.key",
                other.issue(&["a"]).key,
                "gateway.key: the private key does not belong to",
            ),
            ("ca.pem", "nothing".to_owned(), "ca.pem: the file has no certificate"),
        ] {
            put(&tree, name, &text);
            let line = server.wait_for_stderr(why, SOON);
            let line = line.unwrap_or_else(|| panic!("{why}: {:#?}", server.stderr()));
            assert!(line.contains(kept), "{line}");
            assert_eq!(ask(&server, "GET /").status, 200, "{why}");
        }
        renewed.put(&tree, "gateway");
        // A connection that was kept under the authorities of before is not used again.
        put(&tree, "ca.pem", &other.pem());
        becomes(&server, 502);
        put(&tree, "ca.pem", &authority.pem());
        becomes(&server, 200);
        // A reload of the same files keeps the server and its connection.
        let connection = |text: &str| text.split(' ').nth(1).map(str::to_owned);
        let before = connection(&text(&server, "/"));
        server.signal(testkit::Signal::HUP).unwrap();
        assert!(server.wait_for_stderr("loaded the configuration", SOON).is_some());
        assert_eq!(connection(&text(&server, "/")), before);
        // And the reloaded configuration is renewed, too.
        put(&tree, "ca.pem", &other.pem());
        becomes(&server, 502);
    });
}

#[test]
fn a_session_is_resumed_on_the_next_connection() {
    on_both_drivers(|driver| {
        let (tree, authority) = (Tree::new(), Authority::new());
        tree.write("ca.pem", authority.pem().as_str());
        let issued = authority.issue(&["app.test"]);
        for versions in [ONLY_13, ONLY_12] {
            let origin = Settings { versions, ..Settings::new(&issued) }.start();
            let server = serve_config(&tree, &config(driver, &origin.url(), TLS));
            assert!(text(&server, "/").contains(" resumed false "));
            // It cuts the connection, and the request is sent again on another one.
            assert_eq!(ask(&server, "GET /cut-before-head").status, 502);
            assert!(text(&server, "/").contains(" resumed true "), "{versions:?}");
            let metrics = Metrics::parse(&text(&server, "/metrics")).unwrap();
            let count = |result: &str| {
                metrics.sum("samum_upstream_tls_handshakes_total", &[("result", result)])
            };
            assert!(count("full") >= 1.0 && count("resumed") >= 1.0, "{versions:?}");
            assert_eq!(count("failed").to_bits(), 0_f64.to_bits());
        }
    });
}

#[test]
fn long_contents_are_the_same_byte_for_byte() {
    on_both_drivers(|driver| {
        let (tree, authority) = (Tree::new(), Authority::new());
        tree.write("ca.pem", authority.pem().as_str());
        let issued = authority.issue(&["app.test"]);
        for versions in [ONLY_13, ONLY_12] {
            let origin = Settings { versions, ..Settings::new(&issued) }.start();
            let server = serve_config(&tree, &config(driver, &origin.url(), TLS));
            let mut client = connect(&server);
            client.set_limit(6 * SOON);
            let response = ask_on(&mut client, "GET /download");
            assert_eq!(response.body.len() as u64, DOWNLOAD);
            download().assert_is(&response.body);
            let response = ask_on(&mut client, "GET /chunks");
            assert_eq!(response.body.len() as u64, CHUNKS);
            download().assert_at(0, &response.body);
            let body = download().read(7, 5_000_000);
            client.send(request("POST /upload\nContent-Length: 5000000")).unwrap();
            client.send(&body).unwrap();
            let response = client.response().unwrap();
            assert!(response.status == 200 && response.body == body);
            assert!(text(&server, "/").starts_with("connection 1 "), "one connection for all");
        }
    });
}

#[test]
fn a_response_that_was_cut_is_never_whole() {
    on_both_drivers_at_once(|driver| {
        let (tree, authority) = (Tree::new(), Authority::new());
        tree.write("ca.pem", authority.pem().as_str());
        let issued = authority.issue(&["app.test"]);
        for versions in [ONLY_13, ONLY_12] {
            let origin = Settings { versions, ..Settings::new(&issued) }.start();
            let keys = format!("{TLS}\ntimeout-upstream = 1");
            let server = serve_config(&tree, &config(driver, &origin.url(), &keys));
            let whole = ask(&server, "GET /until-close");
            assert!(whole.status == 200 && whole.body == [b'x'; 300_000]);

            for (path, why) in [
                ("/cut", "closed without the end of TLS (close_notify); its response is cut off"),
                (
                    "/amid-record",
                    "did not answer within 1 s (timeout-upstream); its response is cut off",
                ),
                ("/forged", "broke the TLS protocol"),
            ] {
                let mut client = connect(&server);
                client.send(request(&format!("GET {path}"))).unwrap();
                let error = client.response().map(|response| response.body.len());
                assert!(error.is_err(), "{path}: {error:?}");
                assert!(server.wait_for_stderr(why, SOON).is_some(), "{:?}", server.stderr());
            }
            // An old client mistakes the end of the connection for the end of the response, unless it is reset.
            let mut client = connect(&server);
            client.send("GET /cut HTTP/1.0\r\n\r\n").unwrap();
            assert!(client.read_to_end().is_err(), "a reset");
            assert_eq!(ask(&server, "GET /cut-before-head").status, 502);
        }
    });
}

#[test]
fn a_tunnel_goes_through_tls() {
    on_both_drivers(|driver| {
        let (tree, authority) = (Tree::new(), Authority::new());
        tree.write("ca.pem", authority.pem().as_str());
        let issued = authority.issue(&["app.test"]);
        let origin = Settings::new(&issued).start();
        let server = serve_config(&tree, &config(driver, &origin.url(), TLS));
        let mut client = TcpStream::connect(tcp_address(&server)).unwrap();
        client.set_read_timeout(Some(SOON)).unwrap();
        let upgrade = request("GET /echo\nConnection: upgrade\nUpgrade: websocket");
        client.write_all(upgrade.as_bytes()).unwrap();
        assert!(read_until(&mut client, "\r\n\r\n").starts_with("HTTP/1.1 101 "));
        for length in [1, 100, 5000, 200_000, 3, 900_000, 10] {
            let bytes = download().read(length, usize::try_from(length).unwrap());
            let mut received = vec![0; bytes.len()];
            thread::scope(|scope| {
                let mut other = client.try_clone().unwrap();
                let sending = scope.spawn({
                    let bytes = &bytes;
                    move || other.write_all(bytes)
                });
                client.read_exact(&mut received).unwrap();
                sending.join().unwrap().unwrap();
            });
            assert!(received == bytes, "{length}");
        }
        client.shutdown(Shutdown::Write).unwrap();
        let mut rest = Vec::new();
        client.read_to_end(&mut rest).unwrap();
        assert!(rest.is_empty());
    });
}

#[test]
fn checks_are_made_by_tls() {
    on_both_drivers_at_once(|driver| {
        let (tree, authority) = (Tree::new(), Authority::new());
        tree.write("ca.pem", authority.pem().as_str());
        let origins = ["app.test", "other.test"].map(|name| {
            let issued = authority.issue(&[name]);
            Settings::new(&issued).start()
        });
        let urls = origins.each_ref().map(|origin| format!("'{}'", origin.url())).join(", ");
        let keys = format!("{TLS}\ncheck = '/health'\ncheck-interval = 0.1\nretries = 0");
        let config = config(driver, "URL", &keys).replace("'URL'", &format!("[{urls}]"));
        let server = serve_config(&tree, &config);
        let line = server.wait_for_stderr("it is down", SOON).expect("the second one is down");
        assert!(line.contains(&origins[1].url()), "{line}");
        assert!(line.contains("its certificate is for other.test and not for app.test"), "{line}");
        for _ in 0..4 {
            assert!(text(&server, "/").contains("sni app.test"));
        }
    });
}

#[test]
fn a_server_that_does_not_answer_the_handshake_is_given_up() {
    on_both_drivers_at_once(|driver| {
        let (tree, authority) = (Tree::new(), Authority::new());
        tree.write("ca.pem", authority.pem().as_str());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("https://{}", listener.local_addr().unwrap());
        let keys = format!("{TLS}\ntimeout-connect = 0.5\nretries = 0");
        let server = serve_config(&tree, &config(driver, &url, &keys));
        assert_eq!(ask(&server, "GET /").status, 504);
        let why = "the TLS handshake was not complete within 0.5 s (timeout-connect)";
        assert!(server.wait_for_stderr(why, SOON).is_some(), "{:?}", server.stderr());
        drop(listener);
    });
}

#[test]
fn a_reload_takes_other_authorities_for_new_connections() {
    on_both_drivers(|driver| {
        let (tree, authority, next) = (Tree::new(), Authority::new(), Authority::new());
        tree.write("ca.pem", authority.pem().as_str());
        let issued = authority.issue(&["app.test"]);
        let origin = Settings::new(&issued).start();
        let config = config(driver, &origin.url(), TLS);
        let config = config.replace("threads = 1", "threads = 1\ncontrol = 'control'");
        let server = serve_config(&tree, &config);
        let reload = || {
            let mut reload = Command::new(SAMUM);
            reload.arg("reload").arg("--control").arg(tree.path().join("control"));
            reload.output().unwrap()
        };
        assert!(text(&server, "/").starts_with("connection 1 request 1 "));
        // Nothing has changed, so the connection stays.
        assert!(reload().status.success());
        assert!(text(&server, "/").starts_with("connection 1 request 2 "));
        // A connection is not kept for requests that trust others.
        tree.write("ca.pem", next.pem().as_str());
        assert!(reload().status.success());
        assert_eq!(ask(&server, "GET /").status, 502);
        let why = "not signed by the authority of that name in";
        assert!(server.wait_for_stderr(why, SOON).is_some(), "{:?}", server.stderr());
        // A file that cannot be used leaves everything as it is.
        tree.write("ca.pem", "nothing");
        let output = reload();
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && told.contains("ca.pem"), "{told}");
        assert!(told.contains("samum.toml:"), "it names the line: {told}");
        tree.write("ca.pem", authority.pem().as_str());
        assert!(reload().status.success());
        assert!(text(&server, "/").contains(" resumed "));
    });
}

#[test]
fn a_check_of_the_configuration_reads_the_files() {
    let (tree, authority) = (Tree::new(), Authority::new());
    let check = |keys: &str, roots: Option<&str>| {
        tree.write("samum.toml", config("epoll", "https://127.0.0.1:9", keys).as_str());
        let mut command = Command::new(SAMUM);
        command.arg("check").arg(tree.path().join("samum.toml"));
        if let Some(roots) = roots {
            command.env("SSL_CERT_FILE", tree.path().join(roots));
        }
        let output = command.output().unwrap();
        let all = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(all).unwrap())
    };
    tree.write("ca.pem", authority.pem().as_str());
    authority.issue(&["gateway.test"]).put(&tree, "gateway");
    authority.issue(&["gateway.test"]).put(&tree, "other");
    for (keys, roots, code, expected) in [
        (TLS, None, 0, "are verified by the authorities of"),
        (TLS, None, 0, ", for the name app.test"),
        ("", Some("ca.pem"), 0, "by the authorities of the system ("),
        ("", Some("none.pem"), 1, "install the package `ca-certificates`"),
        ("upstream-tls = { ca = 'none.pem' }", None, 1, "there is no such file"),
        ("upstream-tls = { ca = 'samum.toml' }", None, 1, "samum.toml:"),
        ("upstream-tls = { verify = false }", None, 0, "warning: `verify = false` accepts any"),
        ("upstream-tls = { verify = false, ca = 'ca.pem' }", None, 0, "no certificate is compared"),
        ("upstream-tls = { key = 'gateway.key' }", None, 1, "needs the `certificate`"),
        (
            "upstream-tls = { ca = 'ca.pem', certificate = 'gateway.pem', key = 'other.key' }",
            None,
            1,
            "other.key",
        ),
        ("upstream-tls = { ca = 'ca.pem', certificate = 'gateway.pem' }", None, 1, "gateway.pem"),
        ("upstream-tls = { name = 'a b' }", None, 1, "is no name of a server"),
        ("upstream-tls = { ca = 'ca.pem', name = '-.-' }", None, 1, "no certificate can have"),
        ("upstream-tls = { verfy = false }", None, 1, "verify"),
    ] {
        let (found, told) = check(keys, roots);
        assert!(found == Some(code) && told.contains(expected), "{keys}: {found:?} {told}");
    }
    let keys = "\n[[site.route]]\npath = '/x'\nproxy = 'http://127.0.0.1:9'\nupstream-tls = { ca = 'ca.pem' }";
    let (code, told) = check(&format!("{TLS}{keys}"), None);
    assert!(code == Some(0) && told.contains("`upstream-tls` does nothing"), "{told}");
}

/// A program that speaks TLS, and that is told what to do by its standard input.
struct OpenSsl(Child);

impl OpenSsl {
    fn start(address: SocketAddr, tree: &Tree, arguments: &[&str]) -> Option<Self> {
        let mut command = Command::new("openssl");
        command.args(["s_server", "-accept", &address.to_string()]).args(arguments);
        command.arg("-cert").arg(tree.path().join("app.pem"));
        command.arg("-key").arg(tree.path().join("app.key"));
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn();
        if let Err(error) = &child {
            testkit::announce_skip(format_args!("openssl: {error}"));
        }
        let started = Self(child.ok()?);
        wait_until(SOON, || TcpStream::connect(address).is_ok());
        Some(started)
    }

    fn say(&mut self, text: &str) {
        self.0.stdin.as_mut().unwrap().write_all(text.as_bytes()).unwrap();
    }
}

impl Drop for OpenSsl {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_second_handshake_is_refused_and_new_keys_are_not() {
    on_both_drivers(|driver| {
        let (tree, authority) = (Tree::new(), Authority::new());
        tree.write("ca.pem", authority.pem().as_str());
        authority.issue(&["app.test"]).put(&tree, "app");
        // It asks for a second handshake, or renews its keys and asks for ours to be renewed.
        for (version, commands, why) in [
            ("-tls1_2", &["r\n"][..], Some("a second TLS handshake")),
            ("-tls1_3", &["k\n", "K\n", "k\n"], None),
        ] {
            let address = free_address();
            let Some(mut openssl) = OpenSsl::start(address, &tree, &[version]) else { return };
            let server = serve_config(&tree, &config(driver, &format!("https://{address}"), TLS));
            let mut client = connect(&server);
            client.send(request("GET /")).unwrap();
            thread::sleep(Duration::from_millis(500));
            openssl.say("HTTP/1.1 200 OK\r\nContent-Length: 60\r\n\r\nfirst bytes\n");
            let head = client.head().unwrap();
            assert_eq!(head.status, 200);
            assert_eq!(client.read_exactly(12).unwrap(), b"first bytes\n");
            // Each is a command only if it is read alone.
            for command in commands {
                thread::sleep(Duration::from_millis(200));
                openssl.say(command);
            }
            match why {
                Some(why) => {
                    assert!(server.wait_for_stderr(why, SOON).is_some(), "{:?}", server.stderr());
                    assert!(client.read_exactly(48).is_err(), "it is cut off");
                }
                None => {
                    thread::sleep(Duration::from_millis(200));
                    openssl.say("and the bytes behind the new keys, which are the rest\n");
                    let rest = client.read_exactly(48).unwrap();
                    assert!(rest.starts_with(b"and the bytes behind"), "{rest:?}");
                }
            }
        }
    });
}

#[test]
fn nginx_with_tls_serves_behind_it() {
    on_both_drivers(|driver| {
        let (tree, authority) = (Tree::new(), Authority::new());
        tree.write("ca.pem", authority.pem().as_str());
        authority.issue(&["app.test"]).put(&tree, "app");
        tree.write("www/large", download());
        tree.write("www/small", "small");
        let root = tree.path().display().to_string();
        let mut at = None;
        let nginx = Nginx::start(&tree, |address| {
            let tls = free_address();
            at = Some(tls);
            format!(
                "server {{ listen {address}; listen {tls} ssl; root {root}/www; \
                 ssl_certificate {root}/app.pem; ssl_certificate_key {root}/app.key; \
                 ssl_protocols TLSv1.2 TLSv1.3; }}"
            )
        });
        let (Some(_nginx), Some(address)) = (nginx, at) else { return };
        let server = serve_config(&tree, &config(driver, &format!("https://{address}"), TLS));
        let mut client = connect(&server);
        for _ in 0..50 {
            assert_eq!(ask_on(&mut client, "GET /small").body, b"small");
        }
        download().assert_is(&ask_on(&mut client, "GET /large").body);
        assert_eq!(ask_on(&mut client, "GET /none").status, 404);
    });
}

#[test]
fn a_confined_server_of_a_user_reads_the_files_again() {
    if !rustix::process::geteuid().is_root() {
        return testkit::announce_skip(format_args!("another user needs root"));
    }
    on_both_drivers(|driver| {
        let (tree, authority) = (Tree::new(), Authority::new());
        fs::set_permissions(tree.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755))
            .unwrap();
        tree.write("ca.pem", authority.pem().as_str());
        let issued = authority.issue(&["app.test"]);
        let origin = Settings::new(&issued).start();
        let config = config(driver, &origin.url(), TLS)
            .replace("threads = 1\n", "threads = 1\nuser = 'nobody'\nconfine = 'auto'\n");
        let mut server = serve_config(&tree, &config);
        assert!(text(&server, "/").starts_with("connection 1 "));
        tree.write("samum.toml", config.replace("threads = 1", "threads = 1 # changed").as_str());
        server.signal(rustix::process::Signal::HUP).unwrap();
        assert!(server.wait_for_stderr("loaded the configuration", SOON).is_some());
        assert!(text(&server, "/").starts_with("connection 1 request 2"));
        // The authorities of the system.
        let config = config.replace("ca = 'ca.pem', ", "");
        let server = serve_config(&tree, &config);
        assert_eq!(ask(&server, "GET /").status, 502);
        assert!(server.wait_for_stderr("which is none of the authorities of /", SOON).is_some());
    });
}
