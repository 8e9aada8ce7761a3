//! Certificates: which one a client sees, at the start, after a reload, and when files change.

use core::net::{IpAddr, SocketAddr};
use core::panic::AssertUnwindSafe;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use core::time::Duration;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::panic::{catch_unwind, resume_unwind};
use std::process::{Command, Output};
use std::thread;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use rcgen::{CertificateParams, CustomExtension};
use rustls::pki_types::CertificateDer;
use testkit::{Content, Server, Tree, skip};

use super::{Authority, Issued, put};
use crate::common::{
    SAMUM, SOON, ask_raw, command, on_both_drivers, on_both_drivers_at_once, run, serve,
    serve_config, tcp_address, text, wait_until,
};

/// The time from a change of files until clients see it: two looks, 2 s apart, and some more for a busy machine.
const RENEWAL: Duration = Duration::from_secs(5);

/// The text of a configuration with one site, whose certificate is at `live.pem` and `live.key`, or elsewhere.
pub(super) fn config(driver: &str, certificate: &str, more: &str) -> String {
    format!(
        "[server]\ndriver = \"{driver}\"\nthreads = 1\ncontrol = \"control\"\n\n[[site]]\n\
         listen = [{{ address = \"127.0.0.1:0\", tls = true }}]\nhosts = [\"a.example\"]\n\
         tls = {certificate}\n\n[[site.route]]\nfiles = \"www\"\n{more}"
    )
}

pub(super) const LIVE: &str = "{ certificate = \"live.pem\", key = \"live.key\" }";

/// Output of curl, which resolves `name` to the server.
fn curl(server: &Server, tree: &Tree, name: &str, path: &str, more: &[&str]) -> Output {
    let address = tcp_address(server);
    let (port, ip) = (address.port(), address.ip());
    let authority = tree.path().join("authority.pem");
    let mut command = Command::new("curl");
    command.args(["-sS", "--max-time", "10", "--cacert", text(&authority)]);
    command.args(["--resolve", &format!("{name}:{port}:{ip}")]).args(more);
    command.arg(format!("https://{name}:{port}{path}")).output().expect("curl")
}

#[test]
fn curl_gets_files_over_https() {
    if let Err(reason) = run("curl", &["--version".as_ref()]) {
        skip!("no curl: {reason}");
    }
    let authority = Authority::new();
    on_both_drivers(|driver| {
        let content = Content::pseudo_random(7, 3_000_000);
        let tree = Tree::new().file("www/f.bin", content.clone()).file("www/small", "small\n");
        tree.write("authority.pem", &*authority.pem());
        let issued = authority.issue(&["a.example"]);
        tree.write("both.pem", &*format!("{}{}", issued.certificate, issued.key));
        let server = serve_config(&tree, &config(driver, "{ certificate = \"both.pem\" }", ""));
        for path in ["/f.bin", "/small"] {
            for version in ["--tlsv1.3", "--tls-max"] {
                let more =
                    if version == "--tls-max" { &["--tls-max", "1.2"][..] } else { &[version] };
                let output = curl(&server, &tree, "a.example", path, more);
                let why = String::from_utf8_lossy(&output.stderr);
                assert!(output.status.success(), "{path} {version}: {why}");
                if path == "/small" {
                    assert_eq!(output.stdout, b"small\n");
                } else {
                    content.assert_is(&output.stdout);
                }
            }
        }
        let other = curl(&server, &tree, "b.example", "/small", &[]);
        // The code for a certificate that is not valid for the name.
        assert_eq!(other.status.code(), Some(60), "{other:?}");
    });
}

