//! Files over TLS: where their bytes come from.

use core::net::SocketAddr;

use testkit::metrics::Metrics;
use testkit::{Content, Server, Tree};

use super::Authority;
use super::certificates::reload;
use crate::common::{SOON, ask, on_both_drivers, serve_config, wait_until};

/// The bytes of a file that is in memory for connections with TLS, and of one that never is.
const MIDDLE: usize = 100_000;
const LARGE: usize = 3_000_000;

/// A listener without TLS, which also has the metrics, and one with TLS if that is said. Both have the same files.
fn config(driver: &str, with_tls: bool) -> String {
    let secure = "[[site]]\nlisten = [{ address = \"127.0.0.2:0\", tls = true }]\n\
                  hosts = [\"a.example\"]\n\
                  tls = { certificate = \"a.pem\", key = \"a.key\" }\n\n\
                  [[site.route]]\nfiles = \"www\"\n";
    format!(
        "[server]\ndriver = \"{driver}\"\nthreads = 1\ncontrol = \"control\"\n\n\
         [[site]]\nlisten = [\"127.0.0.1:0\"]\n\n[[site.route]]\nfiles = \"www\"\n\n\
         [[site.route]]\npath = \"/metrics\"\nmetrics = true\n\n{}",
        if with_tls { secure } else { "" }
    )
}

fn tree(authority: &Authority) -> Tree {
    let tree = Tree::new()
        .file("www/middle", Content::pseudo_random(1, MIDDLE as u64))
        .file("www/large", Content::pseudo_random(2, LARGE as u64));
    authority.issue(&["a.example"]).put(&tree, "a");
    tree
}

fn tls_address(server: &Server) -> SocketAddr {
    let line = server.wait_for_stderr("listening on https://", SOON).expect("a listener with TLS");
    let address = line.split("https://").nth(1).expect("an address").trim_end_matches('/');
    address.parse().expect("an address")
}

/// Waits until this many bytes have been found in the page cache for responses. No byte may have been read.
#[track_caller]
fn assert_resident(server: &Server, bytes: usize) {
    let mut found = (0.0, 0.0);
    let is_so = wait_until(SOON, || {
        let page = String::from_utf8(ask(server, "GET /metrics").body).expect("a text");
        let metrics = Metrics::parse(&page).expect("metrics");
        let sum = |name: &str, result| metrics.sum(name, &[("result", result)]);
        found = (sum("samum_residency_bytes_total", "hit"), sum("samum_residency_total", "miss"));
        found == (bytes as f64, 0.0)
    });
    assert!(is_so, "{} bytes were resident, not {bytes}; {} reads", found.0, found.1);
}

#[test]
fn resident_files_over_tls_are_not_read() {
    on_both_drivers(|driver| {
        let authority = Authority::new();
        let tree = tree(&authority);
        let server = serve_config(&tree, &config(driver, true));
        let mut client = authority.connect(tls_address(&server), "a.example").unwrap();
        for _ in 0..2 {
            let large = client.get("a.example", "/large").unwrap();
            Content::pseudo_random(2, LARGE as u64).assert_is(&large);
        }
        assert_resident(&server, 2 * LARGE);
        let middle = client.get("a.example", "/middle").unwrap();
        Content::pseudo_random(1, MIDDLE as u64).assert_is(&middle);
        assert_resident(&server, 2 * LARGE);
        // Without TLS both leave by `sendfile`.
        assert_eq!(ask(&server, "GET /middle").body.len(), MIDDLE);
        assert_eq!(ask(&server, "GET /large").body.len(), LARGE);
        assert_resident(&server, 3 * LARGE + MIDDLE);
    });
}

#[test]
fn files_are_in_memory_for_a_listener_with_tls_that_a_reload_adds() {
    on_both_drivers(|driver| {
        let authority = Authority::new();
        let tree = tree(&authority);
        let server = serve_config(&tree, &config(driver, false));
        tree.write("samum.toml", &*config(driver, true));
        let output = reload(&tree);
        assert!(output.status.success(), "{output:?}");
        let mut client = authority.connect(tls_address(&server), "a.example").unwrap();
        let middle = client.get("a.example", "/middle").unwrap();
        Content::pseudo_random(1, MIDDLE as u64).assert_is(&middle);
        assert_resident(&server, 0);
        assert_eq!(ask(&server, "GET /middle").body.len(), MIDDLE);
        assert_resident(&server, MIDDLE);
    });
}
