use core::net::IpAddr;

use proptest::prelude::*;
use rcgen::{
    KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_ECDSA_P521_SHA512, PKCS_ED25519,
    PKCS_RSA_SHA256, date_time_ymd,
};

use super::*;
use crate::fault::CERTIFICATES_MAX;
use crate::testing::{Authority, params, read, self_signed, source};

const RSA: &str = include_str!("../../tests/data/rsa.pem");
const RSA_KEY: &str = include_str!("../../tests/data/rsa.key");
const EC: &str = include_str!("../../tests/data/ec.pem");
const EC_KEY: &str = include_str!("../../tests/data/ec.key");
const PKCS8_ENCRYPTED: &str = include_str!("../../tests/data/ec-pkcs8-encrypted.key");
const SEC1_ENCRYPTED: &str = include_str!("../../tests/data/ec-sec1-encrypted.key");
const RSA_1024: &str = include_str!("../../tests/data/rsa1024.pem");
const SECP256K1: &str = include_str!("../../tests/data/secp256k1.pem");
const ED448: &str = include_str!("../../tests/data/ed448.pem");
const VERSION_1: &str = include_str!("../../tests/data/version1.pem");

/// Reads a pair from two files.
fn read_two(certificate: &str, key: &str) -> Result<Pair, Fault> {
    Pair::read(source("it.pem", certificate.as_bytes()), Some(source("it.key", key.as_bytes())))
}

fn names(pair: &Pair) -> Vec<String> {
    pair.names().iter().map(ToString::to_string).collect()
}

#[test]
fn what_is_read_has_the_fields_of_the_certificate() {
    let pair = read(&[EC, EC_KEY]).unwrap();
    assert_eq!(names(&pair), ["ec.example", "192.0.2.1", "2001:db8::1"]);
    assert_eq!(pair.names()[1], SubjectName::Ip(IpAddr::from([192, 0, 2, 1])));
    assert!(!pair.has_common_name_only());
    assert_eq!(pair.algorithm(), Algorithm::EcdsaP256);
    assert_eq!(pair.path(), Some(Path::new("pair.pem")));
    // By `openssl x509 -fingerprint -sha256`.
    let fingerprint = "FE:91:B7:9A:55:FC:CF:C0:88:C6:74:85:7F:D9:65:6D:\
                       99:EE:7E:14:DF:0C:8B:07:06:DD:19:B1:AC:1F:DF:AC";
    assert_eq!(pair.fingerprint(), fingerprint);
    assert_eq!(pair.certified().cert.len(), 1);

    let mut params = params("time", &["time.example"]);
    params.not_before = date_time_ymd(1971, 1, 1);
    params.not_after = date_time_ymd(2071, 1, 1);
    let (certificate, key) = self_signed(&params, &PKCS_ECDSA_P256_SHA256);
    let pair = read(&[&certificate, &key]).unwrap();
    assert_eq!((pair.not_before(), pair.not_after()), (31_536_000, 3_187_296_000));
}

#[test]
fn keys_are_read_in_each_form_and_of_each_kind() {
    let pkcs1 = read_two(RSA, RSA_KEY).unwrap();
    assert_eq!(pkcs1.algorithm(), Algorithm::Rsa(2048));
    assert!(RSA_KEY.contains("BEGIN RSA PRIVATE KEY"));
    let sec1 = read_two(EC, EC_KEY).unwrap();
    assert_eq!(sec1.algorithm(), Algorithm::EcdsaP256);
    assert!(EC_KEY.contains("BEGIN EC PRIVATE KEY"));
    for (kind, text) in [
        (&PKCS_ECDSA_P256_SHA256, "ECDSA P-256"),
        (&PKCS_ECDSA_P384_SHA384, "ECDSA P-384"),
        (&PKCS_ECDSA_P521_SHA512, "ECDSA P-521"),
        (&PKCS_ED25519, "Ed25519"),
        (&PKCS_RSA_SHA256, "RSA 2048"),
    ] {
        let (certificate, key) = self_signed(&params("it", &["it.example"]), kind);
        assert!(key.contains("BEGIN PRIVATE KEY"));
        // In either order, with other text around them, and with line ends of other systems.
        for texts in [
            [&certificate[..], "", &key],
            [&key, "a remark\n", &certificate],
            [&certificate.replace('\n', "\r\n"), "", &key.replace('\n', "\r\n")],
            [&format!("\u{feff}{certificate}"), "", &key],
            [&certificate, RSA_KEY_MARK, &key],
        ] {
            assert_eq!(read(&texts).unwrap().algorithm().to_string(), text);
        }
    }
}