#[test]
fn each_site_shows_its_certificates() {
    on_both_drivers(|driver| {
        let authority = Authority::new();
        let tree = Tree::new().file("www/index.html", "a").file("other/index.html", "b");
        let (one, other) = (authority.issue(&["a.example"]), authority.issue(&["*.b.example"]));
        let second = authority.issue(&["c.b.example"]);
        one.put(&tree, "live");
        other.put(&tree, "b");
        second.put(&tree, "c");
        let more = "\n[[site]]\nlisten = [{ address = \"127.0.0.1:0\", tls = true }]\n\
                    hosts = [\"*.b.example\", \"c.b.example\"]\n\
                    tls = { certificate = [\"b.pem\", \"c.pem\"], key = [\"b.key\", \"c.key\"] }\n\n\
                    [[site.route]]\nfiles = \"other\"\n";
        let server = serve_config(&tree, &config(driver, LIVE, more));
        let address = tcp_address(&server);
        for (name, expected, body) in
            [("a.example", &one, "a"), ("x.b.example", &other, "b"), ("c.b.example", &second, "b")]
        {
            let mut client = authority.connect(address, name).unwrap();
            assert_eq!(client.certificate(), expected.der, "{name}");
            assert_eq!(client.get(name, "/").unwrap(), body.as_bytes(), "{name}");
            assert_eq!(client.get(name, "/index.html").unwrap(), body.as_bytes(), "{name}");
        }
        // The default site's certificate, which is not valid for this name.
        let error = authority.connect(address, "d.example").err().unwrap();
        assert!(error.to_string().contains("not valid for name"), "{error}");
    });
}

#[test]
fn a_client_without_tls_is_told_the_url() {
    let authority = Authority::new();
    let tree = Tree::new().directory("www");
    authority.issue(&["a.example"]).put(&tree, "live");
    let server = serve_config(&tree, &config("epoll", LIVE, ""));
    let said = ask_raw(&server, "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n");
    let said = String::from_utf8(said).unwrap();
    let port = tcp_address(&server).port();
    assert!(said.starts_with("HTTP/1.1 400 "), "{said}");
    assert!(said.contains(&format!("https://a.example:{port}/")), "{said}");
    let line = server.wait_for_stderr("listening on https://127.0.0.1:", SOON);
    assert!(line.is_some(), "{:?}", server.stderr());
}

/// Clients that connect and ask without pause while something happens. Returns the number of their responses; each must be
/// right.
fn under_load(authority: &Authority, address: SocketAddr, happens: impl FnOnce()) -> usize {
    let (done, answered) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        for number in 0..3 {
            let (done, answered) = (&done, &answered);
            scope.spawn(move || {
                let mut kept = authority.connect(address, "a.example").expect("a handshake");
                while !done.load(Ordering::Relaxed) {
                    // One client stays, the others come again.
                    if number > 0 {
                        kept = authority.connect(address, "a.example").expect("a handshake");
                    }
                    let body = kept.get("a.example", "/index.html").expect("a response");
                    assert_eq!(body, b"here");
                    answered.fetch_add(1, Ordering::Relaxed);
                    thread::sleep(Duration::from_millis(5));
                }
            });
        }
        // A failed assertion must end the clients, too.
        let result = catch_unwind(AssertUnwindSafe(happens));
        done.store(true, Ordering::Relaxed);
        result.unwrap_or_else(|panic| resume_unwind(panic));
    });
    answered.into_inner()
}

/// Waits until new clients see a certificate, and checks that it was in time.
#[track_caller]
fn wait_for(authority: &Authority, address: SocketAddr, expected: &CertificateDer<'_>) {
    let started = Instant::now();
    let seen = || authority.seen(address, "a.example") == *expected;
    assert!(wait_until(SOON, seen), "the certificate is not shown");
    assert!(started.elapsed() <= RENEWAL, "only after {:?}", started.elapsed());
}

#[test]
fn a_certificate_is_renewed_by_a_rename_and_no_request_fails() {
    on_both_drivers_at_once(|driver| {
        let authority = Authority::new();
        let tree = Tree::new().file("www/index.html", "here");
        let (old, new) = (authority.issue(&["a.example"]), authority.issue(&["a.example"]));
        old.put(&tree, "live");
        let server = serve_config(&tree, &config(driver, LIVE, ""));
        let address = tcp_address(&server);
        assert_eq!(authority.seen(address, "a.example"), old.der);
        let answered = under_load(&authority, address, || {
            new.put(&tree, "live");
            wait_for(&authority, address, &new.der);
        });
        assert!(answered > 100, "{answered} responses");
        let line = server.wait_for_stderr("the certificate of a.example was renewed; ", SOON);
        assert!(line.expect("it is said").contains("it expires on 4096-01-01"));
        // The same certificate again, with another intermediate perhaps.
        new.put(&tree, "live");
        let line = server.wait_for_stderr("were read again; the certificate is the same", SOON);
        assert!(line.is_some(), "{:?}", server.stderr());
    });
}

