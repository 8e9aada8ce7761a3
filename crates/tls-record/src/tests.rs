//! Against rustls: what it seals is opened here, and the other way round; and what a client may send that keeps no rule is
//! taken, or refused, as rustls takes or refuses it.

use std::borrow::ToOwned as _;
use std::io::{Read as _, Write as _};
use std::sync::{Arc, LazyLock, Mutex};
use std::vec;
use std::vec::Vec;

use proptest::prelude::*;
use rustls::crypto::aws_lc_rs::{self, cipher_suite as suite, default_provider};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::version::{TLS12, TLS13};
use rustls::{
    ClientConfig, ClientConnection, ConnectionTrafficSecrets, Error, KeyLog, ServerConfig,
    ServerConnection, SupportedCipherSuite,
};
use testkit::AnyCertificate;

use crate::peer::Peer;
use crate::{Alert, Assembly, Cipher, Fault, Keys, RECORD_OVERHEAD_MAX, Records};

/// All suites of both versions whose records differ.
const SUITES: [SupportedCipherSuite; 6] = [
    suite::TLS13_AES_128_GCM_SHA256,
    suite::TLS13_AES_256_GCM_SHA384,
    suite::TLS13_CHACHA20_POLY1305_SHA256,
    suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
    suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
    suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
];

fn is_tls13(suite: SupportedCipherSuite) -> bool {
    suite.tls13().is_some()
}

/// The traffic secrets of a client and of a server.
#[derive(Debug, Default)]
struct Told(Mutex<[Vec<u8>; 2]>);

impl KeyLog for Told {
    fn log(&self, label: &str, _client_random: &[u8], secret: &[u8]) {
        let index = match label {
            "CLIENT_TRAFFIC_SECRET_0" => 0,
            "SERVER_TRAFFIC_SECRET_0" => 1,
            _ => return,
        };
        self.0.lock().unwrap()[index] = secret.to_vec();
    }
}

/// Both ends after a handshake, and the secrets.
struct Pair {
    client: ClientConnection,
    server: ServerConnection,
    told: Arc<Told>,
}

/// Moves records from one end to the other, until there are none.
macro_rules! pass {
    ($from:expr, $to:expr) => {{
        let records = take(&mut $from);
        feed(&mut $to, &records).expect("records of a good peer");
        !records.is_empty()
    }};
}

fn take<D>(from: &mut rustls::ConnectionCommon<D>) -> Vec<u8>
where
    D: rustls::SideData,
{
    let mut records = Vec::new();
    while from.wants_write() {
        from.write_tls(&mut records).unwrap();
    }
    records
}

/// Gives records to rustls. Returns the plain bytes of them, or the error.
fn feed<D: rustls::SideData>(
    to: &mut rustls::ConnectionCommon<D>,
    mut records: &[u8],
) -> Result<Vec<u8>, Error> {
    let mut plain = Vec::new();
    while !records.is_empty() {
        if to.read_tls(&mut records).unwrap_or(0) == 0 {
            break;
        }
        let state = to.process_new_packets()?;
        let begin = plain.len();
        plain.resize(begin + state.plaintext_bytes_to_read(), 0);
        to.reader().read_exact(&mut plain[begin..]).unwrap();
    }
    Ok(plain)
}

fn shake(suite: SupportedCipherSuite) -> Pair {
    static CERTIFICATE: LazyLock<(CertificateDer<'static>, Vec<u8>)> = LazyLock::new(|| {
        let made = rcgen::generate_simple_self_signed(["example.org".to_owned()]).unwrap();
        (made.cert.der().clone(), made.signing_key.serialize_der())
    });
    let (certificate, key) = &*CERTIFICATE;
    let version = if is_tls13(suite) { &TLS13 } else { &TLS12 };
    let provider = Arc::new(rustls::crypto::CryptoProvider {
        cipher_suites: vec![suite],
        kx_groups: vec![aws_lc_rs::kx_group::X25519],
        ..default_provider()
    });
    let told = Arc::new(Told::default());
    let key = PrivateKeyDer::try_from(key.clone()).unwrap();
    let mut server = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[version])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.clone()], key)
        .unwrap();
    server.enable_secret_extraction = true;
    server.key_log = Arc::<Told>::clone(&told);
    let mut client = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[version])
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(AnyCertificate::of(&default_provider()))
        .with_no_client_auth();
    client.enable_secret_extraction = true;
    let name = ServerName::try_from("example.org").unwrap();
    let mut client = ClientConnection::new(Arc::new(client), name).unwrap();
    let mut server = ServerConnection::new(Arc::new(server)).unwrap();
    client.set_buffer_limit(None);
    while pass!(client, server) | pass!(server, client) {}
    assert!(!client.is_handshaking() && !server.is_handshaking());
    Pair { client, server, told }
}