/// A section that is neither a key nor a certificate.
const RSA_KEY_MARK: &str = "-----BEGIN DH PARAMETERS-----\nMAUG\n-----END DH PARAMETERS-----\n";

#[test]
fn a_chain_is_read_in_its_order() {
    let root = Authority::new("root");
    let between = Authority::below(&root, "between");
    let (certificate, key) = between.issue(&params("it", &["it.example"]));
    let key = key.serialize_pem();
    let pair = read(&[&certificate, &between.certificate, &root.certificate, &key]).unwrap();
    assert_eq!(pair.certified().cert.len(), 3);
    let links: Vec<_> =
        pair.links.iter().map(|link| (link.subject.as_str(), link.issuer.as_str())).collect();
    assert_eq!(links, [("CN=it", "CN=between"), ("CN=between", "CN=root"), ("CN=root", "CN=root")]);

    let fault = read(&[&between.certificate, &certificate, &key]).unwrap_err();
    assert_eq!(*fault.cause(), Cause::NotFirst { position: 2 });
    assert_eq!(fault.path(), Some(Path::new("pair.pem")));
}

#[test]
fn without_alternative_names_there_is_the_common_name() {
    let (certificate, key) = self_signed(&params("Old.Example", &[]), &PKCS_ECDSA_P256_SHA256);
    let pair = read(&[&certificate, &key]).unwrap();
    assert_eq!(names(&pair), ["old.example"]);
    assert!(pair.has_common_name_only());
    let mut nameless = params("it", &[]);
    nameless.distinguished_name = rcgen::DistinguishedName::new();
    let (certificate, key) = self_signed(&nameless, &PKCS_ECDSA_P256_SHA256);
    assert!(read(&[&certificate, &key]).unwrap().names().is_empty());
}

#[test]
fn what_cannot_be_used_is_refused_and_the_operator_learns_why() {
    let der = EC.find("-----BEGIN").map(|begin| &EC[begin..]).unwrap();
    let without_break = [der.trim_end(), EC_KEY[EC_KEY.find("-----BEGIN").unwrap()..].trim_end()];
    let many = EC.repeat(CERTIFICATES_MAX + 1);
    let large = " ".repeat(FILE_BYTES_MAX + 1);
    let other = KeyPair::generate().unwrap().serialize_pem();
    let broken = der.replace("MIIB", "MI!B");
    let random = "-----BEGIN CERTIFICATE-----\nMAMCAQE=\n-----END CERTIFICATE-----\n";
    let short = "-----BEGIN CERTIFICATE-----\nMIIBvzCCAWag\n-----END CERTIFICATE-----\n";
    let bad_key = "-----BEGIN PRIVATE KEY-----\nMAMCAQE=\n-----END PRIVATE KEY-----\n";
    let bad_label = "-----BEGIN CERTIFICATE---\nMAMCAQE=\n-----END CERTIFICATE-----\n";
    let one = |text: &str| read(&[text]);
    for (read, text) in [
        (one(""), "pair.pem: the file has no certificate: "),
        (one(EC_KEY), "pair.pem: the file has no certificate: "),
        (
            one("0\u{82}"),
            "pair.pem: the file is not in PEM: convert it, from DER by `openssl x509 -inform DER -in pair.pem ",
        ),
        (one(EC), "pair.pem: the file has no private key: name the file of the key, too"),
        (read_two(EC, EC), "it.key: the file has no private key: a line such as "),
        (
            read_two(EC, "0\u{82}"),
            "it.key: the file is not in PEM: convert it, from DER by `openssl pkey -inform DER -in it.key -out NEW`",
        ),
        (
            read_two(EC, PKCS8_ENCRYPTED),
            "it.key: the private key is encrypted, and samum asks for no passphrase: decrypt it by `openssl pkey -in it.key -out NEW`",
        ),
        (read_two(EC, SEC1_ENCRYPTED), "it.key: the private key is encrypted"),
        (read(&[SEC1_ENCRYPTED, EC]), "pair.pem: the private key is encrypted"),
        (read(&[EC, PKCS8_ENCRYPTED]), "pair.pem: the private key is encrypted"),
        (
            read_two(EC, RSA_KEY),
            "it.key: the private key does not belong to the certificate in it.pem: ",
        ),
        (
            read_two(EC, &other),
            "it.key: the private key does not belong to the certificate in it.pem: ",
        ),
        (
            read(&[EC, &other]),
            "pair.pem: the private key does not belong to the certificate in pair.pem: ",
        ),
        (read_two(EC, bad_key), "it.key: the private key cannot be used: "),
        (
            one(RSA_1024),
            "pair.pem: the certificate has a key of a kind that is not supported (RSA 1024): make another key by ",
        ),
        (
            one(SECP256K1),
            "pair.pem: the certificate has a key of a kind that is not supported (ECDSA 1.3.132.0.10): ",
        ),
        (
            one(ED448),
            "pair.pem: the certificate has a key of a kind that is not supported (id-Ed448): ",
        ),
        (read_two(VERSION_1, EC_KEY), "it.pem: the certificate is of X.509 version 1, "),
        (
            read(&[&broken, EC_KEY]),
            "pair.pem: a section of the file cannot be read (it is not in base64): ",
        ),
        (
            read(&[bad_label, EC_KEY]),
            "pair.pem: a section of the file cannot be read (a BEGIN line does not end in -----): ",
        ),
        (read(&[random, EC_KEY]), "pair.pem: certificate 1 of the file cannot be read ("),
        (read(&[EC, random, EC_KEY]), "pair.pem: certificate 2 of the file cannot be read ("),
        (read(&[short, EC_KEY]), "pair.pem: the file ends in the middle of a section: "),
        (read(&without_break), "pair.pem: an END and a BEGIN are on one line, "),
        (one(&many), "pair.pem: the file has more than 100 certificates: "),
        (one(&large), "pair.pem: the file is larger than 1 MiB, "),
    ] {
        let fault = read.expect_err(text);
        assert!(fault.to_string().starts_with(text), "{fault}\n{text}");
        assert!(!fault.to_string().ends_with('.'), "{fault}");
    }
}