#[test]
fn a_certificate_is_renewed_by_a_swapped_link_and_no_request_fails() {
    on_both_drivers_at_once(|driver| {
        let authority = Authority::new();
        let tree = Tree::new().file("www/index.html", "here").directory("1").directory("2");
        let (old, new) = (authority.issue(&["a.example"]), authority.issue(&["a.example"]));
        old.put(&tree, "1/site");
        new.put(&tree, "2/site");
        let at = |name: &str| tree.path().join(name);
        symlink("1", at("live")).unwrap();
        let files = "{ certificate = \"live/site.pem\", key = \"live/site.key\" }";
        let server = serve_config(&tree, &config(driver, files, ""));
        let address = tcp_address(&server);
        assert_eq!(authority.seen(address, "a.example"), old.der);
        let answered = under_load(&authority, address, || {
            symlink("2", at("next")).unwrap();
            fs::rename(at("next"), at("live")).unwrap();
            wait_for(&authority, address, &new.der);
        });
        assert!(answered > 100, "{answered} responses");
    });
}

#[test]
fn files_that_cannot_be_used_leave_the_certificate_of_before() {
    on_both_drivers_at_once(|driver| {
        let authority = Authority::new();
        let tree = Tree::new().file("www/index.html", "here");
        let old = authority.issue(&["a.example"]);
        old.put(&tree, "live");
        let server = serve_config(&tree, &config(driver, LIVE, ""));
        let address = tcp_address(&server);
        let next = authority.issue(&["a.example"]);
        let expired = authority.issue_with(&["a.example"], |params| {
            params.not_before = rcgen::date_time_ymd(2020, 1, 1);
            params.not_after = rcgen::date_time_ymd(2020, 3, 1);
        });
        let half = &next.key[..next.key.len() / 2];
        let cases: [(&str, &dyn Fn()); 5] = [
            ("the private key does not belong to the certificate", &|| {
                put(&tree, "live.key", &next.key);
            }),
            ("the file ends in the middle of a section", &|| tree.write("live.key", half)),
            ("live.key: there is no such file", &|| {
                fs::remove_file(tree.path().join("live.key")).unwrap();
            }),
            ("the certificate expired on 2020-03-01", &|| expired.put(&tree, "live")),
            ("the file has no certificate", &|| put(&tree, "live.pem", "empty\n")),
        ];
        for (why, change) in &cases {
            change();
            let line = server.wait_for_stderr(why, SOON);
            let line = line.unwrap_or_else(|| panic!("{why}: {:#?}", server.stderr()));
            let head = "the certificate of a.example was not renewed, and the one before is still \
                        shown: ";
            assert!(line.contains(head), "{line}");
            assert!(line.contains(text(&tree.path().join("live."))), "it has the path: {line}");
            assert_eq!(authority.seen(address, "a.example"), old.der, "{why}");
        }
        next.put(&tree, "live");
        wait_for(&authority, address, &next.der);
        let lines = server.stderr();
        let failures = lines.iter().filter(|line| line.contains("was not renewed")).count();
        assert_eq!(failures, cases.len(), "one line for each change: {lines:#?}");
        let shown = lines.concat();
        let is_secret = |line: &str| !line.starts_with("-----") && shown.contains(line);
        assert!(!next.key.lines().any(is_secret), "a key is never shown: {lines:#?}");
    });
}

