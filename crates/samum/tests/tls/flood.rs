//! More handshakes than the server can do, of one client.

use std::io::Write as _;
use std::net::TcpStream;
use std::sync::Arc;

use rcgen::{KeyPair, PKCS_RSA_SHA256};
use rustix::process::{Resource, getrlimit};
use rustls::ClientConnection;
use rustls::pki_types::ServerName;
use testkit::metrics::Metrics;
use testkit::{Tree, skip};

use super::Authority;
use super::certificates::{LIVE, config};
use crate::common::{SOON, on_both_drivers, serve_config, tcp_address};

/// More than may wait. A helper signs with RSA, 1,500 times in a second at most.
const FLOOD: usize = 2000;
const NAME: &str = "a.example";

#[test]
fn a_client_with_too_many_handshakes_is_refused_and_named_in_the_log() {
    if getrlimit(Resource::Nofile).current.is_some_and(|most| most < 4 * FLOOD as u64) {
        skip!("too few descriptors for the connections");
    }
    on_both_drivers(|driver| {
        let authority = Authority::new();
        let tree = Tree::new().file("www/small", "small\n");
        let key = KeyPair::generate_for(&PKCS_RSA_SHA256).unwrap();
        authority.issue_for(&key, &[NAME], |_| {}).put(&tree, "live");
        let metrics = "\n[[site.route]]\npath = \"/metrics\"\nmetrics = true\n";
        let server = serve_config(&tree, &config(driver, LIVE, metrics));
        let address = tcp_address(&server);
        let mut client = authority.connect(address, NAME).unwrap();
        let mut hello = Vec::new();
        let name = ServerName::try_from(NAME).unwrap();
        let settings = Arc::new(authority.client_config(None));
        ClientConnection::new(settings, name).unwrap().write_tls(&mut hello).unwrap();
        let connect = |_| {
            let mut socket = TcpStream::connect(address).unwrap();
            // It fails if the connection is refused already.
            let _ = socket.write_all(&hello);
            socket
        };
        let flood: Vec<_> = (0..FLOOD).map(connect).collect();
        // The helper is busy for a second, and nobody else waits for it.
        assert_eq!(client.get(NAME, "/small").unwrap(), b"small\n");
        let said = server.wait_for_stderr("asks for more TLS handshakes than its share", SOON);
        assert!(said.is_some_and(|said| said.contains("127.0.0.1 asks")), "{driver}");
        drop(flood);
        // The places are free again.
        let page = authority.connect(address, NAME).unwrap().rest("/metrics").unwrap();
        let refused = Metrics::parse(&page).unwrap().sum("samum_tls_handshakes_refused_total", &[]);
        assert!(refused > 100.0, "{driver}: {refused}");
    });
}