/// The keys of both directions, of the side that extracts them: what it writes with, and what it reads with.
fn keys(secrets: rustls::ExtractedSecrets, told: &Told, is_server: bool) -> (Keys, Keys) {
    let told = told.0.lock().unwrap();
    let [client, server] = [&told[0], &told[1]];
    let (write, read) = if is_server { (server, client) } else { (client, server) };
    (keys_of(secrets.tx, write), keys_of(secrets.rx, read))
}

fn keys_of((sequence, extracted): (u64, ConnectionTrafficSecrets), secret: &[u8]) -> Keys {
    let (cipher, key, iv) = match &extracted {
        ConnectionTrafficSecrets::Aes128Gcm { key, iv } => (Cipher::Aes128Gcm, key, iv),
        ConnectionTrafficSecrets::Aes256Gcm { key, iv } => (Cipher::Aes256Gcm, key, iv),
        ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => {
            (Cipher::ChaCha20Poly1305, key, iv)
        }
        _ => panic!("a cipher"),
    };
    if secret.is_empty() {
        let iv = iv.as_ref().try_into().unwrap();
        Keys::tls12(cipher, key.as_ref(), iv, sequence).unwrap()
    } else {
        Keys::tls13(cipher, secret, sequence).unwrap()
    }
}

/// Our end of a connection as a server, and rustls' as a client.
fn ours_and_client(suite: SupportedCipherSuite) -> (Records, ClientConnection) {
    let Pair { client, server, told } = shake(suite);
    let (write, read) = keys(server.dangerous_extract_secrets().unwrap(), &told, true);
    (Records::new(read, write), client)
}

/// Opens a stream that comes in parts.
fn open(ours: &mut Records, stream: &[u8], part: usize) -> Result<Vec<u8>, Fault> {
    let (mut assembly, mut plain) = (Assembly::default(), Vec::new());
    for mut input in stream.chunks(part) {
        while let Some(record) = assembly.next(&mut input)? {
            ours.open(record, &mut plain)?;
        }
    }
    Ok(plain)
}

fn seal(ours: &mut Records, pieces: &[Vec<u8>]) -> Vec<u8> {
    let len: usize = pieces.iter().map(Vec::len).sum();
    let mut out = vec![0; 2 * len + 64 * RECORD_OVERHEAD_MAX];
    let sealed = ours.seal(pieces.iter().map(|piece| &piece[..]), usize::MAX, &mut out);
    assert_eq!(sealed.plain, len);
    out.truncate(sealed.written);
    out
}

/// What happens on a connection.
#[derive(Clone, Debug)]
enum Step {
    /// The server sends these pieces.
    Ours(Vec<Vec<u8>>),
    /// The client sends bytes, which come in parts of this size.
    Theirs(Vec<u8>, usize),
    /// The client changes its keys, and asks for new ones.
    Update,
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let len = prop_oneof![3 => 0..100_usize, 1 => 4000..4200_usize, 1 => 16_000..40_000_usize];
    (len, any::<u8>())
        .prop_map(|(len, first)| (0..=250).cycle().skip(first.into()).take(len).collect())
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        prop::collection::vec(bytes(), 0..5).prop_map(Step::Ours),
        (bytes(), 1..2000_usize).prop_map(|(bytes, part)| Step::Theirs(bytes, part)),
        Just(Step::Update),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn rustls_opens_what_is_sealed_and_seals_what_is_opened(
        suite in prop::sample::select(&SUITES[..]),
        steps in prop::collection::vec(step(), 0..12),
    ) {
        let (mut ours, mut client) = ours_and_client(suite);
        for step in steps {
            match step {
                Step::Ours(pieces) => {
                    let sealed = seal(&mut ours, &pieces);
                    prop_assert!(feed(&mut client, &sealed).unwrap() == pieces.concat());
                }
                Step::Theirs(bytes, part) => {
                    client.writer().write_all(&bytes).unwrap();
                    let stream = take(&mut client);
                    prop_assert!(open(&mut ours, &stream, part).unwrap() == bytes);
                }
                Step::Update if is_tls13(suite) => {
                    client.refresh_traffic_keys().unwrap();
                    let stream = take(&mut client);
                    prop_assert_eq!(open(&mut ours, &stream, 3).unwrap(), b"");
                    prop_assert!(ours.owes_update());
                }
                Step::Update => {}
            }
        }
        let end = ours.say(Alert::CloseNotify);
        feed(&mut client, &end).unwrap();
        prop_assert!(client.process_new_packets().unwrap().peer_has_closed());
        client.send_close_notify();
        prop_assert_eq!(open(&mut ours, &take(&mut client), 1000).unwrap(), b"");
        prop_assert!(ours.has_ended());
    }
}