/// Clients name no address in a handshake (RFC 6066 §3).
#[test]
fn a_client_of_an_address_is_shown_the_certificate_of_its_site() {
    on_both_drivers_at_once(|driver| {
        let authority = Authority::new();
        let tree = Tree::new().file("www/index.html", "default");
        // The default site lists no address.
        let default = authority.issue(&["a.example", "127.0.0.1"]);
        let (four, six) = (authority.issue(&["127.0.0.2"]), authority.issue(&["::1"]));
        default.put(&tree, "live");
        let mut more = String::new();
        for (name, host, issued) in [("four", "127.0.0.2", &four), ("six", "[::1]", &six)] {
            issued.put(&tree, name);
            tree.write(format!("{name}/index.html"), name);
            more += &format!(
                "\n[[site]]\nlisten = [{{ address = \"127.0.0.1:0\", tls = true }}]\nhosts = [\"{host}\"]\n\
                 tls = {{ certificate = \"{name}.pem\", key = \"{name}.key\" }}\n\n\
                 [[site.route]]\nfiles = \"{name}\"\n"
            );
        }
        let [four_only, six_only] =
            ["0.0.0.0:0", "[::]:0"].map(|ip| format!("{{ address = \"{ip}\", tls = true }}"));
        let one = "{ address = \"127.0.0.1:0\", tls = true }";
        let config = config(driver, LIVE, &more).replace(one, &format!("{four_only}, {six_only}"));
        let server = serve_config(&tree, &config);
        assert!(wait_until(SOON, || server.addresses().len() == 2));
        let ports = server.addresses().into_iter().filter_map(|address| match address {
            testkit::Address::Tcp(address) => Some((address.is_ipv6(), address.port())),
            testkit::Address::Unix(_) => None,
        });
        let ports: BTreeMap<_, _> = ports.collect();
        let at = |ip: &str| {
            let ip: IpAddr = ip.parse().unwrap();
            SocketAddr::new(ip, ports[&ip.is_ipv6()])
        };
        for (ip, der) in [("127.0.0.1", &default.der), ("127.0.0.2", &four.der), ("::1", &six.der)]
        {
            assert_eq!(authority.seen(at(ip), ip), *der, "{ip}");
            assert_eq!(authority.seen(at(ip), "a.example"), default.der, "{ip}");
        }
        let mut client = authority.connect(at("127.0.0.2"), "127.0.0.2").unwrap();
        let own = at("127.0.0.2").to_string();
        assert_eq!(client.get(&own, "/").unwrap(), b"four");
        assert_eq!(client.get("127.0.0.2", "/").unwrap(), b"four");
        let mut named = authority.connect(at("127.0.0.2"), "a.example").unwrap();
        assert_eq!(named.get("a.example", "/").unwrap(), b"default");
        // A host of another site than that of the handshake.
        for host in ["a.example", "[::1]", "127.0.0.3", "127.0.0.2:1:1"] {
            let mut client = authority.connect(at("127.0.0.2"), "127.0.0.2").unwrap();
            let head = client.head(host, "/").unwrap();
            let status = if host == "127.0.0.2:1:1" { "400" } else { "421" };
            assert!(head.starts_with(&format!("http/1.1 {status} ")), "{host}: {head}");
        }
        assert!(named.head("127.0.0.2", "/").unwrap().starts_with("http/1.1 421 "));
        // The address of an open connection counts in the next configuration, too.
        assert!(reload(&tree).status.success());
        assert_eq!(client.get("127.0.0.2", "/").unwrap(), b"four");
    });
}

/// A pair whose time comes is shown then, however long nobody touches its files.
#[test]
fn a_reload_keeps_a_valid_pair_until_the_next_is_valid() {
    on_both_drivers_at_once(|driver| {
        let authority = Authority::new();
        let tree = Tree::new().file("www/index.html", "here");
        let old = authority.issue(&["a.example"]);
        old.put(&tree, "live");
        let server = serve_config(&tree, &config(driver, LIVE, ""));
        let address = tcp_address(&server);
        let expired = authority.issue_with(&["a.example"], |params| {
            params.not_before = rcgen::date_time_ymd(2020, 1, 1);
            params.not_after = rcgen::date_time_ymd(2020, 3, 1);
        });
        let early = || {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
            authority.issue_with(&["a.example"], |params| {
                params.not_before = rcgen::date_time_ymd(1970, 1, 1) + now + SOON;
            })
        };
        let still_old = |why: &str| {
            let output = reload(&tree);
            assert!(output.status.success(), "{output:?}");
            assert!(String::from_utf8_lossy(&output.stdout).contains(why), "{output:?}");
            assert_eq!(authority.seen(address, "a.example"), old.der, "{why}");
        };
        let comes = |der: &CertificateDer<'_>| {
            assert!(wait_until(2 * SOON, || authority.seen(address, "a.example") == *der));
        };
        expired.put(&tree, "live");
        still_old("the certificate expired on 2020-03-01");
        let next = early();
        next.put(&tree, "live");
        still_old("the certificate is valid from ");
        comes(&next.der);
        // Without a reload.
        let last = early();
        last.put(&tree, "live");
        let line =
            server.wait_for_stderr("was not renewed, and the one before is still shown", SOON);
        assert!(line.is_some(), "{:#?}", server.stderr());
        assert_eq!(authority.seen(address, "a.example"), next.der);
        comes(&last.der);
    });
}

