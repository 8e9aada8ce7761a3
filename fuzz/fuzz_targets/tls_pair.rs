//! Arbitrary files of a certificate and a key: what stands behind a NUL is the file of the key. A file without a line that
//! begins a section is taken as the DER of a certificate, since a fuzzer rarely finds base64. Checked: an error names its
//! file and is short, and a pair that is accepted can be used, is the same if it is read again, and can be checked.

#![no_main]

use std::net::IpAddr;
use std::path::Path;

use libfuzzer_sys::fuzz_target;
use tls::check::{Warning, check_hosts, check_pair};
use tls::{Cause, Fault, Pair, Source};

/// Of an error; names of files and of issuers are in it.
const TEXT_BYTES_MAX: usize = 2000;

/// The key of the certificates among the seeds.
const KEY: &[u8] = include_bytes!("../../crates/tls/tests/data/ec.key");

fn read(certificate: &[u8], key: Option<&[u8]>) -> Result<Pair, Fault> {
    let key = key.map(|bytes| Source { path: Path::new("it.key"), bytes });
    Pair::read(Source { path: Path::new("it.pem"), bytes: certificate }, key)
}

fuzz_target!(|bytes: &[u8]| {
    let begins = bytes.windows(10).any(|part| part == b"-----BEGIN");
    let (certificate, key) = if begins {
        let mut files = bytes.splitn(2, |&byte| byte == 0);
        (files.next().unwrap_or_default().to_vec(), files.next())
    } else {
        (pem(bytes), Some(KEY))
    };
    match read(&certificate, key) {
        Ok(pair) => {
            assert!(pair.certified().keys_match().is_ok());
            let again = read(&certificate, key).unwrap();
            assert_eq!(again.fingerprint(), pair.fingerprint());
            assert_eq!(again.names(), pair.names());
            for now in [i64::MIN, pair.not_before(), pair.not_after(), i64::MAX] {
                for warning in check_pair(&pair, now) {
                    assert!(!warning.to_string().is_empty());
                }
            }
            let hosts: Vec<_> = pair.names().iter().map(ToString::to_string).collect();
            // A name that has the form of an address covers no address.
            let is_address = |host: &str| host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok();
            for warning in check_hosts(&hosts, [&pair]) {
                assert!(matches!(warning, Warning::NotCovered { host } if is_address(&host)));
            }
        }
        Err(fault) => {
            let path = fault.path().unwrap();
            assert!(path == Path::new("it.pem") || path == Path::new("it.key"));
            assert!(!matches!(fault.cause(), Cause::NoPair { .. } | Cause::Settings(_)));
            assert!(fault.to_string().len() <= TEXT_BYTES_MAX);
        }
    }
});

/// A certificate in PEM.
fn pem(der: &[u8]) -> Vec<u8> {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = b"-----BEGIN CERTIFICATE-----\n".to_vec();
    for three in der.chunks(3) {
        let bits = (0..3).fold(0, |bits, at| bits << 8 | u32::from(*three.get(at).unwrap_or(&0)));
        for at in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * at)) as usize % 64];
            text.push(if at > three.len() { b'=' } else { digit });
        }
    }
    text.extend(b"\n-----END CERTIFICATE-----\n");
    text
}
