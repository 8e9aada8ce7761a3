use rustls::client::WebPkiServerVerifier;
use rustls::pki_types::{ServerName, UnixTime};
use rustls::{CertificateError, Error, RootCertStore};
use std::sync::Arc;

use super::*;
use crate::check::{check_hosts, check_pair};
use crate::provider::provider;
use crate::x509::Algorithm;

const NOW: i64 = 1_782_907_200;

fn made(names: &[&str], now: i64) -> Pair {
    let names: Vec<_> = names.iter().map(|&name| name.to_owned()).collect();
    Pair::self_signed(&names, now).unwrap()
}

#[test]
fn it_is_valid_for_its_names_and_this_machine_for_a_year() {
    let hosts = [
        "Example.org.",
        "*.example.org",
        "192.0.2.1",
        "[2001:db8::1]",
        "::1",
        "localhost",
        "example.org",
    ];
    let pair = made(&hosts, NOW);
    let names: Vec<_> = pair.names().iter().map(ToString::to_string).collect();
    let expected = [
        "example.org",
        "*.example.org",
        "192.0.2.1",
        "2001:db8::1",
        "::1",
        "localhost",
        "127.0.0.1",
    ];
    assert_eq!(names, expected);
    assert_eq!(pair.algorithm(), Algorithm::EcdsaP256);
    assert_eq!((pair.not_before(), pair.not_after()), (NOW - 3600, NOW + 365 * 86_400));
    assert_eq!(pair.path(), None);
    assert!(check_pair(&pair, NOW).is_empty());
    let hosts = hosts.map(str::to_owned);
    assert!(check_hosts(&hosts, [&pair]).is_empty());
    assert_ne!(pair.fingerprint(), made(&[], NOW).fingerprint());
    assert_eq!(
        check_pair(&pair, NOW + 400 * 86_400)[0].to_string(),
        "the self-signed certificate: the certificate expired 35 days ago: renew it"
    );
}

#[test]
fn clients_that_trust_it_accept_it() {
    let pair = made(&["example.org"], NOW);
    let certificate = &pair.certified().cert[0];
    let mut roots = RootCertStore::empty();
    roots.add(certificate.clone()).unwrap();
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider());
    let verifier = verifier.build().unwrap();
    let verify = |name: &'static str, now: i64| {
        let name = ServerName::try_from(name).unwrap();
        let now = UnixTime::since_unix_epoch(Duration::from_secs(now.try_into().unwrap()));
        use rustls::client::danger::ServerCertVerifier as _;
        verifier.verify_server_cert(certificate, &[], &name, &[], now).map(drop)
    };
    for name in ["example.org", "localhost", "127.0.0.1", "::1"] {
        assert_eq!(verify(name, NOW), Ok(()), "{name}");
        assert_eq!(verify(name, NOW + 365 * 86_400), Ok(()), "{name}");
    }
    let expired = verify("localhost", NOW + 366 * 86_400).unwrap_err();
    assert!(
        matches!(expired, Error::InvalidCertificate(CertificateError::ExpiredContext { .. })),
        "{expired}"
    );
    assert!(verify("www.example.org", NOW).is_err());
}

#[test]
fn any_clock_and_no_names_are_enough() {
    for now in [i64::MIN, -1, 0, i64::MAX] {
        let pair = made(&[], now);
        assert!(pair.not_before() >= 0 && pair.not_after() > pair.not_before());
    }
    let fault = Pair::self_signed(&["b\u{fc}cher.example".to_owned()], NOW).unwrap_err();
    assert!(fault.to_string().starts_with("a self-signed certificate cannot be made ("), "{fault}");
}