#[test]
fn authorities_of_clients_are_read_again_when_they_change() {
    let authority = Authority::new();
    let (before, after) = (Authority::new(), Authority::new());
    let tree = Tree::new().file("www/index.html", "here");
    authority.issue(&["a.example"]).put(&tree, "live");
    put(&tree, "clients.pem", &before.pem());
    let files =
        "{ certificate = \"live.pem\", key = \"live.key\", client = { ca = \"clients.pem\" } }";
    let server = serve_config(&tree, &config("epoll", files, ""));
    let address = tcp_address(&server);
    let is_let_in = |issued: Option<&Issued>| {
        let client = authority.connect_as(address, "a.example", issued);
        // With TLS 1.3 the handshake of the client is complete before the server has seen the certificate.
        client.and_then(|mut client| client.get("a.example", "/")).is_ok()
    };
    let (old, new) = (before.issue(&["client"]), after.issue(&["client"]));
    assert!(is_let_in(Some(&old)) && !is_let_in(Some(&new)) && !is_let_in(None));
    put(&tree, "clients.pem", "nothing");
    let line = server.wait_for_stderr("were not read again, and those before still count: ", SOON);
    assert!(line.is_some_and(|line| line.contains("clients.pem: the file has no certificate")));
    assert!(is_let_in(Some(&old)) && !is_let_in(None));
    put(&tree, "clients.pem", &after.pem());
    assert!(wait_until(SOON, || is_let_in(Some(&new))), "{:#?}", server.stderr());
    assert!(!is_let_in(Some(&old)) && !is_let_in(None));
    let said = "the authorities for clients of a.example were read again";
    assert!(server.wait_for_stderr(said, SOON).is_some());
}

pub(super) fn reload(tree: &Tree) -> Output {
    let mut command = Command::new(SAMUM);
    command.arg("reload").arg("--control").arg(tree.path().join("control"));
    command.output().expect("it starts")
}

#[test]
fn a_reload_takes_new_certificates_or_changes_nothing() {
    on_both_drivers(|driver| {
        let authority = Authority::new();
        let tree = Tree::new().file("www/index.html", "here");
        let (old, new) = (authority.issue(&["a.example"]), authority.issue(&["a.example"]));
        let other = authority.issue(&["b.example"]);
        old.put(&tree, "live");
        new.put(&tree, "new");
        other.put(&tree, "b");
        let server = serve_config(&tree, &config(driver, LIVE, ""));
        let address = tcp_address(&server);
        let mut kept = authority.connect(address, "a.example").unwrap();

        let wrong = "{ certificate = \"new.pem\", key = \"b.key\" }";
        tree.write("samum.toml", &*config(driver, wrong, ""));
        let output = reload(&tree);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let said = String::from_utf8(output.stderr).unwrap();
        let file = tree.path().join("samum.toml");
        let head = format!("{}:9:40: error: ", text(&file));
        assert!(said.contains(&head), "{head}: {said}");
        assert!(said.contains("b.key: the private key does not belong to"), "{said}");
        assert_eq!(authority.seen(address, "a.example"), old.der);
        assert_eq!(kept.get("a.example", "/").unwrap(), b"here");

        let listener = "\n[[site]]\nlisten = [{ address = \"127.0.0.2:0\", tls = true }]\n\
                        tls = { certificate = \"b.pem\", key = \"b.key\" }\n\n[[site.route]]\n\
                        files = \"www\"\n";
        let right = "{ certificate = \"new.pem\", key = \"new.key\" }";
        tree.write("samum.toml", &*config(driver, right, listener));
        let output = reload(&tree);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        assert_eq!(authority.seen(address, "a.example"), new.der);
        assert_eq!(kept.get("a.example", "/").unwrap(), b"here");
        let line = server.wait_for_stderr("listening on https://127.0.0.2:", SOON).unwrap();
        let second = line.split("https://").nth(1).unwrap().trim_end_matches('/');
        let second: SocketAddr = second.parse().unwrap();
        assert_eq!(authority.seen(second, "b.example"), other.der);

        // The thread looks at the files of this configuration now.
        let renewed = authority.issue(&["b.example"]);
        renewed.put(&tree, "b");
        assert!(wait_until(SOON, || authority.seen(second, "b.example") == renewed.der));

        // A listener that goes, and one that has TLS no more.
        tree.write("samum.toml", &*config(driver, right, "").replace(", tls = true", ""));
        let output = reload(&tree);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        assert!(authority.connect(second, "b.example").is_err());
        let line = server.wait_for_stderr("speaks no TLS any more", SOON);
        assert!(line.is_some(), "{:?}", server.stderr());
        let said = ask_raw(&server, "GET / HTTP/1.0\r\n\r\n");
        assert!(said.starts_with(b"HTTP/1.1 200 "), "{}", String::from_utf8_lossy(&said));
    });
}

