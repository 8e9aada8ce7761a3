//! TLS itself over the kernel's TCP: the transport of the binary, and a client by rustls.
//!
//! The keys of a handshake are random, so two runs of one seed differ in a few bytes of their handshakes.

use core::cell::RefCell;
use std::collections::HashMap;
use std::io::{Read as _, Write as _};
use std::rc::Rc;
use std::sync::{Arc, LazyLock};

use config::{Address, Listen};
use ring::sim::{End, Peer};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::ServerName;
use rustls::{
    AlertDescription, ClientConfig, ClientConnection, Error, HandshakeKind, ProtocolVersion,
    SupportedProtocolVersion,
};
use samum::secure::Secure;
use sendfile::KernelTcp;
use testkit::AnyCertificate;
use tls::{
    Acceptor, Acceptors, ListenerTls, Pair, Profile, Secured, SharedAcceptors, SiteTls, TicketKeys,
    Urls, WorkerAcceptors,
};

use crate::cases::Site;
use crate::seams::below::assert_a_part_is_counted;
use crate::seams::world::{
    Client, config, make as make_world, options, pass, run_until, serve_over,
};
use core::time::Duration;
use session::Http1;

pub(crate) const HOST: &str = "example.org";

thread_local! {
    static ACCEPTORS: SharedAcceptors = Rc::new(RefCell::new(acceptors()));
}

/// The settings of the first listener, with a key for ECDSA.
pub(crate) fn acceptors() -> WorkerAcceptors {
    acceptors_of(Pair::self_signed(&[HOST.to_owned()], 1_782_907_200).expect("a pair"))
}

/// The same with another pair.
pub(crate) fn acceptors_of(pair: Pair) -> WorkerAcceptors {
    let site = SiteTls {
        hosts: vec![HOST.to_owned()],
        pairs: vec![Arc::new(pair)],
        profile: Profile::Intermediate,
        clients: None,
        http2: false,
    };
    let acceptor =
        Acceptor::new(vec![site], Box::new(|_| 0), &TicketKeys::new()).expect("settings");
    let acceptors = Acceptors::new();
    let urls = Arc::new(Urls::new("https://example.org/".to_owned(), Vec::new(), None));
    acceptors.replace(HashMap::from([(0, ListenerTls { acceptor, urls })]));
    WorkerAcceptors::new(acceptors)
}

/// TLS at the first listener of a network, which takes the steps of handshakes.
pub(crate) fn secure<N>(below: N, acceptors: WorkerAcceptors) -> Secure<N> {
    let address = Address::Ip(([127, 0, 0, 1], 443).into());
    Secure::new(below, acceptors, &[(0, Listen { tls: true, ..Listen::from(address) })])
}

/// Makes the server's end.
pub(crate) fn make(tcp: KernelTcp, listener: usize) -> Secured<KernelTcp> {
    let listener = u32::try_from(listener).expect("a listener");
    ACCEPTORS.with(|acceptors| Secured::new(tcp, acceptors, listener, true))
}

/// The settings of clients: those with an even number speak TLS 1.3, the others TLS 1.2. Each connection has new keys.
pub(crate) fn client_config(number: u64) -> Arc<ClientConfig> {
    static CONFIGS: LazyLock<[Arc<ClientConfig>; 2]> = LazyLock::new(|| {
        [&rustls::version::TLS13, &rustls::version::TLS12]
            .map(|version| client_config_of(aws_lc_rs::default_provider(), version))
    });
    Arc::clone(&CONFIGS[usize::try_from(number % 2).expect("0 or 1")])
}

/// The settings of a client that speaks one version of TLS.
pub(crate) fn client_config_of(
    provider: CryptoProvider,
    version: &'static SupportedProtocolVersion,
) -> Arc<ClientConfig> {
    let any = AnyCertificate::of(&provider);
    let config = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&[version])
        .expect("a version")
        .dangerous()
        .with_custom_certificate_verifier(any)
        .with_no_client_auth();
    Arc::new(config)
}

/// The client's end.
pub(crate) struct TlsClient {
    peer: Rc<Peer>,
    connection: ClientConnection,
    received: Vec<u8>,
    has_closed: bool,
    /// True once the client has sent its end.
    has_shut_down: bool,
}

impl TlsClient {
    pub(crate) fn new(peer: Rc<Peer>, seed: u64) -> Self {
        Self::with(peer, client_config(seed))
    }

    /// The same with other settings.
    pub(crate) fn with(peer: Rc<Peer>, config: Arc<ClientConfig>) -> Self {
        let name = ServerName::try_from(HOST).expect("a name");
        let mut connection = ClientConnection::new(config, name).expect("a connection");
        connection.set_buffer_limit(None);
        let mut client = Self {
            peer,
            connection,
            received: Vec::new(),
            has_closed: false,
            has_shut_down: false,
        };
        client.flush();
        client
    }

