//! A client of rustls whose records are changed on their way: split, broken, repeated, cut off, with others between.

use std::collections::HashMap;
use std::sync::Arc;

use proptest::prelude::*;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, ClientConnection, RootCertStore};

use super::*;
use crate::provider::provider;
use crate::testing::{Authority, params, read, source};
use crate::{
    Acceptor, Acceptors, Clients, ListenerTls, Profile, SiteTls, TicketKeys, WorkerAcceptors,
};

/// A listener whose clients may show certificates, and clients with and without one, of each version.
struct Scene {
    listening: Rc<Listening>,
    clients: Vec<Arc<ClientConfig>>,
}

impl Scene {
    fn new() -> Self {
        let authority = Authority::new("authority");
        let issue = |name: &str| authority.issue(&params(name, &[name]));
        let (certificate, key) = issue("a.example");
        let pair = Arc::new(read(&[&certificate, &key.serialize_pem()]).unwrap());
        let ca = source("ca.pem", authority.certificate.as_bytes());
        let site = SiteTls {
            hosts: vec!["a.example".to_owned()],
            pairs: vec![pair],
            profile: Profile::Intermediate,
            clients: Some(Clients::read(ca, false, None).unwrap()),
            http2: false,
        };
        let acceptor = Acceptor::new(vec![site], Box::new(|_| 0), &TicketKeys::new()).unwrap();
        let shared = Acceptors::new();
        shared.replace(HashMap::from([(0, ListenerTls { acceptor, urls: Arc::default() })]));
        let listening = WorkerAcceptors::new(shared).of(0).unwrap();

        let der = |pem: &str| CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(der(&authority.certificate)).unwrap();
        let (shown, key) = issue("client.example");
        let key = PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes()).unwrap();
        let mut clients = Vec::new();
        for version in [&TLS13, &TLS12] {
            let builder = || {
                ClientConfig::builder_with_provider(provider())
                    .with_protocol_versions(&[version])
                    .unwrap()
                    .with_root_certificates(roots.clone())
            };
            clients.push(Arc::new(builder().with_no_client_auth()));
            let known = builder().with_client_auth_cert(vec![der(&shown)], key.clone_key());
            clients.push(Arc::new(known.unwrap()));
        }
        Self { listening, clients }
    }
}

/// What happens to a record of the client.
#[derive(Clone, Debug)]
enum Change {
    None,
    /// Its content comes in records of this many bytes. Only the server's failure is expected if it is sealed.
    Split(usize),
    /// A bit of this byte is another one, counted from the front modulo the length.
    Flip(usize, u8),
    /// It comes twice.
    Twice,
    /// The rest of it is missing, and its length says so.
    Cut(usize),
    /// These records come before it.
    Before(Vec<u8>),
    /// It does not come.
    Lost,
}

fn change() -> impl Strategy<Value = Change> {
    let alerts = |level: u8, kind: u8| vec![21, 3, 3, 0, 2, level, kind];
    prop_oneof![
        6 => Just(Change::None),
        3 => (1_usize..300).prop_map(Change::Split),
        3 => (any::<usize>(), 0_u8..8).prop_map(|(at, bit)| Change::Flip(at, bit)),
        1 => Just(Change::Twice),
        2 => (0_usize..300).prop_map(Change::Cut),
        1 => Just(Change::Lost),
        1 => Just(Change::Before(vec![20, 3, 3, 0, 1, 1])),
        1 => Just(Change::Before(vec![22, 3, 3, 0, 0])),
        1 => Just(Change::Before(vec![22, 3, 3, 0, 4, 1, 0, 0, 0])),
        1 => (1_u8..3, any::<u8>()).prop_map(move |(level, kind)| Change::Before(alerts(level, kind))),
        1 => Just(Change::Before(vec![21, 3, 3, 0, 2, 1, 0])),
        1 => prop::collection::vec(any::<u8>(), 1..40).prop_map(|content| {
            Change::Before([&[23, 3, 3, 0, u8::try_from(content.len()).unwrap()][..], &content].concat())
        }),
    ]
}

