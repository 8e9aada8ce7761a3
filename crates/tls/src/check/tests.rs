use std::sync::Arc;

use rcgen::{
    CertificateParams, CustomExtension, ExtendedKeyUsagePurpose, PKCS_ECDSA_P256_SHA256,
    date_time_ymd,
};

use super::*;
use crate::testing::{Authority, pair, params, read, self_signed};

/// Noon of 2026-07-01.
const NOW: i64 = 1_782_907_200;

fn made(params: &CertificateParams) -> Pair {
    let (certificate, key) = self_signed(params, &PKCS_ECDSA_P256_SHA256);
    read(&[&certificate, &key]).unwrap()
}

fn texts(warnings: Vec<Warning>) -> Vec<String> {
    warnings.iter().map(ToString::to_string).collect()
}

#[test]
fn times_are_compared_with_the_clock() {
    let mut params = params("it", &["it.example"]);
    params.not_before = date_time_ymd(2026, 1, 1);
    params.not_after = date_time_ymd(2026, 12, 31);
    let pair = made(&params);
    let text = |now| texts(check_pair(&pair, now)).concat();
    assert_eq!(text(NOW), "");
    let (from, to) = (pair.not_before(), pair.not_after());
    for (now, expected) in [
        (from, ""),
        (from - 1, "is not valid yet, but in 1 min: check the clock of this machine"),
        (from - 3 * 60 * 60, "is not valid yet, but in 181 min: check the clock of this machine"),
        (from - DAY, "is not valid yet, but in 1 day: check the clock of this machine"),
        (from - 5 * DAY, "is not valid yet, but in 5 days: check the clock of this machine"),
        (to - EXPIRY_DAYS * DAY, ""),
        (to - EXPIRY_DAYS * DAY + 1, "expires in 29 days: renew it"),
        (to - DAY, "expires in 1 day: renew it"),
        (to - DAY + 1, "expires within a day: renew it"),
        (to, "expires within a day: renew it"),
        (to + 1, "expired today: renew it"),
        (to + DAY, "expired 1 day ago: renew it"),
        (to + 30 * DAY, "expired 30 days ago: renew it"),
    ] {
        let expected = match expected {
            "" => String::new(),
            expected => format!("pair.pem: the certificate {expected}"),
        };
        assert_eq!(text(now), expected, "{now}");
    }
    for now in [i64::MIN, i64::MAX, 0] {
        assert_eq!(check_pair(&pair, now).len(), 1);
    }
}

#[test]
fn hosts_need_a_certificate() {
    let one = pair(&["example.org", "*.example.org", "192.0.2.1", "2001:db8::1"]);
    let two = pair(&["*.deep.example.org"]);
    let check = |hosts: &[&str], pairs: &[&Arc<Pair>]| {
        let hosts: Vec<_> = hosts.iter().map(|&host| host.to_owned()).collect();
        let warnings = check_hosts(&hosts, pairs.iter().map(|pair| &***pair));
        warnings
            .into_iter()
            .map(|warning| match warning {
                Warning::NotCovered { host } => host,
                other => panic!("{other}"),
            })
            .collect::<Vec<_>>()
    };
    let covered = [
        "example.org",
        "Example.org.",
        "www.example.org",
        "*.example.org",
        "192.0.2.1",
        "[2001:db8::1]",
        "[2001:DB8:0::1]",
    ];
    assert!(check(&covered, &[&one]).is_empty());
    let uncovered =
        ["example.net", "a.deep.example.org", "*.deep.example.org", "192.0.2.2", "[::1]", "org"];
    assert_eq!(check(&uncovered, &[&one]), uncovered);
    assert_eq!(check(&uncovered[1..3], &[&one, &two]), [""; 0]);
    assert_eq!(check(&["a.test"], &[]), ["a.test"]);
    assert_eq!(
        Warning::NotCovered { host: "a.test".to_owned() }.to_string(),
        "no certificate of the site is valid for its host a.test: \
         ask the issuer for one with that name, or remove the host"
    );
}

#[test]
fn a_certificate_covers_its_names_and_one_label_of_its_wildcards() {
    for (pattern, name, is_covered) in [
        ("example.org", "Example.ORG.", true),
        ("Example.org.", "example.org", true),
        ("*.example.org", "www.example.org", true),
        ("*.example.org", "*.example.org", true),
        ("*.example.org", "example.org", false),
        ("*.example.org", "a.www.example.org", false),
        ("www.example.org", "*.example.org", false),
        ("w*.example.org", "www.example.org", false),
        ("*", "org", false),
    ] {
        assert_eq!(covers(pattern, name), is_covered, "{pattern} {name}");
    }
}

