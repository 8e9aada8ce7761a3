//! TLS over samum's own TCP: sealed records wait for acknowledgements, and are sent again when frames are lost.

use std::fs;
use std::process::Command;

use rcgen::{CertificateParams, KeyPair};
use testkit::{Content, Tree, skip};

use crate::common::run;
use crate::net::{V4, V6};
use crate::{on_all_ways_and_where_frames_are_lost, path};

/// A certificate for both addresses, `cert.pem`, and its key, `key.pem`. Returns the value of `--tls`.
pub(crate) fn certify(tree: &Tree) -> String {
    let names = [V4, V6].map(str::to_owned).to_vec();
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(names).unwrap().self_signed(&key).unwrap();
    let [of_certificate, of_key] = ["cert.pem", "key.pem"].map(|name| tree.path().join(name));
    fs::write(&of_certificate, certificate.pem()).unwrap();
    fs::write(&of_key, key.serialize_pem()).unwrap();
    format!("{},{}", of_certificate.display(), of_key.display())
}

#[test]
fn responses_over_tls_are_whole() {
    if let Err(reason) = run("curl", &["--version".as_ref()]) {
        skip!("no curl: {reason}");
    }
    let (pair, long) = (Tree::new(), Content::pseudo_random(11, 5_000_000));
    let tree = Tree::new().file("small", "small\n").file("long", long.clone());
    let tls = certify(&pair);
    on_all_ways_and_where_frames_are_lost(|net| {
        let _server = net.serve(path(&tree), &["--tls", &tls]);
        for (host, version) in [(V4.to_owned(), "1.3"), (format!("[{V6}]"), "1.2")] {
            let url = |name: &str| format!("https://{host}:80/{name}");
            // All on one connection.
            let names = ["small", "long", "small"].map(url);
            let mut curl = Command::new("curl");
            curl.args(["-gsS", "--max-time", "60", "--cacert"]).arg(pair.path().join("cert.pem"));
            curl.args(["--tls-max", version]).args(names);
            let output = net.as_client(|| curl.output().expect("curl"));
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            let body = output.stdout.strip_prefix(b"small\n").expect("the first");
            long.assert_is(body.strip_suffix(b"small\n").expect("the last"));
        }
    });
}