    fn flush(&mut self) {
        let mut records = Vec::new();
        while self.connection.wants_write() {
            self.connection.write_tls(&mut records).expect("a vector");
        }
        if !records.is_empty() {
            self.peer.send(&records);
        }
    }
}

impl TlsClient {
    /// The kind of the handshake, once it is known.
    pub(crate) fn kind(&self) -> Option<HandshakeKind> {
        self.connection.handshake_kind()
    }
}

impl Client for TlsClient {
    fn send(&mut self, bytes: &[u8]) {
        self.connection.writer().write_all(bytes).expect("no limit");
        self.flush();
    }

    fn shut_down(&mut self) {
        self.has_shut_down = true;
        if !self.connection.is_handshaking() {
            self.connection.send_close_notify();
        }
        self.flush();
    }

    fn look(&mut self) {
        let bytes = self.peer.take();
        let mut input = &bytes[..];
        loop {
            let taken = self.connection.read_tls(&mut input).unwrap_or(0);
            let state = self.connection.process_new_packets().expect("records in order");
            let begin = self.received.len();
            self.received.resize(begin + state.plaintext_bytes_to_read(), 0);
            self.connection
                .reader()
                .read_exact(&mut self.received[begin..])
                .expect("they are there");
            self.has_closed |= state.peer_has_closed();
            if taken == 0 {
                break;
            }
        }
        if self.has_shut_down && !self.connection.is_handshaking() {
            // The end had to wait for the handshake.
            self.connection.send_close_notify();
        }
        self.flush();
    }

    fn received(&self) -> &[u8] {
        &self.received
    }

    /// An end that was not said is a cut.
    fn end(&self) -> Option<End> {
        let end = self.peer.end()?;
        Some(if self.has_closed { end } else { End::Reset })
    }
}

#[test]
fn a_part_of_a_record_is_counted() {
    assert_a_part_is_counted(make, &[22, 3, 1, 0x3f, 0xff, 1, 0, 0x3f, 0xfb]);
}

/// Sends `bytes` as a client. Returns the bytes that the client gets, and whether the connection has ended.
fn answer(bytes: &[u8]) -> (Vec<u8>, bool) {
    let site = Site::new("hello").file("f", "hello");
    let world = make_world(config(1), &site);
    let mut worker = serve_over::<Http1, _>(&world, options(&site), make);
    let peer = world.connect();
    peer.send(bytes);
    run_until(&mut worker, || peer.end().is_some());
    pass(&mut worker, Duration::from_secs(1));
    let received = peer.received();
    (received, peer.end().is_some())
}

#[test]
fn a_client_that_speaks_something_else_is_told() {
    let (text, has_ended) = answer(b"GET / HTTP/1.1\r\nHost: example.org\r\n\r\n");
    let text = String::from_utf8(text).expect("text");
    assert!(text.starts_with("HTTP/1.1 400 "), "{text}");
    assert!(text.contains("https://example.org/") && has_ended, "{text}");
    // Neither HTTP nor TLS.
    assert_eq!(answer(b"\x05\x01\0"), (Vec::new(), true));
}

#[test]
fn a_listener_with_tls_and_without_an_acceptor_says_nothing() {
    let site = Site::new("hello").file("f", "hello");
    let world = make_world(config(1), &site);
    let without = |tcp, _| make(tcp, 1);
    let mut worker = serve_over::<Http1, _>(&world, options(&site), without);
    let peer = world.connect();
    peer.send(b"GET /f HTTP/1.1\r\nHost: example.org\r\n\r\n");
    pass(&mut worker, Duration::from_secs(1));
    assert!(peer.end().is_some(), "at once, and not when its time is over");
    assert_eq!(peer.received_bytes(), 0);
}

/// The type of a record of an alert.
const ALERT: u8 = 21;

#[test]
fn a_broken_handshake_ends_with_an_alert() {
    // The version of a hello is nonsense; a record is longer than records may be; the type of the message is another.
    for hello in [
        &[22, 3, 1, 0, 4, 9, 0, 0, 0][..],
        &[22, 3, 1, 0xff, 0xff, 1, 0, 0, 0],
        &[22, 9, 9, 0, 5, 1, 0, 0, 1, 0],
    ] {
        let (bytes, has_ended) = answer(hello);
        assert!(has_ended, "{hello:?}");
        assert!(bytes.is_empty() || bytes[0] == ALERT, "{hello:?}: {bytes:?}");
    }
}

#[test]
fn a_hello_without_end_is_refused() {
    // A message of 65,535 bytes in records of 16 KiB.
    let mut hello = vec![22, 3, 1, 0x40, 0, 1, 0, 0xff, 0xff];
    hello.resize(5 + 0x4000, 0);
    let second = [&[22, 3, 1, 0x40, 0][..], &vec![0; 0x4000]].concat();
    hello.extend(second);
    assert!(answer(&hello).1);
}