/// A client that is refused sees an alert only; the operator has to help it.
#[test]
fn a_refused_client_certificate_has_a_line_with_its_reason() {
    on_both_drivers_at_once(|driver| {
        let (authority, staff) = (Authority::new(), Authority::new());
        let tree = Tree::new().file("www/index.html", "here");
        authority.issue(&["a.example"]).put(&tree, "live");
        tree.write("staff.pem", &*staff.pem());
        let (good, revoked) = (staff.issue(&["good"]), staff.issue(&["revoked"]));
        let expired = staff.issue_with(&["expired"], |params| {
            params.not_before = rcgen::date_time_ymd(2020, 1, 1);
            params.not_after = rcgen::date_time_ymd(2021, 1, 1);
        });
        // One authority has another name, and one has the same.
        let strange = Authority::expired().issue(&["strange"]);
        let forged = Authority::new().issue(&["forged"]);
        put(&tree, "staff.crl", &staff.revoke(&[&revoked], 1));
        let files = "{ certificate = \"live.pem\", key = \"live.key\", \
                     client = { ca = \"staff.pem\", crl = \"staff.crl\" } }";
        let metrics = "\n[[site]]\nlisten = [\"unix:metrics\"]\n[[site.route]]\nmetrics = true\n";
        let server = serve_config(&tree, &config(driver, files, metrics));
        let address = tcp_address(&server);
        let try_as = |client: Option<&Issued>| {
            let connected = authority.connect_as(address, "a.example", client);
            connected.and_then(|mut client| client.get("a.example", "/"))
        };
        assert_eq!(try_as(Some(&good)).unwrap(), b"here");
        let cases = [
            (None, "it has sent no certificate"),
            (Some(&strange), "no authority of `ca` has issued its certificate"),
            (Some(&forged), "a signature does not fit"),
            (Some(&expired), "its certificate has expired"),
            (Some(&revoked), "its certificate is revoked by `crl`"),
        ];
        for (client, why) in cases {
            assert!(try_as(client).is_err(), "{why}");
            let line = server.wait_for_stderr(why, SOON);
            let line = line.unwrap_or_else(|| panic!("{why}: {:#?}", server.stderr()));
            let head = "127.0.0.1 was refused in its TLS handshake for a.example: ";
            assert!(line.contains(head), "{line}");
            // Others for the same reason only count for a while.
            assert!(try_as(client).is_err(), "{why}");
        }
        assert_eq!(try_as(Some(&good)).unwrap(), b"here");
        let lines = server.stderr();
        let told = lines.iter().filter(|line| line.contains("was refused in its TLS")).count();
        assert!((cases.len()..=2 * cases.len()).contains(&told), "{lines:#?}");
        let metrics = testkit::Address::Unix(tree.path().join("metrics"));
        let page = testkit::get(&metrics, "/").unwrap().body;
        let page = testkit::metrics::Metrics::parse(&String::from_utf8(page).unwrap()).unwrap();
        let failed = |reason| page.sum("samum_tls_handshakes_failed_total", &[("reason", reason)]);
        assert_eq!((failed("client-certificate"), failed("other")), (10.0, 0.0));
    });
}