#[test]
fn a_stream_of_rustls_may_come_in_parts_of_any_size() {
    for suite in SUITES {
        let (mut ours, mut client) = ours_and_client(suite);
        for part in 1..200 {
            let mut stream = Vec::new();
            for text in ["one", "two", "three"] {
                client.writer().write_all(text.as_bytes()).unwrap();
                stream.extend(take(&mut client));
                if is_tls13(suite) {
                    client.refresh_traffic_keys().unwrap();
                }
            }
            stream.extend(take(&mut client));
            assert_eq!(open(&mut ours, &stream, part), Ok(b"onetwothree".to_vec()), "{part}");
            let answer = seal(&mut ours, &[b"answer".to_vec()]);
            assert_eq!(feed(&mut client, &answer).unwrap(), b"answer");
        }
    }
}

#[test]
fn rustls_understands_each_alert() {
    for suite in SUITES {
        for fault in [
            Fault::Decode,
            Fault::Flood,
            Fault::Forged,
            Fault::Illegal,
            Fault::Overflow,
            Fault::Renegotiation,
            Fault::Unexpected,
        ] {
            let (mut ours, mut client) = ours_and_client(suite);
            let alert = fault.alert().unwrap();
            let record = ours.say(alert);
            let Err(Error::AlertReceived(number)) = feed(&mut client, &record) else {
                panic!("{fault} is an alert");
            };
            assert_eq!(u8::from(number), alert as u8);
        }
    }
}

/// A record of a client that keeps no rule: the type of its content, the content, its padding, and whether new keys follow.
type Crafted = (u8, Vec<u8>, usize, bool);

fn crafted() -> impl Strategy<Value = Crafted> {
    let data =
        (prop_oneof![Just(0), Just(1), Just(16_384), Just(16_385), 0..500_usize], 0..300_usize)
            .prop_map(|(len, padding)| (23, vec![7; len], padding, false));
    let alert = prop_oneof![
        4 => Just(vec![1, 0]),
        4 => Just(vec![1, 90]),
        1 => any::<u8>().prop_map(|number| vec![2, number]),
        1 => prop::collection::vec(any::<u8>(), 0..2),
    ];
    let message = prop_oneof![
        8 => (0..=1_u8).prop_map(|asks| (vec![24, 0, 0, 1, asks], true)),
        1 => any::<u8>().prop_map(|value| (vec![24, 0, 0, 1, value], false)),
        1 => (any::<u8>(), prop::collection::vec(any::<u8>(), 0..9)).prop_map(|(kind, body)| {
            ([&[kind, 0, 0, u8::try_from(body.len()).unwrap()][..], &body].concat(), false)
        }),
        1 => Just((vec![24, 0, 0, 1, 0, 0], false)),
        1 => Just((vec![24, 0, 0, 0], false)),
    ];
    let other = (any::<u8>(), prop::collection::vec(any::<u8>(), 0..9));
    prop_oneof![
        8 => data,
        2 => (alert, 0..9_usize).prop_map(|(bytes, padding)| (21, bytes, padding, false)),
        4 => (message, 0..9_usize).prop_map(|((bytes, updates), padding)| (22, bytes, padding, updates)),
        1 => other.prop_map(|(content, bytes)| (content, bytes, 0, false)),
    ]
}