/// Both versions of TLS, and what the server knows of a handshake.
#[test]
fn the_server_knows_what_the_handshake_has_said() {
    for (seed, version) in [(0, ProtocolVersion::TLSv1_3), (1, ProtocolVersion::TLSv1_2)] {
        let site = Site::new("hello").file("f", "hello");
        let world = make_world(config(1), &site);
        let mut worker = serve_over::<Http1, _>(&world, options(&site), make);
        let mut client = TlsClient::new(Rc::new(world.connect()), seed);
        client.send(b"GET /f HTTP/1.1\r\nHost: example.org\r\n\r\n");
        assert!(run_until(&mut worker, || {
            client.look();
            client.received().ends_with(b"hello")
        }));
        assert_eq!(client.connection.protocol_version(), Some(version));
    }
}

/// A world with a file, the worker that serves it, and a client of TLS 1.3 (an even seed) or 1.2.
macro_rules! stage {
    ($len:expr, $seed:expr => $world:ident, $worker:ident, $client:ident) => {
        let site = Site::new("hello").file("f", vec![BODY; $len]);
        let $world = make_world(config(1), &site);
        let mut $worker = serve_over::<Http1, _>(&$world, options(&site), make);
        let mut $client = TlsClient::new(Rc::new($world.connect()), $seed);
    };
}

/// A byte that no head has.
const BODY: u8 = 1;

const REQUEST: &[u8] = b"GET /f HTTP/1.1\r\nHost: example.org\r\n\r\n";

/// The bytes of bodies that a client has.
fn bodies(client: &TlsClient) -> usize {
    client.received().iter().filter(|byte| **byte == BODY).count()
}

#[test]
fn rfc8446_4_6_3_a_client_may_change_its_keys_and_asks_for_new_ones() {
    stage!(100_000, 0 => world, worker, client);
    client.send(REQUEST);
    let mut expected = 0;
    for _ in 0..40 {
        expected += 100_000;
        let is_whole = run_until(&mut worker, || {
            client.look();
            bodies(&client) >= expected
        });
        assert!(is_whole);
        // It asks for the server's new keys, too; without them it would not open what follows.
        client.connection.refresh_traffic_keys().expect("a connection of TLS 1.3");
        client.send(REQUEST);
    }
    drop(world);
}

#[test]
fn new_keys_are_sent_even_if_there_is_nothing_else() {
    stage!(5, 0 => world, worker, client);
    client.send(REQUEST);
    assert!(run_until(&mut worker, || {
        client.look();
        bodies(&client) == 5
    }));
    let before = client.peer.received_bytes();
    for _ in 0..5 {
        client.connection.refresh_traffic_keys().expect("a connection of TLS 1.3");
    }
    client.flush();
    pass(&mut worker, Duration::from_secs(1));
    // A head, a message, a type, a tag: however often the client has asked.
    assert_eq!(client.peer.received_bytes() - before, 5 + 5 + 1 + 16);
    client.send(REQUEST);
    assert!(run_until(&mut worker, || {
        client.look();
        bodies(&client) == 10
    }));
    drop(world);
}

#[test]
fn a_record_that_was_changed_on_its_way_ends_the_connection_with_an_alert() {
    for seed in [0, 1] {
        stage!(5, seed => world, worker, client);
        client.send(REQUEST);
        assert!(run_until(&mut worker, || {
            client.look();
            bodies(&client) == 5
        }));
        client.connection.writer().write_all(REQUEST).expect("no limit");
        let mut record = Vec::new();
        client.connection.write_tls(&mut record).expect("a vector");
        *record.last_mut().expect("a tag") ^= 1;
        client.peer.send(&record);
        assert!(run_until(&mut worker, || client.peer.end().is_some()));
        let bytes = client.peer.take();
        client.connection.read_tls(&mut &bytes[..]).expect("a record");
        let told = client.connection.process_new_packets();
        assert_eq!(told, Err(Error::AlertReceived(AlertDescription::BadRecordMac)));
        drop(world);
    }
}

#[test]
fn an_idle_connection_has_little_more_than_its_keys() {
    for seed in [0, 1] {
        stage!(300_000, seed => world, worker, client);
        client.send(REQUEST);
        assert!(run_until(&mut worker, || {
            client.look();
            bodies(&client) == 300_000
        }));
        pass(&mut worker, Duration::from_secs(1));
        assert!(worker.held().0 <= 500, "{:?}", worker.held());
        drop(world);
    }
}

#[test]
fn a_client_that_does_not_read_holds_the_memory_of_one_batch_at_most() {
    for seed in [0, 1] {
        stage!(3_000_000, seed => world, worker, client);
        client.send(REQUEST);
        assert!(run_until(&mut worker, || {
            client.look();
            !client.received().is_empty()
        }));
        client.peer.stop_reading();
        pass(&mut worker, Duration::from_secs(1));
        assert!(worker.held().0 < 80_000, "{:?}", worker.held());
        drop(world);
    }
}