#[test]
fn chains_lead_from_each_certificate_to_its_issuer() {
    let root = Authority::new("root");
    let between = Authority::below(&root, "between");
    let mut plain = params("it", &["it.example"]);
    let (certificate, key) = between.issue(&plain);
    let key = key.serialize_pem();
    let check = |texts: &[&str]| self::texts(check_pair(&read(texts).unwrap(), NOW));
    for rest in
        [[&between.certificate[..], ""], [&between.certificate, &root.certificate], ["", ""]]
    {
        assert!(check(&[&certificate, rest[0], rest[1], &key]).is_empty());
    }
    assert_eq!(
        check(&[&certificate, &key, &root.certificate, &between.certificate]),
        [
            "pair.pem: certificate 2 of the file is not that of the issuer of the one before it (CN=between): \
          put each certificate before that of its issuer"
        ]
    );

    // It says where its issuer's is: SEQUENCE { SEQUENCE { id-ad-caIssuers, [6] "http://a" } }.
    let mut access =
        vec![0x30, 0x16, 0x30, 0x14, 0x06, 0x08, 0x2b, 6, 1, 5, 5, 7, 0x30, 2, 0x86, 8];
    access.extend(b"http://a");
    plain
        .custom_extensions
        .push(CustomExtension::from_oid_content(&[1, 3, 6, 1, 5, 5, 7, 1, 1], access));
    let (certificate, key) = between.issue(&plain);
    let key = key.serialize_pem();
    assert!(check(&[&certificate, &between.certificate, &key]).is_empty());
    assert_eq!(
        check(&[&certificate, &key]),
        [
            "pair.pem: the file has no certificate of the issuer (CN=between), so some clients will refuse the connection: \
          add the intermediate certificates to the file"
        ]
    );
}

#[test]
fn a_chain_is_as_old_as_its_oldest_certificate() {
    let until = |name: &str, day| {
        let mut params = params(name, &[]);
        params.not_after = date_time_ymd(2026, 7, day);
        params
    };
    let old_root = Authority::of(None, until("root", 2));
    let between = Authority::of(Some(&old_root), until("between", 11));
    let (certificate, key) = between.issue(&params("it", &["it.example"]));
    let key = key.serialize_pem();
    let chain = [&certificate[..], &between.certificate, &old_root.certificate, &key];
    let pair = read(&chain).unwrap();
    for (now, expected) in [
        (NOW, "expires in 9 days"),
        (NOW + 9 * DAY, "expires within a day"),
        (NOW + 10 * DAY, "has expired"),
    ] {
        let expected = format!(
            "pair.pem: certificate 2 of the file (CN=between) {expected}, and clients refuse the connection then: \
             ask the issuer for its new certificate"
        );
        assert_eq!(texts(check_pair(&pair, now)), [expected]);
    }
    assert!(check_pair(&pair, NOW - 60 * DAY).is_empty());
}

#[test]
fn certificates_that_clients_refuse_here_are_named() {
    let mut stapled = params("it", &["it.example"]);
    // The only feature is status_request.
    let feature =
        CustomExtension::from_oid_content(&[1, 3, 6, 1, 5, 5, 7, 1, 24], vec![0x30, 3, 2, 1, 5]);
    stapled.custom_extensions.push(feature);
    let text = texts(check_pair(&made(&stapled), NOW)).concat();
    assert!(text.contains("demands OCSP stapling"), "{text}");
    for (purposes, is_named) in [
        (&[][..], false),
        (&[ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth], false),
        (&[ExtendedKeyUsagePurpose::Any], false),
        (&[ExtendedKeyUsagePurpose::ClientAuth], true),
    ] {
        let mut params = params("it", &["it.example"]);
        params.extended_key_usages = purposes.to_vec();
        let text = texts(check_pair(&made(&params), NOW)).concat();
        assert_eq!(text.contains("is not for servers"), is_named, "{purposes:?}: {text}");
    }
}

#[test]
fn a_common_name_alone_is_not_enough() {
    let warnings = texts(check_pair(&made(&params("it.example", &[])), NOW));
    assert_eq!(warnings.len(), 1);
    assert!(
        warnings[0].starts_with("pair.pem: the certificate has its name as the common name only, ")
    );
}

#[test]
fn keys_are_for_the_owner_and_the_group() {
    let path = Path::new("/etc/it.key");
    for mode in [0o100_600, 0o100_640, 0o100_660, 0o400, 0o100_601] {
        assert_eq!(check_key_mode(path, mode), None, "{mode:o}");
    }
    for mode in [0o100_644, 0o100_604, 0o100_602] {
        assert!(check_key_mode(path, mode).is_some(), "{mode:o}");
    }
    assert_eq!(
        check_key_mode(path, 0o100_644).unwrap().to_string(),
        "/etc/it.key: others may read or write the private key (mode 0644): run `chmod o-rw /etc/it.key`"
    );
}