/// What a client that keeps no rule leads to: the data, and whether the connection goes on, has ended, or is broken.
fn ours_of(
    pair: Pair,
    stream: &mut dyn FnMut(&mut Peer) -> Option<Vec<u8>>,
) -> Vec<Result<(Vec<u8>, bool), ()>> {
    let Pair { client, server, told } = pair;
    let (write, read) = keys(server.dangerous_extract_secrets().unwrap(), &told, true);
    let mut ours = Records::new(read, write);
    let (write, _) = keys(client.dangerous_extract_secrets().unwrap(), &told, false);
    let mut peer = Peer::new(write);
    let mut found = Vec::new();
    while let Some(record) = stream(&mut peer) {
        let mut plain = Vec::new();
        let opened = ours.open(&record, &mut plain);
        found.push(opened.map(|()| (plain, ours.has_ended())).map_err(|_| ()));
        if opened.is_err() {
            break;
        }
    }
    found
}

fn rustls_of(
    pair: Pair,
    stream: &mut dyn FnMut(&mut Peer) -> Option<Vec<u8>>,
) -> Vec<Result<(Vec<u8>, bool), ()>> {
    let Pair { client, mut server, told } = pair;
    let (write, _) = keys(client.dangerous_extract_secrets().unwrap(), &told, false);
    let mut peer = Peer::new(write);
    let (mut found, mut has_ended) = (Vec::new(), false);
    while let Some(record) = stream(&mut peer) {
        let fed = if has_ended { Ok(Vec::new()) } else { feed(&mut server, &record) };
        has_ended |= server.process_new_packets().is_ok_and(|state| state.peer_has_closed());
        let is_broken = fed.is_err();
        found.push(fed.map(|plain| (plain, has_ended)).map_err(|_| ()));
        if is_broken {
            break;
        }
    }
    found
}

/// Returns whether there is a whole message of a handshake at least.
fn is_message(bytes: &[u8]) -> bool {
    let [_, 0, 0, len, rest @ ..] = bytes else { return false };
    rest.len() >= usize::from(*len)
}

/// The alert of a client that closes for a reason of its own, in front of its end (RFC 8446 §6.1).
const USER_CANCELED: u8 = 90;

/// Returns whether rustls is known to judge differently: it takes alerts with any content after them, and any number of
/// records without data. It refuses `user_canceled` of the wrong level, which RFC 8446 §6 says to ignore.
fn is_known(content: u8, bytes: &[u8], is_tls13: bool) -> bool {
    match content {
        21 => {
            let is_warning = bytes.first() == Some(&1);
            let is_cancelled = bytes == [2, USER_CANCELED];
            bytes.len() > 2
                || (is_tls13 && is_cancelled)
                || (!is_tls13 && is_warning && bytes.get(1) != Some(&0))
        }
        // A renegotiation, which rustls refuses with a warning; a part of a message, which rustls judges once it is whole.
        22 => !is_message(bytes) || (!is_tls13 && bytes.first() == Some(&1)),
        _ => false,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn a_client_that_keeps_no_rule_is_taken_and_refused_as_rustls_does(
        suite in prop::sample::select(&SUITES[..]),
        all in prop::collection::vec(crafted(), 1..12),
        damaged in prop::option::of((0..40_usize, any::<usize>())),
    ) {
        let is_tls13 = is_tls13(suite);
        prop_assume!(!all.iter().any(|(content, bytes, ..)| is_known(*content, bytes, is_tls13)));
        // An endless supply of one stream, whose keys differ from run to run.
        let make = || {
            let mut at = 0;
            let all = all.clone();
            move |peer: &mut Peer| {
                let (content, bytes, padding, updates) = all.get(at)?;
                let mut record = peer.seal(*content, bytes, *padding);
                if *updates && is_tls13 {
                    peer.update();
                }
                if let Some((index, place)) = damaged && index == at {
                    let place = 5 + place % (record.len() - 5);
                    record[place] ^= 1;
                }
                at += 1;
                Some(record)
            }
        };
        let ours = ours_of(shake(suite), &mut make());
        let theirs = rustls_of(shake(suite), &mut make());
        prop_assert_eq!(ours, theirs);
    }
}
