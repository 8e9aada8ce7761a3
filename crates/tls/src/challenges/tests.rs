use std::collections::HashMap;
use std::rc::Rc;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, SignatureScheme};
use testkit::AnyCertificate;

use super::*;
use crate::acceptors::Listening;
use crate::handshake::{Failed, Handshake};
use crate::testing::pair as pair_for;
use crate::{Acceptor, Acceptors, ListenerTls, Profile, SiteTls, TicketKeys, WorkerAcceptors};

const ANSWER: [u8; 32] = [0xab; 32];

fn scene() -> (Arc<Acceptors>, Rc<Listening>) {
    let site = SiteTls {
        hosts: vec!["a.example".to_owned()],
        pairs: vec![pair_for(&["a.example"])],
        http2: true,
        profile: Profile::Intermediate,
        clients: None,
    };
    let acceptor = Acceptor::new(vec![site], Box::new(|_| 0), &TicketKeys::new()).unwrap();
    let shared = Acceptors::new();
    shared.replace(HashMap::from([(0, ListenerTls { acceptor, urls: Arc::default() })]));
    let listening = WorkerAcceptors::new(Arc::clone(&shared)).of(0).unwrap();
    (shared, listening)
}

/// The end of a handshake: the certificate that the client was shown, if it is complete for the client, and whether the
/// server serves the connection.
fn shake(
    listening: &Rc<Listening>,
    name: &str,
    protocols: &[&[u8]],
    version: &'static rustls::SupportedProtocolVersion,
) -> (Option<Vec<u8>>, bool) {
    let builder = ClientConfig::builder_with_provider(provider());
    let builder = builder.with_protocol_versions(&[version]).unwrap();
    let builder =
        builder.dangerous().with_custom_certificate_verifier(AnyCertificate::signed_by(&[
            SignatureScheme::ECDSA_NISTP256_SHA256,
        ]));
    let mut config = builder.with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let mut client = ClientConnection::new(Arc::new(config), name).unwrap();
    let mut handshake = Handshake::new(Rc::clone(listening));
    loop {
        let mut sent = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut sent).unwrap();
        }
        let (mut answer, mut rest) = (Vec::new(), &sent[..]);
        let mut end = None;
        while !rest.is_empty() && end.is_none() {
            let len = 5 + usize::from(u16::from_be_bytes([rest[3], rest[4]]));
            let (record, behind) = rest.split_at(len);
            rest = behind;
            match handshake.handle(record, &mut answer) {
                Ok(None) => {}
                Ok(Some(_)) => end = Some(true),
                Err(Failed) => end = Some(false),
            }
        }
        let mut rest = &answer[..];
        while !rest.is_empty() {
            client.read_tls(&mut rest).unwrap();
            // A client that is refused says why.
            let _ = client.process_new_packets();
        }
        if let Some(is_served) = end {
            let shown = client.peer_certificates().map(|all| all[0].to_vec());
            return (shown.filter(|_| !client.is_handshaking()), is_served);
        }
    }
}

const ACME: &[&[u8]] = &[PROTOCOL];

#[test]
fn an_authority_is_shown_the_answer_and_served_nothing() {
    let (shared, listening) = scene();
    shared.set_challenges(&[("b.example".to_owned(), ANSWER)]).unwrap();
    for version in [&TLS13, &TLS12] {
        let (shown, is_served) = shake(&listening, "B.example", ACME, version);
        let shown = shown.expect("a handshake that is complete");
        // The extension is critical, and has the answer in a string of octets (RFC 8737 §3).
        let extension = [
            &[0x06, 0x08, 0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x01, 0x1f, 0x01, 0x01, 0xff][..],
            &[0x04, 0x22, 0x04, 0x20],
            &ANSWER,
        ];
        let extension = extension.concat();
        assert!(shown.windows(extension.len()).any(|part| part == extension));
        assert!(!is_served);
    }
    let counters = &listening.counters;
    assert_eq!((counters.complete_by_kind(), counters.failed()), ([1, 0, 1, 0], 0));
}

#[test]
fn a_forged_hello_changes_nothing() {
    let (shared, listening) = scene();
    let refused = (None, false);
    // No challenge waits.
    assert_eq!(shake(&listening, "a.example", ACME, &TLS13), refused);
    shared.set_challenges(&[("b.example".to_owned(), ANSWER)]).unwrap();
    let of_site = shake(&listening, "a.example", &[b"http/1.1"], &TLS13);
    assert!(of_site.0.is_some() && of_site.1);
    // Another name, none in DNS.
    assert_eq!(shake(&listening, "a.example", ACME, &TLS13), refused);
    assert_eq!(shake(&listening, "192.0.2.1", ACME, &TLS13), refused);
    // Another protocol in addition to it: the client is served as any other, with the certificate of the site.
    for protocols in [[PROTOCOL, b"http/1.1"], [b"http/1.1", PROTOCOL]] {
        assert_eq!(shake(&listening, "b.example", &protocols, &TLS13), of_site);
    }
    // Without the protocol.
    assert_eq!(shake(&listening, "b.example", &[b"http/1.1"], &TLS13), of_site);
    assert_eq!(shake(&listening, "b.example", &[], &TLS13), of_site);
    shared.set_challenges(&[]).unwrap();
    assert_eq!(shake(&listening, "b.example", ACME, &TLS13), refused);
}