/// The records in bytes that a client has written.
fn records(mut bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    while !bytes.is_empty() {
        let len = 5 + usize::from(u16::from_be_bytes([bytes[3], bytes[4]]));
        let (record, rest) = bytes.split_at(len);
        all.push(record.to_vec());
        bytes = rest;
    }
    all
}

fn record(kind: &[u8], content: &[u8]) -> Vec<u8> {
    [kind, &u16::try_from(content.len()).unwrap().to_be_bytes(), content].concat()
}

impl Change {
    /// The records that come instead of one.
    fn make(&self, original: Vec<u8>) -> Vec<Vec<u8>> {
        let (kind, content) = (&original[..3], &original[5..]);
        match self {
            Self::None => vec![original],
            Self::Split(len) => content.chunks(*len).map(|part| record(kind, part)).collect(),
            Self::Flip(at, bit) => {
                let mut content = content.to_vec();
                let at = at % content.len().max(1);
                content.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1 << bit);
                vec![record(kind, &content)]
            }
            Self::Twice => vec![original.clone(), original],
            Self::Cut(len) => vec![record(kind, &content[..content.len().min(*len)])],
            Self::Before(others) => records(others).into_iter().chain([original]).collect(),
            Self::Lost => Vec::new(),
        }
    }

    /// Returns true if a record after this change is as good as before.
    fn is_harmless(&self, original: &[u8]) -> bool {
        match self {
            Self::None => true,
            // A message of the handshake that is not sealed. One that is has the type of data, or comes after the change
            // of the cipher (TLS 1.2): its length is that of a sealed Finished.
            Self::Split(_) => original[0] == HANDSHAKE && original.len() != 5 + 40,
            _ => false,
        }
    }
}

/// Makes a handshake. Returns true if it is complete, and if nothing was changed that matters.
fn shake(scene: &Scene, client: usize, changes: &[Change]) -> (bool, bool) {
    let name = ServerName::try_from("a.example").unwrap();
    let mut client = ClientConnection::new(Arc::clone(&scene.clients[client]), name).unwrap();
    let mut handshake = Handshake::new(Rc::clone(&scene.listening));
    let mut changes = changes.iter();
    let mut is_harmless = true;
    loop {
        let mut sent = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut sent).unwrap();
        }
        if sent.is_empty() {
            return (false, is_harmless);
        }
        let mut answer = Vec::new();
        for original in records(&sent) {
            let change = changes.next().unwrap_or(&Change::None);
            is_harmless &= change.is_harmless(&original);
            for record in change.make(original) {
                match handshake.handle(&record, &mut answer) {
                    Ok(Some(_)) => return (true, is_harmless),
                    Ok(None) => {}
                    Err(Failed) => {
                        // A handshake that has failed stays so.
                        assert_eq!(handshake.handle(&record, &mut answer).err(), Some(Failed));
                        let last = records(&answer).pop();
                        assert!(last.is_none_or(|last| last[0] == 21 || last[0] == 23));
                        return (false, is_harmless);
                    }
                }
            }
        }
        let mut rest = &answer[..];
        while !rest.is_empty() {
            client.read_tls(&mut rest).unwrap();
            // A client that was answered something else sends an alert.
            let _ = client.process_new_packets();
        }
    }
}

#[test]
fn clients_of_all_kinds_come_in() {
    let scene = Scene::new();
    for client in 0..scene.clients.len() {
        assert_eq!(shake(&scene, client, &[]), (true, true), "{client}");
    }
    let counters = &scene.listening.counters;
    assert_eq!((counters.complete_by_kind().iter().sum::<u64>(), counters.failed()), (4, 0));
}

#[test]
fn whatever_comes_a_handshake_is_complete_or_fails() {
    let scene = Scene::new();
    let kinds = 0..scene.clients.len();
    proptest!(|(client in kinds, changes in prop::collection::vec(change(), 0..8))| {
        let (is_complete, is_harmless) = shake(&scene, client, &changes);
        prop_assert!(is_complete || !is_harmless, "a handshake failed without a reason");
    });
}