#[test]
fn other_keys_beside_the_certificate_do_not_matter_if_the_key_is_named() {
    for beside in [RSA_KEY, PKCS8_ENCRYPTED, SEC1_ENCRYPTED] {
        read_two(&[EC, beside].concat(), EC_KEY).unwrap();
    }
    read_two(EC, &[EC_KEY, RSA_KEY].concat()).unwrap();
    read_two(EC, &[RSA, EC_KEY].concat()).unwrap();
}

#[test]
fn a_file_half_written_is_never_used_and_never_misunderstood() {
    let whole = [EC, EC_KEY].concat();
    let end = "-----END EC PRIVATE KEY-----";
    for len in 0..whole.len() {
        let cut = &whole[..len];
        match read(&[cut]) {
            Ok(_) => assert!(cut.trim_end().ends_with(end), "{cut}"),
            Err(fault) => match fault.cause() {
                Cause::CutOff => {}
                // The cut is between two sections, or in a line that begins one.
                Cause::NoCertificate { is_binary: false } => {
                    assert!(!cut.contains("-----BEGIN CERTIFICATE"))
                }
                Cause::NoKey { is_key_file: false, is_binary: false } => {
                    assert!(!cut.contains("-----BEGIN EC PRIVATE"))
                }
                _ => panic!("{fault}\n{cut}"),
            },
        }
    }
}

#[test]
fn nothing_that_is_shown_has_a_part_of_the_key() {
    let pair = read_two(EC, EC_KEY).unwrap();
    let shown = format!("{pair:?}");
    assert!(shown.contains("ec.example"));
    let der = EC_KEY.lines().skip_while(|line| !line.contains("BEGIN EC PRIVATE")).nth(1).unwrap();
    let source = format!("{:?}", source("it.key", EC_KEY.as_bytes()));
    let fault = format!("{:?}", read_two(EC, RSA_KEY).unwrap_err());
    for shown in [shown, source, fault] {
        assert!(!shown.contains(&der[..16]) && shown.len() < 1000, "{shown}");
    }
}

proptest! {
    #[test]
    fn no_bytes_of_a_certificate_make_it_panic(
        at in 0..EC.len(),
        byte in any::<u8>(),
        key in any::<bool>(),
    ) {
        let text = if key { [EC_KEY, EC].concat() } else { [EC, EC_KEY].concat() };
        let mut bytes = text.into_bytes();
        bytes[at] = byte;
        // The signature of a certificate is its issuer's matter, so most changes within it go unnoticed.
        if let Err(fault) = Pair::read(source("pair.pem", &bytes), None) {
            prop_assert_eq!(fault.path(), Some(Path::new("pair.pem")));
        }
    }
}