#[test]
fn old_lists_and_authorities_of_clients_are_warned_of() {
    on_both_drivers(|driver| {
        let (authority, old) = (Authority::new(), Authority::expired());
        let tree = Tree::new().file("www/index.html", "here");
        authority.issue(&["a.example"]).put(&tree, "live");
        tree.write("staff.pem", &*old.pem());
        tree.write("staff.crl", &*old.revoke(&[], -1));
        let files = "{ certificate = \"live.pem\", key = \"live.key\", \
                     client = { ca = \"staff.pem\", crl = \"staff.crl\" } }";
        let expected = [
            "staff.pem: the certificate of the authority CN=Old authority of tests expired ",
            "staff.crl: the list of revoked certificates of CN=Old authority of tests is out of date",
        ];
        let server = serve_config(&tree, &config(driver, files, ""));
        let said =
            |lines: &[String], why: &str| lines.iter().filter(|line| line.contains(why)).count();
        for why in expected {
            assert!(server.wait_for_stderr(why, SOON).is_some(), "{:#?}", server.stderr());
            assert_eq!(said(&server.stderr(), why), 1, "{why}");
        }
        let output = reload(&tree);
        assert!(output.status.success(), "{output:?}");
        let mut check = Command::new(SAMUM);
        let checked =
            check.args(["check", "samum.toml"]).current_dir(tree.path()).output().unwrap();
        let shown = String::from_utf8(checked.stderr).unwrap();
        for why in expected {
            assert!(String::from_utf8_lossy(&output.stdout).contains(why), "{output:?}");
            assert!(
                shown.contains(&format!("warning: {}", tree.path().join(why).display())),
                "{shown}"
            );
        }
        // A new list lets clients in again.
        put(&tree, "staff.crl", &old.revoke(&[], 1));
        let client = old.issue(&["alice"]);
        let address = tcp_address(&server);
        let is_let_in = || {
            let client = authority.connect_as(address, "a.example", Some(&client));
            client.and_then(|mut client| client.get("a.example", "/")).is_ok()
        };
        assert!(wait_until(SOON, is_let_in), "{:#?}", server.stderr());
    });
}

/// A private authority may issue by its root alone. Its clients have this root if the system has it.
#[test]
fn an_issuer_that_the_system_trusts_is_not_missing() {
    let (authority, other) = (Authority::new(), Authority::expired());
    let tree = Tree::new().directory("www");
    tree.write("ca.pem", &*authority.pem());
    tree.write("other.pem", &*other.pem());
    // SEQUENCE { SEQUENCE { id-ad-caIssuers, [6] "http://a" } }.
    let mut access =
        vec![0x30, 0x16, 0x30, 0x14, 0x06, 0x08, 0x2b, 6, 1, 5, 5, 7, 0x30, 2, 0x86, 8];
    access.extend(b"http://a");
    let says_issuer = CustomExtension::from_oid_content(&[1, 3, 6, 1, 5, 5, 7, 1, 1], access);
    let add = |params: &mut CertificateParams| params.custom_extensions.push(says_issuer);
    authority.issue_with(&["a.example"], add).put(&tree, "live");
    tree.write("samum.toml", &*config("epoll", LIVE, ""));
    for (system, warns) in [("ca.pem", false), ("other.pem", true), ("none.pem", true)] {
        let mut check = Command::new(SAMUM);
        check.args(["check", "samum.toml"]).current_dir(tree.path());
        let output = check.env("SSL_CERT_FILE", tree.path().join(system)).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{said}");
        assert_eq!(said.contains("no certificate of the issuer"), warns, "{system}: {said}");
    }
}

/// A connection whose client has shown no certificate is of no use once the site demands one. What else a reload changes
/// leaves it alone.
#[test]
fn a_reload_that_changes_the_rules_for_clients_ends_the_connections_of_before() {
    on_both_drivers(|driver| {
        let (authority, staff) = (Authority::new(), Authority::new());
        let tree = Tree::new().file("www/index.html", "here");
        authority.issue(&["a.example"]).put(&tree, "live");
        tree.write("staff.pem", &*staff.pem());
        let server = serve_config(&tree, &config(driver, LIVE, ""));
        let address = tcp_address(&server);
        let mut kept = authority.connect(address, "a.example").unwrap();
        assert_eq!(kept.get("a.example", "/").unwrap(), b"here");

        tree.write(
            "samum.toml",
            &*config(driver, LIVE, "headers = [{ set = { X-New = \"1\" } }]\n"),
        );
        assert!(reload(&tree).status.success());
        assert_eq!(kept.get("a.example", "/").unwrap(), b"here");

        let demanding = "{ certificate = \"live.pem\", key = \"live.key\", \
                         client = { ca = \"staff.pem\" } }";
        tree.write("samum.toml", &*config(driver, demanding, ""));
        let output = reload(&tree);
        assert!(output.status.success(), "{output:?}");
        let error = kept.get("a.example", "/").unwrap_err().to_string();
        assert!(
            error.starts_with("http/1.1 421 ") && error.contains("connection: close"),
            "{error}"
        );
        let client = staff.issue(&["alice"]);
        let mut known = authority.connect_as(address, "a.example", Some(&client)).unwrap();
        assert_eq!(known.get("a.example", "/").unwrap(), b"here");
        // Another authority is another rule.
        tree.write("staff.pem", &*authority.pem());
        let is_outdated = || known.get("a.example", "/").is_err();
        assert!(
            wait_until(SOON, is_outdated),
            "a certificate of an authority that is not trusted any more"
        );
    });
}

#[test]
fn a_self_signed_certificate_is_told_by_its_fingerprint() {
    if let Err(reason) = run("openssl", &["version".as_ref()]) {
        skip!("no openssl: {reason}");
    }
    let tree = Tree::new().file("www/index.html", "here");
    let fingerprint = |server: &Server| {
        let script = format!(
            "echo | openssl s_client -connect {} 2>/dev/null | \
             openssl x509 -noout -fingerprint -sha256",
            tcp_address(server)
        );
        let output = Command::new("sh").args(["-c", &script]).output().expect("a shell");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    let said = |server: &Server, site: &str| {
        let head = format!("the certificate of {site} is self-signed; its SHA-256 fingerprint is ");
        let line = server.wait_for_stderr(&head, SOON).expect("it is said");
        line.split(&head).nth(1).unwrap().to_owned()
    };
    on_both_drivers(|driver| {
        let server = serve(driver, tree.path().join("www"), &["--tls", "self-signed"]);
        let shown = fingerprint(&server);
        assert_eq!(shown.split('=').nth(1), Some(&*said(&server, "default")), "{shown}");
    });
    // A reload keeps it.
    let server = serve_config(&tree, &config("epoll", "\"self-signed\"", ""));
    let before = fingerprint(&server);
    assert_eq!(before.split('=').nth(1), Some(&*said(&server, "a.example")), "{before}");
    assert!(reload(&tree).status.success());
    assert_eq!(fingerprint(&server), before);
    let lines = server.stderr();
    assert_eq!(lines.iter().filter(|line| line.contains("self-signed;")).count(), 1, "{lines:?}");
}

#[test]
fn a_server_does_not_start_with_files_that_it_cannot_use() {
    let authority = Authority::new();
    let tree = Tree::new().directory("www");
    let Issued { certificate, .. } = authority.issue(&["a.example"]);
    tree.write("live.pem", &*certificate);
    tree.write("samum.toml", &*config("epoll", LIVE, ""));
    let mut by_file = Command::new(SAMUM);
    by_file.args(["serve", "--config", "samum.toml"]).current_dir(tree.path());
    let mut by_flag = command("epoll", "www", &["--tls", "live.pem"]);
    by_flag.current_dir(tree.path());
    for (mut command, why) in [
        (by_file, "samum.toml:9:41: error: cannot read "),
        (by_flag, "error: live.pem: the file has no private key: name the file of the key, too"),
    ] {
        let output = command.output().expect("it starts");
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(why), "{why}: {said}");
        assert!(!said.contains("listening on"), "{said}");
    }
}
